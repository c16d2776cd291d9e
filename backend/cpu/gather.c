/* gather.c -- rows by index: gather, and scatter_add, its transpose.
 *
 * In: a table or updates, and indices of any integer dtype; an index outside the table reads zeros and adds nothing.
 * Out: rows. Scatter gives each task a part of the result, rows or columns, and lets it go through all updates in
 * order, so that the sum in each row has one order; of narrow floats it is taken in float32 and rounded once. Odd
 * invariant: a task of scatter_add touches nothing outside its part. */
#include <string.h>

#include "backend/cpu/cpu.h"

enum { TASK_BYTES = 64 * 1024, SCATTER_TASKS = 32, LEAST_COLUMNS = 64 };

/* ---- gather ----------------------------------------------------------------------------------------------------- */

typedef struct gather {
    const sglexec_operand *table, *indices, *result;
    int64_t count, extent, row_bytes, rows_per_task;
    int64_t halves; /* of i4: elements of a row where these are no whole bytes, else 0 */
} gather;

typedef struct gather_job {
    const sglcpu_launch *launch;
    const gather *plan;
} gather_job;

/* A row of i4 that may begin within a byte; row -1: zeros. */
static void gather_halves(const gather *g, char *out, int64_t i, const char *table, int64_t row)
{
    static const uint8_t zero[1] = { 0 };
    int64_t whole = g->count * g->halves;
    if (row >= 0) {
        sglcpu_move_nibbles(out, i * g->halves, table, row * g->halves, g->halves, whole);
        return;
    }
    for (int64_t e = 0; e < g->halves; e++) sglcpu_move_nibbles(out, i * g->halves + e, zero, 0, 1, whole);
}

static void gather_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const gather_job *j = context;
    const gather *g = j->plan;
    const char *table = sglcpu_at(j->launch, g->table), *indices = sglcpu_at(j->launch, g->indices);
    char *out = sglcpu_at(j->launch, g->result);
    int64_t last = sglcpu_min((task + 1) * g->rows_per_task, g->count);
    for (int64_t i = task * g->rows_per_task; i < last; i++) {
        int64_t row = sglcpu_read_index(indices, (sgl_dtype)g->indices->dtype, i);
        bool within = row >= 0 && row < g->extent;
        if (g->halves > 0) {
            gather_halves(g, out, i, table, within ? row : -1);
        } else if (within) {
            memcpy(out + i * g->row_bytes, table + row * g->row_bytes, (size_t)g->row_bytes);
        } else {
            memset(out + i * g->row_bytes, 0, (size_t)g->row_bytes);
        }
    }
}

static void run_gather(const sglcpu_launch *launch, const void *plan)
{
    const gather *g = plan;
    gather_job j = { .launch = launch, .plan = g };
    if (g->row_bytes > 0 || g->halves > 0)
        sglcpu_parallel(launch->pool, sglcpu_ceil_div(g->count, g->rows_per_task), gather_task, &j);
}

sgl_status sglcpu_prepare_gather(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    gather *g = sglcpu_plan_alloc(p, 1, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    g->table = sglcpu_operand(p->program, i, 0);
    g->indices = g->table + 1;
    g->result = g->table + 2;
    g->count = sglexec_elements(g->indices);
    g->extent = g->table->dims[0];
    int64_t width = 1;
    for (int d = 1; d < g->table->rank; d++) width *= g->table->dims[d];
    g->row_bytes = sglcore_dtype_bytes((sgl_dtype)g->table->dtype, width);
    g->rows_per_task = sglcpu_max(TASK_BYTES / sglcpu_max(g->row_bytes, 1), 1);
    if (g->table->dtype == SGL_I4 && width % 2 != 0) {
        g->halves = width;
        g->rows_per_task = sglcpu_max(g->count, 1); /* rows share bytes: one task */
    }
    *command = (sglcpu_command){ .run = run_gather, .plan = g };
    return SGL_OK;
}

/* ---- scatter_add ------------------------------------------------------------------------------------------------ */

typedef struct scatter {
    const sglexec_operand *indices, *updates, *result;
    int64_t count, extent, width; /* width: elements of a row */
    int64_t rows, cols;           /* of a task's part; the other way each is whole */
    int64_t tasks, size;
    sglcpu_map_fn add; /* of integers; NULL: floats */
    bool apart;        /* sums are held in the workspace: of narrow floats, of i4 */
} scatter;

enum { RUN = 1024 }; /* elements that are widened at a time */

typedef struct scatter_job {
    const sglcpu_launch *launch;
    const scatter *plan;
} scatter_job;

static void add_row(const scatter_job *j, char *to, const char *row, int64_t count)
{
    int real = sglcpu_held_index((sgl_dtype)j->plan->result->dtype);
    if (real >= 0)
        j->launch->isa->floats[real]->row_add(to, row, count);
    else
        j->plan->add(to, to, row, NULL, count);
}

static void add_held(const scatter_job *j, char *to, const char *updates, int64_t first, int64_t count)
{
    _Alignas(64) char held[RUN * sizeof(float)];
    for (int64_t at = 0; at < count; at += RUN) {
        int64_t run = sglcpu_min(RUN, count - at);
        sglcpu_load_run(j->launch->isa, (sgl_dtype)j->plan->result->dtype, held, updates, first + at, run);
        add_row(j, to + at * j->plan->size, held, run);
    }
}

static void scatter_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const scatter_job *j = context;
    const scatter *s = j->plan;
    bool by_rows = s->rows < s->extent;
    int64_t row_first = by_rows ? task * s->rows : 0, row_last = sglcpu_min(row_first + s->rows, s->extent);
    int64_t col = by_rows ? 0 : task * s->cols, cols = sglcpu_min(s->cols, s->width - col);
    char *out = (s->apart ? j->launch->work : sglcpu_at(j->launch, s->result)) + col * s->size;
    const char *updates = sglcpu_at(j->launch, s->updates);
    const char *indices = sglcpu_at(j->launch, s->indices);
    int64_t pitch = s->width * s->size, bytes = cols * s->size;
    if (by_rows) {
        memset(out + row_first * pitch, 0, (size_t)((row_last - row_first) * pitch));
    } else {
        for (int64_t row = 0; row < s->extent; row++) memset(out + row * pitch, 0, (size_t)bytes);
    }
    for (int64_t i = 0; i < s->count; i++) {
        int64_t row = sglcpu_read_index(indices, (sgl_dtype)s->indices->dtype, i);
        if (row < row_first || row >= row_last) continue;
        char *to = out + row * pitch;
        if (s->apart)
            add_held(j, to, updates, i * s->width + col, cols);
        else
            add_row(j, to, updates + i * pitch + col * s->size, cols);
    }
    if (!s->apart || s->result->dtype == SGL_I4) return;
    for (int64_t row = row_first; row < row_last; row++) {
        sglcpu_store_run(j->launch->isa, (sgl_dtype)s->result->dtype, sglcpu_at(j->launch, s->result),
                         row * s->width + col, out + row * pitch, cols, -1);
    }
}

static void run_scatter(const sglcpu_launch *launch, const void *plan)
{
    const scatter *s = plan;
    scatter_job j = { .launch = launch, .plan = s };
    sglcpu_parallel(launch->pool, s->tasks, scatter_task, &j);
    if (s->result->dtype != SGL_I4) return;
    int64_t whole = s->extent * s->width; /* tasks may share bytes */
    sglcpu_store_run(launch->isa, SGL_I4, sglcpu_at(launch, s->result), 0, launch->work, whole, whole);
}

/* Columns where updates are many, since rows may be hit unevenly; rows where most of the work is to clear them. */
static void cut_scatter(scatter *s)
{
    s->rows = s->extent;
    s->cols = s->width;
    s->tasks = 1;
    if (s->extent * s->width == 0) s->tasks = 0;
    if ((s->extent + s->count) * s->width * s->size < TASK_BYTES) return;
    bool by_columns = s->width >= 2 * LEAST_COLUMNS && s->extent < 4 * s->count;
    if (by_columns) {
        int64_t tasks = sglcpu_min(s->width / LEAST_COLUMNS, SCATTER_TASKS);
        s->cols = sglcpu_round_up(sglcpu_ceil_div(s->width, tasks), 16);
        s->tasks = sglcpu_ceil_div(s->width, s->cols);
    } else {
        s->rows = sglcpu_ceil_div(s->extent, SCATTER_TASKS);
        s->tasks = sglcpu_ceil_div(s->extent, s->rows);
    }
}

sgl_status sglcpu_prepare_scatter(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    scatter *s = sglcpu_plan_alloc(p, 1, sizeof *s);
    if (s == NULL) return SGL_OUT_OF_MEMORY;
    s->indices = sglcpu_operand(p->program, i, 0);
    s->updates = s->indices + 1;
    s->result = s->indices + 2;
    s->count = sglexec_elements(s->indices);
    s->extent = s->result->dims[0];
    s->size = sglcpu_held_size((sgl_dtype)s->result->dtype);
    s->apart = sglcpu_held((sgl_dtype)s->result->dtype) != (sgl_dtype)s->result->dtype;
    s->width = 1;
    for (int d = 1; d < s->result->rank; d++) s->width *= s->result->dims[d];
    s->add = sglcpu_int_map(SGLIR_OP_ADD, (sgl_dtype)s->result->dtype, 0);
    cut_scatter(s);
    *command = (sglcpu_command){ .run = run_scatter, .plan = s };
    return SGL_OK;
}

int64_t sglcpu_scatter_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *result = sglir_type_of(g, node->out_first);
    sgl_dtype dtype = (sgl_dtype)result->dtype;
    return sglcpu_held(dtype) == dtype ? 0 : sglir_elements(result) * sglcpu_held_size(dtype);
}
