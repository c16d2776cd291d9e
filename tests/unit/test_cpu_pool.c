/* test_cpu_pool.c -- the pool of the CPU backend: every task once, no worker in two tasks at once, calls from inside tasks,
 * tasks that fail, workers that sleep, shutdown. Each on one to four threads. */
#include "fault.h"

#include <stdatomic.h>
#include <time.h>

#include "backend/cpu/pool.h"

enum { MOST_THREADS = 4, MOST_TASKS = 5000 };

typedef struct job {
    sglcpu_pool *pool;
    int threads;
    _Atomic int runs[MOST_TASKS];
    _Atomic int busy[MOST_THREADS]; /* tasks that each worker is in */
    _Atomic int crossed;            /* times a worker was in two tasks, or had a number beyond the threads */
    int64_t inner;                  /* tasks of a call from inside each task */
    _Atomic int64_t inner_runs, inner_moved;
    sgl_status status[MOST_TASKS]; /* each task writes its own */
} job;

static void rest(int64_t microseconds)
{
    struct timespec time = { .tv_nsec = (long)(microseconds * 1000) };
    nanosleep(&time, NULL);
}

static sglcpu_pool *open_pool(sglcore_env *env, int threads)
{
    sglcpu_pool *pool = NULL;
    sglcore_env_init(env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglcpu_pool_open(env, threads, &pool), SGL_OK);
    assert_int_equal(sglcpu_pool_threads(pool), threads < 1 ? 1 : threads);
    return pool;
}

static void close_pool(sglcore_env *env, sglcpu_pool *pool)
{
    sglcpu_pool_close(pool);
    assert_int_equal(env->bytes_in_use, 0);
}

static void count_task(void *context, int64_t task, int worker)
{
    job *j = context;
    if (worker < 0 || worker >= j->threads) {
        atomic_fetch_add(&j->crossed, 1);
        return;
    }
    if (atomic_fetch_add(&j->busy[worker], 1) != 0) atomic_fetch_add(&j->crossed, 1);
    atomic_fetch_add(&j->runs[task], 1);
    if (task % 64 == 0) rest(1);
    atomic_fetch_sub(&j->busy[worker], 1);
}

static void each_task_runs_once(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 64, 1000, MOST_TASKS };
    static job j;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        sglcore_env env;
        sglcpu_pool *pool = open_pool(&env, threads);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            memset(&j, 0, sizeof j);
            j.threads = threads;
            sglcpu_parallel(pool, counts[c], count_task, &j);
            for (int64_t t = 0; t < MOST_TASKS; t++) assert_int_equal(j.runs[t], t < counts[c]);
            assert_int_equal(j.crossed, 0);
        }
        close_pool(&env, pool);
    }
}

static void add_task(void *context, int64_t task, int worker)
{
    (void)worker;
    atomic_fetch_add((_Atomic int64_t *)context, task + 1);
}

/* Jobs so short that a worker wakes to an older one than the one that is up. */
static void short_jobs_follow_each_other(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        sglcore_env env;
        sglcpu_pool *pool = open_pool(&env, threads);
        for (int round = 0; round < 3000; round++) {
            _Atomic int64_t sum = 0;
            int64_t count = 1 + round % 6;
            sglcpu_parallel(pool, count, add_task, &sum);
            assert_int_equal(sum, count * (count + 1) / 2);
            if (round % 1000 == 999) rest(3000); /* long enough to fall asleep */
        }
        close_pool(&env, pool);
    }
}

typedef struct inner_job {
    job *outer;
    int worker;
} inner_job;

static void inner_task(void *context, int64_t task, int worker)
{
    const inner_job *i = context;
    (void)task;
    atomic_fetch_add(&i->outer->inner_runs, 1);
    if (worker != i->worker) atomic_fetch_add(&i->outer->inner_moved, 1);
}

static void outer_task(void *context, int64_t task, int worker)
{
    job *j = context;
    count_task(context, task, worker);
    sglcpu_parallel(j->pool, j->inner, inner_task, &(inner_job){ j, worker });
}

static void a_call_from_inside_runs_there(void **state)
{
    (void)state;
    static job j;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        sglcore_env env;
        sglcpu_pool *pool = open_pool(&env, threads);
        memset(&j, 0, sizeof j);
        j.pool = pool;
        j.threads = threads;
        j.inner = 9;
        sglcpu_parallel(pool, 300, outer_task, &j);
        for (int64_t t = 0; t < 300; t++) assert_int_equal(j.runs[t], 1);
        assert_int_equal(j.crossed, 0);
        assert_int_equal(j.inner_runs, 300 * 9);
        assert_int_equal(j.inner_moved, 0);
        _Atomic int64_t sum = 0; /* and outside all is as before */
        sglcpu_parallel(pool, 100, add_task, &sum);
        assert_int_equal(sum, 5050);
        close_pool(&env, pool);
    }
}

/* How tasks report: each into a place of its own. */
static void failing_task(void *context, int64_t task, int worker)
{
    job *j = context;
    count_task(context, task, worker);
    j->status[task] = task % 10 == 7 ? SGL_DEVICE : SGL_OK;
}

static void a_task_that_fails_stops_no_other(void **state)
{
    (void)state;
    static job j;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        sglcore_env env;
        sglcpu_pool *pool = open_pool(&env, threads);
        for (int round = 0; round < 2; round++) {
            memset(&j, 0, sizeof j);
            j.threads = threads;
            sglcpu_parallel(pool, 100, failing_task, &j);
            for (int64_t t = 0; t < 100; t++) {
                assert_int_equal(j.runs[t], 1);
                assert_int_equal(j.status[t], t % 10 == 7 ? SGL_DEVICE : SGL_OK);
            }
        }
        close_pool(&env, pool);
    }
}

static void a_pool_ends_at_any_time(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        for (int round = 0; round < 12; round++) {
            sglcore_env env;
            sglcpu_pool *pool = open_pool(&env, threads);
            _Atomic int64_t sum = 0;
            if (round % 3 == 1) sglcpu_parallel(pool, 20, add_task, &sum);
            if (round % 4 == 2) rest(2000); /* its workers sleep */
            close_pool(&env, pool);
            assert_int_equal(sum, round % 3 == 1 ? 210 : 0);
        }
    }
    sglcpu_pool_close(NULL);
}

static void absurd_numbers_of_threads(void **state)
{
    (void)state;
    sglcore_env env;
    close_pool(&env, open_pool(&env, 0));
    close_pool(&env, open_pool(&env, -3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_task_runs_once),           cmocka_unit_test(short_jobs_follow_each_other),
        cmocka_unit_test(a_call_from_inside_runs_there), cmocka_unit_test(a_task_that_fails_stops_no_other),
        cmocka_unit_test(a_pool_ends_at_any_time),       cmocka_unit_test(absurd_numbers_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
