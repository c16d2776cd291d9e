/* nvtx.c -- ranges by which a profiler (Nsight Systems, Nsight Compute) tells whose kernels it sees: one around the launch of each
 * instruction, named by its op, its module path and its script line.
 *
 * In: a program, launches. Out: ranges of the domain "sgl". NVTX is headers alone (nvtx3, which CUDA 12 and 13 bring): a profiler names a
 * library of its own in NVTX_INJECTION64_PATH, which they open at the first call; without one they do nothing, and no name is
 * made. A row that runs as a CUDA graph has its ranges when it is captured; SGL_CUDA_GRAPH=0 gives every launch its own. Odd
 * invariant: where the toolkit has no such headers, this file is empty of them, and says that nobody is attached. */
#include "backend/cuda/cuda.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

/* NULL where no profiler is attached. */
void *sglcuda_open_ranges(void) { return nvtxDomainCreateA("sgl"); }

void sglcuda_close_ranges(void *domain)
{
    if (domain) nvtxDomainDestroy(domain);
}

void sglcuda_begin_range(void *domain, const char *name)
{
    nvtxEventAttributes_t range = { .version = NVTX_VERSION,
                                    .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                    .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                    .message.ascii = name };
    if (domain) (void)nvtxDomainRangePushEx(domain, &range);
}

void sglcuda_end_range(void *domain)
{
    if (domain) (void)nvtxDomainRangePop(domain);
}
#else
void *sglcuda_open_ranges(void) { return NULL; }
void sglcuda_close_ranges(void *domain) { (void)domain; }
void sglcuda_begin_range(void *domain, const char *name) { (void)domain, (void)name; }
void sglcuda_end_range(void *domain) { (void)domain; }
#endif

/* "dot f32[64,8]  ; llama.lua:42 blocks.0.attn" */
static sgl_status name_of(sglcuda_prepare *p, const sglexec_instruction *i, const char **name)
{
    sglcore_text text = { 0 };
    sgl_status status = sglexec_work_label(p->program, i, &text);
    if (status == SGL_OK) status = sglexec_origin_print(p->program, i->origin, &text);
    if (status == SGL_OK) {
        *name = sglcore_arena_string(p->arena, text.data, (size_t)text.count);
        if (!*name) status = SGL_OUT_OF_MEMORY;
    }
    sglcore_text_free(p->env, &text);
    return status;
}

sgl_status sglcuda_name_ranges(sglcuda_prepare *p, const char *const **names)
{
    const int64_t count = p->program->instructions.count;
    *names = NULL;
    if (!p->device->ranges) return SGL_OK;
    const char **made = sglcuda_plan_alloc(p, count, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    for (int64_t n = 0; n < count; n++) SGLCORE_TRY(name_of(p, &p->program->instructions.data[n], &made[n]));
    *names = made;
    return SGL_OK;
}
