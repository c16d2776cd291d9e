/* test_cuda_device.c -- the CUDA backend as a device over a driver without a GPU (tests/cuda): open and close, memory, steps,
 * sources of a program, which GPU a rank takes, the words of what goes wrong, every allocation failing once.
 *
 * In: calls of the port. Out: bytes that come back, statuses and messages; the driver itself holds each launch to what a GPU demands,
 * and ends the process where something is left behind. */
#include "cuda_case.h"

static void test_opens(void **state)
{
    (void)state;
    sglcore_env env = cuda_case_env();
    sglcore_text text = { 0 };
    sglexec_device *device = cuda_case_open(&env, "");
    assert_int_equal(sglcuda_ops.describe(device, &text), SGL_OK);
    assert_non_null(strstr(text.data, "a GPU that is not there, 0, number 0 of 1, compute capability 9.0, 132 multi"));
    sglcore_text_free(&env, &text);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static void refused(const char *words, const char *message)
{
    sglcore_env env = cuda_case_env();
    sglexec_device *device = NULL;
    cuda_case_driver(words);
    assert_int_equal(sglcuda_ops.open(&env, 1, &device), SGL_UNSUPPORTED);
    assert_null(device);
    if (!strstr(env.message, message)) fail_msg("'%s' says: %s", words, env.message);
    assert_int_equal(env.bytes_in_use, 0);
}

/* That the driver is old or sees no GPU is learnt once in a process: tests/e2e/device.sh. */
static void test_refused(void **state)
{
    (void)state;
    refused("early", "GPU 0 is of compute capability 7.5");
    setenv("SGL_CUDA_DEVICE", "2", 1);
    refused("two", "SGL_CUDA_DEVICE is 2, and there are 2 GPUs: 0 to 1");
    unsetenv("SGL_CUDA_DEVICE");
}

static int number_of(const char *words)
{
    sglcore_env env = cuda_case_env();
    sglexec_device *device = cuda_case_open(&env, words);
    const int number = device->number;
    sglcuda_ops.close(device);
    return number;
}

static void test_which_gpu(void **state)
{
    (void)state;
    assert_int_equal(number_of("two"), 0);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    assert_int_equal(number_of("two"), 1); /* the launcher does not say which of this machine */
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "2", 1);
    assert_int_equal(number_of("two"), 0);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
    assert_int_equal(number_of("two"), 1);
    assert_int_equal(number_of(""), 0);
    setenv("SGL_CUDA_DEVICE", "0", 1);
    assert_int_equal(number_of("two"), 0);
    unsetenv("SGL_CUDA_DEVICE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static void put_and_get(sglexec_device *device, int64_t bytes)
{
    void *block = NULL, *other = NULL;
    char *host = malloc((size_t)bytes + 8), *back = malloc((size_t)bytes + 8);
    assert_true(host && back);
    assert_int_equal(sglcuda_ops.alloc(device, bytes + 8, &block), SGL_OK);
    assert_int_equal(sglcuda_ops.alloc(device, bytes + 8, &other), SGL_OK);
    assert_int_equal((uintptr_t)block % 256, 0);
    assert_int_equal(sglcuda_ops.read(device, block, 0, back, bytes + 8), SGL_OK);
    for (int64_t i = 0; i < bytes + 8; i++) assert_int_equal(back[i], 0);
    for (int64_t i = 0; i < bytes; i++) host[i] = (char)(i * 7 + i / 251);
    assert_int_equal(sglcuda_ops.write(device, block, 3, host, bytes), SGL_OK);
    for (int64_t i = 0; i < bytes; i++) host[i] = 0; /* it has been taken */
    assert_int_equal(sglcuda_ops.copy(device, other, block, bytes + 8), SGL_OK);
    assert_int_equal(sglcuda_ops.read(device, other, 3, back, bytes), SGL_OK);
    for (int64_t i = 0; i < bytes; i++) assert_int_equal(back[i], (char)(i * 7 + i / 251));
    sglcuda_ops.free(device, block, bytes + 8);
    sglcuda_ops.free(device, other, bytes + 8);
    free(host);
    free(back);
}

static void test_memory(void **state)
{
    (void)state;
    const int64_t sizes[] = { 1, 8, 255, 257, 1 << 20, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9 << 20 };
    sglcore_env env = cuda_case_env();
    sglexec_device *device = cuda_case_open(&env, "");
    void *block = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) put_and_get(device, sizes[i]);
    /* More small pieces than the pinned memory holds at once. */
    assert_int_equal(sglcuda_ops.alloc(device, 8 * 40000, &block), SGL_OK);
    for (int64_t i = 0; i < 40000; i++) assert_int_equal(sglcuda_ops.write(device, block, 8 * i, &i, sizeof i), SGL_OK);
    for (int64_t i = 0; i < 40000; i += 777) {
        int64_t back = -1;
        assert_int_equal(sglcuda_ops.read(device, block, 8 * i, &back, sizeof back), SGL_OK);
        assert_int_equal(back, i);
    }
    sglcuda_ops.free(device, block, 8 * 40000);
    assert_int_equal(sglcuda_ops.alloc(device, 0, &block), SGL_OK);
    assert_non_null(block);
    sglcuda_ops.free(device, block, 0);
    sglcuda_ops.free(device, NULL, 0);
    assert_int_equal(sglcuda_ops.finish(device), SGL_OK);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    sglcore_env env = cuda_case_env();
    sglexec_device *device = cuda_case_open(&env, "small");
    void *block = NULL, *more = NULL;
    assert_int_equal(sglcuda_ops.alloc(device, 32 << 10, &block), SGL_OK);
    assert_int_equal(sglcuda_ops.alloc(device, (int64_t)3 << 30, &more), SGL_OUT_OF_MEMORY);
    assert_null(more);
    assert_non_null(strstr(env.message, "3.00 GiB are wanted, and of the 0.00 GiB of the GPU 0.00 are free"));
    sglcuda_ops.free(device, block, 32 << 10);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_broken(void **state)
{
    (void)state;
    sglcore_env env = cuda_case_env();
    sglexec_device *device = cuda_case_open(&env, "");
    setenv("SGL_TESTS_DRIVER", "broken", 1);
    assert_int_equal(sglcuda_ops.finish(device), SGL_DEVICE);
    assert_non_null(strstr(env.message, "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)"));
    assert_non_null(strstr(env.message, "SGL_CUDA_WAIT=1"));
    setenv("SGL_TESTS_DRIVER", "", 1);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- steps and sources ------------------------------------------------------------------------------------------------- */

static const char add_one[] = "struct values { long long n; int by; };\n"
                              "extern \"C\" __global__ void add_some(int *to, const int *from, values v)\n"
                              "{\n    if (threadIdx.x < v.n) to[threadIdx.x] = from[threadIdx.x] + v.by;\n}\n";

typedef struct some {
    int64_t n;
    int by;
} some;

/* A program's commands by hand. */
typedef struct rig {
    sglcore_arena arena;
    sglexec_program program;
    sglexec_instruction instruction;
    sglcuda_prepare p;
    sglcuda_command command;
    void *spaces[SGLIR_SPACES];
} rig;

static sgl_status start(rig *r, sglcore_env *env, sglexec_device *device)
{
    *r = (rig){ .arena = { .env = env } };
    r->p = (sglcuda_prepare){
        .env = env, .arena = &r->arena, .device = device, .program = &r->program, .instruction = &r->instruction
    };
    SGLCORE_TRY(sglcuda_ops.alloc(device, 4096, &r->spaces[SGLIR_SPACE_ARENA]));
    return sglcuda_new_sources(device, &r->p.sources);
}

static void end(rig *r)
{
    sglcuda_free_sources(r->p.sources);
    sglcuda_ops.free(r->p.device, r->spaces[SGLIR_SPACE_ARENA], 4096);
    sglcore_arena_free(&r->arena);
}

static sgl_status compile(rig *r)
{
    SGLCORE_TRY(sglcuda_begin_sources(&r->p));
    return sglcuda_end_sources(r->p.sources, &r->program);
}

static sgl_status run(rig *r)
{
    const sglcuda_launch launch = { .device = r->p.device, .spaces = r->spaces, .stream = r->p.device->stream };
    return r->command.run(&launch, r->command.plan);
}

static sglcuda_place at(int64_t offset) { return (sglcuda_place){ SGLIR_SPACE_ARENA, offset }; }

static void test_fills_and_copies(void **state)
{
    (void)state;
    rig r;
    char back[48];
    sglcore_env env = cuda_case_env();
    sglexec_device *device = cuda_case_open(&env, "");
    assert_int_equal(start(&r, &env, device), SGL_OK);
    assert_int_equal(sglcuda_add_copy(&r.p, &r.command, at(32), at(0), 16), SGL_OK);
    assert_int_equal(sglcuda_add_zeros(&r.p, &r.command, at(8), 4), SGL_OK);
    assert_int_equal(sglcuda_add_copy(&r.p, &r.command, at(8), at(8), 4), SGL_OK);
    assert_int_equal(sglcuda_add_zeros(&r.p, &r.command, at(0), 0), SGL_OK);
    assert_int_equal(sglcuda_ready_steps(device, &r.command), SGL_OK);
    assert_int_equal(sglcuda_ops.write(device, r.spaces[SGLIR_SPACE_ARENA], 0, "abcdefghijklmnop", 16), SGL_OK);
    assert_int_equal(run(&r), SGL_OK);
    assert_int_equal(sglcuda_ops.read(device, r.spaces[SGLIR_SPACE_ARENA], 0, back, 48), SGL_OK);
    assert_memory_equal(back, "abcdefgh\0\0\0\0mnop", 16);
    assert_memory_equal(back + 32, "abcdefghijklmnop", 16);
    end(&r);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status add(rig *r, unsigned blocks, unsigned shared, size_t value_bytes)
{
    const sglcuda_function *function;
    const sglcuda_place places[] = { at(0), at(64) };
    const sglcuda_grid grid = { .blocks = { blocks, 1, 1 }, .threads = { 32, 1, 1 }, .shared = shared };
    const some values = { 3, 4 };
    SGLCORE_TRY(sglcuda_source(&r->p, add_one, "add_some", &function));
    return sglcuda_add_step(&r->p, &r->command, function, grid, places, 2, &values, value_bytes);
}

static void test_launches(void **state)
{
    (void)state;
    rig r;
    const sglcuda_function *one, *same;
    sglcore_env env = cuda_case_env();
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "cache", 1);
    sglexec_device *device = cuda_case_open(&env, "");
    assert_int_equal(start(&r, &env, device), SGL_OK);
    assert_int_equal(add(&r, 1, 0, sizeof(some)), SGL_OK);
    assert_int_equal(add(&r, 0, 1 << 30, sizeof(some)), SGL_OK); /* of nothing */
    assert_int_equal(add(&r, 70000, 200 << 10, sizeof(some)), SGL_OK);
    assert_int_equal(sglcuda_source(&r.p, add_one, "add_some", &one), SGL_OK);
    assert_int_equal(sglcuda_source(&r.p, add_one, "add_some", &same), SGL_OK);
    assert_ptr_equal(one, same);
    if (compile(&r) != SGL_OK) fail_msg("%s", env.message);
    assert_non_null(one->handle);
    assert_int_equal(sglcuda_ready_steps(device, &r.command), SGL_OK);
    if (run(&r) != SGL_OK) fail_msg("%s", env.message);
    end(&r);
    /* One that is freed while it is compiled. */
    assert_int_equal(start(&r, &env, device), SGL_OK);
    setenv("SGL_CACHE", "off", 1);
    assert_int_equal(add(&r, 1, 0, sizeof(some)), SGL_OK);
    assert_int_equal(sglcuda_begin_sources(&r.p), SGL_OK);
    end(&r);
    setenv("SGL_CACHE", "cache", 1);
    /* What a GPU refuses comes back with its words. */
    assert_int_equal(start(&r, &env, device), SGL_OK);
    assert_int_equal(add(&r, 1, 0, sizeof(some) - 8), SGL_OK);
    assert_int_equal(compile(&r), SGL_OK);
    assert_int_equal(run(&r), SGL_DEVICE);
    assert_non_null(strstr(env.message, "launching a kernel: an argument is out of its range"));
    end(&r);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_names_that_are_not_there(void **state)
{
    (void)state;
    rig r;
    const sglcuda_function *function;
    sglcore_env env = cuda_case_env();
    cuda_case_needs_nvrtc();
    sglexec_device *device = cuda_case_open(&env, "");
    assert_int_equal(start(&r, &env, device), SGL_OK);
    assert_int_equal(sglcuda_builtin(&r.p, "no_such_kernel", &function), SGL_INTERNAL);
    assert_non_null(strstr(env.message, "no kernel no_such_kernel"));
    assert_int_equal(sglcuda_source(&r.p, add_one, "add_none", &function), SGL_OK);
    assert_int_equal(compile(&r), SGL_DEVICE);
    assert_non_null(strstr(env.message, "add_none"));
    end(&r);
    sglcuda_ops.close(device);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status body(sglcore_env *env, void *context)
{
    rig r;
    sglexec_device *device = NULL;
    (void)context;
    SGLCORE_TRY(sglcuda_ops.open(env, 1, &device));
    sgl_status status = start(&r, env, device);
    if (status == SGL_OK) status = add(&r, 1, 0, sizeof(some));
    if (status == SGL_OK) status = sglcuda_add_zeros(&r.p, &r.command, at(0), 4);
    if (status == SGL_OK) status = compile(&r);
    if (status == SGL_OK) status = run(&r);
    end(&r);
    sglcuda_ops.close(device);
    return status;
}

static void test_without_memory(void **state)
{
    (void)state;
    cuda_case_needs_nvrtc();
    cuda_case_driver("");
    setenv("SGL_CACHE", "off", 1);
    assert_true(fault_allocations(body, NULL, true) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_which_gpu),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_fills_and_copies),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_names_that_are_not_there),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests_name("cuda device", tests, NULL, NULL);
}
