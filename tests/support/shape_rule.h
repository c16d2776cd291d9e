/* shape_rule.h -- the texts of shapes in vm/ir/ops_words.def, held against nodes.
 *
 * In: "[..., m, k], [k, n] -> [..., m, n]" and a node with its attributes. Out: whether its arguments and results have such
 * shapes. The notation stands at the head of ops_words.def; what follows a colon is for readers alone. */
#ifndef SHAPE_RULE_H
#define SHAPE_RULE_H

#include "ir/ir.h"

bool shape_rule_holds(const char *rule, const sglir_graph *g, const sglir_node *node);

#endif
