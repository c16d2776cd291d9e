/* net.c -- the exchanges of a program: their groups, and how one of them is run.
 *
 * Comes in: instructions with their routes (net_routes.c), memory. Goes out: calls of the comm port. A device whose
 * memory is the host's is read and written in place, and of its exchanges those that the program waits for with a WAIT
 * run on meanwhile; of another, what is sent and what comes go through two blocks that are made with the program, which
 * serve one exchange at a time: there each is waited for at once, and a WAIT finds it ended. Where devices exchange by
 * themselves (net_link.c) nothing of a program's step is run here. Odd invariant: exchanges
 * are numbered over all programs and steps of the net, as heartbeats tell them. */
#include <stdio.h>
#include <string.h>

#include "exec/net_parts.h"

/* A program leaves fewer than so many exchanges under way, which is less than what transports bear of one group. */
enum { MOST_UNDER_WAY = 64 };

/* ---- the net ----------------------------------------------------------------------------------------------------- */

static sgl_status start(sglexec_net *net, sglexec_group *group, sglexec_exchange *x, uint32_t *ticket)
{
    x->number = ++net->number;
    return net->ops->start(group, x, NULL, ticket);
}

sgl_status sglexec_net_exchange(sglexec_net *net, sglexec_group *group, sglexec_exchange *x)
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
    sglexec_net_unlink(net);
    sglcore_vec_free(env, &net->groups);
    sglcore_free(env, net, sizeof *net);
}

sgl_status sglexec_net_gather(sglexec_net *net, const void *own, int64_t bytes, void *all, const char *label)
{
    sglexec_exchange x = {
        .kind = SGLEXEC_ALL_GATHER, .dtype = SGL_U8, .count = bytes, .from = own, .to = all, .label = label
    };
    return sglexec_net_exchange(net, net->world, &x);
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
    return sglexec_net_exchange(net, net->world, &x);
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
    if (status == SGL_OK) {
        sglexec_mesh_group made = { .key = key, .group = *group, .size = (int)size };
        while (made.place < size - 1 && ranks[made.place] != e->rank) made.place++;
        net->groups.data[net->groups.count++] = made;
    }
    sglcore_free(net->env, ranks, (size_t)size * sizeof *ranks);
    return status;
}

/* ---- a program's exchanges --------------------------------------------------------------------------------------- */

static sgl_status prepare(sglexec_exchanges *e, const sglexec_device_ops *device)
{
    e->in_place = device->host_memory;
    SGLCORE_TRY(sglexec_lay_routes(e));
    if (e->in_place || e->staging_bytes == 0) return SGL_OK;
    e->from = sglcore_alloc_aligned(e->env, (size_t)e->staging_bytes, 64);
    e->to = sglcore_alloc_aligned(e->env, (size_t)e->staging_bytes, 64);
    return e->from && e->to ? SGL_OK : SGL_OUT_OF_MEMORY;
}

sgl_status sglexec_exchanges_new(sglexec_net *net, const sglexec_program *program, const sglplan *plan, int64_t rank,
                                 const sglexec_device_ops *device, sglexec_exchanges **exchanges)
{
    *exchanges = NULL;
    sglexec_exchanges *made = sglcore_alloc_zero(net->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    *made = (sglexec_exchanges){
        .net = net, .env = net->env, .program = program, .plan = *plan, .rank = rank, .arena = { .env = net->env }
    };
    sgl_status status = prepare(made, device);
    if (status == SGL_OK)
        *exchanges = made;
    else
        sglexec_exchanges_free(made);
    return status;
}

void sglexec_exchanges_free(sglexec_exchanges *e)
{
    if (!e) return;
    sglcore_env *env = e->env;
    if (e->from) sglcore_free_aligned(env, e->from, (size_t)e->staging_bytes, 64);
    if (e->to) sglcore_free_aligned(env, e->to, (size_t)e->staging_bytes, 64);
    sglcore_arena_free(&e->arena);
    sglcore_free(env, e, sizeof *e);
}

/* ---- before the first step --------------------------------------------------------------------------------------- */

sglcore_hash sglexec_exchanges_hash(const sglexec_exchanges *e)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        const sglexec_instruction *i = &e->program->instructions.data[n];
        const sglexec_route *r = &e->routes[n];
        if (sglexec_is_control(i)) {
            sglcore_hasher_u64(&hasher, i->op);
            sglcore_hasher_u64(&hasher, (uint64_t)i->steps);
        }
        if (r->axes == 0 || sglexec_is_pair(r)) continue;
        sglcore_hasher_u64(&hasher, i->op);
        sglcore_hasher_u64(&hasher, r->axes);
        sglcore_hasher_u64(&hasher, r->exchange.dtype);
    }
    return sglcore_hasher_end(&hasher);
}

/* Sets of what programs exchange over: of axes, a bit each; of channels along an axis, row `from` has a bit for each
 * `to`. */
enum { AXES_WORDS = ((1 << SGLIR_AXIS_COUNT) + 63) / 64 };
typedef uint64_t axes_set[AXES_WORDS];
typedef uint64_t channel_set[SGLPLAN_MOST_STAGES];

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
        sglexec_route *r = &e->routes[n];
        if (r->axes == axes && r->from == from && r->to == to) r->group = group;
    }
}

static sgl_status make_channels(sglexec_exchanges *e, sglplan_axes axis)
{
    channel_set set = { 0 };
    const int size = (int)sglplan_group_size(&e->plan, axis);
    if (size > SGLPLAN_MOST_STAGES)
        return sglcore_fail(e->env, SGL_LIMIT, "%d ranks send to each other along an axis; %d are the most", size,
                            SGLPLAN_MOST_STAGES);
    for (int64_t n = 0; n < e->program->instructions.count; n++) {
        const sglexec_route *r = &e->routes[n];
        if (r->axes == axis && sglexec_is_pair(r)) set[r->from] |= (uint64_t)1 << r->to;
    }
    SGLCORE_TRY(unite(e->net, set, SGLPLAN_MOST_STAGES));
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
        const sglexec_route *r = &e->routes[n];
        if (r->axes != 0) together[sglexec_is_pair(r)][r->axes / 64] |= (uint64_t)1 << r->axes % 64;
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

/* ---- replay ------------------------------------------------------------------------------------------------------ */

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

static void set_from(sglexec_route *r, sglexec_exchange *x, uint32_t i, const void *from)
{
    if (r->members)
        r->members[i].from = from;
    else
        x->from = from;
}

static void set_to(sglexec_route *r, sglexec_exchange *x, uint32_t i, void *to)
{
    if (r->members)
        r->members[i].to = to;
    else
        x->to = to;
}

static sgl_status run_staged(sglexec_exchanges *e, const sglexec_memory *m, sglexec_route *r, const ends *n)
{
    sglexec_exchange x = r->exchange;
    int64_t at = 0;
    for (uint32_t i = 0; i < n->froms; i++) {
        const sglexec_operand *from = &n->from[i];
        set_from(r, &x, i, e->from + at);
        SGLCORE_TRY(
            m->ops->read(m->device, m->spaces[from->space], from->offset, e->from + at, sglexec_operand_bytes(from)));
        at += sglexec_operand_bytes(from);
    }
    at = 0;
    for (uint32_t i = 0; i < n->tos; i++) {
        set_to(r, &x, i, e->to + at);
        at += sglexec_operand_bytes(&n->to[i]);
    }
    SGLCORE_TRY(sglexec_net_exchange(e->net, r->group, &x));
    at = 0;
    for (uint32_t i = 0; i < n->tos; i++) {
        const sglexec_operand *to = &n->to[i];
        SGLCORE_TRY(m->ops->write(m->device, m->spaces[to->space], to->offset, e->to + at, sglexec_operand_bytes(to)));
        at += sglexec_operand_bytes(to);
    }
    return SGL_OK;
}

/* It is over, come what may: comm.h. */
static sgl_status end(sglexec_exchanges *e, sglexec_route *r)
{
    if (!r->under_way) return SGL_OK;
    r->under_way = false;
    e->under_way--;
    return e->net->ops->wait(r->group, r->ticket, NULL);
}

static sgl_status begin(sglexec_exchanges *e, sglexec_route *r, const sglexec_exchange *given)
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
    sglexec_route *r = &e->routes[n];
    if (i->op == SGLIR_OP_WAIT) return end(e, &e->routes[i->begun]);
    if (r->axes == 0)
        return m->ops->write(m->device, m->spaces[first->space], first->offset, r->number,
                             sglexec_operand_bytes(first));
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
    sglcore_env *env = e->env;
    char message[sizeof env->message];
    memcpy(message, env->message, sizeof message);
    if (e->linked) e->net->links->cut(e->net->device);
    for (int64_t n = 0; n < e->program->instructions.count && e->under_way > 0; n++) (void)end(e, &e->routes[n]);
    memcpy(env->message, message, sizeof message);
}
