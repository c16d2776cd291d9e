/* world_check.c -- all ranks under the plain interpreter, each in a thread. In and out: world_check.h. */
#include "tests/support/world_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/broken.h"

static bool say(ir_message *message, int64_t rank, const char *what)
{
    snprintf(message->text, sizeof message->text, "rank %d: %.4000s", (int)rank, what);
    return false;
}

/* What the environment asks to break; a name that there is not breaks nothing, and the test that should fail does not. */
static sglcore_break asked(void)
{
    static const char *const names[] = { "",
#define BREAK_NAME(name, text) text,
                                         SGLCORE_BREAKS(BREAK_NAME)
#undef BREAK_NAME
    };
    const char *name = getenv("SGL_TESTS_BREAK");
    for (int i = 1; name && i < SGLCORE_BREAK_COUNT; i++)
        if (strcmp(name, names[i]) == 0) return (sglcore_break)i;
    return SGLCORE_BREAK_NONE;
}

sglir_graph *world_check_rank(sglcore_env *env, const sglir_graph *g, const sglplan *plan, int64_t rank,
                              const char *until, ir_message *message)
{
    const sglpass_context context = { .env = env, .plan = plan, .rank = rank };
    const sglcore_break before = sglcore_broken;
    sglir_graph *made = NULL;
    if (asked() != SGLCORE_BREAK_NONE && sglplan_group_size(plan, ~(sglplan_axes)0) > 1) sglcore_broken = asked();
    sgl_status status = sglpass_run(&context, g, until, &made);
    if (status == SGL_OK) status = sglir_verify(made, SGLIR_PER_RANK);
    sglcore_broken = before;
    if (status == SGL_OK) return made;
    say(message, rank, env->message);
    sglir_graph_free(made);
    return NULL;
}

bool world_check_alone(sglcore_env *env, const sglir_graph *g, uint64_t seed, interp *whole, ir_message *message)
{
    sglplan alone;
    sglplan_init(&alone);
    sglir_graph *expanded = world_check_rank(env, g, &alone, 0, "autodiff", message);
    if (!expanded) return false;
    ir_case_fill(whole, g, seed);
    const bool good = interp_run(whole, expanded) || say(message, 0, whole->error);
    sglir_graph_free(expanded);
    return good;
}

/* What one rank has come to; frees it. */
static bool is_same(const world_check *c, int64_t rank, interp *in, ir_message *message)
{
    interp expected;
    ir_message why;
    if (!interp_expected(c->whole, c->plan, rank, c->graphs[rank], &expected)) return say(message, rank, "no memory");
    const bool same = ir_case_same_results(&expected, in, c->graphs[rank], c->tolerance, &why);
    interp_free(&expected);
    return same || say(message, rank, why.text);
}

/* The rank's graph, and what the passes that follow make of it. */
static bool make_rank(world_check *c, int64_t rank, ir_message *message)
{
    const sglpass_context context = { .env = c->env, .plan = c->plan, .rank = rank };
    sglir_graph *made = world_check_rank(c->env, c->g, c->plan, rank, c->until, message);
    c->graphs[rank] = made;
    if (!made || !c->then) return made != NULL;
    sgl_status status = sglpass_run_list(&context, c->then, made, NULL, &c->graphs[rank]);
    if (status == SGL_OK) status = sglir_verify(c->graphs[rank], c->stage == SGLIR_LOGICAL ? SGLIR_PER_RANK : c->stage);
    sglir_graph_free(made);
    return status == SGL_OK || say(message, rank, c->env->message);
}

bool world_check_run(world_check *c, ir_message *message)
{
    const int64_t ranks = sglplan_group_size(c->plan, ~(sglplan_axes)0);
    interp in[INTERP_MOST_RANKS] = { { 0 } };
    bool good = ranks <= INTERP_MOST_RANKS || say(message, ranks, "the interpreter has fewer");
    for (int64_t r = 0; r < ranks && good; r++) good = make_rank(c, r, message);
    if (!good) return false;
    good =
        interp_world_run(c->whole, c->plan, (const sglir_graph *const *)c->graphs, in) || say(message, 0, in[0].error);
    for (int64_t r = 0; r < ranks && good; r++) good = is_same(c, r, &in[r], message);
    for (int64_t r = 0; r < ranks; r++) interp_free(&in[r]);
    return good;
}

void world_check_free(world_check *c)
{
    for (int r = 0; r < INTERP_MOST_RANKS; r++) {
        sglir_graph_free(c->graphs[r]);
        c->graphs[r] = NULL;
    }
}
