/* attention.c -- attention without the score matrix: blocks of queries against blocks of keys, softmax on the way.
 *
 * A task is a block of queries of one head. For each block of keys: scores^T = k (scale q)^T, a row per key, so that k and
 * v are used as they lie and only the queries are turned; softmax over keys so far; out = rescaled out + p v. (Dao et al.,
 * arXiv:2205.14135; Milakov, Gimelshein, arXiv:1805.02867.) One query at a time, as in generation, goes by products of few
 * rows instead: the heads that share keys together. Odd invariant: a query's sums run over keys in order, whatever task
 * they are in. */
#include <math.h>
#include <string.h>

#include "backend/cpu/attention.h"

sgl_status sglcpu_heads_of(sglcpu_prepare *p, const sglexec_instruction *i, uint32_t offset, sglcpu_heads *a)
{
    const sglexec_program *program = p->program;
    a->q = sglcpu_operand(program, i, 0);
    a->k = a->q + 1;
    a->v = a->q + 2;
    a->offset = a->q + offset;
    a->real = sglcpu_float_index((sgl_dtype)a->q->dtype);
    if (a->real < 0) {
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "cpu: attention in %s; the CPU attends in f32 and f64",
                            sgl_dtype_name((sgl_dtype)a->q->dtype));
    }
    a->b = a->q->dims[0], a->t = a->q->dims[1], a->h = a->q->dims[2], a->d = a->q->dims[3];
    a->s = a->k->dims[1], a->g = a->k->dims[2], a->e = a->v->dims[3];
    a->q_row = a->h * a->d, a->k_row = a->g * a->d, a->v_row = a->g * a->e, a->o_row = a->h * a->e;
    a->scale = sglexec_attr_float(program, i, "scale");
    a->causal = sglexec_attr_int(program, i, "causal") != 0;
    a->window = sglexec_attr_int(program, i, "window");
    return SGL_OK;
}

void sglcpu_visible_keys(const sglcpu_heads *a, int64_t offset, int64_t first_query, int64_t last_query, int64_t *first,
                         int64_t *last)
{
    *first = 0;
    *last = a->s;
    if (!a->causal) return;
    *last = sglcpu_max(sglcpu_min(a->s, offset + last_query), 0);
    if (a->window > 0) *first = sglcpu_min(sglcpu_max(offset + first_query - a->window + 1, 0), *last);
}

void sglcpu_mask_scores(const sglcpu_heads *a, int64_t offset, int64_t query, int64_t queries, int64_t key,
                        int64_t keys, char *scores, int64_t ld, double value)
{
    if (!a->causal || (a->window == 0 && key + keys <= offset + query + 1)) return;
    int64_t size = a->real ? 8 : 4;
    _Alignas(8) char number[8];
    sglcpu_put_number(number, a->real ? SGL_F64 : SGL_F32, value);
    for (int64_t r = 0; r < keys; r++) {
        /* query i sees this key from i = key - offset on, and with a window until i = key - offset + window - 1 */
        int64_t from = key + r - offset - query, to = a->window > 0 ? from + a->window : queries;
        char *row = scores + r * ld * size;
        from = sglcpu_min(sglcpu_max(from, 0), queries);
        to = sglcpu_min(sglcpu_max(to, 0), queries);
        sglcpu_spread(row, number, size, from);
        sglcpu_spread(row + to * size, number, size, queries - to);
    }
}

/* ---- the plan ------------------------------------------------------------------------------------------------------ */

typedef struct attention {
    sglcpu_heads heads;
    const sglexec_operand *out, *lse;
    int64_t query_blocks, key_block;
    bool single;                         /* one query per head */
    int64_t turned, scores, sums, stats; /* places in scratch, of its parts */
} attention;

typedef struct job {
    const sglcpu_launch *launch;
    const attention *plan;
    int64_t offset;
} job;

static double read_number(const char *at, int real, int64_t i)
{
    return real ? ((const double *)(const void *)at)[i] : (double)((const float *)(const void *)at)[i];
}

/* ---- blocks of queries ----------------------------------------------------------------------------------------------- */

/* Sums become means; lse = top + log sum. A query that saw no key gets zeros and -inf. */
static void finish_queries(const attention *p, const sglcpu_float_ops *ops, char *sums, const char *top,
                           const char *total, char *out, char *lse, int64_t queries)
{
    const sglcpu_heads *a = &p->heads;
    int64_t size = a->real ? 8 : 4;
    sgl_dtype dtype = a->real ? SGL_F64 : SGL_F32;
    for (int64_t q = 0; q < queries; q++) {
        double sum = read_number(total, a->real, q), most = read_number(top, a->real, q);
        char *row = sums + q * a->e * size;
        ops->row_scale(row, sum == 0 ? 0.0 : 1 / sum, a->e);
        memcpy(out + q * a->o_row * size, row, (size_t)(a->e * size));
        sglcpu_put_number(lse + q * size, dtype, (most == -INFINITY ? 0.0 : most) + log(sum));
    }
}

static void attend_block(void *context, int64_t task, int worker)
{
    const job *j = context;
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t size = a->real ? 8 : 4, block = task % p->query_blocks, head = task / p->query_blocks % a->h;
    int64_t batch = task / p->query_blocks / a->h, group = head / (a->h / a->g);
    int64_t query = block * SGLCPU_QUERIES, queries = sglcpu_min(SGLCPU_QUERIES, a->t - query);
    int64_t cols = sglcpu_round_up(queries, SGLCPU_MAX_LANES);
    const char *q = sglcpu_at(j->launch, a->q) + ((batch * a->t + query) * a->q_row + head * a->d) * size;
    const char *k = sglcpu_at(j->launch, a->k) + (batch * a->s * a->k_row + group * a->d) * size;
    const char *v = sglcpu_at(j->launch, a->v) + (batch * a->s * a->v_row + group * a->e) * size;
    char *out = sglcpu_at(j->launch, p->out) + ((batch * a->t + query) * a->o_row + head * a->e) * size;
    char *lse = sglcpu_at(j->launch, p->lse) + ((batch * a->h + head) * a->t + query) * size;
    char *scratch = sglcpu_scratch(j->launch, worker), *turned = scratch + p->turned, *scores = scratch + p->scores;
    char *sums = scratch + p->sums, *top = scratch + p->stats;
    char *total = top + SGLCPU_QUERIES * 8, *rescale = total + SGLCPU_QUERIES * 8;
    _Alignas(8) char least[8];
    sglcpu_put_number(least, a->real ? SGL_F64 : SGL_F32, -INFINITY);
    sglcpu_spread(top, least, size, cols);
    memset(total, 0, (size_t)(cols * size));
    memset(sums, 0, (size_t)(queries * a->e * size));
    ops->turn_rows(turned, SGLCPU_QUERIES, cols, q, a->q_row, queries, a->d, a->scale);
    int64_t first, last;
    sglcpu_visible_keys(a, j->offset, query, query + queries, &first, &last);
    for (int64_t key = first; key < last; key += p->key_block) {
        int64_t keys = sglcpu_min(p->key_block, last - key);
        ops->block_product(scores, SGLCPU_QUERIES, k + key * a->k_row * size, a->k_row, 1, turned, SGLCPU_QUERIES, keys,
                           cols, a->d, false);
        sglcpu_mask_scores(a, j->offset, query, queries, key, keys, scores, SGLCPU_QUERIES, -INFINITY);
        ops->softmax_block(scores, SGLCPU_QUERIES, keys, cols, top, total, rescale);
        for (int64_t i = 0; i < queries && key > first; i++) {
            ops->row_scale(sums + i * a->e * size, read_number(rescale, a->real, i), a->e);
        }
        ops->block_product(sums, a->e, scores, 1, SGLCPU_QUERIES, v + key * a->v_row * size, a->v_row, queries, a->e,
                           keys, true);
    }
    finish_queries(p, ops, sums, top, total, out, lse, queries);
}

/* ---- one query per head ------------------------------------------------------------------------------------------- */

/* The heads that share their keys; at most SGLCPU_FEW_ROWS of them at a time. */
static void attend_single(void *context, int64_t task, int worker)
{
    const job *j = context;
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t size = a->real ? 8 : 4, batch = task / a->g, group = task % a->g, shared = a->h / a->g;
    const char *k = sglcpu_at(j->launch, a->k) + (batch * a->s * a->k_row + group * a->d) * size;
    const char *v = sglcpu_at(j->launch, a->v) + (batch * a->s * a->v_row + group * a->e) * size;
    char *scores = sglcpu_scratch(j->launch, worker) + p->scores;
    int64_t first, last;
    sglcpu_visible_keys(a, j->offset, 0, 1, &first, &last);
    int64_t keys = last - first;
    for (int64_t head = group * shared; head < (group + 1) * shared; head += SGLCPU_FEW_ROWS) {
        int rows = (int)sglcpu_min(SGLCPU_FEW_ROWS, (group + 1) * shared - head);
        const char *q = sglcpu_at(j->launch, a->q) + (batch * a->q_row + head * a->d) * size;
        char *out = sglcpu_at(j->launch, p->out) + (batch * a->o_row + head * a->e) * size;
        char *lse = sglcpu_at(j->launch, p->lse) + (batch * a->h + head) * size;
        ops->few_dots(scores, a->s, q, a->d, k + first * a->k_row * size, a->k_row, rows, keys, a->d);
        double sums[SGLCPU_FEW_ROWS], most[SGLCPU_FEW_ROWS];
        for (int r = 0; r < rows; r++) {
            char *row = scores + r * a->s * size;
            ops->row_scale(row, a->scale, keys);
            most[r] = keys > 0 ? ops->row_max(row, keys) : 0.0;
            sums[r] = ops->row_exp(row, row, 1.0, most[r], keys);
        }
        ops->few_sums(out, a->e, scores, a->s, v + first * a->v_row * size, a->v_row, rows, a->e, keys);
        for (int r = 0; r < rows; r++) {
            ops->row_scale(out + r * a->e * size, sums[r] == 0 ? 0.0 : 1 / sums[r], a->e);
            sglcpu_put_number(lse + r * size, a->real ? SGL_F64 : SGL_F32, most[r] + log(sums[r]));
        }
    }
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static void run_attention(const sglcpu_launch *launch, const void *plan)
{
    const attention *p = plan;
    const sglcpu_heads *a = &p->heads;
    job j = { .launch = launch, .plan = p };
    memcpy(&j.offset, sglcpu_at(launch, a->offset), sizeof j.offset);
    if (p->single)
        sglcpu_parallel(launch->pool, a->b * a->g, attend_single, &j);
    else
        sglcpu_parallel(launch->pool, a->b * a->h * p->query_blocks, attend_block, &j);
}

static int64_t take(int64_t *at, int64_t bytes)
{
    int64_t place = *at;
    *at += sglcpu_round_up(bytes, 64) + 64;
    return place;
}

sgl_status sglcpu_prepare_attention(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    attention *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    sglcpu_heads *a = &plan->heads;
    SGLCORE_TRY(sglcpu_heads_of(p, i, 3, a));
    plan->out = sglcpu_operand(p->program, i, 4);
    plan->lse = plan->out + 1;
    plan->query_blocks = sglcpu_ceil_div(a->t, SGLCPU_QUERIES);
    plan->key_block = sglcpu_min(SGLCPU_KEYS, sglcpu_max(a->s, 1));
    plan->single = a->t == 1;
    int64_t size = a->real ? 8 : 4, scratch = 0;
    if (plan->single) {
        plan->scores = take(&scratch, SGLCPU_FEW_ROWS * a->s * size);
    } else {
        plan->turned = take(&scratch, a->d * SGLCPU_QUERIES * size);
        plan->scores = take(&scratch, plan->key_block * SGLCPU_QUERIES * size);
        plan->sums = take(&scratch, SGLCPU_QUERIES * a->e * size);
        plan->stats = take(&scratch, 3 * SGLCPU_QUERIES * 8);
    }
    sglcpu_need_scratch(p, scratch);
    *command = (sglcpu_command){ .run = run_attention, .plan = plan };
    return SGL_OK;
}
