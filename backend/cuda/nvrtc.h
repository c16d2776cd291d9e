/* nvrtc.h -- source texts to cubins by NVRTC, on threads of its own, or from the cache.
 *
 * Comes in: texts, and the compute capability of a GPU, which need not be there. Goes out: cubins, or NVRTC's words. A batch of texts is
 * begun, and waited for when its kernels are wanted: what was begun first is compiled first, and whoever waits helps. Knows no
 * driver and no program. */
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
    double seconds; /* waited for */
} sglcuda_compiled;

typedef struct sglcuda_compiler sglcuda_compiler; /* NVRTC as one architecture has it, and threads that call it */
typedef struct sglcuda_batch sglcuda_batch;

/* NVRTC's version, which is looked for; UNSUPPORTED where it is missing. */
sgl_status sglcuda_nvrtc_version(sglcore_env *env, int *major, int *minor);
/* threads: at the most so many; 0: as many as there are cores that the process may use. They are made when there is something to do. */
sgl_status sglcuda_open_compiler(sglcore_env *env, int major, int minor, int threads, sglcuda_compiler **compiler);
void sglcuda_close_compiler(sglcuda_compiler *compiler); /* NULL is allowed; no batch is left */
/* The texts, and what they point to, stay until the batch has ended. */
sgl_status sglcuda_begin_texts(sglcuda_compiler *compiler, sglcuda_text *texts, int64_t count, sglcuda_batch **batch);
/* The cubins of all, when it succeeds; when it fails, `*failed` is the number of a text that does not compile, or -1. The batch is
 * gone, either way. */
sgl_status sglcuda_end_texts(sglcuda_batch *batch, sglcuda_compiled *how, int64_t *failed);
void sglcuda_drop_texts(sglcuda_batch *batch); /* of nobody's interest any more; NULL is allowed */
void sglcuda_free_cubins(sglcore_env *env, sglcuda_text *texts, int64_t count);

#endif
