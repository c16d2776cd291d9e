/* attention_grad.c -- gradients of attention: the probabilities are made again, block by block, from the logs of their sums.
 *
 * With s = scale q k^T, p = e^(s - lse), delta = sum of dout * out over e: dv = p^T dout, dp = dout v^T,
 * ds = p (dp - delta) scale, dq = ds k, dk = ds^T q (Dao et al., arXiv:2205.14135, appendix B). All blocks are keys x
 * queries, so p^T and ds^T lie as they are needed and only q and dout are turned. Where there are pairs of batch and head
 * enough, a task takes one and goes through all of it once; where there are few, some tasks make dk and dv of a range of
 * keys and others dq of a range of queries, at the price of making p twice. So it is too where narrow floats have more keys
 * than a range, whose sums are held in scratch until they are whole. Odd invariant: either way each element is summed in the
 * same order, so the choice changes no bit. */
#include <string.h>

#include "backend/cpu/attention.h"

enum { ENOUGH_PAIRS = 8, PART = 4 * SGLCPU_KEYS };

typedef struct gradient {
    sglcpu_heads heads;
    const sglexec_operand *out, *lse, *dout, *dq, *dk, *dv;
    bool split;
    int64_t key_parts, query_parts;                       /* of a pair, when split */
    int64_t turned_q, turned_do, p, slopes, delta, norms; /* places in scratch */
    int64_t q_room, out_room, do_room, k_room, v_room;    /* of rows that are held, and of sums */
    int64_t dq_room, dk_room, dv_room;
} gradient;

typedef struct job {
    const sglcpu_launch *launch;
    const gradient *plan;
    const sglcpu_float_ops *ops;
    int64_t offset;
} job;

/* What a task makes: of one pair (batch, group), dk and dv of some keys, dq of some queries. */
typedef struct portion {
    int64_t batch, group;
    int64_t key_first, key_last, query_first, query_last;
    bool keys, queries;
    sglcpu_rows dk, dv; /* from key_first on */
} portion;

/* Where a block of queries of one head lies. */
typedef struct block {
    sglcpu_rows q, dout, dq;
    int64_t q_at, out_at, query, queries, cols; /* q_at, out_at: elements of q and dq, of out and dout */
    bool started;                               /* q, dout and what is made of them are there: some key is seen */
    const char *lse;
    char *turned_q, *turned_do, *p, *slopes, *delta, *norms; /* scratch */
} block;

static block block_at(const job *j, const portion *part, int64_t head, int64_t query, int worker)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    const sglcpu_launch *launch = j->launch;
    int64_t place = part->batch * a->t + query;
    char *scratch = sglcpu_scratch(j->launch, worker);
    block b = { .query = query, .queries = sglcpu_min(SGLCPU_QUERIES, part->query_last - query) };
    b.cols = sglcpu_round_up(b.queries, SGLCPU_MAX_LANES);
    b.q_at = place * a->q_row + head * a->d;
    b.out_at = place * a->o_row + head * a->e;
    b.dq = sglcpu_rows_to_make(launch, a, g->dq, b.q_at, a->q_row, a->d, scratch + g->dq_room);
    b.lse = sglcpu_at(launch, g->lse) + ((part->batch * a->h + head) * a->t + query) * a->size;
    b.turned_q = scratch + g->turned_q;
    b.turned_do = scratch + g->turned_do;
    b.p = scratch + g->p;
    b.slopes = scratch + g->slopes;
    b.delta = scratch + g->delta;
    b.norms = scratch + g->norms;
    return b;
}

static void start_block(const job *j, block *b, char *scratch)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    const sglcpu_launch *launch = j->launch;
    int64_t size = a->size;
    b->started = true;
    b->q = sglcpu_held_rows(launch, a, a->q, b->q_at, a->q_row, b->queries, a->d, scratch + g->q_room);
    b->dout = sglcpu_held_rows(launch, a, g->dout, b->out_at, a->o_row, b->queries, a->e, scratch + g->do_room);
    sglcpu_rows out = sglcpu_held_rows(launch, a, g->out, b->out_at, a->o_row, b->queries, a->e, scratch + g->out_room);
    j->ops->turn_rows(b->turned_q, SGLCPU_QUERIES, b->cols, b->q.at, b->q.row, b->queries, a->d, a->scale);
    j->ops->turn_rows(b->turned_do, SGLCPU_QUERIES, b->cols, b->dout.at, b->dout.row, b->queries, a->e, 1.0);
    memset(b->delta, 0, (size_t)(b->cols * size));
    memset(b->norms, 0, (size_t)(b->cols * size));
    memcpy(b->norms, b->lse, (size_t)(b->queries * size));
    for (int64_t i = 0; i < b->queries; i++) {
        double delta = j->ops->row_dot(out.at + i * out.row * size, b->dout.at + i * b->dout.row * size, a->e);
        sglcpu_put_number(b->delta + i * size, a->held, delta);
    }
}

/* One block of queries against one of keys, from `key` on. */
static void meet_keys(const job *j, const portion *part, const block *b, const sglcpu_sight *sight,
                      sglcpu_meeting meeting, int64_t key, int64_t keys, char *scratch)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    const sglcpu_float_ops *ops = j->ops;
    int64_t size = a->size, ld = SGLCPU_QUERIES, place = part->batch * a->s + key, in = key - part->key_first;
    sglcpu_rows k = sglcpu_held_rows(j->launch, a, a->k, place * a->k_row + part->group * a->d, a->k_row, keys, a->d,
                                     scratch + g->k_room);
    sglcpu_rows v = sglcpu_held_rows(j->launch, a, a->v, place * a->v_row + part->group * a->e, a->v_row, keys, a->e,
                                     scratch + g->v_room);
    ops->block_product(b->p, ld, k.at, k.row, 1, b->turned_q, ld, keys, b->cols, a->d, false);
    ops->softmax_again(b->p, ld, keys, b->cols, b->norms);
    sglcpu_mask_scores(sight, meeting, key, keys, b->p, ld, 0.0);
    ops->block_product(b->slopes, ld, v.at, v.row, 1, b->turned_do, ld, keys, b->cols, a->e, false);
    ops->softmax_slopes(b->slopes, b->p, ld, keys, b->cols, b->delta, a->scale);
    if (part->keys) {
        const sglcpu_rows *dk = &part->dk, *dv = &part->dv;
        ops->block_product(dv->at + in * dv->row * size, dv->row, b->p, ld, 1, b->dout.at, b->dout.row, keys, a->e,
                           b->queries, true);
        ops->block_product(dk->at + in * dk->row * size, dk->row, b->slopes, ld, 1, b->q.at, b->q.row, keys, a->d,
                           b->queries, true);
    }
    if (part->queries)
        ops->block_product(b->dq.at, b->dq.row, b->slopes, 1, ld, k.at, k.row, b->queries, a->d, keys, true);
}

/* One block of queries against the part's keys. */
static void go_through_keys(const job *j, const portion *part, block *b, char *scratch)
{
    const sglcpu_heads *a = &j->plan->heads;
    int64_t first, last;
    sglcpu_sight sight = sglcpu_sight_of(j->launch, a, j->offset, part->batch, b->query, b->queries);
    sglcpu_visible_keys(&sight, &first, &last);
    /* blocks of keys begin at multiples of their size from the first visible one or from the part's first */
    first = sglcpu_max(first / SGLCPU_KEYS * SGLCPU_KEYS, part->key_first);
    last = sglcpu_min(last, part->key_last);
    for (int64_t i = 0; part->queries && i < b->queries; i++)
        memset(b->dq.at + i * b->dq.row * a->size, 0, (size_t)(a->d * a->size));
    for (int64_t key = first; key < last; key += SGLCPU_KEYS) {
        int64_t keys = sglcpu_min(SGLCPU_KEYS, last - key);
        sglcpu_meeting meeting = sglcpu_meet(&sight, key, keys);
        if (meeting == SGLCPU_APART) continue;
        if (!b->started) start_block(j, b, scratch);
        meet_keys(j, part, b, &sight, meeting, key, keys, scratch);
    }
    if (part->queries) sglcpu_store_rows(j->launch, a, j->plan->dq, b->q_at, a->q_row, b->queries, a->d, b->dq);
}

static void run_part(const job *j, portion *part, int worker)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    char *scratch = sglcpu_scratch(j->launch, worker);
    int64_t shared = a->h / a->g, place = part->batch * a->s + part->key_first, keys = part->key_last - part->key_first;
    int64_t k_at = place * a->k_row + part->group * a->d, v_at = place * a->v_row + part->group * a->e;
    part->dk = sglcpu_rows_to_make(j->launch, a, g->dk, k_at, a->k_row, a->d, scratch + g->dk_room);
    part->dv = sglcpu_rows_to_make(j->launch, a, g->dv, v_at, a->v_row, a->e, scratch + g->dv_room);
    for (int64_t s = 0; part->keys && s < keys; s++) {
        memset(part->dk.at + s * part->dk.row * a->size, 0, (size_t)(a->d * a->size));
        memset(part->dv.at + s * part->dv.row * a->size, 0, (size_t)(a->e * a->size));
    }
    for (int64_t head = part->group * shared; head < (part->group + 1) * shared; head++) {
        for (int64_t query = part->query_first; query < part->query_last; query += SGLCPU_QUERIES) {
            block b = block_at(j, part, head, query, worker);
            go_through_keys(j, part, &b, scratch);
        }
    }
    if (!part->keys) return;
    sglcpu_store_rows(j->launch, a, g->dk, k_at, a->k_row, keys, a->d, part->dk);
    sglcpu_store_rows(j->launch, a, g->dv, v_at, a->v_row, keys, a->e, part->dv);
}

static void whole_pair(void *context, int64_t task, int worker)
{
    const job *j = context;
    const sglcpu_heads *a = &j->plan->heads;
    portion p = {
        .batch = task / a->g, .group = task % a->g, .key_last = a->s, .query_last = a->t, .keys = true, .queries = true
    };
    run_part(j, &p, worker);
}

/* Parts of keys first, then parts of queries: they write to different results. */
static void part_of_pair(void *context, int64_t task, int worker)
{
    const job *j = context;
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    int64_t parts = g->key_parts + g->query_parts, pair = task / parts, number = task % parts;
    portion p = { .batch = pair / a->g, .group = pair % a->g, .key_last = a->s, .query_last = a->t };
    if (number < g->key_parts) {
        p.keys = true;
        p.key_first = number * PART;
        p.key_last = sglcpu_min(p.key_first + PART, a->s);
    } else {
        p.queries = true;
        p.query_first = (number - g->key_parts) * PART;
        p.query_last = sglcpu_min(p.query_first + PART, a->t);
    }
    run_part(j, &p, worker);
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static void run_gradient(const sglcpu_launch *launch, const void *plan)
{
    const gradient *g = plan;
    const sglcpu_heads *a = &g->heads;
    job j = { .launch = launch, .plan = g, .ops = launch->isa->floats[a->real] };
    memcpy(&j.offset, sglcpu_at(launch, a->offset), sizeof j.offset);
    int64_t pairs = a->b * a->g;
    if (g->split)
        sglcpu_parallel(launch->pool, pairs * (g->key_parts + g->query_parts), part_of_pair, &j);
    else
        sglcpu_parallel(launch->pool, pairs, whole_pair, &j);
}

static void lay_out_scratch(gradient *g, int64_t *scratch)
{
    const sglcpu_heads *a = &g->heads;
    int64_t size = a->size, of_d = SGLCPU_QUERIES * a->d * size, of_e = SGLCPU_QUERIES * a->e * size;
    g->turned_q = sglcpu_take(scratch, of_d);
    g->turned_do = sglcpu_take(scratch, of_e);
    g->p = sglcpu_take(scratch, SGLCPU_KEYS * SGLCPU_QUERIES * size);
    g->slopes = sglcpu_take(scratch, SGLCPU_KEYS * SGLCPU_QUERIES * size);
    g->delta = sglcpu_take(scratch, SGLCPU_QUERIES * size);
    g->norms = sglcpu_take(scratch, SGLCPU_QUERIES * size);
    if (!a->narrow) return;
    g->q_room = sglcpu_take(scratch, of_d);
    g->dq_room = sglcpu_take(scratch, of_d);
    g->out_room = sglcpu_take(scratch, of_e);
    g->do_room = sglcpu_take(scratch, of_e);
    g->k_room = sglcpu_take(scratch, SGLCPU_KEYS * a->d * size);
    g->v_room = sglcpu_take(scratch, SGLCPU_KEYS * a->e * size);
    g->dk_room = sglcpu_take(scratch, sglcpu_min(PART, a->s) * a->d * size);
    g->dv_room = sglcpu_take(scratch, sglcpu_min(PART, a->s) * a->e * size);
}

sgl_status sglcpu_prepare_attention_grad(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    gradient *g = sglcpu_plan_alloc(p, 1, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    sglcpu_heads *a = &g->heads;
    sglcpu_heads_of(p, i, 6, a);
    g->out = a->q + 3;
    g->lse = a->q + 4;
    g->dout = a->q + 5;
    g->dq = a->q + i->arg_count;
    g->dk = g->dq + 1;
    g->dv = g->dq + 2;
    g->key_parts = sglcpu_ceil_div(a->s, PART);
    g->query_parts = sglcpu_ceil_div(a->t, PART);
    g->split = (a->b * a->g < ENOUGH_PAIRS && g->key_parts + g->query_parts > 2) || (a->narrow && g->key_parts > 1);
    int64_t scratch = 0;
    lay_out_scratch(g, &scratch);
    sglcpu_need_scratch(p, scratch);
    *command = (sglcpu_command){ .run = run_gradient, .plan = g };
    return SGL_OK;
}
