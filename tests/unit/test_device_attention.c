/* test_device_attention.c -- attention and its gradient on a device (SGL_TESTS_DEVICE; else the CPU) against the interpreter, over shapes
 * that take each kernel of a GPU: several tiles of queries and of keys, heads of up to 64 and up to 128 columns and
 * others, a window, an offset before, within and behind the keys, grouped heads, segments, few queries of many keys.
 *
 * In: a table of shapes, in every float dtype. Out: a failed assertion that names the shape. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/run_graph.h"

typedef struct shape {
    int64_t b, t, s, h, g, d, e, offset, causal, window;
    bool segments;
} shape;

static const shape shapes[] = {
    { 1, 150, 150, 2, 1, 64, 64, 0, 1, 0, false },      { 1, 200, 200, 2, 2, 8, 8, 0, 1, 50, false },
    { 2, 70, 70, 4, 2, 16, 24, 0, 1, 0, true },         { 1, 130, 260, 1, 1, 64, 40, 0, 0, 0, true },
    { 1, 140, 140, 2, 1, 128, 128, 0, 1, 0, false },    { 1, 33, 200, 4, 1, 72, 128, 167, 1, 64, false },
    { 1, 70, 100, 2, 1, 17, 33, -20, 1, 0, false },     { 3, 1, 150, 6, 2, 64, 64, 140, 1, 0, false },
    { 1, 140, 64, 1, 1, 64, 64, 0, 1, 16, false },      { 1, 64, 128, 1, 1, 136, 8, 300, 1, 0, false },
    { 2, 300, 300, 4, 2, 64, 64, 0, 1, 0, false },      { 1, 270, 390, 2, 2, 128, 96, 0, 0, 0, true },
    { 1, 400, 400, 2, 1, 80, 64, -130, 1, 200, false }, { 2, 1, 700, 8, 2, 64, 64, 650, 1, 0, false },
    { 1, 3, 600, 6, 1, 72, 40, 500, 1, 300, false },    { 1, 9, 520, 2, 1, 64, 64, 511, 1, 0, true },
    { 1, 8, 513, 4, 4, 8, 128, 0, 0, 0, false },
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static sglir_id input(sglir_graph *g, const char *name, sgl_dtype dtype, int rank, const int64_t *dims)
{
    const sglir_type type = sglir_type_make(dtype, rank, dims);
    return sglir_input(g, SGL_FEED, name, &type);
}

/* out and lse are inputs of the gradient: what they were rounded to is then the same on both sides. */
static sglir_graph *attention_graph(sglcore_env *env, const shape *c, sgl_dtype dtype, bool gradient)
{
    sglir_graph *g;
    assert_int_equal(sglir_graph_new(env, "attention", &g), SGL_OK);
    const int64_t q_dims[] = { c->b, c->t, c->h, c->d }, k_dims[] = { c->b, c->s, c->g, c->d };
    const int64_t v_dims[] = { c->b, c->s, c->g, c->e }, o_dims[] = { c->b, c->t, c->h, c->e };
    const int64_t lse_dims[] = { c->b, c->h, c->t };
    sglir_id args[9], results[3];
    int count = 0;
    args[count++] = input(g, "q", dtype, 4, q_dims);
    args[count++] = input(g, "k", dtype, 4, k_dims);
    args[count++] = input(g, "v", dtype, 4, v_dims);
    if (gradient) {
        args[count++] = input(g, "out", dtype, 4, o_dims);
        args[count++] = input(g, "lse", dtype == SGL_F64 ? SGL_F64 : SGL_F32, 3, lse_dims);
        args[count++] = input(g, "dout", dtype, 4, o_dims);
    }
    args[count++] = input(g, "offset", SGL_I64, 0, NULL);
    if (c->segments) {
        args[count++] = input(g, "of queries", SGL_I32, 2, q_dims);
        args[count++] = input(g, "of keys", SGL_I32, 2, k_dims);
    }
    const sglir_named attrs[] = { SGLIR_F("scale", 1.5 / sqrt((double)c->d)), SGLIR_I("causal", c->causal),
                                  SGLIR_I("window", c->window) };
    sglir_emit(g, gradient ? SGLIR_OP_ATTENTION_GRAD : SGLIR_OP_ATTENTION, args, count, attrs, 3, results);
    static const char *const names[2][3] = { { "out", "lse", NULL }, { "dq", "dk", "dv" } };
    for (int i = 0; i < 3 && names[gradient][i]; i++) sglir_output_add(g, SGLIR_FETCH, names[gradient][i], results[i]);
    assert_int_equal(sglir_status(g), SGL_OK);
    return g;
}

/* Documents of 40, and padding at the end. */
static void set_segments(interp *in, const char *name, int64_t length)
{
    for (int i = 0; i < in->input_count; i++) {
        interp_tensor *t = &in->inputs[i].tensor;
        for (int64_t n = 0; strcmp(in->inputs[i].name, name) == 0 && n < t->count; n++)
            t->ints[n] = n % length > length - 9 ? -3 : n % length / 40;
    }
}

static void set_inputs(interp *in, const sglir_graph *g, const shape *c)
{
    ir_case_fill(in, g, 7);
    for (int i = 0; i < in->input_count; i++)
        if (strcmp(in->inputs[i].name, "offset") == 0) in->inputs[i].tensor.ints[0] = c->offset;
    set_segments(in, "of queries", c->t);
    set_segments(in, "of keys", c->s);
}

/* Within so many units in the last place of the largest number: products of narrow floats take probabilities that are
 * rounded to the dtype, so that their sums are off by about one such unit. */
static void check_result(const run_results *results, const interp *oracle, const char *name, const char *label)
{
    const interp_tensor *have = run_result_of(results, name, false), *want = interp_fetch(oracle, name);
    assert_non_null(have);
    assert_non_null(want);
    double most = 0, off = 0;
    for (int64_t i = 0; i < want->count; i++) {
        if (isfinite(want->floats[i])) most = fmax(most, fabs(want->floats[i]));
        if (have->floats[i] == want->floats[i]) continue;
        const double apart = fabs(have->floats[i] - want->floats[i]);
        off = isnan(apart) ? INFINITY : fmax(off, apart);
    }
    const double bound =
        (want->dtype == SGL_F32 || want->dtype == SGL_F64 ? 100 : 4) * interp_epsilon(want->dtype) * most;
    if (off > bound) fail_msg("%s: %s is off by %g, %g is allowed", label, name, off, bound);
}

static void check(const shape *c, sgl_dtype dtype, bool gradient)
{
    static const char *const names[2][3] = { { "out", "lse", NULL }, { "dq", "dk", "dv" } };
    char label[160];
    sglcore_env env;
    ir_message message;
    run_results results;
    interp oracle = { .round = true };
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    snprintf(label, sizeof label, "%s %s: t %d, s %d, d %d, e %d, offset %d, window %d", sgl_dtype_name(dtype),
             gradient ? "gradient" : "attention", (int)c->t, (int)c->s, (int)c->d, (int)c->e, (int)c->offset,
             (int)c->window);
    sglir_graph *forward = attention_graph(&env, c, dtype, false), *g = forward;
    set_inputs(&oracle, forward, c);
    if (!interp_run(&oracle, forward)) fail_msg("%s: %s", label, oracle.error);
    if (gradient) {
        const interp_tensor *out = interp_fetch(&oracle, "out"), *lse = interp_fetch(&oracle, "lse");
        g = attention_graph(&env, c, dtype, true);
        interp given = { .round = true };
        set_inputs(&given, g, c);
        interp_input(&given, "out", out);
        interp_input(&given, "lse", lse);
        interp_free(&oracle);
        oracle = given;
        if (!interp_run(&oracle, g)) fail_msg("%s: %s", label, oracle.error);
    }
    if (run_graph(g, (run_options){ 0 }, &oracle, &results, &message) != RUN_DONE)
        fail_msg("%s: %s", label, message.text);
    for (int i = 0; i < 3 && names[gradient][i]; i++) check_result(&results, &oracle, names[gradient][i], label);
    run_results_free(&results);
    interp_free(&oracle);
    if (g != forward) sglir_graph_free(g);
    sglir_graph_free(forward);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_forward(void **state)
{
    static const sgl_dtype dtypes[] = { SGL_BF16, SGL_F16, SGL_F32, SGL_F64, SGL_F8E5M2 };
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 5; d++) check(&shapes[i], dtypes[d], false);
}

static void test_gradient(void **state)
{
    static const sgl_dtype dtypes[] = { SGL_BF16, SGL_F16, SGL_F32, SGL_F64 };
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 4; d++) check(&shapes[i], dtypes[d], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_forward), cmocka_unit_test(test_gradient) };
    return cmocka_run_group_tests_name("attention on a device", tests, NULL, NULL);
}
