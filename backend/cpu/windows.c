/* windows.c -- windows of channels-last tensors, and windows_add, their transpose.
 *
 * In: dense tensors and one attribute entry per spatial dim. Out: commands. windows copies a run of channels, or fills it,
 * for each element of each window. windows_add goes the other way round, row by row of its result, and adds what each window
 * over the row has for it, in the order of the windows. Odd invariant: a task owns rows of the result. */
#include <string.h>

#include "backend/cpu/lines.h"
#include "backend/cpu/window.h"

enum { TASK_BYTES = 64 * 1024 };

/* ---- where windows lie ------------------------------------------------------------------------------------------ */

sglcpu_windows sglcpu_windows_of(const sglexec_program *program, const sglexec_instruction *i, int spatial,
                                 int64_t samples, const int64_t *extent, const int64_t *count, const int64_t *size)
{
    sglcpu_windows w = { .spatial = spatial, .samples = samples, .rows = 1, .places = 1, .window = 1 };
    int entries;
    const int64_t *stride = sglexec_attr_ints(program, i, "stride", &entries);
    const int64_t *dilation = sglexec_attr_ints(program, i, "dilation", &entries);
    const int64_t *low = sglexec_attr_ints(program, i, "low", &entries);
    for (int d = 0; d < spatial; d++) {
        w.extent[d] = extent[d];
        w.count[d] = count[d];
        w.size[d] = size[d];
        w.stride[d] = stride[d];
        w.dilation[d] = dilation[d];
        w.low[d] = low[d];
        w.rows *= extent[d];
        w.places *= count[d];
        w.window *= size[d];
    }
    return w;
}

int64_t sglcpu_window_row(const sglcpu_windows *w, int64_t o, int64_t k)
{
    int64_t row = 0, weight = 1, sample = o / w->places, place = o % w->places;
    for (int d = w->spatial - 1; d >= 0; d--) {
        int64_t at = place % w->count[d] * w->stride[d] + k % w->size[d] * w->dilation[d] - w->low[d];
        if (at < 0 || at >= w->extent[d]) return -1;
        row += at * weight;
        weight *= w->extent[d];
        place /= w->count[d];
        k /= w->size[d];
    }
    return sample * w->rows + row;
}

int64_t sglcpu_window_over(const sglcpu_windows *w, int64_t row, int64_t k)
{
    int64_t o = 0, weight = 1, sample = row / w->rows, at = row % w->rows;
    for (int d = w->spatial - 1; d >= 0; d--) {
        int64_t from = at % w->extent[d] + w->low[d] - k % w->size[d] * w->dilation[d];
        if (from < 0 || from % w->stride[d] != 0 || from / w->stride[d] >= w->count[d]) return -1;
        o += from / w->stride[d] * weight;
        weight *= w->count[d];
        at /= w->extent[d];
        k /= w->size[d];
    }
    return sample * w->places + o;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

typedef struct plan_of_windows {
    const sglexec_operand *x, *result;
    sglcpu_windows w;
    sgl_dtype dtype;
    int64_t channels, elements, elements_per_task; /* elements: runs of channels of the result */
    _Alignas(8) char value[8];
} plan_of_windows;

typedef struct windows_job {
    const sglcpu_launch *launch;
    const plan_of_windows *plan;
} windows_job;

/* One run of channels: of the row, or -1: the value. */
static void put_run(const windows_job *j, int64_t element, int64_t row)
{
    const plan_of_windows *p = j->plan;
    const char *x = sglcpu_at(j->launch, p->x);
    char *out = sglcpu_at(j->launch, p->result);
    int64_t size = sglcpu_size(p->dtype), bytes = p->channels * size, whole = p->elements * p->channels;
    if (p->dtype == SGL_I4) {
        for (int64_t c = 0; c < p->channels; c++)
            sglcpu_move_nibbles(out, element * p->channels + c, row < 0 ? p->value : x,
                                row < 0 ? 0 : row * p->channels + c, 1, whole);
    } else if (row < 0) {
        sglcpu_spread(out + element * bytes, p->value, size, p->channels);
    } else {
        memcpy(out + element * bytes, x + row * bytes, (size_t)bytes);
    }
}

static void windows_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const windows_job *j = context;
    const plan_of_windows *p = j->plan;
    int64_t last = sglcpu_min((task + 1) * p->elements_per_task, p->elements);
    for (int64_t e = task * p->elements_per_task; e < last; e++)
        put_run(j, e, sglcpu_window_row(&p->w, e / p->w.window, e % p->w.window));
}

/* Windows over a row come in their order when their elements come in the opposite one. */
static void add_row(const windows_job *j, int64_t row, int64_t col, int64_t cols)
{
    const plan_of_windows *p = j->plan;
    const sglcpu_isa *isa = j->launch->isa;
    const char *y = sglcpu_at(j->launch, p->x);
    bool real = sglcpu_held_index(p->dtype) >= 0;
    sglcpu_carrier sums[SGLCPU_CARRIED], added[SGLCPU_CARRIED];
    memset(sums, 0, sizeof sums);
    for (int64_t k = p->w.window - 1; k >= 0; k--) {
        int64_t o = sglcpu_window_over(&p->w, row, k);
        if (o < 0) continue;
        sglcpu_read_carriers(isa, p->dtype, added, y, (o * p->w.window + k) * p->channels + col, cols);
        for (int64_t c = 0; c < cols; c++) {
            if (real)
                sums[c].real += added[c].real;
            else
                sums[c].integer = (int64_t)((uint64_t)sums[c].integer + (uint64_t)added[c].integer);
        }
    }
    sglcpu_write_carriers(isa, p->dtype, sglcpu_at(j->launch, p->result), row * p->channels + col, sums, cols,
                          p->elements * p->channels);
}

static void add_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const windows_job *j = context;
    const plan_of_windows *p = j->plan;
    int64_t last = sglcpu_min((task + 1) * p->elements_per_task, p->elements);
    for (int64_t row = task * p->elements_per_task; row < last; row++) {
        for (int64_t col = 0; col < p->channels; col += SGLCPU_CARRIED)
            add_row(j, row, col, sglcpu_min(SGLCPU_CARRIED, p->channels - col));
    }
}

static void run_tasks(const sglcpu_launch *launch, const plan_of_windows *p, sglcpu_task task)
{
    windows_job j = { .launch = launch, .plan = p };
    sglcpu_parallel(launch->pool, sglcpu_ceil_div(p->elements, p->elements_per_task), task, &j);
}

static void run_windows(const sglcpu_launch *launch, const void *plan) { run_tasks(launch, plan, windows_task); }
static void run_add(const sglcpu_launch *launch, const void *plan) { run_tasks(launch, plan, add_task); }

sgl_status sglcpu_prepare_windows(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    plan_of_windows *plan = sglcpu_plan_alloc(p, 1, sizeof *plan);
    if (plan == NULL) return SGL_OUT_OF_MEMORY;
    bool adds = i->op == SGLIR_OP_WINDOWS_ADD;
    const sglexec_operand *x = plan->x = sglcpu_operand(p->program, i, 0), *result = plan->result = x + 1;
    const sglexec_operand *flat = adds ? result : x, *windows = adds ? x : result;
    int spatial = flat->rank - 2;
    plan->dtype = (sgl_dtype)x->dtype;
    plan->channels = flat->dims[1 + spatial];
    plan->w = sglcpu_windows_of(p->program, i, spatial, flat->dims[0], flat->dims + 1, windows->dims + 1,
                                windows->dims + 1 + spatial);
    plan->elements = plan->w.samples * (adds ? plan->w.rows : plan->w.places * plan->w.window);
    int64_t bytes = plan->channels * sglcpu_held_size(plan->dtype) * (adds ? plan->w.window : 1);
    plan->elements_per_task = sglcpu_max(TASK_BYTES / sglcpu_max(bytes, 1), 1);
    if (plan->dtype == SGL_I4) plan->elements_per_task = sglcpu_max(plan->elements, 1);
    if (!adds) sglcpu_put_stored(plan->value, plan->dtype, sglexec_attr_float(p->program, i, "value"));
    *command = (sglcpu_command){ .run = adds ? run_add : run_windows, .plan = plan };
    return SGL_OK;
}
