/* infer.c -- what the inference rules share: reading arguments and attributes, checks that fail with a message.
 *
 * In: an sglir_infer. Out: types, or a failure that names the op and the shapes. Odd invariant: arguments were checked to
 * be visible before any rule runs, and list attributes are read here and nowhere copied. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ir/infer.h"

const sglir_type *sglir_infer_arg(const sglir_infer *in, int i) { return sglir_type_of(in->g, in->args[i]); }

sglir_type sglir_infer_whole(const sglir_infer *in, int i)
{
    const sglir_type *type = sglir_infer_arg(in, i);
    return sglir_type_make((sgl_dtype)type->dtype, type->rank, type->dims);
}

const sglir_named *sglir_infer_attr(const sglir_infer *in, const char *name)
{
    for (int i = 0; i < in->attr_count; i++) {
        if (strcmp(in->attrs[i].name, name) == 0) return &in->attrs[i];
    }
    assert(!"the op has no attribute of this name");
    return NULL;
}

int64_t sglir_infer_int(const sglir_infer *in, const char *name) { return sglir_infer_attr(in, name)->i; }

sgl_status sglir_infer_fail(const sglir_infer *in, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sgl_status status = sglir_fail_v(in->g, SGL_TYPE, in->name, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- checks --------------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_axis(const sglir_infer *in, int64_t axis, int rank)
{
    if (axis >= 0 && axis < rank) return SGL_OK;
    if (rank == 0) return sglir_infer_fail(in, "axis %" PRId64 " of a scalar", axis);
    return sglir_infer_fail(in, "axis %" PRId64 " is not among the axes 0..%d", axis, rank - 1);
}

sgl_status sglir_infer_axes(const sglir_infer *in, int rank, unsigned *axes)
{
    const sglir_named *list = sglir_infer_attr(in, "axes");
    *axes = 0;
    for (int64_t i = 0; i < list->i; i++) {
        SGLCORE_TRY(sglir_infer_axis(in, list->ints[i], rank));
        if (i > 0 && list->ints[i] <= list->ints[i - 1])
            return sglir_infer_fail(in, "the axes must ascend, %" PRId64 " stands before %" PRId64, list->ints[i - 1],
                                    list->ints[i]);
        *axes |= 1u << list->ints[i];
    }
    return SGL_OK;
}

sgl_status sglir_infer_same_dtype(const sglir_infer *in, int first, int last)
{
    const sglir_type *a = sglir_infer_arg(in, first);
    for (int i = first + 1; i <= last; i++) {
        const sglir_type *b = sglir_infer_arg(in, i);
        if (a->dtype != b->dtype)
            return sglir_infer_fail(in, "argument %d is %s, argument %d is %s: cast one of them", first,
                                    sgl_dtype_name((sgl_dtype)a->dtype), i, sgl_dtype_name((sgl_dtype)b->dtype));
    }
    return SGL_OK;
}

sgl_status sglir_infer_same_shape(const sglir_infer *in, int first, int last)
{
    const sglir_type *a = sglir_infer_arg(in, first);
    for (int i = first + 1; i <= last; i++) {
        const sglir_type *b = sglir_infer_arg(in, i);
        char x[SGLIR_TYPE_ROOM], y[SGLIR_TYPE_ROOM];
        if (!sglir_same_shape(a, b))
            return sglir_infer_fail(in, "argument %d is %s, argument %d is %s: the shapes must be the same", first,
                                    sglir_shape_text(a, x, sizeof x), i, sglir_shape_text(b, y, sizeof y));
    }
    return SGL_OK;
}

sgl_status sglir_infer_is_float(const sglir_infer *in, int i)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_arg(in, i)->dtype;
    if (sglcore_dtype_is_float(dtype)) return SGL_OK;
    return sglir_infer_fail(in, "argument %d is %s, a float is needed", i, sgl_dtype_name(dtype));
}

sgl_status sglir_infer_is_index(const sglir_infer *in, int i)
{
    sgl_dtype dtype = (sgl_dtype)sglir_infer_arg(in, i)->dtype;
    if (sglir_dtype_is_integer(dtype)) return SGL_OK;
    return sglir_infer_fail(in, "argument %d is %s, an integer is needed", i, sgl_dtype_name(dtype));
}

sgl_status sglir_infer_is_scalar_i64(const sglir_infer *in, int i, const char *what)
{
    const sglir_type *type = sglir_infer_arg(in, i);
    char text[SGLIR_TYPE_ROOM];
    if (type->rank == 0 && type->dtype == SGL_I64) return SGL_OK;
    return sglir_infer_fail(in, "argument %d (%s) is %s, i64[] is needed", i, what,
                            sglir_type_text(type, text, sizeof text));
}

sgl_status sglir_infer_rank(const sglir_infer *in, int i, int rank, const char *form)
{
    const sglir_type *type = sglir_infer_arg(in, i);
    char text[SGLIR_TYPE_ROOM];
    if (type->rank == rank) return SGL_OK;
    return sglir_infer_fail(in, "argument %d is %s, %s is needed", i, sglir_shape_text(type, text, sizeof text), form);
}

/* ---- attributes ----------------------------------------------------------------------------------------------- */

sgl_status sglir_infer_dims(const sglir_infer *in, sgl_dtype dtype, const sglir_named *dims, sglir_type *type)
{
    if (dims->i > SGL_MAX_RANK)
        return sglir_infer_fail(in, "%" PRId64 " dimensions, at most %d are possible", dims->i, SGL_MAX_RANK);
    for (int64_t i = 0; i < dims->i; i++) {
        if (dims->ints[i] < 0)
            return sglir_infer_fail(in, "dimension %" PRId64 " has the extent %" PRId64, i, dims->ints[i]);
    }
    *type = sglir_type_make(dtype, (int)dims->i, dims->ints);
    return SGL_OK;
}
