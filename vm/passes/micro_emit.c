/* micro_emit.c -- the graph with its loops: whole nodes level by level, and between them one SCAN per loop.
 *
 * In: forms, levels and loops of a step. Out: a new graph. In a loop, nodes stand in the order of the old graph, with
 * local extents; what is taken from outside is sliced at index * extent when it is first used; what is gathered goes into
 * its carry as soon as it is made, so that a gradient lives no longer than it must. A loop or branch of the script that
 * runs per micro-batch is made anew around local values. Odd invariant: rewrite.map holds whole values only, `local` those
 * of the loop that is being made; what is the same in each micro-batch stands in `local`, and while a region is made in
 * rewrite.map as well. */
#include <string.h>

#include "passes/micro.h"

typedef struct emitter {
    sglpass_micro *m;
    sglir_rewrite rewrite;
    sglir_graph *to;
    sglcore_arena arena;
    int loop;                       /* that is being made */
    const sglpass_stretch *stretch; /* of its turns */
    sglir_id index;                 /* its parameter */
    sglir_id *local;                /* per value of the old graph, SGLIR_NONE: not yet */
    sglir_id *carry;                /* per value of the old graph that is gathered: the carry, then what is yielded */
    SGLCORE_VEC(sglir_id) gathered; /* values of the old graph, in order */
    SGLCORE_VEC(sglir_id) ids;      /* of one node, or of one loop */
    SGLCORE_VEC(sglir_type) types;
} emitter;

static const sglir_type *type_from(const emitter *e, sglir_id value) { return sglir_type_of(e->m->from, value); }
static int64_t part_of(const emitter *e, sglir_id value, int dim)
{
    return sglpass_turn_part(&e->m->turns, e->stretch, type_from(e, value)->dims[dim]);
}

/* That of the value's maker, or of the loop whose parameter it is. */
static void set_origin(emitter *e, sglir_id value)
{
    const sglir_value *at = sglir_value_at(e->m->from, value);
    sglir_id node = at->node != SGLIR_NONE ? at->node : e->m->from->regions.data[at->region].node;
    sglir_set_origin_made(e->to, e->m->from, node, e->rewrite.pass);
}

/* What the ranks' parts of a micro-batch are parts of: the micro-batch of all of them, which has so many times fewer rows. Where that
 * does not come out even (rows and what ranks split for another reason lie in one dimension), nobody says. */
static bool cut_whole(const emitter *e, int64_t extent, int64_t part, int64_t *whole, int64_t *start)
{
    const sglpass_turns *turns = &e->m->turns;
    const int64_t each = *whole / turns->all; /* elements of a row */
    if (*whole % turns->all != 0 || sglpass_turn_part(turns, e->stretch, extent) != part) return false;
    *whole = each * e->stretch->all_size;
    if (turns->even) {
        const bool comes_out = *start % turns->all == 0;
        *start /= turns->all;
        return comes_out;
    }
    *start = each * e->stretch->all_start;
    return extent == each * turns->unit;
}

static void tell(emitter *e, sglir_id value, sglir_id made)
{
    const sglir_whole *of = sglir_whole_of(e->m->from, value);
    if (of == NULL || e->to->status != SGL_OK) return;
    const sglir_type *from = type_from(e, value), *to = sglir_type_of(e->to, made);
    sglir_whole whole = *of;
    if (from->rank != to->rank) return;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axis != SGLIR_AXIS_MICRO && from->sharded[axis] != to->sharded[axis]) return;
    }
    for (int dim = 0; dim < from->rank; dim++) {
        const bool is_cut =
            !e->m->turns.even && to->sharded[SGLIR_AXIS_MICRO] == dim; /* all of it may be of one turn */
        if (from->dims[dim] == to->dims[dim] && !is_cut) continue;
        if (!cut_whole(e, from->dims[dim], to->dims[dim], &whole.dims[dim], &whole.starts[dim])) return;
    }
    sglir_set_whole(e->to, made, &whole);
}

/* ---- in a loop ------------------------------------------------------------------------------------------------ */

/* Where the micro-batch's part of so many elements begins: index * size, behind the stretches before. */
static sglir_id start_at(emitter *e, int64_t extent)
{
    const sglpass_turns *turns = &e->m->turns;
    const int64_t size = sglpass_turn_part(turns, e->stretch, extent);
    const int64_t before = sglpass_turn_start(turns, e->stretch, extent);
    sglir_id start = size == 1 ? e->index : sglir_mul(e->to, e->index, sglir_constant(e->to, SGL_I64, (double)size));
    return before == 0 ? start : sglir_add(e->to, start, sglir_constant(e->to, SGL_I64, (double)before));
}

static void split_layout(int64_t layout[SGLIR_AXIS_COUNT], int dim)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) layout[axis] = axis == SGLIR_AXIS_MICRO ? dim : -1;
}

static sglir_id slice(emitter *e, sglir_id value, int dim)
{
    set_origin(e, value);
    int64_t size = part_of(e, value, dim), layout[SGLIR_AXIS_COUNT];
    split_layout(layout, dim);
    const sglir_id args[] = { e->rewrite.map[value], start_at(e, type_from(e, value)->dims[dim]) };
    const sglir_named attrs[] = { SGLIR_I("axis", dim), SGLIR_I("size", size),
                                  SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    sglir_id made = sglir_emit(e->to, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 3, NULL);
    tell(e, value, made);
    return made;
}

/* What a sum or a row of parts starts from; `partial`: as terms of one, which owe its sum. */
static sglir_id zeros(emitter *e, sglir_id value, bool partial)
{
    const sglir_type *type = type_from(e, value);
    set_origin(e, value);
    int owed = type->partial | (partial ? 1 << SGLIR_AXIS_MICRO : 0);
    const sglir_named attrs[] = { SGLIR_F("value", 0), SGLIR_I("dtype", type->dtype), SGLIR_I("partial", owed) };
    sglir_id zero = sglir_emit(e->to, SGLIR_OP_CONSTANT, NULL, 0, attrs, 3, NULL);
    if (type->rank == 0) return zero;
    int64_t layout[SGLIR_AXIS_COUNT];
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        layout[axis] = type->sharded[axis];
        split = split || layout[axis] >= 0;
    }
    const sglir_named wide[] = { SGLIR_INTS("dims", type->rank, type->dims),
                                 SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    sglir_id made = sglir_emit(e->to, SGLIR_OP_BROADCAST, &zero, 1, wide, split ? 2 : 1, NULL);
    tell(e, value, made);
    return made;
}

/* The value as the use wants it. */
static sglir_id take(emitter *e, const sglpass_micro_use *use)
{
    const sglpass_micro_value *value = &e->m->values[use->value];
    sglir_id *local = &e->local[use->value];
    bool inside = sglir_value_at(e->m->from, use->value)->region != 0, sliced = value->sliced_in >> e->loop & 1;
    switch ((sglpass_use_mode)use->mode) {
    case SGLPASS_USE_WHOLE: return e->rewrite.map[use->value];
    case SGLPASS_USE_ZEROS: return zeros(e, use->value, true);
    case SGLPASS_USE_SLICE: return slice(e, use->value, use->dim);
    case SGLPASS_USE_LOCAL: break;
    }
    if (*local == SGLIR_NONE && inside) return slice(e, use->value, use->dim); /* each time: regions end */
    if (*local == SGLIR_NONE && sliced)
        *local = value->form == SGLPASS_MICRO_SAME ? e->rewrite.map[use->value] : slice(e, use->value, value->dim);
    return *local;
}

/* Whether the extents of a reshape do not show which dimension is split: its local extent is 1, or 1s stand before it. */
static bool hides_dim(const int64_t *dims, int dim) { return dims[dim] == 1 || (dim > 0 && dims[dim - 1] == 1); }

/* Attributes with the local extent, and with the layout where it does not follow from the arguments. */
static int local_attrs(emitter *e, const sglir_node *node, int dim, bool own, sglir_named named[SGLIR_MOST_ATTRS],
                       int64_t dims[SGL_MAX_RANK], int64_t layout[SGLIR_AXIS_COUNT])
{
    int count = sglir_attrs_named(e->m->from, node, named);
    bool shaped = node->op == SGLIR_OP_RESHAPE || node->op == SGLIR_OP_BROADCAST || node->op == SGLIR_OP_IOTA ||
                  node->op == SGLIR_OP_RANDOM_UNIFORM || node->op == SGLIR_OP_RANDOM_NORMAL;
    if (!shaped || dim < 0) return count;
    for (int i = 0; i < count; i++) {
        if (strcmp(named[i].name, "dims") == 0) {
            memcpy(dims, named[i].ints, (size_t)named[i].i * sizeof *dims);
            dims[dim] = sglpass_turn_part(&e->m->turns, e->stretch, dims[dim]);
            if (node->op == SGLIR_OP_RESHAPE) own = own || hides_dim(dims, dim) || !e->m->turns.even;
            named[i].ints = dims;
        } else if (strcmp(named[i].name, "layout") == 0 && own) {
            split_layout(layout, dim);
            for (int64_t axis = 0; axis < named[i].i; axis++) { /* what it said of ranks still holds */
                if (axis != SGLIR_AXIS_MICRO) layout[axis] = named[i].ints[axis];
            }
            for (int axis = 0; axis < SGLIR_AXIS_COUNT && node->op == SGLIR_OP_RESHAPE && !e->m->turns.even; axis++) {
                if (axis != SGLIR_AXIS_MICRO) layout[axis] = type_from(e, node->out_first)->sharded[axis];
            }
            named[i].i = SGLIR_AXIS_COUNT;
            named[i].ints = layout;
        }
    }
    return count;
}

/* The counter of a split random goes on where the micro-batch before left off; so does an iota along its own axis. */
static void move_counter(emitter *e, const sglir_node *node, sglir_id *args)
{
    if (node->op != SGLIR_OP_RANDOM_UNIFORM && node->op != SGLIR_OP_RANDOM_NORMAL) return;
    args[2] = sglir_add(e->to, args[2], start_at(e, sglir_elements(type_from(e, node->out_first))));
}

static sglir_id move_iota(emitter *e, const sglir_node *node, int dim, sglir_id made)
{
    if (node->op != SGLIR_OP_IOTA || sglir_attr_int(e->m->from, node, "axis") != dim || made == SGLIR_NONE) return made;
    sglir_type type = *sglir_type_of(e->to, made);
    int64_t layout[SGLIR_AXIS_COUNT];
    split_layout(layout, dim);
    sglir_id start = sglir_cast(e->to, start_at(e, type_from(e, node->out_first)->dims[dim]), (sgl_dtype)type.dtype);
    const sglir_named attrs[] = { SGLIR_INTS("dims", type.rank, type.dims),
                                  SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    sglir_id wide = sglir_emit(e->to, SGLIR_OP_BROADCAST, &start, 1, attrs, 2, NULL);
    return sglir_add(e->to, made, wide);
}

/* Whether the result is split along a dimension that the node makes itself. */
static bool is_own_dim(const emitter *e, const sglpass_micro_use *uses, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t form = e->m->values[uses[i].value].form;
        bool along = uses[i].mode != SGLPASS_USE_WHOLE && form != SGLPASS_MICRO_PARTIAL && form != SGLPASS_MICRO_SAME;
        if (along) return false;
    }
    return true;
}

static void check_result(emitter *e, sglir_id node, sglir_id made, int dim)
{
    if (e->to->status != SGL_OK || sglir_type_of(e->to, made)->sharded[SGLIR_AXIS_MICRO] == dim) return;
    char text[SGLIR_TYPE_ROOM];
    sglir_fail_node(e->to, sglir_value_at(e->to, made)->node, SGL_INTERNAL,
                    "micro: %s is not split over micro along dimension %d, as the labels of node %u say",
                    sglir_type_text(sglir_type_of(e->to, made), text, sizeof text), dim, (unsigned)node);
}

static void gather(emitter *e, sglir_id value)
{
    const sglpass_micro_value *v = &e->m->values[value];
    sglir_id target = v->paid_into != SGLIR_NONE ? v->paid_into : value;
    if (e->m->values[target].gathered_in != e->loop || e->to->status != SGL_OK) return;
    set_origin(e, value);
    sglir_id args[] = { e->carry[target], e->local[value], SGLIR_NONE };
    if (v->form == SGLPASS_MICRO_SAME) {
        e->carry[target] = e->local[value];
        return;
    }
    if (v->form == SGLPASS_MICRO_PARTIAL) {
        e->carry[target] = sglir_emit(e->to, SGLIR_OP_ACCUMULATE, args, 2, NULL, 0, NULL);
        tell(e, target, e->carry[target]);
        return;
    }
    const sglir_named axis = SGLIR_I("axis", v->dim);
    args[2] = start_at(e, type_from(e, value)->dims[v->dim]);
    e->carry[value] = sglir_emit(e->to, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &axis, 1, NULL);
    tell(e, value, e->carry[value]);
}

/* The node with local extents; its arguments as `uses` say. */
static sgl_status emit_local(emitter *e, sglir_id id, const sglpass_micro_use *uses)
{
    const sglir_graph *from = e->m->from;
    const sglir_node *node = sglir_node_at(from, id);
    int dim = e->m->values[node->out_first].dim;
    e->ids.count = 0;
    SGLCORE_TRY(sglcore_vec_reserve(e->m->env, &e->ids, (int64_t)node->arg_count + node->out_count));
    for (uint32_t i = 0; i < node->arg_count; i++) e->ids.data[i] = take(e, &uses[i]);
    sglir_id *args = e->ids.data, *outs = args + node->arg_count;
    sglir_named named[SGLIR_MOST_ATTRS];
    int64_t dims[SGL_MAX_RANK], layout[SGLIR_AXIS_COUNT];
    int count = local_attrs(e, node, dim, is_own_dim(e, uses, node->arg_count), named, dims, layout);
    sglir_set_origin_of(e->to, &from->origins.data[node->origin], from);
    if (dim >= 0) move_counter(e, node, args);
    sglir_emit(e->to, (sglir_op)node->op, args, (int)node->arg_count, named, count, outs);
    SGLCORE_TRY(sglir_status(e->to));
    e->to->nodes.data[e->to->nodes.count - 1].epoch = node->epoch;
    if (dim >= 0) outs[0] = move_iota(e, node, dim, outs[0]);
    for (uint32_t r = 0; r < node->out_count; r++) {
        sglir_id value = node->out_first + r;
        e->local[value] = outs[r];
        tell(e, value, outs[r]);
        check_result(e, id, outs[r], e->m->values[value].dim);
    }
    for (uint32_t r = 0; r < node->out_count; r++) gather(e, node->out_first + r);
    return sglir_status(e->to);
}

static sgl_status emit_remade(emitter *e, sglir_id id)
{
    const sglir_node *node = sglir_node_at(e->m->from, id);
    sglpass_micro_use modes[16];
    sglpass_micro_remake(e->m, node, e->m->values[node->out_first].dim, modes);
    return emit_local(e, id, modes);
}

static sgl_status emit_control(emitter *e, sglir_id id);

static sgl_status emit_looped(emitter *e, sglir_id id)
{
    if (sglir_node_at(e->m->from, id)->region_count > 0) return emit_control(e, id);
    return emit_local(e, id, sglpass_micro_uses(e->m, id));
}

static sgl_status emit_body(emitter *e)
{
    const sglpass_micro *m = e->m;
    const sglir_region *top = &m->from->regions.data[0];
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        const sglpass_micro_node *at = &m->nodes[id];
        if (!at->live || at->dissolved || !(at->loops >> e->loop & 1)) continue;
        SGLCORE_TRY(at->looped ? emit_looped(e, id) : emit_remade(e, id));
    }
    return SGL_OK;
}

/* ---- loops and branches of the script, in a loop ---------------------------------------------------------------- */

static sgl_status emit_inside(emitter *e, sglir_id region)
{
    const sglpass_micro *m = e->m;
    const sglir_region *from = &m->from->regions.data[region];
    for (int64_t n = 0; n < from->nodes.count; n++) {
        sglir_id id = from->nodes.data[n];
        const sglir_node *node = sglir_node_at(m->from, id);
        bool whole = node->region_count > 0;
        if (m->nodes[id].looped) {
            SGLCORE_TRY(emit_looped(e, id));
            continue;
        }
        for (uint32_t r = 0; r < node->out_count; r++)
            whole = whole || m->values[node->out_first + r].whole_at != SGLPASS_NO_LEVEL;
        if (whole) sglir_copy_node(&e->rewrite, id);
        if (m->values[node->out_first].local_in) SGLCORE_TRY(emit_remade(e, id));
    }
    return sglir_status(e->to);
}

/* What is made anew: in its place when it is whole, else local. */
static void put_made(emitter *e, sglir_id value, sglir_id made)
{
    tell(e, value, made);
    if (e->m->values[value].form == SGLPASS_MICRO_WHOLE)
        e->rewrite.map[value] = made;
    else
        e->local[value] = made;
}

/* Region r of the node, anew as region `made`, its carries as the local `args`. */
static sgl_status emit_region(emitter *e, const sglir_node *node, uint32_t r, sglir_id made, const sglir_id *args)
{
    const sglir_region *region = &e->m->from->regions.data[node->region_first + r];
    int64_t count = region->parameters.count, most = count > region->results.count ? count : region->results.count;
    sglir_id *ids = sglcore_arena_alloc(&e->arena, (size_t)(most + 1) * sizeof *ids);
    sglir_type *types = sglcore_arena_alloc(&e->arena, (size_t)(count + 1) * sizeof *types);
    if (ids == NULL || types == NULL) return SGL_OUT_OF_MEMORY;
    types[0] = sglir_type_make(SGL_I64, 0, NULL);
    for (int64_t i = 1; i < count; i++) types[i] = *sglir_type_of(e->to, args[i - 1]);
    sglir_region_begin_at(e->to, made, types, (int)count, ids);
    SGLCORE_TRY(sglir_status(e->to));
    for (int64_t i = 0; i < count; i++) put_made(e, region->parameters.data[i], ids[i]);
    SGLCORE_TRY(emit_inside(e, node->region_first + r));
    for (int64_t i = 0; i < region->results.count; i++) {
        const sglpass_micro_use use = sglpass_micro_yield(e->m, node, r, i);
        ids[i] = take(e, &use);
    }
    sglir_region_end(e->to, ids, (int)region->results.count);
    return sglir_status(e->to);
}

/* The node around its regions, made anew. */
static sgl_status emit_around(emitter *e, sglir_id id, const sglir_id *args, sglir_id *outs)
{
    const sglir_graph *from = e->m->from;
    const sglir_node *node = sglir_node_at(from, id);
    sglir_id regions[2] = { sglir_region_take(e->to, (int)node->region_count) };
    regions[1] = regions[0] + 1;
    SGLCORE_TRY(sglir_status(e->to));
    for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(emit_region(e, node, r, regions[r], args));
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(from, node, named);
    sglir_set_origin_of(e->to, &from->origins.data[node->origin], from);
    sglir_emit_regions(e->to, (sglir_op)node->op, args, (int)node->arg_count, named, count, regions,
                       (int)node->region_count, outs);
    SGLCORE_TRY(sglir_status(e->to));
    e->to->nodes.data[e->to->nodes.count - 1].epoch = node->epoch;
    return SGL_OK;
}

static sgl_status emit_control(emitter *e, sglir_id id)
{
    const sglir_node *node = sglir_node_at(e->m->from, id);
    const sglpass_micro_use *uses = sglpass_micro_uses(e->m, id);
    uint32_t use_count = e->m->nodes[id].use_count;
    sglir_id *args = sglcore_arena_alloc(&e->arena, ((size_t)use_count + 1) * sizeof *args);
    sglir_id *known = sglcore_arena_alloc(&e->arena, ((size_t)use_count + 1) * sizeof *known);
    sglir_id *outs = sglcore_arena_alloc(&e->arena, ((size_t)node->out_count + 1) * sizeof *outs);
    if (args == NULL || known == NULL || outs == NULL) return SGL_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < use_count; i++)
        args[i] = take(e, &uses[i]); /* all that is local, before a region begins */
    SGLCORE_TRY(sglir_status(e->to));
    for (uint32_t i = 0; i < use_count; i++) {
        known[i] = e->rewrite.map[uses[i].value];
        if (e->m->values[uses[i].value].form == SGLPASS_MICRO_SAME && uses[i].mode == SGLPASS_USE_LOCAL)
            e->rewrite.map[uses[i].value] = args[i];
    }
    SGLCORE_TRY(emit_around(e, id, args, outs));
    for (uint32_t i = use_count; i-- > 0;) e->rewrite.map[uses[i].value] = known[i];
    for (uint32_t r = 0; r < node->out_count; r++) {
        const sglpass_micro_value *value = &e->m->values[node->out_first + r];
        put_made(e, node->out_first + r, outs[r]);
        check_result(e, id, outs[r], value->form == SGLPASS_MICRO_SPLIT ? value->dim : -1);
    }
    for (uint32_t r = 0; r < node->out_count; r++) gather(e, node->out_first + r);
    return sglir_status(e->to);
}

/* ---- loops --------------------------------------------------------------------------------------------------- */

static sgl_status begin_loop(emitter *e, sglir_id *region)
{
    sglcore_env *env = e->m->env;
    e->types.count = e->gathered.count = 0;
    SGLCORE_TRY(sglcore_vec_push(env, &e->types, sglir_type_make(SGL_I64, 0, NULL)));
    for (int64_t v = 0; v < e->m->from->values.count; v++) {
        e->local[v] = SGLIR_NONE;
        if (e->m->values[v].gathered_in != e->loop) continue;
        SGLCORE_TRY(sglcore_vec_push(env, &e->gathered, (sglir_id)v));
        SGLCORE_TRY(sglcore_vec_push(env, &e->types, *type_from(e, (sglir_id)v)));
        if (e->stretch->first == 0) e->rewrite.map[v] = zeros(e, (sglir_id)v, false);
    }
    SGLCORE_TRY(sglir_status(e->to));
    SGLCORE_TRY(sglcore_vec_reserve(env, &e->ids, e->types.count));
    *region = sglir_region_begin(e->to, e->types.data, (int)e->types.count, e->ids.data);
    e->index = e->ids.data[0];
    SGLCORE_TRY(sglir_status(e->to));
    for (int64_t i = 0; i < e->gathered.count; i++) {
        e->carry[e->gathered.data[i]] = e->ids.data[i + 1];
        tell(e, e->gathered.data[i], e->ids.data[i + 1]);
    }
    return sglir_status(e->to);
}

/* The turns of one stretch; carries go on from the stretch before. */
static sgl_status emit_stretch(emitter *e)
{
    sglir_id region;
    SGLCORE_TRY(begin_loop(e, &region));
    int count = (int)e->gathered.count;
    SGLCORE_TRY(emit_body(e));
    e->ids.count = 0;
    SGLCORE_TRY(sglcore_vec_reserve(e->m->env, &e->ids, count + 1));
    for (int i = 0; i < count; i++) e->ids.data[i] = e->carry[e->gathered.data[i]];
    sglir_region_end(e->to, e->ids.data, count);
    for (int i = 0; i < count; i++) e->ids.data[i] = e->rewrite.map[e->gathered.data[i]];
    const sglir_named steps = SGLIR_I("steps", e->stretch->turns);
    if (count > 0) set_origin(e, e->gathered.data[0]);
    sglir_emit_regions(e->to, SGLIR_OP_SCAN, e->ids.data, count, &steps, 1, &region, 1, e->ids.data);
    SGLCORE_TRY(sglir_status(e->to));
    for (int i = 0; i < count; i++) {
        e->rewrite.map[e->gathered.data[i]] = e->ids.data[i];
        tell(e, e->gathered.data[i], e->ids.data[i]);
    }
    return sglir_status(e->to);
}

static sgl_status emit_loop(emitter *e)
{
    for (int i = 0; i < e->m->turns.count; i++) {
        e->stretch = &e->m->turns.at[i];
        SGLCORE_TRY(emit_stretch(e));
    }
    return SGL_OK;
}

/* ---- the call ------------------------------------------------------------------------------------------------- */

static sgl_status emit_level(emitter *e, int32_t level)
{
    const sglpass_micro *m = e->m;
    const sglir_region *top = &m->from->regions.data[0];
    if (level % 2 == 1) {
        e->loop = level / 2;
        return emit_loop(e);
    }
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        const sglpass_micro_node *at = &m->nodes[id];
        bool is_input = sglir_node_at(m->from, id)->op == SGLIR_OP_INPUT;
        if (!at->live || at->looped || (is_input ? level != 0 : at->level != level)) continue;
        sglir_copy_node(&e->rewrite, id);
        SGLCORE_TRY(sglir_status(e->to));
    }
    return SGL_OK;
}

sgl_status sglpass_micro_emit(sglpass_micro *m, sglir_graph **out)
{
    emitter e = { .m = m, .arena = { .env = m->env } };
    SGLCORE_TRY(sglir_rewrite_begin(m->env, m->from, "micro", NULL, &e.rewrite));
    e.to = e.rewrite.to;
    size_t bytes = (size_t)m->from->values.count * sizeof *e.local;
    e.local = sglcore_arena_alloc(&e.arena, bytes);
    e.carry = sglcore_arena_alloc(&e.arena, bytes);
    sgl_status status = e.local == NULL || e.carry == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
    for (int32_t level = 0; level <= m->last_level && status == SGL_OK; level++) status = emit_level(&e, level);
    if (status != SGL_OK && e.to->status == SGL_OK) e.to->status = status;
    status = sglir_rewrite_end(&e.rewrite, true, out);
    sglcore_vec_free(m->env, &e.gathered);
    sglcore_vec_free(m->env, &e.ids);
    sglcore_vec_free(m->env, &e.types);
    sglcore_arena_free(&e.arena);
    return status;
}
