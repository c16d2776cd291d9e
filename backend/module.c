/* module.c -- the device `cuda`: a backend that is a module, libsgl_cuda.so.
 *
 * Comes in: nothing, until it is asked for. Goes out: the module's table of functions, or what is missing. Odd invariant:
 * the module and the library share graphs, programs and the env as they are, so one of another build is refused before any
 * function of it is called. */
#include <string.h>

#include "backend/backend.h"
#include "core/module.h"

static const sglcore_module cuda = {
    .what = "device cuda",
    .file = "libsgl_cuda.so",
    .built = "the CUDA toolkit is (nvcc)",
    .symbol = SGLBACKEND_SYMBOL,
};

sgl_status sglbackend_cuda(sglcore_env *env, const sglexec_device_ops **ops)
{
    char path[SGLCORE_MODULE_ROOM];
    const void *found;
    SGLCORE_TRY(sglcore_module_open(env, &cuda, path, &found));
    const sglbackend_module *module = found;
    if (strcmp(module->identity, sglcore_build_identity) != 0) return sglcore_module_foreign(env, &cuda, path);
    *ops = module->ops;
    return SGL_OK;
}
