/* dot.c -- a graph as a picture, in Graphviz's language. In: a well-formed graph. Out: text for `dot`: a box per node with
 * its op, types and line, a cluster per region, an ellipse per input and output. It is for eyes and is not read back. */
#include <string.h>

#include "ir/infer.h"

typedef struct sink {
    const sglir_graph *g;
    sglcore_text text;
    sgl_write_fn write;
    void *user;
    sgl_status status; /* sticky */
} sink;

#define PUT(s, ...)                                                                                                    \
    do {                                                                                                               \
        if ((s)->status == SGL_OK) (s)->status = sglcore_text_add((s)->g->env, &(s)->text, __VA_ARGS__);               \
    } while (0)

static void flush(sink *s)
{
    if (s->status == SGL_OK && s->text.count > 0) s->status = s->write(s->user, s->text.data, (size_t)s->text.count);
    s->text.count = 0;
}

/* Within a quoted label: quotes and backslashes escaped, and control characters left out. */
static void put_quoted(sink *s, const char *string)
{
    for (; *string != '\0'; string++) {
        if (*string == '"' || *string == '\\') PUT(s, "\\");
        if ((unsigned char)*string >= 0x20) PUT(s, "%c", *string);
    }
}

static void put_label(sink *s, const sglir_node *node)
{
    const sglir_graph *g = s->g;
    char text[SGLIR_TYPE_ROOM];
    PUT(s, "%s", sglir_ops[node->op].name);
    if (node->op == SGLIR_OP_INPUT) {
        PUT(s, " ");
        put_quoted(s, sglir_attr_string(g, node, "name"));
    }
    double value;
    if (node->op == SGLIR_OP_CONSTANT && sglir_constant_value(g, node->out_first, &value)) PUT(s, " %g", value);
    for (uint32_t i = 0; i < node->out_count; i++) {
        PUT(s, "\\n%s", sglir_type_text(sglir_type_of(g, node->out_first + i), text, sizeof text));
    }
    if (sglir_origin_text(g, node->origin, text, sizeof text)[0] != '\0') {
        PUT(s, "\\n");
        put_quoted(s, text);
    }
}

/* A value by the box it comes out of: "n12" a node, "r3" the head of a region. */
static void put_source(sink *s, sglir_id id)
{
    const sglir_value *value = sglir_value_at(s->g, id);
    if (value->node != SGLIR_NONE) {
        PUT(s, "n%u", (unsigned)value->node);
    } else {
        PUT(s, "r%u", (unsigned)value->region);
    }
}

static void put_nodes(sink *s, sglir_id region);

static void put_region(sink *s, const sglir_node *node, sglir_id id)
{
    const sglir_region *region = &s->g->regions.data[id];
    PUT(s, "subgraph cluster_%u {\nlabel=\"%s\"; style=rounded;\n", (unsigned)id, sglir_ops[node->op].name);
    PUT(s, "r%u [label=\"parameters\", shape=plaintext];\n", (unsigned)id);
    put_nodes(s, id);
    PUT(s, "}\n");
    for (int64_t i = 0; i < region->results.count; i++) {
        put_source(s, region->results.data[i]);
        PUT(s, " -> n%u [style=dashed];\n", (unsigned)region->node);
    }
}

static void put_nodes(sink *s, sglir_id region)
{
    const sglir_graph *g = s->g;
    for (int64_t n = 0; n < g->regions.data[region].nodes.count && s->status == SGL_OK; n++) {
        sglir_id id = g->regions.data[region].nodes.data[n];
        const sglir_node *node = sglir_node_at(g, id);
        for (uint32_t r = 0; r < node->region_count; r++) put_region(s, node, node->region_first + r);
        PUT(s, "n%u [label=\"", (unsigned)id);
        put_label(s, node);
        PUT(s, "\"%s];\n", node->op == SGLIR_OP_INPUT ? ", shape=ellipse" : "");
        for (uint32_t i = 0; i < node->arg_count; i++) {
            put_source(s, sglir_arg(g, node, i));
            PUT(s, " -> n%u;\n", (unsigned)id);
            for (uint32_t r = 0; r < node->region_count; r++) {
                put_source(s, sglir_arg(g, node, i));
                PUT(s, " -> r%u [style=dashed];\n", (unsigned)(node->region_first + r));
            }
        }
        flush(s);
    }
}

sgl_status sglir_print_dot(const sglir_graph *g, sgl_write_fn write, void *user)
{
    sink s = { .g = g, .write = write, .user = user };
    PUT(&s, "digraph \"");
    put_quoted(&s, sglcore_string(g->strings, g->name));
    PUT(&s, "\" {\nnode [shape=box, fontname=\"Helvetica\"];\n");
    put_nodes(&s, 0);
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        PUT(&s, "o%lld [label=\"%s ", (long long)i, output->role == SGLIR_FETCH ? "fetch" : "update");
        put_quoted(&s, sglcore_string(g->strings, output->name));
        PUT(&s, "\", shape=ellipse];\n");
        put_source(&s, output->value);
        PUT(&s, " -> o%lld;\n", (long long)i);
    }
    PUT(&s, "}\n");
    flush(&s);
    sglcore_text_free(g->env, &s.text);
    return s.status;
}
