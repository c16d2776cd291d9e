/* order.c -- whether the ranks of a world would come to the end of a step: all of them on paper, before the first one.
 *
 * Comes in: this rank's program. Goes out: nothing, or on every rank the same error, which names both sides of what
 * would hang (tune/simulate.h). What a rank does is exchanged as a list, once for all ranks that do the same: where all
 * do, which is the rule without stages, nothing but a hash of it. Odd invariant: a list that comes from another rank is
 * trusted as far as its sizes, since all run one version of the library (collectives compare that when they join). */
#include <string.h>

#include "session/session.h"
#include "tune/list.h"

typedef struct told {
    sglcore_hash hash;
    int64_t events, ways, labels;
} told;

typedef struct order {
    sgl_program *program;
    sglcore_env *env;
    sglsession_world *world;
    sgltune_list own;
    told *all;                  /* of all ranks */
    sgltune_list *others;       /* as many; of the first rank of each that does the same */
    const sgltune_list **lists; /* as many */
} order;

static int first_alike(const order *o, int rank)
{
    int first = 0;
    while (!sglcore_hash_equal(o->all[first].hash, o->all[rank].hash)) first++;
    return first;
}

/* What `from` does becomes known to all. */
static sgl_status tell_list(order *o, int from)
{
    const told *t = &o->all[from];
    const bool mine = from == o->world->rank;
    sgltune_list *list = &o->others[from];
    SGLCORE_TRY(sglcore_vec_reserve(o->env, &list->events, t->events));
    SGLCORE_TRY(sglcore_vec_reserve(o->env, &list->ways, t->ways));
    SGLCORE_TRY(sglcore_vec_reserve(o->env, &list->labels, t->labels));
    list->events.count = t->events;
    list->ways.count = t->ways;
    list->labels.count = t->labels;
    const struct {
        void *to;
        const void *own;
        int64_t bytes;
    } parts[] = {
        { list->events.data, o->own.events.data, t->events * (int64_t)sizeof *list->events.data },
        { list->ways.data, o->own.ways.data, t->ways * (int64_t)sizeof *list->ways.data },
        { list->labels.data, o->own.labels.data, t->labels },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes == 0) continue;
        if (mine) memcpy(parts[i].to, parts[i].own, (size_t)parts[i].bytes);
        SGLCORE_TRY(sglexec_net_broadcast(o->world->net, from, parts[i].to, parts[i].bytes, "comparing exchanges"));
    }
    return SGL_OK;
}

static sgl_status tell_lists(order *o)
{
    const told mine = { sgltune_list_hash(&o->own), o->own.events.count, o->own.ways.count, o->own.labels.count };
    bool alike = true;
    SGLCORE_TRY(sglexec_net_gather(o->world->net, &mine, sizeof mine, o->all, "comparing exchanges"));
    for (int r = 0; r < o->world->ranks; r++) alike = alike && first_alike(o, r) == 0;
    for (int r = 0; r < o->world->ranks; r++) {
        const int first = first_alike(o, r);
        if (first == r && !alike) SGLCORE_TRY(tell_list(o, r));
        o->lists[r] = alike ? &o->own : &o->others[first];
    }
    return SGL_OK;
}

/* *known: all ranks have failed alike. */
static sgl_status prove(order *o, bool *known)
{
    const sgltune_rates none = { 0 };
    SGLCORE_TRY(sgltune_list_of(o->env, o->program->program, &o->program->plan, o->program->rank, &none, &o->own));
    SGLCORE_TRY(tell_lists(o));
    sgl_status status = sgltune_simulate(o->env, &o->program->plan, o->world->ranks, o->lists, NULL);
    *known = status == SGL_INVALID_ARGUMENT;
    if (*known) o->world->told_by = 0;
    return status;
}

sgl_status sglsession_prove_order(sgl_program *program, bool *known)
{
    sglsession_world *world = &program->session->world;
    const size_t ranks = (size_t)world->ranks;
    order o = { .program = program, .env = &program->session->vm->env, .world = world };
    sglcore_arena arena = { .env = o.env };
    o.all = sglcore_arena_alloc(&arena, ranks * sizeof *o.all);
    o.others = sglcore_arena_alloc(&arena, ranks * sizeof *o.others);
    o.lists = sglcore_arena_alloc(&arena, ranks * sizeof *o.lists);
    sgl_status status = o.all && o.others && o.lists ? prove(&o, known) : SGL_OUT_OF_MEMORY;
    for (size_t r = 0; o.others && r < ranks; r++) sgltune_list_free(o.env, &o.others[r]);
    sgltune_list_free(o.env, &o.own);
    sglcore_arena_free(&arena);
    return status;
}
