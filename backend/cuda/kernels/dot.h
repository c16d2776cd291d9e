/* dot.h -- what dot.c and the kernels of dot.cu say to each other: sizes of tiles, structs of values.
 *
 * Plain C for both compilers. Odd invariant: a kernel takes its pointers first, in the order (from, to) or (a, b,
 * c), then one of these structs by value. */
#ifndef SGLCUDA_KERNELS_DOT_H
#define SGLCUDA_KERNELS_DOT_H

enum {
    SGLCUDA_DOT_RANK = 8,      /* SGL_MAX_RANK */
    SGLCUDA_DOT_TILE = 64,     /* rows and columns of c that a block makes at a time: 16 sums a thread */
    SGLCUDA_DOT_DEPTH = 16,    /* contracted elements in shared memory at a time */
    SGLCUDA_DOT_THREADS = 256, /* of every kernel here */
    SGLCUDA_DOT_COPY_TILE =
        32 /* a warp reads and writes this many elements in a row: a sector at least, even of bytes */
};

/* c[batch][row][column] = sum over depth of a * b; c is dense. Strides in elements. */
typedef struct sglcuda_dot_values {
    long long rows, columns, depth;
    long long a_row, a_depth, b_depth, b_column;
    long long row_tiles, column_tiles;
    long long items; /* tiles, or elements of c, of the whole batch */
    int batch_rank;
    long long batch_extent[SGLCUDA_DOT_RANK], batch_a[SGLCUDA_DOT_RANK], batch_b[SGLCUDA_DOT_RANK];
} sglcuda_dot_values;

/* to, dense and row-major in `extent`, = from through strides. In units of the kernel's size. */
typedef struct sglcuda_dot_copy_values {
    int rank;
    int fast; /* of tiles: the dim that is contiguous in from; in to it is the last one */
    long long count;
    long long extent[SGLCUDA_DOT_RANK], from[SGLCUDA_DOT_RANK], to[SGLCUDA_DOT_RANK];
    long long fast_tiles, last_tiles, tiles;
} sglcuda_dot_copy_values;

#endif
