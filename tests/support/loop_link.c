/* loop_link.c -- the link of loop_link.h: queues of messages under one lock.
 *
 * Comes in: calls of the communication threads of all ranks. Goes out: messages, copied. Plain on purpose; a receive is matched
 * when any receive of that rank is tested, in the order in which receives were posted. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/engine.h"
#include "tests/support/loop_link.h"

enum { EAGER = 4096 };

typedef struct message {
    struct message *next;
    int from, to, channel;
    int64_t due_ns;
    bool taken, sender_knows; /* freed when both */
    size_t bytes;
    unsigned char data[];
} message;

typedef struct posted {
    struct posted *next;
    int from, to, channel;
    void *data;
    size_t room, bytes;
    bool done, too_long;
} posted;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int size, joined, delay_us;
    bool frozen[LOOP_RANKS];
    message *messages;
    posted *receives;
    uint64_t random;
    int64_t fail_at, bytes_sent, values_sent;
    int ranks[LOOP_RANKS];
} world = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void clear(void)
{
    for (message *m = world.messages, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    for (posted *p = world.receives, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    world.messages = NULL;
    world.receives = NULL;
}

void loop_world(int ranks, int delay_us)
{
    pthread_mutex_lock(&world.lock);
    clear();
    world.size = ranks;
    world.joined = 0;
    world.delay_us = delay_us;
    world.random = 88172645463325252u;
    world.fail_at = world.bytes_sent = world.values_sent = 0;
    for (int r = 0; r < LOOP_RANKS; r++) {
        world.frozen[r] = false;
        world.ranks[r] = r;
    }
    pthread_mutex_unlock(&world.lock);
}

void loop_freeze(int rank)
{
    pthread_mutex_lock(&world.lock);
    world.frozen[rank] = true;
    pthread_mutex_unlock(&world.lock);
}

void loop_fail_at(int64_t n)
{
    pthread_mutex_lock(&world.lock);
    world.fail_at = n;
    pthread_mutex_unlock(&world.lock);
}

int64_t loop_bytes_sent(void)
{
    pthread_mutex_lock(&world.lock);
    const int64_t bytes = world.bytes_sent;
    pthread_mutex_unlock(&world.lock);
    return bytes;
}

int64_t loop_values_sent(void)
{
    pthread_mutex_lock(&world.lock);
    const int64_t bytes = world.values_sent;
    pthread_mutex_unlock(&world.lock);
    return bytes;
}

static bool fails_now(void) { return world.fail_at > 0 && --world.fail_at == 0; }

static void loop_about(char *text, size_t room)
{
    strncpy(text, "threads of one process", room - 1);
    text[room - 1] = '\0';
}

static bool loop_open(void **link, int *rank, int *size, int *channels)
{
    pthread_mutex_lock(&world.lock);
    *rank = world.joined++;
    *size = world.size;
    *channels = 64;
    *link = &world.ranks[*rank];
    pthread_cond_broadcast(&world.all);
    while (world.joined < world.size) pthread_cond_wait(&world.all, &world.lock);
    pthread_mutex_unlock(&world.lock);
    return true;
}

/* What was posted or sent for this rank's memory is not looked at again: loop_world frees it. */
static void loop_close(void *link, bool orderly) { (void)link, (void)orderly; }

static bool loop_send(void *link, int rank, int channel, const void *data, size_t bytes, sglcomm_request *request)
{
    const int from = *(int *)link;
    pthread_mutex_lock(&world.lock);
    const bool failed = fails_now();
    message *m = failed ? NULL : malloc(sizeof *m + bytes);
    if (m) {
        *m = (message){ .from = from, .to = rank, .channel = channel, .bytes = bytes };
        if (bytes > 0) memcpy(m->data, data, bytes);
        world.random ^= world.random << 13, world.random ^= world.random >> 7, world.random ^= world.random << 17;
        m->due_ns = now_ns() + (world.delay_us > 0 ? (int64_t)(world.random % (uint64_t)world.delay_us) * 1000 : 0);
        m->taken = world.frozen[from] || world.frozen[rank]; /* lost */
        m->sender_knows = bytes <= EAGER;
        const bool note = channel % 2 == 1; /* before each piece, on a channel of its own; what is small lies in it */
        if (channel != SGLCOMM_BEATS) {
            world.bytes_sent += (int64_t)bytes;
            world.values_sent += (int64_t)bytes - (note ? (int64_t)sizeof(sglcomm_note) : 0);
        }
        message **end = &world.messages;
        while (*end) end = &(*end)->next;
        *end = m;
        request->words[0] = 1;
        request->words[1] = bytes <= EAGER ? 0 : (uint64_t)(uintptr_t)m;
        request->words[2] = bytes;
    }
    pthread_mutex_unlock(&world.lock);
    return m != NULL;
}

static bool loop_receive(void *link, int rank, int channel, void *data, size_t bytes, sglcomm_request *request)
{
    pthread_mutex_lock(&world.lock);
    const bool failed = fails_now();
    posted *p = failed ? NULL : calloc(1, sizeof *p);
    if (p) {
        *p = (posted){ .from = rank, .to = *(int *)link, .channel = channel, .data = data, .room = bytes };
        posted **end = &world.receives;
        while (*end) end = &(*end)->next;
        *end = p;
        request->words[0] = 2;
        request->words[1] = (uint64_t)(uintptr_t)p;
    }
    pthread_mutex_unlock(&world.lock);
    return p != NULL;
}

static void sweep(void)
{
    for (message **at = &world.messages; *at;) {
        message *m = *at;
        if (m->taken && m->sender_knows) {
            *at = m->next;
            free(m);
        } else {
            at = &m->next;
        }
    }
}

/* The first message that the receive may take: in order within a channel, so one that is not due stops those behind it. All
 * receives are asked at one time, or a later one would take what an earlier one has just been refused. */
static void match(posted *p, int64_t now)
{
    for (message *m = world.messages; m; m = m->next) {
        if (m->taken || m->to != p->to || m->channel != p->channel || (p->from >= 0 && m->from != p->from)) continue;
        if (m->due_ns > now) {
            if (p->from >= 0) return;
            continue;
        }
        p->too_long = m->bytes > p->room;
        p->bytes = m->bytes;
        if (!p->too_long && m->bytes > 0) memcpy(p->data, m->data, m->bytes);
        p->done = m->taken = true;
        return;
    }
}

static void drop(const posted *gone)
{
    for (posted **at = &world.receives; *at; at = &(*at)->next)
        if (*at == gone) {
            posted *p = *at;
            *at = p->next;
            free(p);
            return;
        }
}

static bool loop_test(void *link, sglcomm_request *request, bool *done, size_t *bytes)
{
    const int rank = *(int *)link;
    bool good = true;
    pthread_mutex_lock(&world.lock);
    if (request->words[0] == 1) {
        message *m = (message *)(uintptr_t)request->words[1];
        *done = !m || (m->taken && !world.frozen[rank]);
        *bytes = (size_t)request->words[2];
        if (m && *done) m->sender_knows = true;
    } else {
        posted *own = (posted *)(uintptr_t)request->words[1];
        const int64_t now = now_ns();
        for (posted *p = world.receives; p && !world.frozen[rank]; p = p->next)
            if (p->to == rank && !p->done) match(p, now);
        *done = own->done;
        *bytes = own->bytes;
        good = !own->too_long;
        if (*done) drop(own);
    }
    sweep();
    pthread_mutex_unlock(&world.lock);
    return good;
}

static void loop_cancel(void *link, sglcomm_request *request)
{
    (void)link;
    pthread_mutex_lock(&world.lock);
    drop((posted *)(uintptr_t)request->words[1]);
    pthread_mutex_unlock(&world.lock);
}

static const char *loop_why(void *link)
{
    (void)link;
    return "the loop was asked to fail";
}

const sglcomm_link_ops loop_link = {
    .version = SGLCOMM_LINK_VERSION,
    .about = loop_about,
    .open = loop_open,
    .close = loop_close,
    .send = loop_send,
    .receive = loop_receive,
    .test = loop_test,
    .cancel = loop_cancel,
    .why = loop_why,
};
