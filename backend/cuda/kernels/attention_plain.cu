/* attention_plain.cu -- attention and its gradient for every float dtype and every head dimension, without tensor
 * cores.
 *
 * A task is a tile of 64 queries (or keys) and 64 columns of a result; it goes through tiles of 64 keys (or
 * queries). Products are of 64 x 64 numbers, 4 x 4 by each thread, whose arguments pass through shared memory 32
 * columns at a time. Softmax on the way (Dao et al., arXiv:2205.14135); the gradient makes the probabilities again
 * from the logs of their sums: dv = p^T dout, ds = p (dout v^T - delta) scale, dq = ds k, dk = ds^T q. Heads wider
 * than 64 have several tasks, which make the same probabilities. Odd invariant: no two tasks add to one element, so
 * that the order of each sum is the order of tiles. */
#include "attention_math.cuh"
#include "attention_sight.cuh"

namespace
{

const int TILE = SGL_ATTENTION_TILE, DEPTH = SGL_ATTENTION_DEPTH, THREADS = SGL_ATTENTION_THREADS;
const int SIDE = 16, EACH = TILE / SIDE; /* threads along a side of the tile, numbers of each along it */
const int STAGE_ROW = DEPTH + 1, WEIGHT_ROW = TILE + 1;

/* Some rows of a tensor: element x of row r is at first + r * row + x. */
struct rows {
    const void *at;
    int64 first, row;
    int64 count; /* rows that there are from the first on */
    int64 width;
};

template <class H> struct tile {
    H x[EACH][EACH]; /* row EACH * ty + i, column tx + SIDE * j */
};

SGL_DEVICE int row_of(int i) { return EACH * ((int)threadIdx.x / SIDE) + i; }
SGL_DEVICE int column_of(int j) { return (int)threadIdx.x % SIDE + SIDE * j; }

template <class H> SGL_DEVICE void clear(tile<H> &t)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) t.x[i][j] = 0;
}

/* Columns x0 .. x0 + DEPTH - 1 of 64 rows, with zeros where there is nothing. */
template <class T> SGL_DEVICE void stage(typename T::held *to, const rows &from, int64 x0)
{
    for (int n = (int)threadIdx.x; n < TILE * DEPTH; n += THREADS) {
        const int r = n / DEPTH, x = n % DEPTH;
        const bool there = r < from.count && x0 + x < from.width;
        to[r * STAGE_ROW + x] = there ? T::load(from.at, from.first + r * from.row + x0 + x) : 0;
    }
}

/* t = a b^T of rows of one width. */
template <class T>
SGL_DEVICE void row_products(tile<typename T::held> &t, typename T::held *room, const rows &a, const rows &b)
{
    typedef typename T::held H;
    H *left = room, *right = room + TILE * STAGE_ROW;
    clear(t);
    for (int64 x0 = 0; x0 < a.width; x0 += DEPTH) {
        __syncthreads();
        stage<T>(left, a, x0);
        stage<T>(right, b, x0);
        __syncthreads();
#pragma unroll 8
        for (int x = 0; x < DEPTH; x++) {
            H l[EACH], r[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) l[i] = left[row_of(i) * STAGE_ROW + x];
#pragma unroll
            for (int j = 0; j < EACH; j++) r[j] = right[column_of(j) * STAGE_ROW + x];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) t.x[i][j] = fused(l[i], r[j], t.x[i][j]);
        }
    }
}

/* t += weights b, of b's columns x0 .. x0 + 63. The weights are what the threads put there before. */
template <class T>
SGL_DEVICE void weigh_rows(tile<typename T::held> &t, const typename T::held *weights, typename T::held *room,
                           const rows &b, int64 x0)
{
    typedef typename T::held H;
    for (int r0 = 0; r0 < TILE; r0 += DEPTH) {
        __syncthreads();
        for (int n = (int)threadIdx.x; n < DEPTH * TILE; n += THREADS) {
            const int r = r0 + n / TILE, x = n % TILE;
            const bool there = r < b.count && x0 + x < b.width;
            room[n] = there ? T::load(b.at, b.first + r * b.row + x0 + x) : 0;
        }
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < DEPTH; r++) {
            H w[EACH], x[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) w[i] = weights[row_of(i) * WEIGHT_ROW + r0 + r];
#pragma unroll
            for (int j = 0; j < EACH; j++) x[j] = room[r * TILE + column_of(j)];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) t.x[i][j] = fused(w[i], x[j], t.x[i][j]);
        }
    }
}

/* Leaves a tile where weigh_rows reads it. */
template <class H> SGL_DEVICE void put_weights(H *weights, const tile<H> &t)
{
    __syncthreads();
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) weights[row_of(i) * WEIGHT_ROW + column_of(j)] = t.x[i][j];
}

template <class T> SGL_DEVICE void store_tile(void *to, const rows &at, int64 x0, const tile<typename T::held> &t)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64 x = x0 + column_of(j);
            if (row_of(i) < at.count && x < at.width) T::store(to, at.first + row_of(i) * at.row + x, t.x[i][j]);
        }
}

/* Of the 16 threads that share rows, in an order of their own numbers alone. */
template <class H> SGL_DEVICE H greatest_of_row(H x)
{
#pragma unroll
    for (int apart = SIDE / 2; apart > 0; apart /= 2) x = greater(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}
template <class H> SGL_DEVICE H sum_of_row(H x)
{
#pragma unroll
    for (int apart = SIDE / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* Whether query i of a sequence sees key j: both are there, in sight by time, of one segment. */
struct sight {
    const sgl_attention &a;
    const int *query_segments, *key_segments; /* of the sequence */
    int64 offset;
    __device__ __forceinline__ bool sees(int64 i, int64 j) const
    {
        if (i >= a.t || j < sgl_first_key(a, offset, i) || j >= sgl_last_key(a, offset, i)) return false;
        return !a.segmented || (key_segments[j] >= 0 && query_segments[i] == key_segments[j]);
    }
};

SGL_DEVICE rows rows_of(const void *at, int64 sequence, int64 length, int64 place, int64 heads, int64 head, int64 width)
{
    return { at, ((sequence * length + place) * heads + head) * width, heads * width, length - place, width };
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

template <class T>
SGL_DEVICE void attend(const void *q, const void *k, const void *v, const int64 *offset, const int *query_segments,
                       const int *key_segments, void *out, void *lse, const sgl_attention &a)
{
    typedef typename T::held H;
    extern __shared__ double shared[];
    H *room = (H *)shared, *weights = room + SGL_ATTENTION_STAGE;
    const int64 tiles = (a.t + TILE - 1) / TILE, chunks = a.e > TILE ? (a.e + TILE - 1) / TILE : 1;
    const H scale = (H)a.scale, nothing = -(H)INFINITY;
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const int64 x0 = task % chunks * TILE, query = (tiles - 1 - task / chunks % tiles) * TILE;
        const int64 head = task / chunks / tiles % a.h, b = task / chunks / tiles / a.h, group = head / (a.h / a.g);
        const sight see = { a, query_segments + b * a.t, key_segments + b * a.s, *offset };
        const rows queries = rows_of(q, b, a.t, query, a.h, head, a.d);
        const int64 last_query = (query + TILE < a.t ? query + TILE : a.t) - 1;
        const int64 last = sgl_last_key(a, see.offset, last_query);
        tile<H> scores, sums;
        H top[EACH], total[EACH];
        clear(sums);
#pragma unroll
        for (int i = 0; i < EACH; i++) top[i] = nothing, total[i] = 0;
        for (int64 key = sgl_first_key(a, see.offset, query) / TILE * TILE; key < last; key += TILE) {
            row_products<T>(scores, room, queries, rows_of(k, b, a.s, key, a.g, group, a.d));
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                H most = top[i], sum = 0;
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    H *x = &scores.x[i][j];
                    *x = see.sees(query + row_of(i), key + column_of(j)) ? *x * scale : nothing;
                    most = greater(most, *x);
                }
                most = greatest_of_row(most);
                const H from = most == nothing ? 0 : most, rescale = exponential(top[i] - from);
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    scores.x[i][j] = exponential(scores.x[i][j] - from);
                    sum += scores.x[i][j];
                }
                total[i] = fused(total[i], rescale, sum_of_row(sum));
                top[i] = most;
#pragma unroll
                for (int j = 0; j < EACH; j++) sums.x[i][j] *= rescale;
            }
            put_weights(weights, scores);
            weigh_rows<T>(sums, weights, room, rows_of(v, b, a.s, key, a.g, group, a.e), x0);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int64 place = query + row_of(i);
            const H share = total[i] == 0 ? 0 : 1 / total[i];
#pragma unroll
            for (int j = 0; j < EACH; j++) sums.x[i][j] *= share;
            if (x0 == 0 && threadIdx.x % SIDE == 0 && place < a.t)
                ((H *)lse)[(b * a.h + head) * a.t + place] = (top[i] == nothing ? 0 : top[i]) + logarithm(total[i]);
        }
        store_tile<T>(out, rows_of(out, b, a.t, query, a.h, head, a.e), x0, sums);
    }
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* delta = sum of out * dout over e, a warp for each row. */
template <class T> SGL_DEVICE void make_deltas(const void *out, const void *dout, void *delta, const sgl_attention &a)
{
    typedef typename T::held H;
    const int lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32;
    const int64 count = a.b * a.t * a.h;
    for (int64 row = (int64)blockIdx.x * warps + threadIdx.x / 32; row < count; row += (int64)gridDim.x * warps) {
        H sum = 0;
        for (int64 x = lane; x < a.e; x += 32)
            sum = fused(T::load(out, row * a.e + x), T::load(dout, row * a.e + x), sum);
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        const int64 head = row % a.h, place = row / a.h % a.t, b = row / a.h / a.t;
        if (lane == 0) ((H *)delta)[(b * a.h + head) * a.t + place] = sum;
    }
}

/* From scores and from dout v^T: probabilities, and slopes in place of the latter. by_key: rows are keys, columns
 * queries. lse and delta are those of the head. */
template <bool by_key, class H>
SGL_DEVICE void make_slopes(tile<H> &scores, tile<H> &slopes, const sight &see, int64 query, int64 key, const H *lse,
                            const H *delta)
{
    const H scale = (H)see.a.scale;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64 at = query + (by_key ? column_of(j) : row_of(i)),
                        other = key + (by_key ? row_of(i) : column_of(j));
            const bool sees = see.sees(at, other);
            const H p = sees ? exponential(scores.x[i][j] * scale - lse[at]) : 0;
            scores.x[i][j] = p;
            slopes.x[i][j] = sees ? p * (slopes.x[i][j] - delta[at]) * scale : 0;
        }
}

template <class T>
SGL_DEVICE void query_gradients(const void *q, const void *k, const void *v, const void *dout, const void *lse,
                                const void *delta, const int64 *offset, const int *query_segments,
                                const int *key_segments, void *dq, const sgl_attention &a)
{
    typedef typename T::held H;
    extern __shared__ double shared[];
    H *room = (H *)shared, *weights = room + SGL_ATTENTION_STAGE;
    const int64 tiles = (a.t + TILE - 1) / TILE, chunks = (a.d + TILE - 1) / TILE;
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const int64 x0 = task % chunks * TILE, query = (tiles - 1 - task / chunks % tiles) * TILE;
        const int64 head = task / chunks / tiles % a.h, b = task / chunks / tiles / a.h, group = head / (a.h / a.g);
        const int64 stats = (b * a.h + head) * a.t;
        const sight see = { a, query_segments + b * a.t, key_segments + b * a.s, *offset };
        const rows queries = rows_of(q, b, a.t, query, a.h, head, a.d);
        const rows slopes_out = rows_of(dout, b, a.t, query, a.h, head, a.e);
        const int64 last_query = (query + TILE < a.t ? query + TILE : a.t) - 1;
        const int64 last = sgl_last_key(a, see.offset, last_query);
        tile<H> scores, slopes, sums;
        clear(sums);
        for (int64 key = sgl_first_key(a, see.offset, query) / TILE * TILE; key < last; key += TILE) {
            const rows keys = rows_of(k, b, a.s, key, a.g, group, a.d);
            row_products<T>(scores, room, queries, keys);
            row_products<T>(slopes, room, slopes_out, rows_of(v, b, a.s, key, a.g, group, a.e));
            make_slopes<false>(scores, slopes, see, query, key, (const H *)lse + stats, (const H *)delta + stats);
            put_weights(weights, slopes);
            weigh_rows<T>(sums, weights, room, keys, x0);
        }
        store_tile<T>(dq, queries, x0, sums);
    }
}

/* The heads that share keys one after another, each through its queries. */
template <class T>
SGL_DEVICE void key_gradients(const void *q, const void *k, const void *v, const void *dout, const void *lse,
                              const void *delta, const int64 *offset, const int *query_segments,
                              const int *key_segments, void *dk, void *dv, const sgl_attention &a)
{
    typedef typename T::held H;
    extern __shared__ double shared[];
    H *room = (H *)shared, *weights = room + SGL_ATTENTION_STAGE;
    const int64 widest = a.d > a.e ? a.d : a.e, tiles = (a.s + TILE - 1) / TILE, chunks = (widest + TILE - 1) / TILE;
    const int64 shared_by = a.h / a.g;
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const int64 x0 = task % chunks * TILE, key = task / chunks % tiles * TILE;
        const int64 group = task / chunks / tiles % a.g, b = task / chunks / tiles / a.g;
        const sight see = { a, query_segments + b * a.t, key_segments + b * a.s, *offset };
        const rows keys = rows_of(k, b, a.s, key, a.g, group, a.d), values = rows_of(v, b, a.s, key, a.g, group, a.e);
        const int64 last_key = (key + TILE < a.s ? key + TILE : a.s) - 1;
        const int64 first = sgl_first_query(a, see.offset, key) / TILE * TILE;
        const int64 last = sgl_last_query(a, see.offset, last_key);
        tile<H> scores, slopes, key_sums, value_sums;
        clear(key_sums);
        clear(value_sums);
        for (int64 head = group * shared_by; head < (group + 1) * shared_by; head++) {
            const int64 stats = (b * a.h + head) * a.t;
            for (int64 query = first; query < last; query += TILE) {
                const rows queries = rows_of(q, b, a.t, query, a.h, head, a.d);
                const rows slopes_out = rows_of(dout, b, a.t, query, a.h, head, a.e);
                row_products<T>(scores, room, keys, queries);
                row_products<T>(slopes, room, values, slopes_out);
                make_slopes<true>(scores, slopes, see, query, key, (const H *)lse + stats, (const H *)delta + stats);
                put_weights(weights, scores);
                if (x0 < a.e) weigh_rows<T>(value_sums, weights, room, slopes_out, x0);
                put_weights(weights, slopes);
                if (x0 < a.d) weigh_rows<T>(key_sums, weights, room, queries, x0);
            }
        }
        store_tile<T>(dk, keys, x0, key_sums);
        store_tile<T>(dv, values, x0, value_sums);
    }
}

} /* namespace */

/* blocks: of the first kernel, that share a processor without registers being put aside. */
#define KERNELS(T, blocks)                                                                                             \
    extern "C" __global__ void __launch_bounds__(SGL_ATTENTION_THREADS, blocks)                                        \
        attention_##T(const void *q, const void *k, const void *v, const int64 *offset, const int *query_segments,     \
                      const int *key_segments, void *out, void *lse, sgl_attention a)                                  \
    {                                                                                                                  \
        attend<T>(q, k, v, offset, query_segments, key_segments, out, lse, a);                                         \
    }                                                                                                                  \
    extern "C" __global__ void attention_deltas_##T(const void *out, const void *dout, void *delta, sgl_attention a)   \
    {                                                                                                                  \
        make_deltas<T>(out, dout, delta, a);                                                                           \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_ATTENTION_THREADS)                                                \
        attention_queries_##T(const void *q, const void *k, const void *v, const void *dout, const void *lse,          \
                              const void *delta, const int64 *offset, const int *query_segments,                       \
                              const int *key_segments, void *dq, sgl_attention a)                                      \
    {                                                                                                                  \
        query_gradients<T>(q, k, v, dout, lse, delta, offset, query_segments, key_segments, dq, a);                    \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_ATTENTION_THREADS)                                                \
        attention_keys_##T(const void *q, const void *k, const void *v, const void *dout, const void *lse,             \
                           const void *delta, const int64 *offset, const int *query_segments, const int *key_segments, \
                           void *dk, void *dv, sgl_attention a)                                                        \
    {                                                                                                                  \
        key_gradients<T>(q, k, v, dout, lse, delta, offset, query_segments, key_segments, dk, dv, a);                  \
    }

KERNELS(f64, 1)
KERNELS(f32, 2)
KERNELS(bf16, 2)
KERNELS(f16, 2)
KERNELS(f8e4m3, 2)
KERNELS(f8e5m2, 2)
