/* job.h -- calling what the stdlib made of a job (stdlib/job): shared by job.c and feed.c.
 * Comes in: the name of one of its functions. Goes out: the call, ready on the stack. */
#ifndef SGLDSL_JOB_H
#define SGLDSL_JOB_H

#include "dsl/dsl.h"

/* Pushes the function of stdlib/job and the job; raises for a job that has no script. */
void sgldsl_push_job_call(lua_State *L, const char *function);

#endif
