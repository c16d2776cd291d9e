/* vjp_composite.c -- derivatives of the composites that have a better rule than their decomposition.
 *
 * In: attention, rope, the vocabulary loss. Out: the composite that is their gradient, so that a backend that runs the
 * one whole may run the other whole. Odd invariant: a gradient that flows into attention's lse never arrives here;
 * autodiff takes such a node apart before. */
#include "passes/vjp_rules.h"

/* A turn is undone by the turn the other way: its transpose. */
void sglpass_vjp_rope(const sglpass_vjp *v)
{
    sglir_id args[2] = { v->dys[0], sglpass_vjp_arg(v, 1) };
    int count;
    const double *frequencies = sglir_attr_floats(v->g, sglir_node_at(v->g, v->node), "frequencies", &count);
    sglir_named attrs[] = { SGLIR_F("theta", sglpass_vjp_float(v, "theta")),
                            SGLIR_I("inverse", !sglpass_vjp_int(v, "inverse")),
                            SGLIR_FLOATS("frequencies", count, frequencies) };
    sglir_emit(v->g, SGLIR_OP_ROPE, args, 2, attrs, 3, &v->into[0]);
}

/* (q, k, v, offset, segments...) -> (out, lse) */
void sglpass_vjp_attention(const sglpass_vjp *v)
{
    uint32_t segments = sglir_node_at(v->g, v->node)->arg_count - 4;
    sglir_id args[9] = { sglpass_vjp_arg(v, 0),    sglpass_vjp_arg(v, 1),    sglpass_vjp_arg(v, 2),
                         sglpass_vjp_result(v, 0), sglpass_vjp_result(v, 1), v->dys[0],
                         sglpass_vjp_arg(v, 3) };
    sglir_named attrs[] = { SGLIR_F("scale", sglpass_vjp_float(v, "scale")),
                            SGLIR_I("causal", sglpass_vjp_int(v, "causal")),
                            SGLIR_I("window", sglpass_vjp_int(v, "window")) };
    for (uint32_t i = 0; i < segments; i++) args[7 + i] = sglpass_vjp_arg(v, 4 + i);
    sglir_emit(v->g, SGLIR_OP_ATTENTION_GRAD, args, 7 + (int)segments, attrs, 3, v->into);
}

/* (x, weight, targets) -> losses; the gradient's own losses are left for simplify to put in the place of these. */
void sglpass_vjp_linear_cross_entropy(const sglpass_vjp *v)
{
    sglir_id args[4] = { sglpass_vjp_arg(v, 0), sglpass_vjp_arg(v, 1), sglpass_vjp_arg(v, 2), v->dys[0] };
    sglir_named ignore = SGLIR_I("ignore", sglpass_vjp_int(v, "ignore"));
    sglir_id out[3] = { SGLIR_NONE, SGLIR_NONE, SGLIR_NONE };
    sglir_emit(v->g, SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, args, 4, &ignore, 1, out);
    v->into[0] = out[1];
    v->into[1] = out[2];
}
