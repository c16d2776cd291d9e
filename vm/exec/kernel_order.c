/* kernel_order.c -- in which phase and order the steps of a kernel run, and what its registers are called.
 *
 * In: drafts in order of definition. Out: the kernel's steps. A phase ends where a reduced row is needed; loads and
 * generators wait for the phase of their first use. Odd invariant: registers are numbered in the final order, so that
 * equal regions give equal descriptions whatever their nodes were called. */
#include <string.h>

#include "exec/kernel_build.h"

static bool is_source(const sglexec_step *step) { return step->kind < SGLEXEC_COMPUTE; }

/* ready[r]: the first phase in which register r can be read. */
static int settle_phases(sglexec_builder *b, uint8_t *ready)
{
    int phases = 1;
    for (int64_t i = 0; i < b->drafts.count; i++) {
        sglexec_step *step = &b->drafts.data[i].step;
        step->phase = 0;
        for (int a = 0; a < sglexec_step_args(step); a++) {
            if (ready[step->args[a]] > step->phase) step->phase = ready[step->args[a]];
        }
        if (!sglexec_makes_register(step)) continue;
        ready[step->out] = (uint8_t)(step->phase + (step->kind == SGLEXEC_REDUCE));
        if (ready[step->out] + 1 > phases) phases = ready[step->out] + 1;
    }
    return phases;
}

/* Backward, so that what a random number needs waits with it. first[r]: the phase of register r's first use. */
static void settle_sources(sglexec_builder *b, uint8_t *first)
{
    memset(first, 0xff, b->register_count);
    for (int64_t i = b->drafts.count - 1; i >= 0; i--) {
        sglexec_step *step = &b->drafts.data[i].step;
        if (is_source(step) && first[step->out] != 0xff) step->phase = first[step->out];
        for (int a = 0; a < sglexec_step_args(step); a++) {
            if (step->phase < first[step->args[a]]) first[step->args[a]] = step->phase;
        }
    }
}

static int turn(const sglexec_step *step)
{
    switch (step->kind) {
    case SGLEXEC_REDUCE: return 1;
    case SGLEXEC_COLUMN_SUM:
    case SGLEXEC_TOTAL: return 2;
    case SGLEXEC_STORE: return 3;
    default: return 0;
    }
}

static void rename_registers(sglexec_kernel *kernel, uint16_t *names)
{
    uint16_t next = 0;
    for (int64_t i = 0; i < kernel->steps.count; i++) {
        sglexec_step *step = &kernel->steps.data[i];
        for (int a = 0; a < sglexec_step_args(step); a++) step->args[a] = names[step->args[a]];
        if (!sglexec_makes_register(step)) continue;
        names[step->out] = next;
        step->out = next++;
    }
    kernel->registers = next;
}

static sgl_status settle(sglexec_builder *b, uint8_t *phase_of, uint16_t *names)
{
    sglexec_kernel *kernel = b->kernel;
    memset(phase_of, 0, b->register_count);
    kernel->phases = settle_phases(b, phase_of);
    for (int64_t i = 0; i < b->drafts.count; i++) {
        sglexec_step *step = &b->drafts.data[i].step;
        if (step->kind == SGLEXEC_STORE) step->phase = (uint8_t)(kernel->phases - 1);
        kernel->reduces = kernel->reduces || step->kind == SGLEXEC_REDUCE;
    }
    settle_sources(b, phase_of);
    SGLCORE_TRY(sglcore_vec_reserve(b->env, &kernel->steps, b->drafts.count));
    for (int phase = 0; phase < kernel->phases; phase++) {
        for (int now = 0; now < 4; now++) {
            for (int64_t i = 0; i < b->drafts.count; i++) {
                const sglexec_step *step = &b->drafts.data[i].step;
                if (step->phase == phase && turn(step) == now) kernel->steps.data[kernel->steps.count++] = *step;
            }
        }
    }
    rename_registers(kernel, names);
    return SGL_OK;
}

enum { MOST_REGISTERS = 60000, MOST_REDUCTIONS = 200 };

sgl_status sglexec_kernel_settle(sglexec_builder *b)
{
    int reductions = 0;
    for (int64_t i = 0; i < b->drafts.count; i++) reductions += b->drafts.data[i].step.kind == SGLEXEC_REDUCE;
    if (b->register_count > MOST_REGISTERS || reductions > MOST_REDUCTIONS)
        return sglexec_kernel_refuse(b, SGLIR_NONE, "it is too long for one kernel");
    size_t phase_bytes = b->register_count, name_bytes = b->register_count * sizeof(uint16_t);
    uint8_t *phase_of = sglcore_alloc(b->env, phase_bytes);
    uint16_t *names = sglcore_alloc(b->env, name_bytes);
    sgl_status status = phase_bytes > 0 && (phase_of == NULL || names == NULL) ? SGL_OUT_OF_MEMORY : SGL_OK;
    if (status == SGL_OK) status = settle(b, phase_of, names);
    sglcore_free(b->env, phase_of, phase_bytes);
    sglcore_free(b->env, names, name_bytes);
    return status;
}
