/* device.h -- the port of a device: what replay asks of a backend.
 *
 * A backend is one constant sglexec_device_ops, which vm/wire.c names. Every call but `launch` may allocate through the env; `launch` allocates
 * nothing. Spaces are given by base address at each launch, so that a session may move its state block between steps. */
#ifndef SGLEXEC_DEVICE_H
#define SGLEXEC_DEVICE_H

#include <stdatomic.h>

#include "exec/comm.h"
#include "exec/profile.h"
#include "exec/trace.h"

typedef struct sglexec_device sglexec_device; /* the backend's own */

/* ---- exchanges that devices make among themselves ---------------------------------------------------------------- */

typedef struct sglexec_link sglexec_link; /* the backend's own: a group of ranks, as their devices see each other */

/* Of an instruction that sglexec_is_exchange: what replay leaves to the device once it has been routed. Lives as long as what
 * was prepared. */
typedef struct sglexec_linked {
    sglexec_link *link;               /* NULL: no exchange; number is written, or it is a WAIT */
    sglexec_group *group;             /* of the comm, for whoever is told of it */
    const sglexec_exchange *exchange; /* without places: those are the instruction's operands */
    const char *number;               /* of COORDINATE and SHARE: the result's bytes */
    bool waits_later;                 /* a WAIT of the program does */
} sglexec_linked;

/* Asked by a device while it waits, at least every few milliseconds: `at` is the exchange under way, of those that it was
 * routed (NULL: none), number how manieth of this device. Not SGL_OK ends the wait, and cuts all links. */
typedef sgl_status (*sglexec_ask_fn)(void *context, const sglexec_linked *at, uint64_t number);

enum { SGLEXEC_LINK_NAME = 128, SGLEXEC_DEVICE_ID = 16 };

typedef struct sglexec_device_links {
    /* UNSUPPORTED with what is missing; *demanded: the user wants no other way. id: of this device among all of all machines. */
    sgl_status (*open)(sglexec_device *device, unsigned char id[SGLEXEC_DEVICE_ID], bool *demanded);
    /* From then on the device asks while it waits, until it is closed, or fn is NULL. */
    void (*ask)(sglexec_device *device, sglexec_ask_fn fn, void *context);
    /* A name by which the ranks of one group find each other: one of them makes it, all give it to `join`. */
    sgl_status (*name)(sglexec_device *device, char name[SGLEXEC_LINK_NAME]);
    /* Ranks of the group call it, one group after another in the same order; comes back when all have, or when the ask fails. */
    sgl_status (*join)(sglexec_device *device, const char name[SGLEXEC_LINK_NAME], int place, int count,
                       const sglexec_linked *joining, sglexec_link **link);
    /* Orderly, after what was prepared with it was released, by all of its ranks; of links that were cut, without the others. */
    void (*leave)(sglexec_device *device, sglexec_link *link);
    /* What is under way ends, undone: nothing more is exchanged. */
    void (*cut)(sglexec_device *device);
    /* of: per instruction of the program. From then on launch and run take its exchanges too; one that a WAIT waits for goes on
     * beside what follows. */
    sgl_status (*route)(sglexec_device *device, void *prepared, const sglexec_linked *of);
    /* What is under way comes before whatever is launched or waited for next. */
    sgl_status (*join_all)(sglexec_device *device);
} sglexec_device_links;

/* ---- the device -------------------------------------------------------------------------------------------------- */

typedef struct sglexec_device_ops {
    const char *name;
    bool blank;       /* it computes nothing: what is read from it was not learnt, and is neither told nor saved */
    bool host_memory; /* its blocks are the host's memory: ranks exchange what lies there in place, without a copy */
    const sglexec_device_links *links; /* NULL: what is exchanged goes through the host, or lies there */
    sgl_status (*open)(sglcore_env *env, int threads, sglexec_device **device);
    void (*close)(sglexec_device *device);

    /* Before anything is allocated: which composites it runs whole, in which dtypes, and with how much workspace. */
    bool (*native)(sglir_op op);
    int64_t (*workspace)(const sglir_graph *g, sglir_id node);
    double
        computing; /* what arithmetic costs a fused kernel beside the bytes it moves, the CPU's cost being 1; 0: 1 too */

    /* Memory of the device. */
    int64_t (*room)(sglexec_device *device); /* bytes that are free; NULL: it is the host's memory, or none */
    sgl_status (*alloc)(sglexec_device *device, int64_t bytes,
                        void **block); /* aligned to 256 bytes at least, zeroed */
    void (*free)(sglexec_device *device, void *block, int64_t bytes);
    /* Memory of the host that the device reaches (spaces HOST and AWAY), zeroed: write, read and copy take it as any block, and
     * instructions may read and write there, at the speed of the link. NULL: blocks of `alloc` are the host's memory. */
    sgl_status (*alloc_host)(sglexec_device *device, int64_t bytes, void **block);
    void (*free_host)(sglexec_device *device, void *block, int64_t bytes);
    sgl_status (*write)(sglexec_device *device, void *block, int64_t offset, const void *host, int64_t bytes);
    sgl_status (*read)(sglexec_device *device, const void *block, int64_t offset, void *host, int64_t bytes);
    sgl_status (*copy)(sglexec_device *device, void *to, const void *from, int64_t bytes);

    /* What it compiles of a FUSED instruction, for people to read; NULL: nothing. Needs no open device. */
    sgl_status (*source)(sglcore_env *env, const sglexec_program *program, uint32_t index, sglcore_text *text);
    /* Compiles the program's kernels, or begins to; *prepared lives until release. */
    sgl_status (*prepare)(sglexec_device *device, const sglexec_program *program, void **prepared);
    /* Waits for what prepare has begun, once, before the first launch; NULL: it has done all. */
    sgl_status (*settle)(sglexec_device *device, void *prepared);
    void (*release)(sglexec_device *device, void *prepared);

    /* Runs instruction number `index`; never control (SCAN, WHILE, COND), which replay walks, nor what ranks exchange
     * (sglexec_is_exchange), unless it was routed. A move (OFFLOAD, PREFETCH) need only have begun then, and has ended for
     * what is launched behind its ARRIVED. spaces: base addresses by sglir_space. */
    sgl_status (*launch)(sglexec_device *device, void *prepared, uint32_t index, void *const spaces[SGLIR_SPACES]);
    /* Marks of time in the order of what is launched: mark n, below SGLEXEC_MOST_MARKS, is passed when all that was launched before it is
     * done. marked waits for the first `count`, and gives the ns from mark 0 to each. NULL, both: the host's clock around launch and finish will do. */
    sgl_status (*mark)(sglexec_device *device, int n);
    sgl_status (*marked)(sglexec_device *device, int count, int64_t *ns);
    /* Runs `count` instructions from `first` on, of which launch could run each, in their order; NULL: launch is as good. What it
     * makes of them for the next time with the same spaces it keeps with `prepared`. */
    sgl_status (*run)(sglexec_device *device, void *prepared, uint32_t first, uint32_t count,
                      void *const spaces[SGLIR_SPACES]);
    /* Waits until all that was launched is done. */
    sgl_status (*finish)(sglexec_device *device);
    /* What it is, for `sgl doctor`: one line or more, each ended by a newline. */
    sgl_status (*describe)(sglexec_device *device, sglcore_text *text);
    /* Flops per second of a large f32 product, measured (about 30 ms, the first time). */
    sgl_status (*peak_flops)(sglexec_device *device, double *flops_per_s);
    /* What it reaches, sustained: measured at each call, in less than two seconds. NULL: it computes nothing. */
    sgl_status (*ceilings)(sglexec_device *device, sglexec_ceilings *ceilings);
} sglexec_device_ops;

/* What a replay is watched by; NULL in place of one: by nobody. */
typedef struct sglexec_watch {
    const atomic_bool *stop;  /* true: stop between two instructions, with INTERRUPTED. NULL: never */
    sglexec_profile *profile; /* NULL: not measured */
    sglexec_trace *trace;     /* NULL: nobody looks at the numbers */
} sglexec_watch;

/* Runs the top block once. Allocates nothing. When it fails, states may be those of half a replay. exchanges: of the program,
 * NULL for one that has none, or on a device that computes nothing. */
struct sglexec_exchanges;
sgl_status sglexec_replay(sglcore_env *env, const sglexec_device_ops *ops, sglexec_device *device, void *prepared,
                          const sglexec_program *program, void *const spaces[SGLIR_SPACES],
                          struct sglexec_exchanges *exchanges, const sglexec_watch *watch);

#endif
