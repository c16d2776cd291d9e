/* schedule_waits.c -- the graph once more, with a wait for every exchange, each begun early and waited for late.
 *
 * In: a graph in its order, and where the exchanges of a region begin and end (schedule_timeline.c). Out: the same
 * nodes, of which exchanges go before the nodes of other positions, waits behind them, and views of what they make
 * behind the waits. Odd invariant: the given graph may hold waits (of the pass `stages`), which are made anew with all
 * the others. */
#include <stdlib.h>

#include "passes/schedule_timeline.h"
#include "passes/schedule_waits.h"

/* A node that goes before another position than its own. */
typedef struct moved {
    int64_t before;
    sglir_id node;
} moved;

enum { STEP_BEGIN, STEP_WAIT, STEP_VIEW };
typedef struct step {
    int64_t before; /* the node of which position it goes */
    int what;
    int64_t index; /* of the exchange, or the view */
} step;

/* Of one region. */
typedef struct emitter {
    sglpass_placer *p;
    sglpass_timeline line;
    SGLCORE_VEC(moved) views;
    SGLCORE_VEC(step) steps; /* in their order */
    int64_t next_step;
    SGLCORE_VEC(sglir_id) waits; /* that stand in the graph already */
    SGLCORE_VEC(sglir_id) args;  /* for one node */
} emitter;

static const sglir_graph *from(const sglpass_placer *p) { return p->rewrite.from; }
static const sglir_node *node_at(const sglpass_placer *p, sglir_id node) { return sglir_node_at(from(p), node); }

/* A view of what the exchange `made` makes, which is there with it: no order stands between them. */
static bool shows(const sglpass_placer *p, const sglir_node *node, sglir_id *made)
{
    while (sglpass_goes_along(node)) {
        const sglir_node *maker = sglir_maker(from(p), sglir_arg(from(p), node, 0));
        if (maker == NULL) return false;
        node = maker;
        *made = (sglir_id)(maker - from(p)->nodes.data);
        if (sglir_is_begun(maker->op)) return true;
    }
    return false;
}

/* Views of what exchanges make go behind the wait; waits that stood there are made anew. */
static sgl_status move_views(emitter *e, const sglir_region *region)
{
    sglpass_placer *p = e->p;
    for (int64_t n = 0; n < e->line.count; n++) {
        const sglir_id id = region->nodes.data[n];
        const sglir_node *node = node_at(p, id);
        sglir_id made = SGLIR_NONE;
        if (!p->live[id] || !shows(p, node, &made) || node_at(p, made)->region != e->line.region) continue;
        for (int64_t i = 0; i < e->line.exchanges.count; i++) {
            const sglpass_exchange *x = &e->line.exchanges.data[i];
            if (x->node != made) continue;
            if (sglir_is_wait(node->op))
                SGLCORE_TRY(sglcore_vec_push(from(p)->env, &e->waits, id));
            else
                SGLCORE_TRY(sglcore_vec_push(from(p)->env, &e->views, (moved){ x->end, id }));
        }
    }
    return SGL_OK;
}

/* ---- the new list ------------------------------------------------------------------------------------------------ */

static void emit_region(sglpass_placer *p, sglir_id id);

static void fill_body(void *user, sglir_id id, sglir_id *results)
{
    (void)results;
    emit_region(user, id);
}

static void emit_node(sglpass_placer *p, sglir_id node)
{
    if (sglir_status(p->rewrite.to) != SGL_OK) return;
    if (sglir_is_control(node_at(p, node)))
        sglir_copy_around(&p->rewrite, node, fill_body, p);
    else
        sglir_copy_node(&p->rewrite, node);
}

/* From here on who reads what the exchange makes reads what the waits hand on, one for each result. */
static sgl_status emit_waits(emitter *e, const sglpass_exchange *x)
{
    sglir_rewrite *rewrite = &e->p->rewrite;
    const sglir_node *node = node_at(e->p, x->node);
    const sglir_op op = sglir_is_move(node->op) ? SGLIR_OP_ARRIVED : SGLIR_OP_WAIT;
    for (uint32_t r = 0; r < node->out_count && sglir_status(rewrite->to) == SGL_OK; r++) {
        sglir_id *result = &rewrite->map[node->out_first + r];
        e->args.count = 0;
        SGLCORE_TRY(sglcore_vec_push(from(e->p)->env, &e->args, *result));
        for (uint32_t i = 0; i < node->arg_count; i++)
            SGLCORE_TRY(sglcore_vec_push(from(e->p)->env, &e->args, rewrite->map[sglir_arg(from(e->p), node, i)]));
        sglir_set_origin_made(rewrite->to, rewrite->from, x->node, rewrite->pass);
        sglir_emit(rewrite->to, op, e->args.data, (int)e->args.count, NULL, 0, result);
    }
    for (int64_t i = 0; i < e->waits.count; i++) {
        const sglir_node *wait = node_at(e->p, e->waits.data[i]);
        const sglir_id waited = sglir_arg(from(e->p), wait, 0);
        if (sglir_value_at(from(e->p), waited)->node == x->node) rewrite->map[wait->out_first] = rewrite->map[waited];
    }
    return sglir_status(rewrite->to);
}

static int compare_steps(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    if (x->what != y->what) return x->what < y->what ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static sgl_status add_step(emitter *e, int64_t before, int what, int64_t index)
{
    return sglcore_vec_push(e->p->context->env, &e->steps, (step){ before, what, index });
}

/* What goes before the nodes of positions: exchanges that begin there, waits, views of what these hand on. */
static sgl_status list_steps(emitter *e)
{
    for (int64_t i = 0; i < e->line.exchanges.count; i++) {
        const sglpass_exchange *x = &e->line.exchanges.data[i];
        if (x->begin != x->at) SGLCORE_TRY(add_step(e, x->begin, STEP_BEGIN, i));
        SGLCORE_TRY(add_step(e, x->end, STEP_WAIT, i));
    }
    for (int64_t i = 0; i < e->views.count; i++) SGLCORE_TRY(add_step(e, e->views.data[i].before, STEP_VIEW, i));
    if (e->steps.count > 0) qsort(e->steps.data, (size_t)e->steps.count, sizeof *e->steps.data, compare_steps);
    return SGL_OK;
}

static sgl_status emit_before(emitter *e, int64_t position)
{
    for (; e->next_step < e->steps.count && e->steps.data[e->next_step].before <= position; e->next_step++) {
        const step at = e->steps.data[e->next_step];
        if (at.what == STEP_BEGIN) emit_node(e->p, e->line.exchanges.data[at.index].node);
        if (at.what == STEP_WAIT) SGLCORE_TRY(emit_waits(e, &e->line.exchanges.data[at.index]));
        if (at.what == STEP_VIEW) emit_node(e->p, e->views.data[at.index].node);
    }
    return sglir_status(e->p->rewrite.to);
}

static bool stays(const emitter *e, sglir_id id, int64_t position)
{
    const sglir_node *node = node_at(e->p, id);
    if (sglir_is_begun(node->op)) {
        for (int64_t i = 0; i < e->line.exchanges.count; i++)
            if (e->line.exchanges.data[i].node == id) return e->line.exchanges.data[i].begin == position;
    }
    sglir_id made = SGLIR_NONE;
    return !shows(e->p, node, &made) || node_at(e->p, made)->region != e->line.region;
}

static sgl_status emit_nodes(emitter *e, const sglir_region *region)
{
    SGLCORE_TRY(sglpass_timeline_fill(&e->line));
    SGLCORE_TRY(move_views(e, region));
    SGLCORE_TRY(list_steps(e));
    for (int64_t n = 0; n < e->line.count; n++) {
        const sglir_id id = region->nodes.data[n];
        SGLCORE_TRY(emit_before(e, n));
        if (e->p->live[id] && stays(e, id, n)) emit_node(e->p, id);
    }
    return emit_before(e, e->line.count);
}

static void emit_region(sglpass_placer *p, sglir_id id)
{
    emitter e = { .p = p, .line = { .p = p, .region = id } };
    const sgl_status status = emit_nodes(&e, &from(p)->regions.data[id]);
    if (status != SGL_OK) p->rewrite.to->status = status;
    sglpass_timeline_free(&e.line);
    sglcore_vec_free(from(p)->env, &e.views);
    sglcore_vec_free(from(p)->env, &e.steps);
    sglcore_vec_free(from(p)->env, &e.waits);
    sglcore_vec_free(from(p)->env, &e.args);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

bool sglpass_has_begun(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++)
        if (sglir_is_begun(g->nodes.data[n].op)) return true;
    return false;
}

static bool make_room(sglpass_placer *p)
{
    const size_t values = (size_t)from(p)->values.count, nodes = (size_t)from(p)->nodes.count;
    p->views = sglcore_arena_alloc(&p->arena, values * sizeof *p->views);
    p->live = sglcore_arena_alloc(&p->arena, nodes);
    p->position = sglcore_arena_alloc(&p->arena, nodes * sizeof *p->position);
    p->first_use = sglcore_arena_alloc(&p->arena, values * sizeof *p->first_use);
    p->last_use = sglcore_arena_alloc(&p->arena, values * sizeof *p->last_use);
    p->scratch = sglcore_arena_alloc(&p->arena, values);
    p->away = sglcore_arena_alloc(&p->arena, values);
    p->elsewhere = sglcore_arena_alloc(&p->arena, values);
    return p->views && p->live && p->position && p->first_use && p->last_use && p->scratch && p->away && p->elsewhere;
}

sgl_status sglpass_place_waits(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglpass_placer p = { .context = context, .arena = { .env = context->env } };
    SGLCORE_TRY(sglir_rewrite_begin(context->env, in, "schedule", NULL, &p.rewrite));
    sgl_status status = make_room(&p) ? sglir_mark_live(in, p.live) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        p.rewrite.live = p.live;
        sglpass_find_views(in, p.views);
        sglpass_mark_elsewhere(&p);
        emit_region(&p, 0);
        status = sglir_status(p.rewrite.to);
    }
    if (status != SGL_OK) p.rewrite.to->status = status;
    status = sglir_rewrite_end(&p.rewrite, true, out);
    sglcore_arena_free(&p.arena);
    return status;
}
