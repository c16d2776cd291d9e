/* collect_runs.c -- exchanges of a region in runs: who reads what they make, where each can stand, and the new graph.
 *
 * In: a graph of one rank, and what is merged in it. Out: the same graph, in which each run is one exchange, right behind
 * the last of what its members read (early), or before the first reader of the first of them (late). What stands between
 * an exchange and what it is made of (casts, transposes) goes with it. Bodies of loops, over micro-batches above all,
 * and branches are each done by themselves. Odd invariant: runs follow from the graph's order and from bytes that all
 * ranks have alike. */
#include "passes/collect_parts.h"

static const sglir_graph *from(const sglpass_merger *m) { return m->rewrite.from; }

/* ---- what there is ----------------------------------------------------------------------------------------------- */

typedef struct reading {
    sglpass_merger *m;
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

static void find_uses(sglpass_merger *m, const sglir_region *region)
{
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglpass_merged_at(m, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) {
            m->first_use[node->out_first + i] = region->nodes.count;
            m->reader[node->out_first + i] = SGLIR_NONE;
        }
    }
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = sglpass_merged_at(m, id);
        reading r = { m, id };
        m->position[id] = n;
        if (!m->live[id]) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) read_value(&r, sglir_arg(from(m), node, i));
        if (sglir_is_control(node)) sglir_each_capture(from(m), node, read_value, &r);
    }
}

bool sglpass_merge_goes_along(const sglir_node *node)
{
    return node->op == SGLIR_OP_CAST || node->op == SGLIR_OP_RESHAPE || node->op == SGLIR_OP_TRANSPOSE ||
           node->op == SGLIR_OP_UNPACK;
}

sglir_id sglpass_merge_source(const sglpass_merger *m, const sglir_node *exchange)
{
    for (const sglir_node *node = exchange;;) {
        const sglir_value *value = sglir_value_at(from(m), sglir_arg(from(m), node, 0));
        if (value->node == SGLIR_NONE || value->region != m->at->region) return SGLIR_NONE;
        node = sglpass_merged_at(m, value->node);
        if (node->op == SGLIR_OP_INPUT) return SGLIR_NONE;
        if (!sglpass_merge_goes_along(node)) return value->node;
    }
}

static sgl_status add_item(sglpass_merger *m, sglir_id id)
{
    const sglir_node *node = sglpass_merged_at(m, id);
    sglpass_merge_item made = { .node = id, .at = m->position[id], .run = SGLPASS_IN_NO_RUN };
    if (!sglir_is_exchange(node->op) || !m->merging->item(m, id, &made)) return SGL_OK;
    made.first_read = m->first_use[node->out_first];
    return sglcore_vec_push(m->context->env, &m->at->items, made);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* In the order in which they can be: stable, few, and nearly in order. */
static void sort_items(sglpass_merger *m)
{
    for (int64_t i = 1; i < m->at->items.count; i++) {
        const sglpass_merge_item moved = m->at->items.data[i];
        int64_t to = i;
        for (; to > 0 && m->at->items.data[to - 1].ready > moved.ready; to--)
            m->at->items.data[to] = m->at->items.data[to - 1];
        m->at->items.data[to] = moved;
    }
}

bool sglpass_merge_fits(const sglpass_merge_run *a, const sglpass_merge_run *b)
{
    const bool alike = a->op == b->op && a->dtype == b->dtype && a->axes == b->axes && a->partial == b->partial &&
                       a->scaled == b->scaled;
    return alike && a->late == b->late && a->for_backward == b->for_backward;
}

sglpass_merge_run *sglpass_merge_open(sglpass_merger *m, const sglpass_merge_run *own)
{
    sglpass_merge_run *open = NULL;
    for (int64_t i = m->at->runs.count; i-- > 0 && open == NULL;)
        if (!m->at->runs.data[i].closed && sglpass_merge_fits(&m->at->runs.data[i], own)) open = &m->at->runs.data[i];
    if (open == NULL || own->late || open->first_read >= own->before) return open;
    open->closed = true;
    return NULL;
}

sgl_status sglpass_merge_join(sglpass_merger *m, sglpass_merge_item *item, const sglpass_merge_run *own,
                              sglpass_merge_run *open)
{
    if (open == NULL) {
        SGLCORE_TRY(sglcore_vec_push(m->context->env, &m->at->runs, *own));
        open = &m->at->runs.data[m->at->runs.count - 1];
    }
    item->run = (int32_t)(open - m->at->runs.data);
    open->members++;
    open->bytes += item->bytes;
    if (!own->late) open->before = own->before;
    if (own->first_read < open->first_read) open->first_read = own->first_read;
    open->closed = open->bytes >= m->context->plan->bucket;
    return SGL_OK;
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

/* What goes along between its source and the exchange, and an input, makers first. */
static sgl_status emit_needs(sglpass_merger *m, const sglir_node *exchange)
{
    m->stack.count = 0;
    for (const sglir_node *node = exchange; node->arg_count > 0;) {
        const sglir_id arg = sglir_arg(from(m), node, 0), id = sglir_value_at(from(m), arg)->node;
        if (m->rewrite.map[arg] != SGLIR_NONE) break; /* what comes from outside is there */
        SGLCORE_TRY(sglcore_vec_push(m->context->env, &m->stack, id));
        node = sglpass_merged_at(m, id);
    }
    for (int64_t i = m->stack.count; i-- > 0;) {
        m->done[m->stack.data[i]] = 1;
        sglir_copy_node(&m->rewrite, m->stack.data[i]);
    }
    return sglir_status(m->rewrite.to);
}

static sgl_status emit_run(sglpass_merger *m, int32_t index)
{
    const sglpass_merge_run run = m->at->runs.data[index];
    for (int64_t i = 0; i < m->at->items.count; i++)
        if (m->at->items.data[i].run == index)
            SGLCORE_TRY(emit_needs(m, sglpass_merged_at(m, m->at->items.data[i].node)));
    if (run.members == 1)
        sglir_copy_node(&m->rewrite, run.first);
    else
        SGLCORE_TRY(m->merging->emit(m, &run, index));
    return sglir_status(m->rewrite.to);
}

/* Those that stand before the node of this position. */
static sgl_status emit_runs(sglpass_merger *m, int64_t position)
{
    for (int64_t i = 0; i < m->at->runs.count; i++)
        if (m->at->runs.data[i].before == position) SGLCORE_TRY(emit_run(m, (int32_t)i));
    return SGL_OK;
}

static sgl_status write_region(sglpass_merger *m, sglir_id id);

static void fill_body(void *user, sglir_id id, sglir_id *results)
{
    sglpass_merger *m = user;
    (void)results; /* the map's */
    sglir_stick(m->rewrite.to, write_region(m, id));
}

static sgl_status write_nodes(sglpass_merger *m, const sglir_region *region)
{
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_id id = region->nodes.data[n];
        SGLCORE_TRY(emit_runs(m, n));
        if (!m->live[id] || m->done[id]) continue;
        if (sglir_is_control(sglpass_merged_at(m, id)))
            sglir_copy_around(&m->rewrite, id, fill_body, m);
        else
            sglir_copy_node(&m->rewrite, id);
        SGLCORE_TRY(sglir_status(m->rewrite.to));
    }
    return emit_runs(m, region->nodes.count);
}

static sgl_status make_runs(sglpass_merger *m, const sglir_region *region)
{
    sglpass_merge_scope *here = m->at;
    for (int64_t n = 0; n < region->nodes.count; n++)
        if (m->live[region->nodes.data[n]]) SGLCORE_TRY(add_item(m, region->nodes.data[n]));
    sort_items(m);
    for (int64_t i = 0; i < here->items.count; i++) SGLCORE_TRY(m->merging->put(m, i));
    for (int64_t i = 0; i < here->items.count; i++) {
        sglpass_merge_item *item = &here->items.data[i];
        sglpass_merge_run *run = item->run == SGLPASS_IN_NO_RUN ? NULL : &here->runs.data[item->run];
        if (run && run->members == 1 && m->merging->one_stays) {
            run->before = SGLPASS_FROM_THE_BEGINNING; /* nowhere */
            run = NULL;
        }
        m->done[item->node] = run != NULL;
    }
    return SGL_OK;
}

static sgl_status write_region(sglpass_merger *m, sglir_id id)
{
    const sglir_region *region = &from(m)->regions.data[id];
    sglpass_merge_scope here = { .region = id }, *around = m->at;
    m->at = &here;
    find_uses(m, region);
    sgl_status status = make_runs(m, region);
    if (status == SGL_OK) status = write_nodes(m, region);
    sglcore_vec_free(m->context->env, &here.items);
    sglcore_vec_free(m->context->env, &here.runs);
    m->at = around;
    return status;
}

static sgl_status merge(sglpass_merger *m)
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

sgl_status sglpass_merge(const sglpass_context *context, const sglpass_merging *merging, const sglir_graph *in,
                         sglir_graph **out)
{
    sglpass_merger m = { .context = context, .merging = merging, .arena = { .env = context->env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "collect", NULL, &m.rewrite));
    sgl_status status = merge(&m);
    if (status != SGL_OK) sglir_stick(m.rewrite.to, status);
    status = sglir_rewrite_end(&m.rewrite, true, out);
    sglcore_vec_free(context->env, &m.stack);
    sglcore_vec_free(context->env, &m.args);
    for (int i = 0; i < 3; i++) sglcore_vec_free(context->env, &m.lists[i]);
    sglcore_arena_free(&m.arena);
    return status;
}
