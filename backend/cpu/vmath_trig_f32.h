/*
 * vmath_trig_f32.h: sin and cos of one float, over all floats.
 *
 * Two reductions to r = |x| - k pi/2, |r| <= pi/4, share one pair of polynomials. sglcpu_sin_near_f32 (cos alike) is a
 * branch-free core for |x| <= SGLCPU_VMATH_TRIG_NEAR and is what a vector loop calls; sglcpu_sin_f32_one takes any
 * float and goes through integers (Payne and Hanek) beyond that limit. Where both hold they give the same bits.
 * The same invariant as in vmath_f32.h: a sum that a product feeds is an explicit sglcpu_fma_f32.
 */
#ifndef SGL_BACKEND_CPU_VMATH_TRIG_F32_H
#define SGL_BACKEND_CPU_VMATH_TRIG_F32_H

#include <stdbool.h>

#include "vmath_f32.h"

/* The largest |x| that the near cores take: k pi/2 is subtracted in exact steps up to there. */
#if SGLCPU_VMATH_HAS_FMA
#define SGLCPU_VMATH_TRIG_NEAR 100000.0f
#else
#define SGLCPU_VMATH_TRIG_NEAR 6400.0f
#endif

typedef struct sglcpu_quadrant_f32 {
    float r;    /* |x| - k pi/2 */
    uint32_t k; /* modulo 4 counts; the higher bits mean nothing */
} sglcpu_quadrant_f32;

SGLCPU_VMATH_CORE bool sglcpu_trig_is_near_f32(float x)
{
    /* as signed numbers, which every ISA can compare: bits of magnitudes have the order of their floats */
    return (int32_t)(sglcpu_bits_f32(x) & ~SGLCPU_VMATH_SIGN) <= (int32_t)sglcpu_bits_f32(SGLCPU_VMATH_TRIG_NEAR);
}

/*
 * Cody and Waite: pi/2 in parts, subtracted one after another. With fma three full floats do: the first step is exact,
 * the others lose half an ulp of r each. Without, each product must be exact, so there are three parts of 11 bits (times
 * a k below 2^12) and a full one; the third step's rounding error is found again and joins the fourth.
 */
SGLCPU_VMATH_CORE sglcpu_quadrant_f32 sglcpu_reduce_near_f32(float a)
{
    const float rounded = sglcpu_fma_f32(a, 0x1.45f306p-1f, SGLCPU_VMATH_ROUNDER);
    const float k = rounded - SGLCPU_VMATH_ROUNDER;
#if SGLCPU_VMATH_HAS_FMA
    float r = sglcpu_fma_f32(k, -0x1.921fb6p+0f, a);
    r = sglcpu_fma_f32(k, 0x1.777a5cp-25f, r);
    r = sglcpu_fma_f32(k, 0x1.ee59dap-50f, r);
#else
    const float exact = sglcpu_fma_f32(k, -0x1.fb4p-12f, sglcpu_fma_f32(k, -0x1.92p+0f, a));
    const float third = k * 0x1.444p-24f;
    const float near = exact - third;
    const float r = near + sglcpu_fma_f32(k, -0x1.68c234p-39f, (exact - near) - third);
#endif
    return (sglcpu_quadrant_f32){ .r = r, .k = sglcpu_bits_f32(rounded) };
}

/*
 * Payne and Hanek for finite a >= 2^12: a = mantissa 2^e. Of the bits of 2/pi only those matter whose product with the
 * mantissa is below 4 quadrants and above 2^-62: a window of 96 bits that starts at weight 2^(1-e).
 */
static inline sglcpu_quadrant_f32 sglcpu_reduce_far_f32(float a)
{
    static const uint32_t two_over_pi[8] = {
        0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
    };
    const uint32_t bits = sglcpu_bits_f32(a);
    const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    const int32_t e = (int32_t)(bits >> 23) - 150;

    const uint32_t first = (uint32_t)(e + 30); /* the table has 32 zero bits before the binary point */
    const uint32_t word = first >> 5, shift = first & 31;
    const uint64_t upper = (uint64_t)two_over_pi[word] << 32 | two_over_pi[word + 1];
    const uint64_t middle = (uint64_t)two_over_pi[word + 1] << 32 | two_over_pi[word + 2];
    const uint64_t lower = (uint64_t)two_over_pi[word + 2] << 32 | two_over_pi[word + 3];
    const uint32_t window0 = (uint32_t)(upper << shift >> 32);
    const uint32_t window1 = (uint32_t)(middle << shift >> 32);
    const uint32_t window2 = (uint32_t)(lower << shift >> 32);

    /* The product modulo 2^96, its upper 64 bits: two bits of quadrant, then the fraction of a quadrant. */
    const uint64_t product = (mantissa * window0 << 32) + mantissa * window1 + (mantissa * window2 >> 32);
    const uint32_t k = (uint32_t)((product + (UINT64_C(1) << 61)) >> 62);
    const double fraction = (double)(int64_t)(product << 2); /* in units of 2^-64 quadrants, rounded to nearest */
    return (sglcpu_quadrant_f32){ .r = (float)(fraction * 0x1.921fb54442d18p-64), .k = k };
}

/* sin(r + k pi/2): sin or cos of r by the lowest bit of k, negated by the next one and by flip (a sign bit). */
SGLCPU_VMATH_CORE float sglcpu_sin_quadrant_f32(float r, uint32_t k, uint32_t flip)
{
    const float square = r * r;

    float s = -0x1.990d76p-13f; /* relative error 2^-27.7 */
    s = sglcpu_fma_f32(s, square, 0x1.1106aap-7f);
    s = sglcpu_fma_f32(s, square, -0x1.555544p-3f);
    s = sglcpu_fma_f32(s * square, r, r);

    float c = 0x1.99989cp-16f; /* relative error 2^-32 */
    c = sglcpu_fma_f32(c, square, -0x1.6c0b04p-10f);
    c = sglcpu_fma_f32(c, square, 0x1.555548p-5f);
    c = sglcpu_fma_f32(c, square, -0.5f);
    c = sglcpu_fma_f32(c, square, 1.0f);

    const float value = (k & 1) ? c : s;
    return sglcpu_float_f32(sglcpu_bits_f32(value) ^ (((k & 2) << 30) ^ flip));
}

/* sin(x) for |x| <= SGLCPU_VMATH_TRIG_NEAR; sin(-0) is -0, because |x| is reduced and the sign put back. */
SGLCPU_VMATH_CORE float sglcpu_sin_near_f32(float x)
{
    const sglcpu_quadrant_f32 q = sglcpu_reduce_near_f32(sglcpu_abs_f32(x));
    return sglcpu_sin_quadrant_f32(q.r, q.k, sglcpu_bits_f32(x) & SGLCPU_VMATH_SIGN);
}

/* cos(x) for |x| <= SGLCPU_VMATH_TRIG_NEAR. */
SGLCPU_VMATH_CORE float sglcpu_cos_near_f32(float x)
{
    const sglcpu_quadrant_f32 q = sglcpu_reduce_near_f32(sglcpu_abs_f32(x));
    return sglcpu_sin_quadrant_f32(q.r, q.k + 1, 0);
}

static inline float sglcpu_sin_f32_one(float x)
{
    if (sglcpu_trig_is_near_f32(x)) { return sglcpu_sin_near_f32(x); }
    if (!(sglcpu_abs_f32(x) <= 0x1.fffffep127f)) { return x - x; /* nan for inf and nan */ }
    const sglcpu_quadrant_f32 q = sglcpu_reduce_far_f32(sglcpu_abs_f32(x));
    return sglcpu_sin_quadrant_f32(q.r, q.k, sglcpu_bits_f32(x) & SGLCPU_VMATH_SIGN);
}

static inline float sglcpu_cos_f32_one(float x)
{
    if (sglcpu_trig_is_near_f32(x)) { return sglcpu_cos_near_f32(x); }
    if (!(sglcpu_abs_f32(x) <= 0x1.fffffep127f)) { return x - x; }
    const sglcpu_quadrant_f32 q = sglcpu_reduce_far_f32(sglcpu_abs_f32(x));
    return sglcpu_sin_quadrant_f32(q.r, q.k + 1, 0);
}

#endif
