/* module.c -- finds and opens a module beside the library. In and out: module.h.
 *
 * Odd invariant: the library looks for itself by the address of one of its own bytes, since it may be libsgl.so, or stand
 * in the program. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/knob.h"
#include "core/module.h"

_Static_assert(SGLCORE_MODULE_ROOM >= PATH_MAX, "any path fits");

/* The folder of libsgl.so, or of the program that holds the library. */
static bool own_folder(char folder[SGLCORE_MODULE_ROOM])
{
    static const char mark;
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&mark, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || !map) return false;
    if (map->l_name[0] != '\0') return dlinfo(map, RTLD_DI_ORIGIN, folder) == 0;
    /* The program itself has no name here. */
    const ssize_t length = readlink("/proc/self/exe", folder, SGLCORE_MODULE_ROOM - 1);
    if (length <= 0) return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

static bool find_module(const char *file, char path[SGLCORE_MODULE_ROOM])
{
    static const char *const places[] = { "", "/..", ("/../" SGL_MODULE_FOLDER) };
    char folder[SGLCORE_MODULE_ROOM];
    const char *asked = sglcore_knob_text(SGLCORE_KNOB_MODULES);
    if (asked[0] != '\0') return snprintf(path, SGLCORE_MODULE_ROOM, "%s/%s", asked, file) < SGLCORE_MODULE_ROOM;
    if (!own_folder(folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (snprintf(path, SGLCORE_MODULE_ROOM, "%s%s/%s", folder, places[i], file) < SGLCORE_MODULE_ROOM &&
            access(path, R_OK) == 0)
            return true;
    return false;
}

sgl_status sglcore_module_open(sglcore_env *env, const sglcore_module *module, char path[SGLCORE_MODULE_ROOM],
                               const void **found)
{
    *found = NULL;
    if (!find_module(module->file, path))
        return sglcore_fail(env, SGL_NOT_FOUND,
                            "%s: there is no %s beside the library: it is built where %s, and SGL_MODULES names its "
                            "folder",
                            module->what, module->file, module->built);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) return sglcore_fail(env, SGL_UNSUPPORTED, "%s: %s", module->what, dlerror());
    *found = dlsym(handle, module->symbol);
    return *found ? SGL_OK : sglcore_module_foreign(env, module, path);
}

sgl_status sglcore_module_foreign(sglcore_env *env, const sglcore_module *module, const char *path)
{
    return sglcore_fail(env, SGL_UNSUPPORTED, "%s: %s is of another build of sgl", module->what, path);
}
