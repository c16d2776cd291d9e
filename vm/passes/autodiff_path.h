/* autodiff_path.h -- the path from wrt to `of`: what a gradient of `of` flows through on its way to wrt.
 *
 * A path is found again for each grad, in the same arrays: they grow with the graph and are cleared where they were
 * written, so that many small grads in a long graph cost no more than what lies between each one's `of` and wrt. */
#ifndef SGLPASS_AUTODIFF_PATH_H
#define SGLPASS_AUTODIFF_PATH_H

#include "ir/ir.h"

/* Marks of a value: it depends on one of wrt, not through an op that lets no gradient pass; `of` is made from it. */
enum { SGLPASS_DEPENDS = 1, SGLPASS_NEEDED = 2, SGLPASS_ON_PATH = SGLPASS_DEPENDS | SGLPASS_NEEDED };

typedef struct sglpass_path {
    const sglir_graph *g;
    SGLCORE_VEC(sglir_id) nodes;     /* what `of` is made from, down to the first maker of wrt: users before makers */
    SGLCORE_VEC(uint8_t) marks;      /* per value */
    SGLCORE_VEC(sglir_id) gradients; /* per value: sum so far, SGLIR_NONE while none has come */
    SGLCORE_VEC(uint64_t) waiting;   /* bit per node: stands in the path, not yet met; all 0 between calls */
    const sglir_id *args;            /* of, wrt... */
    uint32_t count;
} sglpass_path;

/* args: of, then wrt; they must stay where they are until the path is cleared. Only OUT_OF_MEMORY fails. */
sgl_status sglpass_path_find(sglpass_path *path, const sglir_graph *g, const sglir_id *args, uint32_t count);
/* Whether an argument of the node, or what its regions use from around, depends on wrt. */
bool sglpass_path_feeds(const sglpass_path *path, const sglir_node *node);
/* Whether a result of the node lies on the path. */
bool sglpass_path_holds(const sglpass_path *path, const sglir_node *node);
void sglpass_path_clear(sglpass_path *path);
void sglpass_path_free(sglpass_path *path, sglcore_env *env);

#endif
