/* random.c -- runs of the two random streams of ops.def, counters side by side.
 *
 * In: a stream (key, step, first element, stride). Out: numbers. Runs of neighbours go through Philox a block of counters
 * at a time, which vectorises; others one by one. Float64 normals use libm; float32 ones polynomials in double, good to
 * 1e-9, so that their float is the right one but for rare ties. Odd invariant: an element depends on its number alone. */
#include <string.h>

#include "backend/cpu/isa/loop.h"

enum { BLOCK = 64 }; /* counters */

/* The four words of counters first .. first + BLOCK - 1. */
typedef struct words {
    uint32_t w[4][BLOCK];
} words;

static void philox_block(const sglcpu_stream *stream, uint64_t first, words *out)
{
    uint32_t *w0 = out->w[0], *w1 = out->w[1], *w2 = out->w[2], *w3 = out->w[3];
    uint32_t k0 = (uint32_t)stream->key, k1 = (uint32_t)(stream->key >> 32);
    for (int i = 0; i < BLOCK; i++) {
        w0[i] = (uint32_t)(first + (uint64_t)i);
        w1[i] = (uint32_t)((first + (uint64_t)i) >> 32);
        w2[i] = (uint32_t)stream->step;
        w3[i] = (uint32_t)(stream->step >> 32);
    }
    for (int round = 0; round < 10; round++) {
        SGLCPU_VMATH_LOOP for (int i = 0; i < BLOCK; i++)
        {
            const uint64_t product0 = (uint64_t)0xD2511F53u * w0[i], product1 = (uint64_t)0xCD9E8D57u * w2[i];
            const uint32_t c0 = (uint32_t)(product1 >> 32) ^ w1[i] ^ k0, c2 = (uint32_t)(product0 >> 32) ^ w3[i] ^ k1;
            w0[i] = c0;
            w1[i] = (uint32_t)product1;
            w2[i] = c2;
            w3[i] = (uint32_t)product0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static void philox_one(const sglcpu_stream *stream, uint64_t counter, uint32_t out[4])
{
    const uint32_t counters[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream->step,
                                   (uint32_t)(stream->step >> 32) };
    const uint32_t key[2] = { (uint32_t)stream->key, (uint32_t)(stream->key >> 32) };
    sglcore_philox(counters, key, out);
}

/* ---- from words to numbers ---------------------------------------------------------------------------------- */

static inline double normal_exact(uint32_t a, uint32_t b)
{
    return sqrt(-2.0 * log(((double)(a >> 8) + 1.0) * 0x1p-24)) *
           cos(6.283185307179586476925 * ((double)(b >> 8) * 0x1p-24));
}

/* Explicit, so that a block and a single element round alike. */
#if SGLCPU_VMATH_HAS_FMA
#define FMA(a, b, c) __builtin_fma((a), (b), (c))
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* log(m 2^-24), m = 1 .. 2^24: m = 2^e x with x in [sqrt(1/2), sqrt(2)), log x = 2 artanh((x - 1) / (x + 1)). */
static inline __attribute__((always_inline)) double log_of_step(uint32_t m)
{
    const uint32_t bits = sglcpu_bits_f32((float)(int32_t)m);
    const float mantissa = sglcpu_float_f32((bits & 0x007fffffu) | 0x3f800000u);
    const bool high = mantissa > 1.41421354f;
    const double x = (double)(high ? 0.5f * mantissa : mantissa);
    const double e = (double)((int32_t)(bits >> 23) - 127 - 24 + (high ? 1 : 0));
    const double f = (x - 1.0) / (x + 1.0), square = f * f;
    double p = 1.0 / 15.0;
    p = FMA(p, square, 1.0 / 13.0);
    p = FMA(p, square, 1.0 / 11.0);
    p = FMA(p, square, 1.0 / 9.0);
    p = FMA(p, square, 1.0 / 7.0);
    p = FMA(p, square, 1.0 / 5.0);
    p = FMA(p, square, 1.0 / 3.0);
    p = FMA(p, square, 1.0);
    return FMA(e, 0.69314718055994530942, 2.0 * f * p);
}

/* cos(2 pi n 2^-24), n < 2^24: folded to a quarter turn; the series' next term is below 1e-12 there. */
static inline __attribute__((always_inline)) double cos_of_step(uint32_t n)
{
    const double turn = (double)(int32_t)n * 0x1p-24;
    const double half = turn > 0.5 ? 1.0 - turn : turn; /* exact, as all products by powers of two are */
    const bool back = half > 0.25;
    const double angle = 6.283185307179586476925 * (back ? 0.5 - half : half), square = angle * angle;
    double p = -1.0 / 6402373705728000.0;
    p = FMA(p, square, 1.0 / 20922789888000.0);
    p = FMA(p, square, -1.0 / 87178291200.0);
    p = FMA(p, square, 1.0 / 479001600.0);
    p = FMA(p, square, -1.0 / 3628800.0);
    p = FMA(p, square, 1.0 / 40320.0);
    p = FMA(p, square, -1.0 / 720.0);
    p = FMA(p, square, 1.0 / 24.0);
    p = FMA(p, square, -0.5);
    p = FMA(p, square, 1.0);
    return back ? -p : p;
}

static inline __attribute__((always_inline)) float normal_near(uint32_t a, uint32_t b)
{
    return (float)(__builtin_sqrt(-2.0 * log_of_step((a >> 8) + 1)) * cos_of_step(b >> 8));
}

/* ---- runs ----------------------------------------------------------------------------------------------------- */

#define UNIFORM(name, T)                                                                                               \
    static void name##_block(T *out, const words *w)                                                                   \
    {                                                                                                                  \
        for (int i = 0; i < BLOCK; i++) {                                                                              \
            for (int k = 0; k < 4; k++) out[4 * i + k] = (T)(int32_t)(w->w[k][i] >> 8) * (T)0x1p-24;                   \
        }                                                                                                              \
    }                                                                                                                  \
    static T name##_one(const sglcpu_stream *stream, uint64_t element)                                                 \
    {                                                                                                                  \
        uint32_t w[4];                                                                                                 \
        philox_one(stream, element / 4, w);                                                                            \
        return (T)(int32_t)(w[element % 4] >> 8) * (T)0x1p-24;                                                         \
    }
#define NORMAL(name, T, of)                                                                                            \
    static void name##_block(T *out, const words *w)                                                                   \
    {                                                                                                                  \
        for (int k = 0; k < 2; k++) {                                                                                  \
            T values[BLOCK];                                                                                           \
            for (int i = 0; i < BLOCK; i++) values[i] = of(w->w[2 * k][i], w->w[2 * k + 1][i]);                        \
            for (int i = 0; i < BLOCK; i++) out[2 * i + k] = values[i];                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static T name##_one(const sglcpu_stream *stream, uint64_t element)                                                 \
    {                                                                                                                  \
        uint32_t w[4];                                                                                                 \
        philox_one(stream, element / 2, w);                                                                            \
        return of(w[2 * (element % 2)], w[2 * (element % 2) + 1]);                                                     \
    }
/* `per`: elements per counter. Neighbours go a block of counters at a time; a part of a block through a copy. */
#define RUN(name, T, per)                                                                                              \
    void SGLCPU_NAME(name)(void *out_, const sglcpu_stream *stream, int64_t count)                                     \
    {                                                                                                                  \
        enum { ELEMENTS = (per)*BLOCK, FEW = 16 };                                                                     \
        T *out = out_, part[ELEMENTS];                                                                                 \
        words w;                                                                                                       \
        for (int64_t i = 0; i < count;) {                                                                              \
            const uint64_t element = stream->first + (uint64_t)(i * stream->stride);                                   \
            if (stream->stride != 1 || count - i < FEW) {                                                              \
                out[i++] = name##_one(stream, element);                                                                \
                continue;                                                                                              \
            }                                                                                                          \
            const int64_t skip = (int64_t)(element % (per)), rest = count - i;                                         \
            const int64_t take = rest < ELEMENTS - skip ? rest : ELEMENTS - skip;                                      \
            philox_block(stream, element / (per), &w);                                                                 \
            name##_block(take == ELEMENTS ? out + i : part, &w);                                                       \
            if (take < ELEMENTS) memcpy(out + i, part + skip, (size_t)take * sizeof(T));                               \
            i += take;                                                                                                 \
        }                                                                                                              \
    }
UNIFORM(uniform_f32, float)
UNIFORM(uniform_f64, double)
NORMAL(normal_f32, float, normal_near)
NORMAL(normal_f64, double, normal_exact)
RUN(uniform_f32, float, 4)
RUN(uniform_f64, double, 4)
RUN(normal_f32, float, 2)
RUN(normal_f64, double, 2)
