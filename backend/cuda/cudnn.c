/* cudnn.c -- cuDNN's graphs of operations. In and out: cudnn.h.
 *
 * Descriptors of a graph live as long as it does, since the library does not say which of them a plan still reads.
 * Odd invariant: an engine that says of itself that it may not repeat its bits is never taken. */
#include "backend/cuda/cudnn.h"

#include <string.h>

#ifdef SGLCUDA_HAS_CUDNN

#define LIBRARY "libcudnn.so.9"

struct sglcuda_cudnn {
    sglcuda_cudnn_calls calls;
    cudnnHandle_t handle; /* NULL: the library is not there, or refused */
    sglcuda_cudnn_graph *graphs;
};

/* ---- the library ------------------------------------------------------------------------------------------------- */

static sgl_status find_functions(sglcore_env *env, sglcuda_cudnn_calls *calls)
{
    void *handle, *function;
    SGLCORE_TRY(sglcuda_library_open(env, LIBRARY, "attention by cuDNN", &handle));
#define FIND(name)                                                                                                     \
    SGLCORE_TRY(sglcuda_library_function(env, handle, LIBRARY, #name, &function));                                     \
    memcpy(&calls->name, &function, sizeof function);
    SGLCUDA_CUDNN_MAP(FIND)
#undef FIND
    return SGL_OK;
}

/* What is missing is said once, in the log. */
static sgl_status open_library(sglexec_device *device)
{
    struct sglcuda_cudnn *c = sglcore_alloc_zero(device->env, sizeof *c);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    device->cudnn = c;
    if (find_functions(device->env, &c->calls) != SGL_OK) {
        sglcore_log(device->env, SGL_LOG_INFO, "%s", device->env->message);
        return SGL_OK;
    }
    const cudnnStatus_t status = c->calls.cudnnCreate(&c->handle);
    if (status == CUDNN_STATUS_SUCCESS) return SGL_OK;
    c->handle = NULL;
    sglcore_log(device->env, SGL_LOG_INFO, "cuda: cuDNN does not start: %s", c->calls.cudnnGetErrorString(status));
    return SGL_OK;
}

static void destroy_graph(sglexec_device *device, sglcuda_cudnn_graph *g)
{
    if (g->pack) (void)g->calls->cudnnBackendDestroyDescriptor(g->pack);
    while (g->made_count > 0) (void)g->calls->cudnnBackendDestroyDescriptor(g->made[--g->made_count]);
    sglcore_free(device->env, g, sizeof *g);
}

void sglcuda_close_cudnn(sglexec_device *device)
{
    struct sglcuda_cudnn *c = device->cudnn;
    if (c == NULL) return;
    device->cudnn = NULL;
    while (c->graphs) {
        sglcuda_cudnn_graph *g = c->graphs;
        c->graphs = g->next;
        destroy_graph(device, g);
    }
    if (c->handle) (void)c->calls.cudnnDestroy(c->handle);
    sglcore_free(device->env, c, sizeof *c);
}

sgl_status sglcuda_cudnn_find(sglexec_device *device, sglcore_hash key, bool *usable, sglcuda_cudnn_graph **graph)
{
    *graph = NULL;
    *usable = false;
    if (device->cudnn == NULL) SGLCORE_TRY(open_library(device));
    *usable = device->cudnn->handle != NULL;
    for (sglcuda_cudnn_graph *g = device->cudnn->graphs; g && !*graph; g = g->next)
        if (memcmp(&g->key, &key, sizeof key) == 0) *graph = g;
    return SGL_OK;
}

sgl_status sglcuda_cudnn_new(sglexec_device *device, sglcore_hash key, sglcuda_cudnn_graph **graph)
{
    sglcuda_cudnn_graph *g = sglcore_alloc_zero(device->env, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    g->calls = &device->cudnn->calls;
    g->next_name = 1000; /* behind all that are bound */
    g->key = key;
    g->next = device->cudnn->graphs;
    device->cudnn->graphs = g;
    *graph = g;
    return SGL_OK;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static bool note(sglcuda_cudnn_graph *g, cudnnStatus_t status, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->status = status;
        g->failed = what;
    }
    return status == CUDNN_STATUS_SUCCESS;
}

static cudnnBackendDescriptor_t make(sglcuda_cudnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (g->made_count == SGLCUDA_CUDNN_DESCRIPTORS) (void)note(g, CUDNN_STATUS_INTERNAL_ERROR, "room for descriptors");
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (note(g, g->calls->cudnnBackendCreateDescriptor(type, &made), "making a descriptor"))
        g->made[g->made_count++] = made;
    return made;
}

static void set(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->status == CUDNN_STATUS_SUCCESS)
        (void)note(g, g->calls->cudnnBackendSetAttribute(d, name, type, count, values), "describing the graph");
}

static void settle(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (g->status == CUDNN_STATUS_SUCCESS) (void)note(g, g->calls->cudnnBackendFinalize(d), what);
}

static void set_descriptor(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    if (value) set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

cudnnBackendDescriptor_t sglcuda_cudnn_tensor(sglcuda_cudnn_graph *g, int64_t name, cudnnDataType_t type,
                                              const int64_t dims[4], const int64_t strides[4])
{
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool hidden = name == 0, by_value = name < 0;
    const int64_t alignment = by_value ? 4 : 16, number = hidden ? g->next_name++ : by_value ? -name : name;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &hidden);
    if (by_value) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    settle(g, d, "describing a tensor");
    return d;
}

static void add_operation(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t operation)
{
    settle(g, operation, "describing an operation");
    if (g->operation_count == SGLCUDA_CUDNN_OPERATIONS)
        (void)note(g, CUDNN_STATUS_INTERNAL_ERROR, "room for operations");
    else
        g->operations[g->operation_count++] = operation;
}

void sglcuda_cudnn_matmul(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                          cudnnBackendDescriptor_t c)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    settle(g, how, "describing a product");
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_operation(g, d);
}

void sglcuda_cudnn_pointwise(sglcuda_cudnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                             cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                             cudnnBackendDescriptor_t y, int64_t axis)
{
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (axis >= 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    settle(g, how, "describing an elementwise operation");
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(g, d);
}

void sglcuda_cudnn_reduce(sglcuda_cudnn_graph *g, cudnnReduceTensorOp_t mode, cudnnBackendDescriptor_t x,
                          cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    settle(g, how, "describing a reduction");
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_operation(g, d);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* Whether an engine promises the same bits each time. */
static bool repeats(sglcuda_cudnn_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0;
    if (engine == NULL) return false;
    if (g->calls->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                           &count, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    if (g->calls->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    return true;
}

/* A plan of this engine, or NULL: it does not take the graph, or not within so much workspace. */
static cudnnBackendDescriptor_t plan_of(sglcuda_cudnn_graph *g, cudnnHandle_t handle, cudnnBackendDescriptor_t config,
                                        int64_t work_bytes)
{
    int64_t count = 0, needed = 0;
    const cudnnBackendDescriptor_t plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (g->calls->cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS) return NULL;
    if (g->calls->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                           &needed) != CUDNN_STATUS_SUCCESS)
        return NULL;
    g->work_bytes = needed;
    return needed <= work_bytes ? plan : NULL;
}

static void choose_plan(sglcuda_cudnn_graph *g, cudnnHandle_t handle, int64_t work_bytes)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t configs[SGLCUDA_CUDNN_ENGINES];
    int64_t count = 0;
    const cudnnBackendDescriptor_t whole = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count, g->operations);
    set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    settle(g, whole, "taking the graph");
    const cudnnBackendDescriptor_t asked = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, asked, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    set(g, asked, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    settle(g, asked, "asking for engines");
    for (int i = 0; i < SGLCUDA_CUDNN_ENGINES; i++) configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    if (!note(g,
              g->calls->cudnnBackendGetAttribute(asked, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                 SGLCUDA_CUDNN_ENGINES, &count, configs),
              "asking for engines"))
        return;
    for (int64_t i = 0; i < sglcuda_min(count, SGLCUDA_CUDNN_ENGINES) && !g->plan; i++)
        if (repeats(g, configs[i])) g->plan = plan_of(g, handle, configs[i], work_bytes);
}

sgl_status sglcuda_cudnn_finish(sglexec_device *device, sglcuda_cudnn_graph *g, int64_t work_bytes, const char *what)
{
    choose_plan(g, device->cudnn->handle, work_bytes);
    if (g->plan) return SGL_OK;
    if (g->status == CUDNN_STATUS_SUCCESS)
        sglcore_log(device->env, SGL_LOG_INFO, "cuda: cuDNN has no engine for %s; a kernel of ours serves", what);
    else
        sglcore_log(device->env, SGL_LOG_INFO, "cuda: cuDNN, %s of %s: %s; a kernel of ours serves", g->failed, what,
                    g->calls->cudnnGetErrorString(g->status));
    return SGL_OK;
}

/* ---- execution --------------------------------------------------------------------------------------------------- */

static cudnnStatus_t bind(sglcuda_cudnn_graph *g, const int64_t *names, void *const *addresses, int count, void *work)
{
    const sglcuda_cudnn_calls *calls = g->calls;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = calls->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names);
    if (status == CUDNN_STATUS_SUCCESS)
        status = calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                                 count, addresses);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            calls->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work);
    if (status == CUDNN_STATUS_SUCCESS) status = calls->cudnnBackendFinalize(pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        (void)calls->cudnnBackendDestroyDescriptor(pack);
        return status;
    }
    if (g->pack) (void)calls->cudnnBackendDestroyDescriptor(g->pack);
    g->pack = pack;
    memcpy(g->bound, addresses, (size_t)count * sizeof *addresses);
    g->bound[count] = work;
    return CUDNN_STATUS_SUCCESS;
}

sgl_status sglcuda_cudnn_execute(const sglcuda_launch *launch, sglcuda_cudnn_graph *g, const int64_t *names,
                                 void *const *addresses, int count, void *work)
{
    struct sglcuda_cudnn *c = launch->device->cudnn;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const bool same = g->pack && memcmp(g->bound, addresses, (size_t)count * sizeof *addresses) == 0;
    if (!same || g->bound[count] != work) status = bind(g, names, addresses, count, work);
    if (status == CUDNN_STATUS_SUCCESS) status = c->calls.cudnnSetStream(c->handle, launch->stream);
    if (status == CUDNN_STATUS_SUCCESS) status = c->calls.cudnnBackendExecute(c->handle, g->plan, g->pack);
    if (status == CUDNN_STATUS_SUCCESS) return SGL_OK;
    return sglcore_fail(launch->device->env, SGL_DEVICE, "device cuda: cuDNN: %s (SGL_CUDA_CUDNN=0 does without it)",
                        c->calls.cudnnGetErrorString(status));
}

#else

void sglcuda_close_cudnn(sglexec_device *device) { (void)device; }

#endif
