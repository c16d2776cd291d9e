/* compile.c -- the source texts of one program: gathered while its instructions are prepared, compiled, loaded.
 *
 * In: texts and the names of their kernels. Out: functions that have their handles once all is compiled; modules that live as long as the prepared
 * program. Odd invariant: a text is kept once however many instructions bring it; the first of them stands for it in messages. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/nvrtc.h"

typedef struct source {
    sglcuda_text text;
    const char *entry;
    const sglexec_instruction *first;
    sglcuda_function *function; /* of the arena: it stays where it is */
    CUmodule module;
} source;

struct sglcuda_sources {
    sglexec_device *device;
    sglcore_arena arena; /* texts, names, functions */
    SGLCORE_VEC(source) all;
    sglcore_map places; /* by the hash of text and entry: the place in `all` */
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
    for (int64_t n = 0; n < sources->all.count; n++)
        if (sources->all.data[n].module) (void)device->driver->cuModuleUnload(sources->all.data[n].module);
    sglcore_vec_free(device->env, &sources->all);
    sglcore_map_free(device->env, &sources->places);
    sglcore_arena_free(&sources->arena);
    sglcore_free(device->env, sources, sizeof *sources);
}

sgl_status sglcuda_source(sglcuda_prepare *p, const char *text, const char *entry, const sglcuda_function **function)
{
    struct sglcuda_sources *sources = p->sources;
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_string(&hasher, text);
    sglcore_hasher_string(&hasher, entry);
    const sglcore_hash key = sglcore_hasher_end(&hasher);
    uint64_t at;
    if (!sglcore_map_get(&sources->places, key, &at)) {
        source made = { .first = p->instruction,
                        .entry = sglcore_arena_string(&sources->arena, entry, strlen(entry)),
                        .text.text = sglcore_arena_string(&sources->arena, text, strlen(text)),
                        .function = sglcore_arena_alloc(&sources->arena, sizeof *made.function) };
        if (!made.entry || !made.text.text || !made.function) return SGL_OUT_OF_MEMORY;
        made.text.label = made.entry;
        at = (uint64_t)sources->all.count;
        SGLCORE_TRY(sglcore_vec_push(p->env, &sources->all, made));
        SGLCORE_TRY(sglcore_map_put(p->env, &sources->places, key, at));
    }
    *function = sources->all.data[at].function;
    return SGL_OK;
}

static sgl_status load(sglcuda_prepare *p, source *s, const sglcuda_text *text)
{
    const sglcuda_driver *driver = p->device->driver;
    SGLCORE_TRY(
        sglcuda_check(p->env, driver, driver->cuModuleLoadData(&s->module, text->cubin), "loading a compiled kernel"));
    return sglcuda_check(p->env, driver, driver->cuModuleGetFunction(&s->function->handle, s->module, s->entry),
                         s->entry);
}

static sgl_status compile_all(sglcuda_prepare *p, sglcuda_text *texts, int64_t *failed)
{
    struct sglcuda_sources *sources = p->sources;
    const int64_t count = sources->all.count;
    sglcuda_compiled how;
    for (int64_t n = 0; n < count; n++) texts[n] = sources->all.data[n].text;
    SGLCORE_TRY(sglcuda_compile_texts(p->env, p->device->major, p->device->minor, p->device->threads, texts, count,
                                      &how, failed));
    sglcore_log(p->env, SGL_LOG_DEBUG, "cuda: %lld kernels compiled, %lld from the cache, %.3f s",
                (long long)how.compiled, (long long)how.cached, how.seconds);
    for (int64_t n = 0; n < count; n++) {
        *failed = n;
        SGLCORE_TRY(load(p, &sources->all.data[n], &texts[n]));
    }
    return SGL_OK;
}

sgl_status sglcuda_compile_sources(sglcuda_prepare *p)
{
    const int64_t count = p->sources->all.count;
    int64_t failed = -1;
    if (count == 0) return SGL_OK;
    sglcuda_text *texts = sglcore_alloc_zero(p->env, (size_t)count * sizeof *texts);
    if (!texts) return SGL_OUT_OF_MEMORY;
    sgl_status status = compile_all(p, texts, &failed);
    sglcuda_free_cubins(p->env, texts, count);
    sglcore_free(p->env, texts, (size_t)count * sizeof *texts);
    if (status != SGL_OK && failed >= 0)
        status = sglcuda_fail_in(p->env, status, p->program, p->sources->all.data[failed].first);
    return status;
}
