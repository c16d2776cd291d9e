/* product.c -- how a dot becomes calls: groups of dims, copies, runs of the batch.
 *
 * In: shapes (product.h). Out: plans of a product and of a copy. An argument is taken as it lies when its free dims
 * and its contracted dims are each one stride, and for the library one of these is 1; else it is copied. Batch dims
 * that are one stride in all arguments go in one call; of the others each makes calls of its own, or a copy, where
 * the calls would be small. Odd invariant: contracted dims are taken in the order in which they lie in that argument
 * for which less is copied. */
#include <string.h>

#include "backend/cuda/product.h"

enum {
    MOST_RUN = 65535,     /* products of one call: blocks that a grid has along its third axis */
    MOST_CALLS = 1024,    /* of one dot; beyond, the kernel that takes any batch at once */
    FEW_CALLS = 4,        /* so many are made rather than a copy, however small */
    EIGHT_BIT_UNIT = 16,  /* the library takes eight-bit floats whose extents and strides are multiples of 16 bytes */
    SPLIT_TILE = 64,      /* the smallest tile of c, and depth, of which the library splits a sum */
    LEAST_COPY_EXTENT = 8 /* of the two dims of a tile; below it most of the tile would be empty */
};
/* A call of fewer ends within some microseconds, of which its start, and the multiprocessors that its last tiles leave
 * idle, are no small part. */
static const double SMALL_CALL_FLOPS = 4e9;
/* For sm_90, as cuBLAS itself takes by default: the parts of a split sum of two waves of 128 x 256 tiles. The least
 * serves what the library keeps beside them. */
static const int64_t MOST_LIBRARY_BYTES = 32 << 20, LEAST_LIBRARY_BYTES = 1 << 20;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

/* ---- groups of dims ---------------------------------------------------------------------------------------------- */

/* One argument by groups of dims. */
typedef struct side {
    int rank;
    const int64_t *extents;
    sglcuda_dims batch, free, contract;
} side;

static int64_t product_of(const sglcuda_dims *d)
{
    int64_t product = 1;
    for (int i = 0; i < d->count; i++) product *= d->extent[i];
    return product;
}

static bool holds(const int64_t *list, int count, int value)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == value) return true;
    }
    return false;
}

static void add_dim(sglcuda_dims *group, int64_t extent, int64_t stride)
{
    group->extent[group->count] = extent;
    group->stride[group->count++] = stride;
}

static side side_of(int rank, const int64_t *extents, const int64_t *batch, int batch_count, const int64_t *contract,
                    int contract_count)
{
    side s = { .rank = rank, .extents = extents };
    int64_t strides[SGL_MAX_RANK], stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= extents[d];
    }
    for (int i = 0; i < batch_count; i++) add_dim(&s.batch, extents[batch[i]], strides[batch[i]]);
    for (int i = 0; i < contract_count; i++) add_dim(&s.contract, extents[contract[i]], strides[contract[i]]);
    for (int d = 0; d < rank; d++) {
        if (!holds(batch, batch_count, d) && !holds(contract, contract_count, d))
            add_dim(&s.free, extents[d], strides[d]);
    }
    return s;
}

/* Pairs of contracted dims by their place in the first list. */
static void sort_pairs(int64_t *first, int64_t *second, int count)
{
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && first[j] < first[j - 1]; j--) {
            int64_t swap_first = first[j], swap_second = second[j];
            first[j] = first[j - 1], second[j] = second[j - 1];
            first[j - 1] = swap_first, second[j - 1] = swap_second;
        }
    }
}

/* The one stride of a group, 1 where it has a single element; false where there is none. */
static bool one_stride(const sglcuda_dims *d, int64_t *stride)
{
    *stride = 1;
    bool any = false;
    int64_t expected = 0;
    for (int i = d->count - 1; i >= 0; i--) {
        if (d->extent[i] == 1) continue;
        if (any && d->stride[i] != expected) return false;
        if (!any) *stride = d->stride[i];
        any = true;
        expected = d->stride[i] * d->extent[i];
    }
    return true;
}

/* ---- routes and copies ------------------------------------------------------------------------------------------- */

static bool is_eight_bit_float(sgl_dtype dtype) { return dtype == SGL_F8E4M3 || dtype == SGL_F8E5M2; }

/* Of eight-bit floats the library multiplies e4m3 by e4m3, and saturates a result of eight bits, which the op does
 * not. */
static sglcuda_route route_of(const sglcuda_product *p)
{
    if (p->batch == 0 || p->rows == 0 || p->columns == 0 || p->depth == 0) return SGLCUDA_ROUTE_ZEROS;
    if (!sglcore_dtype_is_float(p->dtype)) return SGLCUDA_ROUTE_KERNEL;
    if (!is_eight_bit_float(p->dtype)) return SGLCUDA_ROUTE_LIBRARY;
    bool fits = p->dtype == SGL_F8E4M3 && p->result == SGL_F32 && p->depth % EIGHT_BIT_UNIT == 0 &&
                p->columns % EIGHT_BIT_UNIT == 0;
    return fits ? SGLCUDA_ROUTE_LIBRARY : SGLCUDA_ROUTE_KERNEL;
}

static bool lies_well(const sglcuda_product *p, const side *s, sglcuda_factor *f)
{
    if (!one_stride(&s->free, &f->free) || !one_stride(&s->contract, &f->contract)) return false;
    if (p->route != SGLCUDA_ROUTE_LIBRARY) return true;
    if (f->free == 1 || f->contract == 1 || product_of(&s->free) == 1 || p->depth == 1)
        return !is_eight_bit_float(p->dtype) ||
               f->contract == 1; /* all other strides are then multiples of the depth */
    return false;
}

static void copy_side(const sglcuda_product *p, const side *s, sglcuda_factor *f)
{
    const sglcuda_dims *groups[] = { &s->batch, &s->free, &s->contract };
    f->copied = true;
    f->source.count = 0;
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < groups[g]->count; i++) add_dim(&f->source, groups[g]->extent[i], groups[g]->stride[i]);
    }
    f->contract = 1;
    f->free = p->depth;
    int64_t stride = p->depth * product_of(&s->free);
    for (int i = s->batch.count - 1; i >= 0; i--) {
        f->batch.stride[i] = stride;
        stride *= s->batch.extent[i];
    }
}

static void place_side(const sglcuda_product *p, const side *s, sglcuda_factor *f)
{
    f->batch = s->batch;
    if (!lies_well(p, s, f)) copy_side(p, s, f);
}

static int64_t elements_of(const side *s)
{
    return product_of(&s->batch) * product_of(&s->free) * product_of(&s->contract);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Batch dims without those of one element, merged where all arguments allow it. */
void sglcuda_merge_batch(const sglcuda_product *p, sglcuda_calls *calls)
{
    const sglcuda_dims *a = &p->a.batch, *b = &p->b.batch;
    int64_t c = p->rows * p->columns;
    calls->rank = 0;
    for (int i = a->count - 1; i >= 0; i--) { /* the last one first, turned round below */
        int inner = calls->rank - 1;
        if (a->extent[i] == 1) continue;
        bool merges = inner >= 0 && a->stride[i] == calls->a[inner] * calls->extent[inner] &&
                      b->stride[i] == calls->b[inner] * calls->extent[inner];
        if (merges) {
            calls->extent[inner] *= a->extent[i];
        } else {
            calls->extent[++inner] = a->extent[i];
            calls->a[inner] = a->stride[i];
            calls->b[inner] = b->stride[i];
            calls->c[inner] = c;
            calls->rank++;
        }
        c *= a->extent[i];
    }
}

static void remove_dim(sglcuda_calls *calls, int dim)
{
    calls->rank--;
    for (int i = dim; i < calls->rank; i++) {
        calls->extent[i] = calls->extent[i + 1];
        calls->a[i] = calls->a[i + 1];
        calls->b[i] = calls->b[i + 1];
        calls->c[i] = calls->c[i + 1];
    }
}

/* The largest dim of the batch is what a call runs over. */
static void choose_run(const sglcuda_product *p, sglcuda_calls *calls)
{
    sglcuda_merge_batch(p, calls);
    int dim = 0;
    for (int i = 1; i < calls->rank; i++) {
        if (calls->extent[i] > calls->extent[dim]) dim = i;
    }
    calls->run = 1;
    calls->run_a = calls->run_b = calls->run_c = 0;
    calls->count = p->batch;
    if (calls->rank == 0) return;
    calls->run = calls->extent[dim];
    calls->run_a = calls->a[dim];
    calls->run_b = calls->b[dim];
    calls->run_c = calls->c[dim];
    while (calls->run > MOST_RUN || calls->extent[dim] % calls->run != 0) {
        calls->run = least(calls->run - 1, MOST_RUN); /* the largest divisor that a call takes */
    }
    calls->count = p->batch / calls->run;
    calls->extent[dim] /= calls->run;
    calls->a[dim] *= calls->run;
    calls->b[dim] *= calls->run;
    calls->c[dim] *= calls->run;
    if (calls->extent[dim] == 1) remove_dim(calls, dim);
}

static double flops_of_call(const sglcuda_product *p)
{
    return 2.0 * (double)p->calls.run * (double)p->rows * (double)p->columns * (double)p->depth;
}

/* Small calls, many of them: copies of what keeps the batch from being one run. */
static void choose_calls(sglcuda_product *p, const side *a, const side *b)
{
    choose_run(p, &p->calls);
    if (p->calls.count <= FEW_CALLS || flops_of_call(p) >= SMALL_CALL_FLOPS) return;
    int64_t stride;
    if (!one_stride(&p->a.batch, &stride)) copy_side(p, a, &p->a);
    if (!one_stride(&p->b.batch, &stride)) copy_side(p, b, &p->b);
    choose_run(p, &p->calls);
    if (p->calls.count > MOST_CALLS) p->route = SGLCUDA_ROUTE_KERNEL;
}

void sglcuda_call_offsets(const sglcuda_calls *calls, int64_t index, int64_t offsets[3])
{
    offsets[0] = offsets[1] = offsets[2] = 0;
    for (int i = 0; i < calls->rank; i++) {
        int64_t at = index % calls->extent[i];
        offsets[0] += at * calls->a[i];
        offsets[1] += at * calls->b[i];
        offsets[2] += at * calls->c[i];
        index /= calls->extent[i];
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* What the parts of a split sum take: each tile of c as often as its depth can be cut. */
static int64_t library_bytes(const sglcuda_product *p)
{
    double tiles =
        (double)p->calls.run * (double)round_up(p->rows, SPLIT_TILE) * (double)round_up(p->columns, SPLIT_TILE);
    double bytes = tiles * (double)(round_up(p->depth, SPLIT_TILE) / SPLIT_TILE) * (p->dtype == SGL_F64 ? 8 : 4);
    if (bytes >= (double)MOST_LIBRARY_BYTES) return MOST_LIBRARY_BYTES;
    return round_up((int64_t)bytes, LEAST_LIBRARY_BYTES);
}

static int64_t copied_bytes(const sglcuda_product *p, const side *a, const side *b)
{
    int64_t elements = (p->a.copied ? elements_of(a) : 0) + (p->b.copied ? elements_of(b) : 0);
    return sglcore_dtype_bytes(p->dtype, elements);
}

/* With contracted dims in the order of argument `leader`. *copied: bytes. */
static void plan_in_order(const sglcuda_dot *dot, int leader, sglcuda_product *p, int64_t *copied)
{
    int64_t contract[2][SGL_MAX_RANK];
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < dot->counts[2]; i++) contract[s][i] = dot->lists[2 + s][i];
    }
    sort_pairs(contract[leader], contract[1 - leader], dot->counts[2]);
    side sides[2];
    for (int s = 0; s < 2; s++)
        sides[s] = side_of(dot->rank[s], dot->dims[s], dot->lists[s], dot->counts[s], contract[s], dot->counts[2]);
    *p = (sglcuda_product){ .dtype = dot->dtype, .result = dot->result };
    p->exchanged = !dot->biased && product_of(&sides[1].free) == 1 && product_of(&sides[0].free) != 1;
    const side *a = &sides[p->exchanged ? 1 : 0], *b = &sides[p->exchanged ? 0 : 1];
    p->batch = product_of(&a->batch);
    p->rows = product_of(&a->free);
    p->columns = product_of(&b->free);
    p->depth = product_of(&a->contract);
    p->route = route_of(p);
    *copied = 0;
    if (p->route == SGLCUDA_ROUTE_ZEROS) return;
    place_side(p, a, &p->a);
    place_side(p, b, &p->b);
    if (p->route == SGLCUDA_ROUTE_LIBRARY) choose_calls(p, a, b);
    int64_t at = 0;
    p->a.copy_at = at;
    if (p->a.copied) at += round_up(sglcore_dtype_bytes(p->dtype, elements_of(a)), SGLCUDA_PRODUCT_ALIGNMENT);
    p->b.copy_at = at;
    if (p->b.copied) at += round_up(sglcore_dtype_bytes(p->dtype, elements_of(b)), SGLCUDA_PRODUCT_ALIGNMENT);
    p->library_at = at;
    p->library_bytes = p->route == SGLCUDA_ROUTE_LIBRARY ? library_bytes(p) : 0;
    p->work_bytes = at + p->library_bytes == 0 ? 0 : at + p->library_bytes + SGLCUDA_PRODUCT_ALIGNMENT;
    *copied = copied_bytes(p, a, b);
}

void sglcuda_product_plan(const sglcuda_dot *dot, sglcuda_product *product)
{
    int64_t copied, copied_other;
    plan_in_order(dot, 0, product, &copied);
    if (copied == 0 || dot->counts[2] < 2) return;
    sglcuda_product other;
    plan_in_order(dot, 1, &other, &copied_other);
    if (copied_other < copied) *product = other;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Without dims of one element, neighbours merged. */
static void merge_source(const sglcuda_dims *source, sglcuda_dot_copy_values *v)
{
    v->rank = 0;
    v->count = product_of(source);
    for (int i = 0; i < source->count; i++) {
        if (source->extent[i] == 1) continue;
        int outer = v->rank - 1;
        if (outer >= 0 && v->from[outer] == source->stride[i] * source->extent[i]) {
            v->extent[outer] *= source->extent[i];
            v->from[outer] = source->stride[i];
        } else {
            v->extent[v->rank] = source->extent[i];
            v->from[v->rank++] = source->stride[i];
        }
    }
    if (v->rank == 0) {
        v->rank = 1;
        v->extent[0] = v->from[0] = 1;
    }
}

static void put_dense(sglcuda_dot_copy_values *v)
{
    long long stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        v->to[i] = stride;
        stride *= v->extent[i];
    }
}

/* Whether two neighbours along the last dim go as one unit. */
static bool pairs_up(const sglcuda_dot_copy_values *v)
{
    for (int i = 0; i < v->rank - 1; i++) {
        if (v->from[i] % 2 != 0) return false;
    }
    return v->extent[v->rank - 1] % 2 == 0;
}

static void widen_units(sglcuda_dense_copy *copy, int64_t alignment)
{
    sglcuda_dot_copy_values *v = &copy->values;
    while (copy->bits < 128 && alignment % (copy->bits / 4) == 0 && pairs_up(v)) {
        copy->bits *= 2;
        v->count /= 2;
        v->extent[v->rank - 1] /= 2;
        for (int i = 0; i < v->rank - 1; i++) v->from[i] /= 2;
    }
}

void sglcuda_dense_copy_plan(const sglcuda_dims *source, int element_bits, int64_t alignment, sglcuda_dense_copy *copy)
{
    sglcuda_dot_copy_values *v = &copy->values;
    *copy = (sglcuda_dense_copy){ .kind = element_bits < 8 ? SGLCUDA_DENSE_COPY_NIBBLES : SGLCUDA_DENSE_COPY_ROWS,
                                  .bits = element_bits };
    merge_source(source, v);
    int last = v->rank - 1;
    if (copy->kind == SGLCUDA_DENSE_COPY_ROWS && v->from[last] == 1) widen_units(copy, alignment);
    put_dense(v);
    if (copy->kind == SGLCUDA_DENSE_COPY_NIBBLES || v->from[last] == 1 || v->extent[last] < LEAST_COPY_EXTENT) return;
    for (int i = 0; i < last; i++) {
        if (v->from[i] != 1 || v->extent[i] < LEAST_COPY_EXTENT) continue;
        copy->kind = SGLCUDA_DENSE_COPY_TILES;
        v->fast = i;
        v->fast_tiles = (v->extent[i] + SGLCUDA_DOT_COPY_TILE - 1) / SGLCUDA_DOT_COPY_TILE;
        v->last_tiles = (v->extent[last] + SGLCUDA_DOT_COPY_TILE - 1) / SGLCUDA_DOT_COPY_TILE;
        v->tiles = v->count / (v->extent[i] * v->extent[last]) * v->fast_tiles * v->last_tiles;
    }
}

/* ---- a choice ---------------------------------------------------------------------------------------------------- */

int sglcuda_fastest(const float *ms, const uint64_t *digests, int count)
{
    static const float gain = 0.98f; /* what gains less may be noise */
    int chosen = 0;
    float least = ms[0] * gain;
    for (int i = 1; i < count; i++) {
        if (digests[i] != digests[0] || !(ms[i] < least)) continue;
        least = ms[i];
        chosen = i;
    }
    return chosen;
}
