/* attrs.c -- attributes of an op from a Lua table, by the op's schema.
 *
 * Comes in: { axis = 1, keep = true, dims = { 2, 3 } }. Goes out: sgl_attr values, or an error that names the op, the
 * attribute and what it must be. Absent ones are the op's to default. Schemas are parsed once per job and op.
 * Odd invariant: tables are read raw, so no Lua runs while the scratch is filled. */
#include <string.h>

#include "dsl/attrs.h"

enum { SCRATCH_LISTS = 2, NAME_BYTES = 32 };

typedef struct schema {
    int count;
    struct {
        char name[NAME_BYTES];
        char kind; /* i b f s t I F */
    } attrs[SGLDSL_ATTRS];
} schema;

/* ---- schemas --------------------------------------------------------------------------------------------------------- */

static void parse_schema(lua_State *L, const char *op, const char *text, schema *parsed)
{
    parsed->count = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ": ");
        if (text[length] != ':' || length >= NAME_BYTES || parsed->count == SGLDSL_ATTRS) {
            luaL_error(L, "%s: its schema cannot be read: '%s'", op, text);
        }
        memcpy(parsed->attrs[parsed->count].name, text, length);
        parsed->attrs[parsed->count].name[length] = '\0';
        parsed->attrs[parsed->count].kind = text[length + 1];
        parsed->count++;
        text += length;
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
}

/* Anchored in the registry. */
static const schema *schema_of(lua_State *L, const char *op)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &sgldsl_key_signatures);
    if (lua_getfield(L, -1, op) == LUA_TNIL) {
        int minimum, maximum;
        const char *text;
        sgldsl_check(L, sgl_op_signature(sgldsl_job(L)->vm, op, &minimum, &maximum, &text));
        lua_pop(L, 1);
        schema *parsed = lua_newuserdatauv(L, sizeof *parsed, 0);
        parse_schema(L, op, text, parsed);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, op);
    }
    const schema *found = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return found;
}

static int find_attr(const schema *known, const char *name)
{
    for (int i = 0; i < known->count; i++) {
        if (strcmp(known->attrs[i].name, name) == 0) return i;
    }
    return -1;
}

static void refuse_name(lua_State *L, const char *op, const schema *known, const char *name)
{
    if (known->count == 0) sgldsl_error(L, "%s: takes no attributes, '%s' was given", op, name);
    lua_newtable(L);
    luaL_Buffer list;
    luaL_buffinit(L, &list);
    for (int i = 0; i < known->count; i++) {
        if (i > 0) luaL_addstring(&list, ", ");
        luaL_addstring(&list, known->attrs[i].name);
    }
    luaL_pushresult(&list);
    for (int i = 0; i < known->count; i++) {
        lua_pushstring(L, known->attrs[i].name);
        lua_rawseti(L, -3, i + 1);
    }
    const char *nearest = sgldsl_nearest(L, name, -2);
    if (nearest != NULL) sgldsl_error(L, "%s: there is no attribute '%s'; did you mean '%s'?", op, name, nearest);
    sgldsl_error(L, "%s: there is no attribute '%s'; there are: %s", op, name, lua_tostring(L, -1));
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

/* Raises; the value stands on top of the stack. */
static void refuse_value(lua_State *L, const char *op, const char *name, const char *wanted)
{
    switch (lua_type(L, -1)) {
    case LUA_TNUMBER: sgldsl_push_number_text(L, -1); break;
    case LUA_TSTRING: lua_pushfstring(L, "'%s'", lua_tostring(L, -1)); break;
    case LUA_TBOOLEAN: lua_pushstring(L, lua_toboolean(L, -1) ? "true" : "false"); break;
    default: lua_pushfstring(L, "a %s value", sgldsl_typename(L, -1)); break;
    }
    sgldsl_error(L, "%s: attribute '%s' must be %s, not %s", op, name, wanted, lua_tostring(L, -1));
}

static bool to_integer(lua_State *L, int64_t *value)
{
    int is_integer = 0;
    if (lua_type(L, -1) == LUA_TNUMBER) *value = lua_tointegerx(L, -1, &is_integer);
    return is_integer != 0;
}

/* Elements are 8 bytes in either kind of list. */
typedef union cell {
    int64_t i;
    double f;
} cell;

static void read_cell(lua_State *L, const char *op, const char *name, bool floats, cell *out)
{
    if (floats) {
        if (lua_type(L, -1) != LUA_TNUMBER) refuse_value(L, op, name, "a list of numbers");
        out->f = lua_tonumber(L, -1);
    } else if (!to_integer(L, &out->i)) {
        refuse_value(L, op, name, "a list of integers");
    }
}

/* A list, or one number that stands for a list of one. Returns its length; the cells are appended from `at` on. */
static int64_t read_list(lua_State *L, const char *op, const char *name, bool floats, int64_t at)
{
    bool single = lua_type(L, -1) == LUA_TNUMBER;
    if (!single && lua_type(L, -1) != LUA_TTABLE) {
        refuse_value(L, op, name, floats ? "a list of numbers" : "a list of integers");
    }
    int64_t count = single ? 1 : (int64_t)lua_rawlen(L, -1);
    if (count == 0) return 0;
    cell *cells = sgldsl_scratch_get(L, SCRATCH_LISTS, (size_t)(at + count) * sizeof *cells);
    if (single) {
        read_cell(L, op, name, floats, &cells[at]);
        return 1;
    }
    for (int64_t i = 0; i < count; i++) {
        lua_rawgeti(L, -1, i + 1);
        read_cell(L, op, name, floats, &cells[at + i]);
        lua_pop(L, 1);
    }
    return count;
}

static void read_scalar(lua_State *L, const char *op, char kind, sgl_attr *out)
{
    switch (kind) {
    case 'b':
        out->kind = SGL_ATTR_INT;
        if (lua_isboolean(L, -1)) {
            out->i = lua_toboolean(L, -1);
        } else if (!to_integer(L, &out->i) || out->i < 0 || out->i > 1) {
            refuse_value(L, op, out->name, "true or false");
        }
        break;
    case 'f':
        out->kind = SGL_ATTR_FLOAT;
        if (lua_type(L, -1) != LUA_TNUMBER) refuse_value(L, op, out->name, "a number");
        out->f = lua_tonumber(L, -1);
        break;
    case 's':
        out->kind = SGL_ATTR_STRING;
        out->s = sgldsl_name(L, -1, op);
        break;
    case 't':
        out->kind = SGL_ATTR_DTYPE;
        out->i = (int64_t)sgldsl_dtype_argument(L, -1, op);
        break;
    default:
        out->kind = SGL_ATTR_INT;
        if (!to_integer(L, &out->i)) refuse_value(L, op, out->name, "an integer");
        break;
    }
}

/* Lists may move while others are added: their places are filled in at the end. */
static void place_lists(lua_State *L, sgl_attr *attrs, const int64_t *starts, int count, int64_t total)
{
    if (total == 0) return;
    cell *cells = sgldsl_scratch_get(L, SCRATCH_LISTS, (size_t)total * sizeof *cells);
    for (int i = 0; i < count; i++) {
        if (attrs[i].kind == SGL_ATTR_INTS) attrs[i].ints = &cells[starts[i]].i;
        if (attrs[i].kind == SGL_ATTR_FLOATS) attrs[i].floats = &cells[starts[i]].f;
    }
}

int sgldsl_attrs(lua_State *L, const char *op, int index, sgl_attr attrs[SGLDSL_ATTRS], int64_t *cells)
{
    const schema *known = schema_of(L, op);
    int64_t starts[SGLDSL_ATTRS], total = 0, weight = 0;
    int count = 0;
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING) sgldsl_error(L, "%s: attributes have names; this table is a list", op);
        const char *name = lua_tostring(L, -2);
        int found = find_attr(known, name);
        if (found < 0) refuse_name(L, op, known, name);
        char kind = known->attrs[found].kind;
        sgl_attr *out = &attrs[count];
        *out = (sgl_attr){ .name = known->attrs[found].name };
        starts[count] = total;
        if (kind == 'I' || kind == 'F') {
            out->kind = kind == 'I' ? SGL_ATTR_INTS : SGL_ATTR_FLOATS;
            out->i = read_list(L, op, out->name, kind == 'F', total);
            total += out->i;
        } else {
            read_scalar(L, op, kind, out);
            if (kind == 's') weight += (int64_t)strlen(out->s) / 16;
        }
        count++;
        lua_pop(L, 1);
    }
    place_lists(L, attrs, starts, count, total);
    *cells = total + weight;
    return count;
}
