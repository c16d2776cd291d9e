/* test_dsl_console.c -- lines typed by hand: what they give, what they leave behind, what goes wrong, names that complete. */
#include "dsl_host.h"

#include "dsl/console.h"

static char shown[16384];
static size_t shown_bytes;

static sgl_status keep_text(void *user, const char *data, size_t bytes)
{
    (void)user;
    assert_true(shown_bytes + bytes < sizeof shown);
    memcpy(shown + shown_bytes, data, bytes);
    shown_bytes += bytes;
    shown[shown_bytes] = '\0';
    return SGL_OK;
}

static sgl_status run(sgl_job *job, const char *line, bool *incomplete)
{
    shown_bytes = 0;
    shown[0] = '\0';
    return sgldsl_console_run(job, line, incomplete, keep_text, NULL);
}

static void gives(const dsl_host *host, sgl_job *job, const char *line, const char *text)
{
    bool incomplete = true;
    if (run(job, line, &incomplete) != SGL_OK) fail_msg("%s: %s", line, sgl_error_message(host->vm));
    assert_false(incomplete);
    assert_string_equal(shown, text);
}

static void refuses(const dsl_host *host, sgl_job *job, const char *line, const char *message)
{
    if (run(job, line, NULL) == SGL_OK) fail_msg("%s gave %s", line, shown);
    const char *got = sgl_error_message(host->vm);
    if (strncmp(got, message, strlen(message)) != 0) fail_msg("%s: '%s' does not begin with '%s'", line, got, message);
}

static sgl_job *open_console(dsl_host *host)
{
    sgl_job *job;
    dsl_open(host);
    if (sgldsl_console_new(host->vm, &job) != SGL_OK) fail_msg("%s", sgl_error_message(host->vm));
    return job;
}

static void test_values(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job = open_console(&host);
    gives(&host, job, "1 + 1", "2\n");
    gives(&host, job, "'a', nil, true", "a\nnil\ntrue\n");
    gives(&host, job, "local x = 5", "");
    gives(&host, job, "y = 5", "");
    gives(&host, job, "y", "5\n");
    gives(&host, job, "for i = 1, 2 do print(i) end", "");
    assert_string_equal(host.log, "1\n2\n");
    gives(&host, job, "sgl.constant(1.5) * 2", "f32[] 3\n");
    gives(&host, job, "x = sgl.iota({ 2, 3 }, 1):cast('f32')", "");
    gives(&host, job, "x", "f32[2,3]\n{ { 0, 1, 2 },\n  { 0, 1, 2 } }\n");
    gives(&host, job, "x + 0.25", "f32[2,3]\n{ { 0.25, 1.25, 2.25 },\n  { 0.25, 1.25, 2.25 } }\n");
    gives(&host, job, "x:sum(), sgl.less(x, 1)",
          "f32[] 6\nbool[2,3]\n{ { true, false, false },\n  { true, false, false } }\n");
    gives(&host, job, "sgl.iota({ 2, 2, 2 }, 0)",
          "i64[2,2,2]\n{ { { 0, 0 },\n    { 0, 0 } },\n  { { 1, 1 },\n    { 1, 1 } } }\n");
    gives(&host, job, "sgl.zeros({ 0, 3 })", "f32[0,3]\n{}\n");
    gives(&host, job, "sgl.iota({ 1000 })", "i64[1000] { 0, 1, 2, ..., 997, 998, 999 }\n");
    gives(&host, job, "sgl.grad((x * x):sum(), { x })[1]", "f32[2,3]\n{ { 0, 2, 4 },\n  { 0, 2, 4 } }\n");
    gives(&host, job, "sgl.constant(1, 'f64') / 3", "f64[] 0.3333333333\n");
    dsl_close(&host);
}

static void test_errors(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job = open_console(&host);
    gives(&host, job, "x = sgl.iota({ 2, 3 }, 1):cast('f32')", "");
    refuses(&host, job, "x:matmul(x)",
            "console:1: matmul: inner dimensions differ: [2,3] x [2,3]\n  at console:1 in main chunk");
    refuses(&host, job, "x = = 1", "console:1: ");
    refuses(&host, job, "nothing.at.all", "console:1: ");
    job->limits.instructions = 1000000;
    refuses(&host, job, "while true do end", "console:1: the script does not end");
    gives(&host, job, "x:sum()", "f32[] 6\n"); /* what went wrong spoilt nothing */
    bool incomplete = false;
    assert_int_equal(run(job, "for i = 1, 3 do", &incomplete), SGL_OK);
    assert_true(incomplete);
    assert_int_equal(run(job, "f(1,", &incomplete), SGL_OK);
    assert_true(incomplete);
    gives(&host, job, "for i = 1, 3 do\nz = i end", "");
    gives(&host, job, "z", "3\n");
    assert_int_equal(run(NULL, "1", NULL), SGL_INVALID_ARGUMENT);
    assert_int_equal(run(job, NULL, NULL), SGL_INVALID_ARGUMENT);
    sgl_graph *graph;
    assert_int_equal(sgl_job_graph(job, "train", &graph), SGL_SCRIPT); /* there is no script */
    const char *meta;
    assert_int_equal(sgl_job_meta(job, &meta), SGL_SCRIPT);
    dsl_close(&host);
}

static void test_eval(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job = open_console(&host);
    gives(&host, job, "core = require 'sgl.core'", "");
    gives(&host, job, "t = core.eval(sgl.iota({ 2, 3 }, 1))", "");
    gives(&host, job, "#t, #t[1], t[2][3], math.type(t[1][1])", "2\n3\n2\ninteger\n");
    gives(&host, job, "core.eval(sgl.constant(2.5)), core.eval(sgl.less(sgl.constant(1), 2))", "2.5\ntrue\n");
    gives(&host, job, "#core.eval(sgl.zeros({ 0, 3 })), #core.eval(sgl.zeros({ 3, 0 }))", "0\n0\n");
    refuses(&host, job, "core.eval(5)", "console:1: eval: number value where a tensor must be");
    refuses(&host, job, "core.eval(sgl.zeros({ 1 << 20, 1 << 10 }))", "console:1: eval: the tensor has more than");
    dsl_close(&host);
}

static void test_on_a_script(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    assert_int_equal(dsl_load(&host, "rows = 3 return core.job { steps = 5 }", &job), SGL_OK);
    gives(&host, job, "rows, job.steps, sgl ~= nil", "3\n5\ntrue\n");
    gives(&host, job, "sgl.iota({ rows })", "i64[3] { 0, 1, 2 }\n");
    dsl_close(&host);
}

/* ---- completing --------------------------------------------------------------------------------------------------- */

static char candidates[4096];

static void keep_candidate(void *user, const char *candidate)
{
    (void)user;
    assert_true(strlen(candidates) + strlen(candidate) + 2 < sizeof candidates);
    if (candidates[0] != '\0') strcat(candidates, " ");
    strcat(candidates, candidate);
}

static void completes(sgl_job *job, const char *text, size_t start, const char *expected)
{
    size_t at = 0;
    candidates[0] = '\0';
    assert_int_equal(sgldsl_console_complete(job, text, &at, keep_candidate, NULL), SGL_OK);
    assert_int_equal(at, start);
    assert_string_equal(candidates, expected);
}

static void test_completing(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job = open_console(&host);
    gives(&host, job, "x = sgl.constant(1) words = { alpha = 1, beta = { gamma = 2 }, ['not a name'] = 3 }", "");
    completes(job, "y = sgl.nn.lin", 4, "sgl.nn.linear");
    completes(job, "sgl.nn.layer", 0, "sgl.nn.layer_norm");
    completes(job, "x:ex", 0, "x:exp x:exp2 x:expm1");
    completes(job, "f(words.", 2, "words.alpha words.beta");
    completes(job, "words.beta.g", 0, "words.beta.gamma");
    completes(job, "sgl.rms", 0, "sgl.rms_norm");
    completes(job, "wor", 0, "words");
    completes(job, "words.zzz", 0, "");
    completes(job, "nothing.at.all", 0, "");
    completes(job, "sgl.zzz.x", 0, ""); /* what raises has no candidates */
    size_t at;
    candidates[0] = '\0';
    assert_int_equal(sgldsl_console_complete(job, "1 + ", &at, keep_candidate, NULL),
                     SGL_OK); /* nothing typed: all names */
    assert_true(at == 4 && strstr(candidates, "assert ") != NULL && strstr(candidates, " sgl ") != NULL);
    completes(job, "a..b", 0, "");
    gives(&host, job, "x", "f32[] 1\n");
    dsl_close(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_errors),     cmocka_unit_test(test_eval),
        cmocka_unit_test(test_on_a_script), cmocka_unit_test(test_completing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
