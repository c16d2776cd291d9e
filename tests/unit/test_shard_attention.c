/* test_shard_attention.c -- attention whose queries lie in parts of the sequence: over whole keys and values, over parts of the
 * heads, and block by block round the ranks, what every rank comes to is what one rank does; what is sent; how a plan that asks
 * for what cannot be is refused. One loop of micro-batches holds forward and backward, exchanges too. ctest: timeout 600 */
#include "fault.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/transformer_whole.h"

typedef struct mesh_case {
    const char *name;
    int64_t dp, tp, cp, micro;
    bool tensor; /* heads and hidden units over tp */
} mesh_case;

static sglplan plan_of(const mesh_case *c, sglplan_attention attention)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_DP] = c->dp;
    plan.mesh[SGLIR_AXIS_TP] = c->tp;
    plan.mesh[SGLIR_AXIS_CP] = c->cp;
    plan.mesh[SGLIR_AXIS_MICRO] = c->micro;
    plan.attention = (uint8_t)attention;
    if (c->tensor) snprintf(plan.layouts, sizeof plan.layouts, "%s", TRANSFORMER_TENSOR);
    return plan;
}

static int count_over_cp(const sglir_graph *g, sglir_op op)
{
    int count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        count += node->op == op && sglir_attr_int(g, node, "axes") == SGLPLAN_AXIS(SGLIR_AXIS_CP);
    }
    return count;
}

/* All ranks against `whole`; rank 0's graph. */
static sglir_graph *check(sglcore_env *env, const char *name, const sglir_graph *g, const interp *whole,
                          const sglplan *plan, const char *until, ir_tolerance tolerance)
{
    ir_message message;
    static const sglpass apart[] = { { "decompose", sglpass_decompose, SGLIR_PER_RANK, false, "" },
                                     { "simplify", sglpass_simplify, SGLIR_PER_RANK, true, "" },
                                     { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    const bool primitive = strcmp(until, "decompose") == 0;
    world_check c = { .env = env,
                      .g = g,
                      .whole = whole,
                      .plan = plan,
                      .until = primitive ? "shard" : until,
                      .then = primitive ? apart : NULL,
                      .tolerance = tolerance };
    if (!world_check_run(&c, &message)) {
        if (c.graphs[0]) ir_case_show(env, c.graphs[0]);
        fail_msg("%s, until %s: %s", name, until, message.text);
    }
    const int64_t last = sglplan_group_size(plan, ~(sglplan_axes)0) - 1;
    if (!ir_case_round_trip(env, c.graphs[last], &message)) fail_msg("%s: %s", name, message.text);
    sglir_graph *first = c.graphs[0];
    c.graphs[0] = NULL;
    world_check_free(&c);
    return first;
}

/* ---- attention by itself ---------------------------------------------------------------------------------------------- */

typedef struct shape {
    int queries, keys, heads, key_heads, offset, window;
    bool causal, segments;
    const char *values; /* over which axes the script splits them, as laid_out says it; NULL: it does not say */
} shape;

/* Each of what it attends with is a feed times a parameter, whose gradient shows the feed's. */
static sglir_graph *attention_graph(sglcore_env *env, const shape *s)
{
    char text[4096];
    ir_message message;
    snprintf(
        text, sizeof text,
        "graph \"test\" {\n"
        "  %%0 = input() {role=2, name=\"q\", dtype=f64, dims=[2,%d,%d,3]}\n"
        "  %%1 = input() {role=2, name=\"k\", dtype=f64, dims=[2,%d,%d,3]}\n"
        "  %%2 = input() {role=2, name=\"v\", dtype=f64, dims=[2,%d,%d,2]}\n"
        "  %%3 = input() {role=2, name=\"dy\", dtype=f64, dims=[2,%d,%d,2]}\n"
        "  %%4 = input() {role=0, name=\"wq\", dtype=f64, dims=[3]}\n"
        "  %%5 = input() {role=0, name=\"wk\", dtype=f64, dims=[3]}\n"
        "  %%6 = input() {role=0, name=\"wv\", dtype=f64, dims=[2]}\n"
        "  %%7 = input() {role=2, name=\"of_queries\", dtype=i32, dims=[2,%d]}\n"
        "  %%8 = input() {role=2, name=\"of_keys\", dtype=i32, dims=[2,%d]}\n"
        "  %%9 = broadcast(%%4) {dims=[2,%d,%d,3]}\n  %%10 = mul(%%0, %%9)\n"
        "  %%11 = broadcast(%%5) {dims=[2,%d,%d,3]}\n  %%12 = mul(%%1, %%11)\n"
        "  %%13 = broadcast(%%6) {dims=[2,%d,%d,2]}\n  %%14 = mul(%%2, %%13)\n"
        "  %%15 = constant() {value=%d, dtype=i64}\n"
        "  %%23 = laid_out(%%14) {split=%s}\n"
        "  %%16, %%17 = attention(%%10, %%12, %%23, %%15%s) {scale=0.7, causal=%d, window=%d}\n"
        "  %%18 = mul(%%16, %%3)\n  %%19 = reduce_sum(%%18) {axes=[0,1,2,3]}\n"
        "  %%20, %%21, %%22 = grad(%%19, %%4, %%5, %%6)\n"
        "  fetch \"out\" %%16\n  fetch \"lse\" %%17\n  fetch \"dq\" %%20\n  fetch \"dk\" %%21\n  fetch \"dv\" %%22\n"
        "  fetch \"segments\" %%7\n  fetch \"others\" %%8\n}\n",
        s->queries, s->heads, s->keys, s->key_heads, s->keys, s->key_heads, s->queries, s->heads, s->queries, s->keys,
        s->queries, s->heads, s->keys, s->key_heads, s->keys, s->key_heads, s->offset,
        s->values ? s->values : "[-1,-1,-1,-1,-1,-1,-1]", s->segments ? ", %7, %8" : "", s->causal, s->window);
    sglir_graph *g = ir_case_parse(env, "attention", text, &message);
    if (g == NULL) fail_msg("%s", message.text);
    return g;
}

/* Segments 0 and 1 with padding behind them, cut at other places in each row. */
static void fill_segments(interp *whole, const shape *s)
{
    static const char *const names[] = { "of_queries", "of_keys" };
    for (int k = 0; k < 2; k++) {
        const int64_t count = k ? s->keys : s->queries, dims[2] = { 2, count };
        interp_tensor segments = interp_tensor_new(SGL_I32, 2, dims);
        for (int64_t i = 0; i < 2 * count; i++) {
            const int64_t at = i % count + (i >= count);
            interp_set(&segments, i, at < count / 2 ? 0 : at < count - 1 ? 1 : -1);
        }
        interp_input(whole, names[k], &segments);
        interp_tensor_free(&segments);
    }
}

static void check_shape(const shape *s, int blocks_at_4)
{
    static const mesh_case meshes[] = { { "cp=2", 1, 1, 2, 1, false },
                                        { "cp=3", 1, 1, 3, 1, false },
                                        { "cp=4", 1, 1, 4, 1, false },
                                        { "dp=2,cp=2", 2, 1, 2, 1, false } };
    sglcore_env env;
    sglplan alone;
    interp whole = { 0 };
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan_init(&alone);
    sglir_graph *g = attention_graph(&env, s), *expanded = NULL;
    const sglpass_context context = { .env = &env, .plan = &alone };
    assert_int_equal(sglpass_run(&context, g, "autodiff", &expanded), SGL_OK);
    ir_case_fill(&whole, g, 11);
    fill_segments(&whole, s);
    if (!interp_run(&whole, expanded)) fail_msg("%s", whole.error);
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++) {
        for (int by = SGLPLAN_ATTENTION_AUTO; by < SGLPLAN_ATTENTION_COUNT; by++) {
            char name[96];
            const sglplan plan = plan_of(&meshes[m], (sglplan_attention)by);
            if (by == SGLPLAN_ATTENTION_HEADS && s->key_heads % meshes[m].cp != 0) continue;
            snprintf(name, sizeof name, "%d queries, %d keys, window %d, causal %d, %s, way %d", s->queries, s->keys,
                     s->window, s->causal, meshes[m].name, by);
            sglir_graph *made = check(&env, name, g, &whole, &plan, "shard", (ir_tolerance){ 1e-12, 1e-13 });
            const int shifts = ir_case_count(made, SGLIR_OP_RING_SHIFT);
            if (by == SGLPLAN_ATTENTION_RING) assert_true(shifts > 0);
            if (by == SGLPLAN_ATTENTION_RING && meshes[m].cp == 4 && !s->segments)
                assert_int_equal(shifts, 3 * 2 * blocks_at_4); /* keys and values, again, and what comes back */
            if (by == SGLPLAN_ATTENTION_GATHER) assert_int_equal(shifts, 0);
            sglir_graph_free(made);
            /* Taken apart into primitives, the types hold, too. */
            if (by != SGLPLAN_ATTENTION_RING || meshes[m].cp != 3) continue;
            sglir_graph_free(check(&env, name, g, &whole, &plan, "decompose", (ir_tolerance){ 1e-12, 1e-13 }));
        }
    }
    interp_free(&whole);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        shape shape;
        int blocks_at_4;
    } cases[] = {
        { { 8, 8, 4, 4, 0, 0, true, false, NULL }, 3 },  /* even */
        { { 7, 7, 4, 2, 0, 0, true, false, NULL }, 3 },  /* the last rank has a query less */
        { { 8, 8, 4, 2, 0, 0, false, false, NULL }, 3 }, /* every query sees every key */
        { { 8, 8, 4, 2, 0, 2, true, false, NULL }, 1 },  /* one key of the block before */
        { { 8, 8, 4, 2, 0, 3, true, false, NULL }, 1 },  { { 8, 8, 4, 2, 0, 4, true, false, NULL }, 2 },
        { { 9, 9, 2, 1, 0, 4, true, false, NULL }, 2 },  /* blocks of 3, 2, 2, 2 */
        { { 4, 8, 2, 2, 4, 0, true, false, NULL }, 3 },  /* fewer queries than keys, behind the first four */
        { { 3, 8, 2, 2, 0, 0, false, false, NULL }, 3 }, /* a rank without a query */
        { { 8, 3, 2, 2, 0, 0, true, false, NULL }, 3 },  /* a rank without a key */
        { { 8, 8, 4, 2, 0, 0, true, true, NULL }, 3 },   /* documents and padding: queries that see nothing at all */
        { { 7, 7, 4, 4, 0, 3, true, true, NULL }, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_shape(&cases[i].shape, cases[i].blocks_at_4);
}

/* A window of one key is this rank's own: nothing is sent. */
static void test_own_block(void **state)
{
    (void)state;
    const shape own = { 8, 8, 4, 4, 0, 1, true, false, NULL };
    const mesh_case c = { "cp=4", 1, 1, 4, 1, false };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = attention_graph(&env, &own);
    interp whole = { 0 };
    ir_message message;
    if (!world_check_alone(&env, g, 3, &whole, &message)) fail_msg("%s", message.text);
    const sglplan plan = plan_of(&c, SGLPLAN_ATTENTION_AUTO);
    sglir_graph *made = check(&env, "own block", g, &whole, &plan, "shard", (ir_tolerance){ 1e-12, 1e-13 });
    assert_int_equal(ir_case_count(made, SGLIR_OP_RING_SHIFT), 0);
    assert_int_equal(ir_case_count(made, SGLIR_OP_ALL_TO_ALL), 0);
    interp_free(&whole);
    sglir_graph_free(made);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* A window that reaches one block back sends that one: less than all keys, and than parts of the heads. */
static void test_window_sends_less(void **state)
{
    (void)state;
    const shape window = { 16, 16, 8, 8, 0, 4, true, false, NULL };
    const mesh_case c = { "cp=4", 1, 1, 4, 1, false };
    const sglplan plan = plan_of(&c, SGLPLAN_ATTENTION_AUTO);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = attention_graph(&env, &window), *made = NULL;
    const sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_run(&context, g, "shard", &made), SGL_OK);
    assert_int_equal(ir_case_count(made, SGLIR_OP_RING_SHIFT), 2 + 2); /* kept for the backward, and what comes back */
    sglir_graph_free(made);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- in a transformer ------------------------------------------------------------------------------------------------------ */

typedef struct transformer_case {
    mesh_case mesh;
    int64_t heads, key_heads, seq;
    sglplan_attention attention, expected;
} transformer_case;

/* AUTO takes what sends less: parts of the heads with as many as ranks, uneven parts of the sequence too; not with too few key
 * heads, nor where tp cuts the heads, whose ranks are closer together than those of cp: parts would not lie in one range. */
#define AUTO SGLPLAN_ATTENTION_AUTO
#define GATHER SGLPLAN_ATTENTION_GATHER
#define HEADS SGLPLAN_ATTENTION_HEADS
#define RING SGLPLAN_ATTENTION_RING
static void test_transformer(void **state)
{
    (void)state;
    static const transformer_case cases[] = {
        { { "cp=4", 1, 1, 4, 1, false }, 4, 4, 8, AUTO, HEADS },
        { { "cp=4, uneven", 1, 1, 4, 1, false }, 4, 4, 7, AUTO, HEADS },
        { { "dp=2,cp=4 and 2 micro-batches", 2, 1, 4, 2, false }, 4, 4, 8, AUTO, HEADS },
        { { "cp=3,tp=2", 1, 2, 3, 1, true }, 6, 6, 6, AUTO, GATHER },
        { { "cp=4, two key heads", 1, 1, 4, 1, false }, 4, 2, 8, AUTO, GATHER },
        { { "cp=4, ring", 1, 1, 4, 1, false }, 4, 2, 8, RING, RING },
        { { "cp=4, ring, uneven", 1, 1, 4, 1, false }, 4, 4, 7, RING, RING },
        { { "dp=2,cp=2, ring and 2 micro-batches", 2, 1, 2, 2, false }, 4, 4, 8, RING, RING },
        { { "cp=3,tp=2, ring", 1, 2, 3, 1, true }, 6, 6, 6, RING, RING },
        { { "cp=2,tp=4, ring: key heads that tp does not divide", 1, 4, 2, 1, true }, 6, 2, 5, RING, RING },
        { { "cp=2,tp=2, ring and 2 micro-batches", 1, 2, 2, 2, true }, 4, 2, 5, RING, RING },
        { { "cp=2, heads", 1, 1, 2, 1, false }, 4, 2, 8, HEADS, HEADS },
        { { "cp=3,tp=2, heads", 1, 2, 3, 1, true }, 6, 6, 6, HEADS, GATHER }, /* by way of whole values */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const transformer_case *c = &cases[i];
        const transformer_sizes sizes = { .layers = 2,
                                          .batch = 4,
                                          .seq = c->seq,
                                          .dim = 4 * c->heads,
                                          .heads = c->heads,
                                          .kv_heads = c->key_heads,
                                          .ffn = 12,
                                          .vocab = 11,
                                          .dropout = c->attention == RING ? 0.25 : 0 };
        const sglplan plan = plan_of(&c->mesh, c->attention);
        transformer_whole w;
        transformer_whole_open(&w, &sizes);
        sglir_graph *made = check(&w.env, c->mesh.name, w.g, &w.results, &plan, c->mesh.micro > 1 ? "micro" : "shard",
                                  (ir_tolerance){ 1e-10, 1e-12 });
        const int turned = count_over_cp(made, SGLIR_OP_ALL_TO_ALL), shifted = count_over_cp(made, SGLIR_OP_RING_SHIFT);
        if ((c->expected == HEADS) != (turned > 0) || (c->expected == RING) != (shifted > 0))
            fail_msg("%s: %d times all_to_all, %d ring_shift", c->mesh.name, turned, shifted);
        if (c->expected == HEADS) assert_int_equal(count_over_cp(made, SGLIR_OP_REDUCE_SCATTER), 0);
        if (c->expected == RING) assert_int_equal(shifted, 2 * 3 * 2 * (c->mesh.cp - 1));
        sglir_graph_free(made);
        transformer_whole_close(&w);
    }
}

/* Forward and backward of a micro-batch stand in one loop, whatever they exchange: else what the forward keeps would be that of
 * all micro-batches. Ranks whose parts are uneven, or empty, put the same exchanges there. */
static void test_one_loop(void **state)
{
    (void)state;
    static const struct {
        mesh_case mesh;
        int64_t heads, key_heads;
        sglplan_attention attention;
    } cases[] = {
        { { "tp=2", 1, 2, 1, 2, true }, 4, 2, SGLPLAN_ATTENTION_AUTO },
        { { "tp=4, key heads on two ranks", 1, 4, 1, 2, true }, 6, 2, SGLPLAN_ATTENTION_AUTO },
        { { "tp=3, a rank without a head", 1, 3, 1, 2, true }, 2, 2, SGLPLAN_ATTENTION_AUTO },
        { { "cp=4, heads", 1, 1, 4, 2, false }, 4, 4, SGLPLAN_ATTENTION_HEADS },
        { { "cp=3, ring", 1, 1, 3, 2, false }, 4, 4, SGLPLAN_ATTENTION_RING },
        { { "cp=3, gather", 1, 1, 3, 2, false }, 4, 4, SGLPLAN_ATTENTION_GATHER },
        { { "dp=2,tp=2", 2, 2, 1, 2, true }, 4, 4, SGLPLAN_ATTENTION_AUTO },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const transformer_sizes sizes = { .layers = 2,
                                          .batch = 4,
                                          .seq = 5,
                                          .dim = 4 * cases[i].heads,
                                          .heads = cases[i].heads,
                                          .kv_heads = cases[i].key_heads,
                                          .ffn = 13,
                                          .vocab = 11 };
        const sglplan plan = plan_of(&cases[i].mesh, cases[i].attention);
        transformer_whole w;
        transformer_whole_open(&w, &sizes);
        sglir_graph *made =
            check(&w.env, cases[i].mesh.name, w.g, &w.results, &plan, "micro", (ir_tolerance){ 1e-10, 1e-12 });
        sglir_id forward = SGLIR_NONE, backward = SGLIR_NONE;
        for (int64_t n = 0; n < made->nodes.count; n++) {
            const sglir_node *node = &made->nodes.data[n];
            if (node->op == SGLIR_OP_ATTENTION) forward = node->region;
            if (node->op == SGLIR_OP_ATTENTION_GRAD) backward = node->region;
        }
        if (forward == 0 || forward != backward)
            fail_msg("%s: attention in region %d, its gradient in %d", cases[i].mesh.name, (int)forward, (int)backward);
        sglir_graph_free(made);
        transformer_whole_close(&w);
    }
}

/* ---- refusals, failing allocations ------------------------------------------------------------------------------------------ */

static void check_refused(const shape *of, sglplan_attention attention, const char *message)
{
    const mesh_case c = { "cp=4,tp=2", 1, 2, 4, 1, false };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = attention_graph(&env, of), *made = NULL;
    const sglplan plan = plan_of(&c, attention);
    const sglpass_context context = { .env = &env, .plan = &plan };
    assert_int_equal(sglpass_run(&context, g, "shard", &made), SGL_INVALID_ARGUMENT);
    if (!strstr(env.message, message)) fail_msg("%s", env.message);
    assert_null(made);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_refused(void **state)
{
    (void)state;
    const shape few = { 8, 8, 4, 2, 0, 0, true, false, NULL };
    const shape apart = { 8, 8, 4, 2, 0, 0, true, false, "[-1,-1,1,-1,-1,-1,-1]" };
    check_refused(
        &few, SGLPLAN_ATTENTION_HEADS,
        "attention: plan: attention = \"heads\" takes a key head for each of cp=4 ranks beside those that other axes "
        "split, and there are 2");
    check_refused(
        &apart, SGLPLAN_ATTENTION_RING,
        "attention: plan: attention = \"ring\" goes round one axis, and here queries, keys and values are not all split "
        "over cp=4 alone");
}

static sgl_status compile(sglcore_env *env, void *user)
{
    const shape window = { 7, 7, 4, 4, 0, 3, true, false, NULL };
    const mesh_case c = { "cp=4", 1, 1, 4, 1, false };
    const sglplan plan = plan_of(&c, *(const sglplan_attention *)user);
    const sglpass_context context = { .env = env, .plan = &plan, .rank = 1 };
    sglcore_env own;
    sglcore_env_init(&own, NULL, NULL, NULL, NULL);
    sglir_graph *g = attention_graph(&own, &window), *expanded = NULL, *made = NULL;
    sglplan alone;
    sglplan_init(&alone);
    const sglpass_context before = { .env = &own, .plan = &alone };
    assert_int_equal(sglpass_run(&before, g, "autodiff", &expanded), SGL_OK);
    sgl_status status = sglpass_shard(&context, expanded, &made);
    sglir_graph_free(made);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (sglplan_attention by = SGLPLAN_ATTENTION_GATHER; by < SGLPLAN_ATTENTION_COUNT; by++)
        assert_true(fault_each_allocation(compile, &by) > 30);
}

/* ---- to the end of the pipeline --------------------------------------------------------------------------------------------- */

/* What a rank exchanges, in its order: ops and axes. */
typedef struct exchange_order {
    int count;
    int64_t exchanges[256][2];
} exchange_order;

static void order_of(const sglir_graph *g, exchange_order *order)
{
    *order = (exchange_order){ 0 };
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!sglir_is_exchange(node->op)) continue;
        assert_true(order->count < 256);
        order->exchanges[order->count][0] = node->op;
        order->exchanges[order->count++][1] = sglir_attr_int(g, node, "axes");
    }
}

/* All ranks' programs have their places, and one order. */
static void check_order(sglcore_env *env, const sglir_graph *g, const sglplan *plan, const char *name)
{
    exchange_order first = { 0 }, other = { 0 };
    for (int r = 0; r < (int)sglplan_group_size(plan, ~(sglplan_axes)0); r++) {
        const sglpass_context context = { .env = env, .plan = plan, .rank = r };
        sglir_graph *made = NULL;
        if (sglpass_run(&context, g, NULL, &made) != SGL_OK) fail_msg("%s", env->message);
        if (sglir_verify(made, SGLIR_PLACED) != SGL_OK) fail_msg("%s", env->message);
        order_of(made, r == 0 ? &first : &other);
        if (r == 0) other = first;
        if (first.count != other.count || memcmp(first.exchanges, other.exchanges, sizeof first.exchanges) != 0)
            fail_msg("%s, way %d: rank %d has another order", name, (int)plan->attention, r);
        sglir_graph_free(made);
    }
    assert_true(first.count > 5);
}

/* Ranks without a query, or a key, in micro-batches: what all of them exchange is one order, and each program has its places. */
static void test_placed(void **state)
{
    (void)state;
    static const struct {
        mesh_case mesh;
        int64_t seq;
        sglplan_attention attention;
    } cases[] = {
        { { "cp=4, a rank without a place", 1, 1, 4, 2, false }, 3, SGLPLAN_ATTENTION_RING },
        { { "cp=4, a rank without a place", 1, 1, 4, 2, false }, 3, SGLPLAN_ATTENTION_GATHER },
        { { "cp=4, a rank without a place", 1, 1, 4, 2, false }, 3, SGLPLAN_ATTENTION_HEADS },
        { { "cp=2,tp=3, heads that tp does not divide", 1, 3, 2, 2, true }, 5, SGLPLAN_ATTENTION_RING },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const transformer_sizes sizes = {
            .layers = 2, .batch = 4, .seq = cases[i].seq, .dim = 16, .heads = 4, .kv_heads = 4, .ffn = 13, .vocab = 11
        };
        const sglplan plan = plan_of(&cases[i].mesh, cases[i].attention);
        const char *name = cases[i].mesh.name;
        transformer_whole w;
        transformer_whole_open(&w, &sizes);
        sglir_graph_free(check(&w.env, name, w.g, &w.results, &plan, "micro", (ir_tolerance){ 1e-10, 1e-12 }));
        check_order(&w.env, w.g, &plan, name);
        transformer_whole_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_own_block),
        cmocka_unit_test(test_window_sends_less),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_one_loop),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
