/* signature.c -- core.exact(functions, library): calls with more arguments than a function has parameters are refused.
 *
 * Lua drops what a call gives beyond the parameters: x:softmax(0, 1) would be softmax along 0, and say nothing. Comes in: a
 * table of the stdlib's functions and the name that scripts know the table by. Goes out: the same table, each Lua function
 * of it behind a check that knows its parameters by their names, from Lua itself: no signature is written twice.
 * Odd invariant: nil arguments past the end are let through, since nothing is lost with them. */
#include <string.h>

#include "dsl/dsl.h"

/* Upvalues of the check. */
enum { FUNCTION = 1, NAME, LIBRARY, PARAMETERS, UPVALUES = PARAMETERS };

/* Pushes "axis, keep": the names of parameters first .. last of the function, from 1 on. */
static void push_parameters(lua_State *L, int first, int last)
{
    luaL_Buffer names;
    luaL_buffinit(L, &names);
    for (int i = first; i <= last; i++) {
        lua_pushvalue(L, lua_upvalueindex(FUNCTION));
        const char *name = lua_getlocal(L, NULL, i); /* of the function on the top of the stack, which it pops */
        luaL_addstring(&names, i > first ? ", " : "");
        luaL_addstring(&names, name != NULL ? name : "?");
    }
    luaL_pushresult(&names);
}

static int refuse(lua_State *L, int given, int parameters)
{
    const char *name = lua_tostring(L, lua_upvalueindex(NAME)), *library = lua_tostring(L, lua_upvalueindex(LIBRARY));
    bool method = strcmp(library, "sgl") == 0 && parameters > 0 && sgldsl_to_tensor(L, 1) != NULL;
    int more = given - parameters;
    push_parameters(L, method ? 2 : 1, parameters);
    const char *names = lua_tostring(L, -1);
    if (strcmp(names, "options") == 0 && !method)
        return sgldsl_error(L, "%s takes one table, its options by name; got %d more: it is written %s.%s { ... }",
                            name, more, library, name);
    if (!method) {
        return sgldsl_error(L, "%s takes %s; got %d more: it is written %s.%s(%s)", name,
                            parameters > 0 ? names : "no argument", more, library, name, names);
    }
    push_parameters(L, 1, 1);
    return sgldsl_error(L, "%s takes %s besides the tensor; got %d more: it is written %s:%s(%s)", name,
                        parameters > 1 ? names : "no argument", more, lua_tostring(L, -1), name, names);
}

static int finish(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    (void)context;
    return lua_gettop(L);
}

static int call(lua_State *L)
{
    int parameters = (int)lua_tointeger(L, lua_upvalueindex(PARAMETERS)), given = lua_gettop(L);
    while (given > parameters && lua_isnil(L, given)) given--;
    if (given > parameters) return refuse(L, given, parameters);
    lua_settop(L, given);
    lua_pushvalue(L, lua_upvalueindex(FUNCTION));
    lua_insert(L, 1);
    lua_callk(L, given, LUA_MULTRET, 0, finish);
    return finish(L, LUA_OK, 0);
}

/* Puts the function on the top of the stack behind a check, unless it takes any number of arguments. */
static void guard(lua_State *L, const char *name, int library)
{
    lua_Debug function;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">u", &function); /* of a function of C: any number */
    if (function.isvararg) return;
    lua_pushstring(L, name);
    lua_pushvalue(L, library);
    lua_pushinteger(L, function.nparams);
    lua_pushcclosure(L, call, UPVALUES);
}

int sgldsl_core_exact(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_settop(L, 3)) {
        if (lua_type(L, 3) != LUA_TSTRING || !lua_isfunction(L, 4)) continue;
        guard(L, lua_tostring(L, 3), 2);
        lua_pushvalue(L, 3);
        lua_insert(L, -2);
        lua_rawset(L, 1);
    }
    return 0;
}
