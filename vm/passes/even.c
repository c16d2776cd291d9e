/* even.c -- bytes by which ranks decide alike, however uneven their parts. In: a value of one rank's graph. Out: what a part would
 * have if all were as large. Odd invariant: it is worked out of whole extents alone, so that all ranks find the same bits; what
 * nobody said of what it is a part stands between two movements of one exchange, or in a loop over micro-batches, and has its own. */
#include "passes/pass.h"

double sglpass_even_bytes(const sglplan *plan, const sglir_graph *g, sglir_id value)
{
    const sglir_type *type = sglir_type_of(g, value);
    const sglir_whole *whole = sglir_whole_of(g, value);
    if (whole == NULL) return (double)sglir_bytes(type);
    double bytes = (double)sglcore_dtype_bits((sgl_dtype)type->dtype) / 8;
    for (int dim = 0; dim < type->rank; dim++) bytes *= (double)whole->dims[dim];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (type->sharded[axis] >= 0 && axis != SGLIR_AXIS_MICRO) bytes /= (double)plan->mesh[axis];
    }
    return bytes;
}
