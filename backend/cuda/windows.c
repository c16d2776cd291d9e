/* windows.c -- windows of channels-last tensors, and windows_add, their transpose.
 *
 * In: dense tensors and one attribute entry per spatial dim. Out: one launch of a kernel of windows.cu. windows moves
 * units of bytes: runs of channels are multiples of them. Odd invariant: a thread of windows_add owns elements of a row
 * of the result. */
#include "backend/cuda/kernels/windows.h"
#include "backend/cuda/lines.h"

/* extent, count, size: one per spatial dim; the rest from the instruction's attributes. */
static sglcuda_windows windows_of(const sglexec_program *program, const sglexec_instruction *i, int spatial,
                                  const int64_t *extent, const int64_t *count, const int64_t *size)
{
    sglcuda_windows w = { .spatial = spatial, .rows = 1, .places = 1, .window = 1 };
    int entries;
    const int64_t *stride = sglexec_attr_ints(program, i, "stride", &entries);
    const int64_t *dilation = sglexec_attr_ints(program, i, "dilation", &entries);
    const int64_t *low = sglexec_attr_ints(program, i, "low", &entries);
    for (int d = 0; d < spatial; d++) {
        w.extent[d] = extent[d];
        w.count[d] = count[d];
        w.size[d] = size[d];
        w.stride[d] = stride[d];
        w.dilation[d] = dilation[d];
        w.low[d] = low[d];
        w.rows *= extent[d];
        w.places *= count[d];
        w.window *= size[d];
    }
    return w;
}

static sgl_status add_windows(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                              sglcuda_windows *v)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0), *result = x + 1;
    const sgl_dtype dtype = (sgl_dtype)x->dtype;
    const bool halves = dtype == SGL_I4 && v->channels % 2 != 0;
    const int64_t run_bytes = sglcore_dtype_bytes(dtype, v->channels);
    const int64_t unit = sglcuda_unit(run_bytes | x->offset | result->offset), bits = halves ? 4 : 8 * unit;
    const sglcuda_place places[] = { sglcuda_place_of(x), sglcuda_place_of(result) };
    const sglcuda_function *function;
    v->total = sglexec_elements(result);
    if (v->total == 0) return SGL_OK;
    if (!halves) {
        v->total = v->total / v->channels * (run_bytes / unit);
        v->channels = run_bytes / unit;
    }
    SGLCORE_TRY(sglcuda_fill_value_of(p, dtype, sglexec_attr_float(p->program, i, "value"), halves, &v->value));
    SGLCORE_TRY(sglcuda_sized(p, "windows", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_fill_grid(v->total, bits), places, 2, v, sizeof *v);
}

static sgl_status add_windows_add(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                                  sglcuda_windows *v)
{
    const sglexec_operand *y = sglcuda_operand(p->program, i, 0), *result = y + 1;
    const bool wide = v->channels % SGLCUDA_WINDOWS_VECTOR == 0 && (y->offset | result->offset) % 16 == 0;
    const int64_t width = wide ? SGLCUDA_WINDOWS_VECTOR : 1;
    const sglcuda_place places[] = { sglcuda_place_of(y), sglcuda_place_of(result) };
    const sglcuda_function *function;
    v->total = sglexec_elements(result);
    v->vectors = v->channels / width;
    if (v->total == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_typed(p, wide ? "windows_add_wide" : "windows_add", (sgl_dtype)y->dtype, &function));
    return sglcuda_add_step(p, command, function,
                            sglcuda_grid_over(v->total / width, SGLCUDA_WINDOWS_THREADS, SGLCUDA_WINDOWS_THREADS),
                            places, 2, v, sizeof *v);
}

sgl_status sglcuda_prepare_windows(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const bool adds = i->op == SGLIR_OP_WINDOWS_ADD;
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0), *result = x + 1;
    const sglexec_operand *flat = adds ? result : x, *windows = adds ? x : result;
    const int spatial = flat->rank - 2;
    sglcuda_windows v =
        windows_of(p->program, i, spatial, flat->dims + 1, windows->dims + 1, windows->dims + 1 + spatial);
    v.channels = flat->dims[1 + spatial];
    SGLCORE_TRY(sglcuda_begin(p, command));
    return adds ? add_windows_add(p, i, command, &v) : add_windows(p, i, command, &v);
}
