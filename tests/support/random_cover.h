/* random_cover.h -- what random programs have drawn so far: ops, dtypes, derivatives, what passes did.
 *
 * In: programs as they were drawn, and what became of them. Out: a table on stdout, and whether anything of ops.def or of the
 * pipeline was never met. Odd invariant: the counts stand in one block, which processes may share (random_cover_at). */
#ifndef RANDOM_COVER_H
#define RANDOM_COVER_H

#include <stdio.h>

#include "ir/ir.h"

enum { RANDOM_MOST_PASSES = 32 };

typedef struct random_cover {
    int drawn[SGLIR_OP_COUNT];       /* programs that hold the op */
    uint32_t dtypes[SGLIR_OP_COUNT]; /* bit per dtype of its results */
    int derived[SGLIR_OP_COUNT];     /* programs in which it stands between a parameter and a loss */
    int within[SGLIR_OP_COUNT];      /* and that in a region */
    int compiled[SGLIR_OP_COUNT];    /* programs as they run that hold it */
    uint32_t ranks;                  /* bit per rank that was drawn */
    int empty, captured,
        nested; /* programs with a tensor of no elements; gradients of what regions use; regions in regions */
    int changed[RANDOM_MOST_PASSES];   /* programs that the pass changed, per pass of the pipeline */
    int in_place;                      /* programs in which a result lies over an argument */
    int micro, narrow, bounded, steps; /* programs run so: in micro-batches, in bf16 or fp16, against a bound, twice */
    int programs, derivatives, differences; /* of all; with gradients; held against differences */
} random_cover;

/* Where the counts stand; NULL: in this process. Zeroed by the caller. */
void random_cover_at(random_cover *cover);
random_cover *random_cover_now(void);
void random_cover_add(const random_cover *other); /* to the counts */
/* A program as it was drawn. */
void random_cover_program(const sglir_graph *g);
/* The same as it is placed. */
void random_cover_compiled(const sglir_graph *placed);
void random_cover_print(FILE *out);
/* How many ops, derivatives, dtypes and passes were not met; each is told. */
int random_cover_missing(FILE *out);

#endif
