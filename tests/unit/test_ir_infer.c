/* test_ir_infer.c -- what every op makes of the types of its arguments: shapes and dtypes, what is owed, how it is split;
 * or with which words it refuses them.
 *
 * The cases are tables: infer_cases.h (shapes and dtypes), infer_layout_cases.h (what is owed, how it is split). */
#include "fault.h"

#include <stdio.h>

#include "ir/ir.h"
#include "infer_cases.h"
#include "infer_layout_cases.h"

/* ---- running a case ------------------------------------------------------------------------------------------- */

static void add(char *text, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static void add(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t used = strlen(text);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

static int axis_of(const char *name, size_t length)
{
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if (strlen(sglir_axis_name(axis)) == length && strncmp(sglir_axis_name(axis), name, length) == 0) return axis;
    }
    fail_msg("no axis %s", name);
    return 0;
}

/* One type as it is printed, made an input of the text form. Returns what follows it. */
static const char *add_input(char *text, size_t size, int number, const char *type)
{
    int layout[SGLIR_AXIS_COUNT], partial = 0, scaled = 0;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) layout[axis] = -1;
    const char *open = strchr(type, '['), *close = strchr(type, ']'), *at = close + 1;
    while (*at == '{' || *at == ',') {
        at++;
        size_t length = strcspn(at, ":(,}");
        if (at[length] == ':')
            layout[axis_of(at, length)] = at[length + 1] - '0';
        else if (at[length] == '(')
            partial |= 1 << axis_of(at + length + 1, strcspn(at + length + 1, ")"));
        else
            scaled = 1;
        at += strcspn(at, ",}");
    }
    if (*at == '}') at++;
    add(text, size, "%%%d = input() {role=2, name=\"a%d\", dtype=%.*s, dims=%.*s, layout=[", number, number,
        (int)(open - type), type, (int)(close + 1 - open), open);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) add(text, size, "%s%d", axis > 0 ? "," : "", layout[axis]);
    add(text, size, "], partial=%d, scaled=%d}\n", partial, scaled);
    return at + strspn(at, " ");
}

/* How many results the line has: the row's number, or one more than there are ';' in what is expected. */
static int result_count(const type_case *c)
{
    int count = sglir_ops[sglir_op_find(c->op)].results;
    if (count >= 0) return count;
    count = 1;
    if (strcspn(c->expected, "[") > strcspn(c->expected, " ")) return count; /* an error */
    for (const char *at = strstr(c->expected, "; "); at != NULL; at = strstr(at + 2, "; ")) count++;
    return count;
}

/* The case as a graph; NULL when it is refused, and then the message stands in env. */
static sglir_graph *parse_case(const type_case *c, sglcore_env *env)
{
    static char text[8192];
    int count = 0, results = result_count(c);
    snprintf(text, sizeof text, "graph \"case\" {\n");
    for (const char *at = c->args; *at != '\0';) at = add_input(text, sizeof text, count++, at);
    for (int i = 0; i < results; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", count + i);
    add(text, sizeof text, " = %s(", c->op);
    for (int i = 0; i < count; i++) add(text, sizeof text, "%s%%%d", i > 0 ? ", " : "", i);
    add(text, sizeof text, ")%s%s%s\nfetch \"y\" %%%d\n}\n", c->attrs[0] != '\0' ? " {" : "", c->attrs,
        c->attrs[0] != '\0' ? "}" : "", count);
    sglir_graph *g = NULL;
    sglcore_env_init(env, NULL, NULL, NULL, NULL);
    sgl_status status = sglir_parse(env, "case", text, strlen(text), &g);
    assert_true((status == SGL_OK) == (g != NULL));
    return g;
}

static void run_case(const type_case *c)
{
    static char have[4096];
    sglcore_env env;
    sglir_graph *g = parse_case(c, &env);
    have[0] = '\0';
    if (g != NULL) {
        const sglir_node *node = sglir_maker(g, g->outputs.data[0].value);
        for (uint32_t i = 0; i < node->out_count; i++) {
            char type[512];
            sglir_type_text(sglir_type_of(g, node->out_first + i), type, sizeof type);
            add(have, sizeof have, "%s%s", i > 0 ? "; " : "", type);
        }
    } else { /* "case:3:6: op: what is wrong" */
        char before[64];
        snprintf(before, sizeof before, " %s: ", c->op);
        const char *what = strstr(env.message, before);
        add(have, sizeof have, "%s", what == NULL ? env.message : what + strlen(before));
    }
    if (strcmp(have, c->expected) != 0)
        fail_msg("%s(%s) {%s}\n  gives    %s\n  expected %s", c->op, c->args, c->attrs, have, c->expected);
    sglir_graph_free(g);
    assert_int_equal(env.bytes_in_use, 0);
}

#define RUN(table)                                                                                                     \
    static void test_##table(void **state)                                                                             \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) run_case(&table[i]);                               \
    }
RUN(shapes)
RUN(owed)
RUN(split)

/* ---- what is no table ----------------------------------------------------------------------------------------- */

/* A zero owes whatever its partner does. */
static void test_zero_joins_a_partial_sum(void **state)
{
    (void)state;
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglir_graph_new(&env, "case", &g), SGL_OK);
    const int64_t dims[] = { 4 };
    sglir_type type = sglir_type_make(SGL_F32, 1, dims), mask = sglir_type_make(SGL_BOOL, 1, dims);
    type.partial = 1 << SGLIR_AXIS_MICRO;
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type), m = sglir_input(g, SGL_FEED, "m", &mask);
    sglir_id masked = sglir_select(g, m, x, sglir_constant(g, SGL_F32, 0));
    assert_int_equal(sglir_status(g), SGL_OK);
    assert_true(sglir_type_equal(sglir_type_of(g, masked), &type));
    sglir_select(g, m, x, sglir_constant(g, SGL_F32, 1));
    assert_int_equal(sglir_status(g), SGL_TYPE);
    assert_string_equal(env.message,
                        "select: argument 1 still owes a sum over micro; argument 2 owes nothing: they must "
                        "owe the same");
    sglir_graph_free(g);
}

/* What is broadcast beside a split value is split like it, so that a sum over it is owed. */
static void test_broadcast_beside_a_split_value(void **state)
{
    (void)state;
    sglcore_env env;
    sglir_graph *g;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    assert_int_equal(sglir_graph_new(&env, "case", &g), SGL_OK);
    const int64_t dims[] = { 2, 4 };
    sglir_type type = sglir_type_make(SGL_F32, 2, dims);
    type.sharded[SGLIR_AXIS_MICRO] = 0;
    sglir_id x = sglir_input(g, SGL_FEED, "x", &type);
    const int64_t axes[] = { 0, 1 };
    sglir_id count = sglir_reduce(g, SGLIR_OP_REDUCE_SUM, sglir_constant_like(g, x, 1), axes, 2, false);
    assert_int_equal(sglir_status(g), SGL_OK);
    assert_int_equal(sglir_type_of(g, count)->partial, 1 << SGLIR_AXIS_MICRO);
    sglir_id half = sglir_arg(g, sglir_maker(g, sglir_scale(g, x, 0.5)), 1);
    assert_true(sglir_type_equal(sglir_type_of(g, half), &type));
    sglir_graph_free(g);
}

/* A label is a small number, and stands only where there is a dimension. */
static void check_labels(const sglir_labels *labels, const int8_t row[SGL_MAX_RANK], int rank)
{
    for (int d = 0; d < SGL_MAX_RANK; d++) {
        assert_true(row[d] >= -1 && row[d] < labels->count);
        if (d >= rank) assert_int_equal(row[d], -1);
    }
}

static void test_labels_are_in_range(void **state)
{
    (void)state;
    int labelled = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        sglcore_env env;
        sglir_labels labels;
        sglir_graph *g = parse_case(&shapes[i], &env);
        if (g == NULL) continue;
        const sglir_node *node = sglir_maker(g, g->outputs.data[0].value);
        if (sglir_labels_of(g, node, &labels)) {
            labelled++;
            assert_in_range(labels.count, 0, 31);
            assert_int_equal((labels.summed | labels.refused) >> labels.count, 0);
            assert_int_equal(labels.summed & labels.refused, 0);
            for (uint32_t a = 0; a < node->arg_count; a++)
                check_labels(&labels, labels.args[a], sglir_type_of(g, sglir_arg(g, node, a))->rank);
            for (uint32_t r = 0; r < node->out_count; r++)
                check_labels(&labels, labels.results[r], sglir_type_of(g, node->out_first + r)->rank);
        }
        sglir_graph_free(g);
    }
    assert_true(labelled > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_owed),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_zero_joins_a_partial_sum),
        cmocka_unit_test(test_broadcast_beside_a_split_value),
        cmocka_unit_test(test_labels_are_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
