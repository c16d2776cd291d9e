/* shard_ring.c -- attention that takes keys and values block by block, each as another rank has it (Liu et al.,
 * arXiv:2310.01889).
 *
 * In: attention, or its gradient, whose queries and keys lie in parts of the sequence over one axis. Out: for this
 * rank's own block, and for those of so many ranks before it round the axis as some query sees, the same op over that
 * block alone:
 *   attention  outputs are weighed by what each block's scores sum to: with lse = log sum of all blocks' e^lse_j,
 *              out = sum of out_j e^(lse_j - lse)
 *   gradient   out and lse are those of the whole already, so each block's share of dq is a term of its sum; the shares of dk and
 *              dv are sent back to the rank whose block it is
 * A block is sent from the rank that has it, not handed on, so that all may be under way at once. Odd invariant: types
 * say of a block that it is a value of this rank's own (op declare), since none of its places are those of this rank's
 * part; which keys a query sees is said by the offset alone, so blocks that lie behind it, round the ring, are taken
 * and not seen. */
#include <math.h>
#include <string.h>

#include "ir/compose.h"
#include "ir/infer.h"
#include "passes/shard.h"

enum { Q, K, V, MOST_ARGS = 9 }; /* the gradient has so many, with segments */

typedef struct ring {
    sglpass_sharder *s;
    const sglir_node *node;
    const sglpass_way *run;
    sglir_id args[MOST_ARGS]; /* taken: own blocks */
    int axis;
} ring;

static int64_t extent_of(const sglpass_sharder *s, const sglir_node *node, uint32_t arg)
{
    return sglir_type_of(s->from, sglir_arg(s->from, node, arg))->dims[SGLPASS_SEQUENCE];
}

/* ---- which blocks ------------------------------------------------------------------------------------------------ */

bool sglpass_is_ring_arg(const sglpass_sharder *s, const sglir_node *node, uint32_t arg)
{
    return arg == K || arg == V || (int)arg == sglpass_offset_of(s->from, node) + 2; /* segments of keys */
}

/* Places of the sequence that one rank's queries look at: from the first to the last. */
typedef struct sight {
    int64_t first, last;
} sight;

static sight sight_of(const sglpass_sharder *s, const sglir_node *node, const sglplan_part *queries)
{
    const sight all = { INT64_MIN / 2, INT64_MAX / 2 };
    const sglir_node *offset =
        sglir_maker(s->from, sglir_arg(s->from, node, (uint32_t)sglpass_offset_of(s->from, node)));
    const int64_t window = sglir_attr_int(s->from, node, "window");
    if (!sglir_attr_int(s->from, node, "causal") || !offset || offset->op != SGLIR_OP_CONSTANT) return all;
    const int64_t moved = queries->offset + (int64_t)sglir_attr_float(s->from, offset, "value");
    return (sight){ window > 0 ? moved - window + 1 : all.first, moved + queries->size - 1 };
}

static bool lies_along(const sglpass_form *form, int axis)
{
    return sglpass_axes_of(form, SGLPASS_SEQUENCE) == SGLPLAN_AXIS(axis);
}

int sglpass_ring_blocks(const sglpass_sharder *s, const sglir_node *node, uint32_t first, int axis)
{
    const sglpass_form *q = &s->forms.data[first];
    const sglpass_made *k = sglpass_first(s, sglir_arg(s->from, node, K)),
                       *v = sglpass_first(s, sglir_arg(s->from, node, V));
    const int64_t places = sglpass_extent(s, axis);
    int most = 0;
    if (!k || !v || !lies_along(q, axis) || !lies_along(&k->form, axis) || !lies_along(&v->form, axis)) return -1;
    for (int64_t rank = 0; rank < places; rank++) {
        const sglplan_part queries = sglplan_part_of(extent_of(s, node, Q), q->unit[SGLPASS_SEQUENCE], places, rank);
        const sight seen = sight_of(s, node, &queries);
        bool meets = false;
        for (int by = (int)places - 1; by > most && queries.size > 0 && !meets; by--) {
            const sglplan_part keys = sglplan_part_of(extent_of(s, node, K), k->form.unit[SGLPASS_SEQUENCE], places,
                                                      (rank - by + places) % places);
            meets = keys.size > 0 && keys.offset <= seen.last && keys.offset + keys.size > seen.first;
            if (meets) most = by;
        }
    }
    return most;
}

/* The blocks that the forward took are kept for the backward; where the plan asks for the ring they are not: what comes
 * once more has gone round the ring once more. */
sglpass_form sglpass_ring_form(const sglpass_sharder *s, const sglir_node *node, const sglpass_form *own, int axis,
                               int by)
{
    const bool again = node->op == SGLIR_OP_ATTENTION_GRAD && s->context->plan->attention == SGLPLAN_ATTENTION_RING;
    sglpass_form form = *own;
    form.at[axis] = SGLPASS_SEQUENCE;
    form.unit[SGLPASS_SEQUENCE] = sglpass_first(s, sglir_arg(s->from, node, K))->form.unit[SGLPASS_SEQUENCE];
    form.ring = (int8_t)axis;
    form.by = by == 0 ? 0 : again ? by + (int32_t)sglpass_extent(s, axis) : by;
    return form;
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

sglir_id sglpass_shift(sglpass_sharder *s, sglir_id made, const int64_t *dims, const sglpass_form *form, int of, int by)
{
    const int axis = form->ring, dim = SGLPASS_SEQUENCE;
    const int64_t places = sglpass_extent(s, axis), from = ((s->at.at[axis] - of - by) % places + places) % places;
    const sglplan_part part = sglplan_part_of(dims[dim], form->unit[dim], places, from);
    const sglir_named attrs[] = { SGLIR_I("axes", SGLPLAN_AXIS(axis)),
                                  SGLIR_I("dim", dim),
                                  SGLIR_I("by", by),
                                  SGLIR_I("of", of),
                                  SGLIR_I("extent", part.size),
                                  SGLIR_I("whole", dims[dim]),
                                  SGLIR_I("unit", form->unit[dim]) };
    return sglir_emit(s->to, SGLIR_OP_RING_SHIFT, &made, 1, attrs, 7, NULL);
}

static sglir_id declare(const ring *r, sglir_id x, int dim)
{
    const sglir_named attrs[] = { SGLIR_I("axes", SGLPLAN_AXIS(r->axis)), SGLIR_I("dim", dim) };
    return sglir_emit(r->s->to, SGLIR_OP_DECLARE, &x, 1, attrs, 2, NULL);
}

static sglir_id number(const ring *r, int64_t value) { return sglir_constant(r->s->to, SGL_I64, (double)value); }

/* How far this rank's first query lies behind the first key of the block, as a value. */
static sglir_id distance(const ring *r, const sglpass_form *q, const sglpass_form *k, int by)
{
    sglpass_sharder *s = r->s;
    sglir_graph *to = s->to;
    const int64_t places = sglpass_extent(s, r->axis);
    sglir_id place = s->coordinate[r->axis];
    if (by > 0) {
        const sglir_id before = sglir_sub(to, place, number(r, by));
        const sglir_id below = sglir_binary(to, SGLIR_OP_LESS, before, number(r, 0));
        place = sglir_select(to, below, sglir_add(to, before, number(r, places)), before);
    }
    const sglir_id queries = sglpass_start(s, r->axis, extent_of(s, r->node, Q), q->unit[SGLPASS_SEQUENCE]);
    const sglir_id keys = sglpass_start_at(s, place, r->axis, extent_of(s, r->node, K), k->unit[SGLPASS_SEQUENCE]);
    return sglir_sub(to, queries, keys);
}

/* The node over one block. */
static void attend_block(ring *r, int by, sglir_id outs[3])
{
    sglpass_sharder *s = r->s;
    const sglpass_form *forms = &s->forms.data[r->run->form_first];
    const sglpass_form q = forms[Q], k = forms[K];
    sglir_id args[MOST_ARGS];
    sglir_named named[SGLIR_MOST_ATTRS];
    for (uint32_t i = 0; i < r->node->arg_count; i++) {
        args[i] = r->args[i];
        if (!sglpass_is_ring_arg(s, r->node, i)) continue;
        const sglpass_form form = sglpass_ring_form(s, r->node, &s->forms.data[r->run->form_first + i], r->axis, by);
        if (by > 0) args[i] = sglpass_take(s, sglir_arg(s->from, r->node, i), &form);
    }
    sglir_set_origin_of(s->to, &s->from->origins.data[r->node->origin], s->from);
    for (uint32_t i = 0; i < r->node->arg_count; i++)
        if (sglpass_is_ring_arg(s, r->node, i)) args[i] = declare(r, args[i], -1);
    const int offset = sglpass_offset_of(s->from, r->node);
    args[offset] = sglir_add(s->to, args[offset], distance(r, &q, &k, by));
    sglir_emit(s->to, (sglir_op)r->node->op, args, (int)r->node->arg_count, named,
               sglir_attrs_named(s->from, r->node, named), outs);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Weights [b, h, t] of rows of [b, t, h, e]. */
static sglir_id of_rows(sglir_graph *to, sglir_id weights)
{
    static const int64_t order[3] = { 0, 2, 1 };
    static const int8_t map[3] = { 0, 1, 2 };
    const sglir_id turned = sglir_transpose(to, weights, order);
    if (to->status != SGL_OK) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(to, turned);
    const int64_t dims[4] = { type.dims[0], type.dims[1], type.dims[2], 1 };
    return sglir_reshape_mapped(to, turned, 4, dims, map);
}

/* Where nothing is seen at all lse is -inf, and 0 takes its place: e^-inf is 0, and -inf less -inf would be no number. */
static sglir_id weight(sglir_graph *to, sglir_id lse, sglir_id of_all)
{
    const sglir_id none = sglir_binary(to, SGLIR_OP_EQUAL, of_all, sglir_constant(to, SGL_F32, -INFINITY));
    const sglir_id from = sglir_select(to, none, sglir_constant(to, SGL_F32, 0), of_all);
    return sglir_unary(to, SGLIR_OP_EXP, sglir_sub(to, lse, from));
}

/* log(e^a + e^b) */
static sglir_id log_sum(sglir_graph *to, sglir_id a, sglir_id b)
{
    const sglir_id most = sglir_binary(to, SGLIR_OP_MAXIMUM, a, b);
    const sglir_id of_a = weight(to, a, most), of_b = weight(to, b, most);
    return sglir_add(to, most, sglir_unary(to, SGLIR_OP_LOG, sglir_add(to, of_a, of_b)));
}

static void attend(ring *r, sglir_id *outs)
{
    sglir_graph *to = r->s->to;
    sglir_id out = SGLIR_NONE, lse = SGLIR_NONE, block[3] = { SGLIR_NONE, SGLIR_NONE, SGLIR_NONE };
    for (int by = 0; by <= r->run->blocks && to->status == SGL_OK; by++) {
        attend_block(r, by, block);
        const sglir_id mixed = sglir_widen(to, block[0]);
        if (by == 0) {
            out = mixed;
            lse = block[1];
            continue;
        }
        const sglir_id all = log_sum(to, lse, block[1]);
        const sglir_id before = sglir_mul(to, out, of_rows(to, weight(to, lse, all)));
        const sglir_id more = sglir_mul(to, mixed, of_rows(to, weight(to, block[1], all)));
        out = sglir_add(to, before, more);
        lse = all;
    }
    outs[0] = sglir_cast_like(to, out, r->args[Q]);
    outs[1] = lse;
}

/* ---- the gradient ------------------------------------------------------------------------------------------------ */

static void attend_gradient(ring *r, sglir_id *outs)
{
    sglpass_sharder *s = r->s;
    sglir_graph *to = s->to;
    for (int by = 0; by <= r->run->blocks && to->status == SGL_OK; by++) {
        sglir_id block[3] = { SGLIR_NONE, SGLIR_NONE, SGLIR_NONE };
        attend_block(r, by, block);
        for (uint32_t i = Q; i <= V; i++) {
            sglir_id share = block[i];
            const sglpass_form own = s->forms.data[r->run->form_first + i];
            const sglpass_form form = sglpass_ring_form(s, r->node, &own, r->axis, 0);
            if (i != Q) share = declare(r, share, SGLPASS_SEQUENCE);
            if (i != Q && by > 0)
                share = sglpass_shift(s, share, sglir_type_of(s->from, sglir_arg(s->from, r->node, i))->dims, &form, by,
                                      -by);
            share = sglir_widen(to, share);
            outs[i] = by == 0 ? share : sglir_add(to, outs[i], share);
        }
    }
    for (uint32_t i = Q; i <= V; i++) outs[i] = sglir_cast_like(to, outs[i], r->args[i]);
}

sgl_status sglpass_emit_ring(sglpass_sharder *s, const sglpass_way *run, int64_t first)
{
    const sglir_node *node = sglir_node_at(s->from, run->node);
    ring r = { .s = s, .node = node, .run = run, .axis = __builtin_ctz(run->ring) };
    sglir_id outs[3] = { SGLIR_NONE, SGLIR_NONE, SGLIR_NONE };
    memcpy(r.args, &s->ids.data[first],
           node->arg_count * sizeof r.args[0]); /* what lies there moves when blocks are taken */
    if (node->op == SGLIR_OP_ATTENTION)
        attend(&r, outs);
    else
        attend_gradient(&r, outs);
    memcpy(&s->ids.data[first + node->arg_count], outs, node->out_count * sizeof outs[0]);
    return sglir_status(s->to);
}
