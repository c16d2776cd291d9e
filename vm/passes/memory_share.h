/* memory_share.h -- when stored values live, and which of them lie in one place: the analysis behind `memory`.
 *
 * In: a graph of stage FUSED, with the copies that its outputs and carries need. Out: groups of values, each one place:
 * its bytes, the moments from which and until which it is needed, and what holds it to a space. Moments count nodes in
 * order; a loop or branch takes a stretch of them, with its regions' nodes inside. Odd invariant: a group is found through any value
 * of it, views included, but its fields stand at one value, its head. */
#ifndef SGLPASS_MEMORY_SHARE_H
#define SGLPASS_MEMORY_SHARE_H

#include "passes/alias.h"

/* Of one place; read at the head only. */
typedef struct sglpass_group {
    sglir_id next;       /* towards the head; itself at the head */
    int64_t first, last; /* moments, both included; states, feeds and constants: all of them */
    int64_t last_read;   /* of the one value, as an argument */
    int64_t last_work;   /* as `last`, but for waits, for whose sake what an exchange reads lives on */
    int64_t offset;      /* in its space, once placed */
    uint8_t space;       /* sglir_space; NONE: within a kernel, not stored */
    sglir_id taken_by;   /* the last node that wrote over an argument here */
} sglpass_group;

typedef struct sglpass_sharing {
    sglcore_env *env;
    const sglir_graph *g;
    sglpass_view *views;    /* per value */
    sglpass_group *groups;  /* per value */
    int64_t *begins, *ends; /* per node: its moments; -1 within kernels */
    int64_t *region_ends;   /* per region of a loop or branch: when what it yields is read */
    int64_t moments;        /* all lie in [0, moments); the last one is that of the outputs */
    uint8_t *scratch;       /* per value, zero */
    sglir_id *chain;        /* room for one value per node */
    sglir_id *waits;        /* per node: of an exchange its wait, else SGLIR_NONE */
    sglcore_arena arena;    /* of the arrays */
} sglpass_sharing;

/* Lifetimes, then who shares: loops' carries, updates of states, results over arguments that die. */
sgl_status sglpass_share(sglcore_env *env, const sglir_graph *g, sglpass_sharing *sharing);
void sglpass_share_free(sglpass_sharing *sharing);

/* The head of the value's group. */
sglir_id sglpass_head(const sglpass_sharing *sharing, sglir_id value);

/* Whether the fetched value must be copied: what it reads would not be there any more after the last node. */
bool sglpass_fetch_needs_copy(const sglir_graph *g, const sglpass_view *views, sglir_id value);

#endif
