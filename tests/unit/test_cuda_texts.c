/* test_cuda_texts.c -- what NVRTC makes of texts, which needs no GPU: cubins, from several threads as from one, words about
 * what does not compile, and the cache of them: found, damaged, left out.
 *
 * In: texts with kernels over every dtype of the prelude. Out: images with those kernels' sections. */
#include "cuda_case.h"

#include "core/io.h"

enum { TEXTS = 15, FEW = 4 };

static const char *const dtypes[TEXTS] = { "f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64",    "i32",
                                           "i16", "i8",  "u8",   "u16", "u32",    "i4",     "boolean" };

/* Copies eight and one elements: every function of the dtype is compiled. */
static void make_texts(char texts[TEXTS][1024], sglcuda_text *all)
{
    for (int n = 0; n < TEXTS; n++) {
        snprintf(texts[n], sizeof texts[n],
                 "#include \"dtypes.cuh\"\n"
                 "extern \"C\" __global__ void copy_%s(void *to, const void *from) {\n"
                 "    %s::held x[8];\n    %s::load8(from, 0, x);\n    %s::store8(to, 0, x);\n"
                 "    %s::store(to, 8, %s::settle(%s::load(from, 8)));\n}\n",
                 dtypes[n], dtypes[n], dtypes[n], dtypes[n], dtypes[n], dtypes[n], dtypes[n]);
        all[n] = (sglcuda_text){ .text = texts[n], .label = dtypes[n] };
    }
}

static bool has_name(const sglcuda_text *text, const char *dtype)
{
    char name[64];
    const size_t length = (size_t)snprintf(name, sizeof name, ".text.copy_%s", dtype) + 1;
    for (int64_t at = 0; at + (int64_t)length <= text->bytes; at++)
        if (memcmp(text->cubin + at, name, length) == 0) return true;
    return false;
}

static sgl_status compile_texts(sglcore_env *env, int major, int threads, sglcuda_text *texts, int64_t count,
                                sglcuda_compiled *how, int64_t *failed)
{
    sglcuda_compiler *compiler;
    sglcuda_batch *batch;
    *failed = -1;
    SGLCORE_TRY(sglcuda_open_compiler(env, major, 0, threads, &compiler));
    sgl_status status = sglcuda_begin_texts(compiler, texts, count, &batch);
    if (status == SGL_OK) status = sglcuda_end_texts(batch, how, failed);
    sglcuda_close_compiler(compiler);
    return status;
}

static void compile(sglcore_env *env, sglcuda_text *all, int count, int threads, int64_t compiled)
{
    sglcuda_compiled how;
    int64_t failed;
    if (compile_texts(env, 9, threads, all, count, &how, &failed) != SGL_OK) fail_msg("%s", env->message);
    assert_int_equal(failed, -1);
    assert_int_equal(how.compiled, compiled);
    assert_int_equal(how.cached, count - compiled);
    for (int n = 0; n < count; n++) assert_true(has_name(&all[n], dtypes[n]));
}

static void test_compiles(void **state)
{
    (void)state;
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS], again[TEXTS];
    sglcore_env env = cuda_case_env();
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "off", 1);
    make_texts(texts, all);
    make_texts(texts, again);
    compile(&env, all, TEXTS, 3, TEXTS);
    compile(&env, again, FEW, 1, FEW);
    for (int n = 0; n < FEW; n++) {
        assert_int_equal(all[n].bytes, again[n].bytes);
        assert_memory_equal(all[n].cubin, again[n].cubin, (size_t)all[n].bytes);
    }
    sglcuda_free_cubins(&env, all, TEXTS);
    sglcuda_free_cubins(&env, again, TEXTS);
    assert_int_equal(env.bytes_in_use, 0);
}

static int damage(void *context, const char *name)
{
    char path[512];
    int *left = context;
    snprintf(path, sizeof path, "cache/deep/cuda/%s", name);
    if ((*left)-- == 0) return 1;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, -1, SEEK_END);
    const int last = fgetc(file);
    fseek(file, -1, SEEK_END);
    fputc(last ^ 1, file);
    fclose(file);
    return 0;
}

static void test_cache(void **state)
{
    (void)state;
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS];
    sglcore_env env = cuda_case_env();
    int damaged = 2;
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "cache/deep", 1);
    make_texts(texts, all);
    compile(&env, all, FEW, 2, FEW);
    sglcuda_free_cubins(&env, all, FEW);
    compile(&env, all, FEW, 2, 0);
    sglcuda_free_cubins(&env, all, FEW);
    /* Another architecture is another key. */
    sglcuda_compiled how;
    int64_t failed;
    assert_int_equal(compile_texts(&env, 8, 2, all, 1, &how, &failed), SGL_OK);
    assert_int_equal(how.compiled, 1);
    sglcuda_free_cubins(&env, all, 1);
    (void)sglcore_remove_dir(&env, "cache/deep/cuda");
    compile(&env, all, FEW, 2, FEW);
    sglcuda_free_cubins(&env, all, FEW);
    (void)env.io->list(env.io->user, "cache/deep/cuda", damage, &damaged);
    compile(&env, all, FEW, 2, 2);
    sglcuda_free_cubins(&env, all, FEW);
    compile(&env, all, FEW, 2, 0);
    sglcuda_free_cubins(&env, all, FEW);
    assert_int_equal(env.bytes_in_use, 0);
}

/* A cache that cannot be written to costs nothing but the time. */
static void test_no_cache(void **state)
{
    (void)state;
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS];
    sglcore_env env = cuda_case_env();
    cuda_case_needs_nvrtc();
    FILE *file = fopen("no-folder", "w");
    assert_non_null(file);
    fclose(file);
    setenv("SGL_CACHE", "no-folder", 1);
    make_texts(texts, all);
    compile(&env, all, FEW, 2, FEW);
    sglcuda_free_cubins(&env, all, FEW);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_words(void **state)
{
    (void)state;
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS];
    sglcore_env env = cuda_case_env();
    sglcuda_compiled how;
    int64_t failed;
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "off", 1);
    make_texts(texts, all);
    all[2].text = "extern \"C\" __global__ void odd(float *x) { *x = there_is_no_such_name; }\n";
    assert_int_equal(compile_texts(&env, 9, 2, all, 4, &how, &failed), SGL_INTERNAL);
    assert_int_equal(failed, 2);
    assert_non_null(strstr(env.message, "kernel bf16"));
    assert_non_null(strstr(env.message, "there_is_no_such_name"));
    sglcuda_free_cubins(&env, all, 4);
    assert_int_equal(env.bytes_in_use, 0);
}

/* Several at once, on two threads: each has its own cubins, whatever order they are waited for in; of one that nobody wants any
 * more nothing is left. */
static void test_batches(void **state)
{
    (void)state;
    enum { BATCHES = 4 };
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS];
    sglcore_env env = cuda_case_env();
    sglcuda_compiler *compiler;
    sglcuda_batch *batches[BATCHES], *nothing;
    sglcuda_compiled how;
    int64_t failed;
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "off", 1);
    make_texts(texts, all);
    assert_int_equal(sglcuda_open_compiler(&env, 9, 0, 2, &compiler), SGL_OK);
    for (int b = 0; b < BATCHES; b++)
        assert_int_equal(sglcuda_begin_texts(compiler, all + 3 * b, 3, &batches[b]), SGL_OK);
    assert_int_equal(sglcuda_begin_texts(compiler, all, 0, &nothing), SGL_OK);
    assert_int_equal(sglcuda_end_texts(nothing, &how, &failed), SGL_OK);
    sglcuda_drop_texts(batches[1]);
    sglcuda_drop_texts(NULL);
    assert_int_equal(sglcuda_end_texts(batches[3], &how, &failed), SGL_OK);
    assert_int_equal(sglcuda_end_texts(batches[0], &how, &failed), SGL_OK);
    assert_int_equal(sglcuda_end_texts(batches[2], &how, &failed), SGL_OK);
    assert_int_equal(how.compiled, 3);
    for (int n = 0; n < 3 * BATCHES; n++) assert_true(n / 3 == 1 || has_name(&all[n], dtypes[n]));
    sglcuda_close_compiler(compiler);
    sglcuda_free_cubins(&env, all, 3 * BATCHES);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status body(sglcore_env *env, void *context)
{
    char texts[TEXTS][1024];
    sglcuda_text all[TEXTS];
    sglcuda_compiled how;
    int64_t failed;
    (void)context;
    make_texts(texts, all);
    const sgl_status status = compile_texts(env, 9, 1, all, 2, &how, &failed);
    sglcuda_free_cubins(env, all, 2);
    return status;
}

static void test_without_memory(void **state)
{
    (void)state;
    cuda_case_needs_nvrtc();
    setenv("SGL_CACHE", "off", 1);
    assert_true(fault_allocations(body, NULL, true) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compiles), cmocka_unit_test(test_cache),   cmocka_unit_test(test_no_cache),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_batches), cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests_name("cuda texts", tests, NULL, NULL);
}
