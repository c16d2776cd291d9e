/* memory.c -- blocks of the device's memory, and what is written into them and read from them.
 *
 * In: addresses and bytes of the host. Out: everything in the order of the device's stream; a read waits for it. What is
 * written in small pieces (feeds, the index of a loop) goes through pinned memory, so that the host need not wait. Odd
 * invariant: a write has taken the host's bytes when it returns. */
#include <string.h>

#include "backend/cuda/link.h"

enum {
    STAGING_BYTES = 4 << 20, /* more than a batch of tokens of a large step */
    STAGING_UNIT = 256       /* pieces lie apart by this: whole transactions of the copy engine */
};

/* Filled from the front; when it is full the stream is waited for, and it is empty again. */
struct sglcuda_staging {
    char *bytes;
    int64_t used;
};

sgl_status sglcuda_open_staging(sglexec_device *device)
{
    device->staging = sglcore_alloc_zero(device->env, sizeof *device->staging);
    if (!device->staging) return SGL_OUT_OF_MEMORY;
    void *bytes = NULL;
    SGLCORE_TRY(sglcuda_check(device->env, device->driver, device->driver->cuMemHostAlloc(&bytes, STAGING_BYTES, 0),
                              "taking pinned memory of the host"));
    device->staging->bytes = bytes;
    return SGL_OK;
}

void sglcuda_close_staging(sglexec_device *device)
{
    if (!device->staging) return;
    if (device->staging->bytes) (void)device->driver->cuMemFreeHost(device->staging->bytes);
    sglcore_free(device->env, device->staging, sizeof *device->staging);
    device->staging = NULL;
}

int64_t sglcuda_room(sglexec_device *device)
{
    size_t left = 0, all = 0;
    if (sglcuda_enter(device) != SGL_OK || device->driver->cuMemGetInfo(&left, &all) != CUDA_SUCCESS) return 0;
    return (int64_t)left;
}

sgl_status sglcuda_alloc(sglexec_device *device, int64_t bytes, void **block)
{
    const sglcuda_driver *driver = device->driver;
    CUdeviceptr at = 0;
    *block = NULL;
    SGLCORE_TRY(sglcuda_enter(device));
    if (bytes == 0) bytes = 1; /* a space without content has an address too */
    const CUresult result = driver->cuMemAlloc(&at, (size_t)bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        size_t left = 0, all = 0;
        (void)driver->cuMemGetInfo(&left, &all);
        return sglcore_fail(device->env, SGL_OUT_OF_MEMORY,
                            "device cuda: %.2f GiB are wanted, and of the %.2f GiB of the GPU %.2f are free",
                            (double)bytes / 0x1p30, (double)all / 0x1p30, (double)left / 0x1p30);
    }
    SGLCORE_TRY(sglcuda_check(device->env, driver, result, "taking memory"));
    *block = (void *)(uintptr_t)at;
    const sgl_status status =
        sglcuda_check(device->env, driver, driver->cuMemsetD8Async(at, 0, (size_t)bytes, device->stream),
                      "clearing memory");
    if (status == SGL_OK) return SGL_OK;
    sglcuda_free(device, *block, bytes);
    *block = NULL;
    return status;
}

/* What was launched may still write to it. */
void sglcuda_free(sglexec_device *device, void *block, int64_t bytes)
{
    (void)bytes;
    if (!block || sglcuda_enter(device) != SGL_OK) return;
    if (!sglcuda_rest(device)) return;
    (void)device->driver->cuMemFree((CUdeviceptr)(uintptr_t)block);
}

sgl_status sglcuda_alloc_host(sglexec_device *device, int64_t bytes, void **block)
{
    const sglcuda_driver *driver = device->driver;
    *block = NULL;
    SGLCORE_TRY(sglcuda_enter(device));
    if (bytes == 0) bytes = 1;
    const CUresult result =
        driver->cuMemHostAlloc(block, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return sglcore_fail(
            device->env, SGL_OUT_OF_MEMORY,
            "device cuda: %.2f GiB of the host's memory are wanted for what the plan offloads, pinned, and are "
            "not to be had; offload less (plan.offload)",
            (double)bytes / 0x1p30);
    SGLCORE_TRY(sglcuda_check(device->env, driver, result, "taking pinned memory of the host"));
    /* By the GPU, which is several times as fast as a thread of the host; where it will not, by that. */
    if (driver->cuMemsetD8Async((CUdeviceptr)(uintptr_t)*block, 0, (size_t)bytes, device->stream) == CUDA_SUCCESS)
        return sglcuda_wait(device);
    memset(*block, 0, (size_t)bytes);
    return SGL_OK;
}

void sglcuda_free_host(sglexec_device *device, void *block, int64_t bytes)
{
    (void)bytes;
    if (!block || sglcuda_enter(device) != SGL_OK || !sglcuda_rest(device)) return;
    (void)device->driver->cuMemFreeHost(block);
}

static sgl_status send(sglexec_device *device, CUdeviceptr to, const void *host, int64_t bytes)
{
    return sglcuda_check(device->env, device->driver,
                         device->driver->cuMemcpyAsync(to, (CUdeviceptr)(uintptr_t)host, (size_t)bytes, device->stream),
                         "writing to the GPU");
}

sgl_status sglcuda_write(sglexec_device *device, void *block, int64_t offset, const void *host, int64_t bytes)
{
    struct sglcuda_staging *staging = device->staging;
    const CUdeviceptr to = (CUdeviceptr)(uintptr_t)block + (CUdeviceptr)offset;
    if (bytes == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_enter(device));
    if (bytes > STAGING_BYTES) {
        SGLCORE_TRY(sglcuda_links_wait(device));
        SGLCORE_TRY(send(device, to, host, bytes));
        return sglcuda_wait(device);
    }
    if (staging->used + bytes > STAGING_BYTES) {
        SGLCORE_TRY(sglcuda_wait(device));
        staging->used = 0;
    }
    char *piece = staging->bytes + staging->used;
    memcpy(piece, host, (size_t)bytes);
    staging->used += sglcuda_round_up(bytes, STAGING_UNIT);
    return send(device, to, piece, bytes);
}

sgl_status sglcuda_read(sglexec_device *device, const void *block, int64_t offset, void *host, int64_t bytes)
{
    const CUdeviceptr from = (CUdeviceptr)(uintptr_t)block + (CUdeviceptr)offset;
    if (bytes == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_links_wait(device)); /* the driver itself waits for memory that is not pinned */
    SGLCORE_TRY(
        sglcuda_check(device->env, device->driver,
                      device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, from, (size_t)bytes, device->stream),
                      "reading from the GPU"));
    return sglcuda_wait(device);
}

sgl_status sglcuda_copy(sglexec_device *device, void *to, const void *from, int64_t bytes)
{
    if (bytes == 0 || to == from) return SGL_OK;
    SGLCORE_TRY(sglcuda_enter(device));
    return sglcuda_check(device->env, device->driver,
                         device->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                                       (size_t)bytes, device->stream),
                         "copying on the GPU");
}
