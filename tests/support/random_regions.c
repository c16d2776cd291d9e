/* random_regions.c -- ops with regions in random programs: loops, branches, and these within each other. In and out:
 * random_parts.h. A new kind is a row of `kinds`.
 *
 * A region draws what any part of a program draws, from what stands in it and from what is around. What it yields is small
 * where it is a float, so that a loop does not grow its carries, and hangs together with the carry, so that gradients go from
 * turn to turn. Odd invariant: what decides (a predicate, how many turns) is made of integers and truths, which no rounding
 * moves. */
#include "tests/support/random_parts.h"

enum { MOST_RESULTS = 3, MOST_TURNS = 4 };

/* ---- what is derived -------------------------------------------------------------------------------------------------- */

typedef struct around {
    const random_drawer *d;
    bool derives;
} around;

static void look_at_capture(void *user, sglir_id value)
{
    around *a = user;
    for (int i = 0; i < a->d->count; i++) {
        if (a->d->pool[i].id == value) a->derives = a->derives && a->d->pool[i].derives;
    }
}

static bool regions_derive(const sglir_graph *g, const sglir_node *node)
{
    if (node->op == SGLIR_OP_WHILE && sglir_attr_int(g, node, "limit") < 0) return false;
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &g->regions.data[node->region_first + r];
        for (int64_t n = 0; n < region->nodes.count; n++) {
            if (!regions_derive(g, sglir_node_at(g, region->nodes.data[n]))) return false;
        }
    }
    return true;
}

/* Its results join the pool: with a derivative where all that stands in its regions, and all that these use, has one. */
static void join_results(random_drawer *d, sglir_id first, const random_value *arguments, int argument_count)
{
    if (first == SGLIR_NONE || sglir_status(d->g) != SGL_OK) return;
    const sglir_node node = *sglir_maker(d->g, first);
    around a = { d, regions_derive(d->g, &node) };
    for (int i = 0; i < argument_count; i++) a.derives = a.derives && arguments[i].derives;
    sglir_each_capture(d->g, &node, look_at_capture, &a);
    for (uint32_t i = 0; i < node.out_count; i++)
        random_join(d, (random_value){ first + i, false, true, a.derives, false });
}

/* ---- what stands in a region ------------------------------------------------------------------------------------------ */

static sglir_id number(random_drawer *d, int64_t value) { return sglir_constant(d->g, SGL_I64, (double)value); }

/* What a region yields as this type; `carry` is the old value, or SGLIR_NONE. */
static sglir_id draw_yield(random_drawer *d, const sglir_type *type, sglir_id carry)
{
    const sglir_type copy = *type;
    bool real = sglcore_dtype_is_float((sgl_dtype)copy.dtype);
    if (real && carry != SGLIR_NONE && d->large && random_one_in(d, 2))
        return random_turned(d, carry); /* the carry's next value, from its elements in another order */
    if (carry != SGLIR_NONE && random_one_in(d, 8)) return carry;
    random_value v;
    if (real && d->inner < d->count && random_is_float(d, d->pool[d->count - 1].id) && random_one_in(d, 2))
        v = random_fit(d, d->pool[d->count - 1], &copy, 'x', false); /* what was drawn last is of use */
    else
        v = random_fitting(d, &copy, 'x', false);
    if (!real) return v.id;
    if (carry != SGLIR_NONE && random_one_in(d, 2)) {
        sglir_op op = random_one_in(d, 2) ? SGLIR_OP_ADD : SGLIR_OP_MUL;
        return random_squash(d, sglir_binary(d->g, op, random_squash(d, v.id), carry));
    }
    return random_one_in(d, 3) ? v.id : random_squash(d, v.id); /* fitting values are small */
}

/* What is around a region while it is drawn. */
typedef struct scope {
    int count, inner;
} scope;

static scope enter(random_drawer *d, const sglir_id *parameters, int count)
{
    scope s = { d->count, d->inner };
    d->inner = d->count;
    d->depth++;
    for (int i = 0; i < count; i++) random_join(d, (random_value){ parameters[i], false, true, true, false });
    return s;
}

static void leave(random_drawer *d, scope s)
{
    d->depth--;
    d->count = s.count;
    d->inner = s.inner;
}

/* Fills a region that was begun. Its first parameter is the index, behind it come the carries, one per result; where there
 * are no parameters it is a branch. */
static void fill_region(random_drawer *d, const sglir_id *parameters, int count, const sglir_type *results,
                        int result_count)
{
    sglir_id out[MOST_RESULTS + 1];
    scope s = enter(d, parameters, count);
    random_steps(d, 1 + (int)random_draw(d, 4));
    for (int i = 0; i < result_count; i++)
        out[i] = draw_yield(d, &results[i], count > 0 ? parameters[i + 1] : SGLIR_NONE);
    leave(d, s);
    sglir_region_end(d->g, out, result_count);
}

/* Values to begin carries with, and the parameters that a loop's region has for them. */
static int draw_carries(random_drawer *d, random_value *carries, sglir_id *ids, sglir_type *parameters)
{
    int count = 1 + (int)random_draw(d, MOST_RESULTS);
    parameters[0] = sglir_type_make(SGL_I64, 0, NULL);
    for (int i = 0; i < count; i++) {
        carries[i] = random_to_range(d, random_pick(d), 'x', false);
        ids[i] = carries[i].id;
        if (ids[i] == SGLIR_NONE) return 0;
        parameters[i + 1] = *random_type(d, ids[i]);
    }
    return count;
}

/* ---- scan ----------------------------------------------------------------------------------------------------------------- */

static void random_scan(random_drawer *d)
{
    random_value carries[MOST_RESULTS];
    sglir_id ids[MOST_RESULTS], parameters[MOST_RESULTS + 1], out[MOST_RESULTS] = { SGLIR_NONE };
    sglir_type types[MOST_RESULTS + 1];
    int count = draw_carries(d, carries, ids, types);
    if (count == 0) return;
    sglir_id region = sglir_region_begin(d->g, types, count + 1, parameters);
    fill_region(d, parameters, count + 1, types + 1, count);
    const sglir_named attrs[] = { SGLIR_I("steps", (int64_t)random_draw(d, MOST_TURNS)),
                                  SGLIR_I("recompute", random_one_in(d, 4)) };
    sglir_emit_regions(d->g, SGLIR_OP_SCAN, ids, count, attrs, 2, &region, 1, out);
    join_results(d, out[0], carries, count);
}

/* The slice of this turn, without its first dimension. */
static sglir_id slice_at(random_drawer *d, sglir_id xs, sglir_id at)
{
    const sglir_type type = *random_type(d, xs);
    const sglir_named attrs[] = { SGLIR_I("axis", 0), SGLIR_I("size", 1) };
    sglir_id args[2] = { xs, at }, out = SGLIR_NONE;
    sglir_emit(d->g, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 2, &out);
    return sglir_reshape(d->g, out, type.rank - 1, type.dims + 1);
}

/* The stack with the turn's y in it. */
static sglir_id stack_at(random_drawer *d, sglir_id stack, sglir_id y, sglir_id at)
{
    sglir_type type = *random_type(d, stack);
    const sglir_named axis = SGLIR_I("axis", 0);
    type.dims[0] = 1;
    sglir_id args[3] = { stack, sglir_reshape(d->g, y, type.rank, type.dims), at }, out = SGLIR_NONE;
    return sglir_emit(d->g, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &axis, 1, &out);
}

/* As the language has it: (carry, slices of xs) -> (carry, ys stacked), forward or from the last one. */
static void random_scan_of_slices(random_drawer *d)
{
    sgl_dtype real = d->palette[0];
    int64_t turns = 1 + (int64_t)random_draw(d, MOST_TURNS), width = 1 + (int64_t)random_draw(d, 3);
    const int64_t dims[3] = { turns, width, 2 };
    int rank = 1 + (int)random_draw(d, 3);
    sglir_type stacked = sglir_type_make(real, rank, dims), slice = sglir_type_make(real, rank - 1, dims + 1);
    random_value carries[3] = { random_fitting(d, &slice, 'x', false) }, xs = random_fitting(d, &stacked, 'x', false);
    carries[2] = xs; /* no carry, but what is derived through the loop depends on it */
    carries[1] = (random_value){ sglir_constant(d->g, real, 0), true, true, true, false };
    carries[1].id = sglir_broadcast(d->g, carries[1].id, rank, dims);
    sglir_id ids[2] = { carries[0].id, carries[1].id }, parameters[3], out[2] = { SGLIR_NONE };
    if (sglir_status(d->g) != SGL_OK) return;
    const sglir_type types[3] = { sglir_type_make(SGL_I64, 0, NULL), slice, stacked };
    sglir_id region = sglir_region_begin(d->g, types, 3, parameters), at = parameters[0];
    if (random_one_in(d, 2)) at = sglir_sub(d->g, number(d, turns - 1), at);
    scope s = enter(d, parameters, 2);
    random_join(d, (random_value){ slice_at(d, xs.id, at), false, true, true, false });
    random_steps(d, 1 + (int)random_draw(d, 3));
    sglir_id next = draw_yield(d, &slice, parameters[1]), y = draw_yield(d, &slice, next);
    leave(d, s);
    sglir_id yields[2] = { next, stack_at(d, parameters[2], y, at) };
    sglir_region_end(d->g, yields, 2);
    const sglir_named attrs[] = { SGLIR_I("steps", turns), SGLIR_I("recompute", random_one_in(d, 4)) };
    sglir_emit_regions(d->g, SGLIR_OP_SCAN, ids, 2, attrs, 2, &region, 1, out);
    join_results(d, out[0], carries, 3);
}

/* ---- cond ----------------------------------------------------------------------------------------------------------------- */

static sglir_id draw_predicate(random_drawer *d)
{
    const sglir_type truth = sglir_type_make(SGL_BOOL, 0, NULL);
    return random_fitting(d, &truth, 'x', true).id;
}

static void random_cond(random_drawer *d)
{
    sglir_type types[MOST_RESULTS];
    sglir_id out[MOST_RESULTS] = { SGLIR_NONE }, predicate = draw_predicate(d);
    int count = 1 + (int)random_draw(d, MOST_RESULTS);
    for (int i = 0; i < count; i++) types[i] = *random_type(d, random_pick(d).id);
    sglir_id first = sglir_region_take(d->g, 2);
    if (sglir_status(d->g) != SGL_OK) return;
    const sglir_id regions[2] = { first, first + 1 };
    for (int r = 0; r < 2; r++) {
        sglir_region_begin_at(d->g, regions[r], NULL, 0, NULL);
        fill_region(d, NULL, 0, types, count);
    }
    sglir_emit_regions(d->g, SGLIR_OP_COND, &predicate, 1, NULL, 0, regions, 2, out);
    join_results(d, out[0], NULL, 0);
}

/* ---- while ---------------------------------------------------------------------------------------------------------------- */

/* index < bound, and now and then a truth that may change from turn to turn. */
static void fill_decision(random_drawer *d, const sglir_id *parameters, int count)
{
    const sglir_type integer = sglir_type_make(SGL_I64, 0, NULL);
    scope s = enter(d, parameters, count);
    sglir_id bound = number(d, (int64_t)random_draw(d, MOST_TURNS + 1));
    if (random_one_in(d, 2))
        bound =
            sglir_binary(d->g, SGLIR_OP_REMAINDER, random_fitting(d, &integer, 'x', false).id, number(d, MOST_TURNS));
    sglir_id goes_on = sglir_binary(d->g, SGLIR_OP_LESS, parameters[0], bound);
    if (random_one_in(d, 3)) goes_on = sglir_binary(d->g, SGLIR_OP_AND, goes_on, draw_predicate(d));
    leave(d, s);
    sglir_region_end(d->g, &goes_on, 1);
}

/* With a limit where a gradient may be asked for. */
static void random_while(random_drawer *d)
{
    random_value carries[MOST_RESULTS];
    sglir_id ids[MOST_RESULTS], parameters[MOST_RESULTS + 1], out[MOST_RESULTS] = { SGLIR_NONE };
    sglir_type types[MOST_RESULTS + 1];
    int count = draw_carries(d, carries, ids, types);
    sglir_id first = sglir_region_take(d->g, 2);
    if (count == 0 || sglir_status(d->g) != SGL_OK) return;
    const sglir_id regions[2] = { first, first + 1 };
    sglir_region_begin_at(d->g, regions[0], types, count + 1, parameters);
    fill_decision(d, parameters, count + 1);
    sglir_region_begin_at(d->g, regions[1], types, count + 1, parameters);
    fill_region(d, parameters, count + 1, types + 1, count);
    bool unlimited = !d->smooth && random_one_in(d, 4);
    const sglir_named attrs[] = { SGLIR_I("limit", unlimited ? -1 : (int64_t)random_draw(d, MOST_TURNS + 1)),
                                  SGLIR_I("recompute", random_one_in(d, 4)) };
    sglir_emit_regions(d->g, SGLIR_OP_WHILE, ids, count, attrs, 2, regions, 2, out);
    join_results(d, out[0], carries, count);
}

static void (*const kinds[])(random_drawer *d) = { random_scan, random_scan_of_slices, random_cond, random_while };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

void random_op_with_regions(random_drawer *d) { kinds[random_draw(d, KINDS)](d); }
