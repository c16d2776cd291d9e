/* tokens_read.c -- reads what tokens.c opened: bytes of a file, windows, batches in their order, and the scan at the start.
 *
 * Comes in: a set of token files, a batch number. Goes out: batches i32 [batch, seq] of inputs and targets; nothing else is
 * state, so that a data cursor is one number. Each epoch is a permutation of the training windows (a Feistel network, Luby
 * and Rackoff 1988, with cycle walking) over a grid that is moved by a keyed amount, so that every position comes to be seen.
 * Odd invariant: files are read and not mapped. A map of a file that another process cuts off ends this one with a signal,
 * and a host with it; a read comes back short, and is an error that names the place. */
#include <errno.h>
#include <string.h>

#include "core/io.h"
#include "store/tokens.h"

enum { ROUNDS = 4 };

/* ---- bytes of a file ------------------------------------------------------------------------------------------------------- */

static sgl_status read_size(sglcore_env *env, sglstore_token_file *f)
{
    int64_t bytes;
    if (env->io->size(env->io->user, f->fd, &bytes) != 0) {
        if (errno == ESPIPE)
            return sglcore_fail(
                env, SGL_INVALID_ARGUMENT,
                "%s: it is a pipe or a device, and data are read at any place: write them to a file, and "
                "name that",
                f->path);
        return sglcore_fail_io(env, "read the size of", f->path);
    }
    if (!f->known) {
        f->known = true;
        f->bytes = bytes;
    }
    if (bytes == f->bytes) return SGL_OK;
    return sglcore_fail(env, SGL_CORRUPT, "%s: the file has changed: it had %lld bytes when it was opened, now %lld",
                        f->path, (long long)f->bytes, (long long)bytes);
}

static void leave(sglstore_tokens *t, sglstore_token_file *f)
{
    if (f->fd >= 0) (void)t->env->io->close(t->env->io->user, f->fd); /* nothing was written through it */
    f->fd = -1;
}

sgl_status sglstore_tokens_reach(sglstore_tokens *t, sglstore_token_file *f)
{
    sglcore_env *env = t->env;
    if (f->fd >= 0) return SGL_OK;
    if (t->opened[t->opened_next]) leave(t, t->opened[t->opened_next]);
    t->opened[t->opened_next] = NULL;
    int fd;
    if (env->io->open_read(env->io->user, f->path, &fd) != 0) return sglcore_fail_io(env, "open", f->path);
    f->fd = fd;
    sgl_status status = read_size(env, f);
    if (status != SGL_OK) {
        leave(t, f);
        return status;
    }
    t->opened[t->opened_next] = f;
    t->opened_next = (t->opened_next + 1) % SGLSTORE_TOKENS_OPENED;
    return SGL_OK;
}

sgl_status sglstore_tokens_bytes(sglstore_tokens *t, sglstore_token_file *f, int64_t offset, void *data, int64_t bytes)
{
    const sglcore_io *io = t->env->io;
    size_t got = 0;
    SGLCORE_TRY(sglstore_tokens_reach(t, f));
    if (io->read_at(io->user, f->fd, data, (size_t)bytes, offset, &got) != 0)
        return sglcore_fail_at(t->env, sglcore_fail_io(t->env, "read", f->path), "offset %lld", (long long)offset);
    if ((int64_t)got == bytes) return SGL_OK;
    return sglcore_fail(
        t->env, SGL_CORRUPT,
        "%s: offset %lld: the file ends before it; it had %lld bytes when it was opened, and was cut off", f->path,
        (long long)(offset + (int64_t)got), (long long)f->bytes);
}

/* ---- windows --------------------------------------------------------------------------------------------------------------- */

static uint32_t token_at(const void *data, int width, int64_t index)
{
    if (width == 1) return ((const uint8_t *)data)[index];
    return width == 2 ? ((const uint16_t *)data)[index] : ((const uint32_t *)data)[index];
}

static sgl_status refuse_token(const sglstore_tokens *t, const sglstore_token_file *f, int64_t index, uint32_t token)
{
    return sglcore_fail(t->env, SGL_CORRUPT, "%s: offset %lld: token %u is outside the vocabulary of %lld", f->path,
                        (long long)(f->start + index * f->width), token, (long long)t->vocab);
}

static sgl_status read_window(sglstore_tokens *t, sglstore_token_file *f, int64_t first, int32_t *inputs,
                              int32_t *targets)
{
    SGLCORE_TRY(sglstore_tokens_bytes(t, f, f->start + first * f->width, t->window, (t->seq + 1) * f->width));
    for (int64_t i = 0; i <= t->seq; i++) {
        uint32_t token = token_at(t->window, f->width, i);
        if (token >= (uint64_t)t->vocab) return refuse_token(t, f, first + i, token);
        if (i < t->seq) inputs[i] = (int32_t)token;
        if (i > 0) targets[i - 1] = (int32_t)token;
    }
    return SGL_OK;
}

/* ---- the scan -------------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 1 << 20 }; /* bytes, a multiple of every width */
static const int64_t scanned_most = (int64_t)1 << 30;

/* Lane by lane, so that compilers take many tokens at a time without being asked for more than -O2. */
#define LARGEST_OF(name, type)                                                                                         \
    static uint32_t name(const type *data, int64_t count)                                                              \
    {                                                                                                                  \
        enum { LANES = 64 };                                                                                           \
        type lanes[LANES] = { 0 }, most = 0;                                                                           \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES)                                                                         \
            for (int k = 0; k < LANES; k++) lanes[k] = data[i + k] > lanes[k] ? data[i + k] : lanes[k];                \
        for (; i < count; i++) most = data[i] > most ? data[i] : most;                                                 \
        for (int k = 0; k < LANES; k++) most = lanes[k] > most ? lanes[k] : most;                                      \
        return most;                                                                                                   \
    }
LARGEST_OF(largest_u8, uint8_t)
LARGEST_OF(largest_u16, uint16_t)
LARGEST_OF(largest_u32, uint32_t)

static uint32_t largest(const void *data, int width, int64_t count)
{
    return width == 1 ? largest_u8(data, count) : width == 2 ? largest_u16(data, count) : largest_u32(data, count);
}

static int64_t blocks_of(const sglstore_token_file *f) { return (f->count * f->width + BLOCK - 1) / BLOCK; }

static sgl_status scan_block(sglstore_tokens *t, sglstore_token_file *f, int64_t block, void *data)
{
    int64_t first = block * (BLOCK / f->width), count = f->count - first;
    if (count > BLOCK / f->width) count = BLOCK / f->width;
    SGLCORE_TRY(sglstore_tokens_bytes(t, f, f->start + first * f->width, data, count * f->width));
    if (largest(data, f->width, count) < (uint64_t)t->vocab) return SGL_OK;
    int64_t at = 0;
    while (token_at(data, f->width, at) < (uint64_t)t->vocab) at++;
    return refuse_token(t, f, first + at, token_at(data, f->width, at));
}

/* No token of that width can be outside the vocabulary. */
static bool all_fit(const sglstore_tokens *t, const sglstore_token_file *f)
{
    return (int64_t)1 << 8 * f->width <= t->vocab;
}

static sgl_status scan_file(sglstore_tokens *t, sglstore_token_file *f, int64_t stride, void *data,
                            const atomic_int *interrupted)
{
    int64_t blocks = blocks_of(f);
    for (int64_t block = 0; block < blocks; block += stride) {
        if (interrupted && *interrupted)
            return sglcore_fail(t->env, SGL_INTERRUPTED, "%s: interrupted while its tokens were checked", f->path);
        SGLCORE_TRY(scan_block(t, f, block, data));
    }
    return (blocks - 1) % stride ? scan_block(t, f, blocks - 1, data) : SGL_OK;
}

sgl_status sglstore_tokens_scan(sglstore_tokens *t, const atomic_int *interrupted)
{
    int64_t blocks = 0;
    for (int i = 0; i < t->file_count; i++) blocks += all_fit(t, &t->files[i]) ? 0 : blocks_of(&t->files[i]);
    if (blocks == 0) return SGL_OK;
    int64_t most = scanned_most / BLOCK, stride = (blocks + most - 1) / most;
    void *data = sglcore_alloc(t->env, BLOCK);
    sgl_status status = data ? SGL_OK : SGL_OUT_OF_MEMORY;
    for (int i = 0; i < t->file_count && status == SGL_OK; i++)
        if (!all_fit(t, &t->files[i])) status = scan_file(t, &t->files[i], stride, data, interrupted);
    sglcore_free(t->env, data, BLOCK);
    return status;
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
static sglstore_token_file *file_of(sglstore_tokens *t, bool is_eval, int64_t *window)
{
    sglstore_token_file *f = t->files;
    while (*window >= (is_eval ? f->eval_windows : f->train_windows)) {
        *window -= is_eval ? f->eval_windows : f->train_windows;
        f++;
    }
    return f;
}

static sgl_status read_train_row(sglstore_tokens *t, int64_t cursor, int64_t row, int32_t *inputs, int32_t *targets)
{
    uint64_t epoch = (uint64_t)(cursor / t->sizes.train_batches);
    int64_t window = permuted(t, epoch, t->train_windows, cursor % t->sizes.train_batches * t->batch + row);
    sglstore_token_file *f = file_of(t, false, &window);
    int64_t moved = epoch == 0 ? 0 : (int64_t)(keyed(t, epoch, 0, 0) % (uint64_t)(f->slack + 1));
    return read_window(t, f, moved + window * t->seq, inputs + row * t->seq, targets + row * t->seq);
}

static sgl_status read_eval_row(sglstore_tokens *t, int64_t cursor, int64_t row, int32_t *inputs, int32_t *targets)
{
    int64_t window = cursor * t->batch + row;
    sglstore_token_file *f = file_of(t, true, &window);
    return read_window(t, f, f->limit + window * t->seq, inputs + row * t->seq, targets + row * t->seq);
}

sgl_status sglstore_tokens_rows(sglstore_tokens *t, bool is_eval, int64_t cursor, int64_t first, int64_t count,
                                int32_t *inputs, int32_t *targets)
{
    if (first < 0 || count < 0 || first > t->batch - count)
        return sglcore_fail(t->env, SGL_INVALID_ARGUMENT, "rows %lld to %lld of a batch of %lld", (long long)first,
                            (long long)(first + count), (long long)t->batch);
    if (is_eval && cursor >= t->sizes.eval_batches)
        return sglcore_fail(t->env, SGL_NOT_FOUND, "the held-out part has %lld batches",
                            (long long)t->sizes.eval_batches);
    for (int64_t row = first; row < first + count; row++)
        SGLCORE_TRY(is_eval ? read_eval_row(t, cursor, row, inputs, targets)
                            : read_train_row(t, cursor, row, inputs, targets));
    return SGL_OK;
}

sgl_status sglstore_tokens_train(sglstore_tokens *t, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    return sglstore_tokens_rows(t, false, cursor, 0, t->batch, inputs, targets);
}

sgl_status sglstore_tokens_eval(sglstore_tokens *t, int64_t cursor, int32_t *inputs, int32_t *targets)
{
    return sglstore_tokens_rows(t, true, cursor, 0, t->batch, inputs, targets);
}
