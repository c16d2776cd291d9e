/* tile_run_call.c -- one call of a fused kernel on the block in hand: loops over rows, pieces, sums, stores.
 *
 * In: a call and the addresses of its slots (tile_run.h). Out: the block of its result, or sums and stores. Odd invariant: as
 * that of tile_run.c; so a chunk of a total that a block cuts waits in scratch until it is complete. */
#include <string.h>

#include "backend/cpu/tile_run.h"

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static const char *operand_at(const sglcpu_tile_state *r, uint32_t operand)
{
    return sglcpu_at(r->launch, &r->tile->operands[operand]);
}

/* Rows of a call lie one behind the other, so that it is one loop over all of them. */
static bool is_dense(const sglcpu_tile_state *r, const sglcpu_call *call, int64_t out_bytes)
{
    for (int i = 0; i < call->arg_count; i++) {
        int64_t row = r->row_bytes[call->args[i]];
        int64_t dense = call->numbers >> i & 1 ? 0 : r->block.cols * r->tile->slots[call->args[i]].size;
        if (row != dense) return false;
    }
    return out_bytes == r->block.cols * r->tile->slots[call->out].size;
}

static void run_map(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const uint16_t *args = call->args;
    int second = call->arg_count > 1 ? 1 : 0, third = call->arg_count > 2 ? 2 : 0;
    char *out = r->at[call->out];
    const char *a = r->at[args[0]], *b = r->at[args[second]], *c = r->at[args[third]];
    int64_t rows = r->block.rows, count = r->block.cols, out_bytes = r->row_bytes[call->out];
    if (rows > 1 && is_dense(r, call, out_bytes)) {
        count *= rows;
        rows = 1;
    }
    for (int64_t row = 0; row < rows; row++) {
        call->fn.map(out, a, b, c, count);
        out += out_bytes;
        a += r->row_bytes[args[0]];
        b += r->row_bytes[args[second]];
        c += r->row_bytes[args[third]];
    }
}

/* A number per row over the row, or columns over all rows. */
static void run_spread(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    int64_t size = r->tile->slots[call->out].size;
    for (int64_t row = 0; row < r->block.rows; row++) {
        char *out = r->at[call->out] + row * r->row_bytes[call->out];
        const char *from = r->at[call->args[0]] + row * r->row_bytes[call->args[0]];
        if (call->numbers != 0) {
            sglcpu_spread(out, from, size, r->block.cols);
        } else {
            memcpy(out, from, (size_t)(size * r->block.cols));
        }
    }
}

/* The one piece that holds element `index`; pieces stand in order. */
static int64_t find_piece(const sglexec_piece *pieces, int64_t count, int64_t index)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (pieces[middle].start <= index) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static void run_pieces(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const sglexec_piece *pieces = r->tile->kernel->pieces.data + call->step->piece_first;
    const sglcpu_slot *slot = &r->tile->slots[call->out];
    int64_t index = r->block.row * r->tile->split.cols + r->block.col;
    int64_t rest = r->block.rows * r->block.cols; /* 1-D domains: a block is a run of it */
    int64_t p = find_piece(pieces, call->step->piece_count, index);
    char *out = r->at[call->out];
    sgl_dtype dtype = (sgl_dtype)call->dtype;
    if (slot->kind == SGLCPU_SLOT_TILE) {
        out = r->scratch + slot->place;
        r->at[call->out] = out;
        if (sglcpu_held(dtype) == dtype &&
            index + rest <= pieces[p].start + pieces[p].count) { /* all of one piece: used where it lies */
            const char *from = operand_at(r, pieces[p].operand) + (index - pieces[p].start) * slot->size;
            r->at[call->out] = (char *)(uintptr_t)from;
            return;
        }
    }
    for (; rest > 0; p++) {
        int64_t count = sglcpu_min(rest, pieces[p].start + pieces[p].count - index);
        if (count > 0)
            sglcpu_load_run(r->launch->isa, dtype, out, operand_at(r, pieces[p].operand), index - pieces[p].start,
                            count);
        out += count * slot->size;
        index += count;
        rest -= count;
    }
}

static void run_segments(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const sglexec_piece *pieces = r->tile->kernel->pieces.data + call->step->piece_first;
    const double *numbers = r->tile->kernel->numbers.data;
    int64_t size = r->tile->slots[call->out].size;
    for (int64_t row = 0; row < r->block.rows; row++) {
        int64_t index = (r->block.row + row) * r->tile->split.cols + r->block.col, rest = r->block.cols;
        char *out = r->at[call->out] + row * r->row_bytes[call->out];
        for (int64_t p = find_piece(pieces, call->step->piece_count, index); rest > 0; p++) {
            int64_t count = sglcpu_min(rest, pieces[p].start + pieces[p].count - index);
            _Alignas(8) char number[8];
            sglcpu_put_number(number, (sgl_dtype)call->dtype, numbers[pieces[p].operand]);
            sglcpu_spread(out, number, size, count);
            out += count * size;
            index += count;
            rest -= count;
        }
    }
}

static int64_t read_index(const sglcpu_tile_state *r, uint16_t slot)
{
    return *(const int64_t *)(const void *)r->at[slot];
}

/* Counters and random numbers: both are functions of a number that runs evenly, row by row or run by run. */
static void run_generator(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const sglcpu_path *path = call->path;
    int64_t size = r->tile->slots[call->out].size;
    int64_t run_length = path->inner > 1 ? path->inner_dims[path->inner - 1] : INT64_MAX;
    int64_t stride = path->inner > 0 ? path->inner_strides[path->inner - 1] : 0;
    sglcpu_stream stream = { .stride = stride };
    int64_t offset = 0;
    if (call->kind == SGLCPU_CALL_RANDOM) {
        stream.key = (uint64_t)read_index(r, call->args[0]) ^ (uint64_t)call->step->id;
        stream.step = (uint64_t)read_index(r, call->args[1]);
        offset = read_index(r, call->args[2]);
    }
    for (int64_t row = 0; row < r->block.rows; row++) {
        char *out = r->at[call->out] + row * r->row_bytes[call->out];
        int64_t base = path->offset + sglcpu_path_row(path, r->block.row + row), col = r->block.col;
        int64_t end = col + r->block.cols;
        while (col < end) {
            int64_t count = sglcpu_min(end - col, run_length - col % run_length);
            int64_t first = base + sglcpu_path_col(path, col);
            if (call->kind == SGLCPU_CALL_RANDOM) {
                stream.first = (uint64_t)first + (uint64_t)offset;
                call->fn.random(out, &stream, count);
            } else {
                sglcpu_put_counter(out, (sgl_dtype)call->dtype, first, stride, count);
            }
            out += count * size;
            col += count;
        }
    }
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

static const sglcpu_float_ops *float_ops(const sglcpu_tile_state *r, const sglcpu_sum *sum)
{
    int real = sglcpu_held_index((sgl_dtype)sum->dtype);
    return real < 0 ? NULL : r->launch->isa->floats[real];
}

static void run_fold(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const char *a = r->at[call->args[0]], *b = call->arg_count > 1 ? r->at[call->args[1]] : NULL;
    char *accumulators = r->scratch + r->tile->folds[call->sum].place;
    for (int64_t row = 0; row < r->block.rows; row++) {
        call->fn.fold(accumulators + 8 * row, a, b, r->block.cols);
        a += r->row_bytes[call->args[0]];
        if (b != NULL) b += r->row_bytes[call->args[1]];
    }
}

/* Elements first .. of the whole domain. A chunk that begins or ends elsewhere than this run waits until it is complete. */
static void add_to_chunks(const sglcpu_tile_state *r, const sglcpu_call *call, int64_t first, const char *a,
                          const char *b, int64_t count)
{
    const sglcpu_sum *sum = &r->tile->totals[call->sum];
    const sglcpu_float_ops *ops = float_ops(r, sum);
    int64_t all = r->tile->split.rows * r->tile->split.cols, size = sglcpu_held_size((sgl_dtype)sum->dtype);
    char *waiting = r->scratch + sum->near;
    for (int64_t take; count > 0; count -= take, first += take) {
        int64_t filled = first % SGLCPU_CHUNK;
        take = sglcpu_min(SGLCPU_CHUNK - filled, count);
        char *chunk = r->launch->work + sum->place + first / SGLCPU_CHUNK * 8;
        bool full = filled + take == SGLCPU_CHUNK || first + take == all;
        if (full) sglcpu_start_sums(sum, chunk, 1);
        if (full && filled == 0) {
            call->fn.fold(chunk, a, b, take);
        } else {
            if (b == NULL) {
                memcpy(waiting + filled * size, a, (size_t)(take * size));
            } else {
                ops->two[SGLIR_OP_MUL][0](waiting + filled * size, a, b, NULL, take);
            }
            sglcpu_fold_fn fold = b == NULL ? call->fn.fold : ops->fold[SGLCPU_FOLD_SUM];
            if (full) fold(chunk, waiting, NULL, filled + take);
        }
        a += take * size;
        if (b != NULL) b += take * size;
    }
}

static void run_total(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const char *a = r->at[call->args[0]], *b = call->arg_count > 1 ? r->at[call->args[1]] : NULL;
    int64_t rows = r->block.rows, count = r->block.cols, cols = r->tile->split.cols;
    int64_t size = sglcpu_held_size((sgl_dtype)r->tile->totals[call->sum].dtype);
    int64_t a_bytes = r->row_bytes[call->args[0]], b_bytes = b != NULL ? r->row_bytes[call->args[1]] : count * size;
    if (rows > 1 && count == cols && a_bytes == count * size && b_bytes == count * size) {
        count *= rows;
        rows = 1;
    }
    for (int64_t row = 0; row < rows; row++) {
        add_to_chunks(r, call, (r->block.row + row) * cols + r->block.col, a, b, count);
        a += a_bytes;
        if (b != NULL) b += b_bytes;
    }
}

char *sglcpu_tile_column_sums(const sglcpu_tile_state *r, const sglcpu_sum *sum, int64_t row, int64_t col)
{
    int64_t block = row / sglcpu_sum_block(r->tile->split.rows);
    return r->launch->work + sum->place + (block * r->tile->split.cols + col) * 8;
}

/* Integers go to their block's sums, floats to near ones first, which are neutral again whenever they end. */
static void run_columns(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const sglcpu_sum *sum = &r->tile->columns[call->sum];
    const sglcpu_float_ops *ops = float_ops(r, sum);
    int64_t size = sglcpu_held_size((sgl_dtype)sum->dtype), row_bytes = r->row_bytes[call->args[0]];
    int64_t row = r->block.row, end = row + r->block.rows, count = r->block.cols;
    const char *a = r->at[call->args[0]];
    while (row < end) {
        int64_t stop = sglcpu_near_end(row, r->tile->split.rows), rows = sglcpu_min(stop, end) - row;
        char *sums = sglcpu_tile_column_sums(r, sum, row, r->block.col);
        char *near = r->scratch + sum->near + (r->block.col - r->strip_first) * size;
        call->fn.columns(ops == NULL ? sums : near, a, row_bytes, rows, count);
        row += rows;
        a += rows * row_bytes;
        if (ops != NULL && row == stop) ops->spill[sum->fold]((double *)(void *)sums, near, count);
    }
}

/* ---- calls on their way out --------------------------------------------------------------------------------------- */

static void run_store(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    const sglexec_operand *operand = &r->tile->operands[call->step->operand];
    const sglcpu_isa *isa = r->launch->isa;
    sgl_dtype dtype = (sgl_dtype)call->dtype;
    char *to = sglcpu_at(r->launch, operand), *stage = r->scratch + r->tile->stage;
    const char *from = r->at[call->args[0]];
    int64_t whole = sglexec_elements(operand);
    int64_t row_bytes = r->row_bytes[call->args[0]];
    if (call->numbers == 0) {
        sglcpu_block_store(isa, dtype, call->path, to, whole, &r->block, from, row_bytes, stage);
        return;
    }
    for (int64_t row = 0; row < r->block.rows; row++) {
        sglcpu_block one = { .row = r->block.row + row, .rows = 1, .cols = 1 };
        for (int64_t col = 0; col < r->block.cols; col++) {
            one.col = r->block.col + col;
            sglcpu_block_store(isa, dtype, call->path, to, whole, &one, from + row * row_bytes, 0, stage);
        }
    }
}

void sglcpu_tile_call(const sglcpu_tile_state *r, const sglcpu_call *call)
{
    switch (call->kind) {
    case SGLCPU_CALL_MAP: run_map(r, call); return;
    case SGLCPU_CALL_SPREAD: run_spread(r, call); return;
    case SGLCPU_CALL_LOAD:
        sglcpu_block_load(r->launch->isa, (sgl_dtype)call->dtype, call->path, operand_at(r, call->step->operand),
                          &r->block, r->at[call->out], r->row_bytes[call->out], r->scratch + r->tile->stage);
        return;
    case SGLCPU_CALL_PIECES: run_pieces(r, call); return;
    case SGLCPU_CALL_NUMBER: sglcpu_put_number(r->at[call->out], (sgl_dtype)call->dtype, call->step->value); return;
    case SGLCPU_CALL_COUNTER:
    case SGLCPU_CALL_RANDOM: run_generator(r, call); return;
    case SGLCPU_CALL_SEGMENTS: run_segments(r, call); return;
    case SGLCPU_CALL_FOLD: run_fold(r, call); return;
    case SGLCPU_CALL_COLUMNS: run_columns(r, call); return;
    case SGLCPU_CALL_TOTAL: run_total(r, call); return;
    case SGLCPU_CALL_STORE: run_store(r, call); return;
    default: return;
    }
}
