/* blas.c -- cuBLASLt: opened at a device's first product, asked once for each shape.
 *
 * In: shapes of products (blas.h). Out: descriptors, an algorithm of the heuristic (blas_choose.c), calls. Sums are f32 (f64
 * of f64), never TF32; an algorithm that splits a sum keeps the parts in f32 and adds them in their order, so that
 * the same product has the same bits in every run. Odd invariant: what the heuristic is told follows from the shape,
 * the alignments and the device's kind alone, so that equal programs get algorithms of equal bits. */
#include <string.h>

#include "backend/cuda/blas.h"
#include "core/span.h"

#define SGLCUDA_BLAS_LIBRARY "libcublasLt.so.13"

#define SGLCUDA_BLAS_MAP(X)                                                                                            \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtDestroy)                                                                                                 \
    X(cublasLtGetVersion)                                                                                              \
    X(cublasLtGetStatusName)                                                                                           \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulDescInit_internal)                                                                                 \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatrixLayoutInit_internal)                                                                               \
    X(cublasLtMatrixLayoutSetAttribute)                                                                                \
    X(cublasLtMatmulPreferenceInit_internal)                                                                           \
    X(cublasLtMatmulPreferenceSetAttribute)

typedef struct library {
    SGLCUDA_BLAS_MAP(SGLCUDA_MEMBER)
} library;

/* What became of a shape. */
typedef struct choice {
    bool found;
    sglcuda_algorithm algorithm;
} choice;

typedef struct sglcuda_blas {
    library calls;
    cublasLtHandle_t handle;
    sglcore_map shapes; /* hash of a shape to its place in choices */
    SGLCORE_VEC(choice) choices;
} sglcuda_blas;

static sgl_status check(sglcore_env *env, const library *calls, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS) return SGL_OK;
    return sglcore_fail(env, status == CUBLAS_STATUS_ALLOC_FAILED ? SGL_OUT_OF_MEMORY : SGL_DEVICE, "cuda: %s: %s",
                        what, calls->cublasLtGetStatusName(status));
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

static sgl_status find_functions(sglcore_env *env, library *calls)
{
    void *handle, *function;
    SGLCORE_TRY(sglcuda_library_open(env, SGLCUDA_BLAS_LIBRARY, "products of matrices", &handle));
#define FIND(name)                                                                                                     \
    SGLCORE_TRY(sglcuda_library_function(env, handle, SGLCUDA_BLAS_LIBRARY, #name, &function));                        \
    memcpy(&calls->name, &function, sizeof function);
    SGLCUDA_BLAS_MAP(FIND)
#undef FIND
    return SGL_OK;
}

static sgl_status open_library(sglexec_device *device)
{
    if (device->blas != NULL) return SGL_OK;
    sglcuda_blas *blas = sglcore_alloc_zero(device->env, sizeof *blas);
    if (blas == NULL) return SGL_OUT_OF_MEMORY;
    const int64_t begun = sglcore_now_ns();
    sgl_status status = find_functions(device->env, &blas->calls);
    if (status == SGL_OK)
        status = check(device->env, &blas->calls, blas->calls.cublasLtCreate(&blas->handle), "opening cuBLASLt");
    if (status != SGL_OK) {
        sglcore_free(device->env, blas, sizeof *blas);
        return status;
    }
    device->blas = blas;
    sglcore_span(device->env, begun, "cuda: opening cuBLASLt");
    return SGL_OK;
}

void sglcuda_close_blas(sglexec_device *device)
{
    sglcuda_blas *blas = device->blas;
    if (blas == NULL) return;
    device->blas = NULL;
    blas->calls.cublasLtDestroy(blas->handle);
    sglcore_map_free(device->env, &blas->shapes);
    sglcore_vec_free(device->env, &blas->choices);
    sglcore_free(device->env, blas, sizeof *blas);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static cudaDataType_t type_of(int64_t dtype)
{
    switch ((sgl_dtype)dtype) {
    case SGL_F64: return CUDA_R_64F;
    case SGL_BF16: return CUDA_R_16BF;
    case SGL_F16: return CUDA_R_16F;
    case SGL_F8E4M3: return CUDA_R_8F_E4M3;
    case SGL_F8E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
    }
}

/* A matrix whose rows the library wants contiguous. */
typedef struct matrix {
    int64_t rows, columns, pitch, run, run_stride;
} matrix;

static cublasStatus_t describe(const library *calls, int64_t dtype, const matrix *m, cublasLtMatrixLayoutOpaque_t *out)
{
    const int64_t pitch = sglcuda_max(m->pitch, m->rows);
    const int32_t run = (int32_t)m->run;
    cublasStatus_t status = calls->cublasLtMatrixLayoutInit_internal(out, sizeof *out, type_of(dtype),
                                                                     (uint64_t)m->rows, (uint64_t)m->columns, pitch);
    if (status != CUBLAS_STATUS_SUCCESS || run == 1) return status;
    status = calls->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &run, sizeof run);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return calls->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->run_stride,
                                                   sizeof m->run_stride);
}

/* A factor, its free dim by its depth: true where its depth is what lies together. */
static bool place_factor(int64_t free, int64_t depth, int64_t free_stride, int64_t depth_stride, matrix *m)
{
    bool along_depth = depth > 1 ? depth_stride == 1 : free > 1 && free_stride != 1;
    m->rows = along_depth ? depth : free;
    m->columns = along_depth ? free : depth;
    m->pitch = along_depth ? free_stride : depth_stride;
    if (m->columns == 1) m->pitch = m->rows;
    return along_depth;
}

/* The library adds it to columns of what it makes, which are rows of c. An address as aligned as the true
 * one, which follows at each launch, lets the heuristic choose. */
static cublasStatus_t describe_bias(const library *calls, int64_t alignment, sglcuda_matmul *out)
{
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const void *somewhere = (const void *)(uintptr_t)alignment;
    const cublasStatus_t status =
        calls->cublasLtMatmulDescSetAttribute(&out->call, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return calls->cublasLtMatmulDescSetAttribute(&out->call, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &somewhere,
                                                 sizeof somewhere);
}

static cublasStatus_t describe_all(const library *calls, const sglcuda_matmul_shape *s, sglcuda_matmul *out)
{
    matrix a = { .run = s->run, .run_stride = s->run_a }, b = { .run = s->run, .run_stride = s->run_b };
    const matrix c = { s->columns, s->rows, s->c_row > 0 ? s->c_row : s->columns, s->run, s->run_c };
    const int32_t plain = CUBLAS_OP_N, turned = CUBLAS_OP_T;
    bool a_plain = place_factor(s->rows, s->depth, s->a_row, s->a_depth, &a);
    bool b_turned = place_factor(s->columns, s->depth, s->b_column, s->b_depth, &b);
    out->real64 = s->dtype == SGL_F64;
    out->adds = s->adds != 0;
    out->bias = s->bias != 0;
    cublasStatus_t status =
        calls->cublasLtMatmulDescInit_internal(&out->call, sizeof out->call,
                                               out->real64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                               out->real64 ? CUDA_R_64F : CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->cublasLtMatmulDescSetAttribute(&out->call, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       b_turned ? &turned : &plain, sizeof turned);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->cublasLtMatmulDescSetAttribute(&out->call, CUBLASLT_MATMUL_DESC_TRANSB,
                                                       a_plain ? &plain : &turned, sizeof plain);
    if (status == CUBLAS_STATUS_SUCCESS && out->bias) status = describe_bias(calls, s->bias, out);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe(calls, s->dtype, &a, &out->a);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe(calls, s->dtype, &b, &out->b);
    if (status == CUBLAS_STATUS_SUCCESS) status = describe(calls, s->result, &c, &out->c);
    return status;
}

/* ---- the heuristic ----------------------------------------------------------------------------------------------- */

static cublasStatus_t prefer(const library *calls, const sglcuda_matmul_shape *s, cublasLtMatmulPreferenceOpaque_t *out)
{
    /* no sum split with its parts in the result's dtype or place */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint64_t bytes = (uint64_t)s->work_bytes;
    const uint32_t alignments[] = { (uint32_t)s->b_alignment, (uint32_t)s->a_alignment, (uint32_t)s->c_alignment,
                                    (uint32_t)s->c_alignment };
    static const cublasLtMatmulPreferenceAttributes_t names[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    cublasStatus_t status = calls->cublasLtMatmulPreferenceInit_internal(out, sizeof *out);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->cublasLtMatmulPreferenceSetAttribute(out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                             &reductions, sizeof reductions);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = calls->cublasLtMatmulPreferenceSetAttribute(out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                             sizeof bytes);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = calls->cublasLtMatmulPreferenceSetAttribute(out, names[i], &alignments[i], sizeof alignments[i]);
    return status;
}

/* The library says INVALID_VALUE or NOT_SUPPORTED to what it has no kernel for. */
static bool refuses(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED;
}

/* *count: of the algorithms that the library has for the shape, the best first as it thinks. */
static sgl_status ask(sglcore_env *env, sglcuda_blas *blas, const sglcuda_matmul_shape *shape, sglcuda_matmul *matmul,
                      sglcuda_algorithm algorithms[SGLCUDA_ALGORITHMS], int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[SGLCUDA_ALGORITHMS];
    int returned = 0;
    *count = 0;
    SGLCORE_TRY(
        check(env, &blas->calls, prefer(&blas->calls, shape, &preference), "telling cuBLASLt what is preferred"));
    cublasStatus_t status =
        blas->calls.cublasLtMatmulAlgoGetHeuristic(blas->handle, &matmul->call, &matmul->b, &matmul->a, &matmul->c,
                                                   &matmul->c, &preference, SGLCUDA_ALGORITHMS, results, &returned);
    if (refuses(status)) return SGL_OK;
    SGLCORE_TRY(check(env, &blas->calls, status, "asking cuBLASLt for an algorithm"));
    for (int i = 0; i < returned; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
        algorithms[(*count)++] = (sglcuda_algorithm){ results[i].algo, (int64_t)results[i].workspaceSize };
    }
    return SGL_OK;
}

static sgl_status choose(sglexec_device *device, const sglcuda_matmul_shape *shape, sglcuda_matmul *matmul,
                         choice *answer)
{
    sglcuda_algorithm algorithms[SGLCUDA_ALGORITHMS];
    int count, chosen = 0;
    *answer = (choice){ .found = false };
    SGLCORE_TRY(ask(device->env, device->blas, shape, matmul, algorithms, &count));
    if (count == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_choose_algorithm(device, shape, matmul, device->blas->calls.cublasLtGetVersion(), algorithms,
                                         count, &chosen));
    *answer = (choice){ .found = true, .algorithm = algorithms[chosen] };
    return SGL_OK;
}

sgl_status sglcuda_matmul_find(sglexec_device *device, const sglcuda_matmul_shape *shape, sglcuda_matmul *matmul,
                               bool *found)
{
    *found = false;
    SGLCORE_TRY(open_library(device));
    sglcuda_blas *blas = device->blas;
    cublasStatus_t status = describe_all(&blas->calls, shape, matmul);
    if (refuses(status)) return SGL_OK;
    SGLCORE_TRY(check(device->env, &blas->calls, status, "describing a product to cuBLASLt"));
    const sglcore_hash key = sglcore_hash_bytes(shape, sizeof *shape);
    uint64_t at;
    if (!sglcore_map_get(&blas->shapes, key, &at)) {
        choice answer;
        SGLCORE_TRY(choose(device, shape, matmul, &answer));
        at = (uint64_t)blas->choices.count;
        SGLCORE_TRY(sglcore_vec_push(device->env, &blas->choices, answer));
        SGLCORE_TRY(sglcore_map_put(device->env, &blas->shapes, key, at));
    }
    const choice *chosen = &blas->choices.data[at];
    matmul->algorithm = chosen->algorithm.algorithm;
    matmul->work_bytes = chosen->algorithm.work_bytes;
    *found = chosen->found;
    return SGL_OK;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

sgl_status sglcuda_matmul_place_bias(const sglcuda_launch *launch, const sglcuda_matmul *matmul, CUdeviceptr bias)
{
    const sglcuda_blas *blas = launch->device->blas;
    const void *at = (const void *)(uintptr_t)bias;
    sglcuda_matmul *m = (sglcuda_matmul *)(uintptr_t)matmul; /* a plan, launched by one thread at a time */
    return check(launch->device->env, &blas->calls,
                 blas->calls.cublasLtMatmulDescSetAttribute(&m->call, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at,
                                                            sizeof at),
                 "telling cuBLASLt of a bias");
}

sgl_status sglcuda_matmul_run(const sglcuda_launch *launch, const sglcuda_matmul *matmul, CUdeviceptr a, CUdeviceptr b,
                              CUdeviceptr c, CUdeviceptr work)
{
    static const float one = 1, zero = 0;
    static const double one64 = 1, zero64 = 0;
    const sglcuda_blas *blas = launch->device->blas;
    const void *alpha = matmul->real64 ? (const void *)&one64 : &one;
    const void *beta = matmul->adds ? alpha : matmul->real64 ? (const void *)&zero64 : &zero;
    /* the library's prototypes take descriptors that it does not change by pointers that would let it */
    sglcuda_matmul *m = (sglcuda_matmul *)(uintptr_t)matmul;
    void *result = (void *)(uintptr_t)c;
    cublasStatus_t status =
        blas->calls.cublasLtMatmul(blas->handle, &m->call, alpha, (const void *)(uintptr_t)b, &m->b,
                                   (const void *)(uintptr_t)a, &m->a, beta, result, &m->c, result, &m->c, &m->algorithm,
                                   (void *)(uintptr_t)work, (size_t)m->work_bytes, launch->stream);
    return check(launch->device->env, &blas->calls, status, "a product by cuBLASLt");
}
