/* vjp_sum.c -- see vjp_sum.h.
 *
 * In: what the derivative of one turn gives for a value from around the loop. Out: nodes that add it to what came of the
 * turns before. Odd invariant: none of them touches the whole of a large value for the sake of a part of it: a slice is
 * added where it lies, and rows of a table wait beside it, as they would with the lookup outside of the loop. */
#include "passes/vjp_sum.h"

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

sglir_id sglpass_sum_slice_at(sglir_graph *g, sglir_id stack, sglir_id at)
{
    sglir_id args[2] = { stack, at }, out = SGLIR_NONE;
    const sglir_named attrs[2] = { SGLIR_I("axis", 0), SGLIR_I("size", 1) };
    sglir_emit(g, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 2, &out);
    return out;
}

sglir_id sglpass_sum_update(sglir_graph *g, sglir_id stack, sglir_id slice, sglir_id at, int64_t axis)
{
    sglir_id args[3] = { stack, slice, at }, out = SGLIR_NONE;
    const sglir_named attr = SGLIR_I("axis", axis);
    sglir_emit(g, SGLIR_OP_DYNAMIC_UPDATE, args, 3, &attr, 1, &out);
    return out;
}

sglir_id sglpass_sum_push(sglir_graph *g, sglir_id stack, sglir_id value, sglir_id at)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    sglir_type slice = *sglir_type_of(g, stack);
    slice.dims[0] = 1;
    return sglpass_sum_update(g, stack, sglir_reshape(g, value, slice.rank, slice.dims), at, 0);
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* sum + term. A term that is zeros but for a slice is added where that slice lies. */
static sglir_id add_term(sglir_graph *g, sglir_id sum, sglir_id term, bool only, sglir_id back, int64_t turns)
{
    double value;
    const sglir_node *maker = sglir_maker(g, term);
    bool slices = maker != NULL && maker->op == SGLIR_OP_DYNAMIC_UPDATE &&
                  sglir_constant_value(g, sglir_arg(g, maker, 0), &value) && value == 0;
    if (!slices) return sglir_add(g, sum, term);
    sglir_id slice = sglir_arg(g, maker, 1), start = sglir_arg(g, maker, 2), before = SGLIR_NONE;
    int64_t axis = sglir_attr_int(g, maker, "axis"), size = sglir_type_of(g, slice)->dims[axis];
    /* One slice of as many as there are turns, each turn another: nothing lies there yet. */
    bool fresh = only && start == back && size == 1 && sglir_type_of(g, sum)->dims[axis] == turns;
    if (!fresh) {
        const sglir_named attrs[2] = { SGLIR_I("axis", axis), SGLIR_I("size", size) };
        sglir_id args[2] = { sum, start };
        sglir_emit(g, SGLIR_OP_DYNAMIC_SLICE, args, 2, attrs, 2, &before);
        slice = sglir_add(g, before, slice);
    }
    return sglpass_sum_update(g, sum, slice, start, axis);
}

/* Terms that a sum is taken apart into; nodes of it that are looked at. A sum of sums with itself has more ways through it
 * than anyone could go. */
enum { MOST_TERMS = 64, MOST_LOOKED_AT = 256 };

static bool has_slice(const sglir_graph *g, sglir_id value, int *left)
{
    const sglir_node *maker = sglir_maker(g, value);
    if (maker == NULL || --*left < 0) return false;
    if (maker->op == SGLIR_OP_DYNAMIC_UPDATE) return true;
    return maker->op == SGLIR_OP_ADD &&
           (has_slice(g, sglir_arg(g, maker, 0), left) || has_slice(g, sglir_arg(g, maker, 1), left));
}

bool sglpass_sum_has_slice(const sglir_graph *g, sglir_id value)
{
    int left = MOST_LOOKED_AT;
    return has_slice(g, value, &left);
}

sglir_id sglpass_sum_add(sglir_graph *g, sglir_id sum, sglir_id gradient, sglir_id back, int64_t turns)
{
    sglir_id waiting[MOST_TERMS] = { gradient };
    int terms = 1;
    for (int count = 1; count > 0 && g->status == SGL_OK;) {
        sglir_id term = waiting[--count];
        const sglir_node *maker = sglir_maker(g, term);
        if (maker != NULL && maker->op == SGLIR_OP_ADD && terms < MOST_TERMS && sglpass_sum_has_slice(g, term)) {
            waiting[count++] = sglir_arg(g, maker, 1);
            waiting[count++] = sglir_arg(g, maker, 0);
            terms++;
            continue;
        }
        sum = add_term(g, sum, term, terms == 1, back, turns);
    }
    return sum;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Of a small table the whole is added sooner than rows are kept. */
enum { ROWS_OF_A_TURN = 4 };

const sglir_node *sglpass_sum_rows(const sglir_graph *g, sglir_id gradient)
{
    const sglir_node *node = sglir_maker(g, gradient);
    if (node == NULL || node->op != SGLIR_OP_SCATTER_ADD) return NULL;
    const sglir_type *indices = sglir_type_of(g, sglir_arg(g, node, 0));
    bool few = sglir_elements(indices) * ROWS_OF_A_TURN <= sglir_type_of(g, gradient)->dims[0];
    return few && sglir_type_of(g, sglir_arg(g, node, 1))->rank < SGL_MAX_RANK ? node : NULL;
}
