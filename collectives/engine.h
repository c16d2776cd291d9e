/* engine.h -- what the files of this room share: a comm over a link, its groups, the run of an exchange.
 *
 * Comes in: a link (link.h). Goes out: the calls of exec/comm.h. The user's thread starts exchanges into a group's
 * queue and waits; one communication thread makes every call of the link, runs the first exchange of each queue, and
 * gossips. What both touch is atomic or under comm->lock; everything else has one owner, named beside it. An exchange
 * is pieces: contiguous bytes to or from one rank. Before each piece goes a note that says what it is of, so that ranks
 * whose programs differ find out; small pieces travel inside their note. Odd invariant: once a comm is quiet (poisoned,
 * and the news is out), the link is never called again but to be closed, so that nothing moves into memory that its
 * owner may have freed. */
#ifndef SGLCOMM_ENGINE_H
#define SGLCOMM_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "collectives/collectives.h"
#include "collectives/link.h"

enum {
    SGLCOMM_WINDOW = 8,  /* pieces under way in one direction of a group */
    SGLCOMM_QUEUE = 256, /* exchanges that a group may have started and not ended */
    SGLCOMM_LABEL = 88,  /* of a label as it travels, its end included */
    SGLCOMM_INLINE = 3840,
    SGLCOMM_MESSAGE = 1024,
    SGLCOMM_SMALL = 32 << 10,  /* an exchange whose bytes of all ranks are no more than these goes by doubling */
    SGLCOMM_PIECE = 2 << 20,   /* bytes of a piece, at the most */
    SGLCOMM_STAGING = 8 << 20, /* of pieces that are to be reduced; two rows of them */
    SGLCOMM_SENDERS = 32       /* ranks of the world < 2^31: beats go to rank + 2^k */
};

/* ---- moves.c: which pieces an exchange is made of ---------------------------------------------------------------- */

/* A phase of an exchange: pairs (every rank with every other, in rows of pieces) or doubling (each rank sends all it
 * has to one 2^j places before it, in round j). */
typedef struct sglcomm_phase {
    bool doubling, reduces;      /* reduces: what comes in goes to staging, and a whole row of it to `in` */
    int only_to, only_from;      /* pairs: the one place, -1: all, -2: none */
    int deaf;                    /* pairs: the place that receives nothing, -1: none */
    unsigned char *out, *in;     /* parts of places begin at out_at, in_at */
    int64_t out_alike, in_alike; /* bytes of the one part that is everyone's, at `out`, `in`; -1: by places */
    int64_t rows_out, rows_in;
} sglcomm_phase;

/* ---- run.c: pieces through the link ------------------------------------------------------------------------------ */

typedef struct sglcomm_note {
    uint32_t magic;
    uint8_t kind, reduction, dtype, phase;
    uint64_t group, position, signature; /* must be as the receiver's own */
    int64_t bytes;                       /* of the piece; those up to SGLCOMM_INLINE follow the note */
    int64_t count, number;               /* for the message */
    char label[SGLCOMM_LABEL];
} sglcomm_note;

typedef enum sglcomm_stage { SGLCOMM_HELD, SGLCOMM_NOTED, SGLCOMM_MOVING, SGLCOMM_DONE } sglcomm_stage;

typedef struct sglcomm_piece {
    unsigned char *data;
    int64_t bytes, row;
    int64_t before;      /* pairs: bytes of its part that are before it */
    int place;           /* of the other rank */
    int member;          /* of an exchange of many */
    sglcomm_stage stage; /* in: NOTED waits for the note; out: HELD waits for the shaped link */
    bool noted, moved;   /* out: requests that are done */
    int64_t release_ns;
    sglcomm_request note_request, data_request;
    unsigned char *note; /* SGLCOMM_NOTE_ROOM */
} sglcomm_piece;
enum { SGLCOMM_NOTE_ROOM = sizeof(sglcomm_note) + SGLCOMM_INLINE };

/* Pieces in order; a ring. */
typedef struct sglcomm_window {
    sglcomm_piece pieces[SGLCOMM_WINDOW];
    int first, count;
    int64_t row; /* of the next piece to enter, and the step within it */
    int step;
    int member;          /* of an exchange of many: whose parts stand in out_at, in_at; its rows begin anew */
    int64_t rows_before; /* of earlier members */
    bool over;           /* none is left in this phase */
} sglcomm_window;

typedef struct sglcomm_run {
    bool active;
    sglexec_exchange exchange;
    uint64_t signature, position; /* position: how manieth of the group's, or of these two ranks' in this direction */
    int phase, phases;
    sglcomm_phase now;
    sglcomm_window out, in;
    int64_t rows_in;             /* rows that are reduced, rounds of doubling that have come */
    int64_t since_ns, waited_ns; /* waited_ns: that count against the deadline */
    int64_t left_ns;             /* when the last piece has left this rank, on a shaped link */
    bool chained;                /* the next piece out has been ready since then */
} sglcomm_run;

struct sglexec_group {
    sglexec_comm *comm;
    sglexec_group *next;
    char name[32];
    int count, place, number; /* place: of this rank; number: of its channels */
    int *ranks;
    uint64_t hash;
    int64_t piece_bytes, staging_bytes;
    unsigned char *staging, *notes;
    int64_t *out_at, *in_at;
    const void **sources;
    uint64_t together, *pairs; /* exchanges of all ranks, and sends to and receives from each place, before this one */
    sglexec_exchange queue[SGLCOMM_QUEUE];
    _Atomic uint64_t started, finished; /* started: user's thread; finished: the communication thread */
    sglcomm_run run;                    /* of exchange number `finished`; the communication thread's */
};

/* ---- watchdog.c: who is where ------------------------------------------------------------------------------------ */

typedef enum sglcomm_state { SGLCOMM_COMPUTES, SGLCOMM_WAITS, SGLCOMM_BUSY } sglcomm_state;

typedef struct sglcomm_peer {
    char host[64];
    int64_t process;
    uint64_t machine;            /* ranks of equal machine see each other's processes */
    uint32_t beat;               /* of its own count */
    int64_t heard_ns, stands_ns; /* when that beat came to us; since when it is where it is, by our clock */
    uint64_t number;
    int awaits;
    uint8_t state;
    bool gone; /* its process was not there at the last tick */
    char label[SGLCOMM_LABEL];
} sglcomm_peer;

/* What the devices of this rank and others exchange by themselves. */
typedef struct sglcomm_away {
    sglexec_group *group; /* NULL: nothing */
    uint8_t kind;
    uint64_t number;
    int64_t since_ns, waited_ns; /* waited_ns: that count against the deadline */
    char label[SGLCOMM_LABEL];
} sglcomm_away;

typedef struct sglcomm_sender {
    unsigned char *data;
    sglcomm_request request;
    bool flies;
} sglcomm_sender;

/* ---- the comm ---------------------------------------------------------------------------------------------------- */

typedef enum sglcomm_health { SGLCOMM_WHOLE, SGLCOMM_POISONED, SGLCOMM_QUIET } sglcomm_health;

struct sglexec_comm {
    sglcore_env *env;
    sglexec_comm_options options;
    const sglcomm_link_ops *ops;
    void *link;
    int rank, size, channels;
    sglcomm_peer *peers; /* the communication thread's, but for what is constant after open */
    sglexec_group *world;
    _Atomic(sglexec_group *) groups; /* newest first */
    int group_count;
    _Atomic int spins; /* turns before a thread sleeps */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, news; /* work: for the communication thread; news: for the user's */
    _Atomic bool sleeps;       /* the communication thread, or is about to */
    _Atomic int waiters;
    _Atomic int health;
    _Atomic uint32_t calls;     /* of sglcomm_wake */
    _Atomic bool urgent;        /* the watchdog has something to tell */
    _Atomic bool known;         /* hosts and processes of all ranks */
    _Atomic bool go, stop;      /* go: groups may exchange */
    _Atomic bool leaving, left; /* leaving: no more beats; left: none is under way */
    int opened;                 /* under lock: 0 not yet, 1 joined, -1 failed */

    /* under lock */
    char message[SGLCOMM_MESSAGE]; /* why it is poisoned */
    char asked[SGLCOMM_MESSAGE];   /* of fail: to be told */
    char busy[SGLCOMM_LABEL];
    sglcomm_away away;
    int origin; /* the rank that found it out first */
    bool fails, is_busy;

    /* the communication thread's */
    int64_t beat_ns, next_tick_ns, next_beat_ns, last_tick_ns;
    uint64_t last_number; /* of the exchange that began last, and its label */
    char last_label[SGLCOMM_LABEL];
    int next_sender, sender_count;
    sglcomm_sender senders[SGLCOMM_SENDERS];
    unsigned char *heard, *bad_news;
    size_t beat_room;
    sglcomm_request hears;
    bool listens, was_busy;
    sglcomm_request *flood; /* one for each rank, and which of them fly */
    bool *floods;
    int64_t free_ns; /* when the shaped link has sent what it was given */
};

/* comm.c: the calls of exec/comm.h over any link. options are checked there. */
sgl_status sglcomm_open(sglcore_env *env, const sglexec_comm_options *options, const sglcomm_link_ops *ops,
                        sglexec_comm **result);
void sglcomm_close(sglexec_comm *comm);
int sglcomm_rank(const sglexec_comm *comm);
int sglcomm_size(const sglexec_comm *comm);
const char *sglcomm_host(const sglexec_comm *comm, int rank);
sgl_status sglcomm_wait(sglexec_group *group, uint32_t ticket, void *stream);
sgl_status sglcomm_test(sglexec_group *group, uint32_t ticket, bool *done);
void sglcomm_elsewhere(sglexec_comm *comm, sglexec_group *group, const sglexec_exchange *exchange, uint64_t number);
void sglcomm_busy(sglexec_comm *comm, const char *what);
void sglcomm_fail(sglexec_comm *comm, const char *message);
sgl_status sglcomm_check(sglexec_comm *comm, int wait_ms);
bool sglcomm_tells(sglexec_comm *comm);
sgl_status sglcomm_describe(sglexec_comm *comm, sglcore_text *text);
/* Of the communication thread: the first message stands, and the news goes out. */
void sglcomm_poison(sglexec_comm *comm, int origin, const char *format, ...) SGL_PRINTF(3, 4);
void sglcomm_wake(sglexec_comm *comm);

/* groups.c. sglcomm_check_exchange: an exchange's arguments, before anything of it is under way. */
sgl_status sglcomm_group(sglexec_comm *comm, const char *name, const int *ranks, int count, sglexec_group **result);
void sglcomm_group_free(sglexec_group *group);
sgl_status sglcomm_check_exchange(sglcore_env *env, const char *group, int count, int place,
                                  const sglexec_exchange *exchange);
sgl_status sglcomm_start(sglexec_group *group, const sglexec_exchange *exchange, void *stream, uint32_t *ticket);
const char *sglcomm_kind_name(int kind);
/* What ranks must agree on before they exchange. */
uint64_t sglcomm_signature(const sglexec_group *group, const sglexec_exchange *exchange);

/* moves.c. begin: parts, phases and what needs no other rank; phase: the phase that run->phase names. next: the next
 * piece of this phase, false where none can enter now (window->over: none will). end: of the phase run->phase. */
void sglcomm_moves_begin(sglexec_group *group);
void sglcomm_moves_phase(sglexec_group *group);
bool sglcomm_moves_next(sglexec_group *group, bool out, sglcomm_piece *piece);
void sglcomm_moves_came(sglexec_group *group, const sglcomm_piece *piece);
void sglcomm_moves_end(sglexec_group *group);

/* run.c: one turn of a group's first exchange; true when something moved. wake_ns: lowered to when a held piece is due. */
bool sglcomm_run_turn(sglexec_group *group, int64_t now_ns, int64_t *wake_ns);
/* The place of a rank that the run waits for, -1: none. */
int sglcomm_run_awaits(sglexec_group *group);

/* shape.c: when a piece of so many bytes has left and arrives, of a link that is free at *free_ns. */
int64_t sglcomm_shape_arrival(const sglexec_comm_options *options, int64_t ready_ns, int64_t bytes, int64_t *free_ns);

/* watchdog.c */
sgl_status sglcomm_watch_open(sglexec_comm *comm);
void sglcomm_watch_free(sglexec_comm *comm);
void sglcomm_watch_listen(sglexec_comm *comm);
/* Beats that have come; true when one had. */
bool sglcomm_watch_hear(sglexec_comm *comm);
/* What is due at this time: beats, processes that have ended, deadlines. */
void sglcomm_watch_tick(sglexec_comm *comm, int64_t now_ns);
/* Sends the news of a poisoned comm to all ranks, for a short time. */
void sglcomm_watch_flood(sglexec_comm *comm);
/* Completes what is under way before an orderly close; true when nothing is. */
bool sglcomm_watch_drain(sglexec_comm *comm);

/* reduce.c */
bool sglcomm_reduces(sgl_dtype dtype, sglexec_reduction reduction);
void sglcomm_reduce(sgl_dtype dtype, sglexec_reduction reduction, void *to, const void *const *sources, int ranks,
                    int64_t count);

/* The members of an sglexec_comm_ops that are alike over every link. */
#define SGLCOMM_ENGINE_CALLS                                                                                           \
    .close = sglcomm_close, .rank = sglcomm_rank, .size = sglcomm_size, .host = sglcomm_host, .group = sglcomm_group,  \
    .start = sglcomm_start, .wait = sglcomm_wait, .test = sglcomm_test, .elsewhere = sglcomm_elsewhere,                \
    .busy = sglcomm_busy, .fail = sglcomm_fail, .check = sglcomm_check, .tells = sglcomm_tells,                        \
    .describe = sglcomm_describe

#endif
