/* test_core_memory.c -- the environment, blocks, arenas and vectors of core: exact accounts, alignment, messages, and
 * every allocation failing in turn. */
#include "fault.h"

#include <limits.h>
#include <stdio.h>

/* ---- messages ----------------------------------------------------------------------------------------------- */

static void test_messages(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_string_equal(env.message, "");
    assert_int_equal(sglcore_fail(&env, SGL_TYPE, "%d is not %s", 7, "seven"), SGL_TYPE);
    assert_string_equal(env.message, "7 is not seven");
    assert_int_equal(sglcore_fail_at(&env, SGL_TYPE, "llama.lua:%d", 42), SGL_TYPE);
    assert_string_equal(env.message, "llama.lua:42: 7 is not seven");
    assert_int_equal(sglcore_fail(&env, SGL_IO, "again: %s", env.message), SGL_IO);
    assert_string_equal(env.message, "again: llama.lua:42: 7 is not seven");
}

static void test_long_messages_are_cut_at_a_character(void **state)
{
    (void)state;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    for (int lead = 0; lead < 3; lead++) { /* the cut falls on each byte of a character of three bytes */
        char text[3 * 1000 + 3] = "";
        memset(text, 'a', (size_t)lead);
        for (int i = 0; i < 1000; i++) memcpy(text + lead + 3 * i, "\xE2\x82\xAC", 4);
        sglcore_fail(&env, SGL_IO, "%s", text);
        size_t length = strlen(env.message);
        assert_true(length < sizeof env.message && length > sizeof env.message - 8);
        assert_string_equal(env.message + length - 3, "...");
        assert_int_equal((length - 3 - (size_t)lead) % 3, 0);
        assert_memory_equal(env.message, text, length - 3);
    }
    sglcore_fail(&env, SGL_IO, "%2047d", 1); /* just fits */
    assert_int_equal(strlen(env.message), 2047);
    assert_int_equal(env.message[2046], '1');
    sglcore_fail(&env, SGL_IO, "%2048d", 1); /* just does not */
    assert_string_equal(env.message + strlen(env.message) - 3, "...");
}

typedef struct log_record {
    int count;
    sgl_log_level level;
    char message[64];
} log_record;

static void record_log(void *user, sgl_log_level level, const char *message)
{
    log_record *record = user;
    record->count++;
    record->level = level;
    snprintf(record->message, sizeof record->message, "%s", message);
}

static void test_log(void **state)
{
    (void)state;
    log_record record = { 0 };
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, record_log, &record);
    sglcore_log(&env, SGL_LOG_INFO, "step %d", 3);
    assert_int_equal(record.count, 1);
    assert_int_equal(record.level, SGL_LOG_INFO);
    assert_string_equal(record.message, "step 3");
    assert_string_equal(env.message, "");
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglcore_log(&env, SGL_LOG_ERROR, "nobody listens");
    assert_int_equal(record.count, 1);
}

static void test_clock(void **state)
{
    (void)state;
    int64_t first = sglcore_now_ns(), now = first;
    assert_true(first > 0);
    for (int i = 0; now == first && i < 100000000; i++) now = sglcore_now_ns();
    assert_true(now > first && now - first < 1000000000);
}

/* ---- blocks ------------------------------------------------------------------------------------------------- */

static void test_accounts(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    assert_null(sglcore_alloc(&env, 0));
    assert_null(sglcore_alloc_zero(&env, 0));
    assert_null(sglcore_alloc_aligned(&env, 0, 64));
    assert_int_equal(env.allocations, 0);

    unsigned char *block = sglcore_alloc(&env, 100);
    assert_int_equal(env.bytes_in_use, 100);
    memset(block, 7, 100);
    block = sglcore_realloc(&env, block, 100, 300);
    assert_int_equal(env.bytes_in_use, 300);
    for (int i = 0; i < 100; i++) assert_int_equal(block[i], 7);
    block = sglcore_realloc(&env, block, 300, 10);
    assert_int_equal(env.bytes_in_use, 10);
    assert_int_equal(block[9], 7);
    assert_int_equal(env.allocations, 3);
    assert_null(sglcore_realloc(&env, block, 10, 0));
    assert_int_equal(env.bytes_in_use, 0);
    assert_int_equal(env.allocations, 3);

    unsigned char *zeroes = sglcore_alloc_zero(&env, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(zeroes[i], 0);
    assert_int_equal(env.bytes_in_use, heap.live_bytes);
    sglcore_free(&env, zeroes, 1000);
    sglcore_free(&env, NULL, 0);
    assert_int_equal(heap.live_blocks, 0);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_refused(void **state)
{
    (void)state;
    fault_heap heap = { .counter = { .fail_at = 2, .for_ever = true } };
    sglcore_env env = fault_env(&heap);
    char *block = sglcore_alloc(&env, 8);
    memcpy(block, "unmoved", 8);
    assert_null(sglcore_realloc(&env, block, 8, 4000));
    assert_string_equal(block, "unmoved");
    assert_int_equal(env.bytes_in_use, 8);
    assert_string_equal(env.message, "out of memory: 4000 bytes were refused, 8 bytes are in use");
    sglcore_free(&env, block, 8);

    int64_t seen = heap.counter.seen; /* what cannot be is not even asked of the host */
    assert_null(sglcore_alloc(&env, SIZE_MAX));
    assert_null(sglcore_alloc(&env, (size_t)PTRDIFF_MAX + 1));
    assert_null(sglcore_alloc_zero(&env, SIZE_MAX));
    assert_null(sglcore_alloc_aligned(&env, SIZE_MAX, 4096));
    assert_null(sglcore_alloc_aligned(&env, PTRDIFF_MAX, 4096));
    sglcore_arena arena = { .env = &env };
    env.message[0] = '\0';
    assert_null(sglcore_arena_alloc(&arena, SIZE_MAX));
    assert_non_null(strstr(env.message, "out of memory"));
    assert_null(sglcore_arena_alloc(&arena, PTRDIFF_MAX));
    assert_int_equal(heap.counter.seen, seen);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_aligned(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        for (size_t bytes = 1; bytes <= 10000; bytes = bytes * 3 + 1) {
            unsigned char *block = sglcore_alloc_aligned(&env, bytes, alignment);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            memset(block, 0xFF, bytes); /* the sanitizer sees a write beyond, the heap's mark one before */
            sglcore_free_aligned(&env, block, bytes, alignment);
            assert_int_equal(heap.live_bytes, 0);
        }
    }
    sglcore_free_aligned(&env, NULL, 0, 64);
    assert_int_equal(env.bytes_in_use, 0);
}

/* ---- arenas ------------------------------------------------------------------------------------------------- */

static void test_arena(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    sglcore_arena arena = { .env = &env };
    unsigned char *blocks[400];
    for (size_t i = 0; i < 400; i++) {
        size_t bytes = i == 200 ? 3000000 : i * 7 % 500;
        blocks[i] = sglcore_arena_alloc(&arena, bytes);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t j = 0; j < bytes; j++) assert_int_equal(blocks[i][j], 0);
        memset(blocks[i], (int)(i & 255), bytes);
    }
    for (size_t i = 0; i < 400; i++) { /* none overlaps another */
        size_t bytes = i == 200 ? 3000000 : i * 7 % 500;
        for (size_t j = 0; j < bytes; j++) assert_int_equal(blocks[i][j], i & 255);
        if (i > 0) assert_ptr_not_equal(blocks[i], blocks[i - 1]);
    }
    assert_string_equal(sglcore_arena_string(&arena, "matmul_x", 6), "matmul");
    assert_string_equal(sglcore_arena_string(&arena, NULL, 0), "");
    assert_int_equal(env.bytes_in_use, heap.live_bytes);
    sglcore_arena_free(&arena);
    assert_null(arena.chunks);
    assert_int_equal(heap.live_blocks, 0);
    sglcore_arena_free(&arena);
}

/* ---- vectors ------------------------------------------------------------------------------------------------ */

static void test_vector(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    SGLCORE_VEC(int64_t) sizes = { 0 };
    assert_int_equal(sglcore_vec_reserve(&env, &sizes, 0), SGL_OK);
    assert_null(sizes.data);
    for (int64_t i = 0; i < 1000; i++) {
        const int64_t *before = sizes.data;
        assert_int_equal(sglcore_vec_push(&env, &sizes, i * i), SGL_OK);
        assert_true(sizes.count == i + 1 && sizes.capacity >= sizes.count);
#ifdef SGL_HARD_MODE
        assert_ptr_not_equal(before, sizes.data);
        assert_int_equal(heap.live_bytes, sizes.capacity * 8);
#else
        (void)before;
#endif
    }
    for (int64_t i = 0; i < 1000; i++) assert_int_equal(sizes.data[i], i * i);
#ifndef SGL_HARD_MODE
    assert_true(env.allocations <= 12); /* growth is geometric */
#endif
    int64_t room = sizes.capacity + 5000;
    assert_int_equal(sglcore_vec_reserve(&env, &sizes, 6024), SGL_OK);
    assert_true(sizes.capacity >= room && sizes.count == 1000);
    assert_int_equal(sizes.data[999], 999 * 999);

    int64_t *data = sizes.data;
    assert_int_equal(sglcore_vec_reserve(&env, &sizes, INT64_MAX), SGL_OUT_OF_MEMORY);
    assert_int_equal(sglcore_vec_reserve(&env, &sizes, INT64_MAX / 8), SGL_OUT_OF_MEMORY);
    assert_non_null(strstr(env.message, "out of memory"));
    assert_ptr_equal(sizes.data, data);
    assert_int_equal(sizes.count, 1000);
    sglcore_vec_free(&env, &sizes);
    assert_true(sizes.data == NULL && sizes.count == 0 && sizes.capacity == 0);
    sglcore_vec_free(&env, &sizes);
    assert_int_equal(heap.live_blocks, 0);
    assert_int_equal(env.bytes_in_use, 0);
}

static void test_vector_of_structs(void **state)
{
    (void)state;
    fault_heap heap = { 0 };
    sglcore_env env = fault_env(&heap);
    typedef struct pair {
        int32_t first;
        char name[9];
    } pair;
    SGLCORE_VEC(pair) pairs = { 0 };
    for (int i = 0; i < 50; i++) assert_int_equal(sglcore_vec_push(&env, &pairs, (pair){ i, "name" }), SGL_OK);
    for (int i = 0; i < 50; i++) assert_int_equal(pairs.data[i].first, i);
    sglcore_vec_free(&env, &pairs);
    assert_int_equal(heap.live_blocks, 0);
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

static sgl_status arenas_and_vectors(sglcore_env *env, void *context)
{
    (void)context;
    sglcore_arena arena = { .env = env };
    SGLCORE_VEC(char *) names = { 0 };
    sgl_status status = SGL_OK;
    for (int i = 0; i < 40 && status == SGL_OK; i++) {
        char *name = sglcore_arena_alloc(&arena, 1000);
        status = name == NULL ? SGL_OUT_OF_MEMORY : sglcore_vec_push(env, &names, name);
    }
    void *aligned = NULL;
    if (status == SGL_OK) {
        aligned = sglcore_alloc_aligned(env, 500, 256);
        if (aligned == NULL) status = SGL_OUT_OF_MEMORY;
    }
    if (status != SGL_OK) assert_non_null(strstr(env->message, "out of memory"));
    sglcore_free_aligned(env, aligned, 500, 256);
    sglcore_vec_free(env, &names);
    sglcore_arena_free(&arena);
    return status;
}

static void test_each_allocation_fails(void **state)
{
    (void)state;
    assert_true(fault_each_allocation(arenas_and_vectors, NULL) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_long_messages_are_cut_at_a_character),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_vector_of_structs),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests_name("core memory", tests, NULL, NULL);
}
