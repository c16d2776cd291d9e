/* tokens.c -- token files: mapped, checked, cut into windows, shuffled by a counter.
 *
 * Comes in: paths of byte texts, raw uint16/uint32 files, or files headed as llm.c's. Goes out: batches i32 [batch, seq] of
 * inputs and targets for a batch number; nothing else is state, so that a data cursor is one number. A window is seq + 1
 * tokens of one file at a stride of seq. The last share of all tokens is held out. Each epoch is a permutation of the
 * training windows (a Feistel network, Luby and Rackoff 1988, with cycle walking) over a grid that is moved by a keyed
 * amount, so that every position comes to be seen. */
#include <string.h>

#include "core/io.h"
#include "store/tokens.h"

enum { LLMC_HEADER = 256 * 4, ROUNDS = 4 };

/* The two headers that llm.c's dev/data/data_common.py writes: 256 int32, of which the first three are these and the
 * number of tokens. */
static const struct {
    uint32_t magic, version;
    int width;
} llmc_kinds[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };
enum { LLMC_KINDS = sizeof llmc_kinds / sizeof llmc_kinds[0] };

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

static const char *const formats[] = { "bytes", "u16", "u32", "llmc" };
enum { FORMATS = 4, BYTES = 0, U16 = 1, U32 = 2, LLMC = 3 };

static uint32_t word_at(const unsigned char *data, int64_t at)
{
    return (uint32_t)data[at] | (uint32_t)data[at + 1] << 8 | (uint32_t)data[at + 2] << 16 |
           (uint32_t)data[at + 3] << 24;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* The kind of the header that a file begins with, -1: none. */
static int llmc_kind(const sglstore_token_file *f)
{
    for (int i = 0; i < LLMC_KINDS && f->mapped_bytes >= LLMC_HEADER; i++)
        if (word_at(f->mapped, 0) == llmc_kinds[i].magic) return i;
    return -1;
}

/* From content, then from the name. */
static int guess_format(const sglstore_token_file *f)
{
    if (llmc_kind(f) >= 0) return LLMC;
    if (ends_with(f->path, ".bin") || ends_with(f->path, ".u16")) return U16;
    return ends_with(f->path, ".u32") ? U32 : BYTES;
}

static sgl_status find_format(sglcore_env *env, const char *name, int *format)
{
    for (*format = 0; *format < FORMATS; ++*format)
        if (strcmp(name, formats[*format]) == 0) return SGL_OK;
    const char *nearest = sglcore_nearest(name, formats, FORMATS);
    return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                        "there is no token format '%s'%s%s%s; there are bytes, u16, u32 and llmc", name,
                        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static sgl_status check_llmc(sglcore_env *env, sglstore_token_file *f)
{
    if (f->mapped_bytes < LLMC_HEADER)
        return sglcore_fail(env, SGL_CORRUPT, "%s: %lld bytes, shorter than the header of %d", f->path,
                            (long long)f->mapped_bytes, LLMC_HEADER);
    int kind = llmc_kind(f);
    if (kind < 0)
        return sglcore_fail(env, SGL_CORRUPT, "%s: offset 0: the magic number is %u, not %u or %u", f->path,
                            word_at(f->mapped, 0), llmc_kinds[0].magic, llmc_kinds[1].magic);
    if (word_at(f->mapped, 4) != llmc_kinds[kind].version)
        return sglcore_fail(env, SGL_CORRUPT,
                            "%s: offset 4: version %u; with this magic number only version %u is read", f->path,
                            word_at(f->mapped, 4), llmc_kinds[kind].version);
    f->start = LLMC_HEADER;
    f->width = llmc_kinds[kind].width;
    int64_t told = word_at(f->mapped, 8), bytes = f->mapped_bytes - LLMC_HEADER;
    if (told * f->width != bytes)
        return sglcore_fail(env, SGL_CORRUPT,
                            "%s: offset 8: the header tells %lld tokens of %d bytes, the file holds %lld bytes of them",
                            f->path, (long long)told, f->width, (long long)bytes);
    return SGL_OK;
}

static sgl_status take_format(sglcore_env *env, sglstore_token_file *f, const char *name)
{
    int format = guess_format(f);
    if (name) SGLCORE_TRY(find_format(env, name, &format));
    if (f->mapped_bytes == 0) return sglcore_fail(env, SGL_CORRUPT, "%s: the file is empty", f->path);
    if (format == LLMC)
        SGLCORE_TRY(check_llmc(env, f));
    else
        f->width = format == BYTES ? 1 : format == U16 ? 2 : 4;
    int64_t bytes = f->mapped_bytes - f->start;
    if (bytes % f->width)
        return sglcore_fail(
            env, SGL_CORRUPT,
            "%s: offset %lld: %lld bytes are left, a token takes %d; the file is cut off or not of format %s", f->path,
            (long long)(f->start + bytes / f->width * f->width), (long long)(bytes % f->width), f->width,
            formats[format]);
    f->count = bytes / f->width;
    return SGL_OK;
}

static sgl_status map_file(sglcore_env *env, sglstore_token_file *f, const char *path)
{
    const sglcore_io *io = env->io;
    int fd;
    size_t length = strlen(path) + 1;
    if (length == 1) return sglcore_fail(env, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
    f->path = sglcore_alloc(env, length);
    if (!f->path) return SGL_OUT_OF_MEMORY;
    memcpy(f->path, path, length);
    if (io->open_read(io->user, path, &fd) != 0) return sglcore_fail_io(env, "open", path);
    void *data = NULL;
    sgl_status status = SGL_OK;
    if (io->size(io->user, fd, &f->mapped_bytes) != 0)
        status = sglcore_fail_io(env, "read the size of", path);
    else if (f->mapped_bytes && io->map(io->user, fd, f->mapped_bytes, &data) != 0)
        status = sglcore_fail_io(env, "map", path);
    (void)io->close(io->user, fd); /* nothing was written through it, and the map lives on */
    f->mapped = data;
    return status;
}

static sgl_status check_config(sglcore_env *env, const sgl_tokens_config *c)
{
    if (!c->paths || c->path_count < 1)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
    if (c->seq < 1 || c->batch < 1 || c->vocab < 1 || c->seq > INT32_MAX || c->batch > INT32_MAX ||
        c->vocab > INT32_MAX)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "data: seq (%lld), batch (%lld) and vocab (%lld) must be at least 1 and below 2^31",
                            (long long)c->seq, (long long)c->batch, (long long)c->vocab);
    if (!(c->held_out >= 0 && c->held_out <= 0.5))
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "data: held_out must be within 0 .. 0.5, not %g", c->held_out);
    return SGL_OK;
}

/* Windows of seq + 1 tokens at a stride of seq that fit into `count` tokens. */
static int64_t windows_in(int64_t count, int64_t seq) { return count > seq ? (count - 1) / seq : 0; }

enum { MOVABLE = 8 }; /* a file of that many windows gives one up, so that its grid can be moved by seq or more */

static void cut_file(sglstore_tokens *t, sglstore_token_file *f, int64_t before, int64_t cut)
{
    f->limit = cut - before < 0 ? 0 : cut - before > f->count ? f->count : cut - before;
    f->train_windows = windows_in(f->limit, t->seq);
    if (f->train_windows >= MOVABLE) f->train_windows--;
    f->slack = f->train_windows ? f->limit - 1 - f->train_windows * t->seq : 0;
    f->eval_windows = windows_in(f->count - f->limit, t->seq);
    t->sizes.train += f->limit;
    t->sizes.held_out += f->count - f->limit;
    t->train_windows += f->train_windows;
    t->eval_windows += f->eval_windows;
}

static sgl_status check_sizes(const sglstore_tokens *t)
{
    const char *others = t->file_count > 1 ? " and the other files" : "";
    if (t->sizes.train_batches == 0)
        return sglcore_fail(t->env, SGL_CORRUPT,
                            "%s%s: %lld tokens for training make %lld windows of %lld; a batch needs %lld",
                            t->files[0].path, others, (long long)t->sizes.train, (long long)t->train_windows,
                            (long long)t->seq + 1, (long long)t->batch);
    if (t->sizes.held_out > 0 && t->sizes.eval_batches == 0)
        sglcore_log(t->env, SGL_LOG_WARNING,
                    "%s%s: the %lld tokens held out make %lld windows of %lld, fewer than a batch of %lld: there will "
                    "be no evaluation",
                    t->files[0].path, others, (long long)t->sizes.held_out, (long long)t->eval_windows,
                    (long long)t->seq + 1, (long long)t->batch);
    return SGL_OK;
}

static sgl_status cut_files(sglstore_tokens *t, const sgl_tokens_config *c)
{
    int64_t total = 0, before = 0;
    for (int i = 0; i < t->file_count; i++) total += t->files[i].count;
    int64_t cut = total - (int64_t)((double)total * c->held_out);
    for (int i = 0; i < t->file_count; before += t->files[i].count, i++) cut_file(t, &t->files[i], before, cut);
    t->sizes.batch = t->batch;
    t->sizes.seq = t->seq;
    t->sizes.train_batches = t->train_windows / t->batch;
    t->sizes.eval_batches = t->eval_windows / t->batch;
    return check_sizes(t);
}

static sgl_status open_all(sglstore_tokens *t, const sgl_tokens_config *c)
{
    SGLCORE_TRY(check_config(t->env, c));
    t->seq = c->seq;
    t->batch = c->batch;
    t->vocab = c->vocab;
    t->seed = c->seed;
    t->files = sglcore_alloc_zero(t->env, (size_t)c->path_count * sizeof *t->files);
    if (!t->files) return SGL_OUT_OF_MEMORY;
    t->file_count = c->path_count;
    for (int i = 0; i < c->path_count; i++) {
        if (!c->paths[i]) return sglcore_fail(t->env, SGL_INVALID_ARGUMENT, "no data file is named: give --data FILE");
        SGLCORE_TRY(map_file(t->env, &t->files[i], c->paths[i]));
        SGLCORE_TRY(take_format(t->env, &t->files[i], c->format));
        if (t->files[i].count <= t->seq)
            return sglcore_fail(t->env, SGL_CORRUPT,
                                "%s: offset %lld: the file ends after %lld tokens; one window takes seq + 1 = %lld",
                                c->paths[i], (long long)t->files[i].mapped_bytes, (long long)t->files[i].count,
                                (long long)t->seq + 1);
    }
    return cut_files(t, c);
}

sgl_status sglstore_tokens_open(sglcore_env *env, const sgl_tokens_config *config, sglstore_tokens **tokens)
{
    *tokens = NULL;
    sglstore_tokens *t = sglcore_alloc_zero(env, sizeof *t);
    if (!t) return SGL_OUT_OF_MEMORY;
    t->env = env;
    sgl_status status = open_all(t, config);
    if (status != SGL_OK) {
        sglstore_tokens_free(t);
        return status;
    }
    *tokens = t;
    return SGL_OK;
}

void sglstore_tokens_free(sglstore_tokens *tokens)
{
    if (!tokens) return;
    sglcore_env *env = tokens->env;
    for (int i = 0; i < tokens->file_count; i++) {
        sglstore_token_file *f = &tokens->files[i];
        if (f->mapped) env->io->unmap(env->io->user, (void *)(uintptr_t)f->mapped, f->mapped_bytes);
        if (f->path) sglcore_free(env, f->path, strlen(f->path) + 1);
    }
    sglcore_free(env, tokens->files, (size_t)tokens->file_count * sizeof *tokens->files);
    sglcore_free(env, tokens, sizeof *tokens);
}

sglstore_tokens_sizes sglstore_tokens_sizes_of(const sglstore_tokens *tokens) { return tokens->sizes; }

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

static uint32_t token_at(const sglstore_token_file *f, int64_t index)
{
    const unsigned char *at = f->mapped + f->start + index * f->width;
    if (f->width == 1) return at[0];
    if (f->width == 2) return (uint32_t)at[0] | (uint32_t)at[1] << 8;
    return word_at(at, 0);
}

static sgl_status read_window(const sglstore_tokens *t, const sglstore_token_file *f, int64_t first, int32_t *inputs,
                              int32_t *targets)
{
    for (int64_t i = 0; i <= t->seq; i++) {
        uint32_t token = token_at(f, first + i);
        if (token >= (uint64_t)t->vocab)
            return sglcore_fail(t->env, SGL_CORRUPT, "%s: offset %lld: token %u is outside the vocabulary of %lld",
                                f->path, (long long)(f->start + (first + i) * f->width), token, (long long)t->vocab);
        if (i < t->seq) inputs[i] = (int32_t)token;
        if (i > 0) targets[i - 1] = (int32_t)token;
    }
    return SGL_OK;
}

/* ---- order ------------------------------------------------------------------------------------------------------------------ */

static uint32_t keyed(const sglstore_tokens *t, uint64_t epoch, uint32_t purpose, uint32_t value)
{
    uint32_t counter[4] = { value, purpose, (uint32_t)epoch, (uint32_t)(epoch >> 32) }, out[4];
    uint32_t key[2] = { (uint32_t)t->seed, (uint32_t)(t->seed >> 32) };
    sglcore_philox(counter, key, out);
    return out[0];
}

/* A bijection of 0 .. count - 1: halves of an even number of bits, stepped until the result is in range. */
static int64_t permuted(const sglstore_tokens *t, uint64_t epoch, int64_t count, int64_t index)
{
    int half = 1;
    while ((int64_t)1 << (2 * half) < count) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, value = (uint64_t)index;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (keyed(t, epoch, round + 1, (uint32_t)right) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while ((int64_t)value >= count);
    return (int64_t)value;
}

/* The file that holds window number `window` of those counted by `count_of`, and its number there. */
static const sglstore_token_file *file_of(const sglstore_tokens *t, bool is_eval, int64_t *window)
{
    const sglstore_token_file *f = t->files;
    while (*window >= (is_eval ? f->eval_windows : f->train_windows)) {
        *window -= is_eval ? f->eval_windows : f->train_windows;
        f++;
    }
    return f;
}

sgl_status sglstore_tokens_train(sglstore_tokens *t, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    uint64_t epoch = (uint64_t)(cursor / t->sizes.train_batches);
    int64_t first = cursor % t->sizes.train_batches * t->batch;
    for (int64_t row = 0; row < t->batch; row++) {
        int64_t window = permuted(t, epoch, t->train_windows, first + row);
        const sglstore_token_file *f = file_of(t, false, &window);
        int64_t moved = epoch == 0 ? 0 : (int64_t)(keyed(t, epoch, 0, 0) % (uint64_t)(f->slack + 1));
        SGLCORE_TRY(read_window(t, f, moved + window * t->seq, inputs + row * t->seq, targets + row * t->seq));
    }
    return SGL_OK;
}

sgl_status sglstore_tokens_eval(sglstore_tokens *t, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    if (cursor >= t->sizes.eval_batches)
        return sglcore_fail(t->env, SGL_NOT_FOUND, "the held-out part has %lld batches",
                            (long long)t->sizes.eval_batches);
    for (int64_t row = 0; row < t->batch; row++) {
        int64_t window = cursor * t->batch + row;
        const sglstore_token_file *f = file_of(t, true, &window);
        SGLCORE_TRY(read_window(t, f, f->limit + window * t->seq, inputs + row * t->seq, targets + row * t->seq));
    }
    return SGL_OK;
}
