/* padding.c -- notes and states of padding, brought up to date as a graph grows; and the two checks. See padding.h.
 *
 * In: notes, a graph. Out: states of values, in the order of nodes. Odd invariant: regions are looked at before the node
 * that holds them, for that is how their nodes are numbered; what their parameters are stands in notes. */
#include "ir/padding.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const sglir_padding_state sglir_padding_none = { .spoilt = SGLIR_NONE };

void sglir_padding_init(sglir_padding *p, sglir_graph *graph)
{
    memset(p, 0, sizeof *p);
    p->env = graph->env;
    p->graph = graph;
}

void sglir_padding_free(sglir_padding *p)
{
    sglcore_vec_free(p->env, &p->notes);
    sglcore_vec_free(p->env, &p->states);
    for (int d = 0; d < SGLIR_PADDING_DIMS; d++) sglcore_vec_free(p->env, &p->of_value[d]);
}

sgl_status sglir_padding_dim(sglir_padding *p, const char *name, int *dim)
{
    uint32_t interned;
    SGLCORE_TRY(sglcore_intern(p->graph->strings, name, strlen(name), &interned));
    for (*dim = 0; *dim < p->dim_count; ++*dim)
        if (p->dims[*dim] == interned) return SGL_OK;
    if (p->dim_count == SGLIR_PADDING_DIMS)
        return sglcore_fail(p->env, SGL_LIMIT, "dim '%s': a graph has at most %d dims with buckets", name,
                            (int)SGLIR_PADDING_DIMS);
    p->dims[p->dim_count++] = interned;
    return SGL_OK;
}

/* ---- states --------------------------------------------------------------------------------------------------- */

const sglir_padding_state *sglir_padding_value(const sglir_padding_view *v, sglir_id value)
{
    const sglir_padding *p = v->p;
    if (value >= p->of_value[v->dim].count) return &sglir_padding_none;
    uint32_t at = p->of_value[v->dim].data[value];
    return at == 0 ? &sglir_padding_none : &p->states.data[at];
}

/* Rows alone say nothing: without padding all are alike. */
static bool says_nothing(const sglir_padding_state *state)
{
    if (state->spoilt != SGLIR_NONE || state->turn) return false;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++)
        if (state->axes[a].padded) return false;
    return true;
}

static sgl_status reserve(sglir_padding *p, int dim, sglir_id value)
{
    if (p->states.count == 0) SGLCORE_TRY(sglcore_vec_push(p->env, &p->states, sglir_padding_none));
    int64_t more = (int64_t)value + 1 - p->of_value[dim].count;
    if (more <= 0) return SGL_OK;
    SGLCORE_TRY(sglcore_vec_reserve(p->env, &p->of_value[dim], more));
    memset(p->of_value[dim].data + p->of_value[dim].count, 0, (size_t)more * sizeof(uint32_t));
    p->of_value[dim].count += more;
    return SGL_OK;
}

/* `state` may be one of the pool, which moves. */
static sgl_status set_state(sglir_padding *p, int dim, sglir_id value, const sglir_padding_state *state)
{
    sglir_padding_state copy = *state;
    if (says_nothing(&copy) && value >= p->of_value[dim].count) return SGL_OK;
    SGLCORE_TRY(reserve(p, dim, value));
    uint32_t *at = &p->of_value[dim].data[value];
    if (says_nothing(&copy)) copy = sglir_padding_none;
    if (*at != 0) {
        p->states.data[*at] = copy;
        return SGL_OK;
    }
    if (says_nothing(&copy)) return SGL_OK;
    *at = (uint32_t)p->states.count; /* 0 is that of no padding, and never changes */
    return sglcore_vec_push(p->env, &p->states, copy);
}

void sglir_padding_set(sglir_padding_view *v, sglir_id value, const sglir_padding_state *state)
{
    if (v->status == SGL_OK) v->status = set_state(v->p, v->dim, value, state);
}

void sglir_padding_spoil(sglir_padding_view *v, const char *why)
{
    sglir_padding_state state = sglir_padding_none;
    state.spoilt = v->id;
    state.why = why;
    for (uint32_t i = 0; i < v->node->out_count; i++) sglir_padding_result(v, i, &state);
}

bool sglir_padding_join_axis(sglir_padding_axis *to, const sglir_padding_axis *from)
{
    if (to->rows && from->rows && (to->rows_outer != from->rows_outer || to->rows_inner != from->rows_inner))
        return false;
    if (from->rows) {
        to->rows = true;
        to->rows_outer = from->rows_outer;
        to->rows_inner = from->rows_inner;
    }
    if (!from->padded) return true;
    if (to->padded) return to->outer == from->outer && to->inner == from->inner && to->group == from->group;
    sglir_padding_axis had = *to;
    *to = *from;
    to->rows = had.rows;
    to->rows_outer = had.rows_outer;
    to->rows_inner = had.rows_inner;
    return true;
}

bool sglir_padding_same_rows(const sglir_padding_state *a, const sglir_padding_state *b)
{
    for (int i = 0; i < SGL_MAX_RANK; i++) {
        const sglir_padding_axis *x = &a->axes[i], *y = &b->axes[i];
        if (x->rows != y->rows) return false;
        if (x->rows && (x->rows_outer != y->rows_outer || x->rows_inner != y->rows_inner)) return false;
    }
    return true;
}

/* ---- notes ---------------------------------------------------------------------------------------------------- */

/* A single row is none that others could differ from. */
static int64_t rows_of(const sglir_graph *g, const sglir_padding_note *note)
{
    if ((note->kind != SGLIR_PADDING_FEED && note->kind != SGLIR_PADDING_MASK) || note->rows < 0) return 0;
    int64_t rows = sglir_type_of(g, note->value)->dims[note->rows];
    return rows > 1 ? rows : 0;
}

int64_t sglir_padding_rows(const sglir_padding *p, int dim)
{
    for (int64_t i = 0; i < p->notes.count; i++)
        if (p->notes.data[i].dim == dim && rows_of(p->graph, &p->notes.data[i]) > 0)
            return rows_of(p->graph, &p->notes.data[i]);
    return 0;
}

sglir_padding_axis sglir_padding_plain_axis(const sglir_padding *p, int dim)
{
    return (sglir_padding_axis){ .padded = true, .outer = 1, .inner = 1, .group = sglir_padding_group(p, dim) };
}

static void set_rows(sglir_padding_axis *axis)
{
    axis->rows = true;
    axis->rows_outer = axis->rows_inner = 1;
}

void sglir_padding_note_axes(const sglir_graph *g, sglir_padding_state *state, const sglir_padding_note *note)
{
    bool rows = rows_of(g, note) > 0;
    state->axes[note->axis] =
        (sglir_padding_axis){ .padded = true,
                              .content = isnan(note->content) ? SGLIR_PADDING_ANY : SGLIR_PADDING_KNOWN,
                              .value = note->content,
                              .outer = 1,
                              .inner = 1,
                              .group = rows };
    if (rows) set_rows(&state->axes[note->rows]);
}

const sglir_padding_note *sglir_padding_turn(const sglir_padding *p, int dim, sglir_id region)
{
    for (int64_t i = 0; i < p->notes.count; i++) {
        const sglir_padding_note *note = &p->notes.data[i];
        if (note->kind != SGLIR_PADDING_TURN || note->dim != dim) continue;
        if (p->graph->values.data[note->value].region == region) return note;
    }
    return NULL;
}

bool sglir_padding_is_stack(const sglir_padding *p, int dim, sglir_id parameter)
{
    for (int64_t i = 0; i < p->notes.count; i++) {
        const sglir_padding_note *note = &p->notes.data[i];
        if (note->kind == SGLIR_PADDING_STACK && note->dim == dim && note->value == parameter) return true;
    }
    return false;
}

static void axis_carried(const sglir_padding *p, int dim, sglir_id parameter, sglir_padding_axis *step)
{
    *step = sglir_padding_plain_axis(p, dim);
    step->content = SGLIR_PADDING_CARRIED;
    step->carried = parameter;
}

/* A loop's parameter as what it begins with: the same places, but who knows what is in them after a turn. */
static void note_like(const sglir_padding_view *v, const sglir_padding_note *note, sglir_padding_state *state)
{
    *state = *sglir_padding_value(v, note->other);
    state->turn = false;
    for (int a = 0; a < SGLIR_PADDING_AXES; a++) state->axes[a].content = SGLIR_PADDING_ANY;
    if (!sglir_padding_turn(v->p, note->dim, v->g->values.data[note->value].region)) return;
    axis_carried(v->p, note->dim, note->value, &state->axes[SGLIR_PADDING_STEP]);
    /* What it begins with, zeros mostly, need not tell that it has rows; what is added to it does. */
    const sglir_type *type = sglir_type_of(v->g, note->value);
    if (type->rank > 0 && type->dims[0] == sglir_padding_rows(v->p, note->dim)) set_rows(&state->axes[0]);
}

static sgl_status apply(sglir_padding *p, const sglir_padding_note *note)
{
    const sglir_padding_view v = { .p = p, .g = p->graph, .dim = note->dim };
    sglir_padding_state state = sglir_padding_none;
    switch (note->kind) {
    case SGLIR_PADDING_FEED:
    case SGLIR_PADDING_MASK: sglir_padding_note_axes(p->graph, &state, note); break;
    case SGLIR_PADDING_LIKE: note_like(&v, note, &state); break;
    case SGLIR_PADDING_TURN: state.turn = true; break;
    default: /* a stack */ state.axes[0] = sglir_padding_plain_axis(p, note->dim); break;
    }
    return set_state(p, note->dim, note->value, &state);
}

sgl_status sglir_padding_add(sglir_padding *p, const sglir_padding_note *note)
{
    for (int64_t i = 0; i < p->notes.count && note->kind == SGLIR_PADDING_FEED; i++) {
        sglir_padding_note *had = &p->notes.data[i];
        if (had->kind != note->kind || had->dim != note->dim || had->value != note->value) continue;
        int64_t at_nodes = had->at_nodes;
        *had = *note;
        had->at_nodes = at_nodes;
        p->nodes_done = p->notes_done = p->states.count = 0;
        for (int d = 0; d < SGLIR_PADDING_DIMS; d++) p->of_value[d].count = 0;
        return SGL_OK;
    }
    sglir_padding_note added = *note;
    added.at_nodes = p->graph->nodes.count;
    return sglcore_vec_push(p->env, &p->notes, added);
}

/* ---- bringing up to date -------------------------------------------------------------------------------------- */

static sgl_status take_notes(sglir_padding *p, int64_t nodes)
{
    while (p->notes_done < p->notes.count && p->notes.data[p->notes_done].at_nodes <= nodes)
        SGLCORE_TRY(apply(p, &p->notes.data[p->notes_done++]));
    return SGL_OK;
}

static sgl_status look_at(sglir_padding *p, int dim, sglir_id node)
{
    sglir_padding_view v = { .p = p, .g = p->graph, .id = node, .dim = dim };
    v.node = sglir_node_at(p->graph, node);
    sglir_padding_rule(&v);
    return v.status;
}

static sgl_status update(sglir_padding *p)
{
    for (; p->nodes_done < p->graph->nodes.count; p->nodes_done++) {
        SGLCORE_TRY(take_notes(p, p->nodes_done));
        for (int d = 0; d < p->dim_count; d++) SGLCORE_TRY(look_at(p, d, (sglir_id)p->nodes_done));
    }
    return take_notes(p, p->nodes_done);
}

sgl_status sglir_padding_again(sglir_padding *p, int dim, sglir_id first, sglir_id stop)
{
    for (sglir_id n = first; n < stop; n++) {
        SGLCORE_TRY(look_at(p, dim, n));
        for (int64_t i = 0; i < p->notes_done; i++) { /* of computed values: a note goes before what the rule says */
            const sglir_padding_note *note = &p->notes.data[i];
            bool computed = note->kind == SGLIR_PADDING_MASK || note->kind == SGLIR_PADDING_TURN;
            if (computed && note->dim == dim && note->at_nodes == (int64_t)n + 1) SGLCORE_TRY(apply(p, note));
        }
    }
    return SGL_OK;
}

sgl_status sglir_padding_of(sglir_padding *p, int dim, sglir_id value, const sglir_padding_state **state)
{
    SGLCORE_TRY(update(p));
    const sglir_padding_view v = { .p = p, .g = p->graph, .dim = dim };
    *state = sglir_padding_value(&v, value);
    return SGL_OK;
}

/* ---- the checks ------------------------------------------------------------------------------------------------- */

/* The failure is the caller's, the graph stays good. */
static sgl_status refuse(sglir_graph *g, sglir_id node, const char *dim, const char *why)
{
    const sglir_node *n = sglir_node_at(g, node);
    char text[SGLIR_TYPE_ROOM] = "";
    sglir_id shown = n->arg_count > 0 ? sglir_arg(g, n, 0) : n->out_first;
    if (n->arg_count + n->out_count > 0) sglir_type_text(sglir_type_of(g, shown), text, sizeof text);
    sgl_status status =
        sglir_fail_node(g, node, SGL_TYPE, "padding of the dim '%s' in %s would count: %s", dim, text, why);
    g->status = SGL_OK;
    return status;
}

sgl_status sglir_padding_check(sglir_padding *p)
{
    sglir_graph *g = p->graph;
    SGLCORE_TRY(update(p));
    for (int64_t o = 0; o < g->outputs.count; o++) {
        const sglir_output *output = &g->outputs.data[o];
        for (int d = 0; d < p->dim_count; d++) {
            const char *dim = sglcore_string(g->strings, p->dims[d]);
            const sglir_padding_view v = { .p = p, .g = g, .dim = d };
            const sglir_padding_state *state = sglir_padding_value(&v, output->value);
            if (state->spoilt != SGLIR_NONE) return refuse(g, state->spoilt, dim, state->why);
            for (int a = 0; a < SGL_MAX_RANK; a++) {
                if (!state->axes[a].padded) continue;
                return sglcore_fail(p->env, SGL_TYPE,
                                    "output '%s': it is as long as the dim '%s' with its padding, and so no program of "
                                    "another bucket can give it",
                                    sglcore_string(g->strings, output->name), dim);
            }
        }
    }
    return SGL_OK;
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static bool same_numbers(const sglir_graph *a, const sglir_node *x, const sglir_graph *b, const sglir_node *y)
{
    if (x->attr_count != y->attr_count) return false;
    for (uint32_t i = 0; i < x->attr_count; i++) {
        const sglir_attr *p = &a->attrs.data[x->attr_first + i], *q = &b->attrs.data[y->attr_first + i];
        if (p->kind != q->kind) return false;
        if (p->kind == 'f' && !same_number(p->as.f, q->as.f)) return false;
        if (p->kind != 'F') continue;
        if (p->count != q->count) return false;
        for (uint32_t k = 0; k < p->count; k++)
            if (!same_number(a->floats.data[p->as.first + k], b->floats.data[q->as.first + k])) return false;
    }
    return true;
}

static bool same_node(const sglir_graph *a, const sglir_node *x, const sglir_graph *b, const sglir_node *y)
{
    if (x->op != y->op || x->arg_count != y->arg_count || x->out_first != y->out_first) return false;
    for (uint32_t i = 0; i < x->arg_count; i++)
        if (sglir_arg(a, x, i) != sglir_arg(b, y, i)) return false;
    return true;
}

/* Of a loop from the end on, the place of its first turn: the one number that a bucket may decide. */
static bool is_last_place(const sglir_padding *p, const sglir_node *node)
{
    for (int64_t i = 0; node->op == SGLIR_OP_CONSTANT && i < p->notes.count; i++) {
        const sglir_padding_note *note = &p->notes.data[i];
        if (note->kind != SGLIR_PADDING_TURN || !note->reverse) continue;
        const sglir_node *place = sglir_maker(p->graph, note->value);
        if (place && place->arg_count > 0 && sglir_arg(p->graph, place, 0) == node->out_first) return true;
    }
    return false;
}

static sgl_status refuse_other(sglir_graph *g, sglir_id node, const sglir_graph *other, const sglir_node *there,
                               const char *dim)
{
    char place[512] = "", why[1024];
    if (there) sglir_origin_text(other, there->origin, place, sizeof place);
    snprintf(
        why, sizeof why,
        "with another bucket the trace does something else here (%s at %s); what a script decides by an extent, it "
        "decides with the padding",
        there ? sglir_ops[there->op].name : "nothing", *place ? place : "its end");
    return refuse(g, node, dim, why);
}

/* Whether the dim is known to run along the dimension of the argument. */
static bool is_known(sglir_padding *p, int dim, sglir_id value, int axis)
{
    const sglir_padding_state *state;
    return sglir_padding_of(p, dim, value, &state) == SGL_OK &&
           (state->axes[axis].padded || state->spoilt != SGLIR_NONE);
}

/* The node runs over a dimension that is longer in the other trace, and none of its arguments is known to have the dim
 * there: numbers made for an extent, such as an iota, come together. */
static bool sums_extent(sglir_padding *p, int dim, const sglir_node *x, const sglir_graph *other)
{
    const sglir_graph *g = p->graph;
    uint32_t moves = SGLIR_ELEMENTWISE | SGLIR_MOVEMENT | SGLIR_GENERATOR | SGLIR_REGION;
    uint32_t longer = 0, known = 0, kept = 0;
    sglir_labels l;
    if (sglir_ops[x->op].flags & moves || !sglir_labels_of(g, x, &l) || l.count > 32) return false;
    for (uint32_t r = 0; r < x->out_count; r++)
        for (int a = 0; a < sglir_type_of(g, x->out_first + r)->rank; a++)
            if (l.results[r][a] >= 0) kept |= 1u << l.results[r][a];
    for (uint32_t i = 0; i < x->arg_count; i++) {
        sglir_id value = sglir_arg(g, x, i);
        const sglir_type *mine = sglir_type_of(g, value), *theirs = sglir_type_of(other, value);
        for (int a = 0; a < mine->rank && a < theirs->rank; a++) {
            if (l.args[i][a] < 0) continue;
            if (mine->dims[a] != theirs->dims[a]) longer |= 1u << l.args[i][a];
            if (is_known(p, dim, value, a)) known |= 1u << l.args[i][a];
        }
    }
    if (x->op == SGLIR_OP_SOFTMAX) kept &= ~l.refused;
    return (longer & ~known & ~kept) != 0;
}

static sgl_status compare_node(sglir_padding *p, int at, sglir_id n, const sglir_graph *other, const char *dim)
{
    sglir_graph *graph = p->graph;
    const sglir_node *x = sglir_node_at(graph, n);
    const sglir_node *y = n < other->nodes.count ? sglir_node_at(other, n) : NULL;
    if (!y || !same_node(graph, x, other, y)) return refuse_other(graph, n, other, y, dim);
    bool drawn = x->op == SGLIR_OP_RANDOM_UNIFORM || x->op == SGLIR_OP_RANDOM_NORMAL;
    bool kept = x->op == SGLIR_OP_INPUT && sglir_attr_int(graph, x, "role") != SGL_FEED;
    if ((drawn || kept) && !sglir_same_shape(sglir_type_of(graph, x->out_first), sglir_type_of(other, x->out_first)))
        return refuse(graph, n, dim,
                      drawn
                          ? "with another bucket a place is given another number; draw for the dim's .largest, and cut"
                          : "it is kept from step to step, and each bucket would need another one");
    if (!same_numbers(graph, x, other, y) && !is_last_place(p, x))
        return refuse(graph, n, dim,
                      "with another bucket this number is another one: it comes from an extent, which is that of the "
                      "bucket; how many entries a row has is told by the dim's :lengths()");
    if (sums_extent(p, at, x, other))
        return refuse(graph, n, dim, "what it runs over is as long as the bucket; take the dim's :mask() to it first");
    return SGL_OK;
}

sgl_status sglir_padding_compare(sglir_padding *p, const sglir_graph *other, const char *dim)
{
    const sglir_graph *graph = p->graph;
    int at;
    SGLCORE_TRY(sglir_padding_dim(p, dim, &at));
    for (int64_t n = 0; n < graph->nodes.count; n++) SGLCORE_TRY(compare_node(p, at, (sglir_id)n, other, dim));
    if (graph->nodes.count == other->nodes.count && graph->outputs.count == other->outputs.count) return SGL_OK;
    return sglcore_fail(
        graph->env, SGL_TYPE,
        "dim '%s': with another bucket the trace does more at its end; what a script decides by an extent, "
        "it decides with the padding",
        dim);
}
