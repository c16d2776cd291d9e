/* module.h -- modules: what needs libraries that may be missing is a file of its own, opened when it is asked for.
 *
 * Comes in: the name of a module's file and of the symbol in it that is wanted. Goes out: that symbol's address, or a message that says
 * what is missing. Odd invariant: a module once opened stays, since what it opened in turn may not survive being closed. */
#ifndef SGLCORE_MODULE_H
#define SGLCORE_MODULE_H

#include "core/core.h"

/* Of the headers that the library was built from (cmake/identity.cmake): a module that shares structs with it must have
 * been built from the same. */
extern const char sglcore_build_identity[33];

typedef struct sglcore_module {
    const char *what; /* "transport mpi": the beginning of messages */
    const char *file; /* "libsgl_mpi.so" */
    const char
        *built; /* "MPI's headers are (libopenmpi-dev)": where it is built, in the message of one that is not there */
    const char *symbol;
} sglcore_module;

enum { SGLCORE_MODULE_ROOM = 4096 };

/* Looks in SGL_MODULES, beside the library, in the folder above it, and where libraries are installed beside bin/. NOT_FOUND: there is no
 * such file; UNSUPPORTED: it cannot be opened, or lacks the symbol. path: the file, for messages. */
sgl_status sglcore_module_open(sglcore_env *env, const sglcore_module *module, char path[SGLCORE_MODULE_ROOM],
                               const void **found);
/* UNSUPPORTED, for a module that does not belong to this library. */
sgl_status sglcore_module_foreign(sglcore_env *env, const sglcore_module *module, const char *path);

#endif
