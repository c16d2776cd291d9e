/* rewrite.c -- how a pass turns one graph into another: a walk over the live nodes in order, a rule that takes what it
 * knows, and a copy of everything else. In: a graph, a rule. Out: a new graph with its origins, regions, captures,
 * placements, outputs and members; or a failure, and then nothing is left behind. Odd invariant: the map speaks of
 * values only, so a rule may give for a result whatever value of the new graph it likes, in the same region or around. */
#include <string.h>

#include "ir/ir.h"

/* ---- small helpers ------------------------------------------------------------------------------------------ */

enum { IDS_AT_HAND = 32 };

/* Room for ids: on the stack, or, for the few nodes with many arguments (pack), from the env. */
typedef struct id_room {
    sglir_id at_hand[IDS_AT_HAND];
    sglir_id *ids;
    size_t bytes; /* 0: at_hand */
} id_room;

static bool room_take(sglir_graph *g, id_room *room, size_t count)
{
    room->bytes = 0;
    room->ids = room->at_hand;
    if (count <= IDS_AT_HAND) return true;
    room->bytes = count * sizeof *room->ids;
    room->ids = sglcore_alloc(g->env, room->bytes);
    if (room->ids == NULL) sglir_stick(g, SGL_OUT_OF_MEMORY);
    return room->ids != NULL;
}

static void room_give(sglir_graph *g, id_room *room)
{
    if (room->bytes > 0) sglcore_free(g->env, room->ids, room->bytes);
}

/* A rule left out a value that is used: an error of the pass, not of the graph. */
static void fail_unmapped(sglir_rewrite *rewrite, sglir_id value, const char *user)
{
    sglir_graph *to = rewrite->to;
    if (to->status != SGL_OK) return;
    const sglir_node *maker = sglir_maker(rewrite->from, value);
    char origin[256];
    to->status =
        sglcore_fail(to->env, SGL_INTERNAL, "%s: value %u (of %s at '%s') was dropped, but %s uses it", rewrite->pass,
                     (unsigned)value, maker != NULL ? sglir_ops[maker->op].name : "a region",
                     maker != NULL ? sglir_origin_text(rewrite->from, maker->origin, origin, sizeof origin) : "", user);
}

/* Maps `count` ids; false (and a failure in the new graph) when one of them was not made. */
static bool map_ids(sglir_rewrite *rewrite, const sglir_id *from, int64_t count, const char *user, sglir_id *to)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] = rewrite->map[from[i]];
        if (to[i] == SGLIR_NONE) {
            fail_unmapped(rewrite, from[i], user);
            return false;
        }
    }
    return true;
}

static void copy_value(sglir_rewrite *rewrite, sglir_id from, sglir_id to)
{
    const sglir_value *source = sglir_value_at(rewrite->from, from);
    sglir_value *copy = &rewrite->to->values.data[to];
    copy->space = source->space;
    copy->offset = source->offset;
    rewrite->map[from] = to;
    const sglir_whole *whole = sglir_whole_of(rewrite->from, from);
    if (whole != NULL && sglir_type_equal(&source->type, &copy->type)) sglir_set_whole(rewrite->to, to, whole);
}

/* ---- copying nodes and regions ------------------------------------------------------------------------------ */

/* What the walk hands down: all NULL in a plain copy. */
typedef struct visit {
    sglir_rewrite *rewrite;
    sglir_rule rule;
    const uint8_t *live; /* per node of `from`; NULL: all */
    sglir_filler filler; /* emits what stands in regions, instead of the walk */
    void *user;          /* the filler's */
} visit;

static void visit_node(const visit *v, sglir_id id);

static void visit_nodes(const visit *v, sglir_id region)
{
    const sglir_graph *from = v->rewrite->from;
    int64_t count = from->regions.data[region].nodes.count;
    for (int64_t i = 0; i < count && v->rewrite->to->status == SGL_OK; i++) {
        sglir_id node = from->regions.data[region].nodes.data[i];
        if (v->live == NULL || v->live[node]) visit_node(v, node);
    }
}

/* A region's last parameters stand for the node's arguments: where a rule has changed an argument's type, the
 * parameter's follows. All others (scan's index before them, too) stay as they are. */
static sglir_type parameter_type(const sglir_rewrite *rewrite, const sglir_node *node, const sglir_id *args,
                                 const sglir_region *region, int64_t i)
{
    int64_t arg = i - (region->parameters.count - node->arg_count);
    const sglir_type *was = sglir_type_of(rewrite->from, region->parameters.data[i]);
    if (arg < 0 || arg >= node->arg_count) return *was;
    const sglir_type *now = sglir_type_of(rewrite->to, args[arg]);
    return sglir_type_equal(now, sglir_type_of(rewrite->from, sglir_arg(rewrite->from, node, (uint32_t)arg))) ? *was
                                                                                                              : *now;
}

/* Emits what stands in the region and writes its results. */
static bool fill_region(const visit *v, sglir_id id, sglir_id *results)
{
    sglir_rewrite *rewrite = v->rewrite;
    const sglir_region *region = &rewrite->from->regions.data[id];
    for (int64_t i = 0; i < region->results.count; i++) results[i] = SGLIR_NONE;
    if (rewrite->to->status != SGL_OK) return false;
    if (v->filler != NULL)
        v->filler(v->user, id, results);
    else
        visit_nodes(v, id);
    for (int64_t i = 0; i < region->results.count && rewrite->to->status == SGL_OK; i++) {
        if (results[i] == SGLIR_NONE) map_ids(rewrite, &region->results.data[i], 1, "a region's results", &results[i]);
    }
    return rewrite->to->status == SGL_OK;
}

/* The region anew, as region `made` of the new graph. */
static void visit_region(const visit *v, const sglir_node *node, const sglir_id *args, sglir_id id, sglir_id made)
{
    sglir_rewrite *rewrite = v->rewrite;
    sglir_graph *to = rewrite->to;
    const sglir_region *region = &rewrite->from->regions.data[id];
    int64_t count = region->parameters.count;
    sglir_type *types = sglcore_alloc(to->env, (size_t)count * sizeof *types);
    id_room room = { .ids = NULL };
    if (count > 0 && types == NULL) {
        sglir_stick(to, SGL_OUT_OF_MEMORY);
    } else if (room_take(to, &room, (size_t)(count > region->results.count ? count : region->results.count))) {
        for (int64_t i = 0; i < count; i++) { types[i] = parameter_type(rewrite, node, args, region, i); }
        sglir_region_begin_at(to, made, types, (int)count, room.ids);
        for (int64_t i = 0; i < count && to->status == SGL_OK; i++) {
            copy_value(rewrite, region->parameters.data[i], room.ids[i]);
        }
        if (fill_region(v, id, room.ids)) sglir_region_end(to, room.ids, (int)region->results.count);
        room_give(to, &room);
    }
    sglcore_free(to->env, types, (size_t)count * sizeof *types);
}

/* Emits the op with mapped arguments, around its regions visited anew. */
static void copy_op(const visit *v, sglir_id id, id_room *room)
{
    sglir_rewrite *rewrite = v->rewrite;
    const sglir_graph *from = rewrite->from;
    sglir_graph *to = rewrite->to;
    const sglir_node *node = sglir_node_at(from, id);
    sglir_id *args = room->ids, *outs = args + node->arg_count, *regions = outs + node->out_count;
    const sglir_id *given = node->arg_count > 0 ? &from->args.data[node->arg_first] : NULL;
    if (!map_ids(rewrite, given, node->arg_count, sglir_ops[node->op].name, args)) return;
    sglir_id first = node->region_count > 0 ? sglir_region_take(to, (int)node->region_count) : SGLIR_NONE;
    for (uint32_t r = 0; r < node->region_count && to->status == SGL_OK; r++) {
        regions[r] = first + r;
        visit_region(v, node, args, node->region_first + r, regions[r]);
    }
    if (to->status != SGL_OK) return;
    sglir_set_origin_of(to, &from->origins.data[node->origin], from);
    sglir_named named[SGLIR_MOST_ATTRS];
    int named_count = sglir_attrs_named(from, node, named);
    sglir_emit_regions(to, (sglir_op)node->op, args, (int)node->arg_count, named, named_count, regions,
                       (int)node->region_count, outs);
    if (to->status != SGL_OK) return;
    sglir_node *copy = &to->nodes.data[to->nodes.count - 1];
    copy->epoch = node->epoch;
    copy->turn = node->turn;
    copy->work_offset = node->work_offset;
    copy->work_bytes = node->work_bytes;
    for (uint32_t i = 0; i < node->out_count; i++) copy_value(rewrite, node->out_first + i, outs[i]);
}

static void copy_node(const visit *v, sglir_id id)
{
    sglir_rewrite *rewrite = v->rewrite;
    const sglir_graph *from = rewrite->from;
    sglir_graph *to = rewrite->to;
    const sglir_node *node = sglir_node_at(from, id);
    if (to->status != SGL_OK) return;
    id_room room;
    if (!room_take(to, &room, (size_t)node->arg_count + node->out_count + node->region_count)) return;
    copy_op(v, id, &room);
    room_give(to, &room);
}

void sglir_copy_node(sglir_rewrite *rewrite, sglir_id node)
{
    visit plain = { .rewrite = rewrite, .live = rewrite->live != NULL && rewrite->live[node] ? rewrite->live : NULL };
    copy_node(&plain, node);
}

void sglir_copy_around(sglir_rewrite *rewrite, sglir_id node, sglir_filler filler, void *user)
{
    visit around = { .rewrite = rewrite, .filler = filler, .user = user };
    copy_node(&around, node);
}

void sglir_set_origin_made(sglir_graph *g, const sglir_graph *from, sglir_id node, const char *pass)
{
    const sglir_origin origin = from->origins.data[sglir_node_at(from, node)->origin]; /* g may be from, and grows */
    if (sglir_is_made_by(from, sglir_node_at(from, node), "autodiff")) pass = "autodiff";
    sglir_set_origin(g, sglcore_string(from->strings, origin.file), origin.line,
                     sglcore_string(from->strings, origin.scope), pass);
}

static void visit_node(const visit *v, sglir_id id)
{
    if (v->rule != NULL) {
        sglir_rewrite *rewrite = v->rewrite;
        sglir_set_origin_made(rewrite->to, rewrite->from, id, rewrite->pass);
        if (v->rule(rewrite, id)) return;
    }
    copy_node(v, id);
}

/* ---- begin, end, and the whole ------------------------------------------------------------------------------ */

sgl_status sglir_rewrite_begin(sglcore_env *env, const sglir_graph *from, const char *pass, void *user,
                               sglir_rewrite *rewrite)
{
    *rewrite = (sglir_rewrite){ .from = from, .user = user, .pass = pass };
    SGLCORE_TRY(sglir_graph_new(env, sglcore_string(from->strings, from->name), &rewrite->to));
    size_t bytes = (size_t)from->values.count * sizeof *rewrite->map;
    rewrite->map = sglcore_alloc(env, bytes);
    if (rewrite->map == NULL && bytes > 0) {
        sglir_graph_free(rewrite->to);
        rewrite->to = NULL;
        return SGL_OUT_OF_MEMORY;
    }
    for (int64_t i = 0; i < from->values.count; i++) rewrite->map[i] = SGLIR_NONE;
    for (int64_t i = 0; i < from->recomputed.count; i++)
        sglir_recompute(rewrite->to, sglcore_string(from->strings, from->recomputed.data[i]));
    return SGL_OK;
}

static sgl_status copy_members(const sglir_graph *from, sglir_graph *to)
{
    for (int64_t i = 0; i < from->members.count; i++) {
        sglir_member member = from->members.data[i];
        const char *section = sglcore_string(from->strings, member.section);
        const char *name = sglcore_string(from->strings, member.name);
        SGLCORE_TRY(sglcore_intern(to->strings, section, strlen(section), &member.section));
        SGLCORE_TRY(sglcore_intern(to->strings, name, strlen(name), &member.name));
        SGLCORE_TRY(sglcore_vec_push(to->env, &to->members, member));
    }
    return SGL_OK;
}

static sgl_status copy_border(sglir_rewrite *rewrite)
{
    const sglir_graph *from = rewrite->from;
    sglir_graph *to = rewrite->to;
    for (int64_t i = 0; i < from->outputs.count && to->status == SGL_OK; i++) {
        const sglir_output *output = &from->outputs.data[i];
        const char *name = sglcore_string(from->strings, output->name);
        sglir_id value;
        if (map_ids(rewrite, &output->value, 1, name, &value)) sglir_output_add(to, output->role, name, value);
    }
    SGLCORE_TRY(to->status);
    memcpy(to->space_bytes, from->space_bytes, sizeof to->space_bytes);
    to->arena_lower_bound = from->arena_lower_bound;
    return copy_members(from, to);
}

sgl_status sglir_rewrite_end(sglir_rewrite *rewrite, bool copy_outputs, sglir_graph **to)
{
    sglir_graph *made = rewrite->to;
    sgl_status status = sglir_status(made);
    if (status == SGL_OK && copy_outputs) status = copy_border(rewrite);
    sglcore_free(made->env, rewrite->map, (size_t)rewrite->from->values.count * sizeof *rewrite->map);
    rewrite->map = NULL;
    rewrite->to = NULL;
    *to = NULL;
    if (status == SGL_OK) {
        *to = made;
    } else {
        sglir_graph_free(made);
    }
    return status;
}

sgl_status sglir_rewrite_graph(sglcore_env *env, const sglir_graph *from, const char *pass, sglir_rule rule, void *user,
                               sglir_graph **to)
{
    *to = NULL;
    sglir_rewrite rewrite;
    SGLCORE_TRY(sglir_rewrite_begin(env, from, pass, user, &rewrite));
    size_t bytes = (size_t)from->nodes.count;
    uint8_t *live = sglcore_alloc(env, bytes);
    if (live == NULL && bytes > 0) {
        rewrite.to->status = SGL_OUT_OF_MEMORY;
    } else {
        sgl_status status = sglir_mark_live(from, live);
        if (status != SGL_OK) rewrite.to->status = status;
        rewrite.live = live;
        visit all = { .rewrite = &rewrite, .rule = rule, .live = live };
        if (status == SGL_OK) visit_nodes(&all, 0);
    }
    sglcore_free(env, live, bytes);
    return sglir_rewrite_end(&rewrite, true, to);
}
