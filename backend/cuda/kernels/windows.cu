/* windows.cu -- windows of channels-last tensors, and windows_add, their transpose.
 *
 * windows takes for each of its elements a run of channels, or the value; windows_add takes for each row what each
 * window over it has for it, in the order of the windows. Odd invariant: windows over a row come in their order when
 * their elements come in the opposite one. */
#include "index.cuh"
#include "windows.h"

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* The row of x that element k of window o (through all samples) looks at; -1: padding. */
SGL_DEVICE int64 window_row(const sglcuda_windows &w, int64 o, int64 k)
{
    int64 row = 0, weight = 1, place, from, element;
    const int64 sample = sgl_divide(o, w.places, &place);
    for (int d = w.spatial - 1; d >= 0; d--) {
        place = sgl_divide(place, w.count[d], &from);
        k = sgl_divide(k, w.size[d], &element);
        const int64 at = from * w.stride[d] + element * w.dilation[d] - w.low[d];
        if (at < 0 || at >= w.extent[d]) return -1;
        row += at * weight;
        weight *= w.extent[d];
    }
    return sample * w.rows + row;
}

struct windows_source {
    const sglcuda_windows &v;
    SGL_DEVICE_MEMBER int64 at(int64 i) const
    {
        int64 channel = 0, element = i, k;
        if (v.channels > 1) element = sgl_divide(i, v.channels, &channel);
        const int64 o = sgl_divide(element, v.window, &k), row = window_row(v, o, k);
        return row < 0 ? -1 : row * v.channels + channel;
    }
};

SGL_FILL_KERNELS(windows, (const char *x, char *out, const __grid_constant__ sglcuda_windows v), x, out, v.total,
                 v.value, windows_source{ v })

/* ---- windows_add ------------------------------------------------------------------------------------------------- */

template <class T> struct windows_sum {
    typedef uint64 type;
};
template <> struct windows_sum<float> {
    typedef double type;
};
template <> struct windows_sum<double> {
    typedef double type;
};

/* The window, of its sample's, whose element k looks at the place; -1: none. at: along each dim, low already added. */
SGL_DEVICE int64 window_over(const sglcuda_windows &w, const int64 (&at)[SGLCUDA_SPATIAL], int64 k)
{
    int64 o = 0, weight = 1, element, rest;
#pragma unroll
    for (int d = SGLCUDA_SPATIAL - 1; d >= 0; d--) {
        if (d >= w.spatial) continue;
        k = sgl_divide(k, w.size[d], &element);
        const int64 from = at[d] - element * w.dilation[d];
        if (from < 0) return -1;
        const int64 place = sgl_divide(from, w.stride[d], &rest);
        if (rest != 0 || place >= w.count[d]) return -1;
        o += place * weight;
        weight *= w.count[d];
    }
    return o;
}

template <class D> SGL_DEVICE typename D::held windows_rounded(typename windows_sum<typename D::held>::type x)
{
    if constexpr (sizeof(typename D::stored) < 4 && (typename D::held)0.5f != (typename D::held)0)
        return sgl_odd_f32(x);
    else
        return (typename D::held)x;
}

template <class D, int width> SGL_DEVICE void windows_add(const void *y, void *out, const sglcuda_windows &v)
{
    typename windows_sum<typename D::held>::type sum[width] = {};
    typename D::held x[width];
    int64 vector, place, at[SGLCUDA_SPATIAL];
    const int64 row = sgl_divide(sgl_thread(), v.vectors, &vector), first = row * v.channels + vector * width;
    if (first >= v.total) return;
    const int64 sample = sgl_divide(row, v.rows, &place);
#pragma unroll
    for (int d = SGLCUDA_SPATIAL - 1; d >= 0; d--) {
        if (d >= v.spatial) continue;
        place = sgl_divide(place, v.extent[d], &at[d]);
        at[d] += v.low[d];
    }
    for (int64 k = v.window - 1; k >= 0; k--) {
        const int64 o = window_over(v, at, k);
        if (o < 0) continue;
        const int64 from = ((sample * v.places + o) * v.window + k) * v.channels + vector * width;
        if constexpr (width == 1)
            x[0] = D::load(y, from);
        else
            D::load8(y, from, x);
#pragma unroll
        for (int e = 0; e < width; e++) sum[e] += (typename windows_sum<typename D::held>::type)x[e];
    }
#pragma unroll
    for (int e = 0; e < width; e++) x[e] = windows_rounded<D>(sum[e]);
    if constexpr (width == 1)
        sgl_store<D>(out, first, v.total, x[0]);
    else
        D::store8(out, first, x);
}

#define WINDOWS_ADD_KERNEL(NAME, D, WIDTH)                                                                             \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_WINDOWS_THREADS)                                              \
        NAME(const void *y, void *out, const __grid_constant__ sglcuda_windows v)                                      \
    {                                                                                                                  \
        windows_add<D, WIDTH>(y, out, v);                                                                              \
    }
#define WINDOWS_ADD_KERNELS(D)                                                                                         \
    WINDOWS_ADD_KERNEL(windows_add_##D, D, 1)                                                                          \
    WINDOWS_ADD_KERNEL(windows_add_wide_##D, D, SGLCUDA_WINDOWS_VECTOR)
WINDOWS_ADD_KERNELS(f64)
WINDOWS_ADD_KERNELS(f32)
WINDOWS_ADD_KERNELS(bf16)
WINDOWS_ADD_KERNELS(f16)
WINDOWS_ADD_KERNELS(f8e4m3)
WINDOWS_ADD_KERNELS(f8e5m2)
WINDOWS_ADD_KERNELS(i64)
WINDOWS_ADD_KERNELS(i32)
WINDOWS_ADD_KERNELS(i16)
WINDOWS_ADD_KERNELS(i8)
WINDOWS_ADD_KERNELS(u8)
WINDOWS_ADD_KERNELS(u16)
WINDOWS_ADD_KERNELS(u32)
WINDOWS_ADD_KERNELS(i4)
