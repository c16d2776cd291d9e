/* random_program.c -- draws programs. In and out: random_program.h.
 *
 * A pool holds the values drawn so far. An op comes from a case, bound to a random dtype and random extents; its arguments
 * are values of the pool made to fit: cast, reshaped, repeated, cut, and brought into the range that the case asks for.
 * Elementwise ops may take pool values as they are, through the door that broadcasts and promotes. So that a rounding never
 * decides between two results, ops that jump (floor, comparisons) and kinked ones take exact values only: inputs, and what
 * was made of them without rounding. Values that may have grown are squashed before they are used again. */
#include "tests/support/random_parts.h"

#include <stdio.h>
#include <string.h>

#include "ir/infer.h"
#include "passes/vjp_rules.h"

enum { MOST_ELEMENTS = 96, MOST_OF_LARGE = 6000, DEPTH = 2 };

/* ---- choices ------------------------------------------------------------------------------------------------ */

uint64_t random_draw(random_drawer *d, uint64_t below)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (d->state >> 33) % below;
}

bool random_one_in(random_drawer *d, uint64_t chances) { return random_draw(d, chances) == 0; }

const sglir_type *random_type(const random_drawer *d, sglir_id value) { return sglir_type_of(d->g, value); }

bool random_is_float(const random_drawer *d, sglir_id value)
{
    return sglcore_dtype_is_float((sgl_dtype)random_type(d, value)->dtype);
}

void random_join(random_drawer *d, random_value value)
{
    if (value.id == SGLIR_NONE || d->count == RANDOM_MOST_VALUES) return;
    if (sglir_elements(random_type(d, value.id)) > (d->large ? MOST_OF_LARGE : 4 * MOST_ELEMENTS)) return;
    if (!random_is_float(d, value.id)) value.exact = true; /* no rounding decides an integer: see above */
    d->pool[d->count++] = value;
}

random_value random_pick(random_drawer *d)
{
    bool within = d->inner < d->count && d->depth > 0 && random_one_in(d, 2);
    int from = within ? d->inner : 0;
    return d->pool[from + (int)random_draw(d, (uint64_t)(d->count - from))];
}

static bool in_palette(const random_drawer *d, sgl_dtype dtype)
{
    if (!sglcore_dtype_is_float(dtype)) return true;
    for (int i = 0; i < d->palette_count; i++) {
        if (d->palette[i] == dtype) return true;
    }
    return false;
}

int64_t random_extent(random_drawer *d)
{
    static const int64_t extents[] = { 1, 2, 3, 4, 5, 3, 2, 7 };
    if (d->empties && random_one_in(d, 24)) return 0;
    return extents[random_draw(d, 8)];
}

/* ---- values made to fit ------------------------------------------------------------------------------------- */

sglir_id random_squash(random_drawer *d, sglir_id x)
{
    return sglir_unary(d->g, random_one_in(d, 2) ? SGLIR_OP_TANH : SGLIR_OP_SIN, x);
}

/* An integer's remainder by a small number: not negative. */
static sglir_id below(random_drawer *d, sglir_id x, double number)
{
    return sglir_binary(d->g, SGLIR_OP_REMAINDER, x, sglir_constant_like(d->g, x, number));
}

static random_value to_dtype(random_drawer *d, random_value v, sgl_dtype dtype)
{
    sgl_dtype from = (sgl_dtype)random_type(d, v.id)->dtype;
    if (from == dtype) return v;
    bool number = from != SGL_BOOL && !sglcore_dtype_is_float(from);
    if (number && (sglcore_dtype_is_float(dtype) || dtype == SGL_BOOL)) v.id = below(d, v.id, 5);
    if (sglcore_dtype_is_float(from) && !v.tame && !v.exact) v.id = random_squash(d, v.id);
    if (sglcore_dtype_is_float(from) && !sglcore_dtype_is_signed(dtype) && dtype != SGL_BOOL)
        v.id = sglir_unary(d->g, SGLIR_OP_ABS, v.id);
    v.id = sglir_cast(d->g, v.id, dtype);
    v.exact = v.exact && !sglcore_dtype_is_float(dtype);
    v.tame = true;
    return v;
}

/* As many of its elements, again from the front when there are too few, as the shape has. */
static sglir_id to_shape(random_drawer *d, sglir_id x, const sglir_type *shape)
{
    int64_t have = sglir_elements(random_type(d, x)), want = sglir_elements(shape);
    if (sglir_same_shape(random_type(d, x), shape)) return x;
    if (have == 0)
        return sglir_broadcast(d->g, sglir_constant(d->g, (sgl_dtype)random_type(d, x)->dtype, 1), shape->rank,
                               shape->dims);
    if (have != want) x = sglir_reshape(d->g, x, 1, &have);
    if (have < want) {
        int64_t times = (want + have - 1) / have, rows[2] = { times, have }, row[2] = { 1, have }, all = times * have;
        x = sglir_broadcast(d->g, sglir_reshape(d->g, x, 2, row), 2, rows);
        x = sglir_reshape(d->g, x, 1, &all);
        have = all;
    }
    if (have > want) {
        int64_t start = (int64_t)random_draw(d, (uint64_t)(have - want + 1));
        x = sglir_slice(d->g, x, 0, start, start + want);
    }
    return sglir_reshape(d->g, x, shape->rank, shape->dims);
}

/* Into the range that a case's letter names. */
random_value random_to_range(random_drawer *d, random_value v, char letter, bool exact)
{
    if (!random_is_float(d, v.id)) {
        if (random_type(d, v.id)->dtype == SGL_BOOL) return v;
        if (letter == 'p') v.id = sglir_add(d->g, below(d, v.id, 4), sglir_constant_like(d->g, v.id, 1));
        if (letter == 'i' || letter == 'j' || letter == 'o' || letter == 'u') v.id = below(d, v.id, 6);
        return v;
    }
    if (letter == 'o') v = (random_value){ sglir_constant_like(d->g, v.id, 1), true, true, true, false };
    if (exact && (letter == 'p' || letter == 'u')) v.id = sglir_unary(d->g, SGLIR_OP_ABS, v.id);
    if (exact) return v;
    if (letter == 'p' || letter == 'u') {
        v.id = sglir_unary(d->g, SGLIR_OP_SIGMOID, v.id);
        if (letter == 'p') v.id = sglir_add(d->g, v.id, sglir_constant_like(d->g, v.id, 0.5));
        v.exact = false;
    } else if (!v.tame) {
        v.id = random_squash(d, v.id);
        v.exact = false;
    }
    v.tame = true;
    return v;
}

random_value random_input(random_drawer *d, sgl_role role, sgl_dtype dtype, int rank, const int64_t *dims)
{
    char name[16];
    sglir_type type = sglir_type_make(dtype, rank, dims);
    snprintf(name, sizeof name, "x%d", d->inputs++);
    return (random_value){ sglir_input(d->g, role, name, &type), true, true, true, false };
}

random_value random_fit(random_drawer *d, random_value v, const sglir_type *asked, char letter, bool exact)
{
    const sglir_type type = *asked; /* what is asked may stand in the graph, which grows */
    v = to_dtype(d, v, (sgl_dtype)type.dtype);
    v.id = to_shape(d, v.id, &type);
    return random_to_range(d, v, letter, exact);
}

/* Where exact numbers are asked for, every other time a parameter is: else few gradients go through what has kinks. */
static random_value pick_for(random_drawer *d, bool exact)
{
    if (exact && d->parameter_count > 0 && !random_one_in(d, 3))
        return d->pool[d->parameters + (int)random_draw(d, (uint64_t)d->parameter_count)];
    return random_pick(d);
}

random_value random_fitting(random_drawer *d, const sglir_type *type, char letter, bool exact)
{
    random_value best = { SGLIR_NONE, false, false, false, false };
    for (int attempt = 0; attempt < 12; attempt++) {
        random_value v = pick_for(d, exact);
        bool same = random_type(d, v.id)->dtype == type->dtype;
        bool jumps =
            random_is_float(d, v.id) && !sglcore_dtype_is_float((sgl_dtype)type->dtype); /* a cast that truncates */
        if (jumps && !v.exact) continue;
        if (exact && (!v.exact || (!same && sglcore_dtype_is_float((sgl_dtype)type->dtype)))) continue;
        best = v;
        if (same) break;
    }
    if (best.id == SGLIR_NONE) /* nothing was found that may be used: a constant is */
        best = (random_value){ sglir_constant(d->g, (sgl_dtype)type->dtype, (double)random_draw(d, 2)), true, true,
                               true, false };
    return random_fit(d, best, type, letter, exact);
}

/* ---- ops by their cases --------------------------------------------------------------------------------------- */

static bool derives(const sglir_graph *from)
{
    for (int64_t n = 0; n < from->nodes.count; n++) {
        const sglir_node *node = &from->nodes.data[n];
        if (sglpass_vjp_rule((sglir_op)node->op) == sglpass_vjp_refuse) return false;
        if (node->op == SGLIR_OP_WHILE && sglir_attr_int(from, node, "limit") < 0) return false;
    }
    return true;
}

static void graft_region(random_drawer *d, const sglir_graph *from, sglir_id region, sglir_id *map);

/* The node of another graph, its arguments mapped, emitted here; its regions with it. */
static void graft_node(random_drawer *d, const sglir_graph *from, sglir_id id, sglir_id *map)
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

static void graft_region(random_drawer *d, const sglir_graph *from, sglir_id region, sglir_id *map)
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
static bool suits(const random_drawer *d, const sglir_graph *from)
{
    for (int64_t v = 0; v < from->values.count; v++) {
        const sglir_type *type = &from->values.data[v].type;
        if (!in_palette(d, (sgl_dtype)type->dtype)) return false;
        if (sglir_elements(type) > (d->large ? MOST_OF_LARGE : MOST_ELEMENTS)) return false;
    }
    return true;
}

static void bind(random_drawer *d, op_binding *b, bool moves)
{
    static const int64_t long_extents[] = { 45, 13, 40, 50 };
    *b = op_binding_plain();
    for (int i = 0; i < 26; i++) {
        bool is_long = d->large && moves && random_one_in(d, 3);
        b->extents[i] = is_long ? long_extents[random_draw(d, 4)] : random_extent(d);
    }
    b->star_rank = random_one_in(d, 10) ? 3 + (int)random_draw(d, 4) : (int)random_draw(d, 3);
    for (int i = 0; i < b->star_rank; i++)
        b->star[i] = b->star_rank > 2 ? 1 + (int64_t)random_draw(d, 2) : random_extent(d);
    if (d->large && random_one_in(d, 2)) random_large_shape(d, &b->star_rank, b->star);
    b->dtype = random_one_in(d, 3) ? (sgl_dtype)random_draw(d, SGL_DTYPE_COUNT)
                                   : d->palette[random_draw(d, (uint64_t)d->palette_count)];
    b->index = random_one_in(d, 2) ? SGL_I32 : d->palette[d->palette_count - 1];
}

/* The case in some dtype and some extents, small ones after a few others; NULL when none would do. */
static sglir_graph *bound_case(random_drawer *d, const op_case *c, bool moves)
{
    op_binding b;
    for (int attempt = 0; attempt < 6; attempt++) {
        bind(d, &b, moves);
        if ((c->kind == OP_KINKED || c->kind == OP_ONCE) && !random_one_in(d, 3))
            b.dtype = d->palette[0]; /* of integers nothing is derived */
        for (int i = 0; attempt > 3 && i < 26; i++) b.extents[i] = 1 + (int64_t)random_draw(d, 3);
        if (c->dtypes != OP_NONE && !op_case_takes(c, b.dtype))
            b.dtype = c->dtypes == OP_BOOLS ? SGL_BOOL : d->palette[0];
        if (c->dtypes != OP_NONE && !op_case_takes(c, b.dtype)) b.dtype = SGL_I32;
        sglir_graph *from = op_case_graph(d->env, c, &b);
        if (from == NULL || suits(d, from)) return from;
        sglir_graph_free(from);
    }
    return NULL;
}

/* The lse of a query that sees no key is -inf: its sine is no number, and a value that is none is multiplied by 0 where nothing is
 * seen by what attention is made of, and left out by its kernel. */
static sglir_id settled(random_drawer *d, const op_case *c, sglir_id value)
{
    const sglir_named least = SGLIR_F("minimum", -30);
    sglir_id out = SGLIR_NONE;
    if (c->op != SGLIR_OP_ATTENTION || sglir_status(d->g) != SGL_OK) return value;
    return sglir_emit(d->g, SGLIR_OP_CLAMP, &value, 1, &least, 1, &out);
}

static void by_case(random_drawer *d, const op_case *c)
{
    bool moves = (sglir_ops[c->op].flags & SGLIR_MOVEMENT) != 0;
    sglir_graph *from = bound_case(d, c, moves);
    if (from == NULL) return;
    sglir_id map[256];
    bool exact = c->kind == OP_JUMPS || c->kind == OP_KINKED, all_exact = true, all_derive = derives(from), tame = true;
    if (from->values.count <= 256) {
        for (int64_t n = 0; n < from->regions.data[0].nodes.count; n++) {
            const sglir_node *node = sglir_node_at(from, from->regions.data[0].nodes.data[n]);
            if (node->op != SGLIR_OP_INPUT) continue;
            const char letter = sglir_attr_string(from, node, "name")[0];
            random_value v = random_fitting(d, sglir_type_of(from, node->out_first), letter, exact);
            all_exact = all_exact && v.exact;
            all_derive = all_derive && v.derives;
            tame = tame && v.tame;
            map[node->out_first] = v.id;
        }
        graft_region(d, from, 0, map);
        for (int64_t i = 0; i < from->outputs.count && sglir_status(d->g) == SGL_OK; i++) {
            sglir_id value = settled(d, c, map[from->outputs.data[i].value]);
            random_join(d, (random_value){ value, all_exact && c->condition == 0, moves && tame, all_derive,
                                           c->kind == OP_KINKED || c->kind == OP_ONCE });
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
static void by_door(random_drawer *d, const op_case *c)
{
    bool exact = c->kind == OP_JUMPS || c->kind == OP_KINKED;
    for (int attempt = 0; attempt < 20; attempt++) {
        random_value a = random_pick(d), b = random_pick(d);
        sgl_dtype x = (sgl_dtype)random_type(d, a.id)->dtype, y = (sgl_dtype)random_type(d, b.id)->dtype;
        if (!broadcast_together(random_type(d, a.id), random_type(d, b.id)) || (exact && !(a.exact && b.exact)))
            continue;
        sgl_dtype both;
        if (x != y && (exact || !sglcore_dtype_is_float(x) || !sglcore_dtype_is_float(y))) continue;
        if (!op_case_takes(c, x) || !op_case_takes(c, y)) continue;
        if (!sglir_promote(x, y, &both)) { /* no common dtype, as build.c's table says: a script casts one of them */
            b = to_dtype(d, b, x);
            both = x;
        }
        if (!in_palette(d, both)) continue;
        a = random_to_range(d, a, 'x', exact);
        b = random_to_range(d, b, c->op == SGLIR_OP_DIV || c->op == SGLIR_OP_REMAINDER ? 'p' : 'x', exact);
        sglir_id args[2] = { a.id, b.id }, out = SGLIR_NONE;
        sglir_build(d->g, c->op, args, 2, NULL, 0, &out);
        if (sglir_status(d->g) == SGL_OK)
            random_join(d, (random_value){ out, a.exact && b.exact && c->condition == 0, false, a.derives && b.derives,
                                           false });
        return;
    }
}

/* ---- a program --------------------------------------------------------------------------------------------------- */

/* Where the cases of each op begin in the table, and how many there are. */
typedef struct case_range {
    int first, count;
} case_range;

static int find_ranges(case_range *ranges)
{
    op_case c, last = { .op = SGLIR_OP_COUNT };
    int count = 0;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.op != last.op) ranges[count++] = (case_range){ n, 0 };
        ranges[count - 1].count++;
        last = c;
    }
    return count;
}

/* An op first, then one of its cases: of some there are many. */
static void draw_case(random_drawer *d, op_case *c)
{
    static case_range ranges[SGLIR_OP_COUNT];
    static int count;
    if (count == 0) count = find_ranges(ranges);
    const case_range *r = &ranges[random_draw(d, (uint64_t)count)];
    op_case_at(r->first + (int)random_draw(d, (uint64_t)r->count), c);
}

static void one_step(random_drawer *d)
{
    op_case c;
    if (d->depth < DEPTH && random_one_in(d, d->depth > 0 ? 6 : 14)) {
        random_op_with_regions(d);
        return;
    }
    if (d->large && d->depth == 0 && random_one_in(d, 14)) {
        random_columns(d);
        return;
    }
    if (d->large && random_one_in(d, 4)) {
        random_chain(d);
        return;
    }
    bool moves =
        random_one_in(d, 4); /* movement between arithmetic is what fusing and places in memory go wrong over */
    for (int attempt = 0; attempt < 12; attempt++) {
        draw_case(d, &c);
        if (!moves || (sglir_ops[c.op].flags & SGLIR_MOVEMENT)) break;
    }
    if (c.kind == OP_REFUSED) return;
    if (d->smooth && (c.kind == OP_KINKED || c.kind == OP_JUMPS)) return;
    bool elementwise = (sglir_ops[c.op].flags & SGLIR_ELEMENTWISE) != 0 && c.attributes != NULL;
    if (elementwise && op_case_arguments(&c) == 2 && strchr(c.arguments, ':') == NULL && random_one_in(d, 2))
        by_door(d, &c);
    else
        by_case(d, &c);
}

void random_steps(random_drawer *d, int steps)
{
    for (int i = 0; i < steps && sglir_status(d->g) == SGL_OK; i++) {
        sglir_set_origin(d->g, "random.lua", i + 1, d->depth == 0 && i % 4 < 2 ? RANDOM_MODULE : "", "");
        one_step(d);
    }
}
