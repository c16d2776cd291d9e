/* emit.c -- a kernel as CUDA source: how it is cut into entries, and what each of them computes.
 *
 * In: a kernel and its operands. Out: the source and its launches, in their order: row sums that must be at hand, totals, what
 * there is per element, what there is per row, and from partial sums to whole ones. Odd invariant: whatever stores comes after
 * whatever only reads, since a result may take the place of an argument. */
#include "backend/cuda/emit_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Lines are indented by the braces that are open where they begin. */
static void put_text(sglcuda_emitter *e, const char *text, int length)
{
    static const char spaces[] = "                                        ";
    enum { MOST_DEPTH = (sizeof spaces - 1) / 4 };
    for (int at = 0; at < length && e->status == SGL_OK; at++) {
        const char c = text[at];
        if (c == '}') e->depth--;
        if (e->fresh && c != '\n') {
            const int depth = e->depth < 0 ? 0 : e->depth > MOST_DEPTH ? MOST_DEPTH : e->depth;
            e->status = sglcore_text_bytes(e->env, &e->out->text, spaces, (size_t)depth * 4);
        }
        if (c == '{') e->depth++;
        e->fresh = c == '\n';
        if (e->status == SGL_OK) e->status = sglcore_text_bytes(e->env, &e->out->text, &c, 1);
    }
}

void sglcuda_put(sglcuda_emitter *e, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    if (e->status != SGL_OK) return;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= (int)sizeof line)
        e->status = sglcore_fail(e->env, SGL_INTERNAL, "cuda: a line of a kernel's source is too long");
    else
        put_text(e, line, length);
}

void sglcuda_add_entry(sglcuda_emitter *e, const char *name, sglcuda_grid grid)
{
    if (e->status != SGL_OK) return;
    if (e->out->count == SGLCUDA_MOST_LAUNCHES) {
        e->status =
            sglcore_fail(e->env, SGL_UNSUPPORTED, "cuda: a kernel of more than %d launches", SGLCUDA_MOST_LAUNCHES);
        return;
    }
    sglcuda_entry *entry = &e->out->entries[e->out->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->grid = grid;
}

/* ---- how it is cut -------------------------------------------------------------------------------------------------- */

enum { LEAST_LANES = 32, MOST_VECTORS = 4, MOST_PARTS = 256, MOST_LANE_ROWS = 32 };

int sglcuda_lanes(int64_t n)
{
    int lanes = LEAST_LANES;
    while ((int64_t)lanes * SGLCUDA_RUN * MOST_VECTORS < sglcuda_min(n, SGLCUDA_CHUNK)) lanes *= 2;
    return lanes;
}

int sglcuda_vectors(int64_t n)
{
    const int64_t run = (int64_t)sglcuda_lanes(n) * SGLCUDA_RUN;
    return (int)sglcuda_max(sglcuda_ceil_div(sglcuda_min(n, SGLCUDA_CHUNK), run), 1);
}

bool sglcuda_is_whole(int64_t n) { return n > 0 && n % SGLCUDA_RUN == 0; }

int64_t sglcuda_part_rows(int64_t rows)
{
    const int64_t lane_rows = sglcuda_ceil_div(rows, (int64_t)MOST_PARTS * SGLCUDA_PART_LANES);
    return SGLCUDA_PART_LANES * sglcuda_min(sglcuda_max(lane_rows, 1), MOST_LANE_ROWS);
}

static sglcuda_cut cut_of(const sglexec_kernel *kernel)
{
    sglcuda_cut c = { .rows = kernel->rows, .cols = kernel->cols };
    const int64_t reduces = sglcuda_sums(kernel, SGLEXEC_REDUCE), totals = sglcuda_sums(kernel, SGLEXEC_TOTAL);
    const int64_t columns = sglcuda_sums(kernel, SGLEXEC_COLUMN_SUM);
    c.elements = c.rows * c.cols;
    c.totals = totals > 0;
    c.columns = columns > 0;
    c.resident = reduces > 0 && c.cols <= SGLCUDA_CHUNK;
    c.finals = reduces > 0 && (!c.resident || c.totals);
    c.row_chunks = sglcuda_ceil_div(c.cols, SGLCUDA_CHUNK);
    c.chunks = sglcuda_ceil_div(c.elements, SGLCUDA_CHUNK);
    c.part_rows = sglcuda_part_rows(c.rows);
    c.parts = sglcuda_ceil_div(c.rows, c.part_rows);
    c.finals_at = c.partial_at + (c.finals ? reduces * c.rows * sglcuda_max(c.row_chunks, 1) * 8 : 0);
    c.totals_at = c.finals_at + (c.finals ? reduces * c.rows * 8 : 0);
    c.columns_at = c.totals_at + totals * c.chunks * 8;
    c.bytes = c.columns_at + columns * c.parts * c.cols * 8;
    return c;
}

int64_t sglcuda_emit_workspace(const sglexec_kernel *kernel) { return cut_of(kernel).bytes; }

int64_t sglcuda_reduction_workspace(int64_t reduced, int64_t kept)
{
    const int64_t row = kept * sglcuda_max(sglcuda_ceil_div(reduced, SGLCUDA_CHUNK), 1) + kept;
    const int64_t column = sglcuda_ceil_div(reduced, sglcuda_part_rows(reduced)) * kept;
    return sglcuda_max(row, column) * 8;
}

/* ---- what an entry computes ------------------------------------------------------------------------------------------- */

/* Backward from the wanted ones: what they read, up to row sums that are at hand. */
static void want_what_is_read(sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = e->kernel->steps.count - 1; i >= 0; i--) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (!e->wanted[i] || sglcuda_is_at_hand(s, step)) continue;
        for (int n = 0; n < sglexec_step_args(step); n++)
            e->wanted[sglcuda_maker(e, step->args[n]) - e->kernel->steps.data] = true;
    }
}

/* A scope in which the steps of one kind (and form, if not negative) are wanted. */
static void want(sglcuda_emitter *e, sglexec_step_kind kind, int form, int phase)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind == kind && (form < 0 || step->form == form) && (phase < 0 || step->phase == phase))
            e->wanted[i] = true;
    }
}

static void want_nothing(sglcuda_emitter *e)
{
    memset(e->wanted, 0, (size_t)e->kernel->steps.count * sizeof *e->wanted);
    memset(e->fetched, 0, (size_t)e->kernel->steps.count * sizeof *e->fetched);
}

static bool has_row_sums(const sglexec_kernel *kernel, int phase)
{
    for (int64_t i = 0; i < kernel->steps.count; i++)
        if (kernel->steps.data[i].kind == SGLEXEC_REDUCE && kernel->steps.data[i].phase == phase) return true;
    return false;
}

static void emit_row_sums(sglcuda_emitter *e)
{
    for (int phase = 0; phase < e->kernel->phases; phase++) {
        char name[24];
        if (!has_row_sums(e->kernel, phase)) continue;
        const sglcuda_scope s = { .way = SGLCUDA_COLUMNS,
                                  .last_phase = phase,
                                  .reduces = true,
                                  .whole = sglcuda_is_whole(e->cut.cols),
                                  .lanes = sglcuda_lanes(e->cut.cols),
                                  .vectors = sglcuda_vectors(e->cut.cols),
                                  .wanted = e->wanted };
        want_nothing(e);
        want(e, SGLEXEC_REDUCE, -1, phase);
        want_what_is_read(e, &s);
        snprintf(name, sizeof name, "row_chunks_%d", phase);
        sglcuda_put_chunks(e, name, &s);
        snprintf(name, sizeof name, "row_sums_%d", phase);
        sglcuda_put_finish_rows(e, name, phase);
    }
}

static sglcuda_scope main_scope(const sglcuda_emitter *e)
{
    const sglcuda_cut *cut = &e->cut;
    sglcuda_scope s = { .way = cut->resident  ? SGLCUDA_ROWS
                               : cut->columns ? SGLCUDA_COLUMNS
                                              : SGLCUDA_MAP,
                        .last_phase = e->kernel->phases - 1,
                        .stores = true,
                        .reduces = cut->resident,
                        .whole = sglcuda_is_whole(cut->cols),
                        .lanes = sglcuda_lanes(cut->cols),
                        .vectors = sglcuda_vectors(cut->cols),
                        .wanted = e->wanted };
    if (s.way != SGLCUDA_MAP) return s;
    s.totals = cut->totals;
    s.whole = sglcuda_is_whole(cut->elements);
    s.lanes = sglcuda_lanes(cut->elements);
    s.vectors = sglcuda_vectors(cut->elements);
    return s;
}

static bool has_elements(const sglcuda_emitter *e, const sglcuda_scope *s)
{
    for (int64_t i = 0; i < e->kernel->steps.count; i++) {
        const sglexec_step *step = &e->kernel->steps.data[i];
        if (step->kind == SGLEXEC_COLUMN_SUM || (step->kind == SGLEXEC_TOTAL && s->totals)) return true;
        if (step->kind == SGLEXEC_STORE && (step->form == SGLEXEC_FULL || s->way == SGLCUDA_ROWS)) return true;
    }
    return false;
}

static void emit_main(sglcuda_emitter *e, const sglcuda_scope *s)
{
    want_nothing(e);
    want(e, SGLEXEC_STORE, s->way == SGLCUDA_ROWS ? -1 : SGLEXEC_FULL, -1);
    want(e, SGLEXEC_COLUMN_SUM, -1, -1);
    if (s->totals) want(e, SGLEXEC_TOTAL, -1, -1);
    want_what_is_read(e, s);
    if (!has_elements(e, s)) return;
    if (s->way == SGLCUDA_ROWS)
        sglcuda_put_rows(e, "rows", s);
    else if (s->way == SGLCUDA_COLUMNS)
        sglcuda_put_columns(e, "columns", s);
    else
        sglcuda_put_map(e, "map", s);
}

static void emit_totals(sglcuda_emitter *e)
{
    const sglcuda_scope s = { .way = SGLCUDA_MAP,
                              .last_phase = e->kernel->phases - 1,
                              .totals = true,
                              .whole = sglcuda_is_whole(e->cut.elements),
                              .lanes = sglcuda_lanes(e->cut.elements),
                              .vectors = sglcuda_vectors(e->cut.elements),
                              .wanted = e->wanted };
    want_nothing(e);
    want(e, SGLEXEC_TOTAL, -1, -1);
    want_what_is_read(e, &s);
    sglcuda_put_map(e, "totals", &s);
}

static void emit_row_results(sglcuda_emitter *e)
{
    const sglcuda_scope s = {
        .way = SGLCUDA_COLUMNS, .last_phase = e->kernel->phases - 1, .stores = true, .wanted = e->wanted
    };
    want_nothing(e);
    want(e, SGLEXEC_STORE, SGLEXEC_ROW, -1);
    want_what_is_read(e, &s);
    sglcuda_put_row_results(e, "row_results", &s);
}

/* ---- when a step is due ------------------------------------------------------------------------------------------------ */

static bool is_read_once(const sglcuda_emitter *e, uint16_t reg)
{
    int reads = 0;
    for (int64_t i = 0; i < e->kernel->steps.count; i++)
        for (int a = 0; a < sglexec_step_args(&e->kernel->steps.data[i]); a++)
            reads += e->kernel->steps.data[i].args[a] == reg;
    return reads == 1;
}

/* The phase of each step: as the kernel has it, but that arithmetic on what is loaded waits, as loads do, for its first use: a
 * gain that is widened in the first phase and used in the last one would stand in registers in between. */
static void settle_due(sglcuda_emitter *e)
{
    const sglexec_step *steps = e->kernel->steps.data;
    const int64_t count = e->kernel->steps.count;
    for (int64_t i = 0; i < count; i++) e->due[i] = steps[i].phase;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (steps[i].kind > SGLEXEC_COMPUTE) continue;
        int first = -1;
        for (int64_t n = i + 1; n < count; n++)
            for (int a = 0; a < sglexec_step_args(&steps[n]); a++)
                if (steps[n].args[a] == steps[i].out && (first < 0 || e->due[n] < first)) first = e->due[n];
        bool waits = steps[i].kind == SGLEXEC_COMPUTE;
        for (int a = 0; a < sglexec_step_args(&steps[i]) && waits; a++)
            waits = sglcuda_maker(e, steps[i].args[a])->kind < SGLEXEC_COMPUTE && is_read_once(e, steps[i].args[a]);
        if (first > e->due[i] && (waits || steps[i].kind < SGLEXEC_COMPUTE)) e->due[i] = (uint8_t)first;
    }
}

static void emit_entries(sglcuda_emitter *e)
{
    const sglcuda_scope whole = main_scope(e);
    sglcuda_put(e, "#include \"ops.cuh\"\nstruct sgl_places { void *p[%d]; };\n", e->operand_count + 1);
    sglcuda_put_tables(e);
    if (e->cut.finals) emit_row_sums(e);
    if (e->cut.totals && !whole.totals) emit_totals(e);
    emit_main(e, &whole);
    if (whole.way != SGLCUDA_ROWS && sglcuda_has_row_results(e->kernel)) emit_row_results(e);
    if (e->cut.columns) sglcuda_put_finish_columns(e, "column_sums");
    if (e->cut.totals) sglcuda_put_finish_totals(e, "total_sums");
}

sgl_status sglcuda_emit(sglcore_env *env, const sglexec_kernel *kernel, const sglexec_operand *operands,
                        int operand_count, sglcuda_emitted *emitted)
{
    *emitted = (sglcuda_emitted){ 0 };
    const size_t bytes = (size_t)kernel->steps.count;
    sglcuda_emitter e = { .env = env,
                          .out = emitted,
                          .kernel = kernel,
                          .operands = operands,
                          .operand_count = operand_count,
                          .cut = cut_of(kernel),
                          .wanted = sglcore_alloc_zero(env, bytes * sizeof *e.wanted),
                          .due = sglcore_alloc_zero(env, bytes * sizeof *e.due),
                          .fetched = sglcore_alloc_zero(env, bytes * sizeof *e.fetched) };
    if (bytes > 0 && (!e.wanted || !e.due || !e.fetched)) e.status = SGL_OUT_OF_MEMORY;
    if (e.status == SGL_OK) {
        settle_due(&e);
        emit_entries(&e);
    }
    sglcore_free(env, e.wanted, bytes * sizeof *e.wanted);
    sglcore_free(env, e.due, bytes * sizeof *e.due);
    sglcore_free(env, e.fetched, bytes * sizeof *e.fetched);
    return e.status;
}
