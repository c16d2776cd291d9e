/* emit.h -- a fused region printed as CUDA source, and how it is launched.
 *
 * Comes in: a kernel (exec/kernel.h) and the operands of the instruction. Goes out: a source text with one or more entries, each
 * of which takes one struct of pointers (the operands, then the workspace), their grids in the order in which they are to be launched, and the bytes of
 * workspace, which depend on the kernel alone. The text of equal kernels over equally aligned operands is equal.
 *
 * A kernel goes one of four ways:
 *   map      nothing is reduced: eight neighbours of the row-major domain a thread; totals are added up by the way
 *   columns  sums over the rows: a thread keeps eight columns and walks down the rows of its part
 *   rows     a row stays in the registers of the threads that share it while its sums are taken; sums over the rows by the way
 *   chunks   rows too long for that: their sums first, chunk by chunk, and then one of the first two ways with them at hand
 *
 * The order in which the n elements of a float's sum are added depends on n and on the sum's node alone (exec/kernel.h):
 *   - where the node leaves out the last dimension, or all: chunks of SGLCUDA_CHUNK elements. Of each, runs of 8 go in turn to lanes, as
 *     many as a chunk of min(n, SGLCUDA_CHUNK) elements has (sglcuda_lanes); a lane adds its own in order; lanes come together by halves
 *     within warps, then warp after warp. The chunks' sums are added in double by 256 lanes in the same manner.
 *   - where it keeps it (columns): parts of sglcuda_part_rows(n) rows; row i of a part goes to lane i % 8, which adds in order;
 *     then lane after lane. The parts' sums are added in double by 32 lanes, part i by lane i % 32, then lane after lane. */
#ifndef SGLCUDA_EMIT_H
#define SGLCUDA_EMIT_H

#include "backend/cuda/cuda.h"

enum {
    SGLCUDA_CHUNK = 16384,  /* elements of a row that are added up in registers: 32 each of 512 threads */
    SGLCUDA_RUN = 8,        /* neighbours that a thread takes at once: 16 bytes of the narrowest common dtype */
    SGLCUDA_PART_LANES = 8, /* rows of a part that are walked down at once */
    SGLCUDA_MOST_LAUNCHES = 96
};

typedef struct sglcuda_entry {
    char name[24];
    sglcuda_grid grid;
} sglcuda_entry;

typedef struct sglcuda_emitted {
    sglcore_text text;
    int count;
    sglcuda_entry entries[SGLCUDA_MOST_LAUNCHES];
} sglcuda_emitted;

/* Prints the kernel. UNSUPPORTED when it needs more launches than there is room for. The text is freed by the caller, also after a failure. */
sgl_status sglcuda_emit(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_operand *operands,
                        int operand_count, sglcuda_emitted *emitted);
/* What the kernel needs of workspace. */
int64_t sglcuda_emit_workspace(const sglexec_kernel *kernel);
/* As much as one reduction of `reduced` elements each, `kept` results, needs in whatever form. */
int64_t sglcuda_reduction_workspace(int64_t reduced, int64_t kept);

#endif
