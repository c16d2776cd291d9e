/* test_random.c -- random programs, each run by the interpreter, compiled, and compiled without passes; they must agree.
 *
 * test_random              seeds 1..500 and those of tests/support/seeds.txt (that have failed once)
 * test_random FIRST LAST   other seeds; one that fails is shrunk and printed, with the command to repeat it; 1 at the end
 * Longer runs, on all cores: scripts/nightly.
 * ctest: timeout 900 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/random_seeds.h"

enum { SEEDS = 500 };

static int failures_in(uint64_t first, uint64_t last)
{
    int failures = 0;
    for (uint64_t seed = first; seed <= last; seed++) failures += !random_seed(seed);
    return failures;
}

static void test_seeds(void **state)
{
    (void)state;
    assert_int_equal(failures_in(1, SEEDS), 0);
}

static void test_seeds_that_failed(void **state)
{
    (void)state;
    char path[1024], line[256];
    snprintf(path, sizeof path, "%s/tests/support/seeds.txt", getenv("ROOT") != NULL ? getenv("ROOT") : ".");
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("%s is not there", path);
    int failures = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] != '#' && line[0] != '\n') failures += !random_seed(strtoull(line, NULL, 10));
    }
    fclose(file);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_seeds), cmocka_unit_test(test_seeds_that_failed) };
    if (argc == 3) {
        int failures = failures_in(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
        printf("seeds %s..%s: %d failures\n", argv[1], argv[2], failures);
        return failures > 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
