/* shard_apart.h -- inside the pass `shard`: what is done to the whole graph before it is laid out. */
#ifndef SGLPASS_SHARD_APART_H
#define SGLPASS_SHARD_APART_H

#include "passes/pass.h"
#include "plan/mesh.h"

/* States are named OPTIMIZER.SLOT/PARAMETER: the parameter's name; any other name itself. */
const char *sglpass_path_of(const char *name);
/* Which dimension of an INPUT the plan splits over each axis, -1: none; false: it is whole. A state follows its
 * parameter. *named: as sglplan_layout_of. */
bool sglpass_split_input(const sglplan *plan, const sglir_graph *g, const sglir_node *node, int8_t at[SGLIR_AXIS_COUNT],
                         uint64_t *named);
/* The graph gives parameters new values. (shard.c) */
bool sglpass_learns(const sglir_graph *g);
/* shard_lay.c: as the plan's activations say. */
sgl_status sglpass_lay_activations(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
/* shard_apart.c: all that must not stand as one. */
sgl_status sglpass_take_apart(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
/* shard_packs.c: packs of which some members are split. */
sgl_status sglpass_open_packs(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

#endif
