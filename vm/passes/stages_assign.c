/* stages_assign.c -- on which stage a node is made.
 *
 * In: a graph after `micro`, its cut. Out: the loops to unroll, a stage or position for each value. In a loop over
 * micro-batches a node stands where its module does, forward or backward, but never before what it reads: positions
 * only rise along the way of a micro-batch, so that its turns can be taken one after another. Parameters live where
 * they are used first, states with their parameter, and what an optimizer does with them, there too. What depends on
 * none of them is made wherever it is wanted, and so are numbers in which several stages meet (a norm, a flag): each is
 * handed the terms. Odd invariant: a carry that stages add to is one sum per stage until the loop has ended. */
#include <string.h>

#include "passes/stages.h"

static bool is_inside(const sglpass_stages *s, sglir_id value)
{
    return s->loop_of[sglir_value_at(s->from, value)->region] != 0;
}

void sglpass_stages_each_use(const sglpass_stages *s, sglir_id id, void (*use)(void *user, sglir_id value), void *user)
{
    const sglir_node *node = sglir_node_at(s->from, id);
    for (uint32_t i = s->chain[id] != 0; i < node->arg_count; i++) use(user, sglir_arg(s->from, node, i));
    if (node->region_count > 0) sglir_each_capture(s->from, node, use, user);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* A state's parameter, "w" of "adamw.m/w"; NONE: it is no state of a parameter. */
static sglir_id parameter_of(const sglir_graph *g, const sglir_node *input)
{
    const char *slash = strchr(sglir_attr_string(g, input, "name"), '/');
    return slash ? sglir_input_find(g, slash + 1) : SGLIR_NONE;
}

bool sglpass_stages_known_home(const sglpass_stages *s, const char *name, int64_t *home)
{
    return s->context->layout != NULL && sglir_state_home(s->context->layout, name, home);
}

/* A number that is no parameter's (steps skipped, a loss scale) is held by all. */
static bool lives_somewhere(const sglpass_stages *s, const sglir_node *input)
{
    int64_t role = sglir_attr_int(s->from, input, "role"), home;
    if (role == SGL_FEED) return false;
    if (sglpass_stages_known_home(s, sglir_attr_string(s->from, input, "name"), &home)) return home != SGLIR_HOME_ALL;
    return role != SGL_STATE || sglir_type_of(s->from, input->out_first)->rank > 0 ||
           parameter_of(s->from, input) != SGLIR_NONE;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* Marks the chain of nodes from what is yielded back to the carry. False: what stands between is no such chain. */
static bool follow_chain(sglpass_stages *s, const uint32_t *uses, sglir_id yielded, sglir_id carry, int32_t number)
{
    for (sglir_id value = yielded; value != carry;) {
        const sglir_node *maker = sglir_maker(s->from, value);
        bool adds = maker && (maker->op == SGLIR_OP_ACCUMULATE || maker->op == SGLIR_OP_DYNAMIC_UPDATE);
        if (!adds || uses[value] != 1) return false;
        s->chain[maker - s->from->nodes.data] = number;
        value = sglir_arg(s->from, maker, 0);
    }
    return uses[carry] == 1;
}

static sgl_status fail_loop(const sglpass_stages *s, const sglir_node *loop, uint32_t carry)
{
    char origin[256];
    return sglcore_fail(
        s->env, SGL_UNSUPPORTED,
        "%s: a loop over micro-batches carries something (%u) that is no sum, which stages of a pipeline cannot "
        "take turns at",
        sglir_origin_text(s->from, loop->origin, origin, sizeof origin), (unsigned)carry);
}

/* The carries of one stretch of the loop, into those of the whole. */
static sgl_status take_carries(sglpass_stages *s, const sglpass_stages_loop *loop, sglir_id id, const uint32_t *uses)
{
    const sglir_graph *g = s->from;
    const sglir_node *node = sglir_node_at(g, id);
    const sglir_region *body = &g->regions.data[sglir_body(node)];
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const int64_t number = (int64_t)loop->carry_first + i;
        const sglir_id parameter = body->parameters.data[i + 1];
        if (number == s->carries.count) {
            const sglpass_stages_carry new = { .first = sglir_arg(g, node, i), .home = SGLPASS_STAGES_FREE };
            SGLCORE_TRY(sglcore_vec_push(s->env, &s->carries, new));
        }
        sglpass_stages_carry *carry = &s->carries.data[number];
        carry->out = node->out_first + i;
        carry->result = body->results.data[i];
        carry->chained = uses[parameter] > 0;
        if (carry->chained && !follow_chain(s, uses, carry->result, parameter, (int32_t)number + 1))
            return fail_loop(s, node, i);
    }
    s->loop_of[sglir_body(node)] = (int32_t)s->loops.count + 1;
    return SGL_OK;
}

static sgl_status take_loop(sglpass_stages *s, const sglpass_stages_loop *loop, const uint32_t *uses)
{
    for (int i = 0; i < s->stretches.count; i++) SGLCORE_TRY(take_carries(s, loop, loop->nodes[i], uses));
    return sglcore_vec_push(s->env, &s->loops, *loop);
}

/* The node that goes on with just what this one has carried; NONE: there is none. */
static sglir_id goes_on(const sglpass_stages *s, sglir_id id)
{
    const sglir_region *top = &s->from->regions.data[0];
    const sglir_node *node = sglir_node_at(s->from, id);
    for (int64_t i = 0; i < top->nodes.count; i++) {
        const sglir_node *next = sglir_node_at(s->from, top->nodes.data[i]);
        bool takes = next->op == SGLIR_OP_SCAN && next->arg_count == node->out_count && node->out_count > 0;
        for (uint32_t k = 0; k < node->out_count && takes; k++)
            takes = sglir_arg(s->from, next, k) == node->out_first + k;
        if (takes) return top->nodes.data[i];
    }
    return SGLIR_NONE;
}

/* Whether at this node begins what `micro` has made of a loop. */
static bool find_loop(const sglpass_stages *s, sglir_id id, sglpass_stages_loop *loop)
{
    if (s->micro < 2) return false;
    for (int i = 0; i < s->stretches.count; i++) {
        if (i > 0) id = goes_on(s, id);
        if (id == SGLIR_NONE) return false;
        const sglir_node *node = sglir_node_at(s->from, id);
        if (node->op != SGLIR_OP_SCAN || sglir_attr_int(s->from, node, "steps") != s->stretches.at[i].turns)
            return false;
        loop->nodes[i] = id;
    }
    return true;
}

/* ---- positions within a loop ------------------------------------------------------------------------------------- */

typedef struct reader {
    const sglpass_stages *s;
    const uint8_t *bound;
    int32_t most; /* position of what is read, FREE: none of it has one */
    bool outside; /* something of the top region is read that is of a stage */
} reader;

static void read_position(void *user, sglir_id value)
{
    reader *r = user;
    if (is_inside(r->s, value)) {
        r->outside = r->outside || r->s->place[value] == SGLPASS_STAGES_UNSAID;
        if (r->s->place[value] > r->most) r->most = r->s->place[value];
    } else if (r->bound[value]) {
        r->outside = true;
    }
}

static int32_t stage_of_module(const sglpass_stages *s, sglir_id id) { return s->cut[s->module[id] - 1] % s->stages; }

static int32_t wanted_position(const sglpass_stages *s, sglir_id id)
{
    if (s->module[id] == 0) return SGLPASS_STAGES_FREE;
    int32_t chunk = s->cut[s->module[id] - 1];
    return sglir_is_made_by(s->from, sglir_node_at(s->from, id), "autodiff") ? 2 * s->chunks - 1 - chunk : chunk;
}

/* UNSAID: it only prepares what is of a stage (a table turned round), and stands where that is wanted. */
static int32_t position_of(const sglpass_stages *s, sglir_id id, const uint8_t *bound)
{
    reader r = { .s = s, .bound = bound, .most = SGLPASS_STAGES_FREE };
    sglpass_stages_each_use(s, id, read_position, &r);
    if (r.most == SGLPASS_STAGES_FREE && !r.outside) return SGLPASS_STAGES_FREE;
    int32_t wanted = s->chain[id] ? SGLPASS_STAGES_FREE : wanted_position(s, id);
    int32_t position = wanted > r.most ? wanted : r.most;
    return position == SGLPASS_STAGES_FREE ? SGLPASS_STAGES_UNSAID : position;
}

typedef struct follower {
    const sglpass_stages *s;
    int32_t *earliest; /* per value: the first position that reads it; FREE: none was met */
    int32_t position;
} follower;

static void follow(void *user, sglir_id value)
{
    follower *f = user;
    int32_t *at = &f->earliest[value];
    if (*at == SGLPASS_STAGES_FREE || f->position < *at) *at = f->position;
}

/* Users before makers: what no one has said a position of takes that of its first user. */
static void settle_unsaid(sglpass_stages *s, const sglir_region *body, int32_t *earliest)
{
    for (int64_t v = 0; v < s->from->values.count; v++) earliest[v] = SGLPASS_STAGES_FREE;
    for (int64_t i = body->nodes.count - 1; i >= 0; i--) {
        const sglir_node *node = sglir_node_at(s->from, body->nodes.data[i]);
        int32_t first = SGLPASS_STAGES_FREE;
        for (uint32_t r = 0; r < node->out_count; r++) {
            int32_t wanted = earliest[node->out_first + r];
            if (wanted != SGLPASS_STAGES_FREE && (first == SGLPASS_STAGES_FREE || wanted < first)) first = wanted;
        }
        for (uint32_t r = 0; r < node->out_count; r++) {
            int32_t *place = &s->place[node->out_first + r];
            if (*place == SGLPASS_STAGES_UNSAID) *place = first == SGLPASS_STAGES_FREE ? 0 : first;
        }
        follower f = { s, earliest, node->out_count > 0 ? s->place[node->out_first] : SGLPASS_STAGES_FREE };
        if (f.position >= 0) sglpass_stages_each_use(s, body->nodes.data[i], follow, &f);
    }
}

/* What a carry adds that is of no stage goes with the rest of it. */
static void settle_chains(sglpass_stages *s, const sglpass_stages_loop *loop, const sglir_region *body)
{
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t i = 0; i < body->nodes.count; i++) {
            sglir_id id = body->nodes.data[i];
            const sglir_node *node = sglir_node_at(s->from, id);
            if (s->chain[id] == 0) continue;
            sglpass_stages_carry *carry = &s->carries.data[s->chain[id] - 1];
            int32_t *place = &s->place[node->out_first];
            if (turn == 1 && *place == SGLPASS_STAGES_FREE && carry->home != SGLPASS_STAGES_FREE)
                *place = carry->home; /* which is its chunk forward, too */
            if (*place == SGLPASS_STAGES_FREE) continue;
            int stage = sglpass_stage_of(s, *place);
            carry->at |= (uint64_t)1 << stage;
            if (carry->home == SGLPASS_STAGES_FREE || stage < carry->home) carry->home = stage;
        }
    }
    uint32_t count = sglir_node_at(s->from, loop->nodes[0])->arg_count;
    for (uint32_t i = 0; i < count; i++) {
        sglpass_stages_carry *carry = &s->carries.data[loop->carry_first + i];
        int32_t place = s->place[carry->result];
        if (!carry->chained && place >= 0 && is_inside(s, carry->result)) carry->home = sglpass_stage_of(s, place);
    }
}

static sgl_status place_body(sglpass_stages *s, const sglpass_stages_loop *loop, sglir_id id, uint8_t *bound,
                             int32_t *earliest)
{
    const sglir_node *node = sglir_node_at(s->from, id);
    const sglir_region *body = &s->from->regions.data[sglir_body(node)];
    for (int64_t i = 0; i < body->nodes.count; i++) {
        const sglir_node *inner = sglir_node_at(s->from, body->nodes.data[i]);
        int32_t position = position_of(s, body->nodes.data[i], bound);
        for (uint32_t r = 0; r < inner->out_count; r++) s->place[inner->out_first + r] = position;
    }
    settle_unsaid(s, body, earliest);
    if (s->schedule == SGLPLAN_ZERO_BUBBLE) SGLCORE_TRY(sglpass_stages_set_apart(s, body));
    settle_chains(s, loop, body);
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglpass_stages_carry *carry = &s->carries.data[loop->carry_first + i];
        bound[node->out_first + i] = carry->home != SGLPASS_STAGES_FREE;
    }
    return SGL_OK;
}

/* ---- the top region ---------------------------------------------------------------------------------------------- */

/* What depends on something that lives on a stage; loops in which such things are worked with are unrolled. */
static sgl_status find_bound(sglpass_stages *s, uint8_t *bound, const uint32_t *uses, int32_t *room)
{
    const sglir_graph *g = s->from;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        const sglir_node *node = sglir_node_at(g, id);
        reader r = { .s = s, .bound = bound, .most = SGLPASS_STAGES_FREE };
        sglpass_stages_each_use(s, id, read_position, &r);
        bool is = node->op == SGLIR_OP_INPUT ? lives_somewhere(s, node) : r.outside;
        for (uint32_t k = 0; k < node->out_count; k++) bound[node->out_first + k] = is;
        sglpass_stages_loop loop = { .carry_first = (uint32_t)s->carries.count };
        const bool is_taken =
            node->op == SGLIR_OP_SCAN && s->loop_of[sglir_body(node)] != 0; /* with the first stretch */
        if (!is || is_taken || !find_loop(s, id, &loop)) continue;
        SGLCORE_TRY(take_loop(s, &loop, uses));
        for (int k = 0; k < s->stretches.count; k++)
            SGLCORE_TRY(place_body(s, &s->loops.data[s->loops.count - 1], loop.nodes[k], bound, room));
    }
    return SGL_OK;
}

typedef struct wish {
    const sglpass_stages *s;
    int32_t *wanted; /* per value of the top region: the first stage that uses it, UNSAID */
    int32_t stage;
} wish;

static void wish_for(void *user, sglir_id value)
{
    wish *w = user;
    if (is_inside(w->s, value)) return;
    if (w->wanted[value] == SGLPASS_STAGES_UNSAID || w->stage < w->wanted[value]) w->wanted[value] = w->stage;
}

static void wish_from_loop(wish *w, const sglir_node *loop)
{
    const sglir_region *body = &w->s->from->regions.data[sglir_body(loop)];
    for (int64_t i = 0; i < body->nodes.count; i++) {
        int32_t place = w->s->place[sglir_node_at(w->s->from, body->nodes.data[i])->out_first];
        if (place < 0) continue;
        w->stage = sglpass_stage_of(w->s, place);
        sglpass_stages_each_use(w->s, body->nodes.data[i], wish_for, w);
    }
}

/* Users before makers. A node of a module wants what it reads, and what only prepares (a cast) hands on who wants it. */
static void find_wishes(const sglpass_stages *s, int32_t *wanted)
{
    const sglir_region *top = &s->from->regions.data[0];
    wish w = { s, wanted, 0 };
    for (int64_t v = 0; v < s->from->values.count; v++) wanted[v] = SGLPASS_STAGES_UNSAID;
    for (int64_t i = top->nodes.count - 1; i >= 0; i--) {
        sglir_id id = top->nodes.data[i];
        const sglir_node *node = sglir_node_at(s->from, id);
        bool unrolled = node->op == SGLIR_OP_SCAN && s->loop_of[sglir_body(node)] != 0;
        if (unrolled) {
            wish_from_loop(&w, node);
            continue;
        }
        w.stage = node->out_count > 0 ? wanted[node->out_first] : SGLPASS_STAGES_UNSAID;
        if (s->loops.count == 0 && s->module[id] > 0) w.stage = stage_of_module(s, id);
        if (w.stage != SGLPASS_STAGES_UNSAID) sglpass_stages_each_use(s, id, wish_for, &w);
    }
}

/* Where the session has it, else where it is wanted first. */
static sgl_status place_input(sglpass_stages *s, const sglir_node *input, int32_t wanted)
{
    const char *name = sglir_attr_string(s->from, input, "name");
    int64_t home;
    s->place[input->out_first] = wanted == SGLPASS_STAGES_UNSAID ? 0 : wanted;
    if (!sglpass_stages_known_home(s, name, &home)) return SGL_OK;
    s->place[input->out_first] = (int32_t)home;
    if (home >= 0 && home < s->stages) return SGL_OK;
    const char *mine = sglcore_string(s->from->strings, s->from->name);
    if (home >= 0)
        return sglcore_fail(
            s->env, SGL_TYPE,
            "%s: an earlier program of this session has it on stage %lld, and program \"%s\" has %d stages", name,
            (long long)home, mine, s->stages);
    return sglcore_fail(
        s->env, SGL_TYPE,
        "%s: an earlier program of this session has it on every stage, and program \"%s\" on one of %d; "
        "freeze the program that trains first",
        name, mine, s->stages);
}

static sgl_status place_inputs(sglpass_stages *s, const int32_t *wanted)
{
    const sglir_graph *g = s->from;
    for (int turn = 0; turn < 2; turn++) { /* parameters, then what is kept of them */
        for (int64_t n = 0; n < g->nodes.count; n++) {
            const sglir_node *node = &g->nodes.data[n];
            if (node->op != SGLIR_OP_INPUT || !lives_somewhere(s, node)) continue;
            sglir_id of = parameter_of(g, node);
            bool is_state = sglir_attr_int(g, node, "role") == SGL_STATE && of != SGLIR_NONE;
            if (is_state != (turn == 1)) continue;
            SGLCORE_TRY(place_input(s, node, is_state ? s->place[of] : wanted[node->out_first]));
        }
    }
    return SGL_OK;
}

typedef struct meeting {
    const sglpass_stages *s;
    const uint8_t *met;   /* per value: in it stages have met, and each makes it for itself */
    int32_t stage;        /* of the largest value that is read; FREE: none has a stage */
    double largest;       /* its bytes, alike on all ranks */
    bool several, single; /* stages meet; all that has a stage is one element */
} meeting;

static void meet(void *user, sglir_id value)
{
    meeting *m = user;
    int32_t place = m->s->place[value];
    const sglir_type *type = sglir_type_of(m->s->from, value);
    m->several = m->several || m->met[value];
    if (place == SGLPASS_STAGES_FREE) return;
    m->several = m->several || (m->stage != SGLPASS_STAGES_FREE && place != m->stage);
    m->single = m->single && sglir_elements(type) == 1 && !sglir_whole_of(m->s->from, value);
    const double bytes = sglpass_even_bytes(m->s->context->plan, m->s->from, value);
    if (bytes < m->largest || (bytes == m->largest && place < m->stage)) return;
    m->largest = bytes;
    m->stage = place;
}

static int32_t stage_for(const sglpass_stages *s, sglir_id id, const uint8_t *met, uint8_t *meets)
{
    meeting m = { .s = s, .met = met, .stage = SGLPASS_STAGES_FREE, .single = true };
    sglpass_stages_each_use(s, id, meet, &m);
    *meets = m.several && m.single;
    if (m.stage == SGLPASS_STAGES_FREE) return SGLPASS_STAGES_FREE;
    if (s->loops.count == 0 && s->module[id] > 0) {
        *meets = 0;
        return stage_of_module(s, id);
    }
    return *meets ? SGLPASS_STAGES_FREE : m.stage;
}

static void place_top(sglpass_stages *s, uint8_t *met)
{
    const sglir_region *top = &s->from->regions.data[0];
    memset(met, 0, (size_t)s->from->values.count);
    for (int64_t i = 0; i < top->nodes.count; i++) {
        sglir_id id = top->nodes.data[i];
        const sglir_node *node = sglir_node_at(s->from, id);
        uint8_t meets = 0;
        if (node->op == SGLIR_OP_INPUT) continue;
        bool unrolled = node->op == SGLIR_OP_SCAN && s->loop_of[sglir_body(node)] != 0;
        const uint32_t carry = unrolled ? s->loops.data[s->loop_of[sglir_body(node)] - 1].carry_first : 0;
        int32_t stage = unrolled ? SGLPASS_STAGES_FREE : stage_for(s, id, met, &meets);
        for (uint32_t r = 0; r < node->out_count; r++) {
            s->place[node->out_first + r] = unrolled ? s->carries.data[carry + r].home : stage;
            met[node->out_first + r] = meets;
        }
    }
}

sgl_status sglpass_stages_assign(sglpass_stages *s)
{
    const sglir_graph *g = s->from;
    size_t values = (size_t)g->values.count;
    uint8_t *bound = sglcore_arena_alloc(&s->arena, values);
    uint32_t *uses = sglcore_arena_alloc(&s->arena, values * sizeof *uses);
    int32_t *wanted = sglcore_arena_alloc(&s->arena, values * sizeof *wanted);
    if (!bound || !uses || !wanted) return SGL_OUT_OF_MEMORY;
    memset(bound, 0, values);
    for (size_t v = 0; v < values; v++) s->place[v] = SGLPASS_STAGES_FREE;
    sglir_count_uses(g, uses);
    SGLCORE_TRY(find_bound(s, bound, uses, wanted));
    find_wishes(s, wanted);
    SGLCORE_TRY(place_inputs(s, wanted));
    place_top(s, bound);
    return sglpass_stages_meet(s, bound, uses);
}
