/* collect_parts.h -- inside the pass `collect`: exchanges merged into runs, a region at a time.
 *
 * collect.c calls the two merges with what it made. collect_runs.c holds what both share: who reads what, where each
 * exchange can stand, the new graph; collect_parts.c and collect_sums.c say which exchanges they merge, which go
 * together, and what a run becomes. */
#ifndef SGLPASS_COLLECT_PARTS_H
#define SGLPASS_COLLECT_PARTS_H

#include "passes/pass.h"

enum { SGLPASS_FROM_THE_BEGINNING = -1, SGLPASS_IN_NO_RUN = -1 };

/* An exchange of the region at hand. */
typedef struct sglpass_merge_item {
    sglir_id node;
    int64_t at;         /* where it stands */
    int64_t ready;      /* position of the node after which it can be, or SGLPASS_FROM_THE_BEGINNING */
    int64_t first_read; /* of what it makes */
    int64_t bytes;      /* alike on all ranks */
    bool for_backward;  /* of parts: the first reader is the backward's; of sums: it is one itself */
    int32_t run;        /* into runs, or SGLPASS_IN_NO_RUN: it stays where it is */
} sglpass_merge_item;

/* Members stand in the order of their items. */
typedef struct sglpass_merge_run {
    sglir_id first; /* a member's node */
    int64_t before; /* late: it stands before this position; early: behind the one before it */
    int64_t first_read, bytes, axes;
    uint16_t op, dtype;
    uint8_t partial; /* of what it makes */
    bool scaled, late, for_backward, closed;
    int32_t members;
} sglpass_merge_run;

/* A region. */
typedef struct sglpass_merge_scope {
    sglir_id region;
    SGLCORE_VEC(sglpass_merge_item) items;
    SGLCORE_VEC(sglpass_merge_run) runs;
} sglpass_merge_scope;

typedef struct sglpass_merger sglpass_merger;

typedef struct sglpass_merging {
    /* Whether a node of the region at hand is one of those, and its facts; run is filled later. */
    bool (*item)(const sglpass_merger *m, sglir_id id, sglpass_merge_item *item);
    /* Item i, of all in the order in which they can be, into a run, or none. */
    sgl_status (*put)(sglpass_merger *m, int64_t i);
    /* What a run becomes in the new graph, whose arguments are there; in the map. */
    sgl_status (*emit)(sglpass_merger *m, const sglpass_merge_run *run, int32_t index);
    bool one_stays; /* what is alone in its run stays where it is */
} sglpass_merging;

struct sglpass_merger {
    const sglpass_context *context;
    const sglpass_merging *merging;
    sglir_rewrite rewrite;
    uint8_t *live, *done;    /* per node; done: not emitted in its place */
    int64_t *position;       /* per node: in its region */
    int64_t *first_use;      /* per value: position of its first reader in its region */
    sglir_id *reader;        /* per value: that one, SGLIR_NONE: an output or a yield alone */
    sglpass_merge_scope *at; /* the region at hand */
    SGLCORE_VEC(sglir_id) stack;
    SGLCORE_VEC(sglir_id) args;    /* of one run */
    SGLCORE_VEC(int64_t) lists[3]; /* of one run: what its attributes list */
    sglcore_arena arena;
};

/* Whether the graph has anything of that kind. */
bool sglpass_has_parts(const sglir_graph *g);
bool sglpass_has_sums(const sglir_graph *g);
sgl_status sglpass_collect_parts(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_collect_sums(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

/* ---- what both share --------------------------------------------------------------------------------------------- */

static inline const sglir_node *sglpass_merged_at(const sglpass_merger *m, sglir_id node)
{
    return sglir_node_at(m->rewrite.from, node);
}

/* It can stand wherever its argument does. */
bool sglpass_merge_goes_along(const sglir_node *node);
/* The node that makes, but for what goes along, what the exchange reads; SGLIR_NONE: an input, or what comes from
 * outside of the region. */
sglir_id sglpass_merge_source(const sglpass_merger *m, const sglir_node *exchange);
bool sglpass_merge_fits(const sglpass_merge_run *a, const sglpass_merge_run *b);
/* The run that is open for the like of this one, and not too late for it; those that are, it closes. */
sglpass_merge_run *sglpass_merge_open(sglpass_merger *m, const sglpass_merge_run *own);
/* Into this run, or a new one that begins with it (NULL). */
sgl_status sglpass_merge_join(sglpass_merger *m, sglpass_merge_item *item, const sglpass_merge_run *own,
                              sglpass_merge_run *open);
sgl_status sglpass_merge(const sglpass_context *context, const sglpass_merging *merging, const sglir_graph *in,
                         sglir_graph **out);

#endif
