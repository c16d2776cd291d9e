/* part.c -- one safetensors file of a checkpoint, read back: held against the manifest, matched with targets, loaded.
 *
 * In: the manifest's rows, the file, and perhaps targets. Out: OK only when every entry has its row (and its target) of
 * the same type, every row its entry, and sizes and hashes agree. Errors name folder, file and entry. */
#include <string.h>

#include "store/internal.h"

static bool same_type(const sgl_type *a, const sgl_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* ---- against the manifest --------------------------------------------------------------------------------------- */

/* The entry of the row, if it is there, and of the same type. */
static sgl_status match_row(sglcore_env *env, const sglstore_row *row, sglstore_opened *opened, bool *found)
{
    sgl_type type;
    int64_t index;
    char a[SGL_TYPE_ROOM], b[SGL_TYPE_ROOM];
    SGLCORE_TRY(sglstore_tensors_find(opened->file, row->name, &index));
    *found = index >= 0;
    if (index < 0) return SGL_OK;
    if (opened->rows.data[index] != NULL)
        return sglcore_fail(env, SGL_CORRUPT, "%s: the manifest has the entry twice", row->name);
    sglstore_tensors_entry(opened->file, index, &type, NULL, NULL);
    if (!same_type(&type, &row->type))
        return sglcore_fail(env, SGL_CORRUPT, "%s: the file has %s, saved was %s", row->name,
                            sgl_type_text(&type, a, sizeof a), sgl_type_text(&row->type, b, sizeof b));
    opened->rows.data[index] = row;
    return SGL_OK;
}

/* A renamed entry is both: one is missing, and one is there that was not saved. */
static sgl_status match_rows(sglcore_env *env, const sglstore_sheet *sheet, sglstore_opened *opened)
{
    const char *missing = NULL, *extra = NULL;
    int64_t count = sglstore_tensors_count(opened->file);
    SGLCORE_TRY(sglcore_vec_reserve(env, &opened->rows, count));
    for (int64_t i = 0; i < count; i++) opened->rows.data[i] = NULL;
    opened->rows.count = count;
    for (int64_t i = 0; i < sheet->rows.count; i++) {
        bool found;
        SGLCORE_TRY(match_row(env, &sheet->rows.data[i], opened, &found));
        if (!found && missing == NULL) missing = sheet->rows.data[i].name;
    }
    for (int64_t i = 0; i < count && extra == NULL; i++)
        if (opened->rows.data[i] == NULL) extra = sglstore_tensors_entry(opened->file, i, NULL, NULL, NULL);
    if (missing == NULL && extra == NULL) return SGL_OK;
    return sglcore_fail(env, SGL_CORRUPT, "%s%s%s%s%s", missing ? missing : "",
                        missing ? " was saved and is missing" : "", missing && extra ? "; " : "", extra ? extra : "",
                        extra ? " is there and was not saved" : "");
}

static sgl_status match_sheet(sglcore_env *env, const sglstore_sheet *sheet, sglstore_opened *opened)
{
    char header[33];
    SGLCORE_TRY(match_rows(env, sheet, opened));
    sglstore_extent extent = sglstore_tensors_extent(opened->file);
    sglcore_hash_text(extent.header, header);
    if (extent.bytes != sheet->bytes)
        return sglcore_fail(env, SGL_CORRUPT, "%lld bytes, saved were %lld", (long long)extent.bytes,
                            (long long)sheet->bytes);
    if (strcmp(header, sheet->header) != 0)
        return sglcore_fail(env, SGL_CORRUPT, "header: its bytes are not those that were saved (hash %s, saved was %s)",
                            header, sheet->header);
    return SGL_OK;
}

sgl_status sglstore_part_open(const sglstore_manifest *manifest, const char *folder, int part, sglstore_opened *opened)
{
    sglcore_env *env = manifest->env;
    const sglstore_sheet *sheet = &manifest->sheets[part];
    sglstore_path path;
    *opened = (sglstore_opened){ 0 };
    SGLCORE_TRY(sglstore_join(env, &path, folder, sglstore_parts[part].file));
    sgl_status status = sglstore_tensors_open(env, path.text, &opened->file);
    if (status == SGL_NOT_FOUND)
        return sglcore_fail(env, SGL_CORRUPT, "%s: the file is missing; it was saved", path.text);
    if (status != SGL_OK) return status;
    status = match_sheet(env, sheet, opened);
    return status == SGL_OK ? SGL_OK : sglcore_fail_at(env, status, "%s", path.text);
}

void sglstore_part_close(sglcore_env *env, sglstore_opened *opened)
{
    sglstore_tensors_close(opened->file);
    sglcore_vec_free(env, &opened->rows);
    sglcore_vec_free(env, &opened->targets);
    opened->file = NULL;
}

/* ---- data ------------------------------------------------------------------------------------------------------- */

/* Reads one entry piece by piece, handing it to its target when there is one, and holds its hash against the row. */
static sgl_status stream(const sglstore_opened *opened, int64_t index, const sglstore_target *target, char *piece,
                         bool *right)
{
    char hash[33];
    int64_t bytes;
    sglcore_hasher hasher;
    sglstore_tensors_entry(opened->file, index, NULL, NULL, &bytes);
    sglcore_hasher_init(&hasher);
    for (int64_t at = 0; at < bytes; at += SGLSTORE_PIECE) {
        int64_t now = bytes - at < SGLSTORE_PIECE ? bytes - at : SGLSTORE_PIECE;
        SGLCORE_TRY(sglstore_tensors_read(opened->file, index, at, piece, now));
        sglcore_hasher_add(&hasher, piece, (size_t)now);
        if (target != NULL) SGLCORE_TRY(target->write(target->user, at, piece, now));
    }
    sglcore_hash_text(sglcore_hasher_end(&hasher), hash);
    *right = strcmp(hash, opened->rows.data[index]->hash) == 0;
    return SGL_OK;
}

static sgl_status stream_all(const sglstore_manifest *manifest, const char *folder, int part,
                             const sglstore_opened *opened, bool load, char *piece)
{
    for (int64_t i = 0; i < sglstore_tensors_count(opened->file); i++) {
        bool right;
        SGLCORE_TRY(stream(opened, i, load ? opened->targets.data[i] : NULL, piece, &right));
        if (!right)
            return sglcore_fail(manifest->env, SGL_CORRUPT, "%s/%s: %s: its bytes are not those that were saved%s",
                                folder, sglstore_parts[part].file, opened->rows.data[i]->name,
                                load ? "; the file was changed while it was loaded, and what it gave is in use" : "");
    }
    return SGL_OK;
}

sgl_status sglstore_part_check(const sglstore_manifest *manifest, const char *folder, int part,
                               const sglstore_opened *opened, char *piece)
{
    return stream_all(manifest, folder, part, opened, false, piece);
}

sgl_status sglstore_part_load(const sglstore_manifest *manifest, const char *folder, int part,
                              const sglstore_opened *opened, char *piece)
{
    return stream_all(manifest, folder, part, opened, true, piece);
}

/* ---- against the targets ---------------------------------------------------------------------------------------- */

static sgl_status match_target(sglcore_env *env, const sglstore_target *target, sglstore_opened *opened, bool *found)
{
    sgl_type type;
    int64_t index;
    char a[SGL_TYPE_ROOM], b[SGL_TYPE_ROOM];
    SGLCORE_TRY(sglstore_tensors_find(opened->file, target->name, &index));
    *found = index >= 0;
    if (index < 0) return SGL_OK;
    if (opened->targets.data[index] != NULL)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s: there are two targets of this name", target->name);
    sglstore_tensors_entry(opened->file, index, &type, NULL, NULL);
    if (!same_type(&type, &target->type))
        return sglcore_fail(env, SGL_TYPE, "%s: the file has %s, the program %s", target->name,
                            sgl_type_text(&type, a, sizeof a), sgl_type_text(&target->type, b, sizeof b));
    opened->targets.data[index] = target;
    return SGL_OK;
}

/* Another program often lacks one thing and has another: both are named. */
static sgl_status tell_unmatched(sglcore_env *env, int part, const sglstore_target *missing, const char *extra)
{
    char type[SGL_TYPE_ROOM];
    const char *noun = sglstore_parts[part].noun;
    if (missing == NULL) return sglcore_fail(env, SGL_TYPE, "%s: the program has no such %s", extra, noun);
    if (extra == NULL)
        return sglcore_fail(env, SGL_TYPE, "%s is missing; the program has this %s, %s", missing->name, noun,
                            sgl_type_text(&missing->type, type, sizeof type));
    return sglcore_fail(env, SGL_TYPE, "%s is missing; the program has this %s, %s, and no such %s as %s",
                        missing->name, noun, sgl_type_text(&missing->type, type, sizeof type), noun, extra);
}

static sgl_status match_targets(sglcore_env *env, int part, const sglstore_target *targets, int64_t count,
                                sglstore_opened *opened)
{
    const sglstore_target *missing = NULL;
    const char *extra = NULL;
    int64_t entries = sglstore_tensors_count(opened->file);
    SGLCORE_TRY(sglcore_vec_reserve(env, &opened->targets, entries));
    for (int64_t i = 0; i < entries; i++) opened->targets.data[i] = NULL;
    opened->targets.count = entries;
    for (int64_t i = 0; i < count; i++) {
        bool found;
        if (targets[i].role != sglstore_parts[part].role) continue;
        SGLCORE_TRY(match_target(env, &targets[i], opened, &found));
        if (!found && missing == NULL && !sglstore_is_made(targets[i].name)) missing = &targets[i];
    }
    for (int64_t i = 0; i < entries && extra == NULL; i++) {
        const char *name = sglstore_tensors_entry(opened->file, i, NULL, NULL, NULL);
        if (opened->targets.data[i] != NULL) continue;
        if (sglstore_is_made(name))
            sglcore_log(env, SGL_LOG_INFO, "%s: the program has no such state, and does without it", name);
        else
            extra = name;
    }
    return missing == NULL && extra == NULL ? SGL_OK : tell_unmatched(env, part, missing, extra);
}

sgl_status sglstore_part_match(sglcore_env *env, const char *folder, int part, const sglstore_target *targets,
                               int64_t count, sglstore_opened *opened)
{
    sgl_status status = match_targets(env, part, targets, count, opened);
    return status == SGL_OK ? SGL_OK : sglcore_fail_at(env, status, "%s/%s", folder, sglstore_parts[part].file);
}
