/* exchange.c -- what ranks exchange, as work of a link's stream: messages of NCCL, and reductions of ours.
 *
 * In: an instruction that was routed, its operands' places. Out: sends and receives between two marks, after what the device's
 * stream has so far; what is to be reduced comes into the link's staging, slice by slice, and a kernel reduces it in the group's
 * order. Bytes go as they are, so every dtype that the comm takes goes here too, and what is reduced has the same bits as over
 * any other transport. Odd invariant: how messages are cut follows from what all ranks know alike, never from this one's part. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels/exchange.h"
#include "backend/cuda/link.h"

#ifdef SGLCUDA_HAS_NCCL

/* What is reduced at once, of all other ranks: at 300 GB/s a slice takes 0.2 ms, ten times what a message costs to begin. */
#define STAGING_BYTES (64 << 20)
/* So few bytes go whole to everyone, who reduces them by himself: one exchange in place of two. */
#define WHOLE_BYTES (256 << 10)
enum { ALIGNED = 16, MARK_THREADS = 1 };

/* Of most exchanges there is one. */
typedef struct member {
    sglcuda_place from, to;
    const int64_t *counts, *counts_in; /* elements, per place; NULL: all is everyone's part */
    int64_t most;                      /* the largest of counts, or all */
} member;

struct run;
typedef struct exchange {
    const sglexec_linked *linked;
    sglexec_link *link;
    int64_t width;              /* bytes of an element */
    member *members, *gathered; /* gathered: of a sum in two steps, what is exchanged then; NULL: nothing */
    int member_count;
    sgl_status (*run)(const struct run *r);
    const sglcuda_function *reduce;
    CUdeviceptr staging;
    unsigned id;
    CUevent ended; /* for the WAIT; NULL: there is none */
    bool under_way;
} exchange;

typedef struct run {
    const sglcuda_launch *launch;
    const exchange *x;
    sglexec_link *link;
    const sglcuda_nccl *nccl;
} run;

static sgl_status check(const run *r, CUresult result, const char *what)
{
    return sglcuda_check(r->launch->device->env, r->launch->device->driver, result, what);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static sgl_status begin_messages(const run *r)
{
    return sglcuda_link_settle(r->link, r->nccl->ncclGroupStart(), "beginning messages");
}

static sgl_status end_messages(const run *r)
{
    return sglcuda_link_settle(r->link, r->nccl->ncclGroupEnd(), "sending and receiving");
}

static sgl_status send(const run *r, int to, CUdeviceptr at, int64_t elements)
{
    if (elements <= 0) return SGL_OK;
    return sglcuda_link_settle(r->link,
                               r->nccl->ncclSend((const void *)(uintptr_t)at, (size_t)(elements * r->x->width),
                                                 ncclUint8, to, r->link->comm, r->link->stream),
                               "sending");
}

static sgl_status receive(const run *r, int from, CUdeviceptr at, int64_t elements)
{
    if (elements <= 0) return SGL_OK;
    return sglcuda_link_settle(r->link,
                               r->nccl->ncclRecv((void *)(uintptr_t)at, (size_t)(elements * r->x->width), ncclUint8,
                                                 from, r->link->comm, r->link->stream),
                               "receiving");
}

/* A rank's own part, where it is not there already. */
static sgl_status keep_own(const run *r, CUdeviceptr to, CUdeviceptr from, int64_t elements)
{
    if (to == from || elements == 0) return SGL_OK;
    const size_t bytes = (size_t)(elements * r->x->width);
    return check(r, r->launch->device->driver->cuMemcpyDtoDAsync(to, from, bytes, r->link->stream), "copying");
}

/* Others in the order of their distance: not all send to the first of the group at once. */
static int ahead(const sglexec_link *link, int by) { return (link->place + by) % link->count; }
static int behind(const sglexec_link *link, int by) { return (link->place - by + link->count) % link->count; }

/* Elements before those of a place. */
static int64_t before(const int64_t *counts, int place)
{
    int64_t sum = 0;
    for (int p = 0; counts && p < place; p++) sum += counts[p];
    return sum;
}

static CUdeviceptr shifted(const run *r, CUdeviceptr at, int64_t elements)
{
    return at + (CUdeviceptr)(elements * r->x->width);
}

/* ---- what is not reduced ----------------------------------------------------------------------------------------- */

/* own: this rank's part; all: everyone's. */
static sgl_status gather_one(const run *r, CUdeviceptr own, CUdeviceptr all, const int64_t *counts)
{
    const sglexec_link *link = r->link;
    for (int by = 1; by < link->count; by++) {
        const int from = behind(link, by);
        SGLCORE_TRY(send(r, ahead(link, by), own, counts[link->place]));
        SGLCORE_TRY(receive(r, from, shifted(r, all, before(counts, from)), counts[from]));
    }
    return SGL_OK;
}

static sgl_status gather_all(const run *r, const member *members, int count)
{
    const int place = r->link->place;
    SGLCORE_TRY(begin_messages(r));
    for (int m = 0; m < count; m++)
        SGLCORE_TRY(gather_one(r, sglcuda_at(r->launch, members[m].from), sglcuda_at(r->launch, members[m].to),
                               members[m].counts));
    SGLCORE_TRY(end_messages(r));
    for (int m = 0; m < count; m++)
        SGLCORE_TRY(keep_own(r, shifted(r, sglcuda_at(r->launch, members[m].to), before(members[m].counts, place)),
                             sglcuda_at(r->launch, members[m].from), members[m].counts[place]));
    return SGL_OK;
}

static sgl_status gather(const run *r) { return gather_all(r, r->x->members, r->x->member_count); }

static sgl_status turn_one(const run *r, const member *m)
{
    const sglexec_link *link = r->link;
    const CUdeviceptr out = sglcuda_at(r->launch, m->from), in = sglcuda_at(r->launch, m->to);
    for (int by = 1; by < link->count; by++) {
        const int to = ahead(link, by), from = behind(link, by);
        SGLCORE_TRY(send(r, to, shifted(r, out, before(m->counts, to)), m->counts[to]));
        SGLCORE_TRY(receive(r, from, shifted(r, in, before(m->counts_in, from)), m->counts_in[from]));
    }
    return SGL_OK;
}

static sgl_status all_to_all(const run *r)
{
    const int place = r->link->place;
    SGLCORE_TRY(begin_messages(r));
    for (int m = 0; m < r->x->member_count; m++) SGLCORE_TRY(turn_one(r, &r->x->members[m]));
    SGLCORE_TRY(end_messages(r));
    for (const member *m = r->x->members; m < r->x->members + r->x->member_count; m++)
        SGLCORE_TRY(keep_own(r, shifted(r, sglcuda_at(r->launch, m->to), before(m->counts_in, place)),
                             shifted(r, sglcuda_at(r->launch, m->from), before(m->counts, place)), m->counts[place]));
    return SGL_OK;
}

/* ---- what is reduced --------------------------------------------------------------------------------------------- */

/* Bytes of a row of so many elements in staging. */
static int64_t pitch_of(int64_t elements, int64_t width) { return sglcuda_round_up(elements * width, ALIGNED); }

/* Elements of a row, where there is one from each other rank. */
static int64_t slice_of(int ranks, int64_t width)
{
    return sglcuda_max(STAGING_BYTES / (ranks - 1) / ALIGNED * ALIGNED / width, 1);
}

static int64_t clamped(int64_t count, int64_t from, int64_t most)
{
    return sglcuda_max(0, sglcuda_min(count - from, most));
}

static sgl_status reduce(const run *r, CUdeviceptr to, CUdeviceptr own, CUdeviceptr others, int64_t pitch,
                         int64_t count)
{
    const sglexec_link *link = r->link;
    const sglexec_device *device = link->device;
    sglcuda_exchange_sum v = { .to = (unsigned char *)(uintptr_t)to,
                               .own = (const unsigned char *)(uintptr_t)own,
                               .others = (const unsigned char *)(uintptr_t)others,
                               .count = count,
                               .pitch = pitch,
                               .ranks = link->count,
                               .place = link->place,
                               .wide = (to | own | others | (CUdeviceptr)pitch) % ALIGNED == 0 };
    size_t bytes = sizeof v;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &v, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
    const int64_t blocks = sglcuda_ceil_div(count, SGLCUDA_EXCHANGE_THREADS * SGLCUDA_EXCHANGE_VECTOR);
    if (count == 0) return SGL_OK;
    return check(r,
                 device->driver->cuLaunchKernel(r->x->reduce->handle,
                                                (unsigned)sglcuda_min(blocks, 8 * (int64_t)device->processors), 1, 1,
                                                SGLCUDA_EXCHANGE_THREADS, 1, 1, 0, link->stream, NULL, extra),
                 "reducing");
}

/* Elements `first` to `first` + `most` of each place's part of a member. */
typedef struct slice {
    const member *of;
    int64_t first, most;
    CUdeviceptr staging;
} slice;

static int64_t part_of(const slice *s, int place)
{
    return clamped(s->of->counts ? s->of->counts[place] : s->of->most, s->first, s->most);
}

static CUdeviceptr part_at(const run *r, const slice *s, int place)
{
    return shifted(r, sglcuda_at(r->launch, s->of->from), before(s->of->counts, place) + s->first);
}

static sgl_status exchange_slice(const run *r, const slice *s)
{
    const sglexec_link *link = r->link;
    const int64_t own = part_of(s, link->place), pitch = pitch_of(own, r->x->width);
    for (int by = 1; by < link->count; by++) {
        const int to = ahead(link, by), from = behind(link, by);
        const int64_t row = from < link->place ? from : from - 1;
        SGLCORE_TRY(send(r, to, part_at(r, s, to), part_of(s, to)));
        SGLCORE_TRY(receive(r, from, s->staging + (CUdeviceptr)(row * pitch), own));
    }
    return SGL_OK;
}

static sgl_status reduce_slice(const run *r, const slice *s)
{
    const int place = r->link->place;
    const int64_t own = part_of(s, place);
    return reduce(r, shifted(r, sglcuda_at(r->launch, s->of->to), s->first), part_at(r, s, place), s->staging,
                  pitch_of(own, r->x->width), own);
}

enum { MOST_SLICES = 64 }; /* in one exchange of messages */

static sgl_status run_slices(const run *r, const slice *slices, int count)
{
    if (count == 0) return SGL_OK;
    SGLCORE_TRY(begin_messages(r));
    for (int i = 0; i < count; i++) SGLCORE_TRY(exchange_slice(r, &slices[i]));
    SGLCORE_TRY(end_messages(r));
    for (int i = 0; i < count; i++) SGLCORE_TRY(reduce_slice(r, &slices[i]));
    return SGL_OK;
}

/* Staging of a slice of `most` elements, on every rank of the group: no less than any of them takes. */
static int64_t staged_bytes(const sglexec_link *link, const exchange *x, int64_t most)
{
    return (link->count - 1) * pitch_of(most, x->width);
}

/* Members one after another, as many small ones at once as staging holds, large ones in slices. */
static sgl_status scatter(const run *r)
{
    const int64_t most = slice_of(r->link->count, r->x->width);
    slice slices[MOST_SLICES];
    int held = 0;
    int64_t used = 0;
    for (const member *m = r->x->members; m < r->x->members + r->x->member_count; m++) {
        for (int64_t first = 0; first < m->most; first += most) {
            const int64_t here = sglcuda_min(m->most - first, most), bytes = staged_bytes(r->link, r->x, here);
            if (held == MOST_SLICES || (held > 0 && used + bytes > STAGING_BYTES)) {
                SGLCORE_TRY(run_slices(r, slices, held));
                held = 0, used = 0;
            }
            slices[held++] = (slice){ m, first, here, r->x->staging + (CUdeviceptr)used };
            used += bytes;
        }
    }
    return run_slices(r, slices, held);
}

static sgl_status all_reduce(const run *r)
{
    SGLCORE_TRY(scatter(r));
    return r->x->gathered ? gather_all(r, r->x->gathered, 1) : SGL_OK;
}

static sgl_status one_way(const run *r)
{
    const sglexec_exchange *x = r->x->linked->exchange;
    const member *m = &r->x->members[0];
    return x->kind == SGLEXEC_SEND ? send(r, x->peer, sglcuda_at(r->launch, m->from), m->most)
                                   : receive(r, x->peer, sglcuda_at(r->launch, m->to), m->most);
}

/* Of a group of one rank: what it has is what there is. */
static sgl_status alone(const run *r)
{
    for (int m = 0; m < r->x->member_count; m++)
        SGLCORE_TRY(keep_own(r, sglcuda_at(r->launch, r->x->members[m].to),
                             sglcuda_at(r->launch, r->x->members[m].from), r->x->members[m].most));
    return SGL_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static sgl_status mark(const run *r, unsigned id)
{
    struct sglcuda_links *l = r->link->device->links;
    sglcuda_exchange_mark v = { .begun = (unsigned long long *)(uintptr_t)l->block,
                                .word = (unsigned long long *)(uintptr_t)&l->words[r->link->number],
                                .id = id };
    size_t bytes = sizeof v;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &v, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
    return check(r,
                 r->launch->device->driver->cuLaunchKernel(l->mark->handle, 1, 1, 1, MARK_THREADS, 1, 1, 0,
                                                           r->link->stream, NULL, extra),
                 "marking an exchange");
}

/* One link after another gets what it is to do: launches are from one thread. */
static sgl_status run_exchange(const sglcuda_launch *launch, const void *plan)
{
    exchange *x = (exchange *)plan; /* of this file, in the program's arena */
    const sglcuda_driver *driver = launch->device->driver;
    const run r = { launch, x, x->link, launch->device->links->nccl };
    SGLCORE_TRY(check(&r, driver->cuEventRecord(x->link->begun, launch->stream), "beginning an exchange"));
    SGLCORE_TRY(check(&r, driver->cuStreamWaitEvent(x->link->stream, x->link->begun, 0), "beginning an exchange"));
    x->link->under_way = true;
    SGLCORE_TRY(mark(&r, x->id));
    SGLCORE_TRY(x->run(&r));
    SGLCORE_TRY(mark(&r, 0));
    if (!x->ended) return sglcuda_link_join(x->link);
    x->under_way = true;
    return check(&r, driver->cuEventRecord(x->ended, x->link->stream), "beginning an exchange");
}

/* Nothing, where the link has been joined since. */
static sgl_status run_wait(const sglcuda_launch *launch, const void *plan)
{
    exchange *x = (exchange *)plan;
    const bool waits = x->under_way && x->link->under_way;
    x->under_way = false;
    return waits ? sglcuda_check(launch->device->env, launch->device->driver,
                                 launch->device->driver->cuStreamWaitEvent(launch->stream, x->ended, 0),
                                 "waiting for an exchange")
                 : SGL_OK;
}

/* ---- made ready -------------------------------------------------------------------------------------------------- */

static int64_t most_of(const int64_t *counts, int ranks)
{
    int64_t most = 0;
    for (int p = 0; p < ranks; p++) most = sglcuda_max(most, counts[p]);
    return most;
}

/* For the largest of a link's exchanges that are reduced. */
static void want_staging(const exchange *x)
{
    int64_t bytes = 0;
    const int64_t longest = slice_of(x->link->count, x->width);
    for (int m = 0; m < x->member_count; m++)
        bytes += sglcuda_ceil_div(x->members[m].most, longest) *
                 staged_bytes(x->link, x, sglcuda_min(x->members[m].most, longest));
    bytes = sglcuda_min(bytes, sglcuda_max(STAGING_BYTES, staged_bytes(x->link, x, longest)));
    x->link->wanted_bytes = sglcuda_max(x->link->wanted_bytes, bytes);
}

static sgl_status find_reduction(sglcuda_prepare *p, exchange *x)
{
    static const char *const names[SGLEXEC_REDUCTION_COUNT] = { "sum", "max", "min" };
    const sglexec_exchange *given = x->linked->exchange;
    char name[64];
    snprintf(name, sizeof name, "exchange_%s_%s", names[given->reduction], sgl_dtype_name((sgl_dtype)given->dtype));
    return sglcuda_builtin(p, name, &x->reduce);
}

/* Balanced, each part but the last ones a multiple of what is aligned. */
static sgl_status add_parts(sglcuda_prepare *p, exchange *x, int64_t count)
{
    const int ranks = x->link->count;
    int64_t *parts = sglcuda_plan_alloc(p, ranks, sizeof *parts);
    member *gathered = sglcuda_plan_alloc(p, 1, sizeof *gathered);
    if (!parts || !gathered) return SGL_OUT_OF_MEMORY;
    const int64_t part = sglcuda_round_up(sglcuda_ceil_div(count, ranks), ALIGNED);
    for (int r = 0; r < ranks; r++) parts[r] = clamped(count, r * part, part);
    member *m = &x->members[0];
    *gathered = (member){ .from = m->to, .to = m->to, .counts = parts, .most = part };
    gathered->from.offset += before(parts, x->link->place) * x->width;
    m->to = gathered->from;
    m->counts = parts;
    m->most = most_of(parts, ranks);
    x->gathered = gathered;
    return SGL_OK;
}

static sgl_status plan_reduction(sglcuda_prepare *p, exchange *x, int64_t count)
{
    const int ranks = x->link->count;
    const bool parts = x->linked->exchange->kind == SGLEXEC_ALL_REDUCE;
    SGLCORE_TRY(find_reduction(p, x));
    x->run = parts ? all_reduce : scatter;
    if (parts && ranks > 2 && count * x->width * ranks > WHOLE_BYTES) SGLCORE_TRY(add_parts(p, x, count));
    want_staging(x);
    return SGL_OK;
}

static sgl_status plan_exchange(sglcuda_prepare *p, exchange *x)
{
    const sglexec_exchange *given = x->linked->exchange;
    if (x->link->count == 1) {
        x->run = alone;
        return SGL_OK;
    }
    switch (given->kind) {
    case SGLEXEC_ALL_REDUCE:
    case SGLEXEC_REDUCE_SCATTER: return plan_reduction(p, x, x->members[0].most);
    case SGLEXEC_ALL_GATHER: x->run = gather; return SGL_OK;
    case SGLEXEC_ALL_TO_ALL: x->run = all_to_all; return SGL_OK;
    case SGLEXEC_SEND:
    case SGLEXEC_RECEIVE: x->run = one_way; return SGL_OK;
    default: return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: %s is no exchange of a program", given->label);
    }
}

static sgl_status fill_members(sglcuda_prepare *p, const sglexec_instruction *i, exchange *x)
{
    const sglexec_exchange *given = x->linked->exchange;
    const uint32_t ends = i->arg_count > i->result_count ? i->arg_count : i->result_count;
    x->member_count = given->members ? given->member_count : 1;
    x->members = sglcuda_plan_alloc(p, x->member_count, sizeof *x->members);
    if (!x->members) return SGL_OUT_OF_MEMORY;
    if ((uint32_t)x->member_count > ends)
        return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: %s has fewer operands than members", given->label);
    for (int m = 0; m < x->member_count; m++) {
        member *one = &x->members[m];
        const int64_t *counts = given->members ? given->members[m].counts : given->counts;
        const sglexec_operand *from = sglcuda_operand(p->program, i, (uint32_t)m);
        one->from = sglcuda_place_of(from);
        one->to = i->op == SGLIR_OP_SEND ? one->from
                                         : sglcuda_place_of(sglcuda_operand(p->program, i, i->arg_count + (uint32_t)m));
        one->counts = counts;
        one->counts_in = given->members ? given->members[m].counts_in : given->counts_in;
        one->most = counts ? most_of(counts, x->link->count) : given->count;
    }
    return SGL_OK;
}

static sgl_status add_number(sglcuda_prepare *p, const sglexec_instruction *i, const char *number,
                             sglcuda_command *command)
{
    const sglexec_operand *o = sglcuda_operand(p->program, i, 0);
    const sglcuda_place place = sglcuda_place_of(o);
    const sglcuda_function *function;
    sglcuda_exchange_number v = { .bytes = (int)sglcuda_bytes(o) };
    memcpy(v.number, number, (size_t)v.bytes);
    SGLCORE_TRY(sglcuda_builtin(p, "exchange_number", &function));
    const sglcuda_grid grid = { .blocks = { 1, 1, 1 }, .threads = { 1, 1, 1 } };
    return sglcuda_add_step(p, command, function, grid, &place, 1, &v, sizeof v);
}

sgl_status sglcuda_prepare_linked(sglcuda_prepare *p, const sglexec_instruction *i, const sglexec_linked *linked,
                                  const sglcuda_command *begun, sglcuda_command *command)
{
    const sglcuda_driver *driver = p->device->driver;
    if (i->op == SGLIR_OP_WAIT) {
        *command = (sglcuda_command){ run_wait, begun->plan };
        return SGL_OK;
    }
    if (!linked->link) return add_number(p, i, linked->number, command);
    exchange *x = sglcuda_plan_alloc(p, 1, sizeof *x);
    if (!x) return SGL_OUT_OF_MEMORY;
    x->linked = linked;
    x->link = linked->link;
    x->width = sglcore_dtype_bits((sgl_dtype)linked->exchange->dtype) / 8;
    SGLCORE_TRY(fill_members(p, i, x));
    SGLCORE_TRY(plan_exchange(p, x));
    SGLCORE_TRY(sglcuda_links_enter(p->device, linked, &x->id));
    *command = (sglcuda_command){ run_exchange, x };
    if (!linked->waits_later) return SGL_OK;
    return sglcuda_check(p->env, driver, driver->cuEventCreate(&x->ended, CU_EVENT_DISABLE_TIMING), "making an event");
}

sgl_status sglcuda_ready_linked(sglexec_device *device, const sglcuda_command *command)
{
    (void)device;
    if (command->run != run_exchange) return SGL_OK;
    exchange *x = (exchange *)command->plan;
    return x->reduce ? sglcuda_link_staging(x->link, &x->staging) : SGL_OK;
}

void sglcuda_release_linked(sglexec_device *device, const sglcuda_command *command)
{
    if (command->run != run_exchange) return;
    exchange *x = (exchange *)command->plan;
    if (x->ended) (void)device->driver->cuEventDestroy(x->ended);
    x->ended = NULL;
}

#endif
