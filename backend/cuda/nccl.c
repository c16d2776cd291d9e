/* nccl.c -- NCCL by name. In and out: nccl.h.
 *
 * Odd invariant: as with the driver, what could not be opened is tried anew when it is asked for again, and what is open is never
 * closed. */
#include "backend/cuda/nccl.h"

#include <pthread.h>
#include <string.h>

#ifdef SGLCUDA_HAS_NCCL

#define LIBRARY "libnccl.so.2"
enum { LEAST_VERSION = 21800 }; /* the first in which non-blocking communicators are whole */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static sgl_status find_functions(sglcore_env *env, sglcuda_nccl *table)
{
    void *handle, *function;
    SGLCORE_TRY(sglcuda_library_open(env, LIBRARY, "exchanges between GPUs", &handle));
#define FIND(name)                                                                                                     \
    SGLCORE_TRY(sglcuda_library_function(env, handle, LIBRARY, #name, &function));                                     \
    memcpy(&table->name, &function, sizeof function);
    SGLCUDA_NCCL_MAP(FIND)
#undef FIND
    return SGL_OK;
}

static sgl_status open_once(sglcore_env *env, const sglcuda_nccl **nccl)
{
    static sglcuda_nccl table;
    static bool open;
    if (!open) {
        SGLCORE_TRY(find_functions(env, &table));
        if (table.ncclGetVersion(&table.version) != ncclSuccess || table.version < LEAST_VERSION)
            return sglcore_fail(env, SGL_UNSUPPORTED, "device cuda: " LIBRARY " is of version %d; %d is the least",
                                table.version, LEAST_VERSION);
        open = true;
    }
    *nccl = &table;
    return SGL_OK;
}

sgl_status sglcuda_nccl_open(sglcore_env *env, const sglcuda_nccl **nccl)
{
    *nccl = NULL;
    pthread_mutex_lock(&opening);
    const sgl_status status = open_once(env, nccl);
    pthread_mutex_unlock(&opening);
    return status;
}

#endif
