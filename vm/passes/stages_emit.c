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
#include "passes/stages.h"

typedef struct event {
    double time;
    bool is_turn; /* false: what the turn has made is handed over */
    int64_t turn;
} event;

typedef struct emitter {
    sglpass_stages *s;
    const sglir_graph *from;
    sglir_graph *to;
    sglir_rewrite rewrite;
    int here;
    bool marks;       /* the first walk */
    int64_t row;      /* values of the old graph and sums by stage: as many per micro-batch */
    uint64_t *wanted; /* per micro-batch and value: a bit per stage */
    sglir_id *map;    /* per micro-batch and value: of the new graph */
    sglir_id *sums;   /* per carry: what this stage has added up */
    int64_t number;   /* of the value that was handed over last */
    uint32_t turn;    /* of the nodes that are made now */
    uint32_t taken;   /* turns of this stage */
    sglpass_stages_turn *turns;
    int64_t turn_count;
    event *events;
} emitter;

typedef struct place {
    emitter *e;
    int64_t micro;
    int stage;
} place;

static bool is_top(const emitter *e, sglir_id value)
{
    return e->s->loop_of[sglir_value_at(e->from, value)->region] == 0;
}
static sglir_id sum_at(const emitter *e, int64_t carry, int stage)
{
    return (sglir_id)(e->from->values.count + carry * e->s->stages + stage);
}
static int stage_of(const emitter *e, sglir_id value)
{
    int32_t at = e->s->place[value];
    return at < 0 || is_top(e, value) ? at : sglpass_stage_of(e->s, at);
}
static const sglir_node *loop_at(const emitter *e, sglir_id node)
{
    const sglir_node *at = sglir_node_at(e->from, node);
    return at->op == SGLIR_OP_SCAN && e->s->loop_of[sglir_body(at)] != 0 ? at : NULL;
}
/* The carry that an unrolled loop gives back as this value, NULL: it does not. */
static sglpass_stages_carry *carry_of(const emitter *e, sglir_id value)
{
    sglir_id node = sglir_value_at(e->from, value)->node;
    const sglir_node *loop = node == SGLIR_NONE ? NULL : loop_at(e, node);
    if (!loop) return NULL;
    const sglpass_stages_loop *at = &e->s->loops.data[e->s->loop_of[sglir_body(loop)] - 1];
    return &e->s->carries.data[at->carry_first + (value - loop->out_first)];
}

/* What the loop does in the micro-batch's turns. */
static const sglir_region *body_at(const emitter *e, const sglpass_stages_loop *loop, int64_t micro)
{
    const sglir_node *node = sglir_node_at(e->from, loop->nodes[sglpass_stretch_of(e->s, micro)]);
    return &e->from->regions.data[sglir_body(node)];
}

/* Which value of which micro-batch is meant. */
static sglir_id meant(const emitter *e, sglir_id value, int64_t *micro)
{
    const sglpass_stages_carry *carry = carry_of(e, value);
    if (carry && !carry->chained) {
        value = carry->result;
        *micro = e->s->micro - 1;
    }
    if (is_top(e, value)) *micro = 0;
    return value;
}

/* Each node that adds to the carry, in the body's order. */
static void each_link(emitter *e, const sglpass_stages_carry *carry,
                      void (*visit)(emitter *e, sglir_id node, int64_t micro, int stage), int64_t micro, int stage)
{
    const int32_t number = (int32_t)(carry - e->s->carries.data) + 1;
    const sglir_node *loop = sglir_node_at(e->from, sglir_value_at(e->from, carry->out)->node);
    const sglir_region *body = body_at(e, &e->s->loops.data[e->s->loop_of[sglir_body(loop)] - 1], micro);
    for (int64_t i = 0; i < body->nodes.count; i++) {
        if (e->s->chain[body->nodes.data[i]] == number) visit(e, body->nodes.data[i], micro, stage);
    }
}

/* ---- who wants what --------------------------------------------------------------------------------------------------------- */

static void want(void *user, sglir_id value);

static void want_uses(emitter *e, sglir_id node, int64_t micro, int stage)
{
    place at = { e, micro, stage };
    sglpass_stages_each_use(e->s, node, want, &at);
}

/* What is of no stage is made here, too, and wants what it is made of. */
static void want(void *user, sglir_id value)
{
    place at = *(place *)user;
    emitter *e = at.e;
    value = meant(e, value, &at.micro);
    uint64_t *wanted = &e->wanted[at.micro * e->row + value];
    if (*wanted >> at.stage & 1) return;
    *wanted |= (uint64_t)1 << at.stage;
    const sglpass_stages_carry *carry = carry_of(e, value);
    sglir_id maker = sglir_value_at(e->from, value)->node;
    if (e->s->place[value] >= 0 || maker == SGLIR_NONE) return;
    if (carry == NULL) {
        want_uses(e, maker, at.micro, at.stage);
        return;
    }
    place first = { e, 0, at.stage };
    want(&first, carry->first);
    for (int64_t m = 0; m < e->s->micro; m++) each_link(e, carry, want_uses, m, at.stage);
}

/* ---- making ------------------------------------------------------------------------------------------------------------------- */

static sglir_id take(emitter *e, sglir_id value, int64_t micro);

static void take_use(void *user, sglir_id value)
{
    place *at = user;
    take(at->e, value, at->micro);
}

static sglir_id zeros(emitter *e, const sglir_type *type)
{
    int64_t layout[SGLIR_AXIS_COUNT];
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        layout[axis] = type->sharded[axis];
        split = split || layout[axis] >= 0;
    }
    const sglir_named attrs[] = { SGLIR_F("value", 0), SGLIR_I("dtype", type->dtype),
                                  SGLIR_I("partial", type->partial) };
    const sglir_named wide[] = { SGLIR_INTS("dims", type->rank, type->dims),
                                 SGLIR_INTS("layout", SGLIR_AXIS_COUNT, layout) };
    sglir_id zero = sglir_emit(e->to, SGLIR_OP_CONSTANT, NULL, 0, attrs, 3, NULL);
    return type->rank == 0 ? zero : sglir_emit(e->to, SGLIR_OP_BROADCAST, &zero, 1, wide, split ? 2 : 1, NULL);
}

/* What this stage adds to, as the node's first argument. The sum as it began is taken by one stage alone. */
static void begin_sum(emitter *e, sglir_id node, int64_t micro)
{
    const sglpass_stages_carry *carry = &e->s->carries.data[e->s->chain[node] - 1];
    sglir_id *sum = &e->sums[e->s->chain[node] - 1];
    bool first = carry->home == SGLPASS_STAGES_FREE || carry->home == e->here;
    if (*sum == SGLIR_NONE && first) *sum = take(e, carry->first, 0);
    sglir_set_origin_made(e->to, e->from, node, "stages");
    if (*sum == SGLIR_NONE) *sum = zeros(e, sglir_type_of(e->from, carry->first));
    e->map[micro * e->row + sglir_arg(e->from, sglir_node_at(e->from, node), 0)] = *sum;
}

static void make(emitter *e, sglir_id node, int64_t micro, int stage)
{
    place at = { e, micro, stage };
    sglpass_stages_each_use(e->s, node, take_use, &at);
    if (e->s->chain[node]) begin_sum(e, node, micro);
    e->rewrite.map = e->map + micro * e->row;
    sglir_copy_node(&e->rewrite, node);
    if (e->to->status == SGL_OK) e->to->nodes.data[e->to->nodes.count - 1].turn = e->turn;
    if (e->s->chain[node]) e->sums[e->s->chain[node] - 1] = e->rewrite.map[sglir_node_at(e->from, node)->out_first];
}

static sglir_id make_free(emitter *e, sglir_id value, int64_t micro)
{
    const sglpass_stages_carry *carry = carry_of(e, value);
    sglir_id maker = sglir_value_at(e->from, value)->node;
    if (maker == SGLIR_NONE) { /* which turn of its stretch it is */
        const int64_t first = e->s->stretches.at[sglpass_stretch_of(e->s, micro)].first;
        return sglir_constant(e->to, SGL_I64, (double)(micro - first));
    }
    if (carry == NULL) {
        make(e, maker, micro, e->here);
        return e->map[micro * e->row + value];
    }
    for (int64_t m = 0; m < e->s->micro; m++) each_link(e, carry, make, m, e->here);
    sglir_id sum = e->sums[carry - e->s->carries.data];
    return sum == SGLIR_NONE ? take(e, carry->first, 0) : sum;
}

/* The value, also where nodes of this micro-batch look for it. */
static sglir_id take(emitter *e, sglir_id asked, int64_t asked_micro)
{
    int64_t micro = asked_micro;
    sglir_id value = meant(e, asked, &micro), *have = &e->map[micro * e->row + value];
    if (e->to->status != SGL_OK) return SGLIR_NONE;
    if (*have == SGLIR_NONE && e->s->place[value] < 0) *have = make_free(e, value, micro);
    e->map[asked_micro * e->row + asked] = *have;
    return *have; /* of a value that was neither made nor handed over, the copy of its user says so */
}

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
        if (e->s->place[value] >= 0) hand(e, micro * e->row + value, sglir_type_of(e->from, value), stage_of(e, value));
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
    const int64_t home = stage >= 0 ? stage : SGLIR_HOME_ALL;
    if (e->marks || (is_feed && wanted == 0)) return;
    if (e->map[input->out_first] == SGLIR_NONE && !here && sglir_type_of(e->from, input->out_first)->rank > 0) {
        emit_empty(e, input, home);
        hand_results(e, id, 0);
        return;
    }
    if (e->map[input->out_first] == SGLIR_NONE) make(e, id, 0, e->here);
    if (e->to->status == SGL_OK) sglir_set_home(e->to, sglir_value_at(e->to, e->map[input->out_first])->node, home);
    hand_results(e, id, 0);
}

static void visit_node(emitter *e, sglir_id id)
{
    const sglir_node *node = sglir_node_at(e->from, id);
    int32_t stage = node->out_count > 0 ? e->s->place[node->out_first] : SGLPASS_STAGES_FREE;
    if (e->marks) {
        if (stage >= 0) want_uses(e, id, 0, stage);
        return;
    }
    if (stage == e->here && e->map[node->out_first] == SGLIR_NONE) make(e, id, 0, e->here);
    hand_results(e, id, 0);
}

static void visit_turn(emitter *e, const sglir_region *body, const sglpass_stages_turn *turn, bool hands)
{
    if (!e->marks && !hands && turn->stage != e->here) return;
    if (!hands) e->turn = e->marks ? 0 : ++e->taken;
    for (int64_t i = 0; i < body->nodes.count; i++) {
        sglir_id id = body->nodes.data[i];
        if (e->s->place[sglir_node_at(e->from, id)->out_first] != turn->position) continue;
        if (e->marks && !hands) want_uses(e, id, turn->micro, turn->stage);
        if (!e->marks && !hands) make(e, id, turn->micro, turn->stage);
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
        int64_t key = sum_at(e, c, stage);
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
        place home = { e, 0, carry->home };
        if (carry->home >= 0 && carry->chained) want(&home, carry->first);
    }
    for (int64_t i = 0; i < 2 * e->turn_count; i++) {
        const sglpass_stages_turn *turn = &e->turns[e->events[i].turn];
        visit_turn(e, body_at(e, loop, turn->micro), turn, !e->events[i].is_turn);
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
        const sglir_node *loop = loop_at(e, top->nodes.data[i]);
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
            place at = { e, 0, stage };
            if (only >= 0 && stage != only) continue;
            if (e->marks) want(&at, output->value);
            if (e->marks || stage != e->here) continue;
            sglir_output_add(e->to, output->role, sglcore_string(e->from->strings, output->name),
                             take(e, output->value, 0));
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
    e.row = s->from->values.count + s->carries.count * s->stages;
    sglir_stick(e.to, prepare(&e));
    for (int walk = 0; walk < 2 && e.to->status == SGL_OK; walk++) {
        e.marks = walk == 0;
        visit_all(&e);
        visit_outputs(&e);
    }
    e.rewrite.map = own;
    return sglir_rewrite_end(&e.rewrite, false, out);
}
