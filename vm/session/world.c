/* world.c -- the world of ranks that a session joins: sgl_join and what a host asks and tells of it.
 *
 * Comes in: a transport by name, what a host has to say. Goes out: this session's comm, which lives until the session is
 * freed. Without a world every call here answers as one rank alone would. Odd invariant: a session that has not joined has a
 * rank too, that for which it plans; nothing of it steps where there are several. */
#include <string.h>

#include "session/session.h"
#include "wire.h"

enum { TIMEOUT_S = 300 };

sgl_status sgl_join(sgl_session *session, const sgl_join_config *config)
{
    SGLSESSION_NEEDS(session, NULL, "session is NULL");
    const sgl_join_config nothing = { 0 }, *c = config ? config : &nothing;
    sglcore_env *env = &session->vm->env;
    sglsession_world *w = &session->world;
    if (w->comm) return sglcore_fail(env, SGL_WRONG_STATE, "sgl_join: the session has joined a world already");
    if (session->programs)
        return sglcore_fail(env, SGL_WRONG_STATE, "sgl_join: the session has programs; join before the first freeze");
    sglexec_comm_options options = { .timeout_s = c->timeout_s > 0 ? c->timeout_s : TIMEOUT_S };
    SGLCORE_TRY(sglwire_net(env, &options));
    SGLCORE_TRY(sglwire_transport_find(env, c->transport ? c->transport : "", &w->ops));
    SGLCORE_TRY(w->ops->open(env, &options, &w->comm));
    w->rank = w->ops->rank(w->comm);
    w->ranks = w->ops->size(w->comm);
    return SGL_OK;
}

void sglsession_leave(sgl_session *session)
{
    sglsession_world *w = &session->world;
    if (w->comm) w->ops->close(w->comm);
    *w = (sglsession_world){ .ranks = 1, .told_by = -1 };
}

int sgl_session_rank(const sgl_session *session) { return session && session->world.comm ? session->world.rank : 0; }
int sgl_session_ranks(const sgl_session *session) { return session ? session->world.ranks : 1; }

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

const char *sgl_session_host(const sgl_session *session, int rank)
{
    if (!session || !session->world.comm || rank < 0 || rank >= session->world.ranks) return "";
    return session->world.ops->host(session->world.comm, rank);
}

void sgl_busy(sgl_session *session, const char *what)
{
    if (session && session->world.comm) session->world.ops->busy(session->world.comm, what);
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

/* Asking leaves the message of the call that failed. */
int sgl_tells(const sgl_session *session)
{
    if (!session || !session->world.comm) return 1;
    const sglsession_world *w = &session->world;
    sglcore_env *env = &session->vm->env;
    char why[sizeof env->message];
    memcpy(why, env->message, sizeof why);
    bool lost = w->ops->check(w->comm, 0) != SGL_OK;
    memcpy(env->message, why, sizeof why);
    if (lost) return w->ops->tells(w->comm);
    return w->told_by < 0 || w->told_by == w->rank;
}
