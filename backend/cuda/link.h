/* link.h -- ranks of a group as this GPU sees them: communicators of NCCL, their streams, the wait for what they do.
 *
 * In: names of groups, bytes in the GPU's memory. Out: exchanges enqueued on a stream for each link, beside the device's own, in
 * the order in which they were begun there. A link's exchanges run one after another, those of different links beside each
 * other, as over the comm: nobody waits for an order that only some ranks have. Odd invariant: while something is under way the host
 * waits by looking, so that a rank which does not come ends the wait: by the ask of whoever made the links, which cuts them. */
#ifndef SGLCUDA_LINK_H
#define SGLCUDA_LINK_H

#include <pthread.h>

#include "backend/cuda/nccl.h"

/* For device.c's table: what there is where the module was built with NCCL's headers. */
extern const sglexec_device_links sglcuda_link_ops;

/* Nothing was joined: device->links may be NULL throughout. */
/* What is under way on links comes before whatever the device's stream gets next. */
sgl_status sglcuda_links_join(sglexec_device *device);
/* DEVICE once links were cut: nothing is launched any more that may hold them. */
sgl_status sglcuda_links_check(sglexec_device *device);
/* Until the device's stream is empty, asking; what is under way beside it goes on. Not SGL_OK: links were cut. */
sgl_status sglcuda_links_wait(sglexec_device *device);
/* The GPU did not come to rest when links were cut: whatever waits for it would for ever. */
bool sglcuda_links_stuck(const sglexec_device *device);
void sglcuda_links_close(sglexec_device *device);
/* One line for `sgl doctor`. */
sgl_status sglcuda_links_describe(sglexec_device *device, sglcore_text *text);
/* The command of an exchange, a WAIT (begun: the command of its exchange), a number. (exchange_plan.c) */
sgl_status sglcuda_prepare_linked(sglcuda_prepare *p, const sglexec_instruction *i, const sglexec_linked *linked,
                                  const sglcuda_command *begun, sglcuda_command *command);
/* Once all of a program's exchanges have their commands; and before it is released. */
sgl_status sglcuda_ready_linked(sglexec_device *device, const sglcuda_command *command);
void sglcuda_release_linked(sglexec_device *device, const sglcuda_command *command);
/* The port's route. (device.c) */
sgl_status sglcuda_route(sglexec_device *device, void *prepared, const sglexec_linked *of);

#ifdef SGLCUDA_HAS_NCCL

/* What comes to be reduced. A larger block for a later program leaves the smaller one to programs that know its address. */
typedef struct sglcuda_staged {
    CUdeviceptr at;
    int64_t bytes;
    struct sglcuda_staged *next;
} sglcuda_staged;

struct sglexec_link {
    sglexec_device *device;
    ncclComm_t comm; /* NULL: of one rank */
    int place, count, number;
    CUstream stream;
    CUevent begun, ended;    /* to the stream and from it */
    sglcuda_staged *staging; /* the largest first */
    int64_t wanted_bytes;
    bool under_way; /* something that the device's stream does not come after yet */
    bool aborts;    /* a thread of its own does */
    pthread_t aborting;
    struct sglexec_link *next;
};

enum { SGLCUDA_MOST_LINKS = 256 };

struct sglcuda_links {
    const sglcuda_nccl *nccl;
    sglexec_ask_fn ask;
    void *context;
    sglexec_link *first;
    int count;                          /* of links that were ever made */
    volatile unsigned long long *words; /* pinned, one for each link: exchange.h of kernels/ */
    CUdeviceptr block;                  /* how many exchanges have begun; then bytes for the first meeting */
    int64_t block_bytes;
    SGLCORE_VEC(const sglexec_linked *) entries; /* what a mark's id means */
    const sglcuda_function *mark, *copy;
    int64_t rows;             /* how often all were joined, and once more */
    int asked;                /* asks, for what is asked more rarely */
    bool told, is_cut, stuck; /* told: of an exchange under way */
};

/* The end of what the library has answered; what: in the message. */
sgl_status sglcuda_link_settle(sglexec_link *link, ncclResult_t result, const char *what);
/* Takes what is wanted, where it is not there. */
sgl_status sglcuda_link_staging(sglexec_link *link, CUdeviceptr *staging);
/* As sglcuda_links_join, of one. */
sgl_status sglcuda_link_join(sglexec_link *link);
/* A mark's id for an exchange. */
sgl_status sglcuda_links_enter(sglexec_device *device, const sglexec_linked *linked, unsigned *id);

#endif

#endif
