/* collect.c -- what ranks sum together leaves in buckets.
 *
 * In: a graph of one rank in which a sum over ranks is taken of a PACK: all gradients of a section, once the last of
 * them is there. Out: the same sums, bucket by bucket: runs of the pack's arguments of at least plan.bucket bytes, from
 * its end, each summed as soon as its last argument is there, and a PACK of the results. A gradient that fills a bucket
 * alone is summed where it lies; only small ones are packed. Each element is summed in the group's order as before: the
 * bits stay. What is there all at once (made by one loop) stays one exchange. Exchanges of parts: collect_parts.c; sums
 * that stand by themselves: collect_sums.c. Odd invariant: all ranks cut alike, since a pack holds whole values only,
 * whose extents they have alike. */
#include "passes/collect_parts.h"

/* A run of arguments of a pack. */
typedef struct bucket {
    sglir_id sum; /* the node that it is cut from */
    uint32_t first, count;
    sglir_id last_maker; /* after which it can leave */
    sglir_id result;     /* in the new graph */
} bucket;

typedef struct collector {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint32_t *uses;     /* per value of the old graph */
    uint8_t *live;      /* per node */
    int64_t *position;  /* per node of the top region */
    uint8_t *collected; /* per node: a sum that is cut, or its pack */
    SGLCORE_VEC(bucket) buckets;
    SGLCORE_VEC(sglir_id) ids; /* for one node */
    sglcore_arena arena;
} collector;

static const sglir_graph *from(const collector *c) { return c->rewrite.from; }

/* The pack of which the node is the sum, and the only reader. */
static const sglir_node *pack_of(const collector *c, const sglir_node *sum)
{
    if (sum->op != SGLIR_OP_ALL_REDUCE || sum->region != 0) return NULL;
    const sglir_id arg = sglir_arg(from(c), sum, 0);
    const sglir_node *pack = sglir_maker(from(c), arg);
    const bool own = pack && pack->op == SGLIR_OP_PACK && pack->region == 0 && c->uses[arg] == 1;
    return own && pack->arg_count > 1 ? pack : NULL;
}

static int64_t bytes_of(const collector *c, sglir_id value) { return sglir_bytes(sglir_type_of(from(c), value)); }

/* The node of the top region that makes the value, or holds what does; inputs come first. */
static sglir_id maker_of(const collector *c, sglir_id value) { return sglir_value_at(from(c), value)->node; }

static sgl_status push_run(collector *c, sglir_id sum, const sglir_node *pack, uint32_t first, uint32_t end)
{
    bucket made = { .sum = sum, .first = first, .count = end - first, .last_maker = SGLIR_NONE, .result = SGLIR_NONE };
    for (uint32_t i = first; i < end; i++) {
        const sglir_id maker = maker_of(c, sglir_arg(from(c), pack, i));
        if (made.last_maker == SGLIR_NONE || c->position[maker] > c->position[made.last_maker]) made.last_maker = maker;
    }
    return sglcore_vec_push(c->context->env, &c->buckets, made);
}

/* Not all made at once. */
static bool can_cut(const collector *c, const sglir_node *pack)
{
    bool apart = false;
    for (uint32_t i = 0; i < pack->arg_count; i++) {
        apart = apart || maker_of(c, sglir_arg(from(c), pack, i)) != maker_of(c, sglir_arg(from(c), pack, 0));
    }
    return apart;
}

/* From the end: a backward makes the gradients of the last parameters first, and what is left over, smaller than a
 * bucket, is of the first ones, which come last and are waited for. */
static sgl_status cut_sum(collector *c, sglir_id id)
{
    const sglir_node *sum = sglir_node_at(from(c), id), *pack = pack_of(c, sum);
    if (pack == NULL || !can_cut(c, pack)) return SGL_OK;
    const int64_t before = c->buckets.count;
    uint32_t end = pack->arg_count;
    int64_t bytes = 0;
    for (uint32_t first = pack->arg_count; first-- > 0;) {
        bytes += bytes_of(c, sglir_arg(from(c), pack, first));
        if (bytes < c->context->plan->bucket && first > 0) continue;
        SGLCORE_TRY(push_run(c, id, pack, first, end));
        end = first;
        bytes = 0;
    }
    if (c->buckets.count == before + 1) {
        c->buckets.count = before;
        return SGL_OK;
    }
    c->collected[id] = 1;
    c->collected[sglir_value_at(from(c), sglir_arg(from(c), sum, 0))->node] = 1;
    return SGL_OK;
}

static sgl_status emit_bucket(collector *c, bucket *b)
{
    sglir_rewrite *rewrite = &c->rewrite;
    const sglir_node *sum = sglir_node_at(from(c), b->sum), *pack = pack_of(c, sum);
    const sglir_named axes = SGLIR_I("axes", sglir_attr_int(from(c), sum, "axes"));
    c->ids.count = 0;
    for (uint32_t i = 0; i < b->count; i++)
        SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->ids, rewrite->map[sglir_arg(from(c), pack, b->first + i)]));
    sglir_set_origin_made(rewrite->to, from(c), b->count == 1 ? b->last_maker : b->sum, rewrite->pass);
    sglir_id value = c->ids.data[0];
    if (b->count > 1) value = sglir_emit(rewrite->to, SGLIR_OP_PACK, c->ids.data, (int)b->count, NULL, 0, NULL);
    b->result = sglir_emit(rewrite->to, SGLIR_OP_ALL_REDUCE, &value, 1, &axes, 1, NULL);
    return sglir_status(rewrite->to);
}

/* The results of a sum's buckets, which were cut from the end. */
static sgl_status emit_sum(collector *c, sglir_id id)
{
    c->ids.count = 0;
    for (int64_t i = c->buckets.count; i-- > 0;)
        if (c->buckets.data[i].sum == id)
            SGLCORE_TRY(sglcore_vec_push(c->context->env, &c->ids, c->buckets.data[i].result));
    sglir_set_origin_made(c->rewrite.to, from(c), id, c->rewrite.pass);
    c->rewrite.map[sglir_node_at(from(c), id)->out_first] =
        sglir_emit(c->rewrite.to, SGLIR_OP_PACK, c->ids.data, (int)c->ids.count, NULL, 0, NULL);
    return sglir_status(c->rewrite.to);
}

static sgl_status copy_nodes(collector *c)
{
    const sglir_region *top = &from(c)->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id id = top->nodes.data[n];
        if (!c->live[id]) continue;
        if (!c->collected[id])
            sglir_copy_node(&c->rewrite, id);
        else if (sglir_node_at(from(c), id)->op == SGLIR_OP_ALL_REDUCE)
            SGLCORE_TRY(emit_sum(c, id));
        SGLCORE_TRY(sglir_status(c->rewrite.to));
        for (int64_t i = 0; i < c->buckets.count; i++)
            if (c->buckets.data[i].last_maker == id) SGLCORE_TRY(emit_bucket(c, &c->buckets.data[i]));
    }
    return SGL_OK;
}

static sgl_status collect(collector *c)
{
    const sglir_graph *g = from(c);
    const size_t nodes = (size_t)g->nodes.count + 1;
    c->uses = sglcore_arena_alloc(&c->arena, (size_t)(g->values.count + 1) * sizeof *c->uses);
    c->live = sglcore_arena_alloc(&c->arena, nodes);
    c->collected = sglcore_arena_alloc(&c->arena, nodes);
    c->position = sglcore_arena_alloc(&c->arena, nodes * sizeof *c->position);
    if (!c->uses || !c->live || !c->collected || !c->position) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(sglir_mark_live(g, c->live));
    sglir_count_uses(g, c->uses);
    c->rewrite.live = c->live;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) c->position[top->nodes.data[n]] = n;
    for (int64_t n = 0; n < top->nodes.count; n++)
        if (c->live[top->nodes.data[n]]) SGLCORE_TRY(cut_sum(c, top->nodes.data[n]));
    return copy_nodes(c);
}

typedef sgl_status merging(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

static sgl_status then(const sglpass_context *context, merging *merge, sglir_graph **g)
{
    sglir_graph *before = *g;
    *g = NULL;
    const sgl_status status = merge(context, before, g);
    sglir_graph_free(before);
    return status;
}

sgl_status sglpass_collect(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    collector c = { .context = context, .arena = { .env = context->env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "collect", NULL, &c.rewrite));
    sgl_status status = collect(&c);
    if (status != SGL_OK) c.rewrite.to->status = status;
    status = sglir_rewrite_end(&c.rewrite, true, out);
    const bool parts = status == SGL_OK && sglpass_has_parts(*out);
    if (parts) status = then(context, sglpass_collect_parts, out);
    const bool sums = status == SGL_OK && sglpass_has_sums(*out);
    if (sums) status = then(context, sglpass_collect_sums, out);
    if (status == SGL_OK && (parts || sums))
        sglpass_say_by_hash(context, in, *out);
    else if (status == SGL_OK)
        sglpass_say(context, in, *out, c.buckets.count > 0);
    sglcore_vec_free(context->env, &c.buckets);
    sglcore_vec_free(context->env, &c.ids);
    sglcore_arena_free(&c.arena);
    return status;
}
