/* nvrtc.c -- NVRTC: opened by name, called on threads of a compiler. In and out: nvrtc.h.
 *
 * What is compiled is a text with the module's headers (kernels/<name>.cuh) at hand. The key of the cache is all that a
 * cubin depends on: text, headers, options (the architecture among them), NVRTC's version. Odd invariant: threads call NVRTC and nothing of
 * the env's; what they leave is gathered by whoever waits for a batch. */
#include "backend/cuda/nvrtc.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cache.h"
#include "backend/cuda/embedded.h"
#include "backend/cuda/library.h"

#define LIBRARY "libnvrtc.so." SGLCUDA_RELEASE

enum {
    MOST_THREADS = 32,     /* NVRTC takes some 100 MB for each */
    MOST_HEADERS = 16,     /* of the prelude */
    MINIMAL_SINCE = 13,    /* leaves out what the runtime's headers would declare, a fifth of a small kernel's time */
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

/* ---- a compiler ----------------------------------------------------------------------------------------------------- */

typedef struct item {
    nvrtc_program *program;
    int result;
    sglcore_hash key;
} item;

typedef struct remaining {
    int64_t number;
    size_t length;
} remaining;

/* Counts are read and written under the compiler's lock. */
struct sglcuda_batch {
    sglcuda_compiler *compiler;
    sglcore_arena arena;
    sglcuda_text *texts;
    int64_t count;
    item *items;
    remaining *left; /* the texts that the cache has not, the longest first, so that no thread is left alone with it */
    int64_t left_count, next, done;
    sglcuda_batch *following;
};

struct sglcuda_compiler {
    sglcore_env *env;
    nvrtc table;
    const char *options[5];
    int option_count;
    const char *headers[MOST_HEADERS], *header_names[MOST_HEADERS];
    int header_count;
    char architecture[48];
    sglcore_hash shared; /* what all texts have in common */
    pthread_mutex_t lock;
    pthread_cond_t wanted, ended; /* a text waits to be compiled; one has been */
    sglcuda_batch *first;         /* of those that have texts nobody has taken up */
    pthread_t threads[MOST_THREADS];
    int begun, most;
    bool closing;
};

static sgl_status settle(sglcuda_compiler *c, int major, int minor)
{
    int release, part;
    const int number = 10 * major + minor;
    SGLCORE_TRY(open_nvrtc(c->env, &c->table));
    SGLCORE_TRY(sglcuda_nvrtc_version(c->env, &release, &part));
    (void)snprintf(c->architecture, sizeof c->architecture, "--gpu-architecture=sm_%d%s", number,
                   number == ARCHITECTURES_OF ? "a" : "");
    c->options[c->option_count++] = c->architecture;
    c->options[c->option_count++] = "--std=c++17";
    c->options[c->option_count++] = "--fmad=false"; /* as nvcc's in cmake/cuda.cmake, and for the same reason */
    c->options[c->option_count++] = "--device-as-default-execution-space";
    if (release >= MINIMAL_SINCE) c->options[c->option_count++] = "--minimal";
    for (const sglcuda_embedded *e = sglcuda_prelude; e->name; e++) {
        if (c->header_count == MOST_HEADERS)
            return sglcore_fail(c->env, SGL_INTERNAL, "device cuda: more than %d headers of kernels", MOST_HEADERS);
        c->headers[c->header_count] = e->bytes;
        c->header_names[c->header_count++] = e->name;
    }
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, (uint64_t)release);
    sglcore_hasher_u64(&hasher, (uint64_t)part);
    for (int i = 0; i < c->option_count; i++) sglcore_hasher_string(&hasher, c->options[i]);
    for (int i = 0; i < c->header_count; i++) {
        sglcore_hasher_string(&hasher, c->header_names[i]);
        sglcore_hasher_string(&hasher, c->headers[i]);
    }
    c->shared = sglcore_hasher_end(&hasher);
    return SGL_OK;
}

static int cores(void)
{
    cpu_set_t set;
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

sgl_status sglcuda_open_compiler(sglcore_env *env, int major, int minor, int threads, sglcuda_compiler **compiler)
{
    *compiler = NULL;
    sglcuda_compiler *made = sglcore_alloc_zero(env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->env = env;
    made->most = threads > 0 ? threads : cores();
    if (made->most > MOST_THREADS) made->most = MOST_THREADS;
    const sgl_status status = settle(made, major, minor);
    if (status != SGL_OK) {
        sglcore_free(env, made, sizeof *made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wanted, NULL);
    pthread_cond_init(&made->ended, NULL);
    *compiler = made;
    return SGL_OK;
}

void sglcuda_close_compiler(sglcuda_compiler *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->wanted);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->begun; i++) (void)pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->ended);
    pthread_cond_destroy(&c->wanted);
    pthread_mutex_destroy(&c->lock);
    sglcore_free(c->env, c, sizeof *c);
}

/* ---- threads: all of these hold the lock, and let go of it while they compile -------------------------------------------- */

static void leave_queue(sglcuda_compiler *c, const sglcuda_batch *batch)
{
    for (sglcuda_batch **at = &c->first; *at; at = &(*at)->following) {
        if (*at != batch) continue;
        *at = batch->following;
        return;
    }
}

/* The next text of the batch. */
static void compile_next(sglcuda_batch *batch)
{
    sglcuda_compiler *c = batch->compiler;
    const int64_t n = batch->left[batch->next++].number;
    const sglcuda_text *text = &batch->texts[n];
    item *i = &batch->items[n];
    if (batch->next == batch->left_count) leave_queue(c, batch);
    pthread_mutex_unlock(&c->lock);
    i->result = c->table.create(&i->program, text->text, text->label, c->header_count, c->headers, c->header_names);
    if (i->result == 0) i->result = c->table.compile(i->program, c->option_count, c->options);
    pthread_mutex_lock(&c->lock);
    batch->done++;
    pthread_cond_broadcast(&c->ended);
}

static void *work(void *context)
{
    sglcuda_compiler *c = context;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        if (c->first)
            compile_next(c->first);
        else
            pthread_cond_wait(&c->wanted, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Where no thread can be made, whoever waits for the batch compiles it alone. */
static void enter_queue(sglcuda_compiler *c, sglcuda_batch *batch)
{
    sglcuda_batch **last = &c->first;
    pthread_mutex_lock(&c->lock);
    while (*last) last = &(*last)->following;
    *last = batch;
    for (int64_t n = 0; n < batch->left_count && c->begun < c->most; n++) {
        if (pthread_create(&c->threads[c->begun], NULL, work, c) != 0) break;
        c->begun++;
    }
    pthread_cond_broadcast(&c->wanted);
    pthread_mutex_unlock(&c->lock);
}

/* ---- a batch -------------------------------------------------------------------------------------------------------- */

static void free_batch(sglcuda_batch *batch)
{
    sglcuda_compiler *c = batch->compiler;
    for (int64_t n = 0; n < batch->count; n++)
        if (batch->items[n].program) (void)c->table.destroy(&batch->items[n].program);
    sglcore_arena_free(&batch->arena);
    sglcore_free(c->env, batch, sizeof *batch);
}

static int longest_first(const void *a, const void *b)
{
    const remaining *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static sgl_status make_batch(sglcuda_compiler *c, sglcuda_text *texts, int64_t count, sglcuda_batch **batch)
{
    sglcuda_batch *made = sglcore_alloc_zero(c->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->compiler = c;
    made->arena.env = c->env;
    made->texts = texts;
    made->left = sglcore_arena_alloc(&made->arena, (size_t)(count + 1) * sizeof *made->left);
    made->items = sglcore_arena_alloc(&made->arena, (size_t)(count + 1) * sizeof *made->items);
    if (!made->left || !made->items) {
        free_batch(made);
        return SGL_OUT_OF_MEMORY;
    }
    made->count = count;
    *batch = made;
    return SGL_OK;
}

/* All that a cubin depends on. */
static sglcore_hash key_of(const sglcuda_compiler *c, const char *text)
{
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, c->shared.low);
    sglcore_hasher_u64(&hasher, c->shared.high);
    sglcore_hasher_string(&hasher, text);
    return sglcore_hasher_end(&hasher);
}

sgl_status sglcuda_begin_texts(sglcuda_compiler *c, sglcuda_text *texts, int64_t count, sglcuda_batch **batch)
{
    *batch = NULL;
    sglcuda_batch *made;
    SGLCORE_TRY(make_batch(c, texts, count, &made));
    for (int64_t n = 0; n < count; n++) {
        made->items[n].key = key_of(c, texts[n].text);
        sglcuda_cache_read(c->env, made->items[n].key, &texts[n].cubin, &texts[n].bytes);
        if (!texts[n].cubin)
            made->left[made->left_count++] = (remaining){ .number = n, .length = strlen(texts[n].text) };
    }
    qsort(made->left, (size_t)made->left_count, sizeof *made->left, longest_first);
    if (made->left_count > 0) enter_queue(c, made);
    *batch = made;
    return SGL_OK;
}

static sgl_status fail_text(sglcore_env *env, const nvrtc *table, const sglcuda_text *text, const item *i)
{
    size_t bytes = 0;
    char *log = NULL;
    if (i->program && table->log_size(i->program, &bytes) == 0 && bytes > 1) log = sglcore_alloc(env, bytes);
    if (log && table->log(i->program, log) != 0) log[0] = '\0';
    const sgl_status status =
        sglcore_fail(env, SGL_INTERNAL, "device cuda: NVRTC: %s in kernel %s: %.*s", table->words(i->result),
                     text->label ? text->label : "without a name", LOG_SHOWN, log ? log : "it says no more");
    sglcore_free(env, log, bytes);
    return status;
}

static sgl_status take_cubin(sglcore_env *env, const nvrtc *table, sglcuda_text *text, const item *i)
{
    size_t bytes = 0;
    if (i->result != 0) return fail_text(env, table, text, i);
    int result = table->cubin_size(i->program, &bytes);
    if (result == 0) {
        text->cubin = sglcore_alloc(env, bytes);
        if (!text->cubin) return SGL_OUT_OF_MEMORY;
        text->bytes = (int64_t)bytes;
        result = table->cubin(i->program, text->cubin);
    }
    if (result != 0) return sglcore_fail(env, SGL_DEVICE, "device cuda: NVRTC: %s", table->words(result));
    sglcuda_cache_write(env, i->key, text->cubin, text->bytes);
    return SGL_OK;
}

sgl_status sglcuda_end_texts(sglcuda_batch *batch, sglcuda_compiled *how, int64_t *failed)
{
    sglcuda_compiler *c = batch->compiler;
    const int64_t start = sglcore_now_ns();
    sgl_status status = SGL_OK;
    *failed = -1;
    pthread_mutex_lock(&c->lock);
    while (batch->next < batch->left_count) compile_next(batch);
    while (batch->done < batch->left_count) pthread_cond_wait(&c->ended, &c->lock);
    pthread_mutex_unlock(&c->lock);
    for (int64_t at = 0; at < batch->left_count && status == SGL_OK; at++) {
        const int64_t n = batch->left[at].number;
        status = take_cubin(c->env, &c->table, &batch->texts[n], &batch->items[n]);
        if (status != SGL_OK) *failed = n;
    }
    *how = (sglcuda_compiled){ .compiled = batch->left_count,
                               .cached = batch->count - batch->left_count,
                               .seconds = (double)(sglcore_now_ns() - start) * 1e-9 };
    free_batch(batch);
    return status;
}

void sglcuda_drop_texts(sglcuda_batch *batch)
{
    if (!batch) return;
    sglcuda_compiler *c = batch->compiler;
    pthread_mutex_lock(&c->lock);
    leave_queue(c, batch);
    batch->left_count = batch->next; /* what somebody has taken up is waited for */
    while (batch->done < batch->left_count) pthread_cond_wait(&c->ended, &c->lock);
    pthread_mutex_unlock(&c->lock);
    free_batch(batch);
}

void sglcuda_free_cubins(sglcore_env *env, sglcuda_text *texts, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        sglcore_free(env, texts[n].cubin, (size_t)texts[n].bytes);
        texts[n].cubin = NULL;
        texts[n].bytes = 0;
    }
}
