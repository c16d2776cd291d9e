/* ngram.c -- the yardstick beside a small model's loss: a byte model of order n (n - 1 bytes tell the n-th), counted on the
 * training part.
 *
 * Comes in: byte files. Goes out: mean loss in nats per byte over the held-out part. Interpolated Witten-Bell smoothing
 * (Witten, Bell, IEEE Transactions on Information Theory 37(4), 1991) from the order asked down to a uniform byte:
 *   p_k(c | h) = (count(h c) + kinds(h) p_{k-1}(c | shorter h)) / (count(h) + kinds(h)). */
#include <math.h>
#include <string.h>

#include "store/tokens.h"

enum { ORDER_MOST = 4 }; /* bytes of context */

/* Open addressing over 64-bit keys; 0 marks an empty place, so that keys are stored plus one. */
typedef struct count_table {
    struct counted {
        uint64_t key, count;
        uint32_t kinds; /* of bytes that followed; 0 for a pair */
    } * rows;
    uint64_t capacity, used;
} count_table;

static struct counted *find(count_table *table, uint64_t key)
{
    uint64_t at = (key + 1) * 0x9E3779B97F4A7C15u;
    at = (at ^ at >> 29) & (table->capacity - 1);
    while (table->rows[at].key && table->rows[at].key != key + 1) at = (at + 1) & (table->capacity - 1);
    return &table->rows[at];
}

static sgl_status grow(sglcore_env *env, count_table *table)
{
    count_table larger = { .capacity = table->capacity ? table->capacity * 2 : 1024, .used = table->used };
    larger.rows = sglcore_alloc_zero(env, larger.capacity * sizeof *larger.rows);
    if (!larger.rows) return SGL_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < table->capacity; i++)
        if (table->rows[i].key) *find(&larger, table->rows[i].key - 1) = table->rows[i];
    sglcore_free(env, table->rows, table->capacity * sizeof *table->rows);
    *table = larger;
    return SGL_OK;
}

/* The row of the key, made when it is not there. */
static sgl_status take(sglcore_env *env, count_table *table, uint64_t key, struct counted **row)
{
    if (table->used * 2 >= table->capacity) SGLCORE_TRY(grow(env, table));
    *row = find(table, key);
    if (!(*row)->key) {
        (*row)->key = key + 1;
        table->used++;
    }
    return SGL_OK;
}

typedef struct byte_model {
    sglcore_env *env;
    int order; /* bytes of context */
    count_table contexts[ORDER_MOST + 1], pairs[ORDER_MOST + 1];
    unsigned char *piece; /* of a file */
    double sum;           /* of nats, over `measured` bytes */
    int64_t measured;
} byte_model;

/* The last `order` bytes as a number. */
static uint64_t context_of(uint64_t history, int order)
{
    return order ? history & (UINT64_MAX >> (64 - 8 * order)) : 0;
}

static sgl_status count_byte(byte_model *m, uint64_t history, int known, unsigned char byte)
{
    for (int k = 0; k <= m->order && k <= known; k++) {
        uint64_t h = context_of(history, k);
        struct counted *pair, *context;
        SGLCORE_TRY(take(m->env, &m->pairs[k], h << 8 | byte, &pair));
        SGLCORE_TRY(take(m->env, &m->contexts[k], h, &context));
        context->count++;
        context->kinds += pair->count++ == 0;
    }
    return SGL_OK;
}

static double probability(byte_model *m, uint64_t history, int known, unsigned char byte)
{
    double p = 1.0 / 256;
    for (int k = 0; k <= m->order && k <= known; k++) {
        uint64_t h = context_of(history, k);
        struct counted *context = m->contexts[k].capacity ? find(&m->contexts[k], h) : NULL;
        if (!context || !context->key) break;
        p = ((double)find(&m->pairs[k], h << 8 | byte)->count + context->kinds * p) /
            ((double)context->count + context->kinds);
    }
    return p;
}

enum { PIECE = 1 << 16 };

typedef sgl_status (*each_byte)(byte_model *m, uint64_t history, int64_t seen, unsigned char byte);

/* Hands the bytes [from, to) of a file over, each with the bytes before it, of which there are `seen`. */
static sgl_status read_bytes(byte_model *m, sglstore_tokens *t, sglstore_token_file *f, int64_t from, int64_t to,
                             each_byte each)
{
    uint64_t history = 0;
    for (int64_t piece = from; piece < to; piece += PIECE) {
        int64_t bytes = to - piece < PIECE ? to - piece : PIECE;
        SGLCORE_TRY(sglstore_tokens_bytes(t, f, f->start + piece, m->piece, bytes));
        for (int64_t i = 0; i < bytes; i++) {
            SGLCORE_TRY(each(m, history, piece + i - from, m->piece[i]));
            history = history << 8 | m->piece[i];
        }
    }
    return SGL_OK;
}

static int known_of(int64_t seen) { return seen < ORDER_MOST ? (int)seen : ORDER_MOST; }

static sgl_status train_byte(byte_model *m, uint64_t history, int64_t seen, unsigned char byte)
{
    return count_byte(m, history, known_of(seen), byte);
}

/* Evaluation batches predict all but the first byte of each file. */
static sgl_status measure_byte(byte_model *m, uint64_t history, int64_t seen, unsigned char byte)
{
    if (seen == 0) return SGL_OK;
    m->sum -= log(probability(m, history, known_of(seen), byte));
    m->measured++;
    return SGL_OK;
}

static sgl_status count_and_measure(byte_model *m, sglstore_tokens *t)
{
    for (int i = 0; i < t->file_count; i++)
        SGLCORE_TRY(read_bytes(m, t, &t->files[i], 0, t->files[i].limit, train_byte));
    for (int i = 0; i < t->file_count; i++)
        SGLCORE_TRY(read_bytes(m, t, &t->files[i], t->files[i].limit, t->files[i].count, measure_byte));
    if (m->measured) return SGL_OK;
    return sglcore_fail(t->env, SGL_NOT_FOUND, "%s: nothing is held out", t->files[0].path);
}

sgl_status sglstore_tokens_ngram_loss(sglstore_tokens *tokens, int order, double *nats)
{
    if (order < 1 || order > ORDER_MOST + 1)
        return sglcore_fail(tokens->env, SGL_INVALID_ARGUMENT, "a byte model of order %d: the order is 1 .. %d", order,
                            ORDER_MOST + 1);
    for (int i = 0; i < tokens->file_count; i++)
        if (tokens->files[i].width != 1)
            return sglcore_fail(tokens->env, SGL_UNSUPPORTED, "%s: a byte model needs a file of bytes",
                                tokens->files[i].path);
    byte_model m = { .env = tokens->env, .order = order - 1, .piece = sglcore_alloc(tokens->env, PIECE) };
    sgl_status status = m.piece ? count_and_measure(&m, tokens) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) *nats = m.sum / (double)m.measured;
    sglcore_free(m.env, m.piece, PIECE);
    for (int k = 0; k <= ORDER_MOST; k++) {
        sglcore_free(m.env, m.contexts[k].rows, m.contexts[k].capacity * sizeof *m.contexts[k].rows);
        sglcore_free(m.env, m.pairs[k].rows, m.pairs[k].capacity * sizeof *m.pairs[k].rows);
    }
    return status;
}
