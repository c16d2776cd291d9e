/* attention.c -- attention and its gradient without the score matrix: which kernels, over which grid.
 *
 * In: an ATTENTION or ATTENTION_GRAD instruction. Out: a command of a few launches. Narrow floats go by groups of four
 * warps on compute capability 9.0, by warps elsewhere; other dtypes and widths by plain kernels; few queries of many
 * keys by kernels that cut the keys. Odd invariant: the order of sums follows from dtypes, extents and the compute
 * capability alone, never from how many processors there are. */
#include <stdio.h>

#include "backend/cuda/attention.h"

enum {
    MOST_BLOCKS = 1 << 30, /* of a grid; its blocks take the tasks in turn */
    DELTA_THREADS = 128,   /* a warp for each row: enough blocks for small batches, few enough for large ones */
    DELTA_ROWS = DELTA_THREADS / 32,
    NAME_ROOM = 48,
    /* Heads whose tasks are dealt together: what they read stays in the GPU's cache. Where all queries see all keys,
     * blocks of keys wait for one another from their first tile on, and more heads beside them leave more time. */
    HEADS_TOGETHER = 8,
    HEADS_TOGETHER_WHOLE = 32,
    WORK_ALIGNMENT = 256
};
static const int64_t SEQUENCE_MOST = (int64_t)1 << 38; /* numbers */

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

/* Columns of the kernels on tensor cores that take these heads: 64 or 128, or 0 for the plain ones. A head's row is
 * copied 16 bytes at a time; softmax by powers of two takes a scale above 0. */
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

/* Groups of four warps are there on compute capability 9.0 alone; their tasks are counted in 32 bits, and a sequence's
 * bytes in fewer than 40 (SEQUENCE_MOST). */
static bool by_groups(const sglexec_device *device, const sglcuda_heads *a, int columns)
{
    const sgl_attention *x = &a->values;
    if (columns == 0 || device->major != 9 || device->minor != 0) return false;
    if (x->b <= 0 || x->h <= 0 || x->t <= 0 || x->s <= 0) return false;
    const int64_t longest = sglcuda_max(x->t, x->s);
    return longest <= SEQUENCE_MOST / x->h / columns && x->b < MOST_BLOCKS / (longest / SGL_GROUP_KEYS + 1) / x->h;
}

/* A tensor of so many rows and heads, as copies of the groups take it. */
static sglcuda_map map_of(const sglcuda_heads *a, const sglexec_operand *operand, int box_rows)
{
    const int64_t *dims = operand->dims;
    return (sglcuda_map){ .place = sglcuda_place_of(operand),
                          .dtype = a->dtype,
                          .sequences = dims[0],
                          .rows = dims[1],
                          .heads = dims[2],
                          .width = dims[3],
                          .box_rows = box_rows };
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

/* ---- few queries over many keys ---------------------------------------------------------------------------------- */

/* From where on a second launch costs less than keys that go through one block. */
enum { FEW_KEYS_LEAST = 2 * SGL_FEW_KEYS };

static bool few_queries(const sglcuda_heads *a)
{
    const sgl_attention *x = &a->values;
    return x->t > 0 && x->t <= SGL_FEW_QUERIES && x->s >= FEW_KEYS_LEAST && x->d > 0 && x->e > 0 && x->d % 8 == 0 &&
           x->e % 8 == 0 && sglcuda_max(x->d, x->e) <= SGL_FEW_COLUMNS;
}

static int64_t few_tasks(const sgl_attention *x)
{
    return x->b * x->g * sglcuda_ceil_div(x->t * (x->h / x->g), SGL_FEW_ROWS) * sglcuda_ceil_div(x->s, SGL_FEW_KEYS);
}
/* Of each task sums, greatest scores and totals. */
static int64_t few_work(const sglcuda_heads *a)
{
    return sglcore_dtype_bytes(a->wide, few_tasks(&a->values) * SGL_FEW_ROWS * (a->values.e + 2));
}

/* places: q, k, v, offset, segments; out and lse are bound by the second launch. */
static sgl_status add_few(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_heads *a,
                          const sglcuda_place *places, const sglexec_operand *out, sglcuda_place parts)
{
    char join[NAME_ROOM];
    const sglcuda_function *function;
    sgl_attention values = a->values;
    const int64_t weights = SGL_FEW_ROWS * SGL_FEW_KEYS, sums = SGL_FEW_THREADS / 32 * SGL_FEW_ROWS * values.e;
    const sglcuda_grid grid = { .threads[0] = SGL_FEW_THREADS,
                                .shared = (unsigned)sglcore_dtype_bytes(a->wide, weights + sums) };
    const sglcuda_place first[] = { places[0], places[1], places[2], places[3], places[4], places[5], parts };
    const sglcuda_place second[] = { parts, sglcuda_place_of(out), sglcuda_place_of(out + 1) };
    values.tasks = few_tasks(&values);
    SGLCORE_TRY(add_tasks(p, command, a, "attention_few", values.tasks, grid, first, 7));
    const sglcuda_grid rows = { .blocks = { (unsigned)sglcuda_min(values.b * values.t * values.h, MOST_BLOCKS), 1, 1 },
                                .threads = { SGL_FEW_THREADS_JOIN, 1, 1 } };
    (void)snprintf(join, sizeof join, "attention_few_join_%s", sgl_dtype_name(a->dtype));
    SGLCORE_TRY(sglcuda_builtin(p, join, &function));
    return sglcuda_add_step(p, command, function, rows, second, 3, &values, sizeof values);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

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

/* A block for each processor, which takes tasks as they are dealt: kernel <name>_<columns>_<dtype>. */
static sgl_status add_dealt_tasks(sglcuda_prepare *p, sglcuda_command *command, const sglcuda_heads *a,
                                  const char *name, int64_t tasks, int64_t together, int columns, int64_t shared,
                                  const sglcuda_place *places, int place_count, const sglcuda_map *maps, int map_count)
{
    char full[NAME_ROOM];
    const sglcuda_function *function;
    sgl_attention values = a->values;
    values.tasks = tasks;
    values.together = sglcuda_max(1, together);
    const sglcuda_grid grid = { .blocks = { (unsigned)sglcuda_min(tasks, p->device->processors), 1, 1 },
                                .threads = { SGL_GROUP_THREADS, 1, 1 },
                                .shared = (unsigned)shared };
    (void)snprintf(full, sizeof full, "%s_%d_%s", name, columns, sgl_dtype_name(a->dtype));
    SGLCORE_TRY(sglcuda_builtin(p, full, &function));
    return sglcuda_add_mapped_step(p, command, function, grid, places, place_count, maps, map_count, &values,
                                   sizeof values);
}

sgl_status sglcuda_prepare_attention(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    sglcuda_heads a;
    sglcuda_heads_of(p->program, i, 3, &a);
    SGLCORE_TRY(sglcuda_attention_by_cudnn(p, i, &a, command));
    if (command->run) return SGL_OK;
    const sglexec_operand *out = sglcuda_operand(p->program, i, i->arg_count);
    const sglexec_operand *const copied[] = { a.q, a.k, a.v, out };
    const bool aligned = a.q->offset % 16 == 0 && a.k->offset % 16 == 0 && a.v->offset % 16 == 0;
    const int columns = tensor_columns(&a, copied, 4);
    const sglcuda_place places[] = { sglcuda_place_of(a.q),
                                     sglcuda_place_of(a.k),
                                     sglcuda_place_of(a.v),
                                     sglcuda_place_of(a.offset),
                                     sglcuda_place_of(a.query_segments),
                                     sglcuda_place_of(a.key_segments),
                                     sglcuda_place_of(out),
                                     sglcuda_place_of(out + 1),
                                     sglcuda_work_place(i, 0) };
    if (aligned && few_queries(&a)) return add_few(p, command, &a, places, out, places[8]);
    const int64_t blocks = a.values.b * a.values.h * sglcuda_ceil_div(a.values.t, SGL_TENSOR_QUERIES);
    if (by_groups(p->device, &a, columns)) {
        SGLCORE_TRY(sglcuda_add_zeros(p, command, places[8], SGLCUDA_ATTENTION_COUNTER));
        const sglcuda_map maps[] = { map_of(&a, a.q, SGL_GROUP_QUERIES), map_of(&a, a.k, SGL_GROUP_KEYS),
                                     map_of(&a, a.v, SGL_GROUP_KEYS) };
        return add_dealt_tasks(p, command, &a, "attention_group", blocks, HEADS_TOGETHER, columns,
                               SGL_GROUP_SHARED(columns), places + 3, 6, maps, 3);
    }
    if (columns > 0)
        return add_tasks(p, command, &a, columns == 64 ? "attention_tensor_64" : "attention_tensor_128", blocks,
                         tensor_grid(columns), places, 8);
    const int64_t tasks = a.values.b * a.values.h * tiles_of(a.values.t) * sglcuda_max(tiles_of(a.values.e), 1);
    return add_tasks(p, command, &a, "attention", tasks, plain_grid(&a), places, 8);
}

/* The three launches of a gradient: their names, tasks and grids. */
typedef struct gradient {
    const char *deltas, *queries, *keys;
    int64_t delta_tasks, query_tasks, key_tasks;
    sglcuda_grid delta_grid, query_grid, key_grid;
} gradient;

static gradient plain_gradient(const sglcuda_heads *a)
{
    const sgl_attention *x = &a->values;
    return (gradient){ .deltas = "attention_deltas",
                       .queries = "attention_queries",
                       .keys = "attention_keys",
                       .delta_tasks = sglcuda_ceil_div(x->b * x->h * x->t, DELTA_ROWS),
                       .query_tasks = x->b * x->h * tiles_of(x->t) * tiles_of(x->d),
                       .key_tasks = x->b * x->g * tiles_of(x->s) * tiles_of(sglcuda_max(x->d, x->e)),
                       .delta_grid = { .threads[0] = DELTA_THREADS },
                       .query_grid = plain_grid(a),
                       .key_grid = plain_grid(a) };
}

static gradient tensor_gradient(const sglcuda_heads *a, int columns)
{
    const sgl_attention *x = &a->values;
    const bool slim = columns == 64;
    const int keys = slim ? SGL_TENSOR_KEYS_BACK_64 : SGL_TENSOR_KEYS_BACK_128;
    const int rows = slim ? SGL_TENSOR_ROWS_64 : SGL_TENSOR_ROWS_128;
    const int queries = SGL_TENSOR_QUERIES_BACK, delta_rows = SGL_TENSOR_THREADS_DELTAS * 8 / columns;
    const int stats = 2 * 2 * queries * 4; /* logs of sums and deltas, of two tiles */
    return (gradient){ .deltas = slim ? "attention_tensor_deltas_64" : "attention_tensor_deltas_128",
                       .queries = slim ? "attention_tensor_queries_64" : "attention_tensor_queries_128",
                       .keys = slim ? "attention_tensor_keys_64" : "attention_tensor_keys_128",
                       .delta_tasks = sglcuda_ceil_div(x->b * x->h * x->t, delta_rows),
                       .query_tasks = x->b * x->h * sglcuda_ceil_div(x->t, SGL_TENSOR_QUERIES),
                       .key_tasks = x->b * x->g * sglcuda_ceil_div(x->s, rows),
                       .delta_grid = { .threads[0] = SGL_TENSOR_THREADS_DELTAS },
                       .query_grid = { .threads[0] = slim ? SGL_TENSOR_THREADS_64 : SGL_TENSOR_THREADS_128,
                                       .shared = (unsigned)((2 * SGL_TENSOR_QUERIES + 4 * keys) * columns * 2) },
                       .key_grid = { .threads[0] = SGL_TENSOR_THREADS_KEYS,
                                     .shared = (unsigned)((2 * rows + 4 * queries) * columns * 2 + stats) } };
}

/* What a gradient by groups keeps in its workspace, in bytes from its beginning: counters, deltas and logs of sums to
 * the base 2 of each query, sums of dq in f32 in tiles. */
typedef struct group_work {
    int64_t counters, deltas, logs, sums, sums_bytes;
} group_work;

static group_work group_work_of(const sgl_attention *x, int columns)
{
    const int passing = SGL_GROUP_PASSING(columns);
    const int64_t tiles = x->b * x->h * sglcuda_ceil_div(x->t, passing), numbers = tiles * passing * 4;
    group_work w = { .sums_bytes = tiles * passing * columns * 4 };
    w.deltas = sglcuda_round_up((SGL_GROUP_COUNTERS + tiles) * 4, WORK_ALIGNMENT);
    w.logs = sglcuda_round_up(w.deltas + numbers, WORK_ALIGNMENT);
    w.sums = sglcuda_round_up(w.logs + numbers, WORK_ALIGNMENT);
    return w;
}

/* Three launches: deltas, gradients, and dq from its sums. places: as of the other kernels for keys. */
static sgl_status add_group_gradient(sglcuda_prepare *p, sglcuda_command *command, const sglexec_instruction *i,
                                     const sglcuda_heads *a, int columns, const sglexec_operand *dq)
{
    const sgl_attention *x = &a->values;
    const group_work w = group_work_of(x, columns);
    const sglcuda_place counters = sglcuda_work_place(i, w.counters), deltas = sglcuda_work_place(i, w.deltas),
                        logs = sglcuda_work_place(i, w.logs), sums = sglcuda_work_place(i, w.sums),
                        offset = sglcuda_place_of(a->offset), dout = sglcuda_place_of(a->q + 5);
    const sglcuda_place products[] = {
        sglcuda_place_of(a->q + 3), dout, sglcuda_place_of(a->q + 4), deltas, logs, counters
    };
    const sglcuda_place places[] = { logs,
                                     deltas,
                                     offset,
                                     sglcuda_place_of(a->query_segments),
                                     sglcuda_place_of(a->key_segments),
                                     sglcuda_place_of(dq + 1),
                                     sglcuda_place_of(dq + 2),
                                     sums,
                                     counters };
    const int passing = SGL_GROUP_PASSING(columns);
    const sglcuda_map maps[] = { map_of(a, a->q, passing), map_of(a, a->k, SGL_GROUP_KEYS),
                                 map_of(a, a->v, SGL_GROUP_KEYS), map_of(a, a->q + 5, passing) };
    const sglcuda_place ends[] = { sums, offset, sglcuda_place_of(dq) };
    const bool slim = columns == 64;
    if (x->segmented) SGLCORE_TRY(sglcuda_add_zeros(p, command, sums, w.sums_bytes));
    SGLCORE_TRY(add_tasks(p, command, a, slim ? "attention_group_deltas_64" : "attention_group_deltas_128",
                          sglcuda_ceil_div(x->b * x->h * x->t, SGL_TENSOR_THREADS_DELTAS * 8 / columns),
                          (sglcuda_grid){ .threads[0] = SGL_TENSOR_THREADS_DELTAS }, products, 6));
    SGLCORE_TRY(add_dealt_tasks(p, command, a, "attention_group_grad",
                                x->b * x->g * sglcuda_ceil_div(x->s, SGL_GROUP_KEYS),
                                x->causal ? HEADS_TOGETHER : HEADS_TOGETHER_WHOLE, columns,
                                SGL_GROUP_SHARED_GRAD(columns), places, 9, maps, 4));
    return add_tasks(p, command, a, slim ? "attention_group_finish_64" : "attention_group_finish_128",
                     x->b * x->h * sglcuda_ceil_div(x->t, passing),
                     (sglcuda_grid){ .threads[0] = SGL_GROUP_THREADS_FINISH }, ends, 3);
}

/* Arguments: q, k, v, out, lse, dout, offset. Delta, sums of out * dout, [b, h, t], lies in the workspace. */
sgl_status sglcuda_prepare_attention_grad(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    sglcuda_heads a;
    sglcuda_heads_of(p->program, i, 6, &a);
    const sglexec_operand *out = a.q + 3, *lse = a.q + 4, *dout = a.q + 5,
                          *dq = sglcuda_operand(p->program, i, i->arg_count);
    const sglexec_operand *const copied[] = { a.q, a.k, a.v, out, dout, dq, dq + 1, dq + 2 };
    const int columns = tensor_columns(&a, copied, 8);
    if (by_groups(p->device, &a, columns)) return add_group_gradient(p, command, i, &a, columns, dq);
    const gradient g = columns > 0 ? tensor_gradient(&a, columns) : plain_gradient(&a);
    const sglcuda_place delta = sglcuda_work_place(i, 0);
    const sglcuda_place products[] = { sglcuda_place_of(out), sglcuda_place_of(dout), delta };
    sglcuda_place places[] = { sglcuda_place_of(a.q),
                               sglcuda_place_of(a.k),
                               sglcuda_place_of(a.v),
                               sglcuda_place_of(dout),
                               sglcuda_place_of(lse),
                               delta,
                               sglcuda_place_of(a.offset),
                               sglcuda_place_of(a.query_segments),
                               sglcuda_place_of(a.key_segments),
                               sglcuda_place_of(dq),
                               sglcuda_place_of(dq) };
    SGLCORE_TRY(add_tasks(p, command, &a, g.deltas, g.delta_tasks, g.delta_grid, products, 3));
    SGLCORE_TRY(add_tasks(p, command, &a, g.queries, g.query_tasks, g.query_grid, places, 10));
    places[9] = sglcuda_place_of(dq + 1);
    places[10] = sglcuda_place_of(dq + 2);
    return add_tasks(p, command, &a, g.keys, g.key_tasks, g.key_grid, places, 11);
}

/* Of a node: its shapes, without places. */
static sglcuda_heads heads_of_node(const sglir_graph *g, const sglir_node *node, uint32_t offset)
{
    const sglir_type *q = sglir_type_of(g, sglir_arg(g, node, 0)), *k = sglir_type_of(g, sglir_arg(g, node, 1)),
                     *v = sglir_type_of(g, sglir_arg(g, node, 2));
    return (sglcuda_heads){ .dtype = (sgl_dtype)q->dtype,
                            .wide = q->dtype == SGL_F64 ? SGL_F64 : SGL_F32,
                            .values = { .b = q->dims[0],
                                        .t = q->dims[1],
                                        .h = q->dims[2],
                                        .d = q->dims[3],
                                        .s = k->dims[1],
                                        .g = k->dims[2],
                                        .e = v->dims[3],
                                        .window = sglir_attr_int(g, node, "window"),
                                        .scale = sglir_attr_float(g, node, "scale"),
                                        .causal = sglir_attr_int(g, node, "causal") != 0,
                                        .segmented = node->arg_count > offset + 1 } };
}

int64_t sglcuda_attention_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglcuda_heads a = heads_of_node(g, node, 3);
    const int64_t counter = tensor_columns(&a, NULL, 0) > 0 ? SGLCUDA_ATTENTION_COUNTER : 0;
    return sglcuda_max(few_queries(&a) ? few_work(&a) : counter, sglcuda_attention_cudnn_workspace(&a));
}

int64_t sglcuda_attention_grad_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *lse = sglir_type_of(g, sglir_arg(g, node, 4));
    const sglcuda_heads a = heads_of_node(g, node, 6);
    const int columns = tensor_columns(&a, NULL, 0);
    const int64_t deltas = sglcore_dtype_bytes((sgl_dtype)lse->dtype, sglir_elements(lse));
    if (columns == 0) return deltas;
    const group_work w = group_work_of(&a.values, columns);
    return sglcuda_max(deltas, w.sums + w.sums_bytes);
}
