/* test_cuda_ops.c -- every op's cases on the CUDA backend over a driver without a GPU (tests/cuda): each is compiled, prepared and
 * launched, so that kernels are there and compile, arguments have the sizes that the kernels take, grids and shared memory are what a GPU
 * allows, and nothing is left behind. The numbers are not looked at: they need a GPU (scripts/gpu-check).
 *
 * In: tests/ops/cases.def, two cases of each op (with SGL_TESTS_ALL=1 every one), each in one dtype, in turn. Out: the messages of what was refused.
 * ctest: timeout 900 */
#include "cuda_case.h"

#include "tests/support/op_case.h"
#include "tests/support/run_graph.h"

enum { MOST_FAULTS = 30, CASES_OF_ONE = 2 };

/* Of those that the case takes: the first from `first` on, around the end. */
static sgl_dtype dtype_of(const op_case *c, int first)
{
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        const sgl_dtype dtype = (sgl_dtype)((first + i) % SGL_DTYPE_COUNT);
        if (op_case_takes(c, dtype)) return dtype;
    }
    return SGL_F32;
}

static bool runs(const op_case *c, const op_binding *b)
{
    char label[1024];
    sglcore_env env = cuda_case_env();
    ir_message message;
    run_results results;
    interp inputs = { 0 };
    sglir_graph *g = op_case_graph(&env, c, b);
    op_case_label(c, b, label, sizeof label);
    if (!g) fail_msg("%s: %s", label, env.message);
    op_case_fill(&inputs, g, 3);
    const run_outcome outcome = run_graph(g, (run_options){ 0 }, &inputs, &results, &message);
    if (outcome != RUN_DONE) print_error("%s: %s\n", label, message.text);
    run_results_free(&results);
    interp_free(&inputs);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
    return outcome == RUN_DONE;
}

static void test_every_case(void **state)
{
    (void)state;
    op_case c;
    int faults = 0, done = 0, of_op[SGLIR_OP_COUNT] = { 0 };
    const bool all = getenv("SGL_TESTS_ALL") != NULL;
    cuda_case_needs_nvrtc();
    cuda_case_driver("");
    cuda_case_blas();
    setenv("SGL_TESTS_DEVICE", "cuda", 1);
    setenv("SGL_CACHE", "cache", 1);
    for (int n = 0; op_case_at(n, &c) && faults < MOST_FAULTS; n++) {
        op_binding b = op_binding_plain();
        /* A loop's end would have to be computed. */
        if (c.kind == OP_REFUSED || c.op == SGLIR_OP_WHILE || (!all && of_op[c.op]++ >= CASES_OF_ONE)) continue;
        b.dtype = dtype_of(&c, n % SGL_DTYPE_COUNT);
        b.star_rank = 1;
        b.star[0] = 3;
        faults += !runs(&c, &b);
        done++;
    }
    print_message("%d cases launched\n", done);
    assert_int_equal(faults, 0);
    assert_true(done > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_case) };
    return cmocka_run_group_tests_name("cuda ops", tests, NULL, NULL);
}
