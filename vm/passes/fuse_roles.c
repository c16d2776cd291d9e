/* fuse_roles.c -- what each node may be: work of a kernel, free in every kernel, or outside of them; what it needs, and
 * how deep it lies.
 *
 * In: the live nodes. Out: roles; for each node of work its closure (the free nodes under it) and its bases (the values
 * of others); which values must be stored whatever the clusters become. A free node on which no kernel can be built (a
 * reshape that no map follows, a pack beside a matrix) becomes work, or stands outside. Odd invariant: levels count
 * nodes outside of kernels, so two clusters of one level can only be connected through clusters of that level: that
 * keeps the search for cycles short. */
#include "passes/fuse_parts.h"
#include "plan/cost.h"

/* ---- facts ---------------------------------------------------------------------------------------------------- */

static const sglir_node *at(const sglpass_fusion *f, sglir_id node) { return sglir_node_at(f->g, node); }

static sglir_id maker_of(const sglpass_fusion *f, sglir_id value) { return f->g->values.data[value].node; }

static uint8_t role_of_op(const sglir_node *node)
{
    if (sglir_op_is_free((sglir_op)node->op)) return SGLPASS_FUSE_FREE;
    bool random = node->op == SGLIR_OP_RANDOM_UNIFORM || node->op == SGLIR_OP_RANDOM_NORMAL;
    bool works = random || (sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION));
    return works ? SGLPASS_FUSE_WORK : SGLPASS_FUSE_OUTSIDE;
}

/* Bytes that could be moved in the time that one element takes: measured on the CPU (24 GB/s for two cores; a cheap op
 * on a tile 0.1 ns, an exponential 0.4 ns an element). What a GPU makes of it its device says (pass.h). */
static double weight_of(const sglpass_fusion *f, sglir_id node)
{
    const double per_flop = 1.2, per_transcendental = 5;
    if (!(f->node[node].role & SGLPASS_FUSE_WORK)) return 0;
    uint32_t flags = sglir_ops[at(f, node)->op].flags;
    sglplan_cost cost = sglplan_cost_of(f->g, node);
    sglir_id counted = flags & SGLIR_REDUCTION ? sglir_arg(f->g, at(f, node), 0) : at(f, node)->out_first;
    double elements = (double)sglir_elements(sglir_type_of(f->g, counted));
    return elements > 0 ? (per_flop * cost.flops + per_transcendental * cost.transcendentals) / elements : 0;
}

sglir_id sglpass_fuse_stripped(const sglpass_fusion *f, sglir_id value)
{
    const sglir_node *maker = sglir_maker(f->g, value);
    while (maker != NULL && maker->op == SGLIR_OP_RESHAPE &&
           (f->node[maker - f->g->nodes.data].role & SGLPASS_FUSE_FREE)) {
        value = sglir_arg(f->g, maker, 0);
        maker = sglir_maker(f->g, value);
    }
    return value;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static sgl_status number_region(sglpass_fusion *f, sglir_id region)
{
    for (int64_t i = 0; i < f->g->regions.data[region].nodes.count; i++) {
        sglir_id node = f->g->regions.data[region].nodes.data[i];
        if (!f->live[node]) continue;
        for (uint32_t r = 0; r < at(f, node)->region_count; r++)
            SGLCORE_TRY(number_region(f, at(f, node)->region_first + r));
        f->node[node].number = (uint32_t)f->order.count;
        f->node[node].role = role_of_op(at(f, node));
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->order, node));
    }
    return SGL_OK;
}

/* ---- needs ---------------------------------------------------------------------------------------------------- */

/* The value must lie in memory: whatever makes it stands outside, or is work that is stored. */
static void need(sglpass_fusion *f, sglir_id value)
{
    while (maker_of(f, value) != SGLIR_NONE) {
        sglir_id node = maker_of(f, value);
        sglpass_fuse_node *facts = &f->node[node];
        switch (at(f, node)->op) {
        case SGLIR_OP_RESHAPE:
            facts->role |= SGLPASS_FUSE_OUTSIDE;
            value = sglir_arg(f->g, at(f, node), 0);
            continue;
        case SGLIR_OP_CONSTANT: facts->role |= SGLPASS_FUSE_OUTSIDE; return;
        case SGLIR_OP_PACK: facts->role = SGLPASS_FUSE_OUTSIDE; return; /* its arguments are seen to by its turn */
        default:
            if (facts->role & SGLPASS_FUSE_FREE) facts->role |= SGLPASS_FUSE_WORK;
            if (facts->role & SGLPASS_FUSE_WORK) f->value[value].needed = true;
            return;
        }
    }
}

/* The node no longer stands in kernels that need it: it is stored, or a view of what is stored. */
static void unfree(sglpass_fusion *f, sglir_id node)
{
    f->node[node].role &= (uint8_t)~SGLPASS_FUSE_FREE;
    need(f, at(f, node)->out_first);
    if (at(f, node)->op == SGLIR_OP_RESHAPE)
        f->node[node].role = SGLPASS_FUSE_OUTSIDE;
    else if (!(f->node[node].role & SGLPASS_FUSE_OUTSIDE))
        f->node[node].role |= SGLPASS_FUSE_WORK;
    if (at(f, node)->op != SGLIR_OP_PACK) return;
    for (uint32_t a = 0; a < at(f, node)->arg_count; a++) need(f, sglir_arg(f->g, at(f, node), a));
}

enum { LONGEST_CHAIN = 32 };

/* A long chain of movement is cut, so that closures stay short. */
static sgl_status cut_chains(sglpass_fusion *f)
{
    size_t bytes = (size_t)f->g->nodes.count;
    uint8_t *lengths = sglcore_alloc_zero(f->env, bytes);
    if (lengths == NULL && bytes > 0) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < f->order.count; i++) {
        sglir_id node = f->order.data[i];
        if (!(f->node[node].role & SGLPASS_FUSE_FREE)) continue;
        for (uint32_t a = 0; a < at(f, node)->arg_count; a++) {
            sglir_id maker = maker_of(f, sglir_arg(f->g, at(f, node), a));
            if (maker != SGLIR_NONE && lengths[maker] >= lengths[node]) lengths[node] = (uint8_t)(lengths[maker] + 1);
        }
        if (lengths[node] < LONGEST_CHAIN) continue;
        unfree(f, node);
        lengths[node] = 0;
    }
    sglcore_free(f->env, lengths, bytes);
    return SGL_OK;
}

/* Packs that some kernel cannot read in pieces stand outside. */
static void settle_packs(sglpass_fusion *f)
{
    for (int64_t i = 0; i < f->order.count; i++) {
        const sglir_node *user = at(f, f->order.data[i]);
        bool reads = (sglir_ops[user->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION)) != 0;
        for (uint32_t a = 0; a < user->arg_count; a++) {
            const sglir_node *maker = sglir_maker(f->g, sglir_arg(f->g, user, a));
            if (maker == NULL || maker->op != SGLIR_OP_PACK) continue;
            bool alone = sglir_elements(sglir_type_of(f->g, maker->out_first)) == 1;
            if (!reads || alone || maker->region != user->region) need(f, maker->out_first);
        }
    }
}

static void settle_needs(sglpass_fusion *f)
{
    const sglir_graph *g = f->g;
    for (int64_t i = 0; i < g->outputs.count; i++) need(f, g->outputs.data[i].value);
    for (int64_t i = f->order.count - 1; i >= 0; i--) { /* users first: a pack may have turned out to stand outside */
        sglir_id node = f->order.data[i];
        bool outside = (f->node[node].role & SGLPASS_FUSE_OUTSIDE) && !(f->node[node].role & SGLPASS_FUSE_FREE);
        for (uint32_t a = 0; a < at(f, node)->arg_count; a++) {
            sglir_id arg = sglir_arg(g, at(f, node), a);
            if (at(f, node)->op == SGLIR_OP_PACK && !outside) arg = sglpass_fuse_stripped(f, arg);
            if (outside || at(f, node)->op == SGLIR_OP_PACK) need(f, arg);
            if (!outside && at(f, node)->op == SGLIR_OP_PACK) f->value[arg].packed = true;
        }
        for (uint32_t r = 0; r < at(f, node)->region_count; r++) {
            const sglir_region *region = &g->regions.data[at(f, node)->region_first + r];
            for (int64_t k = 0; k < region->results.count; k++) need(f, region->results.data[k]);
        }
    }
}

/* ---- closures and bases --------------------------------------------------------------------------------------- */

static void push_id(sglpass_fusion *f, sglpass_fuse_ids *ids, sglir_id id)
{
    sgl_status status = sglcore_vec_push(f->env, ids, id);
    if (status != SGL_OK) f->status = status;
}

/* The free nodes under a node in order, makers first, and the values below them. */
static void collect_under(sglpass_fusion *f, sglir_id node, uint32_t stamp)
{
    for (uint32_t a = 0; a < at(f, node)->arg_count; a++) {
        sglir_id arg = sglir_arg(f->g, at(f, node), a), maker = maker_of(f, arg);
        if (maker != SGLIR_NONE && (f->node[maker].role & SGLPASS_FUSE_FREE)) {
            if (f->node_stamp[maker] == stamp) continue;
            f->node_stamp[maker] = stamp;
            collect_under(f, maker, stamp);
            push_id(f, &f->nodes, maker);
        } else if (f->value_stamp[arg] != stamp) {
            f->value_stamp[arg] = stamp;
            push_id(f, &f->values, arg);
        }
    }
}

static void collect(sglpass_fusion *f, sglir_id node)
{
    sglpass_fuse_node *facts = &f->node[node];
    uint32_t stamp = sglpass_fuse_stamp(f);
    facts->closure.first = (uint32_t)f->nodes.count;
    facts->bases.first = (uint32_t)f->values.count;
    if (facts->role & SGLPASS_FUSE_WORK) {
        collect_under(f, node, stamp);
    } else if (facts->role & SGLPASS_FUSE_OUTSIDE) {
        for (uint32_t a = 0; a < at(f, node)->arg_count; a++) push_id(f, &f->values, sglir_arg(f->g, at(f, node), a));
    }
    facts->closure.count = (uint32_t)f->nodes.count - facts->closure.first;
    facts->bases.count = (uint32_t)f->values.count - facts->bases.first;
}

/* Each node of work must be a kernel by itself; what stands in its way is taken out. True: something was. */
static bool repair(sglpass_fusion *f, sglir_id node, sgl_status *status)
{
    sglir_domain *d = &f->domain;
    sglpass_fuse_range closure = f->node[node].closure;
    for (uint32_t i = 0; i < closure.count; i++) {
        if (!(f->node[f->nodes.data[closure.first + i]].role & SGLPASS_FUSE_FREE))
            return true; /* taken out for another one */
    }
    f->results.count = 0;
    push_id(f, &f->results, at(f, node)->out_first);
    if (f->status != SGL_OK || sglpass_fuse_analyse(f, &node, 1) || d->status != SGL_OK) return false;
    if (d->culprit != SGLIR_NONE && d->culprit != node) {
        unfree(f, d->culprit);
        return true;
    }
    bool changed = false;
    for (uint32_t a = 0; a < at(f, node)->arg_count; a++) {
        sglir_id maker = maker_of(f, sglir_arg(f->g, at(f, node), a));
        if (maker == SGLIR_NONE || !(f->node[maker].role & SGLPASS_FUSE_FREE) || at(f, maker)->op == SGLIR_OP_CONSTANT)
            continue;
        unfree(f, maker);
        changed = true;
    }
    char place[256];
    sglir_origin_text(f->g, at(f, node)->origin, place, sizeof place);
    if (!changed)
        *status = sglcore_fail(f->env, SGL_INTERNAL, "%s%s%s: cannot stand in a kernel: %s", place,
                               place[0] != '\0' ? ": " : "", sglir_ops[at(f, node)->op].name, d->reason);
    return changed;
}

static sgl_status settle_closures(sglpass_fusion *f)
{
    bool changed = true;
    while (changed) {
        changed = false;
        f->nodes.count = f->values.count = 0;
        for (int64_t i = 0; i < f->order.count; i++) collect(f, f->order.data[i]);
        sgl_status status = SGL_OK;
        for (int64_t i = 0; i < f->order.count && f->status == SGL_OK; i++) {
            sglir_id node = f->order.data[i];
            if (f->node[node].role & SGLPASS_FUSE_WORK) changed |= repair(f, node, &status);
            SGLCORE_TRY(status);
        }
        SGLCORE_TRY(f->status);
        SGLCORE_TRY(f->domain.status);
    }
    return SGL_OK;
}

/* ---- across regions ------------------------------------------------------------------------------------------- */

/* A node uses a value of a region around its own: every node that holds it on the way captures the value. */
static void capture(sglpass_fusion *f, sglir_id node, sglir_id value)
{
    const sglir_graph *g = f->g;
    sglir_id home = g->values.data[value].region;
    need(f, value);
    for (sglir_id region = at(f, node)->region; region != home;) {
        sglir_id holder = g->regions.data[region].node;
        push_id(f, &f->captures, holder); /* pairs */
        push_id(f, &f->captures, value);
        region = at(f, holder)->region;
    }
}

static void capture_bases(sglpass_fusion *f, sglir_id node)
{
    sglpass_fuse_range bases = f->node[node].bases;
    for (uint32_t i = 0; i < bases.count; i++) {
        sglir_id value = f->values.data[bases.first + i];
        if (f->g->values.data[value].region != at(f, node)->region) capture(f, node, value);
    }
}

/* Sorts the pairs by holder into ranges of values. */
static sgl_status settle_captures(sglpass_fusion *f)
{
    for (int64_t i = 0; i < f->order.count; i++) {
        sglir_id node = f->order.data[i];
        capture_bases(f, node);
        for (uint32_t r = 0; r < at(f, node)->region_count; r++) {
            sglir_id id = at(f, node)->region_first + r;
            const sglir_region *region = &f->g->regions.data[id];
            for (int64_t k = 0; k < region->results.count; k++) {
                sglir_id value = region->results.data[k];
                if (f->g->values.data[value].region == id) continue;
                push_id(f, &f->captures, node);
                push_id(f, &f->captures, value);
                capture(f, node, value); /* those around it do too */
            }
        }
    }
    SGLCORE_TRY(f->status);
    int64_t pairs = f->captures.count / 2;
    for (int64_t i = 0; i < pairs; i++) f->node[f->captures.data[2 * i]].captures.count++;
    uint32_t first = 0;
    for (int64_t i = 0; i < f->order.count; i++) {
        sglpass_fuse_node *facts = &f->node[f->order.data[i]];
        facts->captures.first = first;
        first += facts->captures.count;
        facts->captures.count = 0;
    }
    sglpass_fuse_ids sorted = { 0 };
    SGLCORE_TRY(sglcore_vec_reserve(f->env, &sorted, pairs));
    sorted.count = pairs;
    for (int64_t i = 0; i < pairs; i++) {
        sglpass_fuse_range *range = &f->node[f->captures.data[2 * i]].captures;
        sorted.data[range->first + range->count++] = f->captures.data[2 * i + 1];
    }
    sglcore_vec_free(f->env, &f->captures);
    f->captures = sorted;
    return SGL_OK;
}

/* ---- levels and users ----------------------------------------------------------------------------------------- */

static bool is_barrier(const sglpass_fusion *f, sglir_id node)
{
    return f->node[node].role == SGLPASS_FUSE_OUTSIDE && at(f, node)->op != SGLIR_OP_INPUT;
}

/* The level at which the value is there, for users in the region. */
static int32_t level_after(const sglpass_fusion *f, sglir_id value, sglir_id region)
{
    value = sglpass_fuse_stripped(f, value);
    sglir_id maker = maker_of(f, value);
    if (maker == SGLIR_NONE || f->g->values.data[value].region != region) return 0;
    return f->node[maker].level + is_barrier(f, maker);
}

static void raise_level(sglpass_fusion *f, sglir_id node, const sglir_id *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int32_t level = level_after(f, values[i], at(f, node)->region);
        if (level > f->node[node].level) f->node[node].level = level;
    }
}

static void note_outside_user(sglpass_fusion *f, sglir_id node, const sglir_id *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sglir_id value = sglpass_fuse_stripped(f, values[i]);
        if (f->g->values.data[value].region != at(f, node)->region) continue;
        if (f->node[node].level < f->value[value].user_level) f->value[value].user_level = f->node[node].level;
    }
}

/* NULL for an empty list: the array behind it may be none at all. */
static const sglir_id *list_at(const sglpass_fuse_ids *ids, sglpass_fuse_range range)
{
    return range.count > 0 ? &ids->data[range.first] : NULL;
}

/* An exchange counts as needing the one before it: no kernel then holds what the first needs and what needs the second. */
static void follow_exchange(sglpass_fusion *f, sglir_id node, sglir_id *last)
{
    sglpass_fuse_node *facts = &f->node[node];
    if (!sglir_exchanges(f->g, at(f, node))) return;
    facts->exchange_before = *last;
    *last = node;
    if (facts->exchange_before == SGLIR_NONE) return;
    int32_t level = f->node[facts->exchange_before].level + 1;
    if (level > facts->level) facts->level = level;
}

static sgl_status settle_levels(sglpass_fusion *f)
{
    sglir_id *last = sglcore_arena_alloc(&f->arena, (size_t)f->g->regions.count * sizeof *last);
    if (last == NULL) return SGL_OUT_OF_MEMORY;
    for (int64_t r = 0; r < f->g->regions.count; r++) last[r] = SGLIR_NONE;
    for (int64_t v = 0; v < f->g->values.count; v++) f->value[v].user_level = INT32_MAX;
    for (int64_t i = 0; i < f->order.count; i++) {
        sglir_id node = f->order.data[i];
        sglpass_fuse_node *facts = &f->node[node];
        if (!(facts->role & (SGLPASS_FUSE_WORK | SGLPASS_FUSE_OUTSIDE))) continue;
        const sglir_id *bases = list_at(&f->values, facts->bases), *captures = list_at(&f->captures, facts->captures);
        raise_level(f, node, bases, facts->bases.count);
        raise_level(f, node, captures, facts->captures.count);
        if (!is_barrier(f, node)) continue;
        follow_exchange(f, node, &last[at(f, node)->region]);
        note_outside_user(f, node, bases, facts->bases.count);
        note_outside_user(f, node, captures, facts->captures.count);
    }
    return SGL_OK;
}

static sgl_status settle_users(sglpass_fusion *f)
{
    uint32_t total = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t i = 0; i < f->order.count; i++) {
            sglir_id node = f->order.data[i];
            sglpass_fuse_range bases = f->node[node].bases;
            for (uint32_t k = 0; (f->node[node].role & SGLPASS_FUSE_WORK) && k < bases.count; k++) {
                sglpass_fuse_range *users = &f->value[f->values.data[bases.first + k]].users;
                if (turn == 1) f->users.data[users->first + users->count] = node;
                users->count++;
            }
        }
        for (int64_t v = 0; v < f->g->values.count && turn == 0; v++) {
            f->value[v].users.first = total;
            total += f->value[v].users.count;
            f->value[v].users.count = 0;
        }
        if (turn == 0) SGLCORE_TRY(sglcore_vec_reserve(f->env, &f->users, total));
    }
    f->users.count = total;
    return SGL_OK;
}

sgl_status sglpass_fuse_assign_roles(sglpass_fusion *f)
{
    SGLCORE_TRY(number_region(f, 0));
    SGLCORE_TRY(cut_chains(f));
    settle_packs(f);
    settle_needs(f);
    SGLCORE_TRY(settle_closures(f));
    SGLCORE_TRY(settle_captures(f));
    for (int64_t i = 0; i < f->order.count; i++) f->node[f->order.data[i]].weight = weight_of(f, f->order.data[i]);
    SGLCORE_TRY(settle_levels(f));
    return settle_users(f);
}
