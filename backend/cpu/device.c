/* device.c -- the CPU as a device: the table of its functions, memory, programs made ready, instructions launched.
 *
 * In: programs and addresses. Out: results. prepare turns every instruction into a command (cpu.h) by the table of
 * families below; launch calls one. Scratch for all workers is one block per prepared program. Odd invariant: one BLAS
 * thread per call, set when a device opens, because the pool is the only thing here that runs threads. */
#include <string.h>
#include <sys/mman.h>

#include "backend/backend.h"
#include "backend/cpu/blas.h"
#include "backend/cpu/cpu.h"
#include "core/knob.h"

/* ---- open and close --------------------------------------------------------------------------------------------- */

static sgl_status cpu_open(sglcore_env *env, int threads, sglexec_device **result)
{
    *result = NULL;
    sglexec_device *device = sglcore_alloc_zero(env, sizeof *device);
    if (device == NULL) return SGL_OUT_OF_MEMORY;
    device->env = env;
    if (threads <= 0) threads = (int)sglcpu_min(sglcore_knob_int(SGLCORE_KNOB_THREADS), SGLCPU_MAX_THREADS);
    if (threads <= 0) threads = sglcpu_cores();
    sgl_status status = sglcpu_isa_choose(env, sglcore_knob_text(SGLCORE_KNOB_ISA), &device->isa);
    if (status == SGL_OK) status = sglcpu_pool_open(env, threads, &device->pool);
    if (status != SGL_OK) {
        sglcore_free(env, device, sizeof *device);
        return status;
    }
    sglcpu_blas_open();
    *result = device;
    return SGL_OK;
}

static void cpu_close(sglexec_device *device)
{
    if (device == NULL) return;
    sglcpu_pool_close(device->pool);
    sglcore_free(device->env, device, sizeof *device);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, CLEAR_BYTES = 1 << 22 };

typedef struct clearing {
    char *block;
    int64_t bytes;
} clearing;

/* By all threads: the first touch of a page is what costs, and on a large machine decides where the page lies. */
static void clear_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const clearing *c = context;
    int64_t first = task * CLEAR_BYTES;
    memset(c->block + first, 0, (size_t)sglcpu_min(CLEAR_BYTES, c->bytes - first));
}

/* Fewer first touches, and fewer misses later; where the system has none, nothing is lost. */
static void use_huge_pages(char *block, int64_t bytes)
{
    int64_t skip = (int64_t)(-(uintptr_t)block & (HUGE_PAGE - 1));
    int64_t whole = (bytes - skip) / HUGE_PAGE * HUGE_PAGE;
    if (whole > 0) madvise(block + skip, (size_t)whole, MADV_HUGEPAGE);
}

static sgl_status cpu_alloc(sglexec_device *device, int64_t bytes, void **block)
{
    if (bytes == 0) bytes = 1; /* a space without content has an address too */
    *block = sglcore_alloc_aligned(device->env, (size_t)bytes, PAGE);
    if (*block == NULL) return SGL_OUT_OF_MEMORY;
    use_huge_pages(*block, bytes);
    clearing c = { .block = *block, .bytes = bytes };
    sglcpu_parallel(device->pool, sglcpu_ceil_div(bytes, CLEAR_BYTES), clear_task, &c);
    return SGL_OK;
}

static void cpu_free(sglexec_device *device, void *block, int64_t bytes)
{
    if (block != NULL) sglcore_free_aligned(device->env, block, (size_t)(bytes == 0 ? 1 : bytes), PAGE);
}

static sgl_status cpu_write(sglexec_device *device, void *block, int64_t offset, const void *host, int64_t bytes)
{
    (void)device;
    if (bytes > 0) memcpy((char *)block + offset, host, (size_t)bytes);
    return SGL_OK;
}

static sgl_status cpu_read(sglexec_device *device, const void *block, int64_t offset, void *host, int64_t bytes)
{
    (void)device;
    if (bytes > 0) memcpy(host, (const char *)block + offset, (size_t)bytes);
    return SGL_OK;
}

static sgl_status cpu_copy(sglexec_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    if (bytes > 0 && to != from) memmove(to, from, (size_t)bytes);
    return SGL_OK;
}

/* ---- families of ops --------------------------------------------------------------------------------------------- */

static bool cpu_native(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_SILU:
    case SGLIR_OP_SILU_GRAD:
    case SGLIR_OP_GELU:
    case SGLIR_OP_GELU_GRAD:
    case SGLIR_OP_ROPE:
    case SGLIR_OP_ATTENTION:
    case SGLIR_OP_ATTENTION_GRAD:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD:
    case SGLIR_OP_TOP_K:
    case SGLIR_OP_CONV:
    case SGLIR_OP_CONV_INPUT_GRAD:
    case SGLIR_OP_CONV_WEIGHT_GRAD: return true;
    default: return false;
    }
}

static int64_t cpu_workspace(const sglir_graph *g, sglir_id id)
{
    const sglir_node *node = sglir_node_at(g, id);
    switch (node->op) {
    case SGLIR_OP_FUSED: return sglcpu_fused_workspace(g, node);
    case SGLIR_OP_DOT: return sglcpu_dot_workspace(g, node);
    case SGLIR_OP_SCATTER_ADD: return sglcpu_scatter_workspace(g, node);
    case SGLIR_OP_SORT:
    case SGLIR_OP_TOP_K: return sglcpu_sort_workspace(g, node);
    case SGLIR_OP_CONV:
    case SGLIR_OP_CONV_INPUT_GRAD:
    case SGLIR_OP_CONV_WEIGHT_GRAD: return sglcpu_conv_workspace(g, node);
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: return sglcpu_loss_workspace(g, node);
    default: return sglcpu_single_workspace(g, node);
    }
}

/* NULL: no instruction of the CPU's. */
static sglcpu_prepare_fn family_of(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_FUSED: return sglcpu_prepare_fused;
    case SGLIR_OP_CONCAT: return sglcpu_prepare_concat;
    case SGLIR_OP_PAD: return sglcpu_prepare_pad;
    case SGLIR_OP_PACK: return sglcpu_prepare_pack;
    case SGLIR_OP_UNPACK: return sglcpu_prepare_unpack;
    case SGLIR_OP_OFFLOAD:
    case SGLIR_OP_PREFETCH:
    case SGLIR_OP_COPY: return sglcpu_prepare_copy;
    case SGLIR_OP_ARRIVED: return sglcpu_prepare_arrived;
    case SGLIR_OP_DYNAMIC_SLICE:
    case SGLIR_OP_DYNAMIC_UPDATE: return sglcpu_prepare_dynamic;
    case SGLIR_OP_GATHER: return sglcpu_prepare_gather;
    case SGLIR_OP_SCATTER_ADD: return sglcpu_prepare_scatter;
    case SGLIR_OP_DOT: return sglcpu_prepare_dot;
    case SGLIR_OP_ROPE: return sglcpu_prepare_rope;
    case SGLIR_OP_ATTENTION: return sglcpu_prepare_attention;
    case SGLIR_OP_ATTENTION_GRAD: return sglcpu_prepare_attention_grad;
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: return sglcpu_prepare_loss;
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_SUM:
    case SGLIR_OP_ARGMAX:
    case SGLIR_OP_ARGMIN:
    case SGLIR_OP_TAKE_ALONG:
    case SGLIR_OP_ADD_ALONG: return sglcpu_prepare_along;
    case SGLIR_OP_REDUCE_PROD: return sglcpu_prepare_prod;
    case SGLIR_OP_SORT:
    case SGLIR_OP_TOP_K: return sglcpu_prepare_sort;
    case SGLIR_OP_WINDOWS:
    case SGLIR_OP_WINDOWS_ADD: return sglcpu_prepare_windows;
    case SGLIR_OP_CONV:
    case SGLIR_OP_CONV_INPUT_GRAD:
    case SGLIR_OP_CONV_WEIGHT_GRAD: return sglcpu_prepare_conv;
    default: break;
    }
    uint32_t flags = sglir_ops[op].flags;
    if ((flags & SGLIR_COMPOSITE) != 0 && !cpu_native(op)) return NULL;
    uint32_t alone = SGLIR_ELEMENTWISE | SGLIR_REDUCTION | SGLIR_MOVEMENT | SGLIR_GENERATOR;
    return (flags & alone) != 0 ? sglcpu_prepare_single : NULL;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

typedef struct prepared {
    sglcore_env *env;
    sglcore_arena arena;
    sglcpu_command *commands; /* one per instruction; those that replay runs itself stay empty */
    char *scratch;
    int64_t scratch_bytes; /* of one worker */
    int threads;
} prepared;

static const char *origin_of(const sglexec_program *program, const sglexec_instruction *i, int *line)
{
    *line = 0;
    if (i->origin >= program->origins.count) return "";
    *line = program->origins.data[i->origin].line;
    return sglcore_string(program->strings, program->origins.data[i->origin].file);
}

static sgl_status prepare_instruction(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    int line;
    const char *file = origin_of(p->program, i, &line);
    sglcpu_prepare_fn family = family_of((sglir_op)i->op);
    sgl_status status =
        family != NULL
            ? family(p, i, command)
            : sglcore_fail(p->env, SGL_UNSUPPORTED, "cpu: %s is no instruction of this device", sglir_ops[i->op].name);
    command->work_offset = i->work_offset;
    if (status == SGL_OK || line == 0) return status;
    return sglcore_fail_at(p->env, status, "%s:%d", file, line);
}

static void cpu_release(sglexec_device *device, void *handle)
{
    (void)device;
    prepared *ready = handle;
    if (ready == NULL) return;
    sglcore_env *env = ready->env;
    if (ready->scratch != NULL) {
        sglcore_free_aligned(env, ready->scratch, (size_t)(ready->scratch_bytes * ready->threads), PAGE);
    }
    sglcore_arena_free(&ready->arena);
    sglcore_free(env, ready, sizeof *ready);
}

static sgl_status prepare_all(sglexec_device *device, const sglexec_program *program, prepared *ready)
{
    ready->commands =
        sglcore_arena_alloc(&ready->arena, (size_t)(program->instructions.count + 1) * sizeof(sglcpu_command));
    if (ready->commands == NULL) return SGL_OUT_OF_MEMORY;
    sglcpu_prepare p = { .env = device->env, .arena = &ready->arena, .isa = device->isa, .program = program };
    for (int64_t n = 0; n < program->instructions.count; n++) {
        const sglexec_instruction *i = &program->instructions.data[n];
        if (!sglexec_is_control(i) && !sglexec_is_exchange(i))
            SGLCORE_TRY(prepare_instruction(&p, i, &ready->commands[n]));
    }
    ready->scratch_bytes = sglcpu_round_up(sglcpu_max(p.scratch_bytes, 1), PAGE);
    ready->scratch = sglcore_alloc_aligned(device->env, (size_t)(ready->scratch_bytes * ready->threads), PAGE);
    return ready->scratch == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
}

static sgl_status cpu_prepare(sglexec_device *device, const sglexec_program *program, void **handle)
{
    *handle = NULL;
    prepared *ready = sglcore_alloc_zero(device->env, sizeof *ready);
    if (ready == NULL) return SGL_OUT_OF_MEMORY;
    ready->env = device->env;
    ready->arena.env = device->env;
    ready->threads = sglcpu_pool_threads(device->pool);
    sgl_status status = prepare_all(device, program, ready);
    if (status != SGL_OK) {
        cpu_release(device, ready);
        return status;
    }
    *handle = ready;
    return SGL_OK;
}

static sgl_status cpu_launch(sglexec_device *device, void *handle, uint32_t index, void *const spaces[SGLIR_SPACES])
{
    const prepared *ready = handle;
    const sglcpu_command *command = &ready->commands[index];
    const sglcpu_launch launch = { .pool = device->pool,
                                   .isa = device->isa,
                                   .spaces = spaces,
                                   .scratch = ready->scratch,
                                   .scratch_bytes = ready->scratch_bytes,
                                   .work = (char *)spaces[SGLIR_SPACE_ARENA] + command->work_offset };
    command->run(&launch, command->plan);
    return SGL_OK;
}

static sgl_status cpu_finish(sglexec_device *device)
{
    (void)device;
    return SGL_OK; /* a launch returns when it is done */
}

const sglexec_device_ops sglexec_device_cpu = {
    .name = "cpu",
    .host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .native = cpu_native,
    .workspace = cpu_workspace,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .copy = cpu_copy,
    .prepare = cpu_prepare,
    .release = cpu_release,
    .launch = cpu_launch,
    .finish = cpu_finish,
    .describe = sglcpu_describe,
    .peak_flops = sglcpu_peak_flops,
    .ceilings = sglcpu_ceilings,
};
