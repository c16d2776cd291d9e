/* lifetimes.h -- when each transient value lives and where: what memory reports are drawn from.
 *
 * Comes in: a placed graph. Goes out: one entry per stored arena value and per workspace, sorted by size, largest first;
 * positions are those of the top region's nodes, and what a loop's body stores lives at the loop's position. */
#ifndef SGLSESSION_LIFETIMES_H
#define SGLSESSION_LIFETIMES_H

#include "ir/ir.h"

typedef struct sglsession_lifetime {
    sglir_id node;
    sglir_id value; /* SGLIR_NONE: the node's workspace */
    int64_t offset, bytes;
    int64_t from, to; /* positions, both included */
} sglsession_lifetime;

typedef struct sglsession_lifetimes {
    sglsession_lifetime *by_size;
    int64_t count, capacity;
    int64_t positions; /* nodes of the top region */
    int64_t peak_at;   /* position at which most bytes are live */
} sglsession_lifetimes;

sgl_status sglsession_lifetimes_of(sglcore_env *env, const sglir_graph *g, sglsession_lifetimes *all);
void sglsession_lifetimes_free(sglcore_env *env, sglsession_lifetimes *all);

#endif
