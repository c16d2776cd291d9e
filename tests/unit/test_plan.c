/* test_plan.c -- the plan's fields, text and hash; and the cost of nodes against numbers worked out by hand. */
#include "fault.h"

#include <stdio.h>
#include <string.h>

#include "plan/layout.h"
#include "plan/plan.h"

/* ---- fields ----------------------------------------------------------------------------------------------------- */

static void refused(sglplan *plan, sglir_named field, sgl_status status, const char *message)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan before = *plan;
    assert_int_equal(sglplan_set(&env, plan, &field), status);
    assert_string_equal(env.message, message);
    assert_memory_equal(&before, plan, sizeof before);
}

static void accepted(sglplan *plan, sglir_named field)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglplan_set(&env, plan, &field), SGL_OK);
}

static void test_fields(void **state)
{
    (void)state;
    sglplan plan;
    sglplan_init(&plan);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) assert_int_equal(plan.mesh[axis], 1);
    assert_int_equal(plan.precision, SGL_F32);
    accepted(&plan, SGLIR_I("micro", 4));
    accepted(&plan, SGLIR_I("mesh.tp", 8));
    accepted(&plan, SGLIR_S("precision", "fp64"));
    accepted(&plan, SGLIR_S("schedule", "1f1b"));
    assert_int_equal(plan.schedule, SGLPLAN_1F1B);
    refused(&plan, SGLIR_S("schedule", "1fb1"), SGL_INVALID_ARGUMENT,
            "plan: schedule \"1fb1\" is none of none, gpipe, 1f1b, interleaved, zero-bubble; did you mean '1f1b'?");
    assert_int_equal(sglplan_chunks(&plan), 1);
    accepted(&plan, SGLIR_S("attention", "ring"));
    assert_int_equal(plan.attention, SGLPLAN_ATTENTION_RING);
    refused(&plan, SGLIR_S("attention", "head"), SGL_INVALID_ARGUMENT,
            "plan: attention \"head\" is none of auto, gather, heads, ring; did you mean 'heads'?");
    accepted(&plan, SGLIR_S("attention", "auto"));
    accepted(&plan, SGLIR_S("schedule", "interleaved"));
    assert_int_equal(sglplan_chunks(&plan), 2);
    accepted(&plan, SGLIR_I("chunks", 3));
    assert_int_equal(sglplan_chunks(&plan), 3);
    refused(&plan, SGLIR_I("chunks", 65), SGL_INVALID_ARGUMENT, "plan: chunks is 65, and must be from 0 to 64");
    accepted(&plan, SGLIR_S("cut", "blocks.5, head"));
    accepted(&plan, SGLIR_S("stream", "fp32"));
    assert_string_equal(plan.cut, "blocks.5, head");
    accepted(&plan, SGLIR_S("disable", "fuse, schedule"));
    assert_int_equal(plan.mesh[SGLIR_AXIS_MICRO], 4);
    assert_int_equal(plan.mesh[SGLIR_AXIS_TP], 8);
    assert_int_equal(plan.precision, SGL_F64);
    assert_true(sglplan_disables(&plan, "fuse"));
    assert_true(sglplan_disables(&plan, "schedule"));
    assert_false(sglplan_disables(&plan, "sched"));
    assert_false(sglplan_disables(&plan, "schedule2"));
    assert_false(sglplan_disables(&plan, ""));
}

static void test_refusals(void **state)
{
    (void)state;
    sglplan plan;
    sglplan_init(&plan);
    accepted(&plan, SGLIR_I("mesh.dp", 1024));
    refused(&plan, SGLIR_I("mesh.ddp", 2), SGL_NOT_FOUND,
            "plan: there is no field \"mesh.ddp\"; did you mean 'mesh.dp'?");
    refused(&plan, SGLIR_I("completely else", 2), SGL_NOT_FOUND, "plan: there is no field \"completely else\"");
    refused(&plan, SGLIR_I("mesh.micro", 2), SGL_NOT_FOUND, "plan: there is no field \"mesh.micro\"");
    refused(&plan, SGLIR_I("micro", 0), SGL_INVALID_ARGUMENT, "plan: micro is 0, and must be from 1 to 1048576");
    refused(&plan, SGLIR_I("mesh.tp", -3), SGL_INVALID_ARGUMENT, "plan: mesh.tp is -3, and must be from 1 to 1048576");
    refused(&plan, SGLIR_I("mesh.tp", 2048), SGL_INVALID_ARGUMENT,
            "plan: with mesh.tp = 2048 the mesh spans 2097152 ranks, and 1048576 are the most there may be");
    refused(&plan, SGLIR_S("micro", "2"), SGL_INVALID_ARGUMENT, "plan: micro must be a whole number, not a text");
    refused(&plan, SGLIR_S("disable", NULL), SGL_INVALID_ARGUMENT, "plan: disable must be a text, not nothing");
    refused(&plan, SGLIR_I("memory", -1), SGL_INVALID_ARGUMENT, "plan: memory is -1 bytes; give 0 for no bound");
    refused(&plan, SGLIR_S("memory", "2GiB"), SGL_INVALID_ARGUMENT, "plan: memory must be a whole number, not a text");
    refused(&plan, SGLIR_S("precision", "fp23"), SGL_INVALID_ARGUMENT,
            "plan: precision \"fp23\" is none of fp32, fp64, bf16, fp16; did you mean 'fp32'?");
    accepted(&plan, SGLIR_S("precision", "bf16"));
    accepted(&plan, SGLIR_S("precision", "fp16"));
    accepted(&plan, SGLIR_I("scale", 1));
    refused(&plan, SGLIR_I("scale", 3), SGL_INVALID_ARGUMENT,
            "plan: scale is 3, and must be a power of two from 1 to 1073741824");
    refused(&plan, SGLIR_I("max_skips", 0), SGL_INVALID_ARGUMENT,
            "plan: max_skips is 0, and must be from 1 to 1073741824");
    refused(&plan, SGLIR_F("precision", 32), SGL_INVALID_ARGUMENT,
            "plan: precision must be a text, not a number with a fraction");
    char text[257];
    memset(text, 'x', sizeof text);
    text[256] = '\0';
    refused(&plan, SGLIR_S("disable", text), SGL_INVALID_ARGUMENT,
            "plan: disable has 256 characters, and may have 255");
    text[255] = '\0';
    accepted(&plan, SGLIR_S("disable", text));
}

static void test_layouts(void **state)
{
    (void)state;
    sglplan plan;
    int8_t at[SGLIR_AXIS_COUNT];
    uint64_t named;
    sglplan_init(&plan);
    accepted(&plan, SGLIR_S("layouts", "*.w? tp:1, *.wq tp:0 fsdp:1, states * fsdp:0, head* tp:-"));
    sglplan_layout_of(&plan, "blocks.0.wq", false, at, &named);
    assert_int_equal(at[SGLIR_AXIS_TP], 0); /* '?' is a character like others */
    assert_int_equal(at[SGLIR_AXIS_FSDP], 1);
    assert_int_equal(at[SGLIR_AXIS_DP], -1);
    assert_int_equal(named, 2);
    sglplan_layout_of(&plan, "blocks.0.wq", true, at, &named); /* of its states the later entry holds */
    assert_int_equal(at[SGLIR_AXIS_TP], 0);
    assert_int_equal(at[SGLIR_AXIS_FSDP], 0);
    assert_int_equal(named, 2 | 4);
    sglplan_layout_of(&plan, "head.weight", false, at, &named);
    assert_int_equal(at[SGLIR_AXIS_TP], -1);
    assert_int_equal(named, 8);
    const char *pattern;
    size_t length;
    assert_true(sglplan_layout_entry(plan.layouts, 2, &pattern, &length));
    assert_true(length == 1 && *pattern == '*');
    assert_false(sglplan_layout_entry(plan.layouts, 4, &pattern, &length));
    static const char *const wrong[] = {
        "*", "states", "* tp", "* tp:8", "* tp:x", "* pt:0", "* micro:0", "* tp:0 dp"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char message[512];
        snprintf(
            message, sizeof message,
            "plan: layouts: '%s' is not of the form \"PATTERN AXIS:DIM\", such as \"*.wq tp:0\", with an axis of dp, fsdp, "
            "tp, pp, ep, cp and a dimension from 0 to 7, or - for none",
            strcmp(wrong[i], "states") == 0 ? "" : wrong[i]);
        refused(&plan, SGLIR_S("layouts", wrong[i]), SGL_INVALID_ARGUMENT, message);
    }
}

/* A '*' of activations stays within its part of the path. */
static void test_activations(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int tp;
    } cases[] = { { "blocks.0", 1 }, { "blocks.12", 1 }, { "blocks.0.attn", -1 }, { "blocks", -1 },
                  { "a.b.norm", 0 }, { "a.norm", -1 },   { "a.b.c.norm", -1 } };
    sglplan plan, other;
    sglplan_init(&plan);
    sglplan_init(&other);
    accepted(&plan, SGLIR_S("activations", "blocks.* tp:1, *.b.*orm tp:0"));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int8_t at[SGLIR_AXIS_COUNT];
        uint64_t named;
        sglplan_activations_of(&plan, cases[i].path, strlen(cases[i].path), at, &named);
        assert_int_equal(at[SGLIR_AXIS_TP], cases[i].tp);
        assert_int_equal(named != 0, cases[i].tp >= 0);
    }
    refused(
        &plan, SGLIR_S("activations", "blocks.* tp"), SGL_INVALID_ARGUMENT,
        "plan: activations: 'blocks.* tp' is not of the form \"PATTERN AXIS:DIM\", such as \"*.wq tp:0\", with an axis of "
        "dp, fsdp, tp, pp, ep, cp and a dimension from 0 to 7, or - for none");
}

static void test_text_and_hash(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan, other;
    sglplan_init(&plan);
    accepted(&plan, SGLIR_I("micro", 2));
    sglcore_text text = { 0 };
    assert_int_equal(sglplan_print(&plan, &env, &text), SGL_OK);
    assert_string_equal(
        text.data,
        "mesh.dp = 1\nmesh.fsdp = 1\nmesh.tp = 1\nmesh.pp = 1\nmesh.ep = 1\nmesh.cp = 1\n"
        "micro = 2\nprecision = \"fp32\"\nschedule = \"none\"\nattention = \"auto\"\nscale = 65536\nscale_growth_interval = 2000\n"
        "max_skips = 20\nunfused = 0\nchunks = 0\nbucket = 4194304\ncut = \"\"\nmemory = 0\noffload = \"\"\nwide = \"\"\nstream = \"narrow\"\nlayouts = \"\"\nactivations = \"\"\ncompress = \"\"\ndisable = \"\"\n");
    sglcore_text_free(&env, &text);
    sglplan_init(&other);
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_I("micro", 2));
    assert_true(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    other.native[SGLIR_OP_ROPE] = true;
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    other.native[SGLIR_OP_ROPE] = false;
    accepted(&other, SGLIR_I("max_skips", 3));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_I("max_skips", 20));
    accepted(&other, SGLIR_I("memory", (int64_t)2 << 30));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_I("memory", 0));
    assert_true(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_S("layouts", "*.wq tp:0, states * fsdp:0"));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_S("layouts", ""));
    accepted(&other, SGLIR_S("wide", "head.*"));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_S("wide", ""));
    accepted(&other, SGLIR_S("stream", "fp32"));
    assert_false(sglcore_hash_equal(sglplan_hash(&other), sglplan_hash(&plan)));
    accepted(&other, SGLIR_S("stream", "narrow"));
    accepted(&other, SGLIR_S("cut", "blocks.5"));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_S("cut", ""));
    accepted(&other, SGLIR_I("chunks", 2));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_I("chunks", 0));
    assert_true(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
    accepted(&other, SGLIR_S("disable", "fuse"));
    assert_false(sglcore_hash_equal(sglplan_hash(&plan), sglplan_hash(&other)));
}

/* ---- cost ------------------------------------------------------------------------------------------------------- */

static void check_cost(const char *body, double flops, double transcendentals, double bytes)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    char text[2048];
    snprintf(text, sizeof text,
             "graph \"cost\" {\n"
             "%%0 = input() {role=0, name=\"a\", dtype=f32, dims=[2,3,4]}\n"
             "%%1 = input() {role=0, name=\"b\", dtype=f32, dims=[4,5]}\n"
             "%%2 = input() {role=2, name=\"i\", dtype=i64, dims=[2,3]}\n"
             "%%3 = input() {role=2, name=\"q\", dtype=f32, dims=[2,3,4,8]}\n"
             "%%4 = input() {role=2, name=\"k\", dtype=f32, dims=[2,5,2,8]}\n"
             "%%5 = input() {role=2, name=\"v\", dtype=f32, dims=[2,5,2,6]}\n"
             "%%6 = input() {role=2, name=\"o\", dtype=i64, dims=[]}\n"
             "%s\n}\n",
             body);
    sglir_graph *g = NULL;
    sgl_status status = sglir_parse(&env, "cost", text, strlen(text), &g);
    if (status != SGL_OK) fail_msg("%s", env.message);
    sglplan_cost cost = sglplan_cost_graph(g);
    sglir_graph_free(g);
    if (cost.flops != flops || cost.transcendentals != transcendentals || cost.bytes != bytes)
        fail_msg("%s\nflops %g, transcendentals %g, bytes %g; must be %g, %g, %g", body, cost.flops,
                 cost.transcendentals, cost.bytes, flops, transcendentals, bytes);
}

static void test_cost_of_simple_ops(void **state)
{
    (void)state;
    check_cost("%7 = reshape(%0) {dims=[6,4]}", 0, 0, 0);
    check_cost("%7 = add(%0, %0)", 24, 0, 3 * 96);
    check_cost("%7 = exp(%0)", 24, 24, 2 * 96);
    check_cost("%7 = reduce_sum(%0) {axes=[2]}", 24, 0, 96 + 24);
    check_cost("%7 = transpose(%0) {order=[2,1,0]}", 0, 0, 2 * 96);
    check_cost("%7 = slice(%0) {axis=1, start=0, stop=1}", 0, 0, 2 * 32);
    check_cost("%7 = pad(%0) {axis=1, before=3, after=0}", 0, 0, 96 + 192);
    check_cost("%7 = gather(%1, %2)", 0, 0, 48 + 2 * 120);
    check_cost("%7 = scatter_add(%2, %0) {extent=9}", 24, 0, 48 + 96 + 144);
    check_cost("%7 = random_normal(%6, %6, %6) {id=1, dims=[10], dtype=f32}", 500, 30, 3 * 8 + 40);
}

static void test_cost_of_products(void **state)
{
    (void)state;
    check_cost("%7 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[2], contract_b=[0]}", 2 * 2 * 3 * 5 * 4, 0,
               96 + 80 + 120);
    check_cost("%7 = matmul(%0, %1)", 2 * 2 * 3 * 5 * 4, 0, 96 + 80 + 120);
    check_cost("%7 = transpose(%1) {order=[1,0]}\n%8 = linear(%0, %7)", 2 * 2 * 3 * 5 * 4, 0, 2 * 80 + 96 + 80 + 120);
    check_cost("%7 = transpose(%1) {order=[1,0]}\n%8 = linear_cross_entropy(%0, %7, %2)", 2 * 6 * 5 * 4, 30,
               2 * 80 + 96 + 80 + 48 + 24);
    check_cost("%7 = transpose(%1) {order=[1,0]}\n%8 = cast(%2) {to=f32}\n"
               "%9, %10, %11 = linear_cross_entropy_grad(%0, %7, %2, %8)",
               3 * 2 * 6 * 5 * 4 + 6, 30, 2 * 80 + 48 + 24 + (96 + 80 + 48 + 24) + (24 + 96 + 80));
}

/* Three queries, five keys; 2 sequences of 4 heads: with no offset known the queries see 3, 4, 5 keys. */
static void test_cost_along_axes_and_of_windows(void **state)
{
    (void)state;
    check_cost("%7 = argmax(%0) {axis=2}", 24, 0, 96 + 48);
    check_cost("%7, %8 = sort(%0) {axis=2}", 24 * 2, 0, 96 + 96 + 192); /* log2 4 */
    check_cost("%7, %8 = top_k(%0) {k=1}", 24 * 2, 0, 96 + 24 + 48);
    check_cost("%7 = cumulative_sum(%0) {axis=1}", 24, 0, 2 * 96);
    check_cost("%7 = reshape(%0) {dims=[2,12]}\n%8 = take_along(%7, %2) {axis=1}", 0, 0, 48 + 2 * 24);
    check_cost("%7 = windows(%0) {size=[2], stride=[1], dilation=[1], low=[0], high=[0]}", 0, 0, 128 + 96);
    check_cost("%7 = reshape(%1) {dims=[5,1,4]}\n"
               "%8 = conv(%0, %7) {stride=[1], dilation=[1], low=[0], high=[0]}",
               2 * 30 * 4, 0, 96 + 80 + 120);
    check_cost("%7 = reshape(%1) {dims=[10,1,2]}\n" /* two groups: half the products an output */
               "%8 = conv(%0, %7) {stride=[1], dilation=[1], low=[0], high=[0], groups=2}",
               2 * 60 * 2, 0, 96 + 80 + 240);
    check_cost("%10 = reshape(%0) {dims=[1,6,4]}\n"
               "%11 = conv_weight_grad(%10, %10) {size=[1], stride=[1], dilation=[1], low=[0], high=[0]}",
               2 * 24 * 4, 0, 2 * 96 + 64);
}

static void test_cost_of_attention(void **state)
{
    (void)state;
    double border = 4 * (2 * 3 * 4 * 8 + 2 * 5 * 2 * 8 + 2 * 5 * 2 * 6 + 2 * 3 * 4 * 6 + 2 * 4 * 3) + 8;
    struct {
        const char *attrs;
        double pairs;
    } cases[] = { { "scale=1, causal=1", 12 },
                  { "scale=1, causal=0", 15 },
                  { "scale=1, causal=1, window=2", 6 },
                  { "scale=1, causal=1, window=4", 11 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[128];
        snprintf(body, sizeof body, "%%7, %%8 = attention(%%3, %%4, %%5, %%6) {%s}", cases[i].attrs);
        check_cost(body, 2 * 8 * cases[i].pairs * (8 + 6), 8 * cases[i].pairs, border);
    }
    check_cost("%7 = constant() {value=0, dtype=i64}\n%8, %9 = attention(%3, %4, %5, %7) {scale=1}",
               2 * 8 * (1 + 2 + 3) * (8 + 6), 8 * 6, border);
    check_cost("%7 = constant() {value=0, dtype=i64}\n%8 = iota() {axis=1, dims=[2,3], dtype=i32}\n"
               "%9 = iota() {axis=1, dims=[2,5], dtype=i32}\n%10, %11 = attention(%3, %4, %5, %7, %8, %9) {scale=1}",
               2 * 8 * (1 + 2 + 3) * (8 + 6) + 6 + 10, 8 * 6, border + 2 * 4 * (6 + 10)); /* as of one segment */
    check_cost("%7, %8 = attention(%3, %4, %5, %6) {scale=1}\n"
               "%9, %10, %11 = attention_grad(%3, %4, %5, %7, %8, %7, %6) {scale=1}",
               2 * 8 * 12 * (8 + 6) + 2 * 8 * 12 * (3 * 8 + 2 * 6), 2 * 8 * 12,
               border + border + 4 * (2 * 3 * 4 * 6 + 2 * 3 * 4 * 8 + 2 * 5 * 2 * 8 + 2 * 5 * 2 * 6));
}

static void test_cost_of_loops(void **state)
{
    (void)state;
    check_cost("%7 = scan(%0) {steps=5} : f32[2,3,4] {\n"
               "region(%8: i64[], %9: f32[2,3,4]) {\n%10 = exp(%9)\nyield %10\n}\n}",
               5 * 24, 5 * 24, 5 * 2 * 96);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_text_and_hash),
        cmocka_unit_test(test_cost_of_simple_ops),
        cmocka_unit_test(test_cost_of_products),
        cmocka_unit_test(test_cost_along_axes_and_of_windows),
        cmocka_unit_test(test_cost_of_attention),
        cmocka_unit_test(test_cost_of_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
