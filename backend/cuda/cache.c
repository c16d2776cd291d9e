/* cache.c -- one file a cubin: the hash of its bytes, then the bytes. In and out: cache.h.
 *
 * A file is written beside and renamed, and not synced: what a crash leaves of it is no match of its hash, and is compiled
 * anew. Odd invariant: a message that stands in the env stays, whatever goes wrong here. */
#include "backend/cuda/cache.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/io.h"
#include "core/knob.h"

enum { HEAD_BYTES = 32 }; /* the hash as text */

static bool path_of(sglcore_hash key, const char *end, char path[PATH_MAX])
{
    char folder[PATH_MAX], text[33];
    sglcore_hash_text(key, text);
    return sglcore_cache_folder(folder, sizeof folder) &&
           snprintf(path, PATH_MAX, "%s/cuda/%s%s", folder, text, end) < PATH_MAX;
}

static bool read_bytes(sglcore_env *env, int fd, char **data, int64_t *bytes)
{
    const sglcore_io *io = env->io;
    char head[HEAD_BYTES], text[33];
    int64_t size = 0;
    size_t got = 0;
    if (io->size(io->user, fd, &size) != 0 || size <= HEAD_BYTES) return false;
    *bytes = size - HEAD_BYTES;
    *data = sglcore_alloc(env, (size_t)*bytes);
    if (!*data || io->read_at(io->user, fd, head, HEAD_BYTES, 0, &got) != 0 || got != HEAD_BYTES ||
        io->read_at(io->user, fd, *data, (size_t)*bytes, HEAD_BYTES, &got) != 0 || got != (size_t)*bytes)
        return false;
    sglcore_hash_text(sglcore_hash_bytes(*data, (size_t)*bytes), text);
    return memcmp(head, text, HEAD_BYTES) == 0;
}

void sglcuda_cache_read(sglcore_env *env, sglcore_hash key, char **data, int64_t *bytes)
{
    const sglcore_io *io = env->io;
    char path[PATH_MAX];
    int fd;
    *data = NULL;
    *bytes = 0;
    if (!path_of(key, ".cubin", path) || io->open_read(io->user, path, &fd) != 0) return;
    if (!read_bytes(env, fd, data, bytes)) {
        sglcore_free(env, *data, (size_t)*bytes);
        *data = NULL;
        *bytes = 0;
    }
    (void)io->close(io->user, fd);
}

/* The folders above a path, as far as they are not there. */
static void make_folders(sglcore_env *env, char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)env->io->make_dir(env->io->user, path);
        *at = '/';
    }
}

static bool write_bytes(sglcore_env *env, const char *path, const char *data, int64_t bytes)
{
    const sglcore_io *io = env->io;
    char text[33];
    int fd;
    sglcore_hash_text(sglcore_hash_bytes(data, (size_t)bytes), text);
    if (io->open_write(io->user, path, &fd) != 0) return false;
    const bool written =
        io->write(io->user, fd, text, HEAD_BYTES) == 0 && io->write(io->user, fd, data, (size_t)bytes) == 0;
    return io->close(io->user, fd) == 0 && written;
}

void sglcuda_cache_write(sglcore_env *env, sglcore_hash key, const char *data, int64_t bytes)
{
    const sglcore_io *io = env->io;
    char path[PATH_MAX], beside[PATH_MAX], end[32];
    /* Ranks compile the same kernels at the same time. */
    (void)snprintf(end, sizeof end, ".tmp-%ld", (long)getpid());
    if (!path_of(key, ".cubin", path) || !path_of(key, end, beside)) return;
    make_folders(env, beside);
    if (!write_bytes(env, beside, data, bytes) || io->rename(io->user, beside, path) != 0)
        (void)io->remove(io->user, beside);
}
