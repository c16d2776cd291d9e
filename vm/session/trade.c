/* trade.c -- what memory costs in time: the bytes of a program for several amounts of what its backward makes again.
 *
 * Comes in: a traced graph and a plan. Goes out: a table as text: a row for what the plan chose, and rows from keeping
 * everything to the least that can be reached, each with the bytes kept for the backward, the transient peak, and the
 * arithmetic and traffic beyond those of keeping everything; then what the plan's choice makes again. Odd invariant:
 * "kept" are bytes of the arena that the forward wrote and the backward reads, as many as are so at one time. */
#include <stdio.h>
#include <string.h>

#include "session/session.h"

enum { PARTS = 4, MOST_LISTED = 12 };

/* One way to run the program. */
typedef struct way {
    int64_t kept, peak, total;
    sglplan_cost cost;
} way;

/* ---- bytes that the forward keeps for the backward ---------------------------------------------------------------- */

typedef struct keeper {
    const sglir_graph *g;
    sglir_id *root;   /* per value: whose bytes it is */
    uint32_t *reader; /* per value: the last node of the backward that reads it, 0: none does */
    int64_t *change;  /* per node, and behind the last: by how much what is kept grows there */
} keeper;

static bool is_backward(const sglir_graph *g, const sglir_node *node)
{
    return sglir_is_made_by(g, node, "autodiff") || sglir_is_made_by(g, node, "recompute") ||
           sglir_is_made_by(g, node, "regather");
}

static void keep(keeper *k, sglir_id value, uint32_t reader)
{
    sglir_id root = k->root[value];
    const sglir_node *maker = sglir_maker(k->g, root);
    if (maker == NULL || sglir_value_at(k->g, root)->space != SGLIR_SPACE_ARENA) return;
    if (is_backward(k->g, maker)) return;
    const int64_t bytes = sglir_bytes(sglir_type_of(k->g, root));
    if (k->reader[root] > 0)
        k->change[k->reader[root] + 1] += bytes;
    else
        k->change[maker - k->g->nodes.data] += bytes;
    k->reader[root] = reader; /* nodes come in their order */
    k->change[reader + 1] -= bytes;
}

static int64_t most_kept(const keeper *k)
{
    int64_t now = 0, most = 0;
    for (int64_t n = 0; n < k->g->nodes.count; n++) {
        now += k->change[n];
        if (now > most) most = now;
    }
    return most;
}

static sgl_status kept_bytes(const sglir_graph *g, int64_t *bytes)
{
    sglcore_arena arena = { .env = g->env };
    size_t values = (size_t)g->values.count;
    keeper k = { .g = g };
    k.root = sglcore_arena_alloc(&arena, values * sizeof *k.root);
    k.reader = sglcore_arena_alloc(&arena, values * sizeof *k.reader);
    k.change = sglcore_arena_alloc(&arena, ((size_t)g->nodes.count + 1) * sizeof *k.change);
    bool good = k.root != NULL && k.reader != NULL && k.change != NULL;
    for (size_t v = 0; good && v < values; v++) k.root[v] = (sglir_id)v;
    for (int64_t n = 0; good && n < g->nodes.count; n++) { /* makers have smaller ids than users */
        const sglir_node *node = &g->nodes.data[n];
        for (uint32_t i = 0; sglir_is_view(node) && i < node->out_count; i++)
            k.root[node->out_first + i] = k.root[sglir_arg(g, node, 0)];
    }
    for (int64_t n = 0; good && n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!is_backward(g, node)) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) keep(&k, sglir_arg(g, node, i), (uint32_t)n);
    }
    *bytes = good ? most_kept(&k) : 0;
    sglcore_arena_free(&arena);
    return good ? SGL_OK : SGL_OUT_OF_MEMORY;
}

static sgl_status measure(const sglir_graph *placed, way *w)
{
    w->peak = placed->space_bytes[SGLIR_SPACE_ARENA];
    w->total = sglpass_bytes(placed);
    w->cost = sglplan_cost_graph(placed);
    return kept_bytes(placed, &w->kept);
}

/* ---- the table ------------------------------------------------------------------------------------------------------ */

static double more(double now, double before) { return before > 0 ? 100 * (now / before - 1) : 0; }

static sgl_status add_row(sglcore_env *env, sglcore_text *text, const char *name, const way *w, const way *all)
{
    return sglcore_text_add(env, text, "  %-22s %16lld %16lld %16lld %+9.1f%% %+9.1f%%\n", name, (long long)w->kept,
                            (long long)w->peak, (long long)w->total, more(w->cost.flops, all->cost.flops),
                            more(w->cost.bytes, all->cost.bytes));
}

/* Runs of clones of one line and op, the most frequent reading of a block that stands there often. */
static sgl_status list_again(sglcore_env *env, const sglir_graph *g, sglcore_text *text)
{
    char origin[512];
    int listed = 0;
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        const sglir_origin *from = &g->origins.data[node->origin];
        if (!sglir_is_made_by(g, node, "recompute") || sglir_is_view(node)) continue;
        int64_t bytes = 0, count = 0;
        bool first = true;
        for (int64_t m = 0; m < g->nodes.count; m++) {
            const sglir_node *other = &g->nodes.data[m];
            const sglir_origin *of = &g->origins.data[other->origin];
            if (other->op != node->op || of->line != from->line || of->file != from->file || sglir_is_view(other) ||
                other->region != node->region || !sglir_is_made_by(g, other, "recompute"))
                continue;
            first = first && m >= n;
            count++;
            for (uint32_t k = 0; k < other->out_count; k++)
                bytes += sglir_bytes(sglir_type_of(g, other->out_first + k));
        }
        if (!first || node->region != 0 || listed == MOST_LISTED) continue;
        if (listed++ == 0) SGLCORE_TRY(sglcore_text_add(env, text, "made again as planned\n"));
        SGLCORE_TRY(sglcore_text_add(env, text, "  %-14s %6lld times %16lld bytes  %s\n", sglir_ops[node->op].name,
                                     (long long)count, (long long)bytes,
                                     sglir_origin_text(g, node->origin, origin, sizeof origin)));
    }
    return SGL_OK;
}

/* ---- the ways ------------------------------------------------------------------------------------------------------- */

typedef struct trade {
    sglpass_context context;
    sglplan plan;
    const sglir_graph *traced;
    sglcore_text *text;
} trade;

/* The program with so many bytes spared beyond what is marked, and within the bound (0: none); that of the plan does not
 * count here. What recompute sees on paper is not what fuse makes of it, so that to spare bytes may take more of them: a
 * bound looks at what has come out, and keeps the best. */
static sgl_status take_way(const trade *t, int64_t give_back, int64_t bound, way *w)
{
    sglpass_context context = t->context;
    sglplan bounded = *context.plan;
    sglir_graph *placed = NULL;
    bounded.memory = bound;
    context.plan = &bounded;
    context.give_back = give_back;
    SGLCORE_TRY(sglpass_run(&context, t->traced, NULL, &placed));
    sgl_status status = measure(placed, w);
    sglir_graph_free(placed);
    return status;
}

static sgl_status write_table(trade *t, const sglplan *given)
{
    sglcore_env *env = t->context.env;
    way all, marked, least, part;
    char name[32];
    sglir_graph *planned = NULL;
    sglplan nothing = t->plan;
    const size_t used = strlen(nothing.disable);
    snprintf(nothing.disable + used, sizeof nothing.disable - used, "%srecompute", used > 0 ? "," : "");
    const sglplan *unbounded = t->context.plan;
    t->context.plan = &nothing;
    SGLCORE_TRY(take_way(t, 0, 0, &all));
    t->context.plan = unbounded;
    if (all.kept == 0) return SGL_OK;
    SGLCORE_TRY(take_way(t, 0, 0, &marked));
    SGLCORE_TRY(take_way(t, INT64_MAX, 0, &least));
    SGLCORE_TRY(sglcore_text_add(env, t->text,
                                 "what memory costs             kept for backward   transient peak            total"
                                 "      flops      moved\n"));
    SGLCORE_TRY(add_row(env, t->text, "all kept", &all, &all));
    for (int i = 1; i < PARTS && least.total < marked.total; i++) {
        int64_t spared = (marked.total - least.total) / PARTS * i;
        SGLCORE_TRY(take_way(t, 0, marked.total - spared, &part));
        snprintf(name, sizeof name, "%d%% of what can go", 100 * i / PARTS);
        SGLCORE_TRY(add_row(env, t->text, name, &part, &all));
    }
    if (least.total < marked.total) SGLCORE_TRY(add_row(env, t->text, "the least", &least, &all));
    t->context.plan = given;
    SGLCORE_TRY(sglpass_run(&t->context, t->traced, NULL, &planned));
    sgl_status status = measure(planned, &part);
    if (status == SGL_OK) status = add_row(env, t->text, "as planned", &part, &all);
    if (status == SGL_OK) status = list_again(env, planned, t->text);
    sglir_graph_free(planned);
    return status;
}

sgl_status sgl_memory_trade(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, sgl_write_fn write,
                            void *user)
{
    if (!session || !graph || !write) return SGL_INVALID_ARGUMENT;
    sglcore_env *env = &session->vm->env;
    SGLCORE_TRY(sglsession_check(session, graph, plan, __func__));
    sglplan given = sglsession_plan(session, plan);
    sglcore_text text = { 0 };
    int64_t rank, ranks;
    SGLCORE_TRY(sglsession_place(session, &given, &rank, &ranks));
    trade t = { .plan = given, .traced = graph->ir, .text = &text };
    t.plan.memory = 0;
    t.context = (sglpass_context){ .env = env,
                                   .plan = &t.plan,
                                   .rank = rank,
                                   .layout = session->layout,
                                   .workspace = session->ops->workspace,
                                   .computing = session->ops->computing,
                                   .warned = &session->warned };
    sgl_status status = write_table(&t, &given);
    if (status == SGL_OK && text.count > 0) status = write(user, text.data, (size_t)text.count);
    sglcore_text_free(env, &text);
    return status;
}
