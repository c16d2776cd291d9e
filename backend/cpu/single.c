/* single.c -- elementwise ops, generators, reductions and movement that stand alone: each as a kernel of its own.
 *
 * In: an instruction of one such op (exec/kernel_single.h), or a copy that another family needs. Out: the command of that
 * kernel, planned as those of `fuse` are. */
#include "backend/cpu/tile.h"
#include "exec/kernel_single.h"

int64_t sglcpu_single_workspace(const sglir_graph *g, const sglir_node *node)
{
    if ((sglir_ops[node->op].flags & SGLIR_REDUCTION) == 0) return 0;
    int64_t all = sglir_elements(sglir_type_of(g, sglir_arg(g, node, 0)));
    int64_t kept = sglir_elements(sglir_type_of(g, node->out_first));
    if (kept == 0) return 0;
    return sglcpu_tile_workspace(all / kept, kept, 1, 1);
}

sgl_status sglcpu_prepare_permute(sglcpu_prepare *p, const sglexec_operand *from, const int64_t *strides,
                                  const sglexec_operand *to, sglcpu_command *command)
{
    sglexec_operand *operands = sglcpu_plan_alloc(p, 2, sizeof *operands);
    const sglexec_kernel *kernel;
    const sglcpu_tile *tile;
    if (operands == NULL) return SGL_OUT_OF_MEMORY;
    operands[0] = *from;
    operands[1] = *to;
    SGLCORE_TRY(sglexec_kernel_permute(p->arena, from, strides, to, &kernel));
    SGLCORE_TRY(sglcpu_tile_plan(p, kernel, operands, 2, &tile));
    *command = (sglcpu_command){ .run = sglcpu_tile_run, .plan = tile };
    return SGL_OK;
}

sgl_status sglcpu_prepare_single(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    const sglexec_kernel *kernel;
    const sglcpu_tile *tile;
    SGLCORE_TRY(sglexec_kernel_single(p->arena, p->program, i, &kernel));
    SGLCORE_TRY(
        sglcpu_tile_plan(p, kernel, sglcpu_operand(p->program, i, 0), (int)(i->arg_count + i->result_count), &tile));
    if (tile->work_bytes > i->work_bytes) {
        return sglcore_fail(p->env, SGL_INTERNAL, "cpu: %s needs %lld bytes of workspace and was given %lld",
                            sglir_ops[i->op].name, (long long)tile->work_bytes, (long long)i->work_bytes);
    }
    *command = (sglcpu_command){ .run = sglcpu_tile_run, .plan = tile };
    return SGL_OK;
}
