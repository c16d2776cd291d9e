/* core.c -- the module `sgl.core`: all that the stdlib has of C, gathered in one table.
 *
 * Comes in: calls of the stdlib (a script may make them too: nothing here trusts its arguments). Goes out: what the files
 * named below make, and the small answers that have no file of their own: hashes, dtypes, extents, errors, the op table. */
#include <string.h>

#include "dsl/dsl.h"

/* ---- what a tensor is ----------------------------------------------------------------------------------------------- */

static void read_type(lua_State *L, const char *what, sgl_type *type)
{
    const sgldsl_tensor *tensor = sgldsl_to_tensor(L, 1);
    if (tensor == NULL) sgldsl_error(L, "%s: %s value where a tensor must be", what, sgldsl_typename(L, 1));
    sgldsl_type_of(L, tensor, what, type);
}

static int core_dtype(lua_State *L)
{
    sgl_type type;
    read_type(L, "dtype", &type);
    lua_pushstring(L, sgl_dtype_name(type.dtype));
    return 1;
}

static int core_rank(lua_State *L)
{
    sgl_type type;
    read_type(L, "rank", &type);
    lua_pushinteger(L, type.rank);
    return 1;
}

static int core_dims(lua_State *L)
{
    sgl_type type;
    read_type(L, "dims", &type);
    lua_createtable(L, type.rank, 0);
    for (int i = 0; i < type.rank; i++) {
        lua_pushinteger(L, type.dims[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int core_is_tensor(lua_State *L)
{
    lua_pushboolean(L, sgldsl_to_tensor(L, 1) != NULL);
    return 1;
}

/* What other libraries call it; NULL where none does. */
static const char *dtype_elsewhere(const char *name)
{
    static const char *const names[][2] = {
        { "float64", "f64" },
        { "double", "f64" },
        { "float32", "f32" },
        { "float", "f32" },
        { "half", "f16" },
        { "float16", "f16" },
        { "bfloat16", "bf16" },
        { "int64", "i64" },
        { "long", "i64" },
        { "int32", "i32" },
        { "int", "i32" },
        { "int16", "i16" },
        { "int8", "i8" },
        { "uint8", "u8" },
        { "float8_e4m3fn", "f8e4m3" },
        { "float8_e5m2", "f8e5m2" },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i][0]) == 0) return names[i][1];
    }
    return NULL;
}

sgl_dtype sgldsl_dtype_argument(lua_State *L, int index, const char *what)
{
    sgl_dtype dtype = SGL_F32;
    const char *name = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : NULL;
    if (name == NULL)
        sgldsl_error(L, "%s: the dtype is a %s value, it must be a string", what, sgldsl_typename(L, index));
    if (sgl_dtype_from_name(name, &dtype) == SGL_OK) return dtype;
    const char *meant = dtype_elsewhere(name);
    if (meant != NULL) sgldsl_error(L, "%s: there is no dtype '%s'; here it is '%s'", what, name, meant);
    lua_newtable(L);
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        lua_pushstring(L, sgl_dtype_name((sgl_dtype)i));
        lua_rawseti(L, -2, i + 1);
    }
    const char *nearest = sgldsl_nearest(L, name, -1);
    if (nearest != NULL) sgldsl_error(L, "%s: there is no dtype '%s'; did you mean '%s'?", what, name, nearest);
    sgldsl_error(L, "%s: there is no dtype '%s'", what, name);
    return dtype;
}

/* ---- small answers ------------------------------------------------------------------------------------------------------- */

/* FNV-1a, then the mixing of MurmurHash3, so that every bit of the key of a random op depends on every character. */
static int core_hash(lua_State *L)
{
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCDu;
    hash = (hash ^ hash >> 33) * 0xC4CEB9FE1A85EC53u;
    hash ^= hash >> 33;
    sgldsl_charge(L, (int64_t)bytes);
    lua_pushinteger(L, (lua_Integer)(hash >> 1));
    return 1;
}

/* (text): a warning for the host's log, with the script's line where one is on the stack */
static int core_warn(lua_State *L)
{
    const char *text = luaL_checkstring(L, 1);
    sgldsl_place place;
    sgldsl_where(L, 0, &place);
    if (place.line > 0)
        sgl_log(sgldsl_job(L)->vm, SGL_LOG_WARNING, "%s:%d: %s", place.file, place.line, text);
    else
        sgl_log(sgldsl_job(L)->vm, SGL_LOG_WARNING, "%s", text);
    return 0;
}

/* (name, what): raises where no dtype has the name */
static int core_check_dtype(lua_State *L)
{
    (void)sgldsl_dtype_argument(L, 1, luaL_checkstring(L, 2));
    return 0;
}

/* () -> "file:line" of the script, or nil; (function) -> where the script has it */
static int core_here(lua_State *L)
{
    if (lua_isfunction(L, 1)) {
        lua_Debug function;
        lua_pushvalue(L, 1);
        lua_getinfo(L, ">S", &function);
        if (function.linedefined <= 0 || sgldsl_is_stdlib(function.source)) return 0;
        const char *file = function.source[0] == '@' ? function.source + 1 : function.short_src;
        lua_pushfstring(L, "%s:%d", file, function.linedefined);
        return 1;
    }
    sgldsl_place place;
    sgldsl_where(L, 1, &place);
    if (place.line == 0) return 0;
    lua_pushfstring(L, "%s:%d", place.file, place.line);
    return 1;
}

/* (message, place): the place, of core.here, is told where no line of the script is on the stack */
static int core_error(lua_State *L)
{
    const char *message = luaL_checkstring(L, 1);
    sgldsl_place place;
    sgldsl_where(L, 1, &place);
    if (place.line > 0 || !lua_isstring(L, 2)) return sgldsl_error(L, "%s", message);
    return sgldsl_error(L, "%s: %s", lua_tostring(L, 2), message);
}

/* (name, names) -> "; did you mean 'x'?" with the nearest of the names, "" when none is near */
static int core_hint(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    sgldsl_charge(L, 100 * (int64_t)lua_rawlen(L, 2));
    const char *nearest = sgldsl_nearest(L, name, 2);
    if (nearest != NULL) {
        lua_pushfstring(L, "; did you mean '%s'?", nearest);
    } else {
        lua_pushliteral(L, "");
    }
    return 1;
}

/* () -> { name = { minimum, maximum, attrs, help } } */
static int core_ops(lua_State *L)
{
    lua_newtable(L);
    const char *name;
    for (int i = 0; (name = sgl_op_name(i)) != NULL; i++) {
        int minimum, maximum;
        const char *attrs;
        sgldsl_check(L, sgl_op_signature(sgldsl_job(L)->vm, name, &minimum, &maximum, &attrs));
        lua_createtable(L, 0, 4);
        lua_pushinteger(L, minimum);
        lua_setfield(L, -2, "minimum");
        lua_pushinteger(L, maximum);
        lua_setfield(L, -2, "maximum");
        lua_pushstring(L, attrs);
        lua_setfield(L, -2, "attrs");
        lua_pushstring(L, sgl_op_help(i));
        lua_setfield(L, -2, "help");
        lua_setfield(L, -2, name);
    }
    return 1;
}

/* (table): where tensors find their methods */
static int core_methods(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_tensors);
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "__index");
    return 0;
}

int sgldsl_open_core(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "trace", sgldsl_core_trace },
        { "input", sgldsl_core_input },
        { "fetch", sgldsl_core_fetch },
        { "update", sgldsl_core_update },
        { "recompute", sgldsl_core_recompute },
        { "emit", sgldsl_core_emit },
        { "constant", sgldsl_core_constant },
        { "grad", sgldsl_core_grad },
        { "reaches", sgldsl_core_reaches },
        { "padding", sgldsl_core_padding },
        { "padding_like", sgldsl_core_padding_like },
        { "padding_turn", sgldsl_core_padding_turn },
        { "padding_stack", sgldsl_core_padding_stack },
        { "padded", sgldsl_core_padded },
        { "padding_check", sgldsl_core_padding_check },
        { "padding_compare", sgldsl_core_padding_compare },
        { "regions", sgldsl_core_regions },
        { "region", sgldsl_core_region },
        { "parameter", sgldsl_core_parameter },
        { "emit_regions", sgldsl_core_emit_regions },
        { "scope", sgldsl_core_scope },
        { "hash", core_hash },
        { "dtype", core_dtype },
        { "dims", core_dims },
        { "rank", core_rank },
        { "is_tensor", core_is_tensor },
        { "error", core_error },
        { "warn", core_warn },
        { "here", core_here },
        { "check_dtype", core_check_dtype },
        { "ops", core_ops },
        { "hint", core_hint },
        { "settings", sgldsl_core_settings },
        { "declare", sgldsl_core_declare },
        { "methods", core_methods },
        { "exact", sgldsl_core_exact },
        { "job", sgldsl_core_job },
        { "eval", sgldsl_core_eval },
        { NULL, NULL },
    };
    luaL_newlib(L, functions);
    return 1;
}
