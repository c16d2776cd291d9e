/* paths.c -- which files the paths of a host name: "train.bin", or "shards/train_*.bin" for all that match.
 *
 * Comes in: paths. Goes out: a list of files. Odd invariant: a file whose own name has a wildcard in it is that file; and
 * matches stand in the order of their names, byte by byte, on every machine, since their order decides what is held out. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "core/io.h"
#include "store/tokens.h"

typedef struct match {
    sglcore_env *env;
    sglstore_paths *paths;
    const char *pattern;
    size_t folder; /* bytes of the path before the pattern */
    sgl_status status;
} match;

static int add_match(void *context, const char *name)
{
    match *m = context;
    size_t length = strlen(name);
    if (fnmatch(m->pattern + m->folder, name, FNM_PERIOD) != 0) return 0;
    char *path = sglcore_arena_alloc(&m->paths->arena, m->folder + length + 1);
    m->status = path ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (!path) return -1;
    memcpy(path, m->pattern, m->folder);
    memcpy(path + m->folder, name, length + 1);
    m->status = sglcore_vec_push(m->env, &m->paths->list, path);
    return m->status == SGL_OK ? 0 : -1;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static sgl_status list_matches(sglcore_env *env, const char *pattern, sglstore_paths *paths)
{
    const char *slash = strrchr(pattern, '/');
    match m = { env, paths, pattern, slash ? (size_t)(slash - pattern) + 1 : 0, SGL_OK };
    const char *folder = m.folder ? sglcore_arena_string(&paths->arena, pattern, m.folder) : ".";
    int64_t before = paths->list.count;
    if (!folder) return SGL_OUT_OF_MEMORY;
    if (env->io->list(env->io->user, folder, add_match, &m) != 0)
        return m.status != SGL_OK ? m.status : sglcore_fail_io(env, "list", folder);
    if (paths->list.count == before)
        return sglcore_fail(env, SGL_NOT_FOUND, "%s: no file in %s has a name of this pattern", pattern, folder);
    qsort(paths->list.data + before, (size_t)(paths->list.count - before), sizeof *paths->list.data, by_name);
    return SGL_OK;
}

static bool is_file(sglcore_env *env, const char *path)
{
    int fd;
    if (env->io->open_read(env->io->user, path, &fd) != 0) return false;
    (void)env->io->close(env->io->user, fd); /* nothing was written through it */
    return true;
}

sgl_status sglstore_paths_list(sglcore_env *env, const char *const *named, int count, sglstore_paths *paths)
{
    *paths = (sglstore_paths){ .arena = { .env = env } };
    for (int i = 0; i < count; i++) {
        if (!named[i] || !*named[i])
            return sglcore_fail(env, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
        const char *slash = strrchr(named[i], '/');
        if (!strpbrk(slash ? slash : named[i], "*?[") || is_file(env, named[i]))
            SGLCORE_TRY(sglcore_vec_push(env, &paths->list, named[i]));
        else
            SGLCORE_TRY(list_matches(env, named[i], paths));
    }
    return SGL_OK;
}

void sglstore_paths_free(sglstore_paths *paths)
{
    sglcore_vec_free(paths->arena.env, &paths->list);
    sglcore_arena_free(&paths->arena);
}
