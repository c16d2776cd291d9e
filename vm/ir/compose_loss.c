/* compose_loss.c -- decompositions of the losses over a vocabulary and of their gradient.
 *
 * In: logits [..., v], or x [..., d] and weight [v, d], and integer targets [...]. Out: losses [...] in f32 or f64. Odd
 * invariant: the target is picked by comparing columns with it, not by an index, so that a target outside of the
 * vocabulary picks nothing instead of reading beyond, and its loss is the log of the sum; data is checked where it is
 * read. */
#include "ir/compose.h"

/* What losses and their gradient share; all of rank rows + 1. */
typedef struct loss {
    sglir_id shifted; /* logits - their maximum [..., v] */
    sglir_id powers;  /* e^shifted */
    sglir_id sum;     /* of powers [..., 1] */
    sglir_id hit;     /* bool [..., v]: the column of the target */
    sglir_id ignored; /* bool [..., 1] */
    sglir_id outside; /* what was taken off, where the target is no column and takes nothing off; else 0 [..., 1] */
} loss;

/* Same rank rows, plus a last dimension of 1, or without it. */
static sglir_id with_last(sglir_graph *g, sglir_id x)
{
    static const int8_t same[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    if (g->status != SGL_OK) return SGLIR_NONE;
    sglir_type type = *sglir_type_of(g, x);
    type.dims[type.rank++] = 1; /* the rank of logits, which is in bounds */
    return sglir_reshape_mapped(g, x, type.rank, type.dims, same);
}

static sglir_id without_last(sglir_graph *g, sglir_id x)
{
    static const int8_t same[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    if (g->status != SGL_OK) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(g, x);
    return sglir_reshape_mapped(g, x, type.rank - 1, type.dims, same);
}

static loss loss_of(sglir_graph *g, sglir_id logits, sglir_id targets, int64_t ignore)
{
    loss l = { SGLIR_NONE, SGLIR_NONE, SGLIR_NONE, SGLIR_NONE, SGLIR_NONE, SGLIR_NONE };
    if (g->status != SGL_OK) return l;
    const sglir_type type = *sglir_type_of(g, logits);
    sgl_dtype of_targets = (sgl_dtype)sglir_type_of(g, targets)->dtype;
    sgl_dtype index = of_targets == SGL_I64 || of_targets == SGL_U32 ? SGL_I64 : SGL_I32;
    if (!sglir_dtype_holds(index, (double)type.dims[type.rank - 1])) index = SGL_I64;

    /* The loss does not depend on what is taken off first, so no gradient need flow through the maximum. */
    sglir_id most = sglir_unary(g, SGLIR_OP_STOP_GRADIENT, sglir_reduce_last(g, SGLIR_OP_REDUCE_MAX, logits));
    l.shifted = sglir_sub(g, logits, most);
    l.powers = sglir_unary(g, SGLIR_OP_EXP, l.shifted);
    l.sum = sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, l.powers);
    sglir_id target = with_last(g, sglir_cast(g, targets, index));
    l.hit = sglir_binary(g, SGLIR_OP_EQUAL, target, sglir_iota(g, index, 0, 1, &type.dims[type.rank - 1]));
    if (sglir_dtype_holds(index, (double)ignore)) {
        l.ignored = sglir_binary(g, SGLIR_OP_EQUAL, target, sglir_constant(g, index, (double)ignore));
    } else { /* no target can be it */
        l.ignored = sglir_binary(g, SGLIR_OP_NOT_EQUAL, target, target);
    }
    sglir_id below = sglir_binary(g, SGLIR_OP_LESS, target, sglir_constant(g, index, 0));
    sglir_id columns = sglir_constant(g, index, (double)type.dims[type.rank - 1]);
    sglir_id above = sglir_binary(g, SGLIR_OP_LESS_EQUAL, columns, target);
    l.outside = sglir_select(g, sglir_binary(g, SGLIR_OP_OR, below, above), most, sglir_constant(g, SGL_F32, 0));
    return l;
}

static sglir_id losses_of(sglir_graph *g, const loss *l)
{
    sglir_id zero = sglir_constant(g, SGL_F32, 0);
    sglir_id picked = sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, sglir_select(g, l->hit, l->shifted, zero));
    sglir_id full = sglir_sub(g, sglir_add(g, sglir_unary(g, SGLIR_OP_LOG, l->sum), l->outside), picked);
    return without_last(g, sglir_select(g, l->ignored, zero, full));
}

void sglir_compose_cross_entropy(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                                 sglir_id *out)
{
    loss l = loss_of(g, sglir_widen(g, args[0]), args[1], sglir_attr_int(from, node, "ignore"));
    out[0] = losses_of(g, &l);
}

void sglir_compose_linear_cross_entropy(sglir_graph *g, const sglir_graph *from, const sglir_node *node,
                                        const sglir_id *args, sglir_id *out)
{
    sglir_id x = sglir_widen(g, args[0]), weight = sglir_widen(g, args[1]);
    sglir_id logits = sglir_dot_last(g, x, weight);
    loss l = loss_of(g, logits, args[2], sglir_attr_int(from, node, "ignore"));
    out[0] = losses_of(g, &l);
}

/* d logits = (softmax - [column is the target]) * d loss; dx = d logits weight, dweight = d logits^T x. */
void sglir_compose_linear_cross_entropy_grad(sglir_graph *g, const sglir_graph *from, const sglir_node *node,
                                             const sglir_id *args, sglir_id *out)
{
    sglir_id x = sglir_widen(g, args[0]), weight = sglir_widen(g, args[1]);
    loss l = loss_of(g, sglir_dot_last(g, x, weight), args[2], sglir_attr_int(from, node, "ignore"));
    out[0] = losses_of(g, &l);
    if (g->status != SGL_OK) return;
    sglir_id zero = sglir_constant(g, SGL_F32, 0), one = sglir_constant(g, SGL_F32, 1);
    sglir_id dlosses = sglir_select(g, l.ignored, zero, with_last(g, args[3]));
    sglir_id softmax = sglir_div(g, l.powers, l.sum);
    sglir_id dlogits = sglir_mul(g, sglir_select(g, l.hit, sglir_sub(g, softmax, one), softmax), dlosses);
    if (g->status != SGL_OK) return;
    const int rows = sglir_type_of(g, args[2])->rank;
    const int64_t last = rows, first = 0, lead[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    out[1] = sglir_cast_like(g, sglir_dot(g, dlogits, weight, 0, NULL, NULL, 1, &last, &first), args[0]);
    out[2] = sglir_cast_like(g, sglir_dot(g, dlogits, x, 0, NULL, NULL, rows, lead, lead), args[1]);
}
