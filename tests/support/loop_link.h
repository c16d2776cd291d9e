/* loop_link.h -- a link between threads of one process: every rank of a test is a comm of its own, and none needs MPI.
 *
 * In: loop_world(ranks), then one sglcomm_open of loop_link on a thread for each of them, which gives out the ranks in the
 * order in which they come. Messages take a random time up to loop_delay_us, in order within a channel. Odd invariant: a
 * large message is sent only when it is received, as over a real link, so that what waits in a ring is found out. */
#ifndef LOOP_LINK_H
#define LOOP_LINK_H

#include "collectives/link.h"

enum { LOOP_RANKS = 16 };

extern const sglcomm_link_ops loop_link;

/* Begins a new world; the one before must be closed. */
void loop_world(int ranks, int delay_us);
/* From now on this rank hears nothing, and nobody hears it. */
void loop_freeze(int rank);
/* The n-th call of send or receive from now on fails; 0: none. */
void loop_fail_at(int64_t n);
/* Bytes that were sent on channels of groups since loop_world. */
int64_t loop_bytes_sent(void);
int64_t loop_values_sent(void); /* of these the values', without notes */

#endif
