/* library.h -- the driver and the toolkit's libraries, opened by name: tables of the functions that the backend calls.
 *
 * Comes in: libcuda.so.1 and what the toolkit installs. Goes out: a table each, or a message that says what is missing. Each
 * is opened once in a process and stays open. Odd invariant: a member is named as the function is, so that the headers' own names for newer
 * versions of a function (cuMemAlloc is cuMemAlloc_v2) hold for the table too. */
#ifndef SGLCUDA_LIBRARY_H
#define SGLCUDA_LIBRARY_H

#include <cuda.h>

#include "core/core.h"

#define SGLCUDA_DRIVER_MAP(X)                                                                                          \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuGetErrorName)                                                                                                  \
    X(cuGetErrorString)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDeviceTotalMem)                                                                                                \
    X(cuDeviceGetUuid)                                                                                                 \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuMemGetInfo)                                                                                                    \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemcpyHtoD)                                                                                                    \
    X(cuMemcpyHtoDAsync)                                                                                               \
    X(cuMemcpyDtoH)                                                                                                    \
    X(cuMemcpyDtoHAsync)                                                                                               \
    X(cuMemcpyDtoDAsync)                                                                                               \
    X(cuMemcpyAsync)                                                                                                   \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuStreamCreate)                                                                                                  \
    X(cuStreamCreateWithPriority)                                                                                      \
    X(cuCtxGetStreamPriorityRange)                                                                                     \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuStreamBeginCapture)                                                                                            \
    X(cuStreamEndCapture)                                                                                              \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy)                                                                                                  \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuEventSynchronize)                                                                                              \
    X(cuEventElapsedTime)                                                                                              \
    X(cuModuleLoadData)                                                                                                \
    X(cuModuleUnload)                                                                                                  \
    X(cuModuleGetFunction)                                                                                             \
    X(cuFuncSetAttribute)                                                                                              \
    X(cuFuncGetAttribute)                                                                                              \
    X(cuLaunchKernel)                                                                                                  \
    X(cuTensorMapEncodeTiled)                                                                                          \
    X(cuGraphInstantiate)                                                                                              \
    X(cuGraphLaunch)                                                                                                   \
    X(cuGraphDestroy)                                                                                                  \
    X(cuGraphExecDestroy)

/* The toolkit's release as its libraries are named by it. */
#if CUDA_VERSION >= 13000 && CUDA_VERSION < 14000
#define SGLCUDA_RELEASE "13"
#elif CUDA_VERSION >= 12000 && CUDA_VERSION < 13000
#define SGLCUDA_RELEASE "12"
#else
#error "the CUDA backend knows CUDA 12 and 13"
#endif

#define SGLCUDA_MEMBER(name) __typeof__(name) *name;
typedef struct sglcuda_driver {
    SGLCUDA_DRIVER_MAP(SGLCUDA_MEMBER)
} sglcuda_driver;

/* UNSUPPORTED with what is missing: the library, a function of it (the driver is too old), a device. */
sgl_status sglcuda_driver_open(sglcore_env *env, const sglcuda_driver **driver);
/* A library of the toolkit by its name with a version ("libnvrtc.so.13"): in SGL_CUDA_LIBRARIES; else where the loader looks, in the
 * toolkit that the module was built with, in /usr/local/cuda. NULL handles are never returned with SGL_OK. `needed`: for what, in the message. */
sgl_status sglcuda_library_open(sglcore_env *env, const char *name, const char *needed, void **handle);
/* A function of it, or UNSUPPORTED: the library is of another version. */
sgl_status sglcuda_library_function(sglcore_env *env, void *handle, const char *library, const char *name,
                                    void **function);

#endif
