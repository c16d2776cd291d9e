/* test_passes.c -- the whole pipeline, pass by pass, over seeded random graphs and a small transformer: after every pass
 * the graph must verify at that pass's stage, go through print and parse unchanged, and mean what it meant before.
 * Gradients are held against central differences first, and every later pass against autodiff's result.
 * ctest: timeout 300 */
#include "fault.h"

#include <stdio.h>

#include "exec/kernel.h"
#include "passes/pass.h"
#include "tests/support/ir_case.h"
#include "tests/support/random_graph.h"

typedef struct setting {
    int64_t micro;
    bool native; /* the device runs every composite whole */
} setting;

static void fail_with_graph(sglcore_env *env, const char *what, const char *pass, const char *message,
                            const sglir_graph *g)
{
    sglcore_text text = ir_case_print(env, g);
    print_error("%s, pass %s: %s\n%s\n", what, pass, message, text.data);
    sglcore_text_free(env, &text);
    fail();
}

static bool has_grad(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op == SGLIR_OP_GRAD) return true;
    }
    return false;
}

/* Every fused region is one that a kernel can be made of: the contract of exec/kernel.h. */
static void check_kernels(sglcore_env *env, const sglir_graph *g, const char *what)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op != SGLIR_OP_FUSED) continue;
        sglexec_kernel kernel;
        if (sglexec_kernel_build(env, g, (sglir_id)n, &kernel) != SGL_OK)
            fail_with_graph(env, what, "fuse", env->message, g);
        sglexec_kernel_free(env, &kernel);
    }
}

/* Runs every pass over g; `what` names the graph in messages. */
static void check_pipeline(sglcore_env *env, sglir_graph *g, setting with, const char *what)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = with.micro;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        uint32_t flags = sglir_ops[op].flags;
        plan.native[op] = with.native && (flags & SGLIR_COMPOSITE) && !(flags & SGLIR_ELEMENTWISE);
    }
    sglpass_context context = { .env = env, .plan = &plan };
    ir_message message;
    if (sglir_verify(g, SGLIR_LOGICAL) != SGL_OK) fail_with_graph(env, what, "none", env->message, g);
    sglir_graph *base = g, *now = g;
    for (const sglpass *pass = sglpass_pipeline; pass->name != NULL; pass++) {
        sglir_graph *next = NULL;
        if (pass->run(&context, now, &next) != SGL_OK) fail_with_graph(env, what, pass->name, env->message, now);
        if (sglir_verify(next, pass->stage) != SGL_OK) fail_with_graph(env, what, pass->name, env->message, next);
        if (!ir_case_round_trip(env, next, &message)) fail_with_graph(env, what, pass->name, message.text, next);
        ir_tolerance tolerance = { 1e-10, 1e-12 };
        if (has_grad(base) || has_grad(next)) tolerance = (ir_tolerance){ 1e-5, 1e-7 };
        if (!ir_case_same_meaning(base, next, 7, tolerance, &message)) {
            fail_with_graph(env, what, pass->name, message.text, next);
        }
        check_kernels(env, next, what);
        if (now != g && now != base) sglir_graph_free(now);
        if (has_grad(base) && !has_grad(next)) {
            if (base != g) sglir_graph_free(base);
            base = next;
        }
        now = next;
    }
    if (now != base && now != g) sglir_graph_free(now);
    if (base != g) sglir_graph_free(base);
}

static void check_random(uint64_t first, uint64_t count)
{
    for (uint64_t seed = first; seed < first + count; seed++) {
        for (int native = 0; native <= 1; native++) {
            fault_heap heap = { 0 };
            sglcore_env env = fault_env(&heap);
            sglir_graph *g = random_graph(&env, seed);
            char what[64];
            snprintf(what, sizeof what, "seed %llu%s", (unsigned long long)seed, native ? ", native composites" : "");
            if (g == NULL) fail_msg("%s: %s", what, env.message);
            check_pipeline(&env, g, (setting){ .micro = 1, .native = native != 0 }, what);
            sglir_graph_free(g);
            assert_int_equal(heap.live_blocks, 0);
        }
    }
}

static void test_random_graphs(void **state)
{
    (void)state;
    check_random(1, 60);
}

/* ---- a transformer ------------------------------------------------------------------------------------------ */

static const char transformer[] =
    "graph \"train\" {\n"
    "  %0 = input() {role=2, name=\"tokens\", dtype=i32, dims=[4,3]}\n"
    "  %1 = input() {role=2, name=\"targets\", dtype=i32, dims=[4,3]}\n"
    "  %2 = input() {role=0, name=\"embed\", dtype=f64, dims=[5,8]}\n"
    "  %3 = input() {role=0, name=\"wq\", dtype=f64, dims=[8,8]}\n"
    "  %4 = input() {role=0, name=\"wkv\", dtype=f64, dims=[8,8]}\n"
    "  %5 = input() {role=0, name=\"wo\", dtype=f64, dims=[8,8]}\n"
    "  %6 = input() {role=0, name=\"norm\", dtype=f64, dims=[8]}\n"
    "  %7 = input() {role=1, name=\"momentum\", dtype=f64, dims=[240]}\n"
    "  %8 = input() {role=2, name=\"lr\", dtype=f64, dims=[]}\n"
    "  %10 = gather(%2, %0)\n"
    "  %11 = rms_norm(%10, %6)\n"
    "  %12 = linear(%11, %3)\n"
    "  %13 = linear(%11, %4)\n"
    "  %14 = reshape(%12) {dims=[4,3,2,4]}\n"
    "  %15 = slice(%13) {axis=2, start=0, stop=4}\n"
    "  %16 = slice(%13) {axis=2, start=4, stop=8}\n"
    "  %17 = reshape(%15) {dims=[4,3,1,4]}\n"
    "  %18 = reshape(%16) {dims=[4,3,1,4]}\n"
    "  %19 = constant() {value=0, dtype=i64}\n"
    "  %20 = rope(%14, %19) {theta=100}\n"
    "  %21 = rope(%17, %19) {theta=100}\n"
    "  %22, %23 = attention(%20, %21, %18, %19) {scale=0.5}\n"
    "  %24 = reshape(%22) {dims=[4,3,8]}\n"
    "  %25 = linear(%24, %5)\n"
    "  %26 = add(%10, %25)\n"
    "  %27 = linear_cross_entropy(%26, %2, %1) {ignore=3}\n"
    "  %28 = reduce_sum(%27) {axes=[0,1]}\n"
    "  %29 = constant() {value=3, dtype=i32}\n"
    "  %30 = broadcast(%29) {dims=[4,3]}\n"
    "  %31 = not_equal(%1, %30)\n"
    "  %32 = cast(%31) {to=f64}\n"
    "  %33 = reduce_sum(%32) {axes=[0,1]}\n"
    "  %34 = constant() {value=1, dtype=f64}\n"
    "  %35 = maximum(%33, %34)\n"
    "  %36 = div(%28, %35)\n"
    "  %37, %38, %39, %40, %41 = grad(%36, %2, %3, %4, %5, %6)\n"
    "  %42 = pack(%37, %38, %39, %40, %41)\n"
    "  %43 = pack(%2, %3, %4, %5, %6)\n"
    "  %44 = constant() {value=0.9, dtype=f64}\n"
    "  %45 = broadcast(%44) {dims=[240]}\n"
    "  %46 = mul(%7, %45)\n"
    "  %47 = add(%46, %42)\n"
    "  %48 = broadcast(%8) {dims=[240]}\n"
    "  %49 = mul(%47, %48)\n"
    "  %50 = sub(%43, %49)\n"
    "  %51, %52, %53, %54, %55 = unpack(%50) {ranks=[2,2,2,2,1], dims=[5,8,8,8,8,8,8,8,8]}\n"
    "  %56 = mul(%42, %42)\n"
    "  %57 = reduce_sum(%56) {axes=[0]}\n"
    "  %58 = sqrt(%57)\n"
    "  fetch \"loss\" %36\n"
    "  fetch \"grad_norm\" %58\n"
    "  update \"embed\" %51\n"
    "  update \"wq\" %52\n"
    "  update \"wkv\" %53\n"
    "  update \"wo\" %54\n"
    "  update \"norm\" %55\n"
    "  update \"momentum\" %47\n"
    "}\n";

static void check_transformer(int64_t micro)
{
    for (int native = 0; native <= 1; native++) {
        fault_heap heap = { 0 };
        sglcore_env env = fault_env(&heap);
        ir_message message;
        sglir_graph *g = ir_case_parse(&env, "transformer", transformer, &message);
        if (g == NULL) fail_msg("%s", message.text);
        char what[64];
        snprintf(what, sizeof what, "transformer, micro %lld%s", (long long)micro, native ? ", native composites" : "");
        check_pipeline(&env, g, (setting){ .micro = micro, .native = native != 0 }, what);
        sglir_graph_free(g);
        assert_int_equal(heap.live_blocks, 0);
    }
}

static void test_transformer(void **state)
{
    (void)state;
    check_transformer(1);
}

static void test_transformer_in_micro_batches(void **state)
{
    (void)state;
    check_transformer(2);
    check_transformer(4);
}

/* ---- failing allocations ------------------------------------------------------------------------------------ */

static sgl_status run_pipeline(sglcore_env *env, void *context)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_MICRO] = 2;
    sglpass_context told = { .env = env, .plan = &plan };
    sglir_graph *g, *made = NULL;
    SGLCORE_TRY(sglir_parse(env, "transformer", transformer, sizeof transformer - 1, &g));
    sgl_status status = sglpass_run(&told, g, context, &made);
    sglir_graph_free(made);
    sglir_graph_free(g);
    return status;
}

static void test_whole_run(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    assert_int_equal(run_pipeline(&env, NULL), SGL_OK);
    assert_int_equal(heap.live_blocks, 0);
}

/* ---- what a pass says of itself --------------------------------------------------------------------------------- */

static sgl_status copy_and_say(const sglpass_context *context, const sglir_graph *in, bool changed, sglir_graph **out)
{
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "liar", NULL, NULL, out));
    sglpass_say(context, in, *out, changed);
    return SGL_OK;
}

static sgl_status says_changed(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    return copy_and_say(context, in, true, out);
}

static sgl_status says_nothing_changed(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    SGLCORE_TRY(copy_and_say(context, in, false, out));
    (*out)->nodes.data[0].epoch++;
    return SGL_OK;
}

static sgl_status writes_into_its_input(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    ((sglir_graph *)(uintptr_t)in)->arena_lower_bound++;
    return copy_and_say(context, in, false, out);
}

static sgl_status is_honest(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    return copy_and_say(context, in, false, out);
}

static atomic_int interrupted;

static sgl_status asks_to_stop(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    interrupted = 1; /* as a signal would, somewhere in the pass */
    return copy_and_say(context, in, false, out);
}

/* Runs `is_honest`, then the pass, then `is_honest` again over the transformer. */
static void check_list(sglpass_fn pass, sgl_status wanted, const char *message)
{
    const sglpass list[] = { { .name = "honest", .run = is_honest, .stage = SGLIR_LOGICAL },
                             { .name = "suspect", .run = pass, .stage = SGLIR_LOGICAL },
                             { .name = "after", .run = is_honest, .stage = SGLIR_LOGICAL },
                             { .name = NULL } };
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglplan plan;
    sglplan_init(&plan);
    const sglpass_context context = { .env = &env, .plan = &plan, .interrupted = &interrupted };
    ir_message told;
    sglir_graph *g = ir_case_parse(&env, "transformer", transformer, &told), *made = NULL;
    if (g == NULL) fail_msg("%s", told.text);
    assert_int_equal(sglpass_run_list(&context, list, g, NULL, &made), wanted);
    if (wanted != SGL_OK) assert_string_equal(env.message, message);
    sglir_graph_free(made);
    sglir_graph_free(g);
    assert_int_equal(heap.live_blocks, 0);
}

static void test_what_passes_say(void **state)
{
    (void)state;
    setenv("SGL_VERIFY", "1", 1);
    check_list(is_honest, SGL_OK, "");
    check_list(says_changed, SGL_INTERNAL,
               "pass suspect says that it changed the graph, and made the same (\"train\")");
    check_list(says_nothing_changed, SGL_INTERNAL,
               "pass suspect says that it changed nothing, and made another graph (\"train\")");
    check_list(writes_into_its_input, SGL_INTERNAL, "pass suspect wrote into the graph that it was given (\"train\")");
}

/* ---- interruptions ---------------------------------------------------------------------------------------------- */

static void test_interrupt_between_passes(void **state)
{
    (void)state;
    check_list(asks_to_stop, SGL_INTERRUPTED, "interrupted before the pass after of the graph \"train\"");
    check_list(is_honest, SGL_INTERRUPTED, "interrupted before the pass honest of the graph \"train\"");
    interrupted = 0;
    check_list(is_honest, SGL_OK, "");
}

enum { LONG = 100000 };

typedef struct host {
    sgl_vm *vm;
    int64_t left; /* requests for memory until it asks to stop; 0: it does not */
} host;

static void *host_alloc(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    host *h = user;
    (void)old_bytes;
    if (h->left > 0 && --h->left == 0) sgl_interrupt(h->vm);
    if (new_bytes > 0) return realloc(block, new_bytes);
    free(block);
    return NULL;
}

static sgl_graph *chain(sgl_vm *vm, int nodes)
{
    sgl_graph *graph;
    sgl_value value;
    const sgl_type type = { .dtype = SGL_F32, .rank = 1, .dims = { 8 } };
    assert_int_equal(sgl_graph_new(vm, "chain", &graph), SGL_OK);
    assert_int_equal(sgl_input(graph, SGL_FEED, "x", &type, &value), SGL_OK);
    for (int i = 0; i < nodes; i++)
        assert_int_equal(sgl_emit(graph, i % 2 ? "tanh" : "sin", &value, 1, NULL, 0, &value, 1, NULL), SGL_OK);
    assert_int_equal(sgl_output_fetch(graph, "y", value), SGL_OK);
    return graph;
}

/* A host stops the compilation of a long graph, and can compile another then. */
static void test_interrupt_freeze(void **state)
{
    (void)state;
    host h = { 0 };
    const sgl_config config = { .alloc = host_alloc, .alloc_user = &h };
    sgl_session *session;
    sgl_program *program = NULL;
    assert_int_equal(sgl_open(&config, &h.vm), SGL_OK);
    assert_int_equal(sgl_session_new(h.vm, "null", &session), SGL_OK);
    sgl_graph *large = chain(h.vm, LONG), *small = chain(h.vm, 10);
    h.left = 10;
    assert_int_equal(sgl_freeze(session, large, NULL, &program), SGL_INTERRUPTED);
    assert_string_equal(sgl_error_message(h.vm), "interrupted before the pass precision of the graph \"chain\"");
    assert_null(program);
    assert_int_equal(sgl_freeze(session, small, NULL, &program), SGL_OK);
    sgl_close(h.vm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_transformer_in_micro_batches),
        cmocka_unit_test(test_whole_run),
        cmocka_unit_test(test_what_passes_say),
        cmocka_unit_test(test_interrupt_between_passes),
        cmocka_unit_test(test_interrupt_freeze),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
