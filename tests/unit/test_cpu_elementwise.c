/* test_cpu_elementwise.c -- every elementwise op, generator, reduction and movement of the CPU, one node at a time.
 *
 * Shapes: none, one element, odd sizes, several tiles, several tasks. Dtypes: all that the op takes. */
#include "cpu_case.h"

typedef struct shape {
    int rank;
    int64_t dims[4];
} shape;

static const shape shapes[] = { { 0, { 0 } },    { 1, { 0 } },    { 1, { 1 } },         { 1, { 7 } },
                                { 2, { 3, 5 } }, { 1, { 1031 } }, { 3, { 2, 3, 129 } }, { 2, { 37, 1000 } },
                                { 2, { 5, 0 } }, { 1, { 70001 } } };
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* Exact zeros, large and odd numbers among the seeded ones. */
static void special(interp *in, const char *name, interp_tensor *t)
{
    (void)in, (void)name;
    static const double rare[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN, 3.5, -20.0, 1e-30, 88.0, -104.0, 1.0, -1.0 };
    for (int64_t e = 0; t->floats != NULL && e < t->count; e++) {
        if (e % 5 == 3)
            t->floats[e] = rare[e / 5 % 12];
        else
            t->floats[e] *= 3;
    }
    for (int64_t e = 0; t->ints != NULL && t->dtype != SGL_BOOL && e < t->count; e++) {
        int64_t sign = sglcore_dtype_is_signed(t->dtype) ? -1 : 1;
        t->ints[e] = e % 3 == 0 ? sign * (e % 11) : e % 7;
    }
}

static void ordinary(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    for (int64_t e = 0; t->floats != NULL && e < t->count; e++)
        t->floats[e] = 3 * t->floats[e] + (name[0] == 'p' ? 3.01 : 0);
}

/* The op over arguments of one dtype, or of a bool and two of it; NONE where its schema takes no such thing. A row of ops.def
 * that is new is found here by itself. */
static sglir_id emit_op(sglir_graph *g, sglir_op op, sgl_dtype dtype, const shape *s, bool exact)
{
    static const char *const names[] = { "p", "b", "c" };
    sglir_id args[3];
    int count = sglir_ops[op].minimum;
    bool chooses = op == SGLIR_OP_SELECT, gelu = op == SGLIR_OP_GELU || op == SGLIR_OP_GELU_GRAD;
    uint32_t flags = sglir_ops[op].flags;
    if ((flags & SGLIR_ELEMENTWISE) == 0 || count > 3 || op == SGLIR_OP_ACCUMULATE) return SGLIR_NONE;
    if ((flags & SGLIR_COMPOSITE) != 0 && !sglexec_device_cpu.native(op)) return SGLIR_NONE;
    for (int a = 0; a < count; a++) {
        args[a] = cpu_input(g, names[a], chooses && a == 0 ? SGL_BOOL : dtype, s->rank, s->dims);
    }
    return sglir_emit(g, op, args, count, &SGLIR_I("exact", exact), gelu ? 1 : 0, NULL);
}

static bool takes(sglcore_env *env, sglir_op op, sgl_dtype dtype)
{
    sglir_graph *g = cpu_graph(env, "asked");
    bool taken = op != SGLIR_OP_CAST && emit_op(g, op, dtype, &shapes[3], false) != SGLIR_NONE;
    sglir_graph_free(g);
    return taken;
}

/* What a function of libm, or more than one rounding, may move by a unit of a narrow float's last place. */
static double ulps_of(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_NEG:
    case SGLIR_OP_ABS:
    case SGLIR_OP_SIGN:
    case SGLIR_OP_SQRT:
    case SGLIR_OP_RECIPROCAL:
    case SGLIR_OP_FLOOR:
    case SGLIR_OP_ROUND:
    case SGLIR_OP_ADD:
    case SGLIR_OP_SUB:
    case SGLIR_OP_MUL:
    case SGLIR_OP_DIV:
    case SGLIR_OP_MAXIMUM:
    case SGLIR_OP_MINIMUM:
    case SGLIR_OP_SELECT:
    case SGLIR_OP_STOP_GRADIENT: return 0;
    default: return 1;
    }
}

static void check_op(sglcore_env *env, sglir_op op, sgl_dtype dtype, const shape *s, bool exact,
                     void (*fill)(interp *, const char *, interp_tensor *))
{
    sglir_graph *g = cpu_graph(env, sglir_ops[op].name);
    sglir_output_add(g, SGLIR_FETCH, "y", emit_op(g, op, dtype, s, exact));
    /* a remainder may cancel: where there is no fma its product is rounded first */
    double absolute = op == SGLIR_OP_REMAINDER && cpu_digits(dtype) ? 1e-6 : 0;
    cpu_check(g,
              (cpu_options){
                  .relative = 4e-6, .relative_f64 = 1e-12, .ulps = ulps_of(op), .absolute = absolute, .fill = fill });
}

static const sgl_dtype dtypes[] = { SGL_F32, SGL_F64, SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2, SGL_I64, SGL_I32,
                                    SGL_I16, SGL_I8,  SGL_U8,   SGL_U16, SGL_U32,    SGL_I4,     SGL_BOOL };
enum { DTYPES = sizeof dtypes / sizeof dtypes[0], FLOATS = 6 };

static void test_elementwise(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int ops = 0;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        for (int d = 0; d < DTYPES; d++) {
            if (!takes(&env, (sglir_op)op, dtypes[d])) continue;
            ops += d == 0;
            for (int s = 0; s<SHAPES; s += d> 1 && s < 4 ? 2 : 1)
                check_op(&env, (sglir_op)op, dtypes[d], &shapes[s], s % 2 != 0, ordinary);
        }
    }
    assert_true(ops > 25); /* the table was found */
    assert_int_equal(env.bytes_in_use, 0);
}

/* Zeros, infinities, NaN: what flows through, flows. Composites of sigmoid differ from their formula there by design. */
static void test_special_values(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const sglir_op ops[] = { SGLIR_OP_NEG,        SGLIR_OP_ABS,     SGLIR_OP_SIGN,       SGLIR_OP_EXP,
                                    SGLIR_OP_LOG,        SGLIR_OP_SQRT,    SGLIR_OP_RSQRT,      SGLIR_OP_TANH,
                                    SGLIR_OP_ERF,        SGLIR_OP_SIGMOID, SGLIR_OP_FLOOR,      SGLIR_OP_ADD,
                                    SGLIR_OP_MUL,        SGLIR_OP_DIV,     SGLIR_OP_MAXIMUM,    SGLIR_OP_EQUAL,
                                    SGLIR_OP_MINIMUM,    SGLIR_OP_LESS,    SGLIR_OP_IS_FINITE,  SGLIR_OP_SELECT,
                                    SGLIR_OP_SIN,        SGLIR_OP_COS,     SGLIR_OP_LESS_EQUAL, SGLIR_OP_NOT_EQUAL,
                                    SGLIR_OP_RECIPROCAL, SGLIR_OP_LOG1P,   SGLIR_OP_EXPM1,      SGLIR_OP_ROUND };
    const shape s = { 1, { 333 } };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        for (int d = 0; d < FLOATS; d++) check_op(&env, ops[i], dtypes[d], &s, false, special);
    }
    static const sglir_op whole[] = { SGLIR_OP_DIV,        SGLIR_OP_REMAINDER,   SGLIR_OP_ABS,     SGLIR_OP_SUB,
                                      SGLIR_OP_SHIFT_LEFT, SGLIR_OP_SHIFT_RIGHT, SGLIR_OP_BIT_NOT, SGLIR_OP_BIT_XOR };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        for (int d = FLOATS; d < DTYPES - 1; d++) check_op(&env, whole[i], dtypes[d], &s, false, special);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_casts(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const shape s = { 2, { 3, 111 } };
    for (int from = 0; from < DTYPES; from++) {
        for (int to = 0; to < DTYPES; to++) {
            /* a negative float in an unsigned integer, and infinities in any, are not the oracle's business */
            bool narrow =
                sglcore_dtype_is_float(dtypes[from]) && !sglcore_dtype_is_float(dtypes[to]) && dtypes[to] != SGL_BOOL;
            sglir_graph *g = cpu_graph(&env, "cast");
            sglir_id x = cpu_input(g, narrow ? "p" : "x", dtypes[from], s.rank, s.dims);
            sglir_output_add(g, SGLIR_FETCH, "y",
                             sglir_emit(g, SGLIR_OP_CAST, &x, 1, &SGLIR_I("to", dtypes[to]), 1, NULL));
            cpu_check(g, (cpu_options){ .fill = narrow ? ordinary : special });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_generators(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int d = 0; d < DTYPES - 1; d++) {
        sglir_graph *g = cpu_graph(&env, "iota, constant, segments");
        const int64_t dims[] = { 5, 7, 3 }, counts[] = { 0, 3, 1, 0, 1500, 0 };
        const double values[] = { 9, 1, 2, 9, 0.5, 9 };
        for (int64_t axis = 0; axis < 3; axis++) {
            char name[3] = { 'i', (char)('0' + axis), 0 };
            sglir_output_add(g, SGLIR_FETCH, name,
                             sglir_emit(g, SGLIR_OP_IOTA, NULL, 0,
                                        (sglir_named[]){ SGLIR_I("axis", axis), SGLIR_INTS("dims", 3, dims),
                                                         SGLIR_I("dtype", dtypes[d]) },
                                        3, NULL));
        }
        sglir_output_add(g, SGLIR_FETCH, "c", sglir_constant(g, dtypes[d], 7));
        if (sglcore_dtype_is_float(dtypes[d])) {
            sglir_output_add(g, SGLIR_FETCH, "s",
                             sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0,
                                        (sglir_named[]){ SGLIR_INTS("counts", 6, counts),
                                                         SGLIR_FLOATS("values", 6, values),
                                                         SGLIR_I("dtype", dtypes[d]) },
                                        3, NULL));
        }
        cpu_check(g, (cpu_options){ 0 });
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void seeds(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    t->ints[0] = name[0] == 's' ? INT64_C(0x123456789abcdef) : name[0] == 'o' ? INT64_C(0x1fffffffd) : 41;
}

static void test_random(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t sizes[] = { 1, 3, 130, 1000, 20001 };
    for (int d = 0; d < FLOATS; d++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            sglir_graph *g = cpu_graph(&env, "random");
            const int64_t dims[] = { 3, sizes[s] };
            sglir_id args[] = { cpu_input(g, "seed", SGL_I64, 0, NULL), cpu_input(g, "turn", SGL_I64, 0, NULL),
                                cpu_input(g, "offset", SGL_I64, 0, NULL) };
            const sglir_named attrs[] = { SGLIR_I("id", -77), SGLIR_INTS("dims", 2, dims),
                                          SGLIR_I("dtype", dtypes[d]) };
            sglir_output_add(g, SGLIR_FETCH, "u", sglir_emit(g, SGLIR_OP_RANDOM_UNIFORM, args, 3, attrs, 3, NULL));
            sglir_output_add(g, SGLIR_FETCH, "n", sglir_emit(g, SGLIR_OP_RANDOM_NORMAL, args, 3, attrs, 3, NULL));
            cpu_check(g, (cpu_options){ .fill = seeds, .relative = 1.2e-7, .relative_f64 = 1e-15, .ulps = 1 });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------- */

static void check_reduction(sglcore_env *env, sglir_op op, sgl_dtype dtype, const shape *s, unsigned mask, bool keep)
{
    int64_t axes[4];
    int count = 0;
    for (int d = 0; d < s->rank; d++) {
        if (mask >> d & 1) axes[count++] = d;
    }
    if (count == 0) return;
    sglir_graph *g = cpu_graph(env, sglir_ops[op].name);
    sglir_id x = cpu_input(g, "x", dtype, s->rank, s->dims);
    sglir_output_add(g, SGLIR_FETCH, "y", sglir_reduce(g, op, x, axes, count, keep));
    cpu_check(g, (cpu_options){ .relative = 5e-7, .relative_f64 = 1e-14, .ulps = 1 });
}

static void test_reductions(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const shape of[] = { { 1, { 1 } },          { 1, { 5 } },          { 1, { 3001 } },    { 2, { 4, 6 } },
                                { 2, { 200, 300 } },   { 2, { 3, 5000 } },    { 2, { 5000, 3 } }, { 3, { 7, 1, 65 } },
                                { 3, { 20, 33, 40 } }, { 4, { 3, 4, 5, 6 } }, { 2, { 4, 0 } },    { 2, { 0, 4 } },
                                { 2, { 70, 1500 } },   { 3, { 5, 300, 17 } } };
    static const sglir_op ops[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_MAX, SGLIR_OP_REDUCE_MIN };
    for (size_t s = 0; s < sizeof of / sizeof of[0]; s++) {
        for (unsigned mask = 1; mask < 1u << of[s].rank; mask++) {
            for (int o = 0; o < 3; o++) {
                for (int d = 0; d < FLOATS + 2; d++)
                    check_reduction(&env, ops[o], dtypes[d], &of[s], mask, mask % 2 == 0);
            }
        }
    }
    for (unsigned mask = 1; mask < 4; mask++) { /* any, all */
        for (int o = 1; o < 3; o++) check_reduction(&env, ops[o], SGL_BOOL, &of[5], mask, false);
        for (int o = 1; o < 3; o++) check_reduction(&env, ops[o], SGL_BOOL, &of[10], mask, false);
    }
    for (int d = FLOATS + 2; d < DTYPES - 1; d++) {
        for (int o = 0; o < 3; o++) check_reduction(&env, ops[o], dtypes[d], &of[3], 2, false);
        for (unsigned mask = 1; mask < 4; mask++) check_reduction(&env, ops[mask - 1], dtypes[d], &of[5], mask, false);
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_nan_wins(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int o = 0; o < 2; o++) {
        for (unsigned mask = 1; mask < 4; mask++) {
            sglir_graph *g = cpu_graph(&env, "extremes of NaN");
            const int64_t dims[] = { 9, 101 }, axes[] = { mask == 2 ? 1 : 0, 1 };
            sglir_id x = cpu_input(g, "x", SGL_F32, 2, dims);
            sglir_op op = o == 0 ? SGLIR_OP_REDUCE_MAX : SGLIR_OP_REDUCE_MIN;
            sglir_output_add(g, SGLIR_FETCH, "y", sglir_reduce(g, op, x, axes, mask == 3 ? 2 : 1, false));
            cpu_check(g, (cpu_options){ .fill = special });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* A million ones and a little: float32 sums must not drift. */
static void nearly_one(interp *in, const char *name, interp_tensor *t)
{
    (void)in, (void)name;
    for (int64_t e = 0; e < t->count; e++) t->floats[e] = 1 + 1e-3 * t->floats[e];
}

static void test_long_sums(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t dims[3][2] = { { 1, 1000000 }, { 1000000, 1 }, { 50000, 20 } };
    for (int s = 0; s < 3; s++) {
        for (unsigned mask = 1; mask < 4; mask++) {
            sglir_graph *g = cpu_graph(&env, "long sums");
            const int64_t axes[] = { mask == 2 ? 1 : 0, 1 };
            sglir_id x = cpu_input(g, "x", SGL_F32, 2, dims[s]);
            sglir_output_add(g, SGLIR_FETCH, "y",
                             sglir_reduce(g, SGLIR_OP_REDUCE_SUM, x, axes, mask == 3 ? 2 : 1, false));
            cpu_check(g, (cpu_options){ .relative = 1.5e-7, .fill = nearly_one });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- movement -------------------------------------------------------------------------------------------------------- */

static void test_movement(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t dims[][4] = {
        { 2, 3, 4, 5 }, { 33, 2, 1, 70 }, { 1, 129, 65, 3 }, { 0, 3, 2, 2 }, { 20, 64, 1, 40 }
    };
    static const int64_t orders[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 0, 2, 1, 3 },
                                         { 1, 0, 3, 2 }, { 2, 3, 0, 1 }, { 0, 3, 1, 2 } };
    for (int d = 0; d < DTYPES; d++) {
        for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
            sglir_graph *g = cpu_graph(&env, "transpose, slice, broadcast, reshape");
            sglir_id x = cpu_input(g, "x", dtypes[d], 4, dims[s]);
            for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
                char name[3] = { 't', (char)('0' + o), 0 };
                sglir_output_add(g, SGLIR_FETCH, name,
                                 sglir_emit(g, SGLIR_OP_TRANSPOSE, &x, 1, &SGLIR_INTS("order", 4, orders[o]), 1, NULL));
            }
            for (int64_t axis = 0; axis < 4; axis++) {
                char name[3] = { 's', (char)('0' + axis), 0 };
                sglir_named cut[] = { SGLIR_I("axis", axis), SGLIR_I("start", dims[s][axis] / 3),
                                      SGLIR_I("stop", dims[s][axis]), SGLIR_I("step", 1 + axis % 3) };
                sglir_output_add(g, SGLIR_FETCH, name, sglir_emit(g, SGLIR_OP_SLICE, &x, 1, cut, 4, NULL));
            }
            const int64_t flat[] = { dims[s][0] * dims[s][1], dims[s][2] * dims[s][3] };
            sglir_output_add(g, SGLIR_FETCH, "r",
                             sglir_emit(g, SGLIR_OP_RESHAPE, &x, 1, &SGLIR_INTS("dims", 2, flat), 1, NULL));
            const int64_t ones[] = { dims[s][1], 1, dims[s][3] }, wide[] = { 3, dims[s][1], 5, dims[s][3] };
            sglir_id y = cpu_input(g, "y", dtypes[d], 3, ones);
            sglir_output_add(g, SGLIR_FETCH, "b",
                             sglir_emit(g, SGLIR_OP_BROADCAST, &y, 1, &SGLIR_INTS("dims", 4, wide), 1, NULL));
            cpu_check(g, (cpu_options){ .one_variant = true });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- narrow floats ------------------------------------------------------------------------------------------------- */

/* A float32 for each code of the dtype, and around it what is a tie, and what lies just beside one. */
static double near_code(sgl_dtype dtype, int64_t e)
{
    unsigned bits = (unsigned)sglcore_dtype_bits(dtype), code = (unsigned)(e / 8) & ((1u << bits) - 1);
    double value = cpu_decoded(dtype, code), half = cpu_ulp(dtype, value) / 2;
    if (!isfinite(value)) return value;
    switch (e % 8) {
    case 0: return value;
    case 1: return value + half;
    case 2: return value - half / 2; /* below a power of two the numbers lie twice as near */
    case 3: return nextafterf((float)(value + half), INFINITY);
    case 4: return nextafterf((float)(value + half), -INFINITY);
    case 5: return value + half / 2;
    case 6: return nextafterf((float)value, INFINITY);
    default: return e % 16 == 7 ? value * 0x1p-60 : value + (value < 0 ? -half : half);
    }
}

static sgl_dtype rounded_to;

static void ties(interp *in, const char *name, interp_tensor *t)
{
    (void)in, (void)name;
    for (int64_t e = 0; e < t->count; e++) t->floats[e] = near_code(rounded_to, e);
}

/* Every code of each dtype, ties, subnormals, overflow; rounded by storing, by the rounding between two ops, by a copy. */
static void test_rounding(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int d = 2; d < FLOATS; d++) {
        for (int from = 0; from < 2; from++) {
            rounded_to = dtypes[d];
            int64_t count = INT64_C(8) << sglcore_dtype_bits(dtypes[d]);
            sglir_graph *g = cpu_graph(&env, sgl_dtype_name(dtypes[d]));
            sglir_id x = cpu_input(g, "x", dtypes[from], 1, &count);
            sglir_id y = sglir_emit(g, SGLIR_OP_CAST, &x, 1, &SGLIR_I("to", dtypes[d]), 1, NULL);
            sglir_output_add(g, SGLIR_FETCH, "stored", y);
            sglir_output_add(g, SGLIR_FETCH, "doubled", sglir_binary(g, SGLIR_OP_ADD, y, y));
            sglir_output_add(g, SGLIR_FETCH, "back", sglir_cast(g, y, SGL_F64));
            cpu_check(g, (cpu_options){ .fill = ties });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* A double that a float32 would make a tie: rounded once, not twice. */
static void test_rounded_once(void **state)
{
    (void)state;
    const sglcpu_isa *isa = sglcpu_isa_at(0);
    const double near_tie = 1 + 0x1p-8 + 0x1p-40;
    uint16_t code;
    float held;
    sglcpu_cast(SGL_F64, SGL_BF16)(&held, &near_tie, NULL, NULL, 1);
    isa->narrow[SGL_BF16].narrow(&code, &held, NULL, NULL, 1);
    assert_int_equal(code, 0x3f81);
    const int64_t large = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1;
    sglcpu_cast(SGL_I64, SGL_BF16)(&held, &large, NULL, NULL, 1);
    isa->narrow[SGL_BF16].narrow(&code, &held, NULL, NULL, 1);
    assert_int_equal(code, 0x5e81);
}

/* The same ops in one kernel, and each by itself with its result stored. */
static sglir_id chain(sglir_graph *g, sglir_id x, sglir_id y, bool apart, const char *name)
{
    sglir_id a = sglir_mul(g, x, y);
    if (apart) sglir_output_add(g, SGLIR_FETCH, name, a);
    return sglir_add(g, sglir_unary(g, SGLIR_OP_EXP, a), sglir_mul(g, a, x));
}

static void test_fused_alike(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const int64_t dims[] = { 37, 300 };
    for (int d = 2; d < FLOATS; d++) {
        sglir_graph *g = cpu_graph(&env, "a kernel and its ops");
        sglir_type type = sglir_type_make(dtypes[d], 2, dims);
        sglir_id x = cpu_input(g, "x", dtypes[d], 2, dims), y = cpu_input(g, "y", dtypes[d], 2, dims), inside[2];
        sglir_id plain = chain(g, x, y, true, "product"), fused;
        sglir_region_begin(g, (sglir_type[]){ type, type }, 2, inside);
        sglir_id result = chain(g, inside[0], inside[1], false, "");
        sglir_region_end(g, &result, 1);
        sglir_id region = (sglir_id)g->regions.count - 1;
        sglir_named attrs[] = { SGLIR_INTS("domain", 2, dims), SGLIR_I("inner", 1) };
        sglir_emit_regions(g, SGLIR_OP_FUSED, (sglir_id[]){ x, y }, 2, attrs, 2, &region, 1, &fused);
        sglir_id same = sglir_binary(g, SGLIR_OP_EQUAL, plain, fused);
        sglir_output_add(g, SGLIR_FETCH, "same", same);
        sglir_output_add(g, SGLIR_FETCH, "fused", fused);
        cpu_check(g, (cpu_options){ .ulps = 2, .fill = NULL });
    }
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_special_values), cmocka_unit_test(test_casts),
        cmocka_unit_test(test_generators),  cmocka_unit_test(test_random),         cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_nan_wins),    cmocka_unit_test(test_long_sums),      cmocka_unit_test(test_movement),
        cmocka_unit_test(test_rounding),    cmocka_unit_test(test_rounded_once),   cmocka_unit_test(test_fused_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
