/* test_exec_replay.c -- replay as it is watched: stopped between two instructions, measured instruction by instruction, and
 * what a session makes of a step that was not finished. On the null device with a launch that counts. */
#include "session_case.h"

#include <math.h>

#include <jansson.h>
#include <stdio.h>

#include "session/session.h"
#include "wire.h"

static struct {
    sgl_vm *vm;
    int64_t launches, stop_at, fail_at; /* 0: never */
    int interrupts;                     /* so many at stop_at */
} device;

static sgl_status count_launch(sglexec_device *unused, void *prepared, uint32_t index, void *const spaces[SGLIR_SPACES])
{
    (void)unused, (void)prepared, (void)index, (void)spaces;
    device.launches++;
    for (int i = 0; device.launches == device.stop_at && i < device.interrupts; i++) sgl_interrupt(device.vm);
    if (device.launches == device.fail_at) return sglcore_fail(&device.vm->env, SGL_DEVICE, "the device fell over");
    return SGL_OK;
}

typedef struct fixture {
    fault_heap heap;
    sglexec_device_ops ops;
    sgl_session *session;
    sgl_program *train, *eval;
    sgl_job *job;
} fixture;

static void write_text_file(void)
{
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++) fputc("abcdefgh \n"[i * 7 % 10], file);
    fclose(file);
}

static void open_fixture(fixture *f)
{
    *f = (fixture){ .heap = { .counter = { 0 } } };
    memset(&device, 0, sizeof device);
    write_text_file();
    sgl_vm *vm = device.vm = open_vm(&f->heap);
    assert_int_equal(sgl_session_new(vm, "null", &f->session), SGL_OK);
    f->ops = *f->session->ops;
    f->ops.launch = count_launch;
    f->ops.blank = false; /* what it holds counts as learnt, so that it may be saved */
    f->session->ops = &f->ops;
    f->job = case_job(vm, "2");
    f->train = case_program(vm, f->job, f->session, "train");
    f->eval = case_program(vm, f->job, f->session, "eval");
}

static void close_fixture(fixture *f) { close_vm(device.vm, &f->heap); }

static int64_t launches_of(sgl_program *program)
{
    device.launches = 0;
    assert_int_equal(sgl_step(program), SGL_OK);
    return device.launches;
}

/* Every instruction is a place to stop, in loops too; after the last one the step is whole. */
static void test_stops_anywhere(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    int64_t all = launches_of(f.eval), allocations = device.vm->env.allocations;
    assert_true(all > 10);
    device.interrupts = 2;
    for (device.stop_at = 1; device.stop_at < all; device.stop_at++) {
        device.launches = 0;
        assert_int_equal(sgl_step(f.eval), SGL_INTERRUPTED);
        assert_int_equal(device.launches, device.stop_at);
    }
    assert_non_null(strstr(sgl_error_message(device.vm), "eval: stopped before instruction "));
    assert_int_equal(device.vm->env.allocations, allocations);
    device.stop_at = 0;
    assert_int_equal(launches_of(f.eval), all); /* the request is taken back */
    close_fixture(&f);
}

static void test_once_is_not_now(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    device.stop_at = 3;
    device.interrupts = 1;
    assert_int_equal(sgl_step(f.eval), SGL_OK);
    sgl_interrupt(device.vm); /* the second one */
    device.launches = 0;
    assert_int_equal(sgl_step(f.train), SGL_INTERRUPTED);
    assert_int_equal(device.launches, 0);
    assert_false(f.session->torn); /* nothing of it ran */
    assert_int_equal(sgl_step(f.train), SGL_OK);
    sgl_interrupt(device.vm);
    sgl_interrupt(device.vm);
    sgl_resume(device.vm);
    assert_int_equal(sgl_step(f.train), SGL_OK);
    close_fixture(&f);
}

/* What was saved before can be loaded, and only then is there something to save. */
static void expect_torn(fixture *f)
{
    const char *path, *meta;
    int64_t step;
    assert_int_equal(sgl_checkpoint_save(f->session, "torn", 2, "{}", 0), SGL_WRONG_STATE);
    assert_non_null(strstr(sgl_error_message(device.vm), "the states are of no step; load a checkpoint first"));
    assert_int_equal(sgl_checkpoint_find(device.vm, "torn", &path, &meta, &step), SGL_OK);
    assert_int_equal(step, 1);
    assert_int_equal(sgl_checkpoint_load(f->session, path, 1), SGL_OK); /* parameters alone do not make a step */
    assert_int_equal(sgl_checkpoint_save(f->session, "torn", 2, "{}", 0), SGL_WRONG_STATE);
    assert_int_equal(sgl_checkpoint_load(f->session, path, 0), SGL_OK);
    assert_int_equal(sgl_checkpoint_save(f->session, "torn", 1, "{}", 0), SGL_OK);
}

static void test_half_a_step_is_not_saved(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    assert_int_equal(sgl_checkpoint_save(f.session, "torn", 1, "{}", 0), SGL_OK);
    device.interrupts = 2;
    device.stop_at = 5;
    assert_int_equal(sgl_step(f.eval), SGL_INTERRUPTED); /* it updates nothing */
    assert_int_equal(sgl_checkpoint_save(f.session, "torn", 1, "{}", 0), SGL_OK);
    device.launches = 0;
    assert_int_equal(sgl_step(f.train), SGL_INTERRUPTED);
    expect_torn(&f);
    device.launches = device.stop_at = 0;
    device.fail_at = 7;
    assert_int_equal(sgl_step(f.train), SGL_DEVICE);
    expect_torn(&f);
    close_fixture(&f);
}

static void test_train_stops_now(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    const char *path, *meta;
    int64_t step;
    sgl_train_config config = { .train = f.train, .steps = 3, .out = "now" };
    assert_int_equal(sgl_job_tokens(f.job, &config.tokens), SGL_OK);
    int64_t all = launches_of(f.train);
    device.launches = 0;
    device.stop_at = all + 4; /* within the second step */
    device.interrupts = 2;
    assert_int_equal(sgl_train(f.session, &config), SGL_INTERRUPTED);
    assert_non_null(strstr(sgl_error_message(device.vm), "step 2 is not finished and not kept"));
    assert_int_equal(sgl_checkpoint_find(device.vm, "now", &path, &meta, &step), SGL_NOT_FOUND);
    f.session->torn = false;
    device.launches = 0;
    device.interrupts = 1; /* the step is finished and saved */
    assert_int_equal(sgl_train(f.session, &config), SGL_INTERRUPTED);
    assert_int_equal(device.launches, 2 * all);
    assert_int_equal(sgl_checkpoint_find(device.vm, "now", &path, &meta, &step), SGL_OK);
    assert_int_equal(step, 2);
    close_fixture(&f);
}

/* ---- profiles ------------------------------------------------------------------------------------------------------ */

static void test_profile(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    case_text text = { 0 };
    assert_int_equal(sgl_program_report(f.train, "profile", "json", case_text_write, &text), SGL_WRONG_STATE);
    int64_t all = launches_of(f.train);
    assert_int_equal(sgl_program_profile(f.train, 1), SGL_OK);
    text = case_report(f.train, "profile", "text");
    assert_string_equal(text.data, "profile of program \"train\": no step was measured\n");
    case_text_free(&text);
    for (int i = 0; i < 3; i++) assert_int_equal(launches_of(f.train), all);
    text = case_report(f.train, "profile", "json");
    json_t *json = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL), *i;
    case_text_free(&text);
    assert_non_null(json);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 3);
    size_t n;
    int64_t launches = 0;
    double ms = 0, before = INFINITY;
    json_array_foreach(json_object_get(json, "instructions"), n, i)
    {
        double mine = json_real_value(json_object_get(i, "ms"));
        assert_string_not_equal(json_string_value(json_object_get(i, "op")), "scan");
        assert_true(mine <= before);
        before = mine;
        ms += mine;
        launches += json_integer_value(json_object_get(i, "launches"));
    }
    assert_int_equal(launches, 3 * all);
    assert_true(ms > 0 && fabs(ms - json_real_value(json_object_get(json, "ms"))) < 1e-3);
    assert_int_equal(json_array_size(json_object_get(json, "kernels")), f.train->program->kernels.count);
    json_decref(json);
    text = case_report(f.train, "profile", "text");
    assert_non_null(strstr(text.data, "profile of program \"train\": 3 steps, "));
    assert_non_null(strstr(text.data, "cheaper ones\n"));
    case_text_free(&text);
    assert_int_equal(sgl_program_profile(f.train, 0), SGL_OK);
    assert_int_equal(sgl_program_report(f.train, "profile", "text", case_text_write, &text), SGL_WRONG_STATE);
    close_fixture(&f);
}

static sgl_status write_nothing(void *user, const char *data, size_t bytes)
{
    (void)user, (void)data, (void)bytes;
    return SGL_OK;
}

static void test_profile_without_memory(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    assert_int_equal(sgl_program_profile(f.train, 1), SGL_OK);
    assert_int_equal(sgl_step(f.train), SGL_OK);
    int64_t blocks = f.heap.live_blocks, tries = 0;
    for (bool tripped = true; tripped; tries++) {
        f.heap.counter = (fault_counter){ .fail_at = tries + 1 };
        sgl_status status = sgl_program_report(f.train, "profile", "json", write_nothing, NULL);
        if (status == SGL_OK) status = sgl_program_report(f.train, "profile", "text", write_nothing, NULL);
        tripped = f.heap.counter.tripped;
        assert_int_equal(status, tripped ? SGL_OUT_OF_MEMORY : SGL_OK);
        assert_int_equal(f.heap.live_blocks, blocks);
    }
    for (int n = 1; n <= 3; n++) {
        f.heap.counter = (fault_counter){ .fail_at = n };
        assert_int_equal(sgl_program_profile(f.train, 1), SGL_OUT_OF_MEMORY);
        assert_null(f.train->profile);
    }
    f.heap.counter = (fault_counter){ 0 };
    close_fixture(&f);
}

static void test_devices_by_name(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    const sglexec_device_ops *ops = NULL;
    assert_string_equal(sglwire_device(0), "cpu");
    for (int i = 0; sglwire_device(i); i++) {
        if (strcmp(sglwire_device(i), "cuda") == 0) continue; /* a module: test_module.c */
        assert_int_equal(sglwire_device_find(&env, sglwire_device(i), &ops), SGL_OK);
        assert_string_equal(ops->name, sglwire_device(i));
    }
    assert_null(sglwire_device(-1));
    assert_int_equal(sglwire_device_find(&env, "cpuu", &ops), SGL_NOT_FOUND);
    assert_string_equal(env.message,
                        "there is no device 'cpuu'; this build has cpu, cuda and null; did you mean 'cpu'?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops_anywhere),
        cmocka_unit_test(test_once_is_not_now),
        cmocka_unit_test(test_half_a_step_is_not_saved),
        cmocka_unit_test(test_train_stops_now),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_profile_without_memory),
        cmocka_unit_test(test_devices_by_name),
    };
    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
