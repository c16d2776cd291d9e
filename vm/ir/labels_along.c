/* labels_along.c -- which dimensions run together in what works along axes, in windows and in convolutions.
 *
 * In and out: labels.h. Odd invariant: an axis that is ordered, or a spatial dim whose windows overlap, is never split;
 * the other dimensions are free. */
#include "ir/labels.h"

/* All arguments and results have the same dims but along the axis, which must be whole: recurrence, sort, take_along. */
static bool along(const sglir_view *v, sglir_labels *l, int64_t axis)
{
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->args[0], rank);
    for (int i = 1; i < v->arg_count; i++) sglir_label_copy(l->args[i], l->args[0], rank);
    for (int i = 0; i < v->result_count; i++) sglir_label_copy(l->results[i], l->args[0], rank);
    l->refused |= 1u << l->args[0][axis];
    return true;
}

bool sglir_labels_along(const sglir_view *v, sglir_labels *l) { return along(v, l, sglir_label_attr(v, "axis")->i); }

bool sglir_labels_top_k(const sglir_view *v, sglir_labels *l) { return along(v, l, v->args[0]->rank - 1); }

bool sglir_labels_flip(const sglir_view *v, sglir_labels *l)
{
    const sglir_named *axes = sglir_label_attr(v, "axes");
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->args[0], rank);
    sglir_label_copy(l->results[0], l->args[0], rank);
    for (int64_t i = 0; i < axes->i; i++) l->refused |= 1u << l->args[0][axes->ints[i]];
    return true;
}

bool sglir_labels_arg_extreme(const sglir_view *v, sglir_labels *l)
{
    int64_t axis = sglir_label_attr(v, "axis")->i;
    bool keep = sglir_label_attr(v, "keep")->i != 0;
    int at = 0;
    for (int i = 0; i < v->args[0]->rank; i++) {
        int label = i == axis ? sglir_label_refused(l) : sglir_label(l);
        l->args[0][i] = (int8_t)label;
        if (i != axis) l->results[0][at] = (int8_t)label;
        if (i != axis || keep) at++;
    }
    return true;
}

/* ---- windows -------------------------------------------------------------------------------------------------- */

/* Samples and channels run; spatial and window dims stay whole. */
static bool ends_run(const sglir_view *v, sglir_labels *l)
{
    l->args[0][0] = l->results[0][0] = (int8_t)sglir_label(l);
    l->args[0][v->args[0]->rank - 1] = l->results[0][v->results[0]->rank - 1] = (int8_t)sglir_label(l);
    return true;
}

bool sglir_labels_windows(const sglir_view *v, sglir_labels *l) { return ends_run(v, l); }

bool sglir_labels_windows_add(const sglir_view *v, sglir_labels *l) { return ends_run(v, l); }

/* A convolution without groups is a product over channels; with groups channels belong to outputs and stay whole. */
static bool is_grouped(const sglir_view *v) { return sglir_label_attr(v, "groups")->i != 1; }

bool sglir_labels_conv(const sglir_view *v, sglir_labels *l)
{
    int last = v->args[0]->rank - 1;
    l->args[0][0] = l->results[0][0] = (int8_t)sglir_label(l);
    if (is_grouped(v)) return true;
    l->args[0][last] = l->args[1][last] = (int8_t)sglir_label_summed(l);
    l->args[1][0] = l->results[0][last] = (int8_t)sglir_label(l);
    return true;
}

bool sglir_labels_conv_input_grad(const sglir_view *v, sglir_labels *l)
{
    int last = v->args[0]->rank - 1;
    l->args[0][0] = l->results[0][0] = (int8_t)sglir_label(l);
    if (is_grouped(v)) return true;
    l->args[0][last] = l->args[1][0] = (int8_t)sglir_label_summed(l);
    l->args[1][last] = l->results[0][last] = (int8_t)sglir_label(l);
    return true;
}

bool sglir_labels_conv_weight_grad(const sglir_view *v, sglir_labels *l)
{
    int last = v->args[0]->rank - 1;
    l->args[0][0] = l->args[1][0] = (int8_t)sglir_label_summed(l);
    if (is_grouped(v)) return true;
    l->args[0][last] = l->results[0][last] = (int8_t)sglir_label(l);
    l->args[1][last] = l->results[0][0] = (int8_t)sglir_label(l);
    return true;
}
