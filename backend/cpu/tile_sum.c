/* tile_sum.c -- accumulators of sums, maxima and minima: how they begin, come together and become results.
 *
 * In: an sglcpu_sum and arrays of accumulators, 8 bytes each. Out: the same, or elements of the result's dtype. A float's
 * accumulator is a double, an integer's an int64_t, so float32 sums are rounded once, at the end. Odd invariant: what is
 * neutral is what an empty range gives (ops.def).
 *
 * The order in which the n elements of a float's sum are added depends on n and on the sum's node alone, whatever kernel, tile
 * or thread computes it (which form a node's sum takes in a kernel: exec/kernel.h):
 *   - where the node leaves out its argument's last dimension (extents of 1 aside), or all: chunks of SGLCPU_CHUNK elements.
 *     Of each the elements j, j + L, j + 2 L, ... go to lane j (L lanes fill 128 bytes), the lanes are added by halves, the
 *     last three times in double; the chunks' sums are added in double one after another.
 *   - where it keeps it (column sums): blocks of sglcpu_sum_block(n) elements, in these pieces of NEAR_ROWS. A piece is added
 *     one element after another in the dtype it is held in, the pieces of a block in double one after another, and so the
 *     blocks.
 * Maxima, minima and sums of integers need no order; a zero that wins has no sign. */
#include <math.h>

#include "backend/cpu/tile.h"

static int64_t least_int(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_I64: return INT64_MIN;
    case SGL_I32: return INT32_MIN;
    case SGL_I16: return INT16_MIN;
    case SGL_I8: return INT8_MIN;
    case SGL_I4: return -8;
    default: return 0;
    }
}

static int64_t largest_int(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_I64: return INT64_MAX;
    case SGL_I32: return INT32_MAX;
    case SGL_I16: return INT16_MAX;
    case SGL_I8: return INT8_MAX;
    case SGL_I4: return 7;
    case SGL_U8: return UINT8_MAX;
    case SGL_U16: return UINT16_MAX;
    case SGL_U32: return UINT32_MAX;
    default: return 1; /* bool */
    }
}

enum {
    SUM_BLOCKS = 32, /* at most; they may be summed by as many tasks */
    LEAST_BLOCK = 8,
    NEAR_ROWS = 32
};

int64_t sglcpu_sum_block(int64_t rows)
{
    return sglcpu_round_up(sglcpu_max(sglcpu_ceil_div(rows, SUM_BLOCKS), 1), LEAST_BLOCK);
}

int64_t sglcpu_near_end(int64_t row, int64_t rows)
{
    int64_t block = sglcpu_sum_block(rows), first = row - row % block;
    int64_t end = row + NEAR_ROWS - (row - first) % NEAR_ROWS;
    return sglcpu_min(sglcpu_min(end, first + block), rows);
}

/* An accumulator is 8 bytes: a double for floats, an int64_t for the rest. */
void sglcpu_start_sums(const sglcpu_sum *sum, char *accumulators, int64_t count)
{
    sgl_dtype dtype = (sgl_dtype)sum->dtype;
    bool is_float = sglcpu_held_index(dtype) >= 0;
    union {
        double real;
        int64_t integer;
    } start = { .integer = 0 };
    if (sum->fold == SGLCPU_FOLD_MAX) {
        if (is_float)
            start.real = -INFINITY;
        else
            start.integer = least_int(dtype);
    } else if (sum->fold == SGLCPU_FOLD_MIN) {
        if (is_float)
            start.real = INFINITY;
        else
            start.integer = largest_int(dtype);
    } else if (is_float) {
        start.real = 0;
    }
    sglcpu_spread(accumulators, &start, 8, count);
}

void sglcpu_finish_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, void *out, void *accumulators, int64_t count)
{
    sgl_dtype dtype = (sgl_dtype)sum->dtype;
    sgl_dtype from = sglcpu_held_index(dtype) >= 0 ? SGL_F64 : SGL_I64;
    sglcpu_map_fn settle = sglcpu_settle(isa, dtype);
    if (from == SGL_F64 && sum->fold != SGLCPU_FOLD_SUM) {
        const double zero = 0; /* which of two zeros came first is a matter of order; -0 + 0 is 0 */
        isa->floats[1]->two[SGLIR_OP_ADD][SGLCPU_B_NUMBER](accumulators, accumulators, &zero, NULL, count);
    }
    sglcpu_cast(from, dtype)(out, accumulators, NULL, NULL, count);
    if (settle != NULL) settle(out, out, NULL, NULL, count);
}

/* Folds accumulators into others, one by one. */
void sglcpu_join_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, char *into, const char *from, int64_t count)
{
    bool is_float = sglcpu_held_index((sgl_dtype)sum->dtype) >= 0;
    sglcpu_columns_fn columns = is_float ? isa->floats[1]->columns[sum->fold] : sglcpu_int_columns(sum->fold, SGL_I64);
    columns(into, from, 0, 1, count);
}

/* Folds `count` accumulators into one. */
void sglcpu_total_sums(const sglcpu_isa *isa, const sglcpu_sum *sum, char *into, const char *from, int64_t count)
{
    bool is_float = sglcpu_held_index((sgl_dtype)sum->dtype) >= 0;
    if (is_float && sum->fold == SGLCPU_FOLD_SUM) {
        const double *sums = (const double *)(const void *)from;
        double *total = (double *)(void *)into;
        for (int64_t i = 0; i < count; i++) *total += sums[i];
    } else {
        sglcpu_fold_fn fold = is_float ? isa->floats[1]->fold[sum->fold] : sglcpu_int_fold(sum->fold, SGL_I64);
        fold(into, from, NULL, count);
    }
}

/* Not settled: f8e4m3 has no infinity to begin with. */
void sglcpu_start_near(const sglcpu_sum *sum, char *near, int64_t count)
{
    sgl_dtype dtype = (sgl_dtype)sum->dtype;
    _Alignas(8) char neutral[8], number[8];
    if (sglcpu_held_index(dtype) < 0) return;
    sglcpu_start_sums(sum, neutral, 1);
    sglcpu_cast(SGL_F64, sglcpu_held(dtype))(number, neutral, NULL, NULL, 1);
    sglcpu_spread(near, number, sglcpu_held_size(dtype), count);
}
