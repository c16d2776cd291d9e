/* autodiff_path.c -- finds the path from wrt to `of`.
 *
 * In: a graph, of, wrt. Out: the nodes that `of` is made from, and marks of values. The nodes are walked down from the
 * maker of `of`, always the highest waiting id next; none below the first maker of wrt can depend on wrt, so there the
 * walk ends. A node with regions is one node: what these use from around counts as its arguments. Odd invariant: ids grow
 * with the order of making, through all regions, so ids down see users before makers. */
#include "passes/autodiff_path.h"
#include "passes/vjp_rules.h"

enum { BITS = 64 };

typedef struct question {
    const sglpass_path *path;
    bool yes;
} question;

static void ask_capture(void *user, sglir_id value)
{
    question *q = user;
    q->yes = q->yes || (q->path->marks.data[value] & SGLPASS_DEPENDS);
}

bool sglpass_path_feeds(const sglpass_path *path, const sglir_node *node)
{
    question q = { path, false };
    for (uint32_t i = 0; i < node->arg_count && !q.yes; i++) ask_capture(&q, sglir_arg(path->g, node, i));
    if (node->region_count > 0 && !q.yes) sglir_each_capture(path->g, node, ask_capture, &q);
    return q.yes;
}

bool sglpass_path_holds(const sglpass_path *path, const sglir_node *node)
{
    for (uint32_t k = 0; k < node->out_count; k++) {
        if (path->marks.data[node->out_first + k] == SGLPASS_ON_PATH) return true;
    }
    return false;
}

/* The arrays keep up with the graph; what is new in them is clear. */
static sgl_status keep_up(sglpass_path *path, const sglir_graph *g)
{
    int64_t words = (g->nodes.count + BITS - 1) / BITS;
    while (path->marks.count < g->values.count) {
        SGLCORE_TRY(sglcore_vec_push(g->env, &path->marks, 0));
        SGLCORE_TRY(sglcore_vec_push(g->env, &path->gradients, SGLIR_NONE));
    }
    while (path->waiting.count < words) SGLCORE_TRY(sglcore_vec_push(g->env, &path->waiting, 0));
    return SGL_OK;
}

/* `of` is made from the value; its maker waits for its turn unless it stands below `lowest`. */
static void need(sglpass_path *path, sglir_id value, sglir_id lowest)
{
    sglir_id maker = sglir_value_at(path->g, value)->node;
    path->marks.data[value] |= SGLPASS_NEEDED;
    if (maker != SGLIR_NONE && maker >= lowest) path->waiting.data[maker / BITS] |= UINT64_C(1) << maker % BITS;
}

typedef struct needing {
    sglpass_path *path;
    sglir_id lowest;
} needing;

static void need_capture(void *user, sglir_id value)
{
    const needing *n = user;
    need(n->path, value, n->lowest);
}

static void need_args(sglpass_path *path, const sglir_node *node, sglir_id lowest)
{
    needing n = { path, lowest };
    for (uint32_t i = 0; i < node->arg_count; i++) need(path, sglir_arg(path->g, node, i), lowest);
    sglir_each_capture(path->g, node, need_capture, &n);
}

static sgl_status gather_nodes(sglpass_path *path, sglir_id of, sglir_id lowest)
{
    const sglir_graph *g = path->g;
    sglir_id maker = sglir_value_at(g, of)->node;
    need(path, of, lowest);
    if (maker == SGLIR_NONE) return SGL_OK;
    for (int64_t word = maker / BITS; word >= lowest / BITS; word--) {
        while (path->waiting.data[word] != 0) {
            int bit = BITS - 1 - __builtin_clzll(path->waiting.data[word]);
            sglir_id node = (sglir_id)(word * BITS + bit);
            SGLCORE_TRY(sglcore_vec_push(g->env, &path->nodes, node));
            path->waiting.data[word] &= ~(UINT64_C(1) << bit);
            need_args(path, sglir_node_at(g, node), lowest);
        }
    }
    return SGL_OK;
}

static void mark_dependents(sglpass_path *path)
{
    const sglir_graph *g = path->g;
    for (uint32_t i = 1; i < path->count; i++) path->marks.data[path->args[i]] |= SGLPASS_DEPENDS;
    for (int64_t i = path->nodes.count - 1; i >= 0; i--) {
        const sglir_node *node = sglir_node_at(g, path->nodes.data[i]);
        if (sglpass_vjp_rule((sglir_op)node->op) == sglpass_vjp_zero || !sglpass_path_feeds(path, node)) continue;
        for (uint32_t k = 0; k < node->out_count; k++) {
            sglir_id value = node->out_first + k;
            if (sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, value)->dtype))
                path->marks.data[value] |= SGLPASS_DEPENDS;
        }
    }
}

sgl_status sglpass_path_find(sglpass_path *path, const sglir_graph *g, const sglir_id *args, uint32_t count)
{
    sglir_id lowest = SGLIR_NONE;
    SGLCORE_TRY(keep_up(path, g));
    path->g = g;
    path->args = args;
    path->count = count;
    for (uint32_t i = 1; i < count; i++) {
        sglir_id maker = sglir_value_at(g, args[i])->node;
        if (maker == SGLIR_NONE) maker = 0; /* a parameter of a region: ids do not tell where it stands */
        if (maker < lowest) lowest = maker;
    }
    SGLCORE_TRY(gather_nodes(path, args[0], lowest));
    mark_dependents(path);
    return SGL_OK;
}

static void clear_value(sglpass_path *path, sglir_id value)
{
    path->marks.data[value] = 0;
    path->gradients.data[value] = SGLIR_NONE;
}

static void clear_capture(void *user, sglir_id value) { clear_value(user, value); }

void sglpass_path_clear(sglpass_path *path)
{
    const sglir_graph *g = path->g;
    for (int64_t n = 0; n < path->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, path->nodes.data[n]);
        for (uint32_t k = 0; k < node->out_count; k++) clear_value(path, node->out_first + k);
        for (uint32_t i = 0; i < node->arg_count; i++) clear_value(path, sglir_arg(g, node, i));
        sglir_each_capture(g, node, clear_capture, path);
    }
    clear_value(path, path->args[0]);
    for (uint32_t i = 1; i < path->count; i++) clear_value(path, path->args[i]);
    path->nodes.count = 0;
}

void sglpass_path_free(sglpass_path *path, sglcore_env *env)
{
    sglcore_vec_free(env, &path->nodes);
    sglcore_vec_free(env, &path->marks);
    sglcore_vec_free(env, &path->gradients);
    sglcore_vec_free(env, &path->waiting);
}
