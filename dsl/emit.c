/* emit.c -- one op from Lua values: tensors, numbers and booleans as arguments, a table as attributes.
 *
 * Comes in: the name of an op and values on the Lua stack. Goes out: tensors. A number becomes a constant of the first
 * argument's dtype that is not bool; a Lua float beside integers makes it f32. Attributes are converted by the op's schema
 * (attrs.c). Types and shapes are the graph's to judge.
 * Odd invariant: everything is converted before sgl_emit is called, and nothing is owned while it is. */
#include <math.h>
#include <string.h>

#include "dsl/attrs.h"
#include "dsl/dsl.h"

enum { FEW = 16, SCRATCH_VALUES = 1, SCRATCH_RESULTS = 3 };

/* ---- numbers as constants --------------------------------------------------------------------------------------- */

/* What integers a dtype holds; floats hold whatever they round to. Constants travel as doubles. */
static bool integer_range(sgl_dtype dtype, double *low, double *high)
{
    switch (dtype) {
    case SGL_I64:
        *low = -9007199254740992.0;
        *high = 9007199254740992.0;
        return true;
    case SGL_I32:
        *low = INT32_MIN;
        *high = INT32_MAX;
        return true;
    case SGL_I16:
        *low = INT16_MIN;
        *high = INT16_MAX;
        return true;
    case SGL_I8:
        *low = INT8_MIN;
        *high = INT8_MAX;
        return true;
    case SGL_U8:
        *low = 0;
        *high = UINT8_MAX;
        return true;
    case SGL_U16:
        *low = 0;
        *high = UINT16_MAX;
        return true;
    case SGL_U32:
        *low = 0;
        *high = UINT32_MAX;
        return true;
    case SGL_I4:
        *low = -8;
        *high = 7;
        return true;
    case SGL_BOOL:
        *low = 0;
        *high = 1;
        return true;
    default: return false;
    }
}

/* The number or boolean at `index` as a constant of the dtype. */
static sgl_value emit_constant(lua_State *L, const char *op, sgldsl_graph *graph, int index, sgl_dtype dtype)
{
    double value = lua_isboolean(L, index) ? lua_toboolean(L, index) : lua_tonumber(L, index), low, high;
    if (integer_range(dtype, &low, &high) && !(value >= low && value <= high && floor(value) == value)) {
        sgldsl_push_number_text(L, index);
        sgldsl_error(L, "%s: the number %s is no %s", op, lua_tostring(L, -1), sgl_dtype_name(dtype));
    }
    sgl_attr attrs[] = { { .name = "value", .kind = SGL_ATTR_FLOAT, .f = value },
                         { .name = "dtype", .kind = SGL_ATTR_DTYPE, .i = (int64_t)dtype } };
    sgl_value constant;
    int count;
    sgldsl_grow(L, graph, 2);
    sgldsl_check(L, sgl_emit(graph->graph, "constant", NULL, 0, attrs, 2, &constant, 1, &count));
    return constant;
}

/* ---- arguments ------------------------------------------------------------------------------------------------------ */

static bool is_number(lua_State *L, int index)
{
    int kind = lua_type(L, index);
    return kind == LUA_TNUMBER || kind == LUA_TBOOLEAN;
}

/* The dtype that plain numbers take among the arguments: of the first tensor that is not bool. */
static sgl_dtype weak_dtype(lua_State *L, const char *op, int first, int count, bool *with_tensor)
{
    sgl_dtype dtype = SGL_BOOL;
    *with_tensor = false;
    for (int i = 0; i < count && dtype == SGL_BOOL; i++) {
        const sgldsl_tensor *tensor = sgldsl_to_tensor(L, first + i);
        if (tensor == NULL) continue;
        sgl_type type;
        sgldsl_type_of(L, tensor, op, &type);
        dtype = type.dtype;
        *with_tensor = true;
    }
    return dtype;
}

static sgl_dtype number_dtype(lua_State *L, int index, sgl_dtype weak)
{
    if (lua_isboolean(L, index)) return SGL_BOOL;
    if (sgldsl_is_float(weak)) return weak;
    if (!lua_isinteger(L, index)) return SGL_F32;
    return weak == SGL_BOOL ? SGL_I32 : weak;
}

static void refuse_argument(lua_State *L, const char *op, int index, int position)
{
    /* A parameter or module of the library, told by name: what is meant is what it gives when it is called. */
    if (luaL_getmetafield(L, index, "__name") == LUA_TSTRING)
        sgldsl_error(L, "%s: argument %d is a %s; call it for its tensor: %s", op, position, lua_tostring(L, -1),
                     strcmp(lua_tostring(L, -1), "module") == 0 ? "layer(x)" : "layer.weight()");
    sgldsl_error(L, "%s: argument %d is a %s value; it must be a tensor or a number", op, position,
                 sgldsl_typename(L, index));
}

static void read_arguments(lua_State *L, const char *op, sgldsl_graph *graph, int first, int count, sgl_value *values)
{
    bool numbers = false;
    for (int i = 0; i < count; i++) {
        const sgldsl_tensor *tensor = sgldsl_to_tensor(L, first + i);
        if (tensor != NULL) {
            if (tensor->graph != graph) sgldsl_refuse_foreign(L, tensor, op, graph);
            values[i] = tensor->value;
        } else if (is_number(L, first + i)) {
            numbers = true;
        } else {
            refuse_argument(L, op, first + i, i + 1);
        }
    }
    if (!numbers) return;
    bool with_tensor;
    sgl_dtype weak = weak_dtype(L, op, first, count, &with_tensor);
    if (!with_tensor) {
        sgldsl_error(L, "%s: one argument must be a tensor; sgl.constant(number, dtype) makes one of a number", op);
    }
    for (int i = 0; i < count; i++) {
        if (is_number(L, first + i)) {
            values[i] = emit_constant(L, op, graph, first + i, number_dtype(L, first + i, weak));
        }
    }
}

/* ---- the op ----------------------------------------------------------------------------------------------------------- */

int sgldsl_emit(lua_State *L, const char *op, int first, int count, int attrs)
{
    sgl_value few_values[FEW], few_results[FEW], *values = few_values, *results = few_results;
    sgl_attr converted[SGLDSL_ATTRS];
    int attr_count = 0, result_count = 0;
    int64_t cells = 0;
    sgldsl_graph *graph = sgldsl_tracing(L, op);
    if (count > FEW) values = sgldsl_scratch_get(L, SCRATCH_VALUES, (size_t)count * sizeof *values);
    read_arguments(L, op, graph, first, count, values);
    if (attrs != 0) attr_count = sgldsl_attrs(L, op, attrs, converted, &cells);
    int capacity = FEW;
    if (count + cells > FEW) { /* each result of an op belongs to an argument or to an element of a list */
        capacity = (int)(count + cells);
        results = sgldsl_scratch_get(L, SCRATCH_RESULTS, (size_t)capacity * sizeof *results);
    }
    sgldsl_grow(L, graph, 1 + count + cells);
    sgldsl_check(L, sgl_emit(graph->graph, op, values, count, converted, attr_count, results, capacity, &result_count));
    sgldsl_grow(L, graph, result_count);
    luaL_checkstack(L, result_count + 8, "too many results");
    for (int i = 0; i < result_count; i++) sgldsl_push_tensor(L, graph, results[i]);
    return result_count;
}

/* (op, list of tensors and numbers, attributes or nil) -> tensors */
int sgldsl_core_emit(lua_State *L)
{
    const char *op = luaL_checkstring(L, 1);
    if (lua_type(L, 2) != LUA_TTABLE) sgldsl_error(L, "%s: the arguments must be a list of tensors", op);
    if (!lua_isnoneornil(L, 3) && lua_type(L, 3) != LUA_TTABLE)
        sgldsl_error(L, "%s: the attributes must be a table", op);
    lua_settop(L, 3);
    lua_Unsigned count = lua_rawlen(L, 2);
    if (count > INT32_MAX / 2 || !lua_checkstack(L, (int)count + 20)) { sgldsl_error(L, "%s: too many arguments", op); }
    for (lua_Unsigned i = 1; i <= count; i++) lua_rawgeti(L, 2, (lua_Integer)i);
    return sgldsl_emit(L, op, 4, (int)count, lua_isnil(L, 3) ? 0 : 3);
}

/* (number, dtype) -> tensor of rank 0 */
int sgldsl_core_constant(lua_State *L)
{
    if (!is_number(L, 1))
        sgldsl_error(L, "constant: the value is a %s value, it must be a number", sgldsl_typename(L, 1));
    sgl_dtype dtype = sgldsl_dtype_argument(L, 2, "constant");
    sgldsl_graph *graph = sgldsl_tracing(L, "constant");
    sgldsl_push_tensor(L, graph, emit_constant(L, "constant", graph, 1, dtype));
    return 1;
}
