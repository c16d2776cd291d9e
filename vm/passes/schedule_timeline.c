/* schedule_timeline.c -- where exchanges begin, and where they are waited for.
 *
 * In: a region in its order. Out: of each exchange a beginning as early as may be and a wait as late as may be:
 *   begin  once its arguments are made and the exchange before it has begun; one that reads what another exchange makes stays.
 *          What it makes then takes bytes earlier: no earlier than these fit under the bound, and of results that are larger
 *          than what they are made of (gathered parameters) no more is under way ahead of its reader than the largest of them
 *   wait   right before the first that reads the result (views of it go along); what the exchange reads, where it would die,
 *          lives so much longer: no later than that fits under the bound, and before a state that is read is written anew
 * The bound is the peak of the given order, and where the plan sets none itself, the largest operand of an exchange
 * above it. No time is estimated: an exchange that begins as early as it can is never later than another order would
 * have it. Odd invariant: what is moved takes its bytes on the line at once, so that what is placed after it finds them
 * taken. */
#include "passes/schedule_timeline.h"

enum { NOWHERE = -1, UNREAD_AHEAD = 2 }; /* the latter: exchanges */

static const sglir_graph *from(const sglpass_placer *p) { return p->rewrite.from; }
static const sglir_node *node_at(const sglpass_placer *p, sglir_id node) { return sglir_node_at(from(p), node); }
static int64_t bytes_of(const sglpass_placer *p, sglir_id value) { return sglir_bytes(sglir_type_of(from(p), value)); }

/* ---- uses ------------------------------------------------------------------------------------------------------- */

static void use(sglpass_placer *p, sglir_id value, int64_t position)
{
    const sglir_id root = p->views[value].root;
    if (p->first_use[root] == NOWHERE || position < p->first_use[root]) p->first_use[root] = position;
    if (position > p->last_use[root]) p->last_use[root] = position;
}

typedef struct capture {
    sglpass_placer *p;
    int64_t position;
} capture;

static void use_capture(void *user, sglir_id value)
{
    capture *c = user;
    use(c->p, value, c->position);
}

static void find_uses(sglpass_placer *p, const sglir_region *region, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        p->position[id] = n;
        if (!p->live[id] || sglpass_goes_along(node)) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) use(p, sglir_arg(from(p), node, i), n);
        capture c = { p, n };
        if (sglir_is_control(node)) sglir_each_capture(from(p), node, use_capture, &c);
    }
    for (int64_t i = 0; i < region->results.count; i++) use(p, region->results.data[i], count);
    if (region != &from(p)->regions.data[0]) return;
    for (int64_t i = 0; i < from(p)->outputs.count; i++) use(p, from(p)->outputs.data[i].value, count);
}

/* ---- live bytes -------------------------------------------------------------------------------------------------- */

/* As the order was chosen by (schedule.c): states that are written anew do not weigh. */
void sglpass_mark_elsewhere(sglpass_placer *p)
{
    const sglir_graph *g = from(p);
    for (int64_t n = 0; n < g->nodes.count; n++)
        if (g->nodes.data[n].op == SGLIR_OP_PREFETCH) p->away[p->views[sglir_arg(g, &g->nodes.data[n], 0)].root] = 1;
    for (int64_t i = 0; i < g->outputs.count; i++) p->elsewhere[p->views[g->outputs.data[i].value].root] = 1;
    for (int64_t r = 1; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        for (int64_t i = 0; i < region->results.count; i++) p->elsewhere[p->views[region->results.data[i]].root] = 1;
    }
}

/* Made by a node of the region, and no view: what takes bytes in the arena. */
static bool is_made_here(const sglpass_timeline *t, sglir_id root)
{
    const sglir_value *value = sglir_value_at(from(t->p), root);
    if (value->node == SGLIR_NONE || value->region != t->region || t->p->elsewhere[root]) return false;
    const uint16_t op = node_at(t->p, value->node)->op;
    return op != SGLIR_OP_INPUT && op != SGLIR_OP_CONSTANT && op != SGLIR_OP_OFFLOAD;
}

void sglpass_add_bytes(int64_t *bytes, int64_t first, int64_t last, int64_t more)
{
    for (int64_t at = first; at <= last; at++) bytes[at] += more;
}

static void count_live(sglpass_timeline *t, const sglir_region *region)
{
    sglpass_placer *p = t->p;
    for (int64_t n = 0; n < t->count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        if (!p->live[id] || sglir_is_view(node)) continue;
        if (p->context->workspace) t->bytes[n] += p->context->workspace(from(p), id);
        for (uint32_t i = 0; i < node->out_count; i++) {
            const sglir_id made = node->out_first + i;
            const int64_t last = p->last_use[made] > n ? p->last_use[made] : n;
            if (!is_made_here(t, made)) continue;
            sglpass_add_bytes(t->bytes, n, last < t->count ? last : t->count - 1, bytes_of(p, made));
        }
    }
}

static int64_t bytes_made(const sglpass_placer *p, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->out_count; i++) bytes += bytes_of(p, node->out_first + i);
    return bytes;
}

static int64_t bytes_read(const sglpass_placer *p, const sglir_node *node)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) bytes += bytes_of(p, sglir_arg(from(p), node, i));
    return bytes;
}

static void set_bounds(sglpass_timeline *t)
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

/* ---- the exchanges ----------------------------------------------------------------------------------------------- */

/* The one that makes what an exchange reads; the result of another exchange is there no earlier than this one stood. */
static int64_t ready_at(const sglpass_timeline *t, const sglpass_exchange *x)
{
    const sglpass_placer *p = t->p;
    const sglir_node *node = node_at(p, x->node);
    int64_t ready = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_id arg = sglir_arg(from(p), node, i);
        const sglir_value *value = sglir_value_at(from(p), arg), *root = sglir_value_at(from(p), p->views[arg].root);
        if (value->node == SGLIR_NONE || value->region != t->region) continue;
        if (root->node != SGLIR_NONE && root->region == t->region && sglir_is_begun(node_at(p, root->node)->op))
            return x->at;
        if (p->position[value->node] + 1 > ready) ready = p->position[value->node] + 1;
    }
    return ready;
}

static bool reads(const sglpass_placer *p, const sglir_node *node, sglir_id root)
{
    if (sglpass_goes_along(node)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++)
        if (p->views[sglir_arg(from(p), node, i)].root == root) return true;
    return sglir_is_control(node) && sglpass_regions_read(from(p), p->views, node, root);
}

/* Where a result is made in its argument's place nothing else may read that any more. */
static int64_t last_other_read(const sglpass_timeline *t, const sglpass_exchange *x, int64_t since)
{
    const sglir_region *region = &from(t->p)->regions.data[t->region];
    const sglir_id root = t->p->views[sglir_arg(from(t->p), node_at(t->p, x->node), 0)].root;
    for (int64_t n = x->at - 1; n >= since; n--)
        if (reads(t->p, node_at(t->p, region->nodes.data[n]), root)) return n;
    return NOWHERE;
}

static bool dies_here(const sglpass_timeline *t, sglir_id arg, int64_t at)
{
    const sglir_id root = t->p->views[arg].root;
    return is_made_here(t, root) && t->p->last_use[root] <= at;
}

static bool is_larger(const sglpass_timeline *t, const sglpass_exchange *x)
{
    const sglir_node *node = node_at(t->p, x->node);
    return bytes_made(t->p, node) > bytes_read(t->p, node);
}

/* least: where the exchange before it begins, or after what else exchanges. */
static void place_begin(sglpass_timeline *t, sglpass_exchange *x, int64_t least)
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
    sglpass_add_bytes(t->bytes, x->begin, x->at - 1, x->bytes);
    if (ahead)
        sglpass_add_bytes(t->ahead, x->begin, x->first_read - 1 < t->count ? x->first_read - 1 : t->count - 1,
                          x->bytes);
}

/* Where the state's or carry's new value is first written: nothing that is under way may read the old one then. */
int64_t sglpass_written_at(const sglpass_timeline *t, sglir_id old)
{
    const sglpass_placer *p = t->p;
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

static void place_end(sglpass_timeline *t, int64_t i)
{
    sglpass_exchange *x = &t->exchanges.data[i];
    const sglir_node *node = node_at(t->p, x->node);
    int64_t last = x->first_read, held = 0;
    if (x->unread && i + UNREAD_AHEAD < t->exchanges.count)
        last = t->exchanges.data[i + UNREAD_AHEAD].at; /* what nobody reads is not left for the end of all */
    for (uint32_t a = 0; a < node->arg_count; a++) {
        const sglir_id arg = sglir_arg(from(t->p), node, a), root = t->p->views[arg].root;
        const int64_t written = sglpass_written_at(t, root);
        if (written < last) last = written;
        if (x->bytes > 0 && dies_here(t, arg, x->at)) held += bytes_of(t->p, root);
    }
    x->end = x->at + 1;
    while (x->end < last && t->bytes[x->end] + held <= t->bound) t->bytes[x->end++] += held;
    const int64_t least = x->begin == x->at ? x->at + 1 : x->begin;
    if (x->end > last) x->end = last;
    if (x->end < least) x->end = least;
}

static sgl_status find_begun(sglpass_timeline *t, const sglir_region *region, bool moves)
{
    sglpass_placer *p = t->p;
    for (int64_t n = 0; n < t->count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        if (!p->live[id] || !(moves ? sglir_is_move(node->op) : sglir_is_exchange(node->op))) continue;
        sglpass_exchange x = {
            .node = id, .at = n, .first_read = t->count, .bytes = bytes_made(p, node), .unread = true
        };
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

static void place_exchanges(sglpass_timeline *t, const sglir_region *region)
{
    int64_t least = 0, next = 0;
    while (least < t->count && node_at(t->p, region->nodes.data[least])->op == SGLIR_OP_INPUT) least++;
    for (int64_t n = 0; n < t->count && next < t->exchanges.count; n++) {
        const sglir_id id = region->nodes.data[n];
        if (!t->p->live[id] || !sglir_exchanges(from(t->p), node_at(t->p, id))) continue;
        if (!sglir_is_exchange(node_at(t->p, id)->op)) { /* a loop or branch that exchanges stays */
            least = n + 1;
            continue;
        }
        sglpass_exchange *x = &t->exchanges.data[next++];
        place_begin(t, x, least);
        least = x->begin == x->at ? x->at + 1 : x->begin;
    }
    for (int64_t i = 0; i < t->exchanges.count; i++) place_end(t, i);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

sgl_status sglpass_timeline_fill(sglpass_timeline *t)
{
    const sglir_region *region = &from(t->p)->regions.data[t->region];
    sglcore_env *env = from(t->p)->env;
    t->count = region->nodes.count;
    t->bytes = sglcore_alloc_zero(env, (size_t)(t->count + 1) * sizeof *t->bytes);
    t->ahead = sglcore_alloc_zero(env, (size_t)(t->count + 1) * sizeof *t->ahead);
    if (!t->bytes || !t->ahead) return SGL_OUT_OF_MEMORY;
    for (int64_t v = 0; v < from(t->p)->values.count; v++) t->p->first_use[v] = t->p->last_use[v] = NOWHERE;
    find_uses(t->p, region, t->count);
    count_live(t, region);
    SGLCORE_TRY(find_begun(t, region, false));
    set_bounds(t);
    place_exchanges(t, region);
    t->moves = t->exchanges.count;
    SGLCORE_TRY(find_begun(t, region, true));
    return sglpass_place_moves(t);
}

void sglpass_timeline_free(sglpass_timeline *t)
{
    sglcore_env *env = from(t->p)->env;
    sglcore_free(env, t->bytes, (size_t)(t->count + 1) * sizeof *t->bytes);
    sglcore_free(env, t->ahead, (size_t)(t->count + 1) * sizeof *t->ahead);
    sglcore_vec_free(env, &t->exchanges);
}
