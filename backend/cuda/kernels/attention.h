/* attention.h -- what attention's kernels and the file that launches them agree on: tiles, and the one struct of values.
 *
 * Plain C, read by nvcc too. Tensors lie as [b, t, h, d], [b, s, g, d], [b, s, g, e], logs of sums and deltas as [b, h, t].
 * Odd invariant: tiles decide in which order a sum is taken, so they depend on dtypes and extents alone. */
#ifndef SGLCUDA_KERNELS_ATTENTION_H
#define SGLCUDA_KERNELS_ATTENTION_H

typedef struct sgl_attention {
    long long b, t, h, d, s, g, e;
    long long window; /* 0: none */
    double scale;
    long long tasks; /* blocks' worth of work; a grid may have fewer blocks */
    int causal;
    int segmented; /* the places of segments are places of segments */
} sgl_attention;

/* The plain kernels: 16 x 16 threads, each with 4 x 4 numbers of a tile. */
enum {
    SGL_ATTENTION_TILE = 64,  /* queries, keys, and columns of a result at a time */
    SGL_ATTENTION_DEPTH = 32, /* of a product that is staged at a time */
    SGL_ATTENTION_THREADS = 256,
    SGL_ATTENTION_STAGE = 2 * SGL_ATTENTION_TILE * (SGL_ATTENTION_DEPTH + 1), /* elements in shared memory */
    SGL_ATTENTION_WEIGHTS = SGL_ATTENTION_TILE * (SGL_ATTENTION_TILE + 1)
};

#endif
