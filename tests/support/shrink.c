/* shrink.c -- smaller texts that still fail, line by line. In and out: shrink.h. A block of lines with a region in it,
 * from the line that opens it to the one that closes it, counts as one line. */
#include "tests/support/shrink.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shrinker {
    shrink_fails fails;
    void *user;
    int tries;
    char *best;
} shrinker;

static void *must(void *block)
{
    if (block == NULL) abort();
    return block;
}

/* Takes `text` over: it becomes the best one when it fails too. */
static bool attempt(shrinker *s, char *text)
{
    bool better = strcmp(text, s->best) != 0 && s->tries-- > 0 && s->fails(s->user, text);
    if (better) {
        free(s->best);
        s->best = text;
    } else {
        free(text);
    }
    return better;
}

/* The text with [from, from + length) replaced. */
static char *replaced(const char *text, const char *from, size_t length, const char *with)
{
    size_t before = (size_t)(from - text);
    char *made = must(malloc(strlen(text) + strlen(with) + 1));
    memcpy(made, text, before);
    strcpy(made + before, with);
    strcat(made, from + length);
    return made;
}

/* The end of the item that begins at `line`: past its line end, or past the closing brace of its regions. */
static const char *item_end(const char *line)
{
    const char *end = strchr(line, '\n');
    if (end == NULL) return line + strlen(line);
    if (end == line || end[-1] != '{' || strncmp(line, "graph", 5) == 0) return end + 1;
    size_t indent = strspn(line, " ");
    for (const char *at = end + 1; *at != '\0'; at = strchr(at, '\n') + 1) {
        if (strspn(at, " ") == indent && at[indent] == '}') return strchr(at, '\n') + 1;
        if (strchr(at, '\n') == NULL) break;
    }
    return end + 1;
}

static const char *line_number(const char *text, int number)
{
    const char *at = text;
    for (int i = 0; i < number && *at != '\0'; i++) at = item_end(at);
    return at;
}

static bool is_output(const char *line)
{
    line += strspn(line, " ");
    return strncmp(line, "fetch ", 6) == 0 || strncmp(line, "update ", 7) == 0;
}

/* Whether "%12" stands anywhere else than at `at`. */
static bool used_elsewhere(const char *text, const char *at, size_t length)
{
    char id[24];
    snprintf(id, sizeof id, "%.*s", (int)length, at);
    for (const char *found = strstr(text, id); found != NULL; found = strstr(found + 1, id)) {
        if (found != at && !isdigit((unsigned char)found[length])) return true;
    }
    return false;
}

static bool drop_item(shrinker *s, const char *line)
{
    return attempt(s, replaced(s->best, line, (size_t)(item_end(line) - line), ""));
}

/* Every item whose values nobody uses; one after another from the end. */
static void drop_unused(shrinker *s)
{
    bool again = true;
    while (again) {
        again = false;
        int count = 0;
        for (const char *at = s->best; *at != '\0'; at = item_end(at)) count++;
        for (int n = count - 1; n > 0 && !again; n--) {
            const char *line = line_number(s->best, n), *at = line + strspn(line, " ");
            bool used = *at != '%';
            while (*at == '%' && !used) {
                size_t length = 1 + strspn(at + 1, "0123456789");
                used = used_elsewhere(s->best, at, length);
                at += length + strspn(at + length, ", ");
            }
            if (!used) again = drop_item(s, line);
        }
    }
}

static bool drop_outputs(shrinker *s)
{
    bool any = false;
    for (int n = 1; *line_number(s->best, n) != '\0';) {
        const char *line = line_number(s->best, n);
        if (is_output(line) && drop_item(s, line))
            any = true;
        else
            n++;
    }
    return any;
}

/* "  %5, %6 = scan(...) {...} : f32[2], f32[] {" becomes one input per value. */
static bool to_inputs(shrinker *s, const char *line)
{
    char text[2048] = "";
    const char *end = strchr(line, '\n'), *types = NULL, *at = line + strspn(line, " ");
    const char *assign = strstr(line, " = ");
    if (*at != '%' || assign == NULL || assign > end || strncmp(assign, " = input(", 9) == 0) return false;
    for (const char *found = strstr(line, " : "); found != NULL && found < end; found = strstr(found + 3, " : "))
        types = found + 3;
    if (types == NULL) return false;
    while (at < assign && *at == '%') {
        size_t length = 1 + strspn(at + 1, "0123456789"), dtype = strcspn(types, "["), dims = strcspn(types, "]") + 1;
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "  %.*s = input() {role=2, name=\"x%.*s\", dtype=%.*s, dims=%.*s}\n",
                 (int)length, at, (int)length - 1, at + 1, (int)dtype, types, (int)(dims - dtype), types + dtype);
        at += length + strspn(at + length, ", ");
        types += dims + strspn(types + dims, ", ");
    }
    return attempt(s, replaced(s->best, line, (size_t)(item_end(line) - line), text));
}

static bool make_inputs(shrinker *s)
{
    bool any = false;
    int count = 0;
    for (const char *at = s->best; *at != '\0'; at = item_end(at)) count++;
    for (int n = count - 1; n > 0; n--) {
        if (to_inputs(s, line_number(s->best, n))) {
            any = true;
            drop_unused(s);
            count = 0;
            for (const char *at = s->best; *at != '\0'; at = item_end(at)) count++;
            n = n < count ? n : count;
        }
    }
    return any;
}

/* Everywhere in brackets, `extent` becomes `smaller`. */
static char *with_extent(const char *text, long extent, long smaller)
{
    char *made = must(calloc(strlen(text) + 1, 1));
    bool inside = false;
    for (const char *at = text; *at != '\0';) {
        char *after;
        inside = *at == '[' || (inside && *at != ']');
        if (inside && isdigit((unsigned char)*at) && !isdigit((unsigned char)at[-1])) {
            long number = strtol(at, &after, 10);
            sprintf(made + strlen(made), "%ld", number == extent ? smaller : number);
            at = after;
        } else {
            made[strlen(made)] = *at++;
        }
    }
    return made;
}

static bool cut_extents(shrinker *s)
{
    bool any = false;
    for (long extent = 64; extent > 1; extent--) {
        for (long smaller = 1; smaller < extent; smaller += smaller < 3 ? 1 : extent) {
            if (attempt(s, with_extent(s->best, extent, smaller))) {
                any = true;
                break;
            }
        }
    }
    return any;
}

char *shrink_text(const char *text, shrink_fails fails, void *user, int tries)
{
    shrinker s = { .fails = fails, .user = user, .tries = tries, .best = must(strdup(text)) };
    for (bool any = true; any && s.tries > 0;) {
        any = drop_outputs(&s);
        drop_unused(&s);
        any = make_inputs(&s) || any;
        any = cut_extents(&s) || any;
    }
    return s.best;
}
