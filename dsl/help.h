/* help.h -- what a name of the library is, from the texts that are in it: the op table, the comments of the stdlib. */
#ifndef SGLDSL_HELP_H
#define SGLDSL_HELP_H

#include "sgl.h"

/* Writes what `name` is: "exp", "nn.linear", "sgl.optim.warmup_cosine"; or a line for each of "ops", "nn", "optim", "models",
 * "data". NOT_FOUND, with the nearest name, where there is none. */
sgl_status sgldsl_help(sgl_vm *vm, const char *name, sgl_write_fn write, void *user);

#endif
