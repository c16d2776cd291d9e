/* command_model.c -- the job of a checkpoint. See command_model.h. */
#include <sys/stat.h>

#include "dsl/command_model.h"

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
        if (!command_set(&settings, key, json_string_value(value)))
            return sgl_fail(m->vm, SGL_LIMIT, "%s: too many settings", m->path);
    }
    for (int i = 0; more && i < more->count; i++)
        if (!command_set(&settings, more->list[i].key, more->list[i].value))
            return sgl_fail(m->vm, SGL_LIMIT, "too many settings");
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
