/* command_folder.h -- the folder that a run writes its checkpoints into: its name, whether it is free, making it.
 *
 * Comes in: the script's path, --out. Goes out: a path, folders, or why not. */
#ifndef SGLDSL_COMMAND_FOLDER_H
#define SGLDSL_COMMAND_FOLDER_H

#include "dsl/command.h"

enum { COMMAND_PATH_ROOM = 4096 };

/* `asked`, or "examples/llama.lua" to "llama.run". */
sgl_status command_folder_name(sgl_vm *vm, const char *script, const char *asked, char out[COMMAND_PATH_ROOM]);
/* No run's checkpoints are written over, or cleared away as old ones, by another run. */
sgl_status command_folder_free(sgl_vm *vm, const char *out);
bool command_folder_same(const char *a, const char *b);
/* Before anything is computed: a run of hours does not end with a folder that cannot be written. */
sgl_status command_folder_make(sgl_vm *vm, const char *out);

#endif
