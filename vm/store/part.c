/* part.c -- one safetensors file of a checkpoint, read back: held against its sheet of the manifest, its data handed on.
 *
 * In: a sheet, the file, perhaps a target. Out: OK only when every entry has its row of the same type, every row its entry, and
 * sizes and hashes agree. Errors name folder, file and entry. Odd invariant: of a part that is not wanted whole only what is
 * wanted is read, and its hash not held against it again. */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

/* ---- rows ------------------------------------------------------------------------------------------------------- */

sgl_type sglstore_row_type(const sglstore_row *row)
{
    sgl_type type = row->type;
    memcpy(type.dims, row->box.dims, (size_t)type.rank * sizeof type.dims[0]);
    return type;
}

sgl_status sglstore_row_name(sglcore_env *env, sglcore_arena *arena, sglstore_row *row)
{
    sglcore_text text = { 0 };
    row->entry = row->name;
    if (!row->is_part) return SGL_OK;
    sgl_status status = sglcore_text_add(env, &text, "%s[", row->name);
    for (int d = 0; d < row->type.rank && status == SGL_OK; d++)
        status = sglcore_text_add(env, &text, "%s%lld:%lld", d > 0 ? "," : "", (long long)row->box.offsets[d],
                                  (long long)(row->box.offsets[d] + row->box.dims[d]));
    if (status == SGL_OK) status = sglcore_text_add(env, &text, "]");
    if (status == SGL_OK) {
        row->entry = sglcore_arena_string(arena, text.data, (size_t)text.count);
        status = row->entry ? SGL_OK : SGL_OUT_OF_MEMORY;
    }
    sglcore_text_free(env, &text);
    return status;
}

/* ---- against the manifest --------------------------------------------------------------------------------------- */

static bool same_type(const sgl_type *a, const sgl_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* The entry of the row, if it is there, and of the same type. */
static sgl_status match_row(sglcore_env *env, const sglstore_row *row, sglstore_opened *opened, bool *found)
{
    sgl_type type;
    int64_t index;
    char a[SGL_TYPE_ROOM], b[SGL_TYPE_ROOM];
    SGLCORE_TRY(sglstore_tensors_find(opened->file, row->entry, &index));
    *found = index >= 0;
    if (index < 0) return SGL_OK;
    if (opened->rows.data[index] != NULL)
        return sglcore_fail(env, SGL_CORRUPT, "%s: the manifest has the entry twice", row->entry);
    sglstore_tensors_entry(opened->file, index, &type, NULL, NULL);
    const sgl_type saved = sglstore_row_type(row);
    if (!same_type(&type, &saved))
        return sglcore_fail(env, SGL_CORRUPT, "%s: the file has %s, saved was %s", row->entry,
                            sgl_type_text(&type, a, sizeof a), sgl_type_text(&saved, b, sizeof b));
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
        if (!found && missing == NULL) missing = sheet->rows.data[i].entry;
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

sgl_status sglstore_file_open(sglcore_env *env, const char *folder, const sglstore_sheet *sheet,
                              sglstore_opened *opened)
{
    sglstore_path path;
    char name[SGLSTORE_FILE_ROOM];
    *opened = (sglstore_opened){ .env = env, .folder = folder, .sheet = sheet };
    SGLCORE_TRY(sglstore_join(env, &path, folder, sglstore_file_name(sheet->kind, sheet->rank, name)));
    sgl_status status = sglstore_tensors_open(env, path.text, &opened->file);
    if (status == SGL_NOT_FOUND)
        return sglcore_fail(env, SGL_CORRUPT, "%s: the file is missing; it was saved%s", path.text,
                            sheet->rank > 0 ? ", by another rank: all ranks must write into one folder" : "");
    if (status != SGL_OK) return status;
    status = match_sheet(env, sheet, opened);
    return status == SGL_OK ? SGL_OK : sglcore_fail_at(env, status, "%s", path.text);
}

void sglstore_file_close(sglstore_opened *opened)
{
    sglstore_tensors_close(opened->file);
    if (opened->env) sglcore_vec_free(opened->env, &opened->rows);
    opened->file = NULL;
}

/* ---- data ------------------------------------------------------------------------------------------------------- */

/* Reads one entry piece by piece, handing it to the target when there is one, and holds its hash against the row. */
static sgl_status stream(const sglstore_opened *opened, int64_t entry, const sglstore_target *target, char *piece)
{
    char hash[33], name[SGLSTORE_FILE_ROOM];
    int64_t bytes;
    sglcore_hasher hasher;
    sglstore_tensors_entry(opened->file, entry, NULL, NULL, &bytes);
    sglcore_hasher_init(&hasher);
    for (int64_t at = 0; at < bytes; at += SGLSTORE_PIECE) {
        int64_t now = bytes - at < SGLSTORE_PIECE ? bytes - at : SGLSTORE_PIECE;
        SGLCORE_TRY(sglstore_tensors_read(opened->file, entry, at, piece, now));
        sglcore_hasher_add(&hasher, piece, (size_t)now);
        if (target != NULL) SGLCORE_TRY(target->write(target->user, at, piece, now));
    }
    sglcore_hash_text(sglcore_hasher_end(&hasher), hash);
    if (strcmp(hash, opened->rows.data[entry]->hash) == 0) return SGL_OK;
    return sglcore_fail(opened->env, SGL_CORRUPT, "%s/%s: %s: its bytes are not those that were saved%s",
                        opened->folder, sglstore_file_name(opened->sheet->kind, opened->sheet->rank, name),
                        opened->rows.data[entry]->entry,
                        target ? "; the file was changed while it was loaded, and what it gave is in use" : "");
}

sgl_status sglstore_file_check(const sglstore_opened *opened, int64_t entry, char *piece)
{
    return stream(opened, entry, NULL, piece);
}

sgl_status sglstore_file_load(const sglstore_opened *opened, int64_t entry, const sglstore_target *target, char *piece)
{
    const sglstore_row *row = opened->rows.data[entry];
    const sglstore_box whole = sglstore_box_whole(&row->type);
    if (sglstore_box_equal(row->type.rank, &row->box, target->box ? target->box : &whole))
        return stream(opened, entry, target, piece);
    return sglstore_read_common(opened->file, entry, &row->box, target, piece);
}

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

enum { SHORT_RUN = 1 << 16 }; /* bytes; what lies between shorter ones is read over, in fewer calls */

typedef struct window {
    sglstore_tensors *file;
    int64_t entry;
    char *piece;
    int64_t begin, end; /* of the entry's bytes: what `piece` has */
} window;

/* Bytes from .. from + bytes of the entry go to the target; `last`: how far the file may be read. */
static sgl_status hand_run(window *w, int64_t from, int64_t bytes, int64_t last, const sglstore_target *target,
                           int64_t to)
{
    while (bytes > 0) {
        if (from < w->begin || from >= w->end) {
            w->begin = from;
            w->end = last - from < SGLSTORE_PIECE ? last : from + SGLSTORE_PIECE;
            SGLCORE_TRY(sglstore_tensors_read(w->file, w->entry, from, w->piece, w->end - from));
        }
        const int64_t now = bytes < w->end - from ? bytes : w->end - from;
        SGLCORE_TRY(target->write(target->user, to, w->piece + (from - w->begin), now));
        from += now;
        to += now;
        bytes -= now;
    }
    return SGL_OK;
}

sgl_status sglstore_read_common(sglstore_tensors *file, int64_t entry, const sglstore_box *box,
                                const sglstore_target *target, char *piece)
{
    const int rank = target->type.rank;
    const int64_t size = sglcore_dtype_bytes(target->type.dtype, 1);
    const sglstore_box whole = sglstore_box_whole(&target->type), *wanted = target->box ? target->box : &whole;
    window w = { .file = file, .entry = entry, .piece = piece };
    sglstore_runs runs = sglstore_runs_of(rank, box, wanted);
    int64_t end = 0, from, to;
    for (sglstore_runs all = runs; sglstore_runs_next(&all, &from, &to);) end = (from + all.count) * size;
    while (sglstore_runs_next(&runs, &from, &to)) {
        const int64_t bytes = runs.count * size, last = bytes < SHORT_RUN ? end : from * size + bytes;
        SGLCORE_TRY(hand_run(&w, from * size, bytes, last, target, to * size));
    }
    return SGL_OK;
}
