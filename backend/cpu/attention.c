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

/* ---- what both directions share ------------------------------------------------------------------------------------- */

void sglcpu_heads_of(sglcpu_prepare *p, const sglexec_instruction *i, uint32_t offset, sglcpu_heads *a)
{
    const sglexec_program *program = p->program;
    a->q = sglcpu_operand(program, i, 0);
    a->k = a->q + 1;
    a->v = a->q + 2;
    a->offset = a->q + offset;
    if (i->arg_count > offset + 1) {
        a->query_segments = a->q + offset + 1;
        a->key_segments = a->q + offset + 2;
    }
    a->dtype = (sgl_dtype)a->q->dtype;
    a->held = sglcpu_held(a->dtype);
    a->real = sglcpu_float_index(a->held);
    a->narrow = sglcpu_is_narrow(a->dtype);
    a->size = sglcpu_size(a->held);
    a->b = a->q->dims[0], a->t = a->q->dims[1], a->h = a->q->dims[2], a->d = a->q->dims[3];
    a->s = a->k->dims[1], a->g = a->k->dims[2], a->e = a->v->dims[3];
    a->q_row = a->h * a->d, a->k_row = a->g * a->d, a->v_row = a->g * a->e, a->o_row = a->h * a->e;
    a->scale = sglexec_attr_float(program, i, "scale");
    a->causal = sglexec_attr_int(program, i, "causal") != 0;
    a->window = sglexec_attr_int(program, i, "window");
}

sglcpu_rows sglcpu_rows_to_make(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                                int64_t first, int64_t row, int64_t count, char *room)
{
    if (a->narrow) return (sglcpu_rows){ room, count };
    return (sglcpu_rows){ sglcpu_at(launch, operand) + first * a->size, row };
}

sglcpu_rows sglcpu_held_rows(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                             int64_t first, int64_t row, int64_t rows, int64_t count, char *room)
{
    for (int64_t r = 0; a->narrow && r < rows; r++) {
        sglcpu_load_run(launch->isa, a->dtype, room + r * count * a->size, sglcpu_at(launch, operand), first + r * row,
                        count);
    }
    return sglcpu_rows_to_make(launch, a, operand, first, row, count, room);
}

void sglcpu_store_rows(const sglcpu_launch *launch, const sglcpu_heads *a, const sglexec_operand *operand,
                       int64_t first, int64_t row, int64_t rows, int64_t count, sglcpu_rows made)
{
    for (int64_t r = 0; a->narrow && r < rows; r++) {
        sglcpu_store_run(launch->isa, a->dtype, sglcpu_at(launch, operand), first + r * row,
                         made.at + r * made.row * a->size, count, -1);
    }
}

int64_t sglcpu_take(int64_t *at, int64_t bytes)
{
    int64_t place = *at;
    *at += sglcpu_round_up(bytes, 64) + 64;
    return place;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------ */

typedef struct attention {
    sglcpu_heads heads;
    const sglexec_operand *out, *lse;
    int64_t query_blocks, key_block;
    bool single;                               /* one query per head */
    int64_t turned, scores, sums, stats, room; /* places in scratch, of its parts; room: of rows that are held */
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
static void finish_queries(const job *j, char *sums, const char *top, const char *total, int64_t out, char *lse,
                           int64_t queries)
{
    const sglcpu_heads *a = &j->plan->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t size = a->size;
    for (int64_t q = 0; q < queries; q++) {
        double sum = read_number(total, a->real, q), most = read_number(top, a->real, q);
        char *row = sums + q * a->e * size;
        ops->row_scale(row, sum == 0 ? 0.0 : 1 / sum, a->e);
        if (!a->narrow)
            memcpy(sglcpu_at(j->launch, j->plan->out) + (out + q * a->o_row) * size, row, (size_t)(a->e * size));
        sglcpu_put_number(lse + q * size, a->held, (most == -INFINITY ? 0.0 : most) + log(sum));
    }
    sglcpu_store_rows(j->launch, a, j->plan->out, out, a->o_row, queries, a->e, (sglcpu_rows){ sums, a->e });
}

static void attend_block(void *context, int64_t task, int worker)
{
    const job *j = context;
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t size = a->size, block = task % p->query_blocks, head = task / p->query_blocks % a->h;
    int64_t batch = task / p->query_blocks / a->h, group = head / (a->h / a->g);
    int64_t query = block * SGLCPU_QUERIES, queries = sglcpu_min(SGLCPU_QUERIES, a->t - query);
    int64_t cols = sglcpu_round_up(queries, SGLCPU_MAX_LANES);
    int64_t k_at = batch * a->s * a->k_row + group * a->d, v_at = batch * a->s * a->v_row + group * a->e;
    char *lse = sglcpu_at(j->launch, p->lse) + ((batch * a->h + head) * a->t + query) * size;
    char *scratch = sglcpu_scratch(j->launch, worker), *room = scratch + p->room, *turned = scratch + p->turned,
         *scores = scratch + p->scores;
    char *sums = scratch + p->sums, *top = scratch + p->stats;
    char *total = top + SGLCPU_QUERIES * 8, *rescale = total + SGLCPU_QUERIES * 8;
    _Alignas(8) char least[8];
    sglcpu_put_number(least, a->held, -INFINITY);
    sglcpu_spread(top, least, size, cols);
    memset(total, 0, (size_t)(cols * size));
    memset(sums, 0, (size_t)(queries * a->e * size));
    sglcpu_rows q = sglcpu_held_rows(j->launch, a, a->q, (batch * a->t + query) * a->q_row + head * a->d, a->q_row,
                                     queries, a->d, room);
    ops->turn_rows(turned, SGLCPU_QUERIES, cols, q.at, q.row, queries, a->d, a->scale);
    int64_t first, last;
    sglcpu_sight sight = sglcpu_sight_of(j->launch, a, j->offset, batch, query, queries);
    sglcpu_visible_keys(&sight, &first, &last);
    for (int64_t key = first; key < last; key += p->key_block) {
        int64_t keys = sglcpu_min(p->key_block, last - key);
        sglcpu_meeting meeting = sglcpu_meet(&sight, key, keys);
        if (meeting == SGLCPU_APART) continue;
        sglcpu_rows k = sglcpu_held_rows(j->launch, a, a->k, k_at + key * a->k_row, a->k_row, keys, a->d, room);
        ops->block_product(scores, SGLCPU_QUERIES, k.at, k.row, 1, turned, SGLCPU_QUERIES, keys, cols, a->d, false);
        sglcpu_mask_scores(&sight, meeting, key, keys, scores, SGLCPU_QUERIES, -INFINITY);
        ops->softmax_block(scores, SGLCPU_QUERIES, keys, cols, top, total, rescale);
        for (int64_t i = 0; i < queries && key > first; i++) {
            ops->row_scale(sums + i * a->e * size, read_number(rescale, a->real, i), a->e);
        }
        sglcpu_rows v = sglcpu_held_rows(j->launch, a, a->v, v_at + key * a->v_row, a->v_row, keys, a->e, room);
        ops->block_product(sums, a->e, scores, 1, SGLCPU_QUERIES, v.at, v.row, queries, a->e, keys, true);
    }
    finish_queries(j, sums, top, total, (batch * a->t + query) * a->o_row + head * a->e, lse, queries);
}

/* ---- one query per head ------------------------------------------------------------------------------------------- */

/* The first key of first .. last that is of the query's own segment: the greatest of the row's scores is then a number. */
static int64_t own_segment_from(const sglcpu_sight *sight, int64_t first, int64_t last)
{
    if (sight->key_segments == NULL) return first;
    if (sight->query_segments[0] < 0) return last;
    while (first < last && sight->key_segments[first] != sight->query_segments[0]) first++;
    return first;
}

/* Scores of one query, of keys that are not of its segment. */
static void hide_strangers(const sglcpu_sight *sight, int64_t first, int64_t keys, char *row)
{
    const sglcpu_heads *a = sight->heads;
    for (int64_t i = 0; i < keys; i++) {
        if (sight->key_segments[first + i] != sight->query_segments[0])
            sglcpu_put_number(row + i * a->size, a->held, -INFINITY);
    }
}

/* Keys at a time: all of them, or as many as are held. */
static int64_t keys_at_once(const sglcpu_heads *a, int64_t keys)
{
    return a->narrow ? SGLCPU_KEYS : sglcpu_max(keys, 1);
}

/* Scores of `rows` heads from `head` on, which share their keys. */
static void single_scores(const job *j, int64_t batch, int64_t head, int rows, int64_t first, int64_t last,
                          char *scratch)
{
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t most = keys_at_once(a, last - first), k_at = batch * a->s * a->k_row + head / (a->h / a->g) * a->d;
    sglcpu_rows q =
        sglcpu_held_rows(j->launch, a, a->q, batch * a->q_row + head * a->d, a->d, rows, a->d, scratch + p->turned);
    for (int64_t key = first; key < last; key += most) {
        int64_t keys = sglcpu_min(most, last - key);
        sglcpu_rows k =
            sglcpu_held_rows(j->launch, a, a->k, k_at + key * a->k_row, a->k_row, keys, a->d, scratch + p->room);
        ops->few_dots(scratch + p->scores + (key - first) * a->size, a->s, q.at, q.row, k.at, k.row, rows, keys, a->d);
    }
}

/* Values summed by these scores and divided by the scores' own sums, into the result. */
static void single_sums(const job *j, int64_t batch, int64_t head, int rows, int64_t first, int64_t last, char *scratch,
                        const double *sums)
{
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t most = keys_at_once(a, last - first), v_at = batch * a->s * a->v_row + head / (a->h / a->g) * a->e;
    int64_t at = batch * a->o_row + head * a->e;
    char *part = scratch + p->stats;
    sglcpu_rows out = sglcpu_rows_to_make(j->launch, a, p->out, at, a->e, a->e, scratch + p->sums);
    memset(out.at, 0, (size_t)(rows * a->e * a->size));
    for (int64_t key = first; key < last; key += most) {
        int64_t keys = sglcpu_min(most, last - key);
        sglcpu_rows v =
            sglcpu_held_rows(j->launch, a, a->v, v_at + key * a->v_row, a->v_row, keys, a->e, scratch + p->room);
        ops->few_sums(key == first ? out.at : part, a->e, scratch + p->scores + (key - first) * a->size, a->s, v.at,
                      v.row, rows, a->e, keys);
        if (key > first) ops->row_add(out.at, part, rows * a->e);
    }
    for (int r = 0; r < rows; r++) ops->row_scale(out.at + r * a->e * a->size, sums[r] == 0 ? 0.0 : 1 / sums[r], a->e);
    sglcpu_store_rows(j->launch, a, p->out, at, a->e, rows, a->e, out);
}

/* The heads that share their keys; at most SGLCPU_FEW_ROWS of them at a time. */
static void attend_single(void *context, int64_t task, int worker)
{
    const job *j = context;
    const attention *p = j->plan;
    const sglcpu_heads *a = &p->heads;
    const sglcpu_float_ops *ops = j->launch->isa->floats[a->real];
    int64_t size = a->size, batch = task / a->g, group = task % a->g, shared = a->h / a->g;
    char *scratch = sglcpu_scratch(j->launch, worker), *scores = scratch + p->scores;
    int64_t first, last;
    sglcpu_sight sight = sglcpu_sight_of(j->launch, a, j->offset, batch, 0, 1);
    sglcpu_visible_keys(&sight, &first, &last);
    first = own_segment_from(&sight, first, last);
    int64_t keys = last - first;
    sglcpu_meeting meeting = sglcpu_meet(&sight, first, keys);
    for (int64_t head = group * shared; head < (group + 1) * shared; head += SGLCPU_FEW_ROWS) {
        int rows = (int)sglcpu_min(SGLCPU_FEW_ROWS, (group + 1) * shared - head);
        char *lse = sglcpu_at(j->launch, p->lse) + (batch * a->h + head) * size;
        single_scores(j, batch, head, rows, first, last, scratch);
        double sums[SGLCPU_FEW_ROWS], most[SGLCPU_FEW_ROWS];
        for (int r = 0; r < rows; r++) {
            char *row = scores + r * a->s * size;
            ops->row_scale(row, a->scale, keys);
            if (meeting == SGLCPU_MIXED) hide_strangers(&sight, first, keys, row);
            most[r] = keys > 0 ? ops->row_max(row, keys) : 0.0;
            sums[r] = ops->row_exp(row, row, 1.0, most[r], keys);
        }
        single_sums(j, batch, head, rows, first, last, scratch, sums);
        for (int r = 0; r < rows; r++) sglcpu_put_number(lse + r * size, a->held, most[r] + log(sums[r]));
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

sgl_status sglcpu_prepare_attention(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    attention *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    sglcpu_heads *a = &plan->heads;
    sglcpu_heads_of(p, i, 3, a);
    plan->out = sglcpu_operand(p->program, i, i->arg_count);
    plan->lse = plan->out + 1;
    plan->query_blocks = sglcpu_ceil_div(a->t, SGLCPU_QUERIES);
    plan->key_block = sglcpu_min(SGLCPU_KEYS, sglcpu_max(a->s, 1));
    plan->single = a->t == 1;
    int64_t size = a->size, scratch = 0, queries = plan->single ? SGLCPU_FEW_ROWS : SGLCPU_QUERIES;
    bool held = a->narrow || !plan->single; /* one query of a dtype that is computed in needs its scores alone */
    plan->scores = sglcpu_take(&scratch, queries * (plan->single ? a->s : plan->key_block) * size);
    plan->turned = held ? sglcpu_take(&scratch, queries * a->d * size) : 0;
    plan->sums = held ? sglcpu_take(&scratch, queries * a->e * size) : 0;
    plan->stats = held ? sglcpu_take(&scratch, queries * sglcpu_max(3 * 8, plan->single ? a->e * size : 0)) : 0;
    if (a->narrow) plan->room = sglcpu_take(&scratch, SGLCPU_KEYS * sglcpu_max(a->d, a->e) * size);
    sglcpu_need_scratch(p, scratch);
    *command = (sglcpu_command){ .run = run_attention, .plan = plan };
    return SGL_OK;
}
