/* tokens.c -- token files: named, opened, their format found and checked, cut into windows. (tokens_read.c reads them.)
 *
 * Comes in: paths of byte texts, raw uint16/uint32 files, or files headed as llm.c's. Goes out: a set of files whose windows
 * are counted. A window is seq + 1 tokens of one file at a stride of seq; the last share of all tokens is held out. Odd
 * invariant: what the name or the header of a file contradicts is refused, and no format is guessed against the odds: wrong
 * tokens train as quietly as right ones. */
#include <string.h>

#include "core/io.h"
#include "store/tokens.h"

enum { LLMC_HEADER = 256 * 4, BYTE_VOCAB = 256 };

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

/* What a file begins with, as far as it goes. */
typedef struct file_head {
    uint32_t magic, version, count;
} file_head;

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* The kind of the header that a file begins with, -1: none. */
static int llmc_kind(const sglstore_token_file *f, const file_head *head)
{
    for (int i = 0; i < LLMC_KINDS && f->bytes >= LLMC_HEADER; i++)
        if (head->magic == llmc_kinds[i].magic) return i;
    return -1;
}

/* From content, then from the name. */
static int guess_format(const sglstore_token_file *f, const file_head *head)
{
    if (llmc_kind(f, head) >= 0) return LLMC;
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

static sgl_status check_llmc(sglcore_env *env, sglstore_token_file *f, const file_head *head)
{
    if (f->bytes < LLMC_HEADER)
        return sglcore_fail(env, SGL_CORRUPT, "%s: %lld bytes, shorter than the header of %d", f->path,
                            (long long)f->bytes, LLMC_HEADER);
    int kind = llmc_kind(f, head);
    if (kind < 0)
        return sglcore_fail(env, SGL_CORRUPT, "%s: offset 0: the magic number is %u, not %u or %u", f->path,
                            head->magic, llmc_kinds[0].magic, llmc_kinds[1].magic);
    if (head->version != llmc_kinds[kind].version)
        return sglcore_fail(env, SGL_CORRUPT,
                            "%s: offset 4: version %u; with this magic number only version %u is read", f->path,
                            head->version, llmc_kinds[kind].version);
    f->start = LLMC_HEADER;
    f->width = llmc_kinds[kind].width;
    int64_t told = head->count, bytes = f->bytes - LLMC_HEADER;
    if (told * f->width != bytes)
        return sglcore_fail(env, SGL_CORRUPT,
                            "%s: offset 8: the header tells %lld tokens of %d bytes, the file holds %lld bytes of them",
                            f->path, (long long)told, f->width, (long long)bytes);
    return SGL_OK;
}

/* Raw tokens: what would be read, quietly, as something that it is not. */
static sgl_status check_raw(const sglstore_tokens *t, const sglstore_token_file *f, const file_head *head,
                            const char *named, int format)
{
    if (llmc_kind(f, head) >= 0)
        return sglcore_fail(t->env, SGL_CORRUPT,
                            "%s: offset 0: it begins with the header of llm.c (magic number %u), which format %s would "
                            "read as tokens; leave the format out, or give \"llmc\"",
                            f->path, head->magic, formats[format]);
    if (!named && format == BYTES && t->vocab > BYTE_VOCAB)
        return sglcore_fail(t->env, SGL_INVALID_ARGUMENT,
                            "%s: neither its name (.bin, .u16, .u32) nor a header tells how wide its tokens are, and a "
                            "vocabulary of %lld is more than bytes have; give format = \"u16\", \"u32\", \"llmc\" or "
                            "\"bytes\"",
                            f->path, (long long)t->vocab);
    return SGL_OK;
}

static sgl_status read_head(sglstore_tokens *t, sglstore_token_file *f, file_head *head)
{
    *head = (file_head){ 0 }; /* little-endian, as the hosts are */
    return f->bytes < (int64_t)sizeof *head ? SGL_OK : sglstore_tokens_bytes(t, f, 0, head, sizeof *head);
}

static sgl_status take_format(sglstore_tokens *t, sglstore_token_file *f, const char *name)
{
    sglcore_env *env = t->env;
    file_head head;
    SGLCORE_TRY(read_head(t, f, &head));
    int format = guess_format(f, &head);
    if (name) SGLCORE_TRY(find_format(env, name, &format));
    if (f->bytes == 0) return sglcore_fail(env, SGL_CORRUPT, "%s: the file is empty", f->path);
    SGLCORE_TRY(format == LLMC ? check_llmc(env, f, &head) : check_raw(t, f, &head, name, format));
    if (format != LLMC) f->width = format == BYTES ? 1 : format == U16 ? 2 : 4;
    int64_t bytes = f->bytes - f->start;
    if (bytes % f->width)
        return sglcore_fail(
            env, SGL_CORRUPT,
            "%s: offset %lld: %lld bytes are left, a token takes %d; the file is cut off or not of format %s", f->path,
            (long long)(f->start + bytes / f->width * f->width), (long long)(bytes % f->width), f->width,
            formats[format]);
    f->count = bytes / f->width;
    return SGL_OK;
}

static sgl_status name_file(sglcore_env *env, sglstore_token_file *f, const char *path)
{
    size_t length = strlen(path) + 1;
    f->path = sglcore_alloc(env, length);
    if (!f->path) return SGL_OUT_OF_MEMORY;
    memcpy(f->path, path, length);
    return SGL_OK;
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

static sgl_status open_files(sglstore_tokens *t, const sglstore_paths *paths, const char *format)
{
    t->files = sglcore_alloc_zero(t->env, (size_t)paths->list.count * sizeof *t->files);
    if (!t->files) return SGL_OUT_OF_MEMORY;
    t->file_count = (int)paths->list.count;
    for (int i = 0; i < t->file_count; i++) t->files[i].fd = -1;
    for (int i = 0; i < t->file_count; i++) {
        sglstore_token_file *f = &t->files[i];
        SGLCORE_TRY(name_file(t->env, f, paths->list.data[i]));
        SGLCORE_TRY(sglstore_tokens_reach(t, f));
        SGLCORE_TRY(take_format(t, f, format));
        if (f->count <= t->seq)
            return sglcore_fail(t->env, SGL_CORRUPT,
                                "%s: offset %lld: the file ends after %lld tokens; one window takes seq + 1 = %lld",
                                f->path, (long long)f->bytes, (long long)f->count, (long long)t->seq + 1);
    }
    return SGL_OK;
}

static sgl_status open_all(sglstore_tokens *t, const sgl_tokens_config *c)
{
    SGLCORE_TRY(check_config(t->env, c));
    t->seq = c->seq;
    t->batch = c->batch;
    t->vocab = c->vocab;
    t->seed = c->seed;
    t->window_bytes = (c->seq + 1) * (int64_t)sizeof(uint32_t);
    t->window = sglcore_alloc(t->env, (size_t)t->window_bytes);
    if (!t->window) return SGL_OUT_OF_MEMORY;
    sglstore_paths paths;
    sgl_status status = sglstore_paths_list(t->env, c->paths, c->path_count, &paths);
    if (status == SGL_OK) status = open_files(t, &paths, c->format);
    sglstore_paths_free(&paths);
    return status == SGL_OK ? cut_files(t, c) : status;
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
        if (f->fd >= 0) (void)env->io->close(env->io->user, f->fd); /* nothing was written through it */
        if (f->path) sglcore_free(env, f->path, strlen(f->path) + 1);
    }
    sglcore_free(env, tokens->files, (size_t)tokens->file_count * sizeof *tokens->files);
    sglcore_free(env, tokens->window, (size_t)tokens->window_bytes);
    sglcore_free(env, tokens, sizeof *tokens);
}

sglstore_tokens_sizes sglstore_tokens_sizes_of(const sglstore_tokens *tokens) { return tokens->sizes; }
