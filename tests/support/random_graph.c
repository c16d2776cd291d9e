/* random_graph.c -- a generator of graphs: values are drawn from a pool, an op is drawn, its result joins the pool. Ops
 * whose arguments do not fit are passed over. In and out: random_graph.h. Values stay of moderate size: what may grow is
 * squashed. Kinks (abs, maximum, select) stand only where no gradient is taken by differences. */
#include "tests/support/random_graph.h"

#include <string.h>

enum { MOST_VALUES = 128, MOST_ELEMENTS = 48, LEAST_STEPS = 12, MOST_STEPS = 72 };

typedef struct generator {
    sglir_graph *g;
    uint64_t state;
    bool smooth; /* every op has a derivative everywhere */
    sglir_id pool[MOST_VALUES];
    int count;
    sglir_id indices, seed, step; /* i32 [6], i64 [], i64 [] */
    sglir_id parameters[3], moments;
    int depth; /* of scans */
} generator;

static uint64_t draw(generator *r, uint64_t below)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (r->state >> 33) % below;
}

static const sglir_type *type_of(const generator *r, sglir_id value) { return sglir_type_of(r->g, value); }

static sglir_id any(generator *r) { return r->pool[draw(r, (uint64_t)r->count)]; }

static void join(generator *r, sglir_id value)
{
    if (value == SGLIR_NONE || r->count == MOST_VALUES || sglir_elements(type_of(r, value)) > MOST_ELEMENTS) return;
    r->pool[r->count++] = value;
}

static sglir_id squash(generator *r, sglir_id x) { return sglir_unary(r->g, SGLIR_OP_TANH, x); }

/* ---- one op of each kind ------------------------------------------------------------------------------------ */

static sglir_id unary(generator *r)
{
    static const sglir_op smooth[] = { SGLIR_OP_NEG, SGLIR_OP_SIN,  SGLIR_OP_COS,     SGLIR_OP_TANH,
                                       SGLIR_OP_ERF, SGLIR_OP_SILU, SGLIR_OP_SIGMOID, SGLIR_OP_GELU };
    static const sglir_op kinked[] = { SGLIR_OP_ABS, SGLIR_OP_SIGN, SGLIR_OP_FLOOR };
    if (!r->smooth && draw(r, 4) == 0) return sglir_unary(r->g, kinked[draw(r, 3)], any(r));
    switch (draw(r, 8)) {
    case 0: return sglir_unary(r->g, SGLIR_OP_EXP, squash(r, any(r)));
    case 1: return sglir_unary(r->g, SGLIR_OP_LOG, sglir_unary(r->g, SGLIR_OP_SIGMOID, any(r)));
    case 2: return sglir_unary(r->g, SGLIR_OP_RSQRT, sglir_unary(r->g, SGLIR_OP_EXP, squash(r, any(r))));
    case 3: return sglir_unary(r->g, SGLIR_OP_STOP_GRADIENT, any(r));
    default: return sglir_unary(r->g, smooth[draw(r, sizeof smooth / sizeof smooth[0])], any(r));
    }
}

static bool broadcast_together(const sglir_type *a, const sglir_type *b)
{
    for (int i = 1; i <= a->rank && i <= b->rank; i++) {
        int64_t x = a->dims[a->rank - i], y = b->dims[b->rank - i];
        if (x != y && x != 1 && y != 1) return false;
    }
    return true;
}

static sglir_id partner_of(generator *r, sglir_id a)
{
    for (int attempt = 0; attempt < 8; attempt++) {
        sglir_id b = any(r);
        if (broadcast_together(type_of(r, a), type_of(r, b))) return b;
    }
    return sglir_constant(r->g, SGL_F64, (double)draw(r, 5) * 0.5 - 1);
}

static sglir_id binary(generator *r)
{
    sglir_id a = any(r), b = partner_of(r, a), pair[2] = { a, b };
    if (draw(r, 2) == 0) {
        pair[0] = b;
        pair[1] = a;
    }
    switch (draw(r, r->smooth ? 5 : 8)) {
    case 0: return sglir_add(r->g, pair[0], pair[1]);
    case 1: return sglir_sub(r->g, pair[0], pair[1]);
    case 2: return squash(r, sglir_mul(r->g, pair[0], pair[1]));
    case 3: return sglir_div(r->g, squash(r, pair[0]), sglir_unary(r->g, SGLIR_OP_EXP, squash(r, pair[1])));
    case 4: return sglir_scale(r->g, pair[0], 0.75);
    case 5: return sglir_binary(r->g, SGLIR_OP_MAXIMUM, pair[0], pair[1]);
    case 6: return sglir_binary(r->g, SGLIR_OP_MINIMUM, pair[0], pair[1]);
    default: return sglir_select(r->g, sglir_binary(r->g, SGLIR_OP_LESS, pair[0], pair[1]), pair[1], pair[0]);
    }
}

static sglir_id reduce(generator *r)
{
    sglir_id x = any(r);
    int64_t axes[SGL_MAX_RANK];
    int count = 0;
    for (int i = 0; i < type_of(r, x)->rank; i++) {
        if (draw(r, 2) == 0) axes[count++] = i;
    }
    if (count == 0) return SGLIR_NONE;
    const sglir_op ops[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_MEAN, SGLIR_OP_REDUCE_MAX, SGLIR_OP_REDUCE_MIN };
    sglir_op op = ops[draw(r, r->smooth ? 2 : 4)];
    bool keep = draw(r, 2) == 0;
    return squash(r, sglir_reduce(r->g, op, x, axes, count, keep));
}

static sglir_id move(generator *r)
{
    sglir_id x = any(r);
    const sglir_type type = *type_of(r, x);
    int64_t order[SGL_MAX_RANK], elements = sglir_elements(&type), dims[2] = { 2, elements / 2 };
    if (type.rank == 0) return SGLIR_NONE;
    int64_t axis = (int64_t)draw(r, type.rank), extent = type.dims[axis];
    switch (draw(r, 6)) {
    case 0: return sglir_reshape(r->g, x, 1, &elements);
    case 1: return elements % 2 == 0 ? sglir_reshape(r->g, x, 2, dims) : SGLIR_NONE;
    case 2:
        for (int i = 0; i < type.rank; i++) order[i] = (i + 1) % type.rank;
        return sglir_transpose(r->g, x, order);
    case 3:
        return extent > 1 ? sglir_slice(r->g, x, (int)axis, (int64_t)draw(r, 2), extent - (int64_t)draw(r, 1))
                          : SGLIR_NONE;
    case 4: {
        const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("before", (int64_t)draw(r, 2)),
                                      SGLIR_I("after", (int64_t)draw(r, 2)), SGLIR_I("between", (int64_t)draw(r, 2)) };
        sglir_id out;
        return sglir_emit(r->g, SGLIR_OP_PAD, &x, 1, attrs, 4, &out);
    }
    default: {
        const sglir_named attr = SGLIR_I("axis", axis);
        sglir_id both[2] = { x, sglir_unary(r->g, SGLIR_OP_SIN, x) }, out;
        return sglir_emit(r->g, SGLIR_OP_CONCAT, both, 2, &attr, 1, &out);
    }
    }
}

static sglir_id generate(generator *r)
{
    const int64_t dims[2] = { 2, 3 };
    const double values[3] = { 0.5, -1, 2 };
    const int64_t counts[3] = { 1, 2, 3 };
    sglir_id out, args[3] = { r->seed, r->step, r->seed };
    switch (draw(r, 3)) {
    case 0: {
        const sglir_named attrs[] = { SGLIR_I("axis", 1), SGLIR_INTS("dims", 2, dims), SGLIR_I("dtype", SGL_F64) };
        return sglir_emit(r->g, SGLIR_OP_IOTA, NULL, 0, attrs, 3, &out);
    }
    case 1: {
        const sglir_named attrs[] = { SGLIR_INTS("counts", 3, counts), SGLIR_FLOATS("values", 3, values),
                                      SGLIR_I("dtype", SGL_F64) };
        return sglir_emit(r->g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, &out);
    }
    default: {
        const sglir_named attrs[] = { SGLIR_I("id", (int64_t)draw(r, 100)), SGLIR_INTS("dims", 2, dims),
                                      SGLIR_I("dtype", SGL_F64) };
        return sglir_emit(r->g, SGLIR_OP_RANDOM_NORMAL, args, 3, attrs, 3, &out);
    }
    }
}

static sglir_id product(generator *r)
{
    sglir_id a = any(r);
    const sglir_type of_a = *type_of(r, a);
    if (of_a.rank == 0) return SGLIR_NONE;
    for (int attempt = 0; attempt < 8; attempt++) {
        sglir_id b = any(r);
        const sglir_type of_b = *type_of(r, b);
        if (of_b.rank == 0) continue;
        int64_t i = (int64_t)draw(r, of_a.rank), k = (int64_t)draw(r, of_b.rank);
        if (of_a.dims[i] != of_b.dims[k] || of_a.rank + of_b.rank > 5) continue;
        return squash(r, sglir_dot(r->g, a, b, 0, NULL, NULL, 1, &i, &k));
    }
    return SGLIR_NONE;
}

static sglir_id by_index(generator *r)
{
    sglir_id x = any(r), out, args[2] = { x, r->indices };
    const sglir_type type = *type_of(r, x);
    if (type.rank == 0) return SGLIR_NONE;
    if (draw(r, 2) == 0) return sglir_emit(r->g, SGLIR_OP_GATHER, args, 2, NULL, 0, &out);
    if (type.dims[0] != 6) return SGLIR_NONE;
    const sglir_named extent = SGLIR_I("extent", 5);
    args[0] = r->indices;
    args[1] = x;
    return sglir_emit(r->g, SGLIR_OP_SCATTER_ADD, args, 2, &extent, 1, &out);
}

static sglir_id row_op(generator *r)
{
    sglir_id x = any(r), out;
    const sglir_type type = *type_of(r, x);
    if (type.rank == 0) return SGLIR_NONE;
    if (draw(r, 3) == 0) return sglir_emit(r->g, SGLIR_OP_SOFTMAX, &x, 1, NULL, 0, &out);
    sglir_id args[3] = { x, SGLIR_NONE, SGLIR_NONE };
    for (int i = 0; i < r->count; i++) {
        const sglir_type *t = type_of(r, r->pool[i]);
        if (t->rank == 1 && t->dims[0] == type.dims[type.rank - 1]) args[1] = args[2] = r->pool[i];
    }
    if (args[1] == SGLIR_NONE) return SGLIR_NONE;
    const sglir_named eps = SGLIR_F("eps", 0.01);
    bool centred = draw(r, 2) == 0;
    return sglir_emit(r->g, centred ? SGLIR_OP_LAYER_NORM : SGLIR_OP_RMS_NORM, args, centred ? 3 : 2, &eps, 1, &out);
}

static bool broadcasts_to(const sglir_type *a, const sglir_type *to)
{
    if (a->rank > to->rank) return false;
    for (int i = 1; i <= a->rank; i++) {
        if (a->dims[a->rank - i] != 1 && a->dims[a->rank - i] != to->dims[to->rank - i]) return false;
    }
    return true;
}

/* (x, 1) -> (tanh(x * c + index), x' * y), with c from around the loop */
static sglir_id loop(generator *r)
{
    sglir_id x = any(r), around = any(r), parameters[3], out[2];
    const sglir_type type = *type_of(r, x);
    if (!broadcasts_to(type_of(r, around), &type)) return SGLIR_NONE;
    sglir_id carries[2] = { x, sglir_constant_like(r->g, x, 1) };
    const sglir_type types[3] = { sglir_type_make(SGL_I64, 0, NULL), type, type };
    sglir_id region = sglir_region_begin(r->g, types, 3, parameters);
    sglir_id turned = sglir_broadcast_like(r->g, around, parameters[1]);
    if (sglir_status(r->g) != SGL_OK) return SGLIR_NONE;
    sglir_id next[2];
    next[0] =
        squash(r, sglir_add(r->g, sglir_mul(r->g, parameters[1], turned), sglir_cast(r->g, parameters[0], SGL_F64)));
    next[1] = sglir_mul(r->g, next[0], parameters[2]);
    sglir_region_end(r->g, next, 2);
    const sglir_named steps = SGLIR_I("steps", 1 + (int64_t)draw(r, 3));
    sglir_emit_regions(r->g, SGLIR_OP_SCAN, carries, 2, &steps, 1, &region, 1, out);
    join(r, out[1]);
    return out[0];
}

static void one_more(generator *r)
{
    switch (draw(r, 16)) {
    case 0:
    case 1:
    case 2: join(r, unary(r)); break;
    case 3:
    case 4:
    case 5:
    case 6: join(r, binary(r)); break;
    case 7:
    case 8: join(r, reduce(r)); break;
    case 9:
    case 10: join(r, move(r)); break;
    case 11: join(r, product(r)); break;
    case 12: join(r, by_index(r)); break;
    case 13: join(r, row_op(r)); break;
    case 14: join(r, generate(r)); break;
    default:
        if (!r->smooth) join(r, loop(r)); /* a scan has no derivative yet */
        break;
    }
}

/* ---- the border --------------------------------------------------------------------------------------------- */

static void inputs(generator *r)
{
    static const int64_t shapes[4][2] = { { 2, 3 }, { 4, 3 }, { 6, 2 }, { 3, 4 } };
    static const char *const names[4] = { "a", "b", "c", "x" };
    const int64_t six = 6, three = 3;
    const sglir_type integers = sglir_type_make(SGL_I32, 1, &six), scalar = sglir_type_make(SGL_I64, 0, NULL);
    const sglir_type vector = sglir_type_make(SGL_F64, 1, &three);
    for (int i = 0; i < 4; i++) {
        const sglir_type type = sglir_type_make(SGL_F64, 2, shapes[i]);
        sglir_id value = sglir_input(r->g, i < 3 ? SGL_PARAMETER : SGL_FEED, names[i], &type);
        if (i < 3) r->parameters[i] = value;
        join(r, value);
    }
    join(r, sglir_input(r->g, SGL_PARAMETER, "gain", &vector));
    r->moments = sglir_input(r->g, SGL_STATE, "moments", &vector);
    join(r, r->moments);
    r->indices = sglir_input(r->g, SGL_FEED, "indices", &integers);
    r->seed = sglir_input(r->g, SGL_FEED, "seed", &scalar);
    r->step = sglir_input(r->g, SGL_STATE, "step", &scalar);
}

static sglir_id total(generator *r, sglir_id x)
{
    int64_t axes[SGL_MAX_RANK];
    int rank = type_of(r, x)->rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    return rank == 0 ? x : sglir_reduce(r->g, SGLIR_OP_REDUCE_SUM, x, axes, rank, false);
}

/* A loss over what came last, its gradients by the parameters, and these parameters' next values. */
static void learn(generator *r)
{
    sglir_id loss = sglir_constant(r->g, SGL_F64, 0), gradients[3], args[4];
    for (int i = r->count > 6 ? r->count - 6 : 0; i < r->count; i++) {
        loss = sglir_add(r->g, loss, total(r, squash(r, r->pool[i])));
    }
    args[0] = loss;
    memcpy(args + 1, r->parameters, sizeof r->parameters);
    sglir_emit(r->g, SGLIR_OP_GRAD, args, 4, NULL, 0, gradients);
    sglir_output_add(r->g, SGLIR_FETCH, "loss", loss);
    if (sglir_status(r->g) != SGL_OK) return;
    static const char *const names[3] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) {
        sglir_id next = sglir_sub(r->g, r->parameters[i], sglir_scale(r->g, gradients[i], 0.1));
        sglir_output_add(r->g, SGLIR_UPDATE, names[i], next);
    }
}

static void outputs(generator *r)
{
    char name[3] = "y0";
    for (int i = 0; i < 4; i++) {
        name[1] = (char)('0' + i);
        sglir_output_add(r->g, SGLIR_FETCH, name, any(r));
    }
    sglir_id one = sglir_constant(r->g, SGL_I64, 1);
    sglir_output_add(r->g, SGLIR_UPDATE, "step", sglir_add(r->g, r->step, one));
    sglir_id mean = sglir_reduce(r->g, SGLIR_OP_REDUCE_SUM, r->parameters[0], (const int64_t[]){ 0 }, 1, false);
    sglir_output_add(r->g, SGLIR_UPDATE, "moments", sglir_add(r->g, sglir_scale(r->g, r->moments, 0.9), mean));
}

sglir_graph *random_graph(sglcore_env *env, uint64_t seed)
{
    generator r = { .state = seed * 2 + 1, .smooth = seed % 2 == 0 };
    if (sglir_graph_new(env, "random", &r.g) != SGL_OK) return NULL;
    inputs(&r);
    int steps = LEAST_STEPS + (int)draw(&r, MOST_STEPS - LEAST_STEPS);
    for (int i = 0; i < steps && sglir_status(r.g) == SGL_OK; i++) {
        sglir_set_origin(r.g, "random.lua", i + 1, "", "");
        one_more(&r);
    }
    if (sglir_status(r.g) == SGL_OK && r.smooth) learn(&r);
    if (sglir_status(r.g) == SGL_OK) outputs(&r);
    if (sglir_status(r.g) == SGL_OK) return r.g;
    sglir_graph_free(r.g);
    return NULL;
}
