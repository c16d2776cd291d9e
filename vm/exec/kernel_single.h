/* kernel_single.h -- one op of its own as a kernel: what a backend that executes kernels need not be taught.
 *
 * Comes in: an instruction of an elementwise op, a reduction, a generator, or of movement that is one map (transpose,
 * broadcast, slice, flip, reshape). Goes out: a kernel in the arena, without a hash. */
#ifndef SGLEXEC_KERNEL_SINGLE_H
#define SGLEXEC_KERNEL_SINGLE_H

#include "exec/program.h"

/* Operands of the kernel are those of the instruction. OUT_OF_MEMORY only. */
sgl_status sglexec_kernel_single(sglcore_arena *arena, const sglexec_program *program, const sglexec_instruction *i,
                                 const sglexec_kernel **kernel);
/* Copies operand 0, `from`, through strides (of its elements, one per dim of `to`) into operand 1, the dense `to`. */
sgl_status sglexec_kernel_permute(sglcore_arena *arena, const sglexec_operand *from, const int64_t *strides,
                                  const sglexec_operand *to, const sglexec_kernel **kernel);

#endif
