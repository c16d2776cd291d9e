/* blas_choose.c -- which of several algorithms of cuBLASLt is the fastest, measured.
 *
 * In: a product, the algorithms that the heuristic names for it, the best first as it thinks. Out: one of them. They run over numbers
 * made up, in memory of their own. One that gives other bits than the first is not taken, so that no result depends on a measurement, nor
 * on whether one was made; products whose sums are split otherwise fall out by that. Choices are kept in the cache folder. Odd invariant:
 * where there is no memory to measure in, the first is taken, and nothing is kept.
 *
 * Tried on an H200, bf16, the first and the best of eight, ms: 65536 x 3072 x 768 0.483 and 0.392, 65536 x 768 x 768 0.112 and 0.104, to
 * f32 0.131 and 0.114, 5248 x 50304 x 768 to f32 0.687 and 0.565; where the depth is long, the first. */
#include "backend/cuda/blas.h"
#include "backend/cuda/cache.h"
#include "backend/cuda/product.h"
#include "core/knob.h"

enum {
    ROUNDS = 3,
    PART = 256, /* parts of the memory begin at multiples of */
    FILL_BLOCKS = 4096,
    MEMORY_SHARE = 2 /* no more than one in so many of the bytes that are free */
};
static const double LEAST_FLOPS = 2e8; /* of less the launch is what takes the time */
static const double SHORT_FLOPS = 2e10;

/* Bytes from `memory` on. */
typedef struct trial {
    sglexec_device *device;
    const sglcuda_matmul_shape *shape;
    sglcuda_matmul matmul; /* whose algorithm changes */
    CUdeviceptr memory;
    int64_t a, b, bias, c, work, digest, bytes;
    int64_t a_count, b_count, c_bytes;
    CUevent begun, ended;
} trial;

static int64_t take(int64_t *bytes, int64_t more)
{
    const int64_t at = *bytes;
    *bytes = sglcuda_round_up(at + more, PART);
    return at;
}

static void lay_out(trial *t)
{
    const sglcuda_matmul_shape *s = t->shape;
    const int64_t size = sglcore_dtype_bytes((sgl_dtype)s->dtype, 1);
    const int64_t result = sglcore_dtype_bytes((sgl_dtype)s->result, 1), pitch = sglcuda_max(s->c_row, s->columns);
    const int64_t runs = s->run - 1;
    t->a_count = (s->rows - 1) * s->a_row + (s->depth - 1) * s->a_depth + runs * s->run_a + 1;
    t->b_count = (s->columns - 1) * s->b_column + (s->depth - 1) * s->b_depth + runs * s->run_b + 1;
    t->c_bytes = ((s->rows - 1) * pitch + s->columns + runs * s->run_c) * result;
    t->a = take(&t->bytes, t->a_count * size);
    t->b = take(&t->bytes, t->b_count * size);
    t->bias = take(&t->bytes, s->columns * size);
    t->c = take(&t->bytes, t->c_bytes);
    t->work = take(&t->bytes, s->work_bytes);
    t->digest = take(&t->bytes, sizeof(uint64_t));
}

static sgl_status check(const trial *t, CUresult result)
{
    return sglcuda_check(t->device->env, t->device->driver, result, "measuring products");
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */

/* A kernel of dot.cu over `count` items from `at` on. */
static sgl_status launch_over(const trial *t, const char *name, int64_t at, int64_t count, int64_t into)
{
    const sglcuda_function *function;
    SGLCORE_TRY(sglcuda_builtin_of(t->device, name, &function));
    struct {
        CUdeviceptr from;
        long long count;
        CUdeviceptr into;
    } arguments = { t->memory + (CUdeviceptr)at, count, t->memory + (CUdeviceptr)into };
    size_t bytes = sizeof arguments;
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    const unsigned blocks = (unsigned)sglcuda_min(sglcuda_ceil_div(count, SGLCUDA_DOT_THREADS), FILL_BLOCKS);
    return check(t, t->device->driver->cuLaunchKernel(function->handle, blocks, 1, 1, SGLCUDA_DOT_THREADS, 1, 1, 0,
                                                      t->device->stream, NULL, extra));
}

static sgl_status run(trial *t)
{
    const sglcuda_launch launch = { .device = t->device, .stream = t->device->stream };
    const CUdeviceptr m = t->memory;
    if (t->matmul.bias) SGLCORE_TRY(sglcuda_matmul_place_bias(&launch, &t->matmul, m + (CUdeviceptr)t->bias));
    return sglcuda_matmul_run(&launch, &t->matmul, m + (CUdeviceptr)t->a, m + (CUdeviceptr)t->b, m + (CUdeviceptr)t->c,
                              m + (CUdeviceptr)t->work);
}

/* ---- one algorithm --------------------------------------------------------------------------------------------------- */

static void use(trial *t, const sglcuda_algorithm *algorithm)
{
    t->matmul.algorithm = algorithm->algorithm;
    t->matmul.work_bytes = algorithm->work_bytes;
}

/* A number made of all bits of the result. */
static sgl_status digest(trial *t, uint64_t *sum)
{
    const sglcuda_driver *driver = t->device->driver;
    const CUdeviceptr c = t->memory + (CUdeviceptr)t->c, at = t->memory + (CUdeviceptr)t->digest;
    SGLCORE_TRY(check(t, driver->cuMemsetD8Async(c, 0, (size_t)t->c_bytes, t->device->stream)));
    SGLCORE_TRY(check(t, driver->cuMemsetD8Async(at, 0, sizeof *sum, t->device->stream)));
    SGLCORE_TRY(run(t));
    SGLCORE_TRY(launch_over(t, "dot_digest", t->c, t->c_bytes / 2, t->digest));
    SGLCORE_TRY(check(t, driver->cuMemcpyDtoHAsync(sum, at, sizeof *sum, t->device->stream)));
    return sglcuda_wait(t->device);
}

static sgl_status measure(trial *t, float *ms)
{
    const sglcuda_driver *driver = t->device->driver;
    const sglcuda_matmul_shape *s = t->shape;
    const double flops = 2.0 * (double)s->run * (double)s->rows * (double)s->columns * (double)s->depth;
    const int times = flops < SHORT_FLOPS ? 6 : 2;
    SGLCORE_TRY(check(t, driver->cuEventRecord(t->begun, t->device->stream)));
    for (int i = 0; i < times; i++) SGLCORE_TRY(run(t));
    SGLCORE_TRY(check(t, driver->cuEventRecord(t->ended, t->device->stream)));
    SGLCORE_TRY(sglcuda_wait(t->device));
    return check(t, driver->cuEventElapsedTime(ms, t->begun, t->ended));
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

static sgl_status try_all(trial *t, const sglcuda_algorithm *algorithms, int count, int *chosen)
{
    const char *numbers = t->shape->dtype == SGL_BF16 ? "dot_numbers_bf16" : "dot_numbers_f16";
    uint64_t sums[SGLCUDA_ALGORITHMS];
    float best[SGLCUDA_ALGORITHMS] = { 0 }, ms;
    SGLCORE_TRY(launch_over(t, numbers, t->a, t->a_count, 0));
    SGLCORE_TRY(launch_over(t, numbers, t->b, t->b_count, 0));
    SGLCORE_TRY(launch_over(t, numbers, t->bias, t->shape->columns, 0));
    for (int i = 0; i < count; i++) {
        use(t, &algorithms[i]);
        SGLCORE_TRY(digest(t, &sums[i]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++) {
            if (sums[i] != sums[0]) continue;
            use(t, &algorithms[i]);
            SGLCORE_TRY(measure(t, &ms));
            if (round == 0 || ms < best[i]) best[i] = ms;
        }
    }
    *chosen = sglcuda_fastest(best, sums, count);
    sglcore_log(t->device->env, SGL_LOG_DEBUG,
                "cuda: product [%lld,%lld] x [%lld,%lld]: algorithm %d of %d, %.3f of the first's time",
                (long long)t->shape->rows, (long long)t->shape->depth, (long long)t->shape->depth,
                (long long)t->shape->columns, *chosen, count, best[0] > 0 ? (double)(best[*chosen] / best[0]) : 1.0);
    return SGL_OK;
}

/* false: there is no memory to spare. */
static bool take_memory(trial *t)
{
    size_t left = 0, all = 0;
    const sglcuda_driver *driver = t->device->driver;
    lay_out(t);
    return driver->cuMemGetInfo(&left, &all) == CUDA_SUCCESS && t->bytes <= (int64_t)(left / MEMORY_SHARE) &&
           driver->cuMemAlloc(&t->memory, (size_t)t->bytes) == CUDA_SUCCESS;
}

static sgl_status try_in_memory(trial *t, const sglcuda_algorithm *algorithms, int count, int *chosen)
{
    const sglcuda_driver *driver = t->device->driver;
    sgl_status status = check(t, driver->cuEventCreate(&t->begun, CU_EVENT_DEFAULT));
    if (status == SGL_OK) status = check(t, driver->cuEventCreate(&t->ended, CU_EVENT_DEFAULT));
    if (status == SGL_OK) status = try_all(t, algorithms, count, chosen);
    if (t->begun) (void)driver->cuEventDestroy(t->begun);
    if (t->ended) (void)driver->cuEventDestroy(t->ended);
    (void)driver->cuStreamSynchronize(t->device->stream);
    (void)driver->cuMemFree(t->memory);
    return status;
}

/* ---- the door ------------------------------------------------------------------------------------------------------------ */

/* Of what a choice depends on. */
static sgl_status key_of(sglexec_device *device, const sglcuda_matmul_shape *shape, size_t version, int count,
                         sglcore_hash *key)
{
    char name[256] = "";
    sglcore_hasher hasher;
    SGLCORE_TRY(sglcuda_check(device->env, device->driver,
                              device->driver->cuDeviceGetName(name, sizeof name, device->device),
                              "asking the GPU for its name"));
    sglcore_hasher_init(&hasher);
    sglcore_hasher_string(&hasher, "an algorithm of cuBLASLt");
    sglcore_hasher_string(&hasher, name);
    sglcore_hasher_u64(&hasher, (uint64_t)device->processors);
    sglcore_hasher_u64(&hasher, version);
    sglcore_hasher_u64(&hasher, (uint64_t)count);
    sglcore_hasher_add(&hasher, shape, sizeof *shape);
    *key = sglcore_hasher_end(&hasher);
    return SGL_OK;
}

/* What was kept; -1: nothing that may stand. */
static int read_choice(sglcore_env *env, sglcore_hash key, int count)
{
    char *data;
    int64_t bytes;
    int choice = -1;
    sglcuda_cache_read(env, key, &data, &bytes);
    if (data != NULL && bytes == 1 && data[0] >= 0 && data[0] < count) choice = data[0];
    sglcore_free(env, data, (size_t)bytes);
    return choice;
}

sgl_status sglcuda_choose_algorithm(sglexec_device *device, const sglcuda_matmul_shape *shape,
                                    const sglcuda_matmul *matmul, size_t version, const sglcuda_algorithm *algorithms,
                                    int count, int *chosen)
{
    const double flops = 2.0 * (double)shape->run * (double)shape->rows * (double)shape->columns * (double)shape->depth;
    const bool narrow = shape->dtype == SGL_BF16 || shape->dtype == SGL_F16;
    sglcore_hash key;
    trial t = { .device = device, .shape = shape, .matmul = *matmul };
    *chosen = 0;
    if (count < 2 || !narrow || flops < LEAST_FLOPS || sglcore_knob_int(SGLCORE_KNOB_CUDA_TUNE) == 0) return SGL_OK;
    SGLCORE_TRY(key_of(device, shape, version, count, &key));
    const int kept = read_choice(device->env, key, count);
    if (kept >= 0) {
        *chosen = kept;
        return SGL_OK;
    }
    if (!take_memory(&t)) return SGL_OK;
    SGLCORE_TRY(try_in_memory(&t, algorithms, count, chosen));
    const char choice = (char)*chosen;
    sglcuda_cache_write(device->env, key, &choice, 1);
    return SGL_OK;
}
