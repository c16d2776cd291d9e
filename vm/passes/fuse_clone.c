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
    double gain; /* bytes that the reader saves */
    uint32_t cone_count, stored_count;
    sglir_id cone[LONGEST_CONE];   /* nodes to clone, by number */
    sglir_id stored[LONGEST_CONE]; /* values that must be stored for it and are not yet */
} offer;

static const sglir_node *at(const sglpass_fusion *f, sglir_id node) { return sglir_node_at(f->g, node); }

/* A value per element that costs little: no sum, no random number, no scalar (these have a kernel of their own); and not
 * what pays into a carry of micro-batches, which is done at once (see fuse_merge.c). */
static bool is_cheap(const sglpass_fusion *f, sglir_id node)
{
    return at(f, node)->op != SGLIR_OP_ACCUMULATE && (sglir_ops[at(f, node)->op].flags & SGLIR_ELEMENTWISE) != 0 &&
           sglir_elements(sglir_type_of(f->g, sglpass_fuse_result(f, node))) > 1;
}

static bool push(sglpass_fusion *f, sglpass_fuse_ids *ids, sglir_id id)
{
    sgl_status status = sglcore_vec_push(f->env, ids, id);
    if (status != SGL_OK) f->status = status;
    return status == SGL_OK;
}

static uint32_t home_of(sglpass_fusion *f, sglir_id node)
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

static void insert(const sglpass_fusion *f, offer *o, sglir_id node)
{
    uint32_t i = o->cone_count++;
    for (; i > 0 && f->node[o->cone[i - 1]].number > f->node[node].number; i--) o->cone[i] = o->cone[i - 1];
    o->cone[i] = node;
}

/* The node, and what is under it as far down as nothing is stored; what cannot be cloned will have to be stored. */
static bool gather_cone(sglpass_fusion *f, offer *o, sglir_id node)
{
    sglir_id waiting[LONGEST_CONE];
    uint32_t waits = 0;
    o->cone_count = o->stored_count = 0;
    insert(f, o, node);
    waiting[waits++] = node;
    while (waits > 0) {
        sglpass_fuse_range bases = f->node[waiting[--waits]].bases;
        for (uint32_t i = 0; i < bases.count; i++) {
            sglir_id value = f->values.data[bases.first + i], maker = sglpass_fuse_maker(f, value);
            if (maker == SGLIR_NONE || in_cone(o, maker) || sglpass_fuse_holds(f, o->cluster, maker)) continue;
            uint32_t home = home_of(f, maker);
            if (sglpass_fuse_is_stored(f, value, home, home)) continue;
            if (o->cone_count == LONGEST_CONE || o->stored_count == LONGEST_CONE) return false;
            if (is_cheap(f, maker)) {
                insert(f, o, maker);
                waiting[waits++] = maker;
            } else {
                o->stored[o->stored_count++] = value;
            }
        }
    }
    return true;
}

static bool measure_with(sglpass_fusion *f, const offer *o)
{
    const sglpass_fuse_cluster *c = &f->clusters.data[o->cluster];
    return sglpass_fuse_union(f, c->members, c->member_count, o->cone, o->cone_count) &&
           f->members.count <= MOST_NODES &&
           sglpass_fuse_gather_results(f, f->members.data, (uint32_t)f->members.count, o->cluster, o->cluster) &&
           sglpass_fuse_take_measure(f, f->members.data, (uint32_t)f->members.count);
}

static void weigh(sglpass_fusion *f, offer *o, sglir_id node)
{
    o->possible = gather_cone(f, o, node) && measure_with(f, o);
    o->gain = o->possible ? f->clusters.data[o->cluster].cost - f->measure.cost : 0;
}

/* ---- doing it ------------------------------------------------------------------------------------------------- */

static bool accept(sglpass_fusion *f, const offer *o)
{
    if (!measure_with(f, o)) return false;
    if (!sglpass_fuse_settle(f, o->cluster, f->members.data, (uint32_t)f->members.count)) return false;
    for (uint32_t i = 0; i < o->cone_count; i++) {
        sglpass_fuse_node *facts = &f->node[o->cone[i]];
        if (sglpass_fuse_holds(f, o->cluster, o->cone[i])) continue;
        sglpass_fuse_clone clone = { .node = o->cone[i], .cluster = o->cluster, .next = facts->clones };
        sgl_status status = sglcore_vec_push(f->env, &f->clones, clone);
        if (status != SGL_OK) {
            f->status = status;
            return false;
        }
        facts->clones = (uint32_t)f->clones.count - 1;
    }
    return true;
}

/* What is left of the home when its value `dropped` (SGLIR_NONE: none) is not stored any more, and what the offers need
 * is: results into f->results, members into f->kept, the measure into f->measure. */
static bool measure_home(sglpass_fusion *f, uint32_t home, sglir_id dropped, const offer *offers, int64_t count)
{
    const sglpass_fuse_cluster *c = &f->clusters.data[home];
    if (!sglpass_fuse_gather_results(f, c->members, c->member_count, home, home)) return false;
    uint32_t stamp = sglpass_fuse_stamp(f);
    int64_t left = 0;
    for (int64_t i = 0; i < f->results.count; i++) {
        if (f->results.data[i] == dropped) continue;
        f->value_stamp[f->results.data[i]] = stamp;
        f->results.data[left++] = f->results.data[i];
    }
    f->results.count = left;
    for (int64_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < offers[i].stored_count; k++) {
            sglir_id value = offers[i].stored[k];
            if (f->value_stamp[value] == stamp) continue;
            f->value_stamp[value] = stamp;
            if (!push(f, &f->results, value)) return false;
        }
    }
    f->kept.count = 0;
    for (uint32_t i = c->member_count; i > 0; i--) { /* users first; a mark on a value: it is stored or used */
        sglir_id node = c->members[i - 1];
        if (f->value_stamp[sglpass_fuse_result(f, node)] != stamp) continue;
        if (!push(f, &f->kept, node)) return false;
        sglpass_fuse_range bases = f->node[node].bases;
        for (uint32_t k = 0; k < bases.count; k++) f->value_stamp[f->values.data[bases.first + k]] = stamp;
    }
    for (int64_t i = 0, k = f->kept.count - 1; i < k; i++, k--) {
        sglir_id kept = f->kept.data[i];
        f->kept.data[i] = f->kept.data[k];
        f->kept.data[k] = kept;
    }
    if (f->kept.count > 0) return sglpass_fuse_take_measure(f, f->kept.data, (uint32_t)f->kept.count);
    f->measure.cost = 0;
    f->measure.reads.count = 0;
    return true;
}

static void forget(sglpass_fusion *f, uint32_t cluster, sglir_id node)
{
    sglpass_fuse_node *facts = &f->node[node];
    if (home_of(f, node) == cluster) facts->home = SGLIR_NONE;
    for (uint32_t *link = &facts->clones; *link != SGLIR_NONE;) {
        sglpass_fuse_clone *clone = &f->clones.data[*link];
        if (sglpass_fuse_find(f, clone->cluster) == cluster)
            *link = clone->next;
        else
            link = &clone->next;
    }
}

/* The home becomes what measure_home has found. */
static bool settle_home(sglpass_fusion *f, uint32_t home)
{
    const sglpass_fuse_cluster *c = &f->clusters.data[home];
    int64_t next = 0;
    for (uint32_t i = 0; i < c->member_count; i++) {
        if (next < f->kept.count && f->kept.data[next] == c->members[i])
            next++;
        else
            forget(f, home, c->members[i]);
    }
    return sglpass_fuse_settle(f, home, f->kept.data, (uint32_t)f->kept.count);
}

/* All readers compute the value anew, so that it need not be stored for them: where that is less in sum. */
static bool accept_all(sglpass_fusion *f, sglir_id value, uint32_t home, const offer *offers, int64_t count)
{
    sglir_id dropped = f->value[value].needed ? SGLIR_NONE : value;
    double gain = f->clusters.data[home].cost;
    for (int64_t i = 0; i < count; i++) {
        if (!offers[i].possible) return false;
        gain += offers[i].gain;
    }
    if (!measure_home(f, home, dropped, offers, count) || gain - f->measure.cost <= 0) return false;
    if (!settle_home(f, home)) return false;
    for (int64_t i = 0; i < count; i++) {
        if (!accept(f, &offers[i])) return false;
    }
    return true;
}

static void consider(sglpass_fusion *f, sglir_id node)
{
    sglir_id value = sglpass_fuse_result(f, node);
    uint32_t home = home_of(f, node);
    if (home == SGLIR_NONE || !is_cheap(f, node) || !sglpass_fuse_readers(f, value)) return;
    int64_t count = f->neighbours.count;
    if (count == 0 || count > MOST_READERS) return;
    offer offers[MOST_READERS];
    for (int64_t i = 0; i < count; i++) offers[i].cluster = f->neighbours.data[i];
    for (int64_t i = 0; i < count && f->status == SGL_OK; i++) weigh(f, &offers[i], node);
    if (f->status != SGL_OK || accept_all(f, value, home, offers, count)) return;
    bool stays = f->value[value].needed; /* else the home would have to do without, which was found no good */
    int64_t good = 0;
    for (int64_t i = 0; i < count; i++) {
        if (offers[i].possible && offers[i].stored_count == 0 && offers[i].gain > 0)
            offers[good++] = offers[i];
        else
            stays = true;
    }
    for (int64_t i = 0; i < good && stays && f->status == SGL_OK; i++) accept(f, &offers[i]);
}

sgl_status sglpass_fuse_clone_cheap(sglpass_fusion *f)
{
    for (int64_t i = f->order.count - 1; i >= 0 && f->status == SGL_OK && f->domain.status == SGL_OK; i--) {
        if (f->node[f->order.data[i]].role & SGLPASS_FUSE_WORK) consider(f, f->order.data[i]);
    }
    return f->status != SGL_OK ? f->status : f->domain.status;
}
