/* place_check.c -- see place_check.h. A value's content is a stamp, new each time it is made, and where in the stamped
 * bytes it begins; views and carries that are handed on share stamps. */
#include "tests/support/place_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/kernel.h"

enum { STEPS = 2, MOST_TURNS = 3 };

typedef struct content {
    uint32_t stamp; /* 0: none yet */
    int64_t base;
} content;

typedef struct cell {
    uint32_t stamp;
    int64_t index;
} cell;

typedef struct checker {
    sglcore_env *env;
    const sglir_graph *g;
    cell *spaces[SGLIR_SPACES];
    content *contents; /* per value */
    uint32_t stamps;
    ir_message *message;
} checker;

static bool complain(checker *c, sglir_id value, const char *what)
{
    const sglir_value *v = sglir_value_at(c->g, value);
    const char *op = v->node == SGLIR_NONE ? "region parameter" : sglir_ops[c->g->nodes.data[v->node].op].name;
    snprintf(c->message->text, sizeof c->message->text, "value id %u (of %s, space %d + %lld): %s", (unsigned)value, op,
             v->space, (long long)v->offset, what);
    return false;
}

static int64_t bytes_of(const checker *c, sglir_id value) { return sglir_bytes(sglir_type_of(c->g, value)); }

static bool inside(checker *c, sglir_id value)
{
    const sglir_value *v = sglir_value_at(c->g, value);
    if (v->space == SGLIR_SPACE_NONE) return complain(c, value, "has no place");
    return (v->offset >= 0 && v->offset + bytes_of(c, value) <= c->g->space_bytes[v->space]) ||
           complain(c, value, "lies outside its space");
}

static void write_bytes(checker *c, int space, int64_t offset, int64_t bytes, uint32_t stamp)
{
    for (int64_t i = 0; i < bytes; i++) c->spaces[space][offset + i] = (cell){ stamp, i };
}

static bool write(checker *c, sglir_id value)
{
    const sglir_value *v = sglir_value_at(c->g, value);
    if (!inside(c, value)) return false;
    c->contents[value] = (content){ ++c->stamps, 0 };
    write_bytes(c, v->space, v->offset, bytes_of(c, value), c->stamps);
    return true;
}

static bool holds(checker *c, sglir_id value, content what)
{
    const sglir_value *v = sglir_value_at(c->g, value);
    if (!inside(c, value)) return false;
    if (what.stamp == 0) return complain(c, value, "is read before it is made");
    for (int64_t i = 0; i < bytes_of(c, value); i++) {
        const cell *at = &c->spaces[v->space][v->offset + i];
        if (at->stamp != what.stamp || at->index != what.base + i)
            return complain(c, value, "is read, but was overwritten");
    }
    return true;
}

static bool same_place(const checker *c, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(c->g, a), *y = sglir_value_at(c->g, b);
    return x->space == y->space && x->offset == y->offset && bytes_of(c, a) == bytes_of(c, b);
}

static bool overlap(const checker *c, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(c->g, a), *y = sglir_value_at(c->g, b);
    return x->space == y->space && x->offset < y->offset + bytes_of(c, b) && y->offset < x->offset + bytes_of(c, a) &&
           bytes_of(c, a) > 0 && bytes_of(c, b) > 0;
}

/* What freeze does with a COPY between two places, or leaves out when they are one. */
static bool hand_over(checker *c, sglir_id from, content what, sglir_id to)
{
    if (!holds(c, from, what)) return false;
    if (!same_place(c, from, to)) return write(c, to);
    c->contents[to] = what;
    return true;
}

/* ---- results over arguments ------------------------------------------------------------------------------------ */

static bool same_map(const sglexec_map *a, const sglexec_map *b, int rank)
{
    return a->offset == b->offset && memcmp(a->strides, b->strides, sizeof a->strides[0] * (size_t)rank) == 0;
}

/* Every load of the argument reads, at each point of the domain, the element that is stored there. */
static bool kernel_bears(checker *c, sglir_id node, uint32_t arg, uint32_t result)
{
    sglexec_kernel kernel = { 0 };
    if (sglexec_kernel_build(c->env, c->g, node, &kernel) != SGL_OK) {
        snprintf(c->message->text, sizeof c->message->text, "%s", c->env->message);
        return false;
    }
    uint32_t target = c->g->nodes.data[node].arg_count + result;
    const sglexec_step *store = NULL;
    bool good = true;
    for (int64_t i = 0; i < kernel.steps.count; i++) {
        const sglexec_step *step = &kernel.steps.data[i];
        if (step->kind == SGLEXEC_STORE && step->operand == target) store = step;
    }
    for (int64_t i = 0; i < kernel.steps.count && good; i++) {
        const sglexec_step *step = &kernel.steps.data[i];
        if (step->kind == SGLEXEC_LOAD && step->operand == arg)
            good = store != NULL && (store->form == SGLEXEC_FULL || kernel.rows * kernel.cols == 1) &&
                   same_map(&step->map, &store->map, kernel.rank);
    }
    for (int64_t i = 0; i < kernel.steps.count && good; i++) {
        const sglexec_step *step = &kernel.steps.data[i];
        for (uint32_t k = 0; step->kind == SGLEXEC_LOAD_PIECES && k < step->piece_count && good; k++)
            good = kernel.pieces.data[step->piece_first + k].operand != arg;
    }
    sglexec_kernel_free(c->env, &kernel);
    return good || complain(c, c->g->nodes.data[node].out_first + result, "is written over an argument read elsewhere");
}

static bool bears(checker *c, sglir_id id, uint32_t arg, uint32_t result)
{
    const sglir_node *node = sglir_node_at(c->g, id);
    sglir_id a = sglir_arg(c->g, node, arg), r = node->out_first + result;
    if (!overlap(c, a, r)) return true;
    if (!same_place(c, a, r)) return complain(c, r, "lies over a part of an argument");
    if (node->op == SGLIR_OP_FUSED) return kernel_bears(c, id, arg, result);
    if (node->op == SGLIR_OP_COPY || node->op == SGLIR_OP_ALL_REDUCE || node->op == SGLIR_OP_ALL_MAX ||
        (node->op == SGLIR_OP_DYNAMIC_UPDATE && arg == 0))
        return true;
    return complain(c, r, "lies over an argument of an op that does not bear it");
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

static bool run_region(checker *c, sglir_id id);

/* Until its wait nobody writes where an exchange works: its result, and its arguments unless it is made in their place. */
static bool holds_exchange(checker *c, const sglir_node *wait)
{
    sglir_id made = sglir_arg(c->g, wait, 0);
    for (uint32_t i = 0; i < wait->arg_count; i++) {
        sglir_id arg = sglir_arg(c->g, wait, i);
        if (i > 0 && same_place(c, arg, made)) continue;
        if (!holds(c, arg, c->contents[arg])) return false;
    }
    return true;
}

static bool run_view(checker *c, const sglir_node *node)
{
    content what = c->contents[sglir_arg(c->g, node, 0)];
    if (sglir_is_wait(node->op) && !holds_exchange(c, node)) return false;
    for (uint32_t i = 0; i < node->out_count; i++) {
        c->contents[node->out_first + i] = what;
        what.base += bytes_of(c, node->out_first + i);
    }
    return true;
}

/* The places of the body's parameters, seen by what decides about a turn. */
static bool decide(checker *c, const sglir_node *node, const sglir_region *body)
{
    const sglir_region *decides = &c->g->regions.data[node->region_first];
    for (int64_t i = 0; i < decides->parameters.count; i++) {
        sglir_id mine = decides->parameters.data[i], theirs = body->parameters.data[i];
        if (!same_place(c, mine, theirs)) return complain(c, mine, "does not lie where the body has it");
        c->contents[mine] = c->contents[theirs];
    }
    return run_region(c, node->region_first) &&
           holds(c, decides->results.data[0], c->contents[decides->results.data[0]]);
}

static bool run_turn(checker *c, const sglir_node *node, const sglir_region *body)
{
    content turns[64];
    int count = (int)body->results.count;
    if (count > 64) return complain(c, body->results.data[0], "too many carries for this check");
    if (!write(c, body->parameters.data[0])) return false;
    if (node->op == SGLIR_OP_WHILE && !decide(c, node, body)) return false;
    if (!run_region(c, sglir_body(node))) return false;
    for (int i = 0; i < count; i++) turns[i] = c->contents[body->results.data[i]];
    for (int i = 0; i < count; i++) {
        if (!hand_over(c, body->results.data[i], turns[i], body->parameters.data[i + 1])) return false;
    }
    return true;
}

/* Both regions, one after the other: each must find all that it uses. */
static bool run_branch(checker *c, const sglir_node *node)
{
    sglir_id predicate = sglir_arg(c->g, node, 0);
    if (!holds(c, predicate, c->contents[predicate])) return false;
    for (uint32_t r = 0; r < 2; r++) {
        const sglir_region *region = &c->g->regions.data[node->region_first + r];
        if (!run_region(c, node->region_first + r)) return false;
        for (uint32_t i = 0; i < node->out_count; i++) {
            sglir_id yielded = region->results.data[i];
            if (!hand_over(c, yielded, c->contents[yielded], node->out_first + i)) return false;
        }
        for (uint32_t i = 0; i < node->out_count; i++) { /* none over another */
            if (!holds(c, node->out_first + i, c->contents[node->out_first + i])) return false;
        }
    }
    return true;
}

static bool run_loop(checker *c, const sglir_node *node)
{
    const sglir_region *body = &c->g->regions.data[sglir_body(node)];
    int64_t steps = node->op == SGLIR_OP_SCAN ? sglir_attr_int(c->g, node, "steps") : MOST_TURNS;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = sglir_arg(c->g, node, i);
        if (!hand_over(c, arg, c->contents[arg], body->parameters.data[i + 1])) return false;
    }
    for (int64_t k = 0; k < steps && k < MOST_TURNS; k++) {
        if (!run_turn(c, node, body)) return false;
    }
    for (uint32_t i = 0; i < node->out_count; i++) {
        sglir_id parameter = body->parameters.data[i + 1];
        if (!hand_over(c, parameter, c->contents[parameter], node->out_first + i)) return false;
    }
    return true;
}

static bool run_node(checker *c, sglir_id id)
{
    const sglir_node *node = sglir_node_at(c->g, id);
    if (node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT) return true;
    if (sglir_is_view(node)) return run_view(c, node);
    if (sglir_is_loop(node)) return run_loop(c, node);
    if (node->op == SGLIR_OP_COND) return run_branch(c, node);
    if (node->work_bytes > 0) write_bytes(c, SGLIR_SPACE_ARENA, node->work_offset, node->work_bytes, ++c->stamps);
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = sglir_arg(c->g, node, i);
        if (!holds(c, arg, c->contents[arg])) return false;
        for (uint32_t r = 0; r < node->out_count; r++) {
            if (!bears(c, id, i, r)) return false;
        }
    }
    for (uint32_t r = 0; r < node->out_count; r++) {
        if (!write(c, node->out_first + r)) return false;
    }
    for (uint32_t r = 0; r < node->out_count; r++) { /* apart from each other and from the workspace */
        if (!holds(c, node->out_first + r, c->contents[node->out_first + r])) return false;
    }
    for (int64_t i = 0; i < node->work_bytes; i++) {
        const cell *at = &c->spaces[SGLIR_SPACE_ARENA][node->work_offset + i];
        if (at->index != i) return complain(c, node->out_first, "lies in the node's workspace");
    }
    return true;
}

static bool run_region(checker *c, sglir_id id)
{
    const sglir_region *region = &c->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        if (!run_node(c, region->nodes.data[n])) return false;
    }
    return true;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static bool is_there_before(const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT;
}

static bool begin(checker *c)
{
    for (int64_t n = 0; n < c->g->nodes.count; n++) {
        const sglir_node *node = &c->g->nodes.data[n];
        sglir_id holder = c->g->regions.data[node->region].node;
        if (holder != SGLIR_NONE && c->g->nodes.data[holder].op == SGLIR_OP_FUSED) continue;
        if (is_there_before(node) && !write(c, node->out_first)) return false;
    }
    return true;
}

static bool finish(checker *c)
{
    const sglir_graph *g = c->g;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id state = sglir_input_find(g, sglcore_string(g->strings, output->name));
        if (!hand_over(c, output->value, c->contents[output->value], state)) return false;
    }
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role == SGLIR_FETCH && !holds(c, output->value, c->contents[output->value])) return false;
    }
    for (int64_t n = 0; n < g->nodes.count; n++) { /* states hold what they must, feeds and constants what they held */
        const sglir_node *node = &g->nodes.data[n];
        if (is_there_before(node) && c->contents[node->out_first].stamp != 0 &&
            !holds(c, node->out_first, c->contents[node->out_first]))
            return false;
    }
    return true;
}

bool place_check(sglcore_env *env, const sglir_graph *placed, ir_message *message)
{
    checker c = { .env = env, .g = placed, .message = message };
    for (int s = 0; s < 5; s++) c.spaces[s] = calloc((size_t)placed->space_bytes[s] + 1, sizeof(cell));
    c.contents = calloc((size_t)placed->values.count + 1, sizeof *c.contents);
    bool good = c.contents != NULL;
    for (int s = 0; s < 5; s++) good = good && c.spaces[s] != NULL;
    good = good && begin(&c);
    for (int step = 0; step < STEPS && good; step++) good = run_region(&c, 0) && finish(&c);
    for (int s = 0; s < 5; s++) free(c.spaces[s]);
    free(c.contents);
    return good;
}
