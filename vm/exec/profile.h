/* profile.h -- what a replay has measured: launches and time of each instruction of one program.
 *
 * Comes in: times from replay, which writes them in place. Goes out: JSON or text. While a profile is kept each instruction
 * waits for the device, so that its time is its own; a step then takes longer than one that is not measured. */
#ifndef SGLEXEC_PROFILE_H
#define SGLEXEC_PROFILE_H

#include "exec/program.h"

typedef struct sglexec_spent {
    int64_t launches, ns;
} sglexec_spent;

typedef struct sglexec_profile {
    const sglexec_program *program;
    sglexec_spent *spent; /* one per instruction; control's stays 0 */
    size_t bytes;         /* of spent */
    int64_t replays;      /* whole ones */
} sglexec_profile;

/* For a program that outlives it. */
sgl_status sglexec_profile_new(const sglexec_program *program, sglexec_profile **profile);
void sglexec_profile_free(sglexec_profile *profile); /* NULL is allowed */
/* Of the shape that sgl.h tells at sgl_program_profile. */
sgl_status sglexec_profile_json(const sglexec_profile *profile, sglcore_text *text);
/* Two tables: the costliest kernels, the costliest instructions. */
sgl_status sglexec_profile_print(const sglexec_profile *profile, sglcore_text *text);

#endif
