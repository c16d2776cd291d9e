/* vjp_turn.c -- see vjp_turn.h. The derivative is that of the sum of yield * seed over all yields, which autodiff expands
 * in h as it would anywhere: loops within loops are derived by the same rules, one level down. What depends on a seed is
 * derivative, all else is the region itself. */
#include <stdio.h>
#include <string.h>

#include "passes/vjp_turn.h"
#include "plan/cost.h"

enum { NAME_BYTES = 40 };

/* ---- the graph ------------------------------------------------------------------------------------------------ */

static sglir_id add_input(sglir_graph *h, const char *what, int64_t i, const sglir_type *type)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%lld", what, (long long)i);
    return sglir_input(h, SGL_FEED, name, type);
}

static sglir_id find_input(const sglir_graph *h, const char *what, int64_t i)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%lld", what, (long long)i);
    return sglir_input_find(h, name);
}

static void add_output(sglir_graph *h, const char *what, int64_t i, sglir_id value)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%lld", what, (long long)i);
    if (value != SGLIR_NONE) sglir_output_add(h, SGLIR_FETCH, name, value);
}

/* Outputs come back in the order in which they were added. */
static void take_output(const sglpass_turn *t, int64_t *at, sglir_id *value)
{
    if (*value != SGLIR_NONE) *value = t->h->outputs.data[(*at)++].value;
}

/* A number that stands around the region stands in it as well: no kernel should have to fetch it. */
static sglir_id input_of_capture(const sglpass_turn *t, sglir_graph *h, int64_t i)
{
    const sglir_type *type = sglir_type_of(t->v->g, t->v->captures[i]);
    double value;
    if (!sglir_constant_value(t->v->g, t->v->captures[i], &value)) return add_input(h, "capture", i, type);
    return sglir_broadcast(h, sglir_constant(h, (sgl_dtype)type->dtype, value), type->rank, type->dims);
}

static sglir_id stack_at(const sglpass_turn *t, int64_t i) { return t->stack != NULL ? t->stack[i] : SGLIR_NONE; }

static bool is_stack_node(const sglpass_turn *t, sglir_id node)
{
    for (int64_t i = 0; i < t->yields; i++) {
        if (stack_at(t, i) == node) return true;
    }
    return false;
}

static void copy_region(sglpass_turn *t, sglir_rewrite *rewrite)
{
    const sglir_graph *g = t->v->g;
    for (int64_t i = 0; i < t->parameters; i++) {
        if (i > 0 && t->loops && i <= t->yields && stack_at(t, i - 1) != SGLIR_NONE) continue;
        sglir_id id = t->region->parameters.data[i];
        rewrite->map[id] = t->parameter[i] = add_input(rewrite->to, "parameter", i, sglir_type_of(g, id));
    }
    for (uint32_t i = 0; i < t->v->capture_count; i++)
        rewrite->map[t->v->captures[i]] = t->capture[i] = input_of_capture(t, rewrite->to, i);
    for (int64_t n = 0; n < t->region->nodes.count && rewrite->to->status == SGL_OK; n++) {
        if (!is_stack_node(t, t->region->nodes.data[n])) sglir_copy_node(rewrite, t->region->nodes.data[n]);
    }
    for (int64_t i = 0; i < t->yields; i++) {
        if (stack_at(t, i) == SGLIR_NONE) {
            t->yield[i] = rewrite->map[t->region->results.data[i]];
        } else {
            const sglir_node *node = sglir_node_at(g, stack_at(t, i));
            t->yield[i] = rewrite->map[sglir_arg(g, node, 1)];
            t->start[i] = rewrite->map[sglir_arg(g, node, 2)];
        }
    }
}

/* The sum of yield * seed, in f64. */
static sglir_id scalar_of(sglpass_turn *t, sglir_graph *h)
{
    sglir_id of = SGLIR_NONE;
    for (int64_t i = 0; i < t->yields && h->status == SGL_OK; i++) {
        if (!t->active[i]) continue;
        const int64_t axes[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
        sglir_type type = *sglir_type_of(h, t->yield[i]);
        type.scaled = t->scaled;
        t->seed[i] = add_input(h, "seed", i, &type);
        sglir_id term = sglir_mul(h, t->yield[i], t->seed[i]);
        if (type.rank > 0) term = sglir_reduce(h, SGLIR_OP_REDUCE_SUM, term, axes, type.rank, false);
        term = sglir_cast(h, term, SGL_F64);
        of = of == SGLIR_NONE ? term : sglir_add(h, of, term);
    }
    return of;
}

/* What is derived by: carries, then captures; their gradients take their places. */
static void derive(sglpass_turn *t, sglir_graph *h)
{
    const sglpass_vjp *v = t->v;
    uint32_t args = sglir_node_at(v->g, v->node)->arg_count, count = 1;
    size_t bytes = ((size_t)t->yields + v->capture_count + 1) * sizeof(sglir_id);
    sglir_id *list = sglcore_arena_alloc(&t->arena, bytes), *out = sglcore_arena_alloc(&t->arena, bytes);
    if (list == NULL || out == NULL) {
        sglir_stick(h, SGL_OUT_OF_MEMORY);
        return;
    }
    list[0] = scalar_of(t, h);
    for (int64_t i = 0; i < t->yields; i++) {
        if (t->of_carry != NULL && t->of_carry[i]) list[count++] = t->parameter[i + 1];
    }
    for (uint32_t i = 0; i < v->capture_count; i++) {
        if (v->wanted[args + i]) list[count++] = t->capture[i];
    }
    if (list[0] == SGLIR_NONE || count == 1) return;
    sglir_emit(h, SGLIR_OP_GRAD, list, (int)count, NULL, 0, out);
    count = 0;
    for (int64_t i = 0; i < t->yields; i++) {
        if (t->of_carry != NULL && t->of_carry[i]) t->d_carry[i] = out[count++];
    }
    for (uint32_t i = 0; i < v->capture_count; i++) {
        if (v->wanted[args + i]) t->d_capture[i] = out[count++];
    }
}

static void add_outputs(sglpass_turn *t, sglir_graph *h)
{
    for (int64_t i = 0; i < t->yields; i++) {
        add_output(h, "yield", i, t->yield[i]);
        add_output(h, "start", i, t->start[i]);
        add_output(h, "d_carry", i, t->d_carry[i]);
    }
    for (uint32_t i = 0; i < t->v->capture_count; i++) add_output(h, "d_capture", i, t->d_capture[i]);
}

/* The values as they are called in h, once its grads are expanded. */
static void find_values(sglpass_turn *t)
{
    int64_t at = 0;
    for (int64_t i = 0; i < t->yields; i++) {
        take_output(t, &at, &t->yield[i]);
        take_output(t, &at, &t->start[i]);
        take_output(t, &at, &t->d_carry[i]);
        t->seed[i] = find_input(t->h, "seed", i);
    }
    for (uint32_t i = 0; i < t->v->capture_count; i++) {
        take_output(t, &at, &t->d_capture[i]);
        t->capture[i] = find_input(t->h, "capture", i);
    }
    for (int64_t i = 0; i < t->parameters; i++) t->parameter[i] = find_input(t->h, "parameter", i);
}

static sglir_id *no_values(sglpass_turn *t, int64_t count, bool *good)
{
    sglir_id *values = sglcore_arena_alloc(&t->arena, (size_t)(count + 1) * sizeof *values);
    *good = *good && values != NULL;
    for (int64_t i = 0; i < count && values != NULL; i++) values[i] = SGLIR_NONE;
    return values;
}

static bool make_room(sglpass_turn *t, sglir_id region)
{
    bool good = true;
    t->region = &t->v->g->regions.data[region];
    t->arena.env = t->v->g->env;
    t->parameters = t->region->parameters.count;
    t->yields = t->region->results.count;
    sglir_id **per_yield[] = { &t->seed, &t->yield, &t->start, &t->d_carry };
    for (size_t i = 0; i < sizeof per_yield / sizeof *per_yield; i++) *per_yield[i] = no_values(t, t->yields, &good);
    t->parameter = no_values(t, t->parameters, &good);
    t->capture = no_values(t, t->v->capture_count, &good);
    t->d_capture = no_values(t, t->v->capture_count, &good);
    return good;
}

static sgl_status make(sglpass_turn *t, sglir_id region)
{
    sglir_rewrite rewrite;
    sglir_graph *plain;
    sglcore_env *env = t->v->g->env;
    if (!make_room(t, region)) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(sglir_rewrite_begin(env, t->v->g, "autodiff", NULL, &rewrite));
    copy_region(t, &rewrite);
    sglir_set_origin_made(rewrite.to, t->v->g, t->v->node, "autodiff");
    if (rewrite.to->status == SGL_OK && t->active != NULL) derive(t, rewrite.to);
    if (rewrite.to->status == SGL_OK) add_outputs(t, rewrite.to);
    SGLCORE_TRY(sglir_rewrite_end(&rewrite, false, &plain));
    sgl_status status = sglpass_expand_grads(env, plain, &t->h);
    sglir_graph_free(plain);
    if (status == SGL_OK) find_values(t);
    return status;
}

bool sglpass_turn_make(sglpass_turn *t, sglir_id region)
{
    if (t->v->g->status == SGL_OK) sglir_stick(t->v->g, make(t, region));
    return t->v->g->status == SGL_OK;
}

void sglpass_turn_free(sglpass_turn *t)
{
    sglir_graph_free(t->h);
    sglcore_arena_free(&t->arena);
}

/* ---- fates ---------------------------------------------------------------------------------------------------- */

/* While fates are decided, per value of h. */
typedef struct fates {
    sglpass_turn *t;
    uint8_t *seeded; /* it depends on a seed */
    uint8_t *varies; /* it depends on what is different from turn to turn; of a branch: on what is not a number */
    uint8_t *wanted;
    int64_t price; /* of the node at hand: bytes that would have to be kept instead of its result */
} fates;

static int64_t bytes_of(const sglir_graph *h, sglir_id value) { return sglir_bytes(sglir_type_of(h, value)); }

int64_t sglpass_turn_stack_of(const sglpass_turn *t, sglir_id value)
{
    for (int64_t i = 0; i < t->yields; i++) {
        if (t->start[i] == SGLIR_NONE) continue;
        const sglir_node *maker = sglir_maker(t->h, t->yield[i]);
        if (t->yield[i] == value) return i;
        if (maker->op == SGLIR_OP_RESHAPE && sglir_arg(t->h, maker, 0) == value) return i;
    }
    return -1;
}

/* It is at hand beside the derivative without being kept. */
static bool is_free(const fates *f, sglir_id value)
{
    const sglpass_turn *t = f->t;
    if (f->wanted[value] || !f->varies[value] || (t->parameters > 0 && value == t->parameter[0])) return true;
    for (uint32_t i = 0; i < t->v->capture_count; i++) {
        if (t->capture[i] == value) return true;
    }
    return sglpass_turn_stack_of(t, value) >= 0;
}

static void add_price(void *user, sglir_id value)
{
    fates *f = user;
    if (!is_free(f, value)) f->price += bytes_of(f->t->h, value);
}

static void want(void *user, sglir_id value)
{
    fates *f = user;
    f->wanted[value] = 1;
}

static void want_args(fates *f, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) f->wanted[sglir_arg(f->t->h, node, i)] = 1;
    sglir_each_capture(f->t->h, node, want, f);
}

static bool is_cheap(const sglir_graph *h, sglir_id id)
{
    const sglir_node *node = sglir_node_at(h, id);
    if (node->region_count > 0 || node->op == SGLIR_OP_RANDOM_UNIFORM || node->op == SGLIR_OP_RANDOM_NORMAL)
        return false;
    bool simple = sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_MOVEMENT | SGLIR_GENERATOR);
    return (simple || node->op == SGLIR_OP_DYNAMIC_SLICE) && sglplan_cost_of(h, id).transcendentals == 0;
}

/* Whether the node is run once more beside the derivative, and not what it makes kept. */
static bool is_remade(fates *f, sglir_id id, bool again)
{
    const sglir_graph *h = f->t->h;
    const sglir_node *node = sglir_node_at(h, id);
    int64_t bytes = 0;
    bool varies = false;
    for (uint32_t k = 0; k < node->out_count; k++) {
        sglir_id value = node->out_first + k;
        varies = varies || f->varies[value];
        if (f->wanted[value] && sglpass_turn_stack_of(f->t, value) < 0) bytes += bytes_of(h, value);
    }
    if (again || !varies) return true;
    if (!is_cheap(h, id)) return false;
    f->price = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < i && !seen; k++) seen = sglir_arg(h, node, k) == sglir_arg(h, node, i);
        if (!seen) add_price(f, sglir_arg(h, node, i));
    }
    return f->price <= bytes;
}

/* Users before makers: what is wanted of a node is known when its turn comes. */
static void decide_node(fates *f, sglir_id id, bool again)
{
    sglpass_turn *t = f->t;
    const sglir_node *node = sglir_node_at(t->h, id);
    bool wanted = false, seeded = false;
    for (uint32_t k = 0; k < node->out_count; k++) {
        wanted = wanted || f->wanted[node->out_first + k];
        seeded = seeded || f->seeded[node->out_first + k];
    }
    if (!wanted || node->op == SGLIR_OP_INPUT) return;
    if (seeded || is_remade(f, id, again)) {
        t->picked[id] = 1;
        want_args(f, node);
        return;
    }
    for (uint32_t k = 0; k < node->out_count; k++) {
        if (f->wanted[node->out_first + k]) t->kept[node->out_first + k] = 1;
    }
}

static void mark_inputs(const sglpass_turn *t, const sglir_id *inputs, int64_t count, sglir_id *list, uint8_t *out)
{
    int found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (inputs[i] != SGLIR_NONE) list[found++] = inputs[i];
    }
    sglir_mark_dependents(t->h, list, found, out);
}

typedef struct seeding {
    const uint8_t *seeded;
    bool any;
} seeding;

static void ask_seeded(void *user, sglir_id value)
{
    seeding *s = user;
    s->any = s->any || s->seeded[value];
}

/* A node that uses what depends on a seed is derivative as a whole. */
static void seed_nodes(const sglir_graph *h, uint8_t *seeded)
{
    const sglir_region *top = &h->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(h, top->nodes.data[n]);
        seeding s = { seeded, false };
        for (uint32_t i = 0; i < node->arg_count; i++) ask_seeded(&s, sglir_arg(h, node, i));
        sglir_each_capture(h, node, ask_seeded, &s);
        for (uint32_t k = 0; k < node->out_count && s.any; k++) seeded[node->out_first + k] = 1;
    }
}

bool sglpass_turn_decide(sglpass_turn *t, bool again)
{
    const sglir_graph *h = t->h;
    size_t values = (size_t)h->values.count;
    int64_t most = t->parameters + t->yields + t->v->capture_count;
    sglir_id *list = sglcore_arena_alloc(&t->arena, (size_t)(most + 1) * sizeof *list);
    fates f = { .t = t,
                .seeded = sglcore_arena_alloc(&t->arena, values),
                .varies = sglcore_arena_alloc(&t->arena, values),
                .wanted = sglcore_arena_alloc(&t->arena, values) };
    t->picked = sglcore_arena_alloc(&t->arena, (size_t)h->nodes.count);
    t->kept = sglcore_arena_alloc(&t->arena, values);
    if (!list || !f.seeded || !f.varies || !f.wanted || !t->picked || !t->kept) {
        sglir_stick(t->v->g, SGL_OUT_OF_MEMORY);
        return false;
    }
    mark_inputs(t, t->seed, t->yields, list, f.seeded);
    seed_nodes(h, f.seeded);
    if (t->loops)
        mark_inputs(t, t->parameter, t->parameters, list, f.varies);
    else
        mark_inputs(t, t->capture, t->v->capture_count, list, f.varies);
    for (int64_t i = 0; i < t->yields; i++) {
        if (t->start[i] != SGLIR_NONE) f.wanted[t->start[i]] = 1;
        if (t->d_carry[i] != SGLIR_NONE) f.wanted[t->d_carry[i]] = 1;
    }
    for (uint32_t i = 0; i < t->v->capture_count; i++) {
        if (t->d_capture[i] != SGLIR_NONE) f.wanted[t->d_capture[i]] = 1;
    }
    const sglir_region *top = &h->regions.data[0];
    for (int64_t n = top->nodes.count; n-- > 0;) decide_node(&f, top->nodes.data[n], again);
    for (int64_t i = 1; i < t->parameters; i++) {
        if (t->parameter[i] != SGLIR_NONE && f.wanted[t->parameter[i]]) t->kept[t->parameter[i]] = 1;
    }
    return true;
}

/* ---- copies --------------------------------------------------------------------------------------------------- */

bool sglpass_turn_begin(const sglpass_turn *t, sglir_rewrite *rewrite)
{
    size_t bytes = (size_t)t->h->values.count * sizeof *rewrite->map;
    *rewrite = (sglir_rewrite){ .from = t->h, .to = t->v->g, .pass = "autodiff" };
    rewrite->map = sglcore_alloc(t->v->g->env, bytes);
    if (rewrite->map == NULL && bytes > 0) {
        sglir_stick(t->v->g, SGL_OUT_OF_MEMORY);
        return false;
    }
    for (int64_t i = 0; i < t->h->values.count; i++) rewrite->map[i] = SGLIR_NONE;
    for (uint32_t i = 0; i < t->v->capture_count; i++) {
        if (t->capture[i] != SGLIR_NONE) rewrite->map[t->capture[i]] = t->v->captures[i];
    }
    return true;
}

void sglpass_turn_end(const sglpass_turn *t, sglir_rewrite *rewrite)
{
    sglcore_free(t->v->g->env, rewrite->map, (size_t)t->h->values.count * sizeof *rewrite->map);
    rewrite->map = NULL;
}

void sglpass_turn_copy_start(sglir_rewrite *rewrite, sglir_id value)
{
    sglir_id maker = sglir_value_at(rewrite->from, value)->node;
    if (rewrite->map[value] != SGLIR_NONE || rewrite->to->status != SGL_OK) return;
    const sglir_node *node = sglir_node_at(rewrite->from, maker);
    for (uint32_t i = 0; i < node->arg_count; i++) sglpass_turn_copy_start(rewrite, sglir_arg(rewrite->from, node, i));
    sglir_copy_node(rewrite, maker);
}

typedef struct wanting {
    uint8_t *wanted; /* per value of h */
} wanting;

static void want_value(void *user, sglir_id value) { ((wanting *)user)->wanted[value] = 1; }

void sglpass_turn_copy_made(const sglpass_turn *t, sglir_rewrite *rewrite, uint8_t *wanted)
{
    const sglir_graph *h = t->h;
    const sglir_region *top = &h->regions.data[0];
    wanting w = { wanted };
    for (int64_t n = top->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(h, top->nodes.data[n]);
        bool makes = false;
        for (uint32_t k = 0; k < node->out_count; k++) makes = makes || wanted[node->out_first + k];
        if (!makes) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) wanted[sglir_arg(h, node, i)] = 1;
        sglir_each_capture(h, node, want_value, &w);
    }
    for (int64_t n = 0; n < top->nodes.count && rewrite->to->status == SGL_OK; n++) {
        const sglir_node *node = sglir_node_at(h, top->nodes.data[n]);
        bool makes = false;
        for (uint32_t k = 0; k < node->out_count; k++) makes = makes || wanted[node->out_first + k];
        if (makes && rewrite->map[node->out_first] == SGLIR_NONE) sglir_copy_node(rewrite, top->nodes.data[n]);
    }
}

void sglpass_turn_copy_picked(const sglpass_turn *t, sglir_rewrite *rewrite)
{
    const sglir_region *top = &t->h->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count && rewrite->to->status == SGL_OK; n++) {
        sglir_id id = top->nodes.data[n];
        const sglir_node *node = sglir_node_at(t->h, id);
        if (t->picked[id] && rewrite->map[node->out_first] == SGLIR_NONE) sglir_copy_node(rewrite, id);
    }
}
