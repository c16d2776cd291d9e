/* labels.c -- which dimensions of an op's arguments and results run together, as einsum labels: column labels of ops.def.
 *
 * In: a view of a node: op, types, attributes. Out: a label per dimension, -1 where it cannot be split; labels that are
 * summed over, labels that are refused. Odd invariant: a summed label makes those results partial in which it does not
 * stand, so a rule may mark a label as summed only when the op is a plain sum over it. */
#include "ir/labels.h"

static bool contains(const sglir_named *list, int64_t value)
{
    for (int64_t i = 0; i < list->i; i++) {
        if (list->ints[i] == value) return true;
    }
    return false;
}

bool sglir_labels_none(const sglir_view *v, sglir_labels *l)
{
    (void)v, (void)l;
    return false;
}

bool sglir_labels_elementwise(const sglir_view *v, sglir_labels *l)
{
    int rank = v->results[0]->rank;
    sglir_label_row(l, l->results[0], rank);
    for (int i = 0; i < v->arg_count; i++) sglir_label_copy(l->args[i], l->results[0], rank);
    return true;
}

bool sglir_labels_reduce(const sglir_view *v, sglir_labels *l)
{
    const sglir_named *axes = sglir_label_attr(v, "axes");
    bool keep = sglir_label_attr(v, "keep")->i != 0;
    int at = 0;
    for (int i = 0; i < v->args[0]->rank; i++) {
        bool reduced = contains(axes, i);
        /* A mean over parts would divide by the local count, and a type has no word for an owed maximum or product. */
        int label = !reduced                       ? sglir_label(l)
                    : v->op == SGLIR_OP_REDUCE_SUM ? sglir_label_summed(l)
                                                   : sglir_label_refused(l);
        l->args[0][i] = (int8_t)label;
        if (!reduced) l->results[0][at] = (int8_t)label;
        if (!reduced || keep) at++;
    }
    return true;
}

static bool is_split(const sglir_type *type, int dim)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] == dim) return true;
    }
    return false;
}

/* Whether the layout says to which dim of the result each part of this one goes. */
static bool is_said(const sglir_type *type, const sglir_named *layout, int dim)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] == dim && (axis >= layout->i || layout->ints[axis] < 0)) return false;
    }
    return true;
}

/* The dim of dims first..stop-1 along which a run of dims is split: the first that is split already, because a local
 * extent of 1 may be a part of more (where the layout does not say), else the first that is longer than 1; -1: none. */
static int leader(const sglir_type *type, const sglir_named *layout, int first, int stop)
{
    for (int i = first; i < stop; i++) {
        if (is_split(type, i) && !(type->dims[i] == 1 && is_said(type, layout, i))) return i;
        if (type->dims[i] != 1) return i;
    }
    return -1;
}

/* Row-major order keeps runs of dims with equal products together; of each run the leading dims run together. */
static void label_runs(const sglir_type *x, const sglir_type *y, const sglir_named *layout, sglir_labels *l)
{
    int i = 0, j = 0;
    while (i < x->rank || j < y->rank) {
        int first_i = i, first_j = j;
        int64_t of_x = i < x->rank ? x->dims[i++] : 1, of_y = j < y->rank ? y->dims[j++] : 1;
        while (of_x != of_y) {
            if (of_x < of_y)
                of_x *= x->dims[i++];
            else
                of_y *= y->dims[j++];
        }
        int lead_x = leader(x, layout, first_i, i);
        if (lead_x < 0) continue;
        int lead_y = leader(y, layout, first_j, j);
        if (lead_y < 0) lead_y = j > first_j ? first_j : -1;
        int label = lead_y < 0 ? sglir_label_refused(l) : sglir_label(l);
        l->args[0][lead_x] = (int8_t)label;
        if (lead_y >= 0) l->results[0][lead_y] = (int8_t)label;
    }
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The extents other than 0, multiplied; the dim that is 0, -1: there are several. */
static int64_t product_but_zero(const sglir_type *type, int *zero)
{
    int64_t product = 1, zeros = 0;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] != 0) {
            product *= type->dims[i];
            continue;
        }
        zeros++;
        *zero = i;
    }
    if (zeros != 1) *zero = -1;
    return product;
}

/* Of what has no elements products say nothing. It runs as it would with the fewest that there can be: as on a rank that has some. */
static void label_empty(const sglir_type *x, const sglir_type *y, const sglir_named *layout, sglir_labels *l)
{
    sglir_type least_x = *x, least_y = *y;
    int zero_x = -1, zero_y = -1;
    const int64_t of_x = product_but_zero(x, &zero_x), of_y = product_but_zero(y, &zero_y);
    if (zero_x < 0 || zero_y < 0) return;
    least_x.dims[zero_x] = of_y / common_divisor(of_x, of_y);
    least_y.dims[zero_y] = of_x / common_divisor(of_x, of_y);
    label_runs(&least_x, &least_y, layout, l);
}

bool sglir_labels_reshape(const sglir_view *v, sglir_labels *l)
{
    const sglir_type *x = v->args[0], *y = v->results[0];
    bool empty = sglir_elements(x) == 0;
    /* Says which dim it is where extents of 0 and 1 do not. */
    const sglir_named *layout = sglir_label_attr(v, "layout");
    if (empty)
        label_empty(x, y, layout, l);
    else
        label_runs(x, y, layout, l);
    for (int axis = 0; axis < layout->i && axis < SGLIR_AXIS_COUNT; axis++) {
        int from = x->sharded[axis], to = (int)layout->ints[axis];
        if (from < 0 || to < 0 || to >= y->rank || (x->dims[from] > 1 && !empty)) continue;
        l->args[0][from] = l->results[0][to] = (int8_t)sglir_label(l);
    }
    return true;
}

bool sglir_labels_broadcast(const sglir_view *v, sglir_labels *l)
{
    const sglir_type *x = v->args[0], *y = v->results[0];
    int lead = y->rank - x->rank;
    sglir_label_row(l, l->results[0], y->rank);
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == y->dims[lead + i]) l->args[0][i] = l->results[0][lead + i];
    }
    return true;
}

bool sglir_labels_transpose(const sglir_view *v, sglir_labels *l)
{
    const sglir_named *order = sglir_label_attr(v, "order");
    sglir_label_row(l, l->args[0], v->args[0]->rank);
    for (int64_t i = 0; i < order->i; i++) l->results[0][i] = l->args[0][order->ints[i]];
    return true;
}

/* slice, pad: the axis itself cannot be split. */
bool sglir_labels_slice(const sglir_view *v, sglir_labels *l)
{
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->args[0], rank);
    sglir_label_copy(l->results[0], l->args[0], rank);
    l->refused |= 1u << l->args[0][sglir_label_attr(v, "axis")->i];
    return true;
}

bool sglir_labels_concat(const sglir_view *v, sglir_labels *l)
{
    int rank = v->results[0]->rank;
    sglir_label_row(l, l->results[0], rank);
    for (int i = 0; i < v->arg_count; i++) sglir_label_copy(l->args[i], l->results[0], rank);
    l->refused |= 1u << l->results[0][sglir_label_attr(v, "axis")->i];
    return true;
}

bool sglir_labels_dynamic_slice(const sglir_view *v, sglir_labels *l) { return sglir_labels_slice(v, l); }

bool sglir_labels_dynamic_update(const sglir_view *v, sglir_labels *l)
{
    sglir_labels_slice(v, l);
    sglir_label_copy(l->args[1], l->args[0], v->args[0]->rank);
    return true;
}

/* ---- products ------------------------------------------------------------------------------------------------- */

bool sglir_labels_dot(const sglir_view *v, sglir_labels *l)
{
    const sglir_named *batch_a = sglir_label_attr(v, "batch_a"), *batch_b = sglir_label_attr(v, "batch_b");
    const sglir_named *contract_a = sglir_label_attr(v, "contract_a"), *contract_b = sglir_label_attr(v, "contract_b");
    int at = 0;
    for (int64_t i = 0; i < batch_a->i; i++) {
        int label = sglir_label(l);
        l->args[0][batch_a->ints[i]] = l->args[1][batch_b->ints[i]] = l->results[0][at++] = (int8_t)label;
    }
    for (int64_t i = 0; i < contract_a->i; i++) {
        int label = sglir_label_summed(l);
        l->args[0][contract_a->ints[i]] = l->args[1][contract_b->ints[i]] = (int8_t)label;
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < v->args[k]->rank; i++) {
            if (l->args[k][i] < 0) l->args[k][i] = l->results[0][at++] = (int8_t)sglir_label(l);
        }
    }
    return true;
}

bool sglir_labels_matmul(const sglir_view *v, sglir_labels *l)
{
    const sglir_type *a = v->args[0], *b = v->args[1];
    int lead = v->results[0]->rank - (a->rank > 1) - (b->rank > 1);
    sglir_label_row(l, l->results[0], v->results[0]->rank);
    for (int k = 0; k < 2; k++) {
        int mine = v->args[k]->rank > 2 ? v->args[k]->rank - 2 : 0;
        for (int i = 0; i < mine; i++) {
            int at = lead - mine + i;
            if (v->args[k]->dims[i] == v->results[0]->dims[at]) l->args[k][i] = l->results[0][at];
        }
    }
    int inner = sglir_label_summed(l);
    l->args[0][a->rank - 1] = (int8_t)inner;
    l->args[1][b->rank > 1 ? b->rank - 2 : 0] = (int8_t)inner;
    if (a->rank > 1) l->args[0][a->rank - 2] = l->results[0][lead];
    if (b->rank > 1) l->args[1][b->rank - 1] = l->results[0][v->results[0]->rank - 1];
    return true;
}

bool sglir_labels_linear(const sglir_view *v, sglir_labels *l)
{
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->results[0], rank);
    sglir_label_copy(l->args[0], l->results[0], rank - 1);
    /* With a bias each part of a split sum would add the whole bias. */
    int inner = v->arg_count == 3 ? sglir_label_refused(l) : sglir_label_summed(l);
    l->args[0][rank - 1] = l->args[1][1] = (int8_t)inner;
    l->args[1][0] = l->results[0][rank - 1];
    if (v->arg_count == 3) l->args[2][0] = l->results[0][rank - 1];
    return true;
}

/* ---- by index ------------------------------------------------------------------------------------------------- */

bool sglir_labels_gather(const sglir_view *v, sglir_labels *l)
{
    int picked = v->args[1]->rank, rest = v->args[0]->rank - 1;
    sglir_label_row(l, l->results[0], picked + rest);
    sglir_label_copy(l->args[1], l->results[0], picked);
    l->args[0][0] = (int8_t)sglir_label_refused(l);
    sglir_label_copy(l->args[0] + 1, l->results[0] + picked, rest);
    return true;
}

bool sglir_labels_scatter_add(const sglir_view *v, sglir_labels *l)
{
    int picked = v->args[0]->rank, rest = v->args[1]->rank - picked;
    for (int i = 0; i < picked; i++) l->args[0][i] = l->args[1][i] = (int8_t)sglir_label_summed(l);
    sglir_label_row(l, l->args[1] + picked, rest);
    sglir_label_copy(l->results[0] + 1, l->args[1] + picked, rest);
    return true;
}

/* ---- composites ----------------------------------------------------------------------------------------------- */

/* Softmax and norms: rows run, the last dimension must be whole. */
bool sglir_labels_rowwise(const sglir_view *v, sglir_labels *l)
{
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->args[0], rank);
    sglir_label_copy(l->results[0], l->args[0], rank);
    for (int i = 1; i < v->arg_count; i++) l->args[i][0] = l->args[0][rank - 1];
    l->refused |= 1u << l->args[0][rank - 1];
    return true;
}

enum { B, T, H, D, S, E }; /* dims of attention; query and key heads run together, in proportion */

/* segments: number of the argument that holds those of the queries, where there are any. */
static void number_attention(const sglir_view *v, sglir_labels *l, int segments)
{
    l->count = E + 1;
    l->refused = 1u << T | 1u << D | 1u << S | 1u << E; /* masks and offsets speak of whole sequences */
    static const int8_t q[4] = { B, T, H, D }, k[4] = { B, S, H, D }, values[4] = { B, S, H, E };
    sglir_label_copy(l->args[0], q, 4);
    sglir_label_copy(l->args[1], k, 4);
    sglir_label_copy(l->args[2], values, 4);
    if (v->arg_count <= segments) return;
    sglir_label_copy(l->args[segments], q, 2);
    sglir_label_copy(l->args[segments + 1], k, 2);
}

static const int8_t attention_out[4] = { B, T, H, E }, attention_lse[3] = { B, H, T };

bool sglir_labels_attention(const sglir_view *v, sglir_labels *l)
{
    number_attention(v, l, 4);
    sglir_label_copy(l->results[0], attention_out, 4);
    sglir_label_copy(l->results[1], attention_lse, 3);
    return true;
}

bool sglir_labels_attention_grad(const sglir_view *v, sglir_labels *l)
{
    number_attention(v, l, 7);
    sglir_label_copy(l->args[3], attention_out, 4);
    sglir_label_copy(l->args[4], attention_lse, 3);
    sglir_label_copy(l->args[5], attention_out, 4);
    for (int i = 0; i < 3; i++) sglir_label_copy(l->results[i], l->args[i], 4);
    return true;
}

bool sglir_labels_rope(const sglir_view *v, sglir_labels *l)
{
    static const int8_t x[4] = { B, T, H, D };
    l->count = D + 1;
    l->refused = 1u << T | 1u << D;
    sglir_label_copy(l->args[0], x, 4);
    sglir_label_copy(l->args[1], x, v->args[1]->rank); /* positions [b, t], or an offset [] */
    sglir_label_copy(l->results[0], x, 4);
    return true;
}

bool sglir_labels_cross_entropy(const sglir_view *v, sglir_labels *l)
{
    int rows = v->args[1]->rank;
    sglir_label_row(l, l->args[1], rows);
    sglir_label_copy(l->results[0], l->args[1], rows);
    sglir_label_copy(l->args[0], l->args[1], rows);
    l->args[0][rows] = (int8_t)sglir_label_refused(l);
    return true;
}

bool sglir_labels_linear_cross_entropy(const sglir_view *v, sglir_labels *l)
{
    int rows = v->args[2]->rank;
    sglir_label_row(l, l->args[2], rows);
    sglir_label_copy(l->results[0], l->args[2], rows);
    sglir_label_copy(l->args[0], l->args[2], rows);
    l->args[0][rows] = l->args[1][1] = (int8_t)sglir_label_refused(l);
    l->args[1][0] = (int8_t)sglir_label_refused(l);
    return true;
}

bool sglir_labels_linear_cross_entropy_grad(const sglir_view *v, sglir_labels *l)
{
    sglir_labels_linear_cross_entropy(v, l);
    int rows = v->args[2]->rank;
    sglir_label_copy(l->args[3], l->args[2], rows);
    sglir_label_copy(l->results[1], l->args[0], rows + 1);
    sglir_label_copy(l->results[2], l->args[1], 2);
    for (int i = 0; i < rows; i++) l->summed |= 1u << l->args[2][i]; /* dweight is a sum over rows */
    return true;
}

/* ---- the calls ------------------------------------------------------------------------------------------------ */

bool sglir_labels_of_view(const sglir_view *view, sglir_labels *labels)
{
    static const sglir_labels_fn rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, vjp, labels, ...)        \
    [SGLIR_OP_##NAME] = sglir_labels_##labels,
#include "ir/ops.def"
#undef SGLIR_OP
    };
    memset(labels, 0, sizeof *labels);
    memset(labels->args, -1, sizeof labels->args);
    memset(labels->results, -1, sizeof labels->results);
    return rules[view->op](view, labels);
}

bool sglir_view_of(const sglir_graph *g, const sglir_node *node, sglir_named named[SGLIR_MOST_ATTRS], sglir_view *view)
{
    if (node->arg_count > SGLIR_MOST_ARGS || node->out_count > SGLIR_MOST_RESULTS) return false;
    *view = (sglir_view){ .op = (sglir_op)node->op,
                          .arg_count = (int)node->arg_count,
                          .result_count = (int)node->out_count,
                          .attrs = named,
                          .attr_count = sglir_attrs_named(g, node, named) };
    for (int i = 0; i < view->arg_count; i++) view->args[i] = sglir_type_of(g, sglir_arg(g, node, (uint32_t)i));
    for (int i = 0; i < view->result_count; i++) view->results[i] = sglir_type_of(g, node->out_first + (sglir_id)i);
    return true;
}

bool sglir_labels_of(const sglir_graph *g, const sglir_node *node, sglir_labels *labels)
{
    sglir_named named[SGLIR_MOST_ATTRS];
    sglir_view view;
    return sglir_view_of(g, node, named, &view) && sglir_labels_of_view(&view, labels);
}
