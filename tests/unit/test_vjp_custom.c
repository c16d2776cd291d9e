/* test_vjp_custom.c -- custom derivatives where formulas are not the matter (test_vjp.c, test_ops_functions.c): what is left
 * of them after autodiff, gradients that escape, regions that hold one, memory that runs out. */
#include "fault.h"

#include <stdio.h>

#include "passes/pass.h"

typedef sgl_status (*pass_fn)(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

/* Parses the body and runs autodiff and, where it is asked for, simplify. */
static sgl_status run(sglcore_env *env, const char *body, bool simplifies, sglir_graph **out)
{
    static char text[4096];
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = env, .plan = &plan };
    sglir_graph *g = NULL;
    snprintf(text, sizeof text, "graph \"case\" {\n%s}\n", body);
    *out = NULL;
    SGLCORE_TRY(sglir_parse(env, "case", text, strlen(text), &g));
    for (int i = 0; i < 1 + simplifies; i++) {
        sgl_status status = (i == 0 ? sglpass_autodiff : sglpass_simplify)(&context, g, out);
        sglir_graph_free(g);
        g = *out;
        if (status != SGL_OK) return status;
    }
    return SGL_OK;
}

static int count_of(const sglir_graph *g, sglir_op op)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) count += g->nodes.data[n].op == op;
    return count;
}

/* y = x x, whose gradient is said to be 7 dy x */
#define SQUARE                                                                                                         \
    "%0 = input() {role=0, name=\"x\", dtype=f64, dims=[3]}\n%1 = mul(%0, %0)\n%2 = stop_gradient(%1)\n"               \
    "%3 = custom_seed(%1)\n%4 = mul(%3, %0)\n%5 = constant() {value=7, dtype=f64}\n%6 = broadcast(%5) {dims=[3]}\n"    \
    "%7 = mul(%4, %6)\n%8 = custom(%2, %0, %7, %3) {results=1} @\"m.lua\":5\n%9 = reduce_sum(%8) {axes=[0]}\n"

static void test_nothing_is_left(void **state)
{
    (void)state;
    static const char *const bodies[] = { SQUARE "fetch \"y\" %9\n",
                                          SQUARE "%10 = grad(%9, %0)\nfetch \"d\" %10\nfetch \"y\" %9\n" };
    for (int i = 0; i < 2; i++) {
        sglcore_env env;
        sglir_graph *g;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        if (run(&env, bodies[i], true, &g) != SGL_OK) fail_msg("%s", env.message);
        assert_int_equal(count_of(g, SGLIR_OP_CUSTOM), 0);
        assert_int_equal(count_of(g, SGLIR_OP_CUSTOM_SEED), 0);
        assert_int_equal(count_of(g, SGLIR_OP_MUL), i == 0 ? 1 : 2); /* x x, and 7 dy x with dy = 1 */
        sglir_graph_free(g);
        assert_int_equal(env.bytes_in_use, 0);
    }
}

/* The stand-in of a gradient that a script kept for itself is found before anything runs. */
static void test_a_gradient_that_escapes(void **state)
{
    (void)state;
    static const char body[] = "%0 = input() {role=0, name=\"x\", dtype=f64, dims=[3]}\n%1 = custom_seed(%0)\n"
                               "fetch \"seed\" %1\n";
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    if (run(&env, body, true, &g) != SGL_OK) fail_msg("%s", env.message);
    assert_int_not_equal(sglir_verify(g, SGLIR_FUSED), SGL_OK);
    assert_non_null(strstr(env.message, "outside of the backward function"));
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_a_region_that_holds_a_gradient(void **state)
{
    (void)state;
    static const char body[] =
        "%0 = input() {role=0, name=\"x\", dtype=f64, dims=[]}\n%1 = mul(%0, %0)\n%2 = stop_gradient(%1)\n"
        "%3 = custom_seed(%1)\n%4 = scan(%3) {steps=2} : f64[] {\nregion(%5: i64[], %6: f64[]) {\n"
        "%7 = add(%6, %6)\nyield %7\n}\n}\n%8 = custom(%2, %0, %4, %3) {results=1} @\"m.lua\":5\n"
        "%9 = grad(%8, %0)\nfetch \"d\" %9\n";
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(run(&env, body, false, &g), SGL_UNSUPPORTED);
    if (strstr(env.message, "m.lua:5: custom: its backward function puts the gradient into a scan") == NULL)
        fail_msg("%s", env.message);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status derive(sglcore_env *env, void *user)
{
    sglir_graph *g = NULL;
    sgl_status status = run(env, user, true, &g);
    sglir_graph_free(g);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    static char twice[] = SQUARE "%10 = grad(%9, %0)\n%11 = reduce_sum(%10) {axes=[0]}\n%12 = grad(%11, %0)\n"
                                 "fetch \"d\" %12\n";
    assert_true(fault_each_allocation(derive, twice) > 50);
    static char windows[] = "%0 = input() {role=0, name=\"x\", dtype=f64, dims=[1,5,2]}\n"
                            "%1 = input() {role=0, name=\"w\", dtype=f64, dims=[2,3,2]}\n"
                            "%2 = conv(%0, %1) {stride=[1], dilation=[1], low=[0], high=[0]}\n"
                            "%3 = reduce_prod(%2) {axes=[0,1]}\n%4, %5 = top_k(%3) {k=1}\n%6 = reshape(%4) {dims=[]}\n"
                            "%7, %8 = grad(%6, %0, %1)\nfetch \"d\" %7\nfetch \"e\" %8\n";
    assert_true(fault_each_allocation(derive, windows) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_a_gradient_that_escapes),
        cmocka_unit_test(test_a_region_that_holds_a_gradient),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
