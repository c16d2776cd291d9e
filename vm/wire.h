/* wire.h -- the devices and transports of this build by name. wire.c alone knows what is behind them.
 *
 * Comes in: a name. Goes out: a port (exec/device.h, exec/comm.h) that a session opens. */
#ifndef SGLWIRE_WIRE_H
#define SGLWIRE_WIRE_H

#include "exec/comm.h"
#include "exec/device.h"

/* The names of the devices in order, the usual one first; NULL past the end. */
const char *sglwire_device(int index);
/* NOT_FOUND names those that there are, and the nearest one. Of a device that is a module, the module is opened here: NOT_FOUND
 * where there is none, UNSUPPORTED where it cannot be opened. */
sgl_status sglwire_device_find(sglcore_env *env, const char *name, const sglexec_device_ops **ops);

/* The transports in order; NULL past the end. */
const sglexec_comm_ops *sglwire_transport(int index);
/* By name; "": SGL_TRANSPORT, or mpi where a launcher started this process, else self. */
sgl_status sglwire_transport_find(sglcore_env *env, const char *name, const sglexec_comm_ops **ops);
/* What SGL_NET says, into latency_us and bytes_per_s. */
sgl_status sglwire_net(sglcore_env *env, sglexec_comm_options *options);

/* The words that start so many ranks of a command on this machine, NULL at the end; freed with the same count. */
sgl_status sglwire_launch(sglcore_env *env, int ranks, int count, char *const *command, const char ***words);
void sglwire_launch_free(sglcore_env *env, const char **words, int count);

#endif
