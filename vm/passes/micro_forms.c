/* micro_forms.c -- what form each value of a step has over the micro axis: whole, split along a dimension, partial, or the
 * same in every micro-batch.
 *
 * In: nodes, makers before users; the labels of ops.def, which say how forms go through an op, and the column `linear`,
 * which says what bears a partial argument. Out: the forms of what the nodes make, and how they take their arguments.
 * Nodes with regions are micro_region.c's, which asks here about the nodes within. Odd invariant: a form says how a value
 * can be made, not that it is needed so; a node that no rule fits takes whole values and stands outside of the loops. */
#include "passes/micro.h"

/* ---- splits ------------------------------------------------------------------------------------------------- */

int sglpass_micro_dim_of(const int8_t *labels, int label)
{
    for (int d = 0; d < SGL_MAX_RANK; d++) {
        if (labels[d] == label) return d;
    }
    return -1;
}

static bool divides(const sglpass_micro *m, sglir_id value, int dim)
{
    return sglpass_turns_divide(&m->turns, sglir_type_of(m->from, value)->dims[dim]);
}

/* The extent that all ranks' parts make together. */
static int64_t whole_extent(const sglpass_micro *m, sglir_id value, int dim)
{
    const sglir_whole *whole = sglir_whole_of(m->from, value);
    return whole ? whole->dims[dim] : sglir_type_of(m->from, value)->dims[dim];
}

/* Whether along the label any value of the node is, for all ranks together, more than one element. */
static bool is_long(const sglpass_micro *m, const sglir_node *node, const sglir_labels *labels, int label)
{
    for (uint32_t r = 0; r < node->out_count; r++) {
        const int dim = sglpass_micro_dim_of(labels->results[r], label);
        if (dim >= 0 && whole_extent(m, node->out_first + r, dim) > 1) return true;
    }
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const int dim = sglpass_micro_dim_of(labels->args[i], label);
        if (dim >= 0 && whole_extent(m, sglir_arg(m->from, node, i), dim) > 1) return true;
    }
    return false;
}

bool sglpass_micro_labels_of(const sglpass_micro *m, const sglir_node *node, sglir_labels *labels)
{
    if (!sglir_labels_of(m->from, node, labels)) return false;
    if (m->turns.even || m->turns.unit > 1) return true;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_id arg = sglir_arg(m->from, node, i);
        for (int dim = 0; dim < sglir_type_of(m->from, arg)->rank; dim++) {
            int8_t *label = &labels->args[i][dim];
            if (*label >= 0 && whole_extent(m, arg, dim) == 1 && is_long(m, node, labels, *label)) *label = -1;
        }
    }
    return true;
}

bool sglpass_micro_runs_along(const sglpass_micro *m, const sglir_node *node, const sglir_labels *labels, int label)
{
    if (label < 0 || (labels->refused >> label & 1)) return false;
    for (uint32_t r = 0; r < node->out_count; r++) {
        int dim = sglpass_micro_dim_of(labels->results[r], label);
        if (dim >= 0 ? !divides(m, node->out_first + r, dim) : !(labels->summed >> label & 1)) return false;
    }
    for (uint32_t i = 0; i < node->arg_count; i++) {
        int dim = sglpass_micro_dim_of(labels->args[i], label);
        if (dim >= 0 && !divides(m, sglir_arg(m->from, node, i), dim)) return false;
    }
    return true;
}

void sglpass_micro_take_along(const sglpass_micro *m, sglpass_micro_use *use, int dim)
{
    const sglpass_micro_value *value = &m->values[use->value];
    use->mode = dim < 0 && value->form == SGLPASS_MICRO_SAME ? SGLPASS_USE_LOCAL : SGLPASS_USE_WHOLE;
    use->dim = (int8_t)dim;
    if (dim < 0) return;
    bool wanted_so = value->form == SGLPASS_MICRO_WHOLE && (value->dim < 0 || value->dim == dim);
    bool fits = wanted_so || (value->form == SGLPASS_MICRO_SPLIT && value->dim == dim);
    use->mode = fits ? SGLPASS_USE_LOCAL : SGLPASS_USE_SLICE;
}

static void put_split(sglpass_micro *m, const sglir_node *node, uint32_t result, int dim)
{
    m->values[node->out_first + result].form = dim < 0 ? SGLPASS_MICRO_PARTIAL : SGLPASS_MICRO_SPLIT;
    m->values[node->out_first + result].dim = (int8_t)dim;
}

/* Concat joins any number of arguments; it runs along the other dimensions. */
static bool split_concat(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    int dim = -1, axis = (int)sglir_attr_int(m->from, node, "axis");
    for (uint32_t i = 0; i < node->arg_count && dim < 0; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        if (value->form == SGLPASS_MICRO_SPLIT && value->dim != axis) dim = value->dim;
    }
    if (dim < 0) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) sglpass_micro_take_along(m, &uses[i], dim);
    put_split(m, node, 0, dim);
    return true;
}

/* Runs the node along the label of its first split argument that allows it. */
static bool split_node(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    sglir_labels labels;
    if (node->op == SGLIR_OP_CONCAT) return split_concat(m, node, uses);
    if (!sglpass_micro_labels_of(m, node, &labels)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        if (value->form != SGLPASS_MICRO_SPLIT) continue;
        int label = labels.args[i][value->dim];
        if (!sglpass_micro_runs_along(m, node, &labels, label)) continue;
        for (uint32_t k = 0; k < node->arg_count; k++)
            sglpass_micro_take_along(m, &uses[k], sglpass_micro_dim_of(labels.args[k], label));
        for (uint32_t r = 0; r < node->out_count; r++)
            put_split(m, node, r, sglpass_micro_dim_of(labels.results[r], label));
        return true;
    }
    return false;
}

/* ---- sums that are owed -------------------------------------------------------------------------------------- */

/* Whether the node is linear in just those arguments that are partial, or zeros that may become so. */
static bool bears_partial(const sglpass_micro *m, const sglir_node *node, const sglpass_micro_use *uses)
{
    if (node->op == SGLIR_OP_CAST && !sglcore_dtype_is_float((sgl_dtype)sglir_attr_int(m->from, node, "to")))
        return false;
    bool fills = node->op == SGLIR_OP_PAD || node->op == SGLIR_OP_WINDOWS;
    if (fills && sglir_attr_float(m->from, node, "value") != 0) return false;
    for (const char *group = sglir_ops[node->op].linear; *group; group = sglir_linear_next(group)) {
        bool fits = true;
        for (uint32_t i = 0; i < node->arg_count && fits; i++) {
            const sglpass_micro_value *value = &m->values[uses[i].value];
            bool partial = value->form == SGLPASS_MICRO_PARTIAL;
            fits = sglir_linear_has(group, i) ? partial || value->zero : !partial;
        }
        if (fits) return true;
    }
    return false;
}

static void carry_partial(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglpass_micro_take_along(m, &uses[i], -1);
        if (m->values[uses[i].value].form == SGLPASS_MICRO_PARTIAL) uses[i].mode = SGLPASS_USE_LOCAL;
    }
    for (uint32_t r = 0; r < node->out_count; r++) put_split(m, node, r, -1);
}

/* ---- what is the same everywhere ------------------------------------------------------------------------------ */

/* A number made of numbers that are the same in every micro-batch is made where they are. */
static bool keep_same(sglpass_micro *m, const sglir_node *node, sglpass_micro_use *uses)
{
    bool number = node->out_count == 1 && sglir_type_of(m->from, node->out_first)->rank == 0;
    if (!number || !(sglir_ops[node->op].flags & SGLIR_ELEMENTWISE)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) sglpass_micro_take_along(m, &uses[i], -1);
    m->values[node->out_first].form = SGLPASS_MICRO_SAME;
    return true;
}

/* ---- one node ------------------------------------------------------------------------------------------------ */

static sgl_status push_use(sglpass_micro *m, sglir_id value)
{
    return sglcore_vec_push(m->env, &m->uses, (sglpass_micro_use){ .value = value, .mode = SGLPASS_USE_WHOLE });
}

sgl_status sglpass_micro_list_args(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    m->nodes[id].use_first = (uint32_t)m->uses.count;
    for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(push_use(m, sglir_arg(m->from, node, i)));
    m->nodes[id].use_count = node->arg_count;
    return SGL_OK;
}

static sgl_status split_feed(sglpass_micro *m, const sglir_node *node)
{
    if (sglir_attr_int(m->from, node, "role") == SGL_FEED && sglir_type_of(m->from, node->out_first)->rank > 0)
        put_split(m, node, 0, 0);
    return SGL_OK;
}

sgl_status sglpass_micro_find_form(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    if (m->nodes[id].use_count != node->arg_count) SGLCORE_TRY(sglpass_micro_list_args(m, id));
    if (node->op == SGLIR_OP_INPUT) return split_feed(m, node);
    sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    bool split = false, partial = false, same = false, zero = false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        uses[i].mode = SGLPASS_USE_WHOLE;
        split = split || value->form == SGLPASS_MICRO_SPLIT;
        partial = partial || value->form == SGLPASS_MICRO_PARTIAL;
        same = same || value->form == SGLPASS_MICRO_SAME;
        zero = zero || value->zero;
    }
    for (uint32_t r = 0; r < node->out_count; r++) sglpass_micro_put(m, node->out_first + r, SGLPASS_MICRO_WHOLE, -1);
    m->nodes[id].looped = false;
    if (split) {
        m->nodes[id].looped = split_node(m, node, uses);
    } else if (partial && bears_partial(m, node, uses)) {
        m->nodes[id].looped = true;
        carry_partial(m, node, uses);
    } else if (same && !partial && node->region == 0) {
        m->nodes[id].looped = keep_same(m, node, uses);
    } else if (zero && !partial) {
        bool bears = bears_partial(m, node, uses);
        for (uint32_t r = 0; r < node->out_count; r++) m->values[node->out_first + r].zero = bears;
    }
    return SGL_OK;
}

void sglpass_micro_put(sglpass_micro *m, sglir_id value, sglpass_micro_form form, int dim)
{
    m->values[value].form = (uint8_t)form;
    m->values[value].dim = (int8_t)dim;
    m->values[value].zero = false;
}
