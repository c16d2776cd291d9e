/* test_random.c -- random programs, each run by the interpreter, compiled, and compiled without passes; they must agree.
 *
 * test_random                  seeds 1..500 and those of tests/support/seeds.txt (that have failed once)
 * test_random FIRST COUNT      other seeds; one that fails is shrunk and printed, with the command to repeat it; 1 at the end
 * A graph's text is printed as it parses. Every tenth seed is run without each pass in turn.
 * ctest: timeout 600 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/random_program.h"
#include "tests/support/shrink.h"

enum { SEEDS = 500, SHRINKING = 1500 };

typedef struct failing {
    random_traits traits;
    uint64_t seed;
    char kind[24]; /* how its message begins */
} failing;

/* Another text fails in the same way. */
static bool still_fails(void *user, const char *text)
{
    const failing *f = user;
    sglcore_env env;
    ir_message message;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = ir_case_parse(&env, "shrunk", text, &message);
    if (g == NULL) return false;
    bool fails = sglir_verify(g, SGLIR_LOGICAL) == SGL_OK && g->outputs.count > 0 &&
                 !random_check(&env, g, &f->traits, f->seed, f->seed % 10 == 0, &message) &&
                 strncmp(message.text, f->kind, strlen(f->kind)) == 0;
    sglir_graph_free(g);
    return fails;
}

static void report(sglcore_env *env, const sglir_graph *g, failing f, const ir_message *message)
{
    sglcore_text text = ir_case_print(env, g);
    snprintf(f.kind, sizeof f.kind, "%.23s", message->text);
    char *small = shrink_text(text.data, still_fails, &f, SHRINKING);
    printf("seed %" PRIu64 ": %s\nrepeat with: test_random %" PRIu64 " 1\n%s", f.seed, message->text, f.seed, small);
    fflush(stdout);
    free(small);
    sglcore_text_free(env, &text);
}

static bool good_seed(uint64_t seed)
{
    sglcore_env env;
    failing f = { .seed = seed };
    ir_message message;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = random_program(&env, seed, &f.traits);
    bool good = g != NULL;
    if (!good) printf("seed %" PRIu64 " makes no program: %s\n", seed, env.message);
    if (g != NULL && !random_check(&env, g, &f.traits, seed, seed % 10 == 0, &message)) {
        good = false;
        report(&env, g, f, &message);
    }
    sglir_graph_free(g);
    if (env.bytes_in_use != 0) printf("seed %" PRIu64 ": %" PRId64 " bytes are leaked\n", seed, env.bytes_in_use);
    return good && env.bytes_in_use == 0;
}

static int failures_in(uint64_t first, uint64_t count)
{
    int failures = 0;
    for (uint64_t seed = first; seed < first + count; seed++) failures += !good_seed(seed);
    return failures;
}

static void tell_unsupported(void)
{
    const char *messages[64] = { NULL };
    int runs = random_unsupported(messages, 64);
    printf("%d runs were not supported by the device\n", runs);
    for (int i = 0; i < 64 && messages[i] != NULL; i++) printf("  %s\n", messages[i]);
}

static void test_seeds(void **state)
{
    (void)state;
    int failures = failures_in(1, SEEDS);
    tell_unsupported();
    assert_int_equal(failures, 0);
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
        if (line[0] != '#' && line[0] != '\n') failures += !good_seed(strtoull(line, NULL, 10));
    }
    fclose(file);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_seeds), cmocka_unit_test(test_seeds_that_failed) };
    if (argc == 3) {
        int failures = failures_in(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
        printf("%s seeds from %s: %d failures\n", argv[2], argv[1], failures);
        tell_unsupported();
        return failures > 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
