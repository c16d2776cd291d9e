/* attention.h -- what attention's kernels and the file that launches them agree on: tiles, and the one struct of
 * values.
 *
 * Plain C, read by nvcc too. Tensors lie as [b, t, h, d], [b, s, g, d], [b, s, g, e], logs of sums and deltas as [b,
 * h, t]. Odd invariant: tiles decide in which order a sum is taken, so they depend on dtypes and extents alone. */
#ifndef SGLCUDA_KERNELS_ATTENTION_H
#define SGLCUDA_KERNELS_ATTENTION_H

typedef struct sgl_attention {
    long long b, t, h, d, s, g, e;
    long long window; /* 0: none */
    double scale;
    long long tasks;    /* blocks' worth of work; a grid may have fewer blocks */
    long long together; /* heads whose tasks are dealt together (kernels of groups alone) */
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

/* The kernels on tensor cores: narrow floats, heads of up to 64 or 128 columns, a multiple of 8 of them. Warps own
 * rows of a block, 16 at a time; tiles of the other side pass by, one being loaded while another is used. */
enum {
    SGL_TENSOR_QUERIES = 128,      /* of a block, where queries are the rows */
    SGL_TENSOR_THREADS_64 = 128,   /* 32 queries a warp: what is read of shared memory serves two products */
    SGL_TENSOR_THREADS_128 = 256,  /* 16 a warp: sums of 128 columns leave no registers for more */
    SGL_TENSOR_KEYS = 64,          /* of a tile that passes by, forward */
    SGL_TENSOR_KEYS_BACK_64 = 64,  /* backward, of heads up to 64 */
    SGL_TENSOR_KEYS_BACK_128 = 32, /* and up to 128: two blocks share a processor's memory */
    SGL_TENSOR_THREADS_DELTAS = 128,
    SGL_TENSOR_THREADS_KEYS = 128, /* where keys are the rows */
    SGL_TENSOR_ROWS_64 = 128,      /* keys of a block, where keys are the rows, of heads up to 64 */
    SGL_TENSOR_ROWS_128 = 64,      /* two sums of 128 columns leave registers for 16 rows a warp */
    SGL_TENSOR_QUERIES_BACK = 64,  /* of a tile that passes by those */
    SGL_TENSOR_EXTENT = 1 << 28,   /* queries, keys: places fit 32 bits, with an offset and a window added */
    SGL_TENSOR_FAR = 1 << 30       /* an offset from where on every key is seen */
};

/* The kernels of few queries over many keys: of every float dtype, heads of a multiple of 8 columns. */
enum {
    SGL_FEW_ROWS = 8,      /* of a task: queries times heads that share its keys */
    SGL_FEW_KEYS = 256,    /* of a task */
    SGL_FEW_QUERIES = 8,   /* up to which these serve */
    SGL_FEW_COLUMNS = 128, /* the widest head: a warp's lanes share a row, eight numbers each */
    SGL_FEW_THREADS = 256,
    SGL_FEW_THREADS_JOIN = 128
};

/* The kernels of groups of four warps (sm_90a): one group loads, two compute. Bytes of shared memory: tiles of queries
 * and of results, two of keys and of values each, and 1 KiB of barriers and tasks. */
enum {
    SGL_GROUP_THREADS = 384,
    SGL_GROUP_THREADS_FINISH = 256,
    SGL_GROUP_QUERIES = 128, /* of a block, 64 a group */
    SGL_GROUP_KEYS = 128,
    SGL_GROUP_COUNTERS = 64 /* words before the turns of tiles: the counter of tasks has a line of its own */
};
#define SGL_GROUP_SHARED(columns) ((2 * SGL_GROUP_QUERIES + 4 * SGL_GROUP_KEYS) * (columns)*2 + 1024)
/* Backward: queries of a tile that passes by 128 keys; tiles of keys and of values (two, or one of 128 columns), two
 * of queries and of their gradients, two of slopes, a part of dq in f32, two of logs of sums and deltas. */
#define SGL_GROUP_PASSING(columns) ((columns) == 64 ? 128 : 64)
#define SGL_GROUP_SHARED_GRAD(columns)                                                                                 \
    (((columns) == 64 ? 4 : 2) * SGL_GROUP_KEYS * (columns)*2 + 4 * SGL_GROUP_PASSING(columns) * (columns)*2 +         \
     2 * SGL_GROUP_KEYS * SGL_GROUP_PASSING(columns) * 2 + SGL_GROUP_PASSING(columns) * (columns)*4 +                  \
     4 * SGL_GROUP_PASSING(columns) * 4 + 256)

#endif
