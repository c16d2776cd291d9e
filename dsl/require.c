/* require.c -- modules: `sgl.core` from C, `sgl` and `sgl.*` from the embedded stdlib, all others from beside the script.
 *
 * Comes in: a module's name. Goes out: its value, made once per job. `require "a.b"` reads a/b.lua in the script's own
 * folder and nowhere else. The texts of the script's modules are remembered, because a checkpoint keeps them; a setting
 * "require.NAME" (that is how they come back from a checkpoint) stands in for the file.
 * Odd invariant: while a module loads, its entry holds a mark, so that a circle is an error and no endless recursion. */
#include <ctype.h>
#include <string.h>

#include "dsl/dsl.h"
#include "dsl/stdlib.h"

static const char loading = 0; /* its address is the mark */

/* ---- the stdlib ---------------------------------------------------------------------------------------------- */

/* Does the path of an embedded module, "stdlib/nn/linear.lua", belong to the name "sgl.nn.linear"? */
static bool is_module_path(const char *path, const char *name)
{
    path += sizeof SGLDSL_STDLIB_PREFIX - 1;
    if (strcmp(name, "sgl") == 0) return strcmp(path, "sgl.lua") == 0;
    for (name += sizeof "sgl." - 1; *name != '\0'; name++, path++) {
        if (*path != (*name == '.' ? '/' : *name)) return false;
    }
    return strcmp(path, ".lua") == 0 || strcmp(path, "/init.lua") == 0;
}

static bool is_stdlib_name(const char *name) { return strcmp(name, "sgl") == 0 || strncmp(name, "sgl.", 4) == 0; }

/* A list of "sgl.nn.linear" and so on. */
static void push_stdlib_names(lua_State *L)
{
    lua_newtable(L);
    lua_Integer count = 0;
    for (const struct sgldsl_module *module = sgldsl_modules; module->name != NULL; module++) {
        const char *path = module->name + sizeof SGLDSL_STDLIB_PREFIX - 1;
        lua_pushfstring(L, strcmp(path, "sgl.lua") == 0 ? "%s" : "sgl.%s", path);
        luaL_gsub(L, lua_tostring(L, -1), "/init.lua", "");
        luaL_gsub(L, lua_tostring(L, -1), ".lua", "");
        luaL_gsub(L, lua_tostring(L, -1), "/", ".");
        lua_rawseti(L, -5, ++count);
        lua_pop(L, 3);
    }
}

/* Leaves the chunk on the stack. */
static void load_stdlib(lua_State *L, const char *name)
{
    for (const struct sgldsl_module *module = sgldsl_modules; module->name != NULL; module++) {
        if (!is_module_path(module->name, name)) continue;
        lua_pushfstring(L, "=%s", module->name);
        if (luaL_loadbufferx(L, module->text, module->bytes, lua_tostring(L, -1), "t") != LUA_OK) lua_error(L);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_stdlib);
        if (lua_setupvalue(L, -2, 1) == NULL) lua_pop(L, 1);
        lua_remove(L, -2);
        return;
    }
    push_stdlib_names(L);
    const char *nearest = sgldsl_nearest(L, name, -1);
    if (nearest != NULL) sgldsl_error(L, "require: there is no module '%s'; did you mean '%s'?", name, nearest);
    sgldsl_error(L, "require: there is no module '%s'", name);
}

/* ---- modules of the script --------------------------------------------------------------------------------------- */

static bool is_plain_name(const char *name)
{
    for (const char *p = name; *p != '\0'; p++) {
        bool letter = isalnum((unsigned char)*p) || *p == '_' || *p == '-';
        bool dot = *p == '.' && p > name && p[-1] != '.' && p[1] != '\0';
        if (!letter && !dot) return false;
    }
    return *name != '\0';
}

static void refuse_missing(lua_State *L, const char *name, const char *why)
{
    push_stdlib_names(L);
    const char *nearest = sgldsl_nearest(L, name, -1);
    if (nearest != NULL) sgldsl_error(L, "require: %s; did you mean '%s'?", why, nearest);
    sgldsl_error(L, "require: %s", why);
}

/* Pushes the file's text. */
static void push_file(lua_State *L, const char *name, const char *path)
{
    sgl_vm *vm = sgldsl_job(L)->vm;
    size_t bytes;
    sgl_status status = sgldsl_file_bytes(vm, path, &bytes);
    if (status == SGL_NOT_FOUND) {
        refuse_missing(L, name, lua_pushfstring(L, "there is no module '%s': no file %s", name, path));
    }
    sgldsl_check(L, status);
    char *text = sgldsl_scratch_get(L, 0, bytes + 1);
    sgldsl_check(L, sgldsl_file_read(vm, path, text, bytes));
    sgldsl_check(L, sgldsl_check_text(vm, path, text, bytes));
    lua_pushlstring(L, text, bytes);
}

/* Pushes the module's text, then "@" and its path. */
static void push_module_text(lua_State *L, const char *name)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_script);
    bool with_folder = lua_getfield(L, -1, "folder") == LUA_TSTRING;
    const char *folder = with_folder ? lua_tostring(L, -1) : "";
    const char *file = luaL_gsub(L, name, ".", "/");
    const char *path = lua_pushfstring(L, "%s%s%s.lua", folder, *folder != '\0' ? "/" : "", file);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_settings);
    lua_pushfstring(L, "require.%s", name);
    if (lua_rawget(L, -2) != LUA_TSTRING) {
        lua_pop(L, 1);
        if (!with_folder) {
            refuse_missing(L, name,
                           lua_pushfstring(L,
                                           "there is no module '%s': the script came as a text, "
                                           "beside which there are no files",
                                           name));
        }
        push_file(L, name, path);
    }
    lua_pushfstring(L, "@%s", path);
}

/* Leaves the chunk on the stack. */
static void load_beside(lua_State *L, const char *name)
{
    if (!is_plain_name(name)) {
        sgldsl_error(L, "require: '%s' is no module name: letters, digits, '_' and '-', with dots between folders",
                     name);
    }
    int base = lua_gettop(L);
    push_module_text(L, name);
    size_t bytes;
    const char *text = lua_tolstring(L, -2, &bytes);
    if (sgldsl_load_chunk(L, text, bytes, lua_tostring(L, -1)) != LUA_OK) lua_error(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_texts);
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    lua_pushstring(L, name);
    lua_rawseti(L, -2, count + 1);
    lua_pushvalue(L, -4); /* the text */
    lua_rawseti(L, -2, count + 2);
    lua_pop(L, 1);
    lua_replace(L, base + 1);
    lua_settop(L, base + 1);
}

/* ---- require ---------------------------------------------------------------------------------------------------------- */

/* (name) -> value */
static int make_module(lua_State *L)
{
    const char *name = lua_tostring(L, 1);
    if (strcmp(name, "sgl.core") == 0) return sgldsl_open_core(L);
    if (is_stdlib_name(name)) {
        load_stdlib(L, name);
    } else {
        load_beside(L, name);
    }
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    if (lua_isnil(L, -1)) lua_pushboolean(L, 1);
    return 1;
}

void sgldsl_require(lua_State *L, const char *name)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_modules);
    int modules = lua_gettop(L);
    if (lua_getfield(L, modules, name) != LUA_TNIL) {
        if (lua_touserdata(L, -1) == &loading) sgldsl_error(L, "require: module '%s' needs itself to load", name);
        lua_remove(L, modules);
        return;
    }
    lua_pushlightuserdata(L, (void *)&loading);
    lua_setfield(L, modules, name);
    lua_pushcfunction(L, sgldsl_message); /* the frames of the module are gone once its mark is taken away */
    lua_pushcfunction(L, make_module);
    lua_pushstring(L, name);
    int failed = lua_pcall(L, 1, 1, modules + 2);
    if (failed) {
        lua_pushnil(L);
        lua_setfield(L, modules, name);
        lua_error(L);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, modules, name);
    lua_replace(L, modules);
    lua_settop(L, modules);
}

static int base_require(lua_State *L)
{
    sgldsl_require(L, luaL_checkstring(L, 1));
    return 1;
}

int sgldsl_open_require(lua_State *L)
{
    lua_pushcfunction(L, base_require);
    lua_setglobal(L, "require");
    return 0;
}
