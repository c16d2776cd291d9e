/* test_core_text.c -- growing texts, numbers in any locale, interned strings, nearest names, names of the tables. */
#include "fault.h"

#include <locale.h>
#include <stdio.h>

static void test_text(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglcore_text text = { 0 };
    assert_int_equal(sglcore_text_bytes(&env, &text, NULL, 0), SGL_OK);
    assert_int_equal(text.count, 0);
    assert_int_equal(sglcore_text_add(&env, &text, "%s=%d", "rows", 12), SGL_OK);
    assert_string_equal(text.data, "rows=12");
    assert_int_equal(text.count, 7);
    assert_int_equal(sglcore_text_bytes(&env, &text, " cols", 3), SGL_OK);
    assert_string_equal(text.data, "rows=12 co");
    for (int i = 0; i < 2000; i++) assert_int_equal(sglcore_text_add(&env, &text, "%d,", i % 10), SGL_OK);
    assert_int_equal(text.count, 4010);
    assert_int_equal(strlen(text.data), 4010);
    assert_memory_equal(text.data + 10, "0,1,2,3,4,5,6,7,8,9,0,", 22);
    assert_int_equal(sglcore_text_add(&env, &text, "%5000d", 1), SGL_OK);
    assert_int_equal(text.count, 9010);
    assert_int_equal(sglcore_text_bytes(&env, &text, "", SIZE_MAX), SGL_OUT_OF_MEMORY);
    assert_int_equal(text.count, 9010);
    sglcore_text_free(&env, &text);
    assert_int_equal(heap.live_blocks, 0);
}

static void check_numbers(void)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_text text = { 0 };
    assert_int_equal(sglcore_text_add(&env, &text, "%.17g", 0.1), SGL_OK);
    assert_string_equal(text.data, "0.10000000000000001");
    char *end;
    assert_true(sglcore_strtod(text.data, &end) == 0.1);
    assert_int_equal(*end, '\0');
    assert_true(sglcore_strtod("1,5", &end) == 1.0);
    assert_string_equal(end, ",5");
    sglcore_fail(&env, SGL_TYPE, "%.2f", 2.5);
    assert_string_equal(env.message, "2.50");
    sglcore_text_free(&env, &text);
}

static void test_numbers(void **state)
{
    (void)state;
    check_numbers();
}

/* Makes a locale with a decimal comma in this folder. localedef comes with the C library, its character maps with the
 * package `locales`; its warnings about the categories that are left out are expected. */
static bool make_comma_locale(void)
{
    FILE *source = fopen("comma.src", "w");
    assert_non_null(source);
    fputs("LC_CTYPE\ncopy \"POSIX\"\nEND LC_CTYPE\n"
          "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n",
          source);
    fclose(source);
    int made = system("localedef -c -i comma.src -f ANSI_X3.4-1968 ./comma 2>localedef.log");
    return made != -1 && setenv("LOCPATH", ".", 1) == 0 && setlocale(LC_ALL, "comma") != NULL;
}

/* A host that runs in a locale with a decimal comma: of the process, and of the thread. */
static void test_numbers_in_a_locale_with_a_comma(void **state)
{
    (void)state;
    if (!make_comma_locale()) skip(); /* no localedef, or no character maps for it */
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    check_numbers();
    snprintf(text, sizeof text, "%.1f", 0.5); /* the host's locale is as it was */
    assert_string_equal(text, "0,5");
    locale_t own = duplocale(LC_GLOBAL_LOCALE); /* newlocale leaks the path it searched, in glibc itself */
    setlocale(LC_ALL, "C");
    locale_t before = uselocale(own);
    check_numbers();
    assert_true(uselocale((locale_t)0) == own);
    uselocale(before);
    freelocale(own);
}

/* ---- interned strings --------------------------------------------------------------------------------------- */

static void test_intern(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglcore_strings *strings;
    uint32_t id, ids[3000];
    assert_int_equal(sglcore_strings_new(&env, &strings), SGL_OK);
    assert_string_equal(sglcore_string(strings, 0), "");
    assert_int_equal(sglcore_intern(strings, "ignored", 0, &id), SGL_OK);
    assert_int_equal(id, 0);
    const char *first = NULL;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3000; i++) {
            char name[32];
            int length = snprintf(name, sizeof name, "blocks.%d.attn", i);
            assert_int_equal(sglcore_intern(strings, name, (size_t)length, &id), SGL_OK);
            if (round == 0) ids[i] = id;
            assert_int_equal(id, ids[i]);
            assert_int_equal(id, i + 1); /* in the order of first sight: the same in every run */
            assert_string_equal(sglcore_string(strings, id), name);
            if (first == NULL) first = sglcore_string(strings, id);
        }
    }
    assert_ptr_equal(first, sglcore_string(strings, ids[0])); /* a text stays where it is */
    assert_int_equal(sglcore_intern(strings, "blocks.1.attn", 6, &id), SGL_OK);
    assert_string_equal(sglcore_string(strings, id), "blocks");
    assert_int_equal(id, 3001);
    assert_true(sglcore_interned(strings, "blocks.7.attn", 13, &id));
    assert_int_equal(id, ids[7]);
    assert_true(sglcore_interned(strings, "", 0, &id));
    assert_int_equal(id, 0);
    assert_false(sglcore_interned(strings, "blocks.7.attn", 12, &id));
    uint32_t with_zero;
    assert_int_equal(sglcore_intern(strings, "blocks\0x", 8, &with_zero), SGL_OK); /* bytes, not C strings */
    assert_int_not_equal(with_zero, 3001);
    sglcore_strings_free(strings);
    sglcore_strings_free(NULL);
    assert_int_equal(heap.live_blocks, 0);
}

static sgl_status texts_and_strings(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_strings *strings;
    sglcore_text text = { 0 };
    sgl_status status = sglcore_strings_new(env, &strings);
    if (status != SGL_OK) assert_null(strings);
    for (int i = 0; status == SGL_OK && i < 100; i++) {
        status = sglcore_text_add(env, &text, "name %d", i);
        uint32_t id = UINT32_MAX;
        if (status == SGL_OK) status = sglcore_intern(strings, text.data, (size_t)text.count, &id);
        if (status != SGL_OK) {
            assert_int_equal(id, UINT32_MAX);
            uint32_t empty; /* what was there before the failure still is, and needs no memory to be found */
            assert_int_equal(sglcore_intern(strings, "", 0, &empty), SGL_OK);
        }
    }
    sglcore_text_free(env, &text);
    sglcore_strings_free(strings);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(texts_and_strings, NULL) > 5);
}

/* ---- nearest ------------------------------------------------------------------------------------------------ */

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = { "matmul", "rms_norm", "layer_norm", "softmax", "relu", "gelu", "exp", "log" };
    static const char *const none[] = { "" };
    const int count = sizeof names / sizeof names[0];
    assert_string_equal(sglcore_nearest("matmull", names, count), "matmul");
    assert_string_equal(sglcore_nearest("mamtul", names, count), "matmul");
    assert_string_equal(sglcore_nearest("rmsnorm", names, count), "rms_norm");
    assert_string_equal(sglcore_nearest("RMSNorm", names, count), "rms_norm");
    assert_string_equal(sglcore_nearest("Softmax", names, count), "softmax");
    assert_string_equal(sglcore_nearest("rleu", names, count), "relu"); /* a swap is one edit: nearer than gelu */
    assert_string_equal(sglcore_nearest("gel", names, count), "gelu");
    assert_string_equal(sglcore_nearest("elu", names, count), "relu"); /* the first of equals */
    assert_string_equal(sglcore_nearest("exp2", names, count), "exp");
    assert_null(sglcore_nearest("convolution", names, count));
    assert_null(sglcore_nearest("xyz", names, count));
    assert_null(sglcore_nearest("", names, count));
    assert_null(sglcore_nearest("q", names, count));
    assert_null(sglcore_nearest("ex", names, count));                         /* too short to be a slip of anything */
    assert_null(sglcore_nearest("lieu", names, count));                       /* two edits of four */
    assert_string_equal(sglcore_nearest("sotfmxa", names, count), "softmax"); /* two of seven */
    assert_null(sglcore_nearest("ab", none, 1));
    assert_null(sglcore_nearest("matmul", names, 0));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const char *const long_names[] = { longest };
    assert_null(sglcore_nearest("aaaa", long_names, 1));
    assert_null(sglcore_nearest(longest, names, count));
    char hint[SGLCORE_HINT_ROOM];
    assert_string_equal(sglcore_hint("matmull", names, count, hint), "; did you mean 'matmul'?");
    assert_string_equal(sglcore_hint("convolution", names, count, hint), "");
    longest[64] = '\0'; /* as long as names that are compared are */
    assert_int_equal(strlen(sglcore_hint(longest, long_names, 1, hint)), 64 + strlen("; did you mean ''?"));
}

static void test_list_has(void **state)
{
    (void)state;
    assert_true(sglcore_list_has("fuse", "fuse"));
    assert_true(sglcore_list_has(" ,simplify, fuse ,", "fuse"));
    assert_true(sglcore_list_has("simplify fuse", "simplify"));
    assert_false(sglcore_list_has("simplify-again,fuser", "simplify"));
    assert_false(sglcore_list_has("simplify-again,fuser", "fuse"));
    assert_false(sglcore_list_has(", ,", ""));
    assert_false(sglcore_list_has("", "fuse"));
}

/* ---- names of the tables ------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(sgl_status_name(SGL_OK), "OK");
    assert_string_equal(sgl_status_name(SGL_OUT_OF_MEMORY), "OUT_OF_MEMORY");
    assert_string_equal(sgl_status_text(SGL_OUT_OF_MEMORY), "an allocation failed");
    assert_string_equal(sgl_status_name(SGL_INTERNAL), "INTERNAL");
    assert_string_equal(sgl_status_name((sgl_status)99), "UNKNOWN");
    assert_non_null(sgl_status_text((sgl_status)99));
    assert_string_equal(sgl_version(), SGL_VERSION);
    for (int i = 0; i < SGL_DTYPE_COUNT; i++) {
        sgl_dtype dtype = SGL_DTYPE_COUNT;
        assert_int_equal(sgl_dtype_from_name(sgl_dtype_name((sgl_dtype)i), &dtype), SGL_OK);
        assert_int_equal(dtype, i);
    }
    sgl_dtype dtype = SGL_I4;
    assert_string_equal(sgl_dtype_name(SGL_BF16), "bf16");
    assert_string_equal(sgl_dtype_name(SGL_DTYPE_COUNT), "unknown");
    assert_int_equal(sgl_dtype_from_name("float", &dtype), SGL_NOT_FOUND);
    assert_int_equal(sgl_dtype_from_name("", &dtype), SGL_NOT_FOUND);
    assert_int_equal(sgl_dtype_from_name(NULL, &dtype), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_dtype_from_name("f32", NULL), SGL_INVALID_ARGUMENT);
    assert_int_equal(dtype, SGL_I4);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int bytes;
    } cases[] = {
        { "a", 1 },
        { "\xC3\xA9", 2 },
        { "\xE2\x82\xAC", 3 },
        { "\xF0\x9F\x98\x80", 4 },
        { "\xC3", 0 },             /* cut off */
        { "\xC0\x80", 0 },         /* overlong */
        { "\xE0\x9F\xBF", 0 },     /* overlong */
        { "\xED\xA0\x80", 0 },     /* a surrogate */
        { "\xF4\x90\x80\x80", 0 }, /* past the last one */
        { "\x80", 0 },
        { "\xFF", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(sgl_utf8_bytes(cases[i].text, strlen(cases[i].text)), cases[i].bytes);
    assert_int_equal(sgl_utf8_bytes("a", 0), 0);
    assert_int_equal(sgl_utf8_bytes("\xC3\xA9", 1), 0);
}

static void test_quote(void **state)
{
    (void)state;
    char out[64] = "";
    static const char raw[] = "a \"b\" \\ \n\t\x01 \xC3\xA9", quoted[] = "\"a \\\"b\\\" \\\\ \\n\\t\\u0001 \xC3\xA9\"";
    size_t bytes = sgl_json_quote(raw, strlen(raw), out, sizeof out);
    assert_int_equal(bytes, strlen(quoted));
    assert_memory_equal(out, quoted, bytes);
    memset(out, '#', sizeof out);
    assert_int_equal(sgl_json_quote(raw, strlen(raw), out, 5), bytes); /* as far as there is room */
    assert_memory_equal(out, "\"a \\\"##", 7);
    assert_int_equal(sgl_json_quote("", 0, NULL, 0), 2);
    assert_int_equal(sgl_json_quote("a\0b", 3, out, sizeof out), 10);
    assert_memory_equal(out, "\"a\\u0000b\"", 10);
    assert_int_equal(sgl_json_quote("a\xFF", 2, out, sizeof out), 0);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_text text = { 0 };
    assert_int_equal(sglcore_text_add(&env, &text, "x="), SGL_OK);
    assert_int_equal(sglcore_text_quote(&env, &text, raw), SGL_OK);
    assert_string_equal(text.data + 2, quoted);
    assert_int_equal(sglcore_text_quote(&env, &text, "\xFF"), SGL_INVALID_ARGUMENT);
    assert_int_equal(text.count, 2 + bytes);
    sglcore_text_free(&env, &text);
}

static void test_type_text(void **state)
{
    (void)state;
    char text[SGL_TYPE_ROOM];
    sgl_type type = { .dtype = SGL_F8E4M3, .rank = SGL_MAX_RANK };
    assert_string_equal(sgl_type_text(&(sgl_type){ .dtype = SGL_I64 }, text, sizeof text), "i64[]");
    assert_string_equal(sgl_type_text(&(sgl_type){ .dtype = SGL_F32, .rank = 2, .dims = { 16, 256 } }, text,
                                      sizeof text),
                        "f32[16,256]");
    assert_string_equal(sgl_type_text(&(sgl_type){ .dtype = SGL_F32, .rank = 2, .dims = { 16, 256 } }, text, 8),
                        "f32[16,");
    for (int i = 0; i < SGL_MAX_RANK; i++) type.dims[i] = INT64_MIN;
    sgl_type_text(&type, text, sizeof text);
    assert_int_equal(text[strlen(text) - 1], ']'); /* the longest fits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_numbers_in_a_locale_with_a_comma),
        cmocka_unit_test(test_intern),
        cmocka_unit_test(test_each_allocation_fails),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_list_has),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_type_text),
    };
    return cmocka_run_group_tests_name("core text", tests, NULL, NULL);
}
