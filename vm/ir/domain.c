/* domain.c -- nodes become labelled values: the walk of the domain analysis.
 *
 * In: nodes, one after another. Out: per value a list of terms, with atoms where it is computed or used, as a view where
 * it is only read. Odd invariant: a view gets its atoms when it is first used in computation, and then keeps them, so
 * x * x runs over one set of axes, and x + transpose(x) over one set as well, with two views of x. */
#include <string.h>

#include "ir/domain_parts.h"

/* ---- life ----------------------------------------------------------------------------------------------------- */

sgl_status sglir_domain_init(sglir_domain *d, sglcore_env *env, const sglir_graph *g, sglir_id first, int64_t count)
{
    *d = (sglir_domain){ .env = env, .g = g, .first = first, .count = count };
    size_t bytes = (size_t)count * sizeof(uint32_t);
    d->slots = sglcore_alloc(env, bytes);
    d->stamps = sglcore_alloc_zero(env, bytes);
    if (bytes > 0 && (d->slots == NULL || d->stamps == NULL)) {
        sglir_domain_free(d);
        return SGL_OUT_OF_MEMORY;
    }
    return SGL_OK;
}

void sglir_domain_free(sglir_domain *d)
{
    if (d->env == NULL) return;
    sglcore_vec_free(d->env, &d->values);
    sglcore_vec_free(d->env, &d->terms);
    sglcore_vec_free(d->env, &d->atoms);
    sglcore_vec_free(d->env, &d->reductions);
    sglcore_free(d->env, d->slots, (size_t)d->count * sizeof *d->slots);
    sglcore_free(d->env, d->stamps, (size_t)d->count * sizeof *d->stamps);
    d->slots = d->stamps = NULL;
}

void sglir_domain_begin(sglir_domain *d)
{
    d->values.count = d->terms.count = d->atoms.count = d->reductions.count = 0;
    d->axes = d->outer = 0;
    d->culprit = SGLIR_NONE;
    d->reason = NULL;
    if (++d->stamp == 0) { /* after 2^32 rounds */
        memset(d->stamps, 0, (size_t)d->count * sizeof *d->stamps);
        d->stamp = 1;
    }
}

bool sglir_domain_refuse(sglir_domain *d, sglir_id node, const char *reason)
{
    if (d->reason == NULL) {
        d->culprit = node;
        d->reason = reason;
    }
    return false;
}

const sglir_domain_value *sglir_domain_find(const sglir_domain *d, sglir_id value)
{
    sglir_id at = value - d->first;
    if (value < d->first || at >= d->count || d->stamps[at] != d->stamp) return NULL;
    return &d->values.data[d->slots[at]];
}

/* ---- values --------------------------------------------------------------------------------------------------- */

static uint32_t put_value(sglir_domain *d, sglir_domain_value value, const sglir_terms *terms)
{
    uint32_t index = (uint32_t)d->values.count;
    value.term_first = (uint32_t)d->terms.count;
    value.term_count = (uint32_t)terms->count;
    if (value.root == SGLIR_NONE) value.root = index;
    sgl_status status = sglcore_vec_reserve(d->env, &d->terms, terms->count);
    if (status == SGL_OK) status = sglcore_vec_push(d->env, &d->values, value);
    if (status != SGL_OK) {
        d->status = status;
        return SGLIR_NONE;
    }
    for (int i = 0; i < terms->count; i++) d->terms.data[d->terms.count++] = terms->data[i];
    d->slots[value.value - d->first] = index;
    d->stamps[value.value - d->first] = d->stamp;
    return index;
}

static uint32_t put_source(sglir_domain *d, sglir_id value, sglir_source source, sglir_id base, int64_t offset,
                           const sglir_terms *terms)
{
    return put_value(
        d,
        (sglir_domain_value){
            .value = value, .base = base, .offset = offset, .root = SGLIR_NONE, .source = (uint8_t)source },
        terms);
}

/* The value's index; what no node made is read from memory. */
static uint32_t meet(sglir_domain *d, sglir_id value)
{
    sglir_id at = value - d->first;
    if (d->stamps[at] == d->stamp) return d->slots[at];
    sglir_terms terms;
    sglir_terms_dense(&terms, sglir_type_of(d->g, value));
    return put_source(d, value, SGLIR_STORED, value, 0, &terms);
}

/* A value that is used in computation has atoms. SGLIR_NONE: memory ran out. */
uint32_t sglir_domain_consume(sglir_domain *d, sglir_id id)
{
    uint32_t index = meet(d, id);
    if (index == SGLIR_NONE) return SGLIR_NONE;
    sglir_domain_value *value = &d->values.data[index];
    if (value->source != SGLIR_COMPUTED && !value->consumed) {
        for (uint32_t t = 0; t < value->term_count; t++) {
            uint32_t atom = sglir_atom_new(d, d->terms.data[value->term_first + t].extent);
            if (atom == SGLIR_NONE) return SGLIR_NONE;
            d->terms.data[value->term_first + t].atom = atom;
        }
    }
    value->consumed = true;
    return index;
}

static uint32_t use(sglir_domain *d, sglir_id id)
{
    uint32_t index = sglir_domain_consume(d, id);
    if (index == SGLIR_NONE) return SGLIR_NONE;
    d->values.data[index].used = true;
    d->values.data[d->values.data[index].root].used = true;
    return index;
}

static void terms_of(const sglir_domain *d, uint32_t index, sglir_terms *terms)
{
    const sglir_domain_value *value = &d->values.data[index];
    terms->count = (int)value->term_count;
    terms->full = false;
    for (int i = 0; i < terms->count; i++) terms->data[i] = d->terms.data[value->term_first + (uint32_t)i];
}

/* ---- generators ----------------------------------------------------------------------------------------------- */

static bool add_iota(sglir_domain *d, const sglir_node *node)
{
    uint32_t axis = (uint32_t)sglir_attr_int(d->g, node, "axis");
    sglir_terms terms;
    sglir_terms_dense(&terms, sglir_type_of(d->g, node->out_first));
    for (int i = 0; i < terms.count; i++) terms.data[i].stride = terms.data[i].dim == axis ? 1 : 0;
    return put_source(d, node->out_first, SGLIR_COUNTER, node->out_first, 0, &terms) != SGLIR_NONE;
}

static bool add_noise(sglir_domain *d, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (use(d, sglir_arg(d->g, node, i)) == SGLIR_NONE) return false;
    }
    sglir_terms terms;
    sglir_terms_dense(&terms, sglir_type_of(d->g, node->out_first));
    return put_source(d, node->out_first, SGLIR_NOISE, node->out_first, 0, &terms) != SGLIR_NONE;
}

/* What a kernel packs must lie whole in memory. */
static bool add_pack(sglir_domain *d, sglir_id id, const sglir_node *node)
{
    for (uint32_t i = 0; i < node->arg_count; i++) {
        uint32_t index = meet(d, sglir_arg(d->g, node, i));
        if (index == SGLIR_NONE) return false;
        const sglir_domain_value *value = &d->values.data[index];
        const sglir_type *type = sglir_type_of(d->g, value->value);
        sglir_terms dense;
        sglir_terms_dense(&dense, type);
        bool whole = value->source == SGLIR_STORED && value->offset == 0 && (int)value->term_count == dense.count &&
                     sglir_elements(type) == sglir_elements(sglir_type_of(d->g, value->base));
        for (int t = 0; t < dense.count && whole; t++)
            whole = d->terms.data[value->term_first + (uint32_t)t].stride == dense.data[t].stride;
        if (!whole) return sglir_domain_refuse(d, id, "it packs something that is not stored whole");
    }
    sglir_terms terms;
    sglir_terms_dense(&terms, sglir_type_of(d->g, node->out_first));
    if (terms.count == 0) return sglir_domain_refuse(d, id, "it packs a single number");
    return put_source(d, node->out_first, SGLIR_PIECES, node->out_first, 0, &terms) != SGLIR_NONE;
}

/* ---- movement ------------------------------------------------------------------------------------------------- */

static void broadcast_terms(const sglir_type *from, const sglir_type *to, const sglir_terms *terms, sglir_terms *out)
{
    int lead = to->rank - from->rank;
    out->count = 0;
    out->full = false;
    int next = 0;
    for (int dim = 0; dim < to->rank; dim++) {
        int source = dim - lead;
        if (source < 0 || from->dims[source] != to->dims[dim]) {
            sglir_terms_push(out, to->dims[dim], 0, (uint32_t)dim);
            continue;
        }
        for (; next < terms->count && terms->data[next].dim == (uint32_t)source; next++) {
            if (out->count == SGLIR_LEAVES) out->full = true;
            if (out->full) return;
            out->data[out->count] = terms->data[next];
            out->data[out->count++].dim = (uint32_t)dim;
        }
    }
}

static void transpose_terms(const sglir_terms *terms, const int64_t *order, int rank, sglir_terms *out)
{
    out->count = 0;
    out->full = false;
    for (int dim = 0; dim < rank; dim++) {
        for (int i = 0; i < terms->count; i++) {
            if (terms->data[i].dim != (uint32_t)order[dim]) continue;
            out->data[out->count] = terms->data[i];
            out->data[out->count++].dim = (uint32_t)dim;
        }
    }
}

/* Along these dimensions from the end on: each term of them the other way. */
static void flip_terms(const sglir_terms *terms, const int64_t *axes, int count, int64_t *offset, sglir_terms *out)
{
    *out = *terms;
    for (int i = 0; i < out->count; i++) {
        sglir_domain_term *term = &out->data[i];
        for (int a = 0; a < count; a++) {
            if (axes[a] != term->dim) continue;
            *offset += (term->extent - 1) * term->stride;
            term->stride = -term->stride;
        }
    }
}

static bool move_view(sglir_domain *d, sglir_id id, const sglir_node *node, uint32_t arg)
{
    const sglir_domain_value from = d->values.data[arg];
    const sglir_type *type = sglir_type_of(d->g, node->out_first), *source = sglir_type_of(d->g, from.value);
    if (from.source == SGLIR_PIECES) return sglir_domain_refuse(d, id, "it moves something that is read in pieces");
    sglir_terms terms, moved = { 0 };
    terms_of(d, arg, &terms);
    int64_t offset = from.offset;
    int count;
    bool fits = true;
    switch (node->op) {
    case SGLIR_OP_BROADCAST: broadcast_terms(source, type, &terms, &moved); break;
    case SGLIR_OP_TRANSPOSE:
        transpose_terms(&terms, sglir_attr_ints(d->g, node, "order", &count), type->rank, &moved);
        break;
    case SGLIR_OP_FLIP: {
        const int64_t *axes = sglir_attr_ints(d->g, node, "axes", &count);
        flip_terms(&terms, axes, count, &offset, &moved);
        break;
    }
    case SGLIR_OP_SLICE: {
        uint32_t axis = (uint32_t)sglir_attr_int(d->g, node, "axis");
        fits = sglir_view_slice(&terms, axis, sglir_attr_int(d->g, node, "start"), type->dims[axis],
                                sglir_attr_int(d->g, node, "step"), &offset, &moved);
        break;
    }
    default: fits = sglir_view_reshape(&terms, type, &moved); break;
    }
    if (!fits || moved.full) return sglir_domain_refuse(d, id, "no linear map leads to it");
    return put_source(d, node->out_first, (sglir_source)from.source, from.base, offset, &moved) != SGLIR_NONE;
}

/* Movement of what is computed renames it: its atoms stand in another order. */
static bool move_computed(sglir_domain *d, sglir_id id, const sglir_node *node, uint32_t arg)
{
    const sglir_domain_value from = d->values.data[arg];
    const sglir_type *type = sglir_type_of(d->g, node->out_first), *source = sglir_type_of(d->g, from.value);
    sglir_terms terms, moved = { 0 };
    terms_of(d, arg, &terms);
    int count;
    bool fits = true;
    switch (node->op) {
    case SGLIR_OP_BROADCAST: broadcast_terms(source, type, &terms, &moved); break;
    case SGLIR_OP_TRANSPOSE:
        transpose_terms(&terms, sglir_attr_ints(d->g, node, "order", &count), type->rank, &moved);
        break;
    case SGLIR_OP_RESHAPE: fits = sglir_domain_regroup(d, arg, type->rank, type->dims, &moved); break;
    default:
        return sglir_domain_refuse(
            d, id, "it takes a part of something, or turns it round, that is computed in the same kernel");
    }
    if (d->status != SGL_OK) return false;
    if (!fits || moved.full) return sglir_domain_refuse(d, id, "its dimensions do not fit those of the others");
    for (int i = 0; i < moved.count; i++) { /* of a broadcast */
        if (moved.data[i].atom == SGLIR_NONE) moved.data[i].atom = sglir_atom_new(d, moved.data[i].extent);
    }
    sglir_domain_value value = { .value = node->out_first, .base = node->out_first, .root = from.root };
    return d->status == SGL_OK && put_value(d, value, &moved) != SGLIR_NONE;
}

static bool add_movement(sglir_domain *d, sglir_id id, const sglir_node *node)
{
    uint32_t arg = meet(d, sglir_arg(d->g, node, 0));
    if (arg == SGLIR_NONE) return false;
    if (d->values.data[arg].source == SGLIR_COMPUTED) return move_computed(d, id, node, arg);
    return move_view(d, id, node, arg);
}

/* ---- computation ---------------------------------------------------------------------------------------------- */

static bool add_elementwise(sglir_domain *d, sglir_id id, const sglir_node *node)
{
    uint32_t first = use(d, sglir_arg(d->g, node, 0));
    if (first == SGLIR_NONE) return false;
    for (uint32_t i = 1; i < node->arg_count; i++) {
        uint32_t arg = use(d, sglir_arg(d->g, node, i));
        if (arg == SGLIR_NONE) return false;
        if (sglir_domain_unify(d, first, arg)) continue;
        if (d->status != SGL_OK) return false;
        return sglir_domain_refuse(d, id, "its arguments run over different dimensions");
    }
    sglir_terms terms;
    terms_of(d, first, &terms);
    sglir_domain_value value = {
        .value = node->out_first, .base = node->out_first, .root = SGLIR_NONE, .computes = true
    };
    return put_value(d, value, &terms) != SGLIR_NONE;
}

static bool add_reduction(sglir_domain *d, const sglir_node *node)
{
    uint32_t arg = use(d, sglir_arg(d->g, node, 0));
    if (arg == SGLIR_NONE) return false;
    int count;
    const int64_t *axes = sglir_attr_ints(d->g, node, "axes", &count);
    bool keep = sglir_attr_int(d->g, node, "keep") != 0;
    uint32_t gone = 0;
    for (int i = 0; i < count; i++) gone |= 1u << axes[i];
    sglir_terms terms, left = { 0 };
    terms_of(d, arg, &terms);
    for (int i = 0; i < terms.count; i++) {
        uint32_t dim = terms.data[i].dim;
        if (gone >> dim & 1) continue;
        left.data[left.count] = terms.data[i];
        left.data[left.count++].dim = keep ? dim : dim - (uint32_t)__builtin_popcount(gone & ((1u << dim) - 1));
    }
    sglir_domain_value value = {
        .value = node->out_first, .base = node->out_first, .root = SGLIR_NONE, .argument = arg, .computes = true
    };
    uint32_t index = put_value(d, value, &left);
    if (index == SGLIR_NONE || left.count == terms.count)
        return index != SGLIR_NONE;                      /* nothing but extents of 1 went */
    d->values.data[index].reduction = SGLIR_REDUCES_ROW; /* settled by finish */
    sgl_status status = sglcore_vec_push(d->env, &d->reductions, index);
    if (status != SGL_OK) d->status = status;
    return status == SGL_OK;
}

bool sglir_domain_add(sglir_domain *d, sglir_id id)
{
    const sglir_node *node = sglir_node_at(d->g, id);
    uint32_t flags = sglir_ops[node->op].flags;
    if (flags & SGLIR_ELEMENTWISE) return add_elementwise(d, id, node);
    if (flags & SGLIR_REDUCTION) return add_reduction(d, node);
    sglir_terms none = { 0 };
    switch (node->op) {
    case SGLIR_OP_CONSTANT:
        return put_source(d, node->out_first, SGLIR_NUMBER, node->out_first, 0, &none) != SGLIR_NONE;
    case SGLIR_OP_IOTA: return add_iota(d, node);
    case SGLIR_OP_RANDOM_UNIFORM:
    case SGLIR_OP_RANDOM_NORMAL: return add_noise(d, node);
    case SGLIR_OP_SEGMENTS: {
        sglir_terms terms;
        sglir_terms_dense(&terms, sglir_type_of(d->g, node->out_first));
        sglir_source source = terms.count > 0 ? SGLIR_PIECES : SGLIR_NUMBER; /* a single one is a number */
        return put_source(d, node->out_first, source, node->out_first, 0, &terms) != SGLIR_NONE;
    }
    case SGLIR_OP_PACK: return add_pack(d, id, node);
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_TRANSPOSE:
    case SGLIR_OP_FLIP:
    case SGLIR_OP_SLICE: return add_movement(d, id, node);
    default: return sglir_domain_refuse(d, id, "no kernel holds this op");
    }
}
