/* test_cpu_kernels.c -- whole random graphs on the CPU, through all passes: fused kernels, planned memory, updates in place.
 *
 * Each graph is made from a seed: feeds and states, elementwise ops with broadcasting, reductions, norms, movement, packs,
 * generators, products; each state gets a new value. What the device gives is held against the interpreter on the graph
 * before the passes, in f64 and f32, on 1, 2 and 3 threads with the same bits. A long run: SGL_TESTS_SEED (the first) and
 * SGL_TESTS_SEEDS (how many).
 * ctest: timeout 300 */
#include "cpu_case.h"

#include "passes/pass.h"

/* ---- random graphs ---------------------------------------------------------------------------------------------- */

enum { MOST_VALUES = 64, MOST_STATES = 3 };

typedef struct maker {
    uint64_t state;
    sglir_graph *g;
    sgl_dtype dtype;
    sglir_id values[MOST_VALUES], states[MOST_STATES];
    int count;
    int64_t extents[3], most_elements;
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

static void keep(maker *m, sglir_id value)
{
    if (value == SGLIR_NONE || sglir_elements(type_of(m, value)) > m->most_elements) return;
    if (type_of(m, value)->dtype != m->dtype) value = sglir_cast(m->g, value, m->dtype);
    m->values[m->count < MOST_VALUES ? m->count++ : below(m, MOST_VALUES)] = value;
}

/* Bounded, so that chains of products neither overflow nor vanish. */
static void keep_bounded(maker *m, sglir_id value)
{
    keep(m, below(m, 3) == 0 ? sglir_unary(m->g, SGLIR_OP_TANH, value) : value);
}

static sglir_id pick(maker *m) { return m->values[m->count - 1 - below(m, m->count < 10 ? m->count : 10)]; }

/* Together no more than a graph's values may have: what is too large would be computed, kept or not. */
static bool broadcasts(const maker *m, const sglir_type *a, const sglir_type *b)
{
    int64_t elements = 1;
    for (int i = 1; i <= a->rank || i <= b->rank; i++) {
        int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1, y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        elements *= x == 1 ? y : x;
    }
    return elements <= m->most_elements;
}

static sglir_id partner(maker *m, sglir_id value)
{
    for (int tries = 0; tries < 30; tries++) {
        sglir_id other = pick(m);
        if (broadcasts(m, type_of(m, value), type_of(m, other))) return other;
    }
    return value;
}

static void make_elementwise(maker *m)
{
    static const sglir_op unary[] = { SGLIR_OP_NEG,  SGLIR_OP_ABS,  SGLIR_OP_TANH, SGLIR_OP_SIGMOID,
                                      SGLIR_OP_SILU, SGLIR_OP_GELU, SGLIR_OP_COS };
    static const sglir_op binary[] = { SGLIR_OP_ADD, SGLIR_OP_SUB,     SGLIR_OP_MUL, SGLIR_OP_ADD,
                                       SGLIR_OP_SUB, SGLIR_OP_MAXIMUM, SGLIR_OP_MUL, SGLIR_OP_SILU_GRAD };
    sglir_id a = pick(m), b;
    switch (below(m, 8)) {
    case 0: keep(m, sglir_unary(m->g, unary[below(m, 7)], a)); return;
    case 1:
        b = partner(m, a);
        keep(m, sglir_select(m->g, sglir_binary(m->g, SGLIR_OP_LESS, a, b), sglir_scale(m->g, a, 0.5), b));
        return;
    case 2: keep(m, sglir_scale(m->g, sglir_add(m->g, a, partner(m, a)), 0.25)); return;
    case 3: keep(m, sglir_sub(m->g, sglir_scale(m->g, a, 0.9), sglir_scale(m->g, partner(m, a), 0.1))); return;
    default: keep_bounded(m, sglir_binary(m->g, binary[below(m, 8)], a, partner(m, a))); return;
    }
}

/* Means over some axes; taken off, as norms do. */
static void make_reduction(maker *m)
{
    static const sglir_op ops[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_MAX,
                                    SGLIR_OP_REDUCE_MIN };
    sglir_id a = pick(m);
    const sglir_type type = *type_of(m, a);
    int64_t axes[4], reduced = 1;
    int count = 0, way = below(m, 3);
    for (int i = 0; i < type.rank && i < 4; i++) {
        if (way == 0 ? i == type.rank - 1 : way == 1 ? i < type.rank - 1 : below(m, 2) == 0) axes[count++] = i;
    }
    for (int i = 0; i < count; i++) reduced *= type.dims[axes[i]];
    bool stays = below(m, 2) == 0;
    sglir_id sum =
        sglir_scale(m->g, sglir_reduce(m->g, ops[below(m, 4)], a, axes, count, stays), 1.0 / (double)(reduced + 1));
    keep(m, sum);
    if (stays && below(m, 2) == 0) keep(m, sglir_sub(m->g, a, sum));
}

static void make_norm(maker *m)
{
    sglir_id x = pick(m);
    if (type_of(m, x)->rank == 0 || sglir_elements(type_of(m, x)) == 0) return;
    const int64_t last = type_of(m, x)->rank - 1;
    sglir_id most = sglir_reduce(m->g, SGLIR_OP_REDUCE_MAX, x, &last, 1, true);
    sglir_id powers = sglir_unary(m->g, SGLIR_OP_EXP, sglir_sub(m->g, x, most));
    sglir_id sum = sglir_reduce(m->g, SGLIR_OP_REDUCE_SUM, powers, &last, 1, true);
    sglir_id p = sglir_div(m->g, powers, sum), dy = partner(m, x);
    keep(m, p);
    sglir_id slope = sglir_mul(m->g, p, dy);
    if (!sglir_type_equal(type_of(m, slope), type_of(m, x))) return;
    sglir_id inner = sglir_reduce(m->g, SGLIR_OP_REDUCE_SUM, slope, &last, 1, true);
    keep(m, sglir_sub(m->g, slope, sglir_mul(m->g, p, inner)));
}

static void make_movement(maker *m)
{
    sglir_id a = pick(m);
    const sglir_type type = *type_of(m, a);
    int64_t dims[SGL_MAX_RANK];
    switch (below(m, 4)) {
    case 3: {
        int count = 0;
        for (int i = 0; i < type.rank; i++) {
            if (below(m, 2) == 0) dims[count++] = i;
        }
        sglir_named axes = SGLIR_INTS("axes", count, dims);
        keep(m, sglir_emit(m->g, SGLIR_OP_FLIP, &a, 1, &axes, 1, NULL));
        return;
    }
    case 0:
        for (int i = 0; i < type.rank; i++) dims[i] = i;
        for (int i = type.rank - 1; i > 0; i--) {
            int other = below(m, i + 1);
            int64_t kept = dims[i];
            dims[i] = dims[other], dims[other] = kept;
        }
        keep(m, sglir_transpose(m->g, a, dims));
        return;
    case 1: {
        if (type.rank == 0) return;
        int axis = below(m, type.rank);
        if (type.dims[axis] < 2) return;
        sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("start", below(m, (int)type.dims[axis])),
                                SGLIR_I("stop", type.dims[axis]), SGLIR_I("step", 1 + below(m, 2)) };
        keep(m, sglir_emit(m->g, SGLIR_OP_SLICE, &a, 1, attrs, 4, NULL));
        return;
    }
    default: {
        int64_t flat[] = { sglir_elements(&type) };
        keep(m, sglir_reshape(m->g, a, 1, flat));
        return;
    }
    }
}

static void make_pack(maker *m)
{
    sglir_id parts[3];
    int64_t counts[3];
    int count = 1 + below(m, 3);
    for (int i = 0; i < count; i++) {
        parts[i] = pick(m);
        counts[i] = sglir_elements(type_of(m, parts[i]));
    }
    sglir_id pack = sglir_emit(m->g, SGLIR_OP_PACK, parts, count, NULL, 0, NULL);
    const double values[3] = { 0.5, 0, -1 };
    sglir_named attrs[] = { SGLIR_INTS("counts", count, counts), SGLIR_FLOATS("values", count, values),
                            SGLIR_I("dtype", m->dtype) };
    keep(m, sglir_mul(m->g, pack, sglir_emit(m->g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL)));
}

static void make_generator(maker *m)
{
    const sglir_type type = *type_of(m, pick(m));
    if (type.rank == 0) return;
    sglir_id args[3] = { sglir_constant(m->g, SGL_I64, 7), sglir_constant(m->g, SGL_I64, 2),
                         sglir_constant(m->g, SGL_I64, below(m, 9)) };
    sglir_named random[] = { SGLIR_I("id", below(m, 5)), SGLIR_INTS("dims", type.rank, type.dims),
                             SGLIR_I("dtype", m->dtype) };
    sglir_named count[] = { SGLIR_I("axis", below(m, type.rank)), SGLIR_INTS("dims", type.rank, type.dims),
                            SGLIR_I("dtype", m->dtype) };
    if (below(m, 3) == 0)
        keep(m, sglir_unary(m->g, SGLIR_OP_COS, sglir_emit(m->g, SGLIR_OP_IOTA, NULL, 0, count, 3, NULL)));
    else
        keep(m, sglir_emit(m->g, below(m, 2) ? SGLIR_OP_RANDOM_UNIFORM : SGLIR_OP_RANDOM_NORMAL, args, 3, random, 3,
                           NULL));
}

static void make_product(maker *m)
{
    sglir_id a = pick(m), b = pick(m);
    const sglir_type x = *type_of(m, a), y = *type_of(m, b);
    if (x.rank == 0 || y.rank == 0 || x.rank + y.rank > 5) return;
    int64_t of_x = below(m, x.rank), of_y = below(m, y.rank);
    if (x.dims[of_x] != y.dims[of_y]) return;
    if (sglir_elements(&x) * sglir_elements(&y) > 1000000) return;
    keep(m, sglir_unary(m->g, SGLIR_OP_TANH, sglir_dot(m->g, a, b, 0, NULL, NULL, 1, &of_x, &of_y)));
}

static void make_some(maker *m, int steps)
{
    for (int i = 0; i < steps && sglir_status(m->g) == SGL_OK; i++) {
        int what = below(m, 20);
        if (what < 9)
            make_elementwise(m);
        else if (what < 12)
            make_reduction(m);
        else if (what < 14)
            make_norm(m);
        else if (what < 17)
            make_movement(m);
        else if (what < 18)
            make_pack(m);
        else if (what < 19)
            make_generator(m);
        else
            make_product(m);
    }
}

/* A new value for each state: of its own shape, from what broadcasts to it. */
static void update_states(maker *m)
{
    for (int s = 0; s < MOST_STATES; s++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", s);
        sglir_id value = sglir_scale(m->g, m->states[s], 0.75);
        for (int tries = 0; tries < 20; tries++) {
            sglir_id other = pick(m);
            if (!broadcasts(m, type_of(m, other), type_of(m, value)) ||
                type_of(m, other)->rank > type_of(m, value)->rank)
                continue;
            sglir_id sum = sglir_add(m->g, value, sglir_scale(m->g, other, 0.25));
            if (sglir_type_equal(type_of(m, sum), type_of(m, value))) value = sum;
        }
        sglir_output_add(m->g, SGLIR_UPDATE, name, value);
    }
}

static sglir_graph *make_graph(sglcore_env *env, uint64_t seed, sgl_dtype dtype)
{
    maker m = { .state = seed, .dtype = dtype, .g = cpu_graph(env, "random") };
    static const int64_t small[] = { 1, 2, 3, 5, 8, 17 }, large[] = { 1, 4, 33, 65, 300, 1500 };
    bool is_large = below(&m, 4) == 0;
    m.most_elements = is_large ? 50000 : 3000;
    for (int i = 0; i < 3; i++)
        m.extents[i] = below(&m, 50) == 0 ? 0 : is_large ? large[below(&m, 6)] : small[below(&m, 6)];
    while (m.extents[0] * m.extents[1] * m.extents[2] > m.most_elements) m.extents[below(&m, 3)] = 4;
    for (int i = 0; i < 3 + MOST_STATES; i++) {
        char name[16];
        snprintf(name, sizeof name, i < 3 ? "x%d" : "s%d", i < 3 ? i : i - 3);
        int rank = i == 0 ? 3 : below(&m, 4);
        sglir_type type = sglir_type_make(dtype, rank, &m.extents[3 - rank]);
        for (int d = 0; d < rank; d++) {
            if (i < 3 && below(&m, 5) == 0) type.dims[d] = 1;
        }
        sglir_id value = sglir_input(m.g, i < 3 ? SGL_FEED : SGL_STATE, name, &type);
        if (i >= 3) m.states[i - 3] = value;
        keep(&m, value);
    }
    make_some(&m, 6 + below(&m, 40));
    int outputs = 1 + below(&m, 4);
    for (int i = 0; i < outputs; i++) {
        sglir_output_add(m.g, SGLIR_FETCH, (char[]){ 'y', (char)('0' + i), 0 },
                         m.values[i == 0 ? m.count - 1 : below(&m, m.count)]);
    }
    update_states(&m);
    if (sglir_status(m.g) != SGL_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, env->message);
    return m.g;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

enum { MOST_VARIANTS = 4, THREADS = 3 };

/* One per instruction set and number of threads, open for the whole test. */
static sglexec_device *devices[MOST_VARIANTS][THREADS];

static void open_devices(sglcore_env *env)
{
    for (int v = 0; sglcpu_isa_at(v) != NULL; v++) {
        setenv("SGL_ISA", sglcpu_isa_at(v)->name, 1);
        for (int t = 0; t < THREADS; t++) assert_int_equal(sglexec_device_cpu.open(env, t + 1, &devices[v][t]), SGL_OK);
    }
    unsetenv("SGL_ISA");
}

static void close_devices(void)
{
    for (int v = 0; sglcpu_isa_at(v) != NULL; v++) {
        for (int t = 0; t < THREADS; t++) sglexec_device_cpu.close(devices[v][t]);
    }
}

/* ---- a run on the device --------------------------------------------------------------------------------------------- */

typedef struct session {
    sglcore_env *env;
    const sglexec_program *program;
    sglexec_device *device;
    void *prepared, *spaces[SGLIR_SPACES];
} session;

static const interp_tensor *input_of(const interp *oracle, const char *name)
{
    for (int i = 0; i < oracle->input_count; i++) {
        if (strcmp(oracle->inputs[i].name, name) == 0) return &oracle->inputs[i].tensor;
    }
    return NULL;
}

static void *place_of(const session *s, const sglexec_port *port)
{
    return (char *)s->spaces[port->operand.space] + port->operand.offset;
}

static void start(session *s, const interp *oracle)
{
    const sglexec_device_ops *ops = &sglexec_device_cpu;
    if (ops->prepare(s->device, s->program, &s->prepared) != SGL_OK) fail_msg("prepare: %s", s->env->message);
    for (int space = 0; space < SGLIR_SPACES; space++) {
        assert_int_equal(ops->alloc(s->device, s->program->space_bytes[space], &s->spaces[space]), SGL_OK);
        memset(s->spaces[space], 0xFF, (size_t)s->program->space_bytes[space]);
    }
    if (s->program->constants.count > 0)
        memcpy(s->spaces[SGLIR_SPACE_CONST], s->program->constants.data, (size_t)s->program->constants.count);
    for (int64_t i = 0; i < s->program->feeds.count + s->program->states.count; i++) {
        const sglexec_port *port = i < s->program->feeds.count ? &s->program->feeds.data[i]
                                                               : &s->program->states.data[i - s->program->feeds.count];
        const interp_tensor *t = input_of(oracle, sglcore_string(s->program->strings, port->name));
        if (t != NULL) cpu_put(place_of(s, port), (sgl_dtype)port->operand.dtype, t);
    }
}

static void stop(session *s)
{
    for (int space = 0; space < SGLIR_SPACES; space++)
        sglexec_device_cpu.free(s->device, s->spaces[space], s->program->space_bytes[space]);
    sglexec_device_cpu.release(s->device, s->prepared);
}

static void compare(const session *s, const interp_tensor *expected, const sglexec_port *port, double allowed,
                    uint64_t seed, const char *isa)
{
    double largest = 1;
    for (int64_t e = 0; e < expected->count; e++) {
        double value = fabs(interp_get(expected, e));
        if (isfinite(value) && value > largest) largest = value;
    }
    for (int64_t e = 0; e < expected->count; e++) {
        double want = interp_get(expected, e), got = cpu_get(place_of(s, port), (sgl_dtype)port->operand.dtype, e);
        if (want == got || (isnan(want) && isnan(got)) || fabs(want - got) <= allowed * largest) continue;
        fail_msg("seed %llu (%s): \"%s\"[%lld] is %.17g, expected %.17g", (unsigned long long)seed, isa,
                 sglcore_string(s->program->strings, port->name), (long long)e, got, want);
    }
}

/* All fetches and states, against the oracle's and against the bits of the first run. */
static void check_results(const session *s, const interp *oracle, double allowed, uint64_t seed, const char *isa,
                          char *first, bool is_first)
{
    const sglexec_program *p = s->program;
    for (int64_t i = 0; i < p->fetches.count + p->states.count; i++) {
        const sglexec_port *port = i < p->fetches.count ? &p->fetches.data[i] : &p->states.data[i - p->fetches.count];
        const char *name = sglcore_string(p->strings, port->name);
        const interp_tensor *expected = i < p->fetches.count ? interp_fetch(oracle, name) : interp_update(oracle, name);
        if (expected == NULL) continue;
        if (is_first) compare(s, expected, port, allowed, seed, isa);
        size_t bytes = (size_t)(expected->count * sglcore_dtype_bits((sgl_dtype)port->operand.dtype) / 8);
        if (is_first)
            memcpy(first, place_of(s, port), bytes);
        else if (memcmp(first, place_of(s, port), bytes) != 0)
            fail_msg("seed %llu (%s): \"%s\" depends on the threads", (unsigned long long)seed, isa, name);
        first += bytes;
    }
}

static void run_program(sglcore_env *env, const sglexec_program *program, const interp *oracle, double allowed,
                        uint64_t seed)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < program->fetches.count + program->states.count; i++) {
        const sglexec_operand *o = i < program->fetches.count
                                       ? &program->fetches.data[i].operand
                                       : &program->states.data[i - program->fetches.count].operand;
        int64_t count = 1;
        for (int d = 0; d < o->rank; d++) count *= o->dims[d];
        bytes += (size_t)(count * sglcore_dtype_bits((sgl_dtype)o->dtype) / 8);
    }
    char *first = malloc(bytes + 1);
    for (int v = 0; sglcpu_isa_at(v) != NULL; v++) {
        const char *isa = sglcpu_isa_at(v)->name;
        for (int t = 0; t < THREADS; t++) {
            session s = { .env = env, .program = program, .device = devices[v][t] };
            start(&s, oracle);
            int64_t before = env->allocations;
            assert_int_equal(
                sglexec_replay(env, &sglexec_device_cpu, s.device, s.prepared, program, s.spaces, NULL, NULL), SGL_OK);
            assert_int_equal(env->allocations, before);
            check_results(&s, oracle, allowed, seed, isa, first, t == 0);
            stop(&s);
        }
    }
    free(first);
}

static void check_seed(sglcore_env *env, uint64_t seed, sgl_dtype dtype)
{
    sglplan plan;
    sglplan_init(&plan);
    for (int op = 0; op < SGLIR_OP_COUNT; op++) plan.native[op] = sglexec_device_cpu.native((sglir_op)op);
    sglpass_context context = { .env = env, .plan = &plan, .workspace = sglexec_device_cpu.workspace };
    sglir_graph *g = make_graph(env, seed, dtype), *placed = NULL;
    interp oracle = { 0 };
    ir_case_fill(&oracle, g, seed);
    for (int i = 0; i < oracle.input_count; i++) {
        interp_tensor *t = &oracle.inputs[i].tensor;
        for (int64_t e = 0; dtype == SGL_F32 && e < t->count; e++) t->floats[e] = (double)(float)t->floats[e];
    }
    if (!interp_run(&oracle, g)) fail_msg("seed %llu: %s", (unsigned long long)seed, oracle.error);
    sglexec_program *program = NULL;
    sgl_status status = sglpass_run(&context, g, NULL, &placed);
    if (status == SGL_OK) status = sglexec_freeze(env, placed, &program);
    if (status != SGL_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, env->message);
    run_program(env, program, &oracle, dtype == SGL_F64 ? 1e-10 : 1e-3, seed);
    sglexec_program_free(program);
    sglir_graph_free(placed);
    sglir_graph_free(g);
    interp_free(&oracle);
}

static void test_random_graphs(void **state)
{
    (void)state;
    const char *first = getenv("SGL_TESTS_SEED"), *more = getenv("SGL_TESTS_SEEDS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1,
             count = more != NULL ? strtoull(more, NULL, 10) : 300;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    open_devices(&env);
    for (uint64_t i = 0; i < count; i++) check_seed(&env, seed + i, (seed + i) % 3 == 0 ? SGL_F32 : SGL_F64);
    close_devices();
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_graphs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
