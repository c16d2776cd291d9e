/* blas.h -- products by cuBLASLt: a library handle per device, what its heuristic chose, one call of it.
 *
 * In: a batch of products by strides. Out: descriptors and an algorithm, found once while a program is prepared,
 * then a call without an allocation. The library counts columns first: it is given b as its first matrix and a as
 * its second, and makes c's transpose, which lies as c does. Odd invariant: descriptors live where the plan does, so
 * none is ever destroyed. */
#ifndef SGLCUDA_BLAS_H
#define SGLCUDA_BLAS_H

#include <cublasLt.h>

#include "backend/cuda/cuda.h"

/* c[run][row][column] = sum over depth of a * b; strides in elements, of a one of row and depth is 1 (or the dim has
 * one element), and so of b. Nothing but int64_t: it is hashed as bytes. */
typedef struct sglcuda_matmul_shape {
    int64_t dtype, result; /* sgl_dtype */
    int64_t rows, columns, depth;
    int64_t a_row, a_depth, b_depth, b_column;
    int64_t c_row; /* 0: the rows of c lie together */
    int64_t adds;  /* 1: to what c holds */
    int64_t bias;  /* to each row of c a bias [columns] in c's dtype is added before c is rounded: alignment of its
                      first byte; 0: none */
    int64_t run, run_a, run_b, run_c;
    int64_t a_alignment, b_alignment, c_alignment; /* of the first bytes: powers of two */
    int64_t work_bytes;                            /* what the library may use */
} sglcuda_matmul_shape;

typedef struct sglcuda_matmul {
    cublasLtMatmulDescOpaque_t call;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    int64_t work_bytes; /* what the algorithm uses */
    bool real64, adds, bias;
} sglcuda_matmul;

/* How the library is to compute one. */
typedef struct sglcuda_algorithm {
    cublasLtMatmulAlgo_t algorithm;
    int64_t work_bytes; /* what it uses */
} sglcuda_algorithm;

enum { SGLCUDA_ALGORITHMS = 8 }; /* as many are asked for */

/* Values of the arena lie at multiples of this (vm/passes/memory.c). The library is told so, and never more, that a value has
 * the same bits wherever it lies. */
enum { SGLCUDA_PLACE_ALIGNMENT = 64 };

/* The largest power of two, up to that, of which a number of bytes is a multiple. */
static inline int64_t sglcuda_alignment(int64_t bytes)
{
    int64_t alignment = SGLCUDA_PLACE_ALIGNMENT;
    while (bytes % alignment != 0) alignment /= 2;
    return alignment;
}

/* Fills in *matmul, at the place where it stays. *found: false where the library has no algorithm for it. Opens the
 * library the first time. Allocates; not for a launch. */
sgl_status sglcuda_matmul_find(sglexec_device *device, const sglcuda_matmul_shape *shape, sglcuda_matmul *matmul,
                               bool *found);
sgl_status sglcuda_matmul_run(const sglcuda_launch *launch, const sglcuda_matmul *matmul, CUdeviceptr a, CUdeviceptr b,
                              CUdeviceptr c, CUdeviceptr work);
/* Which of the algorithms is the fastest of those that give the bits of the first, measured or kept from then. version: the library's.
 * Waits for the device. (blas_choose.c) */
sgl_status sglcuda_choose_algorithm(sglexec_device *device, const sglcuda_matmul_shape *shape,
                                    const sglcuda_matmul *matmul, size_t version, const sglcuda_algorithm *algorithms,
                                    int count, int *chosen);
/* Says where the bias lies, of the runs that follow: descriptors hold its address. */
sgl_status sglcuda_matmul_place_bias(const sglcuda_launch *launch, const sglcuda_matmul *matmul, CUdeviceptr bias);

#endif
