/* compose_elementwise.c -- decompositions of activations and of mean; what all decompositions share.
 *
 * In: arguments in the graph that grows. Out: ids of values made by primitives. */
#include <math.h>

#include "ir/compose.h"

/* ---- shared --------------------------------------------------------------------------------------------------- */

sglir_id sglir_widen(sglir_graph *g, sglir_id x)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    return sglir_cast(g, x, sglir_wide_float((sgl_dtype)sglir_type_of(g, x)->dtype));
}

sglir_id sglir_cast_like(sglir_graph *g, sglir_id x, sglir_id like)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    return sglir_cast(g, x, (sgl_dtype)sglir_type_of(g, like)->dtype);
}

sglir_id sglir_reduce_last(sglir_graph *g, sglir_op op, sglir_id x)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    const int64_t last = sglir_type_of(g, x)->rank - 1;
    return sglir_reduce(g, op, x, &last, 1, true);
}

sglir_id sglir_iota(sglir_graph *g, sgl_dtype dtype, int axis, int rank, const int64_t *dims)
{
    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_INTS("dims", rank, dims), SGLIR_I("dtype", dtype) };
    return sglir_emit(g, SGLIR_OP_IOTA, NULL, 0, attrs, 3, NULL);
}

/* ---- activations ---------------------------------------------------------------------------------------------- */

/* A plain number beside x: sglir_build gives it x's dtype. */
static sglir_id number(sglir_graph *g, double value) { return sglir_constant(g, SGL_F32, value); }

/* value - x */
static sglir_id from(sglir_graph *g, double value, sglir_id x) { return sglir_sub(g, number(g, value), x); }

static sglir_id plus(sglir_graph *g, sglir_id x, double value) { return sglir_add(g, x, number(g, value)); }

void sglir_compose_silu(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node, const sglir_id *args,
                        sglir_id *out)
{
    (void)from_graph, (void)node;
    out[0] = sglir_mul(g, args[0], sglir_unary(g, SGLIR_OP_SIGMOID, args[0]));
}

void sglir_compose_silu_grad(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node,
                             const sglir_id *args, sglir_id *out)
{
    (void)from_graph, (void)node;
    sglir_id x = args[0], s = sglir_unary(g, SGLIR_OP_SIGMOID, x);
    sglir_id slope = sglir_mul(g, s, plus(g, sglir_mul(g, x, from(g, 1, s)), 1));
    out[0] = sglir_mul(g, slope, args[1]);
}

static const double root_2_over_pi = 0.79788456080286535588, root_half = 0.70710678118654752440,
                    root_half_over_pi = 0.39894228040143267794, cubic = 0.044715;

/* (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
static sglir_id tanh_of_gelu(sglir_graph *g, sglir_id x, sglir_id square)
{
    sglir_id inner = sglir_mul(g, x, plus(g, sglir_scale(g, square, cubic), 1));
    return sglir_unary(g, SGLIR_OP_TANH, sglir_scale(g, inner, root_2_over_pi));
}

/* The distribution function of the normal distribution. */
static sglir_id phi(sglir_graph *g, sglir_id x)
{
    sglir_id erf = sglir_unary(g, SGLIR_OP_ERF, sglir_scale(g, x, root_half));
    return sglir_scale(g, plus(g, erf, 1), 0.5);
}

void sglir_compose_gelu(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node, const sglir_id *args,
                        sglir_id *out)
{
    sglir_id x = args[0];
    if (sglir_attr_int(from_graph, node, "exact")) {
        out[0] = sglir_mul(g, x, phi(g, x));
        return;
    }
    sglir_id t = tanh_of_gelu(g, x, sglir_mul(g, x, x));
    sglir_id half = sglir_scale(g, x, 0.5);
    out[0] = sglir_mul(g, half, plus(g, t, 1));
}

/* exact: Phi(x) + x e^(-x^2/2) / sqrt(2 pi); else with t = tanh(u): (1 + t) / 2 + x (1 - t^2) u' / 2. */
void sglir_compose_gelu_grad(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node,
                             const sglir_id *args, sglir_id *out)
{
    sglir_id x = args[0], square = sglir_mul(g, x, x), slope;
    if (sglir_attr_int(from_graph, node, "exact")) {
        sglir_id bell = sglir_unary(g, SGLIR_OP_EXP, sglir_scale(g, square, -0.5));
        sglir_id area = phi(g, x);
        slope = sglir_add(g, area, sglir_mul(g, x, sglir_scale(g, bell, root_half_over_pi)));
    } else {
        sglir_id t = tanh_of_gelu(g, x, square);
        sglir_id du = sglir_scale(g, plus(g, sglir_scale(g, square, 3 * cubic), 1), root_2_over_pi);
        sglir_id bend = sglir_mul(g, sglir_mul(g, x, from(g, 1, sglir_mul(g, t, t))), du);
        slope = sglir_scale(g, sglir_add(g, plus(g, t, 1), bend), 0.5);
    }
    out[0] = sglir_mul(g, slope, args[1]);
}

/* ---- what was derived, or never is ---------------------------------------------------------------------------- */

void sglir_compose_custom(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node, const sglir_id *args,
                          sglir_id *out)
{
    (void)g, (void)from_graph;
    for (uint32_t k = 0; k < node->out_count; k++) out[k] = args[k];
}

/* ---- bounds --------------------------------------------------------------------------------------------------- */

void sglir_compose_clamp(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node, const sglir_id *args,
                         sglir_id *out)
{
    double low = sglir_attr_float(from_graph, node, "minimum"), high = sglir_attr_float(from_graph, node, "maximum");
    if (g->status != SGL_OK) return;
    sgl_dtype dtype = (sgl_dtype)sglir_type_of(g, args[0])->dtype;
    out[0] = args[0];
    if (isfinite(low)) out[0] = sglir_binary(g, SGLIR_OP_MAXIMUM, out[0], sglir_constant(g, dtype, low));
    if (isfinite(high)) out[0] = sglir_binary(g, SGLIR_OP_MINIMUM, out[0], sglir_constant(g, dtype, high));
}

/* ---- mean ----------------------------------------------------------------------------------------------------- */

/* The sum of a narrow dtype is kept wide until it is divided: it may be too large for the dtype where the mean is not. */
void sglir_compose_mean(sglir_graph *g, const sglir_graph *from_graph, const sglir_node *node, const sglir_id *args,
                        sglir_id *out)
{
    int count;
    const int64_t *axes = sglir_attr_ints(from_graph, node, "axes", &count);
    if (g->status != SGL_OK) return;
    double elements = 1;
    for (int i = 0; i < count; i++) elements *= (double)sglir_type_of(g, args[0])->dims[axes[i]];
    bool keep = sglir_attr_int(from_graph, node, "keep") != 0;
    sglir_id sum = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, sglir_widen(g, args[0]), axes, count, keep);
    sglir_id mean = sglir_div(g, sum, sglir_constant(g, SGL_F32, elements)); /* of no elements: 0 / 0, which is NaN */
    out[0] = sglir_cast_like(g, mean, args[0]);
}
