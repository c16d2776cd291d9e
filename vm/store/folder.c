/* folder.c -- the folders of checkpoints in DIR: their names, their list, their paths.
 *
 * In: a folder and steps. Out: names and paths, and what is there, the newest step first. Odd invariant: only names that
 * this file would make itself are read as its own; "step-5" or "step-best" is somebody else's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

static const struct {
    const char *before, *after;
} suffixes[SGLSTORE_SUFFIXES] = {
    [SGLSTORE_FINAL] = { "step-", "" },
    [SGLSTORE_PARTIAL] = { ".step-", ".partial" },
    [SGLSTORE_REPLACED] = { ".step-", ".replaced" },
};

enum { NAME_MOST = 48 };

static void make_name(sglstore_folder folder, char name[NAME_MOST])
{
    snprintf(name, NAME_MOST, "%s%08lld%s", suffixes[folder.suffix].before, (long long)folder.step,
             suffixes[folder.suffix].after);
}

static bool read_name(const char *name, sglstore_folder *folder)
{
    char again[NAME_MOST];
    const char *digits = strpbrk(name, "0123456789");
    if (digits == NULL || strlen(name) >= NAME_MOST) return false;
    folder->step = 0;
    for (; *digits >= '0' && *digits <= '9'; digits++) {
        int digit = *digits - '0';
        if (folder->step > (INT64_MAX - digit) / 10) return false;
        folder->step = folder->step * 10 + digit;
    }
    for (int i = 0; i < SGLSTORE_SUFFIXES; i++) {
        folder->suffix = (sglstore_suffix)i;
        make_name(*folder, again);
        if (strcmp(again, name) == 0) return true;
    }
    return false;
}

static int add_folder(void *context, const char *name)
{
    sglstore_folders *folders = context;
    sglstore_folder folder;
    if (!read_name(name, &folder)) return 0;
    folders->status = sglcore_vec_push(folders->env, &folders->list, folder);
    return folders->status == SGL_OK ? 0 : -1;
}

static int newest_first(const void *a, const void *b)
{
    const sglstore_folder *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return (int)x->suffix - (int)y->suffix;
}

sgl_status sglstore_list_folders(sglcore_env *env, const char *dir, sglstore_folders *folders)
{
    *folders = (sglstore_folders){ .env = env, .status = SGL_OK };
    if (env->io->list(env->io->user, dir, add_folder, folders) != 0)
        return folders->status != SGL_OK ? folders->status : sglcore_fail_io(env, "list", dir);
    if (folders->list.count > 0)
        qsort(folders->list.data, (size_t)folders->list.count, sizeof(sglstore_folder), newest_first);
    return SGL_OK;
}

sgl_status sglstore_join(sglcore_env *env, sglstore_path *path, const char *dir, const char *name)
{
    int length = snprintf(path->text, sizeof path->text, "%s/%s", dir, name);
    if (length >= 0 && (size_t)length < sizeof path->text) return SGL_OK;
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%.200s.../%s: the path is longer than %zu bytes", dir, name,
                        sizeof path->text - 1);
}

sgl_status sglstore_folder_path(sglcore_env *env, sglstore_path *path, const char *dir, sglstore_folder folder)
{
    char name[NAME_MOST];
    make_name(folder, name);
    return sglstore_join(env, path, dir, name);
}
