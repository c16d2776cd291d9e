/* test_session_meet.c -- what ranks, each a thread of this process over the loop, compare before they begin, feed and agree on.
 *
 * In: jobs of train_ranks.h in which one rank has something else. Out: the same error on all of them, which names both sides.
 * ctest: serial */
#include "train_ranks.h"

/* ---- what they compare --------------------------------------------------------------------------------------------------- */

static void differ_body(rank *r)
{
    if (r->at->number == 2 && r->job->at_step == 0) r->train = r->other;
    if (r->at->number == 2 && r->job->at_step == 1) r->train->plan.max_skips++;
    train_body(r);
}

static void test_compares(void **state)
{
    (void)state;
    static const char *const why[] = { "the script has made other graphs there", "their plans differ" };
    for (int64_t what = 0; what < 2; what++) {
        job j = { .size = 3, .body = differ_body, .out = "differ", .at_rank = -1, .at_step = what };
        run_job(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.all.ranks[r].status, SGL_INVALID_ARGUMENT);
            assert_non_null(strstr(j.all.ranks[r].message, "program \"train\" of rank 0 on "));
            assert_non_null(strstr(j.all.ranks[r].message, " and of rank 2 on "));
            assert_non_null(strstr(j.all.ranks[r].message, why[what]));
            assert_int_equal(j.ranks[r].steps, 0);
            assert_int_equal(j.all.ranks[r].tells, r == 0);
        }
    }
}

static void differ_in_work_body(rank *r)
{
    int64_t *const numbers[] = { &r->steps_wanted, &r->eval_every, &r->save_every };
    if (r->at->number == 1 && r->job->at_step < 3) *numbers[r->job->at_step] = 5;
    if (r->at->number == 1 && r->job->at_step == 3) r->seed = 5;
    train_body(r);
}

static void test_compares_work(void **state)
{
    (void)state;
    static const char *const why[] = { "the number of steps is 6 on rank 0 (", "how often to evaluate is 4 on rank 0 (",
                                       "how often to save is 2 on rank 0 (", "the seed is 0 on rank 0 (" };
    for (int64_t what = 0; what < 4; what++) {
        job j = { .size = 3, .body = differ_in_work_body, .out = "work", .at_rank = -1, .at_step = what };
        run_job(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.all.ranks[r].status, SGL_INVALID_ARGUMENT);
            assert_ptr_equal(strstr(j.all.ranks[r].message, why[what]), j.all.ranks[r].message);
            assert_non_null(strstr(j.all.ranks[r].message, ") and 5 on rank 1 ("));
            assert_int_equal(j.ranks[r].steps, 0);
            assert_int_equal(j.all.ranks[r].tells, r == 0);
        }
    }
}

/* ---- what they would exchange ------------------------------------------------------------------------------------------------ */

#define FEED(type) "  %0 = input() {role=2, name=\"g\", dtype=" type "}\n"
#define OWED(type) "  %0 = input() {role=2, name=\"g\", dtype=" type ", partial=1}\n"
#define PARTS(type) "  %0 = input() {role=2, name=\"g\", dtype=" type ", layout=[0,-1,-1,-1,-1,-1,-1]}\n"

/* What two ranks do, and what both are told; NULL: they come to the end. */
static const struct {
    const char *name, *first, *second, *told[3];
} others[] = {
    { "alike",
      OWED("f32, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n",
      OWED("f32, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n",
      { NULL } },
    { "amounts",
      OWED("f32, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n",
      OWED("f32, dims=[5]") "  %1 = all_reduce(%0) {axes=1}\n",
      { "rank 1 would meet rank 0 in another exchange: here all_reduce", "(5 elements), there all_reduce",
        "(4 elements)" } },
    { "units",
      OWED("f32, dims=[6]") "  %1 = reduce_scatter(%0) {axes=1, own=3, unit=1}\n",
      OWED("f32, dims=[6]") "  %1 = reduce_scatter(%0) {axes=1, own=2, unit=2}\n",
      { "rank 1 would meet rank 0 in another exchange: here reduce_scatter", "(6 elements), there",
        "(6 elements, in other parts)" } },
    { "rows",
      PARTS("f32, dims=[2,3]") "  %1 = all_gather(%0) {axes=1, extent=4}\n",
      PARTS("f32, dims=[3,2]") "  %1 = all_gather(%0) {axes=1, extent=6}\n",
      { "rank 1 would meet rank 0 in another exchange: here all_gather", "(12 elements), there",
        "(12 elements, in other parts)" } },
    { "dtypes",
      OWED("f32, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n",
      OWED("f64, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n",
      { "program \"other\" of rank 0 on ", " and of rank 1 on ", "they exchange in another order" } },
    { "a message",
      FEED("f32, dims=[4]") "  %1 = send(%0) {axis=0, to=1, number=3}\n",
      "  %1 = receive() {axis=0, from=0, number=3, dims=[4], dtype=f32}\n",
      { NULL } },
    { "the amount of a message",
      FEED("f32, dims=[4]") "  %1 = send(%0) {axis=0, to=1, number=3}\n",
      "  %1 = receive() {axis=0, from=0, number=3, dims=[5], dtype=f32}\n",
      { "rank 1 would meet rank 0 in another exchange: here receive", "(5 elements), there send", "(4 elements)" } },
    { "the dtype of a message",
      FEED("f32, dims=[4]") "  %1 = send(%0) {axis=0, to=1, number=3}\n",
      "  %1 = receive() {axis=0, from=0, number=3, dims=[4], dtype=i32}\n",
      { "rank 1 would meet rank 0 in another exchange: here receive", "(4 elements), there send", "(4 elements)" } },
    { "another message",
      FEED("f32, dims=[4]") "  %1 = send(%0) {axis=0, to=1, number=3}\n",
      "  %1 = receive() {axis=0, from=0, number=2, dims=[4], dtype=f32}\n",
      { "rank 1 would meet rank 0 in another exchange: here receive", "there send", "(4 elements, in other parts)" } },
    { "one message",
      FEED("f32, dims=[4]") "  %1 = send(%0) {axis=0, to=1, number=3}\n",
      FEED("f32, dims=[4]") "  %1 = neg(%0)\n",
      { "plan: the exchanges of this plan would never end: rank 0 waits in send",
        "for rank 1, which ends its step without it", "nothing was started" } },
};
enum { OTHERS = sizeof others / sizeof others[0] };

/* Nothing but what they would exchange tells them apart. */
static void exchange_body(rank *r)
{
    char text[1024];
    sgl_program *program;
    const char *mine = r->at->number == 0 ? others[r->job->at_step].first : others[r->job->at_step].second;
    const bool sends = strstr(mine, "send(") != NULL;
    snprintf(text, sizeof text, "graph \"other\" {\n%s%s}\n", mine, sends ? "" : "  fetch \"y\" %1\n");
    r->status = freeze(r, text, &program);
    if (r->status != SGL_OK) return;
    program->job = (sglcore_hash){ 1, 2 };
    r->status = sglsession_ready(program);
    if (r->status == SGL_OK) r->status = sgl_step(program);
}

static void test_compares_exchanges(void **state)
{
    (void)state;
    for (int64_t o = 0; o < OTHERS; o++) {
        job j = { .size = 2, .body = exchange_body, .at_step = o };
        run_job(&j);
        for (int r = 0; r < 2; r++) {
            const session_rank *at = &j.all.ranks[r];
            const bool alike = others[o].told[0] == NULL;
            if ((at->status != SGL_OK) == alike) fail_msg("%s, rank %d: %s", others[o].name, r, at->message);
            if (alike) continue;
            assert_int_equal(at->status, SGL_INVALID_ARGUMENT);
            assert_int_equal(at->tells, r == 0);
            for (int i = 0; i < 3; i++)
                if (!strstr(at->message, others[o].told[i]))
                    fail_msg("%s, rank %d: %s", others[o].name, r, at->message);
        }
    }
}

/* The ranks of the first stage exchange among one another, those of the second do not: groups are the same for all the same. */
static void stage_body(rank *r)
{
    static const char first[] =
        "graph \"stage\" {\n" OWED("f32, dims=[4]") "  %1 = all_reduce(%0) {axes=1}\n"
                                                    "  %2 = send(%1) {axis=3, to=1, number=1}\n}\n";
    static const char second[] = "graph \"stage\" {\n"
                                 "  %0 = receive() {axis=3, from=0, number=1, dims=[4], dtype=f32}\n"
                                 "  %1 = neg(%0)\n  fetch \"y\" %1\n}\n";
    const bool is_first = r->at->number < 2;
    float g[ROWS], y[ROWS];
    sgl_program *program;
    r->status = freeze(r, is_first ? first : second, &program);
    if (r->status != SGL_OK) return;
    program->plan.mesh[SGLIR_AXIS_DP] = program->plan.mesh[SGLIR_AXIS_PP] = 2;
    program->plan.schedule = SGLPLAN_1F1B;
    program->job = (sglcore_hash){ 1, 2 };
    for (int i = 0; i < ROWS; i++) g[i] = (float)(r->at->number + 1 + i);
    r->status = sglsession_ready(program);
    if (r->status == SGL_OK && is_first) r->status = sgl_feed(program, "g", g, sizeof g);
    if (r->status == SGL_OK) r->status = sgl_step(program);
    if (r->status == SGL_OK && !is_first) r->status = sgl_fetch(program, "y", y, sizeof y);
    for (int i = 0; i < ROWS && r->status == SGL_OK && !is_first; i++)
        if (y[i] != -(float)(3 + 2 * i)) r->status = SGL_INTERNAL;
}

static void test_groups_of_stages(void **state)
{
    (void)state;
    job j = { .size = 4, .body = stage_body };
    run_job(&j);
    session_ranks_all_good(&j.all, "stages");
}

/* ---- what a host agrees on ------------------------------------------------------------------------------------------------- */

static void agree_body(rank *r)
{
    r->status = sgl_session_agree(r->at->session, SGL_OK);
    if (r->status == SGL_OK && r->at->number > 0)
        r->later = sglcore_fail(&r->at->vm->env, r->at->number == 1 ? SGL_IO : SGL_SCRIPT, "why %d", r->at->number);
    r->later = sgl_session_agree(r->at->session, r->later);
}

static void test_agrees(void **state)
{
    (void)state;
    job j = { .size = 3, .body = agree_body };
    run_job(&j);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.all.ranks[r].status, SGL_OK);
        assert_int_equal(j.ranks[r].later, r == 2 ? SGL_SCRIPT : SGL_IO);
        assert_int_equal(j.all.ranks[r].tells, r == 1);
        assert_false(j.all.ranks[r].lost);
        assert_non_null(strstr(j.all.ranks[r].message, r == 2 ? "why 2" : "why 1"));
    }
}

/* A state that a graph splits by itself would be saved as if it were whole. */
static void split_body(rank *r)
{
    static const char text[] =
        "graph \"split\" {\n"
        "  %0 = input() {role=0, name=\"v\", dtype=f32, dims=[2], layout=[0,-1,-1,-1,-1,-1,-1]}\n"
        "  %1 = neg(%0)\n  update \"v\" %1\n}\n";
    sgl_program *program;
    r->status = freeze(r, text, &program);
}

static void test_split_states(void **state)
{
    (void)state;
    job j = { .size = 2, .body = split_body };
    run_job(&j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j.all.ranks[r].status, SGL_UNSUPPORTED);
        assert_non_null(strstr(j.all.ranks[r].message, "v: the graph splits it over ranks by itself"));
    }
}

/* A part of a feed is what lies there in the whole, whatever dimensions are cut. */
static void parts_body(rank *r)
{
    static const char text[] = "graph \"parts\" {\n"
                               "  %0 = input() {role=2, name=\"x\", dtype=f32, dims=[2,3,4]}\n"
                               "  %1 = neg(%0)\n  fetch \"y\" %1\n}\n";
    static const int64_t at[] = { 1, 2, 5 }, dims[] = { 2, 3, 4 };
    int64_t whole[] = { 4, 5, 9 }, offsets[SGL_MAX_RANK], kept[SGL_MAX_RANK];
    sgl_program *program;
    const char *name;
    sgl_type type;
    float x[4 * 5 * 9], y[2 * 3 * 4];
    for (int i = 0; i < 4 * 5 * 9; i++) x[i] = (float)i;
    r->status = freeze(r, text, &program);
    if (r->status != SGL_OK) return;
    program->ranks = 1;
    for (int cut = 0; cut < 8; cut++) { /* which of the dimensions are */
        sglexec_port *port = &program->program->feeds.data[0];
        size_t bytes = sizeof(float);
        for (int d = 0; d < 3; d++) {
            port->whole[d] = cut >> d & 1 ? whole[d] : dims[d];
            port->at[d] = cut >> d & 1 ? at[d] : 0;
            bytes *= (size_t)port->whole[d];
        }
        if (sgl_feed(program, "x", x, bytes) != SGL_OK || sgl_step(program) != SGL_OK ||
            sgl_fetch(program, "y", y, sizeof y) != SGL_OK || sgl_program_feed(program, 0, &name, &type) != SGL_OK ||
            sgl_program_feed_part(program, 0, offsets, kept) != SGL_OK || type.dims[2] != port->whole[2] ||
            offsets[2] != port->at[2] || kept[2] != dims[2])
            r->status = SGL_INTERNAL;
        for (int64_t i = 0; i < 24 && r->status == SGL_OK; i++) {
            const int64_t a = i / 12 + port->at[0], b = i / 4 % 3 + port->at[1], c = i % 4 + port->at[2];
            if (y[i] != -x[(a * port->whole[1] + b) * port->whole[2] + c]) r->status = SGL_INTERNAL;
        }
    }
}

static void test_parts(void **state)
{
    (void)state;
    job j = { .size = 1, .body = parts_body };
    run_job(&j);
    assert_int_equal(j.all.ranks[0].status, SGL_OK);
}

/* ---- a comparison that one rank cannot begin ----------------------------------------------------------------------------------- */

typedef struct comparison_fault {
    int64_t fail_at; /* an allocation of rank 1, from the start of the comparison on */
} comparison_fault;

static const char decode_text[] = "graph \"decode\" {\n"
                                  "  %0 = input() {role=0, name=\"embed\", dtype=f32, dims=[8,4]}\n"
                                  "  %1 = input() {role=2, name=\"tokens\", dtype=i32, dims=[1,1]}\n"
                                  "  %2 = gather(%0, %1)\n"
                                  "  %3 = reshape(%2) {dims=[1,4]}\n"
                                  "  fetch \"logits\" %3\n}\n";
static const char few_text[] = "graph \"few\" {\n"
                               "  %0 = input() {role=0, name=\"embed\", dtype=f32, dims=[8,4]}\n"
                               "  %1 = input() {role=2, name=\"tokens\", dtype=i32, dims=[1,3]}\n"
                               "  %2 = input() {role=2, name=\"last\", dtype=i64, dims=[]}\n"
                               "  %3 = gather(%0, %1)\n"
                               "  %4 = dynamic_slice(%3, %2) {axis=1, size=1}\n"
                               "  %5 = reshape(%4) {dims=[1,4]}\n"
                               "  fetch \"logits\" %5\n}\n";

static sgl_status comparison_body(session_rank *r)
{
    static const session_layout layout = { 1, 1, 2, "embed tp:1" };
    const comparison_fault *fault = r->all->job;
    sgl_program *few;
    int agrees = 0;
    SGLCORE_TRY(session_rank_freeze(r, decode_text, &layout, NULL, &r->program));
    SGLCORE_TRY(session_rank_freeze(r, few_text, &layout, NULL, &few));
    if (r->number == 1) r->heap.counter = (fault_counter){ .fail_at = fault->fail_at };
    const sgl_status status = sgl_generate_agrees(r->session, r->program, few, &agrees);
    r->heap.counter = (fault_counter){ 0 };
    return status == SGL_OK && !agrees ? SGL_INTERNAL : status;
}

/* The other rank ends as well, and not at the deadline of an exchange that nobody comes to. */
static void test_comparison_faults(void **state)
{
    (void)state;
    comparison_fault fault = { 0 };
    bool tripped = true;
    for (fault.fail_at = 1; tripped; fault.fail_at++) {
        session_ranks all = { .size = 2, .body = comparison_body, .job = &fault };
        const int64_t since = sglcore_now_ns();
        session_ranks_run(&all);
        assert_true(sglcore_now_ns() - since < 10000000000);
        tripped = all.ranks[1].status != SGL_OK;
        if ((all.ranks[0].status != SGL_OK) != tripped)
            fail_msg("allocation %d: rank 0: %s", (int)fault.fail_at, all.ranks[0].message);
    }
    assert_true(fault.fail_at > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compares),
        cmocka_unit_test(test_compares_work),
        cmocka_unit_test(test_compares_exchanges),
        cmocka_unit_test(test_groups_of_stages),
        cmocka_unit_test(test_agrees),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_split_states),
        cmocka_unit_test(test_comparison_faults),
    };
    return cmocka_run_group_tests_name("session meet", tests, NULL, NULL);
}
