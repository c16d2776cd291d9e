/* interp_noise.c -- how far roundings may move a result: the interpreter's noise.
 *
 * In: a call whose results are computed. Out: each float of a result moved up or down by two units in its last place, and by
 * more where it is a long sum, because the order of a sum is the compiled program's to choose. Odd invariant: ops that round
 * nothing are left alone, since what they give is exact under any order. */
#include "interp_inside.h"

#include <math.h>

enum { LONG_SUM = 8 }; /* of so many terms, or more, the order is felt */

double interp_epsilon(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F32: return ldexp(1, -23);
    case SGL_BF16: return ldexp(1, -7);
    case SGL_F16: return ldexp(1, -10);
    case SGL_F8E4M3: return ldexp(1, -3);
    case SGL_F8E5M2: return ldexp(1, -2);
    default: return ldexp(1, -52);
    }
}

static double product_of(const interp_tensor *t, const int64_t *dims, int count)
{
    double product = 1;
    for (int i = 0; i < count; i++) product *= (double)t->dims[dims[i]];
    return product;
}

static double last_of(const interp_tensor *t) { return t->rank > 0 ? (double)t->dims[t->rank - 1] : 1; }

/* How many numbers each element of result k is a sum of. */
static double terms_of(const interp_call *call, uint32_t k)
{
    const interp_tensor *const *args = call->args;
    double results = (double)(call->results[k].count > 0 ? call->results[k].count : 1);
    int count;
    switch (call->node->op) {
    case SGLIR_OP_REDUCE_SUM:
    case SGLIR_OP_REDUCE_PROD:
    case SGLIR_OP_MEAN:
    case SGLIR_OP_LOGSUMEXP: return (double)args[0]->count / results;
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_PROD:
    case SGLIR_OP_CUMULATIVE_SUM: return (double)args[0]->dims[interp_int(call, "axis")];
    case SGLIR_OP_DOT: {
        const int64_t *contract = interp_ints(call, "contract_a", &count);
        return product_of(args[0], contract, count);
    }
    case SGLIR_OP_MATMUL:
    case SGLIR_OP_LINEAR:
    case SGLIR_OP_SOFTMAX:
    case SGLIR_OP_RMS_NORM:
    case SGLIR_OP_LAYER_NORM:
    case SGLIR_OP_CROSS_ENTROPY: return last_of(args[0]);
    case SGLIR_OP_LINEAR_CROSS_ENTROPY: return last_of(args[0]) + (double)args[1]->dims[0];
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD:
        return last_of(args[0]) + (double)args[1]->dims[0] + (k == 2 ? (double)args[2]->count : 0);
    case SGLIR_OP_ADD_ALONG: return (double)args[0]->dims[interp_int(call, "axis")];
    case SGLIR_OP_SCATTER_ADD: return (double)args[0]->count;
    case SGLIR_OP_WINDOWS_ADD: return (double)args[0]->count / results;
    case SGLIR_OP_CONV:
    case SGLIR_OP_CONV_INPUT_GRAD:
    case SGLIR_OP_CONV_WEIGHT_GRAD: return (double)(args[0]->count + args[1]->count) / results;
    case SGLIR_OP_ATTENTION:
    case SGLIR_OP_ATTENTION_GRAD: return last_of(args[0]) + (double)args[1]->dims[1];
    default: return 1;
    }
}

static double largest_in(const interp_tensor *t)
{
    double largest = 0;
    for (int64_t i = 0; i < t->count; i++) {
        double value = fabs(interp_get(t, i));
        if (isfinite(value)) largest = fmax(largest, value);
    }
    return largest;
}

/* How large one of these numbers may be. */
static double largest_term(const interp_call *call)
{
    const interp_tensor *const *args = call->args;
    switch (call->node->op) {
    case SGLIR_OP_DOT:
    case SGLIR_OP_MATMUL:
    case SGLIR_OP_LINEAR:
    case SGLIR_OP_CONV:
    case SGLIR_OP_CONV_INPUT_GRAD:
    case SGLIR_OP_CONV_WEIGHT_GRAD: return largest_in(args[0]) * largest_in(args[1]);
    case SGLIR_OP_ADD_ALONG:
    case SGLIR_OP_SCATTER_ADD:
    case SGLIR_OP_RECURRENCE: return largest_in(args[1]);
    case SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD:
        return largest_in(args[3]) * fmax(largest_in(args[0]), largest_in(args[1]));
    default: return largest_in(args[0]);
    }
}

/* Two units up or down. A sum whose terms cancel is off by units of these, and a long one of numbers alike, which is rounded the
 * same way at each step, by a part of their count. */
void interp_disturb(const interp_call *call, uint32_t k)
{
    interp *in = call->in;
    interp_tensor *t = &call->results[k];
    if (in->noise == 0 || t->floats == NULL || (in->exact != NULL && in->exact[call->node->op])) return;
    double epsilon = interp_epsilon(in->fine ? SGL_F64 : t->dtype), terms = terms_of(call, k);
    double stray = terms > LONG_SUM ? terms / 16 : 0, largest = terms > 1 ? largest_term(call) : 0;
    for (int64_t i = 0; i < t->count; i++) {
        if (i == 0 || !in->alike) in->noise = in->noise * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value = t->floats[i], move = epsilon * (2 * fabs(value) + largest + stray * (fabs(value) + largest));
        t->floats[i] += in->noise >> 63 ? move : -move;
    }
}
