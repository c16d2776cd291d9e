/* type.c -- types of values: made, compared, counted, written as text.
 *
 * In: dtypes and dims. Out: sglir_type, and "f32[4,8]{dp:0,partial(tp)}". Odd invariant: fields beyond rank are 0 and
 * `sharded` beyond the axes is -1, so that two equal types are equal field by field. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/infer.h"

static const char *const axis_names[SGLIR_AXIS_COUNT] = {
#define AXIS_NAME(name, text) [SGLIR_AXIS_##name] = text,
    SGLIR_AXIS_MAP(AXIS_NAME)
#undef AXIS_NAME
};

const char *sglir_axis_name(int axis) { return axis >= 0 && axis < SGLIR_AXIS_COUNT ? axis_names[axis] : "unknown"; }

sglir_type sglir_type_make(sgl_dtype dtype, int rank, const int64_t *dims)
{
    assert(rank >= 0 && rank <= SGL_MAX_RANK);
    sglir_type type = { .dtype = (uint8_t)dtype, .rank = (uint8_t)rank };
    memset(type.sharded, -1, sizeof type.sharded);
    for (int i = 0; i < rank; i++) type.dims[i] = dims[i];
    return type;
}

bool sglir_same_shape(const sglir_type *a, const sglir_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

bool sglir_type_equal(const sglir_type *a, const sglir_type *b)
{
    return a->dtype == b->dtype && a->scaled == b->scaled && a->partial == b->partial &&
           memcmp(a->sharded, b->sharded, sizeof a->sharded) == 0 && sglir_same_shape(a, b);
}

int64_t sglir_elements(const sglir_type *type)
{
    int64_t count = 1;
    bool overflow = false;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] == 0) return 0;
        if (type->dims[i] < 0) return -1;
        overflow = overflow || __builtin_mul_overflow(count, type->dims[i], &count);
    }
    return overflow ? -1 : count;
}

int64_t sglir_bytes(const sglir_type *type)
{
    return sglcore_dtype_bytes((sgl_dtype)type->dtype, sglir_elements(type));
}

/* Appends to a text of limited size; what does not fit is cut off. */
static void append(char *text, size_t size, size_t *used, const char *format, ...) SGL_PRINTF(4, 5);
static void append(char *text, size_t size, size_t *used, const char *format, ...)
{
    if (*used >= size) return;
    va_list arguments;
    va_start(arguments, format);
    int length = sglcore_format(text + *used, size - *used, format, arguments);
    va_end(arguments);
    if (length > 0) *used += (size_t)length;
}

static void append_shape(char *text, size_t size, size_t *used, const sglir_type *type)
{
    append(text, size, used, "[");
    for (int i = 0; i < type->rank; i++) append(text, size, used, "%s%" PRId64, i > 0 ? "," : "", type->dims[i]);
    append(text, size, used, "]");
}

const char *sglir_shape_text(const sglir_type *type, char *text, size_t size)
{
    size_t used = 0;
    append_shape(text, size, &used, type);
    return text;
}

const char *sglir_type_text(const sglir_type *type, char *text, size_t size)
{
    size_t used = 0;
    append(text, size, &used, "%s", sgl_dtype_name((sgl_dtype)type->dtype));
    append_shape(text, size, &used, type);
    const char *before = "{";
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] < 0) continue;
        append(text, size, &used, "%s%s:%d", before, axis_names[axis], type->sharded[axis]);
        before = ",";
    }
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((type->partial >> axis & 1) == 0) continue;
        append(text, size, &used, "%spartial(%s)", before, axis_names[axis]);
        before = ",";
    }
    if (type->scaled) {
        append(text, size, &used, "%sscaled", before);
        before = ",";
    }
    if (before[0] == ',') append(text, size, &used, "}");
    return text;
}

bool sglir_dtype_holds(sgl_dtype dtype, double value)
{
    if (sglcore_dtype_is_float(dtype)) return true;
    if (dtype == SGL_BOOL) return value == 0 || value == 1;
    int bits = sglcore_dtype_bits(dtype) - (sglcore_dtype_is_signed(dtype) ? 1 : 0);
    double above = 1; /* 2^bits, exact */
    for (int i = 0; i < bits; i++) above *= 2;
    double least = sglcore_dtype_is_signed(dtype) ? -above : 0;
    return value >= least && value < above && (double)(int64_t)value == value;
}
