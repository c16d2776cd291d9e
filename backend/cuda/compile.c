/* compile.c -- the source texts of one program: gathered while its instructions are prepared, compiled while others are, loaded.
 *
 * In: texts and the names of their kernels. Out: functions that have their handles once all is compiled; modules that live as long as the prepared
 * program. Compiling begins when a program is prepared, and is waited for when it is to run. Odd invariant: a text is kept once however many instructions bring it; the first of them stands for it in messages. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/nvrtc.h"
#include "core/span.h"

/* A kernel of a text. */
typedef struct kernel {
    const char *entry;
    sglcuda_function *function; /* of the arena: it stays where it is */
    struct kernel *next;        /* of the same text */
} kernel;

typedef struct source {
    sglcuda_text text;
    kernel *kernels;
    const sglexec_instruction *first;
    CUmodule module;
} source;

struct sglcuda_sources {
    sglexec_device *device;
    sglcore_arena arena; /* texts, names, functions */
    SGLCORE_VEC(source) all;
    sglcuda_text *texts;  /* of all, while they are compiled */
    sglcuda_batch *batch; /* NULL: none is under way */
    sglcore_map places;   /* by the hash of a text: the place in `all` */
};

sgl_status sglcuda_new_sources(sglexec_device *device, struct sglcuda_sources **sources)
{
    *sources = sglcore_alloc_zero(device->env, sizeof **sources);
    if (!*sources) return SGL_OUT_OF_MEMORY;
    (*sources)->device = device;
    (*sources)->arena.env = device->env;
    return SGL_OK;
}

void sglcuda_free_sources(struct sglcuda_sources *sources)
{
    if (!sources) return;
    sglexec_device *device = sources->device;
    sglcuda_drop_texts(sources->batch);
    if (sources->texts) sglcuda_free_cubins(device->env, sources->texts, sources->all.count);
    for (int64_t n = 0; n < sources->all.count; n++)
        if (sources->all.data[n].module) (void)device->driver->cuModuleUnload(sources->all.data[n].module);
    sglcore_vec_free(device->env, &sources->all);
    sglcore_map_free(device->env, &sources->places);
    sglcore_arena_free(&sources->arena);
    sglcore_free(device->env, sources, sizeof *sources);
}

static sgl_status find_text(sglcuda_prepare *p, const char *text, uint64_t *at)
{
    struct sglcuda_sources *sources = p->sources;
    const sglcore_hash key = sglcore_hash_bytes(text, strlen(text));
    if (sglcore_map_get(&sources->places, key, at)) return SGL_OK;
    source made = { .first = p->instruction };
    made.text.text = sglcore_arena_string(&sources->arena, text, strlen(text));
    if (!made.text.text) return SGL_OUT_OF_MEMORY;
    *at = (uint64_t)sources->all.count;
    SGLCORE_TRY(sglcore_vec_push(p->env, &sources->all, made));
    return sglcore_map_put(p->env, &sources->places, key, *at);
}

sgl_status sglcuda_source(sglcuda_prepare *p, const char *text, const char *entry, const sglcuda_function **function)
{
    uint64_t at;
    struct sglcuda_sources *sources = p->sources;
    SGLCORE_TRY(find_text(p, text, &at));
    source *s = &sources->all.data[at];
    kernel **k = &s->kernels;
    while (*k && strcmp((*k)->entry, entry) != 0) k = &(*k)->next;
    if (!*k) {
        kernel *made = sglcore_arena_alloc(&sources->arena, sizeof *made);
        if (!made) return SGL_OUT_OF_MEMORY;
        made->next = NULL;
        made->entry = sglcore_arena_string(&sources->arena, entry, strlen(entry));
        made->function = sglcore_arena_alloc(&sources->arena, sizeof *made->function);
        if (!made->entry || !made->function) return SGL_OUT_OF_MEMORY;
        *k = made;
        if (!s->text.label) s->text.label = made->entry;
    }
    *function = (*k)->function;
    return SGL_OK;
}

sgl_status sglcuda_begin_sources(sglcuda_prepare *p)
{
    struct sglcuda_sources *sources = p->sources;
    sglexec_device *device = p->device;
    const int64_t count = sources->all.count;
    if (count == 0) return SGL_OK;
    if (!device->compiler)
        SGLCORE_TRY(
            sglcuda_open_compiler(device->env, device->major, device->minor, device->threads, &device->compiler));
    sources->texts = sglcore_arena_alloc(&sources->arena, (size_t)count * sizeof *sources->texts);
    if (!sources->texts) return SGL_OUT_OF_MEMORY;
    for (int64_t n = 0; n < count; n++) sources->texts[n] = sources->all.data[n].text;
    return sglcuda_begin_texts(device->compiler, sources->texts, count, &sources->batch);
}

static sgl_status load(sglexec_device *device, source *s, const sglcuda_text *text)
{
    const sglcuda_driver *driver = device->driver;
    SGLCORE_TRY(sglcuda_check(device->env, driver, driver->cuModuleLoadData(&s->module, text->cubin),
                              "loading a compiled kernel"));
    for (const kernel *k = s->kernels; k; k = k->next)
        SGLCORE_TRY(sglcuda_check(device->env, driver,
                                  driver->cuModuleGetFunction(&k->function->handle, s->module, k->entry), k->entry));
    return SGL_OK;
}

static sgl_status end_all(struct sglcuda_sources *sources, int64_t *failed)
{
    sglcore_env *env = sources->device->env;
    sglcuda_batch *batch = sources->batch;
    sglcuda_compiled how;
    sources->batch = NULL;
    SGLCORE_TRY(sglcuda_end_texts(batch, &how, failed));
    sglcore_log(env, SGL_LOG_DEBUG, "%.1f ms: cuda: waiting for kernels, %lld texts compiled, %lld from the cache",
                how.seconds * 1e3, (long long)how.compiled, (long long)how.cached);
    const int64_t begun = sglcore_now_ns();
    for (int64_t n = 0; n < sources->all.count; n++) {
        *failed = n;
        SGLCORE_TRY(load(sources->device, &sources->all.data[n], &sources->texts[n]));
    }
    sglcore_span(env, begun, "cuda: loading %lld compiled texts", (long long)sources->all.count);
    return SGL_OK;
}

sgl_status sglcuda_end_sources(struct sglcuda_sources *sources, const sglexec_program *program)
{
    sglcore_env *env = sources->device->env;
    int64_t failed = -1;
    if (!sources->batch) return SGL_OK;
    const sgl_status status = end_all(sources, &failed);
    sglcuda_free_cubins(env, sources->texts, sources->all.count);
    return status == SGL_OK || failed < 0 ? status
                                          : sglcuda_fail_in(env, status, program, sources->all.data[failed].first);
}
