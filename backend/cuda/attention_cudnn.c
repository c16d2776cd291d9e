/* attention_cudnn.c -- attention forward by cuDNN, where it is asked for (SGL_CUDA_CUDNN=1) and takes the shape.
 *
 * In: an ATTENTION instruction of bf16 or f16. Out: a command that executes a plan of the library, or none: then
 * kernels of ours serve. The gradient is never cuDNN's: its engines for Hopper add to dq by atomics, and the form
 * that repeats its bits keeps b h t s numbers in memory. Odd invariant: what is causal is taken only where the
 * program itself says that the first query's offset is 0. */
#include <math.h>
#include <string.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/cudnn.h"
#include "core/knob.h"

int64_t sglcuda_attention_cudnn_workspace(const sglcuda_heads *a)
{
    const sgl_attention *x = &a->values;
    const bool narrow = a->dtype == SGL_BF16 || a->dtype == SGL_F16;
    const bool whole = x->t % SGLCUDA_CUDNN_TILE == 0 && x->s % SGLCUDA_CUDNN_TILE == 0 && x->t > 0 && x->s > 0;
    const bool fits = x->d == x->e && (x->d == 64 || x->d == 128) && x->b > 0 && x->h > 0;
    const bool plain = !a->values.segmented && x->window == 0 && (!x->causal || x->t == x->s);
    return narrow && whole && fits && plain ? SGLCUDA_CUDNN_WORKSPACE : 0;
}

#ifdef SGLCUDA_HAS_CUDNN

enum { Q = 1, K, V, OUT, LSE, SCALE, HIDDEN, NAMES = HIDDEN };

typedef struct attention {
    sglcuda_cudnn_graph *graph;
    sglcuda_place places[LSE]; /* in the order of the names */
    sglcuda_place work;
    bool causal;
    float scale, hidden; /* read by the library when it is called */
} attention;

static bool offset_is_zero(const sglexec_program *program, const sglexec_operand *offset)
{
    int64_t value;
    if (offset->space != SGLIR_SPACE_CONST || offset->offset + (int64_t)sizeof value > program->constants.count)
        return false;
    memcpy(&value, program->constants.data + offset->offset, sizeof value);
    return value == 0;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

typedef struct extents {
    sglcuda_cudnn_graph *g;
    const sgl_attention *x;
} extents;

/* Of [b, h, t, s], or of [b, h, t, 1], never stored. */
static cudnnBackendDescriptor_t scores_of(const extents *e, cudnnDataType_t type)
{
    const sgl_attention *x = e->x;
    const int64_t dims[4] = { x->b, x->h, x->t, x->s }, strides[4] = { x->h * x->t * x->s, x->t * x->s, x->s, 1 };
    return sglcuda_cudnn_tensor(e->g, 0, type, dims, strides);
}
static cudnnBackendDescriptor_t row_of(const extents *e, int64_t name)
{
    const sgl_attention *x = e->x;
    const int64_t dims[4] = { x->b, x->h, x->t, 1 }, strides[4] = { x->h * x->t, x->t, 1, 1 };
    return sglcuda_cudnn_tensor(e->g, name, CUDNN_DATA_FLOAT, dims, strides);
}
static cudnnBackendDescriptor_t number_of(const extents *e, int64_t name)
{
    static const int64_t ones[4] = { 1, 1, 1, 1 };
    return sglcuda_cudnn_tensor(e->g, -name, CUDNN_DATA_FLOAT, ones, ones);
}
/* [b, time, heads, width] as it lies, told as [b, heads, time, width], or turned as [b, heads, width, time]. */
static cudnnBackendDescriptor_t heads_of(const extents *e, int64_t name, cudnnDataType_t type, int64_t time,
                                         int64_t heads, int64_t width, bool turned)
{
    const int64_t row = heads * width, dims[4] = { e->x->b, heads, turned ? width : time, turned ? time : width };
    const int64_t strides[4] = { time * row, width, turned ? 1 : row, turned ? row : 1 };
    return sglcuda_cudnn_tensor(e->g, name, type, dims, strides);
}

static cudnnBackendDescriptor_t compute(const extents *e, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t a,
                                        cudnnBackendDescriptor_t b)
{
    const cudnnBackendDescriptor_t y = scores_of(e, CUDNN_DATA_FLOAT);
    sglcuda_cudnn_pointwise(e->g, mode, CUDNN_DATA_FLOAT, a, b, NULL, y, -1);
    return y;
}

/* -inf wherever a query stands before the key. */
static cudnnBackendDescriptor_t hide_later(const extents *e, cudnnBackendDescriptor_t scores)
{
    const cudnnBackendDescriptor_t query = scores_of(e, CUDNN_DATA_INT32), key = scores_of(e, CUDNN_DATA_INT32);
    const cudnnBackendDescriptor_t sees = scores_of(e, CUDNN_DATA_BOOLEAN), y = scores_of(e, CUDNN_DATA_FLOAT);
    sglcuda_cudnn_pointwise(e->g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, NULL, NULL, query, 2);
    sglcuda_cudnn_pointwise(e->g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, scores, NULL, NULL, key, 3);
    sglcuda_cudnn_pointwise(e->g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, key, NULL, sees, -1);
    sglcuda_cudnn_pointwise(e->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores, number_of(e, HIDDEN), sees,
                            y, -1);
    return y;
}

static void describe(const extents *e, sgl_dtype dtype)
{
    const sgl_attention *x = e->x;
    sglcuda_cudnn_graph *g = e->g;
    const cudnnDataType_t narrow = dtype == SGL_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    const cudnnBackendDescriptor_t q = heads_of(e, Q, narrow, x->t, x->h, x->d, false);
    const cudnnBackendDescriptor_t k = heads_of(e, K, narrow, x->s, x->g, x->d, true);
    const cudnnBackendDescriptor_t v = heads_of(e, V, narrow, x->s, x->g, x->e, false);
    const cudnnBackendDescriptor_t out = heads_of(e, OUT, narrow, x->t, x->h, x->e, false);
    const cudnnBackendDescriptor_t products = scores_of(e, CUDNN_DATA_FLOAT);
    sglcuda_cudnn_matmul(g, q, k, products);
    cudnnBackendDescriptor_t scores = compute(e, CUDNN_POINTWISE_MUL, products, number_of(e, SCALE));
    if (x->causal) scores = hide_later(e, scores);
    const cudnnBackendDescriptor_t most = row_of(e, 0), sum = row_of(e, 0), log_sum = row_of(e, 0);
    sglcuda_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, most);
    const cudnnBackendDescriptor_t less = compute(e, CUDNN_POINTWISE_SUB, scores, most);
    const cudnnBackendDescriptor_t powers = compute(e, CUDNN_POINTWISE_EXP, less, NULL);
    sglcuda_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    sglcuda_cudnn_pointwise(g, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, NULL, NULL, log_sum, -1);
    sglcuda_cudnn_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, most, log_sum, NULL, row_of(e, LSE), -1);
    const cudnnBackendDescriptor_t p = scores_of(e, narrow);
    sglcuda_cudnn_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, powers, sum, NULL, p, -1);
    sglcuda_cudnn_matmul(g, p, v, out);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static sgl_status run_attention(const sglcuda_launch *launch, const void *plan)
{
    static const int64_t names[NAMES] = { Q, K, V, OUT, LSE, SCALE, HIDDEN };
    const attention *a = plan;
    void *addresses[NAMES];
    for (int i = 0; i < LSE; i++) addresses[i] = (void *)(uintptr_t)sglcuda_at(launch, a->places[i]);
    addresses[SCALE - 1] = (void *)(uintptr_t)&a->scale;
    addresses[HIDDEN - 1] = (void *)(uintptr_t)&a->hidden;
    return sglcuda_cudnn_execute(launch, a->graph, names, addresses, a->causal ? HIDDEN : SCALE,
                                 (void *)(uintptr_t)sglcuda_at(launch, a->work));
}

/* The graph of this shape, planned at its first use; NULL plan: the library has none. */
static sgl_status graph_of(sglcuda_prepare *p, const sglcuda_heads *a, sglcuda_cudnn_graph **graph)
{
    const int64_t shape[] = { a->dtype,    a->values.b, a->values.t, a->values.h,     a->values.d,
                              a->values.s, a->values.g, a->values.e, a->values.causal };
    const sglcore_hash key = sglcore_hash_bytes(shape, sizeof shape);
    bool usable;
    SGLCORE_TRY(sglcuda_cudnn_find(p->device, key, &usable, graph));
    if (!usable || *graph) return SGL_OK;
    SGLCORE_TRY(sglcuda_cudnn_new(p->device, key, graph));
    const extents e = { *graph, &a->values };
    describe(&e, a->dtype);
    return sglcuda_cudnn_finish(p->device, *graph, SGLCUDA_CUDNN_WORKSPACE, "attention");
}

sgl_status sglcuda_attention_by_cudnn(sglcuda_prepare *p, const sglexec_instruction *i, const sglcuda_heads *a,
                                      sglcuda_command *command)
{
    const sglexec_operand *out = sglcuda_operand(p->program, i, i->arg_count);
    const sglexec_operand *const bound[] = { a->q, a->k, a->v, out, out + 1 };
    const int64_t work_bytes = sglcuda_attention_cudnn_workspace(a);
    sglcuda_cudnn_graph *graph;
    if (sglcore_knob_int(SGLCORE_KNOB_CUDA_CUDNN) == 0 || work_bytes == 0 || i->work_bytes < work_bytes) return SGL_OK;
    if (a->values.causal && !offset_is_zero(p->program, a->offset)) return SGL_OK;
    for (int n = 0; n < LSE; n++)
        if (bound[n]->offset % 16 != 0) return SGL_OK;
    SGLCORE_TRY(graph_of(p, a, &graph));
    if (graph == NULL || graph->plan == NULL) return SGL_OK;
    attention *plan = sglcuda_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    *plan = (attention){ .graph = graph,
                         .work = sglcuda_work_place(i, 0),
                         .causal = a->values.causal,
                         .scale = (float)a->values.scale,
                         .hidden = -INFINITY };
    for (int n = 0; n < LSE; n++) plan->places[n] = sglcuda_place_of(bound[n]);
    *command = (sglcuda_command){ .run = run_attention, .plan = plan };
    return SGL_OK;
}

#else

sgl_status sglcuda_attention_by_cudnn(sglcuda_prepare *p, const sglexec_instruction *i, const sglcuda_heads *a,
                                      sglcuda_command *command)
{
    (void)p, (void)i, (void)a, (void)command;
    return SGL_OK;
}

#endif
