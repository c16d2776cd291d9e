/* dot.c -- dot_general: seen as (batch, rows, columns, contracted), as its arguments lie or after a copy.
 *
 * In: two dense arguments and which of their dims are batch, contracted, or free. Out: a command: at most two copies into
 * the workspace, then products, one per batch element, cut into tasks by blas.c. An argument is taken as it lies when its
 * free dims and its contracted dims are each one stride, and one of these is 1; batch dims may lie anywhere. Odd invariant:
 * contracted dims are taken in the order in which they lie in the first argument, for both. */
#include <string.h>

#include "backend/cpu/blas.h"

typedef struct dims {
    int count;
    int64_t extent[SGL_MAX_RANK], stride[SGL_MAX_RANK];
} dims;

/* One argument by groups of dims. */
typedef struct side {
    int rank;
    int64_t extents[SGL_MAX_RANK];
    dims batch, free, contract;
} side;

typedef struct shape {
    side a, b;
} shape;

/* ---- groups ------------------------------------------------------------------------------------------------------- */

static int64_t product_of(const dims *d)
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

static void add_dim(dims *group, const side *s, const int64_t *strides, int64_t d)
{
    group->extent[group->count] = s->extents[d];
    group->stride[group->count++] = strides[d];
}

static void group_dims(side *s, const int64_t *batch, int batch_count, const int64_t *contract, int contract_count)
{
    int64_t strides[SGL_MAX_RANK], stride = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= s->extents[d];
    }
    for (int i = 0; i < batch_count; i++) add_dim(&s->batch, s, strides, batch[i]);
    for (int i = 0; i < contract_count; i++) add_dim(&s->contract, s, strides, contract[i]);
    for (int d = 0; d < s->rank; d++) {
        if (!holds(batch, batch_count, d) && !holds(contract, contract_count, d)) add_dim(&s->free, s, strides, d);
    }
}

/* Pairs of contracted dims by their place in a. */
static void sort_pairs(int64_t *a, int64_t *b, int count)
{
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && a[j] < a[j - 1]; j--) {
            int64_t swap_a = a[j], swap_b = b[j];
            a[j] = a[j - 1], b[j] = b[j - 1];
            a[j - 1] = swap_a, b[j - 1] = swap_b;
        }
    }
}

/* lists: batch_a, batch_b, contract_a, contract_b. */
static shape shape_of(int a_rank, const int64_t *a_dims, int b_rank, const int64_t *b_dims,
                      const int64_t *const lists[4], const int counts[4])
{
    shape s = { .a = { .rank = a_rank }, .b = { .rank = b_rank } };
    int64_t contract_a[SGL_MAX_RANK], contract_b[SGL_MAX_RANK];
    for (int d = 0; d < a_rank; d++) s.a.extents[d] = a_dims[d];
    for (int d = 0; d < b_rank; d++) s.b.extents[d] = b_dims[d];
    for (int i = 0; i < counts[2]; i++) {
        contract_a[i] = lists[2][i];
        contract_b[i] = lists[3][i];
    }
    sort_pairs(contract_a, contract_b, counts[2]);
    group_dims(&s.a, lists[0], counts[0], contract_a, counts[2]);
    group_dims(&s.b, lists[1], counts[1], contract_b, counts[3]);
    return s;
}

/* The one stride of a group, 1 where it has a single element; false where there is none. */
static bool one_stride(const dims *d, int64_t *stride)
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

/* Fits BLAS as it lies. */
static bool lies_well(const side *s, int64_t *free_stride, int64_t *contract_stride)
{
    if (!one_stride(&s->free, free_stride) || !one_stride(&s->contract, contract_stride)) return false;
    return *free_stride == 1 || *contract_stride == 1 || product_of(&s->free) == 1 || product_of(&s->contract) == 1;
}

static int64_t copy_bytes(const side *s, sgl_dtype dtype)
{
    int64_t free_stride, contract_stride;
    if (lies_well(s, &free_stride, &contract_stride)) return 0;
    int64_t elements = product_of(&s->batch) * product_of(&s->free) * product_of(&s->contract);
    return sglcpu_round_up(sglcore_dtype_bytes(dtype, elements), 64);
}

int64_t sglcpu_dot_workspace(const sglir_graph *g, const sglir_node *node)
{
    static const char *const names[] = { "batch_a", "batch_b", "contract_a", "contract_b" };
    const int64_t *lists[4];
    int counts[4];
    for (int i = 0; i < 4; i++) lists[i] = sglir_attr_ints(g, node, names[i], &counts[i]);
    const sglir_type *a = sglir_type_of(g, sglir_arg(g, node, 0)), *b = sglir_type_of(g, sglir_arg(g, node, 1));
    shape s = shape_of(a->rank, a->dims, b->rank, b->dims, lists, counts);
    return copy_bytes(&s.a, (sgl_dtype)a->dtype) + copy_bytes(&s.b, (sgl_dtype)a->dtype);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

typedef struct argument {
    sglexec_operand place; /* as it lies, or its copy */
    sglcpu_command copy;   /* run: NULL where there is none */
    dims batch;
} argument;

typedef struct dot {
    argument a, b;
    const sglexec_operand *result;
    sglcpu_product product;
    sglcpu_narrow_product *narrow; /* of narrow floats, else NULL */
    void (*task)(void *context, int64_t task, int worker);
    int64_t batch, items_per_task, tasks;
} dot;

/* Where batch element `index` begins, in elements. */
static int64_t batch_offset(const dims *batch, int64_t index)
{
    int64_t offset = 0;
    for (int d = batch->count - 1; d >= 0; d--) {
        offset += index % batch->extent[d] * batch->stride[d];
        index /= batch->extent[d];
    }
    return offset;
}

typedef struct job {
    const sglcpu_launch *launch;
    const dot *plan;
} job;

/* What a task computes: part `part` of the products first .. last - 1 of the batch. */
typedef struct share {
    int64_t first, last, part;
    const char *a, *b;
    char *c;
} share;

static share share_of(const job *j, int64_t task)
{
    const dot *d = j->plan;
    int64_t first = task / d->product.tasks * d->items_per_task;
    return (share){ .first = first,
                    .last = sglcpu_min(first + d->items_per_task, d->batch),
                    .part = task % d->product.tasks,
                    .a = sglcpu_at(j->launch, &d->a.place),
                    .b = sglcpu_at(j->launch, &d->b.place),
                    .c = sglcpu_at(j->launch, d->result) };
}

static void narrow_task(void *context, int64_t task, int worker)
{
    const job *j = context;
    const dot *d = j->plan;
    const share s = share_of(j, task);
    for (int64_t item = s.first; item < s.last; item++) {
        sglcpu_narrow_task(d->narrow, j->launch->isa, s.a, batch_offset(&d->a.batch, item), s.b,
                           batch_offset(&d->b.batch, item), s.c, item * d->product.m * d->product.n,
                           sglcpu_scratch(j->launch, worker), s.part);
    }
}

static void int_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const job *j = context;
    const dot *d = j->plan;
    const share s = share_of(j, task);
    for (int64_t item = s.first; item < s.last; item++) {
        sglcpu_int_task((sgl_dtype)d->result->dtype, &d->product, s.a, batch_offset(&d->a.batch, item), s.b,
                        batch_offset(&d->b.batch, item), s.c, item * d->product.m * d->product.n, s.part);
    }
}

static void dot_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const job *j = context;
    const dot *d = j->plan;
    const sglcpu_product *p = &d->product;
    const share s = share_of(j, task);
    int64_t size = p->real ? 8 : 4;
    for (int64_t item = s.first; item < s.last; item++) {
        sglcpu_product_task(p, j->launch->isa, s.a + batch_offset(&d->a.batch, item) * size,
                            s.b + batch_offset(&d->b.batch, item) * size, s.c + item * p->m * p->n * size, 0, s.part);
    }
}

static void run_dot(const sglcpu_launch *launch, const void *plan)
{
    const dot *d = plan;
    job j = { .launch = launch, .plan = d };
    if (d->a.copy.run != NULL) d->a.copy.run(launch, d->a.copy.plan);
    if (d->b.copy.run != NULL) d->b.copy.run(launch, d->b.copy.plan);
    sglcpu_parallel(launch->pool, d->tasks, d->task, &j);
}

/* As it lies, or copied to work_at in the arena as [batch..., free..., contract...]. */
static sgl_status place_argument(sglcpu_prepare *p, const side *s, const sglexec_operand *operand, int64_t *work_at,
                                 argument *out, int64_t *free_stride, int64_t *contract_stride)
{
    out->place = *operand;
    out->batch = s->batch;
    if (lies_well(s, free_stride, contract_stride)) return SGL_OK;
    const dims *groups[] = { &s->batch, &s->free, &s->contract };
    int64_t strides[SGL_MAX_RANK];
    out->place = (sglexec_operand){ .space = SGLIR_SPACE_ARENA, .dtype = operand->dtype, .offset = *work_at };
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < groups[g]->count; i++) {
            strides[out->place.rank] = groups[g]->stride[i];
            out->place.dims[out->place.rank++] = groups[g]->extent[i];
        }
    }
    *contract_stride = 1;
    *free_stride = product_of(&s->contract);
    int64_t stride = *free_stride * product_of(&s->free);
    for (int i = s->batch.count - 1; i >= 0; i--) {
        out->batch.stride[i] = stride;
        stride *= s->batch.extent[i];
    }
    *work_at += copy_bytes(s, (sgl_dtype)operand->dtype);
    return sglcpu_prepare_permute(p, operand, strides, &out->place, &out->copy);
}

/* Small products of a batch go together; the number of tasks follows from the shape alone. */
static void cut_batch(dot *d)
{
    double flops = 2.0 * (double)d->product.m * (double)d->product.n * (double)d->product.k;
    d->items_per_task = d->result->dtype == SGL_I4 ? sglcpu_max(d->batch, 1) : 1; /* of i4 two may share a byte */
    if (d->product.tasks == 1 && flops < 1e6 && d->result->dtype != SGL_I4) {
        d->items_per_task =
            sglcpu_min((int64_t)(1e6 / (flops + 1000)) + 1, sglcpu_max(sglcpu_ceil_div(d->batch, 16), 1));
    }
    d->tasks = sglcpu_ceil_div(d->batch, d->items_per_task) * d->product.tasks;
}

static sgl_status cut_product(sglcpu_prepare *p, dot *d, sgl_dtype dtype)
{
    d->task = sglcpu_held_index(dtype) < 0 ? int_task : sglcpu_is_narrow(dtype) ? narrow_task : dot_task;
    if (d->task == int_task) {
        sglcpu_int_cut(dtype, &d->product);
        return SGL_OK;
    }
    if (!sglcpu_is_narrow(dtype)) {
        sglcpu_product_cut(&d->product, false);
        return SGL_OK;
    }
    d->narrow = sglcpu_plan_alloc(p, 1, sizeof *d->narrow);
    if (d->narrow == NULL) return SGL_OUT_OF_MEMORY;
    *d->narrow = (sglcpu_narrow_product){ .whole = d->product, .dtype = dtype, .result = (sgl_dtype)d->result->dtype };
    sglcpu_narrow_cut(d->narrow);
    d->product = d->narrow->whole;
    sglcpu_need_scratch(p, d->narrow->scratch_bytes);
    return SGL_OK;
}

sgl_status sglcpu_prepare_dot(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    static const char *const names[] = { "batch_a", "batch_b", "contract_a", "contract_b" };
    const int64_t *lists[4];
    int counts[4];
    for (int n = 0; n < 4; n++) lists[n] = sglexec_attr_ints(p->program, i, names[n], &counts[n]);
    const sglexec_operand *a = sglcpu_operand(p->program, i, 0), *b = a + 1;
    shape s = shape_of(a->rank, a->dims, b->rank, b->dims, lists, counts);
    dot *d = sglcpu_plan_alloc(p, 1, sizeof *d);
    if (d == NULL) return SGL_OUT_OF_MEMORY;
    int64_t work_at = i->work_offset;
    sglcpu_product *product = &d->product;
    d->result = b + 1;
    d->batch = product_of(&s.a.batch);
    product->real = sglcpu_held_index((sgl_dtype)a->dtype) == 1; /* of integers: not looked at */
    product->m = product_of(&s.a.free);
    product->n = product_of(&s.b.free);
    product->k = product_of(&s.a.contract);
    product->ldc = product->n;
    SGLCORE_TRY(place_argument(p, &s.a, a, &work_at, &d->a, &product->a_row, &product->a_col));
    SGLCORE_TRY(place_argument(p, &s.b, b, &work_at, &d->b, &product->b_col, &product->b_row));
    if (work_at > i->work_offset + i->work_bytes) {
        return sglcore_fail(p->env, SGL_INTERNAL, "cpu: dot needs %lld bytes of workspace and was given %lld",
                            (long long)(work_at - i->work_offset), (long long)i->work_bytes);
    }
    if (sglcpu_held_index((sgl_dtype)a->dtype) >= 0 && !sglcpu_product_fits(product)) {
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "cpu: a matrix of a dot has more than 2^31 rows or columns");
    }
    SGLCORE_TRY(cut_product(p, d, (sgl_dtype)a->dtype));
    cut_batch(d);
    *command = (sglcpu_command){ .run = run_dot, .plan = d };
    return SGL_OK;
}
