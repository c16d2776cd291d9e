/* recompute_needs.c -- what is kept between the forward and the backward of a region.
 *
 * In: a graph after simplify. Out: per node its side, per value whether the backward needs it and whether it is stored
 * for that. The backward is what autodiff has made and all that depends on it. How it is known that a value is stored:
 * it is read by a node that stands outside of kernels (a product), or it costs more than elementwise work to make it
 * from what is stored; fuse lets the backward's kernels work out the rest. Odd invariant: one walk up the region and
 * one down are enough, since users come after makers. */
#include "passes/recompute_parts.h"

bool sglpass_again_room(sglpass_again *s)
{
    size_t values = (size_t)s->g->values.count, nodes = (size_t)s->g->nodes.count;
    s->value = sglcore_arena_alloc(&s->arena, values * sizeof *s->value);
    s->node = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->node);
    s->from = sglcore_arena_alloc(&s->arena, values * sizeof *s->from);
    s->last = sglcore_arena_alloc(&s->arena, values * sizeof *s->last);
    s->again_from = sglcore_arena_alloc(&s->arena, values * sizeof *s->again_from);
    s->again_last = sglcore_arena_alloc(&s->arena, values * sizeof *s->again_last);
    s->change = sglcore_arena_alloc(&s->arena, (nodes + 2) * sizeof *s->change);
    return s->value && s->node && s->from && s->last && s->again_from && s->again_last && s->change;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

bool sglpass_again_outside(const sglir_node *node)
{
    bool random = node->op == SGLIR_OP_RANDOM_UNIFORM || node->op == SGLIR_OP_RANDOM_NORMAL;
    return !sglir_op_is_free((sglir_op)node->op) && !sglpass_again_shows(node) && !random &&
           !(sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION));
}

/* A kernel works it out on the way from its arguments, for next to nothing. */
static bool is_cheap(const sglir_node *node)
{
    return sglir_op_is_free((sglir_op)node->op) || sglpass_again_shows(node) ||
           (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) != 0;
}

sglir_id sglpass_again_maker(const sglpass_again *s, sglir_id value)
{
    const sglir_value *v = sglir_value_at(s->g, value);
    return v->region == s->region ? v->node : SGLIR_NONE;
}

int32_t sglpass_again_level_after(const sglpass_again *s, sglir_id maker)
{
    return s->node[maker].level + sglpass_again_outside(sglpass_again_at(s, maker));
}

static sgl_status push_captures(sglpass_again *s, sglir_id id)
{
    const sglir_region *region = &s->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglpass_again_at(s, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id arg = sglir_arg(s->g, node, i);
            if (sglir_value_at(s->g, arg)->region == s->region) SGLCORE_TRY(sglcore_vec_push(s->env, &s->uses, arg));
        }
        for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(push_captures(s, node->region_first + r));
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        sglir_id result = region->results.data[i];
        if (sglir_value_at(s->g, result)->region == s->region) SGLCORE_TRY(sglcore_vec_push(s->env, &s->uses, result));
    }
    return SGL_OK;
}

sgl_status sglpass_again_uses(sglpass_again *s, sglir_id id)
{
    const sglir_node *node = sglpass_again_at(s, id);
    s->uses.count = 0;
    for (uint32_t i = 0; i < node->arg_count; i++)
        SGLCORE_TRY(sglcore_vec_push(s->env, &s->uses, sglir_arg(s->g, node, i)));
    for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(push_captures(s, node->region_first + r));
    return SGL_OK;
}

/* ---- down: sides, what varies, how far a node reaches ------------------------------------------------------------ */

static bool varies_by_itself(const sglpass_again *s, const sglir_node *node)
{
    if (node->op == SGLIR_OP_INPUT) return sglir_attr_int(s->g, node, "role") == SGL_FEED;
    return (sglir_ops[node->op].flags & SGLIR_EFFECT) || node->region_count > 0;
}

/* What must be kept for the value at least: of a wide one that a kernel works out on the way (a cast of a narrow
 * one, a number of each row spread over the row) what it is worked out from. */
static double least_bytes(const sglpass_again *s, const sglir_node *node, sglir_id value)
{
    const double own = (double)sglir_bytes(sglir_type_of(s->g, value));
    double args = 0;
    if (!is_cheap(node) || node->arg_count == 0) return own;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_id arg = sglir_arg(s->g, node, i);
        if (s->value[arg].varies && sglpass_again_maker(s, arg) != SGLIR_NONE) args += s->value[arg].least;
    }
    return args < own ? args : own;
}

static sgl_status look_down(sglpass_again *s, sglir_id id, int64_t position)
{
    const sglir_node *node = sglpass_again_at(s, id);
    sglpass_again_node *facts = &s->node[id];
    bool varies = varies_by_itself(s, node);
    *facts = (sglpass_again_node){ .live = facts->live, .position = position, .reach = -1 };
    /* A constant that both use stands where the first made it, whoever that was: it is nobody's. */
    const bool by_itself = node->arg_count == 0 && !(sglir_ops[node->op].flags & SGLIR_EFFECT);
    facts->backward = !by_itself && sglir_is_made_by(s->g, node, "autodiff");
    SGLCORE_TRY(sglpass_again_uses(s, id));
    for (int64_t i = 0; i < s->uses.count; i++) {
        sglir_id maker = sglpass_again_maker(s, s->uses.data[i]);
        varies = varies || s->value[s->uses.data[i]].varies;
        if (maker == SGLIR_NONE) continue;
        facts->backward = facts->backward || s->node[maker].backward;
        if (s->node[maker].reach > facts->reach) facts->reach = s->node[maker].reach;
        int32_t level = sglpass_again_level_after(s, maker);
        if (level > facts->level) facts->level = level;
    }
    if (!facts->backward) facts->reach = position;
    for (uint32_t k = 0; k < node->out_count; k++) {
        sglir_id value = node->out_first + k;
        bool view = sglpass_again_shows(node) && sglpass_again_maker(s, sglir_arg(s->g, node, 0)) != SGLIR_NONE;
        s->value[value] = (sglpass_again_value){ .varies = varies, .root = value };
        if (view) s->value[value].root = s->value[sglir_arg(s->g, node, 0)].root;
        s->value[value].least = least_bytes(s, node, value);
    }
    return SGL_OK;
}

/* ---- up: what the backward reads, and who reads it ---------------------------------------------------------------- */

/* The backward works it out itself, from less than it has bytes. */
static bool is_handed_down(const sglpass_again *s, const sglir_node *node)
{
    const sglpass_again_value *value = &s->value[node->out_first];
    return node->out_count == 1 && value->needed && !value->whole && !value->leaves &&
           value->least < (double)sglir_bytes(sglir_type_of(s->g, node->out_first));
}

static sgl_status look_up(sglpass_again *s, sglir_id id)
{
    const sglir_node *node = sglpass_again_at(s, id);
    bool backward = s->node[id].backward, outside = sglpass_again_outside(node);
    const bool handed_down = !backward && is_handed_down(s, node);
    const sglpass_again_value *view = sglpass_again_shows(node) ? &s->value[node->out_first] : NULL;
    SGLCORE_TRY(sglpass_again_uses(s, id));
    for (int64_t i = 0; i < s->uses.count; i++) {
        sglpass_again_value *used = &s->value[s->uses.data[i]];
        if (outside || (view != NULL && view->counted)) used->counted = true;
        if (backward || handed_down || (view != NULL && view->needed)) used->needed = true;
        if (backward && outside) used->whole = true;
        if (view != NULL && view->whole) used->whole = true;
        if (view != NULL && view->leaves) used->leaves = true;
    }
    return SGL_OK;
}

/* ---- down again: what is stored ----------------------------------------------------------------------------------- */

static bool all_there(const sglpass_again *s, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = sglir_arg(s->g, node, i), maker = sglpass_again_maker(s, arg);
        if (maker != SGLIR_NONE && s->value[arg].varies && !s->value[arg].there) return false;
    }
    return true;
}

static void settle_stored(sglpass_again *s, sglir_id id, bool *any)
{
    const sglir_node *node = sglpass_again_at(s, id);
    for (uint32_t k = 0; k < node->out_count; k++) {
        sglpass_again_value *value = &s->value[node->out_first + k];
        if (!value->varies || node->op == SGLIR_OP_INPUT) {
            value->there = true;
            continue;
        }
        bool follows = is_cheap(node) && all_there(s, node);
        bool by_itself = !sglpass_again_shows(node) && (value->whole || !follows);
        value->stored = value->needed && by_itself;
        value->there = value->stored || follows;
        value->counted = value->counted || value->stored || sglpass_again_outside(node);
        *any = *any || value->stored;
    }
}

static void mark_leaving(sglpass_again *s)
{
    const sglir_region *region = &s->g->regions.data[s->region];
    for (int64_t i = 0; i < region->results.count; i++) s->value[region->results.data[i]].leaves = true;
    for (int64_t i = 0; s->region == 0 && i < s->g->outputs.count; i++)
        s->value[s->g->outputs.data[i].value].leaves = true;
}

sgl_status sglpass_again_find(sglpass_again *s, sglir_id id, bool *both)
{
    const sglir_region *region = &s->g->regions.data[id];
    s->region = id;
    s->any = false;
    *both = false;
    for (int64_t i = 0; i < region->parameters.count; i++) {
        sglir_id parameter = region->parameters.data[i];
        s->value[parameter] = (sglpass_again_value){ .varies = true, .there = true, .root = parameter };
    }
    for (int64_t n = 0; n < region->nodes.count; n++)
        if (s->node[region->nodes.data[n]].live) SGLCORE_TRY(look_down(s, region->nodes.data[n], n));
    mark_leaving(s);
    for (int64_t n = region->nodes.count - 1; n >= 0; n--)
        if (s->node[region->nodes.data[n]].live) SGLCORE_TRY(look_up(s, region->nodes.data[n]));
    for (int64_t n = 0; n < region->nodes.count; n++) {
        sglir_id node = region->nodes.data[n];
        if (!s->node[node].live) continue;
        if (!s->node[node].backward) {
            settle_stored(s, node, both);
            continue;
        }
        const sglir_node *of = sglpass_again_at(s, node);
        for (uint32_t k = 0; k < of->out_count; k++)
            s->value[of->out_first + k].counted = s->value[of->out_first + k].counted || sglpass_again_outside(of);
    }
    return SGL_OK;
}
