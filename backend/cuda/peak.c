/* peak.c -- what a GPU reaches: a large f32 product for model-flops utilisation; products and a copy, sustained, for the roof of
 * a profile.
 *
 * In: a device. Out: flops and bytes per second, timed by marks of the stream. The first is the best of a few products, measured
 * when first asked, and kept; the others are measured while the card stays busy, since one that is limited in power is quicker
 * for a moment. Odd invariant: a product is a program of one instruction, whose attributes are a graph's, so that it takes the
 * way of every other. */
#include <string.h>

#include "backend/cuda/cuda.h"

enum {
    SIDE = 4096, /* 0.14 TFLOP: milliseconds, and enough for every multiprocessor */
    NARROW_SIDE = 8192,
    TRIES = 6,
    HEAT_NS = 250 * 1000 * 1000,  /* before what counts, of one kind */
    MEASURED = 12,                /* rounds that count */
    NOISE_BYTES = 16 << 20,       /* of random numbers, over and over: zeros would take less power */
    COPY_BYTES = 256 * (1 << 20), /* read, and as many written; beyond any cache */
};

/* One product of a graph, its operands one after another in one block, and its workspace behind them. */
typedef struct product {
    sgl_dtype dtype;
    int64_t side;
    sglexec_program program;
    sglexec_instruction instruction;
    sglexec_operand operands[3];
    int64_t bytes;
    void *prepared, *block;
} product;

static sgl_status lay_product(sglir_graph *g, product *p)
{
    const int64_t dims[] = { p->side, p->side }, last = 1, first = 0;
    const sglir_type type = sglir_type_make(p->dtype, 2, dims);
    const sglir_id a = sglir_input(g, SGL_FEED, "a", &type), b = sglir_input(g, SGL_FEED, "b", &type);
    const sglir_id c = sglir_dot(g, a, b, 0, NULL, NULL, 1, &last, &first);
    SGLCORE_TRY(sglir_status(g));
    const sglir_node *node = sglir_maker(g, c);
    for (int i = 0; i < 3; i++) {
        p->operands[i] = (sglexec_operand){ .space = SGLIR_SPACE_ARENA,
                                            .dtype = (uint8_t)p->dtype,
                                            .rank = 2,
                                            .offset = p->bytes,
                                            .dims = { p->side, p->side } };
        p->bytes += sglcuda_bytes(&p->operands[i]);
    }
    p->instruction = (sglexec_instruction){ .op = SGLIR_OP_DOT,
                                            .arg_count = 2,
                                            .result_count = 1,
                                            .attr_first = node->attr_first,
                                            .attr_count = node->attr_count,
                                            .work_offset = p->bytes,
                                            .work_bytes = sglcuda_dot_workspace(g, node) };
    p->bytes += p->instruction.work_bytes;
    p->program = (sglexec_program){ .env = g->env,
                                    .strings = g->strings,
                                    .instructions = { &p->instruction, 1, 1 },
                                    .operands = { p->operands, 3, 3 },
                                    .attrs = { g->attrs.data, g->attrs.count, g->attrs.capacity },
                                    .ints = { g->ints.data, g->ints.count, g->ints.capacity } };
    return SGL_OK;
}

static sgl_status launch_product(sglexec_device *device, void *context)
{
    const product *p = context;
    void *const spaces[SGLIR_SPACES] = { [SGLIR_SPACE_ARENA] = p->block };
    return sglcuda_ops.launch(device, p->prepared, 0, spaces);
}

/* The seconds of each of `rounds` rounds of `work`, the shortest and the one in the middle. */
static sgl_status time_rounds(sglexec_device *device, sgl_status (*work)(sglexec_device *, void *), void *context,
                              int rounds, double *best_s, double *middle_s)
{
    int64_t marks[MEASURED + 1], ns[MEASURED];
    SGLCORE_TRY(sglcuda_mark(device, 0));
    for (int i = 0; i < rounds; i++) {
        SGLCORE_TRY(work(device, context));
        SGLCORE_TRY(sglcuda_mark(device, i + 1));
    }
    SGLCORE_TRY(sglcuda_marked(device, rounds + 1, marks));
    for (int i = 0; i < rounds; i++) {
        int at = i;
        const int64_t took = marks[i + 1] - marks[i];
        for (; at > 0 && ns[at - 1] > took; at--) ns[at] = ns[at - 1];
        ns[at] = took;
    }
    *best_s = (double)ns[0] * 1e-9;
    *middle_s = (double)ns[rounds / 2] * 1e-9;
    return SGL_OK;
}

/* As numbers are in a network, of either sign and around 1: the same ones each time. */
static void fill_noise(sgl_dtype dtype, char *noise)
{
    uint32_t state = 1;
    for (int i = 0; i < NOISE_BYTES / 4; i++) {
        state = state * 1664525u + 1013904223u;
        /* one exponent, all else random: f32 within 1 .. 2, or two such numbers of bf16 */
        const uint32_t bits = dtype == SGL_F32 ? (state & 0x807fffffu) | 0x3f800000u
                                               : ((state & 0x807fu) | 0x3f80u) | ((state & 0x807f0000u) | 0x3f800000u);
        memcpy(noise + 4 * (size_t)i, &bits, 4);
    }
}

static sgl_status make_noise(sglexec_device *device, const product *p)
{
    char *noise = sglcore_alloc(device->env, NOISE_BYTES);
    if (!noise) return SGL_OUT_OF_MEMORY;
    fill_noise(p->dtype, noise);
    sgl_status status = SGL_OK;
    for (int64_t at = 0; at < 2 * sglcuda_bytes(&p->operands[0]) && status == SGL_OK; at += NOISE_BYTES)
        status = sglcuda_write(device, p->block, at, noise, NOISE_BYTES);
    sglcore_free(device->env, noise, NOISE_BYTES);
    return status;
}

static sgl_status open_product(sglexec_device *device, sglir_graph *g, product *p)
{
    SGLCORE_TRY(lay_product(g, p));
    SGLCORE_TRY(sglcuda_ops.prepare(device, &p->program, &p->prepared));
    SGLCORE_TRY(sglcuda_ops.settle(device, p->prepared));
    return sglcuda_alloc(device, p->bytes, &p->block);
}

static sgl_status with_product(sglexec_device *device, sgl_dtype dtype, int64_t side,
                               sgl_status (*measure)(sglexec_device *device, product *p, double *flops_per_s),
                               double *flops_per_s)
{
    sglir_graph *g = NULL;
    product p = { .dtype = dtype, .side = side };
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglir_graph_new(device->env, "peak", &g));
    sgl_status status = open_product(device, g, &p);
    if (status == SGL_OK) status = measure(device, &p, flops_per_s);
    sglcuda_free(device, p.block, p.bytes);
    sglcuda_ops.release(device, p.prepared);
    sglir_graph_free(g);
    return status;
}

static double flops_of(const product *p) { return 2.0 * (double)p->side * (double)p->side * (double)p->side; }

/* Zeros: the clock may stand higher than with numbers, and no number is needed. */
static sgl_status measure_best(sglexec_device *device, product *p, double *flops_per_s)
{
    double best_s = 0, middle_s;
    SGLCORE_TRY(time_rounds(device, launch_product, p, TRIES, &best_s, &middle_s));
    *flops_per_s = flops_of(p) / best_s;
    return SGL_OK;
}

sgl_status sglcuda_peak_flops(sglexec_device *device, double *flops_per_s)
{
    *flops_per_s = device->peak_flops;
    if (device->peak_flops > 0) return SGL_OK;
    SGLCORE_TRY(with_product(device, SGL_F32, SIDE, measure_best, flops_per_s));
    device->peak_flops = *flops_per_s;
    return SGL_OK;
}

/* ---- sustained ----------------------------------------------------------------------------------------------------- */

static sgl_status sustain(sglexec_device *device, sgl_status (*work)(sglexec_device *, void *), void *context,
                          double *middle_s)
{
    double best_s = 0;
    const int64_t begun = sglcore_now_ns();
    do {
        SGLCORE_TRY(time_rounds(device, work, context, TRIES, &best_s, middle_s));
    } while (sglcore_now_ns() - begun < HEAT_NS);
    return time_rounds(device, work, context, MEASURED, &best_s, middle_s);
}

static sgl_status measure_sustained(sglexec_device *device, product *p, double *flops_per_s)
{
    double middle_s = 0;
    SGLCORE_TRY(make_noise(device, p));
    SGLCORE_TRY(sustain(device, launch_product, p, &middle_s));
    *flops_per_s = flops_of(p) / middle_s;
    return SGL_OK;
}

static sgl_status copy_block(sglexec_device *device, void *context)
{
    char *block = context;
    return sglcuda_copy(device, block + COPY_BYTES, block, COPY_BYTES);
}

static sgl_status measure_copy(sglexec_device *device, double *bytes_per_s)
{
    void *block = NULL;
    double middle_s = 0;
    SGLCORE_TRY(sglcuda_alloc(device, 2 * (int64_t)COPY_BYTES, &block));
    const sgl_status status = sustain(device, copy_block, block, &middle_s);
    sglcuda_free(device, block, 2 * (int64_t)COPY_BYTES);
    if (status == SGL_OK) *bytes_per_s = 2.0 * COPY_BYTES / middle_s;
    return status;
}

sgl_status sglcuda_ceilings(sglexec_device *device, sglexec_ceilings *ceilings)
{
    *ceilings = (sglexec_ceilings){ 0 };
    SGLCORE_TRY(measure_copy(device, &ceilings->bytes_per_s));
    SGLCORE_TRY(with_product(device, SGL_F32, SIDE, measure_sustained, &ceilings->flops_per_s));
    return with_product(device, SGL_BF16, NARROW_SIDE, measure_sustained, &ceilings->narrow_flops_per_s);
}
