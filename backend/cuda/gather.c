/* gather.c -- rows by index: gather, and scatter_add, its transpose.
 *
 * In: a table or updates, and indices of any integer dtype; an index outside the table reads zeros and adds nothing.
 * Out: rows. Gather moves units of bytes. Scatter sorts the indices by row (sort.c), which keeps the updates of a row
 * in their order, and adds them row by row; of narrow floats in float32, rounded once. Odd invariant: the order of a
 * row's sum depends on the places of its own updates among themselves. */
#include "backend/cuda/kernels/gather.h"
#include "backend/cuda/order.h"

static int64_t row_width(const sglexec_operand *o)
{
    int64_t width = 1;
    for (int d = 1; d < o->rank; d++) width *= o->dims[d];
    return width;
}

/* ---- gather ----------------------------------------------------------------------------------------------------- */

sgl_status sglcuda_prepare_gather(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *table = sglcuda_operand(p->program, i, 0), *indices = table + 1, *result = table + 2;
    const sgl_dtype dtype = (sgl_dtype)table->dtype;
    const int64_t width = row_width(table), count = sglexec_elements(indices);
    const bool halves = dtype == SGL_I4 && width % 2 != 0;
    const int64_t row_bytes = sglcore_dtype_bytes(dtype, width);
    const int64_t unit = sglcuda_unit(row_bytes | table->offset | result->offset),
                  row = halves ? width : row_bytes / unit;
    const int64_t bits = halves ? 4 : 8 * unit;
    const sglcuda_gather v = { .total = count * row,
                               .row = row,
                               .extent = table->dims[0],
                               .index_kind = sglcuda_index_kind((sgl_dtype)indices->dtype) };
    const sglcuda_place places[] = { sglcuda_place_of(table), sglcuda_place_of(indices), sglcuda_place_of(result) };
    const sglcuda_function *function;
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (v.total == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_sized(p, "gather", bits, &function));
    return sglcuda_add_step(p, command, function, sglcuda_fill_grid(v.total, bits), places, 3, &v, sizeof v);
}

/* ---- scatter_add ------------------------------------------------------------------------------------------------ */

enum { ALIGNED = 256 };

/* What the order is made of, and where in the workspace what is between begins. */
typedef struct scatter_parts {
    sglcuda_order order;
    int64_t windows, starts, sums, end; /* windows: 0 where no row can have more updates than a piece */
} scatter_parts;

static scatter_parts parts_of(sgl_dtype indices, sgl_dtype dtype, int64_t count, int64_t extent, int64_t width)
{
    scatter_parts s = { .order = {
                            .lines = { .outer = 1, .extent = count, .inner = 1 }, .dtype = indices, .rows = extent } };
    const int64_t sum_bytes = sglcore_dtype_bits(dtype) == 64 ? 8 : 4;
    if (count > SGLCUDA_SCATTER_PIECE) s.windows = sglcuda_ceil_div(count, SGLCUDA_SCATTER_PIECE);
    s.starts = sglcuda_order_workspace(&s.order);
    s.sums = s.starts + sglcuda_round_up((extent + 1) * 4, ALIGNED);
    s.end = s.sums + s.windows * 2 * width * sum_bytes;
    return s;
}

int64_t sglcuda_scatter_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *indices = sglir_type_of(g, sglir_arg(g, node, 0)), *result = sglir_type_of(g, node->out_first);
    int64_t width = 1;
    for (int d = 1; d < result->rank; d++) width *= result->dims[d];
    if (sglir_elements(indices) == 0 || sglir_elements(result) == 0) return 0;
    return parts_of((sgl_dtype)indices->dtype, (sgl_dtype)result->dtype, sglir_elements(indices), result->dims[0],
                    width)
        .end;
}

static sgl_status add_sums(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                           const scatter_parts *s, sglcuda_ordered ordered)
{
    const sglexec_operand *updates = sglcuda_operand(p->program, i, 1), *result = updates + 1;
    const sgl_dtype dtype = (sgl_dtype)result->dtype;
    const int64_t width = row_width(result);
    const bool wide = width % SGLCUDA_SCATTER_VECTOR == 0 && (updates->offset | result->offset) % 16 == 0;
    const sglcuda_scatter v = { .count = s->order.lines.extent,
                                .extent = result->dims[0],
                                .width = width,
                                .vectors = wide ? width / SGLCUDA_SCATTER_VECTOR : width,
                                .windows = s->windows };
    const sglcuda_place starts = sglcuda_work_place(i, s->starts), sums = sglcuda_work_place(i, s->sums);
    const sglcuda_place started[] = { ordered.keys, starts };
    const sglcuda_place pieces[] = { sglcuda_place_of(updates), ordered.keys, ordered.places, starts, sums };
    const sglcuda_place rows[] = { sglcuda_place_of(updates), ordered.places, starts, sums, sglcuda_place_of(result) };
    const sglcuda_function *find, *add_pieces, *add_rows;
    const unsigned threads = SGLCUDA_SCATTER_THREADS;
    SGLCORE_TRY(sglcuda_builtin(p, "scatter_starts", &find));
    SGLCORE_TRY(sglcuda_typed(p, wide ? "scatter_pieces_wide" : "scatter_pieces", dtype, &add_pieces));
    SGLCORE_TRY(sglcuda_typed(p, wide ? "scatter_rows_wide" : "scatter_rows", dtype, &add_rows));
    SGLCORE_TRY(sglcuda_add_step(p, command, find, sglcuda_grid_over(v.extent + 1, threads, threads), started, 2, &v,
                                 sizeof v));
    SGLCORE_TRY(sglcuda_add_step(p, command, add_pieces, sglcuda_grid_over(2 * v.windows * v.vectors, threads, threads),
                                 pieces, 5, &v, sizeof v));
    return sglcuda_add_step(p, command, add_rows, sglcuda_grid_over(v.extent * v.vectors, threads, threads), rows, 5,
                            &v, sizeof v);
}

sgl_status sglcuda_prepare_scatter(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *indices = sglcuda_operand(p->program, i, 0), *result = indices + 2;
    const int64_t count = sglexec_elements(indices);
    const scatter_parts s =
        parts_of((sgl_dtype)indices->dtype, (sgl_dtype)result->dtype, count, result->dims[0], row_width(result));
    sglcuda_ordered ordered;
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (sglexec_elements(result) == 0) return SGL_OK;
    if (count == 0) return sglcuda_add_zeros(p, command, sglcuda_place_of(result), sglcuda_bytes(result));
    SGLCORE_TRY(sglcuda_check_workspace(p, i, s.end));
    SGLCORE_TRY(sglcuda_add_order(p, i, command, &s.order, sglcuda_place_of(indices), 0, &ordered));
    return add_sums(p, i, command, &s, ordered);
}
