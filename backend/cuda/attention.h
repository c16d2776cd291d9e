/* attention.h -- what the ways of attention share: the shapes of an instruction, and where its tensors lie. */
#ifndef SGLCUDA_ATTENTION_H
#define SGLCUDA_ATTENTION_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/attention.h"

/* q [b, t, h, d], k [b, s, g, d], v [b, s, g, e]; a head of g serves h / g heads of q. */
typedef struct sglcuda_heads {
    sgl_dtype dtype, wide; /* wide: of logs of sums, and of what narrow floats are summed in */
    sgl_attention values;  /* without tasks */
    const sglexec_operand *q, *k, *v, *offset;
    const sglexec_operand *query_segments, *key_segments; /* the offset where there are none */
} sglcuda_heads;

/* offset: number of that argument, behind which segments may follow. */
void sglcuda_heads_of(const sglexec_program *program, const sglexec_instruction *i, uint32_t offset,
                      sglcuda_heads *heads);

/* What cuDNN is given: tiles of so many queries and keys, whole (before 9.16 the others come out wrong), and so much
 * workspace. */
enum { SGLCUDA_CUDNN_TILE = 128, SGLCUDA_CUDNN_WORKSPACE = 256 << 10 };

/* Bytes for a counter of tasks that are dealt to blocks. */
enum { SGLCUDA_ATTENTION_COUNTER = 256 };

/* Of the shapes alone: SGLCUDA_CUDNN_WORKSPACE where cuDNN may take them, else 0. */
int64_t sglcuda_attention_cudnn_workspace(const sglcuda_heads *heads);
/* Leaves the command empty where cuDNN does not serve. */
sgl_status sglcuda_attention_by_cudnn(sglcuda_prepare *p, const sglexec_instruction *i, const sglcuda_heads *heads,
                                      sglcuda_command *command);

#endif
