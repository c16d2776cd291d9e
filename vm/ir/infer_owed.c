/* infer_owed.c -- what arguments owe (partial sums, a loss scale) and how they are split over the mesh, carried over to
 * the results of any op.
 *
 * In: argument types, whole result types, the columns linear and labels, the attribute layout. Out: the same result types
 * with their owed parts, or an error that says what is owed and why the op cannot take it. This is the place where "who
 * divides by what" fails to type-check. Odd invariant: regions, exchanges, input, accumulate, after, scale and unscale
 * say their types themselves. */
#include <string.h>

#include "ir/infer.h"

/* What a value owes: a bit per axis, and one for the scale. */
enum { SCALED = 1 << SGLIR_AXIS_COUNT };

static unsigned owed_by(const sglir_type *type)
{
    return (unsigned)type->partial | (type->scaled ? (unsigned)SCALED : 0);
}

/* "a sum over tp, micro and a loss scale" */
static const char *owed_text(unsigned owed, char *text, size_t size)
{
    const char *before = "a sum over ";
    text[0] = '\0';
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        if ((owed >> axis & 1) == 0) continue;
        strncat(text, before, size - strlen(text) - 1);
        strncat(text, sglir_axis_name(axis), size - strlen(text) - 1);
        before = ", ";
    }
    if (owed & SCALED) strncat(text, before[0] == ',' ? " and a loss scale" : "a loss scale", size - strlen(text) - 1);
    if (owed == 0) strncat(text, "nothing", size - strlen(text) - 1);
    return text;
}

/* ---- linearity ------------------------------------------------------------------------------------------------ */

/* Ops that are linear only with some of their attributes. */
static bool is_linear_here(const sglir_infer *in)
{
    if (in->op == SGLIR_OP_PAD || in->op == SGLIR_OP_WINDOWS) return sglir_infer_attr(in, "value")->f == 0;
    if (in->op == SGLIR_OP_CAST) return sglcore_dtype_is_float((sgl_dtype)sglir_infer_int(in, "to"));
    return true;
}

static bool is_zero(const sglir_infer *in, int i)
{
    double value;
    return sglir_constant_value(in->g, in->args[i], &value) && value == 0;
}

/* Whether the arguments of the group all owe `owed`, and the others nothing. */
static bool group_fits(const sglir_infer *in, const char *group, unsigned owed)
{
    for (int i = 0; i < in->arg_count; i++) {
        unsigned mine = owed_by(sglir_infer_arg(in, i));
        if (!sglir_linear_has(group, (uint32_t)i)) {
            if (mine != 0) return false;
        } else if (mine != owed && !(mine == 0 && is_zero(in, i))) {
            return false;
        }
    }
    return true;
}

/* Says what is wrong about argument `first`, the first that owes something. */
static sgl_status refuse_owed(const sglir_infer *in, int first)
{
    unsigned owed = owed_by(sglir_infer_arg(in, first));
    char a[160], b[160];
    owed_text(owed, a, sizeof a);
    for (const char *group = sglir_ops[in->op].linear; *group && is_linear_here(in); group = sglir_linear_next(group)) {
        for (int i = 0; i < in->arg_count && sglir_linear_has(group, (uint32_t)first); i++) {
            unsigned other = owed_by(sglir_infer_arg(in, i));
            owed_text(other, b, sizeof b);
            if (!sglir_linear_has(group, (uint32_t)i) && other != 0)
                return sglir_infer_fail(in,
                                        "argument %d still owes %s; argument %d owes %s: a product of two sums is not "
                                        "the sum of products",
                                        first, a, i, b);
            if (sglir_linear_has(group, (uint32_t)i) && other != owed && !(other == 0 && is_zero(in, i)))
                return sglir_infer_fail(in, "argument %d still owes %s; argument %d owes %s: they must owe the same",
                                        first, a, i, b);
        }
    }
    return sglir_infer_fail(in, "argument %d still owes %s; %s is not linear in it, so that must be settled before",
                            first, a, in->name);
}

/* The gradient of the fused vocabulary loss gives the losses too: these are not linear in what comes in, all else is. */
static bool is_scaled_loss_gradient(const sglir_infer *in, int first, unsigned owed)
{
    return in->op == SGLIR_OP_LINEAR_CROSS_ENTROPY_GRAD && first == 3 && owed == SCALED;
}

/* grad takes what is derived scaled, whole but for that, and gives gradients that owe the same scale. */
static sgl_status carry_grad(const sglir_infer *in)
{
    for (int i = 0; i < in->arg_count; i++) {
        unsigned owed = owed_by(sglir_infer_arg(in, i));
        if (owed != 0 && (i > 0 || owed != SCALED)) return refuse_owed(in, i);
    }
    return SGL_OK;
}

/* Each argument that owes stands in a group of its own, and none owes what another does: a sum over one axis times a sum
 * over another is the sum over both of the products, since each factor is the same along the other's axis. */
static bool owes_apart(const sglir_infer *in, unsigned *owed)
{
    const char *linear = sglir_ops[in->op].linear;
    bool apart = linear[0] != '\0' && is_linear_here(in);
    *owed = 0;
    for (int i = 0; linear[i] != '\0' && apart; i++) apart = i % 2 == 0 ? linear[i] != '*' : linear[i] == '|';
    for (int i = 0; i < in->arg_count && apart; i++) {
        unsigned mine = owed_by(sglir_infer_arg(in, i));
        apart = (*owed & mine) == 0 && (mine == 0 || strchr(linear, '0' + i) != NULL);
        *owed |= mine;
    }
    return apart;
}

static sgl_status carry_owed(const sglir_infer *in)
{
    int first = 0;
    while (first < in->arg_count && owed_by(sglir_infer_arg(in, first)) == 0) first++;
    if (first == in->arg_count) return SGL_OK;
    unsigned owed = owed_by(sglir_infer_arg(in, first));
    if (is_scaled_loss_gradient(in, first, owed)) {
        in->results[1].scaled = in->results[2].scaled = 1;
        return SGL_OK;
    }
    bool fits = false;
    for (const char *group = sglir_ops[in->op].linear; *group && !fits && is_linear_here(in);
         group = sglir_linear_next(group))
        fits = group_fits(in, group, owed);
    if (!fits && !owes_apart(in, &owed)) return refuse_owed(in, first);
    for (int i = 0; i < *in->count; i++) {
        in->results[i].partial = (uint8_t)(owed & (SCALED - 1));
        in->results[i].scaled = (owed & SCALED) != 0;
    }
    return SGL_OK;
}

/* ---- how arguments are split ---------------------------------------------------------------------------------- */

/* The label along which the op runs when its arguments are split over `axis` as they are; -1 when none is split. */
static sgl_status label_over(const sglir_infer *in, const sglir_labels *labels, int axis, int *label)
{
    *label = -1;
    int first = -1;
    for (int i = 0; i < in->arg_count; i++) {
        int dim = sglir_infer_arg(in, i)->sharded[axis];
        if (dim < 0) continue;
        int mine = labels->args[i][dim];
        if (mine < 0 || (labels->refused >> mine & 1) != 0)
            return sglir_infer_fail(in, "argument %d is split over %s along dimension %d, where the op needs it whole",
                                    i, sglir_axis_name(axis), dim);
        if (*label >= 0 && mine != *label)
            return sglir_infer_fail(in,
                                    "arguments %d and %d are split over %s along dimensions that do not run together",
                                    first, i, sglir_axis_name(axis));
        *label = mine;
        first = i;
    }
    return SGL_OK;
}

static sgl_status split_results(const sglir_infer *in, const sglir_labels *labels, int axis, int label)
{
    for (int r = 0; r < *in->count; r++) {
        sglir_type *result = &in->results[r];
        for (int dim = 0; dim < result->rank; dim++) {
            if (labels->results[r][dim] == label) result->sharded[axis] = (int8_t)dim;
        }
        if (result->sharded[axis] >= 0) continue;
        if ((labels->summed >> label & 1) == 0)
            return sglir_infer_fail(in, "result %d would differ along %s, but has no dimension that is split over it",
                                    r, sglir_axis_name(axis));
        result->partial = (uint8_t)(result->partial | 1u << axis);
    }
    return SGL_OK;
}

/* Concat has any number of arguments: its dimensions run together, but for the one that it joins. */
static sgl_status split_concat(const sglir_infer *in, int axis)
{
    int joined = (int)sglir_infer_int(in, "axis");
    for (int i = 0; i < in->arg_count; i++) {
        int dim = sglir_infer_arg(in, i)->sharded[axis];
        if (dim < 0) continue;
        if (dim == joined || (in->results[0].sharded[axis] >= 0 && in->results[0].sharded[axis] != dim))
            return sglir_infer_fail(in, "argument %d is split over %s along dimension %d, where the op needs it whole",
                                    i, sglir_axis_name(axis), dim);
        in->results[0].sharded[axis] = (int8_t)dim;
    }
    return SGL_OK;
}

/* A micro-batch's part of x that dynamic_update writes where it belongs: the result is as whole over micro as x, and split
 * over ranks as both are. */
static bool is_part_written_back(const sglir_infer *in, int axis)
{
    if (in->op != SGLIR_OP_DYNAMIC_UPDATE) return false;
    const sglir_type *x = sglir_infer_arg(in, 0), *part = sglir_infer_arg(in, 1);
    int cut = (int)sglir_infer_int(in, "axis");
    if (part->sharded[SGLIR_AXIS_MICRO] != cut || x->sharded[SGLIR_AXIS_MICRO] >= 0) return false;
    if (axis == SGLIR_AXIS_MICRO) return true;
    if (x->sharded[axis] != cut || part->sharded[axis] != cut) return false;
    in->results[0].sharded[axis] = (int8_t)cut;
    return true;
}

/* A slice that hands out parts of what is one part of `axis` already: what is left stays one of it. */
static bool is_cut_further(const sglir_infer *in, int axis)
{
    if (in->op != SGLIR_OP_DYNAMIC_SLICE) return false;
    const sglir_named *layout = sglir_infer_attr(in, "layout");
    int cut = (int)sglir_infer_int(in, "axis");
    bool hands_out = false;
    for (int64_t i = 0; i < layout->i; i++) hands_out = hands_out || (i != axis && layout->ints[i] == cut);
    if (!hands_out || sglir_infer_arg(in, 0)->sharded[axis] != cut) return false;
    in->results[0].sharded[axis] = (int8_t)cut;
    return true;
}

static int first_split(const sglir_infer *in, int axis)
{
    for (int i = 0; i < in->arg_count; i++) {
        if (sglir_infer_arg(in, i)->sharded[axis] >= 0) return i;
    }
    return -1;
}

static bool view_of(const sglir_infer *in, sglir_view *view)
{
    if (in->arg_count > SGLIR_MOST_ARGS || *in->count > SGLIR_MOST_RESULTS) return false;
    *view = (sglir_view){ .op = in->op,
                          .arg_count = in->arg_count,
                          .result_count = *in->count,
                          .attrs = in->attrs,
                          .attr_count = in->attr_count };
    for (int i = 0; i < in->arg_count; i++) view->args[i] = sglir_infer_arg(in, i);
    for (int i = 0; i < *in->count; i++) view->results[i] = &in->results[i];
    return true;
}

/* The op runs over parts that its labels refuse (beyond.c), of which the pass shard has seen to the rest. */
static bool runs_beyond(const sglir_infer *in, int axis)
{
    sglir_view view;
    sglir_beyond beyond;
    if (axis == SGLIR_AXIS_MICRO || !view_of(in, &view)) return false;
    if (!sglir_beyond_of_view(&view, sglir_infer_arg(in, 0)->sharded[axis], &beyond)) return false;
    if (beyond.extreme && sglir_infer_int(in, "keep") == 0) return false;
    for (int i = 0; i < in->arg_count; i++) {
        if (sglir_infer_arg(in, i)->sharded[axis] != beyond.args[i]) return false;
    }
    for (int r = 0; r < *in->count; r++) {
        if (beyond.results[r] >= 0) in->results[r].sharded[axis] = beyond.results[r];
        if (beyond.results[r] == SGLIR_PARTIAL) in->results[r].partial = (uint8_t)(in->results[r].partial | 1u << axis);
    }
    return true;
}

static bool is_whole(const sglir_type *type)
{
    static const int8_t whole[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return memcmp(type->sharded, whole, sizeof whole) == 0;
}

static sgl_status carry_split(const sglir_infer *in)
{
    sglir_labels labels;
    bool labelled = false, whole = true;
    for (int i = 0; i < in->arg_count && whole; i++) whole = is_whole(sglir_infer_arg(in, i));
    if (whole) return SGL_OK;
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int split = first_split(in, axis), label;
        if (split < 0) continue;
        for (int i = 0; i < in->arg_count; i++) {
            if (sglir_infer_arg(in, i)->partial >> axis & 1)
                return sglir_infer_fail(in,
                                        "argument %d still owes a sum over %s, argument %d is split over it: the sum "
                                        "must be taken before",
                                        i, sglir_axis_name(axis), split);
        }
        if (in->op == SGLIR_OP_CONCAT) {
            SGLCORE_TRY(split_concat(in, axis));
            continue;
        }
        if (is_part_written_back(in, axis) || is_cut_further(in, axis) || runs_beyond(in, axis)) continue;
        sglir_view view;
        if (!labelled && (!view_of(in, &view) || !sglir_labels_of_view(&view, &labels)))
            return sglir_infer_fail(in, "argument %d is split over %s; the op takes whole values: gather it first",
                                    split, sglir_axis_name(axis));
        labelled = true;
        SGLCORE_TRY(label_over(in, &labels, axis, &label));
        SGLCORE_TRY(split_results(in, &labels, axis, label));
    }
    return SGL_OK;
}

/* ---- the attribute layout ------------------------------------------------------------------------------------- */

/* Whether the op makes dimension `dim` of its result itself, so that layout may say how it is split. */
static bool is_own_dim(const sglir_infer *in, int axis, int dim)
{
    const sglir_type *result = &in->results[0];
    if (in->arg_count == 0 || in->op == SGLIR_OP_RANDOM_UNIFORM || in->op == SGLIR_OP_RANDOM_NORMAL) return true;
    const sglir_type *x = sglir_infer_arg(in, 0);
    if (in->op == SGLIR_OP_RESHAPE) return x->sharded[axis] >= 0; /* only tells which */
    if (in->op == SGLIR_OP_DYNAMIC_SLICE) return dim == (int)sglir_infer_int(in, "axis");
    int of_x = dim - (result->rank - x->rank); /* broadcast */
    return of_x < 0 || x->dims[of_x] == 1;
}

static sgl_status apply_layout(const sglir_infer *in)
{
    const sglir_named *layout = NULL;
    for (int i = 0; i < in->attr_count && layout == NULL; i++) {
        if (strcmp(in->attrs[i].name, "layout") == 0) layout = &in->attrs[i];
    }
    if (layout == NULL || layout->i == 0) return SGL_OK;
    if (layout->i != SGLIR_AXIS_COUNT)
        return sglir_infer_fail(in, "layout has %d entries, one for each of the %d axes is needed", (int)layout->i,
                                SGLIR_AXIS_COUNT);
    sglir_type *result = &in->results[0];
    for (int axis = 0; axis < SGLIR_AXIS_COUNT; axis++) {
        int64_t dim = layout->ints[axis];
        if (dim == -1 || dim == result->sharded[axis]) continue;
        if (dim < -1 || dim >= result->rank)
            return sglir_infer_fail(in, "layout splits dimension %d of %d", (int)dim, result->rank);
        if (!is_own_dim(in, axis, (int)dim) || (result->sharded[axis] >= 0 && in->op != SGLIR_OP_RESHAPE))
            return sglir_infer_fail(in, "layout splits dimension %d over %s, but that follows from the arguments",
                                    (int)dim, sglir_axis_name(axis));
        if (result->partial >> axis & 1)
            return sglir_infer_fail(in, "layout splits over %s what still owes a sum over it", sglir_axis_name(axis));
        result->sharded[axis] = (int8_t)dim;
    }
    return SGL_OK;
}

sgl_status sglir_infer_owed(const sglir_infer *in)
{
    if ((sglir_ops[in->op].flags & (SGLIR_REGION | SGLIR_EXCHANGE)) != 0 || in->op == SGLIR_OP_INPUT ||
        in->op == SGLIR_OP_ACCUMULATE || in->op == SGLIR_OP_SCALE || in->op == SGLIR_OP_UNSCALE ||
        in->op == SGLIR_OP_AFTER || sglir_is_wait(in->op) || sglir_is_move(in->op) || in->op == SGLIR_OP_TERMS ||
        in->op == SGLIR_OP_DECLARE)
        return SGL_OK;
    SGLCORE_TRY(in->op == SGLIR_OP_GRAD ? carry_grad(in) : carry_owed(in));
    SGLCORE_TRY(carry_split(in));
    return apply_layout(in);
}
