/* random_program.c -- draws programs. In and out: random_program.h.
 *
 * A pool holds the values drawn so far. An op comes from a case, bound to a random dtype and random extents; its arguments
 * are values of the pool made to fit: cast, reshaped, repeated, cut, and brought into the range that the case asks for.
 * Elementwise ops may take pool values as they are, through the door that broadcasts and promotes. So that a rounding never
 * decides between two results, ops that jump (floor, comparisons) and kinked ones take exact values only: inputs, and what
 * was made of them without rounding. Values that may have grown are squashed before they are used again. */
#include "tests/support/random_program.h"

#include <stdio.h>
#include <string.h>

#include "ir/infer.h"
#include "passes/vjp_rules.h"

enum { MOST_VALUES = 160, MOST_ELEMENTS = 96, MOST_PALETTE = 8, DEPTH = 2 };

typedef struct pooled {
    sglir_id id;
    bool exact;   /* nothing in it was rounded */
    bool tame;    /* its numbers are small */
    bool derives; /* no op without a derivative is behind it */
} pooled;

typedef struct drawer {
    sglcore_env *env;
    sglir_graph *g;
    uint64_t state;
    bool smooth, empties;
    sgl_dtype palette[MOST_PALETTE]; /* dtypes of this program; [0] is its main float */
    int palette_count;
    pooled pool[MOST_VALUES];
    int count;
    int depth; /* of regions */
    int inputs;
    int64_t batch; /* first extent of feeds that are cut into micro-batches, or 0 */
} drawer;

/* ---- choices ------------------------------------------------------------------------------------------------ */

static uint64_t draw(drawer *d, uint64_t below)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (d->state >> 33) % below;
}

static bool one_in(drawer *d, uint64_t chances) { return draw(d, chances) == 0; }

static const sglir_type *type_of(const drawer *d, sglir_id value) { return sglir_type_of(d->g, value); }

static bool is_float(const drawer *d, sglir_id value)
{
    return sglcore_dtype_is_float((sgl_dtype)type_of(d, value)->dtype);
}

static void join(drawer *d, pooled value)
{
    if (value.id == SGLIR_NONE || d->count == MOST_VALUES) return;
    if (sglir_elements(type_of(d, value.id)) > 4 * MOST_ELEMENTS) return;
    d->pool[d->count++] = value;
}

static bool in_palette(const drawer *d, sgl_dtype dtype)
{
    if (!sglcore_dtype_is_float(dtype)) return true;
    for (int i = 0; i < d->palette_count; i++) {
        if (d->palette[i] == dtype) return true;
    }
    return false;
}

static int64_t draw_extent(drawer *d)
{
    static const int64_t extents[] = { 1, 2, 3, 4, 5, 3, 2, 7 };
    if (d->empties && one_in(d, 24)) return 0;
    return extents[draw(d, 8)];
}

/* ---- values made to fit ------------------------------------------------------------------------------------- */

static sglir_id squash(drawer *d, sglir_id x)
{
    return sglir_unary(d->g, one_in(d, 2) ? SGLIR_OP_TANH : SGLIR_OP_SIN, x);
}

/* An integer's remainder by a small number: not negative. */
static sglir_id below(drawer *d, sglir_id x, double number)
{
    return sglir_binary(d->g, SGLIR_OP_REMAINDER, x, sglir_constant_like(d->g, x, number));
}

static pooled to_dtype(drawer *d, pooled v, sgl_dtype dtype)
{
    sgl_dtype from = (sgl_dtype)type_of(d, v.id)->dtype;
    if (from == dtype) return v;
    bool number = from != SGL_BOOL && !sglcore_dtype_is_float(from);
    if (number && (sglcore_dtype_is_float(dtype) || dtype == SGL_BOOL)) v.id = below(d, v.id, 5);
    if (sglcore_dtype_is_float(from) && !v.tame && !v.exact) v.id = squash(d, v.id);
    if (sglcore_dtype_is_float(from) && !sglcore_dtype_is_signed(dtype) && dtype != SGL_BOOL)
        v.id = sglir_unary(d->g, SGLIR_OP_ABS, v.id);
    v.id = sglir_cast(d->g, v.id, dtype);
    v.exact = v.exact && !sglcore_dtype_is_float(dtype);
    v.tame = true;
    return v;
}

/* As many of its elements, again from the front when there are too few, as the shape has. */
static sglir_id to_shape(drawer *d, sglir_id x, const sglir_type *shape)
{
    int64_t have = sglir_elements(type_of(d, x)), want = sglir_elements(shape);
    if (sglir_same_shape(type_of(d, x), shape)) return x;
    if (have == 0)
        return sglir_broadcast(d->g, sglir_constant(d->g, (sgl_dtype)type_of(d, x)->dtype, 1), shape->rank,
                               shape->dims);
    if (have != want) x = sglir_reshape(d->g, x, 1, &have);
    if (have < want) {
        int64_t times = (want + have - 1) / have, rows[2] = { times, have }, row[2] = { 1, have }, all = times * have;
        x = sglir_broadcast(d->g, sglir_reshape(d->g, x, 2, row), 2, rows);
        x = sglir_reshape(d->g, x, 1, &all);
        have = all;
    }
    if (have > want) {
        int64_t start = (int64_t)draw(d, (uint64_t)(have - want + 1));
        x = sglir_slice(d->g, x, 0, start, start + want);
    }
    return sglir_reshape(d->g, x, shape->rank, shape->dims);
}

/* Into the range that a case's letter names. */
static pooled to_range(drawer *d, pooled v, char letter, bool exact)
{
    if (!is_float(d, v.id)) {
        if (type_of(d, v.id)->dtype == SGL_BOOL) return v;
        if (letter == 'p') v.id = sglir_add(d->g, below(d, v.id, 4), sglir_constant_like(d->g, v.id, 1));
        if (letter == 'i' || letter == 'j' || letter == 'o' || letter == 'u') v.id = below(d, v.id, 6);
        return v;
    }
    if (letter == 'o') v = (pooled){ sglir_constant_like(d->g, v.id, 1), true, true, true };
    if (exact && (letter == 'p' || letter == 'u')) v.id = sglir_unary(d->g, SGLIR_OP_ABS, v.id);
    if (exact) return v;
    if (letter == 'p' || letter == 'u') {
        v.id = sglir_unary(d->g, SGLIR_OP_SIGMOID, v.id);
        if (letter == 'p') v.id = sglir_add(d->g, v.id, sglir_constant_like(d->g, v.id, 0.5));
        v.exact = false;
    } else if (!v.tame) {
        v.id = squash(d, v.id);
        v.exact = false;
    }
    v.tame = true;
    return v;
}

static pooled new_input(drawer *d, sgl_role role, sgl_dtype dtype, int rank, const int64_t *dims)
{
    char name[16];
    sglir_type type = sglir_type_make(dtype, rank, dims);
    snprintf(name, sizeof name, "x%d", d->inputs++);
    return (pooled){ sglir_input(d->g, role, name, &type), true, true, true };
}

/* A value of the pool as the type and letter ask; with `exact`, one that nothing was rounded in. */
static pooled fitting(drawer *d, const sglir_type *asked, char letter, bool exact)
{
    const sglir_type copy = *asked, *type = &copy; /* what is asked may stand in the graph, which grows */
    pooled best = { SGLIR_NONE, false, false, false };
    for (int attempt = 0; attempt < 12; attempt++) {
        pooled v = d->pool[draw(d, (uint64_t)d->count)];
        bool same = type_of(d, v.id)->dtype == type->dtype;
        bool jumps = is_float(d, v.id) && !sglcore_dtype_is_float((sgl_dtype)type->dtype); /* a cast that truncates */
        if (jumps && !v.exact) continue;
        if (exact && (!v.exact || (!same && sglcore_dtype_is_float((sgl_dtype)type->dtype)))) continue;
        best = v;
        if (same) break;
    }
    if (best.id == SGLIR_NONE) /* nothing was found that may be used: a constant is */
        best = (pooled){ sglir_constant(d->g, (sgl_dtype)type->dtype, (double)draw(d, 2)), true, true, true };
    best = to_dtype(d, best, (sgl_dtype)type->dtype);
    best.id = to_shape(d, best.id, type);
    return to_range(d, best, letter, exact);
}

/* ---- ops by their cases --------------------------------------------------------------------------------------- */

static bool derives(const sglir_graph *from)
{
    for (int64_t n = 0; n < from->nodes.count; n++) {
        if (sglpass_vjp_rule((sglir_op)from->nodes.data[n].op) == sglpass_vjp_refuse) return false;
    }
    return true;
}

static void graft_region(drawer *d, const sglir_graph *from, sglir_id region, sglir_id *map);

/* The node of another graph, its arguments mapped, emitted here; its regions with it. */
static void graft_node(drawer *d, const sglir_graph *from, sglir_id id, sglir_id *map)
{
    const sglir_node *node = sglir_node_at(from, id);
    sglir_named named[16];
    sglir_id args[16], regions[4];
    if (node->arg_count > 16 || node->region_count > 4) return;
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = map[sglir_arg(from, node, i)];
    int count = sglir_attrs_named(from, node, named);
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &from->regions.data[node->region_first + r];
        sglir_type types[16];
        sglir_id parameters[16];
        for (int64_t i = 0; i < region->parameters.count && i < 16; i++)
            types[i] = *sglir_type_of(from, region->parameters.data[i]);
        regions[r] = sglir_region_begin(d->g, types, (int)region->parameters.count, parameters);
        for (int64_t i = 0; i < region->parameters.count; i++) map[region->parameters.data[i]] = parameters[i];
        graft_region(d, from, node->region_first + r, map);
    }
    sglir_emit_regions(d->g, (sglir_op)node->op, args, (int)node->arg_count, named, count, regions,
                       (int)node->region_count, &map[node->out_first]);
}

static void graft_region(drawer *d, const sglir_graph *from, sglir_id region, sglir_id *map)
{
    const sglir_region *r = &from->regions.data[region];
    sglir_id results[16];
    for (int64_t n = 0; n < r->nodes.count && sglir_status(d->g) == SGL_OK; n++) {
        if (sglir_node_at(from, r->nodes.data[n])->op != SGLIR_OP_INPUT) graft_node(d, from, r->nodes.data[n], map);
    }
    if (region == 0) return;
    for (int64_t i = 0; i < r->results.count && i < 16; i++) results[i] = map[r->results.data[i]];
    sglir_region_end(d->g, results, (int)r->results.count);
}

/* Whether all of the case's values have dtypes of this program and moderate sizes. */
static bool suits(const drawer *d, const sglir_graph *from)
{
    for (int64_t v = 0; v < from->values.count; v++) {
        const sglir_type *type = &from->values.data[v].type;
        if (!in_palette(d, (sgl_dtype)type->dtype) || sglir_elements(type) > MOST_ELEMENTS) return false;
    }
    return true;
}

static void bind(drawer *d, op_binding *b)
{
    *b = op_binding_plain();
    for (int i = 0; i < 26; i++) b->extents[i] = draw_extent(d);
    b->star_rank = one_in(d, 10) ? 3 + (int)draw(d, 4) : (int)draw(d, 3);
    for (int i = 0; i < b->star_rank; i++) b->star[i] = b->star_rank > 2 ? 1 + (int64_t)draw(d, 2) : draw_extent(d);
    b->dtype = one_in(d, 3) ? (sgl_dtype)draw(d, SGL_DTYPE_COUNT) : d->palette[draw(d, (uint64_t)d->palette_count)];
    b->index = one_in(d, 2) ? SGL_I32 : d->palette[d->palette_count - 1];
}

static void by_case(drawer *d, const op_case *c)
{
    op_binding b;
    bind(d, &b);
    if (c->dtypes != OP_NONE && !op_case_takes(c, b.dtype)) b.dtype = c->dtypes == OP_BOOLS ? SGL_BOOL : d->palette[0];
    if (c->dtypes != OP_NONE && !op_case_takes(c, b.dtype)) b.dtype = SGL_I32;
    sglir_graph *from = op_case_graph(d->env, c, &b);
    if (from == NULL) return;
    sglir_id map[256];
    bool exact = c->kind == OP_JUMPS || c->kind == OP_KINKED, all_exact = true, all_derive = derives(from), tame = true;
    if (from->values.count <= 256 && suits(d, from)) {
        for (int64_t n = 0; n < from->regions.data[0].nodes.count; n++) {
            const sglir_node *node = sglir_node_at(from, from->regions.data[0].nodes.data[n]);
            if (node->op != SGLIR_OP_INPUT) continue;
            const char letter = sglir_attr_string(from, node, "name")[0];
            pooled v = fitting(d, sglir_type_of(from, node->out_first), letter, exact);
            all_exact = all_exact && v.exact;
            all_derive = all_derive && v.derives;
            tame = tame && v.tame;
            map[node->out_first] = v.id;
        }
        graft_region(d, from, 0, map);
        bool moves = (sglir_ops[c->op].flags & SGLIR_MOVEMENT) != 0;
        for (int64_t i = 0; i < from->outputs.count && sglir_status(d->g) == SGL_OK; i++) {
            sglir_id value = map[from->outputs.data[i].value];
            join(d, (pooled){ value, all_exact && c->condition == 0, moves && tame, all_derive });
        }
    }
    sglir_graph_free(from);
}

static bool broadcast_together(const sglir_type *a, const sglir_type *b)
{
    for (int i = 1; i <= a->rank && i <= b->rank; i++) {
        int64_t x = a->dims[a->rank - i], y = b->dims[b->rank - i];
        if (x != y && x != 1 && y != 1) return false;
    }
    return true;
}

/* An elementwise op on two values as they are: broadcast, and promoted where their dtypes differ. */
static void by_door(drawer *d, const op_case *c)
{
    bool exact = c->kind == OP_JUMPS || c->kind == OP_KINKED;
    for (int attempt = 0; attempt < 20; attempt++) {
        pooled a = d->pool[draw(d, (uint64_t)d->count)], b = d->pool[draw(d, (uint64_t)d->count)];
        sgl_dtype x = (sgl_dtype)type_of(d, a.id)->dtype, y = (sgl_dtype)type_of(d, b.id)->dtype;
        if (!broadcast_together(type_of(d, a.id), type_of(d, b.id)) || (exact && !(a.exact && b.exact))) continue;
        sgl_dtype both;
        if (x != y && (exact || !sglcore_dtype_is_float(x) || !sglcore_dtype_is_float(y))) continue;
        if (!op_case_takes(c, x) || !op_case_takes(c, y)) continue;
        if (!sglir_promote(x, y, &both) || !in_palette(d, both)) continue;
        a = to_range(d, a, 'x', exact);
        b = to_range(d, b, c->op == SGLIR_OP_DIV || c->op == SGLIR_OP_REMAINDER ? 'p' : 'x', exact);
        sglir_id args[2] = { a.id, b.id }, out = SGLIR_NONE;
        sglir_build(d->g, c->op, args, 2, NULL, 0, &out);
        if (sglir_status(d->g) == SGL_OK)
            join(d, (pooled){ out, a.exact && b.exact && c->condition == 0, false, a.derives && b.derives });
        return;
    }
}

/* ---- regions -------------------------------------------------------------------------------------------------- */

static void some_steps(drawer *d, int steps);

/* A region with these parameters, a few ops in it, and results of these types; values around it may be used. */
static sglir_id random_region(drawer *d, const sglir_type *parameters, int count, const sglir_type *results,
                              int result_count)
{
    sglir_id ids[8], out[8];
    int around = d->count;
    sglir_id region = sglir_region_begin(d->g, parameters, count, ids);
    for (int i = 0; i < count; i++) join(d, (pooled){ ids[i], false, true, true });
    d->depth++;
    some_steps(d, 2 + (int)draw(d, 4));
    d->depth--;
    for (int i = 0; i < result_count; i++) {
        pooled v = fitting(d, &results[i], 'x', false);
        out[i] = sglcore_dtype_is_float((sgl_dtype)results[i].dtype) ? squash(d, v.id) : v.id;
    }
    sglir_region_end(d->g, out, result_count);
    d->count = around;
    return region;
}

static void random_scan(drawer *d)
{
    int count = 1 + (int)draw(d, 3);
    sglir_id carries[3], out[3], region;
    sglir_type types[4] = { sglir_type_make(SGL_I64, 0, NULL) };
    bool all_derive = sglpass_vjp_rule(SGLIR_OP_SCAN) != sglpass_vjp_refuse;
    for (int i = 0; i < count; i++) {
        pooled v = to_range(d, d->pool[draw(d, (uint64_t)d->count)], 'x', false);
        carries[i] = v.id;
        all_derive = all_derive && v.derives;
        types[i + 1] = *type_of(d, v.id);
    }
    region = random_region(d, types, count + 1, types + 1, count);
    const sglir_named steps = SGLIR_I("steps", (int64_t)draw(d, 4));
    sglir_emit_regions(d->g, SGLIR_OP_SCAN, carries, count, &steps, 1, &region, 1, out);
    for (int i = 0; i < count && sglir_status(d->g) == SGL_OK; i++)
        join(d, (pooled){ out[i], false, true, all_derive });
}

/* The kinds of regions: each draws one op with its regions. */
static void (*const region_kinds[])(drawer *d) = { random_scan };
enum { REGION_KINDS = sizeof region_kinds / sizeof region_kinds[0] };

/* ---- a program --------------------------------------------------------------------------------------------------- */

static void one_step(drawer *d)
{
    static int cases = -1;
    op_case c;
    if (cases < 0) {
        for (cases = 0; op_case_at(cases, &c); cases++) continue;
    }
    if (d->depth < DEPTH && one_in(d, 24) && !d->smooth) {
        region_kinds[draw(d, REGION_KINDS)](d);
        return;
    }
    bool moves = one_in(d, 4); /* movement between arithmetic is what fusing and places in memory go wrong over */
    for (int attempt = 0; attempt < 12; attempt++) {
        op_case_at((int)draw(d, (uint64_t)cases), &c);
        if (!moves || (sglir_ops[c.op].flags & SGLIR_MOVEMENT)) break;
    }
    if (c.kind == OP_REFUSED) return;
    if (d->smooth && (c.kind == OP_KINKED || c.kind == OP_JUMPS)) return;
    bool elementwise = (sglir_ops[c.op].flags & SGLIR_ELEMENTWISE) != 0 && c.attributes != NULL;
    if (elementwise && op_case_arguments(&c) == 2 && strchr(c.arguments, ':') == NULL && one_in(d, 2))
        by_door(d, &c);
    else
        by_case(d, &c);
}

static void some_steps(drawer *d, int steps)
{
    for (int i = 0; i < steps && sglir_status(d->g) == SGL_OK; i++) {
        sglir_set_origin(d->g, "random.lua", i + 1, "", "");
        one_step(d);
    }
}

static void choose_palette(drawer *d, uint64_t seed)
{
    static const sgl_dtype whole[] = { SGL_I32, SGL_I64, SGL_BOOL, SGL_U8, SGL_I16, SGL_I8, SGL_U16, SGL_U32 };
    static const sgl_dtype low[] = { SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2 };
    switch (seed % 4) {
    case 0:
    case 1: d->palette[d->palette_count++] = SGL_F64; break;
    case 2: d->palette[d->palette_count++] = SGL_F32; break;
    default:
        d->palette[d->palette_count++] = low[draw(d, one_in(d, 3) ? 4 : 2)];
        d->palette[d->palette_count++] = SGL_F32;
        break;
    }
    d->palette[d->palette_count++] = SGL_BOOL;
    for (int i = 0; i < 2; i++) d->palette[d->palette_count++] = whole[draw(d, 8)];
    d->palette[d->palette_count++] = one_in(d, 2) ? SGL_I64 : SGL_I16;
    d->smooth = seed % 4 == 0;
    d->empties = seed % 4 != 3 && seed % 3 == 0;
}

static void inputs(drawer *d, pooled *parameters, pooled *state, pooled *counter)
{
    for (int i = 0; i < d->palette_count; i++) {
        int64_t dims[3] = { draw_extent(d), draw_extent(d), draw_extent(d) };
        int rank = (int)draw(d, 4);
        if (d->batch > 0) {
            dims[0] = d->batch;
            rank = rank > 0 ? rank : 1;
        }
        join(d, new_input(d, SGL_FEED, d->palette[i], rank, dims));
    }
    for (int i = 0; i < 3; i++) {
        int64_t dims[3] = { 2 + (int64_t)draw(d, 3), 3, 2 };
        parameters[i] = new_input(d, SGL_PARAMETER, d->palette[0], (int)draw(d, 4), dims);
        join(d, parameters[i]);
    }
    *state = new_input(d, SGL_STATE, d->palette[0], 1, (int64_t[]){ 5 });
    *counter = new_input(d, SGL_STATE, SGL_I64, 0, NULL);
    join(d, *state);
    join(d, *counter);
}

static sglir_id total(drawer *d, sglir_id x)
{
    int64_t axes[SGL_MAX_RANK];
    int rank = type_of(d, x)->rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    return rank == 0 ? x : sglir_reduce(d->g, SGLIR_OP_REDUCE_SUM, x, axes, rank, false);
}

/* A sum over values drawn of late; its gradients by the parameters and one value between; the parameters' next values. */
static void learn(drawer *d, const pooled *parameters)
{
    sgl_dtype wide = d->palette[0] == SGL_F64 ? SGL_F64 : SGL_F32;
    sglir_id loss = sglir_constant(d->g, wide, 0), args[5], gradients[4];
    int terms = 0, between = -1;
    for (int i = d->count - 1; i >= 0 && terms < 12; i--) {
        if (!d->pool[i].derives || !is_float(d, d->pool[i].id)) continue;
        if (terms == 2 && type_of(d, d->pool[i].id)->dtype == wide) between = i;
        loss = sglir_add(d->g, loss, sglir_cast(d->g, total(d, squash(d, d->pool[i].id)), wide));
        terms++;
    }
    args[0] = loss;
    for (int i = 0; i < 3; i++) args[i + 1] = parameters[i].id;
    int count = 3;
    if (between >= 0) args[++count] = d->pool[between].id;
    sglir_emit(d->g, SGLIR_OP_GRAD, args, count + 1, NULL, 0, gradients);
    sglir_output_add(d->g, SGLIR_FETCH, "loss", loss);
    if (between >= 0) sglir_output_add(d->g, SGLIR_FETCH, "d between", gradients[3]);
    for (int i = 0; i < 3 && sglir_status(d->g) == SGL_OK; i++) {
        char name[32];
        const char *parameter = sglir_attr_string(d->g, sglir_maker(d->g, parameters[i].id), "name");
        snprintf(name, sizeof name, "%s", parameter);
        sglir_output_add(d->g, SGLIR_UPDATE, name,
                         sglir_sub(d->g, parameters[i].id, sglir_scale(d->g, gradients[i], 0.125)));
        snprintf(name, sizeof name, "d %d", i);
        sglir_output_add(d->g, SGLIR_FETCH, name, gradients[i]);
    }
}

static void update(drawer *d, pooled state, sglir_id next)
{
    char name[32];
    snprintf(name, sizeof name, "%s", sglir_attr_string(d->g, sglir_maker(d->g, state.id), "name"));
    sglir_output_add(d->g, SGLIR_UPDATE, name, next);
}

sglir_graph *random_program(sglcore_env *env, uint64_t seed, random_traits *traits)
{
    drawer d = { .env = env, .state = seed * 2 + 1 };
    pooled parameters[3], state, counter;
    if (sglir_graph_new(env, "random", &d.g) != SGL_OK) return NULL;
    for (int i = 0; i < 4; i++) draw(&d, 2);
    choose_palette(&d, seed);
    *traits = (random_traits){ .smooth = d.smooth, .micro = 1, .steps = 1 + (int)draw(&d, 2) };
    if (one_in(&d, 4)) {
        d.batch = 4;
        traits->micro = seed % 8 < 4 ? 2 : 4;
    }
    inputs(&d, parameters, &state, &counter);
    some_steps(&d, (d.smooth ? 8 : 12) + (int)draw(&d, d.smooth ? 20 : 50));
    traits->derived = d.smooth || one_in(&d, 2);
    if (sglir_status(d.g) == SGL_OK && traits->derived) learn(&d, parameters);
    for (int i = 0; i < 5 && sglir_status(d.g) == SGL_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sglir_output_add(d.g, SGLIR_FETCH, name,
                         d.pool[d.count - 1 - (int)draw(&d, (uint64_t)(d.count < 12 ? d.count : 12))].id);
    }
    if (sglir_status(d.g) == SGL_OK) {
        pooled v = fitting(&d, type_of(&d, state.id), 'x', false);
        update(&d, state, sglir_add(d.g, sglir_scale(d.g, state.id, 0.5), sglir_scale(d.g, squash(&d, v.id), 0.5)));
        update(&d, counter, sglir_add(d.g, counter.id, sglir_constant(d.g, SGL_I64, 1)));
    }
    if (sglir_status(d.g) == SGL_OK) return d.g;
    sglir_graph_free(d.g);
    return NULL;
}
