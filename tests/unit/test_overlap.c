/* test_overlap.c -- what ranks exchange while they compute costs no time of its own: a backward of timed waits in the
 * place of kernels, whose gradients are summed over a shaped link that needs about as long.
 *
 * In: one graph, built with and without the pass schedule. Out: the best step of a few of either, held against the time
 * of the kernels alone and of the link alone, and against what the simulator says of it before it runs. Neither kernels
 * nor the link use the CPU, so that ranks need no cores of their own.
 * ctest: serial */
#include "exec/profile.h"
#include "net_rig.h"
#include "tune/list.h"

enum {
    RANKS = 2,
    LAYERS = 16,
    STEPS = 5,
    ROWS = 2500,
    COLS = 10,
    GRADIENT_BYTES = ROWS * COLS * 4,
    KERNEL_MS = 25,
    LATENCY_US = 50
};
#define BYTES_PER_S 4e6 /* a gradient of 100,000 bytes in 25 ms: of two ranks each sends it once */

typedef struct overlap {
    bool scheduled;
    double best_s[RANKS];
    int exchanges[RANKS], waits[RANKS];
    double exposed_ms[RANKS]; /* of a step, as the profile tells it */
    sgltune_times foreseen[RANKS];
} overlap;

static void write_backward(char *text, size_t room)
{
    int at = snprintf(text, room,
                      "graph \"net\" {\n  %%0 = input() {role=2, name=\"p\", dtype=f32, dims=[%d,%d], partial=1}\n"
                      "  %%1 = input() {role=2, name=\"w\", dtype=f32, dims=[%d,%d]}\n",
                      ROWS, COLS, COLS, COLS);
    for (int i = 0; i < LAYERS; i++)
        at += snprintf(text + at, room - (size_t)at,
                       "  %%%d = dot(%%%d, %%1) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[1]}\n", i + 2,
                       i == 0 ? 0 : i + 1);
    at += snprintf(text + at, room - (size_t)at, "  %%90 = pack(");
    for (int i = LAYERS; i-- > 0;) at += snprintf(text + at, room - (size_t)at, "%%%d%s", i + 2, i > 0 ? ", " : ")\n");
    snprintf(text + at, room - (size_t)at,
             "  %%91 = all_reduce(%%90) {axes=1}\n  %%92 = neg(%%91)\n  fetch \"y\" %%92\n}\n");
}

/* A kernel that only takes its time: what is exchanged is whatever lies there. */
static sgl_status launch_timed(sglexec_device *device, void *prepared, uint32_t n, void *const spaces[SGLIR_SPACES])
{
    (void)device, (void)prepared, (void)n, (void)spaces;
    comm_case_sleep_ms(KERNEL_MS);
    return SGL_OK;
}

static void count(const rig *g, overlap *o)
{
    for (int64_t n = 0; n < g->program->instructions.count; n++) {
        o->exchanges[g->r->rank] += g->program->instructions.data[n].op == SGLIR_OP_ALL_REDUCE;
        o->waits[g->r->rank] += g->program->instructions.data[n].op == SGLIR_OP_WAIT;
    }
}

/* The step on paper: a product takes what it takes here, the link is the shaped one; both ranks have this program. */
static sgl_status foresee(rig *g, overlap *o)
{
    sgltune_list list = { 0 };
    sgltune_times times[RANKS];
    const sgltune_rates rates = { .flops = 2.0 * ROWS * COLS * COLS / (KERNEL_MS * 1e-3),
                                  .latency = 1e-6 * LATENCY_US,
                                  .link = BYTES_PER_S };
    const sgltune_list *const each[RANKS] = { &list, &list };
    sgl_status status = sgltune_list_of(g->env, g->program, &g->plan, g->r->rank, &rates, &list);
    if (status == SGL_OK) status = sgltune_simulate(g->env, &g->plan, RANKS, each, times);
    if (status == SGL_OK) o->foreseen[g->r->rank] = times[g->r->rank];
    sgltune_list_free(g->env, &list);
    return status;
}

static sgl_status profile_step(rig *g, overlap *o)
{
    sglexec_profile *profile;
    sglcore_text text = { 0 };
    SGLCORE_TRY(sglexec_profile_new(g->program, &profile));
    const sglexec_watch watch = { .profile = profile };
    sgl_status status =
        sglexec_replay(g->env, &g->ops, g->device, g->prepared, g->program, g->spaces, g->exchanges, &watch);
    if (status == SGL_OK) status = sglexec_profile_print(profile, &text);
    const char *told = status == SGL_OK ? strstr(text.data, "exposed communication: ") : NULL;
    if (status == SGL_OK && !told) g->r->fault = "the profile does not tell what is exposed";
    if (told) o->exposed_ms[g->r->rank] = strtod(told + strlen("exposed communication: "), NULL);
    sglcore_text_free(g->env, &text);
    sglexec_profile_free(profile);
    return status;
}

static void overlap_body(comm_rank *r)
{
    static const sglpass all[] = { { "collect", sglpass_collect, SGLIR_PER_RANK, true, "" },
                                   { "fuse", sglpass_fuse, SGLIR_FUSED, false, "" },
                                   { "schedule", sglpass_schedule, SGLIR_FUSED, true, "" },
                                   { "memory", sglpass_memory, SGLIR_PLACED, false, "" },
                                   { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    const sglpass unscheduled[] = { all[0], all[1], all[3], all[4] };
    overlap *o = r->all->context;
    sglplan plan;
    char text[8192];
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_DP] = RANKS;
    rig g = { .list = o->scheduled ? all : unscheduled, .bucket = GRADIENT_BYTES };
    write_backward(text, sizeof text);
    r->status = net_rig_open(&g, r, &plan, false, text);
    if (r->status == SGL_OK) r->status = sglexec_exchanges_make_groups(g.exchanges);
    g.ops.launch = launch_timed;
    o->best_s[r->rank] = 1e9;
    if (r->status == SGL_OK) r->status = foresee(&g, o);
    if (r->status == SGL_OK) count(&g, o);
    for (int step = 0; step < STEPS && r->status == SGL_OK; step++) {
        const double since = comm_case_now_s();
        r->status = sglexec_replay(g.env, &g.ops, g.device, g.prepared, g.program, g.spaces, g.exchanges, NULL);
        const double took_s = comm_case_now_s() - since;
        if (took_s < o->best_s[r->rank]) o->best_s[r->rank] = took_s;
    }
    if (r->status == SGL_OK) r->status = profile_step(&g, o);
    net_rig_close(&g);
}

static double best_step_s(overlap *o)
{
    comm_case all = { .size = RANKS,
                      .options = { .timeout_s = 20, .latency_us = LATENCY_US, .bytes_per_s = BYTES_PER_S },
                      .body = overlap_body,
                      .context = o };
    loop_world(RANKS, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(o->exchanges[r], LAYERS);
        assert_int_equal(o->waits[r], o->scheduled ? LAYERS : 0);
    }
    return o->best_s[0] > o->best_s[1] ? o->best_s[0] : o->best_s[1];
}

/* The time of a step, and in it what is spent waiting for the link, within a tenth of the step. */
static void check_foreseen(const char *name, const overlap *o, double step_s)
{
    const sgltune_times *f = &o->foreseen[0];
    printf("%s: foreseen %.0f ms, %.0f of them exposed; measured %.0f and %.0f\n", name, f->step * 1e3,
           f->exposed * 1e3, step_s * 1e3, o->exposed_ms[0]);
    assert_true(f->step >= 0.9 * step_s && f->step <= 1.1 * step_s);
    assert_true(f->exposed >= o->exposed_ms[0] * 1e-3 - 0.1 * step_s);
    assert_true(f->exposed <= o->exposed_ms[0] * 1e-3 + 0.1 * step_s);
}

static void test_overlap(void **state)
{
    (void)state;
    overlap waited = { .scheduled = false }, beside = { .scheduled = true };
    const double kernels_s = (LAYERS + 1) * KERNEL_MS * 1e-3, /* and the reader of the sums */
        link_s = LAYERS * (GRADIENT_BYTES / BYTES_PER_S + 2e-6 * LATENCY_US);
    const double larger_s = kernels_s > link_s ? kernels_s : link_s;
    const double waited_s = best_step_s(&waited), beside_s = best_step_s(&beside);
    printf("kernels %.0f ms, link %.0f ms; one after the other %.0f ms (%.2f), beside each other %.0f ms (%.2f)\n",
           kernels_s * 1e3, link_s * 1e3, waited_s * 1e3, waited_s / larger_s, beside_s * 1e3, beside_s / larger_s);
    printf("exposed %.0f ms and %.0f ms\n", waited.exposed_ms[0], beside.exposed_ms[0]);
    check_foreseen("one after the other", &waited, waited_s);
    check_foreseen("beside each other", &beside, beside_s);
    assert_true(waited.exposed_ms[0] >= 0.8e3 * link_s);
    assert_true(beside.exposed_ms[0] <= 0.3e3 * link_s);
    assert_true(waited_s >= 1.8 * larger_s);
    assert_true(beside_s <= 1.2 * larger_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_overlap) };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
