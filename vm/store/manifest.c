/* manifest.c -- manifest.json of a checkpoint: what was saved, and the hash of every byte of it.
 *
 * In and out: step, meta, and of each file its size, the hash of its header and of every tensor; together they cover the
 * file, whose data are dense. Format 1 has the two files of one rank, with whole tensors; format 2 files of several ranks, with
 * parts. Odd invariant: the last member is the hash of all bytes of the manifest before it, so that not one bit of a
 * checkpoint can change unseen, the meta included. It is checked before anything else is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "store/json.h"

enum { FORMAT_WHOLE = 1, FORMAT_PARTS = 2 };

static const char seal_head[] = "\"xxh3_128\": \"", seal_foot[] = "\"\n}\n";
enum { SEAL_HEAD = sizeof seal_head - 1, SEAL_BYTES = SEAL_HEAD + 32 + sizeof seal_foot - 1 };

const sglstore_kind sglstore_kinds[SGLSTORE_KINDS] = {
    { "parameters", SGL_PARAMETER, "parameter" },
    { "states", SGL_STATE, "state" },
};

const char *sglstore_file_name(int kind, int64_t rank, char name[SGLSTORE_FILE_ROOM])
{
    if (rank == 0)
        snprintf(name, SGLSTORE_FILE_ROOM, "%s.safetensors", sglstore_kinds[kind].stem);
    else
        snprintf(name, SGLSTORE_FILE_ROOM, "%s.rank-%05lld.safetensors", sglstore_kinds[kind].stem, (long long)rank);
    return name;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static sgl_status add_numbers(sglcore_env *env, sglcore_text *text, const char *name, int count, const int64_t *numbers)
{
    SGLCORE_TRY(sglcore_text_add(env, text, ", \"%s\": [", name));
    for (int i = 0; i < count; i++)
        SGLCORE_TRY(sglcore_text_add(env, text, i > 0 ? ", %lld" : "%lld", (long long)numbers[i]));
    return sglcore_text_add(env, text, "]");
}

static sgl_status add_row(sglcore_env *env, sglcore_text *text, const sglstore_row *row, bool first)
{
    const int rank = row->type.rank;
    SGLCORE_TRY(sglcore_text_add(env, text, "%s\n   {\"name\": ", first ? "" : ","));
    SGLCORE_TRY(sglcore_text_quote(env, text, row->name));
    SGLCORE_TRY(sglcore_text_add(env, text, ", \"dtype\": \"%s\"", sgl_dtype_name(row->type.dtype)));
    SGLCORE_TRY(add_numbers(env, text, "shape", rank, row->box.dims));
    if (row->is_part) {
        SGLCORE_TRY(add_numbers(env, text, "offsets", rank, row->box.offsets));
        SGLCORE_TRY(add_numbers(env, text, "whole", rank, row->type.dims));
    }
    return sglcore_text_add(env, text, ", \"xxh3_128\": \"%s\"}", row->hash);
}

/* With a comma behind, so that the texts of all ranks can stand one behind the other. */
sgl_status sglstore_sheet_text(sglcore_env *env, const sglstore_sheet *sheet, sglcore_text *text)
{
    char name[SGLSTORE_FILE_ROOM];
    SGLCORE_TRY(sglcore_text_add(env, text, "\n  {\"file\": \"%s\", \"bytes\": %lld, \"header_xxh3_128\": \"%s\", ",
                                 sglstore_file_name(sheet->kind, sheet->rank, name), (long long)sheet->bytes,
                                 sheet->header));
    SGLCORE_TRY(sglcore_text_add(env, text, "\"tensors\": ["));
    for (int64_t i = 0; i < sheet->rows.count; i++) SGLCORE_TRY(add_row(env, text, &sheet->rows.data[i], i == 0));
    return sglcore_text_add(env, text, "]},");
}

static sgl_status make_text(sglcore_env *env, int64_t step, const char *meta, const sglcore_text *sheets, bool in_parts,
                            sglcore_text *text)
{
    char hash[33];
    SGLCORE_TRY(sglcore_text_add(env, text, "{\n \"format\": %d,\n \"written_by\": \"sgl %s\",\n \"step\": %lld,\n",
                                 in_parts ? FORMAT_PARTS : FORMAT_WHOLE, sgl_version(), (long long)step));
    SGLCORE_TRY(sglcore_text_add(env, text, " \"meta\": "));
    SGLCORE_TRY(sglcore_text_bytes(env, text, meta, strlen(meta)));
    SGLCORE_TRY(sglcore_text_add(env, text, ",\n \"files\": ["));
    SGLCORE_TRY(sglcore_text_bytes(env, text, sheets->data, (size_t)sheets->count - 1)); /* without the last comma */
    SGLCORE_TRY(sglcore_text_add(env, text, "],\n "));
    sglcore_hash_text(sglcore_hash_bytes(text->data, (size_t)text->count), hash);
    return sglcore_text_add(env, text, "%s%s%s", seal_head, hash, seal_foot);
}

sgl_status sglstore_manifest_write(sglcore_env *env, const char *folder, int64_t step, const char *meta,
                                   const sglcore_text *sheets, bool in_parts)
{
    sglstore_path path;
    sglcore_text text = { 0 };
    SGLCORE_TRY(sglstore_join(env, &path, folder, "manifest.json"));
    sgl_status status = make_text(env, step, meta, sheets, in_parts, &text);
    if (status == SGL_OK) status = sglcore_write_file(env, path.text, text.data, text.count);
    sglcore_text_free(env, &text);
    return status;
}

sgl_status sglstore_check_meta(sglcore_env *env, const char *meta)
{
    sglstore_json json = { .env = env, .text = meta, .bytes = (int64_t)strlen(meta) };
    int64_t from = 0;
    sgl_status status = sglstore_json_skip(&json, &from);
    if (status == SGL_OK) status = sglstore_json_end(&json);
    if (status != SGL_OK) return sglcore_fail_at(env, SGL_INVALID_ARGUMENT, "the meta of a checkpoint");
    if (meta[from] == '{') return SGL_OK;
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "the meta of a checkpoint: it must be a JSON object");
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct reader {
    sglstore_manifest *m;
    sglstore_json json;
    sglcore_text text; /* the key or text at hand */
    int64_t format;
} reader;

/* Reads the next key: *which is its place among `keys` (NULL ends them), -1 at the end of the object. Each key must be
 * there once, but for the last `optional` ones, others are passed over; *seen collects them. */
static sgl_status next_key(reader *r, const char *const *keys, int optional, unsigned *seen, int *which)
{
    for (;;) {
        bool more;
        SGLCORE_TRY(sglstore_json_member(&r->json, &r->text, &more));
        for (*which = 0; more && keys[*which] != NULL && strcmp(keys[*which], r->text.data) != 0;) ++*which;
        if (more && keys[*which] == NULL) {
            SGLCORE_TRY(sglstore_json_skip(&r->json, NULL));
            continue;
        }
        if (more) {
            if (*seen >> *which & 1) return sglstore_json_fail(&r->json, "%s is there twice", keys[*which]);
            *seen |= 1u << *which;
            return SGL_OK;
        }
        *which = -1;
        int needed = -optional;
        for (int i = 0; keys[i] != NULL; i++) needed++;
        for (int i = 0; i < needed; i++)
            if (!(*seen >> i & 1)) return sglstore_json_fail(&r->json, "there is no %s", keys[i]);
        return SGL_OK;
    }
}

static sgl_status read_hash(reader *r, char hash[33])
{
    SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
    if (r->text.count != 32) return sglstore_json_fail(&r->json, "a hash of 32 digits is expected");
    memcpy(hash, r->text.data, 33);
    return SGL_OK;
}

static sgl_status read_numbers(reader *r, int64_t numbers[SGL_MAX_RANK], int *count)
{
    bool more;
    *count = 0;
    SGLCORE_TRY(sglstore_json_open(&r->json, '['));
    for (;;) {
        SGLCORE_TRY(sglstore_json_item(&r->json, &more));
        if (!more) return SGL_OK;
        if (*count == SGL_MAX_RANK) return sglstore_json_fail(&r->json, "more than %d dimensions", SGL_MAX_RANK);
        SGLCORE_TRY(sglstore_json_count(&r->json, &numbers[*count]));
        ++*count;
    }
}

static sgl_status read_dtype(reader *r, sgl_dtype *dtype)
{
    SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
    if (sgl_dtype_from_name(r->text.data, dtype) == SGL_OK) return SGL_OK;
    return sglstore_json_fail(&r->json, "dtype '%.40s' is none that sgl has", r->text.data);
}

static sgl_status read_name(reader *r, const char **name)
{
    SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
    *name = sglcore_arena_string(&r->m->arena, r->text.data, (size_t)r->text.count);
    return *name != NULL ? SGL_OK : SGL_OUT_OF_MEMORY;
}

/* A part is not empty, and lies within the whole. */
static sgl_status check_part(reader *r, const sglstore_row *row, int offsets, int whole)
{
    const int rank = row->type.rank;
    if (offsets != rank || whole != rank)
        return sglstore_json_fail(&r->json, "%s: shape, offsets and whole have not as many dimensions", row->name);
    for (int d = 0; d < rank; d++)
        if (row->box.dims[d] < 1 || row->box.offsets[d] > row->type.dims[d] - row->box.dims[d])
            return sglstore_json_fail(&r->json, "%s: a part from %lld on, %lld long, of %lld along dimension %d",
                                      row->name, (long long)row->box.offsets[d], (long long)row->box.dims[d],
                                      (long long)row->type.dims[d], d);
    return SGL_OK;
}

static sgl_status end_row(reader *r, unsigned seen, int offsets, int whole, sglstore_row *row)
{
    row->is_part = (seen >> 4 & 3) != 0;
    if (row->is_part && (seen >> 4 & 3) != 3)
        return sglstore_json_fail(&r->json, "%s: of offsets and whole there is one alone", row->name);
    if (row->is_part)
        SGLCORE_TRY(check_part(r, row, offsets, whole));
    else
        memcpy(row->type.dims, row->box.dims, sizeof row->type.dims);
    if (sglstore_bytes_of(&row->type) < 0)
        return sglstore_json_fail(&r->json, "%s: more bytes than can be counted", row->name);
    return sglstore_row_name(r->m->env, &r->m->arena, row);
}

static sgl_status read_row(reader *r, sglstore_row *row)
{
    static const char *const keys[] = { "name", "dtype", "shape", "xxh3_128", "offsets", "whole", NULL };
    unsigned seen = 0;
    int which, offsets = 0, whole = 0;
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        SGLCORE_TRY(next_key(r, keys, 2, &seen, &which));
        switch (which) {
        case 0: SGLCORE_TRY(read_name(r, &row->name)); break;
        case 1: SGLCORE_TRY(read_dtype(r, &row->type.dtype)); break;
        case 2: SGLCORE_TRY(read_numbers(r, row->box.dims, &row->type.rank)); break;
        case 3: SGLCORE_TRY(read_hash(r, row->hash)); break;
        case 4: SGLCORE_TRY(read_numbers(r, row->box.offsets, &offsets)); break;
        case 5: SGLCORE_TRY(read_numbers(r, row->type.dims, &whole)); break;
        default: return end_row(r, seen, offsets, whole, row);
        }
    }
}

static sgl_status read_rows(reader *r, sglstore_sheet *sheet)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(&r->json, '['));
    for (;;) {
        SGLCORE_TRY(sglstore_json_item(&r->json, &more));
        if (!more) return SGL_OK;
        sglstore_row row = { 0 };
        SGLCORE_TRY(read_row(r, &row));
        SGLCORE_TRY(sglcore_vec_push(r->m->env, &sheet->rows, row));
    }
}

/* The first are of rank 0, one of each kind; any other has a name that a rank would give it. */
static sgl_status read_file(reader *r, int64_t place, sglstore_sheet *sheet)
{
    char name[SGLSTORE_FILE_ROOM];
    SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
    if (place < SGLSTORE_KINDS) {
        sheet->kind = (int)place;
        if (strcmp(r->text.data, sglstore_file_name(sheet->kind, 0, name)) == 0) return SGL_OK;
        return sglstore_json_fail(&r->json, "'%s' is expected", name);
    }
    for (sheet->kind = 0; sheet->kind < SGLSTORE_KINDS; sheet->kind++) {
        const size_t stem = strlen(sglstore_kinds[sheet->kind].stem), head = stem + strlen(".rank-");
        if ((size_t)r->text.count <= head || strncmp(r->text.data, sglstore_kinds[sheet->kind].stem, stem) != 0)
            continue;
        sheet->rank = strtoll(r->text.data + head, NULL, 10);
        if (sheet->rank < 1 || sheet->rank >= SGLSTORE_MOST_RANKS) break;
        if (strcmp(r->text.data, sglstore_file_name(sheet->kind, sheet->rank, name)) == 0) return SGL_OK;
    }
    return sglstore_json_fail(&r->json, "'%.60s' is no name of a file of a checkpoint", r->text.data);
}

static sgl_status read_sheet(reader *r, int64_t place)
{
    static const char *const keys[] = { "file", "bytes", "header_xxh3_128", "tensors", NULL };
    unsigned seen = 0;
    int which;
    SGLCORE_TRY(sglcore_vec_push(r->m->env, &r->m->sheets, (sglstore_sheet){ 0 }));
    sglstore_sheet *sheet = &r->m->sheets.data[place];
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        SGLCORE_TRY(next_key(r, keys, 0, &seen, &which));
        switch (which) {
        case 0: SGLCORE_TRY(read_file(r, place, sheet)); break;
        case 1: SGLCORE_TRY(sglstore_json_count(&r->json, &sheet->bytes)); break;
        case 2: SGLCORE_TRY(read_hash(r, sheet->header)); break;
        case 3: SGLCORE_TRY(read_rows(r, sheet)); break;
        default: return SGL_OK;
        }
    }
}

static sgl_status read_sheets(reader *r)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(&r->json, '['));
    for (int64_t place = 0;; place++) {
        SGLCORE_TRY(sglstore_json_item(&r->json, &more));
        if (!more && place < SGLSTORE_KINDS)
            return sglstore_json_fail(&r->json, "%d files are expected", SGLSTORE_KINDS);
        if (!more) return SGL_OK;
        SGLCORE_TRY(read_sheet(r, place));
    }
}

static sgl_status read_meta(reader *r)
{
    sglstore_json object = r->json;
    int64_t from = 0;
    SGLCORE_TRY(sglstore_json_open(&object, '{')); /* nothing else will do */
    SGLCORE_TRY(sglstore_json_skip(&r->json, &from));
    return sglcore_text_bytes(r->m->env, &r->m->meta, r->json.text + from, (size_t)(r->json.at - from));
}

static sgl_status read_format(reader *r)
{
    SGLCORE_TRY(sglstore_json_count(&r->json, &r->format));
    if (r->format == FORMAT_WHOLE || r->format == FORMAT_PARTS) return SGL_OK;
    return sglcore_fail(r->m->env, SGL_UNSUPPORTED, "format %lld, this version of sgl reads formats %d and %d",
                        (long long)r->format, FORMAT_WHOLE, FORMAT_PARTS);
}

static sgl_status read_members(reader *r)
{
    static const char *const keys[] = { "format", "step", "meta", "files", NULL };
    unsigned seen = 0;
    int which;
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        SGLCORE_TRY(next_key(r, keys, 0, &seen, &which));
        switch (which) {
        case 0: SGLCORE_TRY(read_format(r)); break;
        case 1: SGLCORE_TRY(sglstore_json_count(&r->json, &r->m->step)); break;
        case 2: SGLCORE_TRY(read_meta(r)); break;
        case 3: SGLCORE_TRY(read_sheets(r)); break;
        default: return sglstore_json_end(&r->json);
        }
    }
}

/* ---- what the rows say together ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const sglstore_row *x = *(const sglstore_row *const *)a, *y = *(const sglstore_row *const *)b;
    const int order = strcmp(x->name, y->name);
    if (order != 0 || x->type.rank == 0 || y->type.rank == 0) return order;
    return (x->box.offsets[0] > y->box.offsets[0]) - (x->box.offsets[0] < y->box.offsets[0]);
}

/* Rows of one name, `count` of them, by rising place along dimension 0: of one whole, none over another, all of it. */
static sgl_status check_tensor(sglcore_env *env, const sglstore_row *const *rows, int64_t count)
{
    const sgl_type *type = &rows[0]->type;
    const sglstore_box all = sglstore_box_whole(type);
    int64_t elements = 0;
    char text[SGL_TYPE_ROOM], other[SGL_TYPE_ROOM];
    for (int64_t i = 0; i < count; i++) {
        const sglstore_row *a = rows[i];
        if (a->type.dtype != type->dtype || a->type.rank != type->rank ||
            memcmp(a->type.dims, type->dims, (size_t)type->rank * sizeof type->dims[0]) != 0)
            return sglcore_fail(env, SGL_CORRUPT, "%s is a part of %s, and %s of %s", rows[0]->entry,
                                sgl_type_text(type, text, sizeof text), a->entry,
                                sgl_type_text(&a->type, other, sizeof other));
        elements += sglstore_box_elements(type->rank, &a->box);
        for (int64_t k = i + 1; k < count && rows[k]->type.rank == type->rank; k++) {
            sglstore_box common;
            if (type->rank > 0 && rows[k]->box.offsets[0] >= a->box.offsets[0] + a->box.dims[0]) break;
            if (sglstore_box_common(type->rank, &a->box, &rows[k]->box, &common))
                return sglcore_fail(env, SGL_CORRUPT, "%s and %s overlap", a->entry, rows[k]->entry);
        }
    }
    if (elements == sglstore_box_elements(type->rank, &all)) return SGL_OK;
    return sglcore_fail(env, SGL_CORRUPT,
                        "%s: a part of it is missing: the %lld that are there have %lld elements of %s", rows[0]->name,
                        (long long)count, (long long)elements, sgl_type_text(type, text, sizeof text));
}

static sgl_status check_kind(sglstore_manifest *m, int kind)
{
    SGLCORE_VEC(const sglstore_row *) rows = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t s = 0; s < m->sheets.count && status == SGL_OK; s++) {
        const sglstore_sheet *sheet = &m->sheets.data[s];
        for (int64_t i = 0; sheet->kind == kind && i < sheet->rows.count && status == SGL_OK; i++)
            status = sglcore_vec_push(m->env, &rows, &sheet->rows.data[i]);
    }
    if (status == SGL_OK && rows.count > 0) qsort(rows.data, (size_t)rows.count, sizeof rows.data[0], by_place);
    for (int64_t i = 0, end; i < rows.count && status == SGL_OK; i = end) {
        for (end = i + 1; end < rows.count && strcmp(rows.data[end]->name, rows.data[i]->name) == 0;) end++;
        status = check_tensor(m->env, rows.data + i, end - i);
    }
    sglcore_vec_free(m->env, &rows);
    return status;
}

/* Of format 1 each file says for itself what it has. */
static sgl_status check_together(reader *r)
{
    sglcore_env *env = r->m->env;
    char name[SGLSTORE_FILE_ROOM];
    for (int64_t s = 0; s < r->m->sheets.count; s++) {
        const sglstore_sheet *sheet = &r->m->sheets.data[s];
        sglstore_file_name(sheet->kind, sheet->rank, name);
        for (int64_t i = 0; r->format == FORMAT_WHOLE && i < sheet->rows.count; i++)
            if (sheet->rows.data[i].is_part)
                return sglcore_fail(env, SGL_CORRUPT, "%s: format 1 has no parts", sheet->rows.data[i].entry);
        if (s >= SGLSTORE_KINDS && r->format == FORMAT_WHOLE)
            return sglcore_fail(env, SGL_CORRUPT, "'%s' is one file too many for format 1", name);
        for (int64_t k = 0; k < s; k++)
            if (r->m->sheets.data[k].kind == sheet->kind && r->m->sheets.data[k].rank == sheet->rank)
                return sglcore_fail(env, SGL_CORRUPT, "'%s' is there twice", name);
    }
    for (int kind = 0; r->format == FORMAT_PARTS && kind < SGLSTORE_KINDS; kind++) SGLCORE_TRY(check_kind(r->m, kind));
    return SGL_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static bool has_seal(const char *text, int64_t bytes)
{
    if (bytes < SEAL_BYTES) return false;
    const char *seal = text + bytes - SEAL_BYTES;
    return memcmp(seal, seal_head, SEAL_HEAD) == 0 &&
           memcmp(seal + SEAL_HEAD + 32, seal_foot, sizeof seal_foot - 1) == 0;
}

static sgl_status check_seal(sglcore_env *env, const char *text, int64_t bytes)
{
    char hash[33];
    if (!has_seal(text, bytes)) return sglcore_fail(env, SGL_CORRUPT, "the hash at its end is not there");
    const char *sealed = text + bytes - SEAL_BYTES + SEAL_HEAD;
    sglcore_hash_text(sglcore_hash_bytes(text, (size_t)(bytes - SEAL_BYTES)), hash);
    if (memcmp(sealed, hash, 32) == 0) return SGL_OK;
    return sglcore_fail(env, SGL_CORRUPT, "its bytes are not those that were saved (hash %s, at its end stands %.32s)",
                        hash, sealed);
}

/* Read first, for an error of the text is told better than by its hash; nothing is used before that was checked. */
static sgl_status parse(sglstore_manifest *m, const char *text, int64_t bytes)
{
    reader r = { .m = m, .json = { .env = m->env, .text = text, .bytes = bytes } };
    sgl_status status = read_members(&r);
    sglcore_text_free(m->env, &r.text);
    if (status == SGL_OK) status = check_seal(m->env, text, bytes);
    return status == SGL_OK ? check_together(&r) : status;
}

sgl_status sglstore_manifest_read(sglcore_env *env, const char *folder, sglstore_manifest *manifest)
{
    sglstore_path path;
    char *text;
    int64_t bytes;
    *manifest = (sglstore_manifest){ .env = env, .arena = { .env = env } };
    SGLCORE_TRY(sglstore_join(env, &path, folder, "manifest.json"));
    sgl_status status = sglcore_read_file(env, path.text, &text, &bytes);
    if (status != SGL_OK) return status;
    status = parse(manifest, text, bytes);
    sglcore_free(env, text, (size_t)bytes + 1);
    if (status == SGL_OK) return SGL_OK;
    sglstore_manifest_free(manifest);
    return sglcore_fail_at(env, status, "%s", path.text);
}

void sglstore_manifest_free(sglstore_manifest *manifest)
{
    sglcore_env *env = manifest->env;
    for (int64_t s = 0; s < manifest->sheets.count; s++) sglcore_vec_free(env, &manifest->sheets.data[s].rows);
    sglcore_vec_free(env, &manifest->sheets);
    sglcore_text_free(env, &manifest->meta);
    sglcore_arena_free(&manifest->arena);
}
