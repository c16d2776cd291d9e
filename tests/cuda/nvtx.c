/* nvtx.c -- a profiler that is none: it hears the ranges of NVTX and tells them on stderr, for tests.
 *
 * In: NVTX_INJECTION64_PATH names this library, and NVTX's headers in the backend open it. Out: "nvtx: NAME" for each range that
 * begins, and at the end "nvtx: N ranges, all of domain DOMAIN ended", or what is wrong. Odd invariant: a range that ends without
 * having begun, or never ends, is told in place of the closing line. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int depth, ranges, faults;
static char heard[64];

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    snprintf(heard, sizeof heard, "%s", name);
    return (nvtxDomainHandle_t)(void *)heard;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    faults += (void *)domain != heard || range->messageType != NVTX_MESSAGE_TYPE_ASCII;
    fprintf(stderr, "nvtx: %s\n", range->message.ascii);
    ranges++;
    return depth++;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    faults += (void *)domain != heard || depth == 0;
    return --depth;
}

static void tell(void)
{
    if (faults == 0 && depth == 0)
        fprintf(stderr, "nvtx: %d ranges, all of domain %s ended\n", ranges, heard);
    else
        fprintf(stderr, "nvtx: %d faults, %d ranges are open\n", faults, depth);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables)
{
    NvtxExportTableCallbacks callbacks;
    NvtxFunctionTable table;
    unsigned int size = 0;
    memcpy(&callbacks, tables(NVTX_ETID_CALLBACKS), sizeof callbacks);
    if (callbacks.GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 || size < NVTX_CBID_CORE2_SIZE)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return atexit(tell) == 0;
}
