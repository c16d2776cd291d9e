/* test_foresee.c -- a step of all ranks on paper: few programs are planned, and times and verdict are those of planning each rank
 * by itself; a program that the session has frozen is taken as it is; failing allocations. ctest: timeout 600
 *
 * In: a small transformer over meshes that cut it evenly or not. Out: figures of sgl_foresee, held against sgltune_simulate. */
#include "fault.h"

#include <stdio.h>

#include "session/session.h"
#include "tests/support/transformer_graph.h"
#include "tune/list.h"

enum { MOST = 12 };

typedef struct mesh_case {
    const char *name;
    int64_t dp, fsdp, tp;
    const char *layouts;
    int64_t programs; /* at most */
    bool differ;      /* some of their graphs do */
    int64_t pp;       /* stages of a pipeline; 0: none */
} mesh_case;

static const mesh_case cases[] = {
    { "dp=1", 1, 1, 1, "", 1, false, 0 },
    { "dp=2", 2, 1, 1, "", 2, false, 0 },
    { "dp=6", 6, 1, 1, "", 2, false, 0 },
    { "dp=8 of 12 rows", 8, 1, 1, "", 4, true, 0 },
    { "dp=3,tp=2", 3, 1, 2, TRANSFORMER_TENSOR, 6, true, 0 }, /* 11 words on 2 ranks */
    { "dp=4,tp=3", 4, 1, 3, TRANSFORMER_TENSOR, 12, true, 0 },
    { "fsdp=5 and all parts of 4", 1, 5, 1, "* fsdp:0", 5, true, 0 },
    { "pp=2,dp=3", 3, 1, 1, "", 4, true, 2 },
    { "pp=2,dp=2,tp=2", 2, 1, 2, TRANSFORMER_TENSOR, 8, true, 2 },
};

static sgl_graph *make_graph(sgl_vm *vm)
{
    const transformer_sizes sizes = {
        .layers = 2, .batch = 12, .seq = 2, .dim = 8, .heads = 4, .ffn = 12, .vocab = 11, .dtype = SGL_F32
    };
    sglir_graph *ir;
    sgl_graph *graph;
    assert_int_equal(transformer_graph(&vm->env, &sizes, &ir), SGL_OK);
    assert_int_equal(sglsession_graph_take(vm, ir, &graph), SGL_OK);
    return graph;
}

static sgl_status make_plan(sgl_vm *vm, const mesh_case *c, sgl_plan **plan)
{
    const sgl_attr fields[] = { { .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = c->dp },
                                { .name = "mesh.fsdp", .kind = SGL_ATTR_INT, .i = c->fsdp },
                                { .name = "mesh.tp", .kind = SGL_ATTR_INT, .i = c->tp },
                                { .name = "layouts", .kind = SGL_ATTR_STRING, .s = c->layouts },
                                { .name = "mesh.pp", .kind = SGL_ATTR_INT, .i = c->pp },
                                { .name = "micro", .kind = SGL_ATTR_INT, .i = 2 },
                                { .name = "schedule", .kind = SGL_ATTR_STRING, .s = "1f1b" } };
    const size_t count = sizeof fields / sizeof fields[0] - (c->pp ? 0 : 3);
    SGLCORE_TRY(sgl_plan_new(vm, plan));
    for (size_t i = 0; i < count; i++) SGLCORE_TRY(sgl_plan_set(*plan, &fields[i]));
    return SGL_OK;
}

/* Each rank's own program, and its graph. */
static void list_each(sgl_session *session, const sglir_graph *ir, const sglplan *plan, int64_t rank,
                      const sgltune_rates *rates, sgltune_list *list, sglcore_hash *hash)
{
    sglcore_env *env = &session->vm->env;
    const sglpass_context context = { .env = env,
                                      .plan = plan,
                                      .rank = rank,
                                      .workspace = session->ops->workspace,
                                      .computing = session->ops->computing };
    sglir_graph *placed;
    sglexec_program *program;
    if (sglpass_run(&context, ir, NULL, &placed) != SGL_OK) fail_msg("rank %d: %s", (int)rank, env->message);
    assert_int_equal(sglexec_freeze(env, placed, &program), SGL_OK);
    assert_int_equal(sgltune_list_of(env, program, plan, rank, rates, list), SGL_OK);
    *hash = sglir_math_hash(placed);
    sglexec_program_free(program);
    sglir_graph_free(placed);
}

static sgl_foresight each_by_itself(sgl_session *session, const sglir_graph *ir, const sglplan *plan, int64_t ranks,
                                    const sgl_machine *m, bool *differ)
{
    const sgltune_rates rates = { m->flops_per_s, m->bytes_per_s, m->link_latency_s, m->link_bytes_per_s };
    sgl_foresight all = { .ranks = ranks };
    sgltune_list lists[MOST] = { 0 };
    const sgltune_list *each[MOST];
    sgltune_times times[MOST];
    sglcore_hash hashes[MOST];
    *differ = false;
    for (int64_t r = 0; r < ranks; r++) {
        list_each(session, ir, plan, r, &rates, &lists[r], &hashes[r]);
        each[r] = &lists[r];
        *differ = *differ || !sglcore_hash_equal(hashes[r], hashes[0]);
    }
    assert_int_equal(sgltune_simulate(&session->vm->env, plan, ranks, each, times), SGL_OK);
    for (int64_t r = 0; r < ranks; r++) {
        if (times[r].step > all.step_s) all.step_s = times[r].step;
        if (times[r].exposed > all.exposed_s) all.exposed_s = times[r].exposed;
        sgltune_list_free(&session->vm->env, &lists[r]);
    }
    return all;
}

static void test_as_each_by_itself(void **state)
{
    (void)state;
    const sgl_machine machine = {
        .flops_per_s = 1e6, .bytes_per_s = 1e6, .link_latency_s = 1e-3, .link_bytes_per_s = 1e5
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mesh_case *c = &cases[i];
        sgl_vm *vm;
        sgl_session *session;
        sgl_plan *plan;
        sgl_foresight f = { 0 };
        bool differ;
        assert_int_equal(sgl_open(NULL, &vm), SGL_OK);
        assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
        assert_int_equal(make_plan(vm, c, &plan), SGL_OK);
        sgl_graph *graph = make_graph(vm);
        if (sgl_foresee(session, graph, plan, &machine, &f) != SGL_OK)
            fail_msg("%s: %s", c->name, sgl_error_message(vm));
        const sglplan full = sglsession_plan(session, plan);
        const sgl_foresight wanted =
            each_by_itself(session, graph->ir, &full, c->dp * c->fsdp * c->tp * (c->pp ? c->pp : 1), &machine, &differ);
        assert_int_equal(f.ranks, wanted.ranks);
        if (f.programs > c->programs) fail_msg("%s: %d programs", c->name, (int)f.programs);
        if (f.step_s != wanted.step_s || f.exposed_s != wanted.exposed_s)
            fail_msg("%s: %g and %g, not %g and %g", c->name, f.step_s, f.exposed_s, wanted.step_s, wanted.exposed_s);
        assert_true(wanted.step_s > 0);
        assert_int_equal(differ, c->differ);
        sgl_close(vm);
    }
}

/* What the session has frozen needs no pass: an interrupt, which stops any, does not stop it. */
static void test_frozen_is_taken(void **state)
{
    (void)state;
    sgl_vm *vm;
    sgl_session *session;
    sgl_plan *plan;
    sgl_program *programs[2];
    sgl_foresight f;
    assert_int_equal(sgl_open(NULL, &vm), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    assert_int_equal(make_plan(vm, &cases[1], &plan), SGL_OK);
    sgl_graph *graph = make_graph(vm);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(sgl_session_plan_rank(session, rank), SGL_OK);
        assert_int_equal(sgl_freeze(session, graph, plan, &programs[rank]), SGL_OK);
    }
    atomic_store(&vm->interrupted, 1); /* stops the passes */
    assert_int_equal(sgl_foresee(session, graph, plan, NULL, &f), SGL_OK);
    assert_int_equal(f.programs, 2);
    sgl_program_free(programs[1]);
    assert_int_equal(sgl_foresee(session, graph, plan, NULL, &f), SGL_INTERRUPTED);
    atomic_store(&vm->interrupted, 1);
    assert_int_equal(sgl_plan_set(plan, &(sgl_attr){ .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = 3 }), SGL_OK);
    assert_int_equal(sgl_foresee(session, graph, plan, NULL, &f), SGL_INTERRUPTED); /* of another plan, no longer */
    sgl_close(vm);
}

static sgl_status body(sglcore_env *env, void *context)
{
    (void)context;
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user };
    sgl_vm *vm;
    sgl_session *session;
    sgl_plan *plan;
    sgl_foresight f;
    SGLCORE_TRY(sgl_open(&config, &vm));
    sgl_status status = sgl_session_new(vm, "null", &session);
    if (status == SGL_OK) status = make_plan(vm, &cases[1], &plan);
    sglir_graph *ir;
    sgl_graph *graph;
    static const char text[] = "graph \"rows\" {\n"
                               "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[3,2]}\n"
                               "  %1 = reduce_sum(%0) {axes=[0,1]}\n  fetch \"sum\" %1\n}\n";
    if (status == SGL_OK) status = sglir_parse(&vm->env, "rows", text, strlen(text), &ir);
    if (status == SGL_OK) status = sglsession_graph_take(vm, ir, &graph);
    if (status == SGL_OK) status = sgl_foresee(session, graph, plan, NULL, &f);
    sgl_close(vm);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    fault_each_allocation(body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_each_by_itself),
        cmocka_unit_test(test_frozen_is_taken),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("foresee", tests, NULL, NULL);
}
