/* stages_make.c -- makes what one stage works with: nodes of its own, and before them what of no stage they read.
 *
 * In: nodes and values that the second walk of stages_emit comes by. Out: their copies in the stage's graph, in the order
 * in which each is wanted first: what a node reads, argument by argument, then the node. A carry of no stage is added up
 * over all micro-batches, a meeting from what the stages' terms come to, in the stages' order, then terms of no stage.
 * Odd invariant: a node is looked at twice where it has to wait for what it reads. */
#include <string.h>

#include "passes/stages_emit.h"

static void push(sglpass_stages_emitter *e, int what, sglir_id id, int64_t micro)
{
    const sglpass_stages_due due = { .what = what, .id = id, .micro = micro };
    sglir_stick(e->to, sglcore_vec_push(e->to->env, &e->due, due));
}

/* What was pushed since is taken in the order in which it was pushed. */
static void turn_round(sglpass_stages_emitter *e, int64_t since)
{
    for (int64_t i = since, k = e->due.count - 1; i < k; i++, k--) {
        const sglpass_stages_due due = e->due.data[i];
        e->due.data[i] = e->due.data[k];
        e->due.data[k] = due;
    }
}

/* The value if it is there, also where nodes of this micro-batch look for it. False: it must be made first. */
static bool find(sglpass_stages_emitter *e, sglir_id asked, int64_t asked_micro)
{
    int64_t micro = asked_micro;
    const sglir_id value = sglpass_meant(e, asked, &micro), have = e->map[micro * e->row + value];
    if (have == SGLIR_NONE && e->s->place[value] < 0) return false;
    e->map[asked_micro * e->row + asked] = have;
    return true;
}

typedef struct reader {
    sglpass_stages_emitter *e;
    int64_t micro;
} reader;

static void ask_for(void *user, sglir_id value)
{
    const reader *r = user;
    if (!find(r->e, value, r->micro)) push(r->e, SGLPASS_DUE_VALUE, value, r->micro);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static sglir_id zeros(sglpass_stages_emitter *e, const sglir_type *type)
{
    int64_t layout[SGLIR_AXIS_COUNT];
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        layout[axis] = type->sharded[axis];
        split = split || layout[axis] >= 0;
    }
    const sglir_named attrs[] = { SGLIR_F("value", 0), SGLIR_I("dtype", type->dtype),
                                  SGLIR_I("partial", type->partial) };
    const sglir_named wide[] = { SGLIR_INTS("dims", type->rank, type->dims),
                                 SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    sglir_id zero = sglir_emit(e->to, SGLIR_OP_CONSTANT, NULL, 0, attrs, 3, NULL);
    return type->rank == 0 ? zero : sglir_emit(e->to, SGLIR_OP_BROADCAST, &zero, 1, wide, split ? 2 : 1, NULL);
}

/* The sum as it began is taken by one stage alone. */
static bool begins_here(const sglpass_stages_emitter *e, sglir_id node)
{
    const int32_t number = e->s->chain[node] - 1;
    const int32_t home = e->s->carries.data[number].home;
    return e->sums[number] == SGLIR_NONE && (home == SGLPASS_STAGES_FREE || home == e->here);
}

/* What this stage adds to, as the node's first argument. */
static void begin_sum(sglpass_stages_emitter *e, sglir_id node, int64_t micro)
{
    const int32_t number = e->s->chain[node] - 1;
    const sglpass_stages_carry *carry = &e->s->carries.data[number];
    if (begins_here(e, node)) e->sums[number] = e->map[carry->first];
    sglir_set_origin_made(e->to, e->from, node, "stages");
    if (e->sums[number] == SGLIR_NONE) e->sums[number] = zeros(e, sglir_type_of(e->from, carry->first));
    e->map[micro * e->row + sglir_arg(e->from, sglir_node_at(e->from, node), 0)] = e->sums[number];
}

static void do_node(sglpass_stages_emitter *e, sglir_id node, int64_t micro)
{
    const int64_t before = e->due.count;
    reader r = { e, micro }, first = { e, 0 };
    push(e, SGLPASS_DUE_NODE, node, micro);
    sglpass_stages_each_use(e->s, node, ask_for, &r);
    if (e->s->chain[node] && begins_here(e, node)) ask_for(&first, e->s->carries.data[e->s->chain[node] - 1].first);
    if (e->to->status != SGL_OK) return;
    if (e->due.count > before + 1) {
        turn_round(e, before + 1);
        return;
    }
    e->due.count = before;
    if (e->s->chain[node]) begin_sum(e, node, micro);
    e->rewrite.map = e->map + micro * e->row;
    sglir_copy_node(&e->rewrite, node);
    if (e->to->status == SGL_OK) e->to->nodes.data[e->to->nodes.count - 1].turn = e->turn;
    if (e->s->chain[node]) e->sums[e->s->chain[node] - 1] = e->rewrite.map[sglir_node_at(e->from, node)->out_first];
}

/* ---- values of no stage ------------------------------------------------------------------------------------------ */

static void push_link(void *user, sglir_id node, int64_t micro) { push(user, SGLPASS_DUE_NODE, node, micro); }

/* What a carry or a meeting is made of, before the sum of it. */
static void begin_value(sglpass_stages_emitter *e, sglir_id value, int64_t micro)
{
    const sglpass_stages_carry *carry = sglpass_carry_of(e, value);
    const sglpass_stages_meeting *meeting = sglpass_meeting_of(e, value);
    const sglir_id maker = sglir_value_at(e->from, value)->node;
    if (maker == SGLIR_NONE) { /* which turn of its stretch it is */
        const int64_t first = e->s->stretches.at[sglpass_stretch_of(e->s, micro)].first;
        e->map[micro * e->row + value] = sglir_constant(e->to, SGL_I64, (double)(micro - first));
        return;
    }
    if (!carry && !meeting) {
        push(e, SGLPASS_DUE_NODE, maker, micro);
        return;
    }
    push(e, SGLPASS_DUE_SUM, value, micro);
    const int64_t since = e->due.count;
    reader top = { e, 0 };
    for (uint32_t i = 0; meeting && i < meeting->term_count; i++)
        ask_for(&top, e->s->terms.data[meeting->term_first + i]);
    for (int64_t m = 0; carry && m < e->s->micro; m++) sglpass_each_link(e, carry, m, push_link, e);
    if (carry && e->due.count == since) ask_for(&top, carry->first);
    turn_round(e, since);
}

static sglir_id join(sglpass_stages_emitter *e, const sglpass_stages_meeting *meeting, sglir_id sum, sglir_id more)
{
    const sglir_id args[] = { sum, more };
    const sglir_op op = (sglir_op)sglir_node_at(e->from, meeting->root)->op;
    return sum == SGLIR_NONE ? more : sglir_emit(e->to, op, args, 2, NULL, 0, NULL);
}

sglir_id sglpass_stages_add_up(sglpass_stages_emitter *e, const sglpass_stages_meeting *meeting, uint32_t first,
                               uint32_t count)
{
    sglir_id sum = SGLIR_NONE;
    sglir_set_origin_made(e->to, e->from, meeting->root, "stages");
    for (uint32_t i = first; i < first + count; i++) {
        const sglir_id term = e->s->terms.data[meeting->term_first + i];
        (void)find(e, term, 0);
        sum = join(e, meeting, sum, e->map[term]);
    }
    return sum;
}

static sglir_id meet(sglpass_stages_emitter *e, const sglpass_stages_meeting *meeting)
{
    sglir_id sum = SGLIR_NONE;
    uint32_t count;
    for (uint32_t i = 0; i < meeting->term_count; i += count) {
        const sglir_id *terms = &e->s->terms.data[meeting->term_first + i];
        const int32_t stage = e->s->place[*terms];
        count = stage < 0 ? 1 : sglpass_stages_run(e->s, meeting, i);
        (void)find(e, *terms, 0);
        sglir_set_origin_made(e->to, e->from, meeting->root, "stages");
        sum = join(e, meeting, sum, e->map[count > 1 ? sglpass_part_at(e, meeting, stage) : *terms]);
    }
    return sum;
}

static void do_sum(sglpass_stages_emitter *e, sglir_id value, int64_t micro)
{
    const sglpass_stages_meeting *meeting = sglpass_meeting_of(e, value);
    const sglpass_stages_carry *carry = sglpass_carry_of(e, value);
    sglir_id *sum = &e->map[micro * e->row + value];
    if (meeting)
        *sum = meet(e, meeting);
    else
        *sum = e->sums[carry - e->s->carries.data];
    if (*sum == SGLIR_NONE && carry) *sum = e->map[carry->first];
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static void work_off(sglpass_stages_emitter *e)
{
    while (e->due.count > 0 && e->to->status == SGL_OK) {
        const sglpass_stages_due due = e->due.data[--e->due.count];
        int64_t micro = due.micro;
        if (due.what == SGLPASS_DUE_NODE) {
            do_node(e, due.id, micro);
        } else if (due.what == SGLPASS_DUE_SUM) {
            do_sum(e, due.id, micro);
        } else if (!find(e, due.id, micro)) {
            const sglir_id value = sglpass_meant(e, due.id, &micro);
            begin_value(e, value, micro);
        }
    }
}

void sglpass_stages_make(sglpass_stages_emitter *e, sglir_id node, int64_t micro)
{
    push(e, SGLPASS_DUE_NODE, node, micro);
    work_off(e);
}

sglir_id sglpass_stages_take(sglpass_stages_emitter *e, sglir_id value, int64_t micro)
{
    push(e, SGLPASS_DUE_VALUE, value, micro);
    work_off(e);
    return find(e, value, micro) ? e->map[micro * e->row + value] : SGLIR_NONE;
}
