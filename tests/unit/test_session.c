/* test_session.c -- what a host may ask of a session and must not get: loops without an end, sizes beyond memory, reports that
 * do not parse. Through sgl.h alone, on the CPU; nothing may leak. */
#include "session_case.h"

#include <stdio.h>

#include "store/json.h"

/* logits[token] = row `token` of the parameter "table" [4, 4]. */
static sgl_program *freeze_decode(sgl_session *session, sgl_graph *g)
{
    static const int64_t flat[] = { 1, 4 };
    const sgl_type table = { .dtype = SGL_F32, .rank = 2, .dims = { 4, 4 } };
    const sgl_type tokens = { .dtype = SGL_I32, .rank = 2, .dims = { 1, 1 } };
    const sgl_attr dims = { .name = "dims", .kind = SGL_ATTR_INTS, .i = 2, .ints = flat };
    sgl_value arguments[2], logits;
    sgl_program *program;
    assert_int_equal(sgl_graph_origin(g, "a \"b\" & <c>.lua", 3, "blocks.3.<ffn>"), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_PARAMETER, "table", &table, &arguments[0]), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_FEED, "tokens", &tokens, &arguments[1]), SGL_OK);
    logits = emit(g, "gather", arguments, 2, NULL);
    logits = emit(g, "softmax", &logits, 1, NULL);
    logits = emit(g, "reshape", &logits, 1, &dims);
    assert_int_equal(sgl_output_fetch(g, "logits", logits), SGL_OK);
    assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_OK);
    return program;
}

static sgl_status take_text(void *user, const char *data, size_t bytes)
{
    void **both = user; /* env, text */
    return sglcore_text_bytes(both[0], both[1], data, bytes);
}

static void test_reports_quote(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    assert_int_equal(sgl_graph_new(vm, "de\"code & <more>", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    sgl_program *program = freeze_decode(session, g);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_text text = { 0 };
    void *both[] = { &env, &text };
    assert_int_equal(sgl_program_report(program, "memory", "json", take_text, both), SGL_OK);
    sglstore_json json = { .env = &env, .text = text.data, .bytes = text.count };
    assert_int_equal(sglstore_json_skip(&json, NULL), SGL_OK);
    assert_int_equal(sglstore_json_end(&json), SGL_OK);
    assert_non_null(strstr(text.data, "\"program\":\"de\\\"code & <more>\""));
    assert_non_null(strstr(text.data, "\"scope\":\"blocks.3.<ffn>\""));
    text.count = 0;
    assert_int_equal(sgl_program_report(program, "memory", "svg", take_text, both), SGL_OK);
    assert_non_null(strstr(text.data, "de\"code &#38; &#60;more&#62;: transient"));
    assert_non_null(strstr(text.data, "blocks.3.&#60;ffn&#62;</title>"));
    assert_non_null(strstr(text.data, " blocks.3.&#60;ffn&#62;</text>")); /* a large bar has its name */
    assert_non_null(strstr(text.data, "most is live here: "));
    assert_null(strstr(text.data, "<ffn"));
    assert_null(strstr(text.data, "<more"));
    assert_null(strstr(text.data, "<c>"));
    text.count = 0;
    assert_int_equal(sgl_program_report(program, "memory", "text", take_text, both), SGL_OK);
    assert_non_null(strstr(text.data, ".lua:3  blocks.3.<ffn>\n"));
    sglcore_text_free(&env, &text);
    close_vm(vm, &heap);
}

static sgl_status count_token(void *user, int32_t token)
{
    *(int *)user += token == 2;
    return SGL_OK;
}

static void test_generate(void **state)
{
    (void)state;
    static const int32_t prompt[] = { 0 };
    static const float table[16] = { [2] = 5, [10] = 5 };
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    int twos = 0;
    assert_int_equal(sgl_graph_new(vm, "decode", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    sgl_generate_config config = { .decode = freeze_decode(session, g),
                                   .prompt = prompt,
                                   .prompt_count = 1,
                                   .count = 3,
                                   .on_token = count_token,
                                   .user = &twos };
    assert_int_equal(sgl_state_write(session, "table", table, sizeof table), SGL_OK);
    assert_int_equal(sgl_generate(session, &config), SGL_OK);
    assert_int_equal(twos, 3);
    config.count = INT64_MAX; /* with the prompt: more than 64 bits count */
    assert_int_equal(sgl_generate(session, &config), SGL_LIMIT);
    config.count = (int64_t)1 << 62; /* in bytes: the same */
    assert_int_equal(sgl_generate(session, &config), SGL_LIMIT);
    assert_int_equal(twos, 3);
    close_vm(vm, &heap);
}

static void test_evaluation_ends(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    assert_int_equal(sgl_graph_new(vm, "eval", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    sgl_program *program = freeze_decode(session, g);
    const sgl_train_config config = { .train = program, .eval = program };
    assert_int_equal(sgl_train(session, &config), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(vm),
                        "sgl_train: nothing says where evaluation ends; give tokens, feed or eval_batches");
    close_vm(vm, &heap);
}

/* What the host keeps beside step and seed: checked before the first step, kept as it stands, our own keys replaced. */
static void test_meta(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    const char *path, *meta;
    int64_t step;
    assert_int_equal(sgl_graph_new(vm, "train", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    sgl_train_config config = {
        .train = freeze_decode(session, g), .steps = 2, .seed = 7, .out = "meta.run", .keep = 1
    };
    static const char *const bad[] = { "[]", "{", "{\"a\": 1} 2", "{\"a\": nul}", "" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.meta = bad[i];
        assert_int_equal(sgl_train(session, &config), SGL_INVALID_ARGUMENT);
        assert_int_equal(sgl_checkpoint_find(vm, "meta.run", &path, &meta, &step), SGL_NOT_FOUND);
    }
    config.meta = "{ \"step\": \"mine\", \"a \\\"b\\\"\": [1, {\"seed\": 2.50}],\"last\":null }";
    assert_int_equal(sgl_train(session, &config), SGL_OK);
    assert_int_equal(sgl_checkpoint_find(vm, "meta.run", &path, &meta, &step), SGL_OK);
    assert_int_equal(step, 2);
    assert_string_equal(
        meta,
        "{\"a \\\"b\\\"\":[1, {\"seed\": 2.50}],\"last\":null,\"step\":2,\"steps\":2,\"cursor\":2,\"seed\":7,\"evaluated\":-1}");
    close_vm(vm, &heap);
}

static void test_states_by_name(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    float table[16];
    assert_int_equal(sgl_graph_new(vm, "decode", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "cpu", &session), SGL_OK);
    assert_int_equal(sgl_state_read(session, "table", table, sizeof table), SGL_NOT_FOUND);
    (void)freeze_decode(session, g);
    assert_int_equal(sgl_state_read(session, "table", table, sizeof table), SGL_OK);
    assert_int_equal(sgl_state_read(session, "table", table, 4), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_state_read(session, "tabel", table, sizeof table), SGL_NOT_FOUND);
    assert_string_equal(sgl_error_message(vm), "the session has no state 'tabel'; did you mean 'table'?");
    const char *name;
    assert_int_equal(sgl_state_info(session, 0, &name, NULL, NULL), SGL_OK);
    assert_string_equal(name, "table");
    assert_int_equal(sgl_state_info(session, 1, &name, NULL, NULL), SGL_OK);
    assert_null(name);
    assert_int_equal(sgl_state_read(session, "section.0", table, sizeof table), SGL_NOT_FOUND); /* it is no state */
    close_vm(vm, &heap);
}

static void test_bytes_beyond_64_bits(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_graph *g;
    sgl_session *session;
    sgl_program *program;
    const sgl_type half = { .dtype = SGL_F32, .rank = 2, .dims = { 1 << 30, 1 << 29 } }; /* 2^61 bytes */
    sgl_value values[3];
    assert_int_equal(sgl_graph_new(vm, "large", &g), SGL_OK);
    assert_int_equal(sgl_session_new(vm, "null", &session), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_FEED, "a", &half, &values[0]), SGL_OK);
    assert_int_equal(sgl_output_fetch(g, "a", values[0]), SGL_OK);
    assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_OK);
    assert_int_equal(sgl_input(g, SGL_FEED, "b", &half, &values[1]), SGL_OK);
    values[2] = emit(g, "add", values, 2, NULL);
    assert_int_equal(sgl_output_fetch(g, "c", values[2]), SGL_OK);
    assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_LIMIT);
    assert_string_equal(sgl_error_message(vm),
                        "the values of the graph \"large\" have more bytes together than can be planned");
    close_vm(vm, &heap);
}

/* w [4] of that role, and w + 1 fetched, in a graph of that name. */
static sgl_graph *graph_of(sgl_vm *vm, const char *name, const char *state_name, sgl_role role, int64_t extent)
{
    sgl_graph *g;
    const sgl_type type = { .dtype = SGL_F32, .rank = 1, .dims = { extent } };
    sgl_value values[2];
    assert_int_equal(sgl_graph_new(vm, name, &g), SGL_OK);
    assert_int_equal(sgl_input(g, role, state_name, &type, &values[0]), SGL_OK);
    values[1] = values[0];
    assert_int_equal(sgl_output_fetch(g, "sum", emit(g, "add", values, 2, NULL)), SGL_OK);
    return g;
}

/* Whatever two handles a call takes, of two VMs they are refused, and the message stands in the first one's. */
static void test_handles_of_two_vms(void **state)
{
    (void)state;
    fault_heap heap = { 0 }, other_heap = { 0 };
    sgl_vm *vm = open_vm(&heap), *other = open_vm(&other_heap);
    sgl_session *session, *other_session;
    sgl_plan *other_plan;
    sgl_program *program = NULL;
    sgl_tokens *tokens;
    case_text text = { 0 };
    assert_int_equal(sgl_session_new(vm, "null", &session), SGL_OK);
    assert_int_equal(sgl_session_new(other, "null", &other_session), SGL_OK);
    sgl_graph *g = graph_of(vm, "g", "w", SGL_PARAMETER, 4), *other_g = graph_of(other, "g", "w", SGL_PARAMETER, 4);
    assert_int_equal(sgl_plan_new(other, &other_plan), SGL_OK);
    assert_int_equal(sgl_freeze(session, other_g, NULL, &program), SGL_INVALID_ARGUMENT);
    assert_null(program);
    assert_string_equal(sgl_error_message(vm), "sgl_freeze: the graph is of another VM; make it on this one");
    assert_int_equal(sgl_freeze(session, g, other_plan, &program), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(vm), "sgl_freeze: the plan is of another VM; make it on this one");
    assert_int_equal(sgl_graph_print(session, other_g, NULL, "", NULL, case_text_write, &text), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_graph_print(session, g, other_plan, "all", NULL, case_text_write, &text),
                     SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(vm), "sgl_graph_print: the plan is of another VM; make it on this one");
    assert_int_equal(text.bytes, 0);
    assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_OK);
    const char *path = "tokens.txt";
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 100; i++) fputc('a' + i % 7, file);
    fclose(file);
    const sgl_tokens_config tokens_config = { .paths = &path, .path_count = 1, .vocab = 256, .seq = 4, .batch = 1 };
    assert_int_equal(sgl_tokens_open(other, &tokens_config, &tokens), SGL_OK);
    sgl_train_config train = { .train = program, .tokens = tokens, .steps = 1 };
    assert_int_equal(sgl_train(session, &train), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(vm), "sgl_train: the token data is of another VM; make it on this one");
    train.tokens = NULL;
    assert_int_equal(sgl_train(other_session, &train), SGL_INVALID_ARGUMENT);
    const sgl_generate_config generate = { .decode = program, .prompt = (int32_t[]){ 0 }, .prompt_count = 1 };
    assert_int_equal(sgl_generate(other_session, &generate), SGL_INVALID_ARGUMENT);
    assert_string_equal(sgl_error_message(other), "sgl_generate: decode must be a program of this session");
    assert_int_equal(sgl_train(session, &train), SGL_OK);
    close_vm(vm, &heap);
    close_vm(other, &other_heap);
}

/* What two programs of a session share must be the same to both; the message names both. */
static void test_states_that_do_not_fit(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sgl_vm *vm = open_vm(&heap);
    sgl_session *session;
    sgl_program *program;
    case_text text = { 0 };
    const struct {
        const char *name;
        sgl_role role;
        int64_t extent;
        const char *message;
    } cases[] = {
        { "w", SGL_STATE, 4,
          "w: program \"second\" wants it as a state, program \"first\" of this session has it as a parameter" },
        { "w", SGL_CACHE, 4,
          "w: program \"second\" wants it as a cache, program \"first\" of this session has it as a parameter" },
        { "w", SGL_PARAMETER, 5,
          "w: program \"second\" wants f32[5], program \"first\" of this session has it as f32[4]" },
        { "count", SGL_PARAMETER, 2,
          "count: program \"second\" wants it as a parameter, program \"third\" of this session has it as a state" },
        { "section.0", SGL_STATE, 4,
          "section.0: program \"first\" of this session has a section of this name; name the state of program \"second\" "
          "otherwise" },
    };
    assert_int_equal(sgl_session_new(vm, "null", &session), SGL_OK);
    assert_int_equal(sgl_freeze(session, graph_of(vm, "first", "w", SGL_PARAMETER, 4), NULL, &program), SGL_OK);
    assert_int_equal(sgl_freeze(session, graph_of(vm, "third", "count", SGL_STATE, 2), NULL, &program), SGL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sgl_graph *g = graph_of(vm, "second", cases[i].name, cases[i].role, cases[i].extent);
        assert_int_equal(sgl_freeze(session, g, NULL, &program), SGL_TYPE);
        assert_string_equal(sgl_error_message(vm), cases[i].message);
        assert_int_equal(sgl_graph_print(session, g, NULL, "all", NULL, case_text_write, &text), SGL_TYPE);
        assert_string_equal(sgl_error_message(vm), cases[i].message);
    }
    sgl_program_free(program); /* the name of the one that brought it stays */
    assert_int_equal(sgl_freeze(session, graph_of(vm, "second", "count", SGL_STATE, 3), NULL, &program), SGL_TYPE);
    assert_non_null(strstr(sgl_error_message(vm), "program \"third\""));
    assert_int_equal(sgl_freeze(session, graph_of(vm, "second", "count", SGL_STATE, 2), NULL, &program), SGL_OK);
    close_vm(vm, &heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_quote),      cmocka_unit_test(test_generate),
        cmocka_unit_test(test_evaluation_ends),    cmocka_unit_test(test_meta),
        cmocka_unit_test(test_states_by_name),     cmocka_unit_test(test_bytes_beyond_64_bits),
        cmocka_unit_test(test_handles_of_two_vms), cmocka_unit_test(test_states_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
