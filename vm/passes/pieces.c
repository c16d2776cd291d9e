/* pieces.c -- an update of all parameters at once becomes updates of pieces of them, where states are to live in memory
 * of the host.
 *
 * In: a graph in which optimizers work over packs: 1-D values of all parameters one after another, elementwise, unpacked
 * into new values of states. Out: the same over several shorter packs, so that the pass sections makes a section of each
 * and no more of a state need be on the device at once than a few pieces of it. Pieces are whole members, at least
 * plan.bucket bytes each; each piece comes after the one behind it, in the order in which a backward makes gradients, so
 * that no kernel is of two of them. What is no pack of states (gradients that a norm is taken of) is not packed anew: pieces show
 * ranges of it. Odd invariant: elements are worked on by the same ops as before, so every bit of the result is the same. */
#include <string.h>

#include "passes/pass.h"
#include "passes/sections_gather.h"

enum { BY_RANGE, BY_PACK, BY_BROADCAST, BY_SEGMENTS };

typedef struct range {
    uint32_t first, count; /* members */
    int64_t start, elements;
} range;

typedef struct cutter {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint8_t *live;     /* per node */
    uint8_t *cone;     /* per node: 1 + number of the group that it is of */
    uint32_t *uses;    /* per value */
    uint32_t *updates; /* per value: outputs that make it a state's */
    sglir_id behind;   /* what the piece before this one has made, in the new graph; SGLIR_NONE: nothing waits for it */
    sglir_id *piece;   /* per value: what stands for it in the piece at hand, SGLIR_NONE while not made */
    SGLCORE_VEC(sglir_id) sinks; /* unpacks of the group at hand */
    SGLCORE_VEC(sglir_id) nodes; /* its elementwise nodes, in order */
    SGLCORE_VEC(sglir_id) ids;   /* for one node */
    SGLCORE_VEC(int64_t) numbers;
    SGLCORE_VEC(double) floats;
    SGLCORE_VEC(range) ranges; /* of the group at hand */
    bool changed;
    sglcore_arena arena;
} cutter;

static const sglir_graph *from(const cutter *c) { return c->rewrite.from; }
static const sglir_node *node_at(const cutter *c, sglir_id node) { return sglir_node_at(from(c), node); }

/* ---- what belongs together ---------------------------------------------------------------------------------------- */

/* All that it gives become new values of states, and nothing else. */
static bool is_sink(const cutter *c, sglir_id id)
{
    const sglir_node *node = node_at(c, id);
    if (node->op != SGLIR_OP_UNPACK || !c->live[id] || node->region != 0 || node->out_count < 2) return false;
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglir_id out = node->out_first + i;
        if (c->updates[out] == 0 || c->updates[out] != c->uses[out]) return false;
    }
    return true;
}

static bool cut_alike(const cutter *c, const sglir_node *a, const sglir_node *b)
{
    if (a->out_count != b->out_count) return false;
    for (uint32_t i = 0; i < a->out_count; i++)
        if (!sglir_same_shape(sglir_type_of(from(c), a->out_first + i), sglir_type_of(from(c), b->out_first + i)))
            return false;
    return true;
}

/* An elementwise node over the whole length. */
static bool is_along(const cutter *c, sglir_id value, int64_t elements)
{
    const sglir_value *v = sglir_value_at(from(c), value);
    if (v->node == SGLIR_NONE || v->region != 0 || v->type.rank != 1 || v->type.dims[0] != elements) return false;
    const sglir_node *node = node_at(c, v->node);
    return (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) != 0 && node->out_count == 1;
}

/* Users come after makers: one walk back from the last sink marks all, of which a list is made in order. */
static sgl_status find_cone(cutter *c, sglir_id last, uint8_t group, int64_t elements)
{
    for (int64_t i = 0; i < c->sinks.count; i++) {
        const sglir_id arg = sglir_arg(from(c), node_at(c, c->sinks.data[i]), 0);
        if (is_along(c, arg, elements)) c->cone[sglir_value_at(from(c), arg)->node] = group;
    }
    for (int64_t n = last; n >= 0; n--) {
        const sglir_node *node = node_at(c, (sglir_id)n);
        for (uint32_t i = 0; c->cone[n] == group && i < node->arg_count; i++) {
            const sglir_id arg = sglir_arg(from(c), node, i);
            if (is_along(c, arg, elements)) c->cone[sglir_value_at(from(c), arg)->node] = group;
        }
    }
    c->nodes.count = 0;
    for (sglir_id n = 0; n <= last; n++)
        if (c->cone[n] == group) SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->nodes, n));
    return SGL_OK;
}

/* ---- one piece ---------------------------------------------------------------------------------------------------- */

static int64_t elements_of(const cutter *c, const sglir_node *sink, uint32_t member)
{
    return sglir_elements(sglir_type_of(from(c), sink->out_first + member));
}

/* From member `first` on, as many as it takes to have the bytes of a bucket. */
static range next_range(const cutter *c, uint32_t first, int64_t start)
{
    const sglir_node *sink = node_at(c, c->sinks.data[0]);
    const sgl_dtype dtype = (sgl_dtype)sglir_type_of(from(c), sglir_arg(from(c), sink, 0))->dtype;
    range r = { .first = first, .start = start };
    while (first + r.count < sink->out_count && sglcore_dtype_bytes(dtype, r.elements) < c->context->plan->bucket)
        r.elements += elements_of(c, sink, first + r.count++);
    return r;
}

static bool packs_states(const cutter *c, const sglir_node *pack)
{
    for (uint32_t i = 0; i < pack->arg_count; i++) {
        const sglir_id input = sglpass_input_of(from(c), sglir_arg(from(c), pack, i));
        if (input == SGLIR_NONE || sglir_attr_int(from(c), sglir_maker(from(c), input), "role") == SGL_FEED)
            return false;
    }
    return true;
}

/* Nothing but the group reads it, so that it need not be there whole. */
static bool read_by_cone(const cutter *c, sglir_id value)
{
    uint32_t reads = 0;
    for (int64_t i = 0; i < c->nodes.count; i++) {
        const sglir_node *node = node_at(c, c->nodes.data[i]);
        for (uint32_t a = 0; a < node->arg_count; a++) reads += sglir_arg(from(c), node, a) == value;
    }
    return reads == c->uses[value];
}

static int way_of(const cutter *c, sglir_id value)
{
    const sglir_node *maker = sglir_maker(from(c), value), *sink = node_at(c, c->sinks.data[0]);
    if (maker == NULL || maker->region != 0) return BY_RANGE;
    if (maker->op == SGLIR_OP_SEGMENTS) return BY_SEGMENTS;
    if (maker->op == SGLIR_OP_BROADCAST && sglir_elements(sglir_type_of(from(c), sglir_arg(from(c), maker, 0))) == 1)
        return BY_BROADCAST;
    if (maker->op != SGLIR_OP_PACK || maker->arg_count != sink->out_count) return BY_RANGE;
    for (uint32_t i = 0; i < maker->arg_count; i++)
        if (sglir_elements(sglir_type_of(from(c), sglir_arg(from(c), maker, i))) != elements_of(c, sink, i))
            return BY_RANGE;
    return packs_states(c, maker) || read_by_cone(c, value) ? BY_PACK : BY_RANGE;
}

static sgl_status cut_segments(cutter *c, const sglir_node *node, const range *r, sglir_id *made)
{
    int segments;
    const int64_t *counts = sglir_attr_ints(from(c), node, "counts", &segments);
    const double *values = sglir_attr_floats(from(c), node, "values", &segments);
    int64_t at = 0;
    c->numbers.count = c->floats.count = 0;
    for (int i = 0; i < segments; at += counts[i++]) {
        const int64_t low = at > r->start ? at : r->start;
        const int64_t end = at + counts[i], stop = r->start + r->elements, high = end < stop ? end : stop;
        if (high <= low) continue;
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->numbers, high - low));
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->floats, values[i]));
    }
    const sglir_named attrs[] = { SGLIR_INTS("counts", c->numbers.count, c->numbers.data),
                                  SGLIR_FLOATS("values", c->floats.count, c->floats.data),
                                  { .name = "dtype", .kind = 't', .i = sglir_attr_int(from(c), node, "dtype") } };
    *made = sglir_emit(c->rewrite.to, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
    return sglir_status(c->rewrite.to);
}

/* Elements of a value that is there whole, as a view. */
static sglir_id show_range(cutter *c, sglir_id value, const range *r)
{
    sglir_graph *to = c->rewrite.to;
    const int64_t all = sglir_elements(sglir_type_of(to, value)), rest = all - r->start - r->elements;
    int64_t dims[3], ranks[3] = { 1, 1, 1 };
    int parts = 0;
    if (r->start > 0) dims[parts++] = r->start;
    const int wanted = parts;
    dims[parts++] = r->elements;
    if (rest > 0) dims[parts++] = rest;
    const sglir_named attrs[] = { SGLIR_INTS("ranks", parts, ranks), SGLIR_INTS("dims", parts, dims) };
    const sglir_id first = sglir_emit(to, SGLIR_OP_UNPACK, &value, 1, attrs, 2, NULL);
    return first == SGLIR_NONE ? SGLIR_NONE : first + (sglir_id)wanted;
}

static sgl_status cut_pack(cutter *c, const sglir_node *pack, const range *r, sglir_id *made)
{
    c->ids.count = 0;
    for (uint32_t i = r->first; i < r->first + r->count; i++)
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->ids, c->rewrite.map[sglir_arg(from(c), pack, i)]));
    *made = sglir_emit(c->rewrite.to, SGLIR_OP_PACK, c->ids.data, (int)c->ids.count, NULL, 0, NULL);
    return sglir_status(c->rewrite.to);
}

static sgl_status cut_leaf(cutter *c, sglir_id value, const range *r)
{
    sglir_graph *to = c->rewrite.to;
    const sglir_node *maker = sglir_maker(from(c), value);
    sglir_id *made = &c->piece[value], arg;
    const int way = way_of(c, value);
    if (maker) sglir_set_origin_made(to, from(c), sglir_value_at(from(c), value)->node, c->rewrite.pass);
    switch (way) {
    case BY_SEGMENTS: SGLCORE_TRY(cut_segments(c, maker, r, made)); break;
    case BY_PACK: SGLCORE_TRY(cut_pack(c, maker, r, made)); break;
    case BY_BROADCAST:
        arg = c->rewrite.map[sglir_arg(from(c), maker, 0)];
        *made = sglir_broadcast(to, arg, 1, &r->elements);
        break;
    default: *made = show_range(c, c->rewrite.map[value], r); break;
    }
    if (c->behind == SGLIR_NONE || way == BY_SEGMENTS || way == BY_BROADCAST || sglir_status(to) != SGL_OK)
        return sglir_status(to);
    const sglir_id args[] = { *made, c->behind };
    *made = sglir_emit(to, SGLIR_OP_AFTER, args, 2, NULL, 0, NULL);
    c->behind = SGLIR_NONE;
    return sglir_status(to);
}

static sgl_status cut_node(cutter *c, sglir_id id, const range *r)
{
    sglir_graph *to = c->rewrite.to;
    const sglir_node *node = node_at(c, id);
    sglir_named attrs[SGLIR_MOST_ATTRS];
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_id arg = sglir_arg(from(c), node, i);
        if (c->piece[arg] == SGLIR_NONE) SGLCORE_TRY(cut_leaf(c, arg, r));
    }
    c->ids.count = 0;
    for (uint32_t i = 0; i < node->arg_count; i++)
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->ids, c->piece[sglir_arg(from(c), node, i)]));
    const int count = sglir_attrs_named(from(c), node, attrs);
    sglir_set_origin_made(to, from(c), id, c->rewrite.pass);
    c->piece[node->out_first] = sglir_emit(to, (sglir_op)node->op, c->ids.data, (int)c->ids.count, attrs, count, NULL);
    return sglir_status(to);
}

/* The members of the range as results of an unpack of the piece. */
static sgl_status unpack_piece(cutter *c, sglir_id id, const range *r)
{
    const sglir_node *sink = node_at(c, id);
    const sglir_id arg = sglir_arg(from(c), sink, 0);
    if (c->piece[arg] == SGLIR_NONE) SGLCORE_TRY(cut_leaf(c, arg, r));
    c->numbers.count = 0;
    for (uint32_t i = r->first; i < r->first + r->count; i++)
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->numbers, sglir_type_of(from(c), sink->out_first + i)->rank));
    for (uint32_t i = r->first; i < r->first + r->count; i++) {
        const sglir_type *type = sglir_type_of(from(c), sink->out_first + i);
        for (int d = 0; d < type->rank; d++) SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->numbers, type->dims[d]));
    }
    const sglir_named attrs[] = { SGLIR_INTS("ranks", r->count, c->numbers.data),
                                  SGLIR_INTS("dims", c->numbers.count - r->count, c->numbers.data + r->count) };
    sglir_set_origin_made(c->rewrite.to, from(c), id, c->rewrite.pass);
    const sglir_id first = sglir_emit(c->rewrite.to, SGLIR_OP_UNPACK, &c->piece[arg], 1, attrs, 2, NULL);
    SGLCORE_TRY(sglir_status(c->rewrite.to));
    for (uint32_t i = 0; i < r->count; i++) c->rewrite.map[sink->out_first + r->first + i] = first + (sglir_id)i;
    return SGL_OK;
}

static sgl_status emit_piece(cutter *c, const range *r)
{
    for (int64_t v = 0; v < from(c)->values.count; v++) c->piece[v] = SGLIR_NONE;
    for (int64_t i = 0; i < c->nodes.count; i++) SGLCORE_TRY(cut_node(c, c->nodes.data[i], r));
    for (int64_t i = 0; i < c->sinks.count; i++) SGLCORE_TRY(unpack_piece(c, c->sinks.data[i], r));
    c->behind = c->piece[sglir_arg(from(c), node_at(c, c->sinks.data[0]), 0)];
    return SGL_OK;
}

/* ---- the walk ----------------------------------------------------------------------------------------------------- */

/* The sinks that are cut as this one is, if it is the last of them. */
static sgl_status list_sinks(cutter *c, sglir_id id, bool *is_last)
{
    const sglir_region *top = &from(c)->regions.data[0];
    *is_last = false;
    c->sinks.count = 0;
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id other = top->nodes.data[n];
        if (!is_sink(c, other) || !cut_alike(c, node_at(c, id), node_at(c, other))) continue;
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->sinks, other));
        *is_last = other == id;
    }
    return SGL_OK;
}

/* Puts pieces in the place of all sinks of the group whose last one this is. */
static sgl_status cut_group(cutter *c, sglir_id id, uint8_t *groups, bool *cut)
{
    bool is_last;
    SGLCORE_TRY(list_sinks(c, id, &is_last));
    range r = next_range(c, 0, 0);
    const sglir_node *sink = node_at(c, id);
    *cut = r.count < sink->out_count && *groups < UINT8_MAX;
    if (!*cut || !is_last) return SGL_OK;
    SGLCORE_TRY(find_cone(c, id, ++*groups, sglir_elements(sglir_type_of(from(c), sglir_arg(from(c), sink, 0)))));
    c->ranges.count = 0;
    for (; r.count > 0; r = next_range(c, r.first + r.count, r.start + r.elements))
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->ranges, r));
    c->behind = SGLIR_NONE;
    for (int64_t i = c->ranges.count; i-- > 0;) SGLCORE_TRY(emit_piece(c, &c->ranges.data[i]));
    c->changed = true;
    return SGL_OK;
}

static sgl_status copy_nodes(cutter *c)
{
    const sglir_region *top = &from(c)->regions.data[0];
    uint8_t groups = 0;
    for (int64_t n = 0; n < top->nodes.count && sglir_status(c->rewrite.to) == SGL_OK; n++) {
        const sglir_id id = top->nodes.data[n];
        bool cut = false;
        if (!c->live[id]) continue;
        if (is_sink(c, id)) SGLCORE_TRY(cut_group(c, id, &groups, &cut));
        if (!cut) sglir_copy_node(&c->rewrite, id);
    }
    return sglir_status(c->rewrite.to);
}

static sgl_status make_room(cutter *c)
{
    const size_t nodes = (size_t)from(c)->nodes.count + 1, values = (size_t)from(c)->values.count + 1;
    c->live = sglcore_arena_alloc(&c->arena, nodes);
    c->cone = sglcore_arena_alloc(&c->arena, nodes);
    c->uses = sglcore_arena_alloc(&c->arena, values * sizeof *c->uses);
    c->updates = sglcore_arena_alloc(&c->arena, values * sizeof *c->updates);
    c->piece = sglcore_arena_alloc(&c->arena, values * sizeof *c->piece);
    if (!c->live || !c->cone || !c->uses || !c->updates || !c->piece) return SGL_OUT_OF_MEMORY;
    sglir_count_uses(from(c), c->uses);
    for (int64_t o = 0; o < from(c)->outputs.count; o++)
        c->updates[from(c)->outputs.data[o].value] += from(c)->outputs.data[o].role == SGLIR_UPDATE;
    c->rewrite.live = c->live;
    return sglir_mark_live(from(c), c->live);
}

sgl_status sglpass_pieces(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    cutter c = { .context = context, .arena = { .env = env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(env, in, "pieces", NULL, &c.rewrite));
    sglir_stick(c.rewrite.to, make_room(&c));
    const bool cuts = sglplan_offloads(context->plan, SGLPLAN_OFFLOAD_MOMENTS) ||
                      sglplan_offloads(context->plan, SGLPLAN_OFFLOAD_PARAMS);
    if (!cuts) /* no update is one of states that go away */
        for (int64_t v = 0; c.updates && v < in->values.count; v++) c.updates[v] = 0;
    if (sglir_status(c.rewrite.to) == SGL_OK) sglir_stick(c.rewrite.to, copy_nodes(&c));
    sgl_status status = sglir_rewrite_end(&c.rewrite, true, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, c.changed);
    sglcore_vec_free(env, &c.sinks);
    sglcore_vec_free(env, &c.nodes);
    sglcore_vec_free(env, &c.ids);
    sglcore_vec_free(env, &c.numbers);
    sglcore_vec_free(env, &c.floats);
    sglcore_vec_free(env, &c.ranges);
    sglcore_arena_free(&c.arena);
    return status;
}
