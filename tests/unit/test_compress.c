/* test_compress.c -- gradients exchanged in fewer bytes, on ranks that are threads of this process: what comes is near the sum, and
 * what does not come stands in the residual; bytes over the comm port; residuals in checkpoints, and under other plans; refusals.
 *
 * In: one graph whose gradient is a sum over the rows of a feed, under many plans and each codec. Odd invariant: gradients that came
 * and the residual that is left are the sum of all gradients, whatever the codec did. The process runs in a folder of its own.
 * ctest: serial */
#include <math.h>
#include <stdio.h>

#include "checkpoint_cases.h"

#include "passes/pass.h"
#include "plan/compress.h"
#include "tests/support/session_ranks.h"

enum { BATCH = 8, ROWS = 6, COLUMNS = 512, COUNT = ROWS * COLUMNS, STEPS = 3 };

/* The gradient of w is the sum of x over its rows; it takes w's place. b is short, and has no even parts. */
static const char text[] = "graph \"train\" {\n"
                           "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[6,512]}\n"
                           "  %1 = input() {role=0, name=\"b\", dtype=f32, dims=[7]}\n"
                           "  %2 = input() {role=2, name=\"x\", dtype=f32, dims=[8,6,512]}\n"
                           "  %3 = broadcast(%0) {dims=[8,6,512]}\n  %4 = mul(%2, %3)\n"
                           "  %5 = reduce_sum(%4) {axes=[0,1,2]}\n"
                           "  %6 = slice(%2) {axis=2, start=0, stop=7, step=1}\n"
                           "  %7 = broadcast(%1) {dims=[8,6,7]}\n  %8 = mul(%6, %7)\n"
                           "  %9 = reduce_sum(%8) {axes=[0,1,2]}\n  %10 = add(%5, %9)\n"
                           "  %11, %12 = grad(%10, %0, %1) {outer=1}\n"
                           "  update \"w\" %11\n  update \"b\" %12\n}\n";

/* The same, of a w that is one row: where tp splits it, ranks have their parts of each part. */
static const char row_text[] = "graph \"train\" {\n"
                               "  %0 = input() {role=0, name=\"w\", dtype=f32, dims=[3072]}\n"
                               "  %1 = input() {role=0, name=\"b\", dtype=f32, dims=[7]}\n"
                               "  %2 = input() {role=2, name=\"x\", dtype=f32, dims=[8,3072]}\n"
                               "  %3 = broadcast(%0) {dims=[8,3072]}\n  %4 = mul(%2, %3)\n"
                               "  %5 = reduce_sum(%4) {axes=[0,1]}\n"
                               "  %6 = slice(%2) {axis=1, start=0, stop=7, step=1}\n"
                               "  %7 = broadcast(%1) {dims=[8,7]}\n  %8 = mul(%6, %7)\n"
                               "  %9 = reduce_sum(%8) {axes=[0,1]}\n  %10 = add(%5, %9)\n"
                               "  %11, %12 = grad(%10, %0, %1) {outer=1}\n"
                               "  update \"w\" %11\n  update \"b\" %12\n}\n";

static const session_layout layouts[] = {
    { 1, 1, 1, "" },
    { 2, 1, 1, "" },
    { 3, 1, 1, "" },
    { 4, 1, 1, "" },
    { 1, 2, 1, "* fsdp:0" },
    { 1, 2, 1, "w fsdp:1" },
    { 2, 2, 1, "* fsdp:0" },
    { 1, 3, 1, "states * fsdp:0" },
    { 2, 1, 2, "w tp:0" },
    { 2, 1, 2, "w tp:1" },
    { 1, 2, 2, "w fsdp:0 tp:1" },
    { 1, 4, 1, "w fsdp:0" },
    { 3, 1, 2, "w tp:0" },
    { 2, 1, 2, "w tp:0, b tp:0" },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

typedef struct job {
    const session_layout *layout;
    const char *compress;
    sgl_status (*body)(session_rank *r);
    const char *dir, *graph; /* graph: `text` unless given */
    double *residual;        /* COUNT: the sum of terms, of rank 0 */
} job;

static const job *job_of(const session_rank *r) { return r->all->job; }

static pthread_mutex_t sent_mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t sent_bytes;

/* Of exchanges of values: what a rank of two sends, whose parts are all as large. */
static sgl_status counting_start(sglexec_group *group, const sglexec_exchange *x, void *stream, uint32_t *ticket)
{
    const bool values = x->dtype != SGL_U8 && x->dtype != SGL_I64 && x->dtype != SGL_I32;
    pthread_mutex_lock(&sent_mutex);
    for (int i = 0; values && i < x->member_count; i++)
        sent_bytes += sglcore_dtype_bytes((sgl_dtype)x->dtype, x->members[i].counts[0]);
    if (values && x->counts) sent_bytes += sglcore_dtype_bytes((sgl_dtype)x->dtype, x->counts[0]);
    if (values && !x->counts)
        sent_bytes += sglcore_dtype_bytes((sgl_dtype)x->dtype, x->count); /* all_reduce: 2 (n-1)/n */
    pthread_mutex_unlock(&sent_mutex);
    return sglcomm_start(group, x, stream, ticket);
}

static const sglexec_comm_ops *counting_ops(void)
{
    static sglexec_comm_ops ops;
    ops = session_ranks_loop;
    ops.start = counting_start;
    return &ops;
}

static sgl_status body_of_job(session_rank *r)
{
    r->vm->env.io = unsynced_io();
    const sgl_attr compress = { .name = "compress", .kind = SGL_ATTR_STRING, .s = job_of(r)->compress };
    const char *graph = job_of(r)->graph ? job_of(r)->graph : text;
    SGLCORE_TRY(session_rank_freeze(r, graph, job_of(r)->layout, &compress, &r->program));
    return job_of(r)->body(r);
}

static void must_run(job *j)
{
    char layout[SESSION_LAYOUT_ROOM], what[2 * SESSION_LAYOUT_ROOM];
    session_ranks all = {
        .size = session_layout_size(j->layout), .body = body_of_job, .job = j, .ops = counting_ops()
    };
    session_ranks_run(&all);
    snprintf(what, sizeof what, "%s over %s", j->compress, session_layout_text(j->layout, layout));
    session_ranks_all_good(&all, what);
}

/* ---- steps ------------------------------------------------------------------------------------------------------------- */

/* Numbers of many magnitudes. */
static float x_of(int64_t i, int step)
{
    const uint64_t bits =
        (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)step * UINT64_C(0xD1B54A32D192ED03);
    return ((float)(bits >> 40) / (float)(1 << 24) - 0.5f) * (float)(1 << (bits >> 8 & 7));
}

static sgl_status feed(session_rank *r, int step)
{
    float *x = malloc(sizeof(float) * BATCH * COUNT);
    for (int64_t i = 0; i < BATCH * COUNT; i++) x[i] = x_of(i, step);
    sgl_status status = sgl_feed(r->program, "x", x, sizeof(float) * BATCH * COUNT);
    free(x);
    return status;
}

static double wanted(int64_t i, int step)
{
    double sum = 0;
    for (int64_t b = 0; b < BATCH; b++) sum += (double)x_of(b * COUNT + i, step);
    return sum;
}

static int places_of(const session_layout *l) { return (int)(l->dp * l->fsdp); }

/* All ranks' terms of what was lost of w. */
static sgl_status read_residual(session_rank *r, double *sum)
{
    const int places = places_of(job_of(r)->layout);
    float *terms = malloc(sizeof(float) * (size_t)places * COUNT);
    sgl_status status = sgl_state_read(r->session, SGLPLAN_RESIDUAL "w", terms, sizeof(float) * (size_t)places * COUNT);
    for (int i = 0; i < COUNT; i++) {
        sum[i] = 0;
        for (int p = 0; p < places && status == SGL_OK; p++) sum[i] += (double)terms[p * COUNT + i];
    }
    free(terms);
    return status;
}

static sgl_status differs(session_rank *r, const char *what, int i, double is, double should)
{
    return sglcore_fail(&r->vm->env, SGL_INTERNAL, "%s[%d] is %.9g, not %.9g", what, i, is, should);
}

/* The first gradient is as near as its codec allows; all that came, and what is left, are all that was. */
static sgl_status check_steps(session_rank *r)
{
    const bool eight = strstr(job_of(r)->compress, "int8") != NULL;
    const double bound = places_of(job_of(r)->layout) == 1 ? 1e-6 : eight ? 2e-2 : 4e-3; /* of the root mean square */
    double *came = calloc(COUNT, sizeof *came), *left = calloc(COUNT, sizeof *left), *all = calloc(COUNT, sizeof *all);
    float *w = calloc(COUNT, sizeof *w), b[7];
    sgl_status status = SGL_OK;
    for (int step = 0; step < STEPS && status == SGL_OK; step++) {
        double error = 0, size = 0;
        status = feed(r, step);
        if (status == SGL_OK) status = sgl_step(r->program);
        if (status == SGL_OK) status = sgl_state_read(r->session, "w", w, sizeof(float) * COUNT);
        if (status == SGL_OK) status = sgl_state_read(r->session, "b", b, sizeof b);
        for (int i = 0; i < COUNT; i++) {
            const double now = wanted(i, step);
            error += (w[i] - now) * (w[i] - now);
            size += now * now;
            came[i] += (double)w[i];
            all[i] += now;
        }
        if (status == SGL_OK && step == 0 && !(sqrt(error / size) <= bound))
            status = differs(r, "relative error", step, sqrt(error / size), bound);
        if (status == SGL_OK && step == 0 && places_of(job_of(r)->layout) > 1 && !(sqrt(error / size) > 1e-5))
            status = differs(r, "relative error of what should be rounded", step, sqrt(error / size), bound);
    }
    if (status == SGL_OK) status = read_residual(r, left);
    for (int i = 0; i < COUNT && status == SGL_OK; i++) {
        const double least = 1e-5 * (fabs(all[i]) + 100);
        if (!(fabs(came[i] + left[i] - all[i]) <= least))
            status = differs(r, "what came and is left", i, came[i] + left[i], all[i]);
    }
    free(came), free(left), free(all), free(w);
    return status;
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    static const char *const codecs[] = { "* bf16", "* int8", "* none, w int8" };
    for (int c = 0; c < 3; c++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int row = 0; row < (strstr(layouts[l].layouts, ":1") ? 1 : 2); row++)
                must_run(&(job){ .layout = &layouts[l],
                                 .compress = codecs[c],
                                 .body = check_steps,
                                 .graph = row ? row_text : text });
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------------- */

static sgl_status step_once(session_rank *r)
{
    SGLCORE_TRY(feed(r, 0));
    return sgl_step(r->program);
}

/* Of two ranks: all_reduce sends as many bytes as the gradient has; a codec in each of its halves half of what it makes of it. */
static void test_bytes(void **state)
{
    (void)state;
    const struct {
        const char *compress;
        double bytes; /* of an element of w */
    } rows[] = { { "", 4 }, { "w bf16", 2 }, { "w int8", 1 + 4.0 / 256 } };
    for (int i = 0; i < 3; i++) {
        sent_bytes = 0;
        must_run(&(job){ .layout = &layouts[1], .compress = rows[i].compress, .body = step_once });
        assert_int_equal(sent_bytes / 2, (int64_t)(rows[i].bytes * COUNT) + 4 * 7); /* b is exchanged as it is */
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------------------------------------- */

static sgl_status run_and_save(session_rank *r)
{
    for (int step = 0; step < 2; step++) {
        SGLCORE_TRY(feed(r, step));
        SGLCORE_TRY(sgl_step(r->program));
    }
    SGLCORE_TRY(sgl_checkpoint_save(r->session, job_of(r)->dir, 2, "{}", 0));
    double sum[COUNT];
    SGLCORE_TRY(read_residual(r, sum));
    if (r->number == 0) memcpy(job_of(r)->residual, sum, sizeof sum);
    return SGL_OK;
}

/* The sum of all terms is there; and goes into the next gradient. */
static sgl_status load_and_step(session_rank *r)
{
    double sum[COUNT], after[COUNT];
    float *w = calloc(COUNT, sizeof *w);
    SGLCORE_TRY(feed(r, 7));
    SGLCORE_TRY(sgl_step(r->program)); /* what was left of it is gone once others' is loaded */
    sgl_status status = sgl_checkpoint_load(r->session, job_of(r)->dir, 0);
    if (status == SGL_OK) status = read_residual(r, sum);
    for (int i = 0; i < COUNT && status == SGL_OK; i++)
        if (!(fabs(sum[i] - job_of(r)->residual[i]) <= 1e-6 * (fabs(sum[i]) + 1)))
            status = differs(r, "residual", i, sum[i], job_of(r)->residual[i]);
    if (status == SGL_OK) status = feed(r, 2);
    if (status == SGL_OK) status = sgl_step(r->program);
    if (status == SGL_OK) status = sgl_state_read(r->session, "w", w, sizeof(float) * COUNT);
    if (status == SGL_OK) status = read_residual(r, after);
    for (int i = 0; i < COUNT && status == SGL_OK; i++) {
        const double all = wanted(i, 2) + sum[i];
        if (!(fabs((double)w[i] + after[i] - all) <= 1e-5 * (fabs(all) + 100)))
            status = differs(r, "what came and is left", i, (double)w[i] + after[i], all);
    }
    free(w);
    return status;
}

static void test_checkpoints(void **state)
{
    (void)state;
    double residual[COUNT];
    for (int a = 1; a < LAYOUTS; a += 2) {
        must_run(&(job){
            .layout = &layouts[a], .compress = "* int8", .body = run_and_save, .dir = "run", .residual = residual });
        for (int b = 0; b < LAYOUTS; b++)
            must_run(&(job){ .layout = &layouts[b],
                             .compress = "* bf16",
                             .body = load_and_step,
                             .dir = "run/step-00000002",
                             .residual = residual });
        remove_tree("run");
    }
}

/* ---- refusals -------------------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *compress, *precision, *message;
    } rows[] = { { "* int9", "fp32", "plan: compress: there is no codec 'int9' for '*'; did you mean 'int8'?" },
                 { "w", "fp32", "plan: compress: 'w' is not of the form \"PATTERN CODEC\"" },
                 { "w int8 bf16", "fp32", "plan: compress: 'w int8 bf16' is not of the form" },
                 { "ww int8", "fp32", "plan: compress: 'ww' names no parameter" },
                 { "* int8", "fp16", "plan: compress: the gradient of 'w' is scaled" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const sgl_attr fields[] = { { .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = 2 },
                                    { .name = "precision", .kind = SGL_ATTR_STRING, .s = rows[i].precision },
                                    { .name = "compress", .kind = SGL_ATTR_STRING, .s = rows[i].compress } };
        session_rank r = { 0 };
        sglir_graph *ir;
        sgl_graph *graph;
        sgl_plan *plan;
        assert_int_equal(sgl_open(NULL, &r.vm), SGL_OK);
        assert_int_equal(sgl_session_new(r.vm, "null", &r.session), SGL_OK);
        assert_int_equal(sgl_session_plan_rank(r.session, 0), SGL_OK);
        assert_int_equal(sgl_plan_new(r.vm, &plan), SGL_OK);
        sgl_status status = SGL_OK;
        for (size_t f = 0; f < 3 && status == SGL_OK; f++) status = sgl_plan_set(plan, &fields[f]);
        assert_int_equal(sglir_parse(&r.vm->env, "graph", text, strlen(text), &ir), SGL_OK);
        assert_int_equal(sglsession_graph_take(r.vm, ir, &graph), SGL_OK);
        if (status == SGL_OK) status = sgl_freeze(r.session, graph, plan, &r.program);
        assert_int_not_equal(status, SGL_OK);
        if (!strstr(sgl_error_message(r.vm), rows[i].message))
            fail_msg("%s: %s\n  expected %s", rows[i].compress, sgl_error_message(r.vm), rows[i].message);
        sgl_close(r.vm);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

static sgl_status compile(sglcore_env *env, void *context)
{
    const sglpass_context passes = { .env = env, .plan = context };
    sglir_graph *g = NULL, *out = NULL;
    sgl_status status = sglir_parse(env, "graph", text, strlen(text), &g);
    if (status == SGL_OK) status = sglpass_run(&passes, g, "shard", &out);
    sglir_graph_free(out);
    sglir_graph_free(g);
    return status;
}

static void test_memory_faults(void **state)
{
    (void)state;
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_DP] = 2;
    strcpy(plan.compress, "* int8");
    fault_each_allocation(compile, &plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_checkpoints),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
