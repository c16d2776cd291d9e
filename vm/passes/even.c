/* even.c -- sizes by which ranks decide alike, however uneven their parts. In: one rank's graph. Out: of a value what a
 * part would have if all were as large; whether all are. Odd invariant: it is worked out of whole extents alone, so that
 * all ranks find the same bits; what nobody said of what it is a part stands between two movements of one exchange, and
 * has its own. */
#include "passes/pass.h"

static int64_t ranks_along(const sglplan *plan, const sglir_type *type, int dim)
{
    int64_t ranks = 1;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] == dim && axis != SGLIR_AXIS_MICRO) ranks *= plan->mesh[axis];
    }
    return ranks;
}

double sglpass_even_bytes(const sglplan *plan, const sglir_graph *g, sglir_id value)
{
    const sglir_type *type = sglir_type_of(g, value);
    const sglir_whole *whole = sglir_whole_of(g, value);
    if (whole == NULL) return (double)sglir_bytes(type);
    double bytes = (double)sglcore_dtype_bits((sgl_dtype)type->dtype) / 8;
    for (int dim = 0; dim < type->rank; dim++) bytes *= (double)whole->dims[dim] / (double)ranks_along(plan, type, dim);
    return bytes;
}

/* No part of an uneven dimension is as large as the mean of all, so each rank finds the same. */
bool sglpass_is_even(const sglplan *plan, const sglir_graph *g)
{
    for (int64_t v = 0; v < g->values.count; v++) {
        const sglir_type *type = &g->values.data[v].type;
        const sglir_whole *whole = sglir_whole_of(g, (sglir_id)v);
        for (int dim = 0; whole && dim < type->rank; dim++) {
            const int64_t ranks = ranks_along(plan, type, dim), all = whole->dims[dim];
            if (all % ranks != 0 || type->dims[dim] != all / ranks) return false;
        }
    }
    return true;
}
