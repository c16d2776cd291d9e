/* span.c -- a line of the log for a part of a start. In and out: span.h. */
#include "core/span.h"

#include <stdio.h>

void sglcore_span(sglcore_env *env, int64_t begun_ns, const char *format, ...)
{
    char what[256];
    va_list arguments;
    const double ms = (double)(sglcore_now_ns() - begun_ns) / 1e6;
    va_start(arguments, format);
    const int length = sglcore_format(what, sizeof what, format, arguments);
    va_end(arguments);
    sglcore_log(env, SGL_LOG_DEBUG, "%.1f ms: %s", ms, length < 0 ? "something without a name" : what);
}
