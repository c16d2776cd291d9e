/* coroutine.c -- pcall, xpcall and coroutines that a used-up budget passes through, and that leave no trace or scope open.
 *
 * Comes in: what the Lua 5.4 manual gives these functions. Goes out: the same results, with two differences: an error of a
 * budget cannot be caught, and the handler of xpcall runs after the stack is unwound (as a message handler it would run with
 * hooks switched off, for ever if it likes). For the same reason a coroutine's function runs inside a pcall of its own:
 * what it leaves to be closed after an error must run with hooks on.
 * Odd invariant: traces and scopes cannot be yielded across (they call Lua through C), so those that an error left open were
 * opened after the pcall began, or after the coroutine was last resumed, whichever is later. */
#include "dsl/dsl.h"

/* ---- which traces and scopes are open --------------------------------------------------------------------------- */

/* Slice and depth in one number, because Lua hands one number on to a continuation. */
static lua_KContext mark_of(const sgl_job *job)
{
    return (lua_KContext)((uint64_t)job->slice << 16 | (uint64_t)job->depth);
}

/* After an error, which is on top of the stack. */
static void recover(lua_State *L, lua_KContext mark)
{
    sgl_job *job = sgldsl_job(L);
    bool same_slice = (uint32_t)((uint64_t)mark >> 16) == job->slice;
    sgldsl_leave_frames(L, same_slice ? (int)((uint64_t)mark & 0xFFFF) : job->slice_depth);
    if (job->expired) lua_error(L);
}

/* ---- pcall, xpcall ------------------------------------------------------------------------------------------------ */

static int pcall_end(lua_State *L, int status, lua_KContext mark)
{
    if (status == LUA_OK || status == LUA_YIELD) return lua_gettop(L);
    recover(L, mark);
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

static int base_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    lua_KContext mark = mark_of(sgldsl_job(L));
    return pcall_end(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, mark, pcall_end), mark);
}

static int xpcall_end(lua_State *L, int status, lua_KContext mark)
{
    if (status == LUA_OK || status == LUA_YIELD) return lua_gettop(L) - 2;
    recover(L, mark);
    lua_pushvalue(L, 2);
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

static int base_xpcall(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushboolean(L, 1);
    lua_pushvalue(L, 1);
    lua_rotate(L, 3, 2); /* function, handler, true, function, arguments */
    lua_KContext mark = mark_of(sgldsl_job(L));
    return xpcall_end(L, lua_pcallk(L, lua_gettop(L) - 4, LUA_MULTRET, 0, mark, xpcall_end), mark);
}

/* ---- coroutines ------------------------------------------------------------------------------------------------------ */

/* A coroutine returns true and its results, or false and the error. */
static int body_end(lua_State *co, int status, lua_KContext mark)
{
    (void)mark;
    if (status == LUA_OK || status == LUA_YIELD) return lua_gettop(co);
    lua_pushboolean(co, 0);
    lua_insert(co, -2);
    return 2;
}

static int body(lua_State *co)
{
    lua_pushboolean(co, 1);
    lua_insert(co, 1);
    return body_end(co, lua_pcallk(co, lua_gettop(co) - 2, LUA_MULTRET, 0, 0, body_end), 0);
}

static int coroutine_create(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushcfunction(co, body);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    return 1;
}

static bool is_fresh(lua_State *co)
{
    lua_Debug activation;
    return lua_status(co) == LUA_OK && lua_getstack(co, 0, &activation) == 0 && lua_gettop(co) == 2;
}

/* Moves `count` arguments over and goes on. Leaves true and what the coroutine gave, or false and the error; returns how
 * many values that is. */
static int resume(lua_State *L, lua_State *co, int count)
{
    sgl_job *job = sgldsl_job(L);
    if (co == L) {
        lua_pushboolean(L, 0);
        lua_pushliteral(L, "cannot resume non-suspended coroutine");
        return 2;
    }
    bool fresh = is_fresh(co);
    if (!lua_checkstack(co, count)) return luaL_error(L, "too many arguments to resume");
    lua_xmove(L, co, count);
    uint32_t slice = job->slice;
    int slice_depth = job->slice_depth, depth = job->depth, results = 0;
    job->slice = ++job->slices;
    job->slice_depth = depth;
    int status = lua_resume(co, L, count + fresh, &results);
    job->slice = slice;
    job->slice_depth = slice_depth;
    sgldsl_leave_frames(L, depth);
    if (status != LUA_OK && status != LUA_YIELD) {
        lua_pushboolean(L, 0);
        lua_xmove(co, L, 1);
        return 2;
    }
    if (!lua_checkstack(L, results + 1)) {
        lua_pop(co, results);
        return luaL_error(L, "too many results to resume");
    }
    if (status == LUA_YIELD) lua_pushboolean(L, 1); /* at the end the body said so itself */
    lua_xmove(co, L, results);
    return results + (status == LUA_YIELD);
}

static int coroutine_resume(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_argexpected(L, co != NULL, 1, "coroutine");
    int count = resume(L, co, lua_gettop(L) - 1);
    if (!lua_toboolean(L, -count) && sgldsl_job(L)->expired) return lua_error(L);
    return count;
}

/* Upvalue: the coroutine. */
static int wrapped(lua_State *L)
{
    int count = resume(L, lua_tothread(L, lua_upvalueindex(1)), lua_gettop(L));
    if (!lua_toboolean(L, -count)) return lua_error(L);
    return count - 1;
}

static int coroutine_wrap(lua_State *L)
{
    coroutine_create(L);
    lua_pushcclosure(L, wrapped, 1);
    return 1;
}

/* Upvalue: the original. It runs what the coroutine left to be closed, and catches its errors. */
static int coroutine_close(lua_State *L)
{
    sgl_job *job = sgldsl_job(L);
    int depth = job->depth;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    sgldsl_leave_frames(L, depth);
    if (job->expired) return lua_error(L); /* what was caught is on top */
    return lua_gettop(L);
}

int sgldsl_open_coroutines(lua_State *L)
{
    static const luaL_Reg base[] = { { "pcall", base_pcall }, { "xpcall", base_xpcall }, { NULL, NULL } };
    static const luaL_Reg functions[] = {
        { "create", coroutine_create }, { "resume", coroutine_resume }, { "wrap", coroutine_wrap }, { NULL, NULL }
    };
    lua_pushglobaltable(L);
    luaL_setfuncs(L, base, 0);
    lua_getfield(L, -1, "coroutine");
    luaL_setfuncs(L, functions, 0);
    lua_getfield(L, -1, "close");
    lua_pushcclosure(L, coroutine_close, 1);
    lua_setfield(L, -2, "close");
    lua_pop(L, 2);
    return 0;
}
