/* kernel.h -- a fused region described once: what CPU and GPU backends execute in place of its nodes.
 *
 * Comes in: a FUSED node. Goes out: a flat description (sglexec_kernel) that a backend walks tile by tile or prints as
 * source. The contract that the `fuse` pass keeps and this room checks:
 *
 *  - The iteration domain is `rows` x `cols`; cols is the product of the last `inner` dims of the node's `domain`, rows
 *    that of the others. A kernel that reduces nothing may have any inner >= 0 (the builder then re-chooses the split).
 *  - A value of the region has one of these forms: FULL (rows*cols elements, in row-major order the domain's), ROW (one
 *    per row), COL (one per column), ONE (a single number). Reductions over exactly the inner dims make ROW of FULL, and
 *    may be used by further elementwise nodes; reductions over exactly the outer dims (column sums) or over all dims
 *    (totals) may only be results of the region. Broadcasts make FULL of ROW, COL and ONE. With rows = 1 a reduction
 *    over all dims whose result is used further is a row reduction. A sum of floats that is no total is a row's where its
 *    node leaves out its argument's last dimension (extents of 1 aside), else a column sum, and its elements stand in the
 *    domain in its argument's order.
 *  - Movement (transpose, slice, flip, broadcast, reshape) of a parameter before any arithmetic becomes the index map of its
 *    load. A reshape between FULL forms is free. A transpose (with reshapes) after the arithmetic, on the way to a FULL
 *    or ROW result, becomes the map of the store. PACK of parameters becomes one load in pieces, of a 1-D domain
 *    whose rows are not reduced.
 *  - Generators (constant, iota, segments, random) stand inside the region.
 *  - Results are FULL, ROW, COL sums or ONE, each stored densely in its own row-major order.
 *
 * What a backend may count on, beside: a register has the least form that its inputs allow, so an argument of any step
 * may be of a lesser form than the step's own (ONE < ROW, COL < FULL) and is then read as if broadcast: of a COMPUTE, a
 * REDUCE, a sum, and of a STORE. A step of form ONE costs nothing per element: it is to be evaluated once per tile at
 * most. With rows = 1 there are no COL registers; with a domain of one element all registers are ONE. ACCUMULATE stands
 * here as ADD; STOP_GRADIENT and reductions over extents of 1 as no step at all.
 *
 * What a backend owes: **a value has the same bits wherever it is computed** (any NaN counting as the same), however nodes are
 * grouped into kernels, cloned or not, whatever the tile, thread, lane or tail that it falls in. So no product and sum of
 * two nodes become one fma, no step is computed wider than its dtype says, and the order in which a sum of floats is added
 * depends on its node alone: the extents that it reduces, and whether its last dimension is among them. The derivative
 * of a maximum rests on this: it compares elements, computed anew, with the maximum that another kernel found.
 *
 * Odd invariant: all stores happen in the last phase, after every load of the same row, so that a result may take the
 * place of an argument that is loaded with the identity map. */
#ifndef SGLEXEC_KERNEL_H
#define SGLEXEC_KERNEL_H

#include "ir/ir.h"

typedef enum sglexec_form { SGLEXEC_FULL, SGLEXEC_ROW, SGLEXEC_COL, SGLEXEC_ONE } sglexec_form;

/* Where element (d0, d1, ...) of the domain lies in a buffer: offset + sum d_i * strides[i], in elements. */
typedef struct sglexec_map {
    int64_t offset;
    int64_t strides[SGL_MAX_RANK];
} sglexec_map;

/* One piece of a packed argument: elements [start, start + count) of the row-major domain come from operand `operand`. */
typedef struct sglexec_piece {
    int64_t start, count;
    uint32_t operand;
} sglexec_piece;

typedef enum sglexec_step_kind {
    SGLEXEC_LOAD,        /* register <- operand through map */
    SGLEXEC_LOAD_PIECES, /* register <- pieces[piece_first .. + piece_count), 1-D domains only; they cover it in order */
    SGLEXEC_NUMBER,      /* register <- value */
    SGLEXEC_IOTA,        /* register <- offset + sum d_i * strides[i] of map: any linear counter over the domain */
    SGLEXEC_SEGMENTS, /* register <- piecewise constant over the row-major index: pieces (operand: index into numbers),
                          1-D domains only, as LOAD_PIECES */
    SGLEXEC_RANDOM,   /* register <- op RANDOM_UNIFORM or RANDOM_NORMAL; args: seed, step, offset registers (ONE, i64);
                          element number: map (as IOTA) */
    SGLEXEC_COMPUTE,  /* register <- elementwise op of args */
    SGLEXEC_REDUCE,   /* register (ROW) <- REDUCE_SUM, MAX or MIN of args[0] over the columns */
    SGLEXEC_COLUMN_SUM, /* output <- REDUCE_SUM, MAX or MIN of args[0] over the rows (COL), dense in the order of the
                           inner dims */
    SGLEXEC_TOTAL,      /* output <- REDUCE_SUM, MAX or MIN of args[0] over everything (ONE) */
    SGLEXEC_STORE       /* output <- args[0] (FULL or ROW), through map */
} sglexec_step_kind;

typedef struct sglexec_step {
    uint8_t kind;     /* sglexec_step_kind */
    uint8_t form;     /* of the register, or of what is stored */
    uint8_t dtype;    /* of the register, or of the operand stored to */
    uint8_t phase;    /* 0: before any row reduction; a step that needs a ROW reduced in phase p runs in p + 1 or later.
                          Loads and generators stand in the phase of their first use, sums in that of their argument,
                          stores in the last one */
    uint16_t op;      /* sglir_op of COMPUTE, REDUCE, ... ; CAST's source dtype is that of its argument register */
    uint16_t out;     /* register written (all but the last three kinds) */
    uint16_t args[3]; /* registers */
    uint32_t operand; /* of the node: arguments first, then results */
    uint32_t piece_first, piece_count;
    int64_t id;   /* RANDOM: its id; GELU and GELU_GRAD: exact */
    double value; /* NUMBER */
    sglexec_map map;
    uint32_t origin; /* of the node it came from */
} sglexec_step;

/* How many registers a step reads. */
static inline int sglexec_step_args(const sglexec_step *step)
{
    switch (step->kind) {
    case SGLEXEC_RANDOM: return 3;
    case SGLEXEC_COMPUTE: return sglir_ops[step->op].minimum;
    case SGLEXEC_REDUCE:
    case SGLEXEC_COLUMN_SUM:
    case SGLEXEC_TOTAL:
    case SGLEXEC_STORE: return 1;
    default: return 0;
    }
}
/* All but sums that are results, and stores. */
static inline bool sglexec_makes_register(const sglexec_step *step) { return step->kind <= SGLEXEC_REDUCE; }

typedef struct sglexec_kernel {
    int32_t rank, inner; /* of the domain; the builder has merged dims wherever all maps allow it */
    int64_t dims[SGL_MAX_RANK];
    int64_t rows, cols;
    int32_t phases; /* row reductions in a chain + 1 */
    int32_t registers;
    bool reduces; /* any REDUCE: the row must be resident or be walked once per phase */
    SGLCORE_VEC(sglexec_step)
    steps; /* by phase; within one: in order of definition, then reductions, sums and stores */
    SGLCORE_VEC(sglexec_piece) pieces;
    SGLCORE_VEC(double) numbers;
    sglcore_hash hash; /* of the description: identical regions share one compiled kernel */
} sglexec_kernel;

/* Describes the FUSED node. TYPE or INTERNAL when the contract is not kept (the message names the inner node). */
sgl_status sglexec_kernel_build(sglcore_env *env, const sglir_graph *g, sglir_id fused, sglexec_kernel *kernel);
void sglexec_kernel_free(sglcore_env *env, sglexec_kernel *kernel);
/* A head and one line per step, each ended: for reports of a program and tests. */
sgl_status sglexec_kernel_print(sglcore_env *env, const sglexec_kernel *kernel, sglcore_text *text);

#endif
