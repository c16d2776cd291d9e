/* net.c -- the exchanges of a program: groups, counts, labels; and how one of them is run.
 *
 * Comes in: instructions with their operands and attributes. Goes out: calls of the comm port. An operand's parts lie along
 * dimension 0 (of all_to_all along 1, behind one place), so that each rank's is one range: counts are rows times their elements.
 * A device whose memory is the host's is read and written in place, and of its exchanges those that the program waits for with a
 * WAIT run on meanwhile; of another, what is sent and what comes go through two blocks that are made with the program, which
 * serve one exchange at a time: there each is waited for at once, and a WAIT finds it ended. Odd invariant: exchanges are numbered
 * over all programs and steps of the net, as heartbeats tell them. */
#include <stdio.h>
#include <string.h>

#include "exec/device.h"
#include "exec/net.h"

typedef struct mesh_group {
    sglcore_hash key; /* of the mesh, the axes, and the two ends of a channel */
    sglexec_group *group;
} mesh_group;

/* A program leaves fewer than so many exchanges under way, which is less than what transports bear of one group. */
enum { MOST_UNDER_WAY = 64 };

struct sglexec_net {
    sglcore_env *env;
    const sglexec_comm_ops *ops;
    sglexec_comm *comm;
    sglexec_group *world;
    SGLCORE_VEC(mesh_group) groups;
    uint64_t number; /* of the exchange that began last */
};

/* Of an instruction; of most, nothing. */
typedef struct route {
    sglplan_axes axes; /* 0: no exchange */
    int from, to;      /* of a channel, places along the axes; -1: all of them exchange */
    sglexec_group *group;
    sglexec_exchange exchange; /* without places and number */
    const int64_t *parts;      /* elements of each rank's part of what is whole, alike on all of them; NULL: of none */
    sglexec_member *members;   /* of an exchange of many: one for each argument */
    char number[8];            /* of COORDINATE and SHARE */
    uint32_t ticket;           /* of the one under way */
    bool waits_later;          /* a WAIT of the program does */
    bool under_way;
} route;

struct sglexec_exchanges {
    sglexec_net *net;
    const sglexec_program *program;
    sglplan plan;
    int64_t rank;
    route *routes; /* per instruction */
    bool in_place;
    char *from, *to; /* where it is not: as large as the largest operand, NULL in place */
    int64_t staging_bytes;
    int64_t under_way; /* exchanges that have begun and were not waited for */
    sglcore_arena arena;
};

/* ---- the net ------------------------------------------------------------------------------------------------------ */

static sgl_status start(sglexec_net *net, sglexec_group *group, sglexec_exchange *x, uint32_t *ticket)
{
    x->number = ++net->number;
    return net->ops->start(group, x, NULL, ticket);
}

static sgl_status exchange(sglexec_net *net, sglexec_group *group, sglexec_exchange *x)
{
    uint32_t ticket;
    SGLCORE_TRY(start(net, group, x, &ticket));
    return net->ops->wait(group, ticket, NULL);
}

static sgl_status make_group(sglexec_net *net, const char *name, const int *ranks, int count, sglexec_group **group)
{
    return net->ops->group(net->comm, name, ranks, count, group);
}

sgl_status sglexec_net_open(sglcore_env *env, const sglexec_comm_ops *ops, sglexec_comm *comm, sglexec_net **net)
{
    int size = ops->size(comm);
    sglexec_net *made = *net = sglcore_alloc_zero(env, sizeof *made);
    int *ranks = sglcore_alloc(env, (size_t)size * sizeof *ranks);
    sgl_status status = made && ranks ? SGL_OK : SGL_OUT_OF_MEMORY;
    for (int r = 0; r < size && status == SGL_OK; r++) ranks[r] = r;
    if (status == SGL_OK) {
        *made = (sglexec_net){ .env = env, .ops = ops, .comm = comm };
        status = make_group(made, "all", ranks, size, &made->world);
    }
    sglcore_free(env, ranks, (size_t)size * sizeof *ranks);
    if (status == SGL_OK) return SGL_OK;
    sglcore_free(env, made, sizeof *made);
    *net = NULL;
    return status;
}

void sglexec_net_close(sglexec_net *net)
{
    if (!net) return;
    sglcore_env *env = net->env;
    sglcore_vec_free(env, &net->groups);
    sglcore_free(env, net, sizeof *net);
}

sgl_status sglexec_net_gather(sglexec_net *net, const void *own, int64_t bytes, void *all, const char *label)
{
    sglexec_exchange x = {
        .kind = SGLEXEC_ALL_GATHER, .dtype = SGL_U8, .count = bytes, .from = own, .to = all, .label = label
    };
    return exchange(net, net->world, &x);
}

sgl_status sglexec_net_broadcast(sglexec_net *net, int from, void *data, int64_t bytes, const char *label)
{
    sglexec_exchange x = { .kind = SGLEXEC_BROADCAST,
                           .dtype = SGL_U8,
                           .peer = from,
                           .count = bytes,
                           .from = data,
                           .to = data,
                           .label = label };
    return exchange(net, net->world, &x);
}

static sglcore_hash key_of(const sglplan *plan, sglplan_axes axes, int from, int to)
{
    int64_t facts[SGLIR_AXIS_COUNT + 3];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) facts[axis] = plan->mesh[axis];
    facts[SGLIR_AXIS_MICRO] = 0;
    facts[SGLIR_AXIS_COUNT] = axes;
    facts[SGLIR_AXIS_COUNT + 1] = from;
    facts[SGLIR_AXIS_COUNT + 2] = to;
    return sglcore_hash_bytes(facts, sizeof facts);
}

/* The group of these axes, or of two of its places, made where it is not there; NULL: this rank is at neither end. */
static sgl_status group_of(sglexec_exchanges *e, sglplan_axes axes, int from, int to, sglexec_group **group)
{
    sglexec_net *net = e->net;
    const bool channel = from >= 0;
    const sglcore_hash key = key_of(&e->plan, axes, from, to);
    for (int64_t i = 0; i < net->groups.count; i++) {
        *group = net->groups.data[i].group;
        if (sglcore_hash_equal(net->groups.data[i].key, key)) return SGL_OK;
    }
    char name[SGLPLAN_AXES_ROOM];
    const int64_t size = channel ? 2 : sglplan_group_size(&e->plan, axes);
    int *ranks = sglcore_alloc(net->env, (size_t)size * sizeof *ranks);
    sgl_status status = ranks ? sglcore_vec_reserve(net->env, &net->groups, 1) : SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < size && status == SGL_OK; i++)
        ranks[i] = (int)sglplan_group_member(&e->plan, axes, e->rank, !channel ? i : i == 0 ? from : to);
    (void)sglplan_axes_text(axes, name, sizeof name);
    if (channel) snprintf(name + strlen(name), sizeof name - strlen(name), " %d to %d", from, to);
    if (status == SGL_OK) status = make_group(net, name, ranks, (int)size, group);
    if (status == SGL_OK) net->groups.data[net->groups.count++] = (mesh_group){ key, *group };
    sglcore_free(net->env, ranks, (size_t)size * sizeof *ranks);
    return status;
}

/* ---- what a program exchanges --------------------------------------------------------------------------------------- */

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
    char *kept = status == SGL_OK ? sglcore_arena_string(&e->arena, text.data, (size_t)text.count) : NULL;
    sglcore_text_free(e->program->env, &text);
    *label = kept;
    return kept ? SGL_OK : SGL_OUT_OF_MEMORY;
}

/* Elements of each rank's part of `whole` along dim, of which this rank has `own`; what is before dim counts once. */
static sgl_status fill_parts(sglexec_exchanges *e, const sglexec_operand *whole, const sglexec_operand *own, int dim,
                             int64_t unit, const route *r, int64_t *counts)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    for (int64_t place = 0; place < size; place++) {
        const int64_t member = sglplan_group_member(&e->plan, r->axes, e->rank, place);
        const int64_t rows = sglplan_part_along(&e->plan, r->axes, member, whole->dims[dim], unit).size;
        counts[place] = rows * elements_of(whole, dim + 1);
        if (member == e->rank && rows != own->dims[dim])
            return sglcore_fail(e->net->env, SGL_INTERNAL, "%s: this rank's part has %lld rows, not %lld",
                                r->exchange.label, (long long)own->dims[dim], (long long)rows);
    }
    return SGL_OK;
}

static sgl_status make_parts(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *whole,
                             const sglexec_operand *own, int dim, route *r)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    int64_t *counts = sglcore_arena_alloc(&e->arena, (size_t)size * sizeof *counts);
    if (!counts) return SGL_OUT_OF_MEMORY;
    r->parts = r->exchange.counts = counts;
    return fill_parts(e, whole, own, dim, sglexec_attr_int(e->program, i, "unit"), r, counts);
}

/* A member for each argument, and the counts of all, one list behind another. */
static sgl_status make_members(sglexec_exchanges *e, const sglexec_instruction *i, bool gathers, route *r)
{
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    const sglexec_operand *from = &e->program->operands.data[i->operand_first], *to = from + i->arg_count;
    int count;
    const int64_t *units = sglexec_attr_ints(e->program, i, "units", &count);
    int64_t *counts = sglcore_arena_alloc(&e->arena, (size_t)size * i->arg_count * sizeof *counts);
    r->members = sglcore_arena_alloc(&e->arena, i->arg_count * sizeof *r->members);
    if (!counts || !r->members) return SGL_OUT_OF_MEMORY;
    for (uint32_t m = 0; m < i->arg_count; m++) {
        int64_t *own = counts + (int64_t)m * size;
        SGLCORE_TRY(fill_parts(e, gathers ? to + m : from + m, gathers ? from + m : to + m, 0, units[m], r, own));
        r->members[m].counts = own;
    }
    r->exchange.kind = gathers ? SGLEXEC_ALL_GATHER : SGLEXEC_REDUCE_SCATTER;
    r->exchange.count = 0;
    r->exchange.members = r->members;
    r->exchange.member_count = (int)i->arg_count;
    return SGL_OK;
}

/* To or from each rank goes its part of what is whole, the other way round as much of what is split as this one has. */
static sgl_status make_all_to_all(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *from,
                                  const sglexec_operand *to, route *r)
{
    const bool hands_out = sglexec_attr_int(e->program, i, "to") == 1;
    const sglexec_operand *whole = hands_out ? from : to, *own = hands_out ? to : from;
    const int64_t size = sglplan_group_size(&e->plan, r->axes);
    int64_t *each = sglcore_arena_alloc(&e->arena, (size_t)size * sizeof *each);
    if (!each) return SGL_OUT_OF_MEMORY;
    r->exchange.kind = SGLEXEC_ALL_TO_ALL;
    if (own->dims[0] != size)
        return sglcore_fail(e->net->env, SGL_INTERNAL, "%s: %lld places for the %lld ranks of the group",
                            r->exchange.label, (long long)own->dims[0], (long long)size);
    SGLCORE_TRY(make_parts(e, i, whole, own, 1, r));
    for (int64_t place = 0; place < size; place++) each[place] = elements_of(own, 1);
    r->exchange.counts = hands_out ? r->parts : each;
    r->exchange.counts_in = hands_out ? each : r->parts;
    return SGL_OK;
}

/* All that this rank has goes to one, and what another one has comes: an all_to_all of which the other counts are 0. */
static sgl_status make_shift(sglexec_exchanges *e, const sglexec_instruction *i, const sglexec_operand *from,
                             const sglexec_operand *to, route *r)
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
            return sglcore_fail(e->net->env, SGL_INTERNAL, "%s: the part of rank %lld has %lld rows, not %lld",
                                r->exchange.label, (long long)member, (long long)rows,
                                (long long)(k ? to : from)->dims[dim]);
    }
    return SGL_OK;
}

static int64_t bytes_of(const sglexec_operand *o)
{
    return sglcore_dtype_bytes((sgl_dtype)o->dtype, elements_of(o, 0));
}

/* For so many operands, one behind another. */
static void need_staging(sglexec_exchanges *e, const sglexec_operand *o, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += bytes_of(o + i);
    if (bytes > e->staging_bytes) e->staging_bytes = bytes;
}

static bool is_pair(const route *r) { return r->exchange.kind == SGLEXEC_SEND || r->exchange.kind == SGLEXEC_RECEIVE; }

/* Of the ranks along one axis two exchange: one sends what the other receives. They are a channel, a group of its own: what is
 * sent one way does not wait for what comes from elsewhere. */
static sgl_status lay_pair(sglexec_exchanges *e, const sglexec_instruction *i, route *r)
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
        return sglcore_fail(e->net->env, SGL_INTERNAL, "%s: place %d of %lld is no other rank's", r->exchange.label,
                            other, (long long)size);
    r->from = sends ? own : other;
    r->to = sends ? other : own;
    r->exchange.peer = sends ? 1 : 0; /* of the channel, whose places are its two ends */
    return SGL_OK;
}

static sgl_status lay_route(sglexec_exchanges *e, uint32_t n)
{
    const sglexec_instruction *i = &e->program->instructions.data[n];
    route *r = &e->routes[n];
    r->from = r->to = -1;
    if (i->op == SGLIR_OP_COORDINATE || i->op == SGLIR_OP_SHARE) {
        const sglplan_coordinate here = sglplan_mesh_coordinate(&e->plan, e->rank);
        const int64_t at = here.at[sglexec_attr_int(e->program, i, "axis")];
        const sgl_dtype dtype = (sgl_dtype)e->program->operands.data[i->operand_first].dtype;
        return sglexec_put_number(e->net->env, dtype, i->op == SGLIR_OP_SHARE ? at == 0 : (double)at, r->number);
    }
    if (i->op == SGLIR_OP_WAIT) e->routes[i->begun].waits_later = e->in_place;
    if (!(sglir_ops[i->op].flags & SGLIR_EXCHANGE)) return SGL_OK;
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
    case SGLIR_OP_REDUCE_SCATTER: r->exchange.kind = SGLEXEC_REDUCE_SCATTER; return make_parts(e, i, from, to, 0, r);
    case SGLIR_OP_ALL_GATHER: r->exchange.kind = SGLEXEC_ALL_GATHER; return make_parts(e, i, to, from, 0, r);
    case SGLIR_OP_REDUCE_SCATTER_EACH: return make_members(e, i, false, r);
    case SGLIR_OP_ALL_GATHER_EACH: return make_members(e, i, true, r);
    case SGLIR_OP_ALL_TO_ALL: return make_all_to_all(e, i, from, to, r);
    case SGLIR_OP_RING_SHIFT: return make_shift(e, i, from, to, r);
    default: return sglcore_fail(e->net->env, SGL_INTERNAL, "%s: no exchange that a program runs", r->exchange.label);
    }
}

static sgl_status lay_routes(sglexec_exchanges *e, const sglexec_device_ops *device)
{
    const int64_t count = e->program->instructions.count;
    e->routes = sglcore_arena_alloc(&e->arena, (size_t)(count + 1) * sizeof *e->routes);
    if (!e->routes) return SGL_OUT_OF_MEMORY;
    e->in_place = device->host_memory;
    for (int64_t n = 0; n < count; n++) SGLCORE_TRY(lay_route(e, (uint32_t)n));
    if (e->in_place || e->staging_bytes == 0) return SGL_OK;
    e->from = sglcore_alloc_aligned(e->net->env, (size_t)e->staging_bytes, 64);
    e->to = sglcore_alloc_aligned(e->net->env, (size_t)e->staging_bytes, 64);
    return e->from && e->to ? SGL_OK : SGL_OUT_OF_MEMORY;
}

sgl_status sglexec_exchanges_new(sglexec_net *net, const sglexec_program *program, const sglplan *plan, int64_t rank,
                                 const sglexec_device_ops *device, sglexec_exchanges **exchanges)
{
    *exchanges = NULL;
    sglexec_exchanges *made = sglcore_alloc_zero(net->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    *made = (sglexec_exchanges){
        .net = net, .program = program, .plan = *plan, .rank = rank, .arena = { .env = net->env }
    };
    sgl_status status = lay_routes(made, device);
    if (status == SGL_OK)
        *exchanges = made;
    else
        sglexec_exchanges_free(made);
    return status;
}

void sglexec_exchanges_free(sglexec_exchanges *e)
{
    if (!e) return;
    sglcore_env *env = e->net->env;
    if (e->from) sglcore_free_aligned(env, e->from, (size_t)e->staging_bytes, 64);
    if (e->to) sglcore_free_aligned(env, e->to, (size_t)e->staging_bytes, 64);
    sglcore_arena_free(&e->arena);
    sglcore_free(env, e, sizeof *e);
}

/* ---- before the first step ------------------------------------------------------------------------------------------ */

sglcore_hash sglexec_exchanges_hash(const sglexec_exchanges *e)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        const sglexec_instruction *i = &e->program->instructions.data[n];
        const route *r = &e->routes[n];
        if (sglexec_is_control(i)) {
            sglcore_hasher_u64(&hasher, i->op);
            sglcore_hasher_u64(&hasher, (uint64_t)i->steps);
        }
        if (r->axes == 0 || is_pair(r)) continue;
        sglcore_hasher_u64(&hasher, i->op);
        sglcore_hasher_u64(&hasher, r->axes);
        sglcore_hasher_u64(&hasher, r->exchange.dtype);
    }
    return sglcore_hasher_end(&hasher);
}

/* Sets of what programs exchange over: of axes, a bit each; of channels along an axis: row `from` has
 * a bit for each `to`. */
enum { AXES_WORDS = ((1 << SGLIR_AXIS_COUNT) + 63) / 64, MOST_PLACES = 64 };
typedef uint64_t axes_set[AXES_WORDS];
typedef uint64_t channel_set[MOST_PLACES];

/* Of all ranks: those of one stage exchange over axes over which those of another do not. */
static sgl_status unite(sglexec_net *net, uint64_t *set, int64_t words)
{
    const int64_t ranks = net->ops->size(net->comm), row = words * (int64_t)sizeof *set;
    uint64_t *all = sglcore_alloc(net->env, (size_t)(ranks * row));
    if (!all) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglexec_net_gather(net, set, row, all, "telling groups");
    for (int64_t i = 0; i < ranks * words && status == SGL_OK; i++) set[i % words] |= all[i];
    sglcore_free(net->env, all, (size_t)(ranks * row));
    return status;
}

static void use_group(sglexec_exchanges *e, sglplan_axes axes, int from, int to, sglexec_group *group)
{
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        route *r = &e->routes[n];
        if (r->axes == axes && r->from == from && r->to == to) r->group = group;
    }
}

static sgl_status make_channels(sglexec_exchanges *e, sglplan_axes axis)
{
    channel_set set = { 0 };
    const int size = (int)sglplan_group_size(&e->plan, axis);
    if (size > MOST_PLACES)
        return sglcore_fail(e->net->env, SGL_LIMIT, "%d ranks send to each other along an axis; %d are the most", size,
                            (int)MOST_PLACES);
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        const route *r = &e->routes[n];
        if (r->axes == axis && is_pair(r)) set[r->from] |= (uint64_t)1 << r->to;
    }
    SGLCORE_TRY(unite(e->net, set, MOST_PLACES));
    for (int from = 0; from < size; from++) {
        for (int to = 0; to < size; to++) {
            sglexec_group *group;
            if ((set[from] >> to & 1) == 0) continue;
            SGLCORE_TRY(group_of(e, axis, from, to, &group));
            use_group(e, axis, from, to, group);
        }
    }
    return SGL_OK;
}

/* In the order of the masks: transports count groups as they are made, so that all ranks make the same. */
sgl_status sglexec_exchanges_make_groups(sglexec_exchanges *e)
{
    axes_set together[2] = { { 0 } }; /* of all ranks, and with channels */
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        const route *r = &e->routes[n];
        if (r->axes != 0) together[is_pair(r)][r->axes / 64] |= (uint64_t)1 << r->axes % 64;
    }
    SGLCORE_TRY(unite(e->net, together[0], 2 * AXES_WORDS));
    for (sglplan_axes axes = 1; axes < SGLPLAN_AXIS(SGLIR_AXIS_COUNT); axes++) {
        sglexec_group *group;
        if (together[0][axes / 64] >> axes % 64 & 1) {
            SGLCORE_TRY(group_of(e, axes, -1, -1, &group));
            use_group(e, axes, -1, -1, group);
        }
        if (together[1][axes / 64] >> axes % 64 & 1) SGLCORE_TRY(make_channels(e, axes));
    }
    return SGL_OK;
}

/* ---- replay ---------------------------------------------------------------------------------------------------------- */

/* What an instruction sends and receives: operands, one for each member. */
typedef struct ends {
    const sglexec_operand *from, *to;
    uint32_t froms, tos;
} ends;

static ends ends_of(const sglexec_exchanges *e, const sglexec_instruction *i)
{
    const sglexec_operand *first = &e->program->operands.data[i->operand_first];
    return (ends){ first, first + i->arg_count, i->arg_count, i->op == SGLIR_OP_SEND ? 0 : i->result_count };
}

static void set_from(route *r, sglexec_exchange *x, uint32_t i, const void *from)
{
    if (r->members)
        r->members[i].from = from;
    else
        x->from = from;
}

static void set_to(route *r, sglexec_exchange *x, uint32_t i, void *to)
{
    if (r->members)
        r->members[i].to = to;
    else
        x->to = to;
}

static sgl_status run_staged(sglexec_exchanges *e, const sglexec_memory *m, route *r, const ends *n)
{
    sglexec_exchange x = r->exchange;
    int64_t at = 0;
    for (uint32_t i = 0; i < n->froms; i++) {
        const sglexec_operand *from = &n->from[i];
        set_from(r, &x, i, e->from + at);
        SGLCORE_TRY(m->ops->read(m->device, m->spaces[from->space], from->offset, e->from + at, bytes_of(from)));
        at += bytes_of(from);
    }
    at = 0;
    for (uint32_t i = 0; i < n->tos; i++) {
        set_to(r, &x, i, e->to + at);
        at += bytes_of(&n->to[i]);
    }
    SGLCORE_TRY(exchange(e->net, r->group, &x));
    at = 0;
    for (uint32_t i = 0; i < n->tos; i++) {
        const sglexec_operand *to = &n->to[i];
        SGLCORE_TRY(m->ops->write(m->device, m->spaces[to->space], to->offset, e->to + at, bytes_of(to)));
        at += bytes_of(to);
    }
    return SGL_OK;
}

/* It is over, come what may: comm.h. */
static sgl_status end(sglexec_exchanges *e, route *r)
{
    if (!r->under_way) return SGL_OK;
    r->under_way = false;
    e->under_way--;
    return e->net->ops->wait(r->group, r->ticket, NULL);
}

static sgl_status begin(sglexec_exchanges *e, route *r, const sglexec_exchange *given)
{
    sglexec_exchange x = *given;
    SGLCORE_TRY(start(e->net, r->group, &x, &r->ticket));
    r->under_way = true;
    e->under_way++;
    return SGL_OK;
}

sgl_status sglexec_exchanges_run(sglexec_exchanges *e, const sglexec_memory *m, uint32_t n, bool at_once)
{
    const sglexec_instruction *i = &e->program->instructions.data[n];
    const sglexec_operand *first = &e->program->operands.data[i->operand_first];
    route *r = &e->routes[n];
    if (i->op == SGLIR_OP_WAIT) return end(e, &e->routes[i->begun]);
    if (r->axes == 0)
        return m->ops->write(m->device, m->spaces[first->space], first->offset, r->number, bytes_of(first));
    SGLCORE_TRY(m->ops->finish(m->device));
    const ends all = ends_of(e, i);
    if (!e->in_place) return run_staged(e, m, r, &all);
    sglexec_exchange x = r->exchange;
    for (uint32_t k = 0; k < all.froms; k++)
        set_from(r, &x, k, (const char *)m->spaces[all.from[k].space] + all.from[k].offset);
    for (uint32_t k = 0; k < all.tos; k++) set_to(r, &x, k, (char *)m->spaces[all.to[k].space] + all.to[k].offset);
    SGLCORE_TRY(begin(e, r, &x));
    return r->waits_later && !at_once && e->under_way < MOST_UNDER_WAY ? SGL_OK : end(e, r);
}

void sglexec_exchanges_settle(sglexec_exchanges *e)
{
    sglcore_env *env = e->net->env;
    char message[sizeof env->message];
    memcpy(message, env->message, sizeof message);
    for (int64_t n = 0; n < e->program->instructions.count && e->under_way > 0; n++) (void)end(e, &e->routes[n]);
    memcpy(env->message, message, sizeof message);
}
