/* fuse_clone.c -- cheap values computed anew in the kernels that read them, where that moves fewer bytes than to store
 * and load them.
 *
 * In: merged clusters. Out: the same, some with clones of nodes of others, and values that nobody stores any more. Users
 * are looked at before makers, so that what a clone needs is weighed in its turn. Odd invariant: a clone reads only what
 * its home reads or makes, which lies before the reader anyway: no cycle can come of it. */
#include "passes/fuse_parts.h"

enum {
    MOST_READERS = 16,
    LONGEST_CONE = 8, /* nodes cloned for one value */
    MOST_NODES = 160  /* of a cluster with its clones */
};

/* What one reader would look like. */
typedef struct offer {
    uint32_t cluster;
    bool possible;
    double gain;   /* bytes that the reader saves */
    double stored; /* bytes that must be stored for it and are not yet */
    uint32_t cone_count;
    sglir_id cone[LONGEST_CONE]; /* nodes to clone, by number */
} offer;

static const sglir_node *at(const fuse *f, sglir_id node) { return sglir_node_at(f->g, node); }

static double bytes_of(const fuse *f, sglir_id value) { return (double)sglir_bytes(sglir_type_of(f->g, value)); }

/* A value per element that costs little: no sum, no random number, no scalar (these have a kernel of their own). */
static bool is_cheap(const fuse *f, sglir_id node)
{
    return (sglir_ops[at(f, node)->op].flags & SGLIR_ELEMENTWISE) != 0 &&
           sglir_elements(sglir_type_of(f->g, sglpass_fuse_result(f, node))) > 1;
}

static uint32_t home_of(fuse *f, sglir_id node)
{
    return f->node[node].home == SGLIR_NONE ? SGLIR_NONE : sglpass_fuse_find(f, f->node[node].home);
}

/* ---- what it would take --------------------------------------------------------------------------------------- */

static bool in_cone(const offer *o, sglir_id node)
{
    for (uint32_t i = 0; i < o->cone_count; i++) {
        if (o->cone[i] == node) return true;
    }
    return false;
}

static void insert(const fuse *f, offer *o, sglir_id node)
{
    uint32_t i = o->cone_count++;
    for (; i > 0 && f->node[o->cone[i - 1]].number > f->node[node].number; i--) o->cone[i] = o->cone[i - 1];
    o->cone[i] = node;
}

/* The node, and what is under it as far down as nothing is stored; what cannot be cloned will have to be stored. */
static bool gather_cone(fuse *f, offer *o, sglir_id node)
{
    sglir_id waiting[LONGEST_CONE];
    uint32_t waits = 0;
    o->cone_count = 0;
    o->stored = 0;
    insert(f, o, node);
    waiting[waits++] = node;
    while (waits > 0) {
        fuse_range bases = f->node[waiting[--waits]].bases;
        for (uint32_t i = 0; i < bases.count; i++) {
            sglir_id value = f->values.data[bases.first + i], maker = sglpass_fuse_maker(f, value);
            if (maker == SGLIR_NONE || in_cone(o, maker) || sglpass_fuse_holds(f, o->cluster, maker)) continue;
            uint32_t home = home_of(f, maker);
            if (sglpass_fuse_is_stored(f, value, home, home)) continue;
            if (!is_cheap(f, maker)) {
                o->stored += bytes_of(f, value);
                continue;
            }
            if (o->cone_count == LONGEST_CONE) return false;
            insert(f, o, maker);
            waiting[waits++] = maker;
        }
    }
    return true;
}

static bool measure_with(fuse *f, const offer *o)
{
    const fuse_cluster *c = &f->clusters.data[o->cluster];
    return sglpass_fuse_union(f, c->members, c->member_count, o->cone, o->cone_count) &&
           f->members.count <= MOST_NODES &&
           sglpass_fuse_gather_results(f, f->members.data, (uint32_t)f->members.count, o->cluster, o->cluster) &&
           sglpass_fuse_take_measure(f, f->members.data, (uint32_t)f->members.count);
}

static void weigh(fuse *f, offer *o, sglir_id node)
{
    o->possible = gather_cone(f, o, node) && measure_with(f, o);
    o->gain = o->possible ? f->clusters.data[o->cluster].cost - f->measure.cost : 0;
}

/* ---- doing it ------------------------------------------------------------------------------------------------- */

static bool accept(fuse *f, const offer *o)
{
    if (!measure_with(f, o)) return false;
    if (!sglpass_fuse_settle(f, o->cluster, f->members.data, (uint32_t)f->members.count)) return false;
    for (uint32_t i = 0; i < o->cone_count; i++) {
        fuse_node *facts = &f->node[o->cone[i]];
        if (sglpass_fuse_holds(f, o->cluster, o->cone[i])) continue;
        fuse_clone clone = { .node = o->cone[i], .cluster = o->cluster, .next = facts->clones };
        sgl_status status = sglcore_vec_push(f->env, &f->clones, clone);
        if (status != SGL_OK) {
            f->status = status;
            return false;
        }
        facts->clones = (uint32_t)f->clones.count - 1;
    }
    return true;
}

static bool is_used_at_home(fuse *f, sglir_id node, uint32_t home)
{
    fuse_range users = f->value[sglpass_fuse_result(f, node)].users;
    for (uint32_t i = 0; i < users.count; i++) {
        if (sglpass_fuse_holds(f, home, f->users.data[users.first + i])) return true;
    }
    return false;
}

/* Drops from the cluster what is neither stored nor used there any more, last first, and measures what is left. */
static void drop_dead(fuse *f, uint32_t home)
{
    fuse_cluster *c = &f->clusters.data[home];
    for (uint32_t i = c->member_count; i > 0; i--) {
        sglir_id node = c->members[i - 1];
        if (home_of(f, node) != home || sglpass_fuse_is_stored(f, sglpass_fuse_result(f, node), home, home)) continue;
        if (!is_used_at_home(f, node, home)) f->node[node].home = SGLIR_NONE;
    }
    f->members.count = 0;
    for (uint32_t i = 0; i < c->member_count; i++) {
        if (!sglpass_fuse_holds(f, home, c->members[i])) continue;
        sgl_status status = sglcore_vec_push(f->env, &f->members, c->members[i]);
        if (status != SGL_OK) f->status = status;
    }
    uint32_t count = (uint32_t)f->members.count;
    if (f->status != SGL_OK || !sglpass_fuse_gather_results(f, f->members.data, count, home, home)) return;
    if (f->results.count == 0) {
        c->member_count = c->read_count = 0; /* nothing of it is needed */
        c->version++;
        return;
    }
    if (sglpass_fuse_take_measure(f, f->members.data, count)) sglpass_fuse_settle(f, home, f->members.data, count);
}

static void consider(fuse *f, sglir_id node)
{
    sglir_id value = sglpass_fuse_result(f, node);
    uint32_t home = home_of(f, node);
    if (home == SGLIR_NONE || !is_cheap(f, node) || !sglpass_fuse_readers(f, value)) return;
    int64_t count = f->neighbours.count;
    if (count == 0 || count > MOST_READERS) return;
    offer offers[MOST_READERS];
    bool all = true;
    double gain = f->value[value].needed ? 0 : bytes_of(f, value);
    for (int64_t i = 0; i < count; i++) offers[i].cluster = f->neighbours.data[i];
    for (int64_t i = 0; i < count && f->status == SGL_OK; i++) {
        weigh(f, &offers[i], node);
        all = all && offers[i].possible;
        gain += offers[i].gain - offers[i].stored;
    }
    bool changed = false;
    for (int64_t i = 0; i < count && f->status == SGL_OK; i++) {
        bool alone = offers[i].possible && offers[i].stored == 0 && offers[i].gain > 0;
        if ((all && gain > 0) || alone) changed |= accept(f, &offers[i]);
    }
    if (changed && f->status == SGL_OK) drop_dead(f, home);
}

sgl_status sglpass_fuse_clone_cheap(fuse *f)
{
    for (int64_t i = f->order.count - 1; i >= 0 && f->status == SGL_OK && f->domain.status == SGL_OK; i--) {
        if (f->node[f->order.data[i]].role & FUSE_WORK) consider(f, f->order.data[i]);
    }
    return f->status != SGL_OK ? f->status : f->domain.status;
}
