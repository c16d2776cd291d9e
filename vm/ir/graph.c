/* graph.c -- the graph as a container: made, freed, its inputs and outputs, origins, attributes read by name.
 *
 * In: names, types, ids. Out: entries of the graph's arrays. How nodes are added is emit.c's. Odd invariant: a graph's
 * status sticks; nothing here changes a graph that has failed. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "ir/infer.h"

/* ---- made and freed ------------------------------------------------------------------------------------------- */

static sgl_status fill_new(sglir_graph *g, const char *name)
{
    sglcore_env *env = g->env;
    SGLCORE_TRY(sglcore_strings_new(env, &g->strings));
    SGLCORE_TRY(sglcore_intern(g->strings, name, strlen(name), &g->name));
    SGLCORE_TRY(sglcore_vec_push(env, &g->origins, (sglir_origin){ 0 }));
    SGLCORE_TRY(sglcore_vec_push(env, &g->regions, (sglir_region){ .node = SGLIR_NONE }));
    return sglcore_vec_push(env, &g->open, 0);
}

sgl_status sglir_graph_new(sglcore_env *env, const char *name, sglir_graph **graph)
{
    *graph = NULL;
    sglir_graph *g = sglcore_alloc_zero(env, sizeof *g);
    if (g == NULL) return SGL_OUT_OF_MEMORY;
    g->env = env;
    sgl_status status = fill_new(g, name == NULL ? "" : name);
    if (status != SGL_OK) {
        sglir_graph_free(g);
        return status;
    }
    *graph = g;
    return SGL_OK;
}

void sglir_graph_free(sglir_graph *graph)
{
    if (graph == NULL) return;
    sglcore_env *env = graph->env;
    for (int64_t i = 0; i < graph->regions.count; i++) {
        sglcore_vec_free(env, &graph->regions.data[i].parameters);
        sglcore_vec_free(env, &graph->regions.data[i].nodes);
        sglcore_vec_free(env, &graph->regions.data[i].results);
    }
    sglcore_vec_free(env, &graph->regions);
    sglcore_vec_free(env, &graph->nodes);
    sglcore_vec_free(env, &graph->values);
    sglcore_vec_free(env, &graph->args);
    sglcore_vec_free(env, &graph->attrs);
    sglcore_vec_free(env, &graph->ints);
    sglcore_vec_free(env, &graph->floats);
    sglcore_vec_free(env, &graph->origins);
    sglcore_vec_free(env, &graph->outputs);
    sglcore_vec_free(env, &graph->members);
    sglcore_vec_free(env, &graph->wholes);
    sglcore_vec_free(env, &graph->recomputed);
    sglcore_vec_free(env, &graph->open);
    sglcore_map_free(env, &graph->names);
    sglcore_strings_free(graph->strings);
    sglcore_free(env, graph, sizeof *graph);
}

sgl_status sglir_status(const sglir_graph *graph) { return graph->status; }

/* ---- failures ------------------------------------------------------------------------------------------------- */

sgl_status sglir_stick(sglir_graph *g, sgl_status status)
{
    if (g->status == SGL_OK) g->status = status;
    return status;
}

static void fail_message(sglir_graph *g, sgl_status status, uint32_t origin, const char *op, const char *format,
                         va_list arguments)
{
    char place[512];
    sglcore_fail_v(g->env, status, format, arguments);
    if (op != NULL && op[0] != '\0') sglcore_fail_at(g->env, status, "%s", op);
    if (sglir_origin_text(g, origin, place, sizeof place)[0] != '\0') sglcore_fail_at(g->env, status, "%s", place);
}

sgl_status sglir_fail_v(sglir_graph *g, sgl_status status, const char *op, const char *format, va_list arguments)
{
    if (g->status != SGL_OK) return g->status; /* the first failure is the one that is told */
    fail_message(g, status, g->origin, op, format, arguments);
    return sglir_stick(g, status);
}

sgl_status sglir_fail_here(sglir_graph *g, const char *op, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sgl_status status = sglir_fail_v(g, SGL_TYPE, op, format, arguments);
    va_end(arguments);
    return status;
}

sgl_status sglir_fail_node(sglir_graph *g, sglir_id node, sgl_status status, const char *format, ...)
{
    if (g->status != SGL_OK) return g->status;
    const sglir_node *n = sglir_node_at(g, node);
    va_list arguments;
    va_start(arguments, format);
    fail_message(g, status, n->origin, n->op < SGLIR_OP_COUNT ? sglir_ops[n->op].name : NULL, format, arguments);
    va_end(arguments);
    return sglir_stick(g, status);
}

sgl_status sglir_fail_from(sglir_graph *g, const sglir_graph *from, sglir_id node, sgl_status status,
                           const char *format, ...)
{
    const sglir_node *n = sglir_node_at(from, node);
    va_list arguments;
    sglir_set_origin_of(g, &from->origins.data[n->origin], from);
    va_start(arguments, format);
    status = sglir_fail_v(g, status, sglir_ops[n->op].name, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- origins -------------------------------------------------------------------------------------------------- */

static uint32_t intern(sglir_graph *g, const char *text)
{
    uint32_t id = 0;
    if (text != NULL && text[0] != '\0') sglir_stick(g, sglcore_intern(g->strings, text, strlen(text), &id));
    return id;
}

static void put_origin(sglir_graph *g, sglir_origin origin)
{
    const sglir_origin *now = &g->origins.data[g->origin];
    if (now->file == origin.file && now->line == origin.line && now->scope == origin.scope && now->pass == origin.pass)
        return;
    if (sglir_stick(g, sglcore_vec_push(g->env, &g->origins, origin)) != SGL_OK) return;
    g->origin = (uint32_t)(g->origins.count - 1);
}

void sglir_set_origin(sglir_graph *g, const char *file, int line, const char *scope, const char *pass)
{
    sglir_origin origin = { .file = intern(g, file), .line = line, .scope = intern(g, scope), .pass = intern(g, pass) };
    if (g->status == SGL_OK) put_origin(g, origin);
}

void sglir_set_origin_of(sglir_graph *g, const sglir_origin *origin, const sglir_graph *from)
{
    sglir_origin copy = *origin; /* it may lie in g itself, which grows */
    if (from->strings != g->strings) {
        copy.file = intern(g, sglcore_string(from->strings, copy.file));
        copy.scope = intern(g, sglcore_string(from->strings, copy.scope));
        copy.pass = intern(g, sglcore_string(from->strings, copy.pass));
    }
    if (g->status == SGL_OK) put_origin(g, copy);
}

static void put_text(char *text, size_t size, const char *format, ...) SGL_PRINTF(3, 4);
static void put_text(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sglcore_format(text, size, format, arguments);
    va_end(arguments);
}

const char *sglir_origin_text(const sglir_graph *g, uint32_t origin, char *text, size_t size)
{
    if (size > 0) text[0] = '\0';
    if (origin >= g->origins.count) return text;
    const sglir_origin *o = &g->origins.data[origin];
    const char *file = sglcore_string(g->strings, o->file), *pass = sglcore_string(g->strings, o->pass);
    const char *of = pass[0] != '\0' && file[0] != '\0' ? " of " : "";
    if (o->line > 0 && file[0] != '\0')
        put_text(text, size, "%s%s%s:%d", pass, of, file, (int)o->line);
    else
        put_text(text, size, "%s%s%s", pass, of, file);
    return text;
}

void sglir_keep_apart(sglir_graph *g, int64_t first, const sglir_node *as)
{
    const uint16_t epoch = as->epoch; /* `as` may lie in g */
    const uint32_t turn = as->turn;
    for (int64_t n = first; n < g->nodes.count; n++) {
        g->nodes.data[n].epoch = epoch;
        g->nodes.data[n].turn = turn;
    }
}

/* ---- inputs and outputs --------------------------------------------------------------------------------------- */

sglir_id sglir_input(sglir_graph *g, sgl_role role, const char *name, const sglir_type *type)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    int64_t layout[SGLIR_AXIS_COUNT];
    bool split = false;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        layout[axis] = type->sharded[axis];
        split = split || layout[axis] >= 0;
    }
    const sglir_named attrs[] = { SGLIR_I("role", role),
                                  SGLIR_S("name", name),
                                  SGLIR_I("dtype", type->dtype),
                                  SGLIR_INTS("dims", type->rank, type->dims),
                                  SGLIR_INTS("layout", split ? SGLIR_AXIS_COUNT : 0, layout),
                                  SGLIR_I("partial", type->partial),
                                  SGLIR_I("scaled", type->scaled) };
    return sglir_emit(g, SGLIR_OP_INPUT, NULL, 0, attrs, (int)(sizeof attrs / sizeof attrs[0]), NULL);
}

sglir_id sglir_input_find(const sglir_graph *graph, const char *name)
{
    uint32_t id;
    uint64_t value;
    if (!sglcore_interned(graph->strings, name, strlen(name), &id)) return SGLIR_NONE;
    return sglcore_map_get(&graph->names, (sglcore_hash){ .low = id }, &value) ? (sglir_id)value : SGLIR_NONE;
}

/* The new value of a parameter or state must be of its shape and dtype. */
static sgl_status check_update(sglir_graph *g, const char *name, sglir_id value)
{
    sglir_id input = sglir_input_find(g, name);
    if (input == SGLIR_NONE)
        return sglir_fail_here(g, "update", "there is no parameter or state \"%s\" in the graph", name);
    if (sglir_attr_int(g, sglir_maker(g, input), "role") == SGL_FEED)
        return sglir_fail_here(g, "update", "\"%s\" is a feed; only parameters and states have a new value", name);
    const sglir_type *have = sglir_type_of(g, value), *want = sglir_type_of(g, input);
    if (have->dtype == want->dtype && sglir_same_shape(have, want)) return SGL_OK;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    return sglir_fail_here(g, "update", "\"%s\" is %s, its new value is %s", name, sglir_type_text(want, a, sizeof a),
                           sglir_type_text(have, b, sizeof b));
}

void sglir_recompute(sglir_graph *g, const char *path)
{
    uint32_t interned;
    if (g->status != SGL_OK) return;
    sgl_status status = sglcore_intern(g->strings, path, strlen(path), &interned);
    for (int64_t i = 0; i < g->recomputed.count && status == SGL_OK; i++) {
        if (g->recomputed.data[i] == interned) return;
    }
    if (status == SGL_OK) status = sglcore_vec_push(g->env, &g->recomputed, interned);
    if (status != SGL_OK) sglir_stick(g, status);
}

void sglir_set_whole(sglir_graph *g, sglir_id value, const sglir_whole *whole)
{
    if (g->status != SGL_OK) return;
    sglir_value *v = &g->values.data[value];
    for (int dim = 0; dim < v->type.rank; dim++) {
        int64_t part = v->type.dims[dim], from = whole->starts[dim], all = whole->dims[dim];
        bool split = false;
        for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) split = split || v->type.sharded[axis] == dim;
        if (from >= 0 && part <= all && from <= all - part && (split || part == all)) continue;
        sglir_fail_here(g, "part", "dimension %d has %" PRId64 " elements from %" PRId64 " on of %" PRId64 "%s", dim,
                        part, from, all, split ? "" : ", and is not split");
        return;
    }
    if (v->whole != 0) {
        g->wholes.data[v->whole - 1] = *whole;
    } else if (sglir_stick(g, sglcore_vec_push(g->env, &g->wholes, *whole)) == SGL_OK) {
        v->whole = (uint32_t)g->wholes.count;
    }
}

void sglir_output_add(sglir_graph *g, sglir_output_role role, const char *name, sglir_id value)
{
    const char *what = role == SGLIR_UPDATE ? "update" : "fetch";
    if (g->status != SGL_OK) return;
    if (name == NULL || name[0] == '\0') {
        sglir_fail_here(g, what, "an output needs a name");
        return;
    }
    if (value >= g->values.count || g->values.data[value].region != 0) {
        sglir_fail_here(g, what, "\"%s\" is no value of the graph's top region", name);
        return;
    }
    if (role == SGLIR_UPDATE && check_update(g, name, value) != SGL_OK) return;
    uint32_t id = intern(g, name);
    if (g->status != SGL_OK) return;
    sglcore_hash key = { .low = id, .high = 1 + (uint64_t)role };
    uint64_t before;
    if (sglcore_map_get(&g->names, key, &before)) {
        sglir_fail_here(g, what, "the name \"%s\" is given twice", name);
        return;
    }
    if (sglir_stick(g, sglcore_map_put(g->env, &g->names, key, value)) != SGL_OK) return;
    sglir_stick(g, sglcore_vec_push(g->env, &g->outputs, (sglir_output){ .role = role, .name = id, .value = value }));
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

const sglir_node *sglir_maker(const sglir_graph *g, sglir_id value)
{
    sglir_id node = g->values.data[value].node;
    return node == SGLIR_NONE ? NULL : &g->nodes.data[node];
}

static const sglir_attr *find_attr(const sglir_graph *g, const sglir_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const sglir_attr *attr = &g->attrs.data[node->attr_first + i];
        if (strcmp(sglcore_string(g->strings, attr->name), name) == 0) return attr;
    }
    assert(!"the op has no attribute of this name");
    return NULL;
}

int64_t sglir_attr_int(const sglir_graph *g, const sglir_node *node, const char *name)
{
    return find_attr(g, node, name)->as.i;
}

double sglir_attr_float(const sglir_graph *g, const sglir_node *node, const char *name)
{
    return find_attr(g, node, name)->as.f;
}

const char *sglir_attr_string(const sglir_graph *g, const sglir_node *node, const char *name)
{
    return sglcore_string(g->strings, find_attr(g, node, name)->as.string);
}

const int64_t *sglir_attr_ints(const sglir_graph *g, const sglir_node *node, const char *name, int *count)
{
    const sglir_attr *attr = find_attr(g, node, name);
    *count = (int)attr->count;
    return attr->count == 0 ? NULL : &g->ints.data[attr->as.first];
}

const double *sglir_attr_floats(const sglir_graph *g, const sglir_node *node, const char *name, int *count)
{
    const sglir_attr *attr = find_attr(g, node, name);
    *count = (int)attr->count;
    return attr->count == 0 ? NULL : &g->floats.data[attr->as.first];
}

int64_t sglir_home_of(const sglir_graph *g, sglir_id input)
{
    return sglir_attr_int(g, sglir_node_at(g, input), "home");
}

void sglir_set_home(sglir_graph *g, sglir_id input, int64_t home)
{
    const sglir_attr *attr = find_attr(g, sglir_node_at(g, input), "home");
    g->attrs.data[attr - g->attrs.data].as.i = home;
}

bool sglir_state_home(const sglir_graph *g, const char *name, int64_t *home)
{
    sglir_id input = sglir_input_find(g, name);
    for (int64_t m = 0; input == SGLIR_NONE && m < g->members.count; m++) {
        const sglir_member *member = &g->members.data[m];
        if (strcmp(sglcore_string(g->strings, member->name), name) == 0)
            input = sglir_input_find(g, sglcore_string(g->strings, member->section));
    }
    if (input == SGLIR_NONE) return false;
    *home = sglir_home_of(g, sglir_value_at(g, input)->node);
    return true;
}

int sglir_attrs_named(const sglir_graph *g, const sglir_node *node, sglir_named named[SGLIR_MOST_ATTRS])
{
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const sglir_attr *attr = &g->attrs.data[node->attr_first + i];
        sglir_named *out = &named[i];
        *out = (sglir_named){ .name = sglcore_string(g->strings, attr->name), .kind = attr->kind };
        switch (attr->kind) {
        case 'f': out->f = attr->as.f; break;
        case 's': out->s = sglcore_string(g->strings, attr->as.string); break;
        case 'I':
            out->i = attr->count;
            out->ints = attr->count == 0 ? NULL : &g->ints.data[attr->as.first];
            break;
        case 'F':
            out->i = attr->count;
            out->floats = attr->count == 0 ? NULL : &g->floats.data[attr->as.first];
            break;
        default: out->i = attr->as.i; break;
        }
    }
    return (int)node->attr_count;
}

bool sglir_constant_value(const sglir_graph *g, sglir_id value, double *out)
{
    for (;;) {
        const sglir_node *node = sglir_maker(g, value);
        if (node == NULL) return false;
        if (node->op == SGLIR_OP_CONSTANT) {
            *out = sglir_attr_float(g, node, "value");
            return true;
        }
        if (node->op != SGLIR_OP_BROADCAST && node->op != SGLIR_OP_RESHAPE) return false;
        value = sglir_arg(g, node, 0);
    }
}
