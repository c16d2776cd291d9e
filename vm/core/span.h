/* span.h -- how long a part of a start took, told in the log.
 *
 * Comes in: when it began. Goes out: a line at level debug (`SGL_LOG=debug`): "12.3 ms: opening the device cuda". What lies
 * between a process's start and its first step is told by lines of this form, one a part, each when it ends; a part within
 * another is told before it. */
#ifndef SGLCORE_SPAN_H
#define SGLCORE_SPAN_H

#include "core/core.h"

/* begun_ns: by sglcore_now_ns. Keeps the env's message, allocates nothing. */
void sglcore_span(sglcore_env *env, int64_t begun_ns, const char *format, ...) SGL_PRINTF(3, 4);

#endif
