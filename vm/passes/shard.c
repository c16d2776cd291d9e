/* shard.c -- layouts; today the micro axis: a step over the whole batch becomes loops over micro-batches.
 *
 * In: a step graph over the whole batch, plan->mesh[MICRO] = n. Out: the same mathematics, the batch dimension (dimension
 * 0 of every feed) cut into n parts that loops (SCAN) go through one after another.
 *   forms   a value is whole, split along a dimension, or partial (a sum over micro-batches owed); the labels of ops.def
 *           say how forms go through a node, the column `linear` what bears a partial one
 *   levels  what needs a whole value waits for the end of the loop that makes it: the count of valid tokens in a first
 *           loop, forward and backward in a second, the optimizer after it. Everything goes as late as it can, so the
 *           forward pass stands in one loop only; what two loops need is made twice when cheap, else kept
 *   emit    feeds are sliced in the loop; sums are paid by ACCUMULATE into a carry, parts written into one by
 *           DYNAMIC_UPDATE
 * Odd invariant: the numbers are those of the unsplit graph up to the order of sums, however unevenly the valid tokens
 * lie, because no node divides here: a mean is a sum and a count in the graph. */
#include <string.h>

#include "passes/shard.h"

/* ---- uses --------------------------------------------------------------------------------------------------- */

static sgl_status push_use(sglpass_micro *m, sglir_id value)
{
    return sglcore_vec_push(m->env, &m->uses, (sglpass_micro_use){ .value = value, .mode = SGLPASS_USE_WHOLE });
}

/* What a region uses from the top one. */
static sgl_status push_captures(sglpass_micro *m, sglir_id id)
{
    const sglir_graph *g = m->from;
    const sglir_region *region = &g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (sglir_value_at(g, sglir_arg(g, node, i))->region == 0) SGLCORE_TRY(push_use(m, sglir_arg(g, node, i)));
        }
        for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(push_captures(m, node->region_first + r));
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        if (sglir_value_at(g, region->results.data[i])->region == 0) SGLCORE_TRY(push_use(m, region->results.data[i]));
    }
    return SGL_OK;
}

static sgl_status list_uses(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    m->nodes[id].use_first = (uint32_t)m->uses.count;
    for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(push_use(m, sglir_arg(m->from, node, i)));
    for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(push_captures(m, node->region_first + r));
    m->nodes[id].use_count = (uint32_t)m->uses.count - m->nodes[id].use_first;
    return SGL_OK;
}

/* ---- splits ------------------------------------------------------------------------------------------------- */

static int dim_of(const int8_t *labels, int label)
{
    for (int d = 0; d < SGL_MAX_RANK; d++) {
        if (labels[d] == label) return d;
    }
    return -1;
}

static bool divides(const sglpass_micro *m, sglir_id value, int dim)
{
    return sglir_type_of(m->from, value)->dims[dim] % m->parts == 0;
}

/* Whether the node can run along the label, each micro-batch for itself. */
static bool runs_along(const sglpass_micro *m, const sglir_node *node, const sglir_labels *labels, int label)
{
    if (label < 0 || (labels->refused >> label & 1)) return false;
    for (uint32_t r = 0; r < node->out_count; r++) {
        int dim = dim_of(labels->results[r], label);
        if (dim >= 0 ? !divides(m, node->out_first + r, dim) : !(labels->summed >> label & 1)) return false;
    }
    for (uint32_t i = 0; i < node->arg_count; i++) {
        int dim = dim_of(labels->args[i], label);
        if (dim >= 0 && !divides(m, sglir_arg(m->from, node, i), dim)) return false;
    }
    return true;
}

/* An argument that is needed along `dim`; -1: whole. */
static void take_along(const sglpass_micro *m, sglpass_micro_use *use, int dim)
{
    const sglpass_micro_value *value = &m->values[use->value];
    use->mode = SGLPASS_USE_WHOLE;
    if (dim < 0) return;
    bool fits = value->form == SGLPASS_WHOLE || (value->form == SGLPASS_SPLIT && value->dim == dim);
    use->mode = fits ? SGLPASS_USE_LOCAL : SGLPASS_USE_SLICE;
    use->dim = (int8_t)dim;
}

static void put_split(sglpass_micro *m, const sglir_node *node, uint32_t result, int dim)
{
    m->values[node->out_first + result].form = dim < 0 ? SGLPASS_PARTIAL : SGLPASS_SPLIT;
    m->values[node->out_first + result].dim = (int8_t)dim;
}

/* Concat joins any number of arguments; it runs along the other dimensions. */
static bool split_concat(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    int dim = -1, axis = (int)sglir_attr_int(m->from, node, "axis");
    for (uint32_t i = 0; i < node->arg_count && dim < 0; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        if (value->form == SGLPASS_SPLIT && value->dim != axis) dim = value->dim;
    }
    if (dim < 0) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) take_along(m, &uses[i], dim);
    put_split(m, node, 0, dim);
    return true;
}

/* Runs the node along the label of its first split argument that allows it. */
static bool split_node(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    sglir_labels labels;
    if (node->op == SGLIR_OP_CONCAT) return split_concat(m, node, uses);
    if (!sglir_labels_of(m->from, node, &labels)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        if (value->form != SGLPASS_SPLIT) continue;
        int label = labels.args[i][value->dim];
        if (!runs_along(m, node, &labels, label)) continue;
        for (uint32_t k = 0; k < node->arg_count; k++) take_along(m, &uses[k], dim_of(labels.args[k], label));
        for (uint32_t r = 0; r < node->out_count; r++) put_split(m, node, r, dim_of(labels.results[r], label));
        return true;
    }
    return false;
}

/* ---- sums that are owed -------------------------------------------------------------------------------------- */

static bool in_group(const char *group, size_t length, uint32_t arg)
{
    for (size_t i = 0; i < length; i++) {
        if (group[i] == '*' || (uint32_t)(group[i] - '0') == arg) return true;
    }
    return false;
}

/* Whether the node is linear in just those arguments that are partial. */
static bool bears_partial(const sglpass_micro *m, const sglir_node *node, const sglpass_micro_use *uses)
{
    const char *group = sglir_ops[node->op].linear;
    if (node->op == SGLIR_OP_CAST && !sglcore_dtype_is_float((sgl_dtype)sglir_attr_int(m->from, node, "to")))
        return false;
    bool fills = node->op == SGLIR_OP_PAD || node->op == SGLIR_OP_WINDOWS;
    if (fills && sglir_attr_float(m->from, node, "value") != 0) return false;
    while (*group != '\0') {
        size_t length = strcspn(group, "|");
        bool fits = true;
        for (uint32_t i = 0; i < node->arg_count && fits; i++)
            fits = (m->values[uses[i].value].form == SGLPASS_PARTIAL) == in_group(group, length, i);
        if (fits) return true;
        group += length + (group[length] == '|');
    }
    return false;
}

static void carry_partial(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (m->values[uses[i].value].form == SGLPASS_PARTIAL) uses[i].mode = SGLPASS_USE_LOCAL;
    }
    for (uint32_t r = 0; r < node->out_count; r++) put_split(m, node, r, -1);
}

/* ---- forms, in order ----------------------------------------------------------------------------------------- */

static sgl_status split_feed(sglpass_micro *m, const sglir_node *node)
{
    const sglir_type *type = sglir_type_of(m->from, node->out_first);
    if (sglir_attr_int(m->from, node, "role") != SGL_FEED || type->rank == 0) return SGL_OK;
    if (type->dims[0] % m->parts != 0)
        return sglcore_fail(
            m->env, SGL_INVALID_ARGUMENT,
            "shard: the feed '%s' has %lld rows, which is no multiple of the plan's %lld micro-batches; "
            "change its first extent or the plan's micro",
            sglir_attr_string(m->from, node, "name"), (long long)type->dims[0], (long long)m->parts);
    put_split(m, node, 0, 0);
    return SGL_OK;
}

static sgl_status find_form(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    SGLCORE_TRY(list_uses(m, id));
    if (node->op == SGLIR_OP_INPUT) return split_feed(m, node);
    sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    bool split = false, partial = false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        split = split || m->values[uses[i].value].form == SGLPASS_SPLIT;
        partial = partial || m->values[uses[i].value].form == SGLPASS_PARTIAL;
    }
    if (node->region_count > 0 || (!split && !partial)) return SGL_OK;
    if (split) {
        m->nodes[id].looped = split_node(m, node, uses);
    } else if (bears_partial(m, node, uses)) {
        m->nodes[id].looped = true;
        carry_partial(m, node, uses);
    }
    return SGL_OK;
}

static void count_use(sglpass_micro *m, const sglpass_micro_use *use, uint32_t change)
{
    if (use->mode == SGLPASS_USE_LOCAL)
        m->values[use->value].local_uses += change;
    else
        m->values[use->value].whole_uses += change;
}

/* ---- sums paid early or late ---------------------------------------------------------------------------------- */

/* Whether paying the sums of the node's arguments instead of its results' needs no more bytes. Of a cast the wider side
 * is paid, in which less is lost. */
static bool pays_before(const sglpass_micro *m, const sglir_node *node, const sglpass_micro_use *uses)
{
    int64_t before = 0, after = 0;
    for (uint32_t r = 0; r < node->out_count; r++) {
        if (m->values[node->out_first + r].local_uses > 0) return false;
        if (m->values[node->out_first + r].whole_uses > 0)
            after += sglir_bytes(sglir_type_of(m->from, node->out_first + r));
    }
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (uses[i].mode == SGLPASS_USE_LOCAL && m->values[uses[i].value].whole_uses == 0)
            before += sglir_bytes(sglir_type_of(m->from, uses[i].value));
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
        bool carries = m->nodes[n].looped;
        for (uint32_t i = 0; i < node->arg_count && carries; i++)
            carries = m->values[uses[i].value].form != SGLPASS_SPLIT && uses[i].mode != SGLPASS_USE_SLICE &&
                      (uses[i].mode == SGLPASS_USE_WHOLE || m->values[uses[i].value].form == SGLPASS_PARTIAL);
        if (!carries || !pays_before(m, node, uses)) continue;
        m->nodes[n].looped = false;
        for (uint32_t i = 0; i < node->arg_count; i++) {
            count_use(m, &uses[i], (uint32_t)-1);
            uses[i].mode = SGLPASS_USE_WHOLE;
            count_use(m, &uses[i], 1);
        }
        for (uint32_t r = 0; r < node->out_count; r++) {
            m->values[node->out_first + r].form = SGLPASS_WHOLE;
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
    if (!sglir_labels_of(m->from, node, &labels)) return false;
    int label = labels.results[0][dim];
    if (!runs_along(m, node, &labels, label)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        int at = dim_of(labels.args[i], label);
        take_along(m, &modes[i], at);
        const sglpass_micro_value *value = &m->values[modes[i].value];
        if (modes[i].mode == SGLPASS_USE_LOCAL && value->form == SGLPASS_WHOLE && value->dim >= 0 && value->dim != at)
            modes[i].mode = SGLPASS_USE_SLICE;
    }
    return true;
}

/* A use of a whole value along a dimension: the first one that is met says how the value is local, others slice it for
 * themselves. (A value whose sum is paid early by now is whole as well.) */
static void want(sglpass_micro *m, sglpass_micro_use *use)
{
    sglpass_micro_value *value = &m->values[use->value];
    if (use->mode == SGLPASS_USE_WHOLE || value->form != SGLPASS_WHOLE) return;
    if (value->dim < 0) value->dim = use->dim;
    use->mode = value->dim == use->dim ? SGLPASS_USE_LOCAL : SGLPASS_USE_SLICE;
}

static void want_local(sglpass_micro *m)
{
    for (int64_t n = m->from->nodes.count - 1; n >= 0; n--) {
        const sglir_node *node = &m->from->nodes.data[n];
        sglpass_micro_use *uses = sglpass_micro_uses(m, n), modes[16];
        if (!m->nodes[n].live || node->region != 0) continue;
        if (m->nodes[n].looped) {
            for (uint32_t i = 0; i < node->arg_count; i++) want(m, &uses[i]);
        } else if (node->out_count == 1 && node->arg_count <= 16 && m->values[node->out_first].form == SGLPASS_WHOLE &&
                   m->values[node->out_first].dim >= 0) {
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
        if (m->nodes[id].live) SGLCORE_TRY(find_form(m, id));
    }
    for (int64_t i = 0; i < m->uses.count; i++) count_use(m, &m->uses.data[i], 1);
    for (int64_t i = 0; i < g->outputs.count; i++) m->values[g->outputs.data[i].value].whole_uses++;
    pay_early(m);
    want_local(m);
    return SGL_OK;
}

static sgl_status split_batch(sglpass_micro *m, sglir_graph **out)
{
    SGLCORE_TRY(find_forms(m));
    SGLCORE_TRY(sglpass_micro_levels(m));
    if (m->last_level == 0)
        return sglir_rewrite_graph(m->env, m->from, "shard", NULL, NULL, out); /* nothing is split */
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
    sglpass_micro m = {
        .context = context, .env = context->env, .from = in, .parts = context->plan->mesh[SGLIR_AXIS_MICRO]
    };
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

sgl_status sglpass_shard(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglir_graph *clean; /* loops are copied whole: without what is dead in them */
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "shard", NULL, NULL, &clean));
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
