/* match.h -- Lua patterns as a matcher that counts its steps (match.c) and as the functions of `string` (pattern.c).
 * Comes in: a subject and a pattern, both of which the Lua stack keeps alive. Goes out: where a match ends, and captures.
 * A matcher is plain data on the C stack: an error may jump over it. */
#ifndef SGLDSL_MATCH_H
#define SGLDSL_MATCH_H

#include "dsl/dsl.h"

enum { SGLDSL_CAPTURES = 32, SGLDSL_CAPTURE_OPEN = -1, SGLDSL_CAPTURE_POSITION = -2 };

typedef struct sgldsl_matcher {
    lua_State *L;
    sgl_job *job; /* whose instruction budget pays */
    const char *subject, *subject_end, *pattern_end;
    int depth;
    int captures;
    struct {
        const char *start;
        ptrdiff_t length; /* or OPEN, or POSITION */
    } capture[SGLDSL_CAPTURES];
} sgldsl_matcher;

void sgldsl_match_prepare(sgldsl_matcher *m, lua_State *L, const char *subject, size_t subject_bytes,
                          const char *pattern, size_t pattern_bytes);
/* The end of the match that begins at `at` exactly, or NULL. Starts with no captures. */
const char *sgldsl_match_at(sgldsl_matcher *m, const char *at, const char *pattern);

#endif
