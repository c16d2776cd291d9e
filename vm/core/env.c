/* env.c -- the environment: who allocates, who listens, what failed last, what time it is.
 *
 * In: the host's callbacks. Out: recorded messages and log lines. Recording a failure allocates nothing, so that it
 * works when memory has run out; a message too long for its place is cut at a character and ends in "...". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/core.h"
#include "core/io.h"

static void *malloc_alloc(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    (void)user;
    (void)old_bytes;
    if (new_bytes == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, new_bytes);
}

static void silent_log(void *user, sgl_log_level level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
}

void sglcore_env_init(sglcore_env *env, sgl_alloc_fn alloc, void *alloc_user, sgl_log_fn log, void *log_user)
{
    *env = (sglcore_env){
        .alloc = alloc != NULL ? alloc : malloc_alloc,
        .alloc_user = alloc_user,
        .log = log != NULL ? log : silent_log,
        .log_user = log_user,
        .io = &sglcore_io_posix,
    };
}

/* Ends a text that did not fit in "...", not in the middle of a UTF-8 sequence. */
static void mark_cut(char *text, size_t capacity)
{
    size_t end = capacity - sizeof "...";
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", sizeof "...");
}

static void format_line(char *out, size_t capacity, const char *format, va_list arguments)
{
    int length = sglcore_format(out, capacity, format, arguments);
    if (length < 0) {
        snprintf(out, capacity, "(message could not be formatted)");
    } else if ((size_t)length >= capacity) {
        mark_cut(out, capacity);
    }
}

sgl_status sglcore_fail_v(sglcore_env *env, sgl_status status, const char *format, va_list arguments)
{
    char message[sizeof env->message]; /* the arguments may point into env->message */
    format_line(message, sizeof message, format, arguments);
    memcpy(env->message, message, strlen(message) + 1);
    return status;
}

sgl_status sglcore_fail(sglcore_env *env, sgl_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sglcore_fail_v(env, status, format, arguments);
    va_end(arguments);
    return status;
}

sgl_status sglcore_fail_at(sglcore_env *env, sgl_status status, const char *format, ...)
{
    char prefix[sizeof env->message];
    va_list arguments;
    va_start(arguments, format);
    format_line(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return sglcore_fail(env, status, "%s: %s", prefix, env->message);
}

void sglcore_log_v(sglcore_env *env, sgl_log_level level, const char *format, va_list arguments)
{
    char message[sizeof env->message];
    format_line(message, sizeof message, format, arguments);
    env->log(env->log_user, level, message);
}

void sglcore_log(sglcore_env *env, sgl_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sglcore_log_v(env, level, format, arguments);
    va_end(arguments);
}

int64_t sglcore_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
