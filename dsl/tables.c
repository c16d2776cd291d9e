/* tables.c -- pairs in a fixed order, and the functions of `table` with bounds on what they do in one call.
 *
 * Comes in: tables. Goes out: the same results as Lua's own, except that pairs visits numbers ascending, then strings in
 * byte order, then the rest. Lua's own order of string keys changes from run to run, and a model traced in another order is
 * another graph. A table whose keys already come in order (a list, an empty table) is walked without a copy.
 * Odd invariant: the keys are sorted by a heap of our own in memory of Lua's, because qsort may allocate behind our back. */
#include <string.h>

#include "dsl/dsl.h"

enum { MOST_AT_ONCE = 1 << 24, MOST_SORTED = 1 << 20 };

/* ---- the order of keys ---------------------------------------------------------------------------------------- */

enum { RANK_NUMBER, RANK_STRING, RANK_FALSE, RANK_TRUE, RANK_OTHER };

typedef struct table_key {
    int rank;
    bool is_integer;
    lua_Integer integer;
    lua_Number number;
    const char *text; /* the table of keys keeps it alive */
    size_t bytes;
    lua_Integer at; /* in the order of next */
} table_key;

static table_key read_key(lua_State *L, int index)
{
    table_key key = { .rank = RANK_OTHER };
    switch (lua_type(L, index)) {
    case LUA_TNUMBER:
        key.rank = RANK_NUMBER;
        key.is_integer = lua_isinteger(L, index);
        key.integer = lua_tointeger(L, index);
        key.number = lua_tonumber(L, index);
        break;
    case LUA_TSTRING:
        key.rank = RANK_STRING;
        key.text = lua_tolstring(L, index, &key.bytes);
        break;
    case LUA_TBOOLEAN: key.rank = lua_toboolean(L, index) ? RANK_TRUE : RANK_FALSE; break;
    default: break;
    }
    return key;
}

static bool text_before(const table_key *a, const table_key *b)
{
    size_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, common);
    return order != 0 ? order < 0 : a->bytes < b->bytes;
}

static bool before(const table_key *a, const table_key *b)
{
    if (a->rank != b->rank) return a->rank < b->rank;
    if (a->rank == RANK_STRING) return text_before(a, b);
    if (a->rank == RANK_NUMBER) {
        if (a->is_integer && b->is_integer) return a->integer < b->integer;
        if (a->number != b->number) return a->number < b->number;
    }
    return a->at < b->at;
}

static void sift_down(table_key *keys, lua_Integer root, lua_Integer count)
{
    for (;;) {
        lua_Integer child = 2 * root + 1;
        if (child >= count) return;
        if (child + 1 < count && before(&keys[child], &keys[child + 1])) child++;
        if (!before(&keys[root], &keys[child])) return;
        table_key moved = keys[root];
        keys[root] = keys[child];
        keys[child] = moved;
        root = child;
    }
}

static void sort_keys(table_key *keys, lua_Integer count)
{
    for (lua_Integer root = count / 2 - 1; root >= 0; root--) sift_down(keys, root, count);
    for (lua_Integer last = count - 1; last > 0; last--) {
        table_key greatest = keys[0];
        keys[0] = keys[last];
        keys[last] = greatest;
        sift_down(keys, 0, last);
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* The number of keys of the table at 1; *ordered tells whether next gives them in order. */
static lua_Integer count_keys(lua_State *L, bool *ordered)
{
    lua_Integer count = 0;
    table_key last = { .rank = -1 };
    *ordered = true;
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        lua_pop(L, 1);
        table_key key = read_key(L, -1);
        key.at = count++;
        if (*ordered && !before(&last, &key)) *ordered = false;
        last = key;
    }
    return count;
}

/* Upvalues: the table, its keys in order, the position. */
static int pairs_next(lua_State *L)
{
    lua_Integer at = lua_tointeger(L, lua_upvalueindex(3));
    for (;;) {
        at++;
        if (lua_rawgeti(L, lua_upvalueindex(2), at) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break; /* still there */
        lua_pop(L, 2);
    }
    lua_pushinteger(L, at);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
}

static void push_sorted_keys(lua_State *L, lua_Integer count)
{
    lua_createtable(L, (int)count, 0);
    int found = lua_gettop(L);
    table_key *keys = lua_newuserdatauv(L, (size_t)count * sizeof *keys, 0);
    lua_Integer at = 0;
    lua_pushnil(L);
    while (lua_next(L, 1) != 0) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawseti(L, found, at + 1);
        keys[at] = read_key(L, -1);
        keys[at].at = at;
        at++;
    }
    count = at; /* a collection of weak keys may have made it fewer since they were counted */
    sort_keys(keys, count);
    lua_createtable(L, (int)count, 0);
    for (at = 0; at < count; at++) {
        lua_rawgeti(L, found, keys[at].at + 1);
        lua_rawseti(L, -2, at + 1);
    }
    lua_replace(L, found);
    lua_settop(L, found);
}

/* Upvalue: next. */
static int base_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    bool ordered;
    lua_Integer count = count_keys(L, &ordered);
    sgldsl_charge(L, count);
    if (ordered) {
        lua_pushvalue(L, lua_upvalueindex(1));
    } else {
        if (count > MOST_AT_ONCE) return luaL_error(L, "pairs: the table has too many keys");
        lua_pushvalue(L, 1);
        push_sorted_keys(L, count);
        lua_pushinteger(L, 0);
        lua_pushcclosure(L, pairs_next, 3);
    }
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* ---- table.* ------------------------------------------------------------------------------------------------------- */

/* Raises unless the argument is a table whose length is its own, and charges for what the original will go through. */
static void check_table(lua_State *L, lua_Integer most)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (luaL_getmetafield(L, 1, "__len") != LUA_TNIL) luaL_argerror(L, 1, "its length is made by __len");
    lua_Unsigned length = lua_rawlen(L, 1);
    if (length > (lua_Unsigned)most) luaL_argerror(L, 1, "too many elements for one call");
}

static void check_range(lua_State *L, int first, int last)
{
    if (lua_isnoneornil(L, last)) return;
    lua_Integer from = luaL_optinteger(L, first, 1), to = luaL_checkinteger(L, last);
    if (to < from) return;
    lua_Unsigned count = (lua_Unsigned)to - (lua_Unsigned)from;
    if (count >= MOST_AT_ONCE) luaL_argerror(L, last, "too many elements for one call");
    sgldsl_charge(L, (int64_t)count);
}

/* Upvalue of each: the original. */
static int call_original(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static int table_shift(lua_State *L) /* insert, remove */
{
    int arguments = lua_gettop(L);
    check_table(L, MOST_AT_ONCE);
    lua_Integer length = (lua_Integer)lua_rawlen(L, 1);
    if (arguments >= 2 && lua_isinteger(L, 2)) {
        lua_Integer at = lua_tointeger(L, 2);
        if (at >= 1 && at < length) sgldsl_charge(L, (length - at) / 4);
    }
    lua_settop(L, arguments);
    return call_original(L);
}

static int table_concat(lua_State *L)
{
    int arguments = lua_gettop(L);
    check_table(L, MOST_AT_ONCE);
    sgldsl_charge(L, (int64_t)lua_rawlen(L, 1));
    check_range(L, 3, 4);
    lua_settop(L, arguments);
    return call_original(L);
}

static int table_move(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    check_range(L, 2, 3);
    return call_original(L);
}

static int table_sort(lua_State *L)
{
    int arguments = lua_gettop(L);
    check_table(L, MOST_SORTED);
    sgldsl_charge(L, 10 * (int64_t)lua_rawlen(L, 1));
    lua_settop(L, arguments);
    return call_original(L);
}

/* The originals stay in Lua's table of loaded libraries, where their error messages find their names. */
int sgldsl_open_tables(lua_State *L)
{
    static const luaL_Reg guarded[] = { { "insert", table_shift },
                                        { "remove", table_shift },
                                        { "concat", table_concat },
                                        { "move", table_move },
                                        { "sort", table_sort } };
    lua_getglobal(L, "table");
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, -3) != 0) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++) {
        lua_getfield(L, -2, guarded[i].name);
        lua_pushcclosure(L, guarded[i].func, 1);
        lua_setfield(L, -2, guarded[i].name);
    }
    lua_setglobal(L, "table");
    lua_getglobal(L, "next");
    lua_pushcclosure(L, base_pairs, 1);
    lua_setglobal(L, "pairs");
    lua_settop(L, 0);
    return 0;
}
