/* test_session_extract.c -- sgl_graph_extract: the values of a graph on the CPU, with and without what is known, against those of
 * the whole graph; gradients are never cut; what is not needed is not there; every allocation failing. */
#include "session_case.h"

#include "session/session.h"

/* a [3] fed; b = exp a; c = b * b; d = c + w; total = sum c; e = d total/da. */
typedef struct fixture {
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_graph *g;
    sgl_value a, b, c, d, total, e, w;
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){ .heap = { .counter = { 0 } } };
    const sgl_type type = { .dtype = SGL_F64, .rank = 1, .dims = { 3 } };
    f->vm = open_vm(&f->heap);
    assert_int_equal(sgl_session_new(f->vm, "cpu", &f->session), SGL_OK);
    assert_int_equal(sgl_graph_new(f->vm, "lines", &f->g), SGL_OK);
    assert_int_equal(sgl_input(f->g, SGL_FEED, "a", &type, &f->a), SGL_OK);
    assert_int_equal(sgl_input(f->g, SGL_PARAMETER, "w", &type, &f->w), SGL_OK);
    f->b = emit(f->g, "exp", &f->a, 1, NULL);
    f->c = emit(f->g, "mul", (sgl_value[]){ f->b, f->b }, 2, NULL);
    f->d = emit(f->g, "add", (sgl_value[]){ f->c, f->w }, 2, NULL);
    f->total = emit(f->g, "reduce_sum", &f->c, 1, NULL);
    assert_int_equal(sgl_grad(f->g, f->total, &f->a, 1, &f->e), SGL_OK);
    assert_int_equal(sgl_output_fetch(f->g, "seen before", f->d), SGL_OK);
    assert_int_equal(sgl_output_update(f->g, "w", f->d), SGL_OK);
}

static sgl_program *extracted(fixture *f, const sgl_value *values, int count, const sgl_value *known, int known_count)
{
    sgl_graph *g;
    sgl_program *program;
    assert_int_equal(sgl_graph_extract(f->g, values, count, known, known_count, &g), SGL_OK);
    assert_int_equal(sgl_freeze(f->session, g, NULL, &program), SGL_OK);
    sgl_graph_free(g);
    return program;
}

static int count_feeds(const sgl_program *program, const char *wanted, bool *found)
{
    const char *name;
    int count = 0;
    *found = false;
    for (; sgl_program_feed(program, count, &name, NULL) == SGL_OK && name; count++)
        *found = *found || strcmp(name, wanted) == 0;
    return count;
}

static void expect(sgl_program *program, const char *name, double x, double y, double z)
{
    double got[3];
    const double want[3] = { x, y, z };
    assert_int_equal(sgl_fetch(program, name, got, sizeof got), SGL_OK);
    for (int i = 0; i < 3; i++) assert_true(got[i] > want[i] - 1e-9 && got[i] < want[i] + 1e-9);
}

static const double zeros[3] = { 0, 0, 0 }, twos[3] = { 2, 2, 2 };

static void test_only_what_is_needed(void **state)
{
    (void)state;
    fixture f;
    bool found;
    open_fixture(&f);
    sgl_program *program = extracted(&f, &f.b, 1, NULL, 0);
    const char *name;
    assert_int_equal(count_feeds(program, "a", &found), 1);
    assert_true(found);
    assert_int_equal(sgl_program_fetch(program, 1, &name, NULL), SGL_OK);
    assert_null(name); /* no "seen before" */
    assert_int_equal(sgl_state_info(f.session, 0, &name, NULL, NULL), SGL_OK);
    assert_null(name); /* w is not needed */
    assert_int_equal(sgl_feed(program, "a", zeros, sizeof zeros), SGL_OK);
    assert_int_equal(sgl_step(program), SGL_OK);
    expect(program, "value.0", 1, 1, 1);
    close_vm(f.vm, &f.heap);
}

static void test_known_values_are_fed(void **state)
{
    (void)state;
    fixture f;
    bool found;
    open_fixture(&f);
    const sgl_value values[] = { f.d, f.b }, known[] = { f.e, f.b, f.total, f.b };
    sgl_program *program = extracted(&f, values, 2, known, 4);
    assert_int_equal(count_feeds(program, "known.1", &found), 1); /* neither a, nor what no value needs */
    assert_true(found);
    assert_int_equal(sgl_feed(program, "known.1", twos, sizeof twos), SGL_OK);
    assert_int_equal(sgl_step(program), SGL_OK);
    expect(program, "value.0", 4, 4, 4); /* no update was run: w is zero */
    assert_int_equal(sgl_step(program), SGL_OK);
    expect(program, "value.0", 4, 4, 4);
    expect(program, "value.1", 2, 2, 2);
    close_vm(f.vm, &f.heap);
}

/* d total/da through the known b: were b fed, the derivative would be zero. */
static void test_gradients_are_not_cut(void **state)
{
    (void)state;
    fixture f;
    bool found;
    open_fixture(&f);
    const sgl_value known[] = { f.b, f.c, f.total };
    sgl_program *program = extracted(&f, &f.e, 1, known, 3);
    assert_int_equal(count_feeds(program, "a", &found), 1);
    assert_true(found);
    assert_int_equal(sgl_feed(program, "a", zeros, sizeof zeros), SGL_OK);
    assert_int_equal(sgl_step(program), SGL_OK);
    expect(program, "value.0", 2, 2, 2);
    sgl_value twice = emit(f.g, "add", (sgl_value[]){ f.e, f.e }, 2, NULL);
    program = extracted(&f, &twice, 1, &f.e, 1); /* the gradient itself may be known */
    assert_int_equal(count_feeds(program, "known.0", &found), 1);
    assert_true(found);
    assert_int_equal(sgl_feed(program, "known.0", twos, sizeof twos), SGL_OK);
    assert_int_equal(sgl_step(program), SGL_OK);
    expect(program, "value.0", 4, 4, 4);
    close_vm(f.vm, &f.heap);
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f;
    sgl_graph *g = (sgl_graph *)&f;
    open_fixture(&f);
    const sgl_value none = SGL_NO_VALUE;
    assert_int_equal(sgl_graph_extract(f.g, &none, 1, NULL, 0, &g), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(f.vm), "sgl_graph_extract: value 0 is no value of the graph");
    assert_null(g);
    assert_int_equal(sgl_graph_extract(f.g, &f.a, 1, &none, 1, &g), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(f.vm), "sgl_graph_extract: known value 0 is no value of the graph");
    assert_int_equal(sgl_graph_extract(f.g, &f.a, 0, NULL, 0, &g), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_graph_extract(f.g, &f.a, 1, NULL, 1, &g), SGL_INVALID_ARGUMENT);
    close_vm(f.vm, &f.heap);
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    int64_t blocks = f.heap.live_blocks, tries = 0;
    for (bool tripped = true; tripped; tries++) {
        sgl_graph *g;
        f.heap.counter = (fault_counter){ .fail_at = tries + 1 };
        sgl_status status = sgl_graph_extract(f.g, &f.e, 1, &f.d, 1, &g);
        tripped = f.heap.counter.tripped;
        assert_int_equal(status, tripped ? SGL_OUT_OF_MEMORY : SGL_OK);
        sgl_graph_free(g);
        assert_int_equal(f.heap.live_blocks, blocks);
    }
    assert_true(tries > 10);
    f.heap.counter = (fault_counter){ 0 };
    close_vm(f.vm, &f.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_needed),   cmocka_unit_test(test_known_values_are_fed),
        cmocka_unit_test(test_gradients_are_not_cut), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests_name("extract", tests, NULL, NULL);
}
