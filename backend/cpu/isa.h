/* isa.h -- what exists once per instruction set: the loops under every kernel, as tables of functions.
 *
 * Each file of isa/ is compiled once per variant, with SGLCPU_ISA its name; isa/table.c collects them into one sglcpu_isa.
 * sglcpu_isa_choose takes the best that this CPU runs, or the one that the knob SGL_ISA names. Odd invariant of every
 * function here: `out` is one of the arguments or overlaps none. */
#ifndef SGLCPU_ISA_H
#define SGLCPU_ISA_H

#include "ir/ir.h"

/* Elementwise: out[i] from a[i], b[i], c[i]; an argument that is "a number" is read once, from its first element. */
typedef void (*sglcpu_map_fn)(void *out, const void *a, const void *b, const void *c, int64_t count);
/* Folds `count` elements of a (or products a[i] b[i], each rounded) into *accumulator: a double for floats, an int64_t for
 * integers. Sums of floats go chunk by chunk: what is cut elsewhere than at a multiple of SGLCPU_CHUNK has other bits. */
enum { SGLCPU_CHUNK = 512 };
typedef void (*sglcpu_fold_fn)(void *accumulator, const void *a, const void *b, int64_t count);
/* Folds `rows` rows of a, row_bytes apart, into accumulators[count], column by column: elements of a's dtype for floats
 * (near sums, of few rows), int64_t for integers. */
typedef void (*sglcpu_columns_fn)(void *accumulators, const void *a, int64_t row_bytes, int64_t rows, int64_t count);
/* Folds near sums into doubles, and leaves them neutral. */
typedef void (*sglcpu_spill_fn)(double *sums, void *near, int64_t count);

/* Which arguments of a loop are numbers: bit i for argument i. */
enum { SGLCPU_A_NUMBER = 1, SGLCPU_B_NUMBER = 2, SGLCPU_C_NUMBER = 4 };
/* out = (a first b) second c; RSUB is c - (a first b). */
enum { SGLCPU_FIRST_ADD, SGLCPU_FIRST_SUB, SGLCPU_FIRST_MUL, SGLCPU_FIRSTS };
enum { SGLCPU_SECOND_ADD, SGLCPU_SECOND_SUB, SGLCPU_SECOND_RSUB, SGLCPU_SECOND_MUL, SGLCPU_SECONDS };
enum { SGLCPU_FOLD_SUM, SGLCPU_FOLD_MAX, SGLCPU_FOLD_MIN, SGLCPU_FOLDS };

/* Loops of one float dtype. Tables are indexed by the mask of number arguments; an absent loop is NULL, and its caller
 * spreads the number over an array first. */
typedef struct sglcpu_float_ops {
    sglcpu_map_fn one[SGLIR_OP_COUNT];
    sglcpu_map_fn two[SGLIR_OP_COUNT][4];
    sglcpu_map_fn gelu_exact, gelu_grad_exact;
    sglcpu_map_fn select[8]; /* condition: bool */
    sglcpu_map_fn pair[SGLCPU_FIRSTS][SGLCPU_SECONDS][8];
    sglcpu_fold_fn fold[SGLCPU_FOLDS];
    sglcpu_fold_fn fold_product; /* sum of a[i] * b[i] */
    sglcpu_columns_fn columns[SGLCPU_FOLDS];
    sglcpu_spill_fn spill[SGLCPU_FOLDS];

    /* Rows of scores and logits. */
    double (*row_max)(const void *x, int64_t count); /* -inf of none; NaN when one is */
    double (*row_exp)(void *out, const void *x, double scale, double shift,
                      int64_t count); /* e^(scale x - shift); their sum */
    void (*row_scale)(void *x, double factor, int64_t count);
    void (*row_add)(void *out, const void *x, int64_t count); /* out += x */
    double (*row_dot)(const void *a, const void *b, int64_t count);
    /* First and second halves turned by the angles whose cosines and sines are given: rope. */
    void (*row_turn)(void *out, const void *x, const void *cosine, const void *sine, int64_t half);

    /* y[rows x n] = x[rows x k] times b, for few rows: b [n x k] (dots) or [k x n] (sums), its rows ldb elements apart. */
    void (*few_dots)(void *y, int64_t ldy, const void *x, int64_t ldx, const void *b, int64_t ldb, int rows, int64_t n,
                     int64_t k);
    void (*few_sums)(void *y, int64_t ldy, const void *x, int64_t ldx, const void *b, int64_t ldb, int rows, int64_t n,
                     int64_t k);
    /* c[m x n] = a b, or c + a b where it adds: a by two strides, b's and c's rows dense; for blocks that fit the caches. */
    void (*block_product)(void *c, int64_t ldc, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t ldb,
                          int64_t m, int64_t n, int64_t k, bool adds);

    /* Blocks of scores, a row per key and a column per query (float_attend.h). */
    void (*turn_rows)(void *out, int64_t ld, int64_t cols, const void *in, int64_t row, int64_t rows, int64_t count,
                      double factor);
    void (*softmax_block)(void *scores, int64_t ld, int64_t keys, int64_t cols, void *top, void *sum, void *rescale);
    void (*softmax_again)(void *scores, int64_t ld, int64_t keys, int64_t cols, const void *lse);
    void (*softmax_slopes)(void *slopes, const void *p, int64_t ld, int64_t keys, int64_t cols, const void *delta,
                           double scale);
} sglcpu_float_ops;

enum { SGLCPU_MAX_LANES = 16, SGLCPU_MAX_QUERIES = 128 }; /* a multiple of every variant's lanes; the widest block */

enum { SGLCPU_FEW_ROWS = 4 }; /* at most, of few_dots and few_sums */

/* How a run of random numbers is asked for: elements first, first + stride, ... of the stream (seed, step, id). */
typedef struct sglcpu_stream {
    uint64_t key; /* seed ^ id */
    uint64_t step;
    uint64_t first;
    int64_t stride;
} sglcpu_stream;
typedef void (*sglcpu_random_fn)(void *out, const sglcpu_stream *stream, int64_t count);

/* Floats narrower than 32 bits: code to float32, float32 to the nearest code, float32 to the nearest number of the dtype. */
typedef struct sglcpu_narrow_ops {
    sglcpu_map_fn widen, narrow, round;
} sglcpu_narrow_ops;

typedef struct sglcpu_isa {
    const char *name;
    const sglcpu_float_ops *floats[2]; /* f32, f64 */
    const sglcpu_narrow_ops *narrow;   /* by dtype; NULLs where it is none of them */
    sglcpu_random_fn uniform[2], normal[2];
} sglcpu_isa;

/* The variants that were built and that this CPU runs, best first; NULL past the end. */
const sglcpu_isa *sglcpu_isa_at(int index);
/* By name; "" takes the best. UNSUPPORTED, with the names there are, when it is none of them. */
sgl_status sglcpu_isa_choose(sglcore_env *env, const char *name, const sglcpu_isa **isa);

/* Loops that exist once: integers, bool, and casts between all dtypes. NULL when there is none. Everything here and above
 * speaks of elements as they are held (sglcpu_held); what a loop gives is a number of its dtype once it is settled. */
sglcpu_map_fn sglcpu_int_map(sglir_op op, sgl_dtype dtype, int numbers);
sglcpu_map_fn sglcpu_cast(sgl_dtype from, sgl_dtype to);
/* Rounds, or wraps, held elements to numbers of the dtype; NULL where every held number is one. */
sglcpu_map_fn sglcpu_settle(const sglcpu_isa *isa, sgl_dtype dtype);
sglcpu_fold_fn sglcpu_int_fold(int fold, sgl_dtype dtype);
sglcpu_columns_fn sglcpu_int_columns(int fold, sgl_dtype dtype);

/* Floats of fewer than 32 bits. */
static inline bool sglcpu_is_narrow(sgl_dtype dtype)
{
    return dtype == SGL_BF16 || dtype == SGL_F16 || dtype == SGL_F8E4M3 || dtype == SGL_F8E5M2;
}

/* In which dtype elements lie while they are computed with: narrow floats as float32, i4 as i8, others as they are. */
static inline sgl_dtype sglcpu_held(sgl_dtype dtype)
{
    return sglcpu_is_narrow(dtype) ? SGL_F32 : dtype == SGL_I4 ? SGL_I8 : dtype;
}

#endif
