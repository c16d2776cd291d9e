/* stages_order.c -- in which order the stages of a pipeline take their turns: the schedules, on paper.
 *
 * In: a schedule, numbers of stages, chunks and micro-batches. Out: all turns with the times at which they would begin
 * and end if a stage's forward took 1, its backward 2 (of which gradients of weights 1), each chunk its share, and
 * handing over nothing. Each stage's order is the schedule's own:
 *   gpipe        all forward, then all backward (Huang et al., arXiv:1811.06965)
 *   1f1b         stage s goes ahead by stages - 1 - s micro-batches, then one forward, one backward, so that it keeps stages - s of
 *                them at the most (Narayanan et al., arXiv:2006.09503)
 *   interleaved  the same with chunks: a round of micro-batches through one chunk, then through the stage's next one; a stage goes
 *                ahead by twice as many turns, and a round for each chunk but one (Narayanan et al., arXiv:2104.04473)
 *   zero-bubble  1f1b, and gradients of weights s turns after the others, where stage s would idle (ZB-H1: Qi et al.,
 *                arXiv:2401.10241)
 * Odd invariant: nothing here depends on the graph, so that a figure of idle time is one of the schedule alone. */
#include <stdlib.h>

#include "passes/stages.h"

typedef struct orderer {
    sglplan_schedule schedule;
    int stages, chunks;
    int64_t each; /* chunks of a stage */
    int64_t micro;
    int64_t per_stage;          /* turns */
    sglpass_stages_turn *lines; /* per stage its turns in their order; no times */
    double *ends;               /* per position and micro-batch; negative: not taken yet */
} orderer;

/* A round is of as many micro-batches as there are stages, or a few more where they do not come out even: larger ones
 * first, since a stage is ahead by the first one. */
static int64_t first_round(const orderer *o)
{
    int64_t rounds = o->micro < o->stages ? 1 : o->micro / o->stages;
    return (o->micro + rounds - 1) / rounds;
}

/* What a stage's forward turn number n works on, or the other way round its backward one. */
static void find_turn(const orderer *o, int64_t n, int64_t *chunk, int64_t *micro)
{
    int64_t rounds = o->micro < o->stages ? 1 : o->micro / o->stages, size = o->micro / rounds;
    int64_t larger = o->micro % rounds, turns = larger * (size + 1) * o->each; /* of these rounds */
    int64_t begin = n < turns ? 0 : larger * (size + 1);
    if (n < turns)
        size++;
    else
        n -= turns;
    *chunk = n / size % o->each;
    *micro = begin + n / (size * o->each) * size + n % size;
}

static sglpass_stages_turn forward_turn(const orderer *o, int stage, int64_t n)
{
    int64_t chunk, micro;
    find_turn(o, n, &chunk, &micro);
    return (sglpass_stages_turn){ .stage = stage, .position = (int32_t)(chunk * o->stages) + stage, .micro = micro };
}

static sglpass_stages_turn backward_turn(const orderer *o, int stage, int64_t n)
{
    int64_t chunk, micro;
    find_turn(o, n, &chunk, &micro);
    int32_t at = (int32_t)((o->each - 1 - chunk) * o->stages) + stage;
    return (sglpass_stages_turn){ .stage = stage, .position = 2 * o->chunks - 1 - at, .micro = micro };
}

static int64_t turns_ahead(const orderer *o, int stage)
{
    int64_t all = o->micro * o->each, ahead = o->stages - 1 - stage;
    if (o->schedule == SGLPLAN_GPIPE) ahead = all;
    if (o->each > 1) ahead = 2 * ahead + (o->each - 1) * first_round(o);
    return ahead < all ? ahead : all;
}

static void fill_line(const orderer *o, int stage)
{
    sglpass_stages_turn *line = o->lines + stage * o->per_stage;
    const bool apart = o->schedule == SGLPLAN_ZERO_BUBBLE;
    const int64_t all = o->micro * o->each, late = apart ? stage : 0;
    int64_t forward = 0;
    while (forward < turns_ahead(o, stage)) *line++ = forward_turn(o, stage, forward++);
    for (int64_t n = 0; n < all + late; n++) {
        if (forward < all) *line++ = forward_turn(o, stage, forward++);
        if (n < all) *line++ = backward_turn(o, stage, n);
        if (apart && n >= late)
            *line++ = (sglpass_stages_turn){ .stage = stage, .position = 2 * o->chunks + stage, .micro = n - late };
    }
}

/* When what the turn waits for has ended; negative: that has not been taken. */
static double ready_at(const orderer *o, const sglpass_stages_turn *turn)
{
    int32_t before = turn->position - 1;
    if (turn->position == 0) return 0;
    if (turn->position >= 2 * o->chunks) before = 4 * o->chunks - 1 - turn->position;
    return o->ends[before * o->micro + turn->micro];
}

static double turn_length(const orderer *o, const sglpass_stages_turn *turn)
{
    bool whole = turn->position >= o->chunks && o->schedule != SGLPLAN_ZERO_BUBBLE;
    return (whole ? 2.0 : 1.0) / (double)o->each;
}

/* False: the stages would wait for one another for ever. */
static bool take_turns(orderer *o, sglpass_stages_turn *turns)
{
    int64_t next[SGLPLAN_MOST_STAGES] = { 0 }, taken = 0;
    double free_at[SGLPLAN_MOST_STAGES] = { 0 };
    for (int64_t before = -1; taken > before;) { /* each round takes what waits for nothing but its own turn */
        before = taken;
        for (int stage = 0; stage < o->stages; stage++) {
            if (next[stage] == o->per_stage) continue;
            sglpass_stages_turn turn = o->lines[stage * o->per_stage + next[stage]];
            double ready = ready_at(o, &turn);
            if (ready < 0) continue;
            turn.begin = ready > free_at[stage] ? ready : free_at[stage];
            turn.end = turn.begin + turn_length(o, &turn);
            o->ends[turn.position * o->micro + turn.micro] = free_at[stage] = turn.end;
            turns[taken++] = turn;
            next[stage]++;
        }
    }
    return taken == o->stages * o->per_stage;
}

static int compare_turns(const void *a, const void *b)
{
    const sglpass_stages_turn *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->stage - y->stage;
}

sgl_status sglpass_stages_order(sglcore_env *env, sglcore_arena *arena, sglplan_schedule schedule, int stages,
                                int chunks, int64_t micro, sglpass_stages_turn **turns, int64_t *count)
{
    orderer o = { .schedule = schedule, .stages = stages, .chunks = chunks, .each = chunks / stages, .micro = micro };
    const int64_t kinds = schedule == SGLPLAN_ZERO_BUBBLE ? 3 : 2;
    o.per_stage = kinds * o.each * micro;
    *count = stages * o.per_stage;
    o.lines = sglcore_arena_alloc(arena, (size_t)*count * sizeof *o.lines);
    o.ends = sglcore_arena_alloc(arena, (size_t)*count * sizeof *o.ends);
    *turns = sglcore_arena_alloc(arena, (size_t)*count * sizeof **turns);
    if (!o.lines || !o.ends || !*turns) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < *count; i++) o.ends[i] = -1;
    for (int stage = 0; stage < stages; stage++) fill_line(&o, stage);
    if (!take_turns(&o, *turns))
        return sglcore_fail(env, SGL_INTERNAL, "stages: %d stages of %d chunks would wait for one another", stages,
                            chunks);
    qsort(*turns, (size_t)*count, sizeof **turns, compare_turns);
    return SGL_OK;
}
