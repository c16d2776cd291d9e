/* peak.c -- what a large f32 product reaches on this machine: the denominator of model-flops utilisation.
 *
 * In: a device. Out: flops per second, the best of a few products of 768^3 by the backend's own route (about 30 ms in all),
 * on as many threads as the device has. Measured when first asked, and kept. */
#include "backend/cpu/blas.h"

enum { SIDE = 768, TRIES = 6 };

static sgl_status measure(sglexec_device *device, float *matrices, double *flops_per_s)
{
    const float *a = matrices, *b = matrices + SIDE * SIDE;
    float *c = matrices + 2 * SIDE * SIDE;
    sglcpu_product product = {
        .m = SIDE, .n = SIDE, .k = SIDE, .a_row = SIDE, .a_col = 1, .b_row = SIDE, .b_col = 1, .ldc = SIDE
    };
    sglcpu_product_cut(&product, false);
    const sglcpu_launch launch = { .pool = device->pool, .isa = device->isa };
    for (int64_t i = 0; i < 2 * SIDE * SIDE; i++) matrices[i] = (float)(i % 7) - 3.0f;
    int64_t best = INT64_MAX;
    for (int t = 0; t < TRIES; t++) {
        int64_t start = sglcore_now_ns();
        sglcpu_product_run(&launch, &product, a, b, c, 0);
        best = sglcpu_min(best, sglcore_now_ns() - start);
    }
    *flops_per_s = 2.0 * SIDE * SIDE * SIDE / (double)sglcpu_max(best, 1) * 1e9;
    return SGL_OK;
}

sgl_status sglcpu_peak_flops(sglexec_device *device, double *flops_per_s)
{
    if (device->peak_flops > 0) {
        *flops_per_s = device->peak_flops;
        return SGL_OK;
    }
    size_t bytes = 3 * (size_t)SIDE * SIDE * sizeof(float);
    float *matrices = sglcore_alloc_aligned(device->env, bytes, 4096);
    if (!matrices) return SGL_OUT_OF_MEMORY;
    sgl_status status = measure(device, matrices, flops_per_s);
    sglcore_free_aligned(device->env, matrices, bytes, 4096);
    device->peak_flops = *flops_per_s;
    return status;
}
