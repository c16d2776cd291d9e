/* schedule_moves.c -- where moves between the device and the host begin, and where they have to have arrived.
 *
 * In: a region on its line of positions, with the bytes that live at each, its exchanges placed. Out: of each move the same.
 * Here time is estimated (plan/cost): a link carries one move after another in either direction, beside what is computed.
 *   offload   begins as soon as its argument is made, which lives until it has arrived: when that is on paper, or sooner
 *             where the bytes do not fit; then what runs next waits for it
 *   prefetch  arrives right before the first that reads it, and begins so much earlier that it, and those that the link
 *             carries after it, are in time: no earlier than the bytes fit
 * A node that reads what is fetched takes no less time than the link needs for it: where there is more to move than to
 * compute, as when an optimizer's states go by, moves run ahead by what fits. Odd invariant: a prefetch may begin later
 * than it stood in the given order, but never behind what writes anew what it reads. */
#include "passes/schedule_timeline.h"

typedef struct mover {
    sglpass_timeline *t;
    double *clock; /* per position: when it is reached on paper; one more for the end */
    int64_t bound;
    uint32_t *order; /* of prefetches: by first read */
    int64_t *latest; /* per move: the last position before which it may begin */
    double *start;   /* per move: the last time at which it may begin to be in time */
} mover;

static const sglir_graph *from(const sglpass_timeline *t) { return t->p->rewrite.from; }
static const sglir_node *node_at(const sglpass_timeline *t, sglir_id node) { return sglir_node_at(from(t), node); }

static bool is_prefetch(const sglpass_timeline *t, const sglpass_exchange *x)
{
    return node_at(t, x->node)->op == SGLIR_OP_PREFETCH;
}

/* ---- time on paper ------------------------------------------------------------------------------------------------- */

static void run_clock(mover *m)
{
    sglpass_timeline *t = m->t;
    const sglir_region *region = &from(t)->regions.data[t->region];
    for (int64_t i = t->moves; i < t->exchanges.count; i++) {
        const sglpass_exchange *x = &t->exchanges.data[i];
        if (is_prefetch(t, x)) m->clock[x->first_read] += sglplan_move_seconds(x->bytes);
    }
    double now = 0;
    for (int64_t n = 0; n <= t->count; n++) {
        double seconds = 0;
        const sglir_id id = n < t->count ? region->nodes.data[n] : SGLIR_NONE;
        const sglir_node *node = n < t->count ? node_at(t, id) : NULL;
        if (node && t->p->live[id] && !sglir_is_view(node) && !sglir_is_begun(node->op) && node->op != SGLIR_OP_INPUT &&
            node->op != SGLIR_OP_CONSTANT) {
            const sglplan_cost cost = sglplan_cost_of(from(t), id);
            seconds = sglplan_seconds(&cost);
        }
        if (m->clock[n] > seconds) seconds = m->clock[n]; /* what it reads must be there */
        m->clock[n] = now;
        now += seconds;
    }
}

/* ---- bytes --------------------------------------------------------------------------------------------------------- */

/* Where the plan bounds all bytes: what it leaves for the arena, less what packing may lose; else two moves more than the
 * order needs by itself. */
static void set_bound(mover *m)
{
    const sglir_graph *g = from(m->t);
    int64_t largest = 0, left = m->t->p->context->plan->memory;
    m->bound = m->t->bound;
    for (int64_t i = m->t->moves; i < m->t->exchanges.count; i++)
        if (m->t->exchanges.data[i].bytes > largest) largest = m->t->exchanges.data[i].bytes;
    if (left == 0) {
        m->bound += 2 * largest;
        return;
    }
    left -= left / 32;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_INPUT && !m->t->p->away[node->out_first])
            left -= sglir_bytes(sglir_type_of(g, node->out_first));
    }
    if (m->t->region == 0 && left > m->bound) m->bound = left;
}

/* ---- offloads ------------------------------------------------------------------------------------------------------- */

static bool is_update(const sglpass_timeline *t, sglir_id value)
{
    for (int64_t o = 0; o < from(t)->outputs.count; o++)
        if (from(t)->outputs.data[o].value == value) return true;
    return false;
}

/* Once its argument is made. What writes a state anew stays where it stood, behind those that read the old one; so does what
 * reads the result of something that is under way itself. */
static int64_t ready_at(const sglpass_timeline *t, const sglpass_exchange *x)
{
    const sglpass_placer *p = t->p;
    const sglir_node *node = node_at(t, x->node);
    const sglir_value *value = sglir_value_at(from(t), sglir_arg(from(t), node, 0));
    const sglir_value *root = sglir_value_at(from(t), p->views[sglir_arg(from(t), node, 0)].root);
    if (is_update(t, node->out_first)) return x->at;
    if (root->node != SGLIR_NONE && root->region == t->region && sglir_is_begun(node_at(t, root->node)->op))
        return x->at;
    if (value->node == SGLIR_NONE || value->region != t->region) return 0;
    return p->position[value->node] + 1;
}

static int64_t at_time(const mover *m, double time, int64_t least)
{
    int64_t position = least;
    while (position < m->t->count && m->clock[position] < time) position++;
    return position;
}

static void place_offloads(mover *m)
{
    sglpass_timeline *t = m->t;
    double link = 0;
    int64_t before = 0;
    for (int64_t i = t->moves; i < t->exchanges.count; i++) {
        sglpass_exchange *x = &t->exchanges.data[i];
        if (is_prefetch(t, x)) continue;
        const sglir_id root = t->p->views[sglir_arg(from(t), node_at(t, x->node), 0)].root;
        const int64_t ready = ready_at(t, x), bytes = x->bytes;
        const int64_t dies = t->p->last_use[root]; /* where it would, but for the move */
        x->begin = ready > before ? ready : before;
        if (x->begin > x->at) x->begin = x->at;
        before = x->begin;
        link = (link > m->clock[x->begin] ? link : m->clock[x->begin]) + sglplan_move_seconds(bytes);
        int64_t last = at_time(m, link, x->at + 1);
        const int64_t written = sglpass_written_at(t, root);
        if (last > x->first_read) last = x->first_read;
        if (last > written) last = written;
        x->end = x->at + 1 < last ? x->at + 1 : last;
        while (x->end < last && (x->end <= dies || t->bytes[x->end] + bytes <= m->bound)) {
            if (x->end > dies) t->bytes[x->end] += bytes;
            x->end++;
        }
    }
}

/* ---- prefetches ----------------------------------------------------------------------------------------------------- */

/* Where what it reads is there: at once, or once another move has brought it to the host. */
static int64_t readable_at(const sglpass_timeline *t, const sglpass_exchange *x)
{
    const sglir_id arg = sglir_arg(from(t), node_at(t, x->node), 0), root = t->p->views[arg].root;
    const sglir_value *made = sglir_value_at(from(t), root), *value = sglir_value_at(from(t), arg);
    int64_t ready = 0;
    if (value->node != SGLIR_NONE && value->region == t->region) ready = t->p->position[value->node] + 1;
    for (int64_t i = t->moves; i < t->exchanges.count; i++)
        if (t->exchanges.data[i].node == made->node && t->exchanges.data[i].end + 1 > ready)
            ready = t->exchanges.data[i].end + 1;
    return ready;
}

/* By the position at which each has to be there; those of one position as they stood. */
static int64_t sort_prefetches(mover *m)
{
    const sglpass_timeline *t = m->t;
    int64_t count = 0;
    for (int64_t i = t->moves; i < t->exchanges.count; i++) {
        const sglpass_exchange *x = &t->exchanges.data[i];
        if (!is_prefetch(t, x)) continue;
        const sglir_id root = t->p->views[sglir_arg(from(t), node_at(t, x->node), 0)].root;
        const int64_t written = sglpass_written_at(t, root);
        int64_t at = count++;
        m->latest[i] = x->first_read < written ? x->first_read : written;
        for (; at > 0 && m->latest[m->order[at - 1]] > m->latest[i]; at--) m->order[at] = m->order[at - 1];
        m->order[at] = (uint32_t)i;
    }
    return count;
}

static void place_prefetches(mover *m)
{
    sglpass_timeline *t = m->t;
    const int64_t count = sort_prefetches(m);
    double next = m->clock[t->count];
    for (int64_t k = count; k-- > 0;) { /* the link carries them one after another */
        const sglpass_exchange *x = &t->exchanges.data[m->order[k]];
        const double in_time = m->clock[m->latest[m->order[k]]];
        next = m->start[m->order[k]] = (in_time < next ? in_time : next) - sglplan_move_seconds(x->bytes);
        if (x->at < m->latest[m->order[k]]) sglpass_add_bytes(t->bytes, x->at, m->latest[m->order[k]] - 1, -x->bytes);
    }
    int64_t before = 0;
    for (int64_t k = 0; k < count; k++) {
        sglpass_exchange *x = &t->exchanges.data[m->order[k]];
        const int64_t readable = readable_at(t, x), least = readable > before ? readable : before;
        x->end = x->begin = m->latest[m->order[k]];
        while (x->begin > least && m->clock[x->begin] > m->start[m->order[k]] &&
               t->bytes[x->begin - 1] + x->bytes <= m->bound)
            t->bytes[--x->begin] += x->bytes;
        before = x->begin;
    }
}

/* ---- the call ------------------------------------------------------------------------------------------------------- */

sgl_status sglpass_place_moves(sglpass_timeline *t)
{
    if (t->moves == t->exchanges.count) return SGL_OK;
    sglcore_arena arena = { .env = t->p->context->env };
    mover m = { .t = t };
    const size_t moves = (size_t)t->exchanges.count;
    m.clock = sglcore_arena_alloc(&arena, (size_t)(t->count + 1) * sizeof *m.clock);
    m.order = sglcore_arena_alloc(&arena, moves * sizeof *m.order);
    m.latest = sglcore_arena_alloc(&arena, moves * sizeof *m.latest);
    m.start = sglcore_arena_alloc(&arena, moves * sizeof *m.start);
    const bool room = m.clock && m.order && m.latest && m.start;
    if (room) {
        run_clock(&m);
        set_bound(&m);
        place_offloads(&m);
        place_prefetches(&m);
    }
    sglcore_arena_free(&arena);
    return room ? SGL_OK : SGL_OUT_OF_MEMORY;
}
