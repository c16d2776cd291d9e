/* random_chains.c -- tensors that do not fit one tile of a kernel, in chains that read them in another order than they
 * were written in, and sums over many rows. In and out: random_parts.h.
 *
 * What goes wrong only here: a kernel that writes its result over an argument which it reads in another order, whole
 * buffers shared that live at the same time, the seams between tiles, strips and threads. Odd invariant: what stands
 * between the links of a chain joins no pool, so that each link is its last reader. */
#include <stdio.h>

#include "tests/support/random_parts.h"

void random_large_shape(random_drawer *d, int *rank, int64_t *dims)
{
    static const struct {
        int rank;
        int64_t dims[3];
    } shapes[] = {
        { 2, { 45, 45 } }, { 1, { 2100 } },      { 2, { 40, 50 } },
        { 2, { 50, 40 } }, { 3, { 7, 11, 20 } }, { 2, { 2, 1030 } },
    };
    int chosen = (int)random_draw(d, sizeof shapes / sizeof shapes[0]);
    *rank = shapes[chosen].rank;
    for (int i = 0; i < *rank; i++) dims[i] = shapes[chosen].dims[i];
}

static sglir_id flipped(random_drawer *d, sglir_id x, int rank)
{
    const int64_t axis = (int64_t)random_draw(d, (uint64_t)rank);
    const sglir_named axes = SGLIR_INTS("axes", 1, &axis);
    sglir_id out = SGLIR_NONE;
    return sglir_emit(d->g, SGLIR_OP_FLIP, &x, 1, &axes, 1, &out);
}

static sglir_id rolled(random_drawer *d, sglir_id x, const sglir_type *type)
{
    int axis = (int)random_draw(d, type->rank);
    int64_t extent = type->dims[axis], at = extent > 1 ? 1 + (int64_t)random_draw(d, (uint64_t)extent - 1) : 0;
    const sglir_named attr = SGLIR_I("axis", axis);
    sglir_id parts[2] = { sglir_slice(d->g, x, axis, at, extent), sglir_slice(d->g, x, axis, 0, at) }, out = SGLIR_NONE;
    return sglir_emit(d->g, SGLIR_OP_CONCAT, parts, 2, &attr, 1, &out);
}

/* The dimensions in another order, read as the shape that x has. */
static sglir_id turned_over(random_drawer *d, sglir_id x, const sglir_type *type)
{
    int64_t order[SGL_MAX_RANK], square[2] = { 2, sglir_elements(type) / 2 };
    int rank = type->rank;
    if (rank == 1 && type->dims[0] % 2 == 0) {
        x = sglir_reshape(d->g, x, 2, square);
        rank = 2;
    }
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    return sglir_reshape(d->g, sglir_transpose(d->g, x, order), type->rank, type->dims);
}

/* One row or column, or the mean of all, for every one. */
static sglir_id spread(random_drawer *d, sglir_id x, const sglir_type *type)
{
    int64_t axis = (int64_t)random_draw(d, type->rank), at = (int64_t)random_draw(d, (uint64_t)type->dims[axis]);
    sglir_id part = random_one_in(d, 2) ? sglir_slice(d->g, x, (int)axis, at, at + 1)
                                        : sglir_reduce(d->g, SGLIR_OP_MEAN, x, &axis, 1, true);
    return sglir_broadcast(d->g, part, type->rank, type->dims);
}

sglir_id random_moved(random_drawer *d, sglir_id x)
{
    const sglir_type type = *random_type(d, x);
    if (type.rank == 0 || sglir_elements(&type) == 0) return x;
    switch (random_draw(d, 5)) {
    case 0: return flipped(d, x, type.rank);
    case 1: return rolled(d, x, &type);
    case 2: return turned_over(d, x, &type);
    case 3: return spread(d, x, &type);
    default: return random_moved(d, random_squash(d, x));
    }
}

sglir_id random_turned(random_drawer *d, sglir_id x)
{
    static const sglir_op ops[] = { SGLIR_OP_ADD, SGLIR_OP_SUB, SGLIR_OP_MUL };
    sglir_id moved = random_moved(d, x);
    sglir_op op = ops[random_draw(d, 3)];
    return random_squash(d, random_one_in(d, 2) ? sglir_binary(d->g, op, x, moved) : sglir_binary(d->g, op, moved, x));
}

/* Stored, not computed again by who reads it: made by an op that is no kernel's. */
static random_value stored(random_drawer *d, random_value v)
{
    const sglir_type type = *random_type(d, v.id);
    sglir_id x = v.id;
    int64_t last = type.rank - 1, extent = type.dims[last];
    sglir_id out = SGLIR_NONE;
    v.exact = false;
    if (random_one_in(d, 3)) {
        const sglir_named axis = SGLIR_I("axis", last);
        sglir_emit(d->g, SGLIR_OP_CUMULATIVE_SUM, &x, 1, &axis, 1, &out);
        v.id = random_squash(d, sglir_scale(d->g, out, 0.125)); /* far from 0 a sine has no digits left */
    } else if (extent <= 50 && random_one_in(d, 2)) {
        const int64_t zero = 0, dims[2] = { extent, extent };
        sglir_type square = sglir_type_make((sgl_dtype)type.dtype, 2, dims);
        random_value weight = random_fitting(d, &square, 'x', false);
        v.id = sglir_dot(d->g, x, weight.id, 0, NULL, NULL, 1, &last, &zero);
        v.derives = v.derives && weight.derives;
    } else {
        v.id = random_squash(d, x);
    }
    return v;
}

void random_chain(random_drawer *d)
{
    int rank;
    int64_t dims[SGL_MAX_RANK];
    random_large_shape(d, &rank, dims);
    sglir_type type = sglir_type_make(d->palette[0], rank, dims);
    random_value v = random_fitting(d, &type, 'x', false);
    int links = 1 + (int)random_draw(d, 3);
    for (int i = 0; i < links && sglir_status(d->g) == SGL_OK; i++) {
        v = stored(d, v);
        v.id = random_turned(d, v.id);
    }
    random_join(d, (random_value){ v.id, false, true, v.derives, false });
}

/* Columns of few rows are summed in one piece; of more than 96 in several, of more than 1,024 in blocks of pieces; large ones by
 * several tasks. */
static void tall_shape(random_drawer *d, int64_t *dims)
{
    int kind = (int)random_draw(d, 16);
    dims[0] = 97 + (int64_t)random_draw(d, 300);
    dims[1] = 1 + (int64_t)random_draw(d, 7);
    if (kind >= 10) dims[0] = 1025 + (int64_t)random_draw(d, 1600);
    if (kind == 15) {
        dims[0] = 1025 + (int64_t)random_draw(d, 4000);
        dims[1] = (100000 + (int64_t)random_draw(d, 100000)) / dims[0];
    }
}

/* A result that is looked at itself: what is made of a sum of thousands may hide that some of them are missing. */
static void fetched(random_drawer *d, sglir_id value)
{
    char name[24];
    snprintf(name, sizeof name, "columns %d", (int)value);
    sglir_output_add(d->g, SGLIR_FETCH, name, value);
}

void random_columns(random_drawer *d)
{
    static const sglir_op folds[] = { SGLIR_OP_REDUCE_SUM, SGLIR_OP_REDUCE_SUM, SGLIR_OP_MEAN, SGLIR_OP_REDUCE_MAX };
    const int64_t rows = 0;
    int64_t dims[2];
    tall_shape(d, dims);
    random_value x = random_input(d, SGL_PARAMETER, d->palette[0], 2, dims);
    const sglir_type row = sglir_type_make(d->palette[0], 1, &dims[1]);
    random_value bias = random_fitting(d, &row, 'x', false);
    sglir_id tall = sglir_binary(d->g, random_one_in(d, 2) ? SGLIR_OP_ADD : SGLIR_OP_MUL, x.id, bias.id);
    if (random_one_in(d, 2)) tall = random_squash(d, tall);
    sglir_op fold = folds[random_draw(d, sizeof folds / sizeof folds[0])];
    sglir_id sums = sglir_reduce(d->g, fold, tall, &rows, 1, random_one_in(d, 2));
    fetched(d, sums);
    /* of the largest one no gradient: a rounding may decide which it is */
    bool derives = bias.derives && fold != SGLIR_OP_REDUCE_MAX;
    random_join(d, (random_value){ sglir_scale(d->g, sums, 1 / (double)dims[0]), false, true, derives, false });
}
