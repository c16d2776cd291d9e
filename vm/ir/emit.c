/* emit.c -- the one way by which nodes enter a graph: arguments seen, attributes completed, types inferred, then all of
 * it appended.
 *
 * In: an op, arguments, named attributes, closed regions. Out: a node and its results' ids. Odd invariant: everything is
 * checked and all room is made before the first append, so that a failure leaves the graph as it was, with a status that
 * sticks. Lists handed over may lie in the graph's own arrays, which move: they are told apart by their addresses. */
#include <inttypes.h>
#include <string.h>

#include "ir/infer.h"

/* A node on its way into the graph. */
typedef struct draft {
    sglir_graph *g;
    sglir_op op;
    const sglir_op_row *row;
    const sglir_id *args;
    int arg_count;
    const sglir_id *regions;
    int region_count;
    sglir_named attrs[SGLIR_MOST_ATTRS]; /* complete, schema order */
    uint32_t attr_names[SGLIR_MOST_ATTRS];
    uint32_t strings[SGLIR_MOST_ATTRS]; /* of attributes of kind s */
    int attr_count;
    sglir_type *results;
    int result_count;
} draft;

static sgl_status fail(const draft *d, sgl_status status, const char *format, ...) SGL_PRINTF(3, 4);
static sgl_status fail(const draft *d, sgl_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status = sglir_fail_v(d->g, status, d->row == NULL ? NULL : d->row->name, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

bool sglir_visible(const sglir_graph *g, sglir_id value)
{
    if (value >= g->values.count) return false;
    for (int64_t i = g->open.count - 1; i >= 0; i--) {
        if (g->open.data[i] == g->values.data[value].region) return true;
    }
    return false;
}

static sgl_status check_args(const draft *d)
{
    const sglir_op_row *row = d->row;
    if (d->arg_count < row->minimum || (row->maximum >= 0 && d->arg_count > row->maximum)) {
        if (row->minimum == row->maximum)
            return fail(d, SGL_TYPE, "takes %d argument%s, not %d", row->minimum, row->minimum == 1 ? "" : "s",
                        d->arg_count);
        if (row->maximum < 0)
            return fail(d, SGL_TYPE, "takes at least %d argument%s, not %d", row->minimum, row->minimum == 1 ? "" : "s",
                        d->arg_count);
        return fail(d, SGL_TYPE, "takes %d to %d arguments, not %d", row->minimum, row->maximum, d->arg_count);
    }
    for (int i = 0; i < d->arg_count; i++) {
        if (sglir_visible(d->g, d->args[i])) continue;
        if (d->args[i] >= d->g->values.count)
            return fail(d, SGL_INVALID_ARGUMENT, "argument %d is no value of the graph", i);
        return fail(d, SGL_INVALID_ARGUMENT,
                    "argument %d was made inside of a loop or branch that is over; it must be returned from there", i);
    }
    if (d->region_count > 0 && (row->flags & SGLIR_REGION) == 0)
        return fail(d, SGL_INVALID_ARGUMENT, "holds no region");
    for (int i = 0; i < d->region_count; i++) {
        sglir_id region = d->regions[i];
        if (region == 0 || region >= d->g->regions.count || d->g->regions.data[region].node != SGLIR_NONE)
            return fail(d, SGL_INVALID_ARGUMENT, "region %d is none, or belongs to another node", i);
        for (int64_t k = 0; k < d->g->open.count; k++) {
            if (d->g->open.data[k] == region) return fail(d, SGL_WRONG_STATE, "region %d is not ended yet", i);
        }
        if (i > 0 && region != d->regions[i - 1] + 1)
            return fail(d, SGL_WRONG_STATE, "its regions must have consecutive ids: take them together");
    }
    return SGL_OK;
}

/* ---- attributes ----------------------------------------------------------------------------------------------- */

static const char *kind_text(char kind)
{
    switch (kind) {
    case 'i': return "an integer";
    case 'b': return "true or false";
    case 'f': return "a number";
    case 's': return "a string";
    case 't': return "a dtype";
    case 'I': return "a list of integers";
    case 'F': return "a list of numbers";
    default: return "unknown";
    }
}

/* Takes what the caller gave as the schema's kind, where that loses nothing. */
static bool convert(const sglir_named *given, sglir_named *out)
{
    const double exact = 9007199254740992.0; /* 2^53 */
    switch (out->kind) {
    case 'i': out->i = given->i; return given->kind == 'i' || given->kind == 'b' || given->kind == 't';
    case 'b': out->i = given->i; return (given->kind == 'b' || given->kind == 'i') && (given->i == 0 || given->i == 1);
    case 't':
        out->i = given->i;
        return (given->kind == 't' || given->kind == 'i') && given->i >= 0 && given->i < SGL_DTYPE_COUNT;
    case 'f':
        out->f = given->kind == 'i' ? (double)given->i : given->f;
        return given->kind == 'f' || (given->kind == 'i' && out->f >= -exact && out->f <= exact);
    case 's': out->s = given->s; return given->kind == 's' && given->s != NULL;
    case 'I':
    case 'F':
        out->i = given->i;
        out->ints = given->ints;
        out->floats = given->floats;
        if (given->i == 0) return given->kind == 'I' || given->kind == 'F';
        return given->kind == out->kind && given->i > 0 && given->i <= INT32_MAX &&
               (out->kind == 'I' ? given->ints != NULL : given->floats != NULL);
    default: return false;
    }
}

/* The schema's default; the text is not terminated, but a blank or the end follows, where numbers end too. */
static bool take_default(const sglir_schema_item *item, sglir_named *out)
{
    if (item->value == NULL) return false;
    bool negative = item->value_length > 0 && item->value[0] == '-';
    switch (item->kind) {
    case 'i':
    case 'b':
        for (int i = negative; i < item->value_length; i++) out->i = 10 * out->i + (item->value[i] - '0');
        if (negative) out->i = -out->i;
        return true;
    case 'f': out->f = sglcore_strtod(item->value, NULL); return true;
    default: return item->value_length == 0 && (item->kind == 'I' || item->kind == 'F');
    }
}

static sgl_status unknown_attr(const draft *d, const char *name)
{
    const char *names[SGLIR_MOST_ATTRS];
    for (int i = 0; i < d->attr_count; i++) names[i] = d->attrs[i].name;
    const char *nearest = sglcore_nearest(name, names, d->attr_count);
    if (nearest != NULL)
        return fail(d, SGL_INVALID_ARGUMENT, "has no attribute \"%s\"; did you mean \"%s\"?", name, nearest);
    if (d->attr_count == 0) return fail(d, SGL_INVALID_ARGUMENT, "has no attribute \"%s\"; it takes none", name);
    return fail(d, SGL_INVALID_ARGUMENT, "has no attribute \"%s\"; it takes %s", name, d->row->attrs);
}

static sgl_status complete_attr(draft *d, const sglir_schema_item *item, const sglir_named *given, int given_count)
{
    int i = d->attr_count;
    sglir_graph *g = d->g;
    SGLCORE_TRY(sglir_stick(g, sglcore_intern(g->strings, item->name, (size_t)item->name_length, &d->attr_names[i])));
    sglir_named *out = &d->attrs[i];
    *out = (sglir_named){ .name = sglcore_string(g->strings, d->attr_names[i]), .kind = item->kind };
    d->attr_count++;
    const sglir_named *found = NULL;
    for (int k = 0; k < given_count; k++) {
        if (given[k].name == NULL || strcmp(given[k].name, out->name) != 0) continue;
        if (found != NULL) return fail(d, SGL_INVALID_ARGUMENT, "attribute \"%s\" is given twice", out->name);
        found = &given[k];
    }
    if (found == NULL && !take_default(item, out))
        return fail(d, SGL_INVALID_ARGUMENT, "attribute \"%s\" (%s) is missing", out->name, kind_text(item->kind));
    if (found != NULL && !convert(found, out))
        return fail(d, SGL_INVALID_ARGUMENT, "attribute \"%s\" must be %s", out->name, kind_text(item->kind));
    if (item->kind == 's') {
        SGLCORE_TRY(sglir_stick(g, sglcore_intern(g->strings, out->s, strlen(out->s), &d->strings[i])));
        out->s = sglcore_string(g->strings, d->strings[i]);
    }
    return SGL_OK;
}

static sgl_status complete_attrs(draft *d, const sglir_named *given, int given_count)
{
    const char *at = d->row->attrs;
    sglir_schema_item item;
    while (sglir_schema_step(&at, &item)) SGLCORE_TRY(complete_attr(d, &item, given, given_count));
    for (int k = 0; k < given_count; k++) {
        bool known = false;
        for (int i = 0; i < d->attr_count && !known; i++)
            known = given[k].name != NULL && strcmp(given[k].name, d->attrs[i].name) == 0;
        if (!known) return unknown_attr(d, given[k].name == NULL ? "" : given[k].name);
    }
    return SGL_OK;
}

/* ---- results -------------------------------------------------------------------------------------------------- */

/* As many results as the op can have at most. */
static int result_capacity(const draft *d)
{
    if (d->row->results >= 0) return d->row->results;
    int64_t most = d->arg_count;
    for (int i = 0; i < d->attr_count; i++) {
        if (d->attrs[i].kind == 'I' && d->attrs[i].i > most) most = d->attrs[i].i;
    }
    for (int i = 0; i < d->region_count; i++) {
        int64_t count = d->g->regions.data[d->regions[i]].results.count;
        if (count > most) most = count;
    }
    return (int)most;
}

static sgl_status infer(draft *d, int capacity)
{
    d->result_count = d->row->results >= 0 ? d->row->results : 0;
    sglir_infer in = { .g = d->g,
                       .op = d->op,
                       .name = d->row->name,
                       .args = d->args,
                       .arg_count = d->arg_count,
                       .attrs = d->attrs,
                       .attr_count = d->attr_count,
                       .regions = d->regions,
                       .region_count = d->region_count,
                       .results = d->results,
                       .count = &d->result_count,
                       .capacity = capacity };
    SGLCORE_TRY(sglir_stick(d->g, sglir_infer_rule(d->op)(&in)));
    for (int i = 0; i < d->result_count; i++) {
        char text[SGLIR_TYPE_ROOM];
        if (sglir_bytes(&d->results[i]) < 0)
            return fail(d, SGL_TYPE, "a result of %s has more bytes than 64 bits count",
                        sglir_type_text(&d->results[i], text, sizeof text));
    }
    return sglir_stick(d->g, sglir_infer_owed(&in));
}

/* ---- appending ------------------------------------------------------------------------------------------------ */

/* A list that a caller hands over may lie in an array of the graph, which is about to move: which one, and where. */
typedef struct place {
    int array; /* -1: in none */
    size_t offset;
} place;

enum { MOVING_ARRAYS = 4 };

static const char *moving_array(const sglir_graph *g, int array, size_t *bytes)
{
    switch (array) {
    case 0: *bytes = (size_t)g->args.count * sizeof *g->args.data; return (const char *)g->args.data;
    case 1: *bytes = (size_t)g->ints.count * sizeof *g->ints.data; return (const char *)g->ints.data;
    case 2: *bytes = (size_t)g->floats.count * sizeof *g->floats.data; return (const char *)g->floats.data;
    default: *bytes = (size_t)g->values.count * sizeof *g->values.data; return (const char *)g->values.data;
    }
}

static place locate(const sglir_graph *g, const void *list)
{
    if (list == NULL) return (place){ .array = -1 };
    for (int array = 0; array < MOVING_ARRAYS; array++) {
        size_t bytes;
        uintptr_t first = (uintptr_t)moving_array(g, array, &bytes), at = (uintptr_t)list;
        if (at >= first && at - first < bytes) return (place){ array, at - first };
    }
    return (place){ .array = -1 };
}

static const void *relocate(const sglir_graph *g, place from, const void *list)
{
    size_t bytes;
    return from.array < 0 ? list : moving_array(g, from.array, &bytes) + from.offset;
}

/* An input stands in the top region, wherever it is first asked for: in a loop's body, say. */
static sglir_id home_of(const draft *d) { return d->op == SGLIR_OP_INPUT ? 0 : d->g->open.data[d->g->open.count - 1]; }

static sgl_status make_room(draft *d)
{
    sglir_graph *g = d->g;
    sglcore_env *env = g->env;
    int64_t ints = 0, floats = 0;
    for (int i = 0; i < d->attr_count; i++) {
        if (d->attrs[i].kind == 'I') ints += d->attrs[i].i;
        if (d->attrs[i].kind == 'F') floats += d->attrs[i].i;
    }
    const int64_t most = (int64_t)UINT32_MAX - 1;
    if (g->nodes.count >= most || g->values.count + d->result_count > most || g->args.count + d->arg_count > most ||
        g->ints.count + ints > most || g->floats.count + floats > most)
        return fail(d, SGL_LIMIT, "the graph is full: ids have 32 bits");

    place args_at = locate(g, d->args), ints_at[SGLIR_MOST_ATTRS], floats_at[SGLIR_MOST_ATTRS];
    for (int i = 0; i < d->attr_count; i++) {
        ints_at[i] = locate(g, d->attrs[i].ints);
        floats_at[i] = locate(g, d->attrs[i].floats);
    }
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->nodes, 1));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->values, d->result_count));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->args, d->arg_count));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->attrs, d->attr_count));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->ints, ints));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->floats, floats));
    SGLCORE_TRY(sglcore_vec_reserve(env, &g->regions.data[home_of(d)].nodes, 1));
    d->args = relocate(g, args_at, d->args);
    for (int i = 0; i < d->attr_count; i++) {
        d->attrs[i].ints = relocate(g, ints_at[i], d->attrs[i].ints);
        d->attrs[i].floats = relocate(g, floats_at[i], d->attrs[i].floats);
    }
    return SGL_OK;
}

static void append_attrs(draft *d)
{
    sglir_graph *g = d->g;
    for (int i = 0; i < d->attr_count; i++) {
        const sglir_named *named = &d->attrs[i];
        sglir_attr attr = { .kind = named->kind, .name = d->attr_names[i] };
        switch (named->kind) {
        case 'f': attr.as.f = named->f; break;
        case 's': attr.as.string = d->strings[i]; break;
        case 'I':
            attr.count = (uint32_t)named->i;
            attr.as.first = (uint32_t)g->ints.count;
            for (int64_t k = 0; k < named->i; k++) g->ints.data[g->ints.count++] = named->ints[k];
            break;
        case 'F':
            attr.count = (uint32_t)named->i;
            attr.as.first = (uint32_t)g->floats.count;
            for (int64_t k = 0; k < named->i; k++) g->floats.data[g->floats.count++] = named->floats[k];
            break;
        default: attr.as.i = named->i; break;
        }
        g->attrs.data[g->attrs.count++] = attr;
    }
}

/* Room is made: nothing here fails. Returns the first result. */
static sglir_id append(draft *d)
{
    sglir_graph *g = d->g;
    sglir_id id = (sglir_id)g->nodes.count, region = home_of(d);
    sglir_node node = { .op = (uint16_t)d->op,
                        .arg_first = (uint32_t)g->args.count,
                        .arg_count = (uint32_t)d->arg_count,
                        .out_first = (sglir_id)g->values.count,
                        .out_count = (uint32_t)d->result_count,
                        .attr_first = (uint32_t)g->attrs.count,
                        .attr_count = (uint32_t)d->attr_count,
                        .region_first = d->region_count > 0 ? d->regions[0] : SGLIR_NONE,
                        .region_count = (uint32_t)d->region_count,
                        .region = region,
                        .origin = g->origin };
    for (int i = 0; i < d->arg_count; i++) g->args.data[g->args.count++] = d->args[i];
    append_attrs(d);
    for (int i = 0; i < d->result_count; i++) {
        g->values.data[g->values.count++] =
            (sglir_value){ .type = d->results[i], .node = id, .region = region, .index = (uint32_t)i };
    }
    for (int i = 0; i < d->region_count; i++) g->regions.data[d->regions[i]].node = id;
    g->nodes.data[g->nodes.count++] = node;
    g->regions.data[region].nodes.data[g->regions.data[region].nodes.count++] = id;
    return node.out_first;
}

/* An INPUT's name is given once in a graph. */
static sgl_status enter_name(draft *d)
{
    if (d->op != SGLIR_OP_INPUT) return SGL_OK;
    sglir_graph *g = d->g;
    for (int i = 0; i < d->attr_count; i++) {
        if (d->attrs[i].kind != 's') continue;
        sglcore_hash key = { .low = d->strings[i] };
        uint64_t before;
        if (sglcore_map_get(&g->names, key, &before))
            return fail(d, SGL_INVALID_ARGUMENT, "the name \"%s\" is given twice", d->attrs[i].s);
        SGLCORE_TRY(sglcore_map_put(g->env, &g->names, key, (uint64_t)g->values.count));
    }
    return SGL_OK;
}

/* ---- the calls ------------------------------------------------------------------------------------------------ */

enum { RESULTS_AT_HAND = 16 };

static sglir_id emit(draft *d, const sglir_named *attrs, int attr_count, sglir_id *out)
{
    if (check_args(d) != SGL_OK || complete_attrs(d, attrs, attr_count) != SGL_OK) return SGLIR_NONE;
    sglir_type at_hand[RESULTS_AT_HAND];
    int capacity = result_capacity(d);
    size_t bytes = capacity > RESULTS_AT_HAND ? (size_t)capacity * sizeof *d->results : 0;
    d->results = bytes > 0 ? sglcore_alloc(d->g->env, bytes) : at_hand;
    sglir_id first = SGLIR_NONE;
    if (d->results == NULL) {
        sglir_stick(d->g, SGL_OUT_OF_MEMORY);
    } else if (infer(d, capacity) == SGL_OK && sglir_stick(d->g, make_room(d)) == SGL_OK &&
               sglir_stick(d->g, enter_name(d)) == SGL_OK) {
        first = append(d);
        for (int i = 0; i < d->result_count && out != NULL; i++) out[i] = first + (sglir_id)i;
    }
    if (bytes > 0) sglcore_free(d->g->env, d->results, bytes);
    return first;
}

sglir_id sglir_emit_regions(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                            int attr_count, const sglir_id *regions, int region_count, sglir_id *out)
{
    draft d; /* its arrays are filled up to attr_count only: clearing them would cost more than the rest */
    d.g = g;
    d.op = op;
    d.row = (unsigned)op < SGLIR_OP_COUNT ? &sglir_ops[op] : NULL;
    d.args = args;
    d.arg_count = arg_count;
    d.regions = regions;
    d.region_count = region_count;
    d.attr_count = 0;
    d.results = NULL;
    d.result_count = 0;
    if (d.row == NULL) {
        fail(&d, SGL_INVALID_ARGUMENT, "op %d is not in the table", (int)op);
        return SGLIR_NONE;
    }
    for (int i = 0; i < d.row->results && out != NULL; i++) out[i] = SGLIR_NONE;
    if (g->status != SGL_OK) return SGLIR_NONE;
    return emit(&d, attrs, attr_count, out);
}

sglir_id sglir_emit(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                    int attr_count, sglir_id *out)
{
    return sglir_emit_regions(g, op, args, arg_count, attrs, attr_count, NULL, 0, out);
}
