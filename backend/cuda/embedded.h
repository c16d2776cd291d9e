/* embedded.h -- the files that travel inside the module: kernels as fatbins, and the headers of kernels as text for NVRTC.
 *
 * Comes in: backend/cuda/kernels, when the module is built (cmake/cuda.cmake). Goes out: two tables, each ended by a row
 * without a name. */
#ifndef SGLCUDA_EMBEDDED_H
#define SGLCUDA_EMBEDDED_H

typedef struct sglcuda_embedded {
    const char *name;        /* "move" of kernels/move.cu; "dtypes.cuh" */
    const char *bytes, *end; /* aligned to 16, with a zero at `end` */
} sglcuda_embedded;

extern const sglcuda_embedded sglcuda_kernels[]; /* fatbins */
extern const sglcuda_embedded sglcuda_prelude[]; /* texts */

#endif
