/* simulate.c -- ranks run until each waits for what another has not begun yet. In and out: simulate.h.
 *
 * Ranks and groups take turns, the earliest first. A rank runs until it waits for an exchange that has not ended. An
 * exchange that all its ranks have begun has its turn when the links that it needs are free, and lets those go on who
 * wait for it. When nobody has a turn, all ranks are at their end, or those that are not will never be. */
#include "tune/simulate.h"

#include <string.h>

/* The n-th of a group. */
typedef struct meeting {
    int32_t arrived;   /* ranks that have begun it */
    uint32_t first;    /* event of the rank that was first */
    int64_t rank;      /* that one */
    double ready, end; /* when the last of them began it; when it is over, -1: not yet */
} meeting;

typedef struct group {
    int64_t base;    /* its rank with the lowest number */
    sgltune_way way; /* of all ranks in it */
    int32_t size;
    int64_t ended; /* meetings */
    bool called;   /* it stands among the turns */
    SGLCORE_VEC(meeting) meetings;
    SGLCORE_VEC(int64_t) waiting; /* ranks */
} group;

typedef struct actor {
    int64_t at; /* event */
    double now, exposed;
    double link;      /* when its link out is free */
    uint32_t *groups; /* per way of its list */
} actor;

/* A rank that can go on, or a group whose next exchange all have begun. */
typedef struct turn {
    double at;
    bool ends;      /* of a group */
    int64_t of;     /* rank, or group */
    uint32_t order; /* of a group: the event that began it */
} turn;

typedef struct paper {
    sglcore_env *env;
    const sglplan *plan;
    int64_t ranks;
    const sgltune_list *const *lists;
    actor *actors;
    SGLCORE_VEC(group) groups;
    SGLCORE_VEC(turn) turns;
    sglcore_map found; /* { way and base } to group */
    sglcore_arena arena;
} paper;

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void sgltune_list_free(sglcore_env *env, sgltune_list *list)
{
    sglcore_vec_free(env, &list->events);
    sglcore_vec_free(env, &list->ways);
    sglcore_vec_free(env, &list->labels);
}

sgl_status sgltune_list_label(sglcore_env *env, sgltune_list *list, const char *text, uint32_t *label)
{
    const int64_t length = (int64_t)strlen(text) + 1;
    SGLCORE_TRY(sglcore_vec_reserve(env, &list->labels, length));
    *label = (uint32_t)list->labels.count;
    memcpy(&list->labels.data[list->labels.count], text, (size_t)length);
    list->labels.count += length;
    return SGL_OK;
}

sgl_status sgltune_list_work(sglcore_env *env, sgltune_list *list, double seconds)
{
    sgltune_event *last = list->events.count > 0 ? &list->events.data[list->events.count - 1] : NULL;
    if (last == NULL || last->what != SGLTUNE_WORK)
        return sglcore_vec_push(env, &list->events, (sgltune_event){ .what = SGLTUNE_WORK, .seconds = seconds });
    last->seconds += seconds; /* one stretch of work is one event */
    return SGL_OK;
}

static bool same_way(const sgltune_way *a, const sgltune_way *b)
{
    return a->axes == b->axes && a->from == b->from && a->to == b->to;
}

sgl_status sgltune_list_begin(sglcore_env *env, sgltune_list *list, const sgltune_way *way, const sgltune_event *begin,
                              uint32_t *event)
{
    sgltune_event made = *begin;
    made.what = SGLTUNE_BEGIN;
    made.way = 0;
    while (made.way < list->ways.count && !same_way(&list->ways.data[made.way], way)) made.way++;
    if (made.way == list->ways.count) {
        SGLCORE_TRY(
            sglcore_vec_push(env, &list->ways, (sgltune_way){ .axes = way->axes, .from = way->from, .to = way->to }));
    }
    made.number = list->ways.data[made.way].begun;
    SGLCORE_TRY(sglcore_vec_push(env, &list->events, made));
    list->ways.data[made.way].begun++;
    *event = (uint32_t)(list->events.count - 1);
    return SGL_OK;
}

sgl_status sgltune_list_wait(sglcore_env *env, sgltune_list *list, uint32_t event)
{
    return sglcore_vec_push(env, &list->events, (sgltune_event){ .what = SGLTUNE_WAIT, .of = event });
}

sglcore_hash sgltune_list_hash(const sgltune_list *list)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t w = 0; w < list->ways.count; w++) {
        const sgltune_way *way = &list->ways.data[w];
        const uint64_t facts[] = { way->axes, (uint64_t)way->from, (uint64_t)way->to };
        sglcore_hasher_add(&hasher, facts, sizeof facts);
    }
    for (int64_t i = 0; i < list->events.count; i++) {
        const sgltune_event *e = &list->events.data[i];
        const uint64_t facts[] = { e->what, e->kind, e->way, e->of, e->number, e->amount, e->cut };
        sglcore_hasher_add(&hasher, facts, sizeof facts);
    }
    return sglcore_hasher_end(&hasher);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool is_channel(const sgltune_way *w) { return w->from >= 0; }

static int64_t member(const paper *p, const group *g, int64_t place)
{
    if (is_channel(&g->way)) place = place == 0 ? g->way.from : g->way.to;
    return sglplan_group_member(p->plan, g->way.axes, g->base, place);
}

static sgl_status find_group(paper *p, int64_t rank, const sgltune_way *way, uint32_t *found)
{
    const int64_t base = sglplan_group_member(p->plan, way->axes, rank, 0);
    const int64_t facts[] = { base, (int64_t)way->axes, way->from, way->to };
    const sglcore_hash key = sglcore_hash_bytes(facts, sizeof facts);
    uint64_t at = 0;
    if (sglcore_map_get(&p->found, key, &at)) {
        *found = (uint32_t)at;
        return SGL_OK;
    }
    *found = (uint32_t)p->groups.count;
    SGLCORE_TRY(sglcore_map_put(p->env, &p->found, key, *found));
    const int32_t size = is_channel(way) ? 2 : (int32_t)sglplan_group_size(p->plan, way->axes);
    return sglcore_vec_push(p->env, &p->groups, (group){ .base = base, .way = *way, .size = size });
}

static group *group_of(const paper *p, int64_t rank, const sgltune_event *begin)
{
    return &p->groups.data[p->actors[rank].groups[begin->way]];
}

static const char *label_of(const paper *p, int64_t rank, uint32_t event)
{
    const sgltune_list *list = p->lists[rank];
    return &list->labels.data[list->events.data[event].label];
}

/* ---- turns, the earliest first ----------------------------------------------------------------------------------- */

static bool is_before(const turn *a, const turn *b)
{
    if (a->at != b->at) return a->at < b->at;
    if (a->ends != b->ends) return b->ends; /* first what ranks begin at that time, then who gets a link */
    return a->order != b->order ? a->order < b->order : a->of < b->of;
}

static void swap(turn *a, turn *b)
{
    const turn kept = *a;
    *a = *b;
    *b = kept;
}

/* A heap, whose room is made at the start: each rank and each group has one turn at most. */
static void put_turn(paper *p, turn next)
{
    turn *heap = p->turns.data;
    int64_t at = p->turns.count++;
    for (heap[at] = next; at > 0 && is_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static turn take_turn(paper *p)
{
    turn *heap = p->turns.data;
    const turn first = heap[0];
    const int64_t count = --p->turns.count;
    heap[0] = heap[count];
    for (int64_t at = 0;;) {
        int64_t least = at;
        for (int64_t below = 2 * at + 1; below <= 2 * at + 2 && below < count; below++)
            if (is_before(&heap[below], &heap[least])) least = below;
        if (least == at) return first;
        swap(&heap[at], &heap[least]);
        at = least;
    }
}

/* ---- exchanges that end ------------------------------------------------------------------------------------------ */

/* Of a channel the sender's link alone is taken up. */
static int64_t senders(const group *g) { return is_channel(&g->way) ? 1 : g->size; }

/* When the group's next exchange could be under way. */
static double start_of(const paper *p, const group *g)
{
    double start = g->meetings.data[g->ended].ready;
    if (g->ended > 0 && g->meetings.data[g->ended - 1].end > start) start = g->meetings.data[g->ended - 1].end;
    for (int64_t place = 0; place < senders(g); place++) {
        const double link = p->actors[member(p, g, place)].link;
        if (link > start) start = link;
    }
    return start;
}

/* Once all its ranks are there the group's next exchange has its turn. */
static void call_group(paper *p, group *g)
{
    if (g->called || g->ended == g->meetings.count || g->meetings.data[g->ended].arrived < g->size) return;
    g->called = true;
    put_turn(p, (turn){ .at = start_of(p, g),
                        .ends = true,
                        .of = g - p->groups.data,
                        .order = g->meetings.data[g->ended].first });
}

/* Others may have taken the links meanwhile: then its turn comes later. */
static void end_meeting(paper *p, group *g, double at)
{
    meeting *m = &g->meetings.data[g->ended];
    const sgltune_event *e = &p->lists[m->rank]->events.data[m->first];
    g->called = false;
    if (start_of(p, g) > at) {
        call_group(p, g);
        return;
    }
    for (int64_t place = 0; place < senders(g); place++) p->actors[member(p, g, place)].link = at + e->seconds;
    m->end = at + e->seconds + e->latency;
    g->ended++;
    for (int64_t i = 0; i < g->waiting.count; i++) /* who waits for a later one comes back */
        put_turn(p, (turn){ .at = p->actors[g->waiting.data[i]].now, .of = g->waiting.data[i] });
    g->waiting.count = 0;
    call_group(p, g);
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

static sgl_status fail_differ(const paper *p, const meeting *m, int64_t rank, uint32_t event)
{
    const sgltune_event *here = &p->lists[rank]->events.data[event], *there = &p->lists[m->rank]->events.data[m->first];
    const bool parts = here->kind == there->kind && here->amount == there->amount;
    return sglcore_fail(p->env, SGL_INVALID_ARGUMENT,
                        "rank %lld would meet rank %lld in another exchange: here %s (%llu elements), there %s (%llu "
                        "elements%s): every rank must run the same script",
                        (long long)rank, (long long)m->rank, label_of(p, rank, event), (unsigned long long)here->amount,
                        label_of(p, m->rank, m->first), (unsigned long long)there->amount,
                        parts ? ", in other parts" : "");
}

static sgl_status begin(paper *p, int64_t rank, uint32_t at)
{
    const sgltune_event *e = &p->lists[rank]->events.data[at];
    const double now = p->actors[rank].now;
    group *g = group_of(p, rank, e);
    if (e->number == g->meetings.count)
        SGLCORE_TRY(sglcore_vec_push(p->env, &g->meetings, (meeting){ .first = at, .rank = rank }));
    meeting *m = &g->meetings.data[e->number];
    const sgltune_event *first = &p->lists[m->rank]->events.data[m->first];
    if (first->kind != e->kind || first->amount != e->amount || first->cut != e->cut)
        return fail_differ(p, m, rank, at);
    m->arrived++;
    if (now > m->ready) m->ready = now;
    call_group(p, g);
    return SGL_OK;
}

/* False: the exchange has not ended. */
static bool wait(paper *p, int64_t rank, uint32_t of)
{
    const sgltune_event *e = &p->lists[rank]->events.data[of];
    const group *g = group_of(p, rank, e);
    actor *a = &p->actors[rank];
    if ((int64_t)e->number >= g->ended) return false;
    const double end = g->meetings.data[e->number].end;
    if (end <= a->now) return true;
    a->exposed += end - a->now;
    a->now = end;
    return true;
}

static sgl_status run_rank(paper *p, int64_t rank)
{
    const sgltune_list *list = p->lists[rank];
    actor *a = &p->actors[rank];
    for (; a->at < list->events.count; a->at++) {
        const sgltune_event *e = &list->events.data[a->at];
        if (e->what == SGLTUNE_WORK) a->now += e->seconds;
        if (e->what == SGLTUNE_BEGIN) SGLCORE_TRY(begin(p, rank, (uint32_t)a->at));
        if (e->what == SGLTUNE_WAIT && !wait(p, rank, e->of))
            return sglcore_vec_push(p->env, &group_of(p, rank, &list->events.data[e->of])->waiting, rank);
    }
    return SGL_OK;
}

/* ---- who waits for whom ------------------------------------------------------------------------------------------ */

/* A rank of the group that has not begun its next exchange. */
static int64_t missing(const paper *p, const group *g)
{
    for (int64_t place = 0; place < g->size; place++) {
        const int64_t rank = member(p, g, place);
        const sgltune_list *list = p->lists[rank];
        int64_t begun = 0;
        for (int64_t i = 0; i < p->actors[rank].at; i++) {
            const sgltune_event *e = &list->events.data[i];
            begun += e->what == SGLTUNE_BEGIN && group_of(p, rank, e) == g;
        }
        if (begun <= g->ended) return rank;
    }
    return g->base;
}

/* From one rank that cannot go on to the one that it waits for, until one comes again or has ended its list. */
static sgl_status add_circle(const paper *p, int64_t rank, sglcore_text *text)
{
    bool *seen = sglcore_alloc_zero(p->env, (size_t)p->ranks * sizeof *seen);
    sgl_status status = seen ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = sglcore_text_add(p->env, text, "rank %lld", (long long)rank);
    while (status == SGL_OK && !seen[rank]) {
        const sgltune_list *list = p->lists[rank];
        const int64_t at = p->actors[rank].at;
        if (at == list->events.count) {
            status = sglcore_text_add(p->env, text, ", which ends its step without it");
            break;
        }
        const uint32_t of = list->events.data[at].of;
        seen[rank] = true;
        const int64_t next = missing(p, group_of(p, rank, &list->events.data[of]));
        status = sglcore_text_add(p->env, text, " waits in %s for rank %lld", label_of(p, rank, of), (long long)next);
        rank = next;
        if (status == SGL_OK && !seen[rank] && p->actors[rank].at < p->lists[rank]->events.count)
            status = sglcore_text_add(p->env, text, ", which");
    }
    sglcore_free(p->env, seen, (size_t)p->ranks * sizeof *seen);
    return status;
}

static sgl_status fail_stuck(const paper *p, int64_t rank)
{
    sglcore_text text = { 0 };
    sgl_status status = add_circle(p, rank, &text);
    if (status == SGL_OK)
        status = sglcore_fail(p->env, SGL_INVALID_ARGUMENT,
                              "plan: the exchanges of this plan would never end: %s; nothing was started", text.data);
    sglcore_text_free(p->env, &text);
    return status;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static sgl_status find_groups(paper *p)
{
    for (int64_t rank = 0; rank < p->ranks; rank++) {
        const sgltune_list *list = p->lists[rank];
        actor *a = &p->actors[rank];
        a->groups = sglcore_arena_alloc(&p->arena, (size_t)(list->ways.count + 1) * sizeof *a->groups);
        if (!a->groups) return SGL_OUT_OF_MEMORY;
        for (int64_t w = 0; w < list->ways.count; w++)
            SGLCORE_TRY(find_group(p, rank, &list->ways.data[w], &a->groups[w]));
    }
    return SGL_OK;
}

static sgl_status run_all(paper *p)
{
    SGLCORE_TRY(sglcore_vec_reserve(p->env, &p->turns, p->ranks + p->groups.count));
    for (int64_t rank = 0; rank < p->ranks; rank++) put_turn(p, (turn){ .of = rank });
    while (p->turns.count > 0) {
        const turn next = take_turn(p);
        if (next.ends)
            end_meeting(p, &p->groups.data[next.of], next.at);
        else
            SGLCORE_TRY(run_rank(p, next.of));
    }
    for (int64_t rank = 0; rank < p->ranks; rank++)
        if (p->actors[rank].at < p->lists[rank]->events.count) return fail_stuck(p, rank);
    return SGL_OK;
}

sgl_status sgltune_simulate(sglcore_env *env, const sglplan *plan, int64_t ranks, const sgltune_list *const *lists,
                            sgltune_times *times)
{
    paper p = { .env = env, .plan = plan, .ranks = ranks, .lists = lists, .arena = { .env = env } };
    p.actors = sglcore_arena_alloc(&p.arena, (size_t)ranks * sizeof *p.actors);
    sgl_status status = p.actors ? find_groups(&p) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = run_all(&p);
    for (int64_t rank = 0; rank < ranks && status == SGL_OK && times; rank++)
        times[rank] = (sgltune_times){ .step = p.actors[rank].now, .exposed = p.actors[rank].exposed };
    for (int64_t g = 0; g < p.groups.count; g++) {
        sglcore_vec_free(env, &p.groups.data[g].meetings);
        sglcore_vec_free(env, &p.groups.data[g].waiting);
    }
    sglcore_vec_free(env, &p.groups);
    sglcore_vec_free(env, &p.turns);
    sglcore_map_free(env, &p.found);
    sglcore_arena_free(&p.arena);
    return status;
}
