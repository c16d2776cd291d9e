/* simplify_rules.c -- identities, each a line of algebra that changes no bit of a result.
 *
 * In: a node and its arguments in the new graph. Out: what may stand for it. A rule that rounds in another way is not
 * here: x * 0 of floats (x may be infinite), x * (1/c) for x / c, sums in another order. One liberty is taken: x + 0 is
 * x, though it would turn -0 into 0. Odd invariant: arguments are simplified already, so a rule looks one node back. */
#include <string.h>

#include "passes/simplify_rules.h"

/* What one call knows. */
typedef struct site {
    sglir_graph *g;
    const sglir_graph *from;
    const sglir_node *node; /* of `from` */
    const sglir_id *args;   /* in g */
    const sglir_type *type; /* of the result, in `from` */
} site;

static const sglir_type *type_of(const site *s, sglir_id value) { return sglir_type_of(s->g, value); }

/* The node in the new graph that makes the value, when it is of this op; else NULL. */
static const sglir_node *made_by(const site *s, sglir_id value, sglir_op op)
{
    const sglir_node *maker = sglir_maker(s->g, value);
    return maker != NULL && maker->op == op ? maker : NULL;
}

static bool is_number(const site *s, sglir_id value, double number)
{
    double found;
    return sglir_constant_value(s->g, value, &found) && found == number;
}

static bool same_shape(const site *s, sglir_id a, const sglir_type *type)
{
    return sglir_same_shape(sglir_type_of(s->g, a), type);
}

/* Split over no axis. A movement between two shapes says by its attribute layout how its own dimensions are split, so
 * movements of what is split are not taken together. */
static bool unsplit(const sglir_type *type)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] >= 0) return false;
    }
    return true;
}

/* A number in the result's type: a constant and, but for rank 0, its broadcast. */
static sglir_id number(const site *s, double value)
{
    sglir_id constant = sglir_constant(s->g, (sgl_dtype)s->type->dtype, value);
    return s->type->rank == 0 ? constant : sglir_broadcast(s->g, constant, s->type->rank, s->type->dims);
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */

static sglir_id fold(const site *s)
{
    double args[2], value;
    if (s->node->arg_count < 1 || s->node->arg_count > 2) return SGLIR_NONE;
    for (uint32_t i = 0; i < s->node->arg_count; i++) {
        if (!sglir_constant_value(s->g, s->args[i], &args[i])) return SGLIR_NONE;
    }
    sgl_dtype dtype = (sgl_dtype)type_of(s, s->args[0])->dtype;
    if (!sglpass_simplify_fold((sglir_op)s->node->op, dtype, (sgl_dtype)s->type->dtype, args, &value))
        return SGLIR_NONE;
    return number(s, value);
}

static sglir_id rule_add(const site *s)
{
    for (int i = 0; i < 2; i++) {
        if (is_number(s, s->args[i], 0)) return s->args[1 - i];
    }
    for (int i = 0; i < 2; i++) { /* a + -b = a - b */
        const sglir_node *neg = made_by(s, s->args[1 - i], SGLIR_OP_NEG);
        if (neg != NULL) return sglir_sub(s->g, s->args[i], sglir_arg(s->g, neg, 0));
    }
    return SGLIR_NONE;
}

static sglir_id rule_sub(const site *s)
{
    if (is_number(s, s->args[1], 0)) return s->args[0];
    const sglir_node *neg = made_by(s, s->args[1], SGLIR_OP_NEG); /* a - -b = a + b */
    return neg != NULL ? sglir_add(s->g, s->args[0], sglir_arg(s->g, neg, 0)) : SGLIR_NONE;
}

static sglir_id rule_mul(const site *s)
{
    bool whole = !sglcore_dtype_is_float((sgl_dtype)s->type->dtype);
    for (int i = 0; i < 2; i++) {
        if (is_number(s, s->args[i], 1)) return s->args[1 - i];
        if (whole && is_number(s, s->args[i], 0)) return number(s, 0);
    }
    return SGLIR_NONE;
}

/* x / 1 and x ^ 1 */
static sglir_id rule_one_on_the_right(const site *s) { return is_number(s, s->args[1], 1) ? s->args[0] : SGLIR_NONE; }

/* f f x = x: neg, not */
static sglir_id rule_twice(const site *s)
{
    const sglir_node *inner = made_by(s, s->args[0], (sglir_op)s->node->op);
    return inner != NULL ? sglir_arg(s->g, inner, 0) : SGLIR_NONE;
}

/* x and true, x or false: x. x and false, x or true: the number. */
static sglir_id rule_logical(const site *s)
{
    double neutral = s->node->op == SGLIR_OP_AND;
    for (int i = 0; i < 2; i++) {
        double found;
        if (!sglir_constant_value(s->g, s->args[i], &found)) continue;
        return (found != 0) == (neutral != 0) ? s->args[1 - i] : number(s, found != 0);
    }
    return s->args[0] == s->args[1] ? s->args[0] : SGLIR_NONE;
}

static sglir_id rule_same_arguments(const site *s) { return s->args[0] == s->args[1] ? s->args[0] : SGLIR_NONE; }

static sglir_id rule_select(const site *s)
{
    double condition;
    if (sglir_constant_value(s->g, s->args[0], &condition)) return s->args[condition != 0 ? 1 : 2];
    return s->args[1] == s->args[2] ? s->args[1] : SGLIR_NONE;
}

/* Bits of the significand of a float, of the magnitude of an integer. */
static int digits(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F64: return 53;
    case SGL_F32: return 24;
    case SGL_F16: return 11;
    case SGL_BF16: return 8;
    case SGL_BOOL: return 1;
    default: return sglcore_dtype_bits(dtype) - (sglcore_dtype_is_signed(dtype) ? 1 : 0);
    }
}

/* Every value of `a` is one of `b`. Narrow floats beside f16 and bf16 are left alone. */
static bool fits(sgl_dtype a, sgl_dtype b)
{
    if (a == b) return true;
    if (a == SGL_F8E4M3 || a == SGL_F8E5M2 || b == SGL_F8E4M3 || b == SGL_F8E5M2 || b == SGL_BOOL) return false;
    bool from_float = sglcore_dtype_is_float(a), to_float = sglcore_dtype_is_float(b);
    if (from_float) return to_float && (b == SGL_F64 || (b == SGL_F32 && a != SGL_F64));
    if (to_float) return digits(a) <= digits(b) && !(b == SGL_F16 && digits(a) > 11);
    return digits(a) <= digits(b) && (!sglcore_dtype_is_signed(a) || sglcore_dtype_is_signed(b));
}

/* A -> B -> C is A -> C when B holds all of A. Through a float to an integer it is not: out of range, a float's cast
 * is the device's affair and an integer's wraps; but back to A itself it is. */
static sglir_id rule_cast(const site *s)
{
    if (type_of(s, s->args[0])->dtype == s->type->dtype) return s->args[0];
    const sglir_node *inner = made_by(s, s->args[0], SGLIR_OP_CAST);
    if (inner == NULL) return SGLIR_NONE;
    sglir_id x = sglir_arg(s->g, inner, 0);
    sgl_dtype a = (sgl_dtype)type_of(s, x)->dtype, b = (sgl_dtype)type_of(s, s->args[0])->dtype;
    sgl_dtype c = (sgl_dtype)s->type->dtype;
    if (!fits(a, b)) return SGLIR_NONE;
    if (a == c) return x;
    bool kinds_differ = sglcore_dtype_is_float(a) != sglcore_dtype_is_float(b);
    if (kinds_differ && !sglcore_dtype_is_float(c)) return SGLIR_NONE;
    return sglir_cast(s->g, x, c);
}

static sglir_id simplify_elementwise(const site *s)
{
    sglir_id folded = fold(s);
    if (folded != SGLIR_NONE) return folded;
    switch ((sglir_op)s->node->op) {
    case SGLIR_OP_ADD: return rule_add(s);
    case SGLIR_OP_SUB: return rule_sub(s);
    case SGLIR_OP_MUL: return rule_mul(s);
    case SGLIR_OP_DIV:
    case SGLIR_OP_POW: return rule_one_on_the_right(s);
    case SGLIR_OP_NEG:
    case SGLIR_OP_NOT: return rule_twice(s);
    case SGLIR_OP_AND:
    case SGLIR_OP_OR: return rule_logical(s);
    case SGLIR_OP_MAXIMUM:
    case SGLIR_OP_MINIMUM: return rule_same_arguments(s);
    case SGLIR_OP_SELECT: return rule_select(s);
    case SGLIR_OP_CAST: return rule_cast(s);
    default: return SGLIR_NONE;
    }
}

/* ---- reductions and movement ------------------------------------------------------------------------------------ */

/* Over no axis, or over axes of one element each: the elements as they are. */
static sglir_id rule_reduce(const site *s)
{
    int count;
    const int64_t *axes = sglir_attr_ints(s->from, s->node, "axes", &count);
    for (int i = 0; i < count; i++) {
        if (type_of(s, s->args[0])->dims[axes[i]] != 1) return SGLIR_NONE;
    }
    if (!unsplit(type_of(s, s->args[0]))) return SGLIR_NONE;
    return sglir_reshape(s->g, s->args[0], s->type->rank, s->type->dims);
}

/* A number moved is a number of another shape. */
static sglir_id move_number(const site *s)
{
    double value;
    if (type_of(s, s->args[0])->rank == 0 && s->node->op == SGLIR_OP_BROADCAST) return SGLIR_NONE;
    return sglir_constant_value(s->g, s->args[0], &value) ? number(s, value) : SGLIR_NONE;
}

static sglir_id rule_reshape(const site *s)
{
    const sglir_node *inner = made_by(s, s->args[0], SGLIR_OP_RESHAPE);
    if (inner == NULL) return SGLIR_NONE;
    return sglir_reshape(s->g, sglir_arg(s->g, inner, 0), s->type->rank, s->type->dims);
}

/* `short_type` with ones put before its dims is `long_type`: what a broadcast does by itself. */
static bool adds_leading_ones(const sglir_type *short_type, const sglir_type *long_type)
{
    int more = long_type->rank - short_type->rank;
    if (more < 0) return false;
    for (int d = 0; d < long_type->rank; d++) {
        if (long_type->dims[d] != (d < more ? 1 : short_type->dims[d - more])) return false;
    }
    return true;
}

static sglir_id rule_broadcast(const site *s)
{
    sglir_id x = s->args[0];
    const sglir_node *inner = made_by(s, x, SGLIR_OP_BROADCAST);
    const sglir_node *shaped = made_by(s, x, SGLIR_OP_RESHAPE);
    if (inner != NULL) return sglir_broadcast(s->g, sglir_arg(s->g, inner, 0), s->type->rank, s->type->dims);
    if (shaped == NULL) return SGLIR_NONE;
    sglir_id source = sglir_arg(s->g, shaped, 0);
    const sglir_type *before = type_of(s, source);
    bool one = before->rank <= s->type->rank && sglir_elements(before) == 1;
    if (!one && !adds_leading_ones(before, type_of(s, x))) return SGLIR_NONE;
    return sglir_broadcast(s->g, source, s->type->rank, s->type->dims);
}

static sglir_id rule_transpose(const site *s)
{
    int64_t order[SGL_MAX_RANK];
    int count;
    const int64_t *outer = sglir_attr_ints(s->from, s->node, "order", &count);
    const sglir_node *inner = made_by(s, s->args[0], SGLIR_OP_TRANSPOSE);
    const int64_t *first = inner != NULL ? sglir_attr_ints(s->g, inner, "order", &count) : NULL;
    bool in_order = true;
    for (int d = 0; d < count; d++) {
        order[d] = first != NULL ? first[outer[d]] : outer[d];
        in_order = in_order && order[d] == d;
    }
    sglir_id x = inner != NULL ? sglir_arg(s->g, inner, 0) : s->args[0];
    if (in_order) return x;
    return inner != NULL ? sglir_transpose(s->g, x, order) : SGLIR_NONE;
}

/* As many elements along each axis as before: nothing moved. */
static bool is_identity(const site *s)
{
    switch ((sglir_op)s->node->op) {
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_SLICE:
    case SGLIR_OP_PAD: return same_shape(s, s->args[0], s->type);
    default: return false;
    }
}

static sglir_id simplify_movement(const site *s)
{
    if (is_identity(s)) return s->args[0];
    if (s->node->arg_count != 1 || !unsplit(type_of(s, s->args[0])) || !unsplit(s->type)) return SGLIR_NONE;
    sglir_id moved = s->node->op == SGLIR_OP_PAD ? SGLIR_NONE : move_number(s);
    if (moved != SGLIR_NONE) return moved;
    switch ((sglir_op)s->node->op) {
    case SGLIR_OP_RESHAPE: return rule_reshape(s);
    case SGLIR_OP_BROADCAST: return rule_broadcast(s);
    case SGLIR_OP_TRANSPOSE: return rule_transpose(s);
    case SGLIR_OP_CONCAT:
    case SGLIR_OP_PACK: return sglir_reshape(s->g, s->args[0], s->type->rank, s->type->dims);
    default: return SGLIR_NONE;
    }
}

sglir_id sglpass_simplify_node(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args)
{
    const site s = { g, from, node, args, sglir_type_of(from, node->out_first) };
    uint32_t flags = sglir_ops[node->op].flags;
    if (node->out_count != 1 || node->arg_count == 0 || (flags & SGLIR_EFFECT)) return SGLIR_NONE;
    if (flags & SGLIR_ELEMENTWISE) return simplify_elementwise(&s);
    if (flags & SGLIR_MOVEMENT) return simplify_movement(&s);
    if ((flags & SGLIR_REDUCTION) || node->op == SGLIR_OP_MEAN) return rule_reduce(&s);
    return SGLIR_NONE;
}
