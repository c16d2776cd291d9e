/* collect_parts.c -- what ranks gather, hand out in parts and turn from parts to parts: together, and when it is there.
 *
 * In: a graph of one rank in which each parameter is gathered by itself, before its first reader, each gradient is
 * handed out in parts by itself, where its part is first read, and all_to_alls stand before what reads them. Out: the
 * same exchanges, merged where they are over the same axes and of one dtype, a run of neighbours at a time, of at least
 * plan.bucket bytes (of what is whole):
 *   early   what is handed out, turns, and gathers of what the step has made: as soon as the last of the run is there
 *   late    gathers and turns of what is there from the beginning: before the first reader of the first of the run
 * What stands between an exchange and what it is made of (casts, transposes) goes with it. Nothing is packed: each
 * member of a merged exchange is read and written where it lies. Bodies of loops, over micro-batches above all, and
 * branches are each done by themselves. Odd invariant: runs follow from the graph's order and from bytes that all ranks
 * have alike: of the value before anything of it was split, also over axes that the exchange leaves as they are, along
 * which parts may be uneven. */
#include "passes/collect_parts.h"

#include <string.h>

enum { FROM_THE_BEGINNING = -1 };

/* An exchange of the region at hand. */
typedef struct item {
    sglir_id node;
    int64_t at;         /* where it stands */
    int64_t ready;      /* position of the node after which it can be, or FROM_THE_BEGINNING */
    int64_t first_read; /* of what it makes */
    int64_t bytes;      /* of the whole: alike on all ranks */
    bool for_backward;  /* the first reader is the backward's */
    uint32_t run;       /* into runs */
} item;

/* Members stand in the order of their items. */
typedef struct run {
    sglir_id first; /* a member's node */
    int64_t before; /* late: it stands before this position; early: behind the one before it */
    int64_t first_read, bytes;
    int64_t axes;
    uint16_t op, dtype;
    bool late, for_backward, closed;
} run;

/* A region. */
typedef struct scope {
    sglir_id region;
    SGLCORE_VEC(item) items;
    SGLCORE_VEC(run) runs;
} scope;

typedef struct merger {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint8_t *live, *done; /* per node; done: not emitted in its place */
    int64_t *position;    /* per node: in its region */
    int64_t *first_use;   /* per value: position of its first reader in its region */
    sglir_id *reader;     /* per value: that one, SGLIR_NONE: an output or a yield alone */
    scope *at;            /* the region at hand */
    SGLCORE_VEC(sglir_id) stack;
    SGLCORE_VEC(sglir_id) args; /* of one run */
    SGLCORE_VEC(int64_t) extents;
    SGLCORE_VEC(int64_t) units;
    SGLCORE_VEC(int64_t) tos; /* of turns */
    sglcore_arena arena;
} merger;

static const sglir_graph *from(const merger *m) { return m->rewrite.from; }
static const sglir_node *node_at(const merger *m, sglir_id node) { return sglir_node_at(from(m), node); }

/* ---- what there is ----------------------------------------------------------------------------------------------- */

typedef struct reading {
    merger *m;
    sglir_id node;
} reading;

static void read_value(void *user, sglir_id value)
{
    reading *r = user;
    const int64_t position = r->m->position[r->node];
    if (sglir_value_at(from(r->m), value)->region != r->m->at->region || r->m->first_use[value] <= position) return;
    r->m->first_use[value] = position;
    r->m->reader[value] = r->node;
}

static void find_uses(merger *m, const sglir_region *region)
{
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = node_at(m, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) {
            m->first_use[node->out_first + i] = region->nodes.count;
            m->reader[node->out_first + i] = SGLIR_NONE;
        }
    }
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(m, id);
        reading r = { m, id };
        m->position[id] = n;
        if (!m->live[id]) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) read_value(&r, sglir_arg(from(m), node, i));
        if (sglir_is_control(node)) sglir_each_capture(from(m), node, read_value, &r);
    }
}

/* It can stand wherever its argument does. */
static bool goes_along(const sglir_node *node)
{
    return node->op == SGLIR_OP_CAST || node->op == SGLIR_OP_RESHAPE || node->op == SGLIR_OP_TRANSPOSE ||
           node->op == SGLIR_OP_UNPACK;
}

/* The node that makes, but for what goes along, what the exchange reads; SGLIR_NONE: an input, or what comes from
 * outside of the region. */
static sglir_id source_of(const merger *m, const sglir_node *exchange)
{
    for (const sglir_node *node = exchange;;) {
        const sglir_value *value = sglir_value_at(from(m), sglir_arg(from(m), node, 0));
        if (value->node == SGLIR_NONE || value->region != m->at->region) return SGLIR_NONE;
        node = node_at(m, value->node);
        if (node->op == SGLIR_OP_INPUT) return SGLIR_NONE;
        if (!goes_along(node)) return value->node;
    }
}

static bool is_of_parts(const sglir_node *node)
{
    return node->op == SGLIR_OP_ALL_GATHER || node->op == SGLIR_OP_REDUCE_SCATTER || node->op == SGLIR_OP_ALL_TO_ALL;
}

/* Over other axes than these. */
static bool is_split(const sglir_type *type, int64_t beside)
{
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        split = split || (type->sharded[axis] >= 0 && (beside >> axis & 1) == 0);
    return split;
}

/* As many as a rank sends and keeps of it, which is its share of all ranks' where that is whole along what is turned.
 * Between what was told to be a part and the exchange stand reshapes and transposes, which change no number of
 * elements. */
static int64_t turned_bytes(const merger *m, const sglir_node *turn)
{
    const bool first = sglir_attr_int(from(m), turn, "to") == 1;
    const sglir_type *type = sglir_type_of(from(m), first ? sglir_arg(from(m), turn, 0) : turn->out_first);
    const int64_t axes = sglir_attr_int(from(m), turn, "axes"), ranks = sglir_attr_int(from(m), turn, "ranks");
    if (!is_split(type, axes)) return sglir_bytes(type);
    for (const sglir_node *node = turn; node && node->arg_count > 0;) {
        const sglir_id arg = sglir_arg(from(m), node, 0);
        const sglir_whole *whole = sglir_whole_of(from(m), arg);
        int64_t elements = 1;
        for (int d = 0; whole && d < sglir_type_of(from(m), arg)->rank; d++) elements *= whole->dims[d];
        if (whole) return sglcore_dtype_bytes((sgl_dtype)type->dtype, elements / ranks);
        node = sglir_maker(from(m), arg);
        if (!node || !goes_along(node) || node->op == SGLIR_OP_UNPACK) break;
    }
    return m->context->plan->bucket;
}

/* What is split over other axes too has other bytes on other ranks. Where nobody told of what it is a part, it counts
 * as a full bucket. */
static int64_t whole_bytes(const merger *m, const sglir_node *exchange)
{
    const sglir_id read = sglir_arg(from(m), exchange, 0), made = exchange->out_first;
    if (exchange->op == SGLIR_OP_ALL_TO_ALL) return turned_bytes(m, exchange);
    sglir_type type = *sglir_type_of(from(m), exchange->op == SGLIR_OP_ALL_GATHER ? made : read);
    if (!is_split(&type, 0)) return sglir_bytes(&type);
    const sglir_whole *whole = sglir_whole_of(from(m), made);
    if (!whole) whole = sglir_whole_of(from(m), read);
    if (!whole) return m->context->plan->bucket;
    memcpy(type.dims, whole->dims, (size_t)type.rank * sizeof *type.dims);
    return sglir_bytes(&type);
}

/* The position after which it can be. What the backward turns of what the forward made stays in the backward: until
 * then that lives once. */
static int64_t ready_at(const merger *m, sglir_id id, sglir_id source)
{
    const sglir_node *node = node_at(m, id);
    const bool turns = node->op == SGLIR_OP_ALL_TO_ALL;
    const bool backward = sglir_is_made_by(from(m), node, "autodiff");
    if (source == SGLIR_NONE) return FROM_THE_BEGINNING;
    if (turns && backward != sglir_is_made_by(from(m), node_at(m, source), "autodiff")) return m->position[id] - 1;
    return m->position[source];
}

/* One that reads what another such one makes stays where it is. */
static sgl_status add_item(merger *m, sglir_id id)
{
    const sglir_node *node = node_at(m, id);
    if (!is_of_parts(node)) return SGL_OK;
    const sglir_id source = source_of(m, node);
    if (source != SGLIR_NONE && is_of_parts(node_at(m, source))) return SGL_OK;
    const sglir_id reader = m->reader[node->out_first];
    const item made = {
        .node = id,
        .at = m->position[id],
        .ready = ready_at(m, id, source),
        .first_read = m->first_use[node->out_first],
        .bytes = whole_bytes(m, node),
        .for_backward = reader != SGLIR_NONE && sglir_is_made_by(from(m), node_at(m, reader), "autodiff"),
    };
    m->done[id] = 1;
    return sglcore_vec_push(m->context->env, &m->at->items, made);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* In the order in which they can be: stable, few, and nearly in order. */
static void sort_items(merger *m)
{
    for (int64_t i = 1; i < m->at->items.count; i++) {
        const item moved = m->at->items.data[i];
        int64_t to = i;
        for (; to > 0 && m->at->items.data[to - 1].ready > moved.ready; to--)
            m->at->items.data[to] = m->at->items.data[to - 1];
        m->at->items.data[to] = moved;
    }
}

static run run_of(const merger *m, const item *x)
{
    const sglir_node *node = node_at(m, x->node);
    const bool late = x->ready == FROM_THE_BEGINNING && node->op != SGLIR_OP_REDUCE_SCATTER;
    return (run){ .first = x->node,
                  .op = node->op,
                  .dtype = sglir_type_of(from(m), node->out_first)->dtype,
                  .axes = sglir_attr_int(from(m), node, "axes"),
                  .late = late,
                  .for_backward = x->for_backward,
                  .before = late ? x->at : x->ready + 1,
                  .first_read = x->first_read };
}

static bool fits(const run *a, const run *b)
{
    const bool alike = a->op == b->op && a->dtype == b->dtype && a->axes == b->axes && a->late == b->late;
    return alike && (!a->late || a->for_backward == b->for_backward);
}

/* Into the one run that is open for its like; where that would be too late for a member, or it is full, into a new one. */
static sgl_status put(merger *m, item *x)
{
    const run own = run_of(m, x);
    run *open = NULL;
    for (int64_t i = m->at->runs.count; i-- > 0 && open == NULL;)
        if (!m->at->runs.data[i].closed && fits(&m->at->runs.data[i], &own)) open = &m->at->runs.data[i];
    if (open && !own.late && open->first_read < own.before) {
        open->closed = true;
        open = NULL;
    }
    if (open == NULL) {
        SGLCORE_TRY(sglcore_vec_push(m->context->env, &m->at->runs, own));
        open = &m->at->runs.data[m->at->runs.count - 1];
    }
    x->run = (uint32_t)(open - m->at->runs.data);
    open->bytes += x->bytes;
    if (!own.late) open->before = own.before;
    if (own.first_read < open->first_read) open->first_read = own.first_read;
    open->closed = open->bytes >= m->context->plan->bucket;
    return SGL_OK;
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

/* What goes along between its source and the exchange, and an input, makers first. */
static sgl_status emit_needs(merger *m, const sglir_node *exchange)
{
    m->stack.count = 0;
    for (const sglir_node *node = exchange; node->arg_count > 0;) {
        const sglir_id arg = sglir_arg(from(m), node, 0), id = sglir_value_at(from(m), arg)->node;
        if (m->rewrite.map[arg] != SGLIR_NONE) break; /* what comes from outside is there */
        SGLCORE_TRY(sglcore_vec_push(m->context->env, &m->stack, id));
        node = node_at(m, id);
    }
    for (int64_t i = m->stack.count; i-- > 0;) {
        m->done[m->stack.data[i]] = 1;
        sglir_copy_node(&m->rewrite, m->stack.data[i]);
    }
    return sglir_status(m->rewrite.to);
}

static sgl_status add_member(merger *m, const item *x)
{
    sglcore_env *env = m->context->env;
    const sglir_node *node = node_at(m, x->node);
    const char *extent = node->op == SGLIR_OP_REDUCE_SCATTER ? "own" : "extent";
    SGLCORE_TRY(sglcore_vec_push(env, &m->args, m->rewrite.map[sglir_arg(from(m), node, 0)]));
    SGLCORE_TRY(sglcore_vec_push(env, &m->extents, sglir_attr_int(from(m), node, extent)));
    if (node->op == SGLIR_OP_ALL_TO_ALL)
        SGLCORE_TRY(sglcore_vec_push(env, &m->tos, sglir_attr_int(from(m), node, "to")));
    return sglcore_vec_push(env, &m->units, sglir_attr_int(from(m), node, "unit"));
}

static sglir_op each_of(uint16_t op)
{
    return op == SGLIR_OP_ALL_GATHER       ? SGLIR_OP_ALL_GATHER_EACH
           : op == SGLIR_OP_REDUCE_SCATTER ? SGLIR_OP_REDUCE_SCATTER_EACH
                                           : SGLIR_OP_ALL_TO_ALL_EACH;
}

static void emit_each(merger *m, const run *r, uint32_t index)
{
    sglir_graph *to = m->rewrite.to;
    const bool turns = r->op == SGLIR_OP_ALL_TO_ALL;
    const int64_t count = m->args.count;
    const sglir_named attrs[] = {
        SGLIR_I("axes", r->axes),
        SGLIR_INTS(r->op == SGLIR_OP_REDUCE_SCATTER ? "owns" : "extents", count, m->extents.data),
        SGLIR_INTS("units", count, m->units.data), SGLIR_INTS("tos", count, m->tos.data),
        SGLIR_I("ranks", turns ? sglir_attr_int(from(m), node_at(m, r->first), "ranks") : 0)
    };
    sglir_set_origin_made(to, from(m), r->first, m->rewrite.pass);
    sglir_id made = sglir_emit(to, each_of(r->op), m->args.data, (int)count, attrs, turns ? 5 : 3, NULL);
    for (int64_t i = 0; i < m->at->items.count && sglir_status(to) == SGL_OK; i++) {
        const sglir_id was = node_at(m, m->at->items.data[i].node)->out_first;
        const sglir_whole *whole = sglir_whole_of(from(m), was);
        if (m->at->items.data[i].run != index) continue;
        if (whole) sglir_set_whole(to, made, whole);
        m->rewrite.map[was] = made++;
    }
}

static sgl_status emit_run(merger *m, uint32_t index)
{
    m->args.count = m->extents.count = m->units.count = m->tos.count = 0;
    for (int64_t i = 0; i < m->at->items.count; i++)
        if (m->at->items.data[i].run == index) SGLCORE_TRY(emit_needs(m, node_at(m, m->at->items.data[i].node)));
    for (int64_t i = 0; i < m->at->items.count; i++) {
        if (m->at->items.data[i].run == index) SGLCORE_TRY(add_member(m, &m->at->items.data[i]));
    }
    if (m->args.count == 1)
        sglir_copy_node(&m->rewrite, m->at->runs.data[index].first);
    else
        emit_each(m, &m->at->runs.data[index], index);
    return sglir_status(m->rewrite.to);
}

/* Those that stand before the node of this position. */
static sgl_status emit_runs(merger *m, int64_t position)
{
    for (int64_t i = 0; i < m->at->runs.count; i++)
        if (m->at->runs.data[i].before == position) SGLCORE_TRY(emit_run(m, (uint32_t)i));
    return SGL_OK;
}

static sgl_status write_region(merger *m, sglir_id id);

static void fill_body(void *user, sglir_id id, sglir_id *results)
{
    merger *m = user;
    (void)results; /* the map's */
    sglir_stick(m->rewrite.to, write_region(m, id));
}

static sgl_status write_nodes(merger *m, const sglir_region *region)
{
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        SGLCORE_TRY(emit_runs(m, n));
        if (!m->live[id] || m->done[id]) continue;
        if (sglir_is_control(node_at(m, id)))
            sglir_copy_around(&m->rewrite, id, fill_body, m);
        else
            sglir_copy_node(&m->rewrite, id);
        SGLCORE_TRY(sglir_status(m->rewrite.to));
    }
    return emit_runs(m, region->nodes.count);
}

static sgl_status write_region(merger *m, sglir_id id)
{
    const sglir_region *region = &from(m)->regions.data[id];
    scope here = { .region = id }, *around = m->at;
    sgl_status status = SGL_OK;
    m->at = &here;
    find_uses(m, region);
    for (int64_t n = 0; n < region->nodes.count && status == SGL_OK; n++)
        if (m->live[region->nodes.data[n]]) status = add_item(m, region->nodes.data[n]);
    sort_items(m);
    for (int64_t i = 0; i < here.items.count && status == SGL_OK; i++) status = put(m, &here.items.data[i]);
    if (status == SGL_OK) status = write_nodes(m, region);
    sglcore_vec_free(m->context->env, &here.items);
    sglcore_vec_free(m->context->env, &here.runs);
    m->at = around;
    return status;
}

static sgl_status merge(merger *m)
{
    const size_t nodes = (size_t)from(m)->nodes.count + 1, values = (size_t)from(m)->values.count + 1;
    m->live = sglcore_arena_alloc(&m->arena, nodes);
    m->done = sglcore_arena_alloc(&m->arena, nodes);
    m->position = sglcore_arena_alloc(&m->arena, nodes * sizeof *m->position);
    m->first_use = sglcore_arena_alloc(&m->arena, values * sizeof *m->first_use);
    m->reader = sglcore_arena_alloc(&m->arena, values * sizeof *m->reader);
    if (!m->live || !m->done || !m->position || !m->first_use || !m->reader) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(sglir_mark_live(from(m), m->live));
    m->rewrite.live = m->live;
    return write_region(m, 0);
}

bool sglpass_has_parts(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++)
        if (is_of_parts(&g->nodes.data[n])) return true;
    return false;
}

sgl_status sglpass_collect_parts(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    merger m = { .context = context, .arena = { .env = context->env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "collect", NULL, &m.rewrite));
    sgl_status status = merge(&m);
    if (status != SGL_OK) sglir_stick(m.rewrite.to, status);
    status = sglir_rewrite_end(&m.rewrite, true, out);
    sglcore_vec_free(context->env, &m.stack);
    sglcore_vec_free(context->env, &m.args);
    sglcore_vec_free(context->env, &m.extents);
    sglcore_vec_free(context->env, &m.units);
    sglcore_vec_free(context->env, &m.tos);
    sglcore_arena_free(&m.arena);
    return status;
}
