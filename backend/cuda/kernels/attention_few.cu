/* attention_few.cu -- attention of few queries over many keys: a step of generation over its cache, of every float
 * dtype.
 *
 * A task is 256 keys of a group of heads, and up to eight rows, queries times the heads that share the keys, so that
 * a key is read once for all of them. Its sums, their greatest score and the sum of their exponentials lie in the workspace; a
 * second kernel brings them to one scale and adds them in the order of keys. Keys that nobody sees are not read. Odd
 * invariant: where keys are cut does not depend on the device, and so no order of a sum does. */
#include "attention_math.cuh"
#include "attention_sight.cuh"

namespace
{

const int ROWS = SGL_FEW_ROWS, KEYS = SGL_FEW_KEYS, THREADS = SGL_FEW_THREADS, WARPS = THREADS / 32;

/* Lanes that share a row of so many numbers, eight each: a power of two. */
SGL_DEVICE int lanes_of(int64 width)
{
    int lanes = 1;
    while (lanes * 8 < width) lanes *= 2;
    return lanes;
}

/* One task. */
struct piece {
    int64 split, sequence, group, first_row, key, keys;
    int rows;
    __device__ __forceinline__ piece(const sgl_attention &a, int64 task)
    {
        const int64 splits = (a.s + KEYS - 1) / KEYS, rows_all = a.t * (a.h / a.g),
                    chunks = (rows_all + ROWS - 1) / ROWS;
        split = task % splits;
        first_row = task / splits % chunks * ROWS;
        group = task / splits / chunks % a.g;
        sequence = task / splits / chunks / a.g;
        key = split * KEYS;
        keys = a.s - key < KEYS ? a.s - key : KEYS;
        rows = (int)(rows_all - first_row < ROWS ? rows_all - first_row : ROWS);
    }
    /* Of a row: which query, which head. */
    __device__ __forceinline__ int64 query(const sgl_attention &a, int r) const
    {
        return (first_row + r) / (a.h / a.g);
    }
    __device__ __forceinline__ int64 head(const sgl_attention &a, int r) const
    {
        return group * (a.h / a.g) + (first_row + r) % (a.h / a.g);
    }
};

/* weights[r][key]: scores, -inf where the row does not see the key. */
template <class T>
SGL_DEVICE void score(typename T::held *weights, const void *q, const void *k, int64 offset, const int *query_segments,
                      const int *key_segments, const piece &x, const sgl_attention &a)
{
    typedef typename T::held H;
    const int lanes = lanes_of(a.d), lane = (int)threadIdx.x % 32, u = lane % lanes, beside = 32 / lanes;
    H rows[ROWS][8];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < 8; i++) rows[r][i] = 0;
        if (r < x.rows && u * 8 < a.d)
            T::load8(q, ((x.sequence * a.t + x.query(a, r)) * a.h + x.head(a, r)) * a.d + u * 8, rows[r]);
    }
#pragma unroll 2
    for (int first = (int)threadIdx.x / 32 * beside; first < KEYS; first += WARPS * beside) {
        const int key = first + lane / lanes;
        const int64 j = x.key + key;
        H numbers[8];
#pragma unroll
        for (int i = 0; i < 8; i++) numbers[i] = 0;
        if (key < x.keys && u * 8 < a.d) T::load8(k, ((x.sequence * a.s + j) * a.g + x.group) * a.d + u * 8, numbers);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= x.rows) break;
            H sum = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) sum = fused(rows[r][i], numbers[i], sum);
            for (int apart = lanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
            if (u != 0) continue;
            const int64 i = x.query(a, r);
            bool sees = key < x.keys && j >= sgl_first_key(a, offset, i) && j < sgl_last_key(a, offset, i);
            if (a.segmented && sees) {
                const int segment = key_segments[x.sequence * a.s + j];
                sees = segment >= 0 && query_segments[x.sequence * a.t + i] == segment;
            }
            weights[r * KEYS + key] = sees ? sum * (H)a.scale : -(H)INFINITY;
        }
    }
}

/* A row by a warp: scores become exponentials below the greatest of them; the greatest and the sum are kept. */
template <class H> SGL_DEVICE void soften(H *weights, H *greatest, H *total, int rows)
{
    const int lane = (int)threadIdx.x % 32;
    for (int r = (int)threadIdx.x / 32; r < rows; r += WARPS) {
        H most = -(H)INFINITY, sum = 0;
        for (int n = lane; n < KEYS; n += 32) most = greater(most, weights[r * KEYS + n]);
        for (int apart = 16; apart > 0; apart /= 2) most = greater(most, __shfl_xor_sync(0xffffffffu, most, apart));
        const H from = most == -(H)INFINITY ? 0 : most;
        for (int n = lane; n < KEYS; n += 32) {
            const H p = exponential(weights[r * KEYS + n] - from);
            weights[r * KEYS + n] = p;
            sum += p;
        }
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0) greatest[r] = most, total[r] = sum;
    }
}

/* sums[warp][r][column]: of the keys that a warp goes through. */
template <class T>
SGL_DEVICE void weigh(typename T::held *sums, const typename T::held *weights, const void *v, const piece &x,
                      const sgl_attention &a)
{
    typedef typename T::held H;
    const int lanes = lanes_of(a.e), lane = (int)threadIdx.x % 32, u = lane % lanes, beside = 32 / lanes;
    H own[ROWS][8];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) own[r][i] = 0;
#pragma unroll 2
    for (int first = (int)threadIdx.x / 32 * beside; first < x.keys; first += WARPS * beside) {
        const int key = first + lane / lanes;
        H numbers[8];
        if (key >= x.keys || u * 8 >= a.e) continue;
        T::load8(v, ((x.sequence * a.s + x.key + key) * a.g + x.group) * a.e + u * 8, numbers);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= x.rows) break;
            const H p = weights[r * KEYS + key];
#pragma unroll
            for (int i = 0; i < 8; i++) own[r][i] = fused(p, numbers[i], own[r][i]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= x.rows) break;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            for (int apart = lanes; apart < 32; apart *= 2) own[r][i] += __shfl_xor_sync(0xffffffffu, own[r][i], apart);
            if (lane < lanes && u * 8 < a.e) sums[((int)threadIdx.x / 32 * ROWS + r) * a.e + u * 8 + i] = own[r][i];
        }
    }
}

/* parts: of each task ROWS times e sums; behind all of them the greatest scores and the totals. */
template <class T>
SGL_DEVICE void attend(const void *q, const void *k, const void *v, const int64 *offset_at, const int *query_segments,
                       const int *key_segments, void *parts, const sgl_attention &a)
{
    typedef typename T::held H;
    extern __shared__ double shared[];
    H *weights = (H *)shared, *sums = weights + ROWS * KEYS;
    const int64 offset = *offset_at;
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const piece x(a, task);
        H *own = (H *)parts + task * ROWS * a.e, *greatest = (H *)parts + a.tasks * ROWS * a.e + task * 2 * ROWS;
        const bool seen = x.key < sgl_last_key(a, offset, x.query(a, x.rows - 1)) &&
                          x.key + x.keys > sgl_first_key(a, offset, x.query(a, 0));
        if (!seen) {
            if (threadIdx.x < ROWS) greatest[threadIdx.x] = -(H)INFINITY, greatest[ROWS + threadIdx.x] = 0;
            continue;
        }
        __syncthreads();
        score<T>(weights, q, k, offset, query_segments, key_segments, x, a);
        __syncthreads();
        soften(weights, greatest, greatest + ROWS, x.rows);
        __syncthreads();
        weigh<T>(sums, weights, v, x, a);
        __syncthreads();
        for (int n = (int)threadIdx.x; n < x.rows * (int)a.e; n += THREADS) {
            H sum = sums[n];
#pragma unroll
            for (int warp = 1; warp < WARPS; warp++) sum += sums[warp * ROWS * (int)a.e + n];
            own[n] = sum;
        }
    }
}

/* A row of the result by a block. a.tasks: those of the kernel before. */
template <class T> SGL_DEVICE void join(const void *parts, void *out, void *lse, const sgl_attention &a)
{
    typedef typename T::held H;
    const int64 shared_by = a.h / a.g, splits = (a.s + KEYS - 1) / KEYS, chunks = (a.t * shared_by + ROWS - 1) / ROWS;
    for (int64 row = blockIdx.x; row < a.b * a.t * a.h; row += gridDim.x) {
        const int64 head = row % a.h, query = row / a.h % a.t, sequence = row / a.h / a.t;
        const int64 of_group = query * shared_by + head % shared_by, r = of_group % ROWS;
        const int64 first = ((sequence * a.g + head / shared_by) * chunks + of_group / ROWS) * splits;
        const H *sums = (const H *)parts + (first * ROWS + r) * a.e;
        const H *greatest = (const H *)parts + a.tasks * ROWS * a.e + first * 2 * ROWS + r;
        H most = -(H)INFINITY, total = 0;
        for (int64 n = 0; n < splits; n++) most = greater(most, greatest[n * 2 * ROWS]);
        const H from = most == -(H)INFINITY ? 0 : most;
        for (int64 n = 0; n < splits; n++)
            total = fused(greatest[(n * 2 + 1) * ROWS], exponential(greatest[n * 2 * ROWS] - from), total);
        for (int64 x = threadIdx.x; x < a.e; x += blockDim.x) {
            H sum = 0;
            for (int64 n = 0; n < splits; n++) {
                const H scale = exponential(greatest[n * 2 * ROWS] - from);
                if (scale > 0) sum = fused(sums[n * ROWS * a.e + x], scale, sum); /* others were never written */
            }
            T::store(out, row * a.e + x, total == 0 ? 0 : sum / total);
        }
        if (threadIdx.x == 0) ((H *)lse)[(sequence * a.h + head) * a.t + query] = from + logarithm(total);
    }
}

} /* namespace */

#define KERNELS(T)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(SGL_FEW_THREADS)                                                      \
        attention_few_##T(const void *q, const void *k, const void *v, const int64 *offset, const int *query_segments, \
                          const int *key_segments, void *parts, sgl_attention a)                                       \
    {                                                                                                                  \
        attend<T>(q, k, v, offset, query_segments, key_segments, parts, a);                                            \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_FEW_THREADS_JOIN)                                                 \
        attention_few_join_##T(const void *parts, void *out, void *lse, sgl_attention a)                               \
    {                                                                                                                  \
        join<T>(parts, out, lse, a);                                                                                   \
    }

KERNELS(f64)
KERNELS(f32)
KERNELS(bf16)
KERNELS(f16)
KERNELS(f8e4m3)
KERNELS(f8e5m2)
