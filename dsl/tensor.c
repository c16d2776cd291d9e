/* tensor.c -- tensors as Lua sees them: values of a graph, with operators.
 *
 * A tensor is a userdata of a value's id and its graph, which its one user value keeps alive. Comes in: operands from Lua.
 * Goes out: new tensors by way of emit.c, or an error that says what to write instead: a comparison cannot give Lua the
 * truth of a number that is not there yet.
 * Odd invariant: a graph's userdata may outlive its graph (a trace that failed), and then says so. */
#include <math.h>
#include <string.h>

#include "dsl/dsl.h"

/* ---- userdata --------------------------------------------------------------------------------------------------- */

static void *to_userdata(lua_State *L, int index, const void *metatable)
{
    void *data = lua_touserdata(L, index);
    if (data == NULL || !lua_getmetatable(L, index)) return NULL;
    bool same = lua_topointer(L, -1) == metatable;
    lua_pop(L, 1);
    return same ? data : NULL;
}

sgldsl_tensor *sgldsl_to_tensor(lua_State *L, int index)
{
    return to_userdata(L, index, sgldsl_job(L)->tensor_metatable);
}

sgldsl_graph *sgldsl_to_graph(lua_State *L, int index) { return to_userdata(L, index, sgldsl_job(L)->graph_metatable); }

void sgldsl_push_tensor(lua_State *L, sgldsl_graph *graph, sgl_value value)
{
    sgldsl_tensor *tensor = lua_newuserdatauv(L, sizeof *tensor, 1);
    tensor->graph = graph;
    tensor->value = value;
    const sgl_job *job = graph->job;
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->living_reference);
    lua_rawgeti(L, -1, graph->serial);
    lua_setiuservalue(L, -3, 1);
    lua_pop(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, job->tensor_reference);
    lua_setmetatable(L, -2);
}

/* ---- types ----------------------------------------------------------------------------------------------------------- */

bool sgldsl_is_float(sgl_dtype dtype) { return dtype <= SGL_F8E5M2; }

void sgldsl_type_of(lua_State *L, const sgldsl_tensor *tensor, const char *what, sgl_type *type)
{
    if (tensor->graph->graph == NULL) sgldsl_error(L, "%s: the tensor's graph '%s' is gone", what, tensor->graph->name);
    sgldsl_check(L, sgl_value_type(tensor->graph->graph, tensor->value, type));
}

static int tensor_tostring(lua_State *L)
{
    const sgldsl_tensor *tensor = sgldsl_to_tensor(L, 1);
    if (tensor == NULL) return luaL_typeerror(L, 1, "tensor");
    sgl_type type;
    char text[SGLDSL_TYPE_TEXT];
    if (tensor->graph->graph == NULL) {
        lua_pushfstring(L, "tensor of the graph '%s', which is gone", tensor->graph->name);
    } else {
        sgldsl_check(L, sgl_value_type(tensor->graph->graph, tensor->value, &type));
        lua_pushstring(L, sgldsl_type_text(&type, text));
    }
    return 1;
}

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------- */

static int binary(lua_State *L, const char *op) { return sgldsl_emit(L, op, 1, 2, 0); }

static int tensor_add(lua_State *L) { return binary(L, "add"); }
static int tensor_sub(lua_State *L) { return binary(L, "sub"); }
static int tensor_mul(lua_State *L) { return binary(L, "mul"); }
static int tensor_mod(lua_State *L) { return binary(L, "remainder"); }
static int tensor_pow(lua_State *L) { return binary(L, "pow"); }
static int tensor_unm(lua_State *L) { return sgldsl_emit(L, "neg", 1, 1, 0); }

/* No operand is a float: neither a tensor of a float dtype nor a Lua float. */
static bool all_integers(lua_State *L, const char *what)
{
    for (int i = 1; i <= 2; i++) {
        const sgldsl_tensor *tensor = sgldsl_to_tensor(L, i);
        sgl_type type = { .dtype = SGL_I32 };
        if (tensor != NULL) sgldsl_type_of(L, tensor, what, &type);
        if (sgldsl_is_float(type.dtype) || (tensor == NULL && !lua_isinteger(L, i))) return false;
    }
    return true;
}

/* 7 / 2 is 3.5 in Lua, and so it is for integer tensors; f32, as a Lua float beside them would make it. */
static int tensor_div(lua_State *L)
{
    if (all_integers(L, "div")) {
        for (int i = 1; i <= 2; i++) {
            if (sgldsl_to_tensor(L, i) == NULL) continue;
            lua_createtable(L, 0, 1);
            lua_pushliteral(L, "f32");
            lua_setfield(L, -2, "to");
            sgldsl_emit(L, "cast", i, 1, lua_gettop(L));
            lua_replace(L, i);
            lua_settop(L, 2);
        }
    }
    return binary(L, "div");
}

static int tensor_idiv(lua_State *L)
{
    bool integers = all_integers(L, "div");
    binary(L, "div"); /* of integers this is the floor already */
    return integers ? 1 : sgldsl_emit(L, "floor", lua_gettop(L), 1, 0);
}

/* ---- what a tensor cannot do ------------------------------------------------------------------------------------------------ */

/* Of a > b Lua tells b < a. */
static int refuse_comparison(lua_State *L, const char *sign, const char *turned, const char *op)
{
    return sgldsl_error(
        L,
        "'%s' and '%s' of tensors have no answer while a graph is traced: use sgl.%s(a, b), which gives a bool tensor, "
        "with sgl.select(condition, yes, no) or sgl.cond(p, yes, no) in place of `if`, sgl.while_loop of `while`",
        sign, turned, op);
}

static int tensor_lt(lua_State *L) { return refuse_comparison(L, "<", ">", "less"); }
static int tensor_le(lua_State *L) { return refuse_comparison(L, "<=", ">=", "less_equal"); }

static int tensor_eq(lua_State *L)
{
    return sgldsl_error(
        L, "'==' of tensors has no answer while a graph is traced: use sgl.equal(a, b) for their elements, "
           "rawequal(a, b) to ask whether they are one tensor");
}

static int tensor_concat(lua_State *L)
{
    return sgldsl_error(L,
                        "'..' joins texts, not tensors: use sgl.concat({ a, b }, axis), or tostring(x) in a message");
}

static int tensor_len(lua_State *L)
{
    return sgldsl_error(L,
                        "'#' is not the size of a tensor: use x:shape(axis) for an extent, x:rank() for their number");
}

static int tensor_call(lua_State *L)
{
    return sgldsl_error(L, "a tensor is not a function; is an operator missing before '('?");
}

static int tensor_newindex(lua_State *L)
{
    return sgldsl_error(L, "a tensor cannot be changed: ops such as sgl.dynamic_update give a new one");
}

/* ---- graphs --------------------------------------------------------------------------------------------------------------------- */

static int graph_gc(lua_State *L)
{
    sgldsl_graph *graph = sgldsl_to_graph(L, 1);
    if (graph == NULL || graph->graph == NULL) return 0;
    sgl_graph_free(graph->graph);
    graph->graph = NULL;
    graph->job->units -= graph->units;
    return 0;
}

static int graph_tostring(lua_State *L)
{
    const sgldsl_graph *graph = sgldsl_to_graph(L, 1);
    if (graph == NULL) return luaL_typeerror(L, 1, "graph");
    lua_pushfstring(L, "graph '%s'%s", graph->name, graph->graph == NULL ? ", which is gone" : "");
    return 1;
}

/* ---- metatables ------------------------------------------------------------------------------------------------------------------ */

/* What getmetatable shows a script is a text, so the metatable itself stays out of its reach. */
static const void *new_metatable(lua_State *L, const void *key, const char *name, const luaL_Reg *methods)
{
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__metatable");
    const void *identity = lua_topointer(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
    return identity;
}

void sgldsl_open_tensors(lua_State *L)
{
    static const luaL_Reg tensors[] = {
        { "__add", tensor_add },
        { "__sub", tensor_sub },
        { "__mul", tensor_mul },
        { "__div", tensor_div },
        { "__idiv", tensor_idiv },
        { "__mod", tensor_mod },
        { "__pow", tensor_pow },
        { "__unm", tensor_unm },
        { "__lt", tensor_lt },
        { "__le", tensor_le },
        { "__eq", tensor_eq },
        { "__concat", tensor_concat },
        { "__len", tensor_len },
        { "__call", tensor_call },
        { "__newindex", tensor_newindex },
        { "__tostring", tensor_tostring },
        { NULL, NULL },
    };
    static const luaL_Reg graphs[] = { { "__gc", graph_gc }, { "__tostring", graph_tostring }, { NULL, NULL } };
    sgl_job *job = sgldsl_job(L);
    job->tensor_metatable = new_metatable(L, &sgldsl_key_tensors, "tensor", tensors);
    job->graph_metatable = new_metatable(L, &sgldsl_key_graphs, "graph", graphs);
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    job->living_reference = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_createtable(L, SGLDSL_FRAMES, 0); /* never grows: to enter and leave frames asks for no memory */
    job->frame_reference = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_tensors);
    job->tensor_reference = luaL_ref(L, LUA_REGISTRYINDEX);
}
