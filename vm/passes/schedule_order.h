/* schedule_order.h -- an order of work that needs few bytes at once.
 *
 * In: units of work with what must come before what, and buffers: which unit makes each, which units read it. Out: an
 * order, and the bytes that live at its peak. Odd invariant: the numbers of the units are an order too; it wins, with
 * what a unit needs moved before it where that must be, unless another order needs less. */
#ifndef SGLPASS_SCHEDULE_ORDER_H
#define SGLPASS_SCHEDULE_ORDER_H

#include "core/core.h"

/* A list per unit: entries [first[u], first[u + 1]) of data. */
typedef struct sglpass_lists {
    int64_t *first;
    uint32_t *data;
} sglpass_lists;

typedef struct sglpass_work {
    sglcore_env *env;
    int64_t units, buffers;
    sglpass_lists next;  /* units that must come after the unit */
    sglpass_lists makes; /* buffers that begin with it */
    sglpass_lists reads; /* buffers that it reads, each once */
    sglpass_lists over;  /* pairs: a buffer that it makes, one that it reads and may write over */
    int64_t *extra;      /* per unit: bytes that live only while it runs */
    int64_t *bytes;      /* per buffer */
    uint32_t *readers;   /* per buffer: units that read it */
} sglpass_work;

/* Writes the best order found into order[units]; *peak: its bytes. */
sgl_status sglpass_order_work(const sglpass_work *work, uint32_t *order, int64_t *peak);

#endif
