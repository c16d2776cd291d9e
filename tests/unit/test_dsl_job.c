/* test_dsl_job.c -- the scripts part of sgl.h as a host sees it: files, settings, graphs, plans, data, meta.
 *
 * Scripts and data are written into the folder that the test runs in. */
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "dsl_host.h"

static const char model[] =
    "local sgl = require 'sgl'\n"
    "local nn, optim, data = sgl.nn, sgl.optim, sgl.data\n"
    "local cfg = sgl.config { dim = 8, rate = 0.5, name = 'tiny', bias = true, path = 'tokens.txt' }\n"
    "local embed, head = nn.embedding(256, cfg.dim), nn.linear(cfg.dim, 256)\n"
    "local model = nn.module('tiny', { embed = embed, head = head }, function(tokens) return head(embed(tokens)) end)\n"
    "return sgl.job {\n"
    "  model = model, steps = 7,\n"
    "  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,\n"
    "  data = data.text { path = cfg.path, seq = 4, batch = 2 },\n"
    "  optim = optim.adamw { lr = cfg.rate },\n"
    "}\n";

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void message_begins(const dsl_host *host, const char *begin)
{
    if (strncmp(sgl_error_message(host->vm), begin, strlen(begin)) != 0) {
        fail_msg("'%s' does not begin with '%s'", sgl_error_message(host->vm), begin);
    }
}

static sgl_job *load_model(dsl_host *host, const sgl_setting *settings, int count)
{
    sgl_job *job;
    dsl_open(host);
    sgl_status status = sgl_load_text(host->vm, "tiny.lua", model, settings, count, &job);
    if (status != SGL_OK) fail_msg("%s", sgl_error_message(host->vm));
    return job;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

static void test_files(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    mkdir("scripts", 0755);
    mkdir("scripts/parts", 0755);
    write_file("scripts/tiny.lua", model);
    write_file("scripts/uses.lua", "#!/usr/bin/env sgl\n"
                                   "local a, b = require 'part', require 'parts.deep'\n"
                                   "assert(a.value == 5 and b == true and require 'part' == a)\n"
                                   "return require('sgl.core').job { a }\n");
    write_file("scripts/part.lua", "return { value = 5, name = ... }\n");
    write_file("scripts/parts/deep.lua", "loaded_deep = true\n");
    write_file("scripts/circle.lua", "require 'circle'\n");
    write_file("scripts/broken.lua", "local x = 1\nlocal y = = 2\n");
    write_file("scripts/bad_part.lua", "\nrequire 'broken'\n");
    write_file("scripts/latin.lua", "return 1 -- caf\xE9\n");
    write_file("part.lua", "error 'not this one'\n");
    dsl_open(&host);
    assert_int_equal(sgl_load_file(host.vm, "scripts/tiny.lua", NULL, 0, &job), SGL_OK);
    sgl_job_free(job);
    assert_int_equal(sgl_load_file(host.vm, "scripts/uses.lua", NULL, 0, &job), SGL_OK);
    sgl_job_free(job);
    assert_int_equal(sgl_load_file(host.vm, "scripts/tiyn.lua", NULL, 0, &job), SGL_NOT_FOUND);
    message_begins(&host, "scripts/tiyn.lua: there is no such file; did you mean 'scripts/tiny.lua'?");
    assert_int_equal(sgl_load_file(host.vm, "nowhere/tiny.lua", NULL, 0, &job), SGL_NOT_FOUND);
    message_begins(&host, "nowhere/tiny.lua: there is no such file");
    assert_int_equal(sgl_load_file(host.vm, "scripts", NULL, 0, &job), SGL_IO);
    message_begins(&host, "scripts: is a folder, not a file");
    assert_int_equal(sgl_load_file(host.vm, "/dev/zero", NULL, 0, &job), SGL_IO);
    assert_int_equal(sgl_load_file(host.vm, "scripts/circle.lua", NULL, 0, &job), SGL_SCRIPT);
    message_begins(&host, "scripts/circle.lua:1: require: module 'circle' needs itself to load");
    assert_int_equal(sgl_load_file(host.vm, "scripts/bad_part.lua", NULL, 0, &job), SGL_SCRIPT);
    message_begins(&host, "scripts/broken.lua:2: ");
    assert_int_equal(sgl_load_file(host.vm, "scripts/latin.lua", NULL, 0, &job), SGL_SCRIPT);
    message_begins(&host, "scripts/latin.lua:1: byte 15 (0xE9) is no UTF-8 text");
    assert_int_equal(sgl_load_text(host.vm, "x", "require 'part'", NULL, 0, &job), SGL_SCRIPT);
    dsl_close(&host);
}

static void test_what_is_returned(void **state)
{
    (void)state;
    dsl_fails("local x = 1", NULL, SGL_SCRIPT,
              "case.lua: it returned nothing; a script ends with `return sgl.job { ... }`");
    dsl_fails("return {}", NULL, SGL_SCRIPT, "case.lua: it returned a table value");
    dsl_fails("core.job {} return 5", NULL, SGL_SCRIPT, "case.lua: the job that it made is not what it returned");
    dsl_fails("core.job(5)", NULL, SGL_SCRIPT, "case.lua:1: bad argument");
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

static sgl_status load_with(dsl_host *host, const char *key, const char *value)
{
    sgl_job *job;
    sgl_setting setting = { key, value };
    sgl_status status = sgl_load_text(host->vm, "tiny.lua", model, &setting, 1, &job);
    sgl_job_free(job);
    return status;
}

static void test_settings(void **state)
{
    (void)state;
    dsl_host host;
    sgl_setting settings[] = {
        { "dim", "4" }, { "rate", "2" }, { "bias", "0" }, { "dim", "16" }, { "plan.micro", "2" }
    };
    sgl_job *job = load_model(&host, settings, 5);
    static const char *const expected[][3] = { { "bias", "false", "boolean" },
                                               { "dim", "16", "integer" },
                                               { "name", "tiny", "string" },
                                               { "path", "tokens.txt", "string" },
                                               { "rate", "2", "number" } };
    const char *key, *value, *type;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sgl_job_setting(job, i, &key, &value, &type), SGL_OK);
        assert_string_equal(key, expected[i][0]);
        assert_string_equal(type, expected[i][2]);
        if (strcmp(key, "rate") != 0) assert_string_equal(value, expected[i][1]);
        assert_true(strtod(value, NULL) == strtod(expected[i][1], NULL));
    }
    assert_int_equal(sgl_job_setting(job, 5, &key, &value, &type), SGL_OK);
    assert_null(key);
    assert_int_equal(load_with(&host, "dmi", "4"), SGL_INVALID_ARGUMENT);
    message_begins(&host, "setting 'dmi': tiny.lua has no such field; did you mean 'dim'?");
    assert_int_equal(load_with(&host, "quite_else", "4"), SGL_INVALID_ARGUMENT);
    message_begins(&host,
                   "setting 'quite_else': tiny.lua has no such field; its fields are: bias, dim, name, path, rate");
    assert_int_equal(load_with(&host, "data.paht", "4"), SGL_INVALID_ARGUMENT);
    assert_int_equal(load_with(&host, "dim", "x\xFFy"), SGL_SCRIPT);
    assert_int_equal(load_with(&host, "dim", "four"), SGL_SCRIPT);
    message_begins(&host, "tiny.lua:3: config: dim must be an integer");
    assert_int_equal(load_with(&host, "bias", "maybe"), SGL_SCRIPT);
    assert_int_equal(load_with(&host, "dim", "1.5"), SGL_SCRIPT);
    assert_int_equal(load_with(&host, "rate", "1e-2"), SGL_OK);
    assert_int_equal(load_with(&host, "data.path", "other.txt"), SGL_OK);
    dsl_close(&host);
}

/* Numbers come as texts that read back the same. */
static void test_declared_numbers(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    const char *key, *value, *type;
    dsl_open(&host);
    assert_int_equal(
        dsl_load(
            &host,
            "core.declare('a', 'number', 0.1) core.declare('b', 'number', 1 / 3) core.declare('c', 'integer', 1 << 62)\n"
            "core.declare('d', 'boolean', true) core.declare('a', 'number', 3e-4)\n"
            "assert(not pcall(core.declare, 'x', 'table', {}) and not pcall(core.declare, 'x', 'number', {}))\n"
            "return core.job {}",
            &job),
        SGL_OK);
    static const char *const expected[] = { "0.0003", "0.3333333333333333", "4611686018427387904", "true" };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sgl_job_setting(job, i, &key, &value, &type), SGL_OK);
        assert_string_equal(value, expected[i]);
    }
    dsl_close(&host);
}

/* ---- graphs, plans, numbers ----------------------------------------------------------------------------------------- */

static void test_graphs(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job = load_model(&host, NULL, 0);
    sgl_graph *graph, *again;
    static const char *const names[] = { "init", "train", "eval", "decode" };
    for (int i = 0; i < 4; i++) {
        sgl_status status = sgl_job_graph(job, names[i], &graph);
        if (status != SGL_OK) fail_msg("%s: %s", names[i], sgl_error_message(host.vm));
        assert_int_equal(sgl_job_graph(job, names[i], &again), SGL_OK);
        assert_ptr_equal(graph, again);
    }
    assert_int_equal(sgl_job_graph(job, "trian", &graph), SGL_INVALID_ARGUMENT);
    double value;
    assert_int_equal(sgl_job_number(job, "steps", &value), SGL_OK);
    assert_true(value == 7);
    assert_int_equal(sgl_job_number(job, "no_such", &value), SGL_NOT_FOUND);
    assert_int_equal(sgl_job_number(job, "model", &value), SGL_NOT_FOUND);
    sgl_plan *plan;
    assert_int_equal(sgl_job_plan(job, &plan), SGL_OK);
    sgl_plan_free(plan);
    sgl_job_free(job);
    dsl_close(&host);
}

static void test_errors_while_tracing(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    sgl_graph *graph;
    char text[sizeof model + 200];
    const char *mark = strstr(model, "nn.cross_entropy(model(");
    snprintf(text, sizeof text, "%.*sloss_of(%s", (int)(mark - model), model, mark + strlen("nn.cross_entropy("));
    dsl_open(&host);
    assert_int_equal(sgl_load_text(host.vm, "tiny.lua", text, NULL, 0, &job), SGL_OK);
    assert_int_equal(sgl_job_graph(job, "train", &graph), SGL_SCRIPT);
    message_begins(&host, "tiny.lua:8: attempt to call a nil value (global 'loss_of')\n  at tiny.lua:8 in ");
    assert_null(graph);
    assert_int_equal(sgl_job_graph(job, "init", &graph), SGL_OK); /* one that fails spoils no other */
    dsl_close(&host);
}

/* ---- token files --------------------------------------------------------------------------------------------------- */

/* The first batch of the model, whose job says `seed` where it is not NULL. */
static void first_batch(dsl_host *host, const char *seed, const sgl_setting *setting, int32_t inputs[8])
{
    char text[sizeof model + 40];
    const char *mark = strstr(model, "steps = 7,");
    sgl_job *job = NULL;
    sgl_tokens *tokens = NULL;
    int32_t targets[8];
    snprintf(text, sizeof text, "%.*s%s%s", (int)(mark - model), model, seed != NULL ? seed : "", mark);
    if (sgl_load_text(host->vm, "tiny.lua", text, setting, setting != NULL, &job) != SGL_OK ||
        sgl_job_tokens(job, &tokens) != SGL_OK || sgl_tokens_train(tokens, 0, inputs, targets) != SGL_OK) {
        fail_msg("%s", sgl_error_message(host->vm));
    }
    sgl_tokens_free(tokens);
    sgl_job_free(job);
}

/* The seed of a job orders its data, wherever it comes from. */
static void check_seed_of_data(dsl_host *host)
{
    const sgl_setting setting = { "job.seed", "5" };
    int32_t none[8], table[8], set[8], both[8];
    first_batch(host, NULL, NULL, none);
    first_batch(host, "seed = 5, ", NULL, table);
    first_batch(host, NULL, &setting, set);
    first_batch(host, "seed = 9, ", &setting, both);
    assert_memory_not_equal(none, table, sizeof none);
    assert_memory_equal(table, set, sizeof set);
    assert_memory_equal(set, both, sizeof both);
}

static void test_tokens(void **state)
{
    (void)state;
    char text[2001];
    for (int i = 0; i < 2000; i++) text[i] = (char)('a' + i % 26);
    text[2000] = '\0';
    write_file("tokens.txt", text);
    dsl_host host;
    sgl_job *job = load_model(&host, NULL, 0);
    sgl_tokens *tokens;
    if (sgl_job_tokens(job, &tokens) != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    int32_t inputs[8], targets[8];
    assert_int_equal(sgl_tokens_train(tokens, 0, inputs, targets), SGL_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(targets[i], inputs[i + 1]);
    sgl_tokens_free(tokens);
    sgl_job_free(job);
    sgl_setting absent = { "data.path", "absent.txt" }, none = { "data.path", "" };
    assert_int_equal(sgl_load_text(host.vm, "tiny.lua", model, &absent, 1, &job), SGL_OK);
    assert_int_not_equal(sgl_job_tokens(job, &tokens), SGL_OK);
    assert_non_null(strstr(sgl_error_message(host.vm), "absent.txt"));
    assert_null(tokens);
    assert_int_equal(sgl_load_text(host.vm, "tiny.lua", model, &none, 1, &job), SGL_OK);
    assert_int_equal(sgl_job_tokens(job, &tokens), SGL_INVALID_ARGUMENT);
    message_begins(&host, "the job's data names no file");
    check_seed_of_data(&host);
    dsl_close(&host);
}

/* ---- batches of Lua --------------------------------------------------------------------------------------------------- */

static const char batches[] =
    "local sgl = require 'sgl'\n"
    "local w = sgl.nn.parameter { 3, init = sgl.nn.init.constant(1) }\n"
    "local model = sgl.nn.module('line', { w = w }, function(x) return x * w() end)\n"
    "local float, u8, bool = string.pack('<fff', 4, 5, 6), { 0, 255 }, { true, 0, 1 }\n"
    "local given = {\n"
    "  [0] = { x = { 1, 2, 3.5 }, n = u8, b = bool, k = { 1, -2 } },\n"
    "  { x = float, n = '\\1\\2', b = bool, k = { 3, math.maxinteger } },\n"
    "  { x = { 1, 2 }, n = u8, b = bool, k = { 1, 2 } },\n"
    "  { x = { 1, 2, 3 }, n = { 1, 256 }, b = bool, k = { 1, 2 } },\n"
    "  { x = { 1, 2, 'x' }, n = u8, b = bool, k = { 1, 2 } },\n"
    "  { x = { 1, 2, 3 }, n = u8, b = bool, k = { 1, 2.5 } },\n"
    "  { x = { 1, 2, 3 }, n = u8, b = bool },\n"
    "  { x = { 1, 2, 3 }, n = u8, b = bool, k_ = { 1, 2 } },\n"
    "  { x = 'four', n = u8, b = bool, k = { 1, 2 } },\n"
    "  5,\n"
    "  { 1, 2, 3 },\n"
    "  { x = { 1, 2, 3 }, n = u8, b = { 2, 0, 0 }, k = { 1, 2 } },\n"
    "}\n"
    "return sgl.job {\n"
    "  model = model,\n"
    "  step = function(batch)\n"
    "    local n, k = batch.n:cast('f32'):sum(), batch.k:cast('f32'):sum()\n"
    "    local value = (model(batch.x) * batch.b:cast('f32')):sum()\n"
    "    return { x = value, n = n, k = k }\n"
    "  end,\n"
    "  data = sgl.data.batches {\n"
    "    feeds = { x = { dtype = 'f32', dims = { 3 } }, n = { dtype = 'u8', dims = { 2 } }, b = { dtype = 'bool', dims = { 3 } },\n"
    "      k = { dtype = 'i64', dims = { 2 } } },\n"
    "    next = function(cursor, is_eval) if is_eval then error('no eval', 0) end return given[cursor] end,\n"
    "  },\n"
    "}\n";

/* Names that differ by case alone, and one too long to be compared with others. */
static const char named[] =
    "local sgl = require 'sgl'\n"
    "local long, one = ('long_'):rep(20), { dtype = 'f32', dims = { 1 } }\n"
    "local w = sgl.nn.parameter { 1, init = sgl.nn.init.constant(1) }\n"
    "local model = sgl.nn.module('line', { w = w }, function(x) return x * w() end)\n"
    "return sgl.job {\n"
    "  model = model,\n"
    "  step = function(batch) return { value = model(batch.x + batch.X + batch[long]):sum() } end,\n"
    "  data = sgl.data.batches { feeds = { x = one, X = one, [long] = one },\n"
    "    next = function() return { x = { 1 }, X = { 2 }, [long] = { 3 } } end },\n"
    "}\n";

static void test_names_of_feeds(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    sgl_session *session;
    sgl_program *program;
    sgl_graph *graph;
    dsl_open(&host);
    if (sgl_load_text(host.vm, "named.lua", named, NULL, 0, &job) != SGL_OK ||
        sgl_job_graph(job, "train", &graph) != SGL_OK || sgl_session_new(host.vm, "null", &session) != SGL_OK ||
        sgl_freeze(session, graph, NULL, &program) != SGL_OK || sgl_job_feed(job, program, 0, 0) != SGL_OK) {
        fail_msg("%s", sgl_error_message(host.vm));
    }
    dsl_close(&host);
}

static void test_batches(void **state)
{
    (void)state;
    static const char *const errors[] = {
        "batch: 'x' has 2 elements, the feed f32[3] takes 3; give a flat list",
        "batch: element 2 of 'n' is 256, which is no u8",
        "batch: element 3 of 'x' is x, which is no f32",
        "batch: element 2 of 'k' is 2.5, which is no i64",
        "batch: it lacks the feed 'k' (i64[2])",
        "batches.lua:19: batch: the data declares no feed 'k_'; there are b, k, n, x",
        "batch: 'x' has 4 bytes, the feed f32[3] takes 12",
        "batch: the data function gave a number value, it must give a table of feeds",
        "batches.lua:19: batch: its keys must be the names of feeds",
        "batch: element 1 of 'b' is 2, which is no bool",
    };
    dsl_host host;
    sgl_job *job;
    sgl_session *session;
    sgl_program *program;
    sgl_graph *graph;
    sgl_plan *plan;
    dsl_open(&host);
    if (sgl_load_text(host.vm, "batches.lua", batches, NULL, 0, &job) != SGL_OK ||
        sgl_job_graph(job, "train", &graph) != SGL_OK || sgl_job_plan(job, &plan) != SGL_OK ||
        sgl_session_new(host.vm, "null", &session) != SGL_OK || sgl_freeze(session, graph, plan, &program) != SGL_OK) {
        fail_msg("%s", sgl_error_message(host.vm));
    }
    for (int i = 0; i < 2; i++) {
        if (sgl_job_feed(job, program, i, 0) != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sgl_job_feed(job, program, i + 2, 0), SGL_SCRIPT);
        message_begins(&host, errors[i]);
    }
    assert_int_equal(sgl_job_feed(job, program, 99, 0), SGL_NOT_FOUND);
    assert_int_equal(sgl_job_feed(job, program, 0, 1), SGL_SCRIPT);
    message_begins(&host, "no eval");
    assert_int_equal(sgl_job_feed(job, NULL, 0, 0), SGL_INVALID_ARGUMENT);
    dsl_host other;
    sgl_job *stranger;
    dsl_open(&other);
    assert_int_equal(sgl_load_text(other.vm, "batches.lua", batches, NULL, 0, &stranger), SGL_OK);
    assert_int_equal(sgl_job_feed(stranger, program, 0, 0), SGL_INVALID_ARGUMENT);
    message_begins(&other, "sgl_job_feed: the program is of another VM");
    dsl_close(&other);
    sgl_tokens *tokens;
    assert_int_equal(sgl_job_tokens(job, &tokens), SGL_NOT_FOUND);
    assert_int_equal(sgl_job_graph(job, "eval", &graph), SGL_NOT_FOUND);
    message_begins(&host, "this job declares no eval graph");
    dsl_close(&host);
}

/* ---- meta --------------------------------------------------------------------------------------------------------------- */

/* What a checkpoint keeps must load again where no file is. */
static void test_meta(void **state)
{
    (void)state;
    static const char text[] = "-- \"quotes\", \\ and a tab\t, \xC3\xA9\n"
                               "local core = require 'sgl.core'\n"
                               "local part = require 'meta_part'\n"
                               "core.declare('rows', 'string', core.settings().rows or '')\n"
                               "assert(part == 'part \\n')\n"
                               "return core.job {}\n";
    write_file("meta.lua", text);
    write_file("meta_part.lua", "return 'part \\n'\n");
    dsl_host host;
    sgl_job *job;
    const char *meta;
    sgl_setting settings[] = { { "rows", "a\"b" }, { "plan.micro", "2" } };
    dsl_open(&host);
    assert_int_equal(sgl_load_file(host.vm, "meta.lua", settings, 2, &job), SGL_OK);
    assert_int_equal(sgl_job_meta(job, &meta), SGL_OK);
    json_t *json = json_loads(meta, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(json);
    sgl_job_free(job);
    assert_string_equal(json_string_value(json_object_get(json, "script")), "meta.lua");
    assert_string_equal(json_string_value(json_object_get(json, "text")), text);
    json_t *kept = json_object_get(json, "settings");
    assert_int_equal(json_object_size(kept), 3);
    assert_string_equal(json_string_value(json_object_get(kept, "rows")), "a\"b");
    assert_int_equal(remove("meta.lua") | remove("meta_part.lua"), 0);
    sgl_setting again[3];
    int count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(kept, key, value) again[count++] = (sgl_setting){ key, json_string_value(value) };
    sgl_status status =
        sgl_load_text(host.vm, "meta.lua", json_string_value(json_object_get(json, "text")), again, count, &job);
    if (status != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    assert_int_equal(sgl_job_meta(job, &meta), SGL_OK);
    json_t *second = json_loads(meta, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_equal(json, second));
    json_decref(json);
    json_decref(second);
    dsl_close(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),          cmocka_unit_test(test_what_is_returned),
        cmocka_unit_test(test_settings),       cmocka_unit_test(test_declared_numbers),
        cmocka_unit_test(test_graphs),         cmocka_unit_test(test_errors_while_tracing),
        cmocka_unit_test(test_tokens),         cmocka_unit_test(test_batches),
        cmocka_unit_test(test_names_of_feeds), cmocka_unit_test(test_meta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
