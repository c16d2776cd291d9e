/* infer_composite.c -- result types of composites: softmax, norms, rope, attention, vocabulary losses.
 *
 * In: argument types. Out: whole types. Odd invariant: what a composite reduces to (lse, losses) is at least f32, while
 * what keeps an argument's shape keeps its dtype. */
#include <inttypes.h>
#include <math.h>

#include "ir/infer.h"

sgl_status sglir_infer_softmax(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    if (sglir_infer_arg(in, 0)->rank == 0) return sglir_infer_fail(in, "a scalar has no last dimension");
    return sglir_infer_same(in);
}

/* Gains and biases may be as wide as a norm computes: a master weight need not be rounded to the dtype of x. */
sgl_status sglir_infer_norm(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_softmax(in));
    const sglir_type *x = sglir_infer_arg(in, 0);
    sgl_dtype wide = sglir_wide_float((sgl_dtype)x->dtype);
    for (int i = 1; i < in->arg_count; i++) {
        sgl_dtype mine = (sgl_dtype)sglir_infer_arg(in, i)->dtype;
        if (mine != x->dtype && mine != wide)
            return sglir_infer_fail(in, "argument 0 is %s, argument %d is %s: cast one of them",
                                    sgl_dtype_name((sgl_dtype)x->dtype), i, sgl_dtype_name(mine));
    }
    double eps = sglir_infer_attr(in, "eps")->f;
    if (!(eps >= 0) || isinf(eps)) return sglir_infer_fail(in, "eps is %g, a finite number from 0 is needed", eps);
    for (int i = 1; i < in->arg_count; i++) {
        const sglir_type *vector = sglir_infer_arg(in, i);
        char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
        if (vector->rank != 1 || vector->dims[0] != x->dims[x->rank - 1])
            return sglir_infer_fail(in, "argument %d is %s, the last dimension of %s is needed", i,
                                    sglir_shape_text(vector, a, sizeof a), sglir_shape_text(x, b, sizeof b));
    }
    return SGL_OK;
}

static sgl_status must_be(const sglir_infer *in, int i, const char *what, const sglir_type *want)
{
    const sglir_type *have = sglir_infer_arg(in, i);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    if (have->dtype == want->dtype && sglir_same_shape(have, want)) return SGL_OK;
    return sglir_infer_fail(in, "argument %d (%s) is %s, %s is needed", i, what, sglir_type_text(have, a, sizeof a),
                            sglir_type_text(want, b, sizeof b));
}

/* A number for each place in time of each sequence. */
static sgl_status must_be_i32(const sglir_infer *in, int i, const char *what, int64_t batch, int64_t times)
{
    const int64_t dims[2] = { batch, times };
    sglir_type want = sglir_type_make(SGL_I32, 2, dims);
    return must_be(in, i, what, &want);
}

sgl_status sglir_infer_rope(const sglir_infer *in)
{
    const sglir_type *x = sglir_infer_arg(in, 0);
    double theta = sglir_infer_attr(in, "theta")->f;
    char text[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    SGLCORE_TRY(sglir_infer_rank(in, 0, 4, "[b, t, h, d]"));
    if (sglir_infer_arg(in, 1)->rank == 0)
        SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 1, "offset"));
    else
        SGLCORE_TRY(must_be_i32(in, 1, "positions", x->dims[0], x->dims[1]));
    if (x->dims[3] % 2 != 0)
        return sglir_infer_fail(in, "the last dimension of %s is odd: it is turned in pairs",
                                sglir_shape_text(x, text, sizeof text));
    if (!(theta > 0) || isinf(theta)) return sglir_infer_fail(in, "theta is %g, a number above 0 is needed", theta);
    const sglir_named *frequencies = sglir_infer_attr(in, "frequencies");
    if (frequencies->i != 0 && frequencies->i != x->dims[3] / 2)
        return sglir_infer_fail(in, "%" PRId64 " frequencies for the %" PRId64 " pairs of %s", frequencies->i,
                                x->dims[3] / 2, sglir_shape_text(x, text, sizeof text));
    for (int64_t i = 0; i < frequencies->i; i++) {
        if (!isfinite(frequencies->floats[i]))
            return sglir_infer_fail(in, "frequency %" PRId64 " is %g", i, frequencies->floats[i]);
    }
    return sglir_infer_same(in);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

/* q [b, t, h, d], k [b, s, g, d], v [b, s, g, e] are the first three arguments; `offset` is the number of that one, behind
 * which segments may follow. */
static sgl_status check_attention(const sglir_infer *in, int offset)
{
    static const char *const forms[3] = { "q [b, t, h, d]", "k [b, s, g, d]", "v [b, s, g, e]" };
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 2));
    for (int i = 0; i < 3; i++) SGLCORE_TRY(sglir_infer_rank(in, i, 4, forms[i]));
    const sglir_type *q = sglir_infer_arg(in, 0), *k = sglir_infer_arg(in, 1), *v = sglir_infer_arg(in, 2);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM], c[SGLIR_TYPE_ROOM];
    bool fits = q->dims[0] == k->dims[0] && q->dims[0] == v->dims[0] && k->dims[1] == v->dims[1] &&
                k->dims[2] == v->dims[2] && q->dims[3] == k->dims[3];
    if (!fits)
        return sglir_infer_fail(in, "q %s, k %s and v %s do not fit [b, t, h, d], [b, s, g, d] and [b, s, g, e]",
                                sglir_shape_text(q, a, sizeof a), sglir_shape_text(k, b, sizeof b),
                                sglir_shape_text(v, c, sizeof c));
    if (k->dims[2] == 0 || q->dims[2] % k->dims[2] != 0)
        return sglir_infer_fail(in, "%" PRId64 " query heads are no multiple of %" PRId64 " key heads", q->dims[2],
                                k->dims[2]);
    double scale = sglir_infer_attr(in, "scale")->f;
    int64_t window = sglir_infer_int(in, "window");
    if (!isfinite(scale)) return sglir_infer_fail(in, "the scale is %g", scale);
    if (window < 0) return sglir_infer_fail(in, "the window is %" PRId64 "; 0 is none", window);
    if (window > 0 && sglir_infer_int(in, "causal") == 0)
        return sglir_infer_fail(in, "a window counts back from the query's own place, so it needs causal");
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, offset, "offset"));
    if (in->arg_count == offset + 1) return SGL_OK;
    if (in->arg_count == offset + 2)
        return sglir_infer_fail(in, "segments of the queries without those of the keys: give both or none");
    SGLCORE_TRY(must_be_i32(in, offset + 1, "segments of the queries", q->dims[0], q->dims[1]));
    return must_be_i32(in, offset + 2, "segments of the keys", k->dims[0], k->dims[1]);
}

/* out [b, t, h, e] and lse [b, h, t] as they follow from q and v. */
static void attention_results(const sglir_infer *in, sglir_type *out, sglir_type *lse)
{
    const sglir_type *q = sglir_infer_arg(in, 0), *v = sglir_infer_arg(in, 2);
    const int64_t out_dims[4] = { q->dims[0], q->dims[1], q->dims[2], v->dims[3] };
    const int64_t lse_dims[3] = { q->dims[0], q->dims[2], q->dims[1] };
    *out = sglir_type_make((sgl_dtype)q->dtype, 4, out_dims);
    *lse = sglir_type_make(sglir_wide_float((sgl_dtype)q->dtype), 3, lse_dims);
}

sgl_status sglir_infer_attention(const sglir_infer *in)
{
    SGLCORE_TRY(check_attention(in, 3));
    attention_results(in, &in->results[0], &in->results[1]);
    return SGL_OK;
}

sgl_status sglir_infer_attention_grad(const sglir_infer *in)
{
    sglir_type out, lse;
    SGLCORE_TRY(check_attention(in, 6));
    attention_results(in, &out, &lse);
    SGLCORE_TRY(must_be(in, 3, "out", &out));
    SGLCORE_TRY(must_be(in, 4, "lse", &lse));
    SGLCORE_TRY(must_be(in, 5, "dout", &out));
    for (int i = 0; i < 3; i++) in->results[i] = sglir_infer_whole(in, i);
    return SGL_OK;
}

/* ---- losses over a vocabulary --------------------------------------------------------------------------------- */

/* Argument 0 is [..., n], argument `i` the targets [...]; the losses are one for each. */
static sgl_status losses_of(const sglir_infer *in, int i, sglir_type *losses)
{
    const sglir_type *x = sglir_infer_arg(in, 0), *targets = sglir_infer_arg(in, i);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    SGLCORE_TRY(sglir_infer_is_index(in, i));
    int64_t ignore = sglir_infer_int(in, "ignore"), exact = (int64_t)1 << 53; /* constants hold what doubles hold */
    if (ignore < -exact || ignore > exact) return sglir_infer_fail(in, "ignore is %" PRId64 ", beyond 2^53", ignore);
    *losses = sglir_type_make(sglir_wide_float((sgl_dtype)x->dtype), targets->rank, targets->dims);
    bool fits = x->rank == targets->rank + 1;
    for (int k = 0; k < targets->rank && fits; k++) fits = x->dims[k] == targets->dims[k];
    if (fits) return SGL_OK;
    return sglir_infer_fail(in, "targets %s are not the leading dimensions of %s",
                            sglir_shape_text(targets, b, sizeof b), sglir_shape_text(x, a, sizeof a));
}

sgl_status sglir_infer_cross_entropy(const sglir_infer *in) { return losses_of(in, 1, &in->results[0]); }

sgl_status sglir_infer_linear_cross_entropy(const sglir_infer *in)
{
    SGLCORE_TRY(losses_of(in, 2, &in->results[0]));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    SGLCORE_TRY(sglir_infer_rank(in, 1, 2, "[v, d]"));
    const sglir_type *x = sglir_infer_arg(in, 0), *weight = sglir_infer_arg(in, 1);
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    if (x->dims[x->rank - 1] == weight->dims[1]) return SGL_OK;
    return sglir_infer_fail(in, "inner dimensions differ: x %s and weight %s", sglir_shape_text(x, a, sizeof a),
                            sglir_shape_text(weight, b, sizeof b));
}

sgl_status sglir_infer_linear_cross_entropy_grad(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_linear_cross_entropy(in));
    SGLCORE_TRY(must_be(in, 3, "dlosses", &in->results[0]));
    in->results[1] = sglir_infer_whole(in, 0);
    in->results[2] = sglir_infer_whole(in, 1);
    return SGL_OK;
}
