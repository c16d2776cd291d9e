/* test_stages.c -- stages of a pipeline: whatever the stages, micro-batches and schedule, the numbers are those of one
 * rank; every state is kept by one stage; a send waits for its receive, and still all ranks come through. All ranks run
 * under the plain interpreter, each in a thread. ctest: timeout 600 */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>

#include "passes/stages.h"
#include "plan/mesh.h"
#include "tests/support/transformer_whole.h"

typedef struct pipe_case {
    const char *name;
    int64_t pp, dp, tp, micro;
    sglplan_schedule schedule;
    const char *layouts; /* NULL: none */
    int64_t chunks;      /* 0: as the schedule has them */
    const char *cut;     /* NULL: balanced */
} pipe_case;

static const pipe_case plans[] = {
    { "pp=2, no loop", 2, 1, 1, 1, SGLPLAN_GPIPE, NULL, 0, NULL },
    { "pp=2, gpipe", 2, 1, 1, 2, SGLPLAN_GPIPE, NULL, 0, NULL },
    { "pp=2, 1f1b", 2, 1, 1, 4, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=3, gpipe", 3, 1, 1, 4, SGLPLAN_GPIPE, NULL, 0, NULL },
    { "pp=3, 1f1b", 3, 1, 1, 6, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=4, 1f1b, fewer micro-batches than stages", 4, 1, 1, 3, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=4, 1f1b", 4, 1, 1, 6, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=2,dp=2, 1f1b", 2, 2, 1, 3, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=2,dp=2, gpipe, no loop", 2, 2, 1, 1, SGLPLAN_GPIPE, NULL, 0, NULL },
    { "pp=2,tp=2, 1f1b", 2, 1, 2, 3, SGLPLAN_1F1B, TRANSFORMER_TENSOR, 0, NULL },
    { "pp=2,dp=2,tp=2, gpipe", 2, 2, 2, 2, SGLPLAN_GPIPE, TRANSFORMER_TENSOR, 0, NULL },
    { "pp=2, interleaved, no loop", 2, 1, 1, 1, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    { "pp=2, interleaved", 2, 1, 1, 4, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    { "pp=2, interleaved, odd", 2, 1, 1, 3, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    { "pp=2,dp=2, interleaved", 2, 2, 1, 3, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    { "pp=2,tp=2, interleaved", 2, 1, 2, 2, SGLPLAN_INTERLEAVED, TRANSFORMER_TENSOR, 0, NULL },
    { "pp=2, zero-bubble, no loop", 2, 1, 1, 1, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=2, zero-bubble", 2, 1, 1, 4, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=3, zero-bubble, odd", 3, 1, 1, 3, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=4, zero-bubble", 4, 1, 1, 6, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=4, zero-bubble, fewer micro-batches than stages", 4, 1, 1, 2, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=2,dp=2, zero-bubble", 2, 2, 1, 3, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=2,tp=2, zero-bubble", 2, 1, 2, 3, SGLPLAN_ZERO_BUBBLE, TRANSFORMER_TENSOR, 0, NULL },
    { "pp=2, uneven, gpipe", 2, 1, 1, 5, SGLPLAN_GPIPE, NULL, 0, NULL },
    { "pp=3, uneven, 1f1b", 3, 1, 1, 7, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=2, uneven, interleaved", 2, 1, 1, 5, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    { "pp=2, uneven, zero-bubble", 2, 1, 1, 7, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
    { "pp=2,tp=2, uneven, 1f1b", 2, 1, 2, 5, SGLPLAN_1F1B, TRANSFORMER_TENSOR, 0, NULL },
    { "pp=2,dp=5, uneven, some turns without rows, 1f1b", 2, 5, 1, 3, SGLPLAN_1F1B, NULL, 0, NULL },
    { "pp=2, cut at the last", 2, 1, 1, 3, SGLPLAN_1F1B, NULL, 0, "blocks.3" },
    { "pp=3, cut at each but the first", 3, 1, 1, 2, SGLPLAN_ZERO_BUBBLE, NULL, 0, "blocks.1, *.2" },
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
    plan.chunks = c->chunks;
    if (c->cut) snprintf(plan.cut, sizeof plan.cut, "%s", c->cut);
    if (c->layouts) snprintf(plan.layouts, sizeof plan.layouts, "%s", c->layouts);
    return plan;
}

static sglir_graph *staged(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t rank, const char *until)
{
    ir_message message;
    sglir_graph *made = world_check_rank(env, g, plan, rank, until, &message);
    if (!made) fail_msg("%s", message.text);
    return made;
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

/* All ranks run what `then` makes of their stages; NULL: the stages themselves. */
static world_check run_plan(sglcore_env *env, const sglir_graph *g, const pipe_case *c, const sglplan *plan,
                            const interp *whole, const sglpass *then)
{
    world_check check = { .env = env,
                          .g = g,
                          .whole = whole,
                          .plan = plan,
                          .until = "stages",
                          .then = then,
                          .stage = then ? SGLIR_FUSED : SGLIR_PER_RANK,
                          .tolerance = (ir_tolerance){ 1e-10, 1e-12 } };
    ir_message message;
    const bool good = world_check_run(&check, &message);
    if (!good && check.graphs[0]) ir_case_show(env, check.graphs[0]);
    if (!good) fail_msg("%s%s: %s", c->name, then ? ", fused" : "", message.text);
    return check;
}

static void check_plan(sglcore_env *env, const sglir_graph *g, const pipe_case *c, const interp *whole)
{
    const sglplan plan = plan_of(c);
    world_check check = run_plan(env, g, c, &plan, whole, NULL);
    check_states(g, check.graphs, &plan);
    for (int64_t r = 0; r < sglplan_group_size(&plan, ~(sglplan_axes)0); r++) {
        assert_true(ir_case_count(check.graphs[r], SGLIR_OP_SEND) >= c->micro); /* each turn's, by itself */
        assert_true(ir_case_count(check.graphs[r], SGLIR_OP_RECEIVE) >= c->micro);
    }
    world_check_free(&check);
}

/* The same of what the passes after `stages` have made, but for `sections`: states keep their names. */
static void check_fused(sglcore_env *env, const sglir_graph *g, const pipe_case *c, const interp *whole)
{
    static const sglpass passes[] = { { "decompose", sglpass_decompose, SGLIR_PER_RANK, false, "" },
                                      { "simplify-again", sglpass_simplify, SGLIR_PER_RANK, true, "" },
                                      { "fuse", sglpass_fuse, SGLIR_FUSED, false, "" },
                                      { "schedule", sglpass_schedule, SGLIR_FUSED, true, "" },
                                      { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    const sglplan plan = plan_of(c);
    world_check check = run_plan(env, g, c, &plan, whole, passes);
    world_check_free(&check);
}

typedef void (*check_one)(sglcore_env *env, const sglir_graph *g, const pipe_case *c, const interp *whole);

static void check_transformer(const transformer_sizes *sizes, const pipe_case *cases, size_t count, check_one check)
{
    transformer_whole w;
    transformer_whole_open(&w, sizes);
    for (size_t i = 0; i < count; i++) check(&w.env, w.g, &cases[i], &w.results);
    transformer_whole_close(&w);
}

static const transformer_sizes
    four_layers = { .layers = 4, .batch = 12, .seq = 4, .dim = 8, .heads = 2, .ffn = 12, .vocab = 11, .dropout = 0.25 };

/* Dropout, a tied head, clipping by the norm over all stages, tokens that do not count. */
static void test_transformer(void **state)
{
    (void)state;
    check_transformer(&four_layers, plans, sizeof plans / sizeof plans[0], check_plan);
}

/* With kernels, and in the order that needs few bytes; waits stand where they stand. */
static void test_fused(void **state)
{
    (void)state;
    static const pipe_case cases[] = {
        { "pp=2, gpipe", 2, 1, 1, 3, SGLPLAN_GPIPE, NULL, 0, NULL },
        { "pp=3, 1f1b", 3, 1, 1, 6, SGLPLAN_1F1B, NULL, 0, NULL },
        { "pp=2, interleaved", 2, 1, 1, 4, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
        { "pp=4, zero-bubble", 4, 1, 1, 6, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL },
        { "pp=2, uneven, 1f1b", 2, 1, 1, 5, SGLPLAN_1F1B, NULL, 0, NULL },
        { "pp=2,tp=2, zero-bubble", 2, 1, 2, 3, SGLPLAN_ZERO_BUBBLE, TRANSFORMER_TENSOR, 0, NULL },
    };
    check_transformer(&four_layers, cases, sizeof cases / sizeof cases[0], check_fused);
}

/* Five layers are no multiple of two, three or four stages. */
static void test_uneven_stages(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 5, .batch = 6, .seq = 3, .dim = 8, .heads = 2, .ffn = 8, .vocab = 7, .dropout = 0
    };
    static const pipe_case cases[] = { { "pp=2 of 5 layers", 2, 1, 1, 3, SGLPLAN_1F1B, NULL, 0, NULL },
                                       { "pp=3 of 5 layers", 3, 1, 1, 2, SGLPLAN_GPIPE, NULL, 0, NULL },
                                       { "pp=5 of 5 layers", 5, 1, 1, 6, SGLPLAN_1F1B, NULL, 0, NULL } };
    check_transformer(&sizes, cases, sizeof cases / sizeof cases[0], check_plan);
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
    const pipe_case c = { "pp=3", 3, 1, 1, 4, SGLPLAN_1F1B, NULL, 0, NULL };
    sglplan plan = plan_of(&c);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (int rank = 0; rank < 3; rank++) {
        sglir_graph *made = staged(&env, g, &plan, rank, "stages");
        const int neighbours = rank == 1 ? 2 : 1, tied = rank == 1 ? 0 : 1;
        assert_int_equal(wide(made, SGLIR_OP_SEND), neighbours * 4 + tied);
        assert_int_equal(wide(made, SGLIR_OP_RECEIVE), neighbours * 4 + tied);
        const sglir_id tokens = sglir_input_find(made, "tokens");
        const int64_t home = sglir_home_of(made, sglir_value_at(made, tokens)->node);
        assert_int_equal(home, rank == 0 ? SGLIR_HOME_ALL : 0); /* which the first stage alone reads */
        assert_int_equal(sglir_elements(sglir_type_of(made, tokens)) == 0, rank != 0);
        sglir_graph_free(made);
    }
    sglir_graph_free(g);
}

/* A product over rows and positions. */
static bool is_of_weights(const sglir_graph *g, const sglir_node *node)
{
    int along = 0, batch = 0;
    if (node->op != SGLIR_OP_DOT) return false;
    (void)sglir_attr_ints(g, node, "contract_a", &along);
    (void)sglir_attr_ints(g, node, "batch_a", &batch);
    return along == 2 && batch == 0;
}

/* Checks before each gradient that is sent on how many products of weights' gradients stand, in all `each` a micro-batch. */
static void check_weights(const sglir_graph *g, int rank, int64_t micro, int each)
{
    int sent = 0, made = 0;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        made += is_of_weights(g, node);
        if (node->op != SGLIR_OP_SEND || sglir_attr_int(g, node, "to") != rank - 1 || sent == micro) continue;
        int most = each * (sent > rank ? sent - rank : 0);
        if (made != most) fail_msg("stage %d, gradient %d: behind %d products, not %d", rank, sent, made, most);
        sent++;
    }
    assert_int_equal(sent, micro);
    assert_int_equal(made, each * micro);
}

/* Gradients of weights stand behind the gradient that is sent on, of stage s by s micro-batches more. */
static void test_weights_wait(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 4, .batch = 10, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5 };
    const pipe_case c = { "pp=4", 4, 1, 1, 5, SGLPLAN_ZERO_BUBBLE, NULL, 0, NULL };
    sglplan plan = plan_of(&c);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (int rank = 1; rank < 3; rank++) {
        sglir_graph *made = staged(&env, g, &plan, rank, "stages");
        check_weights(made, rank, c.micro, 7);
        sglir_graph_free(made);
    }
    sglir_graph_free(g);
}

/* Eight layers in up to eight chunks; micro-batches that come out even in rounds, and do not. */
static void test_many_chunks(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 8, .batch = 60, .seq = 2, .dim = 4, .heads = 2, .ffn = 6, .vocab = 5, .dropout = 0.25
    };
    static const pipe_case cases[] = {
        { "pp=2 of 3 chunks", 2, 1, 1, 5, SGLPLAN_INTERLEAVED, NULL, 3, NULL },
        { "pp=2 of 4 chunks", 2, 1, 1, 2, SGLPLAN_INTERLEAVED, NULL, 4, NULL },
        { "pp=3 of 2 chunks", 3, 1, 1, 10, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
        { "pp=3 of 1 chunk", 3, 1, 1, 4, SGLPLAN_INTERLEAVED, NULL, 1, NULL },
        { "pp=4 of 2 chunks", 4, 1, 1, 4, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
        { "pp=4 of 2 chunks, fewer micro-batches than stages", 4, 1, 1, 3, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
        { "pp=2,dp=2 of 2 chunks", 2, 2, 1, 3, SGLPLAN_INTERLEAVED, NULL, 2, "blocks.1, blocks.2, blocks.7" },
        { "pp=4,dp=2 of 2 chunks", 4, 2, 1, 5, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
    };
    check_transformer(&sizes, cases, sizeof cases / sizeof cases[0], check_plan);
}

/* Which stage holds a layer's weights, with `cut` and with chunks. */
static void test_where(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 4, .batch = 4, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5 };
    static const struct {
        pipe_case c;
        int stages[4]; /* per layer */
    } cases[] = { { { "balanced", 2, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, NULL }, { 0, 0, 1, 1 } },
                  { { "cut", 2, 1, 1, 2, SGLPLAN_GPIPE, NULL, 0, "*.0, blocks.3" }, { 0, 0, 0, 1 } },
                  { { "cut, no loop", 2, 1, 1, 1, SGLPLAN_GPIPE, NULL, 0, "blocks.1" }, { 0, 1, 1, 1 } },
                  { { "chunks", 2, 1, 1, 2, SGLPLAN_INTERLEAVED, NULL, 0, NULL }, { 0, 1, 0, 1 } },
                  { { "three stages, cut", 3, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, "blocks.2, blocks.1" },
                    { 0, 1, 2, 2 } } };
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sglplan plan = plan_of(&cases[i].c);
        for (int rank = 0; rank < cases[i].c.pp; rank++) {
            sglir_graph *made = staged(&env, g, &plan, rank, "stages");
            for (int layer = 0; layer < 4; layer++) {
                char name[32];
                snprintf(name, sizeof name, "blocks.%d.wq", layer);
                bool held = sglir_elements(sglir_type_of(made, sglir_input_find(made, name))) > 0;
                if (held != (cases[i].stages[layer] == rank)) fail_msg("%s: %s, stage %d", cases[i].c.name, name, rank);
            }
            sglir_graph_free(made);
        }
    }
    sglir_graph_free(g);
}

/* ---- refused ------------------------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 3, .batch = 4, .seq = 2, .dim = 4, .heads = 2, .ffn = 4, .vocab = 5 };
    static const struct {
        pipe_case c;
        const char *message;
    } cases[] = {
        { { "stages", 4, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, NULL },
          "plan: pp = 4 stages, and the forward of \"train\" has 3 modules to cut between; take fewer stages" },
        { { "chunks", 2, 1, 1, 2, SGLPLAN_INTERLEAVED, NULL, 0, NULL },
          "plan: pp = 2 stages of chunks = 2 are 4, and the forward of \"train\" has 3 modules to cut between; take fewer" },
        { { "chunks of 1f1b", 2, 1, 1, 2, SGLPLAN_1F1B, NULL, 3, NULL },
          "plan: chunks = 3, and under the schedule 1f1b a stage has 1; take the schedule interleaved" },
        { { "cut at no module", 2, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, "blocks.2.attn" },
          "plan: cut: 'blocks.2.attn' is no module of the forward of \"train\", which has blocks.0, blocks.1, blocks.2" },
        { { "cut too often", 2, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, "blocks.*" },
          "plan: cut makes 3 chunks, which begin with blocks.0, blocks.1, blocks.2, and pp = 2 stages of 1 have 2" },
        { { "cut too seldom", 3, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, "blocks.1" },
          "plan: cut makes 2 chunks, which begin with blocks.0, blocks.1, and pp = 3 stages of 1 have 3" },
    };
    sglir_graph *g, *made = NULL;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sglplan plan = plan_of(&cases[i].c);
        sglpass_context context = { .env = &env, .plan = &plan };
        assert_int_equal(sglpass_run(&context, g, "stages", &made), SGL_INVALID_ARGUMENT);
        assert_null(made);
        assert_string_equal(env.message, cases[i].message);
    }
    sglir_graph_free(g);
}

/* ---- failing allocations ----------------------------------------------------------------------------------------------- */

typedef struct fault_case {
    pipe_case c;
    sglir_graph *g;
} fault_case;

static sgl_status stage_once(sglcore_env *env, void *user)
{
    fault_case *f = user;
    sglplan plan = plan_of(&f->c);
    sglir_graph *made = NULL;
    sglpass_context context = { .env = env, .plan = &plan };
    sgl_status status = sglpass_stages_split(&context, f->g, &made);
    sglir_graph_free(made);
    return status == SGL_INVALID_ARGUMENT ? SGL_OK : status; /* the refusal is what was asked for */
}

static void test_failing_allocations(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const transformer_sizes sizes = { .layers = 4, .batch = 2, .seq = 2, .dim = 2, .heads = 1, .ffn = 2, .vocab = 3 };
    fault_case cases[] = { { { "apart", 2, 1, 1, 2, SGLPLAN_ZERO_BUBBLE, NULL, 0, "blocks.3" }, NULL },
                           { { "no module", 2, 1, 1, 2, SGLPLAN_INTERLEAVED, NULL, 0, "blocks.4" }, NULL },
                           { { "too many", 2, 1, 1, 2, SGLPLAN_1F1B, NULL, 0, "blocks.2, blocks.3" }, NULL } };
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sglplan plan = plan_of(&cases[i].c);
        cases[i].g = staged(&env, g, &plan, 0, "micro");
        fault_each_allocation(stage_once, &cases[i]);
        sglir_graph_free(cases[i].g);
    }
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_many_chunks),
        cmocka_unit_test(test_what_crosses),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_weights_wait),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
