/* compose_window.c -- decompositions of convolutions and of their gradients: windows, then one product.
 *
 * In: x [n, s..., c], weight [out, k..., c / groups], dy [n, o..., out]. Out: what the composites give, with all windows in
 * memory: this is their meaning, not their kernel. Odd invariant: with groups, places and window elements are each made
 * one dimension before the product, so that the group is a batch of it and no rank is exceeded. */
#include "ir/compose.h"

/* ---- windows as the attributes of a convolution say ----------------------------------------------------------- */

enum { MOST_SPATIAL = (SGL_MAX_RANK - 2) / 2 };
enum { STRIDE, DILATION, LOW, HIGH, SHARED_LISTS };
static const char *const shared_lists[SHARED_LISTS] = { "stride", "dilation", "low", "high" };

/* The attributes of a node, copied: its graph may be the one that grows. */
typedef struct geometry {
    int spatial;
    int64_t groups;
    int64_t list[SHARED_LISTS][MOST_SPATIAL];
} geometry;

static void read_list(const sglir_graph *from, const sglir_node *node, const char *name, int64_t *list)
{
    int count;
    const int64_t *ints = sglir_attr_ints(from, node, name, &count);
    for (int i = 0; i < count && i < MOST_SPATIAL; i++) list[i] = ints[i];
}

static geometry read_geometry(const sglir_graph *from, const sglir_node *node)
{
    geometry geo = { .groups = sglir_attr_int(from, node, "groups") };
    sglir_attr_ints(from, node, "stride", &geo.spatial);
    for (int i = 0; i < SHARED_LISTS; i++) read_list(from, node, shared_lists[i], geo.list[i]);
    return geo;
}

/* WINDOWS with `size` or WINDOWS_ADD with `extent`. */
static sglir_id emit_windows(sglir_graph *g, sglir_op op, sglir_id x, const geometry *geo, const char *name,
                             const int64_t *list)
{
    const sglir_named attrs[] = { SGLIR_INTS(name, geo->spatial, list),
                                  SGLIR_INTS("stride", geo->spatial, geo->list[STRIDE]),
                                  SGLIR_INTS("dilation", geo->spatial, geo->list[DILATION]),
                                  SGLIR_INTS("low", geo->spatial, geo->list[LOW]),
                                  SGLIR_INTS("high", geo->spatial, geo->list[HIGH]) };
    return sglir_emit(g, op, &x, 1, attrs, 5, NULL);
}

/* ---- groups --------------------------------------------------------------------------------------------------- */

/* What does not fit 64 bits stands in a tensor of no elements only, where 0 is as right. */
static int64_t product(const int64_t *dims, int count)
{
    int64_t total = 1;
    for (int i = 0; i < count; i++) {
        if (__builtin_mul_overflow(total, dims[i], &total)) return 0;
    }
    return total;
}

/* [n, o..., k..., c] -> [n, places, window, groups, c / groups], and [n, o..., c] -> [n, places, groups, c / groups] */
static sglir_id by_group(sglir_graph *g, sglir_id x, const geometry *geo, bool windows)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(g, x);
    int64_t dims[5], channels = type.dims[type.rank - 1];
    int rank = 0;
    dims[rank++] = type.dims[0];
    dims[rank++] = product(type.dims + 1, geo->spatial);
    if (windows) dims[rank++] = product(type.dims + 1 + geo->spatial, geo->spatial);
    dims[rank++] = geo->groups;
    dims[rank++] = channels / geo->groups;
    return sglir_reshape(g, x, rank, dims);
}

/* weight [out, k..., c / groups] -> [groups, out / groups, window, c / groups] */
static sglir_id weight_by_group(sglir_graph *g, sglir_id weight, const geometry *geo)
{
    if (g->status != SGL_OK) return SGLIR_NONE;
    const sglir_type type = *sglir_type_of(g, weight);
    const int64_t dims[4] = { geo->groups, type.dims[0] / geo->groups, product(type.dims + 1, geo->spatial),
                              type.dims[type.rank - 1] };
    return sglir_reshape(g, weight, 4, dims);
}

/* ---- the three ------------------------------------------------------------------------------------------------ */

void sglir_compose_conv(sglir_graph *g, const sglir_graph *from, const sglir_node *node, const sglir_id *args,
                        sglir_id *out)
{
    if (g->status != SGL_OK) return;
    geometry geo = read_geometry(from, node);
    const sglir_type weight = *sglir_type_of(g, args[1]);
    int spatial = geo.spatial;
    sglir_id windows = emit_windows(g, SGLIR_OP_WINDOWS, args[0], &geo, "size", weight.dims + 1);
    if (g->status != SGL_OK) return;
    if (geo.groups == 1) {
        int64_t of_x[SGL_MAX_RANK], of_weight[SGL_MAX_RANK];
        for (int i = 0; i <= spatial; i++) {
            of_x[i] = 1 + spatial + i;
            of_weight[i] = 1 + i;
        }
        out[0] = sglir_dot(g, windows, args[1], 0, NULL, NULL, spatial + 1, of_x, of_weight);
        return;
    }
    int64_t dims[SGL_MAX_RANK];
    const sglir_type type = *sglir_type_of(g, windows);
    for (int i = 0; i <= spatial; i++) dims[i] = type.dims[i];
    dims[spatial + 1] = weight.dims[0];
    const int64_t group_x = 3, group_weight = 0, summed_x[2] = { 2, 4 }, summed_weight[2] = { 2, 3 };
    sglir_id x = by_group(g, windows, &geo, true), w = weight_by_group(g, args[1], &geo);
    sglir_id y =
        sglir_dot(g, x, w, 1, &group_x, &group_weight, 2, summed_x, summed_weight); /* [groups, n, places, o] */
    static const int64_t order[4] = { 1, 2, 0, 3 };
    out[0] = sglir_reshape(g, sglir_transpose(g, y, order), spatial + 2, dims);
}

void sglir_compose_conv_input_grad(sglir_graph *g, const sglir_graph *from, const sglir_node *node,
                                   const sglir_id *args, sglir_id *out)
{
    if (g->status != SGL_OK) return;
    geometry geo = read_geometry(from, node);
    const sglir_type dy = *sglir_type_of(g, args[0]), weight = *sglir_type_of(g, args[1]);
    int spatial = geo.spatial;
    int64_t extent[MOST_SPATIAL];
    read_list(from, node, "extent", extent);
    sglir_id windows;
    if (geo.groups == 1) {
        const int64_t of_dy = spatial + 1, of_weight = 0;
        windows = sglir_dot(g, args[0], args[1], 0, NULL, NULL, 1, &of_dy, &of_weight);
    } else {
        int64_t dims[SGL_MAX_RANK];
        for (int i = 0; i <= spatial; i++) dims[i] = dy.dims[i];
        for (int i = 0; i < spatial; i++) dims[1 + spatial + i] = weight.dims[1 + i];
        dims[1 + 2 * spatial] = weight.dims[1 + spatial] * geo.groups;
        const int64_t group_dy = 2, group_weight = 0, summed_dy = 3, summed_weight = 1;
        sglir_id y = by_group(g, args[0], &geo, false), w = weight_by_group(g, args[1], &geo);
        sglir_id x = sglir_dot(g, y, w, 1, &group_dy, &group_weight, 1, &summed_dy, &summed_weight);
        static const int64_t order[5] = { 1, 2, 3, 0, 4 }; /* of [groups, n, places, window, c] */
        windows = sglir_reshape(g, sglir_transpose(g, x, order), 2 + 2 * spatial, dims);
    }
    out[0] = emit_windows(g, SGLIR_OP_WINDOWS_ADD, windows, &geo, "extent", extent);
}

void sglir_compose_conv_weight_grad(sglir_graph *g, const sglir_graph *from, const sglir_node *node,
                                    const sglir_id *args, sglir_id *out)
{
    if (g->status != SGL_OK) return;
    geometry geo = read_geometry(from, node);
    const sglir_type x = *sglir_type_of(g, args[0]), dy = *sglir_type_of(g, args[1]);
    int spatial = geo.spatial;
    int64_t size[MOST_SPATIAL];
    read_list(from, node, "size", size);
    sglir_id windows = emit_windows(g, SGLIR_OP_WINDOWS, args[0], &geo, "size", size);
    if (g->status != SGL_OK) return;
    if (geo.groups == 1) {
        static const int64_t places[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
        out[0] = sglir_dot(g, args[1], windows, 0, NULL, NULL, spatial + 1, places, places);
        return;
    }
    int64_t dims[SGL_MAX_RANK];
    dims[0] = dy.dims[spatial + 1];
    for (int i = 0; i < spatial; i++) dims[1 + i] = size[i];
    dims[1 + spatial] = x.dims[spatial + 1] / geo.groups;
    const int64_t group_dy = 2, group_x = 3, places[2] = { 0, 1 };
    sglir_id y = by_group(g, args[1], &geo, false), w = by_group(g, windows, &geo, true);
    sglir_id made = sglir_dot(g, y, w, 1, &group_dy, &group_x, 2, places, places); /* [groups, o, window, c] */
    out[0] = sglir_reshape(g, made, spatial + 2, dims);
}
