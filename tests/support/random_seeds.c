/* random_seeds.c -- one seed: its program drawn, checked in its ways, and shrunk when it fails; and programs kept as text. In and
 * out: random_seeds.h.
 *
 * What is printed of a program that fails is a file as tests/ops/found holds them: a line of what it is asked, then the graph's
 * text as it parses. Every tenth seed is run without each pass in turn. */
#include "tests/support/random_seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random_cover.h"
#include "tests/support/random_program.h"
#include "tests/support/shrink.h"

enum { SHRINKING = 1500 };

typedef struct failing {
    random_traits traits;
    uint64_t seed;
    char kind[24]; /* how its message begins */
} failing;

/* ---- what a program is asked ---------------------------------------------------------------------------------------- */

#define TRAITS                                                                                                         \
    "# asked: seed=%" PRIu64 " derived=%d smooth=%d differs=%d micro=%" PRId64 " steps=%d bounded=%d precision=%s"
#define READ_TRAITS                                                                                                    \
    "# asked: seed=%" SCNu64 " derived=%d smooth=%d differs=%d micro=%" SCNd64 " steps=%d bounded=%d precision=%15s"

static void write_traits(char *text, size_t size, const failing *f)
{
    const random_traits *t = &f->traits;
    snprintf(text, size, TRAITS, f->seed, t->derived, t->smooth, t->differs, t->micro, t->steps, t->bounded,
             sgl_dtype_name(t->precision));
}

static bool read_traits(const char *text, failing *f)
{
    int derived, smooth, differs, steps, bounded;
    char precision[16];
    const char *line = strstr(text, "# asked: ");
    *f = (failing){ 0 };
    if (line == NULL || sscanf(line, READ_TRAITS, &f->seed, &derived, &smooth, &differs, &f->traits.micro, &steps,
                               &bounded, precision) != 8)
        return false;
    f->traits.derived = derived != 0;
    f->traits.smooth = smooth != 0;
    f->traits.differs = differs != 0;
    f->traits.steps = steps;
    f->traits.bounded = bounded != 0;
    f->traits.precision = strcmp(precision, "bf16") == 0 ? SGL_BF16 : strcmp(precision, "f16") == 0 ? SGL_F16 : SGL_F32;
    return true;
}

/* ---- what fails ------------------------------------------------------------------------------------------------------ */

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
    char *small = shrink_text(text.data, still_fails, &f, SHRINKING), traits[256];
    write_traits(traits, sizeof traits, &f);
    printf("# seed %" PRIu64 ": %s\n# repeat with: test_random %" PRIu64 " %" PRIu64 "\n%s\n%s", f.seed, message->text,
           f.seed, f.seed, traits, small);
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
    if (good) random_cover_program(g);
    if (!good) printf("seed %" PRIu64 " makes no program: %s\n", seed, env.message);
    if (g != NULL && !random_check(&env, g, &f.traits, seed, seed % 10 == 0, &message)) {
        good = false;
        report(&env, g, f, &message);
    }
    sglir_graph_free(g);
    if (env.bytes_in_use != 0) printf("seed %" PRIu64 ": %" PRId64 " bytes are leaked\n", seed, env.bytes_in_use);
    return good && env.bytes_in_use == 0;
}

static char *read_file(const char *path)
{
    enum { MOST_BYTES = 1 << 20 };
    FILE *file = fopen(path, "rb");
    char *text = file != NULL ? malloc(MOST_BYTES) : NULL;
    if (text != NULL) text[fread(text, 1, MOST_BYTES - 1, file)] = '\0';
    if (file != NULL) fclose(file);
    return text;
}

bool random_text(const char *path)
{
    sglcore_env env;
    failing f;
    ir_message message = { "" };
    char *text = read_file(path);
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    const char *graph = text != NULL ? strstr(text, "graph ") : NULL;
    bool good = graph != NULL && read_traits(text, &f);
    if (!good) snprintf(message.text, sizeof message.text, "it cannot be read, or has no line '# asked: ' or no graph");
    sglir_graph *g = good ? ir_case_parse(&env, path, graph, &message) : NULL;
    good = g != NULL && random_check(&env, g, &f.traits, f.seed, true, &message);
    sglir_graph_free(g);
    free(text);
    if (!good) printf("%s: %s\n", path, message.text);
    if (env.bytes_in_use != 0) printf("%s: %" PRId64 " bytes are leaked\n", path, env.bytes_in_use);
    return good && env.bytes_in_use == 0;
}
