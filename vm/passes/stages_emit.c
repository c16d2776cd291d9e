/* stages_emit.c -- one stage's graph: its own nodes in the order of its turns, and what it hands to others and is handed.
 *
 * In: places, loops, the order of turns. Out: a graph without the loops over micro-batches that are staged: each micro-batch's nodes
 * stand for themselves. The first walk marks for every value of every micro-batch which stages want it; the second makes what is made
 * here. A value that another stage wants is sent as soon as the turn that makes it has ended, in the order of time on paper. Odd
 * invariant: each send and its receive have one place in an order that all stages share, so that they would come through even if
 * every send waited for its receive. */
#include <stdlib.h>
#include <string.h>

#include "core/broken.h"
#include "passes/stages_emit.h"

typedef sglpass_stages_emitter emitter;
typedef sglpass_stages_event event;

/* ---- handing over --------------------------------------------------------------------------------------------------------------- */

static void send(emitter *e, sglir_id value, int to)
{
    const sglir_named attrs[] = { SGLIR_I("axis", SGLIR_AXIS_PP), SGLIR_I("to", to), SGLIR_I("number", e->number) };
    sglir_emit(e->to, SGLIR_OP_SEND, &value, 1, attrs, 3, NULL);
}

static sglir_id receive(emitter *e, const sglir_type *type, int from)
{
    int64_t layout[SGLIR_AXIS_COUNT];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) layout[axis] = type->sharded[axis];
    const sglir_named attrs[] = { SGLIR_I("axis", SGLIR_AXIS_PP),    SGLIR_I("from", from),
                                  SGLIR_I("number", e->number),      SGLIR_INTS("dims", type->rank, type->dims),
                                  SGLIR_I("dtype", type->dtype),     SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout),
                                  SGLIR_I("partial", type->partial), SGLIR_I("scaled", type->scaled) };
    return sglir_emit(e->to, SGLIR_OP_RECEIVE, NULL, 0, attrs, 8, NULL);
}

/* To each other stage that wants it, in their order. */
static void hand(emitter *e, int64_t key, const sglir_type *type, int from)
{
    for (int to = 0; to < e->s->stages; to++) {
        if (to == from || (e->wanted[key] >> to & 1) == 0) continue;
        e->number++;
        if (from == e->here) send(e, e->map[key], to);
        if (to == e->here) e->map[key] = receive(e, type, from);
    }
}

static void hand_results(emitter *e, sglir_id id, int64_t micro)
{
    const sglir_node *node = sglir_node_at(e->from, id);
    sglir_set_origin_made(e->to, e->from, id, "stages");
    for (uint32_t r = 0; r < node->out_count && e->s->chain[id] == 0; r++) {
        sglir_id value = node->out_first + r;
        if (e->s->place[value] >= 0)
            hand(e, micro * e->row + value, sglir_type_of(e->from, value), sglpass_stage_at(e, value));
    }
}

/* Of a meeting, what each stage's terms come to, to each other stage that wants the whole. */
static void hand_parts(emitter *e, const sglpass_stages_meeting *meeting)
{
    uint32_t count;
    for (uint32_t i = 0; i < meeting->term_count; i += count) {
        const sglir_id term = e->s->terms.data[meeting->term_first + i];
        const int32_t stage = e->s->place[term];
        count = sglpass_stages_run(e->s, meeting, i);
        if (stage < 0 || count == 1) continue; /* a single term is handed over as it is */
        const sglir_id key = sglpass_part_at(e, meeting, stage);
        if (stage == e->here && e->wanted[key] != 0) e->map[key] = sglpass_stages_add_up(e, meeting, i, count);
        sglir_set_origin_made(e->to, e->from, meeting->root, "stages");
        hand(e, key, sglir_type_of(e->from, term), stage);
    }
}

/* ---- the walk -------------------------------------------------------------------------------------------------------------------- */

/* The input as a stage has it that does nothing with it: a host names the same feeds and states on all of them. */
static void emit_empty(emitter *e, const sglir_node *input, int64_t home)
{
    const sglir_type *type = sglir_type_of(e->from, input->out_first);
    int64_t dims[SGL_MAX_RANK] = { 0 };
    for (int d = 1; d < type->rank; d++) dims[d] = type->dims[d];
    sglir_named attrs[16];
    int count = sglir_attrs_named(e->from, input, attrs);
    for (int i = 0; i < count; i++) {
        if (strcmp(attrs[i].name, "dims") == 0) attrs[i] = SGLIR_INTS("dims", type->rank, dims);
        if (strcmp(attrs[i].name, "home") == 0) attrs[i] = SGLIR_I("home", home);
    }
    sglir_set_origin_of(e->to, &e->from->origins.data[input->origin], e->from);
    sglir_emit(e->to, SGLIR_OP_INPUT, NULL, 0, attrs, count, NULL);
}

/* Every stage has every input that any of them wants; what lives on another has no elements here, a number its one. */
static void visit_input(emitter *e, sglir_id id)
{
    const sglir_node *input = sglir_node_at(e->from, id);
    const int32_t stage = e->s->place[input->out_first];
    const uint64_t wanted = e->wanted[input->out_first];
    const bool is_feed = sglir_attr_int(e->from, input, "role") == SGL_FEED;
    const bool here = stage >= 0 ? stage == e->here : !is_feed || (wanted >> e->here & 1) != 0;
    int64_t home = stage >= 0 ? stage : SGLIR_HOME_ALL;
    if (e->marks || (is_feed && wanted == 0)) return;
    if (e->map[input->out_first] == SGLIR_NONE && !here && sglir_type_of(e->from, input->out_first)->rank > 0) {
        for (int s = 0; is_feed && home < 0; s++) home = wanted >> s & 1 ? s : home; /* the first stage that reads it */
        emit_empty(e, input, home);
        hand_results(e, id, 0);
        return;
    }
    if (e->map[input->out_first] == SGLIR_NONE) sglpass_stages_make(e, id, 0);
    if (e->to->status == SGL_OK) sglir_set_home(e->to, sglir_value_at(e->to, e->map[input->out_first])->node, home);
    hand_results(e, id, 0);
}

static void visit_node(emitter *e, sglir_id id)
{
    const sglir_node *node = sglir_node_at(e->from, id);
    int32_t stage = node->out_count > 0 ? e->s->place[node->out_first] : SGLPASS_STAGES_FREE;
    if (e->marks) {
        if (stage >= 0) sglpass_stages_want_uses(e, id, 0, stage);
        return;
    }
    if (e->s->meeting[id] > 0) hand_parts(e, &e->s->meetings.data[e->s->meeting[id] - 1]);
    if (stage == e->here && e->map[node->out_first] == SGLIR_NONE) sglpass_stages_make(e, id, 0);
    hand_results(e, id, 0);
}

static void visit_turn(emitter *e, const sglir_region *body, const sglpass_stages_turn *turn, bool hands)
{
    if (!e->marks && !hands && turn->stage != e->here) return;
    if (!hands) e->turn = e->marks ? 0 : ++e->taken;
    for (int64_t i = 0; i < body->nodes.count; i++) {
        sglir_id id = body->nodes.data[i];
        if (e->s->place[sglir_node_at(e->from, id)->out_first] != turn->position) continue;
        if (e->marks && !hands) sglpass_stages_want_uses(e, id, turn->micro, turn->stage);
        if (!e->marks && !hands) sglpass_stages_make(e, id, turn->micro);
        if (!e->marks && hands) hand_results(e, id, turn->micro);
    }
    e->turn = 0; /* what is sent and received is of none */
}

/* What stages have added up is added up where it is wanted. */
static void close_carry(emitter *e, int64_t c)
{
    const sglpass_stages_carry *carry = &e->s->carries.data[c];
    const sglir_type *type = sglir_type_of(e->from, carry->first);
    for (int stage = 0; stage < e->s->stages; stage++) {
        int64_t key = sglpass_sum_at(e, c, stage);
        if ((carry->at >> stage & 1) == 0 || stage == carry->home) continue;
        if (e->marks) {
            e->wanted[key] |= (uint64_t)1 << carry->home;
            continue;
        }
        if (stage == e->here) e->map[key] = e->sums[c];
        hand(e, key, type, stage);
        const bool left_out = type->rank > 0 && sglcore_is_broken(SGLCORE_BREAK_STAGES_SUMMED);
        if (carry->home == e->here && !left_out) e->sums[c] = sglir_add(e->to, e->sums[c], e->map[key]);
    }
    if (e->marks) return;
    if (carry->home == e->here) e->map[carry->out] = e->sums[c];
    hand(e, carry->out, type, carry->home);
}

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->is_turn != y->is_turn) return x->is_turn ? 1 : -1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* All stretches where the first one stands. */
static void visit_loop(emitter *e, const sglir_node *node)
{
    const sglpass_stages_loop *loop = &e->s->loops.data[e->s->loop_of[sglir_body(node)] - 1];
    if (node != sglir_node_at(e->from, loop->nodes[0])) return;
    for (uint32_t i = 0; i < node->arg_count && e->marks; i++) {
        const sglpass_stages_carry *carry = &e->s->carries.data[loop->carry_first + i];
        if (carry->home >= 0 && carry->chained) sglpass_stages_want(e, carry->first, 0, carry->home);
    }
    for (int64_t i = 0; i < 2 * e->turn_count; i++) {
        const sglpass_stages_turn *turn = &e->turns[e->events[i].turn];
        visit_turn(e, sglpass_body_at(e, loop, turn->micro), turn, !e->events[i].is_turn);
    }
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglpass_stages_carry *carry = &e->s->carries.data[loop->carry_first + i];
        if (carry->home < 0 || !carry->chained) continue;
        sglir_set_origin_made(e->to, e->from, loop->nodes[0], "stages");
        close_carry(e, loop->carry_first + i);
    }
}

static void visit_all(emitter *e)
{
    const sglir_region *top = &e->from->regions.data[0];
    for (int64_t i = 0; i < top->nodes.count && e->to->status == SGL_OK; i++) {
        const sglir_node *loop = sglpass_loop_at(e, top->nodes.data[i]);
        if (loop)
            visit_loop(e, loop);
        else if (sglir_node_at(e->from, top->nodes.data[i])->op == SGLIR_OP_INPUT)
            visit_input(e, top->nodes.data[i]);
        else
            visit_node(e, top->nodes.data[i]);
    }
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------------------- */

/* A fetch is every stage's, a new value that of the stage which holds the old one. */
static int output_stage(const emitter *e, const sglir_output *output)
{
    if (output->role == SGLIR_FETCH) return SGLPASS_STAGES_FREE;
    sglir_id input = sglir_input_find(e->from, sglcore_string(e->from->strings, output->name));
    return input == SGLIR_NONE ? SGLPASS_STAGES_FREE : e->s->place[input];
}

static void visit_outputs(emitter *e)
{
    for (int64_t i = 0; i < e->from->outputs.count && e->to->status == SGL_OK; i++) {
        const sglir_output *output = &e->from->outputs.data[i];
        int only = output_stage(e, output);
        for (int stage = 0; stage < e->s->stages; stage++) {
            if (only >= 0 && stage != only) continue;
            if (e->marks) sglpass_stages_want(e, output->value, 0, stage);
            if (e->marks || stage != e->here) continue;
            sglir_output_add(e->to, output->role, sglcore_string(e->from->strings, output->name),
                             sglpass_stages_take(e, output->value, 0));
        }
    }
}

/* ---- the call ------------------------------------------------------------------------------------------------------------------------ */

static sgl_status prepare_turns(emitter *e)
{
    sglpass_stages *s = e->s;
    SGLCORE_TRY(sglpass_stages_order(s->env, &s->arena, s->schedule, s->stages, s->chunks, s->micro, &e->turns,
                                     &e->turn_count));
    e->events = sglcore_arena_alloc(&s->arena, 2 * (size_t)e->turn_count * sizeof *e->events);
    if (!e->events) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < e->turn_count; i++) {
        e->events[2 * i] = (event){ e->turns[i].begin, true, i };
        e->events[2 * i + 1] = (event){ e->turns[i].end, false, i };
    }
    qsort(e->events, 2 * (size_t)e->turn_count, sizeof *e->events, compare_events);
    return SGL_OK;
}

static sgl_status prepare(emitter *e)
{
    sglpass_stages *s = e->s;
    size_t cells = (size_t)(e->row * s->micro);
    e->wanted = sglcore_arena_alloc(&s->arena, cells * sizeof *e->wanted);
    e->map = sglcore_arena_alloc(&s->arena, cells * sizeof *e->map);
    e->sums = sglcore_arena_alloc(&s->arena, (size_t)s->carries.count * sizeof *e->sums + 1);
    if (!e->wanted || !e->map || !e->sums) return SGL_OUT_OF_MEMORY;
    for (size_t i = 0; i < cells; i++) e->map[i] = SGLIR_NONE;
    for (int64_t i = 0; i < s->carries.count; i++) e->sums[i] = SGLIR_NONE;
    return prepare_turns(e);
}

sgl_status sglpass_stages_emit(sglpass_stages *s, int here, sglir_graph **out)
{
    emitter e = { .s = s, .from = s->from, .here = here, .marks = true };
    SGLCORE_TRY(sglir_rewrite_begin(s->env, s->from, "stages", NULL, &e.rewrite));
    sglir_id *own = e.rewrite.map;
    e.to = e.rewrite.to;
    e.row = s->from->values.count + (s->carries.count + s->meetings.count) * s->stages;
    sglir_stick(e.to, prepare(&e));
    for (int walk = 0; walk < 2 && e.to->status == SGL_OK; walk++) {
        e.marks = walk == 0;
        visit_all(&e);
        visit_outputs(&e);
    }
    e.rewrite.map = own;
    sglcore_vec_free(s->env, &e.due);
    return sglir_rewrite_end(&e.rewrite, false, out);
}
