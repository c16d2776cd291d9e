/* attention_group.cu -- attention of narrow floats by groups of four warps (sm_90a).
 *
 * A task is 128 queries of a head, 64 a group; tiles of 128 keys and their values come in two stages each. A group
 * starts the scores of the next tile and the product with the values of this one together, and makes probabilities of
 * the first while the second is under way; the two groups take turns, so that one multiplies while the other takes
 * exponentials (Shah et al., arXiv:2407.08608). Softmax in f32 by powers of two; probabilities are rounded to the dtype for
 * their product with v, and summed before. Tiles that no query sees, by time or by segment, are passed over. Odd
 * invariant: a tile that is passed over would have added zeros, so that segments change no order of sums. */
#include "attention_group.cuh"

#if SGL_HAS_GROUPS
namespace
{

const int QUERIES = SGL_GROUP_QUERIES, KEYS = SGL_GROUP_KEYS, COMPUTING = QUERIES / 64;
const double LOG2_E = 1.4426950408889634;
const float LN_2 = 0.6931471805599453f;

/* What lies where in shared memory, in bytes. */
template <int columns> struct room {
    typedef sgl_halves<columns, QUERIES> q_tile;
    typedef sgl_halves<columns, KEYS> k_tile;
    static const int q = 0, k = q_tile::bytes, v = k + 2 * k_tile::bytes, out = v + 2 * k_tile::bytes,
                     tasks = out + q_tile::bytes, passing = tasks + 2 * (int)sizeof(sgl_task),
                     barriers = passing + 2 * (int)sizeof(sgl_passing);
    static_assert(barriers + 14 * 8 <= SGL_GROUP_SHARED(columns), "");
    sgl_ring<1> queries;
    sgl_ring<2> keys, values;
    sgl_dealer dealer;
    __device__ __forceinline__ room(uint32 at, const char *shared)
    {
        const uint32 first = at + barriers;
        queries = { first };
        keys = { first + 16 };
        values = { first + 48 };
        dealer = { { first + 80 }, (const sgl_task *)(shared + tasks) };
    }
    __device__ __forceinline__ void init() const
    {
        queries.init(1, 4 * COMPUTING);
        keys.init(1, 4 * COMPUTING);
        values.init(1, 4 * COMPUTING);
        dealer.slots.init(1, 1 + 4 * COMPUTING);
    }
};

struct operands {
    const int *query_segments, *key_segments;
    int64 offset;
};

/* The tiles of keys that a task goes through. */
struct way {
    sgl_walk<KEYS> w;
    int query, queries, key;
    __device__ __forceinline__ way(const sgl_attention &a, const operands &o, const sgl_task &task)
    {
        query = task.block * QUERIES;
        queries = (int)a.t - query < QUERIES ? (int)a.t - query : QUERIES;
        w = { a.segmented ? o.key_segments + task.sequence * a.s : nullptr,
              {},
              (int)sgl_last_key(a, o.offset, query + queries - 1),
              false };
        if (a.segmented) w.own = sgl_segments_of(o.query_segments + task.sequence * a.t + query, queries);
        key = w.find((int)sgl_first_key(a, o.offset, query) / KEYS * KEYS);
    }
    __device__ __forceinline__ bool there() const { return key < w.last; }
    __device__ __forceinline__ void step() { key = w.find(key + KEYS); }
};

/* ---- loading ----------------------------------------------------------------------------------------------------- */

struct maps {
    const sgl_map &q, &k, &v;
};

/* By one warp. */
template <int columns>
SGL_DEVICE void feed(room<columns> &r, uint32 at, char *shared, const maps &m, const operands &o, uint32 *counter,
                     const sgl_attention &a)
{
    typedef room<columns> here;
    const uint32 blocks = (uint32)((a.t + QUERIES - 1) / QUERIES), shared_by = (uint32)(a.h / a.g);
    const uint32 rows = (uint32)(a.b * a.h), together = (uint32)a.together;
    const bool speaks = threadIdx.x == 0;
    sgl_passing *passing = (sgl_passing *)(shared + here::passing);
    for (int tasks = 0, tiles = 0;; tasks++) {
        if (speaks) r.dealer.deal(tasks, counter, blocks, (uint32)a.h, rows, together);
        __syncwarp();
        const sgl_task task = r.dealer.take(tasks);
        if (task.block < 0) break;
        const int group = (int)((uint32)task.head / shared_by);
        way x(a, o, task);
        r.queries.wait_empty(tasks);
        if (speaks) {
            sgl_barrier_expect(r.queries.full(tasks), here::q_tile::bytes);
            typename here::q_tile{ at + here::q }.load(m.q, task.head, x.query, task.sequence, r.queries.full(tasks));
        }
        if (!x.there()) {
            r.keys.wait_empty(tiles);
            r.values.wait_empty(tiles);
            if (speaks) {
                passing[r.keys.stage(tiles)] = { 0, SGL_PASSING_NONE };
                sgl_barrier_arrive(r.keys.full(tiles));
                sgl_barrier_arrive(r.values.full(tiles));
            }
            tiles++;
        }
        for (; x.there(); tiles++) {
            const int key = x.key, stage = r.keys.stage(tiles), mixed = x.w.mixed ? SGL_PASSING_MIXED : 0;
            x.step();
            r.keys.wait_empty(tiles);
            if (speaks) {
                passing[stage] = { key, mixed | (x.there() ? 0 : SGL_PASSING_LAST) };
                sgl_barrier_expect(r.keys.full(tiles), here::k_tile::bytes);
                typename here::k_tile{ at + here::k }.stage(stage).load(m.k, group, key, task.sequence,
                                                                        r.keys.full(tiles));
            }
            r.values.wait_empty(tiles);
            if (speaks) {
                sgl_barrier_expect(r.values.full(tiles), here::k_tile::bytes);
                typename here::k_tile{ at + here::v }.stage(stage).load(m.v, group, key, task.sequence,
                                                                        r.values.full(tiles));
            }
        }
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Scores of keys that a query does not see. keys: of the thread's first column; queries: of its first row. */
SGL_DEVICE void hide_times(float (&scores)[KEYS / 8][4], const sgl_times &times, int query, int key)
{
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (!times.sees(query + 8 * (c / 2), key + 8 * n + c % 2)) scores[n][c] = -INFINITY;
}
SGL_DEVICE void hide_segments(float (&scores)[KEYS / 8][4], const sgl_attention &a, const operands &o,
                              const sgl_task &task, int query, int key)
{
    const int *theirs = o.key_segments + task.sequence * a.s, *own = o.query_segments + task.sequence * a.t;
    const int above = query < (int)a.t ? own[query] : -1, below = query + 8 < (int)a.t ? own[query + 8] : -1;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int j = key + 8 * n + c, segment = j < (int)a.s ? theirs[j] : -1;
            if (segment < 0 || segment != above) scores[n][c] = -INFINITY;
            if (segment < 0 || segment != below) scores[n][2 + c] = -INFINITY;
        }
}

/* Scores become probabilities of a growing softmax; rescale: what sums made so far are to be multiplied by. */
SGL_DEVICE void soften(float (&scores)[KEYS / 8][4], float (&top)[2], float (&total)[2], float (&rescale)[2],
                       float scale)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = top[half], also = scores[0][2 * half + 1];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            most = fmaxf(most, scores[n][2 * half]);
            also = fmaxf(also, scores[n][2 * half + 1]);
        }
        most = fmaxf(most, also);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float from = most == -INFINITY ? 0 : most * scale;
        rescale[half] = sgl_exp2(fmaf(top[half], scale, -from));
        top[half] = most;
        float sum = 0, other = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            scores[n][2 * half] = sgl_exp2(fmaf(scores[n][2 * half], scale, -from));
            scores[n][2 * half + 1] = sgl_exp2(fmaf(scores[n][2 * half + 1], scale, -from));
            sum += scores[n][2 * half];
            other += scores[n][2 * half + 1];
        }
        total[half] = fmaf(total[half], rescale[half], sum + other);
    }
}

/* The groups take turns: barrier 1 + g lets group g start products. */
struct turns {
    int own, next;
    __device__ __forceinline__ void wait() const { sgl_meet<2 * SGL_GROUP>(own); }
    __device__ __forceinline__ void pass() const { sgl_pass_on<2 * SGL_GROUP>(next); }
};

template <class T, int columns>
SGL_DEVICE void compute(room<columns> &r, uint32 at, char *shared, const operands &o, uint16 *out, float *lse,
                        const sgl_attention &a)
{
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / SGL_GROUP - 1;
    const int row = (int)threadIdx.x % SGL_GROUP / 32 * 16 + 64 * group;
    const int t = (int)a.t, e = (int)a.e;
    const float scale = (float)(a.scale * LOG2_E);
    const sgl_times times = sgl_times_of(a, o.offset);
    const typename room<columns>::q_tile q_tile = { at + room<columns>::q };
    const typename room<columns>::k_tile k_tile = { at + room<columns>::k }, v_tile = { at + room<columns>::v };
    char *own_room = shared + room<columns>::out + row * columns * 2;
    const sgl_passing *passing = (const sgl_passing *)(shared + room<columns>::passing);
    const turns turn = { 1 + group, 1 + (group + 1) % COMPUTING };
    if (group == COMPUTING - 1) turn.pass();
    const auto hide = [&](float(&scores)[KEYS / 8][4], const sgl_task &task, const sgl_passing &x) {
        const int first = task.block * QUERIES + 64 * group;
        const int query = task.block * QUERIES + row + lane / 4, key = x.first + 2 * (lane % 4);
        if (x.says & SGL_PASSING_MIXED) hide_segments(scores, a, o, task, query, key);
        if (!times.all_see(first, first + 64, x.first, x.first + KEYS)) hide_times(scores, times, query, key);
    };
    for (int tasks = 0, tiles = 0;; tasks++) {
        const sgl_task task = r.dealer.take(tasks);
        if (task.block < 0) break;
        const int query = task.block * QUERIES;
        float scores[KEYS / 8][4], sums[columns / 8][4], top[2] = { -INFINITY, -INFINITY }, total[2] = { 0, 0 };
        float rescale[2];
        uint32 weights[KEYS / 16][4];
#pragma unroll
        for (int n = 0; n < columns / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) sums[n][c] = 0;
        r.queries.wait_full(tasks);
        r.keys.wait_full(tiles);
        sgl_passing x = passing[r.keys.stage(tiles)];
        if (x.says != SGL_PASSING_NONE) {
            turn.wait();
            sgl_start_sides<T>(scores, q_tile, 64 * group, k_tile.stage(r.keys.stage(tiles)));
            turn.pass();
            sgl_wait_products<0>(scores);
            sgl_barrier_arrive_warp(r.keys.empty(tiles));
            hide(scores, task, x);
            soften(scores, top, total, rescale, scale);
            sgl_pack<T>(weights, scores);
            while (!(x.says & SGL_PASSING_LAST)) {
                r.keys.wait_full(tiles + 1);
                x = passing[r.keys.stage(tiles + 1)];
                turn.wait();
                sgl_start_sides<T>(scores, q_tile, 64 * group, k_tile.stage(r.keys.stage(tiles + 1)));
                r.values.wait_full(tiles);
                sgl_start_weighing<T>(sums, weights, v_tile.stage(r.values.stage(tiles)));
                turn.pass();
                sgl_wait_products<1>(scores);
                sgl_barrier_arrive_warp(r.keys.empty(tiles + 1));
                hide(scores, task, x);
                soften(scores, top, total, rescale, scale);
                sgl_wait_products<0>(sums);
                sgl_barrier_arrive_warp(r.values.empty(tiles));
                sgl_pack<T>(weights, scores);
#pragma unroll
                for (int n = 0; n < columns / 8; n++)
#pragma unroll
                    for (int c = 0; c < 4; c++) sums[n][c] *= rescale[c / 2];
                tiles++;
            }
            sgl_barrier_arrive_warp(r.queries.empty(tasks));
            r.values.wait_full(tiles);
            sgl_start_weighing<T>(sums, weights, v_tile.stage(r.values.stage(tiles)));
            sgl_wait_products<0>(sums);
        } else {
            sgl_barrier_arrive_warp(r.queries.empty(tasks));
            sgl_barrier_arrive_warp(r.keys.empty(tiles));
            r.values.wait_full(tiles);
        }
        sgl_barrier_arrive_warp(r.values.empty(tiles));
        tiles++;
        float share[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = total[half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            share[half] = sum == 0 ? 0 : 1 / sum;
            const float from = top[half] == -INFINITY ? 0 : top[half] * scale;
            const int place = query + row + 8 * half + lane / 4;
            if (lane % 4 == 0 && place < t)
                lse[((int64)task.sequence * a.h + task.head) * t + place] = fmaf(from, LN_2, logf(sum));
        }
        sgl_store_group_rows<T, columns>(own_room, sums, share[0], share[1],
                                         out + ((task.sequence * a.t + query + row) * a.h + task.head) * e, a.h * e,
                                         t - query - row, e);
    }
    if (group == 0) turn.wait(); /* takes back what the last group passed on */
}

template <class T, int columns>
SGL_DEVICE void attend(const operands &o, const maps &m, uint16 *out, float *lse, uint32 *counter,
                       const sgl_attention &a)
{
    extern __shared__ sgl_shared shared[];
    const uint32 at = sgl_shared_at(shared);
    room<columns> r(at, (const char *)shared);
    if (threadIdx.x == 0) r.init();
    __syncthreads();
    if (threadIdx.x < SGL_GROUP) {
        sgl_give_registers<40>();
        if (threadIdx.x < 32) feed<columns>(r, at, (char *)shared, m, o, counter, a);
    } else {
        sgl_take_registers<232>();
        compute<T, columns>(r, at, (char *)shared, o, out, lse, a);
    }
}

} /* namespace */
#endif

#if SGL_HAS_GROUPS
#define ATTEND(T, columns)                                                                                             \
    attend<T, columns>({ query_segments, key_segments, *offset }, { q, k, v }, out, lse, counter, a)
#else
#define ATTEND(T, columns)
#endif
#define KERNEL(T, columns)                                                                                             \
    extern "C" __global__ void __launch_bounds__(SGL_GROUP_THREADS, 1)                                                 \
        attention_group_##columns##_##T(const int64 *offset, const int *query_segments, const int *key_segments,       \
                                        uint16 *out, float *lse, uint32 *counter, const __grid_constant__ sgl_map q,   \
                                        const __grid_constant__ sgl_map k, const __grid_constant__ sgl_map v,          \
                                        sgl_attention a)                                                               \
    {                                                                                                                  \
        ATTEND(T, columns);                                                                                            \
    }

KERNEL(bf16, 64)
KERNEL(bf16, 128)
KERNEL(f16, 64)
KERNEL(f16, 128)
