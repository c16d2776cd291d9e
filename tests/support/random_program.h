/* random_program.h -- seeded programs over all ops that have cases (tests/ops/cases.def), all dtypes, ranks, broadcasts,
 * extents, regions, shared values, states and gradients; and what tests of them share: numbers, runs, the comparison.
 *
 * In: a seed. Out: a graph with feeds, parameters, states, fetches and updates, and what may be asked of it. The same seed
 * gives the same program everywhere, as long as ops.def and cases.def are the same. A new op is drawn as soon as it has a
 * case; a new kind of region is one row of a table. */
#ifndef RANDOM_PROGRAM_H
#define RANDOM_PROGRAM_H

#include "tests/support/op_case.h"
#include "tests/support/run_graph.h"

typedef struct random_traits {
    bool derived;        /* has gradients */
    bool smooth;         /* every gradient in it may be held against differences, in double */
    bool large;          /* sums of thousands of numbers: of equal ones, each order strays by a part of their count */
    int64_t micro;       /* micro-batches that it may be cut into */
    int steps;           /* replays that it is meant for */
    bool differs;        /* has kinks, and its gradients may be held against differences between them */
    bool bounded;        /* runs against bounds on memory too */
    sgl_dtype precision; /* BF16 or F16: it is lowered to that too; else F32 */
} random_traits;

/* NULL and a message in env when it cannot be made. */
sglir_graph *random_program(sglcore_env *env, uint64_t seed, random_traits *traits);

/* The check: plain interpreter against compiled program, against the compiled program without passes that the seed chooses
 * (`all`: without each), gradients against differences where they may. False and a message when they disagree. */
bool random_check(sglcore_env *env, const sglir_graph *g, const random_traits *traits, uint64_t seed, bool all,
                  ir_message *message);

#endif
