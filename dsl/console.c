/* console.c -- lines typed by hand: run them in an open trace, show what they give, complete names.
 *
 * Comes in: a line. Goes out: text. All lines of a console build one graph, so that a tensor lives as long as a variable
 * holds it; showing one runs what it is made of (eval.c), and nothing else.
 * Odd invariant: the host's callbacks are called after Lua has been left, with texts that the registry keeps. */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dsl/console.h"
#include "dsl/eval.h"

enum { SHOWN_WHOLE = 400, SHOWN_FIRST = 3 };

/* ---- showing values ----------------------------------------------------------------------------------------------- */

static void add_element(lua_State *L, luaL_Buffer *text, const sgldsl_elements *elements, int64_t at)
{
    char number[40];
    if (elements->floats != NULL) {
        double value = elements->floats[at];
        snprintf(number, sizeof number, "%.*g", elements->type.dtype == SGL_F64 ? 10 : 6,
                 isnan(value) ? fabs(value) : value); /* the sign of a NaN tells nothing */
        char *point = strchr(number, localeconv()->decimal_point[0]);
        if (point != NULL) *point = '.';
    } else if (elements->type.dtype == SGL_BOOL) {
        snprintf(number, sizeof number, "%s", elements->integers[at] != 0 ? "true" : "false");
    } else {
        snprintf(number, sizeof number, "%lld", (long long)elements->integers[at]);
    }
    (void)L;
    luaL_addstring(text, number);
}

/* What lies along the dimensions from `dim` on, from element `at`; long dimensions of large tensors by their ends. */
static void add_nested(lua_State *L, luaL_Buffer *text, const sgldsl_elements *elements, int dim, int64_t at)
{
    const sgl_type *type = &elements->type;
    if (dim == type->rank) {
        add_element(L, text, elements, at);
        return;
    }
    int64_t extent = type->dims[dim], stride = 1;
    for (int i = dim + 1; i < type->rank; i++) stride *= type->dims[i];
    bool last = dim + 1 == type->rank, cut = elements->count > SHOWN_WHOLE && extent > 2 * SHOWN_FIRST;
    luaL_addstring(text, "{ ");
    for (int64_t i = 0; i < extent; i++) {
        if (i > 0) luaL_addstring(text, last ? ", " : ",\n");
        for (int j = 0; i > 0 && !last && j <= dim; j++) luaL_addstring(text, "  ");
        if (cut && i == SHOWN_FIRST) {
            luaL_addstring(text, "...");
            i = extent - SHOWN_FIRST - 1;
        } else {
            add_nested(L, text, elements, dim + 1, at + i * stride);
        }
    }
    luaL_addstring(text, extent > 0 ? " }" : "}");
}

/* A plain list of numbers and texts, such as x:shape(), is shown by its members. */
static bool is_list(lua_State *L)
{
    lua_Integer count = lua_istable(L, -1) ? (lua_Integer)lua_rawlen(L, -1) : 0;
    if (count < 1 || count > SHOWN_WHOLE || lua_getmetatable(L, -1)) return false;
    for (lua_Integer i = 1; i <= count; i++) {
        int type = lua_rawgeti(L, -1, i);
        lua_pop(L, 1);
        if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TBOOLEAN) return false;
    }
    return true;
}

static void show_list(lua_State *L)
{
    int list = lua_gettop(L);
    lua_Integer count = (lua_Integer)lua_rawlen(L, list);
    lua_pushliteral(L, "{ ");
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, list, i);
        luaL_tolstring(L, -1, NULL);
        lua_remove(L, -2);
        lua_pushstring(L, i < count ? ", " : " }");
        lua_concat(L, 3);
    }
    lua_remove(L, list);
}

/* Replaces the value on top of the stack by its text. */
static void show(lua_State *L)
{
    if (is_list(L)) {
        show_list(L);
        return;
    }
    if (sgldsl_to_tensor(L, -1) == NULL) {
        bool is_nan = lua_type(L, -1) == LUA_TNUMBER && isnan(lua_tonumber(L, -1));
        if (is_nan)
            lua_pushliteral(L, "nan");
        else
            luaL_tolstring(L, -1, NULL);
        lua_remove(L, -2);
        return;
    }
    sgldsl_elements elements;
    sgldsl_evaluate(L, lua_gettop(L), &elements);
    char type[SGLDSL_TYPE_TEXT];
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    luaL_addstring(&text, sgldsl_type_text(&elements.type, type));
    luaL_addstring(&text, elements.type.rank > 1 ? "\n" : " ");
    if (elements.count == 0) {
        luaL_addstring(&text, "{}");
    } else {
        add_nested(L, &text, &elements, 0, 0);
    }
    luaL_pushresult(&text);
    lua_remove(L, -2);
}

/* ---- running a line ------------------------------------------------------------------------------------------------------ */

typedef struct line_request {
    const char *line;
    bool incomplete;
    const char *text; /* what the line gave, kept in the registry */
    size_t bytes;
} line_request;

/* A global for the one who types, unless the script has one of that name. */
static void set_global(lua_State *L, const char *name, void (*push)(lua_State *L))
{
    lua_pushglobaltable(L);
    lua_pushstring(L, name);
    if (lua_rawget(L, -2) == LUA_TNIL) {
        lua_pushstring(L, name);
        push(L);
        lua_rawset(L, -4);
    }
    lua_pop(L, 2);
}

static void push_sgl(lua_State *L) { sgldsl_require(L, "sgl"); }

static void push_job(lua_State *L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_job); }

static void set_globals(lua_State *L)
{
    set_global(L, "sgl", push_sgl);
    set_global(L, "job", push_job);
}

/* The graph of the console, made where there is none. */
static sgldsl_graph *console_graph(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_console) == LUA_TNIL) {
        lua_pop(L, 1);
        sgldsl_push_graph(L, "console");
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_console);
    }
    return sgldsl_to_graph(L, -1);
}

static bool ends_early(lua_State *L)
{
    size_t bytes;
    const char *message = lua_tolstring(L, -1, &bytes);
    static const char mark[] = "<eof>";
    return bytes >= sizeof mark - 1 && strcmp(message + bytes - (sizeof mark - 1), mark) == 0;
}

/* Leaves the compiled line on the stack; false when it could go on. */
static bool compile(lua_State *L, const char *line)
{
    const char *expression = lua_pushfstring(L, "return %s", line);
    if (sgldsl_load_chunk(L, expression, strlen(expression), "=console") == LUA_OK) return true;
    bool goes_on = ends_early(L); /* "1 +" is no statement, and a beginning nevertheless */
    lua_pop(L, 1);
    if (sgldsl_load_chunk(L, line, strlen(line), "=console") == LUA_OK) return true;
    if (goes_on || ends_early(L)) return false;
    lua_error(L);
    return false;
}

static int run_line(lua_State *L)
{
    line_request *request = sgldsl_argument(L);
    set_globals(L);
    if (!compile(L, request->line)) {
        request->incomplete = true;
        return 0;
    }
    int base = lua_gettop(L) - 1;
    sgldsl_graph *graph = console_graph(L);
    sgldsl_enter_frame(L, graph, "", -1);
    lua_insert(L, base + 1);
    lua_call(L, 0, LUA_MULTRET);
    int count = lua_gettop(L) - base - 1; /* above the graph */
    for (int i = 1; i <= count; i++) {
        lua_pushvalue(L, base + 1 + i);
        show(L);
        lua_pushliteral(L, "\n");
        lua_concat(L, 2);
        lua_replace(L, base + 1 + i);
    }
    luaL_checkstack(L, 1, NULL);
    lua_concat(L, count);
    request->text = lua_tolstring(L, -1, &request->bytes);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_shown);
    return 0;
}

sgl_status sgldsl_console_run(sgl_job *job, const char *line, bool *incomplete, sgl_write_fn write, void *user)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (line == NULL || write == NULL) return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "console: no line or no writer");
    line_request request = { .line = line };
    sgl_status status = sgldsl_enter(job, run_line, &request);
    if (incomplete != NULL) *incomplete = request.incomplete;
    if (status != SGL_OK || request.incomplete || request.bytes == 0) return status;
    return write(user, request.text, request.bytes);
}

/* ---- a console without a script -------------------------------------------------------------------------------------------- */

static int open_console(lua_State *L)
{
    set_globals(L);
    return 0;
}

sgl_status sgldsl_console_new(sgl_vm *vm, sgl_job **job)
{
    if (vm == NULL || job == NULL) return SGL_INVALID_ARGUMENT;
    *job = NULL;
    sgl_job *made;
    sgl_status status = sgldsl_new(vm, &sgldsl_default_limits, &made);
    if (status != SGL_OK) return status;
    status = sgldsl_enter(made, open_console, NULL);
    if (status == SGL_OK) status = sgldsl_attach(made);
    if (status != SGL_OK) {
        sgldsl_free(made);
        return status;
    }
    *job = made;
    return SGL_OK;
}

void sgldsl_interrupt(sgl_job *job)
{
    if (job != NULL) job->interrupted = 1;
}

/* ---- completing a name --------------------------------------------------------------------------------------------------------- */

typedef struct name_request {
    const char *name;    /* "sgl.nn.lin" */
    size_t prefix_bytes; /* of "sgl.nn." */
    int count;           /* of candidates, in a list that the registry keeps */
} name_request;

static bool is_identifier(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_') return false;
    while (isalnum((unsigned char)*text) || *text == '_') text++;
    return *text == '\0';
}

/* Adds prefix + name to the set on top of the stack when it goes on from what was typed. */
static void add_candidate(lua_State *L, const name_request *request, const char *name)
{
    const char *typed = request->name + request->prefix_bytes;
    if (!is_identifier(name) || strncmp(name, typed, strlen(typed)) != 0) return;
    lua_pushlstring(L, request->name, request->prefix_bytes);
    lua_pushstring(L, name);
    lua_concat(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
}

/* The keys of the table at `index`, into the set on top. */
static void add_keys(lua_State *L, const name_request *request, int index)
{
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        lua_pop(L, 1);
        const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        lua_pushvalue(L, -2);
        add_candidate(L, request, name);
        lua_pop(L, 1);
    }
}

/* Members that a library of the stdlib loads when they are first used: the list `names` of its metatable. */
static void add_names(lua_State *L, const name_request *request, int index)
{
    if (luaL_getmetafield(L, index, "names") == LUA_TNIL) return;
    if (lua_istable(L, -1)) {
        int list = lua_gettop(L);
        lua_pushvalue(L, list - 1);
        for (lua_Integer i = 1; lua_rawgeti(L, list, i) == LUA_TSTRING; i++) {
            lua_insert(L, -2);
            add_candidate(L, request, lua_tostring(L, -2));
            lua_remove(L, -2);
        }
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

/* Pushes the table of the tensors' methods, or nil. */
static void push_methods(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_tensors);
    lua_getfield(L, -1, "__index");
    lua_remove(L, -2);
}

/* Pushes what the prefix names, "sgl.nn." or "x:"; nil where it names nothing. */
static void push_owner(lua_State *L, const name_request *request)
{
    lua_pushglobaltable(L);
    const char *at = request->name, *end = at + request->prefix_bytes;
    while (at < end && !lua_isnil(L, -1)) {
        size_t length = strcspn(at, ".:");
        lua_pushlstring(L, at, length);
        if (lua_istable(L, -2) || sgldsl_to_tensor(L, -2) != NULL) {
            lua_gettable(L, -2);
        } else {
            lua_pop(L, 1);
            lua_pushnil(L);
        }
        lua_remove(L, -2);
        at += length + 1;
    }
}

static int find_candidates(lua_State *L)
{
    name_request *request = sgldsl_argument(L);
    set_globals(L);
    push_owner(L, request);
    push_methods(L);
    lua_newtable(L);
    int owner = 2, methods = 3, set = 4;
    if (lua_istable(L, owner)) add_keys(L, request, owner);
    if (lua_istable(L, owner)) add_names(L, request, owner);
    if (lua_istable(L, methods) && sgldsl_to_tensor(L, owner) != NULL) add_keys(L, request, methods);
    lua_newtable(L); /* the list, in order */
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "table");
    lua_getfield(L, -1, "sort");
    lua_replace(L, -3);
    lua_pop(L, 1);
    lua_pushnil(L);
    while (lua_next(L, set) != 0) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawseti(L, set + 1, ++request->count);
    }
    lua_pushvalue(L, set + 1);
    lua_call(L, 1, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sgldsl_key_shown);
    return 0;
}

sgl_status sgldsl_console_complete(sgl_job *job, const char *text, size_t *start,
                                   void (*each)(void *user, const char *candidate), void *user)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (text == NULL || start == NULL || each == NULL) {
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "console: no text, no start or no receiver");
    }
    size_t length = strlen(text), at = length;
    while (at > 0 && (isalnum((unsigned char)text[at - 1]) || strchr("_.:", text[at - 1]) != NULL)) at--;
    *start = at;
    name_request request = { .name = text + at };
    for (size_t i = 0; request.name[i] != '\0'; i++) {
        if (request.name[i] == '.' || request.name[i] == ':') request.prefix_bytes = i + 1;
    }
    sgl_status status = sgldsl_enter(job, find_candidates, &request);
    if (status != SGL_OK)
        return status == SGL_SCRIPT ? SGL_OK : status; /* what the name stands for raises: no candidates */
    lua_State *L = job->L;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_shown);
    for (int i = 1; i <= request.count; i++) {
        lua_rawgeti(L, 1, i);
        each(user, lua_tostring(L, 2));
        lua_settop(L, 1);
    }
    lua_settop(L, 0);
    return SGL_OK;
}
