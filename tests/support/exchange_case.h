/* exchange_case.h -- one exchange with its data: made from a seed, started, and held against a plain computation.
 *
 * In: a group of any transport. Out: NULL, or what was wrong. What a rank gives is a function of the seed and its place, so that
 * every rank knows what every other gave, and computes on its own what must come. Sums are made in the order of places, in
 * float32 for narrower floats, by the CPU backend's conversions (backend/cpu/narrow.h), and compared bit by bit; bytes behind
 * the end of `to` must stay. */
#ifndef EXCHANGE_CASE_H
#define EXCHANGE_CASE_H

#include "exec/comm.h"

enum { EXCHANGE_PLACES = 16 };

typedef struct exchange_case {
    sglexec_exchange x;
    int places, place;
    uint64_t seed;
    bool in_place;
    int64_t matrix[EXCHANGE_PLACES][EXCHANGE_PLACES]; /* all_to_all: elements from row to column */
    int64_t counts[EXCHANGE_PLACES], counts_in[EXCHANGE_PLACES];
    unsigned char *from, *to;
    int64_t from_count, to_count;
    char label[64], fault[160];
    uint32_t ticket;
} exchange_case;

/* A random exchange that all places draw alike; pairs are all_to_alls here, since two ranks alone make them. */
void exchange_case_draw(exchange_case *c, uint64_t seed, int places, int place, int64_t most);
/* Of a kind, dtype and counts around `count`, uneven where the kind has counts. */
void exchange_case_make(exchange_case *c, uint64_t seed, int places, int place, sglexec_exchange_kind kind,
                        sgl_dtype dtype, sglexec_reduction reduction, int64_t count);
sgl_status exchange_case_start(exchange_case *c, const sglexec_comm_ops *ops, sglexec_group *group, uint64_t number);
/* Frees the case. A failed status comes back by *status, and then nothing is compared. */
const char *exchange_case_end(exchange_case *c, const sglexec_comm_ops *ops, sglexec_group *group, sgl_status *status);

/* Starts and ends `steps` random exchanges over several groups of the world's ranks, several at a time, with random sleeps; NULL,
 * or the first fault. */
const char *exchange_storm(const sglexec_comm_ops *ops, sglexec_comm *comm, uint64_t seed, int steps, int64_t most,
                           int sleep_us, sgl_status *status);

uint64_t exchange_random(uint64_t *state);

#endif
