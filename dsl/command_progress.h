/* command_progress.h -- how a training run is told: a bar on a terminal, plain lines when piped, JSON lines in a file.
 *
 * Comes in: step records, evaluations, saves. Goes out: text. The log holds every number with 17 digits, so that two runs
 * can be compared bit for bit. */
#ifndef SGLDSL_COMMAND_PROGRESS_H
#define SGLDSL_COMMAND_PROGRESS_H

#include <jansson.h>

#include "dsl/command.h"

/* What a held-out loss is a mean over, and how that is told. */
typedef struct command_mean {
    const char *over;    /* "tokens", "targets" or "batches" */
    const char *in_nats; /* " nats per token", "" where the data are no tokens */
    const char *count;   /* the key of a JSON line: "eval_tokens", ... */
    bool is_of_tokens, is_of_bytes;
} command_mean;

/* Of a job whose loss has been traced. */
command_mean command_mean_of(sgl_job *job);
/* Numbers that are no numbers in JSON, infinite ones and NaN, stand there as texts. */
json_t *command_number(double value);
/* The logged numbers of an evaluation as members "eval_NAME". */
void command_add_logged(json_t *object, int count, const char *const *names, const double *values);

enum { COMMAND_LOG_ROOM = 4096 };

/* How it is to be told. */
typedef struct command_told {
    const char *log; /* NULL: none; with "%r" a file for each rank */
    bool quiet;
    int64_t columns; /* of the bar, 0: lines instead, -1: as stdout has */
    int rank;        /* of several; any but 0 is quiet, and logs where there is a file for it */
} command_told;

typedef struct command_progress {
    sgl_vm *vm;
    sgl_session *session;
    sgl_program *program;
    FILE *log;
    char log_path[COMMAND_LOG_ROOM];
    int columns; /* 0: as the terminal has */
    int rank;    /* of several */
    bool quiet, terminal, line_open;
    int64_t first_step, last_step, every; /* plain lines: every so many steps */
    double peak_flops;                    /* 0: not measured yet */
    double started_s;
    int64_t saved_step; /* of the last checkpoint */
    int64_t lost_step;  /* the first whose loss or gradient norm is no finite number, 0: none */
    command_mean mean;
    double last_loss, eval_loss;
    bool has_loss, has_eval, saved;
    double steady_ms, steady_tokens, steady_flops; /* of a step, moving means */
} command_progress;

/* A run that goes on continues its log behind the lines of config's start_step. */
sgl_status command_progress_begin(command_progress *p, sgl_vm *vm, sgl_session *session, const sgl_train_config *config,
                                  const command_told *told);
sgl_status command_progress_step(command_progress *p, const sgl_step_record *record);
sgl_status command_progress_eval(command_progress *p, const sgl_eval_record *record);
sgl_status command_progress_save(command_progress *p, int64_t step, const char *path);
void command_progress_end(command_progress *p);
/* The last lines: held-out loss, and beside it byte models of order 2 and 3 where the data are bytes. */
void command_progress_summary(command_progress *p, sgl_tokens *tokens, const char *out);
void command_progress_close(command_progress *p);

#endif
