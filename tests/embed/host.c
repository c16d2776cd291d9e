/* host.c -- a C host of sgl: own allocator and log, a script as text, 20 steps on data that it makes, a parameter read, no leak. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <sgl.h>

static void *count_memory(void *user, void *block, size_t old_bytes, size_t new_bytes)
{
    *(long long *)user += (long long)new_bytes - (long long)(block ? old_bytes : 0);
    return new_bytes ? realloc(block, new_bytes) : (free(block), NULL);
}

static void print_log(void *user, sgl_log_level level, const char *message)
{
    fprintf(user, "log %d: %s\n", level, message);
}

static const char script[] =
    "local sgl = require 'sgl'; local layer = sgl.nn.linear(3, 1, { bias = true })\n"
    "return sgl.job { model = layer, optim = sgl.optim.sgd { lr = 0.3 },\n"
    "  loss = function(batch) local error = layer(batch.x) - batch.y; return (error * error):mean() end,\n"
    "  data = sgl.data.batches { feeds = { x = { dtype = 'f32', dims = { 8, 3 } }, y = { dtype = 'f32', dims = { 8, 1 } } },\n"
    "                            next = function() return nil end },\n"
    "}\n";

#define TRY(call) (status = status == SGL_OK ? (call) : status) /* nothing is done after a failure */

int main(void)
{
    long long in_use = 0;
    float x[8][3], y[8], loss = 0, first = 0, weight[3] = { 0 };
    sgl_vm *vm = NULL;
    sgl_job *job = NULL;
    sgl_graph *graph = NULL;
    sgl_session *session = NULL;
    sgl_program *train = NULL;
    const sgl_config config = { .alloc = count_memory, .alloc_user = &in_use, .log = print_log, .log_user = stderr };
    sgl_status status = sgl_open(&config, &vm);
    TRY(sgl_load_text(vm, "host.lua", script, NULL, 0, &job));
    TRY(sgl_job_graph(job, "train", &graph));
    TRY(sgl_session_new(vm, "cpu", &session));
    TRY(sgl_freeze(session, graph, NULL, &train));
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 24; i++) x[i / 3][i % 3] = (float)sin(step * 24 + i);
        for (int i = 0; i < 8; i++) y[i] = 2 * x[i][0] - x[i][1] + 0.5f * x[i][2];
        TRY(sgl_feed(train, "x", x, sizeof x));
        TRY(sgl_feed(train, "y", y, sizeof y));
        TRY(sgl_step(train));
        TRY(sgl_fetch(train, "loss", &loss, sizeof loss));
        if (step == 0) first = loss;
    }
    TRY(sgl_state_read(session, "weight", weight, sizeof weight));
    printf("%s %s: loss %g -> %g, weight %g %g %g\n", sgl_status_name(status), sgl_error_message(vm), first, loss,
           weight[0], weight[1], weight[2]);
    sgl_close(vm);
    return status != SGL_OK || !(loss < 0.05f * first) || in_use != 0;
}
