/* cost.h -- the cost rules, column cost of ops.def. */
#ifndef SGLPLAN_COST_H
#define SGLPLAN_COST_H

#include "plan/plan.h"

typedef sglplan_cost (*sglplan_cost_fn)(const sglir_graph *g, const sglir_node *node);

#endif
