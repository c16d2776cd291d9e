/* match.c -- Lua patterns, matched step by step under the script's instruction budget.
 *
 * Comes in: a pattern of the language that the Lua 5.4 manual describes (section 6.4.1). Goes out: the same matches as
 * Lua's own string library finds; a test compares the two. It exists because the original goes through exponentially many
 * ways without ever coming by a hook: here each way costs an instruction, and the budget ends it. */
#include <ctype.h>
#include <string.h>

#include "dsl/match.h"

enum { DEPTH_MOST = 200 };

static const char *match_here(sgldsl_matcher *m, const char *s, const char *p);

static void step(sgldsl_matcher *m)
{
    if (--m->job->instructions_left <= 0) sgldsl_charge(m->L, 0);
}

/* ---- one character ---------------------------------------------------------------------------------------------- */

static bool in_class(int c, int class)
{
    bool is;
    switch (tolower(class)) {
    case 'a': is = isalpha(c); break;
    case 'c': is = iscntrl(c); break;
    case 'd': is = isdigit(c); break;
    case 'g': is = isgraph(c); break;
    case 'l': is = islower(c); break;
    case 'p': is = ispunct(c); break;
    case 's': is = isspace(c); break;
    case 'u': is = isupper(c); break;
    case 'w': is = isalnum(c); break;
    case 'x': is = isxdigit(c); break;
    case 'z': is = c == '\0'; break; /* no longer in the manual, but still there */
    default: return class == c;      /* an escaped character */
    }
    return isupper(class) ? !is : is;
}

/* The end of the item at p: a character, %x, a [set]. */
static const char *item_end(const sgldsl_matcher *m, const char *p)
{
    char first = *p++;
    if (first == '%') {
        if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
        return p + 1;
    }
    if (first != '[') return p;
    if (*p == '^') p++;
    do { /* the first character belongs to the set even when it is ']' */
        if (p == m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
        char c = *p++;
        if (c == '%' && p < m->pattern_end) p++;
    } while (*p != ']');
    return p + 1;
}

/* Is c in the set from p, at '[', to last, at ']'? */
static bool in_set(int c, const char *p, const char *last)
{
    bool found = true;
    if (p[1] == '^') {
        found = false;
        p++;
    }
    for (p++; p < last; p++) {
        if (*p == '%') {
            p++;
            if (in_class(c, (unsigned char)*p)) return found;
        } else if (p[1] == '-' && p + 2 < last) {
            if ((unsigned char)p[0] <= c && c <= (unsigned char)p[2]) return found;
            p += 2;
        } else if ((unsigned char)*p == c) {
            return found;
        }
    }
    return !found;
}

static bool matches_item(sgldsl_matcher *m, const char *s, const char *p, const char *end)
{
    step(m);
    if (s >= m->subject_end) return false;
    int c = (unsigned char)*s;
    switch (*p) {
    case '.': return true;
    case '%': return in_class(c, (unsigned char)p[1]);
    case '[': m->job->instructions_left -= (end - p) / 8; return in_set(c, p, end - 1);
    default: return (unsigned char)*p == c;
    }
}

/* ---- repetitions -------------------------------------------------------------------------------------------------- */

static const char *match_most(sgldsl_matcher *m, const char *s, const char *p, const char *end)
{
    ptrdiff_t count = 0;
    while (matches_item(m, s + count, p, end)) count++;
    for (; count >= 0; count--) {
        const char *rest = match_here(m, s + count, end + 1);
        if (rest != NULL) return rest;
    }
    return NULL;
}

static const char *match_fewest(sgldsl_matcher *m, const char *s, const char *p, const char *end)
{
    for (;; s++) {
        const char *rest = match_here(m, s, end + 1);
        if (rest != NULL) return rest;
        if (!matches_item(m, s, p, end)) return NULL;
    }
}

/* ---- captures ------------------------------------------------------------------------------------------------------ */

static const char *open_capture(sgldsl_matcher *m, const char *s, const char *p, ptrdiff_t kind)
{
    if (m->captures >= SGLDSL_CAPTURES) luaL_error(m->L, "too many captures");
    m->capture[m->captures].start = s;
    m->capture[m->captures].length = kind;
    m->captures++;
    const char *rest = match_here(m, s, p);
    if (rest == NULL) m->captures--;
    return rest;
}

static const char *close_capture(sgldsl_matcher *m, const char *s, const char *p)
{
    int i = m->captures - 1;
    while (i >= 0 && m->capture[i].length != SGLDSL_CAPTURE_OPEN) i--;
    if (i < 0) luaL_error(m->L, "invalid pattern capture");
    m->capture[i].length = s - m->capture[i].start;
    const char *rest = match_here(m, s, p);
    if (rest == NULL) m->capture[i].length = SGLDSL_CAPTURE_OPEN;
    return rest;
}

/* %1: the text of a closed capture again. */
static const char *match_again(sgldsl_matcher *m, const char *s, int digit)
{
    int i = digit - '1';
    if (i < 0 || i >= m->captures || m->capture[i].length == SGLDSL_CAPTURE_OPEN) {
        luaL_error(m->L, "invalid capture index %%%d", i + 1);
    }
    ptrdiff_t length = m->capture[i].length;
    if (length < 0) return NULL; /* a position is no text */
    m->job->instructions_left -= length / 8;
    if (m->subject_end - s < length || memcmp(m->capture[i].start, s, (size_t)length) != 0) return NULL;
    return s + length;
}

/* ---- %b and %f --------------------------------------------------------------------------------------------------------- */

static const char *match_balance(sgldsl_matcher *m, const char *s, const char *p)
{
    if (m->pattern_end - p < 2) luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
    if (s >= m->subject_end || *s != p[0]) return NULL;
    ptrdiff_t open = 1;
    for (s++; s < m->subject_end; s++) {
        step(m);
        if (*s == p[1]) { /* before p[0]: both may be the same character */
            if (--open == 0) return s + 1;
        } else if (*s == p[0]) {
            open++;
        }
    }
    return NULL;
}

static bool at_frontier(sgldsl_matcher *m, const char *s, const char *p, const char *end)
{
    int before = s == m->subject ? '\0' : (unsigned char)s[-1];
    int after = s == m->subject_end ? '\0' : (unsigned char)*s;
    m->job->instructions_left -= (end - p) / 4;
    return !in_set(before, p, end - 1) && in_set(after, p, end - 1);
}

/* ---- the rest of a pattern ------------------------------------------------------------------------------------------ */

/* An item without a special form, and what follows it. Moves *s and *p on and returns true to go on there; otherwise the
 * answer stands in *result. */
static bool match_item(sgldsl_matcher *m, const char **s, const char **p, const char **result)
{
    const char *end = item_end(m, *p);
    char suffix = end < m->pattern_end ? *end : '\0';
    if (suffix == '*' || suffix == '-') {
        *result = suffix == '*' ? match_most(m, *s, *p, end) : match_fewest(m, *s, *p, end);
        return false;
    }
    bool matches = matches_item(m, *s, *p, end);
    if (suffix == '+') {
        *result = matches ? match_most(m, *s + 1, *p, end) : NULL;
        return false;
    }
    if (suffix == '?') {
        const char *rest = matches ? match_here(m, *s + 1, end + 1) : NULL;
        if (rest != NULL) {
            *result = rest;
            return false;
        }
        *p = end + 1;
        return true;
    }
    *result = NULL;
    *s += 1;
    *p = end;
    return matches;
}

static const char *match_here(sgldsl_matcher *m, const char *s, const char *p)
{
    if (++m->depth > DEPTH_MOST) luaL_error(m->L, "pattern too complex");
    const char *result = NULL;
    for (;;) {
        step(m);
        if (p == m->pattern_end) {
            result = s;
            break;
        }
        if (*p == '(') {
            bool position = p[1] == ')';
            result = open_capture(m, s, p + 1 + position, position ? SGLDSL_CAPTURE_POSITION : SGLDSL_CAPTURE_OPEN);
            break;
        }
        if (*p == ')') {
            result = close_capture(m, s, p + 1);
            break;
        }
        if (*p == '$' && p + 1 == m->pattern_end) {
            result = s == m->subject_end ? s : NULL;
            break;
        }
        if (*p == '%' && p[1] == 'b') {
            s = match_balance(m, s, p + 2);
            p += 4;
            if (s == NULL) break;
        } else if (*p == '%' && p[1] == 'f') {
            p += 2;
            if (*p != '[') luaL_error(m->L, "missing '[' after '%%f' in pattern");
            const char *end = item_end(m, p);
            if (!at_frontier(m, s, p, end)) break;
            p = end;
        } else if (*p == '%' && isdigit((unsigned char)p[1])) {
            s = match_again(m, s, p[1]);
            p += 2;
            if (s == NULL) break;
        } else if (!match_item(m, &s, &p, &result)) {
            break;
        }
    }
    m->depth--;
    return result;
}

void sgldsl_match_prepare(sgldsl_matcher *m, lua_State *L, const char *subject, size_t subject_bytes,
                          const char *pattern, size_t pattern_bytes)
{
    m->L = L;
    m->job = sgldsl_job(L);
    m->subject = subject;
    m->subject_end = subject + subject_bytes;
    m->pattern_end = pattern + pattern_bytes;
    m->depth = 0;
    m->captures = 0;
}

const char *sgldsl_match_at(sgldsl_matcher *m, const char *at, const char *pattern)
{
    m->depth = 0;
    m->captures = 0;
    return match_here(m, at, pattern);
}
