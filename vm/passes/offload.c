/* offload.c -- states that live in memory of the host: fetched for those that use them, and moved back when they are new.
 *
 * In: a graph whose parameters and states are sections, or stand alone; the plan, which says which kinds go away; the
 * session's layout, which says where each has its place already. Out: the same with a `prefetch` before the first of
 * each group of uses, and with an `offload` of each new value. Uses are one group as long as the time between two is
 * shorter than that of fetching the state again; views of a state go with its users. In a loop whose turn takes longer
 * than to fetch the state, each turn fetches it. When moves begin, and where they are waited for, is said by `schedule`.
 * Odd invariant: a state is away in all programs of a session or in none; the first that has it decides. */
#include <string.h>

#include "passes/pass.h"

enum { SMALLEST_SHARE = 4096 }; /* of the bytes of all states that go away: less is not worth a move */

typedef struct mover {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint8_t *live;    /* per node */
    uint8_t *away;    /* per value that is an INPUT */
    sglir_id *root;   /* per value: the state that is away of which it is a view, or that; SGLIR_NONE */
    sglir_id *place;  /* per such state: its INPUT in the new graph */
    double *used;     /* per such state: when it was used last, below 0: not yet in this region */
    uint32_t *group;  /* per such state: number of its group of uses */
    uint16_t *around; /* per such state: loops and branches under way for all of which it is there */
    uint32_t *made;   /* per value with a root: the group that the map's value is of */
    sglir_id *moved;  /* per output: its new value in memory of the host */
    uint32_t groups;
    double now;                  /* on paper, in the region at hand */
    SGLCORE_VEC(sglir_id) reads; /* of one node */
    bool changed;
    sglcore_arena arena;
} mover;

static const sglir_graph *from(const mover *m) { return m->rewrite.from; }
static const sglir_node *node_at(const mover *m, sglir_id node) { return sglir_node_at(from(m), node); }
static int64_t bytes_of(const mover *m, sglir_id value) { return sglir_bytes(sglir_type_of(from(m), value)); }

/* ---- what goes away ----------------------------------------------------------------------------------------------- */

static bool is_asked(const mover *m, int64_t role)
{
    const sglplan *plan = m->context->plan;
    return (role == SGL_STATE && sglplan_offloads(plan, SGLPLAN_OFFLOAD_MOMENTS)) ||
           (role == SGL_PARAMETER && sglplan_offloads(plan, SGLPLAN_OFFLOAD_PARAMS));
}

static void mark_away(mover *m)
{
    const sglir_graph *layout = m->context->layout;
    const sglir_region *top = &from(m)->regions.data[0];
    int64_t all = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0; n < top->nodes.count; n++) {
            const sglir_node *node = node_at(m, top->nodes.data[n]);
            if (node->op != SGLIR_OP_INPUT || !m->live[top->nodes.data[n]]) continue;
            const sglir_id known =
                layout ? sglir_input_find(layout, sglir_attr_string(from(m), node, "name")) : SGLIR_NONE;
            const bool asked = is_asked(m, sglir_attr_int(from(m), node, "role"));
            const int64_t bytes = bytes_of(m, node->out_first);
            if (pass == 0)
                all += asked ? bytes : 0;
            else if (known != SGLIR_NONE)
                m->away[node->out_first] = sglir_value_at(layout, known)->space == SGLIR_SPACE_AWAY;
            else
                m->away[node->out_first] = asked && bytes > all / SMALLEST_SHARE;
        }
    }
}

/* A view goes with those who read it; an order between nodes does not. */
static bool goes_along(const sglir_node *node)
{
    return sglir_is_view(node) && node->op != SGLIR_OP_AFTER && !sglir_is_wait(node->op);
}

static void find_roots(mover *m)
{
    for (int64_t n = 0; n < from(m)->nodes.count; n++) {
        const sglir_node *node = node_at(m, (sglir_id)n);
        const bool along = goes_along(node) && node->region == 0;
        for (uint32_t i = 0; i < node->out_count; i++) {
            const sglir_id out = node->out_first + i;
            m->root[out] = along ? m->root[sglir_arg(from(m), node, 0)] : m->away[out] ? out : SGLIR_NONE;
        }
    }
}

/* ---- uses ---------------------------------------------------------------------------------------------------------- */

static void set_origin(mover *m, sglir_id node)
{
    sglir_set_origin_made(m->rewrite.to, from(m), node, m->rewrite.pass);
}

/* The value on the device, for the group of uses at hand: fetched, or a view of what was. */
static void make(mover *m, sglir_id value, sglir_id user)
{
    const sglir_id root = m->root[value];
    if (m->made[value] == m->group[root] || m->rewrite.to->status != SGL_OK) return;
    if (value == root) {
        set_origin(m, user);
        m->rewrite.map[value] = sglir_emit(m->rewrite.to, SGLIR_OP_PREFETCH, &m->place[root], 1, NULL, 0, NULL);
        m->made[value] = m->group[root];
        m->changed = true;
        return;
    }
    const sglir_id id = sglir_value_at(from(m), value)->node;
    const sglir_node *node = node_at(m, id);
    make(m, sglir_arg(from(m), node, 0), user);
    sglir_copy_node(&m->rewrite, id);
    for (uint32_t i = 0; i < node->out_count; i++) m->made[node->out_first + i] = m->group[root];
}

/* A use of the value now; a long time after the one before it the state is fetched again. */
static void use(mover *m, sglir_id value, sglir_id user)
{
    const double margin = 2;
    const sglir_id root = m->root[value];
    if (root == SGLIR_NONE || m->around[root] > 0) return;
    const double since = m->now - m->used[root];
    if (m->used[root] < 0 || since > margin * sglplan_move_seconds(bytes_of(m, root))) m->group[root] = ++m->groups;
    m->used[root] = m->now;
    make(m, value, user);
}

static void push_read(void *user, sglir_id value)
{
    mover *m = user;
    sglir_stick(m->rewrite.to, sglcore_vec_push(m->context->env, &m->reads, value));
}

/* ---- the new graph ------------------------------------------------------------------------------------------------- */

static void write_nodes(mover *m, sglir_id region);

/* Nothing that was fetched around a region serves within it, nor the other way round. */
static void forget(mover *m)
{
    for (int64_t v = 0; v < from(m)->values.count; v++)
        if (m->around[v] == 0) m->used[v] = -1;
}

static void write_body(void *user, sglir_id region, sglir_id *results)
{
    mover *m = user;
    const double before = m->now;
    (void)results; /* the map's */
    forget(m);
    write_nodes(m, region);
    forget(m);
    m->now = before;
}

static double turn_seconds(const mover *m, const sglir_node *node, sglir_id id)
{
    sglplan_cost cost = sglplan_cost_of(from(m), id);
    const int64_t steps = node->op == SGLIR_OP_SCAN ? sglir_attr_int(from(m), node, "steps") : 1;
    const double turns = steps > 0 ? (double)steps : 1;
    cost.flops /= turns;
    cost.bytes /= turns;
    return sglplan_seconds(&cost);
}

/* What a region uses is fetched around it, unless each turn has the time for that. */
static bool fetches_within(const mover *m, const sglir_node *node, sglir_id id, sglir_id root)
{
    return sglir_is_loop(node) && turn_seconds(m, node, id) > sglplan_move_seconds(bytes_of(m, root));
}

/* Those of the node's captures that are fetched around it; what is fetched within it is told. */
static bool fetch_around(mover *m, const sglir_node *node, sglir_id id)
{
    bool within = false;
    m->reads.count = 0;
    sglir_each_capture(from(m), node, push_read, m);
    for (int64_t i = 0; i < m->reads.count; i++) {
        const sglir_id root = m->root[m->reads.data[i]];
        if (root == SGLIR_NONE) continue;
        if (m->around[root] == 0 && fetches_within(m, node, id, root))
            within = true;
        else
            use(m, m->reads.data[i], id);
    }
    return within;
}

/* Counts the node among those for all of which its states are there, or takes that back. */
static void stay_around(mover *m, const sglir_node *node, sglir_id id, int change)
{
    m->reads.count = 0;
    sglir_each_capture(from(m), node, push_read, m);
    for (int64_t i = 0; i < m->reads.count; i++) {
        const sglir_id root = m->root[m->reads.data[i]];
        bool first = root != SGLIR_NONE;
        for (int64_t k = 0; k < i && first; k++) first = m->root[m->reads.data[k]] != root;
        if (first && !fetches_within(m, node, id, root)) m->around[root] = (uint16_t)(m->around[root] + change);
    }
}

static void write_control(mover *m, sglir_id id)
{
    const sglir_node *node = node_at(m, id);
    for (uint32_t i = 0; i < node->arg_count; i++) use(m, sglir_arg(from(m), node, i), id);
    if (!fetch_around(m, node, id)) {
        sglir_copy_node(&m->rewrite, id);
        return;
    }
    stay_around(m, node, id, 1);
    sglir_copy_around(&m->rewrite, id, write_body, m);
    stay_around(m, node, id, -1);
}

/* New values of states go back as soon as they are made. */
static void move_updates(mover *m, const sglir_node *node, sglir_id id)
{
    for (int64_t o = 0; node->region == 0 && o < from(m)->outputs.count; o++) {
        const sglir_output *output = &from(m)->outputs.data[o];
        if (output->role != SGLIR_UPDATE || output->value - node->out_first >= node->out_count) continue;
        const sglir_id state = sglir_input_find(from(m), sglcore_string(from(m)->strings, output->name));
        if (!m->away[state] || m->root[output->value] == state) continue;
        set_origin(m, id);
        m->moved[o] = sglir_emit(m->rewrite.to, SGLIR_OP_OFFLOAD, &m->rewrite.map[output->value], 1, NULL, 0, NULL);
        m->changed = true;
    }
}

static void write_node(mover *m, sglir_id id)
{
    const sglir_node *node = node_at(m, id);
    const bool leaf = node->out_count > 0 && m->root[node->out_first] != SGLIR_NONE;
    if (leaf && node->op != SGLIR_OP_INPUT) return; /* a view, which goes with its users */
    if (sglir_is_control(node)) {
        write_control(m, id);
    } else {
        for (uint32_t i = 0; i < node->arg_count; i++) use(m, sglir_arg(from(m), node, i), id);
        sglir_copy_node(&m->rewrite, id);
    }
    if (leaf) m->place[node->out_first] = m->rewrite.map[node->out_first];
    if (m->rewrite.to->status == SGL_OK && !leaf) move_updates(m, node, id);
    m->now += sglplan_seconds_unfused(from(m), id);
}

static void write_nodes(mover *m, sglir_id id)
{
    const sglir_region *region = &from(m)->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count && m->rewrite.to->status == SGL_OK; n++)
        if (m->live[region->nodes.data[n]]) write_node(m, region->nodes.data[n]);
    for (int64_t i = 0; i < region->results.count && m->rewrite.to->status == SGL_OK; i++)
        use(m, region->results.data[i], region->node);
}

/* Outputs stand for what is on the device; of a state that is as it was, and of those that moved, for its place. */
static void settle_outputs(mover *m)
{
    for (int64_t o = 0; o < from(m)->outputs.count && m->rewrite.to->status == SGL_OK; o++) {
        const sglir_output *output = &from(m)->outputs.data[o];
        const sglir_id root = m->root[output->value];
        const bool updates = output->role == SGLIR_UPDATE;
        if (root == SGLIR_NONE) continue;
        if (updates && sglir_input_find(from(m), sglcore_string(from(m)->strings, output->name)) == root)
            m->moved[o] = m->place[root];
        use(m, output->value, sglir_value_at(from(m), output->value)->node);
    }
}

static sgl_status put_outputs(const mover *m, sglir_graph *g)
{
    for (int64_t o = 0; o < g->outputs.count; o++) {
        sglir_output *output = &g->outputs.data[o];
        if (m->moved[o] == SGLIR_NONE) continue;
        output->value = m->moved[o];
        const sglcore_hash key = { .low = output->name, .high = 1 + (uint64_t)output->role };
        SGLCORE_TRY(sglcore_map_put(g->env, &g->names, key, output->value));
    }
    return SGL_OK;
}

static sgl_status make_room(mover *m)
{
    const size_t values = (size_t)from(m)->values.count + 1, outputs = (size_t)from(m)->outputs.count + 1;
    m->live = sglcore_arena_alloc(&m->arena, (size_t)from(m)->nodes.count + 1);
    m->away = sglcore_arena_alloc(&m->arena, values);
    m->root = sglcore_arena_alloc(&m->arena, values * sizeof *m->root);
    m->place = sglcore_arena_alloc(&m->arena, values * sizeof *m->place);
    m->used = sglcore_arena_alloc(&m->arena, values * sizeof *m->used);
    m->group = sglcore_arena_alloc(&m->arena, values * sizeof *m->group);
    m->around = sglcore_arena_alloc(&m->arena, values * sizeof *m->around);
    m->made = sglcore_arena_alloc(&m->arena, values * sizeof *m->made);
    m->moved = sglcore_arena_alloc(&m->arena, outputs * sizeof *m->moved);
    if (!m->live || !m->away || !m->root || !m->place || !m->used || !m->group || !m->around || !m->made || !m->moved)
        return SGL_OUT_OF_MEMORY;
    for (size_t v = 0; v < values; v++) m->root[v] = SGLIR_NONE;
    for (size_t o = 0; o < outputs; o++) m->moved[o] = SGLIR_NONE;
    m->rewrite.live = m->live;
    return sglir_mark_live(from(m), m->live);
}

sgl_status sglpass_offload(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    mover m = { .context = context, .arena = { .env = context->env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "offload", NULL, &m.rewrite));
    sglir_stick(m.rewrite.to, make_room(&m));
    if (sglir_status(m.rewrite.to) == SGL_OK) {
        mark_away(&m);
        find_roots(&m);
        forget(&m);
        write_nodes(&m, 0);
        settle_outputs(&m);
    }
    sgl_status status = sglir_rewrite_end(&m.rewrite, true, out);
    if (status == SGL_OK) status = put_outputs(&m, *out);
    if (status == SGL_OK) sglpass_say(context, in, *out, m.changed);
    sglcore_vec_free(context->env, &m.reads);
    sglcore_arena_free(&m.arena);
    if (status == SGL_OK) return SGL_OK;
    sglir_graph_free(*out);
    *out = NULL;
    return status;
}
