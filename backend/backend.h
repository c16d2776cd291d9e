/* backend.h -- the doors of the built-in backends: one constant table of functions each, the port of exec/device.h.
 *
 * Comes in: nothing. Goes out: what vm/wire.c names; no other file of the core library includes this one. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "exec/device.h"

extern const sglexec_device_ops sglexec_device_null; /* null.c: plans everything, computes nothing */
extern const sglexec_device_ops sglexec_device_cpu;  /* cpu/device.c */

#endif
