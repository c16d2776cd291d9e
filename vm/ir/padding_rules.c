/* padding_rules.c -- what padding becomes in one node: elementwise ops, and whatever its labels tell (labels.c).
 *
 * In: the states of a node's arguments. Out: those of its results. What runs over padding, or mixes rows whose padding is
 * in different places, is exact only where a neutral number stands there: 0 in a sum or product, -inf in a maximum.
 * Odd invariant: the number that stands in padding is known for every value of the parameters, so its derivative in them
 * is 0, and what is exact in the forward is exact in the gradients too; 0 * x counts as 0, which it is of finite x. */
#include <math.h>
#include <string.h>

#include "ir/infer.h"
#include "ir/padding.h"

static const char *const how_to_mask =
    "put a number there that changes nothing, as in sgl.select(seq:mask(), x, 0) before a sum";

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/* A number that may be known. */
typedef struct number {
    bool known;
    double value;
} number;

static const number unknown = { .known = false };
static number known(double value) { return (number){ .known = true, .value = value }; }
static bool is_zero(number a) { return a.known && a.value == 0; }

static double unary(sglir_op op, double a, bool *has)
{
    switch (op) {
    case SGLIR_OP_NEG: return -a;
    case SGLIR_OP_ABS: return fabs(a);
    case SGLIR_OP_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    case SGLIR_OP_EXP: return exp(a);
    case SGLIR_OP_EXPM1: return expm1(a);
    case SGLIR_OP_LOG1P: return log1p(a);
    case SGLIR_OP_SQRT: return sqrt(a);
    case SGLIR_OP_SIN: return sin(a);
    case SGLIR_OP_TANH: return tanh(a);
    case SGLIR_OP_ERF: return erf(a);
    case SGLIR_OP_FLOOR: return floor(a);
    case SGLIR_OP_ROUND: return nearbyint(a);
    case SGLIR_OP_NOT: return a == 0;
    case SGLIR_OP_IS_FINITE: return isfinite(a) != 0;
    case SGLIR_OP_SILU:
    case SGLIR_OP_GELU: *has = a == 0; return 0;
    case SGLIR_OP_STOP_GRADIENT:
    case SGLIR_OP_LAID_OUT:
    case SGLIR_OP_COPY: return a;
    default: *has = false; return 0;
    }
}

static double binary(sglir_op op, double a, double b, bool *has)
{
    switch (op) {
    case SGLIR_OP_ADD: return a + b;
    case SGLIR_OP_SUB: return a - b;
    case SGLIR_OP_MUL: return a * b;
    case SGLIR_OP_MAXIMUM: return a > b ? a : b;
    case SGLIR_OP_MINIMUM: return a < b ? a : b;
    case SGLIR_OP_EQUAL: return a == b;
    case SGLIR_OP_NOT_EQUAL: return a != b;
    case SGLIR_OP_LESS: return a < b;
    case SGLIR_OP_LESS_EQUAL: return a <= b;
    case SGLIR_OP_AND: return a != 0 && b != 0;
    case SGLIR_OP_OR: return a != 0 || b != 0;
    default: *has = false; return 0;
    }
}

static bool is_float(const sglir_type *type) { return type->dtype <= SGL_F8E5M2; }

static number cast(const sglir_type *to, double a)
{
    if (to->dtype == SGL_BOOL) return known(a != 0);
    if (!is_float(to)) a = trunc(a);
    return isnan(a) ? unknown : known(a);
}

/* What is known however the others turn out. */
static number absorbed(const sglir_padding_view *v, const number *args)
{
    switch ((sglir_op)v->node->op) {
    case SGLIR_OP_MUL:
    case SGLIR_OP_AND: return is_zero(args[0]) || is_zero(args[1]) ? known(0) : unknown;
    case SGLIR_OP_OR:
        return (args[0].known && args[0].value != 0) || (args[1].known && args[1].value != 0) ? known(1) : unknown;
    case SGLIR_OP_DIV: return is_zero(args[0]) && !is_zero(args[1]) ? known(0) : unknown;
    case SGLIR_OP_SELECT:
        if (args[0].known) return args[args[0].value != 0 ? 1 : 2];
        return args[1].known && args[2].known && args[1].value == args[2].value ? args[1] : unknown;
    case SGLIR_OP_SILU_GRAD:
    case SGLIR_OP_GELU_GRAD: return is_zero(args[1]) ? known(0) : unknown;
    default: return unknown;
    }
}

static number evaluate(const sglir_padding_view *v, const number *args)
{
    number made = absorbed(v, args);
    if (made.known) return made;
    bool has = true;
    double value = 0;
    for (uint32_t i = 0; i < v->node->arg_count; i++) has = has && args[i].known;
    if (!has) return unknown;
    if (v->node->op == SGLIR_OP_CAST) return cast(sglir_type_of(v->g, v->node->out_first), args[0].value);
    if (v->node->arg_count == 1)
        value = unary((sglir_op)v->node->op, args[0].value, &has);
    else if (v->node->arg_count == 2)
        value = binary((sglir_op)v->node->op, args[0].value, args[1].value, &has);
    else
        has = false;
    return has && !isnan(value) ? known(value) : unknown;
}

/* ---- elementwise -------------------------------------------------------------------------------------------------- */

/* What stands in argument i where the result has padding along `axis`: what is in its own padding, if the rows are the same,
 * or one number throughout. */
static number content_of(const sglir_padding_view *v, uint32_t i, int axis, const sglir_padding_state *made)
{
    const sglir_padding_state *arg = sglir_padding_arg(v, i);
    const sglir_padding_axis *at = &arg->axes[axis];
    double value;
    if (arg->turn) return unknown;
    if (at->padded)
        return at->content == SGLIR_PADDING_KNOWN && sglir_padding_same_rows(arg, made) ? known(at->value) : unknown;
    return sglir_constant_value(v->g, sglir_arg(v->g, v->node, i), &value) ? known(value) : unknown;
}

/* Where the turn is padding: the argument that a select takes there, or a copy's, may be what the loop has carried. */
static void carry_on(const sglir_padding_view *v, const number *args, sglir_padding_axis *step)
{
    uint32_t from = 0;
    if (v->node->op == SGLIR_OP_SELECT) {
        if (!args[0].known) return;
        from = args[0].value != 0 ? 1 : 2;
    } else if (v->node->op != SGLIR_OP_STOP_GRADIENT && v->node->op != SGLIR_OP_LAID_OUT) {
        return;
    }
    const sglir_padding_axis *taken = &sglir_padding_arg(v, from)->axes[SGLIR_PADDING_STEP];
    if (!taken->padded || taken->content != SGLIR_PADDING_CARRIED) return;
    step->content = SGLIR_PADDING_CARRIED;
    step->carried = taken->carried;
}

static bool join_arguments(const sglir_padding_view *v, sglir_padding_state *made)
{
    sglir_padding_axis step = sglir_padding_plain_axis(v->p, v->dim);
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        const sglir_padding_state *arg = sglir_padding_arg(v, i);
        for (int a = 0; a < SGLIR_PADDING_AXES; a++)
            if (!sglir_padding_join_axis(&made->axes[a], &arg->axes[a])) return false;
        if (arg->turn && !sglir_padding_join_axis(&made->axes[SGLIR_PADDING_STEP], &step)) return false;
    }
    return true;
}

static void elementwise(sglir_padding_view *v)
{
    sglir_padding_state made = sglir_padding_none;
    if (!join_arguments(v, &made)) {
        sglir_padding_spoil(v, "its arguments have it in different places of one dimension");
        return;
    }
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        sglir_padding_axis *axis = &made.axes[a];
        number args[3] = { unknown, unknown, unknown };
        if (!axis->padded) continue;
        for (uint32_t i = 0; i < v->node->arg_count; i++) args[i] = content_of(v, i, a, &made);
        number content = evaluate(v, args);
        axis->content = content.known ? SGLIR_PADDING_KNOWN : SGLIR_PADDING_ANY;
        axis->value = content.value;
        if (!content.known && a == SGLIR_PADDING_STEP) carry_on(v, args, axis);
    }
    sglir_padding_result(v, 0, &made);
}

/* ---- by labels ------------------------------------------------------------------------------------------------------ */

enum { LABELS = 32 };

typedef struct label_state {
    sglir_padding_axis axis; /* joined over the arguments */
    uint32_t rows;           /* bit per label: rows of the arguments that are padded here */
    bool neutral;            /* one with all these rows has the neutral number at its padding */
    bool in_result;
} label_state;

/* How the content of padding comes through an op along dimensions that run through it. */
typedef enum passing {
    PASSES_NOTHING,
    PASSES_ALL, /* the same numbers elsewhere, or the extreme of them */
    PASSES_ZERO /* 0 stays 0, where an argument is 0 */
} passing;

static passing passing_of(const sglir_padding_view *v)
{
    switch ((sglir_op)v->node->op) {
    case SGLIR_OP_TRANSPOSE:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_FLIP:
    case SGLIR_OP_SLICE:
    case SGLIR_OP_REDUCE_MAX:
    case SGLIR_OP_REDUCE_MIN: return PASSES_ALL;
    case SGLIR_OP_LINEAR: return v->node->arg_count == 3 ? PASSES_NOTHING : PASSES_ZERO;
    case SGLIR_OP_DOT:
    case SGLIR_OP_MATMUL:
    case SGLIR_OP_REDUCE_SUM:
    case SGLIR_OP_MEAN:
    case SGLIR_OP_RMS_NORM: return PASSES_ZERO;
    default: return PASSES_NOTHING;
    }
}

static double lowest(const sglir_type *type)
{
    switch ((sgl_dtype)type->dtype) {
    case SGL_I64: return (double)INT64_MIN;
    case SGL_I32: return INT32_MIN;
    case SGL_I16: return INT16_MIN;
    case SGL_I8: return INT8_MIN;
    case SGL_U8:
    case SGL_U16:
    case SGL_U32:
    case SGL_BOOL: return 0;
    default: return -INFINITY;
    }
}

static double highest(const sglir_type *type)
{
    switch ((sgl_dtype)type->dtype) {
    case SGL_I64: return (double)INT64_MAX;
    case SGL_I32: return INT32_MAX;
    case SGL_I16: return INT16_MAX;
    case SGL_I8: return INT8_MAX;
    case SGL_U8: return UINT8_MAX;
    case SGL_U16: return UINT16_MAX;
    case SGL_U32: return UINT32_MAX;
    case SGL_BOOL: return 1;
    default: return INFINITY;
    }
}

/* The number that changes nothing where the op runs over it; NaN: there is none. */
static double neutral_of(const sglir_padding_view *v)
{
    const sglir_type *x = v->node->arg_count > 0 ? sglir_padding_arg_type(v, 0) : NULL;
    switch ((sglir_op)v->node->op) {
    case SGLIR_OP_REDUCE_SUM:
    case SGLIR_OP_DOT:
    case SGLIR_OP_MATMUL:
    case SGLIR_OP_LINEAR: return 0;
    case SGLIR_OP_REDUCE_PROD: return 1;
    case SGLIR_OP_REDUCE_MAX:
    case SGLIR_OP_ARGMAX: return lowest(x);
    case SGLIR_OP_REDUCE_MIN:
    case SGLIR_OP_ARGMIN: return highest(x);
    case SGLIR_OP_LOGSUMEXP:
    case SGLIR_OP_SOFTMAX: return -INFINITY;
    default: return NAN;
    }
}

static bool holds_neutral(const sglir_padding_axis *axis, double neutral)
{
    if (axis->content != SGLIR_PADDING_KNOWN) return false;
    return axis->value == neutral || (neutral == -INFINITY && axis->value <= -1e30) ||
           (neutral == INFINITY && axis->value >= 1e30);
}

static int label_of(const sglir_labels *l, uint32_t i, int axis)
{
    return axis == SGLIR_PADDING_STEP ? LABELS - 1 : l->args[i][axis];
}

static uint32_t row_labels(const sglir_padding_view *v, const sglir_labels *l, uint32_t i)
{
    uint32_t rows = 0;
    for (int a = 0; a < SGL_MAX_RANK; a++)
        if (sglir_padding_arg(v, i)->axes[a].rows && l->args[i][a] >= 0) rows |= 1u << l->args[i][a];
    return rows;
}

static bool gather_labels(const sglir_padding_view *v, const sglir_labels *l, label_state *labels)
{
    double neutral = neutral_of(v);
    memset(labels, 0, LABELS * sizeof *labels);
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        const sglir_padding_state *arg = sglir_padding_arg(v, i);
        for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
            if (!arg->axes[a].padded && !arg->axes[a].rows) continue;
            int at = label_of(l, i, a);
            if (at < 0 || !sglir_padding_join_axis(&labels[at].axis, &arg->axes[a])) return false;
            if (arg->axes[a].padded) labels[at].rows |= row_labels(v, l, i);
        }
    }
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        const sglir_padding_state *arg = sglir_padding_arg(v, i);
        for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
            if (!arg->axes[a].padded || !holds_neutral(&arg->axes[a], neutral)) continue;
            label_state *label = &labels[label_of(l, i, a)];
            label->neutral = label->neutral || label->rows == row_labels(v, l, i);
        }
    }
    labels[LABELS - 1].in_result = true;
    for (uint32_t r = 0; r < v->node->out_count && r < 8; r++)
        for (int a = 0; a < sglir_type_of(v->g, v->node->out_first + r)->rank; a++)
            if (l->results[r][a] >= 0) labels[l->results[r][a]].in_result = true;
    return true;
}

/* Whether the op runs over the label's dimension, so that its entries come together. */
static bool runs_over(const sglir_labels *l, const label_state *labels, int at)
{
    return at != LABELS - 1 && (!labels[at].in_result || (l->summed | l->refused) >> at & 1);
}

static bool is_exact(const sglir_labels *l, const label_state *labels, bool *mixed)
{
    bool mixes_rows = false;
    for (int at = 0; at < LABELS - 1; at++) {
        if (!runs_over(l, labels, at)) continue;
        if (labels[at].axis.padded && !labels[at].neutral) return false;
        mixes_rows = mixes_rows || labels[at].axis.rows;
    }
    for (int at = 0; at < LABELS && mixes_rows; at++)
        if (labels[at].axis.padded && !labels[at].neutral) return false;
    *mixed = mixes_rows;
    return true;
}

static void set_content(const sglir_padding_view *v, const label_state *label, sglir_padding_axis *axis)
{
    const sglir_padding_axis *given = &label->axis;
    passing how = passing_of(v);
    *axis = *given;
    axis->content = SGLIR_PADDING_ANY;
    bool zero = label->neutral && neutral_of(v) == 0;
    if (how == PASSES_ZERO && (zero || sglir_padding_holds(given, 0))) {
        axis->content = SGLIR_PADDING_KNOWN;
        axis->value = 0;
    } else if (how == PASSES_ALL && given->content == SGLIR_PADDING_KNOWN) {
        axis->content = SGLIR_PADDING_KNOWN;
    }
}

static void by_labels(sglir_padding_view *v)
{
    sglir_labels l;
    label_state labels[LABELS];
    bool mixed = false;
    if (!sglir_labels_of(v->g, v->node, &l) || l.count >= LABELS || !gather_labels(v, &l, labels)) {
        sglir_padding_spoil(v, "this op is not known to leave it alone");
        return;
    }
    if (!is_exact(&l, labels, &mixed)) {
        sglir_padding_spoil(
            v, v->node->op == SGLIR_OP_MEAN
                   ? "a mean divides by all entries; sum what is masked, and divide by the dim's :lengths()"
                   : how_to_mask);
        return;
    }
    for (uint32_t r = 0; r < v->node->out_count && r < 8; r++) {
        sglir_padding_state made = sglir_padding_none;
        for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
            bool step = a == SGLIR_PADDING_STEP;
            if (!step && a >= sglir_type_of(v->g, v->node->out_first + r)->rank) continue;
            int at = step ? LABELS - 1 : l.results[r][a];
            if (at < 0 || !(labels[at].axis.padded || labels[at].axis.rows)) continue;
            set_content(v, &labels[at], &made.axes[a]);
            if (mixed) made.axes[a].group = v->id + 2; /* beyond the longest of rows that are no more told apart */
            if (v->node->op == SGLIR_OP_SOFTMAX && a == sglir_padding_arg_type(v, 0)->rank - 1) {
                made.axes[a].content = SGLIR_PADDING_KNOWN; /* e^-inf */
                made.axes[a].value = 0;
            }
        }
        sglir_padding_result(v, r, &made);
    }
}

/* ---- the rule --------------------------------------------------------------------------------------------------------- */

/* An argument that is spoilt spoils the results; true where that was so. */
static bool pass_spoilt(sglir_padding_view *v)
{
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        const sglir_padding_state *arg = sglir_padding_arg(v, i);
        if (arg->spoilt == SGLIR_NONE) continue;
        sglir_padding_state state = sglir_padding_none;
        state.spoilt = arg->spoilt;
        state.why = arg->why;
        for (uint32_t r = 0; r < v->node->out_count; r++) sglir_padding_result(v, r, &state);
        return true;
    }
    return false;
}

static bool is_touched(const sglir_padding_view *v)
{
    for (uint32_t i = 0; i < v->node->arg_count; i++)
        if (sglir_padding_arg(v, i) != &sglir_padding_none) return true;
    return sglir_is_control(v->node);
}

void sglir_padding_rule(sglir_padding_view *v)
{
    if (!is_touched(v) || pass_spoilt(v) || sglir_padding_own_rule(v)) return;
    if (sglir_ops[v->node->op].flags & SGLIR_ELEMENTWISE)
        elementwise(v);
    else
        by_labels(v);
}
