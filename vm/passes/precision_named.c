/* precision_named.c -- what a plan excepts from bf16 and fp16 by name.
 *
 * In: the plan's `wide`, patterns as of parameter paths, comma-separated; a node. Out: whether the node stays f32: because it
 * stands in a module that a pattern names, or takes a parameter that one names (a head's weight is multiplied by the loss, not
 * by the head). Odd invariant: a pattern that names nothing is an error where something is learnt, for it is nearly always a
 * misspelling; graphs that only read parts of a model need not have them all. */
#include <string.h>

#include "passes/precision.h"
#include "plan/layout.h"

/* The name itself, or a module around it; "" is the name of what stands in the model itself. */
static bool is_within(const char *pattern, size_t length, const char *name)
{
    if (length > 2 && memcmp(pattern + length - 2, ".*", 2) == 0) length -= 2;
    for (size_t end = strcspn(name, ".");; end += strcspn(name + end + 1, ".") + 1) {
        if (sglplan_pattern_fits(pattern, length, name, end)) return true;
        if (name[end] == '\0') return false;
    }
}

static bool is_named(const sglpass_narrowing *p, const sglir_node *node, const char *pattern, size_t length)
{
    const sglir_graph *g = p->rewrite.from;
    if (is_within(pattern, length, sglcore_string(g->strings, g->origins.data[node->origin].scope))) return true;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        const sglir_node *maker = sglir_maker(g, sglir_arg(g, node, i));
        bool parameter =
            maker != NULL && maker->op == SGLIR_OP_INPUT && sglir_attr_int(g, maker, "role") == SGL_PARAMETER;
        if (parameter && is_within(pattern, length, sglir_attr_string(g, maker, "name"))) return true;
    }
    return false;
}

/* The pattern at *at, and its length; false at the end. *at: behind it. */
static bool next_pattern(const char **at, const char **pattern, size_t *length)
{
    *pattern = *at + strspn(*at, ", ");
    *length = strcspn(*pattern, ", ");
    *at = *pattern + *length;
    return *length > 0;
}

bool sglpass_precision_keeps(sglpass_narrowing *p, const sglir_node *node)
{
    const char *at = p->plan->wide, *pattern;
    size_t length;
    bool keeps = false;
    for (int i = 0; i < SGLPLAN_MOST_PATTERNS && next_pattern(&at, &pattern, &length); i++) {
        if (!is_named(p, node, pattern, length)) continue;
        p->named |= UINT64_C(1) << i;
        keeps = true;
    }
    return keeps;
}

sgl_status sglpass_precision_check_named(const sglpass_narrowing *p)
{
    const char *at = p->plan->wide, *pattern;
    size_t length;
    for (int i = 0; p->learns && p->narrow != SGL_F32 && next_pattern(&at, &pattern, &length); i++) {
        if (i == SGLPLAN_MOST_PATTERNS)
            return sglcore_fail(p->env, SGL_LIMIT, "plan: wide has more than %d patterns", SGLPLAN_MOST_PATTERNS);
        if (p->named >> i & 1) continue;
        return sglcore_fail(p->env, SGL_INVALID_ARGUMENT,
                            "plan: precision: '%.*s' names no module and no parameter whose ops would be narrow",
                            (int)length, pattern);
    }
    return SGL_OK;
}
