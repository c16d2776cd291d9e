/* verify_places.c -- the verifier's look at a graph after `memory`. In: a graph of stage FUSED whose stored values have
 * places. Out: OK, or a message that names the value that lies wrong, or the two that meet.
 *
 * Time runs in the order of the nodes; a scan takes a stretch of it, with its region's nodes inside. A value lives from
 * the node that makes it to its last use; states, feeds and constants from before the first node; what an output names to
 * after the last. A node may write where an argument lay that dies there (what a kernel bears of that is the memory
 * pass's matter). Odd invariant: the four values of a scan's carry (argument, parameter, region result, result) may be one
 * place, since they follow one another; so may a state and the values that lead to its update. */
#include <string.h>

#include "ir/text.h"
#include "ir/verify.h"

#define BEFORE_ALL (-1)
#define AFTER_ALL INT64_MAX

/* Of a value that is stored. Views live and die with their root. */
typedef struct life {
    int64_t first, last;
    int64_t last_use; /* as `last`, before states and feeds were made to outlive their uses */
    sglir_id root;    /* itself when it is no view */
} life;

typedef struct places {
    const sglir_graph *g;
    life *lives;                  /* per value */
    SGLCORE_VEC(sglir_id) roots;  /* in the order of their first moments */
    SGLCORE_VEC(sglir_id) active; /* during the sweep */
    int64_t now;
} places;

/* ---- messages ----------------------------------------------------------------------------------------------- */

static sgl_status fail_value(const places *p, sglir_id id, const char *what)
{
    const sglir_value *value = sglir_value_at(p->g, id);
    sglir_id node = value->node != SGLIR_NONE ? value->node : p->g->regions.data[value->region].node;
    return sglir_verify_fail(p->g, node, true, SGL_TYPE, "%s %u %s",
                             value->node != SGLIR_NONE ? "result" : "the region's parameter", (unsigned)value->index,
                             what);
}

static sgl_status fail_overlap(const places *p, sglir_id earlier, sglir_id later)
{
    const sglir_graph *g = p->g;
    const sglir_value *a = sglir_value_at(g, earlier);
    char what[512];
    sglcore_text text = { 0 };
    sglir_id *numbers;
    size_t bytes;
    SGLCORE_TRY(sglir_number_values(g, &numbers, &bytes));
    sgl_status status = sglcore_text_add(g->env, &text, "overlaps %%%u in %s+%lld, which still lives",
                                         (unsigned)numbers[earlier], sglir_space_names[a->space], (long long)a->offset);
    sglcore_free(g->env, numbers, bytes);
    if (status != SGL_OK) return status;
    strncpy(what, text.data, sizeof what - 1);
    what[sizeof what - 1] = '\0';
    sglcore_text_free(g->env, &text);
    return fail_value(p, later, what);
}

/* ---- each value by itself ----------------------------------------------------------------------------------- */

static int64_t bytes_of(const sglir_graph *g, sglir_id value) { return sglir_bytes(sglir_type_of(g, value)); }

static sgl_status check_place(const places *p, sglir_id id)
{
    const sglir_value *value = sglir_value_at(p->g, id);
    int64_t end;
    const sglir_node *maker = sglir_maker(p->g, id);
    bool constant = maker != NULL && maker->op == SGLIR_OP_CONSTANT,
         input = maker != NULL && maker->op == SGLIR_OP_INPUT;
    if (value->space == SGLIR_SPACE_NONE) return fail_value(p, id, "is stored and has no place");
    if (constant && value->space != SGLIR_SPACE_CONST) return fail_value(p, id, "is a constant and not among these");
    if (input && value->space != SGLIR_SPACE_STATE && value->space != SGLIR_SPACE_IO) {
        return fail_value(p, id, "is an input and neither in state nor in io");
    }
    if (value->offset < 0 || __builtin_add_overflow(value->offset, bytes_of(p->g, id), &end) ||
        end > p->g->space_bytes[value->space]) {
        return fail_value(p, id, "lies outside its space");
    }
    return SGL_OK;
}

/* A view's elements are where they were: result i of unpack after those before it. */
static sgl_status check_view(places *p, const sglir_node *node)
{
    const sglir_graph *g = p->g;
    sglir_id arg = sglir_arg(g, node, 0);
    int64_t elements = 0;
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglir_value *result = sglir_value_at(g, node->out_first + i), *source = sglir_value_at(g, arg);
        int64_t ahead = sglcore_dtype_bytes((sgl_dtype)result->type.dtype, elements);
        if (result->space != source->space || result->offset != source->offset + ahead) {
            return fail_value(p, node->out_first + i, "is a view and does not lie where its elements are");
        }
        elements += sglir_elements(&result->type);
        p->lives[node->out_first + i].root = p->lives[arg].root;
    }
    return SGL_OK;
}

/* ---- lifetimes ---------------------------------------------------------------------------------------------- */

static sgl_status begin_life(places *p, sglir_id id, int64_t first)
{
    SGLCORE_TRY(check_place(p, id));
    p->lives[id] = (life){ .first = first, .last = first, .last_use = first, .root = id };
    return SGL_OK;
}

/* States, feeds and constants, which are there before the first node. */
static bool is_there_before(const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT;
}

static sgl_status live_region(places *p, sglir_id id);

/* Gives the node its stretch of time and its results their first moment; *end is its last moment. */
static sgl_status live_node(places *p, const sglir_node *node, int64_t *end)
{
    int64_t begin = p->now++;
    if (node->op == SGLIR_OP_SCAN) {
        const sglir_region *region = &p->g->regions.data[node->region_first];
        for (int64_t i = 0; i < region->parameters.count; i++) {
            sglir_id parameter = region->parameters.data[i];
            SGLCORE_TRY(begin_life(p, parameter, begin));
            SGLCORE_TRY(sglcore_vec_push(p->g->env, &p->roots, parameter));
        }
        SGLCORE_TRY(live_region(p, node->region_first));
    }
    *end = p->now++;
    for (uint32_t i = 0; i < node->out_count; i++) {
        SGLCORE_TRY(begin_life(p, node->out_first + i, is_there_before(node) ? BEFORE_ALL : *end));
    }
    if (sglir_is_view(node)) return check_view(p, node);
    for (uint32_t i = 0; i < node->out_count && !is_there_before(node); i++) {
        SGLCORE_TRY(sglcore_vec_push(p->g->env, &p->roots, node->out_first + i));
    }
    return SGL_OK;
}

static void extend(places *p, sglir_id id, int64_t last)
{
    life *root = &p->lives[p->lives[id].root];
    if (root->last_use < last) root->last_use = last;
    if (root->last < last) root->last = last;
}

/* Turns the positions of last uses into moments. `ends` has the last moment of each node, and of the region behind. */
static void end_lives(places *p, sglir_id id, const int64_t *uses, const int64_t *ends)
{
    const sglir_region *region = &p->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(p->g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) {
            sglir_id out = node->out_first + i;
            if (uses[out] >= 0) extend(p, out, ends[uses[out]]);
        }
    }
    for (int64_t i = 0; i < region->parameters.count; i++) {
        sglir_id parameter = region->parameters.data[i];
        if (uses[parameter] >= 0) extend(p, parameter, ends[uses[parameter]]);
        p->lives[parameter].last = ends[region->nodes.count]; /* the next turn's carry is put there */
    }
}

/* A scan's results come into being at its end, and its region's results and parameters live a moment longer: while one
 * carry is handed on, the others must still be there. */
static sgl_status live_region(places *p, sglir_id id)
{
    const sglir_graph *g = p->g;
    const sglir_region *region = &g->regions.data[id];
    size_t use_bytes = (size_t)g->values.count * sizeof(int64_t),
           end_bytes = (size_t)(region->nodes.count + 1) * sizeof(int64_t);
    int64_t *uses = sglcore_alloc(g->env, use_bytes), *ends = sglcore_alloc(g->env, end_bytes);
    sgl_status status = (uses == NULL && use_bytes > 0) || ends == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
    for (int64_t n = 0; n < region->nodes.count && status == SGL_OK; n++) {
        status = live_node(p, sglir_node_at(g, region->nodes.data[n]), &ends[n]);
    }
    if (status == SGL_OK) {
        ends[region->nodes.count] = id == 0 ? AFTER_ALL : p->now + 1; /* p->now: the scan's own end */
        sglir_last_uses(g, id, uses);
        end_lives(p, id, uses, ends);
    }
    sglcore_free(g->env, uses, use_bytes);
    sglcore_free(g->env, ends, end_bytes);
    return status;
}

/* ---- who may share ------------------------------------------------------------------------------------------ */

static bool same_place(const sglir_graph *g, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(g, a), *y = sglir_value_at(g, b);
    return x->space == y->space && x->offset == y->offset && bytes_of(g, a) == bytes_of(g, b);
}

/* The new value of the state that the input reads; SGLIR_NONE when there is none. */
static sglir_id update_of(const sglir_graph *g, const sglir_node *input)
{
    const char *name = sglir_attr_string(g, input, "name");
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role == SGLIR_UPDATE && strcmp(sglcore_string(g->strings, output->name), name) == 0) {
            return output->value;
        }
    }
    return SGLIR_NONE;
}

/* What is there before the first node outlives all, but for a state whose update is made in its place: that dies with
 * its last use. Both here and in the sweep such a node may stand in a scan (a constant does), but not in a kernel. */
static void outlive(places *p)
{
    const sglir_graph *g = p->g;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!is_there_before(node) || p->lives[node->out_first].first != BEFORE_ALL) continue;
        sglir_id value = node->out_first;
        sglir_id update = node->op == SGLIR_OP_INPUT ? update_of(g, node) : SGLIR_NONE;
        if (update == SGLIR_NONE || p->lives[update].root == value || !same_place(g, value, update)) {
            p->lives[value].last = AFTER_ALL;
        }
    }
}

/* Whether a node of the region, or of one in it, uses the value or a view of it. */
static bool region_uses(const places *p, sglir_id id, sglir_id root)
{
    const sglir_region *region = &p->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(p->g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (p->lives[sglir_arg(p->g, node, i)].root == root) return true;
        }
        if (node->op == SGLIR_OP_SCAN && region_uses(p, node->region_first, root)) return true;
    }
    return false;
}

typedef enum carry_part { NOT_OF_CARRY, ARGUMENT, PARAMETER, TURN, RESULT } carry_part;

/* Which part of carry i of the scan the root is. */
static carry_part part_of(const places *p, const sglir_node *scan, uint32_t i, sglir_id root)
{
    const sglir_region *region = &p->g->regions.data[scan->region_first];
    if (scan->out_first + i == root) return RESULT;
    if (region->parameters.data[i + 1] == root) return PARAMETER;
    sglir_id turn = p->lives[region->results.data[i]].root;
    if (turn == root && sglir_value_at(p->g, turn)->node != SGLIR_NONE &&
        sglir_value_at(p->g, turn)->region == scan->region_first) {
        return TURN;
    }
    return p->lives[sglir_arg(p->g, scan, i)].root == root ? ARGUMENT : NOT_OF_CARRY;
}

static bool parts_may_share(const places *p, const sglir_node *scan, carry_part a_part, sglir_id a, carry_part b_part,
                            sglir_id b)
{
    if (a_part > b_part) return parts_may_share(p, scan, b_part, b, a_part, a);
    if (a_part == NOT_OF_CARRY || a_part == b_part) return false;
    if (a_part == ARGUMENT) { /* it must die with the handing over */
        return p->lives[a].last <= p->lives[scan->out_first].first && !region_uses(p, scan->region_first, a);
    }
    return a_part != PARAMETER || b_part != TURN || p->lives[a].last_use <= p->lives[b].first;
}

static bool one_carry(const places *p, const sglir_node *scan, sglir_id a, sglir_id b)
{
    if (scan == NULL || scan->op != SGLIR_OP_SCAN || !same_place(p->g, a, b)) return false;
    for (uint32_t i = 0; i < scan->arg_count; i++) {
        if (parts_may_share(p, scan, part_of(p, scan, i, a), a, part_of(p, scan, i, b), b)) return true;
    }
    return false;
}

static const sglir_node *holder(const sglir_graph *g, sglir_id value)
{
    sglir_id node = g->regions.data[sglir_value_at(g, value)->region].node;
    return node == SGLIR_NONE ? NULL : sglir_node_at(g, node);
}

static bool may_share(const places *p, sglir_id a, sglir_id b)
{
    const sglir_graph *g = p->g;
    double x, y;
    if (sglir_value_at(g, a)->space == SGLIR_SPACE_CONST && same_place(g, a, b) && sglir_constant_value(g, a, &x) &&
        sglir_constant_value(g, b, &y)) {
        return sglir_type_of(g, a)->dtype == sglir_type_of(g, b)->dtype && memcmp(&x, &y, sizeof x) == 0;
    }
    return one_carry(p, sglir_maker(g, a), a, b) || one_carry(p, sglir_maker(g, b), a, b) ||
           one_carry(p, holder(g, a), a, b) || one_carry(p, holder(g, b), a, b);
}

/* ---- the sweep ---------------------------------------------------------------------------------------------- */

static bool overlap(const sglir_graph *g, sglir_id a, sglir_id b)
{
    const sglir_value *x = sglir_value_at(g, a), *y = sglir_value_at(g, b);
    int64_t x_bytes = bytes_of(g, a), y_bytes = bytes_of(g, b);
    return x->space == y->space && x_bytes > 0 && y_bytes > 0 && x->offset < y->offset + y_bytes &&
           y->offset < x->offset + x_bytes;
}

static sgl_status enter(places *p, sglir_id value)
{
    const life *lives = p->lives;
    for (int64_t i = 0; i < p->active.count;) {
        sglir_id other = p->active.data[i];
        if (lives[other].last < lives[value].first) {
            p->active.data[i] = p->active.data[--p->active.count];
            continue;
        }
        bool together = lives[other].last > lives[value].first || lives[other].first == lives[value].first;
        if (together && overlap(p->g, other, value) && !may_share(p, other, value))
            return fail_overlap(p, other, value);
        i++;
    }
    return sglcore_vec_push(p->g->env, &p->active, value);
}

static sgl_status sweep(places *p)
{
    for (int64_t n = 0; n < p->g->nodes.count; n++) {
        const sglir_node *node = &p->g->nodes.data[n];
        if (is_there_before(node) && p->lives[node->out_first].first == BEFORE_ALL) {
            SGLCORE_TRY(enter(p, node->out_first));
        }
    }
    for (int64_t i = 0; i < p->roots.count; i++) SGLCORE_TRY(enter(p, p->roots.data[i]));
    return SGL_OK;
}

sgl_status sglir_verify_places(const sglir_graph *g)
{
    places p = { .g = g };
    size_t bytes = (size_t)g->values.count * sizeof *p.lives;
    if (g->arena_lower_bound > g->space_bytes[SGLIR_SPACE_ARENA]) {
        return sglcore_fail(g->env, SGL_TYPE, "the arena has %lld bytes, fewer than live at once: %lld",
                            (long long)g->space_bytes[SGLIR_SPACE_ARENA], (long long)g->arena_lower_bound);
    }
    p.lives = sglcore_alloc_zero(g->env, bytes);
    sgl_status status = p.lives == NULL && bytes > 0 ? SGL_OUT_OF_MEMORY : live_region(&p, 0);
    if (status == SGL_OK) outlive(&p);
    if (status == SGL_OK) status = sweep(&p);
    sglcore_vec_free(g->env, &p.roots);
    sglcore_vec_free(g->env, &p.active);
    sglcore_free(g->env, p.lives, bytes);
    return status;
}
