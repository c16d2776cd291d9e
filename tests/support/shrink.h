/* shrink.h -- makes a graph that fails a check smaller, as long as it still fails.
 *
 * In: the text of a graph, a check. Out: a shorter text. It works on lines: outputs are dropped, values become inputs,
 * extents become small, and what nobody uses goes; a text that does not parse or whose check passes is not taken. */
#ifndef SHRINK_H
#define SHRINK_H

#include "core/core.h"

/* True when the text is a graph that still shows the fault. */
typedef bool (*shrink_fails)(void *user, const char *text);

/* A malloc'd text, freed by the caller; at most `tries` checks are made. */
char *shrink_text(const char *text, shrink_fails fails, void *user, int tries);

#endif
