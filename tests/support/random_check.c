/* random_check.c -- the ways of a random program and how they are compared. In and out: random_program.h.
 *
 *   compiled; without each pass; with all that can be in memory of the host; in micro-batches; with marked modules made
 *   again alone, and against a bound on memory
 *   lowered to bf16 or fp16, against the interpreter on the lowered graph
 * The reference is the interpreter in double over the graph with its gradients expanded. How far a result may be from it
 * is measured, not guessed: the interpreter runs again rounding to each dtype, and several times with every rounding
 * moved by two units in the last place. Eight times the largest move of a tensor is its bound, with a few units of the
 * numbers near 1 that all programs compute with: inside of a composite the interpreter rounds nothing. Gradients of
 * smooth programs are held against central differences besides, so that autodiff has an oracle of its own; those of some
 * programs with kinks too, where differences to the right and to the left are the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/support/random_cover.h"
#include "tests/support/random_program.h"

enum { NOISY_RUNS = 6 };
static const double MARGIN = 8, UNITS = 4, GRADIENT = 1e-5, UNROUNDED = 1e-7;

static bool fail(ir_message *message, const char *format, ...) SGL_PRINTF(2, 3);
static bool fail(ir_message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- interpreted --------------------------------------------------------------------------------------------------- */

/* Which ops round nothing, as their cases say. */
static const bool *exact_ops(void)
{
    static bool exact[SGLIR_OP_COUNT], known;
    op_case c;
    if (known) return exact;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) exact[op] = true;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind != OP_REFUSED && c.condition > 0) exact[c.op] = false;
    }
    exact[SGLIR_OP_ACCUMULATE] = exact[SGLIR_OP_SCALE] = exact[SGLIR_OP_UNSCALE] = false;
    known = true;
    return exact;
}

static bool interpret(interp *in, const sglir_graph *g, int steps, ir_message *message)
{
    op_case_fill(in, g, 3);
    for (int step = 0; step < steps; step++) {
        if (step > 0) interp_carry(in);
        if (!interp_run(in, g)) return fail(message, "the interpreter: %s", in->error);
    }
    return true;
}

typedef struct references {
    interp runs[2 + NOISY_RUNS]; /* in double, rounded, noisy */
} references;

static bool refer(references *r, const sglir_graph *g, int steps, ir_message *message)
{
    *r = (references){ 0 };
    for (int i = 0; i < 2 + NOISY_RUNS; i++) {
        r->runs[i].round = i > 0;
        r->runs[i].noise = i > 1 ? (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) : 0;
        r->runs[i].alike =
            i % 2 == 1; /* of equal elements each is rounded the same way, and a sum of them strays far */
        r->runs[i].exact = exact_ops();
        if (!interpret(&r->runs[i], g, steps, message)) return false;
    }
    return true;
}

static void free_references(references *r)
{
    for (int i = 0; i < 2 + NOISY_RUNS; i++) interp_free(&r->runs[i]);
}

static const interp_tensor *result_in(const interp *in, const char *name, bool update)
{
    return update ? interp_update(in, name) : interp_fetch(in, name);
}

/* ---- compared ------------------------------------------------------------------------------------------------------ */

/* How far elements of the tensor may be off; NaN where the runs do not agree on what is finite, or on integers. */
static double bound_of(const references *r, const char *name, bool update, double *largest)
{
    const interp_tensor *want = result_in(&r->runs[0], name, update);
    double moved = 0;
    *largest = 0;
    for (int64_t e = 0; e < want->count; e++) {
        double value = interp_get(want, e);
        if (isfinite(value)) *largest = fmax(*largest, fabs(value));
        for (int i = 1; i < 2 + NOISY_RUNS; i++) {
            double other = interp_get(result_in(&r->runs[i], name, update), e);
            if (isfinite(value) != isfinite(other)) return NAN;
            if (isfinite(value)) moved = fmax(moved, fabs(value - other));
        }
    }
    if (want->floats == NULL) return moved > 0 ? NAN : 0; /* a step of fp16 may be skipped by a rounding */
    return MARGIN * moved + UNITS * interp_epsilon(want->dtype) * (*largest + 1);
}

static bool same_tensor(const references *r, const char *name, bool update, const interp_tensor *have, const char *how,
                        ir_message *message)
{
    const interp_tensor *want = result_in(&r->runs[0], name, update);
    double largest, bound = bound_of(r, name, update, &largest);
    if (isnan(bound)) return true;
    if (have == NULL || have->count != want->count || have->dtype != want->dtype)
        return fail(message, "%s: \"%s\" is lost, or of another type", how, name);
    for (int64_t e = 0; e < want->count; e++) {
        double a = interp_get(want, e), b = interp_get(have, e);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= bound) continue;
        return fail(message, "%s: %s \"%s\"[%lld] is %.17g, the interpreter has %.17g (bound %.3g, largest %.6g)", how,
                    update ? "state" : "fetch", name, (long long)e, b, a, bound, largest);
    }
    return true;
}

static bool same_results(const references *r, const run_results *results, const char *how, ir_message *message)
{
    const interp *in = &r->runs[0];
    for (int i = 0; i < in->fetch_count; i++) {
        const char *name = in->fetches[i].name;
        if (!same_tensor(r, name, false, run_result_of(results, name, false), how, message)) return false;
    }
    for (int i = 0; i < in->update_count; i++) {
        const char *name = in->updates[i].name;
        if (!same_tensor(r, name, true, run_result_of(results, name, true), how, message)) return false;
    }
    return true;
}

/* A program and what its ways are held against: the graph that the references ran has its inputs, those of passes too. */
typedef struct subject {
    const sglir_graph *g, *reference;
    const references *r;
    ir_message *message;
} subject;

static void describe(char *how, size_t size, const run_options *o)
{
    snprintf(how, size, "compiled%s%s%s%s%s%s%s", o->without[0] != '\0' ? " without " : "", o->without,
             o->micro > 1 ? ", in micro-batches" : "", o->marked_only ? ", what is marked made again" : "",
             o->memory > 0 ? ", against a bound on memory" : "", o->offload ? ", with memory of the host" : "",
             o->precision == SGL_BF16  ? ", in bf16"
             : o->precision == SGL_F16 ? ", in fp16"
                                       : "");
}

static void count_changes(uint32_t changed)
{
    for (int i = 0; i < RANDOM_MOST_PASSES; i++) random_cover_now()->changed[i] += changed >> i & 1;
}

/* *bytes: of the placed graph; NULL: nobody asks. */
static bool compiled_agrees(const subject *s, run_options options, int64_t *bytes)
{
    char how[160];
    run_results results;
    ir_message said;
    interp inputs = { 0 };
    describe(how, sizeof how, &options);
    op_case_fill(&inputs, s->reference, 3);
    run_outcome outcome = run_graph(s->g, options, &inputs, &results, &said);
    interp_free(&inputs);
    bool good = outcome == RUN_DONE ? same_results(s->r, &results, how, s->message)
                                    : fail(s->message, "%s: %.3900s", how, said.text);
    if (good) count_changes(results.changed);
    if (good && options.memory > 0 && results.bytes > options.memory)
        good = fail(s->message, "%s: %lld bytes are placed, %lld are allowed", how, (long long)results.bytes,
                    (long long)options.memory);
    if (bytes != NULL) *bytes = results.bytes;
    run_results_free(&results);
    return good;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

/* Differences say what a slope is where a smaller step says the same: not across a kink (of what takes the largest, or no
 * more than so much), nor where a function turns within a step (the sine of a high power). */
static bool differences_agree(const sglir_graph *g, const sglir_graph *derived, bool smooth, ir_message *message)
{
    interp coarse = { 0 }, fine = { .step = 2.5e-4 }, by_rules = { 0 };
    interp right = { .step = 2.5e-4, .side = 1 }, left = { .step = 2.5e-4, .side = -1 };
    bool good = interpret(&coarse, g, 1, message) && interpret(&fine, g, 1, message) &&
                interpret(&by_rules, derived, 1, message);
    good = good && (smooth || (interpret(&right, g, 1, message) && interpret(&left, g, 1, message)));
    for (int i = 0; good && i < by_rules.fetch_count; i++) {
        const char *name = by_rules.fetches[i].name;
        const interp_tensor *a = interp_fetch(&fine, name), *wide = interp_fetch(&coarse, name);
        const interp_tensor *b = &by_rules.fetches[i].tensor;
        double largest = 1;
        for (int64_t e = 0; e < b->count; e++) {
            if (isfinite(interp_get(b, e))) largest = fmax(largest, fabs(interp_get(b, e)));
        }
        for (int64_t e = 0; good && e < a->count; e++) {
            double x = interp_get(a, e), y = interp_get(b, e), far = GRADIENT * largest;
            bool settled = fabs(x - interp_get(wide, e)) <= far; /* not so where the loss is no number */
            if (settled && !smooth) { /* where two that are compared are equal each side has a slope of its own */
                double to_right = interp_get(interp_fetch(&right, name), e);
                settled = fabs(to_right - interp_get(interp_fetch(&left, name), e)) <= far;
            }
            if (settled && !(fabs(x - y) <= far))
                good =
                    fail(message, "\"%s\"[%lld] is %.12g by the rules, %.12g by differences", name, (long long)e, y, x);
        }
    }
    interp_free(&coarse);
    interp_free(&fine);
    interp_free(&right);
    interp_free(&left);
    interp_free(&by_rules);
    return good;
}

static bool has_grad(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op == SGLIR_OP_GRAD) return true;
    }
    return false;
}

/* Each pass left out, or one that the seed chooses. */
static bool check_without(const subject *s, run_options options, uint64_t seed, bool all)
{
    int passes = 0;
    while (run_optional_pass(passes) != NULL) passes++;
    for (int i = 0; i < passes; i++) {
        if (!all && (uint64_t)i != seed % (uint64_t)passes) continue;
        options.without = run_optional_pass(i);
        if (!compiled_agrees(s, options, NULL)) return false;
    }
    return true;
}

/* Between what a program takes when nothing unmarked is made again, and the least that it can do with. */
static bool check_memory(const subject *s, run_options options, int64_t least)
{
    int64_t most;
    options.marked_only = true;
    if (!compiled_agrees(s, options, &most)) return false;
    if (least >= most) return true;
    options.marked_only = false;
    options.memory = (least + most) / 2;
    random_cover_now()->bounded++;
    return compiled_agrees(s, options, NULL);
}

static bool check_ways(const sglir_graph *g, const sglir_graph *derived, const random_traits *traits, uint64_t seed,
                       bool all, ir_message *message)
{
    references r;
    int64_t bytes;
    bool derives = traits->derived && has_grad(g) && (traits->smooth || traits->differs);
    bool good = !derives || differences_agree(g, derived, traits->smooth, message);
    random_cover_now()->differences += derives;
    good = refer(&r, derived, traits->steps, message) && good;
    const subject s = { g, derived, &r, message };
    run_options options = { .without = "", .steps = traits->steps, .threads = 1 + (int)(seed % 2) };
    options.placed = random_cover_compiled;
    good = good && compiled_agrees(&s, options, &bytes);
    options.placed = NULL;
    good = good && check_without(&s, options, seed, all);
    if (good && traits->bounded) good = check_memory(&s, options, bytes);
    options.offload = true;
    options.placed = random_cover_compiled; /* moves stand there only */
    good = good && compiled_agrees(&s, options, NULL);
    options.placed = NULL;
    options.offload = seed % 2 != 0;
    options.micro = traits->micro;
    if (good && traits->micro > 1) {
        options.placed = random_cover_compiled; /* `accumulate` stands there only */
        good = compiled_agrees(&s, options, NULL);
        random_cover_now()->micro++;
    }
    random_cover_now()->steps += traits->steps > 1;
    free_references(&r);
    return good;
}

/* ---- precision ------------------------------------------------------------------------------------------------------ */

/* What the plan's precision makes of the graph, its gradients expanded. simplify goes first, as in the pipeline: what it finds
 * decides what is narrow. */
static sgl_status lower(sglcore_env *env, const sglir_graph *g, sgl_dtype precision, sglir_graph **out)
{
    sglplan plan;
    sglir_graph *simple = NULL, *narrow = NULL;
    sglplan_init(&plan);
    plan.precision = (uint8_t)precision;
    plan.scale = RUN_SCALE;
    const sglpass_context context = { .env = env, .plan = &plan };
    sgl_status status = sglpass_simplify(&context, g, &simple);
    if (status == SGL_OK) status = sglpass_precision(&context, simple, &narrow);
    if (status == SGL_OK) status = sglpass_autodiff(&context, narrow, out);
    if (status == SGL_OK) status = sglir_verify(*out, SGLIR_PER_RANK);
    sglir_graph_free(simple);
    sglir_graph_free(narrow);
    return status;
}

/* How far the interpreter's own roundings, in double, may move a result: far where a program amplifies them, as the sine of a
 * number of millions does. */
static double strays(const sglir_graph *g, int steps, const interp *still, const char *name, bool update)
{
    const interp_tensor *want = result_in(still, name, update);
    double moved = 0;
    for (int i = 0; i < NOISY_RUNS; i++) {
        ir_message ignored;
        interp in = { .fine = true, .noise = (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15), .alike = i % 2 == 1 };
        in.exact = exact_ops();
        bool ran = interpret(&in, g, steps, &ignored);
        for (int64_t e = 0; ran && e < want->count; e++) {
            double far = fabs(interp_get(want, e) - interp_get(result_in(&in, name, update), e));
            if (isfinite(far)) moved = fmax(moved, far);
        }
        interp_free(&in);
    }
    return moved;
}

/* Where nothing is rounded the lowered graph computes what the graph does: casts change nothing, and a scale goes out again. */
static bool same_meaning(const sglir_graph *g, int steps, const interp *wide, const interp *narrow, ir_message *message)
{
    const interp_tensor *skipped = interp_update(narrow, SGLPLAN_SCALE_SKIPPED);
    if (skipped != NULL && interp_get(skipped, 0) > 0)
        return true; /* a gradient that is no number: nothing was learnt */
    for (int i = 0; i < wide->fetch_count + wide->update_count; i++) {
        bool update = i >= wide->fetch_count;
        const interp_named *want = update ? &wide->updates[i - wide->fetch_count] : &wide->fetches[i];
        const interp_tensor *have = result_in(narrow, want->name, update);
        double largest = 1, stray = -1;
        if (have == NULL || have->count != want->tensor.count)
            return fail(message, "lowered: \"%s\" is lost", want->name);
        for (int64_t e = 0; e < have->count; e++) {
            double value = fabs(interp_get(&want->tensor, e));
            if (isfinite(value)) largest = fmax(largest, value);
        }
        for (int64_t e = 0; e < have->count; e++) {
            double a = interp_get(&want->tensor, e), b = interp_get(have, e);
            if (a == b || !isfinite(a) || fabs(a - b) <= UNROUNDED * largest) continue; /* simplify may spare 0 * inf */
            if (stray < 0) stray = strays(g, steps, wide, want->name, update);
            if (fabs(a - b) <= UNROUNDED * largest + MARGIN * stray) continue;
            return fail(message, "lowered, unrounded: \"%s\"[%lld] is %.17g, %.17g as it was", want->name, (long long)e,
                        b, a);
        }
    }
    return true;
}

static bool check_precision(sglcore_env *env, const sglir_graph *g, const sglir_graph *derived,
                            const random_traits *traits, uint64_t seed, ir_message *message)
{
    references r;
    interp wide = { 0 };
    sglir_graph *narrow = NULL;
    if (lower(env, g, traits->precision, &narrow) != SGL_OK) {
        sglir_graph_free(narrow);
        return fail(message, "lowered: %s", env->message);
    }
    run_options options = { .without = "", .steps = traits->steps, .threads = 1 + (int)(seed % 2) };
    options.precision = traits->precision;
    bool good = refer(&r, narrow, traits->steps, message);
    const subject s = { g, narrow, &r, message };
    good = good && interpret(&wide, derived, traits->steps, message) &&
           same_meaning(derived, traits->steps, &wide, &r.runs[0], message);
    interp_free(&wide);
    good = good && compiled_agrees(&s, options, NULL);
    random_cover_now()->narrow++;
    free_references(&r);
    sglir_graph_free(narrow);
    return good;
}

bool random_check(sglcore_env *env, const sglir_graph *g, const random_traits *traits, uint64_t seed, bool all,
                  ir_message *message)
{
    sglplan plan;
    sglir_graph *derived = NULL;
    sglplan_init(&plan);
    const sglpass_context context = { .env = env, .plan = &plan };
    if (sglir_verify(g, SGLIR_LOGICAL) != SGL_OK) return fail(message, "the verifier: %s", env->message);
    if (!ir_case_round_trip(env, g, message)) return false;
    if (sglpass_autodiff(&context, g, &derived) != SGL_OK) return fail(message, "autodiff: %s", env->message);
    bool good = sglir_verify(derived, SGLIR_PER_RANK) == SGL_OK || fail(message, "after autodiff: %s", env->message);
    good = good && check_ways(g, derived, traits, seed, all, message);
    if (good && traits->precision != SGL_F32) good = check_precision(env, g, derived, traits, seed, message);
    sglir_graph_free(derived);
    return good;
}
