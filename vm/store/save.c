/* save.c -- writes checkpoints: folders DIR/step-NNNNNNNN that are complete or not there.
 *
 * In: tensors by role, or parts of them, and meta. Out: a folder written as .step-NNNNNNNN.partial by one rank or
 * several, synced, read back and compared, then renamed. Whatever fails, and wherever the process is killed, what DIR
 * held before is found and loads; only cleaning up behind a finished checkpoint may fail without failing the save, with
 * a warning. Odd invariant: where a checkpoint of the same step is replaced, the old one is ".replaced" for the moment
 * between two renames, and is found there too. */
#include <errno.h>
#include <string.h>

#include "store/internal.h"

/* ---- the folder's content --------------------------------------------------------------------------------------- */

/* The rows of the sources of one kind, with no hashes yet, and under their entries' names what is written of each. */
typedef struct written {
    sglcore_arena arena;
    sglstore_sheet sheet;
    SGLCORE_VEC(sglstore_source) sources;
    SGLCORE_VEC(sglcore_hash) hashes;
} written;

static sgl_status take_source(sglcore_env *env, const sglstore_source *source, written *w)
{
    sglstore_row row = { .name = source->name, .type = source->type, .is_part = source->box != NULL };
    row.box = source->box ? *source->box : sglstore_box_whole(&source->type);
    SGLCORE_TRY(sglstore_row_name(env, &w->arena, &row));
    SGLCORE_TRY(sglcore_vec_push(env, &w->sheet.rows, row));
    sglstore_source own = *source;
    own.name = row.entry;
    own.type = sglstore_row_type(&row);
    return sglcore_vec_push(env, &w->sources, own);
}

static sgl_status write_file(sglcore_env *env, const char *path, written *w)
{
    sglstore_extent extent = { 0 };
    SGLCORE_TRY(sglcore_vec_reserve(env, &w->hashes, w->sources.count));
    SGLCORE_TRY(sglstore_tensors_write(env, path, w->sources.data, w->sources.count, w->hashes.data, &extent));
    for (int64_t i = 0; i < w->sources.count; i++) sglcore_hash_text(w->hashes.data[i], w->sheet.rows.data[i].hash);
    w->sheet.bytes = extent.bytes;
    sglcore_hash_text(extent.header, w->sheet.header);
    return SGL_OK;
}

/* Reads all of the file back. */
static sgl_status verify_file(sglcore_env *env, const char *folder, const sglstore_sheet *sheet)
{
    sglstore_opened opened;
    char *piece = sglcore_alloc(env, SGLSTORE_PIECE);
    if (piece == NULL) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglstore_file_open(env, folder, sheet, &opened);
    for (int64_t i = 0; i < opened.rows.count && status == SGL_OK; i++) status = sglstore_file_check(&opened, i, piece);
    sglstore_file_close(&opened);
    sglcore_free(env, piece, SGLSTORE_PIECE);
    return status;
}

/* The file of one kind, and its sheet's text. Rank 0 has one of each kind, others where they have something to write. */
static sgl_status write_kind(sglcore_env *env, const char *folder, int kind, int64_t rank,
                             const sglstore_source *sources, int64_t count, sglcore_text *sheets)
{
    sglstore_path path;
    char name[SGLSTORE_FILE_ROOM];
    written w = { .arena = { .env = env }, .sheet = { .kind = kind, .rank = rank } };
    sgl_status status = sglstore_join(env, &path, folder, sglstore_file_name(kind, rank, name));
    for (int64_t i = 0; i < count && status == SGL_OK; i++)
        if (sources[i].role == sglstore_kinds[kind].role) status = take_source(env, &sources[i], &w);
    if (rank == 0 || w.sources.count > 0) {
        if (status == SGL_OK) status = write_file(env, path.text, &w);
        if (status == SGL_OK) status = verify_file(env, folder, &w.sheet);
        if (status == SGL_OK) status = sglstore_sheet_text(env, &w.sheet, sheets);
    }
    sglcore_vec_free(env, &w.hashes);
    sglcore_vec_free(env, &w.sources);
    sglcore_vec_free(env, &w.sheet.rows);
    sglcore_arena_free(&w.arena);
    return status;
}

/* The manifest is read back, and the headers of all files against it; their data were, by who wrote them. */
static sgl_status verify_folder(sglcore_env *env, const char *folder)
{
    sglstore_manifest m;
    SGLCORE_TRY(sglstore_manifest_read(env, folder, &m));
    sgl_status status = SGL_OK;
    for (int64_t s = 0; s < m.sheets.count && status == SGL_OK; s++) {
        sglstore_opened opened;
        status = sglstore_file_open(env, folder, &m.sheets.data[s], &opened);
        sglstore_file_close(&opened);
    }
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

static sgl_status check_roles(sglcore_env *env, const sglstore_source *sources, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (sources[i].role != SGL_PARAMETER && sources[i].role != SGL_STATE)
            return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s: a checkpoint holds parameters and states, not role %d",
                                sources[i].name, sources[i].role);
    return SGL_OK;
}

static sgl_status partial_path(sglcore_env *env, const char *dir, int64_t step, sglstore_path *partial)
{
    return sglstore_folder_path(env, partial, dir, (sglstore_folder){ step, SGLSTORE_PARTIAL });
}

sgl_status sglstore_save_begin(sglcore_env *env, const char *dir, int64_t step, const char *meta)
{
    sglstore_path partial;
    if (step < 0) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "a checkpoint of step %lld", (long long)step);
    SGLCORE_TRY(sglstore_check_meta(env, meta ? meta : "{}"));
    SGLCORE_TRY(sglstore_make_dirs(env, dir));
    SGLCORE_TRY(sweep(env, dir));
    SGLCORE_TRY(partial_path(env, dir, step, &partial));
    return sglstore_make_dirs(env, partial.text);
}

sgl_status sglstore_save_files(sglcore_env *env, const char *dir, int64_t step, int64_t rank,
                               const sglstore_source *sources, int64_t count, sglcore_text *sheets)
{
    sglstore_path partial;
    SGLCORE_TRY(check_roles(env, sources, count));
    SGLCORE_TRY(partial_path(env, dir, step, &partial));
    for (int kind = 0; kind < SGLSTORE_KINDS; kind++)
        SGLCORE_TRY(write_kind(env, partial.text, kind, rank, sources, count, sheets));
    return SGL_OK;
}

sgl_status sglstore_save_end(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                             const sglcore_text *sheets, bool in_parts, int keep)
{
    sglstore_path partial;
    SGLCORE_TRY(partial_path(env, dir, step, &partial));
    SGLCORE_TRY(sglstore_manifest_write(env, partial.text, step, meta ? meta : "{}", sheets, in_parts));
    SGLCORE_TRY(verify_folder(env, partial.text));
    SGLCORE_TRY(put_in_place(env, dir, step, partial.text));
    return keep > 0 ? remove_old(env, dir, step, keep) : SGL_OK;
}

void sglstore_save_abandon(sglcore_env *env, const char *dir, int64_t step)
{
    sglstore_path partial;
    char why[sizeof env->message]; /* the first failure is what the caller must read */
    memcpy(why, env->message, sizeof why);
    if (partial_path(env, dir, step, &partial) == SGL_OK) (void)sglcore_remove_dir(env, partial.text);
    memcpy(env->message, why, sizeof why);
}

sgl_status sglstore_checkpoint_save(sglcore_env *env, const char *dir, int64_t step, const char *meta,
                                    const sglstore_source *sources, int64_t count, int keep)
{
    sglcore_text sheets = { 0 };
    SGLCORE_TRY(check_roles(env, sources, count));
    SGLCORE_TRY(sglstore_save_begin(env, dir, step, meta));
    sgl_status status = sglstore_save_files(env, dir, step, 0, sources, count, &sheets);
    if (status == SGL_OK) status = sglstore_save_end(env, dir, step, meta, &sheets, false, keep);
    if (status != SGL_OK) sglstore_save_abandon(env, dir, step);
    sglcore_text_free(env, &sheets);
    return status;
}
