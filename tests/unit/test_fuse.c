/* test_fuse.c -- the pass `fuse` on graphs that nobody thought of: random ones, in thousands, and failing allocations.
 *
 * Each graph is made from a seed: inputs, elementwise ops with broadcasting, reductions over any axes, movement of all
 * kinds, packs, generators, products and loops between. Of its fused form is checked: the verifier, the numbers against
 * the interpreter, every kernel of the top region by the plain executor, and that the same graph fuses to the same
 * again.
 * ctest: timeout 300 */
#include "fault.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "passes/pass.h"
#include "tests/support/kernel_exec.h"

/* ---- random graphs -------------------------------------------------------------------------------------------- */

enum { MOST_VALUES = 96, MOST_ELEMENTS = 400 };

typedef struct maker {
    uint64_t state;
    sglir_graph *g;
    sglir_id values[MOST_VALUES];
    int count;
    int inputs; /* named so far */
    int64_t extents[4];
} maker;

static uint64_t next(maker *m) /* splitmix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = m->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int below(maker *m, int limit) { return (int)(next(m) % (uint64_t)limit); }

static const sglir_type *type_of(const maker *m, sglir_id value) { return sglir_type_of(m->g, value); }

static bool is_float(const maker *m, sglir_id value)
{
    return sglcore_dtype_is_float((sgl_dtype)type_of(m, value)->dtype);
}

static void keep(maker *m, sglir_id value)
{
    if (value == SGLIR_NONE || sglir_elements(type_of(m, value)) > MOST_ELEMENTS) return;
    if (m->count < MOST_VALUES)
        m->values[m->count++] = value;
    else
        m->values[below(m, MOST_VALUES)] = value;
}

static sglir_id input(maker *m, sgl_dtype dtype, int rank, const int64_t *dims)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", m->inputs++);
    sglir_type type = sglir_type_make(dtype, rank, dims);
    return sglir_input(m->g, SGL_FEED, name, &type);
}

/* Some float value, mostly a late one. */
static sglir_id pick(maker *m)
{
    for (int tries = 0; tries < 20; tries++) {
        int back = below(m, 3) == 0 ? m->count : m->count < 8 ? m->count : 8;
        sglir_id value = m->values[m->count - 1 - below(m, back)];
        if (is_float(m, value)) return value;
    }
    return m->values[0];
}

static bool broadcasts(const sglir_type *a, const sglir_type *b)
{
    for (int i = 1; i <= a->rank && i <= b->rank; i++) {
        int64_t x = a->dims[a->rank - i], y = b->dims[b->rank - i];
        if (x != y && x != 1 && y != 1) return false;
    }
    return true;
}

static sglir_id partner(maker *m, sglir_id value)
{
    for (int tries = 0; tries < 30; tries++) {
        sglir_id other = pick(m);
        if (broadcasts(type_of(m, value), type_of(m, other)) && type_of(m, other)->dtype == type_of(m, value)->dtype)
            return other;
    }
    return value;
}

static void make_elementwise(maker *m)
{
    static const sglir_op unary[] = { SGLIR_OP_NEG,     SGLIR_OP_ABS,  SGLIR_OP_TANH,
                                      SGLIR_OP_SIGMOID, SGLIR_OP_SILU, SGLIR_OP_SIN };
    static const sglir_op binary[] = { SGLIR_OP_ADD, SGLIR_OP_SUB,     SGLIR_OP_MUL,
                                       SGLIR_OP_ADD, SGLIR_OP_MAXIMUM, SGLIR_OP_MINIMUM };
    sglir_id a = pick(m);
    switch (below(m, 8)) {
    case 0:
    case 1: keep(m, sglir_unary(m->g, unary[below(m, 6)], a)); return;
    case 2: {
        sglir_id b = partner(m, a), less = sglir_binary(m->g, SGLIR_OP_LESS, a, b);
        keep(m, sglir_select(m->g, less, b, sglir_scale(m->g, a, 0.5)));
        keep(m, less);
        return;
    }
    case 3: keep(m, sglir_cast(m->g, sglir_cast(m->g, a, SGL_BOOL), (sgl_dtype)type_of(m, a)->dtype)); return;
    default: keep(m, sglir_binary(m->g, binary[below(m, 6)], a, partner(m, a))); return;
    }
}

static void make_reduction(maker *m)
{
    static const sglir_op ops[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_MAX,
                                    SGLIR_OP_REDUCE_MIN };
    sglir_id a = pick(m);
    int64_t axes[SGL_MAX_RANK];
    int count = 0, rank = type_of(m, a)->rank;
    bool last = below(m, 2) == 0;
    for (int i = 0; i < rank; i++) {
        if (last ? i == rank - 1 : below(m, 2) == 0) axes[count++] = i;
    }
    bool stays = below(m, 2) == 0;
    sglir_id sum = sglir_reduce(m->g, ops[below(m, 4)], a, axes, count, stays);
    keep(m, sum);
    if (stays && below(m, 2) == 0) keep(m, sglir_sub(m->g, a, sum)); /* as norms do */
}

static void make_reshape(maker *m, sglir_id a)
{
    const sglir_type type = *type_of(m, a);
    int64_t dims[SGL_MAX_RANK];
    int rank = 0;
    if (below(m, 6) == 0 && type.rank > 0 && sglir_elements(&type) > 0) { /* dims that fit nothing */
        int64_t elements = sglir_elements(&type);
        int64_t first = elements % 2 == 0 ? 2 : elements % 3 == 0 ? 3 : 1;
        int64_t other[2] = { elements / first, first };
        keep(m, sglir_reshape(m->g, a, 2, other));
        return;
    }
    for (int i = 0; i < type.rank; i++) { /* neighbours joined, even ones split, ones put between */
        int what = below(m, 4);
        if (what == 0 && rank > 0)
            dims[rank - 1] *= type.dims[i];
        else if (what == 1 && type.dims[i] % 2 == 0 && rank + 2 < 6) {
            dims[rank++] = type.dims[i] / 2;
            dims[rank++] = 2;
        } else {
            if (what == 2 && rank < 4) dims[rank++] = 1;
            dims[rank++] = type.dims[i];
        }
        if (rank > 6) return;
    }
    keep(m, sglir_reshape(m->g, a, rank, dims));
}

static void make_slice(maker *m, sglir_id a)
{
    int rank = type_of(m, a)->rank;
    if (rank == 0) return;
    int axis = below(m, rank);
    int64_t extent = type_of(m, a)->dims[axis];
    if (extent == 0) return;
    int start = below(m, (int)extent), stop = start + 1 + below(m, (int)extent - start);
    sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("start", start), SGLIR_I("stop", stop),
                            SGLIR_I("step", 1 + below(m, 2)) };
    keep(m, sglir_emit(m->g, SGLIR_OP_SLICE, &a, 1, attrs, 4, NULL));
}

static void make_flip(maker *m, sglir_id a)
{
    int64_t axes[SGL_MAX_RANK];
    int count = 0;
    for (int i = 0; i < type_of(m, a)->rank; i++) {
        if (below(m, 2) == 0) axes[count++] = i;
    }
    sglir_named attr = SGLIR_INTS("axes", count, axes);
    keep(m, sglir_emit(m->g, SGLIR_OP_FLIP, &a, 1, &attr, 1, NULL));
}

static void make_movement(maker *m)
{
    sglir_id a = pick(m);
    const sglir_type type = *type_of(m, a);
    int64_t dims[SGL_MAX_RANK];
    switch (below(m, 5)) {
    case 0: make_reshape(m, a); return;
    case 1: make_slice(m, a); return;
    case 4: make_flip(m, a); return;
    case 2: {
        for (int i = 0; i < type.rank; i++) dims[i] = i;
        for (int i = type.rank - 1; i > 0; i--) {
            int other = below(m, i + 1);
            int64_t kept = dims[i];
            dims[i] = dims[other];
            dims[other] = kept;
        }
        keep(m, sglir_transpose(m->g, a, dims));
        return;
    }
    default: {
        if (type.rank > 4) return;
        int lead = below(m, 2);
        for (int i = 0; i < lead; i++) dims[i] = m->extents[below(m, 4)];
        for (int i = 0; i < type.rank; i++) dims[lead + i] = type.dims[i] == 1 ? m->extents[below(m, 4)] : type.dims[i];
        keep(m, sglir_broadcast(m->g, a, type.rank + lead, dims));
        return;
    }
    }
}

/* A pack beside segments of its length: as an optimizer has them. */
static void make_pack(maker *m)
{
    sglir_id parts[3];
    int64_t counts[3];
    int count = 1 + below(m, 3);
    for (int i = 0; i < count; i++) {
        do parts[i] = pick(m);
        while (type_of(m, parts[i])->dtype != SGL_F64);
        counts[i] = sglir_elements(type_of(m, parts[i]));
    }
    sglir_id pack = sglir_emit(m->g, SGLIR_OP_PACK, parts, count, NULL, 0, NULL);
    const double values[3] = { 0.5, 0, -1 };
    sglir_named attrs[] = { SGLIR_INTS("counts", count, counts),
                            SGLIR_FLOATS("values", count, values),
                            { .name = "dtype", .kind = 't', .i = SGL_F64 } };
    sglir_id segments = sglir_emit(m->g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
    sglir_id product = sglir_mul(m->g, pack, segments);
    keep(m, product);
    keep(m, sglir_add(m->g, sglir_mul(m->g, pack, pack), product));
    if (below(m, 3) == 0) keep(m, pack);
    if (below(m, 3) == 0) keep(m, segments);
}

static void make_generator(maker *m)
{
    int64_t dims[3] = { m->extents[below(m, 4)], m->extents[below(m, 4)], m->extents[below(m, 4)] };
    int rank = 1 + below(m, 3);
    if (below(m, 2) == 0) {
        sglir_named attrs[] = { SGLIR_I("axis", below(m, rank)),
                                SGLIR_INTS("dims", rank, dims),
                                { .name = "dtype", .kind = 't', .i = SGL_F64 } };
        keep(m, sglir_emit(m->g, SGLIR_OP_IOTA, NULL, 0, attrs, 3, NULL));
        return;
    }
    sglir_id args[3] = { sglir_constant(m->g, SGL_I64, 7), sglir_constant(m->g, SGL_I64, 2),
                         sglir_constant(m->g, SGL_I64, below(m, 9)) };
    sglir_named attrs[] = { SGLIR_I("id", below(m, 5)),
                            SGLIR_INTS("dims", rank, dims),
                            { .name = "dtype", .kind = 't', .i = SGL_F64 } };
    keep(m, sglir_emit(m->g, below(m, 2) ? SGLIR_OP_RANDOM_UNIFORM : SGLIR_OP_RANDOM_NORMAL, args, 3, attrs, 3, NULL));
}

/* What no kernel holds: a product, a table look-up, a concatenation, padding. */
static void make_outside(maker *m)
{
    sglir_id a = pick(m);
    const sglir_type type = *type_of(m, a);
    if (type.rank == 0) return;
    int64_t axis = below(m, type.rank);
    switch (below(m, 3)) {
    case 0:
        if (type.rank < 4) keep(m, sglir_dot(m->g, a, a, 0, NULL, NULL, 1, &axis, &axis));
        return;
    case 1: {
        sglir_id pair[2] = { a, sglir_scale(m->g, a, 2) };
        keep(m, sglir_emit(m->g, SGLIR_OP_CONCAT, pair, 2, &SGLIR_I("axis", axis), 1, NULL));
        return;
    }
    default: {
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("before", below(m, 2)), SGLIR_I("after", 1) };
        keep(m, sglir_emit(m->g, SGLIR_OP_PAD, &a, 1, attrs, 3, NULL));
        return;
    }
    }
}

static void make_some(maker *m, int steps, bool loops);

/* A loop whose body makes a few values of its own, from its carry and from what is around it. */
static void make_loop(maker *m)
{
    sglir_id carry = pick(m), inside[2];
    sglir_type types[2] = { sglir_type_make(SGL_I64, 0, NULL), *type_of(m, carry) };
    maker body = *m;
    sglir_id region = sglir_region_begin(m->g, types, 2, inside);
    keep(&body, inside[1]);
    make_some(&body, 6, false);
    sglir_id end = inside[1];
    for (int i = body.count - 1; i >= 0; i--) {
        if (!sglir_type_equal(type_of(&body, body.values[i]), &types[1])) continue;
        end = sglir_scale(m->g, body.values[i], 0.5);
        break;
    }
    sglir_region_end(m->g, &end, 1);
    m->state = body.state;
    keep(m, sglir_emit_regions(m->g, SGLIR_OP_SCAN, &carry, 1, &SGLIR_I("steps", 2), 1, &region, 1, NULL));
}

static void make_some(maker *m, int steps, bool loops)
{
    for (int i = 0; i < steps && sglir_status(m->g) == SGL_OK; i++) {
        int what = below(m, 32);
        if (what < 15)
            make_elementwise(m);
        else if (what < 21)
            make_reduction(m);
        else if (what < 27)
            make_movement(m);
        else if (what < 28)
            make_pack(m);
        else if (what < 29)
            make_generator(m);
        else if (what < 31 || !loops)
            make_outside(m);
        else
            make_loop(m);
    }
}

static sglir_graph *make_graph(sglcore_env *env, uint64_t seed)
{
    maker m = { .state = seed };
    assert_int_equal(sglir_graph_new(env, "random", &m.g), SGL_OK);
    static const int64_t choices[] = { 1, 2, 3, 4, 5, 6, 8 };
    for (int i = 0; i < 4; i++) m.extents[i] = below(&m, 60) == 0 ? 0 : choices[below(&m, 7)];
    for (int i = 0; i < 4; i++) {
        int64_t dims[4];
        int rank = i == 0 ? 2 : below(&m, 5);
        for (int k = 0; k < rank; k++) dims[k] = below(&m, 4) == 0 ? 1 : m.extents[(k + 4 - rank) % 4];
        keep(&m, input(&m, SGL_F64, rank, dims));
    }
    make_some(&m, 8 + below(&m, 50), true);
    int outputs = 1 + below(&m, 5);
    for (int i = 0; i < outputs; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        sglir_output_add(m.g, SGLIR_FETCH, name, m.values[i == 0 ? m.count - 1 : below(&m, m.count)]);
    }
    if (sglir_status(m.g) != SGL_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, env->message);
    return m.g;
}

/* ---- what must hold ------------------------------------------------------------------------------------------- */

static void check_seed(sglcore_env *env, uint64_t seed)
{
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = env, .plan = &plan };
    sglir_graph *g = make_graph(env, seed), *fused = NULL, *again = NULL;
    ir_message message = { .text = "" };
    int kernels;
    sgl_status status = sglpass_fuse(&context, g, &fused);
    if (status == SGL_OK) status = sglir_verify(fused, SGLIR_FUSED);
    if (status == SGL_OK) status = sglpass_fuse(&context, g, &again);
    if (status != SGL_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, env->message);
    assert_true(sglcore_hash_equal(sglir_math_hash(fused), sglir_math_hash(again)));
    ir_tolerance tolerance = { .relative = 1e-9, .absolute = 1e-12 };
    if (!ir_case_same_meaning(g, fused, seed, tolerance, &message))
        fail_msg("seed %llu: %s", (unsigned long long)seed, message.text);
    if (!kernel_exec_graph(env, fused, seed, &kernels, &message))
        fail_msg("seed %llu: %s", (unsigned long long)seed, message.text);
    sglir_graph_free(g);
    sglir_graph_free(fused);
    sglir_graph_free(again);
}

static void test_random_graphs(void **state)
{
    (void)state;
    /* A long run looks for new failures: the first seed and how many. */
    const char *first = getenv("SGL_TESTS_SEED"), *more = getenv("SGL_TESTS_SEEDS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1,
             count = more != NULL ? strtoull(more, NULL, 10) : 400;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (uint64_t i = 0; i < count; i++) check_seed(&env, seed + i);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- what is written down ------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s cannot be read", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t count = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(count > 0);
    return text;
}

/* The graphs that the text cases expect of fuse: their kernels too do what their regions say. */
static void test_kernels_of_text_cases(void **state)
{
    (void)state;
    const char *root = getenv("ROOT");
    if (root == NULL) fail_msg("ROOT, the repository, is not set; ctest sets it");
    char pattern[1024];
    snprintf(pattern, sizeof pattern, "%s/tests/ir/fuse_*.txt", root);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int kernels = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *text = read_file(found.gl_pathv[i]), *expected = strstr(text, "== expect\n");
        sglir_graph *g = NULL;
        ir_message message = { .text = "" };
        int count;
        if (expected == NULL) fail_msg("%s expects nothing", found.gl_pathv[i]);
        expected = strchr(expected, '\n') + 1;
        if (sglir_parse(&env, "case", expected, strlen(expected), &g) != SGL_OK) fail_msg("%s", env.message);
        if (!kernel_exec_graph(&env, g, 3, &count, &message)) fail_msg("%s: %s", found.gl_pathv[i], message.text);
        kernels += count;
        sglir_graph_free(g);
        free(text);
    }
    assert_true(kernels > 40);
    globfree(&found);
    assert_int_equal(env.bytes_in_use, 0);
}

/* A view that is stored as it is, and used by a sum whose kernel runs in another order: the two are kernels apart, since
 * in a region nobody could see that the two views of x run together. */
static void test_stored_view_used_turned(void **state)
{
    (void)state;
    static const char text[] = "graph \"g\" {\n"
                               "  %0 = input() {role=2, name=\"x\", dtype=f64, dims=[4,6,3]}\n"
                               "  %1 = transpose(%0) {order=[2,0,1]}\n"
                               "  %2 = mul(%1, %1)\n"
                               "  %3 = reduce_sum(%2) {axes=[1]}\n"
                               "  fetch \"view\" %1\n"
                               "  fetch \"sum\" %3\n"
                               "}\n";
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = &env, .plan = &plan };
    sglir_graph *g = NULL, *fused = NULL;
    ir_message message = { .text = "" };
    int kernels;
    assert_int_equal(sglir_parse(&env, "g", text, strlen(text), &g), SGL_OK);
    if (sglpass_fuse(&context, g, &fused) != SGL_OK) fail_msg("%s", env.message);
    if (!kernel_exec_graph(&env, fused, 3, &kernels, &message)) fail_msg("%s", message.text);
    assert_int_equal(kernels, 2);
    sglir_graph_free(g);
    sglir_graph_free(fused);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Results of all kernels of a gate whose value two of them read, for a device where arithmetic costs so much. */
static int results_at(double computing)
{
    static const char text[] = "graph \"g\" {\n"
                               "  %0 = input() {role=2, name=\"x\", dtype=bf16, dims=[512,512]}\n"
                               "  %1 = input() {role=2, name=\"up\", dtype=bf16, dims=[512,512]}\n"
                               "  %2 = input() {role=2, name=\"w\", dtype=bf16, dims=[512,512]}\n"
                               "  %3 = silu(%0)\n"
                               "  %4 = mul(%3, %1)\n"
                               "  %5 = dot(%4, %2) {batch_a=[], batch_b=[], contract_a=[1], contract_b=[0]}\n"
                               "  %6 = mul(%5, %3)\n"
                               "  fetch \"y\" %6\n"
                               "}\n";
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context context = { .env = &env, .plan = &plan, .computing = computing };
    sglir_graph *g = NULL, *fused = NULL;
    int results = 0;
    if (sglir_parse(&env, "g", text, strlen(text), &g) != SGL_OK) fail_msg("%s", env.message);
    if (sglpass_fuse(&context, g, &fused) != SGL_OK) fail_msg("%s", env.message);
    for (int64_t n = 0; n < fused->nodes.count; n++)
        if (fused->nodes.data[n].op == SGLIR_OP_FUSED) results += (int)fused->nodes.data[n].out_count;
    sglir_graph_free(g);
    sglir_graph_free(fused);
    assert_int_equal(env.bytes_in_use, 0);
    return results;
}

/* An exponential costs the CPU more than the four bytes that it takes to store it and load it, and a GPU less. */
static void test_costs_of_computing(void **state)
{
    (void)state;
    assert_int_equal(results_at(0), 3);
    assert_int_equal(results_at(1), 3);
    assert_int_equal(results_at(0.2), 2);
}

/* ---- without memory ------------------------------------------------------------------------------------------- */

static sgl_status fuse_whole(sglcore_env *env, void *context)
{
    uint64_t *seed = context;
    sglplan plan;
    sglplan_init(&plan);
    sglpass_context pass = { .env = env, .plan = &plan };
    sglcore_env steady; /* the graph that comes in is there: of its making others have tests */
    sglcore_env_init(&steady, NULL, NULL, NULL, NULL);
    sglir_graph *g = make_graph(&steady, *seed), *fused = NULL;
    sgl_status status = sglpass_fuse(&pass, g, &fused);
    for (int64_t n = 0; status == SGL_OK && n < fused->nodes.count; n++) {
        if (fused->nodes.data[n].op != SGLIR_OP_FUSED) continue;
        sglexec_kernel kernel;
        sglcore_text text = { 0 };
        status = sglexec_kernel_build(env, fused, (sglir_id)n, &kernel);
        if (status != SGL_OK) break;
        status = sglexec_kernel_print(env, &kernel, &text);
        sglexec_kernel_free(env, &kernel);
        sglcore_text_free(env, &text);
    }
    sglir_graph_free(fused);
    sglir_graph_free(g);
    assert_int_equal(steady.bytes_in_use, 0);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint64_t seed = 3; seed < 40; seed += 9) assert_true(fault_allocations(fuse_whole, &seed, true) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),           cmocka_unit_test(test_kernels_of_text_cases),
        cmocka_unit_test(test_stored_view_used_turned), cmocka_unit_test(test_costs_of_computing),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
