/* extract.c -- a graph of what some values of another graph need, and of nothing else.
 *
 * Comes in: a traced graph, the wanted values, values whose content the host has already. Goes out: a new graph: wanted
 * values fetched, known ones fed. So a console computes each line without what the lines before it computed. Odd invariant:
 * a known value that a needed gradient is taken through stays computed: fed, it would be a constant to the derivative. */
#include <stdio.h>
#include <string.h>

#include "session/session.h"

enum {
    NEEDED = 1,
    THROUGH = 2,
    KNOWN = 4
}; /* marks of a value: THROUGH: a needed gradient is taken of what needs it */

typedef struct extraction {
    sglcore_env *env;
    const sglir_graph *from;
    const sgl_value *values, *known;
    int count, known_count;
    uint8_t *marks; /* per value of `from` */
    sglir_rewrite rewrite;
} extraction;

static uint8_t marks_of(const extraction *e, const sglir_node *node)
{
    uint8_t all = 0;
    for (uint32_t r = 0; r < node->out_count; r++) all |= e->marks[node->out_first + r];
    return all & (NEEDED | THROUGH);
}

static bool is_fed(const extraction *e, sglir_id value) { return (e->marks[value] & (KNOWN | THROUGH)) == KNOWN; }

static bool all_fed(const extraction *e, const sglir_node *node)
{
    for (uint32_t r = 0; r < node->out_count; r++)
        if (e->marks[node->out_first + r] & NEEDED && !is_fed(e, node->out_first + r)) return false;
    return true;
}

typedef struct capture_marks {
    extraction *e;
    uint8_t marks;
} capture_marks;

static void mark_capture(void *user, sglir_id value)
{
    capture_marks *c = user;
    c->e->marks[value] |= c->marks;
}

/* From the last node to the first: all users of a value are seen before its maker, so that its marks are final there. */
static void mark_needed(extraction *e)
{
    const sglir_region *top = &e->from->regions.data[0];
    for (int64_t n = top->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(e->from, top->nodes.data[n]);
        uint8_t marks = marks_of(e, node);
        if (!(marks & NEEDED) || all_fed(e, node)) continue;
        if (node->op == SGLIR_OP_GRAD) marks |= THROUGH;
        for (uint32_t a = 0; a < node->arg_count; a++) e->marks[sglir_arg(e->from, node, a)] |= marks;
        capture_marks captures = { e, marks };
        sglir_each_capture(e->from, node, mark_capture, &captures);
    }
}

static void feed_known(extraction *e, int i)
{
    sglir_id value = e->known[i].id;
    const sglir_graph *from = e->from;
    char name[32];
    snprintf(name, sizeof name, "known.%d", i);
    sglir_set_origin_of(e->rewrite.to, &from->origins.data[sglir_maker(from, value)->origin], from);
    e->rewrite.map[value] = sglir_input(e->rewrite.to, SGL_FEED, name, sglir_type_of(from, value));
}

/* A node with a result that is fed and one that is not is copied, and the fed one is read from the copy. */
static void copy_needed(extraction *e)
{
    const sglir_region *top = &e->from->regions.data[0];
    for (int i = 0; i < e->known_count; i++) {
        sglir_id value = e->known[i].id;
        const sglir_node *maker = sglir_maker(e->from, value);
        bool first = e->rewrite.map[value] == SGLIR_NONE; /* the host may name one twice */
        if (first && e->marks[value] & NEEDED && is_fed(e, value) && all_fed(e, maker)) feed_known(e, i);
    }
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(e->from, top->nodes.data[n]);
        if (marks_of(e, node) & NEEDED && !all_fed(e, node)) sglir_copy_node(&e->rewrite, top->nodes.data[n]);
    }
    for (int i = 0; i < e->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "value.%d", i);
        sglir_output_add(e->rewrite.to, SGLIR_FETCH, name, e->rewrite.map[e->values[i].id]);
    }
}

static sgl_status check_values(const sgl_graph *graph, const char *what, const sgl_value *values, int count)
{
    for (int i = 0; i < count; i++)
        if (values[i].id >= (uint64_t)graph->ir->values.count || !sglir_maker(graph->ir, values[i].id) ||
            sglir_value_at(graph->ir, values[i].id)->region != 0)
            return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT,
                                "sgl_graph_extract: %s %d is no value of the graph", what, i);
    return SGL_OK;
}

static sgl_status extract(extraction *e, sglir_graph **made)
{
    for (int i = 0; i < e->count; i++) e->marks[e->values[i].id] |= NEEDED;
    for (int i = 0; i < e->known_count; i++) e->marks[e->known[i].id] |= KNOWN;
    mark_needed(e);
    SGLCORE_TRY(sglir_rewrite_begin(e->env, e->from, "", NULL, &e->rewrite));
    copy_needed(e);
    return sglir_rewrite_end(&e->rewrite, false, made);
}

sgl_status sgl_graph_extract(const sgl_graph *graph, const sgl_value *values, int count, const sgl_value *known,
                             int known_count, sgl_graph **extracted)
{
    SGLSESSION_NEEDS(graph && values && extracted && (known || !known_count), graph ? graph->vm : NULL,
                     "graph, values, known or extracted is NULL");
    SGLSESSION_NEEDS(count >= 1 && known_count >= 0, graph->vm, "count is below 1, or known_count below 0");
    *extracted = NULL;
    SGLCORE_TRY(check_values(graph, "value", values, count));
    SGLCORE_TRY(check_values(graph, "known value", known, known_count));
    sgl_vm *vm = graph->vm;
    size_t bytes = (size_t)graph->ir->values.count;
    extraction e = { .env = &vm->env,
                     .from = graph->ir,
                     .values = values,
                     .known = known,
                     .count = count,
                     .known_count = known_count,
                     .marks = sglcore_alloc_zero(&vm->env, bytes) };
    sglir_graph *ir = NULL;
    sgl_status status = e.marks ? extract(&e, &ir) : SGL_OUT_OF_MEMORY;
    sglcore_free(&vm->env, e.marks, bytes);
    return status == SGL_OK ? sglsession_graph_take(vm, ir, extracted) : status;
}
