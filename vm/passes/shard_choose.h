/* shard_choose.h -- inside the pass `shard`: a choice in the making, of how one node runs; what shard_choose.c and
 * shard_attention.c share. */
#ifndef SGLPASS_SHARD_CHOOSE_H
#define SGLPASS_SHARD_CHOOSE_H

#include "passes/shard.h"

/* Labels of a node over its old, whole types; of concat too. */
typedef struct sglpass_node_labels {
    const sglir_node *node;
    bool known, joins; /* joins: a concat, whose labels are dimensions */
    int joined;
    sglir_labels labels;
} sglpass_node_labels;

typedef struct sglpass_chooser {
    sglpass_sharder *s;
    const sglir_node *node;
    sglpass_node_labels labels;
    uint32_t first;    /* s->forms: of arguments, then of results */
    double flops;      /* of the whole node */
    const char *group; /* of the column linear, in which sums are carried; NULL: none are yet */
} sglpass_chooser;

static inline sglir_id sglpass_arg_of(const sglpass_chooser *c, uint32_t i)
{
    return sglir_arg(c->s->from, c->node, i);
}
static inline sglpass_form *sglpass_arg_form(const sglpass_chooser *c, uint32_t i)
{
    return &c->s->forms.data[c->first + i];
}
static inline sglpass_form *sglpass_result_form(const sglpass_chooser *c, uint32_t r)
{
    return &c->s->forms.data[c->first + c->node->arg_count + r];
}
static inline int64_t sglpass_arg_extent(const sglpass_chooser *c, uint32_t i, int dim)
{
    return sglir_type_of(c->s->from, sglpass_arg_of(c, i))->dims[dim];
}
static inline int64_t sglpass_result_extent(const sglpass_chooser *c, uint32_t r, int dim)
{
    return sglir_type_of(c->s->from, c->node->out_first + r)->dims[dim];
}

static inline bool sglpass_is_attention(const sglir_node *node)
{
    return node->op == SGLIR_OP_ATTENTION || node->op == SGLIR_OP_ATTENTION_GRAD;
}

/* The label of a dimension of an argument; -1: it cannot be split. */
int sglpass_arg_label(const sglpass_node_labels *l, uint32_t arg, int dim);
/* Dims that run together have extents in proportion: the least of them counts the units. 0: they have not, or a result
 * would differ from rank to rank in a way that no form says. */
int64_t sglpass_units_of(const sglpass_chooser *c, int label);
/* In units of the label: how many stand together in what is there in parts already. */
int64_t sglpass_together(const sglpass_chooser *c, int label, int64_t units);
/* Whether there is a unit for every rank, where one is needed. */
bool sglpass_has_enough(const sglpass_chooser *c, int axis, int label);
/* Bytes sent to run along the label, and the forms of doing so; size: of the label's units, how many stand together. */
double sglpass_price_along(const sglpass_chooser *c, int axis, int label);
void sglpass_run_along(const sglpass_chooser *c, int axis, int label, int64_t units, int64_t size);
/* The same of running beyond labels (shard_beyond.c); false: the node does not. */
bool sglpass_price_beyond(const sglpass_chooser *c, int axis, sglir_beyond *how, double *price);
void sglpass_run_beyond(const sglpass_chooser *c, int axis, const sglir_beyond *how);

/* In their parts of the sequence queries attend to all keys; false: nothing is split so. (shard_attention.c) */
bool sglpass_attends(sglpass_chooser *c, int axis, sglpass_way *run);

#endif
