/* cost.h -- what a cost rule is: column cost of ops.def. In: a node, with its types. Out: its arithmetic and bytes;
 * nothing fails, nothing is allocated. */
#ifndef SGLPLAN_COST_H
#define SGLPLAN_COST_H

#include "plan/plan.h"

typedef sglplan_cost (*sglplan_cost_fn)(const sglir_graph *g, const sglir_node *node);

#endif
