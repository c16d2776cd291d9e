/* simplify_control.c -- loops and branches with less in them.
 *
 * In: a node that holds regions, in a walk of simplify. Out: the same without carries and results that nobody needs;
 * without carries that every turn hands on as they came, which become values from around; a branch whose predicate is a
 * constant, and a loop of one turn or none, as what stands in them. What is inside is copied as it is: the next round looks
 * at it. Odd invariant: a carry may be needed by nothing but itself, so needs are followed from the results that are used,
 * turn after turn, until no new carry is found. */
#include "passes/simplify_rules.h"

typedef struct control {
    sglir_rewrite *rewrite;
    const sglir_graph *from;
    sglir_graph *to;
    const sglir_node *node;
    const uint32_t *uses;
    uint8_t *needed; /* per value of `from` that stands in a region */
    uint8_t *kept;   /* per result */
} control;

static const sglir_region *region_at(const control *c, sglir_id id) { return &c->from->regions.data[id]; }

/* ---- what is needed --------------------------------------------------------------------------------------------- */

static void need(void *user, sglir_id value) { ((control *)user)->needed[value] = 1; }

/* Captures are those of dead nodes within, too, whose makers may be dead themselves, and what they read is not there. */
static bool makes_needed(const control *c, sglir_id id)
{
    const sglir_node *node = sglir_node_at(c->from, id);
    bool live = c->rewrite->live[id], makes = live && (sglir_ops[node->op].flags & SGLIR_EFFECT) != 0;
    for (uint32_t k = 0; live && k < node->out_count && !makes; k++) makes = c->needed[node->out_first + k];
    return makes;
}

static void follow(control *c, sglir_id id)
{
    const sglir_region *region = region_at(c, id);
    for (int64_t n = region->nodes.count; n-- > 0;) {
        const sglir_node *node = sglir_node_at(c->from, region->nodes.data[n]);
        if (!makes_needed(c, region->nodes.data[n])) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) need(c, sglir_arg(c->from, node, i));
        sglir_each_capture(c->from, node, need, c);
    }
}

static bool is_carry_needed(const control *c, uint32_t i)
{
    for (uint32_t r = 0; r < c->node->region_count; r++) {
        if (c->needed[region_at(c, c->node->region_first + r)->parameters.data[i + 1]]) return true;
    }
    return false;
}

static void find_needed(control *c)
{
    const sglir_node *node = c->node;
    bool loop = sglir_is_loop(node), news = true;
    sglir_id first = loop ? sglir_body(node) : node->region_first;
    for (uint32_t i = 0; i < node->out_count; i++) c->kept[i] = c->uses[node->out_first + i] > 0;
    if (node->op == SGLIR_OP_WHILE) need(c, region_at(c, node->region_first)->results.data[0]);
    while (news) {
        news = false;
        for (uint32_t i = 0; i < node->out_count; i++) {
            for (sglir_id r = first; r < node->region_first + node->region_count && c->kept[i]; r++)
                need(c, region_at(c, r)->results.data[i]);
        }
        for (uint32_t r = 0; r < node->region_count; r++) follow(c, node->region_first + r);
        for (uint32_t i = 0; loop && i < node->out_count; i++) {
            if (c->kept[i] || !is_carry_needed(c, i)) continue;
            c->kept[i] = 1;
            news = true;
        }
    }
}

/* ---- less of it --------------------------------------------------------------------------------------------------- */

static void copy_needed(const control *c, sglir_id id)
{
    const sglir_region *region = region_at(c, id);
    for (int64_t n = 0; n < region->nodes.count && c->to->status == SGL_OK; n++) {
        if (makes_needed(c, region->nodes.data[n])) sglir_copy_node(c->rewrite, region->nodes.data[n]);
    }
}

/* A carry that each turn hands on as it came is a value from around; a result that both regions take from around is it. */
static bool comes_from_around(control *c, uint32_t i)
{
    const sglir_node *node = c->node;
    sglir_id yielded = region_at(c, sglir_body(node))->results.data[i], value;
    if (sglir_is_loop(node)) {
        if (yielded != region_at(c, sglir_body(node))->parameters.data[i + 1]) return false;
        value = c->rewrite->map[sglir_arg(c->from, node, i)];
        for (uint32_t r = 0; r < node->region_count; r++)
            c->rewrite->map[region_at(c, node->region_first + r)->parameters.data[i + 1]] = value;
    } else {
        if (region_at(c, node->region_first)->results.data[i] != yielded) return false;
        value = c->rewrite->map[yielded];
    }
    c->rewrite->map[node->out_first + i] = value;
    return true;
}

/* Emits region `from` as region `made`, with the carries and results that are left. */
static void emit_region(control *c, sglir_id from, sglir_id made, sglir_id *ids, sglir_type *types)
{
    const sglir_region *region = region_at(c, from);
    bool decides = c->node->op == SGLIR_OP_WHILE && from == c->node->region_first;
    int count = 0;
    for (int64_t i = 0; i < region->parameters.count; i++) {
        if (i == 0 || c->kept[i - 1]) types[count++] = *sglir_type_of(c->from, region->parameters.data[i]);
    }
    sglir_region_begin_at(c->to, made, types, count, ids);
    count = 0;
    for (int64_t i = 0; i < region->parameters.count; i++) {
        if (i == 0 || c->kept[i - 1]) c->rewrite->map[region->parameters.data[i]] = ids[count++];
    }
    copy_needed(c, from);
    count = 0;
    for (int64_t i = 0; i < region->results.count; i++) {
        if (decides || c->kept[i]) ids[count++] = c->rewrite->map[region->results.data[i]];
    }
    sglir_region_end(c->to, ids, count);
}

static void emit_less(control *c, sglcore_arena *arena)
{
    const sglir_node *node = c->node;
    sglir_graph *to = c->to;
    size_t most = (size_t)node->out_count + node->arg_count + 2;
    sglir_id *args = sglcore_arena_alloc(arena, most * sizeof *args),
             *ids = sglcore_arena_alloc(arena, most * sizeof *ids);
    sglir_type *types = sglcore_arena_alloc(arena, most * sizeof *types);
    if (!args || !ids || !types) {
        sglir_stick(to, SGL_OUT_OF_MEMORY);
        return;
    }
    int count = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (!sglir_is_loop(node) || c->kept[i]) args[count++] = c->rewrite->map[sglir_arg(c->from, node, i)];
    }
    sglir_id regions[2] = { sglir_region_take(to, (int)node->region_count) };
    regions[1] = regions[0] + 1;
    for (uint32_t r = 0; r < node->region_count && to->status == SGL_OK; r++)
        emit_region(c, node->region_first + r, regions[r], ids, types);
    sglir_set_origin_of(to, &c->from->origins.data[node->origin], c->from);
    sglir_named named[SGLIR_MOST_ATTRS];
    int named_count = sglir_attrs_named(c->from, node, named);
    sglir_id out = sglir_emit_regions(to, (sglir_op)node->op, args, count, named, named_count, regions,
                                      (int)node->region_count, NULL);
    if (to->status != SGL_OK) return;
    sglir_keep_apart(to, to->nodes.count - 1, node);
    for (uint32_t i = 0; i < node->out_count; i++) {
        if (c->kept[i]) c->rewrite->map[node->out_first + i] = out++;
    }
}

/* Results that are not needed have no value in the new graph, and no user there. */
static bool drop(control *c, sglcore_arena *arena)
{
    uint32_t left = 0, before = c->node->out_count;
    find_needed(c);
    for (uint32_t i = 0; i < before; i++) {
        if (c->kept[i] && comes_from_around(c, i)) c->kept[i] = 0;
        left += c->kept[i];
    }
    if (left == before) return false;
    if (left > 0) emit_less(c, arena);
    return true;
}

/* ---- what stands in it ---------------------------------------------------------------------------------------------- */

/* The region's nodes where the node stood, its parameters mapped before. */
static bool dissolve(control *c, sglir_id region)
{
    find_needed(c);
    copy_needed(c, region);
    for (uint32_t i = 0; i < c->node->out_count && c->to->status == SGL_OK; i++)
        c->rewrite->map[c->node->out_first + i] = c->rewrite->map[region_at(c, region)->results.data[i]];
    return true;
}

static bool dissolve_loop(control *c, int64_t turns)
{
    const sglir_node *node = c->node;
    const sglir_region *body = region_at(c, sglir_body(node));
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = c->rewrite->map[sglir_arg(c->from, node, i)];
        c->rewrite->map[turns == 0 ? node->out_first + i : body->parameters.data[i + 1]] = arg;
    }
    if (turns == 0) return true;
    c->rewrite->map[body->parameters.data[0]] = sglir_constant(c->to, SGL_I64, 0);
    return dissolve(c, sglir_body(node));
}

static bool simplify(control *c, sglcore_arena *arena)
{
    double value;
    if (c->node->op == SGLIR_OP_COND &&
        sglir_constant_value(c->to, c->rewrite->map[sglir_arg(c->from, c->node, 0)], &value))
        return dissolve(c, c->node->region_first + (value == 0));
    if (sglir_is_loop(c->node)) {
        int64_t turns = sglir_attr_int(c->from, c->node, c->node->op == SGLIR_OP_SCAN ? "steps" : "limit");
        if (turns == 0 || (turns == 1 && c->node->op == SGLIR_OP_SCAN)) return dissolve_loop(c, turns);
    }
    return drop(c, arena);
}

bool sglpass_simplify_control(sglir_rewrite *rewrite, sglir_id id, const uint32_t *uses)
{
    sglcore_arena arena = { .env = rewrite->to->env };
    control c = { .rewrite = rewrite,
                  .from = rewrite->from,
                  .to = rewrite->to,
                  .node = sglir_node_at(rewrite->from, id),
                  .uses = uses,
                  .needed = sglcore_arena_alloc(&arena, (size_t)rewrite->from->values.count),
                  .kept = sglcore_arena_alloc(&arena, (size_t)sglir_node_at(rewrite->from, id)->out_count + 1) };
    bool done = true;
    if (c.needed == NULL || c.kept == NULL)
        sglir_stick(rewrite->to, SGL_OUT_OF_MEMORY);
    else
        done = simplify(&c, &arena);
    sglcore_arena_free(&arena);
    return done;
}
