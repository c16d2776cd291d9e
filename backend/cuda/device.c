/* device.c -- an NVIDIA GPU as a device: the table of its functions, programs made ready, instructions launched.
 *
 * In: programs and addresses. Out: results, in the order of one stream. prepare turns every instruction into a command
 * (cuda.h) by the table of families below, and begins to compile what they asked for, which settle waits for; launch calls one. Odd invariant: a session may
 * call from any thread, so each function of the table makes the device's context current before it calls the driver. */
#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/link.h"
#include "backend/cuda/nvrtc.h"
#include "core/knob.h"
#include "core/module.h"
#include "core/span.h"

enum { LEAST_MAJOR = 8 }; /* compute capability: bf16, asynchronous copies to shared memory */

/* ---- open and close --------------------------------------------------------------------------------------------- */

sgl_status sglcuda_enter(sglexec_device *device)
{
    return sglcuda_check(device->env, device->driver, device->driver->cuCtxSetCurrent(device->context),
                         "entering the GPU's context");
}

/* An error of a kernel is met here, or in any later call, and stays. */
sgl_status sglcuda_wait(sglexec_device *device)
{
    SGLCORE_TRY(sglcuda_links_wait(device));
    const CUresult result = device->driver->cuStreamSynchronize(device->stream);
    return sglcuda_check(device->env, device->driver, result,
                         device->waits ? "waiting for the GPU"
                                       : "waiting for the GPU (SGL_CUDA_WAIT=1 names the instruction that failed)");
}

bool sglcuda_rest(sglexec_device *device)
{
    if (sglcuda_links_stuck(device)) return false;
    if (device->stream) (void)device->driver->cuStreamSynchronize(device->stream);
    if (device->in) (void)sglcuda_wait_moves(device);
    return true;
}

/* SGL_CUDA_DEVICE; else the ranks of a machine take its GPUs in turn. */
static sgl_status choose_number(sglexec_device *device)
{
    const sglcuda_driver *driver = device->driver;
    const bool asked = sglcore_knob_text(SGLCORE_KNOB_CUDA_DEVICE)[0] != '\0';
    const int64_t number = asked ? sglcore_knob_int(SGLCORE_KNOB_CUDA_DEVICE) : sglcore_launched_here();
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuDeviceGetCount(&device->count), "counting GPUs"));
    if (device->count == 0) return sglcore_fail(device->env, SGL_UNSUPPORTED, "device cuda: the driver sees no GPU");
    if (asked && (number < 0 || number >= device->count))
        return sglcore_fail(device->env, SGL_UNSUPPORTED,
                            "device cuda: SGL_CUDA_DEVICE is %s, and there are %d GPUs: 0 to %d",
                            sglcore_knob_text(SGLCORE_KNOB_CUDA_DEVICE), device->count, device->count - 1);
    device->number = (int)(number % device->count);
    return sglcuda_check(device->env, driver, driver->cuDeviceGet(&device->device, device->number), "choosing a GPU");
}

static sgl_status ask(sglexec_device *device, CUdevice_attribute attribute, int *value)
{
    return sglcuda_check(device->env, device->driver,
                         device->driver->cuDeviceGetAttribute(value, attribute, device->device), "asking the GPU");
}

static sgl_status ask_device(sglexec_device *device)
{
    const sglcuda_driver *driver = device->driver;
    size_t bytes = 0;
    SGLCORE_TRY(ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major));
    SGLCORE_TRY(ask(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor));
    SGLCORE_TRY(ask(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->processors));
    SGLCORE_TRY(ask(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->shared));
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuDeviceTotalMem(&bytes, device->device), "asking the GPU"));
    device->memory = (int64_t)bytes;
    if (device->major >= LEAST_MAJOR) return SGL_OK;
    return sglcore_fail(device->env, SGL_UNSUPPORTED,
                        "device cuda: GPU %d is of compute capability %d.%d, and what there is of sgl needs %d.0",
                        device->number, device->major, device->minor, LEAST_MAJOR);
}

static void cuda_close(sglexec_device *device)
{
    if (!device) return;
    const sglcuda_driver *driver = device->driver;
    if (device->context && !sglcuda_links_stuck(device)) {
        (void)driver->cuCtxSetCurrent(device->context);
        (void)sglcuda_rest(device);
        sglcuda_links_close(device);
        sglcuda_close_blas(device);
        sglcuda_close_cudnn(device);
        sglcuda_close_builtins(device);
        sglcuda_close_staging(device);
        sglcuda_close_moves(device);
        sglcuda_close_compiler(device->compiler);
        sglcuda_close_marks(device);
        sglcuda_close_ranges(device->ranges);
        if (device->stream) (void)driver->cuStreamDestroy(device->stream);
        (void)driver->cuCtxSetCurrent(NULL);
        (void)driver->cuDevicePrimaryCtxRelease(device->device);
    }
    sglcore_free(device->env, device, sizeof *device);
}

static sgl_status open_context(sglexec_device *device)
{
    const int64_t begun = sglcore_now_ns();
    const sglcuda_driver *driver = device->driver;
    sglcore_env *env = device->env;
    SGLCORE_TRY(sglcuda_check(env, driver, driver->cuDevicePrimaryCtxRetain(&device->context, device->device),
                              "making a context of the GPU"));
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(
        sglcuda_check(env, driver, driver->cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING), "making a stream"));
    SGLCORE_TRY(sglcuda_open_moves(device));
    SGLCORE_TRY(sglcuda_open_staging(device));
    device->ranges = sglcuda_open_ranges();
    sglcore_span(env, begun, "cuda: making a context");
    return sglcuda_open_builtins(device);
}

static sgl_status cuda_open(sglcore_env *env, int threads, sglexec_device **result)
{
    const sglcuda_driver *driver;
    const int64_t begun = sglcore_now_ns();
    *result = NULL;
    SGLCORE_TRY(sglcuda_driver_open(env, &driver));
    sglcore_span(env, begun, "cuda: starting the driver");
    sglexec_device *device = sglcore_alloc_zero(env, sizeof *device);
    if (!device) return SGL_OUT_OF_MEMORY;
    device->env = env;
    device->driver = driver;
    device->threads = threads;
    device->waits = sglcore_knob_int(SGLCORE_KNOB_CUDA_WAIT) != 0;
    sgl_status status = choose_number(device);
    if (status == SGL_OK) status = ask_device(device);
    if (status == SGL_OK) status = open_context(device);
    if (status != SGL_OK) {
        cuda_close(device);
        return status;
    }
    *result = device;
    return SGL_OK;
}

/* ---- families of ops --------------------------------------------------------------------------------------------- */

static bool cuda_native(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_SILU:
    case SGLIR_OP_SILU_GRAD:
    case SGLIR_OP_GELU:
    case SGLIR_OP_GELU_GRAD:
    case SGLIR_OP_LINEAR: /* as `join` makes it */
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD:
    case SGLIR_OP_TOP_K:
    case SGLIR_OP_ATTENTION:
    case SGLIR_OP_ATTENTION_GRAD: return true;
    default: return false;
    }
}

static int64_t cuda_workspace(const sglir_graph *g, sglir_id id)
{
    const sglir_node *node = sglir_node_at(g, id);
    switch (node->op) {
    case SGLIR_OP_FUSED: return sglcuda_fused_workspace(g, node);
    case SGLIR_OP_DOT:
    case SGLIR_OP_LINEAR: return sglcuda_dot_workspace(g, node);
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: return sglcuda_loss_workspace(g, node);
    case SGLIR_OP_SCATTER_ADD: return sglcuda_scatter_workspace(g, node);
    case SGLIR_OP_SORT:
    case SGLIR_OP_TOP_K: return sglcuda_sort_workspace(g, node);
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_SUM:
    case SGLIR_OP_ARGMAX:
    case SGLIR_OP_ARGMIN:
    case SGLIR_OP_TAKE_ALONG:
    case SGLIR_OP_ADD_ALONG:
    case SGLIR_OP_REDUCE_PROD: return sglcuda_along_workspace(g, node);
    case SGLIR_OP_ATTENTION: return sglcuda_attention_workspace(g, node);
    case SGLIR_OP_ATTENTION_GRAD: return sglcuda_attention_grad_workspace(g, node);
    default: return sglcuda_single_workspace(g, node);
    }
}

/* NULL: no instruction of this device. */
static sglcuda_prepare_fn family_of(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_FUSED: return sglcuda_prepare_fused;
    case SGLIR_OP_CONCAT: return sglcuda_prepare_concat;
    case SGLIR_OP_PAD: return sglcuda_prepare_pad;
    case SGLIR_OP_PACK: return sglcuda_prepare_pack;
    case SGLIR_OP_UNPACK: return sglcuda_prepare_unpack;
    case SGLIR_OP_COPY: return sglcuda_prepare_copy;
    case SGLIR_OP_OFFLOAD:
    case SGLIR_OP_PREFETCH: return sglcuda_prepare_move;
    case SGLIR_OP_ARRIVED: return sglcuda_prepare_arrived;
    case SGLIR_OP_DYNAMIC_SLICE:
    case SGLIR_OP_DYNAMIC_UPDATE: return sglcuda_prepare_dynamic;
    case SGLIR_OP_GATHER: return sglcuda_prepare_gather;
    case SGLIR_OP_SCATTER_ADD: return sglcuda_prepare_scatter;
    case SGLIR_OP_DOT:
    case SGLIR_OP_LINEAR: return sglcuda_prepare_dot;
    case SGLIR_OP_LINEAR_CROSS_ENTROPY:
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD: return sglcuda_prepare_loss;
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_SUM:
    case SGLIR_OP_ARGMAX:
    case SGLIR_OP_ARGMIN:
    case SGLIR_OP_TAKE_ALONG:
    case SGLIR_OP_ADD_ALONG: return sglcuda_prepare_along;
    case SGLIR_OP_REDUCE_PROD: return sglcuda_prepare_prod;
    case SGLIR_OP_SORT:
    case SGLIR_OP_TOP_K: return sglcuda_prepare_sort;
    case SGLIR_OP_WINDOWS:
    case SGLIR_OP_WINDOWS_ADD: return sglcuda_prepare_windows;
    case SGLIR_OP_ATTENTION: return sglcuda_prepare_attention;
    case SGLIR_OP_ATTENTION_GRAD: return sglcuda_prepare_attention_grad;
    default: break;
    }
    const uint32_t flags = sglir_ops[op].flags;
    const uint32_t alone = SGLIR_ELEMENTWISE | SGLIR_REDUCTION | SGLIR_MOVEMENT | SGLIR_GENERATOR;
    if ((flags & SGLIR_COMPOSITE) != 0 && !cuda_native(op)) return NULL;
    return (flags & alone) != 0 ? sglcuda_prepare_single : NULL;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

typedef struct prepared {
    sglcore_arena arena;
    const sglexec_program *program; /* outlives what was made of it */
    sglcuda_command *commands;      /* one per instruction; those that replay runs itself stay empty */
    struct sglcuda_sources *sources;
    struct sglcuda_graphs *graphs;
    struct sglcuda_move_events *moving;
    const char *const *names; /* of instructions, for a profiler; NULL: none is attached */
} prepared;

sgl_status sglcuda_fail_in(sglcore_env *env, sgl_status status, const sglexec_program *program,
                           const sglexec_instruction *i)
{
    if (i->origin >= program->origins.count || program->origins.data[i->origin].line == 0) return status;
    const sglir_origin *origin = &program->origins.data[i->origin];
    return sglcore_fail_at(env, status, "%s:%d", sglcore_string(program->strings, origin->file), (int)origin->line);
}

static sgl_status prepare_instruction(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglcuda_prepare_fn family = family_of((sglir_op)i->op);
    p->instruction = i;
    const sgl_status status = family ? family(p, i, command)
                                     : sglcore_fail(p->env, SGL_UNSUPPORTED,
                                                    "cuda: %s is no instruction of this device", sglir_ops[i->op].name);
    return status == SGL_OK ? SGL_OK : sglcuda_fail_in(p->env, status, p->program, i);
}

static void cuda_release(sglexec_device *device, void *handle)
{
    prepared *ready = handle;
    if (!ready) return;
    const bool rests = sglcuda_enter(device) == SGL_OK && sglcuda_rest(device);
    for (int64_t n = 0; rests && ready->commands && n < ready->program->instructions.count; n++)
        sglcuda_release_linked(device, &ready->commands[n]);
    if (rests) sglcuda_free_graphs(device, ready->graphs);
    if (rests) sglcuda_free_moves(device, ready->moving);
    if (rests) sglcuda_free_sources(ready->sources);
    sglcore_arena_free(&ready->arena);
    sglcore_free(device->env, ready, sizeof *ready);
}

static sgl_status prepare_all(sglexec_device *device, const sglexec_program *program, prepared *ready)
{
    const int64_t count = program->instructions.count;
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_new_sources(device, &ready->sources));
    ready->commands = sglcore_arena_alloc(&ready->arena, (size_t)(count + 1) * sizeof *ready->commands);
    if (!ready->commands) return SGL_OUT_OF_MEMORY;
    sglcuda_prepare p = { .env = device->env,
                          .arena = &ready->arena,
                          .device = device,
                          .program = program,
                          .sources = ready->sources,
                          .moving = &ready->moving };
    const int64_t begun = sglcore_now_ns();
    for (int64_t n = 0; n < count; n++) {
        const sglexec_instruction *i = &program->instructions.data[n];
        if (!sglexec_is_control(i) && !sglexec_is_exchange(i))
            SGLCORE_TRY(prepare_instruction(&p, i, &ready->commands[n]));
    }
    sglcore_span(device->env, begun, "cuda: choosing kernels of %lld instructions", (long long)count);
    SGLCORE_TRY(sglcuda_begin_sources(&p));
    SGLCORE_TRY(sglcuda_new_graphs(&p, &ready->graphs));
    return sglcuda_name_ranges(&p, &ready->names);
}

static sgl_status cuda_prepare(sglexec_device *device, const sglexec_program *program, void **handle)
{
    *handle = NULL;
    prepared *ready = sglcore_alloc_zero(device->env, sizeof *ready);
    if (!ready) return SGL_OUT_OF_MEMORY;
    ready->arena.env = device->env;
    ready->program = program;
    const sgl_status status = prepare_all(device, program, ready);
    if (status != SGL_OK) {
        cuda_release(device, ready);
        return status;
    }
    *handle = ready;
    return SGL_OK;
}

/* Until a program is routed its exchanges have no commands: replay does not ask for them. */
sgl_status sglcuda_route(sglexec_device *device, void *handle, const sglexec_linked *of)
{
    prepared *ready = handle;
    const sglexec_program *program = ready->program;
    SGLCORE_TRY(sglcuda_enter(device));
    sglcuda_prepare p = {
        .env = device->env, .arena = &ready->arena, .device = device, .program = program, .sources = ready->sources
    };
    for (int64_t n = 0; n < program->instructions.count; n++) {
        const sglexec_instruction *i = &program->instructions.data[n];
        const sglcuda_command *begun = i->op == SGLIR_OP_WAIT ? &ready->commands[i->begun] : NULL;
        if (!sglexec_is_exchange(i)) continue;
        const sgl_status status = sglcuda_prepare_linked(&p, i, &of[n], begun, &ready->commands[n]);
        if (status != SGL_OK) return sglcuda_fail_in(p.env, status, program, i);
    }
    for (int64_t n = 0; n < program->instructions.count; n++)
        SGLCORE_TRY(sglcuda_ready_linked(device, &ready->commands[n]));
    return SGL_OK;
}

static sgl_status cuda_settle(sglexec_device *device, void *handle)
{
    const prepared *ready = handle;
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_end_sources(ready->sources, ready->program));
    for (int64_t n = 0; n < ready->program->instructions.count; n++)
        SGLCORE_TRY(sglcuda_ready_steps(device, &ready->commands[n]));
    return SGL_OK;
}

static sgl_status run_command(sglexec_device *device, const prepared *ready, uint32_t index,
                              void *const spaces[SGLIR_SPACES])
{
    const sglcuda_command *command = &ready->commands[index];
    const sglcuda_launch launch = { .device = device, .spaces = spaces, .stream = device->stream };
    if (!ready->names) return command->run(&launch, command->plan);
    sglcuda_begin_range(device->ranges, ready->names[index]);
    const sgl_status status = command->run(&launch, command->plan);
    sglcuda_end_range(device->ranges);
    return status;
}

static sgl_status cuda_launch(sglexec_device *device, void *handle, uint32_t index, void *const spaces[SGLIR_SPACES])
{
    const prepared *ready = handle;
    if (!ready->commands[index].run) return SGL_OK; /* over no elements */
    SGLCORE_TRY(sglcuda_links_check(device));
    SGLCORE_TRY(sglcuda_enter(device));
    sgl_status status = run_command(device, ready, index, spaces);
    if (status == SGL_OK && device->waits) status = sglcuda_wait(device);
    return status == SGL_OK
               ? SGL_OK
               : sglcuda_fail_in(device->env, status, ready->program, &ready->program->instructions.data[index]);
}

typedef struct row {
    sglexec_device *device;
    void *prepared;
    uint32_t first, count;
    void *const *spaces;
} row;

static sgl_status launch_row(void *context)
{
    const row *r = context;
    for (uint32_t n = r->first; n < r->first + r->count; n++)
        SGLCORE_TRY(cuda_launch(r->device, r->prepared, n, r->spaces));
    return sglcuda_links_join(r->device); /* a CUDA graph ends whole */
}

static sgl_status cuda_run(sglexec_device *device, void *handle, uint32_t first, uint32_t count,
                           void *const spaces[SGLIR_SPACES])
{
    const prepared *ready = handle;
    row r = { .device = device, .prepared = handle, .first = first, .count = count, .spaces = spaces };
    if (device->waits) return launch_row(&r);
    SGLCORE_TRY(sglcuda_links_check(device));
    SGLCORE_TRY(sglcuda_enter(device));
    for (uint32_t n = first; n < first + count; n = r.first + r.count) {
        r.first = n;
        r.count = sglcuda_row_of(ready->commands, n, first + count);
        if (r.count > 0)
            SGLCORE_TRY(sglcuda_replay(device, ready->graphs, n, spaces, launch_row, &r));
        else
            SGLCORE_TRY(cuda_launch(device, handle, r.first + r.count++, spaces));
    }
    return SGL_OK;
}

static sgl_status cuda_finish(sglexec_device *device)
{
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglcuda_wait(device)); /* first: it knows of exchanges that may never end */
    return sglcuda_wait_moves(device);
}

const sglexec_device_ops sglcuda_ops = {
    .name = "cuda",
#ifdef SGLCUDA_HAS_NCCL
    .links = &sglcuda_link_ops,
#endif
    .open = cuda_open,
    .close = cuda_close,
    .native = cuda_native,
    .workspace = cuda_workspace,
    /* In the time of a byte from memory an H200 issues seven instructions: some two for a rounded sum, ten for an exponential, of
     * which the CPU's price is 1.2 and 6 bytes (vm/passes/fuse_roles.c). */
    .computing = 0.2,
    .room = sglcuda_room,
    .alloc = sglcuda_alloc,
    .free = sglcuda_free,
    .alloc_host = sglcuda_alloc_host,
    .free_host = sglcuda_free_host,
    .write = sglcuda_write,
    .read = sglcuda_read,
    .copy = sglcuda_copy,
    .source = sglcuda_print_source,
    .prepare = cuda_prepare,
    .settle = cuda_settle,
    .release = cuda_release,
    .launch = cuda_launch,
    .mark = sglcuda_mark,
    .marked = sglcuda_marked,
    .run = cuda_run,
    .finish = cuda_finish,
    .describe = sglcuda_describe,
    .peak_flops = sglcuda_peak_flops,
    .ceilings = sglcuda_ceilings,
};

extern const sglbackend_module sglcuda_module;
SGL_API const sglbackend_module sglcuda_module = { .identity = sglcore_build_identity, .ops = &sglcuda_ops };
