/* interp_inside.h -- what the files of the interpreter share: one op's call, and index arithmetic. */
#ifndef INTERP_INSIDE_H
#define INTERP_INSIDE_H

#include "interp.h"

/* One node about to be computed: results are there, of their types, all zero. */
typedef struct interp_call {
    interp *in;
    const sglir_graph *g;
    const sglir_node *node;
    const interp_tensor *const *args;
    interp_tensor *results;
} interp_call;

/* Each computes the node and returns true, or returns false when the op is not one of its. */
bool interp_elementwise(const interp_call *call);
bool interp_plain(const interp_call *call);  /* generators, reductions, movement, products, by index */
bool interp_along(const interp_call *call);  /* along axes: recurrences, orders, what is taken by an index */
bool interp_window(const interp_call *call); /* windows and convolutions */
bool interp_composite(const interp_call *call);
bool interp_mesh(const interp_call *call); /* what ranks exchange, and where one stands; of a world alone */

/* Moves result k as `noise` of interp.h says. */
void interp_disturb(const interp_call *call, uint32_t k);

/* Elementwise in double, for composites too. */
double interp_sigmoid(double x);

/* Sums of floats are taken in long double and rounded once: a plain sum of n numbers alike strays by n / 2 units of a double,
 * which is more than a kernel that sums in lanes does, and no reference for it. All zero; NULL for integers, which wrap. */
long double *interp_sums(const interp_tensor *t);
/* The sums become the tensor's elements, and are freed. */
void interp_summed(interp_tensor *t, long double *sums);

/* The element's index along each dimension, and back. */
void interp_unravel(int64_t element, int rank, const int64_t *dims, int64_t *index);
int64_t interp_ravel(int rank, const int64_t *dims, const int64_t *index);
void interp_move(interp_tensor *to, int64_t to_element, const interp_tensor *from, int64_t from_element);
int64_t interp_int(const interp_call *call, const char *attr);
double interp_float(const interp_call *call, const char *attr);
const int64_t *interp_ints(const interp_call *call, const char *attr, int *count);

#endif
