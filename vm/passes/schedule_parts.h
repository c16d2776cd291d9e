/* schedule_parts.h -- inside the pass `schedule`: the units of work of the region at hand, and the edges between them.
 *
 * schedule.c makes units, buffers and lists of the graph, schedule_constraints.c says what else must come before what,
 * schedule_order.c finds the order. Odd invariant: units are numbered as their nodes stood. */
#ifndef SGLPASS_SCHEDULE_PARTS_H
#define SGLPASS_SCHEDULE_PARTS_H

#include "passes/alias.h"
#include "passes/pass.h"
#include "passes/schedule_order.h"

enum { SGLPASS_NO_UNIT = INT32_MAX };

typedef struct sglpass_edge {
    uint32_t from, to;
} sglpass_edge;
typedef SGLCORE_VEC(sglpass_edge) sglpass_edges;

typedef struct sglpass_scheduler {
    const sglpass_context *context;
    sglcore_env *env;
    sglir_graph *g;
    sglpass_view *views;
    uint8_t *scratch;            /* per value */
    uint8_t *transient;          /* per value: 1 when a node makes it in the arena */
    uint8_t *listed;             /* per node: stands in the new list */
    uint32_t *unit_of;           /* per node; NO_UNIT: inputs, constants, and views of what no unit makes */
    uint32_t *buffer_of;         /* per value; NO_UNIT: not one of this region's */
    uint32_t *reader;            /* per value: the last unit that was seen to read it */
    uint32_t *uses;              /* per value */
    int64_t *peaks;              /* per region: bytes of its body */
    sglir_id region;             /* at hand, with all that follows */
    SGLCORE_VEC(sglir_id) units; /* their nodes, views apart */
    SGLCORE_VEC(int64_t) bytes;  /* per buffer */
    sglpass_edges next, makes, reads, over, followers; /* over: the unit, then the pair as an edge of its own */
    SGLCORE_VEC(sglir_id) list;                        /* the new order of nodes */
    sglcore_arena arena;
} sglpass_scheduler;

/* The edges by the unit that they lead from; false: out of memory. */
bool sglpass_group_edges(sglcore_arena *arena, const sglpass_edges *edges, int64_t units, sglpass_lists *lists);

/* Add to `next`, where all uses are in it: exchanges one after another; turns of a stage one after another; in the top
 * region what reads a state before what writes it anew, unless it needs what that makes. States come last. */
sgl_status sglpass_order_exchanges(sglpass_scheduler *s);
sgl_status sglpass_order_turns(sglpass_scheduler *s);
sgl_status sglpass_order_states(sglpass_scheduler *s);

#endif
