/* comm.h -- the port of a transport: groups of ranks, and exchanges among them that start, are waited for, and may be late.
 *
 * A transport is one constant sglexec_comm_ops, which vm/wire.c names. All ranks of a group start its exchanges in the same
 * order, a send or receive being one of its two ranks alone; each begins when the one before it has ended here. Exchanges of
 * different groups run beside each other. `start`, `wait` and `test` allocate nothing through the env.
 * An exchange has a deadline, counted from when it is the first of its group; once one is late, or a rank is lost, the comm
 * is poisoned: every call from then on fails with DEVICE and the first message, which names the rank, its host, the exchange
 * and the script line. What an exchange reads and writes must live until `wait` or `test` has told its end, or `wait` its
 * failure: only then does the transport never touch it again. Nothing of a poisoned comm may be saved. */
#ifndef SGLEXEC_COMM_H
#define SGLEXEC_COMM_H

#include "core/core.h"

typedef struct sglexec_comm sglexec_comm; /* the transport's own: this process among all */
/* Some ranks, in an order that all of them give alike; lives as the comm does. */
typedef struct sglexec_group sglexec_group;

/* from and to may be the same range where the row says "in place". A sum is added in the group's order, in f32 for floats
 * that are narrower, and rounded once: the same bits for all_reduce, reduce_scatter and any cut into slices. */
#define SGLEXEC_EXCHANGES(X)                                                                                           \
    X(ALL_REDUCE, all_reduce)         /* from: count elements; to: of all ranks reduced. In place */                   \
    X(REDUCE_SCATTER, reduce_scatter) /* from: sum of counts; to: counts[own], reduced. In place: own part of from */  \
    X(ALL_GATHER, all_gather)         /* from: counts[own]; to: sum of counts. In place: own part of to */             \
    X(ALL_TO_ALL, all_to_all)         /* from: counts[r] for each r, in order; to: counts_in[r] from each */           \
    X(BROADCAST, broadcast)           /* `peer`'s from, count elements, to everyone's to. In place */                  \
    X(SEND, send)                     /* count elements of from, to `peer` */                                          \
    X(RECEIVE, receive)               /* count elements into to, from `peer` */                                        \
    X(BARRIER, barrier)

typedef enum sglexec_exchange_kind {
#define SGLEXEC_EXCHANGE_ENUM(name, text) SGLEXEC_##name,
    SGLEXEC_EXCHANGES(SGLEXEC_EXCHANGE_ENUM)
#undef SGLEXEC_EXCHANGE_ENUM
        SGLEXEC_EXCHANGE_COUNT
} sglexec_exchange_kind;

typedef enum sglexec_reduction { SGLEXEC_SUM, SGLEXEC_MAX, SGLEXEC_MIN, SGLEXEC_REDUCTION_COUNT } sglexec_reduction;

/* Of an exchange of many: from, to and counts as of one that is by itself. What a member writes overlaps nothing that another one
 * reads or writes: that is the caller's to see to, and `start` does not look. Of a program the memory pass does, which gives each
 * result of such an exchange a place apart from its arguments and from the others (the verifier: ir/verify_places.c); operands
 * that go through staging lie one behind another there (exec/net.c). */
typedef struct sglexec_member {
    const void *from;
    void *to;
    const int64_t *counts, *counts_in; /* per place in the group; counts_in: of ALL_TO_ALL */
} sglexec_member;

typedef struct sglexec_exchange {
    uint8_t kind;                      /* sglexec_exchange_kind */
    uint8_t reduction;                 /* sglexec_reduction */
    uint8_t dtype;                     /* sgl_dtype: in which it is sent, and reduced; i4 is refused, bool has no sum */
    int peer;                          /* place in the group */
    int64_t count;                     /* elements, where all ranks' are alike */
    const int64_t *counts, *counts_in; /* per place in the group; NULL: `count` for each; live as from and to do */
    const void *from;
    void *to;
    /* REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL: so many at once, in place of from, to and counts; the list lives as these do. 0: one */
    const sglexec_member *members;
    int member_count;
    uint64_t number;   /* how manieth of this rank's program, over all steps: what heartbeats tell */
    const char *label; /* "all_reduce of blocks.0.attn.wq, llama.lua:42"; lives as from and to do */
} sglexec_exchange;

typedef struct sglexec_comm_options {
    double timeout_s;   /* of one exchange */
    double latency_us;  /* SGL_NET: what a rank sends is held back as its link would, without using the CPU; 0: not */
    double bytes_per_s; /* 0: not */
} sglexec_comm_options;

typedef struct sglexec_comm_ops {
    const char *name;
    /* What there is of it on this machine, for `sgl doctor`: lines, each ended by a newline. Joins nothing. */
    sgl_status (*about)(sglcore_env *env, sglcore_text *text);
    /* Joins the world that the launcher made; all ranks must give the same options. A rank that was let in and has failed since
     * is no failure of this call: the comm is poisoned then. */
    sgl_status (*open)(sglcore_env *env, const sglexec_comm_options *options, sglexec_comm **comm);
    /* Orderly: every rank calls it. On a poisoned comm it gives back what is this process's own and waits for nobody. */
    void (*close)(sglexec_comm *comm);
    int (*rank)(const sglexec_comm *comm);
    int (*size)(const sglexec_comm *comm);
    const char *(*host)(const sglexec_comm *comm, int rank);

    /* Ranks of the world; every rank of the world calls it, with its own group, or one that it is not in and that is NULL to it, in
     * the same order; nothing is exchanged. */
    sgl_status (*group)(sglexec_comm *comm, const char *name, const int *ranks, int count, sglexec_group **group);

    /* ticket: to wait for. stream: of a device whose work before must be done, or NULL where memory is the host's. */
    sgl_status (*start)(sglexec_group *group, const sglexec_exchange *exchange, void *stream, uint32_t *ticket);
    sgl_status (*wait)(sglexec_group *group, uint32_t ticket, void *stream);
    sgl_status (*test)(sglexec_group *group, uint32_t ticket, bool *done);

    /* An exchange that devices make by themselves: nothing is moved here, but it counts as one that this rank is at, to its
     * deadline and in what other ranks are told, until another or none (group NULL) is. NULL: no other rank listens. */
    void (*elsewhere)(sglexec_comm *comm, sglexec_group *group, const sglexec_exchange *exchange, uint64_t number);
    /* Long work without exchanges (compiling, evaluating, saving): deadlines do not count it. NULL: it is over. */
    void (*busy)(sglexec_comm *comm, const char *what);
    /* Tells all ranks that this one fails, and why; they fail with that message. */
    void (*fail)(sglexec_comm *comm, const char *message);
    /* OK, or DEVICE and the message of a poisoned comm. wait_ms: how long to wait for bad news. A launcher that ends a job
     * because one rank has died sends the others SIGTERM: a process that got one asks here whether that is why. */
    sgl_status (*check)(sglexec_comm *comm, int wait_ms);
    /* True on the rank whose place it is to print why a poisoned comm failed, so that a job prints it once. */
    bool (*tells)(sglexec_comm *comm);
    sgl_status (*describe)(sglexec_comm *comm, sglcore_text *text);
} sglexec_comm_ops;

#endif
