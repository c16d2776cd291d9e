/* test_kernel.c -- what the kernel builder makes of a region: descriptions as text, refusals that name the node, hashes.
 *
 * Each case is a FUSED node in the text form, and what its description prints, or a part of the message that refuses
 * it. Every description is also run by the plain executor against the interpreter. Random regions are test_fuse.c's. */
#include "fault.h"

#include <stdio.h>

#include "tests/support/kernel_exec.h"

static sglir_graph *parse(sglcore_env *env, const char *text)
{
    sglir_graph *g = NULL;
    if (sglir_parse(env, "case", text, strlen(text), &g) != SGL_OK) fail_msg("%s\nin:\n%s", env->message, text);
    return g;
}

static sglir_id find_fused(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op == SGLIR_OP_FUSED) return (sglir_id)n;
    }
    fail_msg("the case holds no kernel");
    return SGLIR_NONE;
}

static void check_print(const char *text, const char *expected)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = parse(&env, text);
    sglexec_kernel kernel;
    if (sglexec_kernel_build(&env, g, find_fused(g), &kernel) != SGL_OK) fail_msg("%s", env.message);
    sglcore_text printed = { 0 };
    assert_int_equal(sglexec_kernel_print(&env, &kernel, &printed), SGL_OK);
    assert_string_equal(printed.data, expected);
    sglcore_text_free(&env, &printed);
    sglexec_kernel_free(&env, &kernel);
    int count;
    ir_message message = { .text = "" };
    if (!kernel_exec_graph(&env, g, 5, &count, &message)) fail_msg("%s", message.text);
    assert_int_equal(count, 1);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void check_refused(const char *text, const char *part)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = parse(&env, text);
    sglexec_kernel kernel;
    if (sglexec_kernel_build(&env, g, find_fused(g), &kernel) != SGL_TYPE) fail_msg("not refused:\n%s", text);
    if (strstr(env.message, part) == NULL) fail_msg("\"%s\" is not in: %s", part, env.message);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- descriptions --------------------------------------------------------------------------------------------- */

/* Two outer dims that every map walks through alike are one; the bias decides where the rows end. */
static void test_dims_merge(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[2,3,4]}\n"
                "  %1 = input() {role=2, name=\"bias\", dtype=f32, dims=[4]}\n"
                "  %2 = fused(%0, %1) {domain=[2,3,4], inner=3} {\n"
                "    region(%3: f32[2,3,4], %4: f32[4]) {\n"
                "      %5 = broadcast(%4) {dims=[2,3,4]}\n"
                "      %6 = add(%3, %5)\n"
                "      yield %6\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %2\n"
                "}\n",
                "kernel [6|4] phases 1 registers 3\n"
                "0: r0 col f32 = load a1 [0 1]\n"
                "0: r1 full f32 = load a0 [4 1]\n"
                "0: r2 full f32 = add r1 r0\n"
                "0: a2 full f32 = store r2 [4 1]\n");
}

/* Movement before the arithmetic is the map of the load, after it that of the store; one load serves two views alike. */
static void test_maps(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[6,10]}\n"
                "  %1, %20 = fused(%0) {domain=[4,6], inner=1} {\n"
                "    region(%2: f32[6,10]) {\n"
                "      %3 = slice(%2) {axis=1, start=1, stop=9, step=2}\n"
                "      %4 = transpose(%3) {order=[1,0]}\n"
                "      %5 = transpose(%2) {order=[1,0]}\n"
                "      %6 = slice(%5) {axis=0, start=1, stop=9, step=2}\n"
                "      %7 = mul(%4, %6)\n"
                "      %8 = transpose(%7) {order=[1,0]}\n"
                "      %9 = reshape(%8) {dims=[24]}\n"
                "      yield %7, %9\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %1\n"
                "}\n",
                "kernel [4|6] phases 1 registers 2\n"
                "0: r0 full f32 = load a0 1[2 10]\n"
                "0: r1 full f32 = mul r0 r0\n"
                "0: a1 full f32 = store r1 [6 1]\n"
                "0: a2 full f32 = store r1 [1 4]\n");
}

/* What is turned round is read from its end on; beside what is read as it lies, it is another load of it. */
static void test_flips(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[3,8]}\n"
                "  %1 = fused(%0) {domain=[3,2,4], inner=2} {\n"
                "    region(%2: f32[3,8]) {\n"
                "      %3 = reshape(%2) {dims=[3,2,4]}\n"
                "      %4 = flip(%3) {axes=[1]}\n"
                "      %5 = flip(%4) {axes=[0,2]}\n"
                "      %6 = mul(%3, %4)\n"
                "      %7 = add(%6, %5)\n"
                "      yield %7\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %1\n"
                "}\n",
                "kernel [3 2|4] phases 1 registers 5\n"
                "0: r0 full f32 = load a0 [8 4 1]\n"
                "0: r1 full f32 = load a0 4[8 -4 1]\n"
                "0: r2 full f32 = load a0 23[-8 -4 -1]\n"
                "0: r3 full f32 = mul r0 r1\n"
                "0: r4 full f32 = add r3 r2\n"
                "0: a1 full f32 = store r4 [8 4 1]\n");
}

/* A layer norm: a phase per row reduction that the next one waits for, numbers in the phase of their first use. */
static void test_phases(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[3,8]}\n"
                "  %1, %2 = fused(%0) {domain=[3,8], inner=1} {\n"
                "    region(%3: f32[3,8]) {\n"
                "      %4 = reduce_sum(%3) {axes=[1], keep=1}\n"
                "      %5 = constant() {value=0.125, dtype=f32}\n"
                "      %6 = broadcast(%5) {dims=[3,1]}\n"
                "      %7 = mul(%4, %6)\n"
                "      %8 = broadcast(%7) {dims=[3,8]}\n"
                "      %9 = sub(%3, %8)\n"
                "      %10 = mul(%9, %9)\n"
                "      %11 = reduce_sum(%10) {axes=[1], keep=1}\n"
                "      %12 = rsqrt(%11)\n"
                "      %13 = broadcast(%12) {dims=[3,8]}\n"
                "      %14 = mul(%9, %13)\n"
                "      yield %12, %14\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %2\n"
                "}\n",
                "kernel [3|8] phases 3 registers 9\n"
                "0: r0 full f32 = load a0 [8 1]\n"
                "0: r1 row f32 = row reduce_sum r0\n"
                "1: r2 one f32 = 0.125\n"
                "1: r3 row f32 = mul r1 r2\n"
                "1: r4 full f32 = sub r0 r3\n"
                "1: r5 full f32 = mul r4 r4\n"
                "1: r6 row f32 = row reduce_sum r5\n"
                "2: r7 row f32 = rsqrt r6\n"
                "2: r8 full f32 = mul r4 r7\n"
                "2: a1 row f32 = store r7 [1 0]\n"
                "2: a2 full f32 = store r8 [8 1]\n");
}

/* Rows, columns and all at once; a sum of what does not vary along the rows reads it as if it did. */
static void test_reductions(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[3,2,4]}\n"
                "  %1 = input() {role=2, name=\"c\", dtype=f32, dims=[4]}\n"
                "  %2, %3, %4, %5, %20 = fused(%0, %1) {domain=[3,2,4], inner=1} {\n"
                "    region(%6: f32[3,2,4], %7: f32[4]) {\n"
                "      %8 = reduce_max(%6) {axes=[2]}\n"
                "      %9 = reduce_sum(%6) {axes=[0,1]}\n"
                "      %10 = reduce_min(%6) {axes=[0,1,2]}\n"
                "      %11 = broadcast(%7) {dims=[3,2,4]}\n"
                "      %12 = less(%6, %11)\n"
                "      %13 = select(%12, %6, %11)\n"
                "      %14 = reduce_sum(%11) {axes=[0,1,2]}\n"
                "      %15 = reduce_max(%13) {axes=[0,1]}\n"
                "      yield %8, %9, %10, %14, %15\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %2\n"
                "}\n",
                "kernel [6|4] phases 2 registers 5\n"
                "0: r0 full f32 = load a0 [4 1]\n"
                "0: r1 col f32 = load a1 [0 1]\n"
                "0: r2 full bool = less r0 r1\n"
                "0: r3 full f32 = select r2 r0 r1\n"
                "0: r4 row f32 = row reduce_max r0\n"
                "0: a3 col f32 = column reduce_sum r0\n"
                "0: a4 one f32 = total reduce_min r0\n"
                "0: a5 one f32 = total reduce_sum r1\n"
                "0: a6 col f32 = column reduce_max r3\n"
                "1: a2 row f32 = store r4 [1 0]\n");
}

/* Pieces and segments cover the domain; empty ones are left out. */
static void test_pieces(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"a\", dtype=f32, dims=[2,3]}\n"
                "  %1 = input() {role=2, name=\"b\", dtype=f32, dims=[0]}\n"
                "  %2 = input() {role=2, name=\"c\", dtype=f32, dims=[]}\n"
                "  %3 = fused(%0, %1, %2) {domain=[7], inner=1} {\n"
                "    region(%4: f32[2,3], %5: f32[0], %6: f32[]) {\n"
                "      %7 = pack(%4, %5, %6)\n"
                "      %8 = segments() {counts=[4,0,3], values=[0.5,9,-1], dtype=f32}\n"
                "      %9 = mul(%7, %8)\n"
                "      yield %9\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %3\n"
                "}\n",
                "kernel [|7] phases 1 registers 3\n"
                "0: r0 full f32 = load 6xa0 1xa2\n"
                "0: r1 full f32 = segments 4x0.5 3x-1\n"
                "0: r2 full f32 = mul r0 r1\n"
                "0: a3 full f32 = store r2 [1]\n");
}

/* Counters and random numbers follow maps of their own; the seed's registers are single numbers. */
static void test_generators(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"step\", dtype=i64, dims=[]}\n"
                "  %1 = fused(%0) {domain=[3,4], inner=1} {\n"
                "    region(%2: i64[]) {\n"
                "      %3 = constant() {value=7, dtype=i64}\n"
                "      %4 = random_uniform(%3, %2, %3) {id=11, dims=[4,6], dtype=f32}\n"
                "      %5 = slice(%4) {axis=1, start=1, stop=6, step=2}\n"
                "      %6 = transpose(%5) {order=[1,0]}\n"
                "      %7 = iota() {axis=0, dims=[12], dtype=f32}\n"
                "      %8 = reshape(%7) {dims=[3,4]}\n"
                "      %9 = add(%6, %8)\n"
                "      yield %9\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %1\n"
                "}\n",
                "kernel [3|4] phases 1 registers 5\n"
                "0: r0 one i64 = 7\n"
                "0: r1 one i64 = load a0 [0 0]\n"
                "0: r2 full f32 = random_uniform r0 r1 r0 id 11 1[2 6]\n"
                "0: r3 full f32 = iota [4 1]\n"
                "0: r4 full f32 = add r2 r3\n"
                "0: a1 full f32 = store r4 [4 1]\n");
}

/* One row: a total that is used on is a row reduction, and there are no columns. */
static void test_one_row(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[1,1,8]}\n"
                "  %1 = fused(%0) {domain=[1,1,8], inner=3} {\n"
                "    region(%2: f32[1,1,8]) {\n"
                "      %3 = reduce_sum(%2) {axes=[2], keep=1}\n"
                "      %4 = broadcast(%3) {dims=[1,1,8]}\n"
                "      %5 = div(%2, %4)\n"
                "      yield %5\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %1\n"
                "}\n",
                "kernel [|8] phases 2 registers 3\n"
                "0: r0 full f32 = load a0 [1]\n"
                "0: r1 row f32 = row reduce_sum r0\n"
                "1: r2 full f32 = div r0 r1\n"
                "1: a1 full f32 = store r2 [1]\n");
}

/* A kernel of one number; a reduction over an extent of 1 and a stop_gradient are no steps, accumulate is an add. */
static void test_one_number(void **state)
{
    (void)state;
    check_print("graph \"g\" {\n"
                "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[1,1]}\n"
                "  %1 = fused(%0) {domain=[1], inner=1} {\n"
                "    region(%2: f32[1,1]) {\n"
                "      %3 = reduce_sum(%2) {axes=[0]}\n"
                "      %4 = stop_gradient(%3)\n"
                "      %5 = gelu(%4) {exact=1}\n"
                "      %6 = cast(%5) {to=i32}\n"
                "      yield %6\n"
                "    }\n"
                "  }\n"
                "  fetch \"y\" %1\n"
                "}\n",
                "kernel [] phases 1 registers 3\n"
                "0: r0 one f32 = load a0 []\n"
                "0: r1 one f32 = gelu r0 exact\n"
                "0: r2 one i32 = cast r1\n"
                "0: a1 full i32 = store r2 []\n");
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
#define REGION(DOMAIN, BODY)                                                                                           \
    "graph \"g\" {\n  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4,6]}\n  %1 = fused(%0) {" DOMAIN             \
    "} {\n    region(%2: f32[4,6]) {\n" BODY "    }\n  }\n  fetch \"y\" %1\n}\n"
    check_refused(REGION("domain=[4,5], inner=1", "%3 = exp(%2)\nyield %3\n"),
                  "its domain is not what its nodes run over");
    check_refused(REGION("domain=[4,6], inner=2",
                         "%3 = reduce_sum(%2) {axes=[1], keep=1}\n%4 = broadcast(%3) {dims=[4,6]}\n"
                         "%5 = sub(%2, %4)\nyield %5\n"),
                  "it is used, but does not reduce the rows of its kernel");
    check_refused(REGION("domain=[4,6], inner=1",
                         "%3 = exp(%2)\n%4 = slice(%3) {axis=0, start=0, stop=2}\n%5 = neg(%4)\nyield %5\n"),
                  "slice(%3) {axis=0, start=0, stop=2");
    check_refused(REGION("domain=[4,6], inner=1", "%3 = exp(%2)\n%4 = pack(%3)\n%5 = neg(%4)\nyield %5\n"),
                  "it packs something that is not stored whole");
    check_refused(REGION("domain=[4,6], inner=1",
                         "%3 = reduce_sum(%2) {axes=[1]}\n%4 = exp(%3)\n%5 = reduce_sum(%4) {axes=[0]}\nyield %5\n"),
                  "it reduces a part of the domain");
    check_refused(REGION("domain=[4,6], inner=1", "%3 = reduce_sum(%2) {axes=[0]}\n%4 = exp(%3)\nyield %4\n"),
                  "reduce_sum(%2) {axes=[0]");
    check_refused(
        REGION("domain=[24], inner=1",
               "%3 = exp(%2)\n%4 = reshape(%3) {dims=[3,8]}\n%5 = reshape(%4) {dims=[24]}\n%6 = neg(%5)\nyield %6\n"),
        "its dimensions do not fit those of the others");
#undef REGION
}

/* ---- hashes --------------------------------------------------------------------------------------------------- */

static sglcore_hash hash_of(const char *op, int64_t cols)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    char text[512];
    snprintf(text, sizeof text,
             "graph \"g\" {\n  %%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4,%d]}\n  %%1 = neg(%%0)\n"
             "  %%2 = fused(%%1) {domain=[4,%d], inner=1} @\"a.lua\":%d {\n    region(%%3: f32[4,%d]) {\n"
             "      %%4 = %s(%%3)\n      yield %%4\n    }\n  }\n  fetch \"y\" %%2\n}\n",
             (int)cols, (int)cols, (int)cols + 1, (int)cols, op);
    sglir_graph *g = parse(&env, text);
    sglexec_kernel kernel;
    assert_int_equal(sglexec_kernel_build(&env, g, find_fused(g), &kernel), SGL_OK);
    sglcore_hash hash = kernel.hash;
    sglexec_kernel_free(&env, &kernel);
    sglir_graph_free(g);
    return hash;
}

static void test_hashes(void **state)
{
    (void)state;
    sglcore_hash hash = hash_of("exp", 8);
    assert_true(sglcore_hash_equal(hash, hash_of("exp", 8)));
    assert_false(sglcore_hash_equal(hash, hash_of("neg", 8)));
    assert_false(sglcore_hash_equal(hash, hash_of("exp", 9)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dims_merge), cmocka_unit_test(test_maps),       cmocka_unit_test(test_flips),
        cmocka_unit_test(test_phases),     cmocka_unit_test(test_reductions), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_generators), cmocka_unit_test(test_one_row),    cmocka_unit_test(test_one_number),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
