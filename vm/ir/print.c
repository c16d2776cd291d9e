/* print.c -- the text form of a graph, written. In: a well-formed graph. Out: text that parse.c reads back to the same
 * hashes; the form stands in text.h. Odd invariant: a number is written with as few digits as give the same bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/infer.h"
#include "ir/text.h"

const char *const sglir_space_names[SGLIR_SPACES] = { "", "arena", "state", "io", "const", "host", "away" };
const char *const sglir_role_names[SGLIR_ROLES] = { "parameter", "state", "feed", "cache" };

/* ---- numbering ---------------------------------------------------------------------------------------------- */

static void number_region(const sglir_graph *g, sglir_id id, sglir_id *numbers, sglir_id *next)
{
    const sglir_region *region = &g->regions.data[id];
    for (int64_t i = 0; i < region->parameters.count; i++) numbers[region->parameters.data[i]] = (*next)++;
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) numbers[node->out_first + i] = (*next)++;
        for (uint32_t r = 0; r < node->region_count; r++) number_region(g, node->region_first + r, numbers, next);
    }
}

sgl_status sglir_number_values(const sglir_graph *g, sglir_id **numbers, size_t *bytes)
{
    *bytes = (size_t)g->values.count * sizeof **numbers;
    *numbers = sglcore_alloc(g->env, *bytes);
    if (*numbers == NULL && *bytes > 0) return SGL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < g->values.count; i++) (*numbers)[i] = SGLIR_NONE;
    sglir_id next = 0;
    number_region(g, 0, *numbers, &next);
    return SGL_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------------------- */

typedef struct printer {
    const sglir_graph *g;
    sglcore_env *env;
    const sglir_id *numbers; /* NULL: ids as they are */
    sglcore_text *text;
    sgl_status status; /* sticky */
} printer;

#define PUT(p, ...)                                                                                                    \
    do {                                                                                                               \
        if ((p)->status == SGL_OK) (p)->status = sglcore_text_add((p)->env, (p)->text, __VA_ARGS__);                   \
    } while (0)

static void put_string(printer *p, const char *string)
{
    PUT(p, "\"");
    while (*string != '\0') {
        size_t plain = 0;
        while ((unsigned char)string[plain] >= 0x20 && strchr("\"\\\x7f", string[plain]) == NULL) plain++;
        if (plain > 0) PUT(p, "%.*s", (int)(plain < INT32_MAX ? plain : INT32_MAX), string);
        string += plain < INT32_MAX ? plain : INT32_MAX;
        unsigned char c = (unsigned char)*string;
        if (c == '\0') break;
        if (c == '"' || c == '\\') {
            PUT(p, "\\%c", c);
        } else if (c == '\n') {
            PUT(p, "\\n");
        } else if (c < 0x20 || c == 0x7f) {
            PUT(p, "\\x%02x", c);
        } else {
            continue;
        }
        string++;
    }
    PUT(p, "\"");
}

static int format_number(char *text, size_t size, const char *form, ...)
{
    va_list arguments;
    va_start(arguments, form);
    int length = sglcore_format(text, size, form, arguments);
    va_end(arguments);
    return length;
}

static void put_double(printer *p, double value)
{
    if (isnan(value)) {
        PUT(p, "nan"); /* one NaN is as good as another: its sign and payload are not kept */
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        format_number(text, sizeof text, "%.*g", digits, value);
        if (isinf(value) || sglcore_strtod(text, NULL) == value) break;
    }
    PUT(p, "%s", text);
}

static void put_value(printer *p, sglir_id value)
{
    PUT(p, "%%%u", (unsigned)(p->numbers != NULL ? p->numbers[value] : value));
}

static void put_values(printer *p, const sglir_id *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (i > 0) PUT(p, ", ");
        put_value(p, values[i]);
    }
}

static void put_type(printer *p, const sglir_type *type)
{
    char text[SGLIR_TYPE_ROOM];
    PUT(p, "%s", sglir_type_text(type, text, sizeof text));
}

static void put_extents(printer *p, const char *before, const int64_t *extents, int count)
{
    PUT(p, "%s[", before);
    for (int i = 0; i < count; i++) PUT(p, "%s%lld", i > 0 ? "," : "", (long long)extents[i]);
    PUT(p, "]");
}

static void put_typed(printer *p, sglir_id value)
{
    const sglir_value *v = sglir_value_at(p->g, value);
    const sglir_whole *whole = sglir_whole_of(p->g, value);
    put_type(p, &v->type);
    if (whole != NULL) {
        put_extents(p, " of ", whole->dims, v->type.rank);
        put_extents(p, " from ", whole->starts, v->type.rank);
    }
    if (v->space != SGLIR_SPACE_NONE) PUT(p, " in %s+%lld", sglir_space_names[v->space], (long long)v->offset);
}

static void put_attr(printer *p, const sglir_named *attr)
{
    PUT(p, "%s=", attr->name);
    switch (attr->kind) {
    case 'f': put_double(p, attr->f); break;
    case 's': put_string(p, attr->s); break;
    case 't': PUT(p, "%s", sgl_dtype_name((sgl_dtype)attr->i)); break;
    case 'I':
        PUT(p, "[");
        for (int64_t i = 0; i < attr->i; i++) PUT(p, "%s%lld", i > 0 ? "," : "", (long long)attr->ints[i]);
        PUT(p, "]");
        break;
    case 'F':
        PUT(p, "[");
        for (int64_t i = 0; i < attr->i; i++) {
            if (i > 0) PUT(p, ",");
            put_double(p, attr->floats[i]);
        }
        PUT(p, "]");
        break;
    default: PUT(p, "%lld", (long long)attr->i); break; /* i, b */
    }
}

/* Zero, empty or -1 for none, and so by default: not worth a word. */
static bool goes_without_saying(const sglir_schema_item *item, const sglir_named *attr)
{
    if (item->value == NULL) return false;
    if (item->value_length == 2 && strncmp(item->value, "-1", 2) == 0) return attr->kind == 'i' && attr->i == -1;
    bool nothing = item->value_length == 0 || (item->value_length == 1 && item->value[0] == '0');
    if (attr->kind == 's') return nothing && attr->s[0] == '\0';
    return nothing && attr->i == 0 && (attr->kind != 'f' || (attr->f == 0 && !signbit(attr->f)));
}

static void put_attrs(printer *p, const sglir_node *node)
{
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(p->g, node, named);
    const char *cursor = sglir_ops[node->op].attrs, *before = " {";
    sglir_schema_item item;
    for (int i = 0; i < count && sglir_schema_step(&cursor, &item); i++) {
        if (goes_without_saying(&item, &named[i])) continue;
        PUT(p, "%s", before);
        put_attr(p, &named[i]);
        before = ", ";
    }
    if (before[0] == ',') PUT(p, "}");
}

static void put_origin(printer *p, const sglir_origin *origin)
{
    const sglcore_strings *strings = p->g->strings;
    if (origin->file != 0 || origin->line != 0) {
        PUT(p, " @");
        put_string(p, sglcore_string(strings, origin->file));
        PUT(p, ":%d", (int)origin->line);
    }
    if (origin->scope != 0) {
        PUT(p, " scope ");
        put_string(p, sglcore_string(strings, origin->scope));
    }
    if (origin->pass != 0) {
        PUT(p, " pass ");
        put_string(p, sglcore_string(strings, origin->pass));
    }
}

static void put_node(printer *p, sglir_id id)
{
    const sglir_graph *g = p->g;
    const sglir_node *node = sglir_node_at(g, id);
    for (uint32_t i = 0; i < node->out_count; i++) {
        if (i > 0) PUT(p, ", ");
        put_value(p, node->out_first + i);
    }
    PUT(p, "%s%s(", node->out_count > 0 ? " = " : "", sglir_ops[node->op].name);
    if (node->arg_count > 0) put_values(p, &g->args.data[node->arg_first], node->arg_count);
    PUT(p, ")");
    put_attrs(p, node);
    for (uint32_t i = 0; i < node->out_count; i++) {
        PUT(p, "%s", i == 0 ? " : " : ", ");
        put_typed(p, node->out_first + i);
    }
    if (node->epoch != 0) PUT(p, " epoch %u", (unsigned)node->epoch);
    if (node->turn != 0) PUT(p, " turn %u", (unsigned)node->turn);
    if (node->work_bytes != 0) {
        PUT(p, " work %lld in arena+%lld", (long long)node->work_bytes, (long long)node->work_offset);
    }
    put_origin(p, &g->origins.data[node->origin]);
}

sgl_status sglir_text_node(const sglir_graph *g, const sglir_id *numbers, sglir_id node, sglcore_text *text)
{
    printer p = { .g = g, .env = g->env, .numbers = numbers, .text = text };
    put_node(&p, node);
    return p.status;
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

typedef struct sink {
    printer p;
    sglir_remark remark; /* NULL: none */
    void *of;
    sgl_write_fn write;
    void *user;
} sink;

enum { FLUSH_BYTES = 1 << 13 };

static void flush(sink *s, int64_t least)
{
    if (s->p.status != SGL_OK || s->p.text->count < least || s->p.text->count == 0) return;
    s->p.status = s->write(s->user, s->p.text->data, (size_t)s->p.text->count);
    s->p.text->count = 0;
}

static void indent(sink *s, int depth) { PUT(&s->p, "%*s", 2 * depth, ""); }

static void put_remark(sink *s, sglir_id node)
{
    if (s->remark == NULL || s->p.status != SGL_OK) return;
    int64_t before = s->p.text->count;
    PUT(&s->p, " # ");
    int64_t without = s->p.text->count;
    if (s->p.status == SGL_OK) s->p.status = s->remark(s->of, s->p.g, node, s->p.text);
    if (s->p.text->count == without) s->p.text->count = before;
}

static void print_nodes(sink *s, sglir_id region, int depth);

static void print_region(sink *s, sglir_id id, int depth)
{
    const sglir_region *region = &s->p.g->regions.data[id];
    indent(s, depth);
    PUT(&s->p, "region(");
    for (int64_t i = 0; i < region->parameters.count; i++) {
        if (i > 0) PUT(&s->p, ", ");
        put_value(&s->p, region->parameters.data[i]);
        PUT(&s->p, ": ");
        put_typed(&s->p, region->parameters.data[i]);
    }
    PUT(&s->p, ") {\n");
    print_nodes(s, id, depth + 1);
    indent(s, depth + 1);
    PUT(&s->p, "yield%s", region->results.count > 0 ? " " : "");
    put_values(&s->p, region->results.data, region->results.count);
    PUT(&s->p, "\n");
    indent(s, depth);
    PUT(&s->p, "}\n");
}

static void print_nodes(sink *s, sglir_id region, int depth)
{
    const sglir_graph *g = s->p.g;
    for (int64_t n = 0; n < g->regions.data[region].nodes.count && s->p.status == SGL_OK; n++) {
        sglir_id id = g->regions.data[region].nodes.data[n];
        const sglir_node *node = sglir_node_at(g, id);
        indent(s, depth);
        put_node(&s->p, id);
        PUT(&s->p, "%s", node->region_count > 0 ? " {" : "");
        put_remark(s, id);
        PUT(&s->p, "\n");
        for (uint32_t r = 0; r < node->region_count; r++) print_region(s, node->region_first + r, depth + 1);
        if (node->region_count > 0) {
            indent(s, depth);
            PUT(&s->p, "}\n");
        }
        flush(s, FLUSH_BYTES);
    }
}

static void print_outputs(sink *s)
{
    const sglir_graph *g = s->p.g;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        PUT(&s->p, "  %s ", output->role == SGLIR_FETCH ? "fetch" : "update");
        put_string(&s->p, sglcore_string(g->strings, output->name));
        PUT(&s->p, " ");
        put_value(&s->p, output->value);
        PUT(&s->p, "\n");
    }
}

static void print_members(sink *s)
{
    const sglir_graph *g = s->p.g;
    for (int64_t i = 0; i < g->members.count; i++) {
        const sglir_member *member = &g->members.data[i];
        PUT(&s->p, "  member ");
        put_string(&s->p, sglcore_string(g->strings, member->name));
        PUT(&s->p, " of ");
        put_string(&s->p, sglcore_string(g->strings, member->section));
        PUT(&s->p, " role %s offset %lld : ", sglir_role_names[member->role], (long long)member->offset);
        put_type(&s->p, &member->type);
        PUT(&s->p, "\n");
        flush(s, FLUSH_BYTES);
    }
}

static void print_recomputed(sink *s)
{
    const sglir_graph *g = s->p.g;
    for (int64_t i = 0; i < g->recomputed.count; i++) {
        PUT(&s->p, "  recompute ");
        put_string(&s->p, sglcore_string(g->strings, g->recomputed.data[i]));
        PUT(&s->p, "\n");
    }
}

static void print_memory(sink *s)
{
    const sglir_graph *g = s->p.g;
    bool any = g->arena_lower_bound != 0;
    for (int i = 1; i < SGLIR_SPACES; i++) any = any || g->space_bytes[i] != 0;
    if (!any) return;
    PUT(&s->p, "  memory {");
    for (int i = 1; i < SGLIR_SPACES; i++) {
        if (i > SGLIR_SPACE_CONST && g->space_bytes[i] == 0) continue; /* most graphs have nothing there */
        PUT(&s->p, "%s=%lld, ", sglir_space_names[i], (long long)g->space_bytes[i]);
    }
    PUT(&s->p, "lower_bound=%lld}\n", (long long)g->arena_lower_bound);
}

sgl_status sglir_print(const sglir_graph *g, sgl_write_fn write, void *user)
{
    return sglir_print_remarked(g, NULL, NULL, write, user);
}

sgl_status sglir_print_remarked(const sglir_graph *g, sglir_remark remark, void *of, sgl_write_fn write, void *user)
{
    sglcore_text text = { 0 };
    sglir_id *numbers;
    size_t bytes;
    SGLCORE_TRY(sglir_number_values(g, &numbers, &bytes));
    sink s = { .p = { .g = g, .env = g->env, .numbers = numbers, .text = &text },
               .remark = remark,
               .of = of,
               .write = write,
               .user = user };
    PUT(&s.p, "graph ");
    put_string(&s.p, sglcore_string(g->strings, g->name));
    PUT(&s.p, " {");
    put_remark(&s, SGLIR_NONE);
    PUT(&s.p, "\n");
    print_nodes(&s, 0, 1);
    print_outputs(&s);
    print_members(&s);
    print_recomputed(&s);
    print_memory(&s);
    PUT(&s.p, "}\n");
    flush(&s, 1);
    sglcore_text_free(g->env, &text);
    sglcore_free(g->env, numbers, bytes);
    return s.p.status;
}
