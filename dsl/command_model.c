/* command_model.c -- the job of a checkpoint. See command_model.h. */
#include <string.h>
#include <sys/stat.h>

#include "dsl/command_model.h"
#include "dsl/command_ranks.h"

static sgl_status no_meta(const command_model *m, const char *what)
{
    return sgl_fail(m->vm, SGL_CORRUPT, "%s: its meta holds no %s; `sgl train` writes checkpoints with one", m->path,
                    what);
}

static sgl_status load_job(command_model *m, const command_settings *more)
{
    const char *script = json_string_value(json_object_get(m->meta, "script"));
    const char *text = json_string_value(json_object_get(m->meta, "text"));
    command_settings settings = { 0 };
    const char *key;
    json_t *value;
    if (!script || !text) return no_meta(m, "script");
    json_object_foreach(json_object_get(m->meta, "settings"), key, value)
    {
        if (!json_is_string(value)) return no_meta(m, "settings");
        if (strncmp(key, "plan.mesh.", 10) == 0) continue;
        if (!command_set(&settings, key, json_string_value(value)))
            return sgl_fail(m->vm, SGL_LIMIT, "%s: too many settings", m->path);
    }
    const int kept = settings.count;
    bool fits = true;
    for (int i = 0; more && i < more->count && fits; i++)
        fits = command_set(&settings, more->list[i].key, more->list[i].value);
    /* One rank's: the script's own mesh is none of its plan's. */
    char keys[COMMAND_AXES][24];
    const char *name;
    for (int i = 0; fits && !m->meshed && i < COMMAND_AXES && (name = sgl_axis_name(i)) != NULL; i++) {
        snprintf(keys[i], sizeof keys[i], "plan.mesh.%s", name);
        fits = command_set(&settings, keys[i], "1");
    }
    if (!fits || !command_mark_kept(&settings, kept)) return sgl_fail(m->vm, SGL_LIMIT, "too many settings");
    return sgl_load_text(m->vm, script, text, settings.list, settings.count, &m->job);
}

sgl_status command_model_load(command_model *m, const char *dir, const command_settings *more)
{
    const char *meta;
    json_error_t error;
    struct stat info;
    if (stat(dir, &info) != 0)
        return sgl_fail(m->vm, SGL_NOT_FOUND, "%s: there is no such folder; `sgl train --out DIR` writes one", dir);
    if (!S_ISDIR(info.st_mode))
        return sgl_fail(m->vm, SGL_NOT_FOUND, "%s: it is a file; give the folder that `sgl train --out` wrote", dir);
    sgl_status status = sgl_checkpoint_find(m->vm, dir, &m->path, &meta, &m->step);
    if (status != SGL_OK) return status;
    m->meta = json_loads(meta, 0, &error);
    if (!m->meta) return no_meta(m, "JSON object");
    return load_job(m, more);
}

static sgl_status freeze_train(command_model *m, sgl_session *session)
{
    sgl_graph *graph = NULL;
    sgl_plan *plan = NULL;
    sgl_program *program;
    sgl_status status = sgl_job_graph(m->job, "train", &graph);
    if (status == SGL_OK) status = command_plan(m->job, "train", m->meshed, &plan);
    return status == SGL_OK ? sgl_freeze(session, graph, plan, &program) : status;
}

sgl_status command_model_read(command_model *m, sgl_session *session)
{
    const char *name = "";
    sgl_role role;
    bool has_states = false;
    sgl_status status = SGL_OK;
    for (int i = 0; status == SGL_OK && name; i++) {
        status = sgl_state_info(session, i, &name, &role, NULL);
        has_states = has_states || (status == SGL_OK && name && role == SGL_STATE);
    }
    if (status == SGL_OK && has_states) status = freeze_train(m, session);
    return status == SGL_OK ? sgl_checkpoint_load(session, m->path, !has_states) : status;
}
