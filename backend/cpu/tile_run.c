/* tile_run.c -- walks a fused kernel: tasks, in each its rows, in these the phases, in each of these the tiles.
 *
 * In: a plan and the addresses of a launch. Out: results stored. A task first makes what numbers and columns have one of,
 * then goes through its rows; sums of blocks of columns and of chunks of totals go to places of their own in the workspace,
 * and when all tasks are done they are brought together in order. Odd invariants: nothing is allocated, nothing fails; no
 * element's or sum's bits depend on how the work was cut (tile_sum.c). */
#include <string.h>

#include "backend/cpu/tile_run.h"

static void run_calls(const sglcpu_tile_state *r, const sglcpu_calls *calls)
{
    for (int i = 0; i < calls->count; i++) sglcpu_tile_call(r, &calls->data[i]);
}

/* ---- addresses ---------------------------------------------------------------------------------------------------- */

/* What does not change while the task runs. Numbers are blocks of one element then, columns blocks of one row. */
static void set_addresses(sglcpu_tile_state *r)
{
    for (int s = 0; s < r->tile->slot_count; s++) {
        r->at[s] = r->scratch + r->tile->slots[s].place;
        r->row_bytes[s] = r->tile->slots[s].kind == SGLCPU_SLOT_ROW ? r->tile->slots[s].size : 0;
    }
}

static void set_tile_rows(sglcpu_tile_state *r, int64_t tile_cols)
{
    if (r->dense_cols == tile_cols) return;
    r->dense_cols = tile_cols;
    for (int s = 0; s < r->tile->slot_count; s++) {
        const sglcpu_slot *slot = &r->tile->slots[s];
        if (slot->kind == SGLCPU_SLOT_TILE) r->row_bytes[s] = slot->size * tile_cols;
    }
}

static void move_slots(sglcpu_tile_state *r, const sglcpu_phase *phase)
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
static void make_columns(sglcpu_tile_state *r, int64_t cols)
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
static void run_rows(sglcpu_tile_state *r, const sglcpu_calls *calls)
{
    sglcpu_block rows = r->block;
    for (int i = 0; i < calls->count; i++) {
        const sglcpu_call *call = &calls->data[i];
        if (call->kind == SGLCPU_CALL_MAP || call->kind == SGLCPU_CALL_SPREAD) {
            r->block = (sglcpu_block){ .rows = 1, .cols = rows.rows };
        } else {
            r->block = (sglcpu_block){ .row = rows.row, .rows = rows.rows, .col = 0, .cols = 1 };
        }
        sglcpu_tile_call(r, call);
    }
    r->block = rows;
}

static void run_phase(sglcpu_tile_state *r, const sglcpu_phase *phase, int64_t strip_end)
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

static void start_task_sums(const sglcpu_tile_state *r, int64_t row, int64_t row_end, int64_t strip_end)
{
    const sglcpu_tile *tile = r->tile;
    for (int i = 0; i < tile->column_count; i++) {
        const sglcpu_sum *sum = &tile->columns[i];
        for (int64_t first = row; first < row_end; first += sglcpu_sum_block(tile->split.rows))
            sglcpu_start_sums(sum, sglcpu_tile_column_sums(r, sum, first, r->strip_first), strip_end - r->strip_first);
        sglcpu_start_near(sum, r->scratch + sum->near, strip_end - r->strip_first);
    }
}

/* Stores of columns and of single numbers: once, beside the first rows. */
static void run_once(sglcpu_tile_state *r, int64_t strip_end)
{
    for (int i = 0; i < r->tile->once.count; i++) {
        const sglcpu_call *call = &r->tile->once.data[i];
        bool is_column = call->step->form == SGLEXEC_COL;
        if (!is_column && r->task != 0) continue;
        r->block = (sglcpu_block){ .rows = 1, .cols = 1 };
        if (is_column)
            r->block = (sglcpu_block){ .rows = 1, .col = r->strip_first, .cols = strip_end - r->strip_first };
        sglcpu_tile_call(r, call);
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
    sglcpu_tile_state r = { .launch = j->launch, .tile = tile, .scratch = scratch, .task = task };
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
                     sglexec_elements(operand));
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
