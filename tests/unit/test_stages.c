/* test_stages.c -- stages of a pipeline: whatever the stages, micro-batches and schedule, the numbers are those of one rank; every
 * state is kept by one stage; a send waits for its receive, and still all ranks come through; schedules idle as their formulas
 * say. All ranks run under the plain interpreter, each in a thread. ctest: timeout 600 */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>

#include "passes/stages.h"
#include "plan/mesh.h"
#include "tests/support/transformer_graph.h"
#include "tests/support/world_check.h"

typedef struct pipe_case {
    const char *name;
    int64_t pp, dp, tp, micro;
    sglplan_schedule schedule;
    const char *layouts; /* NULL: none */
} pipe_case;

#define TENSOR                                                                                                         \
    "blocks.*.wq tp:0, blocks.*.wk tp:0, blocks.*.wv tp:0, blocks.*.wo tp:1, blocks.*.w1 tp:0, blocks.*.w3 tp:0, "     \
    "blocks.*.w2 tp:1, embed tp:0"

static const pipe_case plans[] = {
    { "pp=2, no loop", 2, 1, 1, 1, SGLPLAN_GPIPE, NULL },
    { "pp=2, gpipe", 2, 1, 1, 2, SGLPLAN_GPIPE, NULL },
    { "pp=2, 1f1b", 2, 1, 1, 4, SGLPLAN_1F1B, NULL },
    { "pp=3, gpipe", 3, 1, 1, 4, SGLPLAN_GPIPE, NULL },
    { "pp=3, 1f1b", 3, 1, 1, 6, SGLPLAN_1F1B, NULL },
    { "pp=4, 1f1b, fewer micro-batches than stages", 4, 1, 1, 3, SGLPLAN_1F1B, NULL },
    { "pp=4, 1f1b", 4, 1, 1, 6, SGLPLAN_1F1B, NULL },
    { "pp=2,dp=2, 1f1b", 2, 2, 1, 3, SGLPLAN_1F1B, NULL },
    { "pp=2,dp=2, gpipe, no loop", 2, 2, 1, 1, SGLPLAN_GPIPE, NULL },
    { "pp=2,tp=2, 1f1b", 2, 1, 2, 3, SGLPLAN_1F1B, TENSOR },
    { "pp=2,dp=2,tp=2, gpipe", 2, 2, 2, 2, SGLPLAN_GPIPE, TENSOR },
};

static sglplan plan_of(const pipe_case *c)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_PP] = c->pp;
    plan.mesh[SGLIR_AXIS_DP] = c->dp;
    plan.mesh[SGLIR_AXIS_TP] = c->tp;
    plan.mesh[SGLIR_AXIS_MICRO] = c->micro;
    plan.schedule = (uint8_t)c->schedule;
    if (c->layouts) snprintf(plan.layouts, sizeof plan.layouts, "%s", c->layouts);
    return plan;
}

static void print_graph(sglcore_env *env, const sglir_graph *g)
{
    sglcore_text text = ir_case_print(env, g);
    fprintf(stderr, "%s\n", text.data); /* longer than cmocka prints */
    sglcore_text_free(env, &text);
}

static sglir_graph *staged(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t rank, const char *until)
{
    ir_message message;
    sglir_graph *made = world_check_rank(env, g, plan, rank, until, &message);
    if (!made) fail_msg("%s", message.text);
    return made;
}

static int count_op(const sglir_graph *g, sglir_op op)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) count += g->nodes.data[n].op == op;
    return count;
}

static bool updates(const sglir_graph *g, const char *name)
{
    for (int64_t o = 0; o < g->outputs.count; o++) {
        const sglir_output *output = &g->outputs.data[o];
        if (output->role == SGLIR_UPDATE && strcmp(sglcore_string(g->strings, output->name), name) == 0) return true;
    }
    return false;
}

/* Every stage has every state by name, one of them its elements and its update. */
static void check_states(const sglir_graph *g, sglir_graph *const *graphs, const sglplan *plan)
{
    int64_t apart = sglplan_group_size(plan, ~(sglplan_axes)0) / plan->mesh[SGLIR_AXIS_PP];
    for (int64_t i = 0; i < g->outputs.count; i++) {
        int held = 0, updated = 0;
        const sglir_output *output = &g->outputs.data[i];
        const char *name = sglcore_string(g->strings, output->name);
        if (output->role != SGLIR_UPDATE) continue;
        for (int64_t stage = 0; stage < plan->mesh[SGLIR_AXIS_PP]; stage++) {
            const sglir_graph *of = graphs[stage * apart];
            sglir_id input = sglir_input_find(of, name);
            if (input == SGLIR_NONE) fail_msg("stage %d does not know %s", (int)stage, name);
            int64_t home = sglir_home_of(of, sglir_value_at(of, input)->node);
            bool whole = sglir_elements(sglir_type_of(of, input)) > 0;
            if (home < 0 || home >= plan->mesh[SGLIR_AXIS_PP]) fail_msg("%s has no home", name);
            if (whole != (home == stage)) fail_msg("stage %d, %s lives on %d", (int)stage, name, (int)home);
            held += whole;
            updated += updates(of, name);
        }
        if (held != 1 || updated != 1) fail_msg("%s is held by %d stages, and updated by %d", name, held, updated);
    }
}

static void check_plan(sglcore_env *env, const sglir_graph *g, const pipe_case *c, const interp *whole)
{
    const sglplan plan = plan_of(c);
    world_check check = { .env = env,
                          .g = g,
                          .whole = whole,
                          .plan = &plan,
                          .until = "stages",
                          .tolerance = (ir_tolerance){ 1e-10, 1e-12 } };
    ir_message message;
    const bool good = world_check_run(&check, &message);
    if (!good && check.graphs[0]) print_graph(env, check.graphs[0]);
    if (!good) fail_msg("%s: %s", c->name, message.text);
    check_states(g, check.graphs, &plan);
    for (int64_t r = 0; r < sglplan_group_size(&plan, ~(sglplan_axes)0); r++) {
        assert_true(count_op(check.graphs[r], SGLIR_OP_SEND) > 0);
        assert_true(count_op(check.graphs[r], SGLIR_OP_RECEIVE) > 0);
    }
    world_check_free(&check);
}

static void check_transformer(const transformer_sizes *sizes, const pipe_case *cases, size_t count)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    interp whole = { 0 };
    ir_message message;
    assert_int_equal(transformer_graph(&env, sizes, &g), SGL_OK);
    if (!world_check_alone(&env, g, 7, &whole, &message)) fail_msg("%s", message.text);
    for (size_t i = 0; i < count; i++) check_plan(&env, g, &cases[i], &whole);
    interp_free(&whole);
    sglir_graph_free(g);
}

/* Dropout, a tied head, clipping by the norm over all stages, tokens that do not count. */
static void test_transformer(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 4, .batch = 12, .seq = 4, .dim = 8, .heads = 2, .ffn = 12, .vocab = 11, .dropout = 0.25
    };
    check_transformer(&sizes, plans, sizeof plans / sizeof plans[0]);
}

/* Five layers are no multiple of two, three or four stages. */
static void test_uneven_stages(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 5, .batch = 6, .seq = 3, .dim = 8, .heads = 2, .ffn = 8, .vocab = 7, .dropout = 0
    };
    static const pipe_case cases[] = { { "pp=2 of 5 layers", 2, 1, 1, 3, SGLPLAN_1F1B, NULL },
                                       { "pp=3 of 5 layers", 3, 1, 1, 2, SGLPLAN_GPIPE, NULL },
                                       { "pp=5 of 5 layers", 5, 1, 1, 6, SGLPLAN_1F1B, NULL } };
    check_transformer(&sizes, cases, sizeof cases / sizeof cases[0]);
}

static int wide(const sglir_graph *g, sglir_op op)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        sglir_id value = op == SGLIR_OP_SEND && node->op == op ? sglir_arg(g, node, 0) : node->out_first;
        count += node->op == op && sglir_type_of(g, value)->rank > 0;
    }
    return count;
}

/* But for numbers: one activation and its gradient per micro-batch between neighbours; between the first and the last stage the
 * tied table and its gradient, once. */
static void test_what_crosses(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 6, .batch = 8, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5 };
    const pipe_case c = { "pp=3", 3, 1, 1, 4, SGLPLAN_1F1B, NULL };
    sglplan plan = plan_of(&c);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (int rank = 0; rank < 3; rank++) {
        sglir_graph *made = staged(&env, g, &plan, rank, "stages");
        const int neighbours = rank == 1 ? 2 : 1, tied = rank == 1 ? 0 : 1;
        assert_int_equal(wide(made, SGLIR_OP_SEND), neighbours * 4 + tied);
        assert_int_equal(wide(made, SGLIR_OP_RECEIVE), neighbours * 4 + tied);
        sglir_graph_free(made);
    }
    sglir_graph_free(g);
}

/* ---- refused ------------------------------------------------------------------------------------------------------------- */

static void test_more_stages_than_modules(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 2, .batch = 4, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5 };
    const pipe_case c = { "pp=3 of 2 layers", 3, 1, 1, 2, SGLPLAN_1F1B, NULL };
    sglplan plan = plan_of(&c);
    sglir_graph *g, *made = NULL;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_run(&context, g, "stages", &made), SGL_INVALID_ARGUMENT);
    assert_null(made);
    assert_non_null(strstr(env.message, "pp = 3 stages"));
    assert_non_null(strstr(env.message, "has 2 modules"));
    sglir_graph_free(g);
}

/* ---- on paper -------------------------------------------------------------------------------------------------------------- */

typedef struct paper {
    double span;
    int in_flight
        [SGLPASS_STAGES_MOST]; /* most micro-batches whose forward has begun and whose backward has not ended */
} paper;

static paper simulate(sglplan_schedule schedule, int stages, int64_t micro)
{
    int64_t all = 2 * stages * micro;
    sglpass_stages_turn *turns = calloc((size_t)all, sizeof *turns);
    double *ends = calloc((size_t)all, sizeof *ends);
    paper p = { 0 };
    int now[SGLPASS_STAGES_MOST] = { 0 };
    assert_non_null(turns);
    assert_non_null(ends);
    sglpass_stages_order(schedule, stages, micro, turns, ends);
    for (int64_t i = 0; i < all; i++) {
        const sglpass_stages_turn *t = &turns[i];
        if (t->end > p.span) p.span = t->end;
        now[t->stage] += t->backward ? -1 : 1;
        if (now[t->stage] > p.in_flight[t->stage]) p.in_flight[t->stage] = now[t->stage];
        for (int64_t k = 0; k < i; k++) { /* a turn once, and after what it needs */
            assert_false(turns[k].stage == t->stage && turns[k].micro == t->micro && turns[k].backward == t->backward);
            assert_true(turns[k].begin <= t->begin);
            if (turns[k].micro != t->micro || turns[k].backward != t->backward) continue;
            int before = t->backward ? t->stage + 1 : t->stage - 1;
            if (turns[k].stage == before) assert_true(turns[k].end <= t->begin);
        }
    }
    free(turns);
    free(ends);
    return p;
}

/* The share of idle time is (p - 1) / m of the time of work; 1F1B keeps p - s micro-batches on stage s, GPipe all of them. */
static void test_bubble(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 8; stages++) {
        for (int64_t micro = 1; micro <= 16; micro++) {
            paper gpipe = simulate(SGLPLAN_GPIPE, stages, micro), f1b1 = simulate(SGLPLAN_1F1B, stages, micro);
            double work = 3.0 * (double)micro, bubble = 3.0 * (stages - 1);
            assert_float_equal(gpipe.span - work, bubble, 1e-9);
            assert_float_equal(f1b1.span - work, bubble, 1e-9);
            for (int s = 0; s < stages; s++) {
                assert_int_equal(gpipe.in_flight[s], micro);
                assert_int_equal(f1b1.in_flight[s], stages - s < micro ? stages - s : micro);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),  cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_what_crosses), cmocka_unit_test(test_more_stages_than_modules),
        cmocka_unit_test(test_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
