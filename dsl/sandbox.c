/* sandbox.c -- what a script finds: the language and its harmless libraries, none of which can hang, exhaust or leave the
 * host.
 *
 * Comes in: an empty Lua state. Goes out: its globals. Left out: io, debug, package, os but for the clock, dofile, loadfile,
 * string.dump, bytecode. Made anew, because the original can run for ever inside C, where no hook looks, or runs Lua where
 * hooks are off: patterns (pattern.c), pcall, xpcall and coroutines (coroutine.c), parts of table and pairs (tables.c),
 * string.rep, setmetatable (no finalizers), load, print, collectgarbage, require (require.c).
 * Odd invariant: math.random starts from the same seed in every run, as pairs goes in the same order, so that a script
 * traces to the same graph every time. */
#include <string.h>

#include <lualib.h>

#include "dsl/dsl.h"

enum { PRINT_COST = 1000, LINE_BYTES = 900 };

/* ---- base ------------------------------------------------------------------------------------------------------ */

static int base_setmetatable(lua_State *L)
{
    int kind = lua_type(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, kind == LUA_TNIL || kind == LUA_TTABLE, 2, "nil or table");
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
    if (kind == LUA_TTABLE) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL) return luaL_error(L, "setmetatable: scripts have no finalizers (__gc)");
    }
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* The log takes lines of bounded length. */
static void log_lines(sgl_vm *vm, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    do {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (line_end == NULL) line_end = end;
        size_t length = (size_t)(line_end - text);
        if (length > LINE_BYTES) {
            length = LINE_BYTES;
            while (length > 1 && ((unsigned char)text[length] & 0xC0) == 0x80) length--; /* not within a character */
            line_end = text + length - 1;
        }
        sgl_log(vm, SGL_LOG_INFO, "%.*s", (int)length, text);
        text = line_end + 1;
    } while (text < end);
}

static int base_print(lua_State *L)
{
    int count = lua_gettop(L);
    luaL_Buffer line;
    luaL_buffinit(L, &line);
    for (int i = 1; i <= count; i++) {
        if (i > 1) luaL_addchar(&line, '\t');
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&line);
    }
    luaL_pushresult(&line);
    size_t bytes;
    const char *text = lua_tolstring(L, -1, &bytes);
    sgldsl_charge(L, PRINT_COST + (int64_t)bytes);
    log_lines(sgldsl_job(L)->vm, text, bytes);
    return 0;
}

/* load(text, name, mode, env): text only, whatever the mode says. */
static int base_load(lua_State *L)
{
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    const char *name = luaL_optstring(L, 2, "=(load)");
    bool with_environment = lua_gettop(L) >= 4;
    sgldsl_charge(L, (int64_t)bytes);
    if (strlen(name) > 60 || sgldsl_is_stdlib(name)) name = "=(load)";
    if (bytes > 0 && *text == LUA_SIGNATURE[0]) {
        lua_pushnil(L);
        lua_pushliteral(L, "load: binary chunks are not for scripts");
        return 2;
    }
    if (sgldsl_load_chunk(L, text, bytes, name) != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (with_environment) {
        lua_pushvalue(L, 4);
        if (lua_setupvalue(L, -2, 1) == NULL) lua_pop(L, 1);
    }
    return 1;
}

static int base_collectgarbage(lua_State *L)
{
    const char *what = luaL_optstring(L, 1, "collect");
    sgl_job *job = sgldsl_job(L);
    if (strcmp(what, "count") == 0) {
        lua_pushnumber(L, (double)job->bytes / 1024);
        return 1;
    }
    if (strcmp(what, "collect") != 0)
        return luaL_error(L, "collectgarbage: only 'collect' and 'count' are for scripts");
    sgldsl_charge(L, 1000 + job->bytes / 8);
    lua_gc(L, LUA_GCCOLLECT);
    lua_pushinteger(L, 0);
    return 1;
}

/* ---- string.rep -------------------------------------------------------------------------------------------------- */

static int string_rep(lua_State *L)
{
    size_t length, between;
    const char *text = luaL_checklstring(L, 1, &length);
    lua_Integer count = luaL_checkinteger(L, 2);
    const char *separator = luaL_optlstring(L, 3, "", &between);
    if (count <= 0 || length + between == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    uint64_t most = (uint64_t)sgldsl_job(L)->limits.memory_bytes;
    if ((uint64_t)count > most / (length + between)) return luaL_error(L, "string.rep: the result is too long");
    luaL_Buffer result;
    char *p = luaL_buffinitsize(L, &result, (size_t)count * (length + between));
    const char *begin = p;
    for (lua_Integer i = 0; i < count; i++) {
        memcpy(p, text, length);
        p += length;
        if (i + 1 < count) {
            memcpy(p, separator, between);
            p += between;
        }
    }
    luaL_pushresultsize(&result, (size_t)(p - begin));
    return 1;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static void drop(lua_State *L, const char *library, const char *const *names)
{
    lua_getglobal(L, library);
    for (; *names != NULL; names++) {
        lua_pushnil(L);
        lua_setfield(L, -2, *names);
    }
    lua_pop(L, 1);
}

static void open_libraries(lua_State *L)
{
    static const luaL_Reg libraries[] = { { LUA_GNAME, luaopen_base },         { LUA_STRLIBNAME, luaopen_string },
                                          { LUA_MATHLIBNAME, luaopen_math },   { LUA_UTF8LIBNAME, luaopen_utf8 },
                                          { LUA_TABLIBNAME, luaopen_table },   { LUA_OSLIBNAME, luaopen_os },
                                          { LUA_COLIBNAME, luaopen_coroutine } };
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    static const char *const base[] = { "dofile", "loadfile", "warn", NULL };
    static const char *const os[] = { "execute", "exit", "getenv", "remove", "rename", "setlocale", "tmpname", NULL };
    static const char *const string[] = { "dump", NULL };
    drop(L, LUA_GNAME, base);
    drop(L, LUA_OSLIBNAME, os);
    drop(L, LUA_STRLIBNAME, string);
}

static void seed_random(lua_State *L)
{
    lua_getglobal(L, LUA_MATHLIBNAME);
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, 0);
    lua_call(L, 1, 0);
    lua_pop(L, 1);
}

/* The stdlib has globals of its own, so that a script which changes `type` or `table` breaks nothing but itself. */
static void copy_globals(lua_State *L)
{
    lua_newtable(L);
    lua_pushglobaltable(L);
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        if (lua_type(L, -1) == LUA_TTABLE && !lua_rawequal(L, -1, -4)) {
            lua_newtable(L);
            lua_pushnil(L);
            while (lua_next(L, -3) != 0) {
                lua_pushvalue(L, -2);
                lua_insert(L, -2);
                lua_rawset(L, -4);
            }
            lua_remove(L, -2);
        }
        lua_rawset(L, -5);
    }
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_stdlib);
}

static void new_registry_tables(lua_State *L)
{
    static const char *const keys[] = { &sgldsl_key_signatures, &sgldsl_key_settings, &sgldsl_key_fields,
                                        &sgldsl_key_modules,    &sgldsl_key_texts,    &sgldsl_key_traced };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lua_newtable(L);
        lua_rawsetp(L, LUA_REGISTRYINDEX, keys[i]);
    }
}

int sgldsl_open_sandbox(lua_State *L)
{
    static const luaL_Reg base[] = { { "setmetatable", base_setmetatable },
                                     { "print", base_print },
                                     { "load", base_load },
                                     { "collectgarbage", base_collectgarbage },
                                     { NULL, NULL } };
    open_libraries(L);
    seed_random(L);
    lua_pushglobaltable(L);
    luaL_setfuncs(L, base, 0);
    lua_getfield(L, -1, LUA_STRLIBNAME);
    lua_pushcfunction(L, string_rep);
    lua_setfield(L, -2, "rep");
    lua_settop(L, 0);
    sgldsl_open_patterns(L);
    sgldsl_open_tables(L);
    sgldsl_open_coroutines(L);
    sgldsl_open_require(L);
    copy_globals(L);
    new_registry_tables(L);
    sgldsl_open_tensors(L);
    return 0;
}
