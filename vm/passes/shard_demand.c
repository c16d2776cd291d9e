/* shard_demand.c -- in which parts a value will be wanted by what keeps parameters and states in parts.
 *
 * In: the whole graph, the plan's layouts. Out: per value and axis the dimension along which elementwise ops will take
 * it together with a parameter or state that is split there, -1: none will. So a gradient whose sum is owed is handed
 * out in parts when it is first looked at (for its norm, say), rather than paid whole there and cut for the moments
 * later. Odd invariant: a demand forces nothing; it is one more way that is priced (shard_choose.c). */
#include <string.h>

#include "passes/shard.h"
#include "passes/shard_apart.h"

typedef struct dims {
    int8_t at[SGLIR_AXIS_COUNT];
} dims;

/* What is not known in `to` is taken from `from`. */
static void take_missing(dims *to, const dims *from)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (to->at[axis] < 0) to->at[axis] = from->at[axis];
    }
}

static bool is_elementwise(const sglir_node *node)
{
    return (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) != 0 && node->out_count == 1 && node->region == 0;
}

/* Values that are split because what they are made of is. */
static void anchor(const sglpass_sharder *s, dims *all)
{
    const sglir_region *top = &s->from->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(s->from, top->nodes.data[n]);
        uint64_t named;
        if (node->op == SGLIR_OP_INPUT)
            sglpass_split_input(s->context->plan, s->from, node, all[node->out_first].at, &named);
        for (uint32_t i = 0; i < node->arg_count && is_elementwise(node); i++)
            take_missing(&all[node->out_first], &all[sglir_arg(s->from, node, i)]);
    }
}

/* From users to makers. */
static void demand(const sglpass_sharder *s, dims *all)
{
    const sglir_region *top = &s->from->regions.data[0];
    for (int64_t i = 0; i < s->from->outputs.count; i++) {
        const sglir_output *output = &s->from->outputs.data[i];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id input = sglir_input_find(s->from, sglcore_string(s->from->strings, output->name));
        if (input != SGLIR_NONE) take_missing(&all[output->value], &all[input]);
    }
    for (int64_t n = top->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(s->from, top->nodes.data[n]);
        if (!is_elementwise(node)) continue;
        for (uint32_t i = 0; i < node->arg_count; i++)
            take_missing(&all[sglir_arg(s->from, node, i)], &all[node->out_first]);
    }
}

sgl_status sglpass_demands(sglpass_sharder *s, sglcore_arena *arena)
{
    dims *all = sglcore_arena_alloc(arena, ((size_t)s->from->values.count + 1) * sizeof *all);
    if (all == NULL) return SGL_OUT_OF_MEMORY;
    memset(all, -1, (size_t)s->from->values.count * sizeof *all);
    anchor(s, all);
    demand(s, all);
    s->demands = all[0].at;
    return SGL_OK;
}
