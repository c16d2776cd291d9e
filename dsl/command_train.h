/* command_train.h -- a training run as `sgl train` and `sgl profile` ask for it.
 *
 * Comes in: options, read by either. Goes out: an exit code. A profile is a run of some steps that keeps nothing. */
#ifndef SGLDSL_COMMAND_TRAIN_H
#define SGLDSL_COMMAND_TRAIN_H

#include "dsl/command_ranks.h"

typedef struct command_train_options {
    int64_t steps, stop_at, save_every, keep, eval_every, threads, seed;
    command_settings settings, mesh; /* of --set; of --mesh */
    const char *data, *out, *resume, *init_from, *log, *device, *memory;
    bool quiet, trace_nan;
    int64_t measured;     /* so many steps are, after `unmeasured` ones, and their table is printed; 0: none */
    int64_t unmeasured;   /* that load kernels and warm the machine up; at least 1 */
    bool measured_only;   /* the run ends then, evaluates and saves nothing */
    sgl_machine machine;  /* what the table is held against; its bytes_per_s 0: it is measured */
    const char *timeline; /* a file for the last measured step; NULL: none */
    const char *format;   /* of the table: text, json */
    command_ranks ranks;
} command_train_options;

/* Of a script, its options read and checked: opens a VM, runs, closes it. */
int command_train_run(const char *script, const command_train_options *options);
/* "run.%r.log" to "run.3.log" of rank 3; a name without %r is rank 0's alone, "" of the others, and of NULL. LIMIT: it is too
 * long. */
sgl_status command_rank_path(sgl_vm *vm, const char *option, const char *name, int rank, char *path, size_t room);

#endif
