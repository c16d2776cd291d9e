/* test_session.c -- what a host may ask of a session and must not get: loops without an end, sizes beyond memory, reports that
 * do not parse. Through sgl.h alone, on the CPU; nothing may leak. */
#include "fault.h"

#include "store/json.h"

static sgl_vm *open_vm(fault_heap *heap)
{
    sgl_vm *vm;
    const sgl_config config = { .alloc = fault_alloc, .alloc_user = heap };
    assert_int_equal(sgl_open(&config, &vm), SGL_OK);
    return vm;
}

static void close_vm(sgl_vm *vm, const fault_heap *heap)
{
    sgl_close(vm);
    assert_int_equal(heap->live_blocks, 0);
}

static sgl_value emit(sgl_graph *g, const char *op, const sgl_value *arguments, int count, const sgl_attr *attr)
{
    sgl_value made;
    int results;
    assert_int_equal(sgl_emit(g, op, arguments, count, attr, attr ? 1 : 0, &made, 1, &results), SGL_OK);
    assert_int_equal(results, 1);
    return made;
}

/* logits[token] = row `token` of the parameter "table" [4, 4]. */
static sgl_program *freeze_decode(sgl_session *session, sgl_graph *g)
{
    static const int64_t flat[] = { 1, 4 };
    const sgl_type table = { .dtype = SGL_F32, .rank = 2, .dims = { 4, 4 } };
    const sgl_type tokens = { .dtype = SGL_I32, .rank = 2, .dims = { 1, 1 } };
    const sgl_attr dims = { .name = "dims", .kind = SGL_ATTR_INTS, .i = 2, .ints = flat };
    sgl_value arguments[2], logits;
    sgl_program *program;
    assert_int_equal(sgl_graph_origin(g, "a \"b\" & <c>.lua", 3, ""), SGL_OK);
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
    text.count = 0;
    assert_int_equal(sgl_program_report(program, "memory", "svg", take_text, both), SGL_OK);
    assert_non_null(strstr(text.data, "de\"code &#38; &#60;more&#62;: transient"));
    assert_null(strstr(text.data, "<more"));
    assert_null(strstr(text.data, "<c>"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_quote),   cmocka_unit_test(test_generate),
        cmocka_unit_test(test_evaluation_ends), cmocka_unit_test(test_meta),
        cmocka_unit_test(test_states_by_name),  cmocka_unit_test(test_bytes_beyond_64_bits),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
