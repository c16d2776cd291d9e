/* eval.h -- the elements of a tensor while a trace is open: for core.eval and for the console.
 * Comes in: a tensor of the running trace. Goes out: its elements as doubles or 64-bit integers, in scratch 0, where they
 * stay until something else is evaluated or read from a file. */
#ifndef SGLDSL_EVAL_H
#define SGLDSL_EVAL_H

#include "dsl/dsl.h"

typedef struct sgldsl_elements {
    sgl_type type; /* of the tensor */
    int64_t count;
    const double *floats; /* one of the two is NULL; bools are integers */
    const int64_t *integers;
} sgldsl_elements;

/* Computes the tensor at `index` on the CPU; raises when the graph cannot be run. */
void sgldsl_evaluate(lua_State *L, int index, sgldsl_elements *elements);
/* Pushes element number `at` as a Lua number or boolean. */
void sgldsl_push_element(lua_State *L, const sgldsl_elements *elements, int64_t at);

#endif
