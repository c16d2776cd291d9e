/* along.c -- ops along one axis: recurrence, cumulative_sum, argmax, argmin, take_along, add_along; and reduce_prod.
 *
 * In: dense arguments, an axis. Out: commands whose tasks own whole lines, so that a line has one order of operations for any
 * number of threads. Floats are carried in double and rounded once where they are stored, integers wrap there. Odd
 * invariant: neighbouring lines go side by side where the axis is not the last, so that memory is read in runs. */
#include <string.h>

#include "backend/cpu/lines.h"
#include "backend/cpu/tile.h"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

enum { TASK_ELEMENTS = 16 * 1024 };

sglcpu_line_cut sglcpu_cut_lines(const sglcpu_lines *l, int64_t together, bool shared)
{
    sglcpu_line_cut cut = { .cols = sglcpu_min(l->inner, together), .outer = 1 };
    if (l->inner == 0 || l->outer == 0) return (sglcpu_line_cut){ .cols = 1, .outer = 1, .col_tasks = 1 };
    if (cut.cols == l->inner) cut.outer = sglcpu_max(TASK_ELEMENTS / sglcpu_max(l->extent * l->inner, 1), 1);
    if (shared) {
        cut.cols = l->inner;
        cut.outer = l->outer;
    }
    cut.col_tasks = sglcpu_ceil_div(l->inner, cut.cols);
    cut.tasks = sglcpu_ceil_div(l->outer, cut.outer) * cut.col_tasks;
    return cut;
}

void sglcpu_lines_of_task(const sglcpu_lines *l, const sglcpu_line_cut *cut, int64_t task, int64_t *outer,
                          int64_t *outer_end, int64_t *col, int64_t *cols)
{
    *outer = task / cut->col_tasks * cut->outer;
    *outer_end = sglcpu_min(*outer + cut->outer, l->outer);
    *col = task % cut->col_tasks * cut->cols;
    *cols = sglcpu_min(cut->cols, l->inner - *col);
}

void sglcpu_read_carriers(const sglcpu_isa *isa, sgl_dtype dtype, sglcpu_carrier *out, const void *stored,
                          int64_t first, int64_t count)
{
    _Alignas(64) char held[SGLCPU_CARRIED * 8];
    sgl_dtype carrier = sglcpu_held_index(dtype) >= 0 ? SGL_F64 : SGL_I64;
    sglcpu_load_run(isa, dtype, held, stored, first, count);
    sglcpu_cast(dtype, carrier)(out, held, NULL, NULL, count);
}

void sglcpu_write_carriers(const sglcpu_isa *isa, sgl_dtype dtype, void *stored, int64_t first,
                           const sglcpu_carrier *in, int64_t count, int64_t whole)
{
    _Alignas(64) char held[SGLCPU_CARRIED * 8];
    sgl_dtype carrier = sglcpu_held_index(dtype) >= 0 ? SGL_F64 : SGL_I64;
    sglcpu_cast(carrier, dtype)(held, in, NULL, NULL, count);
    sglcpu_store_run(isa, dtype, stored, first, held, count, whole);
}

/* ---- what runs along ---------------------------------------------------------------------------------------------- */

typedef struct along {
    const sglexec_operand *x, *y, *result; /* y: the second argument, where there is one */
    sglir_op op;
    sgl_dtype dtype;
    bool real, reverse, exclusive;
    sglcpu_lines from, to; /* of the argument whose lines are walked, and of the result */
    sglcpu_line_cut cut;
} along;

typedef struct along_job {
    const sglcpu_launch *launch;
    const along *plan;
} along_job;

/* The running numbers of the lines in hand, and what of a step goes into them. */
typedef struct running {
    sglcpu_carrier state[SGLCPU_CARRIED], x[SGLCPU_CARRIED], y[SGLCPU_CARRIED], out[SGLCPU_CARRIED];
} running;

/* state = x state + y, in lines side by side; the first step takes y alone. */
static void step_recurrence(const along *p, running *r, int64_t count, bool first)
{
    if (first) {
        memcpy(r->state, r->y, (size_t)count * sizeof r->y[0]);
    } else if (p->real) {
        for (int64_t c = 0; c < count; c++) r->state[c].real = r->x[c].real * r->state[c].real + r->y[c].real;
    } else {
        for (int64_t c = 0; c < count; c++) {
            uint64_t product = (uint64_t)r->x[c].integer * (uint64_t)r->state[c].integer;
            r->state[c].integer = (int64_t)(product + (uint64_t)r->y[c].integer);
        }
    }
    memcpy(r->out, r->state, (size_t)count * sizeof r->out[0]);
}

/* state += x; what is given is the sum with x, or without. */
static void step_sum(const along *p, running *r, int64_t count, bool first)
{
    size_t bytes = (size_t)count * sizeof r->state[0];
    if (p->exclusive && first) memset(r->out, 0, bytes); /* 0.0 has the same bits */
    if (p->exclusive && !first) memcpy(r->out, r->state, bytes);
    if (first) {
        memcpy(r->state, r->x, bytes);
    } else if (p->real) {
        for (int64_t c = 0; c < count; c++) r->state[c].real += r->x[c].real;
    } else {
        for (int64_t c = 0; c < count; c++)
            r->state[c].integer = (int64_t)((uint64_t)r->state[c].integer + (uint64_t)r->x[c].integer);
    }
    if (!p->exclusive) memcpy(r->out, r->state, bytes);
}

static void step_of(const along *p, running *r, int64_t count, bool first)
{
    if (p->op == SGLIR_OP_RECURRENCE)
        step_recurrence(p, r, count, first);
    else
        step_sum(p, r, count, first);
}

static void read_step(const along_job *j, running *r, int64_t first, int64_t count)
{
    const along *p = j->plan;
    sglcpu_read_carriers(j->launch->isa, p->dtype, r->x, sglcpu_at(j->launch, p->x), first, count);
    if (p->y != NULL) sglcpu_read_carriers(j->launch->isa, p->dtype, r->y, sglcpu_at(j->launch, p->y), first, count);
}

static void write_step(const along_job *j, const running *r, int64_t first, int64_t count)
{
    const along *p = j->plan;
    sglcpu_write_carriers(j->launch->isa, p->dtype, sglcpu_at(j->launch, p->result), first, r->out, count,
                          p->to.outer * p->to.extent * p->to.inner);
}

/* Lines side by side, a step of all of them at a time. */
static void run_down(const along_job *j, running *r, int64_t outer, int64_t col, int64_t cols)
{
    const sglcpu_lines *l = &j->plan->from;
    for (int64_t i = 0; i < l->extent; i++) {
        int64_t at = (outer * l->extent + (j->plan->reverse ? l->extent - 1 - i : i)) * l->inner + col;
        read_step(j, r, at, cols);
        step_of(j->plan, r, cols, i == 0);
        write_step(j, r, at, cols);
    }
}

/* One line whose elements are neighbours, a run of it at a time. */
static void run_line(const along_job *j, running *r, int64_t outer)
{
    const along *p = j->plan;
    int64_t extent = p->from.extent, start = outer * extent;
    for (int64_t done = 0; done < extent; done += SGLCPU_CARRIED) {
        int64_t count = sglcpu_min(SGLCPU_CARRIED, extent - done);
        int64_t first = p->reverse ? extent - done - count : done;
        running one;
        one.state[0] = r->state[0];
        read_step(j, r, start + first, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t at = p->reverse ? count - 1 - i : i;
            one.x[0] = r->x[at];
            one.y[0] = r->y[at];
            step_of(p, &one, 1, done + i == 0);
            r->out[at] = one.out[0];
        }
        r->state[0] = one.state[0];
        write_step(j, r, start + first, count);
    }
}

static void along_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const along_job *j = context;
    const along *p = j->plan;
    int64_t outer, outer_end, col, cols;
    running r;
    memset(&r, 0, sizeof r);
    sglcpu_lines_of_task(&p->from, &p->cut, task, &outer, &outer_end, &col, &cols);
    for (; outer < outer_end; outer++) {
        for (int64_t c = col; c < col + cols; c += SGLCPU_CARRIED) {
            if (p->from.inner == 1)
                run_line(j, &r, outer);
            else
                run_down(j, &r, outer, c, sglcpu_min(SGLCPU_CARRIED, col + cols - c));
        }
    }
}

/* ---- where the extreme stands --------------------------------------------------------------------------------------- */

/* Whether x takes the place of the one held: the first of ties stays, and the first NaN. */
static bool beats(const along *p, sglcpu_carrier x, sglcpu_carrier held)
{
    bool largest = p->op == SGLIR_OP_ARGMAX;
    if (!p->real) return largest ? x.integer > held.integer : x.integer < held.integer;
    if (x.real != x.real) return held.real == held.real;
    return largest ? x.real > held.real : x.real < held.real;
}

static void arg_line(const along_job *j, running *r, int64_t outer, int64_t col, int64_t cols)
{
    const along *p = j->plan;
    const sglcpu_lines *l = &p->from;
    const char *x = sglcpu_at(j->launch, p->x);
    int64_t *out = (int64_t *)(void *)sglcpu_at(j->launch, p->result) + outer * l->inner + col;
    bool line = l->inner == 1;
    for (int64_t c = 0; c < cols; c++) out[c] = -1;
    for (int64_t i = 0; i < l->extent; i += line ? SGLCPU_CARRIED : 1) {
        int64_t count = line ? sglcpu_min(SGLCPU_CARRIED, l->extent - i) : cols;
        sglcpu_read_carriers(j->launch->isa, p->dtype, r->x, x, (outer * l->extent + i) * l->inner + col, count);
        for (int64_t c = 0; c < count; c++) {
            int64_t to = line ? 0 : c;
            if (out[to] >= 0 && !beats(p, r->x[c], r->state[to])) continue;
            r->state[to] = r->x[c];
            out[to] = line ? i + c : i;
        }
    }
}

static void arg_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const along_job *j = context;
    int64_t outer, outer_end, col, cols;
    running r;
    sglcpu_lines_of_task(&j->plan->from, &j->plan->cut, task, &outer, &outer_end, &col, &cols);
    for (; outer < outer_end; outer++) {
        for (int64_t c = col; c < col + cols; c += SGLCPU_CARRIED)
            arg_line(j, &r, outer, c, sglcpu_min(SGLCPU_CARRIED, col + cols - c));
    }
}

/* ---- by index ------------------------------------------------------------------------------------------------------ */

static void take_task(void *context, int64_t task, int worker)
{
    (void)worker;
    static const uint64_t zero = 0;
    const along_job *j = context;
    const along *p = j->plan;
    const sglcpu_lines *from = &p->from, *to = &p->to;
    const char *x = sglcpu_at(j->launch, p->x), *indices = sglcpu_at(j->launch, p->y);
    char *out = sglcpu_at(j->launch, p->result);
    int64_t outer, outer_end, col, cols, whole = to->outer * to->extent * to->inner;
    int bits = sglcore_dtype_bits(p->dtype);
    sglcpu_lines_of_task(to, &p->cut, task, &outer, &outer_end, &col, &cols);
    for (; outer < outer_end; outer++) {
        for (int64_t i = 0; i < to->extent; i++) {
            for (int64_t c = col; c < col + cols; c++) {
                int64_t at = (outer * to->extent + i) * to->inner + c;
                int64_t index = sglcpu_read_index(indices, (sgl_dtype)p->y->dtype, at);
                bool within = index >= 0 && index < from->extent;
                int64_t source = within ? (outer * from->extent + index) * from->inner + c : 0;
                sglcpu_move_element(out, at, within ? x : (const char *)&zero, source, bits, whole);
            }
        }
    }
}

/* Sums of the lines in hand stand in scratch, [extent of the result, cols]. */
static void add_task(void *context, int64_t task, int worker)
{
    const along_job *j = context;
    const along *p = j->plan;
    const sglcpu_lines *from = &p->from, *to = &p->to;
    const char *indices = sglcpu_at(j->launch, p->x), *updates = sglcpu_at(j->launch, p->y);
    sglcpu_carrier *sums = (sglcpu_carrier *)(void *)sglcpu_scratch(j->launch, worker), added[SGLCPU_CARRIED];
    int64_t outer, outer_end, first, all, whole = to->outer * to->extent * to->inner;
    sglcpu_lines_of_task(to, &p->cut, task, &outer, &outer_end, &first, &all);
    for (; outer < outer_end; outer++) {
        for (int64_t col = first; col < first + all; col += SGLCPU_CARRIED) {
            int64_t cols = sglcpu_min(SGLCPU_CARRIED, first + all - col);
            memset(sums, 0, (size_t)(to->extent * cols) * sizeof *sums);
            for (int64_t i = 0; i < from->extent; i++) {
                int64_t at = (outer * from->extent + i) * from->inner + col;
                sglcpu_read_carriers(j->launch->isa, p->dtype, added, updates, at, cols);
                for (int64_t c = 0; c < cols; c++) {
                    int64_t index = sglcpu_read_index(indices, (sgl_dtype)p->x->dtype, at + c);
                    if (index < 0 || index >= to->extent) continue;
                    sglcpu_carrier *sum = &sums[index * cols + c];
                    if (p->real)
                        sum->real += added[c].real;
                    else
                        sum->integer = (int64_t)((uint64_t)sum->integer + (uint64_t)added[c].integer);
                }
            }
            for (int64_t i = 0; i < to->extent; i++)
                sglcpu_write_carriers(j->launch->isa, p->dtype, sglcpu_at(j->launch, p->result),
                                      (outer * to->extent + i) * to->inner + col, sums + i * cols, cols, whole);
        }
    }
}

/* ---- the commands --------------------------------------------------------------------------------------------------- */

static void run_along(const sglcpu_launch *launch, const void *plan)
{
    const along *p = plan;
    along_job j = { .launch = launch, .plan = p };
    sglcpu_task task = along_task;
    if (p->op == SGLIR_OP_ARGMAX || p->op == SGLIR_OP_ARGMIN) task = arg_task;
    if (p->op == SGLIR_OP_TAKE_ALONG) task = take_task;
    if (p->op == SGLIR_OP_ADD_ALONG) task = add_task;
    sglcpu_parallel(launch->pool, p->cut.tasks, task, &j);
}

sgl_status sglcpu_prepare_along(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    along *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    int64_t axis = sglexec_attr_int(p->program, i, "axis");
    plan->op = (sglir_op)i->op;
    plan->x = sglcpu_operand(p->program, i, 0);
    plan->y = i->arg_count > 1 ? plan->x + 1 : NULL;
    plan->result = plan->x + i->arg_count;
    plan->dtype = (sgl_dtype)(plan->op == SGLIR_OP_ADD_ALONG ? plan->y : plan->x)->dtype;
    plan->real = sglcpu_held_index(plan->dtype) >= 0;
    plan->from = sglcpu_lines_of(plan->x, axis);
    plan->to = plan->from;
    const sglcpu_lines *walked = &plan->from;
    bool indexed = plan->op == SGLIR_OP_TAKE_ALONG || plan->op == SGLIR_OP_ADD_ALONG;
    if (indexed) {
        plan->to = sglcpu_lines_of(plan->result, axis);
        walked = &plan->to;
    }
    if (plan->op == SGLIR_OP_RECURRENCE || plan->op == SGLIR_OP_CUMULATIVE_SUM)
        plan->reverse = sglexec_attr_int(p->program, i, "reverse") != 0;
    if (plan->op == SGLIR_OP_CUMULATIVE_SUM) plan->exclusive = sglexec_attr_int(p->program, i, "exclusive") != 0;
    plan->cut = sglcpu_cut_lines(walked, SGLCPU_CARRIED, plan->result->dtype == SGL_I4);
    if (plan->op == SGLIR_OP_ADD_ALONG)
        sglcpu_need_scratch(p, plan->to.extent * sglcpu_min(plan->to.inner, SGLCPU_CARRIED) *
                                   (int64_t)sizeof(sglcpu_carrier));
    *command = (sglcpu_command){ .run = run_along, .plan = plan };
    return SGL_OK;
}

/* ---- products over axes ---------------------------------------------------------------------------------------------- */

typedef struct prod {
    const sglexec_operand *x, *result;
    sgl_dtype dtype;
    sglcpu_path path; /* a row is what one product goes over */
    int64_t rows, cols, rows_per_task;
} prod;

typedef struct prod_job {
    const sglcpu_launch *launch;
    const prod *plan;
} prod_job;

static sglcpu_carrier product_of(const prod_job *j, int64_t row)
{
    const prod *p = j->plan;
    bool real = sglcpu_held_index(p->dtype) >= 0;
    sglcpu_carrier product = { .integer = 1 }, x[SGLCPU_CARRIED];
    _Alignas(64) char held[SGLCPU_CARRIED * 8], stage[SGLCPU_CARRIED * 2];
    if (real) product.real = 1;
    for (int64_t col = 0; col < p->cols; col += SGLCPU_CARRIED) {
        sglcpu_block block = { .row = row, .rows = 1, .col = col, .cols = sglcpu_min(SGLCPU_CARRIED, p->cols - col) };
        sglcpu_block_load(j->launch->isa, p->dtype, &p->path, sglcpu_at(j->launch, p->x), &block, held, 0, stage);
        sglcpu_cast(p->dtype, real ? SGL_F64 : SGL_I64)(x, held, NULL, NULL, block.cols);
        for (int64_t c = 0; c < block.cols; c++) {
            if (real)
                product.real *= x[c].real;
            else
                product.integer = (int64_t)((uint64_t)product.integer * (uint64_t)x[c].integer);
        }
    }
    return product;
}

static void prod_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const prod_job *j = context;
    const prod *p = j->plan;
    int64_t last = sglcpu_min((task + 1) * p->rows_per_task, p->rows);
    for (int64_t row = task * p->rows_per_task; row < last; row++) {
        sglcpu_carrier product = product_of(j, row);
        sglcpu_write_carriers(j->launch->isa, p->dtype, sglcpu_at(j->launch, p->result), row, &product, 1, p->rows);
    }
}

static void run_prod(const sglcpu_launch *launch, const void *plan)
{
    const prod *p = plan;
    prod_job j = { .launch = launch, .plan = p };
    sglcpu_parallel(launch->pool, sglcpu_ceil_div(p->rows, p->rows_per_task), prod_task, &j);
}

sgl_status sglcpu_prepare_prod(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    prod *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    int count, at = 0;
    const int64_t *axes = sglexec_attr_ints(p->program, i, "axes", &count);
    const sglexec_operand *x = plan->x = sglcpu_operand(p->program, i, 0);
    plan->result = x + 1;
    plan->dtype = (sgl_dtype)x->dtype;
    unsigned reduced = 0;
    for (int a = 0; a < count; a++) reduced |= 1u << axes[a];
    sglexec_map map = { 0 };
    int64_t dims[SGL_MAX_RANK];
    for (int pass = 0; pass < 2; pass++) { /* kept dims first */
        int64_t stride = sglexec_elements(x);
        for (int d = 0; d < x->rank; d++) {
            stride = x->dims[d] > 0 ? stride / x->dims[d] : 0;
            if ((int)(reduced >> d & 1) != pass) continue;
            map.strides[at] = stride;
            dims[at++] = x->dims[d];
        }
    }
    plan->path = sglcpu_path_of(&map, x->rank, count, dims);
    plan->rows = plan->cols = 1;
    for (int d = 0; d < x->rank; d++) *(d < x->rank - count ? &plan->rows : &plan->cols) *= dims[d];
    plan->rows_per_task = sglcpu_max(TASK_ELEMENTS / sglcpu_max(plan->cols, 1), 1);
    if (plan->dtype == SGL_I4) plan->rows_per_task = sglcpu_max(plan->rows, 1);
    *command = (sglcpu_command){ .run = run_prod, .plan = plan };
    return SGL_OK;
}
