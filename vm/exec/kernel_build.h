/* kernel_build.h -- what the files of the kernel builder share: the description on its way.
 *
 * kernel.c makes steps from the region's nodes, kernel_map.c merges dims and turns strides into maps, kernel_order.c
 * settles phases, order and register numbers. In: an analysed domain. Odd invariant: until the end a step's map has one
 * stride per axis of the domain, and there may be more axes than a finished map holds. */
#ifndef SGLEXEC_KERNEL_BUILD_H
#define SGLEXEC_KERNEL_BUILD_H

#include "exec/kernel.h"
#include "ir/domain.h"

/* A step before its map is final. */
typedef struct sglexec_draft {
    sglexec_step step;
    int64_t strides[SGLIR_DOMAIN_AXES];
    bool mapped; /* its strides count */
} sglexec_draft;

typedef struct sglexec_builder {
    sglcore_env *env;
    const sglir_graph *g;
    sglir_id fused;
    sglir_domain domain;
    uint32_t outer; /* bit per axis of the domain: it is an outer one */
    SGLCORE_VEC(sglexec_draft) drafts;
    SGLCORE_VEC(uint32_t) registers; /* per value of the domain: register + 1, 0: none */
    uint32_t register_count;
    sglexec_kernel *kernel;
} sglexec_builder;

/* Decides the kernel's dims from the drafts' strides, and `outer`. TYPE when they are too many. */
sgl_status sglexec_kernel_merge(sglexec_builder *b);
/* Phases; steps sorted into the kernel; registers numbered in order. */
sgl_status sglexec_kernel_settle(sglexec_builder *b);
/* Fails and names the inner node (SGLIR_NONE: the fused node itself). */
sgl_status sglexec_kernel_refuse(const sglexec_builder *b, sglir_id node, const char *reason);

#endif
