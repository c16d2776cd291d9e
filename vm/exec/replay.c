/* replay.c -- runs a program once: the hot path, and all of it.
 *
 * Comes in: a prepared program and the base addresses of its spaces. Goes out: states changed, fetches filled. Nothing is
 * allocated and nothing is decided; a loop writes its index where its block reads it. */
#include "exec/device.h"

typedef struct replayer {
    const sglexec_device_ops *ops;
    sglexec_device *device;
    void *prepared;
    const sglexec_program *program;
    void *const *spaces;
    const sglexec_observer *observer;
} replayer;

static sgl_status replay_block(const replayer *r, uint32_t block);

static sgl_status replay_loop(const replayer *r, const sglexec_instruction *i)
{
    const sglexec_operand *index = &r->program->operands.data[i->operand_first];
    for (int64_t turn = 0; turn < i->steps; turn++) {
        SGLCORE_TRY(r->ops->write(r->device, r->spaces[index->space], index->offset, &turn, sizeof turn));
        SGLCORE_TRY(replay_block(r, i->block));
    }
    return SGL_OK;
}

static sgl_status replay_block(const replayer *r, uint32_t block)
{
    const sglexec_block b = r->program->blocks.data[block];
    for (uint32_t n = b.first; n < b.first + b.count; n++) {
        const sglexec_instruction *i = &r->program->instructions.data[n];
        if (i->op == SGLIR_OP_SCAN) {
            SGLCORE_TRY(replay_loop(r, i));
        } else if (!r->observer) {
            SGLCORE_TRY(r->ops->launch(r->device, r->prepared, n, r->spaces));
        } else {
            int64_t start = sglcore_now_ns();
            SGLCORE_TRY(r->ops->launch(r->device, r->prepared, n, r->spaces));
            SGLCORE_TRY(r->ops->finish(r->device));
            r->observer->launched(r->observer->user, r->program, n, start, sglcore_now_ns());
        }
    }
    return SGL_OK;
}

sgl_status sglexec_replay(sglcore_env *env, const sglexec_device_ops *ops, sglexec_device *device, void *prepared,
                          const sglexec_program *program, void *const spaces[5], const sglexec_observer *observer)
{
    (void)env;
    const replayer r = { ops, device, prepared, program, spaces, observer };
    SGLCORE_TRY(replay_block(&r, 0));
    return ops->finish(device);
}
