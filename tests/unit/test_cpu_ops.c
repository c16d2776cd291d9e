/* test_cpu_ops.c -- the CPU's products, moves by index and position, rope, attention and vocabulary loss.
 *
 * Each op stands alone in a graph and is held against the interpreter, over shapes that take each of its routes. */
#include "cpu_case.h"

static const sgl_dtype floats[] = { SGL_F32, SGL_F64, SGL_BF16, SGL_F16, SGL_F8E4M3, SGL_F8E5M2 };
enum { FLOATS = 6 };

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct dot_case {
    int a_rank, b_rank, batch, contract;
    int64_t a[5], b[5], batch_a[3], batch_b[3], contract_a[3], contract_b[3];
} dot_case;

static const dot_case dots[] = {
    { 2, 2, 0, 1, { 3, 5 }, { 5, 7 }, { 0 }, { 0 }, { 1 }, { 0 } },
    { 2, 2, 0, 1, { 65, 33 }, { 47, 33 }, { 0 }, { 0 }, { 1 }, { 1 } },
    { 2, 2, 0, 1, { 33, 65 }, { 33, 47 }, { 0 }, { 0 }, { 0 }, { 0 } },
    { 2, 2, 0, 1, { 33, 65 }, { 47, 33 }, { 0 }, { 0 }, { 0 }, { 1 } },
    { 2, 2, 0, 1, { 300, 200 }, { 250, 200 }, { 0 }, { 0 }, { 1 }, { 1 } },
    { 2, 2, 0, 1, { 700, 130 }, { 700, 90 }, { 0 }, { 0 }, { 0 }, { 0 } },
    { 2, 2, 0, 1, { 1, 100 }, { 3000, 100 }, { 0 }, { 0 }, { 1 }, { 1 } }, /* a token: rows of b */
    { 2, 2, 0, 1, { 3, 101 }, { 101, 777 }, { 0 }, { 0 }, { 1 }, { 0 } },  /* a token: columns of b */
    { 2, 2, 0, 1, { 4, 37 }, { 501, 37 }, { 0 }, { 0 }, { 1 }, { 1 } },
    { 2, 2, 0, 1, { 2, 37 }, { 501, 37 }, { 0 }, { 0 }, { 1 }, { 1 } },
    { 2, 2, 0, 1, { 37, 3 }, { 37, 501 }, { 0 }, { 0 }, { 0 }, { 0 } },
    { 2, 1, 0, 1, { 301, 99 }, { 99 }, { 0 }, { 0 }, { 1 }, { 0 } }, /* one column */
    { 2, 1, 0, 1, { 99, 301 }, { 99 }, { 0 }, { 0 }, { 0 }, { 0 } },
    { 1, 1, 0, 1, { 1000 }, { 1000 }, { 0 }, { 0 }, { 0 }, { 0 } },
    { 1, 1, 0, 0, { 30 }, { 50 }, { 0 }, { 0 }, { 0 }, { 0 } }, /* outer */
    { 3, 3, 1, 1, { 9, 20, 30 }, { 9, 30, 40 }, { 0 }, { 0 }, { 2 }, { 1 } },
    { 4, 4, 2, 1, { 2, 17, 3, 16 }, { 2, 19, 3, 16 }, { 0, 2 }, { 0, 2 }, { 3 }, { 3 } }, /* scores as they lie */
    { 4, 4, 2, 1, { 2, 3, 17, 19 }, { 2, 19, 3, 16 }, { 0, 1 }, { 0, 2 }, { 3 }, { 1 } },
    { 3, 2, 0, 1, { 6, 7, 8 }, { 7, 5 }, { 0 }, { 0 }, { 1 }, { 0 } }, /* free dims around the contracted one: a copy */
    { 3, 3, 0, 2, { 6, 7, 8 }, { 8, 5, 6 }, { 0 }, { 0 }, { 0, 2 }, { 2, 0 } },
    { 4, 3, 1, 2, { 3, 6, 7, 8 }, { 8, 6, 3 }, { 0 }, { 2 }, { 1, 3 }, { 1, 0 } },
    { 2, 2, 0, 1, { 0, 5 }, { 5, 7 }, { 0 }, { 0 }, { 1 }, { 0 } },
    { 2, 2, 0, 1, { 3, 0 }, { 0, 7 }, { 0 }, { 0 }, { 1 }, { 0 } }, /* sums of nothing are zeros */
    { 3, 3, 1, 1, { 1, 1, 1 }, { 1, 1, 1 }, { 0 }, { 0 }, { 2 }, { 1 } },
    { 3, 3, 1, 1, { 40, 5, 6 }, { 40, 6, 3 }, { 0 }, { 0 }, { 2 }, { 1 } }, /* a batch of small ones */
    /* narrow floats: in blocks of the contracted dim */
    { 2, 2, 0, 1, { 17, 8000 }, { 19, 8000 }, { 0 }, { 0 }, { 1 }, { 1 } },
    { 2, 2, 0, 1, { 8000, 17 }, { 8000, 19 }, { 0 }, { 0 }, { 0 }, { 0 } },
};

static void test_dot(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof dots / sizeof dots[0]; i++) {
        const dot_case *d = &dots[i];
        for (int f = 0; f < FLOATS; f++) {
            char name[32];
            snprintf(name, sizeof name, "dot %zu", i);
            sglir_graph *g = cpu_graph(&env, name);
            sglir_id a = cpu_input(g, "a", floats[f], d->a_rank, d->a),
                     b = cpu_input(g, "b", floats[f], d->b_rank, d->b);
            sglir_output_add(g, SGLIR_FETCH, "y",
                             sglir_dot(g, a, b, d->batch, d->batch_a, d->batch_b, d->contract, d->contract_a,
                                       d->contract_b));
            cpu_check(g, (cpu_options){ .relative = 2e-6, .ulps = 1, .absolute = f < 2 ? 0 : 1e-4 });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- by index, by position ------------------------------------------------------------------------------------------ */

static void some_outside(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    for (int64_t e = 0; name[0] == 'i' && e < t->count; e++) {
        t->ints[e] = e % 13 == 5 ? 200 : (e * 7 + e / 3) % 50;
        if (e % 17 == 3 && sglcore_dtype_is_signed(t->dtype)) t->ints[e] = -1;
    }
}

static void test_gather_scatter(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const sgl_dtype of_indices[] = { SGL_I64, SGL_I32, SGL_I16, SGL_U8, SGL_U16, SGL_U32 };
    static const sgl_dtype of_rows[] = { SGL_F32, SGL_F64, SGL_I64, SGL_I32, SGL_BF16, SGL_F8E5M2, SGL_I8, SGL_I4 };
    static const int64_t widths[] = { 1, 3, 64, 300, 0 }, counts[][2] = { { 5, 20 }, { 300, 4 }, { 0, 3 }, { 1, 1 } };
    for (int r = 0; r < 8; r++) {
        for (int w = 0; w < 5; w++) {
            for (int c = 0; c < 4; c++) {
                sglir_graph *g = cpu_graph(&env, "gather, scatter_add");
                const int64_t table[] = { 50, widths[w] }, updates[] = { counts[c][0], counts[c][1], widths[w] };
                sglir_id i = cpu_input(g, "i", of_indices[(r * 20 + w * 4 + c) % 6], 2, counts[c]);
                sglir_id t = cpu_input(g, "t", of_rows[r], 2, table), u = cpu_input(g, "u", of_rows[r], 3, updates);
                sglir_output_add(g, SGLIR_FETCH, "g",
                                 sglir_emit(g, SGLIR_OP_GATHER, (sglir_id[]){ t, i }, 2, NULL, 0, NULL));
                sglir_output_add(g, SGLIR_FETCH, "s",
                                 sglir_emit(g, SGLIR_OP_SCATTER_ADD, (sglir_id[]){ i, u }, 2, &SGLIR_I("extent", 50), 1,
                                            NULL));
                sglir_output_add(g, SGLIR_FETCH, "l",
                                 sglir_emit(g, SGLIR_OP_SCATTER_ADD, (sglir_id[]){ i, u }, 2, &SGLIR_I("extent", 9000),
                                            1, NULL));
                cpu_check(g, (cpu_options){ .relative = 1e-6, .ulps = 1, .fill = some_outside, .one_variant = r > 1 });
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static int64_t start_at;

static void start_there(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    if (name[0] == 's') t->ints[0] = start_at;
}

static void test_dynamic(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t dims[][3] = { { 4, 9, 5 }, { 3, 100, 400 }, { 70000, 2, 1 } },
                         starts[] = { 0, 1, 2, -4, 1000 };
    for (int s = 0; s < 3; s++) {
        for (int64_t axis = 0; axis < 3; axis++) {
            for (int at = 0; at < 5; at++) {
                for (int in_place = 0; in_place < 2; in_place++) {
                    sglir_graph *g = cpu_graph(&env, "dynamic_slice, dynamic_update");
                    start_at = starts[at];
                    int64_t size = dims[s][axis] > 2 ? 2 : dims[s][axis],
                            part[3] = { dims[s][0], dims[s][1], dims[s][2] };
                    part[axis] = size;
                    static const sgl_dtype moved[] = { SGL_F32, SGL_I4, SGL_BF16 };
                    sgl_dtype dtype = moved[(at + axis) % 3];
                    sglir_id x = cpu_input(g, "x", dtype, 3, dims[s]), u = cpu_input(g, "u", dtype, 3, part);
                    sglir_id start = cpu_input(g, "s", SGL_I64, 0, NULL);
                    const sglir_named attrs[] = { SGLIR_I("axis", axis), SGLIR_I("size", size) };
                    sglir_output_add(g, SGLIR_FETCH, "slice",
                                     sglir_emit(g, SGLIR_OP_DYNAMIC_SLICE, (sglir_id[]){ x, start }, 2, attrs, 2,
                                                NULL));
                    sglir_id y = sglir_emit(g, SGLIR_OP_DYNAMIC_UPDATE, (sglir_id[]){ x, u, start }, 3, attrs, 1, NULL);
                    sglir_output_add(g, SGLIR_FETCH, "update", y);
                    sglir_id node = in_place ? g->values.data[y].node : 0;
                    cpu_check(g, (cpu_options){ .fill = start_there, .one_variant = true, .in_place_node = node });
                }
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_pack_and_pad(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const sgl_dtype dtypes[] = { SGL_F32, SGL_F64, SGL_I16, SGL_U8, SGL_BF16, SGL_F8E4M3, SGL_I4 };
    for (int d = 0; d < 7; d++) {
        for (int64_t axis = 0; axis < 3; axis++) {
            sglir_graph *g = cpu_graph(&env, "pack, unpack, concat, pad, copy");
            const int64_t a[] = { 3, 40, 5 };
            int64_t b[] = { 3, 40, 5 }, none[] = { 3, 40, 5 };
            b[axis] = 700;
            none[axis] = 0;
            sglir_id x = cpu_input(g, "x", dtypes[d], 3, a), y = cpu_input(g, "y", dtypes[d], 3, b),
                     z = cpu_input(g, "z", dtypes[d], 3, none);
            sglir_id all[] = { x, z, y, x };
            sglir_output_add(g, SGLIR_FETCH, "concat",
                             sglir_emit(g, SGLIR_OP_CONCAT, all, 4, &SGLIR_I("axis", axis), 1, NULL));
            sglir_id packed = sglir_emit(g, SGLIR_OP_PACK, all, 4, NULL, 0, NULL), parts[3];
            sglir_output_add(g, SGLIR_FETCH, "pack", packed);
            int64_t total = sglir_elements(sglir_type_of(g, packed));
            const int64_t ranks[] = { 2, 0, 1 }, dims[] = { 5, 7, total - 36 };
            sglir_emit(g, SGLIR_OP_UNPACK, &packed, 1,
                       (sglir_named[]){ SGLIR_INTS("ranks", 3, ranks), SGLIR_INTS("dims", 3, dims) }, 2, parts);
            for (int i = 0; i < 3; i++) sglir_output_add(g, SGLIR_FETCH, (char[]){ 'u', (char)('0' + i), 0 }, parts[i]);
            sglir_named pad[] = { SGLIR_I("axis", axis), SGLIR_I("before", 2), SGLIR_I("after", 1),
                                  SGLIR_I("between", axis), SGLIR_F("value", 3) };
            sglir_output_add(g, SGLIR_FETCH, "pad", sglir_emit(g, SGLIR_OP_PAD, &x, 1, pad, 5, NULL));
            sglir_output_add(g, SGLIR_FETCH, "copy", sglir_emit(g, SGLIR_OP_COPY, &packed, 1, NULL, 0, NULL));
            cpu_check(g, (cpu_options){ .one_variant = true });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- rope, attention -------------------------------------------------------------------------------------------------- */

static void test_rope(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t dims[][4] = { { 2, 5, 3, 8 }, { 1, 1, 2, 64 }, { 3, 300, 2, 6 }, { 2, 0, 1, 4 } },
                         offsets[] = { 0, 1000 };
    for (int f = 0; f < FLOATS; f++) {
        for (int s = 0; s < 4; s++) {
            for (int o = 0; o < 2; o++) {
                sglir_graph *g = cpu_graph(&env, "rope");
                start_at = offsets[o];
                sglir_id args[] = { cpu_input(g, "x", floats[f], 4, dims[s]), cpu_input(g, "s", SGL_I64, 0, NULL) };
                for (int64_t back = 0; back < 2; back++) {
                    const sglir_named attrs[] = { SGLIR_F("theta", 500.0), SGLIR_I("inverse", back) };
                    sglir_output_add(g, SGLIR_FETCH, back ? "back" : "turned",
                                     sglir_emit(g, SGLIR_OP_ROPE, args, 2, attrs, 2, NULL));
                }
                cpu_check(g, (cpu_options){ .relative = 5e-7, .relative_f64 = 1e-13, .ulps = 1, .fill = start_there });
            }
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

typedef struct attention_case {
    int64_t b, t, s, h, g, d, e, offset, causal, window;
} attention_case;

static const attention_case attentions[] = {
    { 1, 3, 3, 1, 1, 4, 4, 0, 1, 0 },        { 2, 65, 65, 4, 2, 16, 24, 0, 1, 0 },
    { 1, 200, 200, 2, 1, 64, 64, 0, 1, 0 },  { 1, 70, 300, 2, 2, 10, 7, 0, 0, 0 },
    { 1, 40, 300, 3, 3, 17, 33, 260, 1, 0 }, { 2, 150, 150, 2, 1, 8, 8, 0, 1, 20 },
    { 1, 130, 400, 1, 1, 8, 8, 270, 1, 90 }, { 3, 1, 50, 6, 2, 16, 16, 30, 1, 0 },
    { 1, 1, 50, 10, 2, 16, 12, 49, 1, 7 },   { 2, 1, 1, 2, 2, 4, 4, 0, 1, 0 },
    { 1, 1, 40, 1, 1, 3, 5, 0, 0, 0 },       { 1, 7, 4, 2, 1, 5, 5, 10, 1, 3 }, /* no key seen */
    { 1, 600, 600, 2, 1, 8, 8, 0, 1, 0 },    { 1, 0, 5, 1, 1, 4, 4, 0, 1, 0 },
};

static void test_attention(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        const attention_case *c = &attentions[i];
        for (int f = 0; f < 2; f++) {
            char name[32];
            snprintf(name, sizeof name, "attention %zu", i);
            sglir_graph *g = cpu_graph(&env, name);
            start_at = c->offset;
            const int64_t q_dims[] = { c->b, c->t, c->h, c->d }, k_dims[] = { c->b, c->s, c->g, c->d },
                          v_dims[] = { c->b, c->s, c->g, c->e }, o_dims[] = { c->b, c->t, c->h, c->e };
            sglir_id q = cpu_input(g, "q", floats[f], 4, q_dims), k = cpu_input(g, "k", floats[f], 4, k_dims),
                     v = cpu_input(g, "v", floats[f], 4, v_dims), dout = cpu_input(g, "dout", floats[f], 4, o_dims);
            sglir_id offset = cpu_input(g, "s", SGL_I64, 0, NULL), out[2], grads[3];
            const sglir_named attrs[] = { SGLIR_F("scale", 1.5), SGLIR_I("causal", c->causal),
                                          SGLIR_I("window", c->window) };
            sglir_emit(g, SGLIR_OP_ATTENTION, (sglir_id[]){ q, k, v, offset }, 4, attrs, 3, out);
            sglir_emit(g, SGLIR_OP_ATTENTION_GRAD, (sglir_id[]){ q, k, v, out[0], out[1], dout, offset }, 7, attrs, 3,
                       grads);
            sglir_output_add(g, SGLIR_FETCH, "out", out[0]);
            sglir_output_add(g, SGLIR_FETCH, "lse", out[1]);
            sglir_output_add(g, SGLIR_FETCH, "dq", grads[0]);
            sglir_output_add(g, SGLIR_FETCH, "dk", grads[1]);
            sglir_output_add(g, SGLIR_FETCH, "dv", grads[2]);
            cpu_check(g, (cpu_options){ .relative = 6e-6, .absolute = 1e-6, .fill = start_there });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- the vocabulary loss ------------------------------------------------------------------------------------------------ */

static void targets_in(interp *in, const char *name, interp_tensor *t)
{
    (void)in;
    for (int64_t e = 0; name[0] == 't' && e < t->count; e++)
        t->ints[e] = e % 5 == 2 ? 3 : e % 11 == 7 ? 100000 : (e * 5) % 17;
}

static void test_loss(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    static const int64_t sizes[][4] = { { 2, 3, 4, 17 },   { 1, 1, 9, 20 },     { 3, 100, 24, 40 },
                                        { 5, 300, 8, 70 }, { 1, 150, 5, 9000 }, { 0, 4, 3, 17 } };
    for (int f = 0; f < FLOATS; f++) {
        for (int s = 0; s < 6; s++) {
            sglir_graph *g = cpu_graph(&env, "linear_cross_entropy");
            const int64_t x_dims[] = { sizes[s][0], sizes[s][1], sizes[s][2] }, w_dims[] = { sizes[s][3], sizes[s][2] };
            sglir_id x = cpu_input(g, "x", floats[f], 3, x_dims), w = cpu_input(g, "w", floats[f], 2, w_dims),
                     t = cpu_input(g, "t", SGL_I32, 2, x_dims), out[4];
            sglir_id d = cpu_input(g, "d", f == 1 ? SGL_F64 : SGL_F32, 2, x_dims);
            sglir_emit(g, SGLIR_OP_LINEAR_CROSS_ENTROPY, (sglir_id[]){ x, w, t }, 3, &SGLIR_I("ignore", 3), 1, &out[0]);
            sglir_emit(g, SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, (sglir_id[]){ x, w, t, d }, 4, &SGLIR_I("ignore", 3), 1,
                       &out[1]);
            static const char *const names[] = { "losses", "again", "dx", "dw" };
            for (int i = 0; i < 4; i++) sglir_output_add(g, SGLIR_FETCH, names[i], out[i]);
            cpu_check(g, (cpu_options){ .relative = 3e-6,
                                        .relative_f64 = 1e-13,
                                        .ulps = 1,
                                        .absolute = f < 2 ? 0 : 1e-5,
                                        .fill = targets_in });
        }
    }
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot),          cmocka_unit_test(test_gather_scatter), cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_pack_and_pad), cmocka_unit_test(test_rope),           cmocka_unit_test(test_attention),
        cmocka_unit_test(test_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
