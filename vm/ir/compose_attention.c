/* compose_attention.c -- decompositions of rope, attention and its gradient.
 *
 * In: q [b, t, h, d], k [b, s, g, d], v [b, s, g, e]. Out: what the composites give, with the score matrix in memory:
 * this is their meaning, not their kernel. Odd invariant: scores are [b, g, t, r, s] with h = g r, so that query heads
 * that share a key head are a dimension and no key is repeated. */
#include <math.h>

#include "ir/compose.h"

/* ---- rope ----------------------------------------------------------------------------------------------------- */

/* Positions as [t, 1, 1, 1] from an offset, or as [b, t, 1, 1, 1] from one for each row. */
static sglir_id rope_places(sglir_graph *g, sglir_id positions, int64_t steps)
{
    const sglir_type type = *sglir_type_of(g, positions);
    const int64_t places[4] = { steps, 1, 1, 1 }, rows[5] = { type.dims[0], type.dims[1], 1, 1, 1 };
    static const int8_t map[2] = { 0, 1 };
    if (type.rank == 0) return sglir_add(g, sglir_iota(g, SGL_I64, 0, 4, places), positions);
    return sglir_reshape_mapped(g, positions, 5, rows, map);
}

/* [1, 1, 1, d/2]: theta^(-2i/d), or the frequencies that are given */
static sglir_id rope_frequencies(sglir_graph *g, const sglir_graph *from, const sglir_node *node, sgl_dtype dtype,
                                 int64_t half)
{
    const int64_t pairs[4] = { 1, 1, 1, half };
    int count;
    const double *given = sglir_attr_floats(from, node, "frequencies", &count);
    if (count > 0) {
        int64_t *ones = sglcore_alloc(g->env, (size_t)count * sizeof *ones);
        if (ones == NULL) return sglir_stick(g, SGL_OUT_OF_MEMORY), SGLIR_NONE;
        for (int i = 0; i < count; i++) ones[i] = 1;
        const sglir_named attrs[] = { SGLIR_INTS("counts", count, ones), SGLIR_FLOATS("values", count, given),
                                      SGLIR_I("dtype", dtype) };
        sglir_id list = sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
        sglcore_free(g->env, ones, (size_t)count * sizeof *ones);
        return sglir_reshape(g, list, 4, pairs);
    }
    double rate = half == 0 ? 0 : -log(sglir_attr_float(from, node, "theta")) / (double)half;
    return sglir_unary(g, SGLIR_OP_EXP, sglir_scale(g, sglir_iota(g, dtype, 3, 4, pairs), rate));
}

/* The halves of a head as a dimension of two: x cos + y sin, where y is the other half, of the first one with its sign changed. All of it
 * is one kernel: the other half is read where it lies, and what is computed lies as the head does. */
void sglir_compose_rope(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                        sglir_id *out)
{
    static const int8_t map[4] = { 0, 1, 2, 4 }, back[5] = { 0, 1, 2, -1, 3 };
    const sglir_type type = *sglir_type_of(g, args[0]);
    const int64_t half = type.dims[3] / 2, sides[4] = { 1, 1, 2, 1 }, axes[1] = { 3 };
    const int64_t halves[5] = { type.dims[0], type.dims[1], type.dims[2], 2, half };
    const sgl_dtype dtype = sglir_wide_float((sgl_dtype)type.dtype);
    sglir_id places = sglir_cast(g, rope_places(g, args[1], type.dims[1]), dtype);
    sglir_id angles = sglir_mul(g, places, rope_frequencies(g, from, node, dtype, half));
    sglir_id cosine = sglir_unary(g, SGLIR_OP_COS, angles), sine = sglir_unary(g, SGLIR_OP_SIN, angles);
    /* -1 and 1, or the other way round */
    const double turn = sglir_attr_int(from, node, "inverse") ? -2 : 2;
    sglir_id sign = sglir_scale(g, sglir_iota(g, dtype, 2, 4, sides), turn);
    sign = sglir_sub(g, sign, sglir_constant(g, dtype, turn / 2));
    sine = sglir_mul(g, sine, sign);
    const sglir_named flipped = SGLIR_INTS("axes", 1, axes);
    sglir_id x = sglir_reshape_mapped(g, args[0], 5, halves, map);
    sglir_id y = sglir_emit(g, SGLIR_OP_FLIP, &x, 1, &flipped, 1, NULL);
    x = sglir_mul(g, sglir_widen(g, x), cosine);
    y = sglir_mul(g, sglir_widen(g, y), sine);
    sglir_id turned = sglir_cast_like(g, sglir_add(g, x, y), args[0]);
    out[0] = sglir_reshape_mapped(g, turned, 4, type.dims, back);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

/* Extents, and what both directions need. */
typedef struct heads {
    int64_t b, t, s, g, r, d, e;
    sglir_id q;       /* [b, t, g, r, d] */
    sglir_id k, v;    /* [b, s, g, d], [b, s, g, e] */
    sglir_id visible; /* bool [t, 1, s] or [b, 1, t, 1, s], or SGLIR_NONE: all are */
    double scale;
} heads;

/* [b, t, h, n] to [b, t, g, r, n] */
static sglir_id grouped(sglir_graph *g, const heads *a, sglir_id x, int64_t n)
{
    static const int8_t map[4] = { 0, 1, 2, 4 };
    const int64_t dims[5] = { a->b, a->t, a->g, a->r, n };
    return sglir_reshape_mapped(g, x, 5, dims, map);
}

/* [b, g, t, r, n] to [b, t, h, n] */
static sglir_id ungrouped(sglir_graph *g, const heads *a, sglir_id x, int64_t n)
{
    static const int64_t order[5] = { 0, 2, 1, 3, 4 };
    static const int8_t map[5] = { 0, 1, 2, -1, 3 };
    const int64_t dims[4] = { a->b, a->t, a->g * a->r, n };
    return sglir_reshape_mapped(g, sglir_transpose(g, x, order), 4, dims, map);
}

/* Query i sees keys up to offset + i, of these the last `window`. */
static sglir_id visible_keys(sglir_graph *g, const heads *a, sglir_id offset, int64_t window)
{
    const int64_t queries[3] = { a->t, 1, 1 }, keys[3] = { 1, 1, a->s };
    sglir_id place = sglir_add(g, sglir_iota(g, SGL_I64, 0, 3, queries), offset),
             key = sglir_iota(g, SGL_I64, 2, 3, keys);
    sglir_id visible = sglir_binary(g, SGLIR_OP_LESS_EQUAL, key, place);
    if (window == 0) return visible;
    sglir_id before = sglir_sub(g, place, sglir_constant(g, SGL_I64, (double)window));
    return sglir_binary(g, SGLIR_OP_AND, visible, sglir_binary(g, SGLIR_OP_LESS, before, key));
}

/* Keys of the query's own segment, which is none below 0. */
static sglir_id same_segment(sglir_graph *g, const heads *a, const sglir_id *segments)
{
    static const int8_t of_queries[2] = { 0, 2 }, of_keys[2] = { 0, 4 };
    const int64_t queries[5] = { a->b, 1, a->t, 1, 1 }, keys[5] = { a->b, 1, 1, 1, a->s };
    sglir_id query = sglir_reshape_mapped(g, segments[0], 5, queries, of_queries),
             key = sglir_reshape_mapped(g, segments[1], 5, keys, of_keys);
    sglir_id there = sglir_binary(g, SGLIR_OP_LESS_EQUAL, sglir_constant(g, SGL_I32, 0), key);
    return sglir_binary(g, SGLIR_OP_AND, sglir_binary(g, SGLIR_OP_EQUAL, query, key), there);
}

/* `offset` is the number of that argument; segments may follow it. */
static bool heads_of(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                     uint32_t offset, heads *a)
{
    if (g->status != SGL_OK) return false;
    const sglir_type *q = sglir_type_of(g, args[0]), *v = sglir_type_of(g, args[2]);
    *a = (heads){ .b = q->dims[0],
                  .t = q->dims[1],
                  .s = v->dims[1],
                  .g = v->dims[2],
                  .r = q->dims[2] / v->dims[2],
                  .d = q->dims[3],
                  .e = v->dims[3],
                  .visible = SGLIR_NONE,
                  .scale = sglir_attr_float(from, node, "scale") };
    int64_t window = sglir_attr_int(from, node, "window");
    a->q = grouped(g, a, sglir_widen(g, args[0]), a->d);
    a->k = sglir_widen(g, args[1]);
    a->v = sglir_widen(g, args[2]);
    if (sglir_attr_int(from, node, "causal")) a->visible = visible_keys(g, a, args[offset], window);
    if (node->arg_count > offset + 1) {
        sglir_id same = same_segment(g, a, args + offset + 1);
        a->visible = a->visible == SGLIR_NONE ? same : sglir_binary(g, SGLIR_OP_AND, a->visible, same);
    }
    return g->status == SGL_OK;
}

/* x [b, t, g, r, n] with y [b, s, g, n]: [b, g, t, r, s] */
static sglir_id dot_keys(sglir_graph *g, sglir_id x, sglir_id y)
{
    static const int64_t batch[2] = { 0, 2 }, of_x = 4, of_y = 3;
    return sglir_dot(g, x, y, 2, batch, batch, 1, &of_x, &of_y);
}

/* p [b, g, t, r, s] with y [b, s, g, n]: [b, g, t, r, n] */
static sglir_id dot_values(sglir_graph *g, sglir_id p, sglir_id y)
{
    static const int64_t batch_p[2] = { 0, 1 }, batch_y[2] = { 0, 2 }, of_p = 4, of_y = 1;
    return sglir_dot(g, p, y, 2, batch_p, batch_y, 1, &of_p, &of_y);
}

/* p [b, g, t, r, s] with x [b, t, g, r, n]: [b, s, g, n] */
static sglir_id dot_queries(sglir_graph *g, sglir_id p, sglir_id x)
{
    static const int64_t batch_p[2] = { 0, 1 }, batch_x[2] = { 0, 2 }, of_p[2] = { 2, 3 }, of_x[2] = { 1, 3 };
    static const int64_t order[4] = { 0, 2, 1, 3 };
    return sglir_transpose(g, sglir_dot(g, p, x, 2, batch_p, batch_x, 2, of_p, of_x), order);
}

/* Where x is -inf, 0: what may be taken off scores without making NaN of rows that see no key. */
static sglir_id finite_or_zero(sglir_graph *g, sglir_id x)
{
    sglir_id none = sglir_binary(g, SGLIR_OP_EQUAL, x, sglir_constant(g, SGL_F32, -INFINITY));
    return sglir_select(g, none, sglir_constant(g, SGL_F32, 0), x);
}

static sglir_id scores_of(sglir_graph *g, const heads *a)
{
    sglir_id scores = sglir_scale(g, dot_keys(g, a->q, a->k), a->scale);
    if (a->visible == SGLIR_NONE) return scores;
    return sglir_select(g, a->visible, scores, sglir_constant(g, SGL_F32, -INFINITY));
}

void sglir_compose_attention(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                             sglir_id *out)
{
    heads a;
    if (!heads_of(g, from, node, args, 3, &a)) return;
    sglir_id scores = scores_of(g, &a);
    sglir_id most = finite_or_zero(g, sglir_reduce_last(g, SGLIR_OP_REDUCE_MAX, scores));
    sglir_id powers = sglir_unary(g, SGLIR_OP_EXP, sglir_sub(g, scores, most));
    sglir_id sum = sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, powers);
    sglir_id nothing = sglir_binary(g, SGLIR_OP_EQUAL, sum, sglir_constant(g, SGL_F32, 0));
    sglir_id divisor = sglir_select(g, nothing, sglir_constant(g, SGL_F32, 1), sum);
    sglir_id mixed = sglir_div(g, dot_values(g, powers, a.v), divisor);
    out[0] = sglir_cast_like(g, ungrouped(g, &a, mixed, a.e), args[0]);

    static const int64_t order[4] = { 0, 1, 3, 2 };
    static const int8_t drop[5] = { 0, 1, 2, 3, -1 }, join[4] = { 0, 1, -1, 2 };
    const int64_t rows[4] = { a.b, a.g, a.t, a.r }, joined[3] = { a.b, a.g * a.r, a.t };
    sglir_id lse = sglir_add(g, most, sglir_unary(g, SGLIR_OP_LOG, sum)); /* [b, g, t, r, 1] */
    lse = sglir_transpose(g, sglir_reshape_mapped(g, lse, 4, rows, drop), order);
    out[1] = sglir_reshape_mapped(g, lse, 3, joined, join);
}

/* lse [b, h, t] as [b, g, t, r, 1] */
static sglir_id lse_rows(sglir_graph *g, const heads *a, sglir_id lse)
{
    static const int64_t order[4] = { 0, 1, 3, 2 };
    static const int8_t part[3] = { 0, 1, 3 }, same[4] = { 0, 1, 2, 3 };
    const int64_t parted[4] = { a->b, a->g, a->r, a->t }, rows[5] = { a->b, a->g, a->t, a->r, 1 };
    sglir_id turned = sglir_transpose(g, sglir_reshape_mapped(g, lse, 4, parted, part), order);
    return sglir_reshape_mapped(g, turned, 5, rows, same);
}

/* With p = e^(scores - lse): dv = p^T dout, dp = dout v^T, ds = p (dp - sum of dout * out), dq = ds k, dk = ds^T q. */
void sglir_compose_attention_grad(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                                  sglir_id *results)
{
    heads a;
    if (!heads_of(g, from, node, args, 6, &a)) return;
    sglir_id out = sglir_widen(g, args[3]), dout = sglir_widen(g, args[5]);
    sglir_id scores = scores_of(g, &a), lse = finite_or_zero(g, lse_rows(g, &a, args[4]));
    sglir_id p = sglir_unary(g, SGLIR_OP_EXP, sglir_sub(g, scores, lse));
    static const int64_t order[5] = { 0, 2, 1, 3, 4 };
    sglir_id delta = sglir_reduce_last(g, SGLIR_OP_REDUCE_SUM, sglir_mul(g, dout, out)); /* [b, t, h, 1] */
    delta = sglir_transpose(g, grouped(g, &a, delta, 1), order);                         /* [b, g, t, r, 1] */
    sglir_id dout_grouped = grouped(g, &a, dout, a.e);
    sglir_id slope = sglir_sub(g, dot_keys(g, dout_grouped, a.v), delta);
    sglir_id dscores = sglir_scale(g, sglir_mul(g, p, slope), a.scale);
    results[0] = sglir_cast_like(g, ungrouped(g, &a, dot_values(g, dscores, a.k), a.d), args[0]);
    results[1] = sglir_cast_like(g, dot_queries(g, dscores, a.q), args[1]);
    results[2] = sglir_cast_like(g, dot_queries(g, p, dout_grouped), args[2]);
}
