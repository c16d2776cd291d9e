/* test_ir_compose.c -- every decomposition against the formula of its composite, both through the reference interpreter,
 * which knows composites by their formulas and not by their decompositions.
 *
 * A composite without a case fails the test. Beside the numbers: the decomposition is of primitives alone, has the same
 * types, is row-wise where the fuse pass must see rows, and works on arguments that are split and owed. */
#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "ir/ir.h"
#include "../reference/interp.h"

#define MOST 9

/* "name dtype dims" per argument; the first letter of the name says what it holds: x numbers in (-2, 2), t targets from
 * -1 to 5, o and a digit an offset. */
typedef struct compose_case {
    sglir_op op;
    const char *label, *args, *attrs;
} compose_case;

#define CONV_1 "stride=[2], dilation=[1], low=[1], high=[1]"
#define CONV_2 "stride=[1,2], dilation=[2,1], low=[1,1], high=[0,-1]"
#define CONV_3 "stride=[1,1,2], dilation=[1,2,1], low=[0,0,0], high=[0,1,0]"
#define SEGMENTS "sq i32 [2,5] sk i32 [2,9]"

static const compose_case cases[] = {
    { SGLIR_OP_SILU, "", "x f64 [3,7]", "" },
    { SGLIR_OP_SILU_GRAD, "", "x f64 [3,7] xd f64 [3,7]", "" },
    { SGLIR_OP_GELU, "tanh", "x f64 [3,7]", "" },
    { SGLIR_OP_GELU, "exact", "x f64 [3,7]", "exact=1" },
    { SGLIR_OP_GELU_GRAD, "tanh", "x f64 [3,7] xd f64 [3,7]", "" },
    { SGLIR_OP_GELU_GRAD, "exact", "x f64 [3,7] xd f64 [3,7]", "exact=1" },
    { SGLIR_OP_MEAN, "", "x f64 [2,3,4]", "axes=[0,2]" },
    { SGLIR_OP_MEAN, "kept", "x f64 [2,3,4]", "axes=[1], keep=1" },
    { SGLIR_OP_MEAN, "of nothing", "x f64 [2,0]", "axes=[1]" },
    { SGLIR_OP_CLAMP, "", "x f64 [3,7]", "minimum=-1, maximum=0.5" },
    { SGLIR_OP_CLAMP, "one bound", "x f64 [3,7]", "minimum=0.25" },
    { SGLIR_OP_CLAMP, "integers", "t i8 [3,7]", "minimum=1, maximum=3" },
    { SGLIR_OP_CLAMP, "no bound", "t u8 [3,7]", "" },
    { SGLIR_OP_LOGSUMEXP, "", "x f64 [2,3,4]", "axes=[0,2]" },
    { SGLIR_OP_LOGSUMEXP, "kept", "x f64 [2,3,4]", "axes=[1], keep=1" },
    { SGLIR_OP_LOGSUMEXP, "of nothing", "x f64 [2,0]", "axes=[1]" },
    { SGLIR_OP_LOGSUMEXP, "over no axis", "x f64 [2,3]", "axes=[]" },
    { SGLIR_OP_CUMULATIVE_PROD, "", "x f64 [2,5,3]", "axis=1" },
    { SGLIR_OP_CUMULATIVE_PROD, "reverse", "x f64 [2,5,3]", "axis=1, reverse=1" },
    { SGLIR_OP_CUMULATIVE_PROD, "exclusive", "x f64 [2,5,3]", "axis=1, exclusive=1" },
    { SGLIR_OP_CUMULATIVE_PROD, "reverse, exclusive", "t i16 [5]", "axis=0, reverse=1, exclusive=1" },
    { SGLIR_OP_CUMULATIVE_PROD, "of nothing", "x f64 [2,0]", "axis=1, exclusive=1" },
    { SGLIR_OP_CUMULATIVE_PROD, "of one", "x f64 [2,1]", "axis=1, exclusive=1" },
    { SGLIR_OP_TOP_K, "", "x f64 [2,7]", "k=3" },
    { SGLIR_OP_TOP_K, "ties", "t i8 [2,16]", "k=9" },
    { SGLIR_OP_TOP_K, "none", "x f64 [2,0]", "k=0" },
    { SGLIR_OP_CONV, "", "x f64 [2,7,4] xw f64 [6,3,4]", CONV_1 },
    { SGLIR_OP_CONV, "groups", "x f64 [2,7,4] xw f64 [6,3,2]", CONV_1 ", groups=2" },
    { SGLIR_OP_CONV, "depthwise", "x f64 [2,7,4] xw f64 [4,3,1]", CONV_1 ", groups=4" },
    { SGLIR_OP_CONV, "two dimensions", "x f64 [2,7,6,4] xw f64 [6,2,3,4]", CONV_2 },
    { SGLIR_OP_CONV, "two dimensions, groups", "x f64 [2,7,6,4] xw f64 [6,2,3,2]", CONV_2 ", groups=2" },
    { SGLIR_OP_CONV, "three dimensions, groups", "x f64 [1,3,4,3,2] xw f64 [2,2,2,1,1]", CONV_3 ", groups=2" },
    { SGLIR_OP_CONV, "no samples", "x f64 [0,7,4] xw f64 [6,3,4]", CONV_1 },
    { SGLIR_OP_CONV_INPUT_GRAD, "", "xd f64 [2,4,6] xw f64 [6,3,4]", "extent=[7], " CONV_1 },
    { SGLIR_OP_CONV_INPUT_GRAD, "two dimensions, groups", "xd f64 [2,6,2,6] xw f64 [6,2,3,2]",
      "extent=[7,6], groups=2, " CONV_2 },
    { SGLIR_OP_CONV_WEIGHT_GRAD, "", "x f64 [2,7,4] xd f64 [2,4,6]", "size=[3], " CONV_1 },
    { SGLIR_OP_CONV_WEIGHT_GRAD, "two dimensions, groups", "x f64 [2,7,6,4] xd f64 [2,6,2,6]",
      "size=[2,3], groups=2, " CONV_2 },
    { SGLIR_OP_MATMUL, "plain", "xa f64 [3,4] xb f64 [4,5]", "" },
    { SGLIR_OP_MATMUL, "stacks", "xa f64 [2,3,4] xb f64 [2,4,5]", "" },
    { SGLIR_OP_MATMUL, "stack by plain", "xa f64 [6,2,3,4] xb f64 [4,5]", "" },
    { SGLIR_OP_MATMUL, "plain by stack", "xa f64 [3,4] xb f64 [6,2,4,5]", "" },
    { SGLIR_OP_MATMUL, "broadcast", "xa f64 [6,1,3,4] xb f64 [2,4,5]", "" },
    { SGLIR_OP_MATMUL, "vector left", "xa f64 [4] xb f64 [2,4,5]", "" },
    { SGLIR_OP_MATMUL, "vector right", "xa f64 [2,3,4] xb f64 [4]", "" },
    { SGLIR_OP_MATMUL, "vectors", "xa f64 [4] xb f64 [4]", "" },
    { SGLIR_OP_LINEAR, "", "x f64 [2,3,4] xw f64 [5,4]", "" },
    { SGLIR_OP_LINEAR, "bias", "x f64 [3,4] xw f64 [5,4] xb f64 [5]", "" },
    { SGLIR_OP_SOFTMAX, "", "x f64 [2,3,7]", "" },
    { SGLIR_OP_RMS_NORM, "", "x f64 [2,3,7] xg f64 [7]", "eps=0.01" },
    { SGLIR_OP_LAYER_NORM, "", "x f64 [2,3,7] xg f64 [7] xb f64 [7]", "eps=0.01" },
    { SGLIR_OP_ROPE, "", "x f64 [2,5,3,6] o7 i64 []", "theta=100" },
    { SGLIR_OP_ROPE, "inverse", "x f64 [2,5,3,6] o7 i64 []", "inverse=1" },
    { SGLIR_OP_ROPE, "positions", "x f64 [2,5,3,6] t i32 [2,5]", "theta=100" },
    { SGLIR_OP_ROPE, "positions, frequencies, inverse", "x f64 [2,5,3,6] t i32 [2,5]",
      "frequencies=[0.5,0.25,-3], inverse=1" },
    { SGLIR_OP_ROPE, "frequencies", "x f64 [2,5,3,6] o7 i64 []", "frequencies=[0.5,0.25,-3]" },
    { SGLIR_OP_ATTENTION, "all", "xq f64 [2,5,3,4] xk f64 [2,7,3,4] xv f64 [2,7,3,6] o0 i64 []",
      "scale=0.5, causal=0" },
    { SGLIR_OP_ATTENTION, "causal", "xq f64 [2,5,3,4] xk f64 [2,5,3,4] xv f64 [2,5,3,6] o0 i64 []", "scale=0.5" },
    { SGLIR_OP_ATTENTION, "grouped", "xq f64 [2,5,6,4] xk f64 [2,7,2,4] xv f64 [2,7,2,6] o2 i64 []", "scale=0.5" },
    { SGLIR_OP_ATTENTION, "window", "xq f64 [2,5,6,4] xk f64 [2,7,3,4] xv f64 [2,7,3,6] o1 i64 []",
      "scale=0.5, window=2" },
    { SGLIR_OP_ATTENTION, "segments", "xq f64 [2,5,6,4] xk f64 [2,9,2,4] xv f64 [2,9,2,6] o0 i64 [] " SEGMENTS,
      "scale=0.5, causal=0" },
    { SGLIR_OP_ATTENTION, "segments, window", "xq f64 [2,5,6,4] xk f64 [2,9,2,4] xv f64 [2,9,2,6] o4 i64 [] " SEGMENTS,
      "scale=0.5, window=6" },
    { SGLIR_OP_ATTENTION, "no keys", "xq f64 [2,5,6,4] xk f64 [2,0,3,4] xv f64 [2,0,3,6] o0 i64 []", "scale=0.5" },
    { SGLIR_OP_ATTENTION, "past the keys", "xq f64 [1,3,1,4] xk f64 [1,2,1,4] xv f64 [1,2,1,4] o9 i64 []",
      "scale=0.5, window=3" },
    { SGLIR_OP_ATTENTION_GRAD, "all",
      "xq f64 [2,5,3,4] xk f64 [2,7,3,4] xv f64 [2,7,3,6] xo f64 [2,5,3,6] xl f64 [2,3,5] xd f64 [2,5,3,6] o0 i64 []",
      "scale=0.5, causal=0" },
    { SGLIR_OP_ATTENTION_GRAD, "grouped",
      "xq f64 [2,5,6,4] xk f64 [2,7,2,4] xv f64 [2,7,2,6] xo f64 [2,5,6,6] xl f64 [2,6,5] xd f64 [2,5,6,6] o2 i64 []",
      "scale=0.5" },
    { SGLIR_OP_ATTENTION_GRAD, "window",
      "xq f64 [2,5,6,4] xk f64 [2,7,3,4] xv f64 [2,7,3,6] xo f64 [2,5,6,6] xl f64 [2,6,5] xd f64 [2,5,6,6] o1 i64 []",
      "scale=0.5, window=2" },
    { SGLIR_OP_ATTENTION_GRAD, "segments",
      "xq f64 [2,5,6,4] xk f64 [2,9,2,4] xv f64 [2,9,2,6] xo f64 [2,5,6,6] xl f64 [2,6,5] xd f64 [2,5,6,6] o0 i64 [] " SEGMENTS,
      "scale=0.5, causal=0" },
    { SGLIR_OP_ATTENTION_GRAD, "segments, causal",
      "xq f64 [2,5,6,4] xk f64 [2,9,2,4] xv f64 [2,9,2,6] xo f64 [2,5,6,6] xl f64 [2,6,5] xd f64 [2,5,6,6] o3 i64 [] " SEGMENTS,
      "scale=0.5" },
    { SGLIR_OP_CROSS_ENTROPY, "", "x f64 [3,4,5] t i32 [3,4]", "" },
    { SGLIR_OP_CROSS_ENTROPY, "ignore", "x f64 [3,4,5] t i64 [3,4]", "ignore=2" },
    { SGLIR_OP_CROSS_ENTROPY, "ignore none", "x f64 [12,5] t i32 [12]", "ignore=4294967296" },
    { SGLIR_OP_CROSS_ENTROPY, "one", "x f64 [5] t i32 []", "" },
    { SGLIR_OP_LINEAR_CROSS_ENTROPY, "", "x f64 [3,4,2] xw f64 [5,2] t i32 [3,4]", "" },
    { SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, "", "x f64 [3,4,2] xw f64 [5,2] t i32 [3,4] xd f64 [3,4]", "" },
    { SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, "one", "x f64 [2] xw f64 [5,2] t i32 [] xd f64 []", "" },
    /* low precision is worked out in f32 and cast back */
    { SGLIR_OP_SOFTMAX, "bf16", "x bf16 [2,7]", "" },
    { SGLIR_OP_LAYER_NORM, "f16", "x f16 [2,7] xg f16 [7] xb f16 [7]", "" },
    { SGLIR_OP_ROPE, "bf16", "x bf16 [2,5,3,6] o7 i64 []", "" },
    { SGLIR_OP_ATTENTION, "bf16", "xq bf16 [2,5,6,4] xk bf16 [2,7,2,4] xv bf16 [2,7,2,6] o2 i64 []", "scale=0.5" },
    { SGLIR_OP_CROSS_ENTROPY, "bf16", "x bf16 [12,5] t u8 [12]", "" },
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- graphs --------------------------------------------------------------------------------------------------- */

static void add(char *text, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t used = strlen(text);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* The case as a graph of one composite, each result fetched. layouts: what follows the dims of each input, or NULL. */
static sglir_graph *parse_case(sglcore_env *env, const compose_case *c, const char *const *layouts)
{
    static char text[8192];
    int count = 0, results = sglir_ops[c->op].results;
    snprintf(text, sizeof text, "graph \"case\" {\n");
    for (const char *at = c->args; *at != '\0'; count++) {
        char name[16], dtype[16], dims[32];
        int used = 0;
        assert_int_equal(sscanf(at, "%15s %15s %31s%n", name, dtype, dims, &used), 3);
        at += used;
        add(text, sizeof text, "%%%d = input() {role=2, name=\"%s\", dtype=%s, dims=%s%s}\n", count, name, dtype, dims,
            layouts == NULL ? "" : layouts[count]);
    }
    for (int i = 0; i < results; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", count + i);
    add(text, sizeof text, " = %s(", sglir_ops[c->op].name);
    for (int i = 0; i < count; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", i);
    add(text, sizeof text, ") {%s}\n", c->attrs);
    for (int i = 0; i < results; i++) add(text, sizeof text, "fetch \"y%d\" %%%d\n", i, count + i);
    add(text, sizeof text, "}\n");
    sglir_graph *g = NULL;
    if (sglir_parse(env, "case", text, strlen(text), &g) != SGL_OK) fail_msg("%s", env->message);
    return g;
}

static bool compose(sglir_rewrite *rewrite, sglir_id id)
{
    const sglir_node *node = sglir_node_at(rewrite->from, id);
    sglir_compose_fn rule = sglir_compose_rule((sglir_op)node->op);
    if (rule == NULL) return false;
    sglir_id args[MOST], results[MOST];
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = rewrite->map[sglir_arg(rewrite->from, node, i)];
    rule(rewrite->to, rewrite->from, node, args, results);
    for (uint32_t i = 0; i < node->out_count; i++) rewrite->map[node->out_first + i] = results[i];
    return true;
}

static sglir_graph *decomposed(sglcore_env *env, const compose_case *c, const sglir_graph *g)
{
    sglir_graph *plain = NULL;
    if (sglir_rewrite_graph(env, g, "decompose", compose, NULL, &plain) != SGL_OK)
        fail_msg("%s (%s): %s", sglir_ops[c->op].name, c->label, env->message);
    if (sglir_verify(plain, SGLIR_LOGICAL) != SGL_OK && sglir_verify(plain, SGLIR_PER_RANK) != SGL_OK)
        fail_msg("%s (%s): %s", sglir_ops[c->op].name, c->label, env->message);
    for (int64_t n = 0; n < plain->nodes.count; n++)
        assert_false(sglir_ops[plain->nodes.data[n].op].flags & SGLIR_COMPOSITE);
    return plain;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static void feed(interp *in, const sglir_graph *g)
{
    uint64_t seed = 1;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        if (node->op != SGLIR_OP_INPUT) continue;
        const char *name = sglir_attr_string(g, node, "name");
        const sglir_type *type = sglir_type_of(g, node->out_first);
        interp_tensor tensor = interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
        for (int64_t e = 0; e < tensor.count; e++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            int64_t number = (int64_t)(seed >> 33);
            double value = name[0] == 'o' ? name[1] - '0' : (double)(number % 512 - 256) / 128; /* exact in bf16 */
            if (name[0] == 's') value = (double)(number % 4) - 1;
            if (name[0] == 't') value = (double)(number % 7) - (type->dtype == SGL_U8 ? 0 : 1);
            interp_set(&tensor, e, value);
        }
        interp_input(in, name, &tensor);
        interp_tensor_free(&tensor);
    }
}

/* attention_grad is defined for the out and lse that attention gives. */
static void feed_forward_results(sglcore_env *env, interp *in, const compose_case *c)
{
    compose_case forward = { .op = SGLIR_OP_ATTENTION, .label = "", .attrs = c->attrs };
    static char args[512];
    snprintf(args, sizeof args, "%.*s%s", (int)(strstr(c->args, " xo ") + 1 - c->args), c->args,
             strstr(c->args, " o") + 1);
    const char *offset = strrchr(c->args, 'o');
    snprintf(args, sizeof args, "%.*s%s", (int)(strstr(c->args, " xo ") + 1 - c->args), c->args, offset);
    forward.args = args;
    sglir_graph *g = parse_case(env, &forward, NULL);
    if (!interp_run(in, g)) fail_msg("%s", in->error);
    interp_input(in, "xo", interp_fetch(in, "y0"));
    interp_input(in, "xl", interp_fetch(in, "y1"));
    sglir_graph_free(g);
}

static double tolerance(const interp_tensor *tensor) { return tensor->dtype == SGL_F64 ? 1e-13 : 1e-6; }

static void compare(const compose_case *c, const interp *want, const interp *have)
{
    for (int i = 0; i < want->fetch_count; i++) {
        const interp_tensor *a = &want->fetches[i].tensor, *b = interp_fetch(have, want->fetches[i].name);
        assert_non_null(b);
        assert_int_equal(a->count, b->count);
        for (int64_t e = 0; e < a->count; e++) {
            double x = interp_get(a, e), y = interp_get(b, e);
            bool same = (isnan(x) && isnan(y)) || x == y || fabs(x - y) <= tolerance(a) * (1 + fabs(x));
            if (!same)
                fail_msg("%s (%s): element %lld of %s is %.17g, not %.17g", sglir_ops[c->op].name, c->label,
                         (long long)e, want->fetches[i].name, y, x);
        }
    }
}

static void run_case(const compose_case *c)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    interp want = { 0 }, have = { 0 };
    sglir_graph *g = parse_case(&env, c, NULL), *plain = decomposed(&env, c, g);
    feed(&want, g);
    feed(&have, g);
    if (c->op == SGLIR_OP_ATTENTION_GRAD) {
        feed_forward_results(&env, &want, c);
        feed_forward_results(&env, &have, c);
    }
    if (!interp_run(&want, g) || !interp_run(&have, plain)) fail_msg("%s%s", want.error, have.error);
    compare(c, &want, &have);
    for (int64_t i = 0; i < g->outputs.count; i++) {
        assert_true(sglir_type_equal(sglir_type_of(g, g->outputs.data[i].value),
                                     sglir_type_of(plain, plain->outputs.data[i].value)));
    }
    interp_free(&want);
    interp_free(&have);
    sglir_graph_free(plain);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_decompositions(void **state)
{
    (void)state;
    bool seen[SGLIR_OP_COUNT] = { false };
    for (size_t i = 0; i < CASES; i++) {
        run_case(&cases[i]);
        seen[cases[i].op] = true;
    }
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        if (op == SGLIR_OP_CUSTOM) continue; /* its first arguments: test_vjp.c, which has seeds to give it */
        if (sglir_compose_rule((sglir_op)op) != NULL && !seen[op]) fail_msg("%s has no case", sglir_ops[op].name);
    }
}

/* ---- extremes ------------------------------------------------------------------------------------------------- */

/* Numbers far from 0 stay finite, in f32; rows that see no key give 0 and -inf. */
static void test_large_numbers(void **state)
{
    (void)state;
    static const compose_case large[] = {
        { SGLIR_OP_SOFTMAX, "large", "x f32 [3]", "" },
        { SGLIR_OP_CROSS_ENTROPY, "large", "x f32 [3] t i32 []", "" },
    };
    for (int k = 0; k < 2; k++) {
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        sglir_graph *g = parse_case(&env, &large[k], NULL), *plain = decomposed(&env, &large[k], g);
        interp in = { .round = true };
        const int64_t dims[] = { 3 };
        interp_tensor x = interp_tensor_new(SGL_F32, 1, dims), t = interp_tensor_new(SGL_I32, 0, NULL);
        for (int e = 0; e < 3; e++) interp_set(&x, e, 1e5 - e);
        interp_set(&t, 0, 1);
        interp_input(&in, "x", &x);
        interp_input(&in, "t", &t);
        if (!interp_run(&in, plain)) fail_msg("%s", in.error);
        double sum = 1 + exp(-1) + exp(-2), want = k == 0 ? 1 / sum : log(sum) + 1;
        assert_true(fabs(interp_get(interp_fetch(&in, "y0"), 0) - want) < 1e-6);
        interp_tensor_free(&x);
        interp_tensor_free(&t);
        interp_free(&in);
        sglir_graph_free(plain);
        sglir_graph_free(g);
    }
}

static void test_rows_that_see_no_key(void **state)
{
    (void)state;
    static const compose_case c = { SGLIR_OP_ATTENTION, "unseen",
                                    "xq f64 [1,3,1,4] xk f64 [1,2,1,4] xv f64 [1,2,1,4] o9 i64 []",
                                    "scale=0.5, window=3" };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = parse_case(&env, &c, NULL), *plain = decomposed(&env, &c, g);
    interp in = { 0 };
    feed(&in, g);
    if (!interp_run(&in, plain)) fail_msg("%s", in.error);
    for (int e = 0; e < 12; e++) assert_true(interp_get(interp_fetch(&in, "y0"), e) == 0);
    for (int e = 0; e < 3; e++) assert_true(interp_get(interp_fetch(&in, "y1"), e) == -INFINITY);
    interp_free(&in);
    sglir_graph_free(plain);
    sglir_graph_free(g);
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

#define MICRO_0 ", layout=[-1,-1,-1,-1,-1,-1,0]"
#define HEADS ", layout=[-1,-1,2,-1,-1,-1,0]"

/* A decomposition made on local shapes ends in the types that the composite has, also where a part has an extent of 1. */
static void test_decompositions_of_parts(void **state)
{
    (void)state;
    static const struct {
        compose_case c;
        const char *layouts[MOST];
    } parts[] = {
        { { SGLIR_OP_ATTENTION, "parts", "xq f64 [1,5,4,4] xk f64 [1,7,2,4] xv f64 [1,7,2,6] o0 i64 []", "scale=1" },
          { HEADS, HEADS, HEADS, "" } },
        { { SGLIR_OP_ATTENTION, "one key head", "xq f64 [1,5,4,4] xk f64 [1,7,1,4] xv f64 [1,7,1,6] o0 i64 []",
            "scale=1" },
          { HEADS, HEADS, HEADS, "" } },
        { { SGLIR_OP_ATTENTION, "one head", "xq f64 [1,5,1,4] xk f64 [1,7,1,4] xv f64 [1,7,1,6] o0 i64 []", "scale=1" },
          { HEADS, HEADS, HEADS, "" } },
        { { SGLIR_OP_ATTENTION_GRAD, "one key head",
            "xq f64 [1,5,4,4] xk f64 [1,7,1,4] xv f64 [1,7,1,6] xo f64 [1,5,4,6] xl f64 [1,4,5] xd f64 [1,5,4,6] o0 i64 []",
            "scale=1" },
          { HEADS, HEADS, HEADS, HEADS, ", layout=[-1,-1,1,-1,-1,-1,0]", HEADS, "" } },
        { { SGLIR_OP_ROPE, "parts", "x f64 [1,5,1,6] o0 i64 []", "" }, { HEADS, "" } },
        { { SGLIR_OP_RMS_NORM, "parts", "x f64 [1,3,7] xg f64 [7]", "" }, { MICRO_0, "" } },
        { { SGLIR_OP_LAYER_NORM, "parts", "x f64 [1,3,7] xg f64 [7] xb f64 [7]", "" }, { MICRO_0, "", "" } },
        { { SGLIR_OP_SOFTMAX, "parts", "x f64 [1,3,7]", "" }, { MICRO_0 } },
        { { SGLIR_OP_CROSS_ENTROPY, "parts", "x f64 [1,4,5] t i32 [1,4]", "" }, { MICRO_0, MICRO_0 } },
        { { SGLIR_OP_LINEAR_CROSS_ENTROPY, "parts", "x f64 [1,4,2] xw f64 [5,2] t i32 [1,4]", "" },
          { MICRO_0, "", MICRO_0 } },
        { { SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, "parts", "x f64 [1,4,2] xw f64 [5,2] t i32 [1,4] xd f64 [1,4]", "" },
          { MICRO_0, "", MICRO_0, MICRO_0 } },
        { { SGLIR_OP_LINEAR, "parts", "x f64 [1,3,4] xw f64 [5,4] xb f64 [5]", "" },
          { MICRO_0, ", layout=[-1,-1,0,-1,-1,-1,-1]", ", layout=[-1,-1,0,-1,-1,-1,-1]" } },
        { { SGLIR_OP_LINEAR, "owed", "x f64 [3,4] xw f64 [5,4]", "" }, { ", partial=4, scaled=1", "" } },
        { { SGLIR_OP_MATMUL, "parts", "xa f64 [1,3,4] xb f64 [4,5]", "" },
          { MICRO_0, ", layout=[-1,-1,1,-1,-1,-1,-1]" } },
        { { SGLIR_OP_MEAN, "owed", "x f64 [2,3]", "axes=[1]" }, { ", layout=[-1,-1,-1,-1,-1,-1,0], partial=1" } },
        { { SGLIR_OP_SILU_GRAD, "owed", "x f64 [2,3] xd f64 [2,3]", "" }, { "", ", partial=64, scaled=1" } },
        { { SGLIR_OP_GELU_GRAD, "owed", "x f64 [2,3] xd f64 [2,3]", "" }, { "", ", partial=64, scaled=1" } },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const compose_case *c = &parts[i].c;
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        sglir_graph *g = parse_case(&env, c, parts[i].layouts), *plain = NULL;
        if (sglir_rewrite_graph(&env, g, "decompose", compose, NULL, &plain) != SGL_OK)
            fail_msg("%s (%s): %s", sglir_ops[c->op].name, c->label, env.message);
        for (int64_t k = 0; k < g->outputs.count; k++) {
            char want[512], have[512];
            sglir_type_text(sglir_type_of(g, g->outputs.data[k].value), want, sizeof want);
            sglir_type_text(sglir_type_of(plain, plain->outputs.data[k].value), have, sizeof have);
            if (strcmp(want, have) != 0)
                fail_msg("%s (%s): result %d is %s, not %s", sglir_ops[c->op].name, c->label, (int)k, have, want);
        }
        sglir_graph_free(plain);
        sglir_graph_free(g);
    }
}

/* linear and matmul take no turn that dot does not need. */
static void test_products_are_not_transposed(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const compose_case *c = &cases[i];
        if (c->op != SGLIR_OP_LINEAR && (c->op != SGLIR_OP_MATMUL || strcmp(c->label, "plain by stack") == 0)) continue;
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        sglir_graph *g = parse_case(&env, c, NULL), *plain = decomposed(&env, c, g);
        for (int64_t n = 0; n < plain->nodes.count; n++) {
            assert_int_not_equal(plain->nodes.data[n].op, SGLIR_OP_TRANSPOSE);
            assert_int_not_equal(plain->nodes.data[n].op, SGLIR_OP_RESHAPE);
        }
        sglir_graph_free(plain);
        sglir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decompositions),
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_rows_that_see_no_key),
        cmocka_unit_test(test_decompositions_of_parts),
        cmocka_unit_test(test_products_are_not_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
