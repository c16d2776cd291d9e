/* infer_elementwise.c -- result types of generators, elementwise ops and reductions.
 *
 * In: argument types, already of one shape and dtype (build.c sees to that for users). Out: whole types. */
#include <inttypes.h>
#include <math.h>

#include "ir/infer.h"

/* ---- generators ----------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_constant(const sglir_infer *in)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_int(in, "dtype");
    double value = sglir_infer_attr(in, "value")->f;
    if (!sglir_dtype_holds(dtype, value)) return sglir_infer_fail(in, "%.17g is no %s", value, sgl_dtype_name(dtype));
    int64_t partial = sglir_infer_int(in, "partial");
    if (partial < 0 || partial >> SGLIR_AXIS_COUNT != 0 || (partial != 0 && value != 0))
        return sglir_infer_fail(in,
                                "partial is %lld: a bit for each of the %d axes is needed, and the number must be 0",
                                (long long)partial, SGLIR_AXIS_COUNT);
    in->results[0] = sglir_type_make(dtype, 0, NULL);
    in->results[0].partial = (uint8_t)partial;
    return SGL_OK;
}

sgl_status sglir_infer_iota(const sglir_infer *in)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_int(in, "dtype");
    int64_t axis = sglir_infer_int(in, "axis");
    sglir_type *result = &in->results[0];
    SGLCORE_TRY(sglir_infer_dims(in, dtype, sglir_infer_attr(in, "dims"), result));
    SGLCORE_TRY(sglir_infer_axis(in, axis, result->rank));
    if (dtype == SGL_BOOL) return sglir_infer_fail(in, "counts in numbers, not in bool");
    if (result->dims[axis] > 0 && !sglir_dtype_holds(dtype, (double)(result->dims[axis] - 1)))
        return sglir_infer_fail(in, "%" PRId64 " elements along axis %" PRId64 " are more than %s counts",
                                result->dims[axis], axis, sgl_dtype_name(dtype));
    return SGL_OK;
}

sgl_status sglir_infer_segments(const sglir_infer *in)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_int(in, "dtype");
    const sglir_named *counts = sglir_infer_attr(in, "counts"), *values = sglir_infer_attr(in, "values");
    if (counts->i != values->i)
        return sglir_infer_fail(in, "%" PRId64 " counts and %" PRId64 " values", counts->i, values->i);
    int64_t total = 0;
    for (int64_t i = 0; i < counts->i; i++) {
        if (counts->ints[i] < 0) return sglir_infer_fail(in, "count %" PRId64 " is %" PRId64, i, counts->ints[i]);
        if (!sglir_dtype_holds(dtype, values->floats[i]))
            return sglir_infer_fail(in, "value %" PRId64 ", %.17g, is no %s", i, values->floats[i],
                                    sgl_dtype_name(dtype));
        if (__builtin_add_overflow(total, counts->ints[i], &total))
            return sglir_infer_fail(in, "the counts add up to more than 64 bits hold");
    }
    in->results[0] = sglir_type_make(dtype, 1, &total);
    return SGL_OK;
}

sgl_status sglir_infer_random(const sglir_infer *in)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_int(in, "dtype");
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 0, "seed"));
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 1, "step"));
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 2, "offset"));
    if (!sglcore_dtype_is_float(dtype)) return sglir_infer_fail(in, "gives floats, not %s", sgl_dtype_name(dtype));
    return sglir_infer_dims(in, dtype, sglir_infer_attr(in, "dims"), &in->results[0]);
}

/* ---- elementwise ---------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_same(const sglir_infer *in)
{
    in->results[0] = sglir_infer_whole(in, 0);
    return SGL_OK;
}

/* x as it is, whatever it owes; of y nothing matters but that it is there. */
sgl_status sglir_infer_after(const sglir_infer *in)
{
    in->results[0] = *sglir_infer_arg(in, 0);
    return SGL_OK;
}

/* All of one dtype and shape, which are the result's. */
static sgl_status alike(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, in->arg_count - 1));
    SGLCORE_TRY(sglir_infer_same_shape(in, 0, in->arg_count - 1));
    return sglir_infer_same(in);
}

sgl_status sglir_infer_arithmetic(const sglir_infer *in)
{
    SGLCORE_TRY(alike(in));
    if (in->results[0].dtype == SGL_BOOL)
        return sglir_infer_fail(in, "is not defined for bool; use and, or, not, or cast to a number");
    return SGL_OK;
}

sgl_status sglir_infer_float(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    return alike(in);
}

/* A bound within the dtype, or an infinite one, which is none. */
static sgl_status check_bound(const sglir_infer *in, const char *name)
{
    sgl_dtype dtype = (sgl_dtype)in->results[0].dtype;
    double bound = sglir_infer_attr(in, name)->f;
    if (!isnan(bound) && (isinf(bound) || sglir_dtype_holds(dtype, bound))) return SGL_OK;
    return sglir_infer_fail(in, "the %s %.17g is no %s", name, bound, sgl_dtype_name(dtype));
}

sgl_status sglir_infer_clamp(const sglir_infer *in)
{
    double low = sglir_infer_attr(in, "minimum")->f, high = sglir_infer_attr(in, "maximum")->f;
    SGLCORE_TRY(sglir_infer_arithmetic(in));
    SGLCORE_TRY(check_bound(in, "minimum"));
    SGLCORE_TRY(check_bound(in, "maximum"));
    if (low <= high) return SGL_OK;
    return sglir_infer_fail(in, "the minimum %.17g is above the maximum %.17g", low, high);
}

/* Integers and bool. */
sgl_status sglir_infer_bits(const sglir_infer *in)
{
    SGLCORE_TRY(alike(in));
    sgl_dtype dtype = (sgl_dtype)in->results[0].dtype;
    if (!sglcore_dtype_is_float(dtype)) return SGL_OK;
    return sglir_infer_fail(in, "is not defined for %s: only integers and bool have bits", sgl_dtype_name(dtype));
}

sgl_status sglir_infer_shift(const sglir_infer *in)
{
    SGLCORE_TRY(alike(in));
    return sglir_infer_is_index(in, 0);
}

sgl_status sglir_infer_logical(const sglir_infer *in)
{
    for (int i = 0; i < in->arg_count; i++) {
        sgl_dtype dtype = (sgl_dtype)sglir_infer_arg(in, i)->dtype;
        if (dtype != SGL_BOOL)
            return sglir_infer_fail(in, "argument %d is %s, bool is needed", i, sgl_dtype_name(dtype));
    }
    return alike(in);
}

sgl_status sglir_infer_predicate(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_float(in));
    in->results[0].dtype = SGL_BOOL;
    return SGL_OK;
}

sgl_status sglir_infer_compare(const sglir_infer *in)
{
    SGLCORE_TRY(alike(in));
    in->results[0].dtype = SGL_BOOL;
    return SGL_OK;
}

sgl_status sglir_infer_cast(const sglir_infer *in)
{
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dtype = (uint8_t)sglir_infer_int(in, "to");
    return SGL_OK;
}

sgl_status sglir_infer_select(const sglir_infer *in)
{
    sgl_dtype condition = (sgl_dtype)sglir_infer_arg(in, 0)->dtype;
    if (condition != SGL_BOOL)
        return sglir_infer_fail(in, "the condition is %s, bool is needed", sgl_dtype_name(condition));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 1, 2));
    SGLCORE_TRY(sglir_infer_same_shape(in, 0, 2));
    in->results[0] = sglir_infer_whole(in, 1);
    return SGL_OK;
}

/* The one op that changes what is owed, so it says the whole of its result's type. */
sgl_status sglir_infer_accumulate(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_arithmetic(in));
    const sglir_type *sum = sglir_infer_arg(in, 0), *part = sglir_infer_arg(in, 1);
    const unsigned micro = 1u << SGLIR_AXIS_MICRO;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    if ((part->partial & micro) == 0)
        return sglir_infer_fail(in,
                                "argument 1 is %s and owes no sum over micro: it would be added once per "
                                "micro-batch; add it once, outside",
                                sglir_type_text(part, b, sizeof b));
    sglir_type paid = *part;
    paid.partial = (uint8_t)(paid.partial & ~micro);
    if (!sglir_type_equal(sum, &paid))
        return sglir_infer_fail(in,
                                "argument 0 is %s, argument 1 is %s: but for the sum over micro they must owe the same",
                                sglir_type_text(sum, a, sizeof a), sglir_type_text(part, b, sizeof b));
    in->results[0] = *sum;
    return SGL_OK;
}

/* ---- reductions ----------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_reduce(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    bool keep = sglir_infer_int(in, "keep") != 0;
    bool extreme = in->op == SGLIR_OP_REDUCE_MAX || in->op == SGLIR_OP_REDUCE_MIN;
    if (x->dtype == SGL_BOOL && !extreme)
        return sglir_infer_fail(in, "is not defined for bool; cast to a number first");
    if (in->op == SGLIR_OP_MEAN || in->op == SGLIR_OP_LOGSUMEXP) SGLCORE_TRY(sglir_infer_is_float(in, 0));
    unsigned reduced;
    SGLCORE_TRY(sglir_infer_axes(in, x->rank, &reduced));
    sglir_type *result = &in->results[0];
    *result = sglir_type_make((sgl_dtype)x->dtype, 0, NULL);
    for (int i = 0; i < x->rank; i++) {
        bool gone = reduced >> i & 1;
        if (!gone || keep) result->dims[result->rank++] = gone ? 1 : x->dims[i];
    }
    return SGL_OK;
}
