/*
 * vmath_f32.h: one float at a time: exp, expm1, log, log1p, tanh, erf, sigmoid, silu, gelu_tanh; sin and cos in vmath_trig_f32.h.
 *
 * Every core is branch-free straight-line C (selects, bit moves, no table, no call), so a loop that calls it is
 * vectorised by gcc and clang for whatever ISA its translation unit is compiled for. A translation unit per ISA
 * includes this file; hence only static inline functions live here.
 * In: any float, also inf, nan, -0 and subnormals. Out: libm's special values, and in ulps of the true value at most
 * 1 for log, 1 for exp (1.25 without fma), 2 for expm1, log1p, tanh, erf, sin and cos, 2.75 for sigmoid, 4 for silu and gelu_tanh (the
 * last two relax on the far left, where they vanish); tests/unit/vmath_cases.h sweeps all floats and holds these bounds.
 *
 * Odd invariant: the same input gives the same bits in a vector body and in its scalar tail, so the compiler must have
 * no choice where to contract a product and a sum. Each place that may be contracted calls sglcpu_fma_f32; no other
 * product feeds a sum, except products with a power of two, which are exact. Two ISA variants may differ in the last
 * bits (fma or not), two compilers may not.
 */
#ifndef SGL_BACKEND_CPU_VMATH_F32_H
#define SGL_BACKEND_CPU_VMATH_F32_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "vmath needs IEEE arithmetic: compile without -ffast-math and -ffinite-math-only"
#endif

/* 1 where an fma is one instruction. */
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#define SGLCPU_VMATH_HAS_FMA 1
#else
#define SGLCPU_VMATH_HAS_FMA 0
#endif

/* The cores are inlined always: a call left in a loop would keep it scalar. */
#define SGLCPU_VMATH_CORE static inline __attribute__((always_inline))

#define SGLCPU_VMATH_INF __builtin_inff()
#define SGLCPU_VMATH_NAN __builtin_nanf("")
#define SGLCPU_VMATH_SIGN 0x80000000u

/* v + ROUNDER rounds |v| < 2^22 to an integer, which then stands in the low bits of the sum. */
#define SGLCPU_VMATH_ROUNDER 0x1.8p23f

/* ln 2 in two parts; the first has 9 bits, so that its product with any exponent is exact. */
#define SGLCPU_VMATH_LN2_HI 0x1.63p-1f
#define SGLCPU_VMATH_LN2_LO (-0x1.bd0106p-13f)
#define SGLCPU_VMATH_LOG2_E 0x1.715476p+0f

SGLCPU_VMATH_CORE uint32_t sglcpu_bits_f32(float value)
{
    union {
        float value;
        uint32_t bits;
    } pun = { .value = value };
    return pun.bits;
}

SGLCPU_VMATH_CORE float sglcpu_float_f32(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } pun = { .bits = bits };
    return pun.value;
}

/* a b + c: one rounding where the ISA has an fma, two where it has not. */
SGLCPU_VMATH_CORE float sglcpu_fma_f32(float a, float b, float c)
{
#if SGLCPU_VMATH_HAS_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* A select by comparison, which lets a nan in x through. */
SGLCPU_VMATH_CORE float sglcpu_min_f32(float x, float limit) { return x > limit ? limit : x; }

SGLCPU_VMATH_CORE float sglcpu_abs_f32(float x) { return sglcpu_float_f32(sglcpu_bits_f32(x) & ~SGLCPU_VMATH_SIGN); }

/* magnitude >= 0 gets the sign of x. */
SGLCPU_VMATH_CORE float sglcpu_with_sign_f32(float magnitude, float x)
{
    return sglcpu_float_f32(sglcpu_bits_f32(magnitude) | (sglcpu_bits_f32(x) & SGLCPU_VMATH_SIGN));
}

/* exp(r) for |r| <= ln(2) / 2: minimax polynomial of degree 6, relative error 2^-28 before rounding. */
SGLCPU_VMATH_CORE float sglcpu_exp_reduced_f32(float r)
{
    const float square = r * r;
    const float p2 = sglcpu_fma_f32(0x1.55549p-3f, r, 0x1.fffffap-2f);
    float p4 = sglcpu_fma_f32(0x1.123b1p-7f, r, 0x1.555a22p-5f);
    p4 = sglcpu_fma_f32(0x1.69546ap-10f, square, p4);
    const float p = sglcpu_fma_f32(p4, square, p2);
    return sglcpu_fma_f32(sglcpu_fma_f32(p, r, 1.0f), r, 1.0f);
}

/*
 * exp(x) = 2^n exp(r), r = x - n ln 2; beyond 104 it is inf or 0 as at 104. The power is applied in two halves, because
 * 2^n itself is no float where the result is subnormal (n down to -150) or overflows. The 254 makes each half come out
 * biased.
 */
SGLCPU_VMATH_CORE float sglcpu_exp_f32_one(float x)
{
    const float v = sglcpu_with_sign_f32(sglcpu_min_f32(sglcpu_abs_f32(x), 104.0f), x);
    const float rounder = SGLCPU_VMATH_ROUNDER + 254.0f;
    const float rounded = sglcpu_fma_f32(v, SGLCPU_VMATH_LOG2_E, rounder);
    const float n = rounded - rounder;
    float r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_HI, v);
    r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_LO, r);

    const uint32_t biased = sglcpu_bits_f32(rounded);
    const uint32_t half = biased >> 1;
    const float scale1 = sglcpu_float_f32(half << 23);
    const float scale2 = sglcpu_float_f32((biased - half) << 23);
    return sglcpu_exp_reduced_f32(r) * scale1 * scale2;
}

/*
 * exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1). Below -30 it is -1, and beyond 89 inf, as at those. Half of it is computed and
 * doubled, because 2^128 is no float; what is so small that it is x itself is given back as it is, with its sign.
 */
SGLCPU_VMATH_CORE float sglcpu_expm1_f32_one(float x)
{
    float v = x < -30.0f ? -30.0f : x;
    v = v > 89.0f ? 89.0f : v;
    const float rounder = SGLCPU_VMATH_ROUNDER + 126.0f;
    const float rounded = sglcpu_fma_f32(v, SGLCPU_VMATH_LOG2_E, rounder);
    const float n = rounded - rounder;
    float r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_HI, v);
    r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_LO, r);

    const float square = r * r;
    const float p2 = sglcpu_fma_f32(0x1.55549p-3f, r, 0x1.fffffap-2f);
    float p4 = sglcpu_fma_f32(0x1.123b1p-7f, r, 0x1.555a22p-5f);
    p4 = sglcpu_fma_f32(0x1.69546ap-10f, square, p4);
    const float p = sglcpu_fma_f32(p4, square, p2);
    const float reduced = sglcpu_fma_f32(p, square, r);
    const float half = sglcpu_float_f32(sglcpu_bits_f32(rounded) << 23); /* 2^(n - 1) */
    const float y = 2.0f * sglcpu_fma_f32(reduced, half, half - 0.5f);
    return sglcpu_abs_f32(x) < 0x1p-25f ? x : y;
}

/* exp(v) for -87 <= v <= 88 (or nan), where 2^n is one float: for functions that know their argument. */
SGLCPU_VMATH_CORE float sglcpu_exp_normal_f32(float v)
{
    const float rounder = SGLCPU_VMATH_ROUNDER + 127.0f;
    const float rounded = sglcpu_fma_f32(v, SGLCPU_VMATH_LOG2_E, rounder);
    const float n = rounded - rounder;
    float r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_HI, v);
    r = sglcpu_fma_f32(n, -SGLCPU_VMATH_LN2_LO, r);
    return sglcpu_exp_reduced_f32(r) * sglcpu_float_f32(sglcpu_bits_f32(rounded) << 23);
}

/*
 * log(x) = e ln 2 + log(1 + f), with x = 2^e (1 + f) and 1 + f in [sqrt(1/2), sqrt(2)):
 * f - f^2/2 + f^3 P(f), relative error 2^-26.9. Subnormals are scaled by 2^23 first.
 */
SGLCPU_VMATH_CORE float sglcpu_log_f32_one(float x)
{
    const float scaled = x * 0x1p23f;
    const float normal = x < 0x1p-126f ? scaled : x;
    const float shift = x < 0x1p-126f ? -23.0f : 0.0f;

    const uint32_t root_half = 0x3f3504f3u;
    const uint32_t bits = sglcpu_bits_f32(normal);
    const int32_t exponent = (int32_t)(bits - root_half) >> 23;
    const float e = (float)exponent + shift;
    const float f = sglcpu_float_f32(bits - ((uint32_t)exponent << 23)) - 1.0f;

    float p = -0x1.2a6f78p-4f;
    p = sglcpu_fma_f32(p, f, 0x1.015974p-3f);
    p = sglcpu_fma_f32(p, f, -0x1.0e96ccp-3f);
    p = sglcpu_fma_f32(p, f, 0x1.239ce2p-3f);
    p = sglcpu_fma_f32(p, f, -0x1.5466fep-3f);
    p = sglcpu_fma_f32(p, f, 0x1.99944ep-3f);
    p = sglcpu_fma_f32(p, f, -0x1.000234p-2f);
    p = sglcpu_fma_f32(p, f, 0x1.55557p-2f);

    const float square = f * f;
    float y = sglcpu_fma_f32(p * f, square, e * SGLCPU_VMATH_LN2_LO);
    y = sglcpu_fma_f32(square, -0.5f, y);
    y = sglcpu_fma_f32(e, SGLCPU_VMATH_LN2_HI, f + y);

    y = x <= 0x1.fffffep127f ? y : x; /* inf and nan */
    y = x < 0.0f ? SGLCPU_VMATH_NAN : y;
    return x == 0.0f ? -SGLCPU_VMATH_INF : y;
}

/*
 * log(1 + x): as log of u = 1 + x, but where u stays in the middle range with f = x itself, and elsewhere with f + c / 2^e, c
 * being what the sum lost: u + c is 1 + x exactly (two-sum of Knuth).
 */
SGLCPU_VMATH_CORE float sglcpu_log1p_f32_one(float x)
{
    const float u = 1.0f + x, back = u - 1.0f;
    const float lost = (1.0f - (u - back)) + (x - back);

    const uint32_t root_half = 0x3f3504f3u;
    const uint32_t bits = sglcpu_bits_f32(u);
    const int32_t exponent = (int32_t)(bits - root_half) >> 23;
    const float e = (float)exponent;
    const uint32_t inverse = (uint32_t)(127 - (exponent > 126 ? 126 : exponent)) << 23; /* beyond, lost is nothing */
    const float scaled = lost * sglcpu_float_f32(inverse);
    const float m = sglcpu_float_f32(bits - ((uint32_t)exponent << 23)) - 1.0f;
    const float f = exponent == 0 ? x : m;
    const float rest = exponent == 0 ? 0.0f : scaled;

    float p = -0x1.2a6f78p-4f;
    p = sglcpu_fma_f32(p, f, 0x1.015974p-3f);
    p = sglcpu_fma_f32(p, f, -0x1.0e96ccp-3f);
    p = sglcpu_fma_f32(p, f, 0x1.239ce2p-3f);
    p = sglcpu_fma_f32(p, f, -0x1.5466fep-3f);
    p = sglcpu_fma_f32(p, f, 0x1.99944ep-3f);
    p = sglcpu_fma_f32(p, f, -0x1.000234p-2f);
    p = sglcpu_fma_f32(p, f, 0x1.55557p-2f);

    const float square = f * f;
    const float low = sglcpu_fma_f32(e, SGLCPU_VMATH_LN2_LO, rest);
    float y = sglcpu_fma_f32(p * f, square, low);
    y = sglcpu_fma_f32(square, -0.5f, y);
    y = sglcpu_fma_f32(e, SGLCPU_VMATH_LN2_HI, f + y);

    y = x <= 0x1.fffffep127f ? y : x; /* inf and nan */
    y = x < -1.0f ? SGLCPU_VMATH_NAN : y;
    y = sglcpu_abs_f32(x) < 0x1p-25f ? x : y;
    return x == -1.0f ? -SGLCPU_VMATH_INF : y;
}

/*
 * tanh: below 0.55 an odd polynomial (relative error 2^-24.4), above it 1 - 2 / (E + 1), E = exp(2a) = 2^n exp(2r),
 * r = a - n ln(2)/2. What r loses by one rounding of ln(2)/2 is below 0.1 ulp of the result: n is small where it counts.
 */
SGLCPU_VMATH_CORE float sglcpu_tanh_f32_one(float x)
{
    const float magnitude = sglcpu_abs_f32(x);
    const float square = magnitude * magnitude;
    float p = 0x1.0a9d22p-6f;
    p = sglcpu_fma_f32(p, square, -0x1.aec928p-5f);
    p = sglcpu_fma_f32(p, square, 0x1.10c80cp-3f);
    p = sglcpu_fma_f32(p, square, -0x1.55542cp-2f);
    const float below = sglcpu_fma_f32(p * square, magnitude, magnitude);

    const float a = sglcpu_min_f32(magnitude, 9.25f); /* tanh(9.02) already rounds to 1 */
    const float rounder = SGLCPU_VMATH_ROUNDER + 127.0f;
    const float rounded = sglcpu_fma_f32(a, 2.0f * SGLCPU_VMATH_LOG2_E, rounder);
    const float r = sglcpu_fma_f32(rounded - rounder, -0x1.62e43p-2f, a);
    float q = 0x1.69546ap-4f; /* that of sglcpu_exp_reduced_f32, for 2r */
    q = sglcpu_fma_f32(q, r, 0x1.123b1p-2f);
    q = sglcpu_fma_f32(q, r, 0x1.555a22p-1f);
    q = sglcpu_fma_f32(q, r, 0x1.55549p0f);
    q = sglcpu_fma_f32(q, r, 0x1.fffffap0f);
    q = sglcpu_fma_f32(q, r, 2.0f);
    q = sglcpu_fma_f32(q, r, 1.0f);
    const float scale = sglcpu_float_f32(sglcpu_bits_f32(rounded) << 23);
    const float above = 1.0f - 2.0f / sglcpu_fma_f32(q, scale, 1.0f);
    return sglcpu_with_sign_f32(magnitude < 0.55f ? below : above, x);
}

/*
 * erf: below 0.92 an odd polynomial (relative error 2^-25.7), above it 1 - exp(Q(a)) with Q the polynomial that fits
 * log(erfc(a)) with weight erfc(a).
 */
SGLCPU_VMATH_CORE float sglcpu_erf_f32_one(float x)
{
    const float magnitude = sglcpu_abs_f32(x);
    const float square = magnitude * magnitude;
    float p = -0x1.387442p-11f;
    p = sglcpu_fma_f32(p, square, 0x1.46d9e6p-8f);
    p = sglcpu_fma_f32(p, square, -0x1.b67c04p-6f);
    p = sglcpu_fma_f32(p, square, 0x1.ce1986p-4f);
    p = sglcpu_fma_f32(p, square, -0x1.8126e2p-2f);
    p = sglcpu_fma_f32(p, square, 0x1.06eba6p-3f);
    const float below = sglcpu_fma_f32(p, magnitude, magnitude);

    const float a = sglcpu_min_f32(magnitude, 4.0f); /* erf(3.92) already rounds to 1 */
    float q = 0x1.9d8442p-13f;
    q = sglcpu_fma_f32(q, a, -0x1.9080eep-9f);
    q = sglcpu_fma_f32(q, a, 0x1.6cfcd6p-6f);
    q = sglcpu_fma_f32(q, a, -0x1.aa2314p-4f);
    q = sglcpu_fma_f32(q, a, -0x1.462cb2p-1f);
    q = sglcpu_fma_f32(q, a, -0x1.20b432p0f);
    q = sglcpu_fma_f32(q, a, -0x1.743c9ep-13f);
    const float above = 1.0f - sglcpu_exp_normal_f32(q);
    return sglcpu_with_sign_f32(magnitude < 0.92f ? below : above, x);
}

/*
 * exp(-a) for a >= 0: sglcpu_exp_f32_one with the minus in its constants, which saves the signs. r is the negated one. No
 * step negates, since compilers differ in the sign that a negated nan gets.
 */
SGLCPU_VMATH_CORE float sglcpu_exp_minus_f32(float a)
{
    const float v = sglcpu_min_f32(a, 104.0f);
    const float rounder = SGLCPU_VMATH_ROUNDER + 254.0f;
    const float rounded = sglcpu_fma_f32(v, -SGLCPU_VMATH_LOG2_E, rounder);
    const float n = rounded - rounder;
    float r = sglcpu_fma_f32(n, SGLCPU_VMATH_LN2_HI, v);
    r = sglcpu_fma_f32(n, SGLCPU_VMATH_LN2_LO, r);

    const float square = r * r;
    const float p2 = sglcpu_fma_f32(-0x1.55549p-3f, r, 0x1.fffffap-2f);
    float p4 = sglcpu_fma_f32(-0x1.123b1p-7f, r, 0x1.555a22p-5f);
    p4 = sglcpu_fma_f32(0x1.69546ap-10f, square, p4);
    float p = sglcpu_fma_f32(p4, square, p2);
    p = sglcpu_fma_f32(sglcpu_fma_f32(p, r, -1.0f), r, 1.0f);

    const uint32_t biased = sglcpu_bits_f32(rounded);
    const uint32_t half = biased >> 1;
    return p * sglcpu_float_f32(half << 23) * sglcpu_float_f32((biased - half) << 23);
}

/* 1 / (1 + exp(-x)), written in exp(-|x|) so that both tails keep their precision, the left one into subnormals. */
SGLCPU_VMATH_CORE float sglcpu_sigmoid_f32_one(float x)
{
    const float z = sglcpu_exp_minus_f32(sglcpu_abs_f32(x));
    return (x < 0.0f ? z : 1.0f) / (1.0f + z);
}

/* x sigmoid(x). silu(-inf) is nan, as the product says. */
SGLCPU_VMATH_CORE float sglcpu_silu_f32_one(float x)
{
    const float z = sglcpu_exp_minus_f32(sglcpu_abs_f32(x));
    return (x < 0.0f ? z * x : x) / (1.0f + z);
}

/*
 * x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016), computed as x sigmoid(2u): the
 * same function, with no cancellation on the left, where 1 + tanh(u) would lose all digits.
 */
SGLCPU_VMATH_CORE float sglcpu_gelu_tanh_f32_one(float x)
{
    const float square = x * x;
    const float twice_u = sglcpu_abs_f32(x) * sglcpu_fma_f32(square, 0x1.2444f2p-4f, 0x1.988454p0f);
    const float z = sglcpu_exp_minus_f32(twice_u);
    return (x < 0.0f ? z * x : x) / (1.0f + z);
}

#endif
