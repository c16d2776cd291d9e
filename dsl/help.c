/* help.c -- what a name of the library is. See help.h.
 *
 * Comes in: a name. Goes out: the row of the op table, the comment at the head of a module's file, or the comment above a
 * function of the stdlib; whichever the name has. A word that is none of these: what is called so in one of the libraries, and
 * the lines of heads of files that tell of a field of that name.
 * Odd invariant: nothing is loaded or run: the texts are read as texts. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dsl/help.h"
#include "dsl/stdlib.h"

typedef struct help {
    sgl_write_fn write;
    void *user;
    sgl_status status; /* of the first write that failed */
    int written;       /* pieces */
} help;

static void put(help *h, const char *text, size_t bytes)
{
    if (h->status == SGL_OK) h->status = h->write(h->user, text, bytes);
    h->written++;
}

static void put_line(help *h, const char *left, const char *right, size_t bytes)
{
    char start[64];
    snprintf(start, sizeof start, "  %-24s ", left);
    put(h, start, strlen(start));
    put(h, right, bytes);
    put(h, "\n", 1);
}

/* ---- the op table ------------------------------------------------------------------------------------------------- */

static void list_ops(help *h)
{
    const char *name;
    for (int i = 0; (name = sgl_op_name(i)) != NULL; i++) put_line(h, name, sgl_op_help(i), strlen(sgl_op_help(i)));
}

static void put_texts(help *h, const char *const *texts)
{
    for (; *texts != NULL; texts++) put(h, *texts, strlen(*texts));
}

static void tell_op(help *h, sgl_vm *vm, const char *name)
{
    const char *op, *attrs;
    int least, most;
    for (int i = 0; (op = sgl_op_name(i)) != NULL; i++) {
        if (strcmp(op, name) != 0 || sgl_op_signature(vm, op, &least, &most, &attrs) != SGL_OK) continue;
        put_texts(h, (const char *const[]){ "op ", op, "(", sgl_op_arguments(i), ")", *attrs ? " {" : "", attrs,
                                            *attrs ? "}" : "", "\n  ", sgl_op_help(i), "\n  shapes: ", sgl_op_shapes(i),
                                            "\n  derivative: ", sgl_op_derivative(i), "\n", NULL });
    }
}

/* ---- the stdlib ----------------------------------------------------------------------------------------------------- */

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end : line + strlen(line);
}

static const char *next_line(const char *line)
{
    const char *end = line_end(line);
    return *end ? end + 1 : end;
}

static const char *skip_blanks(const char *line) { return line + strspn(line, " "); }

static bool is_comment(const char *line) { return strncmp(skip_blanks(line), "---", 3) == 0; }

/* "stdlib/nn/linear.lua" for "nn.linear", or "stdlib/data/init.lua" for "data". */
static bool is_file_of(const struct sgldsl_module *module, const char *name)
{
    const char *path = module->name + strlen("stdlib/");
    while (*name && (*path == *name || (*path == '/' && *name == '.'))) path++, name++;
    return !*name && (strcmp(path, ".lua") == 0 || strcmp(path, "/init.lua") == 0);
}

/* Does the head of the file name it: "nn.conv2d" in "--- nn.conv1d, nn.conv2d: convolutions ..."? */
static bool is_headed(const struct sgldsl_module *module, const char *name, size_t bytes)
{
    const char *at = module->text + strspn(module->text, "- ");
    while (bytes > 0) {
        size_t length = strcspn(at, ",:\n");
        if (length == bytes && strncmp(at, name, bytes) == 0) return true;
        if (at[length] != ',') return false;
        at += length + 1 + strspn(at + length + 1, " ");
    }
    return false;
}

/* The comment lines from `line` on, without their dashes. */
static const char *put_comment(help *h, const char *line)
{
    for (; is_comment(line); line = next_line(line)) {
        const char *text = skip_blanks(line) + 3;
        if (strncmp(text, "@", 1) != 0 && *text == ' ') text++;
        put(h, "  ", 2);
        put(h, text, (size_t)(line_end(line) - text));
        put(h, "\n", 1);
    }
    return line;
}

/* The head of the file, and the annotations of the function that it returns. */
static void tell_file(help *h, const struct sgldsl_module *module)
{
    put(h, module->name, strlen(module->name));
    put(h, "\n", 1);
    const char *line = put_comment(h, module->text), *comment = NULL;
    for (; *line; line = next_line(line)) {
        if (is_comment(line)) {
            if (!comment) comment = line;
        } else {
            if (comment && strncmp(skip_blanks(line), "return function", 15) == 0) put_comment(h, comment);
            comment = NULL;
        }
    }
}

/* Does the line define the function or field `name` of a table: "function ops.exp(", "fn.where = ", "ops.max, ops.min = "? */
static bool defines(const char *line, const char *name)
{
    const char *at = skip_blanks(line);
    const bool is_function = strncmp(at, "function ", 9) == 0;
    const size_t length = strlen(name);
    if (is_function) at += 9;
    for (;;) {
        while (isalnum((unsigned char)*at) || *at == '_') at++;
        if (*at != '.' && *at != ':') return false;
        size_t bytes = strcspn(++at, "(, =\n");
        bool ends = at[bytes] == (is_function ? '(' : ',') || strncmp(at + bytes, " = ", 3) == 0;
        if (ends && bytes == length && strncmp(at, name, bytes) == 0) return true;
        if (is_function || strncmp(at + bytes, ", ", 2) != 0) return false;
        at += bytes + 2;
    }
}

/* "local function parameter(", of a file whose head names it as nn.parameter. */
static bool defines_local(const char *line, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(line, "local function ", 15) == 0 && strncmp(line + 15, name, length) == 0 &&
           line[15 + length] == '(';
}

static void tell_function(help *h, const struct sgldsl_module *module, const char *name, bool headed)
{
    const char *comment = NULL;
    for (const char *line = module->text; *line; line = next_line(line)) {
        if (is_comment(line)) {
            if (!comment) comment = line;
            continue;
        }
        if (strstr(line, " = require") && strstr(line, " = require") < line_end(line)) continue; /* its file says it */
        if (defines(line, name) || (headed && defines_local(line, name))) {
            const char *text = skip_blanks(line);
            put(h, text, (size_t)(line_end(text) - text));
            put(h, "\n", 1);
            if (comment) put_comment(h, comment);
        }
        comment = NULL;
    }
}

/* Does the file lie in the folder of "nn.linear", or for a name without one at the top? */
static bool is_in_folder(const struct sgldsl_module *module, const char *name, size_t folder_bytes)
{
    const char *path = module->name + strlen("stdlib/");
    if (folder_bytes == 0) return strchr(path, '/') == NULL;
    return strncmp(path, name, folder_bytes) == 0 && path[folder_bytes] == '/';
}

/* What the heads of a folder's files name, with the rest of their first lines. */
static void list_folder(help *h, const char *folder)
{
    size_t bytes = strlen(folder);
    for (const struct sgldsl_module *m = sgldsl_modules; m->name != NULL; m++) {
        const char *path = m->name + strlen("stdlib/");
        const char *at = m->text + strspn(m->text, "- "), *end = line_end(at), *colon = strstr(at, ": ");
        if (strncmp(path, folder, bytes) != 0 || path[bytes] != '/' || !colon || colon > end) continue;
        while (strncmp(at, folder, bytes) == 0 && at[bytes] == '.') {
            char name[64];
            size_t length = strcspn(at, ",:");
            snprintf(name, sizeof name, "%.*s", (int)length, at);
            put_line(h, name, colon + 2, (size_t)(end - colon - 2));
            at += length + strspn(at + length, ", ");
        }
    }
}

/* ---- a name ------------------------------------------------------------------------------------------------------------ */

static sgl_status not_found(sgl_vm *vm, const char *name)
{
    const char *names[512], *op;
    int count = 0;
    for (int i = 0; (op = sgl_op_name(i)) != NULL && count < 512; i++) names[count++] = op;
    const char *nearest = sgl_nearest(name, names, count);
    return sgl_fail(vm, SGL_NOT_FOUND, "help: there is no '%s'%s%s%s", name,
                    nearest ? "; did you mean '" : "; there are ops, nn, optim, models, data and what they list",
                    nearest ? nearest : "", nearest ? "'?" : "");
}

static void tell_name(help *h, const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    const size_t folder_bytes = dot ? (size_t)(dot - name) : 0;
    for (const struct sgldsl_module *m = sgldsl_modules; m->name != NULL; m++) {
        bool headed = is_headed(m, name, strlen(name));
        if (is_file_of(m, name) || headed) tell_file(h, m);
        if (is_in_folder(m, name, folder_bytes) || is_headed(m, name, folder_bytes)) tell_function(h, m, last, headed);
    }
}

/* "`mesh`" or "mesh = ". */
static bool mentions(const char *line, const char *word)
{
    const char *end = line_end(line);
    const size_t length = strlen(word);
    for (const char *at = line; (at = strstr(at, word)) != NULL && at < end; at += length) {
        if (at > line && at[-1] == '`' && at[length] == '`') return true;
        if (at > line && (at[-1] == ' ' || at[-1] == '`') && strncmp(at + length, " = ", 3) == 0) return true;
    }
    return false;
}

/* The lines that tell of a field, and the one behind each, to which its sentence may go on. */
static void tell_field(help *h, const struct sgldsl_module *module, const char *word)
{
    const char *told = NULL;
    for (const char *line = module->text; is_comment(line); line = next_line(line)) {
        if (!mentions(line, word) && (!told || next_line(told) != line || !mentions(told, word))) continue;
        if (!told) put(h, module->name, strlen(module->name));
        if (!told) put(h, "\n", 1);
        put(h, "  ", 2);
        put(h, line + 4, (size_t)(line_end(line) - line) > 4 ? (size_t)(line_end(line) - line) - 4 : 0);
        put(h, "\n", 1);
        told = line;
    }
}

static void tell_word(help *h, const char *word)
{
    static const char *const libraries[] = { "nn", "optim", "data", "models", "plan" };
    char name[128];
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && strlen(word) < 100; i++) {
        snprintf(name, sizeof name, "%s.%s", libraries[i], word);
        tell_name(h, name);
    }
    for (const struct sgldsl_module *m = sgldsl_modules; m->name != NULL; m++) tell_field(h, m, word);
}

sgl_status sgldsl_help(sgl_vm *vm, const char *name, sgl_write_fn write, void *user)
{
    help h = { .write = write, .user = user };
    if (strncmp(name, "sgl.", 4) == 0) name += 4;
    if (strcmp(name, "ops") == 0) {
        list_ops(&h);
    } else {
        tell_op(&h, vm, name);
        tell_name(&h, name);
        if (!strchr(name, '.')) list_folder(&h, name);
        if (h.written == 0 && *name && !strchr(name, '.')) tell_word(&h, name);
    }
    return h.written > 0 ? h.status : not_found(vm, name);
}
