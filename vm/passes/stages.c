/* stages.c -- the pass `stages`: what each rank along pp does of a step, and when.
 *
 * In: a graph after `micro`, plan->mesh[PP] stages, plan->schedule, the rank. Out: that rank's part: the nodes of its
 * stage, the loop over micro-batches unrolled in the order of the schedule, and sends and receives for what crosses
 * stages. Without a schedule, of one stage, or of a graph with nothing to cut between, the graph as it came: along pp
 * every rank computes the same. Odd invariant: nothing is special to parameters that two stages use, to norms over all
 * of them, or to losses: each is a value that crosses. */
#include "passes/stages.h"
#include "plan/mesh.h"

static sgl_status prepare(sglpass_stages *s)
{
    const sglir_graph *g = s->from;
    s->module = sglcore_arena_alloc(&s->arena, (size_t)g->nodes.count * sizeof *s->module);
    s->chain = sglcore_arena_alloc(&s->arena, (size_t)g->nodes.count * sizeof *s->chain);
    s->meeting = sglcore_arena_alloc(&s->arena, (size_t)g->nodes.count * sizeof *s->meeting);
    s->place = sglcore_arena_alloc(&s->arena, (size_t)g->values.count * sizeof *s->place);
    s->loop_of = sglcore_arena_alloc(&s->arena, (size_t)g->regions.count * sizeof *s->loop_of);
    return s->module && s->chain && s->meeting && s->place && s->loop_of ? SGL_OK : SGL_OUT_OF_MEMORY;
}

/* Whether the session has states on some of the stages: then what comes after must leave them there. */
static bool has_homes(const sglir_graph *layout)
{
    for (int64_t n = 0; layout && n < layout->nodes.count; n++)
        if (sglir_home_of(layout, (sglir_id)n) != SGLIR_HOME_UNSAID) return true;
    return false;
}

/* *out NULL: there is nothing to cut. */
static sgl_status stage_graph(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    const sglplan *plan = context->plan;
    sglpass_stages s = { .context = context,
                         .env = context->env,
                         .from = in,
                         .stages = (int)plan->mesh[SGLIR_AXIS_PP],
                         .chunks = (int)(plan->mesh[SGLIR_AXIS_PP] * sglplan_chunks(plan)),
                         .schedule = (sglplan_schedule)plan->schedule,
                         .micro = plan->mesh[SGLIR_AXIS_MICRO],
                         .arena = { .env = context->env } };
    int here = (int)sglplan_mesh_coordinate(plan, context->rank).at[SGLIR_AXIS_PP];
    bool any = false;
    sgl_status status = prepare(&s);
    if (status == SGL_OK) status = sglpass_find_turns(context, in, &s.stretches);
    if (status == SGL_OK) status = sglpass_stages_cut(&s, &any);
    any = any || has_homes(context->layout);
    if (status == SGL_OK && any) status = sglpass_stages_assign(&s);
    if (status == SGL_OK && any) status = sglpass_stages_emit(&s, here, out);
    sglcore_vec_free(s.env, &s.loops);
    sglcore_vec_free(s.env, &s.carries);
    sglcore_vec_free(s.env, &s.meetings);
    sglcore_vec_free(s.env, &s.terms);
    sglcore_arena_free(&s.arena);
    return status;
}

static sgl_status check_plan(const sglpass_context *context)
{
    const sglplan *plan = context->plan;
    if (plan->mesh[SGLIR_AXIS_PP] > SGLPLAN_MOST_STAGES)
        return sglcore_fail(context->env, SGL_LIMIT, "plan: pp = %lld stages, and %d are the most there may be",
                            (long long)plan->mesh[SGLIR_AXIS_PP], SGLPLAN_MOST_STAGES);
    if (sglplan_chunks(plan) > 1 && plan->schedule != SGLPLAN_INTERLEAVED)
        return sglcore_fail(
            context->env, SGL_INVALID_ARGUMENT,
            "plan: chunks = %lld, and under the schedule %s a stage has 1; take the schedule interleaved",
            (long long)plan->chunks, sglplan_schedule_name(plan));
    return SGL_OK;
}

/* Without what is dead, that of rank 0 as well: what is dead wants nothing, and weighs nothing. */
static sgl_status stage_clean(const sglpass_context *given, const sglir_graph *clean, sglir_graph **out)
{
    sglpass_context context = *given;
    sglir_graph *first = NULL;
    SGLCORE_TRY(check_plan(given));
    if (given->first) SGLCORE_TRY(sglir_rewrite_graph(given->env, given->first, "stages", NULL, NULL, &first));
    context.first = first;
    sgl_status status = stage_graph(&context, clean, out);
    sglir_graph_free(first);
    return status;
}

sgl_status sglpass_stages_split(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    *out = NULL;
    sglir_graph *clean;
    SGLCORE_TRY(sglir_rewrite_graph(context->env, in, "stages", NULL, NULL, &clean));
    if (!sglplan_is_staged(context->plan)) {
        *out = clean;
        sglpass_say(context, in, clean, false);
        return SGL_OK;
    }
    sgl_status status = stage_clean(context, clean, out);
    const bool cut = *out != NULL;
    if (status == SGL_OK && !cut) {
        *out = clean;
        clean = NULL;
    }
    if (status == SGL_OK) sglpass_say(context, in, *out, cut);
    sglir_graph_free(clean);
    return status;
}
