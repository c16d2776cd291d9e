/* gather.c -- rows by index: gather, and scatter_add, its transpose.
 *
 * In: a table or updates, and indices of any integer dtype; an index outside the table reads zeros and adds nothing.
 * Out: rows. Scatter gives each task a part of the result, rows or columns, and lets it go through all updates in order,
 * so that the sum in each row has one order. Odd invariant: a task of scatter_add touches nothing outside its part. */
#include <string.h>

#include "backend/cpu/cpu.h"

enum { TASK_BYTES = 64 * 1024, SCATTER_TASKS = 32, LEAST_COLUMNS = 64 };

/* ---- gather ----------------------------------------------------------------------------------------------------- */

typedef struct gather {
    const sglexec_operand *table, *indices, *result;
    int64_t count, extent, row_bytes, rows_per_task;
} gather;

typedef struct gather_job {
    const sglcpu_launch *launch;
    const gather *plan;
} gather_job;

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
        if (row >= 0 && row < g->extent) {
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
    if (g->row_bytes > 0) sglcpu_parallel(launch->pool, sglcpu_ceil_div(g->count, g->rows_per_task), gather_task, &j);
}

sgl_status sglcpu_prepare_gather(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    gather *g = sglcpu_plan_alloc(p, 1, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    g->table = sglcpu_operand(p->program, i, 0);
    g->indices = g->table + 1;
    g->result = g->table + 2;
    g->count = sglcpu_elements(g->indices);
    g->extent = g->table->dims[0];
    g->row_bytes = sglcpu_size((sgl_dtype)g->table->dtype);
    for (int d = 1; d < g->table->rank; d++) g->row_bytes *= g->table->dims[d];
    g->rows_per_task = sglcpu_max(TASK_BYTES / sglcpu_max(g->row_bytes, 1), 1);
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
} scatter;

typedef struct scatter_job {
    const sglcpu_launch *launch;
    const scatter *plan;
} scatter_job;

static void scatter_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const scatter_job *j = context;
    const scatter *s = j->plan;
    bool by_rows = s->rows < s->extent;
    int64_t row_first = by_rows ? task * s->rows : 0, row_last = sglcpu_min(row_first + s->rows, s->extent);
    int64_t col = by_rows ? 0 : task * s->cols, cols = sglcpu_min(s->cols, s->width - col);
    char *out = sglcpu_at(j->launch, s->result) + col * s->size;
    const char *updates = sglcpu_at(j->launch, s->updates) + col * s->size;
    const char *indices = sglcpu_at(j->launch, s->indices);
    int64_t pitch = s->width * s->size, bytes = cols * s->size;
    if (by_rows) {
        memset(out + row_first * pitch, 0, (size_t)((row_last - row_first) * pitch));
    } else {
        for (int64_t row = 0; row < s->extent; row++) memset(out + row * pitch, 0, (size_t)bytes);
    }
    int real = sglcpu_float_index((sgl_dtype)s->result->dtype);
    for (int64_t i = 0; i < s->count; i++) {
        int64_t row = sglcpu_read_index(indices, (sgl_dtype)s->indices->dtype, i);
        if (row < row_first || row >= row_last) continue;
        char *to = out + row * pitch;
        if (real >= 0)
            j->launch->isa->floats[real]->row_add(to, updates + i * pitch, cols);
        else
            s->add(to, to, updates + i * pitch, NULL, cols);
    }
}

static void run_scatter(const sglcpu_launch *launch, const void *plan)
{
    const scatter *s = plan;
    scatter_job j = { .launch = launch, .plan = s };
    sglcpu_parallel(launch->pool, s->tasks, scatter_task, &j);
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
    s->count = sglcpu_elements(s->indices);
    s->extent = s->result->dims[0];
    s->size = sglcpu_size((sgl_dtype)s->result->dtype);
    s->width = 1;
    for (int d = 1; d < s->result->rank; d++) s->width *= s->result->dims[d];
    s->add = sglcpu_int_map(SGLIR_OP_ADD, (sgl_dtype)s->result->dtype, 0);
    cut_scatter(s);
    *command = (sglcpu_command){ .run = run_scatter, .plan = s };
    return SGL_OK;
}
