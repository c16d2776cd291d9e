/* driver.c -- a driver of a GPU that is not there, as libcuda.so.1: what the CUDA backend asks of a driver can be tested
 * on any machine, all but what kernels compute.
 *
 * In: the calls of backend/cuda/library.h. Out: memory is the host's, fills and copies are made (those of a capture at
 * once, and not when the graph is launched), a launch is held against
 * what a GPU demands and computes nothing: a current context, a handle, dimensions in range, shared memory that was asked for, as many
 * bytes of arguments as the kernel takes (told by the kernel's own ELF image), pointers into blocks that are there. SGL_TESTS_DRIVER
 * has words: "old", "none" (no GPU), "early" (compute capability 7.5), "two" (GPUs), "apart" (each process has a GPU of its own), "small" (64 KiB of memory), "broken" (each wait says that a
 * kernel went wrong). The marks of exchanges (kernels/exchange.cu) are the one kernel that runs. Beside libcuda's own there are functions for
 * nccl.c: what holds a stream, as an exchange does whose other rank does not come. What is left when the last context goes, or is freed twice, is told on stderr and ends the process
 * with status 99, as a sanitizer's report does. Odd invariant: one thread at a time calls, and each has its own current context. */
#include "image.h"
#include "../../backend/cuda/kernels/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

#define DRIVER CUresult CUDAAPI

enum {
    GRAIN = 512, /* of a block's address, as the driver has it */
    MOST_BLOCKS = 4096,
    SHARED_FREE = 48 << 10,
    SHARED_MOST = 227 << 10,
    THREADS_MOST = 1024,
    GRID_YZ_MOST = 65535
};

typedef struct block {
    char *at;
    size_t bytes;
} block;

struct CUfunc_st {
    char name[256];
    size_t argument_bytes; /* 0: not known */
    int shared_most;
    struct CUfunc_st *next;
};

struct CUmod_st {
    const char *image; /* it must stay until the functions have been looked up */
    struct CUfunc_st *functions;
};

struct CUctx_st {
    int users;
};
/* work: launches so far; joined: so many of them come before something of the stream that captures. */
struct CUstream_st {
    int captures, capture, work, joined;
    struct CUstream_st *next;
};
struct CUgraph_st {
    int none;
};
struct CUgraphExec_st {
    int none;
};
struct CUevent_st {
    int recorded, capture, work;
    CUstream stream;
};

static struct CUctx_st contexts[2];
static _Thread_local CUcontext current;
static block blocks[MOST_BLOCKS];
static int clock_us; /* a tick for each event that is recorded */
static int block_count, module_count, stream_count, event_count, pinned_count, graph_count;
static size_t bytes_taken;

static int told(const char *word)
{
    const char *words = getenv("SGL_TESTS_DRIVER");
    return words != NULL && strstr(words, word) != NULL;
}

static int held;                       /* streams do not end */
static int capture_count, capture_now; /* now: 0, or the number of the capture that is under way */
static struct CUstream_st *streams;

static void stop(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    _exit(99);
}

static CUresult here(void) { return current != NULL && current->users > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

#define HERE                                                                                                           \
    do {                                                                                                               \
        const CUresult found = here();                                                                                 \
        if (found != CUDA_SUCCESS) return found;                                                                       \
    } while (0)

/* ---- the device ------------------------------------------------------------------------------------------------------- */

DRIVER cuInit(unsigned flags)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : told("none") ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

DRIVER cuDriverGetVersion(int *version)
{
    *version = told("old") ? 11080 : CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* NVRTC asks the driver for this one, and does without. */
DRIVER cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

DRIVER cuGetErrorName(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

DRIVER cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_ILLEGAL_ADDRESS           ? "an illegal memory access was encountered"
            : error == CUDA_ERROR_INVALID_CONTEXT         ? "no context is current"
            : error == CUDA_ERROR_INVALID_VALUE           ? "an argument is out of its range"
            : error == CUDA_ERROR_INVALID_IMAGE           ? "this is no image of a device"
            : error == CUDA_ERROR_NOT_FOUND               ? "there is no such name"
            : error == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? "more is asked for than a multiprocessor has"
                                                          : "an error";
    return CUDA_SUCCESS;
}

DRIVER cuDeviceGetCount(int *count)
{
    *count = told("two") ? 2 : 1;
    return CUDA_SUCCESS;
}

DRIVER cuDeviceGet(CUdevice *device, int number)
{
    int count;
    *device = number;
    cuDeviceGetCount(&count);
    return number >= 0 && number < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

DRIVER cuDeviceGetName(char *name, int room, CUdevice device)
{
    snprintf(name, (size_t)room, "a GPU that is not there, %d", device);
    return CUDA_SUCCESS;
}

DRIVER cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = told("early") ? 7 : 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = told("early") ? 5 : 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = SHARED_MOST; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static size_t memory(void) { return told("small") ? 64 << 10 : (size_t)16 << 30; }

DRIVER cuDeviceGetUuid(CUuuid *id, CUdevice device)
{
    const pid_t own = told("apart") ? getpid() : 0;
    memset(id, device, sizeof *id);
    memcpy(id, &own, sizeof own);
    return CUDA_SUCCESS;
}

DRIVER cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = memory();
    return CUDA_SUCCESS;
}

/* ---- contexts ----------------------------------------------------------------------------------------------------------- */

DRIVER cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = &contexts[device];
    contexts[device].users++;
    return CUDA_SUCCESS;
}

DRIVER cuDevicePrimaryCtxRelease(CUdevice device)
{
    if (contexts[device].users == 0) stop("a context is released more often than it was retained");
    if (--contexts[device].users > 0 || contexts[0].users + contexts[1].users > 0) return CUDA_SUCCESS;
    if (block_count > 0) stop("memory of the device is left");
    if (module_count > 0) stop("a module is left");
    if (stream_count > 0) stop("a stream is left");
    if (event_count > 0) stop("an event is left");
    if (graph_count > 0) stop("a graph is left");
    if (pinned_count > 0) stop("pinned memory is left");
    return CUDA_SUCCESS;
}

DRIVER cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

DRIVER cuCtxPushCurrent(CUcontext context) { return cuCtxSetCurrent(context); }

DRIVER cuCtxPopCurrent(CUcontext *context)
{
    if (context != NULL) *context = current;
    current = NULL;
    return CUDA_SUCCESS;
}

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

DRIVER cuMemGetInfo(size_t *left, size_t *all)
{
    HERE;
    *all = memory();
    *left = *all - bytes_taken;
    return CUDA_SUCCESS;
}

DRIVER cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
    HERE;
    const size_t whole = (bytes + GRAIN - 1) / GRAIN * GRAIN;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes_taken + whole > memory() || block_count == MOST_BLOCKS) return CUDA_ERROR_OUT_OF_MEMORY;
    char *made = aligned_alloc(GRAIN, whole);
    if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(made, 0xA5, whole);
    blocks[block_count++] = (block){ made, bytes };
    bytes_taken += whole;
    *at = (CUdeviceptr)(uintptr_t)made;
    return CUDA_SUCCESS;
}

DRIVER cuMemFree(CUdeviceptr at)
{
    HERE;
    for (int i = 0; i < block_count; i++) {
        if ((CUdeviceptr)(uintptr_t)blocks[i].at != at) continue;
        bytes_taken -= (blocks[i].bytes + GRAIN - 1) / GRAIN * GRAIN;
        free(blocks[i].at);
        blocks[i] = blocks[--block_count];
        return CUDA_SUCCESS;
    }
    stop("what is freed is no block");
    return CUDA_ERROR_INVALID_VALUE;
}

/* Whether so many bytes lie within one block. */
static int within(CUdeviceptr at, size_t bytes)
{
    for (int i = 0; i < block_count; i++) {
        const CUdeviceptr first = (CUdeviceptr)(uintptr_t)blocks[i].at;
        if (at >= first && at - first <= blocks[i].bytes && bytes <= blocks[i].bytes - (size_t)(at - first)) return 1;
    }
    return 0;
}

DRIVER cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    HERE;
    *at = malloc(bytes);
    pinned_count += *at != NULL;
    return *at != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER cuMemFreeHost(void *at)
{
    HERE;
    free(at);
    pinned_count--;
    return CUDA_SUCCESS;
}

DRIVER cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    HERE;
    if (stream == NULL || !within(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

DRIVER cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    HERE;
    if (stream == NULL || !within(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

DRIVER cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    HERE;
    if (stream == NULL || !within(from, bytes) || !within(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (to < from + bytes && from < to + bytes) return CUDA_ERROR_INVALID_VALUE; /* they must not overlap */
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

/* From anywhere to anywhere: blocks of the device's, and the host's memory. */
DRIVER cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    HERE;
    if (stream == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (to < from + bytes && from < to + bytes) return CUDA_ERROR_INVALID_VALUE; /* they must not overlap */
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    stream->work++;
    return CUDA_SUCCESS;
}

DRIVER cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
    HERE;
    if (stream == NULL || !within(at, bytes)) return CUDA_ERROR_INVALID_VALUE;
    memset((void *)(uintptr_t)at, value, bytes);
    return CUDA_SUCCESS;
}

/* Copies without a stream are not in the order of the others: nobody may call them. */
DRIVER cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- for nccl.c ------------------------------------------------------------------------------------------------------- */

void driver_hold(int on);
int driver_graphs(void);
int driver_within(const void *at, size_t bytes);

void driver_hold(int on) { held = on; }
int driver_graphs(void) { return graph_count; }
int driver_within(const void *at, size_t bytes) { return within((CUdeviceptr)(uintptr_t)at, bytes); }

/* ---- streams, events, graphs ------------------------------------------------------------------------------------------- */

DRIVER cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    HERE;
    *stream = calloc(1, sizeof **stream);
    stream_count += *stream != NULL;
    if (*stream != NULL) (*stream)->next = streams;
    if (*stream != NULL) streams = *stream;
    return *stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return here();
}

DRIVER cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    return priority < -5 || priority > 0 ? CUDA_ERROR_INVALID_VALUE : cuStreamCreate(stream, flags);
}

DRIVER cuStreamDestroy(CUstream stream)
{
    HERE;
    struct CUstream_st **at = &streams;
    while (*at != NULL && *at != stream) at = &(*at)->next;
    if (*at == NULL) stop("what is destroyed is no stream");
    *at = stream->next;
    free(stream);
    stream_count--;
    return CUDA_SUCCESS;
}

DRIVER cuStreamQuery(CUstream stream)
{
    HERE;
    if (stream->captures) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

DRIVER cuStreamSynchronize(CUstream stream)
{
    HERE;
    if (held) stop("a host that waits for an exchange that never ends");
    if (stream->captures) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a host that waits for what never runs */
    return told("broken") ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* An event of a capture is of no use outside of it, nor one from outside within. */
DRIVER cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    HERE;
    if (event->recorded && event->capture != capture_now)
        return capture_now ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_ERROR_CAPTURED_EVENT;
    stream->work += stream->captures == 0;
    if (stream->captures == 0 && capture_now) stream->capture = capture_now;
    if (stream->captures && event->stream && event->work > event->stream->joined) event->stream->joined = event->work;
    return CUDA_SUCCESS;
}

DRIVER cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    HERE;
    *event = calloc(1, sizeof **event);
    event_count += *event != NULL;
    return *event != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER cuEventDestroy(CUevent event)
{
    HERE;
    free(event);
    event_count--;
    return CUDA_SUCCESS;
}

DRIVER cuEventRecord(CUevent event, CUstream stream)
{
    HERE;
    *event = (struct CUevent_st){ ++clock_us, capture_now, stream->work, stream };
    return CUDA_SUCCESS;
}

DRIVER cuEventQuery(CUevent event)
{
    (void)event;
    return here();
}

DRIVER cuEventSynchronize(CUevent event)
{
    (void)event;
    return here();
}

DRIVER cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    HERE;
    *ms = (float)(to->recorded - from->recorded) / 1000;
    return from->recorded && to->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

DRIVER cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    HERE;
    if (stream == NULL || stream->captures) return CUDA_ERROR_ILLEGAL_STATE;
    stream->captures = 1;
    capture_now = ++capture_count;
    return CUDA_SUCCESS;
}

DRIVER cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    HERE;
    *graph = NULL;
    if (!stream->captures) return CUDA_ERROR_ILLEGAL_STATE;
    stream->captures = 0;
    const int ended = capture_now;
    capture_now = 0;
    for (const struct CUstream_st *other = streams; other != NULL; other = other->next)
        if (other != stream && other->capture == ended && other->joined < other->work)
            return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = calloc(1, sizeof **graph);
    graph_count += *graph != NULL;
    return *graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    HERE;
    if (graph == NULL) return CUDA_ERROR_INVALID_VALUE;
    *exec = calloc(1, sizeof **exec);
    graph_count += *exec != NULL;
    return *exec != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    HERE;
    return exec != NULL && stream != NULL && !stream->captures ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER cuGraphDestroy(CUgraph graph)
{
    HERE;
    free(graph);
    graph_count--;
    return CUDA_SUCCESS;
}

DRIVER cuGraphExecDestroy(CUgraphExec exec)
{
    HERE;
    free(exec);
    graph_count--;
    return CUDA_SUCCESS;
}

/* ---- modules and launches ------------------------------------------------------------------------------------------------ */

DRIVER cuModuleLoadData(CUmodule *module, const void *image)
{
    HERE;
    if (!image_is_one(image)) return CUDA_ERROR_INVALID_IMAGE;
    *module = calloc(1, sizeof **module);
    if (*module == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    module_count++;
    (*module)->image = image;
    return CUDA_SUCCESS;
}

DRIVER cuModuleUnload(CUmodule module)
{
    HERE;
    while (module->functions != NULL) {
        CUfunction f = module->functions;
        module->functions = f->next;
        free(f);
    }
    free(module);
    module_count--;
    return CUDA_SUCCESS;
}

DRIVER cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    size_t argument_bytes;
    HERE;
    if (!image_has_kernel(module->image, name, &argument_bytes)) return CUDA_ERROR_NOT_FOUND;
    *function = calloc(1, sizeof **function);
    if (*function == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    (*function)->argument_bytes = argument_bytes;
    (*function)->shared_most = SHARED_FREE;
    (*function)->next = module->functions;
    module->functions = *function;
    return CUDA_SUCCESS;
}

/* What the manual demands of tiles in rows of 128 bytes whose units are exchanged, of numbers of two bytes. */
DRIVER cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                              const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                              const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    (void)promotion;
    bool fits = (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0 && rank >= 1 && rank <= 5;
    fits = fits && (type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    fits = fits && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
    fits = fits && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && box[0] * 2 <= 128;
    for (cuuint32_t i = 0; fits && i < rank; i++)
        fits = dims[i] > 0 && dims[i] <= (cuuint64_t)1 << 32 && box[i] > 0 && box[i] <= 256 && steps[i] == 1;
    for (cuuint32_t i = 0; fits && i + 1 < rank; i++) fits = strides[i] % 16 == 0 && strides[i] < (cuuint64_t)1 << 40;
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

DRIVER cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    HERE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value > SHARED_MOST) return CUDA_ERROR_INVALID_VALUE;
    function->shared_most = value;
    return CUDA_SUCCESS;
}

DRIVER cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    (void)attribute, (void)function;
    HERE;
    *value = 0;
    return CUDA_SUCCESS;
}

static void run_mark(const void *arguments)
{
    const sglcuda_exchange_mark *v = arguments;
    unsigned long long *begun = v->begun, number = *v->word >> SGLCUDA_EXCHANGE_BITS;
    if (v->id != 0) number = ++*begun;
    *v->word = number << SGLCUDA_EXCHANGE_BITS | v->id;
}

static CUresult refuse(CUfunction function, const char *why)
{
    fprintf(stderr, "driver: %s: %s\n", function->name, why);
    return CUDA_ERROR_INVALID_VALUE;
}

DRIVER cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                      unsigned shared, CUstream stream, void **parameters, void **extra)
{
    HERE;
    if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == NULL) return refuse(function, "launched on no stream");
    if (x == 0 || y == 0 || z == 0 || x > 0x7fffffffu || y > GRID_YZ_MOST || z > GRID_YZ_MOST)
        return refuse(function, "a grid that no GPU takes");
    if (tx == 0 || ty == 0 || tz == 0 || tz > 64 || (unsigned long long)tx * ty * tz > THREADS_MOST)
        return refuse(function, "a block of threads that no GPU takes");
    if (shared > (unsigned)function->shared_most) return refuse(function, "more shared memory than was asked for");
    if (parameters != NULL && extra == NULL) return CUDA_SUCCESS; /* each by its address: of a kernel with maps */
    if (parameters != NULL || extra == NULL || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER ||
        extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END)
        return refuse(function, "arguments in another form than this driver takes");
    const size_t bytes = *(const size_t *)extra[3];
    if (function->argument_bytes > 0 && bytes != function->argument_bytes) {
        fprintf(stderr, "driver: %s takes %zu bytes of arguments and is given %zu\n", function->name,
                function->argument_bytes, bytes);
        return CUDA_ERROR_INVALID_VALUE;
    }
    stream->work++;
    if (strcmp(function->name, "exchange_mark") == 0 && !held) run_mark(extra[1]);
    return CUDA_SUCCESS;
}
