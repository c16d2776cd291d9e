/* test_store_safetensors_mutated.c -- 20,000 safetensors files that are nearly right: none crashes the reader or gives a
 * range beyond the file. The seed is fixed; tests/fuzz looks further. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "safetensors_bytes.h"

static uint32_t random_state[4];

static uint32_t any(uint32_t below)
{
    static const uint32_t key[2] = { 0x5AFE, 0x7E50 };
    uint32_t out[4];
    if (++random_state[0] == 0) random_state[1]++;
    sglcore_philox(random_state, key, out);
    return out[0] % below;
}

/* Replaces, inserts, removes or doubles a few bytes; half of the time the header's length is made right again. */
static size_t mutate(unsigned char *file, size_t bytes, size_t room)
{
    static const char *const bits[] = { "0",
                                        "1",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "-1",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        ",",
                                        "\\u0000",
                                        "\"shape\":",
                                        "F64",
                                        " ",
                                        ":",
                                        "\xFF" };
    uint64_t length = 0, before = bytes;
    for (int i = 0; i < 8; i++) length |= (uint64_t)file[i] << (8 * i);
    for (uint32_t edits = 1 + any(4); edits > 0; edits--) {
        size_t at = any(4) > 0 && bytes > 12 ? 8 + any((uint32_t)bytes - 8) : any((uint32_t)bytes);
        size_t from = any((uint32_t)bytes), run = 1 + any(12);
        const char *bit = bits[any(sizeof bits / sizeof bits[0])];
        switch (any(6)) {
        case 0: file[at] = (unsigned char)any(256); break;
        case 1: file[at] ^= (unsigned char)(1u << any(8)); break;
        case 2: /* a telling piece of text is put in */
            if (bytes + strlen(bit) > room) break;
            memmove(file + at + strlen(bit), file + at, bytes - at);
            memcpy(file + at, bit, strlen(bit));
            bytes += strlen(bit);
            break;
        case 3: /* some bytes go */
            if (at + run >= bytes || bytes - run < 16) break;
            memmove(file + at, file + at + run, bytes - at - run);
            bytes -= run;
            break;
        case 4: /* some bytes are written over others */
            if (at + run <= bytes && from + run <= bytes) memmove(file + at, file + from, run);
            break;
        default: /* a digit for a digit: counts, offsets and extents that are a little off */
            for (size_t i = 0; i < bytes; i++) {
                size_t place = (at + i) % bytes;
                if (file[place] < '0' || file[place] > '9') continue;
                file[place] = (unsigned char)('0' + any(10));
                break;
            }
        }
    }
    length += bytes - before;
    if (any(2) > 0)
        for (int i = 0; i < 8; i++) file[i] = (unsigned char)(length >> (8 * i));
    return bytes;
}

static void test_mutations(void **state)
{
    (void)state;
    enum { TRIES = 20000 };
    static const struct {
        const char *header;
        int64_t data_bytes;
    } seeds[] = {
        { "{" ENTRY("a", "F32", "[2,3]", 0, 24) "," ENTRY("b.c", "U8", "[]", 24, 25) "}", 25 },
        { "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("w", "BF16", "[1,0,2]", 0, 0) "," ENTRY("v", "I64", "[2]", 0,
                                                                                                 16) "}   ",
          16 },
        { "{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 4, 8) "," ENTRY("c", "U8", "[4]", 8, 12) "}",
          12 },
        { "{}", 0 },
    };
    unsigned char file[1024];
    int taken = 0;
    for (int i = 0; i < TRIES; i++) {
        size_t which = any(sizeof seeds / sizeof seeds[0]);
        size_t bytes = safetensors_make(file, seeds[which].header, seeds[which].data_bytes);
        bytes = mutate(file, bytes, sizeof file);
        taken += safetensors_bytes_try(file, bytes, NULL) == SGL_OK;
    }
    print_message("mutations: %d of %d were files still\n", taken, TRIES);
    assert_true(taken > TRIES / 50 && taken < TRIES / 2); /* both sides of the reader were reached */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mutations) };
    return cmocka_run_group_tests_name("store safetensors, mutated", tests, NULL, NULL);
}
