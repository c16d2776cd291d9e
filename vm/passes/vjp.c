/* vjp.c -- the table of derivative rules: column vjp of ops.def, and the two rules that are no formula.
 *
 * In: an op. Out: its rule, or NULL where the derivative goes through the decomposition. Odd invariant: autodiff
 * compares with sglpass_vjp_zero to know where no gradient can flow, so an op that cuts must name `zero` itself. */
#include "passes/vjp_rules.h"

/* No gradient flows: of integers, of steps, of generators, and where the script says stop. */
void sglpass_vjp_zero(const sglpass_vjp *v) { (void)v; }

void sglpass_vjp_refuse(const sglpass_vjp *v)
{
    sglir_fail_node(v->g, v->node, SGL_UNSUPPORTED,
                    "has no derivative, but one is asked for; put stop_gradient before it, or leave what it depends on "
                    "out of grad");
}

#define sglpass_vjp_compose NULL
static const sglpass_vjp_fn rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attributes, infer, compose, vjp, labels, cost,  \
                 help)                                                                                                 \
    [SGLIR_OP_##NAME] = sglpass_vjp_##vjp,
#include "ir/ops.def"
#undef SGLIR_OP
};

sglpass_vjp_fn sglpass_vjp_rule(sglir_op op) { return rules[op]; }
