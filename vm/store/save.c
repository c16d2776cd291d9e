/* save.c -- writes checkpoints: folders DIR/step-NNNNNNNN that are complete or not there.
 *
 * In: tensors by role, and meta. Out: a folder written as .step-NNNNNNNN.partial, synced, read back and compared, then
 * renamed. Whatever fails, and wherever the process is killed, what DIR held before is found and loads; only cleaning up
 * behind a finished checkpoint may fail without failing the save, with a warning. Odd invariant: where a checkpoint of the
 * same step is replaced, the old one is ".replaced" for the moment between two renames, and is found there too. */
#include <errno.h>
#include <string.h>

#include "store/internal.h"

/* ---- the folder's content --------------------------------------------------------------------------------------- */

static sgl_status take_rows(sglcore_env *env, const sglstore_source *sources, int64_t count, const sglcore_hash *hashes,
                            sglstore_sheet *sheet)
{
    SGLCORE_TRY(sglcore_vec_reserve(env, &sheet->rows, count));
    for (int64_t i = 0; i < count; i++) {
        sglstore_row row = { .name = sources[i].name, .type = sources[i].type };
        sglcore_hash_text(hashes[i], row.hash);
        sheet->rows.data[sheet->rows.count++] = row;
    }
    return SGL_OK;
}

/* Writes the sources of one role and notes in the manifest what was written. */
static sgl_status write_part(sglcore_env *env, const char *folder, int part, const sglstore_source *sources,
                             int64_t count, sglstore_sheet *sheet)
{
    SGLCORE_VEC(sglstore_source) own = { 0 };
    SGLCORE_VEC(sglcore_hash) hashes = { 0 };
    sglstore_path path;
    sglstore_extent extent = { 0 };
    sgl_status status = sglstore_join(env, &path, folder, sglstore_parts[part].file);
    for (int64_t i = 0; i < count && status == SGL_OK; i++)
        if (sources[i].role == sglstore_parts[part].role) status = sglcore_vec_push(env, &own, sources[i]);
    if (status == SGL_OK) status = sglcore_vec_reserve(env, &hashes, own.count);
    if (status == SGL_OK) status = sglstore_tensors_write(env, path.text, own.data, own.count, hashes.data, &extent);
    if (status == SGL_OK) status = take_rows(env, own.data, own.count, hashes.data, sheet);
    if (status == SGL_OK) {
        sheet->bytes = extent.bytes;
        sglcore_hash_text(extent.header, sheet->header);
    }
    sglcore_vec_free(env, &hashes);
    sglcore_vec_free(env, &own);
    return status;
}

static sgl_status write_folder(sglcore_env *env, const char *folder, int64_t step, const char *meta,
                               const sglstore_source *sources, int64_t count)
{
    sglstore_manifest m = { .env = env, .arena = { .env = env }, .step = step };
    sgl_status status = sglcore_text_bytes(env, &m.meta, meta, strlen(meta));
    for (int part = 0; part < SGLSTORE_PARTS && status == SGL_OK; part++)
        status = write_part(env, folder, part, sources, count, &m.sheets[part]);
    if (status == SGL_OK) status = sglstore_manifest_write(&m, folder);
    sglstore_manifest_free(&m);
    return status;
}

/* Reads all of it back. */
static sgl_status verify_folder(sglcore_env *env, const char *folder)
{
    sglstore_manifest m;
    SGLCORE_TRY(sglstore_manifest_read(env, folder, &m));
    char *piece = sglcore_alloc(env, SGLSTORE_PIECE);
    sgl_status status = piece != NULL ? SGL_OK : SGL_OUT_OF_MEMORY;
    for (int part = 0; part < SGLSTORE_PARTS && status == SGL_OK; part++) {
        sglstore_opened opened;
        status = sglstore_part_open(&m, folder, part, &opened);
        if (status == SGL_OK) status = sglstore_part_check(&m, folder, part, &opened, piece);
        sglstore_part_close(env, &opened);
    }
    sglcore_free(env, piece, SGLSTORE_PIECE);
    sglstore_manifest_free(&m);
    return status;
}

/* ---- the folder's place ----------------------------------------------------------------------------------------- */

static sgl_status rename_folder(sglcore_env *env, const char *from, const char *to)
{
    return env->io->rename(env->io->user, from, to) == 0 ? SGL_OK : sglcore_fail_io(env, "rename", from);
}

/* Takes a complete folder away: first its name, so that it is never seen half-removed. */
static sgl_status remove_complete(sglcore_env *env, const char *dir, sglstore_folder folder)
{
    sglstore_path from, to;
    SGLCORE_TRY(sglstore_folder_path(env, &from, dir, folder));
    SGLCORE_TRY(sglstore_folder_path(env, &to, dir, (sglstore_folder){ folder.step, SGLSTORE_PARTIAL }));
    SGLCORE_TRY(rename_folder(env, from.text, to.text));
    return sglcore_remove_dir(env, to.text);
}

/* What could not be cleaned up is no reason to lose a checkpoint. */
static sgl_status only_warn(sglcore_env *env, sgl_status status)
{
    if (status == SGL_OK || status == SGL_OUT_OF_MEMORY) return status;
    sglcore_log(env, SGL_LOG_WARNING, "%s; this leftover stays", env->message);
    return SGL_OK;
}

/* What a killed process left: a folder half written or half removed goes, one that was to be replaced comes back unless
 * the new one took its place. */
static sgl_status sweep_one(sglcore_env *env, const char *dir, const sglstore_folders *all, sglstore_folder folder)
{
    sglstore_path from, to;
    SGLCORE_TRY(sglstore_folder_path(env, &from, dir, folder));
    if (folder.suffix == SGLSTORE_PARTIAL) return sglcore_remove_dir(env, from.text);
    if (folder.suffix != SGLSTORE_REPLACED) return SGL_OK;
    for (int64_t i = 0; i < all->list.count; i++)
        if (all->list.data[i].step == folder.step && all->list.data[i].suffix == SGLSTORE_FINAL)
            return remove_complete(env, dir, folder);
    SGLCORE_TRY(sglstore_folder_path(env, &to, dir, (sglstore_folder){ folder.step, SGLSTORE_FINAL }));
    return rename_folder(env, from.text, to.text);
}

static sgl_status sweep(sglcore_env *env, const char *dir)
{
    sglstore_folders folders;
    sgl_status status = sglstore_list_folders(env, dir, &folders);
    for (int64_t i = 0; i < folders.list.count && status == SGL_OK; i++)
        status = only_warn(env, sweep_one(env, dir, &folders, folders.list.data[i]));
    sglcore_vec_free(env, &folders.list);
    return status;
}

/* The last `keep` stay, and among them, whatever its number, the one that was just saved. */
static sgl_status remove_old(sglcore_env *env, const char *dir, int64_t saved, int keep)
{
    sglstore_folders folders;
    sgl_status status = sglstore_list_folders(env, dir, &folders);
    int64_t kept = 1;
    for (int64_t i = 0; i < folders.list.count && status == SGL_OK; i++) {
        sglstore_folder folder = folders.list.data[i];
        if (folder.suffix != SGLSTORE_FINAL || folder.step == saved || kept++ < keep) continue;
        status = only_warn(env, remove_complete(env, dir, folder));
    }
    sglcore_vec_free(env, &folders.list);
    return only_warn(env, status);
}

sgl_status sglstore_make_dirs(sglcore_env *env, const char *dir)
{
    sglstore_path path;
    size_t length = strlen(dir);
    if (length == 0) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "the folder of the checkpoints has no name");
    if (length >= sizeof path.text)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%.200s...: the path is too long", dir);
    memcpy(path.text, dir, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (dir[i] != '/' && dir[i] != 0) continue;
        path.text[i] = 0;
        if (env->io->make_dir(env->io->user, path.text) != 0) return sglcore_fail_io(env, "make the folder", path.text);
        path.text[i] = dir[i];
    }
    return SGL_OK;
}

/* The name is taken: its folder steps aside, and comes back when the new one cannot have its place. */
static sgl_status replace(sglcore_env *env, const char *dir, int64_t step, const char *partial, const char *final)
{
    sglstore_path aside;
    SGLCORE_TRY(sglstore_folder_path(env, &aside, dir, (sglstore_folder){ step, SGLSTORE_REPLACED }));
    SGLCORE_TRY(rename_folder(env, final, aside.text));
    sgl_status status = rename_folder(env, partial, final);
    if (status != SGL_OK) (void)env->io->rename(env->io->user, aside.text, final); /* where it lies it is found too */
    return status;
}

static sgl_status put_in_place(sglcore_env *env, const char *dir, int64_t step, const char *partial)
{
    sglstore_path final;
    SGLCORE_TRY(sglstore_folder_path(env, &final, dir, (sglstore_folder){ step, SGLSTORE_FINAL }));
    bool replaced = false;
    if (env->io->rename(env->io->user, partial, final.text) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST) return sglcore_fail_io(env, "rename", partial);
        SGLCORE_TRY(replace(env, dir, step, partial, final.text));
        replaced = true;
    }
    if (env->io->sync_dir(env->io->user, dir) != 0) return sglcore_fail_io(env, "sync", dir);
    if (!replaced) return SGL_OK;
    return only_warn(env, remove_complete(env, dir, (sglstore_folder){ step, SGLSTORE_REPLACED }));
}

/* ---- saving ----------------------------------------------------------------------------------------------------- */

static sgl_status check_arguments(sglcore_env *env, int64_t step, const char *meta, const sglstore_source *sources,
                                  int64_t count)
{
    if (step < 0) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "a checkpoint of step %lld", (long long)step);
    for (int64_t i = 0; i < count; i++)
        if (sources[i].role != SGL_PARAMETER && sources[i].role != SGL_STATE)
            return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s: a checkpoint holds parameters and states, not role %d",
                                sources[i].name, sources[i].role);
    return sglstore_check_meta(env, meta);
}

static sgl_status save_beside(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                              const sglstore_source *sources, int64_t count)
{
    sglstore_path partial;
    SGLCORE_TRY(sglstore_folder_path(env, &partial, dir, (sglstore_folder){ step, SGLSTORE_PARTIAL }));
    SGLCORE_TRY(sglstore_make_dirs(env, partial.text));
    sgl_status status = write_folder(env, partial.text, step, meta, sources, count);
    if (status == SGL_OK) status = verify_folder(env, partial.text);
    if (status == SGL_OK) status = put_in_place(env, dir, step, partial.text);
    if (status == SGL_OK) return SGL_OK;
    char why[sizeof env->message]; /* the first failure is what the caller must read */
    memcpy(why, env->message, sizeof why);
    (void)sglcore_remove_dir(env, partial.text);
    memcpy(env->message, why, sizeof why);
    return status;
}

sgl_status sglstore_checkpoint_save(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                                    const sglstore_source *sources, int64_t count, int keep)
{
    const char *text = meta != NULL ? meta : "{}";
    SGLCORE_TRY(check_arguments(env, step, text, sources, count));
    SGLCORE_TRY(sglstore_make_dirs(env, dir));
    SGLCORE_TRY(sweep(env, dir));
    SGLCORE_TRY(save_beside(env, dir, step, text, sources, count));
    return keep > 0 ? remove_old(env, dir, step, keep) : SGL_OK;
}
