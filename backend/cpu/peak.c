/* peak.c -- what this machine reaches: a large f32 product, the denominator of model-flops utilisation; a large copy.
 *
 * In: a device. Out: flops per second, the best of a few products of 768^3 by the backend's own route (about 30 ms in all), and
 * bytes per second, of a few copies, on as many threads as the device has. The first is measured when first asked, and kept. */
#include <string.h>

#include "backend/cpu/blas.h"

enum {
    SIDE = 768,
    TRIES = 6,
    COPY_BYTES = 128 << 20, /* read, and as many written: beyond most caches */
    PIECE_BYTES = 1 << 20
};

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

/* ---- copies -------------------------------------------------------------------------------------------------------- */

static void copy_piece(void *context, int64_t task, int worker)
{
    (void)worker;
    char *block = context;
    memcpy(block + COPY_BYTES + task * PIECE_BYTES, block + task * PIECE_BYTES, PIECE_BYTES);
}

static sgl_status measure_copy(sglexec_device *device, double *bytes_per_s)
{
    char *block = sglcore_alloc_aligned(device->env, 2 * (size_t)COPY_BYTES, 4096);
    if (!block) return SGL_OUT_OF_MEMORY;
    memset(block, 1, 2 * (size_t)COPY_BYTES);
    int64_t best = INT64_MAX;
    for (int t = 0; t < TRIES; t++) {
        const int64_t start = sglcore_now_ns();
        sglcpu_parallel(device->pool, COPY_BYTES / PIECE_BYTES, copy_piece, block);
        best = sglcpu_min(best, sglcore_now_ns() - start);
    }
    *bytes_per_s = 2.0 * COPY_BYTES / (double)sglcpu_max(best, 1) * 1e9;
    sglcore_free_aligned(device->env, block, 2 * (size_t)COPY_BYTES, 4096);
    return SGL_OK;
}

/* Products of bf16 are f32's, in pieces widened on the way. */
sgl_status sglcpu_ceilings(sglexec_device *device, sglexec_ceilings *ceilings)
{
    *ceilings = (sglexec_ceilings){ 0 };
    SGLCORE_TRY(measure_copy(device, &ceilings->bytes_per_s));
    SGLCORE_TRY(sglcpu_peak_flops(device, &ceilings->flops_per_s));
    ceilings->narrow_flops_per_s = ceilings->flops_per_s;
    return SGL_OK;
}
