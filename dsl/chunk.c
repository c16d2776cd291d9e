/* chunk.c -- compiling a script's text so that every function of it stays on the stack while it waits for a call.
 *
 * Lua drops the frame of a function that ends in `return f(x)`, and with it the line that an error or a node should name:
 * `return nn.tied_head(embed, x)` would seem to come from nowhere. The manual (3.4.10) says when it does not: in the scope
 * of a variable to be closed. So each function body, and the chunk itself, begins with such a variable, which holds nil and
 * costs next to nothing. Comes in: a text. Goes out: a function, or the compiler's error.
 * Odd invariant: what is put in stands on the line that is there, so line numbers are the text's own. Reading goes token by
 * token and only as far as to know where a body begins; what is no Lua is left for the compiler to refuse. */
#include <ctype.h>
#include <string.h>

#include "dsl/dsl.h"

static const char keeper[] = " local sgl_frame <close> = nil ";

/* The end of what begins with [[ or [=[ at p, or p itself. */
static const char *long_bracket_end(const char *p, const char *end)
{
    const char *open = p + 1;
    while (open < end && *open == '=') open++;
    if (open >= end || *open != '[') return p;
    ptrdiff_t level = open - p - 1;
    for (const char *close = open + 1; (close = memchr(close, ']', (size_t)(end - close))) != NULL; close++) {
        const char *q = close + 1;
        while (q < end && *q == '=') q++;
        if (q < end && *q == ']' && q - close - 1 == level) return q + 1;
    }
    return end;
}

static const char *string_end(const char *p, const char *end)
{
    char quote = *p++;
    while (p < end && *p != quote && *p != '\n') p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

static const char *comment_end(const char *p, const char *end)
{
    p += 2;
    if (p < end && *p == '[') {
        const char *after = long_bracket_end(p, end);
        if (after > p) return after;
    }
    const char *line_end = memchr(p, '\n', (size_t)(end - p));
    return line_end != NULL ? line_end : end;
}

/* The end of the token at p. */
static const char *token_end(const char *p, const char *end)
{
    if (*p == '"' || *p == '\'') return string_end(p, end);
    if (*p == '[') {
        const char *after = long_bracket_end(p, end);
        return after > p ? after : p + 1;
    }
    if (!isalnum((unsigned char)*p) && *p != '_') return p + 1;
    while (p < end && (isalnum((unsigned char)*p) || *p == '_')) p++;
    return p;
}

/* Where the header of a function has been read to: its name, its parameters. */
typedef enum header { HEADER_NONE, HEADER_NAME, HEADER_PARAMETERS } header;

static header next_header(header at, const char *token, size_t length)
{
    bool word = isalpha((unsigned char)*token) || *token == '_';
    if (length == 8 && memcmp(token, "function", 8) == 0) return HEADER_NAME;
    if (at == HEADER_NAME) {
        if (*token == '(') return HEADER_PARAMETERS;
        return word || *token == '.' || *token == ':' ? at : HEADER_NONE;
    }
    return at == HEADER_PARAMETERS && (word || *token == ',' || *token == '.') ? at : HEADER_NONE;
}

/* Pushes the text with the variables in it. */
static void push_with_frames(lua_State *L, const char *text, const char *end)
{
    header at = HEADER_NONE;
    const char *copied = text, *p = text;
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    luaL_addlstring(&out, keeper, sizeof keeper - 1);
    while (p < end) {
        if (*p == '-' && p + 1 < end && p[1] == '-') {
            p = comment_end(p, end);
        } else if (isspace((unsigned char)*p)) {
            p++;
        } else {
            const char *after = token_end(p, end);
            if (at == HEADER_PARAMETERS && *p == ')') {
                luaL_addlstring(&out, copied, (size_t)(after - copied));
                luaL_addlstring(&out, keeper, sizeof keeper - 1);
                copied = after;
            }
            at = next_header(at, p, (size_t)(after - p));
            p = after;
        }
    }
    luaL_addlstring(&out, copied, (size_t)(end - copied));
    luaL_pushresult(&out);
}

int sgldsl_load_chunk(lua_State *L, const char *text, size_t bytes, const char *name)
{
    size_t whole_bytes;
    push_with_frames(L, text, text + bytes);
    const char *whole = lua_tolstring(L, -1, &whole_bytes);
    int status = luaL_loadbufferx(L, whole, whole_bytes, name, "t");
    lua_remove(L, -2);
    return status;
}
