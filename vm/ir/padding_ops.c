/* padding_ops.c -- padding in ops whose places matter: what runs in order, attention, windows, losses.
 *
 * In and out: as padding_rules.c. Padding comes last in its dimension, so what looks back alone (a running sum, causal
 * attention, a causal window) never meets it. Odd invariant: cutting the end off leaves entries of a row where others have
 * padding, so nothing is known of what stands there. */
#include <math.h>

#include "ir/padding_parts.h"

typedef sglir_padding_axis axis_t;
typedef sglir_padding_state state_t;

static const state_t *arg(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg(v, i); }
static const sglir_type *type(const sglir_padding_view *v, uint32_t i) { return sglir_padding_arg_type(v, i); }
static const sglir_type *result_type(const sglir_padding_view *v) { return sglir_type_of(v->g, v->node->out_first); }
static int64_t attr(const sglir_padding_view *v, const char *name) { return sglir_attr_int(v->g, v->node, name); }

static const char *const in_order = "the op takes entries in an order in which padding is not last";

void sglir_padding_fill(axis_t *axis, double content)
{
    axis->content = isnan(content) ? SGLIR_PADDING_ANY : SGLIR_PADDING_KNOWN;
    axis->value = content;
}

bool sglir_padding_only_along(const state_t *state, int axis)
{
    for (int a = 0; a < SGL_MAX_RANK; a++)
        if (a != axis && state->axes[a].padded) return false;
    return true;
}

bool sglir_padding_has_any(const state_t *state)
{
    return !sglir_padding_only_along(state, -1) || state->axes[SGLIR_PADDING_STEP].padded;
}

bool sglir_padding_join_all(const sglir_padding_view *v, int but, state_t *made)
{
    *made = sglir_padding_none;
    for (uint32_t i = 0; i < v->node->arg_count; i++)
        for (int a = 0; a < SGLIR_PADDING_AXES; a++)
            if (a != but && !sglir_padding_join_axis(&made->axes[a], &arg(v, i)->axes[a])) return false;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) made->axes[a].content = SGLIR_PADDING_ANY;
    return true;
}

bool sglir_padding_rows_agree(const sglir_padding_view *v, const state_t *made)
{
    for (uint32_t i = 0; i < v->node->arg_count; i++)
        if (sglir_padding_has_any(arg(v, i)) && !sglir_padding_same_rows(arg(v, i), made)) return false;
    return true;
}

void sglir_padding_turned(const sglir_padding_view *v, const state_t *start, state_t *made)
{
    axis_t *step = &made->axes[SGLIR_PADDING_STEP];
    if (start->turn && !step->padded) *step = sglir_padding_plain_axis(v->p, v->dim);
    sglir_padding_join_axis(step, &start->axes[SGLIR_PADDING_STEP]);
}

/* ---- in order ------------------------------------------------------------------------------------------------------------ */

static bool mixes_rows(const state_t *made, int at) { return made->axes[at].rows && sglir_padding_has_any(made); }

/* From the first entry to the last padding comes behind; from the last it must change nothing. */
static void along(sglir_padding_view *v, double neutral)
{
    int at = (int)attr(v, "axis");
    uint32_t last = v->node->arg_count - 1; /* of a recurrence b, which alone tells what begins */
    const axis_t given = arg(v, last)->axes[at];
    state_t made;
    if (!sglir_padding_join_all(v, -1, &made) || !sglir_padding_rows_agree(v, &made)) {
        sglir_padding_spoil(v, SGLIR_PADDING_CONFLICT);
        return;
    }
    bool reverse = attr(v, "reverse") != 0, held = given.padded && sglir_padding_holds(&given, neutral);
    bool good = !made.axes[at].padded || (sglir_padding_is_plain(&made.axes[at]) && (!reverse || held));
    if (!good || mixes_rows(&made, at)) {
        sglir_padding_spoil(v, in_order);
        return;
    }
    if (made.axes[at].padded && reverse) sglir_padding_fill(&made.axes[at], neutral);
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
        bool good =
            i == 3 || (sglir_padding_only_along(x, 1) && !x->axes[1].rows && !x->axes[2].rows && !x->axes[3].rows);
        if (i == 1 || i == 2 || i == 5) good = good && sglir_padding_join_axis(&keys, &x->axes[1]);
        if (!good || !sglir_padding_join_axis(step, &x->axes[SGLIR_PADDING_STEP])) {
            sglir_padding_spoil(v, "it must stand in dimension 1 of queries and keys, with the rows in dimension 0");
            return;
        }
        axis_t batch = { .rows = x->axes[0].rows, .rows_outer = 1, .rows_inner = 1 };
        if (batch.rows && (x->axes[0].rows_outer != 1 || x->axes[0].rows_inner != 1)) batch.rows_outer = -1;
        if (!sglir_padding_join_axis(&made.axes[0], &batch) || batch.rows_outer < 0) {
            sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
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
        sglir_padding_fill(&made.axes[1], sees_none ? 0 : NAN);
        sglir_padding_fill(&lse.axes[2], NAN);
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
        (type(v, 1)->rank == 0 && x->axes[1].rows && sglir_padding_has_any(x)) ||
        !sglir_padding_only_along(arg(v, 1), 1)) {
        sglir_padding_spoil(v, "it must stand in dimension 1, with the rows in dimension 0");
        return;
    }
    made = *x;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++)
        if (made.axes[a].padded) sglir_padding_fill(&made.axes[a], sglir_padding_holds(&x->axes[a], 0) ? 0 : NAN);
    if (sglir_padding_has_any(arg(v, 1)) && !sglir_padding_same_rows(x, arg(v, 1)) && type(v, 1)->rank > 0) {
        sglir_padding_spoil(v, SGLIR_PADDING_OF_ROWS);
        return;
    }
    sglir_padding_turned(v, arg(v, 1), &made);
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
    bool others = v->node->arg_count > 1 && sglir_padding_has_any(arg(v, 1));
    bool good = !others && !(v->node->op == SGLIR_OP_CONV && (x.axes[rank - 1].padded || x.axes[rank - 1].rows));
    for (int s = 0; s < count; s++) {
        axis_t axis = x.axes[s + 1];
        good = good && !(axis.rows && sglir_padding_has_any(&x));
        if (!axis.padded) continue;
        good = good && stride[s] == 1 && sglir_padding_is_plain(&axis) &&
               (high[s] <= 0 || sglir_padding_holds(&axis, around));
        sglir_padding_fill(&axis, NAN);
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
    sglir_padding_fill(&made.axes[0], NAN);
    sglir_padding_fill(&made.axes[SGLIR_PADDING_STEP], NAN);
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
    bool good = targets == 1 || !sglir_padding_has_any(arg(v, 1));
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) {
        const axis_t *x = &arg(v, 0)->axes[a];
        if (a < rows || a == SGLIR_PADDING_STEP)
            good = good && sglir_padding_join_axis(&made.axes[a], x) &&
                   sglir_padding_join_axis(&made.axes[a], &chosen.axes[a]);
        else
            good = good && !x->padded && !(x->rows && sglir_padding_has_any(arg(v, 0)));
        bool ignored = chosen.axes[a].padded && sglir_padding_holds(&chosen.axes[a], ignore);
        if (made.axes[a].padded) sglir_padding_fill(&made.axes[a], ignored ? 0 : NAN);
    }
    if (good && sglir_padding_rows_agree(v, &made))
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
    for (uint32_t i = 0; i < v->node->arg_count; i++) sglir_padding_turned(v, arg(v, i), &made);
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
bool sglir_padding_own_rule(sglir_padding_view *v)
{
    if (is_loss(v) || sglir_padding_moves(v)) return true;
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
