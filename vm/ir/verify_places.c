/* verify_places.c -- the verifier's look at a graph after `memory`. In: a graph of stage FUSED whose stored values have
 * places. Out: OK, or a message that names the value that lies wrong, or the two that meet.
 *
 * Time runs in the order of the nodes; a loop or branch takes a stretch of it, with its regions' nodes inside, one region
 * after the other. A value lives from the node that makes it to its last use; states, feeds and constants from before the
 * first node; what an output names to after the last. A node may write where an argument lay that dies there (what a
 * kernel bears of that is the memory pass's matter). Odd invariant: the values of a loop's carry (argument, parameters,
 * yield, result) may be one place, since they follow one another; so may a branch's result and what is yielded for it,
 * and a state and the values that lead to its update. What an exchange reads lives until its wait. */
#include <string.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "ir/verify_places.h"

/* ---- messages ----------------------------------------------------------------------------------------------- */

static sgl_status fail_value(const sglir_places *p, sglir_id id, const char *what)
{
    const sglir_value *value = sglir_value_at(p->g, id);
    sglir_id node = value->node != SGLIR_NONE ? value->node : p->g->regions.data[value->region].node;
    return sglir_verify_fail(p->g, node, true, SGL_TYPE, "%s %u %s",
                             value->node != SGLIR_NONE ? "result" : "the region's parameter", (unsigned)value->index,
                             what);
}

static sgl_status fail_overlap(const sglir_places *p, const sglir_span *earlier, const sglir_span *later)
{
    const sglir_graph *g = p->g;
    sglcore_text what = { 0 };
    sglir_id *numbers;
    size_t bytes;
    SGLCORE_TRY(sglir_number_values(g, &numbers, &bytes));
    sgl_status status;
    if (earlier->value != SGLIR_NONE) {
        const sglir_value *a = sglir_value_at(g, earlier->value);
        status = sglcore_text_add(g->env, &what, "overlaps %%%u in %s+%lld, which still lives",
                                  (unsigned)numbers[earlier->value], sglir_space_names[a->space], (long long)a->offset);
    } else {
        const sglir_node *node = sglir_node_at(g, earlier->node);
        status = sglcore_text_add(g->env, &what, "overlaps the workspace of %s in arena+%lld", sglir_ops[node->op].name,
                                  (long long)node->work_offset);
    }
    sglcore_free(g->env, numbers, bytes);
    if (status == SGL_OK && later->value != SGLIR_NONE) status = fail_value(p, later->value, what.data);
    if (status == SGL_OK) { status = sglir_verify_fail(g, later->node, true, SGL_TYPE, "its workspace %s", what.data); }
    sglcore_text_free(g->env, &what);
    return status;
}

/* ---- each value by itself ----------------------------------------------------------------------------------- */

static int64_t bytes_of(const sglir_graph *g, sglir_id value) { return sglir_bytes(sglir_type_of(g, value)); }

static sgl_status check_place(const sglir_places *p, sglir_id id)
{
    const sglir_value *value = sglir_value_at(p->g, id);
    int64_t end;
    const sglir_node *maker = sglir_maker(p->g, id);
    bool constant = maker != NULL && maker->op == SGLIR_OP_CONSTANT,
         input = maker != NULL && maker->op == SGLIR_OP_INPUT;
    if (value->space == SGLIR_SPACE_NONE) return fail_value(p, id, "is stored and has no place");
    if (constant && value->space != SGLIR_SPACE_CONST) return fail_value(p, id, "is a constant and not among these");
    if (input && value->space != SGLIR_SPACE_STATE && value->space != SGLIR_SPACE_IO &&
        value->space != SGLIR_SPACE_AWAY) {
        return fail_value(p, id, "is an input and neither in state nor in io nor away");
    }
    if (maker != NULL && sglir_is_move(maker->op)) {
        const sglir_id host = maker->op == SGLIR_OP_OFFLOAD ? id : sglir_arg(p->g, maker, 0);
        const uint8_t space = sglir_value_at(p->g, host)->space;
        if (space != SGLIR_SPACE_HOST && space != SGLIR_SPACE_AWAY)
            return fail_value(p, id, "is moved, and its place of the two that is the host's is not there");
    }
    if (value->offset < 0 || __builtin_add_overflow(value->offset, bytes_of(p->g, id), &end) ||
        end > p->g->space_bytes[value->space]) {
        return fail_value(p, id, "lies outside its space");
    }
    return SGL_OK;
}

/* A view's elements are where they were: result i of unpack after those before it. */
static sgl_status check_view(sglir_places *p, const sglir_node *node)
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

static sgl_status begin_life(sglir_places *p, sglir_id id, int64_t first)
{
    SGLCORE_TRY(check_place(p, id));
    p->lives[id] = (sglir_life){ .first = first, .last = first, .last_use = first, .root = id };
    return SGL_OK;
}

/* States, feeds and constants, which are there before the first node. */
static bool is_there_before(const sglir_node *node)
{
    return node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT;
}

static sgl_status live_region(sglir_places *p, sglir_id id);

/* Of a loop: the region that is its turn. */
static bool is_body(const sglir_graph *g, sglir_id region)
{
    sglir_id holder = g->regions.data[region].node;
    if (holder == SGLIR_NONE) return false;
    const sglir_node *node = sglir_node_at(g, holder);
    return sglir_is_loop(node) && sglir_body(node) == region;
}

static sgl_status push_root(sglir_places *p, sglir_id value)
{
    return sglcore_vec_push(p->g->env, &p->spans, (sglir_span){ .value = value, .node = SGLIR_NONE });
}

/* The workspace is the node's from its first moment to after its last. */
static sgl_status push_workspace(sglir_places *p, sglir_id id, int64_t begin, int64_t *at)
{
    const sglir_node *node = sglir_node_at(p->g, id);
    int64_t end;
    *at = p->spans.count;
    if (node->work_bytes == 0) return SGL_OK;
    if (node->work_bytes < 0 || node->work_offset < 0 ||
        __builtin_add_overflow(node->work_offset, node->work_bytes, &end) ||
        end > p->g->space_bytes[SGLIR_SPACE_ARENA]) {
        return sglir_verify_fail(p->g, id, true, SGL_TYPE, "its workspace lies outside the arena");
    }
    return sglcore_vec_push(p->g->env, &p->spans, (sglir_span){ .value = SGLIR_NONE, .node = id, .first = begin });
}

static sgl_status begin_root(sglir_places *p, sglir_id value, int64_t first)
{
    SGLCORE_TRY(begin_life(p, value, first));
    return push_root(p, value);
}

static void extend(sglir_places *p, sglir_id id, int64_t last)
{
    sglir_life *root = &p->lives[p->lives[id].root];
    if (root->last_use < last) root->last_use = last;
    if (root->last < last) root->last = last;
}

/* A loop's parameters are there from its beginning, and so are the places of a branch's results. After each region comes a
 * moment at which what it yields is read; a loop's body is followed by the loop's own end. */
static sgl_status live_regions(sglir_places *p, const sglir_node *node, int64_t begin)
{
    for (uint32_t i = 0; i < node->out_count && node->op == SGLIR_OP_COND; i++)
        SGLCORE_TRY(begin_root(p, node->out_first + i, begin));
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &p->g->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->parameters.count; i++)
            SGLCORE_TRY(begin_root(p, region->parameters.data[i], begin));
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        SGLCORE_TRY(live_region(p, node->region_first + r));
        if (!is_body(p->g, node->region_first + r)) p->now++;
    }
    return SGL_OK;
}

/* Gives the node its stretch of time and its results their first moment; *end is its last moment. */
static sgl_status live_node(sglir_places *p, sglir_id id, int64_t *end)
{
    const sglir_node *node = sglir_node_at(p->g, id);
    int64_t begin = p->now++, workspace;
    SGLCORE_TRY(push_workspace(p, id, begin, &workspace));
    if (sglir_is_control(node)) SGLCORE_TRY(live_regions(p, node, begin));
    *end = p->now++;
    if (node->work_bytes != 0) p->spans.data[workspace].last = *end + 1;
    if (node->op == SGLIR_OP_COND) {
        for (uint32_t i = 0; i < node->out_count; i++) extend(p, node->out_first + i, *end);
        return SGL_OK;
    }
    for (uint32_t i = 0; i < node->out_count; i++) {
        SGLCORE_TRY(begin_life(p, node->out_first + i, is_there_before(node) ? SGLIR_BEFORE_ALL : *end));
    }
    if (sglir_is_view(node)) return check_view(p, node);
    for (uint32_t i = 0; i < node->out_count && !is_there_before(node); i++) {
        SGLCORE_TRY(push_root(p, node->out_first + i));
    }
    return SGL_OK;
}

/* Whether the region makes what it yields for the parameter where that lies. */
static bool is_turned_in_place(const sglir_places *p, sglir_id id, int64_t i)
{
    const sglir_region *region = &p->g->regions.data[id];
    if (i == 0 || !is_body(p->g, id)) return false; /* the index; what only decides */
    sglir_id turn = p->lives[region->results.data[i - 1]].root;
    const sglir_value *value = sglir_value_at(p->g, turn);
    return value->node != SGLIR_NONE && value->region == id && sglir_same_place(p->g, turn, region->parameters.data[i]);
}

/* Turns the positions of last uses into moments. `ends` has the last moment of each node, and of the region behind. */
static void end_lives(sglir_places *p, sglir_id id, const int64_t *uses, const int64_t *ends)
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
        if (!is_turned_in_place(p, id, i)) /* else the next turn's carry is put there after the last node */
            p->lives[parameter].last = ends[region->nodes.count];
    }
}

/* A loop's results come into being at its end, and its body's results and parameters live a moment longer: while one
 * carry is handed on, the others must still be there. */
static sgl_status live_region(sglir_places *p, sglir_id id)
{
    const sglir_graph *g = p->g;
    const sglir_region *region = &g->regions.data[id];
    size_t use_bytes = (size_t)g->values.count * sizeof(int64_t),
           end_bytes = (size_t)(region->nodes.count + 1) * sizeof(int64_t);
    int64_t *uses = sglcore_alloc(g->env, use_bytes), *ends = sglcore_alloc(g->env, end_bytes);
    sgl_status status = (uses == NULL && use_bytes > 0) || ends == NULL ? SGL_OUT_OF_MEMORY : SGL_OK;
    for (int64_t n = 0; n < region->nodes.count && status == SGL_OK; n++) {
        status = live_node(p, region->nodes.data[n], &ends[n]);
    }
    if (status == SGL_OK) {
        ends[region->nodes.count] =
            id == 0 ? SGLIR_AFTER_ALL : p->now + is_body(g, id); /* p->now: the loop's own end */
        sglir_last_uses(g, id, uses);
        end_lives(p, id, uses, ends);
    }
    sglcore_free(g->env, uses, use_bytes);
    sglcore_free(g->env, ends, end_bytes);
    return status;
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
static void outlive(sglir_places *p)
{
    const sglir_graph *g = p->g;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!is_there_before(node) || p->lives[node->out_first].first != SGLIR_BEFORE_ALL) continue;
        sglir_id value = node->out_first;
        sglir_id update = node->op == SGLIR_OP_INPUT ? update_of(g, node) : SGLIR_NONE;
        if (update == SGLIR_NONE || p->lives[update].root == value || !sglir_same_place(g, value, update)) {
            p->lives[value].last = SGLIR_AFTER_ALL;
        }
    }
}

/* ---- the sweep ---------------------------------------------------------------------------------------------- */

typedef struct range {
    uint8_t space;
    int64_t offset, bytes;
} range;

static range range_of(const sglir_graph *g, const sglir_span *s)
{
    if (s->value == SGLIR_NONE) {
        const sglir_node *node = sglir_node_at(g, s->node);
        return (range){ SGLIR_SPACE_ARENA, node->work_offset, node->work_bytes };
    }
    const sglir_value *value = sglir_value_at(g, s->value);
    return (range){ value->space, value->offset, bytes_of(g, s->value) };
}

static bool overlap(const sglir_graph *g, const sglir_span *a, const sglir_span *b)
{
    range x = range_of(g, a), y = range_of(g, b);
    return x.space == y.space && x.bytes > 0 && y.bytes > 0 && x.offset < y.offset + y.bytes &&
           y.offset < x.offset + x.bytes;
}

static sgl_status enter(sglir_places *p, sglir_span s)
{
    if (s.value != SGLIR_NONE) {
        s.first = p->lives[s.value].first;
        s.last = p->lives[s.value].last;
    }
    for (int64_t i = 0; i < p->active.count;) {
        sglir_span *other = &p->active.data[i];
        if (other->last < s.first) {
            *other = p->active.data[--p->active.count];
            continue;
        }
        bool together = other->last > s.first || other->first == s.first;
        bool values = other->value != SGLIR_NONE && s.value != SGLIR_NONE;
        if (together && overlap(p->g, other, &s) && !(values && sglir_may_share(p, other->value, s.value))) {
            return fail_overlap(p, other, &s);
        }
        i++;
    }
    return sglcore_vec_push(p->g->env, &p->active, s);
}

static sgl_status sweep(sglir_places *p)
{
    for (int64_t n = 0; n < p->g->nodes.count; n++) {
        const sglir_node *node = &p->g->nodes.data[n];
        if (is_there_before(node) && p->lives[node->out_first].first == SGLIR_BEFORE_ALL) {
            SGLCORE_TRY(enter(p, (sglir_span){ .value = node->out_first, .node = SGLIR_NONE }));
        }
    }
    for (int64_t i = 0; i < p->spans.count; i++) SGLCORE_TRY(enter(p, p->spans.data[i]));
    return SGL_OK;
}

sgl_status sglir_verify_places(const sglir_graph *g)
{
    sglir_places p = { .g = g };
    size_t bytes = (size_t)g->values.count * sizeof *p.lives;
    if (g->arena_lower_bound > g->space_bytes[SGLIR_SPACE_ARENA]) {
        return sglcore_fail(g->env, SGL_TYPE, "the arena has %lld bytes, fewer than live at once: %lld",
                            (long long)g->space_bytes[SGLIR_SPACE_ARENA], (long long)g->arena_lower_bound);
    }
    p.lives = sglcore_alloc_zero(g->env, bytes);
    sgl_status status = p.lives == NULL && bytes > 0 ? SGL_OUT_OF_MEMORY : live_region(&p, 0);
    if (status == SGL_OK) outlive(&p);
    if (status == SGL_OK) sglir_hand_over(&p);
    if (status == SGL_OK) status = sweep(&p);
    sglcore_vec_free(g->env, &p.spans);
    sglcore_vec_free(g->env, &p.active);
    sglcore_free(g->env, p.lives, bytes);
    return status;
}
