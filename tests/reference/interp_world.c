/* interp_world.c -- ranks as threads that meet in exchanges. In and out: interp_world.h. */
#include "interp_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interp_inside.h"

enum { LONGEST_WAIT_S = 60 };

typedef struct world {
    const sglplan *plan;
    int count;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int arrived[INTERP_MOST_RANKS]
               [1 << SGLIR_AXIS_COUNT]; /* at a meeting of the group of these axes with this first rank */
    int turn[INTERP_MOST_RANKS][1 << SGLIR_AXIS_COUNT];            /* its number, which goes up when all are there */
    const interp_call *sent[INTERP_MOST_RANKS][INTERP_MOST_RANKS]; /* from, to: what is held out, until it is taken */
    bool failed;
    const interp_call *calls[INTERP_MOST_RANKS];
} world;

typedef struct interp_rank {
    world *world;
    int64_t rank;
    interp *in;
    const sglir_graph *graph;
    bool good;
} interp_rank;

/* ---- meeting ------------------------------------------------------------------------------------------------------- */

static void give_up(world *w)
{
    pthread_mutex_lock(&w->mutex);
    w->failed = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* Until something has changed. Ranks that all wait for each other would do so for ever. */
static void wait_for_change(world *w)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONGEST_WAIT_S;
    if (pthread_cond_timedwait(&w->changed, &w->mutex, &until) == 0) return;
    w->failed = true;
    pthread_cond_broadcast(&w->changed);
}

static bool has_failed(world *w)
{
    pthread_mutex_lock(&w->mutex);
    bool failed = w->failed;
    pthread_mutex_unlock(&w->mutex);
    return failed;
}

/* False: a rank has failed, and will not come. */
static bool meet(const interp_rank *r, sglplan_axes axes)
{
    world *w = r->world;
    int64_t first = sglplan_group_member(w->plan, axes, r->rank, 0);
    int *arrived = &w->arrived[first][axes], *number = &w->turn[first][axes];
    pthread_mutex_lock(&w->mutex);
    int turn = *number;
    if (++*arrived == sglplan_group_size(w->plan, axes)) {
        *arrived = 0;
        ++*number;
        pthread_cond_broadcast(&w->changed);
    }
    while (*number == turn && !w->failed) wait_for_change(w);
    bool good = !w->failed;
    pthread_mutex_unlock(&w->mutex);
    return good;
}

/* ---- parts ---------------------------------------------------------------------------------------------------------- */

/* Copies a block of `to` elements, at `offset` of from's index. */
static void copy_block(interp_tensor *to, const interp_tensor *from, const int64_t *offset)
{
    int64_t index[SGL_MAX_RANK];
    for (int64_t e = 0; e < to->count; e++) {
        interp_unravel(e, to->rank, to->dims, index);
        for (int d = 0; d < to->rank; d++) index[d] += offset[d];
        interp_move(to, e, from, interp_ravel(from->rank, from->dims, index));
    }
}

interp_tensor interp_part_of(const interp_tensor *whole, const sglplan *plan, int64_t rank, const int64_t *layout)
{
    int64_t dims[SGL_MAX_RANK], offset[SGL_MAX_RANK];
    for (int d = 0; d < whole->rank; d++) {
        sglplan_axes axes = 0;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
            axes |= layout && layout[axis] == d ? SGLPLAN_AXIS(axis) : 0;
        sglplan_part part = sglplan_part_along(plan, axes, rank, whole->dims[d], 1);
        offset[d] = part.offset;
        dims[d] = part.size;
    }
    interp_tensor part = interp_tensor_new(whole->dtype, whole->rank, dims);
    copy_block(&part, whole, offset);
    return part;
}

/* ---- exchanges ------------------------------------------------------------------------------------------------------ */

static void add(interp_tensor *sum, const interp_tensor *term)
{
    for (int64_t e = 0; e < sum->count; e++) {
        if (sum->floats)
            sum->floats[e] += term->floats[e];
        else
            sum->ints[e] += term->ints[e];
    }
}

/* Of argument i of all. */
static void reduce(const interp_rank *r, const interp_call *call, uint32_t i, sglplan_axes axes, interp_tensor *result)
{
    const sglplan *plan = r->world->plan;
    bool most = call->node->op == SGLIR_OP_ALL_MAX;
    for (int64_t place = 0; place < sglplan_group_size(plan, axes); place++) {
        int64_t member = sglplan_group_member(plan, axes, r->rank, place);
        const interp_tensor *theirs = r->world->calls[member]->args[i];
        for (int64_t e = 0; e < result->count && most; e++) {
            double value = interp_get(theirs, e), have = interp_get(result, e);
            if (place == 0 || value > have || value != value) interp_set(result, e, value);
        }
        if (!most) add(result, theirs);
    }
}

/* Rows of all, one behind another. */
static void gather(const interp_rank *r, uint32_t i, sglplan_axes axes, interp_tensor *result)
{
    const sglplan *plan = r->world->plan;
    int64_t at = 0;
    for (int64_t place = 0; place < sglplan_group_size(plan, axes); place++) {
        const interp_tensor *theirs = r->world->calls[sglplan_group_member(plan, axes, r->rank, place)]->args[i];
        for (int64_t e = 0; e < theirs->count && at < result->count; e++, at++) interp_move(result, at, theirs, e);
    }
}

/* The rows of this rank of a sum, behind those of the ranks before it. */
static void scatter(const interp_rank *r, const interp_call *call, uint32_t i, sglplan_axes axes, interp_tensor *result)
{
    const sglplan *plan = r->world->plan;
    const interp_tensor *x = call->args[i];
    interp_tensor sum = interp_tensor_new(x->dtype, x->rank, x->dims);
    int64_t row = x->dims[0] ? x->count / x->dims[0] : 0, before = 0;
    reduce(r, call, i, axes, &sum);
    for (int64_t place = 0; place < sglplan_group_place(plan, axes, r->rank); place++)
        before += r->world->calls[sglplan_group_member(plan, axes, r->rank, place)]->results[i].count;
    for (int64_t e = 0; e < result->count && before + e < x->dims[0] * row; e++)
        interp_move(result, e, &sum, before + e);
    interp_tensor_free(&sum);
}

/* Of argument i, of every rank its part for this one: rows of dimension 1, from a range where that is whole, else from this rank's
 * place. */
static void all_to_all(const interp_rank *r, uint32_t i, sglplan_axes axes, bool cuts, interp_tensor *result)
{
    const sglplan *plan = r->world->plan;
    int64_t own = sglplan_group_place(plan, axes, r->rank), before = 0, at = 0;
    for (int64_t place = 0; place < own; place++)
        before += r->world->calls[sglplan_group_member(plan, axes, r->rank, place)]->results[i].dims[1];
    for (int64_t place = 0; place < sglplan_group_size(plan, axes); place++) {
        const interp_tensor *theirs = r->world->calls[sglplan_group_member(plan, axes, r->rank, place)]->args[i];
        int64_t rows = cuts ? result->dims[1] : theirs->dims[1], row = 1;
        for (int d = 2; d < theirs->rank; d++) row *= theirs->dims[d];
        int64_t from = (cuts ? before : own * rows) * row;
        for (int64_t e = 0; e < rows * row && at < result->count; e++, at++) interp_move(result, at, theirs, from + e);
    }
}

/* What the rank `by` places before this one has, round the group. */
static void shift(const interp_rank *r, const interp_call *call, sglplan_axes axes, interp_tensor *result)
{
    const sglplan *plan = r->world->plan;
    const int64_t size = sglplan_group_size(plan, axes), own = sglplan_group_place(plan, axes, r->rank);
    const int64_t place = ((own - interp_int(call, "by")) % size + size) % size;
    const interp_tensor *theirs = r->world->calls[sglplan_group_member(plan, axes, r->rank, place)]->args[0];
    if (theirs->count != result->count) {
        snprintf(call->in->error, sizeof call->in->error, "rank %d is shifted a part of another extent", (int)r->rank);
        return;
    }
    for (int64_t e = 0; e < result->count; e++) interp_move(result, e, theirs, e);
}

static bool same_exchange(const interp_rank *r, const interp_call *call, sglplan_axes axes)
{
    for (int64_t place = 0; place < sglplan_group_size(r->world->plan, axes); place++) {
        const interp_call *other = r->world->calls[sglplan_group_member(r->world->plan, axes, r->rank, place)];
        if (other->node->op != call->node->op || interp_int(other, "axes") != interp_int(call, "axes")) return false;
    }
    return true;
}

static bool exchange(const interp_rank *r, const interp_call *call)
{
    sglplan_axes axes = (sglplan_axes)interp_int(call, "axes");
    r->world->calls[r->rank] = call;
    if (!meet(r, axes)) return true;
    int count;
    bool same = same_exchange(r, call, axes); /* all ranks find the same */
    switch (same ? call->node->op : SGLIR_OP_COUNT) {
    case SGLIR_OP_COUNT: break;
    case SGLIR_OP_ALL_GATHER:
    case SGLIR_OP_ALL_GATHER_EACH:
        for (uint32_t i = 0; i < call->node->arg_count; i++) gather(r, i, axes, &call->results[i]);
        break;
    case SGLIR_OP_ALL_TO_ALL: all_to_all(r, 0, axes, interp_int(call, "to") == 1, &call->results[0]); break;
    case SGLIR_OP_ALL_TO_ALL_EACH:
        for (uint32_t i = 0; i < call->node->arg_count; i++)
            all_to_all(r, i, axes, interp_ints(call, "tos", &count)[i] == 1, &call->results[i]);
        break;
    case SGLIR_OP_RING_SHIFT: shift(r, call, axes, &call->results[0]); break;
    case SGLIR_OP_REDUCE_SCATTER:
    case SGLIR_OP_REDUCE_SCATTER_EACH:
        for (uint32_t i = 0; i < call->node->arg_count; i++) scatter(r, call, i, axes, &call->results[i]);
        break;
    default: reduce(r, call, 0, axes, &call->results[0]); break;
    }
    meet(r, axes); /* nobody's call goes before all have read it */
    if (same) return true;
    snprintf(call->in->error, sizeof call->in->error, "rank %d meets the others in another exchange", (int)r->rank);
    give_up(r->world);
    return true;
}

/* The rank at a place along an axis, else where this one is. */
static int64_t peer_of(const interp_rank *r, const interp_call *call, const char *where)
{
    sglplan_coordinate at = sglplan_mesh_coordinate(r->world->plan, r->rank);
    at.at[interp_int(call, "axis")] = interp_int(call, where);
    return sglplan_mesh_rank(r->world->plan, &at);
}

/* Holds it out until it is taken: nothing is kept in between. */
static bool send(const interp_rank *r, const interp_call *call)
{
    world *w = r->world;
    const interp_call **held = &w->sent[r->rank][peer_of(r, call, "to")];
    pthread_mutex_lock(&w->mutex);
    *held = call;
    pthread_cond_broadcast(&w->changed);
    while (*held && !w->failed) wait_for_change(w);
    pthread_mutex_unlock(&w->mutex);
    return true;
}

static bool receive(const interp_rank *r, const interp_call *call)
{
    world *w = r->world;
    const interp_call **held = &w->sent[peer_of(r, call, "from")][r->rank];
    interp_tensor *to = &call->results[0];
    pthread_mutex_lock(&w->mutex);
    while (!*held && !w->failed) wait_for_change(w);
    if (!w->failed) {
        const interp_tensor *from = (*held)->args[0];
        bool same = from->count == to->count && from->dtype == to->dtype &&
                    interp_int(*held, "number") == interp_int(call, "number");
        for (int64_t e = 0; e < to->count && same; e++) interp_move(to, e, from, e);
        if (!same) snprintf(call->in->error, sizeof call->in->error, "rank %d is sent something else", (int)r->rank);
        w->failed = !same;
        *held = NULL;
        pthread_cond_broadcast(&w->changed);
    } else if (!call->in->error[0]) {
        snprintf(call->in->error, sizeof call->in->error, "rank %d waits for what is not sent", (int)r->rank);
    }
    pthread_mutex_unlock(&w->mutex);
    return true;
}

bool interp_mesh(const interp_call *call)
{
    const interp_rank *r = call->in->rank;
    uint16_t op = call->node->op;
    if (r == NULL) return false;
    if (op == SGLIR_OP_SEND) return send(r, call);
    if (op == SGLIR_OP_RECEIVE) return receive(r, call);
    if (sglir_is_exchange(op)) return exchange(r, call);
    if (op != SGLIR_OP_COORDINATE && op != SGLIR_OP_SHARE) return false;
    int64_t at = sglplan_mesh_coordinate(r->world->plan, r->rank).at[interp_int(call, "axis")];
    interp_set(&call->results[0], 0, op == SGLIR_OP_SHARE ? at == 0 : (double)at);
    return true;
}

/* ---- the call ------------------------------------------------------------------------------------------------------- */

/* What lives on another stage of a pipeline has no elements here. */
static bool lives_elsewhere(const sglir_graph *g, const sglir_node *input)
{
    return sglir_attr_int(g, input, "home") != SGLIR_HOME_UNSAID &&
           sglir_elements(sglir_type_of(g, input->out_first)) == 0;
}

static void hand_inputs(const interp *whole, interp_rank *r)
{
    const sglir_graph *g = r->graph;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        int count;
        if (node->op != SGLIR_OP_INPUT) continue;
        const char *name = sglir_attr_string(g, node, "name");
        const int64_t *layout = sglir_attr_ints(g, node, "layout", &count);
        for (int i = 0; i < whole->input_count; i++) {
            if (strcmp(whole->inputs[i].name, name) != 0) continue;
            const sglir_type *type = sglir_type_of(g, node->out_first);
            interp_tensor part =
                lives_elsewhere(g, node)
                    ? interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims)
                    : interp_part_of(&whole->inputs[i].tensor, r->world->plan, r->rank, count ? layout : NULL);
            interp_input(r->in, name, &part);
            interp_tensor_free(&part);
        }
    }
}

static void *run_rank(void *user)
{
    interp_rank *r = user;
    r->good = interp_run(r->in, r->graph) && !has_failed(r->world);
    if (!r->good) give_up(r->world);
    return NULL;
}

bool interp_expected(const interp *whole, const sglplan *plan, int64_t rank, const sglir_graph *graph, interp *expected)
{
    *expected = (interp){ 0 };
    expected->fetches = calloc((size_t)whole->fetch_count + 1, sizeof *expected->fetches);
    expected->updates = calloc((size_t)whole->update_count + 1, sizeof *expected->updates);
    if (!expected->fetches || !expected->updates) return false;
    for (int i = 0; i < whole->fetch_count; i++) {
        interp_named *to = &expected->fetches[expected->fetch_count++];
        *to = (interp_named){ strdup(whole->fetches[i].name),
                              interp_part_of(&whole->fetches[i].tensor, plan, rank, NULL) };
    }
    for (int i = 0; i < whole->update_count; i++) {
        const char *name = whole->updates[i].name;
        int count = 0;
        sglir_id input = sglir_input_find(graph, name);
        const int64_t *layout =
            input == SGLIR_NONE ? NULL : sglir_attr_ints(graph, sglir_maker(graph, input), "layout", &count);
        if (input == SGLIR_NONE || lives_elsewhere(graph, sglir_maker(graph, input))) continue;
        interp_named *to = &expected->updates[expected->update_count++];
        *to = (interp_named){ strdup(name),
                              interp_part_of(&whole->updates[i].tensor, plan, rank, count ? layout : NULL) };
    }
    return true;
}

bool interp_world_run(const interp *whole, const sglplan *plan, const sglir_graph *const *graphs, interp *ranks)
{
    static const world fresh = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    world w = fresh;
    interp_rank all[INTERP_MOST_RANKS];
    pthread_t threads[INTERP_MOST_RANKS];
    bool good = true;
    w.plan = plan;
    w.count = (int)sglplan_group_size(plan, ~(sglplan_axes)0);
    if (w.count > INTERP_MOST_RANKS) abort();
    for (int i = 0; i < w.count; i++) {
        all[i] = (interp_rank){ .world = &w, .rank = i, .in = &ranks[i], .graph = graphs[i] };
        ranks[i].round = whole->round;
        ranks[i].rank = &all[i];
        hand_inputs(whole, &all[i]);
    }
    for (int i = 0; i < w.count; i++) {
        if (pthread_create(&threads[i], NULL, run_rank, &all[i]) != 0) abort();
    }
    for (int i = 0; i < w.count; i++) pthread_join(threads[i], NULL);
    for (int i = w.count; i-- > 0;) {
        ranks[i].rank = NULL;
        good = good && all[i].good;
        if (ranks[i].error[0]) memmove(ranks[0].error, ranks[i].error, sizeof ranks[0].error);
    }
    pthread_mutex_destroy(&w.mutex);
    pthread_cond_destroy(&w.changed);
    return good;
}
