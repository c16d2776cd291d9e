/* vjp_turn.h -- one region with its derivative, as a graph of its own: what the rules of loops and branches are made of.
 *
 * In: a region, which of its yields have gradients, whose gradients are wanted. Out: graph h. Its inputs stand for the
 * region's parameters, for what the region uses from around, and for the gradients that come; the region's nodes stand
 * there, and behind them their derivative, in ordinary nodes. Every value of h that the derivative needs has a fate: it is
 * made again beside the derivative where that costs little, or kept by the node that runs the region. Odd invariant: a
 * stack (a carry that each turn writes one slice of, and nothing else) is no carry here, but its slice a yield. */
#ifndef SGLPASS_VJP_TURN_H
#define SGLPASS_VJP_TURN_H

#include "passes/vjp.h"

typedef struct sglpass_turn {
    sglir_graph *h;
    const sglpass_vjp *v;
    const sglir_region *region; /* of v->g; as long as that does not grow */
    int64_t parameters, yields;
    bool loops;
    bool scaled; /* the gradients that come owe a loss scale; set with `loops` */
    sglcore_arena arena;
    /* What to derive; set by the rule before sglpass_turn_make. */
    const uint8_t *active; /* per yield: a gradient comes */
    const sglir_id
        *stack; /* per yield: the node of g that writes its slice, SGLIR_NONE: no stack. NULL: there are none */
    const uint8_t *of_carry; /* per yield: the gradient of the carry is wanted. NULL: of none */
    /* Values of h, SGLIR_NONE where there is none. */
    sglir_id *parameter, *capture, *seed; /* inputs: per parameter, per capture of v, per yield */
    sglir_id *yield, *start;              /* per yield; of a stack: the slice, and where it is written */
    sglir_id *d_carry, *d_capture;        /* gradients: per yield, per capture */
    /* Of h's nodes and values. */
    uint8_t *picked; /* per node: stands beside the derivative, or is of it */
    uint8_t *kept;   /* per value: comes from the node that runs the region */
} sglpass_turn;

/* Zero but for v, loops, active, stack and of_carry. Sticks in v->g when it fails; free it anyway. */
bool sglpass_turn_make(sglpass_turn *t, sglir_id region);
void sglpass_turn_free(sglpass_turn *t);
/* Decides what is picked and kept. With `again` nothing but carries is kept. */
bool sglpass_turn_decide(sglpass_turn *t, bool again);
/* The stack in which the value lies anyway, -1: in none. */
int64_t sglpass_turn_stack_of(const sglpass_turn *t, sglir_id value);

/* Copies of h's nodes in the innermost open region of v->g. Captures are mapped from the beginning. */
bool sglpass_turn_begin(const sglpass_turn *t, sglir_rewrite *rewrite);
void sglpass_turn_end(const sglpass_turn *t, sglir_rewrite *rewrite);
/* Where a stack's slice is written: a little arithmetic on the index. */
void sglpass_turn_copy_start(sglir_rewrite *rewrite, sglir_id start);
/* What is marked in `wanted` (per value of h), and all that it is made from. */
void sglpass_turn_copy_made(const sglpass_turn *t, sglir_rewrite *rewrite, uint8_t *wanted);
void sglpass_turn_copy_picked(const sglpass_turn *t, sglir_rewrite *rewrite);

#endif
