/* autodiff.c -- expands `grad` nodes, graph to graph: of, wrt... become d of / d wrt, in ordinary nodes.
 *
 * In: a graph with grad nodes. Out: the same without any, and without stop_gradient, which then has said all it had to
 * say. The grad nodes go one at a time, lowest id first, so that a grad of a grad sees the inner one expanded.
 * For each: (1) the composites on the path from wrt to `of` whose derivative is that of their decomposition are taken
 * apart, round by round until none is left; (2) in the new graph, where the grad node stood, the path is walked
 * backwards, each op's rule (vjp_*.c) emits the gradients of its arguments, and these are summed as they come.
 * Odd invariant: ids grow with the order of making, through all regions, so one pass over the ids up sees makers before
 * users, and one down users before makers. */
#include <string.h>

#include "passes/pass.h"
#include "passes/vjp_rules.h"

enum { DEPENDS = 1, NEEDED = 2, ON_PATH = DEPENDS | NEEDED };

/* ---- the path from wrt to `of` -------------------------------------------------------------------------------- */

static bool is_float(const sglir_graph *g, sglir_id value)
{
    return sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, value)->dtype);
}

static bool node_has(const sglir_graph *g, const sglir_node *node, const uint8_t *marks, uint8_t bit)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (marks[sglir_arg(g, node, i)] & bit) return true;
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &g->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->results.count; i++) {
            if (marks[region->results.data[i]] & bit) return true;
        }
    }
    return false;
}

/* DEPENDS: floats that depend on one of wrt, not through an op that lets no gradient pass. */
static void mark_dependents(const sglir_graph *g, const sglir_id *wrt, uint32_t count, uint8_t *marks)
{
    for (uint32_t i = 0; i < count; i++) marks[wrt[i]] |= DEPENDS;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (sglpass_vjp_rule((sglir_op)node->op) == sglpass_vjp_zero || !node_has(g, node, marks, DEPENDS)) continue;
        for (uint32_t k = 0; k < node->out_count; k++) {
            if (is_float(g, node->out_first + k)) marks[node->out_first + k] |= DEPENDS;
        }
    }
}

static bool makes(const sglir_node *node, const uint8_t *marks, uint8_t bits)
{
    for (uint32_t k = 0; k < node->out_count; k++) {
        if ((marks[node->out_first + k] & bits) == bits) return true;
    }
    return false;
}

/* NEEDED: what `of` is made from. */
static void mark_needed(const sglir_graph *g, sglir_id of, uint8_t *marks)
{
    marks[of] |= NEEDED;
    for (int64_t n = g->nodes.count - 1; n >= 0; n--) {
        const sglir_node *node = &g->nodes.data[n];
        if (!makes(node, marks, NEEDED)) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) marks[sglir_arg(g, node, i)] |= NEEDED;
        for (uint32_t r = 0; r < node->region_count; r++) {
            const sglir_region *region = &g->regions.data[node->region_first + r];
            for (int64_t i = 0; i < region->results.count; i++) marks[region->results.data[i]] |= NEEDED;
        }
    }
}

/* Writes all values.count marks. */
static void mark_path(const sglir_graph *g, sglir_id of, const sglir_id *wrt, uint32_t count, uint8_t *marks)
{
    memset(marks, 0, (size_t)g->values.count);
    mark_dependents(g, wrt, count, marks);
    mark_needed(g, of, marks);
}

/* ---- one round ------------------------------------------------------------------------------------------------ */

typedef struct round_state {
    sglir_id grad;        /* the node of the old graph that this round is about; SGLIR_NONE: the last round */
    const uint8_t *split; /* per node of the old graph: 1 to take it apart */
    bool expands;         /* the grad node goes in this round */
} round_state;

/* What the backward walk keeps. */
typedef struct backward {
    sglir_graph *g;
    const char *pass;
    uint8_t *marks;      /* per value at the time of the grad node */
    sglir_id *gradients; /* the same: sum so far, SGLIR_NONE while none has come */
    int64_t values;
    sglir_id *dys, *into; /* of one node */
    uint8_t *wanted;
    int64_t widest_args, widest_outs;
} backward;

static void fail(sglir_graph *g, sgl_status status)
{
    if (g->status == SGL_OK) g->status = status;
}

static void backward_free(backward *b)
{
    sglcore_env *env = b->g->env;
    sglcore_free(env, b->marks, (size_t)b->values);
    sglcore_free(env, b->gradients, (size_t)b->values * sizeof *b->gradients);
    sglcore_free(env, b->dys, (size_t)b->widest_outs * sizeof *b->dys);
    sglcore_free(env, b->into, (size_t)b->widest_args * sizeof *b->into);
    sglcore_free(env, b->wanted, (size_t)b->widest_args);
}

/* False when memory is short; backward_free is right in either case. */
static bool backward_begin(backward *b)
{
    const sglir_graph *g = b->g;
    sglcore_env *env = g->env;
    b->values = g->values.count;
    b->widest_args = b->widest_outs = 1;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->arg_count > b->widest_args) b->widest_args = node->arg_count;
        if (node->out_count > b->widest_outs) b->widest_outs = node->out_count;
    }
    b->marks = sglcore_alloc(env, (size_t)b->values);
    b->gradients = sglcore_alloc(env, (size_t)b->values * sizeof *b->gradients);
    b->dys = sglcore_alloc(env, (size_t)b->widest_outs * sizeof *b->dys);
    b->into = sglcore_alloc(env, (size_t)b->widest_args * sizeof *b->into);
    b->wanted = sglcore_alloc(env, (size_t)b->widest_args);
    if (!b->marks || !b->gradients || !b->dys || !b->into || !b->wanted) return false;
    for (int64_t i = 0; i < b->values; i++) b->gradients[i] = SGLIR_NONE;
    return true;
}

static void add_gradient(backward *b, sglir_id node, uint32_t i)
{
    sglir_graph *g = b->g;
    sglir_id value = sglir_arg(g, sglir_node_at(g, node), i), term = b->into[i];
    if (term == SGLIR_NONE || !b->wanted[i] || g->status != SGL_OK) return;
    if (!sglir_type_equal(sglir_type_of(g, term), sglir_type_of(g, value))) {
        char want[SGLIR_TYPE_ROOM], got[SGLIR_TYPE_ROOM];
        sglir_fail_node(g, node, SGL_INTERNAL, "the gradient of argument %u is %s, and must be %s", i,
                        sglir_type_text(sglir_type_of(g, term), got, sizeof got),
                        sglir_type_text(sglir_type_of(g, value), want, sizeof want));
        return;
    }
    sglir_id sum = b->gradients[value];
    b->gradients[value] = sum == SGLIR_NONE ? term : sglir_add(g, sum, term);
}

/* Asks the rule of one node for the gradients of its arguments and adds them to what has come so far. */
static void backward_node(backward *b, sglir_id id)
{
    sglir_graph *g = b->g;
    const sglir_node *node = sglir_node_at(g, id);
    uint32_t args = node->arg_count;
    bool any = false;
    if (!makes(node, b->marks, ON_PATH)) return;
    for (uint32_t k = 0; k < node->out_count; k++) {
        b->dys[k] = b->gradients[node->out_first + k];
        any = any || b->dys[k] != SGLIR_NONE;
    }
    if (!any || !node_has(g, node, b->marks, DEPENDS)) return;
    for (uint32_t i = 0; i < args; i++) {
        b->into[i] = SGLIR_NONE;
        b->wanted[i] = (b->marks[sglir_arg(g, node, i)] & DEPENDS) != 0;
    }
    const sglir_origin origin = g->origins.data[node->origin];
    sglir_set_origin(g, sglcore_string(g->strings, origin.file), origin.line, sglcore_string(g->strings, origin.scope),
                     b->pass);
    sglpass_vjp_fn rule = sglpass_vjp_rule((sglir_op)node->op);
    if (rule == NULL) {
        sglir_fail_node(g, id, SGL_INTERNAL, "stands on a differentiated path and was not taken apart");
        return;
    }
    const sglpass_vjp v = { .g = g, .node = id, .dys = b->dys, .into = b->into, .wanted = b->wanted };
    rule(&v);
    for (uint32_t i = 0; i < args; i++) add_gradient(b, id, i);
}

/* Zeros, and a word about it where it is a parameter that would never learn. */
static sglir_id no_gradient(sglir_graph *g, sglir_id wrt)
{
    const sglir_node *maker = sglir_maker(g, wrt);
    if (maker != NULL && maker->op == SGLIR_OP_INPUT && sglir_attr_int(g, maker, "role") == SGL_PARAMETER) {
        char origin[256];
        sglir_origin_text(g, g->origin, origin, sizeof origin);
        sglcore_log(g->env, SGL_LOG_WARNING, "%s: no gradient reaches parameter %s", origin,
                    sglir_attr_string(g, maker, "name"));
    }
    return sglir_constant_like(g, wrt, 0);
}

/* Integers have no derivative: said here, with the line of the grad. */
static bool all_floats(sglir_graph *g, const sglir_id *args, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (is_float(g, args[i])) continue;
        char text[256];
        sglir_fail_here(g, "grad", "argument %u is %s; only floats have gradients", i,
                        sglir_type_text(sglir_type_of(g, args[i]), text, sizeof text));
        return false;
    }
    return true;
}

/* Emits d of / d wrt into g, where the grad node would stand; args are of then wrt, in g. Writes out[count - 1]. */
static void expand(sglir_graph *g, const char *pass, const sglir_id *args, uint32_t count, sglir_id *out)
{
    backward b = { .g = g, .pass = pass };
    sglir_id of = args[0], maker = sglir_value_at(g, of)->node;
    sglir_origin here = g->origins.data[g->origin];
    if (!all_floats(g, args, count)) return;
    if (!backward_begin(&b)) {
        fail(g, SGL_OUT_OF_MEMORY);
    } else {
        mark_path(g, of, args + 1, count - 1, b.marks);
        b.gradients[of] = sglir_constant(g, (sgl_dtype)sglir_type_of(g, of)->dtype, 1);
        if (maker != SGLIR_NONE) {
            for (int64_t n = maker; n >= 0 && g->status == SGL_OK; n--) backward_node(&b, (sglir_id)n);
        }
        sglir_set_origin(g, sglcore_string(g->strings, here.file), here.line, sglcore_string(g->strings, here.scope),
                         pass);
        for (uint32_t i = 1; i < count && g->status == SGL_OK; i++) {
            sglir_id found = (b.marks[args[i]] & ON_PATH) == ON_PATH ? b.gradients[args[i]] : SGLIR_NONE;
            out[i - 1] = found != SGLIR_NONE ? found : no_gradient(g, args[i]);
        }
    }
    backward_free(&b);
}

/* `map` of the node's arguments, and its results, each in a block of the caller's. */
static void map_args(const sglir_rewrite *rewrite, const sglir_node *node, sglir_id *args)
{
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = rewrite->map[sglir_arg(rewrite->from, node, i)];
}

static bool rule_round(sglir_rewrite *rewrite, sglir_id id)
{
    const round_state *state = rewrite->user;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    sglir_graph *g = rewrite->to;
    if (state->grad == SGLIR_NONE && node->op == SGLIR_OP_STOP_GRADIENT) {
        rewrite->map[node->out_first] = rewrite->map[sglir_arg(rewrite->from, node, 0)];
        return true;
    }
    bool expands = state->expands && id == state->grad;
    if (!expands && !(state->split && state->split[id])) return false;
    size_t bytes = node->arg_count * sizeof(sglir_id);
    sglir_id *args = sglcore_alloc(g->env, bytes);
    if (args == NULL) {
        fail(g, SGL_OUT_OF_MEMORY);
        return true;
    }
    map_args(rewrite, node, args);
    if (expands) {
        expand(g, rewrite->pass, args, node->arg_count, rewrite->map + node->out_first);
    } else {
        sglir_compose_rule((sglir_op)node->op)(g, rewrite->from, node, args, rewrite->map + node->out_first);
    }
    sglcore_free(g->env, args, bytes);
    return true;
}

/* ---- which composites are in the way --------------------------------------------------------------------------- */

/* Marks what must be taken apart before the grad node can go; returns whether there is any. attention's rule knows
 * nothing of a gradient of lse, its decomposition does. */
static bool mark_split(const sglir_graph *g, const uint8_t *marks, uint8_t *split)
{
    bool any = false;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        bool through_lse = node->op == SGLIR_OP_ATTENTION && (marks[node->out_first + 1] & ON_PATH) == ON_PATH;
        bool composed = sglpass_vjp_rule((sglir_op)node->op) == NULL && makes(node, marks, ON_PATH) &&
                        node_has(g, node, marks, DEPENDS);
        split[n] = through_lse || composed;
        any = any || split[n];
    }
    return any;
}

/* The live grad node that was made first, SGLIR_NONE when there is none. */
static sgl_status first_grad(const sglir_graph *g, sglir_id *grad)
{
    size_t bytes = (size_t)g->nodes.count;
    uint8_t *live = sglcore_alloc(g->env, bytes);
    *grad = SGLIR_NONE;
    if (live == NULL && bytes > 0) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglir_mark_live(g, live);
    for (int64_t n = 0; n < g->nodes.count && status == SGL_OK && *grad == SGLIR_NONE; n++) {
        if (live[n] && g->nodes.data[n].op == SGLIR_OP_GRAD) *grad = (sglir_id)n;
    }
    sglcore_free(g->env, live, bytes);
    return status;
}

static sgl_status run_round(sglcore_env *env, const sglir_graph *from, sglir_id grad, sglir_graph **to)
{
    const sglir_node *node = sglir_node_at(from, grad);
    const sglir_id *args = &from->args.data[node->arg_first];
    uint8_t *marks = sglcore_alloc(env, (size_t)from->values.count);
    uint8_t *split = sglcore_alloc(env, (size_t)from->nodes.count);
    sgl_status status = marks && split ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        mark_path(from, args[0], args + 1, node->arg_count - 1, marks);
        round_state state = { .grad = grad, .split = split };
        state.expands = !mark_split(from, marks, split);
        status = sglir_rewrite_graph(env, from, "autodiff", rule_round, &state, to);
    }
    sglcore_free(env, marks, (size_t)from->values.count);
    sglcore_free(env, split, (size_t)from->nodes.count);
    return status;
}

sgl_status sglpass_autodiff(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    sglir_graph *made = NULL;
    const sglir_graph *now = in;
    sgl_status status;
    *out = NULL;
    for (;;) {
        sglir_id grad;
        status = first_grad(now, &grad);
        if (status != SGL_OK) break;
        if (grad == SGLIR_NONE) {
            round_state last = { .grad = SGLIR_NONE };
            status = sglir_rewrite_graph(env, now, "autodiff", rule_round, &last, out);
            break;
        }
        sglir_graph *next = NULL;
        status = run_round(env, now, grad, &next);
        if (status != SGL_OK) break;
        sglir_graph_free(made);
        now = made = next;
    }
    sglir_graph_free(made);
    return status;
}
