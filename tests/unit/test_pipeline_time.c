/* test_pipeline_time.c -- stages idle as the formulas of their schedules say: on paper, and in a run of all ranks.
 *
 * In: a chain of equal modules, one to a stage or chunk of a stage, trained in micro-batches; every rank's program from
 * the whole pipeline of passes. Out: the share of a step in which a stage does nothing, of the simulator and of the
 * clock, held against the formula. A product takes a given time and no CPU, whatever else runs none, so that ranks need
 * no cores of their own.
 * ctest: serial */
#include "net_rig.h"
#include "tune/list.h"

enum {
    STAGES = 4,
    MICRO = 8,
    MOST_MODULES = 2 * STAGES,
    ROWS = 64,
    DIM = 128,
    KERNEL_MS = 20,
    STEPS = 3,
    TWO_POINTS = 2
};

typedef struct pipeline {
    sglplan_schedule schedule;
    int chunks; /* modules of a stage */
    double best_s[STAGES], paper_s[STAGES];
    int products[STAGES];
} pipeline;

static sglir_id emit(sglir_graph *g, sglir_op op, int count, const sglir_id *args)
{
    sglir_id out[MOST_MODULES + 2];
    return sglir_build(g, op, args, count, NULL, 0, out);
}

/* y = (x + bias) W0' W1' ..., sum of y y; sgd. The bias makes the first module hand a gradient back, too. */
static sgl_status trace(sglcore_env *env, int modules, sglir_graph **graph)
{
    const int64_t batch[] = { ROWS * MICRO, DIM }, square[] = { DIM, DIM };
    const sglir_type fed = sglir_type_make(SGL_F32, 2, batch), weight = sglir_type_make(SGL_F32, 2, square),
                     row = sglir_type_make(SGL_F32, 1, square);
    sglir_id of[MOST_MODULES + 2], grads[MOST_MODULES + 2];
    char name[32], scope[32];
    SGLCORE_TRY(sglir_graph_new(env, "chain", graph));
    sglir_graph *g = *graph;
    sglir_id y = sglir_input(g, SGL_FEED, "x", &fed);
    of[1] = sglir_input(g, SGL_PARAMETER, "blocks.0.bias", &row);
    for (int i = 0; i < modules; i++) {
        snprintf(name, sizeof name, "blocks.%d.weight", i);
        snprintf(scope, sizeof scope, "blocks.%d", i);
        sglir_set_origin(g, "chain.lua", i + 1, scope, "");
        of[i + 2] = sglir_input(g, SGL_PARAMETER, name, &weight);
        if (i == 0) y = sglir_add(g, y, of[1]);
        y = emit(g, SGLIR_OP_LINEAR, 2, (const sglir_id[]){ y, of[i + 2] });
    }
    of[0] = emit(g, SGLIR_OP_REDUCE_SUM, 1, (const sglir_id[]){ sglir_mul(g, y, y) });
    sglir_set_origin(g, "chain.lua", modules + 1, "", "");
    const sglir_named outer = { .name = "outer", .kind = 'b', .i = 1 };
    sglir_emit(g, SGLIR_OP_GRAD, of, modules + 2, &outer, 1, grads);
    for (int i = 0; i <= modules && sglir_status(g) == SGL_OK; i++) {
        const char *of_name = sglir_attr_string(g, sglir_maker(g, of[i + 1]), "name");
        sglir_output_add(g, SGLIR_UPDATE, of_name, sglir_sub(g, of[i + 1], sglir_scale(g, grads[i], 1e-3)));
    }
    sglir_output_add(g, SGLIR_FETCH, "loss", of[0]);
    return sglir_status(g);
}

static bool is_product(const sglexec_instruction *i) { return i->op == SGLIR_OP_DOT || i->op == SGLIR_OP_LINEAR; }

static _Thread_local const sglexec_program *running;

static sgl_status launch_timed(sglexec_device *device, void *prepared, uint32_t n, void *const spaces[SGLIR_SPACES])
{
    (void)device, (void)prepared, (void)spaces;
    if (is_product(&running->instructions.data[n])) comm_case_sleep_ms(KERNEL_MS);
    return SGL_OK;
}

/* What the simulator says of this rank's step, where a product takes what it takes here. */
static sgl_status foresee(rig *g, pipeline *o)
{
    const int64_t ranks = g->r->all->size;
    sgltune_list lists[STAGES] = { 0 };
    const sgltune_list *each[STAGES];
    sgltune_times times[STAGES];
    const sgltune_rates rates = { .flops = 2.0 * ROWS * DIM * DIM / (KERNEL_MS * 1e-3) };
    sgl_status status = SGL_OK;
    for (int64_t r = 0; r < ranks && status == SGL_OK; r++) {
        rig other = { .r = g->r, .env = g->env, .ops = g->ops, .plan = g->plan, .traced = g->traced, .rank = r };
        each[r] = &lists[r];
        status = net_rig_freeze(&other, "");
        if (status == SGL_OK) status = sgltune_list_of(g->env, other.program, &g->plan, r, &rates, &lists[r]);
        sglexec_program_free(other.program);
        sglir_graph_free(other.placed);
    }
    if (status == SGL_OK) status = sgltune_simulate(g->env, &g->plan, ranks, each, times);
    if (status == SGL_OK) o->paper_s[g->r->rank] = times[g->r->rank].step;
    for (int64_t r = 0; r < ranks; r++) sgltune_list_free(g->env, &lists[r]);
    return status;
}

static sgl_status run_steps(rig *g, pipeline *o)
{
    const int rank = g->r->rank;
    running = g->program;
    for (int64_t n = 0; n < running->instructions.count; n++)
        o->products[rank] += is_product(&running->instructions.data[n]);
    SGLCORE_TRY(sglexec_exchanges_make_groups(g->exchanges));
    SGLCORE_TRY(foresee(g, o));
    o->best_s[rank] = 1e9;
    for (int step = 0; step < STEPS; step++) {
        const double since = comm_case_now_s();
        SGLCORE_TRY(sglexec_replay(g->env, &g->ops, g->device, g->prepared, g->program, g->spaces, g->exchanges, NULL));
        const double took_s = comm_case_now_s() - since;
        if (took_s < o->best_s[rank]) o->best_s[rank] = took_s;
    }
    return SGL_OK;
}

static void pipeline_body(comm_rank *r)
{
    pipeline *o = r->all->context;
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_PP] = STAGES;
    plan.mesh[SGLIR_AXIS_MICRO] = MICRO;
    plan.schedule = (uint8_t)o->schedule;
    rig g = { .rank = r->rank };
    r->status = trace(&r->env, STAGES * o->chunks, &g.traced);
    if (r->status == SGL_OK) r->status = net_rig_open(&g, r, &plan, false, "");
    g.ops.launch = launch_timed;
    if (r->status == SGL_OK) r->status = run_steps(&g, o);
    sglir_graph_free(g.traced);
    net_rig_close(&g);
}

static double largest(const double *of)
{
    double most = 0;
    for (int r = 0; r < STAGES; r++) most = of[r] > most ? of[r] : most;
    return most;
}

/* In percent of a step: a stage's products are all the work that takes time. */
static double idle(int products, double step_s) { return 100 * (1 - products * KERNEL_MS * 1e-3 / step_s); }

/* ahead: products that pass before the last stage has its first turn, and after it had its last. */
static void check(const char *name, sglplan_schedule schedule, int chunks, int ahead)
{
    pipeline o = { .schedule = schedule, .chunks = chunks };
    const int products = 3 * MICRO * chunks;
    const double formula = 100.0 * ahead / (products + ahead);
    comm_case all = { .size = STAGES, .options = { .timeout_s = 20 }, .body = pipeline_body, .context = &o };
    loop_world(STAGES, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    for (int r = 0; r < STAGES; r++) assert_int_equal(o.products[r], products);
    const double paper = idle(products, largest(o.paper_s)), measured = idle(products, largest(o.best_s));
    printf("%-12s idle: %.1f%% by its formula, %.1f%% on paper, %.1f%% in a run\n", name, formula, paper, measured);
    assert_true(paper >= formula - TWO_POINTS && paper <= formula + TWO_POINTS);
    assert_true(measured >= formula - TWO_POINTS && measured <= formula + TWO_POINTS);
}

static void test_bubble(void **state)
{
    (void)state;
    /* The gradient that is handed on is made first: of two products of a backward the stage before waits for one. */
    check("gpipe", SGLPLAN_GPIPE, 1, 2 * (STAGES - 1));
    check("1f1b", SGLPLAN_1F1B, 1, 2 * (STAGES - 1));
    check("interleaved", SGLPLAN_INTERLEAVED, 2, 2 * (STAGES - 1));
    check("zero-bubble", SGLPLAN_ZERO_BUBBLE, 1, STAGES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bubble) };
    return cmocka_run_group_tests_name("pipeline_time", tests, NULL, NULL);
}
