/* world.c -- the world of ranks that a session joins: sgl_join, and what a host asks and tells of it.
 *
 * Comes in: a transport by name, what a host has to say. Goes out: this session's comm, which lives until the session is
 * freed, and the place of a program in it. Without a world every call here answers as one rank alone would. Odd invariant: a
 * session that has not joined has a rank too, that for which it plans; nothing of several ranks steps there. */
#include <stdio.h>
#include <string.h>

#include "session/session.h"
#include "wire.h"

enum { TIMEOUT_S = 300, TOLD_BY_ANOTHER = INT32_MAX };

/* ---- joining and leaving -------------------------------------------------------------------------------------------- */

static size_t note_bytes(const sglsession_world *w) { return (size_t)w->ranks * sizeof *w->notes; }

sgl_status sglsession_take_world(sgl_session *session, const sglexec_comm_ops *ops, sglexec_comm *comm)
{
    sglcore_env *env = &session->vm->env;
    sglsession_world *w = &session->world;
    *w = (sglsession_world){
        .ops = ops, .comm = comm, .rank = ops->rank(comm), .ranks = ops->size(comm), .told_by = -1
    };
    w->notes = sglcore_alloc_zero(env, note_bytes(w));
    sgl_status status = w->notes ? sglexec_net_open(env, ops, comm, &w->net) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) return SGL_OK;
    sglsession_lose(session, status);
    const int told_by = ops->tells(comm) ? -1 : TOLD_BY_ANOTHER;
    sglsession_leave(session);
    w->told_by = told_by;
    return status;
}

sgl_status sgl_join(sgl_session *session, const sgl_join_config *config)
{
    SGLSESSION_NEEDS(session, NULL, "session is NULL");
    sglcore_env *env = &session->vm->env;
    const sglexec_comm_ops *ops;
    sglexec_comm *comm;
    if (session->world.comm)
        return sglcore_fail(env, SGL_WRONG_STATE, "sgl_join: the session has joined a world already");
    if (session->programs)
        return sglcore_fail(env, SGL_WRONG_STATE, "sgl_join: the session has programs; join before the first freeze");
    sglexec_comm_options options = { .timeout_s = config && config->timeout_s > 0 ? config->timeout_s : TIMEOUT_S };
    SGLCORE_TRY(sglwire_net(env, &options));
    SGLCORE_TRY(sglwire_transport_find(env, config && config->transport ? config->transport : "", &ops));
    SGLCORE_TRY(ops->open(env, &options, &comm));
    return sglsession_take_world(session, ops, comm);
}

void sglsession_leave(sgl_session *session)
{
    sglsession_world *w = &session->world;
    sglexec_net_close(w->net);
    sglcore_free(&session->vm->env, w->notes, note_bytes(w));
    if (w->comm) w->ops->close(w->comm);
    *w = (sglsession_world){ .ranks = 1, .told_by = -1 };
}

int sgl_session_rank(const sgl_session *session) { return session && session->world.comm ? session->world.rank : 0; }
int sgl_session_ranks(const sgl_session *session) { return session ? session->world.ranks : 1; }

const char *sgl_session_host(const sgl_session *session, int rank)
{
    if (!session || !session->world.comm || rank < 0 || rank >= session->world.ranks) return "";
    return session->world.ops->host(session->world.comm, rank);
}

/* ---- the place of a program ------------------------------------------------------------------------------------------ */

sgl_status sgl_session_plan_rank(sgl_session *session, int rank)
{
    SGLSESSION_NEEDS(session, NULL, "session is NULL");
    SGLSESSION_NEEDS(rank >= 0, session->vm, "rank is below 0");
    if (session->world.comm)
        return sglcore_fail(&session->vm->env, SGL_WRONG_STATE,
                            "sgl_session_plan_rank: the session is rank %d of %d; only one that has not joined plans "
                            "for another rank",
                            session->world.rank, session->world.ranks);
    session->world.rank = rank;
    return SGL_OK;
}

/* "dp=2,tp=2" */
static const char *mesh_text(const sglplan *plan, char text[256])
{
    size_t at = 0;
    text[0] = '\0';
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (axis == SGLIR_AXIS_MICRO || plan->mesh[axis] == 1) continue;
        int length = snprintf(text + at, 256 - at, "%s%s=%lld", at ? "," : "", sglir_axis_name(axis),
                              (long long)plan->mesh[axis]);
        if (length > 0) at += (size_t)length;
    }
    return text;
}

sgl_status sglsession_place(const sgl_session *session, const sglplan *plan, int64_t *rank, int64_t *ranks)
{
    sglcore_env *env = &session->vm->env;
    const sglsession_world *w = &session->world;
    char mesh[256];
    SGLCORE_TRY(sglplan_mesh_size(env, plan, ranks));
    *rank = *ranks == 1 && w->comm ? 0 : w->rank;
    if (w->comm && *ranks != 1 && *ranks != w->ranks)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "plan: the mesh %s spans %lld ranks, and this run has %d: start as many (sgl train --nproc "
                            "%lld ..., or mpirun -n %lld ...), or change the mesh",
                            mesh_text(plan, mesh), (long long)*ranks, w->ranks, (long long)*ranks, (long long)*ranks);
    if (*rank < *ranks) return SGL_OK;
    return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: there is no rank %lld: the mesh %s spans %lld",
                        (long long)*rank, mesh_text(plan, mesh), (long long)*ranks);
}

bool sglsession_has_met(const sgl_program *program)
{
    return program->ranks == 1 || program->session->ops->blank || program->exchanges != NULL;
}

/* What must be alike on all ranks. */
typedef struct likeness {
    sglcore_hash job, plan, order;
} likeness;

/* alike: of a rank that exchanges in the order of b. */
static const char *difference(const likeness *a, const likeness *alike, const likeness *b)
{
    if (!sglcore_hash_equal(a->job, b->job))
        return "the script has made other graphs there: all ranks must run the same script with the same settings and "
               "data";
    if (!sglcore_hash_equal(a->plan, b->plan)) return "their plans differ: all ranks must be given the same";
    if (!sglcore_hash_equal(alike->order, b->order))
        return "they exchange in another order, since the passes decided otherwise on parts of other sizes: a mesh "
               "that cuts evenly runs";
    return NULL;
}

/* Stages exchange what is their own; the ranks of one stage, the same. */
static int first_of_stage(const sgl_program *program, int rank)
{
    const sglplan *plan = &program->plan;
    sglplan_coordinate first = { { 0 } };
    if (sglplan_is_staged(plan)) first.at[SGLIR_AXIS_PP] = sglplan_mesh_coordinate(plan, rank).at[SGLIR_AXIS_PP];
    return (int)sglplan_mesh_rank(plan, &first);
}

/* Every rank comes to the same of it. */
static sgl_status compare(sgl_program *program, const likeness *all)
{
    sglsession_world *w = &program->session->world;
    for (int r = 1; r < w->ranks; r++) {
        const char *what = difference(&all[0], &all[first_of_stage(program, r)], &all[r]);
        if (!what) continue;
        w->told_by = 0;
        return sglcore_fail(&program->session->vm->env, SGL_INVALID_ARGUMENT,
                            "program \"%s\" of rank 0 on %s and of rank %d on %s: %s",
                            sglcore_string(program->program->strings, program->program->name), w->ops->host(w->comm, 0),
                            r, w->ops->host(w->comm, r), what);
    }
    return SGL_OK;
}

/* *known: all ranks have failed alike. */
static sgl_status meet(sgl_program *program, sglexec_exchanges **exchanges, bool *known)
{
    const sglsession_world *w = &program->session->world;
    sglcore_env *env = &program->session->vm->env;
    const size_t bytes = (size_t)w->ranks * sizeof(likeness);
    SGLCORE_TRY(sglexec_exchanges_new(w->net, program->program, &program->plan, program->rank, program->session->ops,
                                      exchanges));
    likeness own = { program->job, sglplan_hash(&program->plan), sglexec_exchanges_hash(*exchanges) };
    likeness *all = sglcore_alloc(env, bytes);
    if (!all) return SGL_OUT_OF_MEMORY;
    sgl_status status = sglexec_net_gather(w->net, &own, sizeof own, all, "comparing programs");
    if (status == SGL_OK) {
        status = compare(program, all);
        *known = status != SGL_OK;
    }
    sglcore_free(env, all, bytes);
    if (status == SGL_OK) status = sglsession_prove_order(program, known);
    if (status == SGL_OK) status = sglexec_exchanges_make_groups(*exchanges);
    const sgl_session *session = program->session;
    return status == SGL_OK ? sglexec_exchanges_link(*exchanges, session->ops, session->device, program->prepared)
                            : status;
}

sgl_status sglsession_meet(sgl_program *program)
{
    sgl_session *session = program->session;
    char mesh[256];
    if (sglsession_has_met(program)) return SGL_OK;
    if (!session->world.comm)
        return sglcore_fail(&session->vm->env, SGL_WRONG_STATE,
                            "program \"%s\" is one of %lld (mesh %s), and this process is alone: start as many (sgl "
                            "train --nproc %lld ..., or mpirun -n %lld ...)",
                            sglcore_string(program->program->strings, program->program->name),
                            (long long)program->ranks, mesh_text(&program->plan, mesh), (long long)program->ranks,
                            (long long)program->ranks);
    sglexec_exchanges *made = NULL;
    bool known = false;
    sgl_status status = meet(program, &made, &known);
    if (status == SGL_OK) {
        program->exchanges = made;
        return SGL_OK;
    }
    sglexec_exchanges_free(made);
    return known ? status : sglsession_lose(session, status);
}

/* ---- agreeing --------------------------------------------------------------------------------------------------------- */

/* The first rank that has failed, -1: none. An end of data on some ranks alone is a failure of the first of these, and
 * `without` the first that has not come to the end. */
static int first_failed(const sglsession_world *w, int *without)
{
    int failed = -1, ended = -1;
    *without = -1;
    for (int r = w->ranks - 1; r >= 0; r--) {
        const int32_t status = w->notes[r].status;
        if (status == SGL_NOT_FOUND)
            ended = r;
        else
            *without = r;
        if (status != SGL_OK && status != SGL_NOT_FOUND) failed = r;
    }
    return failed < 0 && *without >= 0 ? ended : failed;
}

/* Some ranks have failed: their status, and the message of the first. */
static sgl_status share_failure(sgl_session *session, int failed, int without)
{
    sglsession_world *w = &session->world;
    sglcore_env *env = &session->vm->env;
    const sgl_status status = (sgl_status)w->notes[failed].status;
    char why[sizeof env->message];
    w->told_by = failed;
    if (status == SGL_NOT_FOUND) /* and nothing else: the data are not the same everywhere */
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "the data end on rank %d (%s) and not on rank %d (%s): all ranks must be given the same",
                            failed, w->ops->host(w->comm, failed), without, w->ops->host(w->comm, without));
    memcpy(why, env->message, sizeof why);
    why[sizeof why - 1] = '\0';
    SGLCORE_TRY(sglexec_net_broadcast(w->net, failed, why, sizeof why, "telling of a failure"));
    if (w->notes[w->rank].status != SGL_OK && w->notes[w->rank].status != SGL_NOT_FOUND)
        return (sgl_status)w->notes[w->rank].status; /* with its own message */
    return sglcore_fail(env, status, "rank %d on %s: %s", failed, w->ops->host(w->comm, failed), why);
}

/* Where none stops or fails: who stops may have been fed less. Every rank comes to the same of it. */
static sgl_status compare_fed(sgl_session *session)
{
    sglsession_world *w = &session->world;
    for (int r = 1; r < w->ranks; r++) {
        if (w->notes[r].fed == w->notes[0].fed) continue;
        w->told_by = 0;
        return sglcore_fail(
            &session->vm->env, SGL_INVALID_ARGUMENT,
            "the batch of rank 0 (%s) and that of rank %d (%s) are not the same: a source of data makes the "
            "whole batch on every rank, from its number alone",
            w->ops->host(w->comm, 0), r, w->ops->host(w->comm, r));
    }
    return SGL_OK;
}

sgl_status sglsession_agree(sgl_session *session, sgl_status mine, sglsession_note *note)
{
    sglsession_world *w = &session->world;
    int without;
    if (!w->comm || w->ranks == 1) return mine;
    note->status = mine;
    note->fed = w->fed;
    w->fed = 0;
    const sglsession_note own = *note;
    SGLCORE_TRY(sglexec_net_gather(w->net, &own, sizeof own, w->notes, "agreeing between steps"));
    note->unsaved = w->notes[0].unsaved;
    for (int r = 0; r < w->ranks; r++) note->stop |= w->notes[r].stop;
    const int failed = first_failed(w, &without);
    if (failed >= 0) return share_failure(session, failed, without);
    return mine == SGL_OK && !note->stop ? compare_fed(session) : mine;
}

sgl_status sgl_session_agree(sgl_session *session, sgl_status mine)
{
    SGLSESSION_NEEDS(session, NULL, "session is NULL");
    sglsession_note note = { 0 };
    return sglsession_agree(session, mine, &note);
}

/* ---- what a host asks and tells ------------------------------------------------------------------------------------------ */

void sglsession_begin_busy(sgl_session *session, const char *what)
{
    sglsession_world *w = &session->world;
    if (w->busy++ == 0 && w->comm) w->ops->busy(w->comm, what);
}

void sglsession_end_busy(sgl_session *session)
{
    sglsession_world *w = &session->world;
    if (--w->busy == 0 && w->comm) w->ops->busy(w->comm, NULL);
}

void sgl_busy(sgl_session *session, const char *what)
{
    if (!session || session->world.host_busy == (what != NULL)) return;
    session->world.host_busy = what != NULL;
    if (what)
        sglsession_begin_busy(session, what);
    else
        sglsession_end_busy(session);
}

sgl_status sgl_world_check(sgl_session *session, int wait_ms)
{
    SGLSESSION_NEEDS(session, NULL, "session is NULL");
    return session->world.comm ? session->world.ops->check(session->world.comm, wait_ms) : SGL_OK;
}

void sgl_session_fail(sgl_session *session, const char *message)
{
    if (session && session->world.comm) session->world.ops->fail(session->world.comm, message ? message : "no reason");
}

bool sglsession_is_lost(const sgl_session *session)
{
    const sglsession_world *w = &session->world;
    sglcore_env *env = &session->vm->env;
    char why[sizeof env->message];
    if (!w->comm) return false;
    memcpy(why, env->message, sizeof why);
    bool lost = w->ops->check(w->comm, 0) != SGL_OK;
    memcpy(env->message, why, sizeof why);
    return lost;
}

sgl_status sglsession_lose(sgl_session *session, sgl_status status)
{
    if (session->world.comm && !sglsession_is_lost(session))
        session->world.ops->fail(session->world.comm, session->vm->env.message);
    return status;
}

int sgl_tells(const sgl_session *session)
{
    if (!session) return 1;
    const sglsession_world *w = &session->world;
    if (w->comm && sglsession_is_lost(session)) return w->ops->tells(w->comm);
    return w->told_by < 0 || w->told_by == w->rank;
}
