/* test_session_train.c -- what a run keeps when something around it fails: callbacks, data, evaluation, saving, a Ctrl-C in a
 * script; whom its folder belongs to; and what a device that computes nothing does not tell or save. Started in an empty
 * folder, on the CPU. */
#include "session_case.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "session/session.h"

/* A VM with one scalar w that each step doubles: after n steps it is 2^n. */
typedef struct doubling {
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_train_config config;
    int64_t fail_step; /* of on_step, on_eval, feed; 0: never */
    sgl_status fail_as;
    int64_t evaluated;
    int values;
    sgl_program *other; /* of the batch of step 3 */
} doubling;

static sgl_program *freeze_doubling(doubling *d, const char *name, bool learns)
{
    static const sgl_type scalar = { .dtype = SGL_F32, .rank = 0 };
    sgl_graph *g;
    sgl_value w[2], twice;
    sgl_program *program;
    assert_int_equal(sgl_graph_new(d->vm, name, &g), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_PARAMETER, "w", &scalar, &w[0]), SGL_OK);
    w[1] = w[0];
    twice = emit(g, "add", w, 2, NULL);
    if (learns) assert_int_equal(sgl_output_update(g, "w", twice), SGL_OK);
    assert_int_equal(sgl_output_fetch(g, learns ? "loss" : "loss_sum", twice), SGL_OK);
    if (!learns) assert_int_equal(sgl_output_fetch(g, "count", twice), SGL_OK);
    assert_int_equal(sgl_freeze(d->session, g, NULL, &program), SGL_OK);
    return program;
}

static void open_doubling(doubling *d, const char *device, const char *out)
{
    const float one = 1;
    memset(d, 0, sizeof *d);
    d->vm = open_vm(&d->heap);
    assert_int_equal(sgl_session_new(d->vm, device, &d->session), SGL_OK);
    d->config =
        (sgl_train_config){ .train = freeze_doubling(d, "train", true), .steps = 6, .out = out, .user = d, .keep = 1 };
    assert_int_equal(sgl_state_write(d->session, "w", &one, sizeof one), SGL_OK);
}

static float value_of(doubling *d)
{
    float w = -1;
    assert_int_equal(sgl_state_read(d->session, "w", &w, sizeof w), SGL_OK);
    return w;
}

/* The last checkpoint of the folder is of that step, and holds what was learnt until then. */
static void assert_saved(doubling *d, const char *out, int64_t step)
{
    const char *path, *meta;
    int64_t found = -1;
    assert_int_equal(sgl_checkpoint_find(d->vm, out, &path, &meta, &found), SGL_OK);
    assert_int_equal(found, step);
    assert_int_equal(sgl_checkpoint_load(d->session, path, 0), SGL_OK);
    assert_true(value_of(d) == (float)(1 << step));
}

static sgl_status fail_here(doubling *d, const char *what) { return sgl_fail(d->vm, d->fail_as, "%s is full", what); }

static sgl_status step_fails(void *user, const sgl_step_record *record)
{
    doubling *d = user;
    d->values = record->count;
    return record->step == d->fail_step ? fail_here(d, "the log") : SGL_OK;
}

static sgl_status eval_fails(void *user, const sgl_eval_record *record)
{
    doubling *d = user;
    d->evaluated++;
    assert_true(record->loss == 1 && record->targets == 1 << (record->step + 1) && record->count == 0);
    return record->step == d->fail_step ? fail_here(d, "the table") : SGL_OK;
}

static sgl_status feed_fails(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    doubling *d = user;
    (void)program, (void)is_eval;
    return cursor == d->fail_step ? fail_here(d, "the pipe") : SGL_OK;
}

/* Whatever fails around a step, at which step it may: what was learnt is saved, and the error is the one that came. */
static void test_failures_around_steps(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        char out[32];
        doubling d;
        snprintf(out, sizeof out, "around.%d", which);
        open_doubling(&d, "cpu", out);
        if (which == 0) d.config.on_step = step_fails;
        if (which == 1) d.config.feed = feed_fails;
        if (which == 2) {
            d.config.eval = freeze_doubling(&d, "eval", false);
            d.config.eval_every = 1;
            d.config.eval_batches = 1;
            d.config.on_eval = eval_fails;
        }
        d.fail_step = 3;
        d.fail_as = SGL_SCRIPT;
        assert_int_equal(sgl_train(d.session, &d.config), SGL_SCRIPT);
        assert_string_equal(sgl_error_message(d.vm), which == 0   ? "the log is full"
                                                     : which == 1 ? "the pipe is full"
                                                                  : "the table is full");
        assert_saved(&d, out, 3);
        close_vm(d.vm, &d.heap);
    }
    /* Before the first step there is nothing to save. */
    doubling d;
    open_doubling(&d, "cpu", "nothing");
    d.config.feed = feed_fails;
    d.fail_as = SGL_IO;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_IO);
    assert_true(access("nothing/step-00000000", F_OK) != 0);
    close_vm(d.vm, &d.heap);
}

static sgl_status pick_other(void *user, int64_t cursor, int is_eval, sgl_bucket *bucket)
{
    doubling *d = user;
    (void)is_eval;
    bucket->program = cursor == 2 ? d->other : d->config.train;
    return SGL_OK;
}

/* What a step tells is of the same names in the programs of all buckets. */
static void test_buckets_that_fetch_other_things(void **state)
{
    (void)state;
    doubling d;
    open_doubling(&d, "cpu", NULL);
    d.other = freeze_doubling(&d, "other", false);
    d.config.pick = pick_other;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_INVALID_ARGUMENT);
    assert_string_equal(
        sgl_error_message(d.vm),
        "sgl_train: a program that pick gave does not fetch 'loss' where the others do; programs of all "
        "buckets come of one script");
    assert_true(value_of(&d) == 4);
    close_vm(d.vm, &d.heap);
}

static int refuse_write(void *user, const char *path, int *fd)
{
    (void)user, (void)path, (void)fd;
    errno = ENOSPC;
    return -1;
}

static sgl_status disk_fills(void *user, const sgl_step_record *record)
{
    static sglcore_io full;
    doubling *d = user;
    if (record->step != 2) return SGL_OK;
    full = *d->vm->env.io;
    full.open_write = refuse_write;
    d->vm->env.io = &full;
    return fail_here(d, "the log");
}

/* When saving fails as well, both are told, the first first, and it is not tried twice. */
static void test_both_fail(void **state)
{
    (void)state;
    doubling d;
    open_doubling(&d, "cpu", "both");
    d.config.on_step = disk_fills;
    d.fail_as = SGL_SCRIPT;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_SCRIPT);
    assert_string_equal(sgl_error_message(d.vm),
                        "the log is full; and what was learnt until step 2 could not be saved: cannot create "
                        "both/.step-00000002.partial/parameters.safetensors: No space left on device");
    close_vm(d.vm, &d.heap);
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------------ */

static void test_feed_is_interrupted(void **state)
{
    (void)state;
    doubling d;
    open_doubling(&d, "cpu", "feed");
    d.config.feed = feed_fails;
    d.fail_step = 4;
    d.fail_as = SGL_INTERRUPTED;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_INTERRUPTED);
    assert_string_equal(sgl_error_message(d.vm), "interrupted after step 4");
    assert_saved(&d, "feed", 4);
    close_vm(d.vm, &d.heap);
}

static const char endless[] = "local sgl = require 'sgl'\n"
                              "local layer = sgl.nn.linear(1, 1)\n"
                              "return sgl.job { model = layer, steps = 9,\n"
                              "  loss = function(b) return sgl.mean(layer(b.x)) end,\n"
                              "  data = sgl.data.batches { feeds = { x = { dtype = 'f32', dims = { 1, 1 } } },\n"
                              "    next = function(cursor) while cursor == 2 do end return { x = { 1 } } end },\n"
                              "  optim = sgl.optim.sgd { lr = 0.1 } }\n";

static sgl_vm *alarmed;
static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
    sgl_interrupt(alarmed);
}

/* A script that would run for ever: the first request ends it, the run is saved, and the request is done with. */
static void test_script_is_interrupted(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_session *session;
    sgl_job *job = NULL;
    const char *path, *meta;
    int64_t step;
    if (sgl_load_text(vm, "endless.lua", endless, NULL, 0, &job) != SGL_OK) fail_msg("%s", sgl_error_message(vm));
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    const sgl_train_config config = {
        .train = case_program(vm, job, session, "train"), .feed = sgl_job_feed, .user = job, .steps = 9, .out = "script"
    };
    alarmed = vm;
    struct sigaction action = { .sa_handler = on_alarm };
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    const struct itimerval soon = { .it_value = { .tv_usec = 300000 } };
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    assert_int_equal(sgl_train(session, &config), SGL_INTERRUPTED);
    assert_int_equal(alarms, 1);
    assert_string_equal(sgl_error_message(vm), "interrupted after step 2");
    assert_int_equal(sgl_interrupted(vm), 0);
    assert_int_equal(sgl_checkpoint_find(vm, "script", &path, &meta, &step), SGL_OK);
    assert_int_equal(step, 2);
    sgl_interrupt(vm);
    assert_int_equal(sgl_interrupted(vm), 1);
    sgl_interrupt(vm);
    assert_int_equal(sgl_interrupted(vm), 2);
    assert_int_equal(sgl_job_feed(job, config.train, 2, 0), SGL_INTERRUPTED);
    assert_int_equal(sgl_interrupted(vm), 0);
    assert_int_equal(sgl_interrupted(NULL), 0);
    close_vm(vm, &heap);
}

/* ---- the folder --------------------------------------------------------------------------------------------------- */

/* One session has a folder at a time: while it trains or saves, or for as long as it says. */
static void test_lock(void **state)
{
    (void)state;
    doubling mine, other;
    open_doubling(&mine, "cpu", "locked/run");
    open_doubling(&other, "cpu", "locked/run");
    assert_int_equal(sgl_checkpoint_lock(mine.session, "locked/run"), SGL_OK);
    assert_int_equal(sgl_checkpoint_lock(mine.session, "locked/run"), SGL_OK);
    static const char message[] =
        "locked/run: another run writes its checkpoints there (it holds locked/run/.lock); wait "
        "until it has ended, or name another folder";
    assert_int_equal(sgl_train(other.session, &other.config), SGL_WRONG_STATE);
    assert_string_equal(sgl_error_message(other.vm), message);
    assert_true(value_of(&other) == 1); /* not one step was made */
    assert_int_equal(sgl_checkpoint_save(other.session, "locked/run", 3, NULL, 0), SGL_WRONG_STATE);
    assert_string_equal(sgl_error_message(other.vm), message);
    assert_int_equal(sgl_train(mine.session, &mine.config), SGL_OK);
    assert_int_equal(sgl_checkpoint_save(other.session, "locked/run", 3, NULL, 0), SGL_WRONG_STATE);
    assert_int_equal(sgl_checkpoint_save(mine.session, "./locked/run", 6, NULL, 0),
                     SGL_OK); /* its own, by another name */
    assert_int_equal(sgl_checkpoint_save(other.session, "locked/run", 7, NULL, 0), SGL_OK);
    assert_int_equal(sgl_checkpoint_lock(mine.session, "locked/run"), SGL_OK);
    assert_int_equal(sgl_checkpoint_lock(mine.session, NULL), SGL_OK);
    assert_int_equal(sgl_train(other.session, &other.config), SGL_OK);
    assert_int_equal(sgl_checkpoint_lock(mine.session, "locked/run"), SGL_OK); /* sgl_train gives it back */
    close_vm(mine.vm, &mine.heap);
    assert_int_equal(sgl_checkpoint_save(other.session, "locked/run", 8, NULL, 0), SGL_OK);
    close_vm(other.vm, &other.heap);
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* A run that goes on from an older step leaves the newer ones: they stay, under other names, and are not found for it. */
static void test_branches(void **state)
{
    (void)state;
    doubling d;
    open_doubling(&d, "cpu", "branch");
    d.config.steps = 4;
    d.config.save_every = 1;
    d.config.keep = 0;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_OK);
    for (int turn = 1; turn <= 2; turn++) {
        const char *path, *meta;
        int64_t step;
        d.config.start_step = 2;
        d.config.stop_at = 3;
        assert_int_equal(sgl_checkpoint_find(d.vm, "branch/step-00000002", &path, &meta, &step), SGL_OK);
        assert_int_equal(sgl_checkpoint_load(d.session, path, 0), SGL_OK);
        assert_int_equal(sgl_train(d.session, &d.config), SGL_OK);
        assert_saved(&d, "branch", 3);
        assert_true(is_there("branch/step-00000002") && is_there("branch/step-00000003.aside/manifest.json"));
        assert_true(is_there("branch/step-00000004.aside") && !is_there("branch/step-00000004"));
        assert_int_equal(is_there("branch/step-00000003.aside.2"), turn == 2);
    }
    assert_saved(&d, "branch/step-00000004.aside", 4); /* whoever names it has it */
    close_vm(d.vm, &d.heap);
}

/* The folder that is looked into may be what was found before. */
static void test_find_what_was_found(void **state)
{
    (void)state;
    doubling d;
    const char *path, *meta;
    int64_t step;
    open_doubling(&d, "cpu", "found");
    assert_int_equal(sgl_train(d.session, &d.config), SGL_OK);
    assert_int_equal(sgl_checkpoint_find(d.vm, "found", &path, &meta, &step), SGL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sgl_checkpoint_find(d.vm, path, &path, &meta, &step), SGL_OK);
        assert_string_equal(path, "found/step-00000006");
        assert_int_equal(step, 6);
    }
    assert_int_equal(sgl_checkpoint_find(d.vm, meta, &path, &meta, &step), SGL_NOT_FOUND);
    assert_null(path);
    assert_null(meta);
    close_vm(d.vm, &d.heap);
}

/* ---- the null device ---------------------------------------------------------------------------------------------- */

static void test_null_device(void **state)
{
    (void)state;
    doubling d;
    open_doubling(&d, "null", "null");
    assert_int_equal(sgl_session_computes(d.session), 0);
    assert_int_equal(sgl_train(d.session, &d.config), SGL_UNSUPPORTED);
    assert_string_equal(
        sgl_error_message(d.vm),
        "sgl_train: the device 'null' computes nothing: there is nothing to save in null, leave out NULL");
    assert_int_equal(sgl_checkpoint_save(d.session, "null", 1, NULL, 0), SGL_UNSUPPORTED);
    assert_string_equal(sgl_error_message(d.vm),
                        "sgl_checkpoint_save: the device 'null' computes nothing: there is nothing to save");
    assert_false(is_there("null"));
    d.config.out = NULL;
    d.config.on_step = step_fails;
    d.config.eval = freeze_doubling(&d, "eval", false);
    d.config.eval_every = 1;
    d.config.eval_batches = 1;
    d.config.on_eval = eval_fails;
    d.values = -1;
    assert_int_equal(sgl_train(d.session, &d.config), SGL_OK);
    assert_int_equal(d.values, 0); /* steps are told, and nothing of what they would have given */
    assert_int_equal(d.evaluated, 0);
    close_vm(d.vm, &d.heap);
    open_doubling(&d, "cpu", NULL);
    assert_int_equal(sgl_session_computes(d.session), 1);
    assert_int_equal(sgl_session_computes(NULL), 0);
    close_vm(d.vm, &d.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_around_steps),
        cmocka_unit_test(test_buckets_that_fetch_other_things),
        cmocka_unit_test(test_both_fail),
        cmocka_unit_test(test_feed_is_interrupted),
        cmocka_unit_test(test_script_is_interrupted),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_find_what_was_found),
        cmocka_unit_test(test_null_device),
    };
    return cmocka_run_group_tests_name("training runs", tests, NULL, NULL);
}
