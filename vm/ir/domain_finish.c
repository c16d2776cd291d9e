/* domain_finish.c -- the conclusions of the domain analysis: axes, their split and order, forms, and what is refused.
 *
 * In: values labelled with atoms, and which of them are results. Out: a domain over which all of them run, or the node
 * that stands in the way. Axes are numbered twice: as they are met, and at last in the order of the domain, outer ones
 * first. Odd invariant: at least one value must run over the whole domain; its own order decides the domain's. */
#include "ir/domain_parts.h"

static bool takes_part(const sglir_domain_value *value) { return value->consumed || value->source == SGLIR_COMPUTED; }

static sglir_id node_of(const sglir_domain *d, const sglir_domain_value *value)
{
    return d->g->values.data[value->value].node;
}

/* ---- axes ----------------------------------------------------------------------------------------------------- */

static bool label(sglir_domain *d, sglir_domain_value *value, uint32_t atoms[SGLIR_DOMAIN_AXES])
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int count = sglir_domain_leaves(d, value, -1, leaves);
    if (count < 0) return sglir_domain_refuse(d, node_of(d, value), "it runs over too many axes");
    value->shape = 0;
    for (int i = 0; i < count; i++) {
        sglir_domain_atom *atom = &d->atoms.data[leaves[i].atom];
        if (atom->axis < 0) {
            if (d->axes == SGLIR_DOMAIN_AXES)
                return sglir_domain_refuse(d, node_of(d, value), "its kernel would have too many axes");
            atoms[d->axes] = leaves[i].atom;
            atom->axis = d->axes++;
        }
        if (value->shape >> atom->axis & 1)
            return sglir_domain_refuse(d, node_of(d, value), "it would run over one axis twice");
        value->shape |= 1u << atom->axis;
    }
    return true;
}

/* The value in whose order the domain runs. */
static const sglir_domain_value *reference(const sglir_domain *d, const sglir_id *results, int64_t count, uint32_t all,
                                           bool given)
{
    const sglir_domain_value *widest = NULL;
    int64_t most = -1;
    if (!given) {
        for (int64_t i = 0; i < count; i++) {
            const sglir_domain_value *value = sglir_domain_find(d, results[i]);
            if (value->shape == all) return value;
        }
    }
    for (int64_t i = 0; i < d->values.count; i++) {
        const sglir_domain_value *value = &d->values.data[i];
        if (!(value->consumed || value->computes) || value->shape != all) continue; /* no step on the way to others */
        if (given) { /* whatever computation runs over is in the order of the domain; a result alone may be permuted */
            if (value->used || value->computes) return value;
            if (widest == NULL) widest = value;
            continue;
        }
        int64_t touched = value->source == SGLIR_STORED ? sglir_domain_touched(d, value) : 0;
        if (touched > most) {
            most = touched;
            widest = value;
        }
    }
    return widest;
}

/* ---- the split ------------------------------------------------------------------------------------------------ */

typedef struct split {
    uint32_t all, inner;
    bool decided;
} split;

static int64_t extent_of(const sglir_domain *d, const uint32_t *atoms, uint32_t mask)
{
    int64_t extent = 1;
    for (int i = 0; i < d->axes; i++) {
        if (mask >> i & 1) extent *= d->atoms.data[atoms[i]].extent;
    }
    return extent;
}

/* The trailing axes that are the inner dims given. */
static bool split_given(const sglir_domain *d, const sglir_domain_value *order, const sglir_domain_rule *rule, split *s)
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int64_t cols = 1;
    int empty = 0;
    s->inner = 0;
    for (int i = sglir_domain_leaves(d, order, -1, leaves) - 1; i >= 0; i--) {
        if (cols == rule->cols && empty == rule->empty) break;
        const sglir_domain_atom *atom = &d->atoms.data[leaves[i].atom];
        s->inner |= 1u << atom->axis;
        if (atom->extent == 0)
            empty++;
        else
            cols *= atom->extent;
    }
    return cols == rule->cols && empty == rule->empty;
}

static uint32_t reduced_axes(const sglir_domain *d, const sglir_domain_value *result)
{
    return d->values.data[result->argument].shape & ~result->shape;
}

bool sglir_reduces_last(const sglir_graph *g, const sglir_node *reduction)
{
    const sglir_type *x = sglir_type_of(g, sglir_arg(g, reduction, 0));
    int count, last = x->rank - 1;
    const int64_t *axes = sglir_attr_ints(g, reduction, "axes", &count);
    while (last > 0 && x->dims[last] == 1) last--;
    for (int i = 0; i < count; i++) {
        if ((axes[i] < 0 ? axes[i] + x->rank : axes[i]) == last) return true;
    }
    return false;
}

/* Row reductions whose results are used on decide; then whichever else would like to. */
static bool choose_split(sglir_domain *d, const sglir_id *results, int64_t count, const uint32_t *atoms,
                         const sglir_domain_rule *rule, split *s)
{
    for (int64_t i = 0; i < d->reductions.count; i++) {
        const sglir_domain_value *result = &d->values.data[d->reductions.data[i]];
        uint32_t gone = reduced_axes(d, result);
        if (!result->used) continue;
        if (s->decided && gone != s->inner)
            return sglir_domain_refuse(d, node_of(d, result), "it reduces other axes than its neighbours");
        if (gone == s->all && extent_of(d, atoms, gone) > rule->resident)
            return sglir_domain_refuse(d, node_of(d, result), "a total is used in the kernel that makes it");
        s->inner = gone;
        s->decided = true;
    }
    for (int64_t i = 0; i < d->reductions.count && !s->decided; i++) {
        const sglir_domain_value *result = &d->values.data[d->reductions.data[i]];
        uint32_t gone = reduced_axes(d, result);
        if (gone == s->all) continue;
        s->inner = sglir_reduces_last(d->g, sglir_node_at(d->g, node_of(d, result))) ? gone : s->all & ~gone;
        s->decided = true;
    }
    for (int64_t i = 0; i < count && !s->decided; i++) { /* a result per row */
        const sglir_domain_value *value = sglir_domain_find(d, results[i]);
        if (d->values.data[value->root].reduction != SGLIR_REDUCES_NOT) continue;
        if (value->shape == s->all || value->shape == 0) continue;
        s->inner = s->all & ~value->shape;
        s->decided = true;
    }
    return true;
}

static bool sums_floats(const sglir_domain *d, const sglir_domain_value *result)
{
    return sglir_node_at(d->g, node_of(d, result))->op == SGLIR_OP_REDUCE_SUM &&
           sglcore_dtype_is_float((sgl_dtype)sglir_type_of(d->g, result->value)->dtype);
}

/* The form of a reduction in its kernel. A sum of floats takes none but that of its own node, so that its elements are
 * added in the same order wherever it stands. */
static bool settle_reductions(sglir_domain *d, const split *s)
{
    for (int64_t i = 0; i < d->reductions.count; i++) {
        sglir_domain_value *result = &d->values.data[d->reductions.data[i]];
        uint32_t gone = reduced_axes(d, result);
        if (result->used && gone != s->inner)
            return sglir_domain_refuse(d, node_of(d, result), "it is used, but does not reduce the rows of its kernel");
        bool last = sglir_reduces_last(d->g, sglir_node_at(d->g, node_of(d, result)));
        if (gone == s->all && !result->used) {
            result->reduction = SGLIR_REDUCES_ALL;
        } else if (gone == s->inner) {
            if (gone != s->all && !last && sums_floats(d, result))
                return sglir_domain_refuse(d, node_of(d, result),
                                           "it sums columns, but they are the rows of its kernel");
            result->reduction = SGLIR_REDUCES_ROW;
        } else if (last) {
            return sglir_domain_refuse(d, node_of(d, result), "it reduces rows, but they are no rows of its kernel");
        } else if (gone == (s->all & ~s->inner)) {
            result->reduction = SGLIR_REDUCES_ROWS_AWAY;
        } else {
            return sglir_domain_refuse(d, node_of(d, result), "it reduces neither the rows nor the columns");
        }
    }
    return true;
}

static uint32_t renumber(uint32_t mask, const int *to)
{
    uint32_t out = 0;
    for (int i = 0; i < SGLIR_DOMAIN_AXES; i++) {
        if (mask >> i & 1) out |= 1u << to[i];
    }
    return out;
}

/* Outer axes first, in the order of the reference. */
static void order_axes(sglir_domain *d, const sglir_domain_value *order, const uint32_t *atoms, const split *s)
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int count = sglir_domain_leaves(d, order, -1, leaves), to[SGLIR_DOMAIN_AXES] = { 0 }, next = 0;
    for (int inner = 0; inner <= 1; inner++) {
        for (int i = 0; i < count; i++) {
            int axis = d->atoms.data[leaves[i].atom].axis;
            if ((int)(s->inner >> axis & 1) != inner) continue;
            d->extents[next] = d->atoms.data[leaves[i].atom].extent;
            to[axis] = next++;
        }
        if (inner == 0) d->outer = next;
    }
    for (int i = 0; i < d->axes; i++) d->atoms.data[atoms[i]].axis = to[i];
    for (int64_t i = 0; i < d->values.count; i++) {
        if (takes_part(&d->values.data[i])) d->values.data[i].shape = renumber(d->values.data[i].shape, to);
    }
    d->rows = d->cols = 1;
    for (int i = 0; i < d->axes; i++) *(i < d->outer ? &d->rows : &d->cols) *= d->extents[i];
}

/* ---- forms ---------------------------------------------------------------------------------------------------- */

sglir_form sglir_domain_form(const sglir_domain *d, const sglir_domain_value *value, uint32_t outer)
{
    uint32_t inner = ((1u << d->axes) - 1) & ~outer;
    bool col = (value->reach & inner) != 0;
    bool row = value->reduced || (value->reach & outer) != 0 || (col && outer == 0);
    return row ? (col ? SGLIR_FORM_FULL : SGLIR_FORM_ROW) : (col ? SGLIR_FORM_COL : SGLIR_FORM_ONE);
}

/* What the value depends on, through its node's arguments; movement shares its root's. */
static void reach(sglir_domain *d, sglir_domain_value *value)
{
    value->reach = 0;
    if (value->source != SGLIR_COMPUTED) {
        int64_t strides[SGLIR_DOMAIN_AXES];
        if (!value->consumed) return;
        sglir_domain_strides(d, value, strides);
        for (int i = 0; i < d->axes; i++) value->reach |= strides[i] != 0 ? 1u << i : 0;
        return;
    }
    const sglir_domain_value *root = &d->values.data[value->root];
    if (root != value) {
        value->reach = root->reach;
        value->reduced = root->reduced;
        return;
    }
    const sglir_node *node = sglir_node_at(d->g, node_of(d, value));
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_domain_value *arg = sglir_domain_find(d, sglir_arg(d->g, node, i));
        value->reach |= arg->reach;
        value->reduced = value->reduced || arg->reduced;
    }
    if (value->reduction == SGLIR_REDUCES_NOT) return;
    value->reach &= value->shape;
    value->reduced = value->reduction == SGLIR_REDUCES_ROW;
}

/* ---- checks --------------------------------------------------------------------------------------------------- */

static bool check_sources(sglir_domain *d)
{
    for (int64_t i = 0; i < d->values.count; i++) {
        const sglir_domain_value *value = &d->values.data[i];
        if (value->source == SGLIR_PIECES && value->consumed) {
            if (d->axes != 1)
                return sglir_domain_refuse(d, node_of(d, value), "it is read in pieces: only alone, in 1-D");
            for (int64_t k = 0; k < d->reductions.count; k++) {
                if (d->values.data[d->reductions.data[k]].reduction == SGLIR_REDUCES_ROW)
                    return sglir_domain_refuse(d, node_of(d, value),
                                               "it is read in pieces: not where rows are reduced");
            }
        }
        if (value->source != SGLIR_NOISE || value->base != value->value) continue;
        const sglir_node *node = sglir_node_at(d->g, node_of(d, value));
        for (uint32_t k = 0; k < node->arg_count; k++) {
            const sglir_domain_value *arg = sglir_domain_find(d, sglir_arg(d->g, node, k));
            if (arg->reach != 0 || arg->reduced)
                return sglir_domain_refuse(d, node_of(d, value), "its seed, step or offset is not one number");
        }
    }
    return true;
}

/* The elements of a sum of floats stand in the domain in the order in which its argument has them. */
static bool check_sums(sglir_domain *d)
{
    for (int64_t i = 0; i < d->reductions.count; i++) {
        const sglir_domain_value *result = &d->values.data[d->reductions.data[i]];
        int axes[SGLIR_DOMAIN_AXES], last = -1;
        int count = sglir_domain_order(d, &d->values.data[result->argument], -1, axes);
        for (int k = 0; k < count && sums_floats(d, result); k++) {
            if (result->shape >> axes[k] & 1) continue;
            if (axes[k] < last)
                return sglir_domain_refuse(d, node_of(d, result),
                                           "it sums elements that its kernel has in another order");
            last = axes[k];
        }
    }
    return true;
}

/* Where no computation runs over the whole domain, a result alone tells the order of the domain, so it must be in it. */
static bool check_order(sglir_domain *d, const sglir_domain_value *order)
{
    int axes[SGLIR_DOMAIN_AXES], count = sglir_domain_order(d, order, -1, axes);
    for (int64_t i = 0; i < d->values.count; i++) {
        const sglir_domain_value *value = &d->values.data[i];
        if (takes_part(value) && value->shape == order->shape && (value->used || value->computes)) return true;
    }
    for (int i = 1; i < count; i++) {
        if (axes[i] < axes[i - 1])
            return sglir_domain_refuse(d, node_of(d, order), "its order would be that of no computation");
    }
    return true;
}

static bool check_result(sglir_domain *d, const sglir_domain_value *value)
{
    const sglir_domain_value *root = &d->values.data[value->root];
    uint32_t all = (1u << d->axes) - 1, outer = (1u << d->outer) - 1;
    if (root->reduction == SGLIR_REDUCES_ALL && value->shape == 0) return true;
    if (root->reduction == SGLIR_REDUCES_ROWS_AWAY) {
        int axes[SGLIR_DOMAIN_AXES], count = sglir_domain_order(d, value, -1, axes);
        for (int i = 1; i < count; i++) {
            if (axes[i] < axes[i - 1])
                return sglir_domain_refuse(d, node_of(d, value), "a column sum is stored in another order");
        }
        return value->shape == (all & ~outer) ||
               sglir_domain_refuse(d, node_of(d, value), "a column sum is stored with other dimensions than its own");
    }
    if (value->shape == all) return true;
    if (!d->free && value->shape == outer && (outer != 0 || value->reduced)) return true;
    return sglir_domain_refuse(d, node_of(d, value),
                               "it is stored, but runs neither over the domain nor over its rows");
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

static bool draw_split(sglir_domain *d, const sglir_id *results, int64_t count, const sglir_domain_value *order,
                       const uint32_t *atoms, const sglir_domain_rule *rule, split *s)
{
    for (int64_t i = 0; i < d->reductions.count; i++) {
        const sglir_domain_value *result = &d->values.data[d->reductions.data[i]];
        if (d->values.data[result->argument].shape != s->all)
            return sglir_domain_refuse(d, node_of(d, result), "it reduces a part of the domain");
    }
    if (!choose_split(d, results, count, atoms, rule, s)) return false;
    d->free = !s->decided;
    if (d->free) {
        s->inner = s->all;
    } else if (rule->cols >= 0 && !split_given(d, order, rule, s)) {
        return sglir_domain_refuse(d, node_of(d, order), "the inner dimensions given do not fit its shape");
    }
    return settle_reductions(d, s);
}

bool sglir_domain_finish(sglir_domain *d, const sglir_id *results, int64_t count, const sglir_domain_rule *rule)
{
    for (int64_t i = 0; i < count; i++) {
        if (sglir_domain_consume(d, results[i]) == SGLIR_NONE) return false;
    }
    uint32_t atoms[SGLIR_DOMAIN_AXES];
    for (int64_t i = 0; i < d->values.count; i++) {
        if (takes_part(&d->values.data[i]) && !label(d, &d->values.data[i], atoms)) return false;
    }
    split s = { .all = (1u << d->axes) - 1 };
    const sglir_domain_value *order = reference(d, results, count, s.all, rule->cols >= 0);
    if (order == NULL)
        return sglir_domain_refuse(d,
                                   d->values.count > 0 ? node_of(d, &d->values.data[d->values.count - 1]) : SGLIR_NONE,
                                   "no value runs over all that its neighbours run over");
    if (!draw_split(d, results, count, order, atoms, rule, &s)) return false;
    order_axes(d, order, atoms, &s);
    for (int64_t i = 0; i < d->values.count; i++) reach(d, &d->values.data[i]);
    for (int64_t i = 0; i < d->values.count; i++)
        d->values.data[i].form = (uint8_t)sglir_domain_form(d, &d->values.data[i], (1u << d->outer) - 1);
    if (!check_sources(d) || !check_sums(d) || !check_order(d, order)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!check_result(d, sglir_domain_find(d, results[i]))) return false;
    }
    return true;
}

/* ---- queries -------------------------------------------------------------------------------------------------- */

int sglir_domain_order(const sglir_domain *d, const sglir_domain_value *value, int dim, int axes[SGLIR_DOMAIN_AXES])
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int count = sglir_domain_leaves(d, value, dim, leaves);
    for (int i = 0; i < count; i++) axes[i] = d->atoms.data[leaves[i].atom].axis;
    return count;
}

void sglir_domain_strides(const sglir_domain *d, const sglir_domain_value *value, int64_t strides[SGLIR_DOMAIN_AXES])
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int count = sglir_domain_leaves(d, value, -1, leaves);
    for (int i = 0; i < SGLIR_DOMAIN_AXES; i++) strides[i] = 0;
    for (int i = 0; i < count; i++) strides[d->atoms.data[leaves[i].atom].axis] = leaves[i].stride;
}

int64_t sglir_domain_touched(const sglir_domain *d, const sglir_domain_value *value)
{
    int64_t touched = 1;
    for (uint32_t t = 0; t < value->term_count; t++) {
        const sglir_domain_term *term = &d->terms.data[value->term_first + t];
        if (term->stride != 0) touched *= term->extent;
    }
    return touched;
}
