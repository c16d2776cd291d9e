/* test_core_numbers.c -- hashes, maps, Philox, facts of dtypes, knobs: known answers and edges. */
#include "fault.h"

#include "core/knob.h"

/* ---- hashes ------------------------------------------------------------------------------------------------- */

static void assert_hash(sglcore_hash hash, const char *expected)
{
    char text[33];
    sglcore_hash_text(hash, text);
    assert_string_equal(text, expected);
}

static void test_hash_text(void **state)
{
    (void)state;
    assert_hash((sglcore_hash){ .low = 0x0123456789abcdef, .high = 0xfedcba9876543210 },
                "fedcba98765432100123456789abcdef");
    /* XXH3-128 of nothing, as the authors' xxhsum prints it */
    assert_hash(sglcore_hash_bytes(NULL, 0), "99aa06d3014798d86001c324468d497f");
}

static void test_hasher_is_the_hash_of_the_bytes(void **state)
{
    (void)state;
    unsigned char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 131 >> 3);
    for (size_t length = 0; length <= sizeof bytes; length = length * 2 + 1) {
        for (size_t piece = 1; piece <= 5000; piece *= 7) {
            sglcore_hasher hasher;
            memset(&hasher, 0xEE, sizeof hasher);
            sglcore_hasher_init(&hasher);
            for (size_t at = 0; at < length; at += piece) {
                sglcore_hasher_add(&hasher, bytes + at, length - at < piece ? length - at : piece);
            }
            assert_true(sglcore_hash_equal(sglcore_hasher_end(&hasher), sglcore_hash_bytes(bytes, length)));
            sglcore_hasher copy = hasher; /* plain data: a copy goes on by itself */
            sglcore_hasher_u64(&copy, 1);
            assert_false(sglcore_hash_equal(sglcore_hasher_end(&hasher), sglcore_hasher_end(&copy)));
            assert_true(sglcore_hash_equal(sglcore_hasher_end(&hasher), sglcore_hash_bytes(bytes, length)));
        }
    }
}

static void test_hasher_parts(void **state)
{
    (void)state;
    sglcore_hasher hasher;
    sglcore_hasher_init(&hasher);
    sglcore_hasher_u64(&hasher, 0x0102030405060708u);
    assert_true(
        sglcore_hash_equal(sglcore_hasher_end(&hasher), sglcore_hash_bytes("\x08\x07\x06\x05\x04\x03\x02\x01", 8)));
    static const char *const pairs[][2] = { { "a", "b" }, { "ab", "" }, { "", "ab" } };
    sglcore_hash hashes[3];
    for (int i = 0; i < 3; i++) {
        sglcore_hasher_init(&hasher);
        sglcore_hasher_string(&hasher, pairs[i][0]);
        sglcore_hasher_string(&hasher, pairs[i][1]);
        hashes[i] = sglcore_hasher_end(&hasher);
    }
    assert_false(sglcore_hash_equal(hashes[0], hashes[1]));
    assert_false(sglcore_hash_equal(hashes[0], hashes[2]));
    assert_false(sglcore_hash_equal(hashes[1], hashes[2]));
}

/* ---- maps --------------------------------------------------------------------------------------------------- */

static void test_map(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglcore_map map = { 0 };
    uint64_t value = 77;
    assert_false(sglcore_map_get(&map, (sglcore_hash){ 0 }, &value));
    assert_int_equal(value, 77);
    for (uint64_t i = 0; i < 5000; i++) { /* small numbers, 0 among them, and hashes; both halves count */
        assert_int_equal(sglcore_map_put(&env, &map, (sglcore_hash){ .low = i }, i), SGL_OK);
        assert_int_equal(sglcore_map_put(&env, &map, (sglcore_hash){ .low = i, .high = i + 1 }, 2 * i), SGL_OK);
        assert_int_equal(sglcore_map_put(&env, &map, sglcore_hash_bytes(&i, sizeof i), 3 * i), SGL_OK);
        assert_int_equal(map.count, 3 * (int64_t)(i + 1));
    }
    assert_int_equal(sglcore_map_put(&env, &map, (sglcore_hash){ .low = 17 }, 1717), SGL_OK);
    assert_int_equal(map.count, 15000);
    for (uint64_t i = 0; i < 5000; i++) {
        assert_true(sglcore_map_get(&map, (sglcore_hash){ .low = i }, &value));
        assert_int_equal(value, i == 17 ? 1717 : i);
        assert_true(sglcore_map_get(&map, (sglcore_hash){ .low = i, .high = i + 1 }, &value));
        assert_int_equal(value, 2 * i);
        assert_true(sglcore_map_get(&map, sglcore_hash_bytes(&i, sizeof i), &value));
        assert_int_equal(value, 3 * i);
    }
    assert_false(sglcore_map_get(&map, (sglcore_hash){ .low = 5000 }, &value));
    assert_false(sglcore_map_get(&map, (sglcore_hash){ .high = 1000000 }, &value));
    sglcore_map_free(&env, &map);
    assert_true(map.count == 0 && map.entries == NULL);
    sglcore_map_free(&env, &map);
    assert_int_equal(heap.live_blocks, 0);
    assert_int_equal(env.bytes_in_use, 0);
}

static sgl_status fill_map(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_map map = { 0 };
    sgl_status status = SGL_OK;
    for (uint64_t i = 0; status == SGL_OK && i < 100; i++) {
        status = sglcore_map_put(env, &map, (sglcore_hash){ .low = i }, i);
        uint64_t value = 0;
        for (uint64_t j = 0; j < i; j++) { /* a failure loses nothing */
            assert_true(sglcore_map_get(&map, (sglcore_hash){ .low = j }, &value));
            assert_int_equal(value, j);
        }
    }
    sglcore_map_free(env, &map);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(fill_map, NULL) >= 4);
}

/* ---- Philox ------------------------------------------------------------------------------------------------- */

static void test_philox(void **state)
{
    (void)state;
    /* kat_vectors of the authors' Random123: philox4x32, 10 rounds */
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        sglcore_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].expected, sizeof out);
        memcpy(out, known[i].counter, sizeof out); /* in place */
        sglcore_philox(out, known[i].key, out);
        assert_memory_equal(out, known[i].expected, sizeof out);
    }
}

/* ---- dtypes ------------------------------------------------------------------------------------------------- */

static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        sgl_dtype dtype;
        int bits;
        bool is_float, is_signed;
    } rows[] = {
        { SGL_F64, 64, true, true },   { SGL_F32, 32, true, true },   { SGL_BF16, 16, true, true },
        { SGL_F16, 16, true, true },   { SGL_F8E4M3, 8, true, true }, { SGL_F8E5M2, 8, true, true },
        { SGL_I64, 64, false, true },  { SGL_I32, 32, false, true },  { SGL_I16, 16, false, true },
        { SGL_I8, 8, false, true },    { SGL_U8, 8, false, false },   { SGL_U16, 16, false, false },
        { SGL_U32, 32, false, false }, { SGL_BOOL, 8, false, false }, { SGL_I4, 4, false, true },
    };
    _Static_assert(sizeof rows / sizeof rows[0] == SGL_DTYPE_COUNT, "every dtype has its row here");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(sglcore_dtype_bits(rows[i].dtype), rows[i].bits);
        assert_int_equal(sglcore_dtype_is_float(rows[i].dtype), rows[i].is_float);
        assert_int_equal(sglcore_dtype_is_signed(rows[i].dtype), rows[i].is_signed);
        assert_int_equal(sglcore_dtype_bytes(rows[i].dtype, 0), 0);
        assert_int_equal(sglcore_dtype_bytes(rows[i].dtype, 1000), 1000 * rows[i].bits / 8);
        assert_int_equal(sglcore_dtype_bytes(rows[i].dtype, -1), -1);
    }
    assert_int_equal(sglcore_dtype_bytes(SGL_I4, 1), 1);
    assert_int_equal(sglcore_dtype_bytes(SGL_I4, 7), 4);
    assert_true(sglcore_dtype_bytes(SGL_I4, INT64_MAX) == INT64_MAX / 2 + 1);
    assert_true(sglcore_dtype_bytes(SGL_U8, INT64_MAX) == INT64_MAX);
    assert_true(sglcore_dtype_bytes(SGL_F64, INT64_MAX / 8) == INT64_MAX - 7);
    assert_int_equal(sglcore_dtype_bytes(SGL_F64, INT64_MAX / 8 + 1), -1);
    assert_int_equal(sglcore_dtype_bytes(SGL_BF16, INT64_MAX), -1);
}

/* ---- knobs -------------------------------------------------------------------------------------------------- */

static void test_knobs(void **state)
{
    (void)state;
    for (int i = 0; i < SGLCORE_KNOB_COUNT; i++) {
        unsetenv(sglcore_knob_rows[i].variable);
        assert_string_equal(sglcore_knob_text((sglcore_knob)i), sglcore_knob_rows[i].otherwise);
        assert_memory_equal(sglcore_knob_rows[i].variable, "SGL_", 4);
    }
    setenv("SGL_DUMP_DIR", "here", 1);
    assert_string_equal(sglcore_knob_text(SGLCORE_KNOB_DUMP_DIR), "here");
    setenv("SGL_DUMP_DIR", "", 1);
    assert_string_equal(sglcore_knob_text(SGLCORE_KNOB_DUMP_DIR), "sgl-dump");
    unsetenv("SGL_DUMP_DIR");

    static const struct {
        const char *text;
        int64_t value;
    } numbers[] = {
        { "3", 3 },  { "-2", -2 }, { "9223372036854775807", INT64_MAX }, { "9223372036854775808", 0 }, { "two", 0 },
        { "3x", 0 }, { " ", 0 }
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        setenv("SGL_THREADS", numbers[i].text, 1);
        assert_true(sglcore_knob_int(SGLCORE_KNOB_THREADS) == numbers[i].value);
    }
    unsetenv("SGL_THREADS");
    assert_int_equal(sglcore_knob_int(SGLCORE_KNOB_THREADS), 0);
    assert_int_equal(sglcore_knob_int(SGLCORE_KNOB_LOG), 0); /* a default that is no number */
}

static void test_knob_lists(void **state)
{
    (void)state;
    unsetenv("SGL_DUMP");
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fuse"));
    setenv("SGL_DUMP", "simplify, fuse,", 1);
    assert_true(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fuse"));
    assert_true(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "simplify"));
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fus"));
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fuse2"));
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "simplify, fuse"));
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, ""));
    setenv("SGL_DUMP", "all", 1);
    assert_true(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fuse"));
    setenv("SGL_DUMP", "allow", 1);
    assert_false(sglcore_knob_lists(SGLCORE_KNOB_DUMP, "fuse"));
    unsetenv("SGL_DUMP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_text),
        cmocka_unit_test(test_hasher_is_the_hash_of_the_bytes),
        cmocka_unit_test(test_hasher_parts),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_each_allocation_fails),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_knobs),
        cmocka_unit_test(test_knob_lists),
    };
    return cmocka_run_group_tests_name("core numbers", tests, NULL, NULL);
}
