/* vjp.h -- the derivative rules, one per row of ops.def (column vjp): how autodiff and the rules meet.
 *
 * A rule is handed one node, the gradients of its results (SGLIR_NONE where none flows), and puts into `into[i]` the
 * gradient of argument i, in the type of that argument, or SGLIR_NONE for none. It emits into the graph in which the
 * node stands. Rules are formulas; sums over several uses are autodiff's. */
#ifndef SGLPASS_VJP_H
#define SGLPASS_VJP_H

#include "ir/ir.h"

typedef struct sglpass_vjp {
    sglir_graph *g;
    sglir_id node;         /* in g */
    const sglir_id *dys;   /* per result */
    sglir_id *into;        /* per argument, SGLIR_NONE at first */
    const uint8_t *wanted; /* per argument: 1 when its gradient is needed; a rule may skip the others */
} sglpass_vjp;

typedef void (*sglpass_vjp_fn)(const sglpass_vjp *v);

/* Of the op's row; NULL for `compose` (autodiff decomposes the node first). `zero` and `refuse` are functions. */
sglpass_vjp_fn sglpass_vjp_rule(sglir_op op);

#endif
