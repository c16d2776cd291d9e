/* made.c -- states that passes make: how they begin, and what is read of those of the loss scale.
 *
 * Comes in: a state with its initial value, a program whose loss is scaled. Goes out: the state so filled; an error when too
 * many steps were skipped one after another, which names the parameter whose gradient was the first not to be finite. Odd
 * invariant: the mathematics of the scale stands in the graph (passes/precision_scale.c); here it is only looked at. */
#include <string.h>

#include "session/session.h"

enum { PIECE_BYTES = 4096 };

/* `count` elements of that number; false for a dtype that no pass makes states of. */
static bool fill_piece(sgl_dtype dtype, double number, void *piece, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        switch (dtype) {
        case SGL_F64: ((double *)piece)[i] = number; break;
        case SGL_F32: ((float *)piece)[i] = (float)number; break;
        case SGL_I64: ((int64_t *)piece)[i] = (int64_t)number; break;
        case SGL_I32: ((int32_t *)piece)[i] = (int32_t)number; break;
        default: return false;
        }
    }
    return true;
}

sgl_status sglsession_begin_state(sgl_session *session, const sglsession_state *state)
{
    union {
        double align;
        char bytes[PIECE_BYTES];
    } piece;
    int64_t size = sglcore_dtype_bytes(state->type.dtype, 1), count = PIECE_BYTES / (size > 0 ? size : 1);
    if (!fill_piece(state->type.dtype, state->initial, piece.bytes, count))
        return sglcore_fail(&session->vm->env, SGL_INTERNAL, "%s: no pass makes a state of dtype %s", state->name,
                            sgl_dtype_name(state->type.dtype));
    for (int64_t at = 0; at < state->bytes; at += PIECE_BYTES) {
        int64_t bytes = state->bytes - at < PIECE_BYTES ? state->bytes - at : PIECE_BYTES;
        SGLCORE_TRY(session->ops->write(session->device, sglsession_states(session, state->space), state->offset + at,
                                        piece.bytes, bytes));
    }
    return SGL_OK;
}

/* States that passes made begin when their place is first there: those from `before` on. */
sgl_status sglsession_begin_states(sgl_session *session, sglir_space space, int64_t before)
{
    sglsession_state state;
    for (int64_t i = 0; sglsession_state_at(session, i, &state); i++) {
        if (state.made && state.space == space && state.offset >= before)
            SGLCORE_TRY(sglsession_begin_state(session, &state));
    }
    return SGL_OK;
}

/* The names of the parameters, by which one is told whose gradient is not finite. */
sgl_status sglsession_keep_names(sgl_program *program, const sglir_graph *traced)
{
    sglcore_env *env = &program->session->vm->env;
    const sglir_region *top = &traced->regions.data[0];
    sglcore_text text = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t n = 0; n < top->nodes.count && status == SGL_OK; n++) {
        const sglir_node *node = sglir_node_at(traced, top->nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(traced, node, "role") != SGL_PARAMETER) continue;
        const char *name = sglir_attr_string(traced, node, "name");
        status = sglcore_text_bytes(env, &text, name, strlen(name) + 1);
    }
    program->parameter_bytes = text.count;
    program->parameters = status == SGL_OK ? sglcore_alloc(env, (size_t)text.count) : NULL;
    if (program->parameters == NULL) program->parameter_bytes = 0;
    if (program->parameters != NULL) memcpy(program->parameters, text.data, (size_t)text.count);
    sglcore_text_free(env, &text);
    return status == SGL_OK && program->parameters == NULL ? SGL_OUT_OF_MEMORY : status;
}

/* The name at that place among the parameters, or what a gradient is of that is no parameter's. */
static const char *parameter_name(const sgl_program *program, int64_t number)
{
    const char *name = program->parameters, *end = name + program->parameter_bytes;
    while (name < end && number-- > 0) name += strlen(name) + 1;
    return name < end ? name : "a value that is no parameter";
}

sgl_status sglsession_check_skips(sgl_program *program, int64_t step)
{
    sgl_session *session = program->session;
    int64_t in_a_row, first;
    float scale;
    if (program->parameters == NULL) return SGL_OK;
    SGLCORE_TRY(sgl_state_read(session, SGLPLAN_SCALE_IN_A_ROW, &in_a_row, sizeof in_a_row));
    if (in_a_row < program->max_skips) return SGL_OK;
    SGLCORE_TRY(sgl_state_read(session, SGLPLAN_SCALE_FIRST, &first, sizeof first));
    SGLCORE_TRY(sgl_state_read(session, SGLPLAN_SCALE, &scale, sizeof scale));
    return sglcore_fail(&session->vm->env, SGL_LIMIT,
                        "step %lld: %lld steps in a row were skipped for gradients that are not finite, with a loss "
                        "scale down to %g; the first of them, in step %lld, was that of %s. Nothing was changed by "
                        "them; look for the node that made it (sgl train --trace-nan), or lower the learning rate "
                        "(plan.max_skips: how many are too many)",
                        (long long)step, (long long)in_a_row, (double)scale, (long long)(step - in_a_row + 1),
                        parameter_name(program, first));
}
