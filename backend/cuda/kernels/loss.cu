/* loss.cu -- rows of logits: their losses, and in their place their gradients.
 *
 * In: a chunk of logits [rows, vocab] in f32 (f64 of f64), a multiple of 8 elements apart, targets, the gradients of the
 * losses. Out: losses log(sum of e^logit) - logit[target], and (softmax - [target]) * dloss in the dtype of the arguments,
 * over the logits of its row. A block has a row; it is read once where it fits shared memory. Odd invariants: a row's sum
 * goes over its runs of 8 by threads in turn, then by halves, whatever the device; a gradient that is narrower than its
 * logit is never written over one that is still to be read, since runs are written in their order, all threads together. */
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/kernels/ops.cuh"

SGL_DEVICE int64 loss_target(const void *targets, int64 row, const sglcuda_loss_values &v)
{
    switch (v.target_bytes) {
    case 8: return ((const int64 *)targets)[row];
    case 4: return v.target_signed ? ((const int *)targets)[row] : (int64)((const uint32 *)targets)[row];
    case 2: return v.target_signed ? ((const short *)targets)[row] : ((const uint16 *)targets)[row];
    default: return v.target_signed ? ((const signed char *)targets)[row] : ((const uint8 *)targets)[row];
    }
}

/* held: float or double. A maximum and the sum of e^(x - maximum). */
template <class R> struct loss_sum {
    R most, sum;
};
template <class R> SGL_DEVICE loss_sum<R> sgl_turned(loss_sum<R> x, int by)
{
    return { sgl_turned(x.most, by), sgl_turned(x.sum, by) };
}
template <class R> SGL_DEVICE R loss_least() { return -(R)__int_as_float(0x7f800000); }
/* Nothing is left of a sum of nothing, and -inf - -inf is no number. */
template <class R> SGL_DEVICE R loss_shrink(R sum, R from, R to) { return from == to ? sum : sum * sgl_exp(from - to); }
template <class R> SGL_DEVICE loss_sum<R> loss_join(loss_sum<R> a, loss_sum<R> b)
{
    const R most = a.most > b.most || a.most != a.most ? a.most : b.most;
    return { most, loss_shrink(a.sum, a.most, most) + loss_shrink(b.sum, b.most, most) };
}

enum { WARPS = SGLCUDA_LOSS_THREADS / 32 };

/* Of all threads of the block: by halves within warps, then warp after warp. */
template <class R, class Join> SGL_DEVICE R loss_all(R mine, R *warps, Join join)
{
    _Pragma("unroll") for (int by = 16; by > 0; by /= 2) mine = join(mine, sgl_turned(mine, by));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    R all = warps[0];
    for (int warp = 1; warp < WARPS; warp++) all = join(all, warps[warp]);
    return all;
}
/* A row of -inf alone has probability nowhere, and is shifted by nothing. */
template <class R> SGL_DEVICE R loss_shift(R most) { return most == loss_least<R>() ? (R)0 : most; }

/* A row that fits shared memory: read once, and e^(logit - maximum) left there. */
template <class L>
SGL_DEVICE loss_sum<typename L::held> loss_of_resident(const char *own, char *room, typename L::held *warps,
                                                       int64 vocab)
{
    typedef typename L::held R;
    R most = loss_least<R>(), sum = 0;
    for (int64 at = threadIdx.x * 8; at < vocab; at += SGLCUDA_LOSS_THREADS * 8) {
        R x[8];
        const int m = sgl_there(at, vocab);
        sgl_take<L, true>(own, at, m, x);
        SGL_EACH if (e < m) most = sgl_fold<SGL_MAX>(most, x[e]);
        L::store8(room, at, x);
    }
    most = loss_all(most, warps, [](R a, R b) { return sgl_fold<SGL_MAX>(a, b); });
    const R shift = loss_shift(most);
    for (int64 at = threadIdx.x * 8; at < vocab; at += SGLCUDA_LOSS_THREADS * 8) {
        R x[8];
        const int m = sgl_there(at, vocab);
        L::load8(room, at, x);
        SGL_EACH
        {
            x[e] = e < m ? sgl_exp(x[e] - shift) : (R)0;
            sum += x[e];
        }
        L::store8(room, at, x);
    }
    return { most, loss_all(sum, warps, [](R a, R b) { return a + b; }) };
}

/* A longer row: one walk, maxima and sums as they come. */
template <class L>
SGL_DEVICE loss_sum<typename L::held> loss_of_long(const char *own, loss_sum<typename L::held> *warps, int64 vocab)
{
    typedef typename L::held R;
    loss_sum<R> mine = { loss_least<R>(), 0 };
    for (int64 at = threadIdx.x * 8; at < vocab; at += SGLCUDA_LOSS_THREADS * 8) {
        R x[8], most = loss_least<R>(), sum = 0;
        const int m = sgl_there(at, vocab);
        sgl_take<L, true>(own, at, m, x);
        SGL_EACH if (e < m) most = sgl_fold<SGL_MAX>(most, x[e]);
        const R shift = loss_shift(most);
        SGL_EACH if (e < m) sum += sgl_exp(x[e] - shift);
        mine = loss_join(mine, loss_sum<R>{ most, sum });
    }
    return loss_all(mine, warps, [](loss_sum<R> a, loss_sum<R> b) { return loss_join(a, b); });
}

/* T: of the gradient, L: of the logits. */
template <class T, class L>
SGL_DEVICE void loss_row(void *logits, const void *targets, const void *dlosses, void *losses,
                         const sglcuda_loss_values &v)
{
    typedef typename L::held R;
    extern __shared__ __align__(16) char room[];
    __shared__ loss_sum<R> warps[WARPS];
    const int64 row = blockIdx.x;
    char *own = (char *)logits + row * v.pitch * (int64)sizeof(typename L::stored);
    const int64 target = loss_target(targets, v.first + row, v);
    const bool ignored = target == v.ignore, within = target >= 0 && target < v.vocab;
    if (ignored && !v.gradient) {
        if (threadIdx.x == 0) ((R *)losses)[v.first + row] = 0;
        return;
    }
    const R picked = within ? L::load(own, target) : (R)0;
    const loss_sum<R> all =
        v.resident ? loss_of_resident<L>(own, room, (R *)warps, v.vocab) : loss_of_long<L>(own, warps, v.vocab);
    const R shift = loss_shift(all.most);
    if (threadIdx.x == 0) ((R *)losses)[v.first + row] = ignored ? (R)0 : sgl_log(all.sum) + shift - picked;
    if (!v.gradient) return;
    const R dloss = ignored ? (R)0 : ((const R *)dlosses)[v.first + row];
    const R factor = dloss / all.sum;
    __syncthreads(); /* every thread has `picked` */
    for (int64 first = 0; first < v.pitch; first += SGLCUDA_LOSS_THREADS * 8) {
        const int64 at = first + threadIdx.x * 8;
        R x[8];
        typename T::held y[8];
        if (at < v.pitch) L::load8(v.resident ? (const void *)room : own, at, x);
        if (!v.resident && sizeof(typename T::stored) < sizeof(typename L::stored)) __syncthreads();
        SGL_EACH
        {
            const R power = v.resident ? x[e] : sgl_exp(x[e] - shift);
            const R gradient = power * factor - (at + e == target ? dloss : (R)0);
            y[e] = ignored || at + e >= v.vocab ? (R)0 : gradient;
        }
        if (at < v.pitch) T::store8(own, at, y);
    }
}

#define LOSS(T, L)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_LOSS_THREADS)                                                 \
        loss_rows_##T(void *logits, const void *targets, const void *dlosses, void *losses, sglcuda_loss_values v)     \
    {                                                                                                                  \
        loss_row<T, L>(logits, targets, dlosses, losses, v);                                                           \
    }
LOSS(f32, f32)
LOSS(f64, f64)
LOSS(bf16, f32)
LOSS(f16, f32)

/* Elements of one float dtype as those of another. */
template <class F, class T> SGL_DEVICE void loss_convert(const void *from, void *to, long long count)
{
    const int64 step = (int64)gridDim.x * SGLCUDA_LOSS_CONVERT_THREADS * 8;
    for (int64 at = ((int64)blockIdx.x * SGLCUDA_LOSS_CONVERT_THREADS + threadIdx.x) * 8; at < count; at += step) {
        typename F::held x[8];
        typename T::held y[8];
        const int m = sgl_there(at, count);
        sgl_take<F, true>(from, at, m, x);
        SGL_EACH y[e] = op_cast<F, T>(x[e]);
        sgl_put<T, true>(to, at, m, y);
    }
}
#define CONVERT(F, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_LOSS_CONVERT_THREADS)                                         \
        loss_convert_##F##_##T(const void *from, void *to, long long count)                                            \
    {                                                                                                                  \
        loss_convert<F, T>(from, to, count);                                                                           \
    }
CONVERT(f32, bf16)
CONVERT(f32, f16)
CONVERT(f32, f8e4m3)
CONVERT(f32, f8e5m2)
CONVERT(f8e4m3, bf16)
CONVERT(f8e5m2, bf16)
