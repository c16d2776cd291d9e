/* test_ops.c -- every op, by its cases (cases.def), in every mode: the words with which it refuses; the dtypes that it takes;
 * its values in each of them, compiled for the CPU, against the interpreter in double; gradients of first and second order
 * against central differences; compiled with each pass left out; through print and parse.
 *
 * A row of ops.def without cases does not compile here. A dtype that an op takes and the CPU does not is a failure.
 * ctest: timeout 300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "passes/vjp_rules.h"
#include "tests/support/op_case.h"
#include "tests/support/run_graph.h"

/* ---- no row without cases ---------------------------------------------------------------------------------------- */

enum {
#define OP_CASES(NAME, ...) add_cases_to_tests_ops_cases_def_for_##NAME,
#define OP_NO_CASES(NAME, why) add_cases_to_tests_ops_cases_def_for_##NAME,
#include "tests/ops/cases.def"
#undef OP_CASES
#undef OP_NO_CASES
    ROWS_WITH_CASES
};
enum {
    ROWS = 0
#define SGLIR_OP(NAME, ...) +(add_cases_to_tests_ops_cases_def_for_##NAME >= 0)
#include "ir/ops.def"
#undef SGLIR_OP
};
_Static_assert(ROWS == (int)ROWS_WITH_CASES, "tests/ops/cases.def has a row that vm/ir/ops.def has not");

/* ---- what the modes share ---------------------------------------------------------------------------------------- */

enum { VARIANTS = 6, LABEL = 1024, MOST_FAULTS = 40 };

/* What is wrong is told and counted, so that one run shows all of it; each test ends with no_faults. */
static int faults;

static void fault(const char *format, ...) SGL_PRINTF(1, 2);
static void fault(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_error("%s\n", text);
    if (++faults >= MOST_FAULTS) fail_msg("%d faults, and no more are looked for", faults);
}

static void no_faults(void)
{
    int count = faults;
    faults = 0;
    assert_int_equal(count, 0);
}

/* SGL_TESTS_PART=i/n: of the cases that are run, the i-th of n equal parts, for several processes beside one another. */
static bool is_left_out(int number)
{
    const char *part = getenv("SGL_TESTS_PART");
    int mine = 0, parts = 1;
    if (part == NULL) return false;
    if (sscanf(part, "%d/%d", &mine, &parts) != 2 || parts < 1) fail_msg("SGL_TESTS_PART is '%s', not i/n", part);
    return number % parts != mine;
}

/* Shapes that a case is run in: plain ones; with one and with three leading dims; odd and larger than a vector; of 1; with an
 * extent of none. */
static op_binding variant(int number)
{
    op_binding b = op_binding_plain();
    switch (number) {
    case 1:
        b.star_rank = 1;
        b.star[0] = 3;
        break;
    case 2:
        b.star_rank = 3;
        b.star[0] = 2;
        b.star[1] = 1;
        b.star[2] = 3;
        break;
    case 3:
        for (int i = 0; i < 26; i++) b.extents[i] = 5 + 6 * (i % 4);
        b.extents['g' - 'a'] = 3;
        b.star_rank = 1;
        b.star[0] = 5;
        break;
    case 4:
        for (int i = 0; i < 26; i++) b.extents[i] = 1;
        break;
    case 5: b.extents['a' - 'a'] = 0; break;
    default: break;
    }
    return b;
}

static double epsilon_of(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F64: return ldexp(1, -52);
    case SGL_F32: return ldexp(1, -23);
    case SGL_BF16: return ldexp(1, -7);
    case SGL_F16: return ldexp(1, -10);
    case SGL_F8E4M3: return ldexp(1, -3);
    case SGL_F8E5M2: return ldexp(1, -2);
    default: return 0;
    }
}

static double largest_of(const interp_tensor *t)
{
    double largest = 0;
    for (int64_t e = 0; e < t->count; e++) {
        double value = fabs(interp_get(t, e));
        if (isfinite(value) && value > largest) largest = value;
    }
    return largest;
}

/* The epsilon of the coarsest float in the graph: of a cast to f32 between f64, say. */
static double coarsest(const sglir_graph *g)
{
    double epsilon = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        sgl_dtype dtype = (sgl_dtype)g->values.data[v].type.dtype;
        if (sglcore_dtype_is_float(dtype)) epsilon = fmax(epsilon, epsilon_of(dtype));
    }
    return epsilon;
}

/* Every result within condition * epsilon of the largest number of all results. */
static void same_values(const char *label, const char *how, const interp *oracle, const run_results *results,
                        double condition, double least)
{
    double largest = 0;
    for (int i = 0; i < oracle->fetch_count; i++) largest = fmax(largest, largest_of(&oracle->fetches[i].tensor));
    for (int i = 0; i < oracle->fetch_count; i++) {
        const char *name = oracle->fetches[i].name;
        const interp_tensor *want = &oracle->fetches[i].tensor, *have = run_result_of(results, name, false);
        assert_non_null(have);
        assert_int_equal(have->count, want->count);
        assert_int_equal(have->dtype, want->dtype);
        double allowed = condition * fmax(epsilon_of(want->dtype), least) * largest;
        for (int64_t e = 0; e < want->count; e++) {
            double a = interp_get(want, e), b = interp_get(have, e);
            if (want->dtype == SGL_F8E4M3 && isinf(a)) a = NAN; /* it has no infinity */
            if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= allowed) continue;
            fault("%s, %s: %s[%lld] is %.17g, %.17g is expected: off by %.3g epsilons of the largest, %.6g", label, how,
                  name, (long long)e, b, a, fabs(a - b) / (epsilon_of(want->dtype) * largest), largest);
            return;
        }
    }
}

static sglir_graph *graph_of(sglcore_env *env, const op_case *c, const op_binding *b)
{
    char label[LABEL];
    sglir_graph *g = op_case_graph(env, c, b);
    if (g == NULL) fail_msg("%s: %s", op_case_label(c, b, label, sizeof label), env->message);
    return g;
}

/* ---- refusals, dtypes ---------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        char label[LABEL], before[64];
        op_binding b = op_binding_plain();
        sglcore_env env;
        if (c.kind != OP_REFUSED) continue;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        op_case_label(&c, &b, label, sizeof label);
        if (op_case_graph(&env, &c, &b) != NULL) fail_msg("%s is not refused", label);
        snprintf(before, sizeof before, " %s: ", sglir_ops[c.op].name);
        const char *message = strstr(env.message, before);
        if (message == NULL || strcmp(message + strlen(before), c.message) != 0)
            fault("%s\n  says     %s\n  expected %s", label, env.message, c.message);
        assert_int_equal(env.bytes_in_use, 0);
    }
    no_faults();
}

/* An op of a fixed number of arguments refuses one more and one less, and says how many it takes. */
static void test_counts_of_arguments(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        const sglir_op_row *row = &sglir_ops[op];
        for (int off = -1; off <= 1; off += 2) {
            int count = off < 0 ? row->minimum - 1 : row->maximum + 1;
            if (count < 0 || (off > 0 && row->maximum < 0) || count > 12) continue;
            sglcore_env env;
            sglcore_env_init(&env, NULL, NULL, NULL, NULL);
            sglir_graph *g;
            assert_int_equal(sglir_graph_new(&env, "counts", &g), SGL_OK);
            sglir_id one = sglir_constant(g, SGL_F32, 1), args[12], out[64];
            for (int i = 0; i < count; i++) args[i] = one;
            assert_int_equal(sglir_emit(g, (sglir_op)op, args, count, NULL, 0, out), SGLIR_NONE);
            if (strstr(env.message, row->name) == NULL || strstr(env.message, "argument") == NULL)
                fail_msg("%s with %d arguments: %s", row->name, count, env.message);
            sglir_graph_free(g);
            assert_int_equal(env.bytes_in_use, 0);
        }
    }
}

static void test_dtypes(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind == OP_REFUSED || c.dtypes == OP_NONE) continue;
        for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
            char label[LABEL];
            op_binding b = op_binding_plain();
            b.dtype = (sgl_dtype)dtype;
            sglcore_env env;
            sglcore_env_init(&env, NULL, NULL, NULL, NULL);
            sglir_graph *g = op_case_graph(&env, &c, &b);
            op_case_label(&c, &b, label, sizeof label);
            if (g == NULL && op_case_takes(&c, b.dtype)) fault("%s: %s", label, env.message);
            if (g != NULL && !op_case_takes(&c, b.dtype)) fault("%s is allowed; its case says otherwise", label);
            sglir_graph_free(g);
            assert_int_equal(env.bytes_in_use, 0);
        }
    }
    no_faults();
}

/* ---- values ----------------------------------------------------------------------------------------------------------- */

/* Compiles and runs the case in one way. */
static void check_values(const op_case *c, const op_binding *b, run_options options)
{
    char label[LABEL], how[64];
    sglcore_env env;
    ir_message message;
    run_results results;
    interp oracle = { 0 };
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = graph_of(&env, c, b);
    op_case_label(c, b, label, sizeof label);
    op_case_fill(&oracle, g, 3);
    if (!interp_run(&oracle, g)) fail_msg("%s: the interpreter: %s", label, oracle.error);
    run_outcome outcome = run_graph(g, options, &oracle, &results, &message);
    snprintf(how, sizeof how, "without '%s'", options.without != NULL ? options.without : "");
    if (outcome == RUN_DONE)
        same_values(label, how, &oracle, &results, c->condition, 0);
    else
        fault("%s, %s: %s", label, how, message.text);
    run_results_free(&results);
    interp_free(&oracle);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_values(void **state)
{
    (void)state;
    op_case c;
    static const sgl_dtype indices[] = { SGL_I32, SGL_I64, SGL_I16, SGL_U8, SGL_I8, SGL_U32, SGL_U16 };
    int done = 0;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind == OP_REFUSED || is_left_out(n)) continue;
        for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
            if (c.dtypes == OP_NONE ? dtype > 0 : !op_case_takes(&c, (sgl_dtype)dtype)) continue;
            for (int v = 0; v < VARIANTS; v++) {
                if (dtype > SGL_F32 && v != 1 && v != 5) continue;
                op_binding b = variant(v);
                b.dtype = (sgl_dtype)dtype;
                b.index = indices[(dtype + v) % 7];
                check_values(&c, &b, (run_options){ .threads = 1 + v % 3 });
                done++;
            }
        }
    }
    print_message("%d values compared\n", done);
    no_faults();
    assert_true(done > (getenv("SGL_TESTS_PART") != NULL ? 0 : 1000));
}

static void test_passes_left_out(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind == OP_REFUSED || is_left_out(n)) continue;
        for (int i = 0; run_optional_pass(i) != NULL; i++) {
            op_binding b = variant(2);
            b.dtype = c.dtypes == OP_BOOLS                             ? SGL_BOOL
                      : c.dtypes == OP_INTEGERS || c.dtypes == OP_BITS ? SGL_I32
                      : i % 2                                          ? SGL_F32
                                                                       : SGL_F64;
            check_values(&c, &b, (run_options){ .without = run_optional_pass(i) });
        }
    }
    no_faults();
}

static void test_round_trip(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind == OP_REFUSED) continue;
        for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
            op_binding b = variant(1);
            b.dtype = (sgl_dtype)dtype;
            if (c.dtypes == OP_NONE ? dtype > 0 : !op_case_takes(&c, b.dtype)) continue;
            sglcore_env env;
            ir_message message;
            sglcore_env_init(&env, NULL, NULL, NULL, NULL);
            sglir_graph *g = graph_of(&env, &c, &b);
            if (!ir_case_round_trip(&env, g, &message)) fail_msg("%s", message.text);
            sglir_graph_free(g);
            assert_int_equal(env.bytes_in_use, 0);
        }
    }
}

/* ---- gradients ----------------------------------------------------------------------------------------------------- */

/* sum of value * weights, each element with a weight of its own; f64[] */
static sglir_id weigh(sglir_graph *g, sglir_id value, uint64_t salt)
{
    int64_t axes[SGL_MAX_RANK], counts[1024];
    double weights[1024];
    value = sglir_cast(g, value, SGL_F64);
    sglir_type type = *sglir_type_of(g, value);
    int64_t count = sglir_elements(&type);
    assert_true(count <= 1024);
    for (int64_t i = 0; i < count; i++) {
        counts[i] = 1;
        weights[i] = (double)((uint64_t)(i + 1) * 7919 * salt % 1021) / 510 - 1;
    }
    for (int d = 0; d < type.rank; d++) axes[d] = d;
    const sglir_named attrs[] = { SGLIR_INTS("counts", count, counts), SGLIR_FLOATS("values", count, weights),
                                  SGLIR_I("dtype", SGL_F64) };
    sglir_id all = sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
    sglir_id product = sglir_mul(g, value, sglir_reshape(g, all, type.rank, type.dims));
    return sglir_reduce(g, SGLIR_OP_REDUCE_SUM, product, axes, type.rank, false);
}

enum { MOST_INPUTS = 12 };

/* The weighed sum of what the case fetches (order 1), or of its gradients (order 2), as "loss", and that one's gradient by
 * each float input "x0" as "d x0"; through autodiff. */
static sglir_graph *gradient_graph(sglcore_env *env, const op_case *c, const op_binding *b, int order)
{
    sglir_graph *g = graph_of(env, c, b), *derived = NULL;
    sglir_id args[MOST_INPUTS + 1], out[MOST_INPUTS];
    int count = 0;
    for (int64_t n = 0; n < g->regions.data[0].nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, g->regions.data[0].nodes.data[n]);
        if (node->op != SGLIR_OP_INPUT) continue;
        if (sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, node->out_first)->dtype))
            args[++count] = node->out_first;
    }
    int64_t fetches = g->outputs.count;
    args[0] = sglir_constant(g, SGL_F64, 0);
    for (int64_t i = 0; i < fetches; i++)
        args[0] = sglir_add(g, args[0], weigh(g, g->outputs.data[i].value, (uint64_t)i + 3));
    for (int o = 1; o <= order; o++) {
        sglir_emit(g, SGLIR_OP_GRAD, args, count + 1, NULL, 0, out);
        if (o == order) break;
        args[0] = sglir_constant(g, SGL_F64, 0);
        for (int i = 0; i < count; i++) args[0] = sglir_add(g, args[0], weigh(g, out[i], (uint64_t)i + 11));
    }
    sglir_output_add(g, SGLIR_FETCH, "loss", args[0]);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "d %s", sglir_attr_string(g, sglir_maker(g, args[i + 1]), "name"));
        sglir_output_add(g, SGLIR_FETCH, name, out[i]);
    }
    sglplan plan;
    sglplan_init(&plan);
    const sglpass_context context = { .env = env, .plan = &plan };
    bool good = sglir_status(g) == SGL_OK && sglpass_autodiff(&context, g, &derived) == SGL_OK &&
                sglir_verify(derived, SGLIR_PER_RANK) == SGL_OK;
    sglir_graph_free(g);
    if (good) return derived;
    sglir_graph_free(derived);
    return NULL;
}

static double loss_at(interp *in, const sglir_graph *g, double *element, double value, const char *label)
{
    *element = value;
    if (!interp_run(in, g)) fail_msg("%s: %s", label, in->error);
    return interp_get(interp_fetch(in, "loss"), 0);
}

/* Differences of fourth order: the error is some 1e-11 where all is smooth. */
static void check_differences(const char *label, const sglir_graph *g, interp *in)
{
    const double h = 1e-3;
    for (int n = 0; n < in->input_count; n++) {
        interp_tensor *x = &in->inputs[n].tensor;
        char name[32];
        if (x->floats == NULL) continue;
        snprintf(name, sizeof name, "d %s", in->inputs[n].name);
        for (int64_t e = 0; e < x->count; e += 1 + x->count / 40) {
            double base = x->floats[e], *at = &x->floats[e];
            double two = loss_at(in, g, at, base + 2 * h, label) - loss_at(in, g, at, base - 2 * h, label);
            double one = loss_at(in, g, at, base + h, label) - loss_at(in, g, at, base - h, label);
            loss_at(in, g, at, base, label);
            double found = interp_get(interp_fetch(in, name), e), wanted = (8 * one - two) / (12 * h);
            if (fabs(found - wanted) <= 1e-7 * fmax(1, fabs(wanted))) continue;
            fault("%s: %s[%lld] is %.12g, by differences %.12g", label, name, (long long)e, found, wanted);
            return;
        }
    }
}

static void check_gradient(const op_case *c, int order, int v)
{
    char label[LABEL];
    op_binding b = variant(v);
    sglcore_env env;
    interp in = { 0 };
    ir_message message;
    run_results results;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    op_case_label(c, &b, label, sizeof label);
    sglir_graph *g = gradient_graph(&env, c, &b, order);
    if (g == NULL) {
        fault("%s, derived %d times: %s", label, order, env.message);
        return;
    }
    op_case_fill(&in, g, 3);
    check_differences(label, g, &in);
    if (!interp_run(&in, g)) fail_msg("%s: %s", label, in.error);
    run_outcome outcome = run_graph(g, (run_options){ 0 }, &in, &results, &message);
    if (outcome == RUN_DONE)
        same_values(label, "derived, compiled", &in, &results, 1e4, coarsest(g));
    else
        fault("%s, derived, compiled: %s", label, message.text);
    run_results_free(&results);
    interp_free(&in);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_gradients(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind > OP_KINKED || !op_case_takes(&c, SGL_F64) || is_left_out(n)) continue;
        for (int v = 0; v < VARIANTS; v++) {
            if (v != 2 && v != 3) check_gradient(&c, 1, v);
        }
        if (c.kind == OP_SMOOTH) check_gradient(&c, 2, 0);
    }
    no_faults();
}

/* A row that has a derivative has a case that derives it. */
static void test_every_derivative_has_a_case(void **state)
{
    (void)state;
    bool derived[SGLIR_OP_COUNT] = { false };
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) derived[c.op] |= c.kind <= OP_KINKED;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        sglpass_vjp_fn rule = sglpass_vjp_rule((sglir_op)op);
        bool none = rule == sglpass_vjp_zero || rule == sglpass_vjp_refuse;
        if (op == SGLIR_OP_SCALE)
            continue; /* what it gives may not be weighed here: tests/ir/precision_fp16_backward.txt */
        if (!none && !derived[op]) fault("%s has a derivative, and no case that is derived", sglir_ops[op].name);
        if (none && derived[op]) fault("%s has no derivative, and its case says that it has", sglir_ops[op].name);
    }
    no_faults();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_counts_of_arguments),
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_every_derivative_has_a_case),
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_values),
        cmocka_unit_test(test_passes_left_out), cmocka_unit_test(test_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
