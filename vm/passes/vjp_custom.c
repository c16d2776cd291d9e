/* vjp_custom.c -- the derivative of what a script gave one of its own.
 *
 * In: custom(y..., x..., g..., seeds...), where g are formulas over seeds, the stand-ins of the gradients of y. Out: for
 * each x its g, made anew with the gradients that really came in the place of the seeds. Odd invariant: what depends on a
 * seed has a higher id than the seed and a lower one than the custom node, so only that range is looked at. */
#include "passes/vjp_rules.h"

/* What is known of the values from `base` on. */
typedef struct clone {
    sglir_graph *g;
    sglir_id first_node, base; /* of the first seed: its node, its value */
    sglir_id node;             /* the custom node */
    int64_t count;             /* of values from base on */
    uint8_t *marks;
    sglir_id *map; /* to what stands for the value; SGLIR_NONE: the value itself */
    sglir_id *ids; /* room for the arguments and results of one node */
    int64_t widest;
} clone;

enum { DEPENDS = 1, NEEDED = 2, BOTH = DEPENDS | NEEDED };

static void clone_free(clone *c)
{
    sglcore_free(c->g->env, c->marks, (size_t)c->count);
    sglcore_free(c->g->env, c->map, (size_t)c->count * sizeof *c->map);
    sglcore_free(c->g->env, c->ids, (size_t)c->widest * sizeof *c->ids);
}

static bool clone_begin(clone *c)
{
    sglir_graph *g = c->g;
    c->count = g->values.count - c->base;
    for (sglir_id n = c->first_node; n < c->node; n++) {
        int64_t width = (int64_t)g->nodes.data[n].arg_count + g->nodes.data[n].out_count;
        if (width > c->widest) c->widest = width;
    }
    c->marks = sglcore_alloc(g->env, (size_t)c->count);
    c->map = sglcore_alloc(g->env, (size_t)c->count * sizeof *c->map);
    c->ids = sglcore_alloc(g->env, (size_t)c->widest * sizeof *c->ids);
    if (c->marks == NULL || c->map == NULL || c->ids == NULL) {
        if (g->status == SGL_OK) g->status = SGL_OUT_OF_MEMORY;
        return false;
    }
    for (int64_t i = 0; i < c->count; i++) {
        c->marks[i] = 0;
        c->map[i] = SGLIR_NONE;
    }
    return true;
}

static uint8_t mark_of(const clone *c, sglir_id value) { return value < c->base ? 0 : c->marks[value - c->base]; }

static void mark(clone *c, sglir_id value, uint8_t bit)
{
    if (value >= c->base) c->marks[value - c->base] |= bit;
}

static bool takes_dependent(const clone *c, const sglir_node *node)
{
    bool found = false;
    for (uint32_t i = 0; i < node->arg_count && !found; i++)
        found = (mark_of(c, sglir_arg(c->g, node, i)) & DEPENDS) != 0;
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &c->g->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->results.count && !found; i++)
            found = (mark_of(c, region->results.data[i]) & DEPENDS) != 0;
    }
    return found;
}

static bool makes(const clone *c, const sglir_node *node, uint8_t bits)
{
    for (uint32_t k = 0; k < node->out_count; k++) {
        if ((mark_of(c, node->out_first + k) & bits) == bits) return true;
    }
    return false;
}

/* The seeds are marked DEPENDS and the wanted gradients NEEDED already. */
static void mark_range(clone *c)
{
    for (sglir_id n = c->first_node; n < c->node; n++) {
        const sglir_node *node = sglir_node_at(c->g, n);
        for (uint32_t k = 0; k < node->out_count && takes_dependent(c, node); k++)
            mark(c, node->out_first + k, DEPENDS);
    }
    for (sglir_id n = c->node; n-- > c->first_node;) {
        const sglir_node *node = sglir_node_at(c->g, n);
        for (uint32_t i = 0; i < node->arg_count && makes(c, node, BOTH); i++)
            mark(c, sglir_arg(c->g, node, i), NEEDED);
    }
}

static sglir_id mapped(const clone *c, sglir_id value)
{
    bool known = value >= c->base && value - c->base < c->count && c->map[value - c->base] != SGLIR_NONE;
    return known ? c->map[value - c->base] : value;
}

static void clone_node(clone *c, sglir_id id)
{
    sglir_graph *g = c->g;
    const sglir_node node = *sglir_node_at(g, id);
    sglir_id *args = c->ids, *outs = args + node.arg_count;
    if (node.region_count > 0) {
        sglir_fail_node(g, c->node, SGL_UNSUPPORTED,
                        "its backward function puts the gradient into a %s; loops and branches may only stand in its "
                        "forward function",
                        sglir_ops[node.op].name);
        return;
    }
    for (uint32_t i = 0; i < node.arg_count; i++) args[i] = mapped(c, sglir_arg(g, &node, i));
    sglir_named named[SGLIR_MOST_ATTRS];
    int named_count = sglir_attrs_named(g, &node, named);
    sglir_emit(g, (sglir_op)node.op, args, (int)node.arg_count, named, named_count, outs);
    if (g->status != SGL_OK) return;
    for (uint32_t k = 0; k < node.out_count; k++) c->map[node.out_first + k - c->base] = outs[k];
}

/* The gradient that came for result k stands for its seed. */
static void map_seed(clone *c, const sglpass_vjp *v, uint32_t k, sglir_id seed)
{
    sglir_id dy = v->dys[k];
    if ((mark_of(c, seed) & NEEDED) == 0) return;
    c->map[seed - c->base] = dy != SGLIR_NONE ? dy : sglir_constant_like(c->g, sglpass_vjp_result(v, k), 0);
}

void sglpass_vjp_custom(const sglpass_vjp *v)
{
    sglir_graph *g = v->g;
    uint32_t results = (uint32_t)sglpass_vjp_int(v, "results"), all = sglir_node_at(g, v->node)->arg_count;
    uint32_t inputs = (all - 2 * results) / 2, gradients = results + inputs, seeds = gradients + inputs;
    clone c = { .g = g, .node = v->node, .base = sglpass_vjp_arg(v, seeds) };
    for (uint32_t k = 0; k < results; k++) {
        sglir_id seed = sglpass_vjp_arg(v, seeds + k);
        if (seed < c.base) c.base = seed;
    }
    c.first_node = sglir_value_at(g, c.base)->node;
    if (clone_begin(&c)) {
        for (uint32_t k = 0; k < results; k++) mark(&c, sglpass_vjp_arg(v, seeds + k), DEPENDS);
        for (uint32_t i = 0; i < inputs; i++) {
            if (v->wanted[results + i]) mark(&c, sglpass_vjp_arg(v, gradients + i), NEEDED);
        }
        mark_range(&c);
        for (uint32_t k = 0; k < results; k++) map_seed(&c, v, k, sglpass_vjp_arg(v, seeds + k));
        for (sglir_id n = c.first_node; n < c.node && g->status == SGL_OK; n++) {
            const sglir_node *node = sglir_node_at(g, n);
            if (node->op != SGLIR_OP_CUSTOM_SEED && makes(&c, node, BOTH)) clone_node(&c, n);
        }
        for (uint32_t i = 0; i < inputs && g->status == SGL_OK; i++) {
            if (v->wanted[results + i]) v->into[results + i] = mapped(&c, sglpass_vjp_arg(v, gradients + i));
        }
    }
    clone_free(&c);
}
