/* nvrtc.c -- NVRTC: opened by name, called on several threads. In and out: nvrtc.h.
 *
 * What is compiled is a text with the module's headers (kernels/<name>.cuh) at hand. The key of the cache is all that a
 * cubin depends on: text, headers, options (the architecture among them), NVRTC's version. Odd invariant: threads call NVRTC and nothing of
 * the env's; what they leave is gathered when all are done. */
#include "backend/cuda/nvrtc.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cache.h"
#include "backend/cuda/embedded.h"
#include "backend/cuda/library.h"

#define LIBRARY "libnvrtc.so." SGLCUDA_RELEASE

enum {
    MOST_THREADS = 32,     /* NVRTC takes some 100 MB for each */
    MOST_HEADERS = 16,     /* of the prelude */
    ARCHITECTURES_OF = 90, /* sm_90a: with what only that architecture has */
    LOG_SHOWN = 600        /* bytes of NVRTC's log in a message: its first lines say what is wrong */
};

typedef struct nvrtc_program nvrtc_program;
/* As in nvrtc.h of the toolkit, which need not be installed where nvcc is. */
typedef struct nvrtc {
    int (*version)(int *major, int *minor);
    const char *(*words)(int result);
    int (*create)(nvrtc_program **program, const char *text, const char *name, int count, const char *const *headers,
                  const char *const *names);
    int (*destroy)(nvrtc_program **program);
    int (*compile)(nvrtc_program *program, int count, const char *const *options);
    int (*cubin_size)(nvrtc_program *program, size_t *bytes);
    int (*cubin)(nvrtc_program *program, char *data);
    int (*log_size)(nvrtc_program *program, size_t *bytes);
    int (*log)(nvrtc_program *program, char *text);
} nvrtc;

static const struct {
    const char *name;
    size_t member;
} functions[] = {
    { "nvrtcVersion", offsetof(nvrtc, version) },        { "nvrtcGetErrorString", offsetof(nvrtc, words) },
    { "nvrtcCreateProgram", offsetof(nvrtc, create) },   { "nvrtcDestroyProgram", offsetof(nvrtc, destroy) },
    { "nvrtcCompileProgram", offsetof(nvrtc, compile) }, { "nvrtcGetCUBINSize", offsetof(nvrtc, cubin_size) },
    { "nvrtcGetCUBIN", offsetof(nvrtc, cubin) },         { "nvrtcGetProgramLogSize", offsetof(nvrtc, log_size) },
    { "nvrtcGetProgramLog", offsetof(nvrtc, log) },
};

/* The loader keeps the library open, so that a table is found anew in no time. */
static sgl_status open_nvrtc(sglcore_env *env, nvrtc *table)
{
    void *handle;
    SGLCORE_TRY(sglcuda_library_open(env, LIBRARY, "compiling fused kernels", &handle));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        SGLCORE_TRY(sglcuda_library_function(env, handle, LIBRARY, functions[i].name,
                                             (void **)(void *)((char *)table + functions[i].member)));
    return SGL_OK;
}

sgl_status sglcuda_nvrtc_version(sglcore_env *env, int *major, int *minor)
{
    nvrtc table;
    SGLCORE_TRY(open_nvrtc(env, &table));
    const int result = table.version(major, minor);
    return result == 0 ? SGL_OK : sglcore_fail(env, SGL_UNSUPPORTED, "device cuda: NVRTC: %s", table.words(result));
}

/* ---- one set of texts ---------------------------------------------------------------------------------------------- */

typedef struct item {
    nvrtc_program *program;
    int result;
    sglcore_hash key;
} item;

typedef struct compiler {
    nvrtc table;
    const sglcuda_text *texts;
    item *items;
    const int64_t *left; /* the texts that the cache has not */
    int64_t left_count;
    atomic_llong next;
    const char *options[4];
    const char *headers[MOST_HEADERS], *header_names[MOST_HEADERS];
    int header_count;
    char architecture[48];
} compiler;

enum { OPTIONS = sizeof((compiler *)0)->options / sizeof(char *) };

static sgl_status settle(sglcore_env *env, compiler *c, int major, int minor)
{
    const int number = 10 * major + minor;
    SGLCORE_TRY(open_nvrtc(env, &c->table));
    (void)snprintf(c->architecture, sizeof c->architecture, "--gpu-architecture=sm_%d%s", number,
                   number == ARCHITECTURES_OF ? "a" : "");
    c->options[0] = c->architecture;
    c->options[1] = "--std=c++17";
    c->options[2] = "--fmad=false"; /* as nvcc's in cmake/cuda.cmake, and for the same reason */
    c->options[3] = "--device-as-default-execution-space";
    for (const sglcuda_embedded *e = sglcuda_prelude; e->name; e++) {
        if (c->header_count == MOST_HEADERS)
            return sglcore_fail(env, SGL_INTERNAL, "device cuda: more than %d headers of kernels", MOST_HEADERS);
        c->headers[c->header_count] = e->bytes;
        c->header_names[c->header_count++] = e->name;
    }
    return SGL_OK;
}

/* Of what all texts share; what is added for each is its text. */
static sgl_status start_key(sglcore_env *env, const compiler *c, sglcore_hasher *hasher)
{
    int major, minor;
    SGLCORE_TRY(sglcuda_nvrtc_version(env, &major, &minor));
    sglcore_hasher_init(hasher);
    sglcore_hasher_u64(hasher, (uint64_t)major);
    sglcore_hasher_u64(hasher, (uint64_t)minor);
    for (int i = 0; i < OPTIONS; i++) sglcore_hasher_string(hasher, c->options[i]);
    for (int i = 0; i < c->header_count; i++) {
        sglcore_hasher_string(hasher, c->header_names[i]);
        sglcore_hasher_string(hasher, c->headers[i]);
    }
    return SGL_OK;
}

static void *work(void *context)
{
    compiler *c = context;
    for (int64_t at; (at = atomic_fetch_add(&c->next, 1)) < c->left_count;) {
        const sglcuda_text *text = &c->texts[c->left[at]];
        item *i = &c->items[c->left[at]];
        i->result = c->table.create(&i->program, text->text, text->label, c->header_count, c->headers, c->header_names);
        if (i->result == 0) i->result = c->table.compile(i->program, OPTIONS, c->options);
    }
    return NULL;
}

static int cores(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

static void run_threads(compiler *c, int threads)
{
    pthread_t others[MOST_THREADS];
    int begun = 0;
    if (threads <= 0) threads = cores();
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > c->left_count) threads = (int)c->left_count;
    while (begun < threads - 1 && pthread_create(&others[begun], NULL, work, c) == 0) begun++;
    (void)work(c);
    for (int i = 0; i < begun; i++) (void)pthread_join(others[i], NULL);
}

static sgl_status fail_text(sglcore_env *env, const compiler *c, const sglcuda_text *text, const item *i)
{
    size_t bytes = 0;
    char *log = NULL;
    if (i->program && c->table.log_size(i->program, &bytes) == 0 && bytes > 1) log = sglcore_alloc(env, bytes);
    if (log && c->table.log(i->program, log) != 0) log[0] = '\0';
    const sgl_status status =
        sglcore_fail(env, SGL_INTERNAL, "device cuda: NVRTC: %s in kernel %s: %.*s", c->table.words(i->result),
                     text->label ? text->label : "without a name", LOG_SHOWN, log ? log : "it says no more");
    sglcore_free(env, log, bytes);
    return status;
}

static sgl_status take_cubin(sglcore_env *env, const compiler *c, sglcuda_text *text, const item *i)
{
    size_t bytes = 0;
    if (i->result != 0) return fail_text(env, c, text, i);
    int result = c->table.cubin_size(i->program, &bytes);
    if (result == 0) {
        text->cubin = sglcore_alloc(env, bytes);
        if (!text->cubin) return SGL_OUT_OF_MEMORY;
        text->bytes = (int64_t)bytes;
        result = c->table.cubin(i->program, text->cubin);
    }
    if (result != 0) return sglcore_fail(env, SGL_DEVICE, "device cuda: NVRTC: %s", c->table.words(result));
    sglcuda_cache_write(env, i->key, text->cubin, text->bytes);
    return SGL_OK;
}

static sgl_status compile(sglcore_env *env, compiler *c, int threads, sglcuda_text *texts, int64_t *left, int64_t count,
                          int64_t *failed)
{
    sgl_status status = SGL_OK;
    sglcore_hasher shared;
    SGLCORE_TRY(start_key(env, c, &shared));
    for (int64_t n = 0; n < count; n++) {
        sglcore_hasher hasher = shared;
        sglcore_hasher_string(&hasher, texts[n].text);
        c->items[n].key = sglcore_hasher_end(&hasher);
        sglcuda_cache_read(env, c->items[n].key, &texts[n].cubin, &texts[n].bytes);
        if (!texts[n].cubin) left[c->left_count++] = n;
    }
    run_threads(c, threads);
    for (int64_t at = 0; at < c->left_count; at++) {
        const int64_t n = left[at];
        if (status == SGL_OK) {
            status = take_cubin(env, c, &texts[n], &c->items[n]);
            if (status != SGL_OK) *failed = n;
        }
        if (c->items[n].program) (void)c->table.destroy(&c->items[n].program);
    }
    return status;
}

sgl_status sglcuda_compile_texts(sglcore_env *env, int major, int minor, int threads, sglcuda_text *texts,
                                 int64_t count, sglcuda_compiled *how, int64_t *failed)
{
    compiler c = { .texts = texts };
    const int64_t start = sglcore_now_ns();
    *how = (sglcuda_compiled){ 0 };
    *failed = -1;
    if (count == 0) return SGL_OK;
    sglcore_arena arena = { .env = env };
    int64_t *left = sglcore_arena_alloc(&arena, (size_t)count * sizeof *left);
    c.left = left;
    c.items = sglcore_arena_alloc(&arena, (size_t)count * sizeof *c.items);
    sgl_status status = left && c.items ? settle(env, &c, major, minor) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) status = compile(env, &c, threads, texts, left, count, failed);
    *how = (sglcuda_compiled){ .compiled = c.left_count,
                               .cached = count - c.left_count,
                               .seconds = (double)(sglcore_now_ns() - start) * 1e-9 };
    sglcore_arena_free(&arena);
    return status;
}

void sglcuda_free_cubins(sglcore_env *env, sglcuda_text *texts, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        sglcore_free(env, texts[n].cubin, (size_t)texts[n].bytes);
        texts[n].cubin = NULL;
        texts[n].bytes = 0;
    }
}
