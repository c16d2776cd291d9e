/* test_shard.c -- layouts over ranks: whatever mesh a step is laid out over, its numbers are those of one rank, on every rank;
 * rows that no number of ranks divides; exchanges are no more than must be. All ranks run under the plain interpreter, each in a
 * thread. ctest: timeout 600 */
#include "fault.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_program.h"
#include "tests/support/transformer_whole.h"

typedef struct mesh_case {
    const char *name;
    int64_t extents[SGLIR_AXIS_COUNT];
    int64_t micro;
    const char *layouts;     /* NULL: none; "": drawn for each graph */
    const char *activations; /* NULL: none */
} mesh_case;

static const mesh_case meshes[] = {
    { "dp=2", { [SGLIR_AXIS_DP] = 2 }, 1, NULL, NULL },
    { "dp=3", { [SGLIR_AXIS_DP] = 3 }, 1, NULL, NULL },
    { "dp=2,fsdp=2", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_FSDP] = 2 }, 1, NULL, NULL },
    { "cp=2", { [SGLIR_AXIS_CP] = 2 }, 1, NULL, NULL },
    { "dp=2,cp=3", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_CP] = 3 }, 1, NULL, NULL },
    { "tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, "", NULL },
    { "tp=3", { [SGLIR_AXIS_TP] = 3 }, 1, "", NULL },
    { "dp=2,tp=2", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_TP] = 2 }, 1, "", NULL },
    { "fsdp=2,tp=2", { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 }, 1, "", NULL },
};
static const mesh_case large[] = {
    { "ep=2,tp=2", { [SGLIR_AXIS_EP] = 2, [SGLIR_AXIS_TP] = 2 }, 1, "", NULL },
    { "dp=5", { [SGLIR_AXIS_DP] = 5 }, 1, NULL, NULL },
    { "fsdp=3,cp=2,tp=2", { [SGLIR_AXIS_FSDP] = 3, [SGLIR_AXIS_CP] = 2, [SGLIR_AXIS_TP] = 2 }, 1, "", NULL },
};
enum { MESHES = sizeof meshes / sizeof meshes[0], LARGE = sizeof large / sizeof large[0] };

/* Each parameter that has dimensions is split along one of them, or none, over each axis that is not dp. */
static void draw_layouts(sglplan *plan, const sglir_graph *g, uint64_t seed)
{
    size_t used = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op != SGLIR_OP_INPUT || sglir_attr_int(g, node, "role") != SGL_PARAMETER) continue;
        int rank = sglir_type_of(g, node->out_first)->rank;
        for (int axis = SGLIR_AXIS_FSDP; axis < SGLIR_AXIS_MICRO; axis++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            int dim = (int)((seed >> 33) % (uint64_t)(rank + 1)) - 1;
            if (plan->mesh[axis] == 1 || dim < 0) continue;
            used += (size_t)snprintf(plan->layouts + used, sizeof plan->layouts - used, "%s%s %s:%d", used ? ", " : "",
                                     sglir_attr_string(g, node, "name"), sglir_axis_name(axis), dim);
        }
    }
}

static sglplan plan_of(const mesh_case *c, const sglir_graph *g, uint64_t seed)
{
    sglplan plan;
    sglplan_init(&plan);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (c->extents[axis] > 0) plan.mesh[axis] = c->extents[axis];
    }
    plan.mesh[SGLIR_AXIS_MICRO] = c->micro;
    if (c->layouts) snprintf(plan.layouts, sizeof plan.layouts, "%s", c->layouts);
    if (c->activations) snprintf(plan.activations, sizeof plan.activations, "%s", c->activations);
    if (c->layouts && !*c->layouts) draw_layouts(&plan, g, seed);
    plan.bucket = 1 + (int64_t)(seed % 500); /* some exchanges by themselves, some together */
    return plan;
}

/* g as the rank runs it, up to the pass. */
static sglir_graph *laid_out(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t rank,
                             const char *until)
{
    ir_message message;
    sglir_graph *made = world_check_rank(env, g, plan, rank, until, &message);
    if (made) return made;
    ir_case_show(env, g);
    fail_msg("%s", message.text);
    return NULL;
}

/* Of a sum of several values; 0: of one. */
static uint32_t packed_terms(const sglir_graph *g, const sglir_node *node)
{
    if (node->op != SGLIR_OP_ALL_REDUCE) return 0;
    const sglir_node *maker = sglir_maker(g, sglir_arg(g, node, 0));
    return maker && maker->op == SGLIR_OP_PACK ? maker->arg_count : 0;
}

/* Lays g out over the mesh, runs all ranks, and holds each one's results against those of the whole. */
static void check_mesh(sglcore_env *env, const char *name, const sglir_graph *g, const sglir_graph *expanded,
                       const mesh_case *c, const interp *whole, ir_tolerance tolerance, int *exchanges)
{
    static const sglpass merges[] = { { "collect", sglpass_collect, SGLIR_PER_RANK, true, "" },
                                      { "regather", sglpass_regather, SGLIR_PER_RANK, true, "" },
                                      { NULL, NULL, SGLIR_LOGICAL, false, NULL } };
    const sglplan plan = plan_of(c, expanded, (uint64_t)g->values.count);
    world_check check = { .env = env,
                          .g = g,
                          .whole = whole,
                          .plan = &plan,
                          .until = c->micro > 1 ? "micro" : "shard",
                          .then = merges,
                          .tolerance = tolerance };
    ir_message message;
    const bool good = world_check_run(&check, &message);
    if (!good && check.graphs[0]) ir_case_show(env, check.graphs[0]);
    if (!good) fail_msg("%s over %s (%s): %s", name, c->name, plan.layouts, message.text);
    const int64_t last = sglplan_group_size(&plan, ~(sglplan_axes)0) - 1;
    if (!ir_case_round_trip(env, check.graphs[last], &message)) fail_msg("%s (%s): %s", name, c->name, message.text);
    for (int op = 0; exchanges && op < SGLIR_OP_COUNT; op++) {
        if (sglir_is_exchange(op)) exchanges[op] += ir_case_count(check.graphs[0], (sglir_op)op);
    }
    for (int64_t n = 0; exchanges && n < check.graphs[0]->nodes.count; n++)
        exchanges[SGLIR_OP_PACK] += packed_terms(check.graphs[0], &check.graphs[0]->nodes.data[n]) > 0;
    world_check_free(&check);
}

/* ---- random graphs ---------------------------------------------------------------------------------------------------- */

static void test_random_graphs(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int exchanges[SGLIR_OP_COUNT] = { 0 };
    for (uint64_t seed = 1; seed <= 50; seed++) {
        sglplan alone;
        sglplan_init(&alone);
        sglir_graph *g = random_graph(&env, seed);
        assert_non_null(g);
        sglir_graph *expanded = laid_out(&env, g, &alone, 0, "autodiff");
        interp whole = { 0 };
        char name[32];
        snprintf(name, sizeof name, "seed %d", (int)seed);
        ir_case_fill(&whole, g, seed);
        if (!interp_run(&whole, expanded)) fail_msg("%s: %s", name, whole.error);
        for (int i = 0; i < MESHES; i++)
            check_mesh(&env, name, g, expanded, &meshes[i], &whole, (ir_tolerance){ 1e-10, 1e-12 }, exchanges);
        interp_free(&whole);
        sglir_graph_free(expanded);
        sglir_graph_free(g);
    }
    assert_true(exchanges[SGLIR_OP_ALL_REDUCE] > 100);
    assert_true(exchanges[SGLIR_OP_PACK] > 50);
    assert_true(exchanges[SGLIR_OP_ALL_GATHER] > 100);
    assert_true(exchanges[SGLIR_OP_ALL_TO_ALL] + exchanges[SGLIR_OP_ALL_TO_ALL_EACH] > 10);
    assert_true(exchanges[SGLIR_OP_ALL_TO_ALL_EACH] > 1);
}

/* ---- random programs -------------------------------------------------------------------------------------------------- */

/* All results of b are those of a, but for roundings. */
static bool is_settled(const interp *a, const interp *b)
{
    for (int update = 0; update < 2; update++) {
        const interp_named *list = update ? a->updates : a->fetches;
        for (int i = 0; i < (update ? a->update_count : a->fetch_count); i++) {
            const interp_tensor *x = &list[i].tensor;
            const interp_tensor *y = update ? interp_update(b, list[i].name) : interp_fetch(b, list[i].name);
            double largest = 1;
            for (int64_t e = 0; e < x->count; e++) largest = fmax(largest, fabs(interp_get(x, e)));
            for (int64_t e = 0; e < x->count; e++) {
                if (!(fabs(interp_get(x, e) - interp_get(y, e)) <= 1e-11 * largest)) return false; /* NaN, too */
            }
        }
    }
    return true;
}

typedef struct program_counts {
    int compared, looped;
} program_counts;

/* A program over all ops, with regions; but one in which a rounding of a double moves much, or numbers are not finite. */
static void check_program(uint64_t seed, const mesh_case *over, int count, program_counts *counts)
{
    sglcore_env env;
    sglplan alone;
    random_traits traits;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan_init(&alone);
    sglir_graph *g = random_program(&env, seed, &traits);
    assert_non_null(g);
    sglir_graph *expanded = laid_out(&env, g, &alone, 0, "autodiff");
    interp whole = { 0 }, moved = { .fine = true, .noise = seed };
    char name[32];
    snprintf(name, sizeof name, "program %d", (int)seed);
    op_case_fill(&whole, g, 3);
    op_case_fill(&moved, g, 3);
    if (!interp_run(&whole, expanded) || !interp_run(&moved, expanded)) fail_msg("%s: %s", name, whole.error);
    bool settled =
        !traits.large && is_settled(&whole, &moved); /* a large one takes the interpreter seconds on each rank */
    for (int i = 0; i < count && settled; i++)
        check_mesh(&env, name, g, expanded, &over[i], &whole, (ir_tolerance){ 1e-9, 1e-9 }, NULL);
    counts->compared += settled;
    counts->looped +=
        settled &&
        ir_case_count(g, SGLIR_OP_SCAN) + ir_case_count(g, SGLIR_OP_WHILE) + ir_case_count(g, SGLIR_OP_COND) > 0;
    interp_free(&whole);
    interp_free(&moved);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
}

/* SGL_TESTS_SEEDS=FIRST-LAST runs those instead, over the large meshes too. */
static void test_random_programs(void **state)
{
    (void)state;
    unsigned first = 1, last = 70;
    const char *seeds = getenv("SGL_TESTS_SEEDS");
    program_counts counts = { 0 };
    if (seeds && sscanf(seeds, "%u-%u", &first, &last) != 2) fail_msg("SGL_TESTS_SEEDS=%s is not FIRST-LAST", seeds);
    for (unsigned seed = first; seed <= last; seed++) {
        check_program(seed, meshes, MESHES, &counts);
        if (seeds) check_program(seed, large, LARGE, &counts);
    }
    if (seeds) return;
    printf("compared %d of %u, looped %d\n", counts.compared, last, counts.looped);
    assert_true(counts.compared > 30);
    assert_true(counts.looped > 6);
}

/* Up to twelve ranks, more than most extents have elements. */
static void test_large_meshes(void **state)
{
    (void)state;
    program_counts counts = { 0 };
    for (unsigned seed = 1; seed <= 3; seed++) check_program(seed, large, LARGE, &counts);
    assert_true(counts.compared >= 1);
}

/* ---- a transformer, under every kind of plan -------------------------------------------------------------------------- */

static const mesh_case plans[] = {
    { "dp=2 and 3 micro-batches", { [SGLIR_AXIS_DP] = 2 }, 3, NULL, NULL },
    { "dp=3,fsdp=2 and 2 micro-batches", { [SGLIR_AXIS_DP] = 3, [SGLIR_AXIS_FSDP] = 2 }, 2, NULL, NULL },
    { "dp=7 and 2 micro-batches, some without rows", { [SGLIR_AXIS_DP] = 7 }, 2, NULL, NULL },
    { "sequence, tp=2 and 5 micro-batches", { [SGLIR_AXIS_TP] = 2 }, 5, TRANSFORMER_TENSOR, "blocks.* tp:1" },
    { "zero 1", { [SGLIR_AXIS_FSDP] = 2 }, 1, "states * fsdp:0", NULL },
    { "zero 3", { [SGLIR_AXIS_FSDP] = 4 }, 1, "* fsdp:0", NULL },
    { "zero 3 and 3 micro-batches", { [SGLIR_AXIS_FSDP] = 2 }, 3, "* fsdp:0", NULL },
    { "zero 3 of 5 ranks", { [SGLIR_AXIS_FSDP] = 5 }, 1, "* fsdp:0", NULL },
    { "tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, TRANSFORMER_TENSOR, NULL },
    { "tp=3", { [SGLIR_AXIS_TP] = 3 }, 1, TRANSFORMER_TENSOR, NULL },
    { "tp=4", { [SGLIR_AXIS_TP] = 4 }, 1, TRANSFORMER_TENSOR, NULL },
    { "tp=2 and 2 micro-batches", { [SGLIR_AXIS_TP] = 2 }, 2, TRANSFORMER_TENSOR, NULL },
    { "dp=2,tp=2", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_TP] = 2 }, 1, TRANSFORMER_TENSOR, NULL },
    { "fsdp=2,tp=2",
      { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
      1,
      TRANSFORMER_TENSOR ", * fsdp:0, embed fsdp:1, blocks.*.w* fsdp:1, blocks.*.wo fsdp:0, blocks.*.w2 fsdp:0",
      NULL },
    { "sequence, tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, TRANSFORMER_TENSOR, "blocks.* tp:1" },
    { "sequence, tp=3 and 2 micro-batches", { [SGLIR_AXIS_TP] = 3 }, 2, TRANSFORMER_TENSOR, "blocks.* tp:1" },
    { "sequence, fsdp=2,tp=2",
      { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
      1,
      TRANSFORMER_TENSOR ", states * fsdp:0",
      "blocks.* tp:1" },
    { "cp=2", { [SGLIR_AXIS_CP] = 2 }, 1, NULL, NULL },
    { "cp=3", { [SGLIR_AXIS_CP] = 3 }, 1, NULL, NULL },
    { "dp=2,cp=2,tp=2",
      { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_CP] = 2, [SGLIR_AXIS_TP] = 2 },
      1,
      TRANSFORMER_TENSOR,
      NULL },
    { "dp=2,fsdp=2,tp=2",
      { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
      1,
      TRANSFORMER_TENSOR ", states * fsdp:0",
      NULL },
};

static void check_transformer(const transformer_sizes *sizes, const mesh_case *cases, size_t count)
{
    transformer_whole w;
    transformer_whole_open(&w, sizes);
    for (size_t i = 0; i < count; i++)
        check_mesh(&w.env, "transformer", w.g, w.g, &cases[i], &w.results, (ir_tolerance){ 1e-10, 1e-12 }, NULL);
    transformer_whole_close(&w);
}

static void test_transformer(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 2, .batch = 12, .seq = 4, .dim = 8, .heads = 2, .ffn = 12, .vocab = 11, .dropout = 0.25
    };
    check_transformer(&sizes, plans, sizeof plans / sizeof plans[0]);
}

/* Key heads that tp does not divide are on several ranks, and their gradients added up. */
static void test_few_key_heads(void **state)
{
    (void)state;
    const transformer_sizes sizes = {
        .layers = 1, .batch = 4, .seq = 4, .dim = 12, .heads = 6, .kv_heads = 2, .ffn = 8, .vocab = 7
    };
    static const mesh_case cases[] = {
        { "tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, TRANSFORMER_TENSOR, NULL },
        { "tp=3", { [SGLIR_AXIS_TP] = 3 }, 1, TRANSFORMER_TENSOR, NULL },
        { "tp=4", { [SGLIR_AXIS_TP] = 4 }, 1, TRANSFORMER_TENSOR, NULL },
        { "dp=2,tp=4 and 2 micro-batches", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_TP] = 4 }, 2, TRANSFORMER_TENSOR, NULL },
        { "cp=2", { [SGLIR_AXIS_CP] = 2 }, 1, NULL, NULL },
    };
    check_transformer(&sizes, cases, sizeof cases / sizeof cases[0]);
}

/* A state of one dimension less than its parameter follows it where it can; what is said of states alone it must be able to. */
static void test_states_refused(void **state)
{
    (void)state;
    static const char *const text = "graph \"test\" {\n"
                                    "  %0 = input() {role=0, name=\"w\", dtype=f64, dims=[4,6]}\n"
                                    "  %1 = input() {role=1, name=\"rows.v/w\", dtype=f64, dims=[4]}\n"
                                    "  %2 = input() {role=1, name=\"rows.n/w\", dtype=f64, dims=[]}\n"
                                    "  %3 = neg(%1)\n  %4 = neg(%0)\n  %5 = neg(%2)\n"
                                    "  update \"w\" %4\n  update \"rows.v/w\" %3\n  update \"rows.n/w\" %5\n"
                                    "}\n";
    static const struct {
        const char *layouts, *message;
    } cases[] = {
        { "w tp:1", NULL },
        { "states * tp:0", NULL },
        { "states w fsdp:1", NULL },
        { "states w tp:1",
          "plan: layouts: dimension 1 of state 'rows.v/w' is to be split over tp=2, and it has 1, counted "
          "from 0: f64[4]" },
        { "w tp:2",
          "plan: layouts: dimension 2 of parameter 'w' is to be split over tp=2, and it has 2, counted from 0" },
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    ir_message message;
    sglir_graph *g = ir_case_parse(&env, "states", text, &message);
    if (g == NULL) fail_msg("%s", message.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mesh_case c = { "tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, cases[i].layouts, NULL };
        sglplan plan = plan_of(&c, g, 1);
        sglpass_context context = { .env = &env, .plan = &plan };
        sglir_graph *made = NULL;
        sgl_status status = sglpass_run(&context, g, "shard", &made);
        assert_int_equal(status, cases[i].message ? SGL_INVALID_ARGUMENT : SGL_OK);
        if (cases[i].message && !strstr(env.message, cases[i].message)) fail_msg("%s", env.message);
        sglir_graph_free(made);
    }
    sglir_graph_free(g);
}

/* ---- as a script says ---------------------------------------------------------------------------------------------------- */

static const char *const laid_out_text = "graph \"test\" {\n"
                                         "  %0 = input() {role=2, name=\"x\", dtype=f64, dims=[6,5,4]}\n"
                                         "  %1 = input() {role=0, name=\"w\", dtype=f64, dims=[4,4]}\n"
                                         "  %2 = laid_out(%0) {split=[-1,-1,1,-1,-1,-1,-1]}\n"
                                         "  %3 = linear(%2, %1)\n"
                                         "  %4 = tanh(%3)\n"
                                         "  %5 = reduce_sum(%4) {axes=[0,1,2]}\n"
                                         "  %6 = grad(%5, %1)\n"
                                         "  fetch \"y\" %4\n  fetch \"dw\" %6\n"
                                         "}\n";

/* Sequence parallel: the second dimension is split over tp, and stays so. */
static void test_laid_out(void **state)
{
    (void)state;
    static const mesh_case sequence[] = {
        { "tp=2", { [SGLIR_AXIS_TP] = 2 }, 1, NULL, NULL },
        { "dp=2,tp=3", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_TP] = 3 }, 1, NULL, NULL }
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan alone;
    ir_message message;
    interp whole = { 0 };
    int exchanges[SGLIR_OP_COUNT] = { 0 };
    sglplan_init(&alone);
    sglir_graph *g = ir_case_parse(&env, "laid out", laid_out_text, &message);
    if (g == NULL) fail_msg("%s", message.text);
    sglir_graph *expanded = laid_out(&env, g, &alone, 0, "shard");
    assert_int_equal(ir_case_count(expanded, SGLIR_OP_LAID_OUT), 0);
    ir_case_fill(&whole, g, 5);
    if (!interp_run(&whole, expanded)) fail_msg("%s", whole.error);
    for (size_t i = 0; i < sizeof sequence / sizeof sequence[0]; i++)
        check_mesh(&env, "laid out", g, expanded, &sequence[i], &whole, (ir_tolerance){ 1e-12, 1e-12 }, exchanges);
    assert_int_equal(exchanges[SGLIR_OP_ALL_GATHER], 2 + 1); /* of y, for its fetch: over dp and tp */
    interp_free(&whole);
    sglir_graph_free(expanded);
    sglir_graph_free(g);
}

/* ---- exchanges alike on all ranks ------------------------------------------------------------------------------------------ */

/* Which exchanges there are, in their order: all that must not differ. */
static sglcore_hash exchanges_of(const sglir_graph *g, int *merged, int *alone)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!sglir_is_exchange(node->op)) continue;
        sglcore_hasher_u64(&hasher, node->op);
        sglcore_hasher_u64(&hasher, node->arg_count + packed_terms(g, node));
        sglcore_hasher_u64(&hasher, (uint64_t)sglir_attr_int(g, node, "axes"));
        *merged += node->op == SGLIR_OP_ALL_GATHER_EACH || node->op == SGLIR_OP_REDUCE_SCATTER_EACH;
        *alone += node->op == SGLIR_OP_REDUCE_SCATTER;
    }
    return sglcore_hasher_end(&hasher);
}

/* Buckets are of whole values: widths that tp does not divide move no member to another one, whatever the bucket. */
static void test_alike(void **state)
{
    (void)state;
    static const mesh_case cases[] = {
        { "fsdp=2,tp=2",
          { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
          1,
          TRANSFORMER_TENSOR ", * fsdp:0, embed fsdp:1, blocks.*.w* fsdp:1, blocks.*.wo fsdp:0, blocks.*.w2 fsdp:0",
          NULL },
        { "fsdp=2,tp=3 and 2 micro-batches",
          { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 3 },
          2,
          TRANSFORMER_TENSOR ", * fsdp:0, embed fsdp:1, blocks.*.w* fsdp:1, blocks.*.wo fsdp:0, blocks.*.w2 fsdp:0",
          NULL },
        { "sequence, fsdp=2,tp=2",
          { [SGLIR_AXIS_FSDP] = 2, [SGLIR_AXIS_TP] = 2 },
          1,
          TRANSFORMER_TENSOR ", * fsdp:0, embed fsdp:1, blocks.*.w* fsdp:1, blocks.*.wo fsdp:0, blocks.*.w2 fsdp:0",
          "blocks.* tp:1" },
    };
    const transformer_sizes sizes = {
        .layers = 2, .batch = 12, .seq = 5, .dim = 12, .heads = 3, .ffn = 13, .vocab = 11
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g;
    assert_int_equal(transformer_graph(&env, &sizes, &g), SGL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int merged = 0, alone = 0;
        for (int64_t bucket = 101; bucket < 200000; bucket += bucket < 4000 ? 300 : 100000) {
            alone = 0;
            sglplan plan = plan_of(&cases[i], g, 1);
            plan.bucket = bucket;
            sglcore_hash first = { 0 };
            for (int64_t r = 0; r < sglplan_group_size(&plan, ~(sglplan_axes)0); r++) {
                sglir_graph *made = laid_out(&env, g, &plan, r, "collect");
                const sglcore_hash own = exchanges_of(made, &merged, &alone);
                if (r == 0) first = own;
                if (!sglcore_hash_equal(own, first))
                    fail_msg("%s, bucket %d: other exchanges on rank %d", cases[i].name, (int)bucket, (int)r);
                sglir_graph_free(made);
            }
        }
        assert_true(merged > 20);
        if (!cases[i].activations) assert_true(alone <= 6); /* of the last bucket, which all go into: one a rank */
    }
    sglir_graph_free(g);
}

/* ---- what parts are parts of ------------------------------------------------------------------------------------------ */

/* The elements of a value that the ranks say they hold, each counted as often as ranks hold it. */
static void count_held(const sglir_graph *g, sglir_id value, int *held)
{
    const sglir_type *type = sglir_type_of(g, value);
    const sglir_whole *whole = sglir_whole_of(g, value);
    assert_non_null(whole);
    for (int64_t i = 0; i < type->dims[0]; i++) {
        for (int64_t k = 0; k < type->dims[1]; k++) {
            for (int64_t l = 0; l < type->dims[2]; l++) {
                int64_t row = (whole->starts[0] + i) * whole->dims[1] + whole->starts[1] + k;
                held[row * whole->dims[2] + whole->starts[2] + l]++;
            }
        }
    }
}

/* Of each value that is laid out as the script says, all ranks' parts together are the whole, once; transposed on the way, too. */
static void test_wholes(void **state)
{
    (void)state;
    const mesh_case c = { "dp=2,tp=3", { [SGLIR_AXIS_DP] = 2, [SGLIR_AXIS_TP] = 3 }, 1, NULL, NULL };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    ir_message message;
    sglir_graph *g = ir_case_parse(&env, "laid out", laid_out_text, &message), *graphs[6];
    if (g == NULL) fail_msg("%s", message.text);
    sglplan plan = plan_of(&c, g, 1);
    for (int64_t r = 0; r < 6; r++) graphs[r] = laid_out(&env, g, &plan, r, "shard");
    int wholes = 0, once = 0, told = 0;
    for (int64_t v = 0; v < graphs[0]->values.count; v++) {
        const sglir_whole *whole = sglir_whole_of(graphs[0], (sglir_id)v);
        const sglir_type *type = sglir_type_of(graphs[0], (sglir_id)v);
        told += whole != NULL;
        if (whole == NULL || type->rank != 3) continue;
        int held[6 * 5 * 4] = { 0 };
        assert_int_equal(whole->dims[0] * whole->dims[1] * whole->dims[2], 6 * 5 * 4);
        for (int r = 0; r < 6; r++) count_held(graphs[r], (sglir_id)v, held);
        int copies = (type->sharded[SGLIR_AXIS_DP] < 0 ? 2 : 1) * (type->sharded[SGLIR_AXIS_TP] < 0 ? 3 : 1);
        for (int i = 0; i < 6 * 5 * 4; i++) assert_int_equal(held[i], copies);
        wholes++;
        once += copies == 1;
    }
    assert_true(wholes >= 6 && once >= 3 && told >= wholes);
    for (int r = 0; r < 6; r++) {
        assert_true(ir_case_round_trip(&env, graphs[r], &message));
        sglir_graph_free(graphs[r]);
    }
    sglir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs), cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_large_meshes),  cmocka_unit_test(test_few_key_heads),
        cmocka_unit_test(test_transformer),   cmocka_unit_test(test_laid_out),
        cmocka_unit_test(test_wholes),        cmocka_unit_test(test_states_refused),
        cmocka_unit_test(test_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
