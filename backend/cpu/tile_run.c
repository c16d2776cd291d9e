/* tile_run.c -- walks a fused kernel: tasks, in each its rows, in these the phases, in each of these the tiles.
 *
 * In: a plan and the addresses of a launch. Out: results stored. A task first makes what numbers and columns have one of,
 * then goes through its rows; sums of blocks of columns and of chunks of totals go to places of their own in the workspace,
 * and when all tasks are done they are brought together in order. Odd invariants: nothing is allocated, nothing fails; no
 * element's or sum's bits depend on how the work was cut (tile_sum.c). */
#include <string.h>

#include "backend/cpu/tile.h"

typedef struct run {
    const sglcpu_launch *launch;
    const sglcpu_tile *tile;
    char *scratch;
    char **at;          /* by slot: where its elements for the block in hand begin */
    int64_t *row_bytes; /* by slot: from one row of the block to the next */
    sglcpu_block block;
    int64_t strip_first, task;
    int64_t dense_cols; /* width for which the rows of tiles in scratch are set */
} run;

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static const char *operand_at(const run *r, uint32_t operand)
{
    return sglcpu_at(r->launch, &r->tile->operands[operand]);
}

/* Rows of a call lie one behind the other, so that it is one loop over all of them. */
static bool is_dense(const run *r, const sglcpu_call *call, int64_t out_bytes)
{
    for (int i = 0; i < call->arg_count; i++) {
        int64_t row = r->row_bytes[call->args[i]];
        int64_t dense = call->numbers >> i & 1 ? 0 : r->block.cols * r->tile->slots[call->args[i]].size;
        if (row != dense) return false;
    }
    return out_bytes == r->block.cols * r->tile->slots[call->out].size;
}

static void run_map(const run *r, const sglcpu_call *call)
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
static void run_spread(const run *r, const sglcpu_call *call)
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

static void run_pieces(const run *r, const sglcpu_call *call)
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

static void run_segments(const run *r, const sglcpu_call *call)
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

static int64_t read_index(const run *r, uint16_t slot) { return *(const int64_t *)(const void *)r->at[slot]; }

/* Counters and random numbers: both are functions of a number that runs evenly, row by row or run by run. */
static void run_generator(const run *r, const sglcpu_call *call)
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

static const sglcpu_float_ops *float_ops(const run *r, const sglcpu_sum *sum)
{
    int real = sglcpu_held_index((sgl_dtype)sum->dtype);
    return real < 0 ? NULL : r->launch->isa->floats[real];
}

static void run_fold(const run *r, const sglcpu_call *call)
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
static void add_to_chunks(const run *r, const sglcpu_call *call, int64_t first, const char *a, const char *b,
                          int64_t count)
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

static void run_total(const run *r, const sglcpu_call *call)
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

static char *column_sums(const run *r, const sglcpu_sum *sum, int64_t row, int64_t col)
{
    int64_t block = row / sglcpu_sum_block(r->tile->split.rows);
    return r->launch->work + sum->place + (block * r->tile->split.cols + col) * 8;
}

/* Integers go to their block's sums, floats to near ones first, which are neutral again whenever they end. */
static void run_columns(const run *r, const sglcpu_call *call)
{
    const sglcpu_sum *sum = &r->tile->columns[call->sum];
    const sglcpu_float_ops *ops = float_ops(r, sum);
    int64_t size = sglcpu_held_size((sgl_dtype)sum->dtype), row_bytes = r->row_bytes[call->args[0]];
    int64_t row = r->block.row, end = row + r->block.rows, count = r->block.cols;
    const char *a = r->at[call->args[0]];
    while (row < end) {
        int64_t stop = sglcpu_near_end(row, r->tile->split.rows), rows = sglcpu_min(stop, end) - row;
        char *sums = column_sums(r, sum, row, r->block.col);
        char *near = r->scratch + sum->near + (r->block.col - r->strip_first) * size;
        call->fn.columns(ops == NULL ? sums : near, a, row_bytes, rows, count);
        row += rows;
        a += rows * row_bytes;
        if (ops != NULL && row == stop) ops->spill[sum->fold]((double *)(void *)sums, near, count);
    }
}

/* ---- calls on their way out --------------------------------------------------------------------------------------- */

static void run_store(const run *r, const sglcpu_call *call)
{
    const sglexec_operand *operand = &r->tile->operands[call->step->operand];
    const sglcpu_isa *isa = r->launch->isa;
    sgl_dtype dtype = (sgl_dtype)call->dtype;
    char *to = sglcpu_at(r->launch, operand), *stage = r->scratch + r->tile->stage;
    const char *from = r->at[call->args[0]];
    int64_t whole = sglcpu_elements(operand);
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

static void run_call(const run *r, const sglcpu_call *call)
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

static void run_calls(const run *r, const sglcpu_calls *calls)
{
    for (int i = 0; i < calls->count; i++) run_call(r, &calls->data[i]);
}

/* ---- addresses ---------------------------------------------------------------------------------------------------- */

/* What does not change while the task runs. Numbers are blocks of one element then, columns blocks of one row. */
static void set_addresses(run *r)
{
    for (int s = 0; s < r->tile->slot_count; s++) {
        r->at[s] = r->scratch + r->tile->slots[s].place;
        r->row_bytes[s] = r->tile->slots[s].kind == SGLCPU_SLOT_ROW ? r->tile->slots[s].size : 0;
    }
}

static void set_tile_rows(run *r, int64_t tile_cols)
{
    if (r->dense_cols == tile_cols) return;
    r->dense_cols = tile_cols;
    for (int s = 0; s < r->tile->slot_count; s++) {
        const sglcpu_slot *slot = &r->tile->slots[s];
        if (slot->kind == SGLCPU_SLOT_TILE) r->row_bytes[s] = slot->size * tile_cols;
    }
}

static void move_slots(run *r, const sglcpu_phase *phase)
{
    const sglcpu_tile *tile = r->tile;
    for (int i = 0; i < phase->moving_count; i++) {
        uint16_t s = phase->moving[i];
        const sglcpu_slot *slot = &tile->slots[s];
        switch (slot->kind) {
        case SGLCPU_SLOT_STREAM: {
            int64_t first = slot->path->offset + sglcpu_path_row(slot->path, r->block.row) + r->block.col;
            r->at[s] = sglcpu_at(r->launch, &tile->operands[slot->operand]) + first * slot->size;
            r->row_bytes[s] = slot->path->outer ? slot->path->outer_strides[0] * slot->size : 0;
            break;
        }
        case SGLCPU_SLOT_COL_STREAM:
            r->at[s] =
                sglcpu_at(r->launch, &tile->operands[slot->operand]) + (slot->path->offset + r->block.col) * slot->size;
            break;
        case SGLCPU_SLOT_COL:
            r->at[s] = r->scratch + slot->place + (r->block.col - r->strip_first) * slot->size;
            r->row_bytes[s] = slot->repeated ? r->block.cols * slot->size : 0;
            break;
        case SGLCPU_SLOT_RESIDENT:
            r->at[s] = r->scratch + slot->place + r->block.col * slot->size;
            r->row_bytes[s] = tile->split.cols * slot->size;
            break;
        default: break;
        }
    }
}

/* ---- tasks -------------------------------------------------------------------------------------------------------- */

/* Columns over the whole strip, as one row of a block; then copies for each row of a tile, where they help. */
static void make_columns(run *r, int64_t cols)
{
    const sglcpu_tile *tile = r->tile;
    if (cols == 0) return;
    r->block = (sglcpu_block){ .row = 0, .rows = 1, .col = r->strip_first, .cols = cols };
    for (int s = 0; s < tile->slot_count; s++) {
        const sglcpu_slot *slot = &tile->slots[s];
        if (slot->kind == SGLCPU_SLOT_COL_STREAM) {
            r->at[s] = sglcpu_at(r->launch, &tile->operands[slot->operand]) +
                       (slot->path->offset + r->strip_first) * slot->size;
        }
    }
    run_calls(r, &tile->cols);
    for (int s = 0; s < tile->slot_count; s++) {
        const sglcpu_slot *slot = &tile->slots[s];
        if (slot->kind != SGLCPU_SLOT_COL || !slot->repeated) continue;
        int64_t bytes = cols * slot->size;
        for (int64_t row = 1; row < tile->tile_rows; row++) memcpy(r->at[s] + row * bytes, r->at[s], (size_t)bytes);
    }
}

/* Rows' numbers lie one behind the other: for their loops a block of one row with a column for each. */
static void run_rows(run *r, const sglcpu_calls *calls)
{
    sglcpu_block rows = r->block;
    for (int i = 0; i < calls->count; i++) {
        const sglcpu_call *call = &calls->data[i];
        if (call->kind == SGLCPU_CALL_MAP || call->kind == SGLCPU_CALL_SPREAD) {
            r->block = (sglcpu_block){ .rows = 1, .cols = rows.rows };
        } else {
            r->block = (sglcpu_block){ .row = rows.row, .rows = rows.rows, .col = 0, .cols = 1 };
        }
        run_call(r, call);
    }
    r->block = rows;
}

static void run_phase(run *r, const sglcpu_phase *phase, int64_t strip_end)
{
    const sglcpu_tile *tile = r->tile;
    run_rows(r, &phase->rows);
    for (int i = 0; i < phase->fold_count; i++) {
        const sglcpu_sum *sum = &tile->folds[phase->fold_first + i];
        sglcpu_start_sums(sum, r->scratch + sum->place, r->block.rows);
    }
    for (int64_t col = r->strip_first; phase->tiles.count > 0 && col < strip_end; col += tile->tile_cols) {
        r->block.col = col;
        r->block.cols = sglcpu_min(tile->tile_cols, strip_end - col);
        set_tile_rows(r, r->block.cols);
        move_slots(r, phase);
        run_calls(r, &phase->tiles);
    }
    for (int i = 0; i < phase->fold_count; i++) {
        const sglcpu_sum *sum = &tile->folds[phase->fold_first + i];
        sglcpu_finish_sums(r->launch->isa, sum, r->at[sum->slot], r->scratch + sum->place, r->block.rows);
    }
}

static void start_task_sums(const run *r, int64_t row, int64_t row_end, int64_t strip_end)
{
    const sglcpu_tile *tile = r->tile;
    for (int i = 0; i < tile->column_count; i++) {
        const sglcpu_sum *sum = &tile->columns[i];
        for (int64_t first = row; first < row_end; first += sglcpu_sum_block(tile->split.rows))
            sglcpu_start_sums(sum, column_sums(r, sum, first, r->strip_first), strip_end - r->strip_first);
        sglcpu_start_near(sum, r->scratch + sum->near, strip_end - r->strip_first);
    }
}

/* Stores of columns and of single numbers: once, beside the first rows. */
static void run_once(run *r, int64_t strip_end)
{
    for (int i = 0; i < r->tile->once.count; i++) {
        const sglcpu_call *call = &r->tile->once.data[i];
        bool is_column = call->step->form == SGLEXEC_COL;
        if (!is_column && r->task != 0) continue;
        r->block = (sglcpu_block){ .rows = 1, .cols = 1 };
        if (is_column)
            r->block = (sglcpu_block){ .rows = 1, .col = r->strip_first, .cols = strip_end - r->strip_first };
        run_call(r, call);
    }
}

typedef struct job {
    const sglcpu_launch *launch;
    const sglcpu_tile *tile;
} job;

static void run_task(void *context, int64_t task, int worker)
{
    const job *j = context;
    const sglcpu_tile *tile = j->tile;
    const sglcpu_split *split = &tile->split;
    char *scratch = sglcpu_scratch(j->launch, worker);
    run r = { .launch = j->launch, .tile = tile, .scratch = scratch, .task = task };
    r.at = (char **)(void *)scratch;
    r.row_bytes = (int64_t *)(void *)scratch + tile->slot_count;
    int64_t row_task = task / split->strips, strip = task % split->strips;
    int64_t row_first = row_task * split->row_block, row_end = sglcpu_min(row_first + split->row_block, split->rows);
    r.strip_first = strip * split->strip;
    int64_t strip_end = sglcpu_min(r.strip_first + split->strip, split->cols);
    set_addresses(&r);
    r.block = (sglcpu_block){ .rows = 1, .cols = 1 };
    run_calls(&r, &tile->ones);
    make_columns(&r, strip_end - r.strip_first);
    start_task_sums(&r, row_first, row_end, strip_end);
    if (row_task == 0) run_once(&r, strip_end);
    for (int64_t row = row_first; row < row_end; row += tile->tile_rows) {
        r.block = (sglcpu_block){ .row = row, .rows = sglcpu_min(tile->tile_rows, row_end - row) };
        for (int q = 0; q < tile->phase_count; q++) run_phase(&r, &tile->phases[q], strip_end);
        run_rows(&r, &tile->last);
    }
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

enum { JOIN_COLUMNS = 512 }; /* of a task that brings column sums together */

/* Elements first .. of a result from its accumulators, which become held elements on the way. */
static void store_sums(const job *j, const sglcpu_sum *sum, int64_t first, char *accumulators, int64_t count)
{
    const sglexec_operand *operand = &j->tile->operands[sum->operand];
    sglcpu_finish_sums(j->launch->isa, sum, accumulators, accumulators, count);
    sglcpu_store_run(j->launch->isa, (sgl_dtype)sum->dtype, sglcpu_at(j->launch, operand), first, accumulators, count,
                     sglcpu_elements(operand));
}

static void join_columns(void *context, int64_t task, int worker)
{
    (void)worker;
    const job *j = context;
    const sglcpu_tile *tile = j->tile;
    int64_t cols = tile->split.cols, per_sum = sglcpu_ceil_div(cols, JOIN_COLUMNS);
    const sglcpu_sum *sum = &tile->columns[task / per_sum];
    int64_t first = task % per_sum * JOIN_COLUMNS, count = sglcpu_min(JOIN_COLUMNS, cols - first);
    _Alignas(64) char joined[JOIN_COLUMNS * 8];
    sglcpu_start_sums(sum, joined, count);
    int64_t blocks = sglcpu_ceil_div(tile->split.rows, sglcpu_sum_block(tile->split.rows));
    for (int64_t block = 0; block < blocks; block++)
        sglcpu_join_sums(j->launch->isa, sum, joined, j->launch->work + sum->place + (block * cols + first) * 8, count);
    store_sums(j, sum, first, joined, count);
}

static void join_totals(const job *j)
{
    for (int i = 0; i < j->tile->total_count; i++) {
        const sglcpu_sum *sum = &j->tile->totals[i];
        int64_t chunks = sglcpu_ceil_div(j->tile->split.rows * j->tile->split.cols, SGLCPU_CHUNK);
        _Alignas(8) char joined[8];
        sglcpu_start_sums(sum, joined, 1);
        sglcpu_total_sums(j->launch->isa, sum, joined, j->launch->work + sum->place, chunks);
        store_sums(j, sum, 0, joined, 1);
    }
}

void sglcpu_tile_run(const sglcpu_launch *launch, const void *plan)
{
    const sglcpu_tile *tile = plan;
    job j = { .launch = launch, .tile = tile };
    sglcpu_parallel(launch->pool, tile->split.row_tasks * tile->split.strips, run_task, &j);
    int64_t column_tasks = tile->column_count * sglcpu_ceil_div(tile->split.cols, JOIN_COLUMNS);
    sglcpu_parallel(launch->pool, column_tasks, join_columns, &j);
    join_totals(&j);
}
