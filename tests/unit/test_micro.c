/* test_micro.c -- the micro axis: whatever number of micro-batches a step is cut into, its numbers are those of the whole
 * batch: for random graphs, for a small transformer with dropout, for 10 and 1,000 valid tokens in two micro-batches. The
 * forward pass is in one loop only. Failing allocations. ctest: timeout 300 */
#include "fault.h"

#include <stdio.h>

#include "micro_fault.h"
#include "tests/support/ir_case.h"
#include "tests/support/random_graph.h"
#include "tests/support/transformer_graph.h"

static sgl_status run_until(sglcore_env *env, const sglir_graph *g, int64_t micro, const char *until, sglir_graph **out)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = micro;
    sglpass_context context = { .env = env, .plan = &plan };
    return sglpass_run(&context, g, until, out);
}

/* g with its gradients expanded, cut into `micro` parts. */
static sglir_graph *cut(sglcore_env *env, const sglir_graph *g, int64_t micro)
{
    sglir_graph *made = NULL;
    if (run_until(env, g, micro, "micro", &made) != SGL_OK) fail_msg("%s", env->message);
    if (sglir_verify(made, SGLIR_PER_RANK) != SGL_OK) fail_msg("%s", env->message);
    return made;
}

/* ---- random graphs ---------------------------------------------------------------------------------------------- */

static void test_random_graphs(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int loops = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        sglir_graph *g = random_graph(&env, seed);
        assert_non_null(g);
        sglir_graph *whole = cut(&env, g, 1);
        sglir_graph *parts = cut(&env, g, seed % 2 ? 3 : 2); /* of their batch of 3: 1, 1, 1, or 2, 1 */
        ir_message message;
        if (!ir_case_same_meaning(whole, parts, seed, (ir_tolerance){ 1e-10, 1e-12 }, &message)) {
            sglcore_text text = ir_case_print(&env, whole);
            print_error("%s", text.data);
            sglcore_text_free(&env, &text);
            fail_msg("seed %d: %s", (int)seed, message.text);
        }
        loops += ir_case_count(parts, SGLIR_OP_SCAN) - ir_case_count(whole, SGLIR_OP_SCAN);
        sglir_graph_free(g);
        sglir_graph_free(whole);
        sglir_graph_free(parts);
    }
    assert_true(loops > 200);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- a transformer's step ---------------------------------------------------------------------------------------- */

static const transformer_sizes small = { .layers = 2,
                                         .batch = 8,
                                         .seq = 3,
                                         .dim = 8,
                                         .heads = 2,
                                         .ffn = 6,
                                         .vocab = 5,
                                         .dropout = 0.25,
                                         .dtype = SGL_F64 };

static void test_any_number_of_parts(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &small, &g), SGL_OK);
    sglir_graph *whole = cut(&env, g, 1);
    double flops = sglplan_cost_graph(whole).flops;
    for (int64_t micro = 2; micro <= 8; micro *= 2) {
        sglir_graph *parts = cut(&env, g, micro);
        ir_message message;
        if (!ir_case_same_meaning(whole, parts, 3, (ir_tolerance){ 1e-11, 1e-13 }, &message))
            fail_msg("micro %d: %s", (int)micro, message.text);
        /* One loop for the count, one for the rest, in which every product stands as often as in the whole. */
        assert_int_equal(ir_case_count(parts, SGLIR_OP_SCAN), 2);
        assert_int_equal(ir_case_count(parts, SGLIR_OP_ATTENTION), 2);
        assert_int_equal(ir_case_count(parts, SGLIR_OP_DOT), ir_case_count(whole, SGLIR_OP_DOT));
        assert_int_equal(ir_case_count(parts, SGLIR_OP_LINEAR), ir_case_count(whole, SGLIR_OP_LINEAR));
        assert_true(sglplan_cost_graph(parts).flops < 1.1 * flops);
        sglir_graph_free(parts);
    }
    sglir_graph_free(whole);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Of 8 rows: 3, 3, 2; 2, 2, 2, 1, 1; 2 and six of 1. Masks of dropout are those of the whole. Two loops stand as two scans each. */
static void test_uneven_parts(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &small, &g), SGL_OK);
    sglir_graph *whole = cut(&env, g, 1);
    const double flops = sglplan_cost_graph(whole).flops;
    for (int64_t micro = 3; micro <= 7; micro += 2) {
        sglir_graph *parts = cut(&env, g, micro);
        ir_message message;
        if (!ir_case_same_meaning(whole, parts, 3, (ir_tolerance){ 1e-11, 1e-13 }, &message))
            fail_msg("micro %d: %s", (int)micro, message.text);
        assert_int_equal(ir_case_count(parts, SGLIR_OP_SCAN), 4);
        assert_true(sglplan_cost_graph(parts).flops < 1.1 * flops);
        sglir_graph_free(parts);
    }
    sglir_graph_free(whole);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Two sequences, 10 valid targets in the first, 1,000 in the second: their gradients are weighted by tokens, not by
 * micro-batches. */
static void test_uneven_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 1000 };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes uneven = {
        .layers = 0, .batch = 2, .seq = TOKENS, .dim = 4, .heads = 1, .ffn = 4, .vocab = 5, .dtype = SGL_F64
    };
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &uneven, &g), SGL_OK);
    sglir_graph *whole = cut(&env, g, 1), *parts = cut(&env, g, 2);
    interp a = { 0 }, b = { 0 };
    ir_case_fill(&a, whole, 11);
    const int64_t dims[2] = { 2, TOKENS };
    interp_tensor targets = interp_tensor_new(SGL_I32, 2, dims);
    for (int64_t i = 0; i < 2 * TOKENS; i++) interp_set(&targets, i, i >= 10 && i < TOKENS ? -1 : (double)(i * 7 % 5));
    interp_input(&a, "targets", &targets);
    interp_tensor_free(&targets);
    ir_message message;
    assert_true(ir_case_feed_as(&b, parts, &a, &message));
    if (!interp_run(&a, whole)) fail_msg("%s", a.error);
    if (!interp_run(&b, parts)) fail_msg("%s", b.error);
    if (!ir_case_same_results(&a, &b, parts, (ir_tolerance){ 1e-12, 0 }, &message)) fail_msg("%s", message.text);

    /* The mean of the two micro-batches' means would be another number. */
    double loss = interp_get(interp_fetch(&b, "loss"), 0), mean = 0;
    for (int half = 0; half < 2; half++) {
        targets = interp_tensor_new(SGL_I32, 2, dims);
        for (int64_t i = 0; i < 2 * TOKENS; i++)
            interp_set(&targets, i, i / TOKENS != half || (i >= 10 && i < TOKENS) ? -1 : (double)(i * 7 % 5));
        interp_input(&a, "targets", &targets);
        interp_tensor_free(&targets);
        assert_true(interp_run(&a, whole));
        mean += interp_get(interp_fetch(&a, "loss"), 0) / 2;
    }
    assert_true(mean < 0.999 * loss || mean > 1.001 * loss);
    interp_free(&a);
    interp_free(&b);
    sglir_graph_free(whole);
    sglir_graph_free(parts);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* x is divided by its sum over the batch, again and again: each time the whole batch is needed. */
static sgl_status coupled(sglcore_env *env, int times, sglir_graph **g)
{
    const int64_t dims[1] = { 4 };
    const sglir_type type = sglir_type_make(SGL_F64, 1, dims);
    SGLCORE_TRY(sglir_graph_new(env, "coupled", g));
    sglir_id x = sglir_input(*g, SGL_FEED, "x", &type);
    for (int i = 0; i < times; i++) {
        const int64_t axis[1] = { 0 };
        sglir_id sum = sglir_reduce(*g, SGLIR_OP_REDUCE_SUM, x, axis, 1, false);
        x = sglir_unary(*g, SGLIR_OP_EXP, sglir_div(*g, x, sum));
    }
    sglir_output_add(*g, SGLIR_FETCH, "y", x);
    return sglir_status(*g);
}

static void test_coupled_batches(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g, *parts = NULL;
    assert_int_equal(coupled(&env, 5, &g), SGL_OK);
    parts = cut(&env, g, 2);
    ir_message message;
    if (!ir_case_same_meaning(g, parts, 1, (ir_tolerance){ 1e-12, 0 }, &message)) fail_msg("%s", message.text);
    assert_int_equal(ir_case_count(parts, SGLIR_OP_SCAN), 6);
    sglir_graph_free(parts);
    sglir_graph_free(g);
    parts = NULL;
    assert_int_equal(coupled(&env, 80, &g), SGL_OK);
    assert_int_equal(run_until(&env, g, 2, "micro", &parts), SGL_LIMIT);
    assert_non_null(strstr(env.message, "needs the whole batch 81 times"));
    assert_null(parts);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- failing allocations ------------------------------------------------------------------------------------------- */

static void test_failing_allocations(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    transformer_sizes one = small; /* its head alone */
    one.layers = 0;
    assert_int_equal(transformer_graph(&env, &one, &g), SGL_OK);
    sglir_graph *expanded = cut(&env, g, 1);
    assert_true(fault_each_allocation(cut_expanded, expanded) > 50);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
    one.batch = 5; /* 2, 1, 1, 1 */
    assert_int_equal(transformer_graph(&env, &one, &g), SGL_OK);
    expanded = cut(&env, g, 1);
    assert_true(fault_each_allocation(cut_expanded, expanded) > 50);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),   cmocka_unit_test(test_any_number_of_parts),
        cmocka_unit_test(test_uneven_parts),    cmocka_unit_test(test_uneven_tokens),
        cmocka_unit_test(test_coupled_batches), cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
