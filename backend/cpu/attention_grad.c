/* attention_grad.c -- gradients of attention: the probabilities are made again, block by block, from the logs of their sums.
 *
 * With s = scale q k^T, p = e^(s - lse), delta = sum of dout * out over e: dv = p^T dout, dp = dout v^T,
 * ds = p (dp - delta) scale, dq = ds k, dk = ds^T q (Dao et al., arXiv:2205.14135, appendix B). All blocks are keys x
 * queries, so p^T and ds^T lie as they are needed and only q and dout are turned. Where there are pairs of batch and head
 * enough, a task takes one and goes through all of it once; where there are few, some tasks make dk and dv of a range of
 * keys and others dq of a range of queries, at the price of making p twice. Odd invariant: either way each element is
 * summed in the same order, so the choice changes no bit. */
#include <string.h>

#include "backend/cpu/attention.h"

enum { ENOUGH_PAIRS = 8, PART = 4 * SGLCPU_KEYS };

typedef struct gradient {
    sglcpu_heads heads;
    const sglexec_operand *out, *lse, *dout, *dq, *dk, *dv;
    bool split;
    int64_t key_parts, query_parts;                       /* of a pair, when split */
    int64_t turned_q, turned_do, p, slopes, delta, norms; /* places in scratch */
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
} portion;

/* Where a block of queries of one head lies. */
typedef struct block {
    const char *q, *dout, *out, *lse;
    char *dq;
    int64_t query, queries, cols;
    char *turned_q, *turned_do, *p, *slopes, *delta, *norms; /* scratch */
} block;

static block block_at(const job *j, const portion *part, int64_t head, int64_t query, int worker)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    int64_t size = a->real ? 8 : 4, place = part->batch * a->t + query;
    char *scratch = sglcpu_scratch(j->launch, worker);
    block b = { .query = query, .queries = sglcpu_min(SGLCPU_QUERIES, part->query_last - query) };
    b.cols = sglcpu_round_up(b.queries, SGLCPU_MAX_LANES);
    b.q = sglcpu_at(j->launch, a->q) + (place * a->q_row + head * a->d) * size;
    b.dq = sglcpu_at(j->launch, g->dq) + (place * a->q_row + head * a->d) * size;
    b.out = sglcpu_at(j->launch, g->out) + (place * a->o_row + head * a->e) * size;
    b.dout = sglcpu_at(j->launch, g->dout) + (place * a->o_row + head * a->e) * size;
    b.lse = sglcpu_at(j->launch, g->lse) + ((part->batch * a->h + head) * a->t + query) * size;
    b.turned_q = scratch + g->turned_q;
    b.turned_do = scratch + g->turned_do;
    b.p = scratch + g->p;
    b.slopes = scratch + g->slopes;
    b.delta = scratch + g->delta;
    b.norms = scratch + g->norms;
    return b;
}

static void start_block(const job *j, const block *b)
{
    const sglcpu_heads *a = &j->plan->heads;
    int64_t size = a->real ? 8 : 4;
    j->ops->turn_rows(b->turned_q, SGLCPU_QUERIES, b->cols, b->q, a->q_row, b->queries, a->d, a->scale);
    j->ops->turn_rows(b->turned_do, SGLCPU_QUERIES, b->cols, b->dout, a->o_row, b->queries, a->e, 1.0);
    memset(b->delta, 0, (size_t)(b->cols * size));
    memset(b->norms, 0, (size_t)(b->cols * size));
    memcpy(b->norms, b->lse, (size_t)(b->queries * size));
    for (int64_t i = 0; i < b->queries; i++) {
        double delta = j->ops->row_dot(b->out + i * a->o_row * size, b->dout + i * a->o_row * size, a->e);
        sglcpu_put_number(b->delta + i * size, a->real ? SGL_F64 : SGL_F32, delta);
    }
}

/* One block of queries against the part's keys. */
static void go_through_keys(const job *j, const portion *part, const block *b)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    const sglcpu_float_ops *ops = j->ops;
    int64_t size = a->real ? 8 : 4, ld = SGLCPU_QUERIES, first, last;
    sglcpu_visible_keys(a, j->offset, b->query, b->query + b->queries, &first, &last);
    /* blocks of keys begin at multiples of their size from the first visible one or from the part's first */
    first = sglcpu_max(first / SGLCPU_KEYS * SGLCPU_KEYS, part->key_first);
    last = sglcpu_min(last, part->key_last);
    start_block(j, b);
    for (int64_t i = 0; part->queries && i < b->queries; i++)
        memset(b->dq + i * a->q_row * size, 0, (size_t)(a->d * size));
    for (int64_t key = first; key < last; key += SGLCPU_KEYS) {
        int64_t keys = sglcpu_min(SGLCPU_KEYS, last - key), place = part->batch * a->s + key;
        int64_t k_at = (place * a->k_row + part->group * a->d) * size,
                v_at = (place * a->v_row + part->group * a->e) * size;
        const char *k = sglcpu_at(j->launch, a->k) + k_at, *v = sglcpu_at(j->launch, a->v) + v_at;
        ops->block_product(b->p, ld, k, a->k_row, 1, b->turned_q, ld, keys, b->cols, a->d, false);
        ops->softmax_again(b->p, ld, keys, b->cols, b->norms);
        sglcpu_mask_scores(a, j->offset, b->query, b->queries, key, keys, b->p, ld, 0.0);
        ops->block_product(b->slopes, ld, v, a->v_row, 1, b->turned_do, ld, keys, b->cols, a->e, false);
        ops->softmax_slopes(b->slopes, b->p, ld, keys, b->cols, b->delta, a->scale);
        if (part->keys) {
            char *dk = sglcpu_at(j->launch, g->dk) + k_at, *dv = sglcpu_at(j->launch, g->dv) + v_at;
            ops->block_product(dv, a->v_row, b->p, ld, 1, b->dout, a->o_row, keys, a->e, b->queries, true);
            ops->block_product(dk, a->k_row, b->slopes, ld, 1, b->q, a->q_row, keys, a->d, b->queries, true);
        }
        if (part->queries) {
            ops->block_product(b->dq, a->q_row, b->slopes, 1, ld, k, a->k_row, b->queries, a->d, keys, true);
        }
    }
}

static void clear_keys(const job *j, const portion *part)
{
    const gradient *g = j->plan;
    const sglcpu_heads *a = &g->heads;
    int64_t size = a->real ? 8 : 4;
    char *dk = sglcpu_at(j->launch, g->dk) + part->group * a->d * size,
         *dv = sglcpu_at(j->launch, g->dv) + part->group * a->e * size;
    for (int64_t s = part->key_first; s < part->key_last; s++) {
        memset(dk + (part->batch * a->s + s) * a->k_row * size, 0, (size_t)(a->d * size));
        memset(dv + (part->batch * a->s + s) * a->v_row * size, 0, (size_t)(a->e * size));
    }
}

static void run_part(const job *j, const portion *part, int worker)
{
    const sglcpu_heads *a = &j->plan->heads;
    int64_t shared = a->h / a->g;
    if (part->keys) clear_keys(j, part);
    for (int64_t head = part->group * shared; head < (part->group + 1) * shared; head++) {
        for (int64_t query = part->query_first; query < part->query_last; query += SGLCPU_QUERIES) {
            block b = block_at(j, part, head, query, worker);
            go_through_keys(j, part, &b);
        }
    }
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

static int64_t take(int64_t *at, int64_t bytes)
{
    int64_t place = *at;
    *at += sglcpu_round_up(bytes, 64) + 64;
    return place;
}

sgl_status sglcpu_prepare_attention_grad(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    gradient *g = sglcpu_plan_alloc(p, 1, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    sglcpu_heads *a = &g->heads;
    SGLCORE_TRY(sglcpu_heads_of(p, i, 6, a));
    g->out = a->q + 3;
    g->lse = a->q + 4;
    g->dout = a->q + 5;
    g->dq = a->q + 7;
    g->dk = a->q + 8;
    g->dv = a->q + 9;
    g->key_parts = sglcpu_ceil_div(a->s, PART);
    g->query_parts = sglcpu_ceil_div(a->t, PART);
    g->split = a->b * a->g < ENOUGH_PAIRS && g->key_parts + g->query_parts > 2;
    int64_t size = a->real ? 8 : 4, scratch = 0;
    g->turned_q = take(&scratch, a->d * SGLCPU_QUERIES * size);
    g->turned_do = take(&scratch, a->e * SGLCPU_QUERIES * size);
    g->p = take(&scratch, SGLCPU_KEYS * SGLCPU_QUERIES * size);
    g->slopes = take(&scratch, SGLCPU_KEYS * SGLCPU_QUERIES * size);
    g->delta = take(&scratch, SGLCPU_QUERIES * size);
    g->norms = take(&scratch, SGLCPU_QUERIES * size);
    sglcpu_need_scratch(p, scratch);
    *command = (sglcpu_command){ .run = run_gradient, .plan = g };
    return SGL_OK;
}
