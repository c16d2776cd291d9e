/* test_cuda_dot.c -- how the CUDA backend sees a dot: groups of dims, copies, runs and calls, by carrying a plan out on
 * the host.
 *
 * Random dots of small integers; what the plan's copies and calls give against sums straight from the definition;
 * what the library demands of layouts; some dots whose plan is known. The source under test is included: it knows no
 * CUDA. */
#include "fault.h"

#include <stdlib.h>

#include "backend/cuda/product.c"

enum { MOST_ELEMENTS = 1 << 16, RANDOM_DOTS = 20000 };

typedef struct dot_case {
    sglcuda_dot dot;
    int64_t dims[2][SGL_MAX_RANK], lists[4][SGL_MAX_RANK];
} dot_case;

static uint32_t random_state = 1;
static int64_t random_below(int64_t limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int64_t)(random_state >> 8) % limit;
}

static void link_case(dot_case *d)
{
    for (int s = 0; s < 2; s++) d->dot.dims[s] = d->dims[s];
    for (int i = 0; i < 4; i++) d->dot.lists[i] = d->lists[i];
}

/* Dims of both arguments in random order: batch, contracted, free. */
static void make_case(dot_case *d)
{
    static const sgl_dtype dtypes[] = { SGL_F32, SGL_BF16, SGL_F64, SGL_F8E4M3, SGL_F8E5M2, SGL_I32, SGL_I4 };
    *d = (dot_case){ .dot = { .dtype = dtypes[random_below(7)], .biased = random_below(8) == 0 } };
    d->dot.result =
        random_below(2) && sglcore_dtype_is_float(d->dot.dtype) && d->dot.dtype != SGL_F64 ? SGL_F32 : d->dot.dtype;
    const int batch = (int)random_below(4), contract = (int)random_below(3);
    const bool large = d->dot.dtype == SGL_F8E4M3 && random_below(2);
    for (int s = 0; s < 2; s++) d->dot.rank[s] = batch + contract + (int)random_below(3);
    int places[2][SGL_MAX_RANK];
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < d->dot.rank[s]; i++) places[s][i] = i;
        for (int i = d->dot.rank[s] - 1; i > 0; i--) {
            const int other = random_below(3) ? i : (int)random_below(i + 1);
            const int swap = places[s][i];
            places[s][i] = places[s][other];
            places[s][other] = swap;
        }
        for (int i = 0; i < d->dot.rank[s]; i++) d->dims[s][places[s][i]] = large ? 16 : 1 + random_below(4);
    }
    for (int i = 0; i < batch + contract; i++) {
        const bool is_batch = i < batch;
        const int at = is_batch ? i : i - batch;
        const int64_t extent = random_below(60) == 0 ? 0 : is_batch || !large ? 1 + random_below(4) : 16;
        for (int s = 0; s < 2; s++) {
            d->lists[is_batch ? s : 2 + s][at] = places[s][i];
            d->dims[s][places[s][i]] = extent;
        }
    }
    d->dot.counts[0] = d->dot.counts[1] = batch;
    d->dot.counts[2] = d->dot.counts[3] = contract;
    link_case(d);
}

static int64_t count_of(const dot_case *d, int s)
{
    int64_t count = 1;
    for (int i = 0; i < d->dot.rank[s]; i++) count *= d->dims[s][i];
    return count;
}

/* Walks extents in row-major order; offset of element `index` through strides. */
static int64_t offset_of(const int64_t *extents, const int64_t *strides, int rank, int64_t index)
{
    int64_t offset = 0;
    for (int i = rank - 1; i >= 0; i--) {
        offset += index % extents[i] * strides[i];
        index /= extents[i];
    }
    return offset;
}

static sglcuda_dims group(const dot_case *d, int s, int which)
{
    const side all =
        side_of(d->dot.rank[s], d->dims[s], d->lists[s], d->dot.counts[0], d->lists[2 + s], d->dot.counts[2]);
    return which == 0 ? all.batch : which == 1 ? all.contract : all.free;
}

/* Straight from the definition. */
static int64_t expected(const dot_case *d, const int64_t *a, const int64_t *b, int64_t *c)
{
    sglcuda_dims of[2][3];
    int64_t extents[3] = { 1, 1, 1 }, columns = 1;
    for (int s = 0; s < 2; s++) {
        for (int g = 0; g < 3; g++) of[s][g] = group(d, s, g);
    }
    for (int g = 0; g < 3; g++) extents[g] = product_of(&of[0][g]);
    columns = product_of(&of[1][2]);
    int64_t at = 0;
    for (int64_t batch = 0; batch < extents[0]; batch++) {
        for (int64_t row = 0; row < extents[2]; row++) {
            for (int64_t column = 0; column < columns; column++) {
                int64_t sum = 0;
                for (int64_t k = 0; k < extents[1]; k++) {
                    const int64_t index[2][3] = { { batch, k, row }, { batch, k, column } };
                    int64_t offset[2] = { 0, 0 };
                    for (int s = 0; s < 2; s++) {
                        for (int g = 0; g < 3; g++)
                            offset[s] += offset_of(of[s][g].extent, of[s][g].stride, of[s][g].count, index[s][g]);
                    }
                    sum += a[offset[0]] * b[offset[1]];
                }
                c[at++] = sum;
            }
        }
    }
    return at;
}

/* What the kernels of a copy do, unit by unit: an element where that is no less than a byte. */
static void carry_out_copy(const sglcuda_dims *source, int bits, const int64_t *from, int64_t *to)
{
    sglcuda_dense_copy copy;
    sglcuda_dense_copy_plan(source, bits, 64, &copy);
    const sglcuda_dot_copy_values *v = &copy.values;
    const int64_t unit = copy.bits / bits;
    int64_t extents[SGL_MAX_RANK], strides[SGL_MAX_RANK], dense[SGL_MAX_RANK];
    for (int i = 0; i < v->rank; i++) {
        extents[i] = v->extent[i];
        strides[i] = v->from[i];
        dense[i] = v->to[i];
    }
    assert_true(copy.bits == bits || (bits >= 8 && copy.bits <= 128 && v->from[v->rank - 1] == 1));
    assert_int_equal(v->count * unit, product_of(source));
    if (copy.kind == SGLCUDA_DENSE_COPY_TILES) {
        assert_int_equal(v->from[v->fast], 1);
        assert_true(v->fast < v->rank - 1 && bits >= 8 && unit == 1);
    }
    for (int64_t i = 0; i < v->count; i++) {
        assert_int_equal(offset_of(extents, dense, v->rank, i), i);
        for (int64_t e = 0; e < unit; e++) to[i * unit + e] = from[offset_of(extents, strides, v->rank, i) * unit + e];
    }
}

static const int64_t *read_factor(const sglcuda_product *p, const sglcuda_factor *f, const int64_t *argument,
                                  int64_t *copy)
{
    if (!f->copied) return argument;
    assert_int_equal(f->copy_at % SGLCUDA_PRODUCT_ALIGNMENT, 0);
    assert_true(f->copy_at + sglcore_dtype_bytes(p->dtype, product_of(&f->source)) <= p->library_at);
    carry_out_copy(&f->source, sglcore_dtype_bits(p->dtype), argument, copy);
    return copy;
}

static void multiply(const sglcuda_product *p, const int64_t *a, const int64_t *b, int64_t *c)
{
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t column = 0; column < p->columns; column++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < p->depth; k++)
                sum += a[row * p->a.free + k * p->a.contract] * b[column * p->b.free + k * p->b.contract];
            c[row * p->columns + column] = sum;
        }
    }
}

static void check_layout(const sglcuda_product *p, const sglcuda_factor *f, int64_t free, int64_t run_stride)
{
    assert_true(f->free == 1 || f->contract == 1 || free == 1 || p->depth == 1);
    if (p->dtype != SGL_F8E4M3) return;
    assert_int_equal(f->contract, 1);
    assert_int_equal(p->depth % 16, 0);
    if (free > 1) assert_int_equal(f->free % 16, 0);
    assert_int_equal(run_stride % 16, 0);
}

/* By calls, as the library's route, or by batch elements, as the kernel's. */
static void carry_out(const sglcuda_product *p, const int64_t *arguments[2], int64_t *c)
{
    static int64_t copies[2][MOST_ELEMENTS];
    const int64_t *a = read_factor(p, &p->a, arguments[p->exchanged ? 1 : 0], copies[0]);
    const int64_t *b = read_factor(p, &p->b, arguments[p->exchanged ? 0 : 1], copies[1]);
    int64_t at[3];
    if (p->a.copied && p->b.copied)
        assert_true(p->b.copy_at >= p->a.copy_at + sglcore_dtype_bytes(p->dtype, product_of(&p->a.source)));
    assert_true(p->work_bytes == 0 || p->work_bytes >= p->library_at + p->library_bytes);
    if (p->route == SGLCUDA_ROUTE_KERNEL) {
        sglcuda_calls batch;
        sglcuda_merge_batch(p, &batch);
        for (int64_t i = 0; i < p->batch; i++) {
            sglcuda_call_offsets(&batch, i, at);
            assert_int_equal(at[2], i * p->rows * p->columns);
            multiply(p, a + at[0], b + at[1], c + at[2]);
        }
        return;
    }
    const sglcuda_calls *calls = &p->calls;
    assert_int_equal(calls->run * calls->count, p->batch);
    check_layout(p, &p->a, p->rows, calls->run_a);
    check_layout(p, &p->b, p->columns, calls->run_b);
    for (int64_t call = 0; call < calls->count; call++) {
        sglcuda_call_offsets(calls, call, at);
        for (int64_t i = 0; i < calls->run; i++)
            multiply(p, a + at[0] + i * calls->run_a, b + at[1] + i * calls->run_b, c + at[2] + i * calls->run_c);
    }
}

static void random_dots(void **state)
{
    (void)state;
    static int64_t arguments[2][MOST_ELEMENTS], wanted[MOST_ELEMENTS], found[MOST_ELEMENTS];
    int64_t tried = 0, copied = 0, called = 0, exchanged = 0, kernels = 0;
    while (tried < RANDOM_DOTS) {
        dot_case d;
        sglcuda_product p;
        make_case(&d);
        if (count_of(&d, 0) > MOST_ELEMENTS || count_of(&d, 1) > MOST_ELEMENTS) continue;
        sglcuda_product_plan(&d.dot, &p);
        if (p.batch * p.rows * p.columns > MOST_ELEMENTS || p.batch * p.rows * p.columns * p.depth > 1 << 18) continue;
        for (int s = 0; s < 2; s++) {
            for (int64_t i = 0; i < count_of(&d, s); i++) arguments[s][i] = random_below(15) - 7;
        }
        const int64_t count = expected(&d, arguments[0], arguments[1], wanted);
        tried++;
        if (p.route == SGLCUDA_ROUTE_ZEROS) {
            assert_int_equal(p.work_bytes, 0);
            for (int64_t i = 0; i < count; i++) assert_int_equal(wanted[i], 0);
            continue;
        }
        for (int64_t i = 0; i < count; i++) found[i] = -1000000;
        carry_out(&p, (const int64_t *[2]){ arguments[0], arguments[1] }, found);
        for (int64_t i = 0; i < count; i++) assert_int_equal(found[i], wanted[i]);
        copied += p.a.copied + p.b.copied;
        called += p.route == SGLCUDA_ROUTE_LIBRARY && p.calls.count > 1;
        exchanged += p.exchanged;
        assert_false(p.exchanged && d.dot.biased);
        kernels += p.route == SGLCUDA_ROUTE_KERNEL;
    }
    assert_true(copied > RANDOM_DOTS / 20 && called > RANDOM_DOTS / 100 && exchanged > RANDOM_DOTS / 100 &&
                kernels > RANDOM_DOTS / 20);
}

/* batch, contract: how many dims stand in each pair of lists. */
static sglcuda_product plan(dot_case *d, int batch, int contract)
{
    sglcuda_product p;
    d->dot.counts[0] = d->dot.counts[1] = batch;
    d->dot.counts[2] = d->dot.counts[3] = contract;
    link_case(d);
    sglcuda_product_plan(&d->dot, &p);
    return p;
}

/* A layer, its two gradients, and heads that lie between rows and columns: none is copied, each is one call. */
static void layers_lie_well(void **state)
{
    (void)state;
    dot_case forward = { .dot = { SGL_BF16, SGL_BF16, .rank = { 3, 2 } },
                         .dims = { { 8, 512, 768 }, { 3072, 768 } },
                         .lists = { { 0 }, { 0 }, { 2 }, { 1 } } };
    sglcuda_product p = plan(&forward, 0, 1);
    assert_true(p.route == SGLCUDA_ROUTE_LIBRARY && !p.a.copied && !p.b.copied && p.calls.count == 1);
    assert_true(p.rows == 4096 && p.columns == 3072 && p.depth == 768 && p.a.free == 768 && p.b.contract == 1);
    dot_case weight = { .dot = { SGL_BF16, SGL_F32, .rank = { 3, 3 } },
                        .dims = { { 8, 512, 3072 }, { 8, 512, 768 } },
                        .lists = { { 0 }, { 0 }, { 1, 0 }, { 1, 0 } } };
    p = plan(&weight, 0, 2);
    assert_true(!p.a.copied && !p.b.copied && p.depth == 4096 && p.a.free == 1 && p.a.contract == 3072);
    assert_int_equal(p.library_bytes, 32 << 20);
    dot_case heads = { .dot = { SGL_BF16, SGL_BF16, .rank = { 4, 4 } },
                       .dims = { { 2, 128, 12, 64 }, { 2, 128, 12, 64 } },
                       .lists = { { 0, 2 }, { 0, 2 }, { 3 }, { 3 } } };
    p = plan(&heads, 2, 1);
    assert_true(!p.a.copied && !p.b.copied && p.a.free == 768 && p.a.contract == 1);
    assert_true(p.calls.count == 2 && p.calls.run == 12 && p.calls.run_a == 64 && p.calls.run_c == 128 * 128);
    heads.dims[0][0] = heads.dims[1][0] = 64; /* 64 small calls: copied into one run */
    p = plan(&heads, 2, 1);
    assert_true(p.a.copied && p.b.copied && p.calls.count == 1 && p.calls.run == 768);
}

static void long_batches(void **state)
{
    (void)state;
    dot_case d = { .dot = { SGL_F32, SGL_F32, .rank = { 3, 3 } },
                   .dims = { { 1 << 18, 3, 5 }, { 1 << 18, 5, 2 } },
                   .lists = { { 0 }, { 0 }, { 2 }, { 1 } } };
    sglcuda_product p = plan(&d, 1, 1);
    assert_true(p.route == SGLCUDA_ROUTE_LIBRARY && p.calls.run == 1 << 15 && p.calls.count == 8);
    assert_true(p.calls.rank == 1 && p.calls.a[0] == 15 << 15 && p.calls.b[0] == 10 << 15 && p.calls.c[0] == 6 << 15);
    d.dims[0][0] = d.dims[1][0] = 65537; /* a prime */
    assert_int_equal(plan(&d, 1, 1).route, SGLCUDA_ROUTE_KERNEL);
}

static void eight_bits(void **state)
{
    (void)state;
    dot_case d = { .dot = { SGL_F8E4M3, SGL_F32, .rank = { 2, 2 } },
                   .dims = { { 100, 64 }, { 64, 48 } },
                   .lists = { { 0 }, { 0 }, { 1 }, { 0 } } };
    sglcuda_product p = plan(&d, 0, 1);
    assert_true(p.route == SGLCUDA_ROUTE_LIBRARY && !p.a.copied && p.b.copied && p.b.contract == 1 && p.b.free == 64);
    sglcuda_dense_copy copy;
    sglcuda_dense_copy_plan(&p.b.source, 8, 64, &copy);
    assert_true(copy.kind == SGLCUDA_DENSE_COPY_TILES && copy.values.tiles == 4);
    d.dot.result = SGL_F8E4M3;
    assert_int_equal(plan(&d, 0, 1).route, SGLCUDA_ROUTE_KERNEL);
    d.dot.result = SGL_F32;
    d.dot.dtype = SGL_F8E5M2;
    assert_int_equal(plan(&d, 0, 1).route, SGLCUDA_ROUTE_KERNEL);
    d.dot.dtype = SGL_F8E4M3;
    d.dims[1][1] = 50;
    assert_int_equal(plan(&d, 0, 1).route, SGLCUDA_ROUTE_KERNEL);
}

/* Of two orders of the contracted dims, the one that leaves the larger argument where it is. */
static void less_is_copied(void **state)
{
    (void)state;
    dot_case d = { .dot = { SGL_F32, SGL_F32, .rank = { 3, 3 } },
                   .dims = { { 2, 8, 16 }, { 1000, 16, 8 } },
                   .lists = { { 0 }, { 0 }, { 1, 2 }, { 2, 1 } } };
    sglcuda_product p = plan(&d, 0, 2);
    assert_true(p.a.copied && !p.b.copied && p.depth == 128);
    d.dims[0][0] = 2000;
    p = plan(&d, 0, 2);
    assert_true(!p.a.copied && p.b.copied);
}

static void units_of_copies(void **state)
{
    (void)state;
    sglcuda_dense_copy copy;
    const sglcuda_dims rows = { 3, { 4, 6, 64 }, { 64, 256, 1 } };
    sglcuda_dense_copy_plan(&rows, 16, 64, &copy);
    assert_true(copy.kind == SGLCUDA_DENSE_COPY_ROWS && copy.bits == 128 && copy.values.extent[2] == 8);
    sglcuda_dense_copy_plan(&rows, 16, 4, &copy);
    assert_int_equal(copy.bits, 32);
    const sglcuda_dims odd = { 2, { 5, 7 }, { 9, 1 } };
    sglcuda_dense_copy_plan(&odd, 8, 64, &copy);
    assert_int_equal(copy.bits, 8);
    const sglcuda_dims apart = { 2, { 5, 8 }, { 9, 1 } };
    sglcuda_dense_copy_plan(&apart, 8, 64, &copy);
    assert_int_equal(copy.bits, 8);
    const sglcuda_dims turned = { 3, { 3, 100, 40 }, { 4000, 1, 100 } };
    sglcuda_dense_copy_plan(&turned, 32, 64, &copy);
    assert_true(copy.kind == SGLCUDA_DENSE_COPY_TILES && copy.values.fast == 1 && copy.values.tiles == 3 * 4 * 2);
}

/* Another algorithm is taken for its time alone, and never with other bits. */
static void fastest(void **state)
{
    (void)state;
    const uint64_t same[] = { 7, 7, 7, 7 }, other[] = { 7, 8, 7, 8 };
    assert_int_equal(sglcuda_fastest((const float[]){ 1, 2, 0.5f, 0.6f }, same, 4), 2);
    assert_int_equal(sglcuda_fastest((const float[]){ 1, 0.5f, 0.9f, 0.1f }, other, 4), 2);
    assert_int_equal(sglcuda_fastest((const float[]){ 1, 0.99f, 1, 0.985f }, same, 4), 0); /* noise */
    assert_int_equal(sglcuda_fastest((const float[]){ 0, 0, 0, 0 }, same, 4), 0);
    assert_int_equal(sglcuda_fastest((const float[]){ 1 }, same, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_dots),    cmocka_unit_test(layers_lie_well),
                                        cmocka_unit_test(long_batches),   cmocka_unit_test(eight_bits),
                                        cmocka_unit_test(less_is_copied), cmocka_unit_test(units_of_copies),
                                        cmocka_unit_test(fastest) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
