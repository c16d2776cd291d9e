/* test_cpu_attention.c -- the CPU's attention with segments and in narrow floats, and rope with positions and frequencies.
 *
 * Each op stands alone in a graph and is held against the interpreter, over shapes that take each of its routes: one query
 * or blocks of them, one pass or parts, blocks of keys that are skipped, seen in part and seen whole. Attention of whole
 * sequences in f32 and f64 is in test_cpu_ops.c. */
#include "cpu_case.h"

static const sgl_dtype floats[] = { SGL_F32, SGL_F64, SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2 };
enum { FLOATS = 6 };

/* ---- segments --------------------------------------------------------------------------------------------------------- */

/* How segments lie: documents of some length, one after another; the same, with padding at the end of each sequence;
 * mixed at random with padding between; nothing but padding; the queries' documents numbered from 3 on. */
typedef enum layout { DOCUMENTS, PADDED, MIXED, PADDING, OTHERS, LAYOUTS } layout;

static layout laid;
static int64_t start_at, document;

static int64_t segment_at(const char *name, int64_t sequence, int64_t place, int64_t length)
{
    switch (laid) {
    case PADDED: return place >= length - length / 4 ? -1 : place / document;
    case MIXED: return (place * 7 + sequence * 3 + place / 5) % 5 - 1;
    case PADDING: return -7;
    case OTHERS: return place / document + (name[1] == 'q' ? 3 : 0);
    default: return place / document;
    }
}

static void fill(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    if (strcmp(name, "offset") == 0) t->ints[0] = start_at;
    if (name[0] != 's') return;
    for (int64_t e = 0; e < t->count; e++) t->ints[e] = segment_at(name, e / t->dims[1], e % t->dims[1], t->dims[1]);
}

typedef struct attention_case {
    int64_t b, t, s, h, g, d, e, offset, causal, window, document;
} attention_case;

static const attention_case cases[] = {
    { 2, 70, 70, 4, 2, 16, 24, 0, 1, 0, 23 },   { 1, 300, 300, 2, 1, 8, 8, 0, 1, 0, 150 },
    { 2, 130, 400, 2, 1, 8, 5, 0, 0, 0, 64 },   { 1, 40, 300, 3, 3, 17, 33, 260, 1, 0, 100 },
    { 1, 200, 200, 2, 2, 8, 8, 0, 1, 50, 128 }, { 3, 1, 150, 6, 2, 16, 16, 140, 1, 0, 40 },
    { 1, 1, 300, 5, 1, 8, 12, 0, 0, 0, 300 },   { 9, 65, 600, 1, 1, 4, 4, 0, 0, 0, 200 },
    { 1, 64, 128, 1, 1, 4, 4, 0, 0, 0, 128 },   { 2, 3, 0, 2, 1, 4, 4, 0, 0, 0, 1 },
};
enum { CASES = sizeof cases / sizeof cases[0] };

static sglir_graph *attention_graph(sglcore_env *env, const attention_case *c, sgl_dtype dtype, bool segments)
{
    sglir_graph *g = cpu_graph(env, "attention");
    const int64_t q_dims[] = { c->b, c->t, c->h, c->d }, k_dims[] = { c->b, c->s, c->g, c->d },
                  v_dims[] = { c->b, c->s, c->g, c->e }, o_dims[] = { c->b, c->t, c->h, c->e };
    sglir_id q = cpu_input(g, "q", dtype, 4, q_dims), k = cpu_input(g, "k", dtype, 4, k_dims),
             v = cpu_input(g, "v", dtype, 4, v_dims), dout = cpu_input(g, "dout", dtype, 4, o_dims);
    sglir_id offset = cpu_input(g, "offset", SGL_I64, 0, NULL), out[2], grads[3];
    sglir_id own = cpu_input(g, "sq", SGL_I32, 2, q_dims), others = cpu_input(g, "sk", SGL_I32, 2, k_dims);
    const sglir_named attrs[] = { SGLIR_F("scale", 1.5), SGLIR_I("causal", c->causal), SGLIR_I("window", c->window) };
    sglir_emit(g, SGLIR_OP_ATTENTION, (sglir_id[]){ q, k, v, offset, own, others }, segments ? 6 : 4, attrs, 3, out);
    /* a narrow out may be rounded the other way by a hair, and all of dq would show it: there it is given */
    sglir_id given = cpu_input(g, "given", dtype, 4, o_dims);
    sglir_id kept = sglcpu_is_narrow(dtype) ? given : out[0];
    sglir_emit(g, SGLIR_OP_ATTENTION_GRAD, (sglir_id[]){ q, k, v, kept, out[1], dout, offset, own, others },
               segments ? 9 : 7, attrs, 3, grads);
    sglir_output_add(g, SGLIR_FETCH, "out", out[0]);
    sglir_output_add(g, SGLIR_FETCH, "lse", out[1]);
    sglir_output_add(g, SGLIR_FETCH, "dq", grads[0]);
    sglir_output_add(g, SGLIR_FETCH, "dk", grads[1]);
    sglir_output_add(g, SGLIR_FETCH, "dv", grads[2]);
    return g;
}

static void test_segments(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int i = 0; i < CASES; i++) {
        for (laid = 0; laid < LAYOUTS; laid++) {
            start_at = cases[i].offset;
            document = cases[i].document;
            for (int f = 0; f < 2; f++) {
                cpu_check(attention_graph(&env, &cases[i], floats[f], true),
                          (cpu_options){ .relative = 6e-6, .absolute = 1e-6, .fill = fill });
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- narrow floats ------------------------------------------------------------------------------------------------------ */

static void test_narrow(void **state)
{
    (void)state;
    static const attention_case shapes[] = {
        { 2, 70, 90, 4, 2, 16, 24, 20, 1, 0, 30 }, { 1, 1, 300, 6, 1, 16, 24, 290, 1, 0, 100 },
        { 1, 1, 7, 2, 2, 5, 3, 6, 1, 4, 2 },       { 1, 33, 600, 2, 1, 7, 9, 560, 1, 0, 250 },
        { 10, 20, 20, 1, 1, 8, 8, 0, 1, 0, 6 },    { 9, 5, 520, 1, 1, 4, 4, 515, 1, 0, 510 },
    };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int f = 2; f < FLOATS; f++) {
            laid = PADDED;
            start_at = shapes[i].offset;
            document = shapes[i].document;
            for (int segments = 0; segments < 2; segments++) {
                cpu_check(attention_graph(&env, &shapes[i], floats[f], segments),
                          (cpu_options){ .relative = 6e-6, .ulps = 1, .absolute = 1e-5, .fill = fill });
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- rope --------------------------------------------------------------------------------------------------------------- */

static void scattered(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    if (strcmp(name, "offset") == 0) t->ints[0] = 40;
    for (int64_t e = 0; name[0] == 'p' && e < t->count; e++) t->ints[e] = e % 4 == 3 ? 1000 - 5 * e : e % 4 * 2;
}

static void test_rope_positions(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t dims[][4] = { { 2, 50, 3, 8 }, { 3, 1, 2, 8 }, { 2, 0, 1, 8 } };
    static const double frequencies[] = { 1, 0.25, -0.5, 1e-3 };
    for (int f = 0; f < FLOATS; f++) {
        for (int s = 0; s < 3; s++) {
            sglir_graph *g = cpu_graph(&env, "rope by positions");
            sglir_id x = cpu_input(g, "x", floats[f], 4, dims[s]), p = cpu_input(g, "p", SGL_I32, 2, dims[s]);
            sglir_id offset = cpu_input(g, "offset", SGL_I64, 0, NULL);
            const sglir_named attrs[] = { SGLIR_FLOATS("frequencies", 4, frequencies), SGLIR_F("theta", 500.0),
                                          SGLIR_I("inverse", 1) };
            sglir_output_add(g, SGLIR_FETCH, "by theta",
                             sglir_emit(g, SGLIR_OP_ROPE, (sglir_id[]){ x, p }, 2, attrs + 1, 1, NULL));
            sglir_output_add(g, SGLIR_FETCH, "by frequencies",
                             sglir_emit(g, SGLIR_OP_ROPE, (sglir_id[]){ x, p }, 2, attrs, 1, NULL));
            sglir_output_add(g, SGLIR_FETCH, "back",
                             sglir_emit(g, SGLIR_OP_ROPE, (sglir_id[]){ x, p }, 2, attrs, 3, NULL));
            sglir_output_add(g, SGLIR_FETCH, "of an offset",
                             sglir_emit(g, SGLIR_OP_ROPE, (sglir_id[]){ x, offset }, 2, attrs, 1, NULL));
            cpu_check(g, (cpu_options){ .relative = 5e-7, .relative_f64 = 1e-13, .ulps = 1, .fill = scattered });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_segments), cmocka_unit_test(test_narrow),
                                        cmocka_unit_test(test_rope_positions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
