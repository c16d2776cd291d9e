/* domain.h -- over which iteration domain a set of nodes runs as one kernel: the one analysis behind the contract of
 * exec/kernel.h, asked by the pass `fuse` (may these nodes stand together?) and by exec/kernel (where does each element
 * lie?).
 *
 * Comes in: nodes in order, and which of their values are to be stored. Goes out: the axes of the domain, their split
 * into outer and inner ones, and for each value over which axes it runs and in which form; or a refusal that names a
 * node. How: every dimension of a value is a list of atoms; an elementwise op makes atoms of its arguments equal, a
 * reshape splits them, a transpose permutes them, a reduction drops them. Movement of what is only read (parameters,
 * generators) makes no atoms but a view: offset and strides.
 *
 * Odd invariant: an extent of 1 has no atom, so a value of one element has no axis at all. */
#ifndef SGLIR_DOMAIN_H
#define SGLIR_DOMAIN_H

#include "ir/ir.h"

enum { SGLIR_DOMAIN_AXES = 16 };

/* In the order of sglexec_form. */
typedef enum sglir_form { SGLIR_FORM_FULL, SGLIR_FORM_ROW, SGLIR_FORM_COL, SGLIR_FORM_ONE } sglir_form;

/* How a value comes about. All but COMPUTED may be moved (sliced, transposed, ...) before they are used, except PIECES. */
typedef enum sglir_source {
    SGLIR_COMPUTED,
    SGLIR_STORED,  /* not made by the nodes given: read from memory */
    SGLIR_NUMBER,  /* constant */
    SGLIR_COUNTER, /* iota */
    SGLIR_NOISE,   /* random_* */
    SGLIR_PIECES   /* pack, segments */
} sglir_source;

typedef enum sglir_reduction {
    SGLIR_REDUCES_NOT,
    SGLIR_REDUCES_ROW,
    SGLIR_REDUCES_ROWS_AWAY,
    SGLIR_REDUCES_ALL
} sglir_reduction;

typedef struct sglir_domain_value {
    sglir_id value;
    sglir_id base;  /* what is read: the stored value, or the generator's result; of a COMPUTED one: itself */
    int64_t offset; /* of a view, elements */
    uint32_t root;  /* index of the value that this one renames by movement; else its own */
    uint32_t term_first, term_count;
    uint32_t argument; /* of a reduction: index of what is reduced */
    uint8_t source;    /* sglir_source */
    uint8_t reduction; /* sglir_reduction */
    bool computes;     /* by an elementwise op or a reduction */
    bool consumed;     /* as an argument of computation, or as a result */
    bool used;         /* as an argument of computation, it or what renames it */
    /* After sglir_domain_finish, of values that are computed, moved or not, and of those that are consumed: */
    bool reduced;   /* it depends on a row reduction */
    uint8_t form;   /* sglir_form */
    uint32_t shape; /* bit per axis: its type runs over it */
    uint32_t reach; /* bit per axis: its elements differ along it */
} sglir_domain_value;

typedef struct sglir_domain_term {
    int64_t extent, stride; /* of a view */
    uint32_t atom;
    uint32_t dim; /* of the value's type; terms of one dimension stand together, outer first */
} sglir_domain_term;

typedef struct sglir_domain_atom {
    int64_t extent;
    uint32_t parent;    /* union-find */
    uint32_t high, low; /* what it was split into, or SGLIR_NONE */
    int32_t axis;
} sglir_domain_atom;

typedef struct sglir_domain {
    sglcore_env *env;
    const sglir_graph *g;
    sgl_status status;  /* not OK: memory ran out */
    sglir_id culprit;   /* after a refusal: the node */
    const char *reason; /* and why, in words for a message */
    int axes, outer;    /* after finish; axes [0, outer) are the outer ones */
    int64_t extents[SGLIR_DOMAIN_AXES];
    int64_t rows, cols;
    bool free;                              /* nothing decides the split: all axes are given as inner */
    SGLCORE_VEC(sglir_domain_value) values; /* in the order in which they were met */
    SGLCORE_VEC(sglir_domain_term) terms;
    SGLCORE_VEC(sglir_domain_atom) atoms;
    SGLCORE_VEC(uint32_t) reductions; /* indices of values */
    uint32_t *slots;                  /* per graph value: index + 1 in `values` when its stamp is the current one */
    uint32_t *stamps;
    uint32_t stamp;
    sglir_id first; /* graph values [first, first + count) have slots */
    int64_t count;
} sglir_domain;

/* Whether the reduction leaves out its argument's last dimension of more than one element (of one element: its last). */
bool sglir_reduces_last(const sglir_graph *g, const sglir_node *reduction);

/* What finish may choose. */
typedef struct sglir_domain_rule {
    int64_t cols; /* the inner dims that are given: the product of those that are not 0; -1: chosen by the reductions */
    int empty;    /* how many of them are 0 */
    int64_t resident; /* most elements that one row of a domain without outer axes may have when it is reduced */
} sglir_domain_rule;

/* For nodes whose values lie in [first, first + count) of g. Works for any number of begin-add-finish rounds. */
sgl_status sglir_domain_init(sglir_domain *d, sglcore_env *env, const sglir_graph *g, sglir_id first, int64_t count);
void sglir_domain_free(sglir_domain *d);
void sglir_domain_begin(sglir_domain *d);
/* False: refused (status OK, culprit and reason tell why) or failed (status). */
bool sglir_domain_add(sglir_domain *d, sglir_id node);
bool sglir_domain_finish(sglir_domain *d, const sglir_id *results, int64_t count, const sglir_domain_rule *rule);

/* NULL: not met. The pointer dies with the next round. */
const sglir_domain_value *sglir_domain_find(const sglir_domain *d, sglir_id value);
/* The axes over which dimension `dim` of the value's type runs (-1: all dimensions), outer first. Returns their number. */
int sglir_domain_order(const sglir_domain *d, const sglir_domain_value *value, int dim, int axes[SGLIR_DOMAIN_AXES]);
/* Of a source: its stride along each axis, in elements of its base. */
void sglir_domain_strides(const sglir_domain *d, const sglir_domain_value *value, int64_t strides[SGLIR_DOMAIN_AXES]);
/* The least form of the value when the axes in the mask `outer` are the outer ones. */
sglir_form sglir_domain_form(const sglir_domain *d, const sglir_domain_value *value, uint32_t outer);
/* Elements of the base that the view touches. */
int64_t sglir_domain_touched(const sglir_domain *d, const sglir_domain_value *value);

#endif
