/* test_store_json.c -- the JSON reader of the store: what it takes, what it refuses and where, that it gives texts back
 * as they were quoted, and every allocation failing. */
#include "fault.h"

#include "store/json.h"

static sglcore_env env;

static sglstore_json reader_of(const char *text)
{
    return (sglstore_json){ .env = &env, .text = text, .bytes = (int64_t)strlen(text) };
}

static sgl_status skip_all(const char *text)
{
    size_t bytes = strlen(text);
    char *exact = malloc(bytes > 0 ? bytes : 1); /* no zero behind it: a step too far is a sanitizer's report */
    memcpy(exact, text, bytes);
    sglstore_json json = { .env = &env, .text = exact, .bytes = (int64_t)bytes };
    sgl_status status = sglstore_json_skip(&json, NULL);
    if (status == SGL_OK) status = sglstore_json_end(&json);
    free(exact);
    return status;
}

static void test_values(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "12",
        "-1.5e+30",
        "1E5",
        "2e-7",
        "0.25",
        "true",
        "false",
        "null",
        "\"\"",
        "{}",
        "[]",
        " [ ] ",
        "\t{\n}\r ",
        "[1,2,[3,{\"a\":[]}]]",
        "{\"a\":1,\"b\":{\"a\":null}}",
        "\"\\u00e9\\ud83d\\ude00\\n\\\"\\\\\\/\"",
        "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\"",
        "\"\\u0000\"",
    };
    static const char *const bad[] = {
        "",
        " ",
        "01",
        "-",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "tru",
        "nul",
        "True",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"a\nb\"",
        "\"\x01\"",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "{} x",
        "'a'",
        "\"\xC0\x80\"",
        "\"\xE0\x80\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF5\x80\x80\x80\"",
        "\"\xC3\"",
        "\"\xE2\x82\"",
        "\"\x80\"",
        "\"\xFF\"",
        "NaN",
        "Infinity",
        "/* */ 1",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_int_equal(skip_all(good[i]), SGL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(skip_all(bad[i]), SGL_CORRUPT);
        assert_memory_equal(env.message, "line ", 5);
    }
    /* Every beginning of a good text is a bad one, or another good one that ends where it seems to. */
    const char *whole = "{\"k\\u00e9y\": [1.5e3, \"\xC3\xA9\", true, null, {\"a\": -7}]}";
    char start[80];
    for (size_t length = 0; length < strlen(whole); length++) {
        memcpy(start, whole, length);
        start[length] = 0;
        assert_int_equal(skip_all(start), SGL_CORRUPT);
    }
    assert_int_equal(skip_all(whole), SGL_OK);
}

static void test_places(void **state)
{
    (void)state;
    assert_int_equal(skip_all("{\n \"a\": 1,\n  b: 2}"), SGL_CORRUPT);
    assert_string_equal(env.message, "line 3 column 3: a text in quotes is expected");
    assert_int_equal(skip_all("[\"\xC3\xA9\xC3\xA9\", tru]"), SGL_CORRUPT); /* columns are characters */
    assert_string_equal(env.message, "line 1 column 8: no JSON value");
    assert_int_equal(skip_all("[1"), SGL_CORRUPT);
    assert_string_equal(env.message, "line 1 column 3: ',' or ']' is expected");
}

static void test_depth(void **state)
{
    (void)state;
    char text[2 * 65 + 1] = "";
    for (int depth = 63; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        assert_int_equal(skip_all(text), depth <= 64 ? SGL_OK : SGL_CORRUPT);
    }
    assert_non_null(strstr(env.message, "more than 64 levels"));
    char *deep = malloc(1000001); /* no recursion without an end */
    memset(deep, '[', 1000000);
    deep[1000000] = 0;
    assert_int_equal(skip_all(deep), SGL_CORRUPT);
    free(deep);
}

static void test_counts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "-1", "1.0", "1e3", "01", "\"1\"", "", "9223372036854775808", "99999999999999999999999", "null"
    };
    int64_t value = 5;
    sglstore_json json = reader_of(" 9223372036854775807");
    assert_int_equal(sglstore_json_count(&json, &value), SGL_OK);
    assert_true(value == INT64_MAX);
    json = reader_of("0");
    assert_int_equal(sglstore_json_count(&json, &value), SGL_OK);
    assert_int_equal(value, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json = reader_of(bad[i]);
        assert_int_equal(sglstore_json_count(&json, &value), SGL_CORRUPT);
    }
    json = reader_of("[1, -2]");
    bool more;
    assert_int_equal(sglstore_json_open(&json, '['), SGL_OK);
    assert_int_equal(sglstore_json_item(&json, &more), SGL_OK);
    assert_int_equal(sglstore_json_count(&json, &value), SGL_OK);
    assert_int_equal(sglstore_json_item(&json, &more), SGL_OK);
    assert_int_equal(sglstore_json_count(&json, &value), SGL_CORRUPT);
    assert_string_equal(env.message, "line 1 column 5: a whole number of 0 .. 2^63 - 1 is expected");
}

static const char every_sort[] = "a \"quoted\" \\ \b\f\n\r\t\x01\x1F\x7F / \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";

/* Quotes a text and reads it back, as value and as key. */
static sgl_status round_trip(sglcore_env *env_in, void *context)
{
    sglcore_text quoted = { 0 }, back = { 0 };
    bool more = false;
    (void)context;
    sgl_status status = sglcore_text_bytes(env_in, &quoted, "{", 1);
    if (status == SGL_OK) status = sglcore_text_quote(env_in, &quoted, every_sort);
    if (status == SGL_OK) status = sglcore_text_bytes(env_in, &quoted, ":", 1);
    if (status == SGL_OK) status = sglcore_text_quote(env_in, &quoted, every_sort);
    if (status == SGL_OK) status = sglcore_text_bytes(env_in, &quoted, "}", 1);
    sglstore_json json = { .env = env_in, .text = quoted.data, .bytes = quoted.count };
    if (status == SGL_OK) status = sglstore_json_open(&json, '{');
    if (status == SGL_OK) status = sglstore_json_member(&json, &back, &more);
    if (status == SGL_OK) {
        assert_true(more);
        assert_string_equal(back.data, every_sort);
        status = sglstore_json_string(&json, &back);
    }
    if (status == SGL_OK) {
        assert_string_equal(back.data, every_sort);
        status = sglstore_json_member(&json, &back, &more);
    }
    if (status == SGL_OK) {
        assert_false(more);
        status = sglstore_json_end(&json);
    }
    sglcore_text_free(env_in, &quoted);
    sglcore_text_free(env_in, &back);
    return status;
}

static void test_texts(void **state)
{
    (void)state;
    sglcore_text text = { 0 };
    assert_int_equal(round_trip(&env, NULL), SGL_OK);
    assert_true(fault_each_allocation(round_trip, NULL) >= 2);

    sglstore_json json = reader_of("\"\"");
    assert_int_equal(sglstore_json_string(&json, &text), SGL_OK);
    assert_int_equal(text.count, 0);
    assert_string_equal(text.data, "");
    json = reader_of("\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u001f\"");
    assert_int_equal(sglstore_json_string(&json, &text), SGL_OK);
    assert_string_equal(text.data, "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x1F");
    json = reader_of("\"a\\u0000b\"");
    assert_int_equal(sglstore_json_string(&json, &text), SGL_CORRUPT);
    assert_non_null(strstr(env.message, "a zero byte in a text"));
    json = reader_of("17");
    assert_int_equal(sglstore_json_string(&json, &text), SGL_CORRUPT);
    assert_int_equal(sglcore_text_quote(&env, &text, "caf\xE9"), SGL_INVALID_ARGUMENT);
    assert_non_null(strstr(env.message, "is not UTF-8 text"));
    sglcore_text_free(&env, &text);
    assert_int_equal(env.bytes_in_use, 0);
}

int main(void)
{
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_places), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_counts), cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests_name("store json", tests, NULL, NULL);
}
