/* exchange.cu -- what ranks sent, reduced in the order of the group; marks of where the device is; numbers of a rank.
 *
 * A reduction is ((r0 + r1) + r2) + ... in the order of places, in f32 for narrow floats, rounded once, as over any other
 * transport (collectives/reduce.c): all ranks, runs and cuts into slices give the same bits. Integers wrap; the greatest and the
 * least of anything and NaN is NaN. Odd invariant: an element is read by the thread that writes it, so `to` may be `own`. */
#include "dtypes.cuh"
#include "exchange.h"

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* What a dtype is added up in: integers as unsigned ones, which wrap. */
template <class H> struct exchange_sum_type {
    typedef uint32 type;
};
template <> struct exchange_sum_type<float> {
    typedef float type;
};
template <> struct exchange_sum_type<double> {
    typedef double type;
};
template <> struct exchange_sum_type<int64> {
    typedef uint64 type;
};

struct exchange_sum {
    template <class H> SGL_DEVICE H join(H a, H b)
    {
        typedef typename exchange_sum_type<H>::type A;
        return (H)((A)a + (A)b);
    }
};
struct exchange_max {
    template <class H> SGL_DEVICE H join(H a, H b) { return b > a || b != b ? b : a; }
};
struct exchange_min {
    template <class H> SGL_DEVICE H join(H a, H b) { return b < a || b != b ? b : a; }
};

/* Of place r: this rank's own, or a row. */
SGL_DEVICE const unsigned char *exchange_source(const sglcuda_exchange_sum &v, int r)
{
    if (r == v.place) return v.own;
    return v.others + (int64)(r < v.place ? r : r - 1) * v.pitch;
}

template <class T, class R> SGL_DEVICE void exchange_reduce(const sglcuda_exchange_sum &v)
{
    const int64 vector = SGLCUDA_EXCHANGE_VECTOR, thread = (int64)blockIdx.x * SGLCUDA_EXCHANGE_THREADS + threadIdx.x;
    const int64 step = (int64)gridDim.x * SGLCUDA_EXCHANGE_THREADS, wide = v.wide ? v.count / vector : 0;
    for (int64 i = thread; i < wide; i += step) {
        typename T::held sum[SGLCUDA_EXCHANGE_VECTOR], next[SGLCUDA_EXCHANGE_VECTOR];
        T::load8(exchange_source(v, 0), i * vector, sum);
        for (int r = 1; r < v.ranks; r++) {
            T::load8(exchange_source(v, r), i * vector, next);
#pragma unroll
            for (int e = 0; e < SGLCUDA_EXCHANGE_VECTOR; e++) sum[e] = R::join(sum[e], next[e]);
        }
        T::store8(v.to, i * vector, sum);
    }
    for (int64 i = wide * vector + thread; i < v.count; i += step) {
        typename T::held sum = T::load(exchange_source(v, 0), i);
        for (int r = 1; r < v.ranks; r++) sum = R::join(sum, T::load(exchange_source(v, r), i));
        T::store(v.to, i, sum);
    }
}

#define EXCHANGE_REDUCE(op, T, name)                                                                                   \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_EXCHANGE_THREADS)                                             \
        exchange_##op##_##name(const __grid_constant__ sglcuda_exchange_sum v)                                         \
    {                                                                                                                  \
        exchange_reduce<T, exchange_##op>(v);                                                                          \
    }
#define EXCHANGE_ORDER(T, name) EXCHANGE_REDUCE(max, T, name) EXCHANGE_REDUCE(min, T, name)
#define EXCHANGE_ALL(T) EXCHANGE_REDUCE(sum, T, T) EXCHANGE_ORDER(T, T)
EXCHANGE_ALL(f64)
EXCHANGE_ALL(f32)
EXCHANGE_ALL(bf16)
EXCHANGE_ALL(f16)
EXCHANGE_ALL(f8e4m3)
EXCHANGE_ALL(f8e5m2)
EXCHANGE_ALL(i64)
EXCHANGE_ALL(i32)
EXCHANGE_ALL(i16)
EXCHANGE_ALL(i8)
EXCHANGE_ALL(u8)
EXCHANGE_ALL(u16)
EXCHANGE_ALL(u32)
EXCHANGE_ORDER(boolean, bool)

/* ---- marks and numbers ------------------------------------------------------------------------------------------- */

/* Links are streams of their own: the count is atomic, a link's word is its own. */
extern "C" __global__ void exchange_mark(const __grid_constant__ sglcuda_exchange_mark v)
{
    volatile uint64 *word = (volatile uint64 *)v.word;
    const uint64 begun = v.id != 0 ? atomicAdd(v.begun, 1ull) + 1 : *word >> SGLCUDA_EXCHANGE_BITS;
    *word = begun << SGLCUDA_EXCHANGE_BITS | v.id;
}

extern "C" __global__ void exchange_number(char *to, const __grid_constant__ sglcuda_exchange_number v)
{
    for (int i = 0; i < v.bytes; i++) to[i] = v.number[i];
}
