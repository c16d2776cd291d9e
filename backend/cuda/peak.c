/* peak.c -- what a large f32 product reaches on this GPU: the denominator of model-flops utilisation.
 *
 * In: a device. Out: flops per second, the best of a few products by the backend's own route, timed by events on the
 * stream. Measured when first asked, and kept. Odd invariant: the product is a program of one instruction, whose attributes are a graph's,
 * so that it takes the way of every other. */
#include "backend/cuda/cuda.h"

enum { SIDE = 4096, TRIES = 6 }; /* 0.14 TFLOP each: milliseconds, and enough for every multiprocessor */

/* One product of a graph, its operands one after another in one block, and its workspace behind them. */
typedef struct product {
    sglexec_program program;
    sglexec_instruction instruction;
    sglexec_operand operands[3];
    int64_t bytes;
} product;

static sgl_status lay_product(sglir_graph *g, product *p)
{
    const int64_t dims[] = { SIDE, SIDE }, last = 1, first = 0;
    const sglir_type type = sglir_type_make(SGL_F32, 2, dims);
    const sglir_id a = sglir_input(g, SGL_FEED, "a", &type), b = sglir_input(g, SGL_FEED, "b", &type);
    const sglir_id c = sglir_dot(g, a, b, 0, NULL, NULL, 1, &last, &first);
    SGLCORE_TRY(sglir_status(g));
    const sglir_node *node = sglir_maker(g, c);
    for (int i = 0; i < 3; i++) {
        p->operands[i] = (sglexec_operand){
            .space = SGLIR_SPACE_ARENA, .dtype = SGL_F32, .rank = 2, .offset = p->bytes, .dims = { SIDE, SIDE }
        };
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

static sgl_status time_product(sglexec_device *device, void *prepared, void *block, CUevent begun, CUevent ended,
                               double *flops_per_s)
{
    const sglcuda_driver *driver = device->driver;
    void *const spaces[SGLIR_SPACES] = { [SGLIR_SPACE_ARENA] = block };
    float best = 0;
    for (int t = 0; t < TRIES; t++) {
        float ms = 0;
        SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuEventRecord(begun, device->stream), "timing"));
        SGLCORE_TRY(sglcuda_ops.launch(device, prepared, 0, spaces));
        SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuEventRecord(ended, device->stream), "timing"));
        SGLCORE_TRY(sglcuda_wait(device));
        SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuEventElapsedTime(&ms, begun, ended), "timing"));
        if (t == 0 || ms < best) best = ms;
    }
    *flops_per_s = 2.0 * SIDE * SIDE * SIDE / ((double)best * 1e-3);
    return SGL_OK;
}

/* Zeros: the clock may stand higher than with numbers, and no number is needed. */
static sgl_status run_product(sglexec_device *device, const product *p, double *flops_per_s)
{
    const sglcuda_driver *driver = device->driver;
    void *prepared = NULL, *block = NULL;
    CUevent begun = NULL, ended = NULL;
    sgl_status status = sglcuda_ops.prepare(device, &p->program, &prepared);
    if (status == SGL_OK) status = sglcuda_alloc(device, p->bytes, &block);
    if (status == SGL_OK)
        status = sglcuda_check(device->env, driver, driver->cuEventCreate(&begun, 0), "making an event");
    if (status == SGL_OK)
        status = sglcuda_check(device->env, driver, driver->cuEventCreate(&ended, 0), "making an event");
    if (status == SGL_OK) status = time_product(device, prepared, block, begun, ended, flops_per_s);
    if (ended) (void)driver->cuEventDestroy(ended);
    if (begun) (void)driver->cuEventDestroy(begun);
    sglcuda_free(device, block, p->bytes);
    sglcuda_ops.release(device, prepared);
    return status;
}

sgl_status sglcuda_peak_flops(sglexec_device *device, double *flops_per_s)
{
    *flops_per_s = device->peak_flops;
    if (device->peak_flops > 0) return SGL_OK;
    sglir_graph *g = NULL;
    product p = { 0 };
    SGLCORE_TRY(sglcuda_enter(device));
    SGLCORE_TRY(sglir_graph_new(device->env, "peak", &g));
    sgl_status status = lay_product(g, &p);
    if (status == SGL_OK) status = run_product(device, &p, flops_per_s);
    if (status == SGL_OK) device->peak_flops = *flops_per_s;
    sglir_graph_free(g);
    return status;
}
