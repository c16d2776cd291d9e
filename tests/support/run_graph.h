/* run_graph.h -- a graph compiled and run on a device, with any choice of passes, held to nothing but itself.
 *
 * In: a graph, the numbers of its inputs, which passes to leave out; the device is the CPU, or what SGL_TESTS_DEVICE names. Out: its fetches and the states that it updates, as
 * the interpreter would give them. Each pass is followed by the verifier; memory that no instruction wrote is NaN. What is
 * leaked, or left in an env, is a failure. */
#ifndef RUN_GRAPH_H
#define RUN_GRAPH_H

#include "tests/support/ir_case.h"

enum { RUN_SCALE = 1024 }; /* of the loss, at first, in f16 */

typedef struct run_options {
    const char *without;                  /* names of passes, apart by commas; "" or NULL: none is left out */
    int64_t micro;                        /* 0 is 1 */
    int threads;                          /* 0 is 1 */
    int steps;                            /* replays, 0 is 1; results are those of the last */
    sgl_dtype precision;                  /* of the plan: F64 and F32 as traced, BF16, F16 */
    bool marked_only;                     /* recompute makes again what is marked and no more; else all that it can */
    int64_t memory;                       /* the plan's bound, in the pipeline as sessions run it; 0: none */
    bool offload;                         /* all that can be lies in memory of the host, in pieces as small as can be */
    void (*placed)(const sglir_graph *g); /* sees the graph as it will run; NULL: nobody asks */
} run_options;

typedef enum run_outcome {
    RUN_DONE,
    RUN_UNSUPPORTED, /* the device says that it cannot do this; the message says what */
    RUN_FAILED
} run_outcome;

typedef struct run_result {
    char name[64];
    bool update;
    interp_tensor tensor;
} run_result;

typedef struct run_results {
    run_result *items;
    int count;
    uint32_t changed; /* bit per pass of the pipeline: it says that it changed the graph */
    int64_t bytes;    /* of the placed graph */
} run_results;

/* Passes that may be left out without the graph losing its meaning or its kernels; NULL past the last. */
const char *run_optional_pass(int index);
run_outcome run_graph(const sglir_graph *g, run_options options, const interp *inputs, run_results *results,
                      ir_message *message);
const interp_tensor *run_result_of(const run_results *results, const char *name, bool update);
void run_results_free(run_results *results);

#endif
