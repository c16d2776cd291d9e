/* blas.c -- libcublasLt.so.13 for the GPU that is not there: every shape has an algorithm, and no product is computed.
 *
 * In: the calls of backend/cuda/blas.c. Out: success, and up to two algorithms without workspace; of a call without a descriptor, or with
 * a bias of no address, a refusal. Odd invariant: of what a descriptor is told only the bias is kept, in the caller's memory. */
#include <string.h>

#include <cublasLt.h>

static int handle_of_all;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)(void *)&handle_of_all;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return handle == (cublasLtHandle_t)(void *)&handle_of_all ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}

/* What a descriptor of a product holds here. */
typedef struct product {
    cublasLtEpilogue_t epilogue;
    const void *bias;
} product;

/* No memory of a device lies so low. */
static const uintptr_t LOWEST_ADDRESS = 4096;

static int has_its_bias(cublasLtMatmulDesc_t descriptor)
{
    product p;
    memcpy(&p, descriptor, sizeof p);
    return p.epilogue != CUBLASLT_EPILOGUE_BIAS || (uintptr_t)p.bias >= LOWEST_ADDRESS;
}

static cublasStatus_t begin(void *descriptor, size_t bytes)
{
    if (descriptor == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    memset(descriptor, 0, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t descriptor, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale)
{
    (void)compute, (void)scale;
    return begin(descriptor, bytes);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t pitch)
{
    (void)type;
    if (rows == 0 || columns == 0 || pitch < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    return begin(layout, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes)
{
    return begin(preference, bytes);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    product p;
    if (descriptor == NULL || value == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&p, descriptor, sizeof p);
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE && bytes == sizeof p.epilogue) memcpy(&p.epilogue, value, bytes);
    if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER && bytes == sizeof p.bias) memcpy(&p.bias, value, bytes);
    memcpy(descriptor, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    (void)attribute, (void)bytes;
    return layout != NULL && value != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    (void)attribute, (void)bytes;
    return preference != NULL && value != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    if (handle == NULL || !descriptor || !a || !b || !c || !d || !preference || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    *found = wanted < 2 ? wanted : 2;
    memset(results, 0, (size_t)*found * sizeof *results);
    for (int i = 0; i < *found; i++) results[i].state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *work, size_t work_bytes, cudaStream_t stream)
{
    (void)work, (void)work_bytes, (void)algorithm;
    if (descriptor && !has_its_bias(descriptor)) return CUBLAS_STATUS_INVALID_VALUE;
    const int whole = handle && descriptor && alpha && a && a_layout && b && b_layout && beta && c && c_layout && d &&
                      d_layout && stream;
    return whole ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
