/* test_memory.c -- the pass `memory` and its packing: placed graphs run on paper byte by byte, for random graphs of the
 * whole pipeline and for random plumbing (views, partial updates, loops, states that trade places); packings against
 * every order of small sets; the peak of a transformer's step against its bound; the same bits again; failing
 * allocations. ctest: timeout 300 */
#include "fault.h"

#include <stdio.h>

#include "passes/memory_pack.h"
#include "passes/pass.h"
#include "tests/support/ir_case.h"
#include "tests/support/place_check.h"
#include "tests/support/random_graph.h"
#include "tests/support/transformer_graph.h"

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

static bool meet(const sglpass_block *a, const sglpass_block *b)
{
    return a->first <= b->last && b->first <= a->last && a->bytes > 0 && b->bytes > 0;
}

static void check_packing(const sglpass_block *blocks, int count, int64_t alignment, const sglpass_packing *packing)
{
    int64_t end = 0;
    for (int i = 0; i < count; i++) {
        assert_int_equal(blocks[i].offset % alignment, 0);
        assert_true(blocks[i].offset >= 0);
        if (blocks[i].offset + blocks[i].bytes > end) end = blocks[i].offset + blocks[i].bytes;
        for (int k = 0; k < i; k++) {
            if (!meet(&blocks[i], &blocks[k])) continue;
            assert_true(blocks[i].offset + blocks[i].bytes <= blocks[k].offset ||
                        blocks[k].offset + blocks[k].bytes <= blocks[i].offset);
        }
    }
    assert_int_equal(packing->bytes, end);
    for (int64_t t = 0; t < 64; t++) {
        int64_t live = 0;
        for (int i = 0; i < count; i++) live += blocks[i].first <= t && t <= blocks[i].last ? blocks[i].bytes : 0;
        assert_true(live <= packing->lower_bound);
    }
    assert_true(packing->lower_bound <= packing->bytes);
}

/* Each block as low as it goes, in the order given. */
static int64_t lowest_first(sglpass_block *blocks, const int *order, int count)
{
    int64_t most = 0;
    for (int k = 0; k < count; k++) {
        sglpass_block *block = &blocks[order[k]];
        block->offset = 0;
        for (int i = 0; i < k; i++) {
            const sglpass_block *other = &blocks[order[i]];
            if (!meet(block, other) || block->offset >= other->offset + other->bytes ||
                other->offset >= block->offset + block->bytes)
                continue;
            block->offset = other->offset + other->bytes;
            i = -1; /* moved: all others anew */
        }
        if (block->offset + block->bytes > most) most = block->offset + block->bytes;
    }
    return most;
}

/* The fewest bytes over all orders: some order places every block of a best packing as low as it goes. */
static int64_t fewest(sglpass_block *blocks, int *order, int placed, int count)
{
    if (placed == count) return lowest_first(blocks, order, count);
    int64_t best = INT64_MAX;
    for (int i = placed; i < count; i++) {
        int swapped = order[placed];
        order[placed] = order[i];
        order[i] = swapped;
        int64_t bytes = fewest(blocks, order, placed + 1, count);
        if (bytes < best) best = bytes;
        order[i] = order[placed];
        order[placed] = swapped;
    }
    return best;
}

static void test_small_packings(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    uint64_t random = 1;
    for (int round = 0; round < 200; round++) {
        sglpass_block blocks[6], copy[6];
        int order[6], count = 1 + (int)draw(&random, 6);
        for (int i = 0; i < count; i++) {
            int64_t first = (int64_t)draw(&random, 8);
            blocks[i] = (sglpass_block){ .bytes = 64 * (int64_t)draw(&random, 9),
                                         .first = first,
                                         .last = first + (int64_t)draw(&random, 5) };
            order[i] = i;
        }
        memcpy(copy, blocks, sizeof copy);
        sglpass_packing packing;
        assert_int_equal(sglpass_pack_blocks(&env, blocks, count, 16, 64, &packing), SGL_OK);
        check_packing(blocks, count, 64, &packing);
        int64_t best = fewest(copy, order, 0, count);
        if (packing.bytes > best + best / 64)
            fail_msg("round %d: %lld bytes, %lld are enough", round, (long long)packing.bytes, (long long)best);
    }
}

static void test_large_packings(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    uint64_t random = 2;
    static sglpass_block blocks[300];
    for (int round = 0; round < 20; round++) {
        int count = 50 + (int)draw(&random, 250);
        for (int i = 0; i < count; i++) {
            int64_t first = (int64_t)draw(&random, 60), last = first + (int64_t)draw(&random, 12);
            blocks[i] = (sglpass_block){ .bytes = 1 + (int64_t)draw(&random, 5000),
                                         .first = first,
                                         .last = last < 63 ? last : 63 };
        }
        sglpass_packing packing;
        assert_int_equal(sglpass_pack_blocks(&env, blocks, count, 64, 64, &packing), SGL_OK);
        check_packing(blocks, count, 64, &packing);
        assert_true((double)packing.bytes <= 1.15 * (double)packing.lower_bound);
    }
    sglpass_packing none;
    assert_int_equal(sglpass_pack_blocks(&env, NULL, 0, 1, 64, &none), SGL_OK);
    assert_int_equal(none.bytes, 0);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- placed graphs ---------------------------------------------------------------------------------------------- */

/* Some nodes need workspace. */
static int64_t some_workspace(const sglir_graph *g, sglir_id node)
{
    uint16_t op = g->nodes.data[node].op;
    return op == SGLIR_OP_DOT || op == SGLIR_OP_FUSED ? 48 + 16 * (int64_t)(g->nodes.data[node].arg_count % 3) : 0;
}

static void fail_with_graph(sglcore_env *env, int64_t seed, const char *message, const sglir_graph *g)
{
    sglcore_text text = ir_case_print(env, g);
    print_error("seed %lld: %s\n%s\n", (long long)seed, message, text.data);
    sglcore_text_free(env, &text);
    fail();
}

static sglpass_context context_of(sglcore_env *env, sglplan *plan)
{
    return (sglpass_context){ .env = env, .plan = plan, .workspace = some_workspace };
}

/* Places g, and holds what comes out against the verifier, the check on paper, and the interpreter. */
static void check_memory(sglcore_env *env, const sglir_graph *g, int64_t seed, int64_t *bytes)
{
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = context_of(env, &plan);
    sglir_graph *placed, *again;
    ir_message message;
    if (sglpass_memory(&context, g, &placed) != SGL_OK) fail_with_graph(env, seed, env->message, g);
    if (sglir_verify(placed, SGLIR_PLACED) != SGL_OK) fail_with_graph(env, seed, env->message, placed);
    if (!place_check(env, placed, &message)) fail_with_graph(env, seed, message.text, placed);
    if (!ir_case_same_meaning(g, placed, (uint64_t)seed, (ir_tolerance){ 0 }, &message))
        fail_with_graph(env, seed, message.text, placed);
    assert_int_equal(sglpass_memory(&context, g, &again), SGL_OK);
    assert_true(sglcore_hash_equal(sglir_job_hash(placed), sglir_job_hash(again))); /* places are part of it */
    if (bytes != NULL) *bytes = placed->arena_lower_bound;
    sglir_graph_free(placed);
    sglir_graph_free(again);
}

/* The random graphs of the whole pipeline, up to and with the pass named. */
static sglir_graph *pipeline_graph(sglcore_env *env, uint64_t seed, const char *until)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = seed % 3 == 0 ? 3 : 1; /* their batch is 3 */
    sglpass_context context = context_of(env, &plan);
    sglir_graph *g = random_graph(env, seed), *made = NULL;
    assert_non_null(g);
    if (sglpass_run(&context, g, until, &made) != SGL_OK) fail_with_graph(env, (int64_t)seed, env->message, g);
    sglir_graph_free(g);
    return made;
}

static void test_pipeline_graphs(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int64_t given = 0, ordered = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        int64_t before, after;
        sglir_graph *fused = pipeline_graph(&env, seed, "fuse"), *scheduled = pipeline_graph(&env, seed, "schedule");
        check_memory(&env, fused, (int64_t)seed, &before);
        check_memory(&env, scheduled, (int64_t)seed, &after);
        given += before;
        ordered += after;
        sglir_graph_free(fused);
        sglir_graph_free(scheduled);
    }
    assert_int_equal(env.bytes_in_use, 0);
    assert_true(ordered < given); /* what the order is for */
}

/* ---- plumbing --------------------------------------------------------------------------------------------------- */

enum { POOL = 96, STATES = 4, FULL_COUNT = 64 };

/* Values of 64 floats in a few shapes, drawn and joined by ops that move them about. */
typedef struct plumber {
    sglir_graph *g;
    uint64_t random;
    sglir_id pool[POOL], states[STATES], at;
    int count, depth;
} plumber;

static sglir_id any(plumber *p) { return p->pool[draw(&p->random, (uint64_t)p->count)]; }

static sglir_id shaped(plumber *p, sglir_id value, int rank)
{
    static const int64_t flat[1] = { FULL_COUNT }, square[2] = { 8, 8 };
    return sglir_reshape(p->g, value, rank, rank == 1 ? flat : square);
}

static void keep(plumber *p, sglir_id value)
{
    if (p->count < POOL)
        p->pool[p->count++] = value;
    else
        p->pool[draw(&p->random, POOL)] = value;
}

/* A kernel of two arguments: elementwise, or reading the first transposed, or shifted by a row maximum. */
static void add_kernel(plumber *p)
{
    sglir_graph *g = p->g;
    sglir_id args[2] = { shaped(p, any(p), 2), shaped(p, any(p), 2) }, inner[2], results[2], outs[2];
    const int64_t domain[2] = { 8, 8 }, order[2] = { 1, 0 }, row[1] = { 1 };
    const sglir_type types[2] = { *sglir_type_of(g, args[0]), *sglir_type_of(g, args[1]) };
    sglir_id region = sglir_region_begin(g, types, 2, inner), x = inner[0];
    switch (draw(&p->random, 4)) {
    case 0: x = sglir_transpose(g, x, order); break;
    case 1:
        x = sglir_sub(g, x, sglir_broadcast_like(g, sglir_reduce(g, SGLIR_OP_REDUCE_MAX, x, row, 1, true), x));
        break;
    default: break;
    }
    results[0] = sglir_unary(g, SGLIR_OP_TANH, sglir_add(g, x, inner[1]));
    results[1] = sglir_unary(g, SGLIR_OP_SIN, results[0]);
    int count = 1 + (int)draw(&p->random, 2);
    if (draw(&p->random, 5) == 0) results[0] = sglir_transpose(g, results[0], order);
    sglir_region_end(g, results, count);
    const sglir_named attrs[] = { SGLIR_INTS("domain", 2, domain), SGLIR_I("inner", 1) };
    sglir_emit_regions(g, SGLIR_OP_FUSED, args, 2, attrs, 2, &region, 1, outs);
    for (int i = 0; i < count; i++) keep(p, outs[i]);
}

static void add_update(plumber *p)
{
    sglir_id x = shaped(p, any(p), 2), from = shaped(p, any(p), 2);
    const sglir_named axis[] = { SGLIR_I("axis", 0), SGLIR_I("size", 2) };
    const sglir_id slice_args[] = { from, p->at };
    sglir_id part = sglir_emit(p->g, SGLIR_OP_DYNAMIC_SLICE, slice_args, 2, axis, 2, NULL);
    const sglir_id args[] = { x, part, p->at };
    keep(p, sglir_emit(p->g, SGLIR_OP_DYNAMIC_UPDATE, args, 3, axis, 1, NULL));
}

static void add_views(plumber *p)
{
    sglir_id x = shaped(p, any(p), 1), parts[2];
    const int64_t ranks[2] = { 1, 1 }, dims[2] = { 24, 40 };
    const sglir_named attrs[] = { SGLIR_INTS("ranks", 2, ranks), SGLIR_INTS("dims", 2, dims) };
    sglir_emit(p->g, SGLIR_OP_UNPACK, &x, 1, attrs, 2, parts);
    if (draw(&p->random, 2)) {
        sglir_id turned[2] = { parts[1], parts[0] };
        keep(p, sglir_emit(p->g, SGLIR_OP_PACK, turned, 2, NULL, 0, NULL));
        return;
    }
    const sglir_id args[] = { x, parts[draw(&p->random, 2)], p->at };
    const sglir_named axis = SGLIR_I("axis", 0);
    keep(p, sglir_emit(p->g, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &axis, 1, NULL));
}

static void add_dot(plumber *p)
{
    const int64_t one[1] = { 1 }, zero[1] = { 0 };
    keep(p, sglir_dot(p->g, shaped(p, any(p), 2), shaped(p, any(p), 2), 0, NULL, NULL, 1, one, zero));
}

static void add_some(plumber *p, int count);

/* A loop whose turns yield what they please: carries in another order, values from around, one value twice. */
static void add_loop(plumber *p)
{
    sglir_graph *g = p->g;
    enum { MOST = 3 };
    int carries = 1 + (int)draw(&p->random, MOST), before = p->count;
    sglir_id args[MOST], inner[MOST + 1], results[MOST], saved[POOL], at = p->at;
    sglir_type types[MOST + 1] = { sglir_type_make(SGL_I64, 0, NULL) };
    for (int i = 0; i < carries; i++) {
        args[i] = shaped(p, any(p), 2);
        types[i + 1] = *sglir_type_of(g, args[i]);
    }
    memcpy(saved, p->pool, sizeof saved);
    sglir_id region = sglir_region_begin(g, types, carries + 1, inner);
    if (draw(&p->random, 2)) p->at = inner[0];
    for (int i = 0; i < carries; i++) {
        keep(p, inner[i + 1]);
        keep(p, inner[i + 1]); /* drawn more often */
    }
    p->depth++;
    add_some(p, 3);
    p->depth--;
    for (int i = 0; i < carries; i++)
        results[i] = shaped(p, draw(&p->random, 3) ? p->pool[p->count - 1 - (int)draw(&p->random, 4)] : any(p), 2);
    sglir_region_end(g, results, carries);
    memcpy(p->pool, saved, sizeof saved);
    p->count = before;
    p->at = at;
    const sglir_named steps = SGLIR_I("steps", 3);
    sglir_emit_regions(g, SGLIR_OP_SCAN, args, carries, &steps, 1, &region, 1, results);
    for (int i = 0; i < carries; i++) keep(p, results[i]);
}

static void add_some(plumber *p, int count)
{
    for (int i = 0; i < count; i++) {
        switch (draw(&p->random, 8)) {
        case 0: add_update(p); break;
        case 1: add_views(p); break;
        case 2: add_dot(p); break;
        case 3: keep(p, sglir_emit(p->g, SGLIR_OP_COPY, (sglir_id[]){ any(p) }, 1, NULL, 0, NULL)); break;
        case 4:
            if (p->depth < 2) add_loop(p);
            break;
        default: add_kernel(p); break;
        }
    }
}

static sglir_graph *plumbing(sglcore_env *env, uint64_t seed)
{
    plumber p = { .random = seed };
    assert_int_equal(sglir_graph_new(env, "plumbing", &p.g), SGL_OK);
    const int64_t square[2] = { 8, 8 };
    const sglir_type full = sglir_type_make(SGL_F32, 2, square), number = sglir_type_make(SGL_I64, 0, NULL);
    static const char *const names[STATES] = { "a", "b", "c", "d" };
    for (int i = 0; i < STATES; i++) keep(&p, p.states[i] = sglir_input(p.g, SGL_STATE, names[i], &full));
    keep(&p, sglir_input(p.g, SGL_FEED, "x", &full));
    p.at = sglir_input(p.g, SGL_FEED, "at", &number);
    add_some(&p, 12);
    for (int i = 0; i < STATES; i++) {
        sglir_id value = draw(&p.random, 4) == 0 ? p.states[draw(&p.random, STATES)] : any(&p);
        if (draw(&p.random, 5)) sglir_output_add(p.g, SGLIR_UPDATE, names[i], shaped(&p, value, 2));
    }
    sglir_output_add(p.g, SGLIR_FETCH, "y", any(&p));
    sglir_output_add(p.g, SGLIR_FETCH, "z", shaped(&p, any(&p), 1));
    sglir_output_add(p.g, SGLIR_FETCH, "at", p.at);
    assert_int_equal(sglir_status(p.g), SGL_OK);
    return p.g;
}

static void test_plumbing(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = context_of(&env, &plan);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        sglir_graph *g = plumbing(&env, seed), *scheduled;
        if (sglir_verify(g, SGLIR_FUSED) != SGL_OK) fail_with_graph(&env, (int64_t)seed, env.message, g);
        check_memory(&env, g, (int64_t)seed, NULL);
        assert_int_equal(sglpass_schedule(&context, g, &scheduled), SGL_OK);
        if (sglir_verify(scheduled, SGLIR_FUSED) != SGL_OK)
            fail_with_graph(&env, (int64_t)seed, env.message, scheduled);
        check_memory(&env, scheduled, (int64_t)seed, NULL);
        sglir_graph_free(g);
        sglir_graph_free(scheduled);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- a transformer's step ----------------------------------------------------------------------------------------- */

static void check_peak(int64_t layers, int64_t micro)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = micro;
    plan.native[SGLIR_OP_ATTENTION] = plan.native[SGLIR_OP_ATTENTION_GRAD] = true;
    plan.native[SGLIR_OP_LINEAR_CROSS_ENTROPY] = plan.native[SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD] = true;
    sglpass_context context = context_of(&env, &plan);
    sglir_graph *g = NULL, *placed = NULL;
    transformer_sizes sizes = {
        .layers = layers, .batch = 8, .seq = 32, .dim = 64, .heads = 4, .ffn = 128, .vocab = 96, .dtype = SGL_F32
    };
    if (transformer_graph(&env, &sizes, &g) != SGL_OK) fail_msg("%s", env.message);
    if (sglpass_run(&context, g, NULL, &placed) != SGL_OK) fail_msg("%s", env.message);
    assert_int_equal(sglir_verify(placed, SGLIR_PLACED), SGL_OK);
    double ratio = (double)placed->space_bytes[SGLIR_SPACE_ARENA] / (double)placed->arena_lower_bound;
    print_message("%d layers, micro %d: arena %lld bytes, at least %lld, ratio %.4f\n", (int)layers, (int)micro,
                  (long long)placed->space_bytes[SGLIR_SPACE_ARENA], (long long)placed->arena_lower_bound, ratio);
    assert_true(ratio <= 1.02);
    int updates = 0; /* parameters and both moments, in place */
    for (int64_t i = 0; i < placed->outputs.count; i++) {
        if (placed->outputs.data[i].role != SGLIR_UPDATE) continue;
        assert_int_equal(sglir_value_at(placed, placed->outputs.data[i].value)->space, SGLIR_SPACE_STATE);
        updates++;
    }
    assert_int_equal(updates, 3);
    ir_message message;
    if (layers <= 2 && !place_check(&env, placed, &message)) fail_msg("%s", message.text);
    sglir_graph_free(g);
    sglir_graph_free(placed);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_transformer_peak(void **state)
{
    (void)state;
    check_peak(2, 1);
    check_peak(2, 4);
    check_peak(12, 1);
    check_peak(12, 2);
}

/* ---- failing allocations -------------------------------------------------------------------------------------------- */

static sgl_status place_plumbing(sglcore_env *env, void *context)
{
    sglcore_env plain;
    sglcore_env_init(&plain, NULL, NULL, NULL, NULL);
    sglir_graph *g = plumbing(&plain, *(uint64_t *)context), *scheduled = NULL, *placed = NULL;
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context told = context_of(env, &plan);
    sgl_status status = sglpass_schedule(&told, g, &scheduled);
    if (status == SGL_OK) status = sglpass_memory(&told, scheduled, &placed);
    sglir_graph_free(scheduled);
    sglir_graph_free(placed);
    sglir_graph_free(g);
    assert_int_equal(plain.bytes_in_use, 0);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    uint64_t seed = 3;
    assert_true(fault_each_allocation(place_plumbing, &seed) > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_packings),   cmocka_unit_test(test_large_packings),
        cmocka_unit_test(test_pipeline_graphs),  cmocka_unit_test(test_plumbing),
        cmocka_unit_test(test_transformer_peak), cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
