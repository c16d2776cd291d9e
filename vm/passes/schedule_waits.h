/* schedule_waits.h -- exchanges that begin early and are waited for late: the last part of the pass schedule.
 *
 * In: a graph of stage FUSED whose nodes stand in their order. Out: the same nodes, with a `wait` for every exchange.
 * Moves between the device and the host are placed alike. Odd invariant: exchanges keep their order among each other, whatever moves; so ranks that move them differently still
 * meet. */
#ifndef SGLPASS_SCHEDULE_WAITS_H
#define SGLPASS_SCHEDULE_WAITS_H

#include "passes/pass.h"

/* Whether there is an exchange or a move to wait for. */
bool sglpass_has_begun(const sglir_graph *g);
sgl_status sglpass_place_waits(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

#endif
