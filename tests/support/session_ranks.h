/* session_ranks.h -- ranks of a test as threads of this process, each with a VM and a session over the loop link.
 *
 * In: how many, and a body that each of them runs. Out: after session_ranks_run what became of each, by its number. Their
 * allocators count: what a VM keeps is a failed assertion. Odd invariant: a world of one is not joined, as one process alone
 * has none. */
#ifndef SESSION_RANKS_H
#define SESSION_RANKS_H

#include "tests/unit/fault.h"

#include <pthread.h>
#include <stdio.h>

#include "collectives/engine.h"
#include "session/session.h"
#include "tests/support/loop_link.h"

/* What a session of one thread of the CPU meets others with. */
static const sglexec_comm_ops session_ranks_loop = { .name = "loop", SGLCOMM_ENGINE_CALLS };

typedef struct session_rank {
    struct session_ranks *all;
    pthread_t thread;
    fault_heap heap;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program; /* of the body */
    int number;           /* known when the body runs */
    bool joined;
    sgl_status status; /* of joining, or of the body */
    char message[2048];
    bool lost, tells; /* after the body */
} session_rank;

typedef struct session_ranks {
    int size;
    sgl_status (*body)(session_rank *r);
    void *job;                   /* the test's own */
    const sglexec_comm_ops *ops; /* NULL: session_ranks_loop */
    double timeout_s;            /* 0: 20 */
    session_rank ranks[LOOP_RANKS];
} session_ranks;

static inline sgl_status session_rank_open(session_rank *r)
{
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = &r->heap, .threads = 1 };
    const sglexec_comm_options options = { .timeout_s = r->all->timeout_s > 0 ? r->all->timeout_s : 20 };
    sglexec_comm *comm;
    SGLCORE_TRY(sgl_open(&config, &r->vm));
    SGLCORE_TRY(sgl_session_new(r->vm, "cpu", &r->session));
    if (r->all->size > 1) {
        SGLCORE_TRY(sglcomm_open(&r->vm->env, &options, &loop_link, &comm));
        SGLCORE_TRY(sglsession_take_world(r->session, r->all->ops ? r->all->ops : &session_ranks_loop, comm));
    }
    r->number = sgl_session_rank(r->session);
    r->joined = true;
    return SGL_OK;
}

static inline void *session_rank_main(void *argument)
{
    session_rank *r = argument;
    r->status = session_rank_open(r);
    if (r->joined) r->status = r->all->body(r);
    r->heap.counter = (fault_counter){ 0 };
    snprintf(r->message, sizeof r->message, "%s", sgl_error_message(r->vm));
    if (r->joined) {
        r->lost = sgl_world_check(r->session, 0) != SGL_OK;
        r->tells = sgl_tells(r->session);
    }
    sgl_close(r->vm);
    return NULL;
}

static inline int session_rank_order(const void *a, const void *b)
{
    const session_rank *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static inline void session_ranks_run(session_ranks *all)
{
    loop_world(all->size, 0);
    for (int i = 0; i < all->size; i++) {
        all->ranks[i] = (session_rank){ .all = all };
        assert_int_equal(pthread_create(&all->ranks[i].thread, NULL, session_rank_main, &all->ranks[i]), 0);
    }
    for (int i = 0; i < all->size; i++) pthread_join(all->ranks[i].thread, NULL);
    qsort(all->ranks, (size_t)all->size, sizeof *all->ranks, session_rank_order);
    for (int i = 0; i < all->size; i++) {
        if (!all->ranks[i].joined) fail_msg("rank %d could not begin: %s", i, all->ranks[i].message);
        assert_int_equal(all->ranks[i].heap.live_blocks, 0);
    }
}

/* No rank has failed. what: of this run, for the message. */
static inline void session_ranks_all_good(const session_ranks *all, const char *what)
{
    for (int i = 0; i < all->size; i++)
        if (all->ranks[i].status != SGL_OK) fail_msg("%s, rank %d: %s", what, i, all->ranks[i].message);
}

/* Of a plan over the data axes and tp. */
typedef struct session_layout {
    int64_t dp, fsdp, tp;
    const char *layouts;
} session_layout;

static inline int session_layout_size(const session_layout *l) { return (int)(l->dp * l->fsdp * l->tp); }

/* Room for any layout. Returns text. */
enum { SESSION_LAYOUT_ROOM = 256 };
static inline const char *session_layout_text(const session_layout *l, char text[SESSION_LAYOUT_ROOM])
{
    snprintf(text, SESSION_LAYOUT_ROOM, "dp=%d,fsdp=%d,tp=%d \"%s\"", (int)l->dp, (int)l->fsdp, (int)l->tp, l->layouts);
    return text;
}

/* text: a graph. more: another field of the plan, NULL: none. */
static inline sgl_status session_rank_freeze(session_rank *r, const char *text, const session_layout *l,
                                             const sgl_attr *more, sgl_program **program)
{
    const sgl_attr fields[] = { { .name = "mesh.dp", .kind = SGL_ATTR_INT, .i = l->dp },
                                { .name = "mesh.fsdp", .kind = SGL_ATTR_INT, .i = l->fsdp },
                                { .name = "mesh.tp", .kind = SGL_ATTR_INT, .i = l->tp },
                                { .name = "layouts", .kind = SGL_ATTR_STRING, .s = l->layouts } };
    sglir_graph *ir;
    sgl_graph *graph;
    sgl_plan *plan;
    SGLCORE_TRY(sgl_plan_new(r->vm, &plan));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) SGLCORE_TRY(sgl_plan_set(plan, &fields[i]));
    if (more) SGLCORE_TRY(sgl_plan_set(plan, more));
    SGLCORE_TRY(sglir_parse(&r->vm->env, "graph", text, strlen(text), &ir));
    SGLCORE_TRY(sglsession_graph_take(r->vm, ir, &graph));
    return sgl_freeze(r->session, graph, plan, program);
}

#endif
