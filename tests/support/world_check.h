/* world_check.h -- a step as all ranks of a mesh run it, held against the same step of one rank: the comparison that tests of
 * plans make.
 *
 * In: a traced graph, a plan, what one rank comes to. Out: true, or false and a message, which names the rank; the graphs of all
 * ranks. Odd invariant: with SGL_TESTS_BREAK=NAME in the environment (core/broken.h) graphs of several ranks are made with that
 * decision broken: a test that looks at it must fail then. */
#ifndef WORLD_CHECK_H
#define WORLD_CHECK_H

#include "passes/pass.h"
#include "tests/reference/interp_world.h"
#include "tests/support/ir_case.h"

typedef struct world_check {
    sglcore_env *env;
    const sglir_graph *g;
    const interp *whole; /* one rank's inputs, and its results */
    const sglplan *plan;
    const char *until;   /* the pass after which ranks run: "shard", "micro", "stages" */
    const sglpass *then; /* a list of passes that follow; NULL: none */
    sglir_stage stage;   /* of what they make; 0, which is LOGICAL: PER_RANK */
    ir_tolerance tolerance;
    sglir_graph *graphs[INTERP_MOST_RANKS]; /* by rank; NULL: it was not made */
} world_check;

/* The graph of one rank, verified; NULL and a message. */
sglir_graph *world_check_rank(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t rank,
                              const char *until, ir_message *message);
/* Fills the inputs of g by the seed and runs it on one rank, into `whole`, which is freed as a run. */
bool world_check_alone(sglcore_env *env, const sglir_graph *g, uint64_t seed, interp *whole, ir_message *message);
/* Makes the graphs of all ranks, runs them, and compares what each comes to. */
bool world_check_run(world_check *c, ir_message *message);
void world_check_free(world_check *c);

#endif
