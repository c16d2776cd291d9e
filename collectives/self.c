/* self.c -- the transport `self`: a world of one rank, where every exchange is done when it has started.
 *
 * Comes in: the calls of exec/comm.h. Goes out: copies. It has the same arguments, refused for the same reasons, as the
 * transports of many ranks, so that a program which runs here is one that runs there. Odd invariant: `fail` poisons it
 * too, since a step that failed is finished and saved no more alone than among many. */
#include <string.h>
#include <unistd.h>

#include "collectives/engine.h"

/* This transport's own; those of the engine are never seen here. */
typedef struct self_comm {
    sglcore_env *env;
    struct self_group *groups;
    char host[64], message[SGLCOMM_MESSAGE];
    bool poisoned;
} self_comm;

typedef struct self_group {
    struct self_group *next;
    self_comm *comm;
    char name[32];
    uint32_t started;
} self_group;

static self_comm *comm_of(sglexec_comm *comm) { return (self_comm *)comm; }
static self_group *group_of(sglexec_group *group) { return (self_group *)group; }

static sgl_status self_about(sglcore_env *env, sglcore_text *text)
{
    return sglcore_text_add(env, text, "  one rank, of this process alone\n");
}

static sgl_status self_open(sglcore_env *env, const sglexec_comm_options *options, sglexec_comm **result)
{
    (void)options;
    self_comm *comm = sglcore_alloc_zero(env, sizeof *comm);
    *result = (sglexec_comm *)comm;
    if (!comm) return SGL_OUT_OF_MEMORY;
    comm->env = env;
    if (gethostname(comm->host, sizeof comm->host - 1) != 0) strcpy(comm->host, "?");
    return SGL_OK;
}

static void self_close(sglexec_comm *closed)
{
    self_comm *comm = comm_of(closed);
    if (!comm) return;
    for (self_group *g = comm->groups, *next; g; g = next) {
        next = g->next;
        sglcore_free(comm->env, g, sizeof *g);
    }
    sglcore_free(comm->env, comm, sizeof *comm);
}

static int self_rank(const sglexec_comm *comm)
{
    (void)comm;
    return 0;
}

static int self_size(const sglexec_comm *comm)
{
    (void)comm;
    return 1;
}

static const char *self_host(const sglexec_comm *comm, int rank)
{
    return rank == 0 ? ((const self_comm *)comm)->host : "an unknown host";
}

static sgl_status self_check(sglexec_comm *comm, int wait_ms)
{
    (void)wait_ms;
    if (!comm_of(comm)->poisoned) return SGL_OK;
    return sglcore_fail(comm_of(comm)->env, SGL_DEVICE, "%s", comm_of(comm)->message);
}

static sgl_status self_group_make(sglexec_comm *whole, const char *name, const int *ranks, int count,
                                  sglexec_group **result)
{
    self_comm *comm = comm_of(whole);
    *result = NULL;
    SGLCORE_TRY(self_check(whole, 0));
    if (count != 1 || ranks[0] != 0)
        return sglcore_fail(comm->env, SGL_INVALID_ARGUMENT,
                            "group %s of %d ranks from rank %d on: this world has rank 0 alone", name, count,
                            count > 0 ? ranks[0] : -1);
    self_group *group = sglcore_alloc_zero(comm->env, sizeof *group);
    if (!group) return SGL_OUT_OF_MEMORY;
    group->comm = comm;
    strncpy(group->name, name, sizeof group->name - 1);
    group->next = comm->groups;
    comm->groups = group;
    *result = (sglexec_group *)group;
    return SGL_OK;
}

static void move(void *to, const void *from, int64_t count, sgl_dtype dtype)
{
    if (count > 0 && from != to) memmove(to, from, (size_t)sglcore_dtype_bytes(dtype, count));
}

static sgl_status self_start(sglexec_group *started, const sglexec_exchange *x, void *stream, uint32_t *ticket)
{
    self_group *group = group_of(started);
    SGLCORE_TRY(self_check((sglexec_comm *)group->comm, 0));
    SGLCORE_TRY(sglcomm_check_exchange(group->comm->env, group->name, 1, 0, x));
    if (stream)
        return sglcore_fail(group->comm->env, SGL_UNSUPPORTED,
                            "%s of group %s: the transport moves the host's memory alone", sglcomm_kind_name(x->kind),
                            group->name);
    const bool counted =
        x->kind == SGLEXEC_REDUCE_SCATTER || x->kind == SGLEXEC_ALL_GATHER || x->kind == SGLEXEC_ALL_TO_ALL;
    const int64_t count = x->kind == SGLEXEC_BARRIER ? 0 : counted && x->counts ? x->counts[0] : x->count;
    for (int i = 0; i < x->member_count; i++)
        move(x->members[i].to, x->members[i].from, x->members[i].counts[0], (sgl_dtype)x->dtype);
    if (x->member_count == 0) move(x->to, x->from, count, (sgl_dtype)x->dtype);
    *ticket = ++group->started;
    return SGL_OK;
}

static sgl_status self_test(sglexec_group *tested, uint32_t ticket, bool *done)
{
    self_group *group = group_of(tested);
    SGLCORE_TRY(self_check((sglexec_comm *)group->comm, 0));
    *done = (int32_t)(ticket - group->started) <= 0;
    if (*done) return SGL_OK;
    return sglcore_fail(group->comm->env, SGL_WRONG_STATE, "group %s: no exchange was started under ticket %u",
                        group->name, (unsigned)ticket);
}

static sgl_status self_wait(sglexec_group *group, uint32_t ticket, void *stream)
{
    bool done;
    (void)stream;
    return self_test(group, ticket, &done);
}

static void self_busy(sglexec_comm *comm, const char *what) { (void)comm, (void)what; }

static void self_fail(sglexec_comm *failed, const char *message)
{
    self_comm *comm = comm_of(failed);
    if (comm->poisoned) return;
    strncpy(comm->message, message, sizeof comm->message - 1);
    comm->poisoned = true;
}

static bool self_tells(sglexec_comm *comm) { return comm_of(comm)->poisoned; }

static sgl_status self_describe(sglexec_comm *comm, sglcore_text *text)
{
    return sglcore_text_add(comm_of(comm)->env, text, "  rank 0 of 1 on %s\n", comm_of(comm)->host);
}

const sglexec_comm_ops sglexec_comm_self = {
    .name = "self",
    .about = self_about,
    .open = self_open,
    .close = self_close,
    .rank = self_rank,
    .size = self_size,
    .host = self_host,
    .group = self_group_make,
    .start = self_start,
    .wait = self_wait,
    .test = self_test,
    .busy = self_busy,
    .fail = self_fail,
    .check = self_check,
    .tells = self_tells,
    .describe = self_describe,
};
