/* recompute_again.c -- what it takes to make a value again, and the bytes that then live at once.
 *
 * In: a region, and which of its stored values are made again. Out: the nodes to clone for a use by the backward, in
 * order; the peak of the region as it would run. A clone is made once, right before the first node of the backward that
 * needs it, and lives to the last. Odd invariant: the peak is that of the order in which the nodes stand, of values that
 * have bytes of their own; it serves to compare choices, not to plan memory. */
#include <string.h>

#include "passes/recompute_parts.h"

/* What has no inputs of its own to wait for, or cannot be run twice, is used as it is; what ranks exchange is kept: of ranks
 * that choose by their own bytes one might exchange again, and the others not. */
static bool can_clone(const sglpass_again *s, sglir_id node)
{
    const sglir_node *at = sglpass_again_at(s, node);
    return at->region_count == 0 && at->arg_count > 0 && !(sglir_ops[at->op].flags & (SGLIR_EFFECT | SGLIR_EXCHANGE)) &&
           !s->node[node].backward;
}

/* Values whose stored part was given up are not there for the backward, nor what follows from them. */
void sglpass_again_settle(sglpass_again *s)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        sglir_id id = region->nodes.data[n];
        const sglir_node *node = sglpass_again_at(s, id);
        if (!s->node[id].live || s->node[id].backward) continue;
        bool stale = false;
        for (uint32_t i = 0; i < node->arg_count && !stale; i++) {
            sglir_id arg = sglir_arg(s->g, node, i);
            stale = sglpass_again_maker(s, arg) != SGLIR_NONE && s->value[arg].stale;
        }
        for (uint32_t k = 0; k < node->out_count; k++) {
            sglpass_again_value *value = &s->value[node->out_first + k];
            value->stale = value->stored ? value->again : stale && can_clone(s, id) && value->there;
        }
    }
}

bool sglpass_again_cloned(const sglpass_again *s, sglir_id value)
{
    sglir_id maker = sglpass_again_maker(s, value);
    bool kept = s->value[value].stored && !s->value[value].again; /* beside another result of a node that is cloned */
    return maker != SGLIR_NONE && s->node[maker].stamp == s->stamp && !kept;
}

/* Whether a clone that reads the value needs a clone of its maker. */
static bool wants_clone(const sglpass_again *s, sglir_id value)
{
    sglir_id maker = sglpass_again_maker(s, value);
    if (maker == SGLIR_NONE || !s->value[value].varies || !can_clone(s, maker)) return false;
    return !s->value[value].stored || s->value[value].again;
}

sgl_status sglpass_again_cone(sglpass_again *s, sglir_id value)
{
    sglir_id first = sglpass_again_maker(s, value);
    s->cone.count = s->stack.count = 0;
    if (first == SGLIR_NONE || s->node[first].backward || !s->value[value].stale || s->node[first].stamp == s->stamp)
        return SGL_OK;
    SGLCORE_TRY(sglcore_vec_push(s->env, &s->stack, first));
    while (s->stack.count > 0) { /* a node is looked at twice: its makers go before it, then it follows */
        sglir_id id = s->stack.data[s->stack.count - 1];
        const sglir_node *node = sglpass_again_at(s, id);
        int64_t before = s->stack.count;
        for (uint32_t i = s->node[id].away ? 0 : node->arg_count; i-- > 0 && s->node[id].stamp != s->stamp;) {
            sglir_id arg = sglir_arg(s->g, node, i), maker = sglpass_again_maker(s, arg);
            if (wants_clone(s, arg) && s->node[maker].stamp != s->stamp)
                SGLCORE_TRY(sglcore_vec_push(s->env, &s->stack, maker));
        }
        if (s->stack.count > before) continue;
        s->stack.count--;
        if (s->node[id].stamp == s->stamp) continue;
        s->node[id].stamp = s->stamp;
        SGLCORE_TRY(sglcore_vec_push(s->env, &s->cone, id));
    }
    return SGL_OK;
}

/* ---- the peak ------------------------------------------------------------------------------------------------------ */

static void use_at(sglpass_again *s, sglir_id value, int64_t position, bool by_clone)
{
    sglir_id root = s->value[value].root;
    if (sglir_value_at(s->g, root)->region != s->region) return;
    bool clone = by_clone && sglpass_again_cloned(s, root);
    int64_t *last = clone ? s->again_last : s->last;
    if (position > last[root]) last[root] = position;
}

static sgl_status run_on_paper(sglpass_again *s, sglir_id id, int64_t position)
{
    const sglir_node *node = sglpass_again_at(s, id);
    bool backward = s->node[id].backward;
    for (uint32_t k = 0; k < node->out_count; k++)
        s->from[node->out_first + k] = s->last[node->out_first + k] = position;
    SGLCORE_TRY(sglpass_again_uses(s, id));
    for (int64_t i = 0; i < s->uses.count; i++) {
        sglir_id value = s->uses.data[i];
        s->cone.count = 0;
        if (backward) SGLCORE_TRY(sglpass_again_cone(s, value));
        for (int64_t c = 0; c < s->cone.count; c++) {
            const sglir_node *clone = sglpass_again_at(s, s->cone.data[c]);
            for (uint32_t k = 0; k < clone->out_count; k++)
                s->again_from[clone->out_first + k] = s->again_last[clone->out_first + k] = position;
            for (uint32_t a = 0; a < clone->arg_count && !s->node[s->cone.data[c]].away; a++)
                use_at(s, sglir_arg(s->g, clone, a), position, true);
        }
        use_at(s, value, position, backward);
    }
    return SGL_OK;
}

/* What the backward works out from what is kept, at the place of its use, keeps that until then. */
static void keep_for(sglpass_again *s, sglir_id id)
{
    const sglir_node *node = sglpass_again_at(s, id);
    const sglir_id value = node->out_first;
    const sglpass_again_value *facts = &s->value[value];
    if (s->node[id].backward || node->out_count != 1 || facts->counted || facts->stored || !facts->there) return;
    for (uint32_t i = 0; i < node->arg_count; i++)
        use_at(s, sglir_arg(s->g, node, i), s->last[s->value[value].root], false);
}

static void count_life(sglpass_again *s, sglir_id value, int64_t from, int64_t last)
{
    int64_t bytes = sglir_bytes(sglir_type_of(s->g, value));
    s->change[from] += bytes;
    s->change[last + 1] -= bytes;
}

sgl_status sglpass_again_peak(sglpass_again *s, int64_t *peak)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    int64_t count = region->nodes.count;
    s->stamp++;
    memset(s->change, 0, (size_t)(count + 2) * sizeof *s->change);
    for (int64_t n = 0; n < count; n++)
        if (s->node[region->nodes.data[n]].live) SGLCORE_TRY(run_on_paper(s, region->nodes.data[n], n));
    for (int64_t n = count - 1; n >= 0; n--)
        if (s->node[region->nodes.data[n]].live) keep_for(s, region->nodes.data[n]);
    for (int64_t n = 0; n < count; n++) {
        sglir_id id = region->nodes.data[n];
        const sglir_node *node = sglpass_again_at(s, id);
        for (uint32_t k = 0; s->node[id].live && k < node->out_count; k++) {
            sglir_id value = node->out_first + k;
            const sglpass_again_value *facts = &s->value[value];
            bool elsewhere = node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_UNPACK || facts->leaves;
            if (!facts->counted || facts->root != value || elsewhere) continue;
            count_life(s, value, s->from[value], s->last[value]);
            if (s->node[id].stamp == s->stamp) count_life(s, value, s->again_from[value], s->again_last[value]);
        }
    }
    int64_t live = 0;
    *peak = 0;
    for (int64_t n = 0; n < count; n++) {
        live += s->change[n];
        if (live > *peak) *peak = live;
    }
    return SGL_OK;
}
