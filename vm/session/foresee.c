/* foresee.c -- a step of all ranks of a mesh on paper, none of which is started.
 *
 * Comes in: a graph, a plan, the rates of a machine. Goes out: whether all exchanges would find their partners (an
 * error with both sides where not), and the time of a step. Of the ranks of one place along pp those at two opposite
 * corners of the mesh are planned: extents are cut the larger parts first, so that what lies between has parts between
 * theirs, and where the corners' placed graphs are equal, so are those between. Where not, the mesh is halved, and each
 * half asked alike. A program that the session has frozen is not planned again. Odd invariant: the session stays as it
 * is: these programs are thrown away, and take no place in its sections. */
#include "session/session.h"
#include "tune/list.h"

enum { MOST_UNEVEN = 256 }; /* programs of one place along pp */

/* What a rank does. */
typedef struct planned {
    sgltune_list list;
    sglcore_hash graph; /* placed, without its places */
} planned;

typedef struct foreseen {
    sgl_session *session;
    sglcore_env *env;
    const sgl_graph *graph;
    sglcore_hash job, plan_hash; /* of these two */
    sglplan plan;
    sgltune_rates rates;
    int64_t ranks;
    SGLCORE_VEC(planned *) made;
    planned **of;               /* per rank: its own, NULL: none was made */
    const sgltune_list **lists; /* per rank */
} foreseen;

/* What the session has of it, or NULL. */
static const sgl_program *find_frozen(const foreseen *f, int64_t rank)
{
    for (const sglsession_link *link = f->session->programs; link; link = link->next) {
        const sgl_program *program = (const sgl_program *)(const void *)link;
        if (program->rank == rank && program->ranks == f->ranks && sglcore_hash_equal(program->job, f->job) &&
            sglcore_hash_equal(sglplan_hash(&program->plan), f->plan_hash))
            return program;
    }
    return NULL;
}

static sgl_status list_program(const foreseen *f, int64_t rank, planned *made)
{
    sgl_session *session = f->session;
    const sgl_program *frozen = find_frozen(f, rank);
    if (frozen) {
        made->graph = sglir_math_hash(frozen->placed);
        return sgltune_list_of(f->env, frozen->program, &f->plan, rank, &f->rates, &made->list);
    }
    const sglpass_context context = { .env = f->env,
                                      .plan = &f->plan,
                                      .rank = rank,
                                      .warned = &session->warned,
                                      .workspace = session->ops->workspace,
                                      .computing = session->ops->computing,
                                      .interrupted = &session->vm->interrupted };
    sglir_graph *placed = NULL;
    sglexec_program *program = NULL;
    sgl_status status = sglpass_run(&context, f->graph->ir, NULL, &placed);
    if (status == SGL_INTERRUPTED) sglsession_resume(session->vm);
    if (status == SGL_OK) status = sglexec_freeze(f->env, placed, &program);
    if (status == SGL_OK) status = sgltune_list_of(f->env, program, &f->plan, rank, &f->rates, &made->list);
    if (status == SGL_OK) made->graph = sglir_math_hash(placed);
    sglexec_program_free(program);
    sglir_graph_free(placed);
    return status;
}

static sgl_status plan_rank(foreseen *f, int64_t rank)
{
    if (f->of[rank]) return SGL_OK;
    SGLCORE_TRY(sglcore_vec_reserve(f->env, &f->made, 1));
    planned *made = sglcore_alloc_zero(f->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    f->made.data[f->made.count++] = f->of[rank] = made;
    f->lists[rank] = &made->list;
    sgl_status status = list_program(f, rank, made);
    if (status == SGL_OK || status == SGL_INTERRUPTED) return status;
    return sglcore_fail_at(f->env, status, "rank %lld of %lld", (long long)rank, (long long)f->ranks);
}

/* Ranks whose coordinates are from `first` to `last`, both among them. */
typedef struct box {
    sglplan_coordinate first, last;
} box;

static bool is_inside(const foreseen *f, const box *b, int64_t rank)
{
    const sglplan_coordinate here = sglplan_mesh_coordinate(&f->plan, rank);
    bool inside = true;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        inside = inside && here.at[axis] >= b->first.at[axis] && here.at[axis] <= b->last.at[axis];
    return inside;
}

/* An axis along which the box's first corner and the next one differ; where that is none, its longest. */
static sgl_status choose_axis(foreseen *f, const box *b, int *chosen)
{
    const int64_t first = sglplan_mesh_rank(&f->plan, &b->first);
    int longest = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        sglplan_coordinate corner = b->first;
        if (b->last.at[axis] - b->first.at[axis] > b->last.at[longest] - b->first.at[longest]) longest = axis;
        if (b->last.at[axis] == b->first.at[axis]) continue;
        corner.at[axis] = b->last.at[axis];
        const int64_t other = sglplan_mesh_rank(&f->plan, &corner);
        SGLCORE_TRY(plan_rank(f, other));
        *chosen = axis;
        if (!sglcore_hash_equal(f->of[first]->graph, f->of[other]->graph)) return SGL_OK;
    }
    *chosen = longest;
    return SGL_OK;
}

/* before: how many programs there were before those of this place along pp. */
static sgl_status list_box(foreseen *f, const box *b, int64_t before)
{
    const int64_t first = sglplan_mesh_rank(&f->plan, &b->first), last = sglplan_mesh_rank(&f->plan, &b->last);
    SGLCORE_TRY(plan_rank(f, first));
    SGLCORE_TRY(plan_rank(f, last));
    if (sglcore_hash_equal(f->of[first]->graph, f->of[last]->graph)) {
        for (int64_t rank = first; rank <= last; rank++)
            if (!f->of[rank] && is_inside(f, b, rank)) f->lists[rank] = f->lists[first];
        return SGL_OK;
    }
    if (f->made.count - before > MOST_UNEVEN)
        return sglcore_fail(f->env, SGL_LIMIT,
                            "plan: parts are so uneven among %lld ranks that more than %d programs differ; the ranks "
                            "themselves compare their exchanges before the first step",
                            (long long)f->ranks, MOST_UNEVEN);
    int axis = 0;
    SGLCORE_TRY(choose_axis(f, b, &axis));
    box low = *b, high = *b;
    low.last.at[axis] = b->first.at[axis] + (b->last.at[axis] - b->first.at[axis]) / 2;
    high.first.at[axis] = low.last.at[axis] + 1;
    SGLCORE_TRY(list_box(f, &low, before));
    return list_box(f, &high, before);
}

/* All ranks of one place along pp. */
static sgl_status list_place(foreseen *f, int64_t place)
{
    box all = { 0 };
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        all.last.at[axis] = axis == SGLIR_AXIS_MICRO ? 0 : f->plan.mesh[axis] - 1;
    all.first.at[SGLIR_AXIS_PP] = all.last.at[SGLIR_AXIS_PP] = place;
    return list_box(f, &all, f->made.count);
}

static sgl_status foresee(foreseen *f, sgltune_times *times, sgl_foresight *foresight)
{
    for (int64_t place = 0; place < f->plan.mesh[SGLIR_AXIS_PP]; place++) SGLCORE_TRY(list_place(f, place));
    SGLCORE_TRY(sgltune_simulate(f->env, &f->plan, f->ranks, f->lists, times));
    *foresight = (sgl_foresight){ .ranks = f->ranks, .programs = f->made.count };
    for (int64_t rank = 0; rank < f->ranks; rank++) {
        if (times[rank].step > foresight->step_s) foresight->step_s = times[rank].step;
        if (times[rank].exposed > foresight->exposed_s) foresight->exposed_s = times[rank].exposed;
    }
    return SGL_OK;
}

sgl_status sgl_foresee(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, const sgl_machine *machine,
                       sgl_foresight *foresight)
{
    SGLSESSION_NEEDS(session && graph && foresight, session ? session->vm : NULL, "an argument is NULL");
    SGLCORE_TRY(sglsession_check(session, graph, plan, "sgl_foresee"));
    const sgl_machine rates = machine ? *machine : (sgl_machine){ 0 };
    SGLSESSION_NEEDS(rates.flops_per_s >= 0 && rates.bytes_per_s >= 0 && rates.link_latency_s >= 0 &&
                         rates.link_bytes_per_s >= 0,
                     session->vm, "the rates of a machine are 0 or more");
    foreseen f = { .session = session,
                   .env = &session->vm->env,
                   .graph = graph,
                   .job = sglir_job_hash(graph->ir),
                   .plan = sglsession_plan(session, plan),
                   .rates = { rates.flops_per_s, rates.bytes_per_s, rates.link_latency_s, rates.link_bytes_per_s } };
    SGLCORE_TRY(sglplan_mesh_size(f.env, &f.plan, &f.ranks));
    sglcore_arena arena = { .env = f.env };
    f.plan_hash = sglplan_hash(&f.plan);
    f.of = sglcore_arena_alloc(&arena, (size_t)f.ranks * sizeof *f.of);
    f.lists = sglcore_arena_alloc(&arena, (size_t)f.ranks * sizeof *f.lists);
    sgltune_times *times = sglcore_arena_alloc(&arena, (size_t)f.ranks * sizeof *times);
    sglsession_begin_busy(session, "foreseeing a step");
    sgl_status status = f.of && f.lists && times ? foresee(&f, times, foresight) : SGL_OUT_OF_MEMORY;
    sglsession_end_busy(session);
    for (int64_t i = 0; i < f.made.count; i++) {
        sgltune_list_free(f.env, &f.made.data[i]->list);
        sglcore_free(f.env, f.made.data[i], sizeof *f.made.data[i]);
    }
    sglcore_vec_free(f.env, &f.made);
    sglcore_arena_free(&arena);
    return status;
}
