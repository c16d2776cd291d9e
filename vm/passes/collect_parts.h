/* collect_parts.h -- the second half of the pass `collect`: exchanges of parts, merged. collect.c calls it with what it
 * made. */
#ifndef SGLPASS_COLLECT_PARTS_H
#define SGLPASS_COLLECT_PARTS_H

#include "passes/pass.h"

/* Whether the graph has anything of that kind. */
bool sglpass_has_parts(const sglir_graph *g);
sgl_status sglpass_collect_parts(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

#endif
