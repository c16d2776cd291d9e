/* stages_meet.c -- sums of numbers in which several stages meet (a norm): each stage hands over one number for each, what
 * its own terms come to.
 *
 * In: places; which values stages meet in. Out: the meetings: of each tree of one associative op over single elements the
 * last node, and the terms, by stage, within a stage in the order in which the graph takes them; those of no stage come
 * last. A sum within the tree that something else reads, too, is a term of no stage: a meeting of its own. Odd invariant:
 * what nodes within one stage have added up already stays as they have it. */
#include "passes/stages.h"

typedef struct finder {
    sglpass_stages *s;
    const uint8_t *met;   /* per value: several stages meet in it */
    const uint32_t *uses; /* per value */
    uint8_t *within;      /* per node: it is of a tree, and not its last */
    SGLCORE_VEC(sglir_id) due;
    SGLCORE_VEC(sglir_id) terms; /* of the tree at hand, in the graph's order */
} finder;

static bool is_associative(sglir_op op)
{
    return op == SGLIR_OP_ADD || op == SGLIR_OP_MINIMUM || op == SGLIR_OP_MAXIMUM || op == SGLIR_OP_AND ||
           op == SGLIR_OP_OR;
}

static bool joins(const finder *f, const sglir_node *node)
{
    return is_associative((sglir_op)node->op) && f->met[node->out_first];
}

/* Whether the argument is made by a node of the same tree, for this node alone. */
static bool goes_on(const finder *f, const sglir_node *node, sglir_id argument)
{
    const sglir_node *maker = sglir_maker(f->s->from, argument);
    return maker && maker->op == node->op && joins(f, maker) && f->uses[argument] == 1;
}

static void mark_within(finder *f, const sglir_region *top)
{
    for (int64_t i = 0; i < top->nodes.count; i++) {
        const sglir_node *node = sglir_node_at(f->s->from, top->nodes.data[i]);
        if (!joins(f, node)) continue;
        for (uint32_t k = 0; k < node->arg_count; k++) {
            const sglir_id argument = sglir_arg(f->s->from, node, k);
            if (goes_on(f, node, argument)) f->within[sglir_value_at(f->s->from, argument)->node] = 1;
        }
    }
}

static sgl_status list_terms(finder *f, sglir_id root)
{
    const sglir_graph *g = f->s->from;
    f->terms.count = 0;
    SGLCORE_TRY(sglcore_vec_push(f->s->env, &f->due, sglir_node_at(g, root)->out_first));
    while (f->due.count > 0) {
        const sglir_id value = f->due.data[--f->due.count];
        const sglir_node *maker = sglir_maker(g, value);
        const bool is_tree =
            value == sglir_node_at(g, root)->out_first || (maker && f->within[sglir_value_at(g, value)->node]);
        if (!is_tree) SGLCORE_TRY(sglcore_vec_push(f->s->env, &f->terms, value));
        for (uint32_t k = is_tree ? maker->arg_count : 0; k-- > 0;)
            SGLCORE_TRY(sglcore_vec_push(f->s->env, &f->due, sglir_arg(g, maker, k)));
    }
    return SGL_OK;
}

/* By stage, those of none last. */
static sgl_status keep_terms(finder *f, sglir_id root)
{
    sglpass_stages *s = f->s;
    const sglpass_stages_meeting meeting = { root, (uint32_t)s->terms.count, (uint32_t)f->terms.count };
    for (int32_t turn = 0; turn <= s->stages; turn++) {
        const int32_t stage = turn < s->stages ? turn : SGLPASS_STAGES_FREE;
        for (int64_t i = 0; i < f->terms.count; i++) {
            if (s->place[f->terms.data[i]] != stage) continue;
            SGLCORE_TRY(sglcore_vec_push(s->env, &s->terms, f->terms.data[i]));
        }
    }
    SGLCORE_TRY(sglcore_vec_push(s->env, &s->meetings, meeting));
    s->meeting[root] = (int32_t)s->meetings.count;
    return SGL_OK;
}

static sgl_status find_meetings(finder *f)
{
    const sglir_region *top = &f->s->from->regions.data[0];
    mark_within(f, top);
    for (int64_t i = 0; i < top->nodes.count; i++) {
        const sglir_id id = top->nodes.data[i];
        const sglir_node *node = sglir_node_at(f->s->from, id);
        if (!joins(f, node) || f->within[id]) continue;
        SGLCORE_TRY(list_terms(f, id));
        SGLCORE_TRY(keep_terms(f, id));
    }
    return SGL_OK;
}

uint32_t sglpass_stages_run(const sglpass_stages *s, const sglpass_stages_meeting *meeting, uint32_t first)
{
    const sglir_id *terms = &s->terms.data[meeting->term_first];
    uint32_t end = first + 1;
    while (end < meeting->term_count && s->place[terms[end]] == s->place[terms[first]]) end++;
    return end - first;
}

sgl_status sglpass_stages_meet(sglpass_stages *s, const uint8_t *met, const uint32_t *uses)
{
    finder f = { .s = s, .met = met, .uses = uses };
    f.within = sglcore_arena_alloc(&s->arena, (size_t)s->from->nodes.count);
    if (!f.within) return SGL_OUT_OF_MEMORY;
    const sgl_status status = find_meetings(&f);
    sglcore_vec_free(s->env, &f.due);
    sglcore_vec_free(s->env, &f.terms);
    return status;
}
