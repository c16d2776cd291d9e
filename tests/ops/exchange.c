/* exchange.c -- the kernels that reduce what ranks sent (backend/cuda/kernels/exchange.cu) against the comm's own reductions
 * (collectives/reduce.c), on a GPU: every dtype and reduction, 1 to 5 ranks, each place, aligned and not, in place and not.
 *
 * In: random bits, NaNs and infinities among them. Out: how many values were compared; status 1 where bits differ (which NaN it is
 * does not count), 77 where there is no GPU. No test of ctest: scripts/gpu-pack takes it to where one is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/exchange.h"
#include "collectives/engine.h"

enum { MOST_RANKS = 5, MOST_BYTES = 1 << 20 };

typedef struct bench {
    sglcore_env env;
    sglexec_device *device;
    void *block; /* own, then the result, then the others' rows */
    unsigned char *sources[MOST_RANKS], *wanted, *found;
    long long compared, differ;
} bench;

static uint64_t state = 0x9E3779B97F4A7C15u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Bits of any number; a third of them near 1, so that sums round. */
static void fill(unsigned char *to, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) to[i] = (unsigned char)(next() >> 24);
}

/* Of floats: whether the bits are a NaN. */
static bool is_nan(sgl_dtype dtype, const unsigned char *at)
{
    uint64_t bits = 0;
    const int size = sglcore_dtype_bits(dtype) / 8;
    memcpy(&bits, at, (size_t)size);
    switch (dtype) {
    case SGL_F64: return (bits & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
    case SGL_F32: return (bits & 0x7fffffffu) > 0x7f800000u;
    case SGL_BF16: return (bits & 0x7fffu) > 0x7f80u;
    case SGL_F16: return (bits & 0x7fffu) > 0x7c00u;
    case SGL_F8E4M3: return (bits & 0x7fu) == 0x7fu;
    case SGL_F8E5M2: return (bits & 0x7fu) > 0x7cu;
    default: return false;
    }
}

/* Where each part lies in the block: `shift` bytes off its alignment. */
static int64_t at_own(int64_t shift) { return shift; }
static int64_t at_result(int64_t shift) { return MOST_BYTES + 256 + shift; }
static int64_t at_row(int64_t row, int64_t pitch, int64_t shift)
{
    return 2 * (MOST_BYTES + 256) + shift + row * pitch;
}

static sgl_status launch(bench *b, sgl_dtype dtype, const char *op, sglcuda_exchange_sums *v, int64_t blocks)
{
    char name[64];
    const sglcuda_function *function;
    size_t bytes = sizeof *v;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, v, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
    sglcuda_prepare p = { .env = &b->env, .device = b->device };
    snprintf(name, sizeof name, "exchange_%s_%s", op, sgl_dtype_name(dtype));
    SGLCORE_TRY(sglcuda_builtin(&p, name, &function));
    return sglcuda_check(&b->env, b->device->driver,
                         b->device->driver->cuLaunchKernel(function->handle, (unsigned)blocks, 1, 1,
                                                           SGLCUDA_EXCHANGE_THREADS, 1, 1, 0, b->device->stream, NULL,
                                                           extra),
                         name);
}

typedef struct one {
    sgl_dtype dtype;
    sglexec_reduction reduction;
    int ranks, place;
    int64_t count, shift;
    bool in_place;
} one;

static void compare(bench *b, const one *c, int64_t size)
{
    b->compared += c->count;
    for (int64_t i = 0; i < c->count; i++) {
        const unsigned char *wanted = b->wanted + i * size, *found = b->found + i * size;
        if (memcmp(wanted, found, (size_t)size) == 0) continue;
        if (is_nan(c->dtype, wanted) && is_nan(c->dtype, found)) continue;
        if (b->differ++ < 10)
            printf("%s, reduction %d, %d ranks, place %d, count %lld: element %lld differs\n", sgl_dtype_name(c->dtype),
                   c->reduction, c->ranks, c->place, (long long)c->count, (long long)i);
    }
}

static sgl_status try_one(bench *b, const one *c)
{
    static const char *const ops[] = { "sum", "max", "min" };
    const int64_t size = sglcore_dtype_bits(c->dtype) / 8, bytes = c->count * size;
    const int64_t pitch = sglcuda_round_up(bytes, 16), to = c->in_place ? at_own(c->shift) : at_result(c->shift);
    const sglexec_device_ops *ops_of = &sglcuda_ops;
    int64_t row = 0;
    for (int r = 0; r < c->ranks; r++) {
        fill(b->sources[r], bytes);
        const int64_t at = r == c->place ? at_own(c->shift) : at_row(row++, pitch, c->shift);
        SGLCORE_TRY(ops_of->write(b->device, b->block, at, b->sources[r], bytes));
    }
    unsigned char *base = b->block;
    /* Of two sums in one launch the other is one of nothing but the first element, to nowhere that is read. */
    const int64_t per_block = SGLCUDA_EXCHANGE_THREADS * SGLCUDA_EXCHANGE_VECTOR * SGLCUDA_EXCHANGE_TURNS;
    const sglcuda_exchange_sum whole = { .to = base + to,
                                         .own = base + at_own(c->shift),
                                         .others = base + at_row(0, pitch, c->shift),
                                         .count = c->count,
                                         .pitch = pitch,
                                         .wide = c->shift % 16 == 0 };
    sglcuda_exchange_sums v = { .count = 2, .ranks = c->ranks, .place = c->place, .sums = { whole, whole } };
    v.sums[0].to = base + at_row(c->ranks, pitch, c->shift);
    v.sums[0].count = 1;
    v.sums[1].first_block = 1;
    SGLCORE_TRY(launch(b, c->dtype, ops[c->reduction], &v, 1 + sglcuda_ceil_div(c->count, per_block)));
    SGLCORE_TRY(ops_of->read(b->device, b->block, to, b->found, bytes));
    sglcomm_reduce(c->dtype, c->reduction, b->wanted, (const void *const *)b->sources, c->ranks, c->count);
    compare(b, c, size);
    return SGL_OK;
}

static sgl_status try_all(bench *b)
{
    static const int64_t counts[] = { 1, 7, 8, 1000, 24593 };
    const int64_t bytes = 2 * (MOST_BYTES + 256) + (MOST_RANKS + 1) * (MOST_BYTES + 256);
    SGLCORE_TRY(sglcuda_ops.alloc(b->device, bytes, &b->block));
    for (int d = 0; d < SGL_DTYPE_COUNT; d++)
        for (int reduction = 0; reduction < SGLEXEC_REDUCTION_COUNT; reduction++) {
            if (d == SGL_I4 || !sglcomm_reduces((sgl_dtype)d, (sglexec_reduction)reduction)) continue;
            for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
                for (int n = 0; n < 10; n++) {
                    const int64_t size = sglcore_dtype_bits((sgl_dtype)d) / 8;
                    const one c = { .dtype = (sgl_dtype)d,
                                    .reduction = (sglexec_reduction)reduction,
                                    .ranks = ranks,
                                    .place = n % ranks,
                                    .count = counts[n % 5],
                                    .shift = n / 5 * size,
                                    .in_place = (n + ranks) % 2 == 0 };
                    SGLCORE_TRY(try_one(b, &c));
                }
        }
    return SGL_OK;
}

int main(void)
{
    bench b = { 0 };
    sglcore_env_init(&b.env, NULL, NULL, NULL, NULL);
    if (sglcuda_ops.open(&b.env, 1, &b.device) != SGL_OK) {
        fprintf(stderr, "%s\n", b.env.message);
        return 77;
    }
    for (int r = 0; r < MOST_RANKS; r++) b.sources[r] = malloc(MOST_BYTES);
    b.wanted = malloc(MOST_BYTES);
    b.found = malloc(MOST_BYTES);
    const sgl_status status = try_all(&b);
    if (status != SGL_OK) printf("%s\n", b.env.message);
    printf("%lld values compared, %lld differ\n", b.compared, b.differ);
    if (b.block) sglcuda_ops.free(b.device, b.block, 1);
    sglcuda_ops.close(b.device);
    for (int r = 0; r < MOST_RANKS; r++) free(b.sources[r]);
    free(b.wanted);
    free(b.found);
    return status != SGL_OK || b.differ > 0 || b.compared == 0;
}
