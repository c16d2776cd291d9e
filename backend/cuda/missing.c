/* missing.c -- families of commands whose files have not joined this branch: each is weak, and gives way to the file's own.
 *
 * In: an instruction. Out: UNSUPPORTED, by name. Odd invariant: this file leaves the branch before it is merged. */
#include "backend/cuda/cuda.h"

#define WEAK __attribute__((weak))
#define MISSING(family)                                                                                                \
    WEAK sgl_status sglcuda_prepare_##family(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *c)     \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "cuda: %s: no file has this family", sglir_ops[i->op].name);      \
    }
MISSING(fused)
MISSING(single)
MISSING(dot)
MISSING(concat)
MISSING(pad)
MISSING(pack)
MISSING(unpack)
MISSING(copy)
MISSING(dynamic)
MISSING(gather)
MISSING(scatter)
MISSING(along)
MISSING(prod)
MISSING(sort)
MISSING(windows)

#define NO_WORKSPACE(family)                                                                                           \
    WEAK int64_t sglcuda_##family##_workspace(const sglir_graph *g, const sglir_node *node)                            \
    {                                                                                                                  \
        (void)g, (void)node;                                                                                           \
        return 0;                                                                                                      \
    }
NO_WORKSPACE(fused)
NO_WORKSPACE(single)
NO_WORKSPACE(dot)
NO_WORKSPACE(sort)
NO_WORKSPACE(scatter)
NO_WORKSPACE(along)
