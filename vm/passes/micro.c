/* micro.c -- the micro axis, of time: a step over the whole batch becomes loops over micro-batches.
 *
 * In: a step graph over the whole batch, plan->mesh[MICRO] = n. Out: the same mathematics, the batch dimension (dimension
 * 0 of every feed) cut into n parts that loops (SCAN) go through one after another. Parts are balanced; where they are not
 * equal, a loop is a row of loops, one for each stretch of equal parts, that hand on what they carry.
 *   forms   a value is whole, split along a dimension, or partial (a sum over micro-batches owed); the labels of ops.def
 *           say how forms go through a node, the column `linear` what bears a partial one; a loop or branch of the script
 *           whose body bears them is run by each micro-batch for itself
 *   levels  what needs a whole value waits for the end of the loop that makes it: the count of valid tokens in a first
 *           loop, forward and backward in a second, the optimizer after it. Everything goes as late as it can, so the
 *           forward pass stands in one loop only; what two loops need is made twice when cheap, else kept
 *   emit    feeds are sliced in the loop; sums are paid by ACCUMULATE into a carry, parts written into one by
 *           DYNAMIC_UPDATE
 * Odd invariant: the numbers are those of the unsplit graph up to the order of sums, however unevenly the valid tokens
 * lie, because no node divides here: a mean is a sum and a count in the graph. */
#include "passes/micro.h"

/* ---- uses --------------------------------------------------------------------------------------------------- */

static void count_use(sglpass_micro *m, const sglpass_micro_use *use, uint32_t change)
{
    if (use->mode == SGLPASS_USE_ZEROS) return;
    if (use->mode == SGLPASS_USE_LOCAL)
        m->values[use->value].local_uses += change;
    else
        m->values[use->value].whole_uses += change;
}

static void count_uses(sglpass_micro *m)
{
    const sglir_graph *g = m->from;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        const sglpass_micro_use *uses = sglpass_micro_uses(m, n);
        for (uint32_t i = 0; i < m->nodes[n].use_count; i++) count_use(m, &uses[i], 1);
        if (!m->nodes[n].looped) continue;
        for (uint32_t r = 0; r < node->region_count; r++) {
            for (int64_t i = 0; i < g->regions.data[node->region_first + r].results.count; i++) {
                const sglpass_micro_use use = sglpass_micro_yield(m, node, r, i);
                count_use(m, &use, 1);
            }
        }
    }
    for (int64_t i = 0; i < g->outputs.count; i++) m->values[g->outputs.data[i].value].whole_uses++;
}

/* ---- sums paid early or late ---------------------------------------------------------------------------------- */

/* Whether paying the sums of the node's arguments instead of its results' needs no more bytes. Of a cast the wider side
 * is paid, in which less is lost. Ranks exchange a sum of all micro-batches once; but each one's terms where of the sum only a part
 * is kept, so that no more is carried. */
static bool pays_before(const sglpass_micro *m, const sglir_node *node, const sglpass_micro_use *uses)
{
    double before = 0, after = 0;
    for (uint32_t r = 0; r < node->out_count; r++) {
        if (m->values[node->out_first + r].local_uses > 0) return false;
        if (m->values[node->out_first + r].whole_uses > 0)
            after += sglpass_even_bytes(m->context->plan, m->from, node->out_first + r);
    }
    if (sglir_is_exchange(node->op)) return node->op != SGLIR_OP_REDUCE_SCATTER;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (uses[i].mode == SGLPASS_USE_LOCAL && m->values[uses[i].value].whole_uses == 0)
            before += sglpass_even_bytes(m->context->plan, m->from, uses[i].value);
    }
    if (node->op == SGLIR_OP_CAST) {
        const sglir_type *x = sglir_type_of(m->from, uses[0].value), *y = sglir_type_of(m->from, node->out_first);
        return sglcore_dtype_bits((sgl_dtype)x->dtype) >= sglcore_dtype_bits((sgl_dtype)y->dtype);
    }
    return before <= after;
}

/* Nodes that only carry partial sums leave the loops where that costs nothing: what scales, packs or moves a gradient is
 * then done once, over the paid sum. Users before makers. */
static void pay_early(sglpass_micro *m)
{
    for (int64_t n = m->from->nodes.count - 1; n >= 0; n--) {
        const sglir_node *node = &m->from->nodes.data[n];
        sglpass_micro_use *uses = sglpass_micro_uses(m, n);
        bool carries = m->nodes[n].looped && node->region == 0 && node->region_count == 0;
        for (uint32_t i = 0; i < node->arg_count && carries; i++)
            carries = m->values[uses[i].value].form != SGLPASS_MICRO_SPLIT && uses[i].mode != SGLPASS_USE_SLICE &&
                      (uses[i].mode == SGLPASS_USE_WHOLE || m->values[uses[i].value].form == SGLPASS_MICRO_PARTIAL);
        if (!carries || !pays_before(m, node, uses)) continue;
        m->nodes[n].looped = false;
        for (uint32_t i = 0; i < node->arg_count; i++) {
            count_use(m, &uses[i], (uint32_t)-1);
            uses[i].mode = SGLPASS_USE_WHOLE;
            count_use(m, &uses[i], 1);
        }
        for (uint32_t r = 0; r < node->out_count; r++) {
            m->values[node->out_first + r].form = SGLPASS_MICRO_WHOLE;
            m->values[node->out_first + r].dim = -1;
        }
    }
}

/* ---- whole values that loops want locally --------------------------------------------------------------------- */

static bool may_remake(const sglir_node *node, int dim)
{
    switch (node->op) {
    case SGLIR_OP_RANDOM_UNIFORM:
    case SGLIR_OP_RANDOM_NORMAL: return dim == 0; /* rows follow one another in the counter */
    case SGLIR_OP_IOTA:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_TRANSPOSE: return true;
    default: return sglir_ops[node->op].flags & SGLIR_ELEMENTWISE;
    }
}

bool sglpass_micro_remake(const sglpass_micro *m, const sglir_node *node, int dim, sglpass_micro_use *modes)
{
    sglir_labels labels;
    if (!may_remake(node, dim)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++)
        modes[i] = (sglpass_micro_use){ .value = sglir_arg(m->from, node, i), .mode = SGLPASS_USE_WHOLE };
    if (sglir_ops[node->op].flags & SGLIR_GENERATOR) return true;
    if (!sglpass_micro_labels_of(m, node, &labels)) return false;
    int label = labels.results[0][dim];
    if (!sglpass_micro_runs_along(m, node, &labels, label)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++)
        sglpass_micro_take_along(m, &modes[i], sglpass_micro_dim_of(labels.args[i], label));
    return true;
}

/* A use of a whole value along a dimension: the first one that is met says how the value is local, others slice it for
 * themselves. (A value whose sum is paid early by now is whole as well.) */
static void want(sglpass_micro *m, sglpass_micro_use *use)
{
    sglpass_micro_value *value = &m->values[use->value];
    bool along = use->mode == SGLPASS_USE_LOCAL || use->mode == SGLPASS_USE_SLICE;
    if (!along || value->form != SGLPASS_MICRO_WHOLE) return;
    if (value->dim < 0) value->dim = use->dim;
    use->mode = value->dim == use->dim ? SGLPASS_USE_LOCAL : SGLPASS_USE_SLICE;
}

static void want_yields(sglpass_micro *m, const sglir_node *node)
{
    for (uint32_t r = 0; r < node->region_count; r++) {
        for (int64_t i = 0; i < m->from->regions.data[node->region_first + r].results.count; i++) {
            sglpass_micro_use use = sglpass_micro_yield(m, node, r, i);
            want(m, &use);
        }
    }
}

/* A node that holds regions has a larger id than all that stands in them. */
static void want_local(sglpass_micro *m)
{
    for (int64_t n = m->from->nodes.count - 1; n >= 0; n--) {
        const sglir_node *node = &m->from->nodes.data[n];
        sglpass_micro_use *uses = sglpass_micro_uses(m, n), modes[16];
        if (!m->nodes[n].live) continue;
        if (m->nodes[n].looped) {
            for (uint32_t i = 0; i < node->arg_count; i++) want(m, &uses[i]);
            want_yields(m, node);
        } else if (node->out_count == 1 && node->arg_count <= 16 &&
                   m->values[node->out_first].form == SGLPASS_MICRO_WHOLE && m->values[node->out_first].dim >= 0) {
            sglpass_micro_value *value = &m->values[node->out_first];
            value->remade = sglpass_micro_remake(m, node, value->dim, modes);
            for (uint32_t i = 0; i < node->arg_count && value->remade; i++) want(m, &modes[i]);
        }
    }
}

/* ---- the pass ------------------------------------------------------------------------------------------------ */

static sgl_status find_forms(sglpass_micro *m)
{
    const sglir_graph *g = m->from;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t v = 0; v < g->values.count; v++)
        m->values[v] = (sglpass_micro_value){
            .dim = -1, .whole_at = SGLPASS_NO_LEVEL, .gathered_in = -1, .paid_into = SGLIR_NONE
        };
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        if (!m->nodes[id].live) continue;
        bool plain = sglir_node_at(g, id)->region_count == 0;
        SGLCORE_TRY(plain ? sglpass_micro_find_form(m, id) : sglpass_micro_form_control(m, id));
    }
    count_uses(m);
    pay_early(m);
    want_local(m);
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        if (m->nodes[id].looped && sglir_node_at(g, id)->region_count > 0)
            SGLCORE_TRY(sglpass_micro_list_captures(m, id));
    }
    return SGL_OK;
}

static sgl_status split_batch(sglpass_micro *m, sglir_graph **out)
{
    SGLCORE_TRY(find_forms(m));
    SGLCORE_TRY(sglpass_micro_levels(m));
    if (m->last_level == 0)
        return sglir_rewrite_graph(m->env, m->from, "micro", NULL, NULL, out); /* nothing is split */
    return sglpass_micro_emit(m, out);
}

static sgl_status mark_live(sglpass_micro *m, uint8_t *live)
{
    SGLCORE_TRY(sglir_mark_live(m->from, live));
    for (int64_t n = 0; n < m->from->nodes.count; n++)
        m->nodes[n] = (sglpass_micro_node){ .live = live[n], .level = SGLPASS_NO_LEVEL };
    return SGL_OK;
}

static sgl_status split_graph(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglpass_micro m = { .context = context, .env = context->env, .from = in };
    SGLCORE_TRY(sglpass_find_turns(context, in, &m.turns));
    sglcore_arena arena = { .env = m.env };
    m.values = sglcore_arena_alloc(&arena, (size_t)in->values.count * sizeof *m.values);
    m.nodes = sglcore_arena_alloc(&arena, (size_t)in->nodes.count * sizeof *m.nodes);
    uint8_t *live = sglcore_arena_alloc(&arena, (size_t)in->nodes.count);
    sgl_status status = m.values == NULL || m.nodes == NULL || live == NULL ? SGL_OUT_OF_MEMORY : mark_live(&m, live);
    if (status == SGL_OK) status = split_batch(&m, out);
    sglcore_vec_free(m.env, &m.uses);
    sglcore_arena_free(&arena);
    return status;
}

sgl_status sglpass_micro_split(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglir_graph *clean; /* loops are copied whole: without what is dead in them */
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "micro", NULL, NULL, &clean));
    if (context->plan->mesh[SGLIR_AXIS_MICRO] <= 1) {
        *out = clean;
        sglpass_say(context, in, clean, false);
        return SGL_OK;
    }
    sgl_status status = split_graph(context, clean, out);
    /* Where it is split, there is a loop more. */
    if (status == SGL_OK) sglpass_say(context, in, *out, (*out)->regions.count > clean->regions.count);
    sglir_graph_free(clean);
    return status;
}
