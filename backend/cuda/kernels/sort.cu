/* sort.cu -- lines of elements in order: keys whose order is that of the numbers, sorted together with where they
 * stood.
 *
 * A number becomes an unsigned key: of an integer the number itself, shifted; of a float its bits, those of negative
 * ones turned round, with -0 as 0 and NaN as the greatest; descending, all but NaN's are turned round once more. Short
 * lines are sorted by one block in shared memory (Batcher's bitonic network, by key and then by place, which is stable
 * because no two places are equal), several lines side by side; long ones a byte of the key at a time from the least:
 * tiles count their digits, the counts of all tiles are summed up, tiles put their entries where they go. Odd
 * invariant: within a tile a warp owns a run of entries, and warps, and lanes of each round, are counted in their
 * order, so that equal digits keep theirs. */
#include "index.cuh"
#include "sort.h"

/* ---- keys -------------------------------------------------------------------------------------------------------- */

SGL_DEVICE uint64 order_code(const void *x, int bits, int64 i)
{
    switch (bits) {
    case 64: return ((const uint64 *)x)[i];
    case 32: return ((const uint32 *)x)[i];
    case 16: return ((const uint16 *)x)[i];
    case 8: return ((const uint8 *)x)[i];
    default: return (uint64)i4::load(x, i) & 15u;
    }
}

/* Of element i. */
SGL_DEVICE uint64 order_key(const void *x, const sglcuda_order_values &v, int64 i)
{
    if (v.kind == SGLCUDA_KEY_ROW) {
        const int64 row = sgl_index(x, v.index_kind, i);
        return (uint64)(row >= 0 && row < v.rows ? row : v.rows);
    }
    const uint64 all = ~(uint64)0 >> (64 - v.bits), sign = (uint64)1 << (v.bits - 1);
    uint64 code = order_code(x, v.bits, i);
    if (v.kind == SGLCUDA_KEY_FLOAT) {
        const uint64 magnitude = code & ~sign;
        if (magnitude > v.infinity) return all;
        if (magnitude == 0) code = 0;
        code = code & sign ? ~code & all : code | sign;
    } else if (v.kind == SGLCUDA_KEY_SIGNED) {
        code ^= sign;
    }
    return v.descending ? ~code & all : code;
}

/* Entry `at` of a line, as an element of the tensor. */
SGL_DEVICE int64 order_element(const sglcuda_order_values &v, int64 line, int64 at)
{
    int64 col = 0, outer = line;
    if (v.inner > 1) outer = sgl_divide(line, v.inner, &col);
    return (outer * v.extent + at) * v.inner + col;
}

/* ---- short lines ------------------------------------------------------------------------------------------------- */

template <class K>
SGL_DEVICE void order_few(const void *x, K *keys, uint32 *places, K *key, uint32 *place, const sglcuda_order_values &v)
{
    const int64 first = (int64)blockIdx.x * v.lines_block;
    const int entries = v.lines_block * v.room;
    for (int i = threadIdx.x; i < entries; i += SGLCUDA_ORDER_FEW_THREADS) {
        const int64 line = first + i / v.room;
        const int at = i % v.room;
        const bool within = at < v.extent && line < v.lines;
        key[i] = within ? (K)order_key(x, v, order_element(v, line, at)) : ~(K)0;
        place[i] = (uint32)at; /* what is beyond the line has the greatest key and a greater place */
    }
    for (int size = 2; size <= v.room; size *= 2) {
        for (int apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < entries / 2; pair += SGLCUDA_ORDER_FEW_THREADS) {
                const int a = pair / apart * apart * 2 + pair % apart, b = a + apart;
                const bool rises = (a & (v.room - 1) & size) == 0;
                const bool above = key[a] > key[b] || (key[a] == key[b] && place[a] > place[b]);
                if (above != rises) continue;
                const K held_key = key[a];
                const uint32 held_place = place[a];
                key[a] = key[b];
                place[a] = place[b];
                key[b] = held_key;
                place[b] = held_place;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < entries; i += SGLCUDA_ORDER_FEW_THREADS) {
        const int64 line = first + i / v.room;
        const int at = i % v.room;
        if (at >= v.extent || line >= v.lines) continue;
        keys[line * v.extent + at] = key[i];
        places[line * v.extent + at] = place[i];
    }
}

/* ---- long lines -------------------------------------------------------------------------------------------------- */

template <class K> SGL_DEVICE void order_keys(const void *x, K *keys, uint32 *places, const sglcuda_order_values &v)
{
    const int64 i = sgl_thread();
    if (i >= v.lines * v.extent) return;
    int64 at;
    const int64 line = sgl_divide(i, v.extent, &at);
    keys[i] = (K)order_key(x, v, order_element(v, line, at));
    places[i] = (uint32)at;
}

/* counts [lines, digits, tiles]: how often each digit comes in each tile. */
template <class K> SGL_DEVICE void order_count(const K *keys, uint32 *counts, const sglcuda_order_values &v)
{
    __shared__ uint32 count[SGLCUDA_ORDER_DIGITS];
    int64 tile;
    const int64 line = sgl_divide(blockIdx.x, v.tiles, &tile);
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int e = 0; e < SGLCUDA_ORDER_EACH; e++) {
        const int64 at = tile * SGLCUDA_ORDER_TILE + e * SGLCUDA_ORDER_THREADS + threadIdx.x;
        if (at < v.extent) atomicAdd(&count[(uint32)(keys[line * v.extent + at] >> v.shift) & 255u], 1u);
    }
    __syncthreads();
    counts[(line * SGLCUDA_ORDER_DIGITS + threadIdx.x) * v.tiles + tile] = count[threadIdx.x];
}

/* The sum of x over the block's threads before this one, and of all. sums: 8 of shared memory. */
SGL_DEVICE uint32 order_sum_before(uint32 x, uint32 *sums, uint32 *all)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32 through = x;
    for (int step = 1; step < 32; step *= 2) {
        const uint32 before = __shfl_up_sync(0xffffffffu, through, step);
        if (lane >= step) through += before;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = through;
    __syncthreads();
    uint32 start = 0;
    *all = 0;
    for (int w = 0; w < SGLCUDA_ORDER_THREADS / 32; w++) {
        if (w < warp) start += sums[w];
        *all += sums[w];
    }
    return start + through - x;
}

/* Of each line and digit (a block each) the counts of the tiles become those of the tiles before; totals [lines,
 * digits]. */
extern "C" __global__ void __launch_bounds__(SGLCUDA_ORDER_THREADS)
    order_sum(uint32 *counts, uint32 *totals, const __grid_constant__ sglcuda_order_values v)
{
    __shared__ uint32 sums[SGLCUDA_ORDER_THREADS / 32];
    uint32 *mine = counts + (int64)blockIdx.x * v.tiles, total = 0;
    for (int64 first = 0; first < v.tiles; first += SGLCUDA_ORDER_THREADS) {
        const int64 tile = first + threadIdx.x;
        uint32 all;
        const uint32 before = order_sum_before(tile < v.tiles ? mine[tile] : 0, sums, &all);
        if (tile < v.tiles) mine[tile] = total + before;
        total += all;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

template <class K>
SGL_DEVICE void order_place(const K *keys, const uint32 *places, K *next_keys, uint32 *next_places,
                            const uint32 *counts, const uint32 *totals, const sglcuda_order_values &v)
{
    const int warps = SGLCUDA_ORDER_THREADS / 32, own = SGLCUDA_ORDER_TILE / warps;
    __shared__ uint32 counted[warps][SGLCUDA_ORDER_DIGITS], sums[warps];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64 tile;
    const int64 line = sgl_divide(blockIdx.x, v.tiles, &tile), start = line * v.extent;
    K key[SGLCUDA_ORDER_EACH];
    uint32 rank[SGLCUDA_ORDER_EACH], place[SGLCUDA_ORDER_EACH];
    for (int w = 0; w < warps; w++) counted[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < SGLCUDA_ORDER_EACH; e++) {
        const int64 at = tile * SGLCUDA_ORDER_TILE + warp * own + e * 32 + lane;
        key[e] = at < v.extent ? keys[start + at] : 0;
        place[e] = at < v.extent ? places[start + at] : 0;
        const uint32 digit = at < v.extent ? (uint32)(key[e] >> v.shift) & 255u : SGLCUDA_ORDER_DIGITS;
        const uint32 alike = __match_any_sync(0xffffffffu, digit);
        const uint32 ahead = __popc(alike & ((1u << lane) - 1u));
        rank[e] = digit < SGLCUDA_ORDER_DIGITS ? counted[warp][digit] + ahead : 0;
        __syncwarp();
        if (ahead == 0 && digit < SGLCUDA_ORDER_DIGITS) counted[warp][digit] += __popc(alike);
        __syncwarp();
    }
    __syncthreads();
    { /* of the thread's digit: where each warp's entries go */
        uint32 all, at = order_sum_before(totals[line * SGLCUDA_ORDER_DIGITS + threadIdx.x], sums, &all);
        at += counts[(line * SGLCUDA_ORDER_DIGITS + threadIdx.x) * v.tiles + tile];
        for (int w = 0; w < warps; w++) {
            const uint32 mine = counted[w][threadIdx.x];
            counted[w][threadIdx.x] = at;
            at += mine;
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < SGLCUDA_ORDER_EACH; e++) {
        if (tile * SGLCUDA_ORDER_TILE + warp * own + e * 32 + lane >= v.extent) continue;
        const int64 to = start + counted[warp][(uint32)(key[e] >> v.shift) & 255u] + rank[e];
        next_keys[to] = key[e];
        next_places[to] = place[e];
    }
}

#define ORDER_KERNELS(BITS, K)                                                                                         \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_ORDER_FEW_THREADS)                                            \
        order_few_##BITS(const void *x, K *keys, uint32 *places, const __grid_constant__ sglcuda_order_values v)       \
    {                                                                                                                  \
        __shared__ K key[SGLCUDA_ORDER_FEW];                                                                           \
        __shared__ uint32 place[SGLCUDA_ORDER_FEW];                                                                    \
        order_few<K>(x, keys, places, key, place, v);                                                                  \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_ORDER_THREADS)                                                \
        order_keys_##BITS(const void *x, K *keys, uint32 *places, const __grid_constant__ sglcuda_order_values v)      \
    {                                                                                                                  \
        order_keys<K>(x, keys, places, v);                                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_ORDER_THREADS)                                                \
        order_count_##BITS(const K *keys, uint32 *counts, const __grid_constant__ sglcuda_order_values v)              \
    {                                                                                                                  \
        order_count<K>(keys, counts, v);                                                                               \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(SGLCUDA_ORDER_THREADS)                                                \
        order_place_##BITS(const K *keys, const uint32 *places, K *next_keys, uint32 *next_places,                     \
                           const uint32 *counts, const uint32 *totals, const __grid_constant__ sglcuda_order_values v) \
    {                                                                                                                  \
        order_place<K>(keys, places, next_keys, next_places, counts, totals, v);                                       \
    }
ORDER_KERNELS(32, uint32)
ORDER_KERNELS(64, uint64)

/* ---- results ----------------------------------------------------------------------------------------------------- */

struct sort_source {
    const uint32 *places;
    const sglcuda_sort_put &v;
    /* Where result i = (outer, k, col) stood along its line. */
    SGL_DEVICE_MEMBER int64 along(int64 i, int64 *outer, int64 *col) const
    {
        int64 k, rest = i;
        *col = 0;
        if (v.inner > 1) rest = sgl_divide(i, v.inner, col);
        *outer = sgl_divide(rest, v.count, &k);
        return places[(*outer * v.inner + *col) * v.extent + k];
    }
    SGL_DEVICE_MEMBER int64 at(int64 i) const
    {
        int64 outer, col;
        const int64 place = along(i, &outer, &col);
        return (outer * v.extent + place) * v.inner + col;
    }
};

SGL_FILL_ELEMENTS(sort_values,
                  (const char *x, const uint32 *places, char *out, const __grid_constant__ sglcuda_sort_put v), x, out,
                  v.total, v.value, (sort_source{ places, v }))

extern "C" __global__ void __launch_bounds__(SGLCUDA_FILL_THREADS)
    sort_indices(const uint32 *places, int64 *indices, const __grid_constant__ sglcuda_sort_put v)
{
    const int64 i = sgl_thread();
    int64 outer, col;
    if (i < v.total) indices[i] = sort_source{ places, v }.along(i, &outer, &col);
}
