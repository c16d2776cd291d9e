/* eval.c -- core.eval: a tensor's elements, at once.
 *
 * Comes in: a tensor of the running trace. Goes out: a number, a boolean, or lists in lists. The tensor is cast to f64 or
 * i64, which hold every dtype; what it is made of, and nothing else of the graph, is frozen on a CPU session of the job, run
 * once, and the program freed. Feeds, parameters and states are zero.
 * Odd invariant: session and program belong to the job, because reading the elements may raise. */
#include <string.h>

#include "dsl/eval.h"

enum { SCRATCH_ELEMENTS = 0, MOST_ELEMENTS = 1 << 24, MOST_IN_TABLES = 1 << 20 };

static int64_t element_count(const sgl_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank && count > 0; i++) {
        count = type->dims[i] > MOST_ELEMENTS ? MOST_ELEMENTS + 1 : count * type->dims[i];
        if (count > MOST_ELEMENTS) return MOST_ELEMENTS + 1;
    }
    return count;
}

/* The tensor in a dtype that holds any. */
static sgl_value cast_to(lua_State *L, int index, bool floats)
{
    int top = lua_gettop(L);
    lua_createtable(L, 0, 1);
    lua_pushstring(L, floats ? "f64" : "i64");
    lua_setfield(L, -2, "to");
    lua_pushvalue(L, index);
    sgldsl_emit(L, "cast", lua_gettop(L), 1, lua_gettop(L) - 1);
    sgl_value cast = sgldsl_to_tensor(L, -1)->value;
    lua_settop(L, top);
    return cast;
}

/* What Lua may use, the graph that it has computed may use too: memory, and arithmetic that takes about as long. */
static sgl_status check_need(const sgl_job *job)
{
    const double flops_per_ms = 1e7, most_flops = flops_per_ms * (double)job->limits.cpu_ms;
    int64_t most = job->limits.memory_bytes, states = sgl_session_bytes(job->session);
    if (states > most || sgl_program_bytes(job->program) > most - states) {
        return sgl_fail(job->vm, SGL_LIMIT, "eval: the graph needs more than the %lld MiB that a script has",
                        (long long)(most >> 20));
    }
    if (sgl_program_flops(job->program) <= most_flops) return SGL_OK;
    return sgl_fail(job->vm, SGL_LIMIT, "eval: the products of the graph take %.2g flops, a script has %.2g",
                    sgl_program_flops(job->program), most_flops);
}

static sgl_status run_once(sgl_job *job, const sgldsl_graph *graph, sgl_value value, void *data, size_t bytes)
{
    sgl_graph *part = NULL;
    sgl_status status = job->session != NULL ? SGL_OK : sgl_session_new(job->vm, "cpu", &job->session);
    if (status == SGL_OK) status = sgl_graph_extract(graph->graph, &value, 1, NULL, 0, &part);
    if (status == SGL_OK) status = sgl_freeze(job->session, part, NULL, &job->program);
    sgl_graph_free(part);
    if (status == SGL_OK) status = check_need(job);
    if (status == SGL_OK) status = sgl_step(job->program);
    if (status == SGL_OK) status = sgl_fetch(job->program, "value.0", data, bytes);
    if (job->program != NULL) sgl_program_free(job->program);
    job->program = NULL;
    if (status == SGL_LIMIT) { /* the session has planned for what was refused */
        sgl_session_free(job->session);
        job->session = NULL;
    }
    return status;
}

void sgldsl_evaluate(lua_State *L, int index, sgldsl_elements *elements)
{
    sgl_job *job = sgldsl_job(L);
    sgldsl_graph *graph = sgldsl_tracing(L, "eval");
    sgldsl_type_of(L, sgldsl_check_tensor(L, index, "eval", graph), "eval", &elements->type);
    elements->count = element_count(&elements->type);
    if (elements->count > MOST_ELEMENTS) sgldsl_error(L, "eval: the tensor has more than %d elements", MOST_ELEMENTS);
    bool floats = sgldsl_is_float(elements->type.dtype);
    size_t bytes = (size_t)elements->count * 8;
    void *data = sgldsl_scratch_get(L, SCRATCH_ELEMENTS, bytes > 0 ? bytes : 8);
    sgl_value value = cast_to(L, index, floats);
    sgldsl_charge(L, 10000 + elements->count);
    sgldsl_check(L, run_once(job, graph, value, data, bytes));
    elements->floats = floats ? data : NULL;
    elements->integers = floats ? NULL : data;
}

void sgldsl_push_element(lua_State *L, const sgldsl_elements *elements, int64_t at)
{
    if (elements->floats != NULL) {
        lua_pushnumber(L, elements->floats[at]);
    } else if (elements->type.dtype == SGL_BOOL) {
        lua_pushboolean(L, elements->integers[at] != 0);
    } else {
        lua_pushinteger(L, elements->integers[at]);
    }
}

/* Pushes what lies along the dimensions from `dim` on; *at runs through the elements. */
static void push_nested(lua_State *L, const sgldsl_elements *elements, int dim, int64_t *at)
{
    if (dim == elements->type.rank) {
        sgldsl_push_element(L, elements, (*at)++);
        return;
    }
    luaL_checkstack(L, 4, "too many dimensions");
    int64_t extent = elements->count > 0 ? elements->type.dims[dim] : 0; /* no elements: an empty list, however deep */
    lua_createtable(L, (int)extent, 0);
    for (int64_t i = 0; i < extent; i++) {
        push_nested(L, elements, dim + 1, at);
        lua_rawseti(L, -2, i + 1);
    }
}

/* (tensor) -> number, boolean, or lists */
int sgldsl_core_eval(lua_State *L)
{
    sgldsl_elements elements;
    lua_settop(L, 1);
    sgldsl_evaluate(L, 1, &elements);
    if (elements.count > MOST_IN_TABLES) sgldsl_error(L, "eval: more than %d elements for lists", MOST_IN_TABLES);
    int64_t at = 0;
    push_nested(L, &elements, 0, &at);
    return 1;
}
