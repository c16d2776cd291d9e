/* net_parts.h -- inside net.h: of each instruction of a program, how it is exchanged.
 *
 * net_routes.c lays the routes of a program, net.c makes their groups and runs them. Odd invariant: a route is laid
 * once, and holds all that a run needs but places in memory. */
#ifndef SGLEXEC_NET_PARTS_H
#define SGLEXEC_NET_PARTS_H

#include "exec/device.h"
#include "exec/net.h"

typedef struct sglexec_mesh_group {
    sglcore_hash key; /* of the mesh, the axes, and the two ends of a channel */
    sglexec_group *group;
    sglexec_link *link; /* of the device, NULL: not made */
    int place, size;    /* of this rank */
} sglexec_mesh_group;

struct sglexec_net {
    sglcore_env *env;
    const sglexec_comm_ops *ops;
    sglexec_comm *comm;
    sglexec_group *world;
    SGLCORE_VEC(sglexec_mesh_group) groups;
    uint64_t number;                   /* of the exchange that began last */
    const sglexec_device_links *links; /* NULL: exchanges go over the comm */
    sglexec_device *device;
    bool asked; /* all ranks have said whether their devices exchange by themselves */
};

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
    int64_t under_way;      /* exchanges that have begun and were not waited for */
    sglexec_linked *linked; /* per instruction; NULL: exchanges go over the comm */
    sglcore_arena arena;
};

/* One exchange over the comm, waited for. */
sgl_status sglexec_net_exchange(sglexec_net *net, sglexec_group *group, sglexec_exchange *exchange);
/* Ends the links of the net's groups. (net_link.c) */
void sglexec_net_unlink(sglexec_net *net);

/* A send or a receive: of one end of a channel. */
static inline bool sglexec_is_pair(const sglexec_route *r)
{
    return r->exchange.kind == SGLEXEC_SEND || r->exchange.kind == SGLEXEC_RECEIVE;
}
int64_t sglexec_operand_bytes(const sglexec_operand *o);

/* Fills the routes, and says how many bytes of staging the largest exchange takes. */
sgl_status sglexec_lay_routes(sglexec_exchanges *e);

#endif
