/* domain_atoms.c -- the arithmetic under the domain analysis: atoms that become equal or split, and views.
 *
 * Atoms are a union-find whose classes may be split in two, high (outer) and low (inner): whoever held the atom holds
 * then both. A view is a list of (extent, stride) per dimension. In: terms. Out: terms, or false where no linear map
 * exists. Odd invariant: an extent of 1 is never stored, so lists of equal shapes may still be of unequal length only
 * where a split is due. */
#include "ir/domain_parts.h"

/* ---- atoms ---------------------------------------------------------------------------------------------------- */

uint32_t sglir_atom_new(sglir_domain *d, int64_t extent)
{
    uint32_t id = (uint32_t)d->atoms.count;
    sglir_domain_atom atom = { .extent = extent, .parent = id, .high = SGLIR_NONE, .low = SGLIR_NONE, .axis = -1 };
    sgl_status status = sglcore_vec_push(d->env, &d->atoms, atom);
    if (status != SGL_OK) {
        d->status = status;
        return SGLIR_NONE;
    }
    return id;
}

uint32_t sglir_atom_find(sglir_domain *d, uint32_t atom)
{
    sglir_domain_atom *atoms = d->atoms.data;
    while (atoms[atom].parent != atom) {
        atoms[atom].parent = atoms[atoms[atom].parent].parent;
        atom = atoms[atom].parent;
    }
    return atom;
}

static uint32_t root_of(const sglir_domain *d, uint32_t atom)
{
    while (d->atoms.data[atom].parent != atom) atom = d->atoms.data[atom].parent;
    return atom;
}

static bool is_split(const sglir_domain *d, uint32_t root) { return d->atoms.data[root].high != SGLIR_NONE; }

/* root becomes extent / low_extent times low_extent. */
static bool split(sglir_domain *d, uint32_t root, int64_t low_extent)
{
    int64_t extent = d->atoms.data[root].extent;
    uint32_t high = sglir_atom_new(d, extent / low_extent);
    uint32_t low = sglir_atom_new(d, low_extent);
    if (high == SGLIR_NONE || low == SGLIR_NONE) return false;
    d->atoms.data[root].high = high;
    d->atoms.data[root].low = low;
    return true;
}

static bool push_leaves(const sglir_domain *d, uint32_t atom, uint32_t dim, int64_t stride,
                        sglir_leaf leaves[SGLIR_LEAVES], int *count)
{
    uint32_t root = root_of(d, atom);
    if (is_split(d, root)) {
        uint32_t high = d->atoms.data[root].high, low = d->atoms.data[root].low;
        return push_leaves(d, high, dim, stride * d->atoms.data[root_of(d, low)].extent, leaves, count) &&
               push_leaves(d, low, dim, stride, leaves, count);
    }
    if (*count == SGLIR_LEAVES) return false;
    leaves[(*count)++] = (sglir_leaf){ .atom = root, .dim = dim, .stride = stride };
    return true;
}

int sglir_domain_leaves(const sglir_domain *d, const sglir_domain_value *value, int dim,
                        sglir_leaf leaves[SGLIR_LEAVES])
{
    int count = 0;
    for (uint32_t t = 0; t < value->term_count; t++) {
        const sglir_domain_term *term = &d->terms.data[value->term_first + t];
        if (dim >= 0 && term->dim != (uint32_t)dim) continue;
        if (!push_leaves(d, term->atom, term->dim, term->stride, leaves, &count)) return -1;
    }
    return count;
}

/* Two lists of leaves of one extent, from the inner end. */
static bool unify_lists(sglir_domain *d, const sglir_leaf *a, int a_count, const sglir_leaf *b, int b_count)
{
    uint32_t left = SGLIR_NONE, right = SGLIR_NONE;
    while (true) {
        if (left == SGLIR_NONE && a_count > 0) left = a[--a_count].atom;
        if (right == SGLIR_NONE && b_count > 0) right = b[--b_count].atom;
        if (left == SGLIR_NONE || right == SGLIR_NONE) return left == right;
        left = sglir_atom_find(d, left);
        right = sglir_atom_find(d, right);
        if (left != right && (is_split(d, left) || is_split(d, right))) return false; /* one atom at two places */
        int64_t left_extent = d->atoms.data[left].extent, right_extent = d->atoms.data[right].extent;
        if (left_extent == right_extent) {
            d->atoms.data[right].parent = left;
            left = right = SGLIR_NONE;
        } else if (left_extent > right_extent) {
            if (right_extent == 0 || left_extent % right_extent != 0 || !split(d, left, right_extent)) return false;
            d->atoms.data[right].parent = d->atoms.data[left].low;
            left = d->atoms.data[left].high;
            right = SGLIR_NONE;
        } else {
            if (left_extent == 0 || right_extent % left_extent != 0 || !split(d, right, left_extent)) return false;
            d->atoms.data[left].parent = d->atoms.data[right].low;
            right = d->atoms.data[right].high;
            left = SGLIR_NONE;
        }
    }
}

/* The common case: term by term the same extents, nothing split. */
static bool unify_terms(sglir_domain *d, uint32_t a, uint32_t b)
{
    const sglir_domain_value *x = &d->values.data[a], *y = &d->values.data[b];
    if (x->term_count != y->term_count) return false;
    if (x->term_first == y->term_first) return true;
    for (uint32_t t = 0; t < x->term_count; t++) {
        const sglir_domain_term *p = &d->terms.data[x->term_first + t], *q = &d->terms.data[y->term_first + t];
        uint32_t left = sglir_atom_find(d, p->atom), right = sglir_atom_find(d, q->atom);
        if (p->dim != q->dim) return false;
        if (left == right) continue;
        if (is_split(d, left) || is_split(d, right)) return false;
        if (d->atoms.data[left].extent != d->atoms.data[right].extent) return false;
        d->atoms.data[right].parent = left;
    }
    return true;
}

bool sglir_domain_unify(sglir_domain *d, uint32_t a, uint32_t b)
{
    if (a == b || unify_terms(d, a, b)) return true;
    int rank = sglir_type_of(d->g, d->values.data[a].value)->rank;
    for (int dim = 0; dim < rank; dim++) {
        sglir_leaf left[SGLIR_LEAVES], right[SGLIR_LEAVES];
        int left_count = sglir_domain_leaves(d, &d->values.data[a], dim, left);
        int right_count = sglir_domain_leaves(d, &d->values.data[b], dim, right);
        if (left_count < 0 || right_count < 0) return false;
        if (!unify_lists(d, left, left_count, right, right_count)) return false;
    }
    return true;
}

static void reverse(sglir_terms *terms)
{
    for (int i = 0, j = terms->count - 1; i < j; i++, j--) {
        sglir_domain_term kept = terms->data[i];
        terms->data[i] = terms->data[j];
        terms->data[j] = kept;
    }
}

bool sglir_domain_regroup(sglir_domain *d, uint32_t from, int rank, const int64_t *dims, sglir_terms *out)
{
    sglir_leaf leaves[SGLIR_LEAVES];
    int left = sglir_domain_leaves(d, &d->values.data[from], -1, leaves);
    if (left < 0) return false;
    out->count = 0;
    out->full = false;
    uint32_t atom = SGLIR_NONE;
    for (int dim = rank - 1; dim >= 0; dim--) {
        int64_t need = dims[dim];
        while (need != 1) {
            if (atom == SGLIR_NONE && left == 0) return false;
            if (atom == SGLIR_NONE) atom = leaves[--left].atom;
            atom = sglir_atom_find(d, atom);
            if (is_split(d, atom)) return false;
            int64_t extent = d->atoms.data[atom].extent;
            uint32_t taken = atom;
            if (need == 0 || extent == 0) {
                if (need != extent) return false;
                need = 1;
                atom = SGLIR_NONE;
            } else if (need % extent == 0) {
                need /= extent;
                atom = SGLIR_NONE;
            } else {
                if (extent % need != 0 || !split(d, atom, need)) return false;
                taken = d->atoms.data[atom].low;
                atom = d->atoms.data[atom].high;
                need = 1;
            }
            sglir_terms_push(out, d->atoms.data[taken].extent, 0, (uint32_t)dim);
            if (out->full) return false;
            out->data[out->count - 1].atom = taken;
        }
    }
    reverse(out);
    return left == 0 && atom == SGLIR_NONE;
}

/* ---- views ---------------------------------------------------------------------------------------------------- */

void sglir_terms_push(sglir_terms *terms, int64_t extent, int64_t stride, uint32_t dim)
{
    if (extent == 1) return;
    if (terms->count == SGLIR_LEAVES) {
        terms->full = true;
        return;
    }
    terms->data[terms->count++] =
        (sglir_domain_term){ .extent = extent, .stride = stride, .atom = SGLIR_NONE, .dim = dim };
}

void sglir_terms_dense(sglir_terms *terms, const sglir_type *type)
{
    terms->count = 0;
    terms->full = false;
    int64_t stride = 1;
    for (int dim = type->rank - 1; dim >= 0; dim--) {
        sglir_terms_push(terms, type->dims[dim], stride, (uint32_t)dim);
        stride *= type->dims[dim];
    }
    reverse(terms);
}

/* Neighbours that one linear step runs through become one term; dims are forgotten. */
static void coalesce(const sglir_terms *from, sglir_terms *out)
{
    out->count = 0;
    out->full = false;
    for (int i = 0; i < from->count; i++) {
        const sglir_domain_term *term = &from->data[i];
        if (out->count > 0 && out->data[out->count - 1].stride == term->extent * term->stride) {
            out->data[out->count - 1].extent *= term->extent;
            out->data[out->count - 1].stride = term->stride;
        } else {
            out->data[out->count++] = *term;
        }
    }
}

bool sglir_view_reshape(const sglir_terms *from, const sglir_type *type, sglir_terms *out)
{
    sglir_terms whole;
    coalesce(from, &whole);
    if (sglir_elements(type) == 0) {
        sglir_terms_dense(out, type);
        return true;
    }
    out->count = 0;
    out->full = false;
    int left = whole.count;
    int64_t extent = 1, stride = 0; /* what is left of the term taken last */
    for (int dim = type->rank - 1; dim >= 0; dim--) {
        int64_t need = type->dims[dim];
        while (need > 1) {
            if (extent == 1 && left == 0) return false;
            if (extent == 1) {
                extent = whole.data[--left].extent;
                stride = whole.data[left].stride;
            }
            int64_t take = need % extent == 0 ? extent : need;
            if (extent % take != 0) return false;
            sglir_terms_push(out, take, stride, (uint32_t)dim);
            extent /= take;
            stride *= take;
            need /= take;
        }
    }
    reverse(out);
    return !out->full && left == 0 && extent == 1;
}

bool sglir_view_slice(const sglir_terms *from, uint32_t dim, int64_t start, int64_t extent, int64_t step,
                      int64_t *offset, sglir_terms *out)
{
    sglir_terms along = { 0 }, one;
    for (int i = 0; i < from->count; i++) {
        if (from->data[i].dim == dim) along.data[along.count++] = from->data[i];
    }
    coalesce(&along, &one);
    if (one.count > 1) return false;
    int64_t stride = one.count == 1 ? one.data[0].stride : 0;
    out->count = 0;
    out->full = false;
    for (int i = 0; i < from->count && from->data[i].dim < dim; i++) out->data[out->count++] = from->data[i];
    sglir_terms_push(out, extent, stride * step, dim);
    for (int i = 0; i < from->count; i++) {
        const sglir_domain_term *term = &from->data[i];
        if (term->dim > dim) sglir_terms_push(out, term->extent, term->stride, term->dim);
    }
    *offset += start * stride;
    return !out->full;
}
