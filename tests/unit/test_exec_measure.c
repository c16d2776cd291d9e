/* test_exec_measure.c -- where the time of a step goes: marks of a device whose clock is this file's, roofs, the timeline. On the
 * null device, with launches that take a time of their own. */
#include "session_case.h"

#include <math.h>

#include <jansson.h>
#include <stdio.h>

#include "session/session.h"
#include "wire.h"

enum { HOST_NS = 5000 }; /* what the host does between launches, while the device has nothing to do */

static struct {
    int64_t ns, marks[SGLEXEC_MOST_MARKS], reads, gaps;
} device;

static int64_t cost_of(uint32_t index) { return 1000 + 10 * (int64_t)index; }

static sgl_status launch(sglexec_device *unused, void *prepared, uint32_t index, void *const spaces[5])
{
    (void)unused, (void)prepared, (void)spaces;
    device.ns += cost_of(index);
    return SGL_OK;
}

static sgl_status finish(sglexec_device *unused)
{
    (void)unused;
    device.ns += HOST_NS;
    return SGL_OK;
}

static sgl_status write_host(sglexec_device *unused, void *block, int64_t offset, const void *host, int64_t bytes)
{
    (void)unused, (void)block, (void)offset, (void)host, (void)bytes;
    device.ns += HOST_NS;
    device.gaps++;
    return SGL_OK;
}

static sgl_status mark(sglexec_device *unused, int n)
{
    (void)unused;
    assert_in_range(n, 0, SGLEXEC_MOST_MARKS - 1);
    device.marks[n] = device.ns;
    return SGL_OK;
}

static sgl_status marked(sglexec_device *unused, int count, int64_t *ns)
{
    (void)unused;
    device.reads++;
    for (int n = 0; n < count; n++) ns[n] = device.marks[n] - device.marks[0];
    return SGL_OK;
}

typedef struct fixture {
    fault_heap heap;
    sgl_vm *vm;
    sglexec_device_ops ops;
    sgl_session *session;
    sgl_program *train;
} fixture;

static void open_fixture(fixture *f, const char *script)
{
    *f = (fixture){ .heap = { .counter = { 0 } } };
    memset(&device, 0, sizeof device);
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++) fputc("abcdefgh \n"[i * 7 % 10], file);
    fclose(file);
    f->vm = open_vm(&f->heap);
    assert_int_equal(sgl_session_new(f->vm, "null", &f->session), SGL_OK);
    f->ops = *f->session->ops;
    f->ops.launch = launch;
    f->ops.finish = finish;
    f->ops.write = write_host;
    f->ops.mark = mark;
    f->ops.marked = marked;
    f->session->ops = &f->ops;
    sgl_job *job = NULL;
    assert_int_equal(sgl_load_text(f->vm, "case.lua", script, NULL, 0, &job), SGL_OK);
    f->train = case_program(f->vm, job, f->session, "train");
    assert_int_equal(sgl_program_profile(f->train, 1), SGL_OK);
}

static void close_fixture(fixture *f) { close_vm(f->vm, &f->heap); }

static json_t *report(const fixture *f, const char *kind)
{
    case_text text = case_report(f->train, kind, "json");
    json_t *json = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL);
    if (!json) print_error("%s\n", text.data);
    assert_non_null(json);
    case_text_free(&text);
    return json;
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* What an instruction takes is its own: neither the host's writes nor what comes before. */
static void test_marks(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, case_script);
    for (int i = 0; i < 3; i++) assert_int_equal(sgl_step(f.train), SGL_OK);
    assert_true(device.gaps > 0); /* it has loops */
    assert_int_equal(device.reads, 3);
    json_t *json = report(&f, "profile"), *i;
    size_t n;
    assert_int_equal(real(json, "steps"), 3);
    json_array_foreach(json_object_get(json, "instructions"), n, i)
    {
        const double cost = (double)cost_of((uint32_t)real(i, "number"));
        assert_true(real(i, "launches") > 0);
        assert_true(fabs(real(i, "ms") - real(i, "launches") * cost * 1e-6) < 1e-9);
    }
    assert_true(n > 10);
    json_decref(json);
    close_fixture(&f);
}

/* A loop of more launches than there are marks: they are read meanwhile, and none is lost. */
static void test_many_marks(void **state)
{
    (void)state;
    static const char script[] =
        "local sgl = require 'sgl'\n"
        "local w = sgl.nn.linear(2, 2)\n"
        "return sgl.job { model = w, optim = sgl.optim.sgd { lr = 0.1 },\n"
        "  loss = function(b)\n"
        "    local h = sgl.scan(function(h, _, i) return sgl.tanh(w(h)) end, b.x, nil, { length = 3000 })\n"
        "    return h:mean() end,\n"
        "  data = sgl.data.batches { feeds = { x = { dtype = 'f32', dims = { 2, 2 } } },\n"
        "    next = function() return { x = { 1, 2, 3, 4 } } end } }\n";
    fixture f;
    open_fixture(&f, script);
    assert_int_equal(sgl_step(f.train), SGL_OK);
    assert_true(device.reads > 1);
    json_t *json = report(&f, "profile"), *i;
    size_t n;
    double launches = 0;
    json_array_foreach(json_object_get(json, "instructions"), n, i)
    {
        launches += real(i, "launches");
        const double cost = (double)cost_of((uint32_t)real(i, "number"));
        assert_true(fabs(real(i, "ms") - real(i, "launches") * cost * 1e-6) < 1e-6);
    }
    assert_true(launches > SGLEXEC_MOST_MARKS);
    json_decref(json);
    json = report(&f, "timeline");
    assert_int_equal(real(json_object_get(json, "otherData"), "left out"), 0);
    json_decref(json);
    close_fixture(&f);
}

/* The longer of the time of the bytes and the time of the arithmetic, at the rate of the dtype. */
static void test_roof(void **state)
{
    (void)state;
    fixture f;
    const sgl_machine machine = { .flops_per_s = 1e9, .narrow_flops_per_s = 4e9, .bytes_per_s = 2e9 };
    open_fixture(&f, case_script);
    assert_int_equal(sgl_program_roof(f.train, &machine), SGL_OK);
    assert_int_equal(sgl_step(f.train), SGL_OK);
    json_t *json = report(&f, "profile"), *i;
    size_t n, by_arithmetic = 0, by_bytes = 0;
    assert_true(real(json, "flops_per_s") == 1e9 && real(json, "narrow_flops_per_s") == 4e9);
    json_array_foreach(json_object_get(json, "instructions"), n, i)
    {
        const double computing = real(i, "flops") / 1e9, moving = real(i, "bytes") / 2e9;
        const double roof_ms = 1e3 * fmax(computing, moving) * real(i, "launches");
        assert_true(fabs(real(i, "roof_ms") - roof_ms) < 1e-6);
        by_arithmetic += computing > moving;
        by_bytes += moving > computing;
    }
    assert_true(by_arithmetic > 0 && by_bytes > 0);
    json_decref(json);
    case_text text = case_report(f.train, "profile", "text");
    assert_non_null(strstr(text.data, "\nroof: "));
    assert_non_null(strstr(text.data, "products 0.001 TFLOP/s in f32, 0.004 in bf16, copies 2 GB/s\n"));
    case_text_free(&text);
    /* products of bf16 go by the other rate; an exchange has no roof */
    const sglexec_ceilings c = { .flops_per_s = 1e9, .narrow_flops_per_s = 4e9, .bytes_per_s = 1e18 };
    sglexec_operand operands[] = { { .dtype = SGL_BF16, .rank = 1, .dims = { 8 } },
                                   { .dtype = SGL_BF16, .rank = 1, .dims = { 8 } },
                                   { .dtype = SGL_F32 } };
    sglexec_instruction dot = { .op = SGLIR_OP_DOT, .arg_count = 2, .result_count = 1, .flops = 16, .bytes = 36 };
    const sglexec_program program = { .operands = { operands, 3, 3 } };
    assert_true(sglexec_roof_s(&program, &dot, &c) == 16 / 4e9);
    operands[0].dtype = operands[1].dtype = SGL_F32;
    assert_true(sglexec_roof_s(&program, &dot, &c) == 16 / 1e9);
    dot.op = SGLIR_OP_WAIT;
    assert_true(sglexec_roof_s(&program, &dot, &c) == 0);
    close_fixture(&f);
}

static int by_begin(const void *a, const void *b)
{
    const double x = ((const double *)a)[0], y = ((const double *)b)[0];
    return x < y ? -1 : x > y;
}

/* A slice for each launch of the last step, none over another, as long as the launch took. */
static void test_timeline(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, case_script);
    for (int i = 0; i < 2; i++) assert_int_equal(sgl_step(f.train), SGL_OK);
    json_t *json = report(&f, "timeline"), *event;
    size_t n, slices = 0;
    static double times[1 << 14][2];
    json_array_foreach(json_object_get(json, "traceEvents"), n, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        const json_t *about = json_object_get(event, "args");
        assert_true(real(event, "pid") == 0 && real(event, "tid") == 1);
        assert_true(fabs(real(event, "dur") * 1e3 - (double)cost_of((uint32_t)real(about, "instruction"))) < 1.5);
        assert_non_null(json_string_value(json_object_get(about, "file")));
        times[slices][0] = real(event, "ts");
        times[slices++][1] = real(event, "ts") + real(event, "dur");
    }
    const double launches = (double)f.train->profile->launched_count;
    assert_true(slices > 10 && (double)slices == launches);
    qsort(times, slices, sizeof times[0], by_begin);
    for (n = 1; n < slices; n++) assert_true(times[n][0] >= times[n - 1][1] - 0.002);
    json_decref(json);
    close_fixture(&f);
}

/* An exchange that is under way while others are launched: a slice of its own, and the wait as what is exposed. */
static void test_exchanges(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, case_script);
    assert_int_equal(sgl_step(f.train), SGL_OK);
    sglexec_program *p = f.train->program;
    sglexec_profile *profile = f.train->profile;
    assert_true(profile->launched_count > 4);
    const uint32_t begun = profile->launched[0].instruction, wait = profile->launched[3].instruction;
    p->instructions.data[begun].op = SGLIR_OP_ALL_REDUCE;
    p->instructions.data[wait].op = SGLIR_OP_WAIT;
    p->instructions.data[wait].begun = begun;
    json_t *json = report(&f, "timeline"), *event;
    size_t n, exposed = 0, under_way = 0;
    json_array_foreach(json_object_get(json, "traceEvents"), n, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        const double tid = real(event, "tid");
        exposed += tid == 2;
        if (tid != 3) continue;
        under_way++;
        const double ns = (double)(profile->launched[3].ended - profile->launched[0].begun);
        assert_true(fabs(real(event, "dur") * 1e3 - ns) < 1.5);
        assert_string_equal(json_string_value(json_object_get(event, "cat")), "communication");
    }
    assert_true(exposed >= 2 && under_way == 1);
    json_decref(json);
    close_fixture(&f);
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f;
    sgl_machine machine = { 0 };
    case_text text = { 0 };
    open_fixture(&f, case_script);
    assert_int_equal(sgl_program_report(f.train, "timeline", "text", case_text_write, &text), SGL_INVALID_ARGUMENT);
    assert_non_null(strstr(sgl_error_message(f.vm), "the format is json, not 'text'"));
    assert_int_equal(sgl_session_machine(f.session, &machine), SGL_UNSUPPORTED);
    assert_non_null(strstr(sgl_error_message(f.vm), "the device null computes nothing"));
    assert_int_equal(sgl_program_profile(f.train, 0), SGL_OK);
    assert_int_equal(sgl_program_roof(f.train, &machine), SGL_WRONG_STATE);
    assert_int_equal(sgl_program_report(f.train, "timeline", "json", case_text_write, &text), SGL_WRONG_STATE);
    close_fixture(&f);
}

/* Of the CPU: something, and within reason. */
static void test_machine(void **state)
{
    (void)state;
    fault_heap heap = { .counter = { 0 } };
    sgl_vm *vm = open_vm(&heap);
    sgl_session *session;
    sgl_machine machine = { 0 };
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    assert_int_equal(sgl_session_machine(session, &machine), SGL_OK);
    assert_true(machine.bytes_per_s > 1e8 && machine.bytes_per_s < 1e13);
    assert_true(machine.flops_per_s > 1e8 && machine.flops_per_s < 1e15);
    assert_true(machine.narrow_flops_per_s == machine.flops_per_s);
    close_vm(vm, &heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks),    cmocka_unit_test(test_many_marks), cmocka_unit_test(test_roof),
        cmocka_unit_test(test_timeline), cmocka_unit_test(test_exchanges),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
