/* print.c -- `sgl graph`: a job's graph as text, as traced or after a pass, with what only the plan knows.
 *
 * Comes in: a graph, a plan, the rank whose graph it becomes, the name of a pass. Goes out: text that parses back, or dot.
 * Where ranks are many, remarks say which rank of the mesh it is, its stage and replica, and of each exchange the group: its
 * axes, its ranks, this one's place in it. Odd invariant: what ranks do differently is read in the graph from `coordinate`, so
 * the graphs of two ranks may differ in their remarks and in where parts begin alone. */
#include <string.h>

#include "plan/mesh.h"
#include "session/report.h"

static sgl_status check_pass(sglcore_env *env, const char *pass)
{
    const char *names[32];
    int count = 0;
    for (const char *name; count < 32 && (name = sgl_pass_name(count)) != NULL; count++) {
        if (strcmp(name, pass) == 0) return SGL_OK;
        names[count] = name;
    }
    char hint[SGLCORE_HINT_ROOM];
    return sglcore_fail(env, SGL_NOT_FOUND, "there is no pass '%s'%s", pass, sglcore_hint(pass, names, count, hint));
}

/* ---- remarks ---------------------------------------------------------------------------------------------------------- */

typedef struct place {
    const sglplan *plan;
    int64_t rank, ranks;
} place;

/* "rank 3 of 4: dp 1 of 2, tp 1 of 2; stage 0 of 1; replica 1 of 2" */
static sgl_status remark_rank(const place *p, sglcore_env *env, sglcore_text *text)
{
    const sglplan_coordinate here = sglplan_mesh_coordinate(p->plan, p->rank);
    const char *before = ":";
    SGLCORE_TRY(sglcore_text_add(env, text, "rank %lld of %lld", (long long)p->rank, (long long)p->ranks));
    for (int i = 0; i < SGLPLAN_MESH_AXES; i++) {
        int axis = sglplan_mesh_order[i];
        if (p->plan->mesh[axis] == 1) continue;
        SGLCORE_TRY(sglcore_text_add(env, text, "%s %s %lld of %lld", before, sglir_axis_name(axis),
                                     (long long)here.at[axis], (long long)p->plan->mesh[axis]));
        before = ",";
    }
    return sglcore_text_add(env, text, "; stage %lld of %lld; replica %lld of %lld", (long long)here.at[SGLIR_AXIS_PP],
                            (long long)p->plan->mesh[SGLIR_AXIS_PP],
                            (long long)sglplan_group_place(p->plan, SGLPLAN_DATA_AXES, p->rank),
                            (long long)sglplan_group_size(p->plan, SGLPLAN_DATA_AXES));
}

enum { MOST_LISTED = 8 };

/* "group tp: ranks 2,3; place 1" */
static sgl_status remark_group(const place *p, sglcore_env *env, sglplan_axes axes, sglcore_text *text)
{
    char names[SGLPLAN_AXES_ROOM];
    const int64_t size = sglplan_group_size(p->plan, axes);
    SGLCORE_TRY(sglcore_text_add(env, text, "group %s: ranks", sglplan_axes_text(axes, names, sizeof names)));
    for (int64_t i = 0; i < size; i++) {
        if (i == MOST_LISTED - 1 && size > MOST_LISTED) {
            SGLCORE_TRY(sglcore_text_add(env, text, ",..."));
            i = size - 1;
        }
        SGLCORE_TRY(sglcore_text_add(env, text, "%s%lld", i > 0 ? "," : " ",
                                     (long long)sglplan_group_member(p->plan, axes, p->rank, i)));
    }
    return sglcore_text_add(env, text, "; place %lld of %lld", (long long)sglplan_group_place(p->plan, axes, p->rank),
                            (long long)size);
}

static sgl_status remark(void *of, const sglir_graph *g, sglir_id id, sglcore_text *text)
{
    const place *p = of;
    sglir_named named[SGLIR_MOST_ATTRS];
    if (id == SGLIR_NONE) return remark_rank(p, g->env, text);
    const sglir_node *node = sglir_node_at(g, id);
    if (!sglir_is_exchange(node->op)) return SGL_OK;
    for (int i = 0, count = sglir_attrs_named(g, node, named); i < count; i++) {
        if (strcmp(named[i].name, "axes") == 0) return remark_group(p, g->env, (sglplan_axes)named[i].i, text);
    }
    return SGL_OK;
}

/* ---- the graph ------------------------------------------------------------------------------------------------------------ */

static sgl_status print_as(const sglir_graph *g, const char *format, place *p, sgl_write_fn write, void *user)
{
    if (strcmp(format, "dot") == 0) return sglir_print_dot(g, write, user);
    return p->ranks > 1 ? sglir_print_remarked(g, remark, p, write, user) : sglir_print(g, write, user);
}

sgl_status sgl_graph_print(sgl_session *session, const sgl_graph *graph, const sgl_plan *plan, const char *pass,
                           const char *format, sgl_write_fn write, void *user)
{
    SGLSESSION_NEEDS(session && graph && write,
                     session ? session->vm
                     : graph ? graph->vm
                             : NULL,
                     "session, graph or write is NULL");
    sglcore_env *env = &session->vm->env;
    SGLCORE_TRY(sglsession_check(session, graph, plan, "sgl_graph_print"));
    if (!format) format = "text";
    if (strcmp(format, "text") != 0 && strcmp(format, "dot") != 0)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "graph: the formats are text and dot, not '%s'", format);
    place at = { .ranks = 1 };
    if (!pass || !*pass) return print_as(graph->ir, format, &at, write, user);
    bool all = strcmp(pass, "all") == 0;
    if (!all) SGLCORE_TRY(check_pass(env, pass));
    sglplan own = sglsession_plan(session, plan);
    at.plan = &own;
    SGLCORE_TRY(sglsession_place(session, &own, &at.rank, &at.ranks));
    const sglpass_context context = { .env = env,
                                      .plan = &own,
                                      .rank = at.rank,
                                      .layout = session->layout,
                                      .workspace = session->ops->workspace,
                                      .computing = session->ops->computing,
                                      .warned = &session->warned };
    sglir_graph *after = NULL;
    SGLCORE_TRY(sglpass_run(&context, graph->ir, all ? NULL : pass, &after));
    sgl_status status = print_as(after, format, &at, write, user);
    sglir_graph_free(after);
    return status;
}
