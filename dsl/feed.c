/* feed.c -- the data of a job: token files that the script names, or batches that a Lua function makes.
 *
 * Comes in: what data_config and next_batch of stdlib/job give. Goes out: an open sgl_tokens, or feeds filled with a
 * batch's numbers. Every feed that the program reads must be in a batch, with as many elements as the feed has, each fit for
 * its dtype and, where layers choose rows by it, for their number. Of a feed with a dim each row may be shorter: the rest of
 * it is padding.
 * Odd invariant: numbers are converted into scratch 0 of the job, so a batch costs no allocation after the first. */
#include <math.h>
#include <string.h>

#include "dsl/job.h"

enum { SCRATCH_PATHS = 1, SCRATCH_BATCH = 0 };

/* ---- token files ---------------------------------------------------------------------------------------------------- */

typedef struct tokens_request {
    sgl_status status; /* of opening, whose message stands in the VM */
    bool declared;
    sgl_tokens *tokens;
} tokens_request;

static int64_t integer_field(lua_State *L, int table, const char *name)
{
    int is_integer = 0;
    lua_Integer value = 0;
    if (lua_getfield(L, table, name) == LUA_TNUMBER) value = lua_tointegerx(L, -1, &is_integer);
    if (!is_integer) sgldsl_error(L, "data: %s is %s, it must be an integer", name, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    return value;
}

/* The paths stay on the stack, which keeps them alive. */
static void read_paths(lua_State *L, int table, sgl_tokens_config *config)
{
    if (lua_getfield(L, table, "paths") != LUA_TTABLE) sgldsl_error(L, "data: paths must be a list of file names");
    int list = lua_gettop(L);
    lua_Unsigned count = lua_rawlen(L, list);
    if (count > 100000 || !lua_checkstack(L, (int)count + 20)) sgldsl_error(L, "data: too many files");
    const char **paths = sgldsl_scratch_get(L, SCRATCH_PATHS, (size_t)(count + 1) * sizeof *paths);
    for (lua_Unsigned i = 0; i < count; i++) {
        size_t length;
        if (lua_rawgeti(L, list, (lua_Integer)i + 1) != LUA_TSTRING) {
            sgldsl_error(L, "data: path %d is a %s value, it must be a string", (int)i + 1, sgldsl_typename(L, -1));
        }
        paths[i] = lua_tolstring(L, -1, &length);
        if (length != strlen(paths[i])) sgldsl_error(L, "data: path '%s' holds a zero byte", paths[i]);
    }
    config->paths = paths;
    config->path_count = (int)count;
}

static int open_tokens(lua_State *L)
{
    tokens_request *request = sgldsl_argument(L);
    sgl_job *job = sgldsl_job(L);
    sgldsl_push_job_call(L, "data_config");
    lua_call(L, 1, 1);
    if (lua_isnil(L, -1)) return 0;
    luaL_checktype(L, -1, LUA_TTABLE);
    request->declared = true;
    int table = lua_gettop(L);
    sgl_tokens_config config = { .vocab = integer_field(L, table, "vocab"),
                                 .seq = integer_field(L, table, "seq"),
                                 .batch = integer_field(L, table, "batch"),
                                 .seed = (uint64_t)integer_field(L, table, "seed") };
    if (lua_getfield(L, table, "held_out") == LUA_TNUMBER) config.held_out = lua_tonumber(L, -1);
    if (lua_getfield(L, table, "format") == LUA_TSTRING) config.format = lua_tostring(L, -1);
    read_paths(L, table, &config);
    if (config.path_count == 0 || config.paths[0][0] == '\0') {
        request->status = sgl_fail(job->vm, SGL_INVALID_ARGUMENT,
                                   "the job's data names no file: set `path` in data.text or data.tokens, or give the "
                                   "setting data.path (`--data FILE` of the command)");
    } else {
        request->status = sgl_tokens_open(job->vm, &config, &request->tokens);
        /* NOT_FOUND means that none is declared; and who reads this may never have chosen the name that the script has. */
        if (request->status == SGL_NOT_FOUND)
            request->status =
                sgl_fail(job->vm, SGL_IO,
                         "%s; name a file by `path` in data.text or data.tokens, or by the setting data.path "
                         "(`--data FILE` of the command)",
                         sgl_error_message(job->vm));
    }
    return 0;
}

sgl_status sgl_job_tokens(sgl_job *job, sgl_tokens **tokens)
{
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (tokens == NULL)
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_tokens: there is no place for the tokens");
    *tokens = NULL;
    tokens_request request = { .status = SGL_OK };
    sgl_status status = sgldsl_enter(job, open_tokens, &request);
    if (status != SGL_OK) return status;
    if (!request.declared) return sgl_fail(job->vm, SGL_NOT_FOUND, "the job's data is no token file");
    *tokens = request.tokens;
    return request.status;
}

/* ---- batches of Lua ---------------------------------------------------------------------------------------------------- */

typedef struct feed_request {
    sgl_program *program;
    int64_t cursor;
    bool is_eval, ended;
} feed_request;

/* The trainer fills these itself. */
static bool is_of_trainer(const char *name)
{
    return strcmp(name, "step") == 0 || strcmp(name, "seed") == 0 || strcmp(name, "position") == 0;
}

static int64_t bits_of(sgl_dtype dtype)
{
    static const uint8_t bits[] = {
#define BITS_OF(name, text, count) count,
        SGL_DTYPE_MAP(BITS_OF)
#undef BITS_OF
    };
    return bits[dtype];
}

static void refuse_element(lua_State *L, const char *name, lua_Integer at, sgl_dtype dtype)
{
    sgldsl_error(L, "batch: element %I of '%s' is %s, which is no %s", (LUAI_UACINT)at, name,
                 luaL_tolstring(L, -1, NULL), sgl_dtype_name(dtype));
}

/* The integer on top of the stack, within what the dtype holds. */
static int64_t to_integer(lua_State *L, const char *name, lua_Integer at, sgl_dtype dtype, int64_t low, int64_t high)
{
    int is_integer = 0;
    int64_t value = 0;
    if (lua_type(L, -1) == LUA_TNUMBER) value = lua_tointegerx(L, -1, &is_integer);
    if (dtype == SGL_BOOL && lua_isboolean(L, -1)) {
        value = lua_toboolean(L, -1);
        is_integer = 1;
    }
    if (!is_integer || value < low || value > high) refuse_element(L, name, at, dtype);
    return value;
}

static double to_number(lua_State *L, const char *name, lua_Integer at, sgl_dtype dtype)
{
    if (lua_type(L, -1) != LUA_TNUMBER) refuse_element(L, name, at, dtype);
    return lua_tonumber(L, -1);
}

/* Converts the element on top of the stack into place i of the data. */
static void put_element(lua_State *L, const char *name, sgl_dtype dtype, void *data, int64_t i)
{
    lua_Integer at = i + 1;
    switch (dtype) {
    case SGL_F64: ((double *)data)[i] = to_number(L, name, at, dtype); break;
    case SGL_F32: ((float *)data)[i] = (float)to_number(L, name, at, dtype); break;
    case SGL_I64: ((int64_t *)data)[i] = to_integer(L, name, at, dtype, INT64_MIN, INT64_MAX); break;
    case SGL_I32: ((int32_t *)data)[i] = (int32_t)to_integer(L, name, at, dtype, INT32_MIN, INT32_MAX); break;
    case SGL_I16: ((int16_t *)data)[i] = (int16_t)to_integer(L, name, at, dtype, INT16_MIN, INT16_MAX); break;
    case SGL_I8: ((int8_t *)data)[i] = (int8_t)to_integer(L, name, at, dtype, INT8_MIN, INT8_MAX); break;
    case SGL_U8: ((uint8_t *)data)[i] = (uint8_t)to_integer(L, name, at, dtype, 0, UINT8_MAX); break;
    case SGL_U16: ((uint16_t *)data)[i] = (uint16_t)to_integer(L, name, at, dtype, 0, UINT16_MAX); break;
    case SGL_U32: ((uint32_t *)data)[i] = (uint32_t)to_integer(L, name, at, dtype, 0, UINT32_MAX); break;
    case SGL_BOOL: ((uint8_t *)data)[i] = (uint8_t)to_integer(L, name, at, dtype, 0, 1); break;
    default:
        sgldsl_error(L, "batch: '%s' is %s, whose elements Lua has no numbers for: give a string of bytes", name,
                     sgl_dtype_name(dtype));
    }
}

/* Integers by which a layer chooses rows: the second result of next_batch says below what they must be. */
typedef struct index_bound {
    int64_t below, ignore;
    bool ignores;
} index_bound;

static bool find_bound(lua_State *L, int bounds, const char *name, index_bound *bound)
{
    int top = lua_gettop(L), is_integer = 0;
    if (lua_type(L, bounds) != LUA_TTABLE || lua_getfield(L, bounds, name) != LUA_TTABLE) {
        lua_settop(L, top);
        return false;
    }
    lua_getfield(L, -1, "below");
    bound->below = lua_tointegerx(L, -1, &is_integer);
    lua_getfield(L, -2, "ignore");
    bound->ignores = lua_isinteger(L, -1);
    bound->ignore = lua_tointeger(L, -1);
    lua_settop(L, top);
    return is_integer;
}

static int64_t read_integer(sgl_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case SGL_I64: return ((const int64_t *)data)[i];
    case SGL_I32: return ((const int32_t *)data)[i];
    case SGL_I16: return ((const int16_t *)data)[i];
    case SGL_I8: return ((const int8_t *)data)[i];
    case SGL_U8: return ((const uint8_t *)data)[i];
    case SGL_U16: return ((const uint16_t *)data)[i];
    case SGL_U32: return ((const uint32_t *)data)[i];
    default: return 0;
    }
}

/* padding: how it is padded, NULL where it is not; that number is none of the batch's. */
static void check_bound(lua_State *L, const char *name, const sgl_type *type, const void *data, int64_t count,
                        const index_bound *bound, const double *padding)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t value = read_integer(type->dtype, data, i);
        if ((value >= 0 && value < bound->below) || (bound->ignores && value == bound->ignore)) continue;
        if (padding != NULL && (double)value == *padding) continue;
        sgldsl_error(L, "batch: element %I of '%s' is %I; the model takes 0 .. %I there", (LUAI_UACINT)(i + 1), name,
                     (LUAI_UACINT)value, (LUAI_UACINT)(bound->below - 1));
    }
}

/* ---- rows of a dim --------------------------------------------------------------------------------------------------------- */

typedef struct row_layout {
    const char *dim;
    bool single;                 /* the dim is the first: there is one row */
    int64_t rows, extent, inner; /* extent: of the program; inner: elements in an entry */
    double pad;
} row_layout;

/* What next_batch says of the feed's rows: { dim =, axis =, pad = }. The text stays alive in the job's table. */
static bool find_rows(lua_State *L, int padded, const char *name, const sgl_type *type, row_layout *layout)
{
    int top = lua_gettop(L);
    if (lua_type(L, padded) != LUA_TTABLE || lua_getfield(L, padded, name) != LUA_TTABLE) {
        lua_settop(L, top);
        return false;
    }
    lua_getfield(L, top + 1, "dim");
    lua_getfield(L, top + 1, "axis");
    lua_getfield(L, top + 1, "pad");
    lua_Integer axis = lua_tointeger(L, top + 3);
    *layout = (row_layout){ .dim = lua_tostring(L, top + 2), .single = axis == 0, .rows = 1, .inner = 1 };
    layout->pad = lua_tonumber(L, top + 4);
    lua_settop(L, top);
    if (axis < 0 || axis >= type->rank || layout->dim == NULL || bits_of(type->dtype) < 8)
        sgldsl_error(L, "batch: the program's feed '%s' has no dimension for a dim, or elements without bytes", name);
    for (int i = 0; i < type->rank; i++) *(i < axis ? &layout->rows : &layout->inner) *= i == axis ? 1 : type->dims[i];
    layout->extent = type->dims[axis];
    return true;
}

/* Element 0 as a pattern for the padding: the number in the feed's dtype, or zeros of a dtype that Lua has no numbers for. */
static void put_pad(lua_State *L, const char *name, sgl_dtype dtype, double pad, void *cells, int64_t i)
{
    if (dtype == SGL_BF16 || dtype == SGL_F16 || dtype == SGL_F8E4M3 || dtype == SGL_F8E5M2) {
        size_t width = (size_t)bits_of(dtype) / 8;
        if (pad != 0) sgldsl_error(L, "batch: '%s' is %s, which is padded with 0 alone", name, sgl_dtype_name(dtype));
        memset((char *)cells + (size_t)i * width, 0, width);
        return;
    }
    if (pad == floor(pad) && fabs(pad) < 9e15 && !sgldsl_is_float(dtype))
        lua_pushinteger(L, (lua_Integer)pad);
    else
        lua_pushnumber(L, pad);
    put_element(L, name, dtype, cells, i);
    lua_pop(L, 1);
}

static void refuse_row(lua_State *L, const char *name, int64_t row, const row_layout *layout, int64_t given)
{
    if (given % layout->inner != 0)
        sgldsl_error(L, "batch: row %I of '%s' has %I elements, which are no multiple of %I", (LUAI_UACINT)row, name,
                     (LUAI_UACINT)given, (LUAI_UACINT)layout->inner);
    sgldsl_error(L, "batch: row %I of '%s' is %I long; the program takes %I along its dim '%s'", (LUAI_UACINT)row, name,
                 (LUAI_UACINT)(given / layout->inner), (LUAI_UACINT)layout->extent, layout->dim);
}

/* The row is on top of the stack: a list of its elements, or a string of their bytes. */
static void put_row(lua_State *L, const char *name, const sgl_type *type, const row_layout *layout, int64_t row,
                    void *cells)
{
    int64_t room = layout->extent * layout->inner, first = row * room, width = bits_of(type->dtype) / 8, given = 0;
    if (lua_type(L, -1) == LUA_TSTRING) {
        size_t bytes;
        const char *data = lua_tolstring(L, -1, &bytes);
        given = (int64_t)bytes / width;
        if (given > room || given % layout->inner != 0 || (int64_t)bytes % width != 0)
            refuse_row(L, name, row + 1, layout, given);
        memcpy((char *)cells + first * width, data, bytes);
    } else if (lua_type(L, -1) == LUA_TTABLE) {
        given = (int64_t)lua_rawlen(L, -1);
        if (given > room || given % layout->inner != 0) refuse_row(L, name, row + 1, layout, given);
        for (int64_t i = 0; i < given; i++) {
            lua_rawgeti(L, -1, i + 1);
            put_element(L, name, type->dtype, cells, first + i);
            lua_pop(L, 1);
        }
    } else {
        sgldsl_error(L, "batch: row %I of '%s' is a %s value; it must be a list of numbers", (LUAI_UACINT)(row + 1),
                     name, sgldsl_typename(L, -1));
    }
    if (given == room) return;
    put_pad(L, name, type->dtype, layout->pad, cells, first + given);
    char *pattern = (char *)cells + (first + given) * width;
    for (int64_t i = 1; i < room - given; i++) memcpy(pattern + i * width, pattern, (size_t)width);
}

/* The value of the feed is on top of the stack: a list of rows, or the one row where the dim is the first. */
static const void *read_rows(lua_State *L, const char *name, const sgl_type *type, const row_layout *layout,
                             int64_t bytes)
{
    void *cells = sgldsl_scratch_get(L, SCRATCH_BATCH, bytes > 0 ? (size_t)bytes : 1);
    if (layout->single) {
        put_row(L, name, type, layout, 0, cells);
        return cells;
    }
    int64_t given = lua_type(L, -1) == LUA_TTABLE ? (int64_t)lua_rawlen(L, -1) : -1;
    if (given != layout->rows) {
        sgldsl_error(L, "batch: '%s' must be a list of %I rows, each as long as it is; it is %s", name,
                     (LUAI_UACINT)layout->rows,
                     given < 0 ? sgldsl_typename(L, -1) : lua_pushfstring(L, "one of %I", (LUAI_UACINT)given));
    }
    for (int64_t row = 0; row < layout->rows; row++) {
        lua_rawgeti(L, -1, row + 1);
        put_row(L, name, type, layout, row, cells);
        lua_pop(L, 1);
    }
    return cells;
}

/* ---- a batch --------------------------------------------------------------------------------------------------------------- */

/* The value of the feed is on top of the stack: a list of all elements, or a string of their bytes; of a dim its rows. */
static void feed_one(lua_State *L, sgl_program *program, const char *name, const sgl_type *type, int bounds)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->dims[i];
    int64_t bytes = (count * bits_of(type->dtype) + 7) / 8;
    char text[SGLDSL_TYPE_TEXT];
    const void *data = NULL;
    row_layout layout;
    bool rows = !lua_isnil(L, -1) && find_rows(L, bounds + 1, name, type, &layout);
    if (rows) {
        data = read_rows(L, name, type, &layout, bytes);
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        size_t given;
        data = lua_tolstring(L, -1, &given);
        if ((int64_t)given != bytes) {
            sgldsl_error(L, "batch: '%s' has %I bytes, the feed %s takes %I", name, (LUAI_UACINT)given,
                         sgldsl_type_text(type, text), (LUAI_UACINT)bytes);
        }
    } else if (lua_type(L, -1) == LUA_TTABLE) {
        lua_Integer given = (lua_Integer)lua_rawlen(L, -1);
        if (given != count) {
            sgldsl_error(L, "batch: '%s' has %I elements, the feed %s takes %I; give a flat list", name,
                         (LUAI_UACINT)given, sgldsl_type_text(type, text), (LUAI_UACINT)count);
        }
        void *cells = sgldsl_scratch_get(L, SCRATCH_BATCH, bytes > 0 ? (size_t)bytes : 1);
        for (int64_t i = 0; i < count; i++) {
            lua_rawgeti(L, -1, i + 1);
            put_element(L, name, type->dtype, cells, i);
            lua_pop(L, 1);
        }
        data = cells;
    } else {
        sgldsl_error(L, "batch: it lacks the feed '%s' (%s)", name, sgldsl_type_text(type, text));
    }
    index_bound bound;
    if (find_bound(L, bounds, name, &bound)) check_bound(L, name, type, data, count, &bound, rows ? &layout.pad : NULL);
    sgldsl_check(L, sgl_feed_alike(program, name, data, (size_t)bytes));
}

static int feed_batch(lua_State *L)
{
    feed_request *request = sgldsl_argument(L);
    sgldsl_push_job_call(L, "next_batch");
    lua_pushinteger(L, request->cursor);
    lua_pushboolean(L, request->is_eval);
    lua_call(L, 3, 3);
    int bounds = lua_gettop(L) - 1, batch = bounds - 1;
    if (lua_isnil(L, batch)) {
        request->ended = true;
        return 0;
    }
    if (lua_type(L, batch) != LUA_TTABLE) {
        sgldsl_error(L, "batch: the data function gave a %s value, it must give a table of feeds",
                     sgldsl_typename(L, batch));
    }
    const char *name;
    sgl_type type;
    for (int i = 0; sgl_program_feed(request->program, i, &name, &type) == SGL_OK && name != NULL; i++) {
        if (is_of_trainer(name)) continue;
        lua_pushstring(L, name);
        lua_rawget(L, batch);
        feed_one(L, request->program, name, &type, bounds);
        lua_settop(L, bounds + 1);
    }
    return 0;
}

sgl_status sgl_job_feed(void *user, sgl_program *program, int64_t cursor, int is_eval)
{
    sgl_job *job = user;
    if (job == NULL) return SGL_INVALID_ARGUMENT;
    if (program == NULL) return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_feed: there is no program");
    if (sgl_program_vm(program) != job->vm)
        return sgl_fail(job->vm, SGL_INVALID_ARGUMENT, "sgl_job_feed: the program is of another VM than the job");
    feed_request request = { .program = program, .cursor = cursor, .is_eval = is_eval != 0 };
    sgl_status status = sgldsl_enter(job, feed_batch, &request);
    if (status != SGL_OK) return status;
    if (request.ended) {
        return sgl_fail(job->vm, SGL_NOT_FOUND, "the job's data gives no batch %lld", (long long)cursor);
    }
    return SGL_OK;
}
