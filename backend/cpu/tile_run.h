/* tile_run.h -- where the walk through a fused kernel stands, and one call of it: what tile_run.c and tile_run_call.c share.
 *
 * tile_run.c moves the block and sets the addresses; tile_run_call.c runs a call on the block in hand. */
#ifndef SGLCPU_TILE_RUN_H
#define SGLCPU_TILE_RUN_H

#include "backend/cpu/tile.h"

typedef struct sglcpu_tile_state {
    const sglcpu_launch *launch;
    const sglcpu_tile *tile;
    char *scratch;
    char **at;          /* by slot: where its elements for the block in hand begin */
    int64_t *row_bytes; /* by slot: from one row of the block to the next */
    sglcpu_block block;
    int64_t strip_first, task;
    int64_t dense_cols; /* width for which the rows of tiles in scratch are set */
} sglcpu_tile_state;

void sglcpu_tile_call(const sglcpu_tile_state *r, const sglcpu_call *call);
/* The sums of a column, and those behind it, of the block of rows that `row` stands in. */
char *sglcpu_tile_column_sums(const sglcpu_tile_state *r, const sglcpu_sum *sum, int64_t row, int64_t col);

#endif
