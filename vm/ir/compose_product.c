/* compose_product.c -- decompositions of matmul and linear into dot.
 *
 * In: arguments of any rank that their rules allow. Out: the product, with a transpose only where dot's own order of
 * results (batch, free of a, free of b) is not the one asked for. */
#include "ir/compose.h"

sglir_id sglir_dot_last(sglir_graph *g, sglir_id x, sglir_id weight)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    const int64_t last = sglir_type_of(g, x)->rank - 1, second = 1;
    return sglir_dot(g, x, weight, 0, NULL, NULL, 1, &last, &second);
}

void sglir_compose_linear(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                          sglir_id *out)
{
    (void)from;
    out[0] = sglir_dot_last(g, args[0], args[1]);
    if (node->arg_count == 3) out[0] = sglir_add(g, out[0], args[2]);
}

/* Leading dims of a product to the common ones; the last two stay. */
static sglir_id broadcast_lead(sglir_graph *g, sglir_id x, int lead, const int64_t *dims)
{
    const sglir_type type = *sglir_type_of(g, x);
    int64_t target[SGL_MAX_RANK];
    for (int i = 0; i < lead; i++) target[i] = dims[i];
    for (int i = 0; i < 2; i++) target[lead + i] = type.dims[type.rank - 2 + i];
    return sglir_broadcast(g, x, lead + 2, target);
}

/* a [m, k] with b [lead..., k, n]: dot gives [m, lead..., n]. */
static sglir_id matmul_plain_left(sglir_graph *g, sglir_id a, sglir_id b)
{
    int rank = sglir_type_of(g, b)->rank;
    const int64_t last = 1, inner = rank - 2;
    sglir_id product = sglir_dot(g, a, b, 0, NULL, NULL, 1, &last, &inner);
    int64_t order[SGL_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) order[i] = i + 1;
    order[rank - 2] = 0;
    order[rank - 1] = rank - 1;
    return sglir_transpose(g, product, order);
}

void sglir_compose_matmul(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                          sglir_id *out)
{
    (void)from, (void)node;
    if (g->status != SGL_OK) return;
    sglir_id a = args[0], b = args[1];
    const sglir_type of_a = *sglir_type_of(g, a), of_b = *sglir_type_of(g, b);
    int64_t inner_a = of_a.rank - 1, inner_b = of_b.rank > 1 ? of_b.rank - 2 : 0;
    if (of_a.rank == 1 || of_b.rank <= 2) {
        out[0] = sglir_dot(g, a, b, 0, NULL, NULL, 1, &inner_a, &inner_b);
        return;
    }
    if (of_a.rank == 2) {
        out[0] = matmul_plain_left(g, a, b);
        return;
    }
    int lead_a = of_a.rank - 2, lead_b = of_b.rank - 2, lead = lead_a > lead_b ? lead_a : lead_b;
    int64_t dims[SGL_MAX_RANK], batch[SGL_MAX_RANK];
    for (int i = 0; i < lead; i++) {
        int64_t mine = i < lead - lead_a ? 1 : of_a.dims[i - (lead - lead_a)];
        int64_t other = i < lead - lead_b ? 1 : of_b.dims[i - (lead - lead_b)];
        dims[i] = mine == 1 ? other : mine;
        batch[i] = i;
    }
    a = broadcast_lead(g, a, lead, dims);
    b = broadcast_lead(g, b, lead, dims);
    inner_a = lead + 1;
    inner_b = lead;
    out[0] = sglir_dot(g, a, b, lead, batch, batch, 1, &inner_a, &inner_b);
}
