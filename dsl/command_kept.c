/* command_kept.c -- what a run takes over of a checkpoint. In and out: command_kept.h.
 *
 * Odd invariant: settings are kept as texts, as they were given, so that a script which has changed since reads them its way. */
#include <errno.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>

#include "dsl/command_kept.h"

sgl_status command_kept_settings(sgl_vm *vm, const command_kept *kept, command_settings *settings)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(kept->meta, "settings"), key, value)
    {
        if (!json_is_string(value) || strncmp(key, "require.", 8) == 0 || strncmp(key, "plan.mesh.", 10) == 0) continue;
        if (!command_set(settings, key, json_string_value(value)))
            return sgl_fail(vm, SGL_LIMIT, "%s: it keeps too many settings", kept->from);
    }
    return SGL_OK;
}

void command_kept_changes(const command_kept *kept, const command_settings *now)
{
    const json_t *settings = json_object_get(kept->meta, "settings");
    for (int i = 0; i < now->count; i++) {
        const sgl_setting *one = &now->list[i];
        const char *before = json_string_value(json_object_get(settings, one->key));
        if (before && strcmp(before, one->value) == 0) continue;
        fprintf(stderr, "sgl: warning: --resume: %s is %s now; the checkpoint was made with %s\n", one->key, one->value,
                before ? before : "the script's own value");
    }
}

/* Whether the file is one that a checkpoint in its folder is made of, and so is what the manifest there says. */
static bool is_of_checkpoint(sgl_vm *vm, const char *file, const char **path)
{
    static const char *const names[] = { "parameters.safetensors", "states.safetensors", "manifest.json" };
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file, *meta;
    char folder[COMMAND_PATH_ROOM];
    int64_t step;
    bool known = false;
    for (int i = 0; i < 3; i++) known = known || strcmp(name, names[i]) == 0;
    strcpy(folder, file);
    const char *own = dirname(folder);
    return known && sgl_checkpoint_find(vm, own, path, &meta, &step) == SGL_OK && strcmp(*path, own) == 0;
}

sgl_status command_parameters(sgl_session *session, sgl_vm *vm, const char *from)
{
    const char *path, *meta;
    int64_t step;
    struct stat info;
    if (strlen(from) >= COMMAND_PATH_ROOM) return sgl_fail(vm, SGL_LIMIT, "%s: the path is too long", from);
    if (stat(from, &info) != 0) return sgl_fail(vm, SGL_IO, "--init-from %s: %s", from, strerror(errno));
    if (S_ISREG(info.st_mode))
        return is_of_checkpoint(vm, from, &path) ? sgl_checkpoint_load(session, path, 1)
                                                 : sgl_parameters_load(session, from);
    sgl_status status = sgl_checkpoint_find(vm, from, &path, &meta, &step);
    if (status == SGL_NOT_FOUND)
        return sgl_fail(vm, status, "--init-from %s: it is neither a checkpoint nor a folder of them", from);
    return status == SGL_OK ? sgl_checkpoint_load(session, path, 1) : status;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether the script is another one than its checkpoint keeps; not, where it did not load. */
static bool has_changed(const command_kept *kept, sgl_job *job)
{
    const char *meta = NULL, *before = json_string_value(json_object_get(kept->meta, "text"));
    if (!job || !before || sgl_job_meta(job, &meta) != SGL_OK) return false;
    json_t *now = json_loads(meta, 0, NULL);
    const char *text = json_string_value(json_object_get(now, "text"));
    bool changed = text && strcmp(text, before) != 0;
    json_decref(now);
    return changed;
}

sgl_status command_kept_script(sgl_vm *vm, const command_kept *kept, const char *script, sgl_job *job,
                               sgl_status status)
{
    const char *before = json_string_value(json_object_get(kept->meta, "script"));
    if (status == SGL_OK || status == SGL_INTERRUPTED || status == SGL_OUT_OF_MEMORY || !before) return status;
    char why[4096];
    snprintf(why, sizeof why, "%s", sgl_error_message(vm));
    int line = (int)strcspn(why, "\n"); /* what comes behind it are the calls of the script */
    if (strcmp(last_name(before), last_name(script)) != 0)
        return sgl_fail(vm, status, "%.*s; %s was made by the script %s, not by %s: resume it with that%s", line, why,
                        kept->from, before, script, why + line);
    if (!has_changed(kept, job)) return sgl_fail(vm, status, "%s", why);
    return sgl_fail(vm, status, "%.*s; %s has changed since %s was made, which keeps the text of then%s", line, why,
                    script, kept->from, why + line);
}
