/* repl.h -- what the parts of the REPL share: repl.c runs lines, repl_line.c reads them from a terminal, repl_program.c has
 * the commands that look into a script.
 *
 * A line reader comes in as a repl whose job and session answer what can be completed. Goes out: one line after another,
 * NULL at the end of the input. */
#ifndef SGLDSL_REPL_H
#define SGLDSL_REPL_H

#include <jansson.h>

#include "dsl/console.h"

typedef struct repl_text {
    char *data; /* NULL, or ended by a zero byte */
    size_t bytes, capacity;
} repl_text;

typedef struct repl {
    sgl_vm *vm;
    sgl_job *job;       /* of the script, or a console without one */
    const char *script; /* NULL: none */
    sgl_plan *plan;
    sgl_session *session;
    sgl_graph *graph;     /* the one that is looked at */
    sgl_program *program; /* of it, NULL: not frozen yet */
    json_t *report;       /* its report, as sgl.h describes it */
    repl_text typed;      /* lines of a statement that is not whole yet */
    bool told_of_locals;
    bool left;
} repl;

/* repl_program.c. append: an sgl_write_fn to a repl_text. need_: WRONG_STATE without a script; program: and it is frozen. */
sgl_status repl_append(void *user, const char *data, size_t bytes);
sgl_status repl_need_script(const repl *r);
sgl_status repl_need_program(repl *r);
sgl_status repl_use_graph(repl *r, const char *which);
/* The commands :list, :search and :node. */
sgl_status repl_list(repl *r, const char *argument);
sgl_status repl_search(repl *r, const char *argument);
sgl_status repl_node(repl *r, const char *argument);

/* The names of the commands, ":list" ...; NULL past the end. */
const char *repl_command_name(int index);

typedef struct repl_line repl_line;
sgl_status repl_line_open(repl *r, repl_line **input);
/* The next line, valid until the next call. Ctrl-C gives up what is typed and begins a line anew. NULL at Ctrl-D. */
char *repl_line_read(repl_line *input);
void repl_line_close(repl_line *input);

#endif
