/* vjp_window.c -- derivatives of windows and of convolutions: each names its transpose.
 *
 * A convolution and its two gradients are one trilinear form <dy, conv(x, weight)> seen from three sides, so the gradients
 * of any of them are the other two, and derivatives of every order stay convolutions. */
#include <string.h>

#include "passes/vjp_rules.h"

enum { MOST_SPATIAL = (SGL_MAX_RANK - 2) / 2, STRIDE = 1, DILATION, LOW, HIGH, GROUPS, MOST_ATTRS };

/* The attributes of another op of the family; [0] is its size or extent, where it has one. */
typedef struct geometry {
    sglir_named attrs[MOST_ATTRS];
    int64_t lists[MOST_ATTRS][MOST_SPATIAL];
    int spatial;
} geometry;

static void read_list(const sglpass_vjp *v, geometry *geo, int slot, const char *name)
{
    int count;
    const int64_t *ints = sglir_attr_ints(v->g, sglir_node_at(v->g, v->node), name, &count);
    geo->spatial = count;
    memcpy(geo->lists[slot], ints, (size_t)count * sizeof *ints);
    geo->attrs[slot] = SGLIR_INTS(name, count, geo->lists[slot]);
}

static void read_geometry(const sglpass_vjp *v, geometry *geo)
{
    read_list(v, geo, STRIDE, "stride");
    read_list(v, geo, DILATION, "dilation");
    read_list(v, geo, LOW, "low");
    read_list(v, geo, HIGH, "high");
}

/* Slot 0 from the dims of a value, beginning at `first`. */
static void take_dims(const sglpass_vjp *v, geometry *geo, const char *name, sglir_id value, int first)
{
    memcpy(geo->lists[0], sglir_type_of(v->g, value)->dims + first, (size_t)geo->spatial * sizeof(int64_t));
    geo->attrs[0] = SGLIR_INTS(name, geo->spatial, geo->lists[0]);
}

void sglpass_vjp_windows(const sglpass_vjp *v)
{
    geometry geo;
    read_geometry(v, &geo);
    take_dims(v, &geo, "extent", sglpass_vjp_arg(v, 0), 1);
    sglir_emit(v->g, SGLIR_OP_WINDOWS_ADD, v->dys, 1, geo.attrs, GROUPS, &v->into[0]);
}

void sglpass_vjp_windows_add(const sglpass_vjp *v)
{
    geometry geo;
    read_geometry(v, &geo);
    take_dims(v, &geo, "size", sglpass_vjp_arg(v, 0), 1 + geo.spatial);
    sglir_emit(v->g, SGLIR_OP_WINDOWS, v->dys, 1, geo.attrs, GROUPS, &v->into[0]);
}

/* ---- convolutions ---- */

/* One of the three ops, by its two arguments; `geo` has all but slot 0, which is taken from `like`. */
static sglir_id emit(const sglpass_vjp *v, geometry *geo, sglir_op op, sglir_id a, sglir_id b, sglir_id like)
{
    sglir_id args[2] = { a, b };
    geo->attrs[GROUPS] = SGLIR_I("groups", sglpass_vjp_int(v, "groups"));
    if (op == SGLIR_OP_CONV) return sglir_emit(v->g, op, args, 2, geo->attrs + 1, MOST_ATTRS - 1, NULL);
    take_dims(v, geo, op == SGLIR_OP_CONV_INPUT_GRAD ? "extent" : "size", like, 1);
    return sglir_emit(v->g, op, args, 2, geo->attrs, MOST_ATTRS, NULL);
}

/* (x, weight) -> y */
void sglpass_vjp_conv(const sglpass_vjp *v)
{
    geometry geo;
    sglir_id x = sglpass_vjp_arg(v, 0), weight = sglpass_vjp_arg(v, 1), dy = v->dys[0];
    read_geometry(v, &geo);
    if (v->wanted[0]) v->into[0] = emit(v, &geo, SGLIR_OP_CONV_INPUT_GRAD, dy, weight, x);
    if (v->wanted[1]) v->into[1] = emit(v, &geo, SGLIR_OP_CONV_WEIGHT_GRAD, x, dy, weight);
}

/* (dy, weight) -> dx; u is the gradient of dx */
void sglpass_vjp_conv_input_grad(const sglpass_vjp *v)
{
    geometry geo;
    sglir_id dy = sglpass_vjp_arg(v, 0), weight = sglpass_vjp_arg(v, 1), u = v->dys[0];
    read_geometry(v, &geo);
    if (v->wanted[0]) v->into[0] = emit(v, &geo, SGLIR_OP_CONV, u, weight, SGLIR_NONE);
    if (v->wanted[1]) v->into[1] = emit(v, &geo, SGLIR_OP_CONV_WEIGHT_GRAD, u, dy, weight);
}

/* (x, dy) -> dweight; u is the gradient of dweight */
void sglpass_vjp_conv_weight_grad(const sglpass_vjp *v)
{
    geometry geo;
    sglir_id x = sglpass_vjp_arg(v, 0), dy = sglpass_vjp_arg(v, 1), u = v->dys[0];
    read_geometry(v, &geo);
    if (v->wanted[0]) v->into[0] = emit(v, &geo, SGLIR_OP_CONV_INPUT_GRAD, dy, u, x);
    if (v->wanted[1]) v->into[1] = emit(v, &geo, SGLIR_OP_CONV, x, u, SGLIR_NONE);
}
