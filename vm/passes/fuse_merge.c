/* fuse_merge.c -- clusters become one where that saves most: a maker with its reader, and two readers of one value.
 *
 * In: clusters. Out: fewer. Candidates wait in a heap by the bytes that they are expected to save; the first is taken out,
 * checked (no cycle, one domain, really cheaper) and merged, and the new cluster meets its neighbours anew. Odd invariant:
 * a pair whose clusters have changed since it was pushed is dropped, because the change has pushed it again. */
#include "passes/fuse_parts.h"

enum {
    MOST_MEMBERS = 128,
    MOST_SINGLES = 4,         /* nodes of a scalar computation that may go into a larger kernel */
    LEAST_SHARED_BYTES = 256, /* of a value, before its readers are merged for its sake */
    LONGEST_SEARCH = 100,     /* clusters looked at for a cycle */
    MOST_SIBLINGS = 256       /* readers of one value that are looked at for that */
};

typedef struct candidate {
    double gain;
    uint32_t size; /* of equal gains the smaller merge comes first, so that clusters grow evenly */
    uint32_t a, b, a_version, b_version;
} candidate;

typedef struct merger {
    sglpass_fusion *f;
    SGLCORE_VEC(candidate) heap;
    uint32_t *visited;       /* per cluster: a stamp */
    sglpass_fuse_ids around; /* scratch */
} merger;

static sglpass_fuse_cluster *cluster_at(merger *m, uint32_t id) { return &m->f->clusters.data[id]; }

/* ---- the heap ------------------------------------------------------------------------------------------------- */

static bool before(const candidate *x, const candidate *y)
{
    if (x->gain != y->gain) return x->gain > y->gain;
    if (x->size != y->size) return x->size < y->size;
    if (x->a != y->a) return x->a < y->a;
    return x->b < y->b;
}

static void push(merger *m, candidate new)
{
    sgl_status status = sglcore_vec_push(m->f->env, &m->heap, new);
    if (status != SGL_OK) {
        m->f->status = status;
        return;
    }
    candidate *heap = m->heap.data;
    int64_t i = m->heap.count - 1;
    for (; i > 0 && before(&new, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = new;
}

static candidate pop(merger *m)
{
    candidate *heap = m->heap.data, top = heap[0], last = heap[--m->heap.count];
    int64_t i = 0, count = m->heap.count;
    while (2 * i + 1 < count) {
        int64_t child = 2 * i + 1;
        if (child + 1 < count && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    if (count > 0) heap[i] = last;
    return top;
}

/* ---- what a merge would save ---------------------------------------------------------------------------------- */

/* Bytes of what `maker` makes and `reader` reads: no longer read, and no longer written where nobody else reads it. */
static double saved_between(merger *m, uint32_t maker, uint32_t reader)
{
    sglpass_fusion *f = m->f;
    double bytes = 0;
    const sglpass_fuse_cluster *r = cluster_at(m, reader);
    for (uint32_t i = 0; i < r->read_count; i++) {
        sglir_id node = sglpass_fuse_maker(f, r->reads[i].value);
        if (node == SGLIR_NONE || f->node[node].home == SGLIR_NONE || sglpass_fuse_find(f, f->node[node].home) != maker)
            continue;
        bytes += r->reads[i].bytes;
        if (!sglpass_fuse_is_stored(f, r->reads[i].value, maker, reader))
            bytes += (double)sglir_bytes(sglir_type_of(f->g, r->reads[i].value));
    }
    return bytes;
}

static double saved_by_sharing(merger *m, uint32_t a, uint32_t b)
{
    sglpass_fusion *f = m->f;
    uint32_t stamp = sglpass_fuse_stamp(f);
    double bytes = 0;
    const sglpass_fuse_cluster *x = cluster_at(m, a), *y = cluster_at(m, b);
    for (uint32_t i = 0; i < x->read_count; i++) {
        f->value_stamp[x->reads[i].value] = stamp;
        f->value_slot[x->reads[i].value] = i;
    }
    for (uint32_t i = 0; i < y->read_count; i++) {
        const sglpass_fuse_read *read = &y->reads[i];
        if (f->value_stamp[read->value] != stamp) continue;
        double other = x->reads[f->value_slot[read->value]].bytes;
        bytes += read->bytes < other ? read->bytes : other;
    }
    return bytes;
}

/* Whether the cluster pays into a carry of micro-batches. */
static bool accumulates(merger *m, uint32_t id)
{
    const sglpass_fuse_cluster *c = cluster_at(m, id);
    for (uint32_t i = 0; i < c->member_count; i++) {
        if (sglir_node_at(m->f->g, c->members[i])->op == SGLIR_OP_ACCUMULATE) return true;
    }
    return false;
}

/* The turn of a pipeline's stage in which the cluster runs, 0: it goes where it fits. */
uint32_t sglpass_fuse_turn_of(const sglpass_fusion *f, const sglpass_fuse_cluster *c)
{
    uint32_t turn = 0;
    for (uint32_t i = 0; i < c->member_count && turn == 0; i++) turn = sglir_node_at(f->g, c->members[i])->turn;
    return turn;
}

static bool take_turns(merger *m, uint32_t a, uint32_t b)
{
    const uint32_t x = sglpass_fuse_turn_of(m->f, cluster_at(m, a)), y = sglpass_fuse_turn_of(m->f, cluster_at(m, b));
    return x != 0 && y != 0 && x != y;
}

/* Two that pay into carries stay apart: together the first gradient would wait, whole, for the second; and two of different turns. */
static void propose(merger *m, uint32_t a, uint32_t b)
{
    if (a > b) {
        uint32_t kept = a;
        a = b;
        b = kept;
    }
    const sglpass_fuse_cluster *x = cluster_at(m, a), *y = cluster_at(m, b);
    if (x->region != y->region || x->member_count + y->member_count > MOST_MEMBERS) return;
    if (accumulates(m, a) && accumulates(m, b)) return;
    if (take_turns(m, a, b)) return;
    double gain = saved_between(m, a, b) + saved_between(m, b, a) + saved_by_sharing(m, a, b);
    push(m, (candidate){ gain, x->member_count + y->member_count, a, b, x->version, y->version });
}

/* ---- neighbours ----------------------------------------------------------------------------------------------- */

static void note(merger *m, uint32_t self, uint32_t other, uint32_t stamp)
{
    if (other == self || m->visited[other] == stamp) return;
    m->visited[other] = stamp;
    sgl_status status = sglcore_vec_push(m->f->env, &m->around, other);
    if (status != SGL_OK) m->f->status = status;
}

/* Readers of what the cluster reads: of each value those right before and behind it. */
static void note_siblings(merger *m, uint32_t self, const sglpass_fuse_read *read, uint32_t stamp)
{
    sglpass_fusion *f = m->f;
    if (read->bytes < LEAST_SHARED_BYTES || f->value[read->value].users.count > MOST_SIBLINGS) return;
    if (!sglpass_fuse_readers(f, read->value)) return;
    for (int64_t i = 0; i < f->neighbours.count; i++) {
        if (f->neighbours.data[i] != self) continue;
        if (i > 0) note(m, self, f->neighbours.data[i - 1], stamp);
        if (i + 1 < f->neighbours.count) note(m, self, f->neighbours.data[i + 1], stamp);
    }
}

static bool is_piece_of(merger *m, sglir_id value, uint32_t reader)
{
    return m->f->value[value].packed && cluster_at(m, reader)->pieces;
}

/* Proposes the cluster with each of its neighbours. `only_after`: with those of a larger id alone. */
static void propose_around(merger *m, uint32_t self, bool only_after)
{
    sglpass_fusion *f = m->f;
    uint32_t stamp = sglpass_fuse_stamp(f); /* as a mark of m->visited it is as good as any other new number */
    m->around.count = 0;
    bool first_piece = true;
    for (uint32_t i = 0; i < cluster_at(m, self)->read_count && f->status == SGL_OK; i++) {
        const sglpass_fuse_read read = cluster_at(m, self)->reads[i];
        sglir_id maker = sglpass_fuse_maker(f, read.value);
        bool piece = is_piece_of(m, read.value, self);
        if (!piece && maker != SGLIR_NONE && f->node[maker].home != SGLIR_NONE)
            note(m, self, sglpass_fuse_find(f, f->node[maker].home), stamp);
        if (!piece || first_piece) note_siblings(m, self, &read, stamp);
        first_piece = first_piece && !piece;
    }
    for (uint32_t i = 0; i < cluster_at(m, self)->member_count && f->status == SGL_OK; i++) {
        sglir_id node = cluster_at(m, self)->members[i], value = sglpass_fuse_result(f, node);
        if (f->node[node].home == SGLIR_NONE || sglpass_fuse_find(f, f->node[node].home) != self) continue;
        if (!sglpass_fuse_readers(f, value)) return;
        for (int64_t k = 0; k < f->neighbours.count; k++) {
            if (!is_piece_of(m, value, f->neighbours.data[k])) note(m, self, f->neighbours.data[k], stamp);
        }
    }
    for (int64_t i = 0; i < m->around.count && f->status == SGL_OK; i++) {
        if (!only_after || m->around.data[i] > self) propose(m, self, m->around.data[i]);
    }
}

/* ---- is it legal ---------------------------------------------------------------------------------------------- */

/* Pushes onto f->stack the clusters that read something that c makes. */
static bool push_readers(merger *m, uint32_t c)
{
    sglpass_fusion *f = m->f;
    for (uint32_t i = 0; i < cluster_at(m, c)->member_count; i++) {
        sglir_id node = cluster_at(m, c)->members[i];
        if (f->node[node].home == SGLIR_NONE || sglpass_fuse_find(f, f->node[node].home) != c) continue;
        if (!sglpass_fuse_readers(f, sglpass_fuse_result(f, node))) return false;
        for (int64_t k = 0; k < f->neighbours.count; k++) {
            sgl_status status = sglcore_vec_push(f->env, &f->stack, f->neighbours.data[k]);
            if (status != SGL_OK) f->status = status;
            if (status != SGL_OK) return false;
        }
    }
    return true;
}

/* A way leads from one cluster to the other through a third one. Clusters of higher levels are on none; a search that
 * grows long is given up as if it had found one. */
static bool leads_through_others(merger *m, uint32_t from, uint32_t to)
{
    sglpass_fusion *f = m->f;
    int32_t level = cluster_at(m, to)->level;
    uint32_t mark = sglpass_fuse_stamp(f);
    int looked_at = 0;
    f->stack.count = 0;
    if (!push_readers(m, from)) return true;
    int64_t direct = f->stack.count;
    m->visited[from] = mark;
    for (int64_t i = 0; i < direct; i++) { /* the direct way does not count */
        if (f->stack.data[i] == to) f->stack.data[i] = from;
    }
    while (f->stack.count > 0) {
        uint32_t c = f->stack.data[--f->stack.count];
        if (c == to || ++looked_at > LONGEST_SEARCH) return true;
        if (m->visited[c] == mark) continue;
        m->visited[c] = mark;
        if (cluster_at(m, c)->level > level) continue;
        if (!push_readers(m, c)) return true;
    }
    return false;
}

/* The cluster may wait until `level`: nobody but `other` reads it before. */
static bool can_wait(merger *m, uint32_t c, int32_t level, uint32_t other)
{
    sglpass_fusion *f = m->f;
    if (cluster_at(m, c)->level >= level) return true;
    for (uint32_t i = 0; i < cluster_at(m, c)->member_count; i++) {
        sglir_id node = cluster_at(m, c)->members[i], value = sglpass_fuse_result(f, node);
        if (f->node[node].home == SGLIR_NONE || sglpass_fuse_find(f, f->node[node].home) != c) continue;
        if (f->value[value].needed && f->value[value].user_level < level) return false;
        if (!sglpass_fuse_readers(f, value)) return false;
        for (int64_t k = 0; k < f->neighbours.count; k++) {
            if (f->neighbours.data[k] != other && cluster_at(m, f->neighbours.data[k])->level < level) return false;
        }
    }
    return true;
}

/* A computation of a single number goes into a larger kernel only when it is short, and cheap to do there again. */
static bool single_fits(merger *m, uint32_t a, uint32_t b)
{
    const sglpass_fuse_cluster *x = cluster_at(m, a), *y = cluster_at(m, b);
    if (x->single == y->single) return true;
    uint32_t single = x->single ? a : b, other = x->single ? b : a;
    if (saved_between(m, other, single) > 0) return true; /* a total, and what is made of it */
    return saved_between(m, single, other) > 0 && cluster_at(m, single)->transcendentals == 0 &&
           cluster_at(m, single)->member_count <= MOST_SINGLES;
}

static bool is_legal(merger *m, uint32_t a, uint32_t b)
{
    int32_t level =
        cluster_at(m, a)->level > cluster_at(m, b)->level ? cluster_at(m, a)->level : cluster_at(m, b)->level;
    if (!can_wait(m, a, level, b) || !can_wait(m, b, level, a) || !single_fits(m, a, b)) return false;
    return !leads_through_others(m, a, b) && !leads_through_others(m, b, a);
}

/* ---- merging -------------------------------------------------------------------------------------------------- */

static void try_merge(merger *m, const candidate *c)
{
    sglpass_fusion *f = m->f;
    uint32_t a = c->a, b = c->b;
    if (sglpass_fuse_find(f, a) != a || sglpass_fuse_find(f, b) != b || cluster_at(m, a)->version != c->a_version ||
        cluster_at(m, b)->version != c->b_version || !is_legal(m, a, b))
        return;
    const sglpass_fuse_cluster *x = cluster_at(m, a), *y = cluster_at(m, b);
    double apart = x->cost + y->cost;
    if (!sglpass_fuse_union(f, x->members, x->member_count, y->members, y->member_count)) return;
    if (!sglpass_fuse_gather_results(f, f->members.data, (uint32_t)f->members.count, a, b)) return;
    if (!sglpass_fuse_take_measure(f, f->members.data, (uint32_t)f->members.count) || f->measure.cost >= apart) return;
    if (!sglpass_fuse_settle(f, a, f->members.data, (uint32_t)f->members.count)) return;
    cluster_at(m, b)->parent = a;
    if (cluster_at(m, b)->level > cluster_at(m, a)->level) cluster_at(m, a)->level = cluster_at(m, b)->level;
    propose_around(m, a, false);
}

/* Scalars have little to share, but a launch each: those that can stand in one kernel do. */
static void merge_singles(merger *m)
{
    sglpass_fusion *f = m->f;
    uint32_t before_it = SGLIR_NONE;
    for (uint32_t i = 0; i < f->clusters.count && f->status == SGL_OK; i++) {
        if (sglpass_fuse_find(f, i) != i || cluster_at(m, i)->member_count == 0 || !cluster_at(m, i)->single) continue;
        if (before_it != SGLIR_NONE && cluster_at(m, before_it)->region == cluster_at(m, i)->region) {
            candidate both = { 0, 0, before_it, i, cluster_at(m, before_it)->version, cluster_at(m, i)->version };
            try_merge(m, &both);
            if (sglpass_fuse_find(f, i) == before_it) continue;
        }
        before_it = i;
    }
}

static void drain(merger *m)
{
    while (m->heap.count > 0 && m->f->status == SGL_OK && m->f->domain.status == SGL_OK) {
        candidate next = pop(m);
        try_merge(m, &next);
    }
}

sgl_status sglpass_fuse_merge(sglpass_fusion *f, bool last)
{
    merger m = { .f = f };
    size_t bytes = (size_t)f->clusters.count * sizeof *m.visited;
    m.visited = sglcore_alloc_zero(f->env, bytes);
    if (m.visited == NULL && bytes > 0) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < f->clusters.count && f->status == SGL_OK; i++) {
        if (sglpass_fuse_find(f, (uint32_t)i) == i && f->clusters.data[i].member_count > 0)
            propose_around(&m, (uint32_t)i, true);
    }
    drain(&m);
    if (last) {
        merge_singles(&m);
        drain(&m);
    }
    sglcore_vec_free(f->env, &m.heap);
    sglcore_vec_free(f->env, &m.around);
    sglcore_free(f->env, m.visited, bytes);
    return f->status != SGL_OK ? f->status : f->domain.status;
}
