/* vjp_along.c -- derivatives of what works along axes: recurrences, running sums, products, orders, flips, and what is
 * taken by an index along an axis.
 *
 * All of these are linear in what a gradient flows through once the factors, or the places, are known; so each rule is a
 * transpose: a recurrence's is the recurrence the other way, a sort's puts back what it took. */
#include <string.h>

#include "passes/vjp_rules.h"

static int64_t extent_of_arg(const sglpass_vjp *v, uint32_t i, int64_t axis)
{
    return sglir_type_of(v->g, sglpass_vjp_arg(v, i))->dims[axis];
}

/* y_i = a_i y_(i-1) + b_i: with g_i = dy_i + a_(i+1) g_(i+1), db = g and da_i = g_i y_(i-1); a_0 has no say. */
void sglpass_vjp_recurrence(const sglpass_vjp *v)
{
    int axis = (int)sglpass_vjp_int(v, "axis");
    bool reverse = sglpass_vjp_int(v, "reverse") != 0;
    sglir_id next = sglir_shift(v->g, sglpass_vjp_arg(v, 0), axis, !reverse);
    sglir_id db = sglir_recurrence(v->g, next, v->dys[0], axis, !reverse);
    v->into[1] = db;
    if (!v->wanted[0]) return;
    sglir_id before = sglir_shift(v->g, sglpass_vjp_result(v, 0), axis, reverse);
    v->into[0] = sglir_mul(v->g, db, before);
}

void sglpass_vjp_cumulative_sum(const sglpass_vjp *v)
{
    sglir_named attrs[] = { SGLIR_I("axis", sglpass_vjp_int(v, "axis")),
                            SGLIR_I("reverse", !sglpass_vjp_int(v, "reverse")),
                            SGLIR_I("exclusive", sglpass_vjp_int(v, "exclusive")) };
    sglir_emit(v->g, SGLIR_OP_CUMULATIVE_SUM, v->dys, 1, attrs, 3, &v->into[0]);
}

void sglpass_vjp_flip(const sglpass_vjp *v)
{
    int count;
    int64_t axes[SGL_MAX_RANK];
    const int64_t *listed = sglir_attr_ints(v->g, sglir_node_at(v->g, v->node), "axes", &count);
    memcpy(axes, listed, (size_t)count * sizeof *axes);
    sglir_named attr = SGLIR_INTS("axes", count, axes);
    sglir_emit(v->g, SGLIR_OP_FLIP, v->dys, 1, &attr, 1, &v->into[0]);
}

/* ---- products over axes ---- */

static sglir_id exclusive_product(const sglpass_vjp *v, sglir_id x, int axis, bool reverse)
{
    sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("reverse", reverse), SGLIR_I("exclusive", 1) };
    return sglir_emit(v->g, SGLIR_OP_CUMULATIVE_PROD, &x, 1, attrs, 3, NULL);
}

/* The product of the others is that of those before times that of those after: no division, so zeros are no matter. The
 * reduced axes are made one, the last; where its extent does not fit 64 bits, x has no elements, and 0 is as right. */
void sglpass_vjp_reduce_prod(const sglpass_vjp *v)
{
    const sglir_type type = *sglir_type_of(v->g, sglpass_vjp_arg(v, 0));
    int count, at = 0;
    const int64_t *axes = sglir_attr_ints(v->g, sglir_node_at(v->g, v->node), "axes", &count);
    bool reduced[SGL_MAX_RANK] = { false };
    for (int i = 0; i < count; i++) reduced[axes[i]] = true;
    if (count == 0) {
        v->into[0] = v->dys[0];
        return;
    }
    int64_t order[SGL_MAX_RANK], inverse[SGL_MAX_RANK], turned[SGL_MAX_RANK] = { 0 }, dims[SGL_MAX_RANK], total = 1;
    for (int pass = 0; pass < 2; pass++) {
        for (int d = 0; d < type.rank; d++) {
            if (reduced[d] != (pass == 1)) continue;
            turned[at] = type.dims[d];
            inverse[d] = at;
            order[at++] = d;
            if (pass == 1 && __builtin_mul_overflow(total, type.dims[d], &total)) total = 0;
        }
    }
    int rank = type.rank - count;
    memcpy(dims, turned, sizeof dims);
    dims[rank] = total;
    sglir_id x = sglir_reshape(v->g, sglir_transpose(v->g, sglpass_vjp_arg(v, 0), order), rank + 1, dims);
    sglir_id before = exclusive_product(v, x, rank, false), after = exclusive_product(v, x, rank, true);
    dims[rank] = 1;
    sglir_id dy = sglir_reshape(v->g, v->dys[0], rank + 1, dims), others = sglir_mul(v->g, before, after);
    sglir_id dx = sglir_reshape(v->g, sglir_mul(v->g, others, dy), type.rank, turned);
    v->into[0] = sglir_transpose(v->g, dx, inverse);
}

/* ---- by place ---- */

static sglir_id add_along(const sglpass_vjp *v, sglir_id indices, sglir_id updates, int64_t axis, int64_t extent)
{
    sglir_id args[2] = { indices, updates };
    sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("extent", extent) };
    return sglir_emit(v->g, SGLIR_OP_ADD_ALONG, args, 2, attrs, 2, NULL);
}

/* What comes for the values goes back to where they came from; indices are integers. */
static void put_back(const sglpass_vjp *v, int64_t axis)
{
    if (v->dys[0] == SGLIR_NONE) return;
    v->into[0] = add_along(v, sglpass_vjp_result(v, 1), v->dys[0], axis, extent_of_arg(v, 0, axis));
}

void sglpass_vjp_sort(const sglpass_vjp *v) { put_back(v, sglpass_vjp_int(v, "axis")); }

void sglpass_vjp_top_k(const sglpass_vjp *v) { put_back(v, sglir_type_of(v->g, sglpass_vjp_arg(v, 0))->rank - 1); }

void sglpass_vjp_take_along(const sglpass_vjp *v)
{
    int64_t axis = sglpass_vjp_int(v, "axis");
    if (v->wanted[0]) v->into[0] = add_along(v, sglpass_vjp_arg(v, 1), v->dys[0], axis, extent_of_arg(v, 0, axis));
}

void sglpass_vjp_add_along(const sglpass_vjp *v)
{
    if (!v->wanted[1]) return;
    sglir_id args[2] = { v->dys[0], sglpass_vjp_arg(v, 0) };
    sglir_named attr = SGLIR_I("axis", sglpass_vjp_int(v, "axis"));
    sglir_emit(v->g, SGLIR_OP_TAKE_ALONG, args, 2, &attr, 1, &v->into[1]);
}
