/* lines.h -- ops that run along one axis: how a tensor lies in lines, and elements as numbers wide enough to carry sums.
 *
 * A line is the elements that differ along the axis only: element i of line (o, c) is number (o * extent + i) * inner + c. A
 * carrier is 8 bytes: a double for floats, an int64_t for integers and bool, which wrap when they are written back. */
#ifndef SGLCPU_LINES_H
#define SGLCPU_LINES_H

#include "backend/cpu/cpu.h"

typedef struct sglcpu_lines {
    int64_t outer, extent, inner;
} sglcpu_lines;

enum { SGLCPU_CARRIED = 256 }; /* carriers that are read or written at a time, at most */

typedef union sglcpu_carrier {
    double real;
    int64_t integer;
} sglcpu_carrier;

static inline sglcpu_lines sglcpu_lines_of(const sglexec_operand *x, int64_t axis)
{
    sglcpu_lines l = { .outer = 1, .extent = x->dims[axis], .inner = 1 };
    for (int d = 0; d < x->rank; d++) {
        if (d < axis) l.outer *= x->dims[d];
        if (d > axis) l.inner *= x->dims[d];
    }
    return l;
}

/* How lines are handed out: each task takes `cols` neighbours of the inner ones, or a few outer ones where inner is 1. */
typedef struct sglcpu_line_cut {
    int64_t cols, outer, col_tasks, tasks;
} sglcpu_line_cut;
/* together: lines of one task at most; shared: of results of 4 bits, whose neighbours only one task may write. */
sglcpu_line_cut sglcpu_cut_lines(const sglcpu_lines *l, int64_t together, bool shared);
/* The lines of a task: outer ones from *outer to *outer_end, and of each the inner ones from *col, *cols of them. */
void sglcpu_lines_of_task(const sglcpu_lines *l, const sglcpu_line_cut *cut, int64_t task, int64_t *outer,
                          int64_t *outer_end, int64_t *col, int64_t *cols);

/* Elements first .. of a stored array as carriers, and back; `whole`: elements of the array. */
void sglcpu_read_carriers(const sglcpu_isa *isa, sgl_dtype dtype, sglcpu_carrier *out, const void *stored,
                          int64_t first, int64_t count);
void sglcpu_write_carriers(const sglcpu_isa *isa, sgl_dtype dtype, void *stored, int64_t first,
                           const sglcpu_carrier *in, int64_t count, int64_t whole);

/* One element of any size, as it lies. */
static inline void sglcpu_move_element(void *to, int64_t to_at, const void *from, int64_t from_at, int bits,
                                       int64_t to_whole)
{
    switch (bits) {
    case 8: ((uint8_t *)to)[to_at] = ((const uint8_t *)from)[from_at]; return;
    case 16: ((uint16_t *)to)[to_at] = ((const uint16_t *)from)[from_at]; return;
    case 32: ((uint32_t *)to)[to_at] = ((const uint32_t *)from)[from_at]; return;
    case 64: ((uint64_t *)to)[to_at] = ((const uint64_t *)from)[from_at]; return;
    default: sglcpu_move_nibbles(to, to_at, from, from_at, 1, to_whole); return;
    }
}

#endif
