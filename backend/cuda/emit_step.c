/* emit_step.c -- the steps of a kernel as source: loads, generators, arithmetic, sums as they are added up, stores.
 *
 * In: a scope, which says what is one number and what is eight neighbours. Out: statements. The names that a scope's loops
 * give: `row` and `col` (of the first of the eight; in a map `col` counts the whole domain), `m` (how many of the eight there are), `k` (which
 * run of the row), `here` (the run is there at all), `active` (the row is), `first` (this thread is the one that stores what there is once per row),
 * `a.p` (the operands), and per sum `sum<number of the step>`. Odd invariant: what does not vary along a run is computed
 * once for it. */
#include "backend/cuda/emit_parts.h"

#include <stdio.h>
#include <string.h>

bool sglcuda_is_vector(const sglcuda_scope *s, int form)
{
    if (s->way == SGLCUDA_MAP) return form != SGLEXEC_ONE;
    return form == SGLEXEC_FULL || form == SGLEXEC_COL;
}

const sglexec_step *sglcuda_maker(const sglcuda_emitter *e, uint16_t reg)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (sglexec_makes_register(step) && step->out == reg) return step;
    }
    return NULL;
}

static int64_t number_of(const sglcuda_emitter *e, const sglexec_step *step) { return step - e->kernel->steps.data; }

bool sglcuda_is_at_hand(const sglcuda_scope *s, const sglexec_step *step)
{
    return step->kind == SGLEXEC_REDUCE && (!s->reduces || step->phase < s->last_phase) && s->way != SGLCUDA_ROWS;
}

bool sglcuda_is_kept(const sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *maker)
{
    if (s->way != SGLCUDA_ROWS || !sglcuda_is_vector(s, maker->form)) return false;
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        for (int n = 0; n < sglexec_step_args(step); n++)
            if (step->args[n] == maker->out && e->due[i] > e->due[number_of(e, maker)]) return true;
    }
    return false;
}

void sglcuda_put_value(sglcuda_emitter *e, const sglcuda_scope *s, uint16_t reg)
{
    const sglexec_step *maker = sglcuda_maker(e, reg);
    sglcuda_put(e, "r%u", reg);
    if (!sglcuda_is_vector(s, maker->form)) return;
    sglcuda_put(e, sglcuda_is_kept(e, s, maker) ? "[k][e]" : "[e]");
}

const char *sglcuda_fold(const sglexec_step *step)
{
    return step->op == SGLIR_OP_REDUCE_MAX ? "SGL_MAX" : step->op == SGLIR_OP_REDUCE_MIN ? "SGL_MIN" : "SGL_SUM";
}

int sglcuda_sums(const sglexec_kernel *kernel, sglexec_step_kind kind)
{
    int count = 0;
    for (int64_t i = 0; i < kernel->steps.count; i++) count += kernel->steps.data[i].kind == kind;
    return count;
}

int sglcuda_sum_number(const sglexec_kernel *kernel, const sglexec_step *step)
{
    int count = 0;
    for (const sglexec_step *other = kernel->steps.data; other < step; other++) count += other->kind == step->kind;
    return count;
}

/* ---- sources ---------------------------------------------------------------------------------------------------- */

/* A number of a dtype, as its bits say. */
static void put_number(sglcuda_emitter *e, int dtype, double value)
{
    uint64_t bits = 0;
    if (e->status != SGL_OK) return;
    e->status = sglexec_put_number(e->env, (sgl_dtype)dtype, value, (char *)&bits);
    const char *name = sglcuda_dtype(dtype);
    switch (dtype) {
    case SGL_F64: sglcuda_put(e, "__longlong_as_double(0x%llxll)", (unsigned long long)bits); break;
    case SGL_F32: sglcuda_put(e, "__uint_as_float(0x%llxu)", (unsigned long long)bits); break;
    case SGL_I4: sglcuda_put(e, "i4::decode_half(0x%llxu)", (unsigned long long)bits); break;
    default: sglcuda_put(e, "%s::decode((%s::stored)0x%llxull)", name, name, (unsigned long long)bits); break;
    }
}

/* Where element e of the run, or the one number, lies in the map: an expression. */
static void put_place(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_map *map, bool vector)
{
    int64_t stride;
    bool aligned;
    if (!vector) {
        sglcuda_put_address(e, s, map, s->way == SGLCUDA_MAP ? NULL : "row", NULL);
    } else if (sglcuda_runs(e, s, map, -1, &stride, &aligned)) {
        sglcuda_put_address(e, s, map, "row", "col");
        if (stride != 0) sglcuda_put(e, " + e * %lldll", (long long)stride);
    } else {
        sglcuda_put_address(e, s, map, "row", "(col + (uint32)e)");
    }
}

static void put_load(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, const char *name,
                     bool vector)
{
    int64_t stride;
    bool aligned;
    const char *T = sglcuda_dtype(step->dtype);
    if (!vector) {
        sglcuda_put(e, "%s = %s::load(a.p[%u], ", name, T, step->operand);
        put_place(e, s, &step->map, false);
        sglcuda_put(e, ");\n");
    } else if (e->fetched[number_of(e, step)]) {
        sglcuda_put(e, "%s::load8(f%lld[k].at, 0, %s);\n", T, (long long)number_of(e, step), name);
    } else if (sglcuda_runs(e, s, &step->map, (int)step->operand, &stride, &aligned) && stride == 1) {
        sglcuda_put(e, "sgl_take<%s, %s>(a.p[%u], ", T, aligned ? "true" : "false", step->operand);
        sglcuda_put_address(e, s, &step->map, "row", "col");
        sglcuda_put(e, ", m, %s);\n", name);
    } else {
        sglcuda_put(e, "sgl_take_each<%s>(a.p[%u], m, %s, [&](int e) -> int64 { return ", T, step->operand, name);
        put_place(e, s, &step->map, true);
        sglcuda_put(e, "; });\n");
    }
}

static void put_random(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, const char *name,
                       bool vector)
{
    const char *T = sglcuda_dtype(step->dtype);
    if (!vector) sglcuda_put(e, "{ %s::held x[8]; ", T);
    sglcuda_put(e, "sgl_%s<%s>((uint64)r%u ^ 0x%llxull, (uint64)r%u, %s, [&](int e) -> int64 { return r%u + ",
                step->op == SGLIR_OP_RANDOM_NORMAL ? "normal" : "uniform", T, step->args[0],
                (unsigned long long)step->id, step->args[1], vector ? name : "x", step->args[2]);
    put_place(e, s, &step->map, vector);
    sglcuda_put(e, "; });");
    if (!vector) sglcuda_put(e, " %s = x[0]; }", name);
    sglcuda_put(e, "\n");
}

static void put_source(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, const char *name,
                       bool vector)
{
    const char *T = sglcuda_dtype(step->dtype), *element = vector ? "[e]" : "";
    switch (step->kind) {
    case SGLEXEC_LOAD: put_load(e, s, step, name, vector); break;
    case SGLEXEC_LOAD_PIECES:
    case SGLEXEC_SEGMENTS: sglcuda_put_pieces(e, step, name, vector); break;
    case SGLEXEC_RANDOM: put_random(e, s, step, name, vector); break;
    default:
        sglcuda_put(e, "%s%s%s = ", vector ? "SGL_EACH " : "", name, element);
        if (step->kind == SGLEXEC_NUMBER) {
            put_number(e, step->dtype, step->value);
        } else {
            sglcuda_put(e, "op_cast<i64, %s>(", T);
            put_place(e, s, &step->map, vector);
            sglcuda_put(e, ")");
        }
        sglcuda_put(e, ";\n");
        break;
    }
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------- */

/* The dtype that an op's function is named by. */
static int dtype_of(const sglcuda_emitter *e, const sglexec_step *step)
{
    switch (step->op) {
    case SGLIR_OP_EQUAL:
    case SGLIR_OP_NOT_EQUAL:
    case SGLIR_OP_LESS:
    case SGLIR_OP_LESS_EQUAL:
    case SGLIR_OP_IS_FINITE: return sglcuda_maker(e, step->args[0])->dtype;
    default: return step->dtype;
    }
}

static void put_compute(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, const char *name,
                        bool vector)
{
    sglcuda_put(e, "%s%s%s = op_%s<", vector ? "SGL_EACH " : "", name, vector ? "[e]" : "", sglir_ops[step->op].name);
    if (step->op == SGLIR_OP_CAST) sglcuda_put(e, "%s, ", sglcuda_dtype(sglcuda_maker(e, step->args[0])->dtype));
    sglcuda_put(e, "%s", sglcuda_dtype(dtype_of(e, step)));
    if (step->op == SGLIR_OP_GELU || step->op == SGLIR_OP_GELU_GRAD) sglcuda_put(e, step->id ? ", true" : ", false");
    sglcuda_put(e, ">(");
    for (int n = 0; n < sglexec_step_args(step); n++) {
        if (n > 0) sglcuda_put(e, ", ");
        sglcuda_put_value(e, s, step->args[n]);
    }
    sglcuda_put(e, ");\n");
}

/* ---- sums and stores ------------------------------------------------------------------------------------------------ */

/* Into sum<number> of the step: one for rows and totals, eight (of each run) for columns. */
static void put_sum(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step)
{
    const long long number = (long long)number_of(e, step);
    const bool column = step->kind == SGLEXEC_COLUMN_SUM, shared = column && s->shared;
    if (shared)
        sglcuda_put(e, "if (active) { near%lld x[8]; SGL_EACH x[e] = (near%lld)", number, number);
    else
        sglcuda_put(e,
                    column ? "if (active) SGL_EACH sum%lld[k][e] = sgl_fold<%s>(sum%lld[k][e], (near%lld)"
                           : "if (here) SGL_EACH if (e < m) sum%lld = sgl_fold<%s>(sum%lld, (near%lld)",
                    number, sglcuda_fold(step), number, number);
    sglcuda_put_value(e, s, step->args[0]);
    if (shared)
        sglcuda_put(e, "; sgl_fold_run<%s>(sum%lld + k * %d, %d, x); }\n", sglcuda_fold(step), number,
                    s->lanes * SGLCUDA_RUN, s->lanes * SGLCUDA_RUN / 2);
    else
        sglcuda_put(e, ");\n");
}

static void put_store(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step)
{
    const char *T = sglcuda_dtype(step->dtype);
    int64_t stride;
    bool aligned;
    sglcuda_put(e, "if (here) { %s::held x[8]; SGL_EACH x[e] = ", T);
    sglcuda_put_value(e, s, step->args[0]);
    if (sglcuda_runs(e, s, &step->map, (int)step->operand, &stride, &aligned) && stride == 1) {
        sglcuda_put(e, "; sgl_put<%s, %s>(a.p[%u], ", T, aligned ? "true" : "false", step->operand);
        sglcuda_put_address(e, s, &step->map, "row", "col");
        sglcuda_put(e, ", m, x); }\n");
    } else {
        sglcuda_put(e, "; sgl_put_each<%s>(a.p[%u], m, x, [&](int e) -> int64 { return ", T, step->operand);
        put_place(e, s, &step->map, true);
        sglcuda_put(e, "; }); }\n");
    }
}

/* ---- the steps of a phase ------------------------------------------------------------------------------------------- */

void sglcuda_put_kept(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (!sglexec_makes_register(step) || !s->wanted[i] || !sglcuda_is_kept(e, s, step)) continue;
        sglcuda_put(e, "%s::held r%u[%d][8];\n", sglcuda_dtype(step->dtype), step->out, s->vectors);
    }
}

/* Value of a row sum that is at hand. */
static void put_at_hand(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, const char *name,
                        bool vector)
{
    const int64_t at = e->cut.finals_at + sglcuda_sum_number(e->kernel, step) * e->cut.rows * 8;
    const char *T = sglcuda_dtype(step->dtype);
    sglcuda_put(e, "%s%s%s = sgl_result<%s>(((const sgl_sum_type<%s>::wide *)((const char *)a.p[%d] + %lldll))[",
                vector ? "SGL_EACH " : "", name, vector ? "[e]" : "", T, T, e->operand_count, (long long)at);
    if (s->way != SGLCUDA_MAP)
        sglcuda_put(e, "row]);\n");
    else if (!vector)
        sglcuda_put(e, "0]);\n");
    else
        sglcuda_put(e, "sgl_least((int64)(col + (uint32)e) / %lldll, %lldll)]);\n",
                    (long long)sglcuda_max(e->cut.cols, 1), (long long)sglcuda_max(e->cut.rows - 1, 0));
}

static void put_register(sglcuda_emitter *e, const sglcuda_scope *s, const sglexec_step *step, bool vector)
{
    char name[24];
    const bool kept = sglcuda_is_kept(e, s, step);
    snprintf(name, sizeof name, kept ? "r%u[k]" : "r%u", step->out);
    if (!kept) sglcuda_put(e, "%s::held %s%s;\n", sglcuda_dtype(step->dtype), name, vector ? "[8]" : "");
    if (sglcuda_is_at_hand(s, step))
        put_at_hand(e, s, step, name, vector);
    else if (step->kind == SGLEXEC_COMPUTE)
        put_compute(e, s, step, name, vector);
    else
        put_source(e, s, step, name, vector);
}

static bool is_due(const sglcuda_emitter *e, const sglcuda_scope *s, int64_t number, int phase)
{
    const sglexec_step *step = &e->kernel->steps.data[number];
    const bool steady = sglexec_makes_register(step) && (step->form == SGLEXEC_COL || step->form == SGLEXEC_ONE);
    if (s->share != SGLCUDA_ALL && steady != (s->share == SGLCUDA_STEADY)) return false;
    return e->due[number] == phase && s->wanted[number];
}

void sglcuda_put_numbers(sglcuda_emitter *e, const sglcuda_scope *s, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (!is_due(e, s, i, phase)) continue;
        if (!sglexec_makes_register(step) || sglcuda_is_vector(s, step->form)) continue;
        if (step->kind != SGLEXEC_REDUCE || sglcuda_is_at_hand(s, step)) put_register(e, s, step, false);
    }
}

bool sglcuda_has_row_results(const sglexec_kernel *kernel)
{
    for (int64_t i = 0; i < kernel->steps.count; i++)
        if (kernel->steps.data[i].kind == SGLEXEC_STORE && kernel->steps.data[i].form == SGLEXEC_ROW) return true;
    return false;
}

void sglcuda_put_row_stores(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind != SGLEXEC_STORE || step->form != SGLEXEC_ROW) continue;
        sglcuda_put(e, "if (first) %s::store(a.p[%u], ", sglcuda_dtype(step->dtype), step->operand);
        sglcuda_put_address(e, s, &step->map, "row", NULL);
        sglcuda_put(e, ", r%u);\n", step->args[0]);
    }
}

void sglcuda_put_vectors(sglcuda_emitter *e, const sglcuda_scope *s, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (!is_due(e, s, i, phase)) continue;
        if (step->kind == SGLEXEC_REDUCE && !sglcuda_is_at_hand(s, step))
            put_sum(e, s, step);
        else if (step->kind == SGLEXEC_TOTAL && s->totals)
            put_sum(e, s, step);
        else if (step->kind == SGLEXEC_COLUMN_SUM && s->stores)
            put_sum(e, s, step);
        else if (step->kind == SGLEXEC_STORE && step->form == SGLEXEC_FULL && s->stores)
            put_store(e, s, step);
        else if (sglexec_makes_register(step) && sglcuda_is_vector(s, step->form))
            put_register(e, s, step, true);
    }
}
