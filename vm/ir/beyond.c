/* beyond.c -- ops that run over parts of an argument which their labels refuse: the one table of it, asked by inference
 * (infer_owed.c), which says what comes out, and by the pass shard, which chooses such a way and does what else it takes.
 *
 * In: an op, the dimension along which its first argument is split over some axis of ranks. Out: in which parts the other
 * arguments must be there, and the results come out, over the same axis. Odd invariant: what the table tells is right only of
 * arguments that count from this rank's part (offsets of attention and rope, indices into a table): the pass moves them. */
#include "ir/infer.h"

/* A place per argument, then per result, in its order: a digit is a dimension, '-' whole, '+' terms of a sum; arguments that a
 * node has beyond those listed are whole. `dim`: of the first argument. */
typedef struct row {
    sglir_op op;
    int dim;
    const char *args, *results;
} row;

static const row rows[] = {
    /* a table by rows: indices of other ranks' rows give zeros */
    { SGLIR_OP_GATHER, 0, "0-", "+" },
    /* a part of the queries' sequence, with their segments, over whole keys and values */
    { SGLIR_OP_ATTENTION, 1, "1---1", "12" },
    { SGLIR_OP_ATTENTION_GRAD, 1, "1--121-1", "1++" },
    /* positions are there for each row of the sequence where they are of rank 2 */
    { SGLIR_OP_ROPE, 1, "11", "1" },
};

static int8_t place(char letter)
{
    return (int8_t)(letter == '-' ? SGLIR_WHOLE : letter == '+' ? SGLIR_PARTIAL : letter - '0');
}

/* The extreme of a part, then of all parts': of the least the greatest negative, which numbers without a sign have not. */
static bool is_extreme(const sglir_view *v, int dim)
{
    if (v->op != SGLIR_OP_REDUCE_MAX && v->op != SGLIR_OP_REDUCE_MIN) return false;
    if (v->op == SGLIR_OP_REDUCE_MIN && !sglcore_dtype_is_float((sgl_dtype)v->args[0]->dtype)) return false;
    for (int a = 0; a < v->attr_count; a++) {
        if (v->attrs[a].kind != 'I') continue;
        for (int64_t i = 0; i < v->attrs[a].i; i++) {
            if (v->attrs[a].ints[i] == dim) return true;
        }
    }
    return false;
}

bool sglir_beyond_of_view(const sglir_view *v, int dim, sglir_beyond *beyond)
{
    for (int i = 0; i < 16; i++) beyond->args[i] = SGLIR_WHOLE;
    for (int r = 0; r < 8; r++) beyond->results[r] = SGLIR_WHOLE;
    beyond->extreme = dim >= 0 && v->arg_count > 0 && is_extreme(v, dim);
    if (beyond->extreme) {
        beyond->args[0] = beyond->results[0] = (int8_t)dim;
        return true;
    }
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        const row *at = &rows[n];
        if (at->op != v->op || at->dim != dim) continue;
        for (int i = 0; i < v->arg_count && at->args[i] != '\0'; i++) beyond->args[i] = place(at->args[i]);
        for (int r = 0; at->results[r] != '\0'; r++) beyond->results[r] = place(at->results[r]);
        if (v->op == SGLIR_OP_ROPE && v->args[1]->rank == 0) beyond->args[1] = SGLIR_WHOLE; /* an offset */
        return true;
    }
    return false;
}

bool sglir_beyond_of(const sglir_graph *g, const sglir_node *node, int dim, sglir_beyond *beyond)
{
    sglir_named named[SGLIR_MOST_ATTRS];
    sglir_view view;
    return sglir_view_of(g, node, named, &view) && sglir_beyond_of_view(&view, dim, beyond);
}
