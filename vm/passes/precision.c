/* precision.c -- bf16 and fp16: casts by policy, over the graph as it was traced.
 *
 * In: a graph in f32, the plan's precision. Out: the same with products in the narrow dtype and all that is said of it in
 * precision_class.c; parameters, states, gradients of parameters and what the optimizer makes of them stay f32, each
 * parameter is cast once. For fp16 the loss is scaled too (precision_scale.c). Runs before autodiff, so that norms and
 * losses are seen whole and the backward pass is as narrow as the forward one: derivatives go through the casts, and leave
 * a product unrounded where a parameter's begins (vjp_wide.c). What was traced in another dtype stays as it is.
 * A graph that reads caches stays f32: a generation step reads each weight once, and to cast it would cost more than it
 * saves. Odd invariant: a value of the old graph stands for one of the same shape whose dtype may be narrower, and only if
 * it was f32; whoever uses it asks for the dtype that it needs. */
#include <math.h>

#include "passes/precision.h"

/* ---- casts ------------------------------------------------------------------------------------------------------ */

static bool is_open(const sglir_graph *g, sglir_id region)
{
    for (int64_t i = 0; i < g->open.count; i++) {
        if (g->open.data[i] == region) return true;
    }
    return false;
}

sglir_id sglpass_precision_as(sglpass_narrowing *p, sglir_id value, sgl_dtype dtype)
{
    sglir_graph *g = p->rewrite.to;
    sglir_id now = p->rewrite.map[value];
    if (g->status != SGL_OK || (sgl_dtype)sglir_type_of(g, now)->dtype == dtype) return now;
    sglir_id *made = dtype == p->narrow ? &p->cast_narrow[value] : &p->cast_wide[value];
    if (*made != SGLIR_NONE && is_open(g, sglir_value_at(g, *made)->region)) return *made;
    p->changed = true;
    double number;
    if (!sglir_constant_value(g, now, &number)) return *made = sglir_cast(g, now, dtype);
    sglir_id constant = sglir_constant(g, dtype, number);
    return *made = sglir_broadcast_like(g, constant, now);
}

static bool is_f32(const sglpass_narrowing *p, sglir_id value)
{
    return sglir_type_of(p->rewrite.from, value)->dtype == SGL_F32;
}

static bool is_narrow(const sglpass_narrowing *p, sglir_id value)
{
    return is_f32(p, value) && sglir_type_of(p->rewrite.to, p->rewrite.map[value])->dtype == p->narrow;
}

/* ---- what is narrow ----------------------------------------------------------------------------------------------- */

/* Whether the number is as good in the narrow dtype: a mask of -1e9 is an infinity in f16, an epsilon of 1e-8 is 0. */
static bool fits(sgl_dtype narrow, double number)
{
    const double largest = 65504, least = 0x1p-14;
    return narrow != SGL_F16 || number == 0 || !isfinite(number) || (fabs(number) <= largest && fabs(number) >= least);
}

static bool fills_fit(const sglpass_narrowing *p, const sglir_node *node)
{
    if (node->op != SGLIR_OP_PAD && node->op != SGLIR_OP_WINDOWS) return true;
    return fits(p->narrow, sglir_attr_float(p->rewrite.from, node, "value"));
}

/* A sum over all of both, which is a reduction by another name. */
static bool is_scalar_product(const sglir_graph *g, const sglir_node *node)
{
    return (node->op == SGLIR_OP_DOT || node->op == SGLIR_OP_MATMUL) && sglir_type_of(g, node->out_first)->rank == 0;
}

/* The plan's `stream`: of a sum of two, an argument that is wide and was not broadcast, as a bias is. */
static bool is_wide_stream(const sglpass_narrowing *p, const sglir_node *node, sglir_id value)
{
    const sglir_graph *g = p->rewrite.from;
    if (!p->plan->stream || node->op != SGLIR_OP_ADD || is_narrow(p, value)) return false;
    return sglir_maker(g, value)->op != SGLIR_OP_BROADCAST;
}

/* Whether the argument keeps the node wide. *follows: it asks for narrow. */
static bool keeps_wide(const sglpass_narrowing *p, const sglir_node *node, uint32_t i, bool *follows)
{
    const sglir_graph *g = p->rewrite.from;
    sglir_id value = sglir_arg(g, node, i);
    sglpass_width width = sglpass_width_of((sglir_op)node->op);
    double number;
    if (!sglcore_dtype_is_float((sgl_dtype)sglir_type_of(g, value)->dtype)) return false;
    if (!is_f32(p, value) || (p->from[value] & SGLPASS_FROM_GRADIENT)) return true;
    if (width == SGLPASS_NORM && i > 0) return false;
    if (sglir_constant_value(g, value, &number)) return !fits(p->narrow, number);
    *follows = *follows || is_narrow(p, value);
    if (is_wide_stream(p, node, value)) return true;
    if (node->op == SGLIR_OP_DIV && i == 1) return true; /* by data */
    return width != SGLPASS_NARROW && (p->from[value] & SGLPASS_FROM_STATE);
}

static bool goes_narrow(sglpass_narrowing *p, const sglir_node *node)
{
    sglpass_width width = sglpass_width_of((sglir_op)node->op);
    bool follows = false;
    if (p->narrow == SGL_F32 || width == SGLPASS_AS_IT_IS || width == SGLPASS_WIDE || !fills_fit(p, node) ||
        is_scalar_product(p->rewrite.from, node) || sglpass_precision_keeps(p, node))
        return false;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        if (keeps_wide(p, node, i, &follows)) return false;
    }
    return width == SGLPASS_NARROW || follows;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------- */

static void take(sglpass_narrowing *p, sglir_id id);

static void set_origin_of(sglpass_narrowing *p, sglir_id id)
{
    sglir_set_origin_made(p->rewrite.to, p->rewrite.from, id, p->rewrite.pass);
}

/* What the node's results were made from. */
static void mark(sglpass_narrowing *p, const sglir_node *node, bool narrow)
{
    uint8_t from = 0;
    for (uint32_t i = 0; i < node->arg_count; i++) from |= p->from[sglir_arg(p->rewrite.from, node, i)];
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &p->rewrite.from->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->results.count; i++) from |= p->from[region->results.data[i]];
    }
    if (node->op == SGLIR_OP_GRAD) from = SGLPASS_FROM_GRADIENT;
    if (node->op == SGLIR_OP_INPUT && sglir_attr_int(p->rewrite.from, node, "role") == SGL_STATE)
        from = SGLPASS_FROM_STATE;
    if (narrow) from = 0;
    for (uint32_t k = 0; k < node->out_count; k++) p->from[node->out_first + k] = from;
}

/* Emits the node over its arguments in the dtypes that it takes. */
static void emit_node(sglpass_narrowing *p, sglir_id id, bool narrow, sglir_id *args)
{
    const sglir_graph *g = p->rewrite.from;
    const sglir_node *node = sglir_node_at(g, id);
    sglpass_width width = sglpass_width_of((sglir_op)node->op);
    sglir_named attrs[SGLIR_MOST_ATTRS];
    bool same = true;
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id value = sglir_arg(g, node, i);
        bool cast = width != SGLPASS_AS_IT_IS && is_f32(p, value);
        bool wide = !narrow || (width == SGLPASS_NORM && i > 0);
        args[i] = cast ? sglpass_precision_as(p, value, wide ? SGL_F32 : p->narrow) : p->rewrite.map[value];
        same = same && args[i] == p->rewrite.map[value];
    }
    if (same) {
        sglir_copy_node(&p->rewrite, id);
        return;
    }
    sglir_set_origin_of(p->rewrite.to, &g->origins.data[node->origin], g);
    int count = sglir_attrs_named(g, node, attrs);
    sglir_emit(p->rewrite.to, (sglir_op)node->op, args, (int)node->arg_count, attrs, count,
               &p->rewrite.map[node->out_first]);
}

static void fill_region(void *user, sglir_id id, sglir_id *results)
{
    sglpass_narrowing *p = user;
    const sglir_region *region = &p->rewrite.from->regions.data[id];
    for (int64_t n = 0; n < region->nodes.count && p->rewrite.to->status == SGL_OK; n++) {
        if (p->rewrite.live[region->nodes.data[n]]) take(p, region->nodes.data[n]);
    }
    for (int64_t i = 0; i < region->results.count && p->rewrite.to->status == SGL_OK; i++) {
        sglir_id value = region->results.data[i];
        results[i] = is_f32(p, value) ? sglpass_precision_as(p, value, SGL_F32) : p->rewrite.map[value];
    }
}

/* Regions take and give f32, and are of two widths within. */
static void emit_regions(sglpass_narrowing *p, sglir_id id, sglir_id *saved)
{
    const sglir_graph *g = p->rewrite.from;
    const sglir_node *node = sglir_node_at(g, id);
    for (uint32_t i = 0; i < node->arg_count; i++) {
        sglir_id value = sglir_arg(g, node, i);
        saved[i] = p->rewrite.map[value];
        if (is_f32(p, value)) p->rewrite.map[value] = sglpass_precision_as(p, value, SGL_F32);
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        const sglir_region *region = &g->regions.data[node->region_first + r];
        for (int64_t i = 0; i < region->parameters.count; i++) {
            int64_t arg = i - (region->parameters.count - node->arg_count);
            if (arg >= 0) p->from[region->parameters.data[i]] = p->from[sglir_arg(g, node, (uint32_t)arg)];
        }
    }
    sglir_copy_around(&p->rewrite, id, fill_region, p);
    for (uint32_t i = node->arg_count; i-- > 0;) p->rewrite.map[sglir_arg(g, node, i)] = saved[i];
}

static void emit_update_number(sglpass_narrowing *p, const sglir_node *node)
{
    sglir_id step = p->rewrite.map[sglir_arg(p->rewrite.from, node, 0)];
    if (p->skipped != SGLIR_NONE) step = sglir_sub(p->rewrite.to, step, p->skipped);
    p->rewrite.map[node->out_first] = step;
    p->changed = true;
}

static void take(sglpass_narrowing *p, sglir_id id)
{
    sglir_graph *to = p->rewrite.to;
    const sglir_node *node = sglir_node_at(p->rewrite.from, id);
    bool narrow = goes_narrow(p, node),
         scaled = node->op == SGLIR_OP_GRAD && p->scale != SGLIR_NONE && sglir_attr_int(p->rewrite.from, node, "outer");
    size_t bytes = node->arg_count * sizeof(sglir_id);
    sglir_id *args = sglcore_alloc(p->env, bytes);
    if (args == NULL && bytes > 0) {
        sglir_stick(to, SGL_OUT_OF_MEMORY);
        return;
    }
    set_origin_of(p, id);
    p->learns = p->learns || node->op == SGLIR_OP_GRAD;
    if (node->op == SGLIR_OP_UPDATE_NUMBER)
        emit_update_number(p, node);
    else if (scaled)
        sglpass_scale_grad(p, id);
    else if (node->region_count > 0)
        emit_regions(p, id, args);
    else
        emit_node(p, id, narrow, args);
    sglcore_free(p->env, args, bytes);
    mark(p, node, narrow);
    for (uint32_t k = 0; k < node->out_count && to->status == SGL_OK; k++) {
        if (p->early[node->out_first + k]) sglpass_precision_as(p, node->out_first + k, p->narrow);
    }
}

/* ---- the pass ----------------------------------------------------------------------------------------------------- */

/* What regions use in products is cast outside of them, once. */
static void find_early(sglpass_narrowing *p)
{
    const sglir_graph *g = p->rewrite.from;
    for (int64_t n = 0; n < g->nodes.count && p->narrow != SGL_F32; n++) {
        const sglir_node *node = sglir_node_at(g, (sglir_id)n);
        if (node->region == 0 || sglpass_width_of((sglir_op)node->op) != SGLPASS_NARROW) continue;
        for (uint32_t i = 0; i < node->arg_count; i++) {
            sglir_id value = sglir_arg(g, node, i);
            if (is_f32(p, value) && sglir_value_at(g, value)->region == 0) p->early[value] = 1;
        }
    }
}

static sgl_dtype narrow_dtype(const sglplan *plan, const sglir_graph *g)
{
    const sglir_region *top = &g->regions.data[0];
    for (int64_t n = 0; n < top->nodes.count; n++) {
        const sglir_node *node = sglir_node_at(g, top->nodes.data[n]);
        if (node->op == SGLIR_OP_INPUT && sglir_attr_int(g, node, "role") == SGL_CACHE) return SGL_F32;
    }
    return plan->precision == SGL_BF16 || plan->precision == SGL_F16 ? (sgl_dtype)plan->precision : SGL_F32;
}

static sgl_status walk(sglpass_narrowing *p)
{
    const sglir_graph *g = p->rewrite.from;
    const sglir_region *top = &g->regions.data[0];
    find_early(p);
    sglpass_scale_begin(p);
    for (int64_t n = 0; n < top->nodes.count && p->rewrite.to->status == SGL_OK; n++) {
        if (p->rewrite.live[top->nodes.data[n]]) take(p, top->nodes.data[n]);
    }
    sglir_set_origin(p->rewrite.to, "", 0, "", p->rewrite.pass);
    for (int64_t i = 0; i < g->outputs.count && p->rewrite.to->status == SGL_OK; i++) {
        sglir_id value = g->outputs.data[i].value;
        if (is_f32(p, value)) p->rewrite.map[value] = sglpass_precision_as(p, value, SGL_F32);
    }
    SGLCORE_TRY(sglir_status(p->rewrite.to));
    SGLCORE_TRY(sglpass_precision_check_named(p));
    return p->scale == SGLIR_NONE ? SGL_OK : sglpass_scale_outputs(p);
}

static sgl_status run(sglpass_narrowing *p, const sglir_graph *in, sglir_graph **out)
{
    sglcore_arena arena = { .env = p->env };
    size_t values = (size_t)in->values.count;
    uint8_t *live = sglcore_arena_alloc(&arena, (size_t)in->nodes.count);
    p->from = sglcore_arena_alloc(&arena, values);
    p->early = sglcore_arena_alloc(&arena, values);
    p->cast_narrow = sglcore_arena_alloc(&arena, values * sizeof(sglir_id));
    p->cast_wide = sglcore_arena_alloc(&arena, values * sizeof(sglir_id));
    bool room = live && p->from && p->early && p->cast_narrow && p->cast_wide;
    sgl_status status = room ? sglir_rewrite_begin(p->env, in, "precision", p, &p->rewrite) : SGL_OUT_OF_MEMORY;
    if (status == SGL_OK) {
        for (size_t v = 0; v < values; v++) {
            p->from[v] = p->early[v] = 0;
            p->cast_narrow[v] = p->cast_wide[v] = SGLIR_NONE;
        }
        status = sglir_mark_live(in, live);
        p->rewrite.live = live;
        if (status == SGL_OK) status = walk(p);
        if (status != SGL_OK) p->rewrite.to->status = status;
        status = sglir_rewrite_end(&p->rewrite, p->scale == SGLIR_NONE, out);
    }
    sglcore_arena_free(&arena);
    return status;
}

sgl_status sglpass_precision(const sglpass_context *context, const sglir_graph *in, sglir_graph **out)
{
    sglpass_narrowing p = { .env = context->env,
                            .plan = context->plan,
                            .narrow = narrow_dtype(context->plan, in),
                            .scale = SGLIR_NONE,
                            .skipped = SGLIR_NONE,
                            .culprit = SGLIR_NONE };
    *out = NULL;
    SGLCORE_TRY(run(&p, in, out));
    sglpass_say(context, in, *out, p.changed);
    return SGL_OK;
}
