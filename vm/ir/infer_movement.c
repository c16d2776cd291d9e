/* infer_movement.c -- result types of the ops that move elements, and of those that pick them by an index.
 *
 * In: argument types and attributes of axes and extents. Out: whole types. Odd invariant: every sum of extents is checked
 * for overflow, because a script may write any number. */
#include <inttypes.h>

#include "ir/infer.h"

static sgl_status too_long(const sglir_infer *in) { return sglir_infer_fail(in, "an extent does not fit 64 bits"); }

/* An extent of -1 that nothing could be put in the place of: one at most is open, and the others must divide the elements. */
static sgl_status check_open(const sglir_infer *in, const sglir_named *dims)
{
    int64_t open = 0;
    char text[SGLIR_TYPE_ROOM];
    for (int64_t i = 0; i < dims->i; i++) open += dims->ints[i] == -1;
    if (open == 0) return SGL_OK;
    if (open > 1) return sglir_infer_fail(in, "%" PRId64 " extents are -1; one can be left open", open);
    const sglir_type *x = sglir_infer_arg(in, 0);
    return sglir_infer_fail(in, "the %" PRId64 " elements of %s cannot be divided by the other extents",
                            sglir_elements(x), sglir_shape_text(x, text, sizeof text));
}

sgl_status sglir_infer_reshape(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    SGLCORE_TRY(check_open(in, sglir_infer_attr(in, "dims")));
    sglir_type *result = &in->results[0];
    SGLCORE_TRY(sglir_infer_dims(in, (sgl_dtype)x->dtype, sglir_infer_attr(in, "dims"), result));
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    int64_t have = sglir_elements(x), want = sglir_elements(result);
    if (have == want) return SGL_OK;
    return sglir_infer_fail(in, "%s has %" PRId64 " elements, %s has %" PRId64, sglir_shape_text(x, a, sizeof a), have,
                            sglir_shape_text(result, b, sizeof b), want);
}

sgl_status sglir_infer_broadcast(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    sglir_type *result = &in->results[0];
    SGLCORE_TRY(sglir_infer_dims(in, (sgl_dtype)x->dtype, sglir_infer_attr(in, "dims"), result));
    int lead = result->rank - x->rank;
    bool fits = lead >= 0;
    for (int i = 0; i < x->rank && fits; i++) fits = x->dims[i] == 1 || x->dims[i] == result->dims[lead + i];
    if (fits) return SGL_OK;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglir_infer_fail(in, "%s cannot become %s: dimensions are aligned at the end and only extents of 1 repeat",
                            sglir_shape_text(x, a, sizeof a), sglir_shape_text(result, b, sizeof b));
}

sgl_status sglir_infer_transpose(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    const sglir_named *order = sglir_infer_attr(in, "order");
    char text[SGLIR_TYPE_ROOM];
    if (order->i != x->rank)
        return sglir_infer_fail(in, "an order of %" PRId64 " dimensions for %s", order->i,
                                sglir_shape_text(x, text, sizeof text));
    sglir_type *result = &in->results[0];
    *result = sglir_type_make((sgl_dtype)x->dtype, x->rank, x->dims);
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        SGLCORE_TRY(sglir_infer_axis(in, order->ints[i], x->rank));
        if (seen >> order->ints[i] & 1)
            return sglir_infer_fail(in, "dimension %" PRId64 " stands twice in the order", order->ints[i]);
        seen |= 1u << order->ints[i];
        result->dims[i] = x->dims[order->ints[i]];
    }
    return SGL_OK;
}

sgl_status sglir_infer_slice(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t axis = sglir_infer_int(in, "axis"), start = sglir_infer_int(in, "start");
    int64_t stop = sglir_infer_int(in, "stop"), step = sglir_infer_int(in, "step");
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    char text[SGLIR_TYPE_ROOM];
    if (start < 0 || start > stop || stop > x->dims[axis])
        return sglir_infer_fail(in, "%" PRId64 ":%" PRId64 " along axis %" PRId64 " is not within %s", start, stop,
                                axis, sglir_shape_text(x, text, sizeof text));
    if (step < 1) return sglir_infer_fail(in, "the step is %" PRId64 ", at least 1 is needed", step);
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[axis] = (stop - start) / step + ((stop - start) % step != 0);
    return SGL_OK;
}

sgl_status sglir_infer_pad(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t axis = sglir_infer_int(in, "axis"), before = sglir_infer_int(in, "before");
    int64_t after = sglir_infer_int(in, "after"), between = sglir_infer_int(in, "between");
    double value = sglir_infer_attr(in, "value")->f;
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    if (before < 0 || after < 0 || between < 0)
        return sglir_infer_fail(in, "before %" PRId64 ", after %" PRId64 ", between %" PRId64 ": none may be negative",
                                before, after, between);
    if (!sglir_dtype_holds((sgl_dtype)x->dtype, value))
        return sglir_infer_fail(in, "the value %.17g is no %s", value, sgl_dtype_name((sgl_dtype)x->dtype));
    int64_t extent = x->dims[axis], gaps = 0;
    if (extent > 0 && __builtin_mul_overflow(extent - 1, between, &gaps)) return too_long(in);
    if (__builtin_add_overflow(extent, gaps, &extent) || __builtin_add_overflow(extent, before, &extent) ||
        __builtin_add_overflow(extent, after, &extent))
        return too_long(in);
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[axis] = extent;
    return SGL_OK;
}

sgl_status sglir_infer_concat(const sglir_infer *in)
{
    const sglir_type *first = sglir_infer_arg(in, 0);
    int64_t axis = sglir_infer_int(in, "axis"), extent = 0;
    SGLCORE_TRY(sglir_infer_axis(in, axis, first->rank));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, in->arg_count - 1));
    for (int i = 0; i < in->arg_count; i++) {
        sglir_type next = sglir_infer_whole(in, i);
        if (next.rank == first->rank) {
            if (__builtin_add_overflow(extent, next.dims[axis], &extent)) return too_long(in);
            next.dims[axis] = first->dims[axis];
        }
        char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
        if (!sglir_same_shape(first, &next))
            return sglir_infer_fail(in,
                                    "argument 0 is %s, argument %d is %s: they may differ along axis %" PRId64 " only",
                                    sglir_shape_text(first, a, sizeof a), i,
                                    sglir_shape_text(sglir_infer_arg(in, i), b, sizeof b), axis);
    }
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[axis] = extent;
    return SGL_OK;
}

sgl_status sglir_infer_pack(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, in->arg_count - 1));
    int64_t total = 0;
    for (int i = 0; i < in->arg_count; i++) {
        if (__builtin_add_overflow(total, sglir_elements(sglir_infer_arg(in, i)), &total)) return too_long(in);
    }
    in->results[0] = sglir_type_make((sgl_dtype)sglir_infer_arg(in, 0)->dtype, 1, &total);
    return SGL_OK;
}

sgl_status sglir_infer_unpack(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    const sglir_named *ranks = sglir_infer_attr(in, "ranks"), *dims = sglir_infer_attr(in, "dims");
    SGLCORE_TRY(sglir_infer_rank(in, 0, 1, "[n]"));
    if (ranks->i == 0 || ranks->i > in->capacity) return sglir_infer_fail(in, "has no results");
    int64_t at = 0, total = 0;
    for (int64_t i = 0; i < ranks->i; i++) {
        int64_t rank = ranks->ints[i];
        if (rank < 0 || rank > SGL_MAX_RANK || at + rank > dims->i)
            return sglir_infer_fail(in, "result %" PRId64 " has %" PRId64 " dimensions, %" PRId64 " are left in dims",
                                    i, rank, dims->i - at);
        sglir_named mine = { .i = rank, .ints = rank > 0 ? dims->ints + at : NULL };
        SGLCORE_TRY(sglir_infer_dims(in, (sgl_dtype)x->dtype, &mine, &in->results[i]));
        int64_t count = sglir_elements(&in->results[i]);
        if (count < 0 || __builtin_add_overflow(total, count, &total)) return too_long(in);
        at += rank;
    }
    if (at != dims->i) return sglir_infer_fail(in, "%" PRId64 " entries of dims belong to no result", dims->i - at);
    if (total != x->dims[0])
        return sglir_infer_fail(in, "the results have %" PRId64 " elements, the argument %" PRId64, total, x->dims[0]);
    *in->count = (int)ranks->i;
    return SGL_OK;
}

/* ---- by index ------------------------------------------------------------------------------------------------- */

static sgl_status add_dims(const sglir_infer *in, sglir_type *result, const int64_t *dims, int count)
{
    if (result->rank + count > SGL_MAX_RANK)
        return sglir_infer_fail(in, "the result would have %d dimensions, at most %d are possible",
                                result->rank + count, SGL_MAX_RANK);
    for (int i = 0; i < count; i++) result->dims[result->rank++] = dims[i];
    return SGL_OK;
}

sgl_status sglir_infer_gather(const sglir_infer *in)
{
    const sglir_type *table = sglir_infer_arg(in, 0), *indices = sglir_infer_arg(in, 1);
    SGLCORE_TRY(sglir_infer_is_index(in, 1));
    if (table->rank == 0) return sglir_infer_fail(in, "the table is a scalar, [v, ...] is needed");
    in->results[0] = sglir_type_make((sgl_dtype)table->dtype, indices->rank, indices->dims);
    return add_dims(in, &in->results[0], table->dims + 1, table->rank - 1);
}

sgl_status sglir_infer_scatter_add(const sglir_infer *in)
{
    const sglir_type *indices = sglir_infer_arg(in, 0), *updates = sglir_infer_arg(in, 1);
    int64_t extent = sglir_infer_int(in, "extent");
    SGLCORE_TRY(sglir_infer_is_index(in, 0));
    if (updates->dtype == SGL_BOOL) return sglir_infer_fail(in, "is not defined for bool; cast to a number first");
    if (extent < 0) return sglir_infer_fail(in, "the extent is %" PRId64, extent);
    bool fits = updates->rank >= indices->rank;
    for (int i = 0; i < indices->rank && fits; i++) fits = updates->dims[i] == indices->dims[i];
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    if (!fits)
        return sglir_infer_fail(in, "updates %s do not begin with the dimensions of the indices %s",
                                sglir_shape_text(updates, a, sizeof a), sglir_shape_text(indices, b, sizeof b));
    in->results[0] = sglir_type_make((sgl_dtype)updates->dtype, 1, &extent);
    return add_dims(in, &in->results[0], updates->dims + indices->rank, updates->rank - indices->rank);
}

sgl_status sglir_infer_dynamic_slice(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t axis = sglir_infer_int(in, "axis"), size = sglir_infer_int(in, "size");
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 1, "start"));
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    char text[SGLIR_TYPE_ROOM];
    if (size < 0 || size > x->dims[axis])
        return sglir_infer_fail(in, "%" PRId64 " elements along axis %" PRId64 " of %s", size, axis,
                                sglir_shape_text(x, text, sizeof text));
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[axis] = size;
    return SGL_OK;
}

sgl_status sglir_infer_dynamic_update(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *update = sglir_infer_arg(in, 1);
    int64_t axis = sglir_infer_int(in, "axis");
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 2, "start"));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    bool fits = update->rank == x->rank;
    for (int i = 0; i < x->rank && fits; i++)
        fits = i == axis ? update->dims[i] <= x->dims[i] : update->dims[i] == x->dims[i];
    in->results[0] = sglir_infer_whole(in, 0);
    if (fits) return SGL_OK;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglir_infer_fail(in, "an update %s does not fit into %s along axis %" PRId64,
                            sglir_shape_text(update, a, sizeof a), sglir_shape_text(x, b, sizeof b), axis);
}
