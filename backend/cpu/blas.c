/* blas.c -- see blas.h; the one file that calls BLAS.
 *
 * Each task packs its panel of a and of b anew, so the panels are chosen to pack least for the number of tasks, and that
 * number grows with the work: some milliseconds each where there is enough of it, at least 8 tasks where each is still
 * worth starting. Measured on two Zen 4 cores, 4096 x 1024 x 384: 2 tasks 188 GFLOP/s, 16 tasks 180, 64 tasks 162. */
#include <cblas.h>
#include <string.h>

#include "backend/cpu/blas.h"

void sglcpu_blas_open(void) { openblas_set_num_threads(1); }

const char *sglcpu_blas_config(void) { return openblas_get_config(); }

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

static const double FLOPS_PER_TASK = 2e8, LEAST_FLOPS_PER_TASK = 4e6;
enum { MAX_TASKS = 64, FEW_TASKS = 8, LEAST_PANEL = 64, PANEL_UNIT = 16, FEW_BYTES = 128 * 1024, FEW_COLUMNS = 128 };

static int64_t wanted_tasks(const sglcpu_product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double most = flops / LEAST_FLOPS_PER_TASK, few = most < FEW_TASKS ? most : FEW_TASKS;
    double tasks = flops / FLOPS_PER_TASK;
    if (tasks < few) tasks = few;
    return tasks > MAX_TASKS ? MAX_TASKS : tasks < 1 ? 1 : (int64_t)tasks;
}

static int64_t panel_of(int64_t extent, int64_t panels)
{
    int64_t panel = sglcpu_round_up(sglcpu_ceil_div(extent, panels), PANEL_UNIT);
    return sglcpu_min(sglcpu_max(panel, LEAST_PANEL), sglcpu_max(extent, 1));
}

/* The grid of about `tasks` panels that packs least: each panel of rows packs all of b, each panel of columns all of a. */
static void cut_grid(sglcpu_product *p, int64_t tasks)
{
    double least = -1;
    for (int64_t by_rows = 1; by_rows <= tasks; by_rows *= 2) {
        int64_t panel_m = panel_of(p->m, by_rows), panel_n = panel_of(p->n, sglcpu_max(tasks / by_rows, 1));
        int64_t panels_m = sglcpu_ceil_div(p->m, panel_m), panels_n = sglcpu_ceil_div(p->n, panel_n);
        double packed = (double)panels_m * (double)p->n + (double)panels_n * (double)p->m;
        /* too few tasks weigh as much as the packing that they save */
        packed *= (double)tasks / (double)sglcpu_min(panels_m * panels_n, tasks);
        if (least >= 0 && packed >= least) continue;
        least = packed;
        p->panel_m = panel_m;
        p->panel_n = panel_n;
        p->panels_n = panels_n;
        p->tasks = panels_m * panels_n;
    }
}

static int route_of(const sglcpu_product *p, bool accumulates)
{
    if (accumulates || p->k == 0) return SGLCPU_ROUTE_BLAS;
    if (p->m <= SGLCPU_FEW_ROWS && (p->a_col == 1 || p->k == 1)) {
        if (p->b_row == 1 || p->k == 1) return SGLCPU_ROUTE_DOTS;
        if (p->b_col == 1) return SGLCPU_ROUTE_SUMS;
    }
    if (p->n == 1 && p->ldc == 1 && (p->b_row == 1 || p->k == 1)) {
        if (p->a_col == 1 || p->k == 1) return SGLCPU_ROUTE_COL_DOTS;
        if (p->a_row == 1) return SGLCPU_ROUTE_COL_SUMS;
    }
    return SGLCPU_ROUTE_BLAS;
}

void sglcpu_product_cut(sglcpu_product *p, bool accumulates)
{
    p->route = (uint8_t)route_of(p, accumulates);
    p->panel_m = sglcpu_max(p->m, 1);
    p->panel_n = sglcpu_max(p->n, 1);
    p->panels_n = p->tasks = 1;
    if (p->m == 0 || p->n == 0) {
        p->tasks = 0;
        return;
    }
    int64_t by_bytes = sglcpu_max(sglcpu_round_up(FEW_BYTES / sglcpu_max(p->k * (p->real ? 8 : 4), 1), 16), 16);
    switch (p->route) {
    case SGLCPU_ROUTE_DOTS: p->panel_n = by_bytes; break;
    case SGLCPU_ROUTE_SUMS: p->panel_n = sglcpu_max(by_bytes, FEW_COLUMNS); break;
    case SGLCPU_ROUTE_COL_DOTS: p->panel_m = by_bytes; break;
    case SGLCPU_ROUTE_COL_SUMS: p->panel_m = sglcpu_max(by_bytes, FEW_COLUMNS); break;
    default: cut_grid(p, wanted_tasks(p)); return;
    }
    p->panel_m = sglcpu_min(p->panel_m, p->m);
    p->panel_n = sglcpu_min(p->panel_n, p->n);
    p->panels_n = sglcpu_ceil_div(p->n, p->panel_n);
    p->tasks = sglcpu_ceil_div(p->m, p->panel_m) * p->panels_n;
}

bool sglcpu_product_fits(const sglcpu_product *p)
{
    const int64_t sizes[] = { p->m, p->n, p->k, p->a_row, p->a_col, p->b_row, p->b_col, p->ldc };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] > INT32_MAX) return false;
    }
    return true;
}

/* ---- one task ---------------------------------------------------------------------------------------------------- */

/* How BLAS is told of rows x cols with these strides: the distance of rows, or of columns where it is transposed. */
static CBLAS_TRANSPOSE layout_of(int64_t row, int64_t col, int64_t rows, int64_t cols, int *ld)
{
    if (col == 1 || cols == 1) {
        *ld = (int)sglcpu_max(rows == 1 ? cols : row, sglcpu_max(cols, 1));
        return CblasNoTrans;
    }
    *ld = (int)sglcpu_max(col, sglcpu_max(rows, 1));
    return CblasTrans;
}

static void clear_rows(const sglcpu_product *p, void *c, int64_t m, int64_t n)
{
    int64_t size = p->real ? 8 : 4;
    for (int64_t row = 0; row < m; row++) memset((char *)c + row * p->ldc * size, 0, (size_t)(n * size));
}

static void call_blas(const sglcpu_product *p, double alpha, const void *a, const void *b, double beta, void *c,
                      int64_t m, int64_t n)
{
    if (m == 0 || n == 0) return;
    if (p->k == 0) {
        if (beta == 0) clear_rows(p, c, m, n);
        return;
    }
    int lda, ldb, ldc = (int)sglcpu_max(p->ldc, n);
    CBLAS_TRANSPOSE ta = layout_of(p->a_row, p->a_col, m, p->k, &lda),
                    tb = layout_of(p->b_row, p->b_col, p->k, n, &ldb);
    if (p->real) {
        cblas_dgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)p->k, alpha, a, lda, b, ldb, beta, c, ldc);
    } else {
        cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)p->k, (float)alpha, a, lda, b, ldb, (float)beta, c,
                    ldc);
    }
}

void sglcpu_product_blas(const sglcpu_product *p, double alpha, const void *a, const void *b, double beta, void *c)
{
    call_blas(p, alpha, a, b, beta, c, p->m, p->n);
}

void sglcpu_product_task(const sglcpu_product *p, const sglcpu_isa *isa, const void *a, const void *b, void *c,
                         double beta, int64_t task)
{
    int64_t row = task / p->panels_n * p->panel_m, col = task % p->panels_n * p->panel_n, size = p->real ? 8 : 4;
    int64_t m = sglcpu_min(p->panel_m, p->m - row), n = sglcpu_min(p->panel_n, p->n - col);
    const void *a_at = (const char *)a + row * p->a_row * size, *b_at = (const char *)b + col * p->b_col * size;
    void *c_at = (char *)c + (row * p->ldc + col) * size;
    const sglcpu_float_ops *ops = isa->floats[p->real];
    switch (p->route) {
    case SGLCPU_ROUTE_DOTS: ops->few_dots(c_at, p->ldc, a_at, p->a_row, b_at, p->b_col, (int)m, n, p->k); return;
    case SGLCPU_ROUTE_SUMS: ops->few_sums(c_at, p->ldc, a_at, p->a_row, b_at, p->b_row, (int)m, n, p->k); return;
    case SGLCPU_ROUTE_COL_DOTS: ops->few_dots(c_at, 0, b_at, 0, a_at, p->a_row, 1, m, p->k); return;
    case SGLCPU_ROUTE_COL_SUMS: ops->few_sums(c_at, 0, b_at, 0, a_at, p->a_col, 1, m, p->k); return;
    default: call_blas(p, 1.0, a_at, b_at, beta, c_at, m, n); return;
    }
}

typedef struct job {
    const sglcpu_product *product;
    const sglcpu_isa *isa;
    const void *a, *b;
    void *c;
    double beta;
} job;

static void run_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const job *j = context;
    sglcpu_product_task(j->product, j->isa, j->a, j->b, j->c, j->beta, task);
}

void sglcpu_product_run(const sglcpu_launch *launch, const sglcpu_product *p, const void *a, const void *b, void *c,
                        double beta)
{
    job j = { .product = p, .isa = launch->isa, .a = a, .b = b, .c = c, .beta = beta };
    sglcpu_parallel(launch->pool, p->tasks, run_task, &j);
}
