/* shard_turn.c -- how a value is brought from form to form: slices of what is whole cost no exchange, sums are paid by
 * all_reduce or handed out by reduce_scatter, parts are put together by all_gather, or cut along another dimension by
 * all_to_all.
 *
 * In: an old value, the form it is wanted in. Out: a value of the new graph. What generators and elementwise ops make
 * whole is made anew in parts rather than cut. Exchanges act along dimension 0, where parts lie one behind another in
 * memory, so a value that is split along another one is transposed before and after. Odd invariant: a dimension that is
 * split over several axes is cut by the slowest first; a form that adds a slower one is reached by way of the whole. */
#include <string.h>

#include "core/broken.h"
#include "ir/infer.h"
#include "passes/shard.h"

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A value on its way, and the form it has now. */
typedef struct turning {
    sglpass_sharder *s;
    sglir_id value; /* old */
    sglir_id now;   /* new */
    sglpass_form form;
} turning;

static int64_t whole_extent(const turning *t, int dim) { return sglir_type_of(t->s->from, t->value)->dims[dim]; }

/* Of a dimension, over the axes that come before `axis` alone. */
static sglplan_axes slower(sglplan_axes axes, int axis)
{
    sglplan_axes before = 0;
    for (int i = 0; i < SGLPLAN_MESH_AXES && sglplan_mesh_order[i] != axis; i++)
        before |= axes & SGLPLAN_AXIS(sglplan_mesh_order[i]);
    return before;
}

static sglir_id number(sglpass_sharder *s, int64_t value) { return sglir_constant(s->to, SGL_I64, (double)value); }

sglir_id sglpass_start_at(sglpass_sharder *s, sglir_id place, int axis, int64_t extent, int64_t unit)
{
    int64_t units = extent / unit, parts = sglpass_extent(s, axis), larger = units % parts;
    sglir_id start = sglir_mul(s->to, place, number(s, units / parts * unit));
    if (larger == 0) return start;
    sglir_id more = sglir_binary(s->to, SGLIR_OP_MINIMUM, place, number(s, larger));
    return sglir_add(s->to, start, sglir_mul(s->to, more, number(s, unit)));
}

sglir_id sglpass_start(sglpass_sharder *s, int axis, int64_t extent, int64_t unit)
{
    return sglpass_start_at(s, s->coordinate[axis], axis, extent, unit);
}

/* Dimension i of what has dimension `front` brought to the front. */
static int fronted(int front, int i) { return i == 0 ? front : i <= front ? i - 1 : i; }

static void tell(turning *t, int front)
{
    const sglir_type *type = sglir_type_of(t->s->from, t->value);
    int64_t order[SGL_MAX_RANK];
    for (int i = 0; i < type->rank; i++) order[i] = fronted(front, i);
    sglpass_tell(t->s, t->now, type->dims, &t->form, order);
}

static void cut(turning *t, int axis, int dim)
{
    sglpass_sharder *s = t->s;
    int64_t unit = t->form.unit[dim], layout[SGLIR_AXIS_COUNT];
    int64_t extent = sglpass_local(s, whole_extent(t, dim), unit, slower(sglpass_axes_of(&t->form, dim), axis));
    int64_t size = sglplan_part_of(extent, unit, sglpass_extent(s, axis), s->at.at[axis]).size;
    for (int i = 0; i < SGLIR_AXIS_COUNT; i++) layout[i] = i == axis ? dim : -1;
    const sglir_id args[] = { t->now, sglpass_start(s, axis, extent, unit) };
    const sglir_named attrs[] = { SGLIR_I("axis", dim), SGLIR_I("size", size),
                                  SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    t->now = sglir_emit(s->to, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 3, NULL);
    t->form.at[axis] = (int8_t)dim;
    tell(t, 0);
}

/* The dimension to the front, or from there back to its place. */
static void bring(turning *t, int dim, bool back)
{
    int64_t order[SGL_MAX_RANK];
    int rank = sglir_type_of(t->s->from, t->value)->rank;
    if (dim == 0) return;
    for (int i = 0; i < rank; i++) {
        int from_place = i == dim ? 0 : i < dim ? i + 1 : i;
        order[i] = back ? from_place : fronted(dim, i);
    }
    t->now = sglir_transpose(t->s->to, t->now, order);
    tell(t, back ? 0 : dim);
}

static void gather(turning *t, sglplan_axes axes, int dim)
{
    sglpass_sharder *s = t->s;
    sglplan_axes kept = sglpass_axes_of(&t->form, dim) & ~axes;
    const sglir_named attrs[] = { SGLIR_I("axes", axes),
                                  SGLIR_I("extent", sglpass_local(s, whole_extent(t, dim), t->form.unit[dim], kept)),
                                  SGLIR_I("unit", t->form.unit[dim]) };
    bring(t, dim, false);
    t->now = sglir_emit(s->to, SGLIR_OP_ALL_GATHER, &t->now, 1, attrs, 3, NULL);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axes & SGLPLAN_AXIS(axis)) t->form.at[axis] = SGLPASS_WHOLE;
    }
    tell(t, dim);
    bring(t, dim, true);
}

static void pay(turning *t, sglplan_axes axes)
{
    const sglir_named attr = SGLIR_I("axes", axes);
    if (axes == 0) return;
    if (!sglcore_is_broken(SGLCORE_BREAK_SUM_PAID))
        t->now = sglir_emit(t->s->to, SGLIR_OP_ALL_REDUCE, &t->now, 1, &attr, 1, NULL);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axes & SGLPLAN_AXIS(axis)) t->form.at[axis] = SGLPASS_WHOLE;
    }
    tell(t, 0);
}

/* Sums over these axes, each rank its part along dim, which is split over slower axes only. */
static void hand_out(turning *t, sglplan_axes axes, int dim)
{
    sglpass_sharder *s = t->s;
    sglplan_axes all = sglpass_axes_of(&t->form, dim) | axes;
    const sglir_named attrs[] = { SGLIR_I("axes", axes),
                                  SGLIR_I("own", sglpass_local(s, whole_extent(t, dim), t->form.unit[dim], all)),
                                  SGLIR_I("unit", t->form.unit[dim]) };
    bring(t, dim, false);
    t->now = sglir_emit(s->to, SGLIR_OP_REDUCE_SCATTER, &t->now, 1, attrs, 3, NULL);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axes & SGLPLAN_AXIS(axis)) t->form.at[axis] = (int8_t)dim;
    }
    tell(t, dim);
    bring(t, dim, true);
}

/* Dimension `dim` of now becomes `lead` and the rest of it, or (lead 0) those two become one again. */
static void lead_apart(turning *t, int dim, int64_t lead)
{
    sglir_graph *to = t->s->to;
    if (to->status != SGL_OK) return;
    const sglir_type type = *sglir_type_of(to, t->now);
    int64_t dims[SGL_MAX_RANK];
    int8_t map[SGL_MAX_RANK];
    int rank = type.rank + (lead ? 1 : -1);
    for (int i = 0; i < type.rank; i++) map[i] = (int8_t)(i <= dim ? i : lead ? i + 1 : i - 1);
    for (int i = 0; i < rank; i++) dims[i] = type.dims[i <= dim ? i : lead ? i - 1 : i + 1];
    if (lead) {
        dims[dim] = lead;
        dims[dim + 1] = type.dims[dim] / lead;
    } else {
        dims[dim] = type.dims[dim] * type.dims[dim + 1];
    }
    t->now = sglir_reshape_mapped(to, t->now, rank, dims, map);
}

/* Dimensions first and second to the front, or from there back to their places. */
static void bring_two(turning *t, int first, int second, bool back)
{
    int64_t order[SGL_MAX_RANK] = { first, second }, inverse[SGL_MAX_RANK];
    int rank = sglir_type_of(t->s->from, t->value)->rank + 1;
    for (int i = 0, at = 2; i < rank; i++) {
        if (i != first && i != second) order[at++] = i;
    }
    for (int i = 0; i < rank; i++) inverse[order[i]] = i;
    t->now = sglir_transpose(t->s->to, t->now, back ? inverse : order);
}

/* Of the two dimensions the one with even parts is taken apart into the group's places and what is of each. */
static void move_parts(turning *t, const sglpass_move *m, const sglpass_form *want)
{
    sglpass_sharder *s = t->s;
    int even = m->even_to ? m->to : m->from, other = m->even_to ? m->from : m->to;
    int64_t ranks = sglplan_group_size(s->context->plan, m->axes);
    sglpass_apply_move(&t->form, m, want);
    int64_t extent = sglpass_local(s, whole_extent(t, other), t->form.unit[other], sglpass_axes_of(&t->form, other));
    const sglir_named attrs[] = { SGLIR_I("axes", m->axes), SGLIR_I("to", m->even_to ? 0 : 1), SGLIR_I("ranks", ranks),
                                  SGLIR_I("extent", extent), SGLIR_I("unit", t->form.unit[other]) };
    lead_apart(t, even, m->even_to ? ranks : 1);
    bring_two(t, even, other < even ? other : other + 1, false);
    t->now = sglir_emit(s->to, SGLIR_OP_ALL_TO_ALL, &t->now, 1, attrs, 5, NULL);
    bring_two(t, even, other < even ? other : other + 1, true);
    lead_apart(t, even, 0);
    tell(t, 0);
}

/* ---- from form to form ------------------------------------------------------------------------------------------- */

/* Axes over which dim is split and must be no more, or that stand in the way of a slower one that is to come. */
static sglplan_axes in_the_way(const turning *t, const sglpass_form *want, int dim)
{
    sglplan_axes have = sglpass_axes_of(&t->form, dim), wanted = sglpass_axes_of(want, dim), kept = have & wanted;
    if (kept && !sglpass_cut_alike(t->s, t->value, dim, &t->form, want, kept)) return have;
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) {
        sglplan_axes axis = SGLPLAN_AXIS(sglplan_mesh_order[i]);
        if ((have & axis) == (wanted & axis)) continue;
        sglplan_axes rest = 0;
        for (int k = i; k < SGLPLAN_MESH_AXES; k++) rest |= have & SGLPLAN_AXIS(sglplan_mesh_order[k]);
        return rest;
    }
    return 0;
}

static void gather_some(turning *t, const sglpass_form *want)
{
    for (int dim = 0; dim < sglir_type_of(t->s->from, t->value)->rank; dim++) {
        sglplan_axes axes = in_the_way(t, want, dim);
        if (axes) gather(t, axes, dim);
    }
}

static void cut_some(turning *t, const sglpass_form *want, bool with_gathers)
{
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) {
        int axis = sglplan_mesh_order[i], dim = want->at[axis];
        if (dim < 0 || t->form.at[axis] != SGLPASS_WHOLE || (!with_gathers && in_the_way(t, want, dim))) continue;
        if (sglpass_axes_of(&t->form, dim) == 0) t->form.unit[dim] = want->unit[dim];
        cut(t, axis, dim);
    }
}

/* Of the axes over which sums are owed: those that are to be split along a dimension where all that is split is slower. */
static void hand_out_some(turning *t, const sglpass_form *want)
{
    for (int dim = 0; dim < sglir_type_of(t->s->from, t->value)->rank; dim++) {
        sglplan_axes owed = sglpass_axes_of(&t->form, SGLPASS_PARTIAL) & sglpass_axes_of(want, dim);
        sglplan_axes have = sglpass_axes_of(&t->form, dim), first = 0;
        for (int i = SGLPLAN_MESH_AXES; i-- > 0;) {
            if (owed & SGLPLAN_AXIS(sglplan_mesh_order[i])) first = SGLPLAN_AXIS(sglplan_mesh_order[i]);
        }
        bool in_order = true;
        for (int i = SGLPLAN_MESH_AXES; i-- > 0 && SGLPLAN_AXIS(sglplan_mesh_order[i]) != first;)
            in_order = in_order && !(have & SGLPLAN_AXIS(sglplan_mesh_order[i]));
        if (!owed || !in_order || in_the_way(t, want, dim)) continue;
        if (have == 0) t->form.unit[dim] = want->unit[dim];
        hand_out(t, owed, dim);
    }
}

/* 1 as a term of every rank: for tests that break the sum. */
static sglir_id one_of_each(sglir_graph *to, int axis, sgl_dtype dtype)
{
    const int64_t own = 1;
    int64_t layout[SGLIR_AXIS_COUNT];
    for (int i = 0; i < SGLIR_AXIS_COUNT; i++) layout[i] = i == axis ? 0 : -1;
    const sglir_named attrs[] = { SGLIR_INTS("dims", 1, &own), SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    const sglir_id one = sglir_constant(to, dtype, 1);
    const sglir_id each = sglir_emit(to, SGLIR_OP_BROADCAST, &one, 1, attrs, 2, NULL);
    return sglir_reduce(to, SGLIR_OP_REDUCE_SUM, each, (int64_t[]){ 0 }, 1, false);
}

/* What is whole and wanted as terms of a sum: all of it on the first rank, nothing on the others. */
static void share(turning *t, int axis)
{
    sglir_graph *to = t->s->to;
    const sglir_type type = *sglir_type_of(to, t->now);
    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("dtype", type.dtype) };
    sglir_id first = sglir_emit(to, SGLIR_OP_SHARE, NULL, 0, attrs, 2, NULL);
    if (sglcore_is_broken(SGLCORE_BREAK_SUM_ONCE)) first = one_of_each(to, axis, (sgl_dtype)type.dtype);
    t->now = sglir_mul(to, t->now, sglir_broadcast_like(to, first, t->now));
    t->form.at[axis] = SGLPASS_PARTIAL;
}

static void set_origin_of(sglpass_sharder *s, sglir_id value)
{
    const sglir_value *at = sglir_value_at(s->from, value);
    sglir_id maker = at->node != SGLIR_NONE ? at->node : s->from->regions.data[at->region].node;
    sglir_set_origin_made(s->to, s->from, maker, s->rewrite.pass);
}

static sglir_id turn(sglpass_sharder *s, sglir_id value, const sglpass_made *have, const sglpass_form *want)
{
    turning t = { s, value, have->made, have->form };
    set_origin_of(s, value);
    cut_some(&t, want, false);
    hand_out_some(&t, want);
    sglplan_axes owed = sglpass_axes_of(&t.form, SGLPASS_PARTIAL) & ~sglpass_axes_of(want, SGLPASS_PARTIAL);
    pay(&t, owed);
    for (sglpass_move m = sglpass_find_move(s, value, &t.form, want); m.axes;
         m = sglpass_find_move(s, value, &t.form, want))
        move_parts(&t, &m, want);
    gather_some(&t, want);
    cut_some(&t, want, true);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (want->at[axis] == SGLPASS_PARTIAL && t.form.at[axis] == SGLPASS_WHOLE) share(&t, axis);
    }
    return t.now;
}

/* ---- in parts from the start ------------------------------------------------------------------------------------- */

static bool may_remake(const sglir_node *node)
{
    switch (node->op) {
    case SGLIR_OP_RANDOM_UNIFORM:
    case SGLIR_OP_RANDOM_NORMAL:
    case SGLIR_OP_IOTA:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_TRANSPOSE: return true;
    case SGLIR_OP_LAID_OUT: return false; /* it stands nowhere: its argument may be there in another form */
    default: return node->out_count == 1 && (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) != 0;
    }
}

/* A value whose first form is whole along axes over which it is wanted in parts, and the same along the others. */
static bool remake(sglpass_sharder *s, sglir_id value, const sglpass_form *want, sglir_id *made)
{
    const sglpass_made *first = sglpass_first(s, value);
    const sglir_value *at = sglir_value_at(s->from, value);
    sglpass_way run;
    if (at->node == SGLIR_NONE || !may_remake(sglir_node_at(s->from, at->node))) return false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int8_t have = first->form.at[axis], wanted = want->at[axis];
        if (have != wanted && (have != SGLPASS_WHOLE || wanted < 0)) return false;
        if (have == wanted && have >= 0 && !sglpass_cut_alike(s, value, have, &first->form, want, SGLPLAN_AXIS(axis)))
            return false;
    }
    int64_t forms = s->forms.count;
    bool can = sglpass_choose_along(s, at->node, want, &run) && sglir_stick(s->to, sglpass_emit(s, &run)) == SGL_OK;
    s->forms.count = forms;
    const sglpass_made *found = can ? sglpass_find(s, value, want) : NULL;
    if (found) *made = found->made;
    return found != NULL;
}

/* Another rank's part: sent as that rank has it. */
static sglir_id take_shifted(sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    sglpass_form own = *form;
    own.by = 0;
    const sglir_id part = sglpass_take(s, value, &own);
    if (s->to->status != SGL_OK) return SGLIR_NONE;
    set_origin_of(s, value);
    const sglir_id made = sglpass_shift(s, part, sglir_type_of(s->from, value)->dims, &own, 0, form->by);
    sglpass_put(s, value, made, form);
    return made;
}

/* The one from which it costs least; of equal ones the first. */
static sglpass_made cheapest(const sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    sglpass_made best = *sglpass_first(s, value);
    for (uint32_t at = s->latest[value]; at != 0; at = s->made.data[at - 1].before) {
        const sglpass_made *other = &s->made.data[at - 1];
        if (other->form.by != 0) continue;
        if (sglpass_price_from(s, value, &other->form, form) < sglpass_price_from(s, value, &best.form, form))
            best = *other;
    }
    return best;
}

sglir_id sglpass_take(sglpass_sharder *s, sglir_id value, const sglpass_form *form)
{
    sglir_id made = SGLIR_NONE;
    if (s->to->status != SGL_OK) return SGLIR_NONE;
    const sglpass_made *found = sglpass_find(s, value, form);
    if (found) return found->made;
    if (s->latest[value] == 0) {
        sglir_stick(s->to, sglcore_fail(s->env, SGL_INTERNAL, "shard: value %u is used before it is made", value));
        return SGLIR_NONE;
    }
    if (form->by != 0) return take_shifted(s, value, form);
    if (remake(s, value, form, &made)) return made;
    if (s->to->status != SGL_OK) return SGLIR_NONE;
    const sglpass_made best = cheapest(s, value, form);
    made = turn(s, value, &best, form);
    sglpass_put(s, value, made, form);
    return made;
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* What is split along dim over axes, as terms of a sum over them: own parts where they belong, zeros elsewhere. */
static void spread(turning *t, sglplan_axes axes, int dim)
{
    sglpass_sharder *s = t->s;
    const int64_t extent = whole_extent(t, dim);
    const sglir_named attrs[] = { SGLIR_I("axis", 0), SGLIR_INTS("dims", 1, &extent), SGLIR_I("dtype", SGL_I64) };
    sglir_id places = sglir_emit(s->to, SGLIR_OP_IOTA, NULL, 0, attrs, 3, NULL);
    places = sglir_sub(s->to, places, sglpass_begin(s, &t->form, dim, extent));
    bring(t, dim, false);
    const sglir_id args[] = { t->now, places };
    t->now = sglir_emit(s->to, SGLIR_OP_GATHER, args, 2, NULL, 0, NULL);
    for (int i = 0; i < SGLIR_AXIS_COUNT; i++) {
        if (axes & SGLPLAN_AXIS(i)) t->form.at[i] = SGLPASS_PARTIAL;
    }
    tell(t, dim);
    bring(t, dim, true);
}

/* In whichever form the value is: over axes along which it is whole the first rank has it, where it is split each its
 * part. */
void sglpass_emit_terms(sglpass_sharder *s, const sglir_node *node)
{
    const sglir_id value = sglir_arg(s->from, node, 0);
    const sglpass_made *have = sglpass_first(s, value);
    const sglplan_axes axes = (sglplan_axes)sglir_attr_int(s->from, node, "axes");
    const sglir_named attrs[] = { SGLIR_I("axes", axes), SGLIR_I("ranks", 1) };
    const int rank = sglir_type_of(s->from, value)->rank;
    if (s->to->status != SGL_OK) return;
    turning t = { s, value, have->made, have->form };
    sglir_set_origin_of(s->to, &s->from->origins.data[node->origin], s->from);
    for (int dim = 0; dim < rank; dim++) {
        const sglplan_axes split = sglpass_axes_of(&t.form, dim);
        if ((split & axes) == 0) continue;
        if (split & ~axes)
            gather(&t, split, dim); /* among others: what is left could not say where it begins */
        else
            spread(&t, split, dim);
    }
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes & SGLPLAN_AXIS(axis)) && t.form.at[axis] == SGLPASS_WHOLE) share(&t, axis);
    }
    sglir_id made = sglir_emit(s->to, SGLIR_OP_TERMS, &t.now, 1, attrs, 2, NULL);
    sglpass_form form = sglpass_form_whole();
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        form.at[axis] = (int8_t)(t.form.at[axis] + (t.form.at[axis] >= 0));
        if (axes & SGLPLAN_AXIS(axis)) form.at[axis] = 0;
    }
    for (int dim = 0; dim < rank; dim++) form.unit[dim + 1] = t.form.unit[dim];
    sglpass_put(s, node->out_first, made, &form);
}
