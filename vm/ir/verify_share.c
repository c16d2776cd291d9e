/* verify_share.c -- which values may be one place though both live: what a loop or branch hands on, what an exchange may
 * write over, constants that are the same.
 *
 * In: the lives of all values. Out: whether two of them may meet. Odd invariant: this is worked out anew from the graph, and
 * shares no line with the pass `memory`, whose places it judges. */
#include <string.h>

#include "ir/verify_places.h"

static bool regions_use(const sglir_places *p, const sglir_node *node, sglir_id root);

/* Whether a node of the region, or of one in it, uses the value or a view of it, or the region yields it. */
static bool region_uses(const sglir_places *p, sglir_id id, sglir_id root)
{
    const sglir_region *region = &p->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(p->g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (p->lives[sglir_arg(p->g, node, i)].root == root) return true;
        }
        if (sglir_is_control(node) && regions_use(p, node, root)) return true;
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        if (p->lives[region->results.data[i]].root == root) return true;
    }
    return false;
}

static bool regions_use(const sglir_places *p, const sglir_node *node, sglir_id root)
{
    for (uint32_t r = 0; r < node->region_count; r++) {
        if (region_uses(p, node->region_first + r, root)) return true;
    }
    return false;
}

/* A value that a loop takes as its carry, in one place with that, and has no other use for, is handed over before the
 * first turn. */
void sglir_hand_over(sglir_places *p)
{
    const sglir_graph *g = p->g;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; sglir_is_loop(node) && i < node->arg_count; i++) {
            sglir_id root = p->lives[sglir_arg(g, node, i)].root;
            sglir_id parameter = g->regions.data[sglir_body(node)].parameters.data[i + 1];
            if (sglir_same_place(g, root, parameter) && p->lives[root].last <= p->lives[node->out_first + i].first &&
                !regions_use(p, node, root))
                p->lives[root].last = p->lives[parameter].first;
        }
    }
}

typedef enum carry_part { NOT_OF_CARRY, ARGUMENT, PARAMETER, TURN, RESULT } carry_part;

/* The root is parameter i of one of the loop's regions. */
static bool is_parameter(const sglir_places *p, const sglir_node *loop, uint32_t i, sglir_id root)
{
    const sglir_value *value = sglir_value_at(p->g, root);
    return value->node == SGLIR_NONE && value->index == i && value->region - loop->region_first < loop->region_count;
}

/* Which part of carry i of the loop the root is. */
static carry_part part_of(const sglir_places *p, const sglir_node *loop, uint32_t i, sglir_id root)
{
    const sglir_region *body = &p->g->regions.data[sglir_body(loop)];
    if (loop->out_first + i == root) return RESULT;
    if (is_parameter(p, loop, i + 1, root)) return PARAMETER;
    sglir_id turn = p->lives[body->results.data[i]].root;
    if (turn == root && sglir_value_at(p->g, turn)->node != SGLIR_NONE &&
        sglir_value_at(p->g, turn)->region == sglir_body(loop)) {
        return TURN;
    }
    return p->lives[sglir_arg(p->g, loop, i)].root == root ? ARGUMENT : NOT_OF_CARRY;
}

static bool parts_may_share(const sglir_places *p, const sglir_node *loop, carry_part a_part, sglir_id a,
                            carry_part b_part, sglir_id b)
{
    if (a_part > b_part) return parts_may_share(p, loop, b_part, b, a_part, a);
    if (a_part == NOT_OF_CARRY) return false;
    if (a_part == b_part) return a_part == PARAMETER; /* of what decides, and of the body */
    if (a_part == ARGUMENT) {                         /* it must die with the handing over */
        return p->lives[a].last <= p->lives[loop->out_first].first && !regions_use(p, loop, a);
    }
    return a_part != PARAMETER || b_part != TURN || p->lives[a].last_use <= p->lives[b].first;
}

static bool one_carry(const sglir_places *p, const sglir_node *loop, sglir_id a, sglir_id b)
{
    if (is_parameter(p, loop, 0, a) && is_parameter(p, loop, 0, b)) return true; /* the index, told twice */
    for (uint32_t i = 0; i < loop->arg_count; i++) {
        if (parts_may_share(p, loop, part_of(p, loop, i, a), a, part_of(p, loop, i, b), b)) return true;
    }
    return false;
}

/* a is a result of the branch, b what one of the regions makes for it. */
static bool one_yield(const sglir_places *p, const sglir_node *branch, sglir_id a, sglir_id b)
{
    if (a - branch->out_first >= branch->out_count) return false;
    for (uint32_t r = 0; r < branch->region_count; r++) {
        sglir_id yielded = p->g->regions.data[branch->region_first + r].results.data[a - branch->out_first];
        if (p->lives[yielded].root == b && sglir_value_at(p->g, b)->region == branch->region_first + r) return true;
    }
    return false;
}

/* Both are of one thing that the loop or branch hands on. */
static bool handed_on(const sglir_places *p, const sglir_node *node, sglir_id a, sglir_id b)
{
    if (node == NULL || !sglir_same_place(p->g, a, b)) return false;
    if (sglir_is_loop(node)) return one_carry(p, node, a, b);
    return node->op == SGLIR_OP_COND && (one_yield(p, node, a, b) || one_yield(p, node, b, a));
}

/* An exchange that only begins may write over what it reads, though its wait still names that, if nothing else reads it from
 * there on: b is what the exchange makes, a its argument. */
static bool exchanged_over(const sglir_places *p, sglir_id a, sglir_id b)
{
    const sglir_graph *g = p->g;
    const sglir_node *maker = sglir_maker(g, b);
    if (maker == NULL || !sglir_is_exchange(maker->op) || !sglir_same_place(g, a, b)) return false;
    const sglir_region *region = &g->regions.data[maker->region];
    bool begun = false, waited = false;
    for (int64_t n = 0; n < region->nodes.count && !waited; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        waited = node->op == SGLIR_OP_WAIT && sglir_arg(g, node, 0) == b;
        for (uint32_t i = 0; i < node->arg_count && begun && !waited; i++)
            if (p->lives[sglir_arg(g, node, i)].root == a) return false;
        if (begun && sglir_is_control(node) && regions_use(p, node, a)) return false;
        if (begun && waited && p->lives[a].last_use > p->lives[node->out_first].first) return false;
        begun = begun || node == maker;
    }
    return waited;
}

static const sglir_node *holder(const sglir_graph *g, sglir_id value)
{
    sglir_id node = g->regions.data[sglir_value_at(g, value)->region].node;
    return node == SGLIR_NONE ? NULL : sglir_node_at(g, node);
}

bool sglir_may_share(const sglir_places *p, sglir_id a, sglir_id b)
{
    const sglir_graph *g = p->g;
    double x, y;
    if (sglir_value_at(g, a)->space == SGLIR_SPACE_CONST && sglir_same_place(g, a, b) &&
        sglir_constant_value(g, a, &x) && sglir_constant_value(g, b, &y)) {
        return sglir_type_of(g, a)->dtype == sglir_type_of(g, b)->dtype && memcmp(&x, &y, sizeof x) == 0;
    }
    return handed_on(p, sglir_maker(g, a), a, b) || handed_on(p, sglir_maker(g, b), a, b) ||
           handed_on(p, holder(g, a), a, b) || handed_on(p, holder(g, b), a, b) || exchanged_over(p, a, b) ||
           exchanged_over(p, b, a);
}
