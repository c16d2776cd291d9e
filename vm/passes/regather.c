/* regather.c -- parameters that are in parts are whole for the forward, and again for the backward, not between.
 *
 * In: a graph of one rank in which a gathered parameter is read by the forward, and by the backward behind it. Out: the same with
 * a second gather right before the first node of the backward that wants it, and with what the forward made of the first one
 * alone (casts, views): so the whole lives twice for a short time, for (n - 1) / n of its bytes once more over the link. Where
 * turns of a pipeline mix forward and backward, or one loop holds both, the first whole serves both. Odd invariant: what is gathered
 * again follows from the graph alone, never from bytes, so that all ranks exchange alike; clones carry an epoch, and are never
 * merged back. */
#include "passes/pass.h"

enum { NOWHERE = -1 };

typedef struct regatherer {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint8_t *live, *backward; /* per node */
    uint8_t *steady;       /* per value: a parameter's part, or made of one alone: the same at any time of the step */
    uint8_t *swapped;      /* per value: map has the second whole */
    sglir_id *gather;      /* per value: the node that gathers it, or that of which it is made alone; SGLIR_NONE */
    sglir_id *again;       /* per value of those: the second whole, SGLIR_NONE while there is none */
    int64_t *last_forward; /* per node that gathers: position of its last reader in the forward */
    int64_t *first_backward;
    SGLCORE_VEC(sglir_id) reads; /* of one node */
    uint16_t epoch;
    bool changed;
    sglcore_arena arena;
} regatherer;

static const sglir_graph *from(const regatherer *r) { return r->rewrite.from; }
static const sglir_node *node_at(const regatherer *r, sglir_id node) { return sglir_node_at(from(r), node); }

static void push_read(void *user, sglir_id value)
{
    regatherer *r = user;
    sglir_stick(r->rewrite.to, sglcore_vec_push(r->context->env, &r->reads, value));
}

/* What the node uses of the top region, captures of its regions included. */
static void find_reads(regatherer *r, const sglir_node *node)
{
    r->reads.count = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) push_read(r, sglir_arg(from(r), node, i));
    if (sglir_is_control(node)) sglir_each_capture(from(r), node, push_read, r);
}

/* ---- what is gathered, and who reads it ------------------------------------------------------------------------------ */

/* It goes with its argument: made again it costs next to nothing. */
static bool goes_along(const sglir_node *node)
{
    switch (node->op) {
    case SGLIR_OP_CAST:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_TRANSPOSE:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_UNPACK: return true;
    default: return false;
    }
}

static bool is_kept(const regatherer *r, const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT && sglir_attr_int(from(r), node, "role") != SGL_FEED;
}

static void look_at(regatherer *r, sglir_id id)
{
    const sglir_node *node = node_at(r, id);
    bool steady = node->arg_count > 0;
    sglir_id gather = SGLIR_NONE;
    r->backward[id] = sglir_is_made_by(from(r), node, "autodiff");
    find_reads(r, node);
    for (int64_t i = 0; i < r->reads.count; i++) {
        const sglir_id maker = sglir_value_at(from(r), r->reads.data[i])->node;
        if (maker != SGLIR_NONE) r->backward[id] |= r->backward[maker];
        steady = steady && r->steady[r->reads.data[i]];
    }
    if (goes_along(node) && !r->backward[id]) gather = r->gather[sglir_arg(from(r), node, 0)];
    if (node->op == SGLIR_OP_ALL_GATHER && steady && !r->backward[id]) gather = id;
    steady = is_kept(r, node) || (goes_along(node) && steady);
    for (uint32_t i = 0; i < node->out_count; i++) {
        r->steady[node->out_first + i] = steady;
        r->gather[node->out_first + i] = gather;
    }
}

static void note_reader(regatherer *r, sglir_id value, int64_t position, bool backward)
{
    const sglir_id gather = r->gather[value];
    if (gather == SGLIR_NONE) return;
    if (!backward) r->last_forward[gather] = position;
    if (backward && r->first_backward[gather] == NOWHERE) r->first_backward[gather] = position;
}

static void find_readers(regatherer *r)
{
    const sglir_region *top = &from(r)->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id id = top->nodes.data[n];
        const sglir_node *node = node_at(r, id);
        if (!r->live[id]) continue;
        look_at(r, id);
        if (node->out_count > 0 && r->gather[node->out_first] != SGLIR_NONE) continue; /* it goes along */
        for (int64_t i = 0; i < r->reads.count; i++) note_reader(r, r->reads.data[i], n, r->backward[id]);
    }
    for (int64_t i = 0; i < from(r)->outputs.count; i++)
        note_reader(r, from(r)->outputs.data[i].value, top->nodes.count, false);
}

static bool is_gathered_again(const regatherer *r, sglir_id value)
{
    const sglir_id gather = r->gather[value];
    if (gather == SGLIR_NONE || r->last_forward[gather] == NOWHERE) return false;
    return r->first_backward[gather] > r->last_forward[gather];
}

/* ---- the new graph ---------------------------------------------------------------------------------------------------- */

static void swap(regatherer *r, sglir_id value)
{
    const sglir_id other = r->again[value];
    r->again[value] = r->rewrite.map[value];
    r->rewrite.map[value] = other;
    r->swapped[value] = !r->swapped[value];
}

/* From the gather on, makers first. */
static void make_again(regatherer *r, sglir_id value)
{
    if (r->again[value] != SGLIR_NONE || r->swapped[value] || r->rewrite.to->status != SGL_OK) return;
    sglir_graph *to = r->rewrite.to;
    const sglir_id id = sglir_value_at(from(r), value)->node, arg = sglir_arg(from(r), node_at(r, id), 0);
    const sglir_node *node = node_at(r, id);
    const bool along = id != r->gather[value];
    if (along) make_again(r, arg);
    if (along && !r->swapped[arg]) swap(r, arg);
    for (uint32_t i = 0; i < node->out_count; i++) swap(r, node->out_first + i);
    sglir_copy_node(&r->rewrite, id);
    for (uint32_t i = 0; i < node->out_count; i++) swap(r, node->out_first + i);
    if (along) swap(r, arg);
    if (to->status != SGL_OK) return;
    sglir_set_origin_made(to, from(r), id, r->rewrite.pass);
    sglir_node *clone = &to->nodes.data[to->nodes.count - 1];
    clone->epoch = r->epoch;
    clone->origin = to->origin;
    r->changed = true;
}

static void write_node(regatherer *r, sglir_id id)
{
    const sglir_node *node = node_at(r, id);
    find_reads(r, node);
    for (int64_t i = 0; i < r->reads.count && r->backward[id]; i++) {
        const sglir_id value = r->reads.data[i];
        if (!is_gathered_again(r, value) || r->swapped[value]) continue;
        make_again(r, value);
        swap(r, value);
    }
    sglir_copy_node(&r->rewrite, id);
    for (int64_t i = 0; i < r->reads.count; i++)
        if (r->swapped[r->reads.data[i]]) swap(r, r->reads.data[i]);
}

static sgl_status make_room(regatherer *r)
{
    const size_t values = (size_t)from(r)->values.count + 1, nodes = (size_t)from(r)->nodes.count + 1;
    r->live = sglcore_arena_alloc(&r->arena, nodes);
    r->backward = sglcore_arena_alloc(&r->arena, nodes);
    r->steady = sglcore_arena_alloc(&r->arena, values);
    r->swapped = sglcore_arena_alloc(&r->arena, values);
    r->gather = sglcore_arena_alloc(&r->arena, values * sizeof *r->gather);
    r->again = sglcore_arena_alloc(&r->arena, values * sizeof *r->again);
    r->last_forward = sglcore_arena_alloc(&r->arena, nodes * sizeof *r->last_forward);
    r->first_backward = sglcore_arena_alloc(&r->arena, nodes * sizeof *r->first_backward);
    if (!r->live || !r->backward || !r->steady || !r->swapped || !r->gather || !r->again || !r->last_forward ||
        !r->first_backward)
        return SGL_OUT_OF_MEMORY;
    for (int64_t v = 0; v < from(r)->values.count; v++) r->gather[v] = r->again[v] = SGLIR_NONE;
    for (int64_t n = 0; n < from(r)->nodes.count; n++) {
        r->last_forward[n] = r->first_backward[n] = NOWHERE;
        if (node_at(r, (sglir_id)n)->epoch >= r->epoch && r->epoch < UINT16_MAX)
            r->epoch = (uint16_t)(node_at(r, (sglir_id)n)->epoch + 1);
    }
    return sglir_mark_live(from(r), r->live);
}

sgl_status sglpass_regather(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    regatherer r = { .context = context, .epoch = 1, .arena = { .env = context->env } };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "regather", NULL, &r.rewrite));
    sglir_stick(r.rewrite.to, make_room(&r));
    if (sglir_status(r.rewrite.to) == SGL_OK) {
        const sglir_region *top = &in->regions.data[0];
        r.rewrite.live = r.live;
        find_readers(&r);
        for (int64_t n = 0; n < top->nodes.count && sglir_status(r.rewrite.to) == SGL_OK; n++)
            if (r.live[top->nodes.data[n]]) write_node(&r, top->nodes.data[n]);
    }
    sgl_status status = sglir_rewrite_end(&r.rewrite, true, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, r.changed);
    sglcore_vec_free(context->env, &r.reads);
    sglcore_arena_free(&r.arena);
    return status;
}
