/* padding.h -- where the padding of a dim with buckets stands in the values of a graph, and what is in it.
 *
 * In: a traced graph, and notes: along which dimension of a feed a dim runs, what it is padded with. Out: for each value
 * which of its dimensions hold padding, and whether what stands there is a known number; and whether anything that the
 * graph gives back depends on it. A value is padded along a dimension when the entries there beyond a row's own count are
 * none of the row's; rows are what have counts of their own (the samples of a batch).
 * Odd invariant: two dimensions of one extent that are padded by the same dim have their padding in the same places, since
 * a cut or a pad moves the extent and the count alike; but where rows have counts of their own that holds of the same rows
 * alone, so what stands in one value's padding says something of another's only where both have the same rows. A value that
 * depends on padding is spoilt, and stays so; only where an output is spoilt is that an error. */
#ifndef SGLIR_PADDING_H
#define SGLIR_PADDING_H

#include "ir/ir.h"

enum {
    SGLIR_PADDING_DIMS = 4,
    SGLIR_PADDING_STEP = SGL_MAX_RANK, /* within a loop along the dim: the turn, an axis that no value there has */
    SGLIR_PADDING_AXES
};

typedef enum sglir_padding_content {
    SGLIR_PADDING_ANY,
    SGLIR_PADDING_KNOWN,  /* `value` throughout */
    SGLIR_PADDING_CARRIED /* STEP alone: what the parameter `carried` of the loop's body held before the turn */
} sglir_padding_content;

typedef struct sglir_padding_axis {
    bool padded, rows;
    uint8_t content; /* sglir_padding_content, where padded */
    sglir_id carried;
    double value;
    int64_t outer, inner; /* reshaped into one with others: the product of extents before and behind it, else 1 */
    int64_t rows_outer, rows_inner; /* the same of rows */
    uint32_t group; /* whose counts: 0 one for all, 1 those of the feed's rows, others of what a node made of them */
} sglir_padding_axis;

typedef struct sglir_padding_state {
    sglir_padding_axis axes[SGLIR_PADDING_AXES];
    bool turn;       /* a place along the dim: which turn a loop along it is in */
    sglir_id spoilt; /* the node at which padding got in, SGLIR_NONE: none did */
    const char *why;
} sglir_padding_state;

typedef enum sglir_padding_kind {
    SGLIR_PADDING_FEED,  /* axis, rows, content, value */
    SGLIR_PADDING_LIKE,  /* a loop's parameter: padded as `other`, with anything */
    SGLIR_PADDING_TURN,  /* the place along the dim at which a turn of a loop is; `reverse`: from its end */
    SGLIR_PADDING_STACK, /* a loop's parameter into which each turn along the dim writes its entry */
    SGLIR_PADDING_MASK   /* as FEED, of a value that is computed */
} sglir_padding_kind;

typedef struct sglir_padding_note {
    uint8_t kind;
    int dim, axis, rows;
    sglir_id value, other;
    bool reverse;
    double content;   /* NaN: anything */
    int64_t at_nodes; /* it holds from this many nodes on */
} sglir_padding_note;

typedef struct sglir_padding {
    sglcore_env *env;
    sglir_graph *graph;
    uint32_t dims[SGLIR_PADDING_DIMS]; /* interned names */
    int dim_count;
    SGLCORE_VEC(sglir_padding_note) notes;
    SGLCORE_VEC(sglir_padding_state) states;            /* [0]: of a value that has no padding */
    SGLCORE_VEC(uint32_t) of_value[SGLIR_PADDING_DIMS]; /* index into states, per value */
    int64_t nodes_done, notes_done;
} sglir_padding;

void sglir_padding_init(sglir_padding *p, sglir_graph *graph);
void sglir_padding_free(sglir_padding *p);
/* The number of the dim; LIMIT when there would be more than SGLIR_PADDING_DIMS. */
sgl_status sglir_padding_dim(sglir_padding *p, const char *name, int *dim);
/* A second note FEED of a value takes the place of the first. */
sgl_status sglir_padding_add(sglir_padding *p, const sglir_padding_note *note);
/* The state of the value, up to date; it lasts until the next call. */
sgl_status sglir_padding_of(sglir_padding *p, int dim, sglir_id value, const sglir_padding_state **state);
/* TYPE when an output depends on padding, or has it: the message names the node at which it got in. */
sgl_status sglir_padding_check(sglir_padding *p);
/* TYPE when `other`, the same trace with another bucket of the dim, differs in more than extents: a number, an op. */
sgl_status sglir_padding_compare(sglir_padding *p, const sglir_graph *other, const char *dim);

/* ---- for the rules (padding_parts.h tells which) ---------------------------------------------------------------- */

/* One node as one dim sees it. */
typedef struct sglir_padding_view {
    sglir_padding *p;
    const sglir_graph *g;
    sglir_id id;
    const sglir_node *node;
    int dim;
    sgl_status status;
} sglir_padding_view;

extern const sglir_padding_state sglir_padding_none;
const sglir_padding_state *sglir_padding_value(const sglir_padding_view *v, sglir_id value);
static inline const sglir_padding_state *sglir_padding_arg(const sglir_padding_view *v, uint32_t i)
{
    return sglir_padding_value(v, sglir_arg(v->g, v->node, i));
}
static inline const sglir_type *sglir_padding_arg_type(const sglir_padding_view *v, uint32_t i)
{
    return sglir_type_of(v->g, sglir_arg(v->g, v->node, i));
}
void sglir_padding_set(sglir_padding_view *v, sglir_id value, const sglir_padding_state *state);
static inline void sglir_padding_result(sglir_padding_view *v, uint32_t i, const sglir_padding_state *state)
{
    sglir_padding_set(v, v->node->out_first + i, state);
}
/* All results depend on padding from here on. */
void sglir_padding_spoil(sglir_padding_view *v, const char *why);
/* Not made one with other dimensions: its entries stand in their order. */
static inline bool sglir_padding_is_plain(const sglir_padding_axis *axis)
{
    return axis->outer == 1 && axis->inner == 1;
}
static inline bool sglir_padding_holds(const sglir_padding_axis *axis, double value)
{
    return axis->content == SGLIR_PADDING_KNOWN && axis->value == value;
}
static inline bool sglir_padding_outside(const sglir_padding_axis *axis, int64_t extent)
{
    return axis->content == SGLIR_PADDING_KNOWN && !(axis->value >= 0 && axis->value < (double)extent);
}
/* What the note FEED or MASK says of the axis. */
void sglir_padding_note_axes(const sglir_graph *g, sglir_padding_state *state, const sglir_padding_note *note);
/* How many rows the dim's feeds have that have counts of their own, 0: all have the same; and the group of these. */
int64_t sglir_padding_rows(const sglir_padding *p, int dim);
static inline uint32_t sglir_padding_group(const sglir_padding *p, int dim) { return sglir_padding_rows(p, dim) > 0; }
/* An axis that the dim runs along, with anything in its padding. */
sglir_padding_axis sglir_padding_plain_axis(const sglir_padding *p, int dim);
/* Both have the same dimensions as rows. */
bool sglir_padding_same_rows(const sglir_padding_state *a, const sglir_padding_state *b);
/* The note TURN of the loop whose body is `region`, NULL: it does not go along the dim. */
const sglir_padding_note *sglir_padding_turn(const sglir_padding *p, int dim, sglir_id region);
bool sglir_padding_is_stack(const sglir_padding *p, int dim, sglir_id parameter);

/* Looks at the nodes first .. stop - 1 once more: the parameters of a loop's body have changed. */
sgl_status sglir_padding_again(sglir_padding *p, int dim, sglir_id first, sglir_id stop);
/* Sets the states of the node's results. */
void sglir_padding_rule(sglir_padding_view *v);
/* False: the op has no rule of its own here. */
bool sglir_padding_own_rule(sglir_padding_view *v);
/* Adds what of `from` holds beside what holds already. False where the dim, or rows, stand there in another way, or the
 * counts are others. Content is left alone where the axis is padded already. */
bool sglir_padding_join_axis(sglir_padding_axis *to, const sglir_padding_axis *from);

#endif
