/* main.c -- the `sgl` command: which subcommand, and the help that lists them.
 *
 * Comes in: argv. Goes out: an exit code. Each subcommand reads its own options; an unknown one is named with the nearest. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "dsl/command.h"
#include "dsl/help.h"

static int command_version(int argc, char **argv)
{
    const command_option options[] = { { 0 } };
    const command c = { "version", "", "Prints the version.", NULL, 0, 0, options };
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, NULL, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    printf("sgl %s\n", sgl_version());
    return COMMAND_OK;
}

static int command_help(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "train", command_train, "train the model of a script; checkpoints, evaluation, resume" },
    { "profile", command_profile,
      "where the time of a step goes: kernels by time, share of the machine's roof, a timeline" },
    { "eval", command_eval, "the held-out loss of a checkpoint" },
    { "generate", command_generate, "let a trained model go on with a text" },
    { "export", command_export, "write the parameters of a checkpoint as one file, adapters merged" },
    { "graph", command_graph, "print the graph of a script, after any pass" },
    { "plan", command_show_plan, "what a rank of a mesh holds and exchanges, before any is started" },
    { "memory", command_memory, "planned bytes by section, peak and lower bound, lifetimes drawn" },
    { "repl", command_repl, "evaluate expressions on tensors, look into the graph of a script" },
    { "doctor", command_doctor, "what this machine has, and every knob with its value" },
    { "version", command_version, "print the version" },
    { "help", command_help, "print this" },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* What scripts have of that name. */
static int print_topic(const char *name)
{
    sgl_vm *vm = command_open(1, stderr);
    if (!vm) return COMMAND_FAILED;
    int code = sgldsl_help(vm, name, command_write, stdout) == SGL_OK ? COMMAND_OK : command_error(vm);
    sgl_close(vm);
    return code;
}

static int command_help(int argc, char **argv)
{
    if (argc > 2)
        for (int i = 0; i < COMMANDS; i++)
            if (strcmp(argv[2], commands[i].name) == 0 && commands[i].run != command_help) {
                char *asked[] = { argv[0], argv[2], (char[]){ "--help" }, NULL };
                return commands[i].run(3, asked);
            }
    if (argc > 2 && argv[2][0] != '-' && strcmp(argv[2], "help") != 0) return print_topic(argv[2]);
    printf("sgl: an embeddable interpreter of a graph language\n\nusage: sgl COMMAND ...\n\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf(
        "\n`sgl COMMAND --help` tells a command's options; `sgl help ops`, nn, optim, models and data list what scripts have,\n"
        "`sgl help NAME` tells of one: sgl help nn.attention\n\n"
        "exit codes: 0 done; 1 failed, with the reason on stderr; 2 wrong usage; 3 found by train --trace-nan; 130, 143,\n"
        "138 stopped in order by Ctrl-C, SIGTERM, SIGUSR1, after saving; of several ranks that of the first that fails.\n");
    return COMMAND_OK;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        command_help(argc, argv);
        return COMMAND_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return command_help(1, argv);
    if (strcmp(name, "--version") == 0) return command_version(1, argv);
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc, argv);
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    const char *nearest = sgl_nearest(name, names, COMMANDS);
    fprintf(stderr, "sgl: there is no command '%s'", name);
    if (nearest) fprintf(stderr, "; did you mean '%s'?", nearest);
    fprintf(stderr, "%s `sgl help` lists them\n", nearest ? "" : ";");
    return COMMAND_USAGE;
}

/* Where one of the first three is closed, a checkpoint or a log would be opened in its place, and be written over by what is
 * printed. */
static bool open_standard_files(void)
{
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) == -1 && open("/dev/null", O_RDWR) != file) return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!open_standard_files()) return COMMAND_FAILED;
    int code = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "sgl: standard output: %s\n", strerror(errno ? errno : EIO));
    return code == COMMAND_OK ? COMMAND_FAILED : code;
}
