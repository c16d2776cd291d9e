/* cudnn.h -- cuDNN's graphs of operations: opened by name, described tensor by tensor, finalized into a plan.
 *
 * In: tensors and operations, one after another, into a builder whose first error stays. Out: a plan of the
 * library's first engine that takes the graph, or none, with the library's words. Odd invariant: where the module
 * was built without cuDNN's headers, or the library is not there, nothing is taken, and kernels of ours serve. */
#ifndef SGLCUDA_CUDNN_H
#define SGLCUDA_CUDNN_H

#include "backend/cuda/cuda.h"

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define SGLCUDA_HAS_CUDNN 1
#include <cudnn.h>
#endif
#endif

#ifdef SGLCUDA_HAS_CUDNN

#define SGLCUDA_CUDNN_MAP(X)                                                                                           \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendExecute)

enum {
    SGLCUDA_CUDNN_DESCRIPTORS = 96, /* of a graph, all told */
    SGLCUDA_CUDNN_OPERATIONS = 32,
    SGLCUDA_CUDNN_ENGINES = 8, /* of the heuristic's, best first, that are tried */
    SGLCUDA_CUDNN_BINDINGS = 16
};

typedef struct sglcuda_cudnn_calls {
    SGLCUDA_CUDNN_MAP(SGLCUDA_MEMBER)
} sglcuda_cudnn_calls;

/* A graph, and what was made of it. Kept until the device closes. */
typedef struct sglcuda_cudnn_graph {
    const sglcuda_cudnn_calls *calls;
    cudnnStatus_t status; /* the first that was not success */
    const char *failed;   /* what it was */
    cudnnBackendDescriptor_t made[SGLCUDA_CUDNN_DESCRIPTORS], operations[SGLCUDA_CUDNN_OPERATIONS];
    int made_count, operation_count;
    int64_t next_name; /* of tensors that nobody binds */
    cudnnBackendDescriptor_t plan;
    int64_t work_bytes;
    cudnnBackendDescriptor_t pack; /* addresses of the last execution */
    void *bound[SGLCUDA_CUDNN_BINDINGS];
    sglcore_hash key;
    struct sglcuda_cudnn_graph *next;
} sglcuda_cudnn_graph;

/* Opens the library at the first call. *graph NULL: there is none for this key yet, or the library is not there
 * (*usable false). */
sgl_status sglcuda_cudnn_find(sglexec_device *device, sglcore_hash key, bool *usable, sglcuda_cudnn_graph **graph);
/* An empty graph for this key, which the device owns. */
sgl_status sglcuda_cudnn_new(sglexec_device *device, sglcore_hash key, sglcuda_cudnn_graph **graph);

/* A tensor of four dims. name 0: virtual, a number of its own; below 0: by value, bound to a number on the host. */
cudnnBackendDescriptor_t sglcuda_cudnn_tensor(sglcuda_cudnn_graph *g, int64_t name, cudnnDataType_t type,
                                              const int64_t dims[4], const int64_t strides[4]);
void sglcuda_cudnn_matmul(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t c);
/* y = mode(x, b, t); b and t may be NULL. axis: of GEN_INDEX, else -1. */
void sglcuda_cudnn_pointwise(sglcuda_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                             cudnnBackendDescriptor_t y, int64_t axis);
void sglcuda_cudnn_reduce(sglcuda_cudnn_graph *g, cudnnReduceTensorOp_t mode, cudnnBackendDescriptor_t x,
                          cudnnBackendDescriptor_t y);
/* Makes the plan of the first engine that repeats its bits and needs no more workspace than that. plan stays NULL
 * when none does; the reason goes to the log. */
sgl_status sglcuda_cudnn_finish(sglexec_device *device, sglcuda_cudnn_graph *g, int64_t work_bytes, const char *what);
/* addresses: one for each name, on the device or of a number by value. */
sgl_status sglcuda_cudnn_execute(const sglcuda_launch *launch, sglcuda_cudnn_graph *g, const int64_t *names,
                                 void *const *addresses, int count, void *work);

#endif

/* Destroys every graph and the library's handle; the device's context is current. */
void sglcuda_close_cudnn(sglexec_device *device);

#endif
