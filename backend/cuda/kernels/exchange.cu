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
SGL_DEVICE const unsigned char *exchange_source(const sglcuda_exchange_sum &v, int place, int r)
{
    if (r == place) return v.own;
    return v.others + (int64)(r < place ? r : r - 1) * v.pitch;
}

/* The last that begins at or before this block. */
template <class P> SGL_DEVICE int exchange_of_block(const P *parts, int count)
{
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (parts[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* A block takes SGLCUDA_EXCHANGE_TURNS times a vector for each thread. */
template <class T, class R> SGL_DEVICE void exchange_reduce(const sglcuda_exchange_sums &all)
{
    const sglcuda_exchange_sum &v = all.sums[exchange_of_block(all.sums, all.count)];
    const int64 vector = SGLCUDA_EXCHANGE_VECTOR, step = SGLCUDA_EXCHANGE_THREADS * vector;
    int64 i = (int64)(blockIdx.x - v.first_block) * SGLCUDA_EXCHANGE_TURNS * step + threadIdx.x * vector;
    for (int turn = 0; turn < SGLCUDA_EXCHANGE_TURNS && i < v.count; turn++, i += step) {
        if (v.wide && i + vector <= v.count) {
            typename T::held sum[SGLCUDA_EXCHANGE_VECTOR], next[SGLCUDA_EXCHANGE_VECTOR];
            T::load8(exchange_source(v, all.place, 0), i, sum);
            for (int r = 1; r < all.ranks; r++) {
                T::load8(exchange_source(v, all.place, r), i, next);
#pragma unroll
                for (int e = 0; e < SGLCUDA_EXCHANGE_VECTOR; e++) sum[e] = R::join(sum[e], next[e]);
            }
            T::store8(v.to, i, sum);
            continue;
        }
        for (int64 e = i; e < i + vector && e < v.count; e++) {
            typename T::held sum = T::load(exchange_source(v, all.place, 0), e);
            for (int r = 1; r < all.ranks; r++) sum = R::join(sum, T::load(exchange_source(v, all.place, r), e));
            T::store(v.to, e, sum);
        }
    }
}

#define EXCHANGE_REDUCE(op, T, name)                                                                                   \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_EXCHANGE_THREADS)                                             \
        exchange_##op##_##name(const __grid_constant__ sglcuda_exchange_sums v)                                        \
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

/* ---- a rank's own parts ------------------------------------------------------------------------------------------ */

extern "C" __global__ void __launch_bounds__(SGLCUDA_EXCHANGE_THREADS)
    exchange_copy(const __grid_constant__ sglcuda_exchange_copies all)
{
    const sglcuda_exchange_copy &v = all.copies[exchange_of_block(all.copies, (int)all.count)];
    const int64 first = (int64)(blockIdx.x - v.first_block) * SGLCUDA_EXCHANGE_COPY_BYTES;
    const int64 end = first + SGLCUDA_EXCHANGE_COPY_BYTES < v.bytes ? first + SGLCUDA_EXCHANGE_COPY_BYTES : v.bytes;
    const int64 wide = v.wide ? end / 16 * 16 : first;
    for (int64 i = first + threadIdx.x * 16; i < wide; i += SGLCUDA_EXCHANGE_THREADS * 16)
        *(sgl_16_bytes *)(v.to + i) = *(const sgl_16_bytes *)(v.from + i);
    for (int64 i = wide + threadIdx.x; i < end; i += SGLCUDA_EXCHANGE_THREADS) v.to[i] = v.from[i];
}

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
