/* regather.c -- parameters that are in parts are whole for the forward, and again for the backward, not between.
 *
 * In: a graph of one rank in which a gathered parameter is read by the forward, and by the backward behind it. Out: the
 * same with a second gather right before the first node of the backward that wants it, and with what the forward made
 * of the first one alone (casts, views): so the whole lives twice for a short time, for (n - 1) / n of its bytes once
 * more over the link. Where turns of a pipeline mix forward and backward, or one loop holds both, the first whole
 * serves both. Odd invariant: what is gathered again follows from the graph alone, never from bytes, so that all ranks
 * exchange alike; clones carry an epoch, and are never merged back. */
#include "passes/pass.h"

enum { NOWHERE = -1 };

typedef struct regatherer {
    const sglpass_context *context;
    sglir_rewrite rewrite;
    uint8_t *live, *backward; /* per node */
    uint8_t *steady;       /* per value: a parameter's part, or made of one alone: the same at any time of the step */
    uint8_t *swapped;      /* per value: map has the second whole */
    sglir_id *whole;       /* per value: what is gathered, of which it is made alone (or it is that); SGLIR_NONE */
    sglir_id *again;       /* per value of those: the second one, SGLIR_NONE while there is none */
    int64_t *last_forward; /* per value that is gathered: position of its last reader in the forward */
    int64_t *first_backward;
    SGLCORE_VEC(sglir_id) reads; /* of one node */
    SGLCORE_VEC(sglir_id) args;  /* of one gather of many */
    SGLCORE_VEC(int64_t) numbers;
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

/* ---- what is gathered, and who reads it -------------------------------------------------------------------------- */

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

static bool is_gather(const sglir_node *node)
{
    return node->op == SGLIR_OP_ALL_GATHER || node->op == SGLIR_OP_ALL_GATHER_EACH;
}

static void look_at(regatherer *r, sglir_id id)
{
    const sglir_node *node = node_at(r, id);
    bool steady = node->arg_count > 0;
    sglir_id whole = SGLIR_NONE;
    r->backward[id] = sglir_is_made_by(from(r), node, "autodiff");
    find_reads(r, node);
    for (int64_t i = 0; i < r->reads.count; i++) {
        const sglir_id maker = sglir_value_at(from(r), r->reads.data[i])->node;
        if (maker != SGLIR_NONE) r->backward[id] |= r->backward[maker];
        steady = steady && r->steady[r->reads.data[i]];
    }
    const bool gathers = is_gather(node) && steady && !r->backward[id];
    if (goes_along(node) && !r->backward[id]) whole = r->whole[sglir_arg(from(r), node, 0)];
    steady = is_kept(r, node) || (goes_along(node) && steady);
    for (uint32_t i = 0; i < node->out_count; i++) {
        r->steady[node->out_first + i] = steady;
        r->whole[node->out_first + i] = gathers ? node->out_first + i : whole;
    }
}

static void note_reader(regatherer *r, sglir_id value, int64_t position, bool backward)
{
    const sglir_id whole = r->whole[value];
    if (whole == SGLIR_NONE) return;
    if (!backward) r->last_forward[whole] = position;
    if (backward && r->first_backward[whole] == NOWHERE) r->first_backward[whole] = position;
}

static void find_readers(regatherer *r)
{
    const sglir_region *top = &from(r)->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_id id = top->nodes.data[n];
        const sglir_node *node = node_at(r, id);
        if (!r->live[id]) continue;
        look_at(r, id);
        if (node->out_count > 0 && r->whole[node->out_first] != SGLIR_NONE) continue; /* it goes along */
        for (int64_t i = 0; i < r->reads.count; i++) note_reader(r, r->reads.data[i], n, r->backward[id]);
    }
    for (int64_t i = 0; i < from(r)->outputs.count; i++)
        note_reader(r, from(r)->outputs.data[i].value, top->nodes.count, false);
}

static bool is_gathered_again(const regatherer *r, sglir_id value)
{
    const sglir_id whole = r->whole[value];
    if (whole == SGLIR_NONE || r->last_forward[whole] == NOWHERE) return false;
    return r->first_backward[whole] > r->last_forward[whole];
}

/* ---- the new graph ----------------------------------------------------------------------------------------------- */

static void swap(regatherer *r, sglir_id value)
{
    const sglir_id other = r->again[value];
    r->again[value] = r->rewrite.map[value];
    r->rewrite.map[value] = other;
    r->swapped[value] = !r->swapped[value];
}

static void set_made(regatherer *r, sglir_id of)
{
    sglir_graph *to = r->rewrite.to;
    if (to->status != SGL_OK) return;
    sglir_set_origin_made(to, from(r), of, r->rewrite.pass);
    sglir_node *clone = &to->nodes.data[to->nodes.count - 1];
    clone->epoch = r->epoch;
    clone->turn = 0; /* it runs when the backward wants it */
    clone->origin = to->origin;
    r->changed = true;
}

static void copy_again(regatherer *r, sglir_id id)
{
    const sglir_node *node = node_at(r, id);
    for (uint32_t i = 0; i < node->out_count; i++) swap(r, node->out_first + i);
    sglir_copy_node(&r->rewrite, id);
    for (uint32_t i = 0; i < node->out_count; i++) swap(r, node->out_first + i);
    set_made(r, id);
}

/* Of a gather of many, those that the backward wants. */
static sgl_status list_some(regatherer *r, const sglir_node *node)
{
    sglcore_env *env = r->context->env;
    static const char *const lists[] = { "extents", "units" };
    r->args.count = r->numbers.count = 0;
    for (int l = 0; l < 2; l++) {
        int count;
        const int64_t *numbers = sglir_attr_ints(from(r), node, lists[l], &count);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (!is_gathered_again(r, node->out_first + i)) continue;
            SGLCORE_TRY(sglcore_vec_push(env, &r->numbers, numbers[i]));
            if (l == 0) SGLCORE_TRY(sglcore_vec_push(env, &r->args, r->rewrite.map[sglir_arg(from(r), node, i)]));
        }
    }
    return SGL_OK;
}

static sgl_status gather_some(regatherer *r, sglir_id id)
{
    sglir_graph *to = r->rewrite.to;
    const sglir_node *node = node_at(r, id);
    SGLCORE_TRY(list_some(r, node));
    const int64_t some = r->args.count, *numbers = r->numbers.data;
    const sglir_named axes = SGLIR_I("axes", sglir_attr_int(from(r), node, "axes"));
    const sglir_named each[] = { axes, SGLIR_INTS("extents", some, numbers),
                                 SGLIR_INTS("units", some, numbers + some) };
    const sglir_named one[] = { axes, SGLIR_I("extent", numbers[0]), SGLIR_I("unit", numbers[some]) };
    sglir_id made = sglir_emit(to, some > 1 ? SGLIR_OP_ALL_GATHER_EACH : SGLIR_OP_ALL_GATHER, r->args.data, (int)some,
                               some > 1 ? each : one, 3, NULL);
    set_made(r, id);
    for (uint32_t i = 0; i < node->arg_count && sglir_status(to) == SGL_OK; i++) {
        const sglir_whole *whole = sglir_whole_of(from(r), node->out_first + i);
        if (!is_gathered_again(r, node->out_first + i)) continue;
        if (whole) sglir_set_whole(to, made, whole);
        r->again[node->out_first + i] = made++;
    }
    return sglir_status(to);
}

/* From the gather on, makers first. */
static void make_again(regatherer *r, sglir_id value)
{
    if (r->again[value] != SGLIR_NONE || r->swapped[value] || r->rewrite.to->status != SGL_OK) return;
    const sglir_id id = sglir_value_at(from(r), value)->node;
    const sglir_node *node = node_at(r, id);
    if (node->op == SGLIR_OP_ALL_GATHER_EACH) {
        sglir_stick(r->rewrite.to, gather_some(r, id));
        return;
    }
    const sglir_id arg = sglir_arg(from(r), node, 0);
    const bool along = r->whole[value] != value, swaps = along && !r->swapped[arg];
    if (along) make_again(r, arg);
    if (swaps) swap(r, arg);
    copy_again(r, id);
    if (swaps) swap(r, arg);
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
    r->whole = sglcore_arena_alloc(&r->arena, values * sizeof *r->whole);
    r->again = sglcore_arena_alloc(&r->arena, values * sizeof *r->again);
    r->last_forward = sglcore_arena_alloc(&r->arena, values * sizeof *r->last_forward);
    r->first_backward = sglcore_arena_alloc(&r->arena, values * sizeof *r->first_backward);
    if (!r->live || !r->backward || !r->steady || !r->swapped || !r->whole || !r->again || !r->last_forward ||
        !r->first_backward)
        return SGL_OUT_OF_MEMORY;
    for (int64_t v = 0; v < from(r)->values.count; v++) {
        r->whole[v] = r->again[v] = SGLIR_NONE;
        r->last_forward[v] = r->first_backward[v] = NOWHERE;
    }
    for (int64_t n = 0; n < from(r)->nodes.count; n++) {
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
    sglcore_vec_free(context->env, &r.args);
    sglcore_vec_free(context->env, &r.numbers);
    sglcore_arena_free(&r.arena);
    return status;
}
