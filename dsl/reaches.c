/* reaches.c -- core.reaches(of, list): whether a gradient of `of` comes to any tensor of the list.
 *
 * Comes in: tensors of the graph being traced. Goes out: a boolean. Nothing is emitted. */
#include "dsl/dsl.h"

enum { SCRATCH_VALUES = 1 };

int sgldsl_core_reaches(lua_State *L)
{
    lua_settop(L, 2);
    sgldsl_graph *graph = sgldsl_tracing(L, "reaches");
    const sgldsl_tensor *of = sgldsl_check_tensor(L, 1, "reaches", graph);
    luaL_checktype(L, 2, LUA_TTABLE);
    int count = (int)lua_rawlen(L, 2), reached = 0;
    sgl_value *wrt = sgldsl_scratch_get(L, SCRATCH_VALUES, (size_t)(count + 1) * sizeof *wrt);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        wrt[i] = sgldsl_check_tensor(L, -1, "reaches", graph)->value;
        lua_pop(L, 1);
    }
    if (count > 0) sgldsl_check(L, sgl_reaches(graph->graph, of->value, wrt, count, &reached));
    lua_pushboolean(L, reached);
    return 1;
}
