/* reduce.c -- several arrays into one: sum, greatest, least, of every dtype that is exchanged.
 *
 * In: as many sources as there are ranks, in the order of their places. Out: element by element ((s0 + s1) + s2) + ...:
 * always that order, so that a result does not depend on who came first, on slices, or on the kind of exchange. Floats
 * narrower than 32 bits are added in float32 and rounded once, at the end. Integers wrap. The greatest and the least of
 * anything and NaN is NaN. Odd invariant: `to` may be one of the sources, as a whole, because a block is read before it
 * is written. */
#include <assert.h>
#include <string.h>

#include "collectives/engine.h"

enum { BLOCK = 1024 }; /* elements: accumulators stay in the first cache */

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* A narrow float has a sign, then an exponent with this bias, then `digits`; codes above `largest` are infinity or NaN,
 * which in f8e4m3 is the one code 0x7f (OCP 8-bit floating point, revision 1.0). */
static inline float widen(uint32_t code, int width, int digits, int bias, uint32_t largest, bool infinite)
{
    const uint32_t magnitude = code & ((1u << (width - 1)) - 1u), sign = code >> (width - 1) << 31;
    /* The digits at float32's place, with an exponent that is too small by 127 - bias: a product mends it, subnormals too. */
    const float value = float_of(magnitude << (23 - digits)) * float_of((uint32_t)(254 - bias) << 23);
    if (magnitude <= largest) return float_of(bits_of(value) | sign);
    return float_of((infinite && magnitude == largest + 1 ? 0x7f800000u : 0x7fc00000u) | sign);
}

/* To the nearest, ties to the even one. */
static inline uint32_t narrow(float x, int width, int digits, int bias, uint32_t largest, bool infinite)
{
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffffu, sign = bits >> 31 << (width - 1);
    const uint32_t nan = infinite ? (largest + 1) | 1u << (digits - 1) : largest + 1;
    const int dropped = 23 - digits;
    const uint32_t half = (1u << (dropped - 1)) - 1u + (magnitude >> dropped & 1u);
    uint32_t code = ((magnitude + half) >> dropped) - ((uint32_t)(127 - bias) << digits);
    /* Below the normal numbers: added to a power of two whose last digit is the smallest number there is, which rounds it. */
    const uint32_t rounder = (uint32_t)(127 - bias + 24 - digits) << 23;
    if (magnitude < (uint32_t)(128 - bias) << 23) code = bits_of(float_of(magnitude) + float_of(rounder)) - rounder;
    if (magnitude > 0x7f800000u) return nan;
    if (code > largest) return infinite ? (largest + 1) | sign : nan;
    return code | sign;
}

static inline float widen_bf16(uint16_t code) { return float_of((uint32_t)code << 16); }
static inline uint16_t narrow_bf16(float x)
{
    const uint32_t bits = bits_of(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
static inline float widen_f16(uint16_t code) { return widen(code, 16, 10, 15, 0x7bff, true); }
static inline uint16_t narrow_f16(float x) { return (uint16_t)narrow(x, 16, 10, 15, 0x7bff, true); }
static inline float widen_e4m3(uint8_t code) { return widen(code, 8, 3, 7, 0x7e, false); }
static inline uint8_t narrow_e4m3(float x) { return (uint8_t)narrow(x, 8, 3, 7, 0x7e, false); }
static inline float widen_e5m2(uint8_t code) { return widen(code, 8, 2, 15, 0x7b, true); }
static inline uint8_t narrow_e5m2(float x) { return (uint8_t)narrow(x, 8, 2, 15, 0x7b, true); }

#define SUM_OF(sum, x) ((sum) + (x))
#define MOST_OF(most, x) ((x) > (most) || (x) != (x) ? (x) : (most))
#define LEAST_OF(least, x) ((x) < (least) || (x) != (x) ? (x) : (least))

/* T: of the elements; A: of the accumulators. */
#define REDUCE(name, T, A, load, store, OP)                                                                            \
    static void name(void *to, const void *const *sources, int ranks, int64_t count)                                   \
    {                                                                                                                  \
        A block[BLOCK];                                                                                                \
        for (int64_t at = 0; at < count; at += BLOCK) {                                                                \
            const int here = (int)(count - at < BLOCK ? count - at : BLOCK);                                           \
            const T *first = (const T *)sources[0] + at;                                                               \
            for (int i = 0; i < here; i++) block[i] = (A)load(first[i]);                                               \
            for (int r = 1; r < ranks; r++) {                                                                          \
                const T *next = (const T *)sources[r] + at;                                                            \
                for (int i = 0; i < here; i++) {                                                                       \
                    const A x = (A)load(next[i]);                                                                      \
                    block[i] = (A)OP(block[i], x);                                                                     \
                }                                                                                                      \
            }                                                                                                          \
            T *out = (T *)to + at;                                                                                     \
            for (int i = 0; i < here; i++) out[i] = (T)store(block[i]);                                                \
        }                                                                                                              \
    }

/* dtype, suffix, type, accumulator of a sum (unsigned: it wraps), of the others, load, store */
#define PLAIN(x) (x)
#define REDUCED_DTYPES(X)                                                                                              \
    X(F64, f64, double, double, double, PLAIN, PLAIN)                                                                  \
    X(F32, f32, float, float, float, PLAIN, PLAIN)                                                                     \
    X(BF16, bf16, uint16_t, float, float, widen_bf16, narrow_bf16)                                                     \
    X(F16, f16, uint16_t, float, float, widen_f16, narrow_f16)                                                         \
    X(F8E4M3, e4m3, uint8_t, float, float, widen_e4m3, narrow_e4m3)                                                    \
    X(F8E5M2, e5m2, uint8_t, float, float, widen_e5m2, narrow_e5m2)                                                    \
    X(I64, i64, int64_t, uint64_t, int64_t, PLAIN, PLAIN)                                                              \
    X(I32, i32, int32_t, uint32_t, int32_t, PLAIN, PLAIN)                                                              \
    X(I16, i16, int16_t, uint32_t, int32_t, PLAIN, PLAIN)                                                              \
    X(I8, i8, int8_t, uint32_t, int32_t, PLAIN, PLAIN)                                                                 \
    X(U8, u8, uint8_t, uint32_t, uint32_t, PLAIN, PLAIN)                                                               \
    X(U16, u16, uint16_t, uint32_t, uint32_t, PLAIN, PLAIN)                                                            \
    X(U32, u32, uint32_t, uint32_t, uint32_t, PLAIN, PLAIN)

#define REDUCE_ALL(dtype, suffix, T, S, A, load, store)                                                                \
    REDUCE(sum_##suffix, T, S, load, store, SUM_OF)                                                                    \
    REDUCE(most_##suffix, T, A, load, store, MOST_OF)                                                                  \
    REDUCE(least_##suffix, T, A, load, store, LEAST_OF)
REDUCED_DTYPES(REDUCE_ALL)

typedef void (*reduce_fn)(void *to, const void *const *sources, int ranks, int64_t count);
static const reduce_fn reduces[SGL_DTYPE_COUNT][SGLEXEC_REDUCTION_COUNT] = {
#define REDUCE_ROW(dtype, suffix, T, S, A, load, store) [SGL_##dtype] = { sum_##suffix, most_##suffix, least_##suffix },
    REDUCED_DTYPES(REDUCE_ROW)
#undef REDUCE_ROW
        [SGL_BOOL] = { NULL, most_u8, least_u8 },
};

bool sglcomm_reduces(sgl_dtype dtype, sglexec_reduction reduction) { return reduces[dtype][reduction] != NULL; }

void sglcomm_reduce(sgl_dtype dtype, sglexec_reduction reduction, void *to, const void *const *sources, int ranks,
                    int64_t count)
{
    assert(sglcomm_reduces(dtype, reduction) && ranks >= 1);
    reduces[dtype][reduction](to, sources, ranks, count);
}
