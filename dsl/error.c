/* error.c -- errors on their way: from a status to a Lua error that names the script's line, and from there to a status.
 *
 * Comes in: what went wrong. Goes out: `llama.lua:42: matmul: inner dimensions differ: [32,512] x [768,64]`, and behind it
 * one line for each frame of the script. Frames of the stdlib are passed over: a line of the library tells a user nothing.
 * Odd invariant: running out of memory travels as Lua's own error of that name, which no handler sees or rewrites. */
#include <stdio.h>
#include <string.h>

#include "dsl/dsl.h"

#define OUT_OF_MEMORY "not enough memory" /* the text that Lua knows as its memory error, always interned */
#define FRAME_MARK "\n  at "
/* Frames shown, and levels looked at, from either end. Each look at an outer level walks the whole stack. */
enum { FRAMES_FIRST = 8, FRAMES_LAST = 4, LEVELS = 200, LEVELS_LAST = 24 };

/* ---- places ------------------------------------------------------------------------------------------------- */

/* Files by their whole path, other chunks by Lua's short form. */
static void copy_source(const lua_Debug *activation, char *file, size_t bytes)
{
    const char *name = activation->source[0] == '@' ? activation->source + 1 : activation->short_src;
    size_t length = strlen(name);
    if (length < bytes) {
        memcpy(file, name, length + 1);
    } else { /* the end of a long path says more than its beginning */
        memcpy(file, "...", 3);
        memcpy(file + 3, name + length - (bytes - 4), bytes - 3);
    }
}

static bool is_script(const lua_Debug *activation)
{
    return activation->currentline > 0 && !sgldsl_is_stdlib(activation->source);
}

void sgldsl_where(lua_State *L, int level, sgldsl_place *place)
{
    lua_Debug activation;
    for (int end = level + LEVELS; level < end && lua_getstack(L, level, &activation); level++) {
        lua_getinfo(L, "Sl", &activation);
        if (!is_script(&activation)) continue;
        copy_source(&activation, place->file, sizeof place->file);
        place->line = activation.currentline;
        return;
    }
    place->file[0] = '\0';
    place->line = 0;
}

/* Does the message begin with `file:digits: ` already? */
static bool has_place(const char *message, const char *file)
{
    size_t length = strlen(file);
    if (length == 0 || strncmp(message, file, length) != 0 || message[length] != ':') return false;
    const char *digits = message + length + 1, *p = digits;
    while (*p >= '0' && *p <= '9') p++;
    return p > digits && *p == ':';
}

static void push_placed(lua_State *L, const sgldsl_place *place, const char *message)
{
    if (place->line == 0 || has_place(message, place->file)) {
        lua_pushstring(L, message);
    } else {
        lua_pushfstring(L, "%s:%d: %s", place->file, place->line, message);
    }
}

/* ---- raising ------------------------------------------------------------------------------------------------ */

int sgldsl_error(lua_State *L, const char *format, ...)
{
    sgldsl_place place;
    sgldsl_where(L, 0, &place);
    va_list arguments;
    va_start(arguments, format);
    const char *message = lua_pushvfstring(L, format, arguments);
    va_end(arguments);
    push_placed(L, &place, message);
    return lua_error(L);
}

int sgldsl_raise(lua_State *L, sgl_status status)
{
    sgl_job *job = sgldsl_job(L);
    if (status == SGL_OUT_OF_MEMORY) {
        job->refusal = SGLDSL_REFUSED_BY_HOST;
        lua_pushliteral(L, OUT_OF_MEMORY);
        return lua_error(L);
    }
    sgldsl_place place;
    sgldsl_where(L, 0, &place);
    push_placed(L, &place, sgl_error_message(job->vm));
    return lua_error(L);
}

int sgldsl_expire(lua_State *L, int level, const char *what)
{
    sgldsl_job(L)->expired = true;
    sgldsl_place place;
    sgldsl_where(L, level, &place);
    push_placed(L, &place, what);
    return lua_error(L);
}

/* ---- the frames of the script --------------------------------------------------------------------------------- */

static void add_frame(luaL_Buffer *text, lua_State *L, lua_Debug *activation)
{
    char file[200], line[320];
    lua_getinfo(L, "n", activation);
    copy_source(activation, file, sizeof file);
    int length;
    if (strcmp(activation->what, "main") == 0) {
        length = snprintf(line, sizeof line, FRAME_MARK "%s:%d in main chunk", file, activation->currentline);
    } else if (activation->name != NULL) {
        length = snprintf(line, sizeof line, FRAME_MARK "%s:%d in function '%.64s'", file, activation->currentline,
                          activation->name);
    } else {
        length = snprintf(line, sizeof line, FRAME_MARK "%s:%d in the function of line %d", file,
                          activation->currentline, activation->linedefined);
    }
    luaL_addlstring(text, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* Levels of the stack, by doubling and halving: lua_getstack walks down from the top each time. */
static int stack_levels(lua_State *L)
{
    lua_Debug activation;
    int low = 1, high = 1;
    while (lua_getstack(L, high, &activation)) {
        low = high;
        high *= 2;
    }
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (lua_getstack(L, middle, &activation)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return high;
}

/* The levels of the script's frames within [from, to), at most `most` of them. *behind: the level behind the last. */
static int find_frames(lua_State *L, int from, int to, int most, int *levels, int *behind)
{
    lua_Debug activation;
    int found = 0, level = from;
    for (; level < to && found < most && lua_getstack(L, level, &activation); level++) {
        lua_getinfo(L, "Sl", &activation);
        if (is_script(&activation)) levels[found++] = level;
    }
    *behind = level;
    return found;
}

static void add_found(luaL_Buffer *text, lua_State *L, const int *levels, int count)
{
    for (int i = 0; i < count; i++) {
        lua_Debug activation;
        if (!lua_getstack(L, levels[i], &activation)) continue;
        lua_getinfo(L, "Sl", &activation);
        add_frame(text, L, &activation);
    }
}

/* The innermost frames and the outermost ones. */
static void add_frames(luaL_Buffer *text, lua_State *L)
{
    int found[FRAMES_FIRST + LEVELS_LAST], behind, end, total = stack_levels(L);
    int count = find_frames(L, 1, total < LEVELS ? total : LEVELS, FRAMES_FIRST, found, &behind);
    add_found(text, L, found, count);
    int tail = total - LEVELS_LAST > behind ? total - LEVELS_LAST : behind;
    count = find_frames(L, tail, total, LEVELS_LAST, found, &end);
    int skip = count > FRAMES_LAST ? count - FRAMES_LAST : 0;
    if (tail > behind || skip > 0) luaL_addstring(text, FRAME_MARK "... ");
    add_found(text, L, found + skip, count - skip);
}

/* A message ends at its first zero byte once it is a status's: the text at 1 with each written as \0. */
static void show_zeros(lua_State *L)
{
    size_t bytes;
    const char *message = lua_tolstring(L, 1, &bytes);
    if (strlen(message) == bytes) return;
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (size_t i = 0; i < bytes; i++) {
        if (message[i] == '\0')
            luaL_addlstring(&text, "\\0", 2);
        else
            luaL_addchar(&text, message[i]);
    }
    luaL_pushresult(&text);
    lua_replace(L, 1);
}

int sgldsl_message(lua_State *L)
{
    lua_settop(L, 1);
    if (!lua_isstring(L, 1)) {
        if (!luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1)) {
            lua_pushfstring(L, "(the error is a %s, not a text)", sgldsl_typename(L, 1));
        }
        lua_replace(L, 1);
        lua_settop(L, 1);
    }
    show_zeros(L);
    const char *message = lua_tostring(L, 1);
    if (strstr(message, FRAME_MARK) != NULL) return 1;
    /* An error inside the stdlib: the user's line comes first. */
    sgldsl_place place = { .line = 0 };
    if (strncmp(message, SGLDSL_STDLIB_PREFIX, sizeof SGLDSL_STDLIB_PREFIX - 1) == 0) sgldsl_where(L, 1, &place);
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    push_placed(L, &place, message);
    luaL_addvalue(&text);
    add_frames(&text, L);
    luaL_pushresult(&text);
    return 1;
}

/* ---- back to a status ----------------------------------------------------------------------------------------- */

sgl_status sgldsl_status(sgl_job *job, int lua_status)
{
    lua_State *L = job->L;
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "the script failed";
    if (job->expired) return sgl_fail(job->vm, job->interrupted_now ? SGL_INTERRUPTED : SGL_LIMIT, "%s", message);
    if (lua_status == LUA_ERRMEM) {
        if (job->refusal == SGLDSL_REFUSED_BY_HOST) {
            return sgl_fail(job->vm, SGL_OUT_OF_MEMORY, "no memory for the objects of a script");
        }
        int64_t bytes = job->limits.memory_bytes;
        bool whole = bytes % 1048576 == 0;
        return sgl_fail(job->vm, SGL_LIMIT, "the script needs more than %lld %s for its Lua objects",
                        (long long)(whole ? bytes >> 20 : bytes), whole ? "MiB" : "bytes");
    }
    return sgl_fail(job->vm, job->wrong_setting ? SGL_INVALID_ARGUMENT : SGL_SCRIPT, "%s", message);
}
