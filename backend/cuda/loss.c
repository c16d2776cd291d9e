/* loss.c -- the vocabulary loss and its gradient, in chunks of rows: product, loss and gradient of a chunk before the next,
 * so that the logits of all rows never stand in memory.
 *
 * In: x [n, d], weight [v, d], integer targets [n], for the gradient also dlosses [n]. Out: losses [n], dx, dweight. The chunk's
 * logits lie in the instruction's workspace, in f32 at least, and become their own gradient there (kernels/loss.cu). Floats of 16 bits are multiplied as they
 * are, those of 8 as bf16, which holds them; dweight is summed in f32 at least and rounded once. Where the classes are no multiple of 8
 * the weight is multiplied from a copy with rows of zeros behind it, so that all products are of whole tiles' runs.
 * Odd invariant: how many rows a chunk has depends on shapes alone, so that dweight is summed in one order. */
#include "backend/cuda/blas.h"
#include "backend/cuda/kernels/loss.h"

enum {
    CHUNK_BYTES = 1 << 30, /* of logits: rows enough for products at full speed, whatever the vocabulary */
    ROWS_UNIT = 128,       /* of a chunk that is not all: tiles of the products are full */
    PITCH = 8,             /* elements that rows of logits begin at multiples of */
    PLACE = 256,           /* parts of the workspace begin at multiples of */
    LIBRARY_BYTES = 32 << 20,
    PART_BYTES = 52 << 10, /* of a row in shared memory, so that a multiprocessor has several blocks */
    LARGEST_PART_BYTES =
        96 << 10, /* of a row that a cluster of blocks has no smaller parts of; every GPU has as much */
    CONVERT_BLOCKS = 1 << 14
};

/* What does not depend on where operands lie. Offsets are of the workspace, those of what there is no need for 0. */
typedef struct layout {
    int64_t rows, dim, vocab, pitch, chunk_rows;
    int64_t part, parts;   /* of a row of logits, as kernels take it: elements, and how many */
    sgl_dtype dtype, held; /* of the arguments; in which they are multiplied */
    bool gradient, eights; /* eights: arguments are converted before, results after */
    bool padded;           /* the weight is copied, with rows of zeros up to `pitch` */
    bool wide_weight;      /* dweight is summed apart from its place */
    int64_t logits, x, weight, dx, dweight, library, bytes;
} layout;

static sgl_dtype held_of(sgl_dtype dtype) { return dtype == SGL_F8E4M3 || dtype == SGL_F8E5M2 ? SGL_BF16 : dtype; }

static sgl_dtype wide_of(sgl_dtype held) { return held == SGL_F64 ? SGL_F64 : SGL_F32; }

static int64_t take(int64_t *bytes, int64_t count, sgl_dtype dtype)
{
    const int64_t at = *bytes;
    *bytes = sglcuda_round_up(at + sglcore_dtype_bytes(dtype, count), PLACE);
    return at;
}

/* As many parts as a cluster has blocks, or, of rows that are too long for that, as many as it takes: from shapes alone, since
 * sums go part after part. */
static void cut_row(layout *l)
{
    const int64_t size = sglcore_dtype_bytes(wide_of(l->held), 1);
    for (l->parts = 1;; l->parts *= 2) {
        l->part = sglcuda_round_up(sglcuda_ceil_div(l->pitch, l->parts), PITCH);
        if (l->part * size <= PART_BYTES) return;
        if (l->parts == SGLCUDA_LOSS_CLUSTER) break;
    }
    if (l->part * size <= LARGEST_PART_BYTES) return;
    l->part = PART_BYTES / size / PITCH * PITCH;
    l->parts = sglcuda_ceil_div(l->pitch, l->part);
}

static layout layout_of(sgl_dtype dtype, int64_t rows, int64_t vocab, int64_t dim, bool gradient)
{
    layout l = {
        .rows = rows, .dim = dim, .vocab = vocab, .dtype = dtype, .held = held_of(dtype), .gradient = gradient
    };
    l.eights = l.held != dtype;
    l.pitch = sglcuda_round_up(vocab, PITCH);
    l.padded = l.pitch != vocab && !l.eights;
    l.wide_weight = gradient && ((l.held != SGL_F32 && l.held != SGL_F64) || l.pitch != vocab);
    const int64_t fit =
        CHUNK_BYTES / sglcuda_max(sglcore_dtype_bytes(wide_of(l.held), l.pitch), 1) / ROWS_UNIT * ROWS_UNIT;
    l.chunk_rows = sglcuda_min(sglcuda_max(fit, ROWS_UNIT), sglcuda_max(rows, 1));
    cut_row(&l);
    int64_t bytes = 0;
    l.logits = take(&bytes, l.chunk_rows * l.pitch, wide_of(l.held));
    if (l.eights) l.x = take(&bytes, rows * dim, l.held);
    if (l.eights || l.padded) l.weight = take(&bytes, l.pitch * dim, l.held);
    if (l.eights && gradient) l.dx = take(&bytes, rows * dim, SGL_F32);
    if (l.wide_weight) l.dweight = take(&bytes, l.pitch * dim, wide_of(l.held));
    l.library = bytes;
    l.bytes = bytes + LIBRARY_BYTES + PLACE; /* the workspace itself begins at a multiple of less */
    return l;
}

int64_t sglcuda_loss_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *weight = sglir_type_of(g, sglir_arg(g, node, 1));
    const int64_t rows = sglir_elements(sglir_type_of(g, sglir_arg(g, node, 2)));
    return layout_of((sgl_dtype)weight->dtype, rows, weight->dims[0], weight->dims[1],
                     node->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD)
        .bytes;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

/* The products of a chunk of so many rows. */
typedef struct chunk {
    sglcuda_matmul logits, dx, dweight;
    sglcuda_matmul dweight_more; /* of all chunks but the first */
} chunk;

typedef struct loss {
    layout l;
    sglcuda_place x, weight, targets, dlosses, losses, dx, dweight; /* as the products read and write them */
    sglcuda_place logits, library;
    sglcuda_command before, after; /* conversions; run NULL: none */
    sglcuda_command *rows;         /* by chunk */
    chunk full, last;              /* last: of the rows that are left */
} loss;

static int64_t row_bytes(sgl_dtype dtype, int64_t elements) { return sglcore_dtype_bytes(dtype, elements); }

static sgl_status run_chunk(const sglcuda_launch *launch, const loss *p, int64_t number)
{
    const layout *l = &p->l;
    const int64_t first = number * l->chunk_rows, rows = sglcuda_min(l->chunk_rows, l->rows - first);
    const chunk *c = rows == l->chunk_rows ? &p->full : &p->last;
    const CUdeviceptr x = sglcuda_at(launch, p->x) + (CUdeviceptr)(first * row_bytes(l->held, l->dim));
    const CUdeviceptr weight = sglcuda_at(launch, p->weight), logits = sglcuda_at(launch, p->logits);
    const CUdeviceptr library = sglcuda_at(launch, p->library);
    SGLCORE_TRY(sglcuda_matmul_run(launch, &c->logits, x, weight, logits, library));
    SGLCORE_TRY(p->rows[number].run(launch, p->rows[number].plan));
    if (!l->gradient) return SGL_OK;
    const CUdeviceptr dx =
        sglcuda_at(launch, p->dx) + (CUdeviceptr)(first * row_bytes(l->eights ? SGL_F32 : l->dtype, l->dim));
    SGLCORE_TRY(sglcuda_matmul_run(launch, &c->dx, logits, weight, dx, library));
    return sglcuda_matmul_run(launch, number == 0 ? &c->dweight : &c->dweight_more, logits, x,
                              sglcuda_at(launch, p->dweight), library);
}

static sgl_status run_loss(const sglcuda_launch *launch, const void *plan)
{
    const loss *p = plan;
    const int64_t chunks = sglcuda_ceil_div(p->l.rows, p->l.chunk_rows);
    if (p->before.run) SGLCORE_TRY(p->before.run(launch, p->before.plan));
    for (int64_t number = 0; number < chunks; number++) SGLCORE_TRY(run_chunk(launch, p, number));
    return p->after.run ? p->after.run(launch, p->after.plan) : SGL_OK;
}

/* ---- products --------------------------------------------------------------------------------------------------------- */

static sgl_status find(sglcuda_prepare *p, const sglcuda_matmul_shape *shape, sglcuda_matmul *matmul)
{
    bool found;
    SGLCORE_TRY(sglcuda_matmul_find(p->device, shape, matmul, &found));
    if (found) return SGL_OK;
    return sglcore_fail(p->env, SGL_UNSUPPORTED,
                        "cuda: linear_cross_entropy: cuBLASLt has no product [%lld,%lld] x [%lld,%lld] of %s",
                        (long long)shape->rows, (long long)shape->depth, (long long)shape->depth,
                        (long long)shape->columns, sgl_dtype_name((sgl_dtype)shape->dtype));
}

/* Of the gradients, which lie where the logits lay. */
static int64_t gradient_pitch(const layout *l)
{
    return l->pitch * sglcore_dtype_bits(wide_of(l->held)) / sglcore_dtype_bits(l->held);
}

static sgl_status cut_chunk(sglcuda_prepare *p, const loss *s, int64_t rows, chunk *c)
{
    const layout *l = &s->l;
    const int64_t x_alignment =
        sglcuda_min(sglcuda_alignment(s->x.offset), sglcuda_alignment(l->chunk_rows * row_bytes(l->held, l->dim)));
    const int64_t weight_alignment = sglcuda_alignment(s->weight.offset);
    sglcuda_matmul_shape shape = { .dtype = l->held,
                                   .result = wide_of(l->held),
                                   .rows = rows,
                                   .columns = l->pitch,
                                   .depth = l->dim,
                                   .a_row = l->dim,
                                   .a_depth = 1,
                                   .b_depth = 1,
                                   .b_column = l->dim,
                                   .c_row = l->pitch,
                                   .run = 1,
                                   .a_alignment = x_alignment,
                                   .b_alignment = weight_alignment,
                                   .c_alignment = SGLCUDA_PLACE_ALIGNMENT,
                                   .work_bytes = LIBRARY_BYTES };
    SGLCORE_TRY(find(p, &shape, &c->logits));
    if (!l->gradient) return SGL_OK;
    const sgl_dtype wide = wide_of(l->held);
    const int64_t dx_row = row_bytes(l->eights ? wide : l->dtype, l->dim);
    shape = (sglcuda_matmul_shape){ .dtype = l->held,
                                    .result = l->eights ? wide : l->held,
                                    .rows = rows,
                                    .columns = l->dim,
                                    .depth = l->pitch,
                                    .a_row = gradient_pitch(l),
                                    .a_depth = 1,
                                    .b_depth = l->dim,
                                    .b_column = 1,
                                    .run = 1,
                                    .a_alignment = SGLCUDA_PLACE_ALIGNMENT,
                                    .b_alignment = weight_alignment,
                                    .c_alignment = sglcuda_min(sglcuda_alignment(s->dx.offset),
                                                               sglcuda_alignment(l->chunk_rows * dx_row)),
                                    .work_bytes = LIBRARY_BYTES };
    SGLCORE_TRY(find(p, &shape, &c->dx));
    shape = (sglcuda_matmul_shape){ .dtype = l->held,
                                    .result = wide,
                                    .rows = l->pitch,
                                    .columns = l->dim,
                                    .depth = rows,
                                    .a_row = 1,
                                    .a_depth = gradient_pitch(l),
                                    .b_depth = l->dim,
                                    .b_column = 1,
                                    .run = 1,
                                    .a_alignment = SGLCUDA_PLACE_ALIGNMENT,
                                    .b_alignment = x_alignment,
                                    .c_alignment = sglcuda_alignment(s->dweight.offset),
                                    .work_bytes = LIBRARY_BYTES };
    SGLCORE_TRY(find(p, &shape, &c->dweight));
    shape.adds = 1;
    return find(p, &shape, &c->dweight_more);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------- */

static sgl_status add_conversion(sglcuda_prepare *p, sglcuda_command *command, sgl_dtype from_dtype, sglcuda_place from,
                                 sgl_dtype to_dtype, sglcuda_place to, int64_t count)
{
    char name[48];
    const sglcuda_function *function;
    const long long elements = count;
    snprintf(name, sizeof name, "loss_convert_%s_%s", sgl_dtype_name(from_dtype), sgl_dtype_name(to_dtype));
    SGLCORE_TRY(sglcuda_builtin(p, name, &function));
    const int64_t blocks = sglcuda_ceil_div(count, SGLCUDA_LOSS_CONVERT_THREADS * 8);
    const sglcuda_grid grid = { .blocks = { (unsigned)sglcuda_min(blocks, CONVERT_BLOCKS), 1, 1 },
                                .threads = { SGLCUDA_LOSS_CONVERT_THREADS, 1, 1 } };
    return sglcuda_add_step(p, command, function, grid, (sglcuda_place[]){ from, to }, 2, &elements, sizeof elements);
}

/* Compute capability 9.0 has clusters: a row is then read once. */
static bool by_cluster(const sglcuda_prepare *p, const layout *l)
{
    return p->device->major >= 9 && l->parts > 1 && l->parts <= SGLCUDA_LOSS_CLUSTER && l->held != SGL_F64;
}

/* Appends the kernel of a chunk's rows. */
static sgl_status add_rows(sglcuda_prepare *p, const sglexec_instruction *i, const loss *s, int64_t number,
                           sglcuda_command *command)
{
    const layout *l = &s->l;
    const int64_t first = number * l->chunk_rows, rows = sglcuda_min(l->chunk_rows, l->rows - first);
    const sgl_dtype target = (sgl_dtype)sglcuda_operand(p->program, i, 2)->dtype;
    const bool cluster = by_cluster(p, l);
    char name[40];
    const sglcuda_function *function;
    if (cluster)
        snprintf(name, sizeof name, "loss_cluster_%d_%s", (int)l->parts, sgl_dtype_name(l->held));
    else
        snprintf(name, sizeof name, "loss_rows_%s", sgl_dtype_name(l->held));
    SGLCORE_TRY(sglcuda_builtin(p, name, &function));
    const sglcuda_loss_values v = { .rows = rows,
                                    .vocab = l->vocab,
                                    .pitch = l->pitch,
                                    .first = first,
                                    .ignore = sglexec_attr_int(p->program, i, "ignore"),
                                    .part = l->part,
                                    .parts = (int)l->parts,
                                    .target_bytes = sglcore_dtype_bits(target) / 8,
                                    .target_signed = target != SGL_U8 && target != SGL_U16 && target != SGL_U32,
                                    .gradient = l->gradient };
    const sglcuda_grid grid = { .blocks = { (unsigned)(rows * (cluster ? l->parts : 1)), 1, 1 },
                                .threads = { SGLCUDA_LOSS_THREADS, 1, 1 },
                                .shared = (unsigned)row_bytes(wide_of(l->held), l->part) };
    const sglcuda_place places[] = { s->logits, s->targets, s->dlosses, s->losses };
    return sglcuda_add_step(p, command, function, grid, places, 4, &v, sizeof v);
}

static sgl_status prepare_rows(sglcuda_prepare *p, const sglexec_instruction *i, loss *s)
{
    const int64_t chunks = sglcuda_ceil_div(s->l.rows, s->l.chunk_rows);
    s->rows = sglcuda_plan_alloc(p, chunks, sizeof *s->rows);
    if (!s->rows) return SGL_OUT_OF_MEMORY;
    for (int64_t number = 0; number < chunks; number++) {
        SGLCORE_TRY(add_rows(p, i, s, number, &s->rows[number]));
        SGLCORE_TRY(sglcuda_ready_steps(p->device, &s->rows[number]));
    }
    return SGL_OK;
}

static sgl_status prepare_conversions(sglcuda_prepare *p, const sglexec_operand *operands, loss *s)
{
    const layout *l = &s->l;
    const int64_t x = l->rows * l->dim, weight = l->vocab * l->dim;
    if (l->eights) {
        SGLCORE_TRY(add_conversion(p, &s->before, l->dtype, sglcuda_place_of(&operands[0]), l->held, s->x, x));
        SGLCORE_TRY(
            add_conversion(p, &s->before, l->dtype, sglcuda_place_of(&operands[1]), l->held, s->weight, weight));
    }
    if (l->padded)
        SGLCORE_TRY(
            sglcuda_add_copy(p, &s->before, s->weight, sglcuda_place_of(&operands[1]), row_bytes(l->dtype, weight)));
    if (l->pitch != l->vocab) {
        const sglcuda_place behind = { s->weight.space, s->weight.offset + row_bytes(l->held, weight) };
        SGLCORE_TRY(sglcuda_add_zeros(p, &s->before, behind, row_bytes(l->held, (l->pitch - l->vocab) * l->dim)));
    }
    if (l->eights && l->gradient)
        SGLCORE_TRY(add_conversion(p, &s->after, SGL_F32, s->dx, l->dtype, sglcuda_place_of(&operands[5]), x));
    if (l->wide_weight && wide_of(l->held) == l->dtype)
        SGLCORE_TRY(
            sglcuda_add_copy(p, &s->after, sglcuda_place_of(&operands[6]), s->dweight, row_bytes(l->dtype, weight)));
    else if (l->wide_weight)
        SGLCORE_TRY(
            add_conversion(p, &s->after, SGL_F32, s->dweight, l->dtype, sglcuda_place_of(&operands[6]), weight));
    return SGL_OK;
}

/* ---- the instruction ---------------------------------------------------------------------------------------------------- */

static void place_all(const sglcuda_prepare *p, const sglexec_instruction *i, loss *s)
{
    const sglexec_operand *operands = sglcuda_operand(p->program, i, 0);
    const layout *l = &s->l;
    const int64_t first = sglcuda_round_up(i->work_offset, PLACE) - i->work_offset;
    s->logits = sglcuda_work_place(i, first + l->logits);
    s->library = sglcuda_work_place(i, first + l->library);
    s->x = l->eights ? sglcuda_work_place(i, first + l->x) : sglcuda_place_of(&operands[0]);
    s->weight = l->eights || l->padded ? sglcuda_work_place(i, first + l->weight) : sglcuda_place_of(&operands[1]);
    s->targets = sglcuda_place_of(&operands[2]);
    s->losses = sglcuda_place_of(&operands[l->gradient ? 4 : 3]);
    s->dlosses = s->losses;
    if (!l->gradient) return;
    s->dlosses = sglcuda_place_of(&operands[3]);
    s->dx = l->eights ? sglcuda_work_place(i, first + l->dx) : sglcuda_place_of(&operands[5]);
    s->dweight = l->wide_weight ? sglcuda_work_place(i, first + l->dweight) : sglcuda_place_of(&operands[6]);
}

/* Without rows, classes or features nothing is multiplied: logits, and what is summed of them, are zeros. */
static sgl_status prepare_trivial(sglcuda_prepare *p, const sglexec_instruction *i, const loss *s,
                                  sglcuda_command *command)
{
    const sglexec_operand *operands = sglcuda_operand(p->program, i, 0);
    const layout *l = &s->l;
    SGLCORE_TRY(sglcuda_add_zeros(p, command, s->logits, l->chunk_rows * row_bytes(wide_of(l->held), l->pitch)));
    for (int64_t number = 0; number < sglcuda_ceil_div(l->rows, l->chunk_rows); number++)
        SGLCORE_TRY(add_rows(p, i, s, number, command));
    for (int n = 5; n < 7 && l->gradient; n++)
        SGLCORE_TRY(sglcuda_add_zeros(p, command, sglcuda_place_of(&operands[n]), sglcuda_bytes(&operands[n])));
    return SGL_OK;
}

sgl_status sglcuda_prepare_loss(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *operands = sglcuda_operand(p->program, i, 0);
    loss *s = sglcuda_plan_alloc(p, 1, sizeof *s);
    if (!s) return SGL_OUT_OF_MEMORY;
    s->l = layout_of((sgl_dtype)operands[1].dtype, sglexec_elements(&operands[2]), operands[1].dims[0],
                     operands[1].dims[1], i->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD);
    if (s->l.bytes > i->work_bytes)
        return sglcore_fail(p->env, SGL_INTERNAL, "cuda: %s needs %lld bytes of workspace and was given %lld",
                            sglir_ops[i->op].name, (long long)s->l.bytes, (long long)i->work_bytes);
    place_all(p, i, s);
    if (s->l.rows == 0 || s->l.vocab == 0 || s->l.dim == 0) return prepare_trivial(p, i, s, command);
    SGLCORE_TRY(cut_chunk(p, s, s->l.chunk_rows, &s->full));
    const int64_t left = s->l.rows % s->l.chunk_rows;
    if (left > 0) SGLCORE_TRY(cut_chunk(p, s, left, &s->last));
    SGLCORE_TRY(prepare_conversions(p, operands, s));
    SGLCORE_TRY(prepare_rows(p, i, s));
    *command = (sglcuda_command){ .run = run_loss, .plan = s };
    return SGL_OK;
}
