/* test_sensitivity.c -- whether tests of plans would notice: each switch of core/broken.h breaks one decision of the passes, and the
 * comparison that test_shard and test_stages make (support/world_check.h) must say so; without the switch the same plan holds.
 *
 * In: a transformer under one plan for each switch, of those that these tests run. Out: what the comparison tells, where it does. */
#include "fault.h"

#include <stdio.h>

#include "core/broken.h"
#include "tests/support/transformer_whole.h"

typedef struct broken_case {
    sglcore_break broken;
    const char *name;
    int64_t extents[SGLIR_AXIS_COUNT];
    const char *layouts, *until;
    const char *told; /* of what is wrong */
} broken_case;

static const broken_case cases[] = {
    { SGLCORE_BREAK_SUM_ONCE, "tp=2", { [SGLIR_AXIS_TP] = 2 }, TRANSFORMER_TENSOR, "shard", "loss" },
    { SGLCORE_BREAK_SUM_ONCE,
      "fsdp=2,tp=2",
      { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
      TRANSFORMER_TENSOR,
      "shard",
      "loss" },
    { SGLCORE_BREAK_SUM_PAID, "dp=2", { [SGLIR_AXIS_DP] = 2 }, "", "shard", "owes a sum" },
    { SGLCORE_BREAK_SUM_PAID, "cp=2", { [SGLIR_AXIS_CP] = 2 }, "", "shard", "owes a sum" },
    { SGLCORE_BREAK_CLIP_GLOBAL, "zero 3", { [SGLIR_AXIS_FSDP] = 2 }, "* fsdp:0", "shard", "grad_norm" },
    { SGLCORE_BREAK_CLIP_GLOBAL, "tp=2", { [SGLIR_AXIS_TP] = 2 }, TRANSFORMER_TENSOR, "shard", "grad_norm" },
    { SGLCORE_BREAK_CLIP_GLOBAL, "pp=2", { [SGLIR_AXIS_PP] = 2, [SGLIR_AXIS_MICRO] = 2 }, "", "stages", "grad_norm" },
    { SGLCORE_BREAK_MASK_SLICE, "dp=2", { [SGLIR_AXIS_DP] = 2 }, "", "shard", "loss" },
    { SGLCORE_BREAK_MASK_SLICE, "dp=2, micro", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_MICRO] = 2 }, "", "micro", "loss" },
    { SGLCORE_BREAK_KV_SUMMED, "tp=4", { [SGLIR_AXIS_TP] = 4 }, TRANSFORMER_TENSOR, "shard", "grad_norm" },
    { SGLCORE_BREAK_TIED_SUMMED, "dp=2", { [SGLIR_AXIS_DP] = 2 }, "", "shard", "grad_norm" },
    { SGLCORE_BREAK_TIED_SUMMED, "pp=2", { [SGLIR_AXIS_PP] = 2, [SGLIR_AXIS_MICRO] = 2 }, "", "stages", "grad_norm" },
    { SGLCORE_BREAK_STAGES_SUMMED, "pp=2", { [SGLIR_AXIS_PP] = 2, [SGLIR_AXIS_MICRO] = 2 }, "", "stages", "grad_norm" },
};

static const transformer_sizes sizes = { .layers = 2,
                                         .batch = 8,
                                         .seq = 4,
                                         .dim = 8,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .ffn = 12,
                                         .vocab = 11,
                                         .dropout = 0.25 };

/* Beside a loss that is a sum over a count: a mean that is one op, as a metric is. */
static const char mean_text[] = "graph \"metric\" {\n"
                                "  %0 = input() {role=2, name=\"x\", dtype=f64, dims=[7,5]}\n"
                                "  %1 = tanh(%0)\n  %2 = mean(%1) {axes=[0,1]}\n  fetch \"mean\" %2\n}\n";

static sglplan plan_of(const broken_case *c)
{
    sglplan plan;
    sglplan_init(&plan);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        if (c->extents[axis] > 0) plan.mesh[axis] = c->extents[axis];
    if (strcmp(c->until, "stages") == 0) plan.schedule = SGLPLAN_1F1B;
    snprintf(plan.layouts, sizeof plan.layouts, "%s", c->layouts);
    return plan;
}

static bool holds(sglcore_env *env, const sglir_graph *g, const interp *whole, const broken_case *c,
                  sglcore_break broken, ir_message *message)
{
    const sglplan plan = plan_of(c);
    world_check check = { .env = env,
                          .g = g,
                          .whole = whole,
                          .plan = &plan,
                          .until = c->until,
                          .tolerance = (ir_tolerance){ 1e-10, 1e-12 } };
    sglcore_broken = broken;
    const bool good = world_check_run(&check, message);
    sglcore_broken = SGLCORE_BREAK_NONE;
    world_check_free(&check);
    return good;
}

static void check_case(sglcore_env *env, const sglir_graph *g, const interp *whole, const broken_case *c)
{
    ir_message message = { "" };
    if (!holds(env, g, whole, c, SGLCORE_BREAK_NONE, &message)) fail_msg("%s: %s", c->name, message.text);
    if (holds(env, g, whole, c, c->broken, &message)) fail_msg("switch %d, %s: nobody notices", c->broken, c->name);
    if (!strstr(message.text, c->told)) fail_msg("switch %d, %s: %s", c->broken, c->name, message.text);
}

static void test_transformer(void **state)
{
    (void)state;
    transformer_whole w;
    bool seen[SGLCORE_BREAK_COUNT] = { [SGLCORE_BREAK_DIVIDE_ONCE] = true }; /* below */
    transformer_whole_open(&w, &sizes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(&w.env, w.g, &w.results, &cases[i]);
        seen[cases[i].broken] = true;
    }
    for (int i = 1; i < SGLCORE_BREAK_COUNT; i++) assert_true(seen[i]);
    transformer_whole_close(&w);
}

static void test_mean(void **state)
{
    (void)state;
    static const broken_case c = { SGLCORE_BREAK_DIVIDE_ONCE, "dp=3", { [SGLIR_AXIS_DP] = 3 }, "", "shard", "mean" };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    interp whole = { 0 };
    ir_message message;
    sglir_graph *g = ir_case_parse(&env, "mean", mean_text, &message);
    if (!g) fail_msg("%s", message.text);
    if (!world_check_alone(&env, g, 7, &whole, &message)) fail_msg("%s", message.text);
    check_case(&env, g, &whole, &c);
    interp_free(&whole);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_mean),
    };
    return cmocka_run_group_tests_name("sensitivity", tests, NULL, NULL);
}
