/* stages_order.c -- in which order the stages of a pipeline take their turns: the schedules, on paper.
 *
 * In: a schedule, numbers of stages and micro-batches. Out: all turns with the times at which they would begin and end if a forward
 * turn took 1, a backward one 2, and handing over nothing. Each stage's order is the schedule's own:
 *   gpipe  all forward, then all backward (Huang et al., arXiv:1811.06965)
 *   1f1b   stage s goes ahead by stages - 1 - s micro-batches, then one forward, one backward, so that it keeps stages - s of
 *          them at the most (Narayanan et al., arXiv:2006.09503)
 * Odd invariant: nothing here depends on the graph, so that a figure of idle time is one of the schedule alone. */
#include <stdlib.h>

#include "passes/stages.h"

/* The turn that a stage takes as its number `n`. */
static void turn_of(sglplan_schedule schedule, int stages, int64_t micro, int stage, int64_t n, bool *backward,
                    int64_t *part)
{
    int64_t ahead = schedule == SGLPLAN_GPIPE ? micro : stages - 1 - stage;
    if (ahead > micro) ahead = micro;
    *backward = n >= ahead && (n >= 2 * micro - ahead || (n - ahead) % 2 == 1);
    if (n < ahead)
        *part = n;
    else if (n >= 2 * micro - ahead)
        *part = n - micro;
    else
        *part = (n - ahead) / 2 + (*backward ? 0 : ahead);
}

/* When the turns that it waits for have ended; negative: one of them has not been taken. */
static double ready_at(const double *ends, int stages, int64_t micro, int stage, bool backward, int64_t part)
{
    const double *forward_ends = ends, *backward_ends = ends + (int64_t)stages * micro;
    if (!backward) return stage == 0 ? 0 : forward_ends[(stage - 1) * micro + part];
    double own = forward_ends[stage * micro + part];
    double next = stage == stages - 1 ? own : backward_ends[(stage + 1) * micro + part];
    return own < 0 || next < 0 ? -1 : own > next ? own : next;
}

static int compare_turns(const void *a, const void *b)
{
    const sglpass_stages_turn *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->stage - y->stage;
}

void sglpass_stages_order(sglplan_schedule schedule, int stages, int64_t micro, sglpass_stages_turn *turns,
                          double *ends)
{
    int64_t all = 2 * stages * micro, next[SGLPASS_STAGES_MOST] = { 0 }, taken = 0;
    double free_at[SGLPASS_STAGES_MOST] = { 0 };
    for (int64_t i = 0; i < all; i++) ends[i] = -1;
    while (taken < all) { /* each round takes one at least: the first stage that waits for nothing but its own turn */
        for (int stage = 0; stage < stages; stage++) {
            bool backward;
            int64_t part;
            if (next[stage] == 2 * micro) continue;
            turn_of(schedule, stages, micro, stage, next[stage], &backward, &part);
            double ready = ready_at(ends, stages, micro, stage, backward, part);
            if (ready < 0) continue;
            double begin = ready > free_at[stage] ? ready : free_at[stage], end = begin + (backward ? 2 : 1);
            turns[taken++] = (sglpass_stages_turn){ stage, backward, part, begin, end };
            ends[((backward ? stages : 0) + stage) * micro + part] = free_at[stage] = end;
            next[stage]++;
        }
    }
    qsort(turns, (size_t)all, sizeof *turns, compare_turns);
}
