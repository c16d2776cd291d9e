/* moves.c -- OFFLOAD and PREFETCH: copies between the GPU's memory and the host's, on streams of their own.
 *
 * In: moves, and the instructions that wait for them. Out: commands. A move is launched behind all that was launched before it:
 * its stream waits for an event of the main one; ARRIVED lets the main stream wait for an event of the move's. The host
 * waits for neither. In a row that is captured as a CUDA graph both become edges, and the copy a branch. Odd invariant: a
 * capture must end with all its branches joined, so a move whose ARRIVED stands in another row is launched between rows. */
#include "backend/cuda/cuda.h"

typedef struct sglcuda_move_events {
    CUevent begun, ended;
    bool out; /* to the host */
    sglcuda_place to, from;
    int64_t bytes;
    uint32_t begins, arrives; /* instructions; arrives 0: it is waited for at once */
    struct sglcuda_move_events *next;
} move;

sgl_status sglcuda_open_moves(sglexec_device *device)
{
    const sglcuda_driver *driver = device->driver;
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuStreamCreate(&device->out, CU_STREAM_NON_BLOCKING),
                              "making a stream"));
    return sglcuda_check(device->env, driver, driver->cuStreamCreate(&device->in, CU_STREAM_NON_BLOCKING),
                         "making a stream");
}

void sglcuda_close_moves(sglexec_device *device)
{
    if (device->out) (void)device->driver->cuStreamDestroy(device->out);
    if (device->in) (void)device->driver->cuStreamDestroy(device->in);
}

sgl_status sglcuda_wait_moves(sglexec_device *device)
{
    const sglcuda_driver *driver = device->driver;
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuStreamSynchronize(device->out), "moving to the host"));
    return sglcuda_check(device->env, driver, driver->cuStreamSynchronize(device->in), "moving from the host");
}

void sglcuda_free_moves(sglexec_device *device, move *moving)
{
    for (; moving; moving = moving->next) { /* they lie in the program's arena */
        if (moving->begun) (void)device->driver->cuEventDestroy(moving->begun);
        if (moving->ended) (void)device->driver->cuEventDestroy(moving->ended);
    }
}

static sgl_status wait_for(const sglcuda_launch *launch, const move *m)
{
    const sglcuda_driver *driver = launch->device->driver;
    return sglcuda_check(launch->device->env, driver, driver->cuStreamWaitEvent(launch->stream, m->ended, 0),
                         "waiting for a move");
}

static sgl_status run_move(const sglcuda_launch *launch, const void *plan)
{
    const move *m = plan;
    const sglcuda_driver *driver = launch->device->driver;
    sglcore_env *env = launch->device->env;
    const CUstream stream = m->out ? launch->device->out : launch->device->in;
    SGLCORE_TRY(sglcuda_check(env, driver, driver->cuEventRecord(m->begun, launch->stream), "beginning a move"));
    SGLCORE_TRY(sglcuda_check(env, driver, driver->cuStreamWaitEvent(stream, m->begun, 0), "beginning a move"));
    SGLCORE_TRY(sglcuda_check(env, driver,
                              driver->cuMemcpyAsync(sglcuda_at(launch, m->to), sglcuda_at(launch, m->from),
                                                    (size_t)m->bytes, stream),
                              m->out ? "moving to the host" : "moving from the host"));
    SGLCORE_TRY(sglcuda_check(env, driver, driver->cuEventRecord(m->ended, stream), "ending a move"));
    return m->arrives == 0 ? wait_for(launch, m) : SGL_OK;
}

static sgl_status run_arrived(const sglcuda_launch *launch, const void *plan) { return wait_for(launch, plan); }

sgl_status sglcuda_prepare_move(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *from = sglcuda_operand(p->program, i, 0), *to = from + 1;
    const sglcuda_driver *driver = p->device->driver;
    move *m = sglcuda_plan_alloc(p, 1, sizeof *m);
    if (!m) return SGL_OUT_OF_MEMORY;
    *m = (move){ .out = i->op == SGLIR_OP_OFFLOAD,
                 .to = sglcuda_place_of(to),
                 .from = sglcuda_place_of(from),
                 .bytes = sglcuda_bytes(from),
                 .begins = (uint32_t)(i - p->program->instructions.data),
                 .next = *p->moving };
    *p->moving = m;
    SGLCORE_TRY(
        sglcuda_check(p->env, driver, driver->cuEventCreate(&m->begun, CU_EVENT_DISABLE_TIMING), "making an event"));
    SGLCORE_TRY(
        sglcuda_check(p->env, driver, driver->cuEventCreate(&m->ended, CU_EVENT_DISABLE_TIMING), "making an event"));
    if (m->bytes > 0) *command = (sglcuda_command){ .run = run_move, .plan = m };
    return SGL_OK;
}

sgl_status sglcuda_prepare_arrived(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const uint32_t n = (uint32_t)(i - p->program->instructions.data);
    for (move *m = *p->moving; m; m = m->next) {
        if (m->begins != i->begun) continue;
        m->arrives = n;
        if (m->bytes > 0) *command = (sglcuda_command){ .run = run_arrived, .plan = m };
        return SGL_OK;
    }
    return sglcore_fail(p->env, SGL_INTERNAL, "device cuda: instruction %u waits for a move that is none", (unsigned)n);
}

/* Where the move that the command begins arrives; where the one began that it waits for; else the command itself. */
static uint32_t other_end(const sglcuda_command *command, uint32_t self)
{
    if (command->run == run_arrived) return ((const move *)command->plan)->begins;
    if (command->run != run_move || ((const move *)command->plan)->arrives == 0) return self;
    return ((const move *)command->plan)->arrives;
}

uint32_t sglcuda_row_of(const sglcuda_command *commands, uint32_t first, uint32_t end)
{
    for (uint32_t n = first; n < end;
         n++) { /* the end comes down to what leaves the row, and so on with what that cuts */
        const uint32_t other = other_end(&commands[n], n);
        if (other >= first && other < end) continue;
        end = n;
        n = first - 1;
    }
    return end - first;
}
