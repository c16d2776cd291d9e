/* test_control.c -- loops and branches on the CPU, as the interpreter runs them: alone, in each other, with their
 * gradients; the bytes of a loop that stacks what it makes; inputs asked for in a loop; failing allocations on the whole
 * way from the text to the program. ctest: timeout 300 */
#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "exec/program.h"
#include "passes/pass.h"
#include "tests/support/place_check.h"
#include "tests/support/run_graph.h"

#define X "%0 = input() {role=0, name=\"x\", dtype=f32, dims=[3]}\n"
#define W "%1 = input() {role=0, name=\"w\", dtype=f32, dims=[3]}\n"

/* A loop in a branch in a loop, a loop that ends by itself, a branch that yields what is around, all derived twice. */
static const char nested[] =
    "graph \"nested\" {\n" X W "%2 = scan(%0) {steps=3} {\nregion(%3: i64[], %4: f32[3]) {\n"
    "%5 = constant() {value=2, dtype=i64}\n%6 = less(%3, %5)\n%7 = cond(%6) {\nregion() {\n%8 = while(%4) {limit=4} {\n"
    "region(%9: i64[], %10: f32[3]) {\n%11 = less(%9, %5)\nyield %11\n}\nregion(%12: i64[], %13: f32[3]) {\n"
    "%14 = mul(%13, %1)\n%15 = sin(%14)\nyield %15\n}\n}\nyield %8\n}\nregion() {\nyield %4\n}\n}\n"
    "%16 = add(%7, %1)\nyield %16\n}\n}\n%17 = mul(%2, %2)\n%18 = reduce_sum(%17) {axes=[0]}\n"
    "%19, %20 = grad(%18, %0, %1)\n%21 = mul(%19, %20)\n%22 = reduce_sum(%21) {axes=[0]}\n"
    "%23, %24 = grad(%22, %0, %1)\nfetch \"y\" %2\nfetch \"a\" %19\nfetch \"b\" %20\nfetch \"c\" %23\nfetch \"d\" %24\n}\n";

/* What a branch and a loop make becomes the new value of a state; a branch whose results change places. */
static const char states[] =
    "graph \"states\" {\n" X
    "%1 = input() {role=1, name=\"s\", dtype=f32, dims=[3]}\n%2 = input() {role=1, name=\"t\", dtype=f32, dims=[3]}\n"
    "%3 = reduce_sum(%0) {axes=[0]}\n%4 = constant() {value=0, dtype=f32}\n%5 = less(%3, %4)\n"
    "%6, %7 = cond(%5) {\nregion() {\n%8 = add(%1, %0)\nyield %8, %2\n}\nregion() {\n%9 = mul(%2, %0)\nyield %2, %9\n}\n}\n"
    "%10 = while(%6) {\nregion(%11: i64[], %12: f32[3]) {\n%13 = constant() {value=3, dtype=i64}\n%14 = less(%11, %13)\n"
    "yield %14\n}\nregion(%15: i64[], %16: f32[3]) {\n%17 = cos(%16)\nyield %17\n}\n}\n"
    "fetch \"y\" %7\nupdate \"s\" %10\nupdate \"t\" %7\n}\n";

static void check_program(const char *text, int steps)
{
    sglcore_env env;
    ir_message message;
    interp in = { .round = false };
    run_results results;
    int compared = 0;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = ir_case_parse(&env, "control", text, &message);
    if (g == NULL) fail_msg("%s", message.text);
    ir_case_fill(&in, g, 5);
    if (run_graph(g, (run_options){ .steps = steps }, &in, &results, &message) != RUN_DONE)
        fail_msg("%s", message.text);
    for (int step = 0; step < steps; step++) {
        if (step > 0) interp_carry(&in);
        if (!interp_run(&in, g)) fail_msg("%s", in.error);
    }
    for (int i = 0; i < results.count; i++) {
        const run_result *got = &results.items[i];
        const interp_tensor *want = got->update ? interp_update(&in, got->name) : interp_fetch(&in, got->name);
        if (want == NULL && got->update) continue; /* a parameter, as it was */
        assert_non_null(want);
        compared++;
        for (int64_t e = 0; e < want->count; e++) {
            double a = interp_get(want, e), b = interp_get(&got->tensor, e);
            if (!(fabs(a - b) <= 1e-4 * (1 + fabs(a)))) fail_msg("%s[%lld]: %g, not %g", got->name, (long long)e, b, a);
        }
    }
    assert_true(compared > 1);
    run_results_free(&results);
    interp_free(&in);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_runs_as_interpreted(void **state)
{
    (void)state;
    check_program(nested, 1);
    check_program(states, 1);
    check_program(states, 4);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------ */

static sgl_status all_passes(sglcore_env *env, const char *text, sglir_graph **placed)
{
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = env, .plan = &plan };
    sglir_graph *g = NULL;
    SGLCORE_TRY(sglir_parse(env, "control", text, strlen(text), &g));
    sgl_status status = sglpass_run(&context, g, NULL, placed);
    sglir_graph_free(g);
    return status;
}

enum { TURNS = 64, WIDE = 256 };

/* h = tanh(h * w + xs[i]), every h stacked; with its gradient. What is kept is the stack of the script, one more of the
 * carries, and the gradient of xs: no turn copies any of them. */
static void test_bytes_of_stacks(void **state)
{
    (void)state;
    char text[4096];
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    snprintf(
        text, sizeof text,
        "graph \"stacks\" {\n%%0 = input() {role=0, name=\"h\", dtype=f32, dims=[%d]}\n"
        "%%1 = input() {role=0, name=\"w\", dtype=f32, dims=[%d]}\n"
        "%%2 = input() {role=2, name=\"xs\", dtype=f32, dims=[%d,%d]}\n%%3 = constant() {value=0, dtype=f32}\n"
        "%%4 = broadcast(%%3) {dims=[%d,%d]}\n%%5, %%6 = scan(%%0, %%4) {steps=%d} {\n"
        "region(%%7: i64[], %%8: f32[%d], %%9: f32[%d,%d]) {\n%%10 = dynamic_slice(%%2, %%7) {axis=0, size=1}\n"
        "%%11 = reshape(%%10) {dims=[%d]}\n%%12 = mul(%%8, %%1)\n%%13 = add(%%12, %%11)\n%%14 = tanh(%%13)\n"
        "%%15 = reshape(%%14) {dims=[1,%d]}\n%%16 = dynamic_update(%%9, %%15, %%7) {axis=0}\nyield %%14, %%16\n}\n}\n"
        "%%17 = mul(%%6, %%6)\n%%18 = reduce_sum(%%17) {axes=[0,1]}\n%%19, %%20, %%21 = grad(%%18, %%0, %%1, %%2)\n"
        "fetch \"a\" %%19\nfetch \"b\" %%20\nfetch \"c\" %%21\n}\n",
        WIDE, WIDE, TURNS, WIDE, TURNS, WIDE, TURNS, WIDE, TURNS, WIDE, WIDE, WIDE);
    if (all_passes(&env, text, &g) != SGL_OK) fail_msg("%s", env.message);
    const int64_t stack = (int64_t)TURNS * WIDE * 4;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_COPY) assert_true(sglir_bytes(sglir_type_of(g, node->out_first)) < stack);
    }
    assert_true(g->space_bytes[SGLIR_SPACE_ARENA] < 3 * stack + stack / 4);
    sglplan_cost cost = sglplan_cost_graph(g);
    /* Rows of kernels and full passes over stacks; a copy of one stack per turn would be 128 more of them. */
    if (cost.bytes > 60.0 * (double)stack) fail_msg("%g stacks are moved", cost.bytes / (double)stack);
    ir_message message;
    if (!place_check(&env, g, &message)) fail_msg("%s", message.text);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- memory that runs out ------------------------------------------------------------------------------------------------ */

static sgl_status to_program(sglcore_env *env, void *user)
{
    sglir_graph *g = NULL;
    sglexec_program *program = NULL;
    SGLCORE_TRY(all_passes(env, user, &g));
    sgl_status status = sglexec_freeze(env, g, &program);
    sglir_graph_free(g);
    sglexec_program_free(program);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    static char text[] =
        "graph \"small\" {\n" X "%1 = scan(%0) {steps=2} {\nregion(%2: i64[], %3: f32[3]) {\n"
        "%4 = constant() {value=1, dtype=i64}\n%5 = less(%2, %4)\n%6 = cond(%5) {\nregion() {\n%7 = tanh(%3)\nyield %7\n}\n"
        "region() {\nyield %3\n}\n}\nyield %6\n}\n}\n%8 = reduce_sum(%1) {axes=[0]}\n%9 = grad(%8, %0)\nfetch \"d\" %9\n}\n";
    assert_true(fault_each_allocation(to_program, text) > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_as_interpreted),
        cmocka_unit_test(test_bytes_of_stacks),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
