/* infer_control.c -- result types at the borders of a graph and of its regions: input, grad, loops, branches, kernels.
 *
 * In: attributes, argument types, closed regions. Out: types. Odd invariant: a region's types are taken as they are, with
 * all that they owe, because its nodes were already checked one by one. */
#include <inttypes.h>

#include "ir/infer.h"

sgl_status sglir_infer_made(const sglir_infer *in)
{
    const sglir_named *layout = sglir_infer_attr(in, "layout");
    int64_t partial = sglir_infer_int(in, "partial");
    sglir_type *result = &in->results[0];
    SGLCORE_TRY(sglir_infer_dims(in, (sgl_dtype)sglir_infer_int(in, "dtype"), sglir_infer_attr(in, "dims"), result));
    if (partial < 0 || partial >> SGLIR_AXIS_COUNT != 0)
        return sglir_infer_fail(in, "partial is %" PRId64 ": a bit for each of the %d axes is needed", partial,
                                SGLIR_AXIS_COUNT);
    if (layout->i != 0 && layout->i != SGLIR_AXIS_COUNT)
        return sglir_infer_fail(in, "layout has %" PRId64 " entries, one for each of the %d axes is needed", layout->i,
                                SGLIR_AXIS_COUNT);
    for (int64_t axis = 0; axis < layout->i; axis++) {
        if (layout->ints[axis] < -1 || layout->ints[axis] >= result->rank)
            return sglir_infer_fail(in, "layout splits dimension %" PRId64 " of %d", layout->ints[axis], result->rank);
        if (layout->ints[axis] >= 0 && (partial >> axis & 1) != 0)
            return sglir_infer_fail(in, "both split and partial over %s", sglir_axis_name((int)axis));
        result->sharded[axis] = (int8_t)layout->ints[axis];
    }
    result->partial = (uint8_t)partial;
    result->scaled = (uint8_t)sglir_infer_int(in, "scaled");
    return SGL_OK;
}

sgl_status sglir_infer_input(const sglir_infer *in)
{
    int64_t role = sglir_infer_int(in, "role");
    if (sglir_infer_attr(in, "name")->s[0] == '\0') return sglir_infer_fail(in, "an input needs a name");
    if (role < SGL_PARAMETER || role > SGL_CACHE) return sglir_infer_fail(in, "there is no role %" PRId64, role);
    bool named_so = sglir_infer_attr(in, "name")->s[0] == '~', made = sglir_infer_int(in, "made") != 0;
    if (made && (role != SGL_STATE || !named_so))
        return sglir_infer_fail(in, "what a pass makes is a state whose name begins with ~");
    if (sglir_infer_int(in, "home") < SGLIR_HOME_ALL)
        return sglir_infer_fail(in, "there is no home %" PRId64, sglir_infer_int(in, "home"));
    if (named_so && !made) return sglir_infer_fail(in, "names that begin with ~ are those of states that passes make");
    return sglir_infer_made(in);
}

sgl_status sglir_infer_grad(const sglir_infer *in)
{
    const sglir_type *of = sglir_infer_arg(in, 0);
    char text[SGLIR_TYPE_ROOM];
    if (of->rank != 0 || !sglcore_dtype_is_float((sgl_dtype)of->dtype))
        return sglir_infer_fail(in, "of %s: what is derived must be a float scalar; sum it first",
                                sglir_type_text(of, text, sizeof text));
    for (int i = 1; i < in->arg_count; i++) {
        SGLCORE_TRY(sglir_infer_is_float(in, i));
        in->results[i - 1] = sglir_infer_whole(in, i);
        in->results[i - 1].scaled = of->scaled;
    }
    *in->count = in->arg_count - 1;
    return SGL_OK;
}

/* ---- the loss scale ------------------------------------------------------------------------------------------- */

/* x and its scale, a number of the same dtype that owes nothing itself. */
static sgl_status check_scale(const sglir_infer *in)
{
    const sglir_type *scale = sglir_infer_arg(in, 1);
    char text[SGLIR_TYPE_ROOM];
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    SGLCORE_TRY(sglir_infer_same_dtype(in, 0, 1));
    if (scale->rank != 0 || scale->scaled != 0 || scale->partial != 0)
        return sglir_infer_fail(in, "the scale is %s; one number is needed that owes nothing",
                                sglir_type_text(scale, text, sizeof text));
    in->results[0] = *sglir_infer_arg(in, 0);
    return SGL_OK;
}

sgl_status sglir_infer_scale(const sglir_infer *in)
{
    SGLCORE_TRY(check_scale(in));
    if (in->results[0].scaled) return sglir_infer_fail(in, "argument 0 owes a loss scale already: unscale it first");
    in->results[0].scaled = 1;
    return SGL_OK;
}

sgl_status sglir_infer_unscale(const sglir_infer *in)
{
    double value;
    SGLCORE_TRY(check_scale(in));
    bool is_zero = sglir_constant_value(in->g, in->args[0], &value) && value == 0;
    if (!in->results[0].scaled && !is_zero)
        return sglir_infer_fail(in, "argument 0 owes no loss scale: it was unscaled before, or never scaled");
    in->results[0].scaled = 0;
    return SGL_OK;
}

sgl_status sglir_infer_update_number(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_is_scalar_i64(in, 0, "step"));
    return sglir_infer_same(in);
}

/* ---- custom derivatives --------------------------------------------------------------------------------------- */

sgl_status sglir_infer_custom_seed(const sglir_infer *in)
{
    SGLCORE_TRY(sglir_infer_is_float(in, 0));
    in->results[0] = sglir_infer_whole(in, 0);
    return SGL_OK;
}

/* (y..., x..., g..., seeds...): as many seeds as y, as many g as x; each g has the type of its x. */
sgl_status sglir_infer_custom(const sglir_infer *in)
{
    int64_t results = sglir_infer_int(in, "results"), rest = in->arg_count - 2 * results;
    if (results < 1 || rest < 2 || rest % 2 != 0)
        return sglir_infer_fail(in, "%d arguments are not %" PRId64 " results, inputs, a gradient of each, and seeds",
                                in->arg_count, results);
    int inputs = (int)rest / 2, first = (int)results, seeds = first + 2 * inputs;
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    for (int k = 0; k < first; k++) {
        const sglir_node *maker = sglir_maker(in->g, in->args[seeds + k]);
        if (maker == NULL || maker->op != SGLIR_OP_CUSTOM_SEED ||
            !sglir_type_equal(sglir_infer_arg(in, seeds + k), sglir_infer_arg(in, k)))
            return sglir_infer_fail(in, "argument %d is no seed of result %d", seeds + k, k);
        in->results[k] = sglir_infer_whole(in, k);
    }
    for (int i = 0; i < inputs; i++) {
        const sglir_type *x = sglir_infer_arg(in, first + i), *dx = sglir_infer_arg(in, first + inputs + i);
        SGLCORE_TRY(sglir_infer_is_float(in, first + i));
        if (x->dtype != dx->dtype || !sglir_same_shape(x, dx))
            return sglir_infer_fail(in, "its gradient %d is %s, and the input is %s", i,
                                    sglir_type_text(dx, a, sizeof a), sglir_type_text(x, b, sizeof b));
    }
    *in->count = first;
    return SGL_OK;
}

/* ---- regions -------------------------------------------------------------------------------------------------- */

static sgl_status check_regions(const sglir_infer *in)
{
    int count = sglir_region_count(in->op);
    if (in->region_count == count) return SGL_OK;
    return sglir_infer_fail(in, "holds %s, not %d", count == 1 ? "one region" : "two regions", in->region_count);
}

static const sglir_region *region_at(const sglir_infer *in, int i) { return &in->g->regions.data[in->regions[i]]; }

static sgl_status must_equal(const sglir_infer *in, const char *what, int i, const sglir_type *have,
                             const sglir_type *want)
{
    char a[SGLIR_TYPE_ROOM], b[SGLIR_TYPE_ROOM];
    if (sglir_type_equal(have, want)) return SGL_OK;
    return sglir_infer_fail(in, "%s %d is %s, %s is needed", what, i, sglir_type_text(have, a, sizeof a),
                            sglir_type_text(want, b, sizeof b));
}

/* The parameters of a loop's region: (index, carries). */
static sgl_status check_parameters(const sglir_infer *in, const sglir_region *region, int64_t results)
{
    if (region->parameters.count != in->arg_count + 1 || region->results.count != results)
        return sglir_infer_fail(in,
                                "%d carries need a region of (index, carries) that yields %s, not one with %" PRId64
                                " parameters and %" PRId64 " results",
                                in->arg_count, results == in->arg_count ? "the carries" : "a bool",
                                region->parameters.count, region->results.count);
    const sglir_type index = sglir_type_make(SGL_I64, 0, NULL);
    SGLCORE_TRY(must_equal(in, "parameter", 0, sglir_type_of(in->g, region->parameters.data[0]), &index));
    for (int i = 0; i < in->arg_count; i++)
        SGLCORE_TRY(must_equal(in, "parameter", i + 1, sglir_type_of(in->g, region->parameters.data[i + 1]),
                               sglir_infer_arg(in, i)));
    return SGL_OK;
}

static sgl_status infer_loop(const sglir_infer *in, const sglir_region *body)
{
    SGLCORE_TRY(check_parameters(in, body, in->arg_count));
    for (int i = 0; i < in->arg_count; i++) {
        const sglir_type *carry = sglir_infer_arg(in, i);
        SGLCORE_TRY(must_equal(in, "what is yielded as carry", i, sglir_type_of(in->g, body->results.data[i]), carry));
        in->results[i] = *carry;
    }
    *in->count = in->arg_count;
    return SGL_OK;
}

sgl_status sglir_infer_scan(const sglir_infer *in)
{
    int64_t steps = sglir_infer_int(in, "steps");
    SGLCORE_TRY(check_regions(in));
    if (steps < 0) return sglir_infer_fail(in, "%" PRId64 " steps", steps);
    return infer_loop(in, region_at(in, 0));
}

/* What is decided must be the same on every rank: a bool that is whole, and owes nothing. */
static sgl_status check_predicate(const sglir_infer *in, const sglir_type *type)
{
    const sglir_type want = sglir_type_make(SGL_BOOL, 0, NULL);
    char text[SGLIR_TYPE_ROOM];
    if (sglir_type_equal(type, &want)) return SGL_OK;
    return sglir_infer_fail(in, "the predicate is %s; it must be bool[], whole and settled",
                            sglir_type_text(type, text, sizeof text));
}

sgl_status sglir_infer_while(const sglir_infer *in)
{
    int64_t limit = sglir_infer_int(in, "limit");
    SGLCORE_TRY(check_regions(in));
    if (limit < -1) return sglir_infer_fail(in, "the limit is %" PRId64 "; -1 says that there is none", limit);
    SGLCORE_TRY(check_parameters(in, region_at(in, 0), 1));
    SGLCORE_TRY(check_predicate(in, sglir_type_of(in->g, region_at(in, 0)->results.data[0])));
    return infer_loop(in, region_at(in, 1));
}

sgl_status sglir_infer_cond(const sglir_infer *in)
{
    SGLCORE_TRY(check_regions(in));
    SGLCORE_TRY(check_predicate(in, sglir_infer_arg(in, 0)));
    const sglir_region *yes = region_at(in, 0), *no = region_at(in, 1);
    if (yes->parameters.count > 0 || no->parameters.count > 0)
        return sglir_infer_fail(in, "its regions have no parameters; they use what is around them");
    if (yes->results.count != no->results.count)
        return sglir_infer_fail(in, "one region yields %" PRId64 " values, the other %" PRId64, yes->results.count,
                                no->results.count);
    for (int64_t i = 0; i < yes->results.count; i++) {
        const sglir_type *type = sglir_type_of(in->g, yes->results.data[i]);
        SGLCORE_TRY(must_equal(in, "what the second region yields as result", (int)i,
                               sglir_type_of(in->g, no->results.data[i]), type));
        in->results[i] = *type;
    }
    *in->count = (int)yes->results.count;
    return SGL_OK;
}

/* A kernel sees its parameters only, and holds no region of its own. */
static sgl_status check_closed(const sglir_infer *in, sglir_id id)
{
    const sglir_graph *g = in->g;
    const sglir_region *region = &g->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, region->nodes.data[n]);
        if (node->region_count > 0)
            return sglir_infer_fail(in, "its region holds a region, of %s", sglir_ops[node->op].name);
        for (uint32_t i = 0; i < node->arg_count; i++) {
            if (sglir_value_at(g, sglir_arg(g, node, i))->region != id)
                return sglir_infer_fail(in, "%s in its region uses a value from outside; hand it over as an argument",
                                        sglir_ops[node->op].name);
        }
    }
    for (int64_t i = 0; i < region->results.count; i++) {
        if (sglir_value_at(g, region->results.data[i])->region != id)
            return sglir_infer_fail(in, "its region yields a value from outside");
    }
    return SGL_OK;
}

sgl_status sglir_infer_fused(const sglir_infer *in)
{
    SGLCORE_TRY(check_regions(in));
    const sglir_region *region = region_at(in, 0);
    const sglir_named *domain = sglir_infer_attr(in, "domain");
    int64_t inner = sglir_infer_int(in, "inner");
    sglir_type shape;
    SGLCORE_TRY(sglir_infer_dims(in, SGL_F32, domain, &shape));
    if (inner < 0 || inner > domain->i)
        return sglir_infer_fail(in, "inner is %" PRId64 " of %" PRId64 " dimensions", inner, domain->i);
    if (region->parameters.count != in->arg_count)
        return sglir_infer_fail(in, "%d arguments for a region of %" PRId64 " parameters", in->arg_count,
                                region->parameters.count);
    for (int i = 0; i < in->arg_count; i++)
        SGLCORE_TRY(
            must_equal(in, "parameter", i, sglir_type_of(in->g, region->parameters.data[i]), sglir_infer_arg(in, i)));
    SGLCORE_TRY(check_closed(in, in->regions[0]));
    if (region->results.count == 0) return sglir_infer_fail(in, "its region yields nothing");
    for (int64_t i = 0; i < region->results.count; i++) in->results[i] = *sglir_type_of(in->g, region->results.data[i]);
    *in->count = (int)region->results.count;
    return SGL_OK;
}
