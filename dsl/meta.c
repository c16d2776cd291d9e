/* meta.c -- sgl_job_meta: what a checkpoint keeps of a script, as JSON.
 *
 * Goes out: { "script": name, "text": text, "settings": { key: value } }. The texts of modules that the script requires from
 * beside it stand among the settings as "require.NAME", so that sgl_load_text(script, text, settings) loads the whole again
 * with no file there. Written by hand: a JSON library would allocate past the host's allocator.
 * Odd invariant: scripts, modules and settings were checked to be UTF-8 when they came, so everything here can be written. */
#include <string.h>

#include "dsl/dsl.h"

/* The text at `index` in quotes. */
static void add_string(lua_State *L, luaL_Buffer *json, int index)
{
    size_t bytes;
    const char *text = lua_tolstring(L, index, &bytes);
    size_t quoted = sgl_json_quote(text, bytes, NULL, 0);
    (void)sgl_json_quote(text, bytes, luaL_prepbuffsize(json, quoted), quoted);
    luaL_addsize(json, quoted);
}

/* Puts the modules that were read from files among a copy of the settings: { number = key, key = text }. */
static void push_all_settings(lua_State *L)
{
    lua_newtable(L);
    int all = lua_gettop(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_settings);
    lua_Integer count = 0;
    for (lua_Integer i = 1; lua_rawgeti(L, all + 1, i) == LUA_TSTRING; i++) {
        if (strcmp(lua_tostring(L, -1), "plan.kept") == 0) { /* of this run alone */
            lua_pop(L, 1);
            continue;
        }
        lua_pushvalue(L, -1);
        lua_rawseti(L, all, ++count);
        lua_pushvalue(L, -1);
        lua_rawget(L, all + 1);
        lua_rawset(L, all);
    }
    lua_settop(L, all);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_texts);
    for (lua_Integer i = 1; lua_rawgeti(L, all + 1, i) == LUA_TSTRING; i += 2) {
        lua_pushfstring(L, "require.%s", lua_tostring(L, -1));
        lua_pushvalue(L, -1);
        bool given = lua_rawget(L, all) != LUA_TNIL;
        lua_pop(L, 1);
        if (!given) {
            lua_pushvalue(L, -1);
            lua_rawseti(L, all, ++count);
            lua_rawgeti(L, all + 1, i + 1);
            lua_rawset(L, all);
        }
        lua_settop(L, all + 1);
    }
    lua_settop(L, all);
}

static int make_meta(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_script);
    int script = lua_gettop(L);
    if (lua_isnil(L, script)) {
        lua_pushliteral(L, "this is a console without a script: there is nothing to keep");
        return lua_error(L);
    }
    lua_getfield(L, script, "name");
    lua_getfield(L, script, "text");
    push_all_settings(L);
    int name = script + 1, text = script + 2, settings = script + 3;
    lua_Integer count = (lua_Integer)lua_rawlen(L, settings);
    luaL_checkstack(L, 2 * (int)count + 20, "too many settings");
    for (lua_Integer i = 1; i <= count; i++) { /* below the buffer, which wants the top of the stack for itself */
        lua_rawgeti(L, settings, i);
        lua_pushvalue(L, -1);
        lua_rawget(L, settings);
    }
    luaL_Buffer json;
    luaL_buffinit(L, &json);
    luaL_addstring(&json, "{\"script\": ");
    add_string(L, &json, name);
    luaL_addstring(&json, ", \"text\": ");
    add_string(L, &json, text);
    luaL_addstring(&json, ", \"settings\": {");
    for (lua_Integer i = 0; i < count; i++) {
        luaL_addstring(&json, i > 0 ? ", " : "");
        add_string(L, &json, settings + 1 + 2 * (int)i);
        luaL_addstring(&json, ": ");
        add_string(L, &json, settings + 2 + 2 * (int)i);
    }
    luaL_addstring(&json, "}}");
    luaL_pushresult(&json);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_meta);
    return 0;
}

sgl_status sgl_job_meta(sgl_job *job, const char **json)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (json == NULL) return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_meta: there is no place for the text");
    *json = NULL;
    sgl_status status = sgldsl_enter(job, make_meta, NULL);
    if (status != SGL_OK) return status;
    lua_rawgetp(job->L, LUA_REGISTRYINDEX, &sgldsl_key_meta);
    *json = lua_tostring(job->L, -1); /* the registry keeps it until the next call */
    lua_settop(job->L, 0);
    return SGL_OK;
}
