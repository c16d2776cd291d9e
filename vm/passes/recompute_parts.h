/* recompute_parts.h -- what the files of the pass `recompute` share: one region of a graph, split into forward and
 * backward, with what the backward needs of the forward.
 *
 * recompute_needs.c finds what is kept between the two, recompute_choose.c which of it is made again, recompute_away.c
 * which of it goes to memory of the host instead, recompute_again.c what it takes to make a value again and how many
 * bytes then live at once, recompute.c writes the clones. A value that goes away is one that is made again by a move. Odd
 * invariant: a value is `stored` only where fuse would store it too; what kernels of the backward work out on the way
 * (an elementwise op of values that are there) is no choice of this pass, and follows what it is made from. */
#ifndef SGLPASS_RECOMPUTE_PARTS_H
#define SGLPASS_RECOMPUTE_PARTS_H

#include "passes/pass.h"

/* What is known of a value; of the forward unless it says otherwise. */
typedef struct sglpass_again_value {
    bool varies; /* depends on a feed or on a turn of a loop: all values */
    bool needed; /* the backward reads it, or a reshape of it */
    bool whole;  /* a node that stands outside of kernels reads it (of the backward: `needed` and whole) : all values */
    bool there;  /* stored for the backward, or worked out there from what is */
    bool stored; /* kept from the forward to the backward */
    bool leaves; /* an output or a yield */
    bool again;  /* chosen: not kept, made again */
    bool away;   /* chosen so: moved to memory of the host, and back for the backward */
    bool stale;  /* not there any more, because of what was chosen */
    bool counted;  /* it has bytes of its own in memory: all values */
    sglir_id root; /* the value under reshapes: all values */
    double least;  /* bytes: its own, or of what a kernel works it out from, where those are fewer: all values */
} sglpass_again_value;

typedef struct sglpass_again_node {
    bool live;
    bool backward;    /* made by autodiff, or from what is */
    bool away;        /* a result of it is: its clone is a move */
    int64_t position; /* in its region */
    int64_t reach;    /* the last position of the forward that it depends on, -1: none */
    int32_t level;    /* nodes outside of kernels on the longest way to it; fuse makes kernels of one level */
    int32_t depth;    /* of a clone: the same from what it waits with on */
    uint32_t stamp;   /* cloned, when it is that of the run */
} sglpass_again_node;

typedef SGLCORE_VEC(sglir_id) sglpass_again_ids;

typedef struct sglpass_again {
    const sglpass_context *context;
    sglcore_env *env;
    const sglir_graph *g;
    sglcore_arena arena;
    sglir_id region;                  /* at hand */
    sglpass_again_value *value;       /* per value of g */
    sglpass_again_node *node;         /* per node of g */
    sglpass_again_ids uses;           /* scratch: what a node uses of the region */
    sglpass_again_ids cone;           /* nodes to clone, makers first */
    sglpass_again_ids stack;          /* scratch */
    int64_t *from, *last;             /* per value: when it is made, used last, as a position of the region */
    int64_t *again_from, *again_last; /* of its clone */
    int64_t *change;                  /* per position, and one more */
    uint32_t stamp;
    bool any; /* something of this region is made again */
} sglpass_again;

static inline const sglir_node *sglpass_again_at(const sglpass_again *s, sglir_id node)
{
    return sglir_node_at(s->g, node);
}

/* The node shows its argument's bytes. */
static inline bool sglpass_again_shows(const sglir_node *node)
{
    return node->op == SGLIR_OP_RESHAPE || node->op == SGLIR_OP_DECLARE;
}

/* ---- recompute_needs.c ---- */

bool sglpass_again_room(sglpass_again *s);
/* Fills node and value for the region; true when it has a forward and a backward that needs something of it. */
sgl_status sglpass_again_find(sglpass_again *s, sglir_id region, bool *both);
/* What a node uses of its region, captures of its own regions included, into s->uses. */
sgl_status sglpass_again_uses(sglpass_again *s, sglir_id node);
/* A node of its own beside kernels: a product, a gather, a loop. */
bool sglpass_again_outside(const sglir_node *node);
/* The level at which the results of a node are there. */
int32_t sglpass_again_level_after(const sglpass_again *s, sglir_id maker);
/* The maker in this region, SGLIR_NONE for what comes from elsewhere. */
sglir_id sglpass_again_maker(const sglpass_again *s, sglir_id value);

/* ---- recompute_again.c ---- */

/* After `again` has changed. */
void sglpass_again_settle(sglpass_again *s);
/* The clones that a use of the value by the backward takes, as far as they are not made yet, into s->cone, and stamps
 * them. A value that is there takes none. */
sgl_status sglpass_again_cone(sglpass_again *s, sglir_id value);
/* The argument of a clone is a clone itself. */
bool sglpass_again_cloned(const sglpass_again *s, sglir_id value);
/* Runs the region on paper: the most bytes of counted values that live at once. Stamps all clones. */
sgl_status sglpass_again_peak(sglpass_again *s, int64_t *peak);

/* ---- recompute_choose.c ---- */

typedef struct sglpass_again_candidate {
    sglir_id value;
    double worth; /* bytes over cost, when last looked at; 0: done with */
    int64_t next; /* the same of a later turn; -1: there is none */
} sglpass_again_candidate;
typedef SGLCORE_VEC(sglpass_again_candidate) sglpass_again_candidates;

/* The stored values of the region that are worth a choice, each with those of later turns that are alike. */
sgl_status sglpass_again_list(sglpass_again *s, sglpass_again_candidates *list);

/* Marks what the graph's annotations say, and then as much as it takes to spare `bytes` of the peak. */
sgl_status sglpass_again_choose(sglpass_again *s, int64_t bytes);

/* ---- recompute_away.c ---- */

/* Sends away what the backward uses late enough for the link to carry it there and back meanwhile, the longest way first,
 * until *peak is no more than `goal`; INT64_MAX as `bytes`, what is to be spared: whatever lowers the peak, in time or not. */
sgl_status sglpass_again_send_away(sglpass_again *s, int64_t bytes, int64_t goal, int64_t *peak);

#endif
