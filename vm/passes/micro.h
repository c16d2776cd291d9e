/* micro.h -- inside the pass `micro`: what it finds out about each value and node, from the forms that values take over
 * the micro axis to the loops in which they are made. Filled by micro_forms.c and micro_region.c (forms), micro.c (what is
 * wanted), micro_levels.c (when); read by micro_emit.c.
 *
 * Levels count stretches of the step: 0 before any loop, 1 the first loop, 2 between it and the second, 3 the second, and
 * so on; loop k is level 2k + 1. Odd invariant: a value may be had in two ways, whole (outside of loops) and local (its
 * part of one micro-batch, or its share of a sum), and each way has levels of its own. */
#ifndef SGLPASS_MICRO_H
#define SGLPASS_MICRO_H

#include "passes/pass.h"
#include "passes/turns.h"

enum { SGLPASS_NO_LEVEL = INT32_MAX, SGLPASS_MOST_LOOPS = 62 };

typedef enum sglpass_micro_form {
    SGLPASS_MICRO_WHOLE,   /* made outside of loops */
    SGLPASS_MICRO_SPLIT,   /* made in a loop, a part of dimension `dim` per micro-batch */
    SGLPASS_MICRO_PARTIAL, /* made in a loop, a sum over micro-batches is owed */
    SGLPASS_MICRO_SAME     /* made in a loop, the same in each micro-batch: a counter that turns beside split carries */
} sglpass_micro_form;

typedef struct sglpass_micro_value {
    uint8_t form;                   /* sglpass_micro_form */
    int8_t dim;                     /* SPLIT: which dimension; WHOLE: along which one loops want it, -1 for none */
    bool remade;                    /* WHOLE, wanted along dim: made anew in the loop; else it is sliced there */
    bool zero;                      /* WHOLE, while forms are sought: zeros, which may turn out split or partial */
    int32_t whole_from, local_from; /* earliest levels */
    int32_t whole_at;               /* level at which it is needed whole, SGLPASS_NO_LEVEL: at none */
    uint64_t local_in;              /* bit per loop in which it is needed local; in a region: bit 0, it is */
    uint64_t sliced_in;             /* of these: taken there from the whole value */
    int32_t gathered_in;            /* loop from which its whole value comes, -1: from none */
    sglir_id paid_into;             /* of one term of a sum: the value to whose carry it is added; SGLIR_NONE: none */
    uint32_t whole_uses, local_uses;
} sglpass_micro_value;

/* How a node takes an argument in its own place. */
typedef enum sglpass_use_mode {
    SGLPASS_USE_WHOLE,
    SGLPASS_USE_LOCAL,
    SGLPASS_USE_SLICE, /* local along `dim`, which is not how the value is local elsewhere */
    SGLPASS_USE_ZEROS  /* not it, but zeros like it: what a partial carry starts from */
} sglpass_use_mode;

typedef struct sglpass_micro_use {
    sglir_id value;
    uint8_t mode; /* sglpass_use_mode */
    int8_t dim;
} sglpass_micro_use;

typedef struct sglpass_micro_node {
    bool live, looped;             /* looped: it stands in loops */
    uint32_t use_first, use_count; /* arguments; of a node with regions also what these use from around */
    int32_t level;                 /* of its whole results, SGLPASS_NO_LEVEL: not needed so */
    uint64_t loops;                /* bit per loop in which it stands */
    bool dissolved;                /* a sum whose terms go into its carry one by one */
} sglpass_micro_node;

typedef struct sglpass_micro {
    const sglpass_context *context;
    sglcore_env *env;
    const sglir_graph *from;
    sglpass_turns turns;
    sglpass_micro_value *values;
    sglpass_micro_node *nodes;
    SGLCORE_VEC(sglpass_micro_use) uses;
    int32_t last_level; /* of the outputs; even */
} sglpass_micro;

/* The node's uses; NULL when it has none. */
static inline sglpass_micro_use *sglpass_micro_uses(const sglpass_micro *m, int64_t node)
{
    return m->nodes[node].use_count == 0 ? NULL : m->uses.data + m->nodes[node].use_first;
}

/* ---- forms (micro_forms.c, micro_region.c) --------------------------------------------------------------------- */

/* Of one node without regions: the forms of its results, and how it takes its arguments. */
sgl_status sglpass_micro_find_form(sglpass_micro *m, sglir_id node);
/* Of one node of the top region with regions, and of all that stands in them. */
sgl_status sglpass_micro_form_control(sglpass_micro *m, sglir_id node);
void sglpass_micro_put(sglpass_micro *m, sglir_id value, sglpass_micro_form form, int dim);
/* Begins the node's uses anew: its arguments, whole. */
sgl_status sglpass_micro_list_args(sglpass_micro *m, sglir_id node);
/* A use that needs its value along `dim`; -1: whole. */
void sglpass_micro_take_along(const sglpass_micro *m, sglpass_micro_use *use, int dim);
/* How region r of a looped node takes its result i. */
sglpass_micro_use sglpass_micro_yield(const sglpass_micro *m, const sglir_node *node, uint32_t r, int64_t i);
/* Puts what a looped node's regions use from around behind its arguments, and marks what is needed in them, and how:
 * whole_at 0 for whole, local_in 1 for local. */
sgl_status sglpass_micro_list_captures(sglpass_micro *m, sglir_id node);

int sglpass_micro_dim_of(const int8_t *labels, int label);
/* As sglir_labels_of; a rank of one row does not take what repeats along the rows for one of them. */
bool sglpass_micro_labels_of(const sglpass_micro *m, const sglir_node *node, sglir_labels *labels);
/* Whether the node can run along the label, each micro-batch for itself. */
bool sglpass_micro_runs_along(const sglpass_micro *m, const sglir_node *node, const sglir_labels *labels, int label);

/* ---- what is wanted (micro.c), when (micro_levels.c), the graph (micro_emit.c) ----------------------------------- */

/* Where dimension `dim` of the node's result comes from when it is made along it: the uses' modes of such a copy.
 * False: it cannot be made so. `modes` has as many entries as the node has arguments. */
bool sglpass_micro_remake(const sglpass_micro *m, const sglir_node *node, int dim, sglpass_micro_use *modes);

/* Sets levels, loops, and what is gathered and sliced. LIMIT when there would be too many loops. */
sgl_status sglpass_micro_levels(sglpass_micro *m);

/* The graph with its loops. */
sgl_status sglpass_micro_emit(sglpass_micro *m, sglir_graph **out);

#endif
