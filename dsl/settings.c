/* settings.c -- what a host sets (`--set key=value`) and what a script declares with sgl.config.
 *
 * Comes in: settings as texts, declarations of fields. Goes out: the settings for the stdlib, which converts them by the
 * type of a field's default; the fields, for sgl_job_setting; and an error for a setting that means nothing.
 * Odd invariant: the table of settings holds each text under its key and each key under its number, in the given order. */
#include <string.h>

#include "dsl/dsl.h"

static bool begins(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

/* ---- what the host set -------------------------------------------------------------------------------------------- */

void sgldsl_keep_settings(lua_State *L, const sgl_setting *settings, int count)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_settings);
    for (int i = 0; i < count; i++) {
        const char *key = settings[i].key, *value = settings[i].value;
        if (key == NULL || *key == '\0' || value == NULL) {
            sgldsl_job(L)->wrong_setting = true;
            sgldsl_error(L, "setting %d has no key or no value", i + 1);
        }
        sgldsl_check(L, sgldsl_check_text(sgldsl_job(L)->vm, key, key, strlen(key)));
        sgldsl_check(L, sgldsl_check_text(sgldsl_job(L)->vm, key, value, strlen(value)));
        if (lua_getfield(L, -1, key) == LUA_TNIL) { /* given twice, the last one counts */
            lua_pushstring(L, key);
            lua_rawseti(L, -3, (lua_Integer)lua_rawlen(L, -3) + 1);
        }
        lua_pop(L, 1);
        lua_pushstring(L, value);
        lua_setfield(L, -2, key);
    }
    lua_pop(L, 1);
}

/* () -> { key = text } */
int sgldsl_core_settings(lua_State *L)
{
    lua_newtable(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_settings);
    for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++) {
        if (begins(lua_tostring(L, -1), "require.")) { /* texts of modules (require.c) */
            lua_pop(L, 1);
            continue;
        }
        lua_pushvalue(L, -1);
        lua_rawget(L, -3);
        lua_rawset(L, -4);
    }
    lua_pop(L, 2);
    return 1;
}

/* ---- what the script declares --------------------------------------------------------------------------------------- */

/* Where the field stands in the list of fields, which is at `list`; behind its end when it is not there. */
static lua_Integer place_of(lua_State *L, int list, const char *key)
{
    lua_Integer at = 1;
    for (; lua_rawgeti(L, list, at) == LUA_TSTRING; at += 3) {
        bool same = strcmp(lua_tostring(L, -1), key) == 0;
        lua_pop(L, 1);
        if (same) return at;
    }
    lua_pop(L, 1);
    return at;
}

/* (key, type, value) */
int sgldsl_core_declare(lua_State *L)
{
    static const char *const types[] = { "integer", "number", "string", "boolean", NULL };
    lua_settop(L, 3);
    const char *key = sgldsl_name(L, 1, "config");
    luaL_checkoption(L, 2, NULL, types);
    switch (lua_type(L, 3)) {
    case LUA_TSTRING: lua_pushvalue(L, 3); break;
    case LUA_TNUMBER: sgldsl_push_number_text(L, 3); break;
    case LUA_TBOOLEAN: lua_pushstring(L, lua_toboolean(L, 3) ? "true" : "false"); break;
    default:
        sgldsl_error(L, "config: %s is a %s value; a field is a number, string or boolean", key, sgldsl_typename(L, 3));
    }
    lua_replace(L, 3);
    lua_settop(L, 3);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_fields);
    lua_Integer at = place_of(L, 4, key);
    lua_pushvalue(L, 1);
    lua_rawseti(L, 4, at);
    lua_pushvalue(L, 3);
    lua_rawseti(L, 4, at + 1);
    lua_pushvalue(L, 2);
    lua_rawseti(L, 4, at + 2);
    return 0;
}

/* ---- settings that mean nothing ------------------------------------------------------------------------------------------ */

/* Keys that are no fields of a script: the stdlib and require ask for them by name. */
static bool is_of_library(const char *key)
{
    return begins(key, "plan.") || begins(key, "job.") || begins(key, "dim.") || begins(key, "require.") ||
           strcmp(key, "data.path") == 0;
}

static void refuse_setting(lua_State *L, const char *script, const char *key, int fields)
{
    lua_newtable(L); /* names alone */
    int names = lua_gettop(L);
    luaL_Buffer list;
    luaL_buffinit(L, &list);
    for (lua_Integer at = 1, count = 0; lua_rawgeti(L, fields, at) == LUA_TSTRING; at += 3) {
        lua_pushvalue(L, -1);
        lua_rawseti(L, names, ++count);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    for (lua_Integer i = 1; lua_rawgeti(L, names, i) == LUA_TSTRING; i++) {
        if (i > 1) lua_pushfstring(L, ", %s", lua_tostring(L, -1));
        if (i > 1) lua_remove(L, -2);
        luaL_addvalue(&list);
    }
    lua_pop(L, 1);
    luaL_pushresult(&list);
    const char *nearest = sgldsl_nearest(L, key, names), *all = lua_tostring(L, -1);
    sgldsl_job(L)->wrong_setting = true;
    if (nearest != NULL) {
        lua_pushfstring(L, "setting '%s': %s has no such field; did you mean '%s'?", key, script, nearest);
    } else if (*all != '\0') {
        lua_pushfstring(L, "setting '%s': %s has no such field; its fields are: %s", key, script, all);
    } else {
        lua_pushfstring(L, "setting '%s': %s declares no fields with sgl.config", key, script);
    }
    lua_error(L);
}

void sgldsl_check_settings(lua_State *L, const char *script)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_settings);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_fields);
    int settings = lua_gettop(L) - 1, fields = settings + 1;
    for (lua_Integer i = 1; lua_rawgeti(L, settings, i) == LUA_TSTRING; i++) {
        const char *key = lua_tostring(L, -1);
        lua_Integer at = place_of(L, fields, key);
        bool declared = lua_rawgeti(L, fields, at) == LUA_TSTRING;
        lua_pop(L, 1);
        if (!declared && !is_of_library(key)) refuse_setting(L, script, key, fields);
        lua_pop(L, 1);
    }
    lua_settop(L, settings - 1);
}
