/* tile_calls.c -- the lists of calls of a plan: which loop runs on which registers, once per task, tile's rows, or tile.
 *
 * In: a planner whose registers are described. Out: the lists. Each phase gets the steps it needs, those of earlier phases
 * included whose registers have no home. Then neighbours are brought together: two arithmetic steps become one loop, a
 * product under a sum disappears; and where a loop takes no number for an argument, the number is spread first. */
#include <string.h>

#include "backend/cpu/tile_plan.h"

static const sglexec_step *step_at(const sglcpu_planner *pl, int64_t s) { return &pl->kernel->steps.data[s]; }

/* A list while it grows; at most five calls come of a step. */
typedef struct list {
    sglcpu_call *data;
    int count;
} list;

static sgl_status list_new(sglcpu_planner *pl, list *l)
{
    l->count = 0;
    l->data = sglcore_arena_alloc(pl->temporary, (size_t)(5 * pl->kernel->steps.count + 1) * sizeof *l->data);
    return l->data == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
}

static sgl_status list_keep(sglcpu_planner *pl, const list *l, sglcpu_calls *calls)
{
    calls->data = sglcpu_plan_alloc(pl->p, l->count, sizeof *calls->data);
    if (calls->data == NULL) return SGL_OUT_OF_MEMORY;
    for (int i = 0; i < l->count; i++) calls->data[i] = l->data[i];
    calls->count = l->count;
    return SGL_OK;
}

/* ---- a step's call ------------------------------------------------------------------------------------------- */

/* A register that is one number for the loops of this level: for tiles what a row or everything has one of, for rows and
 * columns what everything has one of. */
static bool is_number(const sglcpu_planner *pl, uint8_t level, int r)
{
    uint8_t form = pl->registers[r].form;
    if (level == SGLEXEC_FULL) return form == SGLEXEC_ROW || form == SGLEXEC_ONE;
    return level != SGLEXEC_ONE && form == SGLEXEC_ONE;
}

static uint8_t numbers_of(const sglcpu_planner *pl, uint8_t level, const sglcpu_call *call)
{
    uint8_t mask = 0;
    for (int i = 0; i < call->arg_count; i++) {
        if (is_number(pl, level, call->args[i])) mask |= (uint8_t)(1u << i);
    }
    return mask;
}

static int call_kind_of(const sglexec_step *step)
{
    switch (step->kind) {
    case SGLEXEC_LOAD: return SGLCPU_CALL_LOAD;
    case SGLEXEC_LOAD_PIECES: return SGLCPU_CALL_PIECES;
    case SGLEXEC_NUMBER: return SGLCPU_CALL_NUMBER;
    case SGLEXEC_IOTA: return SGLCPU_CALL_COUNTER;
    case SGLEXEC_SEGMENTS: return SGLCPU_CALL_SEGMENTS;
    case SGLEXEC_RANDOM: return SGLCPU_CALL_RANDOM;
    case SGLEXEC_COMPUTE: return SGLCPU_CALL_MAP;
    case SGLEXEC_REDUCE: return SGLCPU_CALL_FOLD;
    case SGLEXEC_COLUMN_SUM: return SGLCPU_CALL_COLUMNS;
    case SGLEXEC_TOTAL: return SGLCPU_CALL_TOTAL;
    default: return SGLCPU_CALL_STORE;
    }
}

static void add_call(const sglcpu_planner *pl, list *l, int64_t s, int sum)
{
    const sglexec_step *step = step_at(pl, s);
    sglcpu_call *call = &l->data[l->count++];
    *call = (sglcpu_call){ .kind = (uint8_t)call_kind_of(step),
                           .arg_count = (uint8_t)sglexec_step_args(step),
                           .dtype = step->dtype,
                           .out = step->out,
                           .sum = (uint16_t)sum,
                           .step = step };
    for (int i = 0; i < call->arg_count; i++) call->args[i] = step->args[i];
    if (sglexec_makes_register(step)) call->path = pl->registers[step->out].path;
}

/* ---- loops --------------------------------------------------------------------------------------------------- */

static int fold_of(sglir_op op)
{
    return op == SGLIR_OP_REDUCE_MAX ? SGLCPU_FOLD_MAX : op == SGLIR_OP_REDUCE_MIN ? SGLCPU_FOLD_MIN : SGLCPU_FOLD_SUM;
}

static sglcpu_map_fn find_map(const sglcpu_planner *pl, const sglcpu_call *call, int numbers)
{
    sglir_op op = (sglir_op)call->step->op;
    sgl_dtype from = (sgl_dtype)pl->registers[call->args[op == SGLIR_OP_SELECT ? 1 : 0]].dtype;
    if (op == SGLIR_OP_CAST || op == SGLIR_OP_STOP_GRADIENT || op == SGLIR_OP_COPY) {
        return numbers == 0 ? sglcpu_cast(from, (sgl_dtype)call->dtype) : NULL;
    }
    int real = sglcpu_held_index(from);
    if (real < 0) return sglcpu_int_map(op, from, numbers);
    const sglcpu_float_ops *ops = pl->p->isa->floats[real];
    bool exact = call->step->id != 0;
    if (op == SGLIR_OP_SELECT) return ops->select[numbers];
    if (call->arg_count == 1) {
        if (numbers != 0) return NULL;
        return op == SGLIR_OP_GELU && exact ? ops->gelu_exact : ops->one[op];
    }
    if (op == SGLIR_OP_GELU_GRAD && exact) return numbers == 0 ? ops->gelu_grad_exact : NULL;
    return call->arg_count == 2 ? ops->two[op][numbers] : NULL;
}

/* A register of the level's form that holds copies of number register r, and the call that makes it. */
static int spread(sglcpu_planner *pl, list *l, uint8_t level, int r)
{
    int copy = pl->register_count++;
    pl->registers[copy] = (sglcpu_register){ .form = level, .dtype = pl->registers[r].dtype, .made_by = -1 };
    l->data[l->count++] = (sglcpu_call){ .kind = SGLCPU_CALL_SPREAD,
                                         .arg_count = 1,
                                         .numbers = is_number(pl, level, r) ? 1 : 0,
                                         .dtype = pl->registers[r].dtype,
                                         .out = (uint16_t)copy,
                                         .args = { (uint16_t)r } };
    return copy;
}

static void spread_numbers(sglcpu_planner *pl, list *l, uint8_t level, sglcpu_call *call)
{
    for (int i = 0; i < call->arg_count; i++) {
        if (is_number(pl, level, call->args[i])) call->args[i] = (uint16_t)spread(pl, l, level, call->args[i]);
    }
    call->numbers = 0;
}

static sgl_status choose_map(sglcpu_planner *pl, list *l, uint8_t level, sglcpu_call *call)
{
    call->numbers = numbers_of(pl, level, call);
    call->fn.map = find_map(pl, call, call->numbers);
    if (call->fn.map != NULL) return SGL_OK;
    call->fn.map = find_map(pl, call, 0);
    if (call->fn.map == NULL) {
        return sglcore_fail(pl->p->env, SGL_UNSUPPORTED, "cpu: there is no %s of %s", sglir_ops[call->step->op].name,
                            sgl_dtype_name((sgl_dtype)pl->registers[call->args[0]].dtype));
    }
    spread_numbers(pl, l, level, call);
    return SGL_OK;
}

static void choose_fold(sglcpu_planner *pl, list *l, sglcpu_call *call)
{
    sgl_dtype dtype = (sgl_dtype)pl->registers[call->args[0]].dtype;
    int real = sglcpu_held_index(dtype), fold = fold_of((sglir_op)call->step->op);
    spread_numbers(pl, l, SGLEXEC_FULL, call);
    if (call->arg_count == 2) {
        call->fn.fold = pl->p->isa->floats[real]->fold_product;
    } else if (call->kind == SGLCPU_CALL_COLUMNS) {
        call->fn.columns = real < 0 ? sglcpu_int_columns(fold, dtype) : pl->p->isa->floats[real]->columns[fold];
    } else {
        call->fn.fold = real < 0 ? sglcpu_int_fold(fold, dtype) : pl->p->isa->floats[real]->fold[fold];
    }
}

/* What the op gives of numbers of a dtype is one again, whatever the dtype. */
static bool keeps_dtype(sglir_op op, bool is_float)
{
    switch (op) {
    case SGLIR_OP_NEG:
    case SGLIR_OP_ABS: return is_float;
    case SGLIR_OP_SIGN:
    case SGLIR_OP_FLOOR:
    case SGLIR_OP_ROUND:
    case SGLIR_OP_BIT_NOT:
    case SGLIR_OP_BIT_AND:
    case SGLIR_OP_BIT_OR:
    case SGLIR_OP_BIT_XOR:
    case SGLIR_OP_SHIFT_RIGHT:
    case SGLIR_OP_MAXIMUM:
    case SGLIR_OP_MINIMUM:
    case SGLIR_OP_SELECT:
    case SGLIR_OP_STOP_GRADIENT:
    case SGLIR_OP_COPY: return true;
    default: return false;
    }
}

/* After a call that may give what is no number of its dtype, one that rounds it, or wraps it, where it lies. */
static void settle(const sglcpu_planner *pl, list *l, const sglcpu_call *call)
{
    bool makes = call->kind == SGLCPU_CALL_MAP || call->kind == SGLCPU_CALL_COUNTER || call->kind == SGLCPU_CALL_RANDOM;
    sglcpu_map_fn fn = sglcpu_settle(pl->p->isa, (sgl_dtype)call->dtype);
    if (!makes || fn == NULL || !pl->registers[call->out].computed_with) return;
    if (call->kind == SGLCPU_CALL_MAP && keeps_dtype((sglir_op)call->step->op, call->dtype != SGL_I4)) return;
    l->data[l->count++] = (sglcpu_call){ .kind = SGLCPU_CALL_MAP,
                                         .arg_count = 1,
                                         .dtype = call->dtype,
                                         .out = call->out,
                                         .args = { call->out },
                                         .fn.map = fn,
                                         .step = call->step };
}

/* Fills in the loops of `from`, into `to`, spreading numbers before the calls that need it. */
static sgl_status choose_loops(sglcpu_planner *pl, uint8_t level, const list *from, list *to)
{
    for (int i = 0; i < from->count; i++) {
        sglcpu_call call = from->data[i];
        switch (call.kind) {
        case SGLCPU_CALL_MAP:
            if (call.fn.map == NULL) SGLCORE_TRY(choose_map(pl, to, level, &call));
            break;
        case SGLCPU_CALL_FOLD:
        case SGLCPU_CALL_COLUMNS:
        case SGLCPU_CALL_TOTAL: choose_fold(pl, to, &call); break;
        case SGLCPU_CALL_RANDOM: {
            int real = sglcpu_held_index((sgl_dtype)call.dtype);
            if (real < 0) return sglcore_fail(pl->p->env, SGL_UNSUPPORTED, "cpu: random numbers are floats");
            const sglcpu_isa *isa = pl->p->isa;
            call.fn.random = call.step->op == SGLIR_OP_RANDOM_NORMAL ? isa->normal[real] : isa->uniform[real];
            break;
        }
        case SGLCPU_CALL_STORE: call.numbers = numbers_of(pl, level, &call); break;
        default: break;
        }
        to->data[to->count++] = call;
        settle(pl, to, &call);
    }
    return SGL_OK;
}

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

static int uses_in(const list *l, int r)
{
    int uses = 0;
    for (int i = 0; i < l->count; i++) {
        for (int a = 0; a < l->data[i].arg_count; a++) uses += l->data[i].args[a] == r;
    }
    return uses;
}

/* The map in the list before `before` that makes r, where nobody else in the list needs r and it has no home; or -1. */
static int only_maker(const sglcpu_planner *pl, const list *l, int before, int r)
{
    if (pl->registers[r].form != SGLEXEC_FULL || pl->registers[r].home != SGLCPU_HOME_NONE || uses_in(l, r) != 1)
        return -1;
    for (int i = before - 1; i >= 0; i--) {
        if (l->data[i].out == r && l->data[i].kind == SGLCPU_CALL_MAP) return i;
    }
    return -1;
}

static int first_of(const sglcpu_call *call)
{
    if (call->kind != SGLCPU_CALL_MAP || call->fn.map != NULL) return -1;
    switch (call->step->op) {
    case SGLIR_OP_ADD:
    case SGLIR_OP_ACCUMULATE: return SGLCPU_FIRST_ADD;
    case SGLIR_OP_SUB: return SGLCPU_FIRST_SUB;
    case SGLIR_OP_MUL: return SGLCPU_FIRST_MUL;
    default: return -1;
    }
}

static int second_of(int first, int side)
{
    switch (first) {
    case SGLCPU_FIRST_ADD: return SGLCPU_SECOND_ADD;
    case SGLCPU_FIRST_SUB: return side == 0 ? SGLCPU_SECOND_SUB : SGLCPU_SECOND_RSUB;
    case SGLCPU_FIRST_MUL: return SGLCPU_SECOND_MUL;
    default: return -1;
    }
}

static void drop_call(list *l, int at)
{
    l->count--;
    for (int i = at; i < l->count; i++) l->data[i] = l->data[i + 1];
}

/* (a first b) second c in one loop. True when call j has become one and its maker is gone. */
static bool pair_up(const sglcpu_planner *pl, list *l, int j)
{
    sglcpu_call *call = &l->data[j];
    int real = sglcpu_float_index((sgl_dtype)call->dtype), outer = first_of(call);
    if (real < 0 || outer < 0) return false;
    for (int side = 0; side < 2; side++) {
        int i = only_maker(pl, l, j, call->args[side]);
        int first = i < 0 ? -1 : first_of(&l->data[i]);
        if (first < 0) continue;
        sglcpu_call joined = *call;
        joined.arg_count = 3;
        joined.args[0] = l->data[i].args[0];
        joined.args[1] = l->data[i].args[1];
        joined.args[2] = call->args[1 - side];
        joined.numbers = numbers_of(pl, SGLEXEC_FULL, &joined);
        joined.fn.map = pl->p->isa->floats[real]->pair[first][second_of(outer, side)][joined.numbers];
        if (joined.fn.map == NULL) continue;
        *call = joined;
        drop_call(l, i);
        return true;
    }
    return false;
}

/* A sum over products needs no product stored. */
static bool sum_products(const sglcpu_planner *pl, list *l, int j)
{
    sglcpu_call *call = &l->data[j];
    if ((call->kind != SGLCPU_CALL_FOLD && call->kind != SGLCPU_CALL_TOTAL) || call->step->op != SGLIR_OP_REDUCE_SUM) {
        return false;
    }
    if (sglcpu_float_index((sgl_dtype)pl->registers[call->args[0]].dtype) < 0) return false;
    int i = only_maker(pl, l, j, call->args[0]);
    if (i < 0 || first_of(&l->data[i]) != SGLCPU_FIRST_MUL || numbers_of(pl, SGLEXEC_FULL, &l->data[i]) != 0)
        return false;
    call->arg_count = 2;
    call->args[0] = l->data[i].args[0];
    call->args[1] = l->data[i].args[1];
    drop_call(l, i);
    return true;
}

static void join_neighbours(const sglcpu_planner *pl, list *l)
{
    for (int j = 0; j < l->count; j++) {
        if (sum_products(pl, l, j) || pair_up(pl, l, j)) j--; /* what stood at j stands at j - 1 now */
    }
}

/* ---- lists ---------------------------------------------------------------------------------------------------- */

/* Whether a step's call is one of tiles. */
static bool runs_in_tiles(const sglcpu_planner *pl, const sglexec_step *step)
{
    if (step->kind == SGLEXEC_STORE) return step->form == SGLEXEC_FULL;
    return !sglexec_makes_register(step) || step->kind == SGLEXEC_REDUCE ||
           pl->registers[step->out].form == SGLEXEC_FULL;
}

/* Marks the steps whose calls phase q needs: its own ends, and backwards what they are made of. */
static sgl_status mark_phase(sglcpu_planner *pl, int q, bool *marked)
{
    bool *wanted = sglcore_arena_alloc(pl->temporary, (size_t)pl->register_count + 1);
    if (wanted == NULL) return SGL_OUT_OF_MEMORY;
    for (int64_t s = pl->kernel->steps.count - 1; s >= 0; s--) {
        const sglexec_step *step = step_at(pl, s);
        marked[s] = false;
        if (!runs_in_tiles(pl, step)) continue;
        bool is_end = !sglexec_makes_register(step) || step->kind == SGLEXEC_REDUCE;
        if (is_end) {
            marked[s] = pl->when[s] == q;
        } else {
            const sglcpu_register *r = &pl->registers[step->out];
            marked[s] = wanted[step->out] || (r->home != SGLCPU_HOME_NONE && r->phase == q);
        }
        for (int i = 0; marked[s] && i < sglexec_step_args(step); i++) {
            const sglcpu_register *r = &pl->registers[step->args[i]];
            if (r->form == SGLEXEC_FULL && (r->home == SGLCPU_HOME_NONE || r->phase == q)) wanted[step->args[i]] = true;
        }
    }
    return SGL_OK;
}

/* The number of step s among those of its kind: which sum it is. */
static int sum_number(const sglcpu_planner *pl, int64_t s)
{
    int number = 0;
    for (int64_t before = 0; before < s; before++) number += step_at(pl, before)->kind == step_at(pl, s)->kind;
    return number;
}

static sgl_status list_tiles(sglcpu_planner *pl, int q)
{
    list steps, calls;
    SGLCORE_TRY(list_new(pl, &steps));
    SGLCORE_TRY(list_new(pl, &calls));
    bool *marked = sglcore_arena_alloc(pl->temporary, (size_t)pl->kernel->steps.count + 1);
    if (marked == NULL) return SGL_OUT_OF_MEMORY;
    SGLCORE_TRY(mark_phase(pl, q, marked));
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (!marked[s] || pl->stored[s]) continue;
        if (step->kind == SGLEXEC_LOAD && pl->registers[step->out].streamed) continue;
        add_call(pl, &steps, s, sum_number(pl, s));
        if (step->kind != SGLEXEC_STORE) continue;
        sglcpu_call *call = &steps.data[steps.count - 1];
        call->path = sglcpu_planner_path(pl, &step->map);
        if (call->path == NULL) return SGL_OUT_OF_MEMORY;
    }
    join_neighbours(pl, &steps);
    SGLCORE_TRY(choose_loops(pl, SGLEXEC_FULL, &steps, &calls));
    return list_keep(pl, &calls, &pl->tile->phases[q].tiles);
}

/* The calls that make registers of one form (of rows: those of phase q), in the order of their steps. */
static sgl_status list_form(sglcpu_planner *pl, uint8_t form, int q, sglcpu_calls *out)
{
    list steps, calls;
    SGLCORE_TRY(list_new(pl, &steps));
    SGLCORE_TRY(list_new(pl, &calls));
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (!sglexec_makes_register(step) || step->kind == SGLEXEC_REDUCE) continue;
        const sglcpu_register *r = &pl->registers[step->out];
        if (r->form != form || r->streamed || (form == SGLEXEC_ROW && r->phase != q)) continue;
        add_call(pl, &steps, s, 0);
    }
    SGLCORE_TRY(choose_loops(pl, form, &steps, &calls));
    return list_keep(pl, &calls, out);
}

/* Stores of one form. */
static sgl_status list_stores(sglcpu_planner *pl, bool rows, sglcpu_calls *out)
{
    list steps;
    SGLCORE_TRY(list_new(pl, &steps));
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (step->kind != SGLEXEC_STORE || step->form == SGLEXEC_FULL || (step->form == SGLEXEC_ROW) != rows) continue;
        add_call(pl, &steps, s, 0);
        sglcpu_call *call = &steps.data[steps.count - 1];
        call->numbers = numbers_of(pl, step->form, call);
        call->path = sglcpu_planner_path(pl, &step->map);
        if (call->path == NULL) return SGL_OUT_OF_MEMORY;
    }
    return list_keep(pl, &steps, out);
}

/* ---- sums ----------------------------------------------------------------------------------------------------- */

static sgl_status list_sums(sglcpu_planner *pl, uint8_t kind, sglcpu_sum **sums, int *count)
{
    *count = 0;
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) *count += step_at(pl, s)->kind == kind;
    *sums = sglcpu_plan_alloc(pl->p, *count, sizeof **sums);
    if (*sums == NULL) return SGL_OUT_OF_MEMORY;
    int at = 0;
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        const sglexec_step *step = step_at(pl, s);
        if (step->kind != kind) continue;
        (*sums)[at++] = (sglcpu_sum){ .fold = (uint8_t)fold_of((sglir_op)step->op),
                                      .dtype = step->dtype,
                                      .slot = step->out,
                                      .operand = step->operand };
    }
    return SGL_OK;
}

/* Row sums end with the phase of their steps, and steps stand by phase. */
static void assign_folds(sglcpu_planner *pl)
{
    int number = 0;
    for (int64_t s = 0; s < pl->kernel->steps.count; s++) {
        if (step_at(pl, s)->kind != SGLEXEC_REDUCE) continue;
        sglcpu_phase *phase = &pl->tile->phases[pl->when[s]];
        if (phase->fold_count++ == 0) phase->fold_first = number;
        number++;
    }
}

sgl_status sglcpu_tile_calls(sglcpu_planner *pl)
{
    sglcpu_tile *tile = pl->tile;
    SGLCORE_TRY(list_sums(pl, SGLEXEC_REDUCE, &tile->folds, &tile->fold_count));
    SGLCORE_TRY(list_sums(pl, SGLEXEC_COLUMN_SUM, &tile->columns, &tile->column_count));
    SGLCORE_TRY(list_sums(pl, SGLEXEC_TOTAL, &tile->totals, &tile->total_count));
    assign_folds(pl);
    SGLCORE_TRY(list_form(pl, SGLEXEC_ONE, 0, &tile->ones));
    SGLCORE_TRY(list_form(pl, SGLEXEC_COL, 0, &tile->cols));
    for (int q = 0; q < tile->phase_count; q++) {
        SGLCORE_TRY(list_form(pl, SGLEXEC_ROW, q, &tile->phases[q].rows));
        SGLCORE_TRY(list_tiles(pl, q));
    }
    SGLCORE_TRY(list_stores(pl, true, &tile->last));
    return list_stores(pl, false, &tile->once);
}
