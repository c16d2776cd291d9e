/* schedule_order.c -- an order of work that needs few bytes at once.
 *
 * In: units, buffers. Out: the best of a few orders, by simulation: the given one, and the given one with units that
 * only take bytes put off until they are needed, each also with units that free more than they take drawn forward;
 * greedy from the front (of what is ready, the unit that frees most or takes least); greedy from the back (the last
 * unit first, of what nobody waits for, the one that makes most or needs least new). All are near linear in the edges.
 * Odd invariant: equal keys fall back on the given numbers, so that nothing depends on how a heap happens to lie. */
#include <string.h>

#include "passes/schedule_order.h"

typedef struct heap_entry {
    int64_t key;
    uint32_t unit;
} heap_entry;

typedef struct planner {
    const sglpass_work *w;
    uint32_t *left;           /* per buffer: readers that are still to come (from the back: that have come) */
    uint32_t *waiting;        /* per unit: what it still waits for */
    int64_t *key;             /* per unit: as it is now; entries of the heap that say otherwise are stale */
    uint8_t *done;            /* per unit */
    uint32_t *maker;          /* per buffer */
    sglpass_lists readers_of; /* per buffer: units */
    sglpass_lists before;     /* per unit: units that must come before it */
    uint32_t *order, *base, *best, *stack;
    int64_t best_peak;
    SGLCORE_VEC(heap_entry) heap;
} planner;

/* ---- a heap, the least key first ------------------------------------------------------------------------------ */

static bool goes_first(const heap_entry *a, const heap_entry *b)
{
    return a->key < b->key || (a->key == b->key && a->unit < b->unit);
}

static sgl_status push(planner *p, uint32_t unit)
{
    SGLCORE_TRY(sglcore_vec_push(p->w->env, &p->heap, (heap_entry){ p->key[unit], unit }));
    heap_entry *data = p->heap.data, made = data[p->heap.count - 1];
    int64_t at = p->heap.count - 1;
    for (; at > 0 && goes_first(&made, &data[(at - 1) / 2]); at = (at - 1) / 2) data[at] = data[(at - 1) / 2];
    data[at] = made;
    return SGL_OK;
}

static heap_entry pop(planner *p)
{
    heap_entry *data = p->heap.data, top = data[0], last = data[--p->heap.count];
    int64_t at = 0, count = p->heap.count;
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && goes_first(&data[child + 1], &data[child])) child++;
        if (!goes_first(&data[child], &last)) break;
        data[at] = data[child];
    }
    data[at] = last;
    return top;
}

/* The next unit of the heap that is not done and stands there with its present key. */
static bool pop_ready(planner *p, uint32_t *unit)
{
    while (p->heap.count > 0) {
        heap_entry top = pop(p);
        if (p->done[top.unit] || p->key[top.unit] != top.key) continue;
        *unit = top.unit;
        return true;
    }
    return false;
}

/* ---- simulation ------------------------------------------------------------------------------------------------ */

static bool dies_with(const planner *p, uint32_t buffer) { return p->left[buffer] == 1; }

/* Bytes that the unit's results do not need, because they are written over what dies with it; each dying buffer serves
 * once. */
static int64_t written_over(const planner *p, uint32_t unit)
{
    enum { MOST = 16 };
    const sglpass_lists *over = &p->w->over;
    uint32_t taken[MOST], served = UINT32_MAX;
    int count = 0;
    int64_t saved = 0;
    for (int64_t i = over->first[unit]; i < over->first[unit + 1] && count < MOST; i += 2) {
        uint32_t made = over->data[i], read = over->data[i + 1];
        bool free = made != served && dies_with(p, read);
        for (int k = 0; k < count && free; k++) free = taken[k] != read;
        if (!free) continue;
        saved += p->w->bytes[made];
        taken[count++] = read;
        served = made;
    }
    return saved;
}

static int64_t made_by(const sglpass_work *w, uint32_t unit)
{
    int64_t bytes = 0;
    for (int64_t i = w->makes.first[unit]; i < w->makes.first[unit + 1]; i++) bytes += w->bytes[w->makes.data[i]];
    return bytes;
}

static int64_t simulate(planner *p, const uint32_t *order)
{
    const sglpass_work *w = p->w;
    int64_t live = 0, peak = 0;
    memcpy(p->left, w->readers, (size_t)w->buffers * sizeof *p->left);
    for (int64_t k = 0; k < w->units; k++) {
        uint32_t unit = order[k];
        int64_t made = made_by(w, unit), now = live + made + w->extra[unit] - written_over(p, unit);
        if (now > peak) peak = now;
        live += made;
        for (int64_t i = w->makes.first[unit]; i < w->makes.first[unit + 1]; i++) {
            uint32_t buffer = w->makes.data[i];
            if (w->readers[buffer] == 0) live -= w->bytes[buffer];
        }
        for (int64_t i = w->reads.first[unit]; i < w->reads.first[unit + 1]; i++) {
            uint32_t buffer = w->reads.data[i];
            if (dies_with(p, buffer)) live -= w->bytes[buffer];
            p->left[buffer]--;
        }
    }
    return peak;
}

static void keep_if_better(planner *p)
{
    int64_t peak = simulate(p, p->order);
    if (peak >= p->best_peak) return;
    p->best_peak = peak;
    memcpy(p->best, p->order, (size_t)p->w->units * sizeof *p->best);
}

/* ---- greedy from the front ------------------------------------------------------------------------------------- */

static int64_t growth(const planner *p, uint32_t unit)
{
    const sglpass_work *w = p->w;
    int64_t bytes = made_by(w, unit);
    for (int64_t i = w->reads.first[unit]; i < w->reads.first[unit + 1]; i++) {
        if (dies_with(p, w->reads.data[i])) bytes -= w->bytes[w->reads.data[i]];
    }
    return bytes;
}

static void count_waiting(planner *p, const sglpass_lists *edges)
{
    memset(p->waiting, 0, (size_t)p->w->units * sizeof *p->waiting);
    for (int64_t i = 0; i < edges->first[p->w->units]; i++) p->waiting[edges->data[i]]++;
}

static sgl_status start(planner *p, const sglpass_lists *edges, int64_t (*key)(const planner *p, uint32_t unit))
{
    const sglpass_work *w = p->w;
    p->heap.count = 0;
    memset(p->done, 0, (size_t)w->units);
    count_waiting(p, edges);
    for (int64_t u = 0; u < w->units; u++) {
        p->key[u] = key(p, (uint32_t)u);
        if (p->waiting[u] == 0) SGLCORE_TRY(push(p, (uint32_t)u));
    }
    return SGL_OK;
}

/* Units whose key changed and that are ready stand in the heap anew. */
static sgl_status renew(planner *p, uint32_t unit, int64_t change)
{
    p->key[unit] += change;
    return !p->done[unit] && p->waiting[unit] == 0 ? push(p, unit) : SGL_OK;
}

static sgl_status release(planner *p, const sglpass_lists *edges, uint32_t unit)
{
    for (int64_t i = edges->first[unit]; i < edges->first[unit + 1]; i++) {
        if (--p->waiting[edges->data[i]] == 0) SGLCORE_TRY(push(p, edges->data[i]));
    }
    return SGL_OK;
}

static sgl_status greedy_forward(planner *p)
{
    const sglpass_work *w = p->w;
    memcpy(p->left, w->readers, (size_t)w->buffers * sizeof *p->left);
    SGLCORE_TRY(start(p, &w->next, growth));
    uint32_t unit;
    for (int64_t k = 0; pop_ready(p, &unit); k++) {
        p->order[k] = unit;
        p->done[unit] = 1;
        for (int64_t i = w->reads.first[unit]; i < w->reads.first[unit + 1]; i++) {
            uint32_t buffer = w->reads.data[i];
            if (--p->left[buffer] != 1) continue;
            for (int64_t r = p->readers_of.first[buffer]; r < p->readers_of.first[buffer + 1]; r++) {
                if (!p->done[p->readers_of.data[r]])
                    SGLCORE_TRY(renew(p, p->readers_of.data[r], -w->bytes[buffer])); /* the last one frees it */
            }
        }
        SGLCORE_TRY(release(p, &w->next, unit));
    }
    return SGL_OK;
}

/* ---- greedy from the back -------------------------------------------------------------------------------------- */

/* What lives more before the unit than after it; `left` counts the readers that have come. */
static int64_t growth_backward(const planner *p, uint32_t unit)
{
    const sglpass_work *w = p->w;
    int64_t bytes = -made_by(w, unit);
    for (int64_t i = w->reads.first[unit]; i < w->reads.first[unit + 1]; i++) {
        uint32_t buffer = w->reads.data[i];
        if (p->left[buffer] == 0) bytes += w->bytes[buffer];
    }
    return bytes;
}

static sgl_status greedy_backward(planner *p)
{
    const sglpass_work *w = p->w;
    memset(p->left, 0, (size_t)w->buffers * sizeof *p->left);
    SGLCORE_TRY(start(p, &p->before, growth_backward));
    uint32_t unit;
    for (int64_t k = w->units; k > 0 && pop_ready(p, &unit);) {
        p->order[--k] = unit;
        p->done[unit] = 1;
        for (int64_t i = w->reads.first[unit]; i < w->reads.first[unit + 1]; i++) {
            uint32_t buffer = w->reads.data[i];
            if (p->left[buffer]++ > 0) continue;
            for (int64_t r = p->readers_of.first[buffer]; r < p->readers_of.first[buffer + 1]; r++) {
                if (!p->done[p->readers_of.data[r]])
                    SGLCORE_TRY(renew(p, p->readers_of.data[r], -w->bytes[buffer])); /* it lives already */
            }
        }
        SGLCORE_TRY(release(p, &p->before, unit));
    }
    return SGL_OK;
}

/* ---- the given order, with what only takes bytes put off --------------------------------------------------------- */

static bool frees_something(const sglpass_work *w, uint32_t unit)
{
    return w->reads.first[unit] < w->reads.first[unit + 1] || w->makes.first[unit] == w->makes.first[unit + 1];
}

/* The unit after all that it needs, in the given order as far as that goes. */
static int64_t emit_with_needs(planner *p, uint32_t unit, int64_t count)
{
    int64_t depth = 0;
    p->stack[depth++] = unit;
    while (depth > 0) {
        uint32_t at = p->stack[depth - 1];
        int64_t i = p->before.first[at] + p->waiting[at];
        if (p->done[at] || i == p->before.first[at + 1]) {
            if (!p->done[at]) p->order[count++] = at;
            p->done[at] = 1;
            depth--;
            continue;
        }
        p->waiting[at]++;
        if (!p->done[p->before.data[i]]) p->stack[depth++] = p->before.data[i];
    }
    return count;
}

static void in_given_order(planner *p, bool put_off)
{
    int64_t units = p->w->units, count = 0;
    memset(p->done, 0, (size_t)units);
    memset(p->waiting, 0, (size_t)units * sizeof *p->waiting); /* here: needs that were looked at */
    for (int64_t u = 0; u < units; u++) {
        if (!p->done[u] && (!put_off || frees_something(p->w, (uint32_t)u)))
            count = emit_with_needs(p, (uint32_t)u, count);
    }
    for (int64_t u = 0; u < units; u++) {
        if (!p->done[u]) count = emit_with_needs(p, (uint32_t)u, count);
    }
}

/* ---- what frees bytes drawn forward ------------------------------------------------------------------------------ */

static bool frees_now(const planner *p, uint32_t unit)
{
    return !p->done[unit] && p->waiting[unit] == 0 && growth(p, unit) < 0;
}

/* The unit, and then whatever frees bytes and was only waiting for it, or for the last but one reader to be done. */
static int64_t emit_eagerly(planner *p, uint32_t unit, int64_t count)
{
    const sglpass_work *w = p->w;
    int64_t depth = 0;
    p->stack[depth++] = unit;
    p->done[unit] = 1;
    while (depth > 0) {
        uint32_t at = p->stack[--depth];
        p->order[count++] = at;
        for (int64_t i = w->next.first[at]; i < w->next.first[at + 1]; i++) p->waiting[w->next.data[i]]--;
        for (int64_t i = w->reads.first[at]; i < w->reads.first[at + 1]; i++) p->left[w->reads.data[i]]--;
        for (int64_t i = w->next.first[at]; i < w->next.first[at + 1]; i++) {
            if (!frees_now(p, w->next.data[i])) continue;
            p->done[w->next.data[i]] = 1;
            p->stack[depth++] = w->next.data[i];
        }
        for (int64_t i = w->reads.first[at]; i < w->reads.first[at + 1]; i++) {
            uint32_t buffer = w->reads.data[i];
            for (int64_t r = p->readers_of.first[buffer]; p->left[buffer] == 1 && r < p->readers_of.first[buffer + 1];
                 r++) {
                if (!frees_now(p, p->readers_of.data[r])) continue;
                p->done[p->readers_of.data[r]] = 1;
                p->stack[depth++] = p->readers_of.data[r];
            }
        }
    }
    return count;
}

/* From the order at hand. */
static void draw_forward(planner *p)
{
    const sglpass_work *w = p->w;
    int64_t count = 0;
    memcpy(p->base, p->order, (size_t)w->units * sizeof *p->base);
    memset(p->done, 0, (size_t)w->units);
    memcpy(p->left, w->readers, (size_t)w->buffers * sizeof *p->left);
    count_waiting(p, &w->next);
    for (int64_t k = 0; k < w->units; k++) {
        if (!p->done[p->base[k]]) count = emit_eagerly(p, p->base[k], count);
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* Turns a list around: per entry, the units whose list has it. */
static bool invert(sglcore_arena *arena, const sglpass_lists *lists, int64_t units, int64_t entries, sglpass_lists *out)
{
    int64_t total = lists->first[units];
    out->first = sglcore_arena_alloc(arena, (size_t)(entries + 2) * sizeof *out->first);
    out->data = sglcore_arena_alloc(arena, (size_t)total * sizeof *out->data);
    if (out->first == NULL || out->data == NULL) return false;
    for (int64_t i = 0; i < total; i++) out->first[lists->data[i] + 2]++;
    for (int64_t e = 0; e < entries; e++) out->first[e + 2] += out->first[e + 1];
    for (int64_t u = 0; u < units; u++) {
        for (int64_t i = lists->first[u]; i < lists->first[u + 1]; i++)
            out->data[out->first[lists->data[i] + 1]++] = (uint32_t)u;
    }
    return true;
}

static bool make_room(planner *p, sglcore_arena *arena)
{
    const sglpass_work *w = p->w;
    size_t units = (size_t)w->units, buffers = (size_t)w->buffers;
    p->left = sglcore_arena_alloc(arena, buffers * sizeof *p->left);
    p->waiting = sglcore_arena_alloc(arena, units * sizeof *p->waiting);
    p->key = sglcore_arena_alloc(arena, units * sizeof *p->key);
    p->done = sglcore_arena_alloc(arena, units);
    p->order = sglcore_arena_alloc(arena, units * sizeof *p->order);
    p->base = sglcore_arena_alloc(arena, units * sizeof *p->base);
    p->stack = sglcore_arena_alloc(arena, (units + 1) * sizeof *p->stack);
    return p->left && p->waiting && p->key && p->done && p->order && p->base && p->stack &&
           invert(arena, &w->reads, w->units, w->buffers, &p->readers_of) &&
           invert(arena, &w->next, w->units, w->units, &p->before);
}

static sgl_status try_orders(planner *p)
{
    for (int put_off = 0; put_off < 2; put_off++) {
        in_given_order(p, put_off);
        keep_if_better(p);
        draw_forward(p);
        keep_if_better(p);
    }
    SGLCORE_TRY(greedy_forward(p));
    keep_if_better(p);
    SGLCORE_TRY(greedy_backward(p));
    keep_if_better(p);
    return SGL_OK;
}

/* Whether some units wait for one another. */
static bool has_circle(planner *p)
{
    const sglpass_work *w = p->w;
    int64_t ready = 0, count = 0;
    for (int64_t u = 0; u < w->units; u++) {
        p->waiting[u] = (uint32_t)(p->before.first[u + 1] - p->before.first[u]);
        if (p->waiting[u] == 0) p->stack[ready++] = (uint32_t)u;
    }
    while (ready > 0) {
        const uint32_t at = p->stack[--ready];
        count++;
        for (int64_t i = w->next.first[at]; i < w->next.first[at + 1]; i++)
            if (--p->waiting[w->next.data[i]] == 0) p->stack[ready++] = w->next.data[i];
    }
    return count < w->units;
}

sgl_status sglpass_order_work(const sglpass_work *work, uint32_t *order, int64_t *peak)
{
    sglcore_arena arena = { .env = work->env };
    planner p = { .w = work, .best = order, .best_peak = INT64_MAX };
    sgl_status status = make_room(&p, &arena) ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK && has_circle(&p))
        status = sglcore_fail(work->env, SGL_INTERNAL, "schedule: nodes wait for one another in a circle");
    if (status == SGL_OK) status = try_orders(&p);
    *peak = p.best_peak;
    sglcore_vec_free(work->env, &p.heap);
    sglcore_arena_free(&arena);
    return status;
}
