/* The stdlib's Lua text, embedded in the library at build time (cmake/stdlib.cmake generates the array).
 * In: nothing. Out: one row per module, in the order of their names, closed by a row whose name is NULL.
 * A name is the path from the repository's root, "stdlib/nn/linear.lua", and serves as the chunk name too.
 * Odd invariant: the text ends with a zero byte that `bytes` does not count; text before it may hold zero bytes. */
#ifndef SGLDSL_STDLIB_H
#define SGLDSL_STDLIB_H

#include <stddef.h>

struct sgldsl_module {
    const char *name;
    const char *text;
    size_t bytes;
};

extern const struct sgldsl_module sgldsl_modules[];

#endif
