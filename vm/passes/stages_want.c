/* stages_want.c -- who wants what: the marks that the first walk of stages_emit leaves for the second.
 *
 * In: values and nodes that a stage works with. Out: a bit per stage for every value of every micro-batch. What is of no
 * stage is made wherever it is wanted, and wants what it is made of, there; of a meeting a stage wants what each other
 * stage's terms come to. Odd invariant: a value is looked at once for each stage, the first time that it is wanted. */
#include "passes/stages_emit.h"

const sglpass_stages_carry *sglpass_carry_of(const sglpass_stages_emitter *e, sglir_id value)
{
    const sglir_id node = sglir_value_at(e->from, value)->node;
    const sglir_node *loop = node == SGLIR_NONE ? NULL : sglpass_loop_at(e, node);
    if (!loop) return NULL;
    const sglpass_stages_loop *at = &e->s->loops.data[e->s->loop_of[sglir_body(loop)] - 1];
    return &e->s->carries.data[at->carry_first + (value - loop->out_first)];
}

const sglpass_stages_meeting *sglpass_meeting_of(const sglpass_stages_emitter *e, sglir_id value)
{
    const sglir_id node = sglir_value_at(e->from, value)->node;
    const int32_t number = node == SGLIR_NONE ? 0 : e->s->meeting[node];
    return number > 0 ? &e->s->meetings.data[number - 1] : NULL;
}

sglir_id sglpass_meant(const sglpass_stages_emitter *e, sglir_id value, int64_t *micro)
{
    const sglpass_stages_carry *carry = sglpass_carry_of(e, value);
    if (carry && !carry->chained) {
        value = carry->result;
        *micro = e->s->micro - 1;
    }
    if (sglpass_is_top(e, value)) *micro = 0;
    return value;
}

void sglpass_each_link(sglpass_stages_emitter *e, const sglpass_stages_carry *carry, int64_t micro,
                       void (*visit)(void *user, sglir_id node, int64_t micro), void *user)
{
    const int32_t number = (int32_t)(carry - e->s->carries.data) + 1;
    const sglir_node *loop = sglir_node_at(e->from, sglir_value_at(e->from, carry->out)->node);
    const sglir_region *body = sglpass_body_at(e, &e->s->loops.data[e->s->loop_of[sglir_body(loop)] - 1], micro);
    for (int64_t i = 0; i < body->nodes.count; i++) {
        if (e->s->chain[body->nodes.data[i]] == number) visit(user, body->nodes.data[i], micro);
    }
}

typedef struct wish {
    sglpass_stages_emitter *e;
    int64_t micro;
    int stage;
} wish;

/* False: the stage wanted it before. */
static bool mark(const wish *w, sglir_id value, int64_t micro)
{
    uint64_t *wanted = &w->e->wanted[micro * w->e->row + value];
    const bool is_new = (*wanted >> w->stage & 1) == 0;
    *wanted |= (uint64_t)1 << w->stage;
    return is_new;
}

static void want(void *user, sglir_id value)
{
    const wish *w = user;
    sglpass_stages_due due = { .what = SGLPASS_DUE_VALUE, .micro = w->micro };
    due.id = sglpass_meant(w->e, value, &due.micro);
    if (!mark(w, due.id, due.micro)) return;
    if (w->e->s->place[due.id] >= 0 || sglir_value_at(w->e->from, due.id)->node == SGLIR_NONE) return;
    sglir_stick(w->e->to, sglcore_vec_push(w->e->to->env, &w->e->due, due));
}

static void want_link(void *user, sglir_id node, int64_t micro)
{
    const wish *w = user;
    wish at = { w->e, micro, w->stage };
    sglpass_stages_each_use(w->e->s, node, want, &at);
}

static void want_terms(wish *w, const sglpass_stages_meeting *meeting)
{
    const sglpass_stages *s = w->e->s;
    uint32_t count;
    for (uint32_t i = 0; i < meeting->term_count; i += count) {
        const sglir_id *terms = &s->terms.data[meeting->term_first + i];
        count = sglpass_stages_run(s, meeting, i);
        if (count > 1 && s->place[*terms] >= 0)
            (void)mark(w, sglpass_part_at(w->e, meeting, s->place[*terms]), 0);
        else
            for (uint32_t k = 0; k < count; k++) want(w, terms[k]);
    }
}

/* What is of no stage, and what it is made of, until all of that is marked. */
static void follow(wish *w)
{
    sglpass_stages_emitter *e = w->e;
    while (e->due.count > 0 && e->to->status == SGL_OK) {
        const sglpass_stages_due due = e->due.data[--e->due.count];
        const sglpass_stages_carry *carry = sglpass_carry_of(e, due.id);
        const sglpass_stages_meeting *meeting = sglpass_meeting_of(e, due.id);
        w->micro = due.micro;
        if (meeting)
            want_terms(w, meeting);
        else if (!carry)
            want_link(w, sglir_value_at(e->from, due.id)->node, due.micro);
        else {
            want(w, carry->first);
            for (int64_t m = 0; m < e->s->micro; m++) sglpass_each_link(e, carry, m, want_link, w);
        }
    }
}

void sglpass_stages_want(sglpass_stages_emitter *e, sglir_id value, int64_t micro, int stage)
{
    wish w = { e, micro, stage };
    want(&w, value);
    follow(&w);
}

void sglpass_stages_want_uses(sglpass_stages_emitter *e, sglir_id node, int64_t micro, int stage)
{
    wish w = { e, micro, stage };
    want_link(&w, node, micro);
    follow(&w);
}
