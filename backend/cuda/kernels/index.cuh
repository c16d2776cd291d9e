/* index.cuh -- what the kernels that move elements share: numbers of threads, division, indices of any integer dtype,
 * and results whose every element comes from somewhere or is one value.
 *
 * A source says for each place of a result which place of its argument goes there, or -1: the value. Places count
 * units, which are as many bytes as everything is a multiple of, 16 at most; of i4 that lies in no whole bytes they
 * count elements. Odd invariant: a byte of two halves has one owner, and the half beyond the last element is 0. */
#ifndef SGLCUDA_INDEX_CUH
#define SGLCUDA_INDEX_CUH

#include "dtypes.cuh"
#include "index.h"

#define SGL_DEVICE_MEMBER __device__ __forceinline__

SGL_DEVICE int64 sgl_thread() { return (int64)blockIdx.x * blockDim.x + threadIdx.x; }

/* a / b and the rest, of numbers that are not negative: in 32 bits where that is enough, which is several times as
 * fast. */
SGL_DEVICE int64 sgl_divide(int64 a, int64 b, int64 *rest)
{
    if ((((uint64)a | (uint64)b) >> 32) == 0) {
        const uint32 quotient = (uint32)a / (uint32)b;
        *rest = (uint32)a - quotient * (uint32)b;
        return quotient;
    }
    const int64 quotient = a / b;
    *rest = a - quotient * b;
    return quotient;
}

/* Element i of an array of integers; kind: SGLCUDA_INDEX of index.h. */
SGL_DEVICE int64 sgl_index(const void *indices, int kind, int64 i)
{
    switch (kind) {
    case SGLCUDA_INDEX_I64: return i64::load(indices, i);
    case SGLCUDA_INDEX_I32: return i32::load(indices, i);
    case SGLCUDA_INDEX_I16: return i16::load(indices, i);
    case SGLCUDA_INDEX_I8: return i8::load(indices, i);
    case SGLCUDA_INDEX_U32: return u32::load(indices, i);
    case SGLCUDA_INDEX_U16: return u16::load(indices, i);
    case SGLCUDA_INDEX_I4: return i4::load(indices, i);
    default: return u8::load(indices, i);
    }
}

template <class D> struct sgl_is_half {
    static const bool yes = false;
};
template <> struct sgl_is_half<i4> {
    static const bool yes = true;
};
/* Element i of an array of so many elements; behind the last one of i4 the other half of its byte. */
template <class D> SGL_DEVICE void sgl_store(void *at, int64 i, int64 elements, typename D::held x)
{
    D::store(at, i, x);
    if (sgl_is_half<D>::yes && i + 1 == elements && i % 2 == 0) D::store(at, i + 1, 0);
}

/* A kernel's values are aligned to 8 bytes, which a unit of 16 may not count on. */
template <class U> SGL_DEVICE U sgl_value_unit(const sglcuda_fill_value &value)
{
    if constexpr (sizeof(U) == 16)
        return U{ { value.words[0], value.words[1], value.words[2], value.words[3] } };
    else if constexpr (sizeof(U) == 8)
        return (U)value.words[0] | (U)value.words[1] << 32;
    else
        return (U)value.words[0];
}

/* Each block fills SGLCUDA_FILL_UNITS units of the result, each thread some that lie a block apart: all loads go before
 * all stores, so that several are on their way at once. */
template <class U, class Source>
SGL_DEVICE void sgl_fill(const void *from, void *to, int64 total, const sglcuda_fill_value &value, const Source &source)
{
    const int per_thread = SGLCUDA_FILL_UNITS / SGLCUDA_FILL_THREADS;
    const int64 first = (int64)blockIdx.x * SGLCUDA_FILL_UNITS + threadIdx.x;
    U held[per_thread];
#pragma unroll
    for (int e = 0; e < per_thread; e++) {
        const int64 at = first + e * SGLCUDA_FILL_THREADS;
        const int64 place = at < total ? source.at(at) : -1;
        held[e] = sgl_value_unit<U>(value);
        if (place >= 0) held[e] = ((const U *)from)[place];
    }
#pragma unroll
    for (int e = 0; e < per_thread; e++) {
        const int64 at = first + e * SGLCUDA_FILL_THREADS;
        if (at < total) ((U *)to)[at] = held[e];
    }
}

/* total: elements; a thread for each byte. */
template <class Source>
SGL_DEVICE void sgl_fill_halves(const void *from, void *to, int64 total, const sglcuda_fill_value &value,
                                const Source &source)
{
    const int64 byte = sgl_thread();
    if (byte >= (total + 1) / 2) return;
    uint32 halves = 0;
    for (int e = 0; e < 2 && 2 * byte + e < total; e++) {
        const int64 place = source.at(2 * byte + e);
        const int half = place >= 0 ? i4::load(from, place) : (int)value.words[0];
        halves |= ((uint32)half & 15u) << 4 * e;
    }
    ((uint8 *)to)[byte] = (uint8)halves;
}

/* A kernel for each size of units: NAME_128 .. NAME_8, NAME_4; where they are elements, the largest has 64 bits.
 * PARAMETERS: of the kernel; the rest is made of these. */
#define SGL_FILL_KERNELS(NAME, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                             \
    SGL_FILL_KERNEL(NAME##_128, sgl_16_bytes, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                              \
    SGL_FILL_ELEMENTS(NAME, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)
#define SGL_FILL_ELEMENTS(NAME, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                            \
    SGL_FILL_KERNEL(NAME##_64, uint64, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                     \
    SGL_FILL_KERNEL(NAME##_32, uint32, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                     \
    SGL_FILL_KERNEL(NAME##_16, uint16, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                     \
    SGL_FILL_KERNEL(NAME##_8, uint8, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                       \
    extern "C" __global__ void NAME##_4 PARAMETERS { sgl_fill_halves(FROM, TO, TOTAL, VALUE, SOURCE); }
#define SGL_FILL_KERNEL(NAME, U, PARAMETERS, FROM, TO, TOTAL, VALUE, SOURCE)                                           \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS) NAME PARAMETERS                                 \
    {                                                                                                                  \
        sgl_fill<U>(FROM, TO, TOTAL, VALUE, SOURCE);                                                                   \
    }

#endif
