/* simplify_rules.h -- the algebra of simplify: one node at a time, bits kept.
 *
 * In: a node of the old graph and its arguments in the new one. Out: a value of the new graph that stands for the
 * result, or none. What is emitted for a value that the caller then refuses is dead, and gone a round later. */
#ifndef SGLPASS_SIMPLIFY_RULES_H
#define SGLPASS_SIMPLIFY_RULES_H

#include "ir/ir.h"

/* For a node of one result: the value that stands for it, or SGLIR_NONE when no rule applies. */
sglir_id sglpass_simplify_node(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args);

/* For a foldable op all of whose arguments are known numbers (one each): the number that every element of the result
 * is, in the dtype `result`. False when it is not known to be the same number on every machine. */
bool sglpass_simplify_fold(sglir_op op, sgl_dtype from, sgl_dtype result, const double *args, double *out);

/* Takes out of a loop or branch what nobody needs, or puts what stands in it in its place (simplify_control.c); false: it
 * is as it should be. uses: of each value of the old graph. */
bool sglpass_simplify_control(sglir_rewrite *rewrite, sglir_id node, const uint32_t *uses);

#endif
