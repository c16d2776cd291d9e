/* attention_group_grad.cu -- the gradient of attention of narrow floats by groups of four warps (sm_90a).
 *
 * A task is 128 keys of a group of heads, 64 a group of warps; tiles of queries pass by, of one head after another.
 * Scores and slopes are made turned, keys as rows, so that they go from registers into the products for dv and dk,
 * which stay in registers; slopes go through shared memory too, for dq's product. That is five products a tile. A
 * tile's part of dq is added to a sum in f32 in memory, in the order of blocks of keys, the last first: a counter of
 * each tile of queries says whose turn it is, so that bits repeat. Of what is causal the last block is at each tile first
 * by itself. A last kernel rounds the sums to dq. Odd invariant: a task waits for tasks alone that were dealt before
 * it, so that it waits for none that has not begun. */
#include "attention_group.cuh"

namespace
{
const int KEYS = SGL_GROUP_KEYS, COMPUTING = KEYS / 64;
}

#if SGL_HAS_GROUPS
namespace
{

const double LOG2_E = 1.4426950408889634;
enum { MEET_SLOPES = 1 }; /* a barrier of the processor */

/* What lies where in shared memory, in bytes. STAGES: of keys and values; tiles of queries have two. */
template <int columns> struct room {
    static const int QUERIES = SGL_GROUP_PASSING(columns), STAGES = columns == 64 ? 2 : 1;
    typedef sgl_halves<columns, KEYS> k_tile;
    typedef sgl_halves<columns, QUERIES> q_tile;
    typedef sgl_halves<QUERIES, KEYS> slope_tile; /* rows are keys */
    static const int k = 0, v = k + STAGES * k_tile::bytes, q = v + STAGES * k_tile::bytes,
                     dout = q + 2 * q_tile::bytes, slopes = dout + 2 * q_tile::bytes,
                     part = slopes + 2 * slope_tile::bytes, part_bytes = QUERIES * columns * 4,
                     stats = part + part_bytes, stats_bytes = 2 * QUERIES * 4, tasks = stats + 2 * stats_bytes,
                     passing = tasks + 2 * (int)sizeof(sgl_task), barriers = passing + 2 * (int)sizeof(sgl_passing);
    static_assert(barriers + 20 * 8 <= SGL_GROUP_SHARED_GRAD(columns), "");
    sgl_ring<STAGES> block;     /* keys and values */
    sgl_ring<2> queries, douts; /* with logs of sums, with deltas */
    sgl_ring<2> parts;          /* of dq: filled by those who compute */
    sgl_dealer dealer;
    __device__ __forceinline__ room(uint32 at, const char *shared)
    {
        const uint32 first = at + barriers;
        block = { first };
        queries = { first + 32 };
        douts = { first + 64 };
        parts = { first + 96 };
        dealer = { { first + 128 }, (const sgl_task *)(shared + tasks) };
    }
    __device__ __forceinline__ void init() const
    {
        block.init(1, 4 * COMPUTING);
        queries.init(1, 4 * COMPUTING);
        douts.init(1, 4 * COMPUTING);
        parts.init(4 * COMPUTING, 1);
        dealer.slots.init(1, 3 + 4 * COMPUTING);
    }
};

struct operands {
    const float *stats, *deltas; /* logs to the base 2 of sums, and deltas: [b, h, queries in whole tiles] */
    const int *query_segments, *key_segments;
    int64 offset;
};

/* The tiles of queries that pass by a task's keys, head after head. */
template <int QUERIES> struct way {
    sgl_walk<QUERIES> w;
    int key, keys, first, query, head, heads_end;
    bool first_mixed;
    __device__ __forceinline__ way(const sgl_attention &a, const operands &o, const sgl_task &task)
    {
        const int shared_by = (int)(a.h / a.g);
        key = task.block * KEYS;
        keys = (int)a.s - key < KEYS ? (int)a.s - key : KEYS;
        w = { a.segmented ? o.query_segments + task.sequence * a.t : nullptr,
              {},
              (int)sgl_last_query(a, o.offset, key + keys - 1),
              false };
        if (a.segmented) w.own = sgl_segments_of(o.key_segments + task.sequence * a.s + key, keys);
        const int seen = (int)sgl_first_query(a, o.offset, key);
        first = query = seen < (int)a.t ? w.find(seen / QUERIES * QUERIES) : w.last;
        first_mixed = w.mixed;
        head = task.head * shared_by;
        heads_end = first < w.last ? head + shared_by : head;
    }
    __device__ __forceinline__ bool there() const { return head < heads_end; }
    __device__ __forceinline__ void step()
    {
        query = w.find(query + QUERIES);
        if (query >= w.last) query = first, w.mixed = first_mixed, head++;
    }
};

/* ---- loading ----------------------------------------------------------------------------------------------------- */

struct maps {
    const sgl_map &q, &k, &v, &dout;
};

/* By one warp. */
template <int columns>
SGL_DEVICE void feed(room<columns> &r, uint32 at, char *shared, const maps &m, const operands &o, uint32 *counter,
                     const sgl_attention &a)
{
    typedef room<columns> here;
    const int QUERIES = here::QUERIES;
    const uint32 blocks = (uint32)((a.s + KEYS - 1) / KEYS), rows = (uint32)(a.b * a.g), together = (uint32)a.together;
    const int padded = ((int)a.t + QUERIES - 1) / QUERIES * QUERIES;
    const bool speaks = threadIdx.x == 0;
    sgl_passing *passing = (sgl_passing *)(shared + here::passing);
    for (int tasks = 0, tiles = 0;; tasks++) {
        if (speaks) r.dealer.deal(tasks, counter, blocks, (uint32)a.g, rows, together);
        __syncwarp();
        const sgl_task task = r.dealer.take(tasks);
        if (task.block < 0) break;
        way<QUERIES> x(a, o, task);
        r.block.wait_empty(tasks);
        if (speaks) {
            const int stage = r.block.stage(tasks);
            sgl_barrier_expect(r.block.full(tasks), 2 * here::k_tile::bytes);
            typename here::k_tile{ at + here::k }.stage(stage).load(m.k, task.head, x.key, task.sequence,
                                                                    r.block.full(tasks));
            typename here::k_tile{ at + here::v }.stage(stage).load(m.v, task.head, x.key, task.sequence,
                                                                    r.block.full(tasks));
        }
        if (!x.there()) {
            r.queries.wait_empty(tiles);
            r.douts.wait_empty(tiles);
            if (speaks) {
                passing[r.queries.stage(tiles)] = { 0, SGL_PASSING_NONE };
                sgl_barrier_arrive(r.queries.full(tiles));
                sgl_barrier_arrive(r.douts.full(tiles));
            }
            tiles++;
        }
        for (; x.there(); tiles++) {
            const int query = x.query, head = x.head, stage = r.queries.stage(tiles);
            const int mixed = x.w.mixed ? SGL_PASSING_MIXED : 0;
            const int64 numbers = (task.sequence * a.h + head) * padded + query;
            const uint32 stats = at + here::stats + (uint32)(stage * here::stats_bytes);
            x.step();
            r.queries.wait_empty(tiles);
            if (speaks) {
                passing[stage] = { query, mixed | (x.there() ? 0 : SGL_PASSING_LAST) };
                sgl_barrier_expect(r.queries.full(tiles), here::q_tile::bytes + QUERIES * 4);
                typename here::q_tile{ at + here::q }.stage(stage).load(m.q, head, query, task.sequence,
                                                                        r.queries.full(tiles));
                sgl_load_numbers(stats, o.stats + numbers, QUERIES * 4, r.queries.full(tiles));
            }
            r.douts.wait_empty(tiles);
            if (speaks) {
                sgl_barrier_expect(r.douts.full(tiles), here::q_tile::bytes + QUERIES * 4);
                typename here::q_tile{ at + here::dout }.stage(stage).load(m.dout, head, query, task.sequence,
                                                                           r.douts.full(tiles));
                sgl_load_numbers(stats + QUERIES * 4, o.deltas + numbers, QUERIES * 4, r.douts.full(tiles));
            }
        }
    }
}

/* ---- the sum for dq ---------------------------------------------------------------------------------------------- */

SGL_DEVICE void add_part(float *to, uint32 from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
SGL_DEVICE void put_part(float *to, uint32 from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}
SGL_DEVICE uint32 read_turn(const uint32 *at)
{
    uint32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}
SGL_DEVICE void set_turn(uint32 *at, uint32 x)
{
    asm volatile("fence.acq_rel.gpu;\n\tst.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}

/* By two warps, of which each takes every other part: one waits for its copy's end while the other begins. Tiles that
 * the task passes over are passed on, since the next in order waits for their turn too. What comes first is put and
 * not added, unless segments may pass over it: then the sums are zeros before. */
template <int columns>
SGL_DEVICE void hand_on(room<columns> &r, uint32 at, const operands &o, float *sums, uint32 *turns, int which,
                        const sgl_attention &a)
{
    typedef room<columns> here;
    const int QUERIES = here::QUERIES, t = (int)a.t;
    const int along = (t + QUERIES - 1) / QUERIES, shared_by = (int)(a.h / a.g);
    const bool speaks = threadIdx.x % 32 == 0;
    for (int tasks = 0, parts = 0;; tasks++) {
        const sgl_task task = r.dealer.take(tasks);
        if (task.block < 0) break;
        way<QUERIES> x(a, o, task);
        if (!x.there()) {
            if (parts % 2 == which) {
                r.parts.wait_full(parts);
                if (speaks) sgl_barrier_arrive(r.parts.empty(parts));
            }
            parts++;
        }
        const int seen = (int)sgl_first_query(a, o.offset, x.key), first = seen < t ? seen / QUERIES * QUERIES : t;
        for (int head = task.head * shared_by; head < (task.head + 1) * shared_by; head++) {
            for (int query = first; query < x.w.last; query += QUERIES) {
                const bool visited = x.there() && x.head == head && x.query == query;
                if (visited ? parts % 2 == which : which == 0) {
                    const int64 tile = (task.sequence * a.h + head) * along + query / QUERIES;
                    const int last_query = (query + QUERIES < t ? query + QUERIES : t) - 1;
                    const uint32 turn = (uint32)((sgl_last_key(a, o.offset, last_query) - 1) / KEYS - task.block);
                    if (visited) r.parts.wait_full(parts);
                    if (speaks) {
                        while (read_turn(turns + tile) != turn) __nanosleep(20);
                        if (visited) {
                            const uint32 part = at + here::part;
                            float *to = sums + tile * (QUERIES * columns);
                            asm volatile("fence.proxy.async;" ::: "memory");
                            if (turn == 0 && !a.segmented)
                                put_part(to, part, here::part_bytes);
                            else
                                add_part(to, part, here::part_bytes);
                            asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::
                                             : "memory");
                            sgl_barrier_arrive(r.parts.empty(parts));
                            asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async;" ::: "memory");
                        }
                        set_turn(turns + tile, turn + 1);
                    }
                    __syncwarp();
                }
                if (visited) {
                    parts++;
                    x.step();
                }
            }
        }
    }
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Probabilities of pairs that do not see each other: rows are keys, columns queries. */
template <int N> SGL_DEVICE void hide_times(float (&p)[N][4], const sgl_times &times, int key, int query)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (!times.sees(query + 8 * n + c % 2, key + 8 * (c / 2))) p[n][c] = 0;
}
template <int N>
SGL_DEVICE void hide_segments(float (&p)[N][4], const sgl_attention &a, const operands &o, const sgl_task &task,
                              int key, int query)
{
    const int *theirs = o.query_segments + task.sequence * a.t, *own = o.key_segments + task.sequence * a.s;
    const int above = key < (int)a.s ? own[key] : -1, below = key + 8 < (int)a.s ? own[key + 8] : -1;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int i = query + 8 * n + c, segment = i < (int)a.t ? theirs[i] : -1;
            if (segment < 0 || segment != above) p[n][c] = 0;
            if (segment < 0 || segment != below) p[n][2 + c] = 0;
        }
}

/* A group's slopes, where all products for dq find them. */
template <int QUERIES>
SGL_DEVICE void put_slopes(const sgl_halves<QUERIES, KEYS> &tile, int row, const uint32 (&slopes)[QUERIES / 16][4])
{
    const int lane = (int)threadIdx.x % 32, own = row + lane % 16;
#pragma unroll
    for (int x = 0; x < QUERIES / 16; x++) {
        const int u = 2 * x + lane / 16;
        const uint32 to = tile.at + (uint32)(u / 8 * tile.half_bytes + own * 128 + ((u ^ own) & 7) * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(slopes[x][0]),
                     "r"(slopes[x][1]), "r"(slopes[x][2]), "r"(slopes[x][3])
                     : "memory");
    }
}

/* Until the part of dq before has been copied from the one place that there is. */
template <int columns> SGL_DEVICE void wait_for_room(const room<columns> &r, int n)
{
    if (n > 0) sgl_barrier_wait(r.parts.empty(n - 1), (n - 1) / 2 & 1);
}

template <class T, int columns>
SGL_DEVICE void compute(room<columns> &r, uint32 at, char *shared, const operands &o, uint16 *dk, uint16 *dv,
                        const sgl_attention &a)
{
    typedef room<columns> here;
    const int QUERIES = here::QUERIES;
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / SGL_GROUP - 1;
    const int thread = (int)threadIdx.x - SGL_GROUP, row = thread / 32 * 16;
    const int s = (int)a.s, d = (int)a.d, e = (int)a.e;
    const float scale = (float)(a.scale * LOG2_E), slope_scale = (float)a.scale;
    const sgl_times times = sgl_times_of(a, o.offset);
    const typename here::slope_tile first_slopes = { at + here::slopes };
    const sgl_passing *passing = (const sgl_passing *)(shared + here::passing);
    for (int tasks = 0, tiles = 0;; tasks++) {
        const sgl_task task = r.dealer.take(tasks);
        if (task.block < 0) break;
        const int key = task.block * KEYS;
        const typename here::k_tile k_tile = typename here::k_tile{ at + here::k }.stage(r.block.stage(tasks));
        const typename here::k_tile v_tile = typename here::k_tile{ at + here::v }.stage(r.block.stage(tasks));
        float key_sums[columns / 8][4], value_sums[columns / 8][4];
#pragma unroll
        for (int n = 0; n < columns / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) key_sums[n][c] = value_sums[n][c] = 0;
        r.block.wait_full(tasks);
        sgl_passing x = { 0, 0 };
        for (; !(x.says & SGL_PASSING_LAST); tiles++) {
            const int stage = r.queries.stage(tiles);
            const typename here::q_tile q_tile = typename here::q_tile{ at + here::q }.stage(stage);
            const typename here::q_tile dout_tile = typename here::q_tile{ at + here::dout }.stage(stage);
            const float *stats = (const float *)(shared + here::stats + stage * here::stats_bytes) + 2 * (lane % 4);
            const typename here::slope_tile slope_tile = first_slopes.stage(stage);
            float p[QUERIES / 8][4], slopes[QUERIES / 8][4], part[8][4];
            uint32 weights[QUERIES / 16][4];
            r.queries.wait_full(tiles);
            x = passing[stage];
            if (x.says & SGL_PASSING_NONE) {
                r.douts.wait_full(tiles);
                sgl_barrier_arrive_warp(r.queries.empty(tiles));
                sgl_barrier_arrive_warp(r.douts.empty(tiles));
                wait_for_room(r, tiles);
                sgl_barrier_arrive_warp(r.parts.full(tiles));
                tiles++;
                break;
            }
            sgl_start_sides<T>(p, k_tile, 64 * group, q_tile);
            r.douts.wait_full(tiles);
            sgl_start_sides<T>(slopes, v_tile, 64 * group, dout_tile);
            sgl_wait_products<1>(p);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const float log_sum = stats[8 * n + c];
                    p[n][c] = sgl_exp2(fmaf(p[n][c], scale, -log_sum));
                    p[n][2 + c] = sgl_exp2(fmaf(p[n][2 + c], scale, -log_sum));
                }
            }
            if (x.says & SGL_PASSING_MIXED)
                hide_segments(p, a, o, task, key + row + lane / 4, x.first + 2 * (lane % 4));
            if (!times.all_see(x.first, x.first + QUERIES, key + 64 * group, key + 64 * group + 64))
                hide_times(p, times, key + row + lane / 4, x.first + 2 * (lane % 4));
            sgl_wait_products<0>(slopes);
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const float delta = stats[QUERIES + 8 * n + c];
                    slopes[n][c] = p[n][c] * (slopes[n][c] - delta);
                    slopes[n][2 + c] = p[n][2 + c] * (slopes[n][2 + c] - delta);
                }
            }
            sgl_pack<T>(weights, p);
            sgl_start_weighing<T>(value_sums, weights, dout_tile);
            uint32 turned[QUERIES / 16][4];
            sgl_pack<T>(turned, slopes);
            put_slopes<QUERIES>(slope_tile, row, turned);
            sgl_show();
            sgl_meet<COMPUTING * SGL_GROUP>(MEET_SLOPES); /* slopes of all keys are there */
            /* queries of the group's own half, or all of them and the half's columns */
            const typename here::slope_tile mine = { slope_tile.at +
                                                     (QUERIES == 128 ? group * slope_tile.half_bytes : 0) };
            sgl_start_products();
            sgl_group<T>::multiply_turned(part, mine.across(0), k_tile.across(0, columns == 128 ? group : 0));
#pragma unroll
            for (int y = 1; y < KEYS / 16; y++)
                sgl_group<T>::multiply_turned_more(part, mine.across(16 * y),
                                                   k_tile.across(16 * y, columns == 128 ? group : 0));
            sgl_commit_products();
            sgl_start_weighing<T>(key_sums, turned, q_tile);
            sgl_wait_products<1>(part);
            sgl_hold(value_sums);
            sgl_barrier_arrive_warp(r.douts.empty(tiles));
            wait_for_room(r, tiles);
#pragma unroll
            for (int n = 0; n < 8; n++)
                *(float4 *)(shared + here::part + (n * (COMPUTING * SGL_GROUP) + thread) * 16) =
                    make_float4(part[n][0], part[n][1], part[n][2], part[n][3]);
            sgl_show();
            sgl_barrier_arrive_warp(r.parts.full(tiles));
            sgl_wait_products<0>(key_sums);
            sgl_barrier_arrive_warp(r.queries.empty(tiles));
        }
        /* results pass through the block's keys and values, which nobody reads any more */
        sgl_meet<COMPUTING * SGL_GROUP>(MEET_SLOPES);
        char *own_room = shared + (v_tile.at - at) + row * columns * 2;
        const int64 place = (task.sequence * a.s + key + row) * a.g + task.head;
        sgl_store_group_rows<T, columns>(own_room, value_sums, 1, 1, dv + place * e, a.g * e, s - key - row, e);
        sgl_store_group_rows<T, columns>(own_room, key_sums, slope_scale, slope_scale, dk + place * d, a.g * d,
                                         s - key - row, d);
        sgl_show(); /* what passed through, before copies over it */
        sgl_barrier_arrive_warp(r.block.empty(tasks));
    }
}

template <class T, int columns>
SGL_DEVICE void gradients(const operands &o, const maps &m, uint32 *counter, uint32 *turns, float *sums, uint16 *dk,
                          uint16 *dv, const sgl_attention &a)
{
    extern __shared__ sgl_shared shared[];
    const uint32 at = sgl_shared_at(shared);
    room<columns> r(at, (const char *)shared);
    if (threadIdx.x == 0) r.init();
    __syncthreads();
    if (threadIdx.x >= SGL_GROUP) {
        sgl_take_registers<232>();
        compute<T, columns>(r, at, (char *)shared, o, dk, dv, a);
    } else {
        sgl_give_registers<40>();
        if (threadIdx.x < 32) feed<columns>(r, at, (char *)shared, m, o, counter, a);
        if (threadIdx.x >= SGL_GROUP - 64) hand_on<columns>(r, at, o, sums, turns, (int)threadIdx.x / 32 % 2, a);
    }
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */

/* dq of a tile of queries, from numbers as the computing threads left them. */
template <class T, int columns>
SGL_DEVICE void finish(const float *sums, const int64 *offset, uint16 *dq, const sgl_attention &a)
{
    const int QUERIES = SGL_GROUP_PASSING(columns), thread = (int)threadIdx.x, lane = thread % 32;
    const int t = (int)a.t, d = (int)a.d, tiles = (t + QUERIES - 1) / QUERIES;
    __shared__ alignas(16) char shared[COMPUTING * 64 * 128];
    for (int64 tile = blockIdx.x; tile < a.tasks; tile += gridDim.x) {
        const int query = (int)(tile % tiles) * QUERIES, head = (int)(tile / tiles % a.h);
        const int64 sequence = tile / tiles / a.h;
        const int last_query = (query + QUERIES < t ? query + QUERIES : t) - 1;
        const bool any = sgl_first_key(a, *offset, query) < sgl_last_key(a, *offset, last_query);
        const int group = thread / SGL_GROUP, row = thread % SGL_GROUP / 32 * 16 + (columns == 64 ? 64 * group : 0);
        const int column = columns == 64 ? 0 : 64 * group;
        float part[8][4];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float4 x = make_float4(0, 0, 0, 0);
            if (any) x = ((const float4 *)(sums + tile * (QUERIES * columns)))[n * (COMPUTING * SGL_GROUP) + thread];
            part[n][0] = x.x, part[n][1] = x.y, part[n][2] = x.z, part[n][3] = x.w;
        }
        sgl_store_group_rows<T, 64>(shared + (thread - lane) / 32 * 2048, part, (float)a.scale, (float)a.scale,
                                    dq + ((sequence * t + query + row) * a.h + head) * d + column, a.h * d,
                                    t - query - row, d - column);
    }
}

/* ---- deltas ------------------------------------------------------------------------------------------------------ */

/* delta = sum of out * dout over a row, which columns / 8 threads share, 8 numbers each; logs of sums to the base 2;
 * zeros for the counter of tasks and the turns of tiles. */
template <class T, int columns>
SGL_DEVICE void prepare(const uint16 *out, const uint16 *dout, const float *lse, float *delta, float *stats,
                        uint32 *zeros, const sgl_attention &a)
{
    const int share = columns / 8, rows = SGL_TENSOR_THREADS_DELTAS / share, u = (int)threadIdx.x % share;
    const int64 count = a.b * a.t * a.h, thread = (int64)blockIdx.x * SGL_TENSOR_THREADS_DELTAS + threadIdx.x;
    const int64 step = (int64)gridDim.x * SGL_TENSOR_THREADS_DELTAS;
    const int QUERIES = SGL_GROUP_PASSING(columns);
    const int64 tiles = (a.t + QUERIES - 1) / QUERIES, padded = tiles * QUERIES, beyond = padded - a.t;
    for (int64 i = thread; i < SGL_GROUP_COUNTERS + a.b * a.h * tiles; i += step) zeros[i] = 0;
    for (int64 i = thread; i < a.b * a.h * beyond; i += step)
        delta[i / beyond * padded + a.t + i % beyond] = stats[i / beyond * padded + a.t + i % beyond] = 0;
    for (int64 first = (int64)blockIdx.x * rows; first < count; first += (int64)gridDim.x * rows) {
        const int64 row = first + threadIdx.x / share;
        const float sum = sgl_row_delta<T, columns / 8>(out, dout, row * a.e + u * 8, row < count && u * 8 < a.e);
        if (row < count && u == 0) {
            const int64 of_head = row / a.h / a.t * a.h + row % a.h, query = row / a.h % a.t;
            delta[of_head * padded + query] = sum;
            stats[of_head * padded + query] = lse[of_head * a.t + query] * (float)LOG2_E;
        }
    }
}

} /* namespace */
#endif

#if SGL_HAS_GROUPS
#define IF_GROUPS(call) call
#else
#define IF_GROUPS(call)
#endif
#define KERNELS(T, columns)                                                                                            \
    extern "C" __global__ void __launch_bounds__(SGL_TENSOR_THREADS_DELTAS)                                            \
        attention_group_deltas_##columns##_##T(const uint16 *out, const uint16 *dout, const float *lse, float *delta,  \
                                               float *stats, uint32 *zeros, sgl_attention a)                           \
    {                                                                                                                  \
        IF_GROUPS((prepare<T, columns>(out, dout, lse, delta, stats, zeros, a)));                                      \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGL_GROUP_THREADS, 1) attention_group_grad_##columns##_##T(           \
        const float *stats, const float *delta, const int64 *offset, const int *query_segments,                        \
        const int *key_segments, uint16 *dk, uint16 *dv, float *sums, uint32 *counters,                                \
        const __grid_constant__ sgl_map q, const __grid_constant__ sgl_map k, const __grid_constant__ sgl_map v,       \
        const __grid_constant__ sgl_map dout, sgl_attention a)                                                         \
    {                                                                                                                  \
        IF_GROUPS((gradients<T, columns>({ stats, delta, query_segments, key_segments, *offset }, { q, k, v, dout },   \
                                         counters, counters + SGL_GROUP_COUNTERS, sums, dk, dv, a)));                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(COMPUTING *SGL_GROUP)                                                 \
        attention_group_finish_##columns##_##T(const float *sums, const int64 *offset, uint16 *dq, sgl_attention a)    \
    {                                                                                                                  \
        IF_GROUPS((finish<T, columns>(sums, offset, dq, a)));                                                          \
    }

KERNELS(bf16, 64)
KERNELS(bf16, 128)
KERNELS(f16, 64)
KERNELS(f16, 128)
