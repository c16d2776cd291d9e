/* test_micro_regions.c -- loops and branches in micro-batches: each case says how many of them still take whole values; the
 * numbers are those of the whole batch in float64, gradients too. Failing allocations. */
#include "fault.h"

#include <stdio.h>

#include "micro_fault.h"
#include "tests/support/ir_case.h"

/* Loops of the cases turn 3 or 5 times, micro-batches are 2, 3 or 4. In every case x is a feed of 4 rows. */
typedef struct region_case {
    const char *name;
    int whole; /* loops and branches that take whole values, their derivatives counted too */
    const char *body;
} region_case;

#define HEAD                                                                                                           \
    "graph \"test\" {\n"                                                                                               \
    "  %0 = input() {role=2, name=\"x\", dtype=f64, dims=[4,3]}\n"                                                     \
    "  %1 = input() {role=0, name=\"w\", dtype=f64, dims=[3,3]}\n"                                                     \
    "  %2 = input() {role=2, name=\"xs\", dtype=f64, dims=[4,5,3]}\n"                                                  \
    "  %3 = input() {role=0, name=\"b\", dtype=f64, dims=[4,3]}\n"                                                     \
    "  %4 = constant() {value=0, dtype=f64}\n"                                                                         \
    "  %5 = broadcast(%4) {dims=[4,3]}\n"                                                                              \
    "  %6 = broadcast(%4) {dims=[3]}\n"                                                                                \
    "  %7 = constant() {value=0, dtype=i64}\n"                                                                         \
    "  %8 = input() {role=1, name=\"number\", dtype=f64, dims=[]}\n"                                                   \
    "  %9 = transpose(%2) {order=[1,0,2]}\n"

#define DOT "{batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}"

static const region_case cases[] = {
    /* h = tanh(h w + x_t), all h stacked; the gradient of w is a sum that is owed, that of xs lies in slices. */
    { "recurrent net", 0,
      "  %10 = broadcast(%4) {dims=[5,4,3]}\n"
      "  %11, %12 = scan(%5, %10) {steps=5} {\n"
      "    region(%13: i64[], %14: f64[4,3], %15: f64[5,4,3]) {\n"
      "      %16 = dynamic_slice(%9, %13) {axis=0, size=1}\n"
      "      %17 = reshape(%16) {dims=[4,3]}\n"
      "      %18 = dot(%14, %1) " DOT "\n"
      "      %19 = add(%18, %17)\n"
      "      %20 = tanh(%19)\n"
      "      %21 = reshape(%20) {dims=[1,4,3]}\n"
      "      %22 = dynamic_update(%15, %21, %13) {axis=0}\n"
      "      yield %20, %22\n"
      "    }\n"
      "  }\n"
      "  %23 = mul(%12, %12)\n"
      "  %24 = reduce_sum(%23) {axes=[0,1,2]}\n"
      "  %25, %26 = grad(%24, %1, %3)\n"
      "  fetch \"y\" %24\n  fetch \"dw\" %25\n  fetch \"h\" %11\n  fetch \"db\" %26\n" },
    /* The same with x_t's gradient, a first carry that is a parameter, and one that is x itself. */
    { "what comes in whole", 0,
      "  %10 = mul(%9, %9)\n"
      "  %11, %12 = scan(%3, %0) {steps=5} {\n"
      "    region(%13: i64[], %14: f64[4,3], %15: f64[4,3]) {\n"
      "      %16 = dynamic_slice(%10, %13) {axis=0, size=1}\n"
      "      %17 = reshape(%16) {dims=[4,3]}\n"
      "      %18 = mul(%14, %15)\n"
      "      %19 = add(%18, %17)\n"
      "      %20 = sin(%19)\n"
      "      yield %20, %14\n"
      "    }\n"
      "  }\n"
      "  %23 = mul(%11, %12)\n"
      "  %24 = reduce_sum(%23) {axes=[0,1]}\n"
      "  %25, %26, %27 = grad(%24, %3, %2, %0)\n"
      "  fetch \"y\" %24\n  fetch \"db\" %25\n  fetch \"dxs\" %26\n  fetch \"dx\" %27\n" },
    /* A counter beside split carries is the same in every micro-batch, inside, after, and in another loop. */
    { "a number beside", 0,
      "  %10, %11 = scan(%0, %8) {steps=3} {\n"
      "    region(%12: i64[], %13: f64[4,3], %14: f64[]) {\n"
      "      %15 = broadcast(%14) {dims=[4,3]}\n"
      "      %16 = mul(%13, %15)\n"
      "      %17 = sin(%16)\n"
      "      %18 = mul(%14, %14)\n"
      "      yield %17, %18\n"
      "    }\n"
      "  }\n"
      "  %20 = add(%11, %8)\n"
      "  %21 = scan(%10) {steps=5} {\n"
      "    region(%22: i64[], %23: f64[4,3]) {\n"
      "      %24 = broadcast(%20) {dims=[4,3]}\n"
      "      %25 = mul(%23, %24)\n"
      "      yield %25\n"
      "    }\n"
      "  }\n"
      "  %26 = broadcast(%11) {dims=[4,3]}\n"
      "  %27 = mul(%21, %26)\n"
      "  %28 = reduce_sum(%27) {axes=[0,1]}\n"
      "  %29, %30 = grad(%28, %0, %8)\n"
      "  fetch \"y\" %28\n  fetch \"dx\" %29\n  fetch \"dn\" %30\n  fetch \"n\" %11\n  fetch \"m\" %20\n  fetch \"z\" %21\n" },
    /* Sums over the batch that nothing in the loop reads stay owed. */
    { "a sum in a carry", 0,
      "  %10, %11 = scan(%6, %0) {steps=3} {\n"
      "    region(%12: i64[], %13: f64[3], %14: f64[4,3]) {\n"
      "      %15 = sin(%14)\n"
      "      %16 = reduce_sum(%15) {axes=[0]}\n"
      "      %17 = add(%13, %16)\n"
      "      %18 = dot(%15, %1) " DOT "\n"
      "      yield %17, %18\n"
      "    }\n"
      "  }\n"
      "  %20 = exp(%10)\n"
      "  %21 = reduce_sum(%20) {axes=[0]}\n"
      "  %22, %23 = grad(%21, %1, %0)\n"
      "  fetch \"y\" %21\n  fetch \"dw\" %22\n  fetch \"dx\" %23\n" },
    /* What starts from a number that is no zero would be added once per micro-batch. */
    { "a sum that begins with a number", 3,
      "  %40 = reduce_sum(%3) {axes=[0]}\n"
      "  %10, %11 = scan(%40, %0) {steps=3} {\n"
      "    region(%12: i64[], %13: f64[3], %14: f64[4,3]) {\n"
      "      %15 = sin(%14)\n"
      "      %16 = reduce_sum(%15) {axes=[0]}\n"
      "      %17 = add(%13, %16)\n"
      "      %18 = dot(%15, %1) " DOT "\n"
      "      yield %17, %18\n"
      "    }\n"
      "  }\n"
      "  %20 = exp(%10)\n"
      "  %21 = reduce_sum(%20) {axes=[0]}\n"
      "  %22, %23 = grad(%21, %1, %3)\n"
      "  %24 = scan(%22) {steps=3} {\n"
      "    region(%25: i64[], %26: f64[3,3]) {\n"
      "      %27 = mul(%26, %1)\n"
      "      yield %27\n"
      "    }\n"
      "  }\n"
      "  fetch \"y\" %21\n  fetch \"dw\" %22\n  fetch \"db\" %23\n  fetch \"s\" %24\n" },
    /* A turn that needs the whole batch. */
    { "coupled turns", 2,
      "  %10 = scan(%0) {steps=3} {\n"
      "    region(%11: i64[], %12: f64[4,3]) {\n"
      "      %13 = exp(%12)\n"
      "      %14 = reduce_sum(%13) {axes=[0]}\n"
      "      %15 = broadcast(%14) {dims=[4,3]}\n"
      "      %16 = div(%13, %15)\n"
      "      yield %16\n"
      "    }\n"
      "  }\n"
      "  %20 = mul(%10, %3)\n"
      "  %21 = reduce_sum(%20) {axes=[0,1]}\n"
      "  %22, %23 = grad(%21, %0, %3)\n"
      "  fetch \"y\" %21\n  fetch \"dx\" %22\n  fetch \"db\" %23\n" },
    /* Turns that go along the batch. */
    { "a loop over samples", 2,
      "  %10 = scan(%6) {steps=4} {\n"
      "    region(%11: i64[], %12: f64[3]) {\n"
      "      %13 = dynamic_slice(%0, %11) {axis=0, size=1}\n"
      "      %14 = reshape(%13) {dims=[3]}\n"
      "      %15 = mul(%12, %14)\n"
      "      %16 = sin(%15)\n"
      "      %17 = add(%16, %14)\n"
      "      yield %17\n"
      "    }\n"
      "  }\n"
      "  %20 = mul(%10, %10)\n"
      "  %21 = reduce_sum(%20) {axes=[0]}\n"
      "  %22 = grad(%21, %0)\n"
      "  fetch \"y\" %21\n  fetch \"dx\" %22\n" },
    /* A choice that is the same for all; w is used in one branch only, so the other owes a sum of zeros. */
    { "branches", 0,
      "  %10 = constant() {value=0.5, dtype=f64}\n"
      "  %11 = less(%8, %10)\n"
      "  %12, %13 = cond(%11) {\n"
      "    region() {\n"
      "      %14 = dot(%0, %1) " DOT "\n"
      "      %15 = tanh(%14)\n"
      "      %16 = reduce_sum(%15) {axes=[0]}\n"
      "      yield %15, %16\n"
      "    }\n"
      "    region() {\n"
      "      %17 = mul(%0, %3)\n"
      "      yield %17, %6\n"
      "    }\n"
      "  }\n"
      "  %20 = mul(%12, %12)\n"
      "  %21 = reduce_sum(%20) {axes=[0,1]}\n"
      "  %22 = reduce_sum(%13) {axes=[0]}\n"
      "  %23 = add(%21, %22)\n"
      "  %24, %25, %26 = grad(%23, %1, %3, %0)\n"
      "  fetch \"y\" %23\n  fetch \"dw\" %24\n  fetch \"db\" %25\n  fetch \"dx\" %26\n" },
    /* A choice that the whole batch makes: what is chosen is still made in micro-batches, after those that decide. */
    { "branches after a sum", 0,
      "  %10 = reduce_sum(%0) {axes=[0,1]}\n"
      "  %11 = less(%10, %8)\n"
      "  %12 = cond(%11) {\n"
      "    region() {\n"
      "      %14 = dot(%0, %1) " DOT "\n"
      "      %15 = tanh(%14)\n"
      "      yield %15\n"
      "    }\n"
      "    region() {\n"
      "      yield %0\n"
      "    }\n"
      "  }\n"
      "  %20 = mul(%12, %12)\n"
      "  %21 = reduce_sum(%20) {axes=[0,1]}\n"
      "  %24, %26 = grad(%21, %1, %0)\n"
      "  fetch \"y\" %21\n  fetch \"dw\" %24\n  fetch \"dx\" %26\n" },
    /* Branches that yield a thing along different dimensions. */
    { "branches of two minds", 2,
      "  %40 = dot(%0, %3) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}\n"
      "  %10 = constant() {value=0.5, dtype=f64}\n"
      "  %11 = less(%8, %10)\n"
      "  %12 = cond(%11) {\n"
      "    region() {\n"
      "      %14 = sin(%40)\n"
      "      yield %14\n"
      "    }\n"
      "    region() {\n"
      "      %15 = transpose(%40) {order=[1,0]}\n"
      "      yield %15\n"
      "    }\n"
      "  }\n"
      "  %20 = mul(%12, %12)\n"
      "  %21 = reduce_sum(%20) {axes=[0,1]}\n"
      "  %24, %26 = grad(%21, %3, %0)\n"
      "  fetch \"y\" %21\n  fetch \"db\" %24\n  fetch \"dx\" %26\n" },
    /* Turns that a number counts; the gradient asks how many there were. */
    { "while", 0,
      "  %10, %11 = while(%0, %7) {limit=5} {\n"
      "    region(%12: i64[], %13: f64[4,3], %14: i64[]) {\n"
      "      %15 = constant() {value=3, dtype=i64}\n"
      "      %16 = less(%14, %15)\n"
      "      yield %16\n"
      "    }\n"
      "    region(%17: i64[], %18: f64[4,3], %19: i64[]) {\n"
      "      %20 = dot(%18, %1) " DOT "\n"
      "      %21 = sin(%20)\n"
      "      %22 = constant() {value=1, dtype=i64}\n"
      "      %23 = add(%19, %22)\n"
      "      yield %21, %23\n"
      "    }\n"
      "  }\n"
      "  %30 = mul(%10, %10)\n"
      "  %31 = reduce_sum(%30) {axes=[0,1]}\n"
      "  %32, %33 = grad(%31, %1, %0)\n"
      "  fetch \"y\" %31\n  fetch \"dw\" %32\n  fetch \"dx\" %33\n  fetch \"n\" %11\n" },
    /* Turns that the samples decide about together. */
    { "while the batch is small", 2,
      "  %10 = while(%0) {limit=5} {\n"
      "    region(%12: i64[], %13: f64[4,3]) {\n"
      "      %14 = reduce_max(%13) {axes=[0,1]}\n"
      "      %15 = less(%14, %8)\n"
      "      yield %15\n"
      "    }\n"
      "    region(%17: i64[], %18: f64[4,3]) {\n"
      "      %20 = dot(%18, %1) " DOT "\n"
      "      %21 = exp(%20)\n"
      "      yield %21\n"
      "    }\n"
      "  }\n"
      "  %30 = mul(%10, %10)\n"
      "  %31 = reduce_sum(%30) {axes=[0,1]}\n"
      "  %32 = grad(%31, %1)\n"
      "  fetch \"y\" %31\n  fetch \"dw\" %32\n" },
    /* Loops and branches in a loop, one of them of whole values only. */
    { "nested", 0,
      "  %10, %11 = scan(%0, %8) {steps=5} {\n"
      "    region(%12: i64[], %13: f64[4,3], %14: f64[]) {\n"
      "      %15 = scan(%13) {steps=3} {\n"
      "        region(%16: i64[], %17: f64[4,3]) {\n"
      "          %18 = dot(%17, %1) " DOT "\n"
      "          %19 = tanh(%18)\n"
      "          yield %19\n"
      "        }\n"
      "      }\n"
      "      %20 = less(%14, %8)\n"
      "      %21 = cond(%20) {\n"
      "        region() {\n"
      "          %22 = mul(%15, %3)\n"
      "          yield %22\n"
      "        }\n"
      "        region() {\n"
      "          %23 = dot(%13, %1) " DOT "\n"
      "          %24 = sin(%23)\n"
      "          yield %24\n"
      "        }\n"
      "      }\n"
      "      %25 = scan(%14) {steps=3} {\n"
      "        region(%26: i64[], %27: f64[]) {\n"
      "          %28 = sin(%27)\n"
      "          yield %28\n"
      "        }\n"
      "      }\n"
      "      yield %21, %25\n"
      "    }\n"
      "  }\n"
      "  %30 = mul(%10, %10)\n"
      "  %31 = reduce_sum(%30) {axes=[0,1]}\n"
      "  %32 = add(%31, %11)\n"
      "  %33, %34, %35 = grad(%32, %1, %3, %0)\n"
      "  fetch \"y\" %32\n  fetch \"dw\" %33\n  fetch \"db\" %34\n  fetch \"dx\" %35\n" },
    /* Whole things that a turn makes: random numbers, an iota, a parameter along both of its dimensions. */
    { "made in a turn", 0,
      "  %40 = input() {role=0, name=\"square\", dtype=f64, dims=[4,4]}\n"
      "  %10 = scan(%0) {steps=3} {\n"
      "    region(%11: i64[], %12: f64[4,3]) {\n"
      "      %13 = constant() {value=0, dtype=i64}\n"
      "      %14 = random_uniform(%13, %11, %13) {id=7, dims=[4,3], dtype=f64}\n"
      "      %15 = constant() {value=0.5, dtype=f64}\n"
      "      %16 = broadcast(%15) {dims=[4,3]}\n"
      "      %17 = less(%14, %16)\n"
      "      %18 = select(%17, %12, %16)\n"
      "      %19 = iota() {axis=0, dims=[4,3], dtype=f64}\n"
      "      %20 = mul(%18, %19)\n"
      "      %21 = sin(%20)\n"
      "      %22 = dot(%21, %40) {batch_a=[], batch_b=[], contract_a=[0], contract_b=[0]}\n"
      "      %23 = reduce_sum(%22) {axes=[1]}\n"
      "      %24 = sin(%3)\n"
      "      %25 = add(%21, %24)\n"
      "      yield %25\n"
      "    }\n"
      "  }\n"
      "  %30 = mul(%10, %10)\n"
      "  %31 = reduce_sum(%30) {axes=[0,1]}\n"
      "  %32, %33 = grad(%31, %3, %0)\n"
      "  fetch \"y\" %31\n  fetch \"db\" %32\n  fetch \"dx\" %33\n" },
    /* A square that is split along one dimension here and the other there, around and inside: back through the loop, the
     * sum of both needs it whole. */
    { "two ways", 1,
      "  %40 = input() {role=0, name=\"square\", dtype=f64, dims=[4,4]}\n"
      "  %10 = dot(%0, %3) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}\n"
      "  %11 = transpose(%10) {order=[1,0]}\n"
      "  %12, %13 = scan(%10, %11) {steps=3} {\n"
      "    region(%14: i64[], %15: f64[4,4], %16: f64[4,4]) {\n"
      "      %17 = cast(%14) {to=f64}\n"
      "      %18 = broadcast(%17) {dims=[4,4]}\n"
      "      %19 = add(%40, %18)\n"
      "      %20 = mul(%15, %19)\n"
      "      %21 = mul(%16, %19)\n"
      "      %22 = mul(%20, %40)\n"
      "      %23 = mul(%21, %40)\n"
      "      %24 = sin(%22)\n"
      "      %25 = sin(%23)\n"
      "      yield %24, %25\n"
      "    }\n"
      "  }\n"
      "  %30 = transpose(%13) {order=[1,0]}\n"
      "  %31 = mul(%12, %30)\n"
      "  %32 = reduce_sum(%31) {axes=[0,1]}\n"
      "  %33, %34 = grad(%32, %3, %40)\n"
      "  fetch \"y\" %32\n  fetch \"db\" %33\n  fetch \"ds\" %34\n" },
    /* Rows that a turn looks up: their gradients and their indices lie in stacks that are split. */
    { "a table", 0,
      "  %40 = input() {role=0, name=\"table\", dtype=f64, dims=[40,3]}\n"
      "  %41 = input() {role=2, name=\"tokens\", dtype=i32, dims=[4,5]}\n"
      "  %42 = transpose(%41) {order=[1,0]}\n"
      "  %10 = scan(%5) {steps=5} {\n"
      "    region(%11: i64[], %12: f64[4,3]) {\n"
      "      %13 = dynamic_slice(%42, %11) {axis=0, size=1}\n"
      "      %14 = reshape(%13) {dims=[4]}\n"
      "      %15 = gather(%40, %14)\n"
      "      %16 = dot(%12, %1) " DOT "\n"
      "      %17 = add(%15, %16)\n"
      "      %18 = sin(%17)\n"
      "      yield %18\n"
      "    }\n"
      "  }\n"
      "  %30 = mul(%10, %10)\n"
      "  %31 = reduce_sum(%30) {axes=[0,1]}\n"
      "  %32, %33 = grad(%31, %40, %1)\n"
      "  fetch \"y\" %31\n  fetch \"dt\" %32\n  fetch \"dw\" %33\n" },
    /* Second derivatives: what the first loop back owes goes through another one. */
    { "twice", 0,
      "  %11 = scan(%0) {steps=3} {\n"
      "    region(%13: i64[], %14: f64[4,3]) {\n"
      "      %18 = dot(%14, %1) " DOT "\n"
      "      %20 = sin(%18)\n"
      "      yield %20\n"
      "    }\n"
      "  }\n"
      "  %23 = mul(%11, %11)\n"
      "  %24 = reduce_sum(%23) {axes=[0,1]}\n"
      "  %25 = grad(%24, %0)\n"
      "  %26 = mul(%25, %25)\n"
      "  %27 = reduce_sum(%26) {axes=[0,1]}\n"
      "  %28 = grad(%27, %1)\n"
      "  fetch \"y\" %24\n  fetch \"dw\" %28\n" },
};
enum { CASES = sizeof cases / sizeof *cases };

static sglir_graph *parse(sglcore_env *env, const region_case *c)
{
    char text[8192];
    ir_message message;
    snprintf(text, sizeof text, "%s%s}\n", HEAD, c->body);
    sglir_graph *g = ir_case_parse(env, c->name, text, &message);
    if (g == NULL) fail_msg("%s: %s", c->name, message.text);
    return g;
}

static sgl_status run_until(sglcore_env *env, const sglir_graph *g, int64_t micro, const char *until, sglir_graph **out)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = micro;
    sglpass_context context = { .env = env, .plan = &plan };
    return sglpass_run(&context, g, until, out);
}

static sglir_graph *cut(sglcore_env *env, const char *name, const sglir_graph *g, int64_t micro, const char *until)
{
    sglir_graph *made = NULL;
    if (run_until(env, g, micro, until, &made) != SGL_OK) fail_msg("%s: %s", name, env->message);
    if (sglir_verify(made, SGLIR_PER_RANK) != SGL_OK) fail_msg("%s: %s", name, env->message);
    return made;
}

/* Loops and branches outside of the loops over micro-batches. */
static int count_whole(const sglir_graph *g, int64_t micro)
{
    int count = 0;
    for (int64_t i = 0; i < g->regions.data[0].nodes.count; i++) {
        const sglir_node *node = sglir_node_at(g, g->regions.data[0].nodes.data[i]);
        bool cuts = node->op == SGLIR_OP_SCAN && sglir_attr_int(g, node, "steps") == micro;
        count += sglir_is_control(node) && !cuts;
    }
    return count;
}

static void test_cases(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int i = 0; i < CASES; i++) {
        sglir_graph *g = parse(&env, &cases[i]);
        sglir_graph *whole = cut(&env, cases[i].name, g, 1, "micro");
        for (int64_t micro = 2; micro <= 4; micro++) {
            sglir_graph *parts = cut(&env, cases[i].name, g, micro, "micro");
            sglir_graph *after = cut(&env, cases[i].name, g, micro, "recompute");
            ir_message message;
            for (uint64_t seed = 1; seed <= 4; seed++) {
                if (!ir_case_same_meaning(whole, parts, seed, (ir_tolerance){ 1e-12, 1e-14 }, &message))
                    fail_msg("%s, micro %d: %s", cases[i].name, (int)micro, message.text);
                if (!ir_case_same_meaning(whole, after, seed, (ir_tolerance){ 1e-12, 1e-14 }, &message))
                    fail_msg("%s, micro %d, later: %s", cases[i].name, (int)micro, message.text);
            }
            const bool counts =
                micro == 2 || (micro == 4 && cases[i].whole == 0); /* of 3 parts loops are in two pieces */
            bool said = counts && count_whole(parts, micro) != cases[i].whole;
            if (said) {
                sglcore_text text = ir_case_print(&env, parts);
                print_error("%s", text.data);
                sglcore_text_free(&env, &text);
                fail_msg("%s, micro %d: %d of its loops and branches are whole, not %d", cases[i].name, (int)micro,
                         count_whole(parts, micro), cases[i].whole);
            }
            sglir_graph_free(parts);
            sglir_graph_free(after);
        }
        sglir_graph_free(whole);
        sglir_graph_free(g);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, "nested") != 0 && strcmp(cases[i].name, "coupled turns") != 0) continue;
        sglir_graph *g = parse(&env, &cases[i]), *expanded = cut(&env, cases[i].name, g, 1, "micro");
        assert_true(fault_each_allocation(cut_expanded, expanded) > 50);
        sglir_graph_free(expanded);
        sglir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
