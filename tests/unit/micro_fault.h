/* micro_fault.h -- what the tests of micro-batches share: the pass alone, on a graph whose gradients are expanded, for
 * fault_each_allocation. In: a graph. Out: the pass's status. */
#ifndef MICRO_FAULT_H
#define MICRO_FAULT_H

#include "passes/pass.h"

static inline sgl_status cut_expanded(sglcore_env *env, void *graph)
{
    sglir_graph *parts = NULL;
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = 4;
    sglpass_context told = { .env = env, .plan = &plan };
    sgl_status status = sglpass_micro_split(&told, graph, &parts);
    sglir_graph_free(parts);
    return status;
}

#endif
