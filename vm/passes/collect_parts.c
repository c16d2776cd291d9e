/* collect_parts.c -- what ranks gather, hand out in parts and turn from parts to parts: together, and when it is there.
 *
 * In: a graph of one rank in which each parameter is gathered by itself, before its first reader, each gradient is
 * handed out in parts by itself, where its part is first read, and all_to_alls stand before what reads them. Out: the
 * same exchanges, merged where they are over the same axes and of one dtype, a run of neighbours at a time, of at least
 * plan.bucket bytes (of what is whole):
 *   early   what is handed out, turns, and gathers of what the step has made: as soon as the last of the run is there
 *   late    gathers and turns of what is there from the beginning: before the first reader of the first of the run
 * Nothing is packed: each member of a merged exchange is read and written where it lies. Odd invariant: bytes are of the
 * value before anything of it was split, also over axes that the exchange leaves as they are, along which parts may be
 * uneven. */
#include <string.h>

#include "passes/collect_parts.h"

static const sglir_graph *from(const sglpass_merger *m) { return m->rewrite.from; }

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static bool is_of_parts(const sglir_node *node)
{
    return node->op == SGLIR_OP_ALL_GATHER || node->op == SGLIR_OP_REDUCE_SCATTER || node->op == SGLIR_OP_ALL_TO_ALL;
}

/* Over other axes than these. */
static bool is_split(const sglir_type *type, int64_t beside)
{
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        split = split || (type->sharded[axis] >= 0 && (beside >> axis & 1) == 0);
    return split;
}

/* As many as a rank sends and keeps of it, which is its share of all ranks' where that is whole along what is turned.
 * Between what was told to be a part and the exchange stand reshapes and transposes, which change no number of
 * elements. */
static int64_t turned_bytes(const sglpass_merger *m, const sglir_node *turn)
{
    const bool first = sglir_attr_int(from(m), turn, "to") == 1;
    const sglir_type *type = sglir_type_of(from(m), first ? sglir_arg(from(m), turn, 0) : turn->out_first);
    const int64_t axes = sglir_attr_int(from(m), turn, "axes"), ranks = sglir_attr_int(from(m), turn, "ranks");
    if (!is_split(type, axes)) return sglir_bytes(type);
    for (const sglir_node *node = turn; node && node->arg_count > 0;) {
        const sglir_id arg = sglir_arg(from(m), node, 0);
        const sglir_whole *whole = sglir_whole_of(from(m), arg);
        int64_t elements = 1;
        for (int d = 0; whole && d < sglir_type_of(from(m), arg)->rank; d++) elements *= whole->dims[d];
        if (whole) return sglcore_dtype_bytes((sgl_dtype)type->dtype, elements / ranks);
        node = sglir_maker(from(m), arg);
        if (!node || !sglpass_merge_goes_along(node) || node->op == SGLIR_OP_UNPACK) break;
    }
    return m->context->plan->bucket;
}

/* What is split over other axes too has other bytes on other ranks. Where nobody told of what it is a part, it counts
 * as a full bucket. */
static int64_t whole_bytes(const sglpass_merger *m, const sglir_node *exchange)
{
    const sglir_id read = sglir_arg(from(m), exchange, 0), made = exchange->out_first;
    if (exchange->op == SGLIR_OP_ALL_TO_ALL) return turned_bytes(m, exchange);
    sglir_type type = *sglir_type_of(from(m), exchange->op == SGLIR_OP_ALL_GATHER ? made : read);
    if (!is_split(&type, 0)) return sglir_bytes(&type);
    const sglir_whole *whole = sglir_whole_of(from(m), made);
    if (!whole) whole = sglir_whole_of(from(m), read);
    if (!whole) return m->context->plan->bucket;
    memcpy(type.dims, whole->dims, (size_t)type.rank * sizeof *type.dims);
    return sglir_bytes(&type);
}

/* The position after which it can be. What the backward turns of what the forward made stays in the backward: until
 * then that lives once. */
static int64_t ready_at(const sglpass_merger *m, sglir_id id, sglir_id source)
{
    const sglir_node *node = sglpass_merged_at(m, id);
    const bool turns = node->op == SGLIR_OP_ALL_TO_ALL;
    const bool backward = sglir_is_made_by(from(m), node, "autodiff");
    if (source == SGLIR_NONE) return SGLPASS_FROM_THE_BEGINNING;
    if (turns && backward != sglir_is_made_by(from(m), sglpass_merged_at(m, source), "autodiff"))
        return m->position[id] - 1;
    return m->position[source];
}

/* One that reads what another such one makes stays where it is. */
static bool parts_item(const sglpass_merger *m, sglir_id id, sglpass_merge_item *item)
{
    const sglir_node *node = sglpass_merged_at(m, id);
    if (!is_of_parts(node)) return false;
    const sglir_id source = sglpass_merge_source(m, node), reader = m->reader[node->out_first];
    if (source != SGLIR_NONE && is_of_parts(sglpass_merged_at(m, source))) return false;
    item->ready = ready_at(m, id, source);
    item->bytes = whole_bytes(m, node);
    item->for_backward = reader != SGLIR_NONE && sglir_is_made_by(from(m), sglpass_merged_at(m, reader), "autodiff");
    return true;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static sglpass_merge_run run_of(const sglpass_merger *m, const sglpass_merge_item *x)
{
    const sglir_node *node = sglpass_merged_at(m, x->node);
    const bool late = x->ready == SGLPASS_FROM_THE_BEGINNING && node->op != SGLIR_OP_REDUCE_SCATTER;
    return (sglpass_merge_run){ .first = x->node,
                                .op = node->op,
                                .dtype = sglir_type_of(from(m), node->out_first)->dtype,
                                .axes = sglir_attr_int(from(m), node, "axes"),
                                .late = late,
                                .for_backward = late && x->for_backward,
                                .before = late ? x->at : x->ready + 1,
                                .first_read = x->first_read };
}

/* Into the one run that is open for its like; where that would be too late for a member, or it is full, into a new one. */
static sgl_status put_parts(sglpass_merger *m, int64_t i)
{
    sglpass_merge_item *item = &m->at->items.data[i];
    const sglpass_merge_run own = run_of(m, item);
    return sglpass_merge_join(m, item, &own, sglpass_merge_open(m, &own));
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

enum { EXTENTS, UNITS, TOS };

static sgl_status add_member(sglpass_merger *m, const sglpass_merge_item *x)
{
    sglcore_env *env = m->context->env;
    const sglir_node *node = sglpass_merged_at(m, x->node);
    const char *extent = node->op == SGLIR_OP_REDUCE_SCATTER ? "own" : "extent";
    SGLCORE_TRY(sglcore_vec_push(env, &m->args, m->rewrite.map[sglir_arg(from(m), node, 0)]));
    SGLCORE_TRY(sglcore_vec_push(env, &m->lists[EXTENTS], sglir_attr_int(from(m), node, extent)));
    if (node->op == SGLIR_OP_ALL_TO_ALL)
        SGLCORE_TRY(sglcore_vec_push(env, &m->lists[TOS], sglir_attr_int(from(m), node, "to")));
    return sglcore_vec_push(env, &m->lists[UNITS], sglir_attr_int(from(m), node, "unit"));
}

static sglir_op each_of(uint16_t op)
{
    return op == SGLIR_OP_ALL_GATHER       ? SGLIR_OP_ALL_GATHER_EACH
           : op == SGLIR_OP_REDUCE_SCATTER ? SGLIR_OP_REDUCE_SCATTER_EACH
                                           : SGLIR_OP_ALL_TO_ALL_EACH;
}

static void emit_each(sglpass_merger *m, const sglpass_merge_run *r, int32_t index)
{
    sglir_graph *to = m->rewrite.to;
    const bool turns = r->op == SGLIR_OP_ALL_TO_ALL;
    const int64_t count = m->args.count;
    const sglir_named attrs[] = {
        SGLIR_I("axes", r->axes),
        SGLIR_INTS(r->op == SGLIR_OP_REDUCE_SCATTER ? "owns" : "extents", count, m->lists[EXTENTS].data),
        SGLIR_INTS("units", count, m->lists[UNITS].data), SGLIR_INTS("tos", count, m->lists[TOS].data),
        SGLIR_I("ranks", turns ? sglir_attr_int(from(m), sglpass_merged_at(m, r->first), "ranks") : 0)
    };
    sglir_set_origin_made(to, from(m), r->first, m->rewrite.pass);
    sglir_id made = sglir_emit(to, each_of(r->op), m->args.data, (int)count, attrs, turns ? 5 : 3, NULL);
    for (int64_t i = 0; i < m->at->items.count && sglir_status(to) == SGL_OK; i++) {
        const sglir_id was = sglpass_merged_at(m, m->at->items.data[i].node)->out_first;
        const sglir_whole *whole = sglir_whole_of(from(m), was);
        if (m->at->items.data[i].run != index) continue;
        if (whole) sglir_set_whole(to, made, whole);
        m->rewrite.map[was] = made++;
    }
}

static sgl_status emit_parts(sglpass_merger *m, const sglpass_merge_run *run, int32_t index)
{
    m->args.count = 0;
    for (int i = 0; i < 3; i++) m->lists[i].count = 0;
    for (int64_t i = 0; i < m->at->items.count; i++)
        if (m->at->items.data[i].run == index) SGLCORE_TRY(add_member(m, &m->at->items.data[i]));
    emit_each(m, run, index);
    return sglir_status(m->rewrite.to);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

bool sglpass_has_parts(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++)
        if (is_of_parts(&g->nodes.data[n])) return true;
    return false;
}

sgl_status sglpass_collect_parts(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    static const sglpass_merging merging = { .item = parts_item, .put = put_parts, .emit = emit_parts };
    return sglpass_merge(context, &merging, in, out);
}
