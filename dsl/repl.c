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

static sgl_status need_program(repl *r)
{
    sgl_status status = need_script(r);
    if (status != SGL_OK || r->program) return status;
    status = sgl_freeze(r->session, r->graph, r->plan, &r->program);
    return status == SGL_OK ? sgl_program_report(r->program, "program", "text", append, &r->listing) : status;
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
    sgl_program_free(r->program);
    sgl_plan_free(r->plan);
    r->program = NULL;
    r->listing.bytes = 0;
    r->graph = graph;
    r->plan = plan;
    return SGL_OK;
}

/* ---- lines of the frozen program ------------------------------------------------------------------------------------ */

/* A line of the listing: "   12  fused kernel 3 ARGUMENTS -> RESULTS work 64@arena+0  ; file:line scope (pass)" */
typedef struct program_line {
    const char *start, *end;
    const char *name, *name_end; /* "fused kernel 3" */
    const char *operands;
    const char *origin; /* "; ...", or end */
    long number;        /* -1: no instruction */
} program_line;

static const char *find(const char *from, const char *end, const char *what)
{
    size_t length = strlen(what);
    for (; from + length <= end; from++)
        if (memcmp(from, what, length) == 0) return from;
    return end;
}

/* Takes the next line; false past the last. */
static bool next_line(const char **at, program_line *line)
{
    if (!*at || !**at) return false;
    line->start = *at;
    line->end = strchr(*at, '\n');
    if (!line->end) line->end = line->start + strlen(line->start);
    *at = *line->end ? line->end + 1 : line->end;
    char *after;
    line->number = strtol(line->start, &after, 10);
    if (after == line->start || strncmp(after, "  ", 2) != 0) line->number = -1;
    line->origin = find(line->start, line->end, "  ; ");
    line->name = line->number < 0 ? line->start : after + 2;
    line->name_end = line->name;
    while (line->name_end < line->origin) { /* the name ends where the first operand, which has an '@', begins */
        const char *word_end = line->name_end + 1;
        while (word_end < line->origin && *word_end != ' ') word_end++;
        if (memchr(line->name_end, '@', (size_t)(word_end - line->name_end)) || strncmp(line->name_end, " ->", 3) == 0)
            break;
        line->name_end = word_end;
    }
    line->operands = line->name_end;
    return true;
}

static void print_short(const program_line *line)
{
    const char *results = find(line->operands, line->origin, " -> ");
    printf("%5ld  %.*s%.*s%.*s\n", line->number, (int)(line->name_end - line->name), line->name,
           (int)(line->origin - results), results, (int)(line->end - line->origin), line->origin);
}

static sgl_status run_list(repl *r, const char *argument)
{
    sgl_status status = need_program(r);
    program_line line;
    int shown = 0;
    for (const char *at = r->listing.data; status == SGL_OK && next_line(&at, &line);) {
        if (line.number < 0 || (*argument && find(line.start, line.end, argument) == line.end)) continue;
        print_short(&line);
        shown++;
    }
    if (status == SGL_OK && !shown)
        return sgl_fail(r->vm, SGL_NOT_FOUND, ":list: no instruction of the program holds '%s'", argument);
    return status;
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
    sgl_status status = need_program(r);
    if (status == SGL_OK && !*argument) status = sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":search TEXT: what for?");
    if (status == SGL_OK) status = sgl_graph_print(r->session, r->graph, r->plan, "", "text", append, &traced);
    if (status == SGL_OK) {
        int found = print_matches("graph, as traced", traced.data, argument);
        found += print_matches("program", r->listing.data, argument);
        if (!found)
            status =
                sgl_fail(r->vm, SGL_NOT_FOUND, ":search: '%s' is neither in the graph nor in the program", argument);
    }
    free(traced.data);
    return status;
}

/* "f32[4,8]@arena+64 f32[8]@state+0" under each other, slots apart. */
static void print_operands(const char *title, const char *at, const char *end)
{
    while (at < end) {
        while (at < end && *at == ' ') at++;
        const char *word_end = at;
        while (word_end < end && *word_end != ' ') word_end++;
        const char *slot = find(at, word_end, "@");
        if (slot < word_end)
            printf("  %-8s %-24.*s at %.*s\n", title, (int)(slot - at), at, (int)(word_end - slot - 1), slot + 1);
        at = word_end;
        title = "";
    }
}

static void print_node(const program_line *line)
{
    const char *results = find(line->operands, line->origin, " -> ");
    const char *work = find(results, line->origin, " work ");
    const char *at = line->origin < line->end ? line->origin + 4 : line->end;
    printf("%ld  %.*s\n", line->number, (int)(line->name_end - line->name), line->name);
    printf("  %-8s %.*s\n", "line", (int)(line->end - at), at);
    print_operands("reads", line->operands, results);
    if (results < work) print_operands("writes", results + 4, work);
    if (work < line->origin) printf("  %-8s %.*s\n", "work", (int)(line->origin - work - 6), work + 6);
}

static sgl_status run_node(repl *r, const char *argument)
{
    char *end;
    long number = strtol(argument, &end, 10);
    if (end == argument || *end)
        return sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":node N: '%s' is no number; :list shows them", argument);
    sgl_status status = need_program(r);
    program_line line;
    for (const char *at = r->listing.data; status == SGL_OK && next_line(&at, &line);) {
        if (line.number != number) continue;
        print_node(&line);
        return SGL_OK;
    }
    return status == SGL_OK ? sgl_fail(r->vm, SGL_NOT_FOUND, ":node: the program has no instruction %ld", number)
                            : status;
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
    { ":help", "", "this", run_help },
    { ":quit", "", "leave; so does Ctrl-D", run_quit },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static sgl_status run_help(repl *r, const char *argument)
{
    (void)r;
    (void)argument;
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
    free(r.listing.data);
    free(r.typed.data);
    return code;
}
