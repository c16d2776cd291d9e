/* vjp_rules.h -- the rules of column vjp of ops.def, declared; and what they are written in.
 *
 * Every op of the table names one of these functions, so a rule that is missing fails the link. `compose` is declared
 * by the same expansion and never defined: the table (vjp.c) puts NULL there. Values are asked for by id, never kept
 * by pointer, because each formula makes the graph grow. */
#ifndef SGLPASS_VJP_RULES_H
#define SGLPASS_VJP_RULES_H

#include "passes/vjp.h"

#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attributes, infer, compose, vjp, labels, cost,  \
                 help)                                                                                                 \
    void sglpass_vjp_##vjp(const sglpass_vjp *v);
#include "ir/ops.def"
#undef SGLIR_OP

/* The value in dtype `to`. A product, or a sum of some, that is narrower is no cast but emitted anew with wide sums (vjp_wide.c). */
sglir_id sglpass_vjp_widened(sglir_graph *g, sglir_id value, sgl_dtype to);

/* Argument i, result k and the gradient of result k of the node that the rule is asked about. */
static inline sglir_id sglpass_vjp_arg(const sglpass_vjp *v, uint32_t i)
{
    return sglir_arg(v->g, sglir_node_at(v->g, v->node), i);
}
static inline sglir_id sglpass_vjp_result(const sglpass_vjp *v, uint32_t k)
{
    return sglir_node_at(v->g, v->node)->out_first + k;
}
/* An attribute of the node. */
static inline int64_t sglpass_vjp_int(const sglpass_vjp *v, const char *name)
{
    return sglir_attr_int(v->g, sglir_node_at(v->g, v->node), name);
}
static inline double sglpass_vjp_float(const sglpass_vjp *v, const char *name)
{
    return sglir_attr_float(v->g, sglir_node_at(v->g, v->node), name);
}

#endif
