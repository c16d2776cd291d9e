/* fused.c -- instructions that carry a kernel: the plan is made from it as it is.
 *
 * In: a FUSED instruction. Out: a command. The workspace is bounded from the node alone, before any kernel is described:
 * each result of the region that is a reduction may be a sum over the columns or a total. */
#include "backend/cpu/tile.h"
#include "ir/domain.h"

/* The node behind a region's result, movement of the sum left aside. */
static const sglir_node *maker_behind(const sglir_graph *g, sglir_id value)
{
    const sglir_node *maker = sglir_maker(g, value);
    while (maker != NULL && maker->arg_count == 1 && (sglir_ops[maker->op].flags & SGLIR_MOVEMENT) != 0) {
        maker = sglir_maker(g, sglir_arg(g, maker, 0));
    }
    return maker;
}

int64_t sglcpu_fused_workspace(const sglir_graph *g, const sglir_node *node)
{
    int rank;
    const int64_t *dims = sglir_attr_ints(g, node, "domain", &rank);
    int64_t all = 1, bytes = 0;
    for (int d = 0; d < rank; d++) all *= dims[d];
    const sglir_region *region = &g->regions.data[node->region_first];
    for (int64_t i = 0; i < region->results.count; i++) {
        const sglir_node *maker = maker_behind(g, region->results.data[i]);
        if (maker == NULL || (sglir_ops[maker->op].flags & SGLIR_REDUCTION) == 0) continue;
        int64_t kept = sglir_elements(sglir_type_of(g, region->results.data[i]));
        if (kept == 1)
            bytes += sglcpu_tile_workspace(all, 1, 1, 1);
        else if (kept > 1 && !sglir_reduces_last(g, maker))
            bytes += sglcpu_tile_workspace(all / kept, kept, 1, 0);
    }
    return bytes;
}

sgl_status sglcpu_prepare_fused(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    const sglexec_kernel *kernel = &p->program->kernels.data[i->kernel];
    const sglcpu_tile *tile;
    SGLCORE_TRY(
        sglcpu_tile_plan(p, kernel, sglcpu_operand(p->program, i, 0), (int)(i->arg_count + i->result_count), &tile));
    if (tile->work_bytes > i->work_bytes) {
        return sglcore_fail(p->env, SGL_INTERNAL, "cpu: kernel %u needs %lld bytes of workspace and was given %lld",
                            i->kernel, (long long)tile->work_bytes, (long long)i->work_bytes);
    }
    command->run = sglcpu_tile_run;
    command->plan = tile;
    return SGL_OK;
}
