/* place_check.h -- runs a placed graph on paper, byte by byte: the oracle of the pass `memory`.
 *
 * In: a graph of stage PLACED. Out: true, or false and a message. Every byte of every space remembers which value was
 * written there last; nodes, loops (each turn, with the copies that freeze adds) and the updates at the end run in order,
 * for two steps; whatever is read must be there in one piece. Where a kernel's result lies over an argument, the kernel's
 * description must read that argument exactly where it writes. Nothing here is shared with the pass. */
#ifndef PLACE_CHECK_H
#define PLACE_CHECK_H

#include "tests/support/ir_case.h"

bool place_check(sglcore_env *env, const sglir_graph *placed, ir_message *message);

#endif
