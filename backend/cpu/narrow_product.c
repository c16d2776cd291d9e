/* narrow_product.c -- products of floats narrower than 32 bits: panels widened to float32, multiplied as these, rounded once.
 *
 * In: a product's shape and strides, a dtype. Out: tasks. Each widens its panel of a and of b into the worker's scratch, a
 * block of the contracted dim at a time, and adds the products of the blocks in float32; so the workspace holds no widened
 * copy of a whole argument. Odd invariant: panels and blocks follow from the shape alone, and so does the order of all sums. */
#include "backend/cpu/blas.h"

enum { MOST_PANEL = 1024, BLOCK_ELEMENTS = 1 << 18, LEAST_BLOCK = 256, BLOCK_UNIT = 64 };

void sglcpu_narrow_cut(sglcpu_narrow_product *n)
{
    sglcpu_product *p = &n->whole;
    sglcpu_product_cut(p, false);
    n->k_block = sglcpu_max(p->k, 1);
    if (p->route == SGLCPU_ROUTE_BLAS) {
        p->panel_m = sglcpu_min(p->panel_m, MOST_PANEL);
        p->panel_n = sglcpu_min(p->panel_n, MOST_PANEL);
        int64_t block = BLOCK_ELEMENTS / (p->panel_m + p->panel_n) / BLOCK_UNIT * BLOCK_UNIT;
        n->k_block = sglcpu_min(sglcpu_max(block, LEAST_BLOCK), n->k_block);
    }
    p->panels_n = sglcpu_ceil_div(p->n, p->panel_n);
    p->tasks = sglcpu_ceil_div(p->m, p->panel_m) * p->panels_n;
    n->a_bytes = sglcpu_round_up(p->panel_m * n->k_block * (int64_t)sizeof(float), 64);
    n->b_bytes = sglcpu_round_up(p->panel_n * n->k_block * (int64_t)sizeof(float), 64);
    n->scratch_bytes = n->a_bytes + n->b_bytes + p->panel_m * p->panel_n * (int64_t)sizeof(float);
}

/* rows x cols at `first`, with these strides, to float32 as they lie; their new strides. A stride that is not 1 stands beside one
 * that is. */
static void widen(const sglcpu_isa *isa, sgl_dtype dtype, const void *from, int64_t first, int64_t *row, int64_t *col,
                  int64_t rows, int64_t cols, bool by_rows, float *out)
{
    int64_t runs = by_rows ? rows : cols, length = by_rows ? cols : rows, pitch = by_rows ? *row : *col;
    for (int64_t r = 0; r < runs; r++) sglcpu_load_run(isa, dtype, out + r * length, from, first + r * pitch, length);
    *row = by_rows ? length : 1;
    *col = by_rows ? 1 : length;
}

void sglcpu_narrow_task(const sglcpu_narrow_product *n, const sglcpu_isa *isa, const void *a, int64_t a_first,
                        const void *b, int64_t b_first, void *c, int64_t c_first, char *scratch, int64_t task)
{
    const sglcpu_product *p = &n->whole;
    float *a_panel = (float *)(void *)scratch, *b_panel = (float *)(void *)(scratch + n->a_bytes);
    float *c_panel = (float *)(void *)(scratch + n->a_bytes + n->b_bytes);
    int64_t row = task / p->panels_n * p->panel_m, column = task % p->panels_n * p->panel_n;
    sglcpu_product part = { .route = p->route,
                            .m = sglcpu_min(p->panel_m, p->m - row),
                            .n = sglcpu_min(p->panel_n, p->n - column),
                            .panels_n = 1 };
    part.panel_m = part.m;
    part.panel_n = part.ldc = part.n;
    for (int64_t k = 0; k == 0 || k < p->k; k += n->k_block) {
        part.k = sglcpu_min(n->k_block, p->k - k);
        part.a_row = p->a_row;
        part.a_col = p->a_col;
        part.b_row = p->b_row;
        part.b_col = p->b_col;
        widen(isa, n->dtype, a, a_first + row * p->a_row + k * p->a_col, &part.a_row, &part.a_col, part.m, part.k,
              (p->a_col == 1 && p->k > 1) || p->a_row != 1, a_panel);
        widen(isa, n->dtype, b, b_first + k * p->b_row + column * p->b_col, &part.b_row, &part.b_col, part.k, part.n,
              (p->b_col == 1 && p->n > 1) || p->b_row != 1, b_panel);
        sglcpu_product_task(&part, isa, a_panel, b_panel, c_panel, k > 0, 0);
    }
    for (int64_t r = 0; r < part.m; r++) {
        sglcpu_store_run(isa, n->result, c, c_first + (row + r) * p->ldc + column, c_panel + r * part.n, part.n, -1);
    }
}
