/* shape_rule.c -- a text of shapes read from left to right over a node's arguments and results. See shape_rule.h.
 *
 * In: a rule, a node. Out: yes or no. Where a text leaves a choice (how many dims "a..." takes, whether an argument that may
 * be left out is there) each is tried. Odd invariant: names are bound to the node's attributes before its shapes are looked
 * at, so a result that follows an attribute must follow it in fact. */
#include "tests/support/shape_rule.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ir/infer.h"

enum { MOST_NAMES = 64 };

typedef struct binding {
    const char *name;
    int length;
    bool is_list;
    int count;
    int64_t dims[SGL_MAX_RANK];
} binding;

typedef struct matcher {
    const sglir_graph *g;
    const sglir_node *node;
    binding bound[MOST_NAMES];
    int count; /* what is bound after it is forgotten when a choice was wrong */
} matcher;

/* Binds the name to the dims, or compares them with what it is bound to. */
static bool bind(matcher *m, const char *name, int length, bool is_list, int count, const int64_t *dims)
{
    if (length >= 2 && strncmp(name + length - 2, "_i", 2) == 0) return true;
    for (int i = 0; i < m->count; i++) {
        const binding *b = &m->bound[i];
        if (b->length != length || b->is_list != is_list || strncmp(b->name, name, (size_t)length) != 0) continue;
        return b->count == count && (count == 0 || memcmp(b->dims, dims, (size_t)count * sizeof *dims) == 0);
    }
    assert(m->count < MOST_NAMES && count <= SGL_MAX_RANK);
    binding *b = &m->bound[m->count++];
    *b = (binding){ .name = name, .length = length, .is_list = is_list, .count = count };
    for (int d = 0; d < count; d++) b->dims[d] = dims[d];
    return true;
}

static void bind_attributes(matcher *m)
{
    const char *at = sglir_ops[m->node->op].attrs;
    sglir_schema_item item;
    while (sglir_schema_step(&at, &item)) {
        char name[64];
        int count = 1;
        assert(item.name_length < (int)sizeof name);
        memcpy(name, item.name, (size_t)item.name_length);
        name[item.name_length] = '\0';
        if (item.kind == 'i') {
            int64_t value = sglir_attr_int(m->g, m->node, name);
            bind(m, item.name, item.name_length, false, 1, &value);
        } else if (item.kind == 'I') {
            const int64_t *list = sglir_attr_ints(m->g, m->node, name, &count);
            if (count <= SGL_MAX_RANK) bind(m, item.name, item.name_length, true, count, list);
        }
    }
}

static bool match(matcher *m, const char *at, bool results, int value);

static const sglir_type *type_at(const matcher *m, bool results, int value)
{
    sglir_id id = results ? m->node->out_first + (sglir_id)value : sglir_arg(m->g, m->node, (uint32_t)value);
    return sglir_type_of(m->g, id);
}

/* The items of a shape from `item` on, over the value's dims from `dim` on; then what stands at `next`. */
static bool match_items(matcher *m, const char *item, int dim, const char *next, bool results, int value)
{
    const sglir_type *type = type_at(m, results, value);
    int known = m->count;
    item += strspn(item, ", ");
    if (*item == ']') return dim == type->rank && match(m, next, results, value + 1);
    int length = (int)strcspn(item, ".,]");
    if (item[length] == '.') {
        const char *after = item + length + strlen("...");
        for (int count = 0; dim + count <= type->rank; count++) {
            if (bind(m, item, length, true, count, type->dims + dim) &&
                match_items(m, after, dim + count, next, results, value))
                return true;
            m->count = known;
        }
        return false;
    }
    if (dim >= type->rank) return false;
    bool fits = isdigit((unsigned char)*item) ? strtoll(item, NULL, 10) == type->dims[dim]
                                              : bind(m, item, length, false, 1, &type->dims[dim]);
    if (fits && match_items(m, item + length, dim + 1, next, results, value)) return true;
    m->count = known;
    return false;
}

/* The shapes from `at` on, over the arguments (then the results) from `value` on. */
static bool match(matcher *m, const char *at, bool results, int value)
{
    int values = (int)(results ? m->node->out_count : m->node->arg_count);
    at += strspn(at, ", ");
    if (strncmp(at, "->", 2) == 0) return value == values && match(m, at + 2, true, 0);
    if (*at != '[') return results && value == values;
    const char *after = strchr(at, ']') + 1;
    bool repeated = strncmp(after, "...", 3) == 0, optional = *after == '?';
    const char *behind = after + (repeated ? 3 : optional ? 1 : 0);
    if (value < values && match_items(m, at + 1, 0, repeated ? at : behind, results, value)) return true;
    return (repeated || optional) && match(m, behind, results, value);
}

bool shape_rule_holds(const char *rule, const sglir_graph *g, const sglir_node *node)
{
    while (rule != NULL) {
        matcher m = { .g = g, .node = node };
        bind_attributes(&m);
        if (match(&m, rule, false, 0)) return true;
        rule = strchr(rule, '|');
        if (rule != NULL) rule++;
    }
    return false;
}
