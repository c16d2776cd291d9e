/* interp_along.c -- the interpreter's ops along axes: recurrences, running sums and products, flips, orders, and what is
 * taken by an index along an axis. In: arguments as they are. Out: results, line by line: a line is the elements that
 * differ along the axis only. */
#include "interp_inside.h"

#include <math.h>
#include <string.h>

/* Lines of a tensor along an axis: element i of line l is at start(l) + i * step. */
typedef struct lines {
    int64_t count, extent, step;
} lines;

static lines lines_of(const interp_tensor *x, int64_t axis)
{
    lines l = { .count = 1, .extent = x->dims[axis], .step = 1 };
    for (int i = 0; i < x->rank; i++) {
        if (i != axis) l.count *= x->dims[i];
        if (i > axis) l.step *= x->dims[i];
    }
    return l;
}

static int64_t place(const lines *l, int64_t line, int64_t i)
{
    return line / l->step * l->step * l->extent + line % l->step + i * l->step;
}

/* ---- recurrences ---------------------------------------------------------------------------------------------- */

/* to[at] = a * b + c, each a tensor's element; NULL stands for 1 (of a and b) or 0 (of c). Integers wrap. */
static void multiply_add(interp_tensor *to, int64_t at, const interp_tensor *a, int64_t a_at, const interp_tensor *b,
                         int64_t b_at, const interp_tensor *c, int64_t c_at)
{
    if (to->floats != NULL) {
        double product = (a ? a->floats[a_at] : 1) * (b ? b->floats[b_at] : 1);
        to->floats[at] = product + (c ? c->floats[c_at] : 0);
    } else {
        uint64_t product = (a ? (uint64_t)a->ints[a_at] : 1) * (b ? (uint64_t)b->ints[b_at] : 1);
        to->ints[at] = (int64_t)(product + (c ? (uint64_t)c->ints[c_at] : 0));
    }
}

static void recurrence(const interp_call *call)
{
    const interp_tensor *a = call->args[0], *b = call->args[1];
    interp_tensor *y = &call->results[0];
    lines l = lines_of(y, interp_int(call, "axis"));
    bool reverse = interp_int(call, "reverse") != 0;
    for (int64_t line = 0; line < l.count; line++) {
        for (int64_t i = 0; i < l.extent; i++) {
            int64_t at = place(&l, line, reverse ? l.extent - 1 - i : i), last = at + (reverse ? l.step : -l.step);
            if (i == 0) {
                interp_move(y, at, b, at);
            } else {
                multiply_add(y, at, a, at, y, last, b, at);
            }
        }
    }
}

/* cumulative_sum and cumulative_prod: y_i is made of y_(i-1) and of x_i, or exclusively of x_(i-1). */
static void cumulate(const interp_call *call, bool sums)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *y = &call->results[0];
    lines l = lines_of(x, interp_int(call, "axis"));
    bool reverse = interp_int(call, "reverse") != 0, exclusive = interp_int(call, "exclusive") != 0;
    for (int64_t line = 0; line < l.count; line++) {
        long double sum = 0;
        for (int64_t i = 0; i < l.extent; i++) {
            int64_t at = place(&l, line, reverse ? l.extent - 1 - i : i), last = at + (reverse ? l.step : -l.step);
            int64_t from = exclusive ? last : at;
            if (sums && y->floats != NULL) {
                if (i > 0 || !exclusive) sum += x->floats[from];
                y->floats[at] = (double)sum;
            } else if (i == 0 && exclusive) {
                interp_set(y, at, sums ? 0 : 1);
            } else if (i == 0) {
                interp_move(y, at, x, at);
            } else if (sums) {
                multiply_add(y, at, NULL, 0, y, last, x, from);
            } else {
                multiply_add(y, at, x, from, y, last, NULL, 0);
            }
        }
    }
}

static void flip(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    int count;
    const int64_t *axes = interp_ints(call, "axes", &count);
    int64_t index[SGL_MAX_RANK];
    for (int64_t e = 0; e < x->count; e++) {
        interp_unravel(e, x->rank, x->dims, index);
        for (int i = 0; i < count; i++) index[axes[i]] = x->dims[axes[i]] - 1 - index[axes[i]];
        interp_move(&call->results[0], e, x, interp_ravel(x->rank, x->dims, index));
    }
}

/* ---- orders --------------------------------------------------------------------------------------------------- */

static bool is_nan(const interp_tensor *x, int64_t at) { return x->floats != NULL && isnan(x->floats[at]); }

static bool below(const interp_tensor *x, int64_t a, int64_t b)
{
    return x->floats != NULL ? x->floats[a] < x->floats[b] : x->ints[a] < x->ints[b];
}

/* Whether element a must stand before element b whatever their order was: NaN last. */
static bool precedes(const interp_tensor *x, int64_t a, int64_t b, bool descending)
{
    if (is_nan(x, a) || is_nan(x, b)) return !is_nan(x, a) && is_nan(x, b);
    return descending ? below(x, b, a) : below(x, a, b);
}

/* Where element i of the line comes: after all that precede it, and after its equals before it. */
static int64_t rank_in_line(const interp_tensor *x, const lines *l, int64_t line, int64_t i, bool descending)
{
    int64_t rank = 0, at = place(l, line, i);
    for (int64_t k = 0; k < l->extent; k++) {
        int64_t other = place(l, line, k);
        if (precedes(x, other, at, descending) || (k < i && !precedes(x, at, other, descending))) rank++;
    }
    return rank;
}

/* sort, and top_k, which keeps the first k of what sort gives. */
static void sort(const interp_call *call, int64_t axis, bool descending)
{
    const interp_tensor *x = call->args[0];
    interp_tensor *values = &call->results[0], *indices = &call->results[1];
    lines from = lines_of(x, axis), to = lines_of(values, axis);
    for (int64_t line = 0; line < from.count; line++) {
        for (int64_t i = 0; i < from.extent; i++) {
            int64_t rank = rank_in_line(x, &from, line, i, descending);
            if (rank >= to.extent) continue;
            interp_move(values, place(&to, line, rank), x, place(&from, line, i));
            indices->ints[place(&to, line, rank)] = i;
        }
    }
}

/* The first in the order, but that NaN comes before all. */
static void arg_extreme(const interp_call *call)
{
    const interp_tensor *x = call->args[0];
    bool largest = call->node->op == SGLIR_OP_ARGMAX;
    lines l = lines_of(x, interp_int(call, "axis"));
    for (int64_t line = 0; line < l.count; line++) {
        int64_t best = -1;
        for (int64_t i = 0; i < l.extent; i++) {
            int64_t at = place(&l, line, i), held = best < 0 ? 0 : place(&l, line, best);
            bool wins = best < 0 || (is_nan(x, at) ? !is_nan(x, held) : precedes(x, at, held, largest));
            if (wins && (best < 0 || is_nan(x, at) || !is_nan(x, held))) best = i;
        }
        call->results[0].ints[line] = best;
    }
}

/* ---- by index along an axis ----------------------------------------------------------------------------------- */

static void take_along(const interp_call *call)
{
    const interp_tensor *x = call->args[0], *indices = call->args[1];
    int64_t axis = interp_int(call, "axis");
    lines from = lines_of(x, axis), to = lines_of(indices, axis);
    for (int64_t line = 0; line < to.count; line++) {
        for (int64_t i = 0; i < to.extent; i++) {
            int64_t at = place(&to, line, i), index = indices->ints[at];
            if (index >= 0 && index < from.extent) interp_move(&call->results[0], at, x, place(&from, line, index));
        }
    }
}

static void add_along(const interp_call *call)
{
    const interp_tensor *indices = call->args[0], *updates = call->args[1];
    interp_tensor *out = &call->results[0];
    int64_t axis = interp_int(call, "axis");
    lines from = lines_of(indices, axis), to = lines_of(out, axis);
    long double *sums = interp_sums(out);
    for (int64_t line = 0; line < from.count; line++) {
        for (int64_t i = 0; i < from.extent; i++) {
            int64_t at = place(&from, line, i), index = indices->ints[at];
            if (index < 0 || index >= to.extent) continue;
            int64_t sum = place(&to, line, index);
            if (sums != NULL)
                sums[sum] += updates->floats[at];
            else
                multiply_add(out, sum, updates, at, NULL, 0, out, sum);
        }
    }
    interp_summed(out, sums);
}

bool interp_along(const interp_call *call)
{
    switch (call->node->op) {
    case SGLIR_OP_RECURRENCE: recurrence(call); return true;
    case SGLIR_OP_CUMULATIVE_SUM: cumulate(call, true); return true;
    case SGLIR_OP_CUMULATIVE_PROD: cumulate(call, false); return true;
    case SGLIR_OP_FLIP: flip(call); return true;
    case SGLIR_OP_SORT: sort(call, interp_int(call, "axis"), interp_int(call, "descending") != 0); return true;
    case SGLIR_OP_TOP_K: sort(call, call->args[0]->rank - 1, true); return true;
    case SGLIR_OP_ARGMAX:
    case SGLIR_OP_ARGMIN: arg_extreme(call); return true;
    case SGLIR_OP_TAKE_ALONG: take_along(call); return true;
    case SGLIR_OP_ADD_ALONG: add_along(call); return true;
    default: return false;
    }
}
