/* infer_window.c -- result types of windows over spatial dims and of the convolutions made of them.
 *
 * In: channels-last types [n, s..., c] and one attribute entry per spatial dim. Out: whole types. Odd invariant: whatever
 * the direction, the counts of windows are worked out from the extents by one function, so an op and its transpose agree. */
#include <inttypes.h>

#include "ir/infer.h"

enum { MOST_SPATIAL = (SGL_MAX_RANK - 2) / 2 };

/* The attributes that windows, their transpose and the convolutions share, checked to have `spatial` entries each. */
typedef struct geometry {
    int spatial;
    const int64_t *stride, *dilation, *low, *high;
} geometry;

static sgl_status read_list(const sglir_infer *in, const char *name, int spatial, int64_t least, const int64_t **list)
{
    const sglir_named *attr = sglir_infer_attr(in, name);
    if (attr->i != spatial)
        return sglir_infer_fail(in, "%s has %" PRId64 " entries for %d spatial dimensions", name, attr->i, spatial);
    for (int64_t i = 0; i < attr->i; i++) {
        if (attr->ints[i] < least)
            return sglir_infer_fail(in, "%s[%" PRId64 "] is %" PRId64 ", at least %" PRId64 " is needed", name, i,
                                    attr->ints[i], least);
    }
    *list = attr->ints;
    return SGL_OK;
}

/* Argument 0 has `around` dims that are not spatial: n, c, and window dims. */
static sgl_status read_geometry(const sglir_infer *in, int spatial, geometry *geo)
{
    char text[SGLIR_TYPE_ROOM];
    if (spatial < 1 || spatial > MOST_SPATIAL)
        return sglir_infer_fail(in, "argument 0 is %s: one to %d spatial dimensions are possible, channels last",
                                sglir_shape_text(sglir_infer_arg(in, 0), text, sizeof text), MOST_SPATIAL);
    geo->spatial = spatial;
    SGLCORE_TRY(read_list(in, "stride", spatial, 1, &geo->stride));
    SGLCORE_TRY(read_list(in, "dilation", spatial, 1, &geo->dilation));
    SGLCORE_TRY(read_list(in, "low", spatial, INT64_MIN, &geo->low));
    return read_list(in, "high", spatial, INT64_MIN, &geo->high);
}

/* How many windows of `size` elements a spatial dim of this extent has. */
static sgl_status count_windows(const sglir_infer *in, const geometry *geo, int d, int64_t extent, int64_t size,
                                int64_t *count)
{
    int64_t span, padded;
    if (__builtin_mul_overflow(size - 1, geo->dilation[d], &span) || __builtin_add_overflow(span, 1, &span) ||
        __builtin_add_overflow(extent, geo->low[d], &padded) || __builtin_add_overflow(padded, geo->high[d], &padded))
        return sglir_infer_fail(in, "an extent does not fit 64 bits");
    if (span > padded)
        return sglir_infer_fail(in,
                                "a window spans %" PRId64 " elements of spatial dimension %d, which has %" PRId64
                                " with its padding",
                                span, d, padded);
    *count = (padded - span) / geo->stride[d] + 1;
    return SGL_OK;
}

sgl_status sglir_infer_windows(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int spatial = x->rank - 2;
    const int64_t *size;
    geometry geo;
    double value = sglir_infer_attr(in, "value")->f;
    SGLCORE_TRY(read_geometry(in, spatial, &geo));
    SGLCORE_TRY(read_list(in, "size", spatial, 1, &size));
    if (!sglir_dtype_holds((sgl_dtype)x->dtype, value))
        return sglir_infer_fail(in, "the value %.17g is no %s", value, sgl_dtype_name((sgl_dtype)x->dtype));
    int64_t dims[SGL_MAX_RANK];
    dims[0] = x->dims[0];
    for (int d = 0; d < spatial; d++) {
        SGLCORE_TRY(count_windows(in, &geo, d, x->dims[1 + d], size[d], &dims[1 + d]));
        dims[1 + spatial + d] = size[d];
    }
    dims[1 + 2 * spatial] = x->dims[1 + spatial];
    in->results[0] = sglir_type_make((sgl_dtype)x->dtype, 2 + 2 * spatial, dims);
    return SGL_OK;
}

/* That argument `of` has as many windows in its dims 1.. as x's extents give. */
static sgl_status match_counts(const sglir_infer *in, int of, const geometry *geo, const int64_t *extent,
                               const int64_t *size)
{
    const sglir_type *type = sglir_infer_arg(in, of);
    for (int d = 0; d < geo->spatial; d++) {
        int64_t count = 0;
        char text[SGLIR_TYPE_ROOM];
        SGLCORE_TRY(count_windows(in, geo, d, extent[d], size[d], &count));
        if (type->dims[1 + d] != count)
            return sglir_infer_fail(in, "argument %d is %s, and spatial dimension %d has %" PRId64 " windows", of,
                                    sglir_shape_text(type, text, sizeof text), d, count);
    }
    return SGL_OK;
}

sgl_status sglir_infer_windows_add(const sglir_infer *in)
{
    const sglir_type *y = sglir_infer_arg(in, 0);
    int spatial = y->rank % 2 == 0 ? (y->rank - 2) / 2 : 0;
    const int64_t *extent;
    geometry geo;
    char text[SGLIR_TYPE_ROOM];
    if (y->dtype == SGL_BOOL) return sglir_infer_fail(in, "is not defined for bool; cast to a number first");
    SGLCORE_TRY(read_geometry(in, spatial, &geo));
    SGLCORE_TRY(read_list(in, "extent", spatial, 0, &extent));
    int64_t dims[SGL_MAX_RANK];
    dims[0] = y->dims[0];
    for (int d = 0; d < spatial; d++) {
        if (y->dims[1 + spatial + d] < 1)
            return sglir_infer_fail(in, "argument 0 is %s: a window has at least one element",
                                    sglir_shape_text(y, text, sizeof text));
        dims[1 + d] = extent[d];
    }
    SGLCORE_TRY(match_counts(in, 0, &geo, extent, y->dims + 1 + spatial));
    dims[1 + spatial] = y->dims[1 + 2 * spatial];
    in->results[0] = sglir_type_make((sgl_dtype)y->dtype, 2 + spatial, dims);
    return SGL_OK;
}

/* ---- convolutions --------------------------------------------------------------------------------------------- */

/* What all three convolutions demand of their two arguments, beside their extents. */
static sgl_status check_conv(const sglir_infer *in, geometry *geo, int64_t *groups)
{
    const sglir_type *first = sglir_infer_arg(in, 0), *second = sglir_infer_arg(in, 1);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    *groups = sglir_infer_int(in, "groups");
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    SGLCORE_TRY(read_geometry(in, first->rank - 2, geo));
    if (second->rank != first->rank)
        return sglir_infer_fail(in, "argument 0 is %s, argument 1 is %s: they must have as many dimensions",
                                sglir_shape_text(first, a, sizeof a), sglir_shape_text(second, b, sizeof b));
    if (*groups < 1) return sglir_infer_fail(in, "there are %" PRId64 " groups", *groups);
    return SGL_OK;
}

/* The weight's [out, k..., c / groups] against `channels` of x and `outputs` of y. */
static sgl_status check_channels(const sglir_infer *in, int64_t groups, int64_t channels, int64_t outputs,
                                 int64_t of_group)
{
    if (channels % groups != 0 || outputs % groups != 0)
        return sglir_infer_fail(in,
                                "%" PRId64 " channels and %" PRId64 " outputs do not divide into %" PRId64 " groups",
                                channels, outputs, groups);
    if (channels / groups == of_group) return SGL_OK;
    return sglir_infer_fail(in,
                            "a weight for %" PRId64 " channels a group; there are %" PRId64 " channels in %" PRId64
                            " group%s",
                            of_group, channels, groups, groups == 1 ? "" : "s");
}

static sgl_status check_weight(const sglir_infer *in, const sglir_type *weight, int spatial)
{
    char text[SGLIR_TYPE_ROOM];
    for (int d = 0; d < spatial; d++) {
        if (weight->dims[1 + d] < 1)
            return sglir_infer_fail(in, "the weight is %s: a window has at least one element",
                                    sglir_shape_text(weight, text, sizeof text));
    }
    return SGL_OK;
}

sgl_status sglir_infer_conv(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *weight = sglir_infer_arg(in, 1);
    geometry geo;
    int64_t groups;
    SGLCORE_TRY(check_conv(in, &geo, &groups));
    SGLCORE_TRY(check_weight(in, weight, geo.spatial));
    int last = x->rank - 1;
    SGLCORE_TRY(check_channels(in, groups, x->dims[last], weight->dims[0], weight->dims[last]));
    sglir_type *result = &in->results[0];
    *result = sglir_infer_whole(in, 0);
    for (int d = 0; d < geo.spatial; d++)
        SGLCORE_TRY(count_windows(in, &geo, d, x->dims[1 + d], weight->dims[1 + d], &result->dims[1 + d]));
    result->dims[last] = weight->dims[0];
    return SGL_OK;
}

sgl_status sglir_infer_conv_input_grad(const sglir_infer *in)
{
    const sglir_type *dy = sglir_infer_arg(in, 0), *weight = sglir_infer_arg(in, 1);
    geometry geo;
    int64_t groups, channels;
    const int64_t *extent;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(check_conv(in, &geo, &groups));
    SGLCORE_TRY(check_weight(in, weight, geo.spatial));
    SGLCORE_TRY(read_list(in, "extent", geo.spatial, 0, &extent));
    int last = dy->rank - 1;
    if (dy->dims[last] != weight->dims[0])
        return sglir_infer_fail(in, "dy %s does not end in the weight's first extent, %s",
                                sglir_shape_text(dy, a, sizeof a), sglir_shape_text(weight, b, sizeof b));
    if (__builtin_mul_overflow(weight->dims[last], groups, &channels))
        return sglir_infer_fail(in, "an extent does not fit 64 bits");
    SGLCORE_TRY(check_channels(in, groups, channels, dy->dims[last], weight->dims[last]));
    SGLCORE_TRY(match_counts(in, 0, &geo, extent, weight->dims + 1));
    sglir_type *result = &in->results[0];
    *result = sglir_infer_whole(in, 0);
    for (int d = 0; d < geo.spatial; d++) result->dims[1 + d] = extent[d];
    result->dims[last] = channels;
    return SGL_OK;
}

sgl_status sglir_infer_conv_weight_grad(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *dy = sglir_infer_arg(in, 1);
    geometry geo;
    int64_t groups;
    const int64_t *size;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(check_conv(in, &geo, &groups));
    SGLCORE_TRY(read_list(in, "size", geo.spatial, 1, &size));
    int last = x->rank - 1;
    if (x->dims[0] != dy->dims[0])
        return sglir_infer_fail(in, "x %s and dy %s do not begin with the same extent",
                                sglir_shape_text(x, a, sizeof a), sglir_shape_text(dy, b, sizeof b));
    SGLCORE_TRY(check_channels(in, groups, x->dims[last], dy->dims[last], x->dims[last] / groups));
    SGLCORE_TRY(match_counts(in, 1, &geo, x->dims + 1, size));
    sglir_type *result = &in->results[0];
    *result = sglir_infer_whole(in, 0);
    result->dims[0] = dy->dims[last];
    for (int d = 0; d < geo.spatial; d++) result->dims[1 + d] = size[d];
    result->dims[last] = x->dims[last] / groups;
    return SGL_OK;
}
