/* precision_scale.c -- fp16: the loss is scaled, its gradients are unscaled, and a step whose gradients are not all finite
 * changes nothing (Micikevicius et al., arXiv:1710.03740).
 *
 * In: the outer grads of a graph (what optimizers take). Out: grads of the scaled loss; of each its gradients packed,
 * unscaled in f32, looked through for the first number that is not finite, and unpacked; every update a choice between the new
 * value and the old one. The scale and its counters are states of the graph, made here: they halve, double and count as
 * ordinary nodes. That every gradient is unscaled just once is told by types (ir/infer_owed.c), up to autodiff. Odd
 * invariant: the choice of an update that is a part of a pack is made on the pack, so that sections stay whole. */
#include <math.h>
#include <string.h>

#include "passes/precision.h"

static const double least_scale = 0x1p-64; /* below, its inverse would end in infinities */

/* ---- states ------------------------------------------------------------------------------------------------------- */

static sglir_id read_state(sglpass_narrowing *p, const char *name, sgl_dtype dtype, double initial)
{
    const sglir_named attrs[] = { SGLIR_I("role", SGL_STATE),  SGLIR_S("name", name), SGLIR_I("dtype", dtype),
                                  SGLIR_INTS("dims", 0, NULL), SGLIR_I("made", 1),    SGLIR_F("initial", initial) };
    return sglir_emit(p->rewrite.to, SGLIR_OP_INPUT, NULL, 0, attrs, (int)(sizeof attrs / sizeof attrs[0]), NULL);
}

void sglpass_scale_begin(sglpass_narrowing *p)
{
    const sglir_graph *g = p->rewrite.from;
    const sglir_region *top = &g->regions.data[0];
    bool any = false, derives = false, learns = false;
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        derives = derives || node->op == SGLIR_OP_GRAD;
        any = any || (node->op == SGLIR_OP_GRAD && sglir_attr_int(g, node, "outer"));
    }
    for (int64_t o = 0; o < g->outputs.count; o++) learns = learns || g->outputs.data[o].role == SGLIR_UPDATE;
    if (p->narrow != SGL_F16 || !derives) return;
    if (!any && !learns) return; /* an evaluation whose loss holds a gradient */
    if (!any) {
        sglcore_log(
            p->env, SGL_LOG_WARNING,
            "precision fp16: no gradient of the graph \"%s\" is marked `outer`, as an optimizer marks its own: no loss "
            "is scaled, and small gradients are lost",
            sglcore_string(g->strings, g->name));
        return;
    }
    sglir_set_origin(p->rewrite.to, "", 0, "", p->rewrite.pass);
    p->scale = read_state(p, SGLPLAN_SCALE, SGL_F32, (double)p->plan->scale);
    p->good = read_state(p, SGLPLAN_SCALE_GOOD, SGL_I64, 0);
    p->skipped = read_state(p, SGLPLAN_SCALE_SKIPPED, SGL_I64, 0);
    p->in_a_row = read_state(p, SGLPLAN_SCALE_IN_A_ROW, SGL_I64, 0);
    p->first = read_state(p, SGLPLAN_SCALE_FIRST, SGL_I64, 0);
    p->changed = true;
}

/* ---- packs -------------------------------------------------------------------------------------------------------- */

/* Values of one pack, and what is known of each. */
typedef struct parts {
    sglir_id *values;
    int64_t *ranks, *dims, *counts;
    double *numbers; /* of the parameter */
    int64_t count, dim_count, room;
} parts;

static bool parts_take(sglcore_arena *arena, parts *q, int64_t room)
{
    size_t n = (size_t)room;
    *q = (parts){ .values = sglcore_arena_alloc(arena, n * sizeof(sglir_id)),
                  .ranks = sglcore_arena_alloc(arena, n * sizeof(int64_t)),
                  .dims = sglcore_arena_alloc(arena, n * SGL_MAX_RANK * sizeof(int64_t)),
                  .counts = sglcore_arena_alloc(arena, n * sizeof(int64_t)),
                  .numbers = sglcore_arena_alloc(arena, n * sizeof(double)),
                  .room = room };
    return q->values && q->ranks && q->dims && q->counts && q->numbers;
}

static void parts_add(const sglir_graph *g, parts *q, sglir_id value)
{
    if (g->status != SGL_OK) return;
    const sglir_type *type = sglir_type_of(g, value);
    q->values[q->count] = value;
    q->counts[q->count] = sglir_elements(type);
    q->ranks[q->count++] = type->rank;
    for (int i = 0; i < type->rank; i++) q->dims[q->dim_count++] = type->dims[i];
}

static sglir_id emit_pack(sglir_graph *g, const parts *q)
{
    return sglir_emit(g, SGLIR_OP_PACK, q->values, (int)q->count, NULL, 0, NULL);
}

/* The parts again, of another value of the pack's shape; the first of them. */
static sglir_id emit_unpack(sglir_graph *g, const parts *q, sglir_id whole)
{
    const sglir_named attrs[] = { SGLIR_INTS("ranks", q->count, q->ranks), SGLIR_INTS("dims", q->dim_count, q->dims) };
    return sglir_emit(g, SGLIR_OP_UNPACK, &whole, 1, attrs, 2, NULL);
}

/* ---- gradients ---------------------------------------------------------------------------------------------------- */

/* Which parameter of the graph, in the order of its inputs, the value is; their number when it is none. */
static double number_of(const sglir_graph *g, sglir_id value)
{
    const sglir_region *top = &g->regions.data[0];
    int64_t number = 0;
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") != SGL_PARAMETER) continue;
        if (node->out_first == value) break;
        number++;
    }
    return (double)number;
}

/* The first parameter whose gradient is not finite, infinity when all are; looked for beside those before. */
static void look_through(sglpass_narrowing *p, const parts *q, sglir_id gradients)
{
    sglir_graph *g = p->rewrite.to;
    const int64_t axis = 0;
    const sglir_named attrs[] = { SGLIR_INTS("counts", q->count, q->counts),
                                  SGLIR_FLOATS("values", q->count, q->numbers), SGLIR_I("dtype", SGL_F32) };
    sglir_id owners = sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
    sglir_id finite = sglir_unary(g, SGLIR_OP_IS_FINITE, gradients);
    sglir_id found = sglir_select(g, finite, sglir_constant(g, SGL_F32, INFINITY), owners);
    sglir_id first = sglir_reduce(g, SGLIR_OP_REDUCE_MIN, found, &axis, 1, false);
    p->culprit = p->culprit == SGLIR_NONE ? first : sglir_binary(g, SGLIR_OP_MINIMUM, p->culprit, first);
}

/* Gradients of those wrt that were traced in f64, or of all others, in `wide`. */
static void unscale(sglpass_narrowing *p, const sglir_node *node, sglir_id first, sgl_dtype wide, parts *q)
{
    const sglir_graph *from = p->rewrite.from;
    sglir_graph *g = p->rewrite.to;
    q->count = q->dim_count = 0;
    for (uint32_t k = 0; k < node->out_count; k++) {
        sglir_id wrt = sglir_arg(from, node, k + 1);
        if ((sglir_type_of(from, wrt)->dtype == SGL_F64) != (wide == SGL_F64)) continue;
        q->numbers[q->count] = number_of(from, wrt);
        parts_add(g, q, sglir_cast(g, first + k, wide));
    }
    if (q->count == 0 || g->status != SGL_OK) return;
    sglir_id scale = sglir_cast(g, p->scale, wide), pack = emit_pack(g, q);
    const sglir_id args[2] = { pack, scale };
    sglir_id whole = sglir_emit(g, SGLIR_OP_UNSCALE, args, 2, NULL, 0, NULL);
    look_through(p, q, whole);
    sglir_id part = emit_unpack(g, q, whole);
    for (uint32_t k = 0; k < node->out_count && g->status == SGL_OK; k++) {
        sgl_dtype own = (sgl_dtype)sglir_type_of(from, sglir_arg(from, node, k + 1))->dtype;
        if ((own == SGL_F64) == (wide == SGL_F64)) p->rewrite.map[node->out_first + k] = sglir_cast(g, part++, own);
    }
}

static void grad_of_scaled(sglpass_narrowing *p, const sglir_node *node, sglir_id *args, parts *q)
{
    const sglir_graph *from = p->rewrite.from;
    sglir_graph *g = p->rewrite.to;
    sglir_id of = sglir_arg(from, node, 0);
    sgl_dtype dtype = (sgl_dtype)sglir_type_of(from, of)->dtype;
    const sglir_named outer = SGLIR_I("outer", 1);
    args[0] = sglpass_precision_as(p, of, dtype);
    args[1] = sglir_cast(g, p->scale, dtype);
    args[0] = sglir_emit(g, SGLIR_OP_SCALE, args, 2, NULL, 0, NULL);
    for (uint32_t k = 0; k < node->out_count; k++) args[k + 1] = p->rewrite.map[sglir_arg(from, node, k + 1)];
    sglir_id first = sglir_emit(g, SGLIR_OP_GRAD, args, (int)node->arg_count, &outer, 1, NULL);
    unscale(p, node, first, SGL_F32, q);
    unscale(p, node, first, SGL_F64, q);
}

void sglpass_scale_grad(sglpass_narrowing *p, sglir_id id)
{
    const sglir_node *node = sglir_node_at(p->rewrite.from, id);
    sglcore_arena arena = { .env = p->env };
    parts q;
    sglir_id *args = sglcore_arena_alloc(&arena, (node->arg_count + 1) * sizeof *args);
    if (args == NULL || !parts_take(&arena, &q, node->out_count))
        sglir_stick(p->rewrite.to, SGL_OUT_OF_MEMORY);
    else
        grad_of_scaled(p, node, args, &q);
    sglcore_arena_free(&arena);
}

/* ---- updates ------------------------------------------------------------------------------------------------------ */

#define NO_OUTPUT UINT32_MAX

typedef struct updates {
    sglpass_narrowing *p;
    const sglir_graph *from;
    sglir_graph *to;
    uint32_t *output_of; /* per value of `to`: the update that takes it, NO_OUTPUT for none or several */
    sglir_id *chosen;    /* per output: what it takes in the end, SGLIR_NONE while not known */
    int64_t values;
} updates;

static sglir_id value_of(const updates *u, int64_t output)
{
    return u->p->rewrite.map[u->from->outputs.data[output].value];
}

static sglir_id old_of(const updates *u, int64_t output)
{
    return sglir_input_find(u->to, sglcore_string(u->from->strings, u->from->outputs.data[output].name));
}

static void find_takers(updates *u)
{
    for (int64_t v = 0; v < u->values; v++) u->output_of[v] = NO_OUTPUT;
    for (int64_t o = 0; o < u->from->outputs.count; o++) {
        u->chosen[o] = SGLIR_NONE;
        if (u->from->outputs.data[o].role != SGLIR_UPDATE) continue;
        uint32_t *taker = &u->output_of[value_of(u, o)];
        *taker = *taker == NO_OUTPUT ? (uint32_t)o : NO_OUTPUT;
    }
}

static sglir_id choose(const updates *u, sglir_id fresh, sglir_id old)
{
    return sglir_select(u->to, u->p->finite, fresh, old);
}

/* Where all results of one unpack are updates: the choice is made once, on what was unpacked. */
static sgl_status choose_pack(updates *u, sglir_id value)
{
    const sglir_node *maker = sglir_maker(u->to, value);
    if (maker == NULL || maker->op != SGLIR_OP_UNPACK) return SGL_OK;
    const sglir_id first = maker->out_first, count = maker->out_count, fresh = sglir_arg(u->to, maker, 0);
    sglcore_arena arena = { .env = u->p->env };
    parts q;
    bool all = true;
    if (!parts_take(&arena, &q, count)) {
        sglcore_arena_free(&arena);
        return sglir_stick(u->to, SGL_OUT_OF_MEMORY);
    }
    for (sglir_id k = 0; k < count && all; k++) {
        uint32_t output = u->output_of[first + k];
        all = output != NO_OUTPUT;
        if (all) parts_add(u->to, &q, old_of(u, output));
    }
    if (all) {
        sglir_id part = emit_unpack(u->to, &q, choose(u, fresh, emit_pack(u->to, &q)));
        for (sglir_id k = 0; k < count; k++) u->chosen[u->output_of[first + k]] = part + k;
    }
    sglcore_arena_free(&arena);
    return sglir_status(u->to);
}

static sgl_status add_outputs(updates *u)
{
    for (int64_t o = 0; o < u->from->outputs.count; o++) {
        const sglir_output *output = &u->from->outputs.data[o];
        sglir_id value = value_of(u, o);
        if (output->role == SGLIR_UPDATE && u->chosen[o] == SGLIR_NONE) SGLCORE_TRY(choose_pack(u, value));
        if (output->role == SGLIR_UPDATE && u->chosen[o] == SGLIR_NONE) u->chosen[o] = choose(u, value, old_of(u, o));
        sglir_output_add(u->to, output->role, sglcore_string(u->from->strings, output->name),
                         output->role == SGLIR_UPDATE ? u->chosen[o] : value);
    }
    return sglir_status(u->to);
}

/* ---- the scale ---------------------------------------------------------------------------------------------------- */

/* A number to show, unless the script shows one of that name. */
static void fetch_number(sglpass_narrowing *p, const char *name, sglir_id value)
{
    const sglir_graph *from = p->rewrite.from;
    for (int64_t o = 0; o < from->outputs.count; o++) {
        const sglir_output *output = &from->outputs.data[o];
        if (output->role == SGLIR_FETCH && strcmp(sglcore_string(from->strings, output->name), name) == 0) return;
    }
    sglir_output_add(p->rewrite.to, SGLIR_FETCH, name, value);
}

/* Halves on a skip, doubles after as many good steps as the plan says. */
static void update_scale(sglpass_narrowing *p)
{
    sglir_graph *g = p->rewrite.to;
    sglir_id one = sglir_constant(g, SGL_I64, 1), zero = sglir_constant(g, SGL_I64, 0);
    sglir_id interval = sglir_constant(g, SGL_I64, (double)p->plan->scale_growth_interval);
    sglir_id skips = sglir_unary(g, SGLIR_OP_NOT, p->finite);
    sglir_id good = sglir_add(g, p->good, one);
    sglir_id enough = sglir_binary(g, SGLIR_OP_LESS_EQUAL, interval, good);
    sglir_id restarts = sglir_binary(g, SGLIR_OP_OR, skips, enough);
    sglir_id grown = sglir_select(g, enough, sglir_scale(g, p->scale, 2), p->scale);
    sglir_id half = sglir_scale(g, p->scale, 0.5);
    sglir_id least = sglir_constant(g, SGL_F32, least_scale);
    sglir_id halved = sglir_binary(g, SGLIR_OP_MAXIMUM, half, least);
    sglir_id scale = sglir_select(g, p->finite, grown, halved);
    sglir_id skipped = sglir_add(g, p->skipped, sglir_cast(g, skips, SGL_I64));
    sglir_id in_a_row = sglir_select(g, p->finite, zero, sglir_add(g, p->in_a_row, one));
    sglir_id begins = sglir_binary(g, SGLIR_OP_AND, skips, sglir_binary(g, SGLIR_OP_EQUAL, p->in_a_row, zero));
    sglir_id culprit = sglir_select(g, p->finite, sglir_constant(g, SGL_F32, 0), p->culprit);
    sglir_id first = sglir_select(g, begins, sglir_cast(g, culprit, SGL_I64), p->first);
    sglir_output_add(g, SGLIR_UPDATE, SGLPLAN_SCALE, scale);
    sglir_output_add(g, SGLIR_UPDATE, SGLPLAN_SCALE_GOOD, sglir_select(g, restarts, zero, good));
    sglir_output_add(g, SGLIR_UPDATE, SGLPLAN_SCALE_SKIPPED, skipped);
    sglir_output_add(g, SGLIR_UPDATE, SGLPLAN_SCALE_IN_A_ROW, in_a_row);
    sglir_output_add(g, SGLIR_UPDATE, SGLPLAN_SCALE_FIRST, first);
    fetch_number(p, "scale", scale);
    fetch_number(p, "skipped", skipped);
}

sgl_status sglpass_scale_outputs(sglpass_narrowing *p)
{
    sglir_graph *g = p->rewrite.to;
    sglcore_arena arena = { .env = p->env };
    updates u = { .p = p, .from = p->rewrite.from, .to = g, .values = g->values.count };
    u.output_of = sglcore_arena_alloc(&arena, (size_t)u.values * sizeof *u.output_of);
    u.chosen = sglcore_arena_alloc(&arena, (size_t)u.from->outputs.count * sizeof *u.chosen);
    sgl_status status = u.output_of && u.chosen ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        p->finite = sglir_binary(g, SGLIR_OP_EQUAL, p->culprit, sglir_constant(g, SGL_F32, INFINITY));
        find_takers(&u);
        status = add_outputs(&u);
    }
    if (status == SGL_OK) update_scale(p);
    sglcore_arena_free(&arena);
    return status == SGL_OK ? sglir_status(g) : status;
}
