/* rope.c -- rotary positions: pairs (i, i + d/2) of each head turned by an angle that grows with the position.
 *
 * In: x [b, t, h, d] and the position of its first row, or of every row. Out: the same shape. Where the position is a
 * constant of the program the cosines and sines of all rows are made once, when the program is prepared, and shared by all
 * ropes of one shape; so are those of positions 0 .. t - 1 where every row has its own, as in packed documents. For any other
 * position (a decode step) each task makes those of its rows in its scratch. Angles are taken in double. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"

enum { TASK_BYTES = 64 * 1024 };

/* Of one first position: per row `half` cosines, then `half` sines. */
struct sglcpu_rope_table {
    struct sglcpu_rope_table *next;
    const double *rates; /* `half` of them */
    bool inverse;
    int64_t position, rows, half;
    int real;
    char *numbers;
};

typedef struct rope {
    const sglexec_operand *x, *positions, *result; /* positions: i64 [] of the first row, or i32 [b, t] */
    double *rates;                                 /* radians per position, of each pair */
    bool inverse, each;                            /* each: every row has a position of its own */
    int real;                                      /* 0 f32, 1 f64 */
    int64_t size, batch, rows, heads, half;        /* size: of a held element */
    int64_t rows_per_task, tasks_per_batch;
    const char *table; /* of positions table_first .. table_first + rows - 1, or NULL */
    int64_t table_first;
} rope;

typedef struct rope_job {
    const sglcpu_launch *launch;
    const rope *plan;
} rope_job;

/* half cosines and half sines of the angles at one position */
static void fill_row(char *out, int real, const double *rates, bool inverse, int64_t position, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        double angle = (double)position * rates[i];
        double cosine = cos(angle), sine = inverse ? -sin(angle) : sin(angle);
        if (real) {
            ((double *)(void *)out)[i] = cosine;
            ((double *)(void *)out)[half + i] = sine;
        } else {
            ((float *)(void *)out)[i] = (float)cosine;
            ((float *)(void *)out)[half + i] = (float)sine;
        }
    }
}

/* Cosines and sines of a row at this position: those of the table, or made. */
static const char *angles_of(const rope *r, int64_t position, int64_t row_bytes, char *made)
{
    int64_t row = position - r->table_first;
    if (r->table && row >= 0 && row < r->rows) return r->table + row * row_bytes;
    fill_row(made, r->real, r->rates, r->inverse, position, r->half);
    return made;
}

static void rope_task(void *context, int64_t task, int worker)
{
    const rope_job *j = context;
    const rope *r = j->plan;
    int64_t batch = task / r->tasks_per_batch, first = task % r->tasks_per_batch * r->rows_per_task;
    int64_t last = sglcpu_min(first + r->rows_per_task, r->rows), row_bytes = 2 * r->half * r->size;
    const char *positions = sglcpu_at(j->launch, r->positions);
    const char *x = sglcpu_at(j->launch, r->x);
    char *out = sglcpu_at(j->launch, r->result), *made = sglcpu_scratch(j->launch, worker), *held = made + row_bytes;
    sgl_dtype dtype = (sgl_dtype)r->x->dtype;
    const sglcpu_isa *isa = j->launch->isa;
    for (int64_t t = first; t < last; t++) {
        int64_t position = r->each ? ((const int32_t *)(const void *)positions)[batch * r->rows + t]
                                   : *(const int64_t *)(const void *)positions + t;
        const char *angles = angles_of(r, position, row_bytes, made);
        for (int64_t h = 0; h < r->heads; h++) {
            int64_t at = ((batch * r->rows + t) * r->heads + h) * 2 * r->half;
            if (sglcpu_is_narrow(dtype)) {
                sglcpu_load_run(isa, dtype, held, x, at, 2 * r->half);
                isa->floats[r->real]->row_turn(held, held, angles, angles + row_bytes / 2, r->half);
                sglcpu_store_run(isa, dtype, out, at, held, 2 * r->half, -1);
            } else {
                isa->floats[r->real]->row_turn(out + at * r->size, x + at * r->size, angles, angles + row_bytes / 2,
                                               r->half);
            }
        }
    }
}

static void run_rope(const sglcpu_launch *launch, const void *plan)
{
    const rope *r = plan;
    rope_job j = { launch, r };
    if (r->half > 0 && r->heads > 0) sglcpu_parallel(launch->pool, r->batch * r->tasks_per_batch, rope_task, &j);
}

/* The table of this shape, made when no earlier rope of the program made it. */
static const char *table_of(sglcpu_prepare *p, const rope *r, int64_t position)
{
    for (struct sglcpu_rope_table *t = p->rope_tables; t; t = t->next)
        if (t->inverse == r->inverse && t->position == position && t->rows == r->rows && t->half == r->half &&
            t->real == r->real && memcmp(t->rates, r->rates, (size_t)r->half * sizeof *r->rates) == 0)
            return t->numbers;
    struct sglcpu_rope_table *made = sglcpu_plan_alloc(p, 1, sizeof *made);
    char *numbers = sglcpu_plan_alloc(p, r->rows * 2 * r->half, r->size);
    if (!made || !numbers) return NULL;
    for (int64_t t = 0; t < r->rows; t++)
        fill_row(numbers + t * 2 * r->half * r->size, r->real, r->rates, r->inverse, position + t, r->half);
    *made = (struct sglcpu_rope_table){ p->rope_tables, r->rates, r->inverse, position,
                                        r->rows,        r->half,  r->real,    numbers };
    p->rope_tables = made;
    return numbers;
}

/* theta^(-2i/d), or the frequencies that are given. */
static bool make_rates(sglcpu_prepare *p, const sglexec_instruction *i, rope *r)
{
    double theta = sglexec_attr_float(p->program, i, "theta");
    int count;
    const double *given = sglexec_attr_floats(p->program, i, "frequencies", &count);
    r->rates = sglcpu_plan_alloc(p, r->half, sizeof *r->rates);
    if (!r->rates) return false;
    for (int64_t k = 0; k < r->half; k++) r->rates[k] = count ? given[k] : pow(theta, -(double)k / (double)r->half);
    return true;
}

sgl_status sglcpu_prepare_rope(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    rope *r = sglcpu_plan_alloc(p, 1, sizeof *r);
    if (!r) return SGL_OUT_OF_MEMORY;
    r->x = sglcpu_operand(p->program, i, 0);
    r->positions = r->x + 1;
    r->result = r->x + 2;
    r->each = r->positions->rank == 2;
    r->inverse = sglexec_attr_int(p->program, i, "inverse") != 0;
    r->real = sglcpu_held_index((sgl_dtype)r->x->dtype);
    r->size = sglcpu_held_size((sgl_dtype)r->x->dtype);
    r->batch = r->x->dims[0];
    r->rows = r->x->dims[1];
    r->heads = r->x->dims[2];
    r->half = r->x->dims[3] / 2;
    r->rows_per_task = sglcpu_max(TASK_BYTES / sglcpu_max(r->heads * 2 * r->half * r->size, 1), 1);
    r->tasks_per_batch = sglcpu_ceil_div(r->rows, r->rows_per_task);
    if (!make_rates(p, i, r)) return SGL_OUT_OF_MEMORY;
    bool constant = r->positions->space == SGLIR_SPACE_CONST;
    if (constant && !r->each)
        memcpy(&r->table_first, p->program->constants.data + r->positions->offset, sizeof r->table_first);
    if (constant || r->each) {
        r->table = table_of(p, r, r->table_first);
        if (!r->table) return SGL_OUT_OF_MEMORY;
    }
    sglcpu_need_scratch(p, 4 * r->half * r->size); /* angles, and a row that is held otherwise than stored */
    *command = (sglcpu_command){ .run = run_rope, .plan = r };
    return SGL_OK;
}
