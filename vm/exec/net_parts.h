/* net_parts.h -- inside net.h: of each instruction of a program, how it is exchanged.
 *
 * net_routes.c lays the routes of a program, net.c makes their groups and runs them. Odd invariant: a route is laid
 * once, and holds all that a run needs but places in memory. */
#ifndef SGLEXEC_NET_PARTS_H
#define SGLEXEC_NET_PARTS_H

#include "exec/device.h"
#include "exec/net.h"

/* Of an instruction; of most, nothing. */
typedef struct sglexec_route {
    sglplan_axes axes; /* 0: no exchange */
    int from, to;      /* of a channel, places along the axes; -1: all of them exchange */
    sglexec_group *group;
    sglexec_exchange exchange; /* without places and number */
    sglexec_member *members;   /* of an exchange of many: one for each argument */
    char number[8];            /* of COORDINATE and SHARE */
    uint32_t ticket;           /* of the one under way */
    bool waits_later;          /* a WAIT of the program does */
    bool under_way;
} sglexec_route;

struct sglexec_exchanges {
    sglexec_net *net;
    sglcore_env *env;
    const sglexec_program *program;
    sglplan plan;
    int64_t rank;
    sglexec_route *routes; /* per instruction */
    bool in_place;
    char *from, *to; /* where it is not: as large as the largest operand, NULL in place */
    int64_t staging_bytes;
    int64_t under_way; /* exchanges that have begun and were not waited for */
    sglcore_arena arena;
};

/* A send or a receive: of one end of a channel. */
static inline bool sglexec_is_pair(const sglexec_route *r)
{
    return r->exchange.kind == SGLEXEC_SEND || r->exchange.kind == SGLEXEC_RECEIVE;
}
int64_t sglexec_operand_bytes(const sglexec_operand *o);

/* Fills the routes, and says how many bytes of staging the largest exchange takes. */
sgl_status sglexec_lay_routes(sglexec_exchanges *e);

#endif
