/* test_stages_order.c -- schedules of a pipeline on paper: every turn once and after what it needs, idle time as the schedules' formulas
 * say, and how many micro-batches a stage keeps at the most. SGL_TESTS_SHOW=1 prints what is found. ctest: timeout 600 */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>

#include "passes/stages.h"

enum { MOST_STAGES = 8, MOST_MICRO = 20 };

typedef struct paper {
    double span;
    double idle[MOST_STAGES]; /* of each stage's span */
    int kept[MOST_STAGES];    /* most micro-batches, one for each chunk, that are begun forward and not done with */
} paper;

/* A chunk's micro-batch is done with when the last of its turns has ended. */
static int change_of(sglplan_schedule schedule, int chunks, const sglpass_stages_turn *turn)
{
    if (turn->position < chunks) return 1;
    bool last = schedule == SGLPLAN_ZERO_BUBBLE ? turn->position >= 2 * chunks : true;
    return last ? -1 : 0;
}

static void check_order(const sglpass_stages_turn *turns, int64_t count, int chunks, int64_t micro)
{
    double *ends = calloc((size_t)count, sizeof *ends);
    assert_non_null(ends);
    for (int64_t i = 0; i < count; i++) {
        const sglpass_stages_turn *t = &turns[i];
        double *own = &ends[t->position * micro + t->micro];
        int32_t before = t->position < 2 * chunks ? t->position - 1 : 4 * chunks - 1 - t->position;
        assert_true(*own == 0 && t->end > t->begin && (i == 0 || turns[i - 1].begin <= t->begin));
        if (before >= 0) assert_true(ends[before * micro + t->micro] > 0);
        if (before >= 0) assert_true(ends[before * micro + t->micro] <= t->begin);
        *own = t->end;
    }
    free(ends);
}

static paper simulate(sglplan_schedule schedule, int stages, int each, int64_t micro)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_arena arena = { .env = &env };
    const int chunks = stages * each;
    sglpass_stages_turn *turns;
    int64_t count;
    paper p = { 0 };
    int now[MOST_STAGES] = { 0 };
    double busy[MOST_STAGES] = { 0 }, free_at[MOST_STAGES] = { 0 };
    assert_int_equal(sglpass_stages_order(&env, &arena, schedule, stages, chunks, micro, &turns, &count), SGL_OK);
    assert_int_equal(count, (schedule == SGLPLAN_ZERO_BUBBLE ? 3 : 2) * chunks * micro);
    check_order(turns, count, chunks, micro);
    for (int64_t i = 0; i < count; i++) {
        const sglpass_stages_turn *t = &turns[i];
        assert_int_equal(t->stage, sglpass_chunk_of(chunks, t->position) % stages);
        assert_true(t->begin >= free_at[t->stage]); /* one at a time */
        free_at[t->stage] = t->end;
        busy[t->stage] += t->end - t->begin;
        if (t->end > p.span) p.span = t->end;
        int change = change_of(schedule, chunks, t);
        now[t->stage] += change;
        if (now[t->stage] > p.kept[t->stage]) p.kept[t->stage] = now[t->stage];
    }
    for (int s = 0; s < stages; s++) {
        assert_float_equal(busy[s], 3.0 * (double)micro, 1e-9);
        assert_int_equal(now[s], 0);
        p.idle[s] = 1 - busy[s] / p.span;
    }
    sglcore_arena_free(&arena);
    return p;
}

/* Idle time over the span, of each stage, against the formula; all within two points, and where nothing is rounded, the same. */
static void check_idle(const char *name, const paper *p, int stages, int each, int64_t micro, double idle)
{
    double formula = idle / ((double)micro + idle);
    if (getenv("SGL_TESTS_SHOW"))
        printf("%-11s p=%d v=%d m=%2d: idle %.4f, formula %.4f; stage 0 keeps %d, stage %d %d\n", name, stages, each,
               (int)micro, p->idle[0], formula, p->kept[0], stages - 1, p->kept[stages - 1]);
    for (int s = 0; s < stages; s++) assert_float_equal(p->idle[s], formula, 1e-9);
}

static int least(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

static void test_plain(void **state)
{
    (void)state;
    for (int stages = 1; stages <= MOST_STAGES; stages++) {
        for (int64_t micro = 1; micro <= MOST_MICRO; micro++) {
            paper gpipe = simulate(SGLPLAN_GPIPE, stages, 1, micro), f1b1 = simulate(SGLPLAN_1F1B, stages, 1, micro);
            check_idle("gpipe", &gpipe, stages, 1, micro, stages - 1);
            check_idle("1f1b", &f1b1, stages, 1, micro, stages - 1);
            for (int s = 0; s < stages; s++) {
                assert_int_equal(gpipe.kept[s], micro);
                assert_int_equal(f1b1.kept[s], least(stages - s, micro));
            }
        }
    }
}

/* (p - 1) / v where a round has p micro-batches at least; fewer leave a gap behind each chunk but one. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int stages = 2; stages <= MOST_STAGES; stages++) {
        for (int each = 1; each <= 4; each++) {
            for (int64_t micro = 1; micro <= MOST_MICRO; micro++) {
                paper p = simulate(SGLPLAN_INTERLEAVED, stages, each, micro);
                double gaps = micro < stages ? (double)(stages - micro) * (each - 1) / each : 0;
                check_idle("interleaved", &p, stages, each, micro, (stages - 1.0) / each + gaps);
                int64_t rounds = micro < stages ? 1 : micro / stages, round = (micro + rounds - 1) / rounds;
                for (int s = 0; s < stages; s++) {
                    int64_t ahead = each == 1 ? stages - 1 - s : 2 * (stages - 1 - s) + (each - 1) * round;
                    assert_int_equal(p.kept[s], least(ahead + 1, micro * each));
                }
            }
        }
    }
}

/* ZB-H1: (p - 1) (T_F + T_B - T_W), a third of that of 1f1b; every stage keeps as many as 1f1b's first. */
static void test_zero_bubble(void **state)
{
    (void)state;
    for (int stages = 1; stages <= MOST_STAGES; stages++) {
        for (int64_t micro = 1; micro <= MOST_MICRO; micro++) {
            paper p = simulate(SGLPLAN_ZERO_BUBBLE, stages, 1, micro);
            double gaps = micro < stages ? (double)(stages - micro) / 3 : 0;
            check_idle("zero-bubble", &p, stages, 1, micro, (stages - 1) / 3.0 + gaps);
            for (int s = 0; s < stages; s++) assert_int_equal(p.kept[s], least(stages, micro));
        }
    }
}

/* Shapes that no one would time: each comes to its end. */
static void test_wide(void **state)
{
    (void)state;
    static const int shapes[][3] = { { 64, 1, 3 }, { 16, 6, 65 }, { 33, 3, 40 }, { 64, 4, 67 } };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        sglcore_arena arena = { .env = &env };
        sglpass_stages_turn *turns;
        int64_t count;
        int chunks = shapes[i][0] * shapes[i][1];
        assert_int_equal(sglpass_stages_order(&env, &arena, SGLPLAN_INTERLEAVED, shapes[i][0], chunks, shapes[i][2],
                                              &turns, &count),
                         SGL_OK);
        check_order(turns, count, chunks, shapes[i][2]);
        sglcore_arena_free(&arena);
    }
}

/* ---- failing allocations ----------------------------------------------------------------------------------------------- */

static sgl_status order_once(sglcore_env *env, void *user)
{
    (void)user;
    sglcore_arena arena = { .env = env };
    sglpass_stages_turn *turns;
    int64_t count;
    sgl_status status = sglpass_stages_order(env, &arena, SGLPLAN_INTERLEAVED, 3, 6, 4, &turns, &count);
    sglcore_arena_free(&arena);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    fault_each_allocation(order_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_interleaved),         cmocka_unit_test(test_zero_bubble),
        cmocka_unit_test(test_wide),  cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
