/* random_seeds.c -- one seed: its program drawn, checked three ways, and shrunk when it fails. In and out: random_seeds.h.
 * A graph's text is printed as it parses. Every tenth seed is run without each pass in turn. */
#include "tests/support/random_seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random_program.h"
#include "tests/support/shrink.h"

enum { SHRINKING = 1500 };

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
    printf("seed %" PRIu64 ": %s\nrepeat with: test_random %" PRIu64 " %" PRIu64 "\n%s", f.seed, message->text, f.seed,
           f.seed, small);
    fflush(stdout);
    free(small);
    sglcore_text_free(env, &text);
}

bool random_seed(uint64_t seed)
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
