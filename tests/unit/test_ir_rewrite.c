/* test_ir_rewrite.c -- walk: uses, dependents, liveness, last uses; rewrite: copies that are the same graph, rules that
 * replace, add and drop, in regions too; errors of rules; failing allocations. */
#include "fault.h"

#include "tests/support/ir_case.h"

static sglir_graph *parse(sglcore_env *env, const char *text)
{
    ir_message message;
    sglir_graph *g = ir_case_parse(env, "test", text, &message);
    if (g == NULL) fail_msg("%s\n%s", message.text, text);
    return g;
}

static sglcore_env plain_env(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    return env;
}

/* Node and value ids of a parsed text: values in the order in which they are made, a scan's after those inside it. */
static const char loops[] = "graph \"loops\" {\n"
                            "%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n" /* value 0, node 0 */
                            "%1 = input() {role=2, name=\"y\", dtype=f32, dims=[4]}\n" /* value 1, node 1 */
                            "%2 = input() {role=1, name=\"s\", dtype=f32, dims=[4]}\n" /* value 2, node 2 */
                            "%3 = exp(%1) : f32[4] in arena+64 epoch 2 @\"f.lua\":3\n" /* value 3, node 3 */
                            "%4, %5 = scan(%0, %3) {steps=3} : f32[4], f32[4] @\"f.lua\":5 scope \"a.b\" {\n"
                            "  region(%6: i64[], %7: f32[4], %8: f32[4]) {\n" /* values 4, 5, 6 */
                            "    %9 = add(%7, %3)\n"                          /* value 7, node 4 */
                            "    %10 = sin(%8)\n"                             /* value 8, node 5: dead */
                            "    yield %8, %9\n"
                            "  }\n"
                            "}\n"             /* values 9, 10, node 6 */
                            "%11 = cos(%4)\n" /* value 11, node 7: dead */
                            "%12 = neg(%5)\n" /* value 12, node 8 */
                            "fetch \"out\" %12\n"
                            "update \"s\" %12\n"
                            "member \"m\" of \"s\" role state offset 0 : f32[4]\n"
                            "memory {arena=128, state=16, lower_bound=80}\n"
                            "}\n";

static void test_count_uses(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops);
    uint32_t uses[16];
    assert_int_equal(g->values.count, 13);
    sglir_count_uses(g, uses);
    const uint32_t expected[13] = { 1, 1, 0, 2, 0, 1, 2, 1, 0, 1, 1, 0, 2 };
    for (int i = 0; i < 13; i++) assert_int_equal(uses[i], expected[i]);
    sglir_graph_free(g);
}

static void check_dependents(const sglir_graph *g, sglir_id from, const char *expected)
{
    uint8_t marks[64];
    sglir_mark_dependents(g, &from, 1, marks);
    for (int64_t i = 0; i < g->values.count; i++) {
        if (marks[i] != (expected[i] == '1')) fail_msg("from %u: value %lld", (unsigned)from, (long long)i);
    }
}

static void test_dependents(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops);
    /* values:               0123456789abc */
    check_dependents(g, 0, "1000011111111"); /* x: carry 0, then by way of the second carry both */
    check_dependents(g, 1, "0101011111111"); /* y: also captured */
    check_dependents(g, 2, "0010000000000");
    check_dependents(g, 4, "0000100000000"); /* the index, which nothing reads */
    check_dependents(g, 7, "0000011111111"); /* what is yielded comes back as the other carry */
    sglir_graph_free(g);

    g = parse(&env, "graph \"f\" {\n%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n" /* values 0, 1 */
                    "%1 = input() {role=2, name=\"y\", dtype=f32, dims=[4]}\n"
                    "%2, %3 = fused(%0, %1) {domain=[4], inner=1} {region(%4: f32[4], %5: f32[4]) {\n" /* values 2, 3 */
                    "%6 = exp(%4)\n%7 = exp(%5)\nyield %7, %6}}\n" /* values 4, 5; 6, 7 */
                    "fetch \"y\" %2\n}");
    check_dependents(g, 0, "10101001"); /* results apart */
    check_dependents(g, 1, "01010110");
    sglir_graph_free(g);

    /* with no step a carry is what came in; what the region yields reaches the result besides */
    g = parse(&env, "graph \"z\" {\n%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n"
                    "%1 = input() {role=2, name=\"y\", dtype=f32, dims=[4]}\n"
                    "%2 = scan(%0) {steps=0} {region(%3: i64[], %4: f32[4]) {yield %1}}\nfetch \"y\" %2\n}");
    check_dependents(g, 0, "10011");
    check_dependents(g, 1, "01011");
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_live(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops);
    uint8_t live[16];
    assert_int_equal(g->nodes.count, 9);
    assert_int_equal(sglir_mark_live(g, live), SGL_OK);
    /* the state that an output updates is live though nothing reads it; the dead ones are sin and cos */
    const uint8_t expected[9] = { 1, 1, 1, 1, 1, 0, 1, 0, 1 };
    for (int i = 0; i < 9; i++) assert_int_equal(live[i], expected[i]);
    g->outputs.count = 1; /* without the update */
    assert_int_equal(sglir_mark_live(g, live), SGL_OK);
    assert_int_equal(live[2], 0);
    g->outputs.count = 0;
    assert_int_equal(sglir_mark_live(g, live), SGL_OK);
    for (int i = 0; i < 9; i++) assert_int_equal(live[i], 0);
    sglir_graph_free(g);
}

static void test_last_uses(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops);
    int64_t last[16];
    sglir_last_uses(g, 0, last);
    /* positions in the top region: x y s exp scan cos neg */
    const int64_t top[13] = { 4, 3, -1, 4, -1, 4, 4, 4, -1, 5, 6, -1, 7 };
    for (int i = 0; i < 13; i++) {
        if (g->values.data[i].region == 0) assert_int_equal(last[i], top[i]);
    }
    sglir_last_uses(g, 1, last);
    assert_int_equal(last[3], 0);  /* captured */
    assert_int_equal(last[4], -1); /* the index */
    assert_int_equal(last[5], 0);
    assert_int_equal(last[6], 2); /* yielded: past the end, though read before */
    assert_int_equal(last[7], 2);
    assert_int_equal(last[8], -1);
    sglir_graph_free(g);
}

/* ---- rewrite ------------------------------------------------------------------------------------------------ */

static void check_prints(sglcore_env *env, const sglir_graph *g, const char *expected)
{
    sglcore_text text = ir_case_print(env, g);
    assert_string_equal(text.data, expected);
    sglcore_text_free(env, &text);
}

/* Drops what is dead; keeps origins, epochs, places, captures, outputs, members, sizes. */
static void test_copy(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops), *copy;
    assert_int_equal(sglir_rewrite_graph(&env, g, "copy", NULL, NULL, &copy), SGL_OK);
    check_prints(&env, copy,
                 "graph \"loops\" {\n"
                 "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %1 = input() {role=2, name=\"y\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %2 = input() {role=1, name=\"s\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %3 = exp(%1) : f32[4] in arena+64 epoch 2 @\"f.lua\":3\n"
                 "  %4, %5 = scan(%0, %3) {steps=3} : f32[4], f32[4] @\"f.lua\":5 scope \"a.b\" {\n"
                 "    region(%6: i64[], %7: f32[4], %8: f32[4]) {\n"
                 "      %9 = add(%7, %3) : f32[4]\n"
                 "      yield %8, %9\n"
                 "    }\n"
                 "  }\n"
                 "  %10 = neg(%5) : f32[4]\n"
                 "  fetch \"out\" %10\n"
                 "  update \"s\" %10\n"
                 "  member \"m\" of \"s\" role state offset 0 : f32[4]\n"
                 "  memory {arena=128, state=16, io=0, const=0, lower_bound=80}\n"
                 "}\n");
    sglir_graph *again;
    assert_int_equal(sglir_rewrite_graph(&env, copy, "copy", NULL, NULL, &again), SGL_OK);
    assert_true(sglcore_hash_equal(sglir_job_hash(copy), sglir_job_hash(again)));
    sglir_graph_free(again);
    sglir_graph_free(copy);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* add(a, b) -> add(sin(a), b), made at the place of the node; exp(x) -> x, by map alone; neg -> two nodes of a rule that
 * copies the node itself. user counts the nodes seen. */
static bool some_rules(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    ++*(int *)rewrite->user;
    sglir_id first = node->arg_count > 0 ? rewrite->map[sglir_arg(rewrite->from, node, 0)] : SGLIR_NONE;
    switch (node->op) {
    case SGLIR_OP_ADD:
        rewrite->map[node->out_first] = sglir_add(rewrite->to, sglir_unary(rewrite->to, SGLIR_OP_SIN, first),
                                                  rewrite->map[sglir_arg(rewrite->from, node, 1)]);
        return true;
    case SGLIR_OP_EXP: rewrite->map[node->out_first] = first; return true;
    case SGLIR_OP_NEG:
        sglir_copy_node(rewrite, id);
        rewrite->map[node->out_first] = sglir_unary(rewrite->to, SGLIR_OP_ABS, rewrite->map[node->out_first]);
        return true;
    default: return false;
    }
}

static void test_rules(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, loops), *made;
    int seen = 0;
    assert_int_equal(sglir_rewrite_graph(&env, g, "mine", some_rules, &seen, &made), SGL_OK);
    assert_int_equal(seen, 7); /* all that live */
    check_prints(&env, made,
                 "graph \"loops\" {\n"
                 "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %1 = input() {role=2, name=\"y\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %2 = input() {role=1, name=\"s\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %3, %4 = scan(%0, %1) {steps=3} : f32[4], f32[4] @\"f.lua\":5 scope \"a.b\" {\n"
                 "    region(%5: i64[], %6: f32[4], %7: f32[4]) {\n"
                 "      %8 = sin(%6) : f32[4] pass \"mine\"\n"
                 "      %9 = add(%8, %1) : f32[4] pass \"mine\"\n"
                 "      yield %7, %9\n"
                 "    }\n"
                 "  }\n"
                 "  %10 = neg(%4) : f32[4]\n"
                 "  %11 = abs(%10) : f32[4]\n"
                 "  fetch \"out\" %11\n"
                 "  update \"s\" %11\n"
                 "  member \"m\" of \"s\" role state offset 0 : f32[4]\n"
                 "  memory {arena=128, state=16, io=0, const=0, lower_bound=80}\n"
                 "}\n");
    sglir_graph_free(made);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Another type of the carries: the region's parameters follow. */
static bool widen_inputs(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (node->op != SGLIR_OP_INPUT) return false;
    sglir_copy_node(rewrite, id);
    rewrite->map[node->out_first] = sglir_cast(rewrite->to, rewrite->map[node->out_first], SGL_F64);
    return true;
}

static void test_parameters_follow(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, "graph \"g\" {\n%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n"
                                 "%1 = scan(%0) {steps=2} {region(%2: i64[], %3: f32[4]) {%4 = exp(%3) yield %4}}\n"
                                 "fetch \"y\" %1\n}");
    sglir_graph *made;
    assert_int_equal(sglir_rewrite_graph(&env, g, "wide", widen_inputs, NULL, &made), SGL_OK);
    check_prints(&env, made,
                 "graph \"g\" {\n"
                 "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]} : f32[4]\n"
                 "  %1 = cast(%0) {to=f64} : f64[4]\n"
                 "  %2 = scan(%1) {steps=2} : f64[4] {\n"
                 "    region(%3: i64[], %4: f64[4]) {\n"
                 "      %5 = exp(%4) : f64[4]\n"
                 "      yield %5\n"
                 "    }\n"
                 "  }\n"
                 "  fetch \"y\" %2\n"
                 "}\n");
    sglir_graph_free(made);
    sglir_graph_free(g);
}

/* ---- errors ------------------------------------------------------------------------------------------------- */

static bool drop_exp(sglir_rewrite *rewrite, sglir_id id)
{
    return sglir_node_at(rewrite->from, id)->op == SGLIR_OP_EXP;
}

static bool wrong_emit(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (node->op != SGLIR_OP_NEG) return false;
    rewrite->map[node->out_first] =
        sglir_unary(rewrite->to, SGLIR_OP_NOT, rewrite->map[sglir_arg(rewrite->from, node, 0)]);
    return true;
}

static bool drop_neg(sglir_rewrite *rewrite, sglir_id id)
{
    return sglir_node_at(rewrite->from, id)->op == SGLIR_OP_NEG;
}

static void check_rule_fails(sglir_rule rule, sgl_status expected, const char *message)
{
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglir_graph *g = parse(&env, loops), *made = g;
    assert_int_equal(sglir_rewrite_graph(&env, g, "bad", rule, NULL, &made), expected);
    assert_null(made);
    if (strstr(env.message, message) == NULL) fail_msg("%s\nnot: %s", env.message, message);
    sglir_graph_free(g);
    assert_int_equal(heap.live_blocks, 0);
}

static void test_wrong_rules(void **state)
{
    (void)state;
    check_rule_fails(drop_exp, SGL_INTERNAL, "bad: value 3 (of exp at 'f.lua:3') was dropped, but scan uses it");
    check_rule_fails(drop_neg, SGL_INTERNAL, "was dropped, but out uses it");
    check_rule_fails(wrong_emit, SGL_TYPE, "not");
}

static sgl_status rewrite_all(sglcore_env *env, void *context)
{
    (void)context;
    sglir_graph *g, *made = NULL;
    int seen = 0;
    SGLCORE_TRY(sglir_parse(env, "loops", loops, sizeof loops - 1, &g));
    sgl_status status = sglir_rewrite_graph(env, g, "mine", some_rules, &seen, &made);
    sglir_graph_free(made);
    sglir_graph_free(g);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(rewrite_all, NULL) > 50);
}

/* More arguments and results than are kept at hand. */
static void test_wide_nodes(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g, *copy;
    enum { WIDE = 100 };
    assert_int_equal(sglir_graph_new(&env, "wide", &g), SGL_OK);
    int64_t dims[1] = { WIDE }, ranks[WIDE], ones[WIDE];
    sglir_type type = sglir_type_make(SGL_F32, 1, dims);
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type), parts[WIDE], packed;
    for (int i = 0; i < WIDE; i++) ranks[i] = ones[i] = 1;
    sglir_named attrs[2] = { SGLIR_INTS("ranks", WIDE, ranks), SGLIR_INTS("dims", WIDE, ones) };
    sglir_emit(g, SGLIR_OP_UNPACK, &x, 1, attrs, 2, parts);
    sglir_emit(g, SGLIR_OP_PACK, parts, WIDE, NULL, 0, &packed);
    sglir_output_add(g, SGLIR_FETCH, "y", packed);
    assert_int_equal(sglir_status(g), SGL_OK);
    assert_int_equal(sglir_rewrite_graph(&env, g, "copy", NULL, NULL, &copy), SGL_OK);
    assert_true(sglcore_hash_equal(sglir_job_hash(g), sglir_job_hash(copy)));
    ir_message message;
    if (!ir_case_same_meaning(g, copy, 1, (ir_tolerance){ 0 }, &message)) fail_msg("%s", message.text);
    sglir_graph_free(copy);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count_uses),
        cmocka_unit_test(test_dependents),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_last_uses),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_parameters_follow),
        cmocka_unit_test(test_wrong_rules),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_wide_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
