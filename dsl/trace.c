/* trace.c -- graphs being made: which trace and scope are open, inputs, fetches, updates, gradients, origins.
 *
 * Comes in: calls of the stdlib while it traces a script. Goes out: nodes in the graph of the innermost trace, each with the
 * script line it came from and the module path of the innermost scope. Tensors never cross from one graph to another.
 * Odd invariant: an error leaves frames open; whoever catches it leaves them (coroutine.c, sgldsl_enter), so the functions
 * here call Lua unprotected and keep the stack whole for the message. */
#include <string.h>

#include "dsl/dsl.h"

enum { SCRATCH_VALUES = 1, SCRATCH_RESULTS = 3, USER_INPUTS = 1, USER_ROLES = 2 };

/* ---- frames ---------------------------------------------------------------------------------------------------- */

sgldsl_frame *sgldsl_frame_now(sgl_job *job) { return &job->frames[job->depth]; }

/* After an error, Lua runs what is to be closed before anyone gets to close frames. So a frame keeps its graph and scope
 * alive by itself, in a table of the registry, not by the stack that is being unwound. */
void sgldsl_enter_frame(lua_State *L, sgldsl_graph *graph, const char *scope, int anchor)
{
    sgl_job *job = sgldsl_job(L);
    if (job->depth + 1 == SGLDSL_FRAMES) sgldsl_error(L, "traces and scopes are nested too deeply");
    anchor = lua_absindex(L, anchor);
    luaL_checkstack(L, 2, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->frame_reference);
    lua_pushvalue(L, anchor);
    lua_rawseti(L, -2, job->depth + 1);
    lua_pop(L, 1);
    job->depth++;
    int regions = graph != NULL && graph->graph != NULL ? sgl_region_depth(graph->graph) : 0;
    job->frames[job->depth] = (sgldsl_frame){ .graph = graph, .scope = scope, .regions = regions };
}

void sgldsl_leave_frames(lua_State *L, int depth)
{
    sgl_job *job = sgldsl_job(L);
    if (job->depth <= depth) return;
    luaL_checkstack(L, 2, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->frame_reference);
    for (; job->depth > depth; job->depth--) {
        const sgldsl_frame *frame = &job->frames[job->depth];
        if (frame->graph != NULL && frame->graph->graph != NULL)
            sgl_region_abandon(frame->graph->graph, frame->regions); /* those that an error left open */
        lua_pushnil(L);
        lua_rawseti(L, -2, job->depth);
    }
    lua_pop(L, 1);
}

/* (path, function, ...) -> the function's results */
int sgldsl_core_scope(lua_State *L)
{
    size_t length;
    const char *path = luaL_checklstring(L, 1, &length);
    if (length > SGLDSL_NAME_BYTES || strlen(path) != length) sgldsl_error(L, "scope: the path is too long or no text");
    luaL_checkany(L, 2);
    sgl_job *job = sgldsl_job(L);
    int depth = job->depth;
    sgldsl_enter_frame(L, sgldsl_frame_now(job)->graph, path, 1);
    lua_call(L, lua_gettop(L) - 2, LUA_MULTRET);
    sgldsl_leave_frames(L, depth);
    return lua_gettop(L) - 1;
}

/* (name, function) -> graph */
int sgldsl_core_trace(lua_State *L)
{
    const char *name = sgldsl_name(L, 1, "trace");
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    int depth = sgldsl_job(L)->depth;
    sgldsl_graph *graph = sgldsl_push_graph(L, name);
    sgldsl_enter_frame(L, graph, "", -1);
    lua_pushvalue(L, 2);
    lua_call(L, 0, 0);
    sgldsl_leave_frames(L, depth);
    return 1;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------- */

sgldsl_graph *sgldsl_push_graph(lua_State *L, const char *name)
{
    sgl_job *job = sgldsl_job(L);
    sgldsl_graph *graph = lua_newuserdatauv(L, sizeof *graph, 2);
    memset(graph, 0, sizeof *graph);
    graph->job = job;
    strncpy(graph->name, name, sizeof graph->name - 1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_graphs);
    lua_setmetatable(L, -2);
    lua_newtable(L);
    lua_setiuservalue(L, -2, USER_INPUTS);
    lua_newtable(L);
    lua_setiuservalue(L, -2, USER_ROLES);
    graph->serial = ++job->graphs;
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->living_reference);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, graph->serial);
    lua_pop(L, 1);
    sgldsl_check(L, sgl_graph_new(job->vm, name, &graph->graph));
    return graph;
}

void sgldsl_grow(lua_State *L, sgldsl_graph *graph, int64_t units)
{
    sgl_job *job = sgldsl_job(L);
    graph->units += units;
    job->units += units;
    if (job->units <= job->limits.graph_units) return;
    lua_gc(L, LUA_GCCOLLECT); /* frees the graphs that nothing holds any more */
    if (job->units > job->limits.graph_units) {
        sgldsl_expire(L, 0, "the script does not end: its graphs have as many nodes as they may");
    }
}

static void set_origin(lua_State *L, sgldsl_graph *graph, const char *scope)
{
    sgldsl_place place;
    sgldsl_where(L, 1, &place); /* level 0 is the C function that was called */
    if (graph->line == place.line && strcmp(graph->scope, scope) == 0 && strcmp(graph->file, place.file) == 0) return;
    sgldsl_check(L, sgl_graph_origin(graph->graph, place.file, place.line, scope));
    graph->line = place.line;
    strcpy(graph->file, place.file);
    strcpy(graph->scope, scope);
}

sgldsl_graph *sgldsl_tracing(lua_State *L, const char *what)
{
    const sgldsl_frame *frame = sgldsl_frame_now(sgldsl_job(L));
    if (frame->graph == NULL) {
        sgldsl_error(
            L, "%s: only inside a traced function (a model's forward, a loss, a step): nothing is being traced here",
            what);
    }
    set_origin(L, frame->graph, frame->scope);
    return frame->graph;
}

void sgldsl_refuse_foreign(lua_State *L, const sgldsl_tensor *tensor, const char *what, const sgldsl_graph *graph)
{
    if (tensor->graph->graph == NULL) {
        sgldsl_error(L, "%s: a tensor of the graph '%s', which is gone", what, tensor->graph->name);
    }
    sgldsl_error(L, "%s: a tensor of the graph '%s' cannot be used in the graph '%s'; make it anew in each trace", what,
                 tensor->graph->name, graph->name);
}

sgldsl_tensor *sgldsl_check_tensor(lua_State *L, int index, const char *what, const sgldsl_graph *graph)
{
    sgldsl_tensor *tensor = sgldsl_to_tensor(L, index);
    if (tensor == NULL) sgldsl_error(L, "%s: %s value where a tensor must be", what, sgldsl_typename(L, index));
    if (tensor->graph != graph) sgldsl_refuse_foreign(L, tensor, what, graph);
    return tensor;
}

/* ---- inputs ---------------------------------------------------------------------------------------------------------- */

static const char *const
    role_names[] = { [SGL_PARAMETER] = "parameter", [SGL_STATE] = "state", [SGL_FEED] = "feed", [SGL_CACHE] = "cache" };

static sgl_role read_role(lua_State *L, int index)
{
    const char *name = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
    for (size_t i = 0; i < sizeof role_names / sizeof role_names[0]; i++) {
        if (strcmp(role_names[i], name) == 0) return (sgl_role)i;
    }
    sgldsl_error(L, "input: the role must be parameter, state, feed or cache");
    return SGL_FEED;
}

void sgldsl_read_dims(lua_State *L, int index, const char *name, sgl_type *type)
{
    if (lua_type(L, index) != LUA_TTABLE) sgldsl_error(L, "input '%s': the dims must be a list of integers", name);
    lua_Unsigned rank = lua_rawlen(L, index);
    if (rank > SGL_MAX_RANK) sgldsl_error(L, "input '%s': at most %d dims are possible", name, SGL_MAX_RANK);
    type->rank = (int32_t)rank;
    for (int i = 0; i < type->rank; i++) {
        int is_integer = 0;
        if (lua_rawgeti(L, index, i + 1) == LUA_TNUMBER) type->dims[i] = lua_tointegerx(L, -1, &is_integer);
        if (!is_integer || type->dims[i] < 0) {
            sgldsl_error(L, "input '%s': extent %d is %s, it must be an integer of at least 0", name, i + 1,
                         luaL_tolstring(L, -1, NULL));
        }
        lua_pop(L, 1);
    }
}

static bool same_type(const sgl_type *a, const sgl_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* The input of that name is there already: on top of the stack. */
static void check_again(lua_State *L, const char *name, sgl_role role, sgl_role role_before, const sgl_type *type)
{
    sgl_type before;
    char text[SGLDSL_TYPE_TEXT], text_before[SGLDSL_TYPE_TEXT];
    sgldsl_type_of(L, sgldsl_to_tensor(L, -1), name, &before);
    if (role != role_before)
        sgldsl_error(L, "input '%s': a %s has this name already, no %s can have it too", name, role_names[role_before],
                     role_names[role]);
    if (!same_type(&before, type)) {
        sgldsl_error(L, "input '%s': it is there already as %s, not %s", name, sgldsl_type_text(&before, text_before),
                     sgldsl_type_text(type, text));
    }
}

/* (role, name, dtype, dims) -> tensor; the same name again gives the same tensor */
int sgldsl_core_input(lua_State *L)
{
    lua_settop(L, 4);
    sgl_role role = read_role(L, 1);
    const char *name = sgldsl_name(L, 2, "input");
    sgl_type type = { .dtype = sgldsl_dtype_argument(L, 3, name) };
    sgldsl_read_dims(L, 4, name, &type);
    sgldsl_graph *graph = sgldsl_tracing(L, name);
    lua_rawgeti(L, LUA_REGISTRYINDEX, graph->job->living_reference);
    lua_rawgeti(L, -1, graph->serial);
    lua_getiuservalue(L, -1, USER_INPUTS);
    lua_getiuservalue(L, -2, USER_ROLES);
    int inputs = lua_gettop(L) - 1, roles = inputs + 1;
    lua_getfield(L, roles, name);
    if (lua_getfield(L, inputs, name) != LUA_TNIL) {
        check_again(L, name, role, (sgl_role)lua_tointeger(L, -2), &type);
        return 1;
    }
    sgl_value value;
    sgldsl_grow(L, graph, 2 + (int64_t)strlen(name) / 16);
    sgldsl_check(L, sgl_input(graph->graph, role, name, &type, &value));
    lua_pushinteger(L, role);
    lua_setfield(L, roles, name);
    sgldsl_push_tensor(L, graph, value);
    lua_pushvalue(L, -1);
    lua_setfield(L, inputs, name);
    return 1;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------ */

static int add_output(lua_State *L, const char *what, sgl_status (*add)(sgl_graph *, const char *, sgl_value))
{
    const char *name = sgldsl_name(L, 1, what);
    sgldsl_graph *graph = sgldsl_tracing(L, what);
    const sgldsl_tensor *tensor = sgldsl_check_tensor(L, 2, what, graph);
    sgldsl_grow(L, graph, 1 + (int64_t)strlen(name) / 16);
    sgldsl_check(L, add(graph->graph, name, tensor->value));
    return 0;
}

int sgldsl_core_fetch(lua_State *L) { return add_output(L, "fetch", sgl_output_fetch); }

int sgldsl_core_update(lua_State *L) { return add_output(L, "update", sgl_output_update); }

/* (path): what the module makes for itself is made again for the backward */
int sgldsl_core_recompute(lua_State *L)
{
    const char *path = sgldsl_name(L, 1, "recompute");
    sgldsl_graph *graph = sgldsl_tracing(L, "recompute");
    sgldsl_grow(L, graph, 1 + (int64_t)strlen(path) / 16);
    sgldsl_check(L, sgl_graph_recompute(graph->graph, path));
    return 0;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------------ */

/* (scalar, list of tensors) -> list of gradients */
int sgldsl_core_grad(lua_State *L)
{
    lua_settop(L, 2);
    sgldsl_graph *graph = sgldsl_tracing(L, "grad");
    const sgldsl_tensor *of = sgldsl_check_tensor(L, 1, "grad", graph);
    if (lua_type(L, 2) != LUA_TTABLE) sgldsl_error(L, "grad: the second argument must be a list of tensors");
    int count = (int)lua_rawlen(L, 2);
    lua_createtable(L, count, 0);
    if (count == 0) return 1;
    size_t bytes = (size_t)count * sizeof(sgl_value);
    sgl_value *wrt = sgldsl_scratch_get(L, SCRATCH_VALUES, bytes),
              *gradients = sgldsl_scratch_get(L, SCRATCH_RESULTS, bytes);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        wrt[i] = sgldsl_check_tensor(L, -1, "grad", graph)->value;
        lua_pop(L, 1);
    }
    sgldsl_grow(L, graph, 1 + 2 * (int64_t)count);
    sgldsl_check(L, sgl_grad(graph->graph, of->value, wrt, count, gradients));
    for (int i = 0; i < count; i++) {
        sgldsl_push_tensor(L, graph, gradients[i]);
        lua_rawseti(L, 3, i + 1);
    }
    return 1;
}
