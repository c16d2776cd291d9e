/* fused.c -- instructions that are kernels, of a fused region or of one op: printed, compiled, launched.
 *
 * In: a FUSED instruction, or an elementwise op, a reduction, a generator or movement that stands alone. Out: a command of
 * the launches that emit.c says. Odd invariant: the workspace is told by building the very kernel, so that what memory planned is
 * what the launches use. */
#include "backend/cuda/emit.h"
#include "exec/kernel_single.h"

/* Pointers that a launch takes: 32,764 bytes of arguments since CUDA 12.1. */
enum { MOST_PLACES = 4000 };

static sgl_status add_launches(sglcuda_prepare *p, const sglexec_instruction *i, const sglcuda_emitted *emitted,
                               sglcuda_command *command)
{
    const int count = (int)(i->arg_count + i->result_count);
    sglcuda_place *places = sglcuda_plan_alloc(p, count + 1, sizeof *places);
    if (places == NULL) return SGL_OUT_OF_MEMORY;
    for (int n = 0; n < count; n++) places[n] = sglcuda_place_of(sglcuda_operand(p->program, i, (uint32_t)n));
    places[count] = sglcuda_work_place(i, 0);
    for (int n = 0; n < emitted->count; n++) {
        const sglcuda_function *function;
        SGLCORE_TRY(sglcuda_source(p, emitted->text.data, emitted->entries[n].name, &function));
        SGLCORE_TRY(sglcuda_add_step(p, command, function, emitted->entries[n].grid, places, count + 1, NULL, 0));
    }
    return SGL_OK;
}

static sgl_status prepare_kernel(sglcuda_prepare *p, const sglexec_instruction *i, const sglexec_kernel *kernel,
                                 sglcuda_command *command)
{
    const int count = (int)(i->arg_count + i->result_count);
    sglcuda_emitted emitted;
    if (count >= MOST_PLACES)
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "cuda: a kernel of %d arguments and results; at most %d", count,
                            MOST_PLACES - 1);
    if (sglcuda_emit_workspace(kernel) > i->work_bytes)
        return sglcore_fail(p->env, SGL_INTERNAL, "cuda: %s needs %lld bytes of workspace and was given %lld",
                            sglir_ops[i->op].name, (long long)sglcuda_emit_workspace(kernel), (long long)i->work_bytes);
    sgl_status status = sglcuda_emit(p->env, kernel, sglcuda_operand(p->program, i, 0), count, &emitted);
    if (status == SGL_OK) status = sglcore_text_bytes(p->env, &emitted.text, "", 1);
    if (status == SGL_OK) status = add_launches(p, i, &emitted, command);
    sglcore_text_free(p->env, &emitted.text);
    return status;
}

sgl_status sglcuda_prepare_fused(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    return prepare_kernel(p, i, &p->program->kernels.data[i->kernel], command);
}

sgl_status sglcuda_prepare_single(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_kernel *kernel;
    SGLCORE_TRY(sglexec_kernel_single(p->arena, p->program, i, &kernel));
    return prepare_kernel(p, i, kernel, command);
}

/* ---- for people --------------------------------------------------------------------------------------------------- */

sgl_status sglcuda_print_source(sglcore_env *env, const sglexec_program *program, uint32_t index, sglcore_text *text)
{
    const sglexec_instruction *i = &program->instructions.data[index];
    sglcuda_emitted emitted;
    sgl_status status = sglcuda_emit(env, &program->kernels.data[i->kernel], sglcuda_operand(program, i, 0),
                                     (int)(i->arg_count + i->result_count), &emitted);
    if (status == SGL_OK) status = sglcore_text_bytes(env, text, emitted.text.data, (size_t)emitted.text.count);
    for (int n = 0; status == SGL_OK && n < emitted.count; n++) {
        const sglcuda_grid *grid = &emitted.entries[n].grid;
        status =
            sglcore_text_add(env, text, "// %s: %u x %u blocks of %u x %u threads, %u bytes\n", emitted.entries[n].name,
                             grid->blocks[0], grid->blocks[1], grid->threads[0], grid->threads[1], grid->shared);
    }
    sglcore_text_free(env, &emitted.text);
    return status;
}

/* ---- workspace ---------------------------------------------------------------------------------------------------- */

static bool has_sums(const sglir_graph *g, const sglir_node *fused)
{
    const sglir_region *region = &g->regions.data[fused->region_first];
    for (int64_t i = 0; i < region->nodes.count; i++)
        if (sglir_ops[sglir_node_at(g, region->nodes.data[i])->op].flags & SGLIR_REDUCTION) return true;
    return false;
}

int64_t sglcuda_fused_workspace(const sglir_graph *g, const sglir_node *node)
{
    sglexec_kernel kernel;
    if (!has_sums(g, node)) return 0;
    /* A region that no kernel can be is refused when it is frozen, with its reason. */
    if (sglexec_kernel_build(g->env, g, (sglir_id)(node - g->nodes.data), &kernel) != SGL_OK) return 0;
    const int64_t bytes = sglcuda_emit_workspace(&kernel);
    sglexec_kernel_free(g->env, &kernel);
    return bytes;
}

/* A reduction alone has its reduced dims as columns, or as rows where the last one of them is kept. */
int64_t sglcuda_single_workspace(const sglir_graph *g, const sglir_node *node)
{
    if ((sglir_ops[node->op].flags & SGLIR_REDUCTION) == 0) return 0;
    const int64_t all = sglir_elements(sglir_type_of(g, sglir_arg(g, node, 0)));
    const int64_t kept = sglir_elements(sglir_type_of(g, node->out_first));
    if (kept == 0) return 0;
    return sglcuda_reduction_workspace(all / kept, kept);
}
