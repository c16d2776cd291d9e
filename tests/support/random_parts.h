/* random_parts.h -- what the files that draw a random program share: the program so far, and how values are drawn from it.
 *
 *   random_program.c   the pool, values made to fit, ops by their cases
 *   random_border.c    the program as a whole: its dtypes, inputs, loss, outputs
 *   random_regions.c   ops with regions
 *   random_chains.c    tensors larger than a tile, read in other orders than they are written in
 * Odd invariant: a drawer's graph may have failed at any time; what is drawn then is nothing. */
#ifndef RANDOM_PARTS_H
#define RANDOM_PARTS_H

#include "tests/support/random_program.h"

#define RANDOM_MODULE "drawn" /* some steps stand in this module, which may be marked to be made again */

enum { RANDOM_MOST_VALUES = 160, RANDOM_MOST_PALETTE = 8 };

typedef struct random_value {
    sglir_id id;
    bool exact;   /* nothing in it was rounded */
    bool tame;    /* its numbers are small */
    bool derives; /* no op without a derivative is behind it */
    bool kinked;  /* an op with kinks has made it, or one that has no second derivative */
} random_value;

typedef struct random_drawer {
    sglcore_env *env;
    sglir_graph *g;
    uint64_t state;
    bool smooth, empties;
    bool large;                             /* some tensors do not fit a tile */
    sgl_dtype palette[RANDOM_MOST_PALETTE]; /* dtypes of this program; [0] is its main float */
    int palette_count;
    random_value pool[RANDOM_MOST_VALUES];
    int count;
    int parameters, parameter_count; /* those of the pool that are not rounded */
    int depth;                       /* of regions */
    int inner;                       /* the first value of the pool that stands in the region that is drawn now */
    int inputs;
    int64_t batch; /* first extent of feeds that are cut into micro-batches, or 0 */
} random_drawer;

uint64_t random_draw(random_drawer *d, uint64_t below);
bool random_one_in(random_drawer *d, uint64_t chances);
int64_t random_extent(random_drawer *d);
const sglir_type *random_type(const random_drawer *d, sglir_id value);
bool random_is_float(const random_drawer *d, sglir_id value);
random_value random_pick(random_drawer *d); /* from the pool; in a region every other one from what stands in it */
void random_join(random_drawer *d, random_value value); /* the pool */
sglir_id random_squash(random_drawer *d, sglir_id x);   /* into (-1, 1) */
/* A value of the pool as the type and a case's letter (cases.def) ask; with `exact`, one that nothing was rounded in. */
random_value random_fitting(random_drawer *d, const sglir_type *asked, char letter, bool exact);
/* This value, made to fit. */
random_value random_fit(random_drawer *d, random_value v, const sglir_type *asked, char letter, bool exact);
random_value random_to_range(random_drawer *d, random_value v, char letter, bool exact);
random_value random_input(random_drawer *d, sgl_role role, sgl_dtype dtype, int rank, const int64_t *dims);
void random_steps(random_drawer *d, int steps); /* ops of any kind, their results joined */
void random_op_with_regions(random_drawer *d);

/* The shape of some large tensor. */
void random_large_shape(random_drawer *d, int *rank, int64_t *dims);
/* x in another order of its elements, or spread from a part of it; of the same shape. */
sglir_id random_moved(random_drawer *d, sglir_id x);
/* x combined with itself in another order, small numbers. */
sglir_id random_turned(random_drawer *d, sglir_id x);
/* A large tensor that is written, then read in another order for the last time, some times over. */
void random_chain(random_drawer *d);
/* A large tensor of many rows, summed over them; in the top region. */
void random_columns(random_drawer *d);

#endif
