/* command_model.h -- the job of a checkpoint, for commands that need its folder alone: generate, eval.
 *
 * Comes in: a folder of checkpoints, or one of them; settings that go before those that it keeps. Goes out: its path, its meta,
 * the job that its meta's script and settings give. Odd invariant: the mesh of the run that wrote it is none of its settings:
 * a checkpoint is of no number of ranks. */
#ifndef SGLDSL_COMMAND_MODEL_H
#define SGLDSL_COMMAND_MODEL_H

#include <jansson.h>

#include "dsl/command.h"

typedef struct command_model {
    sgl_vm *vm;
    const char *path; /* of the checkpoint, owned by the VM */
    int64_t step;
    json_t *meta; /* the caller drops it with json_decref, also after a failure */
    sgl_job *job;
    bool meshed; /* its programs are those of one of several ranks */
} command_model;

/* Reads m->meta and loads m->job of the last checkpoint in `dir`; m->vm is given. more: NULL, or settings that win. */
sgl_status command_model_load(command_model *m, const char *dir, const command_settings *more);
/* Reads the checkpoint into the session: parameters alone, unless a program of it reads states too. Then all of it is read,
 * for which the session needs every state that there is: the train program brings them. */
sgl_status command_model_read(command_model *m, sgl_session *session);

#endif
