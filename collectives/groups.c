/* groups.c -- groups of ranks, and what enters them: arguments are checked here, before anything is under way.
 *
 * Comes in: the ranks of a group, as all of them give them; exchanges. Goes out: a group with all the memory that its
 * exchanges will need, and exchanges in its queue. To make a group nothing is exchanged: ranks that disagree about one
 * find out at its first exchange, whose notes carry the group's hash and its number, which ranks that are not in it
 * count, too. Odd invariant: groups stand in one list that only grows, so that the communication thread walks it
 * without a lock. */
#include <string.h>

#include "collectives/engine.h"

static const char *const kind_names[SGLEXEC_EXCHANGE_COUNT] = {
#define KIND_NAME(name, text) [SGLEXEC_##name] = #text,
    SGLEXEC_EXCHANGES(KIND_NAME)
#undef KIND_NAME
};

const char *sglcomm_kind_name(int kind) { return kind >= 0 && kind < SGLEXEC_EXCHANGE_COUNT ? kind_names[kind] : "?"; }

/* ---- making one -------------------------------------------------------------------------------------------------- */

static int64_t notes_bytes(void) { return 2 * (int64_t)SGLCOMM_WINDOW * SGLCOMM_NOTE_ROOM; }

void sglcomm_group_free(sglexec_group *group)
{
    if (!group) return;
    sglcore_env *env = group->comm->env;
    const size_t count = (size_t)group->count;
    sglcore_free(env, group->ranks, count * sizeof *group->ranks);
    sglcore_free(env, group->out_at, (count + 1) * sizeof *group->out_at);
    sglcore_free(env, group->in_at, (count + 1) * sizeof *group->in_at);
    sglcore_free(env, group->sources, count * sizeof *group->sources);
    sglcore_free(env, group->pairs, 2 * count * sizeof *group->pairs);
    if (group->notes) sglcore_free_aligned(env, group->notes, (size_t)notes_bytes(), 64);
    if (group->staging) sglcore_free_aligned(env, group->staging, (size_t)group->staging_bytes, 64);
    sglcore_free_aligned(env, group, sizeof *group, 64);
}

static sgl_status check_ranks(sglexec_comm *comm, const char *name, const int *ranks, int count, int *place)
{
    *place = -1;
    if (count < 1 || count > comm->size)
        return sglcore_fail(comm->env, SGL_INVALID_ARGUMENT, "group %s of %d ranks in a world of %d", name, count,
                            comm->size);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            return sglcore_fail(comm->env, SGL_INVALID_ARGUMENT, "group %s: there is no rank %d in a world of %d", name,
                                ranks[i], comm->size);
        if (ranks[i] == comm->rank) *place = i;
        for (int j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return sglcore_fail(comm->env, SGL_INVALID_ARGUMENT, "group %s has rank %d twice", name, ranks[i]);
    }
    return SGL_OK;
}

/* Rows of pieces to be reduced fit in the staging, whatever the number of ranks; the same numbers on all of them. On a
 * shaped link pieces are small, so that the real link's time for the last one does not show, but a window of them fills
 * it. */
static void size_pieces(sglexec_group *group)
{
    const sglexec_comm_options *options = &group->comm->options;
    const int64_t others = group->count > 1 ? group->count - 1 : 1;
    int64_t piece = SGLCOMM_STAGING / others, most = SGLCOMM_PIECE;
    if (options->bytes_per_s > 0 && options->bytes_per_s * options->latency_us / 1e6 < 4.0 * SGLCOMM_PIECE) {
        most = (int64_t)(options->bytes_per_s * options->latency_us / 1e6) / 4;
        if (most < SGLCOMM_PIECE / 32) most = SGLCOMM_PIECE / 32;
    }
    if (piece > most) piece = most;
    piece = piece / 64 * 64;
    if (piece < 64) piece = 64;
    group->piece_bytes = piece;
    group->staging_bytes = 2 * others * piece;
    if (group->staging_bytes < SGLCOMM_SMALL) group->staging_bytes = SGLCOMM_SMALL;
}

static sgl_status take_memory(sglexec_group *group)
{
    sglcore_env *env = group->comm->env;
    const size_t count = (size_t)group->count;
    group->ranks = sglcore_alloc(env, count * sizeof *group->ranks);
    group->out_at = sglcore_alloc(env, (count + 1) * sizeof *group->out_at);
    group->in_at = sglcore_alloc(env, (count + 1) * sizeof *group->in_at);
    group->sources = sglcore_alloc(env, count * sizeof *group->sources);
    group->pairs = sglcore_alloc_zero(env, 2 * count * sizeof *group->pairs);
    group->notes = sglcore_alloc_aligned(env, (size_t)notes_bytes(), 64);
    group->staging = sglcore_alloc_aligned(env, (size_t)group->staging_bytes, 64);
    const bool lists = group->ranks && group->out_at && group->in_at && group->sources && group->pairs;
    return lists && group->notes && group->staging ? SGL_OK : SGL_OUT_OF_MEMORY;
}

sgl_status sglcomm_group(sglexec_comm *comm, const char *name, const int *ranks, int count, sglexec_group **result)
{
    int place;
    *result = NULL;
    SGLCORE_TRY(sglcomm_check(comm, 0));
    SGLCORE_TRY(check_ranks(comm, name, ranks, count, &place));
    if (2 * comm->group_count + 2 >= comm->channels)
        return sglcore_fail(comm->env, SGL_LIMIT, "group %s: the transport has channels for %d groups", name,
                            comm->group_count);
    if (place < 0) { /* of others: it counts */
        comm->group_count++;
        return SGL_OK;
    }
    sglexec_group *group = sglcore_alloc_aligned(comm->env, sizeof *group, 64);
    if (!group) return SGL_OUT_OF_MEMORY;
    memset(group, 0, sizeof *group);
    group->comm = comm;
    group->count = count;
    group->place = place;
    group->number = comm->group_count;
    strncpy(group->name, name, sizeof group->name - 1);
    size_pieces(group);
    if (take_memory(group) != SGL_OK) {
        sglcomm_group_free(group);
        return SGL_OUT_OF_MEMORY;
    }
    memcpy(group->ranks, ranks, (size_t)count * sizeof *ranks);
    group->hash = sglcore_hash_bytes(ranks, (size_t)count * sizeof *ranks).low ^ (uint64_t)(group->number + 1);
    for (int i = 0; i < SGLCOMM_WINDOW; i++) {
        group->run.out.pieces[i].note = group->notes + (2 * i) * (size_t)SGLCOMM_NOTE_ROOM;
        group->run.in.pieces[i].note = group->notes + (2 * i + 1) * (size_t)SGLCOMM_NOTE_ROOM;
    }
    comm->group_count++;
    group->next = atomic_load(&comm->groups);
    atomic_store(&comm->groups, group);
    *result = group;
    return SGL_OK;
}

/* ---- what enters one --------------------------------------------------------------------------------------------- */

/* Elements of a list of counts, or -1: one is negative, or their bytes are beyond 2^63. */
static int64_t total_of(const int64_t *counts, int64_t count, int ranks, sgl_dtype dtype)
{
    int64_t total = 0;
    for (int i = 0; i < ranks; i++) {
        const int64_t here = counts ? counts[i] : count;
        if (here < 0 || total > INT64_MAX - here) return -1;
        total += here;
    }
    return sglcore_dtype_bytes(dtype, total) < 0 ? -1 : total;
}

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* Elements that an exchange reads and writes here, and where within the larger the smaller may lie. */
typedef struct extent {
    int64_t from, to, own; /* own: elements before the own part; -1: from and to may not meet */
} extent;

static extent extent_of(const sglexec_exchange *x, int ranks, int place)
{
    const sgl_dtype dtype = (sgl_dtype)x->dtype;
    const int64_t whole = total_of(NULL, x->count, 1, dtype), before = total_of(x->counts, x->count, place, dtype);
    const int64_t own = x->counts ? x->counts[place] : x->count;
    const int64_t all = total_of(x->counts, x->count, ranks, dtype);
    switch (x->kind) {
    case SGLEXEC_ALL_REDUCE: return (extent){ whole, whole, 0 };
    case SGLEXEC_REDUCE_SCATTER: return (extent){ all, all < 0 ? -1 : own, before };
    case SGLEXEC_ALL_GATHER: return (extent){ all < 0 ? -1 : own, all, before };
    case SGLEXEC_ALL_TO_ALL: return (extent){ all, total_of(x->counts_in, x->count, ranks, dtype), -1 };
    case SGLEXEC_BROADCAST: return (extent){ x->peer == place ? whole : whole < 0 ? -1 : 0, whole, 0 };
    case SGLEXEC_SEND: return (extent){ whole, 0, -1 };
    case SGLEXEC_RECEIVE: return (extent){ 0, whole, -1 };
    default: return (extent){ 0, 0, -1 };
    }
}

static const char *fault_of_ranges(const sglexec_exchange *x, int ranks, int place)
{
    const extent e = extent_of(x, ranks, place);
    if (e.from < 0 || e.to < 0) return "a count is negative, or the bytes of all are beyond 2^63";
    if (x->kind == SGLEXEC_ALL_TO_ALL &&
        (x->counts ? x->counts[place] : x->count) != (x->counts_in ? x->counts_in[place] : x->count))
        return "what this rank sends to itself is not what it receives from itself";
    if ((e.from > 0 && !x->from) || (e.to > 0 && !x->to)) return "from or to is NULL";
    const sgl_dtype dtype = (sgl_dtype)x->dtype;
    const int64_t bytes_from = sglcore_dtype_bytes(dtype, e.from), bytes_to = sglcore_dtype_bytes(dtype, e.to);
    if (!overlap(x->from, bytes_from, x->to, bytes_to)) return NULL;
    const char *large = e.from > e.to ? x->from : x->to, *small = e.from > e.to ? x->to : x->from;
    if (e.own < 0 || small != large + sglcore_dtype_bytes(dtype, e.own)) return "from and to overlap";
    return NULL;
}

/* Of each by itself, and of all their bytes together. Members are not held against one another: comm.h. */
static const char *fault_of_members(const sglexec_exchange *x, int ranks, int place)
{
    int64_t all = 0, all_in = 0;
    const bool turns = x->kind == SGLEXEC_ALL_TO_ALL;
    if (x->kind != SGLEXEC_REDUCE_SCATTER && x->kind != SGLEXEC_ALL_GATHER && !turns)
        return "an exchange of this kind has no members";
    if (x->member_count < 0 || !x->members) return "there are no members";
    for (int i = 0; i < x->member_count; i++) {
        sglexec_exchange one = *x;
        one.from = x->members[i].from;
        one.to = x->members[i].to;
        one.counts = x->members[i].counts;
        one.counts_in = x->members[i].counts_in;
        if (!one.counts || (turns && !one.counts_in)) return "a member has no counts";
        const char *fault = fault_of_ranges(&one, ranks, place);
        if (fault) return fault;
        const sgl_dtype dtype = (sgl_dtype)x->dtype;
        const int64_t bytes = sglcore_dtype_bytes(dtype, total_of(one.counts, 0, ranks, dtype));
        const int64_t bytes_in = turns ? sglcore_dtype_bytes(dtype, total_of(one.counts_in, 0, ranks, dtype)) : 0;
        if (__builtin_add_overflow(all, bytes, &all) || __builtin_add_overflow(all_in, bytes_in, &all_in))
            return "the bytes of all members are beyond 2^63";
    }
    return NULL;
}

static const char *fault_of(const sglexec_exchange *x, int ranks, int place)
{
    const bool reduces = x->kind == SGLEXEC_ALL_REDUCE || x->kind == SGLEXEC_REDUCE_SCATTER;
    const bool pair = x->kind == SGLEXEC_SEND || x->kind == SGLEXEC_RECEIVE;
    if (x->kind >= SGLEXEC_EXCHANGE_COUNT) return "there is no such kind of exchange";
    if (x->dtype >= SGL_DTYPE_COUNT) return "there is no such dtype";
    if (x->kind == SGLEXEC_BARRIER) return NULL;
    if (x->dtype == SGL_I4) return "two elements of i4 share a byte: cast to i8 before it is exchanged";
    if (reduces && x->reduction >= SGLEXEC_REDUCTION_COUNT) return "there is no such reduction";
    if (reduces && !sglcomm_reduces((sgl_dtype)x->dtype, (sglexec_reduction)x->reduction))
        return "bools have no sum: cast them, or take max or min";
    if ((pair || x->kind == SGLEXEC_BROADCAST) && (x->peer < 0 || x->peer >= ranks))
        return "peer is no place of the group";
    if (pair && x->peer == place) return "peer is this rank itself";
    return x->member_count != 0 ? fault_of_members(x, ranks, place) : fault_of_ranges(x, ranks, place);
}

sgl_status sglcomm_check_exchange(sglcore_env *env, const char *group, int count, int place,
                                  const sglexec_exchange *exchange)
{
    const char *fault = fault_of(exchange, count, place);
    if (!fault) return SGL_OK;
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s of group %s (%s): %s", sglcomm_kind_name(exchange->kind), group,
                        exchange->label ? exchange->label : "no label", fault);
}

uint64_t sglcomm_signature(const sglexec_group *group, const sglexec_exchange *x)
{
    const bool pair = x->kind == SGLEXEC_SEND || x->kind == SGLEXEC_RECEIVE;
    const bool reduces = x->kind == SGLEXEC_ALL_REDUCE || x->kind == SGLEXEC_REDUCE_SCATTER;
    const bool uneven = x->counts && (x->kind == SGLEXEC_REDUCE_SCATTER || x->kind == SGLEXEC_ALL_GATHER);
    if (x->kind == SGLEXEC_BARRIER) return SGLEXEC_BARRIER;
    int64_t facts[5] = { pair ? SGLEXEC_SEND : x->kind, x->dtype, reduces ? x->reduction : 0,
                         x->kind == SGLEXEC_BROADCAST ? x->peer : 0, 0 };
    if (x->member_count > 0) {
        for (int i = 0; i < x->member_count && x->kind != SGLEXEC_ALL_TO_ALL; i++) {
            const uint64_t counts =
                sglcore_hash_bytes(x->members[i].counts, (size_t)group->count * sizeof(int64_t)).low;
            facts[4] = (int64_t)((uint64_t)facts[4] * UINT64_C(0x9E3779B97F4A7C15) + counts);
        }
        facts[3] = x->member_count;
    } else if (uneven) {
        /* Equal counts mean the same, written out or not. */
        bool even = true;
        for (int i = 1; i < group->count; i++) even = even && x->counts[i] == x->counts[0];
        facts[4] =
            even ? x->counts[0] : (int64_t)sglcore_hash_bytes(x->counts, (size_t)group->count * sizeof *x->counts).low;
    } else if (x->kind != SGLEXEC_ALL_TO_ALL) {
        facts[4] = x->count;
    }
    return sglcore_hash_bytes(facts, sizeof facts).low;
}

sgl_status sglcomm_start(sglexec_group *group, const sglexec_exchange *exchange, void *stream, uint32_t *ticket)
{
    sglexec_comm *comm = group->comm;
    SGLCORE_TRY(sglcomm_check(comm, 0));
    SGLCORE_TRY(sglcomm_check_exchange(comm->env, group->name, group->count, group->place, exchange));
    if (stream)
        return sglcore_fail(comm->env, SGL_UNSUPPORTED, "%s of group %s: the transport moves the host's memory alone",
                            sglcomm_kind_name(exchange->kind), group->name);
    const uint64_t started = atomic_load_explicit(&group->started, memory_order_relaxed);
    if (started - atomic_load_explicit(&group->finished, memory_order_acquire) >= SGLCOMM_QUEUE)
        return sglcore_fail(comm->env, SGL_LIMIT, "group %s has %d exchanges started and not ended: wait for some",
                            group->name, SGLCOMM_QUEUE);
    group->queue[started % SGLCOMM_QUEUE] = *exchange;
    atomic_store(&group->started, started + 1);
    *ticket = (uint32_t)(started + 1);
    sglcomm_wake(comm);
    return SGL_OK;
}
