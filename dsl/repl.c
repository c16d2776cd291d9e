/* repl.c -- `sgl repl`: lines of Lua over tensors, and a look into the graph and the frozen program of a script.
 *
 * Comes in: lines, from a terminal (repl_line.c) or a pipe. Goes out: what they give. Lua and tensors are the console's
 * (console.h), lines that begin with ':' are commands, of this file and of repl_program.c.
 * Odd invariant: an error is printed and the next line is read: nothing that was defined before is lost. */
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsl/command.h"
#include "dsl/help.h"
#include "dsl/repl.h"

/* ---- the other commands ------------------------------------------------------------------------------------------------ */

static sgl_status run_graph(repl *r, const char *argument)
{
    sgl_status status = repl_need_script(r);
    return status == SGL_OK ? sgl_graph_print(r->session, r->graph, r->plan, argument, "text", command_write, stdout)
                            : status;
}

static sgl_status run_use(repl *r, const char *argument)
{
    sgl_status status = repl_need_script(r);
    if (status == SGL_OK) status = repl_use_graph(r, argument);
    if (status == SGL_OK) printf("looking at the graph '%s'\n", argument);
    return status;
}

static sgl_status run_params(repl *r, const char *argument)
{
    static const char *const roles[] = { "parameter", "state", "feed", "cache" };
    sgl_status status = repl_need_program(r);
    const char *name = "";
    for (int i = 0; status == SGL_OK && name; i++) {
        sgl_role role;
        sgl_type type;
        status = sgl_state_info(r->session, i, &name, &role, &type);
        if (status != SGL_OK || !name || !strstr(name, argument)) continue;
        printf("%-9s %-40s %s[", roles[role], name, sgl_dtype_name(type.dtype));
        for (int d = 0; d < type.rank; d++) printf(d ? ",%lld" : "%lld", (long long)type.dims[d]);
        printf("]\n");
    }
    return status;
}

static sgl_status run_memory(repl *r, const char *argument)
{
    (void)argument;
    sgl_status status = repl_need_program(r);
    return status == SGL_OK ? sgl_program_report(r->program, "memory", "text", command_write, stdout) : status;
}

static sgl_status run_help(repl *r, const char *argument);

static sgl_status run_quit(repl *r, const char *argument)
{
    (void)argument;
    r->left = true;
    return SGL_OK;
}

static const struct {
    const char *name, *argument, *help;
    sgl_status (*run)(repl *r, const char *argument);
} commands[] = {
    { ":graph", "[PASS]", "the graph as traced, after a pass, or after 'all'", run_graph },
    { ":list", "[TEXT]", "the instructions of the frozen program, those that hold TEXT", repl_list },
    { ":search", "TEXT", "the lines of graph and program that hold TEXT", repl_search },
    { ":node", "N", "instruction N: op, kernel, script line, shapes and places", repl_node },
    { ":params", "[TEXT]", "parameters and states, those whose name holds TEXT", run_params },
    { ":memory", "", "the bytes that the program needs", run_memory },
    { ":use", "NAME", "look at another graph: train, eval, decode, init, few, text, export", run_use },
    { ":help", "[NAME]", "this, or what NAME is: an op, nn.linear, optim.adamw; a list: ops, nn, optim, models",
      run_help },
    { ":quit", "", "leave; so does Ctrl-D", run_quit },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static sgl_status run_help(repl *r, const char *argument)
{
    if (*argument) return sgldsl_help(r->vm, argument, command_write, stdout);
    printf("a line of Lua is run, what it gives is shown; a tensor's elements are computed: sgl.iota({ 2, 3 }) * 2\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-8s %-7s %s\n", commands[i].name, commands[i].argument, commands[i].help);
    return SGL_OK;
}

const char *repl_command_name(int index) { return index >= 0 && index < COMMANDS ? commands[index].name : NULL; }

/* ":list attn" */
static sgl_status run_command(repl *r, const char *line)
{
    const char *names[COMMANDS];
    size_t length = strcspn(line, " \t");
    char name[32] = "";
    snprintf(name, sizeof name, "%.*s", (int)length, line);
    const char *argument = line + length + strspn(line + length, " \t");
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) != 0) continue;
        if (*argument && !*commands[i].argument)
            return sgl_fail(r->vm, SGL_INVALID_ARGUMENT, "%s takes no argument", name);
        return commands[i].run(r, argument);
    }
    const char *nearest = sgl_nearest(name, names, COMMANDS);
    return sgl_fail(r->vm, SGL_NOT_FOUND, "there is no command '%s'%s%s%s", name,
                    nearest ? "; did you mean '" : "; :help lists them", nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- lines -------------------------------------------------------------------------------------------------------------- */

static void report(repl *r, sgl_status status)
{
    if (fflush(stdout) != 0)
        r->left = true; /* main.c says why */
    else if (status != SGL_OK)
        fprintf(stderr, "%s\n", sgl_error_message(r->vm));
}

/* What is typed so far is run when it is whole. */
static sgl_status run_lua(repl *r, const char *line)
{
    bool incomplete = false;
    sgl_status status = repl_append(&r->typed, line, strlen(line));
    if (status == SGL_OK) status = repl_append(&r->typed, "\n", 1);
    if (status != SGL_OK)
        status = sgl_fail(r->vm, status, "no memory for the line");
    else
        status = sgldsl_console_run(r->job, r->typed.data, &incomplete, command_write, stdout);
    if (status == SGL_OK && !incomplete && !r->told_of_locals && strncmp(r->typed.data, "local ", 6) == 0) {
        fprintf(stderr, "(a local ends with its line: without the word `local` the next lines have it too)\n");
        r->told_of_locals = true;
    }
    if (!incomplete) r->typed.bytes = 0;
    return status;
}

static void run_line(repl *r, char *line)
{
    line[strcspn(line, "\r\n")] = 0;
    const char *start = line + strspn(line, " \t");
    if (r->typed.bytes == 0 && !*start) return;
    bool is_command = r->typed.bytes == 0 && *start == ':' && start[1] != ':'; /* "::" begins a label of Lua */
    report(r, is_command ? run_command(r, start) : run_lua(r, line));
}

static void read_pipe(repl *r)
{
    char *line = NULL;
    size_t capacity = 0;
    while (!r->left && getline(&line, &capacity, stdin) >= 0) run_line(r, line);
    free(line);
    if (r->typed.bytes > 0) fprintf(stderr, "the input ends within a statement: %s", r->typed.data);
}

static sgl_job *running;

static void on_signal(int number)
{
    (void)number;
    sgldsl_interrupt(running);
}

/* Ctrl-C ends what runs and, while a line is read, lets read(2) return, so that the line is given up. */
static void catch_signals(sgl_job *job)
{
    running = job;
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

static sgl_status read_terminal(repl *r)
{
    repl_line *input = NULL;
    char *line;
    sgl_status status = repl_line_open(r, &input);
    if (status != SGL_OK) return status;
    catch_signals(r->job);
    printf("sgl %s; :help tells more, Ctrl-D leaves\n", sgl_version());
    while (!r->left && (line = repl_line_read(input)) != NULL) run_line(r, line);
    signal(SIGINT, SIG_DFL);
    repl_line_close(input);
    return SGL_OK;
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */

static sgl_status open_script(repl *r, const command_settings *settings)
{
    sgl_status status = sgl_load_file(r->vm, r->script, settings->list, settings->count, &r->job);
    if (status == SGL_OK) status = sgl_session_new(r->vm, "cpu", &r->session);
    return status == SGL_OK ? repl_use_graph(r, "train") : status;
}

static int run(repl *r, const command_settings *settings)
{
    sgl_status status = r->script ? open_script(r, settings) : sgldsl_console_new(r->vm, &r->job);
    bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    if (status == SGL_OK && terminal)
        status = read_terminal(r);
    else if (status == SGL_OK)
        read_pipe(r);
    if (status != SGL_OK) return command_error(r->vm);
    return COMMAND_OK;
}

int command_repl(int argc, char **argv)
{
    command_settings settings = { 0 };
    int64_t threads = 0;
    const command_option options[] = {
        { "--set", 'k', &settings, "key=value", "a field of the script's sgl.config; any number of times" },
        { "--threads", 'i', &threads, "N", "compute threads (default: one per core)" },
        { 0 },
    };
    const command c = {
        "repl",
        "[SCRIPT]",
        "Evaluates lines of Lua; tensors are computed at once. With SCRIPT its graph can be looked at.",
        "Lines that begin with ':' are commands; :help lists them. Ctrl-C gives up the line or what runs, Ctrl-D\n"
        "leaves. Lines may come from a pipe too. On a terminal ~/.sgl_history keeps them.",
        0,
        1,
        options
    };
    const char *positional[1] = { NULL };
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    setlocale(LC_CTYPE, ""); /* for the editing of lines; numbers keep their dots */
    repl r = { .script = count > 0 ? positional[0] : NULL, .vm = command_open(threads, stdout) };
    if (!r.vm) return COMMAND_FAILED;
    code = run(&r, &settings);
    sgl_close(r.vm);
    json_decref(r.report);
    free(r.typed.data);
    return code;
}
