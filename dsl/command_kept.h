/* command_kept.h -- what a run takes over of a checkpoint: settings, and parameters; and why it cannot.
 *
 * Comes in: a checkpoint's meta, the settings and the script of now. Goes out: settings, parameters in the session, a message
 * that says what is another one than it was. */
#ifndef SGLDSL_COMMAND_KEPT_H
#define SGLDSL_COMMAND_KEPT_H

#include <jansson.h>

#include "dsl/command_folder.h"

typedef struct command_kept {
    char from[COMMAND_PATH_ROOM]; /* the checkpoint, "": none */
    json_t *meta;                 /* its meta, whose settings are in use; NULL: none */
} command_kept;

/* Adds the settings of the run that goes on, without the texts of modules: they are read from their files again; and without
 * its mesh: a checkpoint is of no number of ranks. */
sgl_status command_kept_settings(sgl_vm *vm, const command_kept *kept, command_settings *settings);
/* A run that goes on with other settings than it began with is another run: that is allowed, and said. */
void command_kept_changes(const command_kept *kept, const command_settings *now);
/* Behind the reason `status` why a run cannot go on: that its checkpoint is of another script, if it is. job NULL: the script
 * did not load. */
sgl_status command_kept_script(sgl_vm *vm, const command_kept *kept, const char *script, sgl_job *job,
                               sgl_status status);
/* --init-from: a folder of checkpoints, a checkpoint, a file in one, or a safetensors file by itself. */
sgl_status command_parameters(sgl_session *session, sgl_vm *vm, const char *from);

#endif
