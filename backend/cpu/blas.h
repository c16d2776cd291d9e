/* blas.h -- products of matrices: how one is cut into tasks, and one task of it, by BLAS or by loops of our own.
 *
 * In: shapes and strides. Out: c[m x n] = a[m x k] b[k x n] + beta c, rows of c ldc apart. How a product is cut depends on
 * its shape alone, since BLAS rounds an element differently in panels of different heights. BLAS runs on the calling
 * thread only; the pool runs the tasks. Odd invariant: of a's two strides one is 1, and so of b's (or its dim is 1). */
#ifndef SGLCPU_BLAS_H
#define SGLCPU_BLAS_H

#include "backend/cpu/cpu.h"

typedef enum sglcpu_route {
    SGLCPU_ROUTE_BLAS,
    SGLCPU_ROUTE_DOTS,     /* few rows of a, rows of b^T: few_dots */
    SGLCPU_ROUTE_SUMS,     /* few rows of a, rows of b: few_sums */
    SGLCPU_ROUTE_COL_DOTS, /* one column of b, rows of a */
    SGLCPU_ROUTE_COL_SUMS  /* one column of b, columns of a */
} sglcpu_route;

typedef struct sglcpu_product {
    uint8_t real, route; /* real: 0 f32, 1 f64 */
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, ldc; /* strides in elements */
    int64_t panel_m, panel_n, panels_n, tasks;
} sglcpu_product;

/* One BLAS thread from now on; it is a setting of the process's copy of BLAS, ours alone. */
void sglcpu_blas_open(void);
/* "OpenBLAS 0.3.21 ... Zen", for the doctor. */
const char *sglcpu_blas_config(void);

/* Fills in routes and panels; m, n, k, real and strides are given. accumulates: beta will be 1. */
void sglcpu_product_cut(sglcpu_product *p, bool accumulates);
/* BLAS takes 32-bit sizes. */
bool sglcpu_product_fits(const sglcpu_product *p);
/* Task number 0 .. tasks - 1. beta: 0 or 1. */
void sglcpu_product_task(const sglcpu_product *p, const sglcpu_isa *isa, const void *a, const void *b, void *c,
                         double beta, int64_t task);
/* All tasks by the pool. */
void sglcpu_product_run(const sglcpu_launch *launch, const sglcpu_product *p, const void *a, const void *b, void *c,
                        double beta);
/* The whole on this thread, by BLAS whatever the route: c = alpha a b + beta c. */
void sglcpu_product_blas(const sglcpu_product *p, double alpha, const void *a, const void *b, double beta, void *c);

/* Products of integers (int_product.c): panels and tasks; one task, first: elements from the start of each array. */
void sglcpu_int_cut(sgl_dtype dtype, sglcpu_product *p);
void sglcpu_int_task(sgl_dtype dtype, const sglcpu_product *p, const char *a, int64_t a_first, const char *b,
                     int64_t b_first, char *c, int64_t c_first, int64_t task);

/* Products of narrow floats (narrow_product.c), their result of the same dtype or of f32. */
typedef struct sglcpu_narrow_product {
    sglcpu_product whole; /* real 0; routes and panels as cut */
    sgl_dtype dtype, result;
    int64_t k_block, a_bytes, b_bytes, scratch_bytes; /* of a worker */
} sglcpu_narrow_product;

/* Fills in the rest of `whole` and what follows dtype and result. */
void sglcpu_narrow_cut(sglcpu_narrow_product *n);
/* Task number 0 .. whole.tasks - 1; first: elements from the start of each array. */
void sglcpu_narrow_task(const sglcpu_narrow_product *n, const sglcpu_isa *isa, const void *a, int64_t a_first,
                        const void *b, int64_t b_first, void *c, int64_t c_first, char *scratch, int64_t task);

#endif
