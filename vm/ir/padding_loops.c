/* padding_loops.c -- padding in loops and branches.
 *
 * In: the states of what a loop begins with, of its body's parameters (notes say what they are), of what the body yields.
 * Out: the states of what comes after the loop. A loop that goes along the dim takes turns that are padding for some rows:
 * what it carries must come through them as it was, or nothing after the loop may use it; from the end on, not even what
 * the turns give. Odd invariant: what a parameter is said to be is a first guess: a body is looked at again until what it
 * yields holds no more than what its parameters do. */
#include "ir/padding_parts.h"

static const char *const goes_on =
    "the loop goes on with it where a row is over; keep what was carried: sgl.select(mask of the turn, new, old)";

typedef sglir_padding_state state_t;
typedef sglir_padding_axis axis_t;

static const sglir_region *region_at(const sglir_padding_view *v, uint32_t i)
{
    return &v->g->regions.data[v->node->region_first + i];
}

static void spoil_one(sglir_padding_view *v, uint32_t result, const state_t *by, const char *why)
{
    state_t state = sglir_padding_none;
    state.spoilt = by ? by->spoilt : v->id;
    state.why = by ? by->why : why;
    sglir_padding_result(v, result, &state);
}

/* Whether all that `from` holds stands in `to` as well, the turn aside. */
static bool is_within(const state_t *from, const state_t *to)
{
    for (int a = 0; a < SGL_MAX_RANK; a++) {
        const axis_t *x = &from->axes[a], *y = &to->axes[a];
        axis_t both = *y; /* nothing is new, and nothing in the way */
        if ((x->rows && !y->rows) || (x->padded && !y->padded) || !sglir_padding_join_axis(&both, x)) return false;
    }
    return !from->axes[SGLIR_PADDING_STEP].padded || to->axes[SGLIR_PADDING_STEP].padded;
}

static bool same_content(const axis_t *a, const axis_t *b)
{
    return a->padded && b->padded && a->content == SGLIR_PADDING_KNOWN && sglir_padding_holds(b, a->value);
}

/* Both together: padding where either has it, and what is known of both. */
static bool join(const state_t *a, const state_t *b, state_t *made)
{
    *made = *a;
    made->turn = false;
    for (int i = 0; i < SGLIR_PADDING_AXES; i++) {
        bool same = same_content(&a->axes[i], &b->axes[i]) && sglir_padding_same_rows(a, b);
        if (!sglir_padding_join_axis(&made->axes[i], &b->axes[i])) return false;
        if (!same) made->axes[i].content = SGLIR_PADDING_ANY;
    }
    return true;
}

static void branch(sglir_padding_view *v)
{
    const state_t predicate = *sglir_padding_arg(v, 0);
    for (uint32_t i = 0; i < v->node->out_count; i++) {
        const state_t yes = *sglir_padding_value(v, region_at(v, 0)->results.data[i]);
        const state_t no = *sglir_padding_value(v, region_at(v, 1)->results.data[i]);
        state_t made;
        if (yes.spoilt != SGLIR_NONE || no.spoilt != SGLIR_NONE) {
            spoil_one(v, i, yes.spoilt != SGLIR_NONE ? &yes : &no, NULL);
        } else if (!join(&yes, &no, &made)) {
            spoil_one(v, i, NULL, "the branches have it in different places");
        } else {
            axis_t *step = &made.axes[SGLIR_PADDING_STEP];
            bool depends = predicate.axes[SGLIR_PADDING_STEP].padded;
            if (depends) *step = predicate.axes[SGLIR_PADDING_STEP];
            if (depends) step->content = SGLIR_PADDING_ANY;
            sglir_padding_result(v, i, &made);
        }
    }
}

/* What is carried comes through a turn of padding as it was. A stack has an entry for each turn. */
static bool comes_through(const state_t *yielded, sglir_id parameter)
{
    const axis_t *step = &yielded->axes[SGLIR_PADDING_STEP];
    return !step->padded || (step->content == SGLIR_PADDING_CARRIED && step->carried == parameter);
}

/* Carry i of the loop; `along`: it goes along the dim. */
static void carry(sglir_padding_view *v, uint32_t i, bool along)
{
    const sglir_region *body = region_at(v, v->node->region_count - 1);
    sglir_id parameter = body->parameters.data[i + 1];
    const state_t first = *sglir_padding_arg(v, i), taken = *sglir_padding_value(v, parameter);
    const state_t yielded = *sglir_padding_value(v, body->results.data[i]);
    state_t made;
    if (yielded.spoilt != SGLIR_NONE) {
        spoil_one(v, i, &yielded, NULL);
        return;
    }
    bool stack = along && sglir_padding_is_stack(v->p, v->dim, parameter);
    if (along && !stack && !comes_through(&yielded, parameter)) {
        spoil_one(v, i, NULL, goes_on);
        return;
    }
    state_t entering = first;
    if (along) entering.axes[SGLIR_PADDING_STEP].padded = false;
    if (!is_within(&entering, &taken) || !is_within(&yielded, &taken) ||
        (along && first.axes[SGLIR_PADDING_STEP].padded)) {
        spoil_one(v, i, NULL, "what the loop carries has it in other places after a turn than before");
        return;
    }
    for (int a = 0; along && a < SGL_MAX_RANK; a++) { /* written turn by turn: an entry for each, or some are lost */
        if (!yielded.axes[a].padded || first.axes[a].padded) continue;
        if (sglir_type_of(v->g, parameter)->dims[a] == sglir_attr_int(v->g, v->node, "steps")) continue;
        spoil_one(v, i, NULL, "the loop has another number of turns than what it writes has entries");
        return;
    }
    if (stack) {
        made = yielded; /* every entry is written */
    } else if (!join(&first, &yielded, &made)) {
        spoil_one(v, i, NULL, "what the loop carries has it in other places after a turn than before");
        return;
    }
    if (along) made.axes[SGLIR_PADDING_STEP] = sglir_padding_none.axes[0];
    sglir_padding_result(v, i, &made);
}

/* From the end on, the turns that are padding come first: nothing is good after them unless all carries came through. */
static bool begins_spoilt(const sglir_padding_view *v, const sglir_region *body)
{
    for (uint32_t i = 0; i < v->node->arg_count; i++) {
        sglir_id parameter = body->parameters.data[i + 1];
        const state_t *yielded = sglir_padding_value(v, body->results.data[i]);
        if (sglir_padding_is_stack(v->p, v->dim, parameter)) continue;
        if (yielded->spoilt == SGLIR_NONE && !comes_through(yielded, parameter)) return true;
    }
    return false;
}

/* The parameter of carry i holds what comes in and what is yielded. True when that is more than it did. */
static bool widen(sglir_padding_view *v, uint32_t i, bool along)
{
    const sglir_region *body = region_at(v, v->node->region_count - 1);
    const state_t taken = *sglir_padding_value(v, body->parameters.data[i + 1]);
    state_t first = *sglir_padding_arg(v, i), yielded = *sglir_padding_value(v, body->results.data[i]), made, both;
    if (along) first.axes[SGLIR_PADDING_STEP].padded = yielded.axes[SGLIR_PADDING_STEP].padded = false;
    if (first.spoilt != SGLIR_NONE || yielded.spoilt != SGLIR_NONE) return false;
    if ((is_within(&first, &taken) && is_within(&yielded, &taken)) || !join(&taken, &first, &both) ||
        !join(&both, &yielded, &made))
        return false;
    for (int a = 0; a < SGL_MAX_RANK; a++) made.axes[a].content = SGLIR_PADDING_ANY;
    if (along && !sglir_padding_is_stack(v->p, v->dim, body->parameters.data[i + 1])) {
        made.axes[SGLIR_PADDING_STEP] = sglir_padding_plain_axis(v->p, v->dim);
        made.axes[SGLIR_PADDING_STEP].content = SGLIR_PADDING_CARRIED;
        made.axes[SGLIR_PADDING_STEP].carried = body->parameters.data[i + 1];
    }
    for (uint32_t r = 0; r < v->node->region_count; r++)
        sglir_padding_set(v, region_at(v, r)->parameters.data[i + 1], &made);
    return true;
}

static void settle(sglir_padding_view *v, bool along)
{
    sglir_id first = v->id;
    for (uint32_t r = 0; r < v->node->region_count; r++)
        if (region_at(v, r)->nodes.count > 0 && region_at(v, r)->nodes.data[0] < first)
            first = region_at(v, r)->nodes.data[0];
    for (bool changed = true; changed && v->status == SGL_OK;) { /* states only grow, so this ends */
        changed = false;
        for (uint32_t i = 0; i < v->node->out_count; i++) changed = widen(v, i, along) || changed;
        if (changed && v->status == SGL_OK) v->status = sglir_padding_again(v->p, v->dim, first, v->id);
    }
}

static void loop(sglir_padding_view *v)
{
    const sglir_region *body = region_at(v, v->node->region_count - 1);
    const sglir_padding_note *turn = sglir_padding_turn(v->p, v->dim, sglir_body(v->node));
    settle(v, turn != NULL);
    if (turn && turn->reverse && begins_spoilt(v, body)) {
        sglir_padding_spoil(v, goes_on);
        return;
    }
    if (v->node->op == SGLIR_OP_WHILE) {
        const state_t *going = sglir_padding_value(v, region_at(v, 0)->results.data[0]);
        for (uint32_t i = 0; going->spoilt != SGLIR_NONE && i < v->node->out_count; i++) spoil_one(v, i, going, NULL);
        if (going->spoilt != SGLIR_NONE) return;
    }
    for (uint32_t i = 0; i < v->node->out_count; i++) carry(v, i, turn != NULL);
}

void sglir_padding_control(sglir_padding_view *v)
{
    if (v->node->op == SGLIR_OP_COND)
        branch(v);
    else
        loop(v);
}
