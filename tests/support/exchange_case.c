/* exchange_case.c -- data, oracle and storms of exchange_case.h.
 *
 * Comes in: seeds. Goes out: exchanges and verdicts. Odd invariant: the oracle knows nothing of pieces, phases or doubling: it
 * fills whole arrays of every place and reduces them one element at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/narrow.h"
#include "tests/support/exchange_case.h"

enum { GUARD = 32 };

uint64_t exchange_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t size_of(const exchange_case *c) { return sglcore_dtype_bits((sgl_dtype)c->x.dtype) / 8; }

/* The i-th element that `place` gives. */
static void give(const exchange_case *c, int place, int64_t i, unsigned char *out)
{
    uint64_t state = c->seed ^ (uint64_t)(place + 1) << 48 ^ (uint64_t)i;
    const uint64_t bits = exchange_random(&state);
    const float real = (float)((double)(int64_t)(bits >> 20) / (double)(1LL << 42) - 2.0);
    union {
        double f64;
        float f32;
        uint16_t u16;
        uint8_t u8;
        uint64_t u64;
    } value = { .u64 = bits };
    switch (c->x.dtype) {
    case SGL_F64: value.f64 = (double)real * 1.1; break;
    case SGL_F32: value.f32 = real; break;
    case SGL_BF16: value.u16 = sglcpu_narrow_bf16(real); break;
    case SGL_F16: value.u16 = sglcpu_narrow_f16(real); break;
    case SGL_F8E4M3: value.u8 = sglcpu_narrow_f8e4m3(real); break;
    case SGL_F8E5M2: value.u8 = sglcpu_narrow_f8e5m2(real); break;
    case SGL_BOOL: value.u64 = bits & 1; break;
    default: break;
    }
    memcpy(out, &value, (size_t)size_of(c));
}

#define COMBINE(T, code)                                                                                               \
    {                                                                                                                  \
        T a, b;                                                                                                        \
        memcpy(&a, sum, sizeof a);                                                                                     \
        memcpy(&b, next, sizeof b);                                                                                    \
        a = code == SGLEXEC_SUM ? (T)(a + b) : code == SGLEXEC_MAX ? (a > b ? a : b) : (a < b ? a : b);                \
        memcpy(sum, &a, sizeof a);                                                                                     \
        break;                                                                                                         \
    }

/* sum: a float32 for narrow floats, else the element. */
static void combine(const exchange_case *c, unsigned char *sum, const unsigned char *next)
{
    const int code = c->x.reduction;
    switch (c->x.dtype) {
    case SGL_F64: COMBINE(double, code)
    case SGL_F32:
    case SGL_BF16:
    case SGL_F16:
    case SGL_F8E4M3:
    case SGL_F8E5M2: COMBINE(float, code)
    case SGL_I64:
        if (code == SGLEXEC_SUM) COMBINE(uint64_t, code)
        COMBINE(int64_t, code)
    case SGL_I32:
        if (code == SGLEXEC_SUM) COMBINE(uint32_t, code)
        COMBINE(int32_t, code)
    case SGL_I16: COMBINE(int16_t, code)
    case SGL_I8: COMBINE(int8_t, code)
    case SGL_U16: COMBINE(uint16_t, code)
    case SGL_U32: COMBINE(uint32_t, code)
    default: COMBINE(uint8_t, code)
    }
}

static void widen(const exchange_case *c, unsigned char *value)
{
    uint16_t half;
    float wide;
    memcpy(&half, value, sizeof half);
    switch (c->x.dtype) {
    case SGL_BF16: wide = sglcpu_widen_bf16(half); break;
    case SGL_F16: wide = sglcpu_widen_f16(half); break;
    case SGL_F8E4M3: wide = sglcpu_widen_f8e4m3(value[0]); break;
    case SGL_F8E5M2: wide = sglcpu_widen_f8e5m2(value[0]); break;
    default: return;
    }
    memcpy(value, &wide, sizeof wide);
}

static void narrow(const exchange_case *c, unsigned char *value)
{
    uint16_t half = 0;
    float wide;
    memcpy(&wide, value, sizeof wide);
    switch (c->x.dtype) {
    case SGL_BF16: half = sglcpu_narrow_bf16(wide); break;
    case SGL_F16: half = sglcpu_narrow_f16(wide); break;
    case SGL_F8E4M3: half = sglcpu_narrow_f8e4m3(wide); break;
    case SGL_F8E5M2: half = sglcpu_narrow_f8e5m2(wide); break;
    default: return;
    }
    memcpy(value, &half, sizeof half);
}

static void reduced(const exchange_case *c, int64_t i, unsigned char value[8])
{
    unsigned char next[8];
    for (int p = 0; p < c->places; p++) {
        memset(next, 0, sizeof next);
        give(c, p, i, next);
        widen(c, next);
        if (p == 0)
            memcpy(value, next, sizeof next);
        else
            combine(c, value, next);
    }
    narrow(c, value);
}

static int64_t before(const int64_t *counts, int place)
{
    int64_t sum = 0;
    for (int p = 0; p < place; p++) sum += counts[p];
    return sum;
}

/* The i-th element that must come. */
static void awaited(const exchange_case *c, int64_t i, unsigned char value[8])
{
    switch (c->x.kind) {
    case SGLEXEC_ALL_REDUCE: reduced(c, i, value); return;
    case SGLEXEC_REDUCE_SCATTER: reduced(c, i + before(c->counts, c->place), value); return;
    case SGLEXEC_BROADCAST: give(c, c->x.peer, i, value); return;
    case SGLEXEC_RECEIVE: give(c, c->x.peer, i, value); return;
    case SGLEXEC_ALL_GATHER:
        for (int p = 0; p < c->places; i -= c->counts[p++])
            if (i < c->counts[p]) {
                give(c, p, i, value);
                return;
            }
        return;
    default:
        for (int p = 0; p < c->places; i -= c->counts_in[p++])
            if (i < c->counts_in[p]) {
                give(c, p, i + before(c->matrix[p], c->place), value);
                return;
            }
    }
}

static int64_t draw_count(uint64_t *state, int64_t count)
{
    const uint64_t choice = exchange_random(state) % 4;
    return choice == 0 ? 0 : choice == 1 ? count : (int64_t)(exchange_random(state) % (uint64_t)(2 * count + 1));
}

void exchange_case_make(exchange_case *c, uint64_t seed, int places, int place, sglexec_exchange_kind kind,
                        sgl_dtype dtype, sglexec_reduction reduction, int64_t count)
{
    uint64_t state = seed;
    memset(c, 0, sizeof *c);
    c->places = places;
    c->place = place;
    c->seed = seed;
    for (int p = 0; p < places; p++) c->counts[p] = draw_count(&state, count);
    for (int p = 0; p < places; p++)
        for (int q = 0; q < places; q++) c->matrix[p][q] = draw_count(&state, count / places + 1);
    c->in_place = exchange_random(&state) % 2 && kind != SGLEXEC_ALL_TO_ALL;
    c->x = (sglexec_exchange){ .kind = (uint8_t)kind,
                               .reduction = (uint8_t)reduction,
                               .dtype = (uint8_t)dtype,
                               .count = count,
                               .peer = (int)(exchange_random(&state) % (uint64_t)places) };
    for (int p = 0; kind == SGLEXEC_ALL_TO_ALL && p < places; p++) {
        c->counts[p] = c->matrix[place][p];
        c->counts_in[p] = c->matrix[p][place];
    }
    const int64_t all = before(c->counts, places);
    c->from_count = c->to_count = count;
    if (kind == SGLEXEC_REDUCE_SCATTER) c->from_count = all, c->to_count = c->counts[place];
    if (kind == SGLEXEC_ALL_GATHER) c->from_count = c->counts[place], c->to_count = all;
    if (kind == SGLEXEC_ALL_TO_ALL) c->from_count = all, c->to_count = before(c->counts_in, places);
    if (kind == SGLEXEC_BARRIER) c->from_count = c->to_count = 0;
    snprintf(c->label, sizeof c->label, "%s of case %llx, storm.lua:%d", sgl_dtype_name(dtype),
             (unsigned long long)seed, (int)(seed % 100));
}

void exchange_case_draw(exchange_case *c, uint64_t seed, int places, int place, int64_t most)
{
    static const sglexec_exchange_kind kinds[] = { SGLEXEC_ALL_REDUCE, SGLEXEC_REDUCE_SCATTER, SGLEXEC_ALL_GATHER,
                                                   SGLEXEC_ALL_TO_ALL, SGLEXEC_BROADCAST,      SGLEXEC_BARRIER };
    uint64_t state = seed * 31 + 7;
    const sglexec_exchange_kind kind = kinds[exchange_random(&state) % 6];
    sgl_dtype dtype;
    do dtype = (sgl_dtype)(exchange_random(&state) % SGL_DTYPE_COUNT);
    while (dtype == SGL_I4);
    const sglexec_reduction reduction = (sglexec_reduction)(dtype == SGL_BOOL ? 1 : exchange_random(&state) % 3);
    const uint64_t scale = exchange_random(&state) % 8;
    const int64_t limit = scale == 0 ? most : scale < 3 ? most / 16 : scale < 6 ? most / 512 : 4;
    exchange_case_make(c, seed, places, place, kind, dtype, reduction,
                       (int64_t)(exchange_random(&state) % (uint64_t)(limit + 1)));
}

sgl_status exchange_case_start(exchange_case *c, const sglexec_comm_ops *ops, sglexec_group *group, uint64_t number)
{
    const int64_t size = size_of(c), larger = c->from_count > c->to_count ? c->from_count : c->to_count;
    const bool scatter = c->x.kind == SGLEXEC_REDUCE_SCATTER, gather = c->x.kind == SGLEXEC_ALL_GATHER;
    const int64_t own = scatter || gather ? before(c->counts, c->place) * size : 0;
    c->to = malloc((size_t)(larger * size + GUARD));
    c->from = c->in_place ? c->to : malloc((size_t)(c->from_count * size + GUARD));
    if (!c->to || !c->from) return SGL_OUT_OF_MEMORY;
    memset(c->to, 0x5a, (size_t)(larger * size + GUARD));
    unsigned char *first = c->in_place && gather ? c->from + own : c->from;
    for (int64_t i = 0; i < c->from_count; i++) give(c, c->place, i, first + i * size);
    sglexec_exchange *x = &c->x;
    x->from = first;
    x->to = c->in_place && scatter ? c->to + own : c->to;
    x->number = number;
    x->label = c->label;
    if (scatter || gather || x->kind == SGLEXEC_ALL_TO_ALL) x->counts = c->counts;
    if (x->kind == SGLEXEC_ALL_TO_ALL) x->counts_in = c->counts_in;
    return ops->start(group, x, NULL, &c->ticket);
}

static const char *compare(exchange_case *c)
{
    const int64_t size = size_of(c);
    const unsigned char *to = c->x.to;
    unsigned char value[8];
    if (c->x.kind == SGLEXEC_SEND) return NULL;
    for (int64_t i = 0; i < c->to_count; i++) {
        memset(value, 0, sizeof value);
        awaited(c, i, value);
        if (memcmp(value, to + i * size, (size_t)size) == 0) continue;
        snprintf(c->fault, sizeof c->fault, "kind %d, %s, place %d of %d: element %lld of %lld differs", c->x.kind,
                 c->label, c->place, c->places, (long long)i, (long long)c->to_count);
        return c->fault;
    }
    for (int i = 0; !c->in_place && i < GUARD; i++)
        if (to[c->to_count * size + i] != 0x5a) return "bytes behind the end were written";
    return NULL;
}

const char *exchange_case_end(exchange_case *c, const sglexec_comm_ops *ops, sglexec_group *group, sgl_status *status)
{
    *status = ops->wait(group, c->ticket, NULL);
    const char *fault = *status == SGL_OK ? compare(c) : NULL;
    if (!c->in_place) free(c->from);
    free(c->to);
    return fault;
}

static void doze(uint64_t *state, int sleep_us)
{
    if (sleep_us <= 0 || exchange_random(state) % 4 != 0) return;
    const long ns = (long)(exchange_random(state) % (uint64_t)sleep_us) * 1000;
    nanosleep(&(struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 }, NULL);
}

/* Groups that divide the world in three ways: all, neighbours two by two, even and odd ranks in falling order. */
static int lay_group(int way, int rank, int size, int *ranks)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        const int r = way == 2 ? size - 1 - i : i;
        if (way == 0 || (way == 1 && r / 2 == rank / 2) || (way == 2 && r % 2 == rank % 2)) ranks[count++] = r;
    }
    return count;
}

const char *exchange_storm(const sglexec_comm_ops *ops, sglexec_comm *comm, uint64_t seed, int steps, int64_t most,
                           int sleep_us, sgl_status *status)
{
    enum { WAYS = 3 };
    static _Thread_local exchange_case cases[WAYS];
    static _Thread_local char fault[160];
    const int rank = ops->rank(comm), size = ops->size(comm);
    sglexec_group *groups[WAYS];
    int places[WAYS], place[WAYS] = { 0 }, ranks[EXCHANGE_PLACES];
    uint64_t common = seed, own = seed ^ (uint64_t)(rank + 1) * 77;
    const char *found = NULL;
    *status = SGL_OK;
    for (int way = 0; way < WAYS && *status == SGL_OK; way++) {
        static const char *const names[] = { "all", "two", "parity" };
        places[way] = lay_group(way, rank, size, ranks);
        for (int i = 0; i < places[way]; i++)
            if (ranks[i] == rank) place[way] = i;
        *status = ops->group(comm, names[way], ranks, places[way], &groups[way]);
    }
    /* In each round an exchange in each group, started in an order of this rank's own, and ended in another. */
    for (int step = 0; step < steps && *status == SGL_OK && !found; step += WAYS) {
        const uint64_t draw = exchange_random(&common);
        const int first = (int)(exchange_random(&own) % WAYS), last = (int)(exchange_random(&own) % WAYS);
        int started = 0;
        for (int i = 0; i < WAYS && *status == SGL_OK; i++, started++) {
            const int way = (first + i) % WAYS;
            exchange_case_draw(&cases[way], draw + (uint64_t)way, places[way], place[way], most);
            doze(&own, sleep_us);
            *status = exchange_case_start(&cases[way], ops, groups[way], (uint64_t)(step + i));
        }
        for (int i = 0; i < WAYS && started == WAYS; i++) {
            const int way = (last + i) % WAYS;
            sgl_status ended;
            doze(&own, sleep_us);
            const char *what = exchange_case_end(&cases[way], ops, groups[way], &ended);
            if (ended != SGL_OK) *status = ended;
            if (what && !found) {
                snprintf(fault, sizeof fault, "%s", what);
                found = fault;
            }
        }
    }
    return found;
}
