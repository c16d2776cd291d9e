/* watchdog.c -- who is where: heartbeats, deadlines, and the message that names who is late.
 *
 * Comes in: beats of others, this rank's own runs, time. Goes out: beats, and a poisoned comm. Each beat carries all
 * that a rank knows of all ranks (state, exchange, whom it awaits) to rank + 2^k, k in turn, so that news of any rank
 * is everywhere after log2(ranks) beats, at a cost that does not grow with their number but for the bytes. Among many
 * ranks a label travels with its own rank's beat, and with others' once that rank has stood for a second: what is stuck
 * has a name. A rank of this machine whose process has ended is lost at once. What devices exchange by themselves
 * (engine.h: away) has its deadline here too. Odd invariant: between two ticks at most MOST_TICK_NS count against a
 * deadline, so that a job that was stopped as a whole, and goes on, has not timed out. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engine.h"

#define BEAT_MAGIC 0x73676c32u
#define MOST_TICK_NS 1000000000
#define FLOOD_LEAST_NS 150000000 /* so long may a rank of a busy machine wait for its turn */
#define FLOOD_MOST_NS 300000000
enum { FEW_RANKS = 64 }; /* so few that all labels always fit in a small beat */

typedef struct beat_head {
    uint32_t magic;
    int32_t origin; /* of a failure; -1: none */
    uint32_t entries, message_bytes;
} beat_head;

typedef struct beat_entry {
    uint64_t number;
    int32_t rank, awaits;
    uint32_t beat, stands_ms;
    uint8_t state, label_bytes, unused[6];
} beat_entry;

static size_t beat_room(int ranks)
{
    return sizeof(beat_head) + SGLCOMM_MESSAGE + (size_t)ranks * (sizeof(beat_entry) + SGLCOMM_LABEL);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

sgl_status sglcomm_watch_open(sglexec_comm *comm)
{
    sglcore_env *env = comm->env;
    const size_t size = (size_t)comm->size;
    comm->beat_room = beat_room(comm->size);
    comm->peers = sglcore_alloc_zero(env, size * sizeof *comm->peers);
    comm->flood = sglcore_alloc_zero(env, size * sizeof *comm->flood);
    comm->floods = sglcore_alloc_zero(env, size * sizeof *comm->floods);
    comm->heard = sglcore_alloc(env, comm->beat_room);
    comm->bad_news = sglcore_alloc(env, beat_room(0));
    if (!comm->peers || !comm->flood || !comm->floods || !comm->heard || !comm->bad_news) return SGL_OUT_OF_MEMORY;
    for (int r = 0; r < comm->size; r++) {
        comm->peers[r].awaits = -1;
        comm->peers[r].heard_ns = comm->peers[r].stands_ns = sglcore_now_ns();
        snprintf(comm->peers[r].host, sizeof comm->peers[r].host, "?");
    }
    for (int distance = 1; distance < comm->size; distance *= 2) {
        sglcomm_sender *sender = &comm->senders[comm->sender_count];
        sender->data = sglcore_alloc(env, comm->beat_room);
        if (!sender->data) return SGL_OUT_OF_MEMORY;
        comm->sender_count++;
    }
    const double beat_ns = comm->options.timeout_s * 1e9 / 20;
    comm->beat_ns = beat_ns < 20e6 ? 20000000 : beat_ns > 250e6 ? 250000000 : (int64_t)beat_ns;
    return SGL_OK;
}

void sglcomm_watch_free(sglexec_comm *comm)
{
    sglcore_env *env = comm->env;
    const size_t size = (size_t)comm->size;
    for (int k = 0; k < comm->sender_count; k++) sglcore_free(env, comm->senders[k].data, comm->beat_room);
    sglcore_free(env, comm->peers, size * sizeof *comm->peers);
    sglcore_free(env, comm->flood, size * sizeof *comm->flood);
    sglcore_free(env, comm->floods, size * sizeof *comm->floods);
    sglcore_free(env, comm->heard, comm->beat_room);
    sglcore_free(env, comm->bad_news, beat_room(0));
}

/* ---- beats ------------------------------------------------------------------------------------------------------- */

static void put(unsigned char **at, const void *data, size_t bytes)
{
    memcpy(*at, data, bytes);
    *at += bytes;
}

/* All that this rank knows; origin >= 0: and why the comm is poisoned. */
static size_t write_beat(sglexec_comm *comm, unsigned char *data, bool with_entries)
{
    const int64_t now_ns = sglcore_now_ns();
    const bool poisoned = atomic_load(&comm->health) != SGLCOMM_WHOLE;
    unsigned char *at = data + sizeof(beat_head);
    beat_head head = { .magic = BEAT_MAGIC, .origin = -1 };
    if (poisoned) {
        pthread_mutex_lock(&comm->lock);
        head.origin = comm->origin;
        head.message_bytes = (uint32_t)strlen(comm->message);
        put(&at, comm->message, head.message_bytes);
        pthread_mutex_unlock(&comm->lock);
    }
    for (int r = 0; with_entries && r < comm->size; r++) {
        const sglcomm_peer *peer = &comm->peers[r];
        const int64_t stands_ms = (now_ns - peer->stands_ns) / 1000000;
        beat_entry entry = { .number = peer->number,
                             .rank = r,
                             .awaits = peer->awaits,
                             .beat = peer->beat,
                             .stands_ms = (uint32_t)(stands_ms < UINT32_MAX ? stands_ms : UINT32_MAX),
                             .state = peer->state };
        if (r == comm->rank || comm->size <= FEW_RANKS || stands_ms > 1000)
            entry.label_bytes = (uint8_t)strlen(peer->label);
        put(&at, &entry, sizeof entry);
        put(&at, peer->label, entry.label_bytes);
        head.entries++;
    }
    memcpy(data, &head, sizeof head);
    return (size_t)(at - data);
}

static void link_failed(sglexec_comm *comm, const char *what)
{
    sglcomm_poison(comm, comm->rank, "rank %d on %s: %s heartbeats failed: %s", comm->rank,
                   sglcomm_host(comm, comm->rank), what, comm->ops->why(comm->link));
}

/* A rank whose last beat is under way still gets no other: it may be stopped. */
static void send_beat(sglexec_comm *comm, int k)
{
    sglcomm_sender *sender = &comm->senders[k];
    size_t bytes;
    if (sender->flies) {
        bool done = false;
        if (!comm->ops->test(comm->link, &sender->request, &done, &bytes)) {
            link_failed(comm, "sending");
            return;
        }
        if (!done) return;
        sender->flies = false;
    }
    const int to = (int)((comm->rank + ((int64_t)1 << k)) % comm->size);
    sender->flies = comm->ops->send(comm->link, to, SGLCOMM_BEATS, sender->data, write_beat(comm, sender->data, true),
                                    &sender->request);
    if (!sender->flies) link_failed(comm, "sending");
}

static void take_entry(sglexec_comm *comm, const beat_entry *entry, const unsigned char *label, int64_t now_ns)
{
    if (entry->rank < 0 || entry->rank >= comm->size || entry->rank == comm->rank) return;
    sglcomm_peer *peer = &comm->peers[entry->rank];
    if ((int32_t)(entry->beat - peer->beat) < 0) return;
    const bool same = entry->beat == peer->beat, moved = entry->number != peer->number || entry->state != peer->state;
    if (entry->label_bytes > 0 && entry->label_bytes < SGLCOMM_LABEL) {
        memcpy(peer->label, label, entry->label_bytes);
        peer->label[entry->label_bytes] = '\0';
    } else if (moved) {
        peer->label[0] = '\0';
    }
    if (same) return;
    peer->beat = entry->beat;
    peer->heard_ns = now_ns;
    peer->stands_ns = now_ns - (int64_t)entry->stands_ms * 1000000;
    peer->number = entry->number;
    peer->state = entry->state;
    peer->awaits = entry->awaits >= 0 && entry->awaits < comm->size ? entry->awaits : -1;
}

static void take_beat(sglexec_comm *comm, size_t bytes)
{
    const unsigned char *at = comm->heard, *end = at + bytes;
    beat_head head;
    if (bytes < sizeof head) return;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    if (head.magic != BEAT_MAGIC || head.message_bytes >= SGLCOMM_MESSAGE || (size_t)(end - at) < head.message_bytes)
        return;
    if (head.origin >= 0) sglcomm_poison(comm, head.origin, "%.*s", (int)head.message_bytes, (const char *)at);
    at += head.message_bytes;
    for (uint32_t i = 0; i < head.entries && (size_t)(end - at) >= sizeof(beat_entry); i++) {
        beat_entry entry;
        memcpy(&entry, at, sizeof entry);
        at += sizeof entry;
        if ((size_t)(end - at) < entry.label_bytes) return;
        take_entry(comm, &entry, at, sglcore_now_ns());
        at += entry.label_bytes;
    }
}

void sglcomm_watch_listen(sglexec_comm *comm)
{
    comm->listens = comm->ops->receive(comm->link, -1, SGLCOMM_BEATS, comm->heard, comm->beat_room, &comm->hears);
    if (!comm->listens) link_failed(comm, "receiving");
}

bool sglcomm_watch_hear(sglexec_comm *comm)
{
    bool any = false;
    while (comm->listens) {
        bool done = false;
        size_t bytes = 0;
        if (!comm->ops->test(comm->link, &comm->hears, &done, &bytes)) {
            comm->listens = false;
            link_failed(comm, "receiving");
            return true;
        }
        if (!done) return any;
        any = true;
        take_beat(comm, bytes);
        sglcomm_watch_listen(comm);
    }
    return any;
}

bool sglcomm_watch_drain(sglexec_comm *comm)
{
    bool all = true;
    for (int k = 0; k < comm->sender_count; k++) {
        sglcomm_sender *sender = &comm->senders[k];
        bool done = false;
        size_t bytes;
        if (!sender->flies) continue;
        if (!comm->ops->test(comm->link, &sender->request, &done, &bytes)) link_failed(comm, "sending");
        sender->flies = !done;
        all = all && done;
    }
    return all;
}

/* ---- bad news ---------------------------------------------------------------------------------------------------- */

static bool is_near(const sglexec_comm *comm, int rank)
{
    if (rank == comm->rank) return false;
    for (int64_t distance = 1; distance < comm->size; distance *= 2)
        if ((comm->rank + distance) % comm->size == rank) return true;
    return false;
}

/* Who found it out tells all; who is told tells those near. Messages of a failure at many ranks at once meet here: the
 * one of the lowest rank is kept by all. */
void sglcomm_watch_flood(sglexec_comm *comm)
{
    const int64_t since_ns = sglcore_now_ns();
    const bool own = sglcomm_tells(comm);
    const size_t bytes = write_beat(comm, comm->bad_news, false);
    for (int r = 0; r < comm->size; r++)
        comm->floods[r] = r != comm->rank && (own || is_near(comm, r)) &&
                          comm->ops->send(comm->link, r, SGLCOMM_BEATS, comm->bad_news, bytes, &comm->flood[r]);
    for (;;) {
        bool all = true;
        for (int r = 0; r < comm->size; r++) {
            bool done = false;
            size_t sent;
            if (!comm->floods[r]) continue;
            if (!comm->ops->test(comm->link, &comm->flood[r], &done, &sent)) done = true;
            comm->floods[r] = !done;
            all = all && done;
        }
        (void)sglcomm_watch_hear(comm);
        const int64_t took_ns = sglcore_now_ns() - since_ns;
        if (took_ns > FLOOD_MOST_NS || (all && took_ns > FLOOD_LEAST_NS)) return;
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    }
}

static double seconds_since(int64_t ns) { return (double)(sglcore_now_ns() - ns) / 1e9; }

static const char *label_of(const sglcomm_peer *peer) { return peer->label[0] ? peer->label : "no label"; }

/* What is known of a rank: "last seen 12.4 s ago, at exchange 118 (all_reduce of grads, llama.lua:42)". */
static void tell_peer(sglexec_comm *comm, int rank, char *text, size_t room)
{
    const sglcomm_peer *peer = &comm->peers[rank];
    const double seen = seconds_since(peer->heard_ns), stands = seconds_since(peer->stands_ns);
    const unsigned long long number = peer->number;
    if (peer->beat == 0)
        snprintf(text, room, "never seen since it joined");
    else if (peer->state == SGLCOMM_BUSY)
        snprintf(text, room, "last seen %.1f s ago, busy with %s", seen, label_of(peer));
    else if (peer->state == SGLCOMM_COMPUTES)
        snprintf(text, room, "last seen %.1f s ago, in no exchange for %.1f s, the last was %llu (%s)", seen, stands,
                 number, label_of(peer));
    else if (peer->awaits < 0)
        snprintf(text, room, "last seen %.1f s ago, at exchange %llu (%s)", seen, number, label_of(peer));
    else
        snprintf(text, room, "last seen %.1f s ago, at exchange %llu (%s), awaiting rank %d", seen, number,
                 label_of(peer), peer->awaits);
}

/* The rank at the end of who waits for whom, beginning at one that this rank waits for. */
static int end_of_chain(const sglexec_comm *comm, int rank)
{
    for (int hops = 0; hops < comm->size; hops++) {
        const sglcomm_peer *peer = &comm->peers[rank];
        if (peer->state != SGLCOMM_WAITS || peer->awaits < 0 || peer->awaits == comm->rank) return rank;
        rank = peer->awaits;
    }
    return rank;
}

static int guilty(const sglexec_comm *comm, int awaited)
{
    const int64_t now_ns = sglcore_now_ns(), silent_ns = 4 * comm->beat_ns * (1 + comm->sender_count);
    int most = -1;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && now_ns - comm->peers[r].heard_ns > silent_ns &&
            (most < 0 || comm->peers[r].heard_ns < comm->peers[most].heard_ns))
            most = r;
    return most >= 0 ? most : end_of_chain(comm, awaited);
}

/* What this rank waits for, and since when. */
typedef struct stuck {
    const char *group, *label;
    int kind, awaited; /* awaited: a rank, -1: not known */
    uint64_t number;
    int64_t since_ns;
} stuck;

static void is_late(sglexec_comm *comm, const stuck *at)
{
    const int late = guilty(comm, at->awaited >= 0 ? at->awaited : comm->rank);
    char facts[320];
    tell_peer(comm, late, facts, sizeof facts);
    sglcomm_poison(
        comm, comm->rank,
        "rank %d on %s: %s; rank %d on %s waits at exchange %llu (%s), %s of group %s, for %.1f s (timeout %g s)", late,
        sglcomm_host(comm, late), facts, comm->rank, sglcomm_host(comm, comm->rank), (unsigned long long)at->number,
        at->label && at->label[0] ? at->label : "no label", sglcomm_kind_name(at->kind), at->group,
        seconds_since(at->since_ns), comm->options.timeout_s);
}

/* Which rank an exchange of devices waits for is not seen: one of the group that is in no exchange, as far as is known; else
 * one that is in another; else any. -1: the group has no other. */
static int away_awaits(const sglexec_comm *comm, const sglcomm_away *away)
{
    int best = -1, worth = 0;
    for (int place = 0; place < away->group->count; place++) {
        const int rank = away->group->ranks[place];
        const sglcomm_peer *peer = &comm->peers[rank];
        if (rank == comm->rank) continue;
        const int here = peer->state != SGLCOMM_WAITS ? 3 : strcmp(peer->label, away->label) != 0 ? 2 : 1;
        if (here > worth) best = rank;
        if (here > worth) worth = here;
    }
    return best;
}

static sglcomm_away away_of(sglexec_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    const sglcomm_away away = comm->away;
    pthread_mutex_unlock(&comm->lock);
    return away;
}

/* So much more of it counts. */
static void away_waits(sglexec_comm *comm, int64_t passed_ns)
{
    pthread_mutex_lock(&comm->lock);
    comm->away.waited_ns += comm->away.group ? passed_ns : 0;
    pthread_mutex_unlock(&comm->lock);
    const sglcomm_away away = away_of(comm);
    if (!away.group || (double)away.waited_ns <= comm->options.timeout_s * 1e9) return;
    is_late(comm,
            &(stuck){ away.group->name, away.label, away.kind, away_awaits(comm, &away), away.number, away.since_ns });
}

/* Whoever failed tells it and ends: news of that may be on its way still at the first tick without the process. */
static void look_for_ended(sglexec_comm *comm)
{
    const sglcomm_peer *own = &comm->peers[comm->rank];
    for (int r = 0; r < comm->size; r++) {
        sglcomm_peer *peer = &comm->peers[r];
        if (peer->machine != own->machine || peer->process <= 0 || peer->process == own->process) continue;
        if (kill((pid_t)peer->process, 0) == 0 || errno != ESRCH) continue;
        const bool before = peer->gone;
        peer->gone = true;
        if (!before) continue;
        char facts[320];
        tell_peer(comm, r, facts, sizeof facts);
        sglcomm_poison(comm, comm->rank, "rank %d on %s has ended (process %lld): %s", r, sglcomm_host(comm, r),
                       (long long)peer->process, facts);
        return;
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static bool is_anyone_busy(const sglexec_comm *comm, int64_t now_ns)
{
    const int64_t believed_ns = (int64_t)(comm->options.timeout_s * 0.5e9);
    for (int r = 0; r < comm->size; r++) {
        const sglcomm_peer *peer = &comm->peers[r];
        if (peer->state == SGLCOMM_BUSY && (r == comm->rank || now_ns - peer->heard_ns < believed_ns)) return true;
    }
    return false;
}

/* Writes down where this rank is itself; true when others should know at once. */
static bool look_at_self(sglexec_comm *comm, int64_t now_ns)
{
    sglcomm_peer *own = &comm->peers[comm->rank];
    sglexec_group *longest = NULL;
    for (sglexec_group *g = atomic_load(&comm->groups); g; g = g->next)
        if (g->run.active && (!longest || g->run.since_ns < longest->run.since_ns)) longest = g;
    const sglcomm_away away = away_of(comm);
    const bool waits = longest || away.group;
    pthread_mutex_lock(&comm->lock);
    /* Whoever waits for an exchange is not busy, even if it forgot to say so. */
    const bool busy = comm->is_busy && atomic_load(&comm->waiters) == 0, news = busy != comm->was_busy;
    const uint8_t state = (uint8_t)(busy ? SGLCOMM_BUSY : waits ? SGLCOMM_WAITS : SGLCOMM_COMPUTES);
    if (away.group && !longest) { /* the last, once it is over */
        comm->last_number = away.number;
        memcpy(comm->last_label, away.label, sizeof comm->last_label);
    }
    const uint64_t number = longest ? longest->run.exchange.number : comm->last_number;
    const char *label = longest ? longest->run.exchange.label : comm->last_label;
    snprintf(own->label, sizeof own->label, "%s", busy ? comm->busy : label ? label : "");
    comm->was_busy = busy;
    pthread_mutex_unlock(&comm->lock);
    if (state != own->state || number != own->number)
        own->stands_ns = state != SGLCOMM_WAITS ? now_ns : longest ? longest->run.since_ns : away.since_ns;
    const int place = longest ? sglcomm_run_awaits(longest) : -1;
    own->state = state;
    own->number = number;
    own->awaits = longest ? (place >= 0 ? longest->ranks[place] : -1) : away.group ? away_awaits(comm, &away) : -1;
    own->heard_ns = now_ns;
    return news;
}

void sglcomm_watch_tick(sglexec_comm *comm, int64_t now_ns)
{
    const bool news = look_at_self(comm, now_ns), quiet = atomic_load(&comm->leaving);
    int64_t passed_ns = now_ns - comm->last_tick_ns;
    if (passed_ns > MOST_TICK_NS) passed_ns = MOST_TICK_NS;
    comm->last_tick_ns = now_ns;
    if (!quiet && (news || now_ns >= comm->next_beat_ns) && comm->sender_count > 0) {
        comm->peers[comm->rank].beat++;
        for (int k = 0; news && k < comm->sender_count; k++) send_beat(comm, k);
        if (!news) send_beat(comm, comm->next_sender);
        comm->next_sender = (comm->next_sender + 1) % comm->sender_count;
        comm->next_beat_ns = now_ns + comm->beat_ns;
    }
    if (!quiet && atomic_load(&comm->known)) look_for_ended(comm);
    const bool counts = !is_anyone_busy(comm, now_ns);
    for (sglexec_group *g = atomic_load(&comm->groups); g; g = g->next) {
        if (!g->run.active || !counts) continue;
        g->run.waited_ns += passed_ns;
        const int place = sglcomm_run_awaits(g);
        const sglexec_exchange *x = &g->run.exchange;
        if ((double)g->run.waited_ns > comm->options.timeout_s * 1e9)
            is_late(comm, &(stuck){ g->name, x->label, x->kind, place >= 0 ? g->ranks[place] : -1, x->number,
                                    g->run.since_ns });
    }
    if (counts) away_waits(comm, passed_ns);
}
