/* nccl.h -- NCCL by name: the functions that links call.
 *
 * In: libnccl.so.2, whose version must be 2.18 or later. Out: a table, opened once in a process and kept, or a message that says what
 * is missing. Odd invariant: communicators are made non-blocking, so that each call may answer ncclInProgress and is asked for
 * its end (link.c): nobody is stuck in the library because another rank does not come. */
#ifndef SGLCUDA_NCCL_H
#define SGLCUDA_NCCL_H

#include "backend/cuda/cuda.h"

#if defined(__has_include)
#if __has_include(<nccl.h>)
#include <nccl.h>
#if NCCL_VERSION_CODE >= 21800
#define SGLCUDA_HAS_NCCL 1
#endif
#endif
#endif

#ifdef SGLCUDA_HAS_NCCL

#define SGLCUDA_NCCL_MAP(X)                                                                                            \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetLastError)                                                                                                \
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclCommFinalize)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)

typedef struct sglcuda_nccl {
    SGLCUDA_NCCL_MAP(SGLCUDA_MEMBER)
    int version; /* 22809: 2.28.9 */
} sglcuda_nccl;

sgl_status sglcuda_nccl_open(sglcore_env *env, const sglcuda_nccl **nccl);

#endif

#endif
