/* test_offload.c -- memory of the host: the words of the plan; states that one program sends away are away in the next, and those
 * that lie on the device stay there; a bound that recompute alone cannot keep is kept by it, with as few kinds as it takes; places
 * that are wrong are told; a session's blocks; failing allocations. The numbers are those of ops/test_random.c and
 * e2e/offload.sh. ctest: timeout 300 */
#include "fault.h"

#include <stdio.h>

#include "backend/backend.h"
#include "passes/pass.h"
#include "session/session.h"
#include "tests/support/ir_case.h"
#include "tests/support/transformer_graph.h"

typedef struct setup {
    sglcore_env env;
    sglplan plan;
    sglpass_context context;
} setup;

static void begin(setup *s, const char *offload)
{
    sglcore_env_init(&s->env, NULL, NULL, NULL, NULL);
    sglplan_init(&s->plan);
    const sglir_named field = SGLIR_S("offload", offload);
    assert_int_equal(sglplan_set(&s->env, &s->plan, &field), SGL_OK);
    s->plan.bucket = 1;
    s->context = (sglpass_context){ .env = &s->env, .plan = &s->plan };
}

static sglir_graph *parse(setup *s, const char *text)
{
    sglir_graph *g = NULL;
    if (sglir_parse(&s->env, "case", text, strlen(text), &g) != SGL_OK) fail_msg("%s", s->env.message);
    return g;
}

static sglir_graph *run(const setup *s, const sglir_graph *g)
{
    sglir_graph *out = NULL;
    if (sglpass_run(&s->context, g, NULL, &out) != SGL_OK) fail_msg("%s", s->env.message);
    if (sglir_verify(out, SGLIR_PLACED) != SGL_OK) fail_msg("%s", s->env.message);
    return out;
}

static int count(const sglir_graph *g, sglir_op op)
{
    int found = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) found += g->nodes.data[n].op == op;
    return found;
}

/* Of a state by itself, or of the section that it is a member of. */
static sglir_space space_of(const sglir_graph *g, const char *state)
{
    for (int64_t m = 0; m < g->members.count; m++)
        if (strcmp(sglcore_string(g->strings, g->members.data[m].name), state) == 0)
            state = sglcore_string(g->strings, g->members.data[m].section);
    return (sglir_space)sglir_value_at(g, sglir_input_find(g, state))->space;
}

/* A step of states of 64 KiB each, m and v, and of values of as many bytes, of which several live before the states are
 * used; p has 4 KiB. */
static const char step[] = "graph \"step\" {\n"
                           "  %0 = input() {role=0, name=\"p\", dtype=f32, dims=[1024]}\n"
                           "  %1 = input() {role=1, name=\"m\", dtype=f32, dims=[16384]}\n"
                           "  %2 = input() {role=1, name=\"v\", dtype=f32, dims=[16384]}\n"
                           "  %3 = input() {role=2, name=\"x\", dtype=f32, dims=[16384]}\n"
                           "  %4 = reshape(%3) {dims=[128,128]}\n"
                           "  %5 = dot(%4, %4) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %6 = dot(%5, %4) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %7 = dot(%6, %4) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %8 = dot(%7, %4) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %9 = dot(%5, %8) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %10 = dot(%6, %9) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %11 = dot(%7, %10) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                           "  %12 = reduce_sum(%11) {axes=[0,1]}\n"
                           "  %13 = add(%1, %3)\n"
                           "  %14 = broadcast(%12) {dims=[16384]}\n"
                           "  %15 = sub(%2, %14)\n"
                           "  %16 = broadcast(%12) {dims=[1024]}\n"
                           "  %17 = sub(%0, %16)\n"
                           "  update \"p\" %17\n"
                           "  update \"m\" %13\n"
                           "  update \"v\" %15\n"
                           "}\n";

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

static void test_words(void **state)
{
    (void)state;
    setup s;
    char text[SGLPLAN_OFFLOADS_ROOM];
    begin(&s, "activations,moments");
    assert_true(sglplan_offloads(&s.plan, SGLPLAN_OFFLOAD_MOMENTS));
    assert_false(sglplan_offloads(&s.plan, SGLPLAN_OFFLOAD_PARAMS));
    assert_string_equal(sglplan_offloads_text(s.plan.offload, text), "moments, activations");
    const sglcore_hash with = sglplan_hash(&s.plan);
    const sglir_named none = SGLIR_S("offload", ""), wrong = SGLIR_S("offload", "moments param"),
                      number = SGLIR_I("offload", 1);
    assert_int_equal(sglplan_set(&s.env, &s.plan, &wrong), SGL_INVALID_ARGUMENT);
    assert_string_equal(s.env.message,
                        "plan: offload: \"param\" is none of moments, params, activations; did you mean 'params'?");
    assert_int_equal(sglplan_set(&s.env, &s.plan, &number), SGL_INVALID_ARGUMENT);
    assert_string_equal(sglplan_offloads_text(s.plan.offload, text), "moments, activations");
    assert_int_equal(sglplan_set(&s.env, &s.plan, &none), SGL_OK);
    assert_string_equal(sglplan_offloads_text(s.plan.offload, text), "");
    assert_false(sglcore_hash_equal(with, sglplan_hash(&s.plan)));
    assert_int_equal(s.env.bytes_in_use, 0);
}

/* What a session has of an earlier program: m and v, in a space. */
static sglir_graph *layout_in(setup *s, const char *space)
{
    char text[512];
    snprintf(text, sizeof text,
             "graph \"layout\" {\n"
             "  %%0 = input() {role=1, name=\"m\", dtype=f32, dims=[16384]} : f32[16384] in %s+4096\n"
             "  %%1 = input() {role=1, name=\"v\", dtype=f32, dims=[16384]} : f32[16384] in %s+69632\n"
             "}\n",
             space, space);
    return parse(s, text);
}

/* ---- places --------------------------------------------------------------------------------------------------------- */

static void test_states_go_away(void **state)
{
    (void)state;
    setup s;
    begin(&s, "moments");
    sglir_graph *g = parse(&s, step), *away = run(&s, g);
    assert_int_equal(space_of(away, "m"), SGLIR_SPACE_AWAY);
    assert_int_equal(space_of(away, "v"), SGLIR_SPACE_AWAY);
    assert_int_equal(count(away, SGLIR_OP_PREFETCH), 2);
    assert_int_equal(count(away, SGLIR_OP_OFFLOAD), 2);
    assert_int_equal(count(away, SGLIR_OP_ARRIVED), 4);
    assert_int_equal(count(away, SGLIR_OP_COPY), 0); /* new values lie where the old ones did */
    assert_int_equal(away->space_bytes[SGLIR_SPACE_AWAY], 2 * 65536);

    /* A later program finds them there, whatever its plan says. */
    sglir_graph *there = layout_in(&s, "away"), *here = layout_in(&s, "state");
    s.context.layout = there;
    s.plan.offload = 0;
    sglir_graph *later = run(&s, g);
    assert_int_equal(space_of(later, "m"), SGLIR_SPACE_AWAY);
    assert_int_equal(sglir_value_at(later, sglir_input_find(later, "v"))->offset, 69632);
    assert_int_equal(count(later, SGLIR_OP_PREFETCH), 2);

    /* And what lies on the device stays there. */
    s.context.layout = here;
    s.plan.offload = 7;
    sglir_graph *stays = run(&s, g);
    assert_int_equal(space_of(stays, "m"), SGLIR_SPACE_STATE);
    assert_int_equal(space_of(stays, "p"), SGLIR_SPACE_AWAY); /* is new, and large enough beside what is asked for */
    sglir_graph *graphs[] = { g, away, there, here, later, stays };
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) sglir_graph_free(graphs[i]);
    assert_int_equal(s.env.bytes_in_use, 0);
}

static void refuse(const char *text, sglir_stage stage, const char *message)
{
    setup s;
    begin(&s, "");
    sglir_graph *g = parse(&s, text);
    assert_int_equal(sglir_verify(g, stage), SGL_TYPE);
    if (strstr(s.env.message, message) == NULL) fail_msg("'%s' is not in '%s'", message, s.env.message);
    sglir_graph_free(g);
    assert_int_equal(s.env.bytes_in_use, 0);
}

static void test_wrong_graphs(void **state)
{
    (void)state;
    refuse("graph \"a\" {\n"
           "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]} : f32[4] in io+0\n"
           "  %1 = offload(%0) : f32[4] in arena+0\n"
           "  fetch \"y\" %1\n"
           "  memory {arena=16, state=0, io=16, const=0, lower_bound=0}\n"
           "}\n",
           SGLIR_PLACED, "its place of the two that is the host's is not there");
    refuse("graph \"a\" {\n"
           "  %0 = input() {role=1, name=\"x\", dtype=f32, dims=[4]} : f32[4] in state+0\n"
           "  %1 = prefetch(%0) : f32[4] in io+0\n"
           "  fetch \"y\" %1\n"
           "  memory {arena=0, state=4096, io=16, const=0, lower_bound=0}\n"
           "}\n",
           SGLIR_PLACED, "its place of the two that is the host's is not there");
    refuse("graph \"a\" {\n"
           "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n"
           "  %1 = neg(%0)\n"
           "  %2 = arrived(%1, %0)\n"
           "  fetch \"y\" %2\n"
           "}\n",
           SGLIR_PER_RANK, "what it waits for is made by no move");
    refuse("graph \"a\" {\n"
           "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[4]}\n"
           "  %1 = offload(%0)\n"
           "  %2 = arrived(%1, %0)\n"
           "  fetch \"y\" %2\n"
           "  fetch \"z\" %1\n"
           "}\n",
           SGLIR_PER_RANK, "what the exchange makes is read by others too");
}

/* ---- a bound -------------------------------------------------------------------------------------------------------- */

static void test_bound(void **state)
{
    (void)state;
    setup s;
    begin(&s, "");
    sglir_graph *g = parse(&s, step), *all = run(&s, g);
    assert_int_equal(all->space_bytes[SGLIR_SPACE_AWAY], 0);
    s.plan.memory = sglpass_bytes(all) - 1;
    s.plan.bucket = 4 << 20;
    strcpy(s.plan.disable, "offload");
    sglir_graph *within = NULL;
    assert_int_equal(sglpass_run(&s.context, g, NULL, &within), SGL_LIMIT);
    assert_non_null(strstr(s.env.message, "plan.offload"));
    s.plan.disable[0] = '\0';
    sglir_graph *fits = run(&s, g);
    assert_true(sglpass_bytes(fits) <= s.plan.memory);
    assert_int_equal(space_of(fits, "m"), SGLIR_SPACE_AWAY); /* the first kind is enough */
    assert_int_equal(space_of(fits, "p"), SGLIR_SPACE_STATE);
    s.plan.memory = 1000;
    assert_int_equal(sglpass_run(&s.context, g, NULL, &within), SGL_LIMIT);
    assert_non_null(strstr(s.env.message, "with all in memory of the host that can be there (plan.offload)"));
    sglir_graph_free(g);
    sglir_graph_free(all);
    sglir_graph_free(fits);
    assert_int_equal(s.env.bytes_in_use, 0);
}

/* ---- sessions ------------------------------------------------------------------------------------------------------- */

static int taken, given; /* blocks of the host's memory */

static sgl_status take_host(sglexec_device *device, int64_t bytes, void **block)
{
    taken++;
    return sglexec_device_cpu.alloc(device, bytes, block);
}

static void give_host(sglexec_device *device, void *block, int64_t bytes)
{
    given++;
    sglexec_device_cpu.free(device, block, bytes);
}

/* One session of the step under the plan: states written, stepped twice, read. */
static sgl_status whole_session(sglcore_env *env, void *user)
{
    static float ones[16384], x[16384];
    float *m = user;
    sglir_graph *ir = NULL;
    sgl_vm *vm = NULL;
    sgl_session *session = NULL;
    sgl_graph *graph = NULL;
    sgl_plan *plan = NULL;
    sgl_program *program = NULL;
    const sgl_attr moments = { .name = "offload", .kind = SGL_ATTR_STRING, .s = "moments" };
    for (int i = 0; i < 16384; i++) {
        ones[i] = 1;
        x[i] = (float)i;
    }
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user, .threads = 1 };
    sgl_status status = sgl_open(&config, &vm);
    if (status == SGL_OK) status = sglir_parse(&vm->env, "step", step, strlen(step), &ir);
    if (status == SGL_OK) status = sglsession_graph_take(vm, ir, &graph);
    if (status == SGL_OK) status = sgl_plan_new(vm, &plan);
    if (status == SGL_OK) status = sgl_plan_set(plan, &moments);
    if (status == SGL_OK) status = sgl_session_new(vm, "cpu", &session);
    sglexec_device_ops ops = sglexec_device_cpu;
    ops.alloc_host = take_host;
    ops.free_host = give_host;
    if (status == SGL_OK) session->ops = &ops;
    if (status == SGL_OK) status = sgl_freeze(session, graph, plan, &program);
    if (status == SGL_OK) status = sgl_state_write(session, "m", ones, sizeof ones);
    for (int i = 0; i < 2 && status == SGL_OK; i++) {
        status = sgl_feed(program, "x", x, sizeof x);
        if (status == SGL_OK) status = sgl_step(program);
    }
    if (status == SGL_OK) status = sgl_state_read(session, "m", m, sizeof x);
    sgl_session_free(session);
    sgl_close(vm);
    return status;
}

static void test_session(void **state)
{
    (void)state;
    static float m[16384];
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    taken = given = 0;
    assert_int_equal(whole_session(&env, m), SGL_OK);
    for (int i = 0; i < 16384; i++) assert_true(m[i] == 1 + 2 * (float)i);
    assert_int_equal(taken, 1); /* states; nothing of a step goes there */
    assert_int_equal(given, taken);
}

/* ---- failing allocations -------------------------------------------------------------------------------------------- */

static sgl_status plan_all(sglcore_env *env, void *text)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.offload = 7;
    plan.bucket = 1;
    const sglpass_context context = { .env = env, .plan = &plan, .give_back = INT64_MAX };
    sglir_graph *g = NULL, *made = NULL;
    SGLCORE_TRY(sglir_parse(env, "small", text, strlen(text), &g));
    sgl_status status = sglpass_run(&context, g, NULL, &made);
    sglir_graph_free(made);
    sglir_graph_free(g);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    char text[sizeof step];
    memcpy(text, step, sizeof step);
    assert_true(fault_each_allocation(plan_all, text) > 100);
    static float m[16384];
    assert_true(fault_each_allocation(whole_session, m) > 100);
}

/* Activations of a model with a forward and a backward, all of them. */
static void test_activations(void **state)
{
    (void)state;
    setup s;
    begin(&s, "activations");
    const transformer_sizes sizes = {
        .layers = 2, .batch = 4, .seq = 8, .dim = 16, .heads = 2, .ffn = 48, .vocab = 11, .dropout = 0.25
    };
    sglir_graph *g = NULL;
    ir_message message;
    assert_int_equal(transformer_graph(&s.env, &sizes, &g), SGL_OK);
    s.plan.offload = 0;
    sglir_graph *kept = run(&s, g);
    s.plan.offload = 1u << SGLPLAN_OFFLOAD_ACTIVATIONS;
    s.context.give_back = INT64_MAX;
    sglir_graph *away = run(&s, g);
    assert_true(away->space_bytes[SGLIR_SPACE_HOST] > 0);
    assert_true(away->space_bytes[SGLIR_SPACE_ARENA] < kept->space_bytes[SGLIR_SPACE_ARENA]);
    assert_int_equal(count(away, SGLIR_OP_PREFETCH), count(away, SGLIR_OP_OFFLOAD));
    if (!ir_case_same_meaning(kept, away, 5, (ir_tolerance){ 0, 0 }, &message)) fail_msg("%s", message.text);
    sglir_graph_free(g);
    sglir_graph_free(kept);
    sglir_graph_free(away);
    assert_int_equal(s.env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_states_go_away),
        cmocka_unit_test(test_wrong_graphs),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
