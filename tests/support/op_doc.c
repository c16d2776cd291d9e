/* op_doc.c -- docs/ops.md. See op_doc.h.
 *
 * In: the tables, the cases. Out: the text. What a row does not say is asked of the core: an op's cases are built in each
 * dtype, and what they take and give is told in letters; their labels and decompositions are those of a node of theirs.
 * Odd invariant: nothing here depends on an order other than that of the tables, so the text is the same everywhere. */
#include "tests/support/op_doc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/infer.h"
#include "tests/support/op_case.h"

enum { MOST_VALUES = 16, MOST_PATTERNS = 8, PATTERN = 256 };

static void put(FILE *out, const char *format, ...) SGL_PRINTF(2, 3);
static void put(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    assert_true(vfprintf(out, format, arguments) >= 0);
    va_end(arguments);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* The n-th case of the op that is no refusal. */
static bool case_of(sglir_op op, int n, op_case *c)
{
    for (int i = 0; op_case_at(i, c); i++) {
        if (c->op == op && c->kind != OP_REFUSED && n-- == 0) return true;
    }
    return false;
}

static op_binding binding_of(const op_case *c, sgl_dtype dtype, int leading)
{
    op_binding b = op_binding_plain();
    b.dtype = c->dtypes == OP_NONE ? SGL_F64 : dtype;
    b.index = SGL_U16; /* which stands for itself nowhere else */
    b.star_rank = leading;
    for (int i = 0; i < leading; i++) b.star[i] = 3;
    return b;
}

static const sglir_node *node_of(const sglir_graph *g, sglir_op op)
{
    for (int64_t n = 0; n < g->nodes.count; n++) {
        if (g->nodes.data[n].op == op) return &g->nodes.data[n];
    }
    fail_msg("a case of %s has no node of it", sglir_ops[op].name);
    return NULL;
}

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */

/* What the core took of a case, by the dtype of T: the dtypes of arguments, then of results. */
typedef struct taken {
    uint32_t dtypes; /* bit per dtype */
    int args, values;
    int of[SGL_DTYPE_COUNT][MOST_VALUES];
} taken;

static taken take(const op_case *c)
{
    taken t = { 0 };
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        sglcore_env env;
        sglcore_env_init(&env, NULL, NULL, NULL, NULL);
        op_binding b = binding_of(c, (sgl_dtype)dtype, 0);
        sglir_graph *g = c->dtypes == OP_NONE && dtype > 0 ? NULL : op_case_graph(&env, c, &b);
        if (g == NULL) continue;
        const sglir_node *node = node_of(g, c->op);
        t.dtypes |= 1u << dtype;
        t.args = (int)node->arg_count;
        t.values = t.args + (int)node->out_count;
        assert_in_range(t.values, 0, MOST_VALUES);
        for (int i = 0; i < t.values; i++) {
            sglir_id id = i < t.args ? sglir_arg(g, node, (uint32_t)i) : node->out_first + (sglir_id)(i - t.args);
            t.of[dtype][i] = sglir_type_of(g, id)->dtype;
        }
        sglir_graph_free(g);
    }
    assert_int_not_equal(t.dtypes, 0);
    return t;
}

static int wide(int dtype) { return dtype == SGL_F64 ? SGL_F64 : SGL_F32; }

/* "T", "W", "I", "to" or the name of a dtype. */
static const char *letter(const op_case *c, const taken *t, int value)
{
    bool is_t = true, is_w = true, is_same = true;
    int first = -1, count = 0;
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        if (!(t->dtypes >> dtype & 1)) continue;
        int found = t->of[dtype][value];
        if (first < 0) first = found;
        count++;
        is_t = is_t && found == dtype;
        is_w = is_w && found == wide(dtype);
        is_same = is_same && found == first;
    }
    if (is_t && count > 1) return "T";
    if (is_w && count > 1) return "W";
    if (!is_same) fail_msg("%s: no word tells the dtype of value %d", sglir_ops[c->op].name, value);
    if (c->op == SGLIR_OP_CAST) return "to";
    return first == SGL_U16 ? "I" : sgl_dtype_name((sgl_dtype)first);
}

static const char *class_of(uint32_t dtypes)
{
    static char list[256];
    uint32_t floats = 0, all = 0;
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        all |= 1u << dtype;
        if (sglcore_dtype_is_float((sgl_dtype)dtype)) floats |= 1u << dtype;
    }
    uint32_t integers = all & ~floats & ~(1u << SGL_BOOL);
    if (dtypes == all) return "any dtype";
    if (dtypes == floats) return "any float";
    if (dtypes == (floats | integers)) return "any number";
    if (dtypes == integers) return "any integer";
    if (dtypes == (integers | 1u << SGL_BOOL)) return "any integer, or bool";
    list[0] = '\0';
    for (int dtype = 0; dtype < SGL_DTYPE_COUNT; dtype++) {
        if (!(dtypes >> dtype & 1)) continue;
        if (list[0] != '\0') strcat(list, " or ");
        strcat(list, sgl_dtype_name((sgl_dtype)dtype));
    }
    return list;
}

static bool contains(char patterns[][PATTERN], int count, const char *pattern)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(patterns[i], pattern) == 0) return true;
    }
    return false;
}

/* "`T, I -> T`, T any dtype"; nothing for an op without cases. */
static void put_dtypes(FILE *out, sglir_op op)
{
    char patterns[MOST_PATTERNS][PATTERN];
    int count = 0;
    uint32_t dtypes = 0;
    op_case c;
    for (int n = 0; case_of(op, n, &c); n++) {
        taken t = take(&c);
        char pattern[PATTERN] = "";
        size_t used = 0;
        for (int i = 0; i < t.values; i++) {
            const char *before = i == t.args ? (i > 0 ? " -> " : "-> ") : i > 0 ? ", " : "";
            used += (size_t)snprintf(pattern + used, sizeof pattern - used, "%s%s", before, letter(&c, &t, i));
            assert_true(used < sizeof pattern);
        }
        if (c.dtypes != OP_NONE) dtypes |= t.dtypes;
        if (contains(patterns, count, pattern)) continue;
        assert_in_range(count, 0, MOST_PATTERNS - 1);
        strcpy(patterns[count++], pattern);
    }
    for (int i = 0; i < count; i++) put(out, "%s`%s`", i > 0 ? " or " : "", patterns[i]);
    if (count > 0 && dtypes != 0 && strchr(patterns[0], 'T') != NULL) put(out, ", T %s", class_of(dtypes));
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void put_labelled(FILE *out, const sglir_labels *labels, const int8_t *row, int rank, const char *before)
{
    put(out, "%s[", before);
    for (int d = 0; d < rank; d++) {
        int label = row[d];
        const char *separator = d > 0 ? ", " : "";
        if (label < 0 || labels->refused >> label & 1)
            put(out, "%s.", separator);
        else
            put(out, "%s%s%c", separator, labels->summed >> label & 1 ? "+" : "", 'a' + label);
    }
    put(out, "]");
}

/* "`[a, b, +c], [d, +c] -> [a, b, d]`", of a case's node; false where its dims have no labels. */
static bool put_labels(FILE *out, sglir_op op)
{
    op_case c;
    sglir_labels labels;
    if (!case_of(op, 0, &c)) return false;
    taken t = take(&c);
    sgl_dtype dtype = SGL_F64;
    while (!(t.dtypes >> dtype & 1)) dtype++;
    op_binding b = binding_of(&c, dtype, 1);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglir_graph *g = op_case_graph(&env, &c, &b);
    assert_non_null(g);
    const sglir_node *node = node_of(g, op);
    bool labelled = sglir_labels_of(g, node, &labels);
    if (labelled) {
        put(out, "`");
        for (uint32_t i = 0; i < node->arg_count; i++)
            put_labelled(out, &labels, labels.args[i], sglir_type_of(g, sglir_arg(g, node, i))->rank,
                         i > 0 ? ", " : "");
        for (uint32_t i = 0; i < node->out_count; i++)
            put_labelled(out, &labels, labels.results[i], sglir_type_of(g, node->out_first + i)->rank,
                         i > 0                 ? ", "
                         : node->arg_count > 0 ? " -> "
                                               : "-> ");
        put(out, "`");
    }
    sglir_graph_free(g);
    return labelled;
}

/* ---- what it is made of ------------------------------------------------------------------------------------------ */

static void put_parts(FILE *out, sglir_op op)
{
    op_case c;
    bool told[SGLIR_OP_COUNT] = { false };
    sglir_compose_fn rule = sglir_compose_rule(op);
    if (rule == NULL || !case_of(op, 0, &c)) return;
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    op_binding b = binding_of(&c, SGL_F32, 1);
    sglir_graph *g = op_case_graph(&env, &c, &b), *to;
    assert_non_null(g);
    assert_int_equal(sglir_graph_new(&env, "parts", &to), SGL_OK);
    const sglir_node *node = node_of(g, op);
    sglir_id args[MOST_VALUES], results[MOST_VALUES];
    for (uint32_t i = 0; i < node->arg_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", i);
        args[i] = sglir_input(to, SGL_FEED, name, sglir_type_of(g, sglir_arg(g, node, i)));
    }
    rule(to, g, node, args, results);
    assert_int_equal(sglir_status(to), SGL_OK);
    const char *before = "- made of: ";
    for (int64_t n = 0; n < to->nodes.count; n++) {
        sglir_op part = (sglir_op)to->nodes.data[n].op;
        if (part == SGLIR_OP_INPUT || told[part]) continue;
        told[part] = true;
        put(out, "%s`%s`", before, sglir_ops[part].name);
        before = ", ";
    }
    if (strcmp(before, ", ") == 0) put(out, "\n");
    sglir_graph_free(to);
    sglir_graph_free(g);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static const char *kind_of(char kind)
{
    switch (kind) {
    case 'i': return "integer";
    case 'b': return "flag";
    case 'f': return "number";
    case 's': return "text";
    case 't': return "dtype";
    case 'I': return "integers";
    default: return "numbers";
    }
}

static void put_attributes(FILE *out, sglir_op op)
{
    const char *at = sglir_ops[op].attrs, *before = " {";
    sglir_schema_item item;
    while (sglir_schema_step(&at, &item)) {
        if (item.name_length == 6 && strncmp(item.name, "layout", 6) == 0) continue; /* of passes */
        put(out, "%s%.*s: %s", before, item.name_length, item.name, kind_of(item.kind));
        if (item.value != NULL && item.value_length == 0) put(out, " = none");
        if (item.value_length > 0) put(out, " = %.*s", item.value_length, item.value);
        before = ", ";
    }
    if (strcmp(before, ", ") == 0) put(out, "}");
}

/* The name of the n-th argument. */
static void put_argument(FILE *out, sglir_op op, int number)
{
    const char *at = sglir_op_words_of(op).arguments;
    for (; number > 0; number--) at = strchr(at, ',') + 1;
    at += strspn(at, " ");
    put(out, "`%.*s`", (int)strcspn(at, ",?"), at);
}

/* "x and bias together; weight and bias together" of the column `linear`. */
static void put_linear(FILE *out, sglir_op op)
{
    const char *linear = sglir_ops[op].linear;
    if (strcmp(linear, "*") == 0) {
        put(out, "all together");
        return;
    }
    for (const char *at = linear; *at != '\0'; at++) {
        if (*at == '|') {
            put(out, "; ");
            continue;
        }
        if (at > linear && at[-1] != '|') put(out, " and ");
        put_argument(out, op, *at - '0');
        if (at > linear && at[-1] != '|' && (at[1] == '\0' || at[1] == '|')) put(out, " together");
    }
}

/* A text in a table: its bars are no borders of cells. */
static void put_cell(FILE *out, const char *cell)
{
    for (; *cell != '\0'; cell++) put(out, "%s%c", *cell == '|' ? "\\" : "", *cell);
}

static void put_row(FILE *out, sglir_op op)
{
    sglir_op_words words = sglir_op_words_of(op);
    put(out, "| `%s(%s)`", sglir_ops[op].name, words.arguments);
    put_attributes(out, op);
    put(out, " | ");
    put_cell(out, sglir_ops[op].help);
    put(out, " | ");
    put_dtypes(out, op);
    put(out, " | ");
    put_cell(out, words.derivative);
    put(out, " | ");
    put_linear(out, op);
    put(out, " |\n");
}

static void put_section(FILE *out, sglir_op op)
{
    const sglir_op_row *row = &sglir_ops[op];
    sglir_op_words words = sglir_op_words_of(op);
    op_case c;
    put(out, "\n### %s\n\n`%s(%s)", row->name, row->name, words.arguments);
    put_attributes(out, op);
    put(out, "`\n\n%s\n\n", row->help);
    const char *colon = strchr(words.shapes, ':');
    int length = (int)(colon != NULL ? (size_t)(colon - words.shapes) : strlen(words.shapes));
    put(out, "- shapes: `%.*s`%s\n", length, words.shapes, colon != NULL ? colon : "");
    if (case_of(op, 0, &c)) {
        put(out, "- dtypes: ");
        put_dtypes(out, op);
        put(out, "\n");
    }
    put(out, "- derivative: %s\n", words.derivative);
    if (row->linear[0] != '\0') {
        put(out, "- linear in: ");
        put_linear(out, op);
        put(out, "\n");
    }
    put(out, "- split: ");
    if (!put_labels(out, op)) put(out, "no labels");
    put(out, "\n");
    put_parts(out, op);
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

typedef enum layout { TABLE, SECTIONS } layout;

typedef struct entry {
    const char *title; /* of a group, or NULL */
    const char *text;
    layout form;
    sglir_op op;
} entry;

static const entry entries[] = {
#define SGLIR_WORDS_GROUP(title, form, text) { title, text, form, SGLIR_OP_COUNT },
#define SGLIR_WORDS(NAME, ...) { NULL, NULL, SECTIONS, SGLIR_OP_##NAME },
#include "ir/ops_words.def"
#undef SGLIR_WORDS
#undef SGLIR_WORDS_GROUP
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* As hosts of Markdown make it of a heading. */
static void put_anchor(FILE *out, const char *heading)
{
    for (; *heading != '\0'; heading++) {
        if (*heading == ' ')
            put(out, "-");
        else if (isalnum((unsigned char)*heading) || *heading == '_')
            put(out, "%c", tolower((unsigned char)*heading));
    }
}

static void put_index(FILE *out)
{
    layout form = SECTIONS;
    for (int i = 0; i < ENTRIES; i++) {
        const entry *e = &entries[i];
        if (e->title != NULL) {
            put(out, "%s- [%s](#", i > 0 ? "\n" : "", e->title);
            put_anchor(out, e->title);
            put(out, "):");
            form = e->form;
        } else if (form == TABLE) {
            put(out, " `%s`", sglir_ops[e->op].name);
        } else {
            put(out, " [`%s`](#%s)", sglir_ops[e->op].name, sglir_ops[e->op].name);
        }
    }
    put(out, "\n");
}

static const char head[] =
    "# The ops of a graph\n\n"
    "*Made of vm/ir/ops.def, vm/ir/ops_words.def and the core itself; `SGL_TESTS_ACCEPT=1 ctest -R ops/test_ops_doc` "
    "writes it anew. `sgl help NAME` tells the same of one op, and `docs/language.md` how a script uses them.*\n\n"
    "What stands of each op:\n\n"
    "- its arguments, where `?` may be left out and `...` is any number, and in braces its attributes with their defaults;\n"
    "- **shapes** of the arguments and of each result: a name is an extent, `s...` any number of extents, the same name is the "
    "same everywhere, and that of an attribute is its value; `_i` is another in each argument;\n"
    "- **dtypes** that the core takes: `T` one of those named, `W` f64 where T is f64 and else f32, `I` any integer dtype;\n"
    "- **derivative**: the gradients of arguments, with `y` the result and `dy` its gradient; autodiff.c adds up those of several "
    "uses;\n"
    "- **linear**: the arguments through which a sum that is still owed, or a loss scale, may pass;\n"
    "- **split**: how dimensions run together when a plan cuts them, by the first case of the op in tests/ops/cases.def. Dims with "
    "one letter are cut alike; `+` is summed over, and a result that lacks the letter is then owed a sum; `.` cannot be cut. "
    "What has no labels stays whole, but that generators make the part that is asked for. Over ranks, packs are split by their "
    "members (vm/passes/shard_packs.c), and a table of `gather`, `reduce_max` and `reduce_min`, and the sequence of the queries of "
    "`attention` and `rope` where no label lets them (vm/ir/beyond.c);\n"
    "- **made of**: the ops of a composite's decomposition, which is its meaning and its reference.\n\n";

static const char table_head[] = "\n| op | meaning | dtypes | derivative | linear |\n| --- | --- | --- | --- | --- |\n";

char *op_doc_text(void)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    put(out, "%s", head);
    put_index(out);
    layout form = SECTIONS;
    for (int i = 0; i < ENTRIES; i++) {
        const entry *e = &entries[i];
        if (e->title != NULL) {
            form = e->form;
            put(out, "\n## %s\n", e->title);
            if (e->text[0] != '\0') put(out, "\n%s\n", e->text);
            if (form == TABLE) {
                put(out, "\nThe shapes are one shape, that of the result; split: ");
                put_labels(out, entries[i + 1].op);
                put(out, ".\n%s", table_head);
            }
        } else if (form == TABLE) {
            put_row(out, e->op);
        } else {
            put_section(out, e->op);
        }
    }
    assert_int_equal(fclose(out), 0);
    return text;
}
