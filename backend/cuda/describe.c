/* describe.c -- what this GPU is and how it is used, as text for `sgl doctor`.
 *
 * In: an open device. Out: lines: name, capability, memory, driver, NVRTC, where compiled kernels are kept. Odd
 * invariant: a library that is missing is told with the reason; the device is open all the same. */
#include <limits.h>

#include "backend/cuda/link.h"
#include "backend/cuda/nvrtc.h"
#include "core/knob.h"

static sgl_status add_versions(sglexec_device *device, sglcore_text *text)
{
    sglcore_env *env = device->env;
    int driver = 0, major, minor;
    (void)device->driver->cuDriverGetVersion(&driver);
    SGLCORE_TRY(sglcore_text_add(env, text, "  driver for CUDA %d.%d, module built with %d.%d\n", driver / 1000,
                                 driver % 1000 / 10, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10));
    if (sglcuda_nvrtc_version(env, &major, &minor) != SGL_OK)
        return sglcore_text_add(env, text, "  fused kernels cannot be compiled: %s\n", env->message);
    return sglcore_text_add(env, text, "  NVRTC %d.%d\n", major, minor);
}

sgl_status sglcuda_describe(sglexec_device *device, sglcore_text *text)
{
    sglcore_env *env = device->env;
    char name[256], folder[PATH_MAX];
    size_t left = 0, all = 0;
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_check(env, device->driver, device->driver->cuDeviceGetName(name, sizeof name, device->device),
                              "asking the GPU for its name"));
    SGLCORE_TRY(sglcuda_check(env, device->driver, device->driver->cuMemGetInfo(&left, &all), "asking for memory"));
    SGLCORE_TRY(
        sglcore_text_add(env, text,
                         "cuda: %s, number %d of %d, compute capability %d.%d, %d multiprocessors, memory %.1f GiB "
                         "(%.1f free)\n",
                         name, device->number, device->count, device->major, device->minor, device->processors,
                         (double)all / 0x1p30, (double)left / 0x1p30));
    SGLCORE_TRY(add_versions(device, text));
    SGLCORE_TRY(sglcuda_links_describe(device, text));
    if (!sglcore_cache_folder(folder, sizeof folder))
        return sglcore_text_add(env, text, "  compiled kernels are not kept\n");
    return sglcore_text_add(env, text, "  compiled kernels are kept in %s/cuda\n", folder);
}
