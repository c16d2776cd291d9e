/* micro_levels.c -- when each value of a split step is made: before, in, between or after which loops.
 *
 * In: forms and uses. Out: levels of what stays whole, loops of what does not, what is gathered from a loop and what is
 * sliced in one. First, in order, the earliest level of each; the outputs' gives the number of loops. Then, users before
 * makers, the latest level that serves every user. Odd invariant: what is gathered and used in a loop that comes later is
 * made a second time there when that is cheap, and sliced from the whole when not; a partial value, which cannot be
 * sliced, is always made again. */
#include "passes/micro.h"

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t lesser(int32_t a, int32_t b) { return a < b ? a : b; }

/* The first loop at or after the level. */
static int32_t loop_level(int32_t level) { return level | 1; }
static int level_of_loop(int loop) { return 2 * loop + 1; }
static uint64_t loop_bit(int32_t level) { return (uint64_t)1 << (level >> 1); }
static int first_loop(uint64_t loops) { return __builtin_ctzll(loops); }

/* ---- the earliest -------------------------------------------------------------------------------------------- */

/* The earliest level at which a node that takes its arguments so can stand; odd for a loop. */
static int32_t earliest(const sglpass_micro *m, const sglpass_micro_use *uses, uint32_t count, bool looped)
{
    int32_t level = looped ? 1 : 0;
    for (uint32_t i = 0; i < count; i++) {
        const sglpass_micro_value *value = &m->values[uses[i].value];
        if (uses[i].mode == SGLPASS_USE_ZEROS) continue;
        if (uses[i].mode == SGLPASS_USE_LOCAL)
            level = larger(level, value->local_from);
        else
            level = larger(level, looped ? loop_level(value->whole_from) : value->whole_from);
    }
    return level;
}

static void find_earliest(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    const sglpass_micro_node *at = &m->nodes[id];
    const sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    int32_t level = earliest(m, uses, at->use_count, at->looped);
    for (uint32_t r = 0; r < node->out_count; r++) {
        sglpass_micro_value *value = &m->values[node->out_first + r];
        value->whole_from = at->looped ? level + 1 : level; /* a feed is there whole */
        value->local_from = at->looped ? level : loop_level(level);
        sglpass_micro_use modes[16];
        if (value->remade && sglpass_micro_remake(m, node, value->dim, modes))
            value->local_from = earliest(m, modes, node->arg_count, true);
    }
}

/* ---- the latest ---------------------------------------------------------------------------------------------- */

static void need_whole(sglpass_micro_value *value, int32_t level) { value->whole_at = lesser(value->whole_at, level); }

/* The arguments of a node that stands in the loops. */
static void need_args(sglpass_micro *m, const sglpass_micro_use *uses, uint32_t count, uint64_t loops)
{
    for (uint32_t i = 0; i < count; i++) {
        sglpass_micro_value *value = &m->values[uses[i].value];
        if (uses[i].mode == SGLPASS_USE_ZEROS) continue;
        if (uses[i].mode == SGLPASS_USE_LOCAL)
            value->local_in |= loops;
        else
            need_whole(value, level_of_loop(first_loop(loops)) - 1);
    }
}

/* Making the node's results again costs about as little as reading them: some operations per element. What ranks exchange is
 * exchanged once. Told by the op, not by extents, which differ from rank to rank: all must run the same exchanges in the same loops. */
static bool is_cheap(const sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    switch (node->op) {
    case SGLIR_OP_DECLARE:
    case SGLIR_OP_DYNAMIC_SLICE:
    case SGLIR_OP_ROPE:
    case SGLIR_OP_RMS_NORM:
    case SGLIR_OP_LAYER_NORM: return true;
    case SGLIR_OP_RANDOM_NORMAL: return false;
    default: return (sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_MOVEMENT | SGLIR_GENERATOR)) != 0;
    }
}

/* In which loops the node stands, when its results are needed in `loops`. */
static uint64_t choose_loops(sglpass_micro *m, sglir_id id, uint64_t loops)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    uint64_t first = (uint64_t)1 << first_loop(loops);
    if (loops == first || is_cheap(m, id)) return loops;
    for (uint32_t r = 0; r < node->out_count; r++) {
        const sglpass_micro_value *value = &m->values[node->out_first + r];
        if (value->form == SGLPASS_MICRO_PARTIAL && (value->local_in & ~first)) return loops;
    }
    return first;
}

/* The last of the loops that is over at the level. */
static int last_before(uint64_t loops, int32_t level)
{
    int last = -1;
    for (int k = 0; k < SGLPASS_MOST_LOOPS && level_of_loop(k) < level; k++) {
        if (loops >> k & 1) last = k;
    }
    return last;
}

static void place_looped(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    sglpass_micro_node *at = &m->nodes[id];
    uint64_t loops = 0;
    for (uint32_t r = 0; r < node->out_count; r++) loops |= m->values[node->out_first + r].local_in;
    for (uint32_t r = 0; r < node->out_count; r++) {
        int32_t whole_at = m->values[node->out_first + r].whole_at;
        if (whole_at != SGLPASS_NO_LEVEL && last_before(loops, whole_at) < 0) loops |= loop_bit(whole_at - 1);
    }
    if (loops == 0) return;
    at->loops = choose_loops(m, id, loops);
    for (uint32_t r = 0; r < node->out_count; r++) {
        sglpass_micro_value *value = &m->values[node->out_first + r];
        value->sliced_in = value->local_in & ~at->loops;
        if (value->sliced_in) need_whole(value, level_of_loop(first_loop(value->sliced_in)) - 1);
        if (value->whole_at != SGLPASS_NO_LEVEL) value->gathered_in = last_before(at->loops, value->whole_at);
    }
    need_args(m, sglpass_micro_uses(m, id), at->use_count, at->loops);
}

static void place_whole(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    sglpass_micro_node *at = &m->nodes[id];
    for (uint32_t r = 0; r < node->out_count; r++) {
        sglpass_micro_value *value = &m->values[node->out_first + r];
        sglpass_micro_use modes[16];
        if (value->local_in && value->remade && sglpass_micro_remake(m, node, value->dim, modes)) {
            at->loops = value->local_in;
            need_args(m, modes, node->arg_count, value->local_in);
        } else if (value->local_in) {
            value->sliced_in = value->local_in;
            need_whole(value, level_of_loop(first_loop(value->local_in)) - 1);
        }
        at->level = lesser(at->level, value->whole_at);
    }
    if (at->level == SGLPASS_NO_LEVEL) return;
    for (uint32_t i = 0; i < at->use_count; i++)
        need_whole(&m->values[m->uses.data[at->use_first + i].value], at->level);
}

/* ---- sums of sums -------------------------------------------------------------------------------------------- */

/* A value of one loop that nothing but one node there uses. */
static bool is_term(const sglpass_micro *m, const sglpass_micro_use *use, uint64_t loops)
{
    const sglpass_micro_value *value = &m->values[use->value];
    return use->mode == SGLPASS_USE_LOCAL && value->form == SGLPASS_MICRO_PARTIAL && value->local_uses == 1 &&
           value->whole_uses == 0 && value->local_in == loops;
}

/* The gradients of a parameter that is used twice are added. Each goes into the carry when it is made, instead of
 * waiting for the other. */
static void dissolve_sum(sglpass_micro *m, sglir_id id)
{
    const sglir_node *node = sglir_node_at(m->from, id);
    sglpass_micro_node *at = &m->nodes[id];
    const sglpass_micro_use *uses = sglpass_micro_uses(m, id);
    sglir_id target = node->out_first;
    const sglpass_micro_value *sum = &m->values[target];
    if (!at->looped || node->op != SGLIR_OP_ADD || sum->form != SGLPASS_MICRO_PARTIAL) return;
    if (sum->paid_into != SGLIR_NONE) {
        target = sum->paid_into;
    } else if (sum->local_in != 0 || sum->gathered_in < 0) {
        return;
    }
    if (!is_term(m, &uses[0], at->loops) || !is_term(m, &uses[1], at->loops)) return;
    at->dissolved = true;
    for (int i = 0; i < 2; i++) m->values[uses[i].value].paid_into = target;
}

/* ---- the call ------------------------------------------------------------------------------------------------ */

static sgl_status count_loops(sglpass_micro *m)
{
    const sglir_graph *g = m->from;
    m->last_level = 0;
    for (int64_t i = 0; i < g->outputs.count; i++)
        m->last_level = larger(m->last_level, m->values[g->outputs.data[i].value].whole_from);
    if (m->last_level / 2 <= SGLPASS_MOST_LOOPS) return SGL_OK;
    return sglcore_fail(
        m->env, SGL_LIMIT,
        "micro: the step needs the whole batch %d times before its end, %d loops are possible; couple fewer "
        "samples, or set the plan's micro to 1",
        (int)(m->last_level / 2), (int)SGLPASS_MOST_LOOPS);
}

sgl_status sglpass_micro_levels(sglpass_micro *m)
{
    const sglir_graph *g = m->from;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t i = 0; i < top->nodes.count; i++) {
        if (m->nodes[top->nodes.data[i]].live) find_earliest(m, top->nodes.data[i]);
    }
    SGLCORE_TRY(count_loops(m));
    for (int64_t i = 0; i < g->outputs.count; i++) need_whole(&m->values[g->outputs.data[i].value], m->last_level);
    for (int64_t i = top->nodes.count - 1; i >= 0; i--) {
        sglir_id id = top->nodes.data[i];
        if (!m->nodes[id].live) continue;
        if (m->nodes[id].looped)
            place_looped(m, id);
        else
            place_whole(m, id);
    }
    for (int64_t i = top->nodes.count - 1; i >= 0; i--) dissolve_sum(m, top->nodes.data[i]);
    return SGL_OK;
}
