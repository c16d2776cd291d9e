/* fuse_cluster.c -- clusters: nodes of work that become one kernel; who reads what of whom, and what a cluster costs.
 *
 * In: roles and users. Out: one cluster per node of work at first, then whatever fuse_merge.c and fuse_clone.c make of
 * them. The cost is bytes moved, with computation and a launch expressed in bytes. Odd invariant: a value is stored when
 * it is needed outside of kernels or when a cluster reads it that does not compute it itself. */
#include <string.h>

#include "passes/fuse_parts.h"

/* In bytes moved. A launch costs a few microseconds of a pool of threads or of a GPU's queue. */
static const double launch_bytes = 24 * 1024;
/* Neighbouring elements that do not lie beside each other in memory come slower. */
static const double scattered_factor = 2;

enum {
    MOST_RESIDENT = 16384, /* elements of a single row that may be reduced and used in one kernel */
    MOST_READS = 64,
    MOST_RESULTS = 24
};

static const sglir_node *at(const sglpass_fusion *f, sglir_id node) { return sglir_node_at(f->g, node); }

uint32_t sglpass_fuse_stamp(sglpass_fusion *f)
{
    if (++f->stamp == 0) { /* after 2^32 rounds */
        memset(f->node_stamp, 0, (size_t)f->g->nodes.count * sizeof *f->node_stamp);
        memset(f->value_stamp, 0, (size_t)f->g->values.count * sizeof *f->value_stamp);
        memset(f->cluster_stamp, 0, (size_t)f->clusters.count * sizeof *f->cluster_stamp);
        f->stamp = 1;
    }
    return f->stamp;
}

uint32_t sglpass_fuse_find(sglpass_fusion *f, uint32_t cluster)
{
    sglpass_fuse_cluster *clusters = f->clusters.data;
    while (clusters[cluster].parent != cluster) {
        clusters[cluster].parent = clusters[clusters[cluster].parent].parent;
        cluster = clusters[cluster].parent;
    }
    return cluster;
}

static bool push_id(sglpass_fusion *f, sglpass_fuse_ids *ids, sglir_id id)
{
    sgl_status status = sglcore_vec_push(f->env, ids, id);
    if (status != SGL_OK) f->status = status;
    return status == SGL_OK;
}

/* ---- who needs what ------------------------------------------------------------------------------------------- */

sglir_id sglpass_fuse_maker(const sglpass_fusion *f, sglir_id value)
{
    sglir_id node = f->g->values.data[value].node;
    return node != SGLIR_NONE && (f->node[node].role & SGLPASS_FUSE_WORK) ? node : SGLIR_NONE;
}

bool sglpass_fuse_holds(sglpass_fusion *f, uint32_t cluster, sglir_id node)
{
    const sglpass_fuse_node *facts = &f->node[node];
    if (facts->home != SGLIR_NONE && sglpass_fuse_find(f, facts->home) == cluster) return true;
    for (uint32_t c = facts->clones; c != SGLIR_NONE; c = f->clones.data[c].next) {
        if (sglpass_fuse_find(f, f->clones.data[c].cluster) == cluster) return true;
    }
    return false;
}

static bool note_reader(sglpass_fusion *f, uint32_t cluster, sglir_id maker, uint32_t stamp)
{
    cluster = sglpass_fuse_find(f, cluster);
    if (f->cluster_stamp[cluster] == stamp) return true;
    f->cluster_stamp[cluster] = stamp;
    if (maker != SGLIR_NONE && sglpass_fuse_holds(f, cluster, maker)) return true;
    return push_id(f, &f->neighbours, cluster);
}

bool sglpass_fuse_readers(sglpass_fusion *f, sglir_id value)
{
    sglir_id maker = sglpass_fuse_maker(f, value);
    sglpass_fuse_range users = f->value[value].users;
    uint32_t stamp = sglpass_fuse_stamp(f);
    f->neighbours.count = 0;
    for (uint32_t i = 0; i < users.count; i++) {
        const sglpass_fuse_node *user = &f->node[f->users.data[users.first + i]];
        if (user->home != SGLIR_NONE && !note_reader(f, user->home, maker, stamp)) return false;
        for (uint32_t c = user->clones; c != SGLIR_NONE; c = f->clones.data[c].next) {
            if (!note_reader(f, f->clones.data[c].cluster, maker, stamp)) return false;
        }
    }
    return true;
}

static bool reads_from_memory(sglpass_fusion *f, uint32_t cluster, sglir_id maker, uint32_t a, uint32_t b)
{
    cluster = sglpass_fuse_find(f, cluster);
    return cluster != a && cluster != b && !sglpass_fuse_holds(f, cluster, maker);
}

bool sglpass_fuse_is_stored(sglpass_fusion *f, sglir_id value, uint32_t a, uint32_t b)
{
    if (f->value[value].needed) return true;
    sglir_id maker = sglpass_fuse_maker(f, value);
    sglpass_fuse_range users = f->value[value].users;
    for (uint32_t i = 0; i < users.count; i++) {
        const sglpass_fuse_node *user = &f->node[f->users.data[users.first + i]];
        if (user->home != SGLIR_NONE && reads_from_memory(f, user->home, maker, a, b)) return true;
        for (uint32_t c = user->clones; c != SGLIR_NONE; c = f->clones.data[c].next) {
            if (reads_from_memory(f, f->clones.data[c].cluster, maker, a, b)) return true;
        }
    }
    return false;
}

bool sglpass_fuse_gather_results(sglpass_fusion *f, const sglir_id *members, uint32_t count, uint32_t a, uint32_t b)
{
    f->results.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t home = f->node[members[i]].home;
        if (home == SGLIR_NONE) continue;
        home = sglpass_fuse_find(f, home);
        if (home != a && home != b) continue;
        if (!sglpass_fuse_is_stored(f, sglpass_fuse_result(f, members[i]), a, b)) continue;
        if (!push_id(f, &f->results, sglpass_fuse_result(f, members[i]))) return false;
    }
    return true;
}

/* ---- what it costs -------------------------------------------------------------------------------------------- */

/* What is only read, and stored as it is, but used in another order: once both are views of their own in a region, nobody
 * could see that they run together. */
static bool stores_turned_view(const sglpass_fusion *f)
{
    for (int64_t i = 0; i < f->results.count; i++) {
        const sglir_domain_value *value = sglir_domain_find(&f->domain, f->results.data[i]);
        int64_t order[SGL_MAX_RANK];
        if (value->source == SGLIR_COMPUTED || !value->used) continue;
        sglpass_fuse_turn(f, value, order);
        for (int k = 0; k < sglir_type_of(f->g, value->value)->rank; k++) {
            if (order[k] != k) return true;
        }
    }
    return false;
}

bool sglpass_fuse_analyse(sglpass_fusion *f, const sglir_id *members, uint32_t count)
{
    sglir_domain *d = &f->domain;
    uint32_t stamp = sglpass_fuse_stamp(f);
    sglir_domain_begin(d);
    for (uint32_t i = 0; i < count; i++) {
        sglpass_fuse_range closure = f->node[members[i]].closure;
        for (uint32_t k = 0; k <= closure.count; k++) {
            sglir_id node = k < closure.count ? f->nodes.data[closure.first + k] : members[i];
            if (f->node_stamp[node] == stamp) continue;
            f->node_stamp[node] = stamp;
            if (!sglir_domain_add(d, node)) return false;
        }
    }
    sglir_domain_rule rule = { .cols = -1, .resident = MOST_RESIDENT };
    if (!sglir_domain_finish(d, f->results.data, f->results.count, &rule)) return false;
    if (d->axes > SGL_MAX_RANK) return false;
    for (int64_t i = 0; i < d->values.count; i++) {
        int64_t order[SGL_MAX_RANK];
        const sglir_domain_value *value = &d->values.data[i];
        if ((value->used || value->computes) && !sglpass_fuse_turn(f, value, order)) return false;
    }
    return !stores_turned_view(f);
}

bool sglpass_fuse_turn(const sglpass_fusion *f, const sglir_domain_value *value, int64_t order[SGL_MAX_RANK])
{
    int rank = sglir_type_of(f->g, value->value)->rank, keys[SGL_MAX_RANK] = { 0 }, last[SGL_MAX_RANK] = { 0 };
    int all[SGLIR_DOMAIN_AXES], all_count = sglir_domain_order(&f->domain, value, -1, all), rising = 1;
    while (rising < all_count && all[rising] > all[rising - 1]) rising++;
    if (rising >= all_count) { /* the common case */
        for (int dim = 0; dim < rank; dim++) order[dim] = dim;
        return true;
    }
    for (int dim = 0; dim < rank; dim++) {
        int axes[SGLIR_DOMAIN_AXES], count = sglir_domain_order(&f->domain, value, dim, axes);
        for (int i = 1; i < count; i++) {
            if (axes[i] < axes[i - 1]) return false;
        }
        keys[dim] = count > 0 ? axes[0] : dim > 0 ? last[dim - 1] : -1;
        last[dim] = count > 0 ? axes[count - 1] : keys[dim];
        order[dim] = dim;
    }
    for (int i = 1; i < rank; i++) { /* a stable sort by first axis */
        for (int k = i; k > 0 && keys[order[k]] < keys[order[k - 1]]; k--) {
            int64_t kept = order[k];
            order[k] = order[k - 1];
            order[k - 1] = kept;
        }
    }
    for (int i = 1; i < rank; i++) {
        if (keys[order[i]] < last[order[i - 1]]) return false;
    }
    return true;
}

static double element_bytes(const sglpass_fusion *f, sglir_id value)
{
    return sglcore_dtype_bits((sgl_dtype)sglir_type_of(f->g, value)->dtype) / 8.0;
}

static bool add_read(sglpass_fusion *f, sglir_id value, double bytes, uint32_t stamp)
{
    double all = (double)sglir_bytes(sglir_type_of(f->g, value));
    if (f->value_stamp[value] == stamp) {
        sglpass_fuse_read *read = &f->measure.reads.data[f->value_slot[value]];
        f->measure.cost -= read->bytes;
        read->bytes = read->bytes + bytes < all ? read->bytes + bytes : all;
        f->measure.cost += read->bytes;
        return true;
    }
    f->value_stamp[value] = stamp;
    f->value_slot[value] = (uint32_t)f->measure.reads.count;
    f->measure.cost += bytes;
    sgl_status status = sglcore_vec_push(f->env, &f->measure.reads, (sglpass_fuse_read){ value, bytes });
    if (status != SGL_OK) f->status = status;
    return status == SGL_OK;
}

static bool measure_source(sglpass_fusion *f, const sglir_domain_value *value, uint32_t stamp)
{
    const sglir_domain *d = &f->domain;
    if (value->source == SGLIR_PIECES) {
        const sglir_node *node = sglir_maker(f->g, value->base);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id base = sglir_domain_find(d, sglir_arg(f->g, node, i))->base;
            if (!add_read(f, base, (double)sglir_bytes(sglir_type_of(f->g, base)), stamp)) return false;
        }
    }
    if (value->source != SGLIR_STORED) return true;
    int64_t strides[SGLIR_DOMAIN_AXES];
    sglir_domain_strides(d, value, strides);
    double bytes = (double)sglir_domain_touched(d, value) * element_bytes(f, value->base);
    if (!add_read(f, value->base, bytes, stamp)) return false;
    if (d->axes > 0 && strides[d->axes - 1] > 1) f->measure.cost += (scattered_factor - 1) * bytes;
    return true;
}

/* Elements over which a value is computed, by its form. */
static double elements_of(const sglir_domain *d, const sglir_domain_value *value)
{
    int outer = d->free && d->axes > 0 ? d->axes - 1 : d->outer;
    double rows = 1, cols = 1;
    for (int i = 0; i < d->axes; i++) *(i < outer ? &rows : &cols) *= (double)d->extents[i];
    switch (sglir_domain_form(d, value, (1u << outer) - 1)) {
    case SGLIR_FORM_FULL: return rows * cols;
    case SGLIR_FORM_ROW: return rows;
    case SGLIR_FORM_COL: return cols;
    default: return 1;
    }
}

static void measure_computed(sglpass_fusion *f, const sglir_domain_value *value)
{
    const sglir_domain *d = &f->domain;
    sglir_id node = f->g->values.data[value->value].node;
    double weight = f->node[node].weight;
    const sglir_domain_value *over = value->reduction != SGLIR_REDUCES_NOT ? &d->values.data[value->argument] : value;
    f->measure.cost += f->computing * weight * elements_of(d, over);
    f->measure.transcendentals += weight > 2;
}

bool sglpass_fuse_take_measure(sglpass_fusion *f, const sglir_id *members, uint32_t count)
{
    const sglir_domain *d = &f->domain;
    sglpass_fuse_measure *m = &f->measure;
    m->reads.count = 0;
    m->transcendentals = 0;
    m->cost = launch_bytes;
    if (f->results.count > MOST_RESULTS || !sglpass_fuse_analyse(f, members, count)) return false;
    uint32_t stamp = sglpass_fuse_stamp(f);
    m->pieces = false;
    for (int64_t i = 0; i < d->values.count; i++) {
        const sglir_domain_value *value = &d->values.data[i];
        if (value->consumed && !measure_source(f, value, stamp)) return false;
        if (value->computes || value->source == SGLIR_NOISE) measure_computed(f, value);
        m->pieces = m->pieces || value->source == SGLIR_PIECES;
    }
    if (!m->pieces && m->reads.count > MOST_READS) return false;
    for (int64_t i = 0; i < f->results.count; i++) {
        double bytes = (double)sglir_bytes(sglir_type_of(f->g, f->results.data[i]));
        int axes[SGLIR_DOMAIN_AXES], order = sglir_domain_order(d, sglir_domain_find(d, f->results.data[i]), -1, axes);
        m->cost += order == d->axes && order > 0 && axes[order - 1] != order - 1 ? scattered_factor * bytes : bytes;
    }
    m->single = d->axes == 0;
    return true;
}

/* ---- making and changing them --------------------------------------------------------------------------------- */

bool sglpass_fuse_settle(sglpass_fusion *f, uint32_t cluster, const sglir_id *members, uint32_t count)
{
    const sglpass_fuse_measure *m = &f->measure;
    size_t member_bytes = count * sizeof *members, read_bytes = (size_t)m->reads.count * sizeof(sglpass_fuse_read);
    sglir_id *kept = sglcore_arena_alloc(&f->arena, member_bytes);
    sglpass_fuse_read *reads = sglcore_arena_alloc(&f->arena, read_bytes);
    if (kept == NULL || reads == NULL) {
        f->status = SGL_OUT_OF_MEMORY;
        return false;
    }
    if (member_bytes > 0) memcpy(kept, members, member_bytes);
    if (read_bytes > 0) memcpy(reads, m->reads.data, read_bytes);
    sglpass_fuse_cluster *c = &f->clusters.data[cluster];
    c->members = kept;
    c->member_count = count;
    c->reads = reads;
    c->read_count = (uint32_t)m->reads.count;
    c->cost = m->cost;
    c->single = m->single;
    c->pieces = m->pieces;
    c->transcendentals = m->transcendentals;
    c->version++;
    return true;
}

bool sglpass_fuse_union(sglpass_fusion *f, const sglir_id *a, uint32_t a_count, const sglir_id *b, uint32_t b_count)
{
    f->members.count = 0;
    sgl_status status = sglcore_vec_reserve(f->env, &f->members, (int64_t)a_count + b_count);
    if (status != SGL_OK) {
        f->status = status;
        return false;
    }
    uint32_t i = 0, k = 0;
    while (i < a_count || k < b_count) {
        bool left = k == b_count || (i < a_count && f->node[a[i]].number <= f->node[b[k]].number);
        sglir_id next = left ? a[i++] : b[k++];
        if (f->members.count > 0 && f->members.data[f->members.count - 1] == next) continue;
        f->members.data[f->members.count++] = next;
    }
    return true;
}

sgl_status sglpass_fuse_make_clusters(sglpass_fusion *f)
{
    for (int64_t i = 0; i < f->order.count; i++) {
        sglpass_fuse_node *facts = &f->node[f->order.data[i]];
        if (!(facts->role & SGLPASS_FUSE_WORK)) continue;
        uint32_t id = (uint32_t)f->clusters.count;
        facts->home = id;
        sglpass_fuse_cluster cluster = {
            .parent = id, .level = facts->level, .region = at(f, f->order.data[i])->region, .last = SGLIR_NONE
        };
        SGLCORE_TRY(sglcore_vec_push(f->env, &f->clusters, cluster));
    }
    size_t bytes = (size_t)f->clusters.count * sizeof *f->cluster_stamp;
    f->cluster_stamp = sglcore_alloc_zero(f->env, bytes);
    if (f->cluster_stamp == NULL && bytes > 0) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < f->order.count; i++) {
        sglir_id node = f->order.data[i];
        uint32_t home = f->node[node].home;
        if (!(f->node[node].role & SGLPASS_FUSE_WORK)) continue;
        if (!sglpass_fuse_gather_results(f, &node, 1, home, home)) return f->status;
        if (!sglpass_fuse_take_measure(f, &node, 1) || !sglpass_fuse_settle(f, home, &node, 1)) {
            SGLCORE_TRY(f->status);
            SGLCORE_TRY(f->domain.status);
            return sglcore_fail(f->env, SGL_INTERNAL, "fuse: %s cannot stand alone in a kernel",
                                sglir_ops[at(f, node)->op].name);
        }
    }
    return SGL_OK;
}
