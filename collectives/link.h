/* link.h -- the port of what moves bytes between ranks: messages that start and are tested, and nothing else.
 *
 * A link is one constant sglcomm_link_ops. All that a collective is (order, reductions, deadlines) is built on it in
 * this room (engine.h), so that MPI, or the threads of one process in a test, are a few short functions. One thread
 * makes all calls but `about`; none of them blocks, except open and close. Messages of one channel between two ranks
 * come in order. Odd invariant: a link includes no header of the library, since a module cannot see what libsgl.so
 * hides. */
#ifndef SGLCOMM_LINK_H
#define SGLCOMM_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of this port: a module of another build is refused. */
#define SGLCOMM_LINK_VERSION 1u
/* The symbol of a module, an sglcomm_link_ops. */
#define SGLCOMM_LINK_SYMBOL "sglcomm_module_link"

enum { SGLCOMM_BEATS = 0 }; /* the channel of heartbeats; the others are of groups */

typedef struct sglcomm_request {
    uint64_t words[4]; /* the link's own */
} sglcomm_request;

typedef struct sglcomm_link_ops {
    uint32_t version;
    /* What is behind it, one line, without joining anything. */
    void (*about)(char *text, size_t room);
    /* Functions that return bool say false when they failed, and why by `why`. */
    bool (*open)(void **link, int *rank, int *size, int *channels);
    /* orderly: all ranks are about to do the same, and nothing is under way. Otherwise it may wait for nobody. */
    void (*close)(void *link, bool orderly);
    bool (*send)(void *link, int rank, int channel, const void *data, size_t bytes, sglcomm_request *request);
    /* rank -1: from any, for heartbeats. A message may be shorter than `bytes`; one that is longer is a failure. */
    bool (*receive)(void *link, int rank, int channel, void *data, size_t bytes, sglcomm_request *request);
    /* bytes: of what was received. A request that is done must not be tested again. */
    bool (*test)(void *link, sglcomm_request *request, bool *done, size_t *bytes);
    /* Gives up a receive for which nothing came. */
    void (*cancel)(void *link, sglcomm_request *request);
    const char *(*why)(void *link); /* link NULL: of open */
} sglcomm_link_ops;

#endif
