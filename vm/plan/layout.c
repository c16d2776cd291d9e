/* layout.c -- the plan's `layouts` and `activations`: read, checked, asked by name. In and out: layout.h. */
#include "plan/layout.h"

#include <string.h>

/* Where the text behind a '*' does not fit, that '*' takes one character more; those before it need not be asked again,
 * so no pattern takes long. */
static bool fits(const char *pattern, size_t length, const char *name, size_t left, bool dots)
{
    size_t p = 0, n = 0, behind = 0, taken = 0; /* behind: of the last '*', 0: there was none */
    while (n < left) {
        if (p < length && pattern[p] == '*') {
            behind = ++p;
            taken = n;
        } else if (p < length && pattern[p] == name[n]) {
            p++;
            n++;
        } else if (behind > 0 && (dots || name[taken] != '.')) {
            p = behind;
            n = ++taken;
        } else {
            return false;
        }
    }
    while (p < length && pattern[p] == '*') p++;
    return p == length;
}

bool sglplan_pattern_fits(const char *pattern, size_t length, const char *name, size_t name_length)
{
    return fits(pattern, length, name, name_length, true);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct entry {
    const char *pattern;
    size_t length;
    bool states;
    const char *rest; /* "AXIS:DIM ..." up to end */
    const char *end;
} entry;

static const char *word(const char **at, const char *end, size_t *length)
{
    const char *start = *at;
    while (start < end && *start == ' ') start++;
    *length = 0;
    while (start + *length < end && start[*length] != ' ') ++*length;
    *at = start + *length;
    return start;
}

static bool next_entry(const char **at, entry *e)
{
    const char *from = *at + strspn(*at, ", ");
    if (*from == '\0') return false;
    e->end = from + strcspn(from, ",");
    *at = e->end;
    e->pattern = word(&from, e->end, &e->length);
    e->states = e->length == 6 && memcmp(e->pattern, "states", 6) == 0;
    if (e->states) e->pattern = word(&from, e->end, &e->length);
    e->rest = from;
    return true;
}

/* One "AXIS:DIM" at *at; dim -1: "-". 0: there is none left, -1: it is none. */
static int next_split(const char **at, const char *end, int *axis, int *dim)
{
    size_t length;
    const char *text = word(at, end, &length);
    if (length == 0) return 0;
    const char *colon = memchr(text, ':', length);
    if (colon == NULL || text + length - colon != 2) return -1;
    if (colon[1] != '-' && (colon[1] < '0' || colon[1] >= '0' + SGL_MAX_RANK)) return -1;
    *dim = colon[1] == '-' ? -1 : colon[1] - '0';
    for (*axis = 0; *axis < SGLIR_AXIS_COUNT; ++*axis) {
        const char *name = sglir_axis_name(*axis);
        if (*axis != SGLIR_AXIS_MICRO && strlen(name) == (size_t)(colon - text) &&
            memcmp(name, text, strlen(name)) == 0)
            return 1;
    }
    return -1;
}

sgl_status sglplan_layouts_check(sglcore_env *env, const char *field, const char *layouts)
{
    const char *at = layouts;
    int axis, dim, found, count = 0;
    entry e;
    while (next_entry(&at, &e)) {
        const char *rest = e.rest;
        int splits = 0;
        while ((found = next_split(&rest, e.end, &axis, &dim)) > 0) splits++;
        if (found < 0 || splits == 0 || e.length == 0)
            return sglcore_fail(
                env, SGL_INVALID_ARGUMENT,
                "plan: %s: '%.*s' is not of the form \"PATTERN AXIS:DIM\", such as \"*.wq tp:0\", with an "
                "axis of dp, fsdp, tp, pp, ep, cp and a dimension from 0 to %d, or - for none",
                field, (int)(e.end - e.pattern), e.pattern, SGL_MAX_RANK - 1);
        if (++count > SGLPLAN_MOST_PATTERNS)
            return sglcore_fail(env, SGL_LIMIT, "plan: %s has more than %d entries", field, SGLPLAN_MOST_PATTERNS);
    }
    return SGL_OK;
}

/* Of a name that is no state's the entries of states are left out. dots: a '*' may be one. */
static void ask(const char *text, const char *name, size_t length, bool is_state, bool dots,
                int8_t at[SGLIR_AXIS_COUNT], uint64_t *named)
{
    int axis, dim;
    entry e;
    *named = 0;
    memset(at, -1, SGLIR_AXIS_COUNT);
    for (int i = 0; next_entry(&text, &e); i++) {
        if ((e.states && !is_state) || !fits(e.pattern, e.length, name, length, dots)) continue;
        *named |= UINT64_C(1) << i;
        while (next_split(&e.rest, e.end, &axis, &dim) > 0) at[axis] = (int8_t)dim;
    }
}

void sglplan_layout_of(const sglplan *plan, const char *name, bool is_state, int8_t at[SGLIR_AXIS_COUNT],
                       uint64_t *named)
{
    ask(plan->layouts, name, strlen(name), is_state, true, at, named);
}

void sglplan_activations_of(const sglplan *plan, const char *path, size_t length, int8_t at[SGLIR_AXIS_COUNT],
                            uint64_t *named)
{
    ask(plan->activations, path, length, false, false, at, named);
}

bool sglplan_layout_entry(const char *text, int number, const char **pattern, size_t *length)
{
    entry e = { 0 };
    for (int i = 0; i <= number; i++) {
        if (!next_entry(&text, &e)) return false;
    }
    *pattern = e.pattern;
    *length = e.length;
    return true;
}
