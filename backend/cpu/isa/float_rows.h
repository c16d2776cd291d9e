/* float_rows.h -- sums, extremes and row operations of one float dtype; a part of float_ops.h.
 *
 * Maxima and minima are NaN once an element is. Odd invariant: the order of additions depends on the count alone, never on
 * where the data lies or on the variant: folds go by chunks of SGLCPU_CHUNK elements, in 128 bytes of lanes each, columns row
 * after row (tile_sum.c says what callers make of these). */
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

typedef REAL vec __attribute__((vector_size(SGLCPU_VECTOR_BYTES)));
/* The same at any address of a REAL. */
typedef REAL loose_vec __attribute__((vector_size(SGLCPU_VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
#if REAL_IS_F32
typedef int32_t vec_mask __attribute__((vector_size(SGLCPU_VECTOR_BYTES)));
#else
typedef int64_t vec_mask __attribute__((vector_size(SGLCPU_VECTOR_BYTES)));
#endif
enum { LANES = SGLCPU_VECTOR_BYTES / (int)sizeof(REAL) };

#define AT(pointer) (*(const loose_vec *)(pointer))
#define PUT(pointer) (*(loose_vec *)(pointer))

/* An fma of vectors: compilers have no way to say it without the machine's own names. */
#if defined(__AVX512F__) && REAL_IS_F32
#define FMA_VEC(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#elif defined(__AVX512F__)
#define FMA_VEC(a, b, c) ((vec)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#elif defined(__AVX2__) && REAL_IS_F32
#define FMA_VEC(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#elif defined(__AVX2__)
#define FMA_VEC(a, b, c) ((vec)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#elif defined(__aarch64__) && REAL_IS_F32
#define FMA_VEC(a, b, c) ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#elif defined(__aarch64__)
#define FMA_VEC(a, b, c) ((vec)vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b)))
#else
#define FMA_VEC(a, b, c) ((vec)((a) * (b) + (c)))
#endif
/* Copies of a number; a difference, which keeps the sign of a zero. */
#define SPREAD_VEC(number) ((number) - (vec){ 0 })

/* ---- folds: into one accumulator ------------------------------------------------------------------------------ */

enum {
    SUM_LANES = 128 / (int)sizeof(REAL),
    SUM_VECTORS = SUM_LANES / LANES,
    KEPT_LANES = LANES > 8 ? LANES : 8 /* that are left when whole vectors have been brought together */
};

/* The lanes by halves, down to eight; these by halves in double. */
static inline __attribute__((always_inline)) double sum_lanes(vec *sums)
{
    REAL lanes[KEPT_LANES];
    double quarter[4];
    _Pragma("GCC unroll 4") for (int n = SUM_VECTORS / 2; n * LANES >= 8; n /= 2)
    {
        _Pragma("GCC unroll 4") for (int v = 0; v < n; v++) sums[v] += sums[v + n];
    }
    _Pragma("GCC unroll 4") for (int v = 0; v < KEPT_LANES / LANES; v++) PUT(lanes + v * LANES) = sums[v];
    for (int lane = 0; lane < 8 && KEPT_LANES > 8; lane++) lanes[lane] += lanes[lane + KEPT_LANES - 8];
    for (int lane = 0; lane < 4; lane++) quarter[lane] = (double)lanes[lane] + (double)lanes[lane + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* A chunk's sum: lane j adds up elements j, j + SUM_LANES, ...; what fills no round of all lanes is followed by zeros. */
#define SUM_OF(name, TERM_VEC, TERM)                                                                                   \
    static inline double name##_chunk(const REAL *a, const REAL *b, int64_t count)                                     \
    {                                                                                                                  \
        UNUSED(b);                                                                                                     \
        vec sums[SUM_VECTORS];                                                                                         \
        int64_t i = 0;                                                                                                 \
        _Pragma("GCC unroll 8") for (int v = 0; v < SUM_VECTORS; v++) sums[v] = (vec){ 0 };                            \
        for (; i + SUM_LANES <= count; i += SUM_LANES) {                                                               \
            _Pragma("GCC unroll 8") for (int v = 0; v < SUM_VECTORS; v++) sums[v] += TERM_VEC(i + v * LANES);          \
        }                                                                                                              \
        if (i < count) {                                                                                               \
            _Pragma("GCC unroll 8") for (int v = 0; v < SUM_VECTORS; v++)                                              \
            {                                                                                                          \
                const int64_t at = i + v * LANES;                                                                      \
                if (at + LANES <= count) {                                                                             \
                    sums[v] += TERM_VEC(at);                                                                           \
                } else if (at < count) {                                                                               \
                    REAL rest[LANES] = { 0 };                                                                          \
                    for (int lane = 0; lane < LANES - 1 && at + lane < count; lane++) rest[lane] = TERM(at + lane);    \
                    sums[v] += AT(rest);                                                                               \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        return sum_lanes(sums);                                                                                        \
    }                                                                                                                  \
    static inline double name(double total, const REAL *a, const REAL *b, int64_t count)                               \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i += SGLCPU_CHUNK) {                                                            \
            const int64_t rest = count - i;                                                                            \
            total += name##_chunk(a + i, b == NULL ? NULL : b + i, rest < SGLCPU_CHUNK ? rest : SGLCPU_CHUNK);         \
        }                                                                                                              \
        return total;                                                                                                  \
    }
#define PLAIN_VEC(at) AT(a + (at))
#define PLAIN(at) a[at]
#define PRODUCT_VEC(at) (AT(a + (at)) * AT(b + (at)))
#define PRODUCT(at) a[at] * b[at]
SUM_OF(sum_of, PLAIN_VEC, PLAIN)
SUM_OF(product_sum_of, PRODUCT_VEC, PRODUCT)

static void fold_sum(void *accumulator, const void *a, const void *b, int64_t count)
{
    UNUSED(b);
    *(double *)accumulator = sum_of(*(double *)accumulator, a, NULL, count);
}

static void fold_product(void *accumulator, const void *a, const void *b, int64_t count)
{
    *(double *)accumulator = product_sum_of(*(double *)accumulator, a, b, count);
}

static inline __attribute__((always_inline)) vec choose(vec_mask mask, vec yes, vec no)
{
    return (vec)((mask & (vec_mask)yes) | (~mask & (vec_mask)no));
}

#define EXTREME(name, BEATS)                                                                                           \
    static inline double name(double start, const REAL *a, int64_t count)                                              \
    {                                                                                                                  \
        double best = start;                                                                                           \
        int64_t i = 0;                                                                                                 \
        if (count >= 2 * LANES) {                                                                                      \
            vec even = AT(a), odd = AT(a + LANES);                                                                     \
            for (i = 2 * LANES; i + 2 * LANES <= count; i += 2 * LANES) {                                              \
                const vec x = AT(a + i), y = AT(a + i + LANES);                                                        \
                even = choose((x BEATS even) | (x != x), x, even);                                                     \
                odd = choose((y BEATS odd) | (y != y), y, odd);                                                        \
            }                                                                                                          \
            even = choose((odd BEATS even) | (odd != odd), odd, even);                                                 \
            for (int lane = 0; lane < LANES; lane++) {                                                                 \
                const double x = (double)even[lane];                                                                   \
                best = x BEATS best || x != x ? x : best;                                                              \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            const double x = (double)a[i];                                                                             \
            best = x BEATS best || x != x ? x : best;                                                                  \
        }                                                                                                              \
        return best;                                                                                                   \
    }
EXTREME(max_of, >)
EXTREME(min_of, <)

static void fold_max(void *accumulator, const void *a, const void *b, int64_t count)
{
    UNUSED(b);
    *(double *)accumulator = max_of(*(double *)accumulator, a, count);
}

static void fold_min(void *accumulator, const void *a, const void *b, int64_t count)
{
    UNUSED(b);
    *(double *)accumulator = min_of(*(double *)accumulator, a, count);
}

/* ---- columns: into one accumulator per column ------------------------------------------------------------------ */

static inline const REAL *row_at(const void *a, int64_t row, int64_t row_bytes)
{
    return (const REAL *)((const char *)a + row * row_bytes);
}

/* Row after row; four at a time meet the sums, for a quarter of their traffic. */
static void columns_sum(void *near, const void *a, int64_t row_bytes, int64_t rows, int64_t count)
{
    REAL *out = near;
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
        const REAL *r0 = row_at(a, row, row_bytes), *r1 = row_at(a, row + 1, row_bytes);
        const REAL *r2 = row_at(a, row + 2, row_bytes), *r3 = row_at(a, row + 3, row_bytes);
        SGLCPU_LOOP out[i] = (((out[i] + r0[i]) + r1[i]) + r2[i]) + r3[i];
    }
    for (; row < rows; row++) {
        const REAL *r0 = row_at(a, row, row_bytes);
        SGLCPU_LOOP out[i] += r0[i];
    }
}

static void spill_sum(double *sums, void *near_, int64_t count)
{
    REAL *near = near_;
    SGLCPU_LOOP
    {
        sums[i] += (double)near[i];
        near[i] = 0;
    }
}

#define COLUMNS_EXTREME(name, BEATS, NEUTRAL)                                                                          \
    static void columns_##name(void *near, const void *a, int64_t row_bytes, int64_t rows, int64_t count)              \
    {                                                                                                                  \
        REAL *out = near;                                                                                              \
        for (int64_t row = 0; row < rows; row++) {                                                                     \
            const REAL *from = row_at(a, row, row_bytes);                                                              \
            SGLCPU_LOOP out[i] = from[i] BEATS out[i] || from[i] != from[i] ? from[i] : out[i];                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void spill_##name(double *best, void *near_, int64_t count)                                                 \
    {                                                                                                                  \
        REAL *near = near_;                                                                                            \
        SGLCPU_LOOP                                                                                                    \
        {                                                                                                              \
            const double x = (double)near[i];                                                                          \
            best[i] = x BEATS best[i] || x != x ? x : best[i];                                                         \
            near[i] = NEUTRAL;                                                                                         \
        }                                                                                                              \
    }
COLUMNS_EXTREME(max, >, -(REAL)__builtin_inf())
COLUMNS_EXTREME(min, <, (REAL)__builtin_inf())

/* ---- rows of scores and logits ---------------------------------------------------------------------------------- */

static double row_max(const void *x, int64_t count) { return max_of(-__builtin_inf(), x, count); }

/* In pieces, so that what the first loop wrote is summed while it is near. */
static double row_exp(void *out_, const void *x_, double scale_, double shift_, int64_t total)
{
    REAL *out = out_;
    const REAL *x = x_;
    const REAL scale = (REAL)scale_, shift = (REAL)shift_;
    double sum = 0;
    for (int64_t start = 0; start < total; start += 1024) {
        const int64_t count = total - start < 1024 ? total - start : 1024;
        const REAL *from = x + start;
        REAL *to = out + start;
        SGLCPU_LOOP to[i] = CORE(exp)(FMA_ONE(from[i], scale, -shift));
        sum = sum_of(sum, to, NULL, count);
    }
    return sum;
}

static void row_scale(void *x_, double factor_, int64_t count)
{
    REAL *x = x_;
    const REAL factor = (REAL)factor_;
    SGLCPU_LOOP x[i] *= factor;
}

static void row_add(void *out_, const void *x_, int64_t count)
{
    REAL *out = out_;
    const REAL *x = x_;
    SGLCPU_LOOP out[i] += x[i];
}

static double row_dot(const void *a, const void *b, int64_t count) { return product_sum_of(0, a, b, count); }

static void row_turn(void *out_, const void *x_, const void *cosine_, const void *sine_, int64_t half)
{
    REAL *out = out_;
    const REAL *x = x_, *cosine = cosine_, *sine = sine_;
    const int64_t count = half;
    SGLCPU_LOOP
    {
        const REAL first = x[i], second = x[half + i];
        out[i] = FMA_ONE(first, cosine[i], -(second * sine[i]));
        out[half + i] = FMA_ONE(second, cosine[i], first * sine[i]);
    }
}
