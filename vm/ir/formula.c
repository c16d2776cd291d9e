/* formula.c -- the calls in which rules and passes write their formulas.
 *
 * In: ids, SGLIR_NONE included once the graph has failed. Out: an id, or SGLIR_NONE. Odd invariant: every call looks at
 * the graph's status before it reads a type, because after a failure its arguments are none. */
#include <string.h>

#include "ir/infer.h"

/* Whether the formula can be worked out; an argument that is no value is a failure of its own. */
static bool usable(sglir_graph *g, sglir_op op, sglir_id x)
{
    if (g->status != SGL_OK) return false;
    if (sglir_visible(g, x)) return true;
    sglir_fail_here(g, sglir_ops[op].name, "an argument is no value that can be seen here");
    return false;
}

sglir_id sglir_constant(sglir_graph *g, sgl_dtype dtype, double value)
{
    const sglir_named attrs[] = { SGLIR_F("value", value), SGLIR_I("dtype", dtype) };
    return sglir_emit(g, SGLIR_OP_CONSTANT, NULL, 0, attrs, 2, NULL);
}

sglir_id sglir_constant_like(sglir_graph *g, sglir_id like, double value)
{
    if (!usable(g, SGLIR_OP_BROADCAST, like)) return SGLIR_NONE;
    sglir_id number = sglir_constant(g, (sgl_dtype)sglir_type_of(g, like)->dtype, value);
    return sglir_broadcast_like(g, number, like);
}

/* ---- elementwise ---------------------------------------------------------------------------------------------- */

sglir_id sglir_unary(sglir_graph *g, sglir_op op, sglir_id x) { return sglir_build(g, op, &x, 1, NULL, 0, NULL); }

sglir_id sglir_binary(sglir_graph *g, sglir_op op, sglir_id a, sglir_id b)
{
    const sglir_id args[] = { a, b };
    return sglir_build(g, op, args, 2, NULL, 0, NULL);
}

sglir_id sglir_add(sglir_graph *g, sglir_id a, sglir_id b) { return sglir_binary(g, SGLIR_OP_ADD, a, b); }
sglir_id sglir_sub(sglir_graph *g, sglir_id a, sglir_id b) { return sglir_binary(g, SGLIR_OP_SUB, a, b); }
sglir_id sglir_mul(sglir_graph *g, sglir_id a, sglir_id b) { return sglir_binary(g, SGLIR_OP_MUL, a, b); }
sglir_id sglir_div(sglir_graph *g, sglir_id a, sglir_id b) { return sglir_binary(g, SGLIR_OP_DIV, a, b); }

sglir_id sglir_scale(sglir_graph *g, sglir_id x, double factor)
{
    if (!usable(g, SGLIR_OP_MUL, x)) return SGLIR_NONE;
    return sglir_mul(g, x, sglir_constant(g, (sgl_dtype)sglir_type_of(g, x)->dtype, factor));
}

sglir_id sglir_select(sglir_graph *g, sglir_id condition, sglir_id yes, sglir_id no)
{
    const sglir_id args[] = { condition, yes, no };
    return sglir_build(g, SGLIR_OP_SELECT, args, 3, NULL, 0, NULL);
}

sglir_id sglir_cast(sglir_graph *g, sglir_id x, sgl_dtype to)
{
    if (!usable(g, SGLIR_OP_CAST, x)) return SGLIR_NONE;
    if (sglir_type_of(g, x)->dtype == to) return x;
    const sglir_named attrs[] = { SGLIR_I("to", to) };
    return sglir_emit(g, SGLIR_OP_CAST, &x, 1, attrs, 1, NULL);
}

/* ---- reductions and movement ---------------------------------------------------------------------------------- */

sglir_id sglir_reduce(sglir_graph *g, sglir_op op, sglir_id x, const int64_t *axes, int count, bool keep)
{
    int64_t sorted[SGL_MAX_RANK];
    if (!usable(g, op, x)) return SGLIR_NONE;
    if (count > SGL_MAX_RANK) {
        sglir_fail_here(g, sglir_ops[op].name, "%d axes, at most %d are possible", count, SGL_MAX_RANK);
        return SGLIR_NONE;
    }
    for (int i = 0; i < count; i++) { /* an insertion sort: the op wants them ascending */
        int at = i;
        for (; at > 0 && sorted[at - 1] > axes[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = axes[i];
    }
    const sglir_named attrs[] = { SGLIR_INTS("axes", count, sorted), SGLIR_I("keep", keep) };
    return sglir_emit(g, op, &x, 1, attrs, 2, NULL);
}

/* Whether dims are the value's own. */
static bool has_dims(const sglir_graph *g, sglir_id x, int rank, const int64_t *dims)
{
    const sglir_type *type = sglir_type_of(g, x);
    return type->rank == rank && (rank == 0 || memcmp(type->dims, dims, (size_t)rank * sizeof *dims) == 0);
}

sglir_id sglir_reshape(sglir_graph *g, sglir_id x, int rank, const int64_t *dims)
{
    if (!usable(g, SGLIR_OP_RESHAPE, x)) return SGLIR_NONE;
    if (has_dims(g, x, rank, dims)) return x;
    const sglir_named attrs[] = { SGLIR_INTS("dims", rank, dims) };
    return sglir_emit(g, SGLIR_OP_RESHAPE, &x, 1, attrs, 1, NULL);
}

sglir_id sglir_reshape_mapped(sglir_graph *g, sglir_id x, int rank, const int64_t *dims, const int8_t *map)
{
    if (!usable(g, SGLIR_OP_RESHAPE, x)) return SGLIR_NONE;
    if (has_dims(g, x, rank, dims)) return x;
    int64_t layout[SGLIR_AXIS_COUNT];
    bool any = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int dim = sglir_type_of(g, x)->sharded[axis];
        layout[axis] = dim < 0 ? -1 : map[dim];
        any = any || layout[axis] >= 0;
    }
    const sglir_named attrs[] = { SGLIR_INTS("dims", rank, dims), SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    return sglir_emit(g, SGLIR_OP_RESHAPE, &x, 1, attrs, any ? 2 : 1, NULL);
}

sglir_id sglir_reshape_like(sglir_graph *g, sglir_id x, sglir_id like)
{
    if (!usable(g, SGLIR_OP_RESHAPE, like)) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(g, like);
    return sglir_reshape(g, x, type.rank, type.dims);
}

sglir_id sglir_broadcast_split(sglir_graph *g, sglir_id x, int rank, const int64_t *dims, const int8_t *split)
{
    if (!usable(g, SGLIR_OP_BROADCAST, x)) return SGLIR_NONE;
    if (has_dims(g, x, rank, dims)) return x;
    const sglir_type *type = sglir_type_of(g, x);
    int64_t layout[SGLIR_AXIS_COUNT];
    bool any = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int dim = split == NULL ? -1 : split[axis];
        int of_x = dim - (rank - type->rank); /* only dims that x has not, or of extent 1, are new */
        bool is_new = dim >= 0 && (type->partial >> axis & 1) == 0 && type->sharded[axis] < 0 &&
                      (of_x < 0 || (of_x < type->rank && type->dims[of_x] == 1));
        layout[axis] = is_new ? dim : -1;
        any = any || is_new;
    }
    const sglir_named attrs[] = { SGLIR_INTS("dims", rank, dims), SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    return sglir_emit(g, SGLIR_OP_BROADCAST, &x, 1, attrs, any ? 2 : 1, NULL);
}

sglir_id sglir_broadcast(sglir_graph *g, sglir_id x, int rank, const int64_t *dims)
{
    return sglir_broadcast_split(g, x, rank, dims, NULL);
}

sglir_id sglir_broadcast_like(sglir_graph *g, sglir_id x, sglir_id like)
{
    if (!usable(g, SGLIR_OP_BROADCAST, like)) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(g, like);
    return sglir_broadcast_split(g, x, type.rank, type.dims, type.sharded);
}

sglir_id sglir_sum_to_shape(sglir_graph *g, sglir_id x, int rank, const int64_t *dims)
{
    if (!usable(g, SGLIR_OP_REDUCE_SUM, x)) return SGLIR_NONE;
    if (has_dims(g, x, rank, dims)) return x;
    const sglir_type type = *sglir_type_of(g, x);
    int64_t axes[SGL_MAX_RANK];
    int count = 0, lead = type.rank - rank;
    bool fits = lead >= 0;
    for (int i = 0; i < type.rank && fits; i++) {
        int64_t target = i < lead ? 1 : dims[i - lead];
        fits = target == type.dims[i] || target == 1;
        if (i < lead || (target == 1 && type.dims[i] != 1)) axes[count++] = i;
    }
    if (!fits) {
        char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
        sglir_type target = type;
        target.rank = 0;
        for (int i = 0; i < rank && i < SGL_MAX_RANK; i++) target.dims[target.rank++] = dims[i];
        sglir_fail_here(g, "reduce_sum", "%s does not come from %s by broadcasting",
                        sglir_shape_text(&type, a, sizeof a), sglir_shape_text(&target, b, sizeof b));
        return SGLIR_NONE;
    }
    return sglir_reshape(g, sglir_reduce(g, SGLIR_OP_REDUCE_SUM, x, axes, count, false), rank, dims);
}

sglir_id sglir_transpose(sglir_graph *g, sglir_id x, const int64_t *order)
{
    if (!usable(g, SGLIR_OP_TRANSPOSE, x)) return SGLIR_NONE;
    int rank = sglir_type_of(g, x)->rank;
    bool same = true;
    for (int i = 0; i < rank; i++) same = same && order[i] == i;
    if (same) return x;
    const sglir_named attrs[] = { SGLIR_INTS("order", rank, order) };
    return sglir_emit(g, SGLIR_OP_TRANSPOSE, &x, 1, attrs, 1, NULL);
}

sglir_id sglir_slice(sglir_graph *g, sglir_id x, int axis, int64_t start, int64_t stop)
{
    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("start", start), SGLIR_I("stop", stop) };
    return sglir_emit(g, SGLIR_OP_SLICE, &x, 1, attrs, 3, NULL);
}

sglir_id sglir_pad(sglir_graph *g, sglir_id x, int axis, int64_t before, int64_t after)
{
    if (before == 0 && after == 0) return x;
    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("before", before), SGLIR_I("after", after) };
    return sglir_emit(g, SGLIR_OP_PAD, &x, 1, attrs, 3, NULL);
}

sglir_id sglir_shift(sglir_graph *g, sglir_id x, int axis, bool back)
{
    if (!usable(g, SGLIR_OP_SLICE, x)) return SGLIR_NONE;
    int64_t extent = sglir_type_of(g, x)->dims[axis];
    if (extent == 0) return x;
    return sglir_pad(g, sglir_slice(g, x, axis, back, extent - !back), axis, !back, back);
}

sglir_id sglir_recurrence(sglir_graph *g, sglir_id a, sglir_id b, int axis, bool reverse)
{
    const sglir_id args[] = { a, b };
    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("reverse", reverse) };
    return sglir_emit(g, SGLIR_OP_RECURRENCE, args, 2, attrs, 2, NULL);
}

sglir_id sglir_dot(sglir_graph *g, sglir_id a, sglir_id b, int batch, const int64_t *batch_a, const int64_t *batch_b,
                   int contract, const int64_t *contract_a, const int64_t *contract_b)
{
    const sglir_id args[] = { a, b };
    const sglir_named attrs[] = { SGLIR_INTS("batch_a", batch, batch_a), SGLIR_INTS("batch_b", batch, batch_b),
                                  SGLIR_INTS("contract_a", contract, contract_a),
                                  SGLIR_INTS("contract_b", contract, contract_b) };
    return sglir_emit(g, SGLIR_OP_DOT, args, 2, attrs, 4, NULL);
}
