/* net_routes.c -- what a program exchanges: of each instruction the kind, counts, label, and over which axes.
 *
 * Comes in: instructions with their operands and attributes, the plan, the rank. Goes out: routes. An operand's parts
 * lie along dimension 0 (of all_to_all along 1, behind one place), so that each rank's is one range: counts are rows
 * times their elements. Odd invariant: the parts of all ranks are worked out here from the plan; only this rank's own
 * is compared with its operand. */
#include "exec/net_parts.h"

static int64_t elements_of(const sglexec_operand *o, int from)
{
    int64_t count = 1;
    for (int d = from; d < o->rank; d++) count *= o->dims[d];
    return count;
}

static sgl_status make_label(sglexec_exchanges *e, const sglexec_instruction *i, const char **label)
{
    sglcore_text text = { 0 };
    sgl_status status = sglexec_exchange_label(e->program, i, &text);
    *label = status == SGL_OK ? sglcore_arena_string(&e->arena, text.data, (size_t)text.count) : NULL;
    if (status == SGL_OK && !*label) status = SGL_OUT_OF_MEMORY;
    sglcore_text_free(e->program->env, &text);
    return status;
}

/* Elements of each rank's part of `whole` along dim, of which this rank has `own`; what is before dim counts once. */
static sgl_status fill_parts(sglexec_exchanges *e, const sglexec_operand *whole, const sglexec_operand *own, int dim,
                             int64_t unit, const sglexec_route *r, int64_t *counts)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    for (int64_t place = 0; place < size; place++) {
        const int64_t member = sglplan_group_member(&e->plan, r->axes, e->rank, place);
        const int64_t rows = sglplan_part_along(&e->plan, r->axes, member, whole->dims[dim], unit).size;
        counts[place] = rows * elements_of(whole, dim + 1);
        if (member == e->rank && rows != own->dims[dim])
            return sglcore_fail(e->env, SGL_INTERNAL, "%s: this rank's part has %lld rows, not %lld", r->exchange.label,
                                (long long)own->dims[dim], (long long)rows);
    }
    return SGL_OK;
}

static sgl_status make_parts(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *whole,
                             const sglexec_operand *own, sglexec_route *r)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    int64_t *counts = sglcore_arena_alloc(&e->arena, (size_t)size * sizeof *counts);
    if (!counts) return SGL_OUT_OF_MEMORY;
    r->exchange.counts = counts;
    return fill_parts(e, whole, own, 0, sglexec_attr_int(e->program, i, "unit"), r, counts);
}

/* Of one argument of an all_to_all: to or from each rank goes its part of what is whole, the other way round as much of what is
 * split as this one has. */
static sgl_status lay_turn(sglexec_exchanges *e, const sglexec_operand *from, const sglexec_operand *to, bool hands_out,
                           int64_t unit, const sglexec_route *r, sglexec_member *turn)
{
    const sglexec_operand *whole = hands_out ? from : to, *own = hands_out ? to : from;
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    int64_t *parts = sglcore_arena_alloc(&e->arena, 2 * (size_t)size * sizeof *parts);
    if (!parts) return SGL_OUT_OF_MEMORY;
    int64_t *each = parts + size;
    if (own->dims[0] != size)
        return sglcore_fail(e->env, SGL_INTERNAL, "%s: %lld places for the %lld ranks of the group", r->exchange.label,
                            (long long)own->dims[0], (long long)size);
    SGLCORE_TRY(fill_parts(e, whole, own, 1, unit, r, parts));
    for (int64_t place = 0; place < size; place++) each[place] = elements_of(own, 1);
    turn->counts = hands_out ? parts : each;
    turn->counts_in = hands_out ? each : parts;
    return SGL_OK;
}

static sgl_status make_all_to_all(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *from,
                                  const sglexec_operand *to, sglexec_route *r)
{
    sglexec_member turn = { 0 };
    r->exchange.kind = SGLEXEC_ALL_TO_ALL;
    SGLCORE_TRY(lay_turn(e, from, to, sglexec_attr_int(e->program, i, "to") == 1,
                         sglexec_attr_int(e->program, i, "unit"), r, &turn));
    r->exchange.counts = turn.counts;
    r->exchange.counts_in = turn.counts_in;
    return SGL_OK;
}

/* A member for each argument. */
static sgl_status make_members(sglexec_exchanges *e, const sglexec_instruction *i, sglexec_exchange_kind kind,
                               sglexec_route *r)
{
    const size_t size = (size_t)sglplan_group_size(&e->plan, r->axes);
    const sglexec_operand *from = &e->program->operands.data[i->operand_first], *to = from + i->arg_count;
    int count;
    const bool gathers = kind == SGLEXEC_ALL_GATHER, turns = kind == SGLEXEC_ALL_TO_ALL;
    const int64_t *units = sglexec_attr_ints(e->program, i, "units", &count);
    const int64_t *tos = turns ? sglexec_attr_ints(e->program, i, "tos", &count) : NULL;
    r->members = sglcore_arena_alloc(&e->arena, i->arg_count * sizeof *r->members);
    if (!r->members) return SGL_OUT_OF_MEMORY;
    for (uint32_t m = 0; m < i->arg_count; m++) {
        if (turns) {
            SGLCORE_TRY(lay_turn(e, from + m, to + m, tos[m] == 1, units[m], r, &r->members[m]));
            continue;
        }
        int64_t *own = sglcore_arena_alloc(&e->arena, size * sizeof *own);
        if (!own) return SGL_OUT_OF_MEMORY;
        SGLCORE_TRY(fill_parts(e, gathers ? to + m : from + m, gathers ? from + m : to + m, 0, units[m], r, own));
        r->members[m].counts = own;
    }
    r->exchange.kind = (uint8_t)kind;
    r->exchange.count = 0;
    r->exchange.members = r->members;
    r->exchange.member_count = (int)i->arg_count;
    return SGL_OK;
}

/* All that this rank has goes to one, and what another one has comes: an all_to_all of which the other counts are 0. */
static sgl_status make_shift(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *from,
                             const sglexec_operand *to, sglexec_route *r)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes), own = sglplan_group_place(&e->plan, r->axes, e->rank);
    const int64_t dim = sglexec_attr_int(e->program, i, "dim"), unit = sglexec_attr_int(e->program, i, "unit");
    const int64_t whole = sglexec_attr_int(e->program, i, "whole");
    const int64_t by = (sglexec_attr_int(e->program, i, "by") % size + size) % size;
    const int64_t goes = (own + by) % size, comes = (own - by + size) % size;
    int64_t *counts = sglcore_arena_alloc(&e->arena, 2 * (size_t)size * sizeof *counts);
    if (!counts) return SGL_OUT_OF_MEMORY;
    counts[goes] = elements_of(from, 0);
    counts[size + comes] = elements_of(to, 0);
    r->exchange.kind = SGLEXEC_ALL_TO_ALL;
    r->exchange.counts = counts;
    r->exchange.counts_in = counts + size;
    const int64_t of[2] = { sglexec_attr_int(e->program, i, "of"), sglexec_attr_int(e->program, i, "of") + by };
    for (int k = 0; k < 2; k++) {
        const int64_t place = ((own - of[k]) % size + size) % size;
        const int64_t member = sglplan_group_member(&e->plan, r->axes, e->rank, place);
        const int64_t rows = sglplan_part_along(&e->plan, r->axes, member, whole, unit).size;
        if (rows != (k ? to : from)->dims[dim])
            return sglcore_fail(e->env, SGL_INTERNAL, "%s: the part of rank %lld has %lld rows, not %lld",
                                r->exchange.label, (long long)member, (long long)rows,
                                (long long)(k ? to : from)->dims[dim]);
    }
    return SGL_OK;
}

int64_t sglexec_operand_bytes(const sglexec_operand *o)
{
    return sglcore_dtype_bytes((sgl_dtype)o->dtype, elements_of(o, 0));
}

/* For so many operands, one behind another. */
static void need_staging(sglexec_exchanges *e, const sglexec_operand *o, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += sglexec_operand_bytes(o + i);
    if (bytes > e->staging_bytes) e->staging_bytes = bytes;
}

/* Of the ranks along one axis two exchange: one sends what the other receives. They are a channel, a group of its own:
 * what is sent one way does not wait for what comes from elsewhere. */
static sgl_status lay_pair(sglexec_exchanges *e, const sglexec_instruction *i, sglexec_route *r)
{
    const bool sends = i->op == SGLIR_OP_SEND;
    const sglexec_operand *o = &e->program->operands.data[i->operand_first];
    r->axes = SGLPLAN_AXIS(sglexec_attr_int(e->program, i, "axis"));
    r->exchange = (sglexec_exchange){ .kind = sends ? SGLEXEC_SEND : SGLEXEC_RECEIVE,
                                      .dtype = o->dtype,
                                      .count = elements_of(o, 0),
                                      .peer = (int)sglexec_attr_int(e->program, i, sends ? "to" : "from") };
    need_staging(e, o, 1);
    SGLCORE_TRY(make_label(e, i, &r->exchange.label));
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    const int own = (int)sglplan_group_place(&e->plan, r->axes, e->rank), other = r->exchange.peer;
    if (other < 0 || other >= size || other == own)
        return sglcore_fail(e->env, SGL_INTERNAL, "%s: place %d of %lld is no other rank's", r->exchange.label, other,
                            (long long)size);
    r->from = sends ? own : other;
    r->to = sends ? other : own;
    r->exchange.peer = sends ? 1 : 0; /* of the channel, whose places are its two ends */
    return SGL_OK;
}

static sgl_status lay_route(sglexec_exchanges *e, uint32_t n)
{
    const sglexec_instruction *i = &e->program->instructions.data[n];
    sglexec_route *r = &e->routes[n];
    r->from = r->to = -1;
    if (i->op == SGLIR_OP_COORDINATE || i->op == SGLIR_OP_SHARE) {
        const sglplan_coordinate here = sglplan_mesh_coordinate(&e->plan, e->rank);
        const int64_t at = here.at[sglexec_attr_int(e->program, i, "axis")];
        const sgl_dtype dtype = (sgl_dtype)e->program->operands.data[i->operand_first].dtype;
        return sglexec_put_number(e->env, dtype, i->op == SGLIR_OP_SHARE ? at == 0 : (double)at, r->number);
    }
    if (i->op == SGLIR_OP_WAIT) e->routes[i->begun].waits_later = e->in_place;
    if (!sglir_is_exchange(i->op)) return SGL_OK;
    if (i->op == SGLIR_OP_SEND || i->op == SGLIR_OP_RECEIVE) return lay_pair(e, i, r);
    const sglexec_operand *from = &e->program->operands.data[i->operand_first], *to = from + i->arg_count;
    r->axes = (sglplan_axes)sglexec_attr_int(e->program, i, "axes");
    r->exchange = (sglexec_exchange){ .dtype = from->dtype, .count = elements_of(from, 0) };
    SGLCORE_TRY(make_label(e, i, &r->exchange.label));
    need_staging(e, from, i->arg_count);
    need_staging(e, to, i->result_count);
    switch (i->op) {
    case SGLIR_OP_ALL_MAX: r->exchange.reduction = SGLEXEC_MAX; return SGL_OK;
    case SGLIR_OP_ALL_REDUCE: return SGL_OK;
    case SGLIR_OP_REDUCE_SCATTER: r->exchange.kind = SGLEXEC_REDUCE_SCATTER; return make_parts(e, i, from, to, r);
    case SGLIR_OP_ALL_GATHER: r->exchange.kind = SGLEXEC_ALL_GATHER; return make_parts(e, i, to, from, r);
    case SGLIR_OP_REDUCE_SCATTER_EACH: return make_members(e, i, SGLEXEC_REDUCE_SCATTER, r);
    case SGLIR_OP_ALL_GATHER_EACH: return make_members(e, i, SGLEXEC_ALL_GATHER, r);
    case SGLIR_OP_ALL_TO_ALL: return make_all_to_all(e, i, from, to, r);
    case SGLIR_OP_ALL_TO_ALL_EACH: return make_members(e, i, SGLEXEC_ALL_TO_ALL, r);
    case SGLIR_OP_RING_SHIFT: return make_shift(e, i, from, to, r);
    default: return sglcore_fail(e->env, SGL_INTERNAL, "%s: no exchange that a program runs", r->exchange.label);
    }
}

sgl_status sglexec_lay_routes(sglexec_exchanges *e)
{
    const int64_t count = e->program->instructions.count;
    e->routes = sglcore_arena_alloc(&e->arena, (size_t)(count + 1) * sizeof *e->routes);
    if (!e->routes) return SGL_OUT_OF_MEMORY;
    for (int64_t n = 0; n < count; n++) SGLCORE_TRY(lay_route(e, (uint32_t)n));
    return SGL_OK;
}
