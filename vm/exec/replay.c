/* replay.c -- runs a program once: the hot path, and all of it.
 *
 * Comes in: a prepared program and the base addresses of its spaces. Goes out: states changed, fetches filled. Nothing is
 * allocated, and what is decided are branches and the ends of loops, by predicates that are read back; a loop writes its
 * index where its block reads it. What ranks exchange is run by exec/net; of a run that fails nothing is left under way. Between two instructions it looks whether it is to
 * stop: a step of minutes on a large model can be left. */
#include "exec/device.h"
#include "exec/net.h"

typedef struct replayer {
    sglcore_env *env;
    const sglexec_device_ops *ops;
    sglexec_device *device;
    void *prepared;
    const sglexec_program *program;
    void *const *spaces;
    sglexec_exchanges *exchanges;
    const atomic_bool *stop;
    sglexec_profile *profile;
    sglexec_trace *trace;
} replayer;

static sgl_status replay_block(const replayer *r, uint32_t block);

static sgl_status check_stop(const replayer *r, const sglexec_instruction *i)
{
    if (!r->stop || !atomic_load_explicit(r->stop, memory_order_relaxed)) return SGL_OK;
    return sglcore_fail(r->env, SGL_INTERRUPTED, "%s: stopped before instruction %lld of %lld",
                        sglcore_string(r->program->strings, r->program->name),
                        (long long)(i - r->program->instructions.data), (long long)r->program->instructions.count);
}

/* Reads a predicate once all that was launched is done. */
static sgl_status read_predicate(const replayer *r, const sglexec_operand *predicate, bool *holds)
{
    uint8_t byte = 0;
    sglexec_measure_gap(r->profile);
    SGLCORE_TRY(r->ops->finish(r->device));
    SGLCORE_TRY(r->ops->read(r->device, r->spaces[predicate->space], predicate->offset, &byte, sizeof byte));
    *holds = byte != 0;
    return SGL_OK;
}

static sgl_status replay_loop(const replayer *r, const sglexec_instruction *i)
{
    const sglexec_operand *index = &r->program->operands.data[i->operand_first];
    bool goes_on = true, decides = i->op == SGLIR_OP_WHILE;
    for (int64_t turn = 0; i->steps < 0 || turn < i->steps; turn++) {
        SGLCORE_TRY(check_stop(r, i));
        SGLCORE_TRY(r->ops->write(r->device, r->spaces[index->space], index->offset, &turn, sizeof turn));
        sglexec_measure_gap(r->profile);
        if (decides) {
            SGLCORE_TRY(replay_block(r, i->other));
            SGLCORE_TRY(read_predicate(r, index + 1, &goes_on));
        }
        if (!goes_on) break;
        SGLCORE_TRY(replay_block(r, i->block));
    }
    return SGL_OK;
}

static sgl_status replay_branch(const replayer *r, const sglexec_instruction *i)
{
    bool holds;
    SGLCORE_TRY(read_predicate(r, &r->program->operands.data[i->operand_first], &holds));
    return replay_block(r, holds ? i->block : i->other);
}

/* Exchanges that devices make by themselves are instructions like the others. */
static bool is_of_device(const replayer *r, const sglexec_instruction *i)
{
    if (!sglexec_is_exchange(i)) return !sglexec_is_control(i);
    return r->exchanges && sglexec_exchanges_are_linked(r->exchanges);
}

static sgl_status launch(const replayer *r, uint32_t n)
{
    const sglexec_instruction *i = &r->program->instructions.data[n];
    if (is_of_device(r, i)) return r->ops->launch(r->device, r->prepared, n, r->spaces);
    if (r->ops->blank) return SGL_OK;
    if (!r->exchanges)
        return sglcore_fail(r->env, SGL_INTERNAL, "%s: its ranks exchange, and there are none",
                            sglcore_string(r->program->strings, r->program->name));
    const sglexec_memory memory = { r->ops, r->device, r->spaces };
    return sglexec_exchanges_run(r->exchanges, &memory, n, r->trace != NULL);
}

static sgl_status launch_measured(const replayer *r, uint32_t n)
{
    SGLCORE_TRY(sglexec_measure_before(r->profile, r->ops, r->device));
    SGLCORE_TRY(launch(r, n));
    return sglexec_measure_after(r->profile, r->ops, r->device, n);
}

static sgl_status launch_traced(const replayer *r, uint32_t n)
{
    const sglexec_memory memory = { r->ops, r->device, r->spaces };
    SGLCORE_TRY(sglexec_trace_before(r->trace, &memory, n));
    SGLCORE_TRY(launch(r, n));
    if (r->exchanges && sglexec_exchanges_are_linked(r->exchanges)) SGLCORE_TRY(sglexec_exchanges_join(r->exchanges));
    SGLCORE_TRY(r->ops->finish(r->device));
    return sglexec_trace_after(r->trace, &memory, n);
}

/* How many instructions from `first` on the device may be given at once. */
static uint32_t run_of(const replayer *r, uint32_t first, uint32_t end)
{
    uint32_t n = first;
    if (!r->ops->run || r->trace || r->profile) return 0;
    while (n < end && is_of_device(r, &r->program->instructions.data[n])) n++;
    return n - first;
}

static sgl_status replay_block(const replayer *r, uint32_t block)
{
    const sglexec_block b = r->program->blocks.data[block];
    for (uint32_t n = b.first; n < b.first + b.count; n++) {
        const sglexec_instruction *i = &r->program->instructions.data[n];
        const uint32_t run = run_of(r, n, b.first + b.count);
        SGLCORE_TRY(check_stop(r, i));
        if (run > 0) {
            SGLCORE_TRY(r->ops->run(r->device, r->prepared, n, run, r->spaces));
            n += run - 1;
        } else if (i->op == SGLIR_OP_COND)
            SGLCORE_TRY(replay_branch(r, i));
        else if (sglexec_is_control(i))
            SGLCORE_TRY(replay_loop(r, i));
        else if (r->trace)
            SGLCORE_TRY(launch_traced(r, n));
        else if (r->profile)
            SGLCORE_TRY(launch_measured(r, n));
        else
            SGLCORE_TRY(launch(r, n));
    }
    return SGL_OK;
}

sgl_status sglexec_replay(sglcore_env *env, const sglexec_device_ops *ops, sglexec_device *device, void *prepared,
                          const sglexec_program *program, void *const spaces[SGLIR_SPACES],
                          sglexec_exchanges *exchanges, const sglexec_watch *watch)
{
    const sglexec_watch nobody = { 0 }, *w = watch ? watch : &nobody;
    const replayer r = { env, ops, device, prepared, program, spaces, exchanges, w->stop, w->profile, w->trace };
    const sglexec_memory memory = { ops, device, spaces };
    if (r.profile) sglexec_measure_begin(r.profile);
    sgl_status status = r.trace ? sglexec_trace_begin(r.trace, &memory) : SGL_OK;
    if (status == SGL_OK) status = replay_block(&r, 0);
    sgl_status finished = ops->finish(device); /* of what was launched, whatever came of it */
    if (status == SGL_OK) status = finished;
    if (status != SGL_OK && exchanges) sglexec_exchanges_settle(exchanges);
    return status == SGL_OK && r.profile ? sglexec_measure_end(r.profile, ops, device) : status;
}
