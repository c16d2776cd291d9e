/* test_tune_simulate.c -- ranks on paper: times of work and of exchanges beside it, groups that do not wait for one another,
 * the bubble of a pipeline against its formula; ranks that would wait in a circle, meet in different exchanges, or end while
 * another waits for them, told with both sides. Failing allocations. */
#include "fault.h"

#include <stdio.h>

#include "tune/simulate.h"

enum { MOST = 16 };

typedef struct run {
    sglcore_env env;
    sglplan plan;
    int64_t ranks;
    sgltune_list lists[MOST];
    sgltune_times times[MOST];
} run;

#define DP SGLPLAN_AXIS(SGLIR_AXIS_DP)
#define TP SGLPLAN_AXIS(SGLIR_AXIS_TP)
#define PP SGLPLAN_AXIS(SGLIR_AXIS_PP)

static void open_run(run *r, int64_t pp, int64_t dp, int64_t tp)
{
    *r = (run){ .ranks = pp * dp * tp };
    sglcore_env_init(&r->env, NULL, NULL, NULL, NULL);
    sglplan_init(&r->plan);
    r->plan.mesh[SGLIR_AXIS_PP] = pp;
    r->plan.mesh[SGLIR_AXIS_DP] = dp;
    r->plan.mesh[SGLIR_AXIS_TP] = tp;
}

static sgl_status simulate(run *r)
{
    const sgltune_list *lists[MOST];
    for (int64_t i = 0; i < r->ranks; i++) lists[i] = &r->lists[i];
    return sgltune_simulate(&r->env, &r->plan, r->ranks, lists, r->times);
}

static void close_run(run *r)
{
    for (int64_t i = 0; i < r->ranks; i++) sgltune_list_free(&r->env, &r->lists[i]);
}

static void work(run *r, int64_t rank, double seconds)
{
    assert_int_equal(sgltune_list_work(&r->env, &r->lists[rank], seconds), SGL_OK);
}

static uint32_t begin(run *r, int64_t rank, sgltune_way way, uint64_t amount, double seconds, const char *label)
{
    uint32_t event = 0;
    sgltune_event e = { .kind = 7, .amount = amount, .seconds = seconds };
    assert_int_equal(sgltune_list_label(&r->env, &r->lists[rank], label, &e.label), SGL_OK);
    assert_int_equal(sgltune_list_begin(&r->env, &r->lists[rank], &way, &e, &event), SGL_OK);
    return event;
}

static void wait(run *r, int64_t rank, uint32_t event)
{
    assert_int_equal(sgltune_list_wait(&r->env, &r->lists[rank], event), SGL_OK);
}

static sgltune_way over(sglplan_axes axes) { return (sgltune_way){ .axes = axes, .from = -1, .to = -1 }; }

static void meet(run *r, int64_t rank, sglplan_axes axes, const char *label)
{
    wait(r, rank, begin(r, rank, over(axes), 4, 1, label));
}

static void expect(const run *r, int64_t rank, double step, double exposed)
{
    assert_true(r->times[rank].step == step);
    assert_true(r->times[rank].exposed == exposed);
}

static void test_exchange_beside_work(void **state)
{
    (void)state;
    run r;
    open_run(&r, 1, 2, 1);
    for (int64_t rank = 0; rank < 2; rank++) {
        uint32_t sum = begin(&r, rank, over(DP), 4, 2, "sum");
        work(&r, rank, 3);
        wait(&r, rank, sum);
        work(&r, rank, 1);
    }
    assert_int_equal(simulate(&r), SGL_OK);
    expect(&r, 0, 4, 0);
    close_run(&r);
}

static void test_waited_at_once(void **state)
{
    (void)state;
    run r;
    open_run(&r, 1, 2, 1);
    work(&r, 1, 5); /* late: the other one waits for it too */
    for (int64_t rank = 0; rank < 2; rank++) {
        wait(&r, rank, begin(&r, rank, over(DP), 4, 2, "sum"));
        work(&r, rank, 3);
        work(&r, rank, 1);
    }
    assert_int_equal(simulate(&r), SGL_OK);
    expect(&r, 0, 11, 7);
    expect(&r, 1, 11, 2);
    assert_int_equal(r.lists[0].events.count, 3); /* work is one event */
    close_run(&r);
}

/* Of one group one after another; of two the link is one, and latencies run beside each other. */
static void test_groups(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        run r;
        open_run(&r, 1, 2, 2);
        for (int64_t rank = 0; rank < 4; rank++) {
            uint32_t a = begin(&r, rank, over(DP), 4, 2, "a");
            uint32_t b = begin(&r, rank, over(same ? DP : TP), 4, 3, "b");
            wait(&r, rank, b);
            wait(&r, rank, a);
        }
        assert_int_equal(simulate(&r), SGL_OK);
        expect(&r, 3, 5, 5);
        for (int64_t rank = 0; rank < 4; rank++)
            for (int64_t i = 0; i < r.lists[rank].events.count; i++) r.lists[rank].events.data[i].latency = 10;
        assert_int_equal(simulate(&r), SGL_OK);
        expect(&r, 3, same ? 25 : 15, same ? 25 : 15);
        close_run(&r);
    }
}

/* What is sent takes the link of who sends; two that send to each other do so at once. */
static void test_one_link_out(void **state)
{
    (void)state;
    run r;
    open_run(&r, 3, 1, 1);
    uint32_t to[2], back[2], at[2], sent[2];
    for (int i = 0; i < 2; i++) { /* 0 sends to 1 and 2, which send back */
        to[i] = begin(&r, 0, (sgltune_way){ PP, 0, i + 1, 0 }, 8, 4, "to");
        back[i] = begin(&r, 0, (sgltune_way){ PP, i + 1, 0, 0 }, 8, 4, "back");
        at[i] = begin(&r, i + 1, (sgltune_way){ PP, 0, i + 1, 0 }, 8, 4, "to");
        sent[i] = begin(&r, i + 1, (sgltune_way){ PP, i + 1, 0, 0 }, 8, 4, "back");
        wait(&r, i + 1, at[i]);
        wait(&r, i + 1, sent[i]);
    }
    for (int i = 0; i < 2; i++) wait(&r, 0, back[i]);
    work(&r, 0, 1);
    for (int i = 0; i < 2; i++) wait(&r, 0, to[i]);
    assert_int_equal(simulate(&r), SGL_OK);
    expect(&r, 0, 8, 7);
    expect(&r, 1, 4, 4);
    expect(&r, 2, 8, 8);
    close_run(&r);
}

/* GPipe: all micro-batches forward, then backward; the ends of a channel begin as they come. */
static void test_bubble(void **state)
{
    (void)state;
    enum { STAGES = 4, MICRO = 6 };
    run r;
    open_run(&r, STAGES, 1, 1);
    for (int64_t s = 0; s < STAGES; s++) {
        const int32_t here = (int32_t)s;
        uint32_t sent[2 * MICRO], count = 0;
        for (int backward = 0; backward < 2; backward++) {
            const int32_t before = backward ? here + 1 : here - 1, after = backward ? here - 1 : here + 1;
            for (int m = 0; m < MICRO; m++) {
                if (before >= 0 && before < STAGES)
                    wait(&r, s, begin(&r, s, (sgltune_way){ PP, before, here, 0 }, 8, 0, "receive"));
                work(&r, s, backward ? 2 : 1);
                if (after >= 0 && after < STAGES)
                    sent[count++] = begin(&r, s, (sgltune_way){ PP, here, after, 0 }, 8, 0, "send");
            }
        }
        for (uint32_t i = 0; i < count; i++) wait(&r, s, sent[i]);
    }
    assert_int_equal(simulate(&r), SGL_OK);
    expect(&r, 0, (MICRO + STAGES - 1) * 3, (STAGES - 1) * 3);
    close_run(&r);
}

static void fails(run *r, const char *const *parts)
{
    assert_int_equal(simulate(r), SGL_INVALID_ARGUMENT);
    for (; *parts; parts++) {
        if (strstr(r->env.message, *parts)) continue;
        print_error("'%s' is not in '%s'\n", *parts, r->env.message);
        fail();
    }
    close_run(r);
}

/* Every group has the same order, and yet nobody can go on: (0,1) and (2,3) of tp, (0,2) and (1,3) of dp. */
static void test_circle(void **state)
{
    (void)state;
    for (int begun_first = 0; begun_first < 2; begun_first++) {
        run r;
        open_run(&r, 1, 2, 2);
        for (int64_t rank = 0; rank < 4; rank++) {
            const bool dp_first = rank == 0 || rank == 3;
            if (begun_first) {
                uint32_t a = begin(&r, rank, over(DP), 4, 1, "a"), b = begin(&r, rank, over(TP), 4, 1, "b");
                wait(&r, rank, dp_first ? a : b);
                wait(&r, rank, dp_first ? b : a);
                continue;
            }
            meet(&r, rank, dp_first ? DP : TP, dp_first ? "sum of w, a.lua:3" : "sum of x, a.lua:9");
            meet(&r, rank, dp_first ? TP : DP, dp_first ? "sum of x, a.lua:9" : "sum of w, a.lua:3");
        }
        if (begun_first) {
            assert_int_equal(simulate(&r), SGL_OK);
            close_run(&r);
            continue;
        }
        fails(&r,
              (const char *const[]){ "never end: rank 0 waits in sum of w, a.lua:3 for rank 2, which waits in sum of "
                                     "x, a.lua:9 for rank 3, which waits in sum of w, a.lua:3 for rank 1, which waits "
                                     "in sum of x, a.lua:9 for rank 0; nothing was started",
                                     NULL });
    }
}

/* Two that send to each other, and receive when that is over, hang: nothing is buffered. */
static void test_sends_that_cross(void **state)
{
    (void)state;
    for (int later = 0; later < 2; later++) {
        run r;
        open_run(&r, 2, 1, 1);
        for (int32_t s = 0; s < 2; s++) {
            uint32_t sent = begin(&r, s, (sgltune_way){ PP, s, 1 - s, 0 }, 8, 1, s ? "send up" : "send down");
            if (!later) wait(&r, s, sent);
            wait(&r, s, begin(&r, s, (sgltune_way){ PP, 1 - s, s, 0 }, 8, 1, s ? "receive down" : "receive up"));
            if (later) wait(&r, s, sent);
        }
        if (!later) {
            fails(&r, (const char *const[]){ "rank 0 waits in send down for rank 1",
                                             "rank 1, which waits in send up for rank 0", NULL });
            continue;
        }
        assert_int_equal(simulate(&r), SGL_OK);
        expect(&r, 0, 1, 1);
        close_run(&r);
    }
}

static void test_different_exchanges(void **state)
{
    (void)state;
    run r;
    open_run(&r, 1, 2, 1);
    wait(&r, 0, begin(&r, 0, over(DP), 4, 1, "sum of w, a.lua:3"));
    wait(&r, 1, begin(&r, 1, over(DP), 8, 1, "sum of x, a.lua:4"));
    fails(&r, (const char *const[]){ "in another exchange", "sum of w, a.lua:3", "sum of x, a.lua:4", "rank 0",
                                     "rank 1", NULL });

    open_run(&r, 1, 3, 1);
    for (int64_t rank = 0; rank < 3; rank++) meet(&r, rank, DP, "one");
    meet(&r, 0, DP, "two");
    meet(&r, 2, DP, "two");
    fails(&r, (const char *const[]){ "rank 0 waits in two for rank 1, which ends its step without it", NULL });
}

static sgl_status body(sglcore_env *env, void *context)
{
    (void)context;
    run r;
    open_run(&r, 1, 2, 1);
    r.env = *env;
    sgl_status status = SGL_OK;
    const sgltune_way way = over(DP);
    for (int64_t rank = 0; rank < 2 && status == SGL_OK; rank++) {
        for (int i = 0; i < 40 && status == SGL_OK; i++) {
            uint32_t event;
            sgltune_event e = { .kind = 1, .amount = 4 };
            status = sgltune_list_label(&r.env, &r.lists[rank], "sum", &e.label);
            if (status == SGL_OK) status = sgltune_list_begin(&r.env, &r.lists[rank], &way, &e, &event);
            if (status == SGL_OK) status = sgltune_list_work(&r.env, &r.lists[rank], 1);
            if (status == SGL_OK && rank + i > 0) status = sgltune_list_wait(&r.env, &r.lists[rank], event);
        }
    }
    if (status == SGL_OK) status = simulate(&r);
    close_run(&r);
    *env = r.env;
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
        cmocka_unit_test(test_exchange_beside_work),
        cmocka_unit_test(test_waited_at_once),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_bubble),
        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_sends_that_cross),
        cmocka_unit_test(test_one_link_out),
        cmocka_unit_test(test_different_exchanges),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
