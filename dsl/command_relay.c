/* command_relay.c -- hands on what ranks write to stderr, and notes whether one of them has told of a failure.
 *
 * In: a pipe that mpirun and its ranks write to. Out: the same bytes as they come, but for one line. MPI copies large
 * messages straight out of the memory of the process that sends them, and where that one was killed it writes of its own,
 * once for each rank that was reading:
 *   [host:123] Read -1, expected 240808, errno = 3
 * errno 3 is ESRCH: there is no such process. It says that the rank is gone and neither which nor where, so it is held
 * until the end, and dropped if the failure was told by then. Odd invariant: nothing else is held or dropped: with another
 * errno (EPERM: the system forbids such reads) the line is a cause, and goes through at once. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dsl/command_relay.h"

static void flush(command_relay *r)
{
    for (size_t done = 0; done < r->out_used;) {
        const ssize_t written = write(r->to, r->out + done, r->out_used - done);
        if (written < 0 && errno != EINTR) break; /* nobody is there to read it */
        done += written < 0 ? 0 : (size_t)written;
    }
    r->out_used = 0;
}

static void put(command_relay *r, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (r->out_used == sizeof r->out) flush(r);
        r->out[r->out_used++] = text[i];
    }
}

static bool begins(const char *line, const char *with) { return strncmp(line, with, strlen(with)) == 0; }

static bool tells(const char *line)
{
    return begins(line, "sgl") && !begins(line, "sgl: warning:") && !begins(line, "sgl: debug:");
}

/* Of a rank that is gone, by MPI in the process that was copying from it. */
static bool is_of_a_dead_one(const char *line)
{
    unsigned long long expected;
    int process, number, end = 0;
    if (sscanf(line, "[%*[^]:]:%d] Read -1, expected %llu, errno = %d%n", &process, &expected, &number, &end) != 3)
        return false;
    return number == ESRCH && line[end] == 0;
}

static void end_line(command_relay *r)
{
    r->line[r->used] = 0;
    r->told = r->told || tells(r->line);
    if (!r->passes && is_of_a_dead_one(r->line) && r->used < sizeof r->held - r->held_used) {
        memcpy(r->held + r->held_used, r->line, r->used);
        r->held_used += r->used;
        r->held[r->held_used++] = '\n';
    } else {
        if (!r->passes) put(r, r->line, r->used);
        put(r, "\n", 1);
    }
    r->used = 0;
    r->passes = false;
}

static void take(command_relay *r, char c)
{
    if (c == '\n') {
        end_line(r);
        return;
    }
    r->passes = r->passes || (r->used == 0 && c != '[');
    if (r->used + 1 < sizeof r->line) {
        r->line[r->used++] = c;
    } else if (!r->passes) { /* no line that is held is as long */
        put(r, r->line, r->used);
        r->passes = true;
    }
    if (r->passes) put(r, &c, 1);
}

void command_relay_run(command_relay *r, int from, void (*look)(void *user), void *user)
{
    char text[4096];
    time_t looked = time(NULL);
    for (;;) {
        struct pollfd at = { .fd = from, .events = POLLIN };
        const int ready = poll(&at, 1, 1000);
        if (time(NULL) != looked) {
            looked = time(NULL);
            look(user);
        }
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        const ssize_t bytes = read(from, text, sizeof text);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) break;
        for (ssize_t i = 0; i < bytes; i++) take(r, text[i]);
        flush(r);
    }
    if (!r->passes) put(r, r->line, r->used); /* a line that has not come to its end */
    flush(r);
}

void command_relay_end(command_relay *r, bool told)
{
    if (!told) put(r, r->held, r->held_used);
    flush(r);
}
