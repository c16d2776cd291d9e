/* repl_program.c -- the commands of the REPL that look into a script: its graph, and the program that was frozen of it.
 *
 * Comes in: a repl with a script, a command's argument. Goes out: lines on stdout, made of the library's own reports (JSON,
 * vm/sgl.h). Odd invariant: the program is frozen when a command first asks for it, so that a script whose graph cannot be
 * frozen can still be looked at. */
#include <stdlib.h>
#include <string.h>

#include "dsl/command.h"
#include "dsl/repl.h"

/* ---- text ------------------------------------------------------------------------------------------------------- */

sgl_status repl_append(void *user, const char *data, size_t bytes)
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

sgl_status repl_need_script(const repl *r)
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

sgl_status repl_need_program(repl *r)
{
    sgl_status status = repl_need_script(r);
    if (status != SGL_OK || r->program) return status;
    repl_text text = { 0 };
    json_error_t error = { 0 };
    status = sgl_freeze(r->session, r->graph, r->plan, &r->program);
    if (status == SGL_OK) status = sgl_program_report(r->program, "program", "json", repl_append, &text);
    if (status == SGL_OK) {
        r->report = json_loads(text.data, 0, &error);
        if (!r->report)
            status = sgl_fail(r->vm, SGL_INTERNAL, "the report of the program cannot be read: %s", error.text);
    }
    free(text.data);
    if (status != SGL_OK) drop_program(r);
    return status;
}

sgl_status repl_use_graph(repl *r, const char *which)
{
    sgl_graph *graph = NULL;
    sgl_status status = sgl_job_graph(r->job, which, &graph);
    if (status == SGL_NOT_FOUND) return sgl_fail(r->vm, status, COMMAND_NO_GRAPH, r->script, which);
    if (status != SGL_OK) return status;
    sgl_plan *plan = NULL;
    status = command_plan(r->job, which, false, &plan);
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

sgl_status repl_list(repl *r, const char *argument)
{
    sgl_status status = repl_need_program(r);
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

sgl_status repl_search(repl *r, const char *argument)
{
    repl_text traced = { 0 };
    int found = 0, shown = 0;
    sgl_status status = repl_need_program(r);
    if (status == SGL_OK && !*argument) status = sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":search TEXT: what for?");
    if (status == SGL_OK) status = sgl_graph_print(r->session, r->graph, r->plan, "", "text", repl_append, &traced);
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

sgl_status repl_node(repl *r, const char *argument)
{
    char *end;
    long number = strtol(argument, &end, 10);
    if (end == argument || *end)
        return sgl_fail(r->vm, SGL_INVALID_ARGUMENT, ":node N: '%s' is no number; :list shows them", argument);
    sgl_status status = repl_need_program(r);
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
