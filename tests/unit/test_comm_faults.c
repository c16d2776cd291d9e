/* test_comm_faults.c -- ranks that are late, silent, busy, or differ; links that fail; allocations that fail; all over the loop.
 *
 * In: bodies of ranks. Out: which of them fail, with which message, how soon, and that one of them tells it.
 * ctest: serial */
#include "comm_case.h"

static sgl_status together(comm_rank *r, int number)
{
    static const char label[] = "all_reduce of grads, llama.lua:42";
    float data[64] = { 0 };
    uint32_t ticket;
    const sglexec_exchange x = { .kind = SGLEXEC_ALL_REDUCE,
                                 .dtype = SGL_F32,
                                 .count = 64,
                                 .from = data,
                                 .to = data,
                                 .number = (uint64_t)number,
                                 .label = label };
    SGLCORE_TRY(sglcomm_start(r->comm->world, &x, NULL, &ticket));
    return sglcomm_wait(r->comm->world, ticket, NULL);
}

/* Whoever failed has one message, in which all texts are; one rank tells it. `but`: a rank that is not asked. */
static void all_failed(const comm_case *all, int but, const char *const *texts, double within_s)
{
    int tellers = 0;
    const char *message = NULL;
    for (int r = 0; r < all->size; r++) {
        const comm_rank *rank = &all->ranks[r];
        if (r == but) continue;
        assert_int_equal(rank->status, SGL_DEVICE);
        if (!message) message = rank->message;
        assert_string_equal(rank->message, message);
        if (rank->took_s > within_s) fail_msg("rank %d needed %.2f s", r, rank->took_s);
        tellers += rank->tells;
    }
    for (int i = 0; texts[i]; i++)
        if (!strstr(message, texts[i])) fail_msg("'%s' is not in '%s'", texts[i], message);
    assert_int_equal(tellers, 1);
}

static void silent_body(comm_rank *r)
{
    for (int step = 0; step < 10 && r->status == SGL_OK; step++) {
        if (step == 5 && r->rank == 1) loop_freeze(1);
        comm_case_sleep_ms(30);
        r->status = together(r, step);
    }
}

static void test_silent(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 1 on ", ": last seen ",
                                         "waits at exchange 5 (all_reduce of grads, llama.lua:42), "
                                         "all_reduce of group world",
                                         "(timeout 0.8 s)", NULL };
    comm_case all = { .size = 4, .options = { .timeout_s = 0.8 }, .body = silent_body };
    loop_world(4, 0);
    comm_case_run(&all);
    all_failed(&all, 1, texts, 2.5);
}

static void late_body(comm_rank *r)
{
    for (int step = 0; step < 10 && r->status == SGL_OK; step++) {
        if (step == 3 && r->rank == 2) comm_case_sleep_ms(2000);
        r->status = together(r, step);
    }
}

static void test_late(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 2 on ", "in no exchange for 0.", "the last was 2 (all_reduce of grads",
                                         NULL };
    comm_case all = { .size = 3, .options = { .timeout_s = 0.6 }, .body = late_body };
    loop_world(3, 0);
    comm_case_run(&all);
    all_failed(&all, 2, texts, 1.5);
    assert_int_equal(all.ranks[2].status, SGL_DEVICE); /* it comes too late, and hears so */
    assert_string_equal(all.ranks[2].message, all.ranks[0].message);
}

/* Rank 0 waits for 1, which waits for 2 in a group of its own: 2 is named by both. */
static void chain_body(comm_rank *r)
{
    sglexec_group *pairs[2];
    float data[4] = { 0 };
    uint32_t ticket;
    for (int p = 0; p < 2; p++) {
        const int ranks[] = { p, p + 1 };
        const bool in = r->rank == p || r->rank == p + 1;
        const int alone[] = { r->rank };
        r->status = sglcomm_group(r->comm, "pair", in ? ranks : alone, in ? 2 : 1, &pairs[p]);
        if (r->status != SGL_OK) return;
    }
    if (r->rank == 2) comm_case_sleep_ms(1500);
    sglexec_exchange x = { .kind = SGLEXEC_ALL_REDUCE,
                           .dtype = SGL_F32,
                           .count = 4,
                           .from = data,
                           .to = data,
                           .number = 7,
                           .label = "chain" };
    for (int p = 1; p >= 0 && r->status == SGL_OK; p--) {
        if (r->rank != p && r->rank != p + 1) continue;
        r->status = sglcomm_start(pairs[p], &x, NULL, &ticket);
        if (r->status == SGL_OK) r->status = sglcomm_wait(pairs[p], ticket, NULL);
    }
}

static void test_chain(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 2 on ", "in no exchange", "of group pair", NULL };
    comm_case all = { .size = 3, .options = { .timeout_s = 0.5 }, .body = chain_body };
    loop_world(3, 0);
    comm_case_run(&all);
    all_failed(&all, 2, texts, 1.4);
}

static void busy_body(comm_rank *r)
{
    if (r->rank == 1) {
        sglcomm_busy(r->comm, "saving");
        comm_case_sleep_ms(1200);
        sglcomm_busy(r->comm, NULL);
    }
    r->status = together(r, 1);
}

static void test_busy(void **state)
{
    (void)state;
    comm_case all = { .size = 3, .options = { .timeout_s = 0.5 }, .body = busy_body };
    loop_world(3, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
    assert_true(all.ranks[0].took_s > 1.1);
}

/* A busy rank that falls silent is believed for half a deadline and no longer. */
static void busy_silent_body(comm_rank *r)
{
    if (r->rank == 1) {
        sglcomm_busy(r->comm, "saving");
        comm_case_sleep_ms(100);
        loop_freeze(1);
    }
    r->status = together(r, 1);
}

static void test_busy_and_silent(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 1 on ", "busy with saving", NULL };
    comm_case all = { .size = 3, .options = { .timeout_s = 0.6 }, .body = busy_silent_body };
    loop_world(3, 0);
    comm_case_run(&all);
    all_failed(&all, 1, texts, 2.0);
}

static void fail_body(comm_rank *r)
{
    r->status = together(r, 1);
    if (r->rank == 1) sglcomm_fail(r->comm, "train.lua:3: out of memory");
    /* Nothing ends, starts, or is made any more. */
    uint32_t ticket;
    sglexec_group *group;
    const int ranks[] = { 0, 1, 2, 3 };
    const sglexec_exchange x = { .kind = SGLEXEC_BARRIER, .label = "after" };
    if (r->status == SGL_OK) r->status = sglcomm_check(r->comm, 5000);
    if (sglcomm_start(r->comm->world, &x, NULL, &ticket) != SGL_DEVICE)
        r->fault = "an exchange started after the failure";
    if (sglcomm_wait(r->comm->world, 1, NULL) != SGL_DEVICE) r->fault = "an exchange ended after the failure";
    if (sglcomm_group(r->comm, "late", ranks, 4, &group) != SGL_DEVICE) r->fault = "a group was made after the failure";
}

static void test_fail(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 1 on ", " failed: train.lua:3: out of memory", NULL };
    comm_case all = { .size = 4, .options = { .timeout_s = 30 }, .body = fail_body };
    loop_world(4, 0);
    comm_case_run(&all);
    all_failed(&all, -1, texts, 1.0);
    for (int r = 0; r < 4; r++)
        if (all.ranks[r].fault) fail_msg("rank %d: %s", r, all.ranks[r].fault);
}

static void all_fail_body(comm_rank *r)
{
    r->status = together(r, 1);
    sglcomm_fail(r->comm, "the same on every rank");
    if (r->status == SGL_OK) r->status = sglcomm_check(r->comm, 0);
}

/* Every rank fails at the same moment: one tells it. */
static void test_all_fail(void **state)
{
    (void)state;
    static const char *const texts[] = { "failed: the same on every rank", NULL };
    comm_case all = { .size = 4, .options = { .timeout_s = 30 }, .body = all_fail_body };
    loop_world(4, 0);
    comm_case_run(&all);
    all_failed(&all, -1, texts, 1.0);
}

/* ---- ranks that differ ------------------------------------------------------------------------------------------------------- */

static void differ_body(comm_rank *r)
{
    const int way = *(const int *)r->all->context;
    const bool odd = r->rank == 1;
    static const int64_t even[] = { 8, 8 }, skew[] = { 4, 12 };
    float data[64] = { 0 }, to[64];
    sglexec_group *group = r->comm->world;
    uint32_t ticket;
    sglexec_exchange x = {
        .kind = SGLEXEC_ALL_REDUCE, .dtype = SGL_F32, .count = 16, .from = data, .to = to, .label = "x"
    };
    if (way == 0 && odd) x.kind = SGLEXEC_BARRIER;
    if (way == 1 && odd) x.dtype = SGL_I32;
    if (way == 2 && odd) x.reduction = SGLEXEC_MAX;
    if (way == 3 && odd) x.count = 8;
    if (way == 4) x.kind = SGLEXEC_BROADCAST, x.peer = r->rank;
    if (way == 5) x.kind = SGLEXEC_ALL_GATHER, x.counts = odd ? skew : even;
    if (way == 6) x.kind = SGLEXEC_ALL_TO_ALL, x.counts = odd ? skew : even, x.counts_in = odd ? skew : even;
    if (way == 7) {
        const int ranks[] = { odd, !odd };
        r->status = sglcomm_group(r->comm, "turned", ranks, 2, &group);
    }
    if (way == 8) {
        const int ranks[] = { 0, 1 };
        if (odd) r->status = sglcomm_group(r->comm, "one more", ranks, 2, &group);
    }
    for (int i = 0; i < 2 && r->status == SGL_OK; i++) {
        r->status = sglcomm_start(group, &x, NULL, &ticket);
        if (r->status == SGL_OK) r->status = sglcomm_wait(group, ticket, NULL);
        /* Of two who both think that they are the root nobody receives: the next exchange finds it out. */
        if (way == 4) x.kind = SGLEXEC_BARRIER;
    }
}

static void test_differ(void **state)
{
    (void)state;
    static const char *const texts[] = { "barrier", "i32",   "differ",          "count 8", "differ",
                                         "differ",  "bytes", "different ranks", "rank" };
    for (int way = 0; way < 9; way++) {
        comm_case all = {
            .size = 2, .options = { .timeout_s = way == 8 ? 0.5 : 20 }, .body = differ_body, .context = &way
        };
        const char *const here[] = { texts[way], NULL };
        loop_world(2, 0);
        comm_case_run(&all);
        all_failed(&all, -1, here, 2.0);
    }
}

/* ---- what fails below ---------------------------------------------------------------------------------------------------------- */

static void steps_body(comm_rank *r)
{
    r->status = together(r, 0);
    if (r->rank == 0) loop_fail_at(*(const int *)r->all->context);
    for (int step = 0; step < 3000 && r->status == SGL_OK; step++) r->status = together(r, step);
}

static void test_link_fails(void **state)
{
    (void)state;
    static const char *const texts[] = { "failed: the loop was asked to fail", NULL };
    for (int n = 1; n < 40; n += 3) {
        comm_case all = { .size = 2, .options = { .timeout_s = 20 }, .body = steps_body, .context = &n };
        loop_world(2, 0);
        comm_case_run(&all);
        all_failed(&all, -1, texts, 20);
    }
}

static sgl_status alone(sglcore_env *env, void *context)
{
    static const int ranks[] = { 0 };
    const sglexec_comm_options options = { .timeout_s = 5 };
    sglexec_comm *comm = NULL;
    sglexec_group *group;
    sglcore_text text = { 0 };
    (void)context;
    loop_world(1, 0);
    SGLCORE_TRY(sglcomm_open(env, &options, &loop_link, &comm));
    sgl_status status = sglcomm_group(comm, "own", ranks, 1, &group);
    if (status == SGL_OK) status = sglcomm_describe(comm, &text);
    sglcore_text_free(env, &text);
    sglcomm_close(comm);
    return status;
}

static void test_allocations(void **state)
{
    (void)state;
    assert_true(fault_allocations(alone, NULL, true) > 10);
}

static sgl_status self_alone(sglcore_env *env, void *context)
{
    static const int ranks[] = { 0 };
    const sglexec_comm_options options = { .timeout_s = 5 };
    sglexec_comm *comm = NULL;
    sglexec_group *group;
    (void)context;
    SGLCORE_TRY(sglexec_comm_self.open(env, &options, &comm));
    const sgl_status status = sglexec_comm_self.group(comm, "own", ranks, 1, &group);
    sglexec_comm_self.close(comm);
    return status;
}

static void test_self_allocations(void **state)
{
    (void)state;
    assert_int_equal(fault_allocations(self_alone, NULL, true), 2);
}

/* Nothing that an exchange needs is asked for when it runs. */
static void frugal_body(comm_rank *r)
{
    r->status = together(r, 0);
    const int64_t before = r->env.allocations;
    for (int step = 1; step < 50 && r->status == SGL_OK; step++) r->status = together(r, step);
    if (r->env.allocations != before) r->fault = "an exchange allocated";
}

static void test_frugal(void **state)
{
    (void)state;
    comm_case all = { .size = 3, .options = { .timeout_s = 30 }, .body = frugal_body };
    loop_world(3, 0);
    comm_case_run(&all);
    comm_case_all_good(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_busy_and_silent),
        cmocka_unit_test(test_fail),
        cmocka_unit_test(test_all_fail),
        cmocka_unit_test(test_differ),
        cmocka_unit_test(test_link_fails),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_self_allocations),
        cmocka_unit_test(test_frugal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
