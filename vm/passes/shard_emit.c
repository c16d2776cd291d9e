/* shard_emit.c -- a node of the old graph with the extents of one rank.
 *
 * In: how it runs. Out: the node, its results put down in their forms. Attributes that say extents say local ones; what
 * counts elements (iota, random numbers) begins where this rank's part begins. Odd invariant: the types that inference
 * finds must say what was chosen; where they do not, that is an error of this pass, found here. */
#include <string.h>

#include "core/broken.h"
#include "passes/shard.h"
#include "passes/shard_apart.h"

typedef struct local {
    sglpass_sharder *s;
    const sglir_node *node;
    const sglpass_way *run;
    int64_t dims[SGL_MAX_RANK], layout[SGLIR_AXIS_COUNT]; /* of result 0 */
} local;

static sglpass_form *result_form(const local *l, uint32_t r)
{
    return &l->s->forms.data[l->run->form_first + l->node->arg_count + r];
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static bool is_shaped(const sglir_node *node)
{
    return node->op == SGLIR_OP_RESHAPE || node->op == SGLIR_OP_BROADCAST || node->op == SGLIR_OP_IOTA ||
           node->op == SGLIR_OP_RANDOM_UNIFORM || node->op == SGLIR_OP_RANDOM_NORMAL || node->op == SGLIR_OP_INPUT;
}

static int local_attrs(local *l, sglir_named named[SGLIR_MOST_ATTRS])
{
    sglpass_sharder *s = l->s;
    int count = sglir_attrs_named(s->from, l->node, named);
    const sglir_type *type = sglir_type_of(s->from, l->node->out_first);
    const sglpass_form *form = result_form(l, 0);
    if (!is_shaped(l->node)) return count;
    bool split = false;
    for (int dim = 0; dim < type->rank; dim++)
        l->dims[dim] = sglpass_local(s, type->dims[dim], form->unit[dim], sglpass_axes_of(form, dim));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        l->layout[axis] = form->at[axis] >= 0 ? form->at[axis] : -1;
        split = split || form->at[axis] >= 0;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(named[i].name, "dims") == 0) {
            named[i].ints = l->dims;
        } else if (strcmp(named[i].name, "layout") == 0 && split) {
            named[i].i = SGLIR_AXIS_COUNT;
            named[i].ints = l->layout;
        }
    }
    return count;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

sglir_id sglpass_begin(sglpass_sharder *s, const sglpass_form *form, int dim, int64_t extent)
{
    int64_t unit = form->unit[dim];
    sglir_id start = SGLIR_NONE;
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) {
        int axis = sglplan_mesh_order[i];
        if (form->at[axis] != dim) continue;
        sglir_id next = sglpass_start(s, axis, extent, unit);
        start = start == SGLIR_NONE ? next : sglir_add(s->to, start, next);
        extent = sglplan_part_of(extent, unit, sglpass_extent(s, axis), s->at.at[axis]).size;
    }
    return start;
}

static sglir_id begin(const local *l, int dim)
{
    int64_t extent = sglir_type_of(l->s->from, l->node->out_first)->dims[dim];
    return sglpass_begin(l->s, result_form(l, 0), dim, extent);
}

static void move_random(const local *l, sglir_id *args)
{
    sglpass_sharder *s = l->s;
    if (l->node->op != SGLIR_OP_RANDOM_UNIFORM && l->node->op != SGLIR_OP_RANDOM_NORMAL) return;
    if (sglpass_axes_of(result_form(l, 0), 0) == 0 || sglcore_is_broken(SGLCORE_BREAK_MASK_SLICE)) return;
    const sglir_type *type = sglir_type_of(s->from, l->node->out_first);
    int64_t row = 1;
    for (int dim = 1; dim < type->rank; dim++) row *= type->dims[dim];
    args[2] = sglir_add(s->to, args[2], sglir_mul(s->to, begin(l, 0), sglir_constant(s->to, SGL_I64, (double)row)));
}

static sglir_id move_iota(const local *l, sglir_id made)
{
    sglpass_sharder *s = l->s;
    if (l->node->op != SGLIR_OP_IOTA || s->to->status != SGL_OK) return made;
    int axis = (int)sglir_attr_int(s->from, l->node, "axis");
    if (sglpass_axes_of(result_form(l, 0), axis) == 0) return made;
    const sglir_type type = *sglir_type_of(s->to, made);
    sglir_id start = sglir_cast(s->to, begin(l, axis), (sgl_dtype)type.dtype);
    return sglir_add(s->to, made, sglir_broadcast_like(s->to, start, made));
}

/* ---- what parts are parts of ------------------------------------------------------------------------------------- */

/* Whose part it is. */
static int64_t holder_of(const sglpass_sharder *s, const sglpass_form *form)
{
    sglplan_coordinate at = s->at;
    if (form->by == 0) return s->context->rank;
    const int64_t places = sglpass_extent(s, form->ring);
    at.at[form->ring] = ((at.at[form->ring] - form->by) % places + places) % places;
    return sglplan_mesh_rank(s->context->plan, &at);
}

void sglpass_tell(sglpass_sharder *s, sglir_id made, const int64_t *dims, const sglpass_form *form,
                  const int64_t *order)
{
    sglir_whole whole = { 0 };
    bool split = false;
    if (s->to->status != SGL_OK) return;
    for (int i = 0; i < sglir_type_of(s->to, made)->rank; i++) {
        int dim = order ? (int)order[i] : i;
        sglplan_axes axes = sglpass_axes_of(form, dim);
        whole.dims[i] = dims[dim];
        if (axes == 0) continue;
        split = true;
        whole.starts[i] =
            sglplan_part_along(s->context->plan, axes, holder_of(s, form), dims[dim], form->unit[dim]).offset;
    }
    if (split) sglir_set_whole(s->to, made, &whole);
}

/* ---- the node ---------------------------------------------------------------------------------------------------- */

static sgl_status check_result(const local *l, sglir_id node, uint32_t r, sglir_id made)
{
    const sglpass_form *form = result_form(l, r);
    const sglir_type *type = sglir_type_of(l->s->to, made);
    bool same = true;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int is = (type->partial >> axis & 1) ? SGLPASS_PARTIAL : type->sharded[axis];
        same = same && is == form->at[axis];
    }
    if (same) return SGL_OK;
    char text[SGLIR_TYPE_ROOM];
    return sglir_fail_node(l->s->to, sglir_value_at(l->s->to, made)->node, SGL_INTERNAL,
                           "shard: result %u of node %u came out as %s, which was not chosen", (unsigned)r,
                           (unsigned)node, sglir_type_text(type, text, sizeof text));
}

static sgl_status emit_with(local *l, sglir_id id, int64_t first)
{
    sglpass_sharder *s = l->s;
    sglir_id *args = s->ids.data + first, *outs = args + l->node->arg_count;
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = local_attrs(l, named);
    sglir_set_origin_of(s->to, &s->from->origins.data[l->node->origin], s->from);
    move_random(l, args);
    const int64_t nodes = s->to->nodes.count;
    if (l->run->ring != 0) {
        SGLCORE_TRY(sglpass_emit_ring(s, l->run, first));
        outs = s->ids.data + first + l->node->arg_count;
    } else {
        sglpass_move_beyond(s, l->run, args);
        if (!sglpass_emit_extreme(s, l->run, args[0], outs))
            sglir_emit(s->to, (sglir_op)l->node->op, args, (int)l->node->arg_count, named, count, outs);
    }
    SGLCORE_TRY(sglir_status(s->to));
    sglir_keep_apart(s->to, nodes, l->node);
    outs[0] = move_iota(l, outs[0]);
    SGLCORE_TRY(sglir_status(s->to));
    for (uint32_t r = 0; r < l->node->out_count; r++) {
        SGLCORE_TRY(check_result(l, id, r, outs[r]));
        sglpass_put(s, l->node->out_first + r, outs[r], result_form(l, r));
    }
    return sglir_status(s->to);
}

/* What attention made in parts of the heads, or owes sums of, is there in parts of the sequence, too, which later nodes
 * see first: they would otherwise multiply parts of the heads, and owe sums as large as the whole, or pay all of it on
 * every rank. */
static void turn_back(local *l)
{
    sglpass_sharder *s = l->s;
    for (uint32_t r = 0; r < l->node->out_count; r++) {
        const sglir_id value = l->node->out_first + r;
        if (sglir_type_of(s->from, value)->rank <= SGLPASS_HEADS + 1)
            continue; /* sums of weights: the backward's alone */
        sglpass_form back = *result_form(l, r);
        bool turns = l->run->by_heads != 0;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
            const bool owes = (l->run->owed & SGLPLAN_AXIS(axis)) && back.at[axis] == SGLPASS_PARTIAL;
            turns = turns || owes;
            if (owes || (l->run->by_heads & SGLPLAN_AXIS(axis))) back.at[axis] = SGLPASS_SEQUENCE;
        }
        if (!turns) continue;
        const uint32_t made = s->latest[value];
        if (sglpass_take(s, value, &back) == SGLIR_NONE) return;
        sglpass_made *first = &s->made.data[made - 1], *last = &s->made.data[s->latest[value] - 1], kept = *first;
        first->made = last->made;
        first->form = last->form;
        last->made = kept.made;
        last->form = kept.form;
    }
}

sgl_status sglpass_emit(sglpass_sharder *s, const sglpass_way *run)
{
    local l = { .s = s, .node = sglir_node_at(s->from, run->node), .run = run };
    int64_t first = s->ids.count, room = (int64_t)l.node->arg_count + l.node->out_count;
    sgl_status status = sglcore_vec_reserve(s->env, &s->ids, room);
    if (status != SGL_OK) return sglir_stick(s->to, status);
    s->ids.count = first + room;
    for (uint32_t i = 0; i < l.node->arg_count; i++) {
        const sglpass_form form = s->forms.data[run->form_first + i];
        sglir_id taken = sglpass_take(s, sglir_arg(s->from, l.node, i), &form);
        s->ids.data[first + i] = taken;
    }
    status = sglir_status(s->to);
    if (status == SGL_OK) status = emit_with(&l, run->node, first);
    if (status == SGL_OK && (run->by_heads | run->owed) != 0) {
        turn_back(&l);
        status = sglir_status(s->to);
    }
    s->ids.count = first;
    return status;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* As the plan's layouts say. Rows of a feed are samples: the data axes hold different ones; what follows within a
 * sample is context: cp holds parts of it. */
static sglpass_form form_of_input(const sglpass_sharder *s, const sglir_node *node)
{
    sglpass_form form = sglpass_form_whole();
    bool is_feed = sglir_attr_int(s->from, node, "role") == SGL_FEED;
    uint64_t named;
    if (sglpass_split_input(s->context->plan, s->from, node, form.at, &named)) return form;
    if (!is_feed || sglir_type_of(s->from, node->out_first)->rank == 0) return form;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((SGLPLAN_DATA_AXES & SGLPLAN_AXIS(axis)) && sglpass_extent(s, axis) > 1) form.at[axis] = 0;
        bool along = axis == SGLIR_AXIS_CP && sglir_type_of(s->from, node->out_first)->rank > 1;
        if (along && sglpass_extent(s, axis) > 1) form.at[axis] = 1;
    }
    return form;
}

sgl_status sglpass_emit_input(sglpass_sharder *s, sglir_id id)
{
    sglpass_way run = { .node = id, .form_first = (uint32_t)s->forms.count };
    SGLCORE_TRY(sglcore_vec_push(s->env, &s->forms, form_of_input(s, sglir_node_at(s->from, id))));
    sgl_status status = sglpass_emit(s, &run);
    s->forms.count = run.form_first;
    return status;
}
