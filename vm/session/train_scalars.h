/* train_scalars.h -- the numbers that a training run tells: rank-0 fetches of its programs, as doubles.
 *
 * In: the program that names them, and those that are stepped: of another bucket they have the same fetches. Out: what
 * a record of a step or an evaluation points at. Odd invariant: room is made once, before the first step. */
#ifndef SGLSESSION_TRAIN_SCALARS_H
#define SGLSESSION_TRAIN_SCALARS_H

#include "session/session.h"

typedef struct sglsession_scalars {
    int count;
    const char **names; /* as they are told: without the prefix of what an evaluation tells besides its loss */
    double *values;
    bool of_eval;
} sglsession_scalars;

/* Of a step all that are of rank 0, of an evaluation those that a script has logged. None on a device that computes
 * nothing: zeros are no loss. To be freed in any case. */
sgl_status sglsession_scalars_find(const sgl_program *program, bool of_eval, sglsession_scalars *scalars);
void sglsession_scalars_free(sglcore_env *env, sglsession_scalars *scalars);
/* The values of the program's last step. */
sgl_status sglsession_scalars_read(sglsession_scalars *scalars, sgl_program *program);
/* Adds those of one batch, each as often as it has targets. */
sgl_status sglsession_scalars_add(sglsession_scalars *scalars, sgl_program *program, double targets);
/* UNSUPPORTED: its dtype is none that a script's numbers have. */
sgl_status sglsession_fetch_scalar(sgl_program *program, const char *name, double *value);

#endif
