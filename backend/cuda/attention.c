/* attention.c -- attention and its gradient without the score matrix: which kernels, over which grid.
 *
 * In: an ATTENTION or ATTENTION_GRAD instruction. Out: a command of one launch, or of three: deltas, gradients of the queries, gradients of
 * keys and values. Odd invariant: what is launched follows from dtypes and extents alone, never from the device. */
#include <stdio.h>

#include "backend/cuda/attention.h"

enum {
    MOST_BLOCKS = 1 << 30, /* of a grid; its blocks take the tasks in turn */
    DELTA_THREADS = 128,   /* a warp for each row: enough blocks for small batches, few enough for large ones */
    DELTA_ROWS = DELTA_THREADS / 32,
    NAME_ROOM = 48
};

void sglcuda_heads_of(const sglexec_program *program, const sglexec_instruction *i, uint32_t offset, sglcuda_heads *a)
{
    a->q = sglcuda_operand(program, i, 0);
    a->k = a->q + 1;
    a->v = a->q + 2;
    a->offset = a->q + offset;
    const bool segmented = i->arg_count > offset + 1;
    a->query_segments = a->offset + (segmented ? 1 : 0);
    a->key_segments = a->offset + (segmented ? 2 : 0);
    a->dtype = (sgl_dtype)a->q->dtype;
    a->wide = a->dtype == SGL_F64 ? SGL_F64 : SGL_F32;
    a->values = (sgl_attention){ .b = a->q->dims[0],
                                 .t = a->q->dims[1],
                                 .h = a->q->dims[2],
                                 .d = a->q->dims[3],
                                 .s = a->k->dims[1],
                                 .g = a->k->dims[2],
                                 .e = a->v->dims[3],
                                 .window = sglexec_attr_int(program, i, "window"),
                                 .scale = sglexec_attr_float(program, i, "scale"),
                                 .causal = sglexec_attr_int(program, i, "causal") != 0,
                                 .segmented = segmented };
}

/* Columns of the kernels on tensor cores that take these heads: 64 or 128, or 0 for the plain ones. A head's row is copied 16 bytes
 * at a time; softmax by powers of two takes a scale above 0. */
static int tensor_columns(const sglcuda_heads *a, const sglexec_operand *const *copied, int count)
{
    const sgl_attention *x = &a->values;
    const int64_t widest = sglcuda_max(x->d, x->e);
    if (a->dtype != SGL_BF16 && a->dtype != SGL_F16) return 0;
    if (x->d % 8 != 0 || x->e % 8 != 0 || x->d == 0 || x->e == 0 || widest > 128 || !((float)x->scale > 0)) return 0;
    if (x->t > SGL_TENSOR_EXTENT || x->s > SGL_TENSOR_EXTENT || x->window > SGL_TENSOR_EXTENT) return 0;
    for (int i = 0; i < count; i++)
        if (copied[i]->offset % 16 != 0) return 0;
    return widest <= 64 ? 64 : 128;
}

static int64_t tiles_of(int64_t extent) { return sglcuda_ceil_div(extent, SGL_ATTENTION_TILE); }

/* Kernel <name>_<dtype>, a block for each of so many tasks. */
static sgl_status add_tasks(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_heads *a, const char *name,
                            int64_t tasks, sglcuda_grid grid, const sglcuda_place *places, int place_count)
{
    char full[NAME_ROOM];
    const sglcuda_function *function;
    sgl_attention values = a->values;
    values.tasks = tasks;
    grid.blocks[0] = (unsigned)sglcuda_min(tasks, MOST_BLOCKS);
    grid.blocks[1] = grid.blocks[2] = grid.threads[1] = grid.threads[2] = 1;
    (void)snprintf(full, sizeof full, "%s_%s", name, sgl_dtype_name(a->dtype));
    SGLCORE_TRY(sglcuda_builtin(p, full, &function));
    return sglcuda_add_step(p, command, function, grid, places, place_count, &values, sizeof values);
}

static sglcuda_grid plain_grid(const sglcuda_heads *a)
{
    const int64_t elements = SGL_ATTENTION_STAGE + SGL_ATTENTION_WEIGHTS;
    return (sglcuda_grid){ .threads[0] = SGL_ATTENTION_THREADS,
                           .shared = (unsigned)sglcore_dtype_bytes(a->wide, elements) };
}

/* Tiles of queries, and two of keys and of values each. */
static sglcuda_grid tensor_grid(int columns)
{
    return (sglcuda_grid){ .threads[0] = columns == 64 ? SGL_TENSOR_THREADS_64 : SGL_TENSOR_THREADS_128,
                           .shared = (unsigned)((SGL_TENSOR_QUERIES + 4 * SGL_TENSOR_KEYS) * columns * 2) };
}

sgl_status sglcuda_prepare_attention(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    sglcuda_heads a;
    sglcuda_heads_of(p->program, i, 3, &a);
    const sglexec_operand *out = sglcuda_operand(p->program, i, i->arg_count);
    const sglexec_operand *const copied[] = { a.q, a.k, a.v, out };
    const int columns = tensor_columns(&a, copied, 4);
    const sglcuda_place places[] = { sglcuda_place_of(a.q),
                                     sglcuda_place_of(a.k),
                                     sglcuda_place_of(a.v),
                                     sglcuda_place_of(a.offset),
                                     sglcuda_place_of(a.query_segments),
                                     sglcuda_place_of(a.key_segments),
                                     sglcuda_place_of(out),
                                     sglcuda_place_of(out + 1) };
    if (columns > 0)
        return add_tasks(p, command, &a, columns == 64 ? "attention_tensor_64" : "attention_tensor_128",
                         a.values.b * a.values.h * sglcuda_ceil_div(a.values.t, SGL_TENSOR_QUERIES),
                         tensor_grid(columns), places, 8);
    const int64_t tasks = a.values.b * a.values.h * tiles_of(a.values.t) * sglcuda_max(tiles_of(a.values.e), 1);
    return add_tasks(p, command, &a, "attention", tasks, plain_grid(&a), places, 8);
}

/* dout [b, t, h, e] and delta [b, h, t], which lies in the workspace. */
static sgl_status add_deltas(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_heads *a)
{
    const sglcuda_place places[] = { sglcuda_place_of(a->q + 3), sglcuda_place_of(a->q + 5),
                                     sglcuda_work_place(p->instruction, 0) };
    const int64_t rows = a->values.b * a->values.h * a->values.t;
    const sglcuda_grid grid = { .threads[0] = DELTA_THREADS };
    return add_tasks(p, command, a, "attention_deltas", sglcuda_ceil_div(rows, DELTA_ROWS), grid, places, 3);
}

sgl_status sglcuda_prepare_attention_grad(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    sglcuda_heads a;
    sglcuda_heads_of(p->program, i, 6, &a);
    const sgl_attention *x = &a.values;
    const sglexec_operand *dq = sglcuda_operand(p->program, i, i->arg_count);
    sglcuda_place places[] = { sglcuda_place_of(a.q),
                               sglcuda_place_of(a.k),
                               sglcuda_place_of(a.v),
                               sglcuda_place_of(a.q + 5),
                               sglcuda_place_of(a.q + 4),
                               sglcuda_work_place(i, 0),
                               sglcuda_place_of(a.offset),
                               sglcuda_place_of(a.query_segments),
                               sglcuda_place_of(a.key_segments),
                               sglcuda_place_of(dq),
                               sglcuda_place_of(dq) };
    const int64_t widest = sglcuda_max(x->d, x->e);
    SGLCORE_TRY(add_deltas(p, command, &a));
    SGLCORE_TRY(add_tasks(p, command, &a, "attention_queries", x->b * x->h * tiles_of(x->t) * tiles_of(x->d),
                          plain_grid(&a), places, 10));
    places[9] = sglcuda_place_of(dq + 1);
    places[10] = sglcuda_place_of(dq + 2);
    return add_tasks(p, command, &a, "attention_keys", x->b * x->g * tiles_of(x->s) * tiles_of(widest), plain_grid(&a),
                     places, 11);
}

int64_t sglcuda_attention_grad_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *lse = sglir_type_of(g, sglir_arg(g, node, 4));
    return sglcore_dtype_bytes((sgl_dtype)lse->dtype, sglir_elements(lse));
}
