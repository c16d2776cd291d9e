/* padding.c -- dims with buckets from Lua: what stdlib/dim.lua and the layers declare and ask of a graph's padding.
 *
 * Comes in: calls within a trace (padding_compare: after it). Goes out: notes on the graph, answers, errors at the line of
 * the op that lets padding in. */
#include <math.h>

#include "dsl/dsl.h"

static int integer_argument(lua_State *L, int index)
{
    lua_Integer value = luaL_checkinteger(L, index);
    luaL_argcheck(L, value >= -1 && value <= SGL_MAX_RANK, index, "no dimension");
    return (int)value;
}

/* (tensor, dim, axis, rows, content or nil, computed): along `axis` runs the dim; rows -1: there is one row */
int sgldsl_core_padding(lua_State *L)
{
    sgldsl_graph *graph = sgldsl_tracing(L, "dim");
    const sgldsl_tensor *tensor = sgldsl_check_tensor(L, 1, "dim", graph);
    const char *dim = sgldsl_name(L, 2, "dim");
    int axis = integer_argument(L, 3), rows = integer_argument(L, 4);
    double content = lua_isnil(L, 5) ? (double)NAN : luaL_checknumber(L, 5);
    sgldsl_grow(L, graph, 1);
    sgldsl_check(L, sgl_padding_declare(graph->graph, tensor->value, dim, axis, rows, content, lua_toboolean(L, 6)));
    return 0;
}

/* (parameter, tensor): a loop's parameter begins as the tensor */
int sgldsl_core_padding_like(lua_State *L)
{
    sgldsl_graph *graph = sgldsl_tracing(L, "dim");
    const sgldsl_tensor *parameter = sgldsl_check_tensor(L, 1, "dim", graph);
    const sgldsl_tensor *first = sgldsl_check_tensor(L, 2, "dim", graph);
    sgldsl_grow(L, graph, 1);
    sgldsl_check(L, sgl_padding_like(graph->graph, parameter->value, first->value));
    return 0;
}

/* (place, dim, reverse) */
int sgldsl_core_padding_turn(lua_State *L)
{
    sgldsl_graph *graph = sgldsl_tracing(L, "dim");
    const sgldsl_tensor *place = sgldsl_check_tensor(L, 1, "dim", graph);
    sgldsl_grow(L, graph, 1);
    sgldsl_check(L, sgl_padding_turn(graph->graph, place->value, sgldsl_name(L, 2, "dim"), lua_toboolean(L, 3)));
    return 0;
}

/* (parameter, dim) */
int sgldsl_core_padding_stack(lua_State *L)
{
    sgldsl_graph *graph = sgldsl_tracing(L, "dim");
    const sgldsl_tensor *parameter = sgldsl_check_tensor(L, 1, "dim", graph);
    sgldsl_grow(L, graph, 1);
    sgldsl_check(L, sgl_padding_stack(graph->graph, parameter->value, sgldsl_name(L, 2, "dim")));
    return 0;
}

/* (tensor, dim, axis) -> whether the dim runs along it in order, whether it is made one with others there */
int sgldsl_core_padded(lua_State *L)
{
    int found = 0;
    sgldsl_graph *graph = sgldsl_tracing(L, "dim");
    const sgldsl_tensor *tensor = sgldsl_check_tensor(L, 1, "dim", graph);
    const char *dim = sgldsl_name(L, 2, "dim");
    sgldsl_check(L, sgl_padding_find(graph->graph, tensor->value, dim, integer_argument(L, 3), &found));
    lua_pushboolean(L, found == 1);
    lua_pushboolean(L, found == 2);
    return 2;
}

static sgldsl_graph *check_graph(lua_State *L, int index)
{
    sgldsl_graph *graph = sgldsl_to_graph(L, index);
    luaL_argcheck(L, graph != NULL && graph->graph != NULL, index, "no graph");
    return graph;
}

/* (graph): raises where an output depends on padding */
int sgldsl_core_padding_check(lua_State *L)
{
    sgldsl_check(L, sgl_padding_check(check_graph(L, 1)->graph));
    return 0;
}

/* (graph, the same with another bucket of the dim, dim): raises where they differ in more than extents */
int sgldsl_core_padding_compare(lua_State *L)
{
    const sgldsl_graph *graph = check_graph(L, 1), *other = check_graph(L, 2);
    sgldsl_check(L, sgl_padding_compare(graph->graph, other->graph, sgldsl_name(L, 3, "dim")));
    return 0;
}
