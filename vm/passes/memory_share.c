/* memory_share.c -- lifetimes of stored values, and the values that lie in one place.
 *
 * In: a graph. Out: groups. How: every value begins as a group of its own. Then, in this order: a loop's results join its
 * carries, what a turn yields joins the carry where it may be written there at once, what a branch yields joins its result,
 * new states join the old ones, first carries join the loop's, and last a kernel's results join arguments that die in it. Odd invariant: a value that is
 * written in the place of an older one is made only after the last read of that, or by the node that reads it last and
 * bears it. */
#include <string.h>

#include "passes/memory_share.h"

static const sglir_node *node_at(const sglpass_sharing *s, sglir_id node) { return &s->g->nodes.data[node]; }
static int64_t bytes_of(const sglpass_sharing *s, sglir_id value) { return sglir_bytes(sglir_type_of(s->g, value)); }

/* ---- groups ------------------------------------------------------------------------------------------------- */

sglir_id sglpass_head(const sglpass_sharing *s, sglir_id value)
{
    sglir_id at = s->views[value].root;
    while (s->groups[at].next != at) at = s->groups[at].next;
    return at;
}

static sglpass_group *group_of(sglpass_sharing *s, sglir_id value) { return &s->groups[sglpass_head(s, value)]; }

/* One place for both; that of `to`, unless `from` alone is held to a space. */
static void join(sglpass_sharing *s, sglir_id to, sglir_id from)
{
    sglir_id a = sglpass_head(s, to), b = sglpass_head(s, from);
    sglpass_group *x = &s->groups[a], *y = &s->groups[b];
    if (a == b) return;
    y->next = a;
    if (y->first < x->first) x->first = y->first;
    if (y->last > x->last) x->last = y->last;
    if (y->last_work > x->last_work) x->last_work = y->last_work;
    if (x->space == SGLIR_SPACE_ARENA) x->space = y->space;
}

/* A value of its own: no view, and the whole of its place. */
static bool is_whole(const sglpass_sharing *s, sglir_id value)
{
    const sglpass_view *view = &s->views[value];
    return view->offset == 0 && bytes_of(s, view->root) == bytes_of(s, value);
}

/* ---- moments ------------------------------------------------------------------------------------------------ */

static void number_region(sglpass_sharing *s, sglir_id id)
{
    const sglir_region *region = &s->g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        sglir_id node = region->nodes.data[n];
        s->begins[node] = s->moments++;
        for (uint32_t r = 0; sglir_is_control(node_at(s, node)) && r < node_at(s, node)->region_count; r++) {
            number_region(s, node_at(s, node)->region_first + r);
            s->region_ends[node_at(s, node)->region_first + r] = s->moments++; /* when what it yields is read */
        }
        s->ends[node] = s->moments - 1;
    }
}

/* The moment at which a use by the node is over, for a value of `region`: within a loop that stands there, its end,
 * since the next turn uses it again. */
static int64_t moment_of_use(const sglpass_sharing *s, sglir_id node, sglir_id region)
{
    while (node_at(s, node)->region != region) node = s->g->regions.data[node_at(s, node)->region].node;
    return s->ends[node];
}

static void use(sglpass_sharing *s, sglir_id value, sglir_id node, bool work)
{
    sglir_id root = s->views[value].root;
    sglpass_group *group = &s->groups[root];
    int64_t moment = moment_of_use(s, node, sglir_value_at(s->g, root)->region);
    if (moment > group->last_read) group->last_read = moment;
    if (moment > group->last) group->last = moment;
    if (work && moment > group->last_work) group->last_work = moment;
}

static void begin(sglpass_sharing *s, sglir_id value, int64_t first, int64_t last, sglir_space space)
{
    s->groups[value] = (sglpass_group){
        .next = value,
        .first = first,
        .last = last,
        .last_work = last,
        .last_read = -1,
        .space = (uint8_t)space,
        .taken_by = SGLIR_NONE,
    };
}

static void begin_node(sglpass_sharing *s, sglir_id id)
{
    const sglir_node *node = node_at(s, id);
    int64_t first = s->begins[id], last = s->ends[id];
    sglir_space space = SGLIR_SPACE_ARENA;
    if (node->op == SGLIR_OP_INPUT || node->op == SGLIR_OP_CONSTANT) {
        first = 0;
        last = s->moments - 1;
        space = node->op == SGLIR_OP_CONSTANT                    ? SGLIR_SPACE_CONST
                : sglir_attr_int(s->g, node, "role") == SGL_FEED ? SGLIR_SPACE_IO
                                                                 : SGLIR_SPACE_STATE;
    }
    if (node->op == SGLIR_OP_OFFLOAD) space = SGLIR_SPACE_HOST;
    if (sglir_is_view(node)) return;
    for (uint32_t i = 0; i < node->out_count; i++) begin(s, node->out_first + i, first, last, space);
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++) {
        const sglir_region *region = &s->g->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->parameters.count; i++)
            begin(s, region->parameters.data[i], first, last, SGLIR_SPACE_ARENA);
    }
}

/* What the region yields is handed on after its last node. */
static void use_yields(sglpass_sharing *s, sglir_id id, sglir_id region)
{
    const sglir_region *at = &s->g->regions.data[region];
    for (int64_t i = 0; i < at->results.count; i++) {
        sglir_id root = s->views[at->results.data[i]].root;
        if (sglir_value_at(s->g, root)->region != region) {
            use(s, root, id, true);
        } else if (s->groups[root].last < s->region_ends[region]) {
            s->groups[root].last = s->groups[root].last_work = s->region_ends[region];
        }
    }
}

static void use_args(sglpass_sharing *s, sglir_id id)
{
    const sglir_node *node = node_at(s, id);
    for (uint32_t i = 0; i < node->arg_count; i++)
        use(s, sglir_arg(s->g, node, i), id, !sglir_is_wait(node->op) || i == 0);
    for (uint32_t r = 0; sglir_is_control(node) && r < node->region_count; r++)
        use_yields(s, id, node->region_first + r);
}

/* A state that is fetched from memory of the host lies there. */
static void send_away(sglpass_sharing *s, const sglir_node *prefetch)
{
    const sglir_id root = s->views[sglir_arg(s->g, prefetch, 0)].root;
    if (s->groups[root].space == SGLIR_SPACE_STATE) s->groups[root].space = SGLIR_SPACE_AWAY;
}

static void find_lives(sglpass_sharing *s)
{
    const sglir_graph *g = s->g;
    for (int64_t n = 0; n < g->nodes.count; n++) s->begins[n] = s->ends[n] = -1;
    number_region(s, 0);
    s->moments++;
    for (int64_t v = 0; v < g->values.count; v++) begin(s, (sglir_id)v, 0, 0, SGLIR_SPACE_NONE);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (s->begins[n] >= 0) begin_node(s, (sglir_id)n);
    }
    for (int64_t n = 0; n < g->nodes.count; n++) {
        s->waits[n] = SGLIR_NONE;
        if (s->begins[n] >= 0) use_args(s, (sglir_id)n);
        if (node_at(s, (sglir_id)n)->op == SGLIR_OP_PREFETCH) send_away(s, node_at(s, (sglir_id)n));
        if (sglir_is_wait(node_at(s, (sglir_id)n)->op))
            s->waits[sglir_value_at(g, sglir_arg(g, node_at(s, (sglir_id)n), 0))->node] = (sglir_id)n;
    }
    for (int64_t i = 0; i < g->outputs.count; i++) {
        sglpass_group *group = &s->groups[s->views[g->outputs.data[i].value].root];
        group->last = group->last_work = s->moments - 1;
        if (g->outputs.data[i].role == SGLIR_FETCH && group->space == SGLIR_SPACE_ARENA) group->space = SGLIR_SPACE_IO;
    }
}

/* ---- carries ------------------------------------------------------------------------------------------------ */

/* Whether the node's reads of `old` bear that result `result` of it is written there. */
static bool writes_over(sglpass_sharing *s, sglir_id id, sglir_id old, uint32_t result)
{
    const sglir_node *node = node_at(s, id);
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (s->views[sglir_arg(s->g, node, i)].root == old)
            return sglpass_takes_place(s->g, s->views, id, i, result, s->scratch);
    }
    return true; /* it does not read it at all */
}

/* Whether the loop takes the value as its carry i and has no other use for it. */
static bool hands_over(const sglpass_sharing *s, sglir_id loop, uint32_t i, sglir_id root)
{
    const sglir_node *node = node_at(s, loop);
    for (uint32_t k = 0; k < node->arg_count; k++) {
        if ((s->views[sglir_arg(s->g, node, k)].root == root) != (k == i)) return false;
    }
    return is_whole(s, sglir_arg(s->g, node, i)) && !sglpass_regions_read(s->g, s->views, node, root);
}

/* The first carry, made at once in the loop's place. Where the loop's place is that of a state or of a loop around, the
 * chain to that has decided. */
static void join_first(sglpass_sharing *s, sglir_id loop, uint32_t i)
{
    const sglir_node *node = node_at(s, loop);
    sglir_id root = s->views[sglir_arg(s->g, node, i)].root,
             parameter = s->g->regions.data[sglir_body(node)].parameters.data[i + 1];
    const sglpass_group *group = group_of(s, root);
    if (group->space != SGLIR_SPACE_ARENA || group->last != s->ends[loop]) return;
    if (sglpass_head(s, parameter) != parameter || sglir_value_at(s->g, root)->region != node->region) return;
    if (sglpass_head(s, root) != sglpass_head(s, parameter) && hands_over(s, loop, i, root)) join(s, parameter, root);
}

/* ---- new values over old ones -------------------------------------------------------------------------------- */

enum { DEEPEST_CHAIN = 16, MOST_LOOKED_AT = 256 };

/* A way from a new value (of a state, of a carry) back to the node that reads the old one last: each value of it is
 * written over the next. */
typedef struct chain {
    sglpass_sharing *s;
    sglir_id old;     /* the input, or the loop's parameter */
    sglir_id region;  /* in which both stand */
    sglir_id *values; /* room for one per node */
    int64_t count;
    int budget; /* of steps through kernels, which have many arguments */
} chain;

/* What a part of is written, or a loop goes on with: to lie elsewhere costs these a copy of all of it. */
static bool hands_on(const sglir_node *node) { return node->op == SGLIR_OP_DYNAMIC_UPDATE || sglir_is_loop(node); }

/* One step from result `index` of the node. True: the node reads the old value last and may write over it. Else *next is
 * the value that a node which hands on writes over, or SGLIR_NONE. */
static bool step_back(chain *c, sglir_id id, uint32_t index, sglir_id *next)
{
    sglpass_sharing *s = c->s;
    const sglir_node *node = node_at(s, id);
    int64_t last_read = s->groups[c->old].last_read;
    *next = SGLIR_NONE;
    if (!hands_on(node)) return last_read == s->begins[id] && writes_over(s, id, c->old, index);
    bool loop = sglir_is_loop(node);
    uint32_t arg = loop ? index : 0;
    sglir_id root = s->views[sglir_arg(s->g, node, arg)].root;
    bool bears = loop ? hands_over(s, id, arg, root) : sglpass_takes_place(s->g, s->views, id, arg, index, s->scratch);
    if (!bears || !is_whole(s, sglir_arg(s->g, node, arg))) return false;
    if (root == c->old) return last_read == s->ends[id];
    if (group_of(s, root)->last == s->ends[id]) *next = root;
    return false;
}

/* The state lies in memory of the host: what moves it there is written in its place. */
static bool is_away(const sglpass_sharing *s, sglir_id old)
{
    return s->groups[sglpass_head(s, old)].space == SGLIR_SPACE_AWAY;
}

/* Values of the region that nothing holds: no state, fetch or constant, and no carry of the loop around them. A loop in a
 * loop has its carries apart from those around it. */
static bool may_join(const chain *c, sglir_id value)
{
    const sglpass_sharing *s = c->s;
    const sglir_value *made = sglir_value_at(s->g, value), *head = sglir_value_at(s->g, sglpass_head(s, value));
    if (made->node == SGLIR_NONE || made->region != c->region) return false;
    if (c->region != 0 && (sglir_is_control(node_at(s, made->node)) || head->node == SGLIR_NONE)) return false;
    const uint8_t space = s->groups[sglpass_head(s, value)].space;
    return space == SGLIR_SPACE_ARENA || (space == SGLIR_SPACE_HOST && is_away(s, c->old));
}

static bool made_after_reads(const chain *c, sglir_id value)
{
    return c->s->groups[c->old].last_read < c->s->begins[sglir_value_at(c->s->g, value)->node];
}

/* Whether the old value is reached, along what is handed on and through the arguments of kernels. */
static bool reaches(chain *c, sglir_id value, int depth)
{
    sglpass_sharing *s = c->s;
    int64_t before = c->count;
    for (sglir_id at = value, next; at != SGLIR_NONE && may_join(c, at); at = next) {
        const sglir_value *made = sglir_value_at(s->g, at);
        const sglir_node *node = node_at(s, made->node);
        c->values[c->count++] = at;
        if (step_back(c, made->node, made->index, &next)) return true;
        bool kernel = !hands_on(node) && made_after_reads(c, at) && depth < DEEPEST_CHAIN;
        for (uint32_t i = 0; kernel && i < node->arg_count && c->budget > 0; i++) {
            sglir_id arg = sglir_arg(s->g, node, i), root = s->views[arg].root;
            if (!is_whole(s, arg) || group_of(s, root)->last != s->begins[made->node]) continue;
            c->budget--;
            if (sglpass_takes_place(s->g, s->views, made->node, i, made->index, s->scratch) &&
                reaches(c, root, depth + 1))
                return true;
        }
    }
    c->count = before;
    return false;
}

/* Whether the new value is made after the reads of the old one; then with all that it is handed on from since. */
static bool follows(chain *c, sglir_id value)
{
    for (sglir_id at = value, next; at != SGLIR_NONE && may_join(c, at) && made_after_reads(c, at); at = next) {
        const sglir_value *made = sglir_value_at(c->s->g, at);
        c->values[c->count++] = at;
        step_back(c, made->node, made->index, &next);
    }
    return c->count > 0;
}

/* The new value, made in the old one's place; where that is not possible freeze copies it there at the end. */
static void join_new(sglpass_sharing *s, sglir_id region, sglir_id old, sglir_id value)
{
    chain c = { .s = s, .old = old, .region = region, .values = s->chain, .budget = MOST_LOOKED_AT };
    sglir_id root = s->views[value].root;
    if (root == old || !is_whole(s, value) || (!reaches(&c, root, 0) && !follows(&c, root))) return;
    for (int64_t i = 0; i < c.count; i++) join(s, old, c.values[i]);
}

/* What decides about a turn sees the carries where the body has them. */
static void join_carries(sglpass_sharing *s, const sglir_node *loop)
{
    const sglir_region *body = &s->g->regions.data[sglir_body(loop)];
    for (uint32_t i = 0; i < loop->arg_count; i++) join(s, body->parameters.data[i + 1], loop->out_first + i);
    for (sglir_id region = loop->region_first; region < sglir_body(loop); region++) {
        for (uint32_t i = 0; i <= loop->arg_count; i++)
            join(s, body->parameters.data[i], s->g->regions.data[region].parameters.data[i]);
    }
}

static void join_turns(sglpass_sharing *s, const sglir_node *loop)
{
    const sglir_region *body = &s->g->regions.data[sglir_body(loop)];
    for (uint32_t i = 0; i < loop->arg_count; i++)
        join_new(s, sglir_body(loop), body->parameters.data[i + 1], body->results.data[i]);
}

/* What a branch makes for a result, made in the result's place, which is there from the beginning. */
static void join_yields(sglpass_sharing *s, const sglir_node *branch)
{
    for (uint32_t r = 0; r < branch->region_count; r++) {
        sglir_id region = branch->region_first + r;
        for (uint32_t i = 0; i < branch->out_count; i++) {
            sglir_id yielded = s->g->regions.data[region].results.data[i], root = s->views[yielded].root;
            const sglir_value *made = sglir_value_at(s->g, root);
            if (made->node == SGLIR_NONE || made->region != region || sglir_is_control(node_at(s, made->node)))
                continue;
            if (sglpass_head(s, root) != root || s->groups[root].space != SGLIR_SPACE_ARENA) continue;
            if (is_whole(s, yielded)) join(s, branch->out_first + i, root);
        }
    }
}

static void join_states(sglpass_sharing *s)
{
    const sglir_graph *g = s->g;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        if (output->role != SGLIR_UPDATE) continue;
        sglir_id state = sglir_input_find(g, sglcore_string(g->strings, output->name));
        if (state != SGLIR_NONE) join_new(s, 0, state, output->value);
    }
}

/* ---- kernels ------------------------------------------------------------------------------------------------ */

/* Whether the node is the last that needs what lies there; an exchange's wait only holds it. */
static bool ends_with(const sglpass_sharing *s, const sglpass_group *group, sglir_id id)
{
    const sglir_id wait = s->waits[id];
    if (wait == SGLIR_NONE) return group->last == s->begins[id];
    return group->last == s->begins[wait] && group->last_work == s->begins[id];
}

static void join_results(sglpass_sharing *s, sglir_id id)
{
    const sglir_node *node = node_at(s, id);
    if (sglir_is_control(node) || sglir_is_view(node)) return;
    for (uint32_t r = 0; r < node->out_count; r++) {
        sglir_id result = node->out_first + r;
        if (sglpass_head(s, result) != result || s->groups[result].space != SGLIR_SPACE_ARENA) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id arg = sglir_arg(s->g, node, i);
            sglpass_group *group = group_of(s, arg);
            if (group->space != SGLIR_SPACE_ARENA || !ends_with(s, group, id) || group->taken_by == id) continue;
            if (!is_whole(s, arg) || !sglpass_takes_place(s->g, s->views, id, i, r, s->scratch)) continue;
            group->taken_by = id;
            join(s, arg, result);
            break;
        }
    }
}

/* ---- fetches ------------------------------------------------------------------------------------------------ */

static bool is_update(const sglir_graph *g, const sglpass_view *views, sglir_id root)
{
    for (int64_t i = 0; i < g->outputs.count; i++) {
        if (g->outputs.data[i].role == SGLIR_UPDATE && views[g->outputs.data[i].value].root == root) return true;
    }
    return false;
}

bool sglpass_fetch_needs_copy(const sglir_graph *g, const sglpass_view *views, sglir_id value)
{
    sglir_id root = views[value].root;
    const sglir_node *maker = sglir_maker(g, root);
    if (maker->op == SGLIR_OP_CONSTANT) return false;
    if (maker->op == SGLIR_OP_INPUT) return sglir_attr_int(g, maker, "role") != SGL_FEED;
    return sglir_bytes(sglir_type_of(g, root)) != sglir_bytes(sglir_type_of(g, value)) || is_update(g, views, root);
}

/* ---- the call ----------------------------------------------------------------------------------------------- */

static void share(sglpass_sharing *s)
{
    const sglir_graph *g = s->g;
    find_lives(s);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (s->begins[n] < 0) continue;
        if (node->op == SGLIR_OP_COND) join_yields(s, node);
        if (!sglir_is_loop(node)) continue;
        join_carries(s, node);
        join_turns(s, node);
    }
    join_states(s);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        for (uint32_t i = 0; sglir_is_loop(&g->nodes.data[n]) && i < g->nodes.data[n].arg_count; i++)
            join_first(s, (sglir_id)n, i);
    }
    for (int64_t m = 0; m < g->regions.count; m++) {
        const sglir_region *region = &g->regions.data[m];
        if (region->node != SGLIR_NONE && !sglir_is_control(&g->nodes.data[region->node])) continue;
        for (int64_t n = 0; n < region->nodes.count; n++) join_results(s, region->nodes.data[n]);
    }
}

sgl_status sglpass_share(sglcore_env *env, const sglir_graph *g, sglpass_sharing *s)
{
    size_t values = (size_t)g->values.count, nodes = (size_t)g->nodes.count, regions = (size_t)g->regions.count;
    *s = (sglpass_sharing){ .env = env, .g = g, .arena = { .env = env } };
    s->views = sglcore_arena_alloc(&s->arena, values * sizeof *s->views);
    s->groups = sglcore_arena_alloc(&s->arena, values * sizeof *s->groups);
    s->scratch = sglcore_arena_alloc(&s->arena, values);
    s->begins = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->begins);
    s->ends = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->ends);
    s->chain = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->chain);
    s->waits = sglcore_arena_alloc(&s->arena, nodes * sizeof *s->waits);
    s->region_ends = sglcore_arena_alloc(&s->arena, regions * sizeof *s->region_ends);
    if (!s->views || !s->groups || !s->scratch || !s->begins || !s->ends || !s->chain || !s->waits || !s->region_ends) {
        sglpass_share_free(s);
        return SGL_OUT_OF_MEMORY;
    }
    sglpass_find_views(g, s->views);
    share(s);
    return SGL_OK;
}

void sglpass_share_free(sglpass_sharing *s) { sglcore_arena_free(&s->arena); }
