/* foresee.c -- a step of all ranks of a mesh on paper, none of which is started.
 *
 * Comes in: a graph, a plan, the rates of a machine. Goes out: whether all exchanges would find their partners (an error with
 * both sides where not), and the time of a step. Programs are planned for the first and the last rank of every place along pp:
 * extents are cut the larger parts first, so that what lies between has parts between theirs. Where these two exchange alike, and
 * take equal times, those between are taken to do so too (a run compares all of them, order.c); where not, each is planned.
 * Odd invariant: the session stays as it is: these programs are thrown away, and take no place in its sections. */
#include "session/session.h"
#include "tune/list.h"

enum { MOST_UNEVEN = 256 }; /* ranks of one place along pp that are planned one by one */

typedef struct foreseen {
    sgl_session *session;
    sglcore_env *env;
    const sgl_graph *graph;
    sglplan plan;
    sgltune_rates rates;
    int64_t ranks;
    SGLCORE_VEC(sgltune_list *) made;
    const sgltune_list **lists; /* per rank */
} foreseen;

static sgl_status list_program(const foreseen *f, int64_t rank, sgltune_list *list)
{
    sgl_session *session = f->session;
    const sglpass_context context = { .env = f->env,
                                      .plan = &f->plan,
                                      .rank = rank,
                                      .warned = &session->warned,
                                      .workspace = session->ops->workspace,
                                      .interrupted = &session->vm->interrupted };
    sglir_graph *placed = NULL;
    sglexec_program *program = NULL;
    sgl_status status = sglpass_run(&context, f->graph->ir, NULL, &placed);
    if (status == SGL_INTERRUPTED) sglsession_resume(session->vm);
    if (status == SGL_OK) status = sglexec_freeze(f->env, placed, &program);
    if (status == SGL_OK) status = sgltune_list_of(f->env, program, &f->plan, rank, &f->rates, list);
    sglexec_program_free(program);
    sglir_graph_free(placed);
    return status;
}

/* *list lives as f does. */
static sgl_status list_rank(foreseen *f, int64_t rank, const sgltune_list **list)
{
    SGLCORE_TRY(sglcore_vec_reserve(f->env, &f->made, 1));
    sgltune_list *made = sglcore_alloc_zero(f->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    f->made.data[f->made.count++] = made;
    *list = made;
    sgl_status status = list_program(f, rank, made);
    if (status == SGL_OK || status == SGL_INTERRUPTED) return status;
    return sglcore_fail_at(f->env, status, "rank %lld of %lld", (long long)rank, (long long)f->ranks);
}

static bool same_times(const sgltune_list *a, const sgltune_list *b)
{
    for (int64_t i = 0; i < a->events.count; i++)
        if (a->events.data[i].seconds != b->events.data[i].seconds) return false; /* latencies go by kind */
    return true;
}

static bool same_list(const sgltune_list *a, const sgltune_list *b)
{
    return a->events.count == b->events.count && sglcore_hash_equal(sgltune_list_hash(a), sgltune_list_hash(b)) &&
           same_times(a, b);
}

/* The ranks from first on, which are those of one place along pp: it is the slowest axis. */
static sgl_status list_place(foreseen *f, int64_t first, int64_t count)
{
    const sgltune_list *begins, *ends;
    SGLCORE_TRY(list_rank(f, first, &begins));
    f->lists[first] = ends = begins;
    if (count > 1) SGLCORE_TRY(list_rank(f, first + count - 1, &ends));
    f->lists[first + count - 1] = ends;
    const bool even = same_list(begins, ends);
    if (!even && count > MOST_UNEVEN)
        return sglcore_fail(
            f->env, SGL_LIMIT,
            "plan: parts are uneven among %lld ranks, more than the %d whose programs are planned one by "
            "one; the ranks themselves compare their exchanges before the first step",
            (long long)count, MOST_UNEVEN);
    for (int64_t rank = first + 1; rank < first + count - 1; rank++) {
        f->lists[rank] = begins;
        if (!even) SGLCORE_TRY(list_rank(f, rank, &f->lists[rank]));
    }
    return SGL_OK;
}

static sgl_status foresee(foreseen *f, sgltune_times *times, sgl_foresight *foresight)
{
    const int64_t places = f->plan.mesh[SGLIR_AXIS_PP], each = f->ranks / places;
    for (int64_t place = 0; place < places; place++) SGLCORE_TRY(list_place(f, place * each, each));
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
                   .plan = sglsession_plan(session, plan),
                   .rates = { rates.flops_per_s, rates.bytes_per_s, rates.link_latency_s, rates.link_bytes_per_s } };
    SGLCORE_TRY(sglplan_mesh_size(f.env, &f.plan, &f.ranks));
    sglcore_arena arena = { .env = f.env };
    f.lists = sglcore_arena_alloc(&arena, (size_t)f.ranks * sizeof *f.lists);
    sgltune_times *times = sglcore_arena_alloc(&arena, (size_t)f.ranks * sizeof *times);
    sglsession_begin_busy(session, "foreseeing a step");
    sgl_status status = f.lists && times ? foresee(&f, times, foresight) : SGL_OUT_OF_MEMORY;
    sglsession_end_busy(session);
    for (int64_t i = 0; i < f.made.count; i++) {
        sgltune_list_free(f.env, f.made.data[i]);
        sglcore_free(f.env, f.made.data[i], sizeof *f.made.data[i]);
    }
    sglcore_vec_free(f.env, &f.made);
    sglcore_arena_free(&arena);
    return status;
}
