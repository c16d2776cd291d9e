/* alias.h -- which values may share bytes: views of others, and results that may take the place of an argument. Facts
 * about nodes that `schedule` and `memory` both weigh; no pass, and nothing is kept.
 *
 * In: a graph of stage FUSED. Out: per value the value whose bytes it is and where in them; per node which result may lie
 * where which argument lay, if that dies there. Odd invariant: the answer for a kernel rests on its contract alone
 * (exec/kernel.h: all stores of a row come after all its loads), never on how a backend happens to walk it. */
#ifndef SGLPASS_ALIAS_H
#define SGLPASS_ALIAS_H

#include "ir/ir.h"

/* A value as a range of another's bytes. A value that is no view is its own root. */
typedef struct sglpass_view {
    sglir_id root;
    int64_t offset; /* bytes */
} sglpass_view;

/* Fills views[values.count]. */
void sglpass_find_views(const sglir_graph *g, sglpass_view *views);

/* Whether something in the region, or in a loop or branch there, reads the root or a view of it; its results count as
 * reads. The other asks so of all regions of a node. */
bool sglpass_region_reads(const sglir_graph *g, const sglpass_view *views, sglir_id region, sglir_id root);
bool sglpass_regions_read(const sglir_graph *g, const sglpass_view *views, const sglir_node *node, sglir_id root);

/* Whether result `result` of the node may be written where argument `arg` lies, given that nothing needs that argument
 * afterwards: same bytes, and every element is read before or when it is overwritten. Loops are not asked about: their
 * carries follow rules of their own. `views` as above; scratch: values.count entries, zero at first, left so. */
bool sglpass_takes_place(const sglir_graph *g, const sglpass_view *views, sglir_id node, uint32_t arg, uint32_t result,
                         uint8_t *scratch);

#endif
