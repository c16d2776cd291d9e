/* reaches.c -- whether a gradient comes from one value to any of others, asked while a graph is being made.
 *
 * Comes in: a graph, the value that would be derived, those that it would be derived by. Goes out: yes or no, by the path
 * that autodiff itself would walk. The graph stays as it is. */
#include "passes/autodiff_path.h"
#include "session/session.h"

static bool is_value(const sgl_graph *graph, sgl_value value) { return value.id < (uint64_t)graph->ir->values.count; }

sgl_status sgl_reaches(const sgl_graph *graph, sgl_value of, const sgl_value *wrt, int count, int *reached)
{
    SGLSESSION_NEEDS(graph && wrt && reached, graph ? graph->vm : NULL, "graph, wrt or reached is NULL");
    SGLSESSION_NEEDS(count >= 1 && count < INT32_MAX, graph->vm, "count is below 1 or too large");
    SGLSESSION_NEEDS(is_value(graph, of), graph->vm, "`of` is no value of the graph");
    for (int i = 0; i < count; i++)
        SGLSESSION_NEEDS(is_value(graph, wrt[i]), graph->vm, "one of wrt is no value of the graph");
    sglcore_env *env = &graph->vm->env;
    sglpass_path path = { 0 };
    size_t bytes = (size_t)(count + 1) * sizeof(sglir_id);
    sglir_id *args = sglcore_alloc(env, bytes);
    if (!args) return SGL_OUT_OF_MEMORY;
    args[0] = (sglir_id)of.id;
    for (int i = 0; i < count; i++) args[i + 1] = (sglir_id)wrt[i].id;
    sgl_status status = sglpass_path_find(&path, graph->ir, args, (uint32_t)count + 1);
    if (status == SGL_OK) *reached = (path.marks.data[args[0]] & SGLPASS_DEPENDS) != 0;
    sglpass_path_free(&path, env);
    sglcore_free(env, args, bytes);
    return status;
}
