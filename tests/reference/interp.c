/* interp.c -- the interpreter's walk: values by id, regions run in order, results by name. In and out: interp.h. */
#include "interp_inside.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ------------------------------------------------------------------------------------------------ */

static void *must(void *block)
{
    if (block == NULL) {
        fputs("interp: out of memory\n", stderr);
        abort();
    }
    return block;
}

interp_tensor interp_tensor_new(sgl_dtype dtype, int rank, const int64_t *dims)
{
    interp_tensor t = { .dtype = dtype, .rank = rank, .count = 1 };
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.count *= dims[i];
    }
    size_t room = t.count > 0 ? (size_t)t.count : 1;
    if (sglcore_dtype_is_float(dtype)) {
        t.floats = must(calloc(room, sizeof *t.floats));
    } else {
        t.ints = must(calloc(room, sizeof *t.ints));
    }
    return t;
}

void interp_tensor_free(interp_tensor *tensor)
{
    free(tensor->floats);
    free(tensor->ints);
    *tensor = (interp_tensor){ 0 };
}

static interp_tensor copy_of(const interp_tensor *t)
{
    interp_tensor copy = interp_tensor_new(t->dtype, t->rank, t->dims);
    for (int64_t i = 0; i < t->count; i++) interp_move(&copy, i, t, i);
    return copy;
}

double interp_get(const interp_tensor *t, int64_t element)
{
    return t->floats != NULL ? t->floats[element] : (double)t->ints[element];
}

/* A float becomes an integer by truncation; what no int64 holds becomes the nearest that does, NaN becomes 0. */
static int64_t truncated(double value)
{
    if (isnan(value)) return 0;
    if (value >= 9223372036854775808.0) return INT64_MAX;
    if (value <= -9223372036854775808.0) return INT64_MIN;
    return (int64_t)value;
}

void interp_set(interp_tensor *t, int64_t element, double value)
{
    if (t->floats != NULL) {
        t->floats[element] = value;
    } else if (t->dtype == SGL_BOOL) {
        t->ints[element] = value != 0;
    } else {
        t->ints[element] = truncated(value);
    }
}

/* The nearest number that the integer dtype holds; NaN stays. */
static double within(sgl_dtype dtype, double value)
{
    int bits = sglcore_dtype_bits(dtype);
    if (dtype == SGL_BOOL || bits == 64 || isnan(value)) return value;
    bool negative = sglcore_dtype_is_signed(dtype);
    double largest = ldexp(1, negative ? bits - 1 : bits) - 1, least = negative ? -ldexp(1, bits - 1) : 0;
    return fmin(fmax(value, least), largest);
}

void interp_move(interp_tensor *to, int64_t to_element, const interp_tensor *from, int64_t from_element)
{
    if (to->floats != NULL && from->floats != NULL) {
        to->floats[to_element] = from->floats[from_element];
    } else if (to->ints != NULL && from->ints != NULL) {
        to->ints[to_element] = from->ints[from_element];
    } else {
        double value = interp_get(from, from_element);
        interp_set(to, to_element, to->ints != NULL ? within(to->dtype, value) : value);
    }
}

void interp_unravel(int64_t element, int rank, const int64_t *dims, int64_t *index)
{
    for (int i = rank - 1; i >= 0; i--) {
        index[i] = element % dims[i];
        element /= dims[i];
    }
}

int64_t interp_ravel(int rank, const int64_t *dims, const int64_t *index)
{
    int64_t element = 0;
    for (int i = 0; i < rank; i++) element = element * dims[i] + index[i];
    return element;
}

long double *interp_sums(const interp_tensor *t)
{
    return t->floats == NULL ? NULL : must(calloc(t->count > 0 ? (size_t)t->count : 1, sizeof(long double)));
}

void interp_summed(interp_tensor *t, long double *sums)
{
    for (int64_t e = 0; t->floats != NULL && e < t->count; e++) t->floats[e] = (double)sums[e];
    free(sums);
}

/* ---- dtypes ------------------------------------------------------------------------------------------------- */

/* To `digits` binary digits, ties to even; below the least normal exponent fewer are left; beyond the largest: inf. */
static double rounded(double value, int digits, int least_exponent, double largest)
{
    if (value == 0 || isnan(value) || isinf(value)) return value;
    int exponent;
    frexp(value, &exponent); /* value = m * 2^exponent, 0.5 <= |m| < 1 */
    if (exponent < least_exponent) exponent = least_exponent;
    double result = ldexp(nearbyint(ldexp(value, digits - exponent)), exponent - digits);
    return fabs(result) > largest ? copysign(INFINITY, value) : result;
}

static double to_float_dtype(sgl_dtype dtype, double value)
{
    switch (dtype) {
    case SGL_F32: return (double)(float)value;
    case SGL_BF16: return rounded(value, 8, -125, ldexp(255.0 / 128, 127));
    case SGL_F16: return rounded(value, 11, -13, 65504);
    case SGL_F8E4M3:
        value = rounded(value, 4, -5, 448);
        return isinf(value) ? NAN : value; /* OCP: it has no infinity */
    case SGL_F8E5M2: return rounded(value, 3, -13, 57344);
    default: return value;
    }
}

/* The low bits, as two's complement when the dtype has a sign. */
static int64_t to_int_dtype(sgl_dtype dtype, int64_t value)
{
    int bits = sglcore_dtype_bits(dtype);
    if (dtype == SGL_BOOL) return value != 0;
    if (bits == 64) return value;
    uint64_t low = (uint64_t)value & ((UINT64_C(1) << bits) - 1);
    bool negative = sglcore_dtype_is_signed(dtype) && (low >> (bits - 1)) != 0;
    return negative ? (int64_t)low - (INT64_C(1) << bits) : (int64_t)low;
}

static void settle(const interp *in, interp_tensor *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (t->ints != NULL) {
            t->ints[i] = to_int_dtype(t->dtype, t->ints[i]);
        } else if (in->round) {
            t->floats[i] = to_float_dtype(t->dtype, t->floats[i]);
        }
    }
}

/* ---- attributes --------------------------------------------------------------------------------------------- */

int64_t interp_int(const interp_call *call, const char *attr) { return sglir_attr_int(call->g, call->node, attr); }
double interp_float(const interp_call *call, const char *attr) { return sglir_attr_float(call->g, call->node, attr); }
const int64_t *interp_ints(const interp_call *call, const char *attr, int *count)
{
    return sglir_attr_ints(call->g, call->node, attr, count);
}

/* ---- the walk ----------------------------------------------------------------------------------------------- */

typedef struct walk {
    interp *in;
    const sglir_graph *g;
    interp_tensor *values; /* per value id */
    struct
    { /* what the stop_gradients within regions gave, in the order in which they ran: differences leave it as it was */
        interp_tensor *kept;
        int count, at;
        enum { STOPS_PASS, STOPS_KEEP, STOPS_AGAIN } mode;
    } stops;
} walk;

static bool fail(interp *in, const char *format, ...) SGL_PRINTF(2, 3);
static bool fail(interp *in, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(in->error, sizeof in->error, format, arguments);
    va_end(arguments);
    return false;
}

/* Takes the tensor over as the value; an older one (of the last turn of a scan) goes. */
static void put(walk *w, sglir_id value, interp_tensor tensor)
{
    interp_tensor_free(&w->values[value]);
    w->values[value] = tensor;
}

static interp_tensor zeros_of(const sglir_graph *g, sglir_id value)
{
    const sglir_type *type = sglir_type_of(g, value);
    return interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
}

static bool run_region(walk *w, sglir_id id);

static bool run_scan(walk *w, const sglir_node *node)
{
    const sglir_graph *g = w->g;
    const sglir_region *region = &g->regions.data[node->region_first];
    int64_t steps = sglir_attr_int(g, node, "steps");
    uint32_t count = node->arg_count;
    for (uint32_t i = 0; i < count; i++) put(w, node->out_first + i, copy_of(&w->values[sglir_arg(g, node, i)]));
    for (int64_t step = 0; step < steps; step++) {
        interp_tensor index = interp_tensor_new(SGL_I64, 0, NULL);
        index.ints[0] = step;
        put(w, region->parameters.data[0], index);
        for (uint32_t i = 0; i < count; i++) {
            put(w, region->parameters.data[i + 1], copy_of(&w->values[node->out_first + i]));
        }
        if (!run_region(w, node->region_first)) return false;
        for (uint32_t i = 0; i < count; i++) {
            put(w, node->out_first + i, copy_of(&w->values[region->results.data[i]]));
        }
    }
    return true;
}

static void put_index(walk *w, sglir_id parameter, int64_t turn)
{
    interp_tensor index = interp_tensor_new(SGL_I64, 0, NULL);
    index.ints[0] = turn;
    put(w, parameter, index);
}

/* The carries as they stand in the node's results, into the region's parameters. */
static bool run_turn(walk *w, const sglir_node *node, sglir_id id, int64_t turn)
{
    const sglir_region *region = &w->g->regions.data[id];
    put_index(w, region->parameters.data[0], turn);
    for (uint32_t i = 0; i < node->arg_count; i++)
        put(w, region->parameters.data[i + 1], copy_of(&w->values[node->out_first + i]));
    return run_region(w, id);
}

static bool run_while(walk *w, const sglir_node *node)
{
    const sglir_graph *g = w->g;
    const sglir_region *decides = &g->regions.data[node->region_first], *body = &g->regions.data[sglir_body(node)];
    int64_t limit = sglir_attr_int(g, node, "limit");
    for (uint32_t i = 0; i < node->arg_count; i++)
        put(w, node->out_first + i, copy_of(&w->values[sglir_arg(g, node, i)]));
    for (int64_t turn = 0; limit < 0 || turn < limit; turn++) {
        if (!run_turn(w, node, node->region_first, turn)) return false;
        if (interp_get(&w->values[decides->results.data[0]], 0) == 0) return true;
        if (!run_turn(w, node, sglir_body(node), turn)) return false;
        for (uint32_t i = 0; i < node->arg_count; i++)
            put(w, node->out_first + i, copy_of(&w->values[body->results.data[i]]));
    }
    return true;
}

static bool run_cond(walk *w, const sglir_node *node)
{
    const sglir_graph *g = w->g;
    sglir_id id = node->region_first + (interp_get(&w->values[sglir_arg(g, node, 0)], 0) == 0);
    if (!run_region(w, id)) return false;
    for (uint32_t i = 0; i < node->out_count; i++)
        put(w, node->out_first + i, copy_of(&w->values[g->regions.data[id].results.data[i]]));
    return true;
}

static bool run_fused(walk *w, const sglir_node *node)
{
    const sglir_graph *g = w->g;
    const sglir_region *region = &g->regions.data[node->region_first];
    for (uint32_t i = 0; i < node->arg_count; i++) {
        put(w, region->parameters.data[i], copy_of(&w->values[sglir_arg(g, node, i)]));
    }
    if (!run_region(w, node->region_first)) return false;
    for (uint32_t i = 0; i < node->out_count; i++) {
        put(w, node->out_first + i, copy_of(&w->values[region->results.data[i]]));
    }
    return true;
}

/* ---- gradients by differences ------------------------------------------------------------------------------- */

/* Position in the region of the node that makes the value; -1 for a parameter. */
static int64_t made_at(const walk *w, sglir_id value)
{
    const sglir_region *region = &w->g->regions.data[sglir_value_at(w->g, value)->region];
    int64_t at = region->nodes.count - 1;
    while (at >= 0 && region->nodes.data[at] != sglir_value_at(w->g, value)->node) at--;
    return at;
}

static bool run_node(walk *w, sglir_id id);

/* The result of a stop_gradient within a region, as it is the first time and as it was then. */
static interp_tensor stopped(walk *w, interp_tensor now)
{
    if (w->stops.mode == STOPS_AGAIN && w->stops.at < w->stops.count) {
        interp_tensor_free(&now);
        return copy_of(&w->stops.kept[w->stops.at++]);
    }
    if (w->stops.mode == STOPS_KEEP) {
        w->stops.kept = must(realloc(w->stops.kept, (size_t)(w->stops.count + 1) * sizeof *w->stops.kept));
        w->stops.kept[w->stops.count++] = copy_of(&now);
    }
    return now;
}

static void forget_stops(walk *w)
{
    for (int i = 0; i < w->stops.count; i++) interp_tensor_free(&w->stops.kept[i]);
    free(w->stops.kept);
    memset(&w->stops, 0, sizeof w->stops);
}

/* Runs anew what lies between wrt and of, but for what no gradient flows through. */
static bool run_between(walk *w, sglir_id wrt, sglir_id of)
{
    w->stops.at = 0;
    const sglir_region *region = &w->g->regions.data[sglir_value_at(w->g, of)->region];
    for (int64_t n = made_at(w, wrt) + 1; n <= made_at(w, of); n++) {
        sglir_id id = region->nodes.data[n];
        uint16_t op = sglir_node_at(w->g, id)->op;
        if (op != SGLIR_OP_STOP_GRADIENT && op != SGLIR_OP_INPUT && !run_node(w, id)) return false;
    }
    return true;
}

/* d of / d wrt[element], by central differences of fourth order (the error is about 1e-12 where all is smooth), or by
 * differences of second order to one side. */
static bool difference(walk *w, sglir_id of, sglir_id wrt, int64_t element, double *slope)
{
    static const double places[2][4] = { { -2, -1, 1, 2 }, { 0, 1, 2, 0 } };
    static const double weights[2][4] = { { 1, -8, 8, -1 }, { -18, 24, -6, 0 } };
    const double *at = places[w->in->side != 0], *weight = weights[w->in->side != 0];
    const double step = w->in->step > 0 ? w->in->step : 1e-3, h = w->in->side < 0 ? -step : step;
    double *place = &w->values[wrt].floats[element], base = *place;
    *slope = 0;
    for (int i = 0; i < 4; i++) {
        *place = base + at[i] * h;
        if (!run_between(w, wrt, of)) return false;
        *slope += weight[i] * w->values[of].floats[0] / (12 * h);
    }
    *place = base;
    return true;
}

/* The differences of all elements of wrt, as the gradient's node has them. */
static bool take_differences(walk *w, sglir_id of, sglir_id wrt, sglir_id result)
{
    interp_tensor gradient = zeros_of(w->g, result);
    w->stops.mode = STOPS_KEEP;
    bool good = run_between(w, wrt, of);
    w->stops.mode = STOPS_AGAIN;
    for (int64_t e = 0; e < gradient.count && good; e++) good = difference(w, of, wrt, e, &gradient.floats[e]);
    put(w, result, gradient);
    good = good && run_between(w, wrt, of); /* and all is as it was */
    forget_stops(w);
    return good;
}

static bool run_grad(walk *w, const sglir_node *node)
{
    sglir_id of = sglir_arg(w->g, node, 0);
    const walk around = *w; /* of a gradient whose differences run this one again */
    bool good = true;
    for (uint32_t i = 0; i < node->out_count && good; i++) {
        sglir_id wrt = sglir_arg(w->g, node, i + 1);
        if (sglir_value_at(w->g, wrt)->region != sglir_value_at(w->g, of)->region)
            return fail(w->in, "grad: the interpreter takes differences within one region only");
        memset(&w->stops, 0, sizeof w->stops);
        good = take_differences(w, of, wrt, node->out_first + i);
    }
    w->stops = around.stops;
    return good;
}

static bool run_input(walk *w, const sglir_node *node)
{
    const char *name = sglir_attr_string(w->g, node, "name");
    const sglir_type *type = sglir_type_of(w->g, node->out_first);
    for (int i = 0; i < w->in->input_count; i++) {
        const interp_named *input = &w->in->inputs[i];
        if (strcmp(input->name, name) != 0) continue;
        bool same = input->tensor.dtype == (sgl_dtype)type->dtype && input->tensor.rank == type->rank &&
                    memcmp(input->tensor.dims, type->dims, sizeof type->dims[0] * type->rank) == 0;
        if (!same) return fail(w->in, "input \"%s\" is given with another type than the graph's", name);
        put(w, node->out_first, copy_of(&input->tensor));
        return true;
    }
    return fail(w->in, "input \"%s\" is not given", name);
}

static bool run_node(walk *w, sglir_id id)
{
    const sglir_graph *g = w->g;
    const sglir_node *node = sglir_node_at(g, id);
    if (node->op == SGLIR_OP_INPUT) return run_input(w, node);
    if (node->op == SGLIR_OP_SCAN) return run_scan(w, node);
    if (node->op == SGLIR_OP_WHILE) return run_while(w, node);
    if (node->op == SGLIR_OP_COND) return run_cond(w, node);
    if (node->op == SGLIR_OP_FUSED) return run_fused(w, node);
    if (node->op == SGLIR_OP_GRAD) return run_grad(w, node);
    const interp_tensor **args = must(calloc(node->arg_count + 1, sizeof *args));
    interp_tensor *results = must(calloc(node->out_count + 1, sizeof *results));
    for (uint32_t i = 0; i < node->arg_count; i++) args[i] = &w->values[sglir_arg(g, node, i)];
    for (uint32_t i = 0; i < node->out_count; i++) results[i] = zeros_of(g, node->out_first + i);
    interp_call call = { .in = w->in, .g = g, .node = node, .args = args, .results = results };
    bool known = interp_elementwise(&call) || interp_plain(&call) || interp_along(&call) || interp_window(&call) ||
                 interp_composite(&call) || interp_mesh(&call);
    for (uint32_t i = 0; i < node->out_count; i++) {
        interp_disturb(&call, i);
        settle(w->in, &results[i]);
        bool within = node->op == SGLIR_OP_STOP_GRADIENT && node->region != 0;
        if (within) results[i] = stopped(w, results[i]);
        put(w, node->out_first + i, results[i]);
    }
    free(args);
    free(results);
    return known || fail(w->in, "the interpreter does not know the op %s", sglir_ops[node->op].name);
}

static bool run_region(walk *w, sglir_id id)
{
    const sglir_region *region = &w->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        if (!run_node(w, region->nodes.data[n])) return false;
    }
    return true;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

static void add_named(interp_named **list, int *count, const char *name, interp_tensor tensor)
{
    for (int i = 0; i < *count; i++) {
        if (strcmp((*list)[i].name, name) != 0) continue;
        interp_tensor_free(&(*list)[i].tensor);
        (*list)[i].tensor = tensor;
        return;
    }
    *list = must(realloc(*list, (size_t)(*count + 1) * sizeof **list));
    (*list)[(*count)++] = (interp_named){ .name = must(strdup(name)), .tensor = tensor };
}

static void free_named(interp_named **list, int *count)
{
    for (int i = 0; i < *count; i++) {
        free((*list)[i].name);
        interp_tensor_free(&(*list)[i].tensor);
    }
    free(*list);
    *list = NULL;
    *count = 0;
}

static const interp_tensor *find_named(const interp_named *list, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) return &list[i].tensor;
    }
    return NULL;
}

void interp_input(interp *in, const char *name, const interp_tensor *tensor)
{
    interp_tensor copy = copy_of(tensor);
    settle(in, &copy);
    add_named(&in->inputs, &in->input_count, name, copy);
}

const interp_tensor *interp_fetch(const interp *in, const char *name)
{
    return find_named(in->fetches, in->fetch_count, name);
}

const interp_tensor *interp_update(const interp *in, const char *name)
{
    return find_named(in->updates, in->update_count, name);
}

void interp_carry(interp *in)
{
    for (int i = 0; i < in->update_count; i++) interp_input(in, in->updates[i].name, &in->updates[i].tensor);
}

bool interp_run(interp *in, const sglir_graph *g)
{
    walk w = { .in = in, .g = g, .values = must(calloc((size_t)g->values.count + 1, sizeof *w.values)) };
    in->error[0] = '\0';
    free_named(&in->fetches, &in->fetch_count);
    free_named(&in->updates, &in->update_count);
    bool good = run_region(&w, 0);
    for (int64_t i = 0; i < g->outputs.count && good; i++) {
        const sglir_output *output = &g->outputs.data[i];
        const char *name = sglcore_string(g->strings, output->name);
        bool fetch = output->role == SGLIR_FETCH;
        add_named(fetch ? &in->fetches : &in->updates, fetch ? &in->fetch_count : &in->update_count, name,
                  copy_of(&w.values[output->value]));
    }
    for (int64_t v = 0; v < g->values.count; v++) interp_tensor_free(&w.values[v]);
    free(w.values);
    return good;
}

void interp_free(interp *in)
{
    free_named(&in->inputs, &in->input_count);
    free_named(&in->fetches, &in->fetch_count);
    free_named(&in->updates, &in->update_count);
}
