/* loss.cu -- rows of logits: their losses, and in their place their gradients.
 *
 * In: a chunk of logits [rows, vocab] in f32 (f64 of f64), a multiple of 8 elements apart, targets, the gradients of the
 * losses. Out: losses log(sum of e^logit) - logit[target], and (softmax - [target]) * dloss in the dtype of the arguments,
 * over the logits of its row. A row is taken in parts that fit shared memory several times: by a cluster of blocks, each
 * with a part, read once; where there are no clusters, or too many parts, by one block, part after part, twice. Both add
 * in one order: a part's sum over its runs of 16 bytes by threads in turn, then by halves, then warp after warp; then part
 * after part. Odd invariant: a gradient that is narrower than its logit is never written over one that is still to be
 * read: a cluster writes when all its blocks have read; a part's gradients lie where parts before it lay, or itself.
 *
 * Tried: a block of 1,024 threads with the whole row in shared memory (201 KB of 50,304 classes): each multiprocessor does one thing at a
 * time, 1.9 TB/s on an H200. */
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

/* ---- a part in shared memory ----------------------------------------------------------------------------------------- */

SGL_DEVICE uint32 loss_shared_address(const void *at) { return (uint32)__cvta_generic_to_shared(at); }

/* 16 bytes. */
template <class R> struct alignas(16) loss_run {
    static constexpr int count = 16 / sizeof(R);
    R x[count];
};

/* Where part number `index` of a row begins, its classes, and its elements up to the next row. */
struct loss_part {
    int64 first;
    int classes, elements;
};
SGL_DEVICE loss_part loss_part_of(int index, const sglcuda_loss_values &v)
{
    const int64 first = index * v.part, classes = v.vocab - first, elements = v.pitch - first;
    return { first, (int)(classes < 0 ? 0 : sgl_least(classes, v.part)), (int)sgl_least(elements, v.part) };
}

/* The larger one, or NaN where either is. */
SGL_DEVICE float loss_larger(float a, float b)
{
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
SGL_DEVICE double loss_larger(double a, double b) { return sgl_fold<SGL_MAX>(a, b); }

/* e^x of x <= 0, in f32 off by |x| + 4 units of 2^-24: what is small beside the row's sum may be off by more. */
SGL_DEVICE float loss_power(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}
SGL_DEVICE double loss_power(double x) { return sgl_exp(x); }

template <class R> SGL_DEVICE int loss_runs(const loss_part &part)
{
    return (part.classes + loss_run<R>::count - 1) / loss_run<R>::count;
}

/* Copies the part, each thread the runs that it reads afterwards; behind the classes stands -inf. */
template <class R> SGL_DEVICE void loss_copy(const R *own, loss_run<R> *room, const loss_part &part)
{
    constexpr int count = loss_run<R>::count;
    const int runs = loss_runs<R>(part), last = runs - 1;
    for (int run = threadIdx.x; run < runs; run += SGLCUDA_LOSS_THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(loss_shared_address(room + run)),
                     "l"(own + part.first + run * count)
                     : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (last % SGLCUDA_LOSS_THREADS != threadIdx.x) return;
    for (int e = part.classes - last * count; e < count; e++) room[last].x[e] = loss_least<R>();
}

/* Reads the part, and leaves e^(logit - maximum) in the place of the logits. */
template <class R> SGL_DEVICE loss_sum<R> loss_read(const R *own, loss_run<R> *room, R *warps, const loss_part &part)
{
    const int runs = loss_runs<R>(part);
    R most = loss_least<R>(), sum = 0;
    if (runs > 0) loss_copy(own, room, part);
    _Pragma("unroll 4") for (int run = threadIdx.x; run < runs; run += SGLCUDA_LOSS_THREADS)
    {
        const loss_run<R> r = room[run];
        _Pragma("unroll") for (int e = 0; e < loss_run<R>::count; e++) most = loss_larger(most, r.x[e]);
    }
    most = loss_all(most, warps, [](R a, R b) { return loss_larger(a, b); });
    const R shift = loss_shift(most);
    _Pragma("unroll 4") for (int run = threadIdx.x; run < runs; run += SGLCUDA_LOSS_THREADS)
    {
        loss_run<R> r = room[run];
        _Pragma("unroll") for (int e = 0; e < loss_run<R>::count; e++)
        {
            r.x[e] = loss_power(r.x[e] - shift);
            sum += r.x[e];
        }
        room[run] = r;
    }
    return { most, loss_all(sum, warps, [](R a, R b) { return a + b; }) };
}

/* Gradients of a part: what is there times `factor`, less `dloss` at the target; zeros behind the classes. */
template <class T, class R>
SGL_DEVICE void loss_write(typename T::stored *own, const loss_run<R> *room, const loss_part &part, R factor, R dloss,
                           int64 target)
{
    constexpr int count = loss_run<R>::count;
    struct alignas(count * sizeof(typename T::stored)) packed {
        typename T::stored y[count];
    };
    packed *to = (packed *)(own + part.first);
    const int runs = loss_runs<R>(part);
    const int at = target >= part.first && target - part.first < part.classes ? (int)(target - part.first) : -count;
    _Pragma("unroll 4") for (int run = threadIdx.x; run < runs; run += SGLCUDA_LOSS_THREADS)
    {
        loss_run<R> r = room[run];
        packed p;
        _Pragma("unroll") for (int e = 0; e < count; e++) r.x[e] *= factor;
        if (run == at / count) {
            _Pragma("unroll") for (int e = 0; e < count; e++) r.x[e] -= run * count + e == at ? dloss : (R)0;
        }
        _Pragma("unroll") for (int e = 0; e < count; e++) p.y[e] = T::encode(r.x[e]);
        to[run] = p;
    }
    for (int run = runs + threadIdx.x; run * count < part.elements; run += SGLCUDA_LOSS_THREADS) to[run] = {};
}

template <class T> SGL_DEVICE void loss_clear(typename T::stored *own, const loss_part &part)
{
    for (int i = threadIdx.x; i < part.elements; i += SGLCUDA_LOSS_THREADS)
        own[part.first + i] = T::encode((typename T::held)0);
}

/* ---- a row ------------------------------------------------------------------------------------------------------------ */

/* Of a row's sum what a gradient takes: e^(logit - maximum of its part) times this. */
template <class R> SGL_DEVICE R loss_factor(R part_most, const loss_sum<R> &all, R dloss)
{
    const R factor = dloss / all.sum;
    return part_most == all.most ? factor : factor * loss_power(part_most - all.most);
}

template <class R>
SGL_DEVICE void loss_tell(void *losses, const loss_sum<R> &all, R picked, int64 row, const sglcuda_loss_values &v)
{
    if (threadIdx.x == 0) ((R *)losses)[v.first + row] = sgl_log(all.sum) + loss_shift(all.most) - picked;
}

/* A block has a row. T: of the gradient, R: of the logits. */
template <class T, class R>
SGL_DEVICE void loss_row(R *own, int64 row, int64 target, const void *dlosses, void *losses,
                         const sglcuda_loss_values &v)
{
    extern __shared__ __align__(16) char room[];
    __shared__ R warps[WARPS];
    const R picked = target >= 0 && target < v.vocab ? own[target] : (R)0;
    loss_sum<R> part = loss_read(own, (loss_run<R> *)room, warps, loss_part_of(0, v)), all = part;
    for (int p = 1; p < v.parts; p++) {
        part = loss_read(own, (loss_run<R> *)room, warps, loss_part_of(p, v));
        all = loss_join(all, part);
    }
    loss_tell(losses, all, picked, row, v);
    if (!v.gradient) return;
    const R dloss = ((const R *)dlosses)[v.first + row];
    for (int p = 0; p < v.parts; p++) {
        const loss_part range = loss_part_of(p, v);
        if (v.parts > 1) part = loss_read(own, (loss_run<R> *)room, warps, range);
        __syncthreads(); /* all have read the part, and `picked` */
        loss_write<T, R>((typename T::stored *)own, (const loss_run<R> *)room, range,
                         loss_factor(part.most, all, dloss), dloss, target);
    }
}

/* Ignored rows have no loss and no gradient. */
template <class T, class R>
SGL_DEVICE bool loss_ignores(R *own, int64 row, int64 target, void *losses, const sglcuda_loss_values &v, int part,
                             int parts)
{
    if (target != v.ignore) return false;
    if (threadIdx.x == 0 && part == 0) ((R *)losses)[v.first + row] = 0;
    for (; v.gradient && part < v.parts; part += parts) loss_clear<T>((typename T::stored *)own, loss_part_of(part, v));
    return true;
}

#define LOSS(T, R)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_LOSS_THREADS, SGLCUDA_LOSS_BLOCKS)                            \
        loss_rows_##T(R *logits, const void *targets, const void *dlosses, void *losses, sglcuda_loss_values v)        \
    {                                                                                                                  \
        const int64 row = blockIdx.x, target = loss_target(targets, v.first + row, v);                                 \
        R *own = logits + row * v.pitch;                                                                               \
        if (!loss_ignores<T>(own, row, target, losses, v, 0, 1)) loss_row<T>(own, row, target, dlosses, losses, v);    \
    }
LOSS(f32, float)
LOSS(f64, double)
LOSS(bf16, float)
LOSS(f16, float)

/* ---- a row of a cluster's blocks --------------------------------------------------------------------------------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOSS_CLUSTER_DIMS(BLOCKS) __cluster_dims__(BLOCKS, 1, 1)

SGL_DEVICE void loss_cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
SGL_DEVICE void loss_cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
/* Into the same place of another block of the cluster. */
SGL_DEVICE void loss_put_there(float *here, float x, int block)
{
    uint32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(loss_shared_address(here)), "r"(block));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
}

/* Block number `part` of its cluster has that part of the row. */
template <class T, int BLOCKS>
SGL_DEVICE void loss_row_of_cluster(float *own, int64 row, int64 target, int part, const void *dlosses, void *losses,
                                    const sglcuda_loss_values &v)
{
    extern __shared__ __align__(16) char room[];
    __shared__ float warps[WARPS];
    __shared__ loss_sum<float> sums[BLOCKS];
    loss_cluster_arrive(); /* to say that this block runs, and has a place for sums */
    const float picked = part == 0 && target >= 0 && target < v.vocab ? own[target] : 0.0f;
    const loss_part range = loss_part_of(part, v);
    const loss_sum<float> mine = loss_read(own, (loss_run<float> *)room, warps, range);
    loss_cluster_wait();
    if (threadIdx.x < BLOCKS) {
        loss_put_there(&sums[part].most, mine.most, (int)threadIdx.x);
        loss_put_there(&sums[part].sum, mine.sum, (int)threadIdx.x);
    }
    loss_cluster_arrive();
    loss_cluster_wait(); /* all blocks have read their logits, and all sums are here */
    loss_sum<float> all = sums[0];
    for (int p = 1; p < BLOCKS; p++) all = loss_join(all, sums[p]);
    if (part == 0) loss_tell(losses, all, picked, row, v);
    if (!v.gradient) return;
    const float dloss = ((const float *)dlosses)[v.first + row];
    loss_write<T, float>((typename T::stored *)own, (const loss_run<float> *)room, range,
                         loss_factor(mine.most, all, dloss), dloss, target);
}

#define LOSS_CLUSTER_BODY(T, BLOCKS)                                                                                   \
    const int64 row = blockIdx.x / BLOCKS, target = loss_target(targets, v.first + row, v);                            \
    const int part = (int)(blockIdx.x % BLOCKS);                                                                       \
    float *own = logits + row * v.pitch;                                                                               \
    if (!loss_ignores<T>(own, row, target, losses, v, part, BLOCKS))                                                   \
        loss_row_of_cluster<T, BLOCKS>(own, row, target, part, dlosses, losses, v);
#else
#define LOSS_CLUSTER_DIMS(BLOCKS)
#define LOSS_CLUSTER_BODY(T, BLOCKS) /* never launched: there are no clusters */
#endif

#define LOSS_CLUSTER(T, BLOCKS)                                                                                        \
    extern "C" __global__ void LOSS_CLUSTER_DIMS(BLOCKS) __launch_bounds__(SGLCUDA_LOSS_THREADS, SGLCUDA_LOSS_BLOCKS)  \
        loss_cluster_##BLOCKS##_##T(float *logits, const void *targets, const void *dlosses, void *losses,             \
                                    sglcuda_loss_values v)                                                             \
    {                                                                                                                  \
        LOSS_CLUSTER_BODY(T, BLOCKS)                                                                                   \
    }
LOSS_CLUSTER(f32, 2)
LOSS_CLUSTER(f32, 4)
LOSS_CLUSTER(f32, 8)
LOSS_CLUSTER(bf16, 2)
LOSS_CLUSTER(bf16, 4)
LOSS_CLUSTER(bf16, 8)
LOSS_CLUSTER(f16, 2)
LOSS_CLUSTER(f16, 4)
LOSS_CLUSTER(f16, 8)

/* ---- conversions ------------------------------------------------------------------------------------------------------- */

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
