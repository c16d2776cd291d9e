/* nvrtc.h -- source texts to cubins by NVRTC, on several threads, or from the cache.
 *
 * Comes in: texts, and the compute capability of a GPU, which need not be there. Goes out: cubins, or NVRTC's words. Knows no driver
 * and no program. */
#ifndef SGLCUDA_NVRTC_H
#define SGLCUDA_NVRTC_H

#include "core/core.h"

typedef struct sglcuda_text {
    const char *text;
    const char *label; /* of the kernel, in messages and in the debugger; NULL: none */
    char *cubin;       /* out: freed by sglcuda_free_cubins */
    int64_t bytes;
} sglcuda_text;

typedef struct sglcuda_compiled {
    int64_t compiled, cached;
    double seconds;
} sglcuda_compiled;

/* NVRTC's version, which is looked for; UNSUPPORTED where it is missing. */
sgl_status sglcuda_nvrtc_version(sglcore_env *env, int *major, int *minor);
/* Compiles all of them on up to `threads` threads (0: as many cores as the process may use). When it fails, `*failed` is the number of a text
 * that does not compile, or -1. */
sgl_status sglcuda_compile_texts(sglcore_env *env, int major, int minor, int threads, sglcuda_text *texts,
                                 int64_t count, sglcuda_compiled *how, int64_t *failed);
void sglcuda_free_cubins(sglcore_env *env, sglcuda_text *texts, int64_t count);

#endif
