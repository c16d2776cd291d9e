/* infer.h -- inside the room: how sglir_emit meets the rules of ops.def for types and labels.
 *
 * An inference rule (column infer) fills `results` (their count in *count, which arrives as the row's number) with whole
 * types, or fails through sglir_infer_fail, with a message that says the shapes. Attributes arrive in the schema's order,
 * defaults filled in. What is owed and how dimensions are split is then worked out in one place, sglir_infer_owed, from
 * the columns linear and labels. No rule may make the graph grow: types are read through pointers into it. */
#ifndef SGLIR_INFER_H
#define SGLIR_INFER_H

#include "ir/ir.h"

/* ---- schemas of attributes ----------------------------------------------------------------------------------- */

/* One entry of a schema: "keep:b=0". name and value are not terminated; value NULL: the attribute is demanded. */
typedef struct sglir_schema_item {
    const char *name;
    int name_length;
    char kind;
    const char *value;
    int value_length;
} sglir_schema_item;

/* Steps through a schema; *at starts as the row's text. False at its end. */
bool sglir_schema_step(const char **at, sglir_schema_item *entry);

/* ---- inference ------------------------------------------------------------------------------------------------ */

typedef struct sglir_infer {
    sglir_graph *g;
    sglir_op op;
    const char *name; /* of the op, for messages */
    const sglir_id *args;
    int arg_count;
    const sglir_named *attrs; /* complete, schema order */
    int attr_count;
    const sglir_id *regions;
    int region_count;
    sglir_type *results; /* room for `capacity` */
    int *count;
    int capacity;
} sglir_infer;

typedef sgl_status (*sglir_infer_fn)(const sglir_infer *in);

#define SGLIR_OP(NAME, text, minimum, maximum, results, flags, linear, attrs, infer, ...)                              \
    sgl_status sglir_infer_##infer(const sglir_infer *in);
#include "ir/ops.def"
#undef SGLIR_OP

sglir_infer_fn sglir_infer_rule(sglir_op op);

/* What arguments owe and how they are split, carried over to the results; refuses what is not linear or not local. */
sgl_status sglir_infer_owed(const sglir_infer *in);

/* For rules. */
const sglir_type *sglir_infer_arg(const sglir_infer *in, int i);
sglir_type sglir_infer_whole(const sglir_infer *in, int i); /* type of argument i, nothing split, nothing owed */
const sglir_named *sglir_infer_attr(const sglir_infer *in, const char *name); /* asserted to be in the schema */
int64_t sglir_infer_int(const sglir_infer *in, const char *name);
sgl_status sglir_infer_fail(const sglir_infer *in, const char *format, ...) SGL_PRINTF(2, 3);

/* Checks that fail with a message. */
sgl_status sglir_infer_axis(const sglir_infer *in, int64_t axis, int rank);
/* Of the attribute axes: each among 0..rank-1 and in ascending order; a bit for each. */
sgl_status sglir_infer_axes(const sglir_infer *in, int rank, unsigned *axes);
sgl_status sglir_infer_same_dtype(const sglir_infer *in, int first, int last);
sgl_status sglir_infer_same_shape(const sglir_infer *in, int first, int last);
sgl_status sglir_infer_is_float(const sglir_infer *in, int i);
sgl_status sglir_infer_is_index(const sglir_infer *in, int i); /* an integer */
sgl_status sglir_infer_is_scalar_i64(const sglir_infer *in, int i, const char *what);
sgl_status sglir_infer_rank(const sglir_infer *in, int i, int rank, const char *form); /* form: "[b, t, h, d]" */
/* Makes `type` from a list attribute of dims. */
/* The type that attributes say: dtype, dims, layout, partial, scaled. */
sgl_status sglir_infer_made(const sglir_infer *in);
sgl_status sglir_infer_dims(const sglir_infer *in, sgl_dtype dtype, const sglir_named *dims, sglir_type *type);

static inline bool sglir_dtype_is_integer(sgl_dtype dtype)
{
    return dtype != SGL_BOOL && !sglcore_dtype_is_float(dtype);
}
/* f64 stays, every other float is f32: the dtype in which composites compute. */
static inline sgl_dtype sglir_wide_float(sgl_dtype dtype) { return dtype == SGL_F64 ? SGL_F64 : SGL_F32; }
/* Whether an integer or bool dtype can hold the number; true for floats. */
bool sglir_dtype_holds(sgl_dtype dtype, double value);
/* JAX's promotion lattice; false where there is no implicit way. */
bool sglir_promote(sgl_dtype a, sgl_dtype b, sgl_dtype *result);

/* ---- labels --------------------------------------------------------------------------------------------------- */

/* A node as the label rules see it: there (sglir_labels_of) or about to be (sglir_infer_owed). */
typedef struct sglir_view {
    sglir_op op;
    int arg_count, result_count;
    const sglir_type *args[SGLIR_MOST_ARGS];
    const sglir_type *results[SGLIR_MOST_RESULTS];
    const sglir_named *attrs;
    int attr_count;
} sglir_view;

/* Of a node that is there, with its attributes in `named`; false where it is too large for a view. */
bool sglir_view_of(const sglir_graph *g, const sglir_node *node, sglir_named named[SGLIR_MOST_ATTRS], sglir_view *view);
/* As sglir_beyond_of. */
bool sglir_beyond_of_view(const sglir_view *view, int dim, sglir_beyond *beyond);

typedef bool (*sglir_labels_fn)(const sglir_view *view, sglir_labels *labels);
/* As sglir_labels_of. */
bool sglir_labels_of_view(const sglir_view *view, sglir_labels *labels);

/* ---- building ------------------------------------------------------------------------------------------------- */

/* Records the failure with the origin before it and makes the graph's status stick. op NULL: no op is named. */
sgl_status sglir_fail_v(sglir_graph *g, sgl_status status, const char *op, const char *format, va_list arguments);
/* Broadcast whose new dimensions are split as `split` (an array as sglir_type.sharded, or NULL) says. */
sglir_id sglir_broadcast_split(sglir_graph *g, sglir_id x, int rank, const int64_t *dims, const int8_t *split);
/* Reshape in which dimension i of x becomes part, or the lead, of dimension map[i] of the result (-1: nothing is said):
 * that tells how the result is split where local extents of 1 do not. */
sglir_id sglir_reshape_mapped(sglir_graph *g, sglir_id x, int rank, const int64_t *dims, const int8_t *map);
/* An argument that is not SGLIR_NONE but no value yet, or of a closed region, is refused by sglir_emit. */
bool sglir_visible(const sglir_graph *g, sglir_id value);

#endif
