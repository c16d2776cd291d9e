/* kernel_exec.c -- see kernel_exec.h. Registers are tensors of one row; elementwise ops are the interpreter's own, asked
 * for through a graph of one node, so that what is tested here is the description alone. */
#include "tests/support/kernel_exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference/interp_inside.h"

typedef struct executor {
    sglcore_env *env;
    const sglexec_kernel *kernel;
    const interp_tensor *const *arguments;
    interp_tensor *const *results;
    int argument_count;
    ir_message *message;
    interp_tensor *registers;
    int *ready;                  /* per register: the first phase in which it may be read, -1: not written */
    uint8_t *forms;              /* per register */
    double **columns;            /* per step that is a sum: its partial results */
    int64_t place[SGL_MAX_RANK]; /* the outer indices of the row */
} executor;

static bool complain(executor *x, int64_t step, const char *what)
{
    snprintf(x->message->text, sizeof x->message->text, "step %d: %s", (int)step, what);
    return false;
}

/* ---- places --------------------------------------------------------------------------------------------------- */

static int64_t place_of(const executor *x, const sglexec_map *map, int64_t col)
{
    const sglexec_kernel *k = x->kernel;
    int64_t at = map->offset;
    int outer = k->rank - k->inner;
    for (int i = 0; i < outer; i++) at += x->place[i] * map->strides[i];
    for (int i = k->rank - 1; i >= outer && k->cols > 0; i--) {
        at += col % k->dims[i] * map->strides[i];
        col /= k->dims[i];
    }
    return at;
}

static int64_t width(const executor *x, int form)
{
    return form == SGLEXEC_FULL || form == SGLEXEC_COL ? x->kernel->cols : 1;
}

/* Column `col` of a register, of whatever form. */
static int64_t column_in(const interp_tensor *reg, int64_t col) { return reg->count == 1 ? 0 : col; }

/* A form is lesser than another when it is read as if broadcast. */
static bool is_at_most(int form, int other) { return form == other || form == SGLEXEC_ONE || other == SGLEXEC_FULL; }

/* ---- steps ---------------------------------------------------------------------------------------------------- */

static bool load(executor *x, int64_t number, const sglexec_step *step, interp_tensor *out)
{
    if (step->operand >= (uint32_t)x->argument_count) return complain(x, number, "it loads what is no argument");
    const interp_tensor *from = x->arguments[step->operand];
    if (from->dtype != (sgl_dtype)step->dtype) return complain(x, number, "it loads another dtype than its operand's");
    for (int64_t c = 0; c < out->count; c++) {
        int64_t at = place_of(x, &step->map, c);
        if (at < 0 || at >= from->count) return complain(x, number, "it loads beyond its operand");
        interp_move(out, c, from, at);
    }
    return true;
}

static bool pieces(executor *x, int64_t number, const sglexec_step *step, interp_tensor *out)
{
    const sglexec_kernel *k = x->kernel;
    int64_t start = 0;
    if (k->rank > 1) return complain(x, number, "pieces of a domain that is not 1-D");
    for (uint32_t p = 0; p < step->piece_count; p++) {
        const sglexec_piece *piece = &k->pieces.data[step->piece_first + p];
        if (piece->start != start || piece->count < 1 || start + piece->count > out->count)
            return complain(x, number, "pieces that do not follow each other");
        for (int64_t i = 0; i < piece->count; i++, start++) {
            if (step->kind == SGLEXEC_SEGMENTS)
                interp_set(out, start, k->numbers.data[piece->operand]);
            else if (x->arguments[piece->operand]->count != piece->count)
                return complain(x, number, "a piece of another size");
            else
                interp_move(out, start, x->arguments[piece->operand], i);
        }
    }
    return start == out->count || complain(x, number, "pieces that do not cover the domain");
}

/* One node of the op over inputs of the registers' dtypes, and its results on them. */
static bool through_interpreter(executor *x, int64_t number, const sglexec_step *step, const interp_tensor *args,
                                int count, interp_tensor *out)
{
    sglir_graph *g = NULL;
    sglir_id inputs[3];
    if (sglir_graph_new(x->env, "step", &g) != SGL_OK) return complain(x, number, "no memory");
    bool random = step->kind == SGLEXEC_RANDOM;
    for (int i = 0; i < count; i++) {
        char name[2] = { (char)('a' + i), 0 };
        sglir_type type = sglir_type_make(args[i].dtype, random ? 0 : 1, &args[i].count);
        inputs[i] = sglir_input(g, SGL_FEED, name, &type);
    }
    int64_t one = 1;
    sglir_named cast[] = { { .name = "to", .kind = 't', .i = step->dtype } };
    sglir_named gelu[] = { { .name = "exact", .kind = 'b', .i = step->id } };
    sglir_named noise[] = { SGLIR_I("id", step->id),
                            SGLIR_INTS("dims", 1, &one),
                            { .name = "dtype", .kind = 't', .i = step->dtype } };
    bool is_gelu = step->op == SGLIR_OP_GELU || step->op == SGLIR_OP_GELU_GRAD;
    const sglir_named *attrs = random ? noise : step->op == SGLIR_OP_CAST ? cast : gelu;
    int attr_count = random ? 3 : step->op == SGLIR_OP_CAST || is_gelu ? 1 : 0;
    sglir_id id = sglir_emit(g, (sglir_op)step->op, inputs, count, attrs, attr_count, NULL);
    bool good = id != SGLIR_NONE && sglir_type_of(g, id)->dtype == step->dtype;
    if (good) {
        const interp_tensor *list[3] = { &args[0], &args[count > 1], &args[count > 2 ? 2 : 0] };
        interp plain = { 0 };
        interp_call call = { .in = &plain, .g = g, .node = sglir_maker(g, id), .args = list, .results = out };
        good = random ? interp_plain(&call) : interp_elementwise(&call);
    }
    if (!good) complain(x, number, id == SGLIR_NONE ? x->env->message : "its op or dtype is wrong");
    sglir_graph_free(g);
    return good;
}

/* A register widened to `count` columns. */
static interp_tensor widened(const interp_tensor *reg, int64_t count)
{
    interp_tensor out = interp_tensor_new(reg->dtype, 1, &count);
    for (int64_t c = 0; c < count; c++) interp_move(&out, c, reg, column_in(reg, c));
    return out;
}

static bool compute(executor *x, int64_t number, const sglexec_step *step, interp_tensor *out)
{
    interp_tensor args[3];
    int count = sglexec_step_args(step);
    for (int i = 0; i < count; i++) args[i] = widened(&x->registers[step->args[i]], out->count);
    bool good = through_interpreter(x, number, step, args, count, out);
    for (int i = 0; i < count; i++) interp_tensor_free(&args[i]);
    return good;
}

/* Random numbers one by one: the number of each is its offset. */
static bool draw(executor *x, int64_t number, const sglexec_step *step, interp_tensor *out)
{
    bool good = true;
    int64_t one = 1;
    for (int64_t c = 0; c < out->count && good; c++) {
        interp_tensor args[3], made = interp_tensor_new(out->dtype, 1, &one);
        for (int i = 0; i < 3; i++) args[i] = widened(&x->registers[step->args[i]], 1);
        args[2].ints[0] += place_of(x, &step->map, c);
        good = through_interpreter(x, number, step, args, 3, &made);
        interp_move(out, c, &made, 0);
        for (int i = 0; i < 3; i++) interp_tensor_free(&args[i]);
        interp_tensor_free(&made);
    }
    return good;
}

static double joined(int op, double a, double b)
{
    if (op == SGLIR_OP_REDUCE_SUM) return a + b;
    if (isnan(a) || isnan(b)) return NAN;
    return op == SGLIR_OP_REDUCE_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

/* Of no elements at all. */
static double start_of(int op, sgl_dtype dtype)
{
    if (op == SGLIR_OP_REDUCE_SUM) return 0;
    double limit = sglcore_dtype_is_float(dtype) ? INFINITY : ldexp(1, sglcore_dtype_bits(dtype) - 1);
    if (op == SGLIR_OP_REDUCE_MAX) return sglcore_dtype_is_signed(dtype) ? -limit : 0;
    return sglcore_dtype_is_float(dtype) ? limit : sglcore_dtype_is_signed(dtype) ? limit - 1 : 2 * limit - 1;
}

static bool store(executor *x, int64_t number, const sglexec_step *step)
{
    interp_tensor *to = x->results[step->operand - (uint32_t)x->argument_count];
    const interp_tensor *from = &x->registers[step->args[0]];
    if (to->dtype != from->dtype || to->dtype != (sgl_dtype)step->dtype)
        return complain(x, number, "it stores another dtype than its operand's");
    if (step->form != SGLEXEC_FULL && step->form != SGLEXEC_ROW)
        return complain(x, number, "it stores no full or row form");
    for (int64_t c = 0; c < (step->form == SGLEXEC_FULL ? x->kernel->cols : 1); c++) {
        int64_t at = place_of(x, &step->map, c);
        if (at < 0 || at >= to->count) return complain(x, number, "it stores beyond its operand");
        interp_move(to, at, from, column_in(from, c));
    }
    return true;
}

static void add_to_sum(executor *x, int64_t number, const sglexec_step *step)
{
    const interp_tensor *from = &x->registers[step->args[0]];
    for (int64_t c = 0; c < x->kernel->cols; c++) {
        double *into = &x->columns[number][step->kind == SGLEXEC_TOTAL ? 0 : c];
        *into = joined(step->op, *into, interp_get(from, column_in(from, c)));
    }
}

static void finish_sum(executor *x, int64_t number)
{
    const sglexec_step *step = &x->kernel->steps.data[number];
    if (step->kind != SGLEXEC_COLUMN_SUM && step->kind != SGLEXEC_TOTAL) return;
    interp_tensor *to = x->results[step->operand - (uint32_t)x->argument_count];
    int64_t count = step->kind == SGLEXEC_TOTAL ? 1 : x->kernel->cols;
    for (int64_t c = 0; c < count; c++) interp_set(to, c, x->columns[number][c]);
}

/* The greatest form that the step's arguments may have. */
static int form_read(const sglexec_step *step)
{
    switch (step->kind) {
    case SGLEXEC_RANDOM: return SGLEXEC_ONE;
    case SGLEXEC_COMPUTE:
    case SGLEXEC_STORE: return step->form;
    default: return SGLEXEC_FULL;
    }
}

static bool check_reads(executor *x, int64_t number, const sglexec_step *step)
{
    for (int i = 0; i < sglexec_step_args(step); i++) {
        if (step->args[i] >= x->kernel->registers) return complain(x, number, "it reads a register that is not there");
        int ready = x->ready[step->args[i]];
        if (ready < 0) return complain(x, number, "it reads a register that is not written yet");
        if (ready > step->phase) return complain(x, number, "it reads a row before its phase is over");
        if (!is_at_most(x->forms[step->args[i]], form_read(step)))
            return complain(x, number, "it reads a register of a greater form than its own");
    }
    if (step->kind == SGLEXEC_STORE && step->phase + 1 != x->kernel->phases)
        return complain(x, number, "it stores too early");
    return true;
}

static bool run_step(executor *x, int64_t number)
{
    const sglexec_step *step = &x->kernel->steps.data[number];
    if (!check_reads(x, number, step)) return false;
    if (step->kind == SGLEXEC_STORE) return store(x, number, step);
    if (step->kind == SGLEXEC_COLUMN_SUM || step->kind == SGLEXEC_TOTAL) {
        add_to_sum(x, number, step);
        return true;
    }
    interp_tensor *out = &x->registers[step->out];
    int64_t count = width(x, step->form);
    interp_tensor_free(out);
    *out = interp_tensor_new((sgl_dtype)step->dtype, 1, &count);
    x->forms[step->out] = step->form;
    x->ready[step->out] = step->phase + (step->kind == SGLEXEC_REDUCE);
    switch (step->kind) {
    case SGLEXEC_LOAD: return load(x, number, step, out);
    case SGLEXEC_LOAD_PIECES:
    case SGLEXEC_SEGMENTS: return pieces(x, number, step, out);
    case SGLEXEC_NUMBER:
        interp_set(out, 0, step->value);
        return count == 1 || complain(x, number, "a number that is not one");
    case SGLEXEC_IOTA:
        for (int64_t c = 0; c < count; c++) interp_set(out, c, (double)place_of(x, &step->map, c));
        return true;
    case SGLEXEC_RANDOM: return draw(x, number, step, out);
    case SGLEXEC_COMPUTE: return compute(x, number, step, out);
    default: {
        double value = start_of(step->op, out->dtype);
        const interp_tensor *from = &x->registers[step->args[0]];
        for (int64_t c = 0; c < x->kernel->cols; c++)
            value = joined(step->op, value, interp_get(from, column_in(from, c)));
        interp_set(out, 0, value);
        return step->form == SGLEXEC_ROW || complain(x, number, "a reduction that makes no row");
    }
    }
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

static bool run_rows(executor *x)
{
    const sglexec_kernel *k = x->kernel;
    int outer = k->rank - k->inner;
    for (int64_t i = 0; i < k->steps.count; i++) {
        const sglexec_step *step = &k->steps.data[i];
        if (i > 0 && step->phase < k->steps.data[i - 1].phase) return complain(x, i, "phases out of order");
        if (step->kind != SGLEXEC_COLUMN_SUM && step->kind != SGLEXEC_TOTAL) continue;
        x->columns[i] = malloc((size_t)(k->cols + 1) * sizeof(double));
        for (int64_t c = 0; c <= k->cols; c++) x->columns[i][c] = start_of(step->op, (sgl_dtype)step->dtype);
    }
    for (int64_t i = 0; i < k->steps.count && k->rows == 0; i++) finish_sum(x, i);
    for (int64_t row = 0; row < k->rows; row++) {
        int64_t left = row;
        for (int i = outer - 1; i >= 0; i--) {
            x->place[i] = left % k->dims[i];
            left /= k->dims[i];
        }
        for (int i = 0; i < k->registers; i++) x->ready[i] = -1;
        for (int64_t i = 0; i < k->steps.count; i++) {
            if (!run_step(x, i)) return false;
            if (row + 1 == k->rows) finish_sum(x, i);
        }
    }
    return true;
}

bool kernel_exec(sglcore_env *env, const sglexec_kernel *kernel, const interp_tensor *const *arguments,
                 int argument_count, interp_tensor *const *results, ir_message *message)
{
    executor x = { .env = env,
                   .kernel = kernel,
                   .arguments = arguments,
                   .argument_count = argument_count,
                   .results = results,
                   .message = message };
    x.registers = calloc((size_t)kernel->registers + 1, sizeof *x.registers);
    x.ready = calloc((size_t)kernel->registers + 1, sizeof *x.ready);
    x.forms = calloc((size_t)kernel->registers + 1, 1);
    x.columns = calloc((size_t)kernel->steps.count + 1, sizeof *x.columns);
    bool good = run_rows(&x);
    for (int i = 0; i < kernel->registers; i++) interp_tensor_free(&x.registers[i]);
    for (int64_t i = 0; i < kernel->steps.count; i++) free(x.columns[i]);
    free(x.registers);
    free(x.ready);
    free(x.forms);
    free(x.columns);
    return good;
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

static void border_name(char *name, size_t size, sglir_id value) { snprintf(name, size, "border.%u", (unsigned)value); }

static bool same_tensor(const interp_tensor *a, const interp_tensor *b, ir_message *message)
{
    double largest = 0;
    for (int64_t i = 0; i < b->count; i++) {
        double magnitude = fabs(interp_get(b, i));
        if (isfinite(magnitude) && magnitude > largest) largest = magnitude;
    }
    for (int64_t i = 0; i < b->count; i++) {
        double got = interp_get(a, i), want = interp_get(b, i);
        if (got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 1e-12 * largest) continue;
        snprintf(message->text, sizeof message->text, "element %d is %.17g, not %.17g", (int)i, got, want);
        return false;
    }
    return true;
}

static bool run_kernel(sglcore_env *env, const sglir_graph *g, sglir_id id, const sglexec_kernel *kernel,
                       const interp *in, ir_message *message)
{
    const sglir_node *node = sglir_node_at(g, id);
    const interp_tensor **arguments = calloc(node->arg_count + 1, sizeof *arguments);
    interp_tensor *results = calloc(node->out_count + 1, sizeof *results),
                  **list = calloc(node->out_count + 1, sizeof *list);
    char name[32];
    for (uint32_t i = 0; i < node->arg_count; i++) {
        border_name(name, sizeof name, sglir_arg(g, node, i));
        arguments[i] = interp_fetch(in, name);
    }
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglir_type *type = sglir_type_of(g, node->out_first + i);
        results[i] = interp_tensor_new((sgl_dtype)type->dtype, type->rank, type->dims);
        for (int64_t k = 0; k < results[i].count; k++) interp_set(&results[i], k, 77); /* what is not stored shows */
        list[i] = &results[i];
    }
    bool good = kernel_exec(env, kernel, arguments, (int)node->arg_count, list, message);
    for (uint32_t i = 0; i < node->out_count && good; i++) {
        border_name(name, sizeof name, node->out_first + i);
        good = same_tensor(&results[i], interp_fetch(in, name), message);
    }
    for (uint32_t i = 0; i < node->out_count; i++) interp_tensor_free(&results[i]);
    free(arguments);
    free(results);
    free(list);
    return good;
}

/* Makes the value a fetch, once. */
static void expose(sglir_graph *g, sglir_id value)
{
    char name[32];
    border_name(name, sizeof name, value);
    for (int64_t i = 0; i < g->outputs.count; i++) {
        if (g->outputs.data[i].role == SGLIR_FETCH &&
            strcmp(sglcore_string(g->strings, g->outputs.data[i].name), name) == 0)
            return;
    }
    sglir_output_add(g, SGLIR_FETCH, name, value);
}

bool kernel_exec_graph(sglcore_env *env, sglir_graph *fused, uint64_t seed, int *count, ir_message *message)
{
    *count = 0;
    for (int64_t n = 0; n < fused->nodes.count; n++) {
        const sglir_node *node = &fused->nodes.data[n];
        if (node->op != SGLIR_OP_FUSED || node->region != 0) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) expose(fused, sglir_arg(fused, node, i));
        for (uint32_t i = 0; i < node->out_count; i++) expose(fused, node->out_first + i);
    }
    interp in = { 0 };
    ir_case_fill(&in, fused, seed);
    bool good = interp_run(&in, fused);
    if (!good) snprintf(message->text, sizeof message->text, "%s", in.error);
    for (int64_t n = 0; n < fused->nodes.count && good; n++) {
        if (fused->nodes.data[n].op != SGLIR_OP_FUSED) continue;
        sglexec_kernel kernel;
        if (sglexec_kernel_build(env, fused, (sglir_id)n, &kernel) != SGL_OK) {
            snprintf(message->text, sizeof message->text, "%s", env->message);
            good = false;
            break;
        }
        ++*count;
        if (fused->nodes.data[n].region == 0) good = run_kernel(env, fused, (sglir_id)n, &kernel, &in, message);
        if (!good) {
            sglcore_text text = { 0 };
            sglexec_kernel_print(env, &kernel, &text);
            size_t used = strlen(message->text);
            snprintf(message->text + used, sizeof message->text - used, "\n%s", text.data == NULL ? "" : text.data);
            sglcore_text_free(env, &text);
        }
        sglexec_kernel_free(env, &kernel);
    }
    interp_free(&in);
    return good;
}
