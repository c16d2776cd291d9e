/* narrow.h -- floats narrower than 32 bits, one at a time: their code from a float32, and back; rounding in place.
 *
 * In: float32. Out: the code of the nearest number of the dtype, ties to the even one; what is beyond the largest becomes
 * infinity, in f8e4m3, which has none, NaN (OCP 8-bit floating point, revision 1.0). Straight-line integer code that
 * vectorises, so every instruction set gives the same bits. Odd invariant: a NaN of arithmetic has one code, without sign,
 * since machines differ in the signs of theirs. */
#ifndef SGLCPU_NARROW_H
#define SGLCPU_NARROW_H

#include "backend/cpu/vmath_f32.h"

/* suffix, dtype, type of its code, digits behind the point, bias of the exponent, code above the largest number, code of
 * infinity (NaN: none), code of NaN */
#define SGLCPU_NARROWS(X)                                                                                              \
    X(bf16, SGL_BF16, uint16_t, 7, 127, 0x7f80, 0x7f80, 0x7fc0)                                                        \
    X(f16, SGL_F16, uint16_t, 10, 15, 0x7c00, 0x7c00, 0x7e00)                                                          \
    X(f8e4m3, SGL_F8E4M3, uint8_t, 3, 7, 0x7f, 0x100, 0x7f)                                                            \
    X(f8e5m2, SGL_F8E5M2, uint8_t, 2, 15, 0x7c, 0x7c, 0x7e)

/* The smallest normal number, and the number whose last digit is worth the smallest one of all: a sum with it rounds what is
 * below normal. bf16 has float32's exponents and needs neither. */
#define SGLCPU_NARROW_NORMAL(bias) ((uint32_t)(128 - (bias)) << 23)
#define SGLCPU_NARROW_ROUNDER(digits, bias) ((uint32_t)(127 + 23 + 1 - (digits) - (bias)) << 23)

/* The code of |x|, x no NaN. */
SGLCPU_VMATH_CORE uint32_t sglcpu_narrow_magnitude(uint32_t magnitude, int digits, int bias, uint32_t above)
{
    const int drop = 23 - digits;
    const uint32_t even = magnitude >> drop & 1u;
    uint32_t code = ((magnitude + even + (1u << (drop - 1)) - 1u) >> drop) - ((uint32_t)(127 - bias) << digits);
    if (bias != 127) {
        const uint32_t rounder = SGLCPU_NARROW_ROUNDER(digits, bias);
        const uint32_t small = sglcpu_bits_f32(sglcpu_float_f32(magnitude) + sglcpu_float_f32(rounder)) - rounder;
        code = magnitude < SGLCPU_NARROW_NORMAL(bias) ? small : code;
    }
    return code > above ? above : code;
}

/* The float32 of a magnitude's code. */
SGLCPU_VMATH_CORE uint32_t sglcpu_widen_magnitude(uint32_t code, int digits, int bias, uint32_t above,
                                                  uint32_t infinity)
{
    if (bias == 127) return code << (23 - digits);
    const float scale = sglcpu_float_f32((uint32_t)(254 - bias) << 23);
    const uint32_t bits = sglcpu_bits_f32(sglcpu_float_f32(code << (23 - digits)) * scale);
    return code < above ? bits : code == infinity ? 0x7f800000u : 0x7fc00000u;
}

#define SGLCPU_NARROW_CORES(suffix, dtype, T, digits, bias, above, infinity, nan)                                      \
    SGLCPU_VMATH_CORE T sglcpu_narrow_##suffix(float x)                                                                \
    {                                                                                                                  \
        const uint32_t bits = sglcpu_bits_f32(x), magnitude = bits & 0x7fffffffu;                                      \
        const uint32_t sign = bits >> (32 - 8 * (int)sizeof(T)) & 1u << (8 * (int)sizeof(T) - 1);                      \
        const uint32_t code = sglcpu_narrow_magnitude(magnitude, digits, bias, above) | sign;                          \
        return (T)(magnitude > 0x7f800000u || (code & ~sign) == (nan) ? (nan) : code);                                 \
    }                                                                                                                  \
    SGLCPU_VMATH_CORE float sglcpu_widen_##suffix(T code)                                                              \
    {                                                                                                                  \
        const uint32_t sign_bit = 1u << (8 * (int)sizeof(T) - 1);                                                      \
        const uint32_t bits = sglcpu_widen_magnitude(code & (sign_bit - 1), digits, bias, above, infinity);            \
        return sglcpu_float_f32(bits | (code & sign_bit) << (32 - 8 * (int)sizeof(T)));                                \
    }                                                                                                                  \
    SGLCPU_VMATH_CORE float sglcpu_round_##suffix(float x)                                                             \
    {                                                                                                                  \
        const uint32_t bits = sglcpu_bits_f32(x), magnitude = bits & 0x7fffffffu, sign = bits & 0x80000000u;           \
        const uint32_t even = magnitude >> (23 - digits) & 1u, drop = (1u << (23 - digits)) - 1u;                      \
        uint32_t rounded = (magnitude + even + (drop >> 1)) & ~drop;                                                   \
        if (bias != 127) {                                                                                             \
            const float rounder = sglcpu_float_f32(SGLCPU_NARROW_ROUNDER(digits, bias));                               \
            const uint32_t small = sglcpu_bits_f32(sglcpu_float_f32(magnitude) + rounder - rounder);                   \
            const uint32_t most = sglcpu_widen_magnitude((above)-1, digits, bias, above, infinity);                    \
            rounded = magnitude < SGLCPU_NARROW_NORMAL(bias) ? small : rounded;                                        \
            rounded = rounded > most ? ((infinity) == (above) ? 0x7f800000u : 0x7fc00000u) : rounded;                  \
        }                                                                                                              \
        return sglcpu_float_f32(magnitude > 0x7f800000u || rounded == 0x7fc00000u ? 0x7fc00000u : rounded | sign);     \
    }
SGLCPU_NARROWS(SGLCPU_NARROW_CORES)

/* The float32 beside x from which rounding to fewer digits goes as it would from x: of the two neighbours the odd one
 * (Boldo, Melquiond 2008). */
SGLCPU_VMATH_CORE float sglcpu_odd_f32(double x)
{
    const float near = (float)x;
    const uint32_t bits = sglcpu_bits_f32(near);
    const double magnitude = x < 0 ? -x : x, found = near < 0 ? -(double)near : (double)near;
    const uint32_t below = found > magnitude ? bits - 1u : bits;
    return found == magnitude || x != x ? near : sglcpu_float_f32(below | 1u);
}

#endif
