/* vjp_movement.c -- derivatives of what moves elements: reductions, reshapes, slices, packs, look-ups by index.
 *
 * Each of these is linear where a gradient flows (a maximum is, once it is known who won), so its rule is its
 * transpose: a sum's is a broadcast, a slice's is a pad, a gather's is a scatter-add, and the other way round. */
#include <string.h>

#include "passes/vjp_rules.h"

/* Type of argument i and of result k, copied: a pointer into the graph dies when it grows. */
static sglir_type type_of_arg(const sglpass_vjp *v, uint32_t i) { return *sglir_type_of(v->g, sglpass_vjp_arg(v, i)); }

static sglir_type type_of_result(const sglpass_vjp *v, uint32_t k)
{
    return *sglir_type_of(v->g, sglpass_vjp_result(v, k));
}

static sglir_id zeros_like(const sglpass_vjp *v, sglir_id like) { return sglir_constant_like(v->g, like, 0); }

/* ---- reductions ---- */

/* What stands for a reduced value, over the whole of x again. */
static sglir_id spread(const sglpass_vjp *v, sglir_id reduced)
{
    sglir_type type = type_of_arg(v, 0);
    int64_t kept[SGL_MAX_RANK];
    memcpy(kept, type.dims, sizeof kept);
    int count;
    const int64_t *axes = sglir_attr_ints(v->g, sglir_node_at(v->g, v->node), "axes", &count);
    for (int i = 0; i < count; i++) kept[axes[i]] = 1;
    return sglir_broadcast(v->g, sglir_reshape(v->g, reduced, type.rank, kept), type.rank, type.dims);
}

void sglpass_vjp_reduce_sum(const sglpass_vjp *v) { v->into[0] = spread(v, v->dys[0]); }

/* dy / ties where x is the extreme, 0 elsewhere; ties: how many elements are the extreme. */
void sglpass_vjp_reduce_extreme(const sglpass_vjp *v)
{
    sglir_id x = sglpass_vjp_arg(v, 0);
    sgl_dtype dtype = (sgl_dtype)type_of_arg(v, 0).dtype;
    sglir_id wins = sglir_binary(v->g, SGLIR_OP_EQUAL, x, spread(v, sglpass_vjp_result(v, 0)));
    int64_t axes[SGL_MAX_RANK];
    int count;
    const sglir_node *node = sglir_node_at(v->g, v->node);
    const int64_t *listed = sglir_attr_ints(v->g, node, "axes", &count);
    memcpy(axes, listed, (size_t)count * sizeof *axes);
    bool keep = sglir_attr_int(v->g, node, "keep") != 0;
    sglir_id ties = sglir_reduce(v->g, SGLIR_OP_REDUCE_SUM, sglir_cast(v->g, wins, dtype), axes, count, keep);
    sglir_id share = spread(v, sglir_div(v->g, v->dys[0], ties));
    v->into[0] = sglir_select(v->g, wins, share, sglir_constant(v->g, dtype, 0));
}

/* dy e^(x - y), with y taken as 0 where it is not finite: rows of -inf give 0. */
void sglpass_vjp_logsumexp(const sglpass_vjp *v)
{
    sglir_id y = sglpass_vjp_result(v, 0), x = sglpass_vjp_arg(v, 0);
    sglir_id zero = sglir_constant(v->g, (sgl_dtype)type_of_arg(v, 0).dtype, 0);
    sglir_id base = sglir_select(v->g, sglir_unary(v->g, SGLIR_OP_IS_FINITE, y), y, zero);
    sglir_id share = sglir_unary(v->g, SGLIR_OP_EXP, sglir_sub(v->g, x, spread(v, base)));
    v->into[0] = sglir_mul(v->g, spread(v, v->dys[0]), share);
}

/* ---- movement ---- */

void sglpass_vjp_reshape(const sglpass_vjp *v)
{
    v->into[0] = sglir_reshape_like(v->g, v->dys[0], sglpass_vjp_arg(v, 0));
}

void sglpass_vjp_broadcast(const sglpass_vjp *v)
{
    sglir_type type = type_of_arg(v, 0);
    v->into[0] = sglir_sum_to_shape(v->g, v->dys[0], type.rank, type.dims);
}

void sglpass_vjp_transpose(const sglpass_vjp *v)
{
    int64_t inverse[SGL_MAX_RANK] = { 0 };
    int count;
    const int64_t *order = sglir_attr_ints(v->g, sglir_node_at(v->g, v->node), "order", &count);
    for (int i = 0; i < count; i++) inverse[order[i]] = i;
    v->into[0] = sglir_transpose(v->g, v->dys[0], inverse);
}

static sglir_id slice(const sglpass_vjp *v, sglir_id x, int64_t axis, int64_t start, int64_t stop, int64_t step)
{
    sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("start", start), SGLIR_I("stop", stop),
                            SGLIR_I("step", step) };
    sglir_id out = SGLIR_NONE;
    return sglir_emit(v->g, SGLIR_OP_SLICE, &x, 1, attrs, 4, &out);
}

/* Zeros before, after and between, so that each element stands where it was taken from. Where none was taken nothing comes back:
 * zeros made here would owe no loss scale, which what they are added to may do. */
void sglpass_vjp_slice(const sglpass_vjp *v)
{
    int64_t axis = sglpass_vjp_int(v, "axis"), start = sglpass_vjp_int(v, "start");
    int64_t step = sglpass_vjp_int(v, "step"), taken = type_of_result(v, 0).dims[axis];
    if (taken == 0) return;
    int64_t end = start + (taken - 1) * step + 1;
    sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("before", start),
                            SGLIR_I("after", type_of_arg(v, 0).dims[axis] - end), SGLIR_I("between", step - 1) };
    sglir_emit(v->g, SGLIR_OP_PAD, v->dys, 1, attrs, 4, &v->into[0]);
}

void sglpass_vjp_pad(const sglpass_vjp *v)
{
    int64_t axis = sglpass_vjp_int(v, "axis"), before = sglpass_vjp_int(v, "before");
    int64_t step = sglpass_vjp_int(v, "between") + 1, extent = type_of_arg(v, 0).dims[axis];
    int64_t stop = extent == 0 ? before : before + (extent - 1) * step + 1;
    v->into[0] = slice(v, v->dys[0], axis, before, stop, step);
}

void sglpass_vjp_concat(const sglpass_vjp *v)
{
    int64_t axis = sglpass_vjp_int(v, "axis"), start = 0;
    uint32_t count = sglir_node_at(v->g, v->node)->arg_count;
    for (uint32_t i = 0; i < count; i++) {
        int64_t stop = start + type_of_arg(v, i).dims[axis];
        if (v->wanted[i]) v->into[i] = slice(v, v->dys[0], axis, start, stop, 1);
        start = stop;
    }
}

/* ---- packs ---- */

/* The gradients of all parts are views of dy, so those not wanted cost nothing. */
void sglpass_vjp_pack(const sglpass_vjp *v)
{
    sglcore_env *env = v->g->env;
    uint32_t count = sglir_node_at(v->g, v->node)->arg_count;
    SGLCORE_VEC(int64_t) ranks = { 0 };
    SGLCORE_VEC(int64_t) dims = { 0 };
    sgl_status status = SGL_OK;
    for (uint32_t i = 0; i < count && status == SGL_OK; i++) {
        sglir_type type = type_of_arg(v, i);
        status = sglcore_vec_push(env, &ranks, type.rank);
        for (int d = 0; d < type.rank && status == SGL_OK; d++) status = sglcore_vec_push(env, &dims, type.dims[d]);
    }
    if (status == SGL_OK) {
        sglir_named attrs[] = { SGLIR_INTS("ranks", ranks.count, ranks.data),
                                SGLIR_INTS("dims", dims.count, dims.data) };
        sglir_emit(v->g, SGLIR_OP_UNPACK, v->dys, 1, attrs, 2, v->into);
    } else if (v->g->status == SGL_OK) {
        v->g->status = status;
    }
    sglcore_vec_free(env, &ranks);
    sglcore_vec_free(env, &dims);
}

void sglpass_vjp_unpack(const sglpass_vjp *v)
{
    uint32_t count = sglir_node_at(v->g, v->node)->out_count;
    size_t bytes = count * sizeof(sglir_id);
    sglir_id *parts = sglcore_alloc(v->g->env, bytes);
    if (parts == NULL) {
        if (v->g->status == SGL_OK) v->g->status = SGL_OUT_OF_MEMORY;
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        parts[k] = v->dys[k] != SGLIR_NONE ? v->dys[k] : zeros_like(v, sglpass_vjp_result(v, k));
    }
    sglir_emit(v->g, SGLIR_OP_PACK, parts, (int)count, NULL, 0, &v->into[0]);
    sglcore_free(v->g->env, parts, bytes);
}

/* ---- by index ---- */

/* An index outside the table took zeros, and gives nothing back: scatter_add leaves it out. */
void sglpass_vjp_gather(const sglpass_vjp *v)
{
    if (!v->wanted[0]) return;
    sglir_id args[2] = { sglpass_vjp_arg(v, 1), v->dys[0] };
    sglir_named extent = SGLIR_I("extent", type_of_arg(v, 0).dims[0]);
    sglir_emit(v->g, SGLIR_OP_SCATTER_ADD, args, 2, &extent, 1, &v->into[0]);
}

void sglpass_vjp_scatter_add(const sglpass_vjp *v)
{
    if (!v->wanted[1]) return;
    sglir_id args[2] = { v->dys[0], sglpass_vjp_arg(v, 0) };
    sglir_emit(v->g, SGLIR_OP_GATHER, args, 2, NULL, 0, &v->into[1]);
}

static sglir_id update(const sglpass_vjp *v, sglir_id x, sglir_id part, sglir_id start, int64_t axis)
{
    sglir_id args[3] = { x, part, start }, out = SGLIR_NONE;
    sglir_named attr = SGLIR_I("axis", axis);
    return sglir_emit(v->g, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &attr, 1, &out);
}

void sglpass_vjp_dynamic_slice(const sglpass_vjp *v)
{
    sglir_id zeros = zeros_like(v, sglpass_vjp_arg(v, 0));
    v->into[0] = update(v, zeros, v->dys[0], sglpass_vjp_arg(v, 1), sglpass_vjp_int(v, "axis"));
}

/* Where `update` was written, x had no say. */
void sglpass_vjp_dynamic_update(const sglpass_vjp *v)
{
    int64_t axis = sglpass_vjp_int(v, "axis");
    sglir_id part = sglpass_vjp_arg(v, 1), start = sglpass_vjp_arg(v, 2);
    if (v->wanted[0]) v->into[0] = update(v, v->dys[0], zeros_like(v, part), start, axis);
    if (v->wanted[1]) {
        sglir_id args[2] = { v->dys[0], start };
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("size", type_of_arg(v, 1).dims[axis]) };
        sglir_emit(v->g, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 2, &v->into[1]);
    }
}
