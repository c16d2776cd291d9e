/* kernel_print.c -- a kernel as text, one line per step: for reports of a program and tests.
 *
 * In: a description. Out: "1: r4 full f32 = mul r0 r3". Forms: full, row, col, one. A map is its offset (when there is
 * one) and a stride per dim: "a0 128[256 1]"; a for arguments and results of the node, in their order. */
#include <inttypes.h>

#include "exec/kernel.h"

static const char *const form_names[] = { "full", "row", "col", "one" };

static sgl_status put_map(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_map *map, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, " "));
    if (map->offset != 0) SGLCORE_TRY(sglcore_text_add(env, text, "%" PRId64, map->offset));
    SGLCORE_TRY(sglcore_text_add(env, text, "["));
    for (int i = 0; i < kernel->rank; i++)
        SGLCORE_TRY(sglcore_text_add(env, text, "%s%" PRId64, i > 0 ? " " : "", map->strides[i]));
    return sglcore_text_add(env, text, "]");
}

static sgl_status put_pieces(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_step *step,
                             sglcore_text *text)
{
    for (uint32_t i = 0; i < step->piece_count; i++) {
        const sglexec_piece *piece = &kernel->pieces.data[step->piece_first + i];
        if (step->kind == SGLEXEC_SEGMENTS) {
            SGLCORE_TRY(
                sglcore_text_add(env, text, " %" PRId64 "x%.17g", piece->count, kernel->numbers.data[piece->operand]));
        } else {
            SGLCORE_TRY(sglcore_text_add(env, text, " %" PRId64 "xa%u", piece->count, piece->operand));
        }
    }
    return SGL_OK;
}

static sgl_status put_args(sglcore_env *env, const sglexec_step *step, int count, sglcore_text *text)
{
    for (int i = 0; i < count; i++) SGLCORE_TRY(sglcore_text_add(env, text, " r%u", step->args[i]));
    return SGL_OK;
}

static sgl_status put_made(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_step *step, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "r%u %s %s = ", step->out, form_names[step->form],
                                 sgl_dtype_name((sgl_dtype)step->dtype)));
    switch (step->kind) {
    case SGLEXEC_LOAD:
        SGLCORE_TRY(sglcore_text_add(env, text, "load a%u", step->operand));
        return put_map(env, kernel, &step->map, text);
    case SGLEXEC_LOAD_PIECES:
        SGLCORE_TRY(sglcore_text_add(env, text, "load"));
        return put_pieces(env, kernel, step, text);
    case SGLEXEC_SEGMENTS:
        SGLCORE_TRY(sglcore_text_add(env, text, "segments"));
        return put_pieces(env, kernel, step, text);
    case SGLEXEC_NUMBER: return sglcore_text_add(env, text, "%.17g", step->value);
    case SGLEXEC_IOTA: SGLCORE_TRY(sglcore_text_add(env, text, "iota")); return put_map(env, kernel, &step->map, text);
    case SGLEXEC_RANDOM:
        SGLCORE_TRY(sglcore_text_add(env, text, "%s", sglir_ops[step->op].name));
        SGLCORE_TRY(put_args(env, step, 3, text));
        SGLCORE_TRY(sglcore_text_add(env, text, " id %" PRId64, step->id));
        return put_map(env, kernel, &step->map, text);
    case SGLEXEC_COMPUTE:
        SGLCORE_TRY(sglcore_text_add(env, text, "%s", sglir_ops[step->op].name));
        SGLCORE_TRY(put_args(env, step, sglir_ops[step->op].minimum, text));
        return step->id != 0 ? sglcore_text_add(env, text, " exact") : SGL_OK;
    default:
        SGLCORE_TRY(sglcore_text_add(env, text, "row %s", sglir_ops[step->op].name));
        return put_args(env, step, 1, text);
    }
}

static sgl_status put_step(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_step *step, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "%u: ", step->phase));
    if (step->kind < SGLEXEC_COLUMN_SUM) {
        SGLCORE_TRY(put_made(env, kernel, step, text));
    } else {
        SGLCORE_TRY(sglcore_text_add(env, text, "a%u %s %s = ", step->operand, form_names[step->form],
                                     sgl_dtype_name((sgl_dtype)step->dtype)));
        if (step->kind == SGLEXEC_COLUMN_SUM)
            SGLCORE_TRY(sglcore_text_add(env, text, "column %s", sglir_ops[step->op].name));
        if (step->kind == SGLEXEC_TOTAL) SGLCORE_TRY(sglcore_text_add(env, text, "total %s", sglir_ops[step->op].name));
        if (step->kind == SGLEXEC_STORE) SGLCORE_TRY(sglcore_text_add(env, text, "store"));
        SGLCORE_TRY(put_args(env, step, 1, text));
        if (step->kind == SGLEXEC_STORE) SGLCORE_TRY(put_map(env, kernel, &step->map, text));
    }
    return sglcore_text_add(env, text, "\n");
}

sgl_status sglexec_kernel_print(sglcore_env *env, const sglexec_kernel *kernel, sglcore_text *text)
{
    SGLCORE_TRY(sglcore_text_add(env, text, "kernel ["));
    for (int i = 0; i < kernel->rank; i++) {
        const char *mark = i == kernel->rank - kernel->inner ? "|" : i > 0 ? " " : "";
        SGLCORE_TRY(sglcore_text_add(env, text, "%s%" PRId64, mark, kernel->dims[i]));
    }
    SGLCORE_TRY(sglcore_text_add(env, text, "] phases %d registers %d\n", kernel->phases, kernel->registers));
    for (int64_t i = 0; i < kernel->steps.count; i++) SGLCORE_TRY(put_step(env, kernel, &kernel->steps.data[i], text));
    return SGL_OK;
}
