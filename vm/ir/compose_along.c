/* compose_along.c -- decompositions of running products, of the largest k, and of the log of a sum of exponentials.
 *
 * In: arguments in the graph that grows. Out: ids of values made by primitives. */
#include <math.h>

#include "ir/compose.h"

/* ---- running products ----------------------------------------------------------------------------------------- */

/* x, of extent 1 along axis, as the first of n elements there (the last in reverse), zeros being the others. */
static sglir_id as_first(sglir_graph *g, sglir_id x, int axis, int64_t n, bool reverse)
{
    return sglir_pad(g, x, axis, reverse ? n - 1 : 0, reverse ? 0 : n - 1);
}

/* A product is a recurrence with nothing added after its first element: y_i = x_i y_(i-1), y_0 = x_0. Without x_i itself
 * it is that of the elements before: y_i = x_(i-1) y_(i-1), y_0 = 1. */
void sglir_compose_cumulative_prod(sglir_graph *g, const sglir_graph *from, const sglir_node *node,
                                   const sglir_id *args, sglir_id *out)
{
    if (g->status != SGL_OK) return;
    int axis = (int)sglir_attr_int(from, node, "axis");
    bool reverse = sglir_attr_int(from, node, "reverse") != 0;
    int64_t n = sglir_type_of(g, args[0])->dims[axis];
    out[0] = args[0];
    if (n == 0) return;
    int64_t at = reverse ? n - 1 : 0;
    sglir_id factors = args[0], first = sglir_slice(g, args[0], axis, at, at + 1);
    if (sglir_attr_int(from, node, "exclusive")) {
        first = sglir_constant_like(g, first, 1);
        factors = sglir_shift(g, factors, axis, reverse);
    }
    out[0] = sglir_recurrence(g, factors, as_first(g, first, axis, n, reverse), axis, reverse);
}

/* ---- the largest ---------------------------------------------------------------------------------------------- */

void sglir_compose_top_k(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                         sglir_id *out)
{
    if (g->status != SGL_OK) return;
    int last = sglir_type_of(g, args[0])->rank - 1;
    const sglir_named attrs[] = { SGLIR_I("axis", last), SGLIR_I("descending", 1) };
    sglir_id sorted[2] = { SGLIR_NONE, SGLIR_NONE };
    sglir_emit(g, SGLIR_OP_SORT, args, 1, attrs, 2, sorted);
    for (int i = 0; i < 2; i++) out[i] = sglir_slice(g, sorted[i], last, 0, sglir_attr_int(from, node, "k"));
}

/* ---- log of a sum of exponentials ----------------------------------------------------------------------------- */

/* What is taken off first is the maximum where that is finite, else 0: then -inf and inf come out as they are. */
void sglir_compose_logsumexp(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                             sglir_id *out)
{
    int count;
    const int64_t *axes = sglir_attr_ints(from, node, "axes", &count);
    bool keep = sglir_attr_int(from, node, "keep") != 0;
    int64_t own[SGL_MAX_RANK]; /* `from` may be g, whose arrays move */
    for (int i = 0; i < count; i++) own[i] = axes[i];
    sglir_id x = sglir_widen(g, args[0]), most = sglir_reduce(g, SGLIR_OP_REDUCE_MAX, x, own, count, true);
    most = sglir_unary(g, SGLIR_OP_STOP_GRADIENT, most);
    sglir_id finite = sglir_unary(g, SGLIR_OP_IS_FINITE, most);
    sglir_id base = sglir_select(g, finite, most, sglir_constant(g, SGL_F32, 0));
    sglir_id powers = sglir_unary(g, SGLIR_OP_EXP, sglir_sub(g, x, base));
    sglir_id sum = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, powers, own, count, true);
    sglir_id y = sglir_cast_like(g, sglir_add(g, sglir_unary(g, SGLIR_OP_LOG, sum), base), args[0]);
    if (keep || g->status != SGL_OK) {
        out[0] = y;
        return;
    }
    int64_t dims[SGL_MAX_RANK];
    int8_t map[SGL_MAX_RANK];
    int rank = 0;
    const sglir_type kept = *sglir_type_of(g, y);
    for (int i = 0; i < kept.rank; i++) {
        bool gone = false;
        for (int k = 0; k < count; k++) gone = gone || own[k] == i;
        map[i] = gone ? -1 : (int8_t)rank;
        if (!gone) dims[rank++] = kept.dims[i];
    }
    out[0] = sglir_reshape_mapped(g, y, rank, dims, map);
}
