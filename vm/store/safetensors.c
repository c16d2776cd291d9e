/* safetensors.c -- reads and writes safetensors files: 8 bytes of header length, a JSON header, dense little-endian data.
 *
 * Comes in: sources that give bytes piece by piece, or a file that nobody trusts. Goes out: a synced file, or entries whose
 * ranges were all checked against the file's size and against each other. Data starts at a multiple of 64 bytes. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "store/internal.h"

enum { HEADER_ALIGN = 64, HEADER_LIMIT = 256 << 20 };

typedef struct entry {
    char *name; /* terminated */
    sgl_type type;
    int64_t offset, bytes; /* offset from the start of the data */
} entry;

struct sglstore_tensors {
    sglcore_env *env;
    char *path;
    int fd;
    bool is_open;
    int64_t data_start, data_bytes;
    SGLCORE_VEC(entry) entries;
};

/* ---- dtypes ------------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    sgl_dtype dtype;
} dtypes[] = {
    { "F64", SGL_F64 }, { "F32", SGL_F32 }, { "BF16", SGL_BF16 }, { "F16", SGL_F16 }, { "F8_E4M3", SGL_F8E4M3 },
    { "F8_E5M2", SGL_F8E5M2 }, { "I64", SGL_I64 }, { "I32", SGL_I32 }, { "I16", SGL_I16 }, { "I8", SGL_I8 },
    { "U8", SGL_U8 }, { "U16", SGL_U16 }, { "U32", SGL_U32 }, { "BOOL", SGL_BOOL },
};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static const char *dtype_text(sgl_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].text;
    return NULL;
}

int64_t sglstore_bytes_of(const sgl_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0 || __builtin_mul_overflow(count, type->dims[i], &count)) return -1;
    return sglcore_dtype_bytes(type->dtype, count);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static sgl_status corrupt(const sglstore_tensors *f, const char *name, const char *what)
{
    return sglcore_fail(f->env, SGL_CORRUPT, "%s: %s%s%s", f->path, name ? name : "", name ? ": " : "", what);
}

static sgl_status parse_shape(const sglstore_tensors *f, const char *name, const json_t *shape, sgl_type *type)
{
    if (!json_is_array(shape)) return corrupt(f, name, "the entry has no shape");
    if (json_array_size(shape) > SGL_MAX_RANK) return corrupt(f, name, "more than 8 dimensions");
    type->rank = (int32_t)json_array_size(shape);
    memset(type->dims, 0, sizeof type->dims);
    for (int i = 0; i < type->rank; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0) return corrupt(f, name, "an extent is no whole number");
        type->dims[i] = json_integer_value(extent);
    }
    return SGL_OK;
}

static sgl_status parse_entry(const sglstore_tensors *f, const char *name, const json_t *value, entry *e)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    int found = -1;
    for (int i = 0; dtype && i < DTYPES; i++)
        if (strcmp(dtype, dtypes[i].text) == 0) found = i;
    if (found < 0) return corrupt(f, name, dtype ? "a dtype that sgl does not know" : "the entry has no dtype");
    e->type.dtype = dtypes[found].dtype;
    SGLCORE_TRY(parse_shape(f, name, json_object_get(value, "shape"), &e->type));
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return corrupt(f, name, "the entry has no data_offsets");
    e->offset = json_integer_value(from);
    int64_t end = json_integer_value(to);
    if (e->offset < 0 || end < e->offset || end > f->data_bytes) return corrupt(f, name, "its data lie outside the file");
    e->bytes = end - e->offset;
    if (e->bytes != sglstore_bytes_of(&e->type)) return corrupt(f, name, "its data are not as long as dtype and shape say");
    return SGL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static char *copy_text(sglcore_env *env, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sglcore_alloc(env, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static void free_text(sglcore_env *env, char *text)
{
    if (text) sglcore_free(env, text, strlen(text) + 1);
}

static sgl_status parse_entries(sglstore_tensors *f, json_t *header)
{
    const char *name;
    json_t *value;
    if (!json_is_object(header)) return corrupt(f, NULL, "the header is no JSON object");
    json_object_foreach(header, name, value)
    {
        entry e = { 0 };
        if (strcmp(name, "__metadata__") == 0) continue;
        SGLCORE_TRY(parse_entry(f, name, value, &e));
        e.name = copy_text(f->env, name);
        if (!e.name) return SGL_OUT_OF_MEMORY;
        sgl_status status = sglcore_vec_push(f->env, &f->entries, e);
        if (status != SGL_OK) {
            free_text(f->env, e.name);
            return status;
        }
    }
    if (f->entries.count) qsort(f->entries.data, (size_t)f->entries.count, sizeof(entry), by_offset);
    int64_t end = 0;
    for (int64_t i = 0; i < f->entries.count; i++) {
        const entry *e = &f->entries.data[i];
        if (e->offset != end) return corrupt(f, e->name, e->offset < end ? "its data overlap those of another entry" : "there is a hole before its data");
        end += e->bytes;
    }
    if (end != f->data_bytes) return corrupt(f, NULL, "there are bytes behind the last entry");
    return SGL_OK;
}

static sgl_status parse_header(sglstore_tensors *f, const char *text, size_t bytes)
{
    json_error_t error;
    json_t *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!header)
        return sglcore_fail(f->env, SGL_CORRUPT, "%s: header, line %d column %d: %s", f->path, error.line, error.column, error.text);
    sgl_status status = parse_entries(f, header);
    json_decref(header);
    return status;
}

static sgl_status read_exactly(const sglstore_tensors *f, void *data, size_t bytes, int64_t offset)
{
    size_t got = 0;
    const sglcore_io *io = f->env->io;
    if (io->read_at(io->user, f->fd, data, bytes, offset, &got) != 0) return sglcore_fail_io(f->env, "read", f->path);
    if (got != bytes) return corrupt(f, NULL, "the file ends too early");
    return SGL_OK;
}

static sgl_status read_header(sglstore_tensors *f)
{
    const sglcore_io *io = f->env->io;
    int64_t size = 0;
    unsigned char prefix[8];
    if (io->open_read(io->user, f->path, &f->fd) != 0) return sglcore_fail_io(f->env, "open", f->path);
    f->is_open = true;
    if (io->size(io->user, f->fd, &size) != 0) return sglcore_fail_io(f->env, "size", f->path);
    if (size < 8) return corrupt(f, NULL, "shorter than the 8 bytes of a safetensors file's header length");
    SGLCORE_TRY(read_exactly(f, prefix, sizeof prefix, 0));
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    if (length > HEADER_LIMIT || (int64_t)length > size - 8) return corrupt(f, NULL, "the header is longer than the file");
    f->data_start = 8 + (int64_t)length;
    f->data_bytes = size - f->data_start;
    char *text = sglcore_alloc(f->env, (size_t)length + 1);
    if (!text) return SGL_OUT_OF_MEMORY;
    sgl_status status = read_exactly(f, text, (size_t)length, 8);
    if (status == SGL_OK) status = parse_header(f, text, (size_t)length);
    sglcore_free(f->env, text, (size_t)length + 1);
    return status;
}

sgl_status sglstore_tensors_open(sglcore_env *env, const char *path, sglstore_tensors **file)
{
    *file = NULL;
    sglstore_tensors *f = sglcore_alloc_zero(env, sizeof *f);
    if (!f) return SGL_OUT_OF_MEMORY;
    f->env = env;
    f->path = copy_text(env, path);
    sgl_status status = f->path ? read_header(f) : SGL_OUT_OF_MEMORY;
    if (status != SGL_OK) {
        sglstore_tensors_close(f);
        return status;
    }
    *file = f;
    return SGL_OK;
}

void sglstore_tensors_close(sglstore_tensors *file)
{
    if (!file) return;
    sglcore_env *env = file->env;
    if (file->is_open) env->io->close(env->io->user, file->fd);
    for (int64_t i = 0; i < file->entries.count; i++) free_text(env, file->entries.data[i].name);
    sglcore_vec_free(env, &file->entries);
    free_text(env, file->path);
    sglcore_free(env, file, sizeof *file);
}

int64_t sglstore_tensors_count(const sglstore_tensors *file) { return file->entries.count; }

const char *sglstore_tensors_entry(const sglstore_tensors *file, int64_t index, sgl_type *type, int64_t *offset, int64_t *bytes)
{
    const entry *e = &file->entries.data[index];
    if (type) *type = e->type;
    if (offset) *offset = file->data_start + e->offset;
    if (bytes) *bytes = e->bytes;
    return e->name;
}

sgl_status sglstore_tensors_read(sglstore_tensors *file, int64_t index, int64_t offset, void *data, int64_t bytes)
{
    const entry *e = &file->entries.data[index];
    if (offset < 0 || bytes < 0 || offset > e->bytes - bytes) return corrupt(file, e->name, "a read beyond its data");
    return read_exactly(file, data, (size_t)bytes, file->data_start + e->offset + offset);
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

static sgl_status add_header_entry(sglcore_env *env, json_t *header, const sglstore_source *source, int64_t offset, int64_t bytes)
{
    const char *dtype = dtype_text(source->type.dtype);
    if (!dtype || bytes < 0)
        return sglcore_fail(env, SGL_UNSUPPORTED, "%s: a safetensors file cannot hold dtype %s of this shape", source->name,
                            sgl_dtype_name(source->type.dtype));
    json_t *shape = json_array();
    int bad = 0;
    for (int i = 0; i < source->type.rank; i++) bad |= json_array_append_new(shape, json_integer(source->type.dims[i]));
    json_t *value = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets", (json_int_t)offset,
                              (json_int_t)(offset + bytes));
    if (bad || !value || json_object_get(header, source->name)) {
        json_decref(value);
        return sglcore_fail(env, bad || !value ? SGL_OUT_OF_MEMORY : SGL_INVALID_ARGUMENT,
                            "%s: the header entry could not be made (twice the same name, or no memory)", source->name);
    }
    if (json_object_set_new(header, source->name, value) != 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "'%s': a tensor's name must be UTF-8 text", source->name);
    return SGL_OK;
}

/* The 8 length bytes and the header, padded with spaces. */
static sgl_status make_header(sglcore_env *env, const sglstore_source *sources, int64_t count, sglcore_text *text)
{
    json_t *header = json_object();
    int64_t offset = 0;
    sgl_status status = header ? SGL_OK : sglcore_fail(env, SGL_OUT_OF_MEMORY, "no memory for a safetensors header");
    for (int64_t i = 0; i < count && status == SGL_OK; i++) {
        int64_t bytes = sglstore_bytes_of(&sources[i].type);
        status = add_header_entry(env, header, &sources[i], offset, bytes);
        offset += bytes;
    }
    char *dumped = status == SGL_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (status != SGL_OK) return status;
    if (!dumped) return sglcore_fail(env, SGL_OUT_OF_MEMORY, "no memory for a safetensors header");
    size_t length = strlen(dumped), padded = (8 + length + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN - 8;
    char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (char)((uint64_t)padded >> (8 * i) & 0xff);
    status = sglcore_text_bytes(env, text, prefix, sizeof prefix);
    if (status == SGL_OK) status = sglcore_text_bytes(env, text, dumped, length);
    for (size_t i = length; i < padded && status == SGL_OK; i++) status = sglcore_text_bytes(env, text, " ", 1);
    free(dumped);
    return status;
}

static sgl_status write_source(sglcore_env *env, int fd, const char *path, const sglstore_source *source, char *piece,
                               sglcore_hash *hash)
{
    int64_t bytes = sglstore_bytes_of(&source->type);
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t at = 0; at < bytes; at += SGLSTORE_PIECE) {
        int64_t now = bytes - at < SGLSTORE_PIECE ? bytes - at : SGLSTORE_PIECE;
        SGLCORE_TRY(source->read(source->user, at, piece, now));
        sglcore_hasher_add(&hasher, piece, (size_t)now);
        if (env->io->write(env->io->user, fd, piece, (size_t)now) != 0) return sglcore_fail_io(env, "write", path);
    }
    if (hash) *hash = sglcore_hasher_end(&hasher);
    return SGL_OK;
}

static sgl_status write_all(sglcore_env *env, int fd, const char *path, const sglstore_source *sources, int64_t count,
                            sglcore_hash *hashes)
{
    sglcore_text header = { 0 };
    char *piece = sglcore_alloc(env, SGLSTORE_PIECE);
    sgl_status status = piece ? make_header(env, sources, count, &header) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK && env->io->write(env->io->user, fd, header.data, (size_t)header.count) != 0)
        status = sglcore_fail_io(env, "write", path);
    for (int64_t i = 0; i < count && status == SGL_OK; i++)
        status = write_source(env, fd, path, &sources[i], piece, hashes ? &hashes[i] : NULL);
    if (status == SGL_OK && env->io->sync(env->io->user, fd) != 0) status = sglcore_fail_io(env, "sync", path);
    sglcore_text_free(env, &header);
    sglcore_free(env, piece, SGLSTORE_PIECE);
    return status;
}

sgl_status sglstore_tensors_write(sglcore_env *env, const char *path, const sglstore_source *sources, int64_t count,
                                  sglcore_hash *hashes)
{
    int fd;
    if (env->io->open_write(env->io->user, path, &fd) != 0) return sglcore_fail_io(env, "create", path);
    sgl_status status = write_all(env, fd, path, sources, count, hashes);
    if (env->io->close(env->io->user, fd) != 0 && status == SGL_OK) status = sglcore_fail_io(env, "close", path);
    return status;
}
