/* test_ir_verify.c -- the verifier: sound graphs of each stage pass; each kind of damage is found and named; damage of any
 * kind does no harm to the verifier itself. */
#include "fault.h"

#include <stdio.h>

#include "tests/support/ir_case.h"

static sglir_graph *parse(sglcore_env *env, const char *text)
{
    ir_message message;
    sglir_graph *g = ir_case_parse(env, "test", text, &message);
    if (g == NULL) fail_msg("%s\n%s", message.text, text);
    return g;
}

/* message NULL: it must pass. */
static void expect(sglcore_env *env, const sglir_graph *g, sglir_stage stage, const char *message)
{
    env->message[0] = '\0';
    sgl_status status = sglir_verify(g, stage);
    sglcore_text text = ir_case_print(env, g);
    if (message == NULL && status != SGL_OK) fail_msg("%s\n%s", env->message, text.data);
    if (message != NULL && status == SGL_OK) fail_msg("passes, and should not: %s\n%s", message, text.data);
    if (message != NULL && strstr(env->message, message) == NULL) {
        fail_msg("%s\nnot: %s\n%s", env->message, message, text.data);
    }
    sglcore_text_free(env, &text);
}

static void check(sglir_stage stage, const char *text, const char *message)
{
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglir_graph *g = parse(&env, text);
    expect(&env, g, stage, message);
    sglir_graph_free(g);
    assert_int_equal(heap.live_blocks, 0);
}

/* ---- stages ------------------------------------------------------------------------------------------------- */

#define INPUTS                                                                                                         \
    "graph \"g\" {\n%0 = input() {role=0, name=\"w\", dtype=f32, dims=[4,4]}\n"                                        \
    "%1 = input() {role=2, name=\"x\", dtype=f32, dims=[4,4]}\n"

static void test_stages(void **state)
{
    (void)state;
    const char *with_grad = INPUTS "%2 = mul(%0, %1)\n%3 = reduce_sum(%2) {axes=[0,1]}\n"
                                   "%4 = grad(%3, %0) : f32[4,4] @\"a.lua\":3\nfetch \"d\" %4\n}";
    check(SGLIR_LOGICAL, with_grad, NULL);
    check(SGLIR_PER_RANK, with_grad,
          "a.lua:3: %4 = grad(%3, %0) : f32[4,4] @\"a.lua\":3: a grad is left after autodiff");
    const char *loose = INPUTS "%2 = mul(%0, %1)\nfetch \"y\" %2\n}";
    check(SGLIR_PER_RANK, loose, NULL);
    check(SGLIR_FUSED, loose, "%2 = mul(%0, %1) : f32[4,4]: it must stand in a fused region by now");
    const char *fused = INPUTS "%2 = fused(%0, %1) {domain=[4,4], inner=1} {\n"
                               "region(%3: f32[4,4], %4: f32[4,4]) {\n%5 = mul(%3, %4)\n"
                               "%6 = reduce_sum(%5) {axes=[1]}\nyield %6\n}\n}\n"
                               "%7 = softmax(%0)\n%8 = constant() {value=1, dtype=f32}\n%9 = reshape(%7) {dims=[16]}\n"
                               "%10 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                               "fetch \"y\" %2\n}";
    check(SGLIR_FUSED, fused, NULL);
    check(SGLIR_FUSED,
          INPUTS "%2 = fused(%0, %1) {domain=[4,4], inner=1} {\nregion(%3: f32[4,4], %4: f32[4,4]) {\n"
                 "%5 = dot(%3, %4) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\nyield %5\n}\n}\n}",
          "an op that no kernel holds stands in a fused region");
    check(SGLIR_FUSED, INPUTS "%2 = silu(%0)\n}", "it must stand in a fused region by now");
    check(SGLIR_FUSED, INPUTS "%2 = scan(%0) {steps=2} {region(%3: i64[], %4: f32[4,4]) {\n%5 = exp(%4)\nyield %5}}\n}",
          "%5 = exp(%4) : f32[4,4]: it must stand in a fused region by now");
    check(SGLIR_LOGICAL, "graph \"g\" {}", NULL);
    check(SGLIR_PLACED, "graph \"g\" {}", NULL);
}

static void test_owed(void **state)
{
    (void)state;
    const char *partial = "graph \"g\" {\n%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4], partial=4}\n"
                          "%1 = neg(%0)\nfetch \"y\" %1\n}";
    check(SGLIR_LOGICAL, partial, "output \"y\" is still owed something: f32[4]{partial(tp)}");
    check(SGLIR_LOGICAL,
          "graph \"g\" {\n%0 = input() {role=2, name=\"x\", dtype=f32, dims=[4], scaled=1}\nfetch \"y\" %0\n}",
          "output \"y\" is still owed something: f32[4]{scaled}");
}

#define EXCHANGED                                                                                                      \
    "graph \"g\" {\n  %0 = input() {role=2, name=\"p\", dtype=f32, dims=[4], partial=1}\n  %1 = neg(%0)\n"             \
    "  %2 = all_reduce(%1) {axes=1}\n"

static void test_waits(void **state)
{
    (void)state;
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%2, %1)\n  fetch \"y\" %3\n}", NULL);
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%2)\n  fetch \"y\" %3\n}", "does not name the arguments");
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%2, %0)\n  fetch \"y\" %3\n}", "does not name the arguments");
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%2, %1, %0)\n  fetch \"y\" %3\n}", "does not name the arguments");
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%2, %1)\n  %4 = neg(%2)\n  fetch \"y\" %3\n  fetch \"z\" %4\n}",
          "is read by others too");
    check(SGLIR_PER_RANK, EXCHANGED "  %3 = wait(%1, %0)\n  fetch \"z\" %2\n}", "is made by no exchange");
    check(SGLIR_PER_RANK,
          EXCHANGED "  %9 = input() {role=2, name=\"c\", dtype=f32, dims=[4]}\n"
                    "  %3 = scan(%9) {steps=2} {\n    region(%4: i64[], %5: f32[4]) {\n      %6 = wait(%2, %1)\n"
                    "      yield %6\n    }\n  }\n  fetch \"y\" %3\n}",
          "stands in another region");
}

static void test_members(void **state)
{
    (void)state;
#define SECTION "graph \"g\" {\n%0 = input() {role=1, name=\"s\", dtype=f32, dims=[16]}\nfetch \"y\" %0\n"
    check(
        SGLIR_PER_RANK,
        SECTION
        "member \"a\" of \"s\" role parameter offset 0 : f32[2,4]\n"
        "member \"b\" of \"s\" role parameter offset 8 : f32[8]\nmember \"c\" of \"t\" role state offset 90 : f32[8]\n}",
        NULL);
    check(SGLIR_PER_RANK, SECTION "member \"a\" of \"s\" role parameter offset 9 : f32[2,4]\n}",
          "member \"a\" does not fit into its section \"s\"");
    check(SGLIR_PER_RANK, SECTION "member \"a\" of \"s\" role parameter offset 0 : f64[2,4]\n}", "does not fit");
    check(SGLIR_PER_RANK,
          SECTION "member \"a\" of \"s\" role parameter offset 0 : f32[2,4]\n"
                  "member \"b\" of \"s\" role parameter offset 7 : f32[8]\n}",
          "members \"a\" and \"b\" of section \"s\" overlap");
}

/* ---- places ------------------------------------------------------------------------------------------------- */

#define COPY_OF(result, argument, place) result " = copy(" argument ") : f32[16] in " place "\n"
#define PLACED(inside, arena)                                                                                          \
    "graph \"g\" {\n"                                                                                                  \
    "%0 = input() {role=1, name=\"s\", dtype=f32, dims=[16]} : f32[16] in state+0\n"                                   \
    "%1 = input() {role=2, name=\"x\", dtype=f32, dims=[16]} : f32[16] in io+0\n" inside "memory {arena=" arena        \
    ", state=64, io=128, const=64}\n}"

static void test_places(void **state)
{
    (void)state;
    /* one after another; into the place of an argument that dies; beside what still lives */
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1", "arena+0") COPY_OF("%3", "%2", "arena+0") COPY_OF("%4", "%3", "arena+64")
                     COPY_OF("%5", "%4", "arena+0") "fetch \"y\" %5\n",
                 "128"),
          NULL);
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1", "arena+0") COPY_OF("%3", "%1", "arena+60")
                     COPY_OF("%4", "%2", "arena+128") "fetch \"y\" %4\n",
                 "192"),
          "%3 = copy(%1) : f32[16] in arena+60: result 0 overlaps %2 in arena+0, which still lives");
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%1", "arena+68") "fetch \"y\" %2\n", "128"),
          "result 0 lies outside its space");
    check(SGLIR_PLACED, PLACED("%2 = copy(%1)\nfetch \"y\" %2\n", "128"), "result 0 is stored and has no place");
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%1", "io+0") "fetch \"y\" %2\n", "0"), "overlaps %1 in io+0");
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%1", "io+64") "fetch \"y\" %2\n", "0"), NULL);
    /* what an output names lives on */
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1", "arena+0") COPY_OF("%3", "%1", "arena+0") "fetch \"y\" %2\nfetch \"z\" %3\n",
                 "64"),
          "overlaps %2 in arena+0");
    check(SGLIR_PLACED, "graph \"g\" {\nmemory {arena=64, lower_bound=65}\n}", "fewer than live at once: 65");
    check(
        SGLIR_PLACED,
        "graph \"g\" {\n%0 = input() {role=1, name=\"s\", dtype=f32, dims=[16]} : f32[16] in arena+0\nmemory {arena=64}\n}",
        "is an input and neither in state nor in io");
}

static void test_places_of_states(void **state)
{
    (void)state;
    /* in place, over several steps; or elsewhere, and the state stays */
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%0", "state+0") COPY_OF("%3", "%2", "state+0") "update \"s\" %3\n", "0"),
          NULL);
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%0", "arena+0") "update \"s\" %2\n", "64"), NULL);
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%0", "state+0") COPY_OF("%3", "%0", "arena+0") "update \"s\" %2\nfetch \"y\" %3\n",
                 "64"),
          "overlaps %0 in state+0");
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%0", "state+0") COPY_OF("%3", "%2", "arena+0") "update \"s\" %3\n", "64"),
          "overlaps %0 in state+0");
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%0", "state+0") "fetch \"y\" %2\n", "0"), "overlaps %0 in state+0");
}

static void test_places_of_views(void **state)
{
    (void)state;
#define VIEW "%3 = reshape(%2) {dims=[4,4]} : f32[4,4] in arena+0\n"
    check(SGLIR_PLACED, PLACED(COPY_OF("%2", "%1", "arena+0") VIEW "fetch \"y\" %3\n", "64"), NULL);
    /* the view keeps its root alive */
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1", "arena+0") VIEW COPY_OF("%4", "%1", "arena+0") "fetch \"y\" %3\nfetch \"z\" %4\n",
                 "64"),
          "overlaps %2 in arena+0");
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1",
                         "arena+0") "%3 = reshape(%2) {dims=[4,4]} : f32[4,4] in arena+64\nfetch \"y\" %3\n",
                 "128"),
          "is a view and does not lie where its elements are");
    check(SGLIR_PLACED,
          PLACED("%2, %3 = unpack(%0) {ranks=[1,2], dims=[4,3,4]} : f32[4] in state+0, f32[3,4] in state+16\n"
                 "fetch \"y\" %3\n",
                 "0"),
          NULL);
    check(SGLIR_PLACED,
          PLACED("%2, %3 = unpack(%0) {ranks=[1,2], dims=[4,3,4]} : f32[4] in state+0, f32[3,4] in state+12\n"
                 "fetch \"y\" %3\n",
                 "0"),
          "result 1 is a view");
}

static void test_places_of_constants(void **state)
{
    (void)state;
#define NUMBER(id, value, place) id " = constant() {value=" value ", dtype=f32} : f32[] in " place "\n"
    check(SGLIR_PLACED,
          PLACED(NUMBER("%2", "1", "const+0") NUMBER("%3", "1", "const+0") NUMBER("%4", "2", "const+4"), "0"), NULL);
    check(SGLIR_PLACED, PLACED(NUMBER("%2", "1", "const+0") NUMBER("%3", "2", "const+0"), "0"),
          "overlaps %2 in const+0");
    check(SGLIR_PLACED, PLACED(NUMBER("%2", "1", "arena+0"), "64"), "is a constant and not among these");
}

static void test_places_of_workspaces(void **state)
{
    (void)state;
#define WORKER(result, argument, place, work)                                                                          \
    result " = copy(" argument ") : f32[16] in " place " work 64 in " work "\n"
    /* beside argument and result; where the last node's was, and where a dead value was */
    check(SGLIR_PLACED,
          PLACED(WORKER("%2", "%1", "arena+0", "arena+64") WORKER("%3", "%2", "arena+128", "arena+64")
                     WORKER("%4", "%3", "arena+64", "arena+0") "fetch \"y\" %4\n",
                 "192"),
          NULL);
    check(
        SGLIR_PLACED, PLACED(WORKER("%2", "%1", "arena+0", "arena+32") "fetch \"y\" %2\n", "128"),
        "%2 = copy(%1) : f32[16] in arena+0 work 64 in arena+32: result 0 overlaps the workspace of copy in arena+32");
    check(SGLIR_PLACED,
          PLACED(COPY_OF("%2", "%1", "arena+0") WORKER("%3", "%2", "arena+64", "arena+0") "fetch \"y\" %3\n", "128"),
          "its workspace overlaps %2 in arena+0, which still lives");
    check(SGLIR_PLACED, PLACED(WORKER("%2", "%1", "arena+0", "arena+65") "fetch \"y\" %2\n", "128"),
          "its workspace lies outside the arena");
}

/* Two carries, of 64 bytes each; `a_in`, `b_in` where they come from. */
#define LOOP(a_in, b_in, a_at, b_at, body, a_next, b_next, a_out, b_out)                                               \
    PLACED("%2 = copy(%1) : f32[16] in " a_in "\n%3 = copy(%1) : f32[16] in " b_in "\n"                                \
           "%4, %5 = scan(%2, %3) {steps=3} : f32[16] in " a_out ", f32[16] in " b_out " {\n"                          \
           "region(%6: i64[] in arena+1000, %7: f32[16] in " a_at ", %8: f32[16] in " b_at ") {\n" body                \
           "yield " a_next ", " b_next "\n}\n}\nfetch \"y\" %4\nfetch \"z\" %5\n",                                     \
           "1008")

static void test_places_of_loops(void **state)
{
    (void)state;
#define A "arena+0"
#define B "arena+64"
#define C "arena+128"
#define D "arena+192"
    /* each carry in one place from first to last */
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", A) COPY_OF("%10", "%8", B), "%9", "%10", A, B), NULL);
    /* double-buffered, the loop's results beside */
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", C) COPY_OF("%10", "%8", D), "%9", "%10", A, B), NULL);
    /* the carries change places: each must have a buffer of its own */
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", C) COPY_OF("%10", "%8", D), "%10", "%9", A, B), NULL);
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%8", A) COPY_OF("%10", "%7", B), "%9", "%10", A, B),
          "overlaps %7 in arena+0");
    check(SGLIR_PLACED, LOOP(A, B, A, A, COPY_OF("%9", "%7", C), "%9", "%9", A, B),
          "the region's parameter 2 overlaps %7 in arena+0");
    /* the next turn is written while the carry is still read */
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", A) COPY_OF("%10", "%7", B), "%9", "%10", A, B),
          "overlaps %7 in arena+0");
    /* what the loop uses from around it lives through all turns */
    check(SGLIR_PLACED, LOOP(A, B, C, B, COPY_OF("%9", "%2", A) COPY_OF("%10", "%8", B), "%9", "%10", C, B),
          "overlaps %2 in arena+0");
    /* one result where the other carry's last turn still lies */
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", C) COPY_OF("%10", "%8", D), "%9", "%10", B, A),
          "overlaps");
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", "arena+1000") COPY_OF("%10", "%8", B), "%9", "%10", A, B),
          "result 0 lies outside its space");
    check(SGLIR_PLACED, LOOP(A, B, A, B, COPY_OF("%9", "%7", "arena+944") COPY_OF("%10", "%8", B), "%9", "%10", A, B),
          "overlaps %6 in arena+1000");
}

/* ---- damaged arrays ----------------------------------------------------------------------------------------- */

static const char whole[] =
    INPUTS "%2 = dot(%0, %1) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]} : f32[4,4] @\"a.lua\":9\n"
           "%3 = scan(%2) {steps=2} {region(%4: i64[], %5: f32[4,4]) {\n%6 = add(%5, %0)\n%7 = exp(%6)\nyield %7}}\n"
           "%8 = fused(%3) {domain=[4,4], inner=1} {region(%9: f32[4,4]) {\n%10 = tanh(%9)\nyield %10}}\n"
           "fetch \"y\" %8\nupdate \"w\" %3\n}";

enum { INPUT_W, INPUT_X, DOT, ADD, EXP, SCAN, TANH, FUSED };

typedef void (*damage)(sglir_graph *g);

static void wrong_op(sglir_graph *g) { g->nodes.data[DOT].op = SGLIR_OP_COUNT; }
static void wrong_args(sglir_graph *g) { g->nodes.data[DOT].arg_first = (uint32_t)g->args.count - 1; }
static void wrong_arg(sglir_graph *g) { g->args.data[g->nodes.data[DOT].arg_first] = (sglir_id)g->values.count; }
static void later_arg(sglir_graph *g) { g->args.data[g->nodes.data[DOT].arg_first] = g->nodes.data[SCAN].out_first; }
static void inner_arg(sglir_graph *g) { g->args.data[g->nodes.data[FUSED].arg_first] = g->nodes.data[EXP].out_first; }
static void wrong_type(sglir_graph *g) { g->values.data[g->nodes.data[DOT].out_first].type.dims[1] = 5; }
static void wrong_dtype(sglir_graph *g) { g->values.data[g->nodes.data[ADD].out_first].type.dtype = SGL_F64; }
static void wrong_owed(sglir_graph *g) { g->values.data[g->nodes.data[TANH].out_first].type.partial = 1; }
static void wrong_parameter(sglir_graph *g) { g->values.data[g->regions.data[1].parameters.data[1]].type.scaled = 1; }
static void wrong_arity(sglir_graph *g) { g->nodes.data[DOT].arg_count = 1; }
static void wrong_kind(sglir_graph *g) { g->attrs.data[g->nodes.data[DOT].attr_first].kind = 'F'; }
static void wrong_list(sglir_graph *g) { g->attrs.data[g->nodes.data[INPUT_W].attr_first + 3].as.first = 1u << 30; }
static void wrong_attr_order(sglir_graph *g)
{
    sglir_attr *attrs = &g->attrs.data[g->nodes.data[DOT].attr_first], first = attrs[0];
    attrs[0] = attrs[1];
    attrs[1] = first;
}
static void wrong_dims(sglir_graph *g)
{
    g->ints.data[g->attrs.data[g->nodes.data[INPUT_W].attr_first + 3].as.first] = 3;
}
static void wrong_axis(sglir_graph *g) { g->ints.data[g->attrs.data[g->nodes.data[DOT].attr_first + 2].as.first] = 7; }
static void wrong_maker(sglir_graph *g) { g->values.data[g->nodes.data[DOT].out_first].node = EXP; }
static void wrong_region(sglir_graph *g) { g->nodes.data[EXP].region = 0; }
static void wrong_result(sglir_graph *g) { g->regions.data[1].results.data[0] = (sglir_id)g->values.count; }
static void outer_output(sglir_graph *g) { g->outputs.data[0].value = g->nodes.data[EXP].out_first; }
static void twice(sglir_graph *g) { g->regions.data[0].nodes.data[2] = INPUT_X; }
static void out_of_order(sglir_graph *g)
{
    g->regions.data[1].nodes.data[0] = EXP;
    g->regions.data[1].nodes.data[1] = ADD;
}
static void open_region(sglir_graph *g) { g->open.count = 2; }
static void failed(sglir_graph *g) { g->status = SGL_TYPE; }
static void wrong_space(sglir_graph *g) { g->values.data[0].space = 9; }
static void shared_region(sglir_graph *g) { g->nodes.data[FUSED].region_first = g->nodes.data[SCAN].region_first; }
static void ringed(sglir_graph *g)
{
    g->nodes.data[TANH].region_first = g->nodes.data[FUSED].region_first;
    g->nodes.data[TANH].region_count = 1;
    g->regions.data[2].node = TANH;
    g->nodes.data[FUSED].region_count = 0;
    g->regions.data[0].nodes.data[g->regions.data[0].nodes.count - 1] = TANH;
    g->nodes.data[TANH].region = 0;
}
static void wrong_fused(sglir_graph *g) { g->args.data[g->nodes.data[TANH].arg_first] = g->nodes.data[SCAN].out_first; }
static void update_of_feed(sglir_graph *g) { g->outputs.data[1].name = g->outputs.data[0].name; }

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        damage damage;
        const char *message;
    } cases[] = {
        { wrong_op, "node 2 (of no op): its op is not in the table" },
        { wrong_args, "node 2 (dot): its arguments are out of the graph" },
        { wrong_arg, "node 2 (dot): an argument is no value of the graph" },
        { later_arg, "a.lua:9: %2 = dot(%7, %1)" },
        { inner_arg, "argument 0 is not made before it, in its region or around" },
        { wrong_type, "a.lua:9: %2 = dot(%0, %1)" },
        { wrong_type, "result 0 is f32[4,5], and must be f32[4,4]" },
        { wrong_dtype, "add" },
        { wrong_owed, "{partial(dp)}" },
        { wrong_parameter, "scan" },
        { wrong_arity, "dot: takes 2 arguments, not 1" },
        { wrong_kind, "node 2 (dot): an attribute's kind is not its schema's" },
        { wrong_list, "node 0 (input): a list is out of the graph's integers" },
        { wrong_attr_order, "node 2 (dot): its attributes are not in the schema's order" },
        { wrong_dims, "result 0 is f32[4,4], and must be f32[3,4]" },
        { wrong_axis, "dot: contract_a names dimension 7" },
        { wrong_maker, "node 2 (dot): a result does not know it as its maker" },
        { wrong_region, "node 4 (exp): a result does not know it as its maker" },
        { wrong_result, "region 1: a node, parameter or result is not the graph's" },
        { outer_output, "output \"y\" is no value of the graph's top region" },
        { twice, "node 1 (input): it stands in the graph twice" },
        { out_of_order, "argument 0 is not made before it" },
        { open_region, "a region of the graph is not closed" },
        { failed, "failed while it was built" },
        { wrong_space, "value 0: its maker, region, space or type is out of range" },
        { shared_region, "node 7 (fused): a region of it does not know it" },
        { ringed, "node 6 (tanh): a result does not know it as its maker" },
        { wrong_fused, "fused" },
        { update_of_feed, "there is no parameter or state \"y\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fault_heap heap = { 0 };
        sglcore_env env = fault_env(&heap);
        sglir_graph *g = parse(&env, whole);
        assert_int_equal(sglir_verify(g, SGLIR_LOGICAL), SGL_OK);
        cases[i].damage(g);
        sgl_status status = sglir_verify(g, SGLIR_LOGICAL);
        if (status == SGL_OK) fail_msg("case %zu passes, and should not: %s", i, cases[i].message);
        if (strstr(env.message, cases[i].message) == NULL)
            fail_msg("case %zu: %s\nnot: %s", i, env.message, cases[i].message);
        sglir_graph_free(g);
        assert_int_equal(heap.live_blocks, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_owed),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_places_of_states),
        cmocka_unit_test(test_places_of_views),
        cmocka_unit_test(test_places_of_constants),
        cmocka_unit_test(test_places_of_workspaces),
        cmocka_unit_test(test_places_of_loops),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
