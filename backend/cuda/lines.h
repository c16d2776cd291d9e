/* lines.h -- what the families with kernels of their own share: how a tensor lies in lines along an axis, grids, names
 * of kernels, units of bytes.
 *
 * A line is the elements that differ along the axis only: element i of line (o, c) is number (o * extent + i) * inner +
 * c. A unit is 1 to 16 bytes that move at once: the largest power of two by which every number of a command divides. */
#ifndef SGLCUDA_LINES_H
#define SGLCUDA_LINES_H

#include <stdio.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/index.h"

typedef struct sglcuda_lines {
    int64_t outer, extent, inner;
} sglcuda_lines;

static inline sglcuda_lines sglcuda_lines_of(const sglexec_operand *x, int64_t axis)
{
    sglcuda_lines l = { .outer = 1, .extent = x->dims[axis], .inner = 1 };
    for (int d = 0; d < x->rank; d++) {
        if (d < axis) l.outer *= x->dims[d];
        if (d > axis) l.inner *= x->dims[d];
    }
    return l;
}

/* A command that does nothing yet: of an instruction that has nothing to do, too. */
static inline sgl_status sglcuda_begin(sglcuda_prepare *p, sglcuda_command *command)
{
    return sglcuda_add_zeros(p, command, (sglcuda_place){ 0 }, 0);
}

/* Blocks of `threads`, each of which does `each` of `count` things. */
static inline sglcuda_grid sglcuda_grid_over(int64_t count, int64_t each, unsigned threads)
{
    return (sglcuda_grid){ .blocks = { (unsigned)sglcuda_ceil_div(count, each), 1, 1 }, .threads = { threads, 1, 1 } };
}

/* Of a fill (index.cuh), of units or of elements of 4 bits. */
static inline sglcuda_grid sglcuda_fill_grid(int64_t total, int64_t unit_bits)
{
    if (unit_bits == 4)
        return sglcuda_grid_over(sglcuda_ceil_div(total, 2), SGLCUDA_FILL_THREADS, SGLCUDA_FILL_THREADS);
    return sglcuda_grid_over(total, SGLCUDA_FILL_UNITS, SGLCUDA_FILL_THREADS);
}

/* The largest power of two, 16 at most, that divides the number and so every number that was or-ed into it. */
static inline int64_t sglcuda_unit(int64_t numbers)
{
    int64_t lowest = numbers & -numbers;
    return lowest == 0 ? 16 : sglcuda_min(lowest, 16);
}

enum { SGLCUDA_NAME_ROOM = 64 };

/* The kernel <stem>_<bits>. */
static inline sgl_status sglcuda_sized(sglcuda_prepare *p, const char *stem, int64_t bits,
                                       const sglcuda_function **function)
{
    char name[SGLCUDA_NAME_ROOM];
    snprintf(name, sizeof name, "%s_%d", stem, (int)bits);
    return sglcuda_builtin(p, name, function);
}

/* The kernel <stem>_<dtype>. */
static inline sgl_status sglcuda_typed(sglcuda_prepare *p, const char *stem, sgl_dtype dtype,
                                       const sglcuda_function **function)
{
    char name[SGLCUDA_NAME_ROOM];
    snprintf(name, sizeof name, "%s_%s", stem, sgl_dtype_name(dtype));
    return sglcuda_builtin(p, name, function);
}

/* SGLCUDA_INDEX of an integer dtype. */
static inline int sglcuda_index_kind(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_I64: return SGLCUDA_INDEX_I64;
    case SGL_I32: return SGLCUDA_INDEX_I32;
    case SGL_I16: return SGLCUDA_INDEX_I16;
    case SGL_I8: return SGLCUDA_INDEX_I8;
    case SGL_U32: return SGLCUDA_INDEX_U32;
    case SGL_U16: return SGLCUDA_INDEX_U16;
    case SGL_I4: return SGLCUDA_INDEX_I4;
    default: return SGLCUDA_INDEX_U8;
    }
}

/* `value` in the dtype, as often as it goes into 16 bytes; of i4 in the low half of the first word, sign and all. */
sgl_status sglcuda_fill_value_of(sglcuda_prepare *p, sgl_dtype dtype, double value, bool halves,
                                 sglcuda_fill_value *result); /* move.c */

#endif
