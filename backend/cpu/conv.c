/* conv.c -- convolutions and their two gradients: windows made a tile at a time, and products with them.
 *
 * In: x [n, s..., c], weight [out, k..., c / groups], dy [n, o..., out]. Out: one command. A tile is some rows of the result
 * and what they look at, one row of scratch each: for conv the window's channels, for the gradient of x the outputs of the
 * windows over the row, for that of the weight the windows of a run of places, summed place after place. Narrow floats are
 * widened on the way, the weight once, and what is summed is rounded once. Odd invariant: tiles follow from shapes alone; no
 * matrix of all windows ever stands in memory (Chetlur et al., arXiv:1410.0759). */
#include <string.h>

#include "backend/cpu/blas.h"
#include "backend/cpu/window.h"

enum { TILE_BYTES = 256 * 1024, MOST_TILE = 1024, LEAST_TILE = 16, COLUMN_TASKS = 16, LEAST_COLUMNS = 48 };

typedef struct conv {
    const sglexec_operand *x, *weight, *y; /* by role; one of them is the result */
    sglir_op op;
    sglcpu_windows w;
    sgl_dtype dtype;
    int real; /* 0 f32, 1 f64 */
    bool narrow;
    int64_t size;                                  /* of a held element */
    int64_t channels, outputs, groups, deep, wide; /* deep, wide: channels and outputs of a group */
    int64_t patch;                                 /* what a row of the result looks at, in elements of a group */
    int64_t rows, tile_rows, tiles;                /* rows: of the result; of the weight's gradient: places summed */
    int64_t columns, column_tasks;                 /* of a task of the weight's gradient */
    int64_t patch_bytes, side_bytes;               /* of scratch */
} conv;

typedef struct conv_job {
    const sglcpu_launch *launch;
    const conv *plan;
} conv_job;

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static void load(const conv_job *j, const sglexec_operand *from, int64_t first, int64_t count, char *out)
{
    sglcpu_load_run(j->launch->isa, j->plan->dtype, out, sglcpu_at(j->launch, from), first, count);
}

/* The weight as it is multiplied with: as it lies, or widened in the workspace. */
static const char *weight_at(const conv_job *j, int64_t element)
{
    const conv *p = j->plan;
    const char *weight = p->narrow ? j->launch->work : sglcpu_at(j->launch, p->weight);
    return weight + element * p->size;
}

enum { WIDENED = 16 * 1024 };

static void widen_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const conv_job *j = context;
    int64_t first = task * WIDENED, all = sglexec_elements(j->plan->weight);
    load(j, j->plan->weight, first, sglcpu_min(WIDENED, all - first), j->launch->work + first * j->plan->size);
}

/* Columns first .. first + count - 1 of the windows of place o, in group g. */
static void window_row(const conv_job *j, int64_t o, int64_t g, int64_t first, int64_t count, char *out)
{
    const conv *p = j->plan;
    while (count > 0) {
        int64_t k = first / p->deep, c = first % p->deep, run = sglcpu_min(p->deep - c, count);
        int64_t row = sglcpu_window_row(&p->w, o, k);
        if (row < 0)
            memset(out, 0, (size_t)(run * p->size));
        else
            load(j, p->x, row * p->channels + g * p->deep + c, run, out);
        out += run * p->size;
        first += run;
        count -= run;
    }
}

/* For a row of x: output f of the window whose element k it is, at f * window + k; 0 where there is none. */
static void outputs_over(const conv_job *j, int64_t row, int64_t g, char *out, char *held)
{
    const conv *p = j->plan;
    memset(out, 0, (size_t)(p->patch * p->size));
    for (int64_t k = 0; k < p->w.window; k++) {
        int64_t o = sglcpu_window_over(&p->w, row, k);
        if (o < 0) continue;
        load(j, p->y, o * p->outputs + g * p->wide, p->wide, held);
        for (int64_t f = 0; f < p->wide; f++) {
            int64_t at = f * p->w.window + k;
            if (p->real)
                ((double *)(void *)out)[at] = ((const double *)(const void *)held)[f];
            else
                ((float *)(void *)out)[at] = ((const float *)(const void *)held)[f];
        }
    }
}

/* ---- rows of the result: conv, and the gradient of x ------------------------------------------------------------------- */

static void rows_task(void *context, int64_t task, int worker)
{
    const conv_job *j = context;
    const conv *p = j->plan;
    bool forward = p->op == SGLIR_OP_CONV;
    const sglexec_operand *result = forward ? p->y : p->x;
    int64_t g = task % p->groups, first = task / p->groups * p->tile_rows, n = forward ? p->wide : p->deep;
    int64_t rows = sglcpu_min(p->tile_rows, p->rows - first), width = forward ? p->outputs : p->channels;
    char *patches = sglcpu_scratch(j->launch, worker), *side = patches + p->patch_bytes;
    for (int64_t r = 0; r < rows; r++) {
        char *patch = patches + r * p->patch * p->size;
        if (forward)
            window_row(j, first + r, g, 0, p->patch, patch);
        else
            outputs_over(j, first + r, g, patch, side);
    }
    sglcpu_product product = { .real = (uint8_t)p->real,
                               .m = rows,
                               .n = n,
                               .k = p->patch,
                               .a_row = p->patch,
                               .a_col = 1,
                               .b_row = forward ? 1 : p->deep,
                               .b_col = forward ? p->patch : 1,
                               .ldc = p->narrow ? n : width };
    const char *weight = weight_at(j, g * p->wide * p->w.window * p->deep);
    char *out = sglcpu_at(j->launch, result), *c = p->narrow ? side : out + (first * width + g * n) * p->size;
    sglcpu_product_blas(&product, 1, patches, weight, 0, c);
    for (int64_t r = 0; p->narrow && r < rows; r++)
        sglcpu_store_run(j->launch->isa, p->dtype, out, (first + r) * width + g * n, side + r * n * p->size, n, -1);
}

/* ---- the gradient of the weight -------------------------------------------------------------------------------------- */

/* Some columns of one group's gradient, over all places. */
static void weight_task(void *context, int64_t task, int worker)
{
    const conv_job *j = context;
    const conv *p = j->plan;
    int64_t g = task / p->column_tasks, column = task % p->column_tasks * p->columns;
    int64_t columns = sglcpu_min(p->columns, p->patch - column);
    char *patches = sglcpu_scratch(j->launch, worker), *dy = patches + p->patch_bytes;
    char *sums = dy + p->side_bytes, *out = sglcpu_at(j->launch, p->weight);
    int64_t at = g * p->wide * p->patch + column;
    sglcpu_product product = { .real = (uint8_t)p->real,
                               .m = p->wide,
                               .n = columns,
                               .a_row = 1,
                               .a_col = p->wide,
                               .b_row = columns,
                               .b_col = 1,
                               .ldc = p->narrow ? columns : p->patch };
    char *c = p->narrow ? sums : out + at * p->size;
    for (int64_t first = 0; first == 0 || first < p->rows; first += p->tile_rows) {
        int64_t rows = product.k = sglcpu_min(p->tile_rows, p->rows - first);
        for (int64_t r = 0; r < rows; r++) {
            window_row(j, first + r, g, column, columns, patches + r * columns * p->size);
            load(j, p->y, (first + r) * p->outputs + g * p->wide, p->wide, dy + r * p->wide * p->size);
        }
        sglcpu_product_blas(&product, 1, dy, patches, first > 0, c);
    }
    for (int64_t f = 0; p->narrow && f < p->wide; f++)
        sglcpu_store_run(j->launch->isa, p->dtype, out, at + f * p->patch, sums + f * columns * p->size, columns, -1);
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

static void run_conv(const sglcpu_launch *launch, const void *plan)
{
    const conv *p = plan;
    conv_job j = { .launch = launch, .plan = p };
    if (p->op == SGLIR_OP_CONV_WEIGHT_GRAD) {
        if (p->patch > 0) sglcpu_parallel(launch->pool, p->groups * p->column_tasks, weight_task, &j);
        return;
    }
    if (p->narrow) {
        int64_t weights = sglexec_elements(p->weight);
        sglcpu_parallel(launch->pool, sglcpu_ceil_div(weights, WIDENED), widen_task, &j);
    }
    sglcpu_parallel(launch->pool, p->tiles * p->groups, rows_task, &j);
}

static void cut_rows(sglcpu_prepare *p, conv *c)
{
    bool forward = c->op == SGLIR_OP_CONV;
    c->rows = c->w.samples * (forward ? c->w.places : c->w.rows);
    c->patch = c->w.window * (forward ? c->deep : c->wide);
    int64_t fit = TILE_BYTES / sglcpu_max(c->patch * c->size, 1), n = forward ? c->wide : c->deep;
    c->tile_rows = sglcpu_min(sglcpu_max(fit, LEAST_TILE), MOST_TILE);
    c->tile_rows = sglcpu_min(c->tile_rows, sglcpu_max(sglcpu_round_up(sglcpu_ceil_div(c->rows, 8), 16), 1));
    c->tiles = sglcpu_ceil_div(c->rows, c->tile_rows);
    c->patch_bytes = sglcpu_round_up(c->tile_rows * c->patch * c->size, 64);
    c->side_bytes = sglcpu_max(c->narrow ? c->tile_rows * n : 0, c->wide) * c->size;
    sglcpu_need_scratch(p, c->patch_bytes + c->side_bytes);
}

static void cut_weight(sglcpu_prepare *p, conv *c)
{
    c->rows = c->w.samples * c->w.places;
    c->patch = c->w.window * c->deep;
    c->columns = sglcpu_max(sglcpu_ceil_div(c->patch, sglcpu_max(COLUMN_TASKS / c->groups, 1)), LEAST_COLUMNS);
    c->columns = sglcpu_max(sglcpu_min(c->columns, c->patch), 1);
    c->column_tasks = sglcpu_ceil_div(c->patch, c->columns);
    int64_t fit = TILE_BYTES / sglcpu_max((c->columns + c->wide) * c->size, 1);
    c->tile_rows = sglcpu_min(sglcpu_max(fit, LEAST_TILE), MOST_TILE);
    c->patch_bytes = sglcpu_round_up(c->tile_rows * c->columns * c->size, 64);
    c->side_bytes = sglcpu_round_up(c->tile_rows * c->wide * c->size, 64);
    sglcpu_need_scratch(p, c->patch_bytes + c->side_bytes + (c->narrow ? c->wide * c->columns * c->size : 0));
}

sgl_status sglcpu_prepare_conv(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    conv *c = sglcpu_plan_alloc(p, 1, sizeof *c);
    if (c == NULL) return SGL_OUT_OF_MEMORY;
    const sglexec_operand *a = sglcpu_operand(p->program, i, 0), *b = a + 1, *result = a + 2;
    c->op = (sglir_op)i->op;
    c->x = c->op == SGLIR_OP_CONV_INPUT_GRAD ? result : a;
    c->weight = c->op == SGLIR_OP_CONV_WEIGHT_GRAD ? result : b;
    c->y = c->op == SGLIR_OP_CONV ? result : c->op == SGLIR_OP_CONV_INPUT_GRAD ? a : b;
    int spatial = a->rank - 2;
    c->dtype = (sgl_dtype)a->dtype;
    c->real = sglcpu_held_index(c->dtype);
    c->narrow = sglcpu_is_narrow(c->dtype);
    c->size = sglcpu_held_size(c->dtype);
    c->channels = c->x->dims[1 + spatial];
    c->outputs = c->y->dims[1 + spatial];
    c->groups = sglexec_attr_int(p->program, i, "groups");
    c->deep = c->channels / c->groups;
    c->wide = c->outputs / c->groups;
    c->w =
        sglcpu_windows_of(p->program, i, spatial, c->x->dims[0], c->x->dims + 1, c->y->dims + 1, c->weight->dims + 1);
    if (sglexec_elements(c->weight) > INT32_MAX || c->channels > INT32_MAX || c->outputs > INT32_MAX)
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "cpu: %s with a weight or channels beyond 2^31 elements",
                            sglir_ops[i->op].name);
    if (c->op == SGLIR_OP_CONV_WEIGHT_GRAD)
        cut_weight(p, c);
    else
        cut_rows(p, c);
    *command = (sglcpu_command){ .run = run_conv, .plan = c };
    return SGL_OK;
}

int64_t sglcpu_conv_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *weight = sglir_type_of(g, sglir_arg(g, node, 1));
    bool narrow = sglcpu_is_narrow((sgl_dtype)weight->dtype) && node->op != SGLIR_OP_CONV_WEIGHT_GRAD;
    return narrow ? sglir_elements(weight) * (int64_t)sizeof(float) : 0;
}
