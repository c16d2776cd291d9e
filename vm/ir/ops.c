/* ops.c -- the op table in memory, expanded from ops.def, and the reading of its attribute schemas.
 *
 * In: ops.def. Out: sglir_ops, the infer and compose columns, names to ops. Odd invariant: a schema is checked nowhere at
 * run time; a test walks all rows. */
#include <string.h>

#include "ir/infer.h"

const sglir_op_row sglir_ops[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, vjp, labels, cost, help) \
    [SGLIR_OP_##NAME] = { text, minimum, maximum, results, flags, linear, attrs, help },
#include "ir/ops.def"
#undef SGLIR_OP
};

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* A row of ops.def without one of ops_words.def does not compile here; nor does one of that table that has no row. */
enum {
#define SGLIR_WORDS_GROUP(title, form, text)
#define SGLIR_WORDS(NAME, ...) ADD_WORDS_TO_OPS_WORDS_DEF_FOR_##NAME,
#include "ir/ops_words.def"
#undef SGLIR_WORDS
    WORDS
};
enum {
    ROWS = 0
#define SGLIR_OP(NAME, ...) +(ADD_WORDS_TO_OPS_WORDS_DEF_FOR_##NAME >= 0)
#include "ir/ops.def"
#undef SGLIR_OP
};
_Static_assert(ROWS == (int)WORDS, "ops_words.def has words for an op that ops.def has not");

static const sglir_op_words words[SGLIR_OP_COUNT] = {
#define SGLIR_WORDS(NAME, arguments, shapes, derivative) [SGLIR_OP_##NAME] = { arguments, shapes, derivative, NULL },
#include "ir/ops_words.def"
#undef SGLIR_WORDS
#undef SGLIR_WORDS_GROUP
};

sglir_op_words sglir_op_words_of(sglir_op op)
{
    static const char *const rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, vjp, ...)                \
    [SGLIR_OP_##NAME] = #vjp,
#include "ir/ops.def"
#undef SGLIR_OP
    };
    sglir_op_words found = words[op];
    found.rule = rules[op];
    if (strcmp(found.rule, "zero") == 0) found.derivative = "none flows";
    if (strcmp(found.rule, "refuse") == 0 && *found.derivative == '\0')
        found.derivative = "none: asking for one is an error";
    if (strcmp(found.rule, "compose") == 0) found.derivative = "that of what it is made of";
    return found;
}

sglir_op sglir_op_find(const char *name)
{
    for (int op = 0; op < SGLIR_OP_COUNT; op++) {
        if (strcmp(sglir_ops[op].name, name) == 0) return (sglir_op)op;
    }
    return SGLIR_OP_COUNT;
}

bool sglir_op_is_free(sglir_op op)
{
    switch (op) {
    case SGLIR_OP_CONSTANT:
    case SGLIR_OP_IOTA:
    case SGLIR_OP_SEGMENTS:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_BROADCAST:
    case SGLIR_OP_TRANSPOSE:
    case SGLIR_OP_SLICE:
    case SGLIR_OP_FLIP:
    case SGLIR_OP_PACK: return true;
    default: return false;
    }
}

sglir_infer_fn sglir_infer_rule(sglir_op op)
{
    static const sglir_infer_fn rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, ...)                              \
    [SGLIR_OP_##NAME] = sglir_infer_##infer,
#include "ir/ops.def"
#undef SGLIR_OP
    };
    return rules[op];
}

/* ---- composites ----------------------------------------------------------------------------------------------- */

#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, ...)                     \
    void sglir_compose_##compose(sglir_graph *g, const sglir_graph *from, const sglir_node *node,                      \
                                 const sglir_id *args, sglir_id *results_out);
#include "ir/ops.def"
#undef SGLIR_OP

/* Stands in the table for primitives; never handed out. */
void sglir_compose_none(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                        sglir_id *results_out)
{
    (void)from, (void)args, (void)results_out;
    sglir_fail_here(g, sglir_ops[node->op].name, "is a primitive and has no decomposition");
}

sglir_compose_fn sglir_compose_rule(sglir_op op)
{
    static const sglir_compose_fn rules[SGLIR_OP_COUNT] = {
#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, compose, ...)                     \
    [SGLIR_OP_##NAME] = sglir_compose_##compose,
#include "ir/ops.def"
#undef SGLIR_OP
    };
    return rules[op] == sglir_compose_none ? NULL : rules[op];
}

/* ---- the column `linear` ---------------------------------------------------------------------------------------- */

bool sglir_linear_has(const char *group, uint32_t argument)
{
    for (; *group != '\0' && *group != '|'; group++) {
        if (*group == '*' || (uint32_t)(*group - '0') == argument) return true;
    }
    return false;
}

const char *sglir_linear_next(const char *group)
{
    const char *end = group + strcspn(group, "|");
    return end + (*end == '|');
}

/* ---- schemas -------------------------------------------------------------------------------------------------- */

bool sglir_schema_step(const char **at, sglir_schema_item *entry)
{
    const char *text = *at + strspn(*at, " ");
    if (*text == '\0') return false;
    const char *end = text + strcspn(text, " ");
    const char *colon = text + strcspn(text, ":");
    *entry = (sglir_schema_item){ .name = text, .name_length = (int)(colon - text), .kind = colon[1] };
    if (colon[2] == '=') {
        entry->value = colon + 3;
        entry->value_length = (int)(end - entry->value);
    }
    *at = end;
    return true;
}
