/* alias.c -- views, and results that may be written over an argument.
 *
 * In: nodes and types. Out: roots and offsets of views; yes or no for a result and an argument. Odd invariant: `no` is
 * always safe, so whatever is not understood is refused. */
#include <string.h>

#include "passes/alias.h"

/* ---- views -------------------------------------------------------------------------------------------------- */

/* Makers have smaller ids than users, so roots are known when they are asked for. Values inside of kernels are their
 * own roots: nothing there is stored. */
void sglpass_find_views(const sglir_graph *g, sglpass_view *views)
{
    for (int64_t v = 0; v < g->values.count; v++) views[v] = (sglpass_view){ .root = (sglir_id)v };
    for (int64_t n = 0; n < g->nodes.count; n++) {
        const sglir_node *node = &g->nodes.data[n];
        if (!sglir_is_view(node)) continue;
        sglpass_view at = views[sglir_arg(g, node, 0)];
        for (uint32_t i = 0; i < node->out_count; i++) {
            views[node->out_first + i] = at;
            at.offset += sglir_bytes(sglir_type_of(g, node->out_first + i));
        }
    }
}

/* ---- kernels ------------------------------------------------------------------------------------------------ */

enum { OF_ARGUMENT = 1, OF_RESULT = 2 }; /* marks in scratch */

/* Element i of each marked value is element i of the others of that mark, at one point of the domain. */
static bool keeps_elements(const sglir_node *node)
{
    return (sglir_ops[node->op].flags & SGLIR_ELEMENTWISE) || node->op == SGLIR_OP_RESHAPE;
}

/* The parameter is read at the point of the domain that it belongs to, whoever reads it: it, and reshapes of it, are
 * arguments of elementwise ops and reductions only. Marks it and these with OF_ARGUMENT. */
static bool read_in_place(const sglir_graph *g, const sglir_region *region, sglir_id parameter, uint8_t *marks)
{
    marks[parameter] |= OF_ARGUMENT;
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        bool reads = false;
        for (uint32_t i = 0; i < node->arg_count && !reads; i++) reads = marks[sglir_arg(g, node, i)] & OF_ARGUMENT;
        if (!reads) continue;
        if (node->op == SGLIR_OP_RESHAPE) {
            marks[node->out_first] |= OF_ARGUMENT;
        } else if (!(sglir_ops[node->op].flags & (SGLIR_ELEMENTWISE | SGLIR_REDUCTION))) {
            return false;
        }
    }
    return true;
}

/* Marks what has its elements in the order of `from`, through elementwise ops and reshapes in both directions. One way
 * up and one way down reach all that matters: a value is joined to its makers' arguments, and then to their users. */
static void mark_same_order(const sglir_graph *g, const sglir_region *region, sglir_id from, uint8_t *marks)
{
    marks[from] |= OF_RESULT;
    for (bool up = true;; up = false) {
        int64_t count = region->nodes.count;
        for (int64_t k = 0; k < count; k++) {
            const sglir_node *node = sglir_node_at(g, region->nodes.data[up ? count - 1 - k : k]);
            if (!keeps_elements(node)) continue;
            bool any = marks[node->out_first] & OF_RESULT;
            for (uint32_t i = 0; i < node->arg_count && !any; i++) any = marks[sglir_arg(g, node, i)] & OF_RESULT;
            if (!any) continue;
            marks[node->out_first] |= OF_RESULT;
            for (uint32_t i = 0; i < node->arg_count; i++) marks[sglir_arg(g, node, i)] |= OF_RESULT;
        }
        if (!up) return;
    }
}

static void clear_marks(const sglir_graph *g, const sglir_region *region, uint8_t *marks)
{
    for (int64_t i = 0; i < region->parameters.count; i++) marks[region->parameters.data[i]] = 0;
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->out_count; i++) marks[node->out_first + i] = 0;
    }
}

static int64_t domain_elements(const sglir_graph *g, const sglir_node *fused)
{
    int count;
    const int64_t *dims = sglir_attr_ints(g, fused, "domain", &count);
    int64_t elements = 1;
    for (int i = 0; i < count; i++) elements *= dims[i];
    return elements;
}

static bool kernel_takes_place(const sglir_graph *g, const sglir_node *fused, uint32_t arg, uint32_t result,
                               uint8_t *marks)
{
    const sglir_region *region = &g->regions.data[fused->region_first];
    sglir_id parameter = region->parameters.data[arg], yield = region->results.data[result];
    if (sglir_elements(sglir_type_of(g, parameter)) != domain_elements(g, fused)) return false;
    bool good = read_in_place(g, region, parameter, marks);
    if (good) {
        mark_same_order(g, region, yield, marks);
        good = marks[parameter] & OF_RESULT;
    }
    clear_marks(g, region, marks);
    return good;
}

/* ---- nodes -------------------------------------------------------------------------------------------------- */

static bool op_takes_place(const sglir_graph *g, const sglir_node *node, uint32_t arg, uint32_t result,
                           uint8_t *scratch)
{
    switch (node->op) {
    case SGLIR_OP_FUSED: return kernel_takes_place(g, node, arg, result, scratch);
    case SGLIR_OP_DYNAMIC_UPDATE: return arg == 0;
    case SGLIR_OP_ALL_REDUCE:
    case SGLIR_OP_ALL_MAX:
    case SGLIR_OP_COPY: return true;
    default: return false;
    }
}

bool sglpass_takes_place(const sglir_graph *g, const sglpass_view *views, sglir_id id, uint32_t arg, uint32_t result,
                         uint8_t *scratch)
{
    const sglir_node *node = sglir_node_at(g, id);
    sglir_id mine = sglir_arg(g, node, arg);
    const sglir_type *is = sglir_type_of(g, mine), *becomes = sglir_type_of(g, node->out_first + result);
    if (sglir_elements(is) != sglir_elements(becomes) || sglir_bytes(is) != sglir_bytes(becomes)) return false;
    if (!op_takes_place(g, node, arg, result, scratch)) return false;
    for (uint32_t i = 0; i < node->arg_count; i++) { /* whatever else lies there must bear it too */
        sglir_id other = sglir_arg(g, node, i);
        if (i == arg || views[other].root != views[mine].root) continue;
        if (views[other].offset != views[mine].offset || sglir_bytes(sglir_type_of(g, other)) != sglir_bytes(is) ||
            !op_takes_place(g, node, i, result, scratch))
            return false;
    }
    return true;
}

bool sglpass_region_reads(const sglir_graph *g, const sglpass_view *views, sglir_id id, sglir_id root)
{
    const sglir_region *region = &g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (views[sglir_arg(g, node, i)].root == root) return true;
        }
        if (sglir_is_control(node) && sglpass_regions_read(g, views, node, root)) return true;
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        if (views[region->results.data[i]].root == root) return true;
    }
    return false;
}

bool sglpass_regions_read(const sglir_graph *g, const sglpass_view *views, const sglir_node *node, sglir_id root)
{
    for (uint32_t r = 0; r < node->region_count; r++) {
        if (sglpass_region_reads(g, views, node->region_first + r, root)) return true;
    }
    return false;
}
