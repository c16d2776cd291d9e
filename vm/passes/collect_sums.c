/* collect_sums.c -- small sums over ranks: together, where nothing waits for them.
 *
 * In: a graph of one rank in which sums are paid one by one, each before its first reader: of gradients that other axes
 * split or that are summed before they are encoded, of norms' parameters beside those that tp splits, of numbers that
 * are only told. Out: those of one dtype, over the same axes and with the same sums left to pay, in one all_reduce of a
 * pack, as soon as the last of a run is there, a run being of at least plan.bucket bytes. What fills a bucket alone is
 * summed where it lies, and so is what is read before another one is there: an activation waits for nothing. Each
 * element is summed in the group's order as before: the bits stay. What is split over other axes is packed as what each
 * rank has of its own. Odd invariant: bytes are a rank's share of the whole, the same on ranks whose parts are uneven. */
#include "passes/collect_parts.h"
#include "plan/mesh.h"

static const sglir_graph *from(const sglpass_merger *m) { return m->rewrite.from; }

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static sglplan_axes split_axes(const sglir_type *type)
{
    sglplan_axes axes = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) axes |= type->sharded[axis] >= 0 ? SGLPLAN_AXIS(axis) : 0;
    return axes;
}

/* A full bucket where nobody told of what it is a part. */
static int64_t share_bytes(const sglpass_merger *m, const sglir_node *sum)
{
    const sglir_type *type = sglir_type_of(from(m), sum->out_first);
    const sglplan_axes axes = split_axes(type);
    const sglir_whole *whole = sglir_whole_of(from(m), sum->out_first);
    int64_t elements = 1;
    if (axes == 0) return sglir_bytes(type);
    if (!whole) whole = sglir_whole_of(from(m), sglir_arg(from(m), sum, 0));
    if (!whole) return m->context->plan->bucket;
    for (int d = 0; d < type->rank; d++) elements *= whole->dims[d];
    return sglcore_dtype_bytes((sgl_dtype)type->dtype, elements) / sglplan_group_size(m->context->plan, axes) + 1;
}

/* Sums of packs are buckets already; what is stacked along micro-batches nothing is declared of. What the backward sums of what the forward made stays in the backward. */
static bool sums_item(const sglpass_merger *m, sglir_id id, sglpass_merge_item *item)
{
    const sglir_node *node = sglpass_merged_at(m, id);
    if (node->op != SGLIR_OP_ALL_REDUCE) return false;
    const sglir_node *maker = sglir_maker(from(m), sglir_arg(from(m), node, 0));
    const sglir_id source = sglpass_merge_source(m, node);
    if (source == SGLIR_NONE || maker->op == SGLIR_OP_PACK) return false;
    if (sglir_type_of(from(m), node->out_first)->sharded[SGLIR_AXIS_MICRO] >= 0) return false;
    item->for_backward = sglir_is_made_by(from(m), node, "autodiff");
    const bool here = item->for_backward == sglir_is_made_by(from(m), sglpass_merged_at(m, source), "autodiff");
    item->ready = here ? m->position[source] : item->at - 1;
    item->bytes = share_bytes(m, node);
    return item->bytes < m->context->plan->bucket;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static sglpass_merge_run run_of(const sglpass_merger *m, const sglpass_merge_item *x)
{
    const sglir_node *node = sglpass_merged_at(m, x->node);
    const sglir_type *type = sglir_type_of(from(m), node->out_first);
    return (sglpass_merge_run){ .first = x->node,
                                .op = node->op,
                                .dtype = type->dtype,
                                .partial = type->partial,
                                .scaled = type->scaled,
                                .axes = sglir_attr_int(from(m), node, "axes"),
                                .for_backward = x->for_backward,
                                .before = x->ready + 1,
                                .first_read = x->first_read };
}

/* Position of the node after which the next one like item i can be. */
static int64_t next_ready(const sglpass_merger *m, int64_t i, const sglpass_merge_run *own)
{
    for (int64_t next = i + 1; next < m->at->items.count; next++) {
        const sglpass_merge_run other = run_of(m, &m->at->items.data[next]);
        if (sglpass_merge_fits(&other, own)) return m->at->items.data[next].ready;
    }
    return INT64_MAX;
}

/* What is read before the next one is there goes with those that cannot wait either, or by itself. */
static sgl_status put_sum(sglpass_merger *m, int64_t i)
{
    sglpass_merge_item *item = &m->at->items.data[i];
    const sglpass_merge_run own = run_of(m, item);
    sglpass_merge_run *open = sglpass_merge_open(m, &own);
    const int64_t next = next_ready(m, i, &own);
    if (item->first_read <= next && (open == NULL || open->first_read > next)) return SGL_OK;
    return sglpass_merge_join(m, item, &own, open);
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

enum { RANKS, DIMS };

static sglir_id declare(sglir_graph *to, sglir_id value, sglplan_axes axes, int dim)
{
    const sglir_named attrs[] = { SGLIR_I("axes", axes), SGLIR_I("dim", dim) };
    return axes ? sglir_emit(to, SGLIR_OP_DECLARE, &value, 1, attrs, 2, NULL) : value;
}

/* Packed as a value that each rank has of its own. */
static sgl_status add_term(sglpass_merger *m, const sglir_node *sum)
{
    sglcore_env *env = m->context->env;
    const sglir_type *type = sglir_type_of(from(m), sum->out_first);
    const sglir_id value = m->rewrite.map[sglir_arg(from(m), sum, 0)];
    SGLCORE_TRY(sglcore_vec_push(env, &m->args, declare(m->rewrite.to, value, split_axes(type), -1)));
    for (int d = 0; d < type->rank; d++) SGLCORE_TRY(sglcore_vec_push(env, &m->lists[DIMS], type->dims[d]));
    return sglcore_vec_push(env, &m->lists[RANKS], type->rank);
}

/* Split again as it was. */
static sglir_id hand_back(sglpass_merger *m, const sglir_node *sum, sglir_id value)
{
    const sglir_type type = *sglir_type_of(from(m), sum->out_first);
    const sglir_whole *whole = sglir_whole_of(from(m), sum->out_first);
    for (int dim = 0; dim < type.rank; dim++) {
        sglplan_axes axes = 0;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) axes |= type.sharded[axis] == dim ? SGLPLAN_AXIS(axis) : 0;
        value = declare(m->rewrite.to, value, axes, dim);
    }
    if (whole && sglir_status(m->rewrite.to) == SGL_OK) sglir_set_whole(m->rewrite.to, value, whole);
    return value;
}

static sgl_status emit_sums(sglpass_merger *m, const sglpass_merge_run *run, int32_t index)
{
    sglir_graph *to = m->rewrite.to;
    const sglir_named axes = SGLIR_I("axes", run->axes);
    m->args.count = m->lists[RANKS].count = m->lists[DIMS].count = 0;
    sglir_set_origin_made(to, from(m), run->first, m->rewrite.pass);
    for (int64_t i = 0; i < m->at->items.count; i++)
        if (m->at->items.data[i].run == index)
            SGLCORE_TRY(add_term(m, sglpass_merged_at(m, m->at->items.data[i].node)));
    sglir_id value = sglir_emit(to, SGLIR_OP_PACK, m->args.data, (int)m->args.count, NULL, 0, NULL);
    value = sglir_emit(to, SGLIR_OP_ALL_REDUCE, &value, 1, &axes, 1, NULL);
    const sglir_named attrs[] = { SGLIR_INTS("ranks", m->lists[RANKS].count, m->lists[RANKS].data),
                                  SGLIR_INTS("dims", m->lists[DIMS].count, m->lists[DIMS].data) };
    value = sglir_emit(to, SGLIR_OP_UNPACK, &value, 1, attrs, 2, NULL);
    for (int64_t i = 0; i < m->at->items.count && sglir_status(to) == SGL_OK; i++) {
        const sglir_node *sum = sglpass_merged_at(m, m->at->items.data[i].node);
        if (m->at->items.data[i].run == index) m->rewrite.map[sum->out_first] = hand_back(m, sum, value++);
    }
    return sglir_status(to);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

bool sglpass_has_sums(const sglir_graph *g)
{
    int sums = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) sums += g->nodes.data[n].op == SGLIR_OP_ALL_REDUCE;
    return sums > 1;
}

sgl_status sglpass_collect_sums(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    static const sglpass_merging merging = { .item = sums_item, .put = put_sum, .emit = emit_sums, .one_stays = true };
    return sglpass_merge(context, &merging, in, out);
}
