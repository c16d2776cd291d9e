/* test_recompute.c -- what the backward makes again: the same bits, fewer bytes, clones that stay where they are put.
 *
 * In: a small transformer with dropout, by marks on its blocks and against bounds, in micro-batches too; random graphs.
 * Checked: the meaning before and after the pass, bit for bit; that simplify merges no clone back; that the peak falls;
 * that every clone runs behind the forward; bounds that can be kept and that cannot; text and hashes of marks.
 * ctest: timeout 240 */
#include "fault.h"

#include <stdio.h>

#include "passes/pass.h"
#include "tests/support/ir_case.h"
#include "tests/support/random_graph.h"
#include "tests/support/transformer_graph.h"

static const transformer_sizes
    sizes = { .layers = 3, .batch = 4, .seq = 6, .dim = 8, .heads = 2, .ffn = 24, .vocab = 11, .dropout = 0.25 };

typedef struct setup {
    sglcore_env env;
    sglplan plan;
    sglpass_context context;
} setup;

static void begin(setup *s, int64_t micro)
{
    sglcore_env_init(&s->env, NULL, NULL, NULL, NULL);
    sglplan_init(&s->plan);
    s->plan.mesh[SGLIR_AXIS_MICRO] = micro;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        uint32_t flags = sglir_ops[op].flags;
        s->plan.native[op] = (flags & SGLIR_COMPOSITE) && !(flags & SGLIR_ELEMENTWISE);
    }
    s->context = (sglpass_context){ .env = &s->env, .plan = &s->plan };
}

static sglir_graph *model_of(setup *s, const transformer_sizes *of, int marked)
{
    sglir_graph *g = NULL;
    if (transformer_graph(&s->env, of, &g) != SGL_OK) fail_msg("%s", s->env.message);
    for (int i = 0; i < marked; i++) {
        char path[32];
        snprintf(path, sizeof path, "blocks.%d", i);
        sglir_recompute(g, path);
    }
    return g;
}

static sglir_graph *model(setup *s, int marked) { return model_of(s, &sizes, marked); }

static sglir_graph *run(const setup *s, const sglir_graph *g, const char *until)
{
    sglir_graph *out = NULL;
    if (sglpass_run(&s->context, g, until, &out) != SGL_OK) fail_msg("%s", s->env.message);
    return out;
}

static sglir_graph *run_pass(const setup *s, sglpass_fn pass, const sglir_graph *g)
{
    sglir_graph *out = NULL;
    if (pass(&s->context, g, &out) != SGL_OK) fail_msg("%s", s->env.message);
    if (sglir_verify(out, SGLIR_PER_RANK) != SGL_OK) fail_msg("%s", s->env.message);
    return out;
}

static int64_t clones_of(const sglir_graph *g)
{
    int64_t count = 0;
    for (int64_t n = 0; n < g->nodes.count; n++)
        count += g->nodes.data[n].epoch > 0 && g->nodes.data[n].op != SGLIR_OP_AFTER;
    return count;
}

/* ---- the same bits ------------------------------------------------------------------------------------------------- */

static void check_same(setup *s, const sglir_graph *traced, bool must_clone)
{
    ir_message message;
    sglir_graph *before = run(s, traced, "simplify-again");
    sglir_graph *after = run_pass(s, sglpass_recompute, before), *again = run_pass(s, sglpass_simplify, after);
    if (must_clone) assert_true(clones_of(after) > 0);
    assert_int_equal(clones_of(before), 0);
    assert_int_equal(clones_of(again), clones_of(after)); /* none merges back */
    ir_tolerance exact = { 0, 0 };
    if (!ir_case_same_meaning(before, after, 3, exact, &message)) fail_msg("recompute: %s", message.text);
    if (!ir_case_same_meaning(before, again, 3, exact, &message)) fail_msg("simplify: %s", message.text);
    if (!ir_case_round_trip(&s->env, after, &message)) fail_msg("%s", message.text);
    sglir_graph_free(before);
    sglir_graph_free(after);
    sglir_graph_free(again);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 2; micro++) {
        for (int marked = 0; marked <= 3; marked++) {
            setup s;
            begin(&s, micro);
            sglir_graph *g = model(&s, marked);
            check_same(&s, g, marked > 0);
            s.context.give_back = INT64_MAX;
            check_same(&s, g, true);
            sglir_graph_free(g);
            assert_int_equal(s.env.bytes_in_use, 0);
        }
    }
}

static void test_random_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        setup s;
        begin(&s, 1);
        s.context.give_back = INT64_MAX;
        sglir_graph *g = random_graph(&s.env, seed);
        assert_non_null(g);
        sglir_recompute(g, "");
        check_same(&s, g, false);
        sglir_graph_free(g);
        assert_int_equal(s.env.bytes_in_use, 0);
    }
}

/* ---- fewer bytes, in order ------------------------------------------------------------------------------------------ */

static bool is_block(const sglir_graph *g, const sglir_node *node)
{
    return strncmp(sglcore_string(g->strings, g->origins.data[node->origin].scope), "blocks.", 7) == 0;
}

/* In the region that holds the blocks: the last node of their forward, and the first clone behind it. */
static void check_order(const sglir_graph *g)
{
    int64_t clones = 0;
    for (int64_t r = 0; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        int64_t last_forward = -1, first_clone = INT64_MAX;
        if (region->node != SGLIR_NONE && sglir_node_at(g, region->node)->op == SGLIR_OP_FUSED) continue;
        for (int64_t n = 0; n < region->nodes.count; n++) {
            const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
            bool work = node->op == SGLIR_OP_DOT || node->op == SGLIR_OP_ATTENTION || node->op == SGLIR_OP_ROPE;
            if (!work || !is_block(g, node) || sglir_is_made_by(g, node, "autodiff")) continue;
            bool clone = sglir_is_made_by(g, node, "recompute");
            clones += clone;
            if (clone && n < first_clone) first_clone = n;
            if (!clone) last_forward = n;
        }
        assert_true(last_forward < first_clone);
    }
    assert_true(clones > 0);
}

static void test_peak_falls(void **state)
{
    (void)state;
    transformer_sizes long_ones = sizes; /* so that activations outweigh gradients */
    long_ones.seq = 64;
    for (int64_t micro = 1; micro <= 2; micro++) {
        setup s;
        begin(&s, micro);
        int64_t peaks[4];
        for (int marked = 0; marked <= 3; marked++) {
            sglir_graph *g = model_of(&s, &long_ones, marked), *placed = run(&s, g, NULL);
            if (sglir_verify(placed, SGLIR_PLACED) != SGL_OK) fail_msg("%s", s.env.message);
            peaks[marked] = placed->space_bytes[SGLIR_SPACE_ARENA];
            if (marked > 0) check_order(placed);
            sglir_graph_free(placed);
            sglir_graph_free(g);
        }
        for (int marked = 1; marked <= 3; marked++) assert_true(peaks[marked] < peaks[marked - 1]);
        assert_true((double)peaks[3] < 0.6 * (double)peaks[0]);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------------------------------- */

static void test_bounds(void **state)
{
    (void)state;
    setup s;
    begin(&s, 1);
    ir_message message;
    sglir_graph *g = model(&s, 0), *all = run(&s, g, NULL), *within = NULL;
    int64_t whole = sglpass_bytes(all), arena = all->space_bytes[SGLIR_SPACE_ARENA];
    for (int part = 9; part >= 6; part--) {
        s.plan.memory = whole - arena + arena * part / 10;
        within = run(&s, g, NULL);
        assert_true(sglpass_bytes(within) <= s.plan.memory);
        if (!ir_case_same_meaning(all, within, 5, (ir_tolerance){ 0, 0 }, &message)) fail_msg("%s", message.text);
        sglir_graph_free(within);
    }
    s.plan.memory = whole - arena + 1;
    strcpy(s.plan.disable, "offload"); /* test_offload.c has what memory of the host spares */
    assert_int_equal(sglpass_run(&s.context, g, NULL, &within), SGL_LIMIT);
    assert_null(within);
    assert_non_null(strstr(s.env.message, "program \"train\" needs"));
    assert_non_null(strstr(s.env.message, "at least"));
    s.plan.memory = whole - arena + arena * 8 / 10;
    strcpy(s.plan.disable, "recompute, offload"); /* and so nothing can be spared */
    assert_int_equal(sglpass_run(&s.context, g, NULL, &within), SGL_LIMIT);
    s.plan.memory = whole;
    within = run(&s, g, NULL);
    assert_int_equal(sglpass_bytes(within), whole);
    sglir_graph_free(within);
    sglir_graph_free(all);
    sglir_graph_free(g);
    assert_int_equal(s.env.bytes_in_use, 0);
}

/* ---- marks ------------------------------------------------------------------------------------------------------------ */

static void test_marks(void **state)
{
    (void)state;
    setup s;
    begin(&s, 1);
    ir_message message;
    sglir_graph *plain = model(&s, 0), *one = model(&s, 1), *two = model(&s, 2), *twice = model(&s, 1);
    sglir_recompute(twice, "blocks.0");
    assert_int_equal(twice->recomputed.count, 1);
    if (!ir_case_round_trip(&s.env, two, &message)) fail_msg("%s", message.text);
    assert_true(sglcore_hash_equal(sglir_math_hash(plain), sglir_math_hash(one)));
    assert_false(sglcore_hash_equal(sglir_job_hash(plain), sglir_job_hash(one)));
    assert_false(sglcore_hash_equal(sglir_job_hash(two), sglir_job_hash(one)));
    assert_true(sglcore_hash_equal(sglir_job_hash(twice), sglir_job_hash(one)));
    /* Scopes matter where there are marks, and nowhere else. */
    for (int64_t i = 0; i < plain->origins.count; i++) plain->origins.data[i].scope = 0;
    for (int64_t i = 0; i < twice->origins.count; i++) twice->origins.data[i].scope = 0;
    assert_false(sglcore_hash_equal(sglir_job_hash(twice), sglir_job_hash(one)));
    sglir_graph *bare = model(&s, 0);
    assert_true(sglcore_hash_equal(sglir_job_hash(plain), sglir_job_hash(bare)));
    /* "blocks.1" is not "blocks.10", and no mark of a module that is not there does anything. */
    sglir_recompute(bare, "blocks.1");
    sglir_recompute(bare, "block");
    sglir_graph *made = run(&s, bare, "recompute");
    for (int64_t n = 0; n < made->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(made, (sglir_id)n);
        if (node->epoch == 0) continue;
        const char *scope = sglcore_string(made->strings, made->origins.data[node->origin].scope);
        assert_true(strcmp(scope, "blocks.1") == 0);
    }
    assert_true(clones_of(made) > 0);
    sglir_graph *graphs[] = { plain, one, two, twice, bare, made };
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) sglir_graph_free(graphs[i]);
    assert_int_equal(s.env.bytes_in_use, 0);
}

/* ---- failing allocations ------------------------------------------------------------------------------------------------ */

static sgl_status make_again(sglcore_env *env, void *text)
{
    sglplan plan;
    sglplan_init(&plan);
    const sglpass_context context = { .env = env, .plan = &plan, .give_back = INT64_MAX };
    sglir_graph *g = NULL, *made = NULL;
    SGLCORE_TRY(sglir_parse(env, "small", text, strlen(text), &g));
    sgl_status status = sglpass_recompute(&context, g, &made);
    sglir_graph_free(made);
    sglir_graph_free(g);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    setup s;
    begin(&s, 2);
    const transformer_sizes small = { .layers = 1, .batch = 2, .seq = 3, .dim = 4, .heads = 1, .ffn = 8, .vocab = 5 };
    sglir_graph *g = NULL;
    assert_int_equal(transformer_graph(&s.env, &small, &g), SGL_OK);
    sglir_recompute(g, "blocks.0");
    sglir_graph *before = run(&s, g, "simplify-again"), *after = run(&s, g, "recompute");
    assert_true(clones_of(after) > 0);
    sglcore_text text = ir_case_print(&s.env, before);
    fault_each_allocation(make_again, text.data);
    sglcore_text_free(&s.env, &text);
    sglir_graph_free(g);
    sglir_graph_free(before);
    sglir_graph_free(after);
    assert_int_equal(s.env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_peak_falls), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_marks),      cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
