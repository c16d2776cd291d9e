/* attention_tensor_grad.cu -- the gradient of attention of narrow floats on tensor cores.
 *
 * Two kernels. Blocks of queries that keys pass by make dq; blocks of keys that the queries of all their heads pass
 * by make dk and dv. Both make the probabilities again, p = e^(s - lse), and slopes ds = p (dout v^T - delta) (Dao
 * et al., arXiv:2205.14135, appendix B). Where keys are the rows, p and ds are made turned, so that they go from a
 * product's registers into the next. That is seven products in place of five, and no sum of two blocks: the order of
 * each is that of tiles. Odd invariant: a query beyond the last has zeros for q, dout, lse and delta, so that it
 * adds nothing, though its p is not 0. */
#include "attention_tensor.cuh"

namespace
{

const double LOG2_E = 1.4426950408889634;

/* Rows of the block against columns of a tile: which of the two is a query. */
template <bool by_key, int ROWS, int WIDE>
SGL_DEVICE void hide(float (&p)[ROWS][WIDE / 8][4], const sgl_times &times, int first_row, int first_column,
                     int rows_end, int columns_end, const int *row_segments, const int *column_segments)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = first_row + 16 * m + 8 * half + lane / 4;
            const int own = row_segments && r < rows_end ? row_segments[r] : -1;
#pragma unroll
            for (int n = 0; n < WIDE / 8; n++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int x = first_column + 8 * n + 2 * (lane % 4) + c;
                    bool sees = by_key ? times.sees(x, r) : times.sees(r, x);
                    if (row_segments && sees) sees = own >= 0 && x < columns_end && column_segments[x] == own;
                    if (!sees) p[m][n][2 * half + c] = 0;
                }
            }
        }
    }
}

/* ---- deltas ------------------------------------------------------------------------------------------------------ */

/* delta = sum of out * dout over a row, which columns / 8 threads share, 8 numbers each. */
template <class T, int columns>
SGL_DEVICE void make_deltas(const uint16 *out, const uint16 *dout, float *delta, const sgl_attention &a)
{
    const int share = columns / 8, rows = SGL_TENSOR_THREADS_DELTAS / share, u = (int)threadIdx.x % share;
    const int64 count = a.b * a.t * a.h;
    for (int64 first = (int64)blockIdx.x * rows; first < count; first += (int64)gridDim.x * rows) {
        const int64 row = first + threadIdx.x / share;
        const float sum = sgl_row_delta<T, columns / 8>(out, dout, row * a.e + u * 8, row < count && u * 8 < a.e);
        if (row < count && u == 0) delta[(row / a.h / a.t * a.h + row % a.h) * a.t + row / a.h % a.t] = sum;
    }
}

/* ---- gradients of queries ---------------------------------------------------------------------------------------- */

/* From scores: probabilities. lse: of the rows, times log2 e. */
template <int ROWS, int WIDE>
SGL_DEVICE void probabilities_of_rows(float (&p)[ROWS][WIDE / 8][4], const float (&lse)[ROWS][2], float scale)
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < WIDE / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) p[m][n][c] = sgl_exp2(fmaf(p[m][n][c], scale, -lse[m][c / 2]));
}

template <class T, int columns, int ROWS, int KEYS, int WIDE>
SGL_DEVICE void query_gradients(const uint16 *q, const uint16 *k, const uint16 *v, const uint16 *dout, const float *lse,
                                const float *delta, const int64 *offset_at, const int *query_segments,
                                const int *key_segments, uint16 *dq, const sgl_attention &a)
{
    extern __shared__ sgl_shared shared[];
    const int QUERIES = SGL_TENSOR_QUERIES;
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 * ROWS;
    const uint32 at = sgl_shared_at(shared), tile_bytes = KEYS * columns * 2, block_bytes = QUERIES * columns * 2;
    const sgl_tile<columns> q_tile = { at }, dout_tile = { at + block_bytes }, first_tile = { at + 2 * block_bytes };
    const int t = (int)a.t, d = (int)a.d, e = (int)a.e;
    const int64 offset = *offset_at, blocks = (t + QUERIES - 1) / QUERIES;
    const int64 q_row = a.h * d, k_row = a.g * d, v_row = a.g * e, o_row = a.h * e;
    const float scale = (float)(a.scale * LOG2_E), slope_scale = (float)a.scale;
    const sgl_times times = sgl_times_of(a, offset);
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const int query = (int)(blocks - 1 - task % blocks) * QUERIES;
        const int64 head = task / blocks % a.h, b = task / blocks / a.h, group = head / (a.h / a.g);
        const int queries = t - query < QUERIES ? t - query : QUERIES;
        const uint16 *keys = k + (b * a.s * a.g + group) * d, *values = v + (b * a.s * a.g + group) * e;
        const int *own_segments = a.segmented ? query_segments + b * a.t : nullptr;
        const int *their_segments = a.segmented ? key_segments + b * a.s : nullptr;
        sgl_walk<KEYS> w = { their_segments, {}, (int)sgl_last_key(a, offset, query + queries - 1), false };
        if (a.segmented) w.own = sgl_segments_of(own_segments + query, queries);
        float sums[ROWS][columns / 8][4], log_sums[ROWS][2], deltas[ROWS][2];
        sgl_clear(sums);
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int place = query + row + 16 * m + 8 * half + lane / 4;
                const int64 stats = (b * a.h + head) * a.t + place;
                log_sums[m][half] = place < t ? lse[stats] * (float)LOG2_E : 0;
                deltas[m][half] = place < t ? delta[stats] : 0;
            }
        __syncthreads();
        q_tile.load(q + ((b * a.t + query) * a.h + head) * d, q_row, QUERIES, queries, d);
        dout_tile.load(dout + ((b * a.t + query) * a.h + head) * e, o_row, QUERIES, queries, e);
        int key = w.find((int)sgl_first_key(a, offset, query) / KEYS * KEYS), stage = 0;
        if (key < w.last) {
            first_tile.load(keys + key * k_row, k_row, KEYS, a.s - key, d);
            sgl_tile<columns>{ first_tile.at + 2 * tile_bytes }.load(values + key * v_row, v_row, KEYS, a.s - key, e);
        }
        while (key < w.last) {
            const sgl_tile<columns> k_tile = { first_tile.at + stage * tile_bytes };
            const sgl_tile<columns> v_tile = { first_tile.at + (2 + stage) * tile_bytes };
            const bool mixed = w.mixed, hidden = mixed || !times.all_see(query, query + queries, key, key + KEYS);
            sgl_wait_copies();
            __syncthreads(); /* these tiles are whole; the others have been used */
            const int next = w.find(key + KEYS);
            if (next < w.last) {
                const sgl_tile<columns> k_next = { first_tile.at + (stage ^ 1) * tile_bytes };
                const sgl_tile<columns> v_next = { first_tile.at + (2 + (stage ^ 1)) * tile_bytes };
                k_next.load(keys + next * k_row, k_row, KEYS, a.s - next, d);
                v_next.load(values + next * v_row, v_row, KEYS, a.s - next, e);
            }
#pragma unroll 1
            for (int part = 0; part < KEYS; part += WIDE) {
                float p[ROWS][WIDE / 8][4], slopes[ROWS][WIDE / 8][4];
                sgl_row_products<T, columns, ROWS, WIDE>(p, q_tile, row, k_tile, part);
                sgl_row_products<T, columns, ROWS, WIDE>(slopes, dout_tile, row, v_tile, part);
                probabilities_of_rows<ROWS, WIDE>(p, log_sums, scale);
                if (hidden)
                    hide<false, ROWS, WIDE>(p, times, query + row, key + part, t, times.keys,
                                            mixed ? own_segments : nullptr, their_segments);
#pragma unroll
                for (int m = 0; m < ROWS; m++)
#pragma unroll
                    for (int n = 0; n < WIDE / 8; n++)
#pragma unroll
                        for (int c = 0; c < 4; c++) slopes[m][n][c] = p[m][n][c] * (slopes[m][n][c] - deltas[m][c / 2]);
                sgl_weigh_rows<T, columns, ROWS, WIDE>(sums, slopes, k_tile, part);
            }
            key = next;
            stage ^= 1;
        }
        sgl_wait_copies();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
#pragma unroll
            for (int n = 0; n < columns / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) sums[m][n][c] *= slope_scale;
            sgl_store_rows<T, columns>(q_tile, (char *)shared, row + 16 * m, sums[m],
                                       dq + ((b * a.t + query) * a.h + head) * d, q_row, queries, d);
        }
    }
}

/* ---- gradients of keys and values -------------------------------------------------------------------------------- */

/* Queries of all heads that share the block's keys, a tile after another, and their logs of sums and deltas. */
template <int columns> struct passing {
    const uint16 *q, *dout; /* of the sequence */
    const float *lse, *delta;
    int64 q_row, o_row, t;
    int d, e;
    __device__ __forceinline__ void load(const sgl_tile<columns> &q_tile, const sgl_tile<columns> &dout_tile,
                                         uint32 stats_at, int64 head, int query) const
    {
        const int QUERIES = SGL_TENSOR_QUERIES_BACK, n = (int)threadIdx.x;
        q_tile.load(q + query * q_row + head * d, q_row, QUERIES, t - query, d);
        dout_tile.load(dout + query * o_row + head * e, o_row, QUERIES, t - query, e);
        if (n >= QUERIES) return;
        const bool there = query + n < t;
        const int64 at = there ? head * t + query + n : 0;
        sgl_copy4(stats_at + 4 * n, lse + at, there);
        sgl_copy4(stats_at + 4 * (QUERIES + n), delta + at, there);
    }
};

template <class T, int columns, int ROWS, int THREADS, int WIDE>
SGL_DEVICE void key_gradients(const uint16 *q, const uint16 *k, const uint16 *v, const uint16 *dout, const float *lse,
                              const float *delta, const int64 *offset_at, const int *query_segments,
                              const int *key_segments, uint16 *dk, uint16 *dv, const sgl_attention &a)
{
    extern __shared__ sgl_shared shared[];
    const int QUERIES = SGL_TENSOR_QUERIES_BACK, KEYS = THREADS / 32 * 16 * ROWS;
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 * ROWS;
    const uint32 at = sgl_shared_at(shared), tile_bytes = QUERIES * columns * 2, block_bytes = KEYS * columns * 2;
    const sgl_tile<columns> k_tile = { at }, v_tile = { at + block_bytes };
    const uint32 first_at = at + 2 * block_bytes, stats_at = first_at + 4 * tile_bytes, stats_bytes = QUERIES * 8;
    const int t = (int)a.t, s = (int)a.s, d = (int)a.d, e = (int)a.e;
    const int64 offset = *offset_at, blocks = (s + KEYS - 1) / KEYS, shared_by = a.h / a.g;
    const int64 k_row = a.g * d, v_row = a.g * e;
    const float scale = (float)(a.scale * LOG2_E), slope_scale = (float)a.scale;
    const sgl_times times = sgl_times_of(a, offset);
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        const int key = (int)(task % blocks) * KEYS, keys = s - key < KEYS ? s - key : KEYS;
        const int64 group = task / blocks % a.g, b = task / blocks / a.g;
        const int64 k_at = ((b * a.s + key) * a.g + group) * d, v_at = ((b * a.s + key) * a.g + group) * e;
        const int *own_segments = a.segmented ? key_segments + b * a.s : nullptr;
        const int *their_segments = a.segmented ? query_segments + b * a.t : nullptr;
        const passing<columns> pass = { q + b * a.t * a.h * d,
                                        dout + b * a.t * a.h * e,
                                        lse + b * a.h * a.t,
                                        delta + b * a.h * a.t,
                                        a.h * d,
                                        a.h * e,
                                        a.t,
                                        d,
                                        e };
        sgl_walk<SGL_TENSOR_QUERIES_BACK> w = {
            their_segments, {}, (int)sgl_last_query(a, offset, key + keys - 1), false
        };
        if (a.segmented) w.own = sgl_segments_of(own_segments + key, keys);
        float key_sums[ROWS][columns / 8][4], value_sums[ROWS][columns / 8][4];
        sgl_clear(key_sums);
        sgl_clear(value_sums);
        __syncthreads();
        k_tile.load(k + k_at, k_row, KEYS, keys, d);
        v_tile.load(v + v_at, v_row, KEYS, keys, e);
        const int first = w.find((int)sgl_first_query(a, offset, key) / QUERIES * QUERIES);
        const bool first_mixed = w.mixed;
        const int64 heads_end = first < w.last ? (group + 1) * shared_by : group * shared_by;
        int64 head = group * shared_by;
        int query = first, stage = 0;
        if (head < heads_end) pass.load({ first_at }, { first_at + 2 * tile_bytes }, stats_at, head, query);
        while (head < heads_end) {
            const sgl_tile<columns> q_tile = { first_at + stage * tile_bytes };
            const sgl_tile<columns> dout_tile = { first_at + (2 + stage) * tile_bytes };
            const float *stats = (const float *)((const char *)shared + (stats_at - at) + stage * stats_bytes);
            const bool mixed = w.mixed, hidden = mixed || !times.all_see(query, query + QUERIES, key, key + keys);
            const int this_query = query;
            sgl_wait_copies();
            __syncthreads(); /* these tiles are whole; the others have been used */
            query = w.find(query + QUERIES);
            if (query >= w.last) query = first, w.mixed = first_mixed, head++;
            if (head < heads_end)
                pass.load({ first_at + (stage ^ 1) * tile_bytes }, { first_at + (2 + (stage ^ 1)) * tile_bytes },
                          stats_at + (stage ^ 1) * stats_bytes, head, query);
#pragma unroll 1
            for (int part = 0; part < QUERIES; part += WIDE) {
                float p[ROWS][WIDE / 8][4], slopes[ROWS][WIDE / 8][4];
                sgl_row_products<T, columns, ROWS, WIDE>(p, k_tile, row, q_tile, part);
                sgl_row_products<T, columns, ROWS, WIDE>(slopes, v_tile, row, dout_tile, part);
#pragma unroll
                for (int n = 0; n < WIDE / 8; n++) {
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const float log_sum = stats[part + 8 * n + 2 * (lane % 4) + c] * (float)LOG2_E;
#pragma unroll
                        for (int m = 0; m < ROWS; m++) {
                            p[m][n][c] = sgl_exp2(fmaf(p[m][n][c], scale, -log_sum));
                            p[m][n][2 + c] = sgl_exp2(fmaf(p[m][n][2 + c], scale, -log_sum));
                        }
                    }
                }
                if (hidden)
                    hide<true, ROWS, WIDE>(p, times, key + row, this_query + part, s, t, mixed ? own_segments : nullptr,
                                           their_segments);
                sgl_weigh_rows<T, columns, ROWS, WIDE>(value_sums, p, dout_tile, part);
#pragma unroll
                for (int n = 0; n < WIDE / 8; n++) {
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const float del = stats[QUERIES + part + 8 * n + 2 * (lane % 4) + c];
#pragma unroll
                        for (int m = 0; m < ROWS; m++) {
                            slopes[m][n][c] = p[m][n][c] * (slopes[m][n][c] - del);
                            slopes[m][n][2 + c] = p[m][n][2 + c] * (slopes[m][n][2 + c] - del);
                        }
                    }
                }
                sgl_weigh_rows<T, columns, ROWS, WIDE>(key_sums, slopes, q_tile, part);
            }
            stage ^= 1;
        }
        sgl_wait_copies();
        __syncthreads();
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
#pragma unroll
            for (int n = 0; n < columns / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) key_sums[m][n][c] *= slope_scale;
            sgl_store_rows<T, columns>(k_tile, (char *)shared, row + 16 * m, key_sums[m], dk + k_at, k_row, keys, d);
            sgl_store_rows<T, columns>(v_tile, (char *)shared + block_bytes, row + 16 * m, value_sums[m], dv + v_at,
                                       v_row, keys, e);
        }
    }
}

} /* namespace */

#define KERNELS(T, columns)                                                                                            \
    extern "C" __global__ void __launch_bounds__(SGL_TENSOR_THREADS_DELTAS)                                            \
        attention_tensor_deltas_##columns##_##T(const uint16 *out, const uint16 *dout, float *delta, sgl_attention a)  \
    {                                                                                                                  \
        make_deltas<T, columns>(out, dout, delta, a);                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_TENSOR_THREADS_##columns)                                         \
        attention_tensor_queries_##columns##_##T(const uint16 *q, const uint16 *k, const uint16 *v,                    \
                                                 const uint16 *dout, const float *lse, const float *delta,             \
                                                 const int64 *offset, const int *query_segments,                       \
                                                 const int *key_segments, uint16 *dq, sgl_attention a)                 \
    {                                                                                                                  \
        query_gradients<T, columns, SGL_TENSOR_QUERIES * 2 / SGL_TENSOR_THREADS_##columns,                             \
                        SGL_TENSOR_KEYS_BACK_##columns, WIDE_QUERIES_##columns>(q, k, v, dout, lse, delta, offset,     \
                                                                                query_segments, key_segments, dq, a);  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_TENSOR_THREADS_KEYS)                                              \
        attention_tensor_keys_##columns##_##T(const uint16 *q, const uint16 *k, const uint16 *v, const uint16 *dout,   \
                                              const float *lse, const float *delta, const int64 *offset,               \
                                              const int *query_segments, const int *key_segments, uint16 *dk,          \
                                              uint16 *dv, sgl_attention a)                                             \
    {                                                                                                                  \
        key_gradients<T, columns, SGL_TENSOR_ROWS_##columns * 2 / SGL_TENSOR_THREADS_KEYS, SGL_TENSOR_THREADS_KEYS,    \
                      WIDE_KEYS_##columns>(q, k, v, dout, lse, delta, offset, query_segments, key_segments, dk, dv,    \
                                           a);                                                                         \
    }

/* Columns of p and ds that are held at a time: what registers there are beside the sums. */
#define WIDE_QUERIES_64 32
#define WIDE_QUERIES_128 32
#define WIDE_KEYS_64 16
#define WIDE_KEYS_128 16

KERNELS(bf16, 64)
KERNELS(bf16, 128)
KERNELS(f16, 64)
KERNELS(f16, 128)
