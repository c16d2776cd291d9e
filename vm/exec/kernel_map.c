/* kernel_map.c -- from the axes of a domain to the few dims that a backend loops over.
 *
 * In: drafts of steps with a stride per axis. Out: the kernel's dims, and a map per step. Two neighbouring axes become
 * one dim where every map walks through both with one stride, and the split does not part them. Odd invariant: where
 * nothing decides the split, the innermost merged dim is the inner one, so that what varies along the outer dims only
 * is of form ROW. */
#include "exec/kernel_build.h"

static bool can_merge(const sglexec_builder *b, int axis)
{
    const sglir_domain *d = &b->domain;
    if (!d->free && axis + 1 == d->outer) return false;
    for (int64_t i = 0; i < b->drafts.count; i++) {
        const sglexec_draft *draft = &b->drafts.data[i];
        if (draft->mapped && draft->strides[axis] != draft->strides[axis + 1] * d->extents[axis + 1]) return false;
    }
    return true;
}

sgl_status sglexec_kernel_merge(sglexec_builder *b)
{
    const sglir_domain *d = &b->domain;
    sglexec_kernel *kernel = b->kernel;
    int last[SGLIR_DOMAIN_AXES], dims = 0; /* per dim: its innermost axis */
    int64_t extents[SGLIR_DOMAIN_AXES];
    for (int axis = 0; axis < d->axes; axis++) {
        bool merged = axis > 0 && can_merge(b, axis - 1);
        if (!merged) extents[dims++] = 1;
        extents[dims - 1] *= d->extents[axis];
        last[dims - 1] = axis;
    }
    if (dims > SGL_MAX_RANK)
        return sglexec_kernel_refuse(b, SGLIR_NONE,
                                     "its arguments and results lie too differently for eight dimensions");
    kernel->rank = dims;
    kernel->inner = 0;
    kernel->rows = kernel->cols = 1;
    b->outer = 0;
    for (int i = 0; i < dims; i++) {
        bool inner = d->free ? i == dims - 1 : last[i] >= d->outer;
        kernel->dims[i] = extents[i];
        kernel->inner += inner;
        *(inner ? &kernel->cols : &kernel->rows) *= extents[i];
        for (int axis = i == 0 ? 0 : last[i - 1] + 1; axis <= last[i] && !inner; axis++) b->outer |= 1u << axis;
    }
    for (int64_t i = 0; i < b->drafts.count; i++) {
        sglexec_draft *draft = &b->drafts.data[i];
        for (int k = 0; k < dims && draft->mapped; k++) draft->step.map.strides[k] = draft->strides[last[k]];
    }
    return SGL_OK;
}
