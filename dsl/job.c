/* job.c -- the scripts part of sgl.h: load a script, ask its job for graphs, plan, data and numbers.
 *
 * Comes in: a script and settings. Goes out: what the job table says, by way of functions of stdlib/job: trace_ and the
 * name of a graph, plan_fields, data_config, number. Graphs belong to the job and are traced once.
 * Odd invariant: what is made of sgl.h objects inside Lua is handed out through a request on the C stack, so that an error
 * after it finds its owner still there. */
#include <string.h>

#include "dsl/job.h"

/* ---- loading ----------------------------------------------------------------------------------------------------- */

typedef struct load_request {
    const sgldsl_source *source;
    const sgl_setting *settings;
    int count;
} load_request;

static void keep_script(lua_State *L, const sgldsl_source *source)
{
    lua_createtable(L, 0, 3);
    lua_pushstring(L, source->name);
    lua_setfield(L, -2, "name");
    lua_pushlstring(L, source->text, source->bytes);
    lua_setfield(L, -2, "text");
    if (source->folder != NULL) {
        lua_pushstring(L, source->folder);
        lua_setfield(L, -2, "folder");
    }
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_script);
}

/* Leaves the chunk on the stack. A first line that begins with '#' is for the shell, a byte order mark for nobody. */
static void load_chunk(lua_State *L, const sgldsl_source *source)
{
    const char *text = source->text, *end = text + source->bytes;
    if (source->bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3;
    if (text < end && *text == '#') {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        text = line_end != NULL ? line_end : end;
    }
    lua_pushfstring(L, "@%s", source->name);
    if (sgldsl_load_chunk(L, text, (size_t)(end - text), lua_tostring(L, -1)) != LUA_OK) lua_error(L);
    lua_remove(L, -2);
}

/* What the script returned is on top of the stack. */
static void check_job(lua_State *L, const char *name)
{
    int made = lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_job);
    if (made != LUA_TNIL && lua_rawequal(L, -1, -2)) return;
    const char *how = "a script ends with `return sgl.job { ... }`";
    if (made != LUA_TNIL) {
        lua_pushfstring(L, "%s: the job that it made is not what it returned; %s", name, how);
    } else if (lua_isnil(L, -2)) {
        lua_pushfstring(L, "%s: it returned nothing; %s", name, how);
    } else {
        lua_pushfstring(L, "%s: it returned a %s value; %s", name, sgldsl_typename(L, -2), how);
    }
    lua_error(L);
}

static int load_script(lua_State *L)
{
    const load_request *request = sgldsl_argument(L);
    sgldsl_keep_settings(L, request->settings, request->count);
    keep_script(L, request->source);
    load_chunk(L, request->source);
    lua_call(L, 0, 1);
    check_job(L, request->source->name);
    sgldsl_check_settings(L, request->source->name);
    return 0;
}

static void close_job(void *job) { sgldsl_free(job); }

sgl_status sgldsl_attach(sgl_job *job) { return sgl_on_close(job->vm, close_job, job); }

sgl_status sgldsl_load(sgl_vm *vm, const sgldsl_source *source, const sgl_setting *settings, int count,
                       const sgldsl_limits *limits, sgl_job **job)
{
    sgl_job *made;
    *job = NULL;
    sgl_status status = sgldsl_check_text(vm, source->name, source->text, source->bytes);
    if (status == SGL_OK) status = sgldsl_new(vm, limits, &made);
    if (status != SGL_OK) return status;
    load_request request = { .source = source, .settings = settings, .count = count };
    status = sgldsl_enter(made, load_script, &request);
    if (status == SGL_OK) status = sgldsl_attach(made);
    if (status != SGL_OK) {
        sgldsl_free(made);
        return status;
    }
    *job = made;
    return SGL_OK;
}

static sgl_status check_load(sgl_vm *vm, const char *name, const sgl_setting *settings, int count, sgl_job **job)
{
    if (vm == NULL) return SGL_INVALID_ARGUMENT;
    if (job == NULL) return sgl_fail(vm, SGL_INVALID_ARGUMENT, "sgl_load_file, sgl_load_text: no place for the job");
    *job = NULL;
    if (name == NULL || *name == '\0') return sgl_fail(vm, SGL_INVALID_ARGUMENT, "a script needs a name");
    if (count < 0 || (count > 0 && settings == NULL)) {
        return sgl_fail(vm, SGL_INVALID_ARGUMENT, "%s: %d settings and no list of them", name, count);
    }
    return sgldsl_check_text(vm, "the script's name", name, strlen(name));
}

sgl_status sgl_load_text(sgl_vm *vm, const char *name, const char *text, const sgl_setting *settings, int count,
                         sgl_job **job)
{
    sgl_status status = check_load(vm, name, settings, count, job);
    if (status != SGL_OK) return status;
    if (text == NULL) return sgl_fail(vm, SGL_INVALID_ARGUMENT, "%s: there is no text", name);
    sgldsl_source source = { .name = name, .text = text, .bytes = strlen(text) };
    return sgldsl_load(vm, &source, settings, count, &sgldsl_default_limits, job);
}

/* The part of the path before the last '/', in memory of `capacity` bytes. */
static void copy_folder(const char *path, char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, path, length);
    folder[length] = '\0';
}

sgl_status sgl_load_file(sgl_vm *vm, const char *path, const sgl_setting *settings, int count, sgl_job **job)
{
    size_t bytes, path_bytes = 0;
    sgl_status status = check_load(vm, path, settings, count, job);
    if (status == SGL_OK) status = sgldsl_file_bytes(vm, path, &bytes);
    if (status != SGL_OK) return status;
    path_bytes = strlen(path) + 1;
    char *block = sgl_realloc(vm, NULL, 0, bytes + 1 + path_bytes);
    if (block == NULL) return sgl_fail(vm, SGL_OUT_OF_MEMORY, "%s: no memory for its text", path);
    char *folder = block + bytes + 1;
    copy_folder(path, folder);
    status = sgldsl_file_read(vm, path, block, bytes);
    sgldsl_source source = { .name = path, .text = block, .bytes = bytes, .folder = folder };
    if (status == SGL_OK) status = sgldsl_load(vm, &source, settings, count, &sgldsl_default_limits, job);
    sgl_realloc(vm, block, bytes + 1 + path_bytes, 0);
    return status;
}

void sgl_job_free(sgl_job *job)
{
    if (job == NULL) return;
    if (job->entered) {
        sgl_log(job->vm, SGL_LOG_WARNING,
                "sgl_job_free: the job's script is running, so the job stays until sgl_close");
        return;
    }
    sgl_off_close(job->vm, close_job, job);
    sgldsl_free(job);
}

/* (table) -> table: what the script is to return */
int sgldsl_core_job(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_job);
    return 1;
}

/* ---- asking the job ------------------------------------------------------------------------------------------------ */

void sgldsl_push_job_call(lua_State *L, const char *function)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_job) == LUA_TNIL) {
        lua_pushliteral(L, "this is a console without a script: it has no job");
        lua_error(L);
    }
    sgldsl_require(L, "sgl.job");
    lua_getfield(L, -1, function);
    lua_replace(L, -2);
    lua_insert(L, -2);
}

/* ---- graphs ---------------------------------------------------------------------------------------------------------- */

typedef struct graph_request {
    const char *which;
    sgl_graph *graph;
} graph_request;

static int trace_graph(lua_State *L)
{
    graph_request *request = sgldsl_argument(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_traced);
    if (lua_getfield(L, -1, request->which) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_pushfstring(L, "trace_%s", request->which);
        sgldsl_push_job_call(L, lua_tostring(L, -1));
        lua_call(L, 1, 1);
        if (lua_isnil(L, -1)) return 0;
        if (sgldsl_to_graph(L, -1) == NULL) sgldsl_error(L, "trace_%s gave no graph", request->which);
        lua_pushvalue(L, -1);
        lua_setfield(L, 2, request->which);
    }
    request->graph = sgldsl_to_graph(L, -1)->graph;
    return 0;
}

sgl_status sgl_job_graph(sgl_job *job, const char *which, sgl_graph **graph)
{
    static const char *const names[] = { "init", "train", "eval", "decode", "few", "text", "export" };
    const int count = sizeof names / sizeof *names;
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (graph == NULL) return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_graph: there is no place for the graph");
    *graph = NULL;
    bool known = false;
    for (int i = 0; i < count && which != NULL; i++) known = known || strcmp(names[i], which) == 0;
    if (!known) {
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT,
                        "a job has no graph '%s'; it has init, train, eval, decode, few, text and export",
                        which != NULL ? which : "");
    }
    graph_request request = { .which = which };
    sgl_status status = sgldsl_enter(job, trace_graph, &request);
    if (status != SGL_OK) return status;
    if (request.graph == NULL) return sgl_fail(job->vm, SGL_NOT_FOUND, "this job declares no %s graph", which);
    *graph = request.graph;
    return SGL_OK;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------------- */

static int fill_plan(lua_State *L)
{
    sgl_plan *plan = sgldsl_argument(L);
    sgldsl_push_job_call(L, "plan_fields");
    lua_call(L, 1, 1);
    if (lua_type(L, -1) != LUA_TTABLE)
        sgldsl_error(L, "the job's plan is a %s value, it must be a table", sgldsl_typename(L, -1));
    int fields = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, fields) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING) sgldsl_error(L, "plan: a key is no text");
        sgl_attr value = { .name = lua_tostring(L, -2) };
        switch (lua_type(L, -1)) {
        case LUA_TSTRING:
            value.kind = SGL_ATTR_STRING;
            value.s = lua_tostring(L, -1);
            break;
        case LUA_TNUMBER:
            value.kind = lua_isinteger(L, -1) ? SGL_ATTR_INT : SGL_ATTR_FLOAT;
            value.i = lua_tointeger(L, -1);
            value.f = lua_tonumber(L, -1);
            break;
        default: sgldsl_error(L, "plan: %s is a %s value", value.name, sgldsl_typename(L, -1));
        }
        sgldsl_check(L, sgl_plan_set(plan, &value));
        lua_pop(L, 1);
    }
    return 0;
}

sgl_status sgl_job_plan(sgl_job *job, sgl_plan **plan)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (plan == NULL) return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_plan: there is no place for the plan");
    *plan = NULL;
    sgl_plan *made;
    sgl_status status = sgl_plan_new(job->vm, &made);
    if (status != SGL_OK) return status;
    status = sgldsl_enter(job, fill_plan, made);
    if (status != SGL_OK) {
        sgl_plan_free(made);
        return status;
    }
    *plan = made;
    return SGL_OK;
}

/* ---- numbers --------------------------------------------------------------------------------------------------------------- */

typedef struct number_request {
    const char *key;
    bool found;
    double value;
} number_request;

static int read_number(lua_State *L)
{
    number_request *request = sgldsl_argument(L);
    sgldsl_push_job_call(L, "number");
    lua_pushstring(L, request->key);
    lua_call(L, 2, 1);
    request->found = lua_type(L, -1) == LUA_TNUMBER;
    request->value = lua_tonumber(L, -1);
    return 0;
}

sgl_status sgl_job_number(sgl_job *job, const char *key, double *value)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (key == NULL || value == NULL)
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_number: no key or no place");
    number_request request = { .key = key };
    sgl_status status = sgldsl_enter(job, read_number, &request);
    if (status != SGL_OK) return status;
    if (!request.found) return sgl_fail(job->vm, SGL_NOT_FOUND, "the job gives no number '%s'", key);
    *value = request.value;
    return SGL_OK;
}

/* ---- settings: as the script has declared them ---------------------------------------------------------------------------------- */

sgl_status sgl_job_setting(sgl_job *job, int index, const char **key, const char **value, const char **type)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (index < 0 || key == NULL || value == NULL || type == NULL) {
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_setting: a negative index, or no place for an answer");
    }
    if (job->entered) return sgl_fail(job->vm, SGL_WRONG_STATE, "sgl_job_setting: the script of this job is running");
    const char **answers[] = { key, value, type };
    lua_State *L = job->L;
    int top = lua_gettop(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_fields); /* raw reads raise nothing and ask for no memory */
    for (int i = 0; i < 3; i++) {
        lua_rawgeti(L, top + 1, (lua_Integer)index * 3 + i + 1);
        *answers[i] = lua_tostring(L, -1); /* a text, which the list keeps, or nil */
    }
    lua_settop(L, top);
    return SGL_OK;
}
