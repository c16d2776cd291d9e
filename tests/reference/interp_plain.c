/* interp_plain.c -- the interpreter's primitives that are not elementwise: generators, reductions, movement, products, and
 * what goes by an index. In: arguments as they are. Out: results, filled element by element. */
#include "interp_inside.h"

#include <math.h>
#include <string.h>

/* ---- generators --------------------------------------------------------------------------------------------- */

static void constant(const interp_call *call) { interp_set(&call->results[0], 0, interp_float(call, "value")); }

static void iota(const interp_call *call)
{
    interp_tensor *out = &call->results[0];
    int64_t axis = interp_int(call, "axis"), index[SGL_MAX_RANK];
    for (int64_t e = 0; e < out->count; e++) {
        interp_unravel(e, out->rank, out->dims, index);
        interp_set(out, e, (double)index[axis]);
    }
}

static void segments(const interp_call *call)
{
    int count;
    const int64_t *counts = interp_ints(call, "counts", &count);
    const double *values = sglir_attr_floats(call->g, call->node, "values", &count);
    int64_t e = 0;
    for (int i = 0; i < count; i++) {
        for (int64_t k = 0; k < counts[i]; k++) interp_set(&call->results[0], e++, values[i]);
    }
}

/* The four words of Philox at counter (block, step), key seed ^ id; 64-bit numbers enter with their low half first. */
static void philox_words(const interp_call *call, uint64_t block, uint32_t words[4])
{
    uint64_t seed = (uint64_t)call->args[0]->ints[0], step = (uint64_t)call->args[1]->ints[0];
    uint64_t key = seed ^ (uint64_t)interp_int(call, "id");
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, (uint32_t)(step >> 32) };
    const uint32_t halves[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    sglcore_philox(counter, halves, words);
}

static void random_uniform(const interp_call *call)
{
    for (int64_t i = 0; i < call->results[0].count; i++) {
        uint64_t e = (uint64_t)i + (uint64_t)call->args[2]->ints[0];
        uint32_t words[4];
        philox_words(call, e / 4, words);
        interp_set(&call->results[0], i, (words[e % 4] >> 8) * ldexp(1, -24));
    }
}

static void random_normal(const interp_call *call)
{
    const double two_pi = 6.283185307179586;
    for (int64_t i = 0; i < call->results[0].count; i++) {
        uint64_t e = (uint64_t)i + (uint64_t)call->args[2]->ints[0];
        uint32_t words[4];
        philox_words(call, e / 2, words);
        double a = ((words[2 * (e % 2)] >> 8) + 1) * ldexp(1, -24), b = (words[2 * (e % 2) + 1] >> 8) * ldexp(1, -24);
        interp_set(&call->results[0], i, sqrt(-2 * log(a)) * cos(two_pi * b));
    }
}

/* ---- reductions --------------------------------------------------------------------------------------------- */

static int64_t int_extreme(sgl_dtype dtype, bool least)
{
    if (dtype == SGL_BOOL) return !least;
    int bits = sglcore_dtype_bits(dtype);
    if (!sglcore_dtype_is_signed(dtype)) return least ? 0 : (INT64_C(1) << bits) - 1;
    if (bits == 64) return least ? INT64_MIN : INT64_MAX;
    return least ? -(INT64_C(1) << (bits - 1)) : (INT64_C(1) << (bits - 1)) - 1;
}

static void take_in(sglir_op op, interp_tensor *out, int64_t to, const interp_tensor *x, int64_t from)
{
    if (out->floats != NULL) {
        double a = out->floats[to], b = x->floats[from];
        if (op == SGLIR_OP_REDUCE_PROD) {
            out->floats[to] = a * b;
        } else if (isnan(a) || isnan(b)) {
            out->floats[to] = NAN;
        } else {
            out->floats[to] = op == SGLIR_OP_REDUCE_MAX ? fmax(a, b) : fmin(a, b);
        }
        return;
    }
    int64_t a = out->ints[to], b = x->ints[from];
    if (op == SGLIR_OP_REDUCE_SUM) {
        out->ints[to] = (int64_t)((uint64_t)a + (uint64_t)b);
    } else if (op == SGLIR_OP_REDUCE_PROD) {
        out->ints[to] = (int64_t)((uint64_t)a * (uint64_t)b);
    } else if (op == SGLIR_OP_REDUCE_MAX ? b > a : b < a) {
        out->ints[to] = b;
    }
}

/* Also mean, of floats: the sum is rounded once it is divided. */
static void reduce(const interp_call *call, sglir_op op)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int count;
    const int64_t *axes = interp_ints(call, "axes", &count);
    int64_t kept[SGL_MAX_RANK], index[SGL_MAX_RANK], summed = 1; /* extents of the result with reduced ones as 1 */
    for (int i = 0; i < x->rank; i++) kept[i] = x->dims[i];
    for (int i = 0; i < count; i++) {
        kept[axes[i]] = 1;
        summed *= x->dims[axes[i]];
    }
    for (int64_t e = 0; e < out->count && op == SGLIR_OP_REDUCE_PROD; e++) interp_set(out, e, 1);
    for (int64_t e = 0; e < out->count && (op == SGLIR_OP_REDUCE_MAX || op == SGLIR_OP_REDUCE_MIN); e++) {
        bool least = op == SGLIR_OP_REDUCE_MAX;
        if (out->floats != NULL) {
            out->floats[e] = least ? -INFINITY : INFINITY;
        } else {
            out->ints[e] = int_extreme(out->dtype, least);
        }
    }
    long double *sums = op == SGLIR_OP_REDUCE_SUM || op == SGLIR_OP_MEAN ? interp_sums(out) : NULL;
    for (int64_t e = 0; e < x->count; e++) {
        interp_unravel(e, x->rank, x->dims, index);
        for (int i = 0; i < count; i++) index[axes[i]] = 0;
        int64_t to = interp_ravel(x->rank, kept, index);
        if (sums != NULL)
            sums[to] += x->floats[e];
        else
            take_in(op, out, to, x, e);
    }
    if (sums == NULL) return;
    for (int64_t e = 0; e < out->count && op == SGLIR_OP_MEAN; e++) sums[e] /= (long double)summed;
    interp_summed(out, sums);
}

/* ---- movement ----------------------------------------------------------------------------------------------- */

static void broadcast(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int64_t index[SGL_MAX_RANK];
    for (int64_t e = 0; e < out->count; e++) {
        interp_unravel(e, out->rank, out->dims, index);
        int64_t *own = index + (out->rank - x->rank);
        for (int i = 0; i < x->rank; i++) own[i] = x->dims[i] == 1 ? 0 : own[i];
        interp_move(out, e, x, interp_ravel(x->rank, x->dims, own));
    }
}

static void transpose(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int64_t index[SGL_MAX_RANK], source[SGL_MAX_RANK];
    int count;
    const int64_t *order = interp_ints(call, "order", &count);
    for (int64_t e = 0; e < out->count; e++) {
        interp_unravel(e, out->rank, out->dims, index);
        for (int i = 0; i < count; i++) source[order[i]] = index[i];
        interp_move(out, e, x, interp_ravel(x->rank, x->dims, source));
    }
}

/* slice and dynamic_slice: element index[axis] * step + start of x */
static void slice(const interp_call *call, int64_t start, int64_t step)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *out = &call->results[0];
    int64_t index[SGL_MAX_RANK], axis = interp_int(call, "axis");
    for (int64_t e = 0; e < out->count; e++) {
        interp_unravel(e, out->rank, out->dims, index);
        index[axis] = start + index[axis] * step;
        interp_move(out, e, x, interp_ravel(x->rank, x->dims, index));
    }
}

/* Writes part into out, its element i along the axis to start + i * step. */
static void write_part(interp_tensor *out, const interp_tensor *part, int64_t axis, int64_t start, int64_t step)
{
    int64_t index[SGL_MAX_RANK];
    for (int64_t e = 0; e < part->count; e++) {
        interp_unravel(e, part->rank, part->dims, index);
        index[axis] = start + index[axis] * step;
        interp_move(out, interp_ravel(out->rank, out->dims, index), part, e);
    }
}

static void pad(const interp_call *call)
{
    interp_tensor *out = &call->results[0];
    for (int64_t e = 0; e < out->count; e++) interp_set(out, e, interp_float(call, "value"));
    write_part(out, call->args[0], interp_int(call, "axis"), interp_int(call, "before"),
               interp_int(call, "between") + 1);
}

static void concat(const interp_call *call)
{
    int64_t axis = interp_int(call, "axis"), start = 0;
    for (uint32_t i = 0; i < call->node->arg_count; i++) {
        write_part(&call->results[0], call->args[i], axis, start, 1);
        start += call->args[i]->dims[axis];
    }
}

/* reshape, pack, unpack: all elements of the arguments, one after another, into the results, one after another */
static void scale(const interp_call *call)
{
    double factor = call->args[1]->floats[0];
    if (call->node->op == SGLIR_OP_UNSCALE) factor = 1 / factor;
    for (int64_t e = 0; e < call->results[0].count; e++) call->results[0].floats[e] = call->args[0]->floats[e] * factor;
}

static void pour(const interp_call *call)
{
    uint32_t to = 0;
    int64_t at = 0;
    for (uint32_t i = 0; i < call->node->arg_count; i++) {
        for (int64_t e = 0; e < call->args[i]->count; e++) {
            while (at == call->results[to].count) {
                to++;
                at = 0;
            }
            interp_move(&call->results[to], at++, call->args[i], e);
        }
    }
}

static int64_t clamped_start(const interp_tensor *start, int64_t extent, int64_t size)
{
    int64_t most = extent - size, value = start->ints[0];
    return value < 0 ? 0 : value > most ? most : value;
}

static void dynamic_slice(const interp_call *call)
{
    int64_t axis = interp_int(call, "axis");
    slice(call, clamped_start(call->args[1], call->args[0]->dims[axis], interp_int(call, "size")), 1);
}

static void dynamic_update(const interp_call *call)
{
    const interp_tensor *x = call->args[0], *update = call->args[1];
    int64_t axis = interp_int(call, "axis");
    for (int64_t e = 0; e < x->count; e++) interp_move(&call->results[0], e, x, e);
    write_part(&call->results[0], update, axis, clamped_start(call->args[2], x->dims[axis], update->dims[axis]), 1);
}

/* ---- by index ----------------------------------------------------------------------------------------------- */

static void gather(const interp_call *call)
{
    const interp_tensor *table = call->args[0], *indices = call->args[1];
    int64_t rows = table->dims[0], row = rows > 0 ? table->count / rows : 0;
    for (int64_t i = 0; i < indices->count; i++) {
        int64_t at = indices->ints[i];
        for (int64_t k = 0; k < row && at >= 0 && at < rows; k++) {
            interp_move(&call->results[0], i * row + k, table, at * row + k);
        }
    }
}

static void scatter_add(const interp_call *call)
{
    const interp_tensor *indices = call->args[0], *updates = call->args[1];
    interp_tensor *out = &call->results[0];
    int64_t rows = out->dims[0], row = indices->count > 0 ? updates->count / indices->count : 0;
    long double *sums = interp_sums(out);
    for (int64_t i = 0; i < indices->count; i++) {
        int64_t at = indices->ints[i];
        for (int64_t k = 0; k < row && at >= 0 && at < rows; k++) {
            if (sums != NULL)
                sums[at * row + k] += updates->floats[i * row + k];
            else
                take_in(SGLIR_OP_REDUCE_SUM, out, at * row + k, updates, i * row + k);
        }
    }
    interp_summed(out, sums);
}

/* ---- products ----------------------------------------------------------------------------------------------- */

static bool is_among(int64_t axis, const int64_t *axes, int count)
{
    for (int i = 0; i < count; i++) {
        if (axes[i] == axis) return true;
    }
    return false;
}

/* Sets the dims of one argument that the result's index decides: batch dims, then free ones from `free_at` on. */
static void place_index(const interp_tensor *x, const int64_t *result_index, const int64_t *batch, int batch_count,
                        const int64_t *contract, int contract_count, int *free_at, int64_t *index)
{
    for (int i = 0; i < batch_count; i++) index[batch[i]] = result_index[i];
    for (int axis = 0; axis < x->rank; axis++) {
        if (is_among(axis, batch, batch_count) || is_among(axis, contract, contract_count)) continue;
        index[axis] = result_index[(*free_at)++];
    }
}

static void dot(const interp_call *call)
{
    const interp_tensor *a = call->args[0], *b = call->args[1];
    interp_tensor *out = &call->results[0];
    int batch, contract;
    const int64_t *batch_a = interp_ints(call, "batch_a", &batch), *batch_b = interp_ints(call, "batch_b", &batch);
    const int64_t *contract_a = interp_ints(call, "contract_a", &contract);
    const int64_t *contract_b = interp_ints(call, "contract_b", &contract);
    int64_t sum_dims[SGL_MAX_RANK], terms = 1;
    for (int i = 0; i < contract; i++) {
        sum_dims[i] = a->dims[contract_a[i]];
        terms *= sum_dims[i];
    }
    for (int64_t e = 0; e < out->count; e++) {
        int64_t index[SGL_MAX_RANK], at_a[SGL_MAX_RANK], at_b[SGL_MAX_RANK], sum_index[SGL_MAX_RANK];
        interp_unravel(e, out->rank, out->dims, index);
        int free_at = batch;
        long double sum = 0;
        uint64_t whole = 0; /* integers wrap */
        place_index(a, index, batch_a, batch, contract_a, contract, &free_at, at_a);
        place_index(b, index, batch_b, batch, contract_b, contract, &free_at, at_b);
        for (int64_t term = 0; term < terms; term++) {
            interp_unravel(term, contract, sum_dims, sum_index);
            for (int i = 0; i < contract; i++) {
                at_a[contract_a[i]] = sum_index[i];
                at_b[contract_b[i]] = sum_index[i];
            }
            int64_t x = interp_ravel(a->rank, a->dims, at_a), y = interp_ravel(b->rank, b->dims, at_b);
            if (out->floats != NULL)
                sum += (long double)a->floats[x] * b->floats[y];
            else
                whole += (uint64_t)a->ints[x] * (uint64_t)b->ints[y];
        }
        if (out->floats != NULL)
            out->floats[e] = (double)sum;
        else
            out->ints[e] = (int64_t)whole;
    }
}

/* ---- the table ---------------------------------------------------------------------------------------------- */

bool interp_plain(const interp_call *call)
{
    switch (call->node->op) {
    case SGLIR_OP_CONSTANT: constant(call); return true;
    case SGLIR_OP_IOTA: iota(call); return true;
    case SGLIR_OP_SEGMENTS: segments(call); return true;
    case SGLIR_OP_RANDOM_UNIFORM: random_uniform(call); return true;
    case SGLIR_OP_RANDOM_NORMAL: random_normal(call); return true;
    case SGLIR_OP_REDUCE_SUM:
    case SGLIR_OP_REDUCE_MAX:
    case SGLIR_OP_REDUCE_MIN:
    case SGLIR_OP_REDUCE_PROD:
    case SGLIR_OP_MEAN: reduce(call, (sglir_op)call->node->op); return true;
    case SGLIR_OP_SCALE:
    case SGLIR_OP_UNSCALE: scale(call); return true;
    case SGLIR_OP_UPDATE_NUMBER: /* where no step is skipped */
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_PACK:
    case SGLIR_OP_UNPACK: pour(call); return true;
    case SGLIR_OP_BROADCAST: broadcast(call); return true;
    case SGLIR_OP_TRANSPOSE: transpose(call); return true;
    case SGLIR_OP_SLICE: slice(call, interp_int(call, "start"), interp_int(call, "step")); return true;
    case SGLIR_OP_PAD: pad(call); return true;
    case SGLIR_OP_CONCAT: concat(call); return true;
    case SGLIR_OP_DYNAMIC_SLICE: dynamic_slice(call); return true;
    case SGLIR_OP_DYNAMIC_UPDATE: dynamic_update(call); return true;
    case SGLIR_OP_GATHER: gather(call); return true;
    case SGLIR_OP_SCATTER_ADD: scatter_add(call); return true;
    case SGLIR_OP_DOT: dot(call); return true;
    default: return false;
    }
}
