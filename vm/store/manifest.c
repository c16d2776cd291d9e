/* manifest.c -- manifest.json of a checkpoint: what was saved, and the hash of every byte of it.
 *
 * In and out: step, meta, and of each file its size, the hash of its header and of every tensor; together they cover the
 * file, whose data are dense. Odd invariant: the last member is the hash of all bytes of the manifest before it, so that
 * not one bit of a checkpoint can change unseen, the meta included. It is checked before anything else is read. */
#include <string.h>

#include "store/internal.h"
#include "store/json.h"

enum { FORMAT = 1 };

static const char seal_head[] = "\"xxh3_128\": \"", seal_foot[] = "\"\n}\n";
enum { SEAL_HEAD = sizeof seal_head - 1, SEAL_BYTES = SEAL_HEAD + 32 + sizeof seal_foot - 1 };

const sglstore_part sglstore_parts[SGLSTORE_PARTS] = {
    { "parameters.safetensors", SGL_PARAMETER, "parameter" },
    { "states.safetensors", SGL_STATE, "state" },
};

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static sgl_status add_row(sglcore_env *env, sglcore_text *text, const sglstore_row *row, bool first)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "%s\n   {\"name\": ", first ? "" : ","));
    SGLCORE_TRY(sglcore_text_quote(env, text, row->name));
    SGLCORE_TRY(sglcore_text_add(env, text, ", \"dtype\": \"%s\", \"shape\": [", sgl_dtype_name(row->type.dtype)));
    for (int i = 0; i < row->type.rank; i++)
        SGLCORE_TRY(sglcore_text_add(env, text, i > 0 ? ", %lld" : "%lld", (long long)row->type.dims[i]));
    return sglcore_text_add(env, text, "], \"xxh3_128\": \"%s\"}", row->hash);
}

static sgl_status add_sheet(sglcore_env *env, sglcore_text *text, int part, const sglstore_sheet *sheet)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "%s\n  {\"file\": \"%s\", \"bytes\": %lld, \"header_xxh3_128\": \"%s\", ",
                                 part > 0 ? "," : "", sglstore_parts[part].file, (long long)sheet->bytes,
                                 sheet->header));
    SGLCORE_TRY(sglcore_text_add(env, text, "\"tensors\": ["));
    for (int64_t i = 0; i < sheet->rows.count; i++) SGLCORE_TRY(add_row(env, text, &sheet->rows.data[i], i == 0));
    return sglcore_text_add(env, text, "]}");
}

static sgl_status make_text(const sglstore_manifest *m, sglcore_text *text)
{
    char hash[33];
    SGLCORE_TRY(sglcore_text_add(m->env, text, "{\n \"format\": %d,\n \"written_by\": \"sgl %s\",\n \"step\": %lld,\n",
                                 FORMAT, sgl_version(), (long long)m->step));
    SGLCORE_TRY(sglcore_text_add(m->env, text, " \"meta\": "));
    SGLCORE_TRY(sglcore_text_bytes(m->env, text, m->meta.data, (size_t)m->meta.count));
    SGLCORE_TRY(sglcore_text_add(m->env, text, ",\n \"files\": ["));
    for (int part = 0; part < SGLSTORE_PARTS; part++) SGLCORE_TRY(add_sheet(m->env, text, part, &m->sheets[part]));
    SGLCORE_TRY(sglcore_text_add(m->env, text, "],\n "));
    sglcore_hash_text(sglcore_hash_bytes(text->data, (size_t)text->count), hash);
    return sglcore_text_add(m->env, text, "%s%s%s", seal_head, hash, seal_foot);
}

sgl_status sglstore_manifest_write(const sglstore_manifest *manifest, const char *folder)
{
    sglstore_path path;
    sglcore_text text = { 0 };
    SGLCORE_TRY(sglstore_join(manifest->env, &path, folder, "manifest.json"));
    sgl_status status = make_text(manifest, &text);
    if (status == SGL_OK) status = sglcore_write_file(manifest->env, path.text, text.data, text.count);
    sglcore_text_free(manifest->env, &text);
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
} reader;

/* Reads the next key: *which is its place among `keys` (NULL ends them), -1 at the end of the object. Each key must be
 * there once, others are passed over; *seen collects them. */
static sgl_status next_key(reader *r, const char *const *keys, unsigned *seen, int *which)
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
        for (int i = 0; keys[i] != NULL; i++)
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

static sgl_status read_type(reader *r, bool is_shape, sgl_type *type)
{
    bool more;
    if (!is_shape) {
        SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
        if (sgl_dtype_from_name(r->text.data, &type->dtype) == SGL_OK) return SGL_OK;
        return sglstore_json_fail(&r->json, "dtype '%.40s' is none that sgl has", r->text.data);
    }
    SGLCORE_TRY(sglstore_json_open(&r->json, '['));
    for (;;) {
        SGLCORE_TRY(sglstore_json_item(&r->json, &more));
        if (!more) return SGL_OK;
        if (type->rank == SGL_MAX_RANK) return sglstore_json_fail(&r->json, "more than %d dimensions", SGL_MAX_RANK);
        SGLCORE_TRY(sglstore_json_count(&r->json, &type->dims[type->rank]));
        type->rank++;
    }
}

static sgl_status read_row(reader *r, sglstore_row *row)
{
    static const char *const keys[] = { "name", "dtype", "shape", "xxh3_128", NULL };
    unsigned seen = 0;
    int which;
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        SGLCORE_TRY(next_key(r, keys, &seen, &which));
        if (which < 0) return SGL_OK;
        if (which == 0) {
            SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
            row->name = sglcore_arena_string(&r->m->arena, r->text.data, (size_t)r->text.count);
            if (row->name == NULL) return SGL_OUT_OF_MEMORY;
        } else if (which == 3) {
            SGLCORE_TRY(read_hash(r, row->hash));
        } else {
            SGLCORE_TRY(read_type(r, which == 2, &row->type));
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

static sgl_status read_sheet(reader *r, int part)
{
    static const char *const keys[] = { "file", "bytes", "header_xxh3_128", "tensors", NULL };
    sglstore_sheet *sheet = &r->m->sheets[part];
    unsigned seen = 0;
    int which;
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        SGLCORE_TRY(next_key(r, keys, &seen, &which));
        if (which < 0) return SGL_OK;
        if (which == 0) {
            SGLCORE_TRY(sglstore_json_string(&r->json, &r->text));
            if (strcmp(r->text.data, sglstore_parts[part].file) != 0)
                return sglstore_json_fail(&r->json, "'%s' is expected", sglstore_parts[part].file);
        } else if (which == 1) {
            SGLCORE_TRY(sglstore_json_count(&r->json, &sheet->bytes));
        } else {
            SGLCORE_TRY(which == 2 ? read_hash(r, sheet->header) : read_rows(r, sheet));
        }
    }
}

static sgl_status read_sheets(reader *r)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(&r->json, '['));
    for (int part = 0;; part++) {
        SGLCORE_TRY(sglstore_json_item(&r->json, &more));
        if (more != (part < SGLSTORE_PARTS))
            return sglstore_json_fail(&r->json, "%d files are expected", SGLSTORE_PARTS);
        if (!more) return SGL_OK;
        SGLCORE_TRY(read_sheet(r, part));
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

static sgl_status read_members(reader *r)
{
    static const char *const keys[] = { "format", "step", "meta", "files", NULL };
    unsigned seen = 0;
    int which;
    SGLCORE_TRY(sglstore_json_open(&r->json, '{'));
    for (;;) {
        int64_t format = 0;
        SGLCORE_TRY(next_key(r, keys, &seen, &which));
        if (which < 0) return sglstore_json_end(&r->json);
        if (which == 0) SGLCORE_TRY(sglstore_json_count(&r->json, &format));
        if (which == 0 && format != FORMAT)
            return sglcore_fail(r->m->env, SGL_UNSUPPORTED, "format %lld, this version of sgl reads format %d",
                                (long long)format, FORMAT);
        if (which == 1) SGLCORE_TRY(sglstore_json_count(&r->json, &r->m->step));
        if (which == 2) SGLCORE_TRY(read_meta(r));
        if (which == 3) SGLCORE_TRY(read_sheets(r));
    }
}

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
    return status == SGL_OK ? check_seal(m->env, text, bytes) : status;
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
    for (int part = 0; part < SGLSTORE_PARTS; part++) sglcore_vec_free(env, &manifest->sheets[part].rows);
    sglcore_text_free(env, &manifest->meta);
    sglcore_arena_free(&manifest->arena);
}
