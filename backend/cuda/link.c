/* link.c -- links: joined, waited for, left, cut. In and out: link.h.
 *
 * The library tells nothing of a rank that has stopped: what it waits for just does not come. So every wait here looks, and asks
 * whoever made the links; when the answer is an error, communicators are aborted, which ends their kernels undone. An abort
 * waits for CUDA graphs that hold the communicator, and they are freed later: each has a thread of its own. Odd
 * invariant: orderly, graphs are freed first, then communicators; of a failure it is the other way round. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/kernels/exchange.h"
#include "backend/cuda/link.h"
#include "core/knob.h"

#ifndef SGLCUDA_HAS_NCCL

const sglexec_device_links sglcuda_link_ops = { 0 };
sgl_status sglcuda_links_join(sglexec_device *device) { return device ? SGL_OK : SGL_INTERNAL; }
sgl_status sglcuda_links_wait(sglexec_device *device) { return device ? SGL_OK : SGL_INTERNAL; }
sgl_status sglcuda_links_check(sglexec_device *device) { return device ? SGL_OK : SGL_INTERNAL; }
bool sglcuda_links_stuck(const sglexec_device *device) { return !device; }
void sglcuda_links_close(sglexec_device *device) { (void)device; }
void sglcuda_release_linked(sglexec_device *device, const sglcuda_command *command) { (void)device, (void)command; }

sgl_status sglcuda_ready_linked(sglexec_device *device, const sglcuda_command *command)
{
    (void)device, (void)command;
    return SGL_OK;
}

sgl_status sglcuda_prepare_linked(sglcuda_prepare *p, const sglexec_instruction *i, const sglexec_linked *linked,
                                  const sglcuda_command *begun, sglcuda_command *command)
{
    (void)i, (void)linked, (void)begun, (void)command;
    return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: the module was built without NCCL's headers");
}

sgl_status sglcuda_links_describe(sglexec_device *device, sglcore_text *text)
{
    return sglcore_text_add(device->env, text,
                            "  ranks exchange through the host: the module was built without NCCL's headers (nccl.h, "
                            "2.18 or later)\n");
}

#else

#define ASK_NS 1000000
#define SPIN_NS 2000000
#define NAP_NS 20000
#define CUT_NS 10000000000
enum { BLOCK_BYTES = 4096, MEET_AT = 64, ERRORS_EVERY = 64 };

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* What was begun first of what is under way. */
static const sglexec_linked *under_way(const struct sglcuda_links *l, uint64_t *number)
{
    const sglexec_linked *at = NULL;
    for (int i = 0; i < l->count; i++) {
        const unsigned long long word = l->words[i], id = word & ((1ull << SGLCUDA_EXCHANGE_BITS) - 1);
        const uint64_t begun = word >> SGLCUDA_EXCHANGE_BITS;
        if (id == 0 || id > (unsigned long long)l->entries.count || (at && begun >= *number)) continue;
        at = l->entries.data[id - 1];
        *number = begun;
    }
    return at;
}

static sgl_status told_error(sglexec_link *link, ncclResult_t result, const char *what)
{
    const sglcuda_nccl *nccl = link->device->links->nccl;
    return sglcore_fail(link->device->env, SGL_DEVICE, "device cuda: %s: NCCL: %s (%s)", what,
                        nccl->ncclGetErrorString(result), nccl->ncclGetLastError(link->comm));
}

static sgl_status ask(sglexec_device *device, const sglexec_linked *joining)
{
    struct sglcuda_links *l = device->links;
    uint64_t number = 0;
    const sglexec_linked *at = joining ? joining : under_way(l, &number);
    for (sglexec_link *link = l->first; link && l->asked % ERRORS_EVERY == 0; link = link->next) {
        ncclResult_t state = ncclSuccess;
        if (!link->comm || joining) continue;
        if (l->nccl->ncclCommGetAsyncError(link->comm, &state) != ncclSuccess) state = ncclInternalError;
        if (state != ncclSuccess && state != ncclInProgress) return told_error(link, state, "exchanging");
    }
    l->asked++;
    l->told = at != NULL;
    return l->ask ? l->ask(l->context, at, number) : SGL_OK;
}

static void nap(int64_t since_ns, int64_t now_ns)
{
    if (now_ns - since_ns < SPIN_NS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

static sgl_status settle(sglexec_link *link, ncclResult_t result, const char *what, const sglexec_linked *joining)
{
    sglexec_device *device = link->device;
    const sglcuda_nccl *nccl = device->links->nccl;
    const int64_t since_ns = sglcore_now_ns();
    int64_t asked_ns = since_ns;
    while (result == ncclInProgress) {
        const int64_t now_ns = sglcore_now_ns();
        const ncclResult_t known = nccl->ncclCommGetAsyncError(link->comm, &result);
        if (known != ncclSuccess) result = known;
        if (result != ncclInProgress) break;
        if (now_ns - asked_ns >= ASK_NS) {
            asked_ns = now_ns;
            SGLCORE_TRY(ask(device, joining));
        }
        nap(since_ns, now_ns);
    }
    return result == ncclSuccess ? SGL_OK : told_error(link, result, what);
}

sgl_status sglcuda_link_settle(sglexec_link *link, ncclResult_t result, const char *what)
{
    return settle(link, result, what, NULL);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

sgl_status sglcuda_link_join(sglexec_link *link)
{
    sglexec_device *device = link->device;
    const sglcuda_driver *driver = device->driver;
    link->under_way = false;
    SGLCORE_TRY(
        sglcuda_check(device->env, driver, driver->cuEventRecord(link->ended, link->stream), "joining streams"));
    return sglcuda_check(device->env, driver, driver->cuStreamWaitEvent(device->stream, link->ended, 0),
                         "joining streams");
}

sgl_status sglcuda_links_join(sglexec_device *device)
{
    if (!device->links) return SGL_OK;
    device->links->rows++;
    for (sglexec_link *link = device->links->first; link; link = link->next)
        if (link->under_way) SGLCORE_TRY(sglcuda_link_join(link));
    return SGL_OK;
}

static bool is_idle(const sglexec_device *device, CUstream stream)
{
    return device->driver->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
}

static sgl_status wait_asking(sglexec_device *device, CUstream stream, const sglexec_linked *joining)
{
    const int64_t since_ns = sglcore_now_ns();
    int64_t asked_ns = since_ns;
    while (!is_idle(device, stream)) {
        const int64_t now_ns = sglcore_now_ns();
        if (now_ns - asked_ns >= ASK_NS) {
            asked_ns = now_ns;
            SGLCORE_TRY(ask(device, joining));
        }
        nap(since_ns, now_ns);
    }
    return SGL_OK;
}

static void cut(sglexec_device *device);

/* The message is that of the ask. */
static sgl_status cut_for(sglexec_device *device, sgl_status status)
{
    char message[sizeof device->env->message];
    memcpy(message, device->env->message, sizeof message);
    cut(device);
    memcpy(device->env->message, message, sizeof message);
    return status;
}

sgl_status sglcuda_links_wait(sglexec_device *device)
{
    struct sglcuda_links *l = device->links;
    if (!l || !l->first) return SGL_OK;
    if (l->stuck)
        return sglcore_fail(device->env, SGL_DEVICE, "device cuda: an exchange that was cut has not ended on the GPU");
    if (l->is_cut) return SGL_OK;
    const sgl_status status = wait_asking(device, device->stream, NULL);
    if (status != SGL_OK) return cut_for(device, status);
    if (l->told && l->ask) (void)l->ask(l->context, NULL, 0);
    l->told = false;
    return SGL_OK;
}

sgl_status sglcuda_links_check(sglexec_device *device)
{
    if (!device->links || !device->links->is_cut) return SGL_OK;
    return sglcore_fail(device->env, SGL_DEVICE, "device cuda: its exchanges with other ranks were cut");
}

bool sglcuda_links_stuck(const sglexec_device *device) { return device->links && device->links->stuck; }

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

static void *abort_main(void *argument)
{
    sglexec_link *link = argument;
    (void)link->device->driver->cuCtxSetCurrent(link->device->context);
    (void)link->device->links->nccl->ncclCommAbort(link->comm);
    return NULL;
}

static void cut(sglexec_device *device)
{
    struct sglcuda_links *l = device->links;
    if (!l || l->is_cut) return;
    l->is_cut = true;
    for (sglexec_link *link = l->first; link; link = link->next)
        if (link->comm) link->aborts = pthread_create(&link->aborting, NULL, abort_main, link) == 0;
    const int64_t until_ns = sglcore_now_ns() + CUT_NS;
    bool idle = false;
    while (!idle && sglcore_now_ns() < until_ns) {
        idle = is_idle(device, device->stream);
        for (sglexec_link *link = l->first; link && idle; link = link->next) idle = is_idle(device, link->stream);
        if (!idle) nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    l->stuck = !idle;
}

/* ---- opening and joining ----------------------------------------------------------------------------------------- */

static sgl_status make_links(sglexec_device *device, const sglcuda_nccl *nccl)
{
    const sglcuda_driver *driver = device->driver;
    struct sglcuda_links *l = sglcore_alloc_zero(device->env, sizeof *l);
    void *words = NULL, *block = NULL;
    if (!l) return SGL_OUT_OF_MEMORY;
    device->links = l;
    l->nccl = nccl;
    l->rows = 1;
    SGLCORE_TRY(sglcuda_check(device->env, driver,
                              driver->cuMemHostAlloc(&words, SGLCUDA_MOST_LINKS * sizeof *l->words, 0),
                              "taking pinned memory of the host"));
    l->words = words;
    memset(words, 0, SGLCUDA_MOST_LINKS * sizeof *l->words);
    SGLCORE_TRY(sglcuda_alloc(device, BLOCK_BYTES, &block));
    l->block = (CUdeviceptr)(uintptr_t)block;
    l->block_bytes = BLOCK_BYTES;
    sglcuda_prepare p = { .env = device->env, .device = device };
    SGLCORE_TRY(sglcuda_builtin(&p, "exchange_mark", &l->mark));
    return sglcuda_builtin(&p, "exchange_copy", &l->copy);
}

void sglcuda_links_close(sglexec_device *device)
{
    struct sglcuda_links *l = device->links;
    if (!l) return;
    if (l->words) (void)device->driver->cuMemFreeHost((void *)(uintptr_t)l->words);
    if (l->block) sglcuda_free(device, (void *)(uintptr_t)l->block, l->block_bytes);
    sglcore_vec_free(device->env, &l->entries);
    sglcore_free(device->env, l, sizeof *l);
    device->links = NULL;
}

static sgl_status open(sglexec_device *device, unsigned char id[SGLEXEC_DEVICE_ID], bool *demanded)
{
    const sglcuda_nccl *nccl;
    CUuuid own;
    const int64_t wanted = sglcore_knob_int(SGLCORE_KNOB_CUDA_NCCL);
    *demanded = wanted == 1;
    if (wanted == 0) return sglcore_fail(device->env, SGL_UNSUPPORTED, "SGL_CUDA_NCCL is 0");
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_check(device->env, device->driver, device->driver->cuDeviceGetUuid(&own, device->device),
                              "asking the GPU for its id"));
    memcpy(id, own.bytes, SGLEXEC_DEVICE_ID);
    SGLCORE_TRY(sglcuda_nccl_open(device->env, &nccl));
    if (device->links) return SGL_OK;
    const sgl_status status = make_links(device, nccl);
    if (status != SGL_OK) sglcuda_links_close(device);
    return status;
}

static void set_ask(sglexec_device *device, sglexec_ask_fn fn, void *context)
{
    if (!device->links) return;
    device->links->ask = fn;
    device->links->context = context;
}

static sgl_status name(sglexec_device *device, char made[SGLEXEC_LINK_NAME])
{
    ncclUniqueId id;
    const sglcuda_nccl *nccl = device->links->nccl;
    _Static_assert(sizeof id == SGLEXEC_LINK_NAME, "a link's name is an id of NCCL");
    SGLCORE_TRY(sglcuda_enter(device));
    const ncclResult_t result = nccl->ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return sglcore_fail(device->env, SGL_DEVICE, "device cuda: beginning a group: NCCL: %s (%s)",
                            nccl->ncclGetErrorString(result), nccl->ncclGetLastError(NULL));
    memcpy(made, &id, sizeof id);
    return SGL_OK;
}

/* The first bytes between each two ranks make their connections, which waits for both: not in the first step. */
static sgl_status meet(sglexec_link *link, const sglexec_linked *joining)
{
    sglexec_device *device = link->device;
    const sglcuda_nccl *nccl = device->links->nccl;
    const int64_t room = (device->links->block_bytes - MEET_AT) / 2;
    char *out = (char *)(uintptr_t)device->links->block + MEET_AT, *in = out + room;
    for (int first = 1; first < link->count; first += (int)room) {
        const int end = (int)sglcuda_min(first + room, link->count);
        SGLCORE_TRY(settle(link, nccl->ncclGroupStart(), "meeting", joining));
        for (int by = first; by < end; by++) {
            const int to = (link->place + by) % link->count, from = (link->place - by + link->count) % link->count;
            SGLCORE_TRY(
                settle(link, nccl->ncclSend(out, 1, ncclUint8, to, link->comm, link->stream), "meeting", joining));
            SGLCORE_TRY(settle(link, nccl->ncclRecv(in + by - first, 1, ncclUint8, from, link->comm, link->stream),
                               "meeting", joining));
        }
        SGLCORE_TRY(settle(link, nccl->ncclGroupEnd(), "meeting", joining));
        SGLCORE_TRY(wait_asking(device, link->stream, joining));
    }
    return SGL_OK;
}

static sgl_status make_comm(sglexec_link *link, const char given[SGLEXEC_LINK_NAME], const sglexec_linked *joining)
{
    const sglcuda_nccl *nccl = link->device->links->nccl;
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memcpy(&id, given, sizeof id);
    config.blocking = 0;
    if (link->count == 1) return SGL_OK;
    const ncclResult_t begun = nccl->ncclCommInitRankConfig(&link->comm, link->count, id, link->place, &config);
    SGLCORE_TRY(settle(link, begun, "making a group", joining));
    return meet(link, joining);
}

/* Before all kernels: an exchange takes few processors, and none as long as those that were there first go on. */
static sgl_status make_streams(sglexec_link *link)
{
    sglexec_device *device = link->device;
    const sglcuda_driver *driver = device->driver;
    int least = 0, greatest = 0;
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuCtxGetStreamPriorityRange(&least, &greatest),
                              "asking for priorities"));
    SGLCORE_TRY(sglcuda_check(device->env, driver,
                              driver->cuStreamCreateWithPriority(&link->stream, CU_STREAM_NON_BLOCKING, greatest),
                              "making a stream"));
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuEventCreate(&link->begun, CU_EVENT_DISABLE_TIMING),
                              "making an event"));
    return sglcuda_check(device->env, driver, driver->cuEventCreate(&link->ended, CU_EVENT_DISABLE_TIMING),
                         "making an event");
}

static void leave(sglexec_device *device, sglexec_link *link);

static sgl_status join(sglexec_device *device, const char given[SGLEXEC_LINK_NAME], int place, int count,
                       const sglexec_linked *joining, sglexec_link **result)
{
    struct sglcuda_links *l = device->links;
    *result = NULL;
    SGLCORE_TRY(sglcuda_enter(device));
    if (l->count == SGLCUDA_MOST_LINKS)
        return sglcore_fail(device->env, SGL_LIMIT, "device cuda: a rank has %d groups at the most", l->count);
    sglexec_link *link = sglcore_alloc_zero(device->env, sizeof *link);
    if (!link) return SGL_OUT_OF_MEMORY;
    link->device = device;
    link->place = place;
    link->count = count;
    link->number = l->count++;
    link->next = l->first;
    l->first = link;
    sgl_status status = make_streams(link);
    if (status == SGL_OK) status = make_comm(link, given, joining);
    if (status != SGL_OK) {
        (void)cut_for(device, status);
        leave(device, link);
        return status;
    }
    *result = link;
    return SGL_OK;
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

/* A thread that does not come to its end holds the link for ever. */
static bool has_aborted(sglexec_link *link)
{
    struct timespec until;
    if (!link->aborts) return true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CUT_NS / 1000000000;
    if (pthread_timedjoin_np(link->aborting, NULL, &until) == 0) return true;
    pthread_detach(link->aborting);
    return false;
}

static void leave(sglexec_device *device, sglexec_link *link)
{
    struct sglcuda_links *l = device->links;
    const sglcuda_driver *driver = device->driver;
    if (!link || sglcuda_enter(device) != SGL_OK) return;
    if (link->comm && !l->is_cut) {
        const sgl_status ended = settle(link, l->nccl->ncclCommFinalize(link->comm), "leaving a group", NULL);
        if (ended == SGL_OK)
            (void)l->nccl->ncclCommDestroy(link->comm);
        else
            cut(device);
    }
    const bool ended = has_aborted(link);
    for (sglexec_link **at = &l->first; *at; at = &(*at)->next) {
        if (*at != link) continue;
        *at = link->next;
        break;
    }
    if (!ended || l->stuck) return;
    for (sglcuda_staged *block = link->staging, *next; block; block = next) {
        next = block->next;
        sglcuda_free(device, (void *)(uintptr_t)block->at, block->bytes);
        sglcore_free(device->env, block, sizeof *block);
    }
    if (link->begun) (void)driver->cuEventDestroy(link->begun);
    if (link->ended) (void)driver->cuEventDestroy(link->ended);
    if (link->stream) (void)driver->cuStreamDestroy(link->stream);
    sglcore_free(device->env, link, sizeof *link);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

sgl_status sglcuda_link_staging(sglexec_link *link, CUdeviceptr *staging)
{
    sglexec_device *device = link->device;
    if (!link->staging || link->staging->bytes < link->wanted_bytes) {
        sglcuda_staged *block = sglcore_alloc_zero(device->env, sizeof *block);
        void *at = NULL;
        if (!block) return SGL_OUT_OF_MEMORY;
        const sgl_status status = sglcuda_alloc(device, link->wanted_bytes, &at);
        if (status != SGL_OK) {
            sglcore_free(device->env, block, sizeof *block);
            return status;
        }
        *block = (sglcuda_staged){ (CUdeviceptr)(uintptr_t)at, link->wanted_bytes, link->staging };
        link->staging = block;
    }
    *staging = link->staging->at;
    return SGL_OK;
}

sgl_status sglcuda_links_enter(sglexec_device *device, const sglexec_linked *linked, unsigned *id)
{
    struct sglcuda_links *l = device->links;
    if (l->entries.count >= (1 << SGLCUDA_EXCHANGE_BITS) - 1)
        return sglcore_fail(device->env, SGL_LIMIT, "device cuda: programs have more than %lld exchanges",
                            (long long)l->entries.count);
    SGLCORE_TRY(sglcore_vec_push(device->env, &l->entries, linked));
    *id = (unsigned)l->entries.count;
    return SGL_OK;
}

sgl_status sglcuda_links_describe(sglexec_device *device, sglcore_text *text)
{
    const sglcuda_nccl *nccl;
    sglcore_env *env = device->env;
    if (sglcore_knob_int(SGLCORE_KNOB_CUDA_NCCL) == 0)
        return sglcore_text_add(env, text, "  ranks exchange through the host: SGL_CUDA_NCCL is 0\n");
    if (sglcuda_nccl_open(env, &nccl) != SGL_OK)
        return sglcore_text_add(env, text, "  ranks exchange through the host: %s\n", env->message);
    return sglcore_text_add(env, text, "  ranks exchange by NCCL %d.%d.%d\n", nccl->version / 10000,
                            nccl->version / 100 % 100, nccl->version % 100);
}

const sglexec_device_links sglcuda_link_ops = {
    .open = open,
    .ask = set_ask,
    .name = name,
    .join = join,
    .leave = leave,
    .cut = cut,
    .route = sglcuda_route,
    .join_all = sglcuda_links_join,
};
#endif
