/* recompute.c -- the pass `recompute`: what the backward needs of the forward is made again instead of kept.
 *
 *   needs    what is kept between forward and backward                          recompute_needs.c
 *   choice   by annotation, then against a budget: bytes spared over cost       recompute_choose.c
 *   clones   what it takes to make a value again; the peak on paper             recompute_again.c
 *   graph    clones written right before the first node that needs them         here
 *
 * In: a graph of forward and backward, per region (a loop over micro-batches has both in its body). Out: the same, with
 * clones for the backward, or with moves to memory of the host and back. A clone carries an epoch, so that no pass merges it back with its original, and what it reads
 * of the forward it reads through an `after`, behind the gradient that comes in there, so that no pass draws it forward.
 * Random numbers are counted from the same ids: a mask is the same the second time. Odd invariant: every value of the
 * old graph may have two in the new one, what the forward made and what the backward sees; they differ where the
 * backward sees a clone, or waits. */
#include "passes/recompute_parts.h"

typedef struct writer {
    sglpass_again again;
    sglir_rewrite made; /* the map of what the forward made; outputs follow it */
    sglir_rewrite seen; /* the map of what the backward sees; the same new graph */
    sglir_id *waits;    /* per value: the trigger that seen's value waits for */
    sglir_id *host;     /* per value: where it is in memory of the host, SGLIR_NONE: nowhere */
    uint16_t epoch;
    bool changed;
} writer;

static bool failed(const writer *w) { return w->made.to->status != SGL_OK; }

static void stick(writer *w, sgl_status status)
{
    if (status != SGL_OK) sglir_stick(w->made.to, status);
}

/* ---- what clones wait for ----------------------------------------------------------------------------------------- */

/* A gradient that stands before the node, will be stored anyway, and depends on all that the forward made up to `reach`:
 * the last such one. Where nodes outside of kernels are made again for one within, there must be `depth` levels left to its
 * own, or it would leave the kernel that it is in without them, and what that one works out be stored. SGLIR_NONE when
 * there is none, and nothing to wait for. */
static sglir_id find_trigger(const writer *w, sglir_id user, int64_t reach, int32_t depth)
{
    const sglpass_again *s = &w->again;
    const sglir_region *region = &s->g->regions.data[s->region];
    bool free = depth <= 1 || sglpass_again_outside(sglpass_again_at(s, user));
    sglir_id last = SGLIR_NONE;
    for (int64_t n = s->node[user].position - 1; n >= 0; n--) {
        sglir_id id = region->nodes.data[n];
        const sglir_node *node = sglpass_again_at(s, id);
        if (!s->node[id].live || !s->node[id].backward || s->node[id].reach < reach || node->op == SGLIR_OP_AFTER)
            continue;
        for (uint32_t k = 0; k < node->out_count; k++) {
            sglir_id value = node->out_first + k;
            if (!s->value[value].counted || !s->value[value].needed || s->value[value].root != value) continue;
            if (free || sglpass_again_level_after(s, id) + depth <= s->node[user].level) return value;
            if (last == SGLIR_NONE) last = value;
        }
    }
    return last;
}

/* The value as the backward sees it from now on: behind the trigger. */
static sglir_id wait_for(writer *w, sglir_id value, sglir_id trigger, sglir_id clone)
{
    sglir_id *seen = &w->seen.map[value];
    if (trigger == SGLIR_NONE || failed(w)) return *seen;
    if (w->waits[value] == trigger) return *seen;
    sglir_id args[] = { w->made.map[value], w->seen.map[trigger] }, after = SGLIR_NONE;
    sglir_set_origin_made(w->made.to, w->made.from, clone, "recompute");
    sglir_emit(w->made.to, SGLIR_OP_AFTER, args, 2, NULL, 0, &after);
    if (failed(w)) return SGLIR_NONE;
    w->made.to->nodes.data[w->made.to->nodes.count - 1].epoch = w->epoch;
    w->waits[value] = trigger;
    return *seen = after;
}

/* ---- clones ------------------------------------------------------------------------------------------------------- */

/* A clone waits with what the forward made; where it reads nothing of that, with its first argument. */
static void settle_arguments(writer *w, const sglir_node *node, sglir_id id, sglir_id trigger)
{
    const sglpass_again *s = &w->again;
    bool behind = false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id arg = sglir_arg(s->g, node, i);
        const sglir_node *maker = sglir_maker(s->g, arg);
        bool generated = maker != NULL && (sglir_ops[maker->op].flags & SGLIR_GENERATOR) && maker->arg_count == 0;
        if (sglpass_again_cloned(s, arg)) {
            behind = true;
        } else if (s->value[arg].varies && !generated) {
            wait_for(w, arg, trigger, id);
            behind = true;
        }
    }
    if (!behind) wait_for(w, sglir_arg(s->g, node, 0), trigger, id);
}

static void set_made(writer *w, sglir_id id)
{
    if (failed(w)) return;
    sglir_set_origin_made(w->made.to, w->made.from, id, "recompute");
    sglir_node *made = &w->made.to->nodes.data[w->made.to->nodes.count - 1];
    made->epoch = w->epoch;
    made->turn = 0; /* it runs when it fits, or when the backward wants it */
    made->origin = w->made.to->origin;
    w->changed = true;
}

/* Moves what the forward has made, and is not to be kept on the device, to memory of the host. */
static void send_away(writer *w, sglir_id id)
{
    const sglir_node *node = sglpass_again_at(&w->again, id);
    for (uint32_t k = 0; k < node->out_count && !failed(w); k++) {
        const sglir_id value = node->out_first + k;
        if (!w->again.value[value].away) continue;
        w->host[value] = sglir_emit(w->made.to, SGLIR_OP_OFFLOAD, &w->made.map[value], 1, NULL, 0, NULL);
        set_made(w, id);
    }
}

/* And back. Whoever schedules says when: it waits for nothing but its being there. */
static void fetch_back(writer *w, sglir_id id)
{
    const sglir_node *node = sglpass_again_at(&w->again, id);
    for (uint32_t k = 0; k < node->out_count && !failed(w); k++) {
        const sglir_id value = node->out_first + k;
        if (!w->again.value[value].away) continue;
        w->seen.map[value] = sglir_emit(w->made.to, SGLIR_OP_PREFETCH, &w->host[value], 1, NULL, 0, NULL);
        set_made(w, id);
    }
}

static void write_clone(writer *w, sglir_id id, sglir_id trigger)
{
    const sglpass_again *s = &w->again;
    const sglir_node *node = sglpass_again_at(s, id);
    if (s->node[id].away) {
        fetch_back(w, id);
        return;
    }
    sglir_graph *to = w->made.to;
    enum { AT_HAND = 16 };
    sglir_id kept[AT_HAND];
    settle_arguments(w, node, id, trigger);
    for (uint32_t k = 0; k < node->out_count && k < AT_HAND; k++) kept[k] = w->seen.map[node->out_first + k];
    sglir_copy_node(&w->seen, id);
    if (failed(w)) return;
    sglir_set_origin_made(to, w->made.from, id, "recompute");
    sglir_node *clone = &to->nodes.data[to->nodes.count - 1];
    clone->epoch = w->epoch;
    clone->turn = 0; /* it runs when the backward wants it */
    clone->origin = to->origin;
    for (uint32_t k = 0; k < node->out_count && k < AT_HAND; k++) {
        sglir_id value = node->out_first + k;
        if (s->value[value].stored && !s->value[value].again) w->seen.map[value] = kept[k];
    }
    w->changed = true;
}

static int64_t reach_of_cone(const sglpass_again *s)
{
    int64_t reach = -1;
    for (int64_t i = 0; i < s->cone.count; i++)
        if (s->node[s->cone.data[i]].position > reach) reach = s->node[s->cone.data[i]].position;
    return reach;
}

/* How many levels the clones of the cone take, with what they wait for each: the `after` is one of them. */
static int32_t depth_of_cone(const sglpass_again *s)
{
    int32_t most = 0;
    for (int64_t i = 0; i < s->cone.count; i++) {
        sglir_id id = s->cone.data[i];
        const sglir_node *node = sglpass_again_at(s, id);
        int32_t depth = 1;
        for (uint32_t a = 0; a < node->arg_count; a++) {
            sglir_id arg = sglir_arg(s->g, node, a);
            if (sglpass_again_cloned(s, arg) && s->node[sglpass_again_maker(s, arg)].depth > depth)
                depth = s->node[sglpass_again_maker(s, arg)].depth;
        }
        s->node[id].depth = depth + sglpass_again_outside(node);
        if (s->node[id].depth > most) most = s->node[id].depth;
    }
    return most;
}

/* All clones that the node of the backward needs and that are not there yet. */
static void write_clones(writer *w, sglir_id id)
{
    sglpass_again *s = &w->again;
    sglpass_again_ids uses = { 0 };
    stick(w, sglpass_again_uses(s, id));
    for (int64_t i = 0; i < s->uses.count && !failed(w); i++)
        stick(w, sglcore_vec_push(s->env, &uses, s->uses.data[i]));
    for (int64_t i = 0; i < uses.count && !failed(w); i++) {
        stick(w, sglpass_again_cone(s, uses.data[i]));
        if (failed(w) || s->cone.count == 0) continue;
        sglir_id trigger = find_trigger(w, id, reach_of_cone(s), depth_of_cone(s));
        for (int64_t c = 0; c < s->cone.count && !failed(w); c++) write_clone(w, s->cone.data[c], trigger);
    }
    sglcore_vec_free(s->env, &uses);
}

/* ---- the walk ----------------------------------------------------------------------------------------------------- */

static void write_nodes(writer *w, sglir_id id);

/* What a body waited with, of the regions around it, is no matter of theirs. */
static void forget_waiting(writer *w, sglir_id body)
{
    for (int64_t v = 0; v < w->made.from->values.count; v++) {
        if (w->waits[v] == SGLIR_NONE || w->made.from->values.data[v].region == body) continue;
        w->waits[v] = SGLIR_NONE;
        w->seen.map[v] = w->made.map[v];
    }
}

static void write_body(void *user, sglir_id id, sglir_id *results)
{
    (void)results; /* the map's */
    writer *w = user;
    const sglir_region *region = &w->made.from->regions.data[id];
    sglir_id around = w->again.region;
    bool any_around = w->again.any;
    uint32_t stamp = w->again.stamp;
    for (int64_t i = 0; i < region->parameters.count; i++)
        w->seen.map[region->parameters.data[i]] = w->made.map[region->parameters.data[i]];
    write_nodes(w, id);
    forget_waiting(w, id);
    w->again.region = around;
    w->again.any = any_around;
    w->again.stamp = stamp;
}

static void copy_results(const sglir_node *node, const sglir_id *from, sglir_id *to)
{
    for (uint32_t k = 0; k < node->out_count; k++) to[node->out_first + k] = from[node->out_first + k];
}

/* A loop of the backward sees of what is around it what the backward sees; its body has a forward and a backward of its
 * own, as that of a loop over micro-batches whose gradients are divided by a count. */
static void write_loop(writer *w, sglir_id id)
{
    sglpass_again *s = &w->again;
    sglpass_again_ids uses = { 0 }, kept = { 0 };
    stick(w, sglpass_again_uses(s, id));
    for (int64_t i = 0; i < s->uses.count && s->node[id].backward && !failed(w); i++) {
        sglir_id value = s->uses.data[i];
        stick(w, sglcore_vec_push(s->env, &uses, value));
        if (!failed(w)) stick(w, sglcore_vec_push(s->env, &kept, w->made.map[value]));
        w->made.map[value] = w->seen.map[value];
    }
    if (!failed(w)) sglir_copy_around(&w->made, id, write_body, w);
    for (int64_t i = kept.count - 1; i >= 0; i--) w->made.map[uses.data[i]] = kept.data[i];
    sglcore_vec_free(s->env, &uses);
    sglcore_vec_free(s->env, &kept);
}

static void write_node(writer *w, sglir_id id)
{
    const sglir_node *node = sglir_node_at(w->made.from, id);
    bool backward = w->again.node[id].backward;
    if (backward && w->again.any) write_clones(w, id);
    if (failed(w)) return;
    if (node->region_count > 0)
        write_loop(w, id);
    else
        sglir_copy_node(backward ? &w->seen : &w->made, id);
    if (backward && node->region_count == 0)
        copy_results(node, w->seen.map, w->made.map);
    else
        copy_results(node, w->made.map, w->seen.map);
    if (w->again.node[id].away) send_away(w, id);
}

/* A node that holds regions is met after the regions around it: what is known of these is done with by then. */
static void write_nodes(writer *w, sglir_id id)
{
    sglpass_again *s = &w->again;
    bool both = false;
    stick(w, sglpass_again_find(s, id, &both));
    if (!failed(w) && both) stick(w, sglpass_again_choose(s, s->context->give_back));
    s->any = s->any && both;
    s->stamp++;
    const sglir_region *region = &s->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count && !failed(w); n++)
        if (s->node[region->nodes.data[n]].live) write_node(w, region->nodes.data[n]);
}

static sgl_status mark_live(writer *w)
{
    const sglir_graph *g = w->again.g;
    size_t nodes = (size_t)g->nodes.count;
    uint8_t *live = sglcore_arena_alloc(&w->again.arena, nodes);
    if (live == NULL) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(sglir_mark_live(g, live));
    for (size_t n = 0; n < nodes; n++) {
        w->again.node[n].live = live[n];
        if (g->nodes.data[n].epoch >= w->epoch && w->epoch < UINT16_MAX)
            w->epoch = (uint16_t)(g->nodes.data[n].epoch + 1);
    }
    return SGL_OK;
}

sgl_status sglpass_recompute(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglcore_env *env = context->env;
    writer w = { .again = { .context = context, .env = env, .g = in, .arena = { .env = env } }, .epoch = 1 };
    *out = NULL;
    SGLCORE_TRY(sglir_rewrite_begin(env, in, "recompute", NULL, &w.made));
    w.seen = w.made;
    size_t values = (size_t)in->values.count;
    w.seen.map = sglcore_arena_alloc(&w.again.arena, values * sizeof *w.seen.map);
    w.host = sglcore_arena_alloc(&w.again.arena, values * sizeof *w.host);
    w.waits = sglcore_arena_alloc(&w.again.arena, values * sizeof *w.waits);
    sgl_status status =
        w.seen.map && w.host && w.waits && sglpass_again_room(&w.again) ? mark_live(&w) : SGL_OUT_OF_MEMORY;
    for (size_t v = 0; v < values && status == SGL_OK; v++) w.seen.map[v] = w.host[v] = w.waits[v] = SGLIR_NONE;
    if (status == SGL_OK)
        write_nodes(&w, 0);
    else
        sglir_stick(w.made.to, status);
    status = sglir_rewrite_end(&w.made, true, out);
    if (status == SGL_OK) sglpass_say(context, in, *out, w.changed);
    sglcore_vec_free(env, &w.again.uses);
    sglcore_vec_free(env, &w.again.cone);
    sglcore_vec_free(env, &w.again.stack);
    sglcore_arena_free(&w.again.arena);
    return status;
}
