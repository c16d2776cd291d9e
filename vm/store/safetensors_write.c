/* safetensors_write.c -- writes safetensors files.
 *
 * In: sources that give their bytes piece by piece. Out: a synced file that Python's safetensors reads, and the hash of
 * each tensor and of the header. Odd invariant: data stand by width of their elements, widest first, and begin at a
 * multiple of 64 bytes: with no holes allowed, only so is every tensor aligned for whoever maps the file. */
#include <string.h>

#include "store/internal.h"
#include "store/json.h"

enum { DATA_ALIGNMENT = 64 };

typedef struct writer {
    sglcore_env *env;
    const char *path;
    int fd;
    const sglstore_source *sources;
    int64_t count;
    SGLCORE_VEC(int64_t) order; /* of the data: indices of sources */
    sglcore_text header;        /* with the 8 bytes of its length */
    int64_t data_bytes;
    sglcore_hash *hashes; /* by source; may be NULL */
    char *piece;
} writer;

/* ---- the header ------------------------------------------------------------------------------------------------- */

static sgl_status check_source(const writer *w, const sglstore_source *source)
{
    const char *name = source->name;
    if (name == NULL || name[0] == 0 || strcmp(name, "__metadata__") == 0)
        return sglcore_fail(w->env, SGL_INVALID_ARGUMENT, "%s: a tensor cannot be named '%s'", w->path,
                            name ? name : "");
    if (sglstore_dtype_text(source->type.dtype) == NULL)
        return sglcore_fail(w->env, SGL_UNSUPPORTED, "%s: %s: safetensors files have no dtype %s", w->path, name,
                            sgl_dtype_name(source->type.dtype));
    if (source->type.rank < 0 || source->type.rank > SGL_MAX_RANK || sglstore_bytes_of(&source->type) < 0)
        return sglcore_fail(w->env, SGL_INVALID_ARGUMENT, "%s: %s: the shape is none", w->path, name);
    return SGL_OK;
}

static sgl_status check_sources(const writer *w)
{
    sglcore_strings *names;
    SGLCORE_TRY(sglcore_strings_new(w->env, &names));
    sgl_status status = SGL_OK;
    for (int64_t i = 0; i < w->count && status == SGL_OK; i++) {
        uint32_t id;
        status = check_source(w, &w->sources[i]);
        if (status == SGL_OK) status = sglcore_intern(names, w->sources[i].name, strlen(w->sources[i].name), &id);
        if (status == SGL_OK && id <= i)
            status = sglcore_fail(w->env, SGL_INVALID_ARGUMENT, "%s: there are two tensors '%s'", w->path,
                                  w->sources[i].name);
    }
    sglcore_strings_free(names);
    return status;
}

static sgl_status order_sources(writer *w)
{
    SGLCORE_TRY(sglcore_vec_reserve(w->env, &w->order, w->count));
    for (int bits = 64; bits >= 8; bits /= 2)
        for (int64_t i = 0; i < w->count; i++)
            if (sglcore_dtype_bits(w->sources[i].type.dtype) == bits) w->order.data[w->order.count++] = i;
    return SGL_OK;
}

static sgl_status add_entry(writer *w, const sglstore_source *source, bool first)
{
    int64_t end;
    if (__builtin_add_overflow(w->data_bytes, sglstore_bytes_of(&source->type), &end))
        return sglcore_fail(w->env, SGL_INVALID_ARGUMENT, "%s: %s: more bytes than can be counted", w->path,
                            source->name);
    if (!first) SGLCORE_TRY(sglcore_text_bytes(w->env, &w->header, ",", 1));
    SGLCORE_TRY(sglcore_text_quote(w->env, &w->header, source->name));
    SGLCORE_TRY(sglcore_text_add(w->env, &w->header, ":{\"dtype\":\"%s\",\"shape\":[",
                                 sglstore_dtype_text(source->type.dtype)));
    for (int i = 0; i < source->type.rank; i++)
        SGLCORE_TRY(sglcore_text_add(w->env, &w->header, i > 0 ? ",%lld" : "%lld", (long long)source->type.dims[i]));
    SGLCORE_TRY(sglcore_text_add(w->env, &w->header, "],\"data_offsets\":[%lld,%lld]}", (long long)w->data_bytes,
                                 (long long)end));
    w->data_bytes = end;
    return SGL_OK;
}

/* Padded with spaces, as the format wants it. */
static sgl_status make_header(writer *w)
{
    static const char blanks[DATA_ALIGNMENT + 1] = "                                                                ";
    SGLCORE_TRY(sglcore_text_bytes(w->env, &w->header, blanks, 8)); /* the place of the length */
    SGLCORE_TRY(sglcore_text_bytes(w->env, &w->header, "{", 1));
    for (int64_t i = 0; i < w->order.count; i++) SGLCORE_TRY(add_entry(w, &w->sources[w->order.data[i]], i == 0));
    SGLCORE_TRY(sglcore_text_bytes(w->env, &w->header, "}", 1));
    size_t over = (size_t)w->header.count % DATA_ALIGNMENT;
    if (over > 0) SGLCORE_TRY(sglcore_text_bytes(w->env, &w->header, blanks, DATA_ALIGNMENT - over));
    int64_t length = w->header.count - 8;
    if (length > SGLSTORE_HEADER_MOST)
        return sglcore_fail(w->env, SGL_LIMIT, "%s: a header of %lld bytes, the format allows %d", w->path,
                            (long long)length, SGLSTORE_HEADER_MOST);
    for (int i = 0; i < 8; i++) w->header.data[i] = (char)((uint64_t)length >> (8 * i) & 0xFF);
    return SGL_OK;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static sgl_status write_bytes(const writer *w, const void *data, int64_t bytes)
{
    const sglcore_io *io = w->env->io;
    if (io->write(io->user, w->fd, data, (size_t)bytes) == 0) return SGL_OK;
    return sglcore_fail_io(w->env, "write", w->path);
}

static sgl_status write_source(const writer *w, int64_t index)
{
    const sglstore_source *source = &w->sources[index];
    int64_t bytes = sglstore_bytes_of(&source->type);
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t at = 0; at < bytes; at += SGLSTORE_PIECE) {
        int64_t now = bytes - at < SGLSTORE_PIECE ? bytes - at : SGLSTORE_PIECE;
        SGLCORE_TRY(source->read(source->user, at, w->piece, now));
        sglcore_hasher_add(&hasher, w->piece, (size_t)now);
        SGLCORE_TRY(write_bytes(w, w->piece, now));
    }
    if (w->hashes != NULL) w->hashes[index] = sglcore_hasher_end(&hasher);
    return SGL_OK;
}

static sgl_status write_all(const writer *w)
{
    const sglcore_io *io = w->env->io;
    SGLCORE_TRY(write_bytes(w, w->header.data, w->header.count));
    for (int64_t i = 0; i < w->order.count; i++) SGLCORE_TRY(write_source(w, w->order.data[i]));
    return io->sync(io->user, w->fd) == 0 ? SGL_OK : sglcore_fail_io(w->env, "sync", w->path);
}

static sgl_status write_file(writer *w)
{
    const sglcore_io *io = w->env->io;
    if (io->open_write(io->user, w->path, &w->fd) != 0) return sglcore_fail_io(w->env, "create", w->path);
    sgl_status status = write_all(w);
    if (io->close(io->user, w->fd) != 0 && status == SGL_OK) status = sglcore_fail_io(w->env, "close", w->path);
    return status;
}

sgl_status sglstore_tensors_write(sglcore_env *env, const char *path, const sglstore_source *sources, int64_t count,
                                  sglcore_hash *hashes, sglstore_extent *extent)
{
    writer w = { .env = env, .path = path, .sources = sources, .count = count, .hashes = hashes };
    sgl_status status = check_sources(&w);
    if (status == SGL_OK) status = order_sources(&w);
    if (status == SGL_OK) status = make_header(&w);
    if (status == SGL_OK) {
        w.piece = sglcore_alloc(env, SGLSTORE_PIECE);
        status = w.piece != NULL ? write_file(&w) : SGL_OUT_OF_MEMORY;
    }
    if (status == SGL_OK && extent != NULL)
        *extent = (sglstore_extent){ w.header.count + w.data_bytes,
                                     sglcore_hash_bytes(w.header.data, (size_t)w.header.count) };
    sglcore_free(env, w.piece, SGLSTORE_PIECE);
    sglcore_text_free(env, &w.header);
    sglcore_vec_free(env, &w.order);
    return status;
}
