/* repl.c -- `sgl repl`: lines of Lua over tensors, and a look into the graph and the frozen program of a script.
 *
 * Comes in: lines, from a terminal (repl_line.c) or a pipe. Goes out: what they give. Lua and tensors are the console's
 * (console.h), lines that begin with ':' are commands of this file, which read the library's own reports. An error is
 * printed and the next line is read: nothing that was defined before is lost.
 * Odd invariant: the program is frozen when a command first asks for it, so that a script whose graph cannot be frozen can
 * still be looked at. */
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsl/command.h"
#include "dsl/help.h"
#include "dsl/repl.h"

/* ---- text ------------------------------------------------------------------------------------------------------- */

static sgl_status append(void *user, const char *data, size_t bytes)
{
    repl_text *text = user;
    if (text->bytes + bytes + 1 > text->capacity) {
        size_t capacity = 2 * (text->bytes + bytes + 1);
        char *moved = realloc(text->data, capacity);
        if (!moved) return SGL_OUT_OF_MEMORY;
        text->data = moved;
        text->capacity = capacity;
    }
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    text->data[text->bytes] = 0;
    return SGL_OK;
}

/* ---- what commands look at ---------------------------------------------------------------------------------------- */

static sgl_status need_script(const repl *r)
{
    return r->script ? SGL_OK : sgl_fail(r->vm, SGL_WRONG_STATE, "no script is loaded; `sgl repl SCRIPT` loads one");
}

static void drop_program(repl *r)
{
    sgl_program_free(r->program);
    json_decref(r->report);
    r->program = NULL;
    r->report = NULL;
}

static sgl_status need_program(repl *r)
{
    sgl_status status = need_script(r);
    if (status != SGL_OK || r->program) return status;
    repl_text text = { 0 };
    json_error_t error = { 0 };
    status = sgl_freeze(r->session, r->graph, r->plan, &r->program);
    if (status == SGL_OK) status = sgl_program_report(r->program, "program", "json", append, &text);
    if (status == SGL_OK) {
        r->report = json_loads(text.data, 0, &error);
        if (!r->report)
            status = sgl_fail(r->vm, SGL_INTERNAL, "the report of the program cannot be read: %s", error.text);
    }
    free(text.data);
    if (status != SGL_OK) drop_program(r);
    return status;
}

static sgl_status use_graph(repl *r, const char *which)
{
    sgl_graph *graph = NULL;
    sgl_status status = sgl_job_graph(r->job, which, &graph);
    if (status == SGL_NOT_FOUND)
        return sgl_fail(r->vm, status, "%s has no graph '%s'; there are init, train, eval and decode", r->script,
                        which);
    if (status != SGL_OK) return status;
    sgl_plan *plan = NULL;
    status = command_plan(r->job, which, &plan);
    if (status != SGL_OK) return status;
    drop_program(r);
    sgl_plan_free(r->plan);
    r->graph = graph;
    r->plan = plan;
    return SGL_OK;
}

/* ---- the frozen program ------------------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static long long number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* "fused kernel 3" */
static void put_name(FILE *to, const json_t *instruction)
{
    fprintf(to, "%s", text_of(instruction, "op"));
    if (json_is_integer(json_object_get(instruction, "kernel")))
        fprintf(to, " kernel %lld", number_of(instruction, "kernel"));
}

/* "llama.lua:42 blocks.0.attn (fuse)" */
static void put_origin(FILE *to, const char *before, const json_t *instruction)
{
    const char *scope = text_of(instruction, "scope"), *pass = text_of(instruction, "pass");
    fprintf(to, "%s%s:%lld", before, text_of(instruction, "file"), number_of(instruction, "line"));
    if (*scope) fprintf(to, " %s", scope);
    if (*pass) fprintf(to, " (%s)", pass);
}

/* "f32[4,8]@arena+64" */
static void put_place(FILE *to, const json_t *operand, const char *at)
{
    fprintf(to, "%s%s%s+%lld", text_of(operand, "type"), at, text_of(operand, "space"), number_of(operand, "offset"));
}

static void put_places(FILE *to, const json_t *operands)
{
    size_t i;
    json_t *operand;
    json_array_foreach(operands, i, operand)
    {
        fputc(' ', to);
        put_place(to, operand, "@");
    }
}

/* "   12  fused kernel 3 ARGUMENTS -> RESULTS  ; file:line scope (pass)"; the short form leaves the arguments out. Freed by the
 * caller; NULL without memory. */
static char *line_of(const json_t *instruction, bool whole)
{
    char *line = NULL;
    size_t bytes;
    FILE *to = open_memstream(&line, &bytes);
    if (!to) return NULL;
    fprintf(to, "%5lld  ", number_of(instruction, "number"));
    put_name(to, instruction);
    if (whole) put_places(to, json_object_get(instruction, "arguments"));
    if (json_array_size(json_object_get(instruction, "results")) > 0) fprintf(to, " ->");
    put_places(to, json_object_get(instruction, "results"));
    put_origin(to, "  ; ", instruction);
    return fclose(to) == 0 ? line : NULL;
}

/* Prints the instructions whose line holds the text, in short or as a whole; *shown: how many. */
static sgl_status print_instructions(repl *r, const char *what, bool whole, int *shown)
{
    size_t i;
    json_t *instruction;
    *shown = 0;
    json_array_foreach(json_object_get(r->report, "instructions"), i, instruction)
    {
        char *line = line_of(instruction, true), *shorter = line_of(instruction, false);
        bool made = line && shorter, holds = made && strstr(line, what);
        if (holds) printf("%s\n", whole ? line : shorter);
        *shown += holds;
        free(line);
        free(shorter);
        if (!made) return sgl_fail(r->vm, SGL_OUT_OF_MEMORY, "no memory for a line");
    }
    return SGL_OK;
}

static sgl_status run_list(repl *r, const char *argument)
{
    sgl_status status = need_program(r);
    int shown = 0;
    if (status == SGL_OK) status = print_instructions(r, argument, false, &shown);
    if (status == SGL_OK && !shown)
        return sgl_fail(r->vm, SGL_NOT_FOUND, ":list: no instruction of the program holds '%s'", argument);
    return status;
}

/* Feeds, fetches and states whose name holds the text. */
static int print_ports(const repl *r, const char *what)
{
    static const char *const lists[] = { "feeds", "fetches", "states" }, *const nouns[] = { "feed", "fetch", "state" };
    int shown = 0;
    for (int k = 0; k < 3; k++) {
        size_t i;
        json_t *port;
        json_array_foreach(json_object_get(r->report, lists[k]), i, port)
        {
            if (!strstr(text_of(port, "name"), what)) continue;
            printf("       %s \"%s\" ", nouns[k], text_of(port, "name"));
            put_place(stdout, port, " at ");
            printf("\n");
            shown++;
        }
    }
    return shown;
}

static const char *find(const char *from, const char *end, const char *what)
{
    size_t length = strlen(what);
    for (; from + length <= end; from++)
        if (memcmp(from, what, length) == 0) return from;
    return end;
}

/* The lines of a text that hold what is looked for, under a title. */
static int print_matches(const char *title, const char *text, const char *what)
{
    int found = 0;
    while (text && *text) {
        const char *end = strchr(text, '\n');
        if (!end) end = text + strlen(text);
        if (find(text, end, what) != end) {
            if (!found++) printf("%s\n", title);
            printf("%.*s\n", (int)(end - text), text);
        }
        text = *end ? end + 1 : end;
    }
    return found;
}

static sgl_status run_search(repl *r, const char *argument)
{
    repl_text traced = { 0 };
    int found = 0, shown = 0;
    sgl_status status = need_program(r);
    if (status == SGL_OK && !*argument) status = sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":search TEXT: what for?");
    if (status == SGL_OK) status = sgl_graph_print(r->session, r->graph, r->plan, "", "text", append, &traced);
    if (status == SGL_OK) {
        found = print_matches("graph, as traced", traced.data, argument);
        printf("program\n");
        found += print_ports(r, argument);
        status = print_instructions(r, argument, true, &shown);
    }
    free(traced.data);
    if (status != SGL_OK || found + shown > 0) return status;
    return sgl_fail(r->vm, SGL_NOT_FOUND, ":search: '%s' is neither in the graph nor in the program", argument);
}

static void print_operands(const char *title, const json_t *operands)
{
    size_t i;
    json_t *operand;
    json_array_foreach(operands, i, operand)
    {
        printf("  %-8s %-24s at %s+%lld\n", i == 0 ? title : "", text_of(operand, "type"), text_of(operand, "space"),
               number_of(operand, "offset"));
    }
}

static void print_node(const repl *r, const json_t *instruction)
{
    const json_t *work = json_object_get(instruction, "work"), *kernel = json_object_get(instruction, "kernel");
    printf("%lld  ", number_of(instruction, "number"));
    put_name(stdout, instruction);
    put_origin(stdout, "\n  line     ", instruction);
    printf("\n");
    print_operands("reads", json_object_get(instruction, "arguments"));
    print_operands("writes", json_object_get(instruction, "results"));
    if (json_is_object(work))
        printf("  %-8s %lld bytes at arena+%lld\n", "work", number_of(work, "bytes"), number_of(work, "offset"));
    if (json_is_integer(kernel))
        printf("%s\n", json_string_value(
                           json_array_get(json_object_get(r->report, "kernels"), (size_t)json_integer_value(kernel))));
}

static sgl_status run_node(repl *r, const char *argument)
{
    char *end;
    long number = strtol(argument, &end, 10);
    if (end == argument || *end)
        return sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":node N: '%s' is no number; :list shows them", argument);
    sgl_status status = need_program(r);
    if (status != SGL_OK) return status;
    size_t i;
    json_t *instruction;
    json_array_foreach(json_object_get(r->report, "instructions"), i, instruction)
    {
        if (number_of(instruction, "number") != number) continue;
        print_node(r, instruction);
        return SGL_OK;
    }
    return sgl_fail(r->vm, SGL_NOT_FOUND, ":node: the program has no instruction %ld", number);
}

/* ---- the other commands ------------------------------------------------------------------------------------------------ */

static sgl_status run_graph(repl *r, const char *argument)
{
    sgl_status status = need_script(r);
    return status == SGL_OK ? sgl_graph_print(r->session, r->graph, r->plan, argument, "text", command_write, stdout)
                            : status;
}

static sgl_status run_use(repl *r, const char *argument)
{
    sgl_status status = need_script(r);
    if (status == SGL_OK) status = use_graph(r, argument);
    if (status == SGL_OK) printf("looking at the graph '%s'\n", argument);
    return status;
}

static sgl_status run_params(repl *r, const char *argument)
{
    static const char *const roles[] = { "parameter", "state", "feed", "cache" };
    sgl_status status = need_program(r);
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
    sgl_status status = need_program(r);
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
    { ":list", "[TEXT]", "the instructions of the frozen program, those that hold TEXT", run_list },
    { ":search", "TEXT", "the lines of graph and program that hold TEXT", run_search },
    { ":node", "N", "instruction N: op, kernel, script line, shapes and places", run_node },
    { ":params", "[TEXT]", "parameters and states, those whose name holds TEXT", run_params },
    { ":memory", "", "the bytes that the program needs", run_memory },
    { ":use", "NAME", "look at another graph: train, eval, decode, init", run_use },
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
    sgl_status status = append(&r->typed, line, strlen(line));
    if (status == SGL_OK) status = append(&r->typed, "\n", 1);
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
    return status == SGL_OK ? use_graph(r, "train") : status;
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
