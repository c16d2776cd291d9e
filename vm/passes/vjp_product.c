/* vjp_product.c -- the derivative of dot: two more dots.
 *
 * y [batch..., free of a..., free of b...] = dot(a, b). The gradient of a contracts dy with b over the free dimensions
 * of b; that of b contracts dy with a over the free dimensions of a. Such a dot yields the batch dimensions, then the
 * remaining ones of its first argument, then those of its second, which need not be the order in which a (or b) has
 * them. Either argument may stand first, so both orders are tried, and a transpose follows only where neither fits:
 * with y[b,t,n] = x[b,t,k] w[n,k], dw = dot(dy, x) over (b,t) is [n,k] at once, and dx = dot(dy, w) over n is [b,t,k]. */
#include "passes/vjp_rules.h"

/* One side of the product: its dimensions by what they do, each list in the order of the attribute or, for the free
 * ones, of the argument. */
typedef struct side {
    int rank, batch_count, contract_count, free_count;
    int64_t batch[SGL_MAX_RANK], contract[SGL_MAX_RANK], free[SGL_MAX_RANK];
} side;

static side side_of(const sglpass_vjp *v, uint32_t i)
{
    static const char *const batch_names[2] = { "batch_a", "batch_b" };
    static const char *const contract_names[2] = { "contract_a", "contract_b" };
    const sglir_node *node = sglir_node_at(v->g, v->node);
    side s = { .rank = sglir_type_of(v->g, sglir_arg(v->g, node, i))->rank };
    bool bound[SGL_MAX_RANK] = { false };
    const int64_t *batch = sglir_attr_ints(v->g, node, batch_names[i], &s.batch_count);
    const int64_t *contract = sglir_attr_ints(v->g, node, contract_names[i], &s.contract_count);
    for (int j = 0; j < s.batch_count; j++) bound[s.batch[j] = batch[j]] = true;
    for (int j = 0; j < s.contract_count; j++) bound[s.contract[j] = contract[j]] = true;
    for (int d = 0; d < s.rank; d++) {
        if (!bound[d]) s.free[s.free_count++] = d;
    }
    return s;
}

/* Dimension of `mine` that each dimension of the gradient's product is. From `dy` come the free dimensions of mine in
 * their order, from the other argument its contracted ones in the order in which they stand there. */
typedef struct layout {
    int64_t dim[SGL_MAX_RANK];
} layout;

static layout layout_of(const side *mine, const side *other, bool dy_first)
{
    layout out;
    int at = 0;
    for (int j = 0; j < mine->batch_count; j++) out.dim[at++] = mine->batch[j];
    for (int part = 0; part < 2; part++) {
        if ((part == 0) == dy_first) {
            for (int j = 0; j < mine->free_count; j++) out.dim[at++] = mine->free[j];
            continue;
        }
        for (int d = 0; d < other->rank; d++) {
            for (int j = 0; j < other->contract_count; j++) {
                if (other->contract[j] == d) out.dim[at++] = mine->contract[j];
            }
        }
    }
    return out;
}

static bool in_order(const layout *l, int rank)
{
    for (int d = 0; d < rank; d++) {
        if (l->dim[d] != d) return false;
    }
    return true;
}

/* The gradient of one argument. free_at: where the free dimensions of the other one begin in y. */
static sglir_id gradient(const sglpass_vjp *v, sglir_id dy, sglir_id other_value, const side *mine, const side *other,
                         int free_at)
{
    int64_t batch_y[SGL_MAX_RANK], contract_y[SGL_MAX_RANK];
    for (int j = 0; j < mine->batch_count; j++) batch_y[j] = j;
    for (int j = 0; j < other->free_count; j++) contract_y[j] = free_at + j;
    layout first = layout_of(mine, other, true), second = layout_of(mine, other, false);
    bool dy_first = in_order(&first, mine->rank) || !in_order(&second, mine->rank);
    sglir_id product = dy_first ? sglir_dot(v->g, dy, other_value, mine->batch_count, batch_y, other->batch,
                                            other->free_count, contract_y, other->free)
                                : sglir_dot(v->g, other_value, dy, mine->batch_count, other->batch, batch_y,
                                            other->free_count, other->free, contract_y);
    const layout *got = dy_first ? &first : &second;
    if (in_order(got, mine->rank)) return product;
    int64_t order[SGL_MAX_RANK] = { 0 };
    for (int d = 0; d < mine->rank; d++) order[got->dim[d]] = d;
    return sglir_transpose(v->g, product, order);
}

void sglpass_vjp_dot(const sglpass_vjp *v)
{
    sglir_id a = sglpass_vjp_arg(v, 0), b = sglpass_vjp_arg(v, 1);
    side of_a = side_of(v, 0), of_b = side_of(v, 1);
    int batch = of_a.batch_count;
    /* Of a wide product the gradient is wider than the arguments. */
    sglir_id dy = sglir_cast(v->g, v->dys[0], (sgl_dtype)sglir_type_of(v->g, a)->dtype);
    if (v->wanted[0]) v->into[0] = gradient(v, dy, b, &of_a, &of_b, batch + of_a.free_count);
    if (v->wanted[1]) v->into[1] = gradient(v, dy, a, &of_b, &of_a, batch);
}
