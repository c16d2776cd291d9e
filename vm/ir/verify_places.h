/* verify_places.h -- inside the verifier's look at places: how long values live, and who may lie over whom meanwhile.
 *
 * verify_places.c finds the lives and sweeps over them, verify_share.c says of two that meet whether they may. Odd invariant:
 * moments count nodes in the order in which they run; regions lie within the stretch of the node that holds them. */
#ifndef SGLIR_VERIFY_PLACES_H
#define SGLIR_VERIFY_PLACES_H

#include "ir/ir.h"

#define SGLIR_BEFORE_ALL (-1)
#define SGLIR_AFTER_ALL INT64_MAX

/* Of a value that is stored. Views live and die with their root. */
typedef struct sglir_life {
    int64_t first, last;
    int64_t last_use; /* as `last`, before states and feeds were made to outlive their uses */
    sglir_id root;    /* itself when it is no view */
} sglir_life;

/* What takes bytes for a while: a root, or a node's workspace. */
typedef struct sglir_span {
    sglir_id value; /* SGLIR_NONE: the workspace of `node` */
    sglir_id node;
    int64_t first, last; /* of a root not read: its life says them, once all is known */
} sglir_span;

typedef struct sglir_places {
    const sglir_graph *g;
    sglir_life *lives;              /* per value */
    SGLCORE_VEC(sglir_span) spans;  /* in the order of their first moments */
    SGLCORE_VEC(sglir_span) active; /* during the sweep */
    int64_t now;
} sglir_places;

static inline bool sglir_same_place(const sglir_graph *g, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(g, a), *y = sglir_value_at(g, b);
    return x->space == y->space && x->offset == y->offset &&
           sglir_bytes(sglir_type_of(g, a)) == sglir_bytes(sglir_type_of(g, b));
}

/* Where a loop's carry takes the place of its argument, that dies before the first turn. Once all lives are known. */
void sglir_hand_over(sglir_places *p);
/* Two roots that live at the same time and share bytes. */
bool sglir_may_share(const sglir_places *p, sglir_id a, sglir_id b);

#endif
