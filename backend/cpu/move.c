/* move.c -- bytes from place to place: copy, concat, pack, unpack, pad, slices and updates at a run-time position.
 *
 * In: instructions whose arguments and results are dense. Out: commands made of copies: runs of bytes, evenly apart on
 * either side, cut into tasks of some 64 KiB. Elements of 4 bits are counted first, and taken as bytes where every number
 * is even. Odd invariant: source and target are the same place or do not overlap; the
 * first costs nothing. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/tile.h"

enum { TASK_BYTES = 64 * 1024 };

/* `runs` runs of `run_bytes`, from_pitch and to_pitch bytes apart. */
typedef struct copy {
    const sglexec_operand *from, *to;
    int64_t from_offset, to_offset; /* bytes */
    int64_t runs, run_bytes, from_pitch, to_pitch;
    int64_t first_task, tasks, runs_per_task, pieces_per_run;
} copy;

typedef struct copies {
    copy *data;
    int64_t count, tasks;
    bool halves; /* of i4 that does not lie in whole bytes: every number above counts elements, and one task does all */
} copies;

static void cut_copy(copy *c, int64_t *first_task)
{
    c->pieces_per_run = sglcpu_max(sglcpu_ceil_div(c->run_bytes, TASK_BYTES), 1);
    c->runs_per_task = c->pieces_per_run > 1 ? 1 : sglcpu_max(TASK_BYTES / sglcpu_max(c->run_bytes, 1), 1);
    c->tasks = sglcpu_ceil_div(c->runs, c->runs_per_task) * c->pieces_per_run;
    if (c->run_bytes == 0) c->tasks = 0;
    c->first_task = *first_task;
    *first_task += c->tasks;
}

typedef struct job {
    const sglcpu_launch *launch;
    const copies *copies;
    int64_t from_shift, to_shift; /* bytes, known at launch */
} job;

static void copy_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const job *j = context;
    int64_t low = 0, high = j->copies->count - 1;
    while (low < high) { /* the last copy that begins at or before the task */
        int64_t middle = (low + high + 1) / 2;
        if (j->copies->data[middle].first_task <= task)
            low = middle;
        else
            high = middle - 1;
    }
    const copy *c = &j->copies->data[low];
    task -= c->first_task;
    int64_t piece = task % c->pieces_per_run, first = task / c->pieces_per_run * c->runs_per_task;
    int64_t last = sglcpu_min(first + c->runs_per_task, c->runs), start = piece * TASK_BYTES;
    int64_t bytes = c->pieces_per_run > 1 ? sglcpu_min(TASK_BYTES, c->run_bytes - start) : c->run_bytes;
    const char *from = sglcpu_at(j->launch, c->from) + c->from_offset + j->from_shift + start;
    char *to = sglcpu_at(j->launch, c->to) + c->to_offset + j->to_shift + start;
    if (from == to) return;
    for (int64_t run = first; run < last; run++) {
        memcpy(to + run * c->to_pitch, from + run * c->from_pitch, (size_t)bytes);
    }
}

static void copy_halves(const job *j)
{
    for (int64_t i = 0; i < j->copies->count; i++) {
        const copy *c = &j->copies->data[i];
        const char *from = sglcpu_at(j->launch, c->from);
        char *to = sglcpu_at(j->launch, c->to);
        int64_t whole = sglexec_elements(c->to), first = c->from_offset + j->from_shift;
        for (int64_t run = 0; from != to && run < c->runs; run++) {
            sglcpu_move_nibbles(to, c->to_offset + j->to_shift + run * c->to_pitch, from, first + run * c->from_pitch,
                                c->run_bytes, whole);
        }
    }
}

static void run_copies(const sglcpu_launch *launch, const copies *c, int64_t from_shift, int64_t to_shift)
{
    job j = { .launch = launch, .copies = c, .from_shift = from_shift, .to_shift = to_shift };
    if (c->halves) {
        if (c->tasks > 0) copy_halves(&j);
    } else {
        sglcpu_parallel(launch->pool, c->tasks, copy_task, &j);
    }
}

static void run_plain(const sglcpu_launch *launch, const void *plan) { run_copies(launch, plan, 0, 0); }

static copies *new_copies(sglcpu_prepare *p, int64_t count)
{
    copies *c = sglcpu_plan_alloc(p, 1, sizeof *c);
    if (c == NULL) return NULL;
    c->count = count;
    c->data = sglcpu_plan_alloc(p, count, sizeof *c->data);
    return c->data == NULL ? NULL : c;
}

/* Elements of i4 as bytes, where `step`, the least that a run is shifted by, and all the rest is even. */
static void join_halves(copies *c, int64_t step)
{
    int64_t odd = step;
    for (int64_t i = 0; i < c->count; i++) {
        const copy *at = &c->data[i];
        odd |= at->from_offset | at->to_offset | at->run_bytes;
        if (at->runs > 1) odd |= at->from_pitch | at->to_pitch;
    }
    c->halves = odd % 2 != 0;
    for (int64_t i = 0; !c->halves && i < c->count; i++) {
        copy *at = &c->data[i];
        at->from_offset /= 2, at->to_offset /= 2, at->run_bytes /= 2;
        at->from_pitch /= 2, at->to_pitch /= 2;
    }
}

static void cut_copies(copies *c, int64_t step)
{
    if (c->count > 0 && c->data[0].from->dtype == SGL_I4) join_halves(c, step);
    for (int64_t i = 0; i < c->count; i++) cut_copy(&c->data[i], &c->tasks);
}

/* What runs and pitches count: bytes, of i4 elements. */
static int64_t unit_of(const sglexec_operand *o) { return o->dtype == SGL_I4 ? 1 : sglcpu_size((sgl_dtype)o->dtype); }

static int64_t bytes_of(const sglexec_operand *o) { return sglexec_elements(o) * unit_of(o); }

/* Elements before `axis` as a count of runs, and bytes of all behind it. */
static int64_t outer_of(const sglexec_operand *o, int64_t axis)
{
    int64_t outer = 1;
    for (int d = 0; d < axis; d++) outer *= o->dims[d];
    return outer;
}

static int64_t inner_bytes_of(const sglexec_operand *o, int64_t axis)
{
    int64_t bytes = unit_of(o);
    for (int d = (int)axis + 1; d < o->rank; d++) bytes *= o->dims[d];
    return bytes;
}

/* ---- whole arguments ------------------------------------------------------------------------------------------ */

sgl_status sglcpu_prepare_copy(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    copies *c = new_copies(p, 1);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *x = sglcpu_operand(p->program, i, 0);
    c->data[0] = (copy){ .from = x, .to = x + 1, .runs = 1, .run_bytes = bytes_of(x) };
    cut_copies(c, 0);
    *command = (sglcpu_command){ .run = run_plain, .plan = c };
    return SGL_OK;
}

sgl_status sglcpu_prepare_concat(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    copies *c = new_copies(p, i->arg_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    int64_t axis = sglexec_attr_int(p->program, i, "axis"), at = 0;
    const sglexec_operand *result = sglcpu_operand(p->program, i, i->arg_count);
    int64_t pitch = inner_bytes_of(result, axis) * result->dims[axis];
    for (uint32_t a = 0; a < i->arg_count; a++) {
        const sglexec_operand *x = sglcpu_operand(p->program, i, a);
        int64_t run = inner_bytes_of(x, axis) * x->dims[axis];
        c->data[a] = (copy){ .from = x,
                             .to = result,
                             .to_offset = at,
                             .runs = outer_of(x, axis),
                             .run_bytes = run,
                             .from_pitch = run,
                             .to_pitch = pitch };
        at += run;
    }
    cut_copies(c, 0);
    *command = (sglcpu_command){ .run = run_plain, .plan = c };
    return SGL_OK;
}

sgl_status sglcpu_prepare_pack(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    copies *c = new_copies(p, i->arg_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *result = sglcpu_operand(p->program, i, i->arg_count);
    int64_t at = 0;
    for (uint32_t a = 0; a < i->arg_count; a++) {
        const sglexec_operand *x = sglcpu_operand(p->program, i, a);
        c->data[a] = (copy){ .from = x, .to = result, .to_offset = at, .runs = 1, .run_bytes = bytes_of(x) };
        at += bytes_of(x);
    }
    cut_copies(c, 0);
    *command = (sglcpu_command){ .run = run_plain, .plan = c };
    return SGL_OK;
}

static void run_nothing(const sglcpu_launch *launch, const void *plan) { (void)launch, (void)plan; }

/* A move has ended when its launch returns. */
sgl_status sglcpu_prepare_arrived(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    (void)p, (void)i;
    *command = (sglcpu_command){ .run = run_nothing };
    return SGL_OK;
}

sgl_status sglcpu_prepare_unpack(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    copies *c = new_copies(p, i->result_count);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *x = sglcpu_operand(p->program, i, 0);
    int64_t at = 0;
    for (uint32_t r = 0; r < i->result_count; r++) {
        const sglexec_operand *result = sglcpu_operand(p->program, i, 1 + r);
        c->data[r] = (copy){ .from = x, .to = result, .from_offset = at, .runs = 1, .run_bytes = bytes_of(result) };
        at += bytes_of(result);
    }
    cut_copies(c, 0);
    *command = (sglcpu_command){ .run = run_plain, .plan = c };
    return SGL_OK;
}

/* ---- at a run-time position ------------------------------------------------------------------------------------- */

typedef struct dynamic {
    copies *whole; /* of an update: x where the result is not in its place; else none */
    copies *window;
    const sglexec_operand *start;
    int64_t last_start; /* the largest that leaves room */
    int64_t step_bytes; /* from one position along the axis to the next */
    bool is_update;
} dynamic;

static void run_dynamic(const sglcpu_launch *launch, const void *plan)
{
    const dynamic *d = plan;
    int64_t start = *(const int64_t *)(const void *)sglcpu_at(launch, d->start);
    int64_t shift = sglcpu_max(sglcpu_min(start, d->last_start), 0) * d->step_bytes;
    if (d->is_update) run_copies(launch, d->whole, 0, 0);
    run_copies(launch, d->window, d->is_update ? 0 : shift, d->is_update ? shift : 0);
}

sgl_status sglcpu_prepare_dynamic(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    dynamic *d = sglcpu_plan_alloc(p, 1, sizeof *d);
    if (d == NULL) return SGL_OUT_OF_MEMORY;
    d->is_update = i->op == SGLIR_OP_DYNAMIC_UPDATE;
    d->whole = new_copies(p, 1);
    d->window = new_copies(p, 1);
    if (d->whole == NULL || d->window == NULL) return SGL_OUT_OF_MEMORY;
    int64_t axis = sglexec_attr_int(p->program, i, "axis");
    const sglexec_operand *x = sglcpu_operand(p->program, i, 0);
    const sglexec_operand *result = sglcpu_operand(p->program, i, i->arg_count);
    const sglexec_operand *small = d->is_update ? x + 1 : result;
    d->start = x + (d->is_update ? 2 : 1);
    d->step_bytes = inner_bytes_of(x, axis);
    d->last_start = x->dims[axis] - small->dims[axis];
    int64_t run = d->step_bytes * small->dims[axis], pitch = d->step_bytes * x->dims[axis];
    d->whole->data[0] = (copy){ .from = x, .to = result, .runs = 1, .run_bytes = bytes_of(x) };
    d->window->data[0] = (copy){ .from = d->is_update ? small : x,
                                 .to = result,
                                 .runs = outer_of(x, axis),
                                 .run_bytes = run,
                                 .from_pitch = d->is_update ? run : pitch,
                                 .to_pitch = d->is_update ? pitch : run };
    cut_copies(d->whole, 0);
    cut_copies(d->window, d->step_bytes);
    if (x->dtype == SGL_I4 && !d->window->halves) d->step_bytes /= 2;
    if (x->space == result->space && x->offset == result->offset) d->whole->tasks = 0;
    *command = (sglcpu_command){ .run = run_dynamic, .plan = d };
    return SGL_OK;
}

/* ---- pad -------------------------------------------------------------------------------------------------------- */

typedef struct pad {
    const sglexec_operand *x, *result;
    int64_t outer, before, extent, between, padded; /* along the axis */
    int64_t inner_bytes, size, positions_per_task;
    _Alignas(8) char value[8];
    bool halves; /* of i4: sizes count elements */
} pad;

typedef struct pad_job {
    const sglcpu_launch *launch;
    const pad *plan;
} pad_job;

/* `from`: the element with which the position's elements begin, or -1: all are the value. */
static void pad_halves(const pad_job *j, int64_t at, int64_t from)
{
    const pad *p = j->plan;
    char *out = sglcpu_at(j->launch, p->result);
    int64_t whole = p->outer * p->padded * p->inner_bytes;
    if (from >= 0) {
        sglcpu_move_nibbles(out, at * p->inner_bytes, sglcpu_at(j->launch, p->x), from, p->inner_bytes, whole);
        return;
    }
    for (int64_t e = 0; e < p->inner_bytes; e++)
        sglcpu_move_nibbles(out, at * p->inner_bytes + e, p->value, 0, 1, whole);
}

static void pad_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const pad_job *j = context;
    const pad *p = j->plan;
    int64_t first = task * p->positions_per_task;
    int64_t last = sglcpu_min(first + p->positions_per_task, p->outer * p->padded);
    const char *x = sglcpu_at(j->launch, p->x);
    char *out = sglcpu_at(j->launch, p->result);
    for (int64_t at = first; at < last; at++) {
        int64_t outer = at / p->padded, from = at % p->padded - p->before, step = p->between + 1;
        char *to = out + at * p->inner_bytes;
        bool within = from >= 0 && from % step == 0 && from / step < p->extent;
        if (p->halves) {
            pad_halves(j, at, within ? (outer * p->extent + from / step) * p->inner_bytes : -1);
        } else if (within && p->inner_bytes > 0) {
            memcpy(to, x + (outer * p->extent + from / step) * p->inner_bytes, (size_t)p->inner_bytes);
        } else {
            sglcpu_spread(to, p->value, p->size, p->inner_bytes / p->size);
        }
    }
}

static void run_pad(const sglcpu_launch *launch, const void *plan)
{
    const pad *p = plan;
    pad_job j = { .launch = launch, .plan = p };
    sglcpu_parallel(launch->pool, sglcpu_ceil_div(p->outer * p->padded, p->positions_per_task), pad_task, &j);
}

sgl_status sglcpu_prepare_pad(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    pad *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    int64_t axis = sglexec_attr_int(p->program, i, "axis");
    const sglexec_operand *x = sglcpu_operand(p->program, i, 0);
    plan->x = x;
    plan->result = x + 1;
    plan->outer = outer_of(x, axis);
    plan->before = sglexec_attr_int(p->program, i, "before");
    plan->between = sglexec_attr_int(p->program, i, "between");
    plan->extent = x->dims[axis];
    plan->padded = x[1].dims[axis];
    plan->size = unit_of(x);
    plan->halves = x->dtype == SGL_I4;
    plan->inner_bytes = inner_bytes_of(x, axis);
    plan->positions_per_task = sglcpu_max(TASK_BYTES / sglcpu_max(plan->inner_bytes, 1), 1);
    if (plan->halves) plan->positions_per_task = sglcpu_max(plan->outer * plan->padded, 1);
    sglcpu_put_stored(plan->value, (sgl_dtype)x->dtype, sglexec_attr_float(p->program, i, "value"));
    *command = (sglcpu_command){ .run = run_pad, .plan = plan };
    return SGL_OK;
}
