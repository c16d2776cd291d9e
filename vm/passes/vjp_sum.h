/* vjp_sum.h -- how the gradient of a value that a loop uses in each turn is added up by the loop that goes back: inside the
 * derivative of loops (vjp_loop.c). Three ways: term by term; slice by slice, in place; and rows of a table, which are kept
 * and added to the table once, when the loop is over. */
#ifndef SGLPASS_VJP_SUM_H
#define SGLPASS_VJP_SUM_H

#include "ir/ir.h"

/* Stacks: one slice per turn along axis 0. */
sglir_id sglpass_sum_slice_at(sglir_graph *g, sglir_id stack, sglir_id at);
sglir_id sglpass_sum_update(sglir_graph *g, sglir_id stack, sglir_id slice, sglir_id at, int64_t axis);
/* Its update with the value, of as many elements as a slice has. */
sglir_id sglpass_sum_push(sglir_graph *g, sglir_id stack, sglir_id value, sglir_id at);

/* Whether the value is a sum in which something is zeros but for a slice. */
bool sglpass_sum_has_slice(const sglir_graph *g, sglir_id value);
/* sum + gradient. back: the turn that is derived; turns: as many as there are, -1 where that is not known. */
sglir_id sglpass_sum_add(sglir_graph *g, sglir_id sum, sglir_id gradient, sglir_id back, int64_t turns);
/* The scatter_add that makes the gradient of a table of which a turn reads few rows; NULL: it is no such. */
const sglir_node *sglpass_sum_rows(const sglir_graph *g, sglir_id gradient);

#endif
