/* verify.h -- inside the verifier: how its parts complain, and the part that looks at places.
 * A complaint reads "llama.lua:42: %5 = add(%1, %2) : f32[4]: what is wrong"; its node is named as print.c writes it. */
#ifndef SGLIR_VERIFY_H
#define SGLIR_VERIFY_H

#include "ir/ir.h"

/* Fails with the node's origin and text before the message. numbered: the graph is sound enough to number its values
 * as the text form does; otherwise ids stand in the text. */
sgl_status sglir_verify_fail(const sglir_graph *g, sglir_id node, bool numbered, sgl_status status, const char *format,
                             ...) SGL_PRINTF(5, 6);

/* Stage PLACED, of a graph that is of stage FUSED: every stored value has a place within its space, views lie where
 * their elements are, and no two values that live at the same time share bytes. */
sgl_status sglir_verify_places(const sglir_graph *g);

#endif
