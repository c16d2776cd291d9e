/* report.h -- the pieces of reports that stand in files of their own.
 *
 * Comes in: a frozen program. Goes out: text or JSON. */
#ifndef SGLSESSION_REPORT_H
#define SGLSESSION_REPORT_H

#include "session/session.h"

const char *sglsession_grouped(int64_t number, char text[32]); /* "12,345,678" */
/* A line for each parameter, state and cache, or section of them, of a placed graph. */
sgl_status sglsession_text_of_states(sglcore_env *env, const sglir_graph *g, sglcore_text *text);
/* What one rank of the program's mesh holds and exchanges; plan_report.c. */
sgl_status sglsession_report_plan(const sgl_program *program, const char *format, sglcore_text *text);

#endif
