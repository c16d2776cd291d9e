/* order.h -- lines of elements sorted in workspace, for sort and top_k, and for ops that add by index: what goes to one
 * row stands together then, in its order.
 *
 * Odd invariant: the workspace follows from the shapes alone. */
#ifndef SGLCUDA_ORDER_H
#define SGLCUDA_ORDER_H

#include "backend/cuda/lines.h"

typedef struct sglcuda_order {
    sglcuda_lines lines; /* of the tensor that is sorted, along its extent */
    sgl_dtype dtype;
    bool descending;
    int64_t rows; /* >= 0: the elements are indices, and those outside 0 .. rows - 1 come last, as `rows` */
} sglcuda_order;

/* What is made: [lines, extent] keys, of 32 bits where the elements are indices, and [lines, extent] of 32 bits: where
 * along its line each stood. */
typedef struct sglcuda_ordered {
    sglcuda_place keys, places;
} sglcuda_ordered;

int64_t sglcuda_order_workspace(const sglcuda_order *order);
/* Appends the launches. at: byte of the instruction's workspace where the order's begins, a multiple of 256.
 * UNSUPPORTED for lines, or tables, of 2^31 and more. */
sgl_status sglcuda_add_order(sglcuda_prepare *p, const sglexec_instruction *i, sglcuda_command *command,
                             const sglcuda_order *order, sglcuda_place from, int64_t at, sglcuda_ordered *result);
/* INTERNAL when the instruction was given less workspace than it needs. */
sgl_status sglcuda_check_workspace(sglcuda_prepare *p, const sglexec_instruction *i, int64_t needed);

#endif
