/* simplify_fold.c -- arithmetic on known numbers, as a device would do it.
 *
 * In: an op, dtypes, numbers. Out: a number. Only what IEEE 754 rounds in one way is folded (+ - * / sqrt, comparisons,
 * casts) and what is exact; exp and its kin differ by the last bit from library to library, so they stay. Odd invariant:
 * a constant holds a double, so integers are folded up to 2^53 and no further. */
#include <math.h>

#include "passes/simplify_rules.h"

#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */

/* ---- dtypes ----------------------------------------------------------------------------------------------------- */

/* The number that a constant of the dtype is: rounded, or truncated. False for narrow floats, and out of range. */
static bool as_dtype(sgl_dtype dtype, double x, double *out)
{
    double low = 0, high = 0;
    switch (dtype) {
    case SGL_F64: *out = x; return isfinite(x);
    case SGL_F32: *out = (double)(float)x; return isfinite(*out);
    case SGL_BOOL: *out = x != 0; return !isnan(x);
    case SGL_I64: low = -LARGEST_EXACT, high = LARGEST_EXACT; break;
    case SGL_I32: low = INT32_MIN, high = INT32_MAX; break;
    case SGL_I16: low = INT16_MIN, high = INT16_MAX; break;
    case SGL_I8: low = INT8_MIN, high = INT8_MAX; break;
    case SGL_U8: high = UINT8_MAX; break;
    case SGL_U16: high = UINT16_MAX; break;
    case SGL_U32: high = UINT32_MAX; break;
    default: return false;
    }
    *out = trunc(x) + 0.0; /* no minus zero among integers */
    return *out >= low && *out <= high;
}

/* ---- the ops ---------------------------------------------------------------------------------------------------- */

/* f32 goes through f64 too: for these ops, of two floats, rounding twice gives what rounding once does (Figueroa, "When is
 * double rounding innocuous?", SIGNUM 1995). */
static bool fold_float(sglir_op op, double a, double b, double *out)
{
    double y;
    switch (op) {
    case SGLIR_OP_NEG: y = -a; break;
    case SGLIR_OP_ABS: y = fabs(a); break;
    case SGLIR_OP_SQRT: y = sqrt(a); break;
    case SGLIR_OP_RECIPROCAL: y = 1.0 / a; break;
    case SGLIR_OP_FLOOR: y = floor(a); break;
    case SGLIR_OP_ADD: y = a + b; break;
    case SGLIR_OP_SUB: y = a - b; break;
    case SGLIR_OP_MUL: y = a * b; break;
    case SGLIR_OP_DIV: y = a / b; break;
    case SGLIR_OP_MAXIMUM: y = a > b ? a : b; break;
    case SGLIR_OP_MINIMUM: y = a < b ? a : b; break;
    default: return false;
    }
    *out = y;
    return isfinite(y);
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

/* Whole numbers up to 2^53: a product may be larger, so it is looked at as a double first. */
static bool fold_int(sglir_op op, sgl_dtype dtype, double x, double y, double *out)
{
    int64_t a = (int64_t)x, b = (int64_t)y, z;
    switch (op) {
    case SGLIR_OP_NEG: z = -a; break;
    case SGLIR_OP_ABS: z = a < 0 ? -a : a; break;
    case SGLIR_OP_ADD: z = a + b; break;
    case SGLIR_OP_SUB: z = a - b; break;
    case SGLIR_OP_MUL:
        if (fabs(x * y) > LARGEST_EXACT) return false;
        z = a * b;
        break;
    case SGLIR_OP_DIV: z = floor_quotient(a, b); break;
    case SGLIR_OP_REMAINDER: z = b == 0 ? 0 : a - b * floor_quotient(a, b); break;
    case SGLIR_OP_MAXIMUM: z = a > b ? a : b; break;
    case SGLIR_OP_MINIMUM: z = a < b ? a : b; break;
    default: return false;
    }
    return as_dtype(dtype, (double)z, out);
}

static bool fold_test(sglir_op op, double a, double b, double *out)
{
    switch (op) {
    case SGLIR_OP_EQUAL: *out = a == b; return true;
    case SGLIR_OP_NOT_EQUAL: *out = a != b; return true;
    case SGLIR_OP_LESS: *out = a < b; return true;
    case SGLIR_OP_LESS_EQUAL: *out = a <= b; return true;
    case SGLIR_OP_AND: *out = a != 0 && b != 0; return true;
    case SGLIR_OP_OR: *out = a != 0 || b != 0; return true;
    case SGLIR_OP_NOT: *out = a == 0; return true;
    case SGLIR_OP_IS_FINITE: *out = 1; return true; /* as_dtype let no other through */
    default: return false;
    }
}

static int arguments_of(sglir_op op) { return sglir_ops[op].maximum; }

bool sglpass_simplify_fold(sglir_op op, sgl_dtype from, sgl_dtype result, const double *args, double *out)
{
    double a, b = 0;
    if (arguments_of(op) < 1 || arguments_of(op) > 2 || !as_dtype(from, args[0], &a)) return false;
    if (arguments_of(op) == 2 && !as_dtype(from, args[1], &b)) return false;
    if (op == SGLIR_OP_CAST) return as_dtype(result, a, out);
    if (fold_test(op, a, b, out)) return true;
    if (from != result || from == SGL_BOOL) return false;
    if (from == SGL_F32) return fold_float(op, a, b, out) && isfinite(*out = (float)*out);
    if (from == SGL_F64) return fold_float(op, a, b, out);
    return fold_int(op, from, a, b, out);
}
