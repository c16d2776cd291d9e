/* region.c -- loops and branches from Lua: regions are begun, filled by a function of the script, and ended.
 *
 * Comes in: calls of stdlib/control.lua. Goes out: nodes with regions. What a region yields, and of which types its
 * parameters are, is for Lua to say; whether that fits, for the graph. Odd invariant: an error in the function leaves the
 * region open; whoever leaves the frames of the error abandons it (trace.c). */
#include "dsl/attrs.h"
#include "dsl/dsl.h"

enum { SCRATCH_VALUES = 1, SCRATCH_RESULTS = 3 };

/* (op) -> the first of its regions, and how many they are */
int sgldsl_core_regions(lua_State *L)
{
    const char *op = luaL_checkstring(L, 1);
    uint32_t first;
    int count;
    sgldsl_graph *graph = sgldsl_tracing(L, op);
    sgldsl_grow(L, graph, 2);
    sgldsl_check(L, sgl_regions(graph->graph, op, &first, &count));
    lua_pushinteger(L, first);
    lua_pushinteger(L, count);
    return 2;
}

/* The tensors of the list at `index` as values of the graph, in scratch. */
static sgl_value *read_list(lua_State *L, int index, const char *what, const sgldsl_graph *graph, int *count)
{
    if (lua_type(L, index) != LUA_TTABLE) sgldsl_error(L, "%s: a list of tensors is needed", what);
    lua_Unsigned length = lua_rawlen(L, index);
    if (length > INT32_MAX / 2) sgldsl_error(L, "%s: too many tensors", what);
    *count = (int)length;
    sgl_value *values = sgldsl_scratch_get(L, SCRATCH_VALUES, (length + 1) * sizeof *values);
    for (int i = 0; i < *count; i++) {
        lua_rawgeti(L, index, i + 1);
        values[i] = sgldsl_check_tensor(L, -1, what, graph)->value;
        lua_pop(L, 1);
    }
    return values;
}

/* (region, function): the function stands in the region and returns the list of what that yields */
int sgldsl_core_region(lua_State *L)
{
    uint32_t region = (uint32_t)luaL_checkinteger(L, 1);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    sgl_job *job = sgldsl_job(L);
    sgldsl_graph *graph = sgldsl_tracing(L, "region");
    int depth = job->depth, count;
    const char *scope = sgldsl_frame_now(job)->scope;
    lua_pushstring(L, scope);
    sgldsl_enter_frame(L, graph, lua_tostring(L, -1), -1);
    sgldsl_check(L, sgl_region_begin(graph->graph, region));
    lua_pushvalue(L, 2);
    lua_call(L, 0, 1);
    sgl_value *values = read_list(L, lua_gettop(L), "region", graph, &count);
    sgldsl_grow(L, graph, count);
    sgldsl_check(L, sgl_region_end(graph->graph, values, count));
    sgldsl_leave_frames(L, depth);
    return 0;
}

/* (dtype, dims) -> one more parameter of the region that was begun last */
int sgldsl_core_parameter(lua_State *L)
{
    sgl_type type = { .dtype = sgldsl_dtype_argument(L, 1, "parameter") };
    sgldsl_read_dims(L, 2, "parameter", &type);
    sgldsl_graph *graph = sgldsl_tracing(L, "parameter");
    sgl_value value;
    sgldsl_grow(L, graph, 1);
    sgldsl_check(L, sgl_region_parameter(graph->graph, &type, &value));
    sgldsl_push_tensor(L, graph, value);
    return 1;
}

/* (op, list of tensors, attributes, first region, number of results) -> list of tensors */
int sgldsl_core_emit_regions(lua_State *L)
{
    const char *op = luaL_checkstring(L, 1);
    sgl_attr converted[SGLDSL_ATTRS];
    int64_t cells = 0;
    int count, result_count = 0;
    luaL_checktype(L, 3, LUA_TTABLE);
    uint32_t first = (uint32_t)luaL_checkinteger(L, 4);
    lua_Integer capacity = luaL_checkinteger(L, 5);
    if (capacity < 0 || capacity > INT32_MAX / 2) sgldsl_error(L, "%s: too many results", op);
    lua_settop(L, 5);
    sgldsl_graph *graph = sgldsl_tracing(L, op);
    sgl_value *values = read_list(L, 2, op, graph, &count);
    sgl_value *results = sgldsl_scratch_get(L, SCRATCH_RESULTS, ((size_t)capacity + 1) * sizeof *results);
    int attr_count = sgldsl_attrs(L, op, 3, converted, &cells);
    sgldsl_grow(L, graph, 1 + count + capacity);
    sgldsl_check(L, sgl_emit_regions(graph->graph, op, values, count, converted, attr_count, first, results,
                                     (int)capacity, &result_count));
    lua_createtable(L, result_count, 0);
    for (int i = 0; i < result_count; i++) {
        sgldsl_push_tensor(L, graph, results[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}
