/* repl_line.c -- reading a line from a terminal: editing, history, completion, through libedit.
 *
 * Comes in: keys. Goes out: lines. Tab completes Lua names (by asking the console), commands and the names of passes.
 * ~/.sgl_history is written after each line, so that a session that ends badly loses nothing.
 * Odd invariant: Ctrl-C reaches us as a read(2) that was interrupted (repl.c's handler does nothing else here). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <histedit.h>

#include "dsl/repl.h"

enum { KEPT_LINES = 1000, MOST_CANDIDATES = 512, COLUMNS = 100 };

struct repl_line {
    repl *r;
    EditLine *edit;
    History *history;
    char history_path[4096]; /* "": not kept */
    char *line;
    /* Candidates of the completion at hand. */
    char *candidates[MOST_CANDIDATES];
    int count;
};

static char *prompt(EditLine *edit)
{
    static char fresh[] = "sgl> ", goes_on[] = "...> ";
    repl_line *input = NULL;
    el_get(edit, EL_CLIENTDATA, &input);
    return input->r->typed.bytes > 0 ? goes_on : fresh;
}

/* ---- completion ------------------------------------------------------------------------------------------------- */

static void add_candidate(void *user, const char *candidate)
{
    repl_line *input = user;
    if (input->count == MOST_CANDIDATES) return;
    char *copy = strdup(candidate);
    if (copy) input->candidates[input->count++] = copy;
}

static void drop_candidates(repl_line *input)
{
    while (input->count > 0) free(input->candidates[--input->count]);
}

static void add_matching(repl_line *input, const char *name, const char *typed)
{
    if (strncmp(name, typed, strlen(typed)) == 0) add_candidate(input, name);
}

/* ":gr" by commands, ":graph si" by passes, ":use d" by graphs. Returns where the word begins. */
static size_t complete_command(repl_line *input, const char *text)
{
    static const char *const graphs[] = { "train", "eval", "decode", "init" };
    const char *name, *word = strrchr(text, ' ');
    size_t start = word ? (size_t)(word + 1 - text) : 0;
    if (!word) {
        for (int i = 0; (name = repl_command_name(i)) != NULL; i++) add_matching(input, name, text);
    } else if (strncmp(text, ":graph ", 7) == 0) {
        for (int i = 0; (name = sgl_pass_name(i)) != NULL; i++) add_matching(input, name, text + start);
        add_matching(input, "all", text + start);
    } else if (strncmp(text, ":use ", 5) == 0) {
        for (int i = 0; i < 4; i++) add_matching(input, graphs[i], text + start);
    }
    return start;
}

/* By how many bytes all candidates agree beyond `typed` bytes. */
static size_t common_bytes(const repl_line *input, size_t typed)
{
    size_t length = strlen(input->candidates[0]);
    for (int i = 1; i < input->count; i++) {
        size_t same = typed;
        while (same < length && input->candidates[i][same] == input->candidates[0][same]) same++;
        length = same;
    }
    return length - typed;
}

/* The last part of a dotted name is enough to choose by. */
static const char *last_part(const char *candidate)
{
    const char *last = candidate;
    for (const char *p = candidate; *p; p++)
        if ((*p == '.' || *p == ':') && p[1] && p > candidate) last = p + 1;
    return last;
}

static void print_candidates(const repl_line *input)
{
    int column = 0;
    printf("\n");
    for (int i = 0; i < input->count; i++) {
        const char *part = last_part(input->candidates[i]);
        int width = (int)strlen(part) + 2;
        if (column > 0 && column + width > COLUMNS) {
            printf("\n");
            column = 0;
        }
        printf("%s  ", part);
        column += width;
    }
    printf("\n");
    fflush(stdout);
}

static unsigned char offer(repl_line *input, size_t typed)
{
    char piece[256];
    if (input->count == 0) return CC_ERROR;
    size_t more = common_bytes(input, typed);
    if (more == 0 && input->count == 1) return CC_NORM;
    if (more == 0) {
        print_candidates(input);
        return CC_REDISPLAY;
    }
    snprintf(piece, sizeof piece, "%.*s", (int)more, input->candidates[0] + typed);
    return el_insertstr(input->edit, piece) == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char complete(EditLine *edit, int key)
{
    (void)key;
    repl_line *input = NULL;
    el_get(edit, EL_CLIENTDATA, &input);
    const LineInfo *info = el_line(edit);
    size_t length = (size_t)(info->cursor - info->buffer), start = 0;
    char *text = strndup(info->buffer, length);
    if (!text) return CC_ERROR;
    if (text[0] == ':')
        start = complete_command(input, text);
    else
        (void)sgldsl_console_complete(input->r->job, text, &start, add_candidate, input);
    unsigned char result = offer(input, length - start);
    drop_candidates(input);
    free(text);
    return result;
}

/* ---- history ------------------------------------------------------------------------------------------------------ */

static void open_history(repl_line *input)
{
    HistEvent event;
    const char *home = getenv("HOME");
    history(input->history, &event, H_SETSIZE, KEPT_LINES);
    history(input->history, &event, H_SETUNIQUE, 1);
    if (!home || !*home) return;
    int length = snprintf(input->history_path, sizeof input->history_path, "%s/.sgl_history", home);
    if (length < 0 || length >= (int)sizeof input->history_path)
        input->history_path[0] = 0;
    else
        history(input->history, &event, H_LOAD, input->history_path);
}

static void keep(repl_line *input)
{
    HistEvent event;
    if (strspn(input->line, " \t\n") == strlen(input->line)) return;
    history(input->history, &event, H_ENTER, input->line);
    if (input->history_path[0]) history(input->history, &event, H_SAVE, input->history_path);
}

/* ---- lines ---------------------------------------------------------------------------------------------------------- */

sgl_status repl_line_open(repl *r, repl_line **input)
{
    repl_line *made = *input = calloc(1, sizeof *made);
    if (!made) return sgl_fail(r->vm, SGL_OUT_OF_MEMORY, "no memory for reading lines");
    made->r = r;
    made->edit = el_init("sgl", stdin, stdout, stderr);
    made->history = history_init();
    if (!made->edit || !made->history) {
        repl_line_close(made);
        return sgl_fail(r->vm, SGL_UNSUPPORTED,
                        "lines cannot be edited on this terminal; `sgl repl` reads them from a pipe, too");
    }
    open_history(made);
    el_set(made->edit, EL_CLIENTDATA, made);
    el_set(made->edit, EL_PROMPT, prompt);
    el_set(made->edit, EL_EDITOR, "emacs");
    el_set(made->edit, EL_HIST, history, made->history);
    el_set(made->edit, EL_ADDFN, "sgl-complete", "completes a name", complete);
    el_set(made->edit, EL_BIND, "\t", "sgl-complete", NULL);
    el_set(made->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(made->edit, NULL); /* ~/.editrc has the last word */
    return SGL_OK;
}

char *repl_line_read(repl_line *input)
{
    for (;;) {
        int bytes = 0;
        el_resize(input->edit);
        const char *line = el_gets(input->edit, &bytes);
        if (line && bytes > 0) {
            free(input->line);
            input->line = strndup(line, (size_t)bytes);
            if (input->line) keep(input);
            return input->line;
        }
        if (bytes >= 0 || errno != EINTR) break;
        input->r->typed.bytes = 0;
        el_reset(input->edit);
        printf("^C\n");
    }
    printf("\n");
    return NULL;
}

void repl_line_close(repl_line *input)
{
    if (input->edit) el_end(input->edit);
    if (input->history) history_end(input->history);
    free(input->line);
    free(input);
}
