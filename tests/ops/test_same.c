/* test_same.c -- a value has the same bits wherever it is computed (exec/kernel.h): grouped into kernels or alone, on any
 * number of threads, however the rest of a graph draws the borders of kernels.
 *
 * test_same               elementwise and reducing graphs of all float dtypes, and the random programs of test_random
 * test_same FIRST COUNT   other seeds; one that fails is printed, 1 at the end
 * Each graph is run without `fuse` for the bits to expect, then with it, on one to three threads, and again with values fetched
 * from its middle, which cuts kernels elsewhere. One NaN is as good as another. ctest: timeout 900 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/pass.h"
#include "tests/support/random_program.h"

enum { SEEDS = 120, PROGRAMS = 160, MOST_VALUES = 40, MOST_FETCHED = 64, MOST_ELEMENTS = 40000 };

/* ---- graphs ------------------------------------------------------------------------------------------------- */

typedef struct drawer {
    sglir_graph *g;
    uint64_t state;
    sgl_dtype dtype;
    int rank;
    int64_t dims[3]; /* that all values have, or have in part */
    sglir_id pool[MOST_VALUES];
    int count;
} drawer;

static uint64_t draw(drawer *d, uint64_t below)
{
    d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (d->state >> 33) % below;
}

static sglir_id any(drawer *d) { return d->pool[draw(d, (uint64_t)d->count)]; }

static void join(drawer *d, sglir_id value)
{
    if (value != SGLIR_NONE && d->count < MOST_VALUES) d->pool[d->count++] = value;
}

static void draw_dims(drawer *d)
{
    static const int64_t extents[] = { 1, 2, 3, 7, 8, 31, 33, 48, 64, 100, 257, 513, 600, 1024, 1030, 4500 };
    int64_t room = MOST_ELEMENTS;
    d->rank = 1 + (int)draw(d, 3);
    for (int i = 0; i < d->rank; i++) {
        d->dims[i] = extents[draw(d, 16)];
        if (d->dims[i] > room) d->dims[i] = room;
        room /= d->dims[i];
    }
}

/* x + y z and the like: what a compiler would love to contract. */
static sglir_id arithmetic(drawer *d)
{
    static const sglir_op two[] = { SGLIR_OP_ADD, SGLIR_OP_SUB,     SGLIR_OP_MUL,     SGLIR_OP_MUL,
                                    SGLIR_OP_DIV, SGLIR_OP_MAXIMUM, SGLIR_OP_MINIMUM, SGLIR_OP_REMAINDER };
    return sglir_binary(d->g, two[draw(d, 8)], any(d), any(d));
}

static sglir_id function(drawer *d)
{
    static const sglir_op one[] = { SGLIR_OP_NEG,  SGLIR_OP_ABS,   SGLIR_OP_EXP,     SGLIR_OP_EXPM1,     SGLIR_OP_LOG1P,
                                    SGLIR_OP_TANH, SGLIR_OP_ERF,   SGLIR_OP_SIGMOID, SGLIR_OP_SILU,      SGLIR_OP_GELU,
                                    SGLIR_OP_SIN,  SGLIR_OP_RSQRT, SGLIR_OP_FLOOR,   SGLIR_OP_RECIPROCAL };
    sglir_id x = any(d), out = SGLIR_NONE;
    if (draw(d, 5) == 0) {
        sglir_id args[2] = { x, any(d) };
        args[1] = sglir_broadcast(d->g, args[1], d->rank, d->dims);
        args[0] = sglir_broadcast(d->g, args[0], d->rank, d->dims);
        sglir_named exact = SGLIR_I("exact", (int64_t)draw(d, 2));
        bool gelu = draw(d, 2) == 0;
        return sglir_emit(d->g, gelu ? SGLIR_OP_GELU_GRAD : SGLIR_OP_SILU_GRAD, args, 2, &exact, gelu ? 1 : 0, &out);
    }
    return sglir_unary(d->g, one[draw(d, 14)], x);
}

/* Over random axes; kept as extents of 1, so that the result goes on with the others. */
static sglir_id reduction(drawer *d)
{
    static const sglir_op ops[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_MAX,
                                    SGLIR_OP_REDUCE_MIN };
    int64_t axes[3];
    int count = 0;
    for (int i = 0; i < d->rank; i++) {
        if (draw(d, 2)) axes[count++] = i;
    }
    if (count == 0) axes[count++] = (int64_t)draw(d, (uint64_t)d->rank);
    return sglir_reduce(d->g, ops[draw(d, 4)], any(d), axes, count, true);
}

/* Where x is its own maximum, as the derivative of a maximum asks. */
static sglir_id extreme(drawer *d)
{
    sglir_id x = any(d), most;
    int64_t axis = (int64_t)draw(d, (uint64_t)d->rank);
    most = sglir_reduce(d->g, draw(d, 2) ? SGLIR_OP_REDUCE_MAX : SGLIR_OP_REDUCE_MIN, x, &axis, 1, true);
    sglir_id wins = sglir_binary(d->g, SGLIR_OP_EQUAL, x, most);
    return sglir_select(d->g, wins, any(d), sglir_constant(d->g, d->dtype, 0));
}

/* Turned, computed with, and turned back. */
static sglir_id turned(drawer *d)
{
    int64_t order[3], back[3], axis;
    if (d->rank == 1) return arithmetic(d);
    for (int i = 0; i < d->rank; i++) order[i] = (i + 1) % d->rank;
    for (int i = 0; i < d->rank; i++) back[order[i]] = i;
    sglir_id x = sglir_transpose(d->g, any(d), order);
    x = sglir_binary(d->g, SGLIR_OP_MUL, x, sglir_unary(d->g, SGLIR_OP_TANH, x));
    axis = (int64_t)draw(d, (uint64_t)d->rank);
    if (draw(d, 2)) x = sglir_sub(d->g, x, sglir_reduce(d->g, SGLIR_OP_REDUCE_SUM, x, &axis, 1, true));
    return sglir_transpose(d->g, x, back);
}

static sglir_graph *draw_graph(sglcore_env *env, uint64_t seed)
{
    static const sgl_dtype dtypes[] = { SGL_F32, SGL_F32, SGL_F64, SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2 };
    static sglir_id (*const kinds[])(drawer *) = { arithmetic, arithmetic, arithmetic, function,
                                                   function,   reduction,  extreme,    turned };
    drawer d = { .state = seed * 2 + 1, .dtype = dtypes[seed % 7] };
    if (sglir_graph_new(env, "same", &d.g) != SGL_OK) return NULL;
    for (int i = 0; i < 4; i++) draw(&d, 2);
    draw_dims(&d);
    for (int i = 0; i < 3; i++) {
        char name[16];
        sglir_type type = sglir_type_make(d.dtype, d.rank, d.dims);
        if (i == 2) type.dims[draw(&d, (uint64_t)d.rank)] = 1;
        snprintf(name, sizeof name, "x%d", i);
        join(&d, sglir_input(d.g, SGL_FEED, name, &type));
    }
    int steps = 8 + (int)draw(&d, 24);
    for (int i = 0; i < steps && sglir_status(d.g) == SGL_OK; i++) join(&d, kinds[draw(&d, 8)](&d));
    for (int i = 0; i < 6 && sglir_status(d.g) == SGL_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sglir_output_add(d.g, SGLIR_FETCH, name,
                         d.pool[d.count - 1 - (int)draw(&d, (uint64_t)(d.count < 8 ? d.count : 8))]);
    }
    if (sglir_status(d.g) == SGL_OK) return d.g;
    sglir_graph_free(d.g);
    return NULL;
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

static run_outcome run(const sglir_graph *g, run_options options, run_results *results, ir_message *message)
{
    interp inputs = { 0 };
    op_case_fill(&inputs, g, 3);
    run_outcome outcome = run_graph(g, options, &inputs, results, message);
    interp_free(&inputs);
    return outcome;
}

static bool same_number(const interp_tensor *a, const interp_tensor *b, int64_t e)
{
    if (a->floats == NULL) return a->ints[e] == b->ints[e];
    return (isnan(a->floats[e]) && isnan(b->floats[e])) || memcmp(&a->floats[e], &b->floats[e], sizeof(double)) == 0;
}

/* What is in both has the same bits. */
static bool same_bits(const run_results *a, const run_results *b, ir_message *message)
{
    for (int i = 0; i < a->count; i++) {
        const run_result *x = &a->items[i];
        const interp_tensor *y = run_result_of(b, x->name, x->update);
        for (int64_t e = 0; y != NULL && e < x->tensor.count; e++) {
            if (same_number(&x->tensor, y, e)) continue;
            snprintf(message->text, sizeof message->text, "\"%.63s\"[%lld] is %.17g here, %.17g there", x->name,
                     (long long)e, interp_get(&x->tensor, e), interp_get(y, e));
            return false;
        }
    }
    return true;
}

/* The graph runs without `fuse` as it does otherwise. */
static bool agrees(const sglir_graph *g, run_options options, ir_message *message)
{
    run_results apart, fused;
    options.without = "fuse";
    run_outcome outcome = run(g, options, &apart, message);
    bool good = outcome != RUN_FAILED;
    for (int threads = 1; threads <= 3 && good && outcome == RUN_DONE; threads++) {
        options.without = "";
        options.threads = threads;
        good = run(g, options, &fused, message) == RUN_DONE && same_bits(&apart, &fused, message);
        run_results_free(&fused);
    }
    run_results_free(&apart);
    return good;
}

/* Fetches values of the top region besides, every third or so: they are stored, so kernels end there. False where it may
 * not: what a custom's formulas see is theirs. */
static bool fetch_more(sglir_graph *g, uint64_t seed)
{
    drawer d = { .state = seed };
    int64_t nodes = g->nodes.count, fetched = 0;
    for (int64_t n = 0; n < nodes; n++) {
        if (g->nodes.data[n].op == SGLIR_OP_CUSTOM_SEED) return false;
    }
    for (int64_t n = 0; n < nodes && fetched < MOST_FETCHED; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        bool may = node->region == 0 && node->op != SGLIR_OP_INPUT && node->op != SGLIR_OP_CONSTANT;
        if (!may || draw(&d, 3) != 0) continue;
        char name[32];
        snprintf(name, sizeof name, "more %" PRId64, n);
        sglir_output_add(g, SGLIR_FETCH, name, node->out_first);
        fetched++;
    }
    return true;
}

static bool check(sglcore_env *env, sglir_graph *g, run_options options, uint64_t seed, ir_message *message)
{
    run_results before, after;
    bool good = agrees(g, options, message);
    if (!good) return false;
    run_outcome outcome = run(g, options, &before, message);
    if (outcome == RUN_DONE && fetch_more(g, seed)) {
        good = sglir_status(g) == SGL_OK && agrees(g, options, message);
        if (sglir_status(g) != SGL_OK) snprintf(message->text, sizeof message->text, "%.1000s", env->message);
        if (good) {
            good = run(g, options, &after, message) == RUN_DONE && same_bits(&before, &after, message);
            run_results_free(&after);
        }
    }
    run_results_free(&before);
    return good;
}

static bool good_graph(sglcore_env *env, sglir_graph *g, run_options options, uint64_t seed, const char *what)
{
    ir_message message;
    bool good = g != NULL;
    if (!good) printf("%s %" PRIu64 " makes no graph: %s\n", what, seed, env->message);
    if (good && !check(env, g, options, seed, &message)) {
        sglcore_text text = ir_case_print(env, g);
        good = false;
        printf("%s %" PRIu64 ": %s\nrepeat with: test_same %" PRIu64 " 1\n%s", what, seed, message.text, seed,
               text.data);
        sglcore_text_free(env, &text);
    }
    sglir_graph_free(g);
    return good;
}

/* A program with its gradients expanded. */
static sglir_graph *draw_program(sglcore_env *env, uint64_t seed, random_traits *traits)
{
    sglplan plan;
    sglir_graph *g = random_program(env, seed, traits), *derived = NULL;
    sglplan_init(&plan);
    const sglpass_context context = { .env = env, .plan = &plan };
    if (g == NULL || sglpass_autodiff(&context, g, &derived) != SGL_OK) derived = NULL;
    sglir_graph_free(g);
    return derived;
}

static bool good_seed(uint64_t seed, bool program)
{
    sglcore_env env;
    random_traits traits = { .micro = 1, .steps = 1 };
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = program ? draw_program(&env, seed, &traits) : draw_graph(&env, seed);
    run_options options = { .micro = traits.micro, .steps = traits.steps };
    bool good = good_graph(&env, g, options, seed, program ? "program" : "seed");
    if (env.bytes_in_use != 0) printf("seed %" PRIu64 ": %" PRId64 " bytes are leaked\n", seed, env.bytes_in_use);
    return good && env.bytes_in_use == 0;
}

static void test_graphs(void **state)
{
    (void)state;
    int failures = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) failures += !good_seed(seed, false);
    assert_int_equal(failures, 0);
}

static void test_programs(void **state)
{
    (void)state;
    int failures = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) failures += !good_seed(seed, true);
    assert_int_equal(failures, 0);
}

/* ---- gradients of a maximum -------------------------------------------------------------------------------------- */

/* z = x / (x x + 1): the sum of the gradients of max z is the number of maxima, exactly where none ties; never inf or NaN. */
static void check_maximum(sgl_dtype dtype, sglir_op op, int64_t rows, int64_t cols, int64_t axis, int64_t micro)
{
    sglcore_env env;
    ir_message message;
    run_results results;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    assert_int_equal(sglir_graph_new(&env, "maximum", &g), SGL_OK);
    sglir_type type = sglir_type_make(dtype, 2, (int64_t[]){ rows, cols });
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type), one = sglir_constant(g, dtype, 1), args[3], slopes[2];
    args[1] = sglir_div(g, x, sglir_add(g, sglir_mul(g, x, x), one));
    args[0] = sglir_reduce(g, op, args[1], &axis, 1, false);
    args[0] = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, args[0], &(int64_t){ 0 }, 1, false);
    args[2] = x; /* whose gradient needs x x + 1 by itself */
    sglir_emit(g, SGLIR_OP_GRAD, args, 3, NULL, 0, slopes);
    sglir_output_add(g, SGLIR_FETCH, "slopes", slopes[0]);
    sglir_output_add(g, SGLIR_FETCH, "slopes of x", slopes[1]);
    assert_int_equal(sglir_status(g), SGL_OK);
    sglplan plan;
    sglir_graph *derived = NULL;
    sglplan_init(&plan);
    const sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_autodiff(&context, g, &derived), SGL_OK);
    run_options options = { .micro = micro };
    if (run(derived, options, &results, &message) != RUN_DONE) fail_msg("%s", message.text);
    const interp_tensor *t = run_result_of(&results, "slopes", false);
    double sum = 0;
    for (int64_t e = 0; e < t->count; e++) sum += t->floats[e];
    if (!(fabs(sum - (double)(axis == 0 ? cols : rows)) < 1e-3))
        fail_msg("%s of %s %lld x %lld along %lld, micro %lld: the gradients' sum is %.9g", sglir_ops[op].name,
                 sgl_dtype_name(dtype), (long long)rows, (long long)cols, (long long)axis, (long long)micro, sum);
    run_results_free(&results);
    sglir_graph_free(derived);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_maxima(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        for (int op = 0; op < 2; op++) {
            for (int64_t axis = 0; axis < 2; axis++) {
                sgl_dtype of = dtype ? SGL_F64 : SGL_F32;
                sglir_op extreme = op ? SGLIR_OP_REDUCE_MIN : SGLIR_OP_REDUCE_MAX;
                check_maximum(of, extreme, 64, 48, axis, 1);
                check_maximum(of, extreme, 6, 1030, axis, 1);
                check_maximum(of, extreme, 64, 48, axis, 2);
                check_maximum(of, extreme, 6, 33, axis, 2);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_graphs), cmocka_unit_test(test_programs),
                                        cmocka_unit_test(test_maxima) };
    if (argc != 3) return cmocka_run_group_tests(tests, NULL, NULL);
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    int failures = 0;
    for (uint64_t seed = first; seed < first + count; seed++)
        failures += !good_seed(seed, false) + !good_seed(seed, true);
    return failures > 0;
}
