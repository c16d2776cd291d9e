/* padding_ops.c -- padding in ops whose places matter: movement, what runs in order, attention, windows, indices.
 *
 * In and out: as padding_rules.c. Padding comes last in its dimension, so what looks back alone (a running sum, causal
 * attention, a causal window) never meets it. Odd invariant: cutting the end off leaves entries of a row where others have
 * padding, so nothing is known of what stands there. */
#include <math.h>

#include "ir/padding.h"
#include "ir/padding_loops.h"

typedef sglir_padding_axis axis_t;
typedef sglir_padding_state state_t;

static const state_t *arg(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg(v, i); }
static const sglir_type *type(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg_type(v, i); }
static const sglir_type *result_type(const sglir_padding_view *v) { return sglir_type_of(v->g, v->node->out_first); }
static int64_t attr(const sglir_padding_view *v, const char *name) { return sglir_attr_int(v->g, v->node, name); }

static const char *const in_order = "the op takes entries in an order in which padding is not last";
static const char *const conflict = "its arguments have it in different places of one dimension";
static const char *const of_rows = "the op moves rows, and each row has its padding in another place";

/* The axis padded with a number, or with anything (NaN). */
static void fill(axis_t *axis, double content)
{
    axis->content = isnan(content) ? SGLIR_PADDING_ANY : SGLIR_PADDING_KNOWN;
    axis->value = content;
}

/* In no axis but the one (-1: none) does the state hold padding, the turn aside. */
static bool only_along(const state_t *state, int axis)
{
    for (int a = 0; a < SGL_MAX_RANK; a++)
        if (a != axis && state->axes[a].padded) return false;
    return true;
}

static bool has_padding(const state_t *state)
{
    return !only_along(state, -1) || state->axes[SGLIR_PADDING_STEP].padded;
}

/* What all arguments hold, of one shape; `but` is left out, contents are dropped. */
static bool join_all(const sglir_padding_view *v, int but, state_t *made)
{
    *made = sglir_padding_none;
    for (uint32_t i = 0; i < v->node->arg_count; i++)
        for (int a = 0; a < SGLIR_PADDING_AXES; a++)
            if (a != but && !sglir_padding_join_axis(&made->axes[a], &arg(v, i)->axes[a])) return false;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) made->axes[a].content = SGLIR_PADDING_ANY;
    return true;
}

/* Each argument that has padding has the rows of all together. */
static bool rows_agree(const sglir_padding_view *v, const state_t *made)
{
    for (uint32_t i = 0; i < v->node->arg_count; i++)
        if (has_padding(arg(v, i)) && !sglir_padding_same_rows(arg(v, i), made)) return false;
    return true;
}

static void turned(const sglir_padding_view *v, const state_t *start, state_t *made)
{
    axis_t *step = &made->axes[SGLIR_PADDING_STEP];
    if (start->turn && !step->padded) *step = sglir_padding_plain_axis(v->p, v->dim);
    sglir_padding_join_axis(step, &start->axes[SGLIR_PADDING_STEP]);
}

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
        sglir_padding_spoil(v, of_rows);
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
    if (axis->rows && has_padding(&made) && (start != 0 || stop != extent)) {
        sglir_padding_spoil(v, of_rows);
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
    if (made.axes[at].rows && has_padding(&made)) {
        sglir_padding_spoil(v, of_rows);
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
    if (!join_all(v, -1, &made) || (made.axes[at].padded && !sglir_padding_is_plain(&made.axes[at]))) {
        sglir_padding_spoil(v, conflict);
        return;
    }
    if (made.axes[at].rows && has_padding(&made)) {
        sglir_padding_spoil(v, of_rows);
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
        if (!made.axes[axes[i]].padded && !(made.axes[axes[i]].rows && has_padding(&made))) continue;
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
    if (axis->rows && has_padding(&made)) {
        sglir_padding_spoil(v, of_rows);
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
    turned(v, start, &made);
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
            sglir_padding_spoil(v, conflict);
            return;
        }
        if (!same) axis->content = SGLIR_PADDING_ANY;
    }
    if ((made.axes[at].rows || entry->axes[at].rows) && (has_padding(&made) || has_padding(entry))) {
        sglir_padding_spoil(v, of_rows);
        return;
    }
    if (start->turn) {
        const axis_t *step = &entry->axes[SGLIR_PADDING_STEP];
        made.axes[at] = sglir_padding_plain_axis(v->p, v->dim);
        if (step->padded) made.axes[at].group = step->group;
        if (step->padded && step->content == SGLIR_PADDING_KNOWN) fill(&made.axes[at], step->value);
        made.axes[SGLIR_PADDING_STEP] = sglir_padding_none.axes[0];
    } else if (made.axes[at].padded || entry->axes[at].padded) {
        sglir_padding_spoil(v, "it writes at a place that is known in a run alone");
        return;
    } else {
        turned(v, start, &made);
    }
    sglir_padding_result(v, 0, &made);
}

/* ---- in order ------------------------------------------------------------------------------------------------------------ */

static bool mixes_rows(const state_t *made, int at) { return made->axes[at].rows && has_padding(made); }

/* From the first entry to the last padding comes behind; from the last it must change nothing. */
static void along(sglir_padding_view *v, double neutral)
{
    int at = (int)attr(v, "axis");
    uint32_t last = v->node->arg_count - 1; /* of a recurrence b, which alone tells what begins */
    const axis_t given = arg(v, last)->axes[at];
    state_t made;
    if (!join_all(v, -1, &made) || !rows_agree(v, &made)) {
        sglir_padding_spoil(v, conflict);
        return;
    }
    bool reverse = attr(v, "reverse") != 0, held = given.padded && sglir_padding_holds(&given, neutral);
    bool good = !made.axes[at].padded || (sglir_padding_is_plain(&made.axes[at]) && (!reverse || held));
    if (!good || mixes_rows(&made, at)) {
        sglir_padding_spoil(v, in_order);
        return;
    }
    if (made.axes[at].padded && reverse) fill(&made.axes[at], neutral);
    sglir_padding_result(v, 0, &made);
}

/* Sorted, padding comes last only when nothing comes behind its number. top_k: the last dimension, descending. */
static void sort(sglir_padding_view *v, int at, bool descending, bool whole)
{
    state_t made = *arg(v, 0);
    axis_t *axis = &made.axes[at];
    double last = descending ? -INFINITY : INFINITY;
    if ((axis->padded && (!sglir_padding_holds(axis, last) || !sglir_padding_is_plain(axis))) ||
        mixes_rows(&made, at)) {
        sglir_padding_spoil(
            v, "sorted, padding comes last only where it is infinite: sgl.select(seq:mask(), x, math.huge)");
        return;
    }
    for (int a = 0; a < SGLIR_PADDING_AXES; a++)
        if (a != at) made.axes[a].content = SGLIR_PADDING_ANY;
    if (!whole) *axis = sglir_padding_none.axes[0];
    sglir_padding_result(v, 0, &made);
    axis->content = SGLIR_PADDING_ANY; /* where it came from */
    sglir_padding_result(v, 1, &made);
}

/* ---- by index -------------------------------------------------------------------------------------------------------------- */

static const char *const by_index = "an index may point at it; make it 0 there, as in sgl.select(seq:mask(), x, 0)";

static void take_along(sglir_padding_view *v)
{
    int at = (int)attr(v, "axis");
    const state_t x = *arg(v, 0), index = *arg(v, 1);
    state_t made;
    if (!join_all(v, at, &made) || !rows_agree(v, &made)) {
        sglir_padding_spoil(v, conflict);
        return;
    }
    if ((x.axes[at].padded && !sglir_padding_holds(&x.axes[at], 0)) || (x.axes[at].rows && has_padding(&x))) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    made.axes[at] = index.axes[at];
    int64_t extent = type(v, 0)->dims[at];
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        bool zero = (a != at && x.axes[a].padded && sglir_padding_holds(&x.axes[a], 0)) ||
                    (index.axes[a].padded && sglir_padding_outside(&index.axes[a], extent));
        if (made.axes[a].padded) fill(&made.axes[a], zero ? 0 : NAN);
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
    if (!join_all(v, -1, &joined) || !rows_agree(v, &joined)) {
        sglir_padding_spoil(v, conflict);
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
        if (axis.padded) fill(&axis, is_left_out(&index, &update, a, extent) ? 0 : NAN);
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
        (table.axes[0].rows && has_padding(&table))) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    for (int a = 0; a < SGL_MAX_RANK; a++) {
        if (a < picked)
            made.axes[a] = index.axes[a];
        else if (a - picked + 1 < SGL_MAX_RANK)
            made.axes[a] = table.axes[a - picked + 1];
        if (made.axes[a].padded && a < picked)
            fill(&made.axes[a], sglir_padding_outside(&index.axes[a], type(v, 0)->dims[0]) ? 0 : NAN);
    }
    axis_t *step = &made.axes[SGLIR_PADDING_STEP];
    if (has_padding(&table) && has_padding(&index)) {
        sglir_padding_spoil(v, by_index);
        return;
    }
    *step = index.axes[SGLIR_PADDING_STEP];
    sglir_padding_join_axis(step, &table.axes[SGLIR_PADDING_STEP]);
    step->content = SGLIR_PADDING_ANY;
    turned(v, &index, &made);
    sglir_padding_result(v, 0, &made);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------- */

/* The keys beyond a row's own are seen by no query of the row. */
static bool keys_are_hidden(const sglir_padding_view *v, const axis_t *keys)
{
    double offset;
    bool has_rows = arg(v, 1)->axes[0].rows || arg(v, 2)->axes[0].rows;
    if (!sglir_padding_is_plain(keys)) return false;
    if (v->node->arg_count > 5) {
        const axis_t *segments = &arg(v, 5)->axes[1];
        if (segments->padded && arg(v, 5)->axes[0].rows == has_rows && segments->content == SGLIR_PADDING_KNOWN &&
            segments->value < 0)
            return true;
    }
    const axis_t *queries = &arg(v, 0)->axes[1];
    bool from_start = sglir_constant_value(v->g, sglir_arg(v->g, v->node, 3), &offset) && offset == 0;
    bool same = queries->padded && queries->group == keys->group && arg(v, 0)->axes[0].rows == has_rows &&
                type(v, 0)->dims[1] == type(v, 1)->dims[1];
    return attr(v, "causal") != 0 && from_start && same;
}

static void attention(sglir_padding_view *v)
{
    state_t made = sglir_padding_none, lse;
    axis_t keys = sglir_padding_none.axes[0], *step = &made.axes[SGLIR_PADDING_STEP];
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        const state_t *x = arg(v, i);
        bool good = i == 3 || (only_along(x, 1) && !x->axes[1].rows && !x->axes[2].rows && !x->axes[3].rows);
        if (i == 1 || i == 2 || i == 5) good = good && sglir_padding_join_axis(&keys, &x->axes[1]);
        if (!good || !sglir_padding_join_axis(step, &x->axes[SGLIR_PADDING_STEP])) {
            sglir_padding_spoil(v, "it must stand in dimension 1 of queries and keys, with the rows in dimension 0");
            return;
        }
        axis_t batch = { .rows = x->axes[0].rows, .rows_outer = 1, .rows_inner = 1 };
        if (batch.rows && (x->axes[0].rows_outer != 1 || x->axes[0].rows_inner != 1)) batch.rows_outer = -1;
        if (!sglir_padding_join_axis(&made.axes[0], &batch) || batch.rows_outer < 0) {
            sglir_padding_spoil(v, of_rows);
            return;
        }
    }
    if (keys.padded && !keys_are_hidden(v, &keys)) {
        sglir_padding_spoil(v, "queries see these keys; make it causal, or give a mask, such as the dim's :mask()");
        return;
    }
    step->content = SGLIR_PADDING_ANY;
    const axis_t *queries = &arg(v, 0)->axes[1];
    lse = made;
    if (queries->padded) {
        const axis_t *segments = v->node->arg_count > 4 ? &arg(v, 4)->axes[1] : queries;
        bool sees_none =
            segments != queries && segments->padded && segments->content == SGLIR_PADDING_KNOWN && segments->value < 0;
        made.axes[1] = *queries;
        lse.axes[2] = *queries;
        fill(&made.axes[1], sees_none ? 0 : NAN);
        fill(&lse.axes[2], NAN);
    }
    sglir_padding_result(v, 0, &made);
    sglir_padding_result(v, 1, &lse);
}

/* Each place is turned by itself, by how far it is from the start. */
static void rope(sglir_padding_view *v)
{
    const state_t *x = arg(v, 0);
    state_t made;
    if (x->axes[3].padded || (x->axes[1].padded && !sglir_padding_is_plain(&x->axes[1])) ||
        (type(v, 1)->rank == 0 && x->axes[1].rows && has_padding(x)) || !only_along(arg(v, 1), 1)) {
        sglir_padding_spoil(v, "it must stand in dimension 1, with the rows in dimension 0");
        return;
    }
    made = *x;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++)
        if (made.axes[a].padded) fill(&made.axes[a], sglir_padding_holds(&x->axes[a], 0) ? 0 : NAN);
    if (has_padding(arg(v, 1)) && !sglir_padding_same_rows(x, arg(v, 1)) && type(v, 1)->rank > 0) {
        sglir_padding_spoil(v, of_rows);
        return;
    }
    turned(v, arg(v, 1), &made);
    sglir_padding_result(v, 0, &made);
}

/* ---- windows ----------------------------------------------------------------------------------------------------------------- */

/* A window reads ahead of its place into padding, which must be what stands around x anyway; or it looks back alone. */
static void windows(sglir_padding_view *v, double around)
{
    int count, rank = type(v, 0)->rank;
    const int64_t *stride = sglir_attr_ints(v->g, v->node, "stride", &count);
    const int64_t *high = sglir_attr_ints(v->g, v->node, "high", &count);
    const state_t x = *arg(v, 0);
    state_t made = sglir_padding_none;
    bool others = v->node->arg_count > 1 && has_padding(arg(v, 1));
    bool good = !others && !(v->node->op == SGLIR_OP_CONV && (x.axes[rank - 1].padded || x.axes[rank - 1].rows));
    for (int s = 0; s < count; s++) {
        axis_t axis = x.axes[s + 1];
        good = good && !(axis.rows && has_padding(&x));
        if (!axis.padded) continue;
        good = good && stride[s] == 1 && sglir_padding_is_plain(&axis) &&
               (high[s] <= 0 || sglir_padding_holds(&axis, around));
        fill(&axis, NAN);
        made.axes[s + 1] = axis;
    }
    if (!good) {
        sglir_padding_spoil(
            v, "its windows read it; make it 0 first, as in sgl.select(seq:mask(), x, 0), with a stride of 1");
        return;
    }
    made.axes[0] = x.axes[0];
    made.axes[result_type(v)->rank - 1] = v->node->op == SGLIR_OP_CONV ? sglir_padding_none.axes[0] : x.axes[rank - 1];
    made.axes[SGLIR_PADDING_STEP] = x.axes[SGLIR_PADDING_STEP];
    fill(&made.axes[0], NAN);
    fill(&made.axes[SGLIR_PADDING_STEP], NAN);
    sglir_padding_result(v, 0, &made);
}

/* ---- losses -------------------------------------------------------------------------------------------------------------------- */

/* One loss for each target, 0 where the target is `ignore`. */
static void losses(sglir_padding_view *v, uint32_t targets)
{
    const state_t chosen = *arg(v, targets);
    int rows = type(v, targets)->rank;
    double ignore = (double)attr(v, "ignore");
    state_t made = sglir_padding_none;
    bool good = targets == 1 || !has_padding(arg(v, 1));
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        const axis_t *x = &arg(v, 0)->axes[a];
        if (a < rows || a == SGLIR_PADDING_STEP)
            good = good && sglir_padding_join_axis(&made.axes[a], x) &&
                   sglir_padding_join_axis(&made.axes[a], &chosen.axes[a]);
        else
            good = good && !x->padded && !(x->rows && has_padding(arg(v, 0)));
        bool ignored = chosen.axes[a].padded && sglir_padding_holds(&chosen.axes[a], ignore);
        if (made.axes[a].padded) fill(&made.axes[a], ignored ? 0 : NAN);
    }
    if (good && rows_agree(v, &made))
        sglir_padding_result(v, 0, &made);
    else
        sglir_padding_spoil(v, "the classes of a loss are counted by it");
}

/* ---- derivatives ----------------------------------------------------------------------------------------------------------------- */

/* Padded as what is derived by, with whatever the gradient is there. */
static void like_argument(sglir_padding_view *v, uint32_t result, uint32_t argument, bool keeps_content)
{
    state_t made = *arg(v, argument);
    for (int a = 0; a < SGLIR_PADDING_AXES && !keeps_content; a++) made.axes[a].content = SGLIR_PADDING_ANY;
    made.turn = false;
    sglir_padding_result(v, result, &made);
}

static void grad(sglir_padding_view *v)
{
    for (uint32_t i = 0; i < v->node->out_count; i++) like_argument(v, i, i + 1, false);
}

/* Numbers drawn in a turn are those of the turn. */
static void generated(sglir_padding_view *v)
{
    state_t made = sglir_padding_none;
    for (uint32_t i = 0; i < v->node->arg_count; i++) turned(v, arg(v, i), &made);
    made.axes[SGLIR_PADDING_STEP].content = SGLIR_PADDING_ANY;
    sglir_padding_result(v, 0, &made);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------- */

static bool is_loss(sglir_padding_view *v)
{
    if (v->node->op != SGLIR_OP_CROSS_ENTROPY && v->node->op != SGLIR_OP_LINEAR_CROSS_ENTROPY) return false;
    losses(v, v->node->op == SGLIR_OP_CROSS_ENTROPY ? 1 : 2);
    return true;
}

static bool moves(sglir_padding_view *v)
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

bool sglir_padding_own_rule(sglir_padding_view *v)
{
    if (is_loss(v) || moves(v)) return true;
    switch ((sglir_op)v->node->op) {
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_SUM: along(v, 0); return true;
    case SGLIR_OP_CUMULATIVE_PROD: along(v, 1); return true;
    case SGLIR_OP_SORT: sort(v, (int)attr(v, "axis"), attr(v, "descending") != 0, true); return true;
    case SGLIR_OP_TOP_K: sort(v, type(v, 0)->rank - 1, true, false); return true;
    case SGLIR_OP_ATTENTION: attention(v); return true;
    case SGLIR_OP_ROPE: rope(v); return true;
    case SGLIR_OP_WINDOWS: windows(v, sglir_attr_float(v->g, v->node, "value")); return true;
    case SGLIR_OP_CONV: windows(v, 0); return true;
    case SGLIR_OP_GRAD: grad(v); return true;
    case SGLIR_OP_CUSTOM_SEED: like_argument(v, 0, 0, false); return true;
    case SGLIR_OP_SCALE:
    case SGLIR_OP_UNSCALE:
    case SGLIR_OP_UPDATE_NUMBER: like_argument(v, 0, 0, true); return true;
    case SGLIR_OP_CUSTOM:
        for (uint32_t i = 0; i < v->node->out_count; i++) like_argument(v, i, i, true);
        return true;
    case SGLIR_OP_RANDOM_UNIFORM:
    case SGLIR_OP_RANDOM_NORMAL: generated(v); return true;
    case SGLIR_OP_SCAN:
    case SGLIR_OP_WHILE:
    case SGLIR_OP_COND: sglir_padding_control(v); return true;
    default: return false;
    }
}
