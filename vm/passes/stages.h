/* stages.h -- inside the pass `stages`: which stage of a pipeline makes what, in which order, and who hands what to
 * whom.
 *
 * stages_cut.c cuts the forward into chunks by module, chunk c standing on stage c % stages; stages_assign.c says of
 * each node where it is made, stages_apart.c what of a backward may wait; stages_order.c orders the stages' turns as a
 * schedule says; stages_emit.c walks that order once to learn who wants what, and once more to make one rank's graph;
 * stages_meet.c finds the sums of numbers to which each stage hands over one. Odd invariant: all of it is worked out alike on every rank, for all stages; only the last walk knows which one is
 * here. */
#ifndef SGLPASS_STAGES_H
#define SGLPASS_STAGES_H

#include "passes/pass.h"
#include "passes/turns.h"

enum {
    SGLPASS_STAGES_FREE = -1,  /* in place of a stage: made wherever it is wanted */
    SGLPASS_STAGES_UNSAID = -2 /* nothing says so yet */
};

/* What a loop over micro-batches carries: nothing else in its body reads the carry but the chain of nodes that add to
 * it. Of a loop in stretches: what the first begins with, and what the last one makes. */
typedef struct sglpass_stages_carry {
    sglir_id first, out; /* what it begins as, what the loop gives back: values of the top region */
    sglir_id result;     /* what the body yields */
    int32_t home;        /* where the sum is wanted; FREE */
    uint64_t at;         /* a bit per stage that adds to it */
    bool chained;        /* false: what is yielded is the same in each micro-batch, and reads no carry */
} sglpass_stages_carry;

/* A loop over micro-batches: a SCAN per stretch of turns, each of which goes on with the carries of the one before. */
typedef struct sglpass_stages_loop {
    sglir_id nodes[SGLPASS_MOST_STRETCHES];
    uint32_t carry_first; /* into carries, as many as each node has arguments */
} sglpass_stages_loop;

/* A sum of single elements in which several stages meet (a maximum, a conjunction): each stage that has terms adds them
 * up, and hands over what they come to. */
typedef struct sglpass_stages_meeting {
    sglir_id root;                   /* the node that gives the whole */
    uint32_t term_first, term_count; /* into terms: values, by stage, those of none last */
} sglpass_stages_meeting;

typedef struct sglpass_stages {
    const sglpass_context *context;
    sglcore_env *env;
    const sglir_graph *from;
    int stages;
    int chunks; /* of all stages together */
    int64_t micro;
    sglpass_turns stretches; /* of the micro-batches */
    sglplan_schedule schedule;
    int32_t *module;  /* per node: 1 + its module, in the order of the forward; 0: it is of none */
    int32_t *cut;     /* per module: its chunk */
    int32_t *place;   /* per value: in the top region a stage; in an unrolled loop a position: chunk c is c forward,
                        2 * chunks - 1 - c backward, 2 * chunks + c where only gradients of its weights are made; or FREE */
    int32_t *chain;   /* per node of an unrolled loop: 1 + the carry that it adds to, 0: none */
    int32_t *meeting; /* per node: 1 + the meeting that it is the root of, 0: of none */
    int32_t *loop_of; /* per region: 1 + the unrolled loop whose body it is */
    SGLCORE_VEC(sglpass_stages_loop) loops;
    SGLCORE_VEC(sglpass_stages_carry) carries;
    SGLCORE_VEC(sglpass_stages_meeting) meetings;
    SGLCORE_VEC(sglir_id) terms;
    sglcore_arena arena;
} sglpass_stages;

/* One turn of a stage: a micro-batch at one position. Times count forward turns of a whole stage. */
typedef struct sglpass_stages_turn {
    int32_t stage, position;
    int64_t micro;
    double begin, end;
} sglpass_stages_turn;

static inline int sglpass_chunk_of(int chunks, int32_t position)
{
    if (position >= 2 * chunks) return position - 2 * chunks;
    return position < chunks ? position : 2 * chunks - 1 - position;
}
static inline int sglpass_stage_of(const sglpass_stages *s, int32_t position)
{
    return sglpass_chunk_of(s->chunks, position) % s->stages;
}

/* Which stretch the micro-batch is of. */
static inline int sglpass_stretch_of(const sglpass_stages *s, int64_t micro)
{
    int at = 0;
    while (at + 1 < s->stretches.count && micro >= s->stretches.at[at + 1].first) at++;
    return at;
}

/* Where the session's layout has a state of this name; false: nowhere yet. */
bool sglpass_stages_known_home(const sglpass_stages *s, const char *name, int64_t *home);
/* Fills module and cut: modules whose states have homes stand there, others where the plan's `cut` says, or balanced.
 * INVALID_ARGUMENT: the forward has fewer modules than there are chunks, or `cut` names what cannot be. *any: it has
 * some; a graph of none (initial weights) is no model's. */
sgl_status sglpass_stages_cut(sglpass_stages *s, bool *any);
/* Finds the loops to unroll, fills place, and finds the meetings. */
sgl_status sglpass_stages_assign(sglpass_stages *s);
/* Finds the meetings among values that several stages meet in (met, a byte per value), used so often (per value). */
sgl_status sglpass_stages_meet(sglpass_stages *s, const uint8_t *met, const uint32_t *uses);
/* How many terms of one place stand there, from the one of that number on. */
uint32_t sglpass_stages_run(const sglpass_stages *s, const sglpass_stages_meeting *meeting, uint32_t first);
/* Zero-bubble: moves what may wait of the backward in an unrolled loop's body to the positions for weights. */
sgl_status sglpass_stages_set_apart(sglpass_stages *s, const sglir_region *body);
/* All turns (of each micro-batch one forward and one backward on each chunk, under zero-bubble one for weights, too),
 * by when they begin: each stage's in the order of the schedule, none before what it needs. They are of the arena. */
sgl_status sglpass_stages_order(sglcore_env *env, sglcore_arena *arena, sglplan_schedule schedule, int stages,
                                int chunks, int64_t micro, sglpass_stages_turn **turns, int64_t *count);
/* Calls back for each value that the node reads, in its regions too; of a chain's node all but what it adds to. */
void sglpass_stages_each_use(const sglpass_stages *s, sglir_id node, void (*use)(void *user, sglir_id value),
                             void *user);
/* The graph of one stage. */
sgl_status sglpass_stages_emit(sglpass_stages *s, int here, sglir_graph **out);

#endif
