/* build.c -- the user's door into a graph: broadcasting as NumPy's, promotion as JAX's, both as explicit nodes; axes
 * counted from the end; the -1 of a reshape.
 *
 * In: arguments as a script gives them. Out: nodes whose shapes and dtypes already fit. Odd invariant: a CONSTANT of rank
 * 0 is weak, it takes the dtype of what it meets where its kind allows, as a constant anew (no CAST).
 *
 * Promotion of two dtypes (JAX, "Type promotion semantics"); bool < integers < floats:
 *
 *   same, or one is bool      the other
 *   float and integer         the float
 *   bf16 and f16              f32; otherwise the wider float
 *   f8 and another float      none: cast (f8 are storage, not arithmetic)
 *   i4 and anything but bool  none: cast
 *   both signed, or unsigned  the wider
 *   signed and unsigned       the signed one when it is wider, else the signed one twice as wide as the unsigned
 *
 * A weak constant takes the other's dtype, except a fractional kind with integers or bool: f32, and an integer kind with
 * bool: i32. Ops of floats (exp, mean, ...) make f32 of integers. */
#include <inttypes.h>
#include <string.h>

#include "ir/infer.h"

/* ---- promotion ------------------------------------------------------------------------------------------------ */

static int kind_of(sgl_dtype dtype) { return dtype == SGL_BOOL ? 0 : sglcore_dtype_is_float(dtype) ? 2 : 1; }

static bool is_f8(sgl_dtype dtype) { return dtype == SGL_F8E4M3 || dtype == SGL_F8E5M2; }

static bool promote_floats(sgl_dtype a, sgl_dtype b, sgl_dtype *result)
{
    if (is_f8(a) || is_f8(b)) return false;
    int bits_a = sglcore_dtype_bits(a), bits_b = sglcore_dtype_bits(b);
    *result = bits_a == bits_b ? SGL_F32 : bits_a > bits_b ? a : b; /* equal bits, but not the same: bf16 and f16 */
    return true;
}

static bool promote_integers(sgl_dtype a, sgl_dtype b, sgl_dtype *result)
{
    if (a == SGL_I4 || b == SGL_I4) return false;
    int bits_a = sglcore_dtype_bits(a), bits_b = sglcore_dtype_bits(b);
    if (sglcore_dtype_is_signed(a) == sglcore_dtype_is_signed(b)) {
        *result = bits_a > bits_b ? a : b;
        return true;
    }
    sgl_dtype with_sign = sglcore_dtype_is_signed(a) ? a : b;
    int without = with_sign == a ? bits_b : bits_a;
    if (sglcore_dtype_bits(with_sign) > without)
        *result = with_sign;
    else
        *result = without == 8 ? SGL_I16 : without == 16 ? SGL_I32 : SGL_I64;
    return true;
}

bool sglir_promote(sgl_dtype a, sgl_dtype b, sgl_dtype *result)
{
    if (a == b || b == SGL_BOOL)
        *result = a;
    else if (a == SGL_BOOL)
        *result = b;
    else if (kind_of(a) != kind_of(b)) {
        *result = kind_of(a) == 2 ? a : b;
        return (kind_of(a) == 2 ? b : a) != SGL_I4;
    } else {
        return kind_of(a) == 2 ? promote_floats(a, b, result) : promote_integers(a, b, result);
    }
    return true;
}

static bool is_weak(const sglir_graph *g, sglir_id value)
{
    const sglir_node *node = sglir_maker(g, value);
    return node != NULL && node->op == SGLIR_OP_CONSTANT;
}

static sgl_status join(sglir_graph *g, sglir_op op, sgl_dtype a, sgl_dtype b, sgl_dtype *result)
{
    if (sglir_promote(a, b, result)) return SGL_OK;
    return sglir_fail_here(g, sglir_ops[op].name, "%s and %s have no common dtype; cast one of them", sgl_dtype_name(a),
                           sgl_dtype_name(b));
}

/* The dtype in which arguments first..count-1 meet. */
static sgl_status common_dtype(sglir_graph *g, sglir_op op, const sglir_id *args, int first, int count,
                               sgl_dtype *result)
{
    bool strong = false, weak = false;
    sgl_dtype of_weak = SGL_BOOL;
    for (int i = first; i < count; i++) {
        sgl_dtype mine = (sgl_dtype)sglir_type_of(g, args[i])->dtype;
        bool *seen = is_weak(g, args[i]) ? &weak : &strong;
        sgl_dtype *sum = seen == &weak ? &of_weak : result;
        if (*seen)
            SGLCORE_TRY(join(g, op, *sum, mine, sum));
        else
            *sum = mine;
        *seen = true;
    }
    if (!strong)
        *result = of_weak;
    else if (weak && kind_of(of_weak) > kind_of(*result))
        *result = kind_of(of_weak) == 2 ? SGL_F32 : SGL_I32;
    return SGL_OK;
}

static sglir_id in_dtype(sglir_graph *g, sglir_id x, sgl_dtype dtype)
{
    if (g->status != SGL_OK || sglir_type_of(g, x)->dtype == dtype) return x;
    if (is_weak(g, x)) return sglir_constant(g, dtype, sglir_attr_float(g, sglir_maker(g, x), "value"));
    return sglir_cast(g, x, dtype);
}

static void promote_args(sglir_graph *g, sglir_op op, sglir_id *args, int count)
{
    sglir_infer_fn rule = sglir_infer_rule(op);
    if (rule == sglir_infer_logical || op == SGLIR_OP_CAST) return;
    int first = rule == sglir_infer_select ? 1 : 0;
    sgl_dtype dtype = SGL_F32;
    if (common_dtype(g, op, args, first, count, &dtype) != SGL_OK) return;
    if (rule == sglir_infer_float && kind_of(dtype) < 2) dtype = SGL_F32;
    for (int i = first; i < count; i++) args[i] = in_dtype(g, args[i], dtype);
}

/* ---- broadcasting --------------------------------------------------------------------------------------------- */

static sgl_status common_shape(sglir_graph *g, sglir_op op, const sglir_id *args, int count, sglir_type *shape)
{
    *shape = *sglir_type_of(g, args[0]);
    for (int k = 1; k < count; k++) {
        const sglir_type *next = sglir_type_of(g, args[k]);
        sglir_type joined = next->rank > shape->rank ? *next : *shape;
        for (int i = 1; i <= next->rank && i <= shape->rank; i++) {
            int64_t a = shape->dims[shape->rank - i], b = next->dims[next->rank - i];
            char x[SGLIR_TYPE_ROOM], y[SGLIR_TYPE_ROOM];
            if (a != b && a != 1 && b != 1)
                return sglir_fail_here(g, sglir_ops[op].name, "shapes %s and %s do not broadcast",
                                       sglir_shape_text(shape, x, sizeof x), sglir_shape_text(next, y, sizeof y));
            joined.dims[joined.rank - i] = a == 1 ? b : a;
        }
        *shape = joined;
    }
    return SGL_OK;
}

static void broadcast_args(sglir_graph *g, sglir_op op, sglir_id *args, int count)
{
    sglir_type shape;
    if (g->status != SGL_OK || common_shape(g, op, args, count, &shape) != SGL_OK) return;
    int8_t split[SGLIR_AXIS_COUNT]; /* as those arguments are split that have the whole shape already */
    memset(split, -1, sizeof split);
    for (int i = 0; i < count; i++) {
        const sglir_type *type = sglir_type_of(g, args[i]);
        for (int axis = 0; axis < SGLIR_AXIS_COUNT && sglir_same_shape(type, &shape); axis++) {
            if (type->sharded[axis] >= 0) split[axis] = type->sharded[axis];
        }
    }
    for (int i = 0; i < count; i++) args[i] = sglir_broadcast_split(g, args[i], shape.rank, shape.dims, split);
}

/* ---- attributes as a script writes them ----------------------------------------------------------------------- */

enum { MOST_LISTS = 2 };

/* Attributes put right, in storage of their own. */
typedef struct tidy {
    sglir_named attrs[SGLIR_MOST_ATTRS];
    int count;
    int64_t lists[MOST_LISTS][SGL_MAX_RANK];
    int list_count;
} tidy;

static sglir_named *find(tidy *t, const char *name)
{
    for (int i = 0; i < t->count; i++) {
        if (t->attrs[i].name != NULL && strcmp(t->attrs[i].name, name) == 0) return &t->attrs[i];
    }
    return NULL;
}

/* The list copied to where it may be changed; NULL when it is absent, empty or longer than any valid one. */
static int64_t *own_list(tidy *t, sglir_named *attr)
{
    if (attr == NULL || attr->kind != 'I' || attr->i <= 0 || attr->i > SGL_MAX_RANK || attr->ints == NULL) return NULL;
    int64_t *list = t->lists[t->list_count++];
    memcpy(list, attr->ints, (size_t)attr->i * sizeof *list);
    attr->ints = list;
    return list;
}

static void from_the_end(int64_t *axis, int rank)
{
    if (*axis < 0 && *axis >= -rank) *axis += rank;
}

static void sort(int64_t *list, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        for (int64_t k = i; k > 0 && list[k - 1] > list[k]; k--) {
            int64_t swap = list[k];
            list[k] = list[k - 1];
            list[k - 1] = swap;
        }
    }
}

static void tidy_axes(tidy *t, sglir_op op, int rank)
{
    static const int64_t all[SGL_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    sglir_named *axis = find(t, "axis"), *axes = find(t, "axes"), *order = find(t, "order");
    if (axis != NULL && axis->kind == 'i') from_the_end(&axis->i, rank);
    int64_t *list = own_list(t, axes);
    for (int64_t i = 0; list != NULL && i < axes->i; i++) from_the_end(&list[i], rank);
    if (list != NULL) sort(list, axes->i);
    if (axes == NULL && sglir_infer_rule(op) == sglir_infer_reduce && t->count < SGLIR_MOST_ATTRS)
        t->attrs[t->count++] = SGLIR_INTS("axes", rank, all);
    list = own_list(t, order);
    for (int64_t i = 0; list != NULL && i < order->i; i++) from_the_end(&list[i], rank);
}

/* One dim of -1 takes what the others leave; what cannot be divided is left for the rule to refuse. */
static void tidy_dims(tidy *t, const sglir_type *x)
{
    sglir_named *dims = find(t, "dims");
    int64_t *list = own_list(t, dims);
    if (list == NULL) return;
    int64_t known = 1, *open = NULL;
    for (int64_t i = 0; i < dims->i; i++) {
        if (list[i] == -1 && open == NULL)
            open = &list[i];
        else if (list[i] < 0 || __builtin_mul_overflow(known, list[i], &known))
            return;
    }
    int64_t total = sglir_elements(x);
    if (open != NULL && known > 0 && total % known == 0) *open = total / known;
}

static sglir_id build_other(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                            int attr_count, sglir_id *out)
{
    if (attr_count > SGLIR_MOST_ATTRS) return sglir_emit(g, op, args, arg_count, attrs, attr_count, out);
    tidy t = { .count = attr_count };
    for (int i = 0; i < attr_count; i++) t.attrs[i] = attrs[i];
    const sglir_named *dims = find(&t, "dims");
    int rank = arg_count > 0 ? sglir_type_of(g, args[0])->rank : dims != NULL ? (int)dims->i : 0;
    tidy_axes(&t, op, rank);
    sglir_id x = arg_count > 0 ? args[0] : SGLIR_NONE;
    bool of_floats = op == SGLIR_OP_MEAN || op == SGLIR_OP_LOGSUMEXP;
    if (of_floats && arg_count == 1 && kind_of((sgl_dtype)sglir_type_of(g, x)->dtype) < 2) {
        x = sglir_cast(g, x, SGL_F32);
        args = &x;
    }
    if (op == SGLIR_OP_RESHAPE && arg_count > 0) tidy_dims(&t, sglir_type_of(g, args[0]));
    return sglir_emit(g, op, args, arg_count, t.attrs, t.count, out);
}

sglir_id sglir_build(sglir_graph *g, sglir_op op, const sglir_id *args, int arg_count, const sglir_named *attrs,
                     int attr_count, sglir_id *out)
{
    bool sound = g->status == SGL_OK && (unsigned)op < SGLIR_OP_COUNT;
    for (int i = 0; i < arg_count && sound; i++) sound = sglir_visible(g, args[i]);
    if (!sound) return sglir_emit(g, op, args, arg_count, attrs, attr_count, out); /* says what is wrong */
    const sglir_op_row *row = &sglir_ops[op];
    bool elementwise = (row->flags & SGLIR_ELEMENTWISE) != 0 && op != SGLIR_OP_ACCUMULATE;
    if (!elementwise || arg_count < row->minimum || arg_count > row->maximum)
        return build_other(g, op, args, arg_count, attrs, attr_count, out);
    sglir_id fitting[3];
    for (int i = 0; i < arg_count; i++) fitting[i] = args[i];
    promote_args(g, op, fitting, arg_count);
    broadcast_args(g, op, fitting, arg_count);
    return sglir_emit(g, op, fitting, arg_count, attrs, attr_count, out);
}
