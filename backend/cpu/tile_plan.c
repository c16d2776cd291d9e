/* tile_plan.c -- from a kernel's description to a plan: what each register is, how the work is cut, what stays where.
 *
 * In: an sglexec_kernel. Out: an sglcpu_tile; its lists of calls come from tile_calls.c, the memory of its registers from
 * tile_place.c. Here each register gets its form and, where a later phase needs it, a home: an output that it is stored
 * to anyway, or scratch. Odd invariant: while planning and after, register r is slot r of the plan. */
#include <string.h>

#include "backend/cpu/tile_plan.h"

static const sglexec_step *step_at(const sglcpu_planner *pl, int64_t s) { return &pl->kernel->steps.data[s]; }

/* ---- the shape of the work ------------------------------------------------------------------------------------ */

/* Without sums and with nothing that speaks of rows or columns, any split will do: the last dim is the row then. */
static void choose_split(sglcpu_planner *pl)
{
    pl->rank = pl->kernel->rank;
    pl->inner = pl->kernel->inner;
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (step->form == SGLEXEC_ROW || step->form == SGLEXEC_COL || step->kind == SGLEXEC_REDUCE) return;
    }
    pl->inner = pl->rank > 0 ? 1 : 0;
}

static void count_split(const sglcpu_planner *pl, int64_t *rows, int64_t *cols)
{
    *rows = *cols = 1;
    for (int d = 0; d < pl->rank; d++) *(d < pl->rank - pl->inner ? rows : cols) *= pl->kernel->dims[d];
}

/* Rows lie nearer to one another than columns: a transposed argument or result. */
static bool is_turned(const sglcpu_planner *pl, const sglexec_step *step)
{
    if ((step->kind != SGLEXEC_LOAD && step->kind != SGLEXEC_STORE) || step->form != SGLEXEC_FULL) return false;
    sglcpu_path path = sglcpu_path_of(&step->map, pl->rank, pl->inner, pl->kernel->dims);
    return path.outer > 0 && path.inner > 0 && path.outer_strides[path.outer - 1] == 1 &&
           path.inner_strides[path.inner - 1] > 1;
}

enum {
    TURNED_ROWS = 16,        /* of a tile: a line of memory holds as many floats */
    MOST_TURNED_COLS = 1024, /* of a tile that must be of whole rows */
    MOST_SUMMED_ROWS = 128   /* of a tile whose columns are summed */
};

/* What the steps ask of tiles. */
typedef struct needs {
    bool whole_rows, reduces, sums, totals, turned, wide, halves;
} needs;

static needs find_needs(const sglcpu_planner *pl)
{
    needs n = { 0 };
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        n.reduces |= step->kind == SGLEXEC_REDUCE;
        n.whole_rows |= step->kind == SGLEXEC_REDUCE || (step->kind == SGLEXEC_STORE && step->form == SGLEXEC_ROW);
        n.sums |= step->kind == SGLEXEC_COLUMN_SUM;
        n.totals |= step->kind == SGLEXEC_TOTAL;
        n.turned |= is_turned(pl, step);
        n.wide |= sglcpu_size(step->dtype) > 4;
        n.halves |= step->kind == SGLEXEC_STORE && step->dtype == SGL_I4;
    }
    return n;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Tasks hold whole blocks of column sums and whole chunks of totals, so that sums are added in one order (tile_sum.c). */
static void choose_tasks(sglcpu_planner *pl, needs *n)
{
    sglcpu_tile *tile = pl->tile;
    int64_t rows, cols, unit = 1;
    count_split(pl, &rows, &cols);
    if (n->sums) unit = sglcpu_sum_block(rows);
    if (n->totals && rows > 1 && cols % SGLCPU_CHUNK != 0) { /* chunks go on from row to row */
        n->whole_rows = true;
        unit = common_multiple(unit, common_multiple(SGLCPU_CHUNK, sglcpu_max(cols, 1)) / sglcpu_max(cols, 1));
    }
    if (n->turned) unit = common_multiple(unit, TURNED_ROWS);
    tile->split = sglcpu_split_of(rows, cols, n->whole_rows, unit);
    if (n->halves) { /* two elements share a byte: one task, so that no two threads write to it */
        tile->split = (sglcpu_split){
            .rows = rows, .cols = cols, .row_block = sglcpu_max(rows, 1), .row_tasks = 1, .strip = cols, .strips = 1
        };
    }
}

static void choose_tiles(sglcpu_planner *pl)
{
    sglcpu_tile *tile = pl->tile;
    needs n = find_needs(pl);
    choose_tasks(pl, &n);
    int64_t elements = SGLCPU_TILE_BYTES / (n.wide ? 8 : 4), strip = sglcpu_max(tile->split.strip, 1);
    /* What runs once per tile's rows costs as much as a step over a short row. */
    if (n.reduces || n.sums) elements *= 2;
    /* A total is taken row by row, a row's sum chunk by chunk. */
    if (n.turned && !(n.totals && strip > MOST_TURNED_COLS)) {
        tile->tile_rows = TURNED_ROWS;
        tile->tile_cols = sglcpu_min(strip, n.totals ? strip : n.reduces ? SGLCPU_CHUNK : elements / TURNED_ROWS);
    } else if (strip <= elements) {
        tile->tile_cols = strip;
        tile->tile_rows = sglcpu_min(elements / strip, tile->split.row_block);
        if (n.sums) tile->tile_rows = sglcpu_min(tile->tile_rows, MOST_SUMMED_ROWS);
    } else {
        int64_t even = sglcpu_ceil_div(strip, sglcpu_ceil_div(strip, elements));
        tile->tile_cols = sglcpu_round_up(even, n.reduces || n.totals ? SGLCPU_CHUNK : 16);
        tile->tile_rows = 1;
    }
}

/* ---- registers ---------------------------------------------------------------------------------------------- */

const sglcpu_path *sglcpu_planner_path(sglcpu_planner *pl, const sglexec_map *map)
{
    sglcpu_path *path = sglcpu_plan_alloc(pl->p, 1, sizeof *path);
    if (path != NULL) *path = sglcpu_path_of(map, pl->rank, pl->inner, pl->kernel->dims);
    return path;
}

bool sglcpu_can_stream(const sglcpu_planner *pl, const sglcpu_path *path, uint8_t dtype)
{
    return sglcpu_held((sgl_dtype)dtype) == (sgl_dtype)dtype && sglcpu_path_is_plain(path) &&
           (pl->tile->tile_rows == 1 || sglcpu_path_rows_even(path));
}

static uint8_t join_forms(uint8_t a, uint8_t b)
{
    if (a == b || b == SGLEXEC_ONE) return a;
    return a == SGLEXEC_ONE ? b : SGLEXEC_FULL;
}

static uint8_t form_of(const sglcpu_planner *pl, const sglexec_step *step)
{
    if (step->kind != SGLEXEC_COMPUTE) return step->form;
    uint8_t form = SGLEXEC_ONE;
    for (int i = 0; i < sglexec_step_args(step); i++) form = join_forms(form, pl->registers[step->args[i]].form);
    return form;
}

static sgl_status describe_register(sglcpu_planner *pl, int64_t s)
{
    const sglexec_step *step = step_at(pl, s);
    sglcpu_register *r = &pl->registers[step->out];
    *r = (sglcpu_register){
        .form = form_of(pl, step), .dtype = step->dtype, .phase = step->phase, .made_by = (int32_t)s
    };
    if (step->kind == SGLEXEC_REDUCE) r->phase++;
    if (step->kind != SGLEXEC_LOAD && step->kind != SGLEXEC_IOTA && step->kind != SGLEXEC_RANDOM) return SGL_OK;
    r->path = sglcpu_planner_path(pl, &step->map);
    if (r->path == NULL) return SGL_OUT_OF_MEMORY;
    if (step->kind != SGLEXEC_LOAD) return SGL_OK;
    r->operand = step->operand;
    bool as_held = sglcpu_held((sgl_dtype)r->dtype) == (sgl_dtype)r->dtype;
    r->streamed = (r->form == SGLEXEC_FULL && sglcpu_can_stream(pl, r->path, r->dtype)) ||
                  (r->form == SGLEXEC_COL && as_held && sglcpu_path_is_plain(r->path) && pl->tile->tile_rows == 1);
    return SGL_OK;
}

static sgl_status describe_registers(sglcpu_planner *pl)
{
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (sglexec_makes_register(step)) SGLCORE_TRY(describe_register(pl, s));
    }
    return SGL_OK;
}

/* ---- homes ---------------------------------------------------------------------------------------------------- */

static bool overlaps_an_argument(const sglcpu_planner *pl, uint32_t output)
{
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (step->kind == SGLEXEC_LOAD &&
            sglcpu_operands_overlap(&pl->operands[step->operand], &pl->operands[output])) {
            return true;
        }
        for (uint32_t i = 0; step->kind == SGLEXEC_LOAD_PIECES && i < step->piece_count; i++) {
            uint32_t operand = pl->kernel->pieces.data[step->piece_first + i].operand;
            if (sglcpu_operands_overlap(&pl->operands[operand], &pl->operands[output])) return true;
        }
    }
    return false;
}

static sgl_status take_home_in_output(sglcpu_planner *pl, const sglexec_step *store, int64_t s)
{
    sglcpu_register *r = &pl->registers[store->args[0]];
    if (r->form != SGLEXEC_FULL || r->streamed || r->home != SGLCPU_HOME_NONE) return SGL_OK;
    const sglcpu_path *path = sglcpu_planner_path(pl, &store->map);
    if (path == NULL) return SGL_OUT_OF_MEMORY;
    if (!sglcpu_can_stream(pl, path, r->dtype)) return SGL_OK;
    r->home = SGLCPU_HOME_OUTPUT;
    r->home_path = path;
    r->operand = store->operand;
    pl->stored[s] = true;
    return SGL_OK;
}

/* When a step runs: as the kernel says, but sums as soon as their argument is there, and so the stores that overwrite no
 * argument; these are made in place, and later phases read them from there. */
static sgl_status decide_when(sglcpu_planner *pl)
{
    uint8_t last = (uint8_t)(pl->tile->phase_count - 1);
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        pl->when[s] = step->phase;
        if (sglexec_makes_register(step)) continue;
        pl->when[s] = pl->registers[step->args[0]].phase;
        if (step->kind != SGLEXEC_STORE) continue;
        if (step->form != SGLEXEC_FULL || overlaps_an_argument(pl, step->operand)) {
            pl->when[s] = last;
        } else {
            SGLCORE_TRY(take_home_in_output(pl, step, s));
        }
    }
    return SGL_OK;
}

/* Costly FULL registers that a later phase needs live in scratch where all of them fit; else they are made again. */
static void keep_residents(sglcpu_planner *pl)
{
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        for (int i = 0; i < sglexec_step_args(step); i++) {
            sglcpu_register *r = &pl->registers[step->args[i]];
            if (r->form == SGLEXEC_FULL && r->phase < pl->when[s]) r->crosses = true;
        }
    }
    int64_t bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && bytes > SGLCPU_RESIDENT_BYTES) return;
        for (int r = 0; r < pl->register_count; r++) {
            sglcpu_register *at = &pl->registers[r];
            if (!at->crosses || at->home != SGLCPU_HOME_NONE) continue;
            uint8_t kind = step_at(pl, at->made_by)->kind;
            if (kind != SGLEXEC_COMPUTE && kind != SGLEXEC_RANDOM) continue;
            bytes += pl->tile->split.cols * sglcpu_held_size((sgl_dtype)at->dtype) * pl->tile->tile_rows;
            if (pass == 1) at->home = SGLCPU_HOME_SCRATCH;
        }
    }
}

/* Registers that are only ever stored need no settling of their own: storing rounds. */
static void mark_rounded(sglcpu_planner *pl)
{
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        for (int i = 0; step->kind != SGLEXEC_STORE && i < sglexec_step_args(step); i++) {
            pl->registers[step->args[i]].computed_with = true;
        }
    }
}

/* ---- the plan ------------------------------------------------------------------------------------------------- */

static sgl_status start_plan(sglcpu_planner *pl)
{
    const sglexec_kernel *k = pl->kernel;
    pl->tile->kernel = k;
    pl->tile->operands = pl->operands;
    pl->tile->phase_count = k->phases > 0 ? k->phases : 1;
    pl->tile->phases = sglcpu_plan_alloc(pl->p, pl->tile->phase_count, sizeof *pl->tile->phases);
    /* at most three numbers of each step are spread into registers of their own, in each list that the step is in */
    int64_t capacity = k->registers + 3 * k->steps.count * (pl->tile->phase_count + 2);
    if (capacity > UINT16_MAX) {
        return sglcore_fail(pl->p->env, SGL_UNSUPPORTED, "cpu: a kernel of %lld steps is too large; fuse less",
                            (long long)k->steps.count);
    }
    pl->register_count = k->registers;
    pl->register_capacity = (int)capacity;
    pl->registers = sglcore_arena_alloc(pl->temporary, (size_t)(pl->register_capacity + 1) * sizeof *pl->registers);
    pl->when = sglcore_arena_alloc(pl->temporary, (size_t)k->steps.count + 1);
    pl->stored = sglcore_arena_alloc(pl->temporary, ((size_t)k->steps.count + 1) * sizeof *pl->stored);
    if (pl->tile->phases == NULL || pl->registers == NULL || pl->when == NULL || pl->stored == NULL) {
        return SGL_OUT_OF_MEMORY;
    }
    return SGL_OK;
}

static sgl_status make_plan(sglcpu_planner *pl)
{
    SGLCORE_TRY(start_plan(pl));
    choose_split(pl);
    choose_tiles(pl);
    SGLCORE_TRY(describe_registers(pl));
    mark_rounded(pl);
    SGLCORE_TRY(decide_when(pl));
    keep_residents(pl);
    SGLCORE_TRY(sglcpu_tile_calls(pl));
    return sglcpu_tile_place(pl);
}

sgl_status sglcpu_tile_plan(sglcpu_prepare *p, const sglexec_kernel *kernel, const sglexec_operand *operands,
                            int operand_count, const sglcpu_tile **tile)
{
    sglcore_arena temporary = { .env = p->env };
    sglcpu_planner planner = { .p = p,
                               .kernel = kernel,
                               .operands = operands,
                               .operand_count = operand_count,
                               .temporary = &temporary,
                               .tile = sglcpu_plan_alloc(p, 1, sizeof(sglcpu_tile)) };
    sgl_status status = planner.tile == NULL ? SGL_OUT_OF_MEMORY : make_plan(&planner);
    sglcore_arena_free(&temporary);
    if (status != SGL_OK) return status;
    sglcpu_need_scratch(p, planner.tile->scratch_bytes);
    *tile = planner.tile;
    return SGL_OK;
}
