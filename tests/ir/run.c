/* run.c -- runs text cases of the IR and of its passes: ir_run FILE...
 *
 * A case is a file:
 *
 *     # why it is there
 *     == input
 *     graph "test" { ... }
 *     == plan micro=4 native=attention     (may be left out; the fields of sglplan_set, and composites run whole)
 *     == pass autodiff                     (one or several, run one after another)
 *     == expect
 *     graph "test" { ... }
 *
 * The input must verify, the passes' result must verify at its stage and equal what is expected (origins are compared
 * when the expectation has any), input and result must go through print and parse unchanged, and both run in the
 * interpreter on seeded inputs with the same results. Other endings: `== error` with a part of the message that is
 * expected; `== not run` and a reason, before `== expect`, where a graph is too large to interpret. With
 * SGL_TESTS_ACCEPT=1 what is expected is rewritten as it came out. Out: one line per case, status 1 when one fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/support/ir_case.h"

enum { MOST_PASSES = 16, WORD_BYTES = 64 };

typedef struct test_case {
    const char *path;
    char *text; /* the file; cut into sections */
    char *reason, *input, *expected, *error;
    char passes[MOST_PASSES][WORD_BYTES];
    int pass_count;
    bool runs;
    sglplan plan;
    ir_message message;
    sglcore_env env;
} test_case;

static bool fail(test_case *t, const char *format, ...) SGL_PRINTF(2, 3);
static bool fail(test_case *t, const char *format, ...)
{
    char text[sizeof t->message.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(t->message.text, text, sizeof text);
    return false;
}

/* ---- reading a case ----------------------------------------------------------------------------------------- */

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    char *text = NULL;
    size_t count = 0, got;
    do {
        char *more = realloc(text, count + 4097);
        if (more == NULL) abort();
        text = more;
        got = fread(text + count, 1, 4096, file);
        count += got;
    } while (got > 0);
    text[count] = '\0';
    fclose(file);
    return text;
}

static bool set_plan(test_case *t, char *words)
{
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        if (value == NULL) return fail(t, "a plan has fields key=value, not '%s'", word);
        *value++ = '\0';
        if (strcmp(word, "native") == 0) {
            sglir_op op = sglir_op_find(value);
            if (op == SGLIR_OP_COUNT) return fail(t, "there is no op '%s'", value);
            t->plan.native[op] = true;
            continue;
        }
        char *end;
        long long number = strtoll(value, &end, 10);
        sglir_named field = *end == '\0' ? SGLIR_I(word, number) : SGLIR_S(word, value);
        if (sglplan_set(&t->env, &t->plan, &field) != SGL_OK) return fail(t, "%s", t->env.message);
    }
    return true;
}

/* One "== ..." line; `rest` is what follows it. */
static bool open_section(test_case *t, char *title, char *rest)
{
    if (strcmp(title, "input") == 0) {
        t->input = rest;
    } else if (strcmp(title, "expect") == 0) {
        t->expected = rest;
    } else if (strcmp(title, "error") == 0) {
        t->error = rest;
    } else if (strcmp(title, "not run") == 0) {
        t->runs = false;
    } else if (strncmp(title, "plan ", 5) == 0) {
        return set_plan(t, title + 5);
    } else if (strncmp(title, "pass ", 5) == 0) {
        if (t->pass_count == MOST_PASSES || strlen(title + 5) >= WORD_BYTES) return fail(t, "too many passes");
        strcpy(t->passes[t->pass_count++], title + 5);
    } else {
        return fail(t, "there is no section '%s'", title);
    }
    return true;
}

static bool read_case(test_case *t)
{
    t->text = read_all(t->path);
    if (t->text == NULL) return fail(t, "cannot be read");
    t->reason = t->text;
    for (char *line = t->text; *line != '\0';) {
        char *end = line + strcspn(line, "\n"), *next = *end == '\0' ? end : end + 1;
        if (strncmp(line, "== ", 3) == 0) {
            line[0] = '\0'; /* ends the section before */
            *end = '\0';
            if (!open_section(t, line + 3, next)) return false;
        }
        line = next;
    }
    if (t->reason[0] != '#') return fail(t, "begins with no reason (# ...)");
    if (t->input == NULL) return fail(t, "has no input");
    return (t->expected == NULL) != (t->error == NULL) || fail(t, "needs one of expect and error");
}

/* ---- comparing ---------------------------------------------------------------------------------------------- */

static bool has_origins(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_origin *o = &g->origins.data[g->nodes.data[n].origin];
        if (o->file != 0 || o->line != 0 || o->scope != 0 || o->pass != 0) return true;
    }
    return false;
}

static bool has_grad(const sglir_graph *g)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op == SGLIR_OP_GRAD) return true;
    }
    return false;
}

/* The first line in which the texts differ, with the one before. */
static bool fail_difference(test_case *t, const char *expected, const char *found)
{
    size_t line = 1, start = 0, at = 0;
    while (expected[at] == found[at] && expected[at] != '\0') {
        if (expected[at] == '\n') {
            line++;
            start = at + 1;
        }
        at++;
    }
    return fail(t, "line %zu differs\n  expected: %.*s\n  found:    %.*s\nthe whole:\n%.3000s", line,
                (int)strcspn(expected + start, "\n"), expected + start, (int)strcspn(found + start, "\n"),
                found + start, found);
}

/* Rewrites the file with `found` in place of what it expects. */
static bool accept(test_case *t, const char *found)
{
    char *whole = read_all(t->path);
    char *mark = whole == NULL ? NULL : strstr(whole, "\n== expect\n");
    if (mark == NULL) {
        free(whole);
        return fail(t, "has no place to rewrite");
    }
    FILE *file = fopen(t->path, "wb");
    bool good = file != NULL;
    if (good) good = fprintf(file, "%.*s\n== expect\n%s", (int)(mark - whole), whole, found) > 0;
    if (file != NULL) good = fclose(file) == 0 && good;
    free(whole);
    return good || fail(t, "cannot be rewritten");
}

static bool check_expected(test_case *t, sglir_graph *result)
{
    const char *wish = getenv("SGL_TESTS_ACCEPT");
    bool accepting = wish != NULL && strcmp(wish, "1") == 0;
    sglir_graph *expected = ir_case_parse(&t->env, t->path, t->expected, &t->message);
    if (expected == NULL && !accepting) return false;
    bool origins = expected != NULL && has_origins(expected);
    for (int64_t n = 0; n < result->nodes.count && !origins; n++) result->nodes.data[n].origin = 0;
    sglcore_text found = ir_case_print(&t->env, result), wanted = { 0 };
    if (expected != NULL) wanted = ir_case_print(&t->env, expected);
    bool same = expected != NULL && strcmp(found.data, wanted.data) == 0;
    if (!same) same = accepting ? accept(t, found.data) : fail_difference(t, wanted.data, found.data);
    sglcore_text_free(&t->env, &found);
    sglcore_text_free(&t->env, &wanted);
    sglir_graph_free(expected);
    return same;
}

/* ---- running a case ----------------------------------------------------------------------------------------- */

static const sglpass *pass_named(const char *name)
{
    for (int i = 0; sglpass_pipeline[i].name != NULL; i++) {
        if (strcmp(sglpass_pipeline[i].name, name) == 0) return &sglpass_pipeline[i];
    }
    return NULL;
}

/* Runs the passes; *result is a new graph also when there is none of them (then it is the input, rewritten). */
static sgl_status run_passes(test_case *t, const sglir_graph *input, sglir_graph **result)
{
    sglpass_context context = { .env = &t->env, .plan = &t->plan };
    const sglir_graph *now = input;
    *result = NULL;
    for (int i = 0; i < t->pass_count; i++) {
        const sglpass *pass = pass_named(t->passes[i]);
        sglir_graph *next = NULL;
        sgl_status status = SGL_NOT_FOUND;
        if (pass == NULL) {
            sglcore_fail(&t->env, status, "there is no pass '%s'", t->passes[i]);
        } else {
            status = pass->run(&context, now, &next);
            if (status == SGL_OK) status = sglir_verify(next, pass->stage);
        }
        sglir_graph_free(*result);
        *result = NULL;
        if (status != SGL_OK) {
            sglir_graph_free(next);
            return status;
        }
        now = *result = next;
    }
    return t->pass_count > 0 ? SGL_OK : sglir_rewrite_graph(&t->env, input, "test", NULL, NULL, result);
}

static bool check_error(test_case *t, sgl_status status)
{
    size_t length = strlen(t->error);
    while (length > 0 && (t->error[length - 1] == '\n' || t->error[length - 1] == ' ')) t->error[--length] = '\0';
    if (status == SGL_OK) return fail(t, "succeeds; expected was: %s", t->error);
    return strstr(t->env.message, t->error) != NULL || fail(t, "fails otherwise: %s", t->env.message);
}

static bool check_result(test_case *t, const sglir_graph *input, sglir_graph *result)
{
    if (!ir_case_round_trip(&t->env, result, &t->message)) return false;
    ir_tolerance tolerance = { 1e-12, 0 };
    if (has_grad(input)) tolerance = (ir_tolerance){ 1e-6, 1e-9 };               /* it is taken by differences */
    if (t->plan.precision == SGL_BF16) tolerance = (ir_tolerance){ 0.04, 1e-3 }; /* ten roundings of 2^-8 */
    if (t->plan.precision == SGL_F16) tolerance = (ir_tolerance){ 0.005, 1e-4 };
    for (uint64_t seed = 1; seed <= 2 && t->runs; seed++) {
        if (!ir_case_same_meaning(input, result, seed, tolerance, &t->message)) return false;
    }
    return check_expected(t, result);
}

static bool run_input(test_case *t, const sglir_graph *input)
{
    if (sglir_verify(input, SGLIR_LOGICAL) != SGL_OK) return fail(t, "the input does not verify: %s", t->env.message);
    if (!ir_case_round_trip(&t->env, input, &t->message)) return false;
    sglir_graph *result;
    sgl_status status = run_passes(t, input, &result);
    bool good;
    if (t->error != NULL) {
        good = check_error(t, status);
    } else if (status != SGL_OK) {
        good = fail(t, "%s", t->env.message);
    } else {
        good = check_result(t, input, result);
    }
    sglir_graph_free(result);
    return good;
}

static bool run_case(test_case *t)
{
    sglplan_init(&t->plan);
    if (!read_case(t)) return false;
    sglir_graph *input;
    if (t->error != NULL && t->pass_count == 0) { /* the text itself is wrong, or what the verifier sees in it */
        sgl_status status = sglir_parse(&t->env, "input", t->input, strlen(t->input), &input);
        if (status == SGL_OK) status = sglir_verify(input, SGLIR_LOGICAL);
        sglir_graph_free(input);
        return check_error(t, status);
    }
    input = ir_case_parse(&t->env, "input", t->input, &t->message);
    if (input == NULL) return false;
    bool good = run_input(t, input);
    sglir_graph_free(input);
    return good;
}

int main(int count, char **paths)
{
    int failures = count < 2;
    for (int i = 1; i < count; i++) {
        test_case t = { .path = paths[i], .runs = true };
        sglcore_env_init(&t.env, NULL, NULL, NULL, NULL);
        bool good = run_case(&t);
        free(t.text);
        if (good && t.env.bytes_in_use != 0) good = fail(&t, "leaks %lld bytes", (long long)t.env.bytes_in_use);
        printf("%s %s%s%s\n", good ? "ok  " : "FAIL", t.path, good ? "" : ": ", good ? "" : t.message.text);
        failures += !good;
    }
    if (count < 2) fputs("ir_run FILE...: runs text cases\n", stderr);
    return failures > 0;
}
