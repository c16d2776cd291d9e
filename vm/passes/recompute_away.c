/* recompute_away.c -- which of the values that are kept for the backward go to memory of the host meanwhile.
 *
 * In: a region with its stored values, each made in the forward and wanted in the backward. Out: `away` on some of them.
 * How: on paper (plan/cost) a link carries one value after another each way, beside what is computed: out in the order in
 * which they are made, back in the order in which they are wanted, each just in time. The value that is not used for the
 * longest time goes first; one for which the link has no time is left to be kept or made again. A choice that does not
 * lower the peak is taken back. Odd invariant: a node of which one result goes away has no result that only a clone
 * would want: what of it does not go is kept. */
#include "passes/recompute_parts.h"

enum { NOWHERE = -1 };

typedef struct sender {
    sglpass_again *s;
    double *clock;        /* per position of the region; one more for the end */
    int64_t *wanted;      /* per value: position of the first node of the backward that wants it */
    uint8_t *met;         /* per value: its makers were looked at */
    uint32_t *out, *back; /* candidates, by when they are made, and wanted */
    uint8_t *chosen;      /* per candidate */
    double *arrived;      /* per candidate: when it is in memory of the host */
    sglpass_again_candidates list;
    sglpass_again_ids stack;
} sender;

/* ---- when values are made and wanted ------------------------------------------------------------------------------ */

static void run_clock(sender *a)
{
    const sglpass_again *s = a->s;
    const sglir_region *region = &s->g->regions.data[s->region];
    double now = 0;
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        a->clock[n] = now;
        if (s->node[id].live) now += sglplan_seconds_unfused(s->g, id);
    }
    a->clock[region->nodes.count] = now;
}

/* Of all that the backward's use of a value takes, what is stored: made from nothing else that is. */
static sgl_status want(sender *a, sglir_id value, int64_t position)
{
    const sglpass_again *s = a->s;
    a->stack.count = 0;
    SGLCORE_TRY(sglcore_vec_push(s->env, &a->stack, value));
    while (a->stack.count > 0) {
        const sglir_id at = a->stack.data[--a->stack.count], maker = sglpass_again_maker(s, at);
        if (maker == SGLIR_NONE || s->node[maker].backward || a->met[at]) continue;
        a->met[at] = 1;
        if (s->value[at].stored) {
            a->wanted[at] = position;
            continue;
        }
        const sglir_node *node = sglpass_again_at(s, maker);
        for (uint32_t i = 0; i < node->arg_count; i++)
            SGLCORE_TRY(sglcore_vec_push(s->env, &a->stack, sglir_arg(s->g, node, i)));
    }
    return SGL_OK;
}

static sgl_status find_wanted(sender *a)
{
    sglpass_again *s = a->s;
    const sglir_region *region = &s->g->regions.data[s->region];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        if (!s->node[id].live || !s->node[id].backward) continue;
        SGLCORE_TRY(sglpass_again_uses(s, id));
        for (int64_t i = 0; i < s->uses.count; i++) SGLCORE_TRY(want(a, s->uses.data[i], n));
    }
    return SGL_OK;
}

/* ---- candidates ----------------------------------------------------------------------------------------------------- */

static int64_t made_at(const sender *a, uint32_t c)
{
    return a->s->node[sglpass_again_maker(a->s, a->list.data[c].value)].position;
}
static int64_t wanted_at(const sender *a, uint32_t c) { return a->wanted[a->list.data[c].value]; }
static double seconds_of(const sender *a, uint32_t c)
{
    return sglplan_move_seconds(sglir_bytes(sglir_type_of(a->s->g, a->list.data[c].value)));
}

static bool may_go(const sender *a, sglir_id value)
{
    const sglpass_again *s = a->s;
    const sglir_node *node = sglpass_again_at(s, sglpass_again_maker(s, value));
    if (node->arg_count == 0 || a->wanted[value] == NOWHERE) return false;
    for (uint32_t k = 0; k < node->out_count; k++)
        if (!s->value[node->out_first + k].stored || s->value[node->out_first + k].again) return false;
    return true;
}

/* `worth` becomes the time for which nobody needs it. */
static void weigh(sender *a)
{
    for (int64_t c = 0; c < a->list.count; c++) {
        sglpass_again_candidate *one = &a->list.data[c];
        if (!may_go(a, one->value)) one->worth = 0;
        if (one->worth > 0) one->worth = a->clock[wanted_at(a, (uint32_t)c)] - a->clock[made_at(a, (uint32_t)c)];
    }
}

static void sort(sender *a)
{
    for (uint32_t c = 0; c < a->list.count; c++) {
        int64_t at = c;
        for (; at > 0 && made_at(a, a->out[at - 1]) > made_at(a, c); at--) a->out[at] = a->out[at - 1];
        a->out[at] = c;
        for (at = c; at > 0 && wanted_at(a, a->back[at - 1]) > wanted_at(a, c); at--) a->back[at] = a->back[at - 1];
        a->back[at] = c;
    }
}

/* ---- choices -------------------------------------------------------------------------------------------------------- */

/* Whether each of those chosen is in memory of the host before it has to begin its way back. */
static bool is_in_time(sender *a)
{
    double link = 0;
    for (int64_t i = 0; i < a->list.count; i++) {
        const uint32_t c = a->out[i];
        if (!a->chosen[c]) continue;
        const double made = a->clock[made_at(a, c) + 1];
        a->arrived[c] = link = (link > made ? link : made) + seconds_of(a, c);
    }
    link = a->clock[a->s->g->regions.data[a->s->region].nodes.count];
    for (int64_t i = a->list.count; i-- > 0;) {
        const uint32_t c = a->back[i];
        if (!a->chosen[c]) continue;
        const double wanted = a->clock[wanted_at(a, c)];
        link = (link < wanted ? link : wanted) - seconds_of(a, c);
        if (link < a->arrived[c]) return false;
    }
    return true;
}

static void set(sender *a, int64_t at, bool away)
{
    for (int64_t i = at; i >= 0; i = a->list.data[i].next) {
        const sglir_id value = a->list.data[i].value, maker = sglpass_again_maker(a->s, value);
        const sglir_node *node = sglpass_again_at(a->s, maker);
        if (away && !may_go(a, value) && !a->s->node[maker].away) continue;
        a->s->value[value].again = a->s->value[value].away = away;
        a->s->node[maker].away = false;
        for (uint32_t k = 0; k < node->out_count; k++)
            if (a->s->value[node->out_first + k].away) a->s->node[maker].away = true;
        a->chosen[i] = away;
    }
}

static int64_t best_of(const sender *a)
{
    int64_t best = NOWHERE;
    for (int64_t c = 0; c < a->list.count; c++)
        if (a->list.data[c].worth > 0 && (best < 0 || a->list.data[c].worth > a->list.data[best].worth)) best = c;
    return best;
}

static sgl_status choose(sender *a, bool late, int64_t goal, int64_t *peak)
{
    for (int64_t at; *peak > goal && (at = best_of(a)) >= 0;) {
        int64_t now = 0;
        a->list.data[at].worth = 0;
        set(a, at, true);
        const bool in_time = late || is_in_time(a);
        sglpass_again_settle(a->s);
        if (in_time) SGLCORE_TRY(sglpass_again_peak(a->s, &now));
        if (in_time && now < *peak) {
            *peak = now;
            a->s->any = true;
            continue;
        }
        set(a, at, false);
        sglpass_again_settle(a->s);
    }
    return sglpass_again_peak(a->s, peak); /* stamps are those of what was tried last */
}

static sgl_status send(sender *a, sglcore_arena *arena, int64_t bytes, int64_t goal, int64_t *peak)
{
    const sglpass_again *s = a->s;
    const size_t values = (size_t)s->g->values.count, positions = (size_t)s->g->regions.data[s->region].nodes.count;
    SGLCORE_TRY(sglpass_again_list(a->s, &a->list));
    const size_t count = (size_t)a->list.count + 1;
    a->clock = sglcore_arena_alloc(arena, (positions + 1) * sizeof *a->clock);
    a->wanted = sglcore_arena_alloc(arena, values * sizeof *a->wanted);
    a->met = sglcore_arena_alloc(arena, values);
    a->out = sglcore_arena_alloc(arena, count * sizeof *a->out);
    a->back = sglcore_arena_alloc(arena, count * sizeof *a->back);
    a->chosen = sglcore_arena_alloc(arena, count);
    a->arrived = sglcore_arena_alloc(arena, count * sizeof *a->arrived);
    if (!a->clock || !a->wanted || !a->met || !a->out || !a->back || !a->chosen || !a->arrived)
        return SGL_OUT_OF_MEMORY;
    for (size_t v = 0; v < values; v++) a->wanted[v] = NOWHERE;
    run_clock(a);
    SGLCORE_TRY(find_wanted(a));
    weigh(a);
    sort(a);
    return choose(a, bytes == INT64_MAX, goal, peak);
}

sgl_status sglpass_again_send_away(sglpass_again *s, int64_t bytes, int64_t goal, int64_t *peak)
{
    sender a = { .s = s };
    sglcore_arena arena = { .env = s->env };
    const sgl_status status = send(&a, &arena, bytes, goal, peak);
    sglcore_arena_free(&arena);
    sglcore_vec_free(s->env, &a.list);
    sglcore_vec_free(s->env, &a.stack);
    return status;
}
