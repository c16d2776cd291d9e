/* safetensors.c -- reads safetensors files: 8 bytes of header length, a JSON header, dense little-endian data.
 *
 * In: a file that nobody trusts. Out: entries in the order of their data, whose ranges were all checked against the file's
 * size, their own types and each other. Odd invariant: an entry of an open file is inside the file as it was when it was
 * opened; a file that shrinks later gives a failed read. Format: github.com/huggingface/safetensors, "Format". */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "store/json.h"

typedef struct entry {
    const char *name; /* of file->names */
    sgl_type type;
    int64_t offset, bytes; /* offset from the start of the data */
    uint32_t id;           /* of the name; ids count in the order of the header */
} entry;

struct sglstore_tensors {
    sglcore_env *env;
    char *path;
    int fd;
    bool is_open;
    int64_t file_bytes, data_start, data_bytes;
    sglcore_hash header;
    SGLCORE_VEC(entry) entries;
    sglcore_strings *names;
    SGLCORE_VEC(int64_t) index_of; /* by id of a name */
};

/* ---- dtypes ----------------------------------------------------------------------------------------------------- */

static const char *const dtype_texts[SGL_DTYPE_COUNT] = {
    [SGL_F64] = "F64",        [SGL_F32] = "F32", [SGL_BF16] = "BF16", [SGL_F16] = "F16",   [SGL_F8E4M3] = "F8_E4M3",
    [SGL_F8E5M2] = "F8_E5M2", [SGL_I64] = "I64", [SGL_I32] = "I32",   [SGL_I16] = "I16",   [SGL_I8] = "I8",
    [SGL_U8] = "U8",          [SGL_U16] = "U16", [SGL_U32] = "U32",   [SGL_BOOL] = "BOOL",
};

const char *sglstore_dtype_text(sgl_dtype dtype)
{
    return (unsigned)dtype < SGL_DTYPE_COUNT ? dtype_texts[dtype] : NULL;
}

static bool dtype_of_text(const char *text, sgl_dtype *dtype)
{
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        if (dtype_texts[i] == NULL || strcmp(text, dtype_texts[i]) != 0) continue;
        *dtype = (sgl_dtype)i;
        return true;
    }
    return false;
}

int64_t sglstore_bytes_of(const sgl_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0 || __builtin_mul_overflow(count, type->dims[i], &count)) return -1;
    return sglcore_dtype_bytes(type->dtype, count);
}

/* ---- the header ------------------------------------------------------------------------------------------------- */

/* One member of an entry and which of them were there. */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };

static sgl_status read_shape(sglstore_json *json, sgl_type *type)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(json, '['));
    for (;;) {
        SGLCORE_TRY(sglstore_json_item(json, &more));
        if (!more) return SGL_OK;
        if (type->rank == SGL_MAX_RANK) return sglstore_json_fail(json, "more than %d dimensions", SGL_MAX_RANK);
        SGLCORE_TRY(sglstore_json_count(json, &type->dims[type->rank]));
        type->rank++;
    }
}

static sgl_status read_offsets(sglstore_json *json, entry *e)
{
    int64_t offsets[2] = { 0 };
    bool more = true;
    SGLCORE_TRY(sglstore_json_open(json, '['));
    for (int i = 0; i < 3; i++) {
        SGLCORE_TRY(sglstore_json_item(json, &more));
        if (more != (i < 2)) return sglstore_json_fail(json, "data_offsets are two numbers");
        if (more) SGLCORE_TRY(sglstore_json_count(json, &offsets[i]));
    }
    if (offsets[1] < offsets[0]) return sglstore_json_fail(json, "data_offsets end before they begin");
    e->offset = offsets[0];
    e->bytes = offsets[1] - offsets[0];
    return SGL_OK;
}

static sgl_status read_members(sglstore_json *json, sglcore_text *text, entry *e, int *has)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(json, '{'));
    for (;;) {
        SGLCORE_TRY(sglstore_json_member(json, text, &more));
        if (!more) return SGL_OK;
        int what = strcmp(text->data, "dtype") == 0          ? HAS_DTYPE
                   : strcmp(text->data, "shape") == 0        ? HAS_SHAPE
                   : strcmp(text->data, "data_offsets") == 0 ? HAS_OFFSETS
                                                             : 0;
        if (*has & what) return sglstore_json_fail(json, "%s is there twice", text->data);
        *has |= what;
        if (what == HAS_SHAPE) {
            SGLCORE_TRY(read_shape(json, &e->type));
        } else if (what == HAS_OFFSETS) {
            SGLCORE_TRY(read_offsets(json, e));
        } else if (what == HAS_DTYPE) {
            SGLCORE_TRY(sglstore_json_string(json, text));
            if (!dtype_of_text(text->data, &e->type.dtype))
                return sglstore_json_fail(json, "dtype '%.40s' is none that sgl has", text->data);
        } else {
            SGLCORE_TRY(sglstore_json_skip(json, NULL));
        }
    }
}

static sgl_status read_entry(sglstore_tensors *f, sglstore_json *json, sglcore_text *text, entry *e)
{
    int has = 0;
    SGLCORE_TRY(read_members(json, text, e, &has));
    if (!(has & HAS_DTYPE)) return sglcore_fail(f->env, SGL_CORRUPT, "the entry has no dtype");
    if (!(has & HAS_SHAPE)) return sglcore_fail(f->env, SGL_CORRUPT, "the entry has no shape");
    if (!(has & HAS_OFFSETS)) return sglcore_fail(f->env, SGL_CORRUPT, "the entry has no data_offsets");
    int64_t wanted = sglstore_bytes_of(&e->type);
    if (wanted < 0) return sglcore_fail(f->env, SGL_CORRUPT, "the shape has more elements than can be counted");
    if (e->bytes != wanted)
        return sglcore_fail(f->env, SGL_CORRUPT, "the data have %lld bytes, dtype and shape want %lld",
                            (long long)e->bytes, (long long)wanted);
    if (e->offset > f->data_bytes - e->bytes)
        return sglcore_fail(f->env, SGL_CORRUPT, "the data end at %lld, the file has %lld bytes of data",
                            (long long)(e->offset + e->bytes), (long long)f->data_bytes);
    return SGL_OK;
}

/* What the format allows there: an object of texts. sgl wants none of it. */
static sgl_status read_metadata(sglstore_json *json, sglcore_text *text)
{
    bool more;
    SGLCORE_TRY(sglstore_json_open(json, '{'));
    for (;;) {
        SGLCORE_TRY(sglstore_json_member(json, text, &more));
        if (!more) return SGL_OK;
        SGLCORE_TRY(sglstore_json_string(json, text));
    }
}

/* The name at hand becomes that of e; ids of interned names count from 1, so that a known one is a duplicate. */
static sgl_status take_name(sglstore_tensors *f, const sglstore_json *json, const sglcore_text *name, entry *e)
{
    if (name->count == 0) return sglstore_json_fail(json, "an entry has an empty name");
    SGLCORE_TRY(sglcore_intern(f->names, name->data, (size_t)name->count, &e->id));
    e->name = sglcore_string(f->names, e->id);
    return e->id > f->entries.count ? SGL_OK : sglstore_json_fail(json, "there are two entries '%.200s'", e->name);
}

static sgl_status read_entries(sglstore_tensors *f, sglstore_json *json, sglcore_text *text)
{
    bool more, metadata = false;
    SGLCORE_TRY(sglstore_json_open(json, '{'));
    for (;;) {
        SGLCORE_TRY(sglstore_json_member(json, text, &more));
        if (!more) return sglstore_json_end(json);
        sgl_status status;
        entry e = { 0 };
        if (strcmp(text->data, "__metadata__") == 0) {
            if (metadata) return sglstore_json_fail(json, "__metadata__ is there twice");
            metadata = true;
            status = read_metadata(json, text);
            if (status != SGL_OK) return sglcore_fail_at(f->env, status, "__metadata__");
            continue;
        }
        SGLCORE_TRY(take_name(f, json, text, &e));
        status = read_entry(f, json, text, &e);
        if (status != SGL_OK) return sglcore_fail_at(f->env, status, "%s", e.name);
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->entries, e));
    }
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : 1; /* empty ones stay as they stand in the header */
}

/* Data must be dense: each entry begins where the one before it ends, the last ends with the file. */
static sgl_status check_layout(sglstore_tensors *f)
{
    int64_t end = 0;
    if (f->entries.count > 0) qsort(f->entries.data, (size_t)f->entries.count, sizeof(entry), by_offset);
    for (int64_t i = 0; i < f->entries.count; i++) {
        const entry *e = &f->entries.data[i];
        if (e->offset < end)
            return sglcore_fail(f->env, SGL_CORRUPT, "%s: the data overlap those of %s", e->name, e[-1].name);
        if (e->offset > end)
            return sglcore_fail(f->env, SGL_CORRUPT, "%s: there is a hole of %lld bytes before the data", e->name,
                                (long long)(e->offset - end));
        end += e->bytes;
    }
    if (end != f->data_bytes)
        return sglcore_fail(f->env, SGL_CORRUPT, "offset %lld: %lld bytes behind the last entry",
                            (long long)(f->data_start + end), (long long)(f->data_bytes - end));
    return SGL_OK;
}

static sgl_status index_names(sglstore_tensors *f)
{
    SGLCORE_TRY(sglcore_vec_reserve(f->env, &f->index_of, f->entries.count + 1));
    f->index_of.count = f->entries.count + 1;
    f->index_of.data[0] = -1; /* the id of the empty name */
    for (int64_t i = 0; i < f->entries.count; i++) f->index_of.data[f->entries.data[i].id] = i;
    return SGL_OK;
}

static sgl_status parse_header(sglstore_tensors *f, const char *header, int64_t bytes)
{
    sglstore_json json = { .env = f->env, .text = header, .bytes = bytes };
    sglcore_text text = { 0 };
    SGLCORE_TRY(sglcore_strings_new(f->env, &f->names));
    sgl_status status = read_entries(f, &json, &text);
    sglcore_text_free(f->env, &text);
    if (status != SGL_OK) return sglcore_fail_at(f->env, status, "header");
    SGLCORE_TRY(check_layout(f));
    return index_names(f);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static sgl_status read_exactly(const sglstore_tensors *f, void *data, int64_t bytes, int64_t offset)
{
    size_t got = 0;
    const sglcore_io *io = f->env->io;
    if (io->read_at(io->user, f->fd, data, (size_t)bytes, offset, &got) != 0)
        return sglcore_fail_io(f->env, "read", f->path);
    if ((int64_t)got == bytes) return SGL_OK;
    return sglcore_fail(f->env, SGL_CORRUPT, "%s: the file ends at %lld; it was longer when it was opened", f->path,
                        (long long)(offset + (int64_t)got));
}

static sgl_status check_length(sglstore_tensors *f, uint64_t length)
{
    if (f->file_bytes < 8)
        return sglcore_fail(f->env, SGL_CORRUPT, "%lld bytes, fewer than the 8 of a header's length",
                            (long long)f->file_bytes);
    if (length > SGLSTORE_HEADER_MOST)
        return sglcore_fail(f->env, SGL_CORRUPT, "offset 0: a header of %llu bytes, the format allows %d",
                            (unsigned long long)length, SGLSTORE_HEADER_MOST);
    if ((int64_t)length > f->file_bytes - 8)
        return sglcore_fail(f->env, SGL_CORRUPT, "offset 0: a header of %llu bytes, the file has %lld",
                            (unsigned long long)length, (long long)(f->file_bytes - 8));
    return SGL_OK;
}

static sgl_status read_header(sglstore_tensors *f)
{
    unsigned char prefix[8] = { 0 };
    if (f->file_bytes >= 8) SGLCORE_TRY(read_exactly(f, prefix, sizeof prefix, 0));
    uint64_t length = 0;
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    sgl_status status = check_length(f, length);
    if (status != SGL_OK) return sglcore_fail_at(f->env, status, "%s", f->path);
    f->data_start = 8 + (int64_t)length;
    f->data_bytes = f->file_bytes - f->data_start;
    char *header = sglcore_alloc(f->env, (size_t)f->data_start);
    if (header == NULL) return sglcore_fail_at(f->env, SGL_OUT_OF_MEMORY, "%s", f->path);
    status = read_exactly(f, header, f->data_start, 0);
    if (status == SGL_OK) {
        f->header = sglcore_hash_bytes(header, (size_t)f->data_start);
        status = parse_header(f, header + 8, (int64_t)length);
        if (status != SGL_OK) sglcore_fail_at(f->env, status, "%s", f->path);
    }
    sglcore_free(f->env, header, (size_t)f->data_start);
    return status;
}

static sgl_status open_file(sglstore_tensors *f, const char *path)
{
    const sglcore_io *io = f->env->io;
    size_t bytes = strlen(path) + 1;
    f->path = sglcore_alloc(f->env, bytes);
    if (f->path == NULL) return SGL_OUT_OF_MEMORY;
    memcpy(f->path, path, bytes);
    if (io->open_read(io->user, path, &f->fd) != 0) return sglcore_fail_io(f->env, "open", path);
    f->is_open = true;
    if (io->size(io->user, f->fd, &f->file_bytes) != 0) return sglcore_fail_io(f->env, "read the size of", path);
    return read_header(f);
}

sgl_status sglstore_tensors_open(sglcore_env *env, const char *path, sglstore_tensors **file)
{
    *file = NULL;
    sglstore_tensors *f = sglcore_alloc_zero(env, sizeof *f);
    if (f == NULL) return SGL_OUT_OF_MEMORY;
    f->env = env;
    sgl_status status = open_file(f, path);
    if (status != SGL_OK) {
        sglstore_tensors_close(f);
        return status;
    }
    *file = f;
    return SGL_OK;
}

void sglstore_tensors_close(sglstore_tensors *file)
{
    if (file == NULL) return;
    sglcore_env *env = file->env;
    if (file->is_open) (void)env->io->close(env->io->user, file->fd); /* nothing was written through it */
    sglcore_vec_free(env, &file->index_of);
    sglcore_vec_free(env, &file->entries);
    sglcore_strings_free(file->names);
    if (file->path != NULL) sglcore_free(env, file->path, strlen(file->path) + 1);
    sglcore_free(env, file, sizeof *file);
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

int64_t sglstore_tensors_count(const sglstore_tensors *file) { return file->entries.count; }

const char *sglstore_tensors_entry(const sglstore_tensors *file, int64_t index, sgl_type *type, int64_t *offset,
                                   int64_t *bytes)
{
    const entry *e = &file->entries.data[index];
    if (type != NULL) *type = e->type;
    if (offset != NULL) *offset = file->data_start + e->offset;
    if (bytes != NULL) *bytes = e->bytes;
    return e->name;
}

sgl_status sglstore_tensors_find(sglstore_tensors *file, const char *name, int64_t *index)
{
    uint32_t id;
    SGLCORE_TRY(sglcore_intern(file->names, name, strlen(name), &id)); /* a name that is not there is kept with them */
    *index = id < file->index_of.count ? file->index_of.data[id] : -1;
    return SGL_OK;
}

sglstore_extent sglstore_tensors_extent(const sglstore_tensors *file)
{
    return (sglstore_extent){ file->file_bytes, file->header };
}

sgl_status sglstore_tensors_read(sglstore_tensors *file, int64_t index, int64_t offset, void *data, int64_t bytes)
{
    const entry *e = &file->entries.data[index];
    if (offset < 0 || bytes < 0 || bytes > e->bytes || offset > e->bytes - bytes)
        return sglcore_fail(file->env, SGL_INVALID_ARGUMENT, "%s: %s: %lld bytes from %lld on are not within its %lld",
                            file->path, e->name, (long long)bytes, (long long)offset, (long long)e->bytes);
    return read_exactly(file, data, bytes, file->data_start + e->offset + offset);
}
