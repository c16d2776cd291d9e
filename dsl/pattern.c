/* pattern.c -- string.find, match, gmatch and gsub, over the matcher that counts its steps.
 *
 * Comes in: the arguments that the Lua 5.4 manual gives these functions. Goes out: the same results, or the script's error
 * of a used-up budget. Odd invariant: a plain search uses memmem, which is linear, where the original is quadratic. */
#include <string.h>

#include "dsl/match.h"

static const char specials[] = "^$*+?.([%-";

/* ---- what a match gives ------------------------------------------------------------------------------------------- */

static void push_capture(sgldsl_matcher *m, int i, const char *start, const char *end)
{
    if (i >= m->captures) {
        if (i > 0) luaL_error(m->L, "invalid capture index %%%d", i + 1);
        lua_pushlstring(m->L, start, (size_t)(end - start)); /* no capture: the whole match */
    } else if (m->capture[i].length == SGLDSL_CAPTURE_POSITION) {
        lua_pushinteger(m->L, m->capture[i].start - m->subject + 1);
    } else if (m->capture[i].length == SGLDSL_CAPTURE_OPEN) {
        luaL_error(m->L, "unfinished capture");
    } else {
        lua_pushlstring(m->L, m->capture[i].start, (size_t)m->capture[i].length);
    }
}

/* All captures; the whole match where the pattern has none and start is given. */
static int push_captures(sgldsl_matcher *m, const char *start, const char *end)
{
    int count = m->captures == 0 && start != NULL ? 1 : m->captures;
    luaL_checkstack(m->L, count, "too many captures");
    for (int i = 0; i < count; i++) push_capture(m, i, start, end);
    return count;
}

/* ---- find and match ------------------------------------------------------------------------------------------------- */

static bool is_plain(const char *pattern, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (pattern[i] != '\0' && strchr(specials, pattern[i]) != NULL) return false;
    }
    return true;
}

/* The offset that a position counts to: from the end where it is negative. */
static size_t offset_of(lua_Integer position, size_t bytes)
{
    if (position > 0) return (size_t)position - 1;
    if (position == 0 || position < -(lua_Integer)bytes) return 0;
    return bytes - (size_t)-position;
}

static int find_plain(lua_State *L, const char *subject, size_t bytes, size_t from, const char *text, size_t length)
{
    sgldsl_charge(L, (int64_t)(bytes - from) / 16);
    const char *found = length == 0 ? subject + from : memmem(subject + from, bytes - from, text, length);
    if (found == NULL) return 0;
    lua_pushinteger(L, found - subject + 1);
    lua_pushinteger(L, found - subject + (lua_Integer)length);
    return 2;
}

static int search(lua_State *L, bool find)
{
    size_t bytes, pattern_bytes;
    const char *subject = luaL_checklstring(L, 1, &bytes);
    const char *pattern = luaL_checklstring(L, 2, &pattern_bytes);
    size_t from = offset_of(luaL_optinteger(L, 3, 1), bytes);
    if (from > bytes) return 0;
    if (find && (lua_toboolean(L, 4) || is_plain(pattern, pattern_bytes))) {
        return find_plain(L, subject, bytes, from, pattern, pattern_bytes);
    }
    bool anchored = *pattern == '^';
    sgldsl_matcher m;
    sgldsl_match_prepare(&m, L, subject, bytes, pattern, pattern_bytes);
    for (const char *at = subject + from; at <= m.subject_end; at++) {
        const char *end = sgldsl_match_at(&m, at, pattern + anchored);
        if (end != NULL && !find) return push_captures(&m, at, end);
        if (end != NULL) {
            lua_pushinteger(L, at - subject + 1);
            lua_pushinteger(L, end - subject);
            return push_captures(&m, NULL, NULL) + 2;
        }
        if (anchored) break;
    }
    return 0;
}

static int found_or_nil(lua_State *L, int results)
{
    if (results > 0) return results;
    lua_pushnil(L);
    return 1;
}

static int string_find(lua_State *L) { return found_or_nil(L, search(L, true)); }

static int string_match(lua_State *L) { return found_or_nil(L, search(L, false)); }

/* ---- gmatch ------------------------------------------------------------------------------------------------------------ */

/* Upvalues: subject, pattern, offset of the next try, end of the last match (an empty match may not stand there). */
static int gmatch_next(lua_State *L)
{
    size_t bytes, pattern_bytes;
    const char *subject = lua_tolstring(L, lua_upvalueindex(1), &bytes);
    const char *pattern = lua_tolstring(L, lua_upvalueindex(2), &pattern_bytes);
    lua_Integer from = lua_tointeger(L, lua_upvalueindex(3)), last = lua_tointeger(L, lua_upvalueindex(4));
    sgldsl_matcher m;
    sgldsl_match_prepare(&m, L, subject, bytes, pattern, pattern_bytes);
    for (; from <= (lua_Integer)bytes; from++) {
        const char *end = sgldsl_match_at(&m, subject + from, pattern);
        if (end == NULL || end - subject == last) continue;
        lua_pushinteger(L, end - subject);
        lua_pushvalue(L, -1);
        lua_replace(L, lua_upvalueindex(3));
        lua_replace(L, lua_upvalueindex(4));
        return push_captures(&m, subject + from, end);
    }
    return 0;
}

static int string_gmatch(lua_State *L)
{
    size_t bytes;
    luaL_checklstring(L, 1, &bytes);
    luaL_checkstring(L, 2);
    size_t from = offset_of(luaL_optinteger(L, 3, 1), bytes);
    lua_settop(L, 2);
    lua_pushinteger(L, from > bytes ? (lua_Integer)bytes + 1 : (lua_Integer)from);
    lua_pushinteger(L, -1);
    lua_pushcclosure(L, gmatch_next, 4);
    return 1;
}

/* ---- gsub --------------------------------------------------------------------------------------------------------------- */

/* The replacement text with its %0 .. %9 filled in. */
static void add_text(sgldsl_matcher *m, luaL_Buffer *result, const char *start, const char *end)
{
    size_t bytes;
    const char *p = lua_tolstring(m->L, 3, &bytes), *stop = p + bytes;
    for (const char *mark; (mark = memchr(p, '%', (size_t)(stop - p))) != NULL; p = mark + 2) {
        luaL_addlstring(result, p, (size_t)(mark - p));
        char c = mark[1];
        if (c == '%') {
            luaL_addchar(result, '%');
        } else if (c == '0') {
            luaL_addlstring(result, start, (size_t)(end - start));
        } else if (c >= '1' && c <= '9') {
            push_capture(m, c - '1', start, end);
            luaL_tolstring(m->L, -1, NULL); /* a position is a number */
            lua_remove(m->L, -2);
            luaL_addvalue(result);
        } else {
            luaL_error(m->L, "invalid use of '%%' in replacement string");
        }
    }
    luaL_addlstring(result, p, (size_t)(stop - p));
}

/* What the table or function at 3 says of a match; false and nil keep it as it is. */
static bool add_value(sgldsl_matcher *m, luaL_Buffer *result, const char *start, const char *end)
{
    lua_State *L = m->L;
    if (lua_type(L, 3) == LUA_TFUNCTION) {
        lua_pushvalue(L, 3);
        lua_call(L, push_captures(m, start, end), 1);
    } else {
        push_capture(m, 0, start, end);
        lua_gettable(L, 3);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(result, start, (size_t)(end - start));
        return false;
    }
    if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", sgldsl_typename(L, -1));
    luaL_addvalue(result);
    return true;
}

static int string_gsub(lua_State *L)
{
    size_t bytes, pattern_bytes;
    const char *subject = luaL_checklstring(L, 1, &bytes);
    const char *pattern = luaL_checklstring(L, 2, &pattern_bytes);
    int kind = lua_type(L, 3);
    lua_Integer most = luaL_optinteger(L, 4, (lua_Integer)bytes + 1), count = 0;
    bool text = kind == LUA_TSTRING || kind == LUA_TNUMBER;
    luaL_argexpected(L, text || kind == LUA_TFUNCTION || kind == LUA_TTABLE, 3, "string/function/table");
    bool anchored = *pattern == '^', changed = false;
    sgldsl_matcher m;
    sgldsl_match_prepare(&m, L, subject, bytes, pattern, pattern_bytes);
    luaL_Buffer result;
    luaL_buffinit(L, &result);
    const char *at = subject, *last = NULL;
    while (count < most) {
        const char *end = sgldsl_match_at(&m, at, pattern + anchored);
        if (end != NULL && end != last) {
            count++;
            if (text) {
                add_text(&m, &result, at, end);
                changed = true;
            } else if (add_value(&m, &result, at, end)) {
                changed = true;
            }
            at = last = end;
        } else if (at < m.subject_end) {
            luaL_addchar(&result, *at++);
        } else {
            break;
        }
        if (anchored) break;
    }
    if (!changed) {
        lua_pushvalue(L, 1);
    } else {
        luaL_addlstring(&result, at, (size_t)(m.subject_end - at));
        luaL_pushresult(&result);
    }
    lua_pushinteger(L, count);
    return 2;
}

int sgldsl_open_patterns(lua_State *L)
{
    static const luaL_Reg functions[] = { { "find", string_find },
                                          { "match", string_match },
                                          { "gmatch", string_gmatch },
                                          { "gsub", string_gsub },
                                          { NULL, NULL } };
    lua_getglobal(L, "string");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
    return 0;
}
