/* schedule.c -- the order of nodes in which few bytes live at once.
 *
 * In: a graph of kernels. Out: the same nodes, in each region in the best of several orders (schedule_order.c), never a
 * worse one than the given. A unit of work is a node with the views of its results; inputs come first, constants before
 * their first user. What writes a state's new value comes after all that reads the old one, where that is possible, so
 * that `memory` can write it in place. What ranks exchange stays in the order in which it stood: on ranks whose parts
 * have other bytes another order may be the best, and all must exchange in one; then they begin early and are waited
 * for late (schedule_waits.c). Odd invariant: till then only the lists of nodes in the regions change; ids stay, so a
 * user's id is still larger than its makers'. */
#include "passes/schedule_parts.h"
#include "passes/schedule_waits.h"

static const sglir_node *node_at(const sglpass_scheduler *s, sglir_id node) { return &s->g->nodes.data[node]; }
static bool is_leaf(const sglir_node *node) { return node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT; }

/* ---- what lies in the arena ------------------------------------------------------------------------------------ */

enum { DEEPEST_CHAIN = 16 };

/* Whether the value, or what it may be written over, one after the other, leads back to a node that reads `old` and may
 * be written over that. If so, all of these will lie in its place. */
static bool leads_to(sglpass_scheduler *s, sglir_id old, sglir_id value, int depth)
{
    const sglir_value *made = sglir_value_at(s->g, value);
    if (made->node == SGLIR_NONE || made->region != sglir_value_at(s->g, old)->region || depth > DEEPEST_CHAIN)
        return false;
    const sglir_node *node = node_at(s, made->node);
    bool reaches = false;
    for (uint32_t i = 0; i < node->arg_count && !reaches; i++) {
        sglir_id root = s->views[sglir_arg(s->g, node, i)].root;
        if (root != old && s->uses[root] != 1) continue;
        reaches = sglpass_takes_place(s->g, s->views, made->node, i, made->index, s->scratch) &&
                  (root == old || leads_to(s, old, root, depth + 1));
    }
    if (reaches) s->transient[value] = 0;
    return reaches;
}

/* Outputs and yields do not: they have places of their own, or take those of states and carries. */
static void mark_transient(sglpass_scheduler *s)
{
    const sglir_graph *g = s->g;
    sglir_count_uses(g, s->uses);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; i < node->out_count; i++)
            s->transient[node->out_first + i] = !is_leaf(node) && !sglir_is_view(node) && node->op != SGLIR_OP_OFFLOAD;
    }
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        sglir_id root = s->views[output->value].root;
        if (output->role == SGLIR_UPDATE)
            leads_to(s, sglir_input_find(g, sglcore_string(g->strings, output->name)), root, 0);
        s->transient[root] = 0;
    }
    for (int64_t r = 1; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        for (int64_t i = 0; i < region->results.count; i++) {
            sglir_id root = s->views[region->results.data[i]].root;
            const sglir_node *holder = node_at(s, region->node);
            if (sglir_is_loop(holder) && sglir_body(holder) == (sglir_id)r)
                leads_to(s, region->parameters.data[i + 1], root, 0);
            s->transient[root] = 0;
        }
    }
}

/* ---- units and buffers ------------------------------------------------------------------------------------------ */

static sgl_status add_buffer(sglpass_scheduler *s, sglir_id value, uint32_t unit)
{
    int64_t bytes = sglir_bytes(sglir_type_of(s->g, value));
    if (!s->transient[value] || bytes == 0) return SGL_OK;
    s->buffer_of[value] = (uint32_t)s->bytes.count;
    SGLCORE_TRY(sglcore_vec_push(s->env, &s->makes, (sglpass_edge){ unit, (uint32_t)s->bytes.count }));
    return sglcore_vec_push(s->env, &s->bytes, bytes);
}

static sgl_status add_node(sglpass_scheduler *s, sglir_id id)
{
    const sglir_node *node = node_at(s, id);
    s->unit_of[id] = SGLPASS_NO_UNIT;
    if (is_leaf(node)) return SGL_OK;
    if (sglir_is_view(node) && node->op != SGLIR_OP_AFTER) { /* an order is a unit of its own, that makes nothing */
        const sglir_value *base = sglir_value_at(s->g, sglir_arg(s->g, node, 0));
        if (base->node == SGLIR_NONE || base->region != s->region || s->unit_of[base->node] == SGLPASS_NO_UNIT)
            return SGL_OK;
        s->unit_of[id] = s->unit_of[base->node];
        return sglcore_vec_push(s->env, &s->followers, (sglpass_edge){ s->unit_of[id], id });
    }
    uint32_t unit = (uint32_t)s->units.count;
    s->unit_of[id] = unit;
    SGLCORE_TRY(sglcore_vec_push(s->env, &s->units, id));
    for (uint32_t i = 0; i < node->out_count && !sglir_is_view(node); i++)
        SGLCORE_TRY(add_buffer(s, node->out_first + i, unit));
    return SGL_OK;
}

/* A use by the unit of a value of this region: what must come before, what is read. */
static sgl_status add_use(sglpass_scheduler *s, sglir_id value, uint32_t unit)
{
    const sglir_value *v = sglir_value_at(s->g, value);
    if (v->region != s->region || v->node == SGLIR_NONE || s->unit_of[v->node] == SGLPASS_NO_UNIT) return SGL_OK;
    uint32_t maker = s->unit_of[v->node];
    sglir_id root = s->views[value].root;
    if (maker != unit) SGLCORE_TRY(sglcore_vec_push(s->env, &s->next, (sglpass_edge){ maker, unit }));
    if (s->buffer_of[root] == SGLPASS_NO_UNIT || s->reader[root] == unit || maker == unit) return SGL_OK;
    s->reader[root] = unit;
    return sglcore_vec_push(s->env, &s->reads, (sglpass_edge){ unit, s->buffer_of[root] });
}

static sgl_status add_captures(sglpass_scheduler *s, sglir_id id, uint32_t unit)
{
    const sglir_region *region = &s->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = node_at(s, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(add_use(s, sglir_arg(s->g, node, i), unit));
        for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(add_captures(s, node->region_first + r, unit));
    }
    for (int64_t i = 0; i < region->results.count; i++) SGLCORE_TRY(add_use(s, region->results.data[i], unit));
    return SGL_OK;
}

static bool may_take(sglpass_scheduler *s, sglir_id id, uint32_t arg, uint32_t result)
{
    if (sglir_is_loop(node_at(s, id))) return arg == result;
    return sglpass_takes_place(s->g, s->views, id, arg, result, s->scratch);
}

static sgl_status add_uses(sglpass_scheduler *s, uint32_t unit)
{
    sglir_id id = s->units.data[unit];
    const sglir_node *node = node_at(s, id);
    for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(add_use(s, sglir_arg(s->g, node, i), unit));
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++)
        SGLCORE_TRY(add_captures(s, node->region_first + r, unit));
    for (uint32_t r = 0; r < node->out_count; r++) {
        uint32_t made = s->buffer_of[node->out_first + r];
        for (uint32_t i = 0; i < node->arg_count && made != SGLPASS_NO_UNIT; i++) {
            sglir_id arg = sglir_arg(s->g, node, i), root = s->views[arg].root;
            if (sglir_value_at(s->g, root)->region != s->region || s->buffer_of[root] == SGLPASS_NO_UNIT) continue;
            if (s->bytes.data[s->buffer_of[root]] != s->bytes.data[made] || !may_take(s, id, i, r)) continue;
            SGLCORE_TRY(sglcore_vec_push(s->env, &s->over, (sglpass_edge){ unit, made }));
            SGLCORE_TRY(sglcore_vec_push(s->env, &s->over, (sglpass_edge){ unit, s->buffer_of[root] }));
        }
    }
    return SGL_OK;
}

bool sglpass_group_edges(sglcore_arena *arena, const sglpass_edges *edges, int64_t units, sglpass_lists *lists)
{
    lists->first = sglcore_arena_alloc(arena, (size_t)(units + 2) * sizeof *lists->first);
    lists->data = sglcore_arena_alloc(arena, (size_t)edges->count * sizeof *lists->data);
    if (lists->first == NULL || lists->data == NULL) return false;
    for (int64_t i = 0; i < edges->count; i++) lists->first[edges->data[i].from + 2]++;
    for (int64_t u = 0; u < units; u++) lists->first[u + 2] += lists->first[u + 1];
    for (int64_t i = 0; i < edges->count; i++) lists->data[lists->first[edges->data[i].from + 1]++] = edges->data[i].to;
    return true;
}

/* ---- the new list ------------------------------------------------------------------------------------------------ */

static sgl_status list_node(sglpass_scheduler *s, sglir_id id);

static sgl_status list_constant(sglpass_scheduler *s, sglir_id value)
{
    const sglir_value *v = sglir_value_at(s->g, value);
    if (v->node == SGLIR_NONE || v->region != s->region || s->unit_of[v->node] != SGLPASS_NO_UNIT) return SGL_OK;
    return list_node(s, v->node);
}

static sgl_status list_constants(sglpass_scheduler *s, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(list_constant(s, sglir_arg(s->g, node, i)));
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++) {
        const sglir_region *region = &s->g->regions.data[node->region_first + r];
        for (int64_t n = 0; n < region->nodes.count; n++)
            SGLCORE_TRY(list_constants(s, node_at(s, region->nodes.data[n])));
        for (int64_t i = 0; i < region->results.count; i++) SGLCORE_TRY(list_constant(s, region->results.data[i]));
    }
    return SGL_OK;
}

/* The node after the constants, and views of them, that it uses first. */
static sgl_status list_node(sglpass_scheduler *s, sglir_id id)
{
    if (s->listed[id]) return SGL_OK;
    s->listed[id] = 1;
    SGLCORE_TRY(list_constants(s, node_at(s, id)));
    return sglcore_vec_push(s->env, &s->list, id);
}

/* What no unit stands for: inputs and views of them first; constants that only outputs or yields use at the end. */
static sgl_status list_rest(sglpass_scheduler *s, const sglir_region *region, bool constants)
{
    for (int64_t n = 0; n < region->nodes.count; n++) {
        sglir_id id = region->nodes.data[n];
        sglir_id root = s->views[node_at(s, id)->out_count > 0 ? node_at(s, id)->out_first : 0].root;
        const sglir_node *base = sglir_maker(s->g, root);
        bool constant = base != NULL && base->op == SGLIR_OP_CONSTANT;
        if (s->unit_of[id] == SGLPASS_NO_UNIT && (constants || !constant)) SGLCORE_TRY(list_node(s, id));
    }
    return SGL_OK;
}

static sgl_status list_units(sglpass_scheduler *s, const uint32_t *order, const sglpass_lists *followers)
{
    sglir_region *region = &s->g->regions.data[s->region];
    s->list.count = 0;
    SGLCORE_TRY(list_rest(s, region, false));
    for (int64_t k = 0; k < s->units.count; k++) {
        uint32_t unit = order[k];
        SGLCORE_TRY(list_node(s, s->units.data[unit]));
        for (int64_t i = followers->first[unit]; i < followers->first[unit + 1]; i++)
            SGLCORE_TRY(list_node(s, followers->data[i]));
    }
    SGLCORE_TRY(list_rest(s, region, true));
    if (s->list.count != region->nodes.count)
        return sglcore_fail(s->env, SGL_INTERNAL, "schedule: %lld nodes became %lld", (long long)region->nodes.count,
                            (long long)s->list.count);
    for (int64_t i = 0; i < s->list.count; i++) region->nodes.data[i] = s->list.data[i];
    return SGL_OK;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static sgl_status collect(sglpass_scheduler *s)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    s->units.count = s->bytes.count = 0;
    s->next.count = s->makes.count = s->reads.count = s->over.count = s->followers.count = 0;
    for (int64_t n = 0; n < region->nodes.count; n++) SGLCORE_TRY(add_node(s, region->nodes.data[n]));
    for (uint32_t u = 0; u < s->units.count; u++) SGLCORE_TRY(add_uses(s, u));
    SGLCORE_TRY(sglpass_order_exchanges(s));
    SGLCORE_TRY(sglpass_order_turns(s));
    return s->region == 0 ? sglpass_order_states(s) : SGL_OK;
}

/* The work as lists; followers beside. */
static bool describe(sglpass_scheduler *s, sglcore_arena *arena, sglpass_work *w, sglpass_lists *followers)
{
    *w = (sglpass_work){ .env = s->env, .units = s->units.count, .buffers = s->bytes.count, .bytes = s->bytes.data };
    w->extra = sglcore_arena_alloc(arena, (size_t)w->units * sizeof *w->extra);
    w->readers = sglcore_arena_alloc(arena, (size_t)w->buffers * sizeof *w->readers);
    if (!w->extra || !w->readers || !sglpass_group_edges(arena, &s->next, w->units, &w->next) ||
        !sglpass_group_edges(arena, &s->makes, w->units, &w->makes) ||
        !sglpass_group_edges(arena, &s->reads, w->units, &w->reads) ||
        !sglpass_group_edges(arena, &s->over, w->units, &w->over) ||
        !sglpass_group_edges(arena, &s->followers, w->units, followers))
        return false;
    for (int64_t i = 0; i < s->reads.count; i++) w->readers[s->reads.data[i].to]++;
    for (int64_t u = 0; u < w->units; u++) {
        sglir_id id = s->units.data[u];
        const sglir_node *node = node_at(s, id);
        if (s->context->workspace != NULL) w->extra[u] = s->context->workspace(s->g, id);
        int64_t most = 0; /* one region at a time */
        for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++) {
            int64_t peak = s->peaks[node->region_first + r];
            if (peak > most) most = peak;
        }
        w->extra[u] += most;
    }
    return true;
}

static sgl_status schedule_region(sglpass_scheduler *s, sglir_id region)
{
    s->region = region;
    SGLCORE_TRY(collect(s));
    sglcore_arena arena = { .env = s->env };
    sglpass_work work;
    sglpass_lists followers;
    uint32_t *order = sglcore_arena_alloc(&arena, (size_t)s->units.count * sizeof *order);
    sgl_status status = order != NULL && describe(s, &arena, &work, &followers) ? SGL_OK : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = sglpass_order_work(&work, order, &s->peaks[region]);
    if (status == SGL_OK) status = list_units(s, order, &followers);
    sglcore_arena_free(&arena);
    return status;
}

/* Inner regions have larger ids and come first: a loop's need is known when it is weighed itself. */
static sgl_status schedule_regions(sglpass_scheduler *s)
{
    sglpass_find_views(s->g, s->views);
    mark_transient(s);
    for (int64_t v = 0; v < s->g->values.count; v++) s->buffer_of[v] = s->reader[v] = SGLPASS_NO_UNIT;
    for (int64_t r = s->g->regions.count - 1; r >= 0; r--) {
        sglir_id holder = s->g->regions.data[r].node;
        if (holder != SGLIR_NONE && !sglir_is_control(node_at(s, holder))) continue;
        SGLCORE_TRY(schedule_region(s, (sglir_id)r));
    }
    return SGL_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static bool make_room(sglpass_scheduler *s)
{
    size_t values = (size_t)s->g->values.count, nodes = (size_t)s->g->nodes.count,
           regions = (size_t)s->g->regions.count;
    s->views = sglcore_arena_alloc(&s->arena, values * sizeof *s->views);
    s->scratch = sglcore_arena_alloc(&s->arena, values);
    s->transient = sglcore_arena_alloc(&s->arena, values);
    s->buffer_of = sglcore_arena_alloc(&s->arena, values * sizeof *s->buffer_of);
    s->reader = sglcore_arena_alloc(&s->arena, values * sizeof *s->reader);
    s->uses = sglcore_arena_alloc(&s->arena, values * sizeof *s->uses);
    s->listed = sglcore_arena_alloc(&s->arena, nodes);
    s->unit_of = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->unit_of);
    s->peaks = sglcore_arena_alloc(&s->arena, regions * sizeof *s->peaks);
    return s->views && s->scratch && s->transient && s->buffer_of && s->reader && s->uses && s->listed && s->unit_of &&
           s->peaks;
}

/* The copy stood in the order of its ids. */
static bool is_reordered(const sglir_graph *g)
{
    for (int64_t r = 0; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        for (int64_t n = 1; n < region->nodes.count; n++) {
            if (region->nodes.data[n] < region->nodes.data[n - 1]) return true;
        }
    }
    return false;
}

/* The graph in its order once more, with waits. */
static sgl_status begin_early(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglir_graph *ordered = *out;
    *out = NULL;
    sgl_status status = sglpass_place_waits(context, ordered, out);
    sglir_graph_free(ordered);
    if (status == SGL_OK) sglpass_say_by_hash(context, in, *out);
    return status;
}

sgl_status sglpass_schedule(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "schedule", NULL, NULL, out));
    sglpass_scheduler s = { .context = context, .env = context->env, .g = *out, .arena = { .env = context->env } };
    sgl_status status = make_room(&s) ? schedule_regions(&s) : SGL_OUT_OF_MEMORY;
    sglcore_vec_free(s.env, &s.units);
    sglcore_vec_free(s.env, &s.bytes);
    sglcore_vec_free(s.env, &s.next);
    sglcore_vec_free(s.env, &s.makes);
    sglcore_vec_free(s.env, &s.reads);
    sglcore_vec_free(s.env, &s.over);
    sglcore_vec_free(s.env, &s.followers);
    sglcore_vec_free(s.env, &s.list);
    sglcore_arena_free(&s.arena);
    if (status != SGL_OK) {
        sglir_graph_free(*out);
        *out = NULL;
        return status;
    }
    if (sglpass_has_begun(*out)) return begin_early(context, in, out);
    sglpass_say(context, in, *out, is_reordered(*out));
    return SGL_OK;
}
