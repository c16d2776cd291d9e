/* product.h -- a dot seen as a batch of matrix products: what is read as it lies, what is copied first, which calls are
 * made.
 *
 * In: dims, dtypes and the lists of a dot. Out: a plan without addresses, from shapes alone, so that the memory pass
 * learns the workspace from the graph and prepare finds the same from the program. Knows no CUDA: a test runs it
 * anywhere. Odd invariant: where the product has one column, and no bias, a is the op's second argument and b its first,
 * so that the library sees one row. */
#ifndef SGLCUDA_PRODUCT_H
#define SGLCUDA_PRODUCT_H

#include "backend/cuda/kernels/dot.h"
#include "ir/ir.h"

enum {
    SGLCUDA_PRODUCT_ALIGNMENT =
        256 /* of copies and of the library's workspace, from the instruction's first multiple of it */
};

typedef struct sglcuda_dims {
    int count;
    int64_t extent[SGL_MAX_RANK], stride[SGL_MAX_RANK]; /* in elements */
} sglcuda_dims;

typedef enum sglcuda_route {
    SGLCUDA_ROUTE_ZEROS,   /* nothing is summed, or the result has no elements */
    SGLCUDA_ROUTE_LIBRARY, /* cuBLASLt, and where it refuses as the next */
    SGLCUDA_ROUTE_KERNEL   /* kernels/dot.cu */
} sglcuda_route;

/* An argument, rows (or columns) x depth. */
typedef struct sglcuda_factor {
    bool copied;            /* read from a dense copy [batch..., free..., contracted...] in the workspace */
    int64_t copy_at;        /* its byte there */
    sglcuda_dims source;    /* of a copy: its dims, as they lie in the argument */
    sglcuda_dims batch;     /* as it is read */
    int64_t free, contract; /* strides as it is read; 1 where there is one element */
} sglcuda_factor;

/* What one call computes, a run of the batch, and where the calls begin. Strides in elements. */
typedef struct sglcuda_calls {
    int64_t run, run_a, run_b, run_c;
    int64_t count;
    int rank;
    int64_t extent[SGL_MAX_RANK], a[SGL_MAX_RANK], b[SGL_MAX_RANK], c[SGL_MAX_RANK];
} sglcuda_calls;

typedef struct sglcuda_product {
    sglcuda_route route;
    sgl_dtype dtype, result;
    bool exchanged; /* a is the op's second argument */
    int64_t batch, rows, columns, depth;
    sglcuda_factor a, b;
    sglcuda_calls calls;               /* of the library's route */
    int64_t library_at, library_bytes; /* its workspace */
    int64_t work_bytes;                /* all in all; what it takes to reach the first aligned byte included */
} sglcuda_product;

/* A dot as the graph or the program has it. lists: batch_a, batch_b, contract_a, contract_b. */
typedef struct sglcuda_dot {
    sgl_dtype dtype, result;
    int rank[2];
    const int64_t *dims[2];
    const int64_t *lists[4];
    int counts[4];
    bool biased; /* a number is added to each column: the arguments keep their order */
} sglcuda_dot;

void sglcuda_product_plan(const sglcuda_dot *dot, sglcuda_product *product);
/* The batch as few dims as can be, the last one first: of the kernel's route. Fills in rank, extent, a, b and c. */
void sglcuda_merge_batch(const sglcuda_product *product, sglcuda_calls *calls);
/* Where call number `index` begins, in elements of a, b and c. */
void sglcuda_call_offsets(const sglcuda_calls *calls, int64_t index, int64_t offsets[3]);

typedef enum sglcuda_dense_copy_kind {
    SGLCUDA_DENSE_COPY_ROWS,
    SGLCUDA_DENSE_COPY_TILES,
    SGLCUDA_DENSE_COPY_NIBBLES
} sglcuda_dense_copy_kind;

typedef struct sglcuda_dense_copy {
    sglcuda_dense_copy_kind kind;
    int bits; /* of a unit: that of an element, or of several that lie together */
    sglcuda_dot_copy_values values;
} sglcuda_dense_copy;

/* How to copy from strides to dense. alignment: of the first byte of both sides. */
void sglcuda_dense_copy_plan(const sglcuda_dims *source, int element_bits, int64_t alignment, sglcuda_dense_copy *copy);

/* Of measured ways to one result the place of the least time among those whose digest is the first's; 0 unless another gains at
 * least 2% of the first's time. Times of other digests are not read. */
int sglcuda_fastest(const float *ms, const uint64_t *digests, int count);

#endif
