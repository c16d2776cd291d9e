/* vjp.h -- the derivative rules, one per row of ops.def (column vjp): how autodiff and the rules meet.
 *
 * A rule is handed one node, the gradients of its results (SGLIR_NONE where none flows), and puts into `into[i]` the
 * gradient of argument i, in the type of that argument, or SGLIR_NONE for none. It emits into the graph in which the
 * node stands. Rules are formulas; sums over several uses are autodiff's. Of a node with regions, what these use from
 * around has a gradient too: its place in `into` and `wanted` is behind those of the arguments. */
#ifndef SGLPASS_VJP_H
#define SGLPASS_VJP_H

#include "ir/ir.h"

typedef struct sglpass_vjp {
    sglir_graph *g;
    sglir_id node;         /* in g */
    const sglir_id *dys;   /* per result */
    sglir_id *into;        /* per argument and capture, SGLIR_NONE at first */
    const uint8_t *wanted; /* per argument and capture: 1 when its gradient is needed; a rule may skip the others */
    const sglir_id *captures;
    uint32_t capture_count;
    sglir_id *instead; /* a node that has been emitted to take this one's place, whose first results are the same */
} sglpass_vjp;

typedef void (*sglpass_vjp_fn)(const sglpass_vjp *v);

/* For rules of nodes with regions: the graph with all its grads expanded, and no more done to it (autodiff.c). */
sgl_status sglpass_expand_grads(sglcore_env *env, const sglir_graph *in, sglir_graph **out);

/* Of the op's row; NULL for `compose` (autodiff decomposes the node first). `zero` and `refuse` are functions. */
sglpass_vjp_fn sglpass_vjp_rule(sglir_op op);

#endif
