/* claim.c -- a run's claim on its folder of checkpoints: no other run writes there, and no checkpoint of a branch that it left
 * is taken for its own.
 *
 * In: the folder, the step that the run goes on from. Out: a lock that ends with its holder, however that ends; later
 * checkpoints renamed to step-NNNNNNNN.aside (.aside.2, ... where that is taken). Odd invariant: what is set aside bears no
 * name of folder.c's: it is never found unasked, never counted among those to keep, never swept away. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

sgl_status sglstore_lock(sglcore_env *env, const char *dir, int *fd)
{
    sglstore_path path;
    *fd = -1;
    SGLCORE_TRY(sglstore_make_dirs(env, dir));
    SGLCORE_TRY(sglstore_join(env, &path, dir, ".lock"));
    int lock;
    if (env->io->lock(env->io->user, path.text, &lock) == 0) {
        *fd = lock;
        return SGL_OK;
    }
    if (errno == EWOULDBLOCK)
        return sglcore_fail(
            env, SGL_WRONG_STATE,
            "%s: another run writes its checkpoints there (it holds %s); wait until it has ended, or name "
            "another folder",
            dir, path.text);
    if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS) return sglcore_fail_io(env, "lock", path.text);
    sglcore_log(env, SGL_LOG_WARNING, "%s: its file system has no locks: nothing keeps another run out of it", dir);
    return SGL_OK;
}

void sglstore_unlock(sglcore_env *env, int fd)
{
    if (fd >= 0) (void)env->io->close(env->io->user, fd); /* nothing was written through it */
}

static sgl_status set_aside(sglcore_env *env, const char *dir, sglstore_folder folder, int64_t step)
{
    enum { MOST = 1000 };
    sglstore_path from, to;
    SGLCORE_TRY(sglstore_folder_path(env, &from, dir, folder));
    for (int n = 1; n <= MOST; n++) {
        int length = n == 1 ? snprintf(to.text, sizeof to.text, "%s.aside", from.text)
                            : snprintf(to.text, sizeof to.text, "%s.aside.%d", from.text, n);
        if (length < 0 || (size_t)length >= sizeof to.text) break;
        if (env->io->rename(env->io->user, from.text, to.text) == 0) {
            sglcore_log(env, SGL_LOG_WARNING,
                        "%s: the run goes on from step %lld and leaves this one: it is kept as %s", from.text,
                        (long long)step, to.text);
            return SGL_OK;
        }
        if (errno != ENOTEMPTY && errno != EEXIST) return sglcore_fail_io(env, "rename", from.text);
    }
    return sglcore_fail(env, SGL_IO, "%s: there is no name to set it aside by", from.text);
}

sgl_status sglstore_set_aside(sglcore_env *env, const char *dir, int64_t step)
{
    sglstore_folders folders;
    bool moved = false;
    sgl_status status = sglstore_list_folders(env, dir, &folders);
    for (int64_t i = 0; i < folders.list.count && status == SGL_OK; i++) {
        sglstore_folder folder = folders.list.data[i];
        if (folder.step <= step || folder.suffix == SGLSTORE_PARTIAL) continue;
        status = set_aside(env, dir, folder, step);
        moved = true;
    }
    if (status == SGL_OK && moved && env->io->sync_dir(env->io->user, dir) != 0)
        status = sglcore_fail_io(env, "sync", dir);
    sglcore_vec_free(env, &folders.list);
    return status;
}
