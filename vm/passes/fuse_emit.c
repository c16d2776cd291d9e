/* fuse_emit.c -- a cluster becomes a FUSED node.
 *
 * In: a cluster whose reads have their values in the new graph. Out: the node; its results stand in the map. The nodes
 * are copied as they are, with their shapes and layouts; where the order of the domain is not that of a value, the value
 * is transposed before the computation, and its result back after it, which costs a kernel nothing: it becomes a map.
 * Odd invariant: of a value inside there are two forms, as it is and turned, each made when it is first asked for. */
#include "passes/fuse_parts.h"

typedef struct emitter {
    sglpass_fusion *f;
    sglir_rewrite *rewrite;
    sglir_graph *to;
    sglir_id *plain, *turned; /* per value of the domain: ids in the region, SGLIR_NONE: not made yet */
} emitter;

static uint32_t index_of(const emitter *e, sglir_id value)
{
    return (uint32_t)(sglir_domain_find(&e->f->domain, value) - e->f->domain.values.data);
}

static bool is_turned(const int64_t *order, int rank)
{
    for (int i = 0; i < rank; i++) {
        if (order[i] != i) return true;
    }
    return false;
}

/* The order in which computation sees the dimensions of a value. False: as they are. */
static bool turn_of(const emitter *e, uint32_t index, int64_t order[SGL_MAX_RANK])
{
    const sglir_domain_value *value = &e->f->domain.values.data[index];
    if (!value->used && !value->computes) return false;
    sglpass_fuse_turn(e->f, value, order);
    return is_turned(order, sglir_type_of(e->f->g, value->value)->rank);
}

static sglir_id emit_plain(emitter *e, sglir_id value);

/* The value as computation wants it. */
static sglir_id emit_turned(emitter *e, sglir_id value)
{
    uint32_t index = index_of(e, value);
    if (e->turned[index] != SGLIR_NONE) return e->turned[index];
    int64_t order[SGL_MAX_RANK];
    sglir_id id = emit_plain(e, value);
    if (turn_of(e, index, order)) id = sglir_transpose(e->to, id, order);
    e->turned[index] = id;
    return id;
}

static void set_origin(emitter *e, const sglir_node *node)
{
    const sglir_graph *from = e->f->g;
    sglir_set_origin_of(e->to, &from->origins.data[node->origin], from);
}

/* The op on arguments of its own shapes; `named` replaces its attributes. */
static sglir_id emit_op(emitter *e, const sglir_node *node, const sglir_id *args, const sglir_named *named, int count)
{
    set_origin(e, node);
    sglir_id id = sglir_emit(e->to, (sglir_op)node->op, args, (int)node->arg_count, named, count, NULL);
    if (id != SGLIR_NONE) sglir_keep_apart(e->to, e->to->nodes.count - 1, node);
    return id;
}

/* Reduced axes where the turned argument has them. */
static int turn_axes(const sglir_named *axes, const int64_t *order, int rank, int64_t out[SGL_MAX_RANK])
{
    int count = 0;
    for (int i = 0; i < rank; i++) {
        for (int64_t k = 0; k < axes->i; k++) {
            if (axes->ints[k] == order[i]) out[count++] = i;
        }
    }
    return count;
}

/* A sum over a turned argument: with `keep` its dimensions stand where the argument had them, and go to their places. */
static sglir_id emit_turned_reduction(emitter *e, const sglir_node *node, sglir_id arg, const int64_t *order)
{
    const sglir_graph *from = e->f->g;
    int rank = sglir_type_of(from, sglir_arg(from, node, 0))->rank;
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(from, node, named);
    int64_t axes[SGL_MAX_RANK], back[SGL_MAX_RANK], left[SGL_MAX_RANK];
    named[0].i = turn_axes(&named[0], order, rank, axes);
    bool keep = named[1].i != 0;
    int left_count = 0;
    for (int i = 0; i < rank; i++) { /* the dimensions of the result, in the order in which the sum leaves them */
        bool gone = false;
        for (int64_t k = 0; k < named[0].i; k++) gone = gone || axes[k] == i;
        if (keep || !gone) left[left_count++] = order[i];
    }
    named[0].ints = axes;
    sglir_id id = emit_op(e, node, &arg, named, count);
    for (int i = 0; i < left_count; i++) { /* dimension i of the result is the one with the i-th smallest number */
        int place = 0;
        for (int k = 0; k < left_count; k++) place += left[k] < left[i];
        back[place] = i;
    }
    return is_turned(back, left_count) ? sglir_transpose(e->to, id, back) : id;
}

static sglir_id emit_computation(emitter *e, const sglir_node *node, uint32_t index)
{
    const sglir_graph *from = e->f->g;
    sglir_id args[3];
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = emit_turned(e, sglir_arg(from, node, i));
    int64_t order[SGL_MAX_RANK], back[SGL_MAX_RANK];
    if (!turn_of(e, index_of(e, sglir_arg(from, node, 0)), order)) {
        sglir_named named[SGLIR_MOST_ATTRS];
        return emit_op(e, node, args, named, sglir_attrs_named(from, node, named));
    }
    if (sglir_ops[node->op].flags & SGLIR_REDUCTION) return emit_turned_reduction(e, node, args[0], order);
    sglir_named named[SGLIR_MOST_ATTRS];
    int rank = sglir_type_of(from, node->out_first)->rank;
    e->turned[index] = emit_op(e, node, args, named, sglir_attrs_named(from, node, named));
    for (int i = 0; i < rank; i++) back[order[i]] = i;
    return sglir_transpose(e->to, e->turned[index], back);
}

/* The value with the dimensions that it had outside; parameters and members before it are there. */
static sglir_id emit_plain(emitter *e, sglir_id value)
{
    uint32_t index = index_of(e, value);
    if (e->plain[index] != SGLIR_NONE || e->to->status != SGL_OK) return e->plain[index];
    const sglir_graph *from = e->f->g;
    const sglir_node *node = sglir_maker(from, value);
    sglir_id id = SGLIR_NONE;
    if (sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION)) {
        id = emit_computation(e, node, index);
    } else {
        sglir_named named[SGLIR_MOST_ATTRS];
        int count = sglir_attrs_named(from, node, named);
        size_t bytes = node->arg_count * sizeof(sglir_id);
        sglir_id *args = sglcore_alloc(e->f->env, bytes);
        if (args == NULL && bytes > 0) {
            e->to->status = SGL_OUT_OF_MEMORY;
            return SGLIR_NONE;
        }
        for (uint32_t i = 0; i < node->arg_count; i++) args[i] = emit_plain(e, sglir_arg(from, node, i));
        id = emit_op(e, node, args, named, count);
        sglcore_free(e->f->env, args, bytes);
    }
    e->plain[index] = id;
    return id;
}

/* ---- the node ------------------------------------------------------------------------------------------------- */

static sglir_id emit_region(emitter *e, const sglpass_fuse_cluster *c, sglir_id *args, sglir_id *ids, sglir_type *types)
{
    sglpass_fusion *f = e->f;
    for (uint32_t i = 0; i < c->read_count; i++) {
        args[i] = e->rewrite->map[c->reads[i].value];
        types[i] = *sglir_type_of(e->to, args[i]);
    }
    sglir_id region = sglir_region_begin(e->to, types, (int)c->read_count, ids);
    for (uint32_t i = 0; i < c->read_count && e->to->status == SGL_OK; i++)
        e->plain[index_of(e, c->reads[i].value)] = ids[i];
    for (uint32_t i = 0; i < c->member_count && e->to->status == SGL_OK; i++) /* in order, so that calls stay flat */
        emit_plain(e, sglpass_fuse_result(f, c->members[i]));
    for (int64_t i = 0; i < f->results.count && e->to->status == SGL_OK; i++)
        ids[i] = emit_plain(e, f->results.data[i]);
    sglir_region_end(e->to, ids, (int)f->results.count);
    return region;
}

static void emit_node(emitter *e, const sglpass_fuse_cluster *c, sglir_id *args, sglir_id *ids, sglir_id region)
{
    sglpass_fusion *f = e->f;
    const sglir_domain *d = &f->domain;
    int inner = d->free ? (d->axes > 0 ? 1 : 0) : d->axes - d->outer;
    sglir_named attrs[] = { SGLIR_INTS("domain", d->axes, d->extents), SGLIR_I("inner", inner) };
    set_origin(e, sglir_node_at(f->g, c->members[c->member_count - 1]));
    sglir_emit_regions(e->to, SGLIR_OP_FUSED, args, (int)c->read_count, attrs, 2, &region, 1, ids);
    if (e->to->status == SGL_OK) e->to->nodes.data[e->to->nodes.count - 1].turn = sglpass_fuse_turn_of(f, c);
    for (int64_t i = 0; i < f->results.count && e->to->status == SGL_OK; i++)
        e->rewrite->map[f->results.data[i]] = ids[i];
}

void sglpass_fuse_emit(sglpass_fusion *f, sglir_rewrite *rewrite, uint32_t cluster)
{
    emitter e = { .f = f, .rewrite = rewrite, .to = rewrite->to };
    const sglpass_fuse_cluster *c = &f->clusters.data[cluster];
    if (!sglpass_fuse_gather_results(f, c->members, c->member_count, cluster, cluster) ||
        !sglpass_fuse_analyse(f, c->members, c->member_count)) {
        sgl_status status = f->status != SGL_OK ? f->status : f->domain.status;
        if (status == SGL_OK)
            status = sglcore_fail(f->env, SGL_INTERNAL, "fuse: a kernel fell apart: %s", f->domain.reason);
        if (e.to->status == SGL_OK) e.to->status = status;
        return;
    }
    size_t values = (size_t)f->domain.values.count;
    size_t most = (size_t)(c->read_count > f->results.count ? c->read_count : f->results.count);
    e.plain = sglcore_alloc(f->env, values * sizeof *e.plain);
    e.turned = sglcore_alloc(f->env, values * sizeof *e.turned);
    sglir_id *args = sglcore_alloc(f->env, most * sizeof *args), *ids = sglcore_alloc(f->env, most * sizeof *ids);
    sglir_type *types = sglcore_alloc(f->env, most * sizeof *types);
    if (e.plain == NULL || e.turned == NULL || args == NULL || ids == NULL || types == NULL) {
        e.to->status = SGL_OUT_OF_MEMORY;
    } else {
        for (size_t i = 0; i < values; i++) e.plain[i] = e.turned[i] = SGLIR_NONE;
        sglir_id region = emit_region(&e, c, args, ids, types);
        if (e.to->status == SGL_OK) emit_node(&e, c, args, ids, region);
    }
    sglcore_free(f->env, e.plain, values * sizeof *e.plain);
    sglcore_free(f->env, e.turned, values * sizeof *e.turned);
    sglcore_free(f->env, args, most * sizeof *args);
    sglcore_free(f->env, ids, most * sizeof *ids);
    sglcore_free(f->env, types, most * sizeof *types);
}
