/* test_session_stages.c -- a state lives on the stage that the first program of a session gave it: later programs find it there,
 * those without modules too, and what would have it elsewhere is refused.
 *
 * In: three graphs over the same parameters, frozen for one rank of a pipeline that has not joined a world. */
#include "fault.h"

#include <stdio.h>
#include <string.h>

#include "ir/text.h"
#include "session/session.h"

/* Two modules, of which the second has a number of its own. */
static const char train[] = "graph \"train\" {\n"
                            "  %0 = input() {role=0, name=\"blocks.0.w\", dtype=f32, dims=[4,4]} : f32[4,4]\n"
                            "  %1 = input() {role=0, name=\"blocks.1.w\", dtype=f32, dims=[4,4]} : f32[4,4]\n"
                            "  %2 = input() {role=0, name=\"blocks.1.scale\", dtype=f32, dims=[]} : f32[]\n"
                            "  %3 = input() {role=2, name=\"x\", dtype=f32, dims=[8,4]} : f32[8,4]\n"
                            "  %4 = linear(%3, %0) : f32[8,4] @\"m.lua\":1 scope \"blocks.0\"\n"
                            "  %5 = linear(%4, %1) : f32[8,4] @\"m.lua\":2 scope \"blocks.1\"\n"
                            "  %6 = broadcast(%2) {dims=[8,4]} : f32[8,4] @\"m.lua\":2 scope \"blocks.1\"\n"
                            "  %7 = mul(%5, %6) : f32[8,4] @\"m.lua\":2 scope \"blocks.1\"\n"
                            "  %8 = reduce_sum(%7) {axes=[0,1]} : f32[] @\"m.lua\":3\n"
                            "  fetch \"loss\" %8\n"
                            "}\n";

/* No module: every parameter new. */
static const char init[] = "graph \"init\" {\n"
                           "  %0 = input() {role=0, name=\"blocks.0.w\", dtype=f32, dims=[4,4]} : f32[4,4]\n"
                           "  %1 = input() {role=0, name=\"blocks.1.w\", dtype=f32, dims=[4,4]} : f32[4,4]\n"
                           "  %2 = input() {role=0, name=\"blocks.1.scale\", dtype=f32, dims=[]} : f32[]\n"
                           "  %3 = constant() {value=1, dtype=f32} : f32[]\n"
                           "  %4 = broadcast(%3) {dims=[4,4]} : f32[4,4]\n"
                           "  update \"blocks.0.w\" %4\n"
                           "  update \"blocks.1.w\" %4\n"
                           "  update \"blocks.1.scale\" %3\n"
                           "}\n";

/* The number alone: of a plan without stages every rank would read it. */
static const char look[] = "graph \"look\" {\n"
                           "  %0 = input() {role=0, name=\"blocks.1.scale\", dtype=f32, dims=[]} : f32[]\n"
                           "  %1 = neg(%0) : f32[]\n"
                           "  fetch \"y\" %1\n"
                           "}\n";

typedef struct staged {
    sgl_vm *vm;
    sgl_session *session;
} staged;

static sgl_status freeze(staged *s, const char *text, const char *schedule, sgl_program **program)
{
    const sgl_attr fields[] = { { .name = "mesh.pp", .kind = SGL_ATTR_INT, .i = 2 },
                                { .name = "schedule", .kind = SGL_ATTR_STRING, .s = schedule } };
    sglir_graph *ir;
    sgl_graph *graph;
    sgl_plan *plan;
    SGLCORE_TRY(sgl_plan_new(s->vm, &plan));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) SGLCORE_TRY(sgl_plan_set(plan, &fields[i]));
    SGLCORE_TRY(sglir_parse(&s->vm->env, "graph", text, strlen(text), &ir));
    SGLCORE_TRY(sglsession_graph_take(s->vm, ir, &graph));
    return sgl_freeze(s->session, graph, plan, program);
}

static sgl_status open_at(staged *s, const sgl_config *config, int rank)
{
    SGLCORE_TRY(sgl_open(config, &s->vm));
    SGLCORE_TRY(sgl_session_new(s->vm, "cpu", &s->session));
    s->session->world.rank = rank;
    return SGL_OK;
}

static void check_state(const staged *s, const char *name, int64_t stage, int64_t bytes)
{
    sglsession_state state;
    assert_true(sglsession_state_find(s->session, name, &state));
    assert_non_null(state.split);
    assert_int_equal(state.split->stage, stage);
    assert_int_equal(state.bytes, bytes);
    assert_int_equal(sglsession_whole_bytes(&state), strstr(name, "scale") ? 4 : 64);
}

static void check_refused(const staged *s, sgl_status status, const char *part)
{
    assert_int_equal(status, SGL_TYPE);
    if (!strstr(sgl_error_message(s->vm), part)) fail_msg("'%s' is not in '%s'", part, sgl_error_message(s->vm));
}

static void test_homes(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        staged s;
        sgl_program *program;
        assert_int_equal(open_at(&s, NULL, rank), SGL_OK);
        assert_int_equal(freeze(&s, train, "1f1b", &program), SGL_OK);
        for (int turn = 0; turn < 2; turn++) {
            check_state(&s, "blocks.0.w", 0, rank == 0 ? 64 : 0);
            check_state(&s, "blocks.1.w", 1, rank == 1 ? 64 : 0);
            check_state(&s, "blocks.1.scale", 1, 4);
            if (turn == 0) assert_int_equal(freeze(&s, init, "gpipe", &program), SGL_OK);
        }
        const char *name;
        sgl_type type;
        assert_int_equal(sgl_program_feed(program, 0, &name, &type), SGL_OK); /* the init has none */
        assert_null(name);
        check_refused(&s, freeze(&s, train, "none", &program),
                      "blocks.0.w: the plan of program \"train\" has it whole");
        check_refused(&s, freeze(&s, look, "none", &program), "this session has it on stage 1 of 2");
        assert_int_equal(freeze(&s, look, "1f1b", &program), SGL_OK);
        sgl_close(s.vm);
    }
}

/* Every stage takes the same feeds, whole; what it has no use for is not kept. */
static void test_feeds(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        staged s;
        sgl_program *program;
        const char *name;
        sgl_type type;
        int64_t offsets[SGL_MAX_RANK], dims[SGL_MAX_RANK];
        assert_int_equal(open_at(&s, NULL, rank), SGL_OK);
        assert_int_equal(freeze(&s, train, "1f1b", &program), SGL_OK);
        assert_int_equal(sgl_program_feed(program, 0, &name, &type), SGL_OK);
        assert_string_equal(name, "x");
        assert_int_equal(type.dims[0], 8);
        assert_int_equal(sgl_program_feed_part(program, 0, offsets, dims), SGL_OK);
        assert_int_equal(dims[0], rank == 0 ? 8 : 0);
        sgl_close(s.vm);
    }
}

/* What has no modules, frozen first, has every state on every stage. */
static void test_init_first(void **state)
{
    (void)state;
    staged s;
    sgl_program *program;
    assert_int_equal(open_at(&s, NULL, 0), SGL_OK);
    assert_int_equal(freeze(&s, init, "1f1b", &program), SGL_OK);
    check_refused(&s, freeze(&s, train, "1f1b", &program), "freeze the program that trains first");
    sgl_close(s.vm);
}

static sgl_status freeze_both(sglcore_env *env, void *context)
{
    (void)context;
    staged s = { 0 };
    sgl_program *program;
    const sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user };
    sgl_status status = open_at(&s, &config, 1);
    if (status == SGL_OK) status = freeze(&s, train, "1f1b", &program);
    if (status == SGL_OK) status = freeze(&s, init, "1f1b", &program);
    sgl_close(s.vm);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(freeze_both, NULL) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_homes),
        cmocka_unit_test(test_feeds),
        cmocka_unit_test(test_init_first),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("session_stages", tests, NULL, NULL);
}
