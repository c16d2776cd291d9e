/* infer_along.c -- result types of the ops that work along axes: recurrences, running sums, orders, flips, and what is
 * taken by an index along an axis.
 *
 * In: argument types and attributes of axes. Out: whole types. Odd invariant: indices that an op makes are i64 whatever
 * the extent, because a type that follows from an extent would change from bucket to bucket. */
#include <inttypes.h>

#include "ir/infer.h"

/* recurrence, cumulative_sum, cumulative_prod */
sgl_status sglir_infer_along(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_arithmetic(in));
    return sglir_infer_axis(in, sglir_infer_int(in, "axis"), sglir_infer_arg(in, 0)->rank);
}

sgl_status sglir_infer_flip(const sglir_infer *in)
{
    unsigned axes;
    SGLCORE_TRY(sglir_infer_axes(in, sglir_infer_arg(in, 0)->rank, &axes));
    return sglir_infer_same(in);
}

sgl_status sglir_infer_arg_extreme(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t axis = sglir_infer_int(in, "axis");
    bool keep = sglir_infer_int(in, "keep") != 0;
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    sglir_type *result = &in->results[0];
    *result = sglir_type_make(SGL_I64, 0, NULL);
    for (int i = 0; i < x->rank; i++) {
        if (i != axis || keep) result->dims[result->rank++] = i == axis ? 1 : x->dims[i];
    }
    return SGL_OK;
}

/* ---- orders --------------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_sort(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_axis(in, sglir_infer_int(in, "axis"), sglir_infer_arg(in, 0)->rank));
    in->results[0] = in->results[1] = sglir_infer_whole(in, 0);
    in->results[1].dtype = SGL_I64;
    return SGL_OK;
}

sgl_status sglir_infer_top_k(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t k = sglir_infer_int(in, "k");
    char text[SGLIR_TYPE_ROOM];
    if (x->rank == 0) return sglir_infer_fail(in, "a scalar has no last dimension");
    int last = x->rank - 1;
    if (k < 0 || k > x->dims[last])
        return sglir_infer_fail(in, "the %" PRId64 " largest along the last dimension of %s", k,
                                sglir_shape_text(x, text, sizeof text));
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[last] = k;
    in->results[1] = in->results[0];
    in->results[1].dtype = SGL_I64;
    return SGL_OK;
}

/* ---- by index along an axis ----------------------------------------------------------------------------------- */

sgl_status sglir_infer_take_along(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *indices = sglir_infer_arg(in, 1);
    int64_t axis = sglir_infer_int(in, "axis");
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(sglir_infer_is_index(in, 1));
    SGLCORE_TRY(sglir_infer_axis(in, axis, x->rank));
    bool fits = indices->rank == x->rank;
    for (int i = 0; i < x->rank && fits; i++) fits = i == axis || indices->dims[i] == x->dims[i];
    if (!fits)
        return sglir_infer_fail(in, "indices %s and x %s may differ along axis %" PRId64 " only",
                                sglir_shape_text(indices, a, sizeof a), sglir_shape_text(x, b, sizeof b), axis);
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[axis] = indices->dims[axis];
    return SGL_OK;
}

sgl_status sglir_infer_add_along(const sglir_infer *in)
{
    const sglir_type *updates = sglir_infer_arg(in, 1);
    int64_t axis = sglir_infer_int(in, "axis"), extent = sglir_infer_int(in, "extent");
    SGLCORE_TRY(sglir_infer_is_index(in, 0));
    SGLCORE_TRY(sglir_infer_same_shape(in, 0, 1));
    SGLCORE_TRY(sglir_infer_axis(in, axis, updates->rank));
    if (updates->dtype == SGL_BOOL) return sglir_infer_fail(in, "is not defined for bool; cast to a number first");
    if (extent < 0) return sglir_infer_fail(in, "the extent is %" PRId64, extent);
    in->results[0] = sglir_infer_whole(in, 1);
    in->results[0].dims[axis] = extent;
    return SGL_OK;
}
