/* autodiff.c -- expands `grad` nodes, graph to graph: of, wrt... become d of / d wrt, in ordinary nodes.
 *
 * In: a graph with grad nodes. Out: the same without any, and without stop_gradient, which then has said all it had to
 * say; so have scale and unscale, which become products: by now the types have told that a gradient is unscaled once.
 * All grads go together: (1) the composites on the path of any (autodiff_path.c) whose derivative is that of their
 * decomposition are taken apart, round by round until none is left; (2) one walk expands each grad where it stands: the
 * path is walked backwards, each op's rule (vjp_*.c) emits the gradients of its arguments, and these are summed as they
 * come. A grad of a grad finds the inner one expanded; where that expansion holds composites on the outer path, the
 * outer one waits for another turn of (1) and (2). A loop or branch whose gradient needs what stood in it is made anew
 * by its rule, with results that keep that (vjp_control.c); the next walk puts the new node in the place of the old
 * one. Odd invariant: in (1) an inner grad counts as an op of its arguments, so its path belongs to the outer one's. */
#include <string.h>

#include "core/broken.h"
#include "passes/autodiff_path.h"
#include "passes/pass.h"
#include "passes/vjp_rules.h"

/* A node that stands in for another. */
typedef struct exchange {
    sglir_id old, made;
} exchange;
typedef SGLCORE_VEC(exchange) exchange_list;

/* What the walks keep. */
typedef struct autodiff {
    sglcore_env *env;
    enum { SPLIT, EXPAND, LAST } step; /* of this walk; LAST: no grad is left, stop_gradient goes */
    sglpass_path path;
    SGLCORE_VEC(uint8_t) split;      /* per node of the old graph: 1 to take it apart */
    SGLCORE_VEC(sglir_id) dys, into; /* of one node */
    SGLCORE_VEC(sglir_id) captures;  /* of it, each once */
    SGLCORE_VEC(uint8_t) wanted;
    exchange_list found, due; /* in the graph that is made; in the one that is walked */
    sglcore_map *warned;      /* of the context, or `own` */
    sglcore_map own;
    bool keeps; /* of a region's graph: stop_gradient stays, and what types say of a scale */
    bool changed;
} autodiff;

/* ---- one grad --------------------------------------------------------------------------------------------------- */

enum { LISTED = 4 }; /* beside the path's marks: stands in `captures` */

typedef struct listing {
    autodiff *a;
    sglir_graph *g;
} listing;

static void list_capture(void *user, sglir_id value)
{
    listing *l = user;
    uint8_t *mark = &l->a->path.marks.data[value];
    if (*mark & LISTED) return;
    *mark |= LISTED;
    sglir_stick(l->g, sglcore_vec_push(l->a->env, &l->a->captures, value));
}

/* What the node's regions use from around, each value once. */
static void list_captures(autodiff *a, sglir_graph *g, const sglir_node *node)
{
    listing l = { a, g };
    a->captures.count = 0;
    if (node->region_count == 0) return;
    sglir_each_capture(g, node, list_capture, &l);
    for (int64_t i = 0; i < a->captures.count; i++)
        a->path.marks.data[a->captures.data[i]] &= (uint8_t) ~(unsigned)LISTED;
}

/* The value at place i of `into`. */
static sglir_id source_of(const autodiff *a, const sglir_graph *g, sglir_id node, uint32_t i)
{
    uint32_t args = sglir_node_at(g, node)->arg_count;
    return i < args ? sglir_arg(g, sglir_node_at(g, node), i) : a->captures.data[i - args];
}

static bool is_input(const sglir_graph *g, sglir_id value)
{
    const sglir_node *maker = sglir_maker(g, value);
    return maker && maker->op == SGLIR_OP_INPUT;
}

static void add_gradient(autodiff *a, sglir_graph *g, sglir_id node, uint32_t i)
{
    sglir_id value = source_of(a, g, node, i), term = a->into.data[i];
    if (term == SGLIR_NONE || !a->wanted.data[i] || g->status != SGL_OK) return;
    sglir_type given = *sglir_type_of(g, term), asked = *sglir_type_of(g, value);
    given.scaled = asked.scaled = 0; /* a gradient of a scaled loss owes the scale, whatever it is a gradient of */
    if (!sglir_type_equal(&given, &asked)) {
        char want[SGLIR_TYPE_ROOM], got[SGLIR_TYPE_ROOM];
        sglir_fail_node(g, node, SGL_INTERNAL, "the gradient of argument %u is %s, and must be %s", i,
                        sglir_type_text(sglir_type_of(g, term), got, sizeof got),
                        sglir_type_text(sglir_type_of(g, value), want, sizeof want));
        return;
    }
    sglir_id *sum = &a->path.gradients.data[value];
    if (*sum != SGLIR_NONE && sglcore_is_broken(SGLCORE_BREAK_TIED_SUMMED) && is_input(g, value)) return;
    *sum = *sum == SGLIR_NONE ? term : sglir_add(g, *sum, term);
}

/* Fills dys, wanted and empty into; false when no gradient comes to the node. */
static bool gather_node(autodiff *a, sglir_graph *g, sglir_id id)
{
    const sglir_node *node = sglir_node_at(g, id);
    bool any = false;
    a->dys.count = a->into.count = a->wanted.count = 0;
    sglir_stick(g, sglcore_vec_reserve(a->env, &a->dys, node->out_count));
    list_captures(a, g, node);
    int64_t sources = node->arg_count + a->captures.count;
    sglir_stick(g, sglcore_vec_reserve(a->env, &a->into, sources));
    sglir_stick(g, sglcore_vec_reserve(a->env, &a->wanted, sources));
    for (uint32_t k = 0; k < node->out_count && g->status == SGL_OK; k++) {
        a->dys.data[k] = a->path.gradients.data[node->out_first + k];
        any = any || a->dys.data[k] != SGLIR_NONE;
    }
    for (uint32_t i = 0; i < sources && any && g->status == SGL_OK; i++) {
        a->into.data[i] = SGLIR_NONE;
        a->wanted.data[i] = (a->path.marks.data[source_of(a, g, id, i)] & SGLPASS_DEPENDS) != 0;
    }
    return any && g->status == SGL_OK;
}

/* Asks the rule of one node for the gradients of its arguments and adds them to what has come so far. */
static void backward_node(autodiff *a, sglir_graph *g, const char *pass, sglir_id id)
{
    const sglir_node *node = sglir_node_at(g, id);
    uint32_t args = node->arg_count;
    sglir_id instead = SGLIR_NONE;
    if (!sglpass_path_holds(&a->path, node) || !sglpass_path_feeds(&a->path, node) || !gather_node(a, g, id)) return;
    sglir_set_origin_made(g, g, id, pass);
    const sglpass_vjp v = { .g = g,
                            .node = id,
                            .dys = a->dys.data,
                            .into = a->into.data,
                            .wanted = a->wanted.data,
                            .captures = a->captures.data,
                            .capture_count = (uint32_t)a->captures.count,
                            .instead = &instead };
    sglpass_vjp_rule((sglir_op)node->op)(&v);
    for (uint32_t i = 0; i < args + a->captures.count; i++) add_gradient(a, g, id, i);
    if (instead != SGLIR_NONE && g->status == SGL_OK)
        sglir_stick(g, sglcore_vec_push(a->env, &a->found, (exchange){ id, instead }));
}

/* A word, once for each name, about a parameter that would never learn. */
static void warn_of(autodiff *a, sglir_graph *g, const char *name)
{
    char origin[256];
    uint64_t known;
    const sglcore_hash key = sglcore_hash_bytes(name, strlen(name));
    if (sglcore_map_get(a->warned, key, &known)) return;
    sglir_stick(g, sglcore_map_put(g->env, a->warned, key, 1));
    sglir_origin_text(g, g->origin, origin, sizeof origin);
    sglcore_log(g->env, SGL_LOG_WARNING, "%s: no gradient reaches parameter %s", origin, name);
}

/* Zeros. */
static sglir_id no_gradient(autodiff *a, sglir_graph *g, sglir_id wrt)
{
    const sglir_node *maker = sglir_maker(g, wrt);
    if (maker != NULL && maker->op == SGLIR_OP_INPUT && sglir_attr_int(g, maker, "role") == SGL_PARAMETER)
        warn_of(a, g, sglir_attr_string(g, maker, "name"));
    return sglir_constant_like(g, wrt, 0);
}

/* Integers have no derivative: said here, with the line of the grad. */
static bool all_floats(sglir_graph *g, const sglir_id *args, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, args[i])->dtype)) continue;
        char text[256];
        sglir_fail_here(g, "grad", "argument %u is %s; only floats have gradients", i,
                        sglir_type_text(sglir_type_of(g, args[i]), text, sizeof text));
        return false;
    }
    return true;
}

/* Emits d of / d wrt into g along the path, where the grad node would stand. Writes out[path.count - 1]. */
static void emit_gradients(autodiff *a, sglir_graph *g, const char *pass, sglir_id *out)
{
    const sglpass_path *path = &a->path;
    const sglir_id *args = path->args;
    sglir_origin here = g->origins.data[g->origin];
    path->gradients.data[args[0]] = sglir_constant(g, (sgl_dtype)sglir_type_of(g, args[0])->dtype, 1);
    for (int64_t n = 0; n < path->nodes.count && g->status == SGL_OK; n++)
        backward_node(a, g, pass, path->nodes.data[n]);
    sglir_set_origin(g, sglcore_string(g->strings, here.file), here.line, sglcore_string(g->strings, here.scope), pass);
    for (uint32_t i = 1; i < path->count && g->status == SGL_OK; i++) {
        bool reached = path->marks.data[args[i]] == SGLPASS_ON_PATH;
        sglir_id found = reached ? path->gradients.data[args[i]] : SGLIR_NONE;
        out[i - 1] = found != SGLIR_NONE ? found : no_gradient(a, g, args[i]);
    }
}

/* ---- what is in the way ------------------------------------------------------------------------------------------ */

/* Whether the node must be taken apart before the path can be walked. attention's rule knows nothing of a gradient of
 * lse, its decomposition does. */
static bool in_the_way(const sglpass_path *path, const sglir_node *node)
{
    bool on_path = sglpass_path_holds(path, node);
    if (on_path && node->op == SGLIR_OP_ATTENTION) return path->marks.data[node->out_first + 1] == SGLPASS_ON_PATH;
    return on_path && sglpass_vjp_rule((sglir_op)node->op) == NULL && sglpass_path_feeds(path, node);
}

static bool has_stand_in(const autodiff *a, sglir_id node)
{
    for (int64_t i = 0; i < a->found.count; i++) {
        if (a->found.data[i].old == node) return true;
    }
    return false;
}

/* Nothing is in the way, no inner grad that still waits itself, and no loop whose stand-in waits to take its place. */
static bool is_ready(const autodiff *a)
{
    const sglpass_path *path = &a->path;
    for (int64_t n = 0; n < path->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(path->g, path->nodes.data[n]);
        if (in_the_way(path, node) || (node->op == SGLIR_OP_GRAD && sglpass_path_holds(path, node))) return false;
        if (node->region_count > 0 && has_stand_in(a, path->nodes.data[n])) return false;
    }
    return true;
}

/* Expands the grad whose arguments in the new graph are args; false when it must wait. */
static bool expand(autodiff *a, sglir_rewrite *rewrite, const sglir_node *node, const sglir_id *args)
{
    sglir_graph *g = rewrite->to;
    if (!all_floats(g, args, node->arg_count)) return true;
    sglir_stick(g, sglpass_path_find(&a->path, g, args, node->arg_count));
    if (g->status != SGL_OK) return true;
    bool ready = is_ready(a);
    if (ready) emit_gradients(a, g, rewrite->pass, rewrite->map + node->out_first);
    sglpass_path_clear(&a->path);
    return ready;
}

/* ---- the walks --------------------------------------------------------------------------------------------------- */

/* What a stand-in has beyond the old node's arguments is made of constants. */
static void copy_makers(sglir_rewrite *rewrite, sglir_id value)
{
    sglir_id maker = sglir_value_at(rewrite->from, value)->node;
    if (rewrite->map[value] != SGLIR_NONE || maker == SGLIR_NONE) return;
    const sglir_node *node = sglir_node_at(rewrite->from, maker);
    for (uint32_t i = 0; i < node->arg_count; i++) copy_makers(rewrite, sglir_arg(rewrite->from, node, i));
    sglir_copy_node(rewrite, maker);
}

/* Where an old node stood, its stand-in, if anything asks for more than the old node gave; where that was emitted, nothing
 * more. */
static bool put_stand_in(autodiff *a, sglir_rewrite *rewrite, sglir_id id)
{
    for (int64_t i = 0; i < a->due.count; i++) {
        const exchange *e = &a->due.data[i];
        const sglir_node *old = sglir_node_at(rewrite->from, e->old), *made = sglir_node_at(rewrite->from, e->made);
        if (id == e->made && rewrite->map[made->out_first] != SGLIR_NONE) return true;
        if (id != e->old || !rewrite->live[e->made]) continue;
        for (uint32_t k = old->arg_count; k < made->arg_count; k++)
            copy_makers(rewrite, sglir_arg(rewrite->from, made, k));
        sglir_copy_node(rewrite, e->made);
        for (uint32_t k = 0; k < old->out_count; k++)
            rewrite->map[old->out_first + k] = rewrite->map[made->out_first + k];
        return true;
    }
    return false;
}

static bool rule_walk(sglir_rewrite *rewrite, sglir_id id)
{
    autodiff *a = rewrite->user;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    sglir_graph *g = rewrite->to;
    if (node->region_count > 0 && put_stand_in(a, rewrite, id)) return true;
    if (a->step == LAST && !a->keeps && (node->op == SGLIR_OP_STOP_GRADIENT || node->op == SGLIR_OP_CUSTOM)) {
        for (uint32_t k = 0; k < node->out_count; k++)
            rewrite->map[node->out_first + k] = rewrite->map[sglir_arg(rewrite->from, node, k)];
        a->changed = true;
        return true;
    }
    if (a->step == LAST && !a->keeps && (node->op == SGLIR_OP_SCALE || node->op == SGLIR_OP_UNSCALE)) {
        sglir_id x = rewrite->map[sglir_arg(rewrite->from, node, 0)];
        sglir_id scale = rewrite->map[sglir_arg(rewrite->from, node, 1)];
        double value;
        bool is_zero = sglir_constant_value(g, x, &value) && value == 0;
        if (node->op == SGLIR_OP_UNSCALE && !is_zero) scale = sglir_unary(g, SGLIR_OP_RECIPROCAL, scale);
        rewrite->map[node->out_first] = is_zero ? x : sglir_mul(g, x, scale);
        a->changed = true;
        return true;
    }
    bool expands = a->step == EXPAND && node->op == SGLIR_OP_GRAD, splits = a->step == SPLIT && a->split.data[id];
    if (!expands && !splits) return false;
    size_t bytes = node->arg_count * sizeof(sglir_id);
    sglir_id *args = sglcore_alloc(g->env, bytes);
    if (args == NULL) {
        sglir_stick(g, SGL_OUT_OF_MEMORY);
        return true;
    }
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = rewrite->map[sglir_arg(rewrite->from, node, i)];
    bool gone = true;
    if (expands) {
        gone = expand(a, rewrite, node, args);
    } else {
        sglir_compose_rule((sglir_op)node->op)(g, rewrite->from, node, args, rewrite->map + node->out_first);
    }
    sglcore_free(g->env, args, bytes);
    a->changed = true;
    return gone;
}

static sgl_status mark_in_the_way(autodiff *a, const sglir_graph *g, const sglir_node *grad)
{
    sglpass_path *path = &a->path;
    SGLCORE_TRY(sglpass_path_find(path, g, &g->args.data[grad->arg_first], grad->arg_count));
    for (int64_t n = 0; n < path->nodes.count; n++) {
        if (!in_the_way(path, sglir_node_at(g, path->nodes.data[n]))) continue;
        a->split.data[path->nodes.data[n]] = 1;
        a->step = SPLIT;
    }
    sglpass_path_clear(path);
    return SGL_OK;
}

/* Says what the next walk over g does. */
static sgl_status next_step(autodiff *a, const sglir_graph *g)
{
    size_t bytes = (size_t)g->nodes.count;
    uint8_t *live = sglcore_alloc(g->env, bytes);
    if (live == NULL && bytes > 0) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglir_mark_live(g, live);
    a->step = LAST;
    a->split.count = 0;
    for (int64_t n = 0; n < g->nodes.count && status == SGL_OK; n++) status = sglcore_vec_push(a->env, &a->split, 0);
    for (int64_t n = 0; n < g->nodes.count && status == SGL_OK; n++) {
        if (!live[n] || g->nodes.data[n].op != SGLIR_OP_GRAD) continue;
        if (a->step == LAST) a->step = EXPAND;
        status = mark_in_the_way(a, g, &g->nodes.data[n]);
    }
    sglcore_free(g->env, live, bytes);
    return status;
}

static sgl_status run(autodiff *a, const sglir_graph *in, sglir_graph **out)
{
    const sglir_graph *now = in;
    sglir_graph *made = NULL;
    sgl_status status = SGL_OK;
    for (a->step = SPLIT; a->step != LAST && status == SGL_OK;) {
        sglir_graph *next = NULL;
        status = next_step(a, now);
        if (a->step == LAST && a->due.count > 0) a->step = EXPAND; /* stand-ins are copied as they are: one walk more */
        /* What is only taken apart stays a part of the forward: origins tell the two apart to the end. */
        const char *pass = a->step == EXPAND ? "autodiff" : "decompose";
        if (status == SGL_OK) status = sglir_rewrite_graph(a->env, now, pass, rule_walk, a, &next);
        sglir_graph_free(made);
        now = made = next;
        exchange_list walked = a->due;
        a->due = a->found;
        a->found = walked;
        a->found.count = 0;
    }
    *out = made;
    return status;
}

static void release(autodiff *a)
{
    sglpass_path_free(&a->path, a->env);
    sglcore_vec_free(a->env, &a->split);
    sglcore_vec_free(a->env, &a->dys);
    sglcore_vec_free(a->env, &a->into);
    sglcore_vec_free(a->env, &a->captures);
    sglcore_vec_free(a->env, &a->wanted);
    sglcore_vec_free(a->env, &a->found);
    sglcore_vec_free(a->env, &a->due);
    sglcore_map_free(a->env, &a->own);
}

sgl_status sglpass_expand_grads(sglcore_env *env, const sglir_graph *in, sglir_graph **out)
{
    autodiff a = { .env = env, .keeps = true };
    *out = NULL;
    a.warned = &a.own;
    sgl_status status = run(&a, in, out);
    release(&a);
    return status;
}

sgl_status sglpass_autodiff(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    autodiff a = { .env = context->env, .warned = context->warned };
    *out = NULL;
    if (a.warned == NULL) a.warned = &a.own;
    sgl_status status = run(&a, in, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, a.changed);
    release(&a);
    return status;
}
