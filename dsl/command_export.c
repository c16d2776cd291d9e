/* command_export.c -- `sgl export`: the parameters of a checkpoint as one safetensors file.
 *
 * Comes in: a folder of checkpoints; its meta holds the script's text and settings. Goes out: a file with each parameter
 * and buffer of the model by its name: with adapters (sgl.lora) merged into the weights that they adapt, and with --ema
 * the averages that the optimizer keeps. `sgl train --init-from` takes it, and so do other programs. */
#include <string.h>

#include "dsl/command_model.h"

typedef struct exporter {
    command_model model;
    const char *out;
    bool ema;
} exporter;

static sgl_status write_file(exporter *e, const char *dir)
{
    sgl_graph *graph = NULL;
    sgl_session *session = NULL;
    sgl_program *program = NULL;
    command_settings settings = { 0 };
    if (e->ema && !command_set(&settings, "job.ema", "true")) return SGL_LIMIT;
    sgl_status status = command_model_load(&e->model, dir, &settings);
    if (status == SGL_OK) status = sgl_job_graph(e->model.job, "export", &graph);
    if (status == SGL_OK) status = sgl_session_new(e->model.vm, "cpu", &session);
    /* Without the job's plan: what is written is as wide as what is kept. */
    if (status == SGL_OK) status = sgl_freeze(session, graph, NULL, &program);
    if (status == SGL_OK) status = command_model_read(&e->model, session);
    if (status == SGL_OK) status = sgl_step(program);
    return status == SGL_OK ? sgl_fetch_file(program, e->out) : status;
}

int command_export(int argc, char **argv)
{
    exporter e = { 0 };
    const command_option options[] = {
        { "--out", 's', &e.out, "FILE", "the file to write, such as model.safetensors" },
        { "--ema", 'b', &e.ema, "", "the averages that its optimizer keeps, in place of the parameters" },
        { 0 },
    };
    const command c = {
        "export",
        "DIR",
        "Writes the parameters of DIR's last checkpoint as one safetensors file.",
        "DIR is what `sgl train --out` wrote, or one step-NNNNNNNN folder in it. Adapters of sgl.lora are "
        "merged into\nthe weights that they adapt. `sgl train --init-from FILE` begins with it.",
        1,
        1,
        options
    };
    const char *positional[1];
    int count;
    bool helped;
    int code = command_parse(&c, argc, argv, positional, &count, &helped);
    if (code != COMMAND_OK || helped) return code;
    if (!e.out || !*e.out) {
        fprintf(stderr, "sgl export: give --out FILE; `sgl export --help` tells more\n");
        return COMMAND_USAGE;
    }
    e.model.vm = command_open(0, stderr);
    if (!e.model.vm) return COMMAND_FAILED;
    command_signals(e.model.vm);
    sgl_status status = write_file(&e, positional[0]);
    if (status == SGL_OK) printf("wrote %s from %s\n", e.out, e.model.path);
    code = command_status(e.model.vm, status);
    json_decref(e.model.meta);
    sgl_close(e.model.vm);
    return code;
}
