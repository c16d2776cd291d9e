/* verify.c -- what every graph of a stage must be. In: a graph of anyone's making, and the stage it claims. Out: OK, or a
 * message that shows the first node found wrong, as the text form writes it, and its origin. Indices are checked before
 * anything is followed; types are not trusted but inferred anew, by emitting every node into a graph beside. Odd
 * invariant: it looks at a graph as it is, so what sglir_emit refuses at once is found here too where a pass has written
 * into the arrays by itself. */
#include <string.h>

#include "ir/infer.h"
#include "ir/text.h"
#include "ir/verify.h"

/* ---- complaints --------------------------------------------------------------------------------------------- */

enum { SHOWN_BYTES = 300 };

static void put_text(const sglir_graph *g, sglir_id node, bool numbered, sglcore_text *text)
{
    sglir_id *numbers = NULL;
    size_t bytes = 0;
    if (numbered && sglir_number_values(g, &numbers, &bytes) != SGL_OK) return;
    if (sglir_text_node(g, numbers, node, text) != SGL_OK)
        text->count = 0; /* without memory the message does with less */
    sglcore_free(g->env, numbers, bytes);
}

sgl_status sglir_verify_fail(const sglir_graph *g, sglir_id node, bool numbered, sgl_status status, const char *format,
                             ...)
{
    va_list arguments;
    char place[256];
    sglcore_text text = { 0 };
    put_text(g, node, numbered, &text);
    va_start(arguments, format);
    sglcore_fail_v(g->env, status, format, arguments);
    va_end(arguments);
    if (text.count > 0) {
        const char *more = text.count > SHOWN_BYTES ? "..." : "";
        sglcore_fail_at(g->env, status, "%.*s%s", SHOWN_BYTES, text.data, more);
    }
    if (sglir_origin_text(g, sglir_node_at(g, node)->origin, place, sizeof place)[0] != '\0') {
        sglcore_fail_at(g->env, status, "%s", place);
    }
    sglcore_text_free(g->env, &text);
    return status;
}

/* Of a node that cannot be shown: its indices lead astray. */
static sgl_status fail_broken(const sglir_graph *g, int64_t node, const char *what)
{
    uint16_t op = g->nodes.data[node].op;
    return sglcore_fail(g->env, SGL_INTERNAL, "node %lld (%s): %s", (long long)node,
                        op < SGLIR_OP_COUNT ? sglir_ops[op].name : "of no op", what);
}

/* ---- indices ------------------------------------------------------------------------------------------------ */

static bool within(uint64_t first, uint64_t count, int64_t size) { return first + count <= (uint64_t)size; }

static const char *attr_fault(const sglir_graph *g, const sglir_attr *attr, const sglir_schema_item *item)
{
    if (attr->kind != item->kind) return "an attribute's kind is not its schema's";
    switch (attr->kind) {
    case 't': return attr->as.i >= 0 && attr->as.i < SGL_DTYPE_COUNT ? NULL : "an attribute is no dtype";
    case 'b': return attr->as.i == 0 || attr->as.i == 1 ? NULL : "an attribute is neither true nor false";
    case 'I':
        if (attr->count == 0) return NULL;
        return within(attr->as.first, attr->count, g->ints.count) ? NULL : "a list is out of the graph's integers";
    case 'F':
        if (attr->count == 0) return NULL;
        return within(attr->as.first, attr->count, g->floats.count) ? NULL : "a list is out of the graph's numbers";
    default: return NULL;
    }
}

static const char *attrs_fault(const sglir_graph *g, const sglir_node *node)
{
    if (!within(node->attr_first, node->attr_count, g->attrs.count)) return "its attributes are out of the graph";
    const char *at = sglir_ops[node->op].attrs;
    sglir_schema_item item;
    for (uint32_t i = 0; i < node->attr_count; i++) {
        const sglir_attr *attr = &g->attrs.data[node->attr_first + i];
        if (!sglir_schema_step(&at, &item)) return "it has more attributes than its op";
        const char *name = sglcore_string(g->strings, attr->name);
        if (strlen(name) != (size_t)item.name_length || memcmp(name, item.name, strlen(name)) != 0) {
            return "its attributes are not in the schema's order";
        }
        const char *fault = attr_fault(g, attr, &item);
        if (fault != NULL) return fault;
    }
    return sglir_schema_step(&at, &item) ? "it has fewer attributes than its op" : NULL;
}

static const char *node_fault(const sglir_graph *g, const sglir_node *node)
{
    if (node->op >= SGLIR_OP_COUNT) return "its op is not in the table";
    if (!within(node->arg_first, node->arg_count, g->args.count)) return "its arguments are out of the graph";
    if (!within(node->out_first, node->out_count, g->values.count)) return "its results are out of the graph";
    if (node->region >= g->regions.count) return "its region is out of the graph";
    if (node->region_count > 0 && !within(node->region_first, node->region_count, g->regions.count)) {
        return "its regions are out of the graph";
    }
    if (node->origin >= g->origins.count) return "its origin is out of the graph";
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (sglir_arg(g, node, i) >= g->values.count) return "an argument is no value of the graph";
    }
    for (uint32_t i = 0; i < node->out_count; i++) {
        const sglir_value *value = sglir_value_at(g, node->out_first + i);
        if (value->node != (sglir_id)(node - g->nodes.data) || value->index != i || value->region != node->region) {
            return "a result does not know it as its maker";
        }
    }
    return attrs_fault(g, node);
}

static sgl_status check_indices(const sglir_graph *g)
{
    if (g->status != SGL_OK) {
        return sglcore_fail(g->env, SGL_WRONG_STATE, "the graph \"%s\" failed while it was built",
                            sglcore_string(g->strings, g->name));
    }
    if (g->open.count != 1) return sglcore_fail(g->env, SGL_WRONG_STATE, "a region of the graph is not closed");
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const char *fault = node_fault(g, &g->nodes.data[n]);
        if (fault != NULL) return fail_broken(g, n, fault);
    }
    for (int64_t v = 0; v < g->values.count; v++) {
        const sglir_value *value = &g->values.data[v];
        if ((value->node == SGLIR_NONE || value->node < g->nodes.count) && value->region < g->regions.count &&
            value->space < SGLIR_SPACES && value->type.rank <= SGL_MAX_RANK && value->type.dtype < SGL_DTYPE_COUNT) {
            continue;
        }
        return sglcore_fail(g->env, SGL_INTERNAL, "value %lld: its maker, region, space or type is out of range",
                            (long long)v);
    }
    for (int64_t r = 0; r < g->regions.count; r++) {
        const sglir_region *region = &g->regions.data[r];
        bool good = true;
        for (int64_t i = 0; i < region->nodes.count; i++) good = good && region->nodes.data[i] < g->nodes.count;
        for (int64_t i = 0; i < region->results.count; i++) good = good && region->results.data[i] < g->values.count;
        for (int64_t i = 0; i < region->parameters.count; i++) {
            sglir_id id = region->parameters.data[i];
            good = good && id < g->values.count && g->values.data[id].node == SGLIR_NONE &&
                   g->values.data[id].region == r && g->values.data[id].index == i;
        }
        if (!good) {
            return sglcore_fail(g->env, SGL_INTERNAL, "region %lld: a node, parameter or result is not the graph's",
                                (long long)r);
        }
    }
    return SGL_OK;
}

/* ---- order -------------------------------------------------------------------------------------------------- */

typedef struct order {
    const sglir_graph *g;
    uint8_t *visible; /* per value: made, in this region or around */
    uint8_t *nodes;   /* per node: seen */
    uint8_t *regions; /* per region: seen */
} order;

static sgl_status order_region(order *o, sglir_id id, int depth);

static sgl_status order_node(order *o, sglir_id id, sglir_id region, int depth)
{
    const sglir_graph *g = o->g;
    const sglir_node *node = sglir_node_at(g, id);
    if (o->nodes[id]) return fail_broken(g, id, "it stands in the graph twice");
    o->nodes[id] = 1;
    if (node->region != region) return fail_broken(g, id, "it stands in a region that is not its own");
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (o->visible[sglir_arg(g, node, i)]) continue;
        return sglir_verify_fail(g, id, false, SGL_INTERNAL,
                                 "argument %u is not made before it, in its region or around (ids are the graph's own)",
                                 (unsigned)i);
    }
    if (node->op == SGLIR_OP_INPUT && region != 0) {
        return sglir_verify_fail(g, id, false, SGL_INTERNAL, "an input stands in a region");
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        if (g->regions.data[node->region_first + r].node != id) {
            return fail_broken(g, id, "a region of it does not know it");
        }
        SGLCORE_TRY(order_region(o, node->region_first + r, depth + 1));
    }
    for (uint32_t i = 0; i < node->out_count; i++) o->visible[node->out_first + i] = 1;
    return SGL_OK;
}

static sgl_status order_region(order *o, sglir_id id, int depth)
{
    const sglir_graph *g = o->g;
    const sglir_region *region = &g->regions.data[id];
    if (o->regions[id] || depth > SGLIR_TEXT_DEPTH) {
        return sglcore_fail(g->env, SGL_INTERNAL, "region %u is held twice, or too deep", (unsigned)id);
    }
    o->regions[id] = 1;
    for (int64_t i = 0; i < region->parameters.count; i++) o->visible[region->parameters.data[i]] = 1;
    for (int64_t n = 0; n < region->nodes.count; n++) SGLCORE_TRY(order_node(o, region->nodes.data[n], id, depth));
    for (int64_t i = 0; i < region->results.count; i++) {
        if (o->visible[region->results.data[i]]) continue;
        return sglcore_fail(g->env, SGL_INTERNAL, "region %u: a result is not made there or around", (unsigned)id);
    }
    if (id == 0) return SGL_OK; /* the outputs are still to be looked at */
    for (int64_t i = 0; i < region->parameters.count; i++) o->visible[region->parameters.data[i]] = 0;
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) o->visible[node->out_first + i] = 0;
    }
    return SGL_OK;
}

static sgl_status check_outputs(const order *o)
{
    const sglir_graph *g = o->g;
    for (int64_t i = 0; i < g->outputs.count; i++) {
        const sglir_output *output = &g->outputs.data[i];
        const char *name = sglcore_string(g->strings, output->name);
        if (output->value >= g->values.count || !o->visible[output->value]) {
            return sglcore_fail(g->env, SGL_INTERNAL, "output \"%s\" is no value of the graph's top region", name);
        }
        const sglir_type *type = sglir_type_of(g, output->value);
        if (type->partial == 0 && type->scaled == 0) continue;
        char text[SGLIR_TYPE_ROOM];
        return sglir_verify_fail(g, sglir_value_at(g, output->value)->node, true, SGL_TYPE,
                                 "output \"%s\" is still owed something: %s", name,
                                 sglir_type_text(type, text, sizeof text));
    }
    return SGL_OK;
}

static sgl_status check_order(const sglir_graph *g)
{
    sglcore_arena arena = { .env = g->env };
    order o = { .g = g,
                .visible = sglcore_arena_alloc(&arena, (size_t)g->values.count + 1),
                .nodes = sglcore_arena_alloc(&arena, (size_t)g->nodes.count + 1),
                .regions = sglcore_arena_alloc(&arena, (size_t)g->regions.count + 1) };
    sgl_status status = SGL_OUT_OF_MEMORY;
    if (o.visible != NULL && o.nodes != NULL && o.regions != NULL) status = order_region(&o, 0, 0);
    if (status == SGL_OK) status = check_outputs(&o);
    sglcore_arena_free(&arena);
    return status;
}

/* ---- types -------------------------------------------------------------------------------------------------- */

static sgl_status compare_types(const sglir_rewrite *again)
{
    const sglir_graph *g = again->from;
    for (int64_t v = 0; v < g->values.count; v++) {
        if (again->map[v] == SGLIR_NONE) continue;
        const sglir_type *is = sglir_type_of(g, (sglir_id)v), *must = sglir_type_of(again->to, again->map[v]);
        if (sglir_type_equal(is, must)) continue;
        const sglir_value *value = &g->values.data[v];
        sglir_id node = value->node != SGLIR_NONE ? value->node : g->regions.data[value->region].node;
        char is_text[SGLIR_TYPE_ROOM], must_text[SGLIR_TYPE_ROOM];
        return sglir_verify_fail(g, node, true, SGL_TYPE, "%s %u is %s, and must be %s",
                                 value->node != SGLIR_NONE ? "result" : "parameter", (unsigned)value->index,
                                 sglir_type_text(is, is_text, sizeof is_text),
                                 sglir_type_text(must, must_text, sizeof must_text));
    }
    return SGL_OK;
}

/* Emits all anew: arity, attributes, types, linearity, names and outputs are judged by what judges them at the first. */
static sgl_status check_types(const sglir_graph *g)
{
    sglir_rewrite again;
    SGLCORE_TRY(sglir_rewrite_begin(g->env, g, "verify", NULL, &again));
    sgl_status status = SGL_OK;
    const sglir_region *top = &g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count && status == SGL_OK; n++) {
        sglir_copy_node(&again, top->nodes.data[n]);
        status = sglir_status(again.to);
        if (status == SGL_OK || status == SGL_OUT_OF_MEMORY) continue;
        char message[512];
        strncpy(message, g->env->message, sizeof message - 1);
        message[sizeof message - 1] = '\0';
        sglir_verify_fail(g, top->nodes.data[n], true, status, "%s", message);
    }
    sgl_status compared = status == SGL_OK ? compare_types(&again) : status;
    sglir_graph *copy;
    status = sglir_rewrite_end(&again, compared == SGL_OK, &copy);
    if (status == SGL_OK) sglir_graph_free(copy);
    return compared != SGL_OK ? compared : status;
}

/* ---- waits -------------------------------------------------------------------------------------------------- */

static sgl_status check_wait(const sglir_graph *g, sglir_id id, const uint32_t *uses)
{
    const sglir_node *wait = sglir_node_at(g, id), *exchange = sglir_maker(g, sglir_arg(g, wait, 0));
    const bool moves = wait->op == SGLIR_OP_ARRIVED;
    if (exchange == NULL || !(moves ? sglir_is_move(exchange->op) : sglir_is_exchange(exchange->op)))
        return sglir_verify_fail(g, id, true, SGL_TYPE, "what it waits for is made by no %s",
                                 moves ? "move" : "exchange");
    if (exchange->region != wait->region)
        return sglir_verify_fail(g, id, true, SGL_TYPE, "the exchange stands in another region");
    if (uses[sglir_arg(g, wait, 0)] != 1)
        return sglir_verify_fail(g, id, true, SGL_TYPE, "what the exchange makes is read by others too");
    bool same = wait->arg_count == exchange->arg_count + 1;
    for (uint32_t i = 0; same && i < exchange->arg_count; i++)
        same = sglir_arg(g, wait, i + 1) == sglir_arg(g, exchange, i);
    return same ? SGL_OK : sglir_verify_fail(g, id, true, SGL_TYPE, "it does not name the arguments of the exchange");
}

static sgl_status check_waits(const sglir_graph *g)
{
    sgl_status status = SGL_OK;
    uint32_t *uses = NULL;
    const size_t bytes = (size_t)(g->values.count + 1) * sizeof *uses;
    for (int64_t n = 0; n < g->nodes.count && status == SGL_OK; n++) {
        if (!sglir_is_wait(sglir_node_at(g, (sglir_id)n)->op)) continue;
        if (uses == NULL) { /* most graphs have none */
            uses = sglcore_alloc(g->env, bytes);
            if (uses == NULL) return SGL_OUT_OF_MEMORY;
            sglir_count_uses(g, uses);
        }
        status = check_wait(g, (sglir_id)n, uses);
    }
    sglcore_free(g->env, uses, bytes);
    return status;
}

/* ---- members ------------------------------------------------------------------------------------------------ */

/* A member lies within its section, where the graph has that, and apart from the section's other members. */
static sgl_status check_members(const sglir_graph *g)
{
    for (int64_t i = 0; i < g->members.count; i++) {
        const sglir_member *a = &g->members.data[i];
        const char *name = sglcore_string(g->strings, a->name), *section = sglcore_string(g->strings, a->section);
        int64_t elements = sglir_elements(&a->type), end;
        if (a->role >= SGLIR_ROLES || a->offset < 0 || elements < 0 ||
            __builtin_add_overflow(a->offset, elements, &end)) {
            return sglcore_fail(g->env, SGL_TYPE, "member \"%s\": its role, offset or type is out of range", name);
        }
        uint64_t input;
        if (sglcore_map_get(&g->names, (sglcore_hash){ .low = a->section }, &input)) {
            const sglir_type *type = sglir_type_of(g, (sglir_id)input);
            bool split = false;
            for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) split = split || type->sharded[axis] >= 0;
            if (type->rank != 1 || type->dtype != a->type.dtype || (!split && end > type->dims[0])) {
                return sglcore_fail(g->env, SGL_TYPE, "member \"%s\" does not fit into its section \"%s\"", name,
                                    section);
            }
        }
        for (int64_t k = 0; k < i; k++) {
            const sglir_member *b = &g->members.data[k];
            if (a->section != b->section || a->offset >= b->offset + sglir_elements(&b->type) || b->offset >= end)
                continue;
            return sglcore_fail(g->env, SGL_TYPE, "members \"%s\" and \"%s\" of section \"%s\" overlap",
                                sglcore_string(g->strings, b->name), name, section);
        }
    }
    return SGL_OK;
}

/* ---- stages ------------------------------------------------------------------------------------------------- */

/* What a device runs without a kernel made for the place: everything else stands in a fused region by then. */
static bool stands_alone(const sglir_graph *g, const sglir_node *node)
{
    switch (node->op) {
    case SGLIR_OP_INPUT:
    case SGLIR_OP_RESHAPE:
    case SGLIR_OP_UNPACK:
    case SGLIR_OP_DOT:
    case SGLIR_OP_GATHER:
    case SGLIR_OP_SCATTER_ADD:
    case SGLIR_OP_DYNAMIC_SLICE:
    case SGLIR_OP_DYNAMIC_UPDATE:
    case SGLIR_OP_CONCAT:
    case SGLIR_OP_PAD:
    case SGLIR_OP_PACK:
    case SGLIR_OP_FLIP:
    case SGLIR_OP_REDUCE_PROD:
    case SGLIR_OP_ARGMAX:
    case SGLIR_OP_ARGMIN:
    case SGLIR_OP_RECURRENCE:
    case SGLIR_OP_CUMULATIVE_SUM:
    case SGLIR_OP_SORT:
    case SGLIR_OP_TAKE_ALONG:
    case SGLIR_OP_ADD_ALONG:
    case SGLIR_OP_WINDOWS:
    case SGLIR_OP_WINDOWS_ADD:
    case SGLIR_OP_SCAN:
    case SGLIR_OP_COND:
    case SGLIR_OP_WHILE:
    case SGLIR_OP_COPY:
    case SGLIR_OP_AFTER:
    case SGLIR_OP_COORDINATE:
    case SGLIR_OP_SHARE:
    case SGLIR_OP_TERMS:
    case SGLIR_OP_DECLARE:
    case SGLIR_OP_ALL_REDUCE:
    case SGLIR_OP_ALL_MAX:
    case SGLIR_OP_REDUCE_SCATTER:
    case SGLIR_OP_ALL_GATHER:
    case SGLIR_OP_REDUCE_SCATTER_EACH:
    case SGLIR_OP_ALL_GATHER_EACH:
    case SGLIR_OP_SEND:
    case SGLIR_OP_RECEIVE:
    case SGLIR_OP_ALL_TO_ALL:
    case SGLIR_OP_ALL_TO_ALL_EACH:
    case SGLIR_OP_RING_SHIFT:
    case SGLIR_OP_WAIT:
    case SGLIR_OP_OFFLOAD:
    case SGLIR_OP_PREFETCH:
    case SGLIR_OP_ARRIVED:
    case SGLIR_OP_FUSED: return true;
    case SGLIR_OP_CONSTANT: return sglir_type_of(g, node->out_first)->rank == 0;
    default: return (sglir_ops[node->op].flags & SGLIR_COMPOSITE) && !(sglir_ops[node->op].flags & SGLIR_ELEMENTWISE);
    }
}

static sgl_status check_fused(const sglir_graph *g, sglir_id id)
{
    const sglir_node *fused = sglir_node_at(g, id);
    const uint32_t inside = SGLIR_ELEMENTWISE | SGLIR_REDUCTION | SGLIR_MOVEMENT | SGLIR_GENERATOR;
    for (uint32_t r = 0; r < fused->region_count; r++) {
        sglir_id region = fused->region_first + r;
        for (int64_t n = 0; n < g->regions.data[region].nodes.count; n++) {
            sglir_id inner = g->regions.data[region].nodes.data[n];
            const sglir_node *node = sglir_node_at(g, inner);
            if (!(sglir_ops[node->op].flags & inside) || node->region_count > 0) {
                return sglir_verify_fail(g, inner, true, SGL_TYPE,
                                         "an op that no kernel holds stands in a fused region");
            }
            for (uint32_t i = 0; i < node->arg_count; i++) {
                if (sglir_value_at(g, sglir_arg(g, node, i))->region == region) continue;
                return sglir_verify_fail(g, inner, true, SGL_TYPE, "a fused region uses a value from around it");
            }
        }
        for (int64_t i = 0; i < g->regions.data[region].results.count; i++) {
            if (sglir_value_at(g, g->regions.data[region].results.data[i])->region == region) continue;
            return sglir_verify_fail(g, id, true, SGL_TYPE, "a fused region yields a value from around it");
        }
    }
    return SGL_OK;
}

static sgl_status check_stage(const sglir_graph *g, sglir_id region, sglir_stage stage)
{
    for (int64_t n = 0; n < g->regions.data[region].nodes.count; n++) {
        sglir_id id = g->regions.data[region].nodes.data[n];
        const sglir_node *node = sglir_node_at(g, id);
        if (stage >= SGLIR_PER_RANK && node->op == SGLIR_OP_GRAD) {
            return sglir_verify_fail(g, id, true, SGL_TYPE, "a grad is left after autodiff");
        }
        if (stage >= SGLIR_FUSED && node->op == SGLIR_OP_CUSTOM_SEED) /* before, dead ones may be left */
            return sglir_verify_fail(g, id, true, SGL_TYPE,
                                     "a gradient is used outside of the backward function that was given it");
        if (node->op == SGLIR_OP_FUSED) {
            SGLCORE_TRY(check_fused(g, id));
            continue;
        }
        if (stage >= SGLIR_FUSED && !stands_alone(g, node)) {
            return sglir_verify_fail(g, id, true, SGL_TYPE, "it must stand in a fused region by now");
        }
        for (uint32_t r = 0; r < node->region_count; r++) SGLCORE_TRY(check_stage(g, node->region_first + r, stage));
    }
    return SGL_OK;
}

sgl_status sglir_verify(const sglir_graph *g, sglir_stage stage)
{
    SGLCORE_TRY(check_indices(g));
    SGLCORE_TRY(check_order(g));
    SGLCORE_TRY(check_types(g));
    SGLCORE_TRY(check_waits(g));
    SGLCORE_TRY(check_members(g));
    SGLCORE_TRY(check_stage(g, 0, stage));
    return stage == SGLIR_PLACED ? sglir_verify_places(g) : SGL_OK;
}
