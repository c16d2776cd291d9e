/* loss.c -- the vocabulary loss and its gradient, in chunks of rows: product, loss and gradient of a chunk before the next,
 * so that the logits of all rows never stand in memory.
 *
 * In: x [n, d], weight [v, d], integer targets [n], for the gradient also dlosses [n]. Out: losses [n], dx, dweight. The
 * chunk's logits lie in the instruction's workspace and become their own gradient there. Odd invariant: how many rows a
 * chunk has depends on shapes alone, so that dweight is summed in one order. Narrow floats are widened into the workspace, and
 * dweight is summed there in float32 and rounded once. */
#include <math.h>
#include <string.h>

#include "backend/cpu/blas.h"

enum { CHUNK_BYTES = 2 << 20, LEAST_ROWS = 64, ROW_TASK_BYTES = 64 * 1024 };

/* The products of a chunk of so many rows. */
typedef struct chunk {
    sglcpu_product logits, dx, dweight;
    int64_t rows_per_task;
} chunk;

typedef struct loss {
    const sglexec_operand *x, *weight, *targets, *dlosses; /* dlosses NULL: the loss alone */
    const sglexec_operand *losses, *dx, *dweight;
    int real; /* 0 f32, 1 f64 */
    bool narrow;
    int64_t held_weight, held_x, held_dx, held_dweight; /* of narrow floats: in the workspace, behind the logits */
    int64_t size, rows, dim, vocab, ignore, chunk_rows;
    chunk full, last; /* last: of the rows that are left */
} loss;

typedef struct loss_job {
    const sglcpu_launch *launch;
    const loss *plan;
    const chunk *chunk;
    int64_t first, rows;
} loss_job;

static int64_t rows_of_chunk(int64_t rows, int64_t vocab, int64_t size)
{
    int64_t fit = sglcpu_max(CHUNK_BYTES / sglcpu_max(vocab * size, 1), LEAST_ROWS);
    return sglcpu_min(fit, sglcpu_max(rows, 1));
}

static double number_at(const char *data, int real, int64_t i)
{
    return real ? ((const double *)(const void *)data)[i] : (double)((const float *)(const void *)data)[i];
}

static void set_number(char *data, int real, int64_t i, double value)
{
    if (real)
        ((double *)(void *)data)[i] = value;
    else
        ((float *)(void *)data)[i] = (float)value;
}

/* One row: its loss, and, when a gradient is asked, the logits replaced by (softmax - [target]) * dloss. */
static void finish_row(const loss_job *j, int64_t row, char *logits)
{
    const loss *l = j->plan;
    const sglcpu_float_ops *ops = j->launch->isa->floats[l->real];
    int64_t target = sglcpu_read_index(sglcpu_at(j->launch, l->targets), (sgl_dtype)l->targets->dtype, row);
    char *losses = sglcpu_at(j->launch, l->losses);
    if (target == l->ignore) {
        set_number(losses, l->real, row, 0);
        if (l->dlosses) memset(logits, 0, (size_t)(l->vocab * l->size));
        return;
    }
    bool within = target >= 0 && target < l->vocab;
    double picked = within ? number_at(logits, l->real, target) : 0, most = ops->row_max(logits, l->vocab);
    double shift =
        isinf(most) && most < 0 ? 0 : most; /* a row of -inf alone has probability nowhere: the loss is NaN or inf */
    double sum = ops->row_exp(logits, logits, 1, shift, l->vocab);
    set_number(losses, l->real, row, log(sum) + shift - picked);
    if (!l->dlosses) return;
    double dloss = number_at(sglcpu_at(j->launch, l->dlosses), l->real, row);
    ops->row_scale(logits, dloss / sum, l->vocab);
    if (within) set_number(logits, l->real, target, number_at(logits, l->real, target) - dloss);
}

static void rows_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const loss_job *j = context;
    int64_t last = sglcpu_min((task + 1) * j->chunk->rows_per_task, j->rows);
    for (int64_t r = task * j->chunk->rows_per_task; r < last; r++)
        finish_row(j, j->first + r, j->launch->work + r * j->plan->vocab * j->plan->size);
}

/* ---- narrow floats ------------------------------------------------------------------------------------------- */

enum { CONVERTED = 16 * 1024 }; /* elements of a task */

typedef struct conversion {
    const sglcpu_isa *isa;
    sgl_dtype dtype;
    char *stored, *held;
    int64_t first, count; /* elements of the stored array */
    bool back;
} conversion;

static void convert_task(void *context, int64_t task, int worker)
{
    (void)worker;
    const conversion *c = context;
    int64_t at = task * CONVERTED, count = sglcpu_min(CONVERTED, c->count - at);
    char *held = c->held + at * (int64_t)sizeof(float);
    if (c->back)
        sglcpu_store_run(c->isa, c->dtype, c->stored, c->first + at, held, count, -1);
    else
        sglcpu_load_run(c->isa, c->dtype, held, c->stored, c->first + at, count);
}

/* Elements first .. of an operand to float32 in the workspace, or back. */
static void convert(const sglcpu_launch *launch, const sglexec_operand *operand, int64_t first, int64_t count,
                    char *held, bool back)
{
    conversion c = { .isa = launch->isa,
                     .dtype = (sgl_dtype)operand->dtype,
                     .stored = sglcpu_at(launch, operand),
                     .held = held,
                     .first = first,
                     .count = count,
                     .back = back };
    sglcpu_parallel(launch->pool, sglcpu_ceil_div(count, CONVERTED), convert_task, &c);
}

/* An argument or result from its row `first` on: as it lies, or held. */
static char *rows_at(const sglcpu_launch *launch, const loss *l, const sglexec_operand *operand, int64_t first,
                     int64_t held)
{
    return l->narrow ? launch->work + held : sglcpu_at(launch, operand) + first * l->dim * l->size;
}

static void run_chunk(const sglcpu_launch *launch, const loss *l, const chunk *c, int64_t first, int64_t rows)
{
    loss_job j = { launch, l, c, first, rows };
    char *x = rows_at(launch, l, l->x, first, l->held_x), *weight = rows_at(launch, l, l->weight, 0, l->held_weight);
    if (l->narrow) convert(launch, l->x, first * l->dim, rows * l->dim, x, false);
    sglcpu_product_run(launch, &c->logits, x, weight, launch->work, 0);
    sglcpu_parallel(launch->pool, sglcpu_ceil_div(rows, c->rows_per_task), rows_task, &j);
    if (!l->dlosses) return;
    char *dx = rows_at(launch, l, l->dx, first, l->held_dx);
    sglcpu_product_run(launch, &c->dx, launch->work, weight, dx, 0);
    if (l->narrow) convert(launch, l->dx, first * l->dim, rows * l->dim, dx, true);
    sglcpu_product_run(launch, &c->dweight, launch->work, x, rows_at(launch, l, l->dweight, 0, l->held_dweight),
                       first == 0 ? 0 : 1);
}

static void run_loss(const sglcpu_launch *launch, const void *plan)
{
    const loss *l = plan;
    if (l->dlosses && l->rows == 0) memset(sglcpu_at(launch, l->dweight), 0, (size_t)sglcpu_bytes(l->dweight));
    int64_t weights = l->vocab * l->dim;
    if (l->narrow) convert(launch, l->weight, 0, weights, launch->work + l->held_weight, false);
    for (int64_t first = 0; first < l->rows; first += l->chunk_rows) {
        int64_t rows = sglcpu_min(l->chunk_rows, l->rows - first);
        run_chunk(launch, l, rows == l->chunk_rows ? &l->full : &l->last, first, rows);
    }
    if (l->narrow && l->dlosses && l->rows > 0)
        convert(launch, l->dweight, 0, weights, launch->work + l->held_dweight, true);
}

static sgl_status cut_chunk(sglcpu_prepare *p, const loss *l, chunk *c, int64_t rows)
{
    *c = (chunk){ .logits = { .real = (uint8_t)l->real,
                              .m = rows,
                              .n = l->vocab,
                              .k = l->dim,
                              .a_row = l->dim,
                              .a_col = 1,
                              .b_row = 1,
                              .b_col = l->dim,
                              .ldc = l->vocab },
                  .dx = { .real = (uint8_t)l->real,
                          .m = rows,
                          .n = l->dim,
                          .k = l->vocab,
                          .a_row = l->vocab,
                          .a_col = 1,
                          .b_row = l->dim,
                          .b_col = 1,
                          .ldc = l->dim },
                  .dweight = { .real = (uint8_t)l->real,
                               .m = l->vocab,
                               .n = l->dim,
                               .k = rows,
                               .a_row = 1,
                               .a_col = l->vocab,
                               .b_row = l->dim,
                               .b_col = 1,
                               .ldc = l->dim },
                  .rows_per_task = sglcpu_max(ROW_TASK_BYTES / sglcpu_max(l->vocab * l->size, 1), 1) };
    if (!sglcpu_product_fits(&c->logits) || !sglcpu_product_fits(&c->dx) || !sglcpu_product_fits(&c->dweight))
        return sglcore_fail(p->env, SGL_UNSUPPORTED,
                            "linear_cross_entropy: %lld rows, %lld classes or %lld features are beyond 2^31",
                            (long long)rows, (long long)l->vocab, (long long)l->dim);
    sglcpu_product_cut(&c->logits, false);
    sglcpu_product_cut(&c->dx, false);
    sglcpu_product_cut(&c->dweight, true);
    return SGL_OK;
}

sgl_status sglcpu_prepare_loss(sglcpu_prepare *p, const sglexec_instruction *i, sglcpu_command *command)
{
    loss *l = sglcpu_plan_alloc(p, 1, sizeof *l);
    if (!l) return SGL_OUT_OF_MEMORY;
    l->x = sglcpu_operand(p->program, i, 0);
    l->weight = l->x + 1;
    l->targets = l->x + 2;
    if (i->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD) {
        l->dlosses = l->x + 3;
        l->losses = l->x + 4;
        l->dx = l->x + 5;
        l->dweight = l->x + 6;
    } else {
        l->losses = l->x + 3;
    }
    l->real = sglcpu_held_index((sgl_dtype)l->x->dtype);
    l->narrow = sglcpu_is_narrow((sgl_dtype)l->x->dtype);
    if (l->losses->dtype != (l->real ? SGL_F64 : SGL_F32))
        return sglcore_fail(p->env, SGL_UNSUPPORTED, "linear_cross_entropy: losses in %s of logits in %s",
                            sgl_dtype_name((sgl_dtype)l->losses->dtype), sgl_dtype_name((sgl_dtype)l->x->dtype));
    l->size = sglcpu_held_size((sgl_dtype)l->x->dtype);
    l->rows = sglexec_elements(l->targets);
    l->vocab = l->weight->dims[0];
    l->dim = l->weight->dims[1];
    l->ignore = sglexec_attr_int(p->program, i, "ignore");
    l->chunk_rows = rows_of_chunk(l->rows, l->vocab, l->size);
    l->held_weight = l->chunk_rows * l->vocab * l->size;
    l->held_x = l->held_weight + l->vocab * l->dim * l->size;
    l->held_dx = l->held_x + l->chunk_rows * l->dim * l->size;
    l->held_dweight = l->held_dx + l->chunk_rows * l->dim * l->size;
    SGLCORE_TRY(cut_chunk(p, l, &l->full, l->chunk_rows));
    SGLCORE_TRY(cut_chunk(p, l, &l->last, l->rows % l->chunk_rows ? l->rows % l->chunk_rows : 1));
    *command = (sglcpu_command){ .run = run_loss, .plan = l, .work_offset = i->work_offset };
    return SGL_OK;
}

int64_t sglcpu_loss_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *weight = sglir_type_of(g, sglir_arg(g, node, 1)),
                     *targets = sglir_type_of(g, sglir_arg(g, node, 2));
    int64_t size = sglcpu_held_size((sgl_dtype)weight->dtype), vocab = weight->dims[0], dim = weight->dims[1];
    int64_t rows = rows_of_chunk(sglir_elements(targets), vocab, size);
    bool narrow = sglcpu_is_narrow((sgl_dtype)weight->dtype);
    return (rows * vocab + (narrow ? 2 * vocab * dim + 2 * rows * dim : 0)) * size;
}
