/* pass.h -- what a pass is, what it may know, and the pipeline that runs them.
 *
 * A pass reads a graph and makes another; everything the verifier demands of its stage still holds. It prints nothing,
 * keeps nothing between runs, includes no other pass. What it decides is visible in the graph it returns. */
#ifndef SGLPASS_PASS_H
#define SGLPASS_PASS_H

#include <stdatomic.h>

#include "ir/ir.h"
#include "plan/plan.h"

/* What passes are told. */
typedef struct sglpass_context {
    sglcore_env *env;
    const sglplan *plan;
    int64_t rank; /* of plan->mesh: whose program it is. Ranks that hold equal parts have equal programs */
    /* The session's sections so far: a graph of INPUT nodes (parameters and states, whole sections) with their places in
     * SPACE_STATE, and members. What it names keeps its place; what is new comes behind. NULL: nothing yet. */
    const sglir_graph *layout;
    int64_t (*workspace)(const sglir_graph *g, sglir_id node); /* of the device; NULL: none needs any */
    double computing; /* of the device: what arithmetic costs beside moving bytes, the CPU's cost being 1; 0: 1 too */
    const atomic_int *interrupted; /* not 0: the host asks to stop; NULL: nobody can */
    int64_t give_back;             /* bytes of the peak that recompute spares beyond what is marked: against a bound */
    /* Parameters, by the hash of their names, of which it was said that no gradient reaches them; what is in it is not said
     * again. NULL: nobody remembers beyond one graph. */
    sglcore_map *warned;
    /* For `stages`: the graph as rank 0 has it there, where parts are uneven; NULL: as this rank has it. */
    const sglir_graph *first;
    bool *changed; /* where the pass says whether its result differs from what came in; NULL: nobody asks */
} sglpass_context;

/* For the end of a pass. A result of fewer nodes has lost dead ones: that is a change too. */
static inline void sglpass_say(const sglpass_context *context, const sglir_graph *in, const sglir_graph *out,
                               bool changed)
{
    if (context->changed != NULL) *context->changed = changed || in->nodes.count != out->nodes.count;
}

/* The same for a pass that may make again what stood so before: the graphs tell by themselves. */
static inline void sglpass_say_by_hash(const sglpass_context *context, const sglir_graph *in, const sglir_graph *out)
{
    if (context->changed != NULL) *context->changed = !sglcore_hash_equal(sglir_job_hash(in), sglir_job_hash(out));
}

typedef sgl_status (*sglpass_fn)(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

typedef struct sglpass {
    const char *name;
    sglpass_fn run;
    sglir_stage stage; /* that its result must satisfy */
    bool optional;     /* may be left out by the plan or SGL_DISABLE */
    const char *help;
} sglpass;

/* The pipeline, in order; the last row has a NULL name. pipeline.c is its picture. */
extern const sglpass sglpass_pipeline[];

/* Runs passes, a list as the pipeline's, over a copy of `in`, up to and with the pass named `until` (NULL: all),
 * verifying, dumping and disabling as plan and knobs say; a failure names the pass. INTERRUPTED: the host asked to. */
sgl_status sglpass_run_list(const sglpass_context *context, const sglpass *list, const sglir_graph *in,
                            const char *until, sglir_graph **out);
/* The same with the pipeline. Where the plan sets a bound on memory, and the program does not fit, recompute and what
 * follows run again with more to spare; LIMIT: the least that could be reached is still too much. */
sgl_status sglpass_run(const sglpass_context *context, const sglir_graph *in, const char *until, sglir_graph **out);
/* Of a value that is split over ranks what a part has if all are as large (even.c). */
double sglpass_even_bytes(const sglplan *plan, const sglir_graph *g, sglir_id value);
/* Whether all parts are as large as each other. */
bool sglpass_is_even(const sglplan *plan, const sglir_graph *g);
/* INVALID_ARGUMENT: the pattern of the plan's field names no parameter of the graph; with the nearest one. (pipeline.c) */
sgl_status sglpass_fail_unnamed(const sglpass_context *context, const sglir_graph *g, const char *field,
                                const char *pattern, size_t length);
/* All bytes of a placed graph, of all spaces. */
int64_t sglpass_bytes(const sglir_graph *placed);

sgl_status sglpass_simplify(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_precision(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_compress(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_autodiff(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_shard(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_micro_split(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_stages_split(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_pieces(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_sections(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_decompose(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_join(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_collect(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_recompute(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_regather(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_offload(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_fuse(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_schedule(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);
sgl_status sglpass_memory(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

#endif
