/* collectives.h -- the transports of this build, for vm/wire.c alone, and how a link's shape is written. */
#ifndef SGLCOMM_COLLECTIVES_H
#define SGLCOMM_COLLECTIVES_H

#include "exec/comm.h"

extern const sglexec_comm_ops sglexec_comm_self; /* self.c: one rank */
extern const sglexec_comm_ops sglexec_comm_mpi;  /* module.c: the module libsgl_mpi.so, opened when it is asked for */

/* Reads SGL_NET's form, "latency_us=50,gbps=1", both parts optional, into options; "" leaves them as they are. */
sgl_status sglcomm_shape_parse(sglcore_env *env, const char *text, sglexec_comm_options *options);

/* launch.c: the words of mpirun's command line for so many ranks of a command, NULL at the end; freed with the same
 * count. */
sgl_status sglcomm_launch(sglcore_env *env, int ranks, int count, char *const *command, const char ***line);
void sglcomm_launch_free(sglcore_env *env, const char **line, int count);

#endif
