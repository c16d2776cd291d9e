/* builtin.c -- kernels that were compiled with the module, by name.
 *
 * In: the fatbins of embedded.h. Out: functions; a fatbin is loaded when a name is looked for in it, and a function once found is kept until
 * the device closes. Odd invariant: no two kernels of the module have one name, whatever files they stand in. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/embedded.h"
#include "core/span.h"

struct sglcuda_builtins {
    sglcore_arena arena;
    sglcore_map functions; /* by the hash of a name: the address of an sglcuda_function of the arena */
    CUmodule *modules;     /* as sglcuda_kernels; NULL: not loaded yet */
    int count;
};

sgl_status sglcuda_open_builtins(sglexec_device *device)
{
    struct sglcuda_builtins *b = device->builtins = sglcore_alloc_zero(device->env, sizeof *b);
    if (!b) return SGL_OUT_OF_MEMORY;
    b->arena.env = device->env;
    while (sglcuda_kernels[b->count].name) b->count++;
    b->modules = sglcore_arena_alloc(&b->arena, (size_t)(b->count + 1) * sizeof *b->modules);
    return b->modules ? SGL_OK : SGL_OUT_OF_MEMORY;
}

void sglcuda_close_builtins(sglexec_device *device)
{
    struct sglcuda_builtins *b = device->builtins;
    if (!b) return;
    for (int i = 0; b->modules && i < b->count; i++)
        if (b->modules[i]) (void)device->driver->cuModuleUnload(b->modules[i]);
    sglcore_map_free(device->env, &b->functions);
    sglcore_arena_free(&b->arena);
    sglcore_free(device->env, b, sizeof *b);
    device->builtins = NULL;
}

static sgl_status load(sglexec_device *device, int index)
{
    const sglcuda_driver *driver = device->driver;
    const int64_t begun = sglcore_now_ns();
    SGLCORE_TRY(sglcuda_check(device->env, driver,
                              driver->cuModuleLoadData(&device->builtins->modules[index], sglcuda_kernels[index].bytes),
                              "loading the module's kernels"));
    sglcore_span(device->env, begun, "cuda: loading the kernels %s", sglcuda_kernels[index].name);
    return SGL_OK;
}

static sgl_status find(sglexec_device *device, const char *name, CUfunction *found)
{
    const sglcuda_driver *driver = device->driver;
    struct sglcuda_builtins *b = device->builtins;
    for (int i = 0; i < b->count; i++) {
        if (!b->modules[i]) SGLCORE_TRY(load(device, i));
        const CUresult result = driver->cuModuleGetFunction(found, b->modules[i], name);
        if (result == CUDA_ERROR_NOT_FOUND) continue;
        return sglcuda_check(device->env, driver, result, name);
    }
    return sglcore_fail(device->env, SGL_INTERNAL, "device cuda: the module has no kernel %s", name);
}

sgl_status sglcuda_builtin_of(sglexec_device *device, const char *name, const sglcuda_function **function)
{
    struct sglcuda_builtins *b = device->builtins;
    const sglcore_hash key = sglcore_hash_bytes(name, strlen(name));
    uint64_t at;
    if (!sglcore_map_get(&b->functions, key, &at)) {
        sglcuda_function *made = sglcore_arena_alloc(&b->arena, sizeof *made);
        if (!made) return SGL_OUT_OF_MEMORY;
        SGLCORE_TRY(find(device, name, &made->handle));
        at = (uint64_t)(uintptr_t)made;
        SGLCORE_TRY(sglcore_map_put(device->env, &b->functions, key, at));
    }
    *function = (const sglcuda_function *)(uintptr_t)at;
    return SGL_OK;
}

sgl_status sglcuda_builtin(sglcuda_prepare *p, const char *name, const sglcuda_function **function)
{
    return sglcuda_builtin_of(p->device, name, function);
}
