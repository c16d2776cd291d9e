/* interp.h -- a plain interpreter of the IR: the oracle of every pass and kernel.
 *
 * Comes in: a graph of ir.h (any stage) and a tensor per input, by name. Goes out: a tensor
 * per fetch and update. Every float is computed in double and every integer in int64 (bool is 0 or 1), op by op, by the
 * formula that stands in ops.def, over naive index loops: nothing here is fast and nothing is shared with the library but
 * the graph and Philox. Integers wrap to their dtype. With `round`, floats are rounded to their dtype after each op.
 * A `grad` is taken by central differences (about 1e-11 of what is smooth), so that autodiff has an oracle too.
 * With `noise`, a seed, each float result of an op that rounds is moved by two units in its last place, up or down: how far
 * results move then is how far another order of the same sums may move them.
 * A failure is a message in `error` and false. Memory is malloc's; a test that runs out of it stops. */
#ifndef INTERP_H
#define INTERP_H

#include "ir/ir.h"

typedef struct interp_tensor {
    sgl_dtype dtype;
    int rank;
    int64_t dims[SGL_MAX_RANK];
    int64_t count;
    double *floats; /* of a float dtype, else NULL */
    int64_t *ints;  /* of an integer or bool, else NULL */
} interp_tensor;

typedef struct interp_named {
    char *name;
    interp_tensor tensor;
} interp_named;

typedef struct interp {
    bool round;
    uint64_t noise;    /* 0: none */
    bool fine;         /* the noise is of f64, whatever the dtype: what the interpreter's own roundings may come to */
    bool alike;        /* the noise moves all elements of a result the same way, as roundings of equal numbers do */
    const bool *exact; /* per op: it rounds nothing, and is left alone by the noise; NULL: none is */
    double step;       /* of differences; 0: 1e-3 */
    int side;          /* of differences: 0 central ones, else of the second order to that side, 1 or -1 */
    const struct interp_rank *rank; /* of a world (interp_world.h); NULL: it runs alone, and exchanges nothing */
    interp_named *inputs, *fetches, *updates;
    int input_count, fetch_count, update_count;
    char error[1024];
} interp;

/* Zero-initialise; free at the end. A tensor of zeros: */
interp_tensor interp_tensor_new(sgl_dtype dtype, int rank, const int64_t *dims);
void interp_tensor_free(interp_tensor *tensor);
double interp_get(const interp_tensor *tensor, int64_t element); /* as a double, whatever its dtype */
void interp_set(interp_tensor *tensor, int64_t element, double value);

/* Gives the input `name` its value, from now on; the tensor is copied. */
void interp_input(interp *in, const char *name, const interp_tensor *tensor);
/* Runs the graph once: inputs must be there with the types that the graph gives them. Replaces the last run's results. */
bool interp_run(interp *in, const sglir_graph *g);
/* Makes what the run's updates say the inputs of the next run. */
void interp_carry(interp *in);
const interp_tensor *interp_fetch(const interp *in, const char *name);  /* NULL when there is none */
const interp_tensor *interp_update(const interp *in, const char *name); /* NULL when there is none */
void interp_free(interp *in);
/* The distance of 1 to the next larger number of a float dtype; of another dtype that of f64. */
double interp_epsilon(sgl_dtype dtype);

#endif
