/* test_comm_elsewhere.c -- exchanges that devices make by themselves, as the comm tells of them: deadlines, whom they wait for,
 * what has ended in time.
 *
 * In: ranks over the loop that say where their devices are. Out: which of them fail, with which message, how soon.
 * ctest: serial */
#include "comm_case.h"

static const sglexec_exchange of_grads = { .kind = SGLEXEC_REDUCE_SCATTER,
                                           .label = "reduce_scatter of grads, llama.lua:42" };
static const sglexec_exchange of_head = { .kind = SGLEXEC_ALL_GATHER, .label = "all_gather of head, llama.lua:7" };

/* As a device that waits does: until the comm fails, or so long. */
static sgl_status device_waits(comm_rank *r, const sglexec_exchange *x, uint64_t number, int most_ms)
{
    sgl_status status = SGL_OK;
    for (int ms = 0; ms < most_ms && status == SGL_OK; ms += 5) {
        sglcomm_elsewhere(r->comm, x ? r->comm->world : NULL, x, number);
        comm_case_sleep_ms(5);
        status = sglcomm_check(r->comm, 0);
    }
    return status;
}

static void ends(const comm_case *all, int but, const char *const *texts)
{
    for (int n = 0; n < all->size; n++) {
        const comm_rank *r = &all->ranks[n];
        if (n == but) continue;
        assert_int_equal(r->status, SGL_DEVICE);
        for (int i = 0; texts[i]; i++)
            if (!strstr(r->message, texts[i])) fail_msg("'%s' is not in '%s'", texts[i], r->message);
        if (r->took_s > 2.5) fail_msg("rank %d needed %.2f s", n, r->took_s);
    }
}

/* Rank 2 is in no exchange: the others wait for it on their devices. */
static void idle_body(comm_rank *r)
{
    r->status = r->rank == 2 ? device_waits(r, NULL, 0, 5000) : device_waits(r, &of_grads, 117, 5000);
}

static void test_idle(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 2 on ",
                                         ": last seen ",
                                         "in no exchange for",
                                         "waits at exchange 117 (reduce_scatter of grads, llama.lua:42), "
                                         "reduce_scatter of group world",
                                         "(timeout 0.6 s)",
                                         NULL };
    comm_case all = { .size = 3, .options = { .timeout_s = 0.6 }, .body = idle_body };
    loop_world(3, 0);
    comm_case_run(&all);
    ends(&all, -1, texts);
}

/* Rank 1 waits for another exchange than the others. */
static void other_body(comm_rank *r)
{
    r->status = r->rank == 1 ? device_waits(r, &of_head, 116, 5000) : device_waits(r, &of_grads, 117, 5000);
}

static void test_other(void **state)
{
    (void)state;
    static const char *const texts[] = { "at exchange 11", "all_gather of head, llama.lua:7",
                                         "reduce_scatter of grads, llama.lua:42", NULL };
    comm_case all = { .size = 3, .options = { .timeout_s = 0.6 }, .body = other_body };
    loop_world(3, 0);
    comm_case_run(&all);
    ends(&all, -1, texts);
}

/* Rank 1 is stopped. */
static void stopped_body(comm_rank *r)
{
    if (r->rank == 1) loop_freeze(1);
    r->status = device_waits(r, &of_grads, 3, 5000);
}

static void test_stopped(void **state)
{
    (void)state;
    static const char *const texts[] = { "rank 1 on ", ": last seen ", "waits at exchange 3 (reduce_scatter of grads",
                                         NULL };
    comm_case all = { .size = 4, .options = { .timeout_s = 0.6 }, .body = stopped_body };
    loop_world(4, 0);
    comm_case_run(&all);
    ends(&all, 1, texts);
}

/* Each in time, together longer than the timeout; and none for longer than that. */
static void in_time_body(comm_rank *r)
{
    for (uint64_t number = 1; number <= 6 && r->status == SGL_OK; number++)
        r->status = device_waits(r, &of_grads, number, 250);
    if (r->status == SGL_OK) r->status = device_waits(r, NULL, 0, 1200);
}

static void test_in_time(void **state)
{
    (void)state;
    comm_case all = { .size = 2, .options = { .timeout_s = 0.8 }, .body = in_time_body };
    loop_world(2, 0);
    comm_case_run(&all);
    for (int r = 0; r < 2; r++)
        if (all.ranks[r].status != SGL_OK) fail_msg("rank %d: %s", r, all.ranks[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_other),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
