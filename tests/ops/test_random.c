/* test_random.c -- random programs, each run by the interpreter, compiled, and compiled without passes; they must agree.
 *
 * test_random              seeds 1..330, in which every op must be met, every derivative, every dtype, every pass
 *                          (support/random_cover.h); and the programs of tests/ops/found, which failed once
 * test_random FIRST LAST   other seeds; one that fails is shrunk and printed, with the command to repeat it; 1 at the end
 * Longer runs, on all cores: scripts/nightly.
 * ctest: timeout 1800 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dirent.h>
#include <string.h>

#include "tests/support/random_cover.h"
#include "tests/support/random_seeds.h"

enum { SEEDS = 330 };

static int failures_in(uint64_t first, uint64_t last)
{
    int failures = 0;
    for (uint64_t seed = first; seed <= last; seed++) failures += !random_seed(seed);
    return failures;
}

static void test_seeds(void **state)
{
    (void)state;
    int failures = failures_in(1, SEEDS);
    random_cover_print(stdout);
    assert_int_equal(random_cover_missing(stdout), 0);
    assert_int_equal(failures, 0);
}

static void test_programs_that_failed(void **state)
{
    (void)state;
    char folder[1024], path[2048];
    snprintf(folder, sizeof folder, "%s/tests/ops/found", getenv("ROOT") != NULL ? getenv("ROOT") : ".");
    DIR *dir = opendir(folder);
    if (dir == NULL) fail_msg("%s is not there", folder);
    int failures = 0, count = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (strstr(entry->d_name, ".txt") == NULL) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        failures += !random_text(path);
        count++;
    }
    closedir(dir);
    assert_true(count > 0);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_seeds), cmocka_unit_test(test_programs_that_failed) };
    if (argc == 3) {
        int failures = failures_in(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
        printf("seeds %s..%s: %d failures\n", argv[1], argv[2], failures);
        return failures > 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
