/* simulate.h -- all ranks of a mesh on paper: whether every exchange finds its partners, and when.
 *
 * Comes in: of each rank what it does in one step, as a list of events; ranks that do the same share a list. Goes out:
 * an error that names both sides where ranks would wait for one another for ever or meet in different exchanges, else
 * times. Nothing is buffered: a send has ended when its receiver has taken it. An exchange begins when all its ranks
 * have begun it, the one before it in its group has ended, and the links out of those that send are free: a rank has
 * one, whatever the group. Odd invariant: whether all come to the end does not depend on the order in which ranks are
 * looked at, because a rank only ever waits for what others do before, never takes what comes first; times do where
 * exchanges want a link at once, and go by who is earliest. */
#ifndef SGLTUNE_SIMULATE_H
#define SGLTUNE_SIMULATE_H

#include "plan/mesh.h"

/* The ranks of an exchange, seen from one of them: those along axes; of a channel two of them, its ends. */
typedef struct sgltune_way {
    sglplan_axes axes;
    int32_t from, to; /* places along the axes; -1, -1: all of them exchange */
    uint32_t begun;   /* exchanges of its list */
} sgltune_way;

typedef enum sgltune_what {
    SGLTUNE_WORK,  /* takes time of the rank alone */
    SGLTUNE_BEGIN, /* of an exchange; the rank goes on */
    SGLTUNE_WAIT   /* until the exchange that event `of` began has ended */
} sgltune_what;

typedef struct sgltune_event {
    uint8_t what;    /* sgltune_what */
    uint16_t kind;   /* BEGIN: ranks must meet in the same one; a send and its receive bear the same */
    uint32_t way;    /* BEGIN: of the list's */
    uint32_t of;     /* WAIT: an event before this one */
    uint32_t number; /* BEGIN: which one it is of its way */
    uint32_t label;  /* BEGIN: of the list's, what to tell of it */
    uint64_t amount; /* BEGIN: elements; must be alike on all its ranks */
    uint64_t cut;    /* BEGIN: which parts of them are whose, or which of a channel's it is; must be alike, too */
    double seconds;  /* WORK: of the rank. BEGIN: of the links of those that send */
    double latency;  /* BEGIN: until it has ended, after that */
} sgltune_event;

typedef struct sgltune_list {
    SGLCORE_VEC(sgltune_event) events;
    SGLCORE_VEC(sgltune_way) ways;
    SGLCORE_VEC(char) labels; /* one behind another, each terminated; an event names its place */
} sgltune_list;

void sgltune_list_free(sglcore_env *env, sgltune_list *list);
/* Building one, in the order of events. *label: for `begin`. *event: what WAIT is told. A way is found by its axes and
 * places. */
sgl_status sgltune_list_label(sglcore_env *env, sgltune_list *list, const char *text, uint32_t *label);
sgl_status sgltune_list_work(sglcore_env *env, sgltune_list *list, double seconds);
sgl_status sgltune_list_begin(sglcore_env *env, sgltune_list *list, const sgltune_way *way, const sgltune_event *begin,
                              uint32_t *event);
sgl_status sgltune_list_wait(sglcore_env *env, sgltune_list *list, uint32_t event);
/* Of what other ranks can see of it: exchanges, waits and ways; no times, no labels. */
sglcore_hash sgltune_list_hash(const sgltune_list *list);

/* Of one rank in one step. */
typedef struct sgltune_times {
    double step;    /* seconds until its last event is over */
    double exposed; /* of these it waits for exchanges */
} sgltune_times;

/* lists: per rank of the plan's mesh. times: per rank, or NULL. INVALID_ARGUMENT: they would not all come to their end;
 * the message tells the circle of ranks that wait for one another, or the two that differ, with the labels of both
 * sides. */
sgl_status sgltune_simulate(sglcore_env *env, const sglplan *plan, int64_t ranks, const sgltune_list *const *lists,
                            sgltune_times *times);

#endif
