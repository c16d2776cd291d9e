/* nccl.c -- libnccl.so.2 for GPUs that are not there: what links ask of NCCL is held to its rules, and nothing is exchanged.
 *
 * In: the calls of backend/cuda/nccl.h. Out: success, each after ncclInProgress, as of communicators that do not block; messages
 * are held against the driver's blocks of memory (driver.c), ranks against the group. SGL_TESTS_NCCL has words: "old" (a
 * version before those that do), "never" (no other rank comes to join), "stuck" (messages do not end, until communicators are
 * aborted), "broken" (the first message ends in an error of another rank). nccl_said gives what was called since the last time. What breaks
 * a rule ends the process with status 99: a communicator that is left or destroyed before CUDA graphs that may hold it.
 * Odd invariant: it is found under its own name by the backend, and finds the driver by its name. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nccl.h>

struct ncclComm {
    int ranks, rank, finalized, aborted;
    int asks; /* until the last call has ended */
    ncclResult_t state;
};

enum { ASKS = 2 };

static struct ncclComm *comms[64];
static atomic_int live;
static int comm_count, depth, group_count, said_bytes;
static struct ncclComm *in_group;
static char said[1 << 16];

const char *nccl_said(void);

static int told(const char *word)
{
    const char *words = getenv("SGL_TESTS_NCCL");
    return words != NULL && strstr(words, word) != NULL;
}

static void stop(const char *what)
{
    fprintf(stderr, "nccl: %s\n", what);
    _exit(99);
}

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (said_bytes < (int)sizeof said - 100)
        said_bytes += vsnprintf(said + said_bytes, sizeof said - (size_t)said_bytes, format, arguments);
    va_end(arguments);
}

const char *nccl_said(void)
{
    static char copy[sizeof said];
    memcpy(copy, said, sizeof copy);
    said_bytes = 0;
    said[0] = '\0';
    return copy;
}

static void *of_driver(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found = driver ? dlsym(driver, name) : NULL;
    if (found == NULL) stop("there is no driver of tests/cuda");
    return found;
}

static void hold(int on)
{
    void (*function)(int);
    *(void **)&function = of_driver("driver_hold");
    function(on);
}

static int graphs(void)
{
    int (*function)(void);
    *(void **)&function = of_driver("driver_graphs");
    return function();
}

static int within(const void *at, size_t bytes)
{
    int (*function)(const void *, size_t);
    *(void **)&function = of_driver("driver_within");
    return function(at, bytes);
}

static ncclResult_t begin(ncclComm_t comm)
{
    comm->state = ncclInProgress;
    comm->asks = ASKS;
    return ncclInProgress;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = told("old") ? 21703 : 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0x5a, sizeof *id);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "invalid usage";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "a word of the library";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    if (id.internal[0] != 0x5a || rank < 0 || rank >= ranks || config == NULL || config->blocking != 0 ||
        comm_count == 64)
        return ncclInvalidArgument;
    *comm = comms[comm_count++] = calloc(1, sizeof **comm);
    (*comm)->ranks = ranks;
    (*comm)->rank = rank;
    live++;
    say("join %d of %d\n", rank, ranks);
    return begin(*comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (comm->aborted) stop("an aborted communicator is asked");
    if (told("never")) comm->state = ncclInProgress;
    if (comm->state == ncclInProgress && !told("never") && comm->asks-- <= 0) comm->state = ncclSuccess;
    *state = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm->finalized || comm->aborted) stop("a communicator is finalized twice");
    if (graphs() > 0) stop("a communicator is finalized before CUDA graphs are freed");
    comm->finalized = 1;
    return begin(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->finalized || comm->state != ncclSuccess) stop("a communicator is destroyed that is not finalized");
    live--;
    return ncclSuccess;
}

/* From any thread, one for each. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm->aborted) stop("a communicator is aborted twice");
    comm->aborted = 1;
    atomic_fetch_sub(&live, 1);
    hold(0);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    if (depth++ != 0) stop("a group in a group");
    group_count = 0;
    in_group = NULL;
    return ncclSuccess;
}

static ncclResult_t end_messages(ncclComm_t comm)
{
    if (told("stuck") && said_bytes > 0 && comm != NULL && strstr(said, "step") != NULL) hold(1);
    (void)begin(comm);
    if (told("broken")) comm->state = ncclRemoteError;
    return told("broken") ? ncclRemoteError : ncclInProgress;
}

ncclResult_t ncclGroupEnd(void)
{
    if (--depth != 0) stop("a group ends that was not begun");
    return in_group ? end_messages(in_group) : ncclSuccess;
}

static ncclResult_t message(const char *what, const void *at, size_t count, ncclDataType_t type, int peer,
                            ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclUint8 || peer < 0 || peer >= comm->ranks || peer == comm->rank || stream == NULL || count == 0)
        return ncclInvalidArgument;
    if (comm->state != ncclSuccess) stop("a call before the one before has ended");
    if (!within(at, count)) stop("a message outside of the GPU's memory");
    if (depth > 0 && in_group != NULL && in_group != comm) stop("messages of two communicators in one group");
    if (depth > 0) in_group = comm;
    if (count > 1) say("step ");
    say("%s %d %zu\n", what, peer, count);
    return depth > 0 ? ncclSuccess : end_messages(comm);
}

ncclResult_t ncclSend(const void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return message("send", at, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *at, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return message("receive", at, count, type, peer, comm, stream);
}

static void __attribute__((destructor)) leave(void)
{
    for (int i = 0; i < comm_count; i++) free(comms[i]);
    if (live > 0) stop("a communicator is left");
}
