/* tile_place.c -- memory for the registers of a plan: which lie in buffers, which in scratch, which share a place there.
 *
 * In: a planner with its lists of calls. Out: the slots. A tile's register gives its place back at its last use, so that a
 * kernel of many steps works in three or four tiles of scratch, which stay in the first cache; the register made by that
 * last use may take the very place. Odd invariant: a register whose store overwrites an argument in place is made there
 * directly only when nothing reads that argument afterwards. */
#include <string.h>

#include "backend/cpu/tile_plan.h"

enum { SLOT_ALIGN = 64, SLOT_GAP = 64 }; /* a gap, so that tiles of 4 KiB do not all fall on the same cache sets */

/* ---- stores in place ------------------------------------------------------------------------------------------- */

static bool paths_equal(const sglcpu_path *a, const sglcpu_path *b)
{
    if (a->offset != b->offset || a->outer != b->outer || a->inner != b->inner) return false;
    for (int d = 0; d < a->outer; d++) {
        if (a->outer_dims[d] != b->outer_dims[d] || a->outer_strides[d] != b->outer_strides[d]) return false;
    }
    for (int d = 0; d < a->inner; d++) {
        if (a->inner_dims[d] != b->inner_dims[d] || a->inner_strides[d] != b->inner_strides[d]) return false;
    }
    return true;
}

static bool reads_over(const sglcpu_planner *pl, uint32_t operand, uint32_t output)
{
    return sglcpu_operands_overlap(&pl->operands[operand], &pl->operands[output]);
}

/* Whether the call reads what lies under `output`. The call that makes the register may: element by element. */
static bool call_reads(const sglcpu_planner *pl, const sglcpu_call *call, const sglcpu_call *store, bool is_maker)
{
    uint32_t output = store->step->operand;
    for (int a = 0; a < call->arg_count; a++) {
        const sglcpu_register *r = &pl->registers[call->args[a]];
        if (!r->streamed || !reads_over(pl, r->operand, output)) continue;
        bool same = pl->operands[r->operand].offset == pl->operands[output].offset && paths_equal(r->path, store->path);
        if (!is_maker || !same) return true;
    }
    if (call->kind == SGLCPU_CALL_LOAD) return reads_over(pl, call->step->operand, output);
    for (uint32_t i = 0; call->kind == SGLCPU_CALL_PIECES && i < call->step->piece_count; i++) {
        if (reads_over(pl, pl->kernel->pieces.data[call->step->piece_first + i].operand, output)) return true;
    }
    return false;
}

static bool can_make_in_place(const sglcpu_planner *pl, const sglcpu_calls *calls, int store)
{
    const sglcpu_call *call = &calls->data[store];
    const sglcpu_register *r = &pl->registers[call->args[0]];
    if (r->form != SGLEXEC_FULL || r->streamed || r->home != SGLCPU_HOME_NONE || call->numbers != 0) return false;
    if (r->phase != pl->tile->phase_count - 1 || !sglcpu_can_stream(pl, call->path, r->dtype)) return false;
    bool made = false;
    for (int i = 0; i < calls->count; i++) {
        const sglcpu_call *other = &calls->data[i];
        bool is_maker = other->kind < SGLCPU_CALL_FOLD && other->out == call->args[0];
        if ((made || is_maker) && call_reads(pl, other, call, is_maker)) return false;
        made |= is_maker;
    }
    return made;
}

static void make_in_place(sglcpu_planner *pl)
{
    sglcpu_calls *calls = &pl->tile->phases[pl->tile->phase_count - 1].tiles;
    for (int i = 0; i < calls->count; i++) {
        const sglcpu_call call = calls->data[i];
        if (call.kind != SGLCPU_CALL_STORE || !can_make_in_place(pl, calls, i)) continue;
        sglcpu_register *r = &pl->registers[call.args[0]];
        r->home = SGLCPU_HOME_OUTPUT;
        r->operand = call.step->operand;
        r->home_path = call.path;
        calls->count--;
        for (int j = i; j < calls->count; j++) calls->data[j] = calls->data[j + 1];
        i--;
    }
}

/* ---- places in scratch ----------------------------------------------------------------------------------------- */

static int64_t take_scratch(sglcpu_tile *tile, int64_t bytes)
{
    int64_t place = tile->scratch_bytes;
    tile->scratch_bytes += sglcpu_round_up(bytes, SLOT_ALIGN) + SLOT_GAP;
    return place;
}

static void place_register(sglcpu_planner *pl, int number)
{
    sglcpu_tile *tile = pl->tile;
    const sglcpu_register *r = &pl->registers[number];
    sglcpu_slot *slot = &tile->slots[number];
    int64_t size = sglcpu_held_size((sgl_dtype)r->dtype);
    *slot = (sglcpu_slot){ .kind = SGLCPU_SLOT_TILE, .size = (uint8_t)size, .operand = r->operand, .path = r->path };
    if (r->form == SGLEXEC_ONE) {
        slot->kind = SGLCPU_SLOT_ONE;
        slot->place = take_scratch(tile, size);
    } else if (r->form == SGLEXEC_ROW) {
        slot->kind = SGLCPU_SLOT_ROW;
        slot->place = take_scratch(tile, size * tile->tile_rows);
    } else if (r->form == SGLEXEC_COL) {
        slot->kind = r->streamed ? SGLCPU_SLOT_COL_STREAM : SGLCPU_SLOT_COL;
        if (r->streamed) return;
        slot->repeated = tile->tile_rows > 1 && tile->tile_cols == tile->split.strip;
        slot->place = take_scratch(tile, size * tile->split.strip * (slot->repeated ? tile->tile_rows : 1));
    } else if (r->streamed) {
        slot->kind = SGLCPU_SLOT_STREAM;
    } else if (r->home == SGLCPU_HOME_OUTPUT) {
        slot->kind = SGLCPU_SLOT_STREAM;
        slot->path = r->home_path;
    } else if (r->home == SGLCPU_HOME_SCRATCH) {
        slot->kind = SGLCPU_SLOT_RESIDENT;
        slot->place = take_scratch(tile, size * tile->split.cols * tile->tile_rows);
    }
}

/* First and last call, in all phases one after another, that name each TILE register. */
typedef struct interval {
    int first, last;
    bool named;
} interval;

static void name_register(interval *intervals, int r, int time)
{
    if (!intervals[r].named) intervals[r] = (interval){ .first = time, .named = true };
    intervals[r].last = time;
}

static bool has_out(const sglcpu_call *call) { return call->kind < SGLCPU_CALL_FOLD; }

static void find_intervals(const sglcpu_tile *tile, interval *intervals)
{
    int time = 0;
    for (int q = 0; q < tile->phase_count; q++) {
        const sglcpu_calls *calls = &tile->phases[q].tiles;
        for (int i = 0; i < calls->count; i++, time++) {
            const sglcpu_call *call = &calls->data[i];
            for (int a = 0; a < call->arg_count; a++) name_register(intervals, call->args[a], time);
            if (has_out(call)) name_register(intervals, call->out, time);
        }
    }
}

/* Places given back, by size of element. */
typedef struct free_places {
    int64_t *data[9];
    int count[9];
} free_places;

static sgl_status place_tiles(sglcpu_planner *pl)
{
    sglcpu_tile *tile = pl->tile;
    size_t registers = (size_t)pl->register_count + 1;
    interval *intervals = sglcore_arena_alloc(pl->temporary, registers * sizeof *intervals);
    free_places freed = { .count = { 0 } };
    for (int size = 1; size <= 8; size *= 2) {
        freed.data[size] = sglcore_arena_alloc(pl->temporary, registers * sizeof(int64_t));
        if (freed.data[size] == NULL) return SGL_OUT_OF_MEMORY;
    }
    if (intervals == NULL) return SGL_OUT_OF_MEMORY;
    find_intervals(tile, intervals);
    int time = 0;
    for (int q = 0; q < tile->phase_count; q++) {
        const sglcpu_calls *calls = &tile->phases[q].tiles;
        for (int i = 0; i < calls->count; i++, time++) {
            const sglcpu_call *call = &calls->data[i];
            for (int a = 0; a < call->arg_count; a++) {
                sglcpu_slot *slot = &tile->slots[call->args[a]];
                interval *at = &intervals[call->args[a]];
                if (slot->kind != SGLCPU_SLOT_TILE || at->last != time || !at->named) continue;
                freed.data[slot->size][freed.count[slot->size]++] = slot->place;
                at->named = false; /* an argument may be named twice */
            }
            if (!has_out(call)) continue;
            sglcpu_slot *slot = &tile->slots[call->out];
            if (slot->kind != SGLCPU_SLOT_TILE || intervals[call->out].first != time) continue;
            if (freed.count[slot->size] > 0) {
                slot->place = freed.data[slot->size][--freed.count[slot->size]];
            } else {
                slot->place = take_scratch(tile, slot->size * tile->tile_rows * tile->tile_cols);
            }
        }
    }
    return SGL_OK;
}

/* ---- what moves -------------------------------------------------------------------------------------------------- */

static bool moves(const sglcpu_slot *slot)
{
    return slot->kind == SGLCPU_SLOT_STREAM || slot->kind == SGLCPU_SLOT_COL_STREAM || slot->kind == SGLCPU_SLOT_COL ||
           slot->kind == SGLCPU_SLOT_RESIDENT;
}

static sgl_status list_moving(sglcpu_planner *pl, sglcpu_phase *phase)
{
    bool *seen = sglcore_arena_alloc(pl->temporary, (size_t)pl->register_count + 1);
    phase->moving = sglcpu_plan_alloc(pl->p, pl->register_count, sizeof *phase->moving);
    if (seen == NULL || phase->moving == NULL) return SGL_OUT_OF_MEMORY;
    for (int i = 0; i < phase->tiles.count; i++) {
        const sglcpu_call *call = &phase->tiles.data[i];
        for (int a = 0; a <= call->arg_count; a++) {
            if (a == call->arg_count && !has_out(call)) continue;
            uint16_t r = a == call->arg_count ? call->out : call->args[a];
            if (seen[r] || !moves(&pl->tile->slots[r])) continue;
            seen[r] = true;
            phase->moving[phase->moving_count++] = r;
        }
    }
    return SGL_OK;
}

static void place_sums(sglcpu_tile *tile)
{
    int64_t cols = tile->split.cols, rows = tile->split.rows;
    int64_t blocks = sglcpu_ceil_div(rows, sglcpu_sum_block(rows)), chunks = sglcpu_ceil_div(rows * cols, SGLCPU_CHUNK);
    for (int i = 0; i < tile->fold_count; i++) tile->folds[i].place = take_scratch(tile, 8 * tile->tile_rows);
    for (int i = 0; i < tile->column_count; i++) {
        tile->columns[i].near = take_scratch(tile, 8 * tile->split.strip);
        tile->columns[i].place = tile->work_bytes;
        tile->work_bytes += sglcpu_round_up(blocks * cols * 8, 64);
    }
    for (int i = 0; i < tile->total_count; i++) {
        tile->totals[i].near = take_scratch(tile, 8 * SGLCPU_CHUNK);
        tile->totals[i].place = tile->work_bytes;
        tile->work_bytes += sglcpu_round_up(chunks * 8, 64);
    }
}

/* Room for a block of elements on their way between a buffer and a register that holds them otherwise. */
static void place_stage(sglcpu_planner *pl)
{
    sglcpu_tile *tile = pl->tile;
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        if (!sglcpu_is_narrow((sgl_dtype)pl->kernel->steps.data[s].dtype)) continue;
        int64_t elements = sglcpu_max(tile->tile_rows * sglcpu_max(tile->tile_cols, 1), tile->split.strip);
        tile->stage = take_scratch(tile, elements * (int64_t)sizeof(uint16_t));
        return;
    }
}

sgl_status sglcpu_tile_place(sglcpu_planner *pl)
{
    sglcpu_tile *tile = pl->tile;
    make_in_place(pl);
    tile->slot_count = pl->register_count;
    tile->slots = sglcpu_plan_alloc(pl->p, tile->slot_count, sizeof *tile->slots);
    if (tile->slots == NULL) return SGL_OUT_OF_MEMORY;
    /* scratch begins with the addresses and row distances of the slots */
    take_scratch(tile, 2 * (int64_t)sizeof(int64_t) * sglcpu_max(tile->slot_count, 1));
    for (int r = 0; r < pl->register_count; r++) place_register(pl, r);
    SGLCORE_TRY(place_tiles(pl));
    for (int q = 0; q < tile->phase_count; q++) SGLCORE_TRY(list_moving(pl, &tile->phases[q]));
    place_sums(tile);
    place_stage(pl);
    return SGL_OK;
}
