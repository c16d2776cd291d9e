/* memory.c -- every stored value gets its place.
 *
 * In: a graph of kernels, ordered; the session's layout; the device's need of workspace. Out: the same graph, with the
 * copies that its outputs and carries need as nodes, every stored value with space and offset, every node with its
 * workspace, the bytes of each space and the arena's lower bound.
 *   state   parameters, states and caches: where the layout has them, else behind, at multiples of 4 KiB
 *   io      feeds and fetches, each a place of its own
 *   const   numbers
 *   arena   the rest: lifetimes packed into as few bytes as can be
 *   host    what is moved to memory of the host for a while, packed alike
 *   away    states that lie in memory of the host: as `state`
 * Which values share a place is memory_share.c's, packing memory_pack.c's. Odd invariant: what freeze adds by itself
 * (first carries and yields into the carry's place, updates into the state's) reads only places that nothing else
 * overwrites at that moment; where that would not hold, a copy node stands here. */
#include <string.h>

#include "passes/memory_pack.h"
#include "passes/memory_share.h"
#include "passes/pass.h"

enum { ALIGNMENT = 64, STATE_ALIGNMENT = 4096 };

/* ---- copies ------------------------------------------------------------------------------------------------- */

/* A copy of an output's value that stands before or after a node; SGLIR_NONE as node: at the end. */
typedef struct request {
    int64_t output;
    sglir_id node, copy;
    bool before;
} request;

typedef struct copier {
    sglir_rewrite rewrite;
    sglpass_view *views; /* of the old graph */
    uint8_t *live;       /* per node of it */
    SGLCORE_VEC(request) requests;
    sglcore_arena arena;
} copier;

static sglir_id copy_value(copier *c, sglir_id value)
{
    sglir_rewrite *rewrite = &c->rewrite;
    sglir_id maker = sglir_value_at(rewrite->from, c->views[value].root)->node, made = SGLIR_NONE;
    if (maker != SGLIR_NONE) sglir_set_origin_made(rewrite->to, rewrite->from, maker, rewrite->pass);
    sglir_emit(rewrite->to, SGLIR_OP_COPY, &rewrite->map[value], 1, NULL, 0, &made);
    return made;
}

static void copy_node(copier *c, sglir_id node);

/* What carry i of the loop yields; copied first when it is another carry, whose place is about to be written. */
static sglir_id copy_turn(copier *c, const sglir_region *body, int64_t i)
{
    sglir_id turn = body->results.data[i], root = c->views[turn].root;
    bool other = false;
    for (int64_t k = 1; k < body->parameters.count; k++)
        other = other || (k != i + 1 && body->parameters.data[k] == root);
    return other ? copy_value(c, turn) : c->rewrite.map[turn];
}

static void copy_body(void *user, sglir_id id, sglir_id *results)
{
    copier *c = user;
    const sglir_region *body = &c->rewrite.from->regions.data[id];
    for (int64_t n = 0; n < body->nodes.count && c->rewrite.to->status == SGL_OK; n++) {
        if (c->live[body->nodes.data[n]]) copy_node(c, body->nodes.data[n]);
    }
    bool turns = sglir_is_loop(sglir_node_at(c->rewrite.from, body->node)) &&
                 sglir_body(sglir_node_at(c->rewrite.from, body->node)) == id;
    for (int64_t i = 0; i < body->results.count && turns; i++) results[i] = copy_turn(c, body, i);
}

static void copy_node(copier *c, sglir_id node)
{
    if (sglir_is_control(sglir_node_at(c->rewrite.from, node))) {
        sglir_copy_around(&c->rewrite, node, copy_body, c);
    } else {
        sglir_copy_node(&c->rewrite, node);
    }
}

/* The node that makes the new value of the state that `input` reads; SGLIR_NONE when none does. */
static sglir_id maker_of_update(const copier *c, const sglir_node *input)
{
    const sglir_graph *g = c->rewrite.from;
    const char *name = sglir_attr_string(g, input, "name");
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role != SGLIR_UPDATE || strcmp(sglcore_string(g->strings, output->name), name) != 0) continue;
        sglir_id maker = sglir_value_at(g, c->views[output->value].root)->node;
        return sglir_node_at(g, maker)->op == SGLIR_OP_INPUT ? SGLIR_NONE : maker;
    }
    return SGLIR_NONE;
}

/* A fetch that nothing would keep is copied as soon as it is made; a state that becomes the new value of another, before
 * its own new value is made. */
static sgl_status request_copies(copier *c)
{
    const sglir_graph *g = c->rewrite.from;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        sglir_id root = c->views[output->value].root, maker = sglir_value_at(g, root)->node;
        request wanted = { .output = i, .copy = SGLIR_NONE };
        if (output->role == SGLIR_FETCH) {
            if (!sglpass_fetch_needs_copy(g, c->views, output->value)) continue;
            wanted.node = sglir_value_at(g, output->value)->node;
        } else {
            const sglir_node *input = sglir_node_at(g, maker);
            if (input->op != SGLIR_OP_INPUT || sglir_attr_int(g, input, "role") == SGL_FEED) continue;
            if (sglir_input_find(g, sglcore_string(g->strings, output->name)) == root) continue;
            wanted.node = maker_of_update(c, input);
            wanted.before = true;
        }
        SGLCORE_TRY(sglcore_vec_push(g->env, &c->requests, wanted));
    }
    return SGL_OK;
}

static void serve(copier *c, sglir_id node, bool before)
{
    for (int64_t i = 0; i < c->requests.count; i++) {
        request *wanted = &c->requests.data[i];
        if (wanted->node != node || (node != SGLIR_NONE && wanted->before != before)) continue;
        wanted->copy = copy_value(c, c->rewrite.from->outputs.data[wanted->output].value);
    }
}

static sgl_status copy_nodes(copier *c)
{
    const sglir_graph *from = c->rewrite.from;
    const sglir_region *top = &from->regions.data[0];
    SGLCORE_TRY(sglir_mark_live(from, c->live));
    sglpass_find_views(from, c->views);
    SGLCORE_TRY(request_copies(c));
    for (int64_t n = 0; n < top->nodes.count && sglir_status(c->rewrite.to) == SGL_OK; n++) {
        sglir_id node = top->nodes.data[n];
        if (!c->live[node]) continue;
        serve(c, node, true);
        copy_node(c, node);
        serve(c, node, false);
    }
    serve(c, SGLIR_NONE, false);
    return sglir_status(c->rewrite.to);
}

static sgl_status put_copies(const copier *c, sglir_graph *g)
{
    for (int64_t i = 0; i < c->requests.count; i++) {
        const request *wanted = &c->requests.data[i];
        sglir_output *output = &g->outputs.data[wanted->output];
        output->value = wanted->copy;
        sglcore_hash key = { .low = output->name, .high = 1 + (uint64_t)output->role };
        SGLCORE_TRY(sglcore_map_put(g->env, &g->names, key, output->value));
    }
    return SGL_OK;
}

/* The graph once more, with its copies. */
static sgl_status add_copies(sglcore_env *env, const sglir_graph *in, sglir_graph **out)
{
    copier c = { .arena = { .env = env } };
    SGLCORE_TRY(sglir_rewrite_begin(env, in, "memory", NULL, &c.rewrite));
    c.views = sglcore_arena_alloc(&c.arena, (size_t)in->values.count * sizeof *c.views);
    c.live = sglcore_arena_alloc(&c.arena, (size_t)in->nodes.count);
    sgl_status status = c.views == NULL || c.live == NULL ? SGL_OUT_OF_MEMORY : copy_nodes(&c);
    if (status != SGL_OK) c.rewrite.to->status = status;
    status = sglir_rewrite_end(&c.rewrite, true, out);
    if (status == SGL_OK) status = put_copies(&c, *out);
    sglcore_vec_free(env, &c.requests);
    sglcore_arena_free(&c.arena);
    return status;
}

/* ---- spaces ------------------------------------------------------------------------------------------------- */

static sgl_status fail_state(const sglir_graph *g, const char *name, const sglir_type *has, const sglir_type *wanted)
{
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglcore_fail(g->env, SGL_TYPE, "%s: the graph wants %s, the session has it as %s from an earlier program",
                        name, sglir_type_text(wanted, a, sizeof a), sglir_type_text(has, b, sizeof b));
}

/* The end of what the layout holds in a space. */
static int64_t end_of_layout(const sglir_graph *layout, sglir_space space)
{
    int64_t end = 0;
    for (int64_t v = 0; layout != NULL && v < layout->values.count; v++) {
        const sglir_value *value = &layout->values.data[v];
        if (value->space != space) continue;
        int64_t stop = value->offset + sglir_bytes(&value->type);
        if (stop > end) end = stop;
    }
    return end;
}

static sgl_status place_states(const sglpass_context *context, sglpass_sharing *s, sglir_graph *g)
{
    const sglir_graph *layout = context->layout;
    int64_t ends[SGLIR_SPACES] = { [SGLIR_SPACE_STATE] = end_of_layout(layout, SGLIR_SPACE_STATE),
                                   [SGLIR_SPACE_AWAY] = end_of_layout(layout, SGLIR_SPACE_AWAY) };
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") == SGL_FEED) continue;
        const sglir_type *type = sglir_type_of(g, node->out_first);
        const char *name = sglir_attr_string(g, node, "name");
        sglpass_group *group = &s->groups[sglpass_head(s, node->out_first)];
        sglir_id known = layout != NULL ? sglir_input_find(layout, name) : SGLIR_NONE;
        if (known != SGLIR_NONE) {
            if (!sglir_type_equal(sglir_type_of(layout, known), type))
                return fail_state(g, name, sglir_type_of(layout, known), type);
            group->space = sglir_value_at(layout, known)->space;
            group->offset = sglir_value_at(layout, known)->offset;
        } else {
            group->offset = sglpass_align_up(ends[group->space], STATE_ALIGNMENT);
            ends[group->space] = group->offset + sglir_bytes(type);
        }
    }
    g->space_bytes[SGLIR_SPACE_STATE] = sglpass_align_up(ends[SGLIR_SPACE_STATE], STATE_ALIGNMENT);
    g->space_bytes[SGLIR_SPACE_AWAY] = sglpass_align_up(ends[SGLIR_SPACE_AWAY], STATE_ALIGNMENT);
    return SGL_OK;
}

/* One after another, each group of the space for itself. */
static void place_apart(sglpass_sharing *s, sglir_graph *g, sglir_space space)
{
    int64_t end = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        sglpass_group *group = &s->groups[v];
        if (group->space != space || group->next != (sglir_id)v || s->views[v].root != (sglir_id)v) continue;
        group->offset = sglpass_align_up(end, ALIGNMENT);
        end = group->offset + sglir_bytes(&g->values.data[v].type);
    }
    g->space_bytes[space] = end;
}

/* ---- the arena ---------------------------------------------------------------------------------------------- */

typedef struct arena_blocks {
    SGLCORE_VEC(sglpass_block) blocks;
    SGLCORE_VEC(sglir_id) owners; /* values, or nodes for workspace */
    int64_t groups;               /* the first blocks are values' */
} arena_blocks;

static sgl_status push_block(sglcore_env *env, arena_blocks *a, sglir_id owner, int64_t bytes, int64_t first,
                             int64_t last)
{
    SGLCORE_TRY(sglcore_vec_push(env, &a->owners, owner));
    return sglcore_vec_push(env, &a->blocks, (sglpass_block){ .bytes = bytes, .first = first, .last = last });
}

static sgl_status gather_blocks(const sglpass_context *context, const sglpass_sharing *s, sglir_graph *g,
                                sglir_space space, arena_blocks *a)
{
    for (int64_t v = 0; v < g->values.count; v++) {
        const sglpass_group *group = &s->groups[v];
        int64_t bytes = sglir_bytes(&g->values.data[v].type);
        if (group->space != space || group->next != (sglir_id)v || bytes == 0) continue;
        SGLCORE_TRY(push_block(g->env, a, (sglir_id)v, bytes, group->first, group->last));
    }
    a->groups = a->blocks.count;
    for (int64_t n = 0; space == SGLIR_SPACE_ARENA && context->workspace != NULL && n < g->nodes.count; n++) {
        if (s->begins[n] < 0) continue;
        int64_t bytes = context->workspace(g, (sglir_id)n);
        g->nodes.data[n].work_bytes = bytes;
        if (bytes > 0) SGLCORE_TRY(push_block(g->env, a, (sglir_id)n, bytes, s->begins[n], s->ends[n]));
    }
    return SGL_OK;
}

/* The arena, with workspaces; or the same in memory of the host. */
static sgl_status place_arena(const sglpass_context *context, sglpass_sharing *s, sglir_graph *g, sglir_space space)
{
    arena_blocks a = { .groups = 0 };
    sglpass_packing packing;
    sgl_status status = gather_blocks(context, s, g, space, &a);
    if (status == SGL_OK)
        status = sglpass_pack_blocks(g->env, a.blocks.data, a.blocks.count, s->moments, ALIGNMENT, &packing);
    for (int64_t i = 0; i < a.blocks.count && status == SGL_OK; i++) {
        int64_t offset = a.blocks.data[i].offset;
        if (i < a.groups)
            s->groups[a.owners.data[i]].offset = offset;
        else
            g->nodes.data[a.owners.data[i]].work_offset = offset;
    }
    if (status == SGL_OK) {
        g->space_bytes[space] = packing.bytes;
        if (space == SGLIR_SPACE_ARENA) g->arena_lower_bound = packing.lower_bound;
    }
    sglcore_vec_free(g->env, &a.blocks);
    sglcore_vec_free(g->env, &a.owners);
    return status;
}

/* ---- the pass ------------------------------------------------------------------------------------------------ */

static void put_places(const sglpass_sharing *s, sglir_graph *g)
{
    for (int64_t v = 0; v < g->values.count; v++) {
        const sglpass_group *group = &s->groups[sglpass_head(s, (sglir_id)v)];
        sglir_value *value = &g->values.data[v];
        if (value->node != SGLIR_NONE && s->begins[value->node] < 0) continue; /* within a kernel */
        if (group->space == SGLIR_SPACE_NONE) continue;
        value->space = group->space;
        value->offset = group->offset + s->views[v].offset;
    }
}

static sgl_status place(const sglpass_context *context, sglir_graph *g)
{
    sglpass_sharing sharing;
    SGLCORE_TRY(sglpass_share(context->env, g, &sharing));
    sgl_status status = place_states(context, &sharing, g);
    place_apart(&sharing, g, SGLIR_SPACE_IO);
    place_apart(&sharing, g, SGLIR_SPACE_CONST);
    if (status == SGL_OK) status = place_arena(context, &sharing, g, SGLIR_SPACE_ARENA);
    if (status == SGL_OK) status = place_arena(context, &sharing, g, SGLIR_SPACE_HOST);
    if (status == SGL_OK) put_places(&sharing, g);
    sglpass_share_free(&sharing);
    return status;
}

sgl_status sglpass_memory(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglir_graph *g = NULL;
    sgl_status status = add_copies(context->env, in, &g);
    if (status == SGL_OK) status = place(context, g);
    if (status != SGL_OK) {
        sglir_graph_free(g);
        return status;
    }
    *out = g;
    sglpass_say(context, in, g, g->values.count > 0);
    return SGL_OK;
}
