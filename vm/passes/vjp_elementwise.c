/* vjp_elementwise.c -- derivatives of the elementwise ops: y = f(x) gives dx = dy * f'(x), element by element.
 *
 * The arguments of an elementwise op already have its result's shape and dtype, so a gradient never needs a sum here:
 * broadcasting is a node of its own. Where f' is cheaper from the result than from the argument, the result is used. Odd
 * invariant: of the arguments of one call at most one emits, because C leaves open which of two would come first, and the
 * graph must be the same whatever compiled it. */
#include "passes/vjp_rules.h"

#define TWO_OVER_SQRT_PI 1.12837916709551257390

static sgl_dtype dtype_of(const sglpass_vjp *v, sglir_id value) { return (sgl_dtype)sglir_type_of(v->g, value)->dtype; }

static sglir_id number(const sglpass_vjp *v, double value)
{
    return sglir_constant(v->g, dtype_of(v, sglpass_vjp_arg(v, 0)), value);
}

static sglir_id square(const sglpass_vjp *v, sglir_id x) { return sglir_mul(v->g, x, x); }

/* ---- one argument ---- */

/* In the dtype of x: where that is the wider one, what gives dy is asked for it unrounded. */
void sglpass_vjp_cast(const sglpass_vjp *v)
{
    v->into[0] = sglpass_vjp_widened(v->g, v->dys[0], dtype_of(v, sglpass_vjp_arg(v, 0)));
}

/* The scale of the loss stays on its gradient: dy * s, which owes s from here on. */
void sglpass_vjp_scale(const sglpass_vjp *v)
{
    const sglir_id args[2] = { v->dys[0], sglpass_vjp_arg(v, 1) };
    v->into[0] = sglir_emit(v->g, SGLIR_OP_SCALE, args, 2, NULL, 0, NULL);
}

/* The gradient is laid out as the value is. */
void sglpass_vjp_laid_out(const sglpass_vjp *v)
{
    sglir_named attrs[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(v->g, sglir_node_at(v->g, v->node), attrs);
    v->into[0] = sglir_emit(v->g, SGLIR_OP_LAID_OUT, &v->dys[0], 1, attrs, count, NULL);
}

void sglpass_vjp_neg(const sglpass_vjp *v) { v->into[0] = sglir_unary(v->g, SGLIR_OP_NEG, v->dys[0]); }

/* dy * sign(x); 0 at 0 */
void sglpass_vjp_abs(const sglpass_vjp *v)
{
    v->into[0] = sglir_mul(v->g, v->dys[0], sglir_unary(v->g, SGLIR_OP_SIGN, sglpass_vjp_arg(v, 0)));
}

void sglpass_vjp_exp(const sglpass_vjp *v) { v->into[0] = sglir_mul(v->g, v->dys[0], sglpass_vjp_result(v, 0)); }

void sglpass_vjp_log(const sglpass_vjp *v) { v->into[0] = sglir_div(v->g, v->dys[0], sglpass_vjp_arg(v, 0)); }

/* dy / (1 + x) */
void sglpass_vjp_log1p(const sglpass_vjp *v)
{
    sglir_id shifted = sglir_add(v->g, sglpass_vjp_arg(v, 0), number(v, 1));
    v->into[0] = sglir_div(v->g, v->dys[0], shifted);
}

/* dy e^x = dy (y + 1) */
void sglpass_vjp_expm1(const sglpass_vjp *v)
{
    sglir_id power = sglir_add(v->g, sglpass_vjp_result(v, 0), number(v, 1));
    v->into[0] = sglir_mul(v->g, v->dys[0], power);
}

/* dy / (2 y) */
void sglpass_vjp_sqrt(const sglpass_vjp *v)
{
    v->into[0] = sglir_div(v->g, sglir_scale(v->g, v->dys[0], 0.5), sglpass_vjp_result(v, 0));
}

/* -dy y^3 / 2 */
void sglpass_vjp_rsqrt(const sglpass_vjp *v)
{
    sglir_id y = sglpass_vjp_result(v, 0);
    sglir_id cube = sglir_mul(v->g, square(v, y), y);
    v->into[0] = sglir_mul(v->g, sglir_scale(v->g, v->dys[0], -0.5), cube);
}

/* -dy y^2 */
void sglpass_vjp_reciprocal(const sglpass_vjp *v)
{
    sglir_id slope = square(v, sglpass_vjp_result(v, 0));
    v->into[0] = sglir_unary(v->g, SGLIR_OP_NEG, sglir_mul(v->g, v->dys[0], slope));
}

void sglpass_vjp_sin(const sglpass_vjp *v)
{
    v->into[0] = sglir_mul(v->g, v->dys[0], sglir_unary(v->g, SGLIR_OP_COS, sglpass_vjp_arg(v, 0)));
}

void sglpass_vjp_cos(const sglpass_vjp *v)
{
    sglir_id slope = sglir_unary(v->g, SGLIR_OP_SIN, sglpass_vjp_arg(v, 0));
    v->into[0] = sglir_unary(v->g, SGLIR_OP_NEG, sglir_mul(v->g, v->dys[0], slope));
}

/* dy (1 - y^2) */
void sglpass_vjp_tanh(const sglpass_vjp *v)
{
    sglir_id squared = square(v, sglpass_vjp_result(v, 0));
    sglir_id slope = sglir_sub(v->g, number(v, 1), squared);
    v->into[0] = sglir_mul(v->g, v->dys[0], slope);
}

/* dy 2/sqrt(pi) e^(-x^2) */
void sglpass_vjp_erf(const sglpass_vjp *v)
{
    sglir_id minus_square = sglir_unary(v->g, SGLIR_OP_NEG, square(v, sglpass_vjp_arg(v, 0)));
    sglir_id bell = sglir_unary(v->g, SGLIR_OP_EXP, minus_square);
    v->into[0] = sglir_mul(v->g, v->dys[0], sglir_scale(v->g, bell, TWO_OVER_SQRT_PI));
}

/* dy y (1 - y) */
void sglpass_vjp_sigmoid(const sglpass_vjp *v)
{
    sglir_id y = sglpass_vjp_result(v, 0);
    sglir_id slope = sglir_mul(v->g, y, sglir_sub(v->g, number(v, 1), y));
    v->into[0] = sglir_mul(v->g, v->dys[0], slope);
}

void sglpass_vjp_silu(const sglpass_vjp *v)
{
    sglir_id args[2] = { sglpass_vjp_arg(v, 0), v->dys[0] };
    sglir_emit(v->g, SGLIR_OP_SILU_GRAD, args, 2, NULL, 0, &v->into[0]);
}

void sglpass_vjp_gelu(const sglpass_vjp *v)
{
    sglir_id args[2] = { sglpass_vjp_arg(v, 0), v->dys[0] };
    sglir_named exact = SGLIR_I("exact", sglpass_vjp_int(v, "exact"));
    sglir_emit(v->g, SGLIR_OP_GELU_GRAD, args, 2, &exact, 1, &v->into[0]);
}

/* dy where minimum <= x <= maximum, the bounds included */
void sglpass_vjp_clamp(const sglpass_vjp *v)
{
    sglir_id x = sglpass_vjp_arg(v, 0), low = number(v, sglpass_vjp_float(v, "minimum"));
    sglir_id high = number(v, sglpass_vjp_float(v, "maximum")), zero = number(v, 0);
    sglir_id above = sglir_binary(v->g, SGLIR_OP_LESS_EQUAL, low, x);
    sglir_id below = sglir_binary(v->g, SGLIR_OP_LESS_EQUAL, x, high);
    v->into[0] = sglir_select(v->g, sglir_binary(v->g, SGLIR_OP_AND, above, below), v->dys[0], zero);
}

/* ---- two and three arguments ---- */

void sglpass_vjp_add(const sglpass_vjp *v) { v->into[0] = v->into[1] = v->dys[0]; }

void sglpass_vjp_sub(const sglpass_vjp *v)
{
    v->into[0] = v->dys[0];
    if (v->wanted[1]) v->into[1] = sglir_unary(v->g, SGLIR_OP_NEG, v->dys[0]);
}

void sglpass_vjp_mul(const sglpass_vjp *v)
{
    if (v->wanted[0]) v->into[0] = sglir_mul(v->g, v->dys[0], sglpass_vjp_arg(v, 1));
    if (v->wanted[1]) v->into[1] = sglir_mul(v->g, v->dys[0], sglpass_vjp_arg(v, 0));
}

/* y = a / b: da = dy / b, db = -da y */
void sglpass_vjp_div(const sglpass_vjp *v)
{
    sglir_id da = sglir_div(v->g, v->dys[0], sglpass_vjp_arg(v, 1));
    v->into[0] = da;
    if (v->wanted[1]) v->into[1] = sglir_unary(v->g, SGLIR_OP_NEG, sglir_mul(v->g, da, sglpass_vjp_result(v, 0)));
}

/* y = a - b floor(a / b), the floor held: da = dy, db = -dy floor(a / b) */
void sglpass_vjp_remainder(const sglpass_vjp *v)
{
    v->into[0] = v->dys[0];
    if (!v->wanted[1]) return;
    sglir_id ratio = sglir_div(v->g, sglpass_vjp_arg(v, 0), sglpass_vjp_arg(v, 1));
    sglir_id turns = sglir_unary(v->g, SGLIR_OP_FLOOR, ratio);
    v->into[1] = sglir_unary(v->g, SGLIR_OP_NEG, sglir_mul(v->g, v->dys[0], turns));
}

/* b a^(b - 1) for an exponent that is one known number. */
static sglir_id slope_of_power(const sglpass_vjp *v, sglir_id a, double exponent)
{
    if (exponent == 0) return sglir_constant_like(v->g, a, 0);
    if (exponent == 1) return sglir_constant_like(v->g, a, 1);
    if (exponent == 2) return sglir_scale(v->g, a, 2);
    sglir_id power = sglir_binary(v->g, SGLIR_OP_POW, a, number(v, exponent - 1));
    return sglir_scale(v->g, power, exponent);
}

/* y = a^b: da = dy b a^(b - 1), 0 where b is 0; db = dy y log(a), with log(a) taken as 0 where a is 0, as the limit of
 * a^b log(a) for b > 0 asks. */
void sglpass_vjp_pow(const sglpass_vjp *v)
{
    sglir_id a = sglpass_vjp_arg(v, 0), b = sglpass_vjp_arg(v, 1), zero = number(v, 0), one = number(v, 1);
    double exponent;
    if (v->wanted[0] && sglir_constant_value(v->g, b, &exponent)) {
        v->into[0] = sglir_mul(v->g, v->dys[0], slope_of_power(v, a, exponent));
    } else if (v->wanted[0]) {
        sglir_id power = sglir_binary(v->g, SGLIR_OP_POW, a, sglir_sub(v->g, b, one));
        sglir_id flat = sglir_binary(v->g, SGLIR_OP_EQUAL, b, zero);
        v->into[0] = sglir_mul(v->g, v->dys[0], sglir_select(v->g, flat, zero, sglir_mul(v->g, b, power)));
    }
    if (v->wanted[1]) {
        sglir_id at_zero = sglir_binary(v->g, SGLIR_OP_EQUAL, a, zero);
        sglir_id logarithm = sglir_unary(v->g, SGLIR_OP_LOG, sglir_select(v->g, at_zero, one, a));
        v->into[1] = sglir_mul(v->g, v->dys[0], sglir_mul(v->g, sglpass_vjp_result(v, 0), logarithm));
    }
}

/* The gradient goes to the argument that won, and by halves to both at a tie. */
static void choice(const sglpass_vjp *v, bool larger)
{
    sglir_id tie = sglir_binary(v->g, SGLIR_OP_EQUAL, sglpass_vjp_arg(v, 0), sglpass_vjp_arg(v, 1));
    sglir_id half = sglir_scale(v->g, v->dys[0], 0.5), zero = number(v, 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (!v->wanted[i]) continue;
        sglir_id mine = sglpass_vjp_arg(v, i), other = sglpass_vjp_arg(v, 1 - i);
        sglir_id wins =
            larger ? sglir_binary(v->g, SGLIR_OP_LESS, other, mine) : sglir_binary(v->g, SGLIR_OP_LESS, mine, other);
        sglir_id strict = sglir_select(v->g, wins, v->dys[0], zero);
        v->into[i] = sglir_select(v->g, tie, half, strict);
    }
}

void sglpass_vjp_maximum(const sglpass_vjp *v) { choice(v, true); }

void sglpass_vjp_minimum(const sglpass_vjp *v) { choice(v, false); }

void sglpass_vjp_select(const sglpass_vjp *v)
{
    sglir_id condition = sglpass_vjp_arg(v, 0);
    sglir_id zero = sglir_constant(v->g, dtype_of(v, v->dys[0]), 0);
    if (v->wanted[1]) v->into[1] = sglir_select(v->g, condition, v->dys[0], zero);
    if (v->wanted[2]) v->into[2] = sglir_select(v->g, condition, zero, v->dys[0]);
}
