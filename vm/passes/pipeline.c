/* pipeline.c -- the passes as a picture and a list.
 *
 *   traced graph
 *     simplify    constants, common subexpressions, dead nodes, algebra
 *     precision   products in bf16 or fp16, the rest by policy; fp16 scales the loss
 *     compress    gradients that the plan names go through codecs, with what is lost of them as states
 *     autodiff    `grad` nodes become the backward graph
 *     shard       layouts over the ranks of a mesh: local extents, exchanges where a layout must change
 *     micro       the mesh's axis of time: a loop over micro-batches, sums paid by `accumulate`
 *     stages      of a pipeline: this rank's stage, its turns in the order of a schedule, sends and receives
 *     pieces      updates of all parameters at once become updates of pieces, where states live in memory of the host
 *     sections    parameters and states become ranges of few long sections
 *     decompose   composites that the device does not run whole become primitives
 *     simplify    once more, over what the passes made
 *     join        a product takes the bias that is added to it, where the device runs both as one; small casts become one
 *     collect     sums over ranks leave in buckets, as their terms are made
 *     recompute   what the backward makes again instead of keeping it, as marked or against a bound on memory
 *     regather    parameters that ranks gather are whole for the forward, and again for the backward, not between
 *     offload     states that live in memory of the host are fetched for those that use them, and go back
 *     fuse        nodes become kernels
 *     schedule    the order that needs least memory; exchanges begin early and are waited for late
 *     memory      every stored value gets its place; over the bound: back to recompute, a few times at most; then all
 *                 again, with more in memory of the host
 *   placed graph ──► exec/freeze
 *
 * Comes in: a traced graph, a plan, the session's layout. Goes out: a placed graph. After each pass the verifier looks
 * at the result, and hashes tell whether the pass says rightly that it changed the graph (debug builds, SGL_VERIFY=1);
 * SGL_DUMP writes the graph before and after into numbered files. Only here is a pass disabled, dumped, interrupted or
 * blamed. */
#include <stdio.h>
#include <string.h>

#include "core/io.h"
#include "core/knob.h"
#include "passes/pass.h"
#include "plan/mesh.h"

const sglpass sglpass_pipeline[] = {
    { "simplify", sglpass_simplify, SGLIR_LOGICAL, true, "constants, common subexpressions, dead nodes, algebra" },
    { "precision", sglpass_precision, SGLIR_LOGICAL, false,
      "casts to bf16 or fp16 by policy; fp16: loss scale, skipped steps" },
    { "compress", sglpass_compress, SGLIR_LOGICAL, false, "gradients in fewer bytes, what is lost as a state" },
    { "autodiff", sglpass_autodiff, SGLIR_PER_RANK, false, "expands grad nodes into the backward graph" },
    { "shard", sglpass_shard, SGLIR_PER_RANK, false, "lays values out over the mesh, and puts in the exchanges" },
    { "micro", sglpass_micro_split, SGLIR_PER_RANK, false, "splits the batch into a loop over micro-batches" },
    { "stages", sglpass_stages_split, SGLIR_PER_RANK, false,
      "the rank's stage of a pipeline, in the order of a schedule" },
    { "pieces", sglpass_pieces, SGLIR_PER_RANK, false, "cuts updates of states that live in memory of the host" },
    { "sections", sglpass_sections, SGLIR_PER_RANK, false, "gathers parameters and states into sections" },
    { "decompose", sglpass_decompose, SGLIR_PER_RANK, false,
      "composites without a kernel of their own become primitives" },
    { "simplify-again", sglpass_simplify, SGLIR_PER_RANK, true, "simplify over what the passes made" },
    { "join", sglpass_join, SGLIR_PER_RANK, true,
      "products take the bias that is added to them; small casts become one" },
    { "collect", sglpass_collect, SGLIR_PER_RANK, true, "cuts sums over ranks into buckets" },
    { "recompute", sglpass_recompute, SGLIR_PER_RANK, true,
      "makes values again for the backward instead of keeping them" },
    { "regather", sglpass_regather, SGLIR_PER_RANK, true,
      "gathers parameters for the backward again instead of keeping them whole" },
    { "offload", sglpass_offload, SGLIR_PER_RANK, true,
      "moves states to memory of the host, and back where they are used" },
    { "fuse", sglpass_fuse, SGLIR_FUSED, false, "groups nodes into kernels" },
    { "schedule", sglpass_schedule, SGLIR_FUSED, true, "orders nodes so that few bytes live at once" },
    { "memory", sglpass_memory, SGLIR_PLACED, false, "gives every stored value its place" },
    { NULL, NULL, SGLIR_LOGICAL, false, NULL },
};

static sgl_status write_text(void *user, const char *data, size_t bytes)
{
    void **both = user; /* env, text */
    return sglcore_text_bytes(both[0], both[1], data, bytes);
}

/* SGL_DUMP_DIR/07-fuse-train.before.txt */
static sgl_status dump(const sglpass_context *context, int number, const char *pass, const char *when,
                       const sglir_graph *g)
{
    sglcore_env *env = context->env;
    const char *dir = sglcore_knob_text(SGLCORE_KNOB_DUMP_DIR);
    sglcore_text text = { 0 }, path = { 0 };
    void *both[] = { env, &text };
    sgl_status status = sglir_print(g, write_text, both);
    if (status == SGL_OK)
        status = sglcore_text_add(env, &path, "%s/%02d-%s-%s.%s.txt", dir, number, pass,
                                  sglcore_string(g->strings, g->name), when);
    if (status == SGL_OK && env->io->make_dir(env->io->user, dir) != 0)
        status = sglcore_fail(env, SGL_IO, "%s: cannot make the folder of SGL_DUMP", dir);
    if (status == SGL_OK) status = sglcore_write_file(env, path.data, text.data, text.count);
    sglcore_text_free(env, &text);
    sglcore_text_free(env, &path);
    return status;
}

static bool verifies(void)
{
#ifdef SGL_VERIFY_ALWAYS
    return true;
#else
    return sglcore_knob_int(SGLCORE_KNOB_VERIFY) != 0;
#endif
}

/* Passes add up the bytes of values: all together they must stay within 64 bits, with room for alignment. */
static sgl_status check_bytes(sglcore_env *env, const sglir_graph *g)
{
    int64_t all = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        if (__builtin_add_overflow(all, sglir_bytes(&g->values.data[v].type), &all) || all > INT64_MAX / 2)
            return sglcore_fail(env, SGL_LIMIT,
                                "the values of the graph \"%s\" have more bytes together than can be planned",
                                sglcore_string(g->strings, g->name));
    }
    return SGL_OK;
}

/* What the pass says of its result must be so, and what it was given must be as it was. */
static sgl_status check_said(const sglpass_context *context, const sglpass *pass, sglcore_hash before,
                             const sglir_graph *in, const sglir_graph *out)
{
    const char *name = sglcore_string(in->strings, in->name), *wrong = NULL;
    bool same = sglcore_hash_equal(before, sglir_job_hash(out));
    if (!sglcore_hash_equal(before, sglir_job_hash(in)))
        wrong = "wrote into the graph that it was given";
    else if (same && *context->changed)
        wrong = "says that it changed the graph, and made the same";
    else if (!same && !*context->changed)
        wrong = "says that it changed nothing, and made another graph";
    return wrong ? sglcore_fail(context->env, SGL_INTERNAL, "pass %s %s (\"%s\")", pass->name, wrong, name) : SGL_OK;
}

/* The pass, and what the verifier says of its result. */
static sgl_status run_verified(const sglpass_context *given, const sglpass *pass, const sglir_graph *in,
                               sglir_graph **out)
{
    bool changed = true;
    sglpass_context context = *given;
    sglcore_hash before = sglir_job_hash(in);
    context.changed = &changed;
    SGLCORE_TRY(pass->run(&context, in, out));
    /* Where nothing was fused, later stages hold what should stand in kernels. */
    sglir_stage stage = given->plan->unfused && pass->stage > SGLIR_PER_RANK ? SGLIR_PER_RANK : pass->stage;
    sgl_status status = sglir_verify(*out, stage);
    if (status != SGL_OK) return sglcore_fail_at(context.env, status, "pass %s made a wrong graph", pass->name);
    return check_said(&context, pass, before, in, *out);
}

/* Between two passes is where a host that asks to stop is heard. */
static sgl_status check_interrupt(const sglpass_context *context, const sglpass *pass, const sglir_graph *g)
{
    if (context->interrupted == NULL || !*context->interrupted) return SGL_OK;
    return sglcore_fail(context->env, SGL_INTERRUPTED, "interrupted before the pass %s of the graph \"%s\"", pass->name,
                        sglcore_string(g->strings, g->name));
}

static sgl_status run_one(const sglpass_context *context, int number, const sglpass *pass, const sglir_graph *in,
                          sglir_graph **out)
{
    SGLCORE_TRY(check_interrupt(context, pass, in));
    bool dumps = sglcore_knob_lists(SGLCORE_KNOB_DUMP, pass->name);
    SGLCORE_TRY(check_bytes(context->env, in));
    if (dumps) SGLCORE_TRY(dump(context, number, pass->name, "before", in));
    sgl_status status = verifies() ? run_verified(context, pass, in, out) : pass->run(context, in, out);
    if (*out && dumps) {
        sgl_status dumped = dump(context, number, pass->name, "after", *out);
        if (status == SGL_OK) status = dumped;
    }
    if (status != SGL_OK) {
        sglir_graph_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- what is asked for ----------------------------------------------------------------------------------------------- */

/* A list of pass names, "all" among them, as plan and knobs hold it: each must be a pass, and one that may be left out
 * where that is asked. */
static sgl_status check_names(sglcore_env *env, const char *what, const char *list, bool left_out)
{
    for (const char *at = list + strspn(list, ", "); *at; at += strspn(at, ", ")) {
        const char *names[sizeof sglpass_pipeline / sizeof *sglpass_pipeline];
        char name[64];
        int count = 0;
        size_t length = strcspn(at, ", ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        at += length;
        bool known = strcmp(name, "all") == 0;
        for (const sglpass *pass = sglpass_pipeline; pass->name; pass++) {
            names[count++] = pass->name;
            if (strcmp(pass->name, name) != 0) continue;
            known = true;
            if (left_out && !pass->optional)
                return sglcore_fail(env, SGL_INVALID_ARGUMENT, "%s: the pass '%s' cannot be left out", what, name);
        }
        if (known) continue;
        char hint[SGLCORE_HINT_ROOM];
        return sglcore_fail(env, SGL_NOT_FOUND, "%s: there is no pass '%s'%s", what, name,
                            sglcore_hint(name, names, count, hint));
    }
    return SGL_OK;
}

sgl_status sglpass_fail_unnamed(const sglpass_context *context, const sglir_graph *g, const char *field,
                                const char *pattern, size_t length)
{
    const char *names[64];
    char text[64], hint[SGLCORE_HINT_ROOM];
    int listed = 0;
    for (int64_t n = 0; n < g->nodes.count && listed < (int)(sizeof names / sizeof *names); n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (node->op == SGLIR_OP_INPUT && sglir_attr_int(g, node, "role") == SGL_PARAMETER)
            names[listed++] = sglir_attr_string(g, node, "name");
    }
    snprintf(text, sizeof text, "%.*s", (int)length, pattern);
    return sglcore_fail(context->env, SGL_INVALID_ARGUMENT, "plan: %s: '%.*s' names no parameter%s", field, (int)length,
                        pattern, sglcore_hint(text, names, listed, hint));
}

static sgl_status check_asked(const sglpass_context *context)
{
    sglcore_env *env = context->env;
    int64_t ranks;
    SGLCORE_TRY(sglplan_mesh_size(env, context->plan, &ranks));
    if (context->rank < 0 || context->rank >= ranks)
        return sglcore_fail(env, SGL_INVALID_ARGUMENT, "plan: there is no rank %lld in a mesh of %lld",
                            (long long)context->rank, (long long)ranks);
    SGLCORE_TRY(check_names(env, "plan: disable", context->plan->disable, true));
    SGLCORE_TRY(check_names(env, "SGL_DISABLE", sglcore_knob_text(SGLCORE_KNOB_DISABLE), true));
    return check_names(env, "SGL_DUMP", sglcore_knob_text(SGLCORE_KNOB_DUMP), false);
}

/* ---- the run ------------------------------------------------------------------------------------------------------------ */

static bool is_left_out(const sglpass_context *context, const sglpass *pass)
{
    if (context->plan->unfused && pass->run == sglpass_fuse) return true;
    return pass->optional &&
           (sglplan_disables(context->plan, pass->name) || sglcore_knob_lists(SGLCORE_KNOB_DISABLE, pass->name));
}

/* The graph before the pass of number `end` as rank 0 has it, of `logical`, which `shard` was given: ranks with uneven parts decide by
 * it what all must decide alike. *out NULL: parts are even, or this is as rank 0. */
static sgl_status run_as_first(const sglpass_context *given, const sglpass *list, int end, const sglir_graph *logical,
                               const sglir_graph *own, sglir_graph **out)
{
    sglpass_context context = *given;
    sglplan_coordinate at = sglplan_mesh_coordinate(given->plan, given->rank);
    int first = 0;
    at.at[SGLIR_AXIS_PP] = 0; /* before `stages` all along pp have the same */
    context.rank = 0;
    context.changed = NULL;
    if (sglplan_mesh_rank(given->plan, &at) == 0 || sglpass_is_even(given->plan, own)) return SGL_OK;
    while (list[first].run != sglpass_shard) first++;
    for (int i = first; i < end; i++) {
        sglir_graph *next = NULL;
        const sgl_status status = list[i].run(&context, *out ? *out : logical, &next);
        sglir_graph_free(*out);
        *out = next;
        SGLCORE_TRY(status);
    }
    return SGL_OK;
}

/* From the pass of number `first` on. *out NULL: all were left out. kept: where the graph goes that recompute was given,
 * unless that is `in`; NULL: nobody wants it. */
static sgl_status run_range(const sglpass_context *given, const sglpass *list, int first, const sglir_graph *in,
                            const char *until, sglir_graph **out, sglir_graph **kept)
{
    const bool staged = sglplan_is_staged(given->plan);
    const sglir_graph *now = in, *logical = NULL;
    sglir_graph *made = NULL, *owned = NULL, *as_first = NULL; /* owned: logical, unless that is `in` */
    sgl_status status = SGL_OK;
    for (int i = first; list[i].name && status == SGL_OK; i++) {
        if (!is_left_out(given, &list[i])) {
            sglir_graph *next = NULL;
            sglpass_context context = *given;
            if (list[i].run == sglpass_stages_split && logical)
                status = run_as_first(given, list, i, logical, now, &as_first);
            context.first = as_first;
            if (status == SGL_OK) status = run_one(&context, i + 1, &list[i], now, &next);
            if (staged && list[i].run == sglpass_shard) {
                logical = now;
                owned = made;
            } else if (kept && list[i].run == sglpass_recompute) {
                *kept = made;
            } else {
                sglir_graph_free(made);
            }
            now = made = next;
        }
        if (list[i].run == sglpass_stages_split) {
            sglir_graph_free(owned);
            sglir_graph_free(as_first);
            owned = as_first = NULL;
            logical = NULL;
        }
        if (until && strcmp(until, list[i].name) == 0) break;
    }
    sglir_graph_free(owned);
    *out = made;
    return status;
}

/* ---- a bound on memory ------------------------------------------------------------------------------------------------ */

enum { MOST_TURNS = 6 };

int64_t sglpass_bytes(const sglir_graph *placed)
{
    int64_t bytes = 0;
    for (int space = SGLIR_SPACE_ARENA; space <= SGLIR_SPACE_CONST; space++) bytes += placed->space_bytes[space];
    return bytes;
}

static sgl_status fail_bound(const sglpass_context *context, const sglir_graph *g)
{
    const int64_t *bytes = g->space_bytes;
    return sglcore_fail(
        context->env, SGL_LIMIT,
        "plan: memory is %lld bytes, and program \"%s\" needs %lld at least: %lld of parameters and states, "
        "%lld of values that live within a step, %lld of feeds, fetches and constants, with all in memory of the host that "
        "can be there (plan.offload): %lld bytes; a smaller batch or more micro-batches (plan.micro) take less",
        (long long)context->plan->memory, sglcore_string(g->strings, g->name), (long long)sglpass_bytes(g),
        (long long)bytes[SGLIR_SPACE_STATE], (long long)bytes[SGLIR_SPACE_ARENA],
        (long long)(bytes[SGLIR_SPACE_IO] + bytes[SGLIR_SPACE_CONST]),
        (long long)(bytes[SGLIR_SPACE_HOST] + bytes[SGLIR_SPACE_AWAY]));
}

/* Back to recompute with what it was given, and with more to spare each time: as much as the program is too large, and a
 * part more, since what recompute sees on paper is not what memory finds. The last turn spares all that can be spared. */
static sgl_status fit(const sglpass_context *given, const sglpass *list, const sglir_graph *before,
                      sglir_graph **placed)
{
    sglpass_context context = *given;
    int first = 0;
    while (list[first].name && list[first].run != sglpass_recompute) first++;
    bool can_spare = list[first].name && !is_left_out(given, &list[first]);
    int64_t over = sglpass_bytes(*placed) - context.plan->memory;
    for (int turn = 1; can_spare && over > 0 && turn <= MOST_TURNS; turn++) {
        sglir_graph *next = NULL;
        context.give_back = turn < MOST_TURNS ? context.give_back + over + context.give_back / 4 : INT64_MAX;
        SGLCORE_TRY(run_range(&context, list, first, before, NULL, &next, NULL));
        over = sglpass_bytes(next) - context.plan->memory;
        bool better = sglpass_bytes(next) < sglpass_bytes(*placed);
        sglir_graph_free(better ? *placed : next);
        if (better) *placed = next;
    }
    return SGL_OK;
}

/* All passes, and recompute again as often as it takes. */
static sgl_status run_bounded(const sglpass_context *context, const sglpass *list, const sglir_graph *in,
                              const char *until, sglir_graph **out)
{
    sglir_graph *kept = NULL;
    sgl_status status = run_range(context, list, 0, in, until, out, &kept);
    const bool placed = until == NULL || strcmp(until, "memory") == 0;
    if (status == SGL_OK && *out && placed && context->plan->memory > 0)
        status = fit(context, list, kept ? kept : in, out);
    sglir_graph_free(kept);
    return status;
}

static bool fits(const sglpass_context *context, const sglir_graph *placed)
{
    return context->plan->memory == 0 || sglpass_bytes(placed) <= context->plan->memory;
}

/* What recompute alone cannot bring under the bound goes to memory of the host, kind after kind: states, which wait for the
 * end of a step; what the backward needs; parameters. The first set that fits is taken, else the one of fewest bytes. */
static sgl_status offload_more(const sglpass_context *given, const sglpass *list, const sglir_graph *in,
                               const char *until, sglir_graph **placed)
{
    static const int order[] = { SGLPLAN_OFFLOAD_MOMENTS, SGLPLAN_OFFLOAD_ACTIVATIONS, SGLPLAN_OFFLOAD_PARAMS };
    sglplan plan = *given->plan;
    sglpass_context context = *given;
    context.plan = &plan;
    for (int i = 0; i < SGLPLAN_OFFLOAD_COUNT && !fits(given, *placed); i++) {
        sglir_graph *next = NULL;
        if (sglplan_offloads(&plan, order[i])) continue;
        plan.offload |= (uint8_t)(1u << order[i]);
        const sgl_status status = run_bounded(&context, list, in, until, &next);
        const bool better = status == SGL_OK && sglpass_bytes(next) < sglpass_bytes(*placed);
        sglir_graph_free(better ? *placed : next);
        if (better) *placed = next;
        SGLCORE_TRY(status);
    }
    return fits(given, *placed) ? SGL_OK : fail_bound(given, *placed);
}

sgl_status sglpass_run(const sglpass_context *context, const sglir_graph *in, const char *until, sglir_graph **out)
{
    return sglpass_run_list(context, sglpass_pipeline, in, until, out);
}

sgl_status sglpass_run_list(const sglpass_context *context, const sglpass *list, const sglir_graph *in,
                            const char *until, sglir_graph **out)
{
    *out = NULL;
    SGLCORE_TRY(check_asked(context));
    sgl_status status = run_bounded(context, list, in, until, out);
    if (status == SGL_OK && *out == NULL)
        status = sglcore_fail(context->env, SGL_INVALID_ARGUMENT, "the plan leaves out every pass up to '%s'",
                              until ? until : "");
    const bool placed = until == NULL || strcmp(until, "memory") == 0;
    if (status == SGL_OK && placed && !fits(context, *out)) status = offload_more(context, list, in, until, out);
    if (status == SGL_OK) return SGL_OK;
    sglir_graph_free(*out);
    *out = NULL;
    return status;
}
