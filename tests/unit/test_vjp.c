/* test_vjp.c -- every derivative rule against central differences, in double, through the reference interpreter.
 *
 * The cases are a table by op (vjp_cases.h); an op whose row names a derivative and that has no case fails the test. Each
 * gradient graph is verified, and run once more after simplify and after decompose, which must not change the numbers
 * (simplify not by a bit). Beside them: what a formula cannot show, as ties, cuts, warnings and refusals. */
#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "passes/pass.h"
#include "passes/vjp_rules.h"
#include "../reference/interp.h"
#include "vjp_cases.h"

/* Numbers are multiples of 2^-10 and the difference is 2^-17, so that an f32 input holds x + h exactly. */
#define STEP (1.0 / 131072)
#define TOLERANCE 1e-6

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

typedef struct bench {
    sglcore_env env;
    sglplan plan;
    sglpass_context context;
    char log[512];
} bench;

static void keep_log(void *user, sgl_log_level level, const char *message)
{
    bench *b = user;
    assert_int_equal(level, SGL_LOG_WARNING);
    snprintf(b->log, sizeof b->log, "%s", message);
}

static void bench_init(bench *b)
{
    *b = (bench){ 0 };
    sglcore_env_init(&b->env, NULL, NULL, keep_log, b);
    sglplan_init(&b->plan);
    b->context = (sglpass_context){ .env = &b->env, .plan = &b->plan };
}

static void must(bench *b, const char *label, sgl_status status)
{
    if (status != SGL_OK) fail_msg("%s: %s", label, b->env.message);
}

static sglir_graph *parse(bench *b, const char *label, const char *body)
{
    static char text[8192];
    sglir_graph *g = NULL;
    snprintf(text, sizeof text, "graph \"case\" {\n%s}\n", body);
    must(b, label, sglir_parse(&b->env, "case", text, strlen(text), &g));
    return g;
}

typedef sgl_status (*pass_fn)(const sglpass_context *context, const sglir_graph *in, sglir_graph **out);

/* Runs the pass, verifies what it made, and frees what it came from. */
static sglir_graph *through(bench *b, const char *label, pass_fn pass, sglir_graph *g)
{
    sglir_graph *out = NULL;
    must(b, label, pass(&b->context, g, &out));
    sglir_graph_free(g);
    must(b, label, sglir_verify(out, pass == sglpass_simplify ? SGLIR_LOGICAL : SGLIR_PER_RANK));
    return out;
}

/* ---- a scalar of what a case fetches, and its gradients ------------------------------------------------------------ */

/* Numbers that look random and are the same everywhere: multiples of 2^-10 in [low, high). */
static double number_at(uint32_t salt, int64_t i, double low, double high)
{
    uint32_t counter[4] = { (uint32_t)i, salt, 0, 0 }, key[2] = { 17, 4 }, out[4];
    sglcore_philox(counter, key, out);
    return low + floor((high - low) * 1024 * (out[0] / 4294967296.0)) / 1024;
}

/* sum of value * weights, each element with a weight of its own; rank 0, f64 */
static sglir_id weigh(sglir_graph *g, sglir_id value, uint32_t salt)
{
    int64_t axes[SGL_MAX_RANK], counts[256];
    double weights[256];
    value = sglir_cast(g, value, SGL_F64);
    sglir_type type = *sglir_type_of(g, value);
    int64_t count = sglir_elements(&type);
    assert_true(count <= 256);
    for (int64_t i = 0; i < count; i++) {
        counts[i] = 1;
        weights[i] = number_at(salt, i, -1, 1);
    }
    for (int d = 0; d < type.rank; d++) axes[d] = d;
    sglir_named attrs[] = { SGLIR_INTS("counts", count, counts), SGLIR_FLOATS("values", count, weights),
                            SGLIR_I("dtype", SGL_F64) };
    sglir_id all = SGLIR_NONE;
    sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, &all);
    sglir_id product = sglir_mul(g, value, sglir_reshape(g, all, type.rank, type.dims));
    return sglir_reduce(g, SGLIR_OP_REDUCE_SUM, product, axes, type.rank, false);
}

static sglir_id sum_of(sglir_graph *g, const sglir_id *values, int count, uint32_t salt)
{
    sglir_id sum = SGLIR_NONE;
    for (int i = 0; i < count; i++) {
        sglir_id term = weigh(g, values[i], salt + (uint32_t)i);
        sum = sum == SGLIR_NONE ? term : sglir_add(g, sum, term);
    }
    return sum;
}

/* The inputs that are derived by: floats. */
static int float_inputs(const sglir_graph *g, sglir_id *inputs)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT || !sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, node->out_first)->dtype))
            continue;
        assert_true(count < 8);
        inputs[count++] = node->out_first;
    }
    return count;
}

static void emit_grad(sglir_graph *g, sglir_id of, const sglir_id *wrt, int count, sglir_id *out)
{
    sglir_id args[9] = { of };
    memcpy(args + 1, wrt, (size_t)count * sizeof *wrt);
    sglir_emit(g, SGLIR_OP_GRAD, args, count + 1, NULL, 0, out);
}

/* The case's graph with fetches "loss" and, for each input "x", "d x": of order 1 the weighed sum of what the case
 * fetches, of order 2 that of its gradients. */
static sglir_graph *build(bench *b, const vjp_case *c, int order)
{
    sglir_graph *g = parse(b, c->label, c->text);
    sglir_id inputs[8], ys[8], gradients[8];
    int input_count = float_inputs(g, inputs), y_count = (int)g->outputs.count;
    for (int i = 0; i < y_count; i++) ys[i] = g->outputs.data[i].value;
    sglir_id loss = sum_of(g, ys, y_count, 100);
    if (order == 2) {
        emit_grad(g, loss, inputs, input_count, gradients);
        loss = sum_of(g, gradients, input_count, 200);
    }
    emit_grad(g, loss, inputs, input_count, gradients);
    sglir_output_add(g, SGLIR_FETCH, "loss", loss);
    for (int i = 0; i < input_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "d %s", sglir_attr_string(g, sglir_maker(g, inputs[i]), "name"));
        sglir_output_add(g, SGLIR_FETCH, name, gradients[i]);
    }
    must(b, c->label, sglir_status(g));
    return through(b, c->label, sglpass_autodiff, g);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

static double value_of(const char *name, int64_t i)
{
    uint32_t salt = 0;
    for (const char *at = name; *at != '\0'; at++) salt = salt * 31 + (unsigned char)*at;
    switch (name[0]) {
    case 'p': return number_at(salt, i, 0.5, 2);
    case 'i': return (double)(i % 7 - 1);
    case 'j': return (double)(i % 6);
    case 'c': return number_at(salt, i, 0, 1) < 0.5;
    case 'o': return 1;
    default: return number_at(salt, i, -2, 2);
    }
}

/* Gives every input of the graph its numbers. */
static void give_inputs(interp *in, const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT) continue;
        const sglir_type *type = sglir_type_of(g, node->out_first);
        const char *name = sglir_attr_string(g, node, "name");
        interp_tensor tensor = interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
        for (int64_t i = 0; i < tensor.count; i++) interp_set(&tensor, i, value_of(name, i));
        interp_input(in, name, &tensor);
        interp_tensor_free(&tensor);
    }
}

static void run(interp *in, const char *label, const sglir_graph *g)
{
    if (!interp_run(in, g)) fail_msg("%s: %s", label, in->error);
}

static const interp_tensor *fetched(const interp *in, const char *name)
{
    const interp_tensor *tensor = interp_fetch(in, name);
    assert_non_null(tensor);
    return tensor;
}

/* The loss with element i of the input at position n moved by `by`. */
static double loss_at(interp *in, const char *label, const sglir_graph *g, int n, int64_t i, double by)
{
    double *element = &in->inputs[n].tensor.floats[i], before = *element;
    *element = before + by;
    run(in, label, g);
    *element = before;
    return interp_get(fetched(in, "loss"), 0);
}

/* Holds the gradients of the last run, copied, against differences. */
static void compare(const vjp_case *c, const sglir_graph *g, interp *in, const char *label)
{
    for (int n = 0; n < in->input_count; n++) {
        char name[64];
        if (in->inputs[n].tensor.floats == NULL) continue;
        snprintf(name, sizeof name, "d %s", in->inputs[n].name);
        run(in, label, g);
        const interp_tensor *found = fetched(in, name);
        int64_t count = found->count;
        double gradient[256];
        assert_true(count <= 256 && count == in->inputs[n].tensor.count);
        for (int64_t i = 0; i < count; i++) gradient[i] = interp_get(found, i);
        for (int64_t i = 0; i < count; i++) {
            double up = loss_at(in, label, g, n, i, STEP), down = loss_at(in, label, g, n, i, -STEP);
            double difference = (up - down) / (2 * STEP), scale = fmax(1, fabs(difference));
            if (!(fabs(gradient[i] - difference) <= TOLERANCE * scale))
                fail_msg("%s (%s): %s[%lld] is %.10g, and by differences %.10g", sglir_ops[c->op].name, label, name,
                         (long long)i, gradient[i], difference);
        }
    }
}

/* What the two graphs fetch differs by at most `tolerance`, relative. */
static void same_numbers(const vjp_case *c, const char *what, const sglir_graph *a, const sglir_graph *b,
                         double tolerance)
{
    interp in_a = { 0 }, in_b = { 0 };
    give_inputs(&in_a, a);
    give_inputs(&in_b, a);
    run(&in_a, c->label, a);
    run(&in_b, c->label, b);
    assert_int_equal(in_a.fetch_count, in_b.fetch_count);
    for (int f = 0; f < in_a.fetch_count; f++) {
        const interp_tensor *left = &in_a.fetches[f].tensor, *right = fetched(&in_b, in_a.fetches[f].name);
        assert_int_equal(left->count, right->count);
        for (int64_t i = 0; i < left->count; i++) {
            double x = interp_get(left, i), y = interp_get(right, i);
            if (!(fabs(x - y) <= tolerance * fmax(1, fabs(x))))
                fail_msg("%s (%s): %s makes %.17g of %.17g in %s", sglir_ops[c->op].name, c->label, what, y, x,
                         in_a.fetches[f].name);
        }
    }
    interp_free(&in_a);
    interp_free(&in_b);
}

static sglir_graph *copy_of(bench *b, const char *label, pass_fn pass, const sglir_graph *g)
{
    sglir_graph *out = NULL;
    must(b, label, pass(&b->context, g, &out));
    return out;
}

static void check_case(const vjp_case *c, int order)
{
    bench b;
    bench_init(&b);
    interp in = { 0 };
    sglir_graph *g = build(&b, c, order);
    /* A bias, say, has no second derivative; of an empty slice nothing comes back. */
    if (order == 1 && strcmp(c->label, "of nothing") != 0) assert_string_equal(b.log, "");
    give_inputs(&in, g);
    compare(c, g, &in, c->label);
    interp_free(&in);

    sglir_graph *simple = copy_of(&b, c->label, sglpass_simplify, g);
    must(&b, c->label, sglir_verify(simple, SGLIR_PER_RANK));
    same_numbers(c, "simplify", g, simple, 0);
    sglir_graph *plain = through(&b, c->label, sglpass_decompose, simple);
    for (int64_t n = 0; n < plain->nodes.count; n++) assert_null(sglir_compose_rule((sglir_op)plain->nodes.data[n].op));
    same_numbers(c, "decompose", g, plain, 1e-12);
    sglir_graph_free(plain);
    sglir_graph_free(g);
    assert_int_equal(b.env.bytes_in_use, 0);
}

static void test_cases(void **state)
{
    (void)state;
    for (int i = 0; i < VJP_CASES; i++) {
        for (int order = 1; order <= vjp_cases[i].orders; order++) check_case(&vjp_cases[i], order);
    }
}

static void test_every_rule_has_a_case(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        sglpass_vjp_fn rule = sglpass_vjp_rule((sglir_op)op);
        bool found = rule == sglpass_vjp_zero || rule == sglpass_vjp_refuse;
        if (op == SGLIR_OP_SCALE)
            continue; /* what it gives may not be weighed here: tests/ir/precision_fp16_backward.txt */
        for (int i = 0; i < VJP_CASES && !found; i++) found = vjp_cases[i].op == (sglir_op)op;
        if (!found) fail_msg("%s has a derivative and no case in vjp_cases.h", sglir_ops[op].name);
    }
}

/* ---- what differences cannot show ----------------------------------------------------------------------------------- */

/* Runs autodiff over the body and gives the elements of the fetch "d". */
static void gradient_of(const char *body, double *out, int count)
{
    bench b;
    bench_init(&b);
    interp in = { 0 };
    sglir_graph *g = through(&b, body, sglpass_autodiff, parse(&b, body, body));
    give_inputs(&in, g);
    run(&in, body, g);
    const interp_tensor *found = fetched(&in, "d");
    assert_int_equal(found->count, count);
    for (int i = 0; i < count; i++) out[i] = interp_get(found, i);
    interp_free(&in);
    sglir_graph_free(g);
}

static void test_ties(void **state)
{
    (void)state;
    double d[4];
    gradient_of("%0 = constant() {value=3, dtype=f64}\n%1 = constant() {value=3, dtype=f64}\n"
                "%2 = maximum(%0, %1)\n%3, %4 = grad(%2, %0, %1)\nfetch \"d\" %4\n",
                d, 1);
    assert_true(d[0] == 0.5);
    gradient_of("%0 = constant() {value=3, dtype=f64}\n%1 = minimum(%0, %0)\n%2 = grad(%1, %0)\nfetch \"d\" %2\n", d,
                1);
    assert_true(d[0] == 1);
    gradient_of("%0 = segments() {counts=[1,2,1], values=[1,5,2], dtype=f64}\n%1 = reduce_max(%0) {axes=[0]}\n"
                "%2 = grad(%1, %0)\nfetch \"d\" %2\n",
                d, 4);
    assert_true(d[0] == 0 && d[1] == 0.5 && d[2] == 0.5 && d[3] == 0);
}

/* a^b at a = 0 and at b = 0 has finite derivatives where they exist. */
static void test_power_at_zero(void **state)
{
    (void)state;
    double d[3];
    const char *body = "%%0 = segments() {counts=[1,1,1], values=[0,0,2], dtype=f64}\n"
                       "%%1 = segments() {counts=[1,1,1], values=[2,0,0], dtype=f64}\n"
                       "%%2 = pow(%%0, %%1)\n%%3 = reduce_sum(%%2) {axes=[0]}\n%%4, %%5 = grad(%%3, %%0, %%1)\n"
                       "fetch \"d\" %%%d\n";
    char text[512];
    snprintf(text, sizeof text, body, 4);
    gradient_of(text, d, 3);
    assert_true(d[0] == 0 && d[1] == 0 && d[2] == 0);
    snprintf(text, sizeof text, body, 5);
    gradient_of(text, d, 3);
    assert_true(d[0] == 0 && d[1] == 0 && fabs(d[2] - log(2)) < 1e-15);
}

static void test_stop_gradient(void **state)
{
    (void)state;
    double d[1];
    gradient_of("%0 = constant() {value=3, dtype=f64}\n%1 = stop_gradient(%0)\n%2 = mul(%0, %1)\n"
                "%3 = grad(%2, %0)\nfetch \"d\" %3\n",
                d, 1);
    assert_true(d[0] == 3);
}

static void test_unreached_parameter(void **state)
{
    (void)state;
    bench b;
    bench_init(&b);
    sglir_graph *g = parse(&b, "unreached",
                           "%0 = input() {role=0, name=\"blocks.0.w\", dtype=f64, dims=[2]}\n"
                           "%1 = input() {role=2, name=\"x\", dtype=f64, dims=[]}\n"
                           "%2 = stop_gradient(%0)\n%3 = reduce_sum(%2) {axes=[0]}\n%4 = mul(%3, %1)\n"
                           "%5, %6 = grad(%4, %0, %1) @\"llama.lua\":42\nfetch \"d\" %5\nfetch \"e\" %6\n");
    g = through(&b, "unreached", sglpass_autodiff, g);
    assert_non_null(strstr(b.log, "no gradient reaches parameter blocks.0.w"));
    assert_non_null(strstr(b.log, "llama.lua:42"));
    interp in = { 0 };
    give_inputs(&in, g);
    run(&in, "unreached", g);
    assert_true(interp_get(fetched(&in, "d"), 0) == 0 && interp_get(fetched(&in, "d"), 1) == 0);
    interp_free(&in);
    sglir_graph_free(g);
}

static void refused(const char *body, const char *line, const char *op)
{
    bench b;
    bench_init(&b);
    sglir_graph *g = parse(&b, body, body), *out = NULL;
    assert_int_not_equal(sglpass_autodiff(&b.context, g, &out), SGL_OK);
    assert_null(out);
    if (strstr(b.env.message, line) == NULL || strstr(b.env.message, op) == NULL) fail_msg("%s", b.env.message);
    sglir_graph_free(g);
    assert_int_equal(b.env.bytes_in_use, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    refused("%0 = input() {role=0, name=\"x\", dtype=f64, dims=[]}\n"
            "%1 = while(%0) : f64[] @\"loop.lua\":7 {\nregion(%2: i64[], %3: f64[]) {\n"
            "%5 = constant() {value=0, dtype=bool}\nyield %5\n}\nregion(%6: i64[], %7: f64[]) {\nyield %7\n}\n}\n"
            "%4 = grad(%1, %0)\nfetch \"d\" %4\n",
            "loop.lua:7", "while: has no limit");
}

/* Between a value and what depends on it only as an integer there is no path to refuse. */
static void test_integers_are_no_path(void **state)
{
    (void)state;
    double d[1];
    gradient_of("%0 = constant() {value=3.5, dtype=f64}\n%1 = cast(%0) {to=i64}\n"
                "%2 = scan(%1) {steps=2} : i64[] {\nregion(%3: i64[], %4: i64[]) {\n%5 = add(%4, %3)\nyield %5\n}\n}\n"
                "%6 = cast(%2) {to=f64}\n%7 = mul(%0, %6)\n%8 = grad(%7, %0)\nfetch \"d\" %8\n",
                d, 1);
    assert_true(d[0] == 4);
}

/* A grad may stand in a loop, and its wrt may be what the loop carries. */
static void test_grad_in_a_loop(void **state)
{
    (void)state;
    double d[1];
    gradient_of("%0 = constant() {value=2, dtype=f64}\n"
                "%1 = scan(%0) {steps=2} : f64[] {\nregion(%2: i64[], %3: f64[]) {\n"
                "%4 = mul(%3, %3)\n%5 = mul(%4, %0)\n%6 = grad(%5, %3)\nyield %6\n}\n}\n"
                "fetch \"d\" %1\n",
                d, 1);
    assert_true(d[0] == 32); /* x <- 4 x, twice */
}

/* ---- memory that runs out -------------------------------------------------------------------------------------------- */

static sgl_status all_passes(sglcore_env *env, void *user)
{
    static const pass_fn passes[] = { sglpass_simplify, sglpass_autodiff, sglpass_decompose, sglpass_simplify };
    const char *text = user;
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = env, .plan = &plan };
    sglir_graph *g = NULL;
    sgl_status status = sglir_parse(env, "case", text, strlen(text), &g);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0] && status == SGL_OK; i++) {
        sglir_graph *next = NULL;
        status = passes[i](&context, g, &next);
        sglir_graph_free(g);
        g = next;
    }
    sglir_graph_free(g);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    static char text[] = "graph \"case\" {\n"
                         "%0 = input() {role=0, name=\"x\", dtype=f64, dims=[2,4]}\n"
                         "%1 = input() {role=0, name=\"w\", dtype=f64, dims=[5,4]}\n"
                         "%2 = input() {role=2, name=\"t\", dtype=i32, dims=[2]}\n"
                         "%3 = softmax(%0)\n%4 = pack(%3, %1)\n%5, %6 = unpack(%4) {ranks=[2,2], dims=[2,4,5,4]}\n"
                         "%7 = linear_cross_entropy(%5, %6, %2)\n%8 = reduce_sum(%7) {axes=[0]}\n"
                         "%9, %10 = grad(%8, %0, %1)\nfetch \"loss\" %8\nfetch \"a\" %9\nfetch \"b\" %10\n}\n";
    assert_true(fault_each_allocation(all_passes, text) > 100);
}

/* ---- many grads ------------------------------------------------------------------------------------------------------ */

/* Gradients of c_i * sum(silu(x)) by x, each of a small function of its own; silu_grad makes the second order wait. */
static int64_t allocations_of_grads(int count, bool twice)
{
    static const int64_t axes[1] = { 0 }, dims[1] = { 4 };
    bench b;
    sglir_graph *g = NULL;
    bench_init(&b);
    must(&b, "grads", sglir_graph_new(&b.env, "grads", &g));
    sglir_type type = sglir_type_make(SGL_F64, 1, dims);
    sglir_id x = sglir_input(g, SGL_PARAMETER, "x", &type);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        sglir_id y = sglir_scale(g, sglir_unary(g, SGLIR_OP_SILU, x), 1 + i);
        for (int order = 0; order <= (int)twice; order++) {
            sglir_id args[2] = { sglir_reduce(g, SGLIR_OP_REDUCE_SUM, y, axes, 1, false), x };
            y = sglir_emit(g, SGLIR_OP_GRAD, args, 2, NULL, 0, NULL);
        }
        sglir_output_add(g, SGLIR_FETCH, name, y);
    }
    must(&b, "grads", sglir_status(g));
    int64_t before = b.env.allocations;
    g = through(&b, "grads", sglpass_autodiff, g);
    int64_t all = b.env.allocations - before;
    sglir_graph_free(g);
    assert_int_equal(b.env.bytes_in_use, 0);
    return all;
}

static void test_many_grads_in_few_walks(void **state)
{
    (void)state;
    for (int twice = 0; twice <= 1; twice++) {
        int64_t few = allocations_of_grads(50, twice), many = allocations_of_grads(400, twice);
        assert_true(many < 12 * few); /* 8 when linear; 64 where each grad has a walk of its own */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_has_a_case),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_power_at_zero),
        cmocka_unit_test(test_stop_gradient),
        cmocka_unit_test(test_unreached_parameter),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_integers_are_no_path),
        cmocka_unit_test(test_grad_in_a_loop),
        cmocka_unit_test(test_each_allocation_fails),
        cmocka_unit_test(test_many_grads_in_few_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
