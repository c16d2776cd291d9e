/* test_device_loss.c -- the vocabulary loss and its gradient on a device (SGL_TESTS_DEVICE; else the CPU) against the interpreter, over
 * vocabularies that take each kernel of a GPU: rows that fit its shared memory, rows of two, four and eight blocks,
 * rows in parts one after another; classes that are no multiple of 8, ignored rows, targets outside.
 *
 * In: a table of vocabularies, in every float dtype. Out: a failed assertion that names the case. Odd invariant: features
 * and gradients of losses are positive, so that all terms of a class's gradient have one sign, and each is held by itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/run_graph.h"

enum { ROWS = 5, DIM = 8 };

static const int64_t vocabularies[] = { 6, 1003, 20000, 50257, 110000, 250000 };
enum { VOCABULARIES = sizeof vocabularies / sizeof vocabularies[0] };

static sglir_id input(sglir_graph *g, const char *name, sgl_dtype dtype, int rank, const int64_t *dims)
{
    const sglir_type type = sglir_type_make(dtype, rank, dims);
    return sglir_input(g, SGL_FEED, name, &type);
}

static sglir_graph *loss_graph(sglcore_env *env, int64_t vocab, sgl_dtype dtype, bool gradient)
{
    sglir_graph *g;
    assert_int_equal(sglir_graph_new(env, "loss", &g), SGL_OK);
    const int64_t x_dims[] = { ROWS, DIM }, weight_dims[] = { vocab, DIM };
    sglir_id args[4], results[3];
    args[0] = input(g, "x", dtype, 2, x_dims);
    args[1] = input(g, "weight", dtype, 2, weight_dims);
    args[2] = input(g, "targets", SGL_I32, 1, x_dims);
    if (gradient) args[3] = input(g, "dlosses", dtype == SGL_F64 ? SGL_F64 : SGL_F32, 1, x_dims);
    sglir_emit(g, gradient ? SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD : SGLIR_OP_LINEAR_CROSS_ENTROPY, args, 3 + gradient,
               &SGLIR_I("ignore", -1), 1, results);
    static const char *const names[] = { "losses", "dx", "dweight" };
    for (int i = 0; i < (gradient ? 3 : 1); i++) sglir_output_add(g, SGLIR_FETCH, names[i], results[i]);
    assert_int_equal(sglir_status(g), SGL_OK);
    return g;
}

/* One row is ignored, one has a target outside, one the last class. */
static void set_inputs(interp *in, const sglir_graph *g, int64_t vocab)
{
    const int64_t targets[ROWS] = { vocab / 3, -1, vocab - 1, vocab + 7, 0 };
    ir_case_fill(in, g, 11);
    for (int i = 0; i < in->input_count; i++) {
        interp_tensor *t = &in->inputs[i].tensor;
        const bool weight = strcmp(in->inputs[i].name, "weight") == 0, is_target = t->dtype == SGL_I32;
        for (int64_t n = 0; n < t->count; n++) {
            if (is_target)
                t->ints[n] = targets[n];
            else
                t->floats[n] = weight ? t->floats[n] / 4 : fabs(t->floats[n]);
        }
    }
}

/* Numbers in runs of `run`, each within a bound of the largest of its run: a few units in the last place, and of f16 what it
 * cannot tell from 0. */
static void check_result(const run_results *results, const interp *oracle, const char *name, int64_t run,
                         const char *label)
{
    const interp_tensor *have = run_result_of(results, name, false), *want = interp_fetch(oracle, name);
    assert_non_null(have);
    assert_non_null(want);
    const bool wide = want->dtype == SGL_F32 || want->dtype == SGL_F64;
    const double epsilon = (wide ? 100 : 4) * interp_epsilon(want->dtype), least = want->dtype == SGL_F16 ? 1e-6 : 0;
    for (int64_t first = 0; first < want->count; first += run) {
        double most = 0, off = 0;
        for (int64_t i = first; i < first + run; i++) {
            const double apart = fabs(have->floats[i] - want->floats[i]);
            most = fmax(most, fabs(want->floats[i]));
            off = isnan(apart) ? INFINITY : fmax(off, apart);
        }
        if (off > epsilon * most + least)
            fail_msg("%s: %s from element %d on is off by %g of %g", label, name, (int)first, off, most);
    }
}

static void check(int64_t vocab, sgl_dtype dtype, bool gradient)
{
    char label[80];
    sglcore_env env;
    ir_message message;
    run_results results;
    interp oracle = { .round = true };
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    snprintf(label, sizeof label, "%s, %d classes", sgl_dtype_name(dtype), (int)vocab);
    sglir_graph *g = loss_graph(&env, vocab, dtype, gradient);
    set_inputs(&oracle, g, vocab);
    if (!interp_run(&oracle, g)) fail_msg("%s: %s", label, oracle.error);
    if (run_graph(g, (run_options){ 0 }, &oracle, &results, &message) != RUN_DONE)
        fail_msg("%s: %s", label, message.text);
    check_result(&results, &oracle, "losses", ROWS, label);
    if (gradient) check_result(&results, &oracle, "dx", DIM, label);
    if (gradient) check_result(&results, &oracle, "dweight", DIM, label);
    run_results_free(&results);
    interp_free(&oracle);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void check_all(bool gradient)
{
    static const sgl_dtype dtypes[] = { SGL_BF16, SGL_F16, SGL_F32, SGL_F64 };
    for (int i = 0; i < VOCABULARIES; i++)
        for (int d = 0; d < 4; d++) check(vocabularies[i], dtypes[d], gradient);
}

static void test_losses(void **state)
{
    (void)state;
    check_all(false);
}

static void test_gradient(void **state)
{
    (void)state;
    check_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_losses), cmocka_unit_test(test_gradient) };
    return cmocka_run_group_tests_name("the vocabulary loss on a device", tests, NULL, NULL);
}
