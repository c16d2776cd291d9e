/* kernel_single.c -- elementwise ops, generators, reductions and movement that stand alone: each as a small kernel.
 *
 * In: an instruction of one such op. Out: a kernel, described as `fuse` would have it: loads through index maps, the op, a
 * store. So a backend has one way to compute an op, and this file knows only maps. A reduction over any axes is one over
 * the inner dims of a domain in which these stand last. Odd invariant: such a kernel has no hash, and lives in an arena. */
#include "exec/kernel_single.h"

enum { MAX_STEPS = 5 };

typedef struct maker {
    sglcore_arena *arena;
    const sglexec_program *program;
    const sglexec_instruction *i;
    const sglexec_operand *x, *result; /* first argument, first result */
    sglexec_kernel *kernel;
} maker;

static sgl_status new_kernel(maker *m)
{
    m->kernel = sglcore_arena_alloc(m->arena, sizeof *m->kernel);
    sglexec_step *steps = sglcore_arena_alloc(m->arena, MAX_STEPS * sizeof *steps);
    if (m->kernel == NULL || steps == NULL) return SGL_OUT_OF_MEMORY;
    m->kernel->steps.data = steps;
    m->kernel->steps.capacity = MAX_STEPS;
    m->kernel->phases = 1;
    return SGL_OK;
}

static sglexec_step *add_step(maker *m, sglexec_step_kind kind, sglexec_form form, uint8_t dtype)
{
    sglexec_step *step = &m->kernel->steps.data[m->kernel->steps.count++];
    *step = (sglexec_step){ .kind = (uint8_t)kind, .form = (uint8_t)form, .dtype = dtype, .op = m->i->op };
    if (kind <= SGLEXEC_REDUCE) step->out = (uint16_t)m->kernel->registers++;
    return step;
}

static uint16_t last_register(const maker *m) { return (uint16_t)(m->kernel->registers - 1); }

static void dense_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= dims[d];
    }
}

/* The domain is the shape of `like`; nothing tells rows from columns. */
static void set_domain(maker *m, const sglexec_operand *like)
{
    m->kernel->rank = like->rank;
    m->kernel->inner = like->rank > 0 ? 1 : 0;
    for (int d = 0; d < like->rank; d++) m->kernel->dims[d] = like->dims[d];
}

/* All elements as one dim: for ops that look at no shape. */
static void set_flat_domain(maker *m)
{
    m->kernel->rank = m->kernel->inner = 1;
    m->kernel->dims[0] = sglexec_elements(m->result);
}

static void add_store(maker *m, sglexec_form form)
{
    sglexec_step *store = add_step(m, SGLEXEC_STORE, form, m->result->dtype);
    store->args[0] = last_register(m);
    store->operand = m->i->arg_count;
    dense_strides(m->kernel->rank, m->kernel->dims, store->map.strides);
}

/* By which dtype elements of these bits are moved: as they lie, never converted. */
static sgl_dtype moved_as(sgl_dtype dtype)
{
    switch (sglcore_dtype_bits(dtype)) {
    case 4: return SGL_I4;
    case 8: return SGL_U8;
    case 16: return SGL_U16;
    case 32: return SGL_U32;
    default: return SGL_I64;
    }
}

/* ---- families ------------------------------------------------------------------------------------------------ */

static void make_elementwise(maker *m)
{
    set_flat_domain(m);
    uint32_t count = m->i->arg_count;
    for (uint32_t a = 0; a < count; a++) {
        sglexec_step *load = add_step(m, SGLEXEC_LOAD, SGLEXEC_FULL, m->x[a].dtype);
        load->operand = a;
        load->map.strides[0] = 1;
    }
    sglexec_step *step = add_step(m, SGLEXEC_COMPUTE, SGLEXEC_FULL, m->result->dtype);
    for (uint32_t a = 0; a < count; a++) step->args[a] = (uint16_t)a;
    if (m->i->op == SGLIR_OP_GELU || m->i->op == SGLIR_OP_GELU_GRAD) {
        step->id = sglexec_attr_int(m->program, m->i, "exact");
    }
    add_store(m, SGLEXEC_FULL);
}

/* Where element d of the result lies in x. */
static void make_movement(maker *m)
{
    const sglexec_program *program = m->program;
    int64_t strides[SGL_MAX_RANK];
    dense_strides(m->x->rank, m->x->dims, strides);
    set_domain(m, m->result);
    sglexec_step *load = add_step(m, SGLEXEC_LOAD, SGLEXEC_FULL, (uint8_t)moved_as((sgl_dtype)m->x->dtype));
    int count, lead = m->result->rank - m->x->rank;
    const int64_t *order;
    switch (m->i->op) {
    case SGLIR_OP_TRANSPOSE:
        order = sglexec_attr_ints(program, m->i, "order", &count);
        for (int d = 0; d < count; d++) load->map.strides[d] = strides[order[d]];
        break;
    case SGLIR_OP_BROADCAST:
        for (int d = 0; d < m->x->rank; d++) load->map.strides[lead + d] = m->x->dims[d] == 1 ? 0 : strides[d];
        break;
    case SGLIR_OP_SLICE: {
        int64_t axis = sglexec_attr_int(program, m->i, "axis"), step = sglexec_attr_int(program, m->i, "step");
        for (int d = 0; d < m->x->rank; d++) load->map.strides[d] = strides[d] * (d == axis ? step : 1);
        load->map.offset = sglexec_attr_int(program, m->i, "start") * strides[axis];
        break;
    }
    case SGLIR_OP_FLIP:
        order = sglexec_attr_ints(program, m->i, "axes", &count);
        for (int d = 0; d < m->x->rank; d++) load->map.strides[d] = strides[d];
        for (int i = 0; i < count; i++) {
            load->map.strides[order[i]] = -strides[order[i]];
            load->map.offset += (m->x->dims[order[i]] - 1) * strides[order[i]];
        }
        break;
    default: /* reshape */
        set_flat_domain(m);
        load->map.strides[0] = 1;
        break;
    }
    add_store(m, SGLEXEC_FULL);
    m->kernel->steps.data[m->kernel->steps.count - 1].dtype = load->dtype;
}

static sgl_status make_segments(maker *m)
{
    int count;
    const sglexec_program *program = m->program;
    const int64_t *counts = sglexec_attr_ints(program, m->i, "counts", &count);
    const sglir_attr *values =
        &program->attrs.data[m->i->attr_first + 1]; /* as in the schema: counts:I values:F dtype:t */
    sglexec_piece *pieces = sglcore_arena_alloc(m->arena, (size_t)(count + 1) * sizeof *pieces);
    double *numbers = sglcore_arena_alloc(m->arena, (size_t)(count + 1) * sizeof *numbers);
    if (pieces == NULL || numbers == NULL) return SGL_OUT_OF_MEMORY;
    int64_t start = 0;
    for (int n = 0; n < count; n++) {
        pieces[n] = (sglexec_piece){ .start = start, .count = counts[n], .operand = (uint32_t)n };
        numbers[n] = program->floats.data[values->as.first + (uint32_t)n];
        start += counts[n];
    }
    m->kernel->pieces.data = pieces;
    m->kernel->numbers.data = numbers;
    m->kernel->pieces.count = m->kernel->numbers.count = count;
    set_flat_domain(m);
    add_step(m, SGLEXEC_SEGMENTS, SGLEXEC_FULL, m->result->dtype)->piece_count = (uint32_t)count;
    return SGL_OK;
}

static sgl_status make_generator(maker *m)
{
    set_domain(m, m->result);
    sglexec_step *step;
    switch (m->i->op) {
    case SGLIR_OP_CONSTANT:
        step = add_step(m, SGLEXEC_NUMBER, SGLEXEC_ONE, m->result->dtype);
        step->value = sglexec_attr_float(m->program, m->i, "value");
        break;
    case SGLIR_OP_IOTA:
        step = add_step(m, SGLEXEC_IOTA, SGLEXEC_FULL, m->result->dtype);
        step->map.strides[sglexec_attr_int(m->program, m->i, "axis")] = 1;
        break;
    case SGLIR_OP_SEGMENTS: SGLCORE_TRY(make_segments(m)); break;
    default: /* random */
        for (uint32_t a = 0; a < 3; a++) add_step(m, SGLEXEC_LOAD, SGLEXEC_ONE, SGL_I64)->operand = a;
        step = add_step(m, SGLEXEC_RANDOM, SGLEXEC_FULL, m->result->dtype);
        for (uint16_t a = 0; a < 3; a++) step->args[a] = a;
        step->id = sglexec_attr_int(m->program, m->i, "id");
        dense_strides(m->kernel->rank, m->kernel->dims, step->map.strides);
        break;
    }
    add_store(m, SGLEXEC_FULL);
    return SGL_OK;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

static bool is_reduced(int d, int rank, const int64_t *axes, int count)
{
    for (int i = 0; i < count; i++) {
        if ((axes[i] < 0 ? axes[i] + rank : axes[i]) == d) return true;
    }
    return false;
}

/* The last dim of more than one element is kept: sums over columns, as a kernel of `fuse` has them or adds in their order. */
static bool keeps_last(const sglexec_operand *x, const int64_t *axes, int count)
{
    int last = x->rank - 1;
    while (last > 0 && x->dims[last] == 1) last--;
    return last >= 0 && !is_reduced(last, x->rank, axes, count);
}

static void make_reduction(maker *m)
{
    int count, rank = m->x->rank, at = 0;
    const int64_t *axes = sglexec_attr_ints(m->program, m->i, "axes", &count);
    int64_t strides[SGL_MAX_RANK];
    dense_strides(rank, m->x->dims, strides);
    int64_t kept = sglexec_elements(m->result);
    bool outer = kept != 1 && keeps_last(m->x, axes, count);
    sglexec_step *load = add_step(m, SGLEXEC_LOAD, SGLEXEC_FULL, m->x->dtype);
    m->kernel->rank = rank;
    for (int reduced = 0; reduced < 2; reduced++) { /* the dims that become rows first */
        for (int d = 0; d < rank; d++) {
            if (is_reduced(d, rank, axes, count) != ((reduced != 0) != outer)) continue;
            m->kernel->dims[at] = m->x->dims[d];
            load->map.strides[at++] = strides[d];
        }
    }
    m->kernel->inner = outer ? rank - count : count;
    sglexec_step_kind kind = outer ? SGLEXEC_COLUMN_SUM : kept == 1 ? SGLEXEC_TOTAL : SGLEXEC_REDUCE;
    if (kind == SGLEXEC_TOTAL) m->kernel->inner = rank > 0 ? 1 : 0;
    sglexec_form form = outer ? SGLEXEC_COL : kind == SGLEXEC_TOTAL ? SGLEXEC_ONE : SGLEXEC_ROW;
    sglexec_step *sum = add_step(m, kind, form, m->result->dtype);
    sum->args[0] = 0;
    sum->operand = m->i->arg_count;
    if (kind != SGLEXEC_REDUCE) return;
    m->kernel->phases = 2;
    add_store(m, SGLEXEC_ROW);
    sglexec_step *store = &m->kernel->steps.data[m->kernel->steps.count - 1];
    store->phase = 1;
    for (int d = 0; d < SGL_MAX_RANK; d++) store->map.strides[d] = 0;
    dense_strides(rank - count, m->kernel->dims, store->map.strides);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static sgl_status make_kernel(maker *m)
{
    uint32_t flags = sglir_ops[m->i->op].flags;
    if (flags & SGLIR_GENERATOR) return make_generator(m);
    bool reduces = sglexec_elements(m->x) != sglexec_elements(m->result); /* extents of 1 go without arithmetic */
    if ((flags & SGLIR_REDUCTION) && reduces)
        make_reduction(m);
    else if (flags & (SGLIR_MOVEMENT | SGLIR_REDUCTION))
        make_movement(m);
    else
        make_elementwise(m);
    return SGL_OK;
}

/* Rows and columns as the dims say. */
static void settle_split(sglexec_kernel *kernel)
{
    kernel->rows = kernel->cols = 1;
    for (int d = 0; d < kernel->rank; d++)
        *(d < kernel->rank - kernel->inner ? &kernel->rows : &kernel->cols) *= kernel->dims[d];
    kernel->reduces = kernel->phases > 1;
}

sgl_status sglexec_kernel_single(sglcore_arena *arena, const sglexec_program *program, const sglexec_instruction *i,
                                 const sglexec_kernel **kernel)
{
    const sglexec_operand *operands = &program->operands.data[i->operand_first];
    maker m = { .arena = arena, .program = program, .i = i, .x = operands, .result = operands + i->arg_count };
    SGLCORE_TRY(new_kernel(&m));
    SGLCORE_TRY(make_kernel(&m));
    settle_split(m.kernel);
    *kernel = m.kernel;
    return SGL_OK;
}

sgl_status sglexec_kernel_permute(sglcore_arena *arena, const sglexec_operand *from, const int64_t *strides,
                                  const sglexec_operand *to, const sglexec_kernel **kernel)
{
    const sglexec_instruction copy = { .op = SGLIR_OP_COPY, .arg_count = 1, .result_count = 1 };
    maker m = { .arena = arena, .i = &copy, .x = from, .result = to };
    SGLCORE_TRY(new_kernel(&m));
    set_domain(&m, to);
    sglexec_step *load = add_step(&m, SGLEXEC_LOAD, SGLEXEC_FULL, (uint8_t)moved_as((sgl_dtype)from->dtype));
    for (int d = 0; d < to->rank; d++) load->map.strides[d] = strides[d];
    add_store(&m, SGLEXEC_FULL);
    m.kernel->steps.data[m.kernel->steps.count - 1].dtype = load->dtype;
    settle_split(m.kernel);
    *kernel = m.kernel;
    return SGL_OK;
}
