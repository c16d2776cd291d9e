/* cpu_bench.c -- what the CPU backend reaches: products, elementwise chains, norms, attention, the vocabulary loss, AdamW.
 *
 * In: words of names to run (none: all); SGL_THREADS, SGL_ISA; --busy: time of the CPU in place of the clock's, for one
 * thread on a machine that others use. Built by hand: linked with libsgl.a and the archives of
 * cmake/dependencies.cmake. Each case is a graph that goes through all passes and is replayed; the best and the median of
 * many replays are printed, with GFLOP/s and GB/s of the bytes that cannot be avoided, beside the machine's own ceilings,
 * a large sgemm and a large copy, measured in the same run. Compare lines of one run only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "passes/pass.h"

enum { MOST_RUNS = 400 };

typedef struct bench {
    const char *name;
    void (*build)(sglir_graph *g);
    double flops, bytes;
} bench;

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static sgl_dtype floats = SGL_F32; /* of all inputs */

static sglir_id input(sglir_graph *g, const char *name, int rank, const int64_t *dims)
{
    sglir_type type = sglir_type_make(floats, rank, dims);
    return sglir_input(g, SGL_FEED, name, &type);
}

static sglir_id state(sglir_graph *g, const char *name, int64_t count)
{
    sglir_type type = sglir_type_make(SGL_F32, 1, &count);
    return sglir_input(g, SGL_STATE, name, &type);
}

static void fetch(sglir_graph *g, const char *name, sglir_id value) { sglir_output_add(g, SGLIR_FETCH, name, value); }

static void product(sglir_graph *g, int64_t m, int64_t n, int64_t k, bool a_turned, bool b_turned)
{
    const int64_t a_dims[] = { a_turned ? k : m, a_turned ? m : k }, b_dims[] = { b_turned ? n : k, b_turned ? k : n };
    const int64_t of_a = a_turned ? 0 : 1, of_b = b_turned ? 1 : 0;
    sglir_id a = input(g, "a", 2, a_dims), b = input(g, "b", 2, b_dims);
    fetch(g, "y", sglir_dot(g, a, b, 0, NULL, NULL, 1, &of_a, &of_b));
}

/* The same graph of bf16. */
static void in_bf16(sglir_graph *g, void (*build)(sglir_graph *g))
{
    floats = SGL_BF16;
    build(g);
    floats = SGL_F32;
}

static void large_product(sglir_graph *g) { product(g, 2048, 2048, 2048, false, false); }
static void linear_product(sglir_graph *g) { product(g, 4096, 1024, 384, false, true); }
static void weight_product(sglir_graph *g) { product(g, 1024, 384, 4096, true, false); }
static void small_product(sglir_graph *g) { product(g, 768, 128, 128, false, true); }
static void token_product(sglir_graph *g) { product(g, 1, 1024, 384, false, true); }

static const int64_t wide[] = { 4096, 4096 }, near[] = { 4096, 384 };

static void copy(sglir_graph *g)
{
    sglir_id x = input(g, "x", 2, wide);
    fetch(g, "y", sglir_emit(g, SGLIR_OP_COPY, &x, 1, NULL, 0, NULL));
}

static void chain_over(sglir_graph *g, const int64_t *dims)
{
    sglir_id a = input(g, "a", 2, dims), b = input(g, "b", 2, dims), c = input(g, "c", 2, dims);
    sglir_id x = sglir_add(g, sglir_mul(g, a, b), c);
    fetch(g, "y", sglir_mul(g, sglir_sub(g, sglir_scale(g, x, 0.5), a), x));
}

static void chain(sglir_graph *g) { chain_over(g, wide); }
static void near_chain(sglir_graph *g) { chain_over(g, near); }

static void near_swiglu(sglir_graph *g)
{
    sglir_id gate = input(g, "a", 2, near), up = input(g, "b", 2, near);
    fetch(g, "y", sglir_mul(g, sglir_unary(g, SGLIR_OP_SILU, gate), up));
}

static void near_gelu(sglir_graph *g) { fetch(g, "y", sglir_unary(g, SGLIR_OP_GELU, input(g, "a", 2, near))); }
static void near_sum(sglir_graph *g) { fetch(g, "y", sglir_add(g, input(g, "a", 2, near), input(g, "b", 2, near))); }
static void bf16_chain(sglir_graph *g) { in_bf16(g, near_chain); }
static void bf16_swiglu(sglir_graph *g) { in_bf16(g, near_swiglu); }
static void bf16_gelu(sglir_graph *g) { in_bf16(g, near_gelu); }
static void bf16_sum(sglir_graph *g) { in_bf16(g, near_sum); }
static void bf16_product(sglir_graph *g) { in_bf16(g, linear_product); }

static void swiglu(sglir_graph *g)
{
    sglir_id a = input(g, "a", 2, wide), b = input(g, "b", 2, wide);
    fetch(g, "y", sglir_mul(g, sglir_unary(g, SGLIR_OP_SILU, a), b));
}

static void gelu(sglir_graph *g) { fetch(g, "y", sglir_unary(g, SGLIR_OP_GELU, input(g, "a", 2, wide))); }

static void rms_norm_over(sglir_graph *g, const int64_t *dims)
{
    sglir_id args[] = { input(g, "x", 2, dims), input(g, "gain", 1, &dims[1]) };
    fetch(g, "y", sglir_emit(g, SGLIR_OP_RMS_NORM, args, 2, NULL, 0, NULL));
}

static void rms_norm(sglir_graph *g) { rms_norm_over(g, wide); }
static void near_rms_norm(sglir_graph *g) { rms_norm_over(g, near); }

static void norm_grad_over(sglir_graph *g, sglir_op op, const int64_t *dims)
{
    sglir_id args[] = { input(g, "x", 2, dims), input(g, "gain", 1, &dims[1]), input(g, "bias", 1, &dims[1]) };
    int count = sglir_ops[op].minimum;
    sglir_id y = sglir_emit(g, op, args, count, NULL, 0, NULL), dy = input(g, "dy", 2, dims);
    const int64_t axes[] = { 0, 1 };
    sglir_id of[4] = { sglir_reduce(g, SGLIR_OP_REDUCE_SUM, sglir_mul(g, y, dy), axes, 2, false), args[0], args[1],
                       args[2] },
             out[3];
    sglir_emit(g, SGLIR_OP_GRAD, of, count + 1, NULL, 0, out);
    static const char *const names[] = { "dx", "dgain", "dbias" };
    for (int i = 0; i < count; i++) fetch(g, names[i], out[i]);
}

static void rms_norm_grad(sglir_graph *g) { norm_grad_over(g, SGLIR_OP_RMS_NORM, wide); }
static void near_layer_norm_grad(sglir_graph *g) { norm_grad_over(g, SGLIR_OP_LAYER_NORM, near); }

static void softmax(sglir_graph *g)
{
    sglir_id x = input(g, "x", 2, wide);
    fetch(g, "y", sglir_emit(g, SGLIR_OP_SOFTMAX, &x, 1, NULL, 0, NULL));
}

static void bias_grad(sglir_graph *g)
{
    const int64_t axis = 0;
    fetch(g, "y", sglir_reduce(g, SGLIR_OP_REDUCE_SUM, input(g, "x", 2, wide), &axis, 1, false));
}

static void transpose(sglir_graph *g)
{
    const int64_t order[] = { 1, 0 };
    fetch(g, "y", sglir_transpose(g, input(g, "x", 2, wide), order));
}

static void adamw(sglir_graph *g)
{
    enum { COUNT = 16 << 20 };
    const int64_t count = COUNT;
    sglir_id p = state(g, "p", count), m = state(g, "m", count), v = state(g, "v", count), d = input(g, "d", 1, &count);
    sglir_id rate = input(g, "rate", 0, NULL), clip = input(g, "clip", 0, NULL);
    const int64_t counts[] = { COUNT / 2, COUNT / 2 };
    const double decays[] = { 0.1, 0.0 };
    const sglir_named attrs[] = { SGLIR_INTS("counts", 2, counts), SGLIR_FLOATS("values", 2, decays),
                                  SGLIR_I("dtype", SGL_F32) };
    sglir_id decay = sglir_emit(g, SGLIR_OP_SEGMENTS, NULL, 0, attrs, 3, NULL);
    d = sglir_mul(g, d, clip);
    m = sglir_add(g, sglir_scale(g, m, 0.9), sglir_scale(g, d, 0.1));
    v = sglir_add(g, sglir_scale(g, v, 0.95), sglir_scale(g, sglir_mul(g, d, d), 0.05));
    sglir_id root =
        sglir_add(g, sglir_unary(g, SGLIR_OP_SQRT, sglir_scale(g, v, 1.1)), sglir_constant(g, SGL_F32, 1e-8));
    sglir_id step = sglir_add(g, sglir_div(g, sglir_scale(g, m, 1.2), root), sglir_mul(g, decay, p));
    sglir_output_add(g, SGLIR_UPDATE, "p", sglir_sub(g, p, sglir_mul(g, rate, step)));
    sglir_output_add(g, SGLIR_UPDATE, "m", m);
    sglir_output_add(g, SGLIR_UPDATE, "v", v);
}

enum { B = 16, T = 256, H = 6, G = 2, D = 64 };

/* i32 [b, t]: documents of `length` tokens, one after another */
static sglir_id documents(sglir_graph *g, int64_t t, int64_t length)
{
    const int64_t dims[] = { B * T / t, t };
    const sglir_named attrs[] = { SGLIR_I("axis", 1), SGLIR_INTS("dims", 2, dims), SGLIR_I("dtype", SGL_I32) };
    sglir_id place = sglir_emit(g, SGLIR_OP_IOTA, NULL, 0, attrs, 3, NULL);
    return sglir_div(g, place, sglir_constant(g, SGL_I32, (double)length));
}

/* length: of a document, or 0 */
static void attention_of(sglir_graph *g, bool backward, int64_t t, int64_t length)
{
    const int64_t q_dims[] = { B * T / t, t, H, D }, k_dims[] = { B * T / t, t, G, D },
                  lse_dims[] = { B * T / t, H, t };
    sglir_id q = input(g, "q", 4, q_dims), k = input(g, "k", 4, k_dims), v = input(g, "v", 4, k_dims), out[2];
    const sglir_named attrs[] = { SGLIR_F("scale", 0.125), SGLIR_I("causal", 1) };
    sglir_id offset = sglir_constant(g, SGL_I64, 0), own = length ? documents(g, t, length) : SGLIR_NONE;
    int more = length ? 2 : 0;
    sglir_emit(g, SGLIR_OP_ATTENTION, (sglir_id[]){ q, k, v, offset, own, own }, 4 + more, attrs, 2, out);
    fetch(g, "y", out[0]);
    if (!backward) return;
    sglir_type lse_type = sglir_type_make(SGL_F32, 3, lse_dims);
    sglir_id grads[3], dout = input(g, "dout", 4, q_dims), lse = sglir_input(g, SGL_FEED, "lse", &lse_type);
    sglir_id y = input(g, "out", 4, q_dims);
    sglir_emit(g, SGLIR_OP_ATTENTION_GRAD, (sglir_id[]){ q, k, v, y, lse, dout, offset, own, own }, 7 + more, attrs, 2,
               grads);
    g->outputs.count = 0;
    for (int i = 0; i < 3; i++) fetch(g, (char[]){ 'd', (char)('0' + i), 0 }, grads[i]);
}

static void attention(sglir_graph *g) { attention_of(g, false, T, 0); }
static void attention_grad(sglir_graph *g) { attention_of(g, true, T, 0); }
static void short_attention(sglir_graph *g) { attention_of(g, false, 64, 0); }
static void long_attention(sglir_graph *g) { attention_of(g, false, 2048, 0); }
static void long_attention_grad(sglir_graph *g) { attention_of(g, true, 2048, 0); }
static void packed_attention(sglir_graph *g) { attention_of(g, false, 2048, T); }
static void packed_attention_grad(sglir_graph *g) { attention_of(g, true, 2048, T); }
static void one_document(sglir_graph *g) { attention_of(g, false, 2048, 2048); }
static void bf16_attention(sglir_graph *g) { in_bf16(g, attention); }
static void bf16_attention_grad(sglir_graph *g) { in_bf16(g, attention_grad); }

static void loss_of(sglir_graph *g, int64_t rows, int64_t d, int64_t v)
{
    const int64_t x_dims[] = { rows, d }, w_dims[] = { v, d };
    sglir_type type = sglir_type_make(SGL_I32, 1, &rows);
    sglir_id targets = sglir_input(g, SGL_FEED, "targets", &type), out[3];
    sglir_id args[] = { input(g, "x", 2, x_dims), input(g, "w", 2, w_dims), targets, input(g, "d", 1, &rows) };
    sglir_emit(g, SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD, args, 4, NULL, 0, out);
    for (int i = 0; i < 3; i++) fetch(g, (char[]){ 'y', (char)('0' + i), 0 }, out[i]);
}

static void byte_loss(sglir_graph *g) { loss_of(g, 4096, 384, 256); }
static void token_loss(sglir_graph *g) { loss_of(g, 256, 768, 50257); }

static void dropout(sglir_graph *g)
{
    sglir_id x = input(g, "x", 2, wide), args[3];
    for (int i = 0; i < 3; i++) args[i] = sglir_constant(g, SGL_I64, i);
    const sglir_named attrs[] = { SGLIR_I("id", 5), SGLIR_INTS("dims", 2, wide), SGLIR_I("dtype", SGL_F32) };
    sglir_id u = sglir_emit(g, SGLIR_OP_RANDOM_UNIFORM, args, 3, attrs, 3, NULL);
    sglir_id kept = sglir_binary(g, SGLIR_OP_LESS, u, sglir_constant(g, SGL_F32, 0.9));
    fetch(g, "y", sglir_select(g, kept, sglir_scale(g, x, 1 / 0.9), sglir_constant_like(g, x, 0)));
}

static void normal(sglir_graph *g)
{
    sglir_id args[3];
    for (int i = 0; i < 3; i++) args[i] = sglir_constant(g, SGL_I64, i);
    const sglir_named attrs[] = { SGLIR_I("id", 5), SGLIR_INTS("dims", 2, wide), SGLIR_I("dtype", SGL_F32) };
    fetch(g, "y", sglir_emit(g, SGLIR_OP_RANDOM_NORMAL, args, 3, attrs, 3, NULL));
}

static void rope(sglir_graph *g)
{
    const int64_t dims[] = { B, T, H, D };
    sglir_id args[] = { input(g, "x", 4, dims), sglir_constant(g, SGL_I64, 0) };
    fetch(g, "y", sglir_emit(g, SGLIR_OP_ROPE, args, 2, NULL, 0, NULL));
}

/* 32 images of 32 x 32 x 64, 64 outputs of 3 x 3; and the two gradients */
static void conv_of(sglir_graph *g, sglir_op op)
{
    const int64_t x_dims[] = { 32, 32, 32, 64 }, w_dims[] = { 64, 3, 3, 64 }, ones[] = { 1, 1 };
    const int64_t extent[] = { 32, 32 }, size[] = { 3, 3 };
    sglir_id x = input(g, "x", 4, x_dims), w = input(g, "w", 4, op == SGLIR_OP_CONV_WEIGHT_GRAD ? x_dims : w_dims);
    const sglir_named attrs[] = { SGLIR_INTS("stride", 2, ones), SGLIR_INTS("dilation", 2, ones),
                                  SGLIR_INTS("low", 2, ones), SGLIR_INTS("high", 2, ones),
                                  op == SGLIR_OP_CONV_INPUT_GRAD ? SGLIR_INTS("extent", 2, extent)
                                                                 : SGLIR_INTS("size", 2, size) };
    fetch(g, "y", sglir_emit(g, op, (sglir_id[]){ x, w }, 2, attrs, op == SGLIR_OP_CONV ? 4 : 5, NULL));
}

static void conv(sglir_graph *g) { conv_of(g, SGLIR_OP_CONV); }
static void conv_input_grad(sglir_graph *g) { conv_of(g, SGLIR_OP_CONV_INPUT_GRAD); }
static void conv_weight_grad(sglir_graph *g) { conv_of(g, SGLIR_OP_CONV_WEIGHT_GRAD); }

static void sort_rows(sglir_graph *g)
{
    sglir_id x = input(g, "x", 2, near);
    fetch(g, "y", sglir_emit(g, SGLIR_OP_SORT, &x, 1, &SGLIR_I("axis", 1), 1, NULL));
}

static void running_sums(sglir_graph *g)
{
    sglir_id x = input(g, "x", 2, near);
    fetch(g, "y", sglir_emit(g, SGLIR_OP_CUMULATIVE_SUM, &x, 1, &SGLIR_I("axis", 0), 1, NULL));
}

#define WIDE (4096.0 * 4096 * 4)
#define NEAR (4096.0 * 384 * 4)
#define PAIRS ((double)B * H * T * (T + 1) / 2)
static const bench benches[] = {
    { "gemm 2048^3", large_product, 2.0 * 2048 * 2048 * 2048, 0 },
    { "copy 64 MiB", copy, 0, 2 * WIDE },
    { "gemm 4096x1024x384 nt", linear_product, 2.0 * 4096 * 1024 * 384, 0 },
    { "gemm 1024x384x4096 tn", weight_product, 2.0 * 4096 * 1024 * 384, 0 },
    { "gemm 768x128x128 nt", small_product, 2.0 * 768 * 128 * 128, 0 },
    { "gemm 1x1024x384 nt", token_product, 2.0 * 1024 * 384, 1024.0 * 384 * 4 },
    { "chain of 5, 64 MiB", chain, 0, 4 * WIDE },
    { "chain of 5, 6 MiB", near_chain, 0, 4 * NEAR },
    { "silu * up, 64 MiB", swiglu, 0, 3 * WIDE },
    { "gelu, 64 MiB", gelu, 0, 2 * WIDE },
    { "rms_norm 4096x4096", rms_norm, 0, 2 * WIDE },
    { "rms_norm 4096x384", near_rms_norm, 0, 2 * NEAR },
    { "rms_norm grad 4096x4096", rms_norm_grad, 0, 3 * WIDE },
    { "layer_norm grad 4096x384", near_layer_norm_grad, 0, 3 * NEAR },
    { "softmax 4096x4096", softmax, 0, 2 * WIDE },
    { "column sum 4096x4096", bias_grad, 0, WIDE },
    { "transpose 4096x4096", transpose, 0, 2 * WIDE },
    { "adamw 16M", adamw, 0, 7.0 * 4 * (16 << 20) },
    { "attention T256 d64", attention, PAIRS * 4 * D, 0 },
    { "attention grad T256 d64", attention_grad, PAIRS * 10 * D, 0 },
    { "attention T64 d64", short_attention, PAIRS * 4 * D * 65 / 257, 0 },
    { "attention T2048 d64", long_attention, PAIRS * 4 * D * 2049 / 257, 0 },
    { "attention grad T2048 d64", long_attention_grad, PAIRS * 10 * D * 2049 / 257, 0 },
    { "attention 1 document", one_document, PAIRS * 4 * D * 2049 / 257, 0 },
    { "attention 8 documents", packed_attention, PAIRS * 4 * D, 0 },
    { "attention grad 8 documents", packed_attention_grad, PAIRS * 10 * D, 0 },
    { "attention T256 bf16", bf16_attention, PAIRS * 4 * D, 0 },
    { "attention grad T256 bf16", bf16_attention_grad, PAIRS * 10 * D, 0 },
    { "loss 4096x384x256", byte_loss, 6.0 * 4096 * 384 * 256, 0 },
    { "loss 256x768x50257", token_loss, 6.0 * 256 * 768 * 50257, 0 },
    { "dropout, 64 MiB", dropout, 0, 2 * WIDE },
    { "normal 16M", normal, 0, WIDE },
    { "rope", rope, 0, 2 * NEAR },
    { "sum, 6 MiB", near_sum, 0, 3 * NEAR },
    { "sum, 6 MiB bf16", bf16_sum, 0, 1.5 * NEAR },
    { "chain of 5, 6 MiB again", near_chain, 0, 4 * NEAR },
    { "chain of 5, 6 MiB bf16", bf16_chain, 0, 2 * NEAR },
    { "silu * up, 6 MiB", near_swiglu, 0, 3 * NEAR },
    { "silu * up, 6 MiB bf16", bf16_swiglu, 0, 1.5 * NEAR },
    { "gelu, 6 MiB", near_gelu, 0, 2 * NEAR },
    { "gelu, 6 MiB bf16", bf16_gelu, 0, NEAR },
    { "gemm 4096x1024x384 bf16", bf16_product, 2.0 * 4096 * 1024 * 384, 0 },
    { "conv 32x32x32x64, 3x3x64", conv, 18.0 * 32 * 32 * 32 * 64 * 64, 0 },
    { "conv input grad", conv_input_grad, 18.0 * 32 * 32 * 32 * 64 * 64, 0 },
    { "conv weight grad", conv_weight_grad, 18.0 * 32 * 32 * 32 * 64 * 64, 0 },
    { "sort rows 4096x384", sort_rows, 0, 0 },
    { "running sums 4096x384", running_sums, 0, 2 * NEAR },
};

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

static void stop_unless(sglcore_env *env, sgl_status status)
{
    if (status == SGL_OK) return;
    fprintf(stderr, "cpu_bench: %s\n", env->message);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Feeds and states in [0.5, 1.5): no denormals, no NaN; integers 0 .. 99. */
static void fill(const sglexec_operand *o, void *const spaces[SGLIR_SPACES])
{
    char *at = (char *)spaces[o->space] + o->offset;
    int64_t count = 1;
    for (int d = 0; d < o->rank; d++) count *= o->dims[d];
    for (int64_t i = 0; i < count; i++) {
        if (o->dtype == SGL_F32)
            ((float *)(void *)at)[i] = 0.5f + (float)((i * 2654435761u) & 0xffffff) * 0x1p-24f;
        else if (o->dtype == SGL_BF16)
            ((uint16_t *)(void *)at)[i] = (uint16_t)(0x3f00 + i % 128);
        else
            ((int32_t *)(void *)at)[i] = (int32_t)(i % 100);
    }
}

static bool busy;

static int64_t now_ns(void)
{
    if (!busy) return sglcore_now_ns();
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void measure(sglcore_env *env, sglexec_device *device, const sglexec_program *program, const bench *b)
{
    const sglexec_device_ops *ops = &sglexec_device_cpu;
    void *prepared, *spaces[SGLIR_SPACES];
    static int64_t times[MOST_RUNS];
    stop_unless(env, ops->prepare(device, program, &prepared));
    for (int s = 0; s < 5; s++) stop_unless(env, ops->alloc(device, program->space_bytes[s], &spaces[s]));
    if (program->constants.count > 0)
        memcpy(spaces[SGLIR_SPACE_CONST], program->constants.data, (size_t)program->constants.count);
    for (int64_t i = 0; i < program->feeds.count; i++) fill(&program->feeds.data[i].operand, spaces);
    for (int64_t i = 0; i < program->states.count; i++) fill(&program->states.data[i].operand, spaces);
    int runs = 0;
    for (int64_t spent = 0; runs < MOST_RUNS && (runs < 5 || spent < 700000000); runs++) {
        int64_t start = now_ns();
        stop_unless(env, sglexec_replay(env, ops, device, prepared, program, spaces, NULL, NULL));
        times[runs] = now_ns() - start;
        spent += times[runs];
    }
    qsort(times, (size_t)runs, sizeof times[0], by_size);
    double best = (double)times[0], median = (double)times[runs / 2];
    printf("%-26s %9.3f ms best %9.3f median", b->name, best * 1e-6, median * 1e-6);
    if (b->flops > 0) printf("  %7.1f GFLOP/s", b->flops / best);
    if (b->bytes > 0) printf("  %7.1f GB/s", b->bytes / best);
    printf("  (%lld instructions)\n", (long long)program->instructions.count);
    for (int s = 0; s < 5; s++) ops->free(device, spaces[s], program->space_bytes[s]);
    ops->release(device, prepared);
}

static void run(sglcore_env *env, sglexec_device *device, const bench *b)
{
    sglplan plan;
    sglplan_init(&plan);
    for (int op = 0; op < SGLIR_OP_COUNT; op++) plan.native[op] = sglexec_device_cpu.native((sglir_op)op);
    sglpass_context context = { .env = env, .plan = &plan, .workspace = sglexec_device_cpu.workspace };
    sglir_graph *g, *placed;
    sglexec_program *program;
    stop_unless(env, sglir_graph_new(env, b->name, &g));
    b->build(g);
    stop_unless(env, sglir_status(g));
    stop_unless(env, sglpass_run(&context, g, NULL, &placed));
    stop_unless(env, sglexec_freeze(env, placed, &program));
    measure(env, device, program, b);
    sglexec_program_free(program);
    sglir_graph_free(placed);
    sglir_graph_free(g);
}

int main(int argc, char **argv)
{
    sglcore_env env;
    sglexec_device *device;
    busy = argc > 1 && strcmp(argv[1], "--busy") == 0;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    stop_unless(&env, sglexec_device_cpu.open(&env, 0, &device));
    sglcore_text text = { 0 };
    stop_unless(&env, sglexec_device_cpu.describe(device, &text));
    printf("%s", text.data);
    sglcore_text_free(&env, &text);
    for (size_t i = 0; i < sizeof benches / sizeof benches[0]; i++) {
        bool wanted = argc == 1 + busy;
        for (int a = 1 + busy; a < argc; a++) wanted |= strstr(benches[i].name, argv[a]) != NULL;
        if (wanted) run(&env, device, &benches[i]);
    }
    sglexec_device_cpu.close(device);
    return 0;
}
