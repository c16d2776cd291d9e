/* schedule_timeline.h -- inside schedule_waits.c: a region on a line of positions, and where on it each exchange begins
 * and ends.
 *
 * In: a region in its order, what lives when, the bound on bytes. Out: of each exchange the position before which it
 * begins, and the one before which it is waited for. Odd invariant: positions are those of the given order, whatever
 * moves. */
#ifndef SGLPASS_SCHEDULE_TIMELINE_H
#define SGLPASS_SCHEDULE_TIMELINE_H

#include "passes/alias.h"
#include "passes/pass.h"

/* An exchange of the region at hand, or a move. */
typedef struct sglpass_exchange {
    sglir_id node;
    int64_t at;         /* where it stood */
    int64_t begin, end; /* before which positions it begins, and is waited for */
    int64_t first_read; /* of what it makes */
    int64_t bytes;      /* that its results take beside what they are made of; 0: in its place */
    bool unread;
} sglpass_exchange;

/* The graph, with what is known of its values in the region at hand. */
typedef struct sglpass_placer {
    sglir_rewrite rewrite;
    const sglpass_context *context;
    sglpass_view *views; /* of the old graph */
    uint8_t *live;       /* per node of it */
    int64_t *position;   /* per node: in its region */
    int64_t *first_use;  /* per value: position of the first real use of it or a view of it; below 0: none */
    int64_t *last_use;
    uint8_t *scratch;   /* per value */
    uint8_t *away;      /* per value: a state that is fetched from memory of the host */
    uint8_t *elsewhere; /* per value: an output or a yield, with a place of its own, or that of a state or carry */
    sglcore_arena arena;
} sglpass_placer;

/* Of one region. */
typedef struct sglpass_timeline {
    sglpass_placer *p;
    sglir_id region;
    int64_t count;                           /* of positions */
    SGLCORE_VEC(sglpass_exchange) exchanges; /* in the order in which they stand; behind them moves, in theirs */
    int64_t moves;                           /* the first of these */
    int64_t *bytes;                          /* live at each position */
    int64_t *ahead; /* of results that nobody has read yet, of those that are larger than what they are made of */
    int64_t bound, most_ahead;
} sglpass_timeline;

/* A view that can go along with what it shows; an order is a use of its own. */
static inline bool sglpass_goes_along(const sglir_node *node)
{
    return sglir_is_view(node) && node->op != SGLIR_OP_AFTER;
}

/* Once for the graph: which values lie elsewhere than in the arena. */
void sglpass_mark_elsewhere(sglpass_placer *p);
/* Finds the exchanges of the region and places them; before, the timeline holds its placer and region alone. To be
 * freed in any case. */
sgl_status sglpass_timeline_fill(sglpass_timeline *t);
/* Where moves begin and have to have arrived, once the exchanges are placed. (schedule_moves.c) */
sgl_status sglpass_place_moves(sglpass_timeline *t);
/* Where the state's or carry's new value is first written: nothing that is under way may read the old one then. */
int64_t sglpass_written_at(const sglpass_timeline *t, sglir_id old);
void sglpass_add_bytes(int64_t *bytes, int64_t first, int64_t last, int64_t more);
void sglpass_timeline_free(sglpass_timeline *t);

#endif
