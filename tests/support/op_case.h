/* op_case.h -- the cases of tests/ops/cases.def as data, made into graphs of any dtype and extents.
 *
 * In: a case, a binding of its dtype and letters. Out: a graph with an INPUT a0, a1, ... per argument (its first letter
 * replaced by that of what its numbers are: "p0") and a fetch y0, y1, ... per result of the op; numbers for its inputs.
 * The table holds the rows that cases.def has; that it has all rows of ops.def is checked where test_ops.c is built. */
#ifndef OP_CASE_H
#define OP_CASE_H

#include "tests/support/ir_case.h"

typedef enum op_kind { OP_SMOOTH, OP_ONCE, OP_KINKED, OP_JUMPS, OP_EXACT, OP_REFUSED } op_kind;
typedef enum op_dtypes { OP_NONE, OP_FLOATS, OP_NUMBERS, OP_ANY, OP_BOOLS, OP_INTEGERS, OP_BITS } op_dtypes;

typedef struct op_case {
    sglir_op op;
    op_kind kind;
    op_dtypes dtypes;
    double condition;
    const char *arguments;
    const char *attributes; /* of one node, or NULL */
    const char *body;       /* lines instead of one node, or NULL */
    const char *message;    /* of a refusal */
} op_case;

/* The case of this number, from 0; false past the last one. */
bool op_case_at(int number, op_case *c);

typedef struct op_binding {
    sgl_dtype dtype, index; /* T and I */
    int star_rank;
    int64_t star[SGL_MAX_RANK];
    int64_t extents[26];
} op_binding;

/* f64, i32, no leading dims, small extents that differ from one another. */
op_binding op_binding_plain(void);
/* Whether T may stand for the dtype. */
bool op_case_takes(const op_case *c, sgl_dtype dtype);
/* The graph, or NULL with the message of what refused it in env. */
sglir_graph *op_case_graph(sglcore_env *env, const op_case *c, const op_binding *binding);
/* How many arguments the case has. */
int op_case_arguments(const op_case *c);
/* Gives every input of such a graph its numbers, as its dtype holds them. */
void op_case_fill(interp *in, const sglir_graph *g, uint64_t seed);
/* "matmul(f32[2,3] f32[3,4]) {...}" for messages. Returns text. */
const char *op_case_label(const op_case *c, const op_binding *binding, char *text, size_t size);

#endif
