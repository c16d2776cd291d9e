/* test_precision.c -- plans of bf16 and fp16 at work: a step whose gradients overflow changes nothing but the scale, which
 * halves, grows back and is kept in checkpoints; too many such steps are an error that names the parameter; and a traced step
 * tells where a NaN was made.
 *
 * In: a small regression, built by hand and through the library. Everything goes through sgl.h. Odd invariant: states are
 * compared bit by bit. */
#include <math.h>
#include <stdio.h>

#include "session_case.h"

#include "sgl.h"

enum { ROWS = 2, WIDE = 4, OUT = 3, MOST = 1024 };

typedef struct trial {
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
} trial;

static void check(const trial *t, sgl_status status)
{
    if (status != SGL_OK) print_error("%s\n", sgl_error_message(t->vm));
    assert_int_equal(status, SGL_OK);
}

/* ---- the regression: loss = sum of x w^T + b; momentum, and a state of its own that counts ------------------------- */

static sgl_value input(sgl_graph *g, sgl_role role, const char *name, sgl_dtype dtype, int rank, int64_t a, int64_t b)
{
    const sgl_type type = { .dtype = dtype, .rank = rank, .dims = { a, b } };
    sgl_value made;
    assert_int_equal(sgl_input(g, role, name, &type, &made), SGL_OK);
    return made;
}

static sgl_value constant(sgl_graph *g, double number, sgl_dtype dtype)
{
    const sgl_attr attrs[] = { { .name = "value", .kind = SGL_ATTR_FLOAT, .f = number },
                               { .name = "dtype", .kind = SGL_ATTR_DTYPE, .i = dtype } };
    sgl_value made;
    int count;
    assert_int_equal(sgl_emit(g, "constant", NULL, 0, attrs, 2, &made, 1, &count), SGL_OK);
    return made;
}

static sgl_graph *regression(trial *t)
{
    sgl_graph *g;
    check(t, sgl_graph_new(t->vm, "train", &g));
    sgl_value b = input(g, SGL_PARAMETER, "head.bias", SGL_F32, 1, OUT, 0);
    sgl_value w = input(g, SGL_PARAMETER, "head.weight", SGL_F32, 2, OUT, WIDE);
    sgl_value m = input(g, SGL_STATE, "m/head.weight", SGL_F32, 2, OUT, WIDE);
    sgl_value n = input(g, SGL_STATE, "seen", SGL_I64, 0, 0, 0);
    sgl_value x = input(g, SGL_FEED, "x", SGL_F32, 2, ROWS, WIDE);
    sgl_value step = input(g, SGL_FEED, "step", SGL_I64, 0, 0, 0);
    sgl_value y = emit(g, "linear", (sgl_value[]){ x, w, b }, 3, NULL);
    sgl_value loss = emit(g, "reduce_sum", &y, 1, NULL);
    const sgl_attr outer = { .name = "outer", .kind = SGL_ATTR_INT, .i = 1 };
    sgl_value gradients[2];
    int count;
    check(t, sgl_emit(g, "grad", (sgl_value[]){ loss, w, b }, 3, &outer, 1, gradients, 2, &count));
    sgl_value moment = emit(g, "add", (sgl_value[]){ m, gradients[0] }, 2, NULL);
    sgl_value rate = constant(g, 0.125, SGL_F32);
    sgl_value by_w = emit(g, "mul", (sgl_value[]){ moment, rate }, 2, NULL);
    sgl_value by_b = emit(g, "mul", (sgl_value[]){ gradients[1], rate }, 2, NULL);
    sgl_value update = emit(g, "update_number", &step, 1, NULL);
    check(t, sgl_output_update(g, "head.weight", emit(g, "sub", (sgl_value[]){ w, by_w }, 2, NULL)));
    check(t, sgl_output_update(g, "head.bias", emit(g, "sub", (sgl_value[]){ b, by_b }, 2, NULL)));
    check(t, sgl_output_update(g, "m/head.weight", moment));
    check(t, sgl_output_update(g, "seen", emit(g, "add", (sgl_value[]){ n, constant(g, 1, SGL_I64) }, 2, NULL)));
    check(t, sgl_output_fetch(g, "loss", loss));
    check(t, sgl_output_fetch(g, "update", update));
    return g;
}

static void open_trial(trial *t, const char *precision)
{
    const sgl_attr fields[] = { { .name = "precision", .kind = SGL_ATTR_STRING, .s = precision },
                                { .name = "scale", .kind = SGL_ATTR_INT, .i = 8 },
                                { .name = "scale_growth_interval", .kind = SGL_ATTR_INT, .i = 3 },
                                { .name = "max_skips", .kind = SGL_ATTR_INT, .i = 4 } };
    sgl_plan *plan;
    memset(t, 0, sizeof *t);
    t->vm = open_vm(&t->heap);
    check(t, sgl_plan_new(t->vm, &plan));
    for (int i = 0; i < 4; i++) check(t, sgl_plan_set(plan, &fields[i]));
    check(t, sgl_session_new(t->vm, "cpu", &t->session));
    check(t, sgl_freeze(t->session, regression(t), plan, &t->program));
}

static void close_trial(trial *t) { close_vm(t->vm, &t->heap); }

/* A step on an x that is `number` in one place and small elsewhere. */
static void step_on(trial *t, int64_t step, float number)
{
    float x[ROWS * WIDE];
    for (int i = 0; i < ROWS * WIDE; i++) x[i] = 0.25f * (float)(i - 3);
    x[2] = number;
    check(t, sgl_feed(t->program, "x", x, sizeof x));
    check(t, sgl_feed(t->program, "step", &step, sizeof step));
    check(t, sgl_step(t->program));
}

/* All states but those of the scale, one behind another. */
static size_t states_of(trial *t, char *bytes)
{
    const char *name;
    sgl_type type;
    size_t at = 0;
    for (int i = 0; sgl_state_info(t->session, i, &name, NULL, &type) == SGL_OK && name != NULL; i++) {
        size_t size = type.dtype == SGL_I64 ? 8 : 4;
        for (int d = 0; d < type.rank; d++) size *= (size_t)type.dims[d];
        if (name[0] == '~') continue;
        assert_true(at + size <= MOST);
        check(t, sgl_state_read(t->session, name, bytes + at, size));
        at += size;
    }
    return at;
}

static double scale_of(trial *t)
{
    float scale;
    check(t, sgl_state_read(t->session, "~loss_scale.scale", &scale, sizeof scale));
    return (double)scale;
}

static int64_t number_of(trial *t, const char *name)
{
    int64_t number;
    check(t, sgl_state_read(t->session, name, &number, sizeof number));
    return number;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void skips(void **state)
{
    (void)state;
    trial t;
    char before[MOST], after[MOST];
    int64_t update, skipped;
    open_trial(&t, "fp16");
    assert_true(scale_of(&t) == 8);
    step_on(&t, 1, 0.5f);
    size_t bytes = states_of(&t, before);
    assert_true(number_of(&t, "seen") == 1);
    step_on(&t, 2, 1e5f); /* beyond f16 */
    assert_int_equal(states_of(&t, after), bytes);
    assert_memory_equal(before, after, bytes);
    assert_true(scale_of(&t) == 4);
    check(&t, sgl_fetch(t.program, "skipped", &skipped, sizeof skipped));
    assert_true(skipped == 1);
    step_on(&t, 3, 0.5f);
    states_of(&t, after);
    assert_memory_not_equal(before, after, bytes);
    check(&t, sgl_fetch(t.program, "update", &update, sizeof update));
    assert_true(update == 2); /* the optimizer does not count the step that was none */
    assert_true(number_of(&t, "seen") == 2);
    step_on(&t, 4, 0.5f);
    assert_true(scale_of(&t) == 4);
    step_on(&t, 5, 0.5f); /* the third good one after the skip */
    assert_true(scale_of(&t) == 8);
    close_trial(&t);
}

/* The same parameters as in f32, where nothing is rounded: all numbers are small binary fractions. */
static void unscaled_once(void **state)
{
    (void)state;
    static const char *const precisions[] = { "fp32", "fp16", "bf16" };
    float got[3][OUT * WIDE];
    for (int i = 0; i < 3; i++) {
        trial t;
        open_trial(&t, precisions[i]);
        for (int step = 1; step <= 4; step++) step_on(&t, step, 0.5f);
        check(&t, sgl_state_read(t.session, "head.weight", got[i], sizeof got[i]));
        close_trial(&t);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_memory_equal(got[0], got[2], sizeof got[0]);
}

static sgl_status feed_nan(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    (void)is_eval;
    const trial *t = user;
    float x[ROWS * WIDE] = { 0 };
    if (cursor > 1) x[0] = NAN;
    (void)t;
    return sgl_feed(program, "x", x, sizeof x);
}

static void too_many_skips(void **state)
{
    (void)state;
    trial t;
    open_trial(&t, "fp16");
    const sgl_train_config config = { .train = t.program, .feed = feed_nan, .user = &t, .steps = 20 };
    assert_int_equal(sgl_train(t.session, &config), SGL_LIMIT);
    const char *message = sgl_error_message(t.vm);
    assert_non_null(strstr(message, "step 6: 4 steps in a row were skipped"));
    assert_non_null(strstr(message, "in step 3, was that of head.weight"));
    assert_true(number_of(&t, "seen") == 2);
    close_trial(&t);
}

/* ---- checkpoints -------------------------------------------------------------------------------------------------- */

static void save_after(const char *precision, const char *dir, int overflows)
{
    trial t;
    open_trial(&t, precision);
    step_on(&t, 1, 0.5f);
    for (int i = 0; i < overflows; i++) step_on(&t, 2 + i, 1e5f);
    check(&t, sgl_checkpoint_save(t.session, dir, 1 + overflows, NULL, 0));
    close_trial(&t);
}

static void load_into(trial *t, const char *precision, const char *dir)
{
    const char *path, *meta;
    int64_t step;
    open_trial(t, precision);
    check(t, sgl_checkpoint_find(t->vm, dir, &path, &meta, &step));
    char kept[1024];
    snprintf(kept, sizeof kept, "%s", path);
    check(t, sgl_checkpoint_load(t->session, kept, 0));
}

static void resumes(void **state)
{
    (void)state;
    trial t;
    char whole[MOST], resumed[MOST];
    open_trial(&t, "fp16");
    for (int step = 1; step <= 5; step++) step_on(&t, step, step == 2 ? 1e5f : 0.5f);
    size_t bytes = states_of(&t, whole);
    double scale = scale_of(&t);
    close_trial(&t);

    save_after("fp16", "fp16.run", 1);
    load_into(&t, "fp16", "fp16.run");
    assert_true(scale_of(&t) == 4 && number_of(&t, "~loss_scale.skipped") == 1);
    for (int step = 3; step <= 5; step++) step_on(&t, step, 0.5f);
    assert_int_equal(states_of(&t, resumed), bytes);
    assert_memory_equal(whole, resumed, bytes);
    assert_true(scale_of(&t) == scale);
    close_trial(&t);

    save_after("fp32", "fp32.run", 0);
    load_into(&t, "fp16", "fp32.run"); /* it has no scale: that begins */
    assert_true(scale_of(&t) == 8);
    close_trial(&t);

    load_into(&t, "bf16", "fp16.run"); /* it needs no scale */
    assert_true(number_of(&t, "seen") == 1);
    close_trial(&t);
}

/* ---- traces ------------------------------------------------------------------------------------------------------- */

static void open_traced(trial *t, sgl_graph *(*build)(trial *), int unfused)
{
    const sgl_attr field = { .name = "unfused", .kind = SGL_ATTR_INT, .i = unfused };
    sgl_plan *plan;
    memset(t, 0, sizeof *t);
    t->vm = open_vm(&t->heap);
    check(t, sgl_plan_new(t->vm, &plan));
    check(t, sgl_plan_set(plan, &field));
    check(t, sgl_session_new(t->vm, "cpu", &t->session));
    check(t, sgl_freeze(t->session, build(t), plan, &t->program));
    check(t, sgl_program_trace(t->program, 1));
}

/* d log(x + w) / dw: infinite where x + w is 0, NaN where it is below. */
static sgl_graph *logarithm(trial *t)
{
    sgl_graph *g;
    check(t, sgl_graph_new(t->vm, "log", &g));
    sgl_value w = input(g, SGL_PARAMETER, "shift", SGL_F32, 1, 3, 0);
    sgl_value x = input(g, SGL_FEED, "x", SGL_F32, 1, 3, 0);
    check(t, sgl_graph_origin(g, "model.lua", 7, "blocks.0"));
    sgl_value sum = emit(g, "add", (sgl_value[]){ x, w }, 2, NULL);
    check(t, sgl_graph_origin(g, "model.lua", 8, "blocks.0"));
    sgl_value root = emit(g, "sqrt", &sum, 1, NULL);
    sgl_value y = emit(g, "reduce_sum", &root, 1, NULL);
    sgl_value gradient;
    check(t, sgl_grad(g, y, &w, 1, &gradient));
    check(t, sgl_output_fetch(g, "y", y));
    check(t, sgl_output_update(g, "shift", gradient));
    return g;
}

static const char *trace_on(trial *t, float last, sgl_status wanted)
{
    const float x[3] = { 1, 4, last };
    check(t, sgl_feed(t->program, "x", x, sizeof x));
    sgl_status status = sgl_step(t->program);
    if (status != wanted) print_error("%s\n", sgl_error_message(t->vm));
    assert_int_equal(status, wanted);
    return sgl_error_message(t->vm);
}

static void traced(void **state)
{
    (void)state;
    trial t;
    const float zero[3] = { 0 }, bad[3] = { 0, NAN, 0 };
    for (int unfused = 0; unfused < 2; unfused++) {
        open_traced(&t, logarithm, unfused);
        trace_on(&t, 9, SGL_OK);
        check(&t, sgl_state_write(t.session, "shift", zero, sizeof zero));
        const char *said = trace_on(&t, -2, SGL_NOT_FINITE);
        if (unfused) {
            assert_non_null(strstr(said,
                                   "model.lua:8: sqrt (in blocks.0) gives f32[3] with 1 NaN of 3 numbers, the first "
                                   "at [2]; what went in: f32[3] from -2 to 4 (mean 1)"));
        } else {
            assert_non_null(strstr(said, "NaN"));
        }
        close_trial(&t);
    }
    open_traced(&t, logarithm, 1);
    const char *said = trace_on(&t, 0, SGL_NOT_FINITE);
    assert_non_null(strstr(said, "model.lua:8: gradient of this line: div (in blocks.0) gives f32[3] with 1 infinity"));
    check(&t, sgl_state_write(t.session, "shift", bad, sizeof bad));
    said = trace_on(&t, 1, SGL_NOT_FINITE);
    assert_non_null(strstr(said, "before the step: the parameter shift is f32[3] from 0 to 0 (mean 0), with 1 NaN"));
    check(&t, sgl_state_write(t.session, "shift", zero, sizeof zero));
    said = trace_on(&t, NAN, SGL_NOT_FINITE);
    assert_non_null(strstr(said, "before the step: the feed x is"));
    check(&t, sgl_program_trace(t.program, 0));
    trace_on(&t, NAN, SGL_OK);
    close_trial(&t);
}

/* softmax of what a mask of -inf has left; but of a row of which it leaves nothing. */
static sgl_graph *masked(trial *t)
{
    sgl_graph *g;
    check(t, sgl_graph_new(t->vm, "masked", &g));
    sgl_value x = input(g, SGL_FEED, "x", SGL_F32, 1, 3, 0);
    sgl_value two = constant(g, 2, SGL_F32), least = constant(g, -INFINITY, SGL_F32);
    sgl_value seen = emit(g, "less", (sgl_value[]){ x, two }, 2, NULL);
    sgl_value scores = emit(g, "select", (sgl_value[]){ seen, x, least }, 3, NULL);
    check(t, sgl_output_fetch(g, "y", emit(g, "softmax", &scores, 1, NULL)));
    return g;
}

static void masks_are_legal(void **state)
{
    (void)state;
    trial t;
    open_traced(&t, masked, 1);
    trace_on(&t, 9, SGL_OK);
    const float x[3] = { 4, 5, 6 };
    check(&t, sgl_feed(t.program, "x", x, sizeof x));
    assert_int_equal(sgl_step(t.program), SGL_NOT_FINITE);
    assert_non_null(
        strstr(sgl_error_message(t.vm),
               "gives f32[3] with 3 NaN of 3 numbers, the first at [0]; what went in: f32[3], with 3 infinities"));
    close_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skips),   cmocka_unit_test(unscaled_once), cmocka_unit_test(too_many_skips),
        cmocka_unit_test(resumes), cmocka_unit_test(traced),        cmocka_unit_test(masks_are_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
