/* train_ranks.h -- sessions of several ranks that train a small graph together, for tests of what becomes of all when something
 * happens to one.
 *
 * In: a job: how many ranks, a body for each, and where something happens. Out: after run_job each rank's counts, and in
 * `all` statuses and messages. The graphs are of one rank, made by hand, frozen alone and then told that they are one of several. */
#ifndef TRAIN_RANKS_H
#define TRAIN_RANKS_H

#include <dirent.h>
#include <sys/stat.h>

#include "tests/support/session_ranks.h"

enum { MOST = 4, ROWS = 4 };

/* Its own, of one rank. */
typedef struct rank {
    session_rank *at;
    struct job *job;
    sgl_program *train, *eval, *other;
    int steps, evals, saves, feeds;
    int64_t steps_wanted, eval_every, save_every; /* 0: as the others */
    uint64_t seed;
    bool failed;              /* to read w */
    sgl_status status, later; /* of the work; of a call after it */
    float w[ROWS];
    double loss;
} rank;

typedef struct job {
    int size;
    void (*body)(rank *r);
    sgl_status (*feed)(void *user, sgl_program *program, int64_t cursor, int is_eval); /* NULL: feed_numbers */
    const char *out;
    int at_rank; /* where something happens, and in which step */
    int64_t at_step, at_batch;
    bool picks;
    sgl_status (*on_step)(void *user, const sgl_step_record *record);
    sgl_status (*on_save)(void *user, int64_t step, const char *path);
    int64_t fail_at; /* an allocation of at_rank, from the start of sgl_train on */
    double timeout_s;
    rank ranks[MOST]; /* by number */
    session_ranks all;
} job;

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static const char train_text[] = "graph \"train\" {\n"
                                 "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[4]}\n"
                                 "  %1 = input() {role=2, name=\"g\", dtype=f32, dims=[4], partial=1}\n"
                                 "  %2 = neg(%1)\n  %3 = all_reduce(%2) {axes=1}\n  %4 = sub(%0, %3)\n"
                                 "  %5 = reduce_sum(%4) {axes=[0], keep=0}\n"
                                 "  fetch \"loss\" %5\n  update \"w\" %4\n}\n";
static const char other_text[] = "graph \"train\" {\n"
                                 "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[4]}\n"
                                 "  %1 = input() {role=2, name=\"g\", dtype=f32, dims=[4], partial=1}\n"
                                 "  %2 = all_reduce(%1) {axes=1}\n  %3 = add(%0, %2)\n"
                                 "  %4 = reduce_sum(%3) {axes=[0], keep=0}\n"
                                 "  fetch \"loss\" %4\n  update \"w\" %3\n}\n";
static const char eval_text[] = "graph \"eval\" {\n"
                                "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[4]}\n"
                                "  %1 = input() {role=2, name=\"g\", dtype=f32, dims=[4], partial=1}\n"
                                "  %2 = all_reduce(%1) {axes=1}\n  %3 = add(%0, %2)\n"
                                "  %4 = reduce_sum(%3) {axes=[0], keep=0}\n"
                                "  %5 = reduce_sum(%2) {axes=[0], keep=0}\n"
                                "  fetch \"loss_sum\" %4\n  fetch \"count\" %5\n}\n";

/* The pass shard makes such programs; here the graph is one of them already. */
static inline sgl_status freeze(rank *r, const char *text, sgl_program **program)
{
    sglir_graph *ir;
    sgl_graph *graph;
    SGLCORE_TRY(sglir_parse(&r->at->vm->env, "graph", text, strlen(text), &ir));
    SGLCORE_TRY(sglsession_graph_take(r->at->vm, ir, &graph));
    sgl_status status = sgl_freeze(r->at->session, graph, NULL, program);
    if (status == SGL_OK) {
        (*program)->plan.mesh[SGLIR_AXIS_DP] = (*program)->ranks = r->job->size;
        (*program)->rank = r->at->number;
        (*program)->job = sglir_job_hash(graph->ir);
    }
    sgl_graph_free(graph);
    return status;
}

/* ---- ranks as threads ---------------------------------------------------------------------------------------------- */

static inline sgl_status freeze_all(rank *r)
{
    SGLCORE_TRY(freeze(r, train_text, &r->train));
    SGLCORE_TRY(freeze(r, other_text, &r->other));
    return freeze(r, eval_text, &r->eval);
}

static inline sgl_status body_of_job(session_rank *at)
{
    job *j = at->all->job;
    rank *r = &j->ranks[at->number];
    *r = (rank){ .at = at, .job = j };
    SGLCORE_TRY(freeze_all(r));
    j->body(r);
    at->heap.counter = (fault_counter){ 0 };
    char message[2048];
    snprintf(message, sizeof message, "%s", sgl_error_message(at->vm));
    r->failed = sgl_state_read(at->session, "w", r->w, sizeof r->w) != SGL_OK;
    snprintf(at->vm->env.message, sizeof at->vm->env.message, "%s", message);
    return r->status;
}

static inline void run_job(job *j)
{
    j->all = (session_ranks){ .size = j->size, .body = body_of_job, .job = j, .timeout_s = j->timeout_s };
    session_ranks_run(&j->all);
    for (int i = 0; i < j->size; i++) {
        if (!j->ranks[i].eval || j->ranks[i].failed)
            fail_msg("rank %d could not begin: %s", i, j->all.ranks[i].message);
    }
}

/* ---- training -------------------------------------------------------------------------------------------------------- */

/* Rank r feeds r + 1 + element. */
static inline sgl_status feed_numbers(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    float g[ROWS];
    r->feeds++;
    if (is_eval && cursor >= 2) return sglcore_fail(&r->at->vm->env, SGL_NOT_FOUND, "there are two batches");
    for (int i = 0; i < ROWS; i++) g[i] = (float)(r->at->number + 1 + i);
    return sgl_feed(program, "g", g, sizeof g);
}

static inline bool is_at(const rank *r, int64_t cursor, int is_eval)
{
    return !is_eval && r->at->number == r->job->at_rank && cursor + 1 == r->job->at_step;
}

static inline sgl_status count_step(void *user, const sgl_step_record *record)
{
    rank *r = user;
    r->steps++;
    r->loss = record->values[0];
    return r->job->on_step ? r->job->on_step(user, record) : SGL_OK;
}

static inline sgl_status count_eval(void *user, const sgl_eval_record *record)
{
    (void)record;
    ((rank *)user)->evals++;
    return SGL_OK;
}

static inline sgl_status count_save(void *user, int64_t step, const char *path)
{
    rank *r = user;
    r->saves++;
    return r->job->on_save ? r->job->on_save(user, step, path) : SGL_OK;
}

/* From step 3 on another program takes the batches. */
static inline sgl_status pick(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    rank *r = user;
    if (r->job->at_rank == r->at->number && cursor + 1 == r->job->at_step && !is_eval)
        return sglcore_fail(&r->at->vm->env, SGL_SCRIPT, "no program for it");
    bucket->program = is_eval ? r->eval : cursor >= 2 ? r->other : r->train;
    bucket->text = "";
    return SGL_OK;
}

static inline void train_body(rank *r)
{
    const job *j = r->job;
    const sgl_train_config config = { .train = r->train,
                                      .eval = r->eval,
                                      .feed = j->feed ? j->feed : feed_numbers,
                                      .pick = j->picks ? pick : NULL,
                                      .user = r,
                                      .steps = r->steps_wanted ? r->steps_wanted : 6,
                                      .seed = r->seed,
                                      .eval_every = r->eval_every ? r->eval_every : 4,
                                      .save_every = r->save_every ? r->save_every : 2,
                                      .out = j->out,
                                      .on_step = count_step,
                                      .on_eval = count_eval,
                                      .on_save = count_save };
    if (j->fail_at > 0 && r->at->number == j->at_rank) r->at->heap.counter = (fault_counter){ .fail_at = j->fail_at };
    r->status = sgl_train(r->at->session, &config);
}

static inline float w_after(const job *j, int steps, int element)
{
    int each = 0;
    for (int r = 0; r < j->size; r++) each += r + 1 + element;
    return (float)(steps * each);
}

/* The last step of which there is a checkpoint, 0: none. */
static inline int saved_step(const char *dir)
{
    int last = 0, step;
    DIR *folder = opendir(dir);
    if (!folder) return 0;
    for (struct dirent *e; (e = readdir(folder));) {
        if (sscanf(e->d_name, "step-%d", &step) == 1 && step > last) last = step;
    }
    closedir(folder);
    return last;
}

/* All ranks have this status, and are after that step, of which there is a checkpoint; one rank tells it. */
static inline void expect(const job *j, sgl_status status, int steps, int teller)
{
    for (int i = 0; i < j->size; i++) {
        const rank *r = &j->ranks[i];
        const session_rank *at = &j->all.ranks[i];
        if (at->status != status) fail_msg("rank %d: %s: %s", i, sgl_status_name(at->status), at->message);
        for (int e = 0; e < ROWS; e++) assert_true(r->w[e] == w_after(j, steps, e));
        if (status != SGL_OK) assert_int_equal(at->tells, i == teller);
        assert_false(at->lost);
        assert_int_equal(r->steps, steps);
    }
    if (j->out) assert_int_equal(saved_step(j->out), steps);
}

#endif
