/* attention_tensor.cu -- attention of narrow floats on tensor cores: blocks of queries, tiles of keys that pass by.
 *
 * A task is 128 queries of a head, 32 a warp; scores, probabilities and sums stay in the warp's registers (Dao,
 * arXiv:2307.08691). A tile of keys and one of values are loaded while the tiles before are used. Softmax in f32 by
 * powers of two; probabilities are rounded to the dtype for their product with v, and summed before. Tiles that no
 * query sees, by time or by segment, are passed over. Odd invariant: a tile that is passed over would have added
 * zeros, so that segments change no order of sums. */
#include "attention_tensor.cuh"

namespace
{

const int QUERIES = SGL_TENSOR_QUERIES, KEYS = SGL_TENSOR_KEYS;
const double LOG2_E = 1.4426950408889634;
const float LN_2 = 0.6931471805599453f;

/* Scores of keys that a query does not see. */
template <int ROWS>
SGL_DEVICE void hide(float (&scores)[ROWS][KEYS / 8][4], const sgl_times &times, int first_row, int t, int key,
                     const int *query_segments, const int *key_segments)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = first_row + 16 * m + 8 * half + lane / 4;
            const int own = query_segments && i < t ? query_segments[i] : -1;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int j = key + 8 * n + 2 * (lane % 4) + c;
                    bool sees = times.sees(i, j);
                    if (query_segments && sees) sees = own >= 0 && key_segments[j] == own;
                    if (!sees) scores[m][n][2 * half + c] = -INFINITY;
                }
            }
        }
    }
}

/* Scores become probabilities of a growing softmax; sums made so far are brought to the new scale. */
template <int columns>
SGL_DEVICE void soften(float (&scores)[KEYS / 8][4], float (&sums)[columns / 8][4], float (&top)[2], float (&total)[2],
                       float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = top[half], sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float from = most == -INFINITY ? 0 : most * scale;
        const float rescale = sgl_exp2(fmaf(top[half], scale, -from));
        top[half] = most;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; c++) {
                scores[n][c] = sgl_exp2(fmaf(scores[n][c], scale, -from));
                sum += scores[n][c];
            }
        }
        total[half] = fmaf(total[half], rescale, sum);
#pragma unroll
        for (int n = 0; n < columns / 8; n++) {
            sums[n][2 * half] *= rescale;
            sums[n][2 * half + 1] *= rescale;
        }
    }
}

/* A warp owns ROWS times 16 queries. */
template <class T, int columns, int ROWS>
SGL_DEVICE void attend(const uint16 *q, const uint16 *k, const uint16 *v, const int64 *offset_at,
                       const int *query_segments, const int *key_segments, uint16 *out, float *lse,
                       const sgl_attention &a)
{
    extern __shared__ sgl_shared shared[];
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 * ROWS;
    const uint32 at = sgl_shared_at(shared), tile_bytes = KEYS * columns * 2;
    const sgl_tile<columns> q_tile = { at }, first_key_tile = { at + QUERIES * columns * 2 };
    const int t = (int)a.t, d = (int)a.d, e = (int)a.e;
    const int64 offset = *offset_at, blocks = (t + QUERIES - 1) / QUERIES;
    const int64 q_row = a.h * d, k_row = a.g * d, v_row = a.g * e, o_row = a.h * e;
    const float scale = (float)(a.scale * LOG2_E);
    const sgl_times times = sgl_times_of(a, offset);
    for (int64 task = blockIdx.x; task < a.tasks; task += gridDim.x) {
        /* the last queries of a sequence see the most keys: they begin first */
        const int query = (int)(blocks - 1 - task % blocks) * QUERIES;
        const int64 head = task / blocks % a.h, b = task / blocks / a.h, group = head / (a.h / a.g);
        const int queries = t - query < QUERIES ? t - query : QUERIES;
        const uint16 *keys = k + (b * a.s * a.g + group) * d, *values = v + (b * a.s * a.g + group) * e;
        const int *own_segments = a.segmented ? query_segments + b * a.t : nullptr;
        const int *their_segments = a.segmented ? key_segments + b * a.s : nullptr;
        sgl_walk<KEYS> w = { their_segments, {}, (int)sgl_last_key(a, offset, query + queries - 1), false };
        if (a.segmented) w.own = sgl_segments_of(own_segments + query, queries);
        float scores[ROWS][KEYS / 8][4], sums[ROWS][columns / 8][4], top[ROWS][2], total[ROWS][2];
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
            top[m][0] = top[m][1] = -INFINITY;
            total[m][0] = total[m][1] = 0;
        }
        sgl_clear(sums);
        __syncthreads(); /* the task before is done with shared memory */
        q_tile.load(q + ((b * a.t + query) * a.h + head) * d, q_row, QUERIES, queries, d);
        int key = w.find((int)sgl_first_key(a, offset, query) / KEYS * KEYS), stage = 0;
        if (key < w.last) {
            first_key_tile.load(keys + key * k_row, k_row, KEYS, a.s - key, d);
            sgl_tile<columns>{ first_key_tile.at + 2 * tile_bytes }.load(values + key * v_row, v_row, KEYS, a.s - key,
                                                                         e);
        }
        while (key < w.last) {
            const sgl_tile<columns> k_tile = { first_key_tile.at + stage * tile_bytes };
            const sgl_tile<columns> v_tile = { first_key_tile.at + (2 + stage) * tile_bytes };
            const bool hidden = w.mixed || !times.all_see(query, query + queries, key, key + KEYS);
            const bool mixed = w.mixed;
            sgl_wait_copies();
            __syncthreads(); /* these tiles are whole; the others have been used */
            const int next = w.find(key + KEYS);
            if (next < w.last) {
                const sgl_tile<columns> k_next = { first_key_tile.at + (stage ^ 1) * tile_bytes };
                const sgl_tile<columns> v_next = { first_key_tile.at + (2 + (stage ^ 1)) * tile_bytes };
                k_next.load(keys + next * k_row, k_row, KEYS, a.s - next, d);
                v_next.load(values + next * v_row, v_row, KEYS, a.s - next, e);
            }
            sgl_row_products<T, columns, ROWS, KEYS>(scores, q_tile, row, k_tile, 0);
            if (hidden) hide<ROWS>(scores, times, query + row, t, key, mixed ? own_segments : nullptr, their_segments);
#pragma unroll
            for (int m = 0; m < ROWS; m++) soften<columns>(scores[m], sums[m], top[m], total[m], scale);
            sgl_weigh_rows<T, columns, ROWS, KEYS>(sums, scores, v_tile, 0);
            key = next;
            stage ^= 1;
        }
        sgl_wait_copies();
        __syncthreads(); /* no copy is under way into what the results pass through */
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float sum = total[m][half];
                sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                const float share = sum == 0 ? 0 : 1 / sum, from = top[m][half] == -INFINITY ? 0 : top[m][half] * scale;
                const int place = query + row + 16 * m + 8 * half + lane / 4;
                if (lane % 4 == 0 && place < t) lse[(b * a.h + head) * a.t + place] = fmaf(from, LN_2, logf(sum));
#pragma unroll
                for (int n = 0; n < columns / 8; n++) {
                    sums[m][n][2 * half] *= share;
                    sums[m][n][2 * half + 1] *= share;
                }
            }
            sgl_store_rows<T, columns>(q_tile, (char *)shared, row + 16 * m, sums[m],
                                       out + ((b * a.t + query) * a.h + head) * e, o_row, queries, e);
        }
    }
}

} /* namespace */

#define KERNEL(T, columns)                                                                                             \
    extern "C" __global__ void __launch_bounds__(SGL_TENSOR_THREADS_##columns)                                         \
        attention_tensor_##columns##_##T(const uint16 *q, const uint16 *k, const uint16 *v, const int64 *offset,       \
                                         const int *query_segments, const int *key_segments, uint16 *out, float *lse,  \
                                         sgl_attention a)                                                              \
    {                                                                                                                  \
        attend<T, columns, QUERIES * 2 / SGL_TENSOR_THREADS_##columns>(q, k, v, offset, query_segments, key_segments,  \
                                                                       out, lse, a);                                   \
    }

KERNEL(bf16, 64)
KERNEL(bf16, 128)
KERNEL(f16, 64)
KERNEL(f16, 128)
