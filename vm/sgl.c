/* sgl.c -- the public C API: checks arguments, calls one room. VM, graphs and plans stand here; sessions, training, token
 * data and reports behind session/, scripts behind the front end.
 *
 * Comes in: a host's call. Goes out: a status, with the message in the VM. What a VM owns stands in its lists, so that
 * sgl_close frees whatever a host forgot. */
#include <string.h>

#include "core/knob.h"
#include "session/session.h"

/* ---- VM ------------------------------------------------------------------------------------------------------- */

sgl_status sgl_open(const sgl_config *config, sgl_vm **vm)
{
    static const sgl_config empty = { 0 };
    if (!vm) return SGL_INVALID_ARGUMENT;
    if (!config) config = &empty;
    *vm = NULL;
    sglcore_env env;
    sglcore_env_init(&env, config->alloc, config->alloc_user, config->log, config->log_user);
    sgl_vm *made = sglcore_alloc_zero(&env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->env = env;
    made->threads = config->threads > 0 ? config->threads : 0; /* 0: the device asks SGL_THREADS */
    *vm = made;
    return SGL_OK;
}

void sgl_close(sgl_vm *vm)
{
    if (!vm) return;
    while (vm->hooks) {
        sglsession_hook hook = *(sglsession_hook *)vm->hooks;
        sgl_off_close(vm, hook.close, hook.user);
        hook.close(hook.user);
    }
    while (vm->sessions) sgl_session_free((sgl_session *)vm->sessions);
    while (vm->tokens) sgl_tokens_free((sgl_tokens *)vm->tokens);
    while (vm->graphs) sgl_graph_free((sgl_graph *)vm->graphs);
    while (vm->plans) sgl_plan_free((sgl_plan *)vm->plans);
    sglsession_forget_found(vm);
    sglcore_env env = vm->env; /* the block that holds the env is the last to go */
    sglcore_free(&env, vm, sizeof *vm);
}

const char *sgl_error_message(const sgl_vm *vm) { return vm ? vm->env.message : ""; }

void sgl_interrupt(sgl_vm *vm)
{
    if (!vm) return;
    if (vm->interrupted) atomic_store(&vm->stop_now, true);
    vm->interrupted = 1;
}

void sgl_resume(sgl_vm *vm)
{
    if (vm) sglsession_resume(vm);
}

int sgl_interrupted(const sgl_vm *vm)
{
    if (!vm || !vm->interrupted) return 0;
    return atomic_load(&vm->stop_now) ? 2 : 1;
}

void *sgl_realloc(sgl_vm *vm, void *block, size_t old_bytes, size_t new_bytes)
{
    return vm ? sglcore_realloc(&vm->env, block, block ? old_bytes : 0, new_bytes) : NULL;
}

sgl_status sgl_fail(sgl_vm *vm, sgl_status status, const char *format, ...)
{
    if (!vm || !format) return status;
    va_list arguments;
    va_start(arguments, format);
    status = sglcore_fail_v(&vm->env, status, format, arguments);
    va_end(arguments);
    return status;
}

void sgl_log(sgl_vm *vm, sgl_log_level level, const char *format, ...)
{
    if (!vm || !format) return;
    va_list arguments;
    va_start(arguments, format);
    sglcore_log_v(&vm->env, level, format, arguments);
    va_end(arguments);
}

const char *sgl_knob(const char *variable)
{
    for (int i = 0; variable && i < SGLCORE_KNOB_COUNT; i++)
        if (strcmp(sglcore_knob_rows[i].variable, variable) == 0) return sglcore_knob_text((sglcore_knob)i);
    return NULL;
}

const char *sgl_axis_name(int index)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++)
        if (axis != SGLIR_AXIS_MICRO && index-- == 0) return sglir_axis_name(axis);
    return NULL;
}

const char *sgl_nearest(const char *name, const char *const *names, int count)
{
    return name && names ? sglcore_nearest(name, names, count) : NULL;
}

sgl_status sgl_on_close(sgl_vm *vm, void (*close)(void *user), void *user)
{
    SGLSESSION_NEEDS(vm && close, vm, "vm or close is NULL");
    sglsession_hook *hook = sglcore_alloc_zero(&vm->env, sizeof *hook);
    if (!hook) return SGL_OUT_OF_MEMORY;
    hook->close = close;
    hook->user = user;
    sglsession_link_in(&vm->hooks, &hook->link);
    return SGL_OK;
}

void sgl_off_close(sgl_vm *vm, void (*close)(void *user), void *user)
{
    for (sglsession_link *link = vm ? vm->hooks : NULL; link; link = link->next) {
        sglsession_hook *hook = (sglsession_hook *)link;
        if (hook->close != close || hook->user != user) continue;
        sglsession_link_out(link);
        sglcore_free(&vm->env, hook, sizeof *hook);
        return;
    }
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

sgl_status sgl_graph_new(sgl_vm *vm, const char *name, sgl_graph **graph)
{
    SGLSESSION_NEEDS(vm && graph, vm, "vm or graph is NULL");
    *graph = NULL;
    sglir_graph *ir;
    SGLCORE_TRY(sglir_graph_new(&vm->env, name ? name : "graph", &ir));
    return sglsession_graph_take(vm, ir, graph);
}

void sgl_graph_free(sgl_graph *graph)
{
    if (!graph) return;
    sglsession_link_out(&graph->link);
    sglsession_forget_padding(graph);
    sglir_graph_free(graph->ir);
    sglcore_free(&graph->vm->env, graph, sizeof *graph);
}

/* A call that failed leaves the graph usable: what it emitted is dead, the next call starts afresh. */
static sgl_status settle(sgl_graph *graph)
{
    sgl_status status = sglir_status(graph->ir);
    graph->ir->status = SGL_OK;
    return status;
}

sgl_status sgl_graph_origin(sgl_graph *graph, const char *file, int line, const char *scope)
{
    if (!graph) return SGL_INVALID_ARGUMENT; /* there is nowhere to say why */
    sglir_set_origin(graph->ir, file ? file : "", line, scope ? scope : "", "");
    return settle(graph);
}

static sgl_status check_type(sgl_vm *vm, const char *what, const sgl_type *type)
{
    if (!type || (int)type->dtype < 0 || type->dtype >= SGL_DTYPE_COUNT)
        return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "sgl_input: %s: its dtype is none that sgl has", what);
    if (type->rank < 0 || type->rank > SGL_MAX_RANK)
        return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "sgl_input: %s: rank %d is outside 0..%d", what, type->rank,
                            SGL_MAX_RANK);
    for (int i = 0; i < type->rank; i++)
        if (type->dims[i] < 0)
            return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "sgl_input: %s: dimension %d is negative", what, i);
    return SGL_OK;
}

sgl_status sgl_input(sgl_graph *graph, sgl_role role, const char *name, const sgl_type *type, sgl_value *value)
{
    sgl_vm *vm = graph ? graph->vm : NULL;
    SGLSESSION_NEEDS(graph && name && value, vm, "graph, name or value is NULL");
    SGLSESSION_NEEDS(*name, vm, "the name is empty");
    SGLSESSION_NEEDS((int)role >= 0 && role <= SGL_CACHE, vm, "the role is none that sgl has");
    SGLCORE_TRY(check_type(graph->vm, name, type));
    sglir_type made = sglir_type_make(type->dtype, type->rank, type->dims);
    value->id = sglir_input(graph->ir, role, name, &made);
    return settle(graph);
}

static bool known_value(const sgl_graph *graph, sgl_value value)
{
    return value.id < (uint64_t)graph->ir->values.count;
}

enum { ATTRS = 16 };

static sgl_status convert_attrs(sgl_vm *vm, const char *op, const sgl_attr *attrs, int count, sglir_named out[ATTRS])
{
    static const char kinds[] = { [SGL_ATTR_INT] = 'i',   [SGL_ATTR_FLOAT] = 'f', [SGL_ATTR_STRING] = 's',
                                  [SGL_ATTR_DTYPE] = 't', [SGL_ATTR_INTS] = 'I',  [SGL_ATTR_FLOATS] = 'F' };
    if (count < 0 || count > ATTRS || (count > 0 && !attrs))
        return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "%s: %d attributes, at most %d are possible", op, count,
                            ATTRS);
    for (int i = 0; i < count; i++) {
        const sgl_attr *a = &attrs[i];
        bool list = a->kind == SGL_ATTR_INTS || a->kind == SGL_ATTR_FLOATS;
        if (!a->name || (int)a->kind < 0 || a->kind > SGL_ATTR_FLOATS || (a->kind == SGL_ATTR_STRING && !a->s) ||
            (list &&
             (a->i < 0 || (a->i > 0 && !(a->kind == SGL_ATTR_INTS ? (const void *)a->ints : (const void *)a->floats)))))
            return sglcore_fail(&vm->env, SGL_INVALID_ARGUMENT, "%s: attribute %d has no name, kind or value", op, i);
        out[i] = (sglir_named){ .name = a->name,
                                .kind = kinds[a->kind],
                                .i = a->i,
                                .f = a->f,
                                .s = a->s,
                                .ints = a->ints,
                                .floats = a->floats };
    }
    return SGL_OK;
}

static sgl_status find_op(sgl_vm *vm, const char *name, sglir_op *op)
{
    *op = name ? sglir_op_find(name) : SGLIR_OP_COUNT;
    if (*op != SGLIR_OP_COUNT) return SGL_OK;
    const char *names[SGLIR_OP_COUNT];
    for (int i = 0; i < SGLIR_OP_COUNT; i++) names[i] = sglir_ops[i].name;
    char hint[SGLCORE_HINT_ROOM];
    if (!name) name = "";
    return sglcore_fail(&vm->env, SGL_NOT_FOUND, "there is no op '%s'%s", name,
                        sglcore_hint(name, names, SGLIR_OP_COUNT, hint));
}

/* Results of one emitted node go to the caller when they fit. */
static sgl_status hand_results(sgl_graph *graph, const char *op, sglir_id first, sgl_value *results, int capacity,
                               int *count_out)
{
    SGLCORE_TRY(settle(graph));
    int count = (int)sglir_maker(graph->ir, first)->out_count;
    if (count > capacity || !results)
        return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s: %d results, room for %d", op, count, capacity);
    for (int i = 0; i < count; i++) results[i].id = first + (uint32_t)i;
    if (count_out) *count_out = count;
    return SGL_OK;
}

sgl_status sgl_emit(sgl_graph *graph, const char *op, const sgl_value *arguments, int argument_count,
                    const sgl_attr *attrs, int attr_count, sgl_value *results, int capacity, int *count_out)
{
    SGLSESSION_NEEDS(graph && argument_count >= 0 && (arguments || !argument_count), graph ? graph->vm : NULL,
                     "graph or arguments is NULL, or argument_count is below 0");
    sglir_op row;
    SGLCORE_TRY(find_op(graph->vm, op, &row));
    if (row == SGLIR_OP_INPUT || sglir_ops[row].flags & SGLIR_REGION)
        return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s is not made by sgl_emit", op);
    for (int i = 0; i < argument_count; i++)
        if (!known_value(graph, arguments[i]))
            return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s: argument %d is no value of this graph", op,
                                i);
    sglir_named named[ATTRS];
    SGLCORE_TRY(convert_attrs(graph->vm, op, attrs, attr_count, named));
    /* sgl_value is one id: the arguments are an array of ids already. */
    _Static_assert(sizeof(sgl_value) == sizeof(sglir_id), "a value is its id");
    sglir_id first = sglir_build(graph->ir, row, (const sglir_id *)arguments, argument_count, named, attr_count, NULL);
    return hand_results(graph, op, first, results, capacity, count_out);
}

/* ---- regions -------------------------------------------------------------------------------------------------- */

sgl_status sgl_regions(sgl_graph *graph, const char *op, uint32_t *first, int *count)
{
    if (!graph || !first) return SGL_INVALID_ARGUMENT;
    sglir_op row;
    SGLCORE_TRY(find_op(graph->vm, op, &row));
    int regions = row == SGLIR_OP_FUSED ? 0 : sglir_region_count(row);
    if (regions == 0) return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s: is no loop or branch", op);
    *first = sglir_region_take(graph->ir, regions);
    if (count) *count = regions;
    return settle(graph);
}

sgl_status sgl_region_begin(sgl_graph *graph, uint32_t region)
{
    if (!graph) return SGL_INVALID_ARGUMENT;
    sglir_region_begin_at(graph->ir, region, NULL, 0, NULL);
    return settle(graph);
}

sgl_status sgl_region_parameter(sgl_graph *graph, const sgl_type *type, sgl_value *value)
{
    if (!graph || !value) return SGL_INVALID_ARGUMENT;
    SGLCORE_TRY(check_type(graph->vm, "a region's parameter", type));
    sglir_type made = sglir_type_make(type->dtype, type->rank, type->dims);
    value->id = sglir_region_parameter(graph->ir, &made);
    return settle(graph);
}

static sgl_status check_values(sgl_graph *graph, const char *what, const sgl_value *values, int count)
{
    if (count < 0 || (count > 0 && !values)) return SGL_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++)
        if (!known_value(graph, values[i]))
            return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s: value %d is none of this graph", what, i);
    return SGL_OK;
}

sgl_status sgl_region_end(sgl_graph *graph, const sgl_value *results, int count)
{
    if (!graph) return SGL_INVALID_ARGUMENT;
    SGLCORE_TRY(check_values(graph, "a region's results", results, count));
    sglir_region_end(graph->ir, (const sglir_id *)results, count);
    return settle(graph);
}

sgl_status sgl_emit_regions(sgl_graph *graph, const char *op, const sgl_value *arguments, int argument_count,
                            const sgl_attr *attrs, int attr_count, uint32_t first, sgl_value *results, int capacity,
                            int *count_out)
{
    sglir_op row;
    sglir_named named[ATTRS];
    if (!graph) return SGL_INVALID_ARGUMENT;
    SGLCORE_TRY(find_op(graph->vm, op, &row));
    SGLCORE_TRY(check_values(graph, op, arguments, argument_count));
    int count = row == SGLIR_OP_FUSED ? 0 : sglir_region_count(row);
    if (count == 0) return sglcore_fail(&graph->vm->env, SGL_INVALID_ARGUMENT, "%s: is no loop or branch", op);
    SGLCORE_TRY(convert_attrs(graph->vm, op, attrs, attr_count, named));
    const sglir_id regions[2] = { first, first + 1 };
    sglir_id made = sglir_emit_regions(graph->ir, row, (const sglir_id *)arguments, argument_count, named, attr_count,
                                       regions, count, NULL);
    if (sglir_status(graph->ir) == SGL_OK && made >= (sglir_id)graph->ir->values.count) { /* a branch without results */
        if (count_out) *count_out = 0;
        return SGL_OK;
    }
    return hand_results(graph, op, made, results, capacity, count_out);
}

int sgl_region_depth(const sgl_graph *graph) { return graph ? (int)graph->ir->open.count - 1 : 0; }

void sgl_region_abandon(sgl_graph *graph, int depth)
{
    if (graph && depth >= 0) sglir_region_abandon(graph->ir, depth + 1);
}

sgl_status sgl_grad(sgl_graph *graph, sgl_value of, const sgl_value *wrt, int count, sgl_value *gradients)
{
    SGLSESSION_NEEDS(graph && wrt && gradients, graph ? graph->vm : NULL, "graph, wrt or gradients is NULL");
    SGLSESSION_NEEDS(count >= 1, graph->vm, "count is below 1: there is nothing to derive by");
    SGLSESSION_NEEDS(count < INT32_MAX, graph->vm, "count is too large");
    sglcore_env *env = &graph->vm->env;
    size_t bytes = (size_t)(count + 1) * sizeof(sgl_value);
    sgl_value *arguments = sglcore_alloc(env, bytes);
    if (!arguments) return SGL_OUT_OF_MEMORY;
    arguments[0] = of;
    memcpy(arguments + 1, wrt, (size_t)count * sizeof *wrt);
    sgl_status status = sgl_emit(graph, "grad", arguments, count + 1, NULL, 0, gradients, count, NULL);
    sglcore_free(env, arguments, bytes);
    return status;
}

sgl_status sgl_value_type(const sgl_graph *graph, sgl_value value, sgl_type *type)
{
    SGLSESSION_NEEDS(graph && type && known_value(graph, value), graph ? graph->vm : NULL,
                     "graph or type is NULL, or the value is none of this graph");
    const sglir_type *t = sglir_type_of(graph->ir, value.id);
    type->dtype = (sgl_dtype)t->dtype;
    type->rank = t->rank;
    memcpy(type->dims, t->dims, sizeof type->dims);
    return SGL_OK;
}

sgl_status sgl_graph_recompute(sgl_graph *graph, const char *path)
{
    SGLSESSION_NEEDS(graph && path && *path, graph ? graph->vm : NULL, "graph or path is NULL, or the path is empty");
    sglir_recompute(graph->ir, path);
    return settle(graph);
}

static sgl_status add_output(sgl_graph *graph, const char *call, sglir_output_role role, const char *name,
                             sgl_value value)
{
    if (!graph || !name || !*name)
        return sglsession_refuse(graph ? graph->vm : NULL, call, "graph or name is NULL, or the name is empty");
    if (!known_value(graph, value)) return sglsession_refuse(graph->vm, call, "the value is none of this graph");
    sglir_output_add(graph->ir, role, name, value.id);
    return settle(graph);
}

sgl_status sgl_output_fetch(sgl_graph *graph, const char *name, sgl_value value)
{
    return add_output(graph, __func__, SGLIR_FETCH, name, value);
}

sgl_status sgl_output_update(sgl_graph *graph, const char *name, sgl_value value)
{
    return add_output(graph, __func__, SGLIR_UPDATE, name, value);
}

static bool is_op(int index) { return index >= 0 && index < SGLIR_OP_COUNT; }

const char *sgl_op_name(int index) { return is_op(index) ? sglir_ops[index].name : NULL; }
const char *sgl_op_help(int index) { return is_op(index) ? sglir_ops[index].help : NULL; }
const char *sgl_op_arguments(int index) { return is_op(index) ? sglir_op_words_of((sglir_op)index).arguments : NULL; }
const char *sgl_op_shapes(int index) { return is_op(index) ? sglir_op_words_of((sglir_op)index).shapes : NULL; }
const char *sgl_op_derivative(int index) { return is_op(index) ? sglir_op_words_of((sglir_op)index).derivative : NULL; }

sgl_status sgl_op_signature(sgl_vm *vm, const char *op, int *minimum, int *maximum, const char **attrs)
{
    sglir_op row;
    if (!vm) return SGL_INVALID_ARGUMENT; /* there is nowhere to say why */
    SGLCORE_TRY(find_op(vm, op, &row));
    if (minimum) *minimum = sglir_ops[row].minimum;
    if (maximum) *maximum = sglir_ops[row].maximum;
    if (attrs) *attrs = sglir_ops[row].attrs;
    return SGL_OK;
}

/* ---- plans ---------------------------------------------------------------------------------------------------- */

sgl_status sgl_plan_new(sgl_vm *vm, sgl_plan **plan)
{
    SGLSESSION_NEEDS(vm && plan, vm, "vm or plan is NULL");
    sgl_plan *made = *plan = sglcore_alloc_zero(&vm->env, sizeof *made);
    if (!made) return SGL_OUT_OF_MEMORY;
    made->vm = vm;
    sglplan_init(&made->plan);
    sglsession_link_in(&vm->plans, &made->link);
    return SGL_OK;
}

void sgl_plan_free(sgl_plan *plan)
{
    if (!plan) return;
    sglsession_link_out(&plan->link);
    sglcore_free(&plan->vm->env, plan, sizeof *plan);
}

sgl_status sgl_plan_set(sgl_plan *plan, const sgl_attr *value)
{
    SGLSESSION_NEEDS(plan && value, plan ? plan->vm : NULL, "plan or value is NULL");
    sglir_named named[ATTRS];
    SGLCORE_TRY(convert_attrs(plan->vm, "plan", value, 1, named));
    return sglplan_set(&plan->vm->env, &plan->plan, named);
}
