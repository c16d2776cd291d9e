/* test_ir_text.c -- the text form: what is printed, what is read, what is refused, what the two hashes tell apart; and
 * that no text, however broken, and no failed allocation does harm. */
#include "fault.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "tests/support/ir_case.h"

/* One of everything: roles, owed parts, lists, strings, regions in regions, epochs, origins, places, members. */
static const char full[] =
    "graph \"all \\\"of\\\" it\\n\" {\n"
    "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,8]} : f32[4,8] in state+0 @\"llama.lua\":42 scope \"blocks.0\"\n"
    "  %1 = input() {role=1, name=\"moments\", dtype=f64, dims=[40]} : f64[40] in state+128\n"
    "  %2 = input() {role=2, name=\"x\", dtype=f32, dims=[8,4], layout=[0,-1,-1,-1,-1,-1,-1]} : f32[8,4]{dp:0} in io+0\n"
    "  %3 = input() {role=2, name=\"g\", dtype=f32, dims=[4], partial=68, scaled=1} : "
    "f32[4]{partial(tp),partial(micro),scaled}\n"
    "  %4 = neg(%3) : f32[4]{partial(tp),partial(micro),scaled} pass \"autodiff\"\n"
    "  %5, %6 = unpack(%1) {ranks=[1,2], dims=[8,4,8]} : f64[8] in state+128, f64[4,8] in state+192 epoch 3 work 32 in arena+96\n"
    "  %7 = segments() {counts=[3,1], values=[0.1,-inf], dtype=f32} : f32[4]\n"
    "  %8 = constant() {value=nan, dtype=f32} : f32[]\n"
    "  %9 = input() {role=3, name=\"c\", dtype=f32, dims=[4,8]} : f32[4,8]\n"
    "  %10 = scan(%9) {steps=3} : f32[4,8] in arena+64 @\"llama.lua\":7 pass \"shard\" {\n"
    "    region(%11: i64[] in arena+0, %12: f32[4,8] in arena+64) {\n"
    "      %13 = scan(%12) {steps=2} : f32[4,8] {\n"
    "        region(%14: i64[], %15: f32[4,8]) {\n"
    "          %16 = add(%15, %0) : f32[4,8]\n"
    "          yield %16\n"
    "        }\n"
    "      }\n"
    "      yield %13\n"
    "    }\n"
    "  }\n"
    "  fetch \"out\" %10\n"
    "  fetch \"w\" %0\n"
    "  update \"c\" %10\n"
    "  member \"m.w\" of \"moments\" role state offset 8 : f64[4,8]\n"
    "  memory {arena=4096, state=448, io=128, const=0, lower_bound=256}\n"
    "}\n";

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

/* ---- printing and reading ----------------------------------------------------------------------------------- */

static void test_full(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, full);
    sglcore_text text = ir_case_print(&env, g);
    assert_string_equal(text.data, full);
    assert_int_equal(g->members.count, 1);
    assert_int_equal(g->nodes.data[5].epoch, 3);
    assert_int_equal(g->space_bytes[SGLIR_SPACE_STATE], 448);
    assert_int_equal(g->arena_lower_bound, 256);
    assert_string_equal(sglcore_string(g->strings, g->name), "all \"of\" it\n");
    ir_message message;
    if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
    sglcore_text_free(&env, &text);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* What may be left out, comments, numbers out of order, blanks of all kinds. */
static void test_short_form(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, "# a comment\n graph\t\"s\"{%7=input(){dims=[2],dtype=f32,name=\"a\",role=2}#x\r\n"
                                 "%3=gelu(%7) # defaults\n%9=scan(%3){steps=2}{region(%1:i64[],%2:f32[2]){yield %2}}"
                                 "fetch\"y\"%9}");
    sglcore_text text = ir_case_print(&env, g);
    assert_string_equal(text.data, "graph \"s\" {\n"
                                   "  %0 = input() {role=2, name=\"a\", dtype=f32, dims=[2]} : f32[2]\n"
                                   "  %1 = gelu(%0) : f32[2]\n"
                                   "  %2 = scan(%1) {steps=2} : f32[2] {\n"
                                   "    region(%3: i64[], %4: f32[2]) {\n"
                                   "      yield %4\n"
                                   "    }\n"
                                   "  }\n"
                                   "  fetch \"y\" %2\n"
                                   "}\n");
    sglcore_text_free(&env, &text);
    sglir_graph_free(g);
}

static void test_numbers_keep_their_bits(void **state)
{
    (void)state;
    const double numbers[] = { 0.0,
                               -0.0,
                               0.1,
                               1.0 / 3,
                               -2.5,
                               1e300,
                               1e-300,
                               DBL_MIN,
                               5e-324,
                               DBL_MAX,
                               INFINITY,
                               -1e-5,
                               3.141592653589793,
                               123456789.125,
                               1e22,
                               0.30000000000000004 };
    sglcore_env env = plain_env();
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sglir_graph *g;
        assert_int_equal(sglir_graph_new(&env, "n", &g), SGL_OK);
        sglir_output_add(g, SGLIR_FETCH, "x", sglir_constant(g, SGL_F64, numbers[i]));
        sglir_output_add(g, SGLIR_FETCH, "y", sglir_constant(g, SGL_F64, -numbers[i]));
        assert_int_equal(sglir_status(g), SGL_OK);
        ir_message message;
        if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
        sglcore_text text = ir_case_print(&env, g);
        sglir_graph *read = parse(&env, text.data);
        double value = sglir_attr_float(read, sglir_node_at(read, 0), "value");
        assert_memory_equal(&value, &numbers[i], sizeof value);
        sglcore_text_free(&env, &text);
        sglir_graph_free(read);
        sglir_graph_free(g);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_every_byte_in_a_string(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    char name[256];
    for (int i = 0; i < 255; i++) name[i] = (char)(i + 1);
    name[255] = '\0';
    sglir_graph *g;
    assert_int_equal(sglir_graph_new(&env, name, &g), SGL_OK);
    ir_message message;
    if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
    sglcore_text text = ir_case_print(&env, g);
    sglir_graph *read = parse(&env, text.data);
    assert_string_equal(sglcore_string(read->strings, read->name), name);
    sglcore_text_free(&env, &text);
    sglir_graph_free(read);
    sglir_graph_free(g);
}

/* ---- hashes ------------------------------------------------------------------------------------------------- */

enum { SAME_MATH = 1, SAME_JOB = 2 };

static void check_hashes(const char *a_text, const char *b_text, int same)
{
    sglcore_env env = plain_env();
    sglir_graph *a = parse(&env, a_text), *b = parse(&env, b_text);
    bool math = sglcore_hash_equal(sglir_math_hash(a), sglir_math_hash(b));
    bool job = sglcore_hash_equal(sglir_job_hash(a), sglir_job_hash(b));
    if (math != ((same & SAME_MATH) != 0)) fail_msg("math hash %s:\n%s\n%s", math ? "same" : "differs", a_text, b_text);
    if (job != ((same & SAME_JOB) != 0)) fail_msg("job hash %s:\n%s\n%s", job ? "same" : "differs", a_text, b_text);
    sglir_graph_free(a);
    sglir_graph_free(b);
}

#define G(inside) "graph \"g\" {\n%0 = input() {role=0, name=\"a\", dtype=f32, dims=[4]}\n" inside "}\n"

static void test_hashes(void **state)
{
    (void)state;
    const char *base = G("%1 = exp(%0)\n%2 = add(%1, %0)\nfetch \"y\" %2\n");
    check_hashes(base, base, SAME_MATH | SAME_JOB);
    /* numbers, lines, scopes, passes and the graph's name are nothing */
    check_hashes(
        base, G("%9 = exp(%0) : f32[4] @\"f\":3\n%5 = add(%9, %0) : f32[4] scope \"s\" pass \"p\"\nfetch \"y\" %5\n"),
        SAME_MATH | SAME_JOB);
    /* names of inputs and outputs, places, members, sizes of spaces */
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%1, %0)\nfetch \"z\" %2\n"), SAME_MATH);
    check_hashes(base,
                 "graph \"g\" {\n%0 = input() {role=0, name=\"b\", dtype=f32, dims=[4]}\n%1 = exp(%0)\n"
                 "%2 = add(%1, %0)\nfetch \"y\" %2\n}\n",
                 SAME_MATH);
    check_hashes(base, G("%1 = exp(%0) : f32[4] in arena+0\n%2 = add(%1, %0)\nfetch \"y\" %2\n"), SAME_MATH);
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%1, %0)\nfetch \"y\" %2\nmemory {arena=64}\n"), SAME_MATH);
    check_hashes(base, G("%1 = exp(%0) work 8 in arena+0\n%2 = add(%1, %0)\nfetch \"y\" %2\n"), SAME_MATH);
    check_hashes(
        base, G("%1 = exp(%0)\n%2 = add(%1, %0)\nfetch \"y\" %2\nmember \"m\" of \"a\" role state offset 0 : f32[2]\n"),
        SAME_MATH);
    /* ops, order of arguments, epochs, types, roles, dead nodes, what is fetched */
    check_hashes(base, G("%1 = log(%0)\n%2 = add(%1, %0)\nfetch \"y\" %2\n"), 0);
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%0, %1)\nfetch \"y\" %2\n"), 0);
    check_hashes(base, G("%1 = exp(%0) : f32[4] epoch 1\n%2 = add(%1, %0)\nfetch \"y\" %2\n"), 0);
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%1, %0)\n%3 = exp(%0)\nfetch \"y\" %2\n"), 0);
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%1, %0)\nfetch \"y\" %1\n"), 0);
    check_hashes(base, G("%1 = exp(%0)\n%2 = add(%1, %0)\nupdate \"a\" %2\n"), 0);
    check_hashes(base,
                 "graph \"g\" {\n%0 = input() {role=1, name=\"a\", dtype=f32, dims=[4]}\n%1 = exp(%0)\n"
                 "%2 = add(%1, %0)\nfetch \"y\" %2\n}\n",
                 0);
    check_hashes(G("%1 = gelu(%0)\n"), G("%1 = gelu(%0) {exact=1}\n"), 0);
    check_hashes(G("%1 = slice(%0) {axis=0, start=0, stop=2}\n"), G("%1 = slice(%0) {axis=0, start=1, stop=3}\n"), 0);
    check_hashes(G("%1 = constant() {value=0, dtype=f32}\n"), G("%1 = constant() {value=-0, dtype=f32}\n"), 0);
    /* the region of a captured value counts */
    check_hashes(G("%1 = scan(%0) {steps=2} {region(%2: i64[], %3: f32[4]) {%4 = add(%3, %0) yield %4}}\n"),
                 G("%1 = scan(%0) {steps=2} {region(%2: i64[], %3: f32[4]) {%4 = add(%3, %3) yield %4}}\n"), 0);
}

/* A graph built with an abandoned region and a scan begun before its neighbours hashes as its own text. */
static void test_hash_knows_no_ids(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g;
    assert_int_equal(sglir_graph_new(&env, "g", &g), SGL_OK);
    int64_t dims[1] = { 4 };
    sglir_type type = sglir_type_make(SGL_F32, 1, dims), types[2] = { sglir_type_make(SGL_I64, 0, NULL), type };
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type), parameters[2];
    sglir_region_begin(g, types, 2, parameters);
    sglir_id lost = sglir_unary(g, SGLIR_OP_EXP, parameters[1]);
    sglir_region_end(g, &lost, 1);
    sglir_id region = sglir_region_begin(g, types, 2, parameters);
    sglir_id next = sglir_unary(g, SGLIR_OP_SIN, sglir_add(g, parameters[1], x));
    sglir_region_end(g, &next, 1);
    sglir_named steps = SGLIR_I("steps", 3);
    sglir_id y;
    sglir_emit_regions(g, SGLIR_OP_SCAN, &x, 1, &steps, 1, &region, 1, &y);
    sglir_output_add(g, SGLIR_FETCH, "y", y);
    assert_int_equal(sglir_status(g), SGL_OK);
    ir_message message;
    if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
    assert_int_equal(sglir_verify(g, SGLIR_PER_RANK), SGL_OK);
    sglir_graph_free(g);
}

/* ---- what is refused ---------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "t:1:1: expected graph, found the end of the text" },
        { "graph x", "t:1:7: expected a string, found 'x'" },
        { "graph \"x\n\" {}", "t:1:7: a string has no closing quote on its line" },
        { "graph \"\\q\" {}", "t:1:7: a string holds an escape" },
        { "graph \"\\x00\" {}", "t:1:7: a string holds an escape" },
        { "graph \"g\" {} x", "t:1:14: expected the end of the text, found 'x'" },
        { "graph \"g\" {", "expected an op, found the end of the text" },
        { "graph \"g\" { $ }", "t:1:13: expected a word, number, string, value or sign, found '$'" },
        { G("%1 = exp(%5)\n"), "t:3:10: %5 is used before it is defined" },
        { G("%0 = exp(%0)\n"), "t:3:1: %0 is defined twice" },
        { G("%1 = exq(%0)\n"), "t:3:6: there is no op 'exq'; did you mean 'exp'?" },
        { G("%1 = qqqqqqq(%0)\n"), "t:3:6: expected an op, found 'qqqqqqq'" },
        { G("%1 = exp(%0, %0)\n"), "t:3:6: exp: takes 1 argument, not 2" },
        { G("%1 = exp(%0) : f32[5]\n"), "t:3:6: exp: result 0 is f32[4], but f32[5] is written" },
        { G("%1 = exp(%0) : f64[4]\n"), "result 0 is f32[4], but f64[4] is written" },
        { G("%1 = exp(%0) : f32[4]{scaled}\n"), "result 0 is f32[4], but f32[4]{scaled} is written" },
        { G("%1, %2 = exp(%0)\n"), "t:3:10: exp yields 1 results; 2 are named" },
        { G("exp(%0)\n"), "t:3:1: exp yields 1 results; 0 are named" },
        { G("%1 = exp(%0) : f32[4], f32[4]\n"), "exp yields 1 results; 1 are named, 2 types are given" },
        { G("%1 = gelu(%0) {exact=2}\n"), "t:3:22: expected a whole number from 0 to 1, found 2" },
        { G("%1 = gelu(%0) {exakt=1}\n"), "t:3:16: gelu has no attribute 'exakt'; it has: exact:b=0" },
        { G("%1 = exp(%0) {x=1}\n"), "exp has no attribute 'x'; it has: none" },
        { G("%1 = gelu(%0) {exact=1, exact=1}\n"), "t:3:25: attribute 'exact' is given twice" },
        { G("%1 = slice(%0) {axis=0, start=1.5, stop=2}\n"), "expected a whole number, found '1.5'" },
        { G("%1 = slice(%0) {axis=99999999999999999999, start=1, stop=2}\n"), "expected a whole number from" },
        { G("%1 = reshape(%0) {dims=[2,2,}\n"), "expected a whole number, found '}'" },
        { G("%1 = cast(%0) {to=f31}\n"), "t:3:19: expected a dtype such as f32, found 'f31'" },
        { G("%1 = constant() {value=1.2.3, dtype=f32}\n"), "expected a number, found '1.2.3'" },
        { G("%1 = exp(%0) : f32[9223372036854775807,4]\n"), "a type has more bytes than 63 bits can count" },
        { G("%1 = exp(%0) : f32[1,1,1,1,1,1,1,1,1]\n"), "a type has more than 8 dimensions" },
        { G("%1 = exp(%0) : f32[-1]\n"), "expected a whole number from 0" },
        { G("%1 = exp(%0) : f32[4]{dp:1}\n"), "t:3:26: expected a whole number from 0 to 0, found 1" },
        { G("%1 = exp(%0) : f32[4] of [8] from [0]\n"),
          "part: dimension 0 has 4 elements from 0 on of 8, and is not split" },
        { G("%1 = input() {role=2, name=\"b\", dtype=f32, dims=[4], layout=[0,-1,-1,-1,-1,-1,-1]} : f32[4]{dp:0} of [8] "
            "from [5]\n"),
          "part: dimension 0 has 4 elements from 5 on of 8" },
        { G("%1 = exp(%0) : f32[4] of [4,4] from [0]\n"), "expected ']', found ','" },
        { G("%1 = exp(%0) : f32[4] of [4]\n"), "expected from" },
        { G("%1 = exp(%0) : f32[4] of [4] from [-1]\n"), "expected a whole number from 0" },
        { G("%1 = exp(%0) : f32[4] in heap+0\n"),
          "t:3:26: expected a space (arena, state, io, const, host, away), found 'heap'" },
        { G("%1 = exp(%0) : f32[4] in arena+-1\n"), "expected a whole number from 0" },
        { G("%1 = exp(%0) : f32[4] epoch 65536\n"), "expected a whole number from 0 to 65535, found 65536" },
        { G("%4294967295 = exp(%0)\n"), "expected a value such as %0, found '%4294967295'" },
        { G("%1 = scan(%0) {steps=1}\n"), "scan: holds one region, not 0" },
        { G("%1 = scan(%0) {steps=1} {region(%2: i64[]) {yield %2}}\n"), "carries need a region of (index, carries)" },
        { G("%1 = scan(%0) {steps=1} {region(%2: i64[], %3: f32[4]) {yield %3}}\n%4 = exp(%3)\n"),
          "t:4:10: %3 is used outside its region" },
        { G("%1 = scan(%0) {steps=1} {region(%2: i64[], %2: f32[4]) {yield %2}}\n"), "%2 is defined twice" },
        { G("%1 = scan(%0) {steps=1} {region(%2: i64[], %3: f32[4]) {fetch \"x\" %3 yield %3}}\n"),
          "expected an op, found 'fetch'" },
        { G("%1 = input() {role=0, name=\"a\", dtype=f32, dims=[4]}\n"), "the name \"a\" is given twice" },
        { G("%1 = input() {role=0, name=\"b\", dtype=f32, dims=[-4]}\n"), "t:3:6: input:" },
        { G("fetch \"y\" %0 fetch \"y\" %0\n"), "the name \"y\" is given twice" },
        { G("update \"b\" %0\n"), "there is no parameter or state \"b\" in the graph" },
        { G("member \"m\" of \"a\" role boss offset 0 : f32[4]\n"), "expected a role (parameter, state, feed, cache)" },
        { G("memory {heap=4}\n"), "expected a space (arena, state, io, const, host, away) or lower_bound" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fault_heap heap = { 0 };
        sglcore_env env = fault_env(&heap);
        sglir_graph *g = (sglir_graph *)&env;
        sgl_status status = sglir_parse(&env, "t", cases[i].text, strlen(cases[i].text), &g);
        if (status == SGL_OK) fail_msg("accepted: %s", cases[i].text);
        if (strstr(env.message, cases[i].message) == NULL)
            fail_msg("%s\n%s\nnot: %s", cases[i].text, env.message, cases[i].message);
        assert_null(g);
        assert_int_equal(heap.live_blocks, 0);
    }
}

static void test_depth(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    for (int depth = 32; depth <= 33; depth++) {
        sglcore_text text = { 0 };
        assert_int_equal(sglcore_text_add(&env, &text, "%s", G("")), SGL_OK);
        text.count -= 2; /* the closing brace */
        for (int i = 0; i < depth; i++) {
            assert_int_equal(sglcore_text_add(&env, &text,
                                              "%%%d = scan(%%%d) {steps=1} {region(%%%d: i64[], %%%d: f32[4]) {\n",
                                              1000 + i, i == 0 ? 0 : 2 * i, 2 * i + 1, 2 * i + 2),
                             SGL_OK);
        }
        for (int i = depth - 1; i >= 0; i--) {
            assert_int_equal(sglcore_text_add(&env, &text, "yield %%%d}}\n", i == depth - 1 ? 2 * i + 2 : 1001 + i),
                             SGL_OK);
        }
        assert_int_equal(sglcore_text_add(&env, &text, "}"), SGL_OK);
        sglir_graph *g;
        sgl_status status = sglir_parse(&env, "deep", text.data, (size_t)text.count, &g);
        assert_int_equal(status, depth == 32 ? SGL_OK : SGL_LIMIT);
        if (g != NULL) assert_int_equal(sglir_verify(g, SGLIR_LOGICAL), SGL_OK);
        sglir_graph_free(g);
        sglcore_text_free(&env, &text);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- broken texts and failing allocations ------------------------------------------------------------------- */

/* Whatever is read is a graph that prints and reads again; whatever is not leaves nothing behind. */
static void read_anything(const char *text, size_t length)
{
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    char *exact = malloc(length + 1); /* of the very size, so that a look beyond the end is seen */
    assert_non_null(exact);
    memcpy(exact, text, length);
    char *fitting = realloc(exact, length > 0 ? length : 1);
    sglir_graph *g;
    if (sglir_parse(&env, "any", fitting, length, &g) == SGL_OK) {
        ir_message message;
        if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
        (void)sglir_verify(g, SGLIR_PLACED);
    } else {
        assert_true(strncmp(env.message, "any:", 4) == 0);
        assert_null(g);
    }
    sglir_graph_free(g);
    free(fitting);
    assert_int_equal(heap.live_blocks, 0);
}

static void test_cut_short(void **state)
{
    (void)state;
    for (size_t length = 0; length < sizeof full; length++) read_anything(full, length);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Bytes changed, pieces taken out, doubled or moved. */
static void test_mutated(void **state)
{
    (void)state;
    static const char bytes[] = "%%0123456789{}[]()\",:=+@#- \nefr\\\x01\xff";
    uint64_t seed = 1;
    for (int round = 0; round < 4000; round++) {
        char text[2 * sizeof full];
        size_t length = sizeof full - 1;
        memcpy(text, full, length);
        for (uint64_t change = next_random(&seed) % 4 + 1; change > 0; change--) {
            size_t at = next_random(&seed) % length, size = next_random(&seed) % 40;
            if (at + size > length) size = length - at;
            switch (next_random(&seed) % 3) {
            case 0: text[at] = bytes[next_random(&seed) % (sizeof bytes - 1)]; break;
            case 1:
                memmove(text + at, text + at + size, length - at - size);
                length -= size;
                break;
            default:
                if (length + size > sizeof text) size = 0;
                memmove(text + at + size, text + at, length - at);
                length += size;
                break;
            }
            if (length == 0) break;
        }
        read_anything(text, length);
    }
}

static sgl_status print_nowhere(void *user, const char *data, size_t bytes)
{
    (void)data;
    *(size_t *)user += bytes;
    return SGL_OK;
}

static sgl_status whole_way(sglcore_env *env, void *context)
{
    (void)context;
    sglir_graph *g;
    size_t bytes = 0;
    SGLCORE_TRY(sglir_parse(env, "full", full, sizeof full - 1, &g));
    sgl_status status = sglir_print(g, print_nowhere, &bytes);
    if (status == SGL_OK) status = sglir_print_dot(g, print_nowhere, &bytes);
    if (status == SGL_OK) status = sglir_verify(g, SGLIR_LOGICAL);
    sglir_graph_free(g);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(whole_way, NULL) > 100);
}

static sgl_status refuse(void *user, const char *data, size_t bytes)
{
    (void)user, (void)data, (void)bytes;
    return SGL_IO;
}

static void test_failing_writer(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, full);
    assert_int_equal(sglir_print(g, refuse, NULL), SGL_IO);
    assert_int_equal(sglir_print_dot(g, refuse, NULL), SGL_IO);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status append(void *user, const char *data, size_t bytes)
{
    char *all = user;
    size_t used = strlen(all);
    assert_true(used + bytes < 8192);
    memcpy(all + used, data, bytes);
    all[used + bytes] = '\0';
    return SGL_OK;
}

static void test_dot(void **state)
{
    (void)state;
    sglcore_env env = plain_env();
    sglir_graph *g = parse(&env, full);
    char text[8192] = "";
    assert_int_equal(sglir_print_dot(g, append, text), SGL_OK);
    assert_non_null(strstr(text, "digraph \"all \\\"of\\\" it\" {"));
    assert_non_null(strstr(text, "input w\\nf32[4,8]\\nllama.lua:42"));
    assert_non_null(strstr(text, "subgraph cluster_1 {"));
    assert_non_null(strstr(text, "update c"));
    int open = 0;
    for (const char *c = text; *c != '\0'; c++) open += (*c == '{') - (*c == '}');
    assert_int_equal(open, 0);
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_short_form),
        cmocka_unit_test(test_numbers_keep_their_bits),
        cmocka_unit_test(test_every_byte_in_a_string),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_hash_knows_no_ids),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_writer),
        cmocka_unit_test(test_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
