/* comm.c -- a comm over a link: its thread, its opening and its end, waiting, and what happens once it is poisoned.
 *
 * Comes in: a link and options. Goes out: the calls of exec/comm.h. The communication thread joins the world, makes
 * every call of the link, and sleeps between turns: it spins for a short while after something moved, then looks every
 * 50 to 200 us, and while nothing is under way at the next tick of the watchdog. Poisoned, it tells the others, then
 * says that it is quiet; only then do waiting calls return, since only then does nothing touch their memory any more.
 * Odd invariant: the env is the user's thread's; the communication thread neither allocates nor fails through it. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engine.h"

enum { SPINS = 200, IDLE_NS = 20000000, LEAST_NAP_NS = 50000, MOST_NAP_NS = 200000 };

typedef struct hello {
    char host[64];
    int64_t process;
    uint64_t machine, alike; /* alike: must be the same on all ranks */
} hello;

/* ---- the communication thread ------------------------------------------------------------------------------------ */

void sglcomm_wake(sglexec_comm *comm)
{
    atomic_fetch_add(&comm->calls, 1);
    if (!atomic_load(&comm->sleeps)) return;
    pthread_mutex_lock(&comm->lock);
    pthread_cond_signal(&comm->work);
    pthread_mutex_unlock(&comm->lock);
}

static void announce(sglexec_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    pthread_cond_broadcast(&comm->news);
    pthread_mutex_unlock(&comm->lock);
}

/* Until that time, or a call. */
static void sleep_until(sglexec_comm *comm, int64_t wake_ns, uint32_t calls)
{
    const struct timespec until = { .tv_sec = wake_ns / 1000000000, .tv_nsec = wake_ns % 1000000000 };
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->sleeps, true);
    int error = 0;
    while (error == 0 && atomic_load(&comm->calls) == calls)
        error = pthread_cond_timedwait(&comm->work, &comm->lock, &until);
    atomic_store(&comm->sleeps, false);
    pthread_mutex_unlock(&comm->lock);
}

void sglcomm_poison(sglexec_comm *comm, int origin, const char *format, ...)
{
    pthread_mutex_lock(&comm->lock);
    const int health = atomic_load(&comm->health);
    if (health == SGLCOMM_WHOLE || (health == SGLCOMM_POISONED && origin < comm->origin)) {
        va_list arguments;
        va_start(arguments, format);
        sglcore_format(comm->message, sizeof comm->message, format, arguments);
        va_end(arguments);
        comm->origin = origin;
        if (health == SGLCOMM_WHOLE) atomic_store(&comm->health, SGLCOMM_POISONED);
    }
    pthread_mutex_unlock(&comm->lock);
}

static void take_failure(sglexec_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool fails = comm->fails;
    pthread_mutex_unlock(&comm->lock);
    if (fails)
        sglcomm_poison(comm, comm->rank, "rank %d on %s failed: %s", comm->rank, sglcomm_host(comm, comm->rank),
                       comm->asked);
}

static void become_quiet(sglexec_comm *comm)
{
    sglcomm_watch_flood(comm);
    atomic_store(&comm->health, SGLCOMM_QUIET);
    announce(comm);
}

/* One turn; true when something moved. wake_ns: when to look again, at the latest. */
static bool turn(sglexec_comm *comm, int64_t nap_ns, int64_t *wake_ns)
{
    const int64_t now_ns = sglcore_now_ns();
    bool moved = false, active = false;
    *wake_ns = now_ns + IDLE_NS;
    for (sglexec_group *g = atomic_load(&comm->groups); g; g = g->next) {
        moved = sglcomm_run_turn(g, now_ns, wake_ns) || moved;
        active = active || g->run.active;
    }
    moved = sglcomm_watch_hear(comm) || moved;
    if (now_ns >= comm->next_tick_ns || atomic_exchange(&comm->urgent, false)) {
        comm->next_tick_ns = now_ns + comm->beat_ns / 4;
        take_failure(comm);
        sglcomm_watch_tick(comm, now_ns);
    }
    if (atomic_load(&comm->leaving) && !atomic_load(&comm->left)) {
        if (sglcomm_watch_drain(comm)) {
            atomic_store(&comm->left, true);
            announce(comm);
        }
        active = true;
    }
    if (active && now_ns + nap_ns < *wake_ns) *wake_ns = now_ns + nap_ns;
    if (comm->next_tick_ns < *wake_ns) *wake_ns = comm->next_tick_ns;
    return moved;
}

static void serve(sglexec_comm *comm)
{
    int idle = 0;
    int64_t nap_ns = LEAST_NAP_NS, wake_ns;
    comm->last_tick_ns = comm->next_tick_ns = sglcore_now_ns();
    sglcomm_watch_listen(comm);
    while (!atomic_load(&comm->stop)) {
        const uint32_t calls = atomic_load(&comm->calls);
        const int health = atomic_load(&comm->health);
        if (health == SGLCOMM_POISONED) become_quiet(comm);
        if (health != SGLCOMM_WHOLE) {
            sleep_until(comm, sglcore_now_ns() + 1000000000, calls);
        } else if (turn(comm, nap_ns, &wake_ns)) {
            idle = 0;
            nap_ns = LEAST_NAP_NS;
        } else if (++idle < comm->spins) {
            sched_yield();
        } else {
            sleep_until(comm, wake_ns, calls);
            nap_ns = nap_ns * 2 < MOST_NAP_NS ? nap_ns * 2 : MOST_NAP_NS;
        }
    }
}

static void *thread_main(void *argument)
{
    sglexec_comm *comm = argument;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* naps of 50 us, not of 100 */
    const bool joined = comm->ops->open(&comm->link, &comm->rank, &comm->size, &comm->channels);
    pthread_mutex_lock(&comm->lock);
    comm->opened = joined ? 1 : -1;
    if (!joined) snprintf(comm->message, sizeof comm->message, "%s", comm->ops->why(NULL));
    pthread_cond_broadcast(&comm->news);
    while (joined && !atomic_load(&comm->go) && !atomic_load(&comm->stop)) pthread_cond_wait(&comm->work, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (!joined) return NULL;
    if (atomic_load(&comm->go)) serve(comm);
    const bool orderly = atomic_load(&comm->left) && atomic_load(&comm->health) == SGLCOMM_WHOLE;
    if (orderly && comm->listens) comm->ops->cancel(comm->link, &comm->hears);
    comm->ops->close(comm->link, orderly);
    return NULL;
}

/* The host's signals are for the host's threads. */
static int start_thread(sglexec_comm *comm)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&comm->thread, NULL, thread_main, comm);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void stop_thread(sglexec_comm *comm)
{
    atomic_store(&comm->stop, true);
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_add(&comm->calls, 1);
    pthread_cond_broadcast(&comm->work);
    pthread_mutex_unlock(&comm->lock);
    pthread_join(comm->thread, NULL);
}

/* ---- asking it --------------------------------------------------------------------------------------------------- */

int sglcomm_rank(const sglexec_comm *comm) { return comm->rank; }
int sglcomm_size(const sglexec_comm *comm) { return comm->size; }

const char *sglcomm_host(const sglexec_comm *comm, int rank)
{
    if (rank < 0 || rank >= comm->size || !atomic_load(&((sglexec_comm *)(uintptr_t)comm)->known))
        return "an unknown host";
    return comm->peers[rank].host;
}

/* A number of nanoseconds at the most; false when it is over. */
static bool wait_for_news(sglexec_comm *comm, int64_t until_ns)
{
    const struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    return pthread_cond_timedwait(&comm->news, &comm->lock, &until) == 0;
}

sgl_status sglcomm_check(sglexec_comm *comm, int wait_ms)
{
    const int64_t until_ns = sglcore_now_ns() + (int64_t)wait_ms * 1000000;
    if (wait_ms <= 0 && atomic_load(&comm->health) == SGLCOMM_WHOLE) return SGL_OK;
    pthread_mutex_lock(&comm->lock);
    while (atomic_load(&comm->health) == SGLCOMM_WHOLE && wait_for_news(comm, until_ns)) continue;
    while (atomic_load(&comm->health) == SGLCOMM_POISONED) pthread_cond_wait(&comm->news, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (atomic_load(&comm->health) == SGLCOMM_WHOLE) return SGL_OK;
    return sglcore_fail(comm->env, SGL_DEVICE, "%s", comm->message);
}

static bool has_ended(sglexec_group *group, uint32_t ticket)
{
    return (int32_t)((uint32_t)atomic_load(&group->finished) - ticket) >= 0;
}

static sgl_status check_wait(sglexec_group *group, uint32_t ticket, const void *stream)
{
    sglexec_comm *comm = group->comm;
    if (stream)
        return sglcore_fail(comm->env, SGL_UNSUPPORTED, "group %s: the transport moves the host's memory alone",
                            group->name);
    if ((int32_t)(ticket - (uint32_t)atomic_load(&group->started)) > 0)
        return sglcore_fail(comm->env, SGL_WRONG_STATE, "group %s: no exchange was started under ticket %u",
                            group->name, (unsigned)ticket);
    return SGL_OK;
}

sgl_status sglcomm_wait(sglexec_group *group, uint32_t ticket, void *stream)
{
    sglexec_comm *comm = group->comm;
    SGLCORE_TRY(check_wait(group, ticket, stream));
    for (int i = 0; i < comm->spins && !has_ended(group, ticket); i++) sched_yield();
    if (has_ended(group, ticket)) return sglcomm_check(comm, 0);
    pthread_mutex_lock(&comm->lock);
    atomic_fetch_add(&comm->waiters, 1);
    while (!has_ended(group, ticket) && atomic_load(&comm->health) != SGLCOMM_QUIET)
        pthread_cond_wait(&comm->news, &comm->lock);
    atomic_fetch_sub(&comm->waiters, 1);
    pthread_mutex_unlock(&comm->lock);
    return sglcomm_check(comm, 0);
}

sgl_status sglcomm_test(sglexec_group *group, uint32_t ticket, bool *done)
{
    SGLCORE_TRY(check_wait(group, ticket, NULL));
    *done = has_ended(group, ticket);
    return sglcomm_check(group->comm, 0);
}

/* Told often: what is known already costs a look. */
void sglcomm_elsewhere(sglexec_comm *comm, sglexec_group *group, const sglexec_exchange *exchange, uint64_t number)
{
    sglcomm_away *away = &comm->away;
    pthread_mutex_lock(&comm->lock);
    if (group != away->group || (group && number != away->number)) {
        *away = (sglcomm_away){ .group = group, .number = number, .since_ns = sglcore_now_ns() };
        if (group) {
            away->kind = exchange->kind;
            snprintf(away->label, sizeof away->label, "%s", exchange->label ? exchange->label : "");
        }
    }
    pthread_mutex_unlock(&comm->lock);
}

void sglcomm_busy(sglexec_comm *comm, const char *what)
{
    pthread_mutex_lock(&comm->lock);
    comm->is_busy = what != NULL;
    if (what) {
        memset(comm->busy, 0, sizeof comm->busy);
        strncpy(comm->busy, what, sizeof comm->busy - 1);
    }
    pthread_mutex_unlock(&comm->lock);
    atomic_store(&comm->urgent, true);
    sglcomm_wake(comm);
}

void sglcomm_fail(sglexec_comm *comm, const char *message)
{
    pthread_mutex_lock(&comm->lock);
    if (!comm->fails) snprintf(comm->asked, sizeof comm->asked, "%s", message);
    comm->fails = true;
    atomic_store(&comm->urgent, true);
    atomic_fetch_add(&comm->calls, 1);
    pthread_cond_broadcast(&comm->work);
    while (atomic_load(&comm->health) != SGLCOMM_QUIET) pthread_cond_wait(&comm->news, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

bool sglcomm_tells(sglexec_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool own = atomic_load(&comm->health) != SGLCOMM_WHOLE && comm->origin == comm->rank;
    pthread_mutex_unlock(&comm->lock);
    return own;
}

sgl_status sglcomm_describe(sglexec_comm *comm, sglcore_text *text)
{
    char about[256];
    comm->ops->about(about, sizeof about);
    SGLCORE_TRY(sglcore_text_add(comm->env, text, "  rank %d of %d on %s; %s\n", comm->rank, comm->size,
                                 sglcomm_host(comm, comm->rank), about));
    if (comm->options.latency_us > 0 || comm->options.bytes_per_s > 0)
        return sglcore_text_add(comm->env, text, "  shaped: latency %g us, %g Gbit/s (0: as it is)\n",
                                comm->options.latency_us, comm->options.bytes_per_s * 8e-9);
    return SGL_OK;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

/* Of the machine as it was booted, and the processes that this one sees. */
static uint64_t machine_of(void)
{
    char boot[64] = { 0 };
    struct stat space = { 0 };
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, boot, sizeof boot - 1) < 0) boot[0] = '\0';
        close(file);
    }
    /* What cannot be asked is like no other machine: its processes are not looked for. */
    if (boot[0] == '\0' || stat("/proc/self/ns/pid", &space) != 0)
        return (uint64_t)sglcore_now_ns() ^ (uint64_t)getpid() << 40;
    return sglcore_hash_bytes(boot, sizeof boot).low ^ (uint64_t)space.st_ino;
}

static int cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static hello hello_of(const sglexec_comm *comm)
{
    hello own;
    char facts[256];
    memset(&own, 0, sizeof own);
    if (gethostname(own.host, sizeof own.host - 1) != 0) strcpy(own.host, "?");
    own.process = getpid();
    own.machine = machine_of();
    snprintf(facts, sizeof facts, "%s %g %g %g", sgl_version(), comm->options.timeout_s, comm->options.latency_us,
             comm->options.bytes_per_s);
    own.alike = sglcore_hash_bytes(facts, strlen(facts)).low;
    return own;
}

static sgl_status learn(sglexec_comm *comm, const hello *all)
{
    int near = 0;
    for (int r = 0; r < comm->size; r++) {
        sglcomm_peer *peer = &comm->peers[r];
        memcpy(peer->host, all[r].host, sizeof peer->host);
        peer->host[sizeof peer->host - 1] = '\0';
        peer->process = all[r].process;
        peer->machine = all[r].machine;
        near += all[r].machine == all[comm->rank].machine;
        if (all[r].alike != all[comm->rank].alike)
            return sglcore_fail(
                comm->env, SGL_INVALID_ARGUMENT,
                "rank %d on %s and rank %d on %s differ in version, timeout or SGL_NET: all ranks must have "
                "the same",
                r, peer->host, comm->rank, all[comm->rank].host);
    }
    /* A rank has a computing thread and this one; where they have no core each, spinning takes it from those that work. */
    comm->spins = 2 * near <= cores() ? SPINS : 0;
    atomic_store(&comm->known, true);
    return SGL_OK;
}

static sgl_status meet(sglexec_comm *comm)
{
    sglcore_env *env = comm->env;
    const size_t bytes = (size_t)comm->size * sizeof(hello);
    int *ranks = sglcore_alloc(env, (size_t)comm->size * sizeof *ranks);
    hello *all = sglcore_alloc(env, bytes);
    sgl_status status = ranks && all ? SGL_OK : SGL_OUT_OF_MEMORY;
    for (int r = 0; status == SGL_OK && r < comm->size; r++) ranks[r] = r;
    if (status == SGL_OK) status = sglcomm_group(comm, "world", ranks, comm->size, &comm->world);
    if (status == SGL_OK) {
        hello own = hello_of(comm);
        uint32_t ticket;
        const sglexec_exchange x = { .kind = SGLEXEC_ALL_GATHER,
                                     .dtype = SGL_U8,
                                     .count = sizeof own,
                                     .from = &own,
                                     .to = all,
                                     .label = "joining" };
        pthread_mutex_lock(&comm->lock);
        atomic_store(&comm->go, true);
        pthread_cond_broadcast(&comm->work);
        pthread_mutex_unlock(&comm->lock);
        status = sglcomm_start(comm->world, &x, NULL, &ticket);
        if (status == SGL_OK) status = sglcomm_wait(comm->world, ticket, NULL);
    }
    if (status == SGL_OK) status = learn(comm, all);
    sglcore_free(env, all, bytes);
    sglcore_free(env, ranks, (size_t)comm->size * sizeof *ranks);
    return status;
}

static sgl_status barrier(sglexec_comm *comm, const char *label)
{
    uint32_t ticket;
    const sglexec_exchange x = { .kind = SGLEXEC_BARRIER, .label = label };
    SGLCORE_TRY(sglcomm_start(comm->world, &x, NULL, &ticket));
    return sglcomm_wait(comm->world, ticket, NULL);
}

static void free_comm(sglexec_comm *comm)
{
    for (sglexec_group *g = atomic_load(&comm->groups), *next; g; g = next) {
        next = g->next;
        sglcomm_group_free(g);
    }
    sglcomm_watch_free(comm);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->work);
    pthread_cond_destroy(&comm->news);
    sglcore_free(comm->env, comm, sizeof *comm);
}

/* Two barriers: after the first no rank sends beats, after the second none is under way. */
static void leave(sglexec_comm *comm)
{
    if (barrier(comm, "closing") != SGL_OK) return;
    atomic_store(&comm->leaving, true);
    sglcomm_wake(comm);
    pthread_mutex_lock(&comm->lock);
    while (!atomic_load(&comm->left) && atomic_load(&comm->health) == SGLCOMM_WHOLE)
        pthread_cond_wait(&comm->news, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    (void)barrier(comm, "closing");
}

void sglcomm_close(sglexec_comm *comm)
{
    if (!comm) return;
    leave(comm);
    stop_thread(comm);
    free_comm(comm);
}

static bool told_by_another(sglexec_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const bool told = atomic_load(&comm->health) != SGLCOMM_WHOLE && comm->origin != comm->rank;
    pthread_mutex_unlock(&comm->lock);
    return told;
}

/* The link waits for all ranks, and for one that was stopped for ever: then its thread is left to itself, and with it the comm, which
 * it reads if it ever comes back. */
static bool has_opened(sglexec_comm *comm)
{
    const int64_t until_ns = sglcore_now_ns() + (int64_t)(comm->options.timeout_s * 1e9);
    const struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    int error = 0;
    pthread_mutex_lock(&comm->lock);
    while (comm->opened == 0 && error == 0) error = pthread_cond_timedwait(&comm->news, &comm->lock, &until);
    const bool opened = comm->opened != 0;
    if (!opened) atomic_store(&comm->stop, true);
    pthread_mutex_unlock(&comm->lock);
    if (!opened) pthread_detach(comm->thread);
    return opened;
}

static sgl_status join(sglexec_comm *comm)
{
    if (comm->opened < 0) return sglcore_fail(comm->env, SGL_DEVICE, "%s", comm->message);
    SGLCORE_TRY(sglcomm_watch_open(comm));
    return meet(comm);
}

sgl_status sglcomm_open(sglcore_env *env, const sglexec_comm_options *options, const sglcomm_link_ops *ops,
                        sglexec_comm **result)
{
    *result = NULL;
    if (!(options->timeout_s > 0) || options->timeout_s > 1e9)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT,
                            "a timeout of %g s for an exchange: give more than 0, at most 1e9", options->timeout_s);
    if (!(options->latency_us >= 0) || !(options->bytes_per_s >= 0) || isinf(options->latency_us))
        return sglcore_fail(
            env, SGL_INVALID_ARGUMENT,
            "a link of latency %g us and %g bytes/s: give numbers of at least 0, where 0 is the link as it is",
            options->latency_us, options->bytes_per_s);
    sglexec_comm *comm = sglcore_alloc_zero(env, sizeof *comm);
    if (!comm) return SGL_OUT_OF_MEMORY;
    comm->env = env;
    comm->options = *options;
    comm->ops = ops;
    comm->spins = SPINS;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->work, &monotonic);
    pthread_cond_init(&comm->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int error = start_thread(comm);
    if (error != 0) {
        free_comm(comm);
        return sglcore_fail(env, SGL_DEVICE, "the communication thread cannot be started: %s", strerror(error));
    }
    if (!has_opened(comm))
        return sglcore_fail(
            env, SGL_DEVICE,
            "joining the other ranks took longer than %g s (timeout): one of them has not come to it, or was "
            "stopped on its way",
            options->timeout_s);
    const sgl_status status = join(comm);
    /* What another rank tells is no failure of this call: that rank has been let in and failed since, and the next call says
     * so, to a caller who can ask whose it is to print. */
    if (status != SGL_OK && !(comm->world && told_by_another(comm))) {
        if (atomic_load(&comm->go)) sglcomm_fail(comm, env->message);
        stop_thread(comm);
        free_comm(comm);
        return status;
    }
    *result = comm;
    return SGL_OK;
}
