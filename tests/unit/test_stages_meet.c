/* test_stages_meet.c -- sums of numbers in which stages of a pipeline meet: each stage hands over one number for each,
 * whatever the order and the bracketing in which the graph adds its terms; sums within that something else reads, terms
 * of no stage, and long chains. All ranks run under the plain interpreter, each in a thread. */
#include "fault.h"

#include <stdio.h>

#include "passes/stages.h"
#include "tests/support/world_check.h"

/* Three modules of three, one and two parameters, and the sums of their squares: %a0 %a1 %a2, %b0, %c0 %c1; %k is a feed.
 * `total` says how %t comes of them, and `more` what else is fetched. */
typedef struct meet_case {
    const char *name, *total, *more;
    int sends[3];    /* numbers that each stage sends */
    bool one_reader; /* %t is divided by on the first stage alone, and not fetched */
} meet_case;

static const meet_case cases[] = {
    { "one after another",
      "  %1000 = add(%a0, %a1)\n  %1001 = add(%1000, %a2)\n  %1002 = add(%1001, %b0)\n  %1003 = add(%1002, %c0)\n"
      "  %t = add(%1003, %c1)\n",
      "",
      { 2, 2, 2 },
      false },
    { "in turns",
      "  %1000 = add(%a0, %c0)\n  %1001 = add(%1000, %b0)\n  %1002 = add(%1001, %a1)\n  %1003 = add(%1002, %c1)\n"
      "  %t = add(%1003, %a2)\n",
      "",
      { 2, 2, 2 },
      false },
    { "a tree",
      "  %1000 = add(%a0, %b0)\n  %1001 = add(%c0, %a2)\n  %1002 = add(%a1, %1001)\n  %1003 = add(%1002, %c1)\n"
      "  %t = add(%1000, %1003)\n",
      "",
      { 2, 2, 2 },
      false },
    { "the least",
      "  %1000 = minimum(%a0, %c0)\n  %1001 = minimum(%1000, %a1)\n  %1002 = minimum(%b0, %c1)\n"
      "  %t = minimum(%1002, %1001)\n",
      "",
      { 2, 2, 2 },
      false },
    { "the largest of sums",
      "  %1000 = add(%a0, %c0)\n  %1001 = add(%1000, %a1)\n  %1002 = maximum(%1001, %a2)\n  %t = maximum(%1002, %b0)\n",
      "",
      { 4, 2, 2 },
      false },
    { "a sum within that is fetched", /* which is a meeting of its own: of %a0, of %c0, then of %a1 + %a2, of %c1 */
      "  %1000 = add(%a0, %c0)\n  %1001 = add(%1000, %b0)\n  %1002 = add(%1001, %a1)\n  %1003 = add(%1002, %c1)\n"
      "  %t = add(%1003, %a2)\n",
      "  fetch \"within\" %1001\n",
      { 4, 2, 4 },
      false },
    { "a term that is fetched",
      "  %1000 = add(%a0, %c0)\n  %1001 = add(%1000, %a1)\n  %t = add(%1001, %b0)\n",
      "  fetch \"term\" %a0\n",
      { 4, 2, 2 },
      false },
    { "terms of no stage",
      "  %1000 = add(%a0, %b0)\n  %1001 = add(%1000, %k)\n  %1002 = add(%1001, %a1)\n  %1003 = add(%1002, %k)\n"
      "  %t = add(%1003, %c0)\n",
      "",
      { 2, 2, 2 },
      false },
    { "twice the same",
      "  %1000 = add(%a0, %b0)\n  %1001 = add(%1000, %a1)\n  %1002 = add(%1001, %1001)\n  %t = add(%1002, %c0)\n",
      "",
      { 2, 2, 2 },
      false },
    { "wanted by one",
      "  %1000 = add(%a0, %c0)\n  %1001 = add(%1000, %b0)\n  %1002 = add(%1001, %a1)\n  %t = add(%1002, %c1)\n",
      "",
      { 0, 1, 1 },
      true },
};

static const char *const parameters[] = { "a0", "a1", "a2", "b0", "c0", "c1" };

/* Names of the case's own, as numbers. */
static void put_names(sglcore_text *text, sglcore_env *env, const char *from)
{
    static const char *const names[] = { "a0", "a1", "a2", "b0", "c0", "c1", "k", "t" };
    while (*from) {
        size_t plain = strcspn(from, "%");
        assert_int_equal(sglcore_text_add(env, text, "%.*s", (int)plain, from), SGL_OK);
        from += plain;
        for (int i = 0; *from && i < 8; i++) {
            const size_t length = strlen(names[i]);
            if (strncmp(from + 1, names[i], length) != 0) continue;
            assert_int_equal(sglcore_text_add(env, text, "%%%d", 100 + i), SGL_OK);
            from += 1 + length;
            break;
        }
        if (*from == '%') assert_int_equal(sglcore_text_add(env, text, "%c", *from++), SGL_OK);
    }
}

static sglcore_text text_of(sglcore_env *env, const meet_case *c)
{
    sglcore_text text = { 0 };
    sgl_status status = sglcore_text_add(env, &text,
                                         "graph \"meet\" {\n  %%106 = input() {role=2, name=\"k\", dtype=f64, "
                                         "dims=[]}\n  %%0 = input() {role=2, name=\"x\", dtype=f64, dims=[3]}\n");
    for (int i = 0; i < 6 && status == SGL_OK; i++)
        status =
            sglcore_text_add(env, &text,
                             "  %%%d = input() {role=0, name=\"%s\", dtype=f64, dims=[3]}\n  %%%d = mul(%%%d, %%%d) "
                             "@\"m.lua\":1 scope \"m.%d\"\n",
                             10 + i, parameters[i], i + 1, i, 10 + i, parameters[i][0] - 'a');
    for (int i = 0; i < 6 && status == SGL_OK; i++)
        status = sglcore_text_add(env, &text, "  %%%d = mul(%%%d, %%%d)\n  %%%d = reduce_sum(%%%d) {axes=[0]}\n",
                                  20 + i, 10 + i, 10 + i, 100 + i, 20 + i);
    assert_int_equal(status, SGL_OK);
    put_names(&text, env, c->total);
    status = sglcore_text_add(env, &text, "  %%40 = broadcast(%%107) {dims=[3]}\n");
    for (int i = 0; i < (c->one_reader ? 1 : 6) && status == SGL_OK; i++)
        status = sglcore_text_add(env, &text, "  %%%d = div(%%%d, %%40)\n", 50 + i, 10 + i);
    if (!c->one_reader) status = sglcore_text_add(env, &text, "  fetch \"total\" %%107\n");
    put_names(&text, env, c->more);
    status = sglcore_text_add(env, &text, "  fetch \"y\" %%6\n");
    for (int i = 0; i < (c->one_reader ? 1 : 6) && status == SGL_OK; i++)
        status = sglcore_text_add(env, &text, "  update \"%s\" %%%d\n", parameters[i], 50 + i);
    assert_int_equal(sglcore_text_add(env, &text, "}\n"), SGL_OK);
    return text;
}

static int numbers_sent(const sglir_graph *g)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        count += node->op == SGLIR_OP_SEND && sglir_type_of(g, sglir_arg(g, node, 0))->rank == 0;
    }
    return count;
}

static void plan_three(sglplan *plan)
{
    sglplan_init(plan);
    plan->mesh[SGLIR_AXIS_PP] = 3;
    plan->schedule = SGLPLAN_GPIPE;
    snprintf(plan->cut, sizeof plan->cut, "m.1, m.2");
}

static void check_case(sglcore_env *env, const meet_case *c)
{
    ir_message message;
    sglcore_text text = text_of(env, c);
    sglir_graph *g = ir_case_parse(env, "meet", text.data, &message);
    if (!g) fail_msg("%s: %s\n%s", c->name, message.text, text.data);
    sglplan plan;
    plan_three(&plan);
    interp whole = { 0 };
    if (!world_check_alone(env, g, 11, &whole, &message)) fail_msg("%s: %s", c->name, message.text);
    world_check check = { .env = env,
                          .g = g,
                          .whole = &whole,
                          .plan = &plan,
                          .until = "stages",
                          .stage = SGLIR_PER_RANK,
                          .tolerance = (ir_tolerance){ 1e-14, 0 } };
    const bool good = world_check_run(&check, &message);
    for (int rank = 0; rank < 3 && check.graphs[rank]; rank++) {
        const int sent = numbers_sent(check.graphs[rank]);
        if (!good || sent != c->sends[rank]) ir_case_show(env, check.graphs[rank]);
        if (sent != c->sends[rank]) fail_msg("%s: stage %d sends %d numbers", c->name, rank, sent);
    }
    if (!good) fail_msg("%s: %s", c->name, message.text);
    world_check_free(&check);
    interp_free(&whole);
    sglir_graph_free(g);
    sglcore_text_free(env, &text);
}

static void test_cases(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(&env, &cases[i]);
    assert_int_equal(env.bytes_in_use, 0);
}

/* As many numbers, one after another, as a script likes: of no stage, and in which stages meet. */
static void test_long_chains(void **state)
{
    (void)state;
    enum { LENGTH = 200000 };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    ir_message message;
    sglcore_text text = text_of(&env, &cases[0]);
    sglir_graph *g = ir_case_parse(&env, "meet", text.data, &message), *made = NULL;
    assert_non_null(g);
    const sglir_id k = sglir_input_find(g, "k"), total = g->outputs.data[0].value;
    sglir_id free = k, met = total;
    for (int i = 0; i < LENGTH; i++) {
        free = sglir_emit(g, SGLIR_OP_SUB, (const sglir_id[]){ free, k }, 2, NULL, 0, NULL);
        met = sglir_emit(g, SGLIR_OP_ADD, (const sglir_id[]){ met, i % 2 ? free : k }, 2, NULL, 0, NULL);
    }
    sglir_output_add(g, SGLIR_FETCH, "free", free);
    sglir_output_add(g, SGLIR_FETCH, "met", met);
    sglplan plan;
    plan_three(&plan);
    const sglpass_context context = { .env = &env, .plan = &plan, .rank = 1 };
    assert_int_equal(sglpass_stages_split(&context, g, &made), SGL_OK);
    assert_int_equal(numbers_sent(made), 2);
    assert_true(ir_case_count(made, SGLIR_OP_SUB) == LENGTH);
    sglir_graph_free(made);
    sglir_graph_free(g);
    sglcore_text_free(&env, &text);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------- */

static sgl_status stage_once(sglcore_env *env, void *user)
{
    sglplan plan;
    plan_three(&plan);
    sglir_graph *made = NULL;
    const sglpass_context context = { .env = env, .plan = &plan, .rank = 2 };
    sgl_status status = sglpass_stages_split(&context, user, &made);
    sglir_graph_free(made);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    ir_message message;
    sglcore_text text = text_of(&env, &cases[5]);
    sglir_graph *g = ir_case_parse(&env, "meet", text.data, &message);
    assert_non_null(g);
    fault_each_allocation(stage_once, g);
    sglir_graph_free(g);
    sglcore_text_free(&env, &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
