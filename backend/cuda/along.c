/* along.c -- ops along one axis: recurrence, cumulative_sum, argmax, argmin, take_along, add_along; and reduce_prod.
 *
 * In: dense arguments, an axis anywhere. Out: launches of the kernels of along.cu, a thread or a block for each line,
 * or for each chunk of one; updates that are many for a line are sorted by their index first (sort.c). Odd invariant:
 * which way is taken may follow from how many lines there are only where the bits do not. */
#include "backend/cuda/kernels/along.h"
#include "backend/cuda/order.h"

enum {
    /* Lines that have a thread each when there are so many, whatever their length: half of what a large GPU holds at
     * once. */
    LINES_ENOUGH = 128 * 1024,
    /* An argmax of lines side by side: with so few of so long ones, a block for each hides the memory better. */
    ARG_LINES_FEW = 8 * 1024,
    ARG_EXTENT_LONG = 512,
    /* Updates of a line that each element of the result looks through; more are sorted. */
    ADD_FEW = 32,
    /* Elements of a product that one thread multiplies. */
    PROD_FEW = 64,
    SUM_BYTES = 8
};

static int64_t lines_in(const sglcuda_lines *l) { return l->outer * l->inner; }
static int64_t elements_in(const sglcuda_lines *l) { return lines_in(l) * l->extent; }

static sglcuda_grid grid_of(int64_t threads)
{
    return sglcuda_grid_over(threads, SGLCUDA_ALONG_THREADS, SGLCUDA_ALONG_THREADS);
}

/* ---- recurrence -------------------------------------------------------------------------------------------------- */

static sgl_status add_recurrence(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                                 const sglcuda_lines *l)
{
    const sglexec_operand *a = sglcuda_operand(p->program, i, 0);
    const bool neighbours = l->inner == 1;
    const sglcuda_along v = { .outer = l->outer,
                              .extent = l->extent,
                              .inner = l->inner,
                              .reverse = sglexec_attr_int(p->program, i, "reverse") != 0 };
    const sglcuda_place places[] = { sglcuda_place_of(a), sglcuda_place_of(a + 1), sglcuda_place_of(a + 2) };
    const sglcuda_function *function;
    if (elements_in(l) == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_typed(p, neighbours ? "recurrence_line" : "recurrence_down", (sgl_dtype)a->dtype, &function));
    const sglcuda_grid grid =
        neighbours ? sglcuda_grid_over(l->outer, SGLCUDA_ALONG_SIDE, SGLCUDA_ALONG_SIDE) : grid_of(lines_in(l));
    return sglcuda_add_step(p, command, function, grid, places, 3, &v, sizeof v);
}

/* ---- running sums ------------------------------------------------------------------------------------------------ */

/* A block scans tiles of the last dimension. */
static bool by_tiles(const sglcuda_lines *l) { return l->inner == 1 && l->extent > SGLCUDA_ALONG_SHORT; }

static int64_t chunks_of(const sglcuda_lines *l)
{
    return sglcuda_ceil_div(l->extent, by_tiles(l) ? SGLCUDA_ALONG_TILE : SGLCUDA_ALONG_CHUNK);
}

/* Whether chunks are summed apart first. */
static bool in_parts(const sglcuda_lines *l) { return chunks_of(l) > 1 && (by_tiles(l) || lines_in(l) < LINES_ENOUGH); }

static sgl_status add_cumulative(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                                 const sglcuda_lines *l)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    const bool tiles = by_tiles(l), parts = in_parts(l), real = sglcore_dtype_is_float((sgl_dtype)x->dtype);
    sglcuda_along v = { .outer = l->outer,
                        .extent = l->extent,
                        .inner = l->inner,
                        .chunks = chunks_of(l),
                        .chunks_each = parts ? 1 : chunks_of(l),
                        .reverse = sglexec_attr_int(p->program, i, "reverse") != 0,
                        .exclusive = sglexec_attr_int(p->program, i, "exclusive") != 0 };
    const sglcuda_place starts =
        parts ? sglcuda_work_place(i, 0) : sglcuda_place_of(x); /* not read where there are none */
    const sglcuda_place places[] = { sglcuda_place_of(x), starts, sglcuda_place_of(x + 1) };
    const sglcuda_function *sum, *begin;
    if (elements_in(l) == 0) return SGL_OK;
    const sglcuda_grid grid = tiles ? sglcuda_grid_over(l->outer * v.chunks, 1, SGLCUDA_ALONG_THREADS)
                                    : grid_of(lines_in(l) * (v.chunks / v.chunks_each));
    SGLCORE_TRY(sglcuda_typed(p, tiles ? "cumulative_line" : "cumulative_down", (sgl_dtype)x->dtype, &sum));
    if (parts) {
        SGLCORE_TRY(sglcuda_check_workspace(p, i, lines_in(l) * v.chunks * SUM_BYTES));
        SGLCORE_TRY(sglcuda_builtin(p, real ? "cumulative_starts_real" : "cumulative_starts_whole", &begin));
        v.totals = 1;
        SGLCORE_TRY(sglcuda_add_step(p, command, sum, grid, places, 3, &v, sizeof v));
        SGLCORE_TRY(sglcuda_add_step(p, command, begin, grid_of(lines_in(l)), &starts, 1, &v, sizeof v));
        v.totals = 0;
    }
    return sglcuda_add_step(p, command, sum, grid, places, 3, &v, sizeof v);
}

/* ---- where the extreme stands ------------------------------------------------------------------------------------ */

static sgl_status add_arg(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                          const sglcuda_lines *l)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    const bool block =
        l->inner == 1 ? l->extent > SGLCUDA_ALONG_SHORT : lines_in(l) < ARG_LINES_FEW && l->extent >= ARG_EXTENT_LONG;
    const sglcuda_along v = {
        .outer = l->outer, .extent = l->extent, .inner = l->inner, .largest = i->op == SGLIR_OP_ARGMAX
    };
    const sglcuda_place places[] = { sglcuda_place_of(x), sglcuda_place_of(x + 1) };
    const sglcuda_function *function;
    if (lines_in(l) == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_typed(p, block ? "arg_line" : "arg_down", (sgl_dtype)x->dtype, &function));
    const sglcuda_grid grid = block ? sglcuda_grid_over(lines_in(l), 1, SGLCUDA_ALONG_THREADS) : grid_of(lines_in(l));
    return sglcuda_add_step(p, command, function, grid, places, 2, &v, sizeof v);
}

/* ---- by index ---------------------------------------------------------------------------------------------------- */

static sgl_status add_take(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command, int64_t axis)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0), *indices = x + 1, *result = x + 2;
    const int bits = sglcore_dtype_bits((sgl_dtype)x->dtype);
    const sglcuda_by_index v = { .total = sglexec_elements(result),
                                 .extent = x->dims[axis],
                                 .count = result->dims[axis],
                                 .inner = sglcuda_lines_of(x, axis).inner,
                                 .index_kind = sglcuda_index_kind((sgl_dtype)indices->dtype) };
    const sglcuda_place places[] = { sglcuda_place_of(x), sglcuda_place_of(indices), sglcuda_place_of(result) };
    const sglcuda_function *function;
    if (v.total == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_sized(p, "take_along", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_fill_grid(v.total, bits), places, 3, &v, sizeof v);
}

static sglcuda_order order_of(const sglcuda_lines *indices, sgl_dtype dtype, int64_t rows)
{
    return (sglcuda_order){ .lines = *indices, .dtype = dtype, .rows = rows };
}

static sgl_status add_add(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command, int64_t axis)
{
    const sglexec_operand *indices = sglcuda_operand(p->program, i, 0), *updates = indices + 1, *result = indices + 2;
    const sglcuda_lines l = sglcuda_lines_of(indices, axis);
    const sglcuda_by_index v = { .total = sglexec_elements(result),
                                 .extent = result->dims[axis],
                                 .count = l.extent,
                                 .inner = l.inner,
                                 .index_kind = sglcuda_index_kind((sgl_dtype)indices->dtype) };
    const sglcuda_order order = order_of(&l, (sgl_dtype)indices->dtype, v.extent);
    const sglcuda_place updated = sglcuda_place_of(updates), added = sglcuda_place_of(result);
    const sglcuda_place few[] = { sglcuda_place_of(indices), updated, added };
    const sglcuda_function *function;
    sglcuda_ordered ordered;
    if (v.total == 0) return SGL_OK;
    if (v.count <= ADD_FEW) {
        SGLCORE_TRY(sglcuda_typed(p, "add_few", (sgl_dtype)updates->dtype, &function));
        return sglcuda_add_step(p, command, function, grid_of(v.total), few, 3, &v, sizeof v);
    }
    SGLCORE_TRY(sglcuda_add_order(p, i, command, &order, few[0], 0, &ordered));
    SGLCORE_TRY(sglcuda_typed(p, "add_many", (sgl_dtype)updates->dtype, &function));
    const sglcuda_place many[] = { ordered.keys, ordered.places, updated, added };
    return sglcuda_add_step(p, command, function, grid_of(v.total), many, 4, &v, sizeof v);
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static sglcuda_lines lines_of_type(const sglir_type *x, int64_t axis)
{
    sglcuda_lines l = { .outer = 1, .extent = x->dims[axis], .inner = 1 };
    for (int d = 0; d < axis; d++) l.outer *= x->dims[d];
    for (int d = (int)axis + 1; d < x->rank; d++) l.inner *= x->dims[d];
    return l;
}

int64_t sglcuda_along_workspace(const sglir_graph *g, const sglir_node *node)
{
    if (node->op != SGLIR_OP_CUMULATIVE_SUM && node->op != SGLIR_OP_ADD_ALONG) return 0;
    const sglir_type *first = sglir_type_of(g, sglir_arg(g, node, 0)), *result = sglir_type_of(g, node->out_first);
    const int64_t axis = sglir_attr_int(g, node, "axis");
    const sglcuda_lines l = lines_of_type(first, axis);
    if (sglir_elements(first) == 0 || sglir_elements(result) == 0) return 0;
    if (node->op == SGLIR_OP_CUMULATIVE_SUM) return in_parts(&l) ? lines_in(&l) * chunks_of(&l) * SUM_BYTES : 0;
    const sglcuda_order order = order_of(&l, (sgl_dtype)first->dtype, result->dims[axis]);
    return l.extent <= ADD_FEW ? 0 : sglcuda_order_workspace(&order);
}

sgl_status sglcuda_prepare_along(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const int64_t axis = sglexec_attr_int(p->program, i, "axis");
    const sglcuda_lines l = sglcuda_lines_of(sglcuda_operand(p->program, i, 0), axis);
    SGLCORE_TRY(sglcuda_begin(p, command));
    switch (i->op) {
    case SGLIR_OP_RECURRENCE: return add_recurrence(p, i, command, &l);
    case SGLIR_OP_CUMULATIVE_SUM: return add_cumulative(p, i, command, &l);
    case SGLIR_OP_TAKE_ALONG: return add_take(p, i, command, axis);
    case SGLIR_OP_ADD_ALONG: return add_add(p, i, command, axis);
    default: return add_arg(p, i, command, &l);
    }
}

/* ---- products over axes ------------------------------------------------------------------------------------------ */

sgl_status sglcuda_prepare_prod(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0);
    const sglcuda_place places[] = { sglcuda_place_of(x), sglcuda_place_of(x + 1) };
    const sglcuda_function *function;
    sglcuda_prod v = { .rows = 1, .cols = 1 };
    unsigned reduced = 0;
    int count;
    const int64_t *axes = sglexec_attr_ints(p->program, i, "axes", &count);
    for (int a = 0; a < count; a++) reduced |= 1u << axes[a];
    int64_t stride = 1, strides[SGL_MAX_RANK];
    for (int d = x->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= x->dims[d];
    }
    for (int d = 0; d < x->rank; d++) {
        const bool within = reduced >> d & 1;
        const int at = within ? v.col_rank++ : v.row_rank++;
        (within ? v.col_dims : v.row_dims)[at] = x->dims[d];
        (within ? v.col_strides : v.row_strides)[at] = strides[d];
        *(within ? &v.cols : &v.rows) *= x->dims[d];
    }
    const bool block = v.cols > PROD_FEW;
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (v.rows == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_typed(p, block ? "prod_many" : "prod_few", (sgl_dtype)x->dtype, &function));
    const sglcuda_grid grid = block ? sglcuda_grid_over(v.rows, 1, SGLCUDA_ALONG_THREADS) : grid_of(v.rows);
    return sglcuda_add_step(p, command, function, grid, places, 2, &v, sizeof v);
}
