/* console.h -- what an interactive front end asks of a script's Lua state: run a line, complete a name.
 *
 * A console is a job in which a trace is always open, so that tensors made by one line can be used by the next. Comes in:
 * a line of Lua. Goes out: its values as text; a tensor's elements are computed on the CPU and printed. A job loaded from
 * a script can serve as a console too: its globals are there, and `job` is what it returned. */
#ifndef SGLDSL_CONSOLE_H
#define SGLDSL_CONSOLE_H

#include <stdbool.h>

#include "sgl.h"

/* A job without a script, with `sgl` as a global. Freed by sgl_job_free. */
sgl_status sgldsl_console_new(sgl_vm *vm, sgl_job **job);

/* Runs a line: as an expression where it is one, else as statements. What it yields is written, one value a line.
 * *incomplete (may be NULL) tells whether the line could go on: nothing was run then, nothing is written, and the status
 * is OK. `print` in the line goes to the VM's log. */
sgl_status sgldsl_console_run(sgl_job *job, const char *line, bool *incomplete, sgl_write_fn write, void *user);

/* Calls each(user, candidate) for every way to go on with the name that `text` ends in: text "y = sgl.nn.lin" gives
 * "sgl.nn.linear", text "x:ex" gives "x:exp". *start is where in `text` the name begins. */
sgl_status sgldsl_console_complete(sgl_job *job, const char *text, size_t *start,
                                   void (*each)(void *user, const char *candidate), void *user);

/* Ends the Lua that the job is running now, if any, with INTERRUPTED. Safe in a signal handler. */
void sgldsl_interrupt(sgl_job *job);

#endif
