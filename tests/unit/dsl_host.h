/* dsl_host.h -- a host for tests of the Lua front end: a VM over the counting allocator of fault.h, with its log kept.
 *
 * In: scripts as texts, with the functions of sgl.core as the local `core`. Out: a status and the VM's message; closing
 * asserts that nothing leaked. Scripts named "case.lua" stand on line 1, so `case.lua:3:` is the third line of the text. */
#ifndef DSL_HOST_H
#define DSL_HOST_H

#include "fault.h"

#include <stdio.h>

#include "dsl/dsl.h"

typedef struct dsl_host {
    fault_heap heap;
    sgl_vm *vm;
    char log[8192]; /* lines, each with its end */
    size_t log_bytes;
} dsl_host;

static inline void dsl_log(void *user, sgl_log_level level, const char *message)
{
    dsl_host *host = user;
    (void)level;
    size_t length = strlen(message);
    if (host->log_bytes + length + 2 > sizeof host->log) return;
    memcpy(host->log + host->log_bytes, message, length);
    host->log_bytes += length;
    host->log[host->log_bytes++] = '\n';
    host->log[host->log_bytes] = '\0';
}

static inline void dsl_open(dsl_host *host)
{
    memset(host, 0, sizeof *host);
    sgl_config config = { .alloc = fault_alloc, .alloc_user = &host->heap, .log = dsl_log, .log_user = host };
    assert_int_equal(sgl_open(&config, &host->vm), SGL_OK);
}

static inline void dsl_close(dsl_host *host)
{
    sgl_close(host->vm);
    assert_int_equal(host->heap.live_bytes, 0);
    assert_int_equal(host->heap.live_blocks, 0);
}

/* Loads `local core = require 'sgl.core'; <text>` under the limits (NULL: the usual ones). */
static inline sgl_status dsl_load_limited(dsl_host *host, const char *text, const sgldsl_limits *limits, sgl_job **job)
{
    static char whole[65536];
    int length = snprintf(whole, sizeof whole, "local core = require 'sgl.core'; %s", text);
    assert_true(length > 0 && (size_t)length < sizeof whole);
    sgldsl_source source = { .name = "case.lua", .text = whole, .bytes = (size_t)length };
    return sgldsl_load(host->vm, &source, NULL, 0, limits != NULL ? limits : &sgldsl_default_limits, job);
}

static inline sgl_status dsl_load(dsl_host *host, const char *text, sgl_job **job)
{
    return dsl_load_limited(host, text, NULL, job);
}

/* The text must run: it asserts what it is about in Lua. `return core.job {}` is added. */
static inline void dsl_runs(const char *text)
{
    static char whole[65536];
    dsl_host host;
    sgl_job *job;
    snprintf(whole, sizeof whole, "%s\nreturn core.job {}", text);
    dsl_open(&host);
    sgl_status status = dsl_load(&host, whole, &job);
    if (status != SGL_OK) fail_msg("%s\n%s", sgl_error_message(host.vm), text);
    dsl_close(&host);
}

/* The text must end with this status, and its message begin with `message`. */
static inline void dsl_fails(const char *text, const sgldsl_limits *limits, sgl_status expected, const char *message)
{
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    sgl_status status = dsl_load_limited(&host, text, limits, &job);
    const char *got = sgl_error_message(host.vm);
    if (status != expected || strncmp(got, message, strlen(message)) != 0) {
        fail_msg("%s: %s\ninstead of %s: %s\n%s", sgl_status_name(status), got, sgl_status_name(expected), message,
                 text);
    }
    assert_null(job);
    dsl_close(&host);
}

#endif
