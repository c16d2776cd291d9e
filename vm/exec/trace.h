/* trace.h -- a look at every number that a replay makes, for the first one that is infinite or NaN.
 *
 * Comes in: a program, its memory between two instructions. Goes out: NOT_FINITE, and a message that tells the node, where it
 * stands in the script, and the numbers that went in. What counts as a fault: a NaN where none went in; an infinity where
 * none and no NaN went in, unless the op's meaning gives one. While a trace is kept each instruction waits for the device. */
#ifndef SGLEXEC_TRACE_H
#define SGLEXEC_TRACE_H

#include "exec/program.h"

struct sglexec_device_ops;
struct sglexec_device;

typedef struct sglexec_trace sglexec_trace;

/* Where a program's numbers lie. */
typedef struct sglexec_memory {
    const struct sglexec_device_ops *ops;
    struct sglexec_device *device;
    void *const *spaces;
} sglexec_memory;

/* For a program that outlives it. */
sgl_status sglexec_trace_new(const sglexec_program *program, sglexec_trace **trace);
void sglexec_trace_free(sglexec_trace *trace); /* NULL is allowed */
/* Looks at feeds, parameters and states before the first instruction. */
sgl_status sglexec_trace_begin(sglexec_trace *trace, const sglexec_memory *memory);
/* Remembers the numbers that go into instruction n, which may lie where its results will. */
sgl_status sglexec_trace_before(sglexec_trace *trace, const sglexec_memory *memory, uint32_t n);
/* Looks at what it gave. */
sgl_status sglexec_trace_after(sglexec_trace *trace, const sglexec_memory *memory, uint32_t n);

#endif
