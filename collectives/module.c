/* module.c -- the transport `mpi`: the engine of this room over a link that is a module, libsgl_mpi.so.
 *
 * Comes in: nothing, until it is asked for; then the module is looked for in SGL_MODULES, beside the library, in the
 * folder above it, and where libraries are installed beside bin/. Goes out: sglexec_comm_mpi. So a build with MPI runs
 * where there is none, and says then what is missing. Odd invariant: a module once opened stays: MPI's plugins do not
 * survive being unloaded. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine.h"
#include "core/knob.h"

#define MODULE "libsgl_mpi.so"

/* The folder of libsgl.so, or of the program that holds the library. */
static bool own_folder(char folder[PATH_MAX])
{
    static const char mark;
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&mark, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map) return false;
    if (map->l_name[0] != '\0') return dlinfo(map, RTLD_DI_ORIGIN, folder) == 0;
    /* The program itself has no name here. */
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0) return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

static bool find_module(char path[PATH_MAX])
{
    static const char *const places[] = { "", "/..", ("/../" SGL_MODULE_FOLDER) };
    char folder[PATH_MAX];
    const char *asked = sglcore_knob_text(SGLCORE_KNOB_MODULES);
    if (asked[0] != '\0') return snprintf(path, PATH_MAX, "%s/" MODULE, asked) < PATH_MAX;
    if (!own_folder(folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (snprintf(path, PATH_MAX, "%s%s/" MODULE, folder, places[i]) < PATH_MAX && access(path, R_OK) == 0)
            return true;
    return false;
}

static sgl_status open_module(sglcore_env *env, char path[PATH_MAX], const sglcomm_link_ops **ops)
{
    if (!find_module(path))
        return sglcore_fail(env, SGL_NOT_FOUND,
                            "transport mpi: there is no " MODULE " beside the library: it is built where MPI's "
                            "headers are (`scripts/deps mpi`, then build again), and SGL_MODULES names its folder");
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!module) return sglcore_fail(env, SGL_UNSUPPORTED, "transport mpi: %s", dlerror());
    *ops = dlsym(module, SGLCOMM_LINK_SYMBOL);
    if (!*ops || (*ops)->version != SGLCOMM_LINK_VERSION)
        return sglcore_fail(env, SGL_UNSUPPORTED, "transport mpi: %s is of another build of sgl", path);
    return SGL_OK;
}

static sgl_status mpi_about(sglcore_env *env, sglcore_text *text)
{
    const sglcomm_link_ops *ops;
    char path[PATH_MAX], about[256];
    if (open_module(env, path, &ops) != SGL_OK)
        return sglcore_text_add(env, text, "  cannot be opened: %s\n", env->message);
    ops->about(about, sizeof about);
    return sglcore_text_add(env, text, "  %s, %s\n", about, path);
}

static sgl_status mpi_open(sglcore_env *env, const sglexec_comm_options *options, sglexec_comm **comm)
{
    const sglcomm_link_ops *ops;
    char path[PATH_MAX];
    *comm = NULL;
    SGLCORE_TRY(open_module(env, path, &ops));
    return sglcomm_open(env, options, ops, comm);
}

const sglexec_comm_ops sglexec_comm_mpi = {
    .name = "mpi",
    .about = mpi_about,
    .open = mpi_open,
    SGLCOMM_ENGINE_CALLS,
};
