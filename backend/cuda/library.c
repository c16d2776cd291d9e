/* library.c -- the driver and the toolkit's libraries by name, and the driver's words. In and out: library.h.
 *
 * Odd invariant: what could not be opened is tried anew when it is asked for again; what is open is never closed, since other
 * devices of the process hold its functions. */
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "backend/cuda/cuda.h"
#include "core/knob.h"

#define DRIVER "libcuda.so.1"

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

typedef struct driver_row {
    const char *name;
    size_t member; /* offset */
} driver_row;

/* By the name that the header gives the function: its newest version. */
#define NAME_OF(name) #name
#define DRIVER_ROW(name) { NAME_OF(name), offsetof(sglcuda_driver, name) },
static const driver_row rows[] = { SGLCUDA_DRIVER_MAP(DRIVER_ROW) };

static sgl_status open_functions(sglcore_env *env, void *handle, sglcuda_driver *table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *found = dlsym(handle, rows[i].name);
        if (!found)
            return sglcore_fail(env, SGL_UNSUPPORTED,
                                "device cuda: the driver (" DRIVER
                                ") has no %s: it is older than CUDA %d.%d, with which "
                                "this module was built",
                                rows[i].name, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
        *(void **)((char *)table + rows[i].member) = found;
    }
    return SGL_OK;
}

static sgl_status check_version(sglcore_env *env, const sglcuda_driver *driver)
{
    int version = 0;
    const CUresult result = driver->cuDriverGetVersion(&version);
    if (result == CUDA_ERROR_STUB_LIBRARY)
        return sglcore_fail(env, SGL_UNSUPPORTED,
                            "device cuda: the " DRIVER
                            " that the loader finds is the toolkit's, for linking alone, and no "
                            "driver");
    SGLCORE_TRY(sglcuda_check(env, driver, result, "asking the driver for its version"));
    if (version / 1000 >= CUDA_VERSION / 1000) return SGL_OK;
    return sglcore_fail(
        env, SGL_UNSUPPORTED,
        "device cuda: the driver is of CUDA %d.%d, and this module of CUDA %d.%d: it needs a newer driver",
        version / 1000, version % 1000 / 10, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}

static sgl_status open_driver(sglcore_env *env, const sglcuda_driver **driver)
{
    static sglcuda_driver table;
    static bool open;
    if (!open) {
        void *handle = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            return sglcore_fail(env, SGL_UNSUPPORTED,
                                "device cuda: there is no driver of an NVIDIA GPU on this machine: %s", dlerror());
        SGLCORE_TRY(open_functions(env, handle, &table));
        SGLCORE_TRY(check_version(env, &table));
        const CUresult begun = table.cuInit(0);
        if (begun == CUDA_ERROR_NO_DEVICE)
            return sglcore_fail(env, SGL_UNSUPPORTED,
                                "device cuda: the driver is there, and no GPU that it may use "
                                "(CUDA_VISIBLE_DEVICES may hide them)");
        if (begun != CUDA_SUCCESS) {
            (void)sglcuda_check(env, &table, begun, "starting the driver");
            return SGL_UNSUPPORTED;
        }
        open = true;
    }
    *driver = &table;
    return SGL_OK;
}

sgl_status sglcuda_driver_open(sglcore_env *env, const sglcuda_driver **driver)
{
    *driver = NULL;
    pthread_mutex_lock(&opening);
    const sgl_status status = open_driver(env, driver);
    pthread_mutex_unlock(&opening);
    return status;
}

sgl_status sglcuda_library_open(sglcore_env *env, const char *name, const char *needed, void **handle)
{
    static const char *const folders[] = { "", SGLCUDA_TOOLKIT "/", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/" };
    const char *asked = sglcore_knob_text(SGLCORE_KNOB_CUDA_LIBRARIES);
    char path[PATH_MAX];
    *handle = NULL;
    if (asked[0] != '\0') {
        if (snprintf(path, sizeof path, "%s/%s", asked, name) < (int)sizeof path)
            *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (*handle) return SGL_OK;
        return sglcore_fail(env, SGL_UNSUPPORTED,
                            "device cuda: %s is needed for %s, and cannot be opened in "
                            "SGL_CUDA_LIBRARIES=%s",
                            name, needed, asked);
    }
    for (size_t i = 0; !*handle && i < sizeof folders / sizeof folders[0]; i++)
        if (snprintf(path, sizeof path, "%s%s", folders[i], name) < (int)sizeof path)
            *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle) return SGL_OK;
    return sglcore_fail(
        env, SGL_UNSUPPORTED,
        "device cuda: %s is needed for %s, and is neither where the loader looks nor in the CUDA toolkit; "
        "SGL_CUDA_LIBRARIES names its folder",
        name, needed);
}

sgl_status sglcuda_library_function(sglcore_env *env, void *handle, const char *library, const char *name,
                                    void **function)
{
    *function = dlsym(handle, name);
    if (*function) return SGL_OK;
    return sglcore_fail(env, SGL_UNSUPPORTED, "device cuda: %s has no function %s: it is of another version", library,
                        name);
}

sgl_status sglcuda_check(sglcore_env *env, const sglcuda_driver *driver, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS) return SGL_OK;
    const char *name = NULL, *words = NULL;
    const sgl_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? SGL_OUT_OF_MEMORY : SGL_DEVICE;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
    if (driver->cuGetErrorString(result, &words) != CUDA_SUCCESS || !words) words = "the driver has no words for it";
    return sglcore_fail(env, status, "device cuda: %s: %s (%s, %d)", what, words, name, (int)result);
}
