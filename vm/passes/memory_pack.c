/* memory_pack.c -- blocks with lifetimes into as few bytes as can be: greedy placement in several orders, then a bounded
 * search over orders.
 *
 * In: blocks. Out: offsets, peak, lower bound. How: one order gives one packing, each block going into the smallest gap
 * (or the lowest) that the blocks placed before it leave during its life. Four orders are tried; if the best is still
 * more than a 128th above the bound, a block that reaches the peak trades places in the order with one below it, and
 * all are placed anew, again and again, the best packing kept. Odd invariant: the work is counted, not timed, so that a
 * slow machine finds the same packing. */
#include <string.h>

#include "passes/memory_pack.h"

enum { SEARCH_STEPS = 20 * 1000 * 1000, ORDERS_STOP = 512, SEARCH_STOP = 128 };

/* The blocks that are placed, in the order of offsets; apart, so that lifetimes are compared several at a time. */
typedef struct placed_blocks {
    int32_t *first, *last;
    int64_t *offset, *end;
} placed_blocks;

typedef struct packer {
    sglcore_env *env;
    sglpass_block *blocks;
    int64_t count, alignment;
    int64_t lower_bound, reachable; /* the same of sizes rounded up to the alignment: a packing may come down to that */
    int64_t peak_moment;            /* at which the bound is reached */
    int64_t *offsets, *best;        /* per block */
    int64_t best_bytes;
    uint32_t *order, *best_order;
    placed_blocks placed;
    int64_t *rank; /* per block: sort key; the larger goes first */
    int64_t steps; /* of work done */
} packer;

/* ---- the bound ---------------------------------------------------------------------------------------------- */

/* The largest sum of live sizes, rounded up to multiples of `unit`. */
static sgl_status find_bound(packer *p, int64_t moments, int64_t unit, int64_t *bound)
{
    size_t bytes = (size_t)(moments + 1) * sizeof(int64_t);
    int64_t *change = sglcore_alloc_zero(p->env, bytes), live = 0;
    if (change == NULL) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < p->count; i++) {
        change[p->blocks[i].first] += sglpass_align_up(p->blocks[i].bytes, unit);
        change[p->blocks[i].last + 1] -= sglpass_align_up(p->blocks[i].bytes, unit);
    }
    for (int64_t t = 0; t < moments; t++) {
        live += change[t];
        if (live <= *bound) continue;
        *bound = live;
        p->peak_moment = t;
    }
    sglcore_free(p->env, change, bytes);
    return SGL_OK;
}

/* ---- one packing -------------------------------------------------------------------------------------------- */

enum { STRIDE = 8 };

/* Whether none of the STRIDE blocks from i on lives at the same time. */
static bool all_apart(const placed_blocks *placed, int64_t i, int32_t first, int32_t last)
{
    const int32_t *firsts = placed->first + i, *lasts = placed->last + i;
    int32_t hit = 0;
    for (int k = 0; k < STRIDE; k++) hit |= (firsts[k] <= last) & (lasts[k] >= first);
    return hit == 0;
}

/* The lowest or the smallest gap for the block among the `count` that are placed; *at: where it goes among them. */
static int64_t find_gap(packer *p, const sglpass_block *block, int64_t count, bool smallest, int64_t *at)
{
    const placed_blocks *placed = &p->placed;
    int64_t free_from = 0, best = -1, best_gap = INT64_MAX, best_at = 0, i = 0;
    int32_t first = (int32_t)block->first, last = (int32_t)block->last;
    while (i < count) {
        if (i + STRIDE <= count && all_apart(placed, i, first, last)) {
            i += STRIDE;
            continue;
        }
        int64_t stop = i + STRIDE < count ? i + STRIDE : count;
        for (; i < stop; i++) {
            if (placed->last[i] < first || placed->first[i] > last) continue;
            int64_t gap = placed->offset[i] - free_from;
            if (gap >= block->bytes && gap < best_gap) {
                best = free_from;
                best_gap = gap;
                best_at = i;
                if (!smallest || gap == block->bytes) goto found;
            }
            int64_t end = sglpass_align_up(placed->end[i], p->alignment);
            if (end > free_from) free_from = end;
        }
    }
    if (best < 0) {
        best = free_from;
        best_at = count;
    }
found:
    p->steps += i + STRIDE;
    while (best_at > 0 && placed->offset[best_at - 1] > best) best_at--;
    *at = best_at;
    return best;
}

static void insert(placed_blocks *placed, int64_t at, int64_t count, const sglpass_block *block, int64_t offset)
{
    size_t moved = (size_t)(count - at);
    memmove(placed->first + at + 1, placed->first + at, moved * sizeof *placed->first);
    memmove(placed->last + at + 1, placed->last + at, moved * sizeof *placed->last);
    memmove(placed->offset + at + 1, placed->offset + at, moved * sizeof *placed->offset);
    memmove(placed->end + at + 1, placed->end + at, moved * sizeof *placed->end);
    placed->first[at] = (int32_t)block->first;
    placed->last[at] = (int32_t)block->last;
    placed->offset[at] = offset;
    placed->end[at] = offset + block->bytes;
}

/* Places all blocks in p->order; returns the bytes needed, or INT64_MAX as soon as these are more than `most`. */
static int64_t pack_in_order(packer *p, bool smallest, int64_t most)
{
    int64_t bytes = 0;
    for (int64_t k = 0; k < p->count; k++) {
        const sglpass_block *block = &p->blocks[p->order[k]];
        int64_t at, offset = find_gap(p, block, k, smallest, &at);
        insert(&p->placed, at, k, block, offset);
        p->offsets[p->order[k]] = offset;
        if (offset + block->bytes > bytes) bytes = offset + block->bytes;
        if (bytes > most) return INT64_MAX;
    }
    return bytes;
}

static void keep_if_better(packer *p, int64_t bytes)
{
    if (bytes >= p->best_bytes) return;
    p->best_bytes = bytes;
    memcpy(p->best, p->offsets, (size_t)p->count * sizeof *p->best);
    memcpy(p->best_order, p->order, (size_t)p->count * sizeof *p->order);
}

/* Within one part in `parts` of the bound. */
static bool good_enough(const packer *p, int64_t parts) { return p->best_bytes - p->reachable <= p->reachable / parts; }

/* ---- orders ------------------------------------------------------------------------------------------------- */

/* Merge sort of p->order by rank, largest first; equal ranks keep the order of the blocks. `spare` has count entries. */
static void sort_order(packer *p, uint32_t *spare)
{
    for (int64_t i = 0; i < p->count; i++) p->order[i] = (uint32_t)i;
    for (int64_t width = 1; width < p->count; width *= 2) {
        for (int64_t low = 0; low < p->count; low += 2 * width) {
            int64_t middle = low + width < p->count ? low + width : p->count;
            int64_t high = middle + width < p->count ? middle + width : p->count, a = low, b = middle;
            for (int64_t k = low; k < high; k++) {
                bool left = a < middle && (b >= high || p->rank[p->order[a]] >= p->rank[p->order[b]]);
                spare[k] = p->order[left ? a++ : b++];
            }
        }
        memcpy(p->order, spare, (size_t)p->count * sizeof *spare);
    }
}

enum { BY_BYTES, PEAK_FIRST, BY_AREA, BY_LIFE, ORDERS };

static void rank_blocks(packer *p, int order)
{
    for (int64_t i = 0; i < p->count; i++) {
        const sglpass_block *block = &p->blocks[i];
        int64_t life = block->last - block->first + 1, area;
        if (__builtin_mul_overflow(life, block->bytes, &area)) area = INT64_MAX;
        bool at_peak = block->first <= p->peak_moment && p->peak_moment <= block->last;
        switch (order) {
        case BY_BYTES: p->rank[i] = block->bytes; break;
        case PEAK_FIRST: p->rank[i] = at_peak ? INT64_MAX / 2 + life : block->bytes; break;
        case BY_AREA: p->rank[i] = area; break;
        default: p->rank[i] = life; break;
        }
    }
}

static void try_orders(packer *p, uint32_t *spare)
{
    for (int smallest = 1; smallest >= 0; smallest--) {
        for (int order = 0; order < ORDERS; order++) {
            bool first = order == 0 && smallest;
            if (!first && (good_enough(p, ORDERS_STOP) || p->steps > SEARCH_STEPS)) return;
            rank_blocks(p, order);
            sort_order(p, spare);
            keep_if_better(p, pack_in_order(p, smallest, INT64_MAX));
        }
    }
}

/* ---- the search --------------------------------------------------------------------------------------------- */

/* The next of a fixed sequence of numbers below `limit` (splitmix64). */
static int64_t draw(uint64_t *state, int64_t limit)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)limit);
}

static bool meet(const sglpass_block *a, const sglpass_block *b) { return a->first <= b->last && b->first <= a->last; }

/* Positions in the order: of a block that reaches the peak, and of one that lies below it or below that one. */
static bool choose_swap(const packer *p, int64_t bytes, uint64_t *state, int64_t *high, int64_t *low)
{
    int64_t tops = 0, below = 0;
    for (int64_t k = 0; k < p->count; k++) {
        uint32_t block = p->order[k];
        if (p->offsets[block] + p->blocks[block].bytes == bytes && draw(state, ++tops) == 0) *high = k;
    }
    if (tops == 0) return false;
    for (int hop = 0; hop < 2; hop++) {
        const uint32_t from = p->order[hop == 0 ? *high : *low];
        below = 0;
        for (int64_t k = 0; k < p->count; k++) {
            uint32_t block = p->order[k];
            if (k == *high || p->offsets[block] >= p->offsets[from] || !meet(&p->blocks[block], &p->blocks[from]))
                continue;
            if (draw(state, ++below) == 0) *low = k;
        }
        if (below == 0) return hop > 0;
        if (draw(state, 2) == 0) return true;
    }
    return true;
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t was = *a;
    *a = *b;
    *b = was;
}

/* Trades two blocks in the order; a trade that needs more bytes is taken back, unless luck is on its side. */
static void search(packer *p)
{
    uint64_t state = 1;
    memcpy(p->order, p->best_order, (size_t)p->count * sizeof *p->order);
    memcpy(p->offsets, p->best, (size_t)p->count * sizeof *p->best);
    int64_t bytes = p->best_bytes, high = 0, low = 0, failed = 0;
    while (!good_enough(p, SEARCH_STOP) && p->steps < SEARCH_STEPS) {
        p->steps += 3 * p->count;
        if (!choose_swap(p, bytes, &state, &high, &low)) return;
        swap(&p->order[high], &p->order[low]);
        int64_t slack = draw(&state, 8) == 0 ? bytes / 64 : 0;
        int64_t next = pack_in_order(p, true, bytes + slack);
        if (next > bytes + slack || failed > 200) {
            bool lost = failed > 200;
            swap(&p->order[high], &p->order[low]);
            if (lost) memcpy(p->order, p->best_order, (size_t)p->count * sizeof *p->order);
            bytes = pack_in_order(p, true, INT64_MAX);
            failed = lost ? 0 : failed + 1;
            continue;
        }
        failed = next < bytes ? 0 : failed + 1;
        bytes = next;
        keep_if_better(p, bytes);
    }
}

/* ---- the call ------------------------------------------------------------------------------------------------ */

static sgl_status pack(packer *p, sglcore_arena *arena)
{
    size_t count = (size_t)p->count;
    p->offsets = sglcore_arena_alloc(arena, count * sizeof *p->offsets);
    p->best = sglcore_arena_alloc(arena, count * sizeof *p->best);
    p->order = sglcore_arena_alloc(arena, count * sizeof *p->order);
    p->best_order = sglcore_arena_alloc(arena, count * sizeof *p->best_order);
    p->placed.first = sglcore_arena_alloc(arena, (count + 1) * sizeof *p->placed.first);
    p->placed.last = sglcore_arena_alloc(arena, (count + 1) * sizeof *p->placed.last);
    p->placed.offset = sglcore_arena_alloc(arena, (count + 1) * sizeof *p->placed.offset);
    p->placed.end = sglcore_arena_alloc(arena, (count + 1) * sizeof *p->placed.end);
    p->rank = sglcore_arena_alloc(arena, count * sizeof *p->rank);
    uint32_t *spare = sglcore_arena_alloc(arena, count * sizeof *spare);
    if (!p->offsets || !p->best || !p->order || !p->best_order || !p->rank || !spare || !p->placed.first ||
        !p->placed.last || !p->placed.offset || !p->placed.end)
        return SGL_OUT_OF_MEMORY;
    try_orders(p, spare);
    search(p);
    for (int64_t i = 0; i < p->count; i++) p->blocks[i].offset = p->best[i];
    return SGL_OK;
}

sgl_status sglpass_pack_blocks(sglcore_env *env, sglpass_block *blocks, int64_t count, int64_t moments,
                               int64_t alignment, sglpass_packing *packing)
{
    packer p = { .env = env, .blocks = blocks, .count = count, .alignment = alignment, .best_bytes = INT64_MAX };
    *packing = (sglpass_packing){ 0 };
    if (count == 0) return SGL_OK;
    if (moments > INT32_MAX) return sglcore_fail(env, SGL_LIMIT, "the graph has too many nodes to plan its memory");
    SGLCORE_TRY(find_bound(&p, moments, 1, &p.lower_bound));
    SGLCORE_TRY(find_bound(&p, moments, alignment, &p.reachable));
    sglcore_arena arena = { .env = env };
    sgl_status status = pack(&p, &arena);
    sglcore_arena_free(&arena);
    if (status != SGL_OK) return status;
    *packing = (sglpass_packing){ .bytes = p.best_bytes, .lower_bound = p.lower_bound };
    return SGL_OK;
}
