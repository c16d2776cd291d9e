/* infer_product.c -- result types of products: dot, matmul, linear.
 *
 * In: argument types, index lists of dot. Out: [batch..., free of a..., free of b...] and what follows from it. */
#include <inttypes.h>

#include "ir/infer.h"

/* Integers are multiplied and summed in their dtype, and wrap. */
static sgl_status check_numbers(const sglir_infer *in)
{
    if (sglir_infer_arg(in, 0)->dtype != SGL_BOOL) return SGL_OK;
    return sglir_infer_fail(in, "is not defined for bool; cast to a number first");
}

/* Marks the dims of one list; they must be there and not be named before. */
static sgl_status mark(const sglir_infer *in, const char *list, int rank, unsigned *taken)
{
    const sglir_named *axes = sglir_infer_attr(in, list);
    for (int64_t i = 0; i < axes->i; i++) {
        int64_t axis = axes->ints[i];
        if (axis < 0 || axis >= rank)
            return sglir_infer_fail(in, "%s names dimension %" PRId64 " of an argument of %d", list, axis, rank);
        if (*taken >> axis & 1) return sglir_infer_fail(in, "%s names dimension %" PRId64 " a second time", list, axis);
        *taken |= 1u << axis;
    }
    return SGL_OK;
}

static sgl_status same_extents(const sglir_infer *in, const char *list_a, const char *list_b)
{
    const sglir_type *a = sglir_infer_arg(in, 0), *b = sglir_infer_arg(in, 1);
    const sglir_named *of_a = sglir_infer_attr(in, list_a), *of_b = sglir_infer_attr(in, list_b);
    if (of_a->i != of_b->i)
        return sglir_infer_fail(in, "%s names %" PRId64 " dimensions, %s %" PRId64, list_a, of_a->i, list_b, of_b->i);
    for (int64_t i = 0; i < of_a->i; i++) {
        char x[SGLIR_TYPE_ROOM], y[SGLIR_TYPE_ROOM];
        if (a->dims[of_a->ints[i]] != b->dims[of_b->ints[i]])
            return sglir_infer_fail(in,
                                    "dimension %" PRId64 " of %s and dimension %" PRId64
                                    " of %s differ, %s and %s pair them",
                                    of_a->ints[i], sglir_shape_text(a, x, sizeof x), of_b->ints[i],
                                    sglir_shape_text(b, y, sizeof y), list_a, list_b);
    }
    return SGL_OK;
}

static sgl_status add_dim(const sglir_infer *in, sglir_type *result, int64_t extent)
{
    if (result->rank == SGL_MAX_RANK)
        return sglir_infer_fail(in, "the result would have more than %d dimensions", SGL_MAX_RANK);
    result->dims[result->rank++] = extent;
    return SGL_OK;
}

sgl_status sglir_infer_dot(const sglir_infer *in)
{
    const sglir_type *a = sglir_infer_arg(in, 0), *b = sglir_infer_arg(in, 1);
    unsigned taken_a = 0, taken_b = 0;
    SGLCORE_TRY(check_numbers(in));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    SGLCORE_TRY(mark(in, "batch_a", a->rank, &taken_a));
    SGLCORE_TRY(mark(in, "contract_a", a->rank, &taken_a));
    SGLCORE_TRY(mark(in, "batch_b", b->rank, &taken_b));
    SGLCORE_TRY(mark(in, "contract_b", b->rank, &taken_b));
    SGLCORE_TRY(same_extents(in, "batch_a", "batch_b"));
    SGLCORE_TRY(same_extents(in, "contract_a", "contract_b"));
    sglir_type *result = &in->results[0];
    bool wide = sglir_infer_int(in, "wide") != 0 && sglcore_dtype_is_float((sgl_dtype)a->dtype);
    *result = sglir_type_make(wide ? sglir_wide_float((sgl_dtype)a->dtype) : (sgl_dtype)a->dtype, 0, NULL);
    const sglir_named *batch = sglir_infer_attr(in, "batch_a");
    for (int64_t i = 0; i < batch->i; i++) SGLCORE_TRY(add_dim(in, result, a->dims[batch->ints[i]]));
    for (int i = 0; i < a->rank; i++) {
        if ((taken_a >> i & 1) == 0) SGLCORE_TRY(add_dim(in, result, a->dims[i]));
    }
    for (int i = 0; i < b->rank; i++) {
        if ((taken_b >> i & 1) == 0) SGLCORE_TRY(add_dim(in, result, b->dims[i]));
    }
    return SGL_OK;
}

sgl_status sglir_infer_matmul(const sglir_infer *in)
{
    const sglir_type *a = sglir_infer_arg(in, 0), *b = sglir_infer_arg(in, 1);
    char x[SGLIR_TYPE_ROOM], y[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(check_numbers(in));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    sglir_shape_text(a, x, sizeof x);
    sglir_shape_text(b, y, sizeof y);
    if (a->rank == 0 || b->rank == 0) return sglir_infer_fail(in, "a scalar is no matrix: %s x %s; use mul", x, y);
    if (a->dims[a->rank - 1] != b->dims[b->rank == 1 ? 0 : b->rank - 2])
        return sglir_infer_fail(in, "inner dimensions differ: %s x %s", x, y);
    int lead_a = a->rank > 2 ? a->rank - 2 : 0, lead_b = b->rank > 2 ? b->rank - 2 : 0;
    int lead = lead_a > lead_b ? lead_a : lead_b;
    sglir_type *result = &in->results[0];
    *result = sglir_type_make((sgl_dtype)a->dtype, 0, NULL);
    for (int i = 0; i < lead; i++) {
        int64_t of_a = i < lead - lead_a ? 1 : a->dims[i - (lead - lead_a)];
        int64_t of_b = i < lead - lead_b ? 1 : b->dims[i - (lead - lead_b)];
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return sglir_infer_fail(in, "leading dimensions do not broadcast: %s x %s", x, y);
        SGLCORE_TRY(add_dim(in, result, of_a == 1 ? of_b : of_a));
    }
    if (a->rank > 1) SGLCORE_TRY(add_dim(in, result, a->dims[a->rank - 2]));
    if (b->rank > 1) SGLCORE_TRY(add_dim(in, result, b->dims[b->rank - 1]));
    return SGL_OK;
}

sgl_status sglir_infer_linear(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *weight = sglir_infer_arg(in, 1);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(check_numbers(in));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, in->arg_count - 1));
    SGLCORE_TRY(sglir_infer_rank(in, 1, 2, "[out, in]"));
    if (x->rank == 0 || x->dims[x->rank - 1] != weight->dims[1])
        return sglir_infer_fail(in, "x has %" PRId64 " features, the weight takes %" PRId64 ": %s x %s",
                                x->rank == 0 ? 1 : x->dims[x->rank - 1], weight->dims[1],
                                sglir_shape_text(x, a, sizeof a), sglir_shape_text(weight, b, sizeof b));
    if (in->arg_count == 3) {
        const sglir_type *bias = sglir_infer_arg(in, 2);
        if (bias->rank != 1 || bias->dims[0] != weight->dims[0])
            return sglir_infer_fail(in, "a bias %s for a weight %s", sglir_shape_text(bias, a, sizeof a),
                                    sglir_shape_text(weight, b, sizeof b));
    }
    in->results[0] = sglir_infer_whole(in, 0);
    in->results[0].dims[x->rank - 1] = weight->dims[0];
    return SGL_OK;
}
