/* test_session_ranks.c -- the training loop of several ranks, each a thread of this process over the loop, when a rank stops, fails,
 * ends early or falls over, and what is saved then.
 *
 * In: jobs of train_ranks.h. Out: statuses, messages and states of all ranks, which must end alike whatever happened to one of them.
 * ctest: serial */
#include "train_ranks.h"

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
    assert_string_equal(j.all.ranks[2].message, "no program for it");
    assert_non_null(strstr(j.all.ranks[0].message, "rank 2 on "));
    assert_non_null(strstr(j.all.ranks[0].message, ": no program for it"));
}

/* ---- stopping -------------------------------------------------------------------------------------------------------- */

static sgl_status feed_and_stop(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_at(r, cursor, is_eval)) sgl_interrupt(r->at->vm);
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status feed_left(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_at(r, cursor, is_eval)) return sglcore_fail(&r->at->vm->env, SGL_INTERRUPTED, "the script was left");
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status stop_in_step(void *user, const sgl_step_record *record)
{
    rank *r = user;
    if (record->step == r->job->at_step) sgl_interrupt(r->at->vm);
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
        assert_string_equal(j.all.ranks[at].message, "interrupted after step 3");
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
    if (is_at(r, cursor, is_eval)) return sglcore_fail(&r->at->vm->env, SGL_IO, "data.bin: a bad disk");
    return feed_numbers(user, program, cursor, is_eval);
}

static sgl_status feed_and_end(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    if (is_eval && r->at->number == r->job->at_rank && cursor == 1)
        return sglcore_fail(&r->at->vm->env, SGL_NOT_FOUND, "there is one batch");
    return feed_numbers(user, program, cursor, is_eval);
}

/* The numbers of a source that makes the whole batch; of another one on one rank, once. */
static sgl_status feed_alike(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    float g[ROWS];
    r->feeds++;
    if (is_eval && cursor >= 2) return sglcore_fail(&r->at->vm->env, SGL_NOT_FOUND, "there are two batches");
    for (int i = 0; i < ROWS; i++) g[i] = (float)(cursor + 1 + i);
    if (is_at(r, cursor, is_eval)) g[ROWS - 1] = 0.5f;
    return sgl_feed_alike(program, "g", g, sizeof g);
}

static sgl_status full_log(void *user, const sgl_step_record *record)
{
    rank *r = user;
    const bool full = r->at->number == 0 && record->step == r->job->at_step;
    return full ? sglcore_fail(&r->at->vm->env, SGL_IO, "the log is full") : SGL_OK;
}

static sgl_status refuse_save(void *user, int64_t step, const char *path)
{
    rank *r = user;
    (void)path;
    return step == 2 ? sglcore_fail(&r->at->vm->env, SGL_IO, "nobody wants it") : SGL_OK;
}

static void expect_told(const job *j, int teller, const char *message)
{
    char foreign[256];
    snprintf(foreign, sizeof foreign, "rank %d on ", teller);
    for (int r = 0; r < j->size; r++) {
        if (!strstr(j->all.ranks[r].message, message)) fail_msg("rank %d: %s", r, j->all.ranks[r].message);
        if (r != teller) assert_ptr_equal(strstr(j->all.ranks[r].message, foreign), j->all.ranks[r].message);
        if (r == teller) assert_string_equal(j->all.ranks[r].message, message);
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
        assert_ptr_equal(strstr(j.all.ranks[r].message, "the data end on rank 1 ("), j.all.ranks[r].message);
        assert_non_null(strstr(j.all.ranks[r].message, ") and not on rank 0 ("));
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
        assert_int_equal(j.all.ranks[r].status, SGL_INVALID_ARGUMENT);
        assert_int_equal(j.all.ranks[r].tells, r == 0);
        assert_ptr_equal(strstr(j.all.ranks[r].message, "the batch of rank 0 ("), j.all.ranks[r].message);
        assert_non_null(strstr(j.all.ranks[r].message, ") and that of rank 2 ("));
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
        assert_int_equal(j.all.ranks[r].status, SGL_IO);
        assert_int_equal(j.all.ranks[r].tells, r == 0);
        assert_non_null(strstr(j.all.ranks[r].message, "no-folder"));
    }
}

/* ---- failing within a step --------------------------------------------------------------------------------------------- */

static sgl_status feed_and_fall(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    rank *r = user;
    sgl_status status = feed_numbers(user, program, cursor, is_eval);
    if (is_at(r, cursor, is_eval)) sgl_interrupt(r->at->vm), sgl_interrupt(r->at->vm);
    return status;
}

static sgl_status no_step(sglexec_device *device, void *prepared, uint32_t index, void *const spaces[SGLIR_SPACES])
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
        broken = *r->at->session->ops;
        broken.launch = no_step;
        r->at->session->ops = &broken;
        (void)sglcore_fail(&r->at->vm->env, SGL_DEVICE, "a tube has burnt out");
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
        assert_int_equal(j.all.ranks[r].status, SGL_DEVICE);
        assert_true(j.all.ranks[r].lost);
        const char *where = strstr(j.all.ranks[r].message, "step 4: "); /* the news may come before the step */
        assert_true(where || strstr(j.all.ranks[r].message, "after step 3: ") == j.all.ranks[r].message);
        assert_non_null(strstr(j.all.ranks[r].message, "a tube has burnt out"));
        tellers += j.all.ranks[r].tells;
    }
    assert_int_equal(tellers, 1);
    assert_true(j.all.ranks[1].tells);
    assert_int_equal(j.ranks[0].steps, 3);
    assert_int_equal(saved_step("fall"), 2);
}

static void save_body(rank *r)
{
    train_body(r);
    r->later = sgl_checkpoint_save(r->at->session, "never", 9, "{}", 0);
}

static void test_stopped_in_a_step(void **state)
{
    (void)state;
    job j = { .size = 3, .body = save_body, .out = "now", .at_rank = 2, .at_step = 5, .feed = feed_and_fall };
    run_job(&j);
    /* The request may be heard where they agree, or within the step. */
    for (int r = 0; r < 3; r++) {
        assert_true(j.all.ranks[r].status == SGL_INTERRUPTED || j.all.ranks[r].status == SGL_DEVICE);
        assert_int_equal(j.all.ranks[r].lost, j.all.ranks[0].lost);
        assert_int_equal(j.ranks[r].later == SGL_OK, !j.all.ranks[0].lost);
    }
    assert_int_equal(saved_step("now"), 4);
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
        for (int r = 0; r < 3; r++) tripped = tripped || j.all.ranks[r].status != SGL_OK;
        for (int r = 0; r < 3; r++) {
            if ((j.all.ranks[r].status != SGL_OK) != tripped)
                fail_msg("allocation %d: rank %d: %s", (int)n, r, j.all.ranks[r].message);
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
        cmocka_unit_test(test_memory_faults),
    };
    return cmocka_run_group_tests_name("session ranks", tests, NULL, NULL);
}
