/* vjp_wide.c -- the gradient of a rounding: what comes in a narrow float goes on in a wider one.
 *
 * In: a gradient in a narrow dtype, and the dtype of what was rounded, a parameter as a rule. Out: the gradient in that
 * dtype. Where it is a product, or a sum of some, it is emitted anew with its sums left as wide as they were summed: the
 * gradient of a master weight is not rounded on its way; the narrow one then has no user and goes. Odd invariant: what is
 * emitted anew has the arguments of the first, so that only widths differ. */
#include <string.h>

#include "passes/vjp_rules.h"

enum { DEEPEST = 8, MOST_ATTRS = 16 }; /* DEEPEST: uses of one parameter whose gradients are followed */

/* The attributes of a node, apart from the graph, which is to grow. */
typedef struct attrs {
    sglir_named named[MOST_ATTRS];
    int64_t ints[MOST_ATTRS][SGL_MAX_RANK];
    int count;
} attrs;

/* False where a list is longer than a shape: no op that is followed here has such a one. */
static bool attrs_of(const sglir_graph *g, const sglir_node *node, attrs *a)
{
    a->count = sglir_attrs_named(g, node, a->named);
    for (int i = 0; i < a->count; i++) {
        if (a->named[i].kind != 'I') continue;
        if (a->named[i].i > SGL_MAX_RANK) return false;
        if (a->named[i].i > 0) memcpy(a->ints[i], a->named[i].ints, (size_t)a->named[i].i * sizeof(int64_t));
        a->named[i].ints = a->ints[i];
    }
    return true;
}

static bool is_narrow(const sglir_graph *g, sglir_id value)
{
    return sglcore_dtype_bits((sgl_dtype)sglir_type_of(g, value)->dtype) < 32;
}

/* Ops that give the sum of wide values, or these in other places, when their arguments are widened. */
static bool passes_on(const sglir_graph *g, const sglir_node *node)
{
    switch (node->op) {
    case SGLIR_OP_ADD:
    case SGLIR_OP_SUB:
    case SGLIR_OP_NEG:
    case SGLIR_OP_REDUCE_SUM:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_TRANSPOSE:
    case SGLIR_OP_SLICE: return true;
    case SGLIR_OP_PAD: return sglir_attr_float(g, node, "value") == 0;
    default: return false;
    }
}

/* What a loop or branch has made in f32, of which the node is the rounding (vjp_control.h); SGLIR_NONE: it is none. */
static sglir_id made_wide(const sglir_graph *g, const sglir_node *node)
{
    if (node == NULL || node->op != SGLIR_OP_CAST) return SGLIR_NONE;
    sglir_id x = sglir_arg(g, node, 0);
    const sglir_node *maker = sglir_maker(g, x);
    bool made = maker != NULL && sglir_is_control(maker) && sglir_type_of(g, x)->dtype == SGL_F32;
    return made ? x : SGLIR_NONE;
}

/* The value in f32, a narrow float. summed: elements of it are added up. Their roundings cancel out, so that a sum of two values is
 * then taken as it is: emitted anew, a residual stream would be added up from its beginning on for every bias on its way. */
static sglir_id widened(sglir_graph *g, sglir_id value, int depth, bool summed)
{
    const sglir_node *node = g->status == SGL_OK ? sglir_maker(g, value) : NULL;
    sglir_id wide = made_wide(g, node);
    if (wide != SGLIR_NONE) return wide;
    bool product = node != NULL && node->op == SGLIR_OP_DOT;
    const bool two = node != NULL && (node->op == SGLIR_OP_ADD || node->op == SGLIR_OP_SUB);
    attrs a;
    if (node == NULL || depth == DEEPEST || (two && summed) || (!product && !passes_on(g, node)) ||
        !attrs_of(g, node, &a))
        return sglir_cast(g, value, SGL_F32);
    const sglir_op op = (sglir_op)node->op;
    const int count = (int)node->arg_count;
    sglir_id args[2] = { sglir_arg(g, node, 0), count > 1 ? sglir_arg(g, node, 1) : SGLIR_NONE };
    summed = summed || op == SGLIR_OP_REDUCE_SUM;
    for (int i = 0; i < count && !product; i++) args[i] = widened(g, args[i], depth + 1, summed);
    for (int i = 0; i < a.count && product; i++) {
        if (strcmp(a.named[i].name, "wide") == 0) a.named[i].i = 1;
    }
    return sglir_emit(g, op, args, count, a.named, a.count, NULL);
}

sglir_id sglpass_vjp_widened(sglir_graph *g, sglir_id value, sgl_dtype to)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    bool widens = is_narrow(g, value) && sglcore_dtype_bits(to) >= 32;
    return sglir_cast(g, widens ? widened(g, value, 0, false) : value, to);
}
