/* infer_mesh.c -- types of what ranks exchange: each exchange settles something that its argument's type says, a sum that is
 * owed or a split, and nothing else.
 *
 * In: the argument's type with its owed parts, the attribute axes. Out: the result's type, owed parts included: here, unlike
 * elsewhere, sglir_infer_owed adds nothing. Odd invariant: local extents follow from attributes that the pass shard has worked
 * out, since a type does not know of which rank it is. */
#include <inttypes.h>

#include "ir/infer.h"

enum { ALL_AXES = ((1 << SGLIR_AXIS_COUNT) - 1) & ~(1 << SGLIR_AXIS_MICRO) };

sgl_status sglir_infer_coordinate(const sglir_infer *in)
{
    int64_t axis = sglir_infer_int(in, "axis");
    if (axis < 0 || axis >= SGLIR_AXIS_COUNT || axis == SGLIR_AXIS_MICRO)
        return sglir_infer_fail(in, "axis %" PRId64 " is no axis of ranks", axis);
    in->results[0] = sglir_type_make(SGL_I64, 0, NULL);
    return SGL_OK;
}

sgl_status sglir_infer_share(const sglir_infer *in)
{
    int64_t axis = sglir_infer_int(in, "axis");
    SGLCORE_TRY(sglir_infer_coordinate(in));
    in->results[0] = sglir_type_make((sgl_dtype)sglir_infer_int(in, "dtype"), 0, NULL);
    in->results[0].partial = (uint8_t)(1u << axis);
    return SGL_OK;
}

sgl_status sglir_infer_laid_out(const sglir_infer *in)
{
    const sglir_named *split = sglir_infer_attr(in, "split");
    const sglir_type *x = sglir_infer_arg(in, 0);
    if (split->i != SGLIR_AXIS_COUNT)
        return sglir_infer_fail(in, "split has %d entries, one for each of the %d axes is needed", (int)split->i,
                                SGLIR_AXIS_COUNT);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (split->ints[axis] < -2 || split->ints[axis] >= x->rank ||
            (axis == SGLIR_AXIS_MICRO && split->ints[axis] >= 0))
            return sglir_infer_fail(in, "dimension %" PRId64 " is to be split over %s, the argument has %d",
                                    split->ints[axis], sglir_axis_name(axis), x->rank);
    }
    in->results[0] = sglir_infer_whole(in, 0);
    return SGL_OK;
}

static sgl_status axes_of(const sglir_infer *in, unsigned *axes)
{
    int64_t given = sglir_infer_int(in, "axes");
    if (given <= 0 || (given & ~(int64_t)ALL_AXES) != 0)
        return sglir_infer_fail(in, "axes = %" PRId64 ": a bit per axis of ranks, at least one", given);
    *axes = (unsigned)given;
    return SGL_OK;
}

/* The type of argument i, without the sums over axes that it owes. */
static sgl_status take_sums(const sglir_infer *in, int i, unsigned axes)
{
    const sglir_type *x = sglir_infer_arg(in, i);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes >> axis & 1) != 0 && (x->partial >> axis & 1) == 0)
            return sglir_infer_fail(in, "the argument owes no sum over %s", sglir_axis_name(axis));
    }
    in->results[i] = *x;
    in->results[i].partial = (uint8_t)(x->partial & ~axes);
    return SGL_OK;
}

sgl_status sglir_infer_terms(const sglir_infer *in)
{
    unsigned axes = 0;
    const sglir_type *x = sglir_infer_arg(in, 0);
    int64_t ranks = sglir_infer_int(in, "ranks");
    sglir_type *result = &in->results[0];
    SGLCORE_TRY(axes_of(in, &axes));
    const bool owed = (x->partial & axes) == axes, whole = (x->partial & axes) == 0;
    if (ranks < 1 || x->rank == SGL_MAX_RANK || (owed ? ranks != 1 : !whole))
        return sglir_infer_fail(in,
                                "%" PRId64 " places for terms of sums over axes = %u, of an argument that has %d "
                                "dimensions and owes sums over %u",
                                ranks, axes, x->rank, (unsigned)x->partial);
    *result = *x;
    result->rank = (uint8_t)(x->rank + 1);
    result->dims[0] = ranks;
    for (int dim = 0; dim < x->rank; dim++) result->dims[dim + 1] = x->dims[dim];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        const bool in_axes = (axes >> axis & 1) != 0;
        if (in_axes && x->sharded[axis] >= 0)
            return sglir_infer_fail(in, "the argument is split over %s", sglir_axis_name(axis));
        if (x->sharded[axis] >= 0) result->sharded[axis] = (int8_t)(x->sharded[axis] + 1);
        if (in_axes && owed) result->sharded[axis] = 0;
    }
    if (owed) result->partial = (uint8_t)(x->partial & ~axes);
    return SGL_OK;
}

sgl_status sglir_infer_declare(const sglir_infer *in)
{
    unsigned axes = 0;
    const sglir_type *x = sglir_infer_arg(in, 0);
    const int64_t dim = sglir_infer_int(in, "dim");
    SGLCORE_TRY(axes_of(in, &axes));
    if (dim < -1 || dim >= x->rank) return sglir_infer_fail(in, "the argument has no dimension %" PRId64, dim);
    in->results[0] = *x;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes >> axis & 1) == 0) continue;
        if ((x->sharded[axis] < 0) != (dim >= 0))
            return sglir_infer_fail(in, "the argument is split over %s along dimension %d, and is to be along %" PRId64,
                                    sglir_axis_name(axis), x->sharded[axis], dim);
        in->results[0].sharded[axis] = (int8_t)dim;
    }
    in->results[0].partial = (uint8_t)(x->partial & ~axes);
    return SGL_OK;
}

sgl_status sglir_infer_all_reduce(const sglir_infer *in)
{
    unsigned axes = 0;
    SGLCORE_TRY(axes_of(in, &axes));
    return take_sums(in, 0, axes);
}

sgl_status sglir_infer_wait(const sglir_infer *in)
{
    in->results[0] = *sglir_infer_arg(in, 0);
    return SGL_OK;
}

/* The type of argument i, whole along dim, over which it is split over all of axes. */
static sgl_status take_split(const sglir_infer *in, int i, unsigned axes, int64_t dim)
{
    const sglir_type *x = sglir_infer_arg(in, i);
    in->results[i] = *x;
    if (dim < 0 || dim >= x->rank) return sglir_infer_fail(in, "the argument has no dimension %" PRId64, dim);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes >> axis & 1) == 0) continue;
        if (x->sharded[axis] != dim)
            return sglir_infer_fail(in, "the argument is not split over %s along dimension %" PRId64,
                                    sglir_axis_name(axis), dim);
        in->results[i].sharded[axis] = -1;
    }
    return SGL_OK;
}

sgl_status sglir_infer_all_max(const sglir_infer *in)
{
    unsigned axes = 0;
    int64_t dim = sglir_infer_int(in, "dim");
    SGLCORE_TRY(axes_of(in, &axes));
    SGLCORE_TRY(take_split(in, 0, axes, dim));
    const sglir_type *x = sglir_infer_arg(in, 0);
    if (x->partial != 0 || x->scaled) return sglir_infer_fail(in, "a maximum is not linear: what is owed comes first");
    if (x->dims[dim] == 1) return SGL_OK;
    return sglir_infer_fail(in, "the argument has %" PRId64 " elements along dimension %" PRId64 ", not 1",
                            x->dims[dim], dim);
}

/* What an attribute says of the extent of a dimension of result i, with its unit. */
static sgl_status set_extent(const sglir_infer *in, int i, int dim, const char *name, int64_t extent, int64_t unit)
{
    if (unit < 1 || extent < 0 || extent % unit != 0)
        return sglir_infer_fail(in, "%s = %" PRId64 " is no multiple of unit = %" PRId64, name, extent, unit);
    in->results[i].dims[dim] = extent;
    return SGL_OK;
}

static sgl_status hand_out(const sglir_infer *in, int i, unsigned axes, const char *name, int64_t own, int64_t unit)
{
    const sglir_type *x = sglir_infer_arg(in, i);
    SGLCORE_TRY(take_sums(in, i, axes));
    if (x->rank == 0) return sglir_infer_fail(in, "a number cannot be handed out in parts");
    SGLCORE_TRY(set_extent(in, i, 0, name, own, unit));
    if (own > x->dims[0]) return sglir_infer_fail(in, "a part of %" PRId64 " of %" PRId64 " rows", own, x->dims[0]);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes >> axis & 1) != 0) in->results[i].sharded[axis] = 0;
    }
    return SGL_OK;
}

static sgl_status gather(const sglir_infer *in, int i, unsigned axes, const char *name, int64_t extent, int64_t unit)
{
    const sglir_type *x = sglir_infer_arg(in, i);
    SGLCORE_TRY(take_split(in, i, axes, 0));
    SGLCORE_TRY(set_extent(in, i, 0, name, extent, unit));
    if (extent >= x->dims[0]) return SGL_OK;
    return sglir_infer_fail(in, "%" PRId64 " rows of a part, and %" PRId64 " of all", x->dims[0], extent);
}

sgl_status sglir_infer_reduce_scatter(const sglir_infer *in)
{
    unsigned axes = 0;
    SGLCORE_TRY(axes_of(in, &axes));
    return hand_out(in, 0, axes, "own", sglir_infer_int(in, "own"), sglir_infer_int(in, "unit"));
}

sgl_status sglir_infer_all_gather(const sglir_infer *in)
{
    unsigned axes = 0;
    SGLCORE_TRY(axes_of(in, &axes));
    return gather(in, 0, axes, "extent", sglir_infer_int(in, "extent"), sglir_infer_int(in, "unit"));
}

/* One entry of the list for each argument. */
static sgl_status list_of(const sglir_infer *in, const char *name, const int64_t **entries)
{
    const sglir_named *list = sglir_infer_attr(in, name);
    *entries = NULL;
    if (list->i != in->arg_count)
        return sglir_infer_fail(in, "%d entries of %s for %d arguments", (int)list->i, name, in->arg_count);
    *entries = list->ints;
    return SGL_OK;
}

static sgl_status each_of(const sglir_infer *in, const char *name, const int64_t **extents, const int64_t **units)
{
    SGLCORE_TRY(list_of(in, name, extents));
    SGLCORE_TRY(list_of(in, "units", units));
    *in->count = in->arg_count;
    return sglir_infer_same_dtype(in, 0, in->arg_count - 1);
}

sgl_status sglir_infer_reduce_scatter_each(const sglir_infer *in)
{
    unsigned axes = 0;
    const int64_t *owns, *units;
    SGLCORE_TRY(axes_of(in, &axes));
    SGLCORE_TRY(each_of(in, "owns", &owns, &units));
    for (int i = 0; i < in->arg_count; i++) SGLCORE_TRY(hand_out(in, i, axes, "own", owns[i], units[i]));
    return SGL_OK;
}

sgl_status sglir_infer_all_gather_each(const sglir_infer *in)
{
    unsigned axes = 0;
    const int64_t *extents, *units;
    SGLCORE_TRY(axes_of(in, &axes));
    SGLCORE_TRY(each_of(in, "extents", &extents, &units));
    for (int i = 0; i < in->arg_count; i++) SGLCORE_TRY(gather(in, i, axes, "extent", extents[i], units[i]));
    return SGL_OK;
}

/* Of argument i, whose second dimension has `extent` places afterwards. */
static sgl_status turn_parts(const sglir_infer *in, int i, unsigned axes, int64_t to, int64_t extent, int64_t unit)
{
    const sglir_type *x = sglir_infer_arg(in, i);
    const int64_t ranks = sglir_infer_int(in, "ranks");
    if (x->rank < 2 || (to != 0 && to != 1))
        return sglir_infer_fail(in,
                                "to = %" PRId64 ", and the argument has %d dimensions: it is split along one of the "
                                "first two, and then along the other one",
                                to, x->rank);
    SGLCORE_TRY(take_split(in, i, axes, 1 - to));
    SGLCORE_TRY(set_extent(in, i, 1, "extent", extent, unit));
    sglir_type *result = &in->results[i];
    if (x->dims[0] != (to == 1 ? 1 : ranks) || (to == 1 ? result->dims[1] > x->dims[1] : result->dims[1] < x->dims[1]))
        return sglir_infer_fail(in,
                                "dimensions of %" PRId64 " and %" PRId64 " become %" PRId64 " and %" PRId64
                                " among %" PRId64 " ranks",
                                x->dims[0], x->dims[1], to == 1 ? ranks : 1, result->dims[1], ranks);
    result->dims[0] = to == 1 ? ranks : 1;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((axes >> axis & 1) != 0) result->sharded[axis] = (int8_t)to;
    }
    return SGL_OK;
}

sgl_status sglir_infer_all_to_all(const sglir_infer *in)
{
    unsigned axes = 0;
    SGLCORE_TRY(axes_of(in, &axes));
    return turn_parts(in, 0, axes, sglir_infer_int(in, "to"), sglir_infer_int(in, "extent"),
                      sglir_infer_int(in, "unit"));
}

sgl_status sglir_infer_all_to_all_each(const sglir_infer *in)
{
    unsigned axes = 0;
    const int64_t *tos, *extents, *units;
    SGLCORE_TRY(axes_of(in, &axes));
    SGLCORE_TRY(list_of(in, "tos", &tos));
    SGLCORE_TRY(each_of(in, "extents", &extents, &units));
    for (int i = 0; i < in->arg_count; i++) SGLCORE_TRY(turn_parts(in, i, axes, tos[i], extents[i], units[i]));
    return SGL_OK;
}

/* What comes has the extents of what is sent but along dim, of which the group's ranks have parts. */
sgl_status sglir_infer_ring_shift(const sglir_infer *in)
{
    unsigned axes = 0;
    const sglir_type *x = sglir_infer_arg(in, 0);
    const int64_t dim = sglir_infer_int(in, "dim"), by = sglir_infer_int(in, "by"),
                  whole = sglir_infer_int(in, "whole");
    const int64_t extent = sglir_infer_int(in, "extent"), unit = sglir_infer_int(in, "unit");
    SGLCORE_TRY(axes_of(in, &axes));
    SGLCORE_TRY(take_split(in, 0, axes, dim));
    SGLCORE_TRY(set_extent(in, 0, (int)dim, "extent", extent, unit));
    const int64_t of = sglir_infer_int(in, "of"), most = (int64_t)1 << 31;
    if (by == 0 || by > most || by < -most || of > most || of < -most || x->dims[dim] > whole || extent > whole ||
        whole % unit != 0)
        return sglir_infer_fail(in,
                                "by = %" PRId64 ", of = %" PRId64 ": parts of %" PRId64 " and %" PRId64 " of %" PRId64
                                ", cut at multiples of %" PRId64,
                                by, of, x->dims[dim], extent, whole, unit);
    in->results[0].partial = x->partial;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) in->results[0].sharded[axis] = x->sharded[axis];
    return SGL_OK;
}

/* ---- from stage to stage ------------------------------------------------------------------------------------------- */

static sgl_status check_place(const sglir_infer *in, const char *name)
{
    int64_t place = sglir_infer_int(in, name);
    if (place < 0) return sglir_infer_fail(in, "%s = %" PRId64 " is no place along an axis", name, place);
    return sglir_infer_coordinate(in);
}

sgl_status sglir_infer_send(const sglir_infer *in)
{
    const int64_t nothing = 0;
    SGLCORE_TRY(check_place(in, "to"));
    in->results[0] = sglir_type_make(SGL_U8, 1, &nothing);
    return SGL_OK;
}

sgl_status sglir_infer_receive(const sglir_infer *in)
{
    SGLCORE_TRY(check_place(in, "from"));
    return sglir_infer_made(in);
}
