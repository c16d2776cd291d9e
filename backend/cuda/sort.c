/* sort.c -- sort and top_k: each line's keys in order, its values and where each stood.
 *
 * In: a line of any dtype, anywhere in a tensor. Out: launches of the kernels of sort.cu: one for lines that fit a
 * block, three for each byte of the key for longer ones, however many lines there are. Workspace holds keys and places
 * twice, and counts. Odd invariant: a key has as many bits as the element, so that narrow dtypes take few passes. */
#include "backend/cuda/kernels/sort.h"
#include "backend/cuda/order.h"

/* ---- an order in workspace ------------------------------------------------------------------------------------- */

enum { ALIGNED = 256, MOST = INT32_MAX };

/* Bits of a key; of rows as many as they need. */
static int key_bits(const sglcuda_order *o)
{
    if (o->rows < 0) return sglcore_dtype_bits(o->dtype);
    int bits = 1;
    while (bits < 32 && o->rows >> bits != 0) bits++;
    return bits;
}

static int64_t key_bytes(const sglcuda_order *o) { return key_bits(o) > 32 ? 8 : 4; }
static bool few(const sglcuda_order *o) { return o->lines.extent <= SGLCUDA_ORDER_FEW; }
static int64_t tiles_of(const sglcuda_order *o) { return sglcuda_ceil_div(o->lines.extent, SGLCUDA_ORDER_TILE); }

/* Bytes of the workspace, from its beginning. */
typedef struct order_parts {
    int64_t keys[2], places[2], counts, totals, end;
} order_parts;

static int64_t part(int64_t *end, int64_t bytes)
{
    int64_t at = *end;
    *end += sglcuda_round_up(bytes, ALIGNED);
    return at;
}

static order_parts parts_of(const sglcuda_order *o)
{
    order_parts w = { 0 };
    int64_t lines = o->lines.outer * o->lines.inner, entries = lines * o->lines.extent;
    for (int side = 0; side < (few(o) ? 1 : 2); side++) {
        w.keys[side] = part(&w.end, entries * key_bytes(o));
        w.places[side] = part(&w.end, entries * 4);
    }
    if (few(o)) return w;
    w.counts = part(&w.end, lines * SGLCUDA_ORDER_DIGITS * tiles_of(o) * 4);
    w.totals = part(&w.end, lines * SGLCUDA_ORDER_DIGITS * 4);
    return w;
}

int64_t sglcuda_order_workspace(const sglcuda_order *order) { return parts_of(order).end; }

sgl_status sglcuda_check_workspace(sglcuda_prepare *p, const sglexec_instruction *i, int64_t needed)
{
    if (needed <= i->work_bytes) return SGL_OK;
    return sglcore_fail(p->env, SGL_INTERNAL, "cuda: %s needs %lld bytes of workspace and was given %lld",
                        sglir_ops[i->op].name, (long long)needed, (long long)i->work_bytes);
}

/* The largest magnitude that is no NaN, of a float's code. */
static unsigned long long infinity_of(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F64: return 0x7ff0000000000000ull;
    case SGL_F32: return 0x7f800000u;
    case SGL_BF16: return 0x7f80u;
    case SGL_F16: return 0x7c00u;
    case SGL_F8E5M2: return 0x7cu;
    default: return 0x7eu; /* f8e4m3, which has no infinity */
    }
}

static sglcuda_order_values values_of(const sglcuda_order *o)
{
    sglcuda_order_values v = { .lines = o->lines.outer * o->lines.inner,
                               .extent = o->lines.extent,
                               .inner = o->lines.inner,
                               .infinity = infinity_of(o->dtype),
                               .rows = o->rows,
                               .bits = sglcore_dtype_bits(o->dtype),
                               .index_kind = sglcuda_index_kind(o->dtype),
                               .descending = o->descending,
                               .tiles = tiles_of(o) };
    v.kind = sglcore_dtype_is_float(o->dtype)    ? SGLCUDA_KEY_FLOAT
             : sglcore_dtype_is_signed(o->dtype) ? SGLCUDA_KEY_SIGNED
                                                 : SGLCUDA_KEY_UNSIGNED;
    if (o->rows >= 0) v.kind = SGLCUDA_KEY_ROW;
    for (v.room = 1; v.room < v.extent && v.room < SGLCUDA_ORDER_FEW;) v.room *= 2;
    v.lines_block = (int)sglcuda_max(sglcuda_min(SGLCUDA_ORDER_FEW / v.room, v.lines), 1);
    return v;
}

/* A pass for each byte of the key; side: where the entries are, and are at the end. */
static sgl_status add_passes(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                             sglcuda_order_values v, int key_bits, const order_parts *w, int64_t at, int *side)
{
    const sglcuda_function *count, *sum, *place;
    const sglcuda_grid tiles = sglcuda_grid_over(v.lines * v.tiles, 1, SGLCUDA_ORDER_THREADS);
    const sglcuda_grid digits = sglcuda_grid_over(v.lines * SGLCUDA_ORDER_DIGITS, 1, SGLCUDA_ORDER_THREADS);
    const sglcuda_place counts = sglcuda_work_place(i, at + w->counts), totals = sglcuda_work_place(i, at + w->totals);
    const int bits = key_bits > 32 ? 64 : 32;
    SGLCORE_TRY(sglcuda_sized(p, "order_count", bits, &count));
    SGLCORE_TRY(sglcuda_builtin(p, "order_sum", &sum));
    SGLCORE_TRY(sglcuda_sized(p, "order_place", bits, &place));
    for (v.shift = 0; v.shift < key_bits; v.shift += 8) {
        const int next = 1 - *side;
        const sglcuda_place keys = sglcuda_work_place(i, at + w->keys[*side]);
        const sglcuda_place counted[] = { keys, counts }, summed[] = { counts, totals };
        const sglcuda_place placed[] = { keys,
                                         sglcuda_work_place(i, at + w->places[*side]),
                                         sglcuda_work_place(i, at + w->keys[next]),
                                         sglcuda_work_place(i, at + w->places[next]),
                                         counts,
                                         totals };
        SGLCORE_TRY(sglcuda_add_step(p, command, count, tiles, counted, 2, &v, sizeof v));
        SGLCORE_TRY(sglcuda_add_step(p, command, sum, digits, summed, 2, &v, sizeof v));
        SGLCORE_TRY(sglcuda_add_step(p, command, place, tiles, placed, 6, &v, sizeof v));
        *side = next;
    }
    return SGL_OK;
}

sgl_status sglcuda_add_order(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                             const sglcuda_order *order, sglcuda_place from, int64_t at, sglcuda_ordered *result)
{
    const order_parts w = parts_of(order);
    const sglcuda_order_values v = values_of(order);
    const int bits = key_bits(order);
    const sglcuda_function *function;
    int side = 0;
    if (order->lines.extent > MOST || order->rows > MOST)
        return sglcore_fail(p->env, SGL_UNSUPPORTED,
                            "cuda: %s sorts lines, or goes to rows, of up to %d; here are %lld", sglir_ops[i->op].name,
                            MOST, (long long)sglcuda_max(order->lines.extent, order->rows));
    SGLCORE_TRY(sglcuda_check_workspace(p, i, at + w.end));
    const sglcuda_place places[] = { from, sglcuda_work_place(i, at + w.keys[0]),
                                     sglcuda_work_place(i, at + w.places[0]) };
    SGLCORE_TRY(sglcuda_sized(p, few(order) ? "order_few" : "order_keys", bits > 32 ? 64 : 32, &function));
    const sglcuda_grid grid = few(order)
                                  ? sglcuda_grid_over(v.lines, v.lines_block, SGLCUDA_ORDER_FEW_THREADS)
                                  : sglcuda_grid_over(v.lines * v.extent, SGLCUDA_ORDER_THREADS, SGLCUDA_ORDER_THREADS);
    if (v.lines * v.extent == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_add_step(p, command, function, grid, places, 3, &v, sizeof v));
    if (!few(order)) SGLCORE_TRY(add_passes(p, i, command, v, bits, &w, at, &side));
    *result = (sglcuda_ordered){ .keys = sglcuda_work_place(i, at + w.keys[side]),
                                 .places = sglcuda_work_place(i, at + w.places[side]) };
    return SGL_OK;
}

/* ---- sort and top_k ---------------------------------------------------------------------------------------------- */

int64_t sglcuda_sort_workspace(const sglir_graph *g, const sglir_node *node)
{
    const sglir_type *x = sglir_type_of(g, sglir_arg(g, node, 0));
    int64_t axis = node->op == SGLIR_OP_TOP_K ? x->rank - 1 : sglir_attr_int(g, node, "axis");
    if (x->dims[axis] == 0) return 0;
    const sglcuda_order order = {
        .lines = { .outer = sglir_elements(x) / x->dims[axis], .extent = x->dims[axis], .inner = 1 },
        .dtype = (sgl_dtype)x->dtype,
        .rows = -1
    };
    return sglcuda_order_workspace(&order);
}

sgl_status sglcuda_prepare_sort(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command)
{
    const sglexec_operand *x = sglcuda_operand(p->program, i, 0), *values = x + 1, *indices = x + 2;
    const bool top = i->op == SGLIR_OP_TOP_K;
    const int64_t axis = top ? x->rank - 1 : sglexec_attr_int(p->program, i, "axis");
    const sglcuda_order order = { .lines = sglcuda_lines_of(x, axis),
                                  .dtype = (sgl_dtype)x->dtype,
                                  .descending = top || sglexec_attr_int(p->program, i, "descending") != 0,
                                  .rows = -1 };
    const sglcuda_sort_put v = { .total = sglexec_elements(values),
                                 .count = values->dims[axis],
                                 .extent = order.lines.extent,
                                 .inner = order.lines.inner };
    const int bits = sglcore_dtype_bits(order.dtype);
    const sglcuda_function *put_values, *put_indices;
    sglcuda_ordered ordered;
    SGLCORE_TRY(sglcuda_begin(p, command));
    if (v.total == 0) return SGL_OK;
    SGLCORE_TRY(sglcuda_sized(p, "sort_values", bits, &put_values));
    SGLCORE_TRY(sglcuda_builtin(p, "sort_indices", &put_indices));
    SGLCORE_TRY(sglcuda_add_order(p, i, command, &order, sglcuda_place_of(x), 0, &ordered));
    const sglcuda_place valued[] = { sglcuda_place_of(x), ordered.places, sglcuda_place_of(values) };
    const sglcuda_place indexed[] = { ordered.places, sglcuda_place_of(indices) };
    SGLCORE_TRY(sglcuda_add_step(p, command, put_values, sglcuda_fill_grid(v.total, bits), valued, 3, &v, sizeof v));
    return sglcuda_add_step(p, command, put_indices,
                            sglcuda_grid_over(v.total, SGLCUDA_FILL_THREADS, SGLCUDA_FILL_THREADS), indexed, 2, &v,
                            sizeof v);
}
