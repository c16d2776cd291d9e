/* moves.c -- the algorithms: which pieces go to whom, and come from whom, for each kind of exchange.
 *
 * Comes in: an exchange. Goes out: phases, and the pieces of each in an order that sender and receiver count alike.
 * Large ones go in pairs: rank r sends to r + 1, r + 2, ..., so that each rank receives from one at a time; reductions
 * are a part for each rank, sent to it by all, added there in the group's order; all_reduce is that and a gather, a
 * large broadcast parts and a gather. Small ones go by doubling (Bruck et al., "Efficient algorithms for all-to-all
 * communications", 1997): every rank has everything after log2(n) rounds, and reduces it in the same order, so that the
 * way changes no bit. Of an exchange of many the rows of the first member come first, then those of the second: one
 * exchange of that many parts, each where it lies. Odd invariant: pieces are ordered by row, then by distance; the
 * first that is not done anywhere is in its sender's window and in its receiver's, so windows never wait for each other
 * in a ring. */
#include <string.h>

#include "collectives/engine.h"

static int64_t size_of(const sglexec_exchange *x) { return sglcore_dtype_bits((sgl_dtype)x->dtype) / 8; }

/* at[p]: bytes before the part of place p. */
static void lay_counts(int64_t *at, const int64_t *counts, int64_t count, int places, int64_t size)
{
    at[0] = 0;
    for (int p = 0; p < places; p++) at[p + 1] = at[p] + (counts ? counts[p] : count) * size;
}

/* One part for each place, larger first. */
static void lay_parts(int64_t *at, int64_t count, int places, int64_t size)
{
    at[0] = 0;
    for (int p = 0; p < places; p++) at[p + 1] = at[p] + (count / places + (p < count % places)) * size;
}

/* ---- members: an exchange by itself is one ----------------------------------------------------------------------- */

static int members_of(const sglexec_exchange *x) { return x->member_count > 0 ? x->member_count : 1; }

static sglexec_member member_of(const sglexec_exchange *x, int member)
{
    return x->member_count > 0 ? x->members[member] : (sglexec_member){ x->from, x->to, x->counts, x->counts_in };
}

/* Bytes of the member's part of a place, and of those before it: of its counts, or its counts_in. */
static int64_t part_bytes(const sglexec_exchange *x, const int64_t *counts, int place)
{
    return (counts ? counts[place] : x->count) * size_of(x);
}

static int64_t bytes_before(const sglexec_exchange *x, const int64_t *counts, int place)
{
    int64_t bytes = 0;
    for (int p = 0; p < place; p++) bytes += part_bytes(x, counts, p);
    return bytes;
}

static void copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0 && to != from) memmove(to, from, (size_t)bytes);
}

/* ---- doubling: block i is of the place that stands i behind this one --------------------------------------------- */

static int64_t block_at(const sglexec_group *g, int block)
{
    const int place = g->place + block;
    const int64_t own = g->in_at[g->place];
    return place <= g->count ? g->in_at[place] - own : g->in_at[g->count] - own + g->in_at[place - g->count];
}

static void reduce_blocks(sglexec_group *g)
{
    const sglexec_exchange *x = &g->run.exchange;
    for (int p = 0; p < g->count; p++) g->sources[p] = g->staging + block_at(g, (p - g->place + g->count) % g->count);
    sglcomm_reduce((sgl_dtype)x->dtype, (sglexec_reduction)x->reduction, x->to, g->sources, g->count, x->count);
}

/* A block has the parts of all members, one behind another: out_at, which doubling has no other use for, is where the
 * next member's lies in each of them. */
static void gather_blocks(sglexec_group *g)
{
    const sglexec_exchange *x = &g->run.exchange;
    for (int p = 0; p < g->count; p++) g->out_at[p] = block_at(g, (p - g->place + g->count) % g->count);
    for (int i = 0; i < members_of(x); i++) {
        const sglexec_member m = member_of(x, i);
        char *to = m.to;
        for (int p = 0; p < g->count; p++) {
            const int64_t bytes = part_bytes(x, m.counts, p);
            copy(to, g->staging + g->out_at[p], bytes);
            to += bytes;
            g->out_at[p] += bytes;
        }
    }
}

static void fill_block(sglexec_group *g)
{
    const sglexec_exchange *x = &g->run.exchange;
    unsigned char *block = g->staging;
    for (int i = 0; i < members_of(x); i++) {
        const sglexec_member m = member_of(x, i);
        copy(block, m.from, part_bytes(x, m.counts, g->place));
        block += part_bytes(x, m.counts, g->place);
    }
}

static bool next_block(sglexec_group *g, bool out, sglcomm_piece *piece)
{
    sglcomm_run *run = &g->run;
    sglcomm_window *w = out ? &run->out : &run->in;
    const int distance = w->row < 31 ? 1 << w->row : g->count;
    if (distance >= g->count) {
        w->over = true;
        return false;
    }
    if (out && run->rows_in < w->row) return false; /* it sends what came in the rounds before */
    const int blocks = distance < g->count - distance ? distance : g->count - distance;
    const int first = out ? 0 : distance;
    piece->data = g->staging + block_at(g, first);
    piece->bytes = block_at(g, first + blocks) - block_at(g, first);
    piece->place = (g->place + (out ? g->count - distance : distance)) % g->count;
    piece->row = w->row++;
    return true;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static bool meets(const sglexec_group *g, bool out, int other)
{
    const sglcomm_phase *phase = &g->run.now;
    const int only = out ? phase->only_to : phase->only_from;
    return (only == -1 || only == other) && phase->deaf != (out ? other : g->place);
}

static int64_t part_of(const sglexec_group *g, bool out, int other, int64_t *at)
{
    const sglcomm_phase *phase = &g->run.now;
    const int64_t alike = out ? phase->out_alike : phase->in_alike, *places = out ? g->out_at : g->in_at;
    *at = alike >= 0 ? 0 : places[other];
    return alike >= 0 ? alike : places[other + 1] - places[other];
}

static int64_t rows_of(const sglexec_group *g, bool out)
{
    int64_t most = 0, at;
    bool any = false;
    for (int p = 0; p < g->count; p++) {
        if (p == g->place || !meets(g, out, p)) continue;
        const int64_t bytes = part_of(g, out, p, &at);
        any = true;
        if (bytes > most) most = bytes;
    }
    const int64_t rows = most / g->piece_bytes + (most % g->piece_bytes != 0);
    return any && rows == 0 ? 1 : rows;
}

static unsigned char *slot_of(const sglexec_group *g, int64_t row, int place)
{
    const int distance = (g->place - place + g->count) % g->count;
    return g->staging + ((row & 1) * (g->count - 1) + distance - 1) * g->piece_bytes;
}

/* Whether each member's parts are exchanged by themselves, in pairs; sums and gathers, unless they are small, and turns. */
static bool is_by_members(const sglexec_exchange *x)
{
    return x->kind == SGLEXEC_REDUCE_SCATTER || x->kind == SGLEXEC_ALL_GATHER || x->kind == SGLEXEC_ALL_TO_ALL;
}

/* The member whose rows come next out of this rank, or into it. */
static void enter_member(sglexec_group *g, bool out)
{
    sglcomm_run *run = &g->run;
    const sglexec_exchange *x = &run->exchange;
    const sglexec_member m = member_of(x, out ? run->out.member : run->in.member);
    const bool gathers = x->kind == SGLEXEC_ALL_GATHER, turns = x->kind == SGLEXEC_ALL_TO_ALL;
    int64_t *at = out ? g->out_at : g->in_at;
    lay_counts(at, turns && !out ? m.counts_in : m.counts, x->count, g->count, size_of(x));
    const int64_t own = at[g->place + 1] - at[g->place];
    if (out) {
        run->now.out = gathers ? (unsigned char *)m.to + at[g->place] : (unsigned char *)(uintptr_t)m.from;
        run->now.out_alike = gathers ? own : -1;
        run->now.rows_out = rows_of(g, true);
    } else {
        run->now.in = m.to;
        run->now.in_alike = gathers || turns ? -1 : own;
        run->now.rows_in = rows_of(g, false);
    }
}

/* The next piece of the member at hand. */
static bool next_of_member(sglexec_group *g, bool out, sglcomm_piece *piece)
{
    sglcomm_run *run = &g->run;
    sglcomm_window *w = out ? &run->out : &run->in;
    const sglcomm_phase *phase = &run->now;
    while (w->row < (out ? phase->rows_out : phase->rows_in)) {
        const int64_t row = w->rows_before + w->row;
        if (!out && phase->reduces && row >= run->rows_in + 2) return false; /* its slots are not free yet */
        while (++w->step < g->count) {
            const int other = (g->place + (out ? w->step : g->count - w->step)) % g->count;
            int64_t at;
            if (!meets(g, out, other)) continue;
            const int64_t bytes = part_of(g, out, other, &at), before = w->row * g->piece_bytes;
            if (w->row > 0 && before >= bytes) continue;
            piece->place = other;
            piece->row = row;
            piece->member = w->member;
            piece->before = before;
            piece->bytes = bytes - before < g->piece_bytes ? bytes - before : g->piece_bytes;
            piece->data =
                !out && phase->reduces ? slot_of(g, row, other) : (out ? phase->out : phase->in) + at + before;
            return true;
        }
        w->row++;
        w->step = 0;
    }
    w->over = true;
    return false;
}

static bool next_pair(sglexec_group *g, bool out, sglcomm_piece *piece)
{
    sglcomm_window *w = out ? &g->run.out : &g->run.in;
    while (!next_of_member(g, out, piece)) {
        if (!w->over || w->member + 1 == members_of(&g->run.exchange)) return false;
        w->over = false;
        w->rows_before += w->row;
        w->row = 0;
        w->step = 0;
        w->member++;
        enter_member(g, out);
    }
    return true;
}

/* The row of which the last piece has come. */
static void reduce_row(sglexec_group *g, const sglcomm_piece *last)
{
    const sglexec_exchange *x = &g->run.exchange;
    const sglexec_member m = member_of(x, last->member);
    const bool in_all = x->kind == SGLEXEC_ALL_REDUCE; /* the parts of which are no counts */
    const int64_t own = in_all ? g->out_at[g->place] : bytes_before(x, m.counts, g->place);
    unsigned char *to = in_all ? g->run.now.in : m.to;
    for (int p = 0; p < g->count; p++)
        g->sources[p] = p == g->place ? (const unsigned char *)m.from + own + last->before : slot_of(g, last->row, p);
    sglcomm_reduce((sgl_dtype)x->dtype, (sglexec_reduction)x->reduction, to + last->before, g->sources, g->count,
                   last->bytes / size_of(x));
}

bool sglcomm_moves_next(sglexec_group *group, bool out, sglcomm_piece *piece)
{
    return group->run.now.doubling ? next_block(group, out, piece) : next_pair(group, out, piece);
}

void sglcomm_moves_came(sglexec_group *group, const sglcomm_piece *piece)
{
    const bool last = piece->place == (group->place + 1) % group->count; /* the farthest behind this one */
    if (group->run.now.doubling) {
        group->run.rows_in++;
    } else if (group->run.now.reduces && last) {
        reduce_row(group, piece);
        group->run.rows_in++;
    }
}

/* ---- the kinds --------------------------------------------------------------------------------------------------- */

/* The parts of the exchange in out_at and in_at, and whether all of it is small; alike on all ranks. */
static bool lay(sglexec_group *g)
{
    const sglexec_exchange *x = &g->run.exchange;
    const int64_t size = size_of(x);
    const int n = g->count;
    switch (x->kind) {
    case SGLEXEC_ALL_REDUCE:
        if (x->count <= SGLCOMM_SMALL / n / size) {
            lay_counts(g->in_at, NULL, x->count, n, size);
            return true;
        }
        lay_parts(g->out_at, x->count, n, size);
        lay_parts(g->in_at, x->count, n, size);
        return false;
    case SGLEXEC_REDUCE_SCATTER:
    case SGLEXEC_ALL_TO_ALL: return false; /* member by member */
    case SGLEXEC_ALL_GATHER:
        g->in_at[0] = 0;
        for (int p = 0; p < n; p++) {
            g->in_at[p + 1] = g->in_at[p];
            for (int i = 0; i < members_of(x); i++) {
                const sglexec_member m = member_of(x, i);
                g->in_at[p + 1] += part_bytes(x, m.counts, p);
            }
        }
        return g->in_at[n] <= SGLCOMM_SMALL;
    case SGLEXEC_BROADCAST:
        lay_parts(g->out_at, x->count, n, size);
        lay_parts(g->in_at, x->count, n, size);
        return n <= 2 || g->in_at[n] <= SGLCOMM_SMALL;
    default: lay_counts(g->in_at, NULL, 0, n, 1); return true;
    }
}

static int64_t own_in(const sglexec_group *g) { return g->in_at[g->place + 1] - g->in_at[g->place]; }

/* Own parts, and what a group of one rank is given. */
static void copy_members(sglexec_group *g)
{
    const sglexec_exchange *x = &g->run.exchange;
    const bool turns = x->kind == SGLEXEC_ALL_TO_ALL;
    for (int i = 0; i < members_of(x); i++) {
        const sglexec_member m = member_of(x, i);
        const char *from = (const char *)m.from + (turns ? bytes_before(x, m.counts, g->place) : 0);
        const int64_t before = bytes_before(x, turns ? m.counts_in : m.counts, g->place);
        copy((char *)m.to + before, from, part_bytes(x, m.counts, g->place));
    }
}

void sglcomm_moves_begin(sglexec_group *g)
{
    sglcomm_run *run = &g->run;
    const sglexec_exchange *x = &run->exchange;
    const bool small = lay(g), all = x->kind == SGLEXEC_ALL_REDUCE || x->kind == SGLEXEC_ALL_GATHER;
    run->now.doubling = small && (all || x->kind == SGLEXEC_BARRIER);
    run->phases = !small && (x->kind == SGLEXEC_ALL_REDUCE || x->kind == SGLEXEC_BROADCAST) ? 2 : 1;
    if (run->now.doubling && x->kind == SGLEXEC_ALL_GATHER)
        fill_block(g);
    else if (run->now.doubling)
        copy(g->staging, x->from, own_in(g));
    else if (is_by_members(x) && (x->kind != SGLEXEC_REDUCE_SCATTER || g->count == 1))
        copy_members(g);
    else if (x->kind == SGLEXEC_BROADCAST && x->peer == g->place)
        copy(x->to, x->from, g->in_at[g->count]);
    else if (g->count == 1 && x->kind == SGLEXEC_ALL_REDUCE)
        copy(x->to, x->from, own_in(g));
}

void sglcomm_moves_phase(sglexec_group *g)
{
    sglcomm_run *run = &g->run;
    const sglexec_exchange *x = &run->exchange;
    const bool again = run->phase == 1; /* the second: a gather of parts that lie in `to` */
    sglcomm_phase *now = &run->now;
    run->rows_in = 0;
    if (now->doubling) return;
    *now = (sglcomm_phase){ .only_to = -1, .only_from = -1, .deaf = -1, .out_alike = -1, .in_alike = -1, .in = x->to };
    if (is_by_members(x)) {
        now->reduces = x->kind == SGLEXEC_REDUCE_SCATTER;
        enter_member(g, true);
        enter_member(g, false);
        return;
    }
    const int64_t own = own_in(g);
    now->out = again ? (unsigned char *)x->to : (unsigned char *)(uintptr_t)x->from;
    switch (x->kind) {
    case SGLEXEC_ALL_REDUCE:
        now->in += again ? 0 : g->in_at[g->place];
        if (again) {
            now->out += g->in_at[g->place];
            now->out_alike = own;
        } else {
            now->reduces = true;
            now->in_alike = own;
        }
        break;
    case SGLEXEC_BROADCAST:
        now->only_to = x->peer == g->place || again ? -1 : -2;
        now->only_from = again ? -1 : x->peer;
        now->deaf = x->peer;
        now->out = x->to;
        if (run->phases == 1) {
            now->out_alike = now->in_alike = g->in_at[g->count];
        } else if (again) {
            now->out += g->in_at[g->place];
            now->out_alike = own;
        } else {
            now->in += g->in_at[g->place];
            now->in_alike = own;
        }
        break;
    case SGLEXEC_SEND:
    case SGLEXEC_RECEIVE:
        now->only_to = x->kind == SGLEXEC_SEND ? x->peer : -2;
        now->only_from = x->kind == SGLEXEC_SEND ? -2 : x->peer;
        now->out_alike = now->in_alike = x->count * size_of(x);
        break;
    default: break;
    }
    now->rows_out = rows_of(g, true);
    now->rows_in = rows_of(g, false);
}

void sglcomm_moves_end(sglexec_group *group)
{
    if (!group->run.now.doubling) return;
    if (group->run.exchange.kind == SGLEXEC_ALL_REDUCE) reduce_blocks(group);
    if (group->run.exchange.kind == SGLEXEC_ALL_GATHER) gather_blocks(group);
}
