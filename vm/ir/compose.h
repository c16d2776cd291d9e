/* compose.h -- inside the room: what the decompositions share. Each is a formula over primitives, worked out in f32 or
 * f64, and cast back to the argument's dtype at its end. Odd invariant: rows are reduced with keep=1 and broadcast back,
 * the form that the fuse pass knows as row-wise. */
#ifndef SGLIR_COMPOSE_H
#define SGLIR_COMPOSE_H

#include "ir/infer.h"

#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, ...)                     \
    void sglir_compose_##compose(sglir_graph *g, const sglir_graph *from, const sglir_node *node,                      \
                                 const sglir_id *args, sglir_id *out);
#include "ir/ops.def"
#undef SGLIR_OP

/* The value in f32, or f64 when it is that. */
sglir_id sglir_widen(sglir_graph *g, sglir_id x);
/* The value in the dtype of `like`. */
sglir_id sglir_cast_like(sglir_graph *g, sglir_id x, sglir_id like);
/* Reduces the last dimension to 1; x must have one. */
sglir_id sglir_reduce_last(sglir_graph *g, sglir_op op, sglir_id x);
/* 0, 1, ... along `axis` of dims, in `dtype`. */
sglir_id sglir_iota(sglir_graph *g, sgl_dtype dtype, int axis, int rank, const int64_t *dims);
/* x [..., n] with weight [m, n]: x weight^T. */
sglir_id sglir_dot_last(sglir_graph *g, sglir_id x, sglir_id weight);

#endif
