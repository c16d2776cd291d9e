/* simplify.c -- constants, common subexpressions, dead nodes, algebra; and one product for a loss and its gradient.
 *
 * In: a graph. Out: one with the same outputs, to the bit, and no more nodes. Rounds of one walk each, until a round
 * changes nothing: a node is replaced by what algebra (simplify_rules.c) says of it, else by an equal node made before
 * it in the same region or one around it, else copied; what nobody needs is not visited at all.
 * What keeps nodes apart: effects, epochs (a recomputed clone must not merge with its original), and being the wrt of a
 * grad that is not expanded yet. Odd invariant: d / d wrt asks how the value depends on that one node, so no rule may
 * look through a wrt, merge it, or replace it: y = x + 0 is not x when dy is asked for. */
#include <string.h>

#include "passes/pass.h"
#include "passes/simplify_rules.h"

enum { ROUNDS_AT_MOST = 32 };

/* One round. Arrays are per value or node of the old graph. */
typedef struct round_state {
    sglcore_map seen;           /* what a node computes -> the node of the new graph that does */
    SGLCORE_VEC(sglir_id) args; /* of one node, in the new graph */
    uint8_t *wrt;               /* per value: 1 for the wrt of a grad */
    uint8_t *behind_wrt;        /* per value: 1 when it depends on such a one */
    uint32_t *uses;             /* per value; NULL: the graph has no regions */
    uint8_t *moved;             /* per node: 1 when it goes to the place of `loss` */
    sglir_id loss, gradient;    /* the pair to merge in this round; SGLIR_NONE: none */
    bool changed;
} round_state;

/* ---- common subexpressions -------------------------------------------------------------------------------------- */

static void hash_attrs(sglcore_hasher *hasher, const sglir_graph *g, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const sglir_attr *attr = &g->attrs.data[node->attr_first + i];
        sglcore_hasher_u64(hasher, attr->count);
        switch (attr->kind) {
        case 'f': sglcore_hasher_add(hasher, &attr->as.f, sizeof attr->as.f); break;
        case 's': sglcore_hasher_u64(hasher, attr->as.string); break;
        case 'I':
            for (uint32_t k = 0; k < attr->count; k++)
                sglcore_hasher_u64(hasher, (uint64_t)g->ints.data[attr->as.first + k]);
            break;
        case 'F':
            for (uint32_t k = 0; k < attr->count; k++)
                sglcore_hasher_add(hasher, &g->floats.data[attr->as.first + k], sizeof(double));
            break;
        default: sglcore_hasher_u64(hasher, (uint64_t)attr->as.i); break;
        }
    }
}

static void hash_owed(sglcore_hasher *hasher, const sglir_type *type)
{
    sglcore_hasher_u64(hasher, (uint64_t)type->scaled << 8 | type->partial);
    sglcore_hasher_add(hasher, type->sharded, sizeof type->sharded);
}

/* These cost nothing to make again, and a kernel in a loop would have to fetch them from outside. */
static bool stays_in_region(const sglir_node *node)
{
    return node->op == SGLIR_OP_CONSTANT || node->op == SGLIR_OP_IOTA || node->op == SGLIR_OP_SEGMENTS;
}

static sglcore_hash key_of(const round_state *state, const sglir_rewrite *rewrite, const sglir_node *node)
{
    const sglir_graph *from = rewrite->from, *to = rewrite->to;
    sglir_id args[2];
    const sglir_id *in_order = state->args.data;
    if ((sglir_ops[node->op].flags & SGLIR_COMMUTES) && in_order[0] > in_order[1]) {
        args[0] = in_order[1];
        args[1] = in_order[0];
        in_order = args;
    }
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, (uint64_t)node->op << 16 | node->epoch);
    sglcore_hasher_u64(&hasher, node->arg_count);
    if (node->arg_count > 0) sglcore_hasher_add(&hasher, in_order, node->arg_count * sizeof *in_order);
    hash_attrs(&hasher, from, node);
    for (uint32_t k = 0; k < node->out_count; k++) hash_owed(&hasher, sglir_type_of(from, node->out_first + k));
    if (stays_in_region(node)) sglcore_hasher_u64(&hasher, to->open.data[to->open.count - 1]);
    return sglcore_hasher_end(&hasher);
}

/* A value may be used in its region and in those that are open within it. */
static bool visible(const sglir_graph *g, sglir_id node)
{
    for (int64_t i = 0; i < g->open.count; i++) {
        if (g->open.data[i] == g->nodes.data[node].region) return true;
    }
    return false;
}

/* Maps the results to those of an equal node, or copies the node and remembers it. */
static void merge_or_copy(round_state *state, sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    sglir_graph *to = rewrite->to;
    sglcore_hash key = key_of(state, rewrite, node);
    uint64_t found;
    if (sglcore_map_get(&state->seen, key, &found) && visible(to, (sglir_id)found)) {
        sglir_id first = to->nodes.data[found].out_first;
        for (uint32_t k = 0; k < node->out_count; k++) rewrite->map[node->out_first + k] = first + k;
        state->changed = true;
        return;
    }
    sglir_copy_node(rewrite, id);
    if (to->status != SGL_OK || node->out_count == 0) return;
    sglir_id made = sglir_value_at(to, rewrite->map[node->out_first])->node;
    sgl_status status = sglcore_map_put(to->env, &state->seen, key, made);
    if (status != SGL_OK) sglir_stick(to, status);
}

/* ---- packs ------------------------------------------------------------------------------------------------------ */

/* unpack of pack, part by part of the same shape: the parts. */
static bool unpack_of_pack(round_state *state, sglir_rewrite *rewrite, const sglir_node *node)
{
    const sglir_graph *to = rewrite->to;
    const sglir_node *pack = sglir_maker(to, state->args.data[0]);
    if (pack == NULL || pack->op != SGLIR_OP_PACK || pack->arg_count != node->out_count) return false;
    for (uint32_t k = 0; k < node->out_count; k++) {
        const sglir_type *part = sglir_type_of(to, sglir_arg(to, pack, k));
        if (!sglir_type_equal(part, sglir_type_of(rewrite->from, node->out_first + k))) return false;
    }
    for (uint32_t k = 0; k < node->out_count; k++) rewrite->map[node->out_first + k] = sglir_arg(to, pack, k);
    return true;
}

/* pack of all results of an unpack, in order: what was unpacked. */
static sglir_id pack_of_unpack(const round_state *state, const sglir_graph *to, const sglir_node *node)
{
    const sglir_node *unpack = sglir_maker(to, state->args.data[0]);
    if (unpack == NULL || unpack->op != SGLIR_OP_UNPACK || unpack->out_count != node->arg_count) return SGLIR_NONE;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (state->args.data[i] != unpack->out_first + i) return SGLIR_NONE;
    }
    return sglir_arg(to, unpack, 0);
}

/* ---- one node --------------------------------------------------------------------------------------------------- */

static bool map_args(round_state *state, sglir_rewrite *rewrite, const sglir_node *node)
{
    state->args.count = 0;
    sgl_status status = sglcore_vec_reserve(rewrite->to->env, &state->args, node->arg_count);
    if (status != SGL_OK) {
        sglir_stick(rewrite->to, status);
        return false;
    }
    for (uint32_t i = 0; i < node->arg_count; i++)
        state->args.data[state->args.count++] = rewrite->map[sglir_arg(rewrite->from, node, i)];
    return true;
}

static bool any_marked(const sglir_graph *from, const sglir_node *node, const uint8_t *results, const uint8_t *args)
{
    for (uint32_t k = 0; k < node->out_count; k++) {
        if (results[node->out_first + k]) return true;
    }
    for (uint32_t i = 0; args != NULL && i < node->arg_count; i++) {
        if (args[sglir_arg(from, node, i)]) return true;
    }
    return false;
}

/* Replaces the results by what algebra knows of them. */
static bool replace(round_state *state, sglir_rewrite *rewrite, const sglir_node *node)
{
    sglir_graph *to = rewrite->to;
    int64_t before = to->nodes.count;
    if (node->arg_count == 0) return false;
    if (node->op == SGLIR_OP_UNPACK && unpack_of_pack(state, rewrite, node)) {
        state->changed = true;
        return true;
    }
    sglir_id value = sglpass_simplify_node(to, rewrite->from, node, state->args.data);
    if (value == SGLIR_NONE && node->op == SGLIR_OP_PACK) value = pack_of_unpack(state, to, node);
    if (value == SGLIR_NONE || to->status != SGL_OK) return false;
    sglir_keep_apart(to, before, node);
    if (!sglir_type_equal(sglir_type_of(to, value), sglir_type_of(rewrite->from, node->out_first))) return false;
    rewrite->map[node->out_first] = value;
    state->changed = true;
    return true;
}

static void simplify_one(round_state *state, sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if ((sglir_ops[node->op].flags & SGLIR_EFFECT) || any_marked(rewrite->from, node, state->wrt, NULL)) {
        sglir_copy_node(rewrite, id);
        return;
    }
    if (!map_args(state, rewrite, node)) return;
    if (!any_marked(rewrite->from, node, state->behind_wrt, state->behind_wrt) && replace(state, rewrite, node)) return;
    if (rewrite->to->status == SGL_OK) merge_or_copy(state, rewrite, id);
}

/* The gradient, and what it needs, in the place of the loss; whose result is then the gradient's first. */
static void merge_loss(round_state *state, sglir_rewrite *rewrite)
{
    const sglir_graph *from = rewrite->from;
    for (sglir_id n = state->loss; n <= state->gradient; n++) {
        if (state->moved[n]) simplify_one(state, rewrite, n);
    }
    sglir_id losses = sglir_node_at(from, state->gradient)->out_first;
    rewrite->map[sglir_node_at(from, state->loss)->out_first] = rewrite->map[losses];
    state->changed = true;
}

/* Loops and branches, but where a grad asks for a value of theirs. */
static bool simplify_regions(round_state *state, sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_graph *from = rewrite->from;
    const sglir_node *node = sglir_node_at(from, id);
    if (!sglir_is_control(node) || any_marked(from, node, state->wrt, NULL)) return false;
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &from->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->parameters.count; i++) {
            if (state->wrt[region->parameters.data[i]]) return false;
        }
        for (int64_t i = 0; i < region->results.count; i++) {
            if (state->wrt[region->results.data[i]]) return false;
        }
    }
    if (!sglpass_simplify_control(rewrite, id, state->uses)) return false;
    state->changed = true;
    return true;
}

static bool rule_simplify(sglir_rewrite *rewrite, sglir_id id)
{
    round_state *state = rewrite->user;
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (id == state->loss) {
        merge_loss(state, rewrite);
        return true;
    }
    if (state->moved[id]) return true; /* made where the loss stood */
    if (node->region_count > 0) return simplify_regions(state, rewrite, id);
    simplify_one(state, rewrite, id);
    return true;
}

/* ---- a loss and its gradient --------------------------------------------------------------------------------------- */

static bool same_loss(const sglir_graph *g, const sglir_node *loss, const sglir_node *gradient)
{
    if (gradient->op != SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD || gradient->region != loss->region) return false;
    for (uint32_t i = 0; i < loss->arg_count; i++) {
        if (sglir_arg(g, loss, i) != sglir_arg(g, gradient, i)) return false;
    }
    return loss->epoch == gradient->epoch && sglir_attr_int(g, loss, "ignore") == sglir_attr_int(g, gradient, "ignore");
}

/* Marks what must move before the gradient can stand where the loss stands: what it is made from, after the loss and in
 * its region. False when that is not possible: something there depends on the loss, holds a region, or has an effect. */
static bool mark_moved(const sglir_graph *g, sglir_id loss, sglir_id gradient, uint8_t *moved)
{
    memset(moved, 0, (size_t)g->nodes.count);
    moved[gradient] = 1;
    for (sglir_id n = gradient; n > loss; n--) {
        const sglir_node *node = sglir_node_at(g, n);
        if (!moved[n]) continue;
        if (node->region_count > 0 || (sglir_ops[node->op].flags & SGLIR_EFFECT)) return false;
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id maker = sglir_value_at(g, sglir_arg(g, node, i))->node;
            if (maker == loss) return false;
            if (maker != SGLIR_NONE && maker > loss) moved[maker] = 1;
        }
    }
    return true;
}

/* Looks for one pair; the next round looks for the next. */
static void find_pair(const sglir_graph *g, const uint8_t *live, round_state *state)
{
    state->loss = state->gradient = SGLIR_NONE;
    for (sglir_id loss = 0; loss < g->nodes.count; loss++) {
        if (!live[loss] || g->nodes.data[loss].op != SGLIR_OP_LINEAR_CROSS_ENTROPY) continue;
        for (sglir_id gradient = loss + 1; gradient < g->nodes.count; gradient++) {
            if (!live[gradient] || !same_loss(g, &g->nodes.data[loss], &g->nodes.data[gradient])) continue;
            if (!mark_moved(g, loss, gradient, state->moved)) continue;
            state->loss = loss;
            state->gradient = gradient;
            return;
        }
    }
    if (g->nodes.count > 0) memset(state->moved, 0, (size_t)g->nodes.count); /* else there is no memory */
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static sgl_status mark_wrt(const sglir_graph *g, const uint8_t *live, round_state *state)
{
    SGLCORE_VEC(sglir_id) values = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t n = 0; n < g->nodes.count && status == SGL_OK; n++) {
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 1; live[n] && node->op == SGLIR_OP_GRAD && i < node->arg_count && status == SGL_OK; i++) {
            sglir_id value = sglir_arg(g, node, i);
            const sglir_node *maker = sglir_maker(g, value);
            state->wrt[value] = 1;
            if (maker == NULL || maker->op != SGLIR_OP_INPUT) /* no rule looks through an input anyway */
                status = sglcore_vec_push(g->env, &values, value);
        }
    }
    if (status == SGL_OK && values.count > 0)
        sglir_mark_dependents(g, values.data, (int)values.count, state->behind_wrt);
    sglcore_vec_free(g->env, &values);
    return status;
}

/* As sglir_count_uses, by what is live. */
static void count_live_uses(const sglir_graph *g, const uint8_t *live, uint32_t *uses)
{
    memset(uses, 0, (size_t)g->values.count * sizeof *uses);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; live[n] && i < node->arg_count; i++) uses[sglir_arg(g, node, i)]++;
        for (uint32_t r = 0; live[n] && r < node->region_count; r++) {
            const sglir_region *region = &g->regions.data[node->region_first + r];
            for (int64_t i = 0; i < region->results.count; i++) uses[region->results.data[i]]++;
        }
    }
    for (int64_t i = 0; i < g->outputs.count; i++) uses[g->outputs.data[i].value]++;
}

static sgl_status run_round(sglcore_env *env, const sglir_graph *from, bool *changed, sglir_graph **to)
{
    size_t nodes = (size_t)from->nodes.count, values = (size_t)from->values.count;
    round_state state = { .loss = SGLIR_NONE };
    uint8_t *live = sglcore_alloc(env, nodes);
    state.wrt = sglcore_alloc_zero(env, values);
    state.behind_wrt = sglcore_alloc_zero(env, values);
    state.moved = sglcore_alloc_zero(env, nodes);
    size_t counted = from->regions.count > 1 ? values * sizeof *state.uses : 0;
    state.uses = sglcore_alloc(env, counted);
    bool missing = (counted > 0 && !state.uses) || (nodes > 0 && (!live || !state.moved)) ||
                   (values > 0 && (!state.wrt || !state.behind_wrt));
    sgl_status status = missing ? SGL_OUT_OF_MEMORY : sglir_mark_live(from, live);
    if (status == SGL_OK) status = mark_wrt(from, live, &state);
    if (status == SGL_OK) {
        find_pair(from, live, &state);
        if (counted > 0) count_live_uses(from, live, state.uses);
        status = sglir_rewrite_graph(env, from, "simplify", rule_simplify, &state, to);
    }
    *changed = state.changed;
    sglcore_map_free(env, &state.seen);
    sglcore_vec_free(env, &state.args);
    sglcore_free(env, live, nodes);
    sglcore_free(env, state.wrt, values);
    sglcore_free(env, state.behind_wrt, values);
    sglcore_free(env, state.moved, nodes);
    sglcore_free(env, state.uses, counted);
    return status;
}

sgl_status sglpass_simplify(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglir_graph *made = NULL;
    bool changed = true, any = false;
    *out = NULL;
    for (int round = 0; round < ROUNDS_AT_MOST && changed; round++) {
        sglir_graph *next = NULL;
        sgl_status status = run_round(context->env, made ? made : in, &changed, &next);
        sglir_graph_free(made);
        if (status != SGL_OK) return status;
        made = next;
        any = any || changed;
    }
    *out = made;
    sglpass_say(context, in, made, any);
    return SGL_OK;
}
