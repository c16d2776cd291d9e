/* exchange.h -- what exchange.c and exchange_plan.c share: an exchange that is ready to be run, how it is cut.
 *
 * In: an instruction that was routed. Out: members, how they are sent and reduced, which exchange_plan.c settles and exchange.c runs.
 * Odd invariant: how messages are cut follows from what all ranks know alike, never from this one's part. */
#ifndef SGLCUDA_EXCHANGE_PARTS_H
#define SGLCUDA_EXCHANGE_PARTS_H

#include "backend/cuda/kernels/exchange.h"
#include "backend/cuda/link.h"

#ifdef SGLCUDA_HAS_NCCL

/* What is reduced at once, of all other ranks: at 300 GB/s a slice takes 0.2 ms, ten times what a message costs to begin. */
#define SGLCUDA_EXCHANGE_STAGING (64 << 20)
/* So few bytes go whole to everyone, who reduces them by himself: one exchange in place of two. */
#define SGLCUDA_EXCHANGE_WHOLE (256 << 10)
enum { SGLCUDA_EXCHANGE_ALIGNED = 16 };

/* Of most exchanges there is one. */
typedef struct sglcuda_member {
    sglcuda_place from, to;
    const int64_t *counts, *counts_in; /* elements, per place; NULL: all is everyone's part */
    int64_t most;                      /* the largest of counts, or all */
} sglcuda_member;

struct sglcuda_run;
typedef struct sglcuda_exchange {
    const sglexec_linked *linked;
    sglexec_link *link;
    int64_t width;                      /* bytes of an element */
    sglcuda_member *members, *gathered; /* gathered: of a sum in two steps, what is exchanged then; NULL: nothing */
    int member_count;
    sgl_status (*run)(const struct sglcuda_run *r);
    const sglcuda_function *reduce;
    CUdeviceptr staging;
    unsigned id;
    CUevent ended; /* for the WAIT; NULL: there is none */
    int64_t row;   /* in which it began last: of links that were joined so often */
} sglcuda_exchange;

typedef struct sglcuda_run {
    const sglcuda_launch *launch;
    const sglcuda_exchange *x;
    sglexec_link *link;
    const sglcuda_nccl *nccl;
} sglcuda_run;

/* Elements before those of a place. */
static inline int64_t sglcuda_elements_before(const int64_t *counts, int place)
{
    int64_t sum = 0;
    for (int p = 0; counts && p < place; p++) sum += counts[p];
    return sum;
}

/* Bytes of a row of so many elements in staging. */
static inline int64_t sglcuda_row_pitch(int64_t elements, int64_t width)
{
    return sglcuda_round_up(elements * width, SGLCUDA_EXCHANGE_ALIGNED);
}

/* Elements of a row, where there is one from each other rank. */
static inline int64_t sglcuda_slice_elements(int ranks, int64_t width)
{
    return sglcuda_max(
        SGLCUDA_EXCHANGE_STAGING / (ranks - 1) / SGLCUDA_EXCHANGE_ALIGNED * SGLCUDA_EXCHANGE_ALIGNED / width, 1);
}

static inline int64_t sglcuda_clamped(int64_t count, int64_t from, int64_t most)
{
    return sglcuda_max(0, sglcuda_min(count - from, most));
}

/* Staging of a slice of `most` elements, on every rank of the group: no less than any of them takes. */
static inline int64_t sglcuda_staged_bytes(const sglexec_link *link, const sglcuda_exchange *x, int64_t most)
{
    return (link->count - 1) * sglcuda_row_pitch(most, x->width);
}

/* Ways to run an exchange, and its command; its WAIT's. (exchange.c) */
sgl_status sglcuda_exchange_gather(const sglcuda_run *r);
sgl_status sglcuda_exchange_turn(const sglcuda_run *r);
sgl_status sglcuda_exchange_scatter(const sglcuda_run *r);
sgl_status sglcuda_exchange_reduce_all(const sglcuda_run *r);
sgl_status sglcuda_exchange_one_way(const sglcuda_run *r);
sgl_status sglcuda_exchange_alone(const sglcuda_run *r);
sgl_status sglcuda_exchange_run(const sglcuda_launch *launch, const void *plan);
sgl_status sglcuda_exchange_wait(const sglcuda_launch *launch, const void *plan);

#endif

#endif
