/* test_ir_build.c -- how nodes enter a graph: attributes, names, regions, origins, broadcasting, promotion, and that a
 * failure sticks, says where it came from, and leaves nothing behind. */
#include "fault.h"

#include <math.h>
#include <stdio.h>

#include "ir/ir.h"

typedef struct bench {
    sglcore_env env;
    sglir_graph *g;
} bench;

static void begin(bench *b)
{
    sglcore_env_init(&b->env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglir_graph_new(&b->env, "case", &b->g), SGL_OK);
}

static void end(bench *b)
{
    sglir_graph_free(b->g);
    assert_int_equal(b->env.bytes_in_use, 0);
}

/* The graph has failed with exactly this message; it is replaced by an empty one. */
static void expect_failure(bench *b, sgl_status status, const char *message)
{
    assert_string_equal(b->env.message, message);
    assert_int_equal(sglir_status(b->g), status);
    sglir_graph_free(b->g);
    assert_int_equal(sglir_graph_new(&b->env, "case", &b->g), SGL_OK);
}

static void expect_type(const bench *b, sglir_id value, const char *text)
{
    char have[512];
    if (sglir_status(b->g) != SGL_OK) fail_msg("%s", b->env.message);
    assert_string_equal(sglir_type_text(sglir_type_of(b->g, value), have, sizeof have), text);
}

static sglir_id input(bench *b, const char *name, sgl_dtype dtype, int rank, int64_t d0, int64_t d1, int64_t d2)
{
    const int64_t dims[3] = { d0, d1, d2 };
    const sglir_type type = sglir_type_make(dtype, rank, dims);
    return sglir_input(b->g, SGL_FEED, name, &type);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static void test_rows_are_sound(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        const sglir_op_row *row = &sglir_ops[op];
        assert_int_equal(sglir_op_find(row->name), op);
        assert_true(row->maximum == -1 || row->maximum >= row->minimum);
        assert_true(row->help[0] != '\0');
        assert_true(((row->flags & SGLIR_COMPOSITE) != 0) == (sglir_compose_rule((sglir_op)op) != NULL));
        assert_true((row->flags & SGLIR_COMMUTES) == 0 || row->minimum == 2);
        for (const char *c = row->linear; *c != '\0'; c++) {
            assert_true(*c == '|' || *c == '*' || (*c >= '0' && *c < '0' + row->maximum));
        }
        /* "name:kind" or "name:kind=default", apart by one blank */
        for (const char *at = row->attrs; *at != '\0';) {
            size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
            assert_true(name > 0 && at[name] == ':' && strchr("ibfstIF", at[name + 1]) != NULL);
            at += name + 2;
            at += strcspn(at, " ");
            if (*at == ' ') at++;
        }
    }
    assert_int_equal(sglir_op_find("no such op"), SGLIR_OP_COUNT);
}

/* ---- attributes ----------------------------------------------------------------------------------------------- */

static void test_attributes_are_completed(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    const sglir_named attrs[] = { SGLIR_I("stop", 5), SGLIR_I("axis", 1), SGLIR_I("start", 1) };
    sglir_id y = sglir_emit(b.g, SGLIR_OP_SLICE, &x, 1, attrs, 3, NULL);
    expect_type(&b, y, "f32[4,4]");
    const sglir_node *node = sglir_maker(b.g, y);
    assert_int_equal(sglir_attr_int(b.g, node, "step"), 1);
    assert_int_equal(sglir_attr_int(b.g, node, "start"), 1);
    sglir_named named[16];
    assert_int_equal(sglir_attrs_named(b.g, node, named), 4);
    assert_string_equal(named[0].name, "axis"); /* the schema's order */
    assert_string_equal(named[2].name, "stop");

    /* An integer stands for a number; a default that is no integer is read exactly. */
    const sglir_id norm[] = { x, input(&b, "w", SGL_F32, 1, 6, 0, 0) };
    sglir_id normed = sglir_emit(b.g, SGLIR_OP_RMS_NORM, norm, 2, NULL, 0, NULL);
    assert_true(sglir_attr_float(b.g, sglir_maker(b.g, normed), "eps") == 1e-5);
    const sglir_named eps = SGLIR_I("eps", 1);
    normed = sglir_emit(b.g, SGLIR_OP_RMS_NORM, norm, 2, &eps, 1, NULL);
    assert_true(sglir_attr_float(b.g, sglir_maker(b.g, normed), "eps") == 1);
    end(&b);
}

static void test_attributes_that_are_wrong(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    const sglir_named unknown[] = { SGLIR_I("axs", 1), SGLIR_I("axis", 1), SGLIR_I("start", 1), SGLIR_I("stop", 5) };
    sglir_set_origin(b.g, "llama.lua", 42, "blocks.0", NULL);
    assert_int_equal(sglir_emit(b.g, SGLIR_OP_SLICE, &x, 1, unknown, 4, NULL), SGLIR_NONE);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "llama.lua:42: slice: has no attribute \"axs\"; did you mean \"axis\"?");

    x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    const sglir_named far = SGLIR_I("temperature", 1);
    sglir_emit(b.g, SGLIR_OP_NEG, &x, 1, &far, 1, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "neg: has no attribute \"temperature\"; it takes none");

    x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    sglir_emit(b.g, SGLIR_OP_SLICE, &x, 1, unknown + 1, 2, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "slice: attribute \"stop\" (an integer) is missing");

    x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    const sglir_named twice[] = { SGLIR_I("to", SGL_F64), SGLIR_I("to", SGL_F32) };
    sglir_emit(b.g, SGLIR_OP_CAST, &x, 1, twice, 2, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "cast: attribute \"to\" is given twice");

    x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    const sglir_named kind = SGLIR_F("to", 1.5), range = SGLIR_I("to", SGL_DTYPE_COUNT);
    sglir_emit(b.g, SGLIR_OP_CAST, &x, 1, &kind, 1, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "cast: attribute \"to\" must be a dtype");
    x = input(&b, "x", SGL_F32, 2, 4, 6, 0);
    sglir_emit(b.g, SGLIR_OP_CAST, &x, 1, &range, 1, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "cast: attribute \"to\" must be a dtype");
    end(&b);
}

/* Lists and arguments may be handed over from the graph's own arrays, which move while they are copied. */
static void test_lists_of_the_graph_itself(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id x = input(&b, "x", SGL_F32, 3, 2, 3, 4);
    const int64_t order[3] = { 2, 0, 1 };
    sglir_id y = sglir_transpose(b.g, x, order);
    for (int i = 0; i < 300; i++) {
        sglir_named named[16];
        const sglir_node *node = sglir_maker(b.g, y);
        int count = sglir_attrs_named(b.g, node, named);
        y = sglir_emit(b.g, SGLIR_OP_TRANSPOSE, &b.g->args.data[node->arg_first], 1, named, count, NULL);
        expect_type(&b, y, "f32[4,2,3]");
        const sglir_type *type = sglir_type_of(b.g, y);
        const sglir_named dims = SGLIR_INTS("dims", type->rank, type->dims);
        expect_type(&b, sglir_emit(b.g, SGLIR_OP_RESHAPE, &x, 1, &dims, 1, NULL), "f32[4,2,3]");
        sglir_id parameter;
        sglir_region_begin(b.g, sglir_type_of(b.g, y), 1, &parameter);
        expect_type(&b, parameter, "f32[4,2,3]");
        sglir_region_end(b.g, &parameter, 1);
    }
    end(&b);
}

/* ---- failures ------------------------------------------------------------------------------------------------- */

static void test_failure_sticks(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id a = input(&b, "a", SGL_F32, 2, 32, 512, 0), c = input(&b, "c", SGL_F32, 2, 768, 64, 0);
    sglir_set_origin(b.g, "llama.lua", 42, NULL, NULL);
    const sglir_id args[] = { a, c };
    sglir_id out = 7;
    assert_int_equal(sglir_build(b.g, SGLIR_OP_MATMUL, args, 2, NULL, 0, &out), SGLIR_NONE);
    assert_int_equal(out, SGLIR_NONE);
    int64_t nodes = b.g->nodes.count;
    /* What follows does nothing and keeps the first message. */
    sglir_set_origin(b.g, "llama.lua", 43, NULL, NULL);
    assert_int_equal(sglir_add(b.g, SGLIR_NONE, a), SGLIR_NONE);
    assert_int_equal(sglir_scale(b.g, SGLIR_NONE, 2), SGLIR_NONE);
    assert_int_equal(sglir_reshape_like(b.g, a, SGLIR_NONE), SGLIR_NONE);
    assert_int_equal(sglir_transpose(b.g, SGLIR_NONE, NULL), SGLIR_NONE);
    assert_int_equal(sglir_constant_like(b.g, a, 1), SGLIR_NONE);
    assert_int_equal(sglir_region_begin(b.g, sglir_type_of(b.g, a), 1, &out), SGLIR_NONE);
    sglir_region_end(b.g, &out, 1);
    sglir_output_add(b.g, SGLIR_FETCH, "y", a);
    assert_int_equal(b.g->nodes.count, nodes);
    assert_int_equal(b.g->outputs.count, 0);
    expect_failure(&b, SGL_TYPE, "llama.lua:42: matmul: inner dimensions differ: [32,512] x [768,64]");

    sglir_id none = SGLIR_NONE;
    sglir_emit(b.g, SGLIR_OP_NEG, &none, 1, NULL, 0, NULL);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "neg: argument 0 is no value of the graph");
    sglir_scale(b.g, SGLIR_NONE, 2);
    expect_failure(&b, SGL_TYPE, "mul: an argument is no value that can be seen here");
    a = input(&b, "a", SGL_F32, 0, 0, 0, 0);
    const sglir_id three[] = { a, a, a };
    sglir_emit(b.g, SGLIR_OP_ADD, three, 3, NULL, 0, NULL);
    expect_failure(&b, SGL_TYPE, "add: takes 2 arguments, not 3");
    sglir_emit(b.g, SGLIR_OP_CONCAT, NULL, 0, NULL, 0, NULL);
    expect_failure(&b, SGL_TYPE, "concat: takes at least 1 argument, not 0");
    sglir_emit(b.g, SGLIR_OP_LINEAR, three, 1, NULL, 0, NULL);
    expect_failure(&b, SGL_TYPE, "linear: takes 2 to 3 arguments, not 1");
    end(&b);
}

/* ---- inputs and outputs --------------------------------------------------------------------------------------- */

static void test_inputs_and_outputs(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    const int64_t dims[] = { 4, 8 };
    sglir_type type = sglir_type_make(SGL_F32, 2, dims);
    type.sharded[SGLIR_AXIS_FSDP] = 0;
    type.partial = 1 << SGLIR_AXIS_DP | 1 << SGLIR_AXIS_TP;
    type.scaled = 1;
    sglir_id w = sglir_input(b.g, SGL_PARAMETER, "blocks.0.w", &type);
    expect_type(&b, w, "f32[4,8]{fsdp:0,partial(dp),partial(tp),scaled}");
    assert_int_equal(sglir_input_find(b.g, "blocks.0.w"), w);
    assert_int_equal(sglir_input_find(b.g, "blocks.0"), SGLIR_NONE);

    /* The node says its whole type, so that a copy of it is the same. */
    sglir_named named[16];
    int count = sglir_attrs_named(b.g, sglir_maker(b.g, w), named);
    sglir_graph *copy;
    assert_int_equal(sglir_graph_new(&b.env, "copy", &copy), SGL_OK);
    sglir_id again = sglir_emit(copy, SGLIR_OP_INPUT, NULL, 0, named, count, NULL);
    assert_true(sglir_type_equal(sglir_type_of(copy, again), &type));
    sglir_graph_free(copy);

    sglir_output_add(b.g, SGLIR_UPDATE, "blocks.0.w", w);
    sglir_output_add(b.g, SGLIR_FETCH, "blocks.0.w", w); /* a fetch may be named as an update is */
    assert_int_equal(b.g->outputs.count, 2);
    sglir_input(b.g, SGL_PARAMETER, "blocks.0.w", &type);
    expect_failure(&b, SGL_INVALID_ARGUMENT, "input: the name \"blocks.0.w\" is given twice");

    sglir_id x = input(&b, "x", SGL_F32, 1, 3, 0, 0);
    sglir_output_add(b.g, SGLIR_FETCH, "y", x);
    sglir_output_add(b.g, SGLIR_FETCH, "y", x);
    expect_failure(&b, SGL_TYPE, "fetch: the name \"y\" is given twice");
    x = input(&b, "x", SGL_F32, 1, 3, 0, 0);
    sglir_output_add(b.g, SGLIR_UPDATE, "x", x);
    expect_failure(&b, SGL_TYPE, "update: \"x\" is a feed; only parameters and states have a new value");
    sglir_output_add(b.g, SGLIR_UPDATE, "x", input(&b, "y", SGL_F32, 0, 0, 0, 0));
    expect_failure(&b, SGL_TYPE, "update: there is no parameter or state \"x\" in the graph");
    type = sglir_type_make(SGL_F32, 2, dims);
    sglir_input(b.g, SGL_STATE, "s", &type);
    sglir_output_add(b.g, SGLIR_UPDATE, "s", input(&b, "x", SGL_F32, 1, 32, 0, 0));
    expect_failure(&b, SGL_TYPE, "update: \"s\" is f32[4,8], its new value is f32[32]");
    sglir_input(b.g, SGL_STATE, "", &type);
    expect_failure(&b, SGL_TYPE, "input: an input needs a name");
    type.dims[1] = INT64_MAX;
    sglir_input(b.g, SGL_STATE, "s", &type);
    expect_failure(&b, SGL_TYPE, "input: a result of f32[4,9223372036854775807] has more bytes than 64 bits count");
    end(&b);
}

/* ---- origins -------------------------------------------------------------------------------------------------- */

static void test_origins(void **state)
{
    (void)state;
    bench b;
    char text[128];
    begin(&b);
    sglir_id nowhere = sglir_constant(b.g, SGL_F32, 1);
    sglir_set_origin(b.g, "llama.lua", 42, "blocks.0.attn", NULL);
    sglir_id here = sglir_constant(b.g, SGL_F32, 1);
    sglir_set_origin(b.g, "llama.lua", 42, "blocks.0.attn", NULL); /* the same: no new entry */
    int64_t count = b.g->origins.count;
    sglir_set_origin(b.g, "llama.lua", 42, "blocks.0.attn", "autodiff");
    assert_int_equal(b.g->origins.count, count + 1);
    sglir_id made = sglir_constant(b.g, SGL_F32, 1);
    sglir_set_origin(b.g, NULL, 0, NULL, "memory");
    sglir_id bare = sglir_constant(b.g, SGL_F32, 1);
    assert_string_equal(sglir_origin_text(b.g, sglir_maker(b.g, nowhere)->origin, text, sizeof text), "");
    assert_string_equal(sglir_origin_text(b.g, sglir_maker(b.g, here)->origin, text, sizeof text), "llama.lua:42");
    assert_string_equal(sglir_origin_text(b.g, sglir_maker(b.g, made)->origin, text, sizeof text),
                        "autodiff of llama.lua:42");
    assert_string_equal(sglir_origin_text(b.g, sglir_maker(b.g, bare)->origin, text, sizeof text), "memory");

    sglir_graph *to;
    assert_int_equal(sglir_graph_new(&b.env, "to", &to), SGL_OK);
    sglir_set_origin_of(to, &b.g->origins.data[sglir_maker(b.g, made)->origin], b.g);
    assert_string_equal(sglir_origin_text(to, to->origin, text, sizeof text), "autodiff of llama.lua:42");
    assert_string_equal(sglcore_string(to->strings, to->origins.data[to->origin].scope), "blocks.0.attn");
    sglir_graph_free(to);
    assert_int_equal(sglir_fail_node(b.g, sglir_value_at(b.g, made)->node, SGL_LIMIT, "too %s", "much"), SGL_LIMIT);
    expect_failure(&b, SGL_LIMIT, "autodiff of llama.lua:42: constant: too much");
    end(&b);
}

/* ---- broadcasting --------------------------------------------------------------------------------------------- */

static void test_broadcasting(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id a = input(&b, "a", SGL_F32, 3, 2, 1, 4), c = input(&b, "c", SGL_F32, 2, 3, 1, 0);
    sglir_id d = input(&b, "d", SGL_F32, 3, 2, 3, 4), s = input(&b, "s", SGL_F32, 0, 0, 0, 0);
    sglir_id sum = sglir_add(b.g, a, c);
    expect_type(&b, sum, "f32[2,3,4]");
    const sglir_node *node = sglir_maker(b.g, sum);
    assert_int_equal(sglir_maker(b.g, sglir_arg(b.g, node, 0))->op, SGLIR_OP_BROADCAST);
    assert_int_equal(sglir_maker(b.g, sglir_arg(b.g, node, 1))->op, SGLIR_OP_BROADCAST);
    int64_t before = b.g->nodes.count;
    expect_type(&b, sglir_mul(b.g, d, sum), "f32[2,3,4]");
    assert_int_equal(b.g->nodes.count, before + 1); /* nothing to broadcast */
    expect_type(&b, sglir_mul(b.g, s, d), "f32[2,3,4]");
    expect_type(&b, sglir_add(b.g, s, s), "f32[]");
    sglir_id condition = sglir_binary(b.g, SGLIR_OP_LESS, c, s);
    expect_type(&b, condition, "bool[3,1]");
    expect_type(&b, sglir_select(b.g, condition, a, s), "f32[2,3,4]");
    /* An extent of 0 is an extent like others. */
    expect_type(&b, sglir_add(b.g, input(&b, "e", SGL_F32, 2, 0, 1, 0), a), "f32[2,0,4]");
    sglir_add(b.g, d, input(&b, "f", SGL_F32, 1, 3, 0, 0));
    expect_failure(&b, SGL_TYPE, "add: shapes [2,3,4] and [3] do not broadcast");
    a = input(&b, "a", SGL_F32, 1, 3, 0, 0);
    const sglir_id args[] = { a, input(&b, "s", SGL_F32, 0, 0, 0, 0) };
    sglir_emit(b.g, SGLIR_OP_ADD, args, 2, NULL, 0, NULL); /* emit takes what fits only */
    expect_failure(&b, SGL_TYPE, "add: argument 0 is [3], argument 1 is []: the shapes must be the same");
    end(&b);
}

/* ---- promotion ------------------------------------------------------------------------------------------------ */

/* Rows and columns: f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 u16 u32 i4 bool; "" where there is no way. From the
 * published table of JAX (with i4 and f8, which have no implicit way there either, as it is in jax.dtypes). */
static const char *const promoted[SGL_DTYPE_COUNT][SGL_DTYPE_COUNT] = {
    { "f64", "f64", "f64", "f64", "", "", "f64", "f64", "f64", "f64", "f64", "f64", "f64", "", "f64" },
    { "f64", "f32", "f32", "f32", "", "", "f32", "f32", "f32", "f32", "f32", "f32", "f32", "", "f32" },
    { "f64", "f32", "bf16", "f32", "", "", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "", "bf16" },
    { "f64", "f32", "f32", "f16", "", "", "f16", "f16", "f16", "f16", "f16", "f16", "f16", "", "f16" },
    { "", "", "", "", "f8e4m3", "", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "f8e4m3", "",
      "f8e4m3" },
    { "", "", "", "", "", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "f8e5m2", "",
      "f8e5m2" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "", "i64" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i32", "i32", "i32", "i32", "i64", "", "i32" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i16", "i16", "i32", "i64", "", "i16" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "i16", "i32", "i64", "", "i8" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i16", "u8", "u16", "u32", "", "u8" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i32", "i32", "u16", "u16", "u32", "", "u16" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i64", "i64", "i64", "u32", "u32", "u32", "", "u32" },
    { "", "", "", "", "", "", "", "", "", "", "", "", "", "i4", "i4" },
    { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "u16", "u32", "i4", "bool" },
};

static void test_promotion_of_tensors(void **state)
{
    (void)state;
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        for (int k = 0; k < SGL_DTYPE_COUNT; k++) {
            bench b;
            begin(&b);
            sglir_id x = input(&b, "x", (sgl_dtype)i, 1, 3, 0, 0), y = input(&b, "y", (sgl_dtype)k, 1, 3, 0, 0);
            sglir_id equal = sglir_binary(b.g, SGLIR_OP_EQUAL, x, y);
            if (promoted[i][k][0] == '\0') {
                char message[128];
                snprintf(message, sizeof message, "equal: %s and %s have no common dtype; cast one of them",
                         sgl_dtype_name((sgl_dtype)i), sgl_dtype_name((sgl_dtype)k));
                expect_failure(&b, SGL_TYPE, message);
            } else {
                const sglir_node *node = sglir_maker(b.g, equal);
                for (uint32_t a = 0; a < 2; a++)
                    assert_string_equal(sgl_dtype_name((sgl_dtype)sglir_type_of(b.g, sglir_arg(b.g, node, a))->dtype),
                                        promoted[i][k]);
            }
            end(&b);
        }
    }
}

static void test_promotion_of_weak_constants(void **state)
{
    (void)state;
    static const struct {
        sgl_dtype tensor, constant;
        double value;
        const char *result;
    } cases[] = {
        { SGL_BF16, SGL_F32, 0.5, "bf16[3]" },   { SGL_F32, SGL_F64, 0.5, "f32[3]" },
        { SGL_F64, SGL_F32, 0.1, "f64[3]" },     { SGL_F16, SGL_I64, 2, "f16[3]" },
        { SGL_I32, SGL_F32, 0.5, "f32[3]" },     { SGL_I64, SGL_F64, 0.5, "f32[3]" },
        { SGL_U8, SGL_I64, 2, "u8[3]" },         { SGL_I4, SGL_I32, 2, "i4[3]" },
        { SGL_F8E5M2, SGL_F32, 2, "f8e5m2[3]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b;
        begin(&b);
        sglir_id x = input(&b, "x", cases[i].tensor, 1, 3, 0, 0);
        sglir_id y = sglir_mul(b.g, sglir_constant(b.g, cases[i].constant, cases[i].value), x);
        expect_type(&b, y, cases[i].result);
        double value;
        assert_true(sglir_constant_value(b.g, sglir_arg(b.g, sglir_maker(b.g, y), 0), &value));
        assert_true(value == cases[i].value); /* no rounding on the way */
        end(&b);
    }
    bench b;
    begin(&b);
    /* A rank-0 tensor is no constant and not weak. */
    expect_type(&b, sglir_mul(b.g, input(&b, "s", SGL_F32, 0, 0, 0, 0), input(&b, "x", SGL_BF16, 1, 3, 0, 0)),
                "f32[3]");
    /* Ops of floats make f32 of integers; a bool meets an integer constant in i32. */
    expect_type(&b, sglir_unary(b.g, SGLIR_OP_EXP, input(&b, "i", SGL_I64, 1, 3, 0, 0)), "f32[3]");
    sglir_id flags = input(&b, "b", SGL_BOOL, 1, 3, 0, 0);
    expect_type(&b, sglir_add(b.g, flags, sglir_constant(b.g, SGL_I64, 1)), "i32[3]");
    sglir_id five = sglir_constant(b.g, SGL_F32, 5), two = sglir_constant(b.g, SGL_I32, 2);
    expect_type(&b, sglir_add(b.g, five, two), "f32[]");
    sglir_add(b.g, flags, flags);
    expect_failure(&b, SGL_TYPE, "add: is not defined for bool; use and, or, not, or cast to a number");
    sglir_mul(b.g, input(&b, "u", SGL_U8, 1, 3, 0, 0), sglir_constant(b.g, SGL_I32, 300));
    expect_failure(&b, SGL_TYPE, "constant: 300 is no u8");
    end(&b);
}

/* ---- the user's door ------------------------------------------------------------------------------------------ */

static void test_axes_from_the_end(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id x = input(&b, "x", SGL_F32, 3, 2, 3, 4);
    const int64_t axes[] = { -1, 0 }, order[] = { -1, 0, -2 }, open[] = { 2, -1, 2 }, bad[] = { 5, -1 };
    const sglir_named reduce = SGLIR_INTS("axes", 2, axes), turn = SGLIR_INTS("order", 3, order);
    const sglir_named dims = SGLIR_INTS("dims", 3, open), odd = SGLIR_INTS("dims", 2, bad);
    sglir_id sum = sglir_build(b.g, SGLIR_OP_REDUCE_SUM, &x, 1, &reduce, 1, NULL);
    expect_type(&b, sum, "f32[3]");
    int count;
    const int64_t *sorted = sglir_attr_ints(b.g, sglir_maker(b.g, sum), "axes", &count);
    assert_true(count == 2 && sorted[0] == 0 && sorted[1] == 2);
    expect_type(&b, sglir_build(b.g, SGLIR_OP_REDUCE_MAX, &x, 1, NULL, 0, NULL), "f32[]"); /* none named: all */
    expect_type(&b, sglir_build(b.g, SGLIR_OP_TRANSPOSE, &x, 1, &turn, 1, NULL), "f32[4,2,3]");
    expect_type(&b, sglir_build(b.g, SGLIR_OP_RESHAPE, &x, 1, &dims, 1, NULL), "f32[2,6,2]");
    const sglir_named slice[] = { SGLIR_I("axis", -2), SGLIR_I("start", 0), SGLIR_I("stop", 2) };
    expect_type(&b, sglir_build(b.g, SGLIR_OP_SLICE, &x, 1, slice, 3, NULL), "f32[2,2,4]");
    const sglir_named join = SGLIR_I("axis", -3);
    const sglir_id both[] = { x, x };
    expect_type(&b, sglir_build(b.g, SGLIR_OP_CONCAT, both, 2, &join, 1, NULL), "f32[4,3,4]");
    const int64_t grid[] = { 2, 5 };
    const sglir_named iota[] = { SGLIR_I("axis", -1), SGLIR_INTS("dims", 2, grid), SGLIR_I("dtype", SGL_I32) };
    sglir_id numbers = sglir_build(b.g, SGLIR_OP_IOTA, NULL, 0, iota, 3, NULL);
    expect_type(&b, numbers, "i32[2,5]");
    assert_int_equal(sglir_attr_int(b.g, sglir_maker(b.g, numbers), "axis"), 1);
    sglir_build(b.g, SGLIR_OP_RESHAPE, &x, 1, &odd, 1, NULL);
    expect_failure(&b, SGL_TYPE, "reshape: the 24 elements of [2,3,4] cannot be divided by the other extents");
    x = input(&b, "x", SGL_F32, 3, 2, 3, 4);
    const sglir_named below = SGLIR_I("axis", -4);
    sglir_build(b.g, SGLIR_OP_CONCAT, &x, 1, &below, 1, NULL);
    expect_failure(&b, SGL_TYPE, "concat: axis -4 is not among the axes 0..2");
    end(&b);
}

static void test_formulas(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id x = input(&b, "x", SGL_F32, 3, 2, 3, 4), v = input(&b, "v", SGL_F32, 2, 3, 1, 0);
    const int64_t same[] = { 2, 3, 4 }, straight[] = { 0, 1, 2 }, axes[] = { 2, 0 };
    assert_int_equal(sglir_cast(b.g, x, SGL_F32), x);
    assert_int_equal(sglir_reshape(b.g, x, 3, same), x);
    assert_int_equal(sglir_broadcast(b.g, x, 3, same), x);
    assert_int_equal(sglir_sum_to_shape(b.g, x, 3, same), x);
    assert_int_equal(sglir_transpose(b.g, x, straight), x);
    expect_type(&b, sglir_reduce(b.g, SGLIR_OP_REDUCE_SUM, x, axes, 2, true), "f32[1,3,1]");
    expect_type(&b, sglir_sum_to_shape(b.g, x, 2, (const int64_t[]){ 3, 1 }), "f32[3,1]");
    expect_type(&b, sglir_sum_to_shape(b.g, x, 0, NULL), "f32[]");
    expect_type(&b, sglir_broadcast_like(b.g, v, x), "f32[2,3,4]");
    sglir_id seven = sglir_constant_like(b.g, x, 7);
    expect_type(&b, seven, "f32[2,3,4]");
    double value = 0;
    assert_true(sglir_constant_value(b.g, seven, &value) && value == 7);
    assert_false(sglir_constant_value(b.g, x, &value));
    expect_type(&b, sglir_slice(b.g, x, 1, 1, 3), "f32[2,2,4]");
    const int64_t one[] = { 1 }, zero[] = { 0 }, two[] = { 2 };
    expect_type(&b, sglir_dot(b.g, x, x, 1, zero, zero, 1, two, two), "f32[2,3,3]");
    expect_type(&b, sglir_dot(b.g, x, v, 0, NULL, NULL, 1, one, zero), "f32[2,4,1]");
    sglir_sum_to_shape(b.g, x, 2, (const int64_t[]){ 2, 4 });
    expect_failure(&b, SGL_TYPE, "reduce_sum: [2,3,4] does not come from [2,4] by broadcasting");
    end(&b);
}

/* ---- regions -------------------------------------------------------------------------------------------------- */

/* carry' = carry * x + index, `steps` times; what is in `wrong` is done wrong. */
static sglir_id build_scan(bench *b, int64_t steps, const char *wrong)
{
    sglir_id x = input(b, "x", SGL_F32, 1, 3, 0, 0), start = input(b, "start", SGL_F32, 1, 3, 0, 0), inside[2];
    const int64_t dims[] = { 3 };
    const sglir_type types[] = { sglir_type_make(SGL_I64, 0, NULL), sglir_type_make(SGL_F32, 1, dims) };
    sglir_id region = sglir_region_begin(b->g, types, 2, inside);
    sglir_id next = sglir_add(b->g, sglir_mul(b->g, inside[1], x), sglir_cast(b->g, inside[0], SGL_F32));
    if (strcmp(wrong, "type") == 0) next = sglir_cast(b->g, next, SGL_F64);
    sglir_region_end(b->g, &next, strcmp(wrong, "count") == 0 ? 0 : 1);
    const sglir_named attr = SGLIR_I("steps", steps);
    sglir_id carry = strcmp(wrong, "leak") == 0 ? next : start;
    return sglir_emit_regions(b->g, SGLIR_OP_SCAN, &carry, 1, &attr, 1, &region, 1, NULL);
}

static void test_scan(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    sglir_id y = build_scan(&b, 5, "");
    expect_type(&b, y, "f32[3]");
    const sglir_node *scan = sglir_maker(b.g, y);
    assert_int_equal(scan->region, 0);
    const sglir_region *region = &b.g->regions.data[scan->region_first];
    assert_int_equal(region->node, sglir_value_at(b.g, y)->node);
    assert_int_equal(region->results.count, 1);
    assert_int_equal(sglir_maker(b.g, region->results.data[0])->region, scan->region_first);
    assert_null(sglir_maker(b.g, region->parameters.data[1]));
    expect_type(&b, y, "f32[3]");
    build_scan(&b, 5, ""); /* the same names again */
    expect_failure(&b, SGL_INVALID_ARGUMENT, "input: the name \"x\" is given twice");
    build_scan(&b, 5, "type");
    expect_failure(&b, SGL_TYPE, "scan: what is yielded as carry 0 is f64[3], f32[3] is needed");
    build_scan(&b, 5, "count");
    expect_failure(
        &b, SGL_TYPE,
        "scan: 1 carries need a region of (index, carries) that yields the carries, not one with 2 parameters "
        "and 0 results");
    build_scan(&b, 5, "leak");
    expect_failure(&b, SGL_INVALID_ARGUMENT,
                   "scan: argument 0 was made inside of a loop or branch that is over; it must be returned from there");
    build_scan(&b, -1, "");
    expect_failure(&b, SGL_TYPE, "scan: -1 steps");
    sglir_region_end(b.g, NULL, 0);
    expect_failure(&b, SGL_TYPE, "region: there is no open region to end");
    sglir_id inside;
    const sglir_type scalar = sglir_type_make(SGL_F32, 0, NULL);
    sglir_region_begin(b.g, &scalar, 1, &inside);
    sglir_id made = input(&b, "x", SGL_F32, 0, 0, 0, 0); /* stands in the top region, wherever it is asked for */
    assert_int_equal(sglir_value_at(b.g, made)->region, 0);
    assert_int_equal(b.g->open.count, 2);
    sglir_region_abandon(b.g, 1);
    assert_int_equal(b.g->open.count, 1);
    end(&b);
}

static sglir_id build_fused(bench *b, bool capture)
{
    sglir_id x = input(b, "x", SGL_F32, 2, 3, 4, 0), inside;
    sglir_id region = sglir_region_begin(b->g, sglir_type_of(b->g, x), 1, &inside);
    sglir_id y = sglir_mul(b->g, inside, capture ? x : inside);
    sglir_region_end(b->g, &y, 1);
    const int64_t domain[] = { 3, 4 };
    const sglir_named attrs[] = { SGLIR_INTS("domain", 2, domain), SGLIR_I("inner", 1) };
    return sglir_emit_regions(b->g, SGLIR_OP_FUSED, &x, 1, attrs, 2, &region, 1, NULL);
}

static void test_fused(void **state)
{
    (void)state;
    bench b;
    begin(&b);
    expect_type(&b, build_fused(&b, false), "f32[3,4]");
    end(&b);
    begin(&b);
    build_fused(&b, true);
    expect_failure(&b, SGL_TYPE, "fused: mul in its region uses a value from outside; hand it over as an argument");
    sglir_id x = input(&b, "x", SGL_F32, 0, 0, 0, 0);
    const sglir_named attrs[] = { SGLIR_INTS("domain", 0, NULL), SGLIR_I("inner", 0) };
    sglir_emit(b.g, SGLIR_OP_FUSED, &x, 1, attrs, 2, NULL);
    expect_failure(&b, SGL_TYPE, "fused: holds one region, not 0");
    end(&b);
}

/* ---- no memory ------------------------------------------------------------------------------------------------ */

static sgl_status whole_job(sglcore_env *env, void *context)
{
    (void)context;
    sglir_graph *g;
    sgl_status status = sglir_graph_new(env, "case", &g);
    if (status != SGL_OK) return status;
    const int64_t dims[] = { 2, 3 };
    const sglir_type type = sglir_type_make(SGL_F32, 2, dims);
    sglir_set_origin(g, "case.lua", 1, "m", NULL);
    sglir_id x = sglir_input(g, SGL_PARAMETER, "x", &type), parts[40], inside[2];
    for (int i = 0; i < 40; i++) parts[i] = sglir_scale(g, x, i);
    sglir_id packed = sglir_emit(g, SGLIR_OP_PACK, parts, 40, NULL, 0, NULL);
    int64_t ranks[40], pieces[40];
    for (int i = 0; i < 40; i++) ranks[i] = 1, pieces[i] = 6;
    const sglir_named attrs[] = { SGLIR_INTS("ranks", 40, ranks), SGLIR_INTS("dims", 40, pieces) };
    sglir_emit(g, SGLIR_OP_UNPACK, &packed, 1, attrs, 2, parts);
    const sglir_type types[] = { sglir_type_make(SGL_I64, 0, NULL), type };
    sglir_id region = sglir_region_begin(g, types, 2, inside);
    sglir_id next = sglir_add(g, inside[1], x);
    sglir_region_end(g, &next, 1);
    const sglir_named steps = SGLIR_I("steps", 3);
    sglir_id y = sglir_emit_regions(g, SGLIR_OP_SCAN, &x, 1, &steps, 1, &region, 1, NULL);
    sglir_output_add(g, SGLIR_UPDATE, "x", y);
    sglir_output_add(g, SGLIR_FETCH, "part", parts[39]);
    status = sglir_status(g);
    sglir_graph_free(g);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(whole_job, NULL) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_sound),
        cmocka_unit_test(test_attributes_are_completed),
        cmocka_unit_test(test_attributes_that_are_wrong),
        cmocka_unit_test(test_lists_of_the_graph_itself),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_inputs_and_outputs),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_promotion_of_tensors),
        cmocka_unit_test(test_promotion_of_weak_constants),
        cmocka_unit_test(test_axes_from_the_end),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
