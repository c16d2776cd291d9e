/* dtypes.cuh -- the dtypes on the device: how an element is stored, and how it is held while something is computed with it.
 *
 * Part of every kernel, those that are compiled with the module and those that NVRTC compiles; so it includes nothing. Each
 * dtype is a struct: `stored`, the type that lies in memory; `held`, the type in registers (narrow floats as f32, i4 as i8,
 * bool as u8); load and store of element i of an array; load8 and store8 of elements i .. i + 7 where i is a multiple of 8 and the
 * array is aligned to 16 bytes; settle, which rounds a held value to the dtype. What is beyond the largest number of a narrow float becomes infinity,
 * in f8e4m3, which has none, NaN (OCP 8-bit floating point, revision 1.0).
 *
 * Odd invariant: stores of i4 are atomic on their word, since two elements share a byte and any two threads may own them. */
#ifndef SGLCUDA_DTYPES_CUH
#define SGLCUDA_DTYPES_CUH

typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned int uint32;
typedef unsigned short uint16;
typedef unsigned char uint8;

#define SGL_DEVICE static __device__ __forceinline__

struct alignas(16) sgl_16_bytes {
    uint32 words[4];
};
struct alignas(8) sgl_8_bytes {
    uint32 words[2];
};

/* ---- rounding to narrow floats ---- */

/* Two at once, the first in the low half: conversions of one number go through the unit of the transcendental functions, at a
 * quarter of the rate. */
SGL_DEVICE uint32 sgl_bf16_pair(float first, float second)
{
    uint32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
SGL_DEVICE float sgl_bf16_first(uint32 pair) { return __uint_as_float(pair << 16); }
SGL_DEVICE float sgl_bf16_second(uint32 pair) { return __uint_as_float(pair & 0xffff0000u); }
/* As the second of a pair whose first is zero the rounded number stands where it stands in a float. */
SGL_DEVICE float sgl_bf16_round(float x) { return __uint_as_float(sgl_bf16_pair(0.0f, x)); }
SGL_DEVICE uint32 sgl_f16_pair(float first, float second)
{
    uint32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
SGL_DEVICE float sgl_f16_first(uint32 pair)
{
    float x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(x) : "r"(pair));
    return x;
}
SGL_DEVICE float sgl_f16_second(uint32 pair)
{
    float x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(x) : "r"(pair));
    return x;
}
SGL_DEVICE float sgl_f16_round(float x) { return sgl_f16_first(sgl_f16_pair(x, 0.0f)); }

/* Of a float of `digits` digits behind the point and an exponent of that bias, in 8 bits. above: the code after the largest number;
 * a sum with the number whose last digit is worth the smallest one rounds what is below normal. */
template <int digits, int bias, uint32 above, uint32 nan> SGL_DEVICE uint8 sgl_f8_code(float x)
{
    const uint32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    const int drop = 23 - digits;
    const uint32 even = magnitude >> drop & 1u;
    uint32 code = ((magnitude + even + (1u << (drop - 1)) - 1u) >> drop) - ((uint32)(127 - bias) << digits);
    const uint32 rounder = (uint32)(127 + 23 + 1 - digits - bias) << 23;
    if (magnitude < (uint32)(128 - bias) << 23)
        code = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(rounder))) - rounder;
    if (code > above) code = above;
    return (uint8)(magnitude > 0x7f800000u || code == nan ? nan : code | sign);
}
template <int digits, int bias, uint32 above, uint32 infinity> SGL_DEVICE float sgl_f8_value(uint8 stored)
{
    const uint32 code = stored & 0x7fu;
    const float scale = __uint_as_float((uint32)(254 - bias) << 23);
    uint32 bits = __float_as_uint(__fmul_rn(__uint_as_float(code << (23 - digits)), scale));
    if (code >= above) bits = code == infinity ? 0x7f800000u : 0x7fc00000u;
    return __uint_as_float(bits | (uint32)(stored & 0x80u) << 24);
}

/* The float32 beside x from which rounding to fewer digits goes as it would from x: of the two neighbours the odd one (Boldo,
 * Melquiond 2008). */
SGL_DEVICE float sgl_odd_f32(double x)
{
    const float near = __double2float_rn(x);
    const double magnitude = fabs(x), found = fabs((double)near);
    if (found == magnitude || x != x) return near;
    const uint32 bits = __float_as_uint(near);
    return __uint_as_float((found > magnitude ? bits - 1u : bits) | 1u);
}

/* ---- eight elements at once ---- */

template <class S> SGL_DEVICE void sgl_read8(const S *from, S (&to)[8])
{
    if constexpr (sizeof(S) == 1)
        *(sgl_8_bytes *)to = *(const sgl_8_bytes *)from;
    else
        for (int part = 0; part < (int)sizeof(S) / 2; part++)
            ((sgl_16_bytes *)to)[part] = ((const sgl_16_bytes *)from)[part];
}
template <class S> SGL_DEVICE void sgl_write8(S *to, const S (&from)[8])
{
    if constexpr (sizeof(S) == 1)
        *(sgl_8_bytes *)to = *(const sgl_8_bytes *)from;
    else
        for (int part = 0; part < (int)sizeof(S) / 2; part++)
            ((sgl_16_bytes *)to)[part] = ((const sgl_16_bytes *)from)[part];
}

#define SGL_DTYPE(name, STORED, HELD, DECODE, ENCODE)                                                                  \
    struct name {                                                                                                      \
        typedef STORED stored;                                                                                         \
        typedef HELD held;                                                                                             \
        SGL_DEVICE held decode(stored x) { return DECODE; }                                                            \
        SGL_DEVICE stored encode(held x) { return ENCODE; }                                                            \
        SGL_DEVICE held settle(held x) { return decode(encode(x)); }                                                   \
        SGL_DEVICE held load(const void *at, int64 i) { return decode(((const stored *)at)[i]); }                      \
        SGL_DEVICE void store(void *at, int64 i, held x) { ((stored *)at)[i] = encode(x); }                            \
        SGL_DEVICE void load8(const void *at, int64 i, held (&x)[8])                                                   \
        {                                                                                                              \
            alignas(16) stored s[8];                                                                                   \
            sgl_read8((const stored *)at + i, s);                                                                      \
            _Pragma("unroll") for (int e = 0; e < 8; e++) x[e] = decode(s[e]);                                         \
        }                                                                                                              \
        SGL_DEVICE void store8(void *at, int64 i, const held (&x)[8])                                                  \
        {                                                                                                              \
            alignas(16) stored s[8];                                                                                   \
            _Pragma("unroll") for (int e = 0; e < 8; e++) s[e] = encode(x[e]);                                         \
            sgl_write8((stored *)at + i, s);                                                                           \
        }                                                                                                              \
    };

/* Floats of 16 bits: two share a word. */
#define SGL_PAIRED(name)                                                                                               \
    struct name {                                                                                                      \
        typedef uint16 stored;                                                                                         \
        typedef float held;                                                                                            \
        SGL_DEVICE held decode(stored x) { return sgl_##name##_first(x); }                                             \
        SGL_DEVICE stored encode(held x) { return (stored)sgl_##name##_pair(x, 0.0f); }                                \
        SGL_DEVICE held settle(held x) { return sgl_##name##_round(x); }                                               \
        SGL_DEVICE held load(const void *at, int64 i) { return decode(((const stored *)at)[i]); }                      \
        SGL_DEVICE void store(void *at, int64 i, held x) { ((stored *)at)[i] = encode(x); }                            \
        SGL_DEVICE void load8(const void *at, int64 i, held (&x)[8])                                                   \
        {                                                                                                              \
            const sgl_16_bytes run = *(const sgl_16_bytes *)((const stored *)at + i);                                  \
            _Pragma("unroll") for (int e = 0; e < 4; e++)                                                              \
            {                                                                                                          \
                x[2 * e] = sgl_##name##_first(run.words[e]);                                                           \
                x[2 * e + 1] = sgl_##name##_second(run.words[e]);                                                      \
            }                                                                                                          \
        }                                                                                                              \
        SGL_DEVICE void store8(void *at, int64 i, const held (&x)[8])                                                  \
        {                                                                                                              \
            sgl_16_bytes run;                                                                                          \
            _Pragma("unroll") for (int e = 0; e < 4; e++) run.words[e] = sgl_##name##_pair(x[2 * e], x[2 * e + 1]);    \
            *(sgl_16_bytes *)((stored *)at + i) = run;                                                                 \
        }                                                                                                              \
    };

SGL_DTYPE(f64, double, double, x, x)
SGL_DTYPE(f32, float, float, x, x)
SGL_PAIRED(bf16)
SGL_PAIRED(f16)
SGL_DTYPE(f8e4m3, uint8, float, (sgl_f8_value<3, 7, 0x7fu, 0x100u>(x)), (sgl_f8_code<3, 7, 0x7fu, 0x7fu>(x)))
SGL_DTYPE(f8e5m2, uint8, float, (sgl_f8_value<2, 15, 0x7cu, 0x7cu>(x)), (sgl_f8_code<2, 15, 0x7cu, 0x7eu>(x)))
SGL_DTYPE(i64, int64, int64, x, x)
SGL_DTYPE(i32, int, int, x, x)
SGL_DTYPE(i16, short, short, x, x)
SGL_DTYPE(i8, signed char, signed char, x, x)
SGL_DTYPE(u8, uint8, uint8, x, x)
SGL_DTYPE(u16, uint16, uint16, x, x)
SGL_DTYPE(u32, uint32, uint32, x, x)
SGL_DTYPE(boolean, uint8, uint8, x, x)

/* Two elements a byte, the first in the low half. */
struct i4 {
    typedef uint8 stored;
    typedef signed char held;
    SGL_DEVICE held decode_half(uint32 bits) { return (held)((int)((bits & 15u) ^ 8u) - 8); }
    SGL_DEVICE held settle(held x) { return decode_half((uint32)x); }
    SGL_DEVICE held load(const void *at, int64 i)
    {
        return decode_half((uint32)((const uint8 *)at)[i >> 1] >> ((uint32)i & 1u) * 4);
    }
    SGL_DEVICE void store(void *at, int64 i, held x)
    {
        const uint64 address = (uint64)at + (uint64)(i >> 1);
        uint32 *word = (uint32 *)(address & ~(uint64)3);
        const uint32 shift = (uint32)(address & 3) * 8 + ((uint32)i & 1u) * 4;
        uint32 found = *(volatile uint32 *)word, seen;
        do {
            seen = found;
            found = atomicCAS(word, seen, (seen & ~(15u << shift)) | ((uint32)x & 15u) << shift);
        } while (found != seen);
    }
    SGL_DEVICE void load8(const void *at, int64 i, held (&x)[8])
    {
        const uint32 word = ((const uint32 *)at)[i >> 3];
        _Pragma("unroll") for (int e = 0; e < 8; e++) x[e] = decode_half(word >> 4 * e);
    }
    SGL_DEVICE void store8(void *at, int64 i, const held (&x)[8])
    {
        uint32 word = 0;
        _Pragma("unroll") for (int e = 0; e < 8; e++) word |= ((uint32)x[e] & 15u) << 4 * e;
        ((uint32 *)at)[i >> 3] = word;
    }
};

#endif
