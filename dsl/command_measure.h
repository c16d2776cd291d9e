/* command_measure.h -- steps of a run that are measured, and the table and the timeline that tell of them.
 *
 * Comes in: options, the run's program, its steps as they end. Goes out: what `sgl train --profile` and `sgl profile` print, and
 * the file of --timeline. Steps behind those that are measured are as quick as ever. */
#ifndef SGLDSL_COMMAND_MEASURE_H
#define SGLDSL_COMMAND_MEASURE_H

#include "dsl/command_progress.h"
#include "dsl/command_train.h"

#define COMMAND_MEASURE_OPTIONS(o, machine)                                                                                \
    {                                                                                                                      \
        "--timeline", 's', &(o).timeline, "FILE",                                                                          \
        "write the last measured step for Perfetto (ui.perfetto.dev); of several ranks that of rank 0, or with %r of each" \
    },                                                                                                                     \
    {                                                                                                                      \
        "--machine", 's', &(machine), "RATES",                                                                             \
            "tflops=N,narrow_tflops=N,gbytes_s=N: hold kernels against these; default: measured on this machine"           \
    }

typedef struct command_measure {
    const command_train_options *o;
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
    sgl_machine machine;
    FILE *timeline;
    int64_t from, until; /* steps; until 0: nothing is measured, or it was told */
} command_measure;

/* Before anything of the run is in the device's memory. */
sgl_status command_measure_begin(command_measure *m, const command_train_options *o, sgl_session *session,
                                 sgl_program *program, int64_t start_step);
/* After a step: what is due now is begun, or told. */
sgl_status command_measure_step(command_measure *m, command_progress *progress, int64_t step);
/* After the last one: tells what was not told. */
sgl_status command_measure_end(command_measure *m, command_progress *progress);
void command_measure_close(command_measure *m); /* of what never began, too */

#endif
