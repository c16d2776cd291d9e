/* dot.c -- dot_general on the device: copies of what does not lie well, then calls of cuBLASLt or a kernel of ours.
 *
 * In: an instruction; the plan of product.c. Out: a command. The library's route: at most two copies into the
 * workspace, then one call per run of the batch. The kernel's route, for integers, most products of eight-bit floats
 * and what the library refuses: the copies and one launch. Odd invariant: the workspace is the same whichever route
 * is taken at last, since the graph is asked before any library is. */
#include "backend/cuda/blas.h"
#include "backend/cuda/product.h"

enum {
    MOST_BLOCKS = 1 << 20, /* of a launch; each block then makes several tiles */
    FEW_LINES = 4,         /* rows or columns for which tiles would be mostly empty */
    LINE_DEPTH = 512       /* contracted elements of which a block has two for each thread */
};

/* ---- what is to be multiplied ------------------------------------------------------------------------------------ */

static const char *const list_names[] = { "batch_a", "batch_b", "contract_a", "contract_b" };

/* A linear, which here always has a bias: the last dim of x with the second of the weight. *last: room for the first
 * of these. */
static void contract_last(sglcuda_dot *dot, int rank, int64_t *last)
{
    static const int64_t second = 1;
    *last = rank - 1;
    dot->lists[2] = last;
    dot->lists[3] = &second;
    dot->counts[2] = dot->counts[3] = 1;
    dot->biased = true;
}

int64_t sglcuda_dot_workspace(const sglir_graph *g, const sglir_node *node)
{
    int64_t last;
    sglcuda_dot dot = { .dtype = SGL_F32 };
    if (node->op == SGLIR_OP_LINEAR)
        contract_last(&dot, sglir_type_of(g, sglir_arg(g, node, 0))->rank, &last);
    else
        for (int i = 0; i < 4; i++) dot.lists[i] = sglir_attr_ints(g, node, list_names[i], &dot.counts[i]);
    for (uint32_t s = 0; s < 2; s++) {
        const sglir_type *type = sglir_type_of(g, sglir_arg(g, node, s));
        dot.dtype = (sgl_dtype)type->dtype;
        dot.rank[s] = type->rank;
        dot.dims[s] = type->dims;
    }
    dot.result = (sgl_dtype)sglir_type_of(g, node->out_first)->dtype;
    sglcuda_product product;
    sglcuda_product_plan(&dot, &product);
    return product.work_bytes;
}

static void plan_instruction(const sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_product *product)
{
    int64_t last;
    sglcuda_dot dot = { .dtype = SGL_F32 };
    if (i->op == SGLIR_OP_LINEAR)
        contract_last(&dot, sglcuda_operand(p->program, i, 0)->rank, &last);
    else
        for (int n = 0; n < 4; n++) dot.lists[n] = sglexec_attr_ints(p->program, i, list_names[n], &dot.counts[n]);
    for (uint32_t s = 0; s < 2; s++) {
        const sglexec_operand *operand = sglcuda_operand(p->program, i, s);
        dot.dtype = (sgl_dtype)operand->dtype;
        dot.rank[s] = operand->rank;
        dot.dims[s] = operand->dims;
    }
    dot.result = (sgl_dtype)sglcuda_operand(p->program, i, i->arg_count)->dtype;
    sglcuda_product_plan(&dot, product);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static sgl_status copy_function(sglcuda_prepare *p, const sglcuda_dense_copy *copy, const sglcuda_function **function)
{
    static const char *const rows[] = { "dot_copy_rows_8", "dot_copy_rows_16", "dot_copy_rows_32", "dot_copy_rows_64",
                                        "dot_copy_rows_128" };
    static const char *const tiles[] = { "dot_copy_tiles_8", "dot_copy_tiles_16", "dot_copy_tiles_32",
                                         "dot_copy_tiles_64" };
    int size = 0;
    while (8 << size < copy->bits) size++;
    switch (copy->kind) {
    case SGLCUDA_DENSE_COPY_ROWS: return sglcuda_builtin(p, rows[size], function);
    case SGLCUDA_DENSE_COPY_TILES: return sglcuda_builtin(p, tiles[size], function);
    default: return sglcuda_builtin(p, "dot_copy_i4", function);
    }
}

static unsigned blocks_for(int64_t items) { return (unsigned)sglcuda_min(items, MOST_BLOCKS); }

/* The factor's place as it is read; appends the copy that it needs. first: byte of the workspace's own beginning in the
 * arena. */
static sgl_status place_factor(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_factor *factor,
                               const sglexec_operand *operand, int64_t first, sglcuda_place *place)
{
    *place = sglcuda_place_of(operand);
    if (!factor->copied) return SGL_OK;
    const sglcuda_place places[] = { *place, { .space = SGLIR_SPACE_ARENA, .offset = first + factor->copy_at } };
    *place = places[1];
    sglcuda_dense_copy copy;
    sglcuda_dense_copy_plan(&factor->source, sglcore_dtype_bits((sgl_dtype)operand->dtype),
                            sglcuda_alignment(operand->offset), &copy);
    const sglcuda_function *function;
    SGLCORE_TRY(copy_function(p, &copy, &function));
    int64_t items = copy.kind == SGLCUDA_DENSE_COPY_TILES
                        ? copy.values.tiles
                        : sglcuda_ceil_div(copy.values.count, copy.kind == SGLCUDA_DENSE_COPY_NIBBLES ? 2 : 1);
    int64_t blocks = copy.kind == SGLCUDA_DENSE_COPY_TILES ? items : sglcuda_ceil_div(items, SGLCUDA_DOT_THREADS);
    const sglcuda_grid grid = { .blocks = { blocks_for(blocks), 1, 1 }, .threads = { SGLCUDA_DOT_THREADS, 1, 1 } };
    return sglcuda_add_step(p, command, function, grid, places, 2, &copy.values, sizeof copy.values);
}

/* Where a product's arguments are read, and what it writes. bias: where it is biased. */
typedef struct product_places {
    sglcuda_place a, b, bias, c, work;
    bool biased;
} product_places;

/* ---- the library's route ----------------------------------------------------------------------------------------- */

typedef struct library_plan {
    sglcuda_command copies; /* run: NULL where there are none */
    sglcuda_place a, b, bias, c, work;
    int64_t size, result_size; /* bytes of an element */
    sglcuda_calls calls;
    sglcuda_matmul matmul;
} library_plan;

static sgl_status run_library(const sglcuda_launch *launch, const void *plan)
{
    const library_plan *l = plan;
    if (l->copies.run != NULL) SGLCORE_TRY(l->copies.run(launch, l->copies.plan));
    const CUdeviceptr a = sglcuda_at(launch, l->a), b = sglcuda_at(launch, l->b), c = sglcuda_at(launch, l->c);
    const CUdeviceptr work = sglcuda_at(launch, l->work);
    if (l->matmul.bias) SGLCORE_TRY(sglcuda_matmul_place_bias(launch, &l->matmul, sglcuda_at(launch, l->bias)));
    for (int64_t call = 0; call < l->calls.count; call++) {
        int64_t at[3];
        sglcuda_call_offsets(&l->calls, call, at);
        SGLCORE_TRY(sglcuda_matmul_run(launch, &l->matmul, a + (CUdeviceptr)(at[0] * l->size),
                                       b + (CUdeviceptr)(at[1] * l->size), c + (CUdeviceptr)(at[2] * l->result_size),
                                       work));
    }
    return SGL_OK;
}

/* Of all places where calls begin. */
static int64_t alignment_of_calls(sglcuda_place place, const sglcuda_calls *calls, const int64_t *strides, int64_t size)
{
    int64_t alignment = sglcuda_alignment(place.offset);
    for (int i = 0; i < calls->rank; i++) alignment = sglcuda_min(alignment, sglcuda_alignment(strides[i] * size));
    return alignment;
}

static sglcuda_matmul_shape shape_of(const sglcuda_product *product, const library_plan *l, bool biased)
{
    const sglcuda_calls *calls = &product->calls;
    return (sglcuda_matmul_shape){ .dtype = product->dtype,
                                   .result = product->result,
                                   .rows = product->rows,
                                   .columns = product->columns,
                                   .depth = product->depth,
                                   .a_row = product->a.free,
                                   .a_depth = product->a.contract,
                                   .b_depth = product->b.contract,
                                   .b_column = product->b.free,
                                   .bias = biased ? sglcuda_alignment(l->bias.offset) : 0,
                                   .run = calls->run,
                                   .run_a = calls->run_a,
                                   .run_b = calls->run_b,
                                   .run_c = calls->run_c,
                                   .a_alignment = alignment_of_calls(l->a, calls, calls->a, l->size),
                                   .b_alignment = alignment_of_calls(l->b, calls, calls->b, l->size),
                                   .c_alignment = alignment_of_calls(l->c, calls, calls->c, l->result_size),
                                   .work_bytes = product->library_bytes };
}

/* *taken: false where the library refuses; else the command so far, its copies, is part of the new one. */
static sgl_status prepare_library(sglcuda_prepare *p, const sglcuda_product *product, const product_places *places,
                                  sglcuda_command *command, bool *taken)
{
    library_plan *l = sglcuda_plan_alloc(p, 1, sizeof *l);
    if (l == NULL) return SGL_OUT_OF_MEMORY;
    *l = (library_plan){ .copies = *command,
                         .a = places->a,
                         .b = places->b,
                         .bias = places->bias,
                         .c = places->c,
                         .work = places->work,
                         .size = sglcore_dtype_bits(product->dtype) / 8,
                         .result_size = sglcore_dtype_bits(product->result) / 8,
                         .calls = product->calls };
    const sglcuda_matmul_shape shape = shape_of(product, l, places->biased);
    SGLCORE_TRY(sglcuda_matmul_find(p->device, &shape, &l->matmul, taken));
    if (*taken)
        *command = (sglcuda_command){ .run = run_library, .plan = l };
    else
        sglcore_log(p->env, SGL_LOG_INFO,
                    "cuda: cuBLASLt has no algorithm for %s [%lld,%lld] x [%lld,%lld]; a slower kernel takes it",
                    sgl_dtype_name(product->dtype), (long long)shape.rows, (long long)shape.depth,
                    (long long)shape.depth, (long long)shape.columns);
    return SGL_OK;
}

/* ---- the kernel's route ------------------------------------------------------------------------------------------ */

/* Integers without their signs: the same bits. */
static const char *kernel_name(const sglcuda_product *product, bool lines)
{
#define EITHER(dtype) (lines ? "dot_lines_" dtype : "dot_tiles_" dtype)
    bool wide = product->result != product->dtype;
    switch (product->dtype) {
    case SGL_F64: return "dot_tiles_f64";
    case SGL_F32: return "dot_tiles_f32";
    case SGL_BF16: return wide ? "dot_tiles_bf16_f32" : "dot_tiles_bf16";
    case SGL_F16: return wide ? "dot_tiles_f16_f32" : "dot_tiles_f16";
    case SGL_F8E4M3: return wide ? EITHER("f8e4m3_f32") : EITHER("f8e4m3");
    case SGL_F8E5M2: return wide ? EITHER("f8e5m2_f32") : EITHER("f8e5m2");
    case SGL_I64: return EITHER("i64");
    case SGL_I32:
    case SGL_U32: return EITHER("u32");
    case SGL_I16:
    case SGL_U16: return EITHER("u16");
    case SGL_I4: return EITHER("i4");
    default: return EITHER("u8");
    }
#undef EITHER
}

/* A sum for each block: of few rows or columns, which lie well for that. */
static bool makes_lines(const sglcuda_product *product)
{
    bool few = product->rows <= FEW_LINES || product->columns <= FEW_LINES;
    bool lie = product->a.contract == 1 && product->b.contract == 1;
    bool has_kernel = sglcore_dtype_bits(product->dtype) <= 8 || !sglcore_dtype_is_float(product->dtype);
    return few && lie && has_kernel && product->depth >= LINE_DEPTH;
}

static sgl_status prepare_kernel(sglcuda_prepare *p, const sglcuda_product *product, const product_places *places,
                                 sglcuda_command *command)
{
    sglcuda_calls batch;
    sglcuda_merge_batch(product, &batch);
    sglcuda_dot_values v = { .rows = product->rows,
                             .columns = product->columns,
                             .depth = product->depth,
                             .a_row = product->a.free,
                             .a_depth = product->a.contract,
                             .b_depth = product->b.contract,
                             .b_column = product->b.free,
                             .row_tiles = sglcuda_ceil_div(product->rows, SGLCUDA_DOT_TILE),
                             .column_tiles = sglcuda_ceil_div(product->columns, SGLCUDA_DOT_TILE),
                             .batch_rank = batch.rank };
    for (int i = 0; i < batch.rank; i++) {
        v.batch_extent[i] = batch.extent[i];
        v.batch_a[i] = batch.a[i];
        v.batch_b[i] = batch.b[i];
    }
    const bool lines = !places->biased && makes_lines(product);
    const sglcuda_place pointers[] = { places->a, places->b, places->c, places->bias };
    v.items = product->batch * (lines ? v.rows * v.columns : v.row_tiles * v.column_tiles);
    const sglcuda_function *function;
    const char *biased = product->dtype == SGL_BF16 ? "dot_biased_bf16" : "dot_biased_f16";
    SGLCORE_TRY(sglcuda_builtin(p, places->biased ? biased : kernel_name(product, lines), &function));
    const sglcuda_grid grid = { .blocks = { blocks_for(v.items), 1, 1 }, .threads = { SGLCUDA_DOT_THREADS, 1, 1 } };
    return sglcuda_add_step(p, command, function, grid, pointers, places->biased ? 4 : 3, &v, sizeof v);
}

/* ---- the instruction --------------------------------------------------------------------------------------------- */

/* The copies that arguments need, and where the product finds all it takes. */
static sgl_status place_all(sglcuda_prepare *p, const sglexec_instruction *i, const sglcuda_product *product,
                            sglcuda_command *command, product_places *places)
{
    const sglexec_operand *operands = sglcuda_operand(p->program, i, 0);
    const int64_t first = sglcuda_round_up(i->work_offset, SGLCUDA_PRODUCT_ALIGNMENT);
    const sglexec_operand *a = &operands[product->exchanged ? 1 : 0], *b = &operands[product->exchanged ? 0 : 1];
    places->c = sglcuda_place_of(&operands[i->arg_count]);
    places->work = (sglcuda_place){ .space = SGLIR_SPACE_ARENA, .offset = first + product->library_at };
    places->biased = i->arg_count == 3;
    places->bias = places->biased ? sglcuda_place_of(&operands[2]) : places->c;
    SGLCORE_TRY(place_factor(p, command, &product->a, a, first, &places->a));
    return place_factor(p, command, &product->b, b, first, &places->b);
}

/* Of nothing: zeros, which a bias would have to be added to; `join` makes no such linear. */
static sgl_status prepare_zeros(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *result = sglcuda_operand(p->program, i, i->arg_count);
    if (i->arg_count == 3) return sglcore_fail(p->env, SGL_INTERNAL, "cuda: a linear over no elements");
    return sglcuda_add_zeros(p, command, sglcuda_place_of(result), sglcuda_bytes(result));
}

sgl_status sglcuda_prepare_dot(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    sglcuda_product product;
    product_places places;
    bool taken = false;
    plan_instruction(p, i, &product);
    if (product.work_bytes > i->work_bytes) {
        return sglcore_fail(p->env, SGL_INTERNAL, "cuda: dot needs %lld bytes of workspace and was given %lld",
                            (long long)product.work_bytes, (long long)i->work_bytes);
    }
    if (product.route == SGLCUDA_ROUTE_ZEROS) return prepare_zeros(p, i, command);
    SGLCORE_TRY(place_all(p, i, &product, command, &places));
    if (product.route == SGLCUDA_ROUTE_LIBRARY) SGLCORE_TRY(prepare_library(p, &product, &places, command, &taken));
    return taken ? SGL_OK : prepare_kernel(p, &product, &places, command);
}
