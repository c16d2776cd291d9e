/* schedule_constraints.c -- what must come before what, beside who uses what: states, exchanges, turns of a stage.
 *
 * In: the units of a region, with the edges of their uses. Out: more edges. Odd invariant: an edge may lead to a unit
 * of a smaller number, and none closes a ring: a turn counts what a unit waits for, and of a state only those readers
 * go before its writer that do not come after it. */
#include "passes/schedule_parts.h"

static const sglir_node *node_at(const sglpass_scheduler *s, sglir_id node) { return &s->g->nodes.data[node]; }

/* ---- states ----------------------------------------------------------------------------------------------------- */

/* The unit that would be the first to write the state's place: the maker of the new value, or the head of the chain of
 * partial updates that ends in it. SGLPASS_NO_UNIT when no unit does. */
static uint32_t first_writer(const sglpass_scheduler *s, sglir_id state, sglir_id update)
{
    sglir_id root = s->views[update].root;
    for (;;) {
        sglir_id maker = sglir_value_at(s->g, root)->node;
        const sglir_node *node = node_at(s, maker);
        if (node->op != SGLIR_OP_DYNAMIC_UPDATE) return s->unit_of[maker];
        sglir_id before = s->views[sglir_arg(s->g, node, 0)].root;
        if (before == state) return s->unit_of[maker];
        root = before;
    }
}

/* Marks the units that come after `unit` by what is known of them. */
static void mark_after(const sglpass_lists *next, uint32_t unit, uint8_t *after, uint32_t *stack)
{
    int64_t depth = 0;
    stack[depth++] = unit;
    after[unit] = 1;
    while (depth > 0) {
        uint32_t at = stack[--depth];
        for (int64_t i = next->first[at]; i < next->first[at + 1]; i++) {
            if (after[next->data[i]]) continue;
            after[next->data[i]] = 1;
            stack[depth++] = next->data[i];
        }
    }
}

static bool unit_reads(const sglpass_scheduler *s, uint32_t unit, sglir_id state)
{
    const sglir_node *node = node_at(s, s->units.data[unit]);
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (s->views[sglir_arg(s->g, node, i)].root == state) return true;
    }
    return sglir_is_control(node) && sglpass_regions_read(s->g, s->views, node, state);
}

/* Readers of a state before what writes it, unless they need what that makes. */
static sgl_status order_state(sglpass_scheduler *s, sglir_id state, uint32_t writer)
{
    sglcore_arena arena = { .env = s->env };
    sglpass_lists next;
    size_t units = (size_t)s->units.count;
    uint8_t *after = sglcore_arena_alloc(&arena, units);
    uint32_t *stack = sglcore_arena_alloc(&arena, (units + 1) * sizeof *stack);
    sgl_status status = SGL_OK;
    if (after == NULL || stack == NULL || !sglpass_group_edges(&arena, &s->next, s->units.count, &next)) {
        status = SGL_OUT_OF_MEMORY;
    } else {
        mark_after(&next, writer, after, stack);
        for (uint32_t u = 0; u < units && status == SGL_OK; u++) {
            if (!after[u] && unit_reads(s, u, state))
                status = sglcore_vec_push(s->env, &s->next, (sglpass_edge){ u, writer });
        }
    }
    sglcore_arena_free(&arena);
    return status;
}

sgl_status sglpass_order_states(sglpass_scheduler *s)
{
    const sglir_graph *g = s->g;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id state = sglir_input_find(g, sglcore_string(g->strings, output->name));
        uint32_t writer = first_writer(s, state, output->value);
        if (writer != SGLPASS_NO_UNIT) SGLCORE_TRY(order_state(s, state, writer));
    }
    return SGL_OK;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* Each after the one before it. */
sgl_status sglpass_order_exchanges(sglpass_scheduler *s)
{
    uint32_t before = SGLPASS_NO_UNIT;
    for (uint32_t u = 0; u < s->units.count; u++) {
        if (!sglir_exchanges(s->g, node_at(s, s->units.data[u]))) continue;
        if (before != SGLPASS_NO_UNIT) SGLCORE_TRY(sglcore_vec_push(s->env, &s->next, (sglpass_edge){ before, u }));
        before = u;
    }
    return SGL_OK;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Per unit of the region at hand: the turn that its node says, 0: none; and the last one of that and what it waits for. */
typedef struct turns {
    const sglpass_scheduler *s;
    uint32_t *said, *last;
    uint32_t unit; /* at hand */
} turns;

static void follow_turn(void *user, sglir_id value)
{
    turns *t = user;
    const sglpass_scheduler *s = t->s;
    const sglir_value *made = sglir_value_at(s->g, value);
    if (made->node == SGLIR_NONE || made->region != s->region) return;
    const uint32_t maker = s->unit_of[made->node];
    if (maker != SGLPASS_NO_UNIT && maker < t->unit && t->last[maker] > t->last[t->unit])
        t->last[t->unit] = t->last[maker];
}

static uint32_t find_turns(turns *t)
{
    const sglpass_scheduler *s = t->s;
    uint32_t exchanged = 0, most = 0;
    for (t->unit = 0; t->unit < s->units.count; t->unit++) {
        const sglir_node *node = node_at(s, s->units.data[t->unit]);
        uint32_t *last = &t->last[t->unit];
        *last = t->said[t->unit] = node->turn;
        for (uint32_t i = 0; i < node->arg_count; i++) follow_turn(t, sglir_arg(s->g, node, i));
        if (sglir_is_control(node)) sglir_each_capture(s->g, node, follow_turn, t);
        if (sglir_exchanges(s->g, node)) exchanged = *last = *last > exchanged ? *last : exchanged;
        if (t->said[t->unit] != 0) most = most > *last ? most : *last;
    }
    return most;
}

/* Of each turn every unit waits for its first, which waits for all of the turn before. gates: that first one, per turn. */
static sgl_status add_turn_edges(sglpass_scheduler *s, const turns *t, uint32_t *gates, uint32_t most)
{
    for (uint32_t turn = 0; turn <= most + 1; turn++) gates[turn] = SGLPASS_NO_UNIT;
    for (uint32_t u = (uint32_t)s->units.count; u-- > 0;)
        if (t->said[u] != 0) gates[t->last[u]] = u;
    for (uint32_t u = 0; u < s->units.count; u++) {
        if (t->said[u] == 0) continue;
        const uint32_t gate = gates[t->last[u]];
        if (u != gate) SGLCORE_TRY(sglcore_vec_push(s->env, &s->next, (sglpass_edge){ gate, u }));
        uint32_t after = t->last[u] + 1;
        while (after <= most && gates[after] == SGLPASS_NO_UNIT) after++;
        if (after <= most) SGLCORE_TRY(sglcore_vec_push(s->env, &s->next, (sglpass_edge){ u, gates[after] }));
    }
    return SGL_OK;
}

/* A stage takes its turns one after another; what is of none goes where it fits. */
sgl_status sglpass_order_turns(sglpass_scheduler *s)
{
    turns t = { .s = s };
    sglcore_arena arena = { .env = s->env };
    const size_t bytes = (size_t)(s->units.count + 1) * sizeof *t.said;
    t.said = sglcore_arena_alloc(&arena, bytes);
    t.last = sglcore_arena_alloc(&arena, bytes);
    sgl_status status = t.said && t.last ? SGL_OK : SGL_OUT_OF_MEMORY;
    const uint32_t most = status == SGL_OK ? find_turns(&t) : 0;
    uint32_t *gates = most > 0 ? sglcore_arena_alloc(&arena, ((size_t)most + 2) * sizeof *gates) : NULL;
    if (most > 0) status = gates ? add_turn_edges(s, &t, gates, most) : SGL_OUT_OF_MEMORY;
    sglcore_arena_free(&arena);
    return status;
}
