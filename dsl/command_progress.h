/* command_progress.h -- how a training run is told: a bar on a terminal, plain lines when piped, JSON lines in a file.
 *
 * Comes in: step records, evaluations, saves. Goes out: text. The log holds every number with 17 digits, so that two runs
 * can be compared bit for bit. */
#ifndef SGLDSL_COMMAND_PROGRESS_H
#define SGLDSL_COMMAND_PROGRESS_H

#include "dsl/command.h"

typedef struct command_progress {
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
    FILE *log;
    const char *log_path;
    bool quiet, terminal, line_open;
    int64_t first_step, last_step, every; /* plain lines: every so many steps */
    double peak_flops;                    /* 0: not measured yet */
    double started_s;
    int64_t saved_step;  /* of the last checkpoint */
    int64_t lost_step;   /* the first whose loss or gradient norm is no finite number, 0: none */
    bool counts_targets; /* the held-out loss is a mean over targets, not over batches */
    double last_loss, eval_loss;
    bool has_loss, has_eval, saved;
    double steady_ms, steady_tokens, steady_flops; /* of a step, moving means */
} command_progress;

/* A run that goes on continues its log behind the lines of config's start_step. */
sgl_status command_progress_begin(command_progress *p, sgl_vm *vm, sgl_session *session, const sgl_train_config *config,
                                  const char *log, bool quiet);
sgl_status command_progress_step(command_progress *p, const sgl_step_record *record);
sgl_status command_progress_eval(command_progress *p, int64_t step, double loss, int64_t count);
sgl_status command_progress_save(command_progress *p, int64_t step, const char *path);
void command_progress_end(command_progress *p);
/* The last lines: held-out loss, and beside it byte models of order 2 and 3 where the data are bytes. */
void command_progress_summary(command_progress *p, sgl_tokens *tokens, const char *out);
void command_progress_close(command_progress *p);

#endif
