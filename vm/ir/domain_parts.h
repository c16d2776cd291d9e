/* domain_parts.h -- what the files of the domain analysis share: atoms and their leaves, and the values that they label.
 *
 * domain.c makes values from nodes, domain_atoms.c holds atoms and views, domain_finish.c draws the conclusions. In:
 * indices into the arrays of an sglir_domain. Odd invariant: pointers into those arrays die at the next push, so all
 * here goes by index. */
#ifndef SGLIR_DOMAIN_PARTS_H
#define SGLIR_DOMAIN_PARTS_H

#include "ir/domain.h"

/* One atom of a value as it stands now: not split, the one that stands for its class. */
typedef struct sglir_leaf {
    uint32_t atom;
    uint32_t dim;
    int64_t stride;
} sglir_leaf;

enum { SGLIR_LEAVES = SGLIR_DOMAIN_AXES };

/* A list of terms on its way into the domain. */
typedef struct sglir_terms {
    int count;
    bool full; /* it had no room for more */
    sglir_domain_term data[SGLIR_LEAVES];
} sglir_terms;

/* Records the refusal; returns false. */
bool sglir_domain_refuse(sglir_domain *d, sglir_id node, const char *reason);
/* Gives the value atoms, when it has none. Its index, or SGLIR_NONE when memory runs out. */
uint32_t sglir_domain_consume(sglir_domain *d, sglir_id value);

/* ---- atoms ---- */

/* SGLIR_NONE when memory runs out. */
uint32_t sglir_atom_new(sglir_domain *d, int64_t extent);
uint32_t sglir_atom_find(sglir_domain *d, uint32_t atom);
/* The leaves of the value's dimension `dim` (-1: of all), outer first. -1: more than SGLIR_LEAVES. */
int sglir_domain_leaves(const sglir_domain *d, const sglir_domain_value *value, int dim,
                        sglir_leaf leaves[SGLIR_LEAVES]);
/* Makes dimension by dimension the atoms of two values of one shape equal. False: they do not fit. */
bool sglir_domain_unify(sglir_domain *d, uint32_t a, uint32_t b);
/* The atoms of `from` (row-major) dealt out to new dims, split where needed. False: they do not fit. */
bool sglir_domain_regroup(sglir_domain *d, uint32_t from, int rank, const int64_t *dims, sglir_terms *out);

/* ---- views ---- */

void sglir_terms_push(sglir_terms *terms, int64_t extent, int64_t stride, uint32_t dim);
void sglir_terms_dense(sglir_terms *terms, const sglir_type *type);
bool sglir_view_reshape(const sglir_terms *from, const sglir_type *type, sglir_terms *out);
/* Along dimension `dim`; *offset grows by the start. */
bool sglir_view_slice(const sglir_terms *from, uint32_t dim, int64_t start, int64_t extent, int64_t step,
                      int64_t *offset, sglir_terms *out);

#endif
