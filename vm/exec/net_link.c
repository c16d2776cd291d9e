/* net_link.c -- exchanges that devices make by themselves: their links, the routes of a program over them, the watch.
 *
 * Comes in: groups of the comm, a device with links (exec/device.h). Goes out: a link for each group, made over the comm, in
 * an order that all ranks have; a program of which the device runs every exchange. While the device waits it asks here: the comm is
 * told which exchange is under way, so that deadlines, heartbeats and messages are as over the comm, and a comm that is poisoned
 * ends the wait. Odd invariant: all ranks go this way or none does, which they settle once. */
#include <stdio.h>
#include <string.h>

#include "exec/net_parts.h"

/* ---- whether ------------------------------------------------------------------------------------------------------- */

typedef struct ability {
    unsigned char id[SGLEXEC_DEVICE_ID];
    uint8_t able, demanded;
    char why[238];
} ability;

/* The first rank that cannot, and why; NULL: all can. shared: a rank that has the same device as another. */
static const ability *unable(const ability *all, int ranks, int *rank, int *shared)
{
    *shared = -1;
    for (*rank = 0; *rank < ranks; ++*rank)
        if (!all[*rank].able) return &all[*rank];
    for (*rank = 1; *rank < ranks; ++*rank)
        for (int other = 0; other < *rank; other++) {
            if (all[*rank].demanded || memcmp(all[*rank].id, all[other].id, SGLEXEC_DEVICE_ID) != 0) continue;
            *shared = other;
            return &all[*rank];
        }
    return NULL;
}

static sgl_status settle_whether(sglexec_net *net, const sglexec_device_ops *ops, sglexec_device *device,
                                 const ability *all)
{
    const int ranks = net->ops->size(net->comm);
    char why[384];
    int rank, shared;
    const ability *found = unable(all, ranks, &rank, &shared);
    if (!found) {
        net->links = ops->links;
        net->device = device;
        return SGL_OK;
    }
    if (shared >= 0)
        snprintf(why, sizeof why, "rank %d on %s and rank %d have one GPU", rank, net->ops->host(net->comm, rank),
                 shared);
    else
        snprintf(why, sizeof why, "rank %d on %s: %s", rank, net->ops->host(net->comm, rank), found->why);
    for (int r = 0; r < ranks; r++)
        if (all[r].demanded)
            return sglcore_fail(net->env, SGL_UNSUPPORTED, "ranks are to exchange from GPU to GPU, and cannot: %s",
                                why);
    if (net->ops->rank(net->comm) == 0)
        sglcore_log(net->env, SGL_LOG_WARNING, "ranks exchange through the host: %s", why);
    return SGL_OK;
}

static sgl_status say_own(sglexec_net *net, const sglexec_device_ops *ops, sglexec_device *device, ability *own)
{
    bool demanded = false;
    memset(own, 0, sizeof *own);
    const sgl_status opened = ops->links->open(device, own->id, &demanded);
    own->able = opened == SGL_OK;
    own->demanded = demanded;
    if (!own->able) snprintf(own->why, sizeof own->why, "%.200s", net->env->message);
    return opened == SGL_UNSUPPORTED ? SGL_OK : opened;
}

/* Once in the life of a net. */
static sgl_status ask_all(sglexec_net *net, const sglexec_device_ops *ops, sglexec_device *device)
{
    const size_t bytes = (size_t)net->ops->size(net->comm) * sizeof(ability);
    ability own, *all = sglcore_alloc(net->env, bytes);
    if (!all) return SGL_OUT_OF_MEMORY;
    sgl_status status = say_own(net, ops, device, &own);
    if (status == SGL_OK) status = sglexec_net_gather(net, &own, sizeof own, all, "asking how devices exchange");
    if (status == SGL_OK) status = settle_whether(net, ops, device, all);
    sglcore_free(net->env, all, bytes);
    net->asked = status == SGL_OK;
    return status;
}

/* ---- the watch ----------------------------------------------------------------------------------------------------- */

static sgl_status ask(void *context, const sglexec_linked *at, uint64_t number)
{
    sglexec_net *net = context;
    if (net->ops->elsewhere)
        net->ops->elsewhere(net->comm, at ? at->group : NULL, at ? at->exchange : NULL, net->number + number);
    return net->ops->check(net->comm, 0);
}

/* ---- links --------------------------------------------------------------------------------------------------------- */

static sgl_status join(sglexec_net *net, sglexec_mesh_group *g)
{
    char name[SGLEXEC_LINK_NAME] = { 0 };
    sglexec_exchange told = { .kind = SGLEXEC_BROADCAST,
                              .dtype = SGL_U8,
                              .count = sizeof name,
                              .from = name,
                              .to = name,
                              .label = "making a group of devices" };
    const sglexec_linked joining = { .group = g->group, .exchange = &told };
    if (g->place == 0) SGLCORE_TRY(net->links->name(net->device, name));
    SGLCORE_TRY(sglexec_net_exchange(net, g->group, &told));
    const sgl_status status = net->links->join(net->device, name, g->place, g->size, &joining, &g->link);
    if (net->ops->elsewhere) net->ops->elsewhere(net->comm, NULL, NULL, 0);
    return status;
}

static sgl_status join_all(sglexec_net *net)
{
    int made = 0;
    for (int64_t i = 0; i < net->groups.count; i++) {
        sglexec_mesh_group *g = &net->groups.data[i];
        if (!g->group || g->link) continue;
        SGLCORE_TRY(join(net, g));
        made++;
    }
    if (made > 0) sglcore_log(net->env, SGL_LOG_DEBUG, "%d groups exchange from GPU to GPU", made);
    return SGL_OK;
}

/* Of a comm that is poisoned without a word to the others. */
void sglexec_net_unlink(sglexec_net *net)
{
    sglcore_env *env = net->env;
    char message[sizeof env->message];
    if (!net->links) return;
    memcpy(message, env->message, sizeof message);
    if (net->ops->check(net->comm, 0) != SGL_OK) net->links->cut(net->device);
    for (int64_t i = 0; i < net->groups.count; i++)
        if (net->groups.data[i].link) net->links->leave(net->device, net->groups.data[i].link);
    net->links->ask(net->device, NULL, NULL);
    net->links = NULL;
    memcpy(env->message, message, sizeof message);
}

/* ---- routes -------------------------------------------------------------------------------------------------------- */

static sglexec_link *link_of(const sglexec_net *net, const sglexec_group *group)
{
    for (int64_t i = 0; i < net->groups.count; i++)
        if (net->groups.data[i].group == group) return net->groups.data[i].link;
    return NULL;
}

static sgl_status route(sglexec_exchanges *e, void *prepared)
{
    const int64_t count = e->program->instructions.count;
    sglexec_linked *linked = sglcore_arena_alloc(&e->arena, (size_t)(count + 1) * sizeof *linked);
    if (!linked) return SGL_OUT_OF_MEMORY;
    for (int64_t n = 0; n < count; n++) {
        const sglexec_instruction *i = &e->program->instructions.data[n];
        const sglexec_route *r = &e->routes[n];
        if (i->op == SGLIR_OP_WAIT) linked[i->begun].waits_later = true;
        linked[n].number = r->number;
        if (r->axes == 0) continue;
        linked[n].group = r->group;
        linked[n].exchange = &r->exchange;
        linked[n].link = link_of(e->net, r->group);
        if (!linked[n].link)
            return sglcore_fail(e->env, SGL_INTERNAL, "%s: its group of devices was not made", r->exchange.label);
    }
    SGLCORE_TRY(e->net->links->route(e->net->device, prepared, linked));
    e->linked = linked;
    return SGL_OK;
}

sgl_status sglexec_exchanges_link(sglexec_exchanges *e, const sglexec_device_ops *ops, sglexec_device *device,
                                  void *prepared)
{
    sglexec_net *net = e->net;
    if (!ops->links || e->linked) return SGL_OK;
    if (!net->asked) SGLCORE_TRY(ask_all(net, ops, device));
    if (!net->links) return SGL_OK;
    net->links->ask(device, ask, net);
    SGLCORE_TRY(join_all(net));
    return route(e, prepared);
}

bool sglexec_exchanges_are_linked(const sglexec_exchanges *e) { return e->linked != NULL; }

sgl_status sglexec_exchanges_join(const sglexec_exchanges *e) { return e->net->links->join_all(e->net->device); }
