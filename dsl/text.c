/* text.c -- names and numbers as text: the nearest of several names, numbers that read back the same, names that are fit
 * for the graph, texts that are UTF-8.
 *
 * Comes in: Lua values. Goes out: texts, or an error that says what is wrong with them. Knows nothing of graphs. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/dsl.h"

/* ---- the nearest name ----------------------------------------------------------------------------------------- */

const char *sgldsl_nearer(const char *name, const char *best, const char *other)
{
    const char *const names[] = { best, other };
    return best != NULL ? sgl_nearest(name, names, 2) : sgl_nearest(name, &names[1], 1);
}

const char *sgldsl_nearest(lua_State *L, const char *name, int index)
{
    const char *nearest = NULL;
    lua_Unsigned count = lua_rawlen(L, index);
    index = lua_absindex(L, index);
    for (lua_Unsigned i = 1; i <= count; i++) {
        if (lua_rawgeti(L, index, (lua_Integer)i) == LUA_TSTRING) {
            nearest = sgldsl_nearer(name, nearest, lua_tostring(L, -1)); /* the list keeps it alive */
        }
        lua_pop(L, 1);
    }
    return nearest;
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

void sgldsl_push_number_text(lua_State *L, int index)
{
    char text[48];
    if (lua_isinteger(L, index)) {
        snprintf(text, sizeof text, "%lld", (long long)lua_tointeger(L, index));
        lua_pushstring(L, text);
        return;
    }
    double value = lua_tonumber(L, index);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    char point = localeconv()->decimal_point[0];
    for (char *p = text; *p != '\0'; p++) {
        if (*p == point) *p = '.';
    }
    lua_pushstring(L, text);
}

const char *sgldsl_typename(lua_State *L, int index)
{
    if (lua_isnone(L, index)) return "nil";
    if (sgldsl_to_tensor(L, index) != NULL) return "tensor";
    return sgldsl_to_graph(L, index) != NULL ? "graph" : luaL_typename(L, index);
}

/* ---- names and texts ------------------------------------------------------------------------------------------- */

const char *sgldsl_name(lua_State *L, int index, const char *what)
{
    if (lua_type(L, index) != LUA_TSTRING) {
        sgldsl_error(L, "%s: the name is %s value, it must be a string", what, sgldsl_typename(L, index));
    }
    size_t length;
    const char *name = lua_tolstring(L, index, &length);
    if (length == 0) sgldsl_error(L, "%s: the name is empty", what);
    if (length > SGLDSL_NAME_BYTES) {
        sgldsl_error(L, "%s: the name has %d bytes, at most %d are possible", what, (int)length, SGLDSL_NAME_BYTES);
    }
    if (strlen(name) != length) sgldsl_error(L, "%s: the name '%s...' holds a zero byte", what, name);
    return name;
}

sgl_status sgldsl_check_text(sgl_vm *vm, const char *name, const char *text, size_t bytes)
{
    int line = 1;
    for (size_t at = 0; at < bytes;) {
        const unsigned char *p = (const unsigned char *)text + at;
        int length = *p == '\0' ? 0 : sgl_utf8_bytes(text + at, bytes - at);
        if (length == 0) {
            return sgl_fail(vm, SGL_SCRIPT, "%s:%d: byte %lld (0x%02X) is no UTF-8 text; save the script as UTF-8",
                            name, line, (long long)at, *p);
        }
        line += *p == '\n';
        at += (size_t)length;
    }
    return SGL_OK;
}
