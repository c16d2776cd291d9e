/* shard_beyond.c -- ops that run over parts which their labels refuse, because more than the op itself is done there.
 *
 * In: a node that runs so, as ir/beyond.c says it can. Out: what is done besides:
 *   gather          a table split along its rows: indices count from this rank's first row (others give zeros), the results are
 *                   terms of a sum
 *   reduce_max,min  the extreme of the part, then of all parts'
 *   attention       queries split along their sequence, keys and values whole: the offset of the queries is this rank's; the
 *                   gradients of keys and values are terms of a sum; rope with it
 * Odd invariant: inference knows these forms but not that arguments were moved: that is done here alone. */
#include <string.h>

#include "passes/shard.h"

/* The node takes the extreme along the dimension, over which its argument is split. */
static bool reduces(const sglir_graph *g, const sglir_node *node, int dim)
{
    sglir_beyond how;
    return sglir_beyond_of(g, node, dim, &how) && how.extreme;
}

/* ---- what is moved ----------------------------------------------------------------------------------------------- */

static const sglpass_form *arg_form(const sglpass_sharder *s, const sglpass_way *run, uint32_t i)
{
    return &s->forms.data[run->form_first + i];
}

int sglpass_offset_of(const sglir_graph *g, const sglir_node *node)
{
    switch (node->op) {
    case SGLIR_OP_ATTENTION: return 3;
    case SGLIR_OP_ATTENTION_GRAD: return 6;
    case SGLIR_OP_ROPE: return sglir_type_of(g, sglir_arg(g, node, 1))->rank == 0 ? 1 : -1;
    default: return -1;
    }
}

void sglpass_move_beyond(sglpass_sharder *s, const sglpass_way *run, sglir_id *args)
{
    const sglir_node *node = sglir_node_at(s->from, run->node);
    int offset = sglpass_offset_of(s->from, node), dim = node->op == SGLIR_OP_GATHER ? 0 : SGLPASS_SEQUENCE;
    if ((offset < 0 && node->op != SGLIR_OP_GATHER) || sglpass_axes_of(arg_form(s, run, 0), dim) == 0) return;
    int64_t extent = sglir_type_of(s->from, sglir_arg(s->from, node, 0))->dims[dim];
    sglir_id start = sglpass_begin(s, arg_form(s, run, 0), dim, extent);
    if (offset >= 0) {
        args[offset] = sglir_add(s->to, args[offset], start);
        return;
    }
    sglir_id wide = sglir_cast(s->to, args[1], SGL_I64); /* a narrow index less the start may wrap into range */
    args[1] = sglir_sub(s->to, wide, sglir_broadcast_like(s->to, start, wide));
}

/* ---- extremes ---------------------------------------------------------------------------------------------------- */

/* Without the dimensions that were kept as 1. */
static sglir_id drop_kept(sglpass_sharder *s, const sglir_node *node, const sglpass_form *form, sglir_id made)
{
    const sglir_type *whole = sglir_type_of(s->from, node->out_first);
    int64_t dims[SGL_MAX_RANK], layout[SGLIR_AXIS_COUNT];
    for (int dim = 0; dim < whole->rank; dim++)
        dims[dim] = sglpass_local(s, whole->dims[dim], form->unit[dim], sglpass_axes_of(form, dim));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) layout[axis] = form->at[axis] >= 0 ? form->at[axis] : -1;
    const sglir_named shape[] = { SGLIR_INTS("dims", whole->rank, dims),
                                  SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    return sglir_emit(s->to, SGLIR_OP_RESHAPE, &made, 1, shape, 2, NULL);
}

/* Each rank's extreme is one of as many as hold parts. */
static void tell_extreme(sglpass_sharder *s, const sglir_node *node, const sglpass_form *of_x, sglir_id made)
{
    const sglir_type *x = sglir_type_of(s->from, sglir_arg(s->from, node, 0));
    sglpass_form form = *of_x;
    int64_t dims[SGL_MAX_RANK];
    int count;
    memcpy(dims, x->dims, sizeof dims);
    const int64_t *reduced = sglir_attr_ints(s->from, node, "axes", &count);
    for (int i = 0; i < count; i++) {
        dims[reduced[i]] = sglplan_group_size(s->context->plan, sglpass_axes_of(of_x, (int)reduced[i]));
        form.unit[reduced[i]] = 1;
    }
    sglpass_tell(s, made, dims, &form, NULL);
}

bool sglpass_emit_extreme(sglpass_sharder *s, const sglpass_way *run, sglir_id x, sglir_id *out)
{
    const sglir_node *node = sglir_node_at(s->from, run->node);
    const sglpass_form of_x = *arg_form(s, run, 0);
    bool any = false, least = node->op == SGLIR_OP_REDUCE_MIN;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) any = any || reduces(s->from, node, of_x.at[axis]);
    if (!any) return false;
    int count;
    const int64_t *reduced = sglir_attr_ints(s->from, node, "axes", &count);
    sglir_id made = sglir_reduce(s->to, (sglir_op)node->op, x, reduced, count, true);
    tell_extreme(s, node, &of_x, made);
    if (least) tell_extreme(s, node, &of_x, made = sglir_unary(s->to, SGLIR_OP_NEG, made));
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const sglir_named attrs[] = { SGLIR_I("axes", SGLPLAN_AXIS(axis)), SGLIR_I("dim", of_x.at[axis]) };
        if (reduces(s->from, node, of_x.at[axis])) made = sglir_emit(s->to, SGLIR_OP_ALL_MAX, &made, 1, attrs, 2, NULL);
    }
    if (least) made = sglir_unary(s->to, SGLIR_OP_NEG, made);
    bool kept = sglir_attr_int(s->from, node, "keep") != 0;
    *out = kept ? made : drop_kept(s, node, arg_form(s, run, node->arg_count), made);
    return true;
}
