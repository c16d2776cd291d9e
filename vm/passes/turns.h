/* turns.h -- how the rows of a step's feeds are cut into micro-batches: stretches of turns that have as many rows each.
 *
 * In: a graph after `shard`, the plan. Out: as many stretches on every rank, at the same turns, whatever each rank's
 * rows: 1 where every rank's rows are a multiple of micro, else up to 3. Read by `micro`, which makes a loop of each,
 * and by `stages`, which takes their turns. Odd invariant: extents are told as multiples of `unit`, the rows of the
 * smallest feed here; where all is even unit is micro, and each turn has one. */
#ifndef SGLPASS_TURNS_H
#define SGLPASS_TURNS_H

#include "passes/pass.h"

enum { SGLPASS_MOST_STRETCHES = 3 };

typedef struct sglpass_stretch {
    int64_t first, turns;        /* the first turn, how many */
    int64_t size, start;         /* of `unit`: each turn's, where the first turn begins */
    int64_t all_size, all_start; /* of `all`: of all ranks' parts of one such turn, where this rank's begins there */
} sglpass_stretch;

typedef struct sglpass_turns {
    int count;
    sglpass_stretch at[SGLPASS_MOST_STRETCHES];
    int64_t unit, all; /* of this rank, of all ranks together */
    bool even;
} sglpass_turns;

/* Of the plan's micro-batches. INVALID_ARGUMENT: no rank has a row for some of them, or feeds of uneven rows are no
 * multiples of one another. */
sgl_status sglpass_find_turns(const sglpass_context *context, const sglir_graph *g, sglpass_turns *turns);

/* A turn's part of an extent that is split over micro. */
static inline int64_t sglpass_turn_part(const sglpass_turns *turns, const sglpass_stretch *at, int64_t extent)
{
    return extent / turns->unit * at->size;
}
/* Where the stretch begins in such an extent. */
static inline int64_t sglpass_turn_start(const sglpass_turns *turns, const sglpass_stretch *at, int64_t extent)
{
    return extent / turns->unit * at->start;
}
/* Whether the extent can be cut so. */
static inline bool sglpass_turns_divide(const sglpass_turns *turns, int64_t extent)
{
    return extent % turns->unit == 0;
}

#endif
