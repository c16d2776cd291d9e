/* comm_case.h -- ranks of a test as threads of this process, each with an env and a comm over the loop link.
 *
 * In: a body for each rank. Out: after comm_case_run the status and message of each. The envs count their bytes: what a comm
 * keeps is a failed assertion. */
#ifndef COMM_CASE_H
#define COMM_CASE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/engine.h"
#include "tests/support/exchange_case.h"
#include "tests/support/loop_link.h"
#include "fault.h"

typedef struct comm_rank {
    pthread_t thread;
    struct comm_case *all;
    sglcore_env env;
    sglexec_comm *comm;
    int rank; /* set before the body runs */
    sgl_status status;
    const char *fault;
    bool tells;
    double took_s;
    char message[2048];
} comm_rank;

typedef struct comm_case {
    int size;
    sglexec_comm_options options;
    void (*body)(comm_rank *r);
    void *context;
    comm_rank ranks[LOOP_RANKS]; /* by rank once they have joined */
    pthread_mutex_t lock;
} comm_case;

static inline double comm_case_now_s(void) { return (double)sglcore_now_ns() / 1e9; }
static inline void comm_case_sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

static inline void *comm_case_main(void *argument)
{
    comm_rank *r = argument;
    r->status = sglcomm_open(&r->env, &r->all->options, &loop_link, &r->comm);
    if (r->status == SGL_OK) {
        r->rank = sglcomm_rank(r->comm);
        const double since = comm_case_now_s();
        r->all->body(r);
        r->took_s = comm_case_now_s() - since;
        r->tells = sglcomm_tells(r->comm);
        snprintf(r->message, sizeof r->message, "%s", r->env.message);
        sglcomm_close(r->comm);
    } else {
        snprintf(r->message, sizeof r->message, "%s", r->env.message);
    }
    return NULL;
}

static inline int comm_case_order(const void *a, const void *b)
{
    const comm_rank *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static inline void comm_case_run(comm_case *all)
{
    for (int i = 0; i < all->size; i++) {
        comm_rank *r = &all->ranks[i];
        memset(r, 0, sizeof *r);
        r->all = all;
        r->rank = -1;
        sglcore_env_init(&r->env, NULL, NULL, NULL, NULL);
        assert_int_equal(pthread_create(&r->thread, NULL, comm_case_main, r), 0);
    }
    for (int i = 0; i < all->size; i++) {
        pthread_join(all->ranks[i].thread, NULL);
        assert_int_equal(all->ranks[i].env.bytes_in_use, 0);
    }
    qsort(all->ranks, (size_t)all->size, sizeof *all->ranks, comm_case_order);
}

/* The calls of a comm over the loop. */
static const sglexec_comm_ops comm_case_ops = {
    .name = "loop",
    SGLCOMM_ENGINE_CALLS,
};

static inline void comm_case_all_good(const comm_case *all)
{
    for (int r = 0; r < all->size; r++) {
        if (all->ranks[r].status != SGL_OK) fail_msg("rank %d: %s", r, all->ranks[r].message);
        if (all->ranks[r].fault) fail_msg("rank %d: %s", r, all->ranks[r].fault);
    }
}

#endif
