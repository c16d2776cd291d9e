/* parts.c -- states of which each rank has a part: who has which, and the whole put together.
 *
 * Comes in: a traced graph with a plan that splits some of its parameters and states. Goes out: of each its whole type
 * and the box that a rank of the mesh has; an error where a program would have a state in other parts than the session
 * has it; the whole, gathered over the ranks. Odd invariant: what is kept is how a state is cut, of which every rank
 * works out all parts by itself; several ranks may have the same part, and the first of them speaks for it. Of what
 * lives on one stage of a pipeline the others have nothing; a number has its one element there too, which means
 * nothing. */
#include <stdio.h>
#include <string.h>

#include "passes/shard_apart.h"
#include "plan/compress.h"
#include "session/session.h"

/* ---- how a state is cut ------------------------------------------------------------------------------------------ */

static sglcore_hash hash_of(const char *name) { return sglcore_hash_bytes(name, strlen(name)); }

const sglsession_split *sglsession_split_find(const sgl_session *session, const char *name)
{
    const sglcore_hash hash = hash_of(name);
    for (int64_t i = 0; i < session->splits.count; i++)
        if (sglcore_hash_equal(session->splits.data[i].name, hash)) return &session->splits.data[i];
    return NULL;
}

/* How the plan cuts the state that the node is; false: not at all. */
static bool split_of(const sglplan *plan, const sglir_graph *traced, const sglir_node *node, sglsession_split *split)
{
    const sglir_type *type = sglir_type_of(traced, node->out_first);
    uint64_t named;
    *split = (sglsession_split){ .name = hash_of(sglir_attr_string(traced, node, "name")), .stage = -1 };
    split->whole.dtype = (sgl_dtype)type->dtype;
    split->whole.rank = type->rank;
    memcpy(split->whole.dims, type->dims, sizeof split->whole.dims);
    memcpy(split->mesh, plan->mesh, sizeof split->mesh);
    return sglpass_split_input(plan, traced, node, split->at, &named);
}

static sglplan plan_of(const sglsession_split *split)
{
    sglplan plan;
    sglplan_init(&plan);
    memcpy(plan.mesh, split->mesh, sizeof plan.mesh);
    return plan;
}

static bool lives_with(const sglsession_split *split, const sglplan_coordinate *at)
{
    return split->stage < 0 || at->at[SGLIR_AXIS_PP] == split->stage;
}

sglstore_box sglsession_box(const sglsession_split *split, int64_t rank)
{
    const sglplan plan = plan_of(split);
    const sglplan_coordinate coordinate = sglplan_mesh_coordinate(&plan, rank);
    sglstore_box box = { .offsets = { 0 } };
    for (int d = 0; d < split->whole.rank; d++) {
        sglplan_axes axes = 0;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
            if (split->at[axis] == d) axes |= SGLPLAN_AXIS(axis);
        const sglplan_part part = sglplan_part_along(&plan, axes, rank, split->whole.dims[d], 1);
        box.offsets[d] = part.offset;
        box.dims[d] = part.size;
    }
    if (split->whole.rank > 0 && !lives_with(split, &coordinate)) {
        box.offsets[0] = 0;
        box.dims[0] = 0;
    }
    return box;
}

bool sglsession_has_first(const sglsession_split *split, int64_t rank)
{
    const sglplan plan = plan_of(split);
    const sglplan_coordinate at = sglplan_mesh_coordinate(&plan, rank);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const bool stages = axis == SGLIR_AXIS_PP && split->stage >= 0;
        if (axis != SGLIR_AXIS_MICRO && !stages && split->at[axis] < 0 && at.at[axis] != 0) return false;
    }
    return lives_with(split, &at);
}

static int64_t mesh_ranks(const sglsession_split *split)
{
    int64_t ranks = 1;
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) ranks *= split->mesh[sglplan_mesh_order[i]];
    return ranks;
}

/* ---- programs that share a state --------------------------------------------------------------------------------- */

static const char *split_text(const sglsession_split *split, char *text, size_t size)
{
    size_t length = 0;
    if (split && split->stage >= 0)
        length = (size_t)snprintf(text, size, "on stage %lld of %lld", (long long)split->stage,
                                  (long long)split->mesh[SGLIR_AXIS_PP]);
    for (int axis = 0; split && axis < SGLIR_AXIS_COUNT && length < size; axis++) {
        if (split->at[axis] < 0) continue;
        const int more = snprintf(text + length, size - length, "%sdimension %d over %s=%lld",
                                  length ? ", split along " : "split along ", split->at[axis], sglir_axis_name(axis),
                                  (long long)split->mesh[axis]);
        if (more > 0) length += (size_t)more;
    }
    return length ? text : "whole";
}

/* Axes of other meshes may come to the same parts. */
static bool cut_alike(const sglsession_split *a, const sglsession_split *b)
{
    if (a->stage == b->stage && memcmp(a->at, b->at, sizeof a->at) == 0 &&
        memcmp(a->mesh, b->mesh, sizeof a->mesh) == 0)
        return true;
    if (mesh_ranks(a) != mesh_ranks(b)) return false;
    if (a->whole.rank == 0) return a->stage == b->stage;
    for (int64_t r = 0; r < mesh_ranks(a); r++) {
        const sglstore_box one = sglsession_box(a, r), other = sglsession_box(b, r);
        if (!sglstore_box_equal(a->whole.rank, &one, &other)) return false;
    }
    return true;
}

sgl_status sglsession_check_split(const sgl_session *session, const sglir_graph *traced, const sglir_node *node,
                                  const sglplan *plan, const char *brought_by)
{
    sglsession_split wanted;
    const char *name = sglir_attr_string(traced, node, "name");
    const sglsession_split *has = sglsession_split_find(session, name);
    const bool is_split = split_of(plan, traced, node, &wanted);
    if (has && sglplan_is_staged(plan)) wanted.stage = has->stage; /* the pass leaves it where the session has it */
    if (has ? cut_alike(has, &wanted) : !is_split) return SGL_OK;
    char a[256], b[256];
    return sglcore_fail(traced->env, SGL_TYPE,
                        "%s: the plan of program \"%s\" has it %s, that of program \"%s\" of this session has it %s: "
                        "programs of one session must have a state in the same parts",
                        name, sglcore_string(traced->strings, traced->name), split_text(&wanted, a, sizeof a),
                        brought_by, split_text(has, b, sizeof b));
}

/* The stage on which the graph has the state; below 0: every one, or it has none. */
static int64_t home_of(const sglir_graph *placed, const char *name)
{
    int64_t home = SGLIR_HOME_UNSAID;
    (void)sglir_state_home(placed, name, &home);
    return home;
}

/* The residual of a parameter's gradient, which a pass makes where the plan compresses it. */
static sgl_status keep_residual(sgl_session *session, const sglplan *plan, const sglir_graph *placed,
                                const sglir_type *type, const char *parameter)
{
    sglcore_env *env = &session->vm->env;
    sglcore_text name = { 0 };
    uint64_t named;
    sglsession_split split = { .whole = { .dtype = (sgl_dtype)type->dtype,
                                          .rank = (type->rank > 0 ? type->rank : 1) + 1 } };
    if (sglplan_compress_of(plan, parameter, &named) == SGLPLAN_CODEC_COUNT || type->rank + 1 > SGL_MAX_RANK ||
        !sglplan_split_residual(plan, parameter, split.whole.rank, split.at))
        return SGL_OK;
    split.whole.dims[0] = sglplan_group_size(plan, sglplan_compress_axes(plan));
    split.whole.dims[1] = 1;
    for (int i = 0; i < type->rank; i++) split.whole.dims[i + 1] = type->dims[i];
    memcpy(split.mesh, plan->mesh, sizeof split.mesh);
    sgl_status status = sglcore_text_add(env, &name, SGLPLAN_RESIDUAL "%s", parameter);
    if (status == SGL_OK) {
        split.name = hash_of(name.data);
        split.stage = home_of(placed, name.data);
        if (!sglsession_split_find(session, name.data)) status = sglcore_vec_push(env, &session->splits, split);
    }
    sglcore_text_free(env, &name);
    return status;
}

static bool has_layout(const sglir_type *type)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        if (axis != SGLIR_AXIS_MICRO && type->sharded[axis] >= 0) return true;
    return false;
}

sgl_status sglsession_keep_splits(sgl_session *session, const sglir_graph *traced, const sglir_graph *placed,
                                  const sglplan *plan)
{
    sglcore_env *env = &session->vm->env;
    const sglir_region *top = &traced->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(traced, top->nodes.data[n]);
        sglsession_split split;
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(traced, node, "role") == SGL_FEED) continue;
        const char *name = sglir_attr_string(traced, node, "name");
        if (has_layout(sglir_type_of(traced, node->out_first)))
            return sglcore_fail(env, SGL_UNSUPPORTED,
                                "%s: the graph splits it over ranks by itself; the plan's layouts say how", name);
        if (sglir_attr_int(traced, node, "role") == SGL_PARAMETER)
            SGLCORE_TRY(keep_residual(session, plan, placed, sglir_type_of(traced, node->out_first), name));
        const bool is_split = split_of(plan, traced, node, &split);
        split.stage = home_of(placed, name);
        if (!is_split && split.stage < 0) continue;
        if (sglsession_split_find(session, name)) continue;
        if (split.whole.dtype == SGL_I4)
            return sglcore_fail(env, SGL_UNSUPPORTED,
                                "%s: two elements of i4 share a byte: a plan splits no state of this dtype", name);
        SGLCORE_TRY(sglcore_vec_push(env, &session->splits, split));
    }
    return SGL_OK;
}

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

/* Between a whole tensor and the dense part of it that the box is. */
static void copy_part(const sglsession_split *split, const sglstore_box *box, char *whole, char *part, bool gather)
{
    const sglstore_box all = sglstore_box_whole(&split->whole);
    const size_t size = (size_t)sglcore_dtype_bytes(split->whole.dtype, 1);
    sglstore_runs runs = sglstore_runs_of(split->whole.rank, &all, box);
    int64_t in_whole, in_part;
    while (sglstore_runs_next(&runs, &in_whole, &in_part)) {
        char *of_whole = whole + (size_t)in_whole * size, *of_part = part + (size_t)in_part * size;
        memcpy(gather ? of_whole : of_part, gather ? of_part : of_whole, (size_t)runs.count * size);
    }
}

static int64_t bytes_of(const sglsession_split *split, const sglstore_box *box)
{
    return sglcore_dtype_bytes(split->whole.dtype, sglstore_box_elements(split->whole.rank, box));
}

sgl_status sglsession_write_part(sgl_session *session, const sglsession_state *state, const void *whole)
{
    sglcore_env *env = &session->vm->env;
    if (state->bytes == 0) return SGL_OK;
    char *part = sglcore_alloc(env, (size_t)state->bytes);
    if (!part) return SGL_OUT_OF_MEMORY;
    copy_part(state->split, &state->box, (char *)(uintptr_t)whole, part, false);
    sgl_status status = session->ops->write(session->device, sglsession_states(session, state->space), state->offset,
                                            part, state->bytes);
    sglcore_free(env, part, (size_t)state->bytes);
    return status;
}

static sgl_status gather_whole(sgl_session *session, const sglsession_state *state, char *part, char *whole)
{
    const sglsession_world *w = &session->world;
    for (int r = 0; r < w->ranks; r++) {
        if (!sglsession_has_first(state->split, r)) continue;
        const sglstore_box box = sglsession_box(state->split, r);
        const int64_t bytes = bytes_of(state->split, &box);
        if (bytes == 0) continue;
        if (r == w->rank)
            SGLCORE_TRY(session->ops->read(session->device, sglsession_states(session, state->space), state->offset,
                                           part, bytes));
        SGLCORE_TRY(sglexec_net_broadcast(w->net, r, part, bytes, "gathering a state"));
        copy_part(state->split, &box, whole, part, true);
    }
    return SGL_OK;
}

/* The first rank that has a part: of all parts that is the largest. */
static int64_t first_of(const sglsession_split *split)
{
    int64_t rank = 0;
    while (!sglsession_has_first(split, rank)) rank++;
    return rank;
}

sgl_status sglsession_read_whole(sgl_session *session, const sglsession_state *state, void *whole)
{
    sglcore_env *env = &session->vm->env;
    if (session->ops->blank) {
        memset(whole, 0, (size_t)sglsession_whole_bytes(state));
        return SGL_OK;
    }
    if (!session->world.comm || session->world.ranks != mesh_ranks(state->split))
        return sglcore_fail(env, SGL_WRONG_STATE,
                            "state '%s' lies in parts on %lld ranks, and this process is alone: it has one of them",
                            state->name, (long long)mesh_ranks(state->split));
    const sglstore_box largest = sglsession_box(state->split, first_of(state->split));
    const size_t bytes = (size_t)bytes_of(state->split, &largest) + 1;
    char *part = sglcore_alloc(env, bytes);
    sgl_status status = part ? gather_whole(session, state, part, whole) : SGL_OUT_OF_MEMORY;
    sglcore_free(env, part, bytes);
    return status == SGL_OK ? SGL_OK : sglsession_lose(session, status);
}
