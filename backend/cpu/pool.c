/* pool.c -- the pool: persistent workers that spin briefly for the next job, then sleep.
 *
 * A job is published by one atomic word, the ticket: its generation and the number of tasks not yet claimed. A thread
 * claims a task by lowering that number by one. The claim holds the job in place, because the caller returns only when
 * every claimed task is done; so what describes the job may be read after the claim, and a worker that wakes too late
 * finds nothing to claim and touches nothing. A call from inside a task runs its tasks there, as the same worker. Odd
 * invariant: the caller never waits for a worker that has no task. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "backend/cpu/pool.h"

enum { SPIN_TURNS = 1500 }; /* some 20 to 60 us, longer than the serial work between two jobs of a step */

struct sglcpu_pool {
    sglcore_env *env;
    int threads;                 /* the caller counted */
    int started;                 /* of the others */
    int spin_turns;              /* 0 where there are more threads than cores */
    struct pool_worker *workers; /* threads - 1 of them */

    _Alignas(64) _Atomic uint64_t ticket; /* generation << 32 | tasks not yet claimed */
    _Alignas(64) _Atomic int64_t pending; /* tasks not yet done */
    _Atomic(sglcpu_task) run;
    _Atomic(void *) context;
    _Atomic int64_t count;

    _Alignas(64) _Atomic int sleepers; /* workers that sleep or are about to */
    _Atomic bool caller_sleeps;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
};

typedef struct pool_worker {
    sglcpu_pool *pool;
    int number;
    pthread_t thread;
} pool_worker;

int sglcpu_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int cores = CPU_COUNT(&set);
    return cores < 1 ? 1 : cores;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The worker whose task this thread runs, -1 outside of tasks. */
static _Thread_local int task_of_worker = -1;

static uint32_t unclaimed(uint64_t ticket) { return (uint32_t)ticket; }

/* Runs tasks of the job that is up until none is left to claim. */
static void run_tasks(sglcpu_pool *pool, int worker)
{
    task_of_worker = worker;
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (unclaimed(ticket) > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire)) {
            continue;
        }
        int64_t count = atomic_load_explicit(&pool->count, memory_order_relaxed);
        sglcpu_task run = atomic_load_explicit(&pool->run, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
        run(context, count - (int64_t)unclaimed(ticket), worker);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
    task_of_worker = -1;
}

static bool work_or_stop(sglcpu_pool *pool)
{
    return unclaimed(atomic_load(&pool->ticket)) > 0 || atomic_load(&pool->stop);
}

static void sleep_for_work(sglcpu_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!work_or_stop(pool)) pthread_cond_wait(&pool->work, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *argument)
{
    const pool_worker *self = argument;
    sglcpu_pool *pool = self->pool;
    while (!atomic_load(&pool->stop)) {
        run_tasks(pool, self->number);
        int turns = 0;
        while (turns < pool->spin_turns && !work_or_stop(pool)) {
            relax();
            turns++;
        }
        if (!work_or_stop(pool)) sleep_for_work(pool);
    }
    return NULL;
}

/* The host's signals are for the host's threads. */
static int start_worker(pool_worker *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

sgl_status sglcpu_pool_open(sglcore_env *env, int threads, sglcpu_pool **result)
{
    *result = NULL;
    if (threads < 1) threads = 1;
    if (threads > SGLCPU_MAX_THREADS) threads = SGLCPU_MAX_THREADS;
    sglcpu_pool *pool = sglcore_alloc_aligned(env, sizeof *pool, 64);
    if (pool == NULL) return SGL_OUT_OF_MEMORY;
    *pool = (sglcpu_pool){ .env = env, .threads = threads, .spin_turns = threads > sglcpu_cores() ? 0 : SPIN_TURNS };
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    if (threads > 1) {
        pool->workers = sglcore_alloc_zero(env, (size_t)(threads - 1) * sizeof *pool->workers);
        if (pool->workers == NULL) {
            sglcpu_pool_close(pool);
            return SGL_OUT_OF_MEMORY;
        }
    }
    for (; pool->started < threads - 1; pool->started++) {
        pool_worker *w = &pool->workers[pool->started];
        *w = (pool_worker){ .pool = pool, .number = pool->started + 1 };
        int error = start_worker(w);
        if (error != 0) {
            int number = w->number + 1;
            sglcpu_pool_close(pool);
            return sglcore_fail(env, SGL_DEVICE, "cpu: cannot start thread %d of %d (error %d); ask for fewer threads",
                                number, threads, error);
        }
    }
    *result = pool;
    return SGL_OK;
}

void sglcpu_pool_close(sglcpu_pool *pool)
{
    if (pool == NULL) return;
    sglcore_env *env = pool->env;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    if (pool->workers != NULL) sglcore_free(env, pool->workers, (size_t)(pool->threads - 1) * sizeof *pool->workers);
    sglcore_free_aligned(env, pool, sizeof *pool, 64);
}

int sglcpu_pool_threads(const sglcpu_pool *pool) { return pool->threads; }

static void wake_workers(sglcpu_pool *pool, int64_t wanted)
{
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->lock);
    if (wanted >= atomic_load(&pool->sleepers)) {
        pthread_cond_broadcast(&pool->work);
    } else {
        for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void wait_until_done(sglcpu_pool *pool)
{
    for (int turns = 0; turns < pool->spin_turns; turns++) {
        if (atomic_load_explicit(&pool->pending, memory_order_acquire) == 0) return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->pending) > 0) pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

void sglcpu_parallel(sglcpu_pool *pool, int64_t count, sglcpu_task run, void *context)
{
    if (count <= 1 || pool->threads == 1 || task_of_worker >= 0) {
        int worker = task_of_worker < 0 ? 0 : task_of_worker;
        for (int64_t task = 0; task < count; task++) run(context, task, worker);
        return;
    }
    atomic_store_explicit(&pool->run, run, memory_order_relaxed);
    atomic_store_explicit(&pool->context, context, memory_order_relaxed);
    atomic_store_explicit(&pool->count, count, memory_order_relaxed);
    atomic_store_explicit(&pool->pending, count, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&pool->ticket, generation << 32 | (uint64_t)count);
    wake_workers(pool, count - 1);
    run_tasks(pool, 0);
    wait_until_done(pool);
}
