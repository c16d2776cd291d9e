/* pool.h -- the threads of the CPU backend: one pool, numbered tasks, the caller works too.
 *
 * In: a count of tasks and a function that runs one of them. Out: all of them have run when sglcpu_parallel returns.
 * Which thread runs which task is chance, so a task's result must not depend on it: callers cut their work by shapes
 * alone, and results have the same bits for any number of threads. */
#ifndef SGLCPU_POOL_H
#define SGLCPU_POOL_H

#include "core/core.h"

typedef struct sglcpu_pool sglcpu_pool;

/* worker: 0 .. threads - 1, for memory of one's own; the caller is worker 0. */
typedef void (*sglcpu_task)(void *context, int64_t task, int worker);

enum { SGLCPU_MAX_THREADS = 512 };

/* Cores this process may run on. */
int sglcpu_cores(void);

/* threads: at least 1, the caller counted; more than SGLCPU_MAX_THREADS counts as that many. */
sgl_status sglcpu_pool_open(sglcore_env *env, int threads, sglcpu_pool **pool);
void sglcpu_pool_close(sglcpu_pool *pool);
int sglcpu_pool_threads(const sglcpu_pool *pool);

/* Runs tasks 0 .. count - 1, count below 2^32. From inside a task it runs them one by one, as that task's worker. Not to be
 * called by two threads at once. */
void sglcpu_parallel(sglcpu_pool *pool, int64_t count, sglcpu_task run, void *context);

#endif
