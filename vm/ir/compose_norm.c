/* compose_norm.c -- decompositions of the row-wise composites: softmax, rms_norm, layer_norm.
 *
 * In: x [..., d] and vectors [d]. Out: [..., d] in x's dtype. */
#include "ir/compose.h"

/* A softmax does not depend on what is taken off first, so no gradient need flow through the maximum. */
void sglir_compose_softmax(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                           sglir_id *out)
{
    (void)from, (void)node;
    sglir_id x = sglir_widen(g, args[0]);
    sglir_id most = sglir_unary(g, SGLIR_OP_STOP_GRADIENT, sglir_reduce_last(g, SGLIR_OP_REDUCE_MAX, x));
    sglir_id powers = sglir_unary(g, SGLIR_OP_EXP, sglir_sub(g, x, most));
    out[0] = sglir_cast_like(g, sglir_div(g, powers, sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, powers)), args[0]);
}

/* The mean of the last dimension, kept as 1. */
static sglir_id mean_last(sglir_graph *g, sglir_id x)
{
    sglir_id sum = sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, x);
    if (g->status != SGL_OK) return SGLIR_NONE;
    const sglir_type *type = sglir_type_of(g, x);
    return sglir_scale(g, sum, 1 / (double)type->dims[type->rank - 1]);
}

/* x / sqrt(mean of x^2 + eps) */
static sglir_id normalise(sglir_graph *g, sglir_id x, double eps)
{
    sglir_id square = mean_last(g, sglir_mul(g, x, x));
    sglir_id guarded = sglir_add(g, square, sglir_constant(g, SGL_F32, eps));
    return sglir_mul(g, x, sglir_unary(g, SGLIR_OP_RSQRT, guarded));
}

void sglir_compose_rms_norm(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                            sglir_id *out)
{
    sglir_id y = normalise(g, sglir_widen(g, args[0]), sglir_attr_float(from, node, "eps"));
    out[0] = sglir_cast_like(g, sglir_mul(g, y, sglir_widen(g, args[1])), args[0]);
}

void sglir_compose_layer_norm(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                              sglir_id *out)
{
    sglir_id x = sglir_widen(g, args[0]);
    sglir_id y = normalise(g, sglir_sub(g, x, mean_last(g, x)), sglir_attr_float(from, node, "eps"));
    sglir_id scaled = sglir_mul(g, y, sglir_widen(g, args[1]));
    out[0] = sglir_cast_like(g, sglir_add(g, scaled, sglir_widen(g, args[2])), args[0]);
}
