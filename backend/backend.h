/* backend.h -- the doors of the built-in backends: one constant table of functions each, the port of exec/device.h.
 *
 * Comes in: nothing. Goes out: what vm/wire.c names; no other file of the core library includes this one. A backend that is a
 * module shares structs with the library, and so is taken only when both were built from the same headers. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "exec/device.h"

extern const sglexec_device_ops sglexec_device_null; /* null.c: plans everything, computes nothing */
extern const sglexec_device_ops sglexec_device_cpu;  /* cpu/device.c */

/* The device `cuda` is the module libsgl_cuda.so (module.c), whose symbol SGLBACKEND_SYMBOL is one of these. */
#define SGLBACKEND_SYMBOL "sglcuda_module"
typedef struct sglbackend_module {
    const char
        *identity; /* sglcore_build_identity of the library that it was built with; the first member, in every build */
    const sglexec_device_ops *ops;
} sglbackend_module;

/* Opens the module when it is first asked for, or says what is missing. */
sgl_status sglbackend_cuda(sglcore_env *env, const sglexec_device_ops **ops);

#endif
