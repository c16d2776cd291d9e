/* test_precision_pass.c -- the pass precision when memory runs out, at each allocation in turn; and what it must leave alone.
 *
 * In: a graph with a loop, an optimizer of two parameters and a moment. Out: failed assertions. What the pass makes is shown by
 * the text cases tests/ir/precision_*.txt. */
#include "fault.h"

#include "passes/pass.h"

static const char text[] =
    "graph \"case\" {\n"
    "%0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,4]}\n%1 = input() {role=0, name=\"b\", dtype=f32, dims=[4]}\n"
    "%2 = input() {role=1, name=\"m\", dtype=f32, dims=[4,4]}\n%3 = input() {role=2, name=\"x\", dtype=f32, dims=[3,4]}\n"
    "%4 = input() {role=2, name=\"step\", dtype=i64, dims=[]}\n"
    "%5 = scan(%3) {steps=2} {\nregion(%6: i64[], %7: f32[3,4]) {\n%8 = linear(%7, %2)\n%9 = tanh(%8)\nyield %9\n}\n}\n"
    "%10 = linear(%5, %0, %1)\n%11 = reduce_sum(%10) {axes=[0,1]}\n%12, %13 = grad(%11, %0, %1) {outer=1}\n"
    "%14 = pack(%12, %13)\n%15 = pack(%0, %1)\n%16 = add(%15, %14)\n"
    "%17, %18 = unpack(%16) {ranks=[2,1], dims=[4,4,4]}\n%19 = add(%2, %12)\n%20 = update_number(%4)\n"
    "fetch \"n\" %20\nupdate \"w\" %17\nupdate \"b\" %18\nupdate \"m\" %19\n}\n";

static sgl_status to_autodiff(sglcore_env *env, void *user)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.precision = *(const uint8_t *)user;
    const sglpass_context context = { .env = env, .plan = &plan };
    sglir_graph *g = NULL, *narrow = NULL, *derived = NULL;
    sgl_status status = sglir_parse(env, "case", text, strlen(text), &g);
    if (status == SGL_OK) status = sglpass_precision(&context, g, &narrow);
    if (status == SGL_OK) status = sglpass_autodiff(&context, narrow, &derived);
    sglir_graph_free(derived);
    sglir_graph_free(narrow);
    sglir_graph_free(g);
    return status;
}

static void each_allocation(void **state)
{
    (void)state;
    uint8_t precisions[] = { SGL_BF16, SGL_F16 };
    for (int i = 0; i < 2; i++) assert_true(fault_each_allocation(to_autodiff, &precisions[i]) > 100);
}

static void leaves_alone(const char *graph, sgl_dtype precision)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglplan_init(&plan);
    plan.precision = (uint8_t)precision;
    bool changed = true;
    const sglpass_context context = { .env = &env, .plan = &plan, .changed = &changed };
    sglir_graph *g, *after;
    assert_int_equal(sglir_parse(&env, "case", graph, strlen(graph), &g), SGL_OK);
    assert_int_equal(sglpass_precision(&context, g, &after), SGL_OK);
    assert_false(changed);
    assert_true(sglcore_hash_equal(sglir_job_hash(g), sglir_job_hash(after)));
    sglir_graph_free(after);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* f64, a script's own bf16, a generation step with its cache, and any graph in a plan of fp32. */
static void what_is_left_alone(void **state)
{
    (void)state;
    leaves_alone("graph \"a\" {\n%0 = input() {role=0, name=\"w\", dtype=f64, dims=[4,4]}\n%1 = matmul(%0, %0)\n"
                 "%2 = cast(%1) {to=bf16}\n%3 = matmul(%2, %2)\nfetch \"y\" %3\n}\n",
                 SGL_F16);
    leaves_alone("graph \"a\" {\n%0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,4]}\n"
                 "%1 = input() {role=3, name=\"c\", dtype=f32, dims=[4,4]}\n%2 = matmul(%0, %1)\nfetch \"y\" %2\n}\n",
                 SGL_BF16);
    leaves_alone("graph \"a\" {\n%0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,4]}\n%1 = matmul(%0, %0)\n"
                 "fetch \"y\" %1\n}\n",
                 SGL_F32);
}

static void count_warning(void *user, sgl_log_level level, const char *message)
{
    *(int *)user += level == SGL_LOG_WARNING && strstr(message, "no loss is scaled") != NULL;
}

/* Gradients that no optimizer asked for are not scaled, and that is said. */
static void unscaled_is_said(void **state)
{
    (void)state;
    static const char graph[] = "graph \"a\" {\n%0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,4]}\n"
                                "%1 = matmul(%0, %0)\n%2 = reduce_sum(%1) {axes=[0,1]}\n%3 = grad(%2, %0)\n"
                                "update \"w\" %3\n}\n";
    static const uint8_t precisions[] = { SGL_BF16, SGL_F16 };
    for (int i = 0; i < 2; i++) {
        int warnings = 0;
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, count_warning, &warnings);
        sglplan plan;
        sglplan_init(&plan);
        plan.precision = precisions[i];
        const sglpass_context context = { .env = &env, .plan = &plan };
        sglir_graph *g, *after;
        assert_int_equal(sglir_parse(&env, "case", graph, strlen(graph), &g), SGL_OK);
        assert_int_equal(sglpass_precision(&context, g, &after), SGL_OK);
        assert_true(sglir_input_find(after, SGLPLAN_SCALE) == SGLIR_NONE);
        assert_int_equal(warnings, i);
        sglir_graph_free(after);
        sglir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_allocation), cmocka_unit_test(what_is_left_alone),
                                        cmocka_unit_test(unscaled_is_said) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
