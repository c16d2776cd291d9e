/* test_session_ranks.c -- sessions of several ranks, each a thread of this process over the loop: what they compare, feed and
 * learn; the training loop when a rank stops, fails, ends early or falls over, and what is saved then.
 *
 * In: graphs of one rank by hand, frozen alone and then told that they are one of several. Out: statuses, messages and states
 * of all ranks, which must end alike whatever happened to one of them.
 * ctest: serial */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fault.h"

#include "collectives/engine.h"
#include "session/session.h"
#include "tests/support/loop_link.h"

static const sglexec_comm_ops loop_ops = { .name = "loop", SGLCOMM_ENGINE_CALLS };

enum { MOST = 4, ROWS = 4 };

typedef struct rank {
    struct job *job;
    pthread_t thread;
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *train, *eval, *other;
    int number, steps, evals, saves, feeds;
    int64_t steps_wanted, eval_every, save_every; /* 0: as the others */
    uint64_t seed;
    bool failed_open, lost, tells;
    sgl_status status, later; /* of the work; of a call after it */
    float w[ROWS];
    double loss;
    char message[2048];
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
    rank ranks[MOST]; /* by number when they have ended */
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
static sgl_status freeze(rank *r, const char *text, sgl_program **program)
{
    sglir_graph *ir;
    sgl_graph *graph;
    SGLCORE_TRY(sglir_parse(&r->vm->env, "graph", text, strlen(text), &ir));
    SGLCORE_TRY(sglsession_graph_take(r->vm, ir, &graph));
    sgl_status status = sgl_freeze(r->session, graph, NULL, program);
    if (status == SGL_OK) {
        (*program)->plan.mesh[SGLIR_AXIS_DP] = (*program)->ranks = r->job->size;
        (*program)->rank = r->number;
        (*program)->job = sglir_job_hash(graph->ir);
    }
    sgl_graph_free(graph);
    return status;
}

/* ---- ranks as threads ---------------------------------------------------------------------------------------------- */

static sgl_status open_rank(rank *r)
{
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = &r->heap, .threads = 1 };
    const sglexec_comm_options options = { .timeout_s = r->job->timeout_s };
    sglexec_comm *comm;
    SGLCORE_TRY(sgl_open(&config, &r->vm));
    SGLCORE_TRY(sgl_session_new(r->vm, "cpu", &r->session));
    SGLCORE_TRY(sglcomm_open(&r->vm->env, &options, &loop_link, &comm));
    SGLCORE_TRY(sglsession_take_world(r->session, &loop_ops, comm));
    r->number = sgl_session_rank(r->session);
    SGLCORE_TRY(freeze(r, train_text, &r->train));
    SGLCORE_TRY(freeze(r, other_text, &r->other));
    return freeze(r, eval_text, &r->eval);
}

static void *rank_main(void *argument)
{
    rank *r = argument;
    r->failed_open = open_rank(r) != SGL_OK;
    if (!r->failed_open) r->job->body(r);
    r->heap.counter = (fault_counter){ 0 };
    snprintf(r->message, sizeof r->message, "%s", sgl_error_message(r->vm));
    if (!r->failed_open) {
        r->lost = sgl_world_check(r->session, 0) != SGL_OK;
        r->tells = sgl_tells(r->session);
        if (sgl_state_read(r->session, "w", r->w, sizeof r->w) != SGL_OK) r->failed_open = true;
    }
    sgl_close(r->vm);
    return NULL;
}

static int by_number(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static void run_job(job *j)
{
    if (j->timeout_s == 0) j->timeout_s = 20;
    loop_world(j->size, 0);
    for (int i = 0; i < j->size; i++) {
        j->ranks[i] = (rank){ .job = j };
        assert_int_equal(pthread_create(&j->ranks[i].thread, NULL, rank_main, &j->ranks[i]), 0);
    }
    for (int i = 0; i < j->size; i++) pthread_join(j->ranks[i].thread, NULL);
    qsort(j->ranks, (size_t)j->size, sizeof *j->ranks, by_number);
    for (int i = 0; i < j->size; i++) {
        if (j->ranks[i].failed_open) fail_msg("rank %d could not begin: %s", i, j->ranks[i].message);
        assert_int_equal(j->ranks[i].heap.live_blocks, 0);
    }
}

/* ---- training -------------------------------------------------------------------------------------------------------- */

/* Rank r feeds r + 1 + element. */
static sgl_status feed_numbers(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    float g[ROWS];
    r->feeds++;
    if (is_eval && cursor >= 2) return sglcore_fail(&r->vm->env, SGL_NOT_FOUND, "there are two batches");
    for (int i = 0; i < ROWS; i++) g[i] = (float)(r->number + 1 + i);
    return sgl_feed(program, "g", g, sizeof g);
}

static bool is_at(const rank *r, int64_t cursor, int is_eval)
{
    return !is_eval && r->number == r->job->at_rank && cursor + 1 == r->job->at_step;
}

static sgl_status count_step(void *user, const sgl_step_record *record)
{
    rank *r = user;
    r->steps++;
    r->loss = record->values[0];
    return r->job->on_step ? r->job->on_step(user, record) : SGL_OK;
}

static sgl_status count_eval(void *user, const sgl_eval_record *record)
{
    (void)record;
    ((rank *)user)->evals++;
    return SGL_OK;
}

static sgl_status count_save(void *user, int64_t step, const char *path)
{
    rank *r = user;
    r->saves++;
    return r->job->on_save ? r->job->on_save(user, step, path) : SGL_OK;
}

/* From step 3 on another program takes the batches. */
static sgl_status pick(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    rank *r = user;
    if (r->job->at_rank == r->number && cursor + 1 == r->job->at_step && !is_eval)
        return sglcore_fail(&r->vm->env, SGL_SCRIPT, "no program for it");
    bucket->program = is_eval ? r->eval : cursor >= 2 ? r->other : r->train;
    bucket->text = "";
    return SGL_OK;
}

static void train_body(rank *r)
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
    if (j->fail_at > 0 && r->number == j->at_rank) r->heap.counter = (fault_counter){ .fail_at = j->fail_at };
    r->status = sgl_train(r->session, &config);
}

static float w_after(const job *j, int steps, int element)
{
    int each = 0;
    for (int r = 0; r < j->size; r++) each += r + 1 + element;
    return (float)(steps * each);
}

/* The last step of which there is a checkpoint, 0: none. */
static int saved_step(const char *dir)
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
static void expect(const job *j, sgl_status status, int steps, int teller)
{
    for (int i = 0; i < j->size; i++) {
        const rank *r = &j->ranks[i];
        if (r->status != status) fail_msg("rank %d: %s: %s", i, sgl_status_name(r->status), r->message);
        for (int e = 0; e < ROWS; e++) assert_true(r->w[e] == w_after(j, steps, e));
        if (status != SGL_OK) assert_int_equal(r->tells, i == teller);
        assert_false(r->lost);
        assert_int_equal(r->steps, steps);
    }
    if (j->out) assert_int_equal(saved_step(j->out), steps);
}

static void test_trains(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        char out[32];
        snprintf(out, sizeof out, "whole%d", size);
        job j = { .size = size, .body = train_body, .out = out, .at_rank = -1 };
        run_job(&j);
        expect(&j, SGL_OK, 6, -1);
        double loss = 0;
        for (int e = 0; e < ROWS; e++) loss += (double)w_after(&j, 6, e);
        assert_true(j.ranks[0].loss == loss);
        assert_int_equal(j.ranks[0].evals, 2);
        assert_int_equal(j.ranks[0].saves, 3);
        for (int r = 1; r < size; r++) assert_int_equal(j.ranks[r].evals + j.ranks[r].saves, 0);
    }
}

static void test_picks(void **state)
{
    (void)state;
    job j = { .size = 3, .body = train_body, .out = "picks", .at_rank = -1, .picks = true };
    run_job(&j);
    expect(&j, SGL_OK, 6, -1);
    /* A rank that finds no program where the others would meet for it. */
    j.at_rank = 2;
    j.at_step = 3;
    j.out = "no-program";
    run_job(&j);
    expect(&j, SGL_SCRIPT, 2, 2);
    assert_string_equal(j.ranks[2].message, "no program for it");
    assert_non_null(strstr(j.ranks[0].message, "rank 2 on "));
    assert_non_null(strstr(j.ranks[0].message, ": no program for it"));
}

/* ---- stopping -------------------------------------------------------------------------------------------------------- */

static sgl_status feed_and_stop(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_at(r, cursor, is_eval)) sgl_interrupt(r->vm);
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status feed_left(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_at(r, cursor, is_eval)) return sglcore_fail(&r->vm->env, SGL_INTERRUPTED, "the script was left");
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status stop_in_step(void *user, const sgl_step_record *record)
{
    rank *r = user;
    if (record->step == r->job->at_step) sgl_interrupt(r->vm);
    return SGL_OK;
}

/* Whoever is asked, and when: all stop after the same step, with a checkpoint of it. */
static void test_stops_together(void **state)
{
    (void)state;
    for (int at = 0; at < 3; at++) {
        job j = { .size = 3, .body = train_body, .out = "stop", .at_rank = at, .at_step = 4, .feed = feed_and_stop };
        run_job(&j);
        expect(&j, SGL_INTERRUPTED, 3, 0);
        assert_string_equal(j.ranks[at].message, "interrupted after step 3");
        j.feed = feed_left;
        j.at_step = 6;
        j.out = "left";
        run_job(&j);
        expect(&j, SGL_INTERRUPTED, 5, 0);
    }
    job j = { .size = 2, .body = train_body, .out = "stop-in", .at_step = 4, .on_step = stop_in_step };
    run_job(&j);
    expect(&j, SGL_INTERRUPTED, 4, 0);
    assert_int_equal(j.ranks[0].evals, 0); /* step 4 has one due, which is left */
}

/* ---- failing between steps ------------------------------------------------------------------------------------------- */

static sgl_status feed_and_fail(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_at(r, cursor, is_eval)) return sglcore_fail(&r->vm->env, SGL_IO, "data.bin: a bad disk");
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status feed_and_end(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_eval && r->number == r->job->at_rank && cursor == 1)
        return sglcore_fail(&r->vm->env, SGL_NOT_FOUND, "there is one batch");
    return feed_numbers(user, program, cursor, is_eval);
}

/* The numbers of a source that makes the whole batch; of another one on one rank, once. */
static sgl_status feed_alike(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    float g[ROWS];
    r->feeds++;
    if (is_eval && cursor >= 2) return sglcore_fail(&r->vm->env, SGL_NOT_FOUND, "there are two batches");
    for (int i = 0; i < ROWS; i++) g[i] = (float)(cursor + 1 + i);
    if (is_at(r, cursor, is_eval)) g[ROWS - 1] = 0.5f;
    return sgl_feed_alike(program, "g", g, sizeof g);
}

static sgl_status full_log(void *user, const sgl_step_record *record)
{
    rank *r = user;
    const bool full = r->number == 0 && record->step == r->job->at_step;
    return full ? sglcore_fail(&r->vm->env, SGL_IO, "the log is full") : SGL_OK;
}

static sgl_status refuse_save(void *user, int64_t step, const char *path)
{
    rank *r = user;
    (void)path;
    return step == 2 ? sglcore_fail(&r->vm->env, SGL_IO, "nobody wants it") : SGL_OK;
}

static void expect_told(const job *j, int teller, const char *message)
{
    char foreign[256];
    snprintf(foreign, sizeof foreign, "rank %d on ", teller);
    for (int r = 0; r < j->size; r++) {
        if (!strstr(j->ranks[r].message, message)) fail_msg("rank %d: %s", r, j->ranks[r].message);
        if (r != teller) assert_ptr_equal(strstr(j->ranks[r].message, foreign), j->ranks[r].message);
        if (r == teller) assert_string_equal(j->ranks[r].message, message);
    }
}

static void test_fails_together(void **state)
{
    (void)state;
    for (int at = 0; at < 3; at++) {
        job j = { .size = 3, .body = train_body, .out = "feed", .at_rank = at, .at_step = 4, .feed = feed_and_fail };
        run_job(&j);
        expect(&j, SGL_IO, 3, at);
        expect_told(&j, at, "data.bin: a bad disk");
        j.out = NULL;
        run_job(&j);
        expect(&j, SGL_IO, 3, at);
    }
    /* The log of rank 0 fails behind the step in which the others evaluate, and in which they save. */
    for (int64_t step = 3; step <= 6; step++) {
        char out[32];
        snprintf(out, sizeof out, "log%d", (int)step);
        job j = { .size = 3, .body = train_body, .out = out, .at_step = step, .on_step = full_log };
        run_job(&j);
        expect(&j, SGL_IO, (int)step, 0);
        expect_told(&j, 0, "the log is full");
    }
    job j = { .size = 3, .body = train_body, .out = "on-save", .on_save = refuse_save };
    run_job(&j);
    expect(&j, SGL_IO, 2, 0);
    expect_told(&j, 0, "nobody wants it");
}

static void test_data_end_together(void **state)
{
    (void)state;
    job j = { .size = 3, .body = train_body, .out = "ends", .at_rank = 1, .feed = feed_and_end };
    run_job(&j);
    expect(&j, SGL_INVALID_ARGUMENT, 4, 1);
    for (int r = 0; r < 3; r++) {
        assert_ptr_equal(strstr(j.ranks[r].message, "the data end on rank 1 ("), j.ranks[r].message);
        assert_non_null(strstr(j.ranks[r].message, ") and not on rank 0 ("));
    }
}

/* Rows that no rank but one would have seen, at which all stop, before the step. */
static void test_batches_differ(void **state)
{
    (void)state;
    job alike = { .size = 3, .body = train_body, .out = "alike", .feed = feed_alike };
    run_job(&alike);
    for (int r = 0; r < 3; r++) assert_int_equal(alike.ranks[r].status, SGL_OK);
    job j = { .size = 3, .body = train_body, .out = "batches", .at_rank = 2, .at_step = 3, .feed = feed_alike };
    run_job(&j);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.ranks[r].status, SGL_INVALID_ARGUMENT);
        assert_int_equal(j.ranks[r].tells, r == 0);
        assert_ptr_equal(strstr(j.ranks[r].message, "the batch of rank 0 ("), j.ranks[r].message);
        assert_non_null(strstr(j.ranks[r].message, ") and that of rank 2 ("));
    }
}

/* Rank 0 cannot write: all learn of it, once. */
static void test_save_fails(void **state)
{
    (void)state;
    FILE *file = fopen("no-folder", "w");
    assert_non_null(file);
    fclose(file);
    job j = { .size = 3, .body = train_body, .out = "no-folder/x" };
    run_job(&j);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.ranks[r].status, SGL_IO);
        assert_int_equal(j.ranks[r].tells, r == 0);
        assert_non_null(strstr(j.ranks[r].message, "no-folder"));
    }
}

/* ---- failing within a step --------------------------------------------------------------------------------------------- */

static sgl_status feed_and_fall(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    sgl_status status = feed_numbers(user, program, cursor, is_eval);
    if (is_at(r, cursor, is_eval)) sgl_interrupt(r->vm), sgl_interrupt(r->vm);
    return status;
}

static sgl_status no_step(sglexec_device *device, void *prepared, uint32_t index, void *const spaces[5])
{
    (void)device, (void)prepared, (void)index, (void)spaces;
    return SGL_DEVICE;
}

static sgl_status feed_and_break(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    static sglexec_device_ops broken;
    rank *r = user;
    sgl_status status = feed_numbers(user, program, cursor, is_eval);
    if (is_at(r, cursor, is_eval)) {
        broken = *r->session->ops;
        broken.launch = no_step;
        r->session->ops = &broken;
        (void)sglcore_fail(&r->vm->env, SGL_DEVICE, "a tube has burnt out");
    }
    return status;
}

/* The world is lost: all fail within a moment, and the step is neither counted nor saved. */
static void test_falls_in_a_step(void **state)
{
    (void)state;
    job j = { .size = 3, .body = train_body, .out = "fall", .at_rank = 1, .at_step = 4, .feed = feed_and_break };
    int64_t since = sglcore_now_ns();
    run_job(&j);
    assert_true(sglcore_now_ns() - since < 5000000000);
    int tellers = 0;
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.ranks[r].status, SGL_DEVICE);
        assert_true(j.ranks[r].lost);
        const char *where = strstr(j.ranks[r].message, "step 4: "); /* the news may come before the step */
        assert_true(where || strstr(j.ranks[r].message, "after step 3: ") == j.ranks[r].message);
        assert_non_null(strstr(j.ranks[r].message, "a tube has burnt out"));
        tellers += j.ranks[r].tells;
    }
    assert_int_equal(tellers, 1);
    assert_true(j.ranks[1].tells);
    assert_int_equal(j.ranks[0].steps, 3);
    assert_int_equal(saved_step("fall"), 2);
}

static void save_body(rank *r)
{
    train_body(r);
    r->later = sgl_checkpoint_save(r->session, "never", 9, "{}", 0);
}

static void test_stopped_in_a_step(void **state)
{
    (void)state;
    job j = { .size = 3, .body = save_body, .out = "now", .at_rank = 2, .at_step = 5, .feed = feed_and_fall };
    run_job(&j);
    /* The request may be heard where they agree, or within the step. */
    for (int r = 0; r < 3; r++) {
        assert_true(j.ranks[r].status == SGL_INTERRUPTED || j.ranks[r].status == SGL_DEVICE);
        assert_int_equal(j.ranks[r].lost, j.ranks[0].lost);
        assert_int_equal(j.ranks[r].later == SGL_OK, !j.ranks[0].lost);
    }
    assert_int_equal(saved_step("now"), 4);
}

/* ---- what they compare --------------------------------------------------------------------------------------------------- */

static void differ_body(rank *r)
{
    if (r->number == 2 && r->job->at_step == 0) r->train = r->other;
    if (r->number == 2 && r->job->at_step == 1) r->train->plan.max_skips++;
    train_body(r);
}

static void test_compares(void **state)
{
    (void)state;
    static const char *const why[] = { "the script has made other graphs there", "their plans differ" };
    for (int64_t what = 0; what < 2; what++) {
        job j = { .size = 3, .body = differ_body, .out = "differ", .at_rank = -1, .at_step = what };
        run_job(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.ranks[r].status, SGL_INVALID_ARGUMENT);
            assert_non_null(strstr(j.ranks[r].message, "program \"train\" of rank 0 on "));
            assert_non_null(strstr(j.ranks[r].message, " and of rank 2 on "));
            assert_non_null(strstr(j.ranks[r].message, why[what]));
            assert_int_equal(j.ranks[r].steps, 0);
            assert_int_equal(j.ranks[r].tells, r == 0);
        }
    }
}

static void differ_in_work_body(rank *r)
{
    int64_t *const numbers[] = { &r->steps_wanted, &r->eval_every, &r->save_every };
    if (r->number == 1 && r->job->at_step < 3) *numbers[r->job->at_step] = 5;
    if (r->number == 1 && r->job->at_step == 3) r->seed = 5;
    train_body(r);
}

static void test_compares_work(void **state)
{
    (void)state;
    static const char *const why[] = { "the number of steps is 6 on rank 0 (", "how often to evaluate is 4 on rank 0 (",
                                       "how often to save is 2 on rank 0 (", "the seed is 0 on rank 0 (" };
    for (int64_t what = 0; what < 4; what++) {
        job j = { .size = 3, .body = differ_in_work_body, .out = "work", .at_rank = -1, .at_step = what };
        run_job(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.ranks[r].status, SGL_INVALID_ARGUMENT);
            assert_ptr_equal(strstr(j.ranks[r].message, why[what]), j.ranks[r].message);
            assert_non_null(strstr(j.ranks[r].message, ") and 5 on rank 1 ("));
            assert_int_equal(j.ranks[r].steps, 0);
            assert_int_equal(j.ranks[r].tells, r == 0);
        }
    }
}

/* ---- what a host agrees on ------------------------------------------------------------------------------------------------- */

static void agree_body(rank *r)
{
    r->status = sgl_session_agree(r->session, SGL_OK);
    if (r->status == SGL_OK && r->number > 0)
        r->later = sglcore_fail(&r->vm->env, r->number == 1 ? SGL_IO : SGL_SCRIPT, "why %d", r->number);
    r->later = sgl_session_agree(r->session, r->later);
}

static void test_agrees(void **state)
{
    (void)state;
    job j = { .size = 3, .body = agree_body };
    run_job(&j);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.ranks[r].status, SGL_OK);
        assert_int_equal(j.ranks[r].later, r == 2 ? SGL_SCRIPT : SGL_IO);
        assert_int_equal(j.ranks[r].tells, r == 1);
        assert_false(j.ranks[r].lost);
        assert_non_null(strstr(j.ranks[r].message, r == 2 ? "why 2" : "why 1"));
    }
}

/* A state that a graph splits by itself would be saved as if it were whole. */
static void split_body(rank *r)
{
    static const char text[] =
        "graph \"split\" {\n"
        "  %0 = input() {role=0, name=\"v\", dtype=f32, dims=[2], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
        "  %1 = neg(%0)\n  update \"v\" %1\n}\n";
    sgl_program *program;
    r->status = freeze(r, text, &program);
}

static void test_split_states(void **state)
{
    (void)state;
    job j = { .size = 2, .body = split_body };
    run_job(&j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j.ranks[r].status, SGL_UNSUPPORTED);
        assert_non_null(strstr(j.ranks[r].message, "v: the graph splits it over ranks by itself"));
    }
}

/* A part of a feed is what lies there in the whole, whatever dimensions are cut. */
static void parts_body(rank *r)
{
    static const char text[] = "graph \"parts\" {\n"
                               "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[2,3,4]}\n"
                               "  %1 = neg(%0)\n  fetch \"y\" %1\n}\n";
    static const int64_t at[] = { 1, 2, 5 }, dims[] = { 2, 3, 4 };
    int64_t whole[] = { 4, 5, 9 }, offsets[SGL_MAX_RANK], kept[SGL_MAX_RANK];
    sgl_program *program;
    const char *name;
    sgl_type type;
    float x[4 * 5 * 9], y[2 * 3 * 4];
    for (int i = 0; i < 4 * 5 * 9; i++) x[i] = (float)i;
    r->status = freeze(r, text, &program);
    if (r->status != SGL_OK) return;
    program->ranks = 1;
    for (int cut = 0; cut < 8; cut++) { /* which of the dimensions are */
        sglexec_port *port = &program->program->feeds.data[0];
        size_t bytes = sizeof(float);
        for (int d = 0; d < 3; d++) {
            port->whole[d] = cut >> d & 1 ? whole[d] : dims[d];
            port->at[d] = cut >> d & 1 ? at[d] : 0;
            bytes *= (size_t)port->whole[d];
        }
        if (sgl_feed(program, "x", x, bytes) != SGL_OK || sgl_step(program) != SGL_OK ||
            sgl_fetch(program, "y", y, sizeof y) != SGL_OK || sgl_program_feed(program, 0, &name, &type) != SGL_OK ||
            sgl_program_feed_part(program, 0, offsets, kept) != SGL_OK || type.dims[2] != port->whole[2] ||
            offsets[2] != port->at[2] || kept[2] != dims[2])
            r->status = SGL_INTERNAL;
        for (int64_t i = 0; i < 24 && r->status == SGL_OK; i++) {
            const int64_t a = i / 12 + port->at[0], b = i / 4 % 3 + port->at[1], c = i % 4 + port->at[2];
            if (y[i] != -x[(a * port->whole[1] + b) * port->whole[2] + c]) r->status = SGL_INTERNAL;
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    job j = { .size = 1, .body = parts_body };
    run_job(&j);
    assert_int_equal(j.ranks[0].status, SGL_OK);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

/* One rank's n-th allocation fails: all ranks end, none later than the news of it, and with the same word on success. */
static void test_memory_faults(void **state)
{
    (void)state;
    int64_t n = 1;
    for (bool tripped = true; tripped; n++) {
        job j = { .size = 3, .body = train_body, .out = "memory", .at_rank = (int)(n % 3), .fail_at = n };
        int64_t since = sglcore_now_ns();
        run_job(&j);
        assert_true(sglcore_now_ns() - since < 10000000000);
        tripped = false;
        for (int r = 0; r < 3; r++) tripped = tripped || j.ranks[r].status != SGL_OK;
        for (int r = 0; r < 3; r++) {
            if ((j.ranks[r].status != SGL_OK) != tripped)
                fail_msg("allocation %d: rank %d: %s", (int)n, r, j.ranks[r].message);
        }
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trains),
        cmocka_unit_test(test_picks),
        cmocka_unit_test(test_stops_together),
        cmocka_unit_test(test_fails_together),
        cmocka_unit_test(test_data_end_together),
        cmocka_unit_test(test_batches_differ),
        cmocka_unit_test(test_save_fails),
        cmocka_unit_test(test_falls_in_a_step),
        cmocka_unit_test(test_stopped_in_a_step),
        cmocka_unit_test(test_compares),
        cmocka_unit_test(test_compares_work),
        cmocka_unit_test(test_memory_faults),
        cmocka_unit_test(test_agrees),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_split_states),
    };
    return cmocka_run_group_tests_name("session ranks", tests, NULL, NULL);
}
