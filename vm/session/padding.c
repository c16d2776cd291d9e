/* padding.c -- the part of sgl.h on dims with buckets: what a host declares of a graph's padding, and asks about it.
 *
 * Comes in: a graph that is being made, notes, questions. Goes out: answers of ir/padding.h, which are worked out when they
 * are asked for. A graph of which nothing is declared has no padding, and every question finds none. */
#include <string.h>

#include "session/session.h"

static bool is_value(const sgl_graph *graph, sgl_value value) { return value.id < (uint64_t)graph->ir->values.count; }

void sglsession_forget_padding(sgl_graph *graph)
{
    if (!graph->padding) return;
    sglir_padding_free(graph->padding);
    sglcore_free(&graph->vm->env, graph->padding, sizeof *graph->padding);
    graph->padding = NULL;
}

static sgl_status find_dim(sgl_graph *graph, const char *name, int *dim)
{
    if (!graph->padding) {
        graph->padding = sglcore_alloc(&graph->vm->env, sizeof *graph->padding);
        if (!graph->padding) return SGL_OUT_OF_MEMORY;
        sglir_padding_init(graph->padding, graph->ir);
    }
    return sglir_padding_dim(graph->padding, name, dim);
}

sgl_status sgl_padding_declare(sgl_graph *graph, sgl_value value, const char *dim, int axis, int rows, double content,
                               int computed)
{
    SGLSESSION_NEEDS(graph && dim && *dim, graph ? graph->vm : NULL, "graph or dim is NULL, or the dim has no name");
    SGLSESSION_NEEDS(is_value(graph, value), graph->vm, "the value is none of this graph");
    int rank = sglir_type_of(graph->ir, value.id)->rank;
    SGLSESSION_NEEDS(axis >= 0 && axis < rank && rows >= -1 && rows < rank && rows != axis, graph->vm,
                     "axis or rows is no dimension of the value, or they are the same");
    sglir_padding_note note = { .kind = computed ? SGLIR_PADDING_MASK : SGLIR_PADDING_FEED,
                                .axis = axis,
                                .rows = rows,
                                .value = value.id,
                                .content = content };
    SGLCORE_TRY(find_dim(graph, dim, &note.dim));
    return sglir_padding_add(graph->padding, &note);
}

sgl_status sgl_padding_like(sgl_graph *graph, sgl_value parameter, sgl_value first)
{
    SGLSESSION_NEEDS(graph && is_value(graph, parameter) && is_value(graph, first), graph ? graph->vm : NULL,
                     "graph is NULL, or a value is none of it");
    for (int d = 0; graph->padding && d < graph->padding->dim_count; d++) {
        const sglir_padding_note note = {
            .kind = SGLIR_PADDING_LIKE, .dim = d, .value = parameter.id, .other = first.id
        };
        SGLCORE_TRY(sglir_padding_add(graph->padding, &note));
    }
    return SGL_OK;
}

sgl_status sgl_padding_turn(sgl_graph *graph, sgl_value place, const char *dim, int reverse)
{
    SGLSESSION_NEEDS(graph && dim && *dim && is_value(graph, place), graph ? graph->vm : NULL,
                     "graph or dim is NULL, or the value is none of the graph");
    sglir_padding_note note = { .kind = SGLIR_PADDING_TURN, .value = place.id, .reverse = reverse != 0 };
    SGLCORE_TRY(find_dim(graph, dim, &note.dim));
    return sglir_padding_add(graph->padding, &note);
}

sgl_status sgl_padding_stack(sgl_graph *graph, sgl_value parameter, const char *dim)
{
    SGLSESSION_NEEDS(graph && dim && *dim && is_value(graph, parameter), graph ? graph->vm : NULL,
                     "graph or dim is NULL, or the value is none of the graph");
    SGLSESSION_NEEDS(sglir_type_of(graph->ir, parameter.id)->rank > 0, graph->vm, "the parameter has no dimension");
    sglir_padding_note note = { .kind = SGLIR_PADDING_STACK, .value = parameter.id };
    SGLCORE_TRY(find_dim(graph, dim, &note.dim));
    return sglir_padding_add(graph->padding, &note);
}

sgl_status sgl_padding_find(sgl_graph *graph, sgl_value value, const char *dim, int axis, int *found)
{
    SGLSESSION_NEEDS(graph && dim && found, graph ? graph->vm : NULL, "graph, dim or found is NULL");
    SGLSESSION_NEEDS(is_value(graph, value), graph->vm, "the value is none of this graph");
    *found = 0;
    for (int d = 0; graph->padding && d < graph->padding->dim_count; d++) {
        const sglir_padding_state *state;
        if (strcmp(sglcore_string(graph->ir->strings, graph->padding->dims[d]), dim) != 0) continue;
        SGLCORE_TRY(sglir_padding_of(graph->padding, d, value.id, &state));
        if (axis < 0 || axis >= sglir_type_of(graph->ir, value.id)->rank) return SGL_OK;
        if (state->axes[axis].padded) *found = sglir_padding_is_plain(&state->axes[axis]) ? 1 : 2;
    }
    return SGL_OK;
}

sgl_status sgl_padding_check(sgl_graph *graph)
{
    if (!graph) return SGL_INVALID_ARGUMENT;
    return graph->padding ? sglir_padding_check(graph->padding) : SGL_OK;
}

sgl_status sgl_padding_compare(sgl_graph *graph, const sgl_graph *other, const char *dim)
{
    SGLSESSION_NEEDS(graph && other && dim, graph ? graph->vm : NULL, "graph, other or dim is NULL");
    SGLCORE_TRY(sglsession_same_vm(graph->vm, other->vm, "sgl_padding_compare", "other graph"));
    SGLSESSION_NEEDS(graph->padding, graph->vm, "nothing was declared of the graph's padding");
    return sglir_padding_compare(graph->padding, other->ir, dim);
}
