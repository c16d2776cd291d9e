/* command_folder.c -- the folder of a run's checkpoints. See command_folder.h. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsl/command_folder.h"

sgl_status command_folder_name(sgl_vm *vm, const char *script, const char *asked, char out[COMMAND_PATH_ROOM])
{
    const char *base = strrchr(script, '/');
    base = base ? base + 1 : script;
    const char *dot = strrchr(base, '.');
    int length = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    int bytes = asked ? snprintf(out, COMMAND_PATH_ROOM, "%s", asked)
                      : snprintf(out, COMMAND_PATH_ROOM, "%.*s.run", length, base);
    enum { BELOW = 96, MOST = COMMAND_PATH_ROOM - 1 - BELOW }; /* for the names of what is written in the folder */
    if (bytes >= 0 && bytes <= MOST) return SGL_OK;
    return sgl_fail(vm, SGL_LIMIT, "--out: a path of %d bytes is too long, %d are the most", bytes, (int)MOST);
}

sgl_status command_folder_free(sgl_vm *vm, const char *out)
{
    const char *path, *meta;
    int64_t step = 0;
    sgl_status status = sgl_checkpoint_find(vm, out, &path, &meta, &step);
    if (status != SGL_OK) return status == SGL_NOT_FOUND ? SGL_OK : status;
    return sgl_fail(vm, SGL_WRONG_STATE,
                    "%s holds a run already (step %lld): --resume goes on with it, --out names another folder", out,
                    (long long)step);
}

bool command_folder_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

sgl_status command_folder_make(sgl_vm *vm, const char *out)
{
    char path[COMMAND_PATH_ROOM];
    struct stat info;
    for (size_t i = 1; i <= strlen(out); i++) {
        if (out[i] != '/' && out[i]) continue;
        snprintf(path, sizeof path, "%.*s", (int)i, out);
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return sgl_fail(vm, SGL_IO, "--out %s: the folder %s cannot be made: %s", out, path, strerror(errno));
    }
    if (stat(out, &info) != 0 || access(out, W_OK | X_OK) != 0)
        return sgl_fail(vm, SGL_IO, "--out %s: the folder cannot be written: %s", out, strerror(errno));
    return S_ISDIR(info.st_mode) ? SGL_OK : sgl_fail(vm, SGL_IO, "--out %s: it is no folder", out);
}
