/* interp_window.c -- the interpreter's windows and convolutions, by their formulas: a walk over all places, window elements
 * and channels. In: channels-last tensors and one attribute entry per spatial dim. Out: results, which begin as zeros. */
#include "interp_inside.h"

enum { MOST_SPATIAL = (SGL_MAX_RANK - 2) / 2 };

/* One family of windows over [samples, extent..., channels]. */
typedef struct geometry {
    int spatial;
    const int64_t *stride, *dilation, *low;
    const int64_t *extent, *count, *size; /* per spatial dim: elements, windows, elements of a window */
    int64_t samples, places, window;      /* places, window: products of count and of size */
} geometry;

static int64_t product(const int64_t *dims, int count)
{
    int64_t total = 1;
    for (int i = 0; i < count; i++) total *= dims[i];
    return total;
}

static geometry geometry_of(const interp_call *call, int64_t samples, const int64_t *extent, const int64_t *count,
                            const int64_t *size)
{
    geometry geo = { .samples = samples, .extent = extent, .count = count, .size = size };
    geo.stride = interp_ints(call, "stride", &geo.spatial);
    geo.dilation = interp_ints(call, "dilation", &geo.spatial);
    geo.low = interp_ints(call, "low", &geo.spatial);
    geo.places = product(count, geo.spatial);
    geo.window = product(size, geo.spatial);
    return geo;
}

/* The row of x (sample and place) that element k of window o looks at; -1 where that is padding. */
static int64_t row_of(const geometry *geo, int64_t sample, int64_t o, int64_t k)
{
    int64_t place[MOST_SPATIAL], element[MOST_SPATIAL], row = sample;
    interp_unravel(o, geo->spatial, geo->count, place);
    interp_unravel(k, geo->spatial, geo->size, element);
    for (int d = 0; d < geo->spatial; d++) {
        int64_t at = place[d] * geo->stride[d] + element[d] * geo->dilation[d] - geo->low[d];
        if (at < 0 || at >= geo->extent[d]) return -1;
        row = row * geo->extent[d] + at;
    }
    return row;
}

static void windows(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int spatial = x->rank - 2;
    geometry geo = geometry_of(call, x->dims[0], x->dims + 1, out->dims + 1, out->dims + 1 + spatial);
    int64_t channels = x->dims[1 + spatial];
    for (int64_t e = 0; e < out->count; e++) {
        int64_t c = e % channels, k = e / channels % geo.window, o = e / channels / geo.window;
        int64_t row = row_of(&geo, o / geo.places, o % geo.places, k);
        if (row < 0) {
            interp_set(out, e, interp_float(call, "value"));
        } else {
            interp_move(out, e, x, row * channels + c);
        }
    }
}

static void windows_add(const interp_call *call)
{
    const interp_tensor *y = call->args[0];
    interp_tensor *out = &call->results[0];
    int spatial = out->rank - 2;
    geometry geo = geometry_of(call, y->dims[0], out->dims + 1, y->dims + 1, y->dims + 1 + spatial);
    int64_t channels = out->dims[1 + spatial];
    long double *sums = interp_sums(out);
    for (int64_t e = 0; e < y->count; e++) {
        int64_t c = e % channels, k = e / channels % geo.window, o = e / channels / geo.window;
        int64_t row = row_of(&geo, o / geo.places, o % geo.places, k);
        if (row < 0) continue;
        if (sums != NULL) {
            sums[row * channels + c] += y->floats[e];
        } else {
            uint64_t sum = (uint64_t)out->ints[row * channels + c] + (uint64_t)y->ints[e];
            out->ints[row * channels + c] = (int64_t)sum;
        }
    }
    interp_summed(out, sums);
}

/* ---- convolutions --------------------------------------------------------------------------------------------- */

/* <y, conv(x, weight)> is a sum of terms y * x * weight; of the three one is the result, to which each term's product of
 * the other two is added. */
static void convolve(const interp_call *call, interp_tensor *result, const interp_tensor *x,
                     const interp_tensor *weight, const interp_tensor *y)
{
    int spatial = x->rank - 2;
    geometry geo = geometry_of(call, x->dims[0], x->dims + 1, y->dims + 1, weight->dims + 1);
    int64_t channels = x->dims[1 + spatial], outputs = y->dims[1 + spatial], groups = interp_int(call, "groups");
    int64_t deep = channels / groups, wide = outputs / groups;
    long double *sums = interp_sums(result);
    for (int64_t place = 0; place < geo.samples * geo.places; place++) {
        for (int64_t k = 0; k < geo.window; k++) {
            int64_t row = row_of(&geo, place / geo.places, place % geo.places, k);
            if (row < 0) continue;
            for (int64_t f = 0; f < outputs; f++) {
                for (int64_t c = 0; c < deep; c++) {
                    int64_t x_at = row * channels + f / wide * deep + c, y_at = place * outputs + f;
                    int64_t weight_at = (f * geo.window + k) * deep + c;
                    if (result == y) sums[y_at] += (long double)x->floats[x_at] * weight->floats[weight_at];
                    if (result == x) sums[x_at] += (long double)y->floats[y_at] * weight->floats[weight_at];
                    if (result == weight) sums[weight_at] += (long double)x->floats[x_at] * y->floats[y_at];
                }
            }
        }
    }
    interp_summed(result, sums);
}

bool interp_window(const interp_call *call)
{
    interp_tensor *result = &call->results[0];
    switch (call->node->op) {
    case SGLIR_OP_WINDOWS: windows(call); return true;
    case SGLIR_OP_WINDOWS_ADD: windows_add(call); return true;
    case SGLIR_OP_CONV: convolve(call, result, call->args[0], call->args[1], result); return true;
    case SGLIR_OP_CONV_INPUT_GRAD: convolve(call, result, result, call->args[1], call->args[0]); return true;
    case SGLIR_OP_CONV_WEIGHT_GRAD: convolve(call, result, call->args[0], result, call->args[1]); return true;
    default: return false;
    }
}
