/* exchange.c -- what ranks exchange, as work of a link's stream: messages of NCCL, and reductions of ours.
 *
 * In: exchanges that are ready (exchange_plan.c). Out: sends and receives between two marks, after what the device's stream has so
 * far; what is to be reduced comes into the link's staging, slice by slice, and a kernel reduces it in the group's order. Bytes go as
 * they are, so every dtype that the comm takes goes here too, and what is reduced has the same bits as over any other transport.
 * Odd invariant: all ranks of a link enqueue the same messages in the same order. */
#include "backend/cuda/exchange.h"

#ifdef SGLCUDA_HAS_NCCL

static sgl_status check(const sglcuda_run *r, CUresult result, const char *what)
{
    return sglcuda_check(r->launch->device->env, r->launch->device->driver, result, what);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static sgl_status begin_messages(const sglcuda_run *r)
{
    return sglcuda_link_settle(r->link, r->nccl->ncclGroupStart(), "beginning messages");
}

static sgl_status end_messages(const sglcuda_run *r)
{
    return sglcuda_link_settle(r->link, r->nccl->ncclGroupEnd(), "sending and receiving");
}

static sgl_status send(const sglcuda_run *r, int to, CUdeviceptr at, int64_t elements)
{
    if (elements <= 0) return SGL_OK;
    return sglcuda_link_settle(r->link,
                               r->nccl->ncclSend((const void *)(uintptr_t)at, (size_t)(elements * r->x->width),
                                                 ncclUint8, to, r->link->comm, r->link->stream),
                               "sending");
}

static sgl_status receive(const sglcuda_run *r, int from, CUdeviceptr at, int64_t elements)
{
    if (elements <= 0) return SGL_OK;
    return sglcuda_link_settle(r->link,
                               r->nccl->ncclRecv((void *)(uintptr_t)at, (size_t)(elements * r->x->width), ncclUint8,
                                                 from, r->link->comm, r->link->stream),
                               "receiving");
}

static sgl_status launch(const sglcuda_run *r, const sglcuda_function *function, unsigned blocks, unsigned threads,
                         void *values, size_t bytes)
{
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, values, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    return check(r,
                 r->launch->device->driver->cuLaunchKernel(function->handle, blocks, 1, 1, threads, 1, 1, 0,
                                                           r->link->stream, NULL, extra),
                 "launching a kernel of an exchange");
}

/* A rank's own parts, as many as go in one launch. */
typedef struct own_parts {
    unsigned blocks;
    sglcuda_exchange_copies v;
} own_parts;

static sgl_status keep_now(const sglcuda_run *r, own_parts *own)
{
    const sgl_status status = own->blocks == 0 ? SGL_OK
                                               : launch(r, r->link->device->links->copy, own->blocks,
                                                        SGLCUDA_EXCHANGE_THREADS, &own->v, sizeof own->v);
    own->blocks = 0;
    own->v.count = 0;
    return status;
}

/* Where it is not there already. */
static sgl_status keep_own(const sglcuda_run *r, own_parts *own, CUdeviceptr to, CUdeviceptr from, int64_t elements)
{
    if (to == from || elements == 0) return SGL_OK;
    if (own->v.count == SGLCUDA_EXCHANGE_COPIES) SGLCORE_TRY(keep_now(r, own));
    const int64_t bytes = elements * r->x->width;
    own->v.copies[own->v.count++] = (sglcuda_exchange_copy){ .to = (unsigned char *)(uintptr_t)to,
                                                             .from = (const unsigned char *)(uintptr_t)from,
                                                             .bytes = bytes,
                                                             .first_block = own->blocks,
                                                             .wide = (to | from) % SGLCUDA_EXCHANGE_ALIGNED == 0 };
    own->blocks += (unsigned)sglcuda_ceil_div(bytes, SGLCUDA_EXCHANGE_COPY_BYTES);
    return SGL_OK;
}

/* Others in the order of their distance: not all send to the first of the group at once. */
static int ahead(const sglexec_link *link, int by) { return (link->place + by) % link->count; }
static int behind(const sglexec_link *link, int by) { return (link->place - by + link->count) % link->count; }

static CUdeviceptr shifted(const sglcuda_run *r, CUdeviceptr at, int64_t elements)
{
    return at + (CUdeviceptr)(elements * r->x->width);
}

/* ---- what is not reduced ----------------------------------------------------------------------------------------- */

/* own: this rank's part; all: everyone's. */
static sgl_status gather_one(const sglcuda_run *r, CUdeviceptr own, CUdeviceptr all, const int64_t *counts)
{
    const sglexec_link *link = r->link;
    for (int by = 1; by < link->count; by++) {
        const int from = behind(link, by);
        SGLCORE_TRY(send(r, ahead(link, by), own, counts[link->place]));
        SGLCORE_TRY(receive(r, from, shifted(r, all, sglcuda_elements_before(counts, from)), counts[from]));
    }
    return SGL_OK;
}

static sgl_status gather_all(const sglcuda_run *r, const sglcuda_member *members, int count)
{
    const int place = r->link->place;
    own_parts own = { 0 };
    SGLCORE_TRY(begin_messages(r));
    for (int m = 0; m < count; m++)
        SGLCORE_TRY(gather_one(r, sglcuda_at(r->launch, members[m].from), sglcuda_at(r->launch, members[m].to),
                               members[m].counts));
    SGLCORE_TRY(end_messages(r));
    for (int m = 0; m < count; m++)
        SGLCORE_TRY(keep_own(r, &own,
                             shifted(r, sglcuda_at(r->launch, members[m].to),
                                     sglcuda_elements_before(members[m].counts, place)),
                             sglcuda_at(r->launch, members[m].from), members[m].counts[place]));
    return keep_now(r, &own);
}

sgl_status sglcuda_exchange_gather(const sglcuda_run *r) { return gather_all(r, r->x->members, r->x->member_count); }

static sgl_status turn_one(const sglcuda_run *r, const sglcuda_member *m)
{
    const sglexec_link *link = r->link;
    const CUdeviceptr out = sglcuda_at(r->launch, m->from), in = sglcuda_at(r->launch, m->to);
    for (int by = 1; by < link->count; by++) {
        const int to = ahead(link, by), from = behind(link, by);
        SGLCORE_TRY(send(r, to, shifted(r, out, sglcuda_elements_before(m->counts, to)), m->counts[to]));
        SGLCORE_TRY(receive(r, from, shifted(r, in, sglcuda_elements_before(m->counts_in, from)), m->counts_in[from]));
    }
    return SGL_OK;
}

sgl_status sglcuda_exchange_turn(const sglcuda_run *r)
{
    const int place = r->link->place;
    own_parts own = { 0 };
    SGLCORE_TRY(begin_messages(r));
    for (int m = 0; m < r->x->member_count; m++) SGLCORE_TRY(turn_one(r, &r->x->members[m]));
    SGLCORE_TRY(end_messages(r));
    for (const sglcuda_member *m = r->x->members; m < r->x->members + r->x->member_count; m++)
        SGLCORE_TRY(keep_own(r, &own,
                             shifted(r, sglcuda_at(r->launch, m->to), sglcuda_elements_before(m->counts_in, place)),
                             shifted(r, sglcuda_at(r->launch, m->from), sglcuda_elements_before(m->counts, place)),
                             m->counts[place]));
    return keep_now(r, &own);
}

/* ---- what is reduced --------------------------------------------------------------------------------------------- */

/* Elements `first` to `first` + `most` of each place's part of a member. */
typedef struct slice {
    const sglcuda_member *of;
    int64_t first, most;
    CUdeviceptr staging;
} slice;

static int64_t part_of(const slice *s, int place)
{
    return sglcuda_clamped(s->of->counts ? s->of->counts[place] : s->of->most, s->first, s->most);
}

static CUdeviceptr part_at(const sglcuda_run *r, const slice *s, int place)
{
    return shifted(r, sglcuda_at(r->launch, s->of->from), sglcuda_elements_before(s->of->counts, place) + s->first);
}

static sgl_status exchange_slice(const sglcuda_run *r, const slice *s)
{
    const sglexec_link *link = r->link;
    const int64_t own = part_of(s, link->place), pitch = sglcuda_row_pitch(own, r->x->width);
    for (int by = 1; by < link->count; by++) {
        const int to = ahead(link, by), from = behind(link, by);
        const int64_t row = from < link->place ? from : from - 1;
        SGLCORE_TRY(send(r, to, part_at(r, s, to), part_of(s, to)));
        SGLCORE_TRY(receive(r, from, s->staging + (CUdeviceptr)(row * pitch), own));
    }
    return SGL_OK;
}

static sglcuda_exchange_sum sum_of(const sglcuda_run *r, const slice *s, unsigned first_block)
{
    const int place = r->link->place;
    const int64_t own = part_of(s, place), pitch = sglcuda_row_pitch(own, r->x->width);
    const CUdeviceptr to = shifted(r, sglcuda_at(r->launch, s->of->to), s->first), from = part_at(r, s, place);
    return (sglcuda_exchange_sum){ .to = (unsigned char *)(uintptr_t)to,
                                   .own = (const unsigned char *)(uintptr_t)from,
                                   .others = (const unsigned char *)(uintptr_t)s->staging,
                                   .count = own,
                                   .pitch = pitch,
                                   .first_block = first_block,
                                   .wide = (to | from | s->staging) % SGLCUDA_EXCHANGE_ALIGNED == 0 };
}

static sgl_status reduce(const sglcuda_run *r, const slice *slices, int count)
{
    const int64_t per_block = SGLCUDA_EXCHANGE_THREADS * SGLCUDA_EXCHANGE_VECTOR * SGLCUDA_EXCHANGE_TURNS;
    sglcuda_exchange_sums v = { .ranks = r->link->count, .place = r->link->place };
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) {
        const sglcuda_exchange_sum sum = sum_of(r, &slices[i], blocks);
        if (sum.count == 0) continue;
        v.sums[v.count++] = sum;
        blocks += (unsigned)sglcuda_ceil_div(sum.count, per_block);
    }
    return blocks == 0 ? SGL_OK : launch(r, r->x->reduce, blocks, SGLCUDA_EXCHANGE_THREADS, &v, sizeof v);
}

enum { MOST_SLICES = SGLCUDA_EXCHANGE_SUMS }; /* in one exchange of messages */

static sgl_status run_slices(const sglcuda_run *r, const slice *slices, int count)
{
    if (count == 0) return SGL_OK;
    SGLCORE_TRY(begin_messages(r));
    for (int i = 0; i < count; i++) SGLCORE_TRY(exchange_slice(r, &slices[i]));
    SGLCORE_TRY(end_messages(r));
    return reduce(r, slices, count);
}

/* Members one after another, as many small ones at once as staging holds, large ones in slices. */
sgl_status sglcuda_exchange_scatter(const sglcuda_run *r)
{
    const int64_t most = sglcuda_slice_elements(r->link->count, r->x->width);
    slice slices[MOST_SLICES];
    int held = 0;
    int64_t used = 0;
    for (const sglcuda_member *m = r->x->members; m < r->x->members + r->x->member_count; m++) {
        for (int64_t first = 0; first < m->most; first += most) {
            const int64_t here = sglcuda_min(m->most - first, most), bytes = sglcuda_staged_bytes(r->link, r->x, here);
            if (held == MOST_SLICES || (held > 0 && used + bytes > SGLCUDA_EXCHANGE_STAGING)) {
                SGLCORE_TRY(run_slices(r, slices, held));
                held = 0, used = 0;
            }
            slices[held++] = (slice){ m, first, here, r->x->staging + (CUdeviceptr)used };
            used += bytes;
        }
    }
    return run_slices(r, slices, held);
}

sgl_status sglcuda_exchange_reduce_all(const sglcuda_run *r)
{
    SGLCORE_TRY(sglcuda_exchange_scatter(r));
    return r->x->gathered ? gather_all(r, r->x->gathered, 1) : SGL_OK;
}

sgl_status sglcuda_exchange_one_way(const sglcuda_run *r)
{
    const sglexec_exchange *x = r->x->linked->exchange;
    const sglcuda_member *m = &r->x->members[0];
    return x->kind == SGLEXEC_SEND ? send(r, x->peer, sglcuda_at(r->launch, m->from), m->most)
                                   : receive(r, x->peer, sglcuda_at(r->launch, m->to), m->most);
}

/* Of a group of one rank: what it has is what there is. */
sgl_status sglcuda_exchange_alone(const sglcuda_run *r)
{
    own_parts own = { 0 };
    for (int m = 0; m < r->x->member_count; m++)
        SGLCORE_TRY(keep_own(r, &own, sglcuda_at(r->launch, r->x->members[m].to),
                             sglcuda_at(r->launch, r->x->members[m].from), r->x->members[m].most));
    return keep_now(r, &own);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static sgl_status mark(const sglcuda_run *r, unsigned id)
{
    struct sglcuda_links *l = r->link->device->links;
    sglcuda_exchange_mark v = { .begun = (unsigned long long *)(uintptr_t)l->block,
                                .word = (unsigned long long *)(uintptr_t)&l->words[r->link->number],
                                .id = id };
    return launch(r, l->mark, 1, 1, &v, sizeof v);
}

/* One link after another gets what it is to do: launches are from one thread. */
sgl_status sglcuda_exchange_run(const sglcuda_launch *launch, const void *plan)
{
    sglcuda_exchange *x = (sglcuda_exchange *)plan; /* of exchange_plan.c, in the program's arena */
    const sglcuda_driver *driver = launch->device->driver;
    const sglcuda_run r = { launch, x, x->link, launch->device->links->nccl };
    SGLCORE_TRY(check(&r, driver->cuEventRecord(x->link->begun, launch->stream), "beginning an exchange"));
    SGLCORE_TRY(check(&r, driver->cuStreamWaitEvent(x->link->stream, x->link->begun, 0), "beginning an exchange"));
    x->link->under_way = true;
    SGLCORE_TRY(mark(&r, x->id));
    SGLCORE_TRY(x->run(&r));
    SGLCORE_TRY(mark(&r, 0));
    if (!x->ended) return sglcuda_link_join(x->link);
    x->row = launch->device->links->rows;
    return check(&r, driver->cuEventRecord(x->ended, x->link->stream), "beginning an exchange");
}

/* Nothing, where links have been joined since: then it is over, and its event may be of another CUDA graph. */
sgl_status sglcuda_exchange_wait(const sglcuda_launch *launch, const void *plan)
{
    const sglcuda_exchange *x = plan;
    const sglcuda_driver *driver = launch->device->driver;
    if (x->row != launch->device->links->rows) return SGL_OK;
    return sglcuda_check(launch->device->env, driver, driver->cuStreamWaitEvent(launch->stream, x->ended, 0),
                         "waiting for an exchange");
}

#endif
