/* precision.h -- inside the pass precision: the class of an op, the state of a walk, and what its files ask of each other.
 *
 * precision.c walks and casts, precision_class.c says which op is how narrow, precision_named.c what the plan excepts by
 * name, precision_scale.c scales the loss for fp16. */
#ifndef SGLPASS_PRECISION_H
#define SGLPASS_PRECISION_H

#include "passes/pass.h"

/* In which dtype an op takes and gives floats that were traced as f32. */
typedef enum sglpass_width {
    SGLPASS_AS_IT_IS, /* has none, or takes whatever its arguments have become */
    SGLPASS_NARROW,   /* products: arguments are rounded, sums are wide */
    SGLPASS_FOLLOWS,  /* narrow where an argument that is no constant is narrow by now */
    SGLPASS_NORM,     /* follows its first argument; the others stay wide, and so does what is within */
    SGLPASS_WIDE      /* f32, whatever comes in */
} sglpass_width;
sglpass_width sglpass_width_of(sglir_op op);

/* What a value was made from: of a state until the next product, of a gradient for ever. Such values are never rounded. */
enum { SGLPASS_FROM_STATE = 1, SGLPASS_FROM_GRADIENT = 2 };

typedef struct sglpass_narrowing {
    sglcore_env *env;
    const sglplan *plan;
    sgl_dtype narrow; /* F32: nothing is to be rounded */
    sglir_rewrite rewrite;
    uint8_t *from;  /* per value of the old graph: what it was made from */
    uint8_t *early; /* per value of the old graph: 1 where a region wants it narrow; it is cast where it is made */
    sglir_id *cast_narrow; /* per value of the old graph: its cast, SGLIR_NONE while there is none */
    sglir_id *cast_wide;
    /* fp16; SGLIR_NONE where nothing is scaled */
    sglir_id scale, good, skipped, in_a_row, first; /* the states, as they are read */
    sglir_id finite;                                /* bool []: all gradients are, so far */
    sglir_id culprit;                               /* f32 []: number of the first parameter whose gradient is not */
    uint64_t named;                                 /* bit per pattern of the plan's `wide`: it has named something */
    bool changed, learns;
} sglpass_narrowing;

/* Whether the plan wants the node, of the old graph, in f32: its module, or a parameter that it takes, is named in `wide`. */
bool sglpass_precision_keeps(sglpass_narrowing *p, const sglir_node *node);
/* INVALID_ARGUMENT where a pattern of `wide` has named nothing in a graph that learns. */
sgl_status sglpass_precision_check_named(const sglpass_narrowing *p);

/* The new value that stands for one of the old graph, in this dtype. */
sglir_id sglpass_precision_as(sglpass_narrowing *p, sglir_id value, sgl_dtype dtype);

/* Reads the states of the loss scale, where the graph has an outer gradient to scale. */
void sglpass_scale_begin(sglpass_narrowing *p);
/* An outer grad over the scaled loss: its gradients unscaled, in f32, into the map. */
void sglpass_scale_grad(sglpass_narrowing *p, sglir_id node);
/* The outputs: every update only where all gradients are finite, and the new states of the scale. */
sgl_status sglpass_scale_outputs(sglpass_narrowing *p);

#endif
