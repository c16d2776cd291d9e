/* along.h -- the values that the kernels of along.cu take. */
#ifndef SGLCUDA_ALONG_H
#define SGLCUDA_ALONG_H

#include "index.h"

enum {
    SGLCUDA_ALONG_THREADS = 256,
    /* A running sum goes in chunks: each is summed from 0, and begins with the sum of those before it, whoever does it:
     * one thread after another chunk, or a thread for each. So the bits follow from the extent and from whether it is
     * the last one. Of the last dimension a chunk is what a block scans at once, else what is worth a thread of its
     * own. */
    SGLCUDA_ALONG_EACH = 4,
    SGLCUDA_ALONG_TILE = SGLCUDA_ALONG_THREADS * SGLCUDA_ALONG_EACH,
    SGLCUDA_ALONG_CHUNK = 64,
    /* Lines of the last dimension up to so long go as those of any other, a thread each: a block would be idle for the
     * most part. */
    SGLCUDA_ALONG_SHORT = 64,
    /* Lines of a recurrence of the last dimension go through shared memory in squares of a warp's side. */
    SGLCUDA_ALONG_SIDE = 32
};

/* Lines (o, c) of a tensor [outer, extent, inner]. */
typedef struct sglcuda_along {
    long long outer, extent, inner;
    long long chunks, chunks_each; /* of a line; of a thread (all, or one) */
    int reverse, exclusive, largest;
    int totals; /* of a tile: only its sum is asked for */
} sglcuda_along;

/* take_along: y [outer, count, inner] of x [outer, extent, inner]; add_along: the other way, from updates of the first
 * shape. */
typedef struct sglcuda_by_index {
    long long total, extent, count, inner; /* total: elements of the result */
    int index_kind;
    sglcuda_fill_value value; /* zeros */
} sglcuda_by_index;

enum { SGLCUDA_ALONG_DIMS = 8 };

/* A product over `cols` elements, for each of `rows`: dims and strides of both, merged, the last the fastest. */
typedef struct sglcuda_prod {
    long long rows, cols;
    int row_rank, col_rank;
    long long row_dims[SGLCUDA_ALONG_DIMS], row_strides[SGLCUDA_ALONG_DIMS];
    long long col_dims[SGLCUDA_ALONG_DIMS], col_strides[SGLCUDA_ALONG_DIMS];
} sglcuda_prod;

#endif
