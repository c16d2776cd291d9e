/* float_ops.h -- the elementwise loops of one float dtype and one instruction set, and their tables.
 *
 * In: REAL (float or double), REAL_NAME(x) (x_f32), REAL_IS_F32; included once by ops_f32.c and ops_f64.c. Out: the table
 * SGLCPU_NAME(ops_f32) or ..f64. Sums, columns and rows stand in float_rows.h, products of few rows in float_few.h.
 * Odd invariant: a value has the same bits in whichever loop, lane or tail it is computed. The build contracts nothing
 * (-ffp-contract=off); inside of one op FMA_ONE and FMA_VEC say where an fma stands; a pair rounds twice, as its two ops do
 * apart. */
#include <string.h>

#include "backend/cpu/isa/loop.h"

#if REAL_IS_F32
/* The function of one element in vmath.h. */
#define CORE(name) sglcpu_##name##_f32_one
#define R(number) number##f
#define FLOOR __builtin_floorf
#define SQRT __builtin_sqrtf
#define ABS __builtin_fabsf
#define ROUND __builtin_rintf
#else
#define CORE(name) sglcpu_##name##_f64_one
#define R(number) number
#define FLOOR __builtin_floor
#define SQRT __builtin_sqrt
#define ABS __builtin_fabs
#define ROUND __builtin_rint
#endif
/* a b + c: one rounding where the variant has an fma, two where it has not. */
#if SGLCPU_VMATH_HAS_FMA && REAL_IS_F32
#define FMA_ONE(a, b, c) __builtin_fmaf((a), (b), (c))
#elif SGLCPU_VMATH_HAS_FMA
#define FMA_ONE(a, b, c) __builtin_fma((a), (b), (c))
#else
#define FMA_ONE(a, b, c) ((a) * (b) + (c))
#endif
#define SIGNATURE void *out_, const void *a_, const void *b_, const void *c_, int64_t count
#define UNUSED(x) (void)(x)

/* ---- one argument ------------------------------------------------------------------------------------------- */

#define ONE(name, OUT, EXPRESSION)                                                                                     \
    static void one_##name(SIGNATURE)                                                                                  \
    {                                                                                                                  \
        UNUSED(b_), UNUSED(c_);                                                                                        \
        OUT *out = out_;                                                                                               \
        const REAL *a = a_;                                                                                            \
        SGLCPU_LOOP                                                                                                    \
        {                                                                                                              \
            const REAL x = a[i];                                                                                       \
            out[i] = (EXPRESSION);                                                                                     \
        }                                                                                                              \
    }

/* e^x / (1 + e^x)... of a gelu: x * Phi(x) and its derivative, with Phi by erf where exact. */
static inline __attribute__((always_inline)) REAL gelu_exact_of(REAL x)
{
    return R(0.5) * x * (R(1.0) + CORE(erf)(x * R(0.70710678118654752440)));
}

static inline __attribute__((always_inline)) REAL gelu_grad_exact_of(REAL x)
{
    const REAL density = R(0.39894228040143267794) * CORE(exp)(R(-0.5) * x * x);
    return FMA_ONE(x, density, R(0.5) * (R(1.0) + CORE(erf)(x * R(0.70710678118654752440))));
}

/* gelu(x) = x s, s = sigmoid(u), u = sqrt(8/pi) (x + 0.044715 x^3); so gelu' = s + x s (1 - s) u'. */
static inline __attribute__((always_inline)) REAL gelu_grad_of(REAL x)
{
    const REAL square = x * x;
    const REAL s = CORE(sigmoid)(x * FMA_ONE(square, R(0.071354816272600898), R(1.5957691216057308)));
    const REAL slope = FMA_ONE(square, R(0.21406444881780269), R(1.5957691216057308));
    return FMA_ONE(x * s * (R(1.0) - s), slope, s);
}

static inline __attribute__((always_inline)) REAL silu_grad_of(REAL x)
{
    const REAL s = CORE(sigmoid)(x);
    return s * FMA_ONE(x, R(1.0) - s, R(1.0));
}

ONE(neg, REAL, -x)
ONE(abs, REAL, ABS(x))
ONE(sign, REAL, x > 0 ? R(1.0) : (x < 0 ? R(-1.0) : x))
ONE(exp, REAL, CORE(exp)(x))
ONE(expm1, REAL, CORE(expm1)(x))
ONE(log, REAL, CORE(log)(x))
ONE(log1p, REAL, CORE(log1p)(x))
ONE(sqrt, REAL, SQRT(x))
ONE(rsqrt, REAL, R(1.0) / SQRT(x))
ONE(reciprocal, REAL, R(1.0) / x)
ONE(tanh, REAL, CORE(tanh)(x))
ONE(erf, REAL, CORE(erf)(x))
ONE(sigmoid, REAL, CORE(sigmoid)(x))
ONE(floor, REAL, FLOOR(x))
ONE(round, REAL, ROUND(x))
ONE(is_finite, uint8_t, x - x == 0)
ONE(silu, REAL, CORE(silu)(x))
ONE(gelu, REAL, CORE(gelu_tanh)(x))
ONE(gelu_exact, REAL, gelu_exact_of(x))

/* These look at their argument in blocks (vmath.h). */
static void one_sin(SIGNATURE)
{
    UNUSED(b_), UNUSED(c_);
    REAL_NAME(sglcpu_sin)(out_, a_, count);
}

static void one_cos(SIGNATURE)
{
    UNUSED(b_), UNUSED(c_);
    REAL_NAME(sglcpu_cos)(out_, a_, count);
}

/* ---- two arguments ------------------------------------------------------------------------------------------ */

#define TWO_SHAPE(name, OUT, X, Y, EXPRESSION)                                                                         \
    static void two_##name(SIGNATURE)                                                                                  \
    {                                                                                                                  \
        UNUSED(c_);                                                                                                    \
        OUT *out = out_;                                                                                               \
        const REAL *a = a_, *b = b_;                                                                                   \
        const REAL a_number = a[0], b_number = b[0];                                                                   \
        UNUSED(a_number), UNUSED(b_number);                                                                            \
        SGLCPU_LOOP                                                                                                    \
        {                                                                                                              \
            const REAL x = X, y = Y;                                                                                   \
            out[i] = (EXPRESSION);                                                                                     \
        }                                                                                                              \
    }
#define TWO(name, OUT, EXPRESSION)                                                                                     \
    TWO_SHAPE(name, OUT, a[i], b[i], EXPRESSION)                                                                       \
    TWO_SHAPE(name##_an, OUT, a_number, b[i], EXPRESSION)                                                              \
    TWO_SHAPE(name##_bn, OUT, a[i], b_number, EXPRESSION)
#define TWO_ROW(name)                                                                                                  \
    {                                                                                                                  \
        two_##name, two_##name##_an, two_##name##_bn, NULL                                                             \
    }

#if REAL_IS_F32
#define POWER(x, y) powf(x, y)
#else
#define POWER(x, y) pow(x, y)
#endif

TWO(add, REAL, x + y)
TWO(sub, REAL, x - y)
TWO(mul, REAL, x *y)
TWO(div, REAL, x / y)
TWO(remainder, REAL, FMA_ONE(-y, FLOOR(x / y), x))
TWO(pow, REAL, POWER(x, y))
TWO(maximum, REAL, x > y || x != x ? x : y)
TWO(minimum, REAL, x < y || x != x ? x : y)
TWO(equal, uint8_t, x == y)
TWO(not_equal, uint8_t, x != y)
TWO(less, uint8_t, x < y)
TWO(less_equal, uint8_t, x <= y)
TWO(silu_grad, REAL, silu_grad_of(x) * y)
TWO(gelu_grad, REAL, gelu_grad_of(x) * y)
TWO_SHAPE(gelu_grad_exact, REAL, a[i], b[i], gelu_grad_exact_of(x) * y)

/* ---- three arguments ---------------------------------------------------------------------------------------- */

#define SELECT_SHAPE(name, Y, N)                                                                                       \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        REAL *out = out_;                                                                                              \
        const uint8_t *condition = a_;                                                                                 \
        const REAL *b = b_, *c = c_;                                                                                   \
        const REAL b_number = b[0], c_number = c[0];                                                                   \
        UNUSED(b_number), UNUSED(c_number);                                                                            \
        SGLCPU_LOOP                                                                                                    \
        {                                                                                                              \
            const REAL yes = Y, no = N;                                                                                \
            out[i] = condition[i] ? yes : no;                                                                          \
        }                                                                                                              \
    }
SELECT_SHAPE(select_vv, b[i], c[i])
SELECT_SHAPE(select_nv, b_number, c[i])
SELECT_SHAPE(select_vn, b[i], c_number)
SELECT_SHAPE(select_nn, b_number, c_number)

/* out = (a first b) second c, each rounded, for every mask of number arguments but those in which a and b both are. */
#define PAIR_SHAPE(name, X, Y, Z, EXPRESSION)                                                                          \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        REAL *out = out_;                                                                                              \
        const REAL *a = a_, *b = b_, *c = c_;                                                                          \
        const REAL a_number = a[0], b_number = b[0], c_number = c[0];                                                  \
        UNUSED(a_number), UNUSED(b_number), UNUSED(c_number);                                                          \
        SGLCPU_LOOP                                                                                                    \
        {                                                                                                              \
            const REAL x = X, y = Y, z = Z;                                                                            \
            out[i] = (EXPRESSION);                                                                                     \
        }                                                                                                              \
    }
#define PAIR(first, second, EXPRESSION)                                                                                \
    PAIR_SHAPE(pair_##first##_##second##_0, a[i], b[i], c[i], EXPRESSION)                                              \
    PAIR_SHAPE(pair_##first##_##second##_1, a_number, b[i], c[i], EXPRESSION)                                          \
    PAIR_SHAPE(pair_##first##_##second##_2, a[i], b_number, c[i], EXPRESSION)                                          \
    PAIR_SHAPE(pair_##first##_##second##_4, a[i], b[i], c_number, EXPRESSION)                                          \
    PAIR_SHAPE(pair_##first##_##second##_5, a_number, b[i], c_number, EXPRESSION)                                      \
    PAIR_SHAPE(pair_##first##_##second##_6, a[i], b_number, c_number, EXPRESSION)
#define PAIR_ROW(first, second)                                                                                        \
    {                                                                                                                  \
        pair_##first##_##second##_0, pair_##first##_##second##_1, pair_##first##_##second##_2, NULL,                   \
            pair_##first##_##second##_4, pair_##first##_##second##_5, pair_##first##_##second##_6, NULL                \
    }
#define PAIRS(first, FIRST)                                                                                            \
    PAIR(first, add, (FIRST) + z)                                                                                      \
    PAIR(first, sub, (FIRST)-z)                                                                                        \
    PAIR(first, rsub, z - (FIRST))                                                                                     \
    PAIR(first, mul, (FIRST)*z)
#define PAIRS_ROW(first)                                                                                               \
    {                                                                                                                  \
        [SGLCPU_SECOND_ADD] = PAIR_ROW(first, add), [SGLCPU_SECOND_SUB] = PAIR_ROW(first, sub),                        \
        [SGLCPU_SECOND_RSUB] = PAIR_ROW(first, rsub), [SGLCPU_SECOND_MUL] = PAIR_ROW(first, mul)                       \
    }
PAIRS(add, x + y)
PAIRS(sub, x - y)
PAIRS(mul, x *y)

#include "backend/cpu/isa/float_rows.h"
#include "backend/cpu/isa/float_few.h"
#include "backend/cpu/isa/float_block.h"
#include "backend/cpu/isa/float_attend.h"

/* ---- the table ---------------------------------------------------------------------------------------------- */

const sglcpu_float_ops SGLCPU_NAME(REAL_NAME(ops)) = {
    .one = {
        [SGLIR_OP_NEG] = one_neg,
        [SGLIR_OP_ABS] = one_abs,
        [SGLIR_OP_SIGN] = one_sign,
        [SGLIR_OP_EXP] = one_exp,
        [SGLIR_OP_EXPM1] = one_expm1,
        [SGLIR_OP_LOG] = one_log,
        [SGLIR_OP_LOG1P] = one_log1p,
        [SGLIR_OP_SQRT] = one_sqrt,
        [SGLIR_OP_RSQRT] = one_rsqrt,
        [SGLIR_OP_RECIPROCAL] = one_reciprocal,
        [SGLIR_OP_SIN] = one_sin,
        [SGLIR_OP_COS] = one_cos,
        [SGLIR_OP_TANH] = one_tanh,
        [SGLIR_OP_ERF] = one_erf,
        [SGLIR_OP_SIGMOID] = one_sigmoid,
        [SGLIR_OP_FLOOR] = one_floor,
        [SGLIR_OP_ROUND] = one_round,
        [SGLIR_OP_IS_FINITE] = one_is_finite,
        [SGLIR_OP_SILU] = one_silu,
        [SGLIR_OP_GELU] = one_gelu,
    },
    .two = {
        [SGLIR_OP_ADD] = TWO_ROW(add),
        [SGLIR_OP_ACCUMULATE] = TWO_ROW(add),
        [SGLIR_OP_SUB] = TWO_ROW(sub),
        [SGLIR_OP_MUL] = TWO_ROW(mul),
        [SGLIR_OP_DIV] = TWO_ROW(div),
        [SGLIR_OP_REMAINDER] = TWO_ROW(remainder),
        [SGLIR_OP_POW] = TWO_ROW(pow),
        [SGLIR_OP_MAXIMUM] = TWO_ROW(maximum),
        [SGLIR_OP_MINIMUM] = TWO_ROW(minimum),
        [SGLIR_OP_EQUAL] = TWO_ROW(equal),
        [SGLIR_OP_NOT_EQUAL] = TWO_ROW(not_equal),
        [SGLIR_OP_LESS] = TWO_ROW(less),
        [SGLIR_OP_LESS_EQUAL] = TWO_ROW(less_equal),
        [SGLIR_OP_SILU_GRAD] = TWO_ROW(silu_grad),
        [SGLIR_OP_GELU_GRAD] = TWO_ROW(gelu_grad),
    },
    .gelu_exact = one_gelu_exact,
    .gelu_grad_exact = two_gelu_grad_exact,
    .select = { [0] = select_vv, [SGLCPU_B_NUMBER] = select_nv, [SGLCPU_C_NUMBER] = select_vn,
                [SGLCPU_B_NUMBER | SGLCPU_C_NUMBER] = select_nn },
    .pair = { [SGLCPU_FIRST_ADD] = PAIRS_ROW(add), [SGLCPU_FIRST_SUB] = PAIRS_ROW(sub), [SGLCPU_FIRST_MUL] = PAIRS_ROW(mul) },
    .fold = { [SGLCPU_FOLD_SUM] = fold_sum, [SGLCPU_FOLD_MAX] = fold_max, [SGLCPU_FOLD_MIN] = fold_min },
    .fold_product = fold_product,
    .columns = { [SGLCPU_FOLD_SUM] = columns_sum, [SGLCPU_FOLD_MAX] = columns_max, [SGLCPU_FOLD_MIN] = columns_min },
    .spill = { [SGLCPU_FOLD_SUM] = spill_sum, [SGLCPU_FOLD_MAX] = spill_max, [SGLCPU_FOLD_MIN] = spill_min },
    .row_max = row_max,
    .row_exp = row_exp,
    .row_scale = row_scale,
    .row_add = row_add,
    .row_dot = row_dot,
    .row_turn = row_turn,
    .few_dots = few_dots,
    .few_sums = few_sums,
    .block_product = block_product,
    .turn_rows = turn_rows,
    .softmax_block = softmax_block,
    .softmax_again = softmax_again,
    .softmax_slopes = softmax_slopes,
};
