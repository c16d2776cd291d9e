/* kernel_exec.h -- a plain executor of kernel descriptions: the oracle of the builder, and of what backends make of one.
 *
 * In: a description, a tensor per operand (arguments, then results). Out: the results filled, in double and int64 as the
 * reference interpreter has them, row by row and step by step: no tiles, no threads. What exec/kernel.h promises about
 * phases, forms and order is checked on the way. */
#ifndef KERNEL_EXEC_H
#define KERNEL_EXEC_H

#include "exec/kernel.h"
#include "tests/support/ir_case.h"

/* False and a message when the description breaks a promise. */
bool kernel_exec(sglcore_env *env, const sglexec_kernel *kernel, const interp_tensor *const *arguments,
                 int argument_count, interp_tensor *const *results, ir_message *message);

/* Builds every kernel of the fused graph's top region and below; runs the graph in the interpreter (inputs from `seed`)
 * and each kernel of the top region on what the interpreter has at its border, and compares. *count: kernels built. */
bool kernel_exec_graph(sglcore_env *env, sglir_graph *fused, uint64_t seed, int *count, ir_message *message);

#endif
