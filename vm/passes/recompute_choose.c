/* recompute_choose.c -- which of the values that are kept for the backward are made again instead.
 *
 * In: a region with its stored values. Out: `again` on some of them. First what the graph's annotations name: all that a
 * marked module makes for itself; what it hands on, its successor's input, is kept. Then, against a budget, the others
 * by the bytes that each spares over what it costs to make it again from what is kept: norms, activations and masks
 * come first, then attention and products; a value that each turn of a pipeline's stage makes is chosen in all of them, since
 * each has a peak of its own. Odd invariant: a choice that does not lower the peak is taken back at once,
 * because a clone lives too: where one value is made again from another that is, both live at once. */
#include <string.h>

#include "passes/recompute_parts.h"

/* ---- annotations -------------------------------------------------------------------------------------------------- */

static bool is_within(const char *scope, const char *path)
{
    size_t length = strlen(path);
    return strncmp(scope, path, length) == 0 && (scope[length] == '\0' || scope[length] == '.' || length == 0);
}

static bool stands_within(const sglpass_again *s, sglir_id node, const char *path)
{
    uint32_t scope = s->g->origins.data[sglpass_again_at(s, node)->origin].scope;
    return is_within(sglcore_string(s->g->strings, scope), path);
}

/* handed[v]: something of the forward outside of the module reads the value. */
static sgl_status mark_module(sglpass_again *s, const char *path, uint8_t *handed)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    memset(handed, 0, (size_t)s->g->values.count);
    for (int64_t n = region->nodes.count - 1; n >= 0; n--) {
        sglir_id id = region->nodes.data[n];
        if (!s->node[id].live || s->node[id].backward) continue;
        const sglir_node *node = sglpass_again_at(s, id);
        bool inside = stands_within(s, id, path), view = sglpass_again_shows(node) && handed[node->out_first];
        const bool exchanged = sglir_is_exchange(node->op); /* is kept (recompute_again.c) */
        for (uint32_t k = 0; inside && !exchanged && k < node->out_count; k++) {
            sglpass_again_value *value = &s->value[node->out_first + k];
            if (value->stored && !value->leaves && !handed[node->out_first + k]) value->again = s->any = true;
        }
        if (inside && !view) continue;
        SGLCORE_TRY(sglpass_again_uses(s, id));
        for (int64_t i = 0; i < s->uses.count; i++) handed[s->uses.data[i]] = 1;
    }
    return SGL_OK;
}

static sgl_status mark_modules(sglpass_again *s)
{
    size_t bytes = (size_t)s->g->values.count;
    if (s->g->recomputed.count == 0) return SGL_OK;
    uint8_t *handed = sglcore_alloc(s->env, bytes);
    sgl_status status = handed == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
    for (int64_t i = 0; i < s->g->recomputed.count && status == SGL_OK; i++)
        status = mark_module(s, sglcore_string(s->g->strings, s->g->recomputed.data[i]), handed);
    sglcore_free(s->env, handed, bytes);
    return status;
}

/* ---- a budget ------------------------------------------------------------------------------------------------------ */

enum { SMALLEST_SHARE = 4096 }; /* values of less than this part of all that is kept are not worth a clone */

typedef sglpass_again_candidate candidate;
typedef sglpass_again_candidates candidates;

/* In bytes that could be moved meanwhile, as fuse weighs: a product's flops are quick, an elementwise op's are not. */
static double cost_of(const sglpass_again *s, sglir_id id)
{
    const double per_product_flop = 0.15, per_flop = 1.2, per_transcendental = 5;
    const sglir_node *node = sglpass_again_at(s, id);
    sglplan_cost cost = sglplan_cost_of(s->g, id);
    if (sglpass_again_shows(node) || node->op == SGLIR_OP_BROADCAST) return 0;
    double flop = sglpass_again_outside(node) ? per_product_flop : per_flop;
    return flop * cost.flops + per_transcendental * cost.transcendentals + cost.bytes;
}

/* Clones that are made anyway cost nothing: their nodes bear the stamp of the last peak. */
static sgl_status weigh(sglpass_again *s, candidate *c)
{
    double cost = 0;
    s->value[c->value].again = s->value[c->value].stale = true;
    sgl_status status = sglpass_again_cone(s, c->value);
    s->value[c->value].again = s->value[c->value].stale = false;
    for (int64_t i = 0; i < s->cone.count; i++) {
        cost += cost_of(s, s->cone.data[i]);
        s->node[s->cone.data[i]].stamp = 0;
    }
    c->worth = (double)sglir_bytes(sglir_type_of(s->g, c->value)) / (cost + 1);
    return status;
}

static sgl_status list_candidates(sglpass_again *s, candidates *list)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    int64_t all = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t n = 0; n < region->nodes.count; n++) {
            sglir_id id = region->nodes.data[n];
            const sglir_node *node = sglpass_again_at(s, id);
            bool fits = s->node[id].live && !s->node[id].backward && !s->node[id].away && node->region_count == 0 &&
                        !(sglir_ops[node->op].flags & (SGLIR_EFFECT | SGLIR_EXCHANGE));
            for (uint32_t k = 0; fits && k < node->out_count; k++) {
                const sglpass_again_value *value = &s->value[node->out_first + k];
                int64_t bytes = sglir_bytes(sglir_type_of(s->g, node->out_first + k));
                if (!value->stored || value->again || value->leaves) continue;
                if (turn == 0) {
                    all += bytes;
                } else if (bytes > all / SMALLEST_SHARE) {
                    candidate c = { .value = node->out_first + k, .next = -1 };
                    SGLCORE_TRY(weigh(s, &c));
                    SGLCORE_TRY(sglcore_vec_push(s->env, list, c));
                }
            }
        }
    }
    return SGL_OK;
}

/* What turns make alike: the same op for the same line of the same module. */
static void hash_kind(const sglpass_again *s, sglir_id value, sglcore_hasher *hasher)
{
    const sglir_value *v = sglir_value_at(s->g, value);
    const sglir_node *node = sglpass_again_at(s, v->node);
    const sglir_origin *origin = &s->g->origins.data[node->origin];
    const int64_t facts[] = { node->op, v->index, origin->file, origin->line, origin->scope, sglir_bytes(&v->type) };
    sglcore_hasher_init(hasher);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) sglcore_hasher_u64(hasher, (uint64_t)facts[i]);
}

static sglcore_hash kind_and(const sglpass_again *s, sglir_id value, bool is_turn, uint64_t number)
{
    sglcore_hasher hasher;
    hash_kind(s, value, &hasher);
    sglcore_hasher_u64(&hasher, is_turn);
    sglcore_hasher_u64(&hasher, number);
    return sglcore_hasher_end(&hasher);
}

/* Turns do the same: the n-th candidate of a kind in one goes with the n-th in another. */
static sgl_status join_turns(sglpass_again *s, candidates *list)
{
    sglcore_map counts = { 0 }, last = { 0 };
    sgl_status status = SGL_OK;
    for (int64_t i = 0; i < list->count && status == SGL_OK; i++) {
        const sglir_id value = list->data[i].value;
        const uint32_t turn = sglpass_again_at(s, sglpass_again_maker(s, value))->turn;
        const sglcore_hash in_turn = kind_and(s, value, true, turn);
        uint64_t count = 0, before;
        if (turn == 0) continue;
        (void)sglcore_map_get(&counts, in_turn, &count);
        status = sglcore_map_put(s->env, &counts, in_turn, count + 1);
        if (status != SGL_OK) break;
        const sglcore_hash name = kind_and(s, value, false, count);
        if (sglcore_map_get(&last, name, &before)) {
            list->data[before].next = i;
            list->data[i].worth = 0;
        }
        status = sglcore_map_put(s->env, &last, name, (uint64_t)i);
    }
    sglcore_map_free(s->env, &counts);
    sglcore_map_free(s->env, &last);
    return status;
}

static int64_t best_of(const candidates *list)
{
    int64_t best = -1;
    for (int64_t i = 0; i < list->count; i++)
        if (list->data[i].worth > 0 && (best < 0 || list->data[i].worth > list->data[best].worth)) best = i;
    return best;
}

static sgl_status set_again(sglpass_again *s, const candidates *list, int64_t at, bool again, int64_t *peak)
{
    for (int64_t i = at; i >= 0; i = list->data[i].next) s->value[list->data[i].value].again = again;
    sglpass_again_settle(s);
    return sglpass_again_peak(s, peak);
}

/* Chooses the value, in all turns, and takes that back when the peak is no lower for it. */
static sgl_status try_value(sglpass_again *s, const candidates *list, int64_t at, int64_t *peak)
{
    int64_t now = 0;
    SGLCORE_TRY(set_again(s, list, at, true, &now));
    if (now >= *peak) return set_again(s, list, at, false, &now);
    *peak = now;
    s->any = true;
    return SGL_OK;
}

static sgl_status choose_from(sglpass_again *s, candidates *list, int64_t peak, int64_t goal)
{
    const double worse = 0.99; /* than it was: what has been chosen since has made it dearer */
    while (peak > goal) {
        int64_t at = best_of(list);
        if (at < 0) return SGL_OK;
        candidate *c = &list->data[at];
        double before = c->worth;
        SGLCORE_TRY(weigh(s, c));
        if (c->worth < worse * before) continue;
        c->worth = 0;
        SGLCORE_TRY(try_value(s, list, at, &peak));
    }
    return SGL_OK;
}

sgl_status sglpass_again_list(sglpass_again *s, candidates *list)
{
    SGLCORE_TRY(list_candidates(s, list));
    return join_turns(s, list);
}

sgl_status sglpass_again_choose(sglpass_again *s, int64_t bytes)
{
    candidates list = { 0 };
    int64_t peak = 0;
    const sglplan *plan = s->context->plan;
    const bool offloads = sglplan_offloads(plan, SGLPLAN_OFFLOAD_ACTIVATIONS);
    SGLCORE_TRY(mark_modules(s));
    sglpass_again_settle(s);
    if (bytes == 0 && (!offloads || plan->memory > 0)) return SGL_OK;
    SGLCORE_TRY(sglpass_again_peak(s, &peak));
    const int64_t goal = bytes > 0 && peak > bytes ? peak - bytes : 0;
    if (offloads) SGLCORE_TRY(sglpass_again_send_away(s, bytes, goal, &peak));
    if (bytes == 0) return SGL_OK;
    sgl_status status = sglpass_again_list(s, &list);
    if (status == SGL_OK) status = choose_from(s, &list, peak, goal);
    sglcore_vec_free(s->env, &list);
    return status;
}
