/* checkpoint.c -- finds checkpoints. (save.c writes them, load.c loads them; manifest.c and part.c read what is in them.)
 *
 * In: a folder of checkpoints, or one of them. Out: path, meta and step of the last complete one. Odd invariant: a folder
 * that is not complete never had the final name; what is found incomplete or changed became so later. */
#include <string.h>

#include "store/internal.h"

static char *copy_text(sglcore_env *env, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sglcore_alloc(env, bytes);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

static sgl_status hand_out(sglcore_env *env, const sglstore_manifest *m, const char *folder, char **path, char **meta,
                           int64_t *step)
{
    *step = m->step;
    *path = copy_text(env, folder);
    *meta = *path != NULL ? copy_text(env, m->meta.data) : NULL;
    if (*meta != NULL) return SGL_OK;
    if (*path != NULL) sglcore_free(env, *path, strlen(*path) + 1);
    *path = NULL;
    return SGL_OUT_OF_MEMORY;
}

/* Takes path, meta and step of the folder when its manifest and the headers of its files agree. The data are not read.
 * NOT_FOUND: it has no manifest. */
static sgl_status take_folder(sglcore_env *env, const char *folder, char **path, char **meta, int64_t *step)
{
    sglstore_manifest m;
    SGLCORE_TRY(sglstore_manifest_read(env, folder, &m));
    sgl_status status = SGL_OK;
    for (int64_t s = 0; s < m.sheets.count && status == SGL_OK; s++) {
        sglstore_opened opened;
        status = sglstore_file_open(env, folder, &m.sheets.data[s], &opened);
        sglstore_file_close(&opened);
    }
    if (status == SGL_OK) status = hand_out(env, &m, folder, path, meta, step);
    sglstore_manifest_free(&m);
    return status;
}

/* Tries the folders, the newest first. One without a manifest is half-written and passed over; one that has it and does not
 * agree with it is damaged, and an older one is not taken in its place. */
static sgl_status take_newest(sglcore_env *env, const char *dir, const sglstore_folders *folders, char **path,
                              char **meta, int64_t *step)
{
    char newest[sizeof env->message] = "";
    for (int64_t i = 0; i < folders->list.count; i++) {
        sglstore_path folder;
        if (folders->list.data[i].suffix == SGLSTORE_PARTIAL) continue;
        SGLCORE_TRY(sglstore_folder_path(env, &folder, dir, folders->list.data[i]));
        sgl_status status = take_folder(env, folder.text, path, meta, step);
        if (status != SGL_NOT_FOUND) return status;
        sglcore_log(env, SGL_LOG_WARNING, "%s; an older checkpoint is looked for", env->message);
        if (newest[0] == 0) memcpy(newest, env->message, sizeof newest);
    }
    if (newest[0] == 0)
        return sglcore_fail(env, SGL_NOT_FOUND, "%s: there is no checkpoint in it (no manifest.json, no folder step-*)",
                            dir);
    return sglcore_fail(env, SGL_CORRUPT, "%s; %s holds no complete checkpoint", newest, dir);
}

sgl_status sglstore_checkpoint_find(sglcore_env *env, const char *dir, char **path, char **meta, int64_t *step)
{
    *path = *meta = NULL;
    if (dir[0] == 0) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "the folder of the checkpoints has no name");
    sgl_status status = take_folder(env, dir, path, meta, step);
    if (status != SGL_NOT_FOUND) return status; /* it is a checkpoint, sound or not */
    sglstore_folders folders;
    status = sglstore_list_folders(env, dir, &folders);
    if (status == SGL_OK) status = take_newest(env, dir, &folders, path, meta, step);
    sglcore_vec_free(env, &folders.list);
    return status;
}
