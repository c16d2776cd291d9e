/* command.h -- what the subcommands of `sgl` share: options, exit codes, opening a VM, reporting an error.
 *
 * The command is a host like any other: it knows sgl.h alone. Only here, in main.c, command_*.c and repl.c, is anything
 * printed or the process ended. */
#ifndef SGLDSL_COMMAND_H
#define SGLDSL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vm/sgl.h"

/* Exit codes, printed by `sgl help`; 128 + signal after a run that a signal stopped in order. */
enum { COMMAND_OK = 0, COMMAND_FAILED = 1, COMMAND_USAGE = 2, COMMAND_NOT_FINITE = 3 };

enum { COMMAND_SETTINGS = 256 };

typedef struct command_settings {
    sgl_setting list[COMMAND_SETTINGS]; /* key and value point into argv, or into `text` */
    int count;
    char text[8192]; /* the keys, cut off at '=' */
    size_t used;
} command_settings;

/* One option of a subcommand. kind: 'b' flag (bool), 'i' integer from 0 on (int64_t), 'p' from 1 on, 'n' number (double), 'q' one above 0,
 * 's' text (const char *), 't' one that is given once, 'o' text that may be left out (const char *; "" when it is), 'k' key=value, any number of times (command_settings). */
typedef struct command_option {
    const char *name; /* "--steps" */
    char kind;
    void *into;
    const char *value; /* what stands for the value in the help: "N" */
    const char *help;
} command_option;

typedef struct command {
    const char *name;
    const char *arguments;         /* "SCRIPT" */
    const char *help;              /* a line */
    const char *more;              /* further help, or NULL */
    int least, most;               /* positional arguments */
    const command_option *options; /* the last has a NULL name */
} command;

/* Reads argv[2..] of the subcommand. Returns COMMAND_OK, or an exit code after having said why; --help prints the help,
 * sets *helped and returns COMMAND_OK. */
int command_parse(const command *c, int argc, char **argv, const char **positional, int *count, bool *helped);
/* Prints "sgl NAME: ..." and gives COMMAND_USAGE. */
int command_usage(const command *c, const char *format, ...) SGL_PRINTF(2, 3);
/* Adds a setting; false (and a message) when there are too many. */
bool command_set(command_settings *settings, const char *key, const char *value);
/* The first `kept` settings are a checkpoint's: of its fields of the plan, where none behind them says otherwise, nobody is
 * told any more that the mesh makes nothing of them. */
bool command_mark_kept(command_settings *settings, int kept);

/* The rates of --machine, "tflops=400,gbytes_s=3000,latency_us=10,gbps=400"; COMMAND_OK, or an exit code after having said why. */
int command_machine(const command *c, const char *text, sgl_machine *machine);

/* Opens a VM. What a script prints goes to `prints`, warnings and errors to stderr. NULL after having said why. */
sgl_vm *command_open(int64_t threads, FILE *prints);
/* The job's plan for one of its graphs: micro-batches are for graphs that have a batch, train and eval, and so are bf16 and
 * fp16: to generate is to read each weight once, which a cast would not make faster, and what goes token by token is
 * compared with what reads several at once (sgl_generate_agrees), which narrow sums would tell apart. Not `meshed`: as one rank
 * computes the whole of it. */
sgl_status command_plan(sgl_job *job, const char *which, bool meshed, sgl_plan **plan);
bool command_has_batch(const char *which);
/* Of NOT_FOUND from sgl_job_graph: the script, the name of the graph. */
#define COMMAND_NO_GRAPH "%s: the job has no graph '%s'; eval needs a loss, decode, few and text a context"
/* Prints "sgl: MESSAGE" of the VM's last failure and gives the exit code. */
int command_error(const sgl_vm *vm);
/* The exit code of a command that has ended so; it was told why (command_error), or which signal stopped it. */
int command_status(const sgl_vm *vm, sgl_status status);
sgl_status command_write(void *user, const char *data, size_t bytes); /* an sgl_write_fn to the FILE * user */

/* From now on Ctrl-C, SIGTERM and SIGUSR1 stop what runs on the VM, with INTERRUPTED: the first after the step at hand, the second
 * within it. The exit code of a command that such a signal has stopped. */
void command_signals(sgl_vm *vm);
int command_signal_status(void);

int command_train(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_export(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_graph(int argc, char **argv);
int command_memory(int argc, char **argv);
int command_show_plan(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_repl(int argc, char **argv);

#endif
