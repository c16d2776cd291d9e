/* test_cpu_axes.c -- the CPU's ops along an axis, orders, windows and convolutions, in every dtype that they take.
 *
 * Each against the interpreter; a dtype that an op refuses when its graph is built is passed over. Shapes: axes first, in the
 * middle and last, extents of 0 and 1, lines longer than what is read at a time, more lines than fit side by side. */
#include "cpu_case.h"

static const sgl_dtype dtypes[] = { SGL_F32, SGL_F64, SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2, SGL_I64, SGL_I32,
                                    SGL_I16, SGL_I8,  SGL_U8,   SGL_U16, SGL_U32,    SGL_I4,     SGL_BOOL };
enum { DTYPES = sizeof dtypes / sizeof dtypes[0], FLOATS = 6 };

typedef struct shape {
    int rank;
    int64_t dims[3];
} shape;

static const shape shapes[] = { { 1, { 7 } },          { 1, { 1000 } },       { 2, { 5, 600 } }, { 2, { 9, 1 } },
                                { 3, { 4, 13, 3 } },   { 3, { 2, 40, 300 } }, { 2, { 3, 0 } },   { 3, { 2, 0, 5 } },
                                { 3, { 700, 2, 11 } }, { 3, { 1, 70, 64 } } };
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Few values, so that there are ties; a NaN and both zeros here and there; of "a" what a recurrence may multiply with. */
static void tied(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    for (int64_t e = 0; e < t->count; e++) {
        int64_t v = (e * 7 + e / 5) % 11 - (sglcore_dtype_is_signed(t->dtype) ? 5 : 0);
        if (t->ints != NULL) t->ints[e] = t->dtype == SGL_BOOL ? v % 2 != 0 : v;
        if (t->floats == NULL) continue;
        t->floats[e] = name[0] == 'a' ? (double)v / 8 : (double)v / 4;
        if (name[0] == 'n' && e % 23 == 9) t->floats[e] = NAN;
        if (name[0] == 'n' && e % 29 == 4) t->floats[e] = -0.0;
    }
}

/* What an op takes in this dtype is known once it is emitted; then the graph is run. */
static void check_or_leave(sglir_graph *g, int *taken, cpu_options options)
{
    if (g->status != SGL_OK) {
        sglir_graph_free(g);
        return;
    }
    ++*taken;
    cpu_check(g, options);
}

static void fetch_op(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                     int attr_count, const char *name)
{
    sglir_id results[2];
    sglir_emit(g, op, args, arg_count, attrs, attr_count, results);
    if (g->status != SGL_OK) return;
    sglir_output_add(g, SGLIR_FETCH, name, results[0]);
    if (sglir_ops[op].results == 2) sglir_output_add(g, SGLIR_FETCH, (char[]){ name[0], '2', 0 }, results[1]);
}

typedef void (*emit_along)(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis);

static int along_all(emit_along emit, cpu_options options)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int taken = 0;
    for (int d = 0; d < DTYPES; d++) {
        for (int s = 0; s < SHAPES; s++) {
            for (int64_t axis = 0; axis < shapes[s].rank; axis++) {
                sglir_graph *g = cpu_graph(&env, sgl_dtype_name(dtypes[d]));
                emit(g, dtypes[d], &shapes[s], axis);
                options.fill = tied;
                options.one_variant = d > 2;
                check_or_leave(g, &taken, options);
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
    return taken / SHAPES;
}

static void emit_recurrence(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id args[] = { cpu_input(g, "a", dtype, s->rank, s->dims), cpu_input(g, "b", dtype, s->rank, s->dims) };
    for (int64_t reverse = 0; reverse < 2; reverse++) {
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("reverse", reverse) };
        fetch_op(g, SGLIR_OP_RECURRENCE, args, 2, attrs, 2, reverse ? "r" : "f");
    }
}

static void emit_sums(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id x = cpu_input(g, "x", dtype, s->rank, s->dims);
    for (int64_t way = 0; way < 4; way++) {
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("reverse", way & 1), SGLIR_I("exclusive", way >> 1) };
        fetch_op(g, SGLIR_OP_CUMULATIVE_SUM, &x, 1, attrs, 3, (char[]){ (char)('p' + way), 0 });
    }
}

static void emit_extremes(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id x = cpu_input(g, axis % 2 ? "n" : "x", dtype, s->rank, s->dims);
    sglir_named attrs[] = { SGLIR_I("axis", axis) };
    fetch_op(g, SGLIR_OP_ARGMAX, &x, 1, attrs, 1, "most");
    fetch_op(g, SGLIR_OP_ARGMIN, &x, 1, attrs, 1, "least");
}

static void emit_sort(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id x = cpu_input(g, "n", dtype, s->rank, s->dims);
    int64_t last = s->dims[s->rank - 1];
    for (int64_t descending = 0; descending < 2; descending++) {
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("descending", descending) };
        fetch_op(g, SGLIR_OP_SORT, &x, 1, attrs, 2, descending ? "d" : "a");
    }
    fetch_op(g, SGLIR_OP_TOP_K, &x, 1, &SGLIR_I("k", last < 3 ? last : 3), 1, "k");
}

static void emit_flip(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id x = cpu_input(g, "n", dtype, s->rank, s->dims);
    int64_t axes[] = { axis, axis + 1 };
    fetch_op(g, SGLIR_OP_FLIP, &x, 1, &SGLIR_INTS("axes", 1, axes), 1, "f");
    if (axis + 1 < s->rank) fetch_op(g, SGLIR_OP_FLIP, &x, 1, &SGLIR_INTS("axes", 2, axes), 1, "g");
}

static void emit_indexed(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    int64_t few[3] = { s->dims[0], s->dims[1], s->dims[2] };
    few[axis] = 6;
    sglir_id x = cpu_input(g, "n", dtype, s->rank, s->dims), i = cpu_input(g, "i", SGL_I32, s->rank, few);
    fetch_op(g, SGLIR_OP_TAKE_ALONG, (sglir_id[]){ x, i }, 2, &SGLIR_I("axis", axis), 1, "t");
}

static void emit_added(sglir_graph *g, sgl_dtype dtype, const shape *s, int64_t axis)
{
    sglir_id i = cpu_input(g, "i", SGL_I16, s->rank, s->dims), u = cpu_input(g, "u", dtype, s->rank, s->dims);
    for (int64_t extent = 0; extent < 9; extent += 4) {
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("extent", extent) };
        fetch_op(g, SGLIR_OP_ADD_ALONG, (sglir_id[]){ i, u }, 2, attrs, 2, (char[]){ (char)('0' + extent), 0 });
    }
}

static void test_recurrence(void **state)
{
    (void)state;
    assert_true(along_all(emit_recurrence, (cpu_options){ .relative = 1e-6, .ulps = 1 }) >= 14);
}
static void test_cumulative_sum(void **state)
{
    (void)state;
    assert_true(along_all(emit_sums, (cpu_options){ .relative = 1e-6, .ulps = 1 }) >= 14);
}
static void test_arg_extremes(void **state)
{
    (void)state;
    assert_true(along_all(emit_extremes, (cpu_options){ 0 }) >= DTYPES);
}
static void test_sort(void **state)
{
    (void)state;
    assert_true(along_all(emit_sort, (cpu_options){ .relative = 1e-30, .relative_f64 = 1e-30 }) >= DTYPES);
}
static void test_flip(void **state)
{
    (void)state;
    assert_true(along_all(emit_flip, (cpu_options){ .relative = 1e-30, .relative_f64 = 1e-30 }) >= DTYPES);
}
static void test_take_along(void **state)
{
    (void)state;
    assert_true(along_all(emit_indexed, (cpu_options){ .relative = 1e-30, .relative_f64 = 1e-30 }) >= DTYPES);
}
static void test_add_along(void **state)
{
    (void)state;
    assert_true(along_all(emit_added, (cpu_options){ .relative = 1e-6, .ulps = 1 }) >= 14);
}

/* Near one, so that products of many neither vanish nor overflow. */
static void factors(interp *in, const char *name, interp_tensor *t)
{
    (void)in, (void)name;
    for (int64_t e = 0; e < t->count; e++) {
        if (t->floats != NULL) t->floats[e] = e % 5 == 3 ? -1 : e % 7 == 2 && e < 40 ? 2 : 1;
        if (t->ints != NULL) t->ints[e] = e % 4 == 1 ? 3 : 1;
    }
}

static void test_reduce_prod(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int taken = 0;
    for (int d = 0; d < DTYPES; d++) {
        for (int s = 0; s < SHAPES; s++) {
            for (unsigned mask = 1; mask < 1u << shapes[s].rank; mask++) {
                int64_t axes[3];
                int count = 0;
                for (int axis = 0; axis < shapes[s].rank; axis++) {
                    if (mask >> axis & 1) axes[count++] = axis;
                }
                sglir_graph *g = cpu_graph(&env, "reduce_prod");
                sglir_id x = cpu_input(g, "x", dtypes[d], shapes[s].rank, shapes[s].dims);
                fetch_op(g, SGLIR_OP_REDUCE_PROD, &x, 1, &SGLIR_INTS("axes", count, axes), 1, "p");
                check_or_leave(g, &taken, (cpu_options){ .ulps = 1, .fill = factors, .one_variant = true });
            }
        }
    }
    assert_true(taken > 14 * SHAPES);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- windows and convolutions ----------------------------------------------------------------------------------------- */

typedef struct window_case {
    int spatial;
    int64_t samples, channels, outputs, groups;
    int64_t extent[3], size[3], stride[3], dilation[3], low[3], high[3];
} window_case;

static const window_case window_cases[] = {
    { 1, 2, 3, 4, 1, { 9 }, { 3 }, { 1 }, { 1 }, { 1 }, { 1 } },
    { 1, 3, 4, 6, 2, { 20 }, { 4 }, { 3 }, { 2 }, { 2 }, { 0 } },
    { 1, 1, 1, 1, 1, { 5 }, { 5 }, { 1 }, { 1 }, { 0 }, { 0 } },
    { 2, 2, 3, 5, 1, { 8, 7 }, { 3, 2 }, { 2, 1 }, { 1, 2 }, { 1, 0 }, { 1, 2 } },
    { 2, 1, 6, 6, 6, { 9, 9 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } }, /* a channel by itself */
    { 2, 3, 8, 16, 1, { 33, 31 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    { 2, 2, 5, 7, 1, { 6, 6 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 0, 0 } },
    { 2, 1, 2, 2, 1, { 7, 7 }, { 2, 2 }, { 2, 2 }, { 1, 1 }, { -1, 0 }, { 0, -2 } }, /* cut, not padded */
    { 3, 1, 2, 3, 1, { 4, 5, 3 }, { 2, 3, 2 }, { 1, 2, 1 }, { 1, 1, 1 }, { 1, 1, 0 }, { 0, 1, 1 } },
    { 2, 0, 3, 4, 1, { 8, 8 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 0, 0 } }, /* no sample */
    { 1, 2, 100, 70, 1, { 300 }, { 9 }, { 2 }, { 1 }, { 4 }, { 4 } },
};

static void emit_windows(sglir_graph *g, const window_case *c, sgl_dtype dtype, bool products)
{
    int n = c->spatial;
    int64_t x_dims[5] = { c->samples }, w_dims[5] = { c->outputs }, counts[5] = { c->samples };
    int64_t flat[SGL_MAX_RANK] = { c->samples };
    for (int d = 0; d < n; d++) {
        x_dims[1 + d] = c->extent[d];
        w_dims[1 + d] = c->size[d];
        counts[1 + d] =
            (c->extent[d] + c->low[d] + c->high[d] - c->dilation[d] * (c->size[d] - 1) - 1) / c->stride[d] + 1;
        flat[1 + d] = counts[1 + d];
        flat[1 + n + d] = c->size[d];
    }
    x_dims[1 + n] = flat[1 + 2 * n] = c->channels;
    w_dims[1 + n] = c->channels / c->groups;
    counts[1 + n] = c->outputs;
    sglir_named attrs[7] = { SGLIR_INTS("stride", n, c->stride), SGLIR_INTS("dilation", n, c->dilation),
                             SGLIR_INTS("low", n, c->low), SGLIR_INTS("high", n, c->high) };
    sglir_id x = cpu_input(g, "x", dtype, 2 + n, x_dims);
    if (!products) {
        attrs[4] = SGLIR_INTS("size", n, c->size);
        attrs[5] = SGLIR_F("value", 1);
        fetch_op(g, SGLIR_OP_WINDOWS, &x, 1, attrs, 6, "w");
        if (dtype == SGL_BOOL) return;
        sglir_id y = cpu_input(g, "y", dtype, 2 + 2 * n, flat);
        attrs[4] = SGLIR_INTS("extent", n, c->extent);
        fetch_op(g, SGLIR_OP_WINDOWS_ADD, &y, 1, attrs, 5, "a");
        return;
    }
    sglir_id weight = cpu_input(g, "v", dtype, 2 + n, w_dims), dy = cpu_input(g, "d", dtype, 2 + n, counts);
    attrs[4] = SGLIR_I("groups", c->groups);
    fetch_op(g, SGLIR_OP_CONV, (sglir_id[]){ x, weight }, 2, attrs, 5, "c");
    attrs[5] = SGLIR_INTS("extent", n, c->extent);
    fetch_op(g, SGLIR_OP_CONV_INPUT_GRAD, (sglir_id[]){ dy, weight }, 2, attrs, 6, "i");
    attrs[5] = SGLIR_INTS("size", n, c->size);
    fetch_op(g, SGLIR_OP_CONV_WEIGHT_GRAD, (sglir_id[]){ x, dy }, 2, attrs, 6, "g");
}

static void test_windows(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int d = 0; d < DTYPES; d++) {
        for (size_t i = 0; i < sizeof window_cases / sizeof window_cases[0]; i++) {
            sglir_graph *g = cpu_graph(&env, sgl_dtype_name(dtypes[d]));
            emit_windows(g, &window_cases[i], dtypes[d], false);
            cpu_check(g, (cpu_options){ .relative = 1e-6, .ulps = 1, .fill = tied, .one_variant = d > 2 });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_conv(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int d = 0; d < FLOATS; d++) {
        for (size_t i = 0; i < sizeof window_cases / sizeof window_cases[0]; i++) {
            sglir_graph *g = cpu_graph(&env, sgl_dtype_name(dtypes[d]));
            emit_windows(g, &window_cases[i], dtypes[d], true);
            cpu_check(g,
                      (cpu_options){ .relative = 2e-6, .ulps = 1, .absolute = d < 2 ? 0 : 1e-4, .one_variant = d > 2 });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrence), cmocka_unit_test(test_cumulative_sum), cmocka_unit_test(test_arg_extremes),
        cmocka_unit_test(test_sort),       cmocka_unit_test(test_flip),           cmocka_unit_test(test_take_along),
        cmocka_unit_test(test_add_along),  cmocka_unit_test(test_reduce_prod),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_conv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
