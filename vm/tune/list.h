/* list.h -- what a frozen program does in one step as other ranks see it: work, exchanges, waits (simulate.h).
 *
 * Comes in: a program, its plan and rank, the rates of the device and of the link. Goes out: a list for
 * sgltune_simulate. Loops without exchanges are work; others are gone through turn by turn. Both branches of a COND are
 * told one after the other, and a WHILE's turn once: that all ranks take the same ones is what makes exchanges in them
 * legal. */
#ifndef SGLTUNE_LIST_H
#define SGLTUNE_LIST_H

#include "exec/program.h"
#include "tune/simulate.h"

typedef struct sgltune_rates {
    double flops, bytes;  /* of the device, per second; 0: work takes no time */
    double latency, link; /* seconds of a message; bytes per second of a rank's link out, 0: no time */
} sgltune_rates;

/* LIMIT: more exchanges than can be told on paper. */
sgl_status sgltune_list_of(sglcore_env *env, const sglexec_program *program, const sglplan *plan, int64_t rank,
                           const sgltune_rates *rates, sgltune_list *list);

#endif
