/* labels_mesh.c -- which dimensions run together in what ranks exchange: all but those along which parts lie.
 *
 * In and out: labels.h. A loop over micro-batches so runs an exchange within: each turn exchanges its part of the rows. Odd
 * invariant: labels of exchanges are of use to the micro axis alone; over axes of ranks their rules of types say what comes out
 * (infer_mesh.c). */
#include "ir/labels.h"

/* Along its first `lead` dimensions. */
static bool beside(const sglir_view *v, sglir_labels *l, int lead)
{
    int rank = v->args[0]->rank;
    sglir_label_row(l, l->args[0], rank);
    sglir_label_copy(l->results[0], l->args[0], rank);
    for (int dim = 0; dim < lead; dim++) l->refused |= 1u << l->args[0][dim];
    return true;
}

bool sglir_labels_parts(const sglir_view *v, sglir_labels *l) { return beside(v, l, 1); }

bool sglir_labels_all_to_all(const sglir_view *v, sglir_labels *l) { return beside(v, l, 2); }

/* all_max, ring_shift */
bool sglir_labels_beside_dim(const sglir_view *v, sglir_labels *l)
{
    beside(v, l, 0);
    l->refused |= 1u << l->args[0][sglir_label_attr(v, "dim")->i];
    return true;
}
