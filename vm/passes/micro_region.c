/* micro_region.c -- forms through the loops and branches of a script, so that each micro-batch runs them for itself.
 *
 * In: a node with regions, the forms of what goes in. Out: forms of its results, its regions' parameters and all that
 * stands within; and, once it is known how values are wanted, the list of what the regions use from around.
 *   loops     a carry begins in the form of its argument. A turn yields it in another: whole becomes split, zeros become
 *             split or partial; then the body is looked at anew, until nothing changes
 *   branches  both regions must yield a result in one form; whole stands in for split, zeros for partial
 * A predicate must be the same in every micro-batch. Within a region nothing can be gathered: where a node there needs
 * whole what is split, the loop or branch takes whole values and stands outside of the micro-batches.
 * Odd invariant: `zero` marks carries that are zeros so far, and what is linear in them; at the end none is left. */
#include "passes/micro.h"

static const sglir_region *region_at(const sglpass_micro *m, sglir_id id) { return &m->from->regions.data[id]; }
static bool is_inside(const sglpass_micro *m, sglir_id value) { return sglir_value_at(m->from, value)->region != 0; }

static bool is_zero(const sglpass_micro *m, sglir_id value)
{
    double number;
    return m->values[value].zero || (sglir_constant_value(m->from, value, &number) && number == 0);
}

/* ---- whole after all ------------------------------------------------------------------------------------------ */

static void make_whole(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    m->nodes[id].looped = false;
    for (uint32_t i = 0; i < node->out_count; i++) sglpass_micro_put(m, node->out_first + i, SGLPASS_MICRO_WHOLE, -1);
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = region_at(m, node->region_first + r);
        for (int64_t i = 0; i < region->parameters.count; i++)
            sglpass_micro_put(m, region->parameters.data[i], SGLPASS_MICRO_WHOLE, -1);
        for (int64_t n = 0; n < region->nodes.count; n++) {
            make_whole(m, region->nodes.data[n]);
            m->nodes[region->nodes.data[n]].use_count = 0;
        }
    }
}

typedef struct listing {
    sglpass_micro *m;
    sgl_status status;
} listing;

static void push_capture(void *user, sglir_id value)
{
    listing *l = user;
    const sglpass_micro_use use = { .value = value, .mode = SGLPASS_USE_WHOLE };
    if (l->status == SGL_OK) l->status = sglcore_vec_push(l->m->env, &l->m->uses, use);
}

/* Takes the arguments, and all that the regions use from around, whole. *good: within a region, that can be had. */
static sgl_status take_whole(sglpass_micro *m, sglir_id id, bool *good)
{
    listing l = { m, SGL_OK };
    const sglir_node *node = sglir_node_at(m->from, id);
    make_whole(m, id);
    SGLCORE_TRY(sglpass_micro_list_args(m, id));
    sglir_each_capture(m->from, node, push_capture, &l);
    m->nodes[id].use_count = (uint32_t)m->uses.count - m->nodes[id].use_first;
    const sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    *good = true;
    for (uint32_t i = 0; i < m->nodes[id].use_count; i++)
        *good = *good && !(is_inside(m, uses[i].value) && m->values[uses[i].value].form != SGLPASS_MICRO_WHOLE);
    return l.status;
}

/* ---- what stands in a region ---------------------------------------------------------------------------------- */

static sgl_status form_control(sglpass_micro *m, sglir_id id, bool *good);

/* Whether the node takes what is made in a region as it is made there. */
static bool takes_as_made(const sglpass_micro *m, sglir_id id)
{
    const sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    for (uint32_t i = 0; i < m->nodes[id].use_count; i++) {
        bool whole = !is_inside(m, uses[i].value) || m->values[uses[i].value].form == SGLPASS_MICRO_WHOLE;
        if (!whole && uses[i].mode != SGLPASS_USE_LOCAL) return false;
    }
    return true;
}

static sgl_status form_region(sglpass_micro *m, sglir_id id, bool *good)
{
    const sglir_region *region = region_at(m, id);
    for (int64_t n = 0; n < region->nodes.count && *good; n++) {
        sglir_id inner = region->nodes.data[n];
        if (sglir_node_at(m->from, inner)->region_count > 0) {
            SGLCORE_TRY(form_control(m, inner, good));
            if (!*good) SGLCORE_TRY(take_whole(m, inner, good));
            continue;
        }
        SGLCORE_TRY(sglpass_micro_find_form(m, inner));
        *good = takes_as_made(m, inner);
    }
    return SGL_OK;
}

/* ---- loops ---------------------------------------------------------------------------------------------------- */

static void start_carries(sglpass_micro *m, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = sglir_arg(m->from, node, i);
        const sglpass_micro_value *from = &m->values[arg];
        bool local = from->form == SGLPASS_MICRO_SPLIT || from->form == SGLPASS_MICRO_PARTIAL;
        sglpass_micro_put(m, node->out_first + i, local ? from->form : SGLPASS_MICRO_WHOLE, local ? from->dim : -1);
        m->values[node->out_first + i].zero = !local && is_zero(m, arg);
    }
}

static void hand_carries(sglpass_micro *m, const sglir_node *node, sglir_id region)
{
    const sglir_region *at = region_at(m, region);
    sglpass_micro_put(m, at->parameters.data[0], SGLPASS_MICRO_WHOLE, -1);
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglpass_micro_value *carry = &m->values[node->out_first + i];
        sglpass_micro_put(m, at->parameters.data[i + 1], carry->form, carry->dim);
        m->values[at->parameters.data[i + 1]].zero = carry->zero;
    }
}

/* Carry i as a turn yields it; true when that is news. *good: the carry can be so. */
static bool meet_yield(sglpass_micro *m, sglir_id result, sglir_id yielded, bool *good)
{
    sglpass_micro_value *carry = &m->values[result];
    const sglpass_micro_value *made = &m->values[yielded];
    bool local = made->form == SGLPASS_MICRO_SPLIT || made->form == SGLPASS_MICRO_PARTIAL;
    if (carry->form == SGLPASS_MICRO_WHOLE && local) {
        *good = *good && (made->form == SGLPASS_MICRO_SPLIT || carry->zero);
        sglpass_micro_put(m, result, made->form, made->dim);
        return true;
    }
    if (carry->form == SGLPASS_MICRO_WHOLE) {
        bool news = carry->zero && !is_zero(m, yielded);
        if (news) carry->zero = false;
        return news;
    }
    if (local)
        *good = *good && made->form == carry->form && made->dim == carry->dim;
    else if (carry->form == SGLPASS_MICRO_PARTIAL)
        *good = *good && is_zero(m, yielded);
    return false;
}

static bool meet_yields(sglpass_micro *m, const sglir_node *node, bool *good)
{
    const sglir_region *body = region_at(m, sglir_body(node));
    bool news = false;
    for (uint32_t i = 0; i < node->out_count; i++)
        news = meet_yield(m, node->out_first + i, body->results.data[i], good) || news;
    for (uint32_t i = 0; i < node->out_count && !news; i++) { /* zeros that nothing makes otherwise are numbers */
        news = m->values[node->out_first + i].zero;
        m->values[node->out_first + i].zero = false;
    }
    return news && *good;
}

static bool is_settled(const sglpass_micro *m, sglir_id predicate)
{
    return !is_inside(m, predicate) || m->values[predicate].form == SGLPASS_MICRO_WHOLE;
}

static sgl_status form_loop(sglpass_micro *m, const sglir_node *node, bool *good)
{
    start_carries(m, node);
    do {
        for (uint32_t r = 0; r < node->region_count && *good; r++) {
            hand_carries(m, node, node->region_first + r);
            SGLCORE_TRY(form_region(m, node->region_first + r, good));
        }
        if (*good && node->op == SGLIR_OP_WHILE)
            *good = is_settled(m, region_at(m, node->region_first)->results.data[0]);
    } while (*good && meet_yields(m, node, good));
    return SGL_OK;
}

/* ---- branches ------------------------------------------------------------------------------------------------- */

/* The form of a result that one region yields so and the other so. */
static void join_yields(sglpass_micro *m, sglir_id result, sglir_id a, sglir_id b, bool *good)
{
    const sglpass_micro_value *one = &m->values[a], *other = &m->values[b];
    bool a_local = one->form == SGLPASS_MICRO_SPLIT || one->form == SGLPASS_MICRO_PARTIAL;
    bool b_local = other->form == SGLPASS_MICRO_SPLIT || other->form == SGLPASS_MICRO_PARTIAL;
    const sglpass_micro_value *local = a_local ? one : other;
    sglpass_micro_put(m, result, SGLPASS_MICRO_WHOLE, -1);
    if (!a_local && !b_local) {
        m->values[result].zero = is_zero(m, a) && is_zero(m, b) && (one->zero || other->zero);
        return;
    }
    sglpass_micro_put(m, result, local->form, local->dim);
    if (a_local && b_local)
        *good = *good && one->form == other->form && one->dim == other->dim;
    else if (local->form == SGLPASS_MICRO_PARTIAL)
        *good = *good && is_zero(m, a_local ? b : a);
}

static sgl_status form_branch(sglpass_micro *m, const sglir_node *node, bool *good)
{
    *good = is_settled(m, sglir_arg(m->from, node, 0));
    for (uint32_t r = 0; r < 2 && *good; r++) SGLCORE_TRY(form_region(m, node->region_first + r, good));
    for (uint32_t i = 0; i < node->out_count && *good; i++)
        join_yields(m, node->out_first + i, region_at(m, node->region_first)->results.data[i],
                    region_at(m, node->region_first + 1)->results.data[i], good);
    return SGL_OK;
}

/* ---- the node ------------------------------------------------------------------------------------------------- */

/* How a value is taken that becomes result i. */
static sglpass_micro_use take_as(const sglpass_micro *m, sglir_id value, sglir_id result)
{
    sglpass_micro_use use = { .value = value, .mode = SGLPASS_USE_WHOLE };
    const sglpass_micro_value *like = &m->values[result];
    if (like->form != SGLPASS_MICRO_PARTIAL)
        sglpass_micro_take_along(m, &use, like->form == SGLPASS_MICRO_SPLIT ? like->dim : -1);
    else
        use.mode = m->values[value].form == SGLPASS_MICRO_PARTIAL ? SGLPASS_USE_LOCAL : SGLPASS_USE_ZEROS;
    return use;
}

sglpass_micro_use sglpass_micro_yield(const sglpass_micro *m, const sglir_node *node, uint32_t r, int64_t i)
{
    sglir_id value = region_at(m, node->region_first + r)->results.data[i];
    if (node->op == SGLIR_OP_WHILE && r == 0) return (sglpass_micro_use){ .value = value, .mode = SGLPASS_USE_WHOLE };
    return take_as(m, value, node->out_first + (sglir_id)i);
}

/* Whether something in the regions has parts. What only hands sums on is done once, over the paid ones. */
static bool has_parts(const sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    const sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    for (uint32_t k = 0; k < node->out_count; k++) {
        if (m->values[node->out_first + k].form == SGLPASS_MICRO_SPLIT) return true;
    }
    for (uint32_t i = 0; i < m->nodes[id].use_count; i++) {
        if (uses[i].mode == SGLPASS_USE_LOCAL && m->values[uses[i].value].form == SGLPASS_MICRO_SPLIT) return true;
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = region_at(m, node->region_first + r);
        for (int64_t n = 0; n < region->nodes.count; n++) {
            if (has_parts(m, region->nodes.data[n])) return true;
        }
    }
    return false;
}

static sgl_status form_control(sglpass_micro *m, sglir_id id, bool *good)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    bool local = false;
    *good = sglir_is_control(node);
    if (*good) SGLCORE_TRY(sglir_is_loop(node) ? form_loop(m, node, good) : form_branch(m, node, good));
    for (uint32_t i = 0; i < node->out_count && *good; i++)
        local = local || m->values[node->out_first + i].form != SGLPASS_MICRO_WHOLE;
    *good = *good && local; /* else nothing of it has parts */
    if (!*good) return SGL_OK;
    SGLCORE_TRY(sglpass_micro_list_args(m, id));
    sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    m->nodes[id].looped = true;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (sglir_is_loop(node))
            uses[i] = take_as(m, uses[i].value, node->out_first + i);
        else
            sglpass_micro_take_along(m, &uses[i], -1);
    }
    return SGL_OK;
}

sgl_status sglpass_micro_form_control(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    bool good;
    SGLCORE_TRY(form_control(m, id, &good));
    if (!good || !has_parts(m, id)) return take_whole(m, id, &good);
    for (uint32_t i = 0; i < node->out_count; i++) {
        if (m->values[node->out_first + i].form == SGLPASS_MICRO_WHOLE)
            m->values[node->out_first + i].form = SGLPASS_MICRO_SAME;
    }
    return SGL_OK;
}

/* ---- what it needs from around --------------------------------------------------------------------------------- */

/* Of what stands in a region, that it is needed, and how; of what stands around, another use of the node whose uses begin
 * at `first`. */
static sgl_status need(sglpass_micro *m, int64_t first, sglpass_micro_use use)
{
    sglpass_micro_value *value = &m->values[use.value];
    if (use.mode == SGLPASS_USE_ZEROS) return SGL_OK;
    if (is_inside(m, use.value)) {
        if (use.mode == SGLPASS_USE_LOCAL && (value->form != SGLPASS_MICRO_WHOLE || value->remade))
            value->local_in = 1;
        else
            value->whole_at = 0;
        return SGL_OK;
    }
    if (use.mode == SGLPASS_USE_WHOLE) sglpass_micro_take_along(m, &use, -1);
    for (int64_t i = first; i < m->uses.count; i++) {
        const sglpass_micro_use *known = &m->uses.data[i];
        if (known->value == use.value && known->mode == use.mode &&
            (known->dim == use.dim || use.mode == SGLPASS_USE_WHOLE))
            return SGL_OK;
    }
    return sglcore_vec_push(m->env, &m->uses, use);
}

static sgl_status need_uses(sglpass_micro *m, int64_t first, sglir_id id)
{
    for (uint32_t i = 0; i < m->nodes[id].use_count; i++)
        SGLCORE_TRY(need(m, first, m->uses.data[m->nodes[id].use_first + i]));
    return SGL_OK;
}

/* A node without regions that is whole: made whole, made along a dimension, or both. */
static sgl_status need_of_whole(sglpass_micro *m, int64_t first, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    sglpass_micro_use modes[16];
    bool whole = false;
    for (uint32_t r = 0; r < node->out_count; r++)
        whole = whole || m->values[node->out_first + r].whole_at != SGLPASS_NO_LEVEL;
    if (whole) SGLCORE_TRY(need_uses(m, first, id));
    const sglpass_micro_value *value = &m->values[node->out_first];
    if (!value->local_in || !sglpass_micro_remake(m, node, value->dim, modes)) return SGL_OK;
    for (uint32_t i = 0; i < node->arg_count; i++) SGLCORE_TRY(need(m, first, modes[i]));
    return SGL_OK;
}

/* Users before makers. */
static sgl_status need_of_regions(sglpass_micro *m, int64_t first, const sglir_node *node)
{
    for (uint32_t r = node->region_count; r-- > 0;) {
        const sglir_region *region = region_at(m, node->region_first + r);
        for (int64_t i = 0; i < region->results.count; i++)
            SGLCORE_TRY(need(m, first, sglpass_micro_yield(m, node, r, i)));
        for (int64_t n = region->nodes.count; n-- > 0;) {
            sglir_id inner = region->nodes.data[n];
            const sglir_node *at = sglir_node_at(m->from, inner);
            if (m->nodes[inner].looped && at->region_count > 0) SGLCORE_TRY(need_of_regions(m, first, at));
            if (m->nodes[inner].looped || at->region_count > 0)
                SGLCORE_TRY(need_uses(m, first, inner));
            else
                SGLCORE_TRY(need_of_whole(m, first, inner));
        }
    }
    return SGL_OK;
}

sgl_status sglpass_micro_list_captures(sglpass_micro *m, sglir_id id)
{
    sglpass_micro_node *at = &m->nodes[id];
    int64_t first = m->uses.count;
    for (uint32_t i = 0; i < at->use_count; i++)
        SGLCORE_TRY(sglcore_vec_push(m->env, &m->uses, m->uses.data[at->use_first + i]));
    SGLCORE_TRY(need_of_regions(m, first + at->use_count, sglir_node_at(m->from, id)));
    at->use_first = (uint32_t)first;
    at->use_count = (uint32_t)(m->uses.count - first);
    return SGL_OK;
}
