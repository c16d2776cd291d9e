/* gather.h -- the values that the kernels of gather.cu take. */
#ifndef SGLCUDA_GATHER_H
#define SGLCUDA_GATHER_H

#include "index.h"

/* Numbers count units of the kernel (of gather_4: elements). */
typedef struct sglcuda_gather {
    long long total, row, extent; /* of the result; of a row; rows of the table */
    int index_kind;
    sglcuda_fill_value value; /* zeros */
} sglcuda_gather;

enum {
    /* Updates of a row are added in order, those of rows with more than so many in pieces of so many, counted from the
     * row's first one, whose sums are added in order: a row's bits follow from its own updates alone. One token that is
     * a tenth of 65536 makes 103 pieces, so that the sums of many threads take the place of one long chain. */
    SGLCUDA_SCATTER_PIECE = 64,
    SGLCUDA_SCATTER_THREADS = 256,
    SGLCUDA_SCATTER_VECTOR = 8, /* elements of a thread where a row holds whole ones */
    SGLCUDA_SCATTER_AHEAD = 4   /* updates that are read before the first of them is added */
};

/* Windows of SGLCUDA_SCATTER_PIECE places in the order of the rows; in each at most two pieces begin: one of the row
 * that its first place belongs to, and one of a row that begins within and goes beyond. */
typedef struct sglcuda_scatter {
    long long count, extent, width, vectors, windows; /* width: elements of a row, `vectors` threads of them */
} sglcuda_scatter;

#endif
