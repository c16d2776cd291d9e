/* int_ops.c -- the loops that exist once: integers, bool, casts between all dtypes, and copies.
 *
 * In: an op and a dtype. Out: a function over arrays, or NULL when the op has no meaning there. Integers wrap round;
 * division floors and gives 0 where the divisor is 0 (ops.def); a float that no integer can hold becomes the nearest
 * one, NaN becomes 0. Odd invariant: no loop here takes a number in place of an array; its caller spreads it first. */
#include <string.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/narrow.h"

#define SIGNATURE void *out_, const void *a_, const void *b_, const void *c_, int64_t count
#define UNUSED(x) (void)(x)

/* suffix, C type, dtype, least and largest value */
#define INTS(X)                                                                                                        \
    X(i64, int64_t, SGL_I64, INT64_MIN, INT64_MAX)                                                                     \
    X(i32, int32_t, SGL_I32, INT32_MIN, INT32_MAX)                                                                     \
    X(i16, int16_t, SGL_I16, INT16_MIN, INT16_MAX)                                                                     \
    X(i8, int8_t, SGL_I8, INT8_MIN, INT8_MAX)                                                                          \
    X(u8, uint8_t, SGL_U8, 0, UINT8_MAX)                                                                               \
    X(u16, uint16_t, SGL_U16, 0, UINT16_MAX)                                                                           \
    X(u32, uint32_t, SGL_U32, 0, UINT32_MAX)

/* ---- elementwise -------------------------------------------------------------------------------------------- */

static int64_t floor_quotient(int64_t x, int64_t y)
{
    if (y == 0) return 0;
    if (y == -1) return (int64_t)(0 - (uint64_t)x);
    int64_t quotient = x / y;
    return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

static int64_t floor_remainder(int64_t x, int64_t y)
{
    if (y == 0 || y == -1) return 0;
    int64_t remainder = x % y;
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

static uint64_t magnitude_of(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

static int sign_of(int64_t x) { return (x > 0) - (x < 0); }

/* By an amount that is none of the bits' numbers nothing is left, but the sign. */
static uint64_t shifted_left(int64_t x, int64_t by, int bits) { return by < 0 || by >= bits ? 0 : (uint64_t)x << by; }
static int64_t shifted_right(int64_t x, int64_t by, int bits) { return by < 0 || by >= bits ? -(x < 0) : x >> by; }

#define ONE(name, T, EXPRESSION)                                                                                       \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        UNUSED(b_), UNUSED(c_);                                                                                        \
        T *out = out_;                                                                                                 \
        const T *a = a_;                                                                                               \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const T x = a[i];                                                                                          \
            out[i] = (T)(EXPRESSION);                                                                                  \
        }                                                                                                              \
    }
#define TWO(name, OUT, T, EXPRESSION)                                                                                  \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        UNUSED(c_);                                                                                                    \
        OUT *out = out_;                                                                                               \
        const T *a = a_, *b = b_;                                                                                      \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const T x = a[i], y = b[i];                                                                                \
            out[i] = (OUT)(EXPRESSION);                                                                                \
        }                                                                                                              \
    }
#define SELECT(name, T)                                                                                                \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        T *out = out_;                                                                                                 \
        const uint8_t *condition = a_;                                                                                 \
        const T *b = b_, *c = c_;                                                                                      \
        for (int64_t i = 0; i < count; i++) out[i] = condition[i] ? b[i] : c[i];                                       \
    }

#define INT_LOOPS(suffix, T, dtype, least, largest)                                                                    \
    ONE(neg_##suffix, T, 0 - (uint64_t)x)                                                                              \
    ONE(abs_##suffix, T, magnitude_of((int64_t)x))                                                                     \
    ONE(sign_##suffix, T, sign_of((int64_t)x))                                                                         \
    TWO(add_##suffix, T, T, (uint64_t)x + (uint64_t)y)                                                                 \
    TWO(sub_##suffix, T, T, (uint64_t)x - (uint64_t)y)                                                                 \
    TWO(mul_##suffix, T, T, (uint64_t)x *(uint64_t)y)                                                                  \
    TWO(div_##suffix, T, T, floor_quotient((int64_t)x, (int64_t)y))                                                    \
    TWO(remainder_##suffix, T, T, floor_remainder((int64_t)x, (int64_t)y))                                             \
    TWO(maximum_##suffix, T, T, x > y ? x : y)                                                                         \
    TWO(minimum_##suffix, T, T, x < y ? x : y)                                                                         \
    TWO(equal_##suffix, uint8_t, T, x == y)                                                                            \
    TWO(not_equal_##suffix, uint8_t, T, x != y)                                                                        \
    TWO(less_##suffix, uint8_t, T, x < y)                                                                              \
    TWO(less_equal_##suffix, uint8_t, T, x <= y)                                                                       \
    ONE(bit_not_##suffix, T, ~x)                                                                                       \
    TWO(bit_and_##suffix, T, T, x &y)                                                                                  \
    TWO(bit_or_##suffix, T, T, x | y)                                                                                  \
    TWO(bit_xor_##suffix, T, T, x ^ y)                                                                                 \
    TWO(shift_left_##suffix, T, T, shifted_left((int64_t)x, (int64_t)y, 8 * (int)sizeof(T)))                           \
    TWO(shift_right_##suffix, T, T, shifted_right((int64_t)x, (int64_t)y, 8 * (int)sizeof(T)))                         \
    SELECT(select_##suffix, T)                                                                                         \
    static const sglcpu_map_fn maps_##suffix[SGLIR_OP_COUNT] = {                                                       \
        [SGLIR_OP_NEG] = neg_##suffix,                                                                                 \
        [SGLIR_OP_ABS] = abs_##suffix,                                                                                 \
        [SGLIR_OP_SIGN] = sign_##suffix,                                                                               \
        [SGLIR_OP_ADD] = add_##suffix,                                                                                 \
        [SGLIR_OP_ACCUMULATE] = add_##suffix,                                                                          \
        [SGLIR_OP_SUB] = sub_##suffix,                                                                                 \
        [SGLIR_OP_MUL] = mul_##suffix,                                                                                 \
        [SGLIR_OP_DIV] = div_##suffix,                                                                                 \
        [SGLIR_OP_REMAINDER] = remainder_##suffix,                                                                     \
        [SGLIR_OP_MAXIMUM] = maximum_##suffix,                                                                         \
        [SGLIR_OP_MINIMUM] = minimum_##suffix,                                                                         \
        [SGLIR_OP_EQUAL] = equal_##suffix,                                                                             \
        [SGLIR_OP_NOT_EQUAL] = not_equal_##suffix,                                                                     \
        [SGLIR_OP_LESS] = less_##suffix,                                                                               \
        [SGLIR_OP_LESS_EQUAL] = less_equal_##suffix,                                                                   \
        [SGLIR_OP_BIT_NOT] = bit_not_##suffix,                                                                         \
        [SGLIR_OP_BIT_AND] = bit_and_##suffix,                                                                         \
        [SGLIR_OP_BIT_OR] = bit_or_##suffix,                                                                           \
        [SGLIR_OP_BIT_XOR] = bit_xor_##suffix,                                                                         \
        [SGLIR_OP_SHIFT_LEFT] = shift_left_##suffix,                                                                   \
        [SGLIR_OP_SHIFT_RIGHT] = shift_right_##suffix,                                                                 \
        [SGLIR_OP_SELECT] = select_##suffix,                                                                           \
    };
INTS(INT_LOOPS)

ONE(not_bool, uint8_t, !x)
TWO(and_bool, uint8_t, uint8_t, x &&y)
TWO(or_bool, uint8_t, uint8_t, x || y)
static const sglcpu_map_fn maps_bool[SGLIR_OP_COUNT] = {
    [SGLIR_OP_NOT] = not_bool,           [SGLIR_OP_AND] = and_bool,     [SGLIR_OP_OR] = or_bool,
    [SGLIR_OP_BIT_NOT] = not_bool,       [SGLIR_OP_BIT_AND] = and_bool, [SGLIR_OP_BIT_OR] = or_bool,
    [SGLIR_OP_BIT_XOR] = not_equal_u8,   [SGLIR_OP_MUL] = and_bool,     [SGLIR_OP_ADD] = or_bool,
    [SGLIR_OP_MAXIMUM] = or_bool,        [SGLIR_OP_MINIMUM] = and_bool, [SGLIR_OP_EQUAL] = equal_u8,
    [SGLIR_OP_NOT_EQUAL] = not_equal_u8, [SGLIR_OP_LESS] = less_u8,     [SGLIR_OP_LESS_EQUAL] = less_equal_u8,
    [SGLIR_OP_SELECT] = select_u8,
};

sglcpu_map_fn sglcpu_int_map(sglir_op op, sgl_dtype dtype, int numbers)
{
    if (numbers != 0) return NULL;
    switch (sglcpu_held(dtype)) {
#define CASE(suffix, T, dtype, least, largest)                                                                         \
    case dtype: return maps_##suffix[op];
        INTS(CASE)
#undef CASE
    case SGL_BOOL: return maps_bool[op];
    default: return NULL;
    }
}

/* ---- casts -------------------------------------------------------------------------------------------------- */

#define CAST(name, FROM, TO, EXPRESSION)                                                                               \
    static void name(SIGNATURE)                                                                                        \
    {                                                                                                                  \
        UNUSED(b_), UNUSED(c_);                                                                                        \
        const FROM *a = a_;                                                                                            \
        TO *out = out_;                                                                                                \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const FROM x = a[i];                                                                                       \
            out[i] = (TO)(EXPRESSION);                                                                                 \
        }                                                                                                              \
    }
#define CLAMPED(T, least, largest)                                                                                     \
    x != x ? 0 : x <= (least) ? (T)(least) : (double)x < (double)(largest) ? (T)x : (T)(largest)

/* To 53 digits so that a later rounding to fewer goes as from x itself: the last one says whether any was lost. */
static int64_t sticky_of(int64_t x)
{
    if (x > -(INT64_C(1) << 53) && x < INT64_C(1) << 53) return x;
    int64_t lost = x & 0x7ff;
    return (x - lost) | (lost != 0 ? 0x800 : 0);
}

#define CASTS_OF_INT(suffix, T, dtype, least, largest)                                                                 \
    CAST(cast_f64_##suffix, double, T, CLAMPED(T, least, largest))                                                     \
    CAST(cast_f32_##suffix, float, T, CLAMPED(T, least, largest))                                                      \
    CAST(cast_i64_##suffix, int64_t, T, x)                                                                             \
    CAST(cast_i32_##suffix, int32_t, T, x)                                                                             \
    CAST(cast_i16_##suffix, int16_t, T, x)                                                                             \
    CAST(cast_i8_##suffix, int8_t, T, x)                                                                               \
    CAST(cast_u8_##suffix, uint8_t, T, x)                                                                              \
    CAST(cast_u16_##suffix, uint16_t, T, x)                                                                            \
    CAST(cast_u32_##suffix, uint32_t, T, x)                                                                            \
    CAST(cast_##suffix##_f64, T, double, x)                                                                            \
    CAST(cast_##suffix##_odd, T, float, sglcpu_odd_f32((double)sticky_of((int64_t)x)))                                 \
    CAST(cast_##suffix##_f32, T, float, x)                                                                             \
    CAST(cast_##suffix##_bool, T, uint8_t, x != 0)
INTS(CASTS_OF_INT)
CAST(cast_f64_f64, double, double, x)
CAST(cast_f64_f32, double, float, x)
CAST(cast_f32_f64, float, double, x)
CAST(cast_f32_f32, float, float, x)
CAST(cast_f64_bool, double, uint8_t, x != 0)
CAST(cast_f32_bool, float, uint8_t, x != 0)
CAST(cast_f64_i4, double, int8_t, CLAMPED(int8_t, -8, 7))
CAST(cast_f32_i4, float, int8_t, CLAMPED(int8_t, -8, 7))
CAST(cast_f64_odd, double, float, sglcpu_odd_f32(x))
CAST(wrap_i4, int8_t, int8_t, ((x & 15) ^ 8) - 8)

#define CASTS_TO(suffix, dtype)                                                                                        \
    [dtype] = { [SGL_F64] = cast_f64_##suffix, [SGL_F32] = cast_f32_##suffix, [SGL_I64] = cast_i64_##suffix,           \
                [SGL_I32] = cast_i32_##suffix, [SGL_I16] = cast_i16_##suffix, [SGL_I8] = cast_i8_##suffix,             \
                [SGL_U8] = cast_u8_##suffix,   [SGL_U16] = cast_u16_##suffix, [SGL_U32] = cast_u32_##suffix,           \
                [SGL_BOOL] = cast_u8_##suffix }
#define CASTS_TO_INT(suffix, T, dtype, least, largest) CASTS_TO(suffix, dtype),
static const sglcpu_map_fn casts[SGL_DTYPE_COUNT][SGL_DTYPE_COUNT] = { INTS(CASTS_TO_INT) CASTS_TO(f64, SGL_F64),
                                                                       CASTS_TO(f32, SGL_F32),
                                                                       CASTS_TO(bool, SGL_BOOL) };

#define CAST_ODD(suffix, T, dtype, least, largest) [dtype] = cast_##suffix##_odd,
static const sglcpu_map_fn casts_odd[SGL_DTYPE_COUNT] = {
    INTS(CAST_ODD)[SGL_F64] = cast_f64_odd, [SGL_F32] = cast_f32_f32, [SGL_BOOL] = cast_u8_odd
};

sglcpu_map_fn sglcpu_cast(sgl_dtype from, sgl_dtype to)
{
    from = sglcpu_held(from);
    if (sglcpu_is_narrow(to)) return casts_odd[from];
    if (to == SGL_I4 && from == SGL_F64) return cast_f64_i4;
    if (to == SGL_I4 && from == SGL_F32) return cast_f32_i4;
    return casts[sglcpu_held(to)][from];
}

sglcpu_map_fn sglcpu_settle(const sglcpu_isa *isa, sgl_dtype dtype)
{
    return dtype == SGL_I4 ? wrap_i4 : isa->narrow[dtype].round;
}

/* ---- folds -------------------------------------------------------------------------------------------------- */

static inline int64_t fold_two(int fold, int64_t x, int64_t y)
{
    switch (fold) {
    case SGLCPU_FOLD_MAX: return x > y ? x : y;
    case SGLCPU_FOLD_MIN: return x < y ? x : y;
    default: return (int64_t)((uint64_t)x + (uint64_t)y);
    }
}

#define FOLD(suffix, T, name, fold)                                                                                    \
    static void fold_##name##_##suffix(void *accumulator, const void *a_, const void *b, int64_t count)                \
    {                                                                                                                  \
        UNUSED(b);                                                                                                     \
        const T *a = a_;                                                                                               \
        int64_t value = *(int64_t *)accumulator;                                                                       \
        for (int64_t i = 0; i < count; i++) value = fold_two(fold, value, (int64_t)a[i]);                              \
        *(int64_t *)accumulator = value;                                                                               \
    }                                                                                                                  \
    static void columns_##name##_##suffix(void *accumulators, const void *a, int64_t row_bytes, int64_t rows,          \
                                          int64_t count)                                                               \
    {                                                                                                                  \
        int64_t *out = accumulators;                                                                                   \
        for (int64_t row = 0; row < rows; row++) {                                                                     \
            const T *from = (const T *)((const char *)a + row * row_bytes);                                            \
            for (int64_t i = 0; i < count; i++) out[i] = fold_two(fold, out[i], (int64_t)from[i]);                     \
        }                                                                                                              \
    }
#define FOLDS(suffix, T, dtype, least, largest)                                                                        \
    FOLD(suffix, T, sum, SGLCPU_FOLD_SUM)                                                                              \
    FOLD(suffix, T, max, SGLCPU_FOLD_MAX)                                                                              \
    FOLD(suffix, T, min, SGLCPU_FOLD_MIN)                                                                              \
    static const sglcpu_fold_fn folds_##suffix[SGLCPU_FOLDS] = { fold_sum_##suffix, fold_max_##suffix,                 \
                                                                 fold_min_##suffix };                                  \
    static const sglcpu_columns_fn columns_of_##suffix[SGLCPU_FOLDS] = { columns_sum_##suffix, columns_max_##suffix,   \
                                                                         columns_min_##suffix };
INTS(FOLDS)

sglcpu_fold_fn sglcpu_int_fold(int fold, sgl_dtype dtype)
{
    switch (sglcpu_held(dtype)) {
#define CASE(suffix, T, dtype, least, largest)                                                                         \
    case dtype: return folds_##suffix[fold];
        INTS(CASE)
#undef CASE
    case SGL_BOOL: return folds_u8[fold];
    default: return NULL;
    }
}

sglcpu_columns_fn sglcpu_int_columns(int fold, sgl_dtype dtype)
{
    switch (sglcpu_held(dtype)) {
#define CASE(suffix, T, dtype, least, largest)                                                                         \
    case dtype: return columns_of_##suffix[fold];
        INTS(CASE)
#undef CASE
    case SGL_BOOL: return columns_of_u8[fold];
    default: return NULL;
    }
}
