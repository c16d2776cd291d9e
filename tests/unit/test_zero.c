/* test_zero.c -- data parallel whose states, gradients and parameters are in parts (ZeRO): when parameters are whole, by the peak; how
 * many exchanges a step has, and when gathers begin; and the numbers, which are those of one rank. Bytes: test_zero_bytes.c.
 *
 * In: a small transformer, random graphs. Out: graphs after the passes, run by the interpreter. */
#include "fault.h"

#include <stdio.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/support/random_graph.h"
#include "tests/support/transformer_graph.h"
#include "tests/support/world_check.h"

static const char ZERO_1[] = "states * fsdp:0", ZERO_3[] = "* fsdp:0";

/* ---- a transformer ------------------------------------------------------------------------------------------------------ */

static sglir_graph *transformer(sglcore_env *env, const transformer_sizes *sizes)
{
    sglir_graph *g;
    assert_int_equal(transformer_graph(env, sizes, &g), SGL_OK);
    return g;
}

/* ---- when parameters are whole -------------------------------------------------------------------------------------------- */

static sglplan plan_of(int64_t fsdp, const char *layouts, const char *disable, int64_t bucket)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_FSDP] = fsdp;
    if (bucket > 0) plan.bucket = bucket;
    snprintf(plan.layouts, sizeof plan.layouts, "%s", layouts);
    snprintf(plan.disable, sizeof plan.disable, "%s", disable);
    return plan;
}

static sglir_graph *placed(sglcore_env *env, const sglir_graph *g, const sglplan *plan)
{
    sglir_graph *made = NULL;
    const sglpass_context context = { .env = env, .plan = plan };
    if (sglpass_run(&context, g, NULL, &made) != SGL_OK) fail_msg("%s", env->message);
    return made;
}

static int64_t arena_of(sglcore_env *env, const sglir_graph *g, const sglplan *plan)
{
    sglir_graph *made = placed(env, g, plan);
    const int64_t bytes = made->space_bytes[SGLIR_SPACE_ARENA];
    sglir_graph_free(made);
    return bytes;
}

/* Of parameters that are most of what there is, one block's stand whole at a time, and a second one's ahead. */
static void test_peak(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const int64_t whole = transformer_parameter_bytes(g);
    const sglplan kept = plan_of(4, ZERO_3, "regather", 1), again = plan_of(4, ZERO_3, "", 1);
    const int64_t with_all = arena_of(&env, g, &kept), without = arena_of(&env, g, &again);
    printf("parameters %lld bytes; peak %lld kept whole, %lld gathered again\n", (long long)whole, (long long)with_all,
           (long long)without);
    assert_true(with_all >= whole);
    assert_true(without <= whole / 2);
    sglir_graph_free(g);
}

/* ---- how many exchanges ---------------------------------------------------------------------------------------------------- */

static void count_exchanges(sglcore_env *env, const sglir_graph *g, int64_t micro, int64_t bucket, int *gathers,
                            int *handed_out)
{
    sglplan plan = plan_of(2, ZERO_3, "", bucket);
    plan.mesh[SGLIR_AXIS_MICRO] = micro;
    sglir_graph *made = placed(env, g, &plan);
    *gathers = *handed_out = 0;
    for (int64_t n = 0; n < made->nodes.count; n++) {
        const uint16_t op = made->nodes.data[n].op;
        *gathers += op == SGLIR_OP_ALL_GATHER || op == SGLIR_OP_ALL_GATHER_EACH;
        *handed_out += op == SGLIR_OP_REDUCE_SCATTER || op == SGLIR_OP_REDUCE_SCATTER_EACH;
    }
    sglir_graph_free(made);
}

/* Blocks of nine parameters, some 790 kB each: one by one, a block at a time, all at once. */
static void test_merged(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const int parameters = 8 * 9 + 2;
    int gathers[3], handed_out[3];
    static const int64_t buckets[] = { 1, 700000, 1 << 30 };
    for (int i = 0; i < 3; i++) count_exchanges(&env, g, 1, buckets[i], &gathers[i], &handed_out[i]);
    printf("exchanges of a step: %d + %d, %d + %d, %d + %d\n", gathers[0], handed_out[0], gathers[1], handed_out[1],
           gathers[2], handed_out[2]);
    assert_int_equal(gathers[0], 2 * parameters);
    assert_int_equal(handed_out[0], parameters);
    assert_true(gathers[1] >= 2 * 6 && gathers[1] <= 2 * 10);
    assert_true(handed_out[1] >= 6 && handed_out[1] <= 10);
    assert_int_equal(gathers[2], 2);
    assert_int_equal(handed_out[2], 1);
    /* In a loop over micro-batches each turn hands out; what is gathered stays outside. */
    for (int i = 0; i < 3; i++) count_exchanges(&env, g, 2, buckets[i], &gathers[i], &handed_out[i]);
    printf("of which with two micro-batches stand in the graph: %d + %d, %d + %d, %d + %d\n", gathers[0], handed_out[0],
           gathers[1], handed_out[1], gathers[2], handed_out[2]);
    assert_int_equal(gathers[0], parameters);
    assert_int_equal(handed_out[0], parameters);
    assert_true(handed_out[1] >= 6 && handed_out[1] <= 10);
    assert_int_equal(gathers[2], 1);
    assert_int_equal(handed_out[2], 1);
    sglir_graph_free(g);
}

/* ---- ahead of readers ----------------------------------------------------------------------------------------------------------- */

static bool is_gather(const sglir_node *node)
{
    return node->op == SGLIR_OP_ALL_GATHER || node->op == SGLIR_OP_ALL_GATHER_EACH;
}

static int64_t bytes_made(const sglir_graph *g, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->out_count; i++) bytes += sglir_bytes(sglir_type_of(g, node->out_first + i));
    return bytes;
}

/* The exchange that makes what the wait hands on; SGLIR_NONE for what is no wait for a gather. */
static sglir_id awaited(const sglir_graph *g, const sglir_node *wait)
{
    if (wait->op != SGLIR_OP_WAIT) return SGLIR_NONE;
    const sglir_id exchange = sglir_value_at(g, sglir_arg(g, wait, 0))->node;
    return is_gather(sglir_node_at(g, exchange)) ? exchange : SGLIR_NONE;
}

/* Each gather but the first begins while the one before it has not been waited for, or is worked with; of what has begun and is not
 * waited for there are never more bytes than two of the largest. */
static void test_prefetch(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 4, .seq = 4, .dim = 128, .heads = 2, .ffn = 384, .vocab = 128, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    const sglplan plan = plan_of(4, ZERO_3, "", 700000);
    sglir_graph *made = placed(&env, g, &plan);
    uint8_t *under_way = calloc((size_t)made->nodes.count, 1);
    int64_t largest = 0, ahead = 0, most = 0;
    int begun = 0, early = 0;
    const sglir_region *top = &made->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id id = top->nodes.data[n];
        const sglir_node *node = sglir_node_at(made, id);
        const sglir_id ended = awaited(made, node);
        if (is_gather(node)) {
            const int64_t bytes = bytes_made(made, node);
            const sglir_node *next = sglir_node_at(made, top->nodes.data[n + 1]);
            begun++;
            early += awaited(made, next) != id;
            under_way[id] = 1;
            ahead += bytes;
            largest = bytes > largest ? bytes : largest;
            most = ahead > most ? ahead : most;
        } else if (ended != SGLIR_NONE && under_way[ended]) {
            under_way[ended] = 0;
            ahead -= bytes_made(made, sglir_node_at(made, ended));
        }
    }
    printf("of %d gathers %d begin early; largest %lld bytes, under way at the most %lld\n", begun, early,
           (long long)largest, (long long)most);
    assert_true(early >= begun - 2);
    assert_true(most <= 2 * largest);
    assert_int_equal(ahead, 0);
    free(under_way);
    sglir_graph_free(made);
    sglir_graph_free(g);
}

/* ---- the numbers ------------------------------------------------------------------------------------------------------------ */

/* As far as parameters and states are by themselves, as the interpreter knows them. */
static const sglpass then[] = { { "simplify-again", sglpass_simplify, SGLIR_PER_RANK, true, "" },
                                { "collect", sglpass_collect, SGLIR_PER_RANK, true, "" },
                                { "recompute", sglpass_recompute, SGLIR_PER_RANK, true, "" },
                                { "regather", sglpass_regather, SGLIR_PER_RANK, true, "" },
                                { NULL, NULL, SGLIR_LOGICAL, false, NULL } };

static void check_numbers(sglcore_env *env, const char *name, const sglir_graph *g, const sglplan *plan,
                          const interp *whole)
{
    ir_message message = { "" };
    world_check check = { .env = env,
                          .g = g,
                          .whole = whole,
                          .plan = plan,
                          .until = "micro",
                          .then = then,
                          .tolerance = (ir_tolerance){ 1e-10, 1e-12 } };
    const bool good = world_check_run(&check, &message) && ir_case_round_trip(env, check.graphs[0], &message);
    world_check_free(&check);
    if (!good) fail_msg("%s: %s", name, message.text);
}

static void check_all(sglcore_env *env, const char *name, const sglir_graph *g, uint64_t seed, int64_t micro)
{
    static const char *const layouts[] = { ZERO_1, ZERO_3 };
    static const int64_t buckets[] = { 1, 300, 4 << 20 };
    interp whole = { 0 };
    ir_message message = { "" };
    if (!world_check_alone(env, g, seed, &whole, &message)) fail_msg("%s: %s", name, message.text);
    for (int i = 0; i < 2; i++) {
        for (int b = 0; b < 3; b++) {
            sglplan plan = plan_of(b == 0 ? 3 : 2, layouts[i], "", buckets[b]);
            if (b == 2) plan.mesh[SGLIR_AXIS_DP] = 2;
            if (b == 1) plan.mesh[SGLIR_AXIS_MICRO] = micro;
            check_numbers(env, name, g, &plan, &whole);
        }
    }
    interp_free(&whole);
}

static void test_numbers(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 3, .batch = 12, .seq = 4, .dim = 8, .heads = 2, .ffn = 10, .vocab = 11, .dropout = 0.25
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes);
    check_all(&env, "transformer", g, 7, 3);
    sglir_recompute(g, "blocks.1");
    check_all(&env, "transformer, a block made again", g, 8, 2);
    sglir_graph_free(g);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        char name[32];
        snprintf(name, sizeof name, "seed %d", (int)seed);
        g = random_graph(&env, seed);
        assert_non_null(g);
        check_all(&env, name, g, seed, 1);
        sglir_graph_free(g);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------ */

typedef struct compiling {
    const sglir_graph *sharded;
    const sglplan *plan;
} compiling;

static sgl_status compile(sglcore_env *env, void *user)
{
    const compiling *c = user;
    const sglpass_context context = { .env = env, .plan = c->plan };
    sglir_graph *collected = NULL, *again = NULL;
    sgl_status status = sglpass_collect(&context, c->sharded, &collected);
    if (status == SGL_OK) status = sglpass_regather(&context, collected, &again);
    sglir_graph_free(collected);
    sglir_graph_free(again);
    return status;
}

static void test_memory_faults(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 1, .batch = 4, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5, .dtype = SGL_F32
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = transformer(&env, &sizes), *sharded = NULL;
    const sglplan plan = plan_of(2, ZERO_3, "", 100);
    const sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_run(&context, g, "simplify-again", &sharded), SGL_OK);
    compiling c = { sharded, &plan };
    fault_each_allocation(compile, &c);
    sglir_graph_free(sharded);
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_peak), cmocka_unit_test(test_merged),
                                        cmocka_unit_test(test_prefetch), cmocka_unit_test(test_numbers),
                                        cmocka_unit_test(test_memory_faults) };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
