/* random_check.c -- the three ways of a random program and how they are compared. In and out: random_program.h.
 *
 * The reference is the interpreter in double over the graph with its gradients expanded. How far a result may be from it
 * is measured, not guessed: the interpreter runs again rounding to each dtype, and several times with every rounding
 * moved by two units in the last place. Eight times the largest move of a tensor is its bound, with a few units of the
 * numbers near 1 that all programs compute with: inside of a composite the interpreter rounds nothing. Gradients of
 * smooth programs are held against central differences besides, so that autodiff has an oracle of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/support/random_program.h"

enum { NOISY_RUNS = 4 };
static const double MARGIN = 8, UNITS = 4, GRADIENT = 1e-5;

static bool fail(ir_message *message, const char *format, ...) SGL_PRINTF(2, 3);
static bool fail(ir_message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return false;
}

static double unit_of(sgl_dtype dtype)
{
    switch (dtype) {
    case SGL_F32: return ldexp(1, -23);
    case SGL_BF16: return ldexp(1, -7);
    case SGL_F16: return ldexp(1, -10);
    case SGL_F8E4M3: return ldexp(1, -3);
    case SGL_F8E5M2: return ldexp(1, -2);
    default: return ldexp(1, -52);
    }
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
    exact[SGLIR_OP_ACCUMULATE] = exact[SGLIR_OP_SCAN] = false;
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

/* How far elements of the tensor may be off; NaN where the runs do not agree on what is finite. */
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
    return want->floats == NULL ? 0 : MARGIN * moved + UNITS * unit_of(want->dtype) * (*largest + 1);
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

static bool compiled_agrees(const sglir_graph *g, const references *r, run_options options, ir_message *message)
{
    char how[96];
    run_results results;
    ir_message said;
    interp inputs = { 0 };
    snprintf(how, sizeof how, "compiled%s%s%s", options.without[0] != '\0' ? " without " : "", options.without,
             options.micro > 1 ? ", in micro-batches" : "");
    op_case_fill(&inputs, g, 3);
    run_outcome outcome = run_graph(g, options, &inputs, &results, &said);
    interp_free(&inputs);
    bool good =
        outcome == RUN_DONE ? same_results(r, &results, how, message) : fail(message, "%s: %.3900s", how, said.text);
    run_results_free(&results);
    return good;
}

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

/* Differences say what a slope is where a smaller step says the same: not across a kink (of what takes the largest, or no
 * more than so much), nor where a function turns within a step (the sine of a high power). */
static bool differences_agree(const sglir_graph *g, const sglir_graph *derived, ir_message *message)
{
    interp coarse = { 0 }, fine = { .step = 2.5e-4 }, by_rules = { 0 };
    bool good = interpret(&coarse, g, 1, message) && interpret(&fine, g, 1, message) &&
                interpret(&by_rules, derived, 1, message);
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
            if (settled && !(fabs(x - y) <= far))
                good =
                    fail(message, "\"%s\"[%lld] is %.12g by the rules, %.12g by differences", name, (long long)e, y, x);
        }
    }
    interp_free(&coarse);
    interp_free(&fine);
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

static bool check_ways(const sglir_graph *g, const sglir_graph *derived, const random_traits *traits, uint64_t seed,
                       bool all, ir_message *message)
{
    references r;
    int passes = 0;
    while (run_optional_pass(passes) != NULL) passes++;
    bool good = !(traits->smooth && traits->derived && has_grad(g)) || differences_agree(g, derived, message);
    good = good && refer(&r, derived, traits->steps, message);
    if (good) {
        run_options options = { .without = "", .steps = traits->steps, .threads = 1 + (int)(seed % 2) };
        good = compiled_agrees(g, &r, options, message);
        for (int i = 0; i < passes && good; i++) {
            if (!all && (uint64_t)i != seed % (uint64_t)passes) continue;
            options.without = run_optional_pass(i);
            good = compiled_agrees(g, &r, options, message);
        }
        options.without = "";
        options.micro = traits->micro;
        if (good && traits->micro > 1) good = compiled_agrees(g, &r, options, message);
        free_references(&r);
    }
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
    sglir_graph_free(derived);
    return good;
}
