/* schedule_waits.c -- where exchanges begin, and where they are waited for.
 *
 * In: a graph in its order. Out: the same, each exchange as early as may be and its wait as late as may be, per region:
 *   begin  once its arguments are made and the exchange before it has begun; one that reads what another exchange makes stays.
 *          What it makes then takes bytes earlier: no earlier than these fit under the bound, and of results that are larger
 *          than what they are made of (gathered parameters) no more is under way ahead of its reader than the largest of them
 *   wait   right before the first that reads the result (views of it go along); what the exchange reads, where it would die,
 *          lives so much longer: no later than that fits under the bound, and before a state that is read is written anew
 * The bound is the peak of the given order, and where the plan sets none itself, the largest operand of an exchange above it.
 * No time is estimated: an exchange that begins as early as it can is never later than another order would have it. Odd
 * invariant: positions are those of the given order; what moves is put before the node of a position. */
#include <stdlib.h>

#include "passes/alias.h"
#include "passes/schedule_waits.h"

enum { NOWHERE = -1, UNREAD_AHEAD = 2 };

/* An exchange of the region at hand. */
typedef struct exchange {
    sglir_id node;
    int64_t at;         /* where it stood */
    int64_t begin, end; /* before which positions it begins, and is waited for */
    int64_t first_read; /* of what it makes */
    int64_t bytes;      /* that its results take beside what they are made of; 0: in its place */
    bool unread;
} exchange;

/* A node that goes before another position than its own. */
typedef struct moved {
    int64_t before;
    sglir_id node;
} moved;

typedef struct placer {
    sglir_rewrite rewrite;
    const sglpass_context *context;
    sglpass_view *views; /* of the old graph */
    uint8_t *live;       /* per node of it */
    int64_t *position;   /* per node: in its region */
    int64_t *first_use;  /* per value: position of the first real use of it or a view of it; NOWHERE: none */
    int64_t *last_use;
    uint8_t *scratch;   /* per value */
    uint8_t *elsewhere; /* per value: an output or a yield, with a place of its own, or that of a state or carry */
    sglcore_arena arena;
} placer;

enum { STEP_BEGIN, STEP_WAIT, STEP_VIEW };
typedef struct step {
    int64_t before; /* the node of which position it goes */
    int what;
    int64_t index; /* of the exchange, or the view */
} step;

/* Of one region. */
typedef struct timeline {
    placer *p;
    sglir_id region;
    int64_t count; /* of positions */
    SGLCORE_VEC(exchange) exchanges;
    SGLCORE_VEC(moved) views;
    SGLCORE_VEC(step) steps; /* in their order */
    int64_t next_step;
    SGLCORE_VEC(sglir_id) waits; /* that stand in the graph already */
    SGLCORE_VEC(sglir_id) args;  /* for one node */
    int64_t *bytes;              /* live at each position */
    int64_t *ahead; /* of results that nobody has read yet, of those that are larger than what they are made of */
    int64_t bound, most_ahead;
} timeline;

static const sglir_graph *from(const placer *p) { return p->rewrite.from; }
static const sglir_node *node_at(const placer *p, sglir_id node) { return sglir_node_at(from(p), node); }
static bool is_exchange(const sglir_node *node) { return (sglir_ops[node->op].flags & SGLIR_EXCHANGE) != 0; }
static int64_t bytes_of(const placer *p, sglir_id value) { return sglir_bytes(sglir_type_of(from(p), value)); }

/* A view that can go along with what it shows; an order is a use of its own. */
static bool goes_along(const sglir_node *node) { return sglir_is_view(node) && node->op != SGLIR_OP_AFTER; }

/* A view of what the exchange `made` makes, which is there with it: no order stands between them. */
static bool shows(const placer *p, const sglir_node *node, sglir_id *made)
{
    while (goes_along(node)) {
        const sglir_node *maker = sglir_maker(from(p), sglir_arg(from(p), node, 0));
        if (maker == NULL) return false;
        node = maker;
        *made = (sglir_id)(maker - from(p)->nodes.data);
        if (is_exchange(maker)) return true;
    }
    return false;
}

/* ---- uses ------------------------------------------------------------------------------------------------------- */

static void use(placer *p, sglir_id value, int64_t position)
{
    const sglir_id root = p->views[value].root;
    if (p->first_use[root] == NOWHERE || position < p->first_use[root]) p->first_use[root] = position;
    if (position > p->last_use[root]) p->last_use[root] = position;
}

typedef struct capture {
    placer *p;
    int64_t position;
} capture;

static void use_capture(void *user, sglir_id value)
{
    capture *c = user;
    use(c->p, value, c->position);
}

static void find_uses(placer *p, const sglir_region *region, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        p->position[id] = n;
        if (!p->live[id] || goes_along(node)) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) use(p, sglir_arg(from(p), node, i), n);
        capture c = { p, n };
        if (sglir_is_control(node)) sglir_each_capture(from(p), node, use_capture, &c);
    }
    for (int64_t i = 0; i < region->results.count; i++) use(p, region->results.data[i], count);
    if (region != &from(p)->regions.data[0]) return;
    for (int64_t i = 0; i < from(p)->outputs.count; i++) use(p, from(p)->outputs.data[i].value, count);
}

/* ---- live bytes --------------------------------------------------------------------------------------------------- */

/* As the order was chosen by (schedule.c): states that are written anew do not weigh. */
static void mark_elsewhere(placer *p)
{
    const sglir_graph *g = from(p);
    for (int64_t i = 0; i < g->outputs.count; i++) p->elsewhere[p->views[g->outputs.data[i].value].root] = 1;
    for (int64_t r = 1; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        for (int64_t i = 0; i < region->results.count; i++) p->elsewhere[p->views[region->results.data[i]].root] = 1;
    }
}

/* Made by a node of the region, and no view: what takes bytes in the arena. */
static bool is_made_here(const timeline *t, sglir_id root)
{
    const sglir_value *value = sglir_value_at(from(t->p), root);
    if (value->node == SGLIR_NONE || value->region != t->region || t->p->elsewhere[root]) return false;
    const uint16_t op = node_at(t->p, value->node)->op;
    return op != SGLIR_OP_INPUT && op != SGLIR_OP_CONSTANT;
}

static void add_bytes(int64_t *bytes, int64_t first, int64_t last, int64_t more)
{
    for (int64_t at = first; at <= last; at++) bytes[at] += more;
}

static void count_live(timeline *t, const sglir_region *region)
{
    placer *p = t->p;
    for (int64_t n = 0; n < t->count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        if (!p->live[id] || sglir_is_view(node)) continue;
        if (p->context->workspace) t->bytes[n] += p->context->workspace(from(p), id);
        for (uint32_t i = 0; i < node->out_count; i++) {
            const sglir_id made = node->out_first + i;
            const int64_t last = p->last_use[made] > n ? p->last_use[made] : n;
            if (!is_made_here(t, made)) continue;
            add_bytes(t->bytes, n, last < t->count ? last : t->count - 1, bytes_of(p, made));
        }
    }
}

static int64_t bytes_made(const placer *p, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->out_count; i++) bytes += bytes_of(p, node->out_first + i);
    return bytes;
}

static int64_t bytes_read(const placer *p, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) bytes += bytes_of(p, sglir_arg(from(p), node, i));
    return bytes;
}

static void set_bounds(timeline *t)
{
    int64_t largest = 0;
    for (int64_t n = 0; n < t->count; n++) t->bound = t->bytes[n] > t->bound ? t->bytes[n] : t->bound;
    for (int64_t i = 0; i < t->exchanges.count; i++) {
        const sglir_node *node = node_at(t->p, t->exchanges.data[i].node);
        const int64_t made = bytes_made(t->p, node), read = bytes_read(t->p, node);
        largest = made > largest ? made : largest;
        largest = read > largest ? read : largest;
        if (made > read && made > t->most_ahead) t->most_ahead = made;
    }
    if (t->p->context->plan->memory == 0) t->bound += largest;
}

/* ---- the exchanges --------------------------------------------------------------------------------------------------- */

/* The one that makes what an exchange reads; the result of another exchange is there no earlier than this one stood. */
static int64_t ready_at(const timeline *t, const exchange *x)
{
    const placer *p = t->p;
    const sglir_node *node = node_at(p, x->node);
    int64_t ready = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_id arg = sglir_arg(from(p), node, i);
        const sglir_value *value = sglir_value_at(from(p), arg), *root = sglir_value_at(from(p), p->views[arg].root);
        if (value->node == SGLIR_NONE || value->region != t->region) continue;
        if (root->node != SGLIR_NONE && root->region == t->region && is_exchange(node_at(p, root->node))) return x->at;
        if (p->position[value->node] + 1 > ready) ready = p->position[value->node] + 1;
    }
    return ready;
}

static bool reads(const placer *p, const sglir_node *node, sglir_id root)
{
    if (goes_along(node)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++)
        if (p->views[sglir_arg(from(p), node, i)].root == root) return true;
    return sglir_is_control(node) && sglpass_regions_read(from(p), p->views, node, root);
}

/* Where a result is made in its argument's place nothing else may read that any more. */
static int64_t last_other_read(const timeline *t, const exchange *x, int64_t since)
{
    const sglir_region *region = &from(t->p)->regions.data[t->region];
    const sglir_id root = t->p->views[sglir_arg(from(t->p), node_at(t->p, x->node), 0)].root;
    for (int64_t n = x->at - 1; n >= since; n--)
        if (reads(t->p, node_at(t->p, region->nodes.data[n]), root)) return n;
    return NOWHERE;
}

static bool dies_here(const timeline *t, sglir_id arg, int64_t at)
{
    const sglir_id root = t->p->views[arg].root;
    return is_made_here(t, root) && t->p->last_use[root] <= at;
}

static bool is_larger(const timeline *t, const exchange *x)
{
    const sglir_node *node = node_at(t->p, x->node);
    return bytes_made(t->p, node) > bytes_read(t->p, node);
}

/* least: where the exchange before it begins, or after what else exchanges. */
static void place_begin(timeline *t, exchange *x, int64_t least)
{
    const bool ahead = is_larger(t, x);
    int64_t ready = ready_at(t, x);
    if (x->bytes == 0 && ready < x->at) {
        const int64_t read = last_other_read(t, x, ready);
        if (read >= ready) ready = read + 1;
    }
    const int64_t first = ready > least ? ready : least;
    x->begin = x->at;
    while (x->begin > first) {
        const int64_t to = x->begin - 1;
        if (t->bytes[to] + x->bytes > t->bound) break;
        if (ahead && t->ahead[to] + x->bytes > t->most_ahead) break;
        x->begin = to;
    }
    if (x->begin == x->at) return;
    add_bytes(t->bytes, x->begin, x->at - 1, x->bytes);
    if (ahead) add_bytes(t->ahead, x->begin, x->first_read - 1 < t->count ? x->first_read - 1 : t->count - 1, x->bytes);
}

/* Where the state's or carry's new value is first written: nothing that is under way may read the old one then. */
static int64_t written_at(const timeline *t, sglir_id old)
{
    const placer *p = t->p;
    const sglir_graph *g = from(p);
    const sglir_value *value = sglir_value_at(g, old);
    sglir_id now = SGLIR_NONE;
    if (value->node == SGLIR_NONE) {
        const sglir_region *region = &g->regions.data[value->region];
        const sglir_node *holder = region->node == SGLIR_NONE ? NULL : node_at(p, region->node);
        if (holder && sglir_is_loop(holder) && sglir_body(holder) == value->region && value->index > 0)
            now = region->results.data[value->index - 1];
    } else if (node_at(p, value->node)->op == SGLIR_OP_INPUT) {
        for (int64_t i = 0; i < g->outputs.count; i++) {
            const sglir_output *output = &g->outputs.data[i];
            if (output->role == SGLIR_UPDATE && sglir_input_find(g, sglcore_string(g->strings, output->name)) == old)
                now = output->value;
        }
    }
    while (now != SGLIR_NONE) {
        const sglir_value *made = sglir_value_at(g, p->views[now].root);
        if (made->node == SGLIR_NONE || made->region != t->region) return t->count;
        const sglir_node *maker = node_at(p, made->node);
        if (maker->op == SGLIR_OP_INPUT) return t->count;
        const sglir_id before = maker->op == SGLIR_OP_DYNAMIC_UPDATE ? sglir_arg(g, maker, 0) : SGLIR_NONE;
        if (before == SGLIR_NONE || p->views[before].root == old) return p->position[made->node];
        now = before;
    }
    return t->count;
}

static void place_end(timeline *t, int64_t i)
{
    exchange *x = &t->exchanges.data[i];
    const sglir_node *node = node_at(t->p, x->node);
    int64_t last = x->first_read, held = 0;
    if (x->unread && i + UNREAD_AHEAD < t->exchanges.count)
        last = t->exchanges.data[i + UNREAD_AHEAD].at; /* what nobody reads is not left for the end of all */
    for (uint32_t a = 0; a < node->arg_count; a++) {
        const sglir_id arg = sglir_arg(from(t->p), node, a), root = t->p->views[arg].root;
        const int64_t written = written_at(t, root);
        if (written < last) last = written;
        if (x->bytes > 0 && dies_here(t, arg, x->at)) held += bytes_of(t->p, root);
    }
    x->end = x->at + 1;
    while (x->end < last && t->bytes[x->end] + held <= t->bound) t->bytes[x->end++] += held;
    const int64_t least = x->begin == x->at ? x->at + 1 : x->begin;
    if (x->end > last) x->end = last;
    if (x->end < least) x->end = least;
}

static sgl_status find_exchanges(timeline *t, const sglir_region *region)
{
    placer *p = t->p;
    for (int64_t n = 0; n < t->count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        if (!p->live[id] || !is_exchange(node)) continue;
        exchange x = { .node = id, .at = n, .first_read = t->count, .bytes = bytes_made(p, node), .unread = true };
        for (uint32_t i = 0; i < node->out_count; i++) {
            const int64_t first = p->first_use[node->out_first + i];
            if (first == NOWHERE) continue;
            x.unread = false;
            if (first < x.first_read) x.first_read = first;
        }
        if (node->arg_count == 1 && sglpass_takes_place(from(p), p->views, id, 0, 0, p->scratch) &&
            dies_here(t, sglir_arg(from(p), node, 0), n))
            x.bytes = 0;
        SGLCORE_TRY(sglcore_vec_push(from(p)->env, &t->exchanges, x));
    }
    return SGL_OK;
}

static void place_exchanges(timeline *t, const sglir_region *region)
{
    int64_t least = 0, next = 0;
    while (least < t->count && node_at(t->p, region->nodes.data[least])->op == SGLIR_OP_INPUT) least++;
    for (int64_t n = 0; n < t->count && next < t->exchanges.count; n++) {
        const sglir_id id = region->nodes.data[n];
        if (!t->p->live[id] || !sglir_exchanges(from(t->p), node_at(t->p, id))) continue;
        if (!is_exchange(node_at(t->p, id))) { /* a loop or branch that exchanges stays */
            least = n + 1;
            continue;
        }
        exchange *x = &t->exchanges.data[next++];
        place_begin(t, x, least);
        least = x->begin == x->at ? x->at + 1 : x->begin;
    }
    for (int64_t i = 0; i < t->exchanges.count; i++) place_end(t, i);
}

/* Views of what exchanges make go behind the wait; waits that stood there are made anew. */
static sgl_status move_views(timeline *t, const sglir_region *region)
{
    placer *p = t->p;
    for (int64_t n = 0; n < t->count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        sglir_id made = SGLIR_NONE;
        if (!p->live[id] || !shows(p, node, &made) || node_at(p, made)->region != t->region) continue;
        for (int64_t i = 0; i < t->exchanges.count; i++) {
            const exchange *x = &t->exchanges.data[i];
            if (x->node != made) continue;
            if (node->op == SGLIR_OP_WAIT)
                SGLCORE_TRY(sglcore_vec_push(from(p)->env, &t->waits, id));
            else
                SGLCORE_TRY(sglcore_vec_push(from(p)->env, &t->views, (moved){ x->end, id }));
        }
    }
    return SGL_OK;
}

/* ---- the new list ------------------------------------------------------------------------------------------------------ */

static void emit_region(placer *p, sglir_id id);

static void fill_body(void *user, sglir_id id, sglir_id *results)
{
    (void)results;
    emit_region(user, id);
}

static void emit_node(placer *p, sglir_id node)
{
    if (sglir_status(p->rewrite.to) != SGL_OK) return;
    if (sglir_is_control(node_at(p, node)))
        sglir_copy_around(&p->rewrite, node, fill_body, p);
    else
        sglir_copy_node(&p->rewrite, node);
}

/* From here on who reads what the exchange makes reads what the waits hand on, one for each result. */
static sgl_status emit_waits(timeline *t, const exchange *x)
{
    sglir_rewrite *rewrite = &t->p->rewrite;
    const sglir_node *node = node_at(t->p, x->node);
    for (uint32_t r = 0; r < node->out_count && sglir_status(rewrite->to) == SGL_OK; r++) {
        sglir_id *result = &rewrite->map[node->out_first + r];
        t->args.count = 0;
        SGLCORE_TRY(sglcore_vec_push(from(t->p)->env, &t->args, *result));
        for (uint32_t i = 0; i < node->arg_count; i++)
            SGLCORE_TRY(sglcore_vec_push(from(t->p)->env, &t->args, rewrite->map[sglir_arg(from(t->p), node, i)]));
        sglir_set_origin_made(rewrite->to, rewrite->from, x->node, rewrite->pass);
        sglir_emit(rewrite->to, SGLIR_OP_WAIT, t->args.data, (int)t->args.count, NULL, 0, result);
    }
    for (int64_t i = 0; i < t->waits.count; i++) {
        const sglir_node *wait = node_at(t->p, t->waits.data[i]);
        const sglir_id waited = sglir_arg(from(t->p), wait, 0);
        if (sglir_value_at(from(t->p), waited)->node == x->node) rewrite->map[wait->out_first] = rewrite->map[waited];
    }
    return sglir_status(rewrite->to);
}

static int compare_steps(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    if (x->what != y->what) return x->what < y->what ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static sgl_status add_step(timeline *t, int64_t before, int what, int64_t index)
{
    return sglcore_vec_push(t->p->context->env, &t->steps, (step){ before, what, index });
}

/* What goes before the nodes of positions: exchanges that begin there, waits, views of what these hand on. */
static sgl_status list_steps(timeline *t)
{
    for (int64_t i = 0; i < t->exchanges.count; i++) {
        const exchange *x = &t->exchanges.data[i];
        if (x->begin != x->at) SGLCORE_TRY(add_step(t, x->begin, STEP_BEGIN, i));
        SGLCORE_TRY(add_step(t, x->end, STEP_WAIT, i));
    }
    for (int64_t i = 0; i < t->views.count; i++) SGLCORE_TRY(add_step(t, t->views.data[i].before, STEP_VIEW, i));
    if (t->steps.count > 0) qsort(t->steps.data, (size_t)t->steps.count, sizeof *t->steps.data, compare_steps);
    return SGL_OK;
}

static sgl_status emit_before(timeline *t, int64_t position)
{
    for (; t->next_step < t->steps.count && t->steps.data[t->next_step].before <= position; t->next_step++) {
        const step at = t->steps.data[t->next_step];
        if (at.before < position) continue; /* NOWHERE */
        if (at.what == STEP_BEGIN) emit_node(t->p, t->exchanges.data[at.index].node);
        if (at.what == STEP_WAIT) SGLCORE_TRY(emit_waits(t, &t->exchanges.data[at.index]));
        if (at.what == STEP_VIEW) emit_node(t->p, t->views.data[at.index].node);
    }
    return sglir_status(t->p->rewrite.to);
}

static bool stays(const timeline *t, sglir_id id, int64_t position)
{
    const sglir_node *node = node_at(t->p, id);
    if (is_exchange(node)) {
        for (int64_t i = 0; i < t->exchanges.count; i++)
            if (t->exchanges.data[i].node == id) return t->exchanges.data[i].begin == position;
    }
    sglir_id made = SGLIR_NONE;
    return !shows(t->p, node, &made) || node_at(t->p, made)->region != t->region;
}

static sgl_status plan_region(timeline *t, const sglir_region *region)
{
    placer *p = t->p;
    for (int64_t v = 0; v < from(p)->values.count; v++) p->first_use[v] = p->last_use[v] = NOWHERE;
    find_uses(p, region, t->count);
    count_live(t, region);
    SGLCORE_TRY(find_exchanges(t, region));
    set_bounds(t);
    place_exchanges(t, region);
    return move_views(t, region);
}

static void emit_region(placer *p, sglir_id id)
{
    const sglir_region *region = &from(p)->regions.data[id];
    sglcore_env *env = from(p)->env;
    timeline t = { .p = p, .region = id, .count = region->nodes.count };
    const size_t bytes = (size_t)(t.count + 1) * sizeof(int64_t);
    t.bytes = sglcore_alloc_zero(env, bytes);
    t.ahead = sglcore_alloc_zero(env, bytes);
    sgl_status status = t.bytes && t.ahead ? plan_region(&t, region) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = list_steps(&t);
    for (int64_t n = 0; n < t.count && status == SGL_OK && sglir_status(p->rewrite.to) == SGL_OK; n++) {
        status = emit_before(&t, n);
        if (p->live[region->nodes.data[n]] && stays(&t, region->nodes.data[n], n)) emit_node(p, region->nodes.data[n]);
    }
    if (status == SGL_OK) status = emit_before(&t, t.count);
    if (status != SGL_OK) p->rewrite.to->status = status;
    sglcore_free(env, t.bytes, bytes);
    sglcore_free(env, t.ahead, bytes);
    sglcore_vec_free(env, &t.exchanges);
    sglcore_vec_free(env, &t.views);
    sglcore_vec_free(env, &t.steps);
    sglcore_vec_free(env, &t.waits);
    sglcore_vec_free(env, &t.args);
}

/* ---- the call ------------------------------------------------------------------------------------------------------------ */

bool sglpass_has_exchanges(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++)
        if (is_exchange(&g->nodes.data[n])) return true;
    return false;
}

static bool make_room(placer *p)
{
    const size_t values = (size_t)from(p)->values.count, nodes = (size_t)from(p)->nodes.count;
    p->views = sglcore_arena_alloc(&p->arena, values * sizeof *p->views);
    p->live = sglcore_arena_alloc(&p->arena, nodes);
    p->position = sglcore_arena_alloc(&p->arena, nodes * sizeof *p->position);
    p->first_use = sglcore_arena_alloc(&p->arena, values * sizeof *p->first_use);
    p->last_use = sglcore_arena_alloc(&p->arena, values * sizeof *p->last_use);
    p->scratch = sglcore_arena_alloc(&p->arena, values);
    p->elsewhere = sglcore_arena_alloc(&p->arena, values);
    return p->views && p->live && p->position && p->first_use && p->last_use && p->scratch && p->elsewhere;
}

sgl_status sglpass_place_waits(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    placer p = { .context = context, .arena = { .env = context->env } };
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "schedule", NULL, &p.rewrite));
    sgl_status status = make_room(&p) ? sglir_mark_live(in, p.live) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        p.rewrite.live = p.live;
        sglpass_find_views(in, p.views);
        mark_elsewhere(&p);
        emit_region(&p, 0);
        status = sglir_status(p.rewrite.to);
    }
    if (status != SGL_OK) p.rewrite.to->status = status;
    status = sglir_rewrite_end(&p.rewrite, true, out);
    sglcore_arena_free(&p.arena);
    return status;
}
