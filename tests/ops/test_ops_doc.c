/* test_ops_doc.c -- what is told of ops (ops_words.def, docs/ops.md) is so: each op's shapes hold in all of its cases, its
 * derivative has words exactly where it has a rule of its own, and docs/ops.md is what op_doc.c makes of the tables.
 *
 * In: ROOT, the repository. With SGL_TESTS_ACCEPT=1 docs/ops.md is written anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/op_case.h"
#include "tests/support/op_doc.h"
#include "tests/support/shape_rule.h"

static bool holds_in(const char *rule, const op_case *c, const op_binding *b)
{
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = op_case_graph(&env, c, b);
    bool holds = true;
    if (g == NULL) fail_msg("%s", env.message);
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        if (node->op == c->op) holds = holds && shape_rule_holds(rule, g, node);
    }
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
    return holds;
}

static void test_shapes(void **state)
{
    (void)state;
    op_case c;
    for (int n = 0; op_case_at(n, &c); n++) {
        if (c.kind == OP_REFUSED) continue;
        const char *rule = sglir_op_words_of(c.op).shapes;
        for (int leading = 0; leading < 3; leading++) {
            char label[1024];
            op_binding b = op_binding_plain();
            if (!op_case_takes(&c, b.dtype)) b.dtype = c.dtypes == OP_BOOLS ? SGL_BOOL : SGL_I32;
            b.star_rank = leading;
            for (int i = 0; i < leading; i++) b.star[i] = 11 + i;
            if (!holds_in(rule, &c, &b))
                fail_msg("%s is not as '%s' says", op_case_label(&c, &b, label, sizeof label), rule);
        }
    }
}

/* A text that is wrong is found wrong. */
static void test_wrong_shapes(void **state)
{
    (void)state;
    static const struct {
        sglir_op op;
        const char *rule;
    } wrong[] = {
        { SGLIR_OP_LINEAR, "[..., in], [in, out], [out]? -> [..., out]" },
        { SGLIR_OP_LINEAR, "[..., in], [out, in], [out] -> [..., out]" },
        { SGLIR_OP_SOFTMAX, "[..., n] -> [n, ...]" },
        { SGLIR_OP_SOFTMAX, "[..., n] -> [..., n], [..., n]" },
        { SGLIR_OP_SOFTMAX, "[..., n], [] -> [..., n]" },
        { SGLIR_OP_SCATTER_ADD, "[i...], [i..., r...] -> [r..., extent]" },
        { SGLIR_OP_TOP_K, "[..., k] -> [..., n], [..., n]" },
        { SGLIR_OP_TRANSPOSE, "[x...] -> [x...]" },
        { SGLIR_OP_CONCAT, "[a..., n, b...]... -> [a..., m, b...]" },
        { SGLIR_OP_ROPE, "[b, t, h, 1], [] -> [b, t, h, 1]" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        op_case c;
        bool holds = true;
        for (int n = 0; op_case_at(n, &c); n++) {
            op_binding b = op_binding_plain();
            b.star_rank = 1;
            b.star[0] = 11;
            if (c.op == wrong[i].op && c.kind != OP_REFUSED) holds = holds && holds_in(wrong[i].rule, &c, &b);
        }
        if (holds) fail_msg("'%s' is taken for the shapes of %s", wrong[i].rule, sglir_ops[wrong[i].op].name);
    }
}

#define SGLIR_WORDS_GROUP(title, form, text)
#define SGLIR_WORDS(NAME, arguments, shapes, derivative) [SGLIR_OP_##NAME] = derivative,
static const char *const derivatives[SGLIR_OP_COUNT] = {
#include "ir/ops_words.def"
};
#undef SGLIR_WORDS
#undef SGLIR_WORDS_GROUP

static void test_derivatives(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        const char *rule = sglir_op_words_of((sglir_op)op).rule;
        bool own = strcmp(rule, "zero") != 0 && strcmp(rule, "compose") != 0;
        if (strcmp(rule, "refuse") != 0 && own != (derivatives[op][0] != '\0'))
            fail_msg("%s: its rule is '%s', its words in ops_words.def are '%s'", sglir_ops[op].name, rule,
                     derivatives[op]);
    }
}

/* How many arguments the words name is how many the row takes. */
static void test_arguments(void **state)
{
    (void)state;
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        const sglir_op_row *row = &sglir_ops[op];
        const char *names = sglir_op_words_of((sglir_op)op).arguments;
        int least = 0, most = *names != '\0';
        bool many = strstr(names, "...") != NULL;
        for (const char *at = names; *at != '\0'; at++) most += *at == ',';
        for (const char *at = names; (at = strchr(at, '?')) != NULL; at++) least--;
        least += most;
        if (many != (row->maximum < 0) || (!many && most != row->maximum) || (!many && least != row->minimum))
            fail_msg("%s takes %d to %d arguments, '%s' names others", row->name, row->minimum, row->maximum, names);
    }
}

static void test_document(void **state)
{
    (void)state;
    char path[4096];
    const char *wish = getenv("SGL_TESTS_ACCEPT");
    assert_non_null(getenv("ROOT"));
    snprintf(path, sizeof path, "%s/docs/ops.md", getenv("ROOT"));
    char *wanted = op_doc_text(), *found;
    if (wish != NULL && strcmp(wish, "1") == 0) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fputs(wanted, file) < 0 || fclose(file) != 0, 0);
    }
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("there is no %s; SGL_TESTS_ACCEPT=1 ctest -R ops/test_ops_doc writes it", path);
    size_t size = strlen(wanted) + 2; /* so that one byte more is read where there is one */
    found = calloc(1, size);
    assert_non_null(found);
    size_t read = fread(found, 1, size - 1, file);
    fclose(file);
    if (read != strlen(wanted) || memcmp(wanted, found, read) != 0) {
        size_t same = 0;
        while (wanted[same] != '\0' && wanted[same] == found[same]) same++;
        while (same > 0 && wanted[same - 1] != '\n') same--;
        fail_msg("docs/ops.md is not what the tables say, from here on:\n  %.*s\nwhere they say\n  %.*s\n"
                 "SGL_TESTS_ACCEPT=1 ctest -R ops/test_ops_doc writes it anew",
                 (int)strcspn(found + same, "\n"), found + same, (int)strcspn(wanted + same, "\n"), wanted + same);
    }
    free(found);
    free(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_wrong_shapes), cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
