/* interp_elementwise.c -- the interpreter's ops of one element at a time. In: arguments of one shape. Out: results. */
#include "interp_inside.h"

#include <math.h>

double interp_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* ---- floats ------------------------------------------------------------------------------------------------- */

static const double pi = 3.14159265358979323846;

static double gelu(double x, bool exact)
{
    if (exact) return 0.5 * x * (1 + erf(x / sqrt(2)));
    return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool exact)
{
    if (exact) return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * pi);
    double t = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
}

static double larger(double a, double b) { return isnan(a) || isnan(b) ? NAN : a > b ? a : b; }
static double smaller(double a, double b) { return isnan(a) || isnan(b) ? NAN : a < b ? a : b; }

static bool float_op(sglir_op op, bool exact, double a, double b, double *out)
{
    switch (op) {
    case SGLIR_OP_NEG: *out = -a; return true;
    case SGLIR_OP_ABS: *out = fabs(a); return true;
    case SGLIR_OP_SIGN: *out = isnan(a) ? NAN : (a > 0) - (a < 0); return true;
    case SGLIR_OP_EXP: *out = exp(a); return true;
    case SGLIR_OP_LOG: *out = log(a); return true;
    case SGLIR_OP_SQRT: *out = sqrt(a); return true;
    case SGLIR_OP_RSQRT: *out = 1 / sqrt(a); return true;
    case SGLIR_OP_RECIPROCAL: *out = 1 / a; return true;
    case SGLIR_OP_SIN: *out = sin(a); return true;
    case SGLIR_OP_COS: *out = cos(a); return true;
    case SGLIR_OP_TANH: *out = tanh(a); return true;
    case SGLIR_OP_ERF: *out = erf(a); return true;
    case SGLIR_OP_SIGMOID: *out = interp_sigmoid(a); return true;
    case SGLIR_OP_FLOOR: *out = floor(a); return true;
    case SGLIR_OP_ROUND: *out = nearbyint(a); return true;
    case SGLIR_OP_EXPM1: *out = expm1(a); return true;
    case SGLIR_OP_LOG1P: *out = log1p(a); return true;
    case SGLIR_OP_SILU: *out = a * interp_sigmoid(a); return true;
    case SGLIR_OP_SILU_GRAD: *out = b * interp_sigmoid(a) * (1 + a * (1 - interp_sigmoid(a))); return true;
    case SGLIR_OP_GELU: *out = gelu(a, exact); return true;
    case SGLIR_OP_GELU_GRAD: *out = b * gelu_slope(a, exact); return true;
    case SGLIR_OP_ADD:
    case SGLIR_OP_ACCUMULATE: *out = a + b; return true;
    case SGLIR_OP_SUB: *out = a - b; return true;
    case SGLIR_OP_MUL: *out = a * b; return true;
    case SGLIR_OP_DIV: *out = a / b; return true;
    case SGLIR_OP_REMAINDER: *out = a - b * floor(a / b); return true;
    case SGLIR_OP_POW: *out = pow(a, b); return true;
    case SGLIR_OP_MAXIMUM: *out = larger(a, b); return true;
    case SGLIR_OP_MINIMUM: *out = smaller(a, b); return true;
    default: return false;
    }
}

/* ---- integers ----------------------------------------------------------------------------------------------- */

/* The floor of the quotient; 0 where b is 0. Sums and products wrap, as unsigned ones do. */
static int64_t floor_div(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Bits of a dtype of that many, whether with a sign; amounts outside of 0..bits-1 move all bits out. The result's high
 * bits are cut off by the caller. */
static int64_t shifted(sglir_op op, int64_t a, int64_t amount, int bits)
{
    bool all = amount < 0 || amount >= bits;
    if (op == SGLIR_OP_SHIFT_LEFT) return all ? 0 : (int64_t)((uint64_t)a << amount);
    if (all) return a < 0 ? -1 : 0;
    return a < 0 ? ~(~a >> amount) : a >> amount; /* what is held is extended by its sign already */
}

static bool int_op(sglir_op op, int64_t a, int64_t b, int64_t *out)
{
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case SGLIR_OP_NEG: *out = (int64_t)(0 - x); return true;
    case SGLIR_OP_ABS: *out = a < 0 ? (int64_t)(0 - x) : a; return true;
    case SGLIR_OP_SIGN: *out = (a > 0) - (a < 0); return true;
    case SGLIR_OP_ADD:
    case SGLIR_OP_ACCUMULATE: *out = (int64_t)(x + y); return true;
    case SGLIR_OP_SUB: *out = (int64_t)(x - y); return true;
    case SGLIR_OP_MUL: *out = (int64_t)(x * y); return true;
    case SGLIR_OP_DIV: *out = floor_div(a, b); return true;
    case SGLIR_OP_REMAINDER: *out = b == 0 ? 0 : (int64_t)(x - y * (uint64_t)floor_div(a, b)); return true;
    case SGLIR_OP_MAXIMUM: *out = a > b ? a : b; return true;
    case SGLIR_OP_MINIMUM: *out = a < b ? a : b; return true;
    case SGLIR_OP_BIT_NOT: *out = ~a; return true;
    case SGLIR_OP_BIT_AND: *out = a & b; return true;
    case SGLIR_OP_BIT_OR: *out = a | b; return true;
    case SGLIR_OP_BIT_XOR: *out = a ^ b; return true;
    case SGLIR_OP_NOT: *out = a == 0; return true;
    case SGLIR_OP_AND: *out = a != 0 && b != 0; return true;
    case SGLIR_OP_OR: *out = a != 0 || b != 0; return true;
    default: return false;
    }
}

/* ---- comparisons, and what moves values through ------------------------------------------------------------- */

static bool compare_op(sglir_op op, const interp_tensor *a, const interp_tensor *b, int64_t i, int64_t *out)
{
    bool equal, less;
    if (op == SGLIR_OP_IS_FINITE) {
        *out = a->floats == NULL || isfinite(a->floats[i]);
        return true;
    }
    if (b == NULL) return false;
    if (a->floats != NULL) {
        equal = a->floats[i] == b->floats[i];
        less = a->floats[i] < b->floats[i];
    } else {
        equal = a->ints[i] == b->ints[i];
        less = a->ints[i] < b->ints[i];
    }
    switch (op) {
    case SGLIR_OP_EQUAL: *out = equal; return true;
    case SGLIR_OP_NOT_EQUAL: *out = !equal; return true;
    case SGLIR_OP_LESS: *out = less; return true;
    case SGLIR_OP_LESS_EQUAL: *out = less || equal; return true;
    default: return false;
    }
}

static bool one_element(const interp_call *call, sglir_op op, bool exact, int64_t i)
{
    const interp_tensor *a = call->args[0], *b = call->node->arg_count > 1 ? call->args[1] : NULL;
    interp_tensor *out = &call->results[0];
    if (op == SGLIR_OP_CAST || op == SGLIR_OP_STOP_GRADIENT || op == SGLIR_OP_LAID_OUT || op == SGLIR_OP_COPY ||
        op == SGLIR_OP_AFTER || sglir_is_wait(op) || sglir_is_move(op) || op == SGLIR_OP_TERMS ||
        op == SGLIR_OP_DECLARE) {
        if (i < a->count) interp_move(out, i, a, i); /* the first of `terms` has all, the others are zeros */
        return true;
    }
    if (op == SGLIR_OP_SELECT) {
        interp_move(out, i, a->ints[i] != 0 ? call->args[1] : call->args[2], i);
        return true;
    }
    if (op == SGLIR_OP_SHIFT_LEFT || op == SGLIR_OP_SHIFT_RIGHT) {
        out->ints[i] = shifted(op, a->ints[i], b->ints[i], sglcore_dtype_bits(a->dtype));
        return true;
    }
    if (op == SGLIR_OP_BIT_NOT && out->dtype == SGL_BOOL) {
        out->ints[i] = a->ints[i] == 0;
        return true;
    }
    int64_t truth;
    if (out->dtype == SGL_BOOL && compare_op(op, a, b, i, &truth)) {
        out->ints[i] = truth;
        return true;
    }
    if (out->floats != NULL) return float_op(op, exact, a->floats[i], b != NULL ? b->floats[i] : 0, &out->floats[i]);
    return int_op(op, a->ints[i], b != NULL ? b->ints[i] : 0, &out->ints[i]);
}

/* Bounds beyond what integers hold bound nothing. */
static void clamp(const interp_call *call)
{
    double low = interp_float(call, "minimum"), high = interp_float(call, "maximum");
    for (int64_t i = 0; i < call->results[0].count; i++) {
        double x = interp_get(call->args[0], i);
        interp_move(&call->results[0], i, call->args[0], i);
        if (x < low) interp_set(&call->results[0], i, low);
        if (x > high) interp_set(&call->results[0], i, high);
    }
}

bool interp_elementwise(const interp_call *call)
{
    sglir_op op = (sglir_op)call->node->op;
    if (!(sglir_ops[op].flags & SGLIR_ELEMENTWISE) && op != SGLIR_OP_COPY && op != SGLIR_OP_AFTER &&
        !sglir_is_wait(op) && !sglir_is_move(op) && op != SGLIR_OP_TERMS && op != SGLIR_OP_DECLARE)
        return false;
    if (op == SGLIR_OP_CLAMP) {
        clamp(call);
        return true;
    }
    bool exact = (op == SGLIR_OP_GELU || op == SGLIR_OP_GELU_GRAD) && interp_int(call, "exact") != 0;
    for (int64_t i = 0; i < call->results[0].count; i++) {
        if (!one_element(call, op, exact, i)) return false;
    }
    return true;
}
