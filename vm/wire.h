/* wire.h -- the devices of this build by name. wire.c alone knows the backends behind them.
 *
 * Comes in: a name. Goes out: a port (exec/device.h) that a session opens. */
#ifndef SGLWIRE_WIRE_H
#define SGLWIRE_WIRE_H

#include "exec/device.h"

/* The devices in order, the usual one first; NULL past the end. */
const sglexec_device_ops *sglwire_device(int index);
/* NOT_FOUND names those that there are, and the nearest one. */
sgl_status sglwire_device_find(sglcore_env *env, const char *name, const sglexec_device_ops **ops);

#endif
