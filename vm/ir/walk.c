/* walk.c -- the questions that passes ask of a graph: how often a value is used, what depends on it, what is needed,
 * and where it is used last. In: a graph that is built. Out: one entry per value or node in an array of the caller's.
 * Nothing is kept: whoever wants an answer asks. Odd invariant: a node that holds regions has a larger id than every
 * node in them, since it is emitted after they are closed; so one pass over the ids, down, sees users before makers. */
#include <string.h>

#include "ir/ir.h"

/* An empty graph's array may be NULL, and memset takes none. */
static void clear(void *out, size_t bytes)
{
    if (bytes > 0) memset(out, 0, bytes);
}

static const sglir_region *region_at(const sglir_graph *g, sglir_id region) { return &g->regions.data[region]; }

bool sglir_is_made_by(const sglir_graph *g, const sglir_node *node, const char *pass)
{
    return strcmp(sglcore_string(g->strings, g->origins.data[node->origin].pass), pass) == 0;
}

void sglir_count_uses(const sglir_graph *g, uint32_t *out)
{
    clear(out, (size_t)g->values.count * sizeof *out);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; i < node->arg_count; i++) out[sglir_arg(g, node, i)]++;
    }
    for (int64_t r = 0; r < g->regions.count; r++) {
        const sglir_region *region = region_at(g, (sglir_id)r);
        for (int64_t i = 0; i < region->results.count; i++) out[region->results.data[i]]++;
    }
    for (int64_t i = 0; i < g->outputs.count; i++) out[g->outputs.data[i].value]++;
}

/* ---- dependents --------------------------------------------------------------------------------------------- */

static void mark_region(const sglir_graph *g, sglir_id id, uint8_t *out);

static bool mark(uint8_t *out, sglir_id value)
{
    bool fresh = !out[value];
    out[value] = 1;
    return fresh;
}

/* Marks carry i where a loop's regions take it; true when that is news. */
static bool mark_carry(const sglir_graph *g, const sglir_node *loop, int64_t i, uint8_t *out)
{
    bool fresh = false;
    for (uint32_t r = 0; r < loop->region_count; r++) {
        const sglir_region *region = region_at(g, loop->region_first + r);
        if (i + 1 < region->parameters.count) fresh |= mark(out, region->parameters.data[i + 1]);
    }
    return fresh;
}

static bool any_result(const sglir_graph *g, sglir_id region, const uint8_t *out)
{
    for (int64_t i = 0; i < region_at(g, region)->results.count; i++) {
        if (out[region_at(g, region)->results.data[i]]) return true;
    }
    return false;
}

/* What a loop yields as carry i comes back as carry i; without a turn the carry stays as it came. */
static void mark_loop(const sglir_graph *g, const sglir_node *node, uint8_t *out)
{
    const sglir_region *body = region_at(g, sglir_body(node));
    for (uint32_t i = 0; i < node->arg_count && i < node->out_count; i++) {
        if (!out[sglir_arg(g, node, i)]) continue;
        mark_carry(g, node, i, out);
        out[node->out_first + i] = 1;
    }
    for (bool again = true; again;) {
        again = false;
        for (uint32_t r = 0; r < node->region_count; r++) mark_region(g, node->region_first + r, out);
        for (int64_t i = 0; i < body->results.count && i < node->out_count; i++) {
            if (!out[body->results.data[i]]) continue;
            out[node->out_first + (sglir_id)i] = 1;
            again |= mark_carry(g, node, i, out);
        }
    }
}

/* Carries marks from the arguments of a region node through its regions to its results. A kernel's parameters are its
 * arguments; on what decides a loop's turns, or a branch, all results depend. */
static void mark_region_node(const sglir_graph *g, const sglir_node *node, uint8_t *out)
{
    bool all = node->op == SGLIR_OP_COND && out[sglir_arg(g, node, 0)];
    if (sglir_is_loop(node)) {
        mark_loop(g, node, out);
        all = node->region_count > 1 && any_result(g, node->region_first, out);
    }
    for (uint32_t r = 0; r < node->region_count && !sglir_is_loop(node); r++) {
        const sglir_region *region = region_at(g, node->region_first + r);
        for (int64_t i = 0; i < region->parameters.count && i < node->arg_count; i++) {
            if (out[sglir_arg(g, node, (uint32_t)i)]) out[region->parameters.data[i]] = 1;
        }
        mark_region(g, node->region_first + r, out);
        for (int64_t i = 0; i < region->results.count && i < node->out_count; i++) {
            if (out[region->results.data[i]]) out[node->out_first + (sglir_id)i] = 1;
        }
    }
    for (uint32_t i = 0; i < node->out_count && all; i++) out[node->out_first + i] = 1;
}

static void mark_region(const sglir_graph *g, sglir_id id, uint8_t *out)
{
    const sglir_region *region = region_at(g, id);
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        if (node->region_count > 0) {
            mark_region_node(g, node, out);
            continue;
        }
        bool depends = false;
        for (uint32_t i = 0; i < node->arg_count && !depends; i++) depends = out[sglir_arg(g, node, i)] != 0;
        for (uint32_t i = 0; depends && i < node->out_count; i++) out[node->out_first + i] = 1;
    }
}

void sglir_mark_dependents(const sglir_graph *g, const sglir_id *from, int count, uint8_t *out)
{
    clear(out, (size_t)g->values.count);
    for (int i = 0; i < count; i++) out[from[i]] = 1;
    mark_region(g, 0, out);
}

/* ---- liveness ----------------------------------------------------------------------------------------------- */

static void mark_maker(const sglir_graph *g, sglir_id value, uint8_t *out)
{
    sglir_id node = sglir_value_at(g, value)->node;
    if (node != SGLIR_NONE) out[node] = 1;
}

/* An effect in a region needs every node around it. */
static void mark_with_holders(const sglir_graph *g, sglir_id node, uint8_t *out)
{
    while (node != SGLIR_NONE && !out[node]) {
        out[node] = 1;
        node = region_at(g, sglir_node_at(g, node)->region)->node;
    }
}

/* The inputs whose state an output updates: needed even where nothing reads the old value. */
static void mark_updated_inputs(const sglir_graph *g, uint8_t *out)
{
    for (int64_t i = 0; i < g->outputs.count; i++) {
        if (g->outputs.data[i].role != SGLIR_UPDATE) continue;
        uint64_t input;
        if (sglcore_map_get(&g->names, (sglcore_hash){ .low = g->outputs.data[i].name }, &input)) {
            mark_maker(g, (sglir_id)input, out);
        }
    }
}

sgl_status sglir_mark_live(const sglir_graph *g, uint8_t *out)
{
    clear(out, (size_t)g->nodes.count);
    for (int64_t i = 0; i < g->outputs.count; i++) mark_maker(g, g->outputs.data[i].value, out);
    mark_updated_inputs(g, out);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        uint16_t op = g->nodes.data[n].op;
        bool acts = op == SGLIR_OP_INPUT ? sglir_home_of(g, (sglir_id)n) != SGLIR_HOME_UNSAID
                                         : (sglir_ops[op].flags & SGLIR_EFFECT) != 0;
        if (acts) mark_with_holders(g, (sglir_id)n, out);
    }
    for (int64_t n = g->nodes.count - 1; n >= 0; n--) {
        if (!out[n]) continue;
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; i < node->arg_count; i++) mark_maker(g, sglir_arg(g, node, i), out);
        for (uint32_t r = 0; r < node->region_count; r++) {
            const sglir_region *region = region_at(g, node->region_first + r);
            for (int64_t i = 0; i < region->results.count; i++) mark_maker(g, region->results.data[i], out);
        }
    }
    return SGL_OK;
}

/* ---- last uses ---------------------------------------------------------------------------------------------- */

static void use_in_node(const sglir_graph *g, const sglir_node *node, int64_t position, int64_t *out)
{
    for (uint32_t i = 0; i < node->arg_count; i++) out[sglir_arg(g, node, i)] = position;
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = region_at(g, node->region_first + r);
        for (int64_t n = 0; n < region->nodes.count; n++) {
            use_in_node(g, sglir_node_at(g, region->nodes.data[n]), position, out);
        }
        for (int64_t i = 0; i < region->results.count; i++) out[region->results.data[i]] = position;
    }
}

/* Writes all values.count entries; -1 where a value is not used in the region. */
void sglir_last_uses(const sglir_graph *g, sglir_id region, int64_t *out)
{
    for (int64_t i = 0; i < g->values.count; i++) out[i] = -1;
    const sglir_region *at = region_at(g, region);
    for (int64_t n = 0; n < at->nodes.count; n++) use_in_node(g, sglir_node_at(g, at->nodes.data[n]), n, out);
    for (int64_t i = 0; i < at->results.count; i++) out[at->results.data[i]] = at->nodes.count;
    if (region != 0) return;
    for (int64_t i = 0; i < g->outputs.count; i++) out[g->outputs.data[i].value] = at->nodes.count;
}

/* ---- captures ----------------------------------------------------------------------------------------------- */

/* Whether the region is one of the node's, or lies in one of them. */
static bool lies_within(const sglir_graph *g, sglir_id region, const sglir_node *node)
{
    while (region - node->region_first >= node->region_count) {
        sglir_id holder = region_at(g, region)->node;
        if (holder == SGLIR_NONE) return false;
        region = sglir_node_at(g, holder)->region;
    }
    return true;
}

static void captures_in(const sglir_graph *g, sglir_id id, const sglir_node *around,
                        void (*use)(void *user, sglir_id value), void *user)
{
    const sglir_region *region = region_at(g, id);
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id value = sglir_arg(g, node, i);
            if (!lies_within(g, sglir_value_at(g, value)->region, around)) use(user, value);
        }
        for (uint32_t r = 0; r < node->region_count; r++) captures_in(g, node->region_first + r, around, use, user);
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        sglir_id value = region->results.data[i];
        if (!lies_within(g, sglir_value_at(g, value)->region, around)) use(user, value);
    }
}

bool sglir_exchanges(const sglir_graph *g, const sglir_node *node)
{
    if (sglir_is_exchange(node->op)) return true;
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++) {
        const sglir_region *region = &g->regions.data[node->region_first + r];
        for (int64_t n = 0; n < region->nodes.count; n++) {
            if (sglir_exchanges(g, sglir_node_at(g, region->nodes.data[n]))) return true;
        }
    }
    return false;
}

void sglir_each_capture(const sglir_graph *g, const sglir_node *node, void (*use)(void *user, sglir_id value),
                        void *user)
{
    for (uint32_t r = 0; r < node->region_count; r++) captures_in(g, node->region_first + r, node, use, user);
}
