/* net.h -- what programs exchange among ranks: groups over a comm, and the exchanges of one program, ready to be run.
 *
 * Comes in: a comm (comm.h), a frozen program, its plan and which rank of the mesh this is. Goes out: instructions of
 * ops with the flag SGLIR_EXCHANGE, WAIT, COORDINATE and SHARE, which replay hands over in place of a launch. A net is
 * a session's; groups are made once for each set of axes of a mesh and shared by programs. Odd invariant: whatever is
 * told here of other ranks (groups, counts, order) is worked out on each of them by itself; a session compares it
 * before the first step (session/order.c). */
#ifndef SGLEXEC_NET_H
#define SGLEXEC_NET_H

#include "exec/comm.h"
#include "exec/program.h"
#include "exec/trace.h"
#include "plan/mesh.h"

typedef struct sglexec_net sglexec_net;
typedef struct sglexec_exchanges sglexec_exchanges; /* of one program */

/* Over a comm that outlives it. All ranks of the comm open it, and make the calls below in the same order. */
sgl_status sglexec_net_open(sglcore_env *env, const sglexec_comm_ops *ops, sglexec_comm *comm, sglexec_net **net);
void sglexec_net_close(sglexec_net *net); /* NULL is allowed */

/* Among all ranks: `bytes` of each, in the order of ranks, into `all`; or `bytes` of one rank to everyone. */
sgl_status sglexec_net_gather(sglexec_net *net, const void *own, int64_t bytes, void *all, const char *label);
sgl_status sglexec_net_broadcast(sglexec_net *net, int from, void *data, int64_t bytes, const char *label);

/* Works out what the program exchanges as this rank of the plan's mesh, for a program and net that outlive it.
 * Exchanges nothing. */
sgl_status sglexec_exchanges_new(sglexec_net *net, const sglexec_program *program, const sglplan *plan, int64_t rank,
                                 const struct sglexec_device_ops *device, sglexec_exchanges **exchanges);
void sglexec_exchanges_free(sglexec_exchanges *exchanges); /* NULL is allowed */
/* Of ops, dtypes and axes in their order, and of loops with their turns: alike on the ranks of one stage, whose parts
 * may differ. Sends and receives are left out; who meets whom in them is found on paper (tune/simulate.h). */
sglcore_hash sglexec_exchanges_hash(const sglexec_exchanges *exchanges);
/* Makes the groups that are not there yet, those of other ranks' programs too: they tell each other of which. All ranks
 * of the mesh call it, with programs that meet in the same exchanges (tune/simulate.h finds out), before the first run. */
sgl_status sglexec_exchanges_make_groups(sglexec_exchanges *exchanges);
/* Where the devices of all ranks exchange by themselves (exec/device.h): links for the groups that have none yet, and the
 * program's exchanges routed over them; else nothing, and rank 0's log says why, once. All ranks of the mesh call it after the
 * groups were made. (net_link.c) */
sgl_status sglexec_exchanges_link(sglexec_exchanges *exchanges, const struct sglexec_device_ops *ops,
                                  struct sglexec_device *device, void *prepared);
/* They were: the device runs them as its own instructions. */
bool sglexec_exchanges_are_linked(const sglexec_exchanges *exchanges);
/* Of linked ones: the device comes to what is next when those that have begun are over. */
sgl_status sglexec_exchanges_join(const sglexec_exchanges *exchanges);
/* Runs instruction n, of exchanges that are not linked: an exchange begins, and is waited for at once unless a WAIT of the program does; a WAIT waits.
 * at_once: for somebody who looks at each result, no exchange is left under way. Allocates nothing. */
sgl_status sglexec_exchanges_run(sglexec_exchanges *exchanges, const sglexec_memory *memory, uint32_t n, bool at_once);
/* After a run that failed: waits until the transport touches nothing of the program's any more. Keeps the env's
 * message. */
void sglexec_exchanges_settle(sglexec_exchanges *exchanges);

#endif
