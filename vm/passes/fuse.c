/* fuse.c -- the pass `fuse`: nodes become kernels, priced by bytes moved.
 *
 *   roles        what is work of a kernel, what is free in each, what stands outside     fuse_roles.c
 *   clusters     one per node of work, then merged where that saves most                 fuse_cluster.c, fuse_merge.c
 *   clones       cheap values computed again where they are read; then merged once more  fuse_clone.c
 *   kernels      clusters written as FUSED nodes, in an order that is legal              fuse_emit.c
 *
 * In: a graph of primitives and native composites. Out: the same graph with all elementwise ops, reductions, movement
 * and generators inside of FUSED nodes (contract: exec/kernel.h); what is left outside has code of its own or is a view
 * of what is stored. Odd invariant: the new order follows the old one: a node outside comes where it came, a kernel at
 * its last member or where it is first needed, and nodes in which ranks exchange keep their order among themselves: ranks
 * whose parts differ weigh merges otherwise, and must exchange in one order. */
#include "passes/fuse_parts.h"

static const sglir_node *at(const sglpass_fusion *f, sglir_id node) { return sglir_node_at(f->g, node); }

/* ---- writing the new graph ------------------------------------------------------------------------------------ */

typedef struct writer {
    sglpass_fusion *f;
    sglir_rewrite *rewrite;
    uint8_t *written; /* per node that stands outside */
} writer;

static void write_region(void *user, sglir_id region, sglir_id *results);
static void write_value(writer *w, sglir_id value);

static bool failed(const writer *w) { return w->rewrite->to->status != SGL_OK; }

static void fail(writer *w, const char *what)
{
    if (!failed(w)) w->rewrite->to->status = sglcore_fail(w->f->env, SGL_INTERNAL, "fuse: %s", what);
}

static void write_cluster(writer *w, uint32_t id)
{
    sglpass_fusion *f = w->f;
    sglpass_fuse_cluster *c = &f->clusters.data[id];
    if (c->state == 2 || failed(w)) return;
    if (c->state == 1) {
        fail(w, "two kernels need each other");
        return;
    }
    c->state = 1;
    for (uint32_t i = 0; i < c->read_count; i++) write_value(w, c->reads[i].value);
    if (!failed(w)) sglpass_fuse_emit(f, w->rewrite, id);
    c->state = 2;
}

static void write_outside(writer *w, sglir_id id)
{
    sglpass_fusion *f = w->f;
    if (w->written[id] || failed(w)) return;
    if (f->node[id].exchange_before != SGLIR_NONE) write_outside(w, f->node[id].exchange_before);
    w->written[id] = 1;
    for (uint32_t i = 0; i < at(f, id)->arg_count; i++) write_value(w, sglir_arg(f->g, at(f, id), i));
    sglpass_fuse_range captures = f->node[id].captures;
    for (uint32_t i = 0; i < captures.count; i++) {
        sglir_id value = f->captures.data[captures.first + i];
        if (f->g->values.data[value].region == at(f, id)->region) write_value(w, value);
    }
    if (failed(w)) return;
    if (at(f, id)->region_count > 0) {
        sglir_copy_around(w->rewrite, id, write_region, w);
    } else {
        sglir_copy_node(w->rewrite, id);
    }
}

/* Sees to it that the value is there. What stands in a region around was written before this one was begun. */
static void write_value(writer *w, sglir_id value)
{
    sglpass_fusion *f = w->f;
    if (failed(w) || w->rewrite->map[value] != SGLIR_NONE) return;
    sglir_id node = f->g->values.data[value].node;
    if (node == SGLIR_NONE) {
        fail(w, "a region's parameter is used before the region");
    } else if (f->node[node].role & SGLPASS_FUSE_OUTSIDE) {
        write_outside(w, node);
    } else if (f->node[node].home != SGLIR_NONE) {
        write_cluster(w, sglpass_fuse_find(f, f->node[node].home));
    }
    if (!failed(w) && w->rewrite->map[value] == SGLIR_NONE) fail(w, "a value that is used is made nowhere");
}

/* Results are the map's: `results` stays as it is. */
static void write_region(void *user, sglir_id id, sglir_id *results)
{
    (void)results;
    writer *w = user;
    sglpass_fusion *f = w->f;
    const sglir_region *region = &f->g->regions.data[id];
    for (int64_t i = 0; i < region->nodes.count && !failed(w); i++) {
        sglir_id node = region->nodes.data[i];
        if (!f->live[node]) continue;
        const sglpass_fuse_node *facts = &f->node[node];
        if (facts->role & SGLPASS_FUSE_OUTSIDE) write_outside(w, node);
        if (!(facts->role & SGLPASS_FUSE_WORK) || facts->home == SGLIR_NONE) continue;
        uint32_t cluster = sglpass_fuse_find(f, facts->home);
        if (f->clusters.data[cluster].last == node) write_cluster(w, cluster);
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        if (f->g->values.data[region->results.data[i]].region == id) write_value(w, region->results.data[i]);
    }
}

/* Each cluster's last member at home; clusters that store nothing are never written. */
static void find_last_members(sglpass_fusion *f)
{
    for (int64_t i = 0; i < f->order.count; i++) {
        sglir_id node = f->order.data[i];
        if (!(f->node[node].role & SGLPASS_FUSE_WORK) || f->node[node].home == SGLIR_NONE) continue;
        sglpass_fuse_cluster *c = &f->clusters.data[sglpass_fuse_find(f, f->node[node].home)];
        if (c->member_count > 0) c->last = node;
    }
}

static sgl_status write_graph(sglpass_fusion *f, sglir_graph **out)
{
    sglir_rewrite rewrite;
    SGLCORE_TRY(sglir_rewrite_begin(f->env, f->g, "fuse", f, &rewrite));
    size_t bytes = (size_t)f->g->nodes.count;
    writer w = { .f = f, .rewrite = &rewrite, .written = sglcore_alloc_zero(f->env, bytes) };
    if (w.written == NULL && bytes > 0) {
        rewrite.to->status = SGL_OUT_OF_MEMORY;
    } else {
        find_last_members(f);
        write_region(&w, 0, NULL);
        for (int64_t i = 0; i < f->g->outputs.count; i++) write_value(&w, f->g->outputs.data[i].value);
    }
    sglcore_free(f->env, w.written, bytes);
    return sglir_rewrite_end(&rewrite, true, out);
}

/* ---- the pass ------------------------------------------------------------------------------------------------- */

static sgl_status prepare(sglpass_fusion *f)
{
    size_t nodes = (size_t)f->g->nodes.count, values = (size_t)f->g->values.count;
    f->live = sglcore_alloc(f->env, nodes);
    f->node = sglcore_alloc_zero(f->env, nodes * sizeof *f->node);
    f->value = sglcore_alloc_zero(f->env, values * sizeof *f->value);
    f->node_stamp = sglcore_alloc_zero(f->env, nodes * sizeof *f->node_stamp);
    f->value_stamp = sglcore_alloc_zero(f->env, values * sizeof *f->value_stamp);
    f->value_slot = sglcore_alloc_zero(f->env, values * sizeof *f->value_slot);
    bool good = nodes == 0 || (f->live != NULL && f->node != NULL && f->node_stamp != NULL);
    good = good && (values == 0 || (f->value != NULL && f->value_stamp != NULL && f->value_slot != NULL));
    if (!good) return SGL_OUT_OF_MEMORY;
    for (size_t i = 0; i < nodes; i++) f->node[i].home = f->node[i].clones = f->node[i].exchange_before = SGLIR_NONE;
    SGLCORE_TRY(sglir_domain_init(&f->domain, f->env, f->g, 0, f->g->values.count));
    return sglir_mark_live(f->g, f->live);
}

static void release(sglpass_fusion *f)
{
    size_t nodes = (size_t)f->g->nodes.count, values = (size_t)f->g->values.count;
    sglcore_free(f->env, f->live, nodes);
    sglcore_free(f->env, f->node, nodes * sizeof *f->node);
    sglcore_free(f->env, f->value, values * sizeof *f->value);
    sglcore_free(f->env, f->node_stamp, nodes * sizeof *f->node_stamp);
    sglcore_free(f->env, f->value_stamp, values * sizeof *f->value_stamp);
    sglcore_free(f->env, f->value_slot, values * sizeof *f->value_slot);
    sglcore_free(f->env, f->cluster_stamp, (size_t)f->clusters.count * sizeof *f->cluster_stamp);
    sglpass_fuse_ids *lists[] = { &f->nodes,   &f->values, &f->users,   &f->captures,   &f->order,
                                  &f->members, &f->kept,   &f->results, &f->neighbours, &f->stack };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) sglcore_vec_free(f->env, lists[i]);
    sglcore_vec_free(f->env, &f->clones);
    sglcore_vec_free(f->env, &f->clusters);
    sglcore_vec_free(f->env, &f->measure.reads);
    sglir_domain_free(&f->domain);
    sglcore_arena_free(&f->arena);
}

static sgl_status run(sglpass_fusion *f, sglir_graph **out)
{
    SGLCORE_TRY(prepare(f));
    SGLCORE_TRY(sglpass_fuse_assign_roles(f));
    SGLCORE_TRY(sglpass_fuse_make_clusters(f));
    SGLCORE_TRY(sglpass_fuse_merge(f, false));
    SGLCORE_TRY(sglpass_fuse_clone_cheap(f));
    SGLCORE_TRY(sglpass_fuse_merge(f, true)); /* clones have cut ties that stood in the way */
    return write_graph(f, out);
}

sgl_status sglpass_fuse(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglpass_fusion f = { .env = context->env,
                         .g = in,
                         .computing = context->computing > 0 ? context->computing : 1,
                         .arena = { .env = context->env } };
    sgl_status status = run(&f, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, f.clusters.count > 0);
    release(&f);
    return status;
}
