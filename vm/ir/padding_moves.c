/* padding_moves.c -- padding in ops that move entries: reshapes, slices, pads, joins, and what is read or written by an index.
 *
 * In and out: as padding_rules.c. Odd invariant: padding comes last in its dimension; what would leave it elsewhere, or in two
 * places, spoils its result. */
#include <math.h>

#include "ir/padding_parts.h"

typedef sglir_padding_axis axis_t;
typedef sglir_padding_state state_t;

static const state_t *arg(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg(v, i); }
static const sglir_type *type(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg_type(v, i); }
static const sglir_type *result_type(const sglir_padding_view *v) { return sglir_type_of(v->g, v->node->out_first); }
static int64_t attr(const sglir_padding_view *v, const char *name) { return sglir_attr_int(v->g, v->node, name); }

/* ---- reshape ------------------------------------------------------------------------------------------------------ */

static int64_t product(const sglir_type *t, int from, int to)
{
    int64_t made = 1;
    for (int a = from; a < to; a++) made *= t->dims[a];
    return made;
}

/* The dimension of `to` that holds the dim whole, -1: none does. */
static int place_of(const sglir_type *to, int64_t before, int64_t extent, int64_t after, axis_t *axis)
{
    int best = -1;
    for (int a = 0; a < to->rank; a++) {
        int64_t lead = product(to, 0, a), tail = product(to, a + 1, to->rank);
        if (lead == 0 || tail == 0 || before % lead != 0 || after % tail != 0) continue;
        int64_t outer = before / lead, inner = after / tail;
        if (outer * extent * inner != to->dims[a]) continue;
        if (best >= 0 && !(outer == 1 && inner == 1)) continue;
        best = a;
        axis->outer = outer;
        axis->inner = inner;
    }
    return best;
}

static bool reshape_rows(const sglir_type *from, const state_t *x, const sglir_type *to, state_t *made)
{
    for (int a = 0; a < from->rank && sglir_elements(from) > 0; a++) {
        const axis_t *rows = &x->axes[a];
        axis_t placed = { .rows = true };
        if (!rows->rows) continue;
        int64_t extent = from->dims[a] / (rows->rows_outer * rows->rows_inner);
        int at = place_of(to, product(from, 0, a) * rows->rows_outer, extent,
                          rows->rows_inner * product(from, a + 1, from->rank), &placed);
        placed.rows_outer = placed.outer;
        placed.rows_inner = placed.inner;
        if (at < 0 || !sglir_padding_join_axis(&made->axes[at], &placed)) return false;
    }
    return true;
}

static void reshape(sglir_padding_view *v)
{
    const sglir_type *from = type(v, 0), *to = result_type(v);
    const state_t x = *arg(v, 0);
    state_t made = sglir_padding_none;
    made.turn = x.turn;
    for (int a = 0; a < from->rank && sglir_elements(from) > 0; a++) { /* what is empty holds no padding */
        if (!x.axes[a].padded) continue;
        axis_t axis = x.axes[a];
        int64_t extent = from->dims[a] / (axis.outer * axis.inner);
        int at = place_of(to, product(from, 0, a) * axis.outer, extent, axis.inner * product(from, a + 1, from->rank),
                          &axis);
        if (at < 0) {
            sglir_padding_spoil(v, "the reshape cuts the dimension into pieces");
            return;
        }
        axis.rows = false;
        if (!sglir_padding_join_axis(&made.axes[at], &axis)) {
            sglir_padding_spoil(v, "the reshape makes one dimension of two that have it");
            return;
        }
    }
    if (!reshape_rows(from, &x, to, &made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    made.axes[SGLIR_PADDING_STEP] = x.axes[SGLIR_PADDING_STEP];
    if (made.axes[SGLIR_PADDING_STEP].content == SGLIR_PADDING_CARRIED && !sglir_same_shape(from, to))
        made.axes[SGLIR_PADDING_STEP].content = SGLIR_PADDING_ANY;
    sglir_padding_result(v, 0, &made);
}

/* ---- other movement ------------------------------------------------------------------------------------------------- */

static void slice(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    int64_t start = attr(v, "start"), stop = attr(v, "stop"), extent = type(v, 0)->dims[at];
    state_t made = *arg(v, 0);
    axis_t *axis = &made.axes[at], *step = &made.axes[SGLIR_PADDING_STEP];
    if (step->content == SGLIR_PADDING_CARRIED) step->content = SGLIR_PADDING_ANY;
    if (axis->rows && sglir_padding_has_any(&made) && (start != 0 || stop != extent)) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    if (axis->padded && start == 0 && stop == 1 && extent > 2 && sglir_padding_is_plain(axis)) {
        *axis = sglir_padding_none.axes[0]; /* the first entry: every row has one */
    } else if (axis->padded && (start != 0 || stop != extent)) {
        if (!sglir_padding_is_plain(axis) || attr(v, "step") != 1) {
            sglir_padding_spoil(v, "the slice leaves entries out of rows of which some end before others");
            return;
        }
        if (stop != extent) axis->content = SGLIR_PADDING_ANY;
    }
    sglir_padding_result(v, 0, &made);
}

static void pad(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    double value = sglir_attr_float(v->g, v->node, "value");
    state_t made = *arg(v, 0);
    axis_t *step = &made.axes[SGLIR_PADDING_STEP];
    if (made.axes[at].rows && sglir_padding_has_any(&made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    if (made.axes[at].padded) {
        bool goes_on = attr(v, "after") == 0 || sglir_padding_holds(&made.axes[at], value);
        if (!goes_on || attr(v, "between") != 0 || !sglir_padding_is_plain(&made.axes[at])) {
            sglir_padding_spoil(v, "what is put behind a row's end stands behind its padding");
            return;
        }
    }
    for (int a = 0; a < SGL_MAX_RANK;
         a++) /* new entries along one dimension are padded along the others with `value` */
        if (a != at && made.axes[a].padded && !sglir_padding_holds(&made.axes[a], value))
            made.axes[a].content = SGLIR_PADDING_ANY;
    if (step->padded && !sglir_padding_holds(step, value)) step->content = SGLIR_PADDING_ANY;
    sglir_padding_result(v, 0, &made);
}

static void concat(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    uint32_t last = v->node->arg_count - 1;
    state_t made;
    for (uint32_t i = 0; i < last; i++) {
        if (!arg(v, i)->axes[at].padded) continue;
        sglir_padding_spoil(v, "what is put behind a row's end stands behind its padding");
        return;
    }
    if (!sglir_padding_join_all(v, -1, &made) || (made.axes[at].padded && !sglir_padding_is_plain(&made.axes[at]))) {
        sglir_padding_spoil(v, SGLIR_PADDING_CONFLICT);
        return;
    }
    if (made.axes[at].rows && sglir_padding_has_any(&made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    if (sglir_padding_same_rows(arg(v, last), &made)) {
        made.axes[at].content = arg(v, last)->axes[at].content;
        made.axes[at].value = arg(v, last)->axes[at].value;
    }
    sglir_padding_result(v, 0, &made);
}

static void flip(sglir_padding_view *v)
{
    int count;
    const int64_t *axes = sglir_attr_ints(v->g, v->node, "axes", &count);
    state_t made = *arg(v, 0);
    for (int i = 0; i < count; i++) {
        if (!made.axes[axes[i]].padded && !(made.axes[axes[i]].rows && sglir_padding_has_any(&made))) continue;
        sglir_padding_spoil(v, "flipped, padding would come first");
        return;
    }
    if (made.axes[SGLIR_PADDING_STEP].content == SGLIR_PADDING_CARRIED)
        made.axes[SGLIR_PADDING_STEP].content = SGLIR_PADDING_ANY;
    sglir_padding_result(v, 0, &made);
}

/* ---- places that are known in a run alone ------------------------------------------------------------------------------ */

static void dynamic_slice(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    state_t made = *arg(v, 0);
    const state_t *start = arg(v, 1);
    axis_t *axis = &made.axes[at], *step = &made.axes[SGLIR_PADDING_STEP];
    if (step->content == SGLIR_PADDING_CARRIED) step->content = SGLIR_PADDING_ANY;
    if (axis->rows && sglir_padding_has_any(&made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    if (axis->padded && (!start->turn || attr(v, "size") != 1 || step->padded || !sglir_padding_is_plain(axis))) {
        sglir_padding_spoil(v, "the slice begins at a place that is known in a run alone");
        return;
    }
    if (axis->padded) {
        *step = *axis; /* a plain axis has no rows of its own */
        *axis = sglir_padding_none.axes[0];
    }
    sglir_padding_turned(v, start, &made);
    sglir_padding_result(v, 0, &made);
}

/* A turn along the dim writes its entry: what is padding in the turn is padding in the whole. */
static void dynamic_update(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    const state_t *entry = arg(v, 1), *start = arg(v, 2);
    state_t made = *arg(v, 0);
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        if (a == at) continue;
        axis_t *axis = &made.axes[a];
        bool same = axis->padded && entry->axes[a].padded && axis->content == SGLIR_PADDING_KNOWN &&
                    sglir_padding_holds(&entry->axes[a], axis->value) && sglir_padding_same_rows(arg(v, 0), entry);
        if (!sglir_padding_join_axis(axis, &entry->axes[a])) {
            sglir_padding_spoil(v, SGLIR_PADDING_CONFLICT);
            return;
        }
        if (!same) axis->content = SGLIR_PADDING_ANY;
    }
    if ((made.axes[at].rows || entry->axes[at].rows) &&
        (sglir_padding_has_any(&made) || sglir_padding_has_any(entry))) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    if (start->turn) {
        const axis_t *step = &entry->axes[SGLIR_PADDING_STEP];
        made.axes[at] = sglir_padding_plain_axis(v->p, v->dim);
        if (step->padded) made.axes[at].group = step->group;
        if (step->padded && step->content == SGLIR_PADDING_KNOWN) sglir_padding_fill(&made.axes[at], step->value);
        made.axes[SGLIR_PADDING_STEP] = sglir_padding_none.axes[0];
    } else if (made.axes[at].padded || entry->axes[at].padded) {
        sglir_padding_spoil(v, "it writes at a place that is known in a run alone");
        return;
    } else {
        sglir_padding_turned(v, start, &made);
    }
    sglir_padding_result(v, 0, &made);
}

/* ---- by index -------------------------------------------------------------------------------------------------------------- */

static const char *const by_index = "an index may point at it; make it 0 there, as in sgl.select(seq:mask(), x, 0)";

static void take_along(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    const state_t x = *arg(v, 0), index = *arg(v, 1);
    state_t made;
    if (!sglir_padding_join_all(v, at, &made) || !sglir_padding_rows_agree(v, &made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_CONFLICT);
        return;
    }
    if ((x.axes[at].padded && !sglir_padding_holds(&x.axes[at], 0)) || (x.axes[at].rows && sglir_padding_has_any(&x))) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    made.axes[at] = index.axes[at];
    int64_t extent = type(v, 0)->dims[at];
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        bool zero = (a != at && x.axes[a].padded && sglir_padding_holds(&x.axes[a], 0)) ||
                    (index.axes[a].padded && sglir_padding_outside(&index.axes[a], extent));
        if (made.axes[a].padded) sglir_padding_fill(&made.axes[a], zero ? 0 : NAN);
    }
    sglir_padding_result(v, 0, &made);
}

/* add_along, scatter_add: an update is left out where it is 0 or its index is outside. */
static bool is_left_out(const state_t *index, const state_t *update, int a, int64_t extent)
{
    return (update->axes[a].padded && sglir_padding_holds(&update->axes[a], 0)) ||
           (index->axes[a].padded && sglir_padding_outside(&index->axes[a], extent));
}

static void add_by_index(sglir_padding_view *v, int first, int stop)
{
    const state_t index = *arg(v, 0), update = *arg(v, 1);
    int64_t extent = attr(v, "extent");
    state_t joined, made = sglir_padding_none;
    bool mixes = false;
    if (!sglir_padding_join_all(v, -1, &joined) || !sglir_padding_rows_agree(v, &joined)) {
        sglir_padding_spoil(v, SGLIR_PADDING_CONFLICT);
        return;
    }
    for (int a = first; a < stop; a++) mixes = mixes || joined.axes[a].rows;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        if (!joined.axes[a].padded || !(mixes || (a >= first && a < stop))) continue;
        if (is_left_out(&index, &update, a, extent)) continue;
        sglir_padding_spoil(v, "its updates are added too; make them 0 there, as in sgl.select(seq:mask(), x, 0)");
        return;
    }
    int shift = v->node->op == SGLIR_OP_SCATTER_ADD ? stop - 1 : 0;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        if (a >= first && a < stop) continue;
        axis_t axis = joined.axes[a];
        if (axis.padded) sglir_padding_fill(&axis, is_left_out(&index, &update, a, extent) ? 0 : NAN);
        if (mixes) axis.group = v->id + 2;
        made.axes[a == SGLIR_PADDING_STEP ? a : a - shift] = axis;
    }
    sglir_padding_result(v, 0, &made);
}

static void gather(sglir_padding_view *v)
{
    const state_t table = *arg(v, 0), index = *arg(v, 1);
    int picked = type(v, 1)->rank;
    state_t made = sglir_padding_none;
    if ((table.axes[0].padded && !sglir_padding_holds(&table.axes[0], 0)) ||
        (table.axes[0].rows && sglir_padding_has_any(&table))) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    for (int a = 0; a < SGL_MAX_RANK; a++) {
        if (a < picked)
            made.axes[a] = index.axes[a];
        else if (a - picked + 1 < SGL_MAX_RANK)
            made.axes[a] = table.axes[a - picked + 1];
        if (made.axes[a].padded && a < picked)
            sglir_padding_fill(&made.axes[a], sglir_padding_outside(&index.axes[a], type(v, 0)->dims[0]) ? 0 : NAN);
    }
    axis_t *step = &made.axes[SGLIR_PADDING_STEP];
    if (sglir_padding_has_any(&table) && sglir_padding_has_any(&index)) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    *step = index.axes[SGLIR_PADDING_STEP];
    sglir_padding_join_axis(step, &table.axes[SGLIR_PADDING_STEP]);
    step->content = SGLIR_PADDING_ANY;
    sglir_padding_turned(v, &index, &made);
    sglir_padding_result(v, 0, &made);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------- */

bool sglir_padding_moves(sglir_padding_view *v)
{
    switch ((sglir_op)v->node->op) {
    case SGLIR_OP_RESHAPE: reshape(v); return true;
    case SGLIR_OP_SLICE: slice(v); return true;
    case SGLIR_OP_PAD: pad(v); return true;
    case SGLIR_OP_CONCAT: concat(v); return true;
    case SGLIR_OP_FLIP: flip(v); return true;
    case SGLIR_OP_DYNAMIC_SLICE: dynamic_slice(v); return true;
    case SGLIR_OP_DYNAMIC_UPDATE: dynamic_update(v); return true;
    case SGLIR_OP_GATHER: gather(v); return true;
    case SGLIR_OP_TAKE_ALONG: take_along(v); return true;
    case SGLIR_OP_ADD_ALONG: add_by_index(v, (int)attr(v, "axis"), (int)attr(v, "axis") + 1); return true;
    case SGLIR_OP_SCATTER_ADD: add_by_index(v, 0, type(v, 0)->rank); return true;
    default: return false;
    }
}
