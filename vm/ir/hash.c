/* hash.c -- what a graph means, as two hashes. In: a well-formed graph. Out: math_hash (ops, attributes, types, structure:
 * what kernels are keyed by) and job_hash (names, members, places and our version too: what programs are keyed by).
 * Odd invariant: no id enters a hash. A value is told by how many regions out of its user it stands, by the position of
 * its maker there and by its index; so two graphs that were built in different ways and print alike hash alike. */
#include <math.h>
#include <string.h>

#include "ir/infer.h"

static void add_string(sglcore_hasher *h, const sglir_graph *g, uint32_t string)
{
    sglcore_hasher_string(h, sglcore_string(g->strings, string));
}

static void add_double(sglcore_hasher *h, double value)
{
    uint64_t bits = UINT64_C(0x7ff8000000000000); /* every NaN is the one that the text form reads */
    if (!isnan(value)) memcpy(&bits, &value, sizeof bits);
    sglcore_hasher_u64(h, bits);
}

static void add_type(sglcore_hasher *h, const sglir_type *type)
{
    sglcore_hasher_string(h, sgl_dtype_name((sgl_dtype)type->dtype));
    sglcore_hasher_u64(h, (uint64_t)type->rank | (uint64_t)type->scaled << 8 | (uint64_t)type->partial << 16);
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) sglcore_hasher_u64(h, (uint64_t)(int64_t)type->sharded[axis]);
    for (int i = 0; i < type->rank; i++) sglcore_hasher_u64(h, (uint64_t)type->dims[i]);
}

/* ---- structure ---------------------------------------------------------------------------------------------- */

/* Where the node stands among its region's. Nodes are appended in the order of their ids: a search by halves finds it,
 * and a plain one does where somebody has reordered them. */
static int64_t position_of(const sglir_region *region, sglir_id node)
{
    int64_t low = 0, high = region->nodes.count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (region->nodes.data[middle] < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < region->nodes.count && region->nodes.data[low] == node) return low;
    for (int64_t i = 0; i < region->nodes.count; i++) {
        if (region->nodes.data[i] == node) return i;
    }
    return -1;
}

static void add_value(sglcore_hasher *h, const sglir_graph *g, sglir_id user_region, sglir_id id)
{
    const sglir_value *value = sglir_value_at(g, id);
    uint64_t out = 0;
    for (sglir_id region = user_region; region != value->region && g->regions.data[region].node != SGLIR_NONE; out++) {
        region = sglir_node_at(g, g->regions.data[region].node)->region;
    }
    sglcore_hasher_u64(h, out);
    sglcore_hasher_u64(h, value->node == SGLIR_NONE
                              ? UINT64_MAX
                              : (uint64_t)position_of(&g->regions.data[value->region], value->node));
    sglcore_hasher_u64(h, value->index);
}

static void add_attr(sglcore_hasher *h, const sglir_named *attr)
{
    sglcore_hasher_string(h, attr->name);
    switch (attr->kind) {
    case 'f': add_double(h, attr->f); break;
    case 's': sglcore_hasher_string(h, attr->s); break;
    case 't': sglcore_hasher_string(h, sgl_dtype_name((sgl_dtype)attr->i)); break;
    case 'I':
        sglcore_hasher_u64(h, (uint64_t)attr->i);
        for (int64_t i = 0; i < attr->i; i++) sglcore_hasher_u64(h, (uint64_t)attr->ints[i]);
        break;
    case 'F':
        sglcore_hasher_u64(h, (uint64_t)attr->i);
        for (int64_t i = 0; i < attr->i; i++) add_double(h, attr->floats[i]);
        break;
    default: sglcore_hasher_u64(h, (uint64_t)attr->i); break;
    }
}

static void add_region(sglcore_hasher *h, const sglir_graph *g, sglir_id id);

static void add_node(sglcore_hasher *h, const sglir_graph *g, const sglir_node *node)
{
    sglcore_hasher_string(h, sglir_ops[node->op].name);
    sglcore_hasher_u64(h, node->epoch);
    sglcore_hasher_u64(h, node->turn);
    sglcore_hasher_u64(h, node->arg_count);
    for (uint32_t i = 0; i < node->arg_count; i++) add_value(h, g, node->region, sglir_arg(g, node, i));
    sglir_named named[SGLIR_MOST_ATTRS];
    int count = sglir_attrs_named(g, node, named);
    for (int i = 0; i < count; i++) {
        /* An input is known by its place among the others; its name is no mathematics. */
        if (node->op != SGLIR_OP_INPUT || named[i].kind != 's') add_attr(h, &named[i]);
    }
    sglcore_hasher_u64(h, node->out_count);
    for (uint32_t i = 0; i < node->out_count; i++) add_type(h, sglir_type_of(g, node->out_first + i));
    sglcore_hasher_u64(h, node->region_count);
    for (uint32_t r = 0; r < node->region_count; r++) add_region(h, g, node->region_first + r);
}

static void add_region(sglcore_hasher *h, const sglir_graph *g, sglir_id id)
{
    const sglir_region *region = &g->regions.data[id];
    sglcore_hasher_u64(h, (uint64_t)region->parameters.count);
    for (int64_t i = 0; i < region->parameters.count; i++) add_type(h, sglir_type_of(g, region->parameters.data[i]));
    sglcore_hasher_u64(h, (uint64_t)region->nodes.count);
    for (int64_t n = 0; n < region->nodes.count; n++) add_node(h, g, sglir_node_at(g, region->nodes.data[n]));
    sglcore_hasher_u64(h, (uint64_t)region->results.count);
    for (int64_t i = 0; i < region->results.count; i++) add_value(h, g, id, region->results.data[i]);
}

sglcore_hash sglir_math_hash(const sglir_graph *g)
{
    sglcore_hasher h;
    sglcore_hasher_init(&h);
    add_region(&h, g, 0);
    sglcore_hasher_u64(&h, (uint64_t)g->outputs.count);
    for (int64_t i = 0; i < g->outputs.count; i++) {
        sglcore_hasher_u64(&h, (uint64_t)g->outputs.data[i].role);
        add_value(&h, g, 0, g->outputs.data[i].value);
    }
    return sglcore_hasher_end(&h);
}

/* ---- names and places --------------------------------------------------------------------------------------- */

static void add_place(sglcore_hasher *h, const sglir_graph *g, sglir_id value)
{
    sglcore_hasher_u64(h, sglir_value_at(g, value)->space);
    sglcore_hasher_u64(h, (uint64_t)sglir_value_at(g, value)->offset);
}

static void add_names_and_places(sglcore_hasher *h, const sglir_graph *g, sglir_id id)
{
    const sglir_region *region = &g->regions.data[id];
    for (int64_t i = 0; i < region->parameters.count; i++) add_place(h, g, region->parameters.data[i]);
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        if (node->op == SGLIR_OP_INPUT) sglcore_hasher_string(h, sglir_attr_string(g, node, "name"));
        for (uint32_t i = 0; i < node->out_count; i++) add_place(h, g, node->out_first + i);
        sglcore_hasher_u64(h, (uint64_t)node->work_bytes);
        sglcore_hasher_u64(h, (uint64_t)node->work_offset);
        for (uint32_t r = 0; r < node->region_count; r++) add_names_and_places(h, g, node->region_first + r);
    }
}

static void add_scopes(sglcore_hasher *h, const sglir_graph *g, sglir_id id)
{
    const sglir_region *region = &g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        add_string(h, g, g->origins.data[node->origin].scope);
        for (uint32_t r = 0; r < node->region_count; r++) add_scopes(h, g, node->region_first + r);
    }
}

/* The marks, and what they speak of: the scope of each node. Without marks no scope matters. */
static void add_recomputed(sglcore_hasher *h, const sglir_graph *g)
{
    if (g->recomputed.count == 0) return;
    sglcore_hasher_u64(h, (uint64_t)g->recomputed.count);
    for (int64_t i = 0; i < g->recomputed.count; i++) add_string(h, g, g->recomputed.data[i]);
    add_scopes(h, g, 0);
}

sglcore_hash sglir_job_hash(const sglir_graph *g)
{
    sglcore_hash math = sglir_math_hash(g);
    sglcore_hasher h;
    sglcore_hasher_init(&h);
    sglcore_hasher_string(&h, SGL_VERSION);
    sglcore_hasher_u64(&h, math.low);
    sglcore_hasher_u64(&h, math.high);
    add_names_and_places(&h, g, 0);
    for (int64_t i = 0; i < g->outputs.count; i++) add_string(&h, g, g->outputs.data[i].name);
    sglcore_hasher_u64(&h, (uint64_t)g->members.count);
    for (int64_t i = 0; i < g->members.count; i++) {
        const sglir_member *member = &g->members.data[i];
        add_string(&h, g, member->section);
        add_string(&h, g, member->name);
        sglcore_hasher_u64(&h, member->role);
        sglcore_hasher_u64(&h, (uint64_t)member->offset);
        add_type(&h, &member->type);
    }
    add_recomputed(&h, g);
    for (int i = 1; i < SGLIR_SPACES; i++) sglcore_hasher_u64(&h, (uint64_t)g->space_bytes[i]);
    sglcore_hasher_u64(&h, (uint64_t)g->arena_lower_bound);
    return sglcore_hasher_end(&h);
}
