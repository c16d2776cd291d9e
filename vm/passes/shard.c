/* shard.c -- layouts over the ranks of a mesh: from the whole step to that of one rank.
 *
 * In: a step over the whole batch, forward, backward and optimizer in one graph; plan->mesh, plan->layouts. Out: the
 * same mathematics as one rank of the mesh runs it: local extents, and exchanges where a value is wanted otherwise than
 * it is there.
 *   apart   what cannot be split as one becomes what it is made of: means, losses of a split vocabulary, packs
 *   lay     what goes from module to module is laid out as the plan's activations say
 *   demand  which values will be wanted in parts, by parameters and states that are kept so
 *   forms   per axis a value is whole, split along a dimension, or partial (a sum over the axis is owed); feeds begin
 *           split along their rows over the data axes and along their sequence over cp, parameters and states as
 *           layouts say (shard.h)
 *   choose  each node, makers before users, runs along labels of ops.def, or carries sums it is linear in, or takes
 *           whole values: whatever sends the fewest bytes; gradients so stay partial until something that is not linear
 *           wants them
 *   beyond  a few ops run over parts that their labels refuse: a table by rows, extremes, a part of the queries
 *   ring    attention may take the blocks of keys that other ranks have, one after another
 *   turn    a value is brought into another form once, and found again by all who want it so
 *   region  loops and branches of the script: carries take the forms in which the body gives them back
 * Odd invariant: the numbers are those of the whole graph up to the order of sums, however unevenly rows lie, because
 * no node divides here. Ranks with equal parts get equal graphs: what differs between them is read from `coordinate`. */
#include "passes/shard.h"

#include "passes/shard_apart.h"
#include "plan/layout.h"

/* The value as the script wants it laid out, whatever that sends. */
static void lay(sglpass_sharder *s, const sglir_node *node)
{
    int count;
    const int64_t *split = sglir_attr_ints(s->from, node, "split", &count);
    sglpass_form form = sglpass_first(s, sglir_arg(s->from, node, 0))->form;
    for (int axis = 0; axis < count; axis++) {
        if (sglpass_extent(s, axis) == 1 || split[axis] == -1) continue;
        if (split[axis] < 0) {
            form.at[axis] = SGLPASS_WHOLE;
            continue;
        }
        if (sglpass_axes_of(&form, (int)split[axis]) == 0) form.unit[split[axis]] = 1;
        form.at[axis] = (int8_t)split[axis];
    }
    sglpass_put(s, node->out_first, sglpass_take(s, sglir_arg(s->from, node, 0), &form), &form);
}

/* One rank has all of everything. */
static bool leave_out_layouts(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    if (node->op != SGLIR_OP_LAID_OUT) return false;
    rewrite->map[node->out_first] = rewrite->map[sglir_arg(rewrite->from, node, 0)];
    return true;
}

sgl_status sglpass_emit_nodes(sglpass_sharder *s, sglir_id region)
{
    for (int64_t i = 0; i < s->from->regions.data[region].nodes.count; i++) {
        sglir_id id = s->from->regions.data[region].nodes.data[i];
        const sglir_node *node = sglir_node_at(s->from, id);
        int64_t forms = s->forms.count;
        sglpass_way run;
        if (!s->live[id]) continue;
        if (node->op == SGLIR_OP_INPUT) {
            SGLCORE_TRY(sglpass_emit_input(s, id));
        } else if (sglir_is_control(node)) {
            SGLCORE_TRY(sglpass_emit_control(s, id));
        } else if (node->op == SGLIR_OP_LAID_OUT) {
            lay(s, node);
        } else if (node->op == SGLIR_OP_TERMS) {
            sglpass_emit_terms(s, node);
        } else {
            SGLCORE_TRY(sglpass_choose(s, id, &run));
            SGLCORE_TRY(sglpass_emit(s, &run));
        }
        s->forms.count = forms;
    }
    return sglir_status(s->to);
}

static void emit_coordinates(sglpass_sharder *s)
{
    sglir_set_origin(s->to, "", 0, "", s->rewrite.pass);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const sglir_named attr = SGLIR_I("axis", axis);
        s->coordinate[axis] = SGLIR_NONE;
        if (sglpass_extent(s, axis) > 1)
            s->coordinate[axis] = sglir_emit(s->to, SGLIR_OP_COORDINATE, NULL, 0, &attr, 1, NULL);
    }
}

/* Fetches are whole on every rank; a state is kept as it came. */
static void emit_outputs(sglpass_sharder *s)
{
    for (int64_t i = 0; i < s->from->outputs.count; i++) {
        const sglir_output *output = &s->from->outputs.data[i];
        const char *name = sglcore_string(s->from->strings, output->name);
        sglpass_form form = sglpass_form_whole();
        if (output->role == SGLIR_UPDATE) form = sglpass_first(s, sglir_input_find(s->from, name))->form;
        sglir_id value = sglpass_take(s, output->value, &form);
        if (s->to->status == SGL_OK) sglir_output_add(s->to, output->role, name, value);
    }
}

static sgl_status lay_out(sglpass_sharder *s, sglir_graph **out)
{
    sglcore_arena arena = { .env = s->env };
    uint8_t *live = sglcore_arena_alloc(&arena, (size_t)s->from->nodes.count);
    s->latest = sglcore_arena_alloc(&arena, (size_t)s->from->values.count * sizeof *s->latest);
    s->live = live;
    sgl_status status = live && s->latest ? sglir_mark_live(s->from, live) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = sglpass_demands(s, &arena);
    if (status == SGL_OK) status = sglir_rewrite_begin(s->env, s->from, "shard", NULL, &s->rewrite);
    if (status == SGL_OK) {
        s->to = s->rewrite.to;
        emit_coordinates(s);
        status = sglpass_emit_nodes(s, 0);
        if (status == SGL_OK) emit_outputs(s);
        if (status != SGL_OK) sglir_stick(s->to, status);
        status = sglir_rewrite_end(&s->rewrite, false, out);
    }
    sglcore_vec_free(s->env, &s->made);
    sglcore_vec_free(s->env, &s->forms);
    sglcore_vec_free(s->env, &s->ids);
    sglcore_arena_free(&arena);
    return status;
}

/* ---- what the plan says of parameters ---------------------------------------------------------------------------- */

bool sglpass_learns(const sglir_graph *g)
{
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id input = sglir_input_find(g, sglcore_string(g->strings, output->name));
        if (input != SGLIR_NONE && sglir_attr_int(g, sglir_maker(g, input), "role") == SGL_PARAMETER) return true;
    }
    return false;
}

/* The data axes may be given for everything, numbers too; elsewhere a dimension that a parameter has not is a mistake.
 * So it is for its states, of what is said of these alone: some have fewer dimensions than their parameter, and then
 * follow it where they can. */
static sgl_status check_dims(const sglpass_context *context, const sglir_graph *g, const sglir_node *node)
{
    const sglplan *plan = context->plan;
    const char *name = sglir_attr_string(g, node, "name"), *path = sglpass_path_of(name);
    const bool is_state = path != name;
    const sglir_type *type = sglir_type_of(g, node->out_first);
    int8_t at[SGLIR_AXIS_COUNT], of_parameter[SGLIR_AXIS_COUNT];
    uint64_t named;
    char text[SGLIR_TYPE_ROOM];
    sglplan_layout_of(plan, path, is_state, at, &named);
    sglplan_layout_of(plan, path, false, of_parameter, &named);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (at[axis] < type->rank || (SGLPLAN_DATA_AXES & SGLPLAN_AXIS(axis))) continue;
        if (is_state && (type->rank == 0 || at[axis] == of_parameter[axis])) continue;
        return sglcore_fail(context->env, SGL_INVALID_ARGUMENT,
                            "plan: layouts: dimension %d of %s '%s' is to be split over %s=%lld, and it has %d, "
                            "counted from 0: %s",
                            at[axis], is_state ? "state" : "parameter", name, sglir_axis_name(axis),
                            (long long)plan->mesh[axis], type->rank, sglir_type_text(type, text, sizeof text));
    }
    return SGL_OK;
}

/* A pattern that names nothing is nearly always a misspelling, where all parameters are there. */
static sgl_status check_layouts(const sglpass_context *context, const sglir_graph *g)
{
    uint64_t all = 0, named;
    int8_t at[SGLIR_AXIS_COUNT];
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT) continue;
        const char *name = sglir_attr_string(g, node, "name");
        int64_t role = sglir_attr_int(g, node, "role");
        const bool is_own =
            sglpass_path_of(name) == name; /* no state of a parameter: that of an adapter, or a counter */
        if (role == SGL_PARAMETER || (role == SGL_STATE && !is_own)) SGLCORE_TRY(check_dims(context, g, node));
        if (role != SGL_PARAMETER && (role != SGL_STATE || !is_own)) continue;
        sglplan_layout_of(context->plan, name, true, at, &named); /* entries of states fit a parameter's, too */
        all |= named;
    }
    if (!sglpass_learns(g)) return SGL_OK;
    const char *pattern;
    size_t length;
    for (int i = 0; sglplan_layout_entry(context->plan->layouts, i, &pattern, &length); i++) {
        if ((all >> i & 1) == 0) return sglpass_fail_unnamed(context, g, "layouts", pattern, length);
    }
    return SGL_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

sgl_status sglpass_shard(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    int64_t ranks;
    sglir_graph *laid, *apart;
    *out = NULL;
    SGLCORE_TRY(sglplan_mesh_size(context->env, context->plan, &ranks));
    if (ranks == 1) {
        SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "shard", leave_out_layouts, NULL, out));
        sglpass_say(context, in, *out, false);
        return SGL_OK;
    }
    SGLCORE_TRY(check_layouts(context, in));
    SGLCORE_TRY(sglpass_lay_activations(context, in, &laid));
    sgl_status status = sglpass_take_apart(context, laid, &apart);
    sglir_graph_free(laid);
    SGLCORE_TRY(status);
    sglpass_sharder s = { .context = context,
                          .env = context->env,
                          .from = apart,
                          .at = sglplan_mesh_coordinate(context->plan, context->rank) };
    sglir_graph *tried = NULL; /* holds what was tried in regions, too */
    status = lay_out(&s, &tried);
    if (status == SGL_OK) status = sglir_rewrite_graph(context->env, tried, "shard", NULL, NULL, out);
    /* A graph without feeds, and with nothing random, is each rank's as it is. */
    if (status == SGL_OK) sglpass_say(context, in, *out, !sglcore_hash_equal(sglir_job_hash(in), sglir_job_hash(*out)));
    sglir_graph_free(tried);
    sglir_graph_free(apart);
    return status;
}
